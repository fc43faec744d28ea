"""Who writes next is fair, is advice only, and holds nobody up for ever."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.companions.work import turnstile
from chapter10.companions.work.turnstile import (
    LONGEST_REST_SECONDS,
    PATIENCE_SECONDS,
    ROOM_SUFFIX,
    SLICE_SECONDS,
    TURN_SUFFIX,
    FairDatabase,
    FairTransaction,
    Turnstile,
)
from chapter10.database import StoreError
from chapter10.tests.support import FolderTestCase, ManualClock, start_python

OURS = 0x7E57
TABLE = "CREATE TABLE writes (id INTEGER PRIMARY KEY, who TEXT NOT NULL);"

WRITER = """
import sys
from chapter10.companions.work.turnstile import FairDatabase
database = FairDatabase(sys.argv[1], application_id=0x7E57, migrations=[sys.argv[2]])
print("open", flush=True)
for line in sys.stdin:
    with database.write() as db:
        db.execute("INSERT INTO writes (who) VALUES (?)", (line.strip(),))
    print("wrote", flush=True)
database.close()
"""


def write(database: FairDatabase, who: str) -> None:
    with database.write() as db:
        db.execute("INSERT INTO writes (who) VALUES (?)", (who,))


@unittest.skipIf(turnstile._flock is None, "this system has no flock")
class TurnstileTestCase(FolderTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "store.db"

    def open(self, busy_seconds: float = 10.0) -> FairDatabase:
        database = FairDatabase(self.path, application_id=OURS, migrations=(TABLE,), busy_seconds=busy_seconds)
        self.addCleanup(database.close)
        return database

    def stand(self, clock: ManualClock | None = None, patience: float = PATIENCE_SECONDS) -> Turnstile:
        clock = clock or ManualClock()
        one = Turnstile(str(self.path), patience, clock=clock, sleep=clock.sleep)
        self.addCleanup(one.close)
        return one

    def child(self) -> subprocess.Popen[str]:
        """Start another process that writes one row for each line that it is told."""
        child = start_python(["-c", WRITER, str(self.path), TABLE])
        assert child.stdin and child.stdout and child.stderr
        self.addCleanup(child.stderr.close)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.stdin.close)
        self.assertEqual("open\n", child.stdout.readline(), None if child.poll() is None else child.stderr.read())
        return child

    def tell(self, child: subprocess.Popen[str], who: str) -> None:
        assert child.stdin
        child.stdin.write(f"{who}\n")
        child.stdin.flush()

    def wait_until_taken(self, suffix: str) -> None:
        """Return once another process has this lock."""
        descriptor = os.open(f"{self.path}{suffix}", os.O_RDWR)
        try:
            while True:
                try:
                    turnstile._lock(descriptor, turnstile._TRY)
                except BlockingIOError:
                    return
                turnstile._lock(descriptor, turnstile._FREE)
        finally:
            os.close(descriptor)

    def writes(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as other:
            return [who for (who,) in other.execute("SELECT who FROM writes ORDER BY id")]


class Fairness(TurnstileTestCase):
    def test_who_waits_is_before_who_comes_again(self) -> None:
        """A process that waits writes before the one whose slice is over writes again, each time."""
        database, child = self.open(), self.child()
        clock = ManualClock(database._turnstile._slice_end)
        database._turnstile._clock = clock
        assert child.stdout
        expected = []
        for number in range(5):
            with database.write() as db:
                db.execute("INSERT INTO writes (who) VALUES ('we')")
                self.tell(child, f"they {number}")
                self.wait_until_taken(TURN_SUFFIX)
            clock.advance(SLICE_SECONDS)
            write(database, "we again")
            self.assertEqual("wrote\n", child.stdout.readline())
            expected += ["we", f"they {number}", "we again"]
        self.assertEqual(expected, self.writes())

    def test_within_a_slice_one_comes_again_past_who_is_next(self) -> None:
        """Up to its end, which is counted from the turn and not from the last time."""
        clock = ManualClock()
        one, following = self.stand(clock), self.stand()
        following.enter()
        following.leave()
        one.enter()
        one.leave()
        turnstile._lock(following._turn, turnstile._TRY)
        for part in (0.5, 0.75):
            clock.now = SLICE_SECONDS * part
            one.enter()
            one.leave()
        self.assertEqual([], clock.slept)
        clock.now = SLICE_SECONDS
        one.enter()
        self.assertNotEqual([], clock.slept)

    def test_who_finds_the_room_taken_within_its_slice_stands_in_line(self) -> None:
        """The one that was next has slipped in; the other takes the turn and comes in after it, with a new slice."""
        clock = ManualClock()
        one, other = self.stand(clock), self.stand()
        one.enter()
        one.leave()
        other.enter()
        clock.advance(SLICE_SECONDS / 2)

        def turn_is_taken_until_the_other_leaves(seconds: float) -> None:
            with self.assertRaises(BlockingIOError):
                turnstile._lock(other._turn, turnstile._TRY)
            other.leave()

        one._sleep = turn_is_taken_until_the_other_leaves
        one.enter()
        with self.assertRaises(BlockingIOError):
            turnstile._lock(other._room, turnstile._TRY)
        self.assertEqual(SLICE_SECONDS * 1.5, one._slice_end)

    def test_who_gave_up_has_no_slice(self) -> None:
        """It came in by nobody's leave, so the next time it asks for the turn again."""
        clock = ManualClock()
        holder, one = self.stand(), self.stand(clock)
        holder.enter()
        one.enter()
        one.leave()
        self.assertLess(one._slice_end, clock.now)

    def test_many_processes_all_come_to_write(self) -> None:
        """Four processes write at once; nothing is lost, nothing stands twice."""
        children = [self.child() for _ in range(4)]
        for number in range(10):
            for place, child in enumerate(children):
                self.tell(child, f"{place}-{number}")
        for child in children:
            assert child.stdout
            self.assertEqual(["wrote\n"] * 10, [child.stdout.readline() for _ in range(10)])
        self.assertEqual(sorted(f"{a}-{b}" for a in range(4) for b in range(10)), sorted(self.writes()))


