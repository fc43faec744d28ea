"""The caller's side of the job store, and what its file guarantees: one behaviour each, as the chapter tells it.

Every test runs on the chapter's store and on the living one.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import inspect
import sqlite3
import unittest
from collections.abc import Callable
from contextlib import closing
from typing import Any

from chapter10 import database, jobs, limits
from chapter10.canonical import canonical, digest
from chapter10.companions.work import living_store
from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError
from chapter10.jobs import FINAL_STATES, LIVE_STATES, STATES, JobError, JobStore, Operation
from chapter10.tests.job_checker import violations
from chapter10.tests.job_support import AUGUST, JULY, REPORT, JobTestCase, anything, writes_of
from chapter10.tests.support import also_on, defaults, run_python

SUBMIT_AND_DIE = """
import os, sys
from chapter10.companions.work import living_store
store = getattr(living_store, sys.argv[2])(sys.argv[1])
job_id = store.submit("alice", "august-report", {"month": "2026-08"}, now=0)
os.write(1, str(job_id).encode())
os._exit(1)
"""


@also_on(LivingStore)
class AtTheEndOfTime(JobTestCase):
    """No job gets a deadline that no clock can reach."""

    def test_a_deadline_by_default_can_be_reached(self) -> None:
        """J11 at the last moment that a store takes: the job ends there, and later there is no place for one."""
        job = self.store.submit("alice", "last", AUGUST, now=limits.MAX_TIME - 1)
        self.assertIsNone(self.store.claim(job, now=limits.MAX_TIME))
        self.assertEqual(self.store.get("alice", job)["error"], "deadline_exceeded")
        with self.assertRaisesRegex(JobError, "invalid_submission"):
            self.store.submit("alice", "too late", AUGUST, now=limits.MAX_TIME)


@also_on(LivingStore)
class Submitting(JobTestCase):
    def test_a_job_is_accepted_before_any_work_is_done(self) -> None:
        """Submit answers with a number by which the job can be asked for, and the job is only queued.

        Claims: C10-129, C10-141, C10-152.
        """
        job_id = self.submit()
        self.assertEqual((1, int), (job_id, type(job_id)))
        self.assertEqual("queued", self.state(job_id))

    def test_the_status_right_after_submitting(self) -> None:
        """Six fields; attempt 0 is nobody yet, and total 0 is a size not known yet, not a job done.

        Claims: C10-134, C10-135, C10-136, C10-137.
        """
        status = self.store.get("alice", self.submit())
        self.assertEqual({"id": 1, "state": "queued", "attempt": 0, "done": 0, "total": 0, "error": None}, status)
        self.assertIs(int, type(status["done"]))

    def test_the_number_is_given_when_the_job_is_on_disk(self) -> None:
        """As soon as submit has returned, another connection finds the job.

        Claims: C10-138.
        """
        job_id = self.submit()
        with closing(sqlite3.connect(self.path)) as other:
            self.assertEqual([(job_id,)], other.execute("SELECT id FROM jobs").fetchall())

    def test_a_commit_that_fails_gives_no_number(self) -> None:
        """When the machine cannot store the job the caller gets an error and no id.

        Claims: C10-138.
        """
        self.store.db.execute("PRAGMA query_only=ON")
        with self.assertRaisesRegex(RuntimeError, "store_unavailable"):
            self.submit()
        self.store.db.execute("PRAGMA query_only=OFF")
        self.assertEqual([], self.contents()["jobs"])

    def test_a_job_survives_the_connection_that_submitted_it(self) -> None:
        """Another connection finds the same id in the same state.

        Claims: C10-130, C10-149.
        """
        job_id = self.submit()
        self.store.close()
        self.assertEqual("queued", self.open().get("alice", job_id)["state"])

    def test_a_job_survives_the_process_that_submitted_it(self) -> None:
        """A process that dies right after submitting leaves the job for the next one to claim.

        Claims: C10-131.
        """
        child = run_python(["-c", SUBMIT_AND_DIE, str(self.path), self.make.__name__])
        self.assertEqual((1, "1"), (child.returncode, child.stdout), child.stderr)
        self.assertEqual(1, self.store.claim(1, now=1))

    def test_a_store_is_opened_by_a_text_or_a_path(self) -> None:
        """`JobStore(path)` takes either, and closes at the end of a `with`.

        Claims: C10-139.
        """
        for path in (str(self.folder / "a.db"), self.folder / "b.db"):
            with self.make(path) as store:
                self.assertEqual(1, store.submit("alice", "k", AUGUST, now=0))
            with self.assertRaisesRegex(RuntimeError, "store_unavailable"):
                store.get("alice", 1)

    def test_owner_key_arguments_and_now_by_name(self) -> None:
        """The call reads as in the book: three positions, then the moment by its name.

        Claims: C10-140, C10-217.
        """
        parameters = inspect.signature(self.make.submit).parameters
        self.assertEqual(["self", "owner", "action_key", "args", "now"], list(parameters)[:5])
        self.assertIs(inspect.Parameter.KEYWORD_ONLY, parameters["now"].kind)
        for required in ("owner", "action_key", "args", "now"):
            self.assertIs(inspect.Parameter.empty, parameters[required].default)

    def test_the_moments_are_the_ones_passed_in(self) -> None:
        """No module clock: what the caller calls now is what is stored, and the module imports no clock.

        Claims: C10-142.
        """
        self.submit(now=-5)
        self.assertEqual((-5, 95), self.store.db.execute("SELECT ready_at, deadline FROM jobs").fetchone())
        imported = {
            name.name
            for node in ast.walk(ast.parse(inspect.getsource(jobs)))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        self.assertEqual(set(), imported & {"time", "datetime", "random", "uuid", "secrets"})

    def test_the_arguments_decide_neither_owner_nor_time_nor_rights(self) -> None:
        """A request that names an owner, a moment or rights of its own is refused, or they stay data.

        Claims: C10-143, C10-283.
        """
        for extra in ({"owner": "bob"}, {"now": 99}, {"permissions": ["reports:write"]}):
            self.refused("invalid_submission", self.store.submit, "alice", "k", {**AUGUST, **extra}, now=0)
        store = self.open([Operation("free.form", "1", anything)])
        job_id = store.submit("alice", "k", {"owner": "bob", "now": 99, "deadline": 1}, now=0, tool="free.form")
        row = self.store.db.execute("SELECT owner, ready_at, deadline > 1 FROM jobs").fetchone()
        self.assertEqual(("alice", 0, True), row)
        self.refused("not_found", self.store.get, "bob", job_id)

    def test_the_report_takes_a_month_and_nothing_else(self) -> None:
        """The chapter's operation refuses every other shape, and the reason says what it wants.

        Claims: C10-285, C10-286.
        """
        shapes: list[Any] = [
            {}, {"month": None}, {"month": 202608}, {"month": "2026-8"}, {"month": "2026-13"}, {"month": "2026-00"},
            {"month": "2026-08\n"}, {"month": " 2026-08"}, {"month": "２０２６-08"}, {"month": ["2026-08"]},
            {"Month": "2026-08"}, {**AUGUST, "day": 1}, [], "2026-08", None, [("month", "2026-08")],
        ]  # fmt: skip
        for shape in shapes:
            with self.subTest(shape=shape):
                error = self.refused("invalid_submission", self.store.submit, "alice", "k", shape, now=0)
                self.assertTrue(error.reason)

    def test_another_operation_is_registered_without_editing_the_store(self) -> None:
        """A tool of one's own has its own check, version and intent; an unknown one is refused."""

        def even(args: dict[str, Any]) -> None:
            if args.get("number", 1) % 2:
                raise ValueError("the number is odd")
            args.clear()  # a check gets a copy: it changes neither what is stored nor the caller's dict

        store = self.open([Operation("numbers.halve", "7", even)])
        given = {"number": 4}
        job_id = store.submit("alice", "k", given, now=0, tool="numbers.halve")
        self.assertEqual({"number": 4}, given)
        self.assertEqual({"tool": "numbers.halve", "version": "7", "args": {"number": 4}}, store.intent(job_id))
        error = self.refused(
            "invalid_submission", store.submit, "alice", "l", {"number": 3}, now=0, tool="numbers.halve"
        )
        self.assertEqual("the number is odd", error.reason)
        self.refused("invalid_submission", self.store.submit, "alice", "l", {"number": 4}, now=0, tool="numbers.halve")

    def test_a_tool_name_has_one_version_at_a_time(self) -> None:
        """A name that stands is refused, and what is no operation as well."""
        operation = Operation("a.b", "1", anything)
        self.store.register(operation)
        wrong: list[Any] = [
            operation, Operation("a.b", "2", anything), Operation("reports.export", "2", anything), None, "a.c",
            Operation("", "1", anything), Operation("a.c", "", anything), Operation("a.c", "1", None),  # type: ignore[arg-type]
        ]  # fmt: skip
        for other in wrong:
            with self.subTest(other=other):
                self.refused("bad_input", self.store.register, other)

    def test_the_deadline_is_a_hundred_seconds_or_for_life_a_day_away_by_default(self) -> None:
        """And others are taken as given; a job that is done once more has the default too."""
        self.store.submit("alice", "a", AUGUST, now=7)
        self.store.submit("alice", "b", AUGUST, now=7, deadline=8.5, max_attempts=1)
        away = 100 if self.make is JobStore else 86_400
        wanted = [(7 + away, 3), (8.5, 1)]
        if self.make is LivingStore:
            self.store.cancel("alice", 2)
            self.store.retry(2, now=9, by="ops", why="again")
            wanted.append((9 + away, 3))
        rows = self.store.db.execute("SELECT deadline, max_attempts FROM jobs ORDER BY id").fetchall()
        self.assertEqual(wanted, rows)

    def test_a_deadline_that_has_passed_is_refused(self) -> None:
        """New work whose deadline is not after now is refused; at the very moment too.

        Claims: C10-187.
        """
        for deadline in (5, 4.999, -1):
            self.refused("invalid_submission", self.store.submit, "alice", "k", AUGUST, now=5, deadline=deadline)
        self.store.submit("alice", "k", AUGUST, now=5, deadline=5.001)

    def test_an_asynchronous_program_drives_the_same_store(self) -> None:
        """Identity, state and result live in the file, whoever calls: here from a running loop.

        Claims: C10-132.
        """

        async def work() -> dict[str, Any]:
            job_id, attempt = self.running()
            await asyncio.sleep(0)
            self.store.finish(job_id, attempt, REPORT, now=2)
            result: dict[str, Any] = self.open().result("alice", job_id)
            return result

        self.assertEqual(REPORT, asyncio.run(work())["data"])


