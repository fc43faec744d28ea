"""A sales file: right to the cent at any length, or refused with a code and a line."""

from __future__ import annotations

import hashlib
import io
import os
import tracemalloc
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.companions.operating.sales import (
    MAX_AMOUNT_DIGITS,
    MAX_LINE_BYTES,
    MAX_ORDER_ID,
    PROGRESS_STEPS,
    Sale,
    SalesError,
    SalesFile,
    Summary,
    summarize,
)
from chapter10.tests.support import FolderTestCase, defaults

HEADER = b"order_id,month,amount_cents\n"
FIXTURE = HEADER + b"A,2026-08,1000\nB,2026-08,2000\nC,2026-08,3000\nD,2026-07,9900\n"
AUGUST = Summary("2026-08", 3, 6000)


class SalesTestCase(FolderTestCase):
    """A test with a sales file of its own."""

    def file(self, content: bytes) -> Path:
        path = self.folder / "sales.csv"
        path.write_bytes(content)
        return path

    def refused(self, content: bytes) -> tuple[str, int | None]:
        with self.assertRaises(SalesError) as caught:
            summarize(self.file(content), "2026-08")
        self.assertEqual(str(caught.exception), caught.exception.code)
        return caught.exception.code, caught.exception.line


class Totals(SalesTestCase):
    """What is read is right."""

    def test_the_fixture_comes_to_three_rows_and_sixty_yuan(self) -> None:
        """August has three rows and 6000 cents; July stays out though it is in the file.

        Claims: C10-168, C10-169, C10-170, C10-171.
        """
        path = self.file(FIXTURE)
        self.assertEqual(summarize(path, "2026-08"), AUGUST)
        self.assertEqual(summarize(path, "2026-07"), Summary("2026-07", 1, 9900))
        self.assertEqual(summarize(path, "2026-06"), Summary("2026-06", 0, 0))
        self.assertEqual(AUGUST.data(), {"month": "2026-08", "row_count": 3, "total_cents": 6000})

    def test_forms_that_mean_the_same_give_the_same(self) -> None:
        """A byte order mark, CRLF, no last line break, empty lines, other column order, quoted fields."""
        forms = {
            "bom": b"\xef\xbb\xbf" + FIXTURE,
            "crlf": FIXTURE.replace(b"\n", b"\r\n"),
            "no last line break": FIXTURE[:-1],
            "empty lines": FIXTURE.replace(b"\n", b"\n\n") + b"\n",
            "other order": b"month,amount_cents,order_id\n2026-08,1000,A\n2026-08,2000,B\n2026-08,3000,C\n",
            "quoted": b'"order_id","month","amount_cents"\n"A,""1""","2026-08","5999"\nB,2026-08,"1"\nC,2026-08,0\n',
            "Chinese ids": FIXTURE.replace(b"A,", "订单甲,".encode()),
        }
        for name, content in forms.items():
            with self.subTest(form=name):
                self.assertEqual(summarize(self.file(content), "2026-08"), AUGUST)

    def test_a_total_beyond_every_float_is_exact(self) -> None:
        """Whole cents of 18 digits add up to the last digit, refunds included.

        Claims: C10-169.
        """
        largest = 10**MAX_AMOUNT_DIGITS - 1
        rows = b"".join(b"A,2026-08,%d\n" % amount for amount in (largest, largest, largest, -1, 0))
        self.assertEqual(summarize(self.file(HEADER + rows), "2026-08"), Summary("2026-08", 5, 3 * largest - 1))

    def test_rows_carry_the_extra_columns_that_were_asked_for(self) -> None:
        """In the order asked for, None for one that the file lacks; nobody else's columns get in."""
        content = b"day,order_id,month,amount_cents\n2026-08-01,A,2026-08,5\n"
        with SalesFile(self.file(content), extra=("product", "day")) as sales:
            self.assertEqual(list(sales.rows()), [Sale(2, "A", "2026-08", 5, (None, "2026-08-01"))])
        with self.assertRaises(SalesError) as caught:
            SalesFile(self.folder / "sales.csv")
        self.assertEqual(caught.exception.code, "bad_header")

    def test_a_byte_order_mark_is_one_only_at_the_start(self) -> None:
        """Anywhere else it is a character of the field, and stays in it."""
        with SalesFile(self.file(HEADER + "\ufeffA,2026-08,1\n".encode())) as sales:
            self.assertEqual([sale.order_id for sale in sales.rows()], ["\ufeffA"])

    def test_the_snapshot_is_of_the_bytes_that_were_read(self) -> None:
        """Size, time and SHA-256 are known after the last row, and not before."""
        path = self.file(FIXTURE)
        with SalesFile(path) as sales:
            rows = sales.rows()
            next(rows)
            with self.assertRaises(RuntimeError):
                sales.snapshot()
            self.assertEqual(len(list(rows)), 3)
            status = os.stat(path)
            expected = {"bytes": len(FIXTURE), "mtime_ns": status.st_mtime_ns}
            self.assertEqual(sales.snapshot(), {**expected, "sha256": hashlib.sha256(FIXTURE).hexdigest()})


