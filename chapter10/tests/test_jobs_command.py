"""The command line of the job system: what is typed, what is said, and the exit code."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import sys
import time
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.companions.operating import jobs_command, jobs_top
from chapter10.companions.operating.jobs_command import default_database, main
from chapter10.companions.operating.jobs_crew import run_crew, worker_arguments
from chapter10.companions.operating.jobs_watch import Bar, bar_text, event_line, watch
from chapter10.companions.operating.jobs_words import WORDS, speaker
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker_log import WorkerLog, log_path
from chapter10.database import StoreError
from chapter10.lab.histories.job_checker import contents
from chapter10.tests.job_support import AUGUST, REPORT, LivingTestCase
from chapter10.tests.support import TOP, ManualClock, run_python, start_python

EN = speaker("en")
SALES = (
    "order_id,month,amount_cents,day\nA,2026-08,1000,2026-08-01\nB,2026-08,2000,2026-08-02\n"
    "C,2026-08,3000,2026-08-02\nD,2026-07,9900,2026-07-31\n"
)


VERBS = (
    "submit",
    "work",
    "status",
    "watch",
    "events",
    "cancel",
    "result",
    "list",
    "sweep",
    "prune",
    "compact",
    "backup",
    "release",
    "retry",
    "pause",
    "resume",
    "top",
    "stats",
)


class Terminal(io.StringIO):
    """A console that can be told what it is."""

    def __init__(self, encoding: str = "utf-8", tty: bool = False) -> None:
        super().__init__()
        self._encoding = encoding
        self._tty = tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


class CommandTestCase(LivingTestCase):
    """Commands in this process, by a clock moved by hand, on a store in the test's own folder."""

    def setUp(self) -> None:
        super().setUp()
        self.sales = self.folder / "orders.csv"
        self.sales.write_text(SALES, encoding="utf-8", newline="\n")
        self.clock = ManualClock(1000.0)
        self.out = Terminal()
        self.errors = ""
        self.enterContext(mock.patch.dict(os.environ, {"CHAPTER10_LANG": "en"}))

    def run_jobs(self, *arguments: object, db: bool = True, terminal: Terminal | None = None) -> int:
        """Run one command; what it said is in `self.out` and `self.errors`."""
        self.out = terminal or Terminal()
        errors = io.StringIO()
        given = [str(argument) for argument in arguments] + (["--db", str(self.path)] if db else [])
        with contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(errors):
            try:
                code = main(given, clock=self.clock, sleep=self.clock.sleep)
            except SystemExit as left:
                code = int(left.code or 0)
        self.errors = errors.getvalue()
        return code

    @property
    def said(self) -> str:
        return self.out.getvalue()

    def json(self, *arguments: object, code: int = 0) -> Any:
        self.assertEqual(self.run_jobs(*arguments, "--json"), code, self.errors)
        self.assertEqual(self.errors, "")
        return json.loads(self.said)

    def submit_export(self, *options: object) -> int:
        answer = self.json("submit", "--month", "2026-08", "--sales", self.sales, *options)
        return int(answer["id"])

    def work(self, *options: object) -> int:
        return self.run_jobs("work", "--drain", *options)


class Lives(CommandTestCase):
    """From submit to result."""

    def test_an_export_from_submit_to_result(self) -> None:
        """Every verb of a caller, in the order in which one needs them, in JSON.

        Claims: C10-244, C10-251.
        """
        job_id = self.submit_export("--owner", "alice", "--key", "august")
        self.assertEqual(self.json("status", job_id, "--owner", "alice")["state"], "queued")
        refused = self.json("result", job_id, "--owner", "alice", code=1)
        self.assertEqual(refused["error"], "not_ready")
        self.assertEqual(self.work(), 0)
        status = self.json("status", job_id, "--owner", "alice")
        self.assertEqual(set(status), {"id", "state", "attempt", "done", "total", "error"})
        self.assertEqual((status["state"], status["done"], status["total"]), ("succeeded", 4, 4))
        result = self.json("result", job_id, "--owner", "alice")
        self.assertEqual((result["artifact_id"], result["data"]["total_cents"]), ("report-1", 6000))
        self.assertTrue(Path(result["folder"], result["data"]["tables"][0]["file"]).is_file())
        events = self.json("events", job_id, "--owner", "alice", "--after", 2)
        self.assertEqual([event["kind"] for event in events][-1], "succeeded")
        self.assertEqual(min(event["seq"] for event in events), 3)
        self.assertEqual([job["id"] for job in self.json("list", "--owner", "alice")], [job_id])
        self.assertEqual(self.json("cancel", job_id, "--owner", "alice", code=1)["state"], "succeeded")

    def test_a_person_reads_lines(self) -> None:
        """The same without JSON; the table is printed only after it was checked."""
        self.assertEqual(self.run_jobs("submit", "--month", "2026-08", "--sales", self.sales), 0)
        self.assertTrue(self.said.startswith("job 1: queued, attempt 0, 0/0, key sales-export-"))
        self.work()
        self.assertIn("job 1 attempt 1: succeeded", self.said)
        self.run_jobs("status", 1)
        self.assertEqual(self.said, "job 1: succeeded, attempt 1, 4/4\ndone, and the result can be read\n")
        self.run_jobs("result", 1)
        self.assertIn("2026-08: 3 rows, 6000 cents", self.said)
        self.assertEqual(self.run_jobs("result", 1, "--table", "day"), 0)
        self.assertEqual(self.said, "day,row_count,total_cents\n2026-08-01,1,1000\n2026-08-02,2,5000\n")
        self.assertEqual(self.run_jobs("result", 1, "--table", "product"), 1)
        self.assertEqual(self.errors, "table_missing: the result has no table by product\n")

    def test_a_table_in_json_is_the_bytes_that_the_digest_is_of(self) -> None:
        """With `--json` every answer is JSON, a table as well."""
        self.submit_export()
        self.work()
        table = self.json("result", 1, "--table", "day")
        self.assertEqual(table["by"], "day")
        self.assertEqual(hashlib.sha256(table["content"].encode()).hexdigest(), table["sha256"])

    def test_the_result_of_another_operation_is_shown_as_it_is(self) -> None:
        """A store may hold other results, whatever they call `tables`; there is no table to print then."""
        for number, result in enumerate(({"tables": 3}, {"tables": [{}]}, [1], {"tables": [{"by": "day"}]}), 1):
            job_id, attempt = self.running(f"k{number}")
            self.store.finish(job_id, attempt, result, now=1)
            self.assertEqual(self.run_jobs("result", job_id, "--owner", "alice"), 0)
            self.assertIn(json.dumps(result), self.said)
            self.assertEqual(self.run_jobs("result", job_id, "--owner", "alice", "--table", "day"), 1)

    def test_a_console_without_the_characters_gets_the_same_in_english(self) -> None:
        """Where the locale is Chinese and the console is not, nothing is left out."""
        self.submit_export()
        chinese = {"CHAPTER10_LANG": "", "LC_ALL": "zh_CN.UTF-8"}
        for encoding, said in (
            ("cp1252", "job 1: queued, attempt 0, 0/0\naccepted, and waiting\n"),
            ("gbk", "作业 1：queued，第 0 次尝试，0/0\n已受理，等待处理\n"),
        ):
            with mock.patch.dict(os.environ, chinese):
                self.run_jobs("status", 1, terminal=Terminal(encoding))
            self.assertEqual(self.said, said)

    def test_a_lost_answer_is_asked_for_again(self) -> None:
        """The same key gives the same job; the same file and month without one are content and no intent, so
        they give a new job, and those that did the same before are named.

        Claims: C10-222.
        """
        self.assertEqual([self.submit_export("--key", "mine") for _ in range(2)], [1, 1])
        submit = ("submit", "--month", "2026-08", "--sales", self.sales)
        self.assertEqual(self.submit_export(), 2)
        self.run_jobs("cancel", 2)
        answer = self.json(*submit)
        self.assertEqual((answer["id"], answer["state"], answer["earlier"]), (3, "queued", [2]))
        self.assertEqual(self.submit_export("--key", answer["action_key"]), 3)
        self.run_jobs(*submit)
        self.assertIn("the same content was asked for before: job 2: cancelled", self.said)

    def test_owners_do_not_see_each_other(self) -> None:
        """What is not yours looks like what is not there.

        Claims: C10-247.
        """
        job_id = self.submit_export("--owner", "alice")
        self.work()
        before = contents(self.path)
        for verb in ("status", "result", "events", "watch", "cancel"):
            with self.subTest(verb=verb):
                self.assertEqual(self.json(verb, job_id, "--owner", "bob", code=1)["error"], "not_found")
                self.assertEqual(self.json(verb, 99, "--owner", "bob", code=1)["error"], "not_found")
        self.assertEqual(self.json("list", "--owner", "bob"), [])
        self.assertEqual(contents(self.path), before)
        self.run_jobs("status", "--help", db=False)
        self.assertIn("trusted identity", " ".join(self.said.split()))

    def test_a_cancel_in_line_is_final_and_a_running_one_is_a_request(self) -> None:
        """The exit code says whether the cancel was taken.

        Claims: C10-208, C10-209, C10-215.
        """
        self.submit_export("--key", "a")
        self.assertEqual(self.json("cancel", 1)["state"], "cancelled")
        self.submit_export("--key", "b")
        self.store.claim(2, now=self.clock)
        self.assertEqual(self.json("cancel", 2)["state"], "cancel_requested")

    def test_a_queue_that_is_full_is_wrong_and_not_usage(self) -> None:
        """Whoever typed it did nothing wrong."""
        self.submit_export("--key", "a")
        for options, code in ((("--capacity", 1), "queue_full"), (("--owner-capacity", 1), "owner_full")):
            answer = self.json("submit", "--month", "2026-08", "--sales", self.sales, "--key", "b", *options, code=1)
            self.assertEqual(answer["error"], code)


