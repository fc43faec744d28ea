"""The worker in one process, on a clock moved by hand: what it does with a job, and what it lets the store decide."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sqlite3
import sys
import threading
import unittest
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from typing import Any, Final
from unittest import mock

from chapter10.canonical import CodedError
from chapter10.companions.interruption.process_stop import StopError
from chapter10.companions.work import child_process, heartbeat, worker_log
from chapter10.companions.work import worker as module
from chapter10.companions.work.child_process import ChildFailed, ChildProcess, TemporaryChildError
from chapter10.companions.work.heartbeat import AttemptOver, Heartbeat, Held, JobContext
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import LOOK_SECONDS, Backoff, Handler, Note, Outcome, Worker, WorkerError
from chapter10.companions.work.worker_log import MAX_RECENT, WorkerLog, log_path
from chapter10.database import StoreError
from chapter10.jobs import JobError
from chapter10.limits import MIN_SECONDS
from chapter10.tests.job_support import AUGUST, REPORT, LivingTestCase
from chapter10.tests.support import ALONE, FolderTestCase, ManualClock, child_environment, defaults

NEVER: Final = float("inf")


class Slow(CodedError):
    """A temporary error of a handler."""


class WorkerTestCase(LivingTestCase):
    """A store, and workers on it whose time is moved by hand and whose heartbeat is silent unless asked for."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = ManualClock(1.0)
        self.notes: list[Note] = []

    def worker(self, run: Callable[[JobContext], Any] = lambda context: REPORT, **options: Any) -> Worker:
        settings = {name: options.pop(name) for name in ("temporary", "limit", "discard", "version") if name in options}
        silent = {"renew_every": NEVER, "random": lambda: 0.5, "observe": self.notes.append}
        usual = {"clock": self.clock, "sleep": self.clock.sleep, **silent}
        worker = Worker(self.path, {"reports.export": Handler(run, **settings)}, **{**usual, **options})
        self.addCleanup(worker.close)
        return worker

    def once(self, run: Callable[[JobContext], Any] = lambda context: REPORT, **options: Any) -> Outcome:
        outcome = self.worker(run, **options).run_once()
        assert outcome is not None
        return outcome

    def busy(self, worker: Worker, verb: str, errors: list[Any]) -> Any:
        """Let a verb of the worker's store fail with these errors, one after another, before it does its work."""
        busy = mock.Mock(wraps=getattr(worker._store, verb), side_effect=[*errors, mock.DEFAULT])
        return mock.patch.object(worker._store, verb, busy)

    def refusals(self) -> list[tuple[str, str, int]]:
        with WorkerLog(log_path(self.path)) as log:
            return [(row["verb"], row["code"], row["count"]) for row in log.counts()]

    def progress_events(self, job_id: int = 1) -> list[tuple[int, int]]:
        return [
            (event["detail"]["done"], event["detail"]["total"])
            for event in self.store.events("alice", job_id, limit=1000)
            if event["kind"] == "progress"
        ]


class OneJob(WorkerTestCase):
    """The life of one attempt."""

    def test_a_job_is_claimed_done_and_delivered(self) -> None:
        """The handler gets arguments of its own, and its result becomes the receipt."""
        self.submit()
        seen = []

        def run(context: JobContext) -> Any:
            seen.append((context.job_id, context.attempt, dict(context.args), context.snapshot))
            context.args["month"] = "changed"
            return REPORT

        self.assertEqual(self.once(run), Outcome(1, 1, "succeeded"))
        self.assertEqual(seen, [(1, 1, AUGUST, None)])
        self.assertEqual(self.store.result("alice", 1)["data"], REPORT)
        self.assertEqual(self.store.intent(1)["args"], AUGUST)
        self.assertEqual(self.notes, [Note("claimed", 1, 1), Note("succeeded", 1, 1)])

    def test_nothing_due_is_nothing_done(self) -> None:
        """Without a due job `run_once` gives None and writes nothing."""
        before = self.contents()
        self.assertIsNone(self.worker().run_once())
        self.assertEqual(self.contents(), before)

    def test_a_second_attempt_starts_at_the_beginning(self) -> None:
        """The attempt after a lost one counts from zero; nothing of the first is carried over. Claims: C10-292."""
        self.submit()
        seen: list[int] = []

        def run(context: JobContext) -> Any:
            for row in range(1, 4):
                seen.append(row)
                context.progress(row, 3)
                if context.attempt == 1 and row == 2:
                    raise Slow("slow")
            return REPORT

        self.assertEqual(self.once(run, temporary=(Slow,)).state, "queued")
        self.clock.advance(5)
        self.assertEqual(self.once(run), Outcome(1, 2, "succeeded"))
        self.assertEqual(seen, [1, 2, 1, 2, 3])

    def test_a_result_that_is_no_json_fails_the_job(self) -> None:
        """The handler's mistake is recorded; the job does not hang until its lease ends."""
        self.submit()
        self.assertEqual(self.once(lambda context: {1: 2}), Outcome(1, 1, "failed", "bad_result"))
        said = [(note.kind, note.detail, type(note.error)) for note in self.notes[1:]]
        self.assertEqual(said, [("error", "bad_result", JobError), ("failed", "bad_result", type(None))])

    def test_a_job_of_another_kind_waits_for_a_worker_that_can_do_it(self) -> None:
        """Another version is another kind; it costs no attempt, keeps nobody from leaving, and is named."""
        self.submit()
        self.assertIsNone(self.worker(version="2").run_once())
        self.assertEqual(self.worker(version="2").run(drain=True), 0)
        self.assertEqual(self.store.kinds(), [{"kind": "reports.export", "version": "1", "queued": 1, "live": 1}])
        self.assertEqual(self.once(), Outcome(1, 1, "succeeded"))

    def test_a_handler_that_changes_the_folder_does_not_move_the_store(self) -> None:
        """The log and the heartbeat's connection are those of the path as it was when the worker was made."""
        self.submit()
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        with contextlib.chdir(self.folder):
            worker = Worker(self.path.name, {}, clock=self.clock, renew_every=float("inf"))
            self.addCleanup(worker.close)
            os.chdir(elsewhere)
            worker._heartbeat._connect().close()
        self.assertEqual(([], str(self.path.resolve())), (list(elsewhere.iterdir()), worker._path))

    def test_a_paused_worker_sleeps_and_goes_on_when_it_may(self) -> None:
        """Nothing is begun meanwhile; the end of the pause is seen as any other change of the file."""
        self.submit()
        self.store.pause(now=0)
        naps: list[float] = []

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                self.store.resume()

        worker = self.worker(sleep=sleep)
        self.assertEqual((worker.run(jobs=1), len(naps)), (1, 3))

    def test_a_job_that_vanished_between_claim_and_look_is_lost(self) -> None:
        """A row that was pruned meanwhile is nobody's job any more."""
        self.submit()
        worker = self.worker()
        with mock.patch.object(worker._look, "row", lambda sql, parameters=(): None):
            self.assertEqual(worker.run_once(), Outcome(1, 1, "lost", "not_found"))


class Errors(WorkerTestCase):
    """A handler that fails."""

    def fail_with(self, error: Exception, **options: Any) -> Outcome:
        def run(context: JobContext) -> Any:
            raise error

        return self.once(run, **options)

    def test_only_declared_errors_are_tried_again(self) -> None:
        """The handler says what is temporary; everything else is final at once."""
        self.submit("a", max_attempts=3)
        self.assertEqual(self.fail_with(Slow("slow"), temporary=(Slow,)), Outcome(1, 1, "queued", "slow"))
        self.assertEqual([note.kind for note in self.notes], ["claimed", "error", "queued"])
        self.store.cancel("alice", 1)
        self.submit("b", max_attempts=3)
        self.assertEqual(self.fail_with(CodedError("bad_rows"), temporary=(Slow,)), Outcome(2, 1, "failed", "bad_rows"))

    def test_the_code_of_an_error_gets_into_the_store_and_its_text_never(self) -> None:
        """One character up to two hundred; what has none of its own is `handler_failed`, and goes to whoever observes.

        A `StoreError` that a handler raises is not mistaken for a broken store of ours.
        """
        errors: list[tuple[Exception, str]] = [
            (RuntimeError("secret of the customer"), "handler_failed"),
            (StoreError("store_unavailable", "another file"), "store_unavailable"),
            *((CodedError(code), code) for code in ("x", "x" * 200)),
        ]
        for code in (7, "x" * 201, "", "a\0b", "line\nbreak"):  # an exit code, a very long text
            errors.append((RuntimeError(), "handler_failed"))
            errors[-1][0].code = code  # type: ignore[attr-defined]
        for number, (error, told) in enumerate(errors, 1):
            with self.subTest(error=error):
                self.submit(f"k{number}")
                self.assertEqual(self.fail_with(error), Outcome(number, 1, "failed", told))
                self.assertIs([note.error for note in self.notes if note.kind == "error"][-1], error)
        self.assertNotIn("secret", "".join(self.store.db.iterdump()))

    def test_a_poison_job_ends(self) -> None:
        """A job that fails every time, with a temporary error, uses up its attempts and stays failed.

        The event log tells how much work there really was.

        Claims: C10-206, C10-207.
        """
        self.submit(max_attempts=3)
        run = mock.Mock(side_effect=Slow("slow"))
        self.assertEqual(self.worker(run, temporary=(Slow,)).run(drain=True), 3)
        self.assertEqual((run.call_count, self.store.get("alice", 1)["error"]), (3, "slow"))
        events = self.store.events("alice", 1)
        self.assertEqual([event["attempt"] for event in events if event["kind"] == "running"], [1, 2, 3])
        self.assertTrue(all(type(event["attempt"]) is int for event in events))

    def test_the_pause_grows_has_a_cap_and_is_spread(self) -> None:
        """Twice as long each time, spread by the injected chance, never above the cap. Claims: C10-204."""
        backoff = Backoff(base_ms=1000, cap_ms=6000)
        self.assertEqual([backoff.seconds(attempt, lambda: 0.5) for attempt in (1, 2, 3, 9)], [1.0, 2.0, 4.0, 4.0])
        for attempt in (1, 5, 10**6):
            for drawn in (0.0, 0.5, 1 - 2**-53):
                self.assertLessEqual(backoff.seconds(attempt, iter([drawn]).__next__), 6.0)
        self.assertLess(backoff.seconds(1, lambda: 0.0), backoff.seconds(1, lambda: 0.9))

    def test_a_retry_waits_for_its_pause(self) -> None:
        """After the first temporary error the job is due again after the backoff and not before."""
        self.submit()
        self.fail_with(Slow("slow"), temporary=(Slow,), backoff=Backoff(base_ms=4000))
        self.clock.advance(3.999)
        self.assertIsNone(self.worker().run_once())
        self.clock.advance(0.001)
        self.assertEqual(self.once().state, "succeeded")

    def test_an_error_is_final_from_an_age_on(self) -> None:
        """Counted from the submission, however many attempts are left; before it the job waits for its pause."""
        self.submit(deadline=9000)
        for now, state in ((600, "queued"), (600.5, "failed")):
            self.clock.now = now
            self.assertEqual(
                state,
                self.fail_with(Slow("slow"), temporary=(Slow,), backoff=Backoff(1, 1, age_s=600.5)).state,
            )

    def test_ctrl_c_in_a_handler_puts_the_job_back(self) -> None:
        """What is no `Exception` comes out, after the job was put back in line at once."""
        self.submit()
        with self.assertRaises(KeyboardInterrupt):
            self.worker(mock.Mock(side_effect=KeyboardInterrupt)).run_once()
        self.assertEqual(self.store.get("alice", 1)["error"], "worker_stopped")
        self.assertEqual(self.once(), Outcome(1, 2, "succeeded"))

    def test_discard_is_called_for_what_does_not_count(self) -> None:
        """It runs after a failure and not after a success, and its own error changes nothing. Claims: C10-294."""
        discarded: list[int] = []

        def discard(context: JobContext) -> None:
            discarded.append(context.job_id)
            raise OSError("the folder is gone")

        self.submit("a")
        self.submit("b")
        self.assertEqual(self.once(discard=discard).state, "succeeded")
        self.assertEqual(discarded, [])
        outcome = self.fail_with(CodedError("bad_rows"), discard=discard)
        self.assertEqual((outcome, discarded), (Outcome(2, 1, "failed", "bad_rows"), [2]))
        self.assertEqual(self.notes[-2].kind, "discard_trouble")