@also_on(LivingStore)
class Keys(JobTestCase):
    def test_the_same_key_is_the_same_job_in_every_state(self) -> None:
        """A repeat gets the id that it has, whether the job waits, runs or has ended, and stores nothing.

        Claims: C10-144, C10-159, C10-216, C10-218, C10-223.
        """
        for state in STATES:
            with self.subTest(state):
                job_id, _ = self.in_state(state, key=state)
                before = self.contents()
                self.assertEqual(job_id, self.submit(state, now=50))
                self.assertEqual(before, self.contents())

    def test_a_lost_answer_after_the_end_makes_nothing_new(self) -> None:
        """Click again after the report is there: job 1, succeeded, one receipt.

        Claims: C10-216, C10-219, C10-297.
        """
        self.succeeded()
        self.assertEqual(1, self.submit(now=9))
        self.assertEqual(("succeeded", 1), (self.state(1), self.store.receipt_count(1)))

    def test_another_month_under_the_same_key_is_a_conflict_in_every_state(self) -> None:
        """The old result is not passed off as the new one, and the old job is not overwritten.

        Claims: C10-224.
        """
        for state in STATES:
            with self.subTest(state):
                self.in_state(state, key=state)
                self.refused("key_conflict", self.store.submit, "alice", state, JULY, now=2)

    def test_the_intent_is_compared_in_canonical_form(self) -> None:
        """The order of keys is no difference; 1, 1.0, True and "1" are; so are tool and version.

        Claims: C10-223.
        """
        store = self.open([Operation("free.form", "1", anything), Operation("other.form", "1", anything)])
        job_id = store.submit("alice", "k", {"x": 1, "y": {"b": 1, "a": 2}}, now=0, tool="free.form")
        again = store.submit("alice", "k", {"y": {"a": 2, "b": 1}, "x": 1}, now=0, tool="free.form")
        self.assertEqual(job_id, again)
        for x in (1.0, True, "1", None, [1]):
            args = {"x": x, "y": {"b": 1, "a": 2}}
            self.refused("key_conflict", store.submit, "alice", "k", args, now=0, tool="free.form")
        same = {"x": 1, "y": {"b": 1, "a": 2}}
        self.refused("key_conflict", store.submit, "alice", "k", same, now=0, tool="other.form")
        newer = self.open([Operation("free.form", "2", anything)])
        self.refused("key_conflict", newer.submit, "alice", "k", same, now=0, tool="free.form")

    def test_two_keys_are_two_jobs_though_the_arguments_are_equal(self) -> None:
        """The arguments say what, the key says which time: the same report may be wanted twice.

        Claims: C10-220, C10-222.
        """
        self.assertNotEqual(self.submit("monday"), self.submit("tuesday"))

    def test_owners_do_not_share_keys(self) -> None:
        """The same text from Alice and from Bob is two intents.

        Claims: C10-221.
        """
        self.assertNotEqual(self.submit(owner="alice"), self.submit(owner="bob"))
        with self.assertRaisesRegex(sqlite3.IntegrityError, "owner.*action_key"):
            self.store.db.execute("UPDATE jobs SET owner = 'alice'")

    def test_a_repeat_does_not_reconfigure_the_job(self) -> None:
        """Deadline and attempts stay what they first were; other values are no conflict.

        Claims: C10-225.
        """
        self.submit(deadline=50, max_attempts=2)
        before = self.contents()
        self.assertEqual(1, self.submit(deadline=99, max_attempts=9, capacity=7))
        self.assertEqual(before, self.contents())

    def test_a_repeat_that_comes_late_is_still_answered(self) -> None:
        """A known key is looked up before the rules for new work: neither deadline nor capacity refuse it.

        Claims: C10-225, C10-289.
        """
        self.submit(deadline=10, capacity=1)
        self.assertEqual(1, self.submit(now=99, deadline=10, capacity=1))
        self.refused("invalid_submission", self.store.submit, "alice", "new", AUGUST, now=99, deadline=10)

    def test_keys_in_two_forms_of_unicode_are_two_keys(self) -> None:
        """A key is compared by its code points; nothing is normalised behind the caller's back."""
        self.assertNotEqual(self.submit("caf\u00e9"), self.submit("cafe\u0301"))
        self.assertNotEqual(self.submit("K"), self.submit("k"))


