"""Waiting for another process's lock leaves the event loop free, and ends with the caller's time."""

from __future__ import annotations

import asyncio
import sqlite3
import unittest
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any
from unittest import mock

from chapter10.companions.basics.locks import PAUSE_S, at_once, off_the_loop
from chapter10.companions.effects.idempotency import IdempotencyStore, OutcomeUnknown
from chapter10.companions.effects.outbox import TABLES, Outbox, OutboxWriter, Relay, upkeep
from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.cancellation import DistributedCancelToken
from chapter10.companions.work.turnstile import FairDatabase
from chapter10.database import Database, StoreError
from chapter10.tests.support import FolderTestCase
from chapter10.tests.virtual_time import VirtualLoop, pause, run_virtual


class LockTestCase(FolderTestCase):
    """A file whose lock another connection has; `sleep` counts the pauses and lets go after some of them."""

    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "shared.db"
        self.pauses: list[float] = []
        self.let_go_after = 3

    def open(self, **options: Any) -> Database:
        options = {"busy_seconds": 0.1, **options}
        database = Database(self.path, application_id=7, migrations=("CREATE TABLE t (a);",), **options)
        self.addCleanup(database.close)
        return database

    def hold(self) -> None:
        self.other = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(self.other.close)
        self.other.execute("BEGIN IMMEDIATE")

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self.let_go_after:
            self.other.execute("ROLLBACK")
        await asyncio.sleep(0)

    def left(self) -> float:
        return 0.05 - sum(self.pauses)

    def step(self, database: Database) -> Callable[[], str]:
        def write() -> str:
            self.assertEqual((0,), database.row("PRAGMA busy_timeout"))
            with database.write() as connection:
                connection.execute("INSERT INTO t VALUES (1)")
            return "stored"

        return write

    def busy(self, work: Any) -> None:
        with self.assertRaises(StoreError) as caught:
            asyncio.run(work)
        self.assertEqual("store_busy", caught.exception.code)


class Waiting(LockTestCase):
    """One step, and a lock in its way."""

    def test_a_step_is_tried_again_when_the_other_one_is_done(self) -> None:
        """Each try is over at once, and between two the loop is free; afterwards the database waits as it did."""
        database = self.open()
        self.hold()
        self.assertEqual("stored", asyncio.run(off_the_loop(database, self.step(database), sleep=self.sleep)))
        self.assertEqual(([PAUSE_S] * 3, (100,)), (self.pauses, database.row("PRAGMA busy_timeout")))

    def test_the_waiting_ends_with_the_time_that_is_left(self) -> None:
        """The last pause is what is left, and the step is then tried once more."""
        database = self.open()
        self.hold()
        self.let_go_after = 0
        self.busy(off_the_loop(database, self.step(database), left=self.left, sleep=self.sleep))
        self.assertEqual([0.02, 0.02, 0.01], [round(pause, 6) for pause in self.pauses])

    def test_the_waiting_ends_when_the_database_would_have_given_up(self) -> None:
        """Without a budget it takes as long as the database was told to wait."""
        database = self.open(busy_seconds=0.05)
        self.hold()
        self.let_go_after = 0
        self.busy(off_the_loop(database, self.step(database), sleep=self.sleep))
        self.assertAlmostEqual(0.05, sum(self.pauses))

    def test_a_fault_that_is_no_lock_comes_out_at_once(self) -> None:
        """There is nothing to wait for."""
        database = self.open()
        with self.assertRaises(StoreError) as caught:
            asyncio.run(off_the_loop(database, lambda: database.row("SELECT nothing"), sleep=self.sleep))
        self.assertEqual(("store_unavailable", []), (caught.exception.code, self.pauses))

    def test_a_step_may_close_the_database(self) -> None:
        """Then nothing is left to be set back."""
        database = self.open()
        self.assertIsNone(at_once(database, database.close))

    def cancelled(self, *, shielded: bool) -> list[tuple[int]]:
        """Return what is stored when the caller is cancelled during the first pause."""
        database = self.open()
        self.hold()

        async def main() -> None:
            async def sleep(seconds: float) -> None:
                if not self.pauses:
                    task.cancel()
                await self.sleep(seconds)

            step = self.step(database)
            task = asyncio.ensure_future(off_the_loop(database, step, sleep=sleep, shielded=shielded))
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        rows: list[tuple[int]] = database.rows("SELECT a FROM t")
        return rows

    def test_a_cancel_ends_the_waiting(self) -> None:
        """Nothing is stored for a caller who has gone."""
        self.assertEqual([], self.cancelled(shielded=False))

    def test_a_shielded_step_is_made_and_the_cancel_raised_after_it(self) -> None:
        """What must be stored is, and the cancel is not lost."""
        self.assertEqual([(1,)], self.cancelled(shielded=True))

    def test_a_cancel_is_not_lost_when_the_lock_never_comes(self) -> None:
        """A shielded caller who was cancelled hears of the cancel, and of the lock as its cause."""
        database = self.open(busy_seconds=0.05)
        self.hold()

        async def main() -> None:
            async def sleep(seconds: float) -> None:
                raise asyncio.CancelledError

            await off_the_loop(database, self.step(database), sleep=sleep, shielded=True)

        with self.assertRaises(asyncio.CancelledError) as caught:
            asyncio.run(main())
        self.assertIsInstance(caught.exception.__cause__, StoreError)


