"""The worker's side of the job store: claims, leases, fences, endings, lost answers; one behaviour each.

Every test runs on the chapter's store and on the living one.
"""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable
from typing import Any

from chapter10 import jobs
from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import FINAL_STATES
from chapter10.limits import MAX_TIME, MIN_SECONDS
from chapter10.tests.job_support import AUGUST, REPORT, JobTestCase
from chapter10.tests.support import also_on


@also_on(LivingStore)
class Working(JobTestCase):
    def test_claim_progress_and_finish_as_in_the_book(self) -> None:
        """Claim at 1, three steps at 2, 3 and 4, finish at 5, within the lease that a claim has by default.

        Claims: C10-160, C10-174, C10-175, C10-176, C10-177.
        """
        self.submit()
        attempt = self.store.claim(1, now=1)
        self.assertEqual(1, attempt)
        self.assertGreater(self.store.db.execute("SELECT lease_until FROM jobs").fetchone()[0], 5)
        for index in (1, 2, 3):
            self.assertTrue(self.store.progress(1, 1, index, 3, now=index + 1))
        self.assertTrue(self.store.finish(1, 1, REPORT, now=5))
        rows = self.store.db.execute("SELECT kind, detail, at FROM events ORDER BY seq").fetchall()
        expected = [
            ("queued", "{}", 0),
            ("running", "{}", 1),
            *[("progress", f'{{"done":{index},"total":3}}', index + 1) for index in (1, 2, 3)],
            ("succeeded", "{}", 5),
        ]
        self.assertEqual(expected, rows)

    def test_all_rows_done_is_not_success(self) -> None:
        """At 3 of 3 the job still runs; only the delivery ends it.

        Claims: C10-137, C10-179, C10-297.
        """
        job_id, attempt = self.running()
        self.store.progress(job_id, attempt, 3, 3, now=4)
        status = self.store.get("alice", job_id)
        self.assertEqual(("running", 3, 3), (status["state"], status["done"], status["total"]))
        self.refused("not_ready", self.store.result, "alice", job_id)

    def test_progress_does_not_fall_within_an_attempt(self) -> None:
        """A smaller count or total is refused and the stored one stays; an equal one writes nothing.

        Claims: C10-180.
        """
        job_id, attempt = self.running()
        self.store.progress(job_id, attempt, 2, 3, now=2)
        for done, total in ((1, 3), (0, 3), (2, 2), (0, 0), (4, 3)):
            with self.subTest(done=done, total=total):
                self.refused("invalid_progress", self.store.progress, job_id, attempt, done, total, now=3)
        before = self.contents()
        self.assertTrue(self.store.progress(job_id, attempt, 2, 3, now=4))
        self.assertEqual(before, self.contents())
        self.assertTrue(self.store.progress(job_id, attempt, 2, 9, now=4))
        status = self.store.get("alice", job_id)
        self.assertEqual((2, 9), (status["done"], status["total"]))

    def test_a_new_attempt_counts_from_the_start(self) -> None:
        """The second attempt is at 0 of 0, may report 1 of 3, and its events carry its number.

        Claims: C10-181, C10-207, C10-292.
        """
        job_id, attempt = self.running()
        self.store.progress(job_id, attempt, 2, 3, now=2)
        second = self.claim(job_id, now=11)
        status = self.store.get("alice", job_id)
        self.assertEqual((2, 0, 0), (status["attempt"], status["done"], status["total"]))
        self.store.progress(job_id, second, 1, 3, now=12)
        self.assertEqual(
            {"seq": 5, "kind": "progress", "attempt": 2, "detail": {"done": 1, "total": 3}},
            self.store.events("alice", job_id)[-1],
        )

    def test_each_claim_is_a_new_attempt(self) -> None:
        """Attempts count the claims, one by one, and a claim in vain counts nothing.

        Claims: C10-218, C10-227.
        """
        self.submit(max_attempts=4)
        attempts = [self.store.claim(1, now=now) for now in (0, 5, 10, 15, 20)]
        self.assertEqual([1, None, 2, None, 3], attempts)

    def test_a_job_is_claimed_once(self) -> None:
        """Of two stores that want one job, one gets it.

        Claims: C10-154.
        """
        self.submit()
        self.assertEqual([1, None], [self.store.claim(1, now=1), self.open().claim(1, now=1)])

    def test_a_lease_ends_at_its_moment(self) -> None:
        """Within the lease nobody else gets the job; at its end the next claim does.

        Claims: C10-226.
        """
        self.submit()
        self.claim(1, now=1, lease=2)
        self.assertEqual([None, None, 2], [self.store.claim(1, now=now) for now in (2, 2.999, 3)])

    def test_a_lease_never_reaches_past_the_deadline(self) -> None:
        """A claim just before the deadline has the time that is left."""
        self.running(deadline=5, lease=60)
        self.assertEqual((5,), self.store.db.execute("SELECT lease_until FROM jobs").fetchone())

    def test_the_shortest_lease_at_the_farthest_moment_is_a_lease(self) -> None:
        """Even there the end is later than the start, so that a claim is worth something."""
        now = MAX_TIME - MIN_SECONDS
        self.submit(now=now)
        self.assertEqual(1, self.store.claim(1, now=now, lease=MIN_SECONDS))
        self.assertEqual(None, self.store.claim(1, now=now, lease=MIN_SECONDS))
        self.assertTrue(self.store.finish(1, 1, REPORT, now=now))

    def test_a_clock_is_read_once_and_with_the_lock_held(self) -> None:
        """Waiting for another process eats nothing of a lease, because the clock is read after it."""
        self.submit()
        read: list[bool] = []

        def clock() -> float:
            read.append(self.store.db.in_transaction)
            return 5

        self.store.claim(1, now=clock, lease=2)
        self.assertEqual([True], read)
        self.assertEqual((7,), self.store.db.execute("SELECT lease_until FROM jobs").fetchone())
        verbs: list[Callable[[], object]] = [
            lambda: self.store.progress(1, 1, 1, 2, now=clock),
            lambda: self.store.fail(1, 1, "temporary", now=clock, retry_after=0),
            lambda: self.store.claim(1, now=clock),
            lambda: self.store.finish(1, 2, REPORT, now=clock),
            lambda: self.store.submit("alice", "new", AUGUST, now=clock),
            lambda: self.store.cancel("alice", 2, now=clock),
        ]
        if isinstance(self.store, LivingStore):
            verbs[1:1] = [lambda: self.store.renew(1, 1, now=clock)]
            verbs += [
                lambda: self.store.claim_next(now=clock),
                lambda: self.store.sweep(now=clock),
                lambda: self.store.prune(now=clock, results_before=0, keys_before=0),
            ]
        for verb in verbs:
            read.clear()
            verb()
            self.assertEqual([True], read)

    def test_the_intent_is_what_was_submitted(self) -> None:
        """A worker reads tool, version and arguments of the job that it has."""
        self.assertEqual({"tool": "reports.export", "version": "1", "args": AUGUST}, self.store.intent(self.submit()))
        self.refused("not_found", self.store.intent, 9)


