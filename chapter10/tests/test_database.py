"""One SQLite file by one set of rules: whole transactions, named faults, no file taken that is not ours."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import threading
import unittest
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, contextmanager
from typing import Any, ClassVar
from unittest import mock

from chapter10.companions.work.turnstile import FairDatabase
from chapter10.database import BUSY_SECONDS, MAX_BUSY_SECONDS, Database, StoreError, Transaction
from chapter10.tests.support import FolderTestCase, also_on, start_python

OURS = 0x7E57
FIRST = "CREATE TABLE things (name TEXT PRIMARY KEY, CONSTRAINT not_empty CHECK (name <> ''));"
SECOND = "ALTER TABLE things ADD COLUMN size INTEGER; CREATE INDEX by_size ON things (size);"

HOLD_THE_LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.readline()
db.execute("COMMIT")
db.close()
"""


class DatabaseTestCase(FolderTestCase):
    make: ClassVar[type[Database]] = Database

    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "store.db"

    def open(self, *migrations: str, path: Any = None, **options: Any) -> Database:
        """Open a store with these migrations (one by default), closed at the end of the test."""
        database = self.make(
            self.path if path is None else path, application_id=OURS, migrations=migrations or (FIRST,), **options
        )
        self.addCleanup(database.close)
        return database

    def names(self) -> list[str]:
        """Return what another connection sees."""
        with closing(sqlite3.connect(self.path)) as other:
            return [name for (name,) in other.execute("SELECT name FROM things ORDER BY name")]

    def refused(self, code: str, call: Callable[..., object], *arguments: Any, **options: Any) -> StoreError:
        with self.assertRaises(StoreError) as caught:
            call(*arguments, **options)
        self.assertEqual((code, code), (caught.exception.code, str(caught.exception)))
        return caught.exception

    def hold(self, statement: str) -> subprocess.Popen[str]:
        """Let another process take a lock and keep it until the test ends, or until it is ended."""
        child = start_python(["-c", HOLD_THE_LOCK, str(self.path), statement])
        assert child.stdin and child.stdout and child.stderr
        self.addCleanup(child.stderr.close)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.stdin.close)
        self.assertEqual("held\n", child.stdout.readline())
        return child


def insert(database: Database, name: str) -> None:
    with database.write() as connection:
        connection.execute("INSERT INTO things (name) VALUES (?)", (name,))