class Mistakes(CommandTestCase):
    """Exit code 2: what was typed, and nothing to start from."""

    def test_what_was_typed_wrong_is_usage(self) -> None:
        """One line of reason, nothing made, exit code 2."""
        before = contents(self.path)
        for arguments in (
            ("submit", "--month", "2026-13", "--sales", self.sales),
            ("submit", "--month", "2026-08", "--sales", self.folder / "none.csv"),
            ("submit", "--month", "2026-08", "--sales", self.sales, "--owner", ""),
            ("submit", "--month", "2026-08", "--sales", self.sales, "--max-attempts", 0),
            ("submit", "--month", "2026-08", "--sales", self.sales, "--deadline", "nan"),
            ("submit", "--month", "2026-08"),
            ("submit", "--month", "2026-08", "--sales", self.sales, "--key", ""),
            ("submit", "--month", "2026-08\udcff", "--sales", self.sales),
            ("work", "--lease", "-1"),
            ("work", "--jobs", "-1"),
            ("work", "--inputs", ""),
            ("status", 1, "--db", ""),
            ("events", 1, "--limit", 0),
            ("list", "--limit", 100000),
            ("prune", "--results-older", "x"),
            ("prune", "--results-older", 10, "--keys-older", 1),
            ("status", "one"),
            ("nothing",),
            (),
        ):
            with self.subTest(arguments=[str(argument)[-12:] for argument in arguments]):
                self.assertEqual(self.run_jobs(*arguments), 2)
                self.assertEqual(self.said, "")
                self.assertNotEqual(self.errors, "")
        self.assertEqual(contents(self.path), before)

    def test_to_look_for_a_job_makes_no_store(self) -> None:
        """Where there is no file, every verb but submit and work says so, and leaves none behind."""
        missing = self.folder / "none" / "jobs.db"
        for verb in (("status", 1), ("list",), ("stats",), ("sweep",), ("prune",), ("watch", 1)):
            with self.subTest(verb=verb[0]):
                self.assertEqual(self.run_jobs(*verb, "--db", missing, db=False), 2)
        self.assertFalse(missing.parent.exists())
        self.run_jobs("submit", "--month", "2026-08", "--sales", self.sales, "--db", missing, db=False)
        self.assertTrue(missing.exists())

    def test_a_file_whose_name_is_no_text_is_refused(self) -> None:
        """Its name cannot be stored, nor be part of the key."""
        odd = self.folder / "bad\udcff.csv"
        try:
            odd.write_text(SALES, encoding="utf-8", newline="\n")
        except (OSError, UnicodeEncodeError):
            self.skipTest("there can be no such name here")
        self.assertEqual(self.run_jobs("submit", "--month", "2026-08", "--sales", odd), 2)
        self.assertEqual(self.errors, "unreadable_file: the name of the file is not UTF-8\n")

    def test_a_folder_is_no_store(self) -> None:
        """The machine's word, also where its name has no last part."""
        for folder in (".", "/"):
            for verb in (("status", 1), ("work", "--drain")):
                self.assertEqual(self.run_jobs(*verb, "--db", folder, db=False), 3)
                self.assertTrue(self.errors.startswith("store_unavailable: "))

    def test_a_broken_store_is_the_machine(self) -> None:
        """Exit code 3, with the reason, in both forms."""
        self.store.close()
        self.path.unlink()
        broken = self.folder / "broken.db"
        broken.write_text("this is no database, and long enough to be sure of it" * 20, encoding="utf-8", newline="\n")
        self.assertEqual(self.run_jobs("status", 1, "--db", broken, db=False), 3)
        self.assertTrue(self.errors.startswith("store_unavailable: "))
        self.assertEqual(self.run_jobs("status", 1, "--json", "--db", broken, db=False), 3)
        self.assertEqual(json.loads(self.said)["error"], "store_unavailable")

    def test_the_default_store_lies_in_the_users_data_folder(self) -> None:
        """As each system has it, and as its variables say."""
        home = Path("home")
        for environment, platform, expected in (
            ({}, "linux", "home/.local/share/chapter10/jobs.db"),
            ({"XDG_DATA_HOME": str(self.folder)}, "linux", f"{self.folder.as_posix()}/chapter10/jobs.db"),
            ({"XDG_DATA_HOME": "not/absolute"}, "linux", "home/.local/share/chapter10/jobs.db"),
            ({}, "darwin", "home/Library/Application Support/chapter10/jobs.db"),
            ({}, "win32", "home/AppData/Local/chapter10/jobs.db"),
            ({"LOCALAPPDATA": "local"}, "win32", "local/chapter10/jobs.db"),
        ):
            self.assertEqual(default_database(environment, platform, home).as_posix(), expected)

    def test_without_db_the_default_is_used(self) -> None:
        """A submit and a status without `--db` meet in the same file."""
        environment = {"XDG_DATA_HOME": str(self.folder), "LOCALAPPDATA": str(self.folder), "HOME": str(self.folder)}
        submit = ["-m", "chapter10", "jobs", "submit", "--month", "2026-08", "--sales", str(self.sales)]
        self.assertEqual(run_python(submit, environment=environment).returncode, 0)
        status = run_python(["-m", "chapter10", "jobs", "status", "1", "--json"], environment=environment)
        self.assertEqual(json.loads(status.stdout)["state"], "queued")
        self.assertTrue(list(self.folder.rglob("chapter10/jobs.db")))


