"""The benchmark measures what it says, and its output names no machine. No test looks at a time."""

from __future__ import annotations

import json
import os
import platform
import signal
import sqlite3
import subprocess
import tempfile
import threading
import unittest
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.catalog import Catalog
from chapter10.companions.work.living_store import MIGRATIONS, LivingStore
from chapter10.jobs import SCHEMA, JobStore
from chapter10.lab.benchmarks import benchmark, contention, instrument
from chapter10.lab.benchmarks.instrument import Comparison, Growth, Plan, Spread, Table, compare, exponent, ready
from chapter10.lab.benchmarks.jobs_area import BareJobs, fill_history, live
from chapter10.lab.benchmarks.search_area import BarePostings, make_tools, naive
from chapter10.lab.histories.job_checker import violations
from chapter10.tests.programs import run_here
from chapter10.tests.support import FolderTestCase, run_python, start_python


class TheCommand(FolderTestCase):
    """The quick run of all areas takes the longest, so it runs while the others do and is looked at last."""

    quick_run: Future[subprocess.CompletedProcess[str]]
    quick_folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.quick_folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="chapter10-")))
        pool = cls.enterClassContext(ThreadPoolExecutor(1))
        work, out = cls.quick_folder / "work", cls.quick_folder / "figures.json"
        work.mkdir()
        command = ["-m", "chapter10.lab.benchmarks.benchmark", "--quick", "--folder", str(work), "--json", str(out)]
        cls.quick_run = pool.submit(run_python, command)

    def test_one_area_alone(self) -> None:
        """`--area` measures that one; a folder that is not there is a mistake in the command."""
        child = run_python(["-m", "chapter10.lab.benchmarks.benchmark", "--quick", "--area", "json"])
        self.assertEqual(child.returncode, 0, child.stderr)
        self.assertIn("digest of a result", child.stdout)
        self.assertNotIn("six commits", child.stdout)
        for wrong in (["--area", "moon"], ["--folder", str(self.folder / "none")]):
            self.assertEqual(run_here(["chapter10.lab.benchmarks.benchmark", *wrong]).code, 2)

    def test_an_interrupt_keeps_what_was_measured(self) -> None:
        """Ctrl-C in the second finding: the first one is shown and written, and the run says it is not complete."""
        out = self.folder / "figures.json"

        def area(plan: Plan) -> Any:
            yield Table("first", ({"a": 1},))
            raise KeyboardInterrupt

        shown: list[str] = []
        with mock.patch.dict(benchmark.AREAS, {"json": area}), mock.patch.object(benchmark, "_show", shown.append):
            code = benchmark.main(["--quick", "--area", "json", "--folder", str(self.folder), "--json", str(out)])
        figures = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual((130, False), (code, figures["complete"]))
        self.assertEqual(["first"], [finding["name"] for finding in figures["areas"]["json"]])
        self.assertTrue(shown[-1].strip().startswith("interrupted"))
        self.assertEqual([out], list(self.folder.iterdir()))

    @unittest.skipUnless(os.name == "posix", "signals of another kind")
    def test_a_real_interrupt_ends_it_in_order(self) -> None:
        """SIGINT to the process gives 130, and no temporary file stays."""
        command = ["-m", "chapter10.lab.benchmarks.benchmark", "--area", "reads", "--folder", str(self.folder)]
        child = start_python(command)
        assert child.stdin and child.stdout and child.stderr
        with child.stdin, child.stdout, child.stderr:
            self.assertIn("python", child.stdout.readline())
            child.send_signal(signal.SIGINT)
            self.assertIn("interrupted", child.stdout.read())
            self.assertEqual(130, child.wait())
        self.assertEqual([], list(self.folder.iterdir()))

    def test_the_quick_run_measures_every_area(self) -> None:
        """It ends with 0, shows each area, leaves no file, and writes the figures as JSON."""
        child = self.quick_run.result()
        self.assertEqual(child.returncode, 0, child.stderr)
        self.assertEqual(["figures.json", "work"], sorted(path.name for path in self.quick_folder.rglob("*")))
        self.assertTrue(child.stdout.isascii())
        text = (self.quick_folder / "figures.json").read_text(encoding="utf-8")
        figures = json.loads(text)
        self.assertEqual((True, True), (figures["quick"], figures["complete"]))
        self.assertEqual(list(benchmark.AREAS), list(figures["areas"]))
        for area, findings in figures["areas"].items():
            with self.subTest(area):
                self.assertIn(f"\n{area}\n", child.stdout)
                self.assertLessEqual({"comparison", "growth"}, {finding["kind"] for finding in findings})
        self.check_names(text + child.stdout)
        self.check_facts(figures["machine"])
        self.check_work(figures["areas"]["jobs"])

    def check_names(self, text: str) -> None:
        """No folder, no host and no user is among the figures."""
        names = {str(self.quick_folder), platform.node(), str(Path.home()), os.getcwd()}
        for name in names:
            self.assertNotIn(name, text)

    def check_facts(self, facts: dict[str, Any]) -> None:
        """Python, SQLite, cores and the journal mode that is really in force."""
        with closing(sqlite3.connect(self.quick_folder / "probe.db")) as probe:
            (mode,) = probe.execute("PRAGMA journal_mode=WAL").fetchone()
        self.assertEqual((sqlite3.sqlite_version, mode), (facts["sqlite"], facts["journal_mode"]))
        self.assertEqual((os.cpu_count(), "FULL"), (facts["cores"], facts["synchronous"]))

    def check_work(self, findings: list[dict[str, Any]]) -> None:
        """A life is six commits on both sides with the same rows; nothing went wrong between processes."""
        lives = [finding for finding in findings if finding["name"].endswith("what one life writes")]
        self.assertEqual(2, len(lives))
        for life in lives:
            self.assertEqual([6, 6], [row["commits"] for row in life["rows"]])
            self.assertEqual("the same rows and commits", life["verdict"])
        processes = next(finding for finding in findings if finding["name"] == "processes on one file")
        self.assertEqual([1, 2, 4, 8], [row["processes"] for row in processes["rows"]])
        wrong = [(row["errors"], row["lost"], row["doubled"]) for row in processes["rows"]]
        self.assertEqual([(0, 0, 0)] * 4, wrong)