class NobodyWaitsForEver(TurnstileTestCase):
    @unittest.skipUnless(hasattr(signal, "SIGSTOP"), "no process can be stopped on this system")
    def test_a_process_that_was_stopped_in_its_turn_holds_nobody_up(self) -> None:
        """It holds the turn and does not move; the others write, and it writes when it goes on."""
        database, child = self.open(busy_seconds=0.1), self.child()
        assert child.stdout
        with database.write() as db:
            db.execute("INSERT INTO writes (who) VALUES ('we')")
            self.tell(child, "they")
            self.wait_until_taken(TURN_SUFFIX)
            os.kill(child.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        write(database, "we again")
        write(database, "and again")
        os.kill(child.pid, signal.SIGCONT)
        self.assertEqual("wrote\n", child.stdout.readline())
        self.assertEqual(["we", "we again", "and again", "they"], self.writes())

    def test_patience_is_spent_once(self) -> None:
        """Who has waited in vain asks without waiting, until it is let in; then it has patience again."""
        clock = ManualClock()
        holder, waiter = self.stand(), self.stand(clock)
        holder.enter()
        waiter.enter()
        self.assertLess(PATIENCE_SECONDS, clock.now)
        self.assertLess(clock.now, PATIENCE_SECONDS * 1.1)
        waiter.leave()
        clock.slept.clear()
        waiter.enter()
        waiter.leave()
        self.assertEqual([], clock.slept)
        holder.leave()
        waiter.enter()
        waiter.leave()
        holder.enter()
        waiter.enter()
        self.assertNotEqual([], clock.slept)

    def test_patience_comes_back_after_a_rest_that_doubles_up_to_a_minute(self) -> None:
        """One long transaction leaves nobody without a turn for good; a lock that is stuck costs ever less."""
        clock = ManualClock(100.0)
        holder, waiter = self.stand(), self.stand(clock)
        holder.enter()
        for rest in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_REST_SECONDS, LONGEST_REST_SECONDS):
            with self.subTest(rest=rest):
                waiter.enter()  # in vain
                waiter.leave()
                self.assertNotEqual([], clock.slept)
                end = clock.now + rest
                clock.slept.clear()
                clock.now = end - 0.01
                waiter.enter()
                waiter.leave()
                self.assertEqual([], clock.slept)
                clock.now = end
        holder.leave()
        waiter.enter()
        waiter.leave()
        holder.enter()
        waiter.enter()
        self.assertEqual(clock.now + PATIENCE_SECONDS, waiter._rest_end)

    def test_who_waited_for_the_room_in_vain_keeps_the_turn_until_it_has_written(self) -> None:
        """It is next at SQLite's own lock: meanwhile nobody else may come in by the turn again and again."""
        holder, first = self.stand(), self.stand()
        holder.enter()
        first.enter()
        holder.leave()
        holder._slice_end = turnstile._NEVER
        clock = ManualClock()
        holder._clock, holder._sleep = clock, mock.Mock(side_effect=lambda seconds: first.leave())
        holder.enter()
        holder._sleep.assert_called_once()

    def test_who_waited_for_the_turn_in_vain_stands_in_nobodys_way(self) -> None:
        """It has nothing that the next one would wait for."""
        holder, first = self.stand(), self.stand()
        holder.enter()
        turnstile._lock(holder._turn, turnstile._TRY)
        first.enter()
        turnstile._lock(holder._turn, turnstile._FREE)
        holder.leave()
        clock = ManualClock()
        last = self.stand(clock)
        last.enter()
        self.assertEqual([], clock.slept)

    def test_enter_says_whether_others_may_be_in_the_room(self) -> None:
        """True by the turn, within a slice and where nobody waits for anybody; False when the patience was over."""
        one, other = self.stand(), self.stand()
        self.assertTrue(one.enter())
        one.leave()
        self.assertTrue(one.enter())
        self.assertFalse(other.enter())
        one.leave()
        other.leave()
        self.assertTrue(other.enter())
        other.close()
        self.assertTrue(other.enter())
        self.assertTrue(Turnstile(None, 1).enter())
        with mock.patch.object(turnstile, "_flock", mock.Mock(side_effect=OSError)):
            self.assertTrue(self.stand().enter())

    def test_pauses_for_the_room_grow_and_are_bounded(self) -> None:
        """A short wait looks often, a long one seldom."""
        clock = ManualClock(100.0)
        holder, waiter = self.stand(), self.stand(clock)
        holder.enter()
        waiter.enter()
        self.assertEqual(clock.slept, sorted(clock.slept))
        self.assertEqual((0.00015, 0.001), (clock.slept[0], clock.slept[-1]))
        self.assertLess(len(clock.slept), 1200)

    def test_pauses_for_the_turn_shrink_and_are_bounded(self) -> None:
        """Who has waited long asks more often than who has just come, and never without a pause."""
        clock = ManualClock(100.0)
        holder, waiter = self.stand(), self.stand(clock)
        holder.enter()
        holder.leave()
        turnstile._lock(holder._turn, turnstile._TRY)
        waiter.enter()
        self.assertEqual(clock.slept, sorted(clock.slept, reverse=True))
        self.assertEqual((0.002, 0.0005), (clock.slept[0], clock.slept[-1]))
        self.assertLess(len(clock.slept), 2200)

    def test_without_patience_nobody_waits(self) -> None:
        """A store that is to answer at once does not wait here either."""
        clock = ManualClock()
        holder, waiter = self.stand(), self.stand(clock, patience=0)
        holder.enter()
        waiter.enter()
        self.assertEqual([], clock.slept)

    def test_an_interrupt_while_waiting_gives_the_turn_back(self) -> None:
        """Ctrl-C in the wait for the room leaves neither lock held."""
        database = self.open()
        holder = self.stand()
        holder.enter()
        database._turnstile._sleep = mock.Mock(side_effect=KeyboardInterrupt)
        with self.assertRaises(KeyboardInterrupt):
            write(database, "a")
        holder.leave()
        clock = ManualClock()
        other = self.stand(clock)
        other.enter()
        self.assertEqual([], clock.slept)

    def test_a_lost_process_frees_its_locks(self) -> None:
        """Killed while it waits, it leaves nothing behind that others would wait for."""
        database, child = self.open(), self.child()
        with database.write() as db:
            db.execute("INSERT INTO writes (who) VALUES ('we')")
            self.tell(child, "they")
            self.wait_until_taken(TURN_SUFFIX)
            child.kill()
            child.wait()
        clock = ManualClock()
        other = self.stand(clock)
        other.enter()
        self.assertEqual(([], ["we"]), (clock.slept, self.writes()))


