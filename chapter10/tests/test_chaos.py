"""The chaos run and the two-terminal lab, bounded: real processes, killed, frozen and continued."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import unittest
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from chapter10.companions.operating.jobs_command import main as jobs
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker_log import WorkerLog, log_path
from chapter10.jobs import JobError
from chapter10.lab.histories.job_checker import violations
from chapter10.lab.processes import chaos, two_terminals
from chapter10.lab.processes.chaos_worker import CHAOS_WORK, KINDS, LET_IN, Work
from chapter10.tests.support import FolderTestCase, run_python

POSIX = hasattr(signal, "SIGSTOP")


class Meanwhile:
    """The three real runs, which mostly wait: all at once in threads, each in a folder of its own.

    Their tests wait for what has come of them.
    """

    chaos: Future[chaos.Chaos]
    story: Future[two_terminals.Story]
    program: Future[subprocess.CompletedProcess[str]]
    chaos_folder: Path
    story_folder: Path


def setUpModule() -> None:
    folder = Path(unittest.enterModuleContext(tempfile.TemporaryDirectory(prefix="chapter10-")))
    pool = unittest.enterModuleContext(ThreadPoolExecutor(3))
    Meanwhile.chaos_folder, Meanwhile.story_folder = folder / "chaos", folder / "story"
    Meanwhile.chaos_folder.mkdir()
    Meanwhile.story_folder.mkdir()
    if POSIX:
        Meanwhile.story = pool.submit(two_terminals.play, Meanwhile.story_folder, exports=8)
    Meanwhile.chaos = pool.submit(
        chaos.run_chaos, Meanwhile.chaos_folder, seconds=0, workers=3, seed=11, steps=30, lease=0.25
    )
    command = ["-m", "chapter10.lab.processes.chaos", "--seconds", "0.1", "--workers", "1", "--json"]
    Meanwhile.program = pool.submit(run_python, command)


class ChaosTestCase(FolderTestCase):
    """A short run, looked at from all sides."""

    def test_nothing_is_lost_and_nothing_is_doubled(self) -> None:
        """Thirty kills, stops, cancels and repeats; then every accepted job has ended, once.

        The command makes longer runs, as long as one likes.

        Claims: C10-227.
        """
        run = Meanwhile.chaos.result()
        figures = run.figures
        self.assertEqual(run.wrong, [])
        self.assertEqual((figures["lost"], figures["duplicated"]), (0, 0))
        self.assertGreater(figures["accepted"], 10)
        self.assertEqual(figures["accepted"], figures["ended"])
        self.assertEqual(figures["receipts"], figures["by_state"]["succeeded"])
        self.assertLess({"repeat", "conflict", "cancel", "kill", "stop", "damage", "ahead"}, set(figures["done"]))
        path = Meanwhile.chaos_folder / "jobs.db"
        self.assertEqual(violations(path, accepted=range(1, figures["accepted"] + 1)), [])
        with LivingStore(path) as store:
            claims = store.db.execute("SELECT sum(attempt) FROM jobs").fetchone()[0]
            self.assertEqual(store.stats(now=0), {})
        self.assertEqual(figures["attempts"], claims)

    def test_what_is_wrong_is_found_and_said(self) -> None:
        """A receipt that vanished, a job that never ended, a worker that died of itself: each is a line, and exit 1."""

        def broken(folder: Path, **options: object) -> chaos.Chaos:
            run = chaos.Chaos()
            run.figures = {"accepted": 1, "done": {"submit": 1}}
            run.wrong = ["a job was lost"]
            return run

        for arguments, expected in ((["--seconds", "1"], "[X] a job was lost"), (["--json"], '"a job was lost"')):
            out = io.StringIO()
            with mock.patch.object(chaos, "run_chaos", broken), contextlib.redirect_stdout(out):
                self.assertEqual(chaos.main(arguments), 1)
            self.assertIn(expected, out.getvalue())

    def test_the_examination_sees_a_lost_and_a_doubled_job(self) -> None:
        """The figures are counted from the file and not from what was meant."""
        path = self.folder / "jobs.db"
        with mock.patch.object(chaos._Run, "_start"):
            run = chaos._Run(self.folder, 0, random.Random(1), 0.5, lambda: 0.0, lambda seconds: None)
        (self.folder / "errors.txt").write_text("Traceback", encoding="utf-8", newline="\n")
        with LivingStore(path, [CHAOS_WORK]) as store:
            args = {"kind": "plain", "steps": 1}
            for key in ("a", "b"):
                store.submit("alice", key, args, now=0, tool="chaos.work")
            store.claim(1, now=0)
            store.finish(1, 1, {}, now=1)
            store.claim(2, now=0)
            store.fail(2, 1, LET_IN, now=1)
        run._known = {("alice", "a"): (1, args), ("alice", "c"): (9, args)}
        with WorkerLog(log_path(path)) as log:
            log.refused("alice", "w", 1, 1, "finish", "stale_attempt", at=0)
        run.examine()
        self.assertEqual((run.chaos.figures["lost"], run.chaos.figures["duplicated"]), (1, 1))
        self.assertEqual(run.chaos.figures["late_deliveries_refused"], 1)
        said = " ".join(run.chaos.wrong)
        for word in (
            "job 9 was accepted and is lost",
            "a worker said: Traceback",
            "a job was lost",
            "a child of a fork",
        ):
            self.assertIn(word, said)

    def test_who_is_forked_and_what_lies_in_no_folder_is_refused(self) -> None:
        """Both are looked at: where the store lets a child in, or takes a job for a removed file, it is said."""
        if hasattr(os, "fork"):
            work = Work(str(self.folder / "jobs.db"), 0.1, lambda seconds: None)
            self.assertFalse(work._is_refused(), "nothing is open here, so a child may come in")
            with LivingStore(self.folder / "jobs.db"):
                self.assertTrue(work._is_refused())
        with mock.patch.object(chaos._Run, "_start"):
            run = chaos._Run(self.folder, 0, random.Random(1), 0.5, lambda: 0.0, lambda seconds: None)
        with LivingStore(run.path) as store:
            self.assertEqual((1, []), (run._delete(store), run.chaos.wrong))
            with mock.patch.object(run, "_ask"):
                run._delete(store)
        self.assertEqual(["a job was accepted into a file that is gone"], run.chaos.wrong)

    def test_usage(self) -> None:
        """No worker and no time is no run."""
        for arguments in (["--workers", "0"], ["--seconds", "0"], ["--seconds", "nan"], ["--workers", "17"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as caught:
                chaos.main(arguments)
            self.assertEqual(caught.exception.code, 2)

    def test_the_work_is_checked_at_the_door(self) -> None:
        """A kind of work that no worker knows is not accepted."""
        with LivingStore(self.folder / "jobs.db", [CHAOS_WORK]) as store:
            for args in ({}, {"kind": "other", "steps": 1}, {"kind": KINDS[0], "steps": 0}):
                with self.assertRaises(JobError):
                    store.submit("alice", "k", args, now=0, tool="chaos.work")

    def test_the_program_runs(self) -> None:
        """From the command line, with JSON."""
        child = Meanwhile.program.result()
        self.assertEqual(child.returncode, 0, child.stdout + child.stderr)
        self.assertEqual(json.loads(child.stdout)["wrong"], [])


class TwoTerminals(unittest.TestCase):
    """The lab that a reader does by hand, played for real."""

    @unittest.skipUnless(POSIX, "needs SIGSTOP")
    def test_exports_survive_a_kill_and_a_freeze(self) -> None:
        """Every job ends once, the late delivery is refused and shows in the statistics, and the watcher saw the truth.

        Eight of them here; the command plays twenty.

        Claims: C10-226, C10-227, C10-228.
        """
        story = Meanwhile.story.result()
        self.assertEqual(story.wrong, [])
        with LivingStore(Meanwhile.story_folder / "jobs.db") as store:
            jobs = store.list_jobs("alice", limit=100)
            self.assertEqual([job["state"] for job in jobs], ["succeeded"] * 8)
            self.assertEqual(store.db.execute("SELECT count(*) FROM receipts").fetchone()[0], 8)
            for job_id, attempt in (story.killed, story.frozen):
                self.assertEqual(store.get("alice", job_id)["attempt"], attempt + 1)
        self.assertGreaterEqual(story.stats["totals"]["late_deliveries_refused"], 1)
        self.assertIn({"owner": "alice", "verb": "finish", "code": "stale_attempt", "count": 1}, story.stats["refused"])
        text = "\n".join(story.lines)
        self.assertIn("refused, stale_attempt", text)
        self.assertIn("claims, attempt 2", text)
        self.assertTrue(text.isascii())
        tables = [path.name for path in (Meanwhile.story_folder / "jobs.db.results").iterdir() if path.suffix == ".csv"]
        self.assertEqual(len(tables), 8)

    def test_what_to_type_by_hand(self) -> None:
        """The commands that it prints exist, and need no characters beyond ASCII."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(two_terminals.main(["--by-hand"]), 0)
        self.assertIn("kill -STOP", out.getvalue())
        self.assertTrue(out.getvalue().isascii())
        self.assertNotEqual(*two_terminals.BY_HAND)
        verbs = set(re.findall(r"chapter10 jobs (\w+)", out.getvalue()))
        self.assertEqual(verbs, {"work", "submit", "watch", "status", "stats", "list"})
        for verb in verbs:
            with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(SystemExit) as caught:
                jobs([verb, "--help"])
            self.assertEqual(caught.exception.code, 0)

    def test_a_system_that_cannot_freeze_says_so(self) -> None:
        """Exit code 3: the machine lacks something."""
        without = mock.Mock(spec=[])
        with mock.patch.object(two_terminals, "signal", without), contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(two_terminals.main([]), 3)
        self.assertIn("--by-hand", err.getvalue())

    def test_a_story_that_went_wrong_is_exit_code_one(self) -> None:
        """Each thing that does not hold is a line."""
        story = two_terminals.Story(lines=["x"], wrong=["watch lied"])
        out = io.StringIO()
        with mock.patch.object(two_terminals, "play", return_value=story), contextlib.redirect_stdout(out):
            self.assertEqual(two_terminals.main([]), 1 if POSIX else 3)
        if os.name == "posix":
            self.assertIn("[X] watch lied", out.getvalue())