@also_on(FairDatabase)
class Transactions(DatabaseTestCase):
    def test_a_write_takes_the_lock_before_its_first_read(self) -> None:
        """Every transaction begins with BEGIN IMMEDIATE and ends with COMMIT.

        Claims: C10-153.
        """
        database = self.open()
        said: list[str] = []
        database.connection.set_trace_callback(said.append)
        insert(database, "a")
        self.assertEqual(("BEGIN IMMEDIATE", "COMMIT"), (said[0], said[-1]))

    def test_what_was_written_is_there_when_the_call_returns(self) -> None:
        """Another connection sees a committed row at once, and the commit was synchronous.

        Claims: C10-138.
        """
        database = self.open()
        insert(database, "a")
        self.assertEqual(["a"], self.names())
        self.assertEqual((2,), database.row("PRAGMA synchronous"))
        self.assertEqual((1,), database.row("PRAGMA foreign_keys"))

    def test_an_error_in_the_block_leaves_nothing(self) -> None:
        """Whatever ends the block, Ctrl-C included, comes out as it is, and nothing was stored."""
        database = self.open()
        for error in (LookupError("mine"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
            with self.subTest(type(error).__name__):
                with self.assertRaises(type(error)) as caught, database.write() as connection:
                    connection.execute("INSERT INTO things (name) VALUES ('a')")
                    raise error
                self.assertIs(error, caught.exception)
                self.assertFalse(database.connection.in_transaction)
                self.assertEqual([], self.names())
        insert(database, "b")
        self.assertEqual(["b"], self.names())

    def test_a_violated_constraint_comes_out_as_it_is(self) -> None:
        """An `IntegrityError` is our own bug and no fault of the machine; the transaction is gone.

        Claims: C10-150.
        """
        database = self.open()
        with self.assertRaisesRegex(sqlite3.IntegrityError, "not_empty"), database.write() as connection:
            connection.execute("INSERT INTO things (name) VALUES ('a')")
            connection.execute("INSERT INTO things (name) VALUES ('')")
        self.assertEqual([], self.names())

    def test_the_first_error_is_the_one_reported(self) -> None:
        """A full disk makes SQLite roll back by itself; the caller learns of the disk, not of that."""
        database = self.open()
        pages = database.row("PRAGMA page_count")[0]
        database.row(f"PRAGMA max_page_count={pages}")
        error = self.refused("store_unavailable", insert, database, "x" * 100_000)
        self.assertIn("full", error.reason)
        self.assertIsInstance(error.__cause__, sqlite3.OperationalError)
        self.assertFalse(database.connection.in_transaction)
        database.row("PRAGMA max_page_count=1000000")
        insert(database, "x" * 100_000)
        self.assertEqual(1, len(self.names()))

    def test_an_interrupt_between_the_block_and_its_end_blocks_nobody(self) -> None:
        """A transaction that an interrupt left open is rolled back by the next one."""
        database = self.open()
        left_open = database.write().__enter__()
        left_open.execute("INSERT INTO things (name) VALUES ('lost')")
        insert(database, "kept")
        self.assertEqual(["kept"], self.names())

    def test_an_interrupt_right_after_the_lock_was_taken_gives_it_back(self) -> None:
        """Ctrl-C between BEGIN and the block leaves no lock behind."""

        class Struck(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                cursor = super().execute(sql, *parameters)
                if sql.startswith("BEGIN"):
                    raise KeyboardInterrupt
                return cursor

        database = self.open()
        with closing(sqlite3.connect(self.path, isolation_level=None, factory=Struck)) as connection:
            with mock.patch.object(database, "_connection", connection), self.assertRaises(KeyboardInterrupt):
                database.write().__enter__()
            self.assertFalse(connection.in_transaction)
        insert(database, "a")

    @unittest.skipUnless(hasattr(signal, "setitimer"), "no interval timer on this system")
    def test_an_interrupt_at_any_moment_leaves_a_store_that_works(self) -> None:
        """A signal that raises at hundreds of different moments never leaves half a transaction.

        Claims: C10-237.
        """
        database = self.open("CREATE TABLE things (name TEXT); CREATE TABLE twins (name TEXT);")

        def strike(number: int, frame: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, strike)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for number in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + number % 100 * 2e-6)
                for _ in range(3):
                    with database.write() as connection:
                        connection.execute("INSERT INTO things VALUES (?)", (number,))
                        connection.execute("INSERT INTO twins VALUES (?)", (number,))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        with database.write() as connection:
            counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("things", "twins")]
        self.assertEqual(counts[0], counts[1])

    def test_a_block_that_closes_the_store_is_an_unusable_store(self) -> None:
        """Closing inside a transaction is `store_unavailable`, and stores nothing."""
        database = self.open()

        def close_inside() -> None:
            with database.write() as connection:
                connection.execute("INSERT INTO things (name) VALUES ('a')")
                database.close()

        self.refused("store_unavailable", close_inside)
        self.assertEqual([], self.names())


@also_on(FairDatabase)
class Owners(DatabaseTestCase):
    def test_a_second_task_that_writes_is_refused_and_takes_nothing_from_the_first(self) -> None:
        """The one that has the transaction keeps it whole; the other one is told, and may write afterwards."""
        database = self.open()

        async def write(name: str) -> None:
            with database.write() as connection:
                connection.execute("INSERT INTO things (name) VALUES (?)", (f"{name}1",))
                await asyncio.sleep(0)
                connection.execute("INSERT INTO things (name) VALUES (?)", (f"{name}2",))

        async def both() -> tuple[BaseException | None, BaseException | None]:
            return await asyncio.gather(write("a"), write("b"), return_exceptions=True)

        first, second = asyncio.run(both())
        assert isinstance(second, StoreError)
        self.assertEqual((None, "store_unavailable", "second_owner"), (first, second.code, second.reason))
        asyncio.run(write("c"))
        self.assertEqual(["a1", "a2", "c1", "c2"], self.names())

    def test_a_write_inside_a_write_is_refused_and_the_outer_one_goes_on(self) -> None:
        """Transactions do not nest, and a block that asks for a second one loses nothing by the refusal."""
        database = self.open()
        with database.write() as connection:
            connection.execute("INSERT INTO things (name) VALUES ('outer')")
            self.assertEqual("second_owner", self.refused("store_unavailable", insert, database, "inner").reason)
        self.assertEqual(["outer"], self.names())

    def test_whoever_waits_in_a_block_is_the_owner_though_sqlite_has_rolled_it_back(self) -> None:
        """A full disk ends the transaction inside SQLite; until its block has ended, nobody else begins one."""
        database = self.open()
        held = database.write()
        held.__enter__().execute("ROLLBACK")
        self.refused("store_unavailable", insert, database, "a")
        held.__exit__(KeyError, KeyError(), None)
        insert(database, "b")
        self.assertEqual(["b"], self.names())


@unittest.skipUnless(hasattr(os, "fork"), "no fork on this system")
@also_on(FairDatabase)
class Forks(DatabaseTestCase):
    def in_a_child(self, *calls: Callable[[], object]) -> list[str]:
        """Return how each call ends in a process that is forked now: a reason of ours, or `done`."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for call in calls:
                    ending = "done"
                    try:
                        call()
                    except StoreError as error:
                        ending = error.reason
                    os.write(write, f"{ending}\n".encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with open(read, encoding="utf-8") as answer:
            return answer.read().splitlines()

    def test_a_process_that_was_forked_while_the_file_was_open_is_refused_it(self) -> None:
        """The inherited store, and one of its own on that file: no call is made on locks that stayed behind."""
        database = self.open()
        insert(database, "a")
        link = self.folder / "link.db"
        link.symlink_to(self.path)
        calls = (
            lambda: insert(database, "lost"),
            lambda: database.row("SELECT 1"),
            lambda: database.rows("SELECT 1"),
            database.close,
            self.open,
            lambda: self.open(path=link),
        )
        self.assertEqual(["forked"] * len(calls), self.in_a_child(*calls))
        insert(database, "b")
        self.assertEqual(["a", "b"], self.names())

    def test_a_transaction_is_not_ended_by_a_process_that_was_forked_in_it(self) -> None:
        """The child leaves the block and neither commits nor takes back; the parent commits."""
        database = self.open()
        held = database.write()
        held.__enter__().execute("INSERT INTO things (name) VALUES ('a')")
        self.assertEqual(["forked"] * 2, self.in_a_child(lambda: held.__exit__(None, None, None), self.open))
        held.__exit__(None, None, None)
        self.assertEqual(["a"], self.names())

    def test_what_was_not_open_when_it_was_forked_is_a_processs_own(self) -> None:
        """Another file, one that was closed in time, and a store in memory work in the child."""
        self.open(path=":memory:")
        other = self.open(path=self.folder / "other.db")
        self.open().close()
        calls = (self.open, lambda: self.open(path=":memory:"), lambda: self.open(path=self.folder / "new.db"))
        self.assertEqual(["done"] * 3, self.in_a_child(*calls))
        insert(other, "a")


@also_on(FairDatabase)
class Faults(DatabaseTestCase):
    def test_a_lock_that_another_process_keeps_is_store_busy(self) -> None:
        """When the waiting time is over the call says `store_busy`, and works once the lock is free."""
        database = self.open(busy_seconds=0.05)
        self.hold("BEGIN IMMEDIATE")
        error = self.refused("store_busy", insert, database, "a")
        self.assertIsInstance(error.__cause__, sqlite3.OperationalError)
        self.assertEqual([], database.rows("SELECT name FROM things"))

    @unittest.skipUnless(hasattr(signal, "SIGSTOP"), "no process can be stopped on this system")
    def test_a_process_that_was_stopped_in_a_transaction_keeps_the_lock_until_it_ends(self) -> None:
        """Writers are told, readers go on, and its end frees the lock and stores nothing."""
        database = self.open(busy_seconds=0.05)
        child = self.hold("BEGIN IMMEDIATE")
        os.kill(child.pid, signal.SIGSTOP)
        self.addCleanup(child.kill)
        self.refused("store_busy", insert, database, "a")
        self.assertEqual([], database.rows("SELECT name FROM things"))
        child.kill()
        child.wait()
        insert(database, "b")
        self.assertEqual(["b"], self.names())

    def test_without_wal_a_lock_stops_readers_and_is_store_busy_too(self) -> None:
        """With the rollback journal an exclusive lock keeps readers out; they get the same name."""
        database = self.open(busy_seconds=0)
        database.row("PRAGMA journal_mode=DELETE")
        insert(database, "a")
        self.hold("BEGIN EXCLUSIVE")
        self.refused("store_busy", database.row, "SELECT 1 FROM things")
        self.refused("store_busy", database.rows, "SELECT 1 FROM things")
        self.refused("store_busy", insert, database, "b")
        self.refused("store_busy", self.open, busy_seconds=0)

    def test_without_wal_a_reader_stops_a_commit_and_nothing_is_stored(self) -> None:
        """A commit that must wait for a reader gives up whole, and the next one works."""
        database = self.open(busy_seconds=0)
        database.row("PRAGMA journal_mode=DELETE")
        with closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM things").fetchall()
            self.refused("store_busy", insert, database, "a")
            self.assertFalse(database.connection.in_transaction)
        insert(database, "b")
        self.assertEqual(["b"], self.names())

    def test_each_kind_of_busy_has_the_one_name(self) -> None:
        """A transaction that began with a read and lost to another writer is busy, and not broken."""
        database = self.open()
        if database.row("PRAGMA journal_mode") != ("wal",):
            self.skipTest("this file system has no WAL, without which this kind does not exist")
        database.row("BEGIN")
        database.rows("SELECT name FROM things")
        insert(self.open(), "a")
        error = self.refused("store_busy", database.row, "INSERT INTO things (name) VALUES ('b')")
        assert isinstance(error.__cause__, sqlite3.Error)
        self.assertEqual(sqlite3.SQLITE_BUSY_SNAPSHOT, error.__cause__.sqlite_errorcode)

    def test_a_lost_race_for_the_first_lock_of_wal_is_busy(self) -> None:
        """SQLite's "locking protocol" passes when it is tried again, so it is no broken machine."""
        database = self.open()
        lost = sqlite3.OperationalError("locking protocol")
        lost.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL

        def lose() -> None:
            with database.write():
                raise lost

        self.assertIs(lost, self.refused("store_busy", lose).__cause__)

    def test_a_closed_store_is_unavailable(self) -> None:
        """After `close` every call says so, and a second close does nothing."""
        database = self.open()
        database.close()
        database.close()
        self.refused("store_unavailable", database.row, "SELECT 1")
        self.refused("store_unavailable", database.rows, "SELECT 1")
        self.refused("store_unavailable", insert, database, "a")

    def test_another_thread_is_refused_and_disturbs_nothing(self) -> None:
        """A store belongs to its thread; reading, writing and closing elsewhere are refused by name."""
        database = self.open()
        codes: list[str] = []

        def use() -> None:
            for call in (lambda: database.row("SELECT 1"), lambda: insert(database, "a"), database.close):
                try:
                    call()
                except StoreError as error:
                    codes.append(error.code)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertEqual(["store_unavailable"] * 3, codes)
        insert(database, "b")
        self.assertEqual(["b"], self.names())

    @unittest.skipUnless(hasattr(os, "fork") and hasattr(os, "geteuid"), "no users and no fork on this system")
    def test_a_file_that_may_only_be_read_is_unavailable_for_writing(self) -> None:
        """Without the right to write, writing is refused by name and the file keeps its bytes."""
        self.open().close()
        before = self.path.read_bytes()
        os.chmod(self.path, 0o444)
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        child = os.fork()
        if child == 0:
            code = 9
            try:
                if os.geteuid() == 0:
                    os.setuid(65534)
                try:
                    with closing(self.make(self.path, application_id=OURS, migrations=(FIRST,))) as database:
                        insert(database, "a")
                except StoreError as error:
                    code = 0 if error.code == "store_unavailable" else 8
            finally:
                os._exit(code)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        self.assertEqual(before, self.path.read_bytes())

    def test_a_connection_that_may_only_read_is_unavailable_for_writing(self) -> None:
        """SQLite's own read-only switch gives the same name, and reading still works."""
        database = self.open()
        database.row("PRAGMA query_only=ON")
        self.refused("store_unavailable", insert, database, "a")
        self.assertEqual([], database.rows("SELECT name FROM things"))


@also_on(FairDatabase)
class DamagedNames(DatabaseTestCase):
    """SQLite cannot even say what is wrong when a name in its schema is damaged."""

    def test_a_damaged_schema_is_a_broken_machine(self) -> None:
        """The error that Python cannot decode is `store_unavailable` like every other (D4)."""
        self.open().close()
        content = bytearray(self.path.read_bytes())
        content[content.index(b"tablethings") + 6] = 0xFF
        self.path.write_bytes(content)
        with self.assertRaises(StoreError) as caught:
            insert(self.open(), "a")
        self.assertEqual(caught.exception.code, "store_unavailable")


class Opening(DatabaseTestCase):
    def test_what_is_no_path_is_refused(self) -> None:
        """Numbers, None, an empty path, a NUL, a lone surrogate, a folder, a missing folder: one name."""
        for path in (None, 3, True, b"", "", "a\0b", "\ud800", object(), self.folder, self.folder / "no" / "file"):
            with self.subTest(path=repr(path)):
                with self.assertRaises(StoreError) as caught:
                    self.make(path, application_id=OURS, migrations=(FIRST,))  # type: ignore[arg-type]
                self.assertEqual("store_unavailable", caught.exception.code)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_a_waiting_time_that_is_none_is_refused(self) -> None:
        """The waiting time is a number from 0 to a stated bound; nothing is opened for another."""
        for seconds in (None, "1", True, float("nan"), float("inf"), -1, -0.001, MAX_BUSY_SECONDS + 1, 10**400):
            with self.subTest(seconds=seconds):
                self.refused("store_unavailable", self.open, busy_seconds=seconds)
        self.assertFalse(self.path.exists())
        longest = self.open(busy_seconds=MAX_BUSY_SECONDS)
        self.assertEqual((86_400_000,), longest.row("PRAGMA busy_timeout"))
        self.assertEqual((BUSY_SECONDS, (10_000,)), (10.0, self.open().row("PRAGMA busy_timeout")))

    def test_every_kind_of_path_is_accepted(self) -> None:
        """A text, a `Path`, bytes and names with blanks, Chinese and URI marks open the file they name."""
        for name in ("plain.db", "with blank.db", "报表.db", "file:x?mode=ro", "100%.db"):
            if os.name == "nt" and set(name) & set(":?"):
                continue
            with self.subTest(name=name):
                self.open(path=str(self.folder / name)).close()
                self.open(path=self.folder / name).close()
                self.open(path=os.fsencode(self.folder / name)).close()
                self.assertTrue((self.folder / name).is_file())

    def test_a_relative_path_stays_the_file_that_it_was(self) -> None:
        """`path` names the file from the root on, so that what is opened later in another folder is the same one."""
        with chdir(self.folder):
            database = self.open(path="store.db")
        self.assertEqual(os.path.realpath(self.path), database.path)
        self.open(path=database.path)
        insert(database, "a")
        self.assertEqual((["a"], ":memory:"), (self.names(), self.open(path=":memory:").path))

    def test_a_relative_path_in_a_folder_that_is_gone_is_refused(self) -> None:
        """There is no file that it could be."""
        with mock.patch("os.getcwd", side_effect=FileNotFoundError):
            self.refused("store_unavailable", self.open, path="store.db")

    def test_a_store_in_memory_is_private(self) -> None:
        """`:memory:` gives each its own store and leaves no file."""
        one, two = self.open(path=":memory:"), self.open(path=":memory:")
        insert(one, "a")
        self.assertEqual([], two.rows("SELECT name FROM things"))
        self.assertEqual([], list(self.folder.iterdir()))

    def test_a_file_that_is_not_ours_is_refused_untouched(self) -> None:
        """A text, a foreign database of three kinds and a newer version keep every byte."""

        def foreign(*statements: str) -> None:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
                for statement in statements:
                    other.execute(statement)

        cases: dict[str, Callable[[], Any]] = {
            "text": lambda: self.path.write_text("not a database, but long enough to look at\n" * 40, encoding="utf-8"),
            "tables": lambda: foreign("CREATE TABLE theirs (a)"),
            "their number": lambda: foreign("PRAGMA application_id=7"),
            "their version": lambda: foreign("PRAGMA user_version=1"),
            "newer": lambda: foreign(f"PRAGMA application_id={OURS}", "PRAGMA user_version=2"),
        }
        for name, make in cases.items():
            with self.subTest(name):
                self.path.unlink(missing_ok=True)
                make()
                before = self.path.read_bytes()
                error = self.refused("store_unavailable", self.open)
                self.assertEqual(before, self.path.read_bytes())
                self.assertEqual([self.path], list(self.folder.iterdir()))
                if name == "newer":
                    self.assertIn("newer", error.reason)

    def test_an_empty_file_becomes_a_store(self) -> None:
        """A file of no bytes belongs to nobody, so it is taken."""
        self.path.write_bytes(b"")
        insert(self.open(), "a")
        self.assertEqual(["a"], self.names())

    def test_an_older_version_is_upgraded_in_place(self) -> None:
        """The rows stay, the missing migrations run once, and the number follows."""
        database = self.open()
        insert(database, "old")
        database.close()
        newer = self.open(FIRST, SECOND)
        self.assertEqual([("old", None)], newer.rows("SELECT name, size FROM things"))
        self.assertEqual((2,), newer.row("PRAGMA user_version"))
        newer.close()
        self.assertEqual((2,), self.open(FIRST, SECOND).row("PRAGMA user_version"))

    def test_tables_and_numbers_are_one_transaction(self) -> None:
        """Whoever finds the tables finds whose they are and how old."""
        said: list[str] = []
        with self.connecting(lambda connection: connection.set_trace_callback(said.append)):
            self.open()
        first, last = said.index("BEGIN IMMEDIATE"), said.index("COMMIT")
        self.assertEqual([f"PRAGMA application_id={OURS}", "PRAGMA user_version=1"], said[last - 2 : last])
        self.assertTrue(any(statement.startswith("CREATE TABLE") for statement in said[first:last]))

    def test_what_a_connection_needs_is_set_and_not_hoped_for(self) -> None:
        """Whatever this SQLite was built with: each commit waits for the disk, and references are checked."""

        def weaken(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA foreign_keys=OFF")

        with self.connecting(weaken):
            database = self.open()
        self.assertEqual(((2,), (1,)), (database.row("PRAGMA synchronous"), database.row("PRAGMA foreign_keys")))

    @contextmanager
    def connecting(self, act: Callable[[sqlite3.Connection], None]) -> Iterator[None]:
        """Do something with each connection that is made meanwhile, before anybody else has it."""
        connect = sqlite3.connect

        def acting(*given: Any, **named: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*given, **named)
            act(connection)
            return connection

        with mock.patch("sqlite3.connect", acting):
            yield

    def test_a_file_that_another_one_makes_between_two_looks_is_ours(self) -> None:
        """It had no numbers at the first look, and has tables at the second: they are not a stranger's."""
        real = Database._pragma
        looked: list[str] = []

        def race(database: Database, name: str) -> int:
            value = real(database, name)
            looked.append(name)
            if len(looked) == 2:
                self.open().close()
            return value

        with mock.patch.object(Database, "_pragma", race):
            insert(self.open(), "a")
        self.assertEqual((["user_version", "application_id"], ["a"]), (looked[:2], self.names()))

    def test_an_upgrade_that_fails_leaves_the_old_version(self) -> None:
        """Script and number are one transaction: a bad second statement undoes the first."""
        insert(self.open(), "old")
        self.refused("store_unavailable", self.open, FIRST, SECOND + " CREATE TABLE things (a);")
        database = self.open()
        self.assertEqual((1,), database.row("PRAGMA user_version"))
        self.assertEqual(["name"], [row[1] for row in database.rows("PRAGMA table_info(things)")])

    def test_a_script_is_split_at_the_ends_of_its_statements(self) -> None:
        """Semicolons in texts, comments and triggers end nothing, and the last one may be missing."""
        script = """
            CREATE TABLE things (name TEXT DEFAULT 'a;b'); CREATE TABLE log (name TEXT); -- here; too
            CREATE TRIGGER t AFTER INSERT ON things BEGIN
                INSERT INTO log VALUES (new.name); INSERT INTO log VALUES ('twice');
            END;;
            CREATE TABLE last (a)"""
        database = self.open(script)
        insert(database, "x")
        self.assertEqual([("x",), ("twice",)], database.rows("SELECT name FROM log ORDER BY rowid"))
        self.assertEqual([], database.rows("SELECT * FROM last"))

    def test_the_journal_is_wal_where_the_file_system_has_it(self) -> None:
        """A new file is in WAL mode; one that was put back to the rollback journal works in either mode."""
        with closing(sqlite3.connect(self.folder / "probe.db")) as probe:
            expected = probe.execute("PRAGMA journal_mode=WAL").fetchone()
        database = self.open()
        self.assertEqual(expected, database.row("PRAGMA journal_mode"))
        database.row("PRAGMA journal_mode=DELETE")
        database.close()
        again = self.open()
        insert(again, "a")
        kept = expected if self.make is FairDatabase else ("delete",)  # which asks for it at every opening (D7)
        self.assertEqual((kept, ["a"]), (again.row("PRAGMA journal_mode"), self.names()))

    def test_what_a_burst_of_writes_left_of_the_journal_is_given_back(self) -> None:
        """The journal file is cut to 16 MiB when it starts anew, in every connection, also of an old file."""
        for _ in range(2):
            database = self.open()
            self.assertEqual((16_777_216,), database.row("PRAGMA journal_size_limit"))
            database.close()

    def test_a_lock_in_the_way_of_the_journal_is_waited_for(self) -> None:
        """SQLite refuses to change the journal at once while another holds the lock; the opener waits."""
        real = self.make.write
        waited: list[bool] = []
        with closing(sqlite3.connect(self.path, isolation_level=None)) as holder:
            mode = holder.execute("PRAGMA journal_mode=WAL").fetchone()
            holder.execute("PRAGMA journal_mode=DELETE")
            holder.execute("BEGIN IMMEDIATE")

            def let_go(database: Database) -> Transaction:
                if not waited:
                    waited.append(True)
                    holder.execute("COMMIT")
                return real(database)

            with mock.patch.object(self.make, "write", let_go):
                database = self.open()
            self.assertEqual(([True], mode), (waited, database.row("PRAGMA journal_mode")))

    def test_a_version_that_rose_while_waiting_for_the_lock_is_seen(self) -> None:
        """Of two that open an old file at once, the second looks again and runs nothing twice."""
        self.open().close()
        real = Database._choose_journal
        raced: list[bool] = []

        def race(database: Database) -> None:
            if not raced:
                raced.append(True)
                self.open(FIRST, SECOND).close()
            real(database)

        with mock.patch.object(Database, "_choose_journal", race):
            self.assertEqual((2,), self.open(FIRST, SECOND).row("PRAGMA user_version"))
        self.assertEqual([True], raced)

    def test_a_file_that_became_newer_while_waiting_is_refused(self) -> None:
        """The second look, with the lock held, refuses what the first could not see yet."""
        real = Database._choose_journal

        def race(database: Database) -> None:
            with mock.patch.object(Database, "_choose_journal", real):
                self.open(FIRST, SECOND).close()

        with mock.patch.object(Database, "_choose_journal", race):
            self.assertIn("newer", self.refused("store_unavailable", self.open).reason)
        self.assertEqual((2,), self.open(FIRST, SECOND).row("PRAGMA user_version"))

    def test_a_failed_opening_leaves_no_connection(self) -> None:
        """What could not be opened is closed, so that the file can be moved at once."""
        self.path.write_bytes(b"no database" * 100)
        made: list[sqlite3.Connection] = []
        connect = sqlite3.connect

        def remember(*given: Any, **named: Any) -> sqlite3.Connection:
            made.append(connect(*given, **named))
            return made[-1]

        with mock.patch("sqlite3.connect", remember):
            self.refused("store_unavailable", self.open)
        with self.assertRaises(sqlite3.ProgrammingError):
            made[0].execute("SELECT 1")


if __name__ == "__main__":
    unittest.main()