class WithoutATurn(TurnstileTestCase):
    """Who was let in by nobody begins beside those that take turns."""

    @contextmanager
    def beside_others(
        self, database: FairDatabase, enter: mock.Mock, leave: Any = None
    ) -> Iterator[sqlite3.Connection]:
        """Let a stranger hold the write lock, with a turnstile of ours and pieces of a hundredth of a second."""
        with (
            closing(sqlite3.connect(self.path, isolation_level=None)) as stranger,
            mock.patch.object(database, "_turnstile", mock.Mock(enter=enter, leave=leave or mock.Mock())),
            mock.patch.object(turnstile, "_PIECE_SECONDS", 0.01),
        ):
            stranger.execute("BEGIN IMMEDIATE")
            yield stranger

    def refused(self, code: str, call: Callable[..., object], *arguments: Any) -> None:
        with self.assertRaises(StoreError) as caught:
            call(*arguments)
        self.assertEqual(code, caught.exception.code)

    def test_who_got_no_turn_asks_for_it_again_between_pieces_of_the_wait(self) -> None:
        """Beside others that take turns it gives back what it has, asks again, and then waits as who came in."""
        database = self.open(busy_seconds=20)
        steps: list[str] = []

        def entered() -> bool:
            steps.append("enter")
            if steps.count("enter") == 3:
                stranger.execute("COMMIT")
            return steps.count("enter") == 3

        with self.beside_others(database, mock.Mock(side_effect=entered), lambda: steps.append("leave")) as stranger:
            write(database, "a")
        self.assertEqual(["enter", "leave", "enter", "leave", "enter", "leave"], steps)
        self.assertEqual((["a"], 20_000), (self.writes(), database.row("PRAGMA busy_timeout")[0]))

    def test_who_never_gets_a_turn_is_told_when_its_time_is_over(self) -> None:
        """The pieces together are as long as the whole wait; the next write waits as long again."""
        database = self.open(busy_seconds=0.05)
        with self.beside_others(database, enter := mock.Mock(return_value=False)) as stranger:
            self.refused("store_busy", write, database, "a")
            self.assertLess(2, enter.call_count)
            stranger.execute("COMMIT")
            write(database, "b")
        self.assertEqual((["b"], 50), (self.writes(), database.row("PRAGMA busy_timeout")[0]))

    def test_who_came_in_after_all_waits_once_more_and_not_again(self) -> None:
        """A stranger that knows of no turns holds the lock; the answer is that of any wait."""
        database = self.open(busy_seconds=0.05)
        with self.beside_others(database, enter := mock.Mock(side_effect=[False, True])):
            self.refused("store_busy", write, database, "a")
        self.assertEqual(2, enter.call_count)

    def test_who_comes_in_late_waits_only_for_what_is_left(self) -> None:
        """Fifteen of twenty seconds are over when it is let in; it does not wait for twenty more."""
        clock = ManualClock()
        steps = iter([(0.0, False), (7.5, False), (7.5, True)])
        said: list[str] = []

        def entered() -> bool:
            seconds, let_in = next(steps)
            clock.advance(seconds)
            return let_in

        def execute(sql: str) -> None:
            said.append(sql)
            if sql == "BEGIN IMMEDIATE":
                busy = sqlite3.OperationalError("database is locked")
                busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise busy

        connection, queue = mock.Mock(in_transaction=False, execute=execute), mock.Mock(enter=entered)
        database = mock.Mock(connection=connection, _owner=None)
        self.refused("store_busy", FairTransaction(database, queue, 20, clock).__enter__)
        waits = [sql.partition("=")[2] for sql in said if sql.startswith("PRAGMA busy_timeout")]
        self.assertEqual(["1000", "1000", "5000", "20000"], waits)

    def test_without_a_turn_a_fault_that_is_no_lock_comes_out_at_once(self) -> None:
        """A disk that fails is not asked again; SQLite's wait is as long as it was."""
        database = self.open(busy_seconds=20)
        queue = mock.Mock(enter=mock.Mock(return_value=False))
        broken = mock.Mock(in_transaction=False)
        patience = mock.Mock(fetchone=lambda: (20_000,))
        broken.execute = mock.Mock(side_effect=[patience, None, sqlite3.OperationalError("disk I/O error"), None, None])
        with mock.patch.object(database, "_connection", broken), mock.patch.object(database, "_turnstile", queue):
            self.refused("store_unavailable", write, database, "a")
        self.assertEqual(1, queue.enter.call_count)
        said = [call.args[0] for call in broken.execute.mock_calls][1:]
        self.assertEqual(["PRAGMA busy_timeout=1000", "BEGIN IMMEDIATE", "PRAGMA busy_timeout=20000", "ROLLBACK"], said)