class Progress(WorkerTestCase):
    """Progress reaches the store, but not each time."""

    def test_progress_is_stored_now_and_then(self) -> None:
        """A thousand reports within two seconds are a handful of writes; the runtime merges, no model is asked.

        Claims: C10-250.
        """
        self.submit()

        def run(context: JobContext) -> Any:
            for done in range(1, 1001):
                self.clock.advance(0.002)
                context.progress(done, 1000)
            return REPORT

        self.once(run, progress_every=0.5)
        stored = self.progress_events()
        self.assertEqual(stored[-1], (1000, 1000))
        self.assertLessEqual(len(stored), 6)

    def test_the_last_progress_is_never_lost(self) -> None:
        """Whatever was said last is in the store before the result is, and before an error that ends the job."""
        for number, error in enumerate((None, CodedError("bad_rows"))):
            job_id = self.submit(f"k{number}")

            def run(context: JobContext, error: CodedError | None = error) -> Any:
                context.progress(1, 9)
                context.progress(7, 9)  # in the same moment: not stored yet
                if error is not None:
                    raise error
                return REPORT

            self.once(run, progress_every=60)
            self.assertEqual(self.progress_events(job_id), [(1, 9), (7, 9)])
            self.assertEqual(self.store.get("alice", job_id)["done"], 7)

    def test_everything_done_is_stored_at_once(self) -> None:
        """A reader sees that all is done while the handler still prepares its delivery."""
        self.submit()
        seen: list[int] = []

        def run(context: JobContext) -> Any:
            context.progress(1, 3)
            context.progress(3, 3)
            seen.append(self.store.get("alice", 1)["done"])
            return REPORT

        worker = self.worker(run, progress_every=60)
        with mock.patch.object(worker._store, "progress", mock.Mock(side_effect=worker._store.progress)) as progress:
            worker.run_once()
        self.assertEqual((seen, progress.call_count), ([3], 2))  # and what is stored is not sent again

    def test_nothing_done_of_nothing_is_where_each_attempt_starts(self) -> None:
        """It may be said, and is not stored: the store has it already."""
        self.submit()

        def run(context: JobContext) -> Any:
            return [context.progress(*counts) for counts in ((0, 0), (0, 3), (0, 3), (1, 3))]

        self.assertEqual(self.once(run, progress_every=0).state, "succeeded")
        self.assertEqual(self.progress_events(), [(0, 3), (1, 3)])
        self.assertEqual(self.store.result("alice", 1)["data"], [True] * 4)

    def test_a_progress_that_is_none_is_refused_at_once(self) -> None:
        """The handler learns of its mistake also where the store would not have been asked."""
        self.submit()
        refused: list[str] = []

        def run(context: JobContext) -> Any:
            context.progress(2, 4)
            wrong: list[Any] = [
                (1, 4), (3, 3), (5, 4), (True, 4), (2.0, 4), (3, 5.0), (-1, 4), (3, 2**53 + 1), (None, 4), (3, None),
            ]  # fmt: skip
            for counts in wrong:
                try:
                    context.progress(*counts)
                except WorkerError as error:
                    refused.append(error.code)
            context.progress(2**53, 2**53)
            return REPORT

        self.assertEqual(self.once(run).state, "succeeded")
        self.assertEqual(refused, ["bad_progress"] * 10)
        self.assertEqual(self.progress_events(), [(2, 4), (2**53, 2**53)])

    def test_a_busy_store_gets_the_progress_later(self) -> None:
        """Progress is no reason to fail: a lock that somebody else holds only delays it."""
        self.submit()

        def run(context: JobContext) -> Any:
            context.progress(3, 3)
            return REPORT

        worker = self.worker(run)
        error = StoreError("store_busy", "held")
        with self.busy(worker, "progress", [error]):
            self.assertEqual(worker.run_once(), Outcome(1, 1, "succeeded"))
        self.assertEqual(self.progress_events(), [(3, 3)])
        self.assertIn(Note("store_trouble", 1, 1, "store_busy", error), self.notes)


