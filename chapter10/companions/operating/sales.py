"""A sales file, read as a stream: any length in flat memory, exact totals, and a line number for every fault.

The need. A report over four rows in a list proves nothing about a file of a million. Read whole, the
file fills the memory; read leniently, one bad row changes a total and nobody learns of it. So a row is
either right or the whole reading ends with a code, the line and a reason.

The file. CSV in UTF-8 (a byte order mark is accepted), lines ended by LF or CRLF, the first line the
names of the columns, in any order: `order_id`, `month` (`YYYY-MM`), `amount_cents` (a whole number of
cents, negative for a refund), and those extra ones that the reader of the file asks for. A field may be
quoted, but holds no line break. Empty lines are skipped.

What holds
    S1  memory does not grow with the file: one line at a time, at most `MAX_LINE_BYTES` each
    S2  a total is an exact integer; no floating point is involved
    S3  nothing is repaired: the first fault ends the reading as a `SalesError`
    S4  what was read is what `snapshot` says: size, time and SHA-256 of the bytes. A file that changes
        while it is read is refused (`file_changed`)
    S5  progress is counted in lines, never falls, and is reported at most `steps` times

What it does not do: it does not find the same order twice (that would take memory for every order), and
it neither knows nor changes a job. A worker passes its `progress` as a function.

Source: the chapter's report that can be worked out by hand (claims C10-167 to C10-171, C10-180).
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

from chapter10.canonical import CodedError

__all__ = [
    "COLUMNS",
    "MAX_AMOUNT_DIGITS",
    "MAX_LINE_BYTES",
    "MAX_ORDER_ID",
    "PROGRESS_STEPS",
    "Progress",
    "Sale",
    "SalesError",
    "SalesFile",
    "Summary",
    "open_regular",
    "summarize",
]

COLUMNS: Final = ("order_id", "month", "amount_cents")
"""The columns that every sales file has."""
MAX_LINE_BYTES: Final = 64 * 1024
"""Bytes of one line, its end included."""
MAX_ORDER_ID: Final = 200
"""Characters of an order id; at least one."""
MAX_AMOUNT_DIGITS: Final = 18
"""Digits of an amount; 18 stay within 64 bits for whoever reads the rows after us."""
PROGRESS_STEPS: Final = 100
"""The most reports of progress in one reading, by default."""

_CHUNK_BYTES: Final = 64 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_AMOUNT: Final = re.compile(rf"-?[0-9]{{1,{MAX_AMOUNT_DIGITS}}}", re.ASCII)
_MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])", re.ASCII)

Progress = Callable[[int, int], bool]
"""Called with the lines done and all lines; False asks for the reading to stop."""


class SalesError(CodedError, ValueError):
    """Raised when a file is not what it should be; `line` counts from 1, `reason` says what is wrong.

    `unreadable_file`, `file_changed`: no line (None). `bad_header`: a column is missing or unknown.
    `duplicate_column`. `bad_columns`: a row has more or fewer fields than the header. `bad_order_id`,
    `bad_month`, `bad_amount`: the field is not what the column holds. `bad_encoding`: not UTF-8.
    `bad_quoting`, `nul_byte`, `line_too_long`: the line is no CSV as described. The reason holds no
    content of the file but names of columns.
    """

    line: int | None
    reason: str

    def __init__(self, code: str, line: int | None, reason: str) -> None:
        super().__init__(code)
        self.line = line
        self.reason = reason


class Sale(NamedTuple):
    """One row: its line in the file, the three columns, and the extra ones in the order asked for.

    `extra` has None for an extra column that the file lacks.
    """

    line: int
    order_id: str
    month: str
    amount_cents: int
    extra: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a month comes to: the number of its rows and their exact sum in cents."""

    month: str
    row_count: int
    total_cents: int

    def data(self) -> dict[str, Any]:
        """Return the report as the chapter delivers it: `{month, row_count, total_cents}`."""
        return {"month": self.month, "row_count": self.row_count, "total_cents": self.total_cents}