class ItIsAdvice(TurnstileTestCase):
    def test_a_stranger_that_holds_the_database_is_waited_for_by_sqlite(self) -> None:
        """A program that knows of no turnstile holds the lock; the busy time applies as ever."""
        database = self.open(busy_seconds=0.05)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            with self.assertRaisesRegex(RuntimeError, "store_busy"):
                write(database, "a")
            stranger.execute("COMMIT")
        write(database, "b")
        self.assertEqual(["b"], self.writes())

    def test_without_the_room_a_write_is_a_write(self) -> None:
        """Others hold both locks and never let go; the transaction is made all the same."""
        database, holder = self.open(busy_seconds=0), self.stand()
        holder.enter()
        turnstile._lock(holder._turn, turnstile._TRY)
        write(database, "a")
        self.assertEqual(["a"], self.writes())

    def test_a_system_without_locks_does_without(self) -> None:
        """Where `fcntl` is missing nothing is opened and nobody waits."""
        with mock.patch.object(turnstile, "_flock", None):
            database = self.open()
            write(database, "a")
            self.assertEqual([], self.beside())
        self.assertEqual(["a"], self.writes())

    def test_a_system_without_the_module_of_the_locks_has_none(self) -> None:
        """The import is no error there."""
        spec = importlib.util.find_spec("chapter10.companions.work.turnstile")
        assert spec is not None and spec.loader is not None
        another = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, {"fcntl": None}):
            spec.loader.exec_module(another)
        self.assertIsNone(another._flock)

    def test_a_lock_that_cannot_be_freed_is_no_error(self) -> None:
        """Whoever has written is not told of it."""
        one = self.stand()
        one.enter()
        with mock.patch.object(turnstile, "_flock", mock.Mock(side_effect=OSError("the drive is gone"))):
            one.leave()
        one.leave()  # and the next time, with the drive there again, it is free
        self.assertTrue(self.stand().enter())

    def test_a_place_that_refuses_locks_or_files_is_asked_once(self) -> None:
        """A drive without locks, a folder that may not be written: the database works, and nothing stays open."""
        for name, broken in (
            ("locks", mock.patch.object(turnstile, "_flock", mock.Mock(side_effect=OSError("no locks available")))),
            ("files", mock.patch.object(os, "open", mock.Mock(side_effect=PermissionError))),
        ):
            with self.subTest(name):
                with broken:
                    database = self.open()
                    write(database, name)
                    self.assertIsNone(database._turnstile._path)
                    self.assertEqual(-1, database._turnstile._turn)
                write(database, name)

    def test_a_store_in_memory_has_no_files(self) -> None:
        """Nobody else can open it, so nobody can be next."""
        with closing(FairDatabase(":memory:", application_id=OURS, migrations=(TABLE,))) as database:
            write(database, "a")
            self.assertIsNone(database._turnstile._path)

    def beside(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name.endswith((TURN_SUFFIX, ROOM_SUFFIX)))