class Stops(WorkerTestCase):
    """Why a handler has to stop, and what the store makes of it."""

    def stopped_by(self, event: Callable[[], object], **options: Any) -> tuple[Outcome, list[str]]:
        """Run a handler that looks, lets something happen, and looks again; return the outcome and why it stopped."""
        why: list[str] = []

        def run(context: JobContext) -> Any:
            context.checkpoint()
            event()
            self.clock.advance(1)
            try:
                context.checkpoint()
            except AttemptOver as over:
                why.append(over.code)
                raise
            return REPORT

        return self.once(run, **options), why

    def test_a_cancel_is_seen_at_the_next_checkpoint(self) -> None:
        """The job is `cancel_requested` until the worker has confirmed, and `cancelled` from then on.

        Claims: C10-209, C10-214.
        """
        self.submit()
        states: list[str] = []

        def cancel() -> None:
            states.append(self.store.cancel("alice", 1))

        outcome, why = self.stopped_by(cancel)
        self.assertEqual((outcome, why), (Outcome(1, 1, "cancelled", "cancelled"), ["cancelled"]))
        self.assertEqual([*states, self.state(1)], ["cancel_requested", "cancelled"])
        self.assertEqual(self.store.receipt_count(1), 0)

    def test_a_cancelled_job_delivers_nothing_whatever_its_handler_does(self) -> None:
        """It returns without having looked, or swallows the stop: the cancel is confirmed at the delivery.

        What it left behind is removed, and an error of that hides nothing. Claims: C10-211, C10-294.
        """
        for number, looks in enumerate((False, True), 1):
            self.submit(f"k{number}", now=self.clock())

            def run(context: JobContext, number: int = number, looks: bool = looks) -> Any:
                self.store.cancel("alice", number)
                if looks:
                    with self.assertRaises(AttemptOver):
                        context.checkpoint()
                return REPORT

            discarded = mock.Mock(side_effect=OSError)
            self.assertEqual(self.once(run, discard=discarded), Outcome(number, 1, "cancelled", "not_stored"))
            self.assertEqual((self.store.receipt_count(number), discarded.call_count), (0, 1))

    def test_progress_notices_a_cancel_too(self) -> None:
        """The store's answer to a report of progress stops the handler."""
        self.submit()
        why: list[str] = []

        def run(context: JobContext) -> Any:
            context.checkpoint()
            self.store.cancel("alice", 1)
            try:
                context.progress(1, 1)  # in the same moment as the last look: only the write can tell
            except AttemptOver as over:
                why.append(over.code)
                raise
            return REPORT

        self.assertEqual(self.once(run).state, "cancelled")
        self.assertEqual(why, ["cancelled"])

    def test_a_passed_deadline_or_limit_stops_the_handler(self) -> None:
        """At the deadline nothing counts any more and the job fails; past its own limit an attempt is tried again.

        Claims: C10-189.
        """
        for number, (deadline, seconds, limit, state, code) in enumerate(
            (
                (3, 1, None, "failed", "deadline_exceeded"),
                (100, 4, 5, "queued", "attempt_limit_exceeded"),
            ),
            1,
        ):
            self.submit(f"k{number}", now=self.clock(), deadline=deadline)
            outcome, why = self.stopped_by(lambda seconds=seconds: self.clock.advance(seconds), limit=limit)  # type: ignore[misc]
            self.assertEqual((outcome, why), (Outcome(number, 1, state, code), [code]))
            self.assertEqual(self.store.get("alice", number)["error"], code)

    def test_time_left_is_the_nearer_of_limit_and_deadline(self) -> None:
        """A handler can plan with what it has."""
        self.submit("a", deadline=9)
        self.submit("b", deadline=90)
        left: list[float] = []

        def run(context: JobContext) -> Any:
            left.append(context.time_left())
            return REPORT

        self.once(run, limit=30)
        self.once(run, limit=30)
        self.assertEqual(left, [8, 30])

    def assert_lost(self, event: Callable[[], object], code: str, attempt: int) -> None:
        """The first attempt stops at its checkpoint, changes nothing, and stands in the log."""
        self.submit()
        outcome, why = self.stopped_by(event)
        self.assertEqual((outcome, why), (Outcome(1, 1, "lost", "lease_lost"), ["lease_lost"]))
        self.assertEqual(self.refusals(), [("renew", code, 1)])
        self.assertEqual((self.state(1), self.store.get("alice", 1)["attempt"]), ("running", attempt))

    def test_a_lost_lease_stops_the_handler_and_is_noted(self) -> None:
        """It ended, and another attempt runs. Claims: C10-226, C10-227, C10-232."""

        def lose() -> None:
            self.clock.advance(10)
            self.store.claim(1, now=self.clock)

        self.assert_lost(lose, "stale_attempt", 2)

    def test_a_lease_that_ended_unclaimed_is_lost_too(self) -> None:
        """Nobody took the job, and still its time is over. Claims: C10-231."""
        self.assert_lost(lambda: self.clock.advance(10), "lease_expired", 1)

    def test_a_lost_attempt_is_seen_before_its_lease_would_end(self) -> None:
        """A clock that runs ahead took the job early: the look at the row says so, not the own clock."""
        self.assert_lost(lambda: self.store.claim(1, now=self.clock() + 10), "stale_attempt", 2)

    def test_a_lease_is_over_at_its_moment(self) -> None:
        """A moment before it the handler goes on; at it the worker asks the store, which says no."""
        self.submit()
        passed: list[float] = []

        def run(context: JobContext) -> Any:
            for now in (10.999, 11.0):
                self.clock.now = now
                context.checkpoint()
                passed.append(now)

        self.assertEqual(self.once(run), Outcome(1, 1, "lost", "lease_lost"))
        self.assertEqual((passed, self.refusals()), ([10.999], [("renew", "lease_expired", 1)]))

    def test_a_checkpoint_looks_at_the_row_at_once_and_then_now_and_then(self) -> None:
        """A cancel is seen by the first one, and later by the first one that is `LOOK_SECONDS` after the last look."""
        for number, (early, late) in enumerate(((0.0, 0.0), (LOOK_SECONDS * 0.9, LOOK_SECONDS))):
            job_id = self.submit(f"k{number}", now=self.clock())
            passed: list[float] = []

            def run(
                context: JobContext, job_id: int = job_id, early: float = early, late: float = late,
                passed: list[float] = passed,
            ) -> Any:  # fmt: skip
                began = self.clock()
                if late > 0:
                    context.checkpoint()
                self.store.cancel("alice", job_id)
                for moment in (early, late):
                    self.clock.now = began + moment
                    context.checkpoint()
                    passed.append(moment)

            self.assertEqual(self.once(run).state, "cancelled")
            self.assertEqual(passed, [early] if late > 0 else [])

    def test_what_was_done_before_a_stop_is_stored(self) -> None:
        """A reader sees how far the attempt had come."""
        self.submit()

        def run(context: JobContext) -> Any:
            context.progress(1, 9)
            context.progress(7, 9)  # in the same moment: not stored yet
            self.clock.advance(5)
            context.checkpoint()

        self.assertEqual(self.once(run, limit=5, progress_every=60).code, "attempt_limit_exceeded")
        self.assertEqual(self.progress_events(), [(1, 9), (7, 9)])

    def test_progress_that_is_not_stored_stops_the_handler_too(self) -> None:
        """Past the deadline it raises like a checkpoint, though the store would not have been asked."""
        self.submit(deadline=5)
        seen: list[bool] = []

        def run(context: JobContext) -> Any:
            seen.append(context.progress(1, 9))
            self.clock.advance(4)
            seen.append(context.progress(2, 9))

        self.assertEqual(self.once(run, progress_every=60), Outcome(1, 1, "failed", "deadline_exceeded"))
        self.assertEqual(seen, [True])

    def test_a_late_result_is_refused_and_changes_nothing(self) -> None:
        """A handler that never looks delivers after its lease: the other attempt's result is the only one.

        Claims: C10-228, C10-229.
        """
        self.submit()
        before: list[Any] = []

        def run(context: JobContext) -> Any:
            self.clock.advance(10)
            self.assertEqual(self.store.claim(1, now=self.clock), 2)
            self.store.finish(1, 2, REPORT, now=self.clock)
            before.append(self.contents())
            return {"late": True}

        discarded: list[int] = []
        outcome = self.once(run, discard=lambda context: discarded.append(context.attempt))
        self.assertEqual(outcome, Outcome(1, 1, "lost", "stale_attempt"))
        self.assertEqual(self.contents(), before[0])
        self.assertEqual(self.refusals(), [("finish", "stale_attempt", 1)])
        self.assertIn(Note("refused", 1, 1, "finish: stale_attempt"), self.notes)
        self.assertEqual((self.store.result("alice", 1)["data"], discarded), (REPORT, [1]))

    def test_a_late_failure_and_a_late_progress_are_refused(self) -> None:
        """Not only deliveries come late. Claims: C10-232."""
        for number, (verb, act) in enumerate(
            (("fail", self._raise), ("progress", lambda context: context.progress(1, 1)))
        ):
            job_id = self.submit(f"k{number}", now=self.clock())

            def run(context: JobContext, act: Callable[[JobContext], object] = act, job: int = job_id) -> Any:
                context.checkpoint()
                self.store.claim(job, now=self.clock() + 10)
                act(context)

            self.assertEqual(self.once(run).state, "lost")
            self.assertIn((verb, "stale_attempt", 1), self.refusals())

    @staticmethod
    def _raise(context: JobContext) -> None:
        raise CodedError("bad_rows")

    def test_a_handler_that_catches_exceptions_does_not_catch_the_stop(self) -> None:
        """`AttemptOver` is no `Exception`, like a cancel in asyncio."""
        self.assertFalse(issubclass(AttemptOver, Exception))

    def test_a_log_that_cannot_be_written_costs_no_job(self) -> None:
        """A statistic is lost and noted, and the worker goes on."""
        (self.folder / "jobs.db.workers").mkdir()
        self.submit()
        outcome, _ = self.stopped_by(lambda: self.clock.advance(10))
        self.assertEqual(outcome.state, "lost")
        self.assertIn("log_trouble", [note.kind for note in self.notes])


class Beliefs(WorkerTestCase):
    """What a worker believes of its lease, and what it asks the store."""

    def test_a_look_that_fails_decides_nothing(self) -> None:
        """The handler goes on; the lease and the next look decide."""
        self.submit()

        def run(context: JobContext) -> Any:
            context.checkpoint()
            self.store.cancel("alice", 1)
            self.clock.advance(1)
            with mock.patch.object(worker._look, "row", side_effect=StoreError("store_busy", "held")):
                context.checkpoint()
            self.clock.advance(1)
            context.checkpoint()

        worker = self.worker(run)
        self.assertEqual(worker.run_once(), Outcome(1, 1, "cancelled", "cancelled"))
        self.assertEqual(self.clock(), 3)

    def test_a_lease_that_cannot_be_confirmed_is_lost(self) -> None:
        """By the worker's clock it is over, and the store does not say otherwise."""
        self.submit()

        def run(context: JobContext) -> Any:
            self.clock.advance(10)
            with mock.patch.object(worker._store, "renew", side_effect=StoreError("store_busy", "held")):
                context.checkpoint()

        worker = self.worker(run)
        self.assertEqual(worker.run_once(), Outcome(1, 1, "lost", "lease_lost"))

    def test_a_lease_that_was_lengthened_elsewhere_is_confirmed(self) -> None:
        """It is as long as a new one from then on, and never longer than the job has time."""
        self.submit(deadline=33)
        asked: list[float] = []

        def run(context: JobContext) -> Any:
            self.store.renew(1, 1, now=self.clock, lease=32)
            for now in (11.0, 20.9, 21.0, 31.0, 32.9):
                self.clock.now = now
                context.checkpoint()
            self.store.cancel("alice", 1)
            self.clock.now = 33.0
            context.checkpoint()

        def renew(*arguments: Any, **options: Any) -> str:
            asked.append(self.clock())
            return real(*arguments, **options)

        worker = self.worker(run)
        real = worker._store.renew
        with mock.patch.object(worker._store, "renew", renew):
            self.assertEqual(worker.run_once(), Outcome(1, 1, "cancelled", "deadline_exceeded"))
        self.assertEqual(asked, [11.0, 21.0, 31.0])

    def test_a_cancel_is_heard_when_a_lease_is_confirmed(self) -> None:
        """The answer to the renewal says so."""
        self.submit()

        def run(context: JobContext) -> Any:
            self.store.renew(1, 1, now=self.clock, lease=50)
            self.store.cancel("alice", 1)
            self.clock.advance(10)
            context.checkpoint()

        self.assertEqual(self.once(run), Outcome(1, 1, "cancelled", "cancelled"))

    def test_a_job_that_ended_elsewhere_ends_the_attempt(self) -> None:
        """Somebody whose clock is ahead has swept it: progress says that it has ended, and so does a look."""
        for number, looks in enumerate((False, True)):
            job_id = self.submit(f"k{number}", now=self.clock())
            why: list[str] = []

            def run(context: JobContext, looks: bool = looks, why: list[str] = why) -> Any:
                self.store.sweep(now=self.clock() + 200)
                try:
                    if looks:
                        context.checkpoint()
                    else:
                        context.progress(1, 1)
                except AttemptOver as over:
                    why.append(over.code)
                    raise

            blind = mock.patch.object(Worker, "_look_at", lambda *_: None)
            with nullcontext() if looks else blind:
                outcome = self.once(run)
            self.assertEqual((outcome, why), (Outcome(job_id, 1, "failed", "ended"), ["ended"]))

    def test_a_job_that_was_removed_meanwhile_is_lost(self) -> None:
        """Ended by somebody whose clock is ahead, and pruned: nobody's job any more."""
        self.submit()

        def run(context: JobContext) -> Any:
            late = self.clock() + 200
            self.store.sweep(now=late)
            self.store.prune(now=late + 1, results_before=late + 1, keys_before=late + 1)
            context.checkpoint()

        self.assertEqual(self.once(run), Outcome(1, 1, "lost", "lease_lost"))
        self.assertEqual(self.refusals(), [("renew", "not_found", 1)])