@also_on(LivingStore)
class Fencing(JobTestCase):
    def test_the_late_worker_is_refused_and_the_new_one_delivers(self) -> None:
        """A claims at 1 for 2, B claims at 3; at 4 A is stale and B delivers the one receipt.

        Claims: C10-228, C10-229, C10-230, C10-297.
        """
        self.submit()
        self.assertEqual(1, self.store.claim(1, now=1, lease=2))
        self.assertEqual(2, self.store.claim(1, now=3, lease=2))
        self.refused("stale_attempt", self.store.finish, 1, 1, {"from": "A"}, now=4)
        self.assertTrue(self.store.finish(1, 2, REPORT, now=4))
        self.assertEqual([(1, 2)], self.store.db.execute("SELECT job_id, attempt FROM receipts").fetchall())
        self.assertEqual(REPORT, self.store.result("alice", 1)["data"])

    def test_every_verb_of_a_stale_attempt_is_refused(self) -> None:
        """Whatever the old attempt tries changes not one byte, while B runs, after B has delivered, after B has
        failed for good.

        Claims: C10-232.
        """
        for number, ending in enumerate(("running", "succeeded", "failed")):
            self.submit(f"k{number}")
            job_id = number + 1
            self.claim(job_id, now=0)
            self.claim(job_id, now=11)
            if ending == "succeeded":
                self.store.finish(job_id, 2, REPORT, now=12)
            elif ending == "failed":
                self.store.fail(job_id, 2, "bad_input", now=12)
            for attempt in (1, 0, -1, 3, 2**64):
                with self.subTest(ending, attempt=attempt):
                    for call in self.deliveries(job_id, attempt, 12):
                        self.refused("stale_attempt", call)

    def test_after_the_lease_the_current_attempt_is_refused_as_well(self) -> None:
        """Nobody has claimed anew, but the time is over: `lease_expired`, at the very moment too.

        Claims: C10-231, C10-232.
        """
        self.submit()
        self.claim(1, now=1, lease=2)
        for now in (3, 3.5, 99):
            for call in self.deliveries(1, 1, now):
                self.refused("lease_expired", call)
        self.assertTrue(self.store.finish(1, 1, REPORT, now=2.999))

    def test_at_the_end_of_a_lease_the_claim_always_wins(self) -> None:
        """In both orders at the same moment: the claim gets the job and the delivery is refused.

        Claims: C10-226, C10-231.
        """
        for key, order in (("first", ("finish", "claim")), ("second", ("claim", "finish"))):
            job_id, attempt = self.running(key, lease=2)
            for call in order:
                if call == "claim":
                    self.assertEqual(2, self.store.claim(job_id, now=3))
                else:
                    code = "lease_expired" if order[0] == "finish" else "stale_attempt"
                    self.refused(code, self.store.finish, job_id, attempt, REPORT, now=3)

    def test_a_job_that_nobody_holds_takes_no_delivery(self) -> None:
        """Before the first claim, and back in line for a retry, all its verbs are `not_running`. Claims: C10-161."""
        self.submit()
        for call in self.deliveries(1, 0, 3):
            self.refused("not_running", call)
        self.claim(1)
        self.store.fail(1, 1, "temporary", now=2, retry_after=5)
        for call in self.deliveries(1, 1, 3):
            self.refused("not_running", call)

    def test_a_job_that_is_not_there_is_not_found(self) -> None:
        """Each verb of a worker says so by name."""
        for job_id in (1, 0, -1, 2**63):
            with self.subTest(job_id=job_id):
                self.refused("not_found", self.store.claim, job_id, now=1)
                self.refused("not_found", self.store.intent, job_id)
                for call in self.deliveries(job_id, 1, 1):
                    self.refused("not_found", call)
        self.assertEqual(0, self.store.receipt_count(1))

    def test_a_delivery_needs_job_and_attempt(self) -> None:
        """Neither has a default: a delivery without a number cannot be written.

        Claims: C10-228.
        """
        make = self.make
        for verb in (make.finish, make.progress, make.fail, *([make.renew] if make is LivingStore else [])):
            parameters = inspect.signature(verb).parameters
            self.assertEqual(["self", "job_id", "attempt"], list(parameters)[:3])
            self.assertIs(inspect.Parameter.empty, parameters["attempt"].default)