@also_on(LivingStore)
class Capacity(JobTestCase):
    def test_a_full_queue_refuses_new_work_and_stores_nothing(self) -> None:
        """The first job beyond the capacity is refused; no key is kept, so it can be submitted later.

        Claims: C10-288.
        """
        for number in range(3):
            self.submit(f"k{number}", capacity=3)
        self.refused("queue_full", self.store.submit, "bob", "k", AUGUST, now=0, capacity=3)
        self.store.cancel("alice", 1)
        self.assertEqual(4, self.submit("k", "bob", capacity=3))

    def test_a_full_queue_still_knows_its_keys(self) -> None:
        """A repeat of a known key gets its job although there is no room; a conflict stays a conflict.

        Claims: C10-289.
        """
        job_id = self.submit(capacity=1)
        self.assertEqual(job_id, self.submit(capacity=1))
        self.refused("key_conflict", self.store.submit, "alice", "august-report", JULY, now=0, capacity=1)

    def test_every_state_that_is_not_final_takes_a_place(self) -> None:
        """Queued, waiting for a retry, running and cancel requested count; the three final ones do not.

        Claims: C10-288.
        """
        for state in FINAL_STATES:
            self.in_state(state, key=state)
        for state in LIVE_STATES:
            self.in_state(state, key=state)
        job_id, attempt = self.running("retry")
        self.store.fail(job_id, attempt, "temporary", now=2, retry_after=50)
        self.refused("queue_full", self.store.submit, "alice", "k", AUGUST, now=3, capacity=4)
        self.submit("k", now=3, capacity=5)

    def test_a_claim_after_a_lost_lease_takes_no_second_place(self) -> None:
        """Reclaiming a job in a full queue is no new work."""
        job_id, _ = self.running(capacity=1)
        self.assertEqual(2, self.store.claim(job_id, now=11))
        self.assertEqual([], violations(self.path, capacity=1))