class Damage(WorkerTestCase):
    """A row that no store has written: it is named, once, and stops nobody else."""

    def test_a_row_that_is_damaged_while_it_is_held_does_not_end_the_worker(self) -> None:
        """Its delivery is lost and says why, the next job is done, and the end of the lease sets the row aside."""
        for key in ("hit", "next"):
            self.submit(key, deadline=9e9)

        def run(context: JobContext) -> Any:
            if context.job_id == 1:
                self.damage("UPDATE jobs SET attempt = 99 WHERE id = 1")
            return REPORT

        self.worker(run, grace=1.0).run(drain=True)
        self.assertEqual(["failed", "succeeded"], [self.state(1), self.state(2)])
        self.assertIn(("lost", 1, "damaged"), [(note.kind, note.job_id, note.detail) for note in self.notes])

    def test_one_damaged_row_ends_and_the_others_are_done(self) -> None:
        """Whatever is damaged, the job is `failed` with `damaged` at its first meeting; nine of ten are done."""
        changes = (
            "attempt = 99", "max_attempts = 'x'", "deadline = 'x'", "ready_at = 'x'", "lease_until = 'x'", "done = -1",
            "intent = '{oops'", "intent = '[]'", "intent = x'ff'", "intent = '{}'", "error = x'ff'",
            "error = CAST(x'ff' AS TEXT)", "owner = CAST(x'ff' AS TEXT)", "intent = CAST(x'ff' AS TEXT)",
        )  # fmt: skip
        for number, change in enumerate(changes):
            with self.subTest(change):
                ids = [self.submit(f"{number}-{job}", deadline=9e9) for job in range(10)]
                for _ in ids:
                    self.store.claim_next(now=self.clock(), lease=5)
                self.damage(f"UPDATE jobs SET {change} WHERE id = {ids[0]}")
                self.clock.advance(10)
                self.worker(grace=1.0).run(drain=True)
                rows = self.store.db.execute("SELECT state, error FROM jobs WHERE id >= ? ORDER BY id", (ids[0],))
                self.assertEqual(rows.fetchall(), [("failed", "damaged")] + [("succeeded", None)] * 9)
                self.damage(f"UPDATE jobs SET owner = 'alice', intent = '{{}}' WHERE id = {ids[0]}")


class Trouble(WorkerTestCase):
    """What goes wrong around a worker and is no job's fault."""

    def test_whoever_listens_costs_no_job(self) -> None:
        """A log on a full disk: what `observe` raises is dropped, in the worker and in the heartbeat."""
        self.submit()
        listen = mock.Mock(side_effect=OSError(28, "No space left on device"))
        self.assertEqual(self.once(observe=listen), Outcome(1, 1, "succeeded"))
        self.assertEqual(listen.call_count, 2)
        held = Held(1, 1, owner="a", started=0, lease=10, deadline=99, limit=None, renew_every=1)
        beats = Heartbeat(
            lambda: self.store,
            clock=self.clock,
            lease=10,
            every=1,
            pause=1,
            release_at=lambda: None,
            refused=listen,
            failed=listen,
            overrun=listen,
        )
        beats.hold(held)
        broken = mock.Mock(renew=mock.Mock(side_effect=StoreError("store_busy", "held")))
        beats.look(broken)
        self.clock.advance(1)
        beats.look(mock.Mock(renew=mock.Mock(side_effect=JobError("not_found"))))
        self.assertEqual((listen.call_count, held.over), (4, "lease_lost"))
        with mock.patch.object(beats, "_release_at", return_value=0.0):
            beats.look(mock.Mock(hand_back=mock.Mock(side_effect=JobError("not_found"))))
        self.assertEqual(listen.call_count, 6)

    def test_the_heartbeat_outlives_whoever_listens(self) -> None:
        """Its thread ends with `stop` and not with an exception of a callback."""
        asked = threading.Event()

        def failed(*_: object) -> None:
            asked.set()
            raise OSError

        beats = Heartbeat(
            mock.Mock(side_effect=StoreError("store_busy", "held")),
            clock=self.clock,
            lease=1,
            every=0.01,
            pause=0.01,
            release_at=lambda: None,
            refused=failed,
            failed=failed,
            overrun=failed,
        )
        beats.start()
        self.addCleanup(beats.stop)
        for _ in range(3):
            self.assertTrue(asked.wait(60))
            asked.clear()

    def test_a_store_that_is_busy_for_long_is_asked_again(self) -> None:
        """Whatever an idle or a starting worker reads, a lock that is held costs it nothing but time."""
        self.submit()
        worker = self.worker()
        busy, rows = StoreError("store_busy", "held"), worker._look.row
        answers = iter([busy, None, busy, None, None, busy])
        looks: list[str] = []

        def row(sql: str, *given: Any) -> Any:
            looks.append(sql)
            error = next(answers, None)
            if error is not None:
                raise error
            return rows(sql, *given)

        with mock.patch.object(worker._look, "row", row):
            self.assertEqual(worker.run(drain=True), 1)
        self.assertEqual(next(answers, "all asked"), "all asked")
        self.assertEqual(self.state(1), "succeeded")
        self.assertEqual([note.detail for note in self.notes if note.kind == "store_trouble"], ["store_busy"] * 3)

    def test_a_signal_waits_a_second_for_the_store_at_most(self) -> None:
        """SQLite hears no signal while it waits, so the main thread never stands in it for longer."""
        worker = self.worker()
        for database in (worker._look, worker._store._database):
            self.assertEqual(database.row("PRAGMA busy_timeout"), (1000,))

    def test_a_store_that_was_removed_or_replaced_is_named(self) -> None:
        """An idle worker does not watch a dead file, and a result is not told as stored where nobody finds it."""
        self.submit()
        idle, copy = self.worker(), self.folder / "copy.db"
        with sqlite3.connect(copy) as target:
            self.store.db.backup(target)
        target.close()

        def replaced(context: JobContext) -> Any:
            os.replace(copy, self.path)
            return REPORT

        for act in (lambda: self.once(replaced), lambda: idle.run(), lambda: self.store.get("alice", 1), self.submit):
            with self.assertRaises(StoreError) as caught:
                act()
            self.assertEqual(caught.exception.code, "store_unavailable")
            self.assertTrue(caught.exception.reason.startswith("replaced: "))
        with LivingStore(self.path) as store:
            self.assertEqual(store.receipt_count(1), 0)

    def test_what_lies_in_memory_is_no_store_of_a_worker(self) -> None:
        """Its connections would be three stores that know nothing of each other."""
        for path in (":memory:", b":memory:"):
            with self.assertRaises(WorkerError) as caught:
                Worker(path, {})  # type: ignore[arg-type]
            self.assertEqual(caught.exception.code, "bad_worker")


class Deliveries(WorkerTestCase):
    """A store that is busy or answers into the void."""

    def test_a_busy_store_is_asked_again_for_the_delivery(self) -> None:
        """A result is not thrown away because somebody else held the lock."""
        self.submit()
        worker = self.worker()
        error = StoreError("store_busy", "held")
        with self.busy(worker, "finish", [error] * 3):
            self.assertEqual(worker.run_once(), Outcome(1, 1, "succeeded"))
        self.assertEqual(self.notes[1:-1], [Note("store_trouble", 1, 1, "store_busy", error)] * 3)

    def test_a_store_that_is_busy_past_the_lease_costs_the_attempt_only(self) -> None:
        """The worker goes on with the next job; the lease recovers this one."""
        self.submit()
        worker = self.worker()
        asked: list[float] = []

        def finish(*arguments: Any, **options: Any) -> bool:
            self.clock.advance(5)
            asked.append(self.clock())
            raise StoreError("store_busy", "held")

        with mock.patch.object(worker._store, "finish", finish):
            self.assertEqual(worker.run_once(), Outcome(1, 1, "lost", "store_busy"))
        self.assertEqual(asked, [6, 11])  # at the end of the lease it is over
        self.assertEqual(self.once(), Outcome(1, 2, "succeeded"))

    def test_a_broken_store_ends_the_worker(self) -> None:
        """A full or missing disk is not tried again and again; the error comes out."""
        self.submit()
        worker = self.worker()
        broken = mock.Mock(side_effect=StoreError("store_unavailable", "full"))
        with mock.patch.object(worker._store, "finish", broken), self.assertRaises(StoreError):
            worker.run()

    def test_a_delivery_whose_answer_was_lost_counts_as_delivered(self) -> None:
        """The commit was made and the answer was not heard: the repeat finds its own success, and keeps its files."""
        self.submit()
        discarded: list[int] = []
        worker = self.worker(discard=lambda context: discarded.append(1))
        real, first = worker._store.finish, [StoreError("store_busy", "the commit broke off")]

        def finish(*arguments: Any, **options: Any) -> bool:
            stored = real(*arguments, **options)
            if first:
                raise first.pop()
            return stored

        with mock.patch.object(worker._store, "finish", finish):
            self.assertEqual(worker.run_once(), Outcome(1, 1, "succeeded"))
        self.assertEqual((self.store.receipt_count(1), discarded), (1, []))

    def test_an_answer_that_nothing_new_was_stored_is_followed_up(self) -> None:
        """A job that another attempt has by then, or that is gone, is lost; any other has the state that it has."""
        for number, state in enumerate(("lost", "lost", "failed")):
            job_id = self.submit(f"k{number}", now=self.clock())
            worker = self.worker()

            def finish(*arguments: Any, number: int = number, job_id: int = job_id, **options: Any) -> bool:
                if number == 0:
                    self.store.claim(job_id, now=self.clock() + 10)
                else:
                    self.store.fail(job_id, 1, "bad_rows", now=self.clock())
                    end = self.clock() + (1 if number == 1 else 0)
                    self.store.prune(now=end, results_before=end, keys_before=end)
                return False

            with self.subTest(number), mock.patch.object(worker._store, "finish", finish):
                self.assertEqual(worker.run_once(), Outcome(job_id, 1, state, "not_stored"))

    def test_a_busy_claim_is_an_idle_moment(self) -> None:
        """Nothing was claimed, nothing is lost."""
        self.submit()
        worker = self.worker()
        error = StoreError("store_busy", "held")
        with mock.patch.object(worker._store, "claim_next", mock.Mock(side_effect=error)):
            self.assertIsNone(worker.run_once())
        self.assertEqual(self.notes, [Note("store_trouble", 0, 0, "store_busy", error)])
        self.assertEqual(worker.run(drain=True), 1)