class TheFileItself(FolderTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "store.db"

    def open(self) -> FairDatabase:
        database = FairDatabase(self.path, application_id=OURS, migrations=[TABLE], busy_seconds=0)
        self.addCleanup(database.close)
        return database

    def test_a_restored_copy_is_in_wal_mode_again(self) -> None:
        """`VACUUM INTO` makes a file with the rollback journal; the next opening asks for WAL (D7, D3)."""
        original = self.open()
        write(original, "a")
        copy = self.folder / "copy.db"
        original.connection.execute("VACUUM INTO ?", (str(copy),))
        original.close()
        os.replace(copy, self.path)
        restored = self.open()
        self.assertEqual(("wal",), restored.row("PRAGMA journal_mode"))
        self.assertEqual([("a",)], restored.rows("SELECT who FROM writes"))

    def test_a_copy_that_somebody_writes_is_waited_for(self) -> None:
        """The mode is not given up for a lock: it is busy, and may be tried again."""
        self.open().connection.execute("PRAGMA journal_mode=DELETE")
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with self.assertRaises(StoreError) as caught:
                self.open()
            self.assertEqual("store_busy", caught.exception.code)
        self.assertEqual(("wal",), self.open().row("PRAGMA journal_mode"))

    def test_a_file_that_is_gone_or_another_is_named_by_every_call(self) -> None:
        """Also where it was taken away while a call waited for the lock; a link that leads there is no change (D7)."""
        for replaced in (False, True):
            database = self.open()
            write(database, "a")
            row, rows = database.row, database.rows
            os.rename(self.path, self.folder / "away.db")
            if replaced:
                self.path.write_bytes(b"")
            for call in (row, rows, functools.partial(write, database)):
                with self.assertRaises(StoreError) as caught:
                    call("SELECT 1")
                self.assertTrue(caught.exception.reason.startswith("replaced: "))
            os.replace(self.folder / "away.db", self.path)
            self.assertEqual([("a",)], database.rows("SELECT who FROM writes"))
            database.close()
            self.path.unlink()


class TheFiles(TurnstileTestCase):
    def test_closing_removes_both_and_others_notice(self) -> None:
        """Who still has the old files open finds the new ones at its next write, and both meet there."""
        one, two = self.stand(), self.stand()
        one.enter()
        one.leave()
        two.enter()
        two.leave()
        two.close()
        self.assertEqual([], list(self.folder.iterdir()))
        clock = ManualClock()
        three = self.stand(clock)
        one._slice_end = clock.now
        one.enter()
        three.enter()
        self.assertNotEqual([], clock.slept)

    def test_one_that_was_removed_alone_is_noticed_as_well(self) -> None:
        """A process that ends between the two leaves one; those who have both open meet the others all the same."""
        for suffix in (ROOM_SUFFIX, TURN_SUFFIX):
            with self.subTest(suffix):
                clock = ManualClock()
                one, other = self.stand(clock), self.stand()
                one.enter()
                one.leave()
                os.unlink(f"{self.path}{suffix}")
                other.enter()
                other.leave()
                turnstile._lock(other._room if suffix == ROOM_SUFFIX else other._turn, turnstile._TRY)
                clock.advance(SLICE_SECONDS)
                one.enter()
                self.assertNotEqual([], clock.slept)
                other.close()
                one.close()

    def test_they_are_opened_once(self) -> None:
        """As long as they are where they were, every turn uses the same two."""
        clock = ManualClock()
        one = self.stand(clock)
        with mock.patch.object(os, "open", mock.Mock(wraps=os.open)) as opened:
            for _ in range(3):
                one.enter()
                one.leave()
                clock.advance(SLICE_SECONDS)
        self.assertEqual(2, opened.call_count)

    def test_a_database_takes_them_away_when_it_closes(self) -> None:
        """After `close`, and after an opening that failed, only the database is left."""
        self.open().close()
        self.assertEqual([self.path], list(self.folder.iterdir()))
        with self.assertRaisesRegex(RuntimeError, "store_unavailable"):
            FairDatabase(self.path, application_id=OURS, migrations=(TABLE, "CREATE TABLE writes (a);"))
        self.assertEqual([self.path], list(self.folder.iterdir()))

    def test_another_ones_files_are_left_alone(self) -> None:
        """A name that others use by now, and a file with something in it, stay when we close."""
        one = self.stand()
        one.enter()
        turn = Path(f"{self.path}{TURN_SUFFIX}")
        turn.unlink()
        turn.write_bytes(b"")
        Path(f"{self.path}{ROOM_SUFFIX}").write_bytes(b"mine")
        one.close()
        self.assertEqual(2, len(list(self.folder.iterdir())))

    def test_two_names_of_one_file_meet(self) -> None:
        """A link to the database leads to the same two files."""
        self.path.write_bytes(b"")
        link = self.folder / "link.db"
        try:
            link.symlink_to(self.path)
        except OSError:
            self.skipTest("no links on this system")
        clock = ManualClock()
        one, two = self.stand(), Turnstile(str(link), 1, clock=clock, sleep=clock.sleep)
        self.addCleanup(two.close)
        one.enter()
        two.enter()
        self.assertNotEqual([], clock.slept)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork on this system")
    def test_a_forked_process_takes_nothing_away(self) -> None:
        """Closing in a child neither removes the files nor frees the lock of its parent."""
        one = self.stand()
        one.enter()
        child = os.fork()
        if child == 0:
            one.close()
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(2, len(list(self.folder.iterdir())))
        clock = ManualClock()
        self.stand(clock).enter()
        self.assertNotEqual([], clock.slept)

    def test_whoever_may_write_the_database_may_stand_in_line(self) -> None:
        """The files have the rights of new ones, for nobody to run; one that cannot be removed is no error."""
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        one = self.stand()
        one.enter()
        self.assertEqual({0o666}, {stat.S_IMODE(path.stat().st_mode) for path in self.folder.iterdir()})
        with mock.patch.object(os, "unlink", mock.Mock(side_effect=PermissionError)):
            one.close()
        self.assertEqual(2, len(list(self.folder.iterdir())))

    @unittest.skipUnless(hasattr(os, "fork"), "no fork on this system")
    def test_a_process_without_standard_input_closes_the_lowest_descriptor_as_well(self) -> None:
        """Its first file has the number 0."""
        child = os.fork()
        if child == 0:
            code = 9
            try:
                os.close(0)
                one = Turnstile(str(self.path), 1)
                one.enter()
                os.fstat(0)
                one.close()
                code = 8
                os.fstat(0)
            except OSError:
                code = 0 if code == 8 else code
            finally:
                os._exit(code)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def test_an_interrupt_while_closing_leaves_no_number_that_may_be_anothers(self) -> None:
        """Ctrl-C after the first of the two was closed: the second is closed too, and a second close does nothing."""
        one = self.stand()
        one.enter()
        numbers = [one._room, one._turn]
        close, closed = os.close, []

        def interrupted(descriptor: int) -> None:
            close(descriptor)
            closed.append(descriptor)
            if len(closed) == 1:
                raise KeyboardInterrupt

        with mock.patch.object(os, "close", interrupted):
            with self.assertRaises(KeyboardInterrupt):
                one.close()
            one.close()
        self.assertEqual(numbers, closed)

    def test_an_interrupt_between_the_two_files_is_made_good(self) -> None:
        """Ctrl-C after the first was opened: the next write opens both, and a close removes what there is."""
        for then in ("write", "close"):
            with self.subTest(then):
                one = self.stand()
                first = os.open(f"{self.path}{ROOM_SUFFIX}", os.O_RDWR | os.O_CREAT)
                interrupted = mock.Mock(side_effect=[first, KeyboardInterrupt])
                with mock.patch.object(os, "open", interrupted), self.assertRaises(KeyboardInterrupt):
                    one.enter()
                one.leave()
                if then == "write":
                    one.enter()
                    one.leave()
                    self.assertEqual(2, len(list(self.folder.iterdir())))
                one.close()
                self.assertEqual([], list(self.folder.iterdir()))

    def test_what_the_system_says_to_a_close_is_no_error(self) -> None:
        """A drive that is gone may refuse even that."""
        one = self.stand()
        one.enter()
        close = os.close

        def refused(descriptor: int) -> None:
            close(descriptor)
            raise OSError("the drive is gone")

        with mock.patch.object(os, "close", refused):
            one.close()
        for descriptor in (one._room, one._turn):
            self.assertEqual(-1, descriptor)

    def test_nothing_stays_open(self) -> None:
        """Closed or forgotten, a turnstile gives its descriptors back, and a closed one opens none."""
        free = os.dup(0)
        os.close(free)
        one = self.stand()
        one.enter()
        one.close()
        one.close()
        one.enter()
        one.leave()
        clock = ManualClock()
        forgotten = Turnstile(str(self.path), 1, clock=clock)
        forgotten.enter()
        forgotten.leave()
        for path in self.folder.iterdir():
            path.unlink()
        clock.advance(SLICE_SECONDS)
        forgotten.enter()  # opens new ones
        self.assertEqual(2, len(list(self.folder.iterdir())))
        del forgotten
        again = os.dup(0)
        os.close(again)
        self.assertEqual(free, again)


if __name__ == "__main__":
    unittest.main()
