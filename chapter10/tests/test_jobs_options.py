"""Options of `python -m chapter10 jobs` that no other test would miss: each reaches what it is for."""

from __future__ import annotations

import contextlib
import sqlite3
import unittest
from unittest import mock

from chapter10.companions.operating import jobs_command
from chapter10.companions.operating.exports import SALES_EXPORT
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Backoff, Worker
from chapter10.tests.test_jobs_command import CommandTestCase


class HandedOn(CommandTestCase):
    """What goes on until it is ended, looked at from its door, and what one call does, from what it did."""

    def test_a_worker_gets_what_it_was_started_with(self) -> None:
        """Its times, its name, the limit of its attempts, and when it leaves."""
        times = ("--lease", 7, "--grace", 3, "--poll", 0.5, "--retry-base", 2, "--retry-cap", 9, "--retry-age", 8)
        with mock.patch.object(jobs_command, "Worker", autospec=Worker) as made:
            self.work(*times, "--name", "w", "--attempt-limit", 5, "--jobs", 4)
        given = made.call_args
        expected = {"lease": 7, "grace": 3, "poll": 0.5, "backoff": Backoff(2000, 9000, 8), "name": "w"}
        self.assertEqual({name: given.kwargs[name] for name in expected}, expected)
        self.assertEqual(given.args[1][SALES_EXPORT.tool].limit, 5)
        made.return_value.__enter__.return_value.run.assert_called_once_with(jobs=4, drain=True)

    def test_a_watcher_and_a_screen_look_as_often_as_they_were_asked(self) -> None:
        """The times of a watch; a screen that is drawn once."""
        self.submit_export()
        with mock.patch.object(jobs_command, "watch", side_effect=KeyboardInterrupt) as watched:
            self.run_jobs("watch", 1, "--timeout", 30, "--poll", 2)
        self.assertEqual((watched.call_args.kwargs["timeout"], watched.call_args.kwargs["poll"]), (30, 2))
        with mock.patch.object(jobs_command, "top") as drawn:
            self.run_jobs("top", "--once")
        self.assertTrue(drawn.call_args.kwargs["once"])

    def test_a_job_once_more_has_the_life_that_it_is_given(self) -> None:
        """Who asked, its deadline, its attempts, and how many may be live beside it."""
        self.submit_export("--deadline", 5)
        self.clock.advance(5)
        self.json("sweep")
        self.json("retry", 1, "--why", "w", "--by", "eve", "--deadline", 50, "--max-attempts", 1)
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT deadline, max_attempts FROM jobs WHERE id = 2").fetchall()
        self.assertEqual(rows, [(self.clock() + 50, 1)])
        self.run_jobs("events", 2)
        self.assertIn("by eve: w", self.said)
        self.submit_export("--key", "other", "--deadline", 1)
        self.clock.advance(1)
        self.json("sweep")
        self.assertEqual(self.json("retry", 3, "--why", "w", "--capacity", 1, code=1)["error"], "queue_full")

    def test_upkeep_goes_as_far_as_it_was_told(self) -> None:
        """A sweep of one row, removals of one row, and leftovers in the folder that was named."""
        for number in range(2):
            self.submit_export("--key", number, "--deadline", 5)
        self.clock.advance(5)
        self.assertEqual(self.json("sweep", "--limit", 1)["deadline_exceeded"], 1)
        self.json("sweep")
        with (
            mock.patch.object(LivingStore, "prune", autospec=True, side_effect=LivingStore.prune) as removed,
            mock.patch.object(jobs_command, "remove_leftovers", return_value=0) as left,
        ):
            self.json("prune", "--limit", 1, "--keys-older", 0, "--results-older", 0, "--results", self.folder)
        self.assertEqual({call.kwargs["limit"] for call in removed.mock_calls}, {1})
        self.assertEqual((left.call_args.args[0], left.call_args.kwargs["limit"]), (self.folder, 1))


if __name__ == "__main__":
    unittest.main()