class Idle(WorkerTestCase):
    """Waiting for work costs nothing, and work does not wait long."""

    def test_an_idle_worker_writes_nothing_and_sees_a_submit_after_one_poll(self) -> None:
        """It sleeps `poll` seconds, asks whether the file has changed, and claims only then."""
        worker = self.worker(poll=0.25)
        claims = mock.Mock(side_effect=worker._store.claim_next)
        submitted_at: list[float] = []

        def sleep(seconds: float) -> None:
            self.clock.sleep(seconds)
            if len(self.clock.slept) == 8:
                submitted_at.append(self.clock())
                self.submit(now=self.clock())

        worker._sleep = sleep
        with mock.patch.object(worker._store, "claim_next", claims):
            worker.run(jobs=1)
        self.assertEqual(set(self.clock.slept), {0.25})
        self.assertEqual((len(self.clock.slept), claims.call_count), (8, 2))
        claimed_at = self.store.db.execute("SELECT at FROM events WHERE kind = 'running'").fetchone()[0]
        self.assertLessEqual(claimed_at - submitted_at[0], 0.25)

    def test_a_long_poll_is_slept_in_pieces(self) -> None:
        """Two halves of a second make up one; a signal does not end a sleep, so a stop is seen after the piece."""
        for poll, pieces, does in ((1, 1, "submit"), (3600, 3, "stop")):
            self.clock.slept.clear()
            worker = self.worker(poll=poll)

            def sleep(seconds: float, pieces: int = pieces, does: str = does, worker: Worker = worker) -> None:
                self.clock.sleep(seconds)
                if len(self.clock.slept) == pieces:
                    worker.stop() if does == "stop" else self.submit(now=self.clock())

            worker._sleep = sleep
            self.assertEqual(worker.run(jobs=1), int(does == "submit"))
            self.assertEqual(self.clock.slept, [0.5] * max(2, pieces))

    def test_an_idle_worker_knows_when_a_job_becomes_due(self) -> None:
        """A pause and a lease that end are seen without anybody writing."""
        for number, due in enumerate((4.0, 11.0)):
            job_id, attempt = self.running(f"k{number}", now=1)
            if number == 0:
                self.store.fail(job_id, attempt, "temporary", now=1, retry_after=3)
            worker = self.worker(poll=0.5)
            self.assertEqual(worker.run(jobs=1), 1)
            self.assertEqual(self.state(job_id), "succeeded")
            self.assertEqual(self.clock(), due)  # a poll ends at that very moment, and needs no second one

    def test_a_worker_drains_and_leaves(self) -> None:
        """`drain` waits for retries and for what others hold, and ends when nothing is live."""
        for number in range(5):
            self.submit(f"k{number}")
        self.assertEqual(self.worker().run(drain=True), 5)
        self.assertEqual(self.worker().run(drain=True), 0)

    def test_many_dead_jobs_do_not_put_a_worker_to_sleep(self) -> None:
        """`claim_next` buries a hundred at once and gives None; the worker asks again."""
        for number in range(150):
            self.submit(f"dead{number}", deadline=1.5, capacity=1000)
        self.submit("live", owner="bob", deadline=100, capacity=1000)
        self.clock.advance(1)
        self.assertEqual(self.worker().run(drain=True), 1)
        self.assertEqual(self.store.stats(now=3), {})


class Leaving(WorkerTestCase):
    """A worker that is asked to leave."""

    def test_a_worker_that_is_asked_to_leave_takes_nothing_new(self) -> None:
        """It finishes the job at hand and returns."""
        self.submit("a")
        self.submit("b")

        def run(context: JobContext) -> Any:
            worker.stop()
            worker.stop()
            context.checkpoint()
            return REPORT

        worker = self.worker(run)
        self.assertEqual(worker.run(), 1)
        self.assertEqual([self.state(1), self.state(2)], ["succeeded", "queued"])

    def test_a_job_that_does_not_finish_in_half_the_grace_is_put_back(self) -> None:
        """Its checkpoint raises, it is queued again at once, and another worker does it; no attempt is burnt by it."""
        self.submit(max_attempts=1)
        workers: list[Worker] = []
        passed: list[float] = []

        def run(context: JobContext) -> Any:
            workers[-1].stop()
            for seconds in (1.99, 0.01):
                self.clock.advance(seconds)
                context.checkpoint()
                passed.append(seconds)

        for attempt, state in ((1, "queued"), (2, "queued")):
            workers.append(self.worker(run, grace=4))
            self.assertEqual((workers[-1].run(), passed), (1, [1.99] * attempt))
            job = self.store.get("alice", 1)
            self.assertEqual((job["error"], job["attempt"], self.state(1)), ("worker_stopped", attempt, state))

    def test_a_job_that_does_not_look_is_put_back_after_three_quarters_of_the_grace(self) -> None:
        """By the heartbeat, which looks once in each quarter; somebody is told, and the late result is refused."""
        self.submit()
        overrun: list[str] = []

        def run(context: JobContext) -> Any:
            worker._heartbeat.look(self.store)
            worker.stop()
            for seconds in (2.999, 0.001):
                self.clock.advance(seconds)
                worker._heartbeat.look(self.store)
                states.append(self.state(1))
            return REPORT

        states: list[str] = []
        worker = self.worker(run, grace=4, overrun=lambda: overrun.append("told"))
        self.assertEqual(worker._heartbeat.look(self.store), 1.0)
        outcome = worker.run_once()
        assert outcome is not None
        self.assertEqual((outcome.state, outcome.code, overrun), ("lost", "not_running", ["told"]))
        self.assertEqual(states, ["running", "queued"])
        self.assertIn(Note("overrun", 1, 1), self.notes)

    def test_what_the_heartbeat_cannot_do_is_noted(self) -> None:
        """It belongs to no job: the next beat may do."""
        self.submit()
        busy = StoreError("store_busy", "held")

        def run(context: JobContext) -> Any:
            self.clock.advance(3)
            worker._heartbeat.look(leases)
            return REPORT

        leases = mock.Mock()
        leases.renew.side_effect = busy
        worker = self.worker(run, renew_every=3)
        worker.run_once()
        self.clock.advance(3)
        worker._heartbeat.look(leases)
        self.assertEqual(leases.renew.call_count, 1, "nothing is renewed after the handler")
        self.assertIn(Note("heartbeat_trouble", 0, 0, "store_busy", busy), self.notes)

    def test_the_heartbeat_has_a_thread_while_jobs_are_done(self) -> None:
        """Within `run`, and not where the renewals are never; it waits for a lock no longer than for its next beat."""
        for renew_every, has_thread in ((None, True), (NEVER, False)):
            seen: list[bool] = []

            def run(context: JobContext, seen: list[bool] = seen) -> Any:
                seen.append(self.has_heartbeat())
                return REPORT

            self.submit(str(renew_every))
            self.worker(run, renew_every=renew_every).run(drain=True)
            self.assertEqual((seen, self.has_heartbeat()), ([has_thread], False))
        for lease, milliseconds in ((6.0, 2000), (90.0, 10_000)):
            leases = self.worker(lease=lease, renew_every=None)._heartbeat._connect()
            assert isinstance(leases, LivingStore)
            with leases:
                self.assertEqual(leases.db.execute("PRAGMA busy_timeout").fetchone(), (milliseconds,))

    @staticmethod
    def has_heartbeat() -> bool:
        """Whether there is the thread, which keeps no process alive by itself."""
        return any(thread.name == "heartbeat" and thread.daemon for thread in threading.enumerate())

    def test_a_closed_worker_has_nothing_open(self) -> None:
        """Neither its two connections nor the thread; a second close does nothing."""
        with self.worker() as worker:
            worker._heartbeat.start()
            self.assertTrue(self.has_heartbeat())
        self.assertFalse(self.has_heartbeat())
        for database in (worker._look, worker._store._database):
            with self.assertRaises(StoreError):
                database.row("SELECT 1")
        worker.close()

    def test_a_worker_that_cannot_be_made_leaves_nothing_open(self) -> None:
        """If the second connection fails, the first one is closed."""
        made: list[LivingStore] = []

        def remember(*arguments: Any, **options: Any) -> LivingStore:
            made.append(LivingStore(*arguments, **options))
            return made[-1]

        broken = mock.patch.object(module, "FairDatabase", side_effect=StoreError("store_unavailable", "gone"))
        with mock.patch.object(module, "LivingStore", remember), broken, self.assertRaises(StoreError):
            Worker(self.path, {})
        with self.assertRaises(StoreError):
            made[0].get("alice", 1)