class Upkeep(CommandTestCase):
    """Sweep, prune, stats."""

    def test_sweep_ends_what_nobody_can_run(self) -> None:
        """The counts by reason."""
        self.submit_export("--deadline", 5)
        self.clock.advance(5)
        self.assertEqual(self.json("sweep")["deadline_exceeded"], 1)
        self.assertEqual(self.json("status", 1)["error"], "deadline_exceeded")

    def test_prune_removes_in_batches_results_first_then_keys_then_tables(self) -> None:
        """Old results go with their tables, the key still gives the old job; then the key goes too.

        Claims: C10-295.
        """
        for number in range(3):
            self.submit_export("--key", number)
        self.work()
        self.clock.advance(100)
        removed = self.json("prune", "--results-older", 50, "--keys-older", 500, "--limit", 1)
        self.assertEqual(removed, {"results": 3, "keys": 0, "files": 3})
        self.assertEqual(self.json("result", 1, code=1)["error"], "result_expired")
        self.assertEqual(self.submit_export("--key", 0), 1)
        self.clock.advance(1000)
        self.assertEqual(self.json("prune", "--results-older", 50, "--keys-older", 500)["keys"], 3)
        self.assertEqual(self.submit_export("--key", 0), 4)

    def test_stats_show_waits_expired_leases_and_refusals_per_owner(self) -> None:
        """What stands in line, what is held, what was refused."""
        self.submit_export("--key", "a", "--owner", "alice")
        self.submit_export("--key", "b", "--owner", "bob")
        self.store.claim(1, now=self.clock, lease=5)
        self.clock.advance(7)
        with WorkerLog(log_path(self.path)) as log:
            log.refused("alice", "w", 1, 1, "finish", "stale_attempt", at=1.0)
            log.refused("alice", "w", 1, 1, "renew", "stale_attempt", at=1.0)
        stats = self.json("stats")
        self.assertEqual(
            stats["totals"],
            {
                "queued": 1,
                "running": 1,
                "cancel_requested": 0,
                "expired": 1,
                "oldest_wait": 7.0,
                "late_deliveries_refused": 1,
                "late_calls_refused": 2,
            },
        )
        self.assertEqual(stats["owners"]["alice"]["expired"], 1)
        self.assertEqual(stats["refused"][0], {"owner": "alice", "verb": "finish", "code": "stale_attempt", "count": 1})
        self.run_jobs("stats")
        self.assertIn("late_deliveries_refused: 1\n", self.said)
        self.assertIn("oldest_wait: 7.0\n", self.said)

    def test_stats_of_a_quiet_store(self) -> None:
        """No job, no worker, no log."""
        self.assertEqual(self.json("stats")["totals"]["oldest_wait"], None)
        self.assertFalse(os.path.exists(log_path(self.path)))


