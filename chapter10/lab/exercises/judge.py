"""Judge one reader's file: `python -m chapter10.lab.exercises.judge NUMBER FILE`, for the command to start.

The file is compiled from its bytes and run in this process, which is a child of its own: what hangs here
is cut off from outside, and nothing that the file does outlives it. The import system is not used, since
its cache would give the verdict on an older version of a file that was saved twice within a second.

What the file prints is kept, up to a bound. The verdict is one line of ASCII JSON on standard output, the
last one, whatever the console can show.

This runs code that the reader wrote, with the reader's own rights: it is no sandbox.
Exit codes: 0 with a verdict, 2 usage, 3 the machine lacks something. Source: claims C10-304 to C10-309, C10-313.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Final

from chapter10.lab.console.strings import TABLE
from chapter10.lab.console.textio import EXIT_FINE, EXIT_MACHINE, main_guard
from chapter10.lab.console.workplace import ReadersFileError, read_text
from chapter10.lab.exercises.checking import (
    FAILED,
    NOT_STARTED,
    CannotCheck,
    Check,
    Failure,
    Verdict,
    run_checks,
    unexpected,
)
from chapter10.lab.exercises.checks import ex06, ex07, ex08, ex09, ex10, ex11

__all__ = ["CHECKS", "MAX_PRINTED", "judge", "main"]

CHECKS: Final[Mapping[int, tuple[Check, ...]]] = {
    6: ex06.CHECKS,
    7: ex07.CHECKS,
    8: ex08.CHECKS,
    9: ex09.CHECKS,
    10: ex10.CHECKS,
    11: ex11.CHECKS,
}
"""The checks of each coding exercise, in the order in which they are made."""

MAX_PRINTED: Final = 4_000
"""Characters of what a reader's file prints that are kept."""


class _Kept(io.StringIO):
    """What a file prints, up to `MAX_PRINTED` characters; the rest is dropped, so a loop fills no memory."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, MAX_PRINTED - self.tell())])
        return len(text)


@contextmanager
def _printing(kept: _Kept) -> Iterator[None]:
    with redirect_stdout(kept), redirect_stderr(kept):
        yield


def judge(number: int, path: Path, begins: Callable[[str], object] = lambda name: None) -> Verdict:
    """Return the verdict on one file; `begins` is told the name of each check before it is made.

    Raises `OSError` when it cannot be read, `KeyError` for another number, `CannotCheck` if that is no fault of it.
    """
    checks = CHECKS[number]
    try:
        text = read_text(path)
    except ReadersFileError as error:
        failure = Failure(
            "file", path.name, error.code, "a Python file in UTF-8", TABLE[f"file.{error.code}"], "C10-313"
        )
        return Verdict(FAILED, failure=failure)
    kept = _Kept()
    with _printing(kept):
        verdict = _judge_text(text, path.name, checks, begins)
    return replace(verdict, printed=kept.getvalue())


def _judge_text(text: str, filename: str, checks: Sequence[Check], begins: Callable[[str], object]) -> Verdict:
    # The dataclasses of a reader find their module by its name.
    module = ModuleType("exercise")
    module.__file__ = filename
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, filename, "exec", dont_inherit=True), module.__dict__)
    except NotImplementedError:
        return Verdict(NOT_STARTED)
    except (Exception, SystemExit) as error:
        return Verdict(FAILED, failure=unexpected("file", error, filename))
    return run_checks(module.__dict__, checks, filename, begins)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the file that the arguments name and print the verdict as one line; return 0."""
    parser = argparse.ArgumentParser(prog="python -m chapter10.lab.exercises.judge", description="Judge one file.")
    parser.add_argument("number", type=int, choices=sorted(CHECKS))
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    out = sys.stdout  # as it is now: the reader's file may put another in its place
    try:
        # Who cuts it off reads from this which check did not end.
        verdict = judge(options.number, options.file, lambda name: print(f"\nbegins {name}", file=out, flush=True))
    except CannotCheck as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_MACHINE
    report = asdict(verdict) | {"checks": [[check.name, *check.text] for check in CHECKS[options.number]]}
    out.write("\n" + json.dumps(report, ensure_ascii=True) + "\n")
    out.flush()
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