class Beats(WorkerTestCase):
    """The heartbeat, one look at a time."""

    def setUp(self) -> None:
        super().setUp()
        self.turned_away: list[tuple[str, str]] = []
        self.failed: list[Exception] = []
        self.overrun: list[int] = []
        self.release_at: float | None = None
        self.submit()
        self.attempt = self.claim(1, now=1, lease=9)
        self.held = Held(1, 1, owner="alice", started=1, lease=9, deadline=100, limit=None, renew_every=3)
        self.heart = self.heartbeat(self.open)

    def heartbeat(
        self,
        connect: Callable[[], Any],
        *,
        clock: Callable[[], float] | None = None,
        every: float = 3,
        pause: float = 9,
    ) -> Heartbeat:
        return Heartbeat(
            connect,
            clock=clock or self.clock,
            lease=9,
            every=every,
            pause=pause,
            release_at=lambda: self.release_at,
            refused=lambda held, verb, code: self.turned_away.append((verb, code)),
            failed=self.failed.append,
            overrun=lambda held: self.overrun.append(held.job_id),
        )

    def lease_until(self) -> float:
        return float(self.store.db.execute("SELECT lease_until FROM jobs WHERE id = 1").fetchone()[0])

    def test_one_small_write_for_each_third_of_a_lease(self) -> None:
        """Looked at every tenth of a second over three leases, it renews nine times and writes nothing else.

        Claims: C10-233.
        """
        self.heart.hold(self.held)
        writes = 0
        for _ in range(270):
            self.clock.advance(0.1)
            before = self.store.db.execute("PRAGMA data_version").fetchone()[0]
            with self.open() as leases:
                self.heart.look(leases)
            writes += self.store.db.execute("PRAGMA data_version").fetchone()[0] != before
        self.assertIn(writes, (8, 9))
        self.assertAlmostEqual(self.lease_until(), self.held.lease_until)
        self.assertGreater(self.lease_until(), self.clock() + 5)

    def test_it_says_when_to_look_again(self) -> None:
        """Before a beat is due it sleeps until then; with nothing held, as long as it may."""
        self.assertEqual(self.heart.look(self.store), 3)
        self.heart.hold(self.held)
        self.clock.advance(1)
        self.assertEqual(self.heart.look(self.store), 2)

    def test_after_letting_go_there_is_no_beat(self) -> None:
        """The moment the handler has returned nothing is renewed any more."""
        self.heart.hold(self.held)
        self.heart.let_go()
        self.clock.advance(5)
        self.heart.look(self.store)
        self.assertEqual(self.lease_until(), 10)

    def test_letting_go_waits_for_a_beat_under_way(self) -> None:
        """A beat that has begun ends before `let_go` returns, so that it cannot overtake the delivery."""
        inside, may_go_on, order = threading.Event(), threading.Event(), list[str]()
        self.heart.hold(self.held)
        self.clock.advance(5)

        class Leases:
            def renew(self, *_: object, **__: object) -> str:
                inside.set()
                may_go_on.wait(60)
                order.append("beat")
                return "running"

            def hand_back(self, *_: object, **__: object) -> str:
                return "queued"

            def close(self) -> None: ...

        beating = threading.Thread(target=self.heart.look, args=(Leases(),))
        beating.start()
        inside.wait(60)

        def leave() -> None:
            self.heart.let_go()
            order.append("let go")

        leaving = threading.Thread(target=leave)
        leaving.start()
        may_go_on.set()
        leaving.join(60)
        beating.join(60)
        self.assertEqual(order, ["beat", "let go"])

    def test_a_cancel_is_heard_and_the_lease_is_kept_for_the_clean_up(self) -> None:
        """The handler is told, and has its lease until it has stopped."""
        self.heart.hold(self.held)
        self.store.cancel("alice", 1)
        for _ in range(2):
            self.clock.advance(4)
            self.heart.look(self.store)
        self.assertEqual((self.held.over, self.lease_until()), ("cancelled", 18))

    def test_a_refused_beat_ends_the_attempt(self) -> None:
        """It is noted once, and not tried again."""
        self.heart.hold(self.held)
        self.clock.advance(9)
        self.store.claim(1, now=self.clock)
        self.heart.look(self.store)
        self.clock.advance(4)
        self.assertEqual(self.heart.look(self.store), 3)
        self.assertEqual((self.held.over, self.turned_away), ("lease_lost", [("renew", "stale_attempt")]))

    def test_a_failed_beat_is_tried_again_sooner(self) -> None:
        """A busy store costs a quarter of the interval, not the lease."""
        self.heart.hold(self.held)
        self.clock.advance(4)
        leases = mock.Mock()
        leases.renew.side_effect = StoreError("store_busy", "held")
        self.assertEqual(self.heart.look(leases), 0.75)
        self.clock.advance(0.75)
        self.heart.look(self.store)
        told = [error.reason for error in self.failed if isinstance(error, StoreError)]
        self.assertEqual((self.held.over, told, self.lease_until()), (None, ["held"], self.clock() + 9))

    def test_no_attempt_keeps_itself_alive_without_end(self) -> None:
        """Past its own limit it is not renewed; past the deadline the store ends the job. Claims: C10-233."""
        held = Held(1, 1, owner="alice", started=1, lease=9, deadline=100, limit=4, renew_every=3)
        self.heart.hold(held)
        self.clock.advance(5)
        self.heart.look(self.store)
        self.assertEqual(self.lease_until(), 10)
        for limit, lease_until in ((4, 10), (4.001, 14)):  # at the limit, and just before it
            self.clock.now = 5
            self.heart.hold(Held(1, 1, owner="a", started=1, lease=9, deadline=100, limit=limit, renew_every=3))
            self.heart.look(self.store)
            self.assertEqual(self.lease_until(), lease_until)
        self.clock.now = 4
        self.heart.hold(Held(1, 1, owner="a", started=1, lease=9, deadline=100, limit=3, renew_every=3))
        self.assertEqual(self.heart.look(self.store), 3, "it does not look without a pause then")
        self.heart.hold(self.held)
        for _ in range(40):
            self.clock.advance(2.9)
            self.heart.look(self.store)
        self.assertEqual((self.held.over, self.state(1)), ("ended", "failed"))

    def test_a_handler_that_outlasts_the_grace_loses_its_job(self) -> None:
        """The job goes back in line for another worker, and whoever wants to end the process is told."""
        self.heart.hold(self.held)
        self.release_at = 3.0
        self.clock.now = 2.9
        self.heart.look(self.store)
        self.assertEqual((self.state(1), self.overrun), ("running", []))
        self.clock.now = 3.0
        self.heart.look(self.store)
        self.assertEqual((self.state(1), self.overrun, self.held.over), ("queued", [1], "worker_stopped"))
        self.heart.look(self.store)
        self.assertEqual(self.overrun, [1], "it is put back once")
        self.assertEqual(self.store.claim(1, now=self.clock), 2, "it is due at once")

    def test_a_job_that_cannot_be_put_back_is_reported_and_so_is_its_handler(self) -> None:
        """The end of the lease does the same, later."""
        self.heart.hold(self.held)
        self.release_at = 1.0
        leases = mock.Mock()
        leases.hand_back.side_effect = busy = StoreError("store_busy", "held")
        self.heart.look(leases)
        self.assertEqual((self.failed, self.overrun, self.held.over), ([busy], [1], "worker_stopped"))
        self.assertEqual(self.state(1), "running")

    def test_the_first_reason_stays(self) -> None:
        """A job that was cancelled is not reported as one whose lease was lost a moment later."""
        self.held.end("cancelled")
        self.held.end("lease_lost")
        self.assertEqual(self.held.over, "cancelled")

    def test_the_belief_is_never_longer_than_the_lease(self) -> None:
        """What the worker counts with was read from the clock before the store read it."""
        self.heart.hold(self.held)
        self.clock.advance(4)
        ticking = mock.Mock(side_effect=[5.0, 5.5])  # the look, then the store
        with mock.patch.object(self.heart, "_clock", ticking):
            self.heart.look(self.store)
        self.assertLessEqual(self.held.lease_until, self.lease_until())

    def test_the_thread_opens_and_closes_a_connection_of_its_own(self) -> None:
        """It renews from its own thread and leaves nothing open; an error in it is told and survived."""
        beaten, trouble = threading.Event(), threading.Event()
        closed: list[bool] = []

        class Store(LivingStore):
            def close(self) -> None:
                super().close()
                closed.append(threading.current_thread() is not threading.main_thread())

        def connect() -> LivingStore:
            if not trouble.is_set():
                trouble.set()
                raise StoreError("store_busy", "held")
            return Store(self.path)

        def clock() -> float:
            if threading.current_thread() is not threading.main_thread():
                beaten.set()
            return 5.0

        heart = self.heartbeat(connect, clock=clock, every=0.01, pause=0.01)
        heart.start()
        heart.hold(self.held)
        self.assertTrue(beaten.wait(60))
        heart.stop()
        heart.stop()
        self.assertEqual(self.lease_until(), 14)
        self.assertEqual([error.args[0] for error in self.failed], ["store_busy"])
        self.assertEqual(closed, [True])
        beaten.clear()
        heart.start()
        self.assertTrue(beaten.wait(60), "it may be started again")
        heart.stop()
        self.assertEqual(closed, [True, True])

    @unittest.skipUnless(hasattr(signal, "pthread_sigmask"), "the system has no signal masks of threads")
    def test_the_signals_that_end_a_worker_are_left_to_the_main_thread(self) -> None:
        """The thread of the heartbeat takes neither: the main thread, which runs the handlers, is the one to wake."""
        blocked: set[int] = set()
        connected = threading.Event()

        def connect() -> LivingStore:
            blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            connected.set()
            return LivingStore(self.path)

        heart = self.heartbeat(connect, clock=lambda: 5.0, every=0.01, pause=0.01)
        heart.start()
        self.assertTrue(connected.wait(60))
        heart.stop()

        self.assertLessEqual({signal.SIGTERM, signal.SIGINT}, blocked)
        self.assertNotIn(signal.SIGTERM, signal.pthread_sigmask(signal.SIG_BLOCK, ()))