@also_on(LivingStore)
class Owners(JobTestCase):
    def test_what_is_not_yours_looks_like_what_does_not_exist(self) -> None:
        """Status, events, result and cancel of another's job are `not_found`, like those of no job.

        Claims: C10-155, C10-247.
        """
        self.succeeded()
        running, _ = self.running("second")
        for job_id in (1, running, 99, 0, -1, 2**63, -(2**63) - 1):
            for verb in (self.store.get, self.store.events, self.store.result, self.store.cancel):
                with self.subTest(job_id=job_id, verb=verb.__name__):
                    self.refused("not_found", verb, "bob", job_id)

    def test_a_result_is_read_by_job_and_owner_only(self) -> None:
        """The artifact id is a label: no verb takes it in place of a job id.

        Claims: C10-247, C10-249.
        """
        artifact = self.store.result("alice", self.succeeded())["artifact_id"]
        self.assertEqual("report-1", artifact)
        for verb in (self.store.get, self.store.events, self.store.result, self.store.cancel):
            self.refused("bad_input", verb, "alice", artifact)

    def test_nothing_that_one_owner_does_changes_what_another_has(self) -> None:
        """Bob's status and events stay the same bytes through a whole life of Alice's job, and so does his list."""
        bob = self.submit("k", "bob")

        def view() -> tuple[Any, ...]:
            listed = self.store.list_jobs("bob") if isinstance(self.store, LivingStore) else None
            return (self.store.get("bob", bob), self.store.events("bob", bob), listed)

        before = view()
        self.succeeded()
        self.in_state("cancelled", "second")
        self.assertEqual(before, view())


