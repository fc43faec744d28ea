"""`sales.export`: the chapter's report over a real sales file, with tables as files of their own.

    submit     records which file is meant: its path and its snapshot, size, time and SHA-256 of the bytes
    work       reads exactly that; a file whose content is another one now is refused (`input_changed`)
    result     the summary, and for each table its file name, size and digest; the tables lie in one folder

What holds
    X1  the receipt belongs to the bytes that were submitted: both digests are compared before anything is delivered.
        The content decides; a file that was only touched is still the same
    X2  every table is written whole or not at all, under its final name at once (`os.replace`), and its digest is that
        of the bytes on disk
    X3  every name in the folder is made of the job's number, the attempt and a word of ours. No text of a caller is
        part of a path; what is read back must be a name that this module could have made
    X4  each attempt has its own names, so that a late attempt never writes over what the receipt names; whatever an
        attempt leaves behind that did not count is removed, at once or by `remove_leftovers`

The tables: `day` (a column with `YYYY-MM-DD`, within the month of the row) and `product` (any text) where the file has
the column, each with the exact number of rows and total for the month; `month` with one row where it has neither.

A folder of tables belongs to one store: two stores number their jobs alike, and `remove_leftovers` would take the
tables of the other for its own.

What it does not do: it gives nobody access. The path of the input comes from whoever may submit; a service whose
callers it does not trust names the folder that inputs must lie in (`inputs`).
Source: the chapter's report, its result ids and its snapshots (claims C10-168 to C10-171, C10-246 to C10-249,
C10-293).
"""

from __future__ import annotations

import csv
import datetime
import errno
import hashlib
import io
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import digest
from chapter10.companions.operating.sales import PROGRESS_STEPS, SalesError, SalesFile, Summary, open_regular
from chapter10.companions.work.heartbeat import JobContext
from chapter10.companions.work.living_store import MIGRATIONS
from chapter10.database import Database, StoreError
from chapter10.jobs import APPLICATION_ID, FINAL_STATES, Operation

__all__ = [
    "MAX_PRODUCTS",
    "MAX_TEXT",
    "SALES_EXPORT",
    "ExportError",
    "Exporter",
    "export_arguments",
    "export_key",
    "read_table",
    "remove_leftovers",
    "take_snapshot",
]

MAX_PRODUCTS: Final = 10_000
"""The most products of one table; it is held in memory."""
MAX_TEXT: Final = 200
"""Characters of a product; at least one."""
_MAX_PATH: Final = 4096
_CHUNK_BYTES: Final = 256 * 1024

_MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME: Final = re.compile(r"report-([1-9][0-9]{0,18})-a([1-9][0-9]{0,18})-(day|product|month)\.csv", re.ASCII)
_STAGED: Final = ".new-"
_NO_FOLDER_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES})
"""What a file system answers that cannot do it, and a folder that may be written but not read."""
_EXTRA: Final = ("day", "product")

_ANY_LIVE: Final = "SELECT 1 FROM jobs WHERE state IN ('queued', 'running', 'cancel_requested') LIMIT 1"
_WANTED: Final = (
    "SELECT j.state, r.attempt FROM jobs j LEFT JOIN receipts r ON r.job_id = j.id AND r.data IS NOT NULL"
    " WHERE j.id = ?"
)


class ExportError(SalesError):
    """Raised when an export cannot be made or read; `reason` says what is wrong, `line` where, if in the file.

    `input_changed`: the file is not the one that was submitted. `input_not_allowed`: it lies outside the inputs.
    `bad_day`, `bad_product`: the field is not what the column holds. `too_many_products`. `bad_name`: no name of a
    table. `table_missing`, `table_changed`: the folder does not hold what the receipt names.
    """


# What is submitted -------------------------------------------------------------------------------