class AtTheDoor(WorkerTestCase):
    """A worker that cannot be."""

    def test_bad_settings_are_refused(self) -> None:
        """Numbers that are none, and handlers that are none."""
        nan = float("nan")
        for options in (
            {"lease": 0}, {"lease": True}, {"lease": nan}, {"lease": 86_400.5}, {"poll": -1}, {"grace": "10"},
            {"progress_every": -1}, {"progress_every": False}, {"progress_every": Decimal(0)}, {"renew_every": 0},
            {"renew_every": 0.0}, {"renew_every": -NEVER}, {"renew_every": nan}, {"renew_every": Decimal("inf")},
        ):  # fmt: skip
            with self.subTest(options=options), self.assertRaisesRegex(WorkerError, "^bad_worker$"):
                self.worker(**options)
        for jobs in (-1, True, "3", 1.0):
            with self.subTest(jobs=jobs), self.assertRaises(WorkerError):
                self.worker().run(jobs=jobs)  # type: ignore[arg-type]
        self.assertEqual(self.worker(lease=MIN_SECONDS, poll=86_400).run(jobs=0), 0)
        for handlers in ({"reports.export": print}, {5: Handler(print)}):
            with self.assertRaises(WorkerError):
                Worker(self.path, handlers)  # type: ignore[arg-type]
        for bad in (
            {"run": None}, {"temporary": (BaseException,)}, {"temporary": ("x",)}, {"temporary": [OSError]},
            {"temporary": OSError}, {"version": 1}, {"version": None}, {"limit": 0}, {"discard": 1},
        ):  # fmt: skip
            with self.subTest(bad=bad), self.assertRaisesRegex(WorkerError, "^bad_handler$"):
                Handler(**{"run": print, **bad})  # type: ignore[arg-type]

    def test_a_store_that_cannot_be_used_any_more_is_no_quiet_hour(self) -> None:
        """A busy file is waited for; a broken one comes out."""
        worker = self.worker()
        worker._store.close()
        with self.assertRaisesRegex(StoreError, "^store_unavailable$"):
            worker.run_once()

    def test_a_store_that_is_none_is_refused(self) -> None:
        """A stranger's file is not opened."""
        path = self.folder / "text.db"
        path.write_text("no database" * 100, encoding="utf-8", newline="\n")
        with self.assertRaises(StoreError):
            Worker(path, {})


class Limits(unittest.TestCase):
    """What a worker is by default, and how much it takes."""

    def test_the_published_limits_are_these(self) -> None:
        """Beats, refusals that are kept, seconds and bytes; and the number that marks the log."""
        self.assertEqual((3, 0.1, 86_400.0), (heartbeat.BEATS_PER_LEASE, module.LOOK_SECONDS, module._MOST_SECONDS))
        self.assertEqual((1000, b"CHWR"), (worker_log.MAX_RECENT, worker_log.APPLICATION_ID.to_bytes(4, "big")))
        self.assertEqual(16_777_216, child_process._LINE_BYTES)

    def test_what_may_be_left_out_is_this(self) -> None:
        """The defaults of a worker, its handlers, its pauses and its log."""
        by_default = defaults(Worker)
        self.assertEqual(
            {"lease": 10.0, "renew_every": None, "poll": 0.05, "progress_every": 0.5, "grace": 10.0, "backoff": None},
            {name: by_default[name] for name in ("lease", "renew_every", "poll", "progress_every", "grace", "backoff")},
        )
        for function, expected in (
            (Worker.run, {"jobs": None, "drain": False}),
            (Backoff, {"base_ms": 500, "cap_ms": 60_000, "age_s": None}),
            (Handler, {"version": "1", "temporary": (), "limit": None, "discard": None}),
            (WorkerLog.recent, {"limit": 100}),
        ):
            with self.subTest(function.__qualname__):
                self.assertEqual(expected, defaults(function))


class TheLog(WorkerTestCase):
    """What workers were refused, beside the store."""

    def test_counts_stay_and_the_newest_are_listed(self) -> None:
        """Each refusal is counted; one by one only the newest are kept."""
        with WorkerLog(self.folder / "x.workers") as log:
            with mock.patch("chapter10.companions.work.worker_log.MAX_RECENT", 3):
                for number in range(5):
                    log.refused("alice", "w", number, 1, "finish", "stale_attempt", at=float(number))
            self.assertEqual(log.counts()[0]["count"], 5)
            self.assertEqual([row["job_id"] for row in log.recent()], [4, 3, 2])
            self.assertEqual(len(log.recent(limit=1)), 1)
            self.assertEqual(len(log.recent(limit=MAX_RECENT * 2)), 3)
            self.assertEqual((log.recent(limit=0), log.recent(limit=-1)), ([], []))
        with self.assertRaises(StoreError):
            log.counts()

    def test_a_refusal_is_one_transaction(self) -> None:
        """Its count, its line, and the line that has to go."""
        said: list[str] = []
        with WorkerLog(self.folder / "x.workers") as log:
            log._database.connection.set_trace_callback(said.append)
            log.refused("alice", "w", 1, 1, "finish", "stale_attempt", at=1.0)
        self.assertEqual((said[0], said[5:]), ("BEGIN IMMEDIATE", ["COMMIT"]))

    def test_the_log_is_no_table_of_the_store(self) -> None:
        """The store keeps its own tables, and a refused call writes none of them. Claims: C10-145."""
        self.submit()
        self.once(lambda context: self.clock.advance(10))
        names = self.store.db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        self.assertEqual(sorted(name for (name,) in names), ["events", "jobs", "pauses", "receipts"])
        self.assertEqual(self.refusals(), [("finish", "lease_expired", 1)])


class OtherTypes(LivingTestCase):
    """What is no wait, no attempt and no kind of error."""

    def test_waits_and_attempts_are_whole_numbers(self) -> None:
        """From one millisecond up to a day; attempts count from 1."""
        for wrong in (0, -1, True, 1.5, "1", None, 24 * 60 * 60 * 1000 + 1, 10**400):
            for field in ("base_ms", "cap_ms"):
                with self.subTest(wrong=str(wrong)[:9], field=field), self.assertRaises(WorkerError):
                    Backoff(**{field: wrong})  # type: ignore[arg-type]
        for wrong in (0, True, float("nan"), "1"):
            with self.assertRaises(WorkerError):
                Backoff(age_s=wrong)  # type: ignore[arg-type]
        for wrong in (0, True, None, "1", 2**63):
            with self.assertRaises(WorkerError):
                Backoff().seconds(wrong, lambda: 0.5)  # type: ignore[arg-type]
        self.assertEqual(Backoff(1, 24 * 60 * 60 * 1000).seconds(1, lambda: 0.5), 0.001)
        self.assertGreater(Backoff().seconds(2**63 - 1, lambda: 0.5), 1)


class WhatAChildSays(LivingTestCase):
    """The lines of a child, read in a thread."""

    def test_what_is_no_message_is_the_end_of_what_it_says(self) -> None:
        """A list, a number, a text, no JSON: nothing is believed, and the thread ends without a complaint."""
        complaints: list[object] = []
        for line in ("[1]", "5", '"x"', "null", "{}", "no JSON", '{"progress": [1]}'):
            with self.subTest(line), mock.patch("threading.excepthook", complaints.append):
                said = child_process._Said(io.StringIO(f'{line}\n{{"result": 1}}\n'))
                said.join()
                self.assertIsNone(said.final)
        self.assertEqual(complaints, [])


class ATalkWithAChild(unittest.TestCase):
    """Both ends of the two pipes, without a process behind them."""

    def said(self, *lines: str) -> child_process._Said:
        said = child_process._Said(io.StringIO("".join(f"{line}\n" for line in lines)))
        said.join()
        return said

    def test_an_error_has_its_code_and_may_be_temporary(self) -> None:
        """Only a true `true` is; without a last word the child has failed, which is temporary."""
        for line, kind, code in (
            ('{"error": "bad_rows"}', ChildFailed, "bad_rows"),
            ('{"error": "bad_rows", "temporary": false}', ChildFailed, "bad_rows"),
            ('{"error": "bad_rows", "temporary": 1}', ChildFailed, "bad_rows"),
            ('{"error": "slow", "temporary": true}', TemporaryChildError, "slow"),
            ('{"error": 7}', ChildFailed, "7"),
            ('{"progress": [1, 2]}', TemporaryChildError, "child_failed"),
        ):
            with self.subTest(line), self.assertRaises(ChildFailed) as caught:
                self.said(line).outcome()
            self.assertEqual((type(caught.exception), caught.exception.code), (kind, code))

    def test_the_newest_progress_and_the_first_last_word_are_kept(self) -> None:
        """Whatever comes after the word is read and dropped."""
        said = self.said('{"progress": [1, 3]}', '{"progress": [2, 3]}', '{"result": 1}', '{"error": "x"}', "no JSON")
        self.assertEqual((said.progress, said.outcome()), ((2, 3), 1))
        self.assertTrue(said.wait(0))

    def test_a_progress_that_is_none_is_no_fault_of_the_job(self) -> None:
        """A fraction, a count that falls or exceeds: the child said something else, and another try may help."""
        for bad in ("[0.5, 1]", "[3, 10]", "[5, 9]", "[11, 10]", "[true, 10]", "[-1, 10]", '["5", "10"]', "[6]", "7"):
            with self.subTest(bad):
                said = self.said('{"progress": [5, 10]}', f'{{"progress": {bad}}}', '{"result": 1}')
                self.assertEqual(said.progress, (5, 10))
                with self.assertRaises(TemporaryChildError) as caught:
                    said.outcome()
                self.assertEqual(caught.exception.code, "child_failed")

    def test_a_child_that_could_not_be_stopped_is_not_begun(self) -> None:
        """A grace that is none, and a command that is no list of texts, are refused where they are written."""
        for grace in (-0.1, 3600.1, float("nan"), True, "2", None):
            with self.subTest(grace), self.assertRaises(StopError):
                ChildProcess(["true"], grace=grace)  # type: ignore[arg-type]
        for command in ("true", [], [1], [b"true"]):
            with self.subTest(command), self.assertRaises(StopError):
                ChildProcess(command)  # type: ignore[arg-type]
        for seconds in (0, 3600.0):
            ChildProcess(["true"], grace=seconds)

    def test_a_word_is_heard_before_the_pipe_ends(self) -> None:
        """And the end of the pipe is one too; the stream is closed then, and its thread keeps no process alive."""
        for word, complete in (('{"result": 1}\n', True), ('{"progress": [1, 2]}\n', False)):
            reading, writing = os.pipe()
            stream = os.fdopen(reading, encoding="utf-8")
            said = child_process._Said(stream)
            self.assertTrue(said._thread.daemon)
            os.write(writing, word.encode())
            if complete:
                self.assertTrue(said.wait(60))
            self.assertEqual((stream.closed, said._complete.is_set()), (False, complete))
            os.close(writing)
            self.assertTrue(said.wait(60))
            said._thread.join(60)
            self.assertTrue(stream.closed)

    def test_a_child_is_told_its_job_and_sees_the_end_when_nothing_more_is_wanted(self) -> None:
        """The line comes at once; the pipe ends with `close` and not before."""
        reading, writing = os.pipe()
        stream = os.fdopen(writing, "w", encoding="utf-8")
        told = child_process._Told(stream, "the job\n")
        with os.fdopen(reading, encoding="utf-8") as child:
            self.assertEqual(child.readline(), "the job\n")
            self.assertEqual((stream.closed, told._thread.daemon, told._thread.is_alive()), (False, True, True))
            told.close()
            self.assertEqual((child.read(), stream.closed, told._thread.is_alive()), ("", True, False))

    def test_a_child_that_is_gone_is_told_nothing(self) -> None:
        """A broken pipe is no complaint, neither at the line nor at the end; its output says the rest."""
        complaints: list[object] = []
        for broken in ("write", "flush", "close"):
            stream = mock.Mock()
            getattr(stream, broken).side_effect = BrokenPipeError
            with self.subTest(broken), mock.patch("threading.excepthook", complaints.append):
                told = child_process._Told(stream, "the job\n")
                told.close()
            self.assertEqual(stream.close.call_count, 1)
        self.assertEqual(complaints, [])