@also_on(LivingStore)
class Finishing(JobTestCase):
    def test_a_second_delivery_stores_nothing(self) -> None:
        """False says that this call stored nothing, whatever it brought and whenever it came.

        Claims: C10-238, C10-297.
        """
        job_id = self.succeeded()
        before = self.contents()
        for result, now in ((REPORT, 5), (REPORT, 99), ({"other": 1}, 6)):
            self.assertIs(False, self.store.finish(job_id, 1, result, now=now))
        self.assertEqual(before, self.contents())
        self.assertEqual(1, self.store.receipt_count(job_id))

    def test_finish_decides_in_the_order_of_the_chapter(self) -> None:
        """Attempt, end, cancel, deadline, lease: each pair that meets is decided by the earlier one.

        Claims: C10-188, C10-234, C10-235.
        """
        cases: list[tuple[str, float, float, bool, str]] = [
            # key, lease, deadline, cancel asked for, state after a delivery at 5
            ("cancel before deadline", 10, 5, True, "cancelled"),
            ("cancel before lease", 2, 100, True, "cancelled"),
            ("deadline before lease", 10, 5, False, "failed"),
        ]
        for key, lease, deadline, asked, state in cases:
            with self.subTest(key):
                job_id, attempt = self.running(key, lease=lease, deadline=deadline)
                if asked:
                    self.store.cancel("alice", job_id)
                self.assertIs(False, self.store.finish(job_id, attempt, REPORT, now=5))
                self.assertEqual((state, 0), (self.state(job_id), self.store.receipt_count(job_id)))
        stale, attempt = self.running("attempt before cancel", lease=2)
        self.claim(stale, now=3)
        self.store.cancel("alice", stale)
        self.refused("stale_attempt", self.store.finish, stale, attempt, REPORT, now=4)

    def test_receipt_state_and_event_are_one_transaction(self) -> None:
        """The statements between BEGIN IMMEDIATE and COMMIT: look, receipt, state, event, in this order.

        Claims: C10-153, C10-234, C10-235, C10-237.
        """
        job_id, attempt = self.running()
        said: list[str] = []
        self.store.db.set_trace_callback(said.append)
        self.store.finish(job_id, attempt, REPORT, now=5)
        words = [" ".join(statement.split()[:3]) for statement in said]
        wanted = ["BEGIN IMMEDIATE", "SELECT id, owner,", "INSERT INTO receipts", "UPDATE jobs SET",
                  "INSERT INTO events", "COMMIT"]  # fmt: skip
        if isinstance(self.store, LivingStore):
            wanted.insert(3, "UPDATE receipts SET")  # when it ended
        self.assertEqual(wanted, words)

    def test_the_deadline_is_looked_at_when_the_result_comes(self) -> None:
        """Accepted at 0 until 3, started at 1, delivered at 3: nothing is stored, `deadline_exceeded`.

        Claims: C10-187, C10-188, C10-189.
        """
        job_id, attempt = self.running(deadline=3)
        self.assertIs(False, self.store.finish(job_id, attempt, REPORT, now=3))
        status = self.store.get("alice", job_id)
        self.assertEqual(("failed", "deadline_exceeded"), (status["state"], status["error"]))
        self.assertEqual(0, self.store.receipt_count(job_id))

    def test_a_delivery_just_before_the_deadline_counts(self) -> None:
        """At 2.999 of 3 the result is stored.

        Claims: C10-187.
        """
        job_id, attempt = self.running(deadline=3)
        self.assertTrue(self.store.finish(job_id, attempt, REPORT, now=2.999))

    def test_a_final_state_never_changes(self) -> None:
        """From each final state no verb changes anything, with this attempt, an old one or a future one.

        Claims: C10-158, C10-212.
        """
        for state in FINAL_STATES:
            job_id, attempt = self.in_state(state, key=state)
            before = self.contents()
            with self.subTest(state):
                self.assertIsNone(self.store.claim(job_id, now=6))
                self.assertIsNone(self.store.claim(job_id, now=999))
                self.assertIs(False, self.store.progress(job_id, attempt, 9, 9, now=6))
                self.assertIs(False, self.store.finish(job_id, attempt, REPORT, now=6))
                self.assertEqual(state, self.store.fail(job_id, attempt, "x", now=6, retry_after=1))
                self.assertEqual(state, self.store.cancel("alice", job_id, now=6))
                if isinstance(self.store, LivingStore):
                    self.assertEqual(state, self.store.renew(job_id, attempt, now=6))
                    self.assertIsNone(self.store.claim_next(now=999))
                    self.assertEqual(0, sum(self.store.sweep(now=999).values()))
                self.assertEqual(before, self.contents())


