"""Is this machine fit for the experiments? `python -m chapter10 doctor` says so, condition by condition.

Five conditions: Python from 3.11 up, SQLite from 3.34 up, a console that can show what is printed, the
folder that contains `chapter10`, and a place to write (`my_work`, and a database in the temporary folder).
`[OK]` holds, `[!]` is worth knowing and stops nothing, `[X]` is missing. What it makes for a test it removes.

Exit codes: 0 fine, 3 the machine lacks something (2 usage). Source: claims C10-002, C10-003, C10-277.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chapter10.database import StoreError
from chapter10.jobs import JobStore
from chapter10.lab.console.strings import LANGUAGES, choose_language, say
from chapter10.lab.console.textio import EXIT_FINE, EXIT_MACHINE, main_guard, pad
from chapter10.lab.console.workplace import work_folder

__all__ = [
    "LEAST_PYTHON",
    "LEAST_SQLITE",
    "Finding",
    "database_finding",
    "encoding_finding",
    "folder_finding",
    "main",
    "python_finding",
    "sqlite_finding",
    "write_finding",
]

LEAST_PYTHON: Final = (3, 11)
LEAST_SQLITE: Final = (3, 34, 0)

_WAL_FIXED: Final = (3, 51, 3)
_WAL_FIXED_IN: Final = {(3, 44): 6, (3, 50): 7}
"""Older lines of SQLite that got the fix as well: (major, minor) -> the first fixed patch."""

_MARKS: Final = {"fine": "[OK]", "note": "[!]", "lacks": "[X]"}


class Finding(NamedTuple):
    """One condition: `grade` is fine, note or lacks; `value` is what was found; `text` is why, or empty."""

    grade: str
    name: str
    value: str
    text: str = ""


def python_finding(version: Sequence[int], language: str = "en") -> Finding:
    """Judge a version of Python, `(major, minor, patch, ...)`."""
    value = ".".join(map(str, version[:3]))
    if tuple(version[:2]) < LEAST_PYTHON:
        return Finding("lacks", "Python", value, say("doctor.python", language))
    return Finding("fine", "Python", value)


def sqlite_finding(version: Sequence[int], language: str = "en") -> Finding:
    """Judge a version of SQLite, `(major, minor, patch)`: too old, with a known rare bug, or fine."""
    value = ".".join(map(str, version))
    found = tuple(version)
    if found < LEAST_SQLITE:
        return Finding("lacks", "SQLite", value, say("doctor.sqlite", language))
    fixed_from = _WAL_FIXED_IN.get((found[0], found[1]))
    if found >= _WAL_FIXED or (fixed_from is not None and found[2] >= fixed_from):
        return Finding("fine", "SQLite", value)
    return Finding("note", "SQLite", value, say("doctor.sqlite_reset", language))


def encoding_finding(encoding: str | None, language: str = "en") -> Finding:
    """Judge the encoding of the console: whether the chapter's words can be shown as they are."""
    value = encoding or "ascii"
    try:
        "查询订单状态".encode(value)
    except (UnicodeEncodeError, LookupError):
        return Finding("note", "encoding", value, say("doctor.encoding", language))
    return Finding("fine", "encoding", value)


def folder_finding(folder: Path, language: str = "en") -> Finding:
    """Judge the working folder: commands are run from the one that contains `chapter10`."""
    if (folder / "chapter10" / "__init__.py").is_file():
        return Finding("fine", "folder", str(folder))
    return Finding("note", "folder", str(folder), say("doctor.folder", language))


def write_finding(folder: Path, language: str = "en") -> Finding:
    """Judge whether a reader's folder can be made and written; what is made for it is removed."""
    try:
        had_folder = folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        if not had_folder:
            folder.rmdir()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Finding("lacks", "my_work", str(folder), say("doctor.write", language, reason=reason))
    return Finding("fine", "my_work", str(folder))


def database_finding(folder: Path | None = None, language: str = "en") -> Finding:
    """Judge whether a job can be stored and read back in `folder`, the temporary one by default."""
    place = Path(tempfile.gettempdir()) if folder is None else folder
    try:
        # The store is closed before the folder goes away: Windows does not delete an open file.
        with tempfile.TemporaryDirectory(prefix="chapter10-", dir=place) as made, JobStore(Path(made, "j.db")) as store:
            store.submit("doctor", "one", {"month": "2026-08"}, now=0)
            mode = store.db.execute("PRAGMA journal_mode").fetchone()[0]
    except (OSError, StoreError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        return Finding("lacks", "database", str(place), say("doctor.database", language, reason=reason))
    return Finding("fine", "database", f"{place} ({mode})")


def _findings(language: str) -> Iterator[Finding]:
    yield python_finding(tuple(sys.version_info[:3]), language)
    yield sqlite_finding(sqlite3.sqlite_version_info, language)
    yield encoding_finding(sys.stdout.encoding, language)
    yield folder_finding(Path(os.getcwd()), language)
    yield write_finding(work_folder(), language)
    yield database_finding(None, language)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each condition and return 0, or 3 if one is missing.

    `arguments`: those of the process if None.
    """
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 doctor", description="Say whether this machine is fit for the experiments."
    )
    parser.add_argument("--lang", choices=LANGUAGES, help="the language of the remarks")
    language = choose_language(parser.parse_args(arguments).lang)
    lacking = 0
    for finding in _findings(language):
        print(f"{_MARKS[finding.grade]:<4} {pad(finding.name, 9)} {finding.value}")
        if finding.text:
            print(f"     {finding.text}")
        lacking += finding.grade == "lacks"
    print(say("doctor.lacks", language, count=lacking) if lacking else say("doctor.fine", language))
    return EXIT_MACHINE if lacking else EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