class Faults(SalesTestCase):
    """What is wrong has a code and a line, and nothing is repaired."""

    def test_each_fault_has_its_code_and_its_line(self) -> None:
        """The line counts from 1, the header and empty lines included."""
        good = b"A,2026-08,1000\n"
        cases: dict[str, tuple[bytes, str, int]] = {
            "no header": (b"", "bad_header", 1),
            "empty header": (b"\n" + good, "bad_header", 1),
            "wrong column": (b"order_id,month,amount\n" + good, "bad_header", 1),
            "unknown column": (b"order_id,month,amount_cents,note\nA,2026-08,1,x\n", "bad_header", 1),
            "column with a space": (b"order_id, month,amount_cents\n", "bad_header", 1),
            "column twice": (b"order_id,month,amount_cents,month\n", "duplicate_column", 1),
            "a field too few": (HEADER + good + b"B,2026-08\n", "bad_columns", 3),
            "a field too many": (HEADER + good + b"\nB,2026-08,1,2\n", "bad_columns", 4),
            "decimal": (HEADER + b"A,2026-08,10.00\n", "bad_amount", 2),
            "plus": (HEADER + b"A,2026-08,+1\n", "bad_amount", 2),
            "space": (HEADER + b"A,2026-08, 1\n", "bad_amount", 2),
            "underscore": (HEADER + b"A,2026-08,1_000\n", "bad_amount", 2),
            "exponent": (HEADER + b"A,2026-08,1e3\n", "bad_amount", 2),
            "empty amount": (HEADER + b"A,2026-08,\n", "bad_amount", 2),
            "wide digits": (HEADER + "A,2026-08,１２\n".encode(), "bad_amount", 2),
            "too many digits": (HEADER + b"A,2026-08," + b"9" * (MAX_AMOUNT_DIGITS + 1) + b"\n", "bad_amount", 2),
            "month 13": (HEADER + good + b"A,2026-13,1\n", "bad_month", 3),
            "short month": (HEADER + b"A,2026-8,1\n", "bad_month", 2),
            "a day": (HEADER + b"A,2026-08-01,1\n", "bad_month", 2),
            "fault in another month": (HEADER + good + b"A,2026-07,x\n", "bad_amount", 3),
            "no order id": (HEADER + b",2026-08,1\n", "bad_order_id", 2),
            "long order id": (HEADER + b"A" * (MAX_ORDER_ID + 1) + b",2026-08,1\n", "bad_order_id", 2),
            "utf-16": ("order_id,month,amount_cents\n".encode("utf-16"), "nul_byte", 1),
            "gbk": (HEADER + good + "订单,2026-08,1\n".encode("gbk"), "bad_encoding", 3),
            "latin": (HEADER + b"\xe9,2026-08,1\n", "bad_encoding", 2),
            "nul": (HEADER + b"A\0,2026-08,1\n", "nul_byte", 2),
            "open quote": (HEADER + good + b'"A,2026-08,1\n', "bad_quoting", 3),
            "text after a quote": (HEADER + b'"A"x,2026-08,1\n', "bad_quoting", 2),
            "line break in quotes": (HEADER + b'"A\nB",2026-08,1\n', "bad_quoting", 2),
            "carriage return in quotes": (HEADER + good + b'"A\rB",2026-08,1\n', "bad_quoting", 3),
            "old line ends": (FIXTURE.replace(b"\n", b"\r"), "bad_quoting", 1),
            "second mark": (HEADER + b"\xef\xbb\xbfA,2026-08,\xef\xbb\xbf1\n", "bad_amount", 2),
            "long line": (HEADER + good + b"A" * MAX_LINE_BYTES + b"\n", "line_too_long", 3),
            "endless line": (b"x" * (3 * MAX_LINE_BYTES), "line_too_long", 1),
        }
        for name, (content, code, line) in cases.items():
            with self.subTest(fault=name):
                self.assertEqual(self.refused(content), (code, line))

    def test_the_longest_of_each_is_taken(self) -> None:
        """A line of 64 KiB, an order id of one and of 200 characters, an amount of 18 digits."""
        limits = (MAX_LINE_BYTES, MAX_ORDER_ID, MAX_AMOUNT_DIGITS, PROGRESS_STEPS)
        self.assertEqual((limits, 100), ((65_536, 200, 18, 100), defaults(summarize)["steps"]))
        for row in (b"A" * 200 + b",2026-08,1\n", b"A,2026-08,1\n", b"A,2026-08," + b"9" * 18 + b"\n"):
            self.assertEqual(1, self.summary(HEADER + row).row_count)
        header = b"order_id,month,amount_cents,day\n"
        line = b"A,2026-08,1," + b"x" * (65_536 - len(b"A,2026-08,1,\n")) + b"\n"
        with SalesFile(self.file(header + line), ("day",)) as sales:
            self.assertEqual([65_536 - 13], [len(sale.extra[0] or "") for sale in sales.rows()])

    def summary(self, content: bytes) -> Summary:
        summary = summarize(self.file(content), "2026-08")
        assert summary is not None
        return summary

    def test_a_reason_shows_nothing_of_the_file(self) -> None:
        """A row may hold what a log must not."""
        with self.assertRaises(SalesError) as caught:
            summarize(self.file(HEADER + b"SECRET,2026-08,SECRET\n"), "2026-08")
        self.assertNotIn("SECRET", caught.exception.reason + str(caught.exception))

    def test_what_is_no_regular_file_is_unreadable(self) -> None:
        """A folder, a missing file, a name with NUL, a path that is none, a device."""
        paths: list[Any] = [self.folder, self.folder / "missing", "a\0b", None, 7.5]
        if os.path.exists("/dev/null"):
            paths.append("/dev/null")
        for path in paths:
            with self.subTest(path=path), self.assertRaises(SalesError) as caught:
                summarize(path, "2026-08")
            self.assertEqual((caught.exception.code, caught.exception.line), ("unreadable_file", None))

    def test_a_file_that_changes_while_it_is_read_is_refused(self) -> None:
        """More rows, fewer rows and other content are all seen, and growth does not make the reading endless."""
        changes = (FIXTURE + b"E,2026-08,1\n", HEADER + b"A,2026-08,1000\n", FIXTURE.replace(b"1000", b"1001"))
        for changed in changes:
            path = self.file(FIXTURE)
            os.utime(path, ns=(0, 0))
            with self.subTest(changed=changed), self.assertRaises(SalesError) as caught, SalesFile(path) as sales:
                read = 0
                for _ in sales.rows():
                    read += 1
                    path.write_bytes(changed)
            self.assertEqual(caught.exception.code, "file_changed")
            self.assertLessEqual(read, 4)

    def test_more_lines_than_were_counted_are_refused_before_progress_exceeds_its_total(self) -> None:
        """Also when size and time of the file look as before."""
        # 32 bytes, then rows of 16: whatever was read ahead in a buffer ends between two rows.
        header = b'"order_id","month",amount_cents\n'
        path = self.file(header + b"A,2026-08,12345\n" * 20_000)
        status = os.stat(path)
        with SalesFile(path) as sales, self.assertRaises(SalesError) as caught:
            for sale in sales.rows():
                self.assertLessEqual(sale.line, sales.lines + 1)
                if sale.line == 2:
                    path.write_bytes(header + b"\n" * (status.st_size - len(header)))
                    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.assertEqual(caught.exception.code, "file_changed")

    def test_a_disk_that_fails_while_reading_is_unreadable(self) -> None:
        """The machine's error is the cause of ours, and the file is closed."""

        class Failing(io.BytesIO):
            def fileno(self) -> int:
                return 0

            def read(self, *arguments: Any) -> bytes:
                raise OSError("bad sector")

        failing = Failing(FIXTURE)
        opening = mock.patch("chapter10.companions.operating.sales.open_regular", return_value=failing)
        with opening, self.assertRaises(SalesError) as caught:
            SalesFile("any")
        self.assertEqual(caught.exception.code, "unreadable_file")
        self.assertIsInstance(caught.exception.__cause__, OSError)
        self.assertTrue(failing.closed)

    def test_a_disk_that_fails_later_is_unreadable_too(self) -> None:
        """In the middle of the rows; what was read ahead does not tell in which line."""
        with SalesFile(self.file(FIXTURE)) as sales:
            rows = sales.rows()
            next(rows)
            broken = mock.Mock(wraps=sales._file)
            broken.readline.side_effect = OSError("bad sector")
            with mock.patch.object(sales, "_file", broken), self.assertRaises(SalesError) as caught:
                next(rows)
        self.assertEqual((caught.exception.code, caught.exception.line), ("unreadable_file", None))

    def test_the_file_is_closed_in_every_case(self) -> None:
        """After the last row, after a fault in the header or in a row, and after a no."""
        opened: list[Any] = []

        def remember(path: Any) -> Any:
            opened.append(open(path, "rb"))  # noqa: SIM115
            return opened[-1]

        with mock.patch("chapter10.companions.operating.sales.open_regular", remember):
            summarize(self.file(FIXTURE), "2026-08")
            summarize(self.file(FIXTURE), "2026-08", lambda done, total: False)
            for content in (b"order_id\n", HEADER + b"A,2026-08,x\n"):
                self.refused(content)
            sales = SalesFile(self.file(FIXTURE))
            sales.close()
            sales.close()
        self.assertEqual([True] * 5, [file.closed for file in opened])

    def test_arguments_are_checked_at_the_door(self) -> None:
        """A month that is none and a number of steps below 1 are the caller's mistake."""
        path = self.file(FIXTURE)
        for month in ("2026-8", "2026-13", "", "2026-08\n", 202608, None, True):
            with self.subTest(month=month), self.assertRaises(ValueError):
                summarize(path, month)  # type: ignore[arg-type]
        for steps in (0, -1, True, 1.5, None):
            with self.subTest(steps=steps), self.assertRaises(ValueError):
                summarize(path, "2026-08", steps=steps)  # type: ignore[arg-type]


