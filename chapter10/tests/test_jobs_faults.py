"""Whatever fails, and at whatever statement: the file is as before or as after, and the next call works."""

from __future__ import annotations

import sqlite3
import unittest
from collections.abc import Callable
from typing import Any, ClassVar, Final
from unittest import mock

from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError
from chapter10.jobs import JobStore
from chapter10.tests.job_checker import Contents, contents, violations
from chapter10.tests.job_support import REPORT, JobTestCase, Write, writes_of
from chapter10.tests.support import also_on


class FaultyConnection(sqlite3.Connection):
    """A connection on which one statement fails: the `countdown`-th from now, before it ran or after."""

    countdown = 0
    after = False
    error: BaseException

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self._faulty(super().execute, sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self._faulty(super().executemany, sql, *parameters)

    def _faulty(self, run: Callable[..., sqlite3.Cursor], sql: str, *parameters: Any) -> sqlite3.Cursor:
        self.countdown -= 1
        if self.countdown != 0:
            return run(sql, *parameters)
        if self.after:
            run(sql, *parameters)
        raise self.error


CONNECT: Final = sqlite3.connect


def faulty_store(make: Any) -> Any:
    """Return a store in memory whose connection fails on demand."""
    with mock.patch("sqlite3.connect", lambda *given, **named: CONNECT(*given, **named, factory=FaultyConnection)):
        return make(":memory:")


class FaultTestCase(unittest.TestCase):
    """Two stores in memory: one is brought to where a write begins, the other starts there again and again."""

    make: ClassVar[Any] = JobStore

    def setUp(self) -> None:
        self.store = faulty_store(self.make)
        self.addCleanup(self.store.close)
        assert isinstance(self.store.db, FaultyConnection)
        self.db = self.store.db

    def prepare(self, write: Write) -> tuple[Contents, Contents, int]:
        """Return the tables before and after the call when nothing fails, and how many statements it takes."""
        self.template = faulty_store(self.make)
        self.addCleanup(self.template.close)
        write.prepare(self.template)
        self.restore()
        before = contents(self.db)
        self.db.countdown = 0
        self.assertEqual(write.answer, write.call(self.store))
        statements = -self.db.countdown
        return before, contents(self.db), statements

    def restore(self) -> None:
        self.template.db.backup(self.db)


@also_on(LivingStore)
class EachStatement(FaultTestCase):
    def test_a_machine_that_fails_at_any_statement_leaves_nothing(self) -> None:
        """For every verb and every N: the N-th statement fails, the tables are as before, the call is
        `store_unavailable` with its cause, and the same call then works as if nothing had been.

        Claims: C10-138, C10-184, C10-237.
        """
        store, db = self.store, self.db
        for write in writes_of(self.make):
            before, done, statements = self.prepare(write)
            self.assertGreaterEqual(statements, 3)
            for number in range(1, statements + 1):
                with self.subTest(write.name, statement=number):
                    self.restore()
                    db.countdown, db.error = number, sqlite3.OperationalError("disk I/O error")
                    with self.assertRaises(StoreError) as caught:
                        write.call(store)
                    self.assertEqual("store_unavailable", caught.exception.code)
                    self.assertIs(db.error, caught.exception.__cause__)
                    self.assertFalse(db.in_transaction)
                    self.assertEqual(before, contents(db))
                    self.assertEqual(write.answer, write.call(store))
                    self.assertEqual(done, contents(db))

    def test_a_statement_that_ran_and_then_failed_is_undone(self) -> None:
        """The same where the statement had its effect first. Only a commit that was made stays made."""
        store, db = self.store, self.db
        for write in writes_of(self.make):
            before, done, statements = self.prepare(write)
            for number in range(1, statements + 1):
                with self.subTest(write.name, statement=number):
                    self.restore()
                    db.countdown, db.error, db.after = number, sqlite3.OperationalError("disk I/O error"), True
                    with self.assertRaises(StoreError):
                        write.call(store)
                    committed = number == statements
                    self.assertEqual(done if committed else before, contents(db))
                    self.assertFalse(db.in_transaction)
                    self.assertEqual(write.repeated if committed else write.answer, write.call(store))
                    self.assertEqual([], violations(db))

    def test_an_interrupt_or_a_lack_of_memory_comes_out_as_it_is(self) -> None:
        """What is no fault of the machine keeps its type, at every statement, and leaves nothing."""
        store, db = self.store, self.db
        for write in writes_of(self.make):
            before, _, statements = self.prepare(write)
            for error in (KeyboardInterrupt(), MemoryError(), sqlite3.IntegrityError("ours")):
                for number in range(1, statements + 1):
                    if write.name == "sweep" and isinstance(error, sqlite3.IntegrityError):
                        continue  # there it means a row that cannot be changed, which is passed over
                    with self.subTest(write.name, error=type(error).__name__, statement=number):
                        self.restore()
                        db.countdown, db.error = number, error
                        with self.assertRaises(type(error)) as caught:
                            write.call(store)
                        self.assertIs(error, caught.exception)
                        self.assertEqual((False, before), (db.in_transaction, contents(db)))
                        self.assertEqual(write.answer, write.call(store))

    def test_sqlite_itself_may_stop_at_any_instruction(self) -> None:
        """SQLite's own interrupt, at hundreds of points within the statements, leaves all or nothing.

        Claims: C10-237.
        """
        store, db = self.store, self.db
        for write in writes_of(self.make):
            before, done, _ = self.prepare(write)
            instructions, stopped = 0, True
            while stopped:
                instructions += 9
                self.restore()
                left = [instructions]

                def count(left: list[int] = left) -> int:
                    left[0] -= 1
                    return int(left[0] == 0)

                db.set_progress_handler(count, 1)
                try:
                    write.call(store)
                    stopped = False
                except StoreError as error:
                    self.assertEqual("store_unavailable", error.code)
                db.set_progress_handler(None, 0)
                with self.subTest(write.name, instructions=instructions):
                    # The interrupt of the very last instruction comes when the commit is made.
                    self.assertIn(contents(db), (before, done) if stopped else (done,))
                    self.assertFalse(db.in_transaction)
            self.assertGreater(instructions, 30)


@also_on(LivingStore)
class LostAnswers(FaultTestCase):
    def test_after_a_lost_answer_the_same_call_is_safe(self) -> None:
        """Each verb commits and its caller learns nothing; the repeat says what holds and stores nothing more.

        Claims: C10-144, C10-216, C10-238, C10-297.
        """
        store, db = self.store, self.db
        for write in writes_of(self.make):
            with self.subTest(write.name):
                _, done, statements = self.prepare(write)
                self.restore()
                db.countdown, db.error, db.after = statements, ConnectionResetError("the answer is lost"), True
                with self.assertRaises(ConnectionResetError):
                    write.call(store)
                self.assertEqual(done, contents(db))
                self.assertEqual(write.repeated, write.call(store))
                self.assertEqual(done, contents(db))
                self.assertEqual([], violations(db))


@also_on(LivingStore)
class FullDisk(JobTestCase):
    def test_a_full_disk_stores_nothing_and_hides_nothing(self) -> None:
        """With WAL and with the rollback journal: submit until the disk is full, deliver a megabyte, then
        make room. Each refusal is `store_unavailable`, changes no byte, and the same call works afterwards.

        Claims: C10-237.
        """
        for journal in ("WAL", "DELETE"):
            with self.subTest(journal):
                self.fill(journal)
                self.store.close()
                self.path.unlink()
                self.store = self.open()

    def fill(self, journal: str) -> None:
        db = self.store.db
        db.execute(f"PRAGMA journal_mode={journal}")
        job_id, attempt = self.running("first", capacity=10**6)
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages + 3}")
        accepted = 0
        with self.assertRaises(StoreError) as caught:
            while accepted < 1000:
                self.submit(f"k{accepted}", capacity=10**6)
                accepted += 1
        self.assertTrue(5 < accepted < 1000)
        self.full(caught.exception)
        before = self.contents()
        big = {"rows": "x" * 1_000_000}
        calls: list[Callable[[], object]] = [
            lambda: self.store.finish(job_id, attempt, big, now=2),
            lambda: self.submit("k" * 200, "o" * 200, capacity=10**6),
        ]
        for call in calls:
            with self.assertRaises(StoreError) as caught:
                call()
            self.full(caught.exception)
            self.assertEqual(before, self.contents())
            self.assertEqual(("running", 0), (self.state(job_id), self.store.receipt_count(job_id)))
        db.execute("PRAGMA max_page_count=1000000")
        self.assertTrue(self.store.finish(job_id, attempt, big, now=2))
        self.assertEqual(big, self.store.result("alice", job_id)["data"])
        self.submit("k" * 200, "o" * 200, capacity=10**6)
        self.assertEqual([], violations(self.path, accepted=range(1, accepted + 2)))

    def full(self, error: StoreError) -> None:
        self.assertEqual(("store_unavailable", False), (error.code, self.store.db.in_transaction))
        assert isinstance(error.__cause__, sqlite3.Error)
        self.assertEqual(sqlite3.SQLITE_FULL, error.__cause__.sqlite_errorcode)