@also_on(LivingStore)
class Reading(JobTestCase):
    def test_reading_changes_nothing(self) -> None:
        """However often one looks, at whatever moment, the tables keep every byte.

        Claims: C10-190, C10-191, C10-210.
        """
        job_id, _ = self.running(deadline=3)
        before = self.contents()
        for _ in range(3):
            self.store.get("alice", job_id)
            self.store.events("alice", job_id)
            self.store.intent(job_id)
            self.store.receipt_count(job_id)
            if isinstance(self.store, LivingStore):
                self.store.list_jobs("alice")
                self.store.stats(now=99)
            with self.assertRaises(JobError):
                self.store.result("alice", job_id)
        self.assertEqual(before, self.contents())
        self.assertEqual("running", self.state(job_id))

    def test_what_was_read_once_is_no_evidence_later(self) -> None:
        """A status in a saved conversation still says running; only asking the store again tells the end.

        Claims: C10-133.
        """
        job_id, attempt = self.running()
        remembered = self.store.get("alice", job_id)
        self.store.finish(job_id, attempt, REPORT, now=2)
        self.assertEqual(("running", "succeeded"), (remembered["state"], self.state(job_id)))

    def test_a_cursor_brings_only_what_is_newer(self) -> None:
        """After five of six events, only the sixth comes: the success.

        Claims: C10-160, C10-183, C10-251, C10-252.
        """
        self.finished_with_three_steps()
        events = self.store.events("alice", 1)
        self.assertEqual(["queued", "running", "progress", "progress", "progress", "succeeded"], self.kinds(1))
        self.assertEqual([1, 2, 3, 4, 5, 6], [event["seq"] for event in events])
        newer = self.store.events("alice", 1, after=5)
        self.assertEqual([{"seq": 6, "kind": "succeeded", "attempt": 1, "detail": {}}], newer)
        self.assertEqual([], self.store.events("alice", 1, after=6))
        self.assertEqual([], self.store.events("alice", 1, after=2**63 - 1))

    def finished_with_three_steps(self) -> None:
        job_id, attempt = self.running()
        for index in (1, 2, 3):
            self.store.progress(job_id, attempt, index, 3, now=index + 1)
        self.store.finish(job_id, attempt, REPORT, now=5)

    def test_a_limit_cuts_and_the_cursor_goes_on(self) -> None:
        """Pages of any size put together are the whole, each event once."""
        self.finished_with_three_steps()
        whole = self.store.events("alice", 1)
        for limit in (1, 2, 4, 6, 1000):
            pages: list[dict[str, Any]] = []
            while page := self.store.events("alice", 1, pages[-1]["seq"] if pages else 0, limit):
                self.assertLessEqual(len(page), limit)
                pages += page
            self.assertEqual(whole, pages)

    def test_saving_the_cursor_late_repeats_and_saving_it_early_skips(self) -> None:
        """A crash between dealing and saving repeats an event, which its seq tells; the other way loses it.

        Claims: C10-253.
        """
        self.finished_with_three_steps()
        events = self.store.events("alice", 1)
        dealt = [event["seq"] for event in events[:4]]
        late = dealt + [event["seq"] for event in self.store.events("alice", 1, after=dealt[-2])]
        self.assertEqual([1, 2, 3, 4, 4, 5, 6], late)
        self.assertEqual([1, 2, 3, 4, 5, 6], list(dict.fromkeys(late)))
        early = dealt[:-1] + [event["seq"] for event in self.store.events("alice", 1, after=dealt[-1])]
        self.assertEqual([1, 2, 3, 5, 6], early)

    def test_seq_rises_over_all_jobs_and_does_not_follow_progress(self) -> None:
        """The cursor numbers what was stored, in the order of storing.

        Claims: C10-252.
        """
        first, one = self.running("first")
        second, two = self.running("second", "bob")
        self.store.progress(first, one, 90, 100, now=2)
        self.store.progress(second, two, 1, 100, now=2)
        seqs = [event["seq"] for owner, job in (("alice", first), ("bob", second))
                for event in self.store.events(owner, job)]  # fmt: skip
        self.assertEqual([1, 2, 5, 3, 4, 6], seqs)

    def test_events_hold_counts_and_codes_only(self) -> None:
        """Nothing of arguments, keys, owners or results is in an event.

        Claims: C10-207, C10-254.
        """
        store = self.open([Operation("free.form", "1", anything)])
        job_id = store.submit("alice-secret", "key-secret", {"question": "args-secret"}, now=0, tool="free.form")
        attempt = self.claim(job_id)
        store.progress(job_id, attempt, 1, 2, now=2)
        store.fail(job_id, attempt, "temporary", now=3, retry_after=1)
        attempt = self.claim(job_id, now=4)
        store.finish(job_id, attempt, {"data": "result-secret"}, now=5)
        events = store.events("alice-secret", job_id)
        self.assertNotIn("secret", repr(events) + repr(self.contents()["events"]))
        self.assertLessEqual({key for event in events for key in event["detail"]}, {"done", "total", "error"})
        self.assertEqual([0, 1, 1, 1, 2, 2], [event["attempt"] for event in events])

    def test_every_change_has_its_event(self) -> None:
        """One event for each change of state and each step, and none for a call that changed nothing.

        Claims: C10-148, C10-184.
        """
        job_id, attempt = self.running()
        self.store.progress(job_id, attempt, 1, 2, now=2)
        self.store.progress(job_id, attempt, 1, 2, now=3)
        self.store.fail(job_id, attempt, "temporary", now=3, retry_after=1)
        self.store.claim(job_id, now=3)
        self.claim(job_id, now=4)
        self.store.cancel("alice", job_id)
        self.store.cancel("alice", job_id)
        self.store.finish(job_id, 2, REPORT, now=5)
        self.store.cancel("alice", job_id)
        self.assertEqual(
            ["queued", "running", "progress", "queued", "running", "cancel_requested", "cancelled"], self.kinds(job_id)
        )

    def test_a_result_is_there_after_success_only(self) -> None:
        """In the five other states it is `not_ready`.

        Claims: C10-245.
        """
        for state in STATES:
            with self.subTest(state):
                job_id, _ = self.in_state(state, key=state)
                if state == "succeeded":
                    self.assertEqual(REPORT, self.store.result("alice", job_id)["data"])
                else:
                    self.refused("not_ready", self.store.result, "alice", job_id)

    def test_a_result_comes_with_its_digest(self) -> None:
        """Label, digest of the data, data: and the data is what was delivered.

        Claims: C10-177, C10-239, C10-244, C10-246.
        """
        result = self.store.result("alice", self.succeeded())
        self.assertEqual({"artifact_id": "report-1", "sha256": digest(REPORT), "data": REPORT}, result)
        self.assertEqual("2f0d54fc0d2d514275140f927d6b47d23193537bbf4586ea8cb1fec2521196a5", result["sha256"])

    def test_what_is_handed_out_is_a_copy(self) -> None:
        """Changing an answer at any depth changes nothing in the store, nor does changing what was passed in.

        Claims: C10-293.
        """
        given = {"rows": [{"cents": 1}]}
        job_id, attempt = self.running()
        self.store.finish(job_id, attempt, given, now=5)
        given["rows"][0]["cents"] = 2
        self.store.result("alice", job_id)["data"]["rows"].clear()
        self.store.events("alice", job_id)[0]["detail"]["x"] = 1
        self.store.get("alice", job_id)["state"] = "x"
        self.store.intent(job_id)["args"].clear()
        self.assertEqual({"rows": [{"cents": 1}]}, self.store.result("alice", job_id)["data"])
        self.assertEqual({}, self.store.events("alice", job_id)[0]["detail"])
        self.assertEqual(AUGUST, self.store.intent(job_id)["args"])

    def test_any_json_value_is_a_result(self) -> None:
        """Whatever has a canonical form comes back exactly, null and an empty list included."""
        values: list[Any] = [None, True, 0, -1.5, 10**30, "", "\0报表", [], {}, [[{"a": None}]]]
        for number, value in enumerate(values):
            job_id, attempt = self.running(f"k{number}")
            self.assertTrue(self.store.finish(job_id, attempt, value, now=5))
            back = self.store.result("alice", job_id)["data"]
            self.assertEqual((type(value), value), (type(back), back))


