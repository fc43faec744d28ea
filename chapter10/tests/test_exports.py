"""The export of a real sales file: exact tables, the very bytes that were submitted, and one folder."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.companions.operating import exports
from chapter10.companions.operating.exports import (
    SALES_EXPORT,
    Exporter,
    ExportError,
    export_arguments,
    export_key,
    read_table,
    remove_leftovers,
    take_snapshot,
)
from chapter10.companions.operating.sales import SalesError
from chapter10.companions.work.heartbeat import AttemptOver
from chapter10.companions.work.worker import Handler, Outcome, Worker
from chapter10.database import StoreError
from chapter10.jobs import JobError, JobStore
from chapter10.tests.job_support import LivingTestCase
from chapter10.tests.support import ManualClock, defaults

PLAIN = "order_id,month,amount_cents\nA,2026-08,1000\nB,2026-08,2000\nC,2026-08,3000\nD,2026-07,9900\n"
WIDE = (
    "order_id,month,amount_cents,day,product\n"
    'A,2026-08,1000,2026-08-02,"cup, blue"\n'
    "B,2026-08,2000,2026-08-01,tea\n"
    "C,2026-08,-500,2026-08-02,tea\n"
    "D,2026-07,9900,2026-07-31,tea\n"
)


class Context:
    """The context of an attempt without a worker."""

    job_id, attempt, snapshot = 1, 1, None

    def __init__(self, args: dict[str, Any], attempt: int = 1) -> None:
        self.args = args
        self.attempt = attempt
        self.said: list[tuple[int, int]] = []

    def progress(self, done: int, total: int) -> bool:
        self.said.append((done, total))
        return True

    def checkpoint(self) -> None: ...

    def time_left(self) -> float:
        return 60.0


class ExportTestCase(LivingTestCase):
    """A folder with a sales file, and a store that takes exports of it."""

    def setUp(self) -> None:
        super().setUp()
        self.sales = self.folder / "orders.csv"
        self.results = self.folder / "results"
        self.store.register(SALES_EXPORT)
        self.clock = ManualClock(1.0)

    def write(self, text: str) -> Path:
        self.sales.write_text(text, encoding="utf-8", newline="\n")
        return self.sales

    def submit_export(self, month: str = "2026-08", key: str = "k", **options: Any) -> int:
        args = export_arguments(month, self.sales)
        return self.store.submit("alice", key, args, now=self.clock, tool="sales.export", **options)

    def work(self, exporter: Exporter | None = None) -> Outcome:
        exporter = exporter or Exporter(self.results)
        handler = Handler(exporter, discard=exporter.discard)
        with Worker(self.path, {"sales.export": handler}, clock=self.clock, renew_every=float("inf")) as worker:
            outcome = worker.run_once()
        assert outcome is not None
        return outcome

    def table(self, job_id: int, by: str) -> str:
        tables = self.store.result("alice", job_id)["data"]["tables"]
        table = next(table for table in tables if table["by"] == by)
        return read_table(self.results, table).decode("utf-8")

    def failed_with(self, code: str, exporter: Exporter | None = None) -> None:
        outcome = self.work(exporter)
        self.assertEqual((outcome.state, outcome.code), ("failed", code))
        self.assertEqual(list(self.results.glob("*")) if self.results.exists() else [], [])


class Tables(ExportTestCase):
    """What an export delivers."""

    def test_the_summary_is_exact(self) -> None:
        """Three rows of August, six thousand cents, and one table of one line where no column allows another.

        Claims: C10-246.
        """
        self.write(PLAIN)
        job_id = self.submit_export()
        self.assertEqual(self.work().state, "succeeded")
        data = self.store.result("alice", job_id)["data"]
        self.assertEqual((data["month"], data["row_count"], data["total_cents"]), ("2026-08", 3, 6000))
        self.assertEqual(self.table(job_id, "month"), "month,row_count,total_cents\n2026-08,3,6000\n")

    def test_tables_per_day_and_per_product(self) -> None:
        """Where the columns are there: sorted, exact, of this month only; a comma is quoted."""
        self.write(WIDE)
        job_id = self.submit_export()
        self.work()
        self.assertEqual(self.table(job_id, "day"), "day,row_count,total_cents\n2026-08-01,1,2000\n2026-08-02,2,500\n")
        self.assertEqual(
            self.table(job_id, "product"), 'product,row_count,total_cents\n"cup, blue",1,1000\ntea,2,1500\n'
        )
        self.assertEqual(len(list(self.results.iterdir())), 2)

    def test_an_empty_month_is_a_result(self) -> None:
        """No rows is no error."""
        self.write(WIDE)
        job_id = self.submit_export("2020-01")
        self.work()
        self.assertEqual(self.table(job_id, "day"), "day,row_count,total_cents\n")
        self.assertEqual(self.store.result("alice", job_id)["data"]["total_cents"], 0)

    def test_the_receipt_has_the_digest_of_the_bytes_on_disk(self) -> None:
        """Name, number of lines, size and SHA-256 of each table."""
        self.write(WIDE)
        job_id = self.submit_export()
        self.work()
        for table in self.store.result("alice", job_id)["data"]["tables"]:
            content = (self.results / table["file"]).read_bytes()
            self.assertEqual(table["bytes"], len(content))
            self.assertEqual(table["sha256"], hashlib.sha256(content).hexdigest())
            self.assertEqual(table["rows"], content.count(b"\n") - 1)

    def test_faults_have_a_line(self) -> None:
        """A day outside its month, a day that is none, a product that is none: refused, nothing delivered."""
        for row, code in (
            ("A,2026-08,1,2026-07-31,tea", "bad_day"),
            ("A,2026-08,1,2026-08-32,tea", "bad_day"),
            ("A,2026-08,1,20260801,tea", "bad_day"),
            ("A,2026-08,1,,tea", "bad_day"),
            ("A,2026-08,1,2026-08-01,", "bad_product"),
            ("A,2026-08,1,2026-08-01," + "x" * 201, "bad_product"),
            ("A,2026-08,1,2026-08-01,a\tb", "bad_product"),
        ):
            with self.subTest(row=row[:40]):
                self.write("order_id,month,amount_cents,day,product\n" + row + "\n")
                with self.assertRaises(ExportError) as caught:
                    Exporter(self.results)(Context(export_arguments("2026-08", self.sales)))
                self.assertEqual((caught.exception.code, caught.exception.line), (code, 2))

    def test_products_are_bounded(self) -> None:
        """A table is held in memory, so it has a limit."""
        rows = "".join(f"{n},2026-08,1,p{n}\n" for n in range(4))
        self.write("order_id,month,amount_cents,product\n" + rows)
        self.submit_export()
        with mock.patch.object(exports, "MAX_PRODUCTS", 3):
            self.failed_with("too_many_products")
        self.submit_export(key="fits")
        with mock.patch.object(exports, "MAX_PRODUCTS", 4):
            self.assertEqual(self.work().state, "succeeded")

    def test_a_product_has_one_to_two_hundred_characters(self) -> None:
        """Both are taken; what is shorter or longer is a fault of its row."""
        self.write(f"order_id,month,amount_cents,product\nA,2026-08,1,x\nB,2026-08,2,{'y' * 200}\n")
        job_id = self.submit_export()
        self.work()
        self.assertEqual(self.table(job_id, "product"), f"product,row_count,total_cents\nx,1,1\n{'y' * 200},1,2\n")

    def test_progress_counts_lines_to_the_end(self) -> None:
        """At most a hundred reports, rising, and the last one is everything; a pause is made at each."""
        self.write("order_id,month,amount_cents\n" + "A,2026-08,1\n" * 1234)
        context, pauses = Context(export_arguments("2026-08", self.sales)), []
        Exporter(self.results, pause=lambda: pauses.append(1))(context)
        self.assertLessEqual(len(context.said), 101)
        self.assertEqual(context.said, sorted(context.said))
        self.assertEqual(context.said[-1], (1234, 1234))
        self.assertGreater(len(pauses), 50)

    def test_progress_is_in_equal_steps_of_lines(self) -> None:
        """Each line of a short file, every third of 250, and the end once, also when it is an empty line."""
        header = "order_id,month,amount_cents\n"
        for rows, expected in (
            ("A,2026-08,1\n" * 3, [1, 2, 3]),
            ("A,2026-08,1\n" * 250, [*range(3, 250, 3), 250]),
            ("A,2026-08,1\n" * 2 + "\n", [1, 2, 3]),
            ("", []),
        ):
            self.write(header + rows)
            context = Context(export_arguments("2026-08", self.sales))
            Exporter(self.results)(context)
            lines = rows.count("\n")
            self.assertEqual(context.said, [(done, lines) for done in expected])

    def test_a_stop_leaves_no_table(self) -> None:
        """The stop passes through, and what it interrupted was not written."""
        self.write(PLAIN)
        context = Context(export_arguments("2026-08", self.sales))
        stop = mock.patch.object(context, "progress", side_effect=AttemptOver("cancelled"))
        with stop, self.assertRaises(AttemptOver):
            Exporter(self.results)(context)
        self.assertFalse(self.results.exists())


class Snapshots(ExportTestCase):
    """The receipt belongs to the bytes that were submitted."""

    def test_size_time_and_digest_are_recorded_at_submit(self) -> None:
        """They stand in the intent, and in the result again.

        Claims: C10-293.
        """
        self.write(PLAIN)
        os.utime(self.sales, ns=(5, 7))
        job_id = self.submit_export()
        content = PLAIN.encode()
        expected = {"bytes": len(content), "mtime_ns": 7, "sha256": hashlib.sha256(content).hexdigest()}
        self.assertEqual(self.store.intent(job_id)["args"]["snapshot"], expected)
        self.work()
        self.assertEqual(self.store.result("alice", job_id)["data"]["snapshot"], expected)

    def test_a_changed_file_is_refused(self) -> None:
        """Longer, shorter, or one digit different and of the same size and time: nothing is delivered."""
        for number, text in enumerate((PLAIN + "E,2026-08,1\n", PLAIN[:-15], PLAIN.replace("9900", "9901"))):
            self.write(PLAIN)
            times = self.sales.stat().st_mtime_ns
            self.submit_export(key=f"k{number}")
            self.write(text)
            os.utime(self.sales, ns=(times, times))
            self.failed_with("input_changed")

    def test_a_file_that_is_gone_is_refused(self) -> None:
        """It was there at the submit."""
        self.write(PLAIN)
        self.submit_export()
        self.sales.unlink()
        self.failed_with("unreadable_file")

    def test_a_touched_file_is_the_same_file(self) -> None:
        """The content decides, not its time."""
        self.write(PLAIN)
        self.submit_export()
        os.utime(self.sales, ns=(1, 1))
        self.assertEqual(self.work().state, "succeeded")

    def test_an_old_result_does_not_follow_the_file(self) -> None:
        """Reading a result again gives what it was; the changed file is another intent.

        Claims: C10-293.
        """
        self.write(PLAIN)
        job_id = self.submit_export()
        self.work()
        before = self.store.result("alice", job_id)
        self.write(PLAIN + "E,2026-08,1\n")
        self.assertEqual(self.store.result("alice", job_id), before)
        with self.assertRaises(JobError) as caught:
            self.submit_export()
        self.assertEqual(caught.exception.code, "key_conflict")

    def test_a_snapshot_is_of_a_regular_file_that_stands_still(self) -> None:
        """A folder, a missing file and a file that grows while it is read are refused."""
        for path, words in (
            (self.folder, "not a regular file"),
            (self.folder / "none", "not a regular file"),
            ("a\0b", "not a regular file"),
            (7.5, "the file cannot be opened"),
        ):
            with self.assertRaises(SalesError) as caught:
                take_snapshot(path)  # type: ignore[arg-type]
            self.assertEqual((caught.exception.code, caught.exception.reason), ("unreadable_file", words))
        self.write(PLAIN)
        with mock.patch.object(Path, "is_file", return_value=True), self.assertRaises(SalesError) as caught:
            take_snapshot(os.devnull)  # put there after the look
        self.assertEqual(caught.exception.reason, "not a regular file")
        real = os.fstat
        calls = []

        def grown(descriptor: int) -> os.stat_result:
            calls.append(1)
            if len(calls) == 3:
                with open(self.sales, "ab") as file:
                    file.write(b"E")
            return real(descriptor)

        with mock.patch("os.fstat", grown), self.assertRaises(SalesError) as caught:
            take_snapshot(self.sales)
        self.assertEqual(caught.exception.code, "file_changed")

    def test_the_default_key_is_this_month_of_this_very_file(self) -> None:
        """The same file and month give one key; another month or content gives another."""
        self.write(PLAIN)
        key = export_key(export_arguments("2026-08", self.sales))
        self.assertEqual(key, export_key(export_arguments("2026-08", self.sales)))
        self.assertNotEqual(key, export_key(export_arguments("2026-07", self.sales)))
        self.write(WIDE)
        self.assertNotEqual(key, export_key(export_arguments("2026-08", self.sales)))

    def test_arguments_that_are_none_are_refused_at_the_door(self) -> None:
        """Months, paths and snapshots of every wrong shape are `invalid_submission`, and no job is made."""
        self.write(PLAIN)
        good = export_arguments("2026-08", self.sales)
        snapshot = good["snapshot"]
        for change in (
            {"month": "2026-13"},
            {"month": 202608},
            {"month": "2026-08\n"},
            {"sales": "orders.csv"},
            {"sales": "/a\0b"},
            {"sales": "/" + "x" * 5000},
            {"sales": 7},
            {"snapshot": None},
            {"snapshot": {**snapshot, "bytes": True}},
            {"snapshot": {**snapshot, "bytes": -1}},
            {"snapshot": {**snapshot, "mtime_ns": 1.5}},
            {"snapshot": {**snapshot, "sha256": "A" * 64}},
            {"snapshot": {**snapshot, "sha256": None}},
            {"snapshot": {**snapshot, "more": 1}},
            {"results": "/elsewhere"},
        ):
            with self.subTest(change=str(change)[:60]):
                self.refused(
                    "invalid_submission",
                    self.store.submit,
                    "alice",
                    "k",
                    {**good, **change},
                    now=0,
                    tool="sales.export",
                )

    def test_a_name_that_is_no_text_is_refused(self) -> None:
        """A file system may hold names of any bytes; a job could not say which one is meant."""
        self.write(PLAIN)
        good = export_arguments("2026-08", self.sales)
        with self.assertRaisesRegex(ValueError, "absolute path"):
            SALES_EXPORT.check({**good, "sales": "/\udcff.csv"})
        try:
            (self.folder / "\udcff.csv").write_bytes(PLAIN.encode())
        except (OSError, UnicodeError):
            self.skipTest("this file system has no such names")
        with self.assertRaises(SalesError) as caught:
            export_arguments("2026-08", self.folder / "\udcff.csv")
        self.assertEqual("unreadable_file", caught.exception.code)

    def test_arguments_at_the_edge_are_taken(self) -> None:
        """A path of one and of 4096 characters and an empty file; one more is refused."""
        self.write(PLAIN)
        good = export_arguments("2026-08", self.sales)
        root = os.path.abspath(os.sep)
        empty = {**good["snapshot"], "bytes": 0}
        for change in ({"sales": root}, {"sales": root + "x" * (4096 - len(root))}, {"snapshot": empty}):
            self.assertRegex(export_key({**good, **change}), "^sales-export-[0-9a-f]{32}$")
        with self.assertRaises(ValueError):
            export_key({**good, "sales": root + "x" * (4097 - len(root))})

    def test_the_published_limits_are_these(self) -> None:
        """Products of a table, characters of a product, tables that one call removes."""
        limits = (exports.MAX_PRODUCTS, exports.MAX_TEXT, defaults(remove_leftovers)["limit"])
        self.assertEqual((10_000, 200, 100), limits)


class OneFolder(ExportTestCase):
    """No path of a caller leads out of the results, and none into what they may not read."""

    def test_names_are_made_of_numbers_only(self) -> None:
        """However the owner, the key or the product are called.

        Claims: C10-248, C10-249.
        """
        self.write(WIDE.replace("tea", "../../tea"))
        args = export_arguments("2026-08", self.sales)
        self.store.submit("../../alice", "/etc/k", args, now=self.clock, tool="sales.export")
        self.assertEqual(self.work().state, "succeeded")
        self.assertEqual(
            sorted(path.name for path in self.results.iterdir()), ["report-1-a1-day.csv", "report-1-a1-product.csv"]
        )
        outside = {path.name for path in self.folder.iterdir() if not path.name.startswith("jobs.db")}
        self.assertEqual(outside, {"orders.csv", "results"})

    def test_only_names_of_tables_are_read(self) -> None:
        """An absolute path, a way up, a link and another file of the folder are refused.

        Claims: C10-248.
        """
        self.write(PLAIN)
        self.results.mkdir()
        secret = self.folder / "secret.csv"
        secret.write_bytes(b"secret")
        digest = {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}
        (self.results / "other.csv").write_bytes(b"secret")
        for name in (str(secret), "../secret.csv", "other.csv", "report-1-a1-day.csv/../../secret.csv", "", None, 7):
            with self.subTest(name=name), self.assertRaises(ExportError) as caught:
                read_table(self.results, {"file": name, **digest})
            self.assertEqual(caught.exception.code, "bad_name")
        if hasattr(os, "symlink") and sys.platform != "win32":
            (self.results / "report-1-a1-day.csv").symlink_to(secret)
            with self.assertRaises(ExportError) as caught:
                read_table(self.results, {"file": "report-1-a1-day.csv", **digest})
            self.assertEqual(caught.exception.code, "table_changed")

    def test_a_table_that_is_gone_or_changed_is_not_handed_out(self) -> None:
        """What the receipt says is compared each time."""
        self.write(PLAIN)
        job_id = self.submit_export()
        self.work()
        (table,) = self.store.result("alice", job_id)["data"]["tables"]
        path = self.results / table["file"]
        path.write_bytes(path.read_bytes().replace(b"6000", b"6001"))
        for code in ("table_changed", "table_missing"):
            with self.assertRaises(ExportError) as caught:
                read_table(self.results, table)
            self.assertEqual(caught.exception.code, code)
            path.unlink(missing_ok=True)

    def test_inputs_lie_in_their_folder(self) -> None:
        """A service that does not trust its callers names the folder; links and ways up do not lead out.

        Claims: C10-248.
        """
        inputs = self.folder / "inputs"
        inputs.mkdir()
        self.write(PLAIN)
        exporter = Exporter(self.results, inputs=inputs)
        self.submit_export("2026-08")
        self.failed_with("input_not_allowed", exporter)
        paths = [str(inputs / ".." / "orders.csv"), str(self.folder / "inputs-2" / ".." / "orders.csv")]
        if sys.platform != "win32":
            (inputs / "link.csv").symlink_to(self.sales)
            paths.append(str(inputs / "link.csv"))
        for path in paths:
            with self.subTest(path=path), self.assertRaises(ExportError) as caught:
                exporter(Context({**export_arguments("2026-08", self.sales), "sales": path}))
            self.assertEqual(caught.exception.code, "input_not_allowed")
        apart = mock.patch("os.path.commonpath", side_effect=ValueError("the paths lie on two drives"))
        with apart, self.assertRaises(ExportError) as caught:
            exporter(Context(export_arguments("2026-08", self.sales)))
        self.assertEqual(caught.exception.code, "input_not_allowed")
        inside = inputs / "orders.csv"
        inside.write_text(PLAIN, encoding="utf-8", newline="\n")
        named = [exporter]
        if sys.platform != "win32":
            (self.folder / "alias").symlink_to(inputs)
            named.append(Exporter(self.results, inputs=self.folder / "alias"))
        for allowed in named:
            self.assertEqual(allowed(Context(export_arguments("2026-08", inside)))["total_cents"], 6000)


class Atomic(ExportTestCase):
    """A table is there whole, or not at all; and what nobody needs goes away."""

    def test_a_failed_write_leaves_nothing(self) -> None:
        """Full disk or a name that cannot be put in place: no table, no half file, and the error comes out."""
        self.write(PLAIN)
        for function in ("os.fsync", "os.replace"):
            full = mock.patch(function, side_effect=OSError("full"))
            with self.subTest(function=function), full, self.assertRaises(OSError):
                Exporter(self.results)(Context(export_arguments("2026-08", self.sales)))
            self.assertEqual(list(self.results.iterdir()), [])

    @unittest.skipUnless(os.name == "posix", "a folder cannot be synced on this system")
    def test_a_name_is_on_disk_before_the_receipt_tells_of_it(self) -> None:
        """The folder is synced after the name is in place; where that cannot be done the table counts all the same."""
        self.write(PLAIN)
        real = os.fsync
        for code, counts in ((None, True), (errno.EINVAL, True), (errno.EIO, False)):
            synced: list[list[str]] = []
            sizes: list[int] = []

            def sync(
                descriptor: int, code: int | None = code, synced: list[list[str]] = synced, sizes: list[int] = sizes
            ) -> None:
                real(descriptor)
                sizes.append(os.fstat(descriptor).st_size)
                if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                    synced.append([path.name for path in self.results.iterdir()])
                    if code is not None:
                        raise OSError(code, "no")

            free = os.dup(0)
            os.close(free)
            with self.subTest(code=code), mock.patch("os.fsync", sync):
                try:
                    Exporter(self.results)(Context(export_arguments("2026-08", self.sales)))
                except OSError as error:
                    self.assertEqual((False, code), (counts, error.errno))
                else:
                    self.assertTrue(counts)
                self.assertEqual(len(synced[0]), 1)
                self.assertTrue(synced[0][0].startswith("report-"))
                self.assertEqual(sizes[0], (self.results / synced[0][0]).stat().st_size)
            again = os.dup(0)
            os.close(again)
            self.assertEqual(free, again, "the folder is not left open")

    def test_a_late_attempt_writes_over_nothing_and_cleans_up(self) -> None:
        """Its names are its own; refused, it removes them, and the table of the receipt stays."""
        self.write(PLAIN)
        job_id = self.submit_export()

        def lose() -> None:  # in the pause before the delivery somebody else does the job
            if (self.results / "report-1-a1-month.csv").exists() and self.state(job_id) == "running":
                self.clock.advance(10)
                self.assertEqual(self.work().state, "succeeded")

        outcome = self.work(Exporter(self.results, pause=lose))
        self.assertEqual((outcome.attempt, outcome.state), (1, "lost"))
        self.assertEqual([path.name for path in self.results.iterdir()], ["report-1-a2-month.csv"])
        self.assertEqual(self.table(job_id, "month"), "month,row_count,total_cents\n2026-08,3,6000\n")

    def test_leftovers_are_those_that_no_receipt_names(self) -> None:
        """Dead attempts, failed and pruned jobs; nothing of a live job, and nothing that is not ours."""
        self.write(PLAIN)
        kept = self.submit_export(key="kept")
        self.work()
        live = self.submit_export(key="live")
        self.store.claim(live, now=self.clock, lease=50)
        ours = [f"report-{kept}-a9-day.csv", "report-77-a1-month.csv"]
        others = [f"report-{live}-a1-day.csv", "notes.txt", "report-1-a1-day.csv.bak", "report-0-a1-day.csv", ".new-x"]
        others.append(f"report-{2**63}-a1-day.csv")
        for name in ours + others:
            (self.results / name).write_bytes(b"x")
        self.assertEqual(remove_leftovers(self.results, self.path, limit=1), 1)
        self.assertEqual(remove_leftovers(self.results, self.path), 1)
        left = {path.name for path in self.results.iterdir()}
        self.assertEqual(left, {f"report-{kept}-a1-month.csv", *others})
        self.store.finish(live, 1, {}, now=self.clock)
        self.assertEqual(remove_leftovers(self.results, self.path), 1)  # `.new-x`: nobody is writing any more
        self.assertFalse((self.results / ".new-x").exists())

    def test_what_is_gone_already_needs_no_removing(self) -> None:
        """An attempt that wrote nothing is discarded, and of two that clean up at once neither fails."""
        self.write(PLAIN)
        exporter = Exporter(self.folder / "made" / "here")
        exporter.discard(Context(export_arguments("2026-08", self.sales)))
        exporter(Context(export_arguments("2026-08", self.sales)))
        leftover = self.folder / "made" / "here" / "report-77-a1-month.csv"
        leftover.write_bytes(b"x")
        real = exports._is_leftover

        def another_one_is_first(store: Any, name: str) -> bool:
            found = real(store, name)
            leftover.unlink(missing_ok=True)
            return found

        with mock.patch.object(exports, "_is_leftover", another_one_is_first):
            self.assertEqual(remove_leftovers(leftover.parent, self.path), 2)
        self.assertEqual(remove_leftovers(leftover.parent, self.path), 0)
        self.assertEqual(remove_leftovers(leftover.parent, self.folder / "none.db"), 0)

    def test_of_a_store_that_is_not_there_nothing_is_a_leftover(self) -> None:
        """An empty store made by looking, or one in memory, would name no table, and all would go."""
        self.results.mkdir(exist_ok=True)
        table = self.results / "report-1-a1-month.csv"
        table.write_bytes(b"")
        for path in (self.folder / "none.db", ":memory:"):
            with self.assertRaises(StoreError):
                remove_leftovers(self.results, path)
        self.assertTrue(table.exists())
        self.assertFalse((self.folder / "none.db").exists())
        self.assertFalse((self.folder / "none.db").exists(), "without a table nobody is asked")

    @unittest.skipIf(sys.platform == "win32", "no links on this system")
    def test_a_link_is_no_leftover(self) -> None:
        """Whatever its name is: this module makes none."""
        self.write(PLAIN)
        self.results.mkdir()
        (self.results / "report-77-a1-month.csv").symlink_to(self.sales)
        self.assertEqual(remove_leftovers(self.results, self.path), 0)
        self.assertTrue((self.results / "report-77-a1-month.csv").is_symlink())

    def test_tables_go_with_their_results(self) -> None:
        """After retention has taken the data, or the whole job, its tables are leftovers."""
        self.write(PLAIN)
        self.submit_export()
        self.work()
        self.assertEqual(remove_leftovers(self.results, self.path), 0)
        self.store.prune(now=100, results_before=50, keys_before=0)
        self.assertEqual(remove_leftovers(self.results, self.path), 1)
        self.assertEqual(remove_leftovers(self.folder / "none", self.path), 0)


class AnyDatabase(unittest.TestCase):
    """The operation and the store."""

    def test_an_export_needs_its_operation(self) -> None:
        """A store that was not told of it takes none."""
        with JobStore(":memory:") as store, self.assertRaises(JobError):
            store.submit("alice", "k", {}, now=0, tool="sales.export")


class OtherTypes(unittest.TestCase):
    """What is no path and no number."""

    def test_a_number_is_no_path(self) -> None:
        """`open` takes it for an open file and closes that: 0 would be standard input."""
        for wrong in (0, 1, True, None, 1.5, ["x"], b"\0"):
            with self.subTest(wrong=wrong), self.assertRaises(SalesError) as caught:
                take_snapshot(wrong)  # type: ignore[arg-type]
            self.assertEqual(caught.exception.code, "unreadable_file")
            with self.assertRaises(SalesError):
                export_arguments("2026-08", wrong)  # type: ignore[arg-type]

    def test_the_number_of_an_open_file_is_not_read_and_not_closed(self) -> None:
        """Its owner goes on with it."""
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
            with self.assertRaises(SalesError):
                take_snapshot(file.fileno())  # type: ignore[arg-type]
            self.assertEqual((file.seek(0), file.read()), (0, b"x"))

    def test_a_limit_is_a_whole_number_from_one(self) -> None:
        """-1 would never be reached, and every table that can be removed would be."""
        for wrong in (0, -1, True, None, 1.5, "1"):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                remove_leftovers("nowhere", "none.db", limit=wrong)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