@also_on(LivingStore)
class Failing(JobTestCase):
    def test_without_a_time_to_try_again_a_failure_is_final(self) -> None:
        """The same code is final or not by `retry_after` alone; no text is read.

        Claims: C10-162, C10-195, C10-199, C10-200.
        """
        for code, retry_after, state in (
            ("temporary", 1, "queued"), ("temporary", None, "failed"), ("bad_input", None, "failed"),
            ("bad_input", 1, "queued"), ("please retry!", None, "failed"),
        ):  # fmt: skip
            with self.subTest(code, retry_after=retry_after):
                job_id, attempt = self.running(f"{code} {retry_after}")
                self.assertEqual(state, self.store.fail(job_id, attempt, code, now=2, retry_after=retry_after))
                status = self.store.get("alice", job_id)
                self.assertEqual((state, code), (status["state"], status["error"]))

    def test_a_retry_waits_in_line_until_its_time(self) -> None:
        """Two attempts: claim at 1, fail at 2 to wait 3; not to be had at 4, had at 5, then failed for good.

        Claims: C10-161, C10-201, C10-202, C10-219.
        """
        self.submit(max_attempts=2)
        self.assertEqual(1, self.store.claim(1, now=1))
        self.assertEqual("queued", self.store.fail(1, 1, "temporary", now=2, retry_after=3))
        self.assertEqual([None, 2], [self.store.claim(1, now=4), self.store.claim(1, now=5)])
        self.assertEqual("failed", self.store.fail(1, 2, "temporary", now=6, retry_after=3))
        self.assertIsNone(self.store.claim(1, now=50))
        status = self.store.get("alice", 1)
        self.assertEqual(("failed", 2, "temporary"), (status["state"], status["attempt"], status["error"]))
        self.assertEqual(["queued", "running", "queued", "running", "failed"], self.kinds(1))
        self.assertEqual({"error": "temporary"}, self.store.events("alice", 1)[2]["detail"])

    def test_a_job_back_in_line_starts_anew(self) -> None:
        """While it waits it has the code and no progress; once claimed it has neither.

        Claims: C10-161, C10-181.
        """
        job_id, attempt = self.running()
        self.store.progress(job_id, attempt, 2, 3, now=2)
        self.store.fail(job_id, attempt, "temporary", now=2, retry_after=3)
        expected = {"id": job_id, "state": "queued", "attempt": 1, "done": 0, "total": 0, "error": "temporary"}
        self.assertEqual(expected, self.store.get("alice", job_id))
        self.claim(job_id, now=5)
        expected.update(state="running", attempt=2, error=None)
        self.assertEqual(expected, self.store.get("alice", job_id))

    def test_a_retry_at_or_after_the_deadline_fails_at_once(self) -> None:
        """Deadline 5, failed at 2 to wait 3: failed at 2, with the code it had; with deadline 6 it waits.

        Claims: C10-205.
        """
        for deadline, state in ((5, "failed"), (4, "failed"), (6, "queued")):
            job_id, attempt = self.running(f"deadline {deadline}", deadline=deadline)
            self.assertEqual(state, self.store.fail(job_id, attempt, "temporary", now=2, retry_after=3))
            self.assertEqual("temporary", self.store.get("alice", job_id)["error"])

    def test_a_crash_uses_up_an_attempt(self) -> None:
        """Three claims that were abandoned are three attempts: the fourth ends the job.

        Claims: C10-202, C10-297.
        """
        self.submit(max_attempts=3)
        self.assertEqual([1, 2, 3, None], [self.store.claim(1, now=now) for now in (0, 11, 22, 33)])
        status = self.store.get("alice", 1)
        self.assertEqual(("failed", 3, "attempts_exhausted"), (status["state"], status["attempt"], status["error"]))

    def test_crashes_and_failures_count_alike(self) -> None:
        """Crash, failure, crash: three attempts, whatever ended each."""
        self.submit(max_attempts=3)
        self.claim(1, now=0)
        self.claim(1, now=11)
        self.store.fail(1, 2, "temporary", now=12, retry_after=1)
        self.claim(1, now=13)
        self.assertIsNone(self.store.claim(1, now=24))
        self.assertEqual("attempts_exhausted", self.store.get("alice", 1)["error"])

    def test_a_passed_deadline_decides_before_the_failure(self) -> None:
        """A failure reported at the deadline is the deadline's."""
        job_id, attempt = self.running(deadline=3)
        self.assertEqual("failed", self.store.fail(job_id, attempt, "temporary", now=3, retry_after=1))
        self.assertEqual("deadline_exceeded", self.store.get("alice", job_id)["error"])

    def test_codes_tell_the_clocks_apart(self) -> None:
        """No code is a bare timeout: deadline, lease and attempts have names of their own.

        Claims: C10-185.
        """
        source = inspect.getsource(jobs)
        self.assertNotIn('"timeout"', source)
        for code in ("deadline_exceeded", "lease_expired", "attempts_exhausted"):
            self.assertIn(f'"{code}"', source)