class Limits(unittest.TestCase):
    """What callers plan with, in figures."""

    def test_the_published_limits_are_these(self) -> None:
        """Sizes in bytes and characters, times in seconds, counts; and the number that marks the file."""
        wanted = {
            "MAX_TEXT": 200, "MAX_TIME": 1_099_511_627_776.0, "MIN_SECONDS": 0.0009765625, "MAX_ARGS_BYTES": 65_536,
            "MAX_RESULT_BYTES": 8_388_608, "MAX_COUNT": 9_007_199_254_740_992, "MAX_LIMIT": 1000,
        }  # fmt: skip
        self.assertEqual(wanted, {name: getattr(limits, name) for name in wanted})
        self.assertEqual((100, 100), (jobs.DEADLINE_SECONDS, living_store.CLAIM_SCAN))
        self.assertEqual(b"CH10", jobs.APPLICATION_ID.to_bytes(4, "big"))

    def test_what_may_be_left_out_is_this(self) -> None:
        """The defaults of every verb, as its docstring and the book have them."""
        submission = {"deadline": None, "max_attempts": 3, "capacity": 20, "tool": "reports.export"}
        batch = {**submission, "capacity": 10_000, "owner_capacity": None, "start": None}
        wanted = {
            JobStore: {
                "submit": submission, "cancel": {"now": None}, "events": {"after": 0, "limit": 100},
                "claim": {"lease": 10}, "fail": {"retry_after": None},
            },
            LivingStore: {
                "submit": batch, "submit_many": batch, "list_jobs": {"before": None, "limit": 50},
                "retry": {"deadline": None, "max_attempts": 3, "capacity": 10_000}, "keyed": {"limit": 50},
                "survey": {**dict.fromkeys(("owner", "state", "kind", "since", "before")), "limit": 50},
                "wait": {"poll": 0.2}, "claim_next": {"lease": 10, "kinds": None}, "renew": {"lease": 10},
                "sweep": {"limit": 100}, "prune": {"limit": 100}, "pause": {"owner": None}, "resume": {"owner": None},
            },
        }  # fmt: skip
        for make, verbs in wanted.items():
            own = {name: defaults(verb) for name, verb in vars(make).items() if name[0] != "_" and callable(verb)}
            self.assertEqual(verbs, {name: found for name, found in own.items() if found})