class WhatOperatorsMeet(CommandTestCase):
    """Stores in memory, links, names that would make lines, clocks that were set back, files that do not shrink."""

    def test_a_store_that_ends_with_the_command_is_usage(self) -> None:
        """No job is accepted that is gone when the number is read."""
        submit = ("submit", "--month", "2026-08", "--sales", self.sales, "--db", ":memory:")
        self.assertEqual(self.run_jobs(*submit, db=False), 2)
        self.assertEqual(self.run_jobs("work", "--drain", "--db", ":memory:", db=False), 2)

    def test_a_link_to_a_store_is_that_store(self) -> None:
        """What was worked off by way of a link is read by the file's own name, tables and log too."""
        link = self.folder / "link.db"
        link.symlink_to(self.path)
        self.submit_export()
        self.assertEqual(self.run_jobs("work", "--drain", "--db", link, db=False), 0)
        self.assertEqual(self.run_jobs("result", 1, "--table", "day"), 0)
        self.assertEqual(log_path(link), log_path(self.path))

    def test_a_name_makes_no_line_of_its_own(self) -> None:
        """What somebody chose is shown with its control characters spelled out, on standard error too."""
        self.submit_export("--owner", "x\nqueued: 999\x1b[2J")
        self.run_jobs("stats")
        self.assertEqual([line for line in self.said.splitlines() if line.startswith("queued")], ["queued: 1"])
        self.assertIn("owner x\\nqueued: 999\\x1b[2J: queued 1", self.said)
        self.run_jobs("status", 1, "--db", f"{self.folder}/no\nsuch", db=False)
        self.assertEqual(self.errors.count("\n"), 1)

    def test_an_operator_releases_what_waits_for_a_wrong_clock(self) -> None:
        """After a step back a job would wait for an hour."""
        self.submit_export()
        self.clock.advance(-500)
        self.assertEqual(self.json("release", 1), {"id": 1, "released": True})
        self.assertEqual(self.work(), 0)
        self.assertEqual(self.json("status", 1)["state"], "succeeded")
        self.assertEqual(self.run_jobs("release", 1), 1)
        self.assertEqual(self.said, "job 1 was not waiting; nothing was changed\n")

    def test_prune_ends_when_nothing_is_left_and_says_how_the_file_shrinks(self) -> None:
        """However many batches that takes; `compact` then gives the room back."""
        for number in range(5):
            self.submit_export("--key", number)
        self.work()
        self.clock.advance(100)
        prune = ("prune", "--results-older", 1, "--keys-older", 1, "--limit", 1)
        self.run_jobs(*prune)
        self.assertIn("keys removed: 5\nfiles removed: 5\n", self.said)
        self.assertIn("`compact` gives the room back", self.said)
        self.assertEqual(set(self.json("compact")), {"before", "after"})
        self.run_jobs("compact")
        self.assertRegex(self.said, r"^[0-9]+ bytes before, [0-9]+ after\n$")

    def test_a_repeat_for_a_dead_job_says_so_and_what_to_do(self) -> None:
        """It is no acceptance; `retry` does the same once more and says who and why in the log."""
        self.submit_export("--key", "k", "--deadline", 5)
        self.clock.advance(5)
        self.assertEqual(self.work(), 1)
        submit = ("submit", "--month", "2026-08", "--sales", self.sales, "--key", "k")
        self.assertEqual(self.run_jobs(*submit), 4)
        self.assertIn("nothing new was accepted; `retry 1` or", self.said)
        batch = self.folder / "batch.jsonl"
        line = {"month": "2026-08", "sales": str(self.sales)}
        batch.write_text("".join(json.dumps({"key": key, **line}) + "\n" for key in ("k", "l")), encoding="utf-8")
        self.assertEqual(self.run_jobs("submit", "--from", batch), 4)
        self.assertRegex(self.said, "^job 1: failed, key k\njob 2: queued, key l\nnothing new was accepted; `retry 1`")
        self.store.cancel("local", 2)
        self.assertEqual(self.json("retry", 1, "--why", "took too long"), {"id": 3, "retry_of": 1})
        self.assertEqual(self.work(), 0)
        self.assertEqual(self.json("status", 3)["state"], "succeeded")
        self.run_jobs("events", 3, "--limit", 1)
        self.assertIn("queued (once more for job 1, by operator: took too long)", self.said)
        self.assertEqual(self.run_jobs("retry", 3, "--why", "x"), 1)

    def test_an_operator_lists_what_is_anybodys(self) -> None:
        """By owner, state, kind and age, with key and times."""
        self.submit_export("--owner", "alice", "--key", "old")
        self.clock.advance(100)
        self.submit_export("--owner", "bob", "--key", "new")
        self.run_jobs("list", "--all")
        self.assertIn("owner bob, sales.export, key new, submitted 1970-01-01T00:18:20Z, started -, ended -", self.said)
        for options, ids in (
            (("--all",), [2, 1]),
            (("--owner", "alice"), [1]),
            (("--all", "--since", 50), [2]),
            (("--all", "--state", "failed"), []),
            (("--all", "--kind", "sales.import"), []),
            (("--all", "--kind", "sales.export", "--before", 2), [1]),
        ):
            with self.subTest(options):
                self.assertEqual([job["id"] for job in self.json("list", *options)], ids)

    def test_what_is_tried_again_outlives_an_outage_of_ten_minutes(self) -> None:
        """By default: the tables have no place for ten minutes, and the job is done after that."""
        self.submit_export()
        results = Path(f"{self.path.resolve()}.results")
        results.write_bytes(b"")
        end, moved = self.clock() + 600, self.clock.sleep

        def sleep(seconds: float) -> None:
            moved(seconds)
            if self.clock() >= end and results.is_file():
                results.unlink()

        with mock.patch.object(self.clock, "sleep", sleep):
            self.assertEqual(self.work("--poll", 5), 0)
        self.assertGreaterEqual(self.clock(), end)
        self.assertEqual(self.json("status", 1)["state"], "succeeded")

    def test_a_backup_is_a_store(self) -> None:
        """It is made once, and a command reads it as it reads the first."""
        self.submit_export()
        copy = self.folder / "copy.db"
        self.assertEqual(self.json("backup", copy), {"file": str(copy), "bytes": copy.stat().st_size})
        self.assertEqual(self.run_jobs("status", 1, "--db", copy, db=False), 0)
        self.assertEqual(self.run_jobs("backup", copy), 3)

    def test_damage_is_the_machines_fault(self) -> None:
        """No traceback, and exit code 3 with the row that is damaged."""
        self.submit_export()
        self.work()
        self.damage("UPDATE receipts SET data = replace(data, '6000', '9000')")
        self.assertEqual(self.run_jobs("result", 1), 3)
        self.assertEqual(self.errors, "store_unavailable: damaged: the result of job 1\n")
        self.damage("UPDATE receipts SET data = replace(data, '9000', '6000')")


TASKS = """
from chapter10.companions.work.functions import task

@task("letters.count", version="1", retries=0)
def count(text: str) -> int:
    if not text:
        raise ValueError("nothing to count")
    return len(text)
"""