@also_on(LivingStore)
class Cancelling(JobTestCase):
    def test_a_queued_job_is_cancelled_at_once(self) -> None:
        """Nobody works on it, so nobody needs to confirm; also while it waits for a retry.

        Claims: C10-208.
        """
        self.assertEqual("cancelled", self.store.cancel("alice", self.submit()))
        self.assertIsNone(self.store.claim(1, now=1))
        job_id, attempt = self.running("second")
        self.store.fail(job_id, attempt, "temporary", now=2, retry_after=1)
        self.assertEqual("cancelled", self.store.cancel("alice", job_id))
        self.assertIsNone(self.store.get("alice", job_id)["error"])

    def test_a_running_job_is_only_asked_to_stop(self) -> None:
        """The request is not the stop: the state says so until the worker comes by.

        Claims: C10-163, C10-164, C10-209, C10-214, C10-297.
        """
        job_id, attempt = self.running()
        self.assertEqual("cancel_requested", self.store.cancel("alice", job_id))
        self.assertEqual("cancel_requested", self.state(job_id))
        self.assertIs(False, self.store.progress(job_id, attempt, 1, 2, now=2))
        self.assertEqual("cancelled", self.state(job_id))

    def test_a_cancel_before_the_commit_wins(self) -> None:
        """The delivery sees the request, stores no receipt, and the job is cancelled.

        Claims: C10-163, C10-211, C10-213.
        """
        job_id, attempt = self.running()
        self.store.cancel("alice", job_id)
        self.assertIs(False, self.store.finish(job_id, attempt, REPORT, now=3))
        self.assertEqual(("cancelled", 0), (self.state(job_id), self.store.receipt_count(job_id)))

    def test_a_commit_before_the_cancel_wins(self) -> None:
        """What is done is done: the answer is the success, not a confirmation, and there is no event of it.

        Claims: C10-210, C10-212, C10-213, C10-215.
        """
        job_id = self.succeeded()
        before = self.contents()
        self.assertEqual("succeeded", self.store.cancel("alice", job_id))
        self.assertEqual(before, self.contents())

    def test_a_cancelled_job_is_never_run_again(self) -> None:
        """Whatever the worker does after the request, the end is `cancelled`, and a second cancel says so.

        Claims: C10-209, C10-210.
        """
        endings: dict[str, Callable[[int], object]] = {
            "fails for a retry": lambda job_id: self.store.fail(job_id, 1, "temporary", now=3, retry_after=5),
            "fails": lambda job_id: self.store.fail(job_id, 1, "bad_input", now=3),
            "delivers": lambda job_id: self.store.finish(job_id, 1, REPORT, now=3),
            "reports": lambda job_id: self.store.progress(job_id, 1, 1, 2, now=3),
            "vanishes": lambda job_id: self.assertIsNone(self.store.claim(job_id, now=11)),
            "is silent past the deadline": lambda job_id: self.assertIsNone(self.store.claim(job_id, now=200)),
        }
        if isinstance(self.store, LivingStore):
            endings |= {
                "is swept": lambda job_id: self.assertEqual(1, self.store.sweep(now=11)["cancelled"]),
                "is passed by": lambda job_id: self.assertIsNone(self.store.claim_next(now=11)),
                "renews too late": lambda job_id: self.assertEqual("cancelled", self.store.renew(job_id, 1, now=100)),
            }
        for name, end in endings.items():
            with self.subTest(name):
                job_id, _ = self.running(name, lease=200 if name == "renews too late" else 10)
                self.store.cancel("alice", job_id)
                end(job_id)
                self.assertEqual("cancelled", self.state(job_id))
                before = self.contents()
                self.assertEqual("cancelled", self.store.cancel("alice", job_id))
                self.assertEqual(before, self.contents())
                self.assertEqual(0, self.store.receipt_count(job_id))
                self.assertIsNone(self.store.claim(job_id, now=12))

    def test_the_moment_of_a_cancel_dates_its_event(self) -> None:
        """With `now` the end has that date, without it none; the living store counts it as ended at its deadline."""
        self.submit("dated")
        self.submit("undated")
        self.store.cancel("alice", 1, now=7)
        self.store.cancel("alice", 2)
        dates = self.store.db.execute("SELECT at FROM events WHERE kind = 'cancelled' ORDER BY seq").fetchall()
        self.assertEqual([(7,), (None,)], dates)
        if isinstance(self.store, LivingStore):
            self.assertEqual([(7,), (100,)], self.store.db.execute("SELECT ended_at FROM jobs ORDER BY id").fetchall())