class WhoWaits(LockTestCase):
    """The calls of the library that a loop makes while another process writes."""

    async def effect(self) -> str:
        self.calls += 1
        if self.locked_by_then:
            self.hold()
        return "made"

    def setUp(self) -> None:
        super().setUp()
        self.calls, self.locked_by_then = 0, False

    def store(self, **options: Any) -> IdempotencyStore:
        store = IdempotencyStore(self.path, sleep=self.sleep, busy_seconds=0.1, **options)
        self.addCleanup(store.close)
        return store

    def test_an_effect_is_not_begun_when_the_lock_outlasts_the_budget(self) -> None:
        """A call with 50 ms left comes back within them, busy, and nothing was done."""
        store = self.store()
        self.hold()
        self.let_go_after = 0
        self.busy(store.execute_once("n", {"a": 1}, self.effect, remaining=self.left))
        self.assertEqual((0, 0.05), (self.calls, round(sum(self.pauses), 6)))

    def test_an_effect_that_was_made_is_recorded_when_the_lock_is_free(self) -> None:
        """The value waits for the other process's transaction, off the loop, and is replayed."""
        store = self.store()
        self.locked_by_then = True
        for _ in range(2):
            self.assertEqual("made", asyncio.run(store.execute_once("n", {"a": 1}, self.effect)))
        self.assertEqual((1, 3), (self.calls, len(self.pauses)))

    def test_a_doubt_is_recorded_when_the_lock_is_free(self) -> None:
        """So is how a call ended badly; its own error comes out."""
        store = self.store()
        self.locked_by_then = True

        async def lost() -> None:
            await self.effect()
            raise TimeoutError

        for error in (TimeoutError, OutcomeUnknown):
            with self.assertRaises(error):
                asyncio.run(store.execute_once("n", {"a": 1}, lost))

    def test_a_renewal_does_not_wait(self) -> None:
        """A heartbeat that finds the file locked comes again soon, and holds nobody meanwhile."""
        due: list[tuple[float, Callable[[], None]]] = []

        class Timer:
            def cancel(self) -> None:
                """Nothing is to be taken off a schedule."""

        def call_later(seconds: float, call: Callable[[], None]) -> Timer:
            due.append((seconds, call))
            return Timer()

        store = self.store(call_later=call_later)

        async def slow() -> None:
            self.hold()
            due[-1][1]()
            self.other.execute("ROLLBACK")
            due[-1][1]()

        asyncio.run(store.execute_once("n", {"a": 1}, slow, lease_s=12))
        self.assertEqual([4, 1, 4], [seconds for seconds, _ in due])

    def test_a_relay_and_a_writer_wait_off_the_loop(self) -> None:
        """For the claim, for the mark and for a business write; meanwhile the loop goes on."""
        tables = (TABLES, "CREATE TABLE t (a);")
        database = Database(self.path, application_id=7, migrations=tables, busy_seconds=1)
        self.addCleanup(database.close)
        outbox = Outbox(database, clock=lambda: 0.0)
        ticks: list[float] = []

        async def while_locked(work: Awaitable[Any]) -> Any:
            task = asyncio.ensure_future(work)
            await pause(0.05)
            self.assertFalse(task.done())
            ticks.append(asyncio.get_running_loop().time())
            self.other.execute("ROLLBACK")
            return await task

        async def send(topic: str, payload: str, *, key: str) -> None:
            self.hold()
            asyncio.get_running_loop().call_later(0.05, self.other.execute, "ROLLBACK")

        async def main(loop: VirtualLoop) -> None:
            self.hold()
            write = OutboxWriter(database, outbox).do_business_and_record
            name = await while_locked(write(lambda db: db.execute("INSERT INTO t VALUES (1)"), {}, event_id="e"))
            self.hold()
            report = await while_locked(Relay(outbox, send).run_pass())
            self.assertEqual(("e", 1, "sent"), (name, report.sent, outbox.status("e")["status"]))

        run_virtual(main)
        self.assertEqual(2, len(ticks))

    def test_a_mark_that_must_wait_is_made_for_a_relay_that_is_cancelled(self) -> None:
        """What was sent is stored when the lock is free, and the cancel comes out after it."""
        outbox = Outbox(self.path, clock=lambda: 0.0)
        self.addCleanup(outbox.close)
        with outbox.database.write() as db:
            outbox.record(db, "t", {}, event_id="e")

        async def send(topic: str, payload: str, *, key: str) -> None:
            self.hold()
            asyncio.get_running_loop().call_later(0.02, passes[0].cancel)
            asyncio.get_running_loop().call_later(0.09, self.other.execute, "ROLLBACK")

        async def main(loop: VirtualLoop) -> None:
            passes.append(asyncio.ensure_future(Relay(outbox, send).run_pass()))
            with self.assertRaises(asyncio.CancelledError):
                await passes[0]

        passes: list[asyncio.Future[Any]] = []
        run_virtual(main)
        self.assertEqual("sent", outbox.status("e")["status"])

    def test_upkeep_waits_off_the_loop(self) -> None:
        """It stops when it is told to, although another process still writes."""
        outbox = Outbox(self.path, busy_seconds=60)
        self.addCleanup(outbox.close)

        async def main(loop: VirtualLoop) -> float:
            self.hold()
            began = loop.time()
            task = asyncio.ensure_future(upkeep(outbox, stop := asyncio.Event()))
            await pause(0.05)
            self.assertFalse(task.done())
            self.other.execute("ROLLBACK")
            stop.set()
            await task
            return loop.time() - began

        self.assertLess(run_virtual(main), 1)

    def test_who_does_not_wait_for_a_lock_waits_for_no_turn(self) -> None:
        """The queue of the writers is asked again when the database may wait."""
        database = FairDatabase(self.path, application_id=7, migrations=("CREATE TABLE t (a);",))
        self.addCleanup(database.close)
        with mock.patch.object(database, "_turnstile", mock.Mock(spec=database._turnstile)) as queue:
            at_once(database, self.step(database))
            self.assertEqual(0, queue.enter.call_count)
            with database.write():
                self.assertEqual(1, queue.enter.call_count)

    def test_a_cancel_row_waits_off_the_loop(self) -> None:
        """The row is written when the other process lets go; a look meanwhile is over at once."""
        with (
            CancelStore.open(self.path, busy_seconds=0.1) as store,
            closing(sqlite3.connect(self.path, isolation_level=None)) as other,
        ):
            token = DistributedCancelToken("t", None, store)
            other.execute("BEGIN IMMEDIATE")

            async def main() -> None:
                asking = asyncio.ensure_future(token.cancel())
                await asyncio.sleep(0)
                self.assertTrue(token.is_cancelled())
                self.assertFalse(asking.done())
                other.execute("ROLLBACK")
                await asking

            asyncio.run(main())
            self.assertEqual("parent_cancelled", store.cancel_reason("t"))


if __name__ == "__main__":
    unittest.main()