class TheInstrument(unittest.TestCase):
    def test_the_sides_take_turns_and_the_first_pair_does_not_count(self) -> None:
        """Who is first changes from pair to pair; ratios are made within a pair."""
        now = [0.0]
        order: list[str] = []

        def side(name: str, seconds: float) -> instrument.Side:
            def prepare() -> Any:
                now[0] += 100  # what makes ready is not timed

                def run() -> None:
                    order.append(name)
                    now[0] += seconds * (50 if len(order) <= 2 else 1)

                return run

            return prepare

        def clock() -> float:
            return now[0]

        found = compare(
            "x", side("ours", 3), side("limit", 2), count=10, repeats=4, target=1.5, clocks=(clock, lambda: 2 * now[0])
        )
        self.assertEqual(["limit", "ours", "ours", "limit"] * 2 + ["limit", "ours"], order)
        self.assertEqual(
            (0.3, 0.2, 1.5, 1.5), (*map(rounded, (found.ours, found.limit, found.ratio, found.processor)),)
        )
        self.assertEqual("reached", found.verdict)

    def test_different_counts_are_compared_for_one_operation(self) -> None:
        """A side may do more operations in a repeat; the ratio is still that of one."""
        now = [0.0]

        def run(seconds: float) -> instrument.Side:
            return ready(lambda: now.__setitem__(0, now[0] + seconds))

        clocks = (lambda: now[0], lambda: now[0])
        found = compare("x", run(10), run(3), count=0, counts=(100, 10), repeats=2, clocks=clocks)
        self.assertAlmostEqual(1 / 3, found.ratio.median)

    def test_a_ratio_that_varies_says_so(self) -> None:
        """Too wide to tell, unless the whole spread lies on one side of the target."""
        same = Spread(1, 1, 1)

        def verdict(ratio: Spread, target: float | None, **options: Any) -> str:
            return Comparison("x", 1, same, same, ratio, same, 5, target, **options).verdict

        wide, narrow = Spread(0.8, 1.0, 1.4), Spread(0.98, 1.0, 1.02)
        self.assertEqual("too wide to tell", verdict(wide, 1.1))
        self.assertEqual("too wide to tell", verdict(wide, None))
        self.assertEqual("reached", verdict(wide, 1.5))
        self.assertEqual("missed", verdict(wide, 0.5))
        self.assertEqual(("reached", "missed", ""), tuple(verdict(narrow, t) for t in (1.1, 0.9, None)))
        self.assertEqual("reached", verdict(wide, 0.5 + 0.5, computes=True))
        fast = Spread(0.001, 0.001, 0.001)
        self.assertEqual(("reached", "missed"), tuple(verdict(fast, t, beats=True) for t in (500, 5000)))

    def test_the_exponent_is_the_slope_of_the_logarithms(self) -> None:
        """No growth is 0, proportion is 1, a square is 2; one size has no slope."""
        sizes = (10, 100, 1000)
        for power in (0, 1, 2):
            self.assertAlmostEqual(power, exponent(sizes, [3.0 * size**power for size in sizes]))
        self.assertEqual(0.0, exponent((5,), (1.0,)))

    def test_growth_is_judged_by_its_ends(self) -> None:
        """The last cost against the first; without a target nothing is said."""
        self.assertEqual("reached", Growth("x", (1, 100), (1.0, 1.1), most=1.2).verdict)
        self.assertEqual("missed", Growth("x", (1, 100), (1.0, 1.3), most=1.2).verdict)
        self.assertEqual("", Growth("x", (1, 100), (1.0, 1.3)).verdict)
        self.assertIn("exponent 0.00", Growth("x", (0, 100), (1.0, 1.0), (5, 6)).lines()[0])

    def test_peak_memory_is_that_of_the_run(self) -> None:
        """What is allocated and given back within the run counts at its height."""
        peak = instrument.peak_bytes(lambda: len(bytearray(1_000_000)))
        self.assertTrue(1_000_000 <= peak < 1_100_000, peak)


