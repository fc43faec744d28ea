"""The job store under real processes: races for one file, and a kill before each statement of each write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import unittest
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Final

from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError
from chapter10.jobs import JobStore
from chapter10.tests.forked import start_module
from chapter10.tests.job_checker import contents, violations
from chapter10.tests.job_killed import GOT_THROUGH, OPENING, WHOLE_LIFE, whole_life
from chapter10.tests.job_support import AUGUST, REPORT, WRITES, JobTestCase, Write, writes_of
from chapter10.tests.overlapping import overlapping
from chapter10.tests.support import FolderTestCase, also_on

DELIVERIES: Final = frozenset({"renew", "progress", "finish", "fail"})


class RaceTestCase(JobTestCase):
    def race(self, verb: str, racers: int, count: int = 0, *, starts: int = 1) -> list[Any]:
        """Start so many processes, let them go at once (so many times), and return what each of them got.

        The processes are forked where the system can, which spares each the start of an interpreter.
        """
        given = (self.make.__name__, verb, str(self.path))
        children = [
            start_module("chapter10.tests.job_racer", [*given, str(number), str(count)]) for number in range(racers)
        ]
        try:
            for _ in range(starts):
                for child in children:
                    assert child.stdout
                    self.assertEqual("ready\n", child.stdout.readline())
                for child in children:
                    assert child.stdin
                    child.stdin.write("go\n")
                    child.stdin.flush()
            answers = []
            for child in children:
                out, errors = child.communicate(timeout=100)
                self.assertEqual((0, ""), (child.returncode, errors))
                answers.append(json.loads(out))
            return answers
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.communicate()

    def submit_all(self, count: int, owners: int = 1) -> None:
        for number in range(owners):
            owner = f"owner-{number}" if owners > 1 else "alice"
            for index in range(count // owners):
                self.store.submit(owner, f"key-{index}", AUGUST, now=0, capacity=10_000)


class Turns(RaceTestCase):
    make = LivingStore

    def test_six_processes_claim_six_hundred_jobs(self) -> None:
        """Each job is handed out once, at attempt 1, and no fault of the database reaches anybody.

        Claims: C10-154, C10-227.
        """
        self.submit_all(600, owners=3)
        answers = self.race("claim_next", 6)
        claims = sorted(tuple(claim) for answer in answers for claim in answer)
        self.assertEqual([(job_id, 1) for job_id in range(1, 601)], claims)


@also_on(LivingStore)
class Races(RaceTestCase):
    def test_six_processes_ask_for_the_same_jobs(self) -> None:
        """Of six claims of one job by its number, one gets it.

        Claims: C10-154.
        """
        self.submit_all(60)
        answers = self.race("claim_each", 6, 60)
        claims = sorted(tuple(claim) for answer in answers for claim in answer)
        self.assertEqual([(job_id, 1) for job_id in range(1, 61)], claims)

    def test_four_processes_run_a_hundred_lives_each(self) -> None:
        """Four hundred jobs from submit to finish on one file: all succeed, none twice, no lock error.

        Claims: C10-154, C10-237.
        """
        answers = self.race("live", 4, 100)
        ids = [job_id for answer in answers for job_id in answer]
        self.assertEqual(400, len(set(ids)))
        self.assertEqual([], violations(self.path, accepted=ids, capacity=4))
        counts = self.store.db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
        self.assertEqual([("succeeded", 400)], counts)

    def test_twelve_processes_open_one_new_file_at_once(self) -> None:
        """One makes the tables, the others wait for it, and each can submit."""
        self.path = self.folder / "new.db"
        answers = self.race("open", 12)
        self.assertEqual(list(range(1, 13)), sorted(answer[0] for answer in answers))
        self.assertEqual([], violations(self.path, accepted=range(1, 13)))

    def test_the_capacity_holds_under_a_race(self) -> None:
        """Six processes submit thirty each to fifty places: fifty get one, the others leave no trace.

        Claims: C10-288.
        """
        answers = [answer for racer in self.race("submit", 6, 30) for answer in racer]
        self.assertEqual({"queue_full": 130}, Counter(answer for answer in answers if type(answer) is str))
        self.assertEqual(list(range(1, 51)), sorted(answer for answer in answers if type(answer) is int))
        self.assertEqual([], violations(self.path, capacity=50))
        self.assertEqual((50, 50), (len(self.contents()["jobs"]), len(self.contents()["events"])))

    def test_the_same_keys_from_four_processes_are_the_same_jobs(self) -> None:
        """Everybody gets the one id of each key.

        Claims: C10-144, C10-221.
        """
        answers = self.race("submit_same", 4, 40)
        self.assertEqual([answers[0]] * 4, answers)
        self.assertEqual(40, len(set(answers[0])))

    def test_cancel_and_finish_race_and_one_of_them_wins(self) -> None:
        """Each job is succeeded with its receipt or cancelled without one, and both callers were told so.

        Claims: C10-213.
        """
        self.submit_all(40)
        for job_id in range(1, 41):
            self.claim(job_id, lease=50)
        cancelled, finished = self.race("cancel_or_finish", 2, 40, starts=41)
        for job_id, cancel, finish in zip(range(1, 41), cancelled, finished, strict=True):
            state, receipts = self.state(job_id), self.store.receipt_count(job_id)
            if finish:
                self.assertEqual(("succeeded", 1, "succeeded"), (state, receipts, cancel))
            else:
                self.assertEqual(("cancelled", 0, "cancel_requested"), (state, receipts, cancel))

    def test_nobody_writes_between_the_look_and_the_write_of_another(self) -> None:
        """While one store is inside a claim, another that does not wait is told `store_busy`; then both work.

        Claims: C10-153, C10-154.
        """
        job_id = self.submit()
        other = self.open(busy_seconds=0)
        codes = []

        def clock_while_the_lock_is_held() -> float:
            try:
                other.submit("bob", "k", AUGUST, now=0)
            except StoreError as error:
                codes.append(error.code)
            return 1

        self.assertEqual(1, self.store.claim(job_id, now=clock_while_the_lock_is_held))
        self.assertEqual(["store_busy"], codes)
        self.assertEqual(2, other.submit("bob", "k", AUGUST, now=0))


@also_on(LivingStore)
@unittest.skipUnless(hasattr(os, "fork") and hasattr(signal, "SIGKILL"), "no fork and no SIGKILL on this system")
class Kills(FolderTestCase):
    """A process is killed with a write under way; another opens the file afterwards."""

    make: ClassVar[Any] = JobStore

    def test_a_kill_before_any_statement_leaves_all_or_nothing(self) -> None:
        """For each write of a worker and each N: SIGKILL before the N-th statement; the file is as before or as
        after, the checker finds nothing, and the same call then works.

        Claims: C10-131, C10-138, C10-184, C10-237.
        """
        self.kill_each(write for write in writes_of(self.make) if write.name.split()[0] in DELIVERIES)

    def test_a_kill_in_a_claim_leaves_all_or_nothing(self) -> None:
        """The same for each way in which a claim writes."""
        self.kill_each(write for write in writes_of(self.make) if write.name.split()[0] == "claim")

    def test_a_kill_in_a_write_of_anybody_else_leaves_all_or_nothing(self) -> None:
        """And for submits, cancels and the upkeep."""
        self.kill_each(write for write in writes_of(self.make) if write.name.split()[0] not in DELIVERIES | {"claim"})

    def kill_each(self, writes: Iterable[Write]) -> None:
        for write in writes:
            if self.make is LivingStore and write in WRITES and write.name != "finish":
                continue  # the chapter's own statements, with which the chapter's store was killed
            start = self.folder / "start.db"
            with self.make(start) as store:
                write.prepare(store)
            path = self.folder / "killed.db"
            shutil.copyfile(start, path)
            before = contents(path)
            number, killed = 0, True
            while killed:
                number += 1
                shutil.copyfile(start, path)
                killed = self.run_and_kill(number, path, write.name)
                after = contents(path)
                with self.subTest(write.name, statement=number):
                    self.assertEqual([], violations(path))
                    if killed:
                        self.assertEqual(before, after)
                    with self.make(path) as store:
                        self.assertEqual(write.answer if killed else write.repeated, write.call(store))
                    self.assertEqual([], violations(path))
                self.remove(path)
            self.assertGreater(number, 3)
            self.remove(start)

    def test_a_kill_right_after_the_commit_loses_nothing(self) -> None:
        """What was answered for is there, although the process ended without closing anything."""
        path = self.folder / "jobs.db"
        self.assertFalse(self.run_and_kill(10**9, path, WHOLE_LIFE))
        with self.make(path) as store:
            self.assertEqual(REPORT, store.result("alice", 1)["data"])
        self.assertEqual([], violations(path, accepted=[1]))

    def test_a_kill_while_the_file_is_made_leaves_a_file_that_can_be_made(self) -> None:
        """SIGKILL before each statement of the first opening; the next opening makes a whole store.

        Claims: C10-149.
        """
        number, killed = 0, True
        while killed:
            number += 1
            path = self.folder / f"{number}.db"
            killed = self.run_and_kill(number, path, OPENING)
            with self.subTest(statement=number), self.make(path) as store:
                whole_life(store)
            self.assertEqual([], violations(path, accepted=[1]))
        self.assertGreater(number, 12)

    def run_and_kill(self, number: int, path: Path, call: str) -> bool:
        """Make a call in a process that dies before its `number`-th statement; say whether it did.

        A process that got through dies as well, right after, with everything open.
        """
        child = start_module("chapter10.tests.job_killed", [self.make.__name__, call, str(path), str(number)])
        self.assertEqual(("", ""), child.communicate())
        self.assertIn(child.returncode, (-signal.SIGKILL, GOT_THROUGH))
        return child.returncode != GOT_THROUGH

    def remove(self, path: Path) -> None:
        for name in self.folder.glob(f"{path.name}*"):
            name.unlink()


load_tests = overlapping(Turns, Races, Kills)


if __name__ == "__main__":
    unittest.main()