@also_on(LivingStore)
class Damage(JobTestCase):
    def damaged(self, what: str, call: Callable[..., object], *given: object, **options: Any) -> None:
        with self.assertRaises(StoreError) as caught:
            call(*given, **options)
        self.assertEqual(("store_unavailable", f"damaged: {what}"), (caught.exception.code, caught.exception.reason))

    def test_a_result_is_given_only_under_its_own_digest(self) -> None:
        """A byte that changed on disk is damage, never a wrong figure under the right digest. Claims: C10-239."""
        self.succeeded()
        for data in ("'{\"total_cents\":9000}'", "'{oops'", "x'ff'", "5"):
            self.damage(f"UPDATE receipts SET data = {data}")
            self.damaged("the result of job 1", self.store.result, "alice", 1)
        digest = hashlib.sha256(b"{}").hexdigest()
        self.damage(f"UPDATE receipts SET data = '{{}}', sha256 = '{digest}'")  # the checker compares them too
        self.assertEqual({}, self.store.result("alice", 1)["data"])

    def test_what_is_read_back_is_checked(self) -> None:
        """A row, an intent and an event that no store has written: the machine's fault, and which one is said."""
        self.running()
        intent_of_august = canonical(self.store.intent(1))
        for intent in ("'{oops'", "'[]'", "x'ff'", "'{\"tool\":1}'", "5"):
            self.damage(f"UPDATE jobs SET intent = {intent}")
            self.damaged("the intent of job 1", self.store.intent, 1)
        self.damage(f"UPDATE jobs SET intent = '{intent_of_august}'")
        for detail in ("'{oops'", "'5'", "x'ff'"):
            self.damage(f"UPDATE events SET detail = {detail} WHERE seq = 2")
            self.damaged("event 2", self.store.events, "alice", 1)
        self.damage("UPDATE events SET detail = '{}'")
        for change, back in (
            ("attempt = 99", "attempt = 1"),
            ("deadline = 'x'", "deadline = 100"),
            ("done = 5", "done = 0"),
            ("error = x'ff'", "error = NULL"),
            ("state = 'weird'", "state = 'running'"),
        ):
            self.damage(f"UPDATE jobs SET {change}")
            self.damaged("job 1", self.store.get, "alice", 1)
            self.damaged("job 1", self.store.claim, 1, now=2)
            self.damaged("job 1", self.store.progress, 1, 1, 1, 1, now=2)
            self.damaged("job 1", self.store.finish, 1, 1, REPORT, now=2)
            self.damaged("job 1", self.store.fail, 1, 1, "temporary", now=2)
            self.damaged("job 1", self.store.cancel, "alice", 1)
            self.damage(f"UPDATE jobs SET {back}")
        self.assertTrue(self.store.finish(1, 1, REPORT, now=2))


