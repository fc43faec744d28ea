"""Programs without a process for each: `main_guard(main)` with arguments and streams of its own.

Where a test is about what a program says and how it ends, starting an interpreter for it proves nothing more
and takes most of the time. What is about processes (a closed pipe, a signal, the first import) starts real ones.
"""

from __future__ import annotations

import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest import mock

from chapter10.lab.console.textio import main_guard

__all__ = ["Ended", "Terminal", "run_here"]


class Ended(NamedTuple):
    """How a program ended: its exit code, what it wrote to standard output and to standard error."""

    code: int
    out: str
    errors: str


class Terminal(io.StringIO):
    """A standard output that a person reads."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Say that it is a terminal."""
        return True


def run_here(words: Sequence[str], *, encoding: str = "utf-8") -> Ended:
    """Run `python -m WORDS` in this process, its streams in `encoding` and as strict as those of a console.

    The module may be a package with a `__main__`. An exception that would leave a program is code 1 and a traceback.
    """
    name, *arguments = words
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{name}.__main__")
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2))
    with (
        redirect_stdout(out),
        redirect_stderr(errors),
        mock.patch.object(sys, "argv", [str(module.__file__), *arguments]),
        mock.patch.object(sys, "stdin", io.StringIO()),
    ):
        try:
            main_guard(module.main)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except Exception:
            traceback.print_exc()
            code = 1
    return Ended(code, *(stream.buffer.getvalue().decode(encoding) for stream in (out, errors)))