@also_on(LivingStore)
class Deadlines(JobTestCase):
    def test_a_job_past_its_deadline_is_not_handed_out(self) -> None:
        """The claim ends it instead, with its reason; until then its status is what was last stored.

        Claims: C10-187, C10-291.
        """
        self.submit(deadline=20)
        self.assertEqual("queued", self.state(1))
        self.assertIsNone(self.store.claim(1, now=20))
        status = self.store.get("alice", 1)
        self.assertEqual(("failed", "deadline_exceeded", 0), (status["state"], status["error"], status["attempt"]))
        self.assertEqual(["queued", "failed"], self.kinds(1))

    def test_a_claim_in_the_last_moment_is_cut_to_the_deadline(self) -> None:
        """Claimed at 15 for 60 with deadline 20: a delivery counts at 19.9, and not at 20 or 25."""
        for key, now, stored in (("a", 19.9, True), ("b", 20, False), ("c", 25, False)):
            job_id = self.submit(key, deadline=20)
            attempt = self.claim(job_id, now=15, lease=60)
            self.assertIs(stored, self.store.finish(job_id, attempt, REPORT, now=now))
            self.assertEqual("succeeded" if stored else "failed", self.state(job_id))

    def test_progress_past_the_deadline_ends_the_job(self) -> None:
        """False tells the worker to stop; the job has failed by then."""
        job_id, attempt = self.running(deadline=3)
        self.assertIs(False, self.store.progress(job_id, attempt, 1, 2, now=3))
        self.assertEqual("deadline_exceeded", self.store.get("alice", job_id)["error"])