@also_on(LivingStore)
class Invariants(JobTestCase):
    def test_there_are_three_tables(self) -> None:
        """Jobs, receipts and events in one file; the living store's has who is paused beside them.

        Claims: C10-145.
        """
        names = self.store.db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        own = {("pauses",)} if self.make is LivingStore else set()
        self.assertEqual({("jobs",), ("receipts",), ("events",)}, set(names) - own)

    def test_a_row_of_jobs_has_what_the_chapter_lists(self) -> None:
        """Owner, intent, attempts, deadline, progress, state.

        Claims: C10-146, C10-298.
        """
        columns = {row[1] for row in self.store.db.execute("PRAGMA table_info(jobs)")}
        wanted = {"owner", "action_key", "intent", "state", "attempt", "deadline", "done", "total", "lease_until"}
        self.assertLessEqual(wanted, columns)

    def test_there_are_six_states_and_the_database_knows_them(self) -> None:
        """A seventh word is refused by the table itself.

        Claims: C10-157, C10-165.
        """
        self.assertEqual(("queued", "running", "cancel_requested", "succeeded", "failed", "cancelled"), STATES)
        self.submit()
        with self.assertRaisesRegex(sqlite3.IntegrityError, "state_is_known"):
            self.store.db.execute("UPDATE jobs SET state = 'retrying'")

    def test_the_database_refuses_what_breaks_an_invariant(self) -> None:
        """Going round the verbs does not help: each rule is a named constraint.

        Claims: C10-147, C10-150, C10-236.
        """
        self.succeeded()
        self.submit("second")
        for name, statement in {
            "attempt_within_limit": "UPDATE jobs SET attempt = max_attempts + 1",
            "done_within_total": "UPDATE jobs SET done = total + 1",
            "lease_while_held": "UPDATE jobs SET lease_until = 1",
            "lease_within_deadline": "UPDATE jobs SET state = 'running', attempt = 1, lease_until = deadline + 1",
            "held_means_claimed": "UPDATE jobs SET state = 'running', attempt = 0, lease_until = 1",
            "failed_says_why": "UPDATE jobs SET state = 'failed', error = NULL",
            "one_job_per_key|action_key": "UPDATE jobs SET action_key = 'same'",
            "receipts.job_id": "INSERT INTO receipts (job_id, attempt, sha256) VALUES (1, 1, '')",
            "FOREIGN KEY": "INSERT INTO receipts (job_id, attempt, sha256) VALUES (99, 1, '')",
            "FOREIGN": "INSERT INTO events (job_id, attempt, kind, detail) VALUES (99, 1, 'x', '{}')",
        }.items():
            with self.subTest(name), self.assertRaisesRegex(sqlite3.IntegrityError, name):
                self.store.db.execute(statement)
        key = [row[1] for row in self.store.db.execute("PRAGMA table_info(receipts)") if row[5]]
        self.assertEqual(["job_id"], key)

    def test_every_writing_verb_takes_the_lock_first(self) -> None:
        """Whatever a verb does, its first statement is BEGIN IMMEDIATE and its last COMMIT.

        Claims: C10-153.
        """
        for write in writes_of(self.make):
            with self.subTest(write.name), self.make(":memory:") as store:
                write.prepare(store)
                said: list[str] = []
                store.db.set_trace_callback(said.append)
                write.call(store)
                self.assertEqual(("BEGIN IMMEDIATE", "COMMIT"), (said[0], said[-1]))
                self.assertEqual(1, sum(statement.startswith("BEGIN") for statement in said))

    def test_no_fault_is_answered_by_trying_again_blindly(self) -> None:
        """Store and database catch no plain `Exception`: each handler names what it knows, or passes it on.

        Claims: C10-198.
        """
        for module in (jobs, database, living_store):
            for node in ast.walk(ast.parse(inspect.getsource(module))):
                if isinstance(node, ast.ExceptHandler):
                    caught = ast.unparse(node.type) if node.type else "everything"
                    self.assertNotIn(caught, ("Exception", "everything"))
                    if caught == "BaseException":
                        self.assertIsInstance(node.body[-1], ast.Raise)

    def test_the_names_of_the_book_are_there(self) -> None:
        """Every verb and field that the text names exists under that name.

        Claims: C10-298.
        """
        for name in ("submit", "progress", "finish", "fail", "result", "claim", "cancel", "get", "events"):
            self.assertTrue(callable(getattr(self.make, name)))
        self.assertIn("artifact_id", self.store.result("alice", self.succeeded()))


if __name__ == "__main__":
    unittest.main()