class TasksOfAModule(CommandTestCase):
    """What `--handlers` adds."""

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "letter_tasks.py").write_text(TASKS, encoding="utf-8")
        self.enterContext(mock.patch.object(sys, "path", [str(self.folder), *sys.path]))
        self.addCleanup(sys.modules.pop, "letter_tasks", None)

    def test_a_task_is_submitted_done_and_read(self) -> None:
        """With its kind, its arguments and its module; the result is what the function returned."""
        task = ("--kind", "letters.count", "--handlers", "letter_tasks")
        job = self.json("submit", *task, "--args", '{"text": "abc"}', "--key", "k")
        self.assertEqual(0, self.work("--handlers", "letter_tasks"))
        self.assertEqual(3, self.json("result", job["id"])["data"])
        again = self.json("submit", *task, "--args", '{"text": "abc"}')
        self.assertEqual(([], False), (again["earlier"], again["id"] == job["id"]))

    def test_a_worker_leaves_other_kinds_in_line_and_stats_names_them(self) -> None:
        """One that has no handler of a kind drains what it can do."""
        self.run_jobs("submit", "--kind", "letters.count", "--handlers", "letter_tasks", "--args", '{"text": "a"}')
        self.assertEqual(0, self.work())
        self.assertEqual(0, self.run_jobs("stats"))
        self.assertIn("kind letters.count 1: 1 of 1 wait\n", self.said)
        (row,) = self.json("stats")["kinds"]
        self.assertEqual(("letters.count", 1), (row["kind"], row["queued"]))

    def test_what_cannot_be_a_task_is_usage(self) -> None:
        """An unknown kind, arguments that are none or do not fit, and a module that is not there or has no task."""
        task = ("submit", "--kind", "letters.count", "--handlers", "letter_tasks", "--args")
        for arguments, words in (
            (("submit", "--kind", "letters.count", "--args", "{}"), "no handler of letters.count"),
            ((*task, "[1]"), "not a JSON object"),
            ((*task, "{"), "no JSON"),
            ((*task, '{"text": 1}'), "/text"),
            (("work", "--handlers", "no_such_tasks"), "ModuleNotFoundError"),
            (("work", "--handlers", "json"), "has no task"),
            (("submit", "--month", "2026-08"), "needs month and sales"),
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(2, self.run_jobs(*arguments))
                self.assertIn(words, self.errors)


class AnOperatorsDay(CommandTestCase):
    """Many at once, a pause, one screen, several processes."""

    def batch(self, *lines: object) -> Path:
        path = self.folder / "batch.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        return path

    def test_a_file_of_jobs_is_taken_whole_or_not_at_all(self) -> None:
        """In one commit with one answer a job; a repeat gives the same ones, and a bad line is named."""
        good = [{"key": f"k{n}", "month": "2026-08", "sales": str(self.sales)} for n in range(3)]
        jobs = self.json("submit", "--from", self.batch(*good))
        self.assertEqual([(1, "k0"), (2, "k1"), (3, "k2")], [(job["id"], job["action_key"]) for job in jobs])
        self.assertEqual(jobs, self.json("submit", "--from", self.batch(*good)))
        wrong: tuple[object, ...] = ({"month": "2026-08"}, [], {"key": "x", "month": "2026-08"})
        for bad in wrong:
            self.assertEqual(2, self.run_jobs("submit", "--from", self.batch({**good[0], "key": "new"}, bad)))
            self.assertIn("line 2: ", self.errors)
        self.assertEqual(
            1,
            self.run_jobs(
                "submit", "--from", self.batch(*({**one, "key": "new" + one["key"]} for one in good)), "--capacity", "4"
            ),
        )
        self.assertEqual(3, len(self.json("list")))

    def test_a_file_from_another_system_is_read_and_one_that_is_no_text_is_named(self) -> None:
        """A mark at its beginning and CRLF are taken; bytes that are no UTF-8 are a mistake on their line."""
        line = json.dumps({"key": "k", "month": "2026-08", "sales": str(self.sales)}).encode()
        path = self.folder / "batch.jsonl"
        path.write_bytes(b"\xef\xbb\xbf" + line + b"\r\n")
        self.assertEqual([{"id": 1, "action_key": "k", "state": "queued"}], self.json("submit", "--from", path))
        path.write_bytes(line + b"\n\xff\n")
        self.assertEqual(2, self.run_jobs("submit", "--from", path))
        self.assertIn("line 2: ", self.errors)

    def test_a_long_file_is_one_commit_too_and_one_that_is_too_long_is_refused(self) -> None:
        """More than a page of a list, all or none; above the bound nothing is taken, and the line is named."""
        lines = [{"key": f"k{n}", "args": {"text": "a"}} for n in range(1001)]
        (self.folder / "letter_tasks.py").write_text(TASKS, encoding="utf-8")
        self.enterContext(mock.patch.object(sys, "path", [str(self.folder), *sys.path]))
        self.addCleanup(sys.modules.pop, "letter_tasks", None)
        task = ("submit", "--kind", "letters.count", "--handlers", "letter_tasks", "--from", self.batch(*lines))
        with mock.patch.object(jobs_command, "MAX_BATCH", 1000):
            self.assertEqual(2, self.run_jobs(*task))
        self.assertIn("line 1001: ", self.errors)
        self.assertEqual(1, self.run_jobs(*task, "--capacity", "1000"))
        self.assertEqual([], self.json("list"))
        self.assertEqual(0, self.run_jobs(*task))
        self.assertEqual(1001, self.store.db.execute("SELECT count(*) FROM jobs").fetchone()[0])

    def test_a_job_starts_later_and_has_its_whole_deadline(self) -> None:
        """Nobody claims it before; the deadline counts from the start."""
        self.submit_export("--start-in", 50, "--deadline", 100)
        self.assertIsNone(self.store.claim_next(now=1049.9))
        self.assertEqual(1150, self.json("list")[0]["deadline"])
        self.assertEqual((1, 1), self.store.claim_next(now=1050))

    def test_a_pause_is_for_one_or_for_all_and_is_told(self) -> None:
        """Twice changes nothing, which is exit code 1; `stats` says who is paused."""
        self.submit_export()
        answers = [self.run_jobs(*words) for words in (("pause",), ("pause",), ("pause", "--only", "local"))]
        self.assertEqual([0, 1, 0], answers)
        self.assertEqual([None, "local"], self.json("stats")["paused"])
        self.run_jobs("stats")
        self.assertIn("paused: everybody\npaused: owner local\n", self.said)
        self.assertIsNone(self.store.claim_next(now=1001))
        self.assertEqual(
            [0, 1, 0], [self.run_jobs(*w) for w in (("resume",), ("resume",), ("resume", "--only", "local"))]
        )
        self.assertIsNotNone(self.store.claim_next(now=1001))

    def test_one_screen_shows_what_waits_runs_and_failed(self) -> None:
        """Once where no terminal is; on one it is drawn over itself until somebody interrupts."""
        one, two, three = (self.submit_export("--key", key) for key in ("waits", "runs", "fails"))
        self.store.claim(two, now=1000, lease=100)
        self.store.progress(two, 1, 1, 4, now=1001)
        self.store.fail(three, self.claim(three, now=1000), "broken", now=1002)
        self.store.pause("bob", now=0)
        self.clock.now = 1300.0
        self.assertEqual(0, self.run_jobs("top"))
        for words in (
            "queued 1, running 1, expired 1, longest wait 5 min",
            "paused: owner bob",
            "kind sales.export 1: 1 of 2 wait",
            "25%  1/4  attempt 1  sales.export  local  for 5 min",
            "broken  sales.export  local, key fails, 4 min ago",
        ):
            self.assertIn(words, self.said)
        terminal, looks = Terminal(tty=True), []

        def sleep(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 2:
                raise KeyboardInterrupt

        with mock.patch.object(self.clock, "sleep", sleep):
            self.assertEqual(130, self.run_jobs("top", "--every", 3, terminal=terminal))
        self.assertEqual(([3, 3], 2), (looks, self.said.count("\x1b[H\x1b[J")))
        with mock.patch.object(self.clock, "sleep", sleep):
            self.assertEqual(0, self.run_jobs("top", "--once", terminal=Terminal(tty=True)))
        self.assertEqual(one, 1)
        self.assertIn("paused: owner bob", self.json("top"))

    def test_the_screen_is_drawn_every_second_where_nothing_is_said(self) -> None:
        """As `--help` has it."""
        self.submit_export()
        with mock.patch.object(self.clock, "sleep", side_effect=KeyboardInterrupt) as sleep:
            self.run_jobs("top", terminal=Terminal(tty=True))
        sleep.assert_called_once_with(1.0)

    def test_a_worker_of_a_crew_is_started_as_it_was_typed(self) -> None:
        """Without the number of workers, and with its own name."""
        typed = ["work", "--concurrency", "3", "--name", "w", "--drain", "--concurrency=2", "--name=x"]
        self.assertEqual(["work", "--name", "w-2", "--drain", "--name", "x-2"], worker_arguments(typed, 2))

    def test_a_crew_has_one_to_sixty_four_workers(self) -> None:
        """Any other number is usage."""
        with mock.patch.object(jobs_command, "run_crew", return_value=7) as crew:
            self.assertEqual(7, self.run_jobs("work", "--concurrency", 64))
            self.assertEqual(64, crew.call_args.args[1])
            for number in (0, 65):
                self.assertEqual(2, self.run_jobs("work", "--concurrency", number))
            self.assertEqual(1, crew.call_count)

    def crew(
        self, *waits: Callable[[], int], started: Callable[[], object] = lambda: None
    ) -> tuple[int, list[mock.Mock]]:
        """Run a crew of workers that are none: what each wait does and returns, and what happens while one starts."""
        workers = [mock.Mock(wait=mock.Mock(side_effect=wait), poll=mock.Mock(return_value=0)) for wait in waits]
        rest = iter(workers)

        def start(*_: object, **__: object) -> mock.Mock:
            started()
            return next(rest)

        with mock.patch("chapter10.companions.operating.jobs_crew.subprocess.Popen", start):
            return run_crew(["work"], len(workers)), workers

    def test_a_crew_ends_with_the_worst_exit_code(self) -> None:
        """Whichever worker it was; one that a signal ended counts by its number."""
        self.assertEqual((1, 3, 9), tuple(self.crew(*codes)[0] for codes in (
            (lambda: 0, lambda: 1), (lambda: 3, lambda: 0), (lambda: -9, lambda: 1),
        )))  # fmt: skip

    def test_a_crew_that_is_asked_to_leave_asks_each_worker_once(self) -> None:
        """While all work, and while one is being started, after which no other one is."""
        signals = self.enterContext(mock.patch("chapter10.companions.operating.jobs_crew.StopSignals"))
        signals.return_value = contextlib.nullcontext()

        def ask() -> int:
            signals.call_args.args[0](1)
            return 0

        for waits, started, asked in (
            ((ask, lambda: 0), lambda: None, [1, 1]),
            ((lambda: 0, lambda: 0), ask, [1, 0]),
        ):
            _, workers = self.crew(*waits, started=started)
            self.assertEqual(asked, [worker.send_signal.call_count for worker in workers])
            workers[0].send_signal.assert_called_with(signal.SIGTERM)

    @unittest.skipUnless(os.name == "posix", "groups of processes")
    def test_a_crew_does_the_work_and_leaves_together(self) -> None:
        """Two workers of two processes drain six jobs; the command ends with their worst exit code."""
        self.sales.write_text(SALES, encoding="utf-8")
        for number in range(6):
            self.store.submit("alice", f"k{number}", AUGUST, now=time.time(), deadline=time.time() + 1000)
        (self.folder / "crew_tasks.py").write_text(
            "from chapter10.companions.work.functions import task\n"
            "@task('reports.export')\ndef report(month: str) -> str:\n    return month\n",
            encoding="utf-8",
        )
        child = run_python(
            [
                *[
                    "-m",
                    "chapter10",
                    "jobs",
                    "work",
                    "--concurrency",
                    "2",
                    "--drain",
                    "--handlers",
                    "crew_tasks",
                    "--db",
                ],
                str(self.path),
            ],
            environment={"PYTHONPATH": os.pathsep.join((str(self.folder), str(TOP)))},
        )
        self.assertEqual((0, ""), (child.returncode, child.stderr))
        self.assertEqual(2, child.stdout.count("ready"))
        self.assertEqual(6, child.stdout.count("succeeded"))


class Watching(CommandTestCase):
    """`watch`: once each, in order, and the state at the end."""

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.said.splitlines()]

    def test_watch_shows_every_event_once_and_ends_with_the_state(self) -> None:
        """More events than a page holds, and a cursor to go on from.

        Claims: C10-251, C10-253.
        """
        job_id = self.submit("k")
        attempt = self.claim(job_id, lease=1000)
        for done in range(1, 251):
            self.store.progress(job_id, attempt, done, 250, now=2)
        self.store.finish(job_id, attempt, REPORT, now=3)
        self.assertEqual(self.run_jobs("watch", job_id, "--owner", "alice", "--json"), 0)
        *events, status = self.lines()
        self.assertEqual(events, self.store.events("alice", job_id, limit=1000))
        self.assertEqual(status, self.store.get("alice", job_id))
        self.run_jobs("watch", job_id, "--owner", "alice", "--json", "--after", events[-2]["seq"])
        self.assertEqual(self.lines(), [events[-1], status])

    def test_a_watcher_that_leaves_changes_nothing(self) -> None:
        """Its patience ends, the job is `running` before and after, and the sentence says so.

        Claims: C10-190, C10-191, C10-193, C10-194.
        """
        self.running("k", deadline=10**6)
        before = contents(self.path)
        self.assertEqual(self.run_jobs("watch", 1, "--owner", "alice", "--timeout", 5, "--lang", "zh"), 1)
        self.assertEqual(self.clock(), 1005)
        self.assertEqual(self.said.splitlines()[-1], "暂时没有等到结果，作业仍在运行，可以稍后查看")
        self.assertEqual(contents(self.path), before)

    def test_a_job_that_failed_is_exit_code_one(self) -> None:
        """Failed and cancelled are not fine, and each says which it is."""
        for state in ("failed", "cancelled"):
            job_id, _ = self.in_state(state, state)
            self.assertEqual(self.run_jobs("watch", job_id, "--owner", "alice"), 1)
            self.assertIn(f"job {job_id}: {state}", self.said)

    def test_a_job_that_failed_on_its_file_says_where_and_leaves_no_hope(self) -> None:
        """The worker names the line, `result` names the state, `cancel` says that nothing was changed."""
        self.sales.write_text(SALES + "Z,2026-08,many,2026-08-31\n", encoding="utf-8", newline="\n")
        job_id = self.submit_export()
        self.assertEqual(self.work(), 1)
        self.assertIn(f"error bad_amount (line {len(SALES.splitlines()) + 1}: the amount is", self.said)
        self.assertEqual(self.run_jobs("result", job_id), 1)
        self.assertTrue(self.errors.startswith(f"not_ready: job {job_id}: failed (bad_amount)"), self.errors)
        self.assertEqual(self.run_jobs("cancel", job_id), 1)
        self.assertEqual(self.said, f"job {job_id}: failed; it had ended before, and nothing was changed\n")

    def test_watch_survives_a_lost_lock_and_drops_what_it_knows(self) -> None:
        """A busy store is asked again, and an event that comes twice is shown once.

        Claims: C10-253.
        """
        job_id = self.succeeded()
        store, busy, shown = self.store, [0], list[int]()

        class Shaky:
            def __init__(self) -> None:
                self.calls = 0

            def get(self, owner: str, job: int) -> dict[str, Any]:
                return store.get(owner, job)

            def events(self, owner: str, job: int, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
                self.calls += 1
                if self.calls % 2:
                    raise StoreError("store_busy", "held")
                return store.events(owner, job, max(0, after - 1), 2)  # the last one again

        status = watch(
            Shaky(),
            "alice",
            job_id,
            show=lambda event: shown.append(event["seq"]),
            clock=self.clock,
            sleep=self.clock.sleep,
            busy=lambda: busy.append(1),
        )
        self.assertEqual((status["state"], shown), ("succeeded", [1, 2, 3]))
        self.assertGreater(len(busy), 2)

    def test_a_store_that_stays_busy_ends_the_watch_with_its_timeout(self) -> None:
        """A lock that is never let go is the machine's trouble, in bounded time; a broken store at once."""
        for code, seconds in (("store_busy", 5.0), ("store_unavailable", 0.0)):
            store = mock.Mock()
            store.get.side_effect = StoreError(code, "held")
            start = self.clock()
            with self.assertRaises(StoreError):
                watch(store, "a", 1, show=print, clock=self.clock, sleep=self.clock.sleep, timeout=5)
            self.assertAlmostEqual(self.clock() - start, seconds)

    def test_a_final_state_comes_after_all_of_its_events(self) -> None:
        """A job that ends between the two looks is not reported with half of its log."""
        job_id, attempt = self.running()
        store, shown = self.store, list[str]()

        class Ends:
            def get(self, owner: str, job: int) -> dict[str, Any]:
                status = store.get(owner, job)
                if status["state"] == "running":
                    store.finish(job_id, attempt, REPORT, now=2)
                return status

            def events(self, *arguments: Any) -> list[dict[str, Any]]:
                return store.events(*arguments)

        status = watch(
            Ends(),
            "alice",
            job_id,
            show=lambda event: shown.append(event["kind"]),
            clock=self.clock,
            sleep=self.clock.sleep,
        )
        self.assertEqual((status["state"], shown), ("succeeded", ["queued", "running", "succeeded"]))

    def test_ctrl_c_says_how_to_read_on(self) -> None:
        """The watcher goes, the cursor stays with the reader."""
        self.running("k", deadline=10**6)

        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        with mock.patch.object(self.clock, "sleep", interrupt):
            self.assertEqual(self.run_jobs("watch", 1, "--owner", "alice"), 130)
        self.assertEqual(self.errors, "the job goes on; read on with --after 2\n")

    def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines(self) -> None:
        """The bar is drawn over itself; a second attempt starts its own.

        Claims: C10-181, C10-182.
        """
        job_id, attempt = self.running()
        self.store.progress(job_id, attempt, 1, 2, now=2)
        self.store.fail(job_id, attempt, "temporary", now=3, retry_after=0)
        second = self.claim(job_id, now=4)
        self.store.progress(job_id, second, 2, 2, now=5)
        self.store.finish(job_id, second, REPORT, now=6)
        self.run_jobs("watch", job_id, "--owner", "alice")
        self.assertIn("     3  attempt 1  progress 1/2\n", self.said)
        self.assertIn("     4  attempt 1  queued (temporary)\n", self.said)
        self.assertNotIn("\r", self.said)
        self.run_jobs("watch", job_id, "--owner", "alice", terminal=Terminal(tty=True))
        self.assertIn("\r" + bar_text(1, 2, 1, EN), self.said)
        self.assertIn("\r" + bar_text(2, 2, 2, EN), self.said)
        self.assertIn("\r     7  attempt 2  succeeded\n", self.said)

    def test_a_bar_is_full_only_at_the_end(self) -> None:
        """It never rounds up, and knows that a total may be unknown."""
        self.assertEqual(bar_text(0, 0, 1, EN, 4), "[....]   0%  0/0  attempt 1")
        self.assertEqual(bar_text(999, 1000, 1, EN, 4), "[###.]  99%  999/1000  attempt 1")
        self.assertEqual(bar_text(2**53, 2**53, 3, EN, 4), f"[####] 100%  {2**53}/{2**53}  attempt 3")
        out = Terminal(tty=True)
        bar = Bar(out, EN)
        bar.clear()
        self.assertEqual(out.getvalue(), "")
        self.assertEqual(
            event_line({"seq": 1, "kind": "failed", "attempt": 2, "detail": {"error": "x"}}, EN),
            "     1  attempt 2  failed (x)",
        )


class Working(CommandTestCase):
    """`work` as a process."""

    def test_work_stops_for_sigterm_and_says_what_it_does(self) -> None:
        """One JSON object a line; asked to leave, it leaves with 0."""
        self.store.close()
        worker = start_python(["-m", "chapter10", "jobs", "work", "--db", str(self.path), "--json"])
        try:
            assert worker.stdout is not None and worker.stderr is not None
            self.assertEqual(json.loads(worker.stdout.readline())["note"], "ready")
            self.clock.now = time.time()
            self.submit_export()
            self.assertEqual(json.loads(worker.stdout.readline())["note"], "claimed")
            self.assertEqual(json.loads(worker.stdout.readline())["note"], "succeeded")
            if os.name == "posix":
                worker.send_signal(signal.SIGTERM)
                self.assertEqual((worker.wait(60), worker.stderr.read()), (0, ""))
        finally:
            worker.kill()
            worker.communicate()

    def test_a_worker_whose_terminal_is_gone_goes_on(self) -> None:
        """Nobody reads what it says; the job is done all the same."""
        self.submit_export()

        class Gone(Terminal):
            def write(self, text: str) -> int:
                raise BrokenPipeError

        self.assertEqual(self.run_jobs("work", "--drain", terminal=Gone()), 0)
        self.assertEqual(self.json("status", 1)["state"], "succeeded")

    def test_an_error_without_a_code_is_told_with_its_trace(self) -> None:
        """The store gets `handler_failed`, the operator the rest."""
        self.submit_export()
        with mock.patch("chapter10.companions.operating.exports._replace", side_effect=ZeroDivisionError("a bug")):
            self.assertEqual(self.work(), 1)
        self.assertIn("ZeroDivisionError: a bug", self.errors)
        self.assertEqual(self.json("status", 1)["error"], "handler_failed")

    def test_a_trace_that_nobody_reads_does_not_stop_the_worker(self) -> None:
        """Standard error is closed as well."""
        self.submit_export("--max-attempts", 1)
        with (
            mock.patch("chapter10.companions.operating.exports._replace", side_effect=OSError("no space")),
            mock.patch("traceback.print_exception", side_effect=BrokenPipeError),
        ):
            self.assertEqual(self.work(), 1)
        self.assertEqual(self.json("status", 1)["error"], "handler_failed")

    def test_a_changed_file_fails_its_job(self) -> None:
        """The worker refuses what was not submitted."""
        self.submit_export()
        self.sales.write_text(SALES.replace("9900", "9901"), encoding="utf-8", newline="\n")
        self.work()
        self.assertEqual(self.json("status", 1)["error"], "input_changed")

    def test_inputs_and_results_are_where_the_worker_says(self) -> None:
        """A folder for inputs, a folder for tables."""
        self.submit_export()
        self.work("--inputs", self.folder / "elsewhere")
        self.assertEqual(self.json("status", 1)["error"], "input_not_allowed")
        self.submit_export("--key", "b")
        self.work("--results", self.folder / "mine")
        self.assertEqual([path.name for path in (self.folder / "mine").iterdir()], ["report-2-a1-day.csv"])
        self.run_jobs("result", 2, "--table", "day", "--results", self.folder / "mine")
        self.assertIn("2026-08-02,2,5000", self.said)

    def test_a_limit_of_attempts_and_a_pace(self) -> None:
        """`--jobs` leaves after so many, `--pace` waits at each step, by the given sleep."""
        for key in "abc":
            self.submit_export("--key", key)
        self.assertEqual(self.run_jobs("work", "--jobs", 2, "--pace", 0.25, "--lease", 100), 0)
        self.assertEqual([job["state"] for job in self.json("list")], ["queued", "succeeded", "succeeded"])
        self.assertEqual(set(self.clock.slept), {0.25})


class TheProgram(unittest.TestCase):
    """What the command line says of itself."""

    def test_help_needs_no_characters_beyond_ascii(self) -> None:
        """Every verb explains itself."""
        for verb in VERBS:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), self.assertRaises(SystemExit) as caught:
                main([verb, "--help"])
            self.assertEqual(caught.exception.code, 0)
            self.assertTrue(out.getvalue().isascii())
            self.assertIn("--json", out.getvalue())


class InBothLanguages(CommandTestCase):
    """Every sentence of the table is said by a verb, in the language of the person who reads it."""

    def day(self, language: str) -> Iterator[str]:
        """Use every verb so that each sentence comes up, and yield each line."""

        words: tuple[object, ...]

        def said(*words: object) -> list[str]:
            self.run_jobs(*words, "--lang", language)
            return (self.said + self.errors).splitlines()

        batch = self.folder / "batch.jsonl"
        batch.write_text(json.dumps({"key": "k", "month": "2026-08", "sales": str(self.sales)}), encoding="utf-8")
        submit = ("submit", "--month", "2026-08", "--sales", self.sales)
        for words in (submit, submit, ("submit", "--from", batch), ("cancel", 3), (*submit, "--key", "k")):
            yield from said(*words)
        yield from said("retry", 3, "--why", "x")
        yield from said("events", 4)
        self.clock.now -= 50
        yield from said("release", 4)
        yield from said("release", 4)
        self.clock.now += 50
        with WorkerLog(log_path(self.path)) as log:
            log.refused("bob", "w", 1, 1, "finish", "stale_attempt", at=1)
        self.store.submit("bob", "held", AUGUST, now=self.clock)
        held = self.store.claim_next(now=self.clock)
        assert held is not None
        self.store.fail(*held, "broken", now=self.clock)
        self.store.claim_next(now=self.clock, lease=1)
        for words in (("pause",), ("pause",), ("pause", "--only", "bob"), ("top",), ("stats",)):
            yield from said(*words)
        for words in (("resume",), ("resume", "--only", "bob"), ("work", "--drain"), ("cancel", 1), ("result", 1)):
            yield from said(*words)
        for words in (("list",), ("status", 1), ("backup", self.folder / f"{language}.db"), ("sweep",)):
            yield from said(*words)
        with mock.patch.object(jobs_command, "watch", self.leave):
            yield from said("watch", 1)
        yield from said("watch", 1)
        self.clock.advance(1)
        yield from said("prune", "--keys-older", 0, "--results-older", 0)
        self.run_jobs("--lang", language, "compact")
        yield self.said

    def leave(self, *_: object, busy: Callable[[], object], **__: object) -> None:
        busy()
        raise KeyboardInterrupt

    def test_each_verb_says_its_lines_in_the_language_that_was_asked_for(self) -> None:
        """No sentence of the table is left unsaid, and only names and figures are the same in both."""
        asked: set[str] = set()

        def listening(language: str) -> Callable[..., str]:
            def say(sentence: str, /, **values: object) -> str:
                asked.add(sentence)
                return speaker(language)(sentence, **values)

            return say

        days = []
        for language in ("zh", "en"):
            self.setUp()
            with mock.patch.object(jobs_command, "speaker", listening):
                days.append(list(self.day(language)))
        for chinese, english in zip(*days, strict=True):
            self.assertTrue(english.isascii(), english)
            if not re.match(r"ready pid|report-1  sha256|  -$|$", english):
                self.assertNotEqual(chinese, english)
        every = {name for name in WORDS if not name.startswith(("is.", "error.", "age."))}
        self.assertEqual(set(), every - asked)

    def test_what_a_code_and_a_length_of_time_mean_is_said_in_both(self) -> None:
        """A reason is added to it in Chinese, and stands for it in English; the last unit that counts two."""
        for name in (name for name in WORDS if name.startswith("error.")):
            code, (zh, en) = name.removeprefix("error."), WORDS[name]
            for language, reason, line in (
                ("zh", None, f"{code}: {zh}"),
                ("zh", "why", f"{code}: {zh}: why"),
                ("en", None, f"{code}: {en}"),
                ("en", "why", f"{code}: why"),
            ):
                with contextlib.redirect_stderr(io.StringIO()) as errors:
                    jobs_command._Out(False, language).error(code, reason)
                self.assertEqual(line + "\n", errors.getvalue())
        for seconds, zh, en in (
            (-1, "0 秒", "0 s"),
            (119, "119 秒", "119 s"),
            (120, "2 分钟", "2 min"),
            (7200, "2 小时", "2 h"),
            (172_800, "2 天", "2 d"),
        ):
            self.assertEqual((zh, en), tuple(jobs_top._age(seconds, speaker(language)) for language in ("zh", "en")))


class Indexes(LivingTestCase):
    """What a watcher and a list repeat."""

    def plans(self, call: Callable[[LivingStore], object]) -> Iterator[str]:
        asked: list[str] = []
        self.store.db.set_trace_callback(asked.append)
        call(self.store)
        self.store.db.set_trace_callback(None)
        for sql in asked:
            yield from (row[3] for row in self.store.db.execute(f"EXPLAIN QUERY PLAN {sql}"))

    def test_watch_and_list_are_served_by_indexes(self) -> None:
        """No query of theirs walks through a table or sorts."""
        self.submit()
        for call in (
            lambda store: store.get("alice", 1),
            lambda store: store.events("alice", 1, 0, 100),
            lambda store: store.list_jobs("alice"),
        ):
            for plan in self.plans(call):
                self.assertNotIn("SCAN", plan)
                self.assertNotIn("TEMP B-TREE", plan)
        self.assertEqual(AUGUST, self.store.intent(1)["args"])
