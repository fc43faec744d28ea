"""The first page of code that a newcomer reads: it is short, and what it prints is true."""

from __future__ import annotations

import json
import unittest

from chapter10 import quickstart
from chapter10.canonical import digest
from chapter10.tests.support import TOP, run_python


class Quickstart(unittest.TestCase):
    """`python -m chapter10.quickstart`."""

    def test_it_prints_one_json_object_of_a_whole_life(self) -> None:
        """Three states, the result, six events and one receipt.

        Claims: C10-170, C10-177, C10-179.
        """
        done = run_python(["-W", "error", "-m", "chapter10.quickstart"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        printed = json.loads(done.stdout)
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

    def test_it_has_fewer_than_forty_lines(self) -> None:
        """It is read in one glance."""
        source = (TOP / "chapter10" / "quickstart.py").read_text(encoding="utf-8")
        self.assertEqual(quickstart.__name__, "chapter10.quickstart")
        self.assertLess(len(source.splitlines()), 40)


if __name__ == "__main__":
    unittest.main()