class InTheChild(unittest.TestCase):
    """`serve` and its context, in this process."""

    JOB: Final = '{"args":{"snapshot":5},"attempt":2,"job_id":7,"seconds":1.5}\n'

    def serve(self, run: Callable[[child_process.ChildContext], Any], **options: Any) -> tuple[int, str, list[int]]:
        """Return the exit code, what was said, and the codes with which the process would have been left."""
        reading, writing = os.pipe()
        left: list[int] = []
        self.out = io.BytesIO()
        target = io.TextIOWrapper(self.out, encoding="utf-8", newline="\n")
        with os.fdopen(reading, encoding="utf-8") as source:
            os.write(writing, self.JOB.encode())
            try:
                code = child_process.serve(run, source=source, target=target, leave=left.append, **options)
            finally:
                os.close(writing)
                for thread in threading.enumerate():
                    if thread.name == "worker watch":
                        self.assertTrue(thread.daemon)
                        thread.join(60)
        return code, self.out.getvalue().decode("utf-8"), left

    def test_a_result_is_said_and_a_pipe_that_ends_later_is_nothing(self) -> None:
        """The context knows the job, and what it says are lines of JSON."""
        seen: list[Any] = []

        def run(context: child_process.ChildContext) -> Any:
            seen.extend((context.job_id, context.attempt, context.args, context.snapshot, context.time_left()))
            seen.append(context.progress(1, 2))
            seen.append(self.out.getvalue())  # said at once, and not when the process ends
            return {"b": 1, "a": None}

        expected = '{"progress":[1,2]}\n{"result":{"a":null,"b":1}}\n'
        self.assertEqual(self.serve(run), (0, expected, []))
        self.assertEqual(seen, [7, 2, {"snapshot": 5}, 5, 1.5, True, b'{"progress":[1,2]}\n'])

    def test_an_error_is_said_with_its_code(self) -> None:
        """Or as `handler_failed`; its kind says whether another try helps."""
        for error, word in (
            (CodedError("bad_rows"), '{"error":"bad_rows","temporary":false}\n'),
            (Slow("slow"), '{"error":"slow","temporary":true}\n'),
            (RuntimeError("secret"), '{"error":"handler_failed","temporary":false}\n'),
        ):

            def run(context: child_process.ChildContext, error: Exception = error) -> Any:
                raise error

            self.assertEqual(self.serve(run, temporary=(Slow,)), (0, word, []))

    def test_a_stop_is_no_word(self) -> None:
        """After SIGTERM a checkpoint and a progress raise, and the process ends with 1 and says nothing more."""
        for act in (
            lambda context: context.checkpoint(),
            lambda context: context.progress(1, 2),
        ):

            def run(context: child_process.ChildContext, act: Callable[[Any], object] = act) -> Any:
                context.checkpoint()
                context.stop()
                return act(context)

            self.assertEqual(self.serve(run), (1, "", []))

    def test_a_child_whose_worker_is_gone_leaves(self) -> None:
        """The pipe ends while it works: the process is to end with 1."""
        reading, writing = os.pipe()
        gone = threading.Event()
        left: list[int] = []

        def leave(code: int) -> None:
            left.append(code)
            gone.set()

        def run(context: child_process.ChildContext) -> Any:
            os.close(writing)
            return gone.wait(60)

        os.write(writing, self.JOB.encode())
        with os.fdopen(reading, encoding="utf-8") as source:
            child_process.serve(run, source=source, target=io.StringIO(), leave=leave)
        self.assertEqual(left, [1])


@unittest.skipIf(sys.platform == "win32", "no process groups on this system")
class ARealChild(FolderTestCase):
    """A few lines of Python in a process of their own."""

    def run_child(self, *lines: str, **context: Any) -> Any:
        program = "\n".join(("import json, os, signal, sys", "job = json.loads(sys.stdin.readline())", *lines))
        command = [sys.executable, *ALONE, "-c", program, str(self.folder / "mark")]
        environment = {**child_environment(), "MARK": "given"}
        child = child_process.ChildProcess(command, grace=10, environment=environment)
        command.clear()
        environment.clear()
        job = mock.Mock(job_id=7, attempt=2, args={"a": 1}, time_left=lambda: 60, **context)
        try:
            return child(job)
        finally:
            names = [thread.name for thread in threading.enumerate()]
            self.assertEqual([name for name in names if name.startswith("child")], [])

    def test_a_child_knows_its_job_and_leaves_in_peace(self) -> None:
        """It has an environment of its own, and after its word it may go on until its input ends."""
        result = self.run_child(
            'print(json.dumps({"result": [job, os.environ["MARK"]]}), flush=True)',
            "sys.stdin.read()",
            'open(sys.argv[1], "w").close()',
        )
        self.assertEqual(result, [{"job_id": 7, "attempt": 2, "args": {"a": 1}, "seconds": 60.0}, "given"])
        self.assertTrue((self.folder / "mark").exists())

    def test_a_child_that_ends_without_a_word_leaves_nothing_behind(self) -> None:
        """Its progress is passed on all the same, and no thread of the talk is left."""
        progress = mock.Mock()
        with self.assertRaises(TemporaryChildError):
            self.run_child('print(json.dumps({"progress": [1, 2]}), flush=True)', progress=progress)
        self.assertEqual(progress.call_args_list[-1], mock.call(1, 2))

    def test_a_word_that_is_on_its_way_when_the_child_ends_is_waited_for(self) -> None:
        """It has said its result and is gone before anybody has read it."""
        may_hear = threading.Event()
        hear, wait = child_process._Said._hear, child_process._Said.wait

        def hear_later(said: child_process._Said, line: str) -> None:
            may_hear.wait(60)
            hear(said, line)

        def wait_for_the_rest(said: child_process._Said, seconds: float) -> bool:
            if seconds == child_process._PIPE_SECONDS:
                may_hear.set()
            return wait(said, seconds)

        with (
            mock.patch.object(child_process._Said, "_hear", hear_later),
            mock.patch.object(child_process._Said, "wait", wait_for_the_rest),
        ):
            self.addCleanup(may_hear.set)
            self.assertEqual(self.run_child('print(json.dumps({"result": 1}), flush=True)'), 1)

    def test_nobody_speaks_in_the_name_of_a_child_that_has_ended(self) -> None:
        """What it left in its group has the pipe too, and is ended before the rest of the pipe is read."""
        wait = child_process._Said.wait

        def wait_for_the_rest(said: child_process._Said, seconds: float) -> bool:
            if seconds == child_process._PIPE_SECONDS:
                (self.folder / "mark").touch()
            return wait(said, seconds)

        with (
            mock.patch.object(child_process._Said, "wait", wait_for_the_rest),
            self.assertRaises(TemporaryChildError),
        ):
            self.run_child(
                "import time",
                "if os.fork() == 0:",
                "    while not os.path.exists(sys.argv[1]):",
                "        time.sleep(0.01)",
                '    print(json.dumps({"result": "ghost"}), flush=True)',
            )
        self.assertTrue((self.folder / "mark").exists())

    def test_a_child_is_stopped_when_its_attempt_is_over(self) -> None:
        """It is asked by a signal first, and what stops the attempt comes out."""
        looks: list[int] = []

        def checkpoint() -> None:
            looks.append(1)
            if (self.folder / "mark").exists():
                raise AttemptOver("cancelled")

        with self.assertRaises(AttemptOver):
            self.run_child(
                'signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1] + "2", "w").close(), sys.exit()))',
                'open(sys.argv[1], "w").close()',
                "signal.pause()",
                checkpoint=checkpoint,
            )
        self.assertTrue((self.folder / "mark2").exists())