@also_on(LivingStore)
class LostAnswers(JobTestCase):
    """The call was committed and its answer was lost: repeating it is safe."""

    def test_repeating_a_call_changes_nothing_more(self) -> None:
        """Each verb is called twice with the same inputs; the second answers and stores nothing new.

        Claims: C10-144, C10-238.
        """
        store = self.store
        self.twice(lambda: store.submit("alice", "k", AUGUST, now=0), 1)
        self.claim(1)
        self.twice(lambda: store.progress(1, 1, 1, 2, now=2), True)
        if isinstance(store, LivingStore):
            self.twice(lambda: store.renew(1, 1, now=2, lease=20), "running")
        self.twice(lambda: store.fail(1, 1, "temporary", now=3, retry_after=1), "queued")
        self.claim(1, now=4)
        self.twice(lambda: store.cancel("alice", 1), "cancel_requested")
        self.assertIs(False, self.twice(lambda: store.progress(1, 2, 1, 2, now=5), False))
        job_id, attempt = self.running("second")
        self.twice(lambda: store.fail(job_id, attempt, "bad_input", now=3), "failed")
        job_id = self.submit("third")
        self.twice(lambda: store.cancel("alice", job_id, now=1), "cancelled")

    def twice(self, call: Any, expected: Any) -> Any:
        first = call()
        after = self.contents()
        self.assertEqual((expected, expected), (first, call()))
        self.assertEqual(after, self.contents())
        return first

    def test_a_repeated_delivery_says_that_nothing_new_was_stored(self) -> None:
        """At once, after the end of the lease, and with another result: False, and the first result stays.

        Claims: C10-238.
        """
        job_id, attempt = self.running()
        self.assertEqual(
            [True, False, False, False],
            [self.store.finish(job_id, attempt, {"n": n}, now=now) for n, now in ((1, 2), (1, 2), (1, 99), (2, 3))],
        )
        self.assertEqual({"n": 1}, self.store.result("alice", job_id)["data"])

    def test_a_claim_whose_answer_was_lost_waits_out_its_lease(self) -> None:
        """Nobody gets the job meanwhile; then the next claim does, with the next attempt."""
        self.submit()
        self.store.claim(1, now=1)
        self.assertEqual([None, None, 2], [self.store.claim(1, now=now) for now in (1, 10.9, 11)])

    def test_another_failure_on_a_job_back_in_line_is_refused(self) -> None:
        """Only the same code is the repeat of a lost answer."""
        job_id, attempt = self.running()
        self.store.fail(job_id, attempt, "temporary", now=3, retry_after=1)
        self.refused("not_running", self.store.fail, job_id, attempt, "other", now=3)
        self.refused("stale_attempt", self.store.fail, job_id, attempt + 1, "temporary", now=3)


if __name__ == "__main__":
    unittest.main()
