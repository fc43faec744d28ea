"""The short program that a reader opens first: it works, gives its receipt first, and stays short."""

from __future__ import annotations

import contextlib
import io
import json
import unittest
from unittest import mock

from chapter10 import quickstart
from chapter10.canonical import digest
from chapter10.jobs import JobStore
from chapter10.tests.programs import Terminal
from chapter10.tests.support import TOP, run_python

RECEIPT = '{"id": 1, "state": "queued", "attempt": 0, "done": 0, "total": 0, "error": null}\n'
"""The small object of the chapter, as one line."""


class Quickstart(unittest.TestCase):
    """`python -m chapter10.quickstart`."""

    def test_it_prints_the_receipt_and_then_one_object_of_a_whole_life(self) -> None:
        """Two JSON values: the receipt in a line; then three states, the result, six events and one receipt row.

        Claims: C10-170, C10-177, C10-179.
        """
        done = run_python(["-W", "error", "-m", "chapter10.quickstart"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        receipt, rest = done.stdout.split("\n", 1)
        self.assertEqual(receipt + "\n", RECEIPT)
        printed = json.loads(rest)
        self.assertEqual(set(printed), {"states", "result", "events", "receipt_count"})
        self.assertEqual(printed["states"], ["queued", "running", "succeeded"])
        data = {"month": "2026-08", "row_count": 3, "total_cents": 6000}
        self.assertEqual(printed["result"], {"artifact_id": "report-1", "sha256": digest(data), "data": data})
        self.assertEqual([event["seq"] for event in printed["events"]], [1, 2, 3, 4, 5, 6])
        self.assertEqual(
            [event["kind"] for event in printed["events"]],
            ["queued", "running", "progress", "progress", "progress", "succeeded"],
        )
        self.assertEqual(printed["receipt_count"], 1)

    def test_the_receipt_comes_before_anything_else_happens(self) -> None:
        """When no worker can claim, the caller has the receipt of a stored job all the same."""
        with (
            mock.patch.object(JobStore, "claim", side_effect=OSError("nobody")),
            contextlib.redirect_stdout(io.StringIO()) as out,
            self.assertRaises(OSError),
        ):
            quickstart.main([])
        self.assertEqual(out.getvalue(), RECEIPT)

    def test_a_terminal_is_told_what_became_of_it(self) -> None:
        """After the receipt a few sentences with the figures of the run, in either language; JSON when asked for."""
        for language, words in (("zh", "合计 6,000 分"), ("en", "cents together: 6,000")):
            with contextlib.redirect_stdout(Terminal()) as out:
                self.assertEqual(quickstart.main(["--lang", language]), 0)
            self.assertTrue(out.getvalue().startswith(RECEIPT))
            for figure in (words, "queued -> running -> succeeded", "3/3", "report-1", "2026-08"):
                self.assertIn(figure, out.getvalue())
        with contextlib.redirect_stdout(Terminal()) as out:
            quickstart.main(["--json"])
        self.assertEqual(json.loads(out.getvalue().removeprefix(RECEIPT))["receipt_count"], 1)

    def test_it_has_at_most_fifty_lines(self) -> None:
        """It is read in one glance."""
        source = (TOP / "chapter10" / "quickstart.py").read_text(encoding="utf-8")
        self.assertEqual(quickstart.__name__, "chapter10.quickstart")
        self.assertLessEqual(len(source.splitlines()), 50)


if __name__ == "__main__":
    unittest.main()