class Progress(SalesTestCase):
    """Progress suits the size, and may stop the reading."""

    def reports(self, lines: int, steps: int = PROGRESS_STEPS) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        def note(done: int, total: int) -> bool:
            seen.append((done, total))
            return True

        summarize(self.file(HEADER + b"A,2026-08,1\n" * lines), "2026-08", note, steps=steps)
        return seen

    def test_a_short_file_reports_every_row_and_a_long_one_a_hundred_times(self) -> None:
        """The number of reports is bounded, they rise, and the last one is the end.

        Claims: C10-180.
        """
        self.assertEqual(self.reports(0), [])
        self.assertEqual(self.reports(3), [(1, 3), (2, 3), (3, 3)])
        self.assertEqual(self.reports(7, steps=3), [(3, 7), (6, 7), (7, 7)])
        self.assertEqual(self.reports(7, steps=1), [(7, 7)])
        for lines in (99, 100, 101, 250, 12_345):
            with self.subTest(lines=lines):
                reports = self.reports(lines)
                self.assertLessEqual(len(reports), PROGRESS_STEPS)
                self.assertGreater(len(reports), min(lines, PROGRESS_STEPS) // 2)
                self.assertEqual(reports, sorted(set(reports)))
                self.assertEqual(reports[-1], (lines, lines))

    def test_empty_lines_do_not_raise_the_number_of_reports(self) -> None:
        """They count as lines, and the end is reported also when nothing stands there."""
        seen: list[int] = []

        def note(done: int, total: int) -> bool:
            seen.append(done)
            return answers[-1]

        path = self.file(HEADER + b"A,2026-08,1\n" + b"\n" * 500)
        for answer, expected in ((True, Summary("2026-08", 1, 1)), (False, None)):  # the end may be refused as well
            answers = [answer]
            self.assertEqual(summarize(path, "2026-08", note), expected)
        self.assertEqual(seen, [501, 501])

    def test_a_no_stops_the_reading_and_closes_the_file(self) -> None:
        """The caller asked for the end, so there is no result and no error."""
        seen: list[int] = []

        def stop(done: int, total: int) -> bool:
            seen.append(done)
            return done < 2

        self.assertIsNone(summarize(self.file(FIXTURE), "2026-08", stop))
        self.assertEqual(seen, [1, 2])

    def test_memory_stays_flat(self) -> None:
        """Ten times the rows take the same memory."""

        def peak(rows: int) -> int:
            path = self.file(HEADER + b"A-long-order-id,2026-08,100\n" * rows)
            tracemalloc.start()
            try:
                summarize(path, "2026-08")
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        small, large = peak(2_000), peak(20_000)
        self.assertLess(large, small + 50_000)


class OtherTypes(SalesTestCase):
    """What are no names and no function is refused before the file is opened."""

    def test_extra_columns_are_a_list_of_names(self) -> None:
        """One text would be taken for its letters."""
        for wrong in (None, 5, "day", [1], ["day", None], {"day"}):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError) as caught:
                SalesFile(self.folder / "none.csv", wrong)  # type: ignore[arg-type]
            self.assertNotIsInstance(caught.exception, SalesError)  # which is what the missing file would be

    def test_progress_can_be_called(self) -> None:
        """Anything else is refused at once, and not after a hundredth of the file."""
        for wrong in (1, "x", [print]):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError) as caught:
                summarize(self.folder / "none.csv", "2026-08", wrong)  # type: ignore[arg-type]
            self.assertNotIsInstance(caught.exception, SalesError)


if __name__ == "__main__":
    unittest.main()
