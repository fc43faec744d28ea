"""Random histories against the model: bounded runs, and proof that a disagreement would be seen."""

from __future__ import annotations

import contextlib
import io
import itertools
import unittest

from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import JobStore
from chapter10.lab.histories import simulate
from chapter10.lab.histories.guards import guard_named, store_without
from chapter10.lab.histories.model import Model, Refused
from chapter10.lab.histories.simulate import Call, history, replay, shrink


def without(name: str) -> type[JobStore]:
    return store_without(guard_named(name), LivingStore)


class StoreAndModelAgree(unittest.TestCase):
    """The bounded version of the command."""

    def test_they_agree_on_every_answer_of_long_histories_with_faults(self) -> None:
        """Two seeds, three thousand calls, faults among them; half of them on the chapter's store.

        Claims: C10-191, C10-237, C10-297.
        """
        for seed, store in ((11, LivingStore), (12, JobStore)):
            with self.subTest(seed=seed):
                self.assertIsNone(replay(history(seed, 1500, store), store))

    def test_a_history_depends_on_its_seed_alone(self) -> None:
        """The same seed gives the same calls, another one others.

        Claims: C10-203, C10-277.
        """
        self.assertEqual(history(1, 200), history(1, 200))
        self.assertNotEqual(history(1, 200), history(2, 200))

    def test_the_calls_reach_every_verb_and_every_fault(self) -> None:
        """A history that only asked for what is not there would prove nothing."""
        chapter = {"submit", "claim", "progress", "finish", "fail", "cancel", "get", "events", "result", "reopen"}
        living = {"claim_next", "renew", "list_jobs", "sweep", "prune"}
        for store, verbs in ((JobStore, chapter), (LivingStore, chapter | living)):
            calls = history(11, 1500, store)
            self.assertEqual(verbs, {call.verb for call in calls})
            self.assertTrue(any(call.stop_at for call in calls))
            self.assertTrue(any(call.full for call in calls))
            self.assertTrue(all(early.now <= late.now for early, late in itertools.pairwise(calls)))


class ADisagreementIsFound(unittest.TestCase):
    """A store without a guard is caught and the history shrinks to what matters."""

    def test_a_missing_fence_shrinks_to_a_few_calls(self) -> None:
        """Without the attempt check of finish, two or three calls are left.

        Claims: C10-228.
        """
        store = without("stale_attempt.finish")

        short = shrink(history(1, 400), store)

        self.assertLessEqual(len(short), 4)
        self.assertIn("finish", {call.verb for call in short})
        self.assertIsNotNone(replay(short, store))

    def test_a_missing_lease_check_and_a_missing_deadline_check_are_found(self) -> None:
        """Guards that only show in a particular order of calls and times.

        Claims: C10-189, C10-231.
        """
        for name in ("lease_expired.finish", "deadline.finish", "cancel_requested.claim"):
            with self.subTest(name):
                self.assertIsNotNone(replay(history(1, 1500), without(name)))

    def test_a_stopped_call_leaves_the_store_as_it_was(self) -> None:
        """Stopped at its first instruction a claim has not happened; not stopped it has, for both."""
        calls = [
            Call("submit", ("alice", "k1", "2026-08", 50, 3, 8, 4), 0),
            Call("claim", ("alice/k1", 10), 1, stop_at=1),
        ]
        self.assertIsNone(replay(calls))
        unapplied = [calls[0], Call("claim", ("alice/k1", 10), 1), Call("get", ("alice", "alice/k1"), 1)]
        self.assertIsNone(replay(unapplied))

    def test_an_agreeing_history_cannot_be_shrunk(self) -> None:
        """Shrinking what does not fail is a mistake and says so."""
        with self.assertRaises(ValueError):
            shrink([Call("get", ("alice", "alice/k1"), 0)])


class TheCommand(unittest.TestCase):
    """`python -m chapter10 simulate`, in this process."""

    def run_command(self, *arguments: str) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                code = simulate.main(arguments)
            except SystemExit as left:
                code = int(left.code or 0)
        return code, out.getvalue()

    def test_it_prints_what_was_checked(self) -> None:
        """The figure of a run: calls checked, disagreements."""
        checked = "calls checked 80, disagreements 0\n"
        for more in ((), ("--chapter",)):
            self.assertEqual((0, checked), self.run_command("--steps", "40", "--runs", "2", *more))

    def test_sizes_out_of_bounds_are_usage_errors(self) -> None:
        """Exit 2 for no steps and for no runs."""
        self.assertEqual(2, self.run_command("--steps", "0")[0])
        self.assertEqual(2, self.run_command("--runs", "0")[0])


class TheModel(unittest.TestCase):
    """The yardstick itself, on the chapter's scenes."""

    def test_it_refuses_the_late_worker_of_the_chapter(self) -> None:
        """Claimed at 1 for 2, claimed again at 3, delivered at 4 by both.

        Claims: C10-229.
        """
        model = Model()
        job = model.submit("alice", "k", "2026-08", 0, 100, 3, 20, 20)

        self.assertEqual(1, model.claim(job, 1, 2))
        self.assertEqual(2, model.claim(job, 3, 10))
        with self.assertRaises(Refused) as refused:
            model.finish(job, 1, {}, 4)
        self.assertEqual("stale_attempt", refused.exception.code)
        self.assertTrue(model.finish(job, 2, {}, 4))

    def test_it_retries_when_the_chapter_says_so(self) -> None:
        """Failed at 2, wait 3: nothing at 4, the second attempt at 5, and then no more.

        Claims: C10-201.
        """
        model = Model()
        job = model.submit("alice", "k", "2026-08", 0, 100, 2, 20, 20)
        model.claim(job, 1, 10)

        self.assertEqual("queued", model.fail(job, 1, "temporary", 2, 3))
        self.assertIsNone(model.claim(job, 4, 10))
        self.assertEqual(2, model.claim(job, 5, 10))
        self.assertEqual("failed", model.fail(job, 2, "temporary", 6, 3))