def rounded(spread: Spread) -> float:
    return round(spread.median, 9)


class TheSides(FolderTestCase):
    def test_the_bare_life_leaves_the_rows_of_ours(self) -> None:
        """Both sides of the comparison write the same, so that only the deciding differs."""
        for make, script in ((JobStore, SCHEMA), (LivingStore, ";".join(MIGRATIONS))):
            bare = BareJobs(self.folder / f"{make.__name__}-bare.db", script)
            with make(self.folder / f"{make.__name__}.db") as store, closing(bare.db):
                for key in ("a", "b"):
                    live(store, key)
                    bare.live(key)
                for table in ("jobs", "receipts", "events"):
                    query = f"SELECT * FROM {table} ORDER BY 1"
                    self.assertEqual(store.db.execute(query).fetchall(), bare.db.execute(query).fetchall())

    def test_a_filled_history_is_one_that_could_have_happened(self) -> None:
        """The checker of whole stores finds nothing wrong in it."""
        for make in (JobStore, LivingStore):
            with make(self.folder / f"{make.__name__}.db") as store:
                fill_history(store, 30)
                self.assertEqual([], violations(store.db))
                owners = {number % 1000 for (number,) in store.db.execute("SELECT id FROM jobs")}
                self.assertEqual(30, sum(store.get(f"owner {n}", n)["id"] == n for n in owners))

    def test_bare_postings_find_what_the_catalog_finds(self) -> None:
        """The bare operations and the naive scan agree with the catalog, at every limit, wherever the best stand."""
        tools = make_tools(1500)
        grants = frozenset({"read:a", "read:b"})
        catalog, bare = Catalog(tools), BarePostings(tools, grants)
        for last in ("common2", "last"):
            words = ("common0", "common1", last)
            for limit in (1, 10, 200, 1000):
                cards = [(card["score"], card["name"]) for card in catalog.search(" ".join(words), grants, limit)]
                for found in (
                    bare.by_integers(words, limit),
                    bare.by_first_names(words, limit),
                    bare.by_sets(words, limit),
                    naive(tools, words, grants, limit),
                ):
                    self.assertEqual(cards, [(score, tool.name) for score, tool in found])

    def test_contenders_share_the_jobs_out(self) -> None:
        """Two on one file, one after the other in turns: each job is done by one of them."""
        path = self.folder / "jobs.db"
        with LivingStore(path) as store:
            pairs = [(f"key {number}", {"month": "2026-08"}) for number in range(10)]
            store.submit_many("alice", pairs, now=0)
        meet = threading.Barrier(2)
        results: list[Any] = []

        def one() -> None:
            results.append(contention.contend(path, 10, meet.wait))

        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((10, 0), (sum(len(r["ends"]) for r in results), sum(r["errors"] for r in results)))


if __name__ == "__main__":
    unittest.main()
