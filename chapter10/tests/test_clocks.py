"""Three clocks, side by side: each runs out once, and only two of them have anything to do with the job."""

from __future__ import annotations

import asyncio
import unittest
from pathlib import Path
from typing import Any

from chapter10.canonical import canonical
from chapter10.companions.work.living_store import LivingStore
from chapter10.lab.effect_scenes.clocks import ATTEMPT_SECONDS, DEADLINE_SECONDS, GROUP, WAIT_SECONDS, clocks_experiment
from chapter10.lab.evidence.evidence import Scene
from chapter10.tests.support import FolderTestCase, ManualClock


class ClocksTestCase(FolderTestCase):
    """The experiment group `clocks`."""

    evidence: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.evidence = clocks_experiment()

    def clock(self, name: str) -> dict[str, Any]:
        (found,) = (clock for clock in self.evidence["clocks"] if clock["clock"] == name)
        return dict(found)

    def test_the_numbers_are_those_of_the_chapter(self) -> None:
        """Five seconds, ten seconds, one minute.

        Claims: C10-186.
        """
        self.assertEqual((WAIT_SECONDS, ATTEMPT_SECONDS, DEADLINE_SECONDS), (5, 10, 60))
        self.assertEqual(list(self.evidence["limits"].values()), [5, 10, 60])

    def test_the_callers_wait_does_nothing_to_the_job(self) -> None:
        """It runs out at five while the job is running; not a byte changes, and the job succeeds later.

        Claims: C10-190, C10-191, C10-193.
        """
        wait = self.clock("caller_wait")
        self.assertEqual((wait["noticed_at"], wait["state_then"], wait["code"]), (5, "running", None))
        self.assertEqual(wait["state_at_the_end"], "succeeded")
        self.assertIs(self.evidence["wait_changed_the_store"], False)

    def test_an_attempt_that_takes_too_long_is_one_attempt(self) -> None:
        """It is noticed at the first look after ten seconds; the job waits for its next attempt and succeeds."""
        attempt = self.clock("attempt")
        self.assertEqual((attempt["noticed_at"], attempt["code"]), (12, "attempt_limit_exceeded"))
        self.assertEqual((attempt["state_then"], attempt["state_at_the_end"]), ("queued", "succeeded"))
        self.assertEqual(attempt["attempts"], 2)

    def test_the_deadline_ends_the_job(self) -> None:
        """At sixty, not after it, and for good.

        Claims: C10-187, C10-188.
        """
        deadline = self.clock("deadline")
        self.assertEqual((deadline["noticed_at"], deadline["code"]), (60, "deadline_exceeded"))
        self.assertEqual((deadline["state_then"], deadline["state_at_the_end"]), ("failed", "failed"))

    def test_no_code_is_called_timeout(self) -> None:
        """Four different ends have four different names, and the lease is none of the clocks.

        Claims: C10-185.
        """
        self.assertEqual(self.evidence["codes"], ["attempt_limit_exceeded", "deadline_exceeded", "lease_expired"])
        self.assertNotIn("timeout", canonical(self.evidence))
        self.assertEqual(self.evidence["lease"], {"code": "lease_expired", "state_then": "running", "next_attempt": 2})

    def test_a_person_reads_two_different_sentences(self) -> None:
        """Not waiting any longer is not a failure.

        Claims: C10-194.
        """
        self.assertEqual(self.clock("caller_wait")["text"], "暂时没有等到结果，作业仍在运行，可以稍后查看")
        self.assertEqual(self.clock("deadline")["text"], "作业已超过截止时间，未提交本地结果")

    def test_the_pictures_show_what_happened(self) -> None:
        """Four parts, each with its moments, and the changes of state that the jobs went through."""
        scene = Scene()
        self.assertEqual(GROUP.run(scene), self.evidence)
        self.assertEqual([len(events) for _, events in scene.parts], [3, 2, 1, 2])
        self.assertEqual(scene.parts[3][1][0].detail, "refused: lease_expired")
        self.assertIn(("running", "failed", "failed, deadline_exceeded"), scene.transitions)

    def test_the_evidence_is_the_same_each_time(self) -> None:
        """Logical time only."""
        self.assertEqual(canonical(clocks_experiment()), canonical(self.evidence))


class TheLimitOfAQuery(unittest.TestCase):
    """Where the limit on waiting is put, and where not."""

    def test_wait_for_cancels_the_work_and_waits_for_its_clean_up(self) -> None:
        """`asyncio.wait_for` ends what it waits for, and raises only after the clean-up: no way to wait for a job.

        Claims: C10-192.
        """

        async def scene() -> list[str]:
            order: list[str] = []
            clean = asyncio.Event()

            async def work() -> None:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    order.append("cancelled")
                    await clean.wait()
                    order.append("cleaned up")
                    raise

            async def caller() -> None:
                try:
                    await asyncio.wait_for(work(), 0.001)
                except TimeoutError:
                    order.append("TimeoutError")

            waiting = asyncio.create_task(caller())
            while "cancelled" not in order:
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            order.append("still waiting" if not waiting.done() else "gone")
            clean.set()
            await waiting
            return order

        self.assertEqual(asyncio.run(scene()), ["cancelled", "still waiting", "cleaned up", "TimeoutError"])


class WaitingForAJob(FolderTestCase):
    """The store's own `wait`."""

    def test_the_wait_ends_and_the_job_goes_on(self) -> None:
        """The same job is waited for twice: once in vain, once until its end.

        Claims: C10-193.
        """
        clock = ManualClock()
        with LivingStore(Path(self.folder, "jobs.db")) as store:
            job_id = store.submit("alice", "k", {"month": "2026-08"}, now=0)
            attempt = store.claim(job_id, now=0, lease=50)
            assert attempt is not None
            self.assertEqual(store.wait("alice", job_id, 5, clock=clock, sleep=clock.sleep)["state"], "running")

            def sleep(seconds: float) -> None:
                clock.sleep(seconds)
                store.finish(job_id, attempt, {}, now=clock)

            self.assertEqual(store.wait("alice", job_id, 5, clock=clock, sleep=sleep)["state"], "succeeded")