def take_snapshot(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return `{bytes, mtime_ns, sha256}` of a regular file as it is now; the time is for people to read.

    Raises `SalesError`: `unreadable_file`, `file_changed` (while it was read).
    """
    with open_regular(path) as file:
        try:
            before = os.fstat(file.fileno())
            sha256 = hashlib.sha256()
            while chunk := file.read(_CHUNK_BYTES):
                sha256.update(chunk)
            after = os.fstat(file.fileno())
        except OSError as error:
            raise SalesError("unreadable_file", None, "the file cannot be read") from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise SalesError("file_changed", None, "the file changed while it was read")
    return {"bytes": after.st_size, "mtime_ns": after.st_mtime_ns, "sha256": sha256.hexdigest()}


def export_arguments(month: str, sales: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of a `sales.export` of the file as it is now: `{month, sales, snapshot}`.

    Raises as `take_snapshot` does, and `unreadable_file` for a name that is no text and so cannot be stored. Whether
    the month is one, the store asks `SALES_EXPORT`.
    """
    snapshot = take_snapshot(sales)  # first: it refuses what is no path
    path = os.fsdecode(os.path.abspath(sales))
    if not _is_text(path):
        raise SalesError("unreadable_file", None, "the name of the file is not UTF-8")
    return {"month": month, "sales": path, "snapshot": snapshot}


def export_key(args: dict[str, Any]) -> str:
    """Return the key for "this month of this very file": the same content gives the same job.

    Whoever wants the same export a second time names a key of their own (X-07). Raises `ValueError` for arguments
    that `SALES_EXPORT` does not take.
    """
    _check(args)
    return f"sales-export-{digest(args)[:32]}"


def _check(args: dict[str, Any]) -> None:
    if set(args) != {"month", "sales", "snapshot"}:
        raise ValueError("the arguments are month, sales and snapshot")
    if type(args["month"]) is not str or not _MONTH.fullmatch(args["month"]):
        raise ValueError("the month is not YYYY-MM")
    sales = args["sales"]
    if (
        type(sales) is not str
        or not 1 <= len(sales) <= _MAX_PATH
        or "\0" in sales
        or not os.path.isabs(sales)
        or not _is_text(sales)
    ):
        raise ValueError("sales is not an absolute path")
    snapshot = args["snapshot"]
    if type(snapshot) is not dict or set(snapshot) != {"bytes", "mtime_ns", "sha256"}:
        raise ValueError("the snapshot is not bytes, mtime_ns and sha256")
    if type(snapshot["bytes"]) is not int or snapshot["bytes"] < 0 or type(snapshot["mtime_ns"]) is not int:
        raise ValueError("bytes and mtime_ns of the snapshot are not whole numbers")
    if type(snapshot["sha256"]) is not str or not _SHA256.fullmatch(snapshot["sha256"]):
        raise ValueError("sha256 of the snapshot is not 64 hexadecimal digits")


def _is_text(path: str) -> bool:
    """Say whether a path is Unicode; a name of other bytes has lone surrogates in Python."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


SALES_EXPORT: Final = Operation("sales.export", "1", _check)
"""The operation, to be registered on a store that takes submissions of it."""


# The work ----------------------------------------------------------------------------------------


class Exporter:
    """Does `sales.export`: `Exporter(results)` is the `run` of a handler, and its `discard` removes what did not count.

    `results`: the one folder of the tables, made if absent. `inputs`: the folder that sales files must lie in, links
    resolved; None: anywhere. `pause()` is called at each step of progress and once more before the delivery: a place to
    wait for whoever wants to watch, and nothing by default.
    """

    def __init__(
        self,
        results: str | os.PathLike[str],
        *,
        inputs: str | os.PathLike[str] | None = None,
        pause: Callable[[], object] | None = None,
    ) -> None:
        self._results = Path(results)
        self._inputs = None if inputs is None else os.path.realpath(inputs)
        self._pause = pause

    def __call__(self, context: JobContext) -> dict[str, Any]:
        """Return the result of one job: `{month, row_count, total_cents, snapshot, tables}`.

        Each table is `{by, file, rows, bytes, sha256}`. Raises `SalesError`, `ExportError`, `OSError`, `AttemptOver`.
        """
        args = context.args
        path, snapshot = args["sales"], args["snapshot"]
        self._check_allowed(path)
        with SalesFile(path, _EXTRA) as sales:
            summary, tables = self._read(sales, args["month"], context)
            seen = sales.snapshot()
        if (seen["bytes"], seen["sha256"]) != (snapshot["bytes"], snapshot["sha256"]):
            raise ExportError("input_changed", None, "the file is not the one that was submitted")
        self._results.mkdir(parents=True, exist_ok=True)
        written = [self._write(context, by, rows) for by, rows in tables.items()]
        self._wait()
        return {**summary.data(), "snapshot": snapshot, "tables": written}

    def discard(self, context: JobContext) -> None:
        """Remove the tables of an attempt that did not count. Raises `OSError`."""
        for by in (*_EXTRA, "month"):
            (self._results / _name(context, by)).unlink(missing_ok=True)

    def _check_allowed(self, path: str) -> None:
        if self._inputs is None:
            return
        real = os.path.realpath(path)
        try:
            inside = os.path.commonpath([real, self._inputs]) == self._inputs
        except ValueError:  # two drives
            inside = False
        if not inside:
            raise ExportError("input_not_allowed", None, "the file does not lie in the folder of inputs")

    def _read(
        self, sales: SalesFile, month: str, context: JobContext
    ) -> tuple[Summary, dict[str, dict[str, list[int]]]]:
        """Read to the end; return the summary and, for each table, `key -> [rows, cents]`."""
        total = [0, 0]
        by: dict[str, dict[str, list[int]]] = {name: {} for name in _EXTRA if name in sales.columns}
        step = max(1, -(-sales.lines // PROGRESS_STEPS))
        reported = 0
        for sale in sales.rows():
            day, product = sale.extra
            _check_day(day, sale.month, sale.line)
            _check_product(product, sale.line)
            if sale.month == month:
                _add(total, sale.amount_cents)
                if day is not None:
                    _add(by["day"].setdefault(day, [0, 0]), sale.amount_cents)
                if product is not None:
                    _add(by["product"].setdefault(product, [0, 0]), sale.amount_cents)
                    if len(by["product"]) > MAX_PRODUCTS:
                        raise ExportError("too_many_products", sale.line, f"more than {MAX_PRODUCTS} products")
            if sale.line - 1 >= reported + step:  # line 1 is the header
                reported = sale.line - 1
                self._wait()
                context.progress(reported, sales.lines)
        if reported < sales.lines:
            context.progress(sales.lines, sales.lines)
        return Summary(month, *total), by or {"month": {month: total}}

    def _write(self, context: JobContext, by: str, rows: dict[str, list[int]]) -> dict[str, Any]:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow((by, "row_count", "total_cents"))
        writer.writerows((key, *rows[key]) for key in sorted(rows))
        content = text.getvalue().encode("utf-8")
        name = _name(context, by)
        _replace(self._results / name, content)
        return {
            "by": by,
            "file": name,
            "rows": len(rows),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }

    def _wait(self) -> None:
        if self._pause is not None:
            self._pause()


def _add(sums: list[int], cents: int) -> None:
    sums[0] += 1
    sums[1] += cents


def _check_day(day: str | None, month: str, line: int) -> None:
    if day is None:
        return
    try:
        real = len(day) == 10 and day.isascii() and bool(datetime.date.fromisoformat(day))
    except ValueError:
        real = False
    if not real or day[:7] != month:
        raise ExportError("bad_day", line, "the day is not YYYY-MM-DD within the month of its row")


def _check_product(product: str | None, line: int) -> None:
    if product is not None and not (1 <= len(product) <= MAX_TEXT and product.isprintable()):
        raise ExportError("bad_product", line, f"the product is not 1 to {MAX_TEXT} printable characters")


def _name(context: JobContext, by: str) -> str:
    return f"report-{context.job_id}-a{context.attempt}-{by}.csv"


def _replace(path: Path, content: bytes) -> None:
    """Put a file in place in one step, on disk before its name is (X2)."""
    staged = tempfile.NamedTemporaryFile(dir=path.parent, prefix=_STAGED, delete=False)  # noqa: SIM115
    try:
        with staged:
            staged.write(content)
            staged.flush()
            os.fsync(staged.fileno())
        os.replace(staged.name, path)
        _sync_folder(path.parent)
    except BaseException:
        Path(staged.name).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Let a name in a folder be on disk before a receipt tells of it, where the system has a way to do so."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


# The tables afterwards ---------------------------------------------------------------------------


def read_table(results: str | os.PathLike[str], table: dict[str, Any]) -> bytes:
    """Return the bytes of a table as a result names it, after comparing size and digest.

    Raises `ExportError`: `bad_name`, `table_missing`, `table_changed`.
    """
    name = table.get("file")
    if type(name) is not str or not _NAME.fullmatch(name):
        raise ExportError("bad_name", None, "not the name of a table")
    path = Path(results) / name
    try:
        if path.is_symlink():
            raise ExportError("table_changed", None, "a link lies where the table was")
        content = path.read_bytes()
    except OSError as error:
        raise ExportError("table_missing", None, "the table is not there") from error
    if (len(content), hashlib.sha256(content).hexdigest()) != (table.get("bytes"), table.get("sha256")):
        raise ExportError("table_changed", None, "the table is not what the receipt says")
    return content


def remove_leftovers(results: str | os.PathLike[str], store_path: str | os.PathLike[str], *, limit: int = 100) -> int:
    """Remove at most `limit` tables that no receipt of the store names any more; return how many.

    Only names that this module makes, and only of jobs that cannot deliver them any more: final or pruned. What a
    killed process left half-written goes when no job is live. Raises `OSError`, `StoreError`, and `ValueError` for a
    limit that is no whole number from 1.
    """
    if type(limit) is not int or limit < 1:
        raise ValueError("limit is not a whole number from 1")
    names = sorted(_names(Path(results)))  # before the looks at the store: what comes later is not ours to judge
    if not names:
        return 0
    if not os.path.isfile(store_path):  # of an empty store, made here or in memory, every table would be a leftover
        raise StoreError("store_unavailable", "there is no store at this path")
    removed = 0
    with closing(Database(store_path, application_id=APPLICATION_ID, migrations=MIGRATIONS)) as store:
        for name in names:
            if removed == limit:
                break
            if _is_leftover(store, name):
                Path(results, name).unlink(missing_ok=True)
                removed += 1
    return removed


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _is_leftover(store: Database, name: str) -> bool:
    match = _NAME.fullmatch(name)
    if match is None:
        return name.startswith(_STAGED) and store.row(_ANY_LIVE) is None
    job_id, attempt = int(match.group(1)), int(match.group(2))
    if job_id >= 2**63:  # no job has such a number, and SQLite could not be asked for it
        return False
    row = store.row(_WANTED, (job_id,))
    return row is None or (row[0] in FINAL_STATES and row[1] != attempt)