class SalesFile:
    """One sales file, opened once; iterate `rows()` once, then ask for the `snapshot()`.

    `path`: a regular file. `extra`: names of further columns that the file may have; any other column
    is `bad_header`. Use it as a context manager or call `close`.

    Opening counts the lines (a fast pass over the bytes) and checks the header.
    Raises `SalesError`: `unreadable_file` and the codes of a header; `ValueError` for `extra` that are no names.
    """

    lines: int
    """Lines after the header, empty ones included: the `total` of progress."""
    columns: tuple[str, ...]
    """The names in the header, in its order."""

    def __init__(self, path: str | os.PathLike[str], extra: Sequence[str] = ()) -> None:
        if type(extra) not in (list, tuple) or not all(type(name) is str for name in extra):
            raise ValueError("extra is not a list of names")
        self._file = open_regular(path)
        try:
            status = os.fstat(self._file.fileno())
            self._size, self._mtime_ns = status.st_size, status.st_mtime_ns
            self.lines = max(0, _count_lines(self._file) - 1)
            self._file.seek(0)
            self._sha256 = hashlib.sha256()
            self._line = 0
            self._complete = False
            self.columns = self._header(tuple(extra))
        except OSError as error:
            self._file.close()
            raise SalesError("unreadable_file", None, "the file cannot be read") from error
        except BaseException:
            self._file.close()
            raise
        self._extra = tuple(extra)

    def __enter__(self) -> SalesFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second close does nothing."""
        self._file.close()

    @property
    def line(self) -> int:
        """The number of the last line read, from 1; after the last row, the lines of the file."""
        return self._line

    def rows(self) -> Iterator[Sale]:
        """Yield the rows in the order of the file. Raises `SalesError` at the first fault."""
        order, month, amount = (self.columns.index(name) for name in COLUMNS)
        extra = [self.columns.index(name) if name in self.columns else None for name in self._extra]
        width = len(self.columns)
        while (text := self._next_line()) is not None:
            if not text:
                continue
            fields = self._fields(text)
            if len(fields) != width:
                self._refuse("bad_columns", f"{len(fields)} fields where the header has {width}")
            if not 1 <= len(fields[order]) <= MAX_ORDER_ID:
                self._refuse("bad_order_id", f"the order id does not have 1 to {MAX_ORDER_ID} characters")
            if not _MONTH.fullmatch(fields[month]):
                self._refuse("bad_month", "the month is not YYYY-MM")
            if not _AMOUNT.fullmatch(fields[amount]):
                self._refuse(
                    "bad_amount", f"the amount is not a whole number of cents of up to {MAX_AMOUNT_DIGITS} digits"
                )
            yield Sale(
                self._line,
                fields[order],
                fields[month],
                int(fields[amount]),
                tuple([None if index is None else fields[index] for index in extra]),
            )
        self._check_unchanged()
        self._complete = True

    def snapshot(self) -> dict[str, Any]:
        """Return `{bytes, mtime_ns, sha256}` of exactly what was read, after the last row.

        Raises `RuntimeError` before that: a part of a file is not a snapshot of it.
        """
        if not self._complete:
            raise RuntimeError("the file has not been read to its end")
        return {"bytes": self._size, "mtime_ns": self._mtime_ns, "sha256": self._sha256.hexdigest()}

    def _header(self, extra: tuple[str, ...]) -> tuple[str, ...]:
        text = self._next_line()
        names = tuple(self._fields(text)) if text else ()
        if len(set(names)) != len(names):
            self._refuse("duplicate_column", "a column stands twice")
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            self._refuse("bad_header", f"the header lacks {', '.join(missing)}")
        if any(name not in COLUMNS and name not in extra for name in names):
            self._refuse("bad_header", f"the header has a column besides {', '.join(COLUMNS + extra)}")
        return names

    def _next_line(self) -> str | None:
        """Return the next line without its end, or None at the end of the file."""
        try:
            raw = self._file.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise SalesError("unreadable_file", None, "the file cannot be read on") from error
        if not raw:
            return None
        self._line += 1
        if self._line > self.lines + 1:  # it grows, and perhaps without an end; progress would exceed its total
            raise SalesError("file_changed", None, "the file has more lines than were counted")
        self._sha256.update(raw)
        if len(raw) > MAX_LINE_BYTES:
            self._refuse("line_too_long", f"the line exceeds {MAX_LINE_BYTES} bytes")
        if self._line == 1 and raw.startswith(_BOM):
            raw = raw[len(_BOM) :]
        if b"\0" in raw:
            self._refuse("nul_byte", "the line holds a NUL byte (is the file UTF-16?)")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self._refuse("bad_encoding", "the line is not UTF-8")
        return text.removesuffix("\n").removesuffix("\r")

    def _fields(self, text: str) -> list[str]:
        # Nearly every line is plain, and splitting it is several times faster than the parser.
        if '"' not in text and "\r" not in text:
            return text.split(",")
        if "\r" in text:
            self._refuse("bad_quoting", "a carriage return inside a line")
        try:
            return next(csv.reader([text], strict=True))
        except csv.Error:
            self._refuse("bad_quoting", "a quotation mark that is not closed, or text after a closed one")

    def _check_unchanged(self) -> None:
        status = os.fstat(self._file.fileno())
        if (status.st_size, status.st_mtime_ns) != (self._size, self._mtime_ns):
            raise SalesError("file_changed", None, "the file changed while it was read")

    def _refuse(self, code: str, reason: str) -> NoReturn:
        raise SalesError(code, self._line or 1, reason)


def summarize(
    path: str | os.PathLike[str], month: str, progress: Progress | None = None, *, steps: int = PROGRESS_STEPS
) -> Summary | None:
    """Return the number of rows and the exact total of `month` in a sales file.

    Every row is checked, also those of other months. `progress(done, total)` is called in equal steps of
    lines and at the end, at most `steps` times; when it answers False the reading stops and None comes
    back. Raises `SalesError`; `ValueError` for a month that is not `YYYY-MM`, steps below 1 or a `progress` that is
    no function; what `progress` raises passes through. The file is closed in every case.
    Source: claims C10-168 to C10-171.
    """
    if type(month) is not str or not _MONTH.fullmatch(month):
        raise ValueError("the month is not YYYY-MM")
    if type(steps) is not int or steps < 1:
        raise ValueError("steps is not a whole number from 1")
    if progress is not None and not callable(progress):
        raise ValueError("progress cannot be called")
    row_count = total_cents = done = 0
    with SalesFile(path) as sales:
        step = max(1, -(-sales.lines // steps))
        for sale in sales.rows():
            if sale.month == month:
                row_count += 1
                total_cents += sale.amount_cents
            if progress is not None and sale.line - 1 >= done + step:  # line 1 is the header
                done = sale.line - 1
                if not progress(done, sales.lines):
                    return None
        if progress is not None and done < sales.lines and not progress(sales.lines, sales.lines):
            return None
    return Summary(month, row_count, total_cents)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Return a regular file, open for reading. Raises `SalesError` (`unreadable_file`).

    A pipe or a device has no size and cannot be read twice; a number would be taken for a file that is open already.
    """
    try:
        if Path(path).is_file():  # else a pipe would be waited for
            with ExitStack() as closing:
                file = closing.enter_context(open(path, "rb"))
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    closing.pop_all()
                    return file
    except (OSError, TypeError, ValueError) as error:
        raise SalesError("unreadable_file", None, "the file cannot be opened") from error
    raise SalesError("unreadable_file", None, "not a regular file")


def _count_lines(file: BinaryIO) -> int:
    """Return the number of lines; the last one counts also without a line break at its end."""
    count, last = 0, b"\n"
    while chunk := file.read(_CHUNK_BYTES):
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")