@also_on(LivingStore)
class OtherMachines(JobTestCase):
    def test_every_verb_works_with_the_rollback_journal(self) -> None:
        """Where the file system has no WAL, every verb gives the same answers."""
        for number, write in enumerate(writes_of(self.make)):
            with self.subTest(write.name):
                self.path = self.folder / f"{number}.db"
                store = self.open()
                store.db.execute("PRAGMA journal_mode=DELETE")
                write.prepare(store)
                self.assertEqual(write.answer, write.call(store))
                self.assertEqual(write.repeated, write.call(store))
                self._check()

    def test_every_method_of_a_closed_store_is_unavailable(self) -> None:
        """After `close` no method does anything but say so."""
        self.running()
        store = self.store
        store.close()
        store.close()
        reads: list[Callable[[Any], object]] = [
            lambda s: s.get("alice", 1), lambda s: s.events("alice", 1), lambda s: s.result("alice", 1),
            lambda s: s.intent(1), lambda s: s.receipt_count(1),
        ]  # fmt: skip
        if isinstance(store, LivingStore):
            reads += [
                lambda s: s.list_jobs("alice"), lambda s: s.stats(now=1),
                lambda s: s.wait("alice", 1, 1, clock=lambda: 0, sleep=lambda _: None),
            ]  # fmt: skip
        for call in [*(write.call for write in writes_of(self.make)), *reads]:
            with self.assertRaises(StoreError) as caught:
                call(store)
            self.assertEqual("store_unavailable", caught.exception.code)

    def test_a_receipt_that_exists_already_is_our_own_bug(self) -> None:
        """A violated constraint comes out as the `IntegrityError` that it is, and the job stays as it was."""
        job_id, attempt = self.running()
        self.store.db.execute("PRAGMA foreign_keys=ON")
        self.store.db.execute("INSERT INTO receipts (job_id, attempt, sha256) VALUES (?, 1, '')", (job_id,))
        before = self.contents()
        with self.assertRaises(sqlite3.IntegrityError):
            self.store.finish(job_id, attempt, REPORT, now=2)
        self.assertEqual(before, self.contents())
        self.store.db.execute("DELETE FROM receipts")
        self.assertTrue(self.store.finish(job_id, attempt, REPORT, now=2))


if __name__ == "__main__":
    unittest.main()
