"""What the tests share: folders that go away, a clock moved by hand, child processes that read alike."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from chapter10.database import Database

T = TypeVar("T")

TOP = Path(__file__).resolve().parents[2]
"""The folder that contains `chapter10`; every documented command runs from here."""

CHILD_SECONDS = 120
"""How long a child process may take before the test fails instead of hanging."""


ALONE: Final = ("-S",)
"""Options of a child: without `site`, so that nothing which this machine has installed is there to be imported."""


MEMORY: Final = "/dev/shm"
ROOM_BYTES: Final = 1 << 29


def _temporary_folder() -> str | None:
    """Where the tests put their files: in memory where there is such a place with room, or None for the usual one.

    Most of what the stores do in a test is to wait for the disk. What a killed process has written is there
    afterwards in memory as on a disk; what a power failure leaves is no question that a test can ask.
    """
    if os.environ.get("TMPDIR") or not os.path.isdir(MEMORY) or not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free > ROOM_BYTES else None


if (_folder := _temporary_folder()) is not None:
    tempfile.tempdir = _folder  # for what runs in this process; a child is told by its environment

_open_database = Database.__init__


def _open_backwards(database: Database, *arguments: Any, **options: Any) -> None:
    """Open it so that rows come backwards where a statement does not say in which order: none relies on luck."""
    _open_database(database, *arguments, **options)
    database.connection.execute("PRAGMA reverse_unordered_selects=ON")


setattr(Database, "__init__", _open_backwards)  # noqa: B010 - no type for a method that is put in

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background ignores Ctrl-C for them, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class FolderTestCase(unittest.TestCase):
    """A test with an empty folder of its own, `self.folder`, removed afterwards."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(tempfile.mkdtemp(prefix="chapter10-"))
        self.addCleanup(shutil.rmtree, self.folder)


def also_on(make: type[Any]) -> Callable[[type[T]], type[T]]:
    """Run the tests of a case a second time with another `make`: beside `Case` there is `CaseOnMake`."""

    def twice(case: type[T]) -> type[T]:
        name = f"{case.__name__}On{make.__name__}"
        second = type(name, (case,), {"make": make, "__module__": case.__module__, "__doc__": case.__doc__})
        setattr(sys.modules[case.__module__], name, second)
        return case

    return twice


class ManualClock:
    """A clock that stands still until a test moves it; `sleep` moves it and keeps what was asked."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def defaults(function: Any) -> dict[str, Any]:
    """Return what may be left out in a call of a function or a class, with the value that it has then."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child that imports this package from any working folder and speaks UTF-8.

    On a Chinese Windows a child would speak code page 936 and its reader would not understand it; a test of a console
    says which one in `extra`.
    """
    environment = dict(os.environ)
    environment["PYTHONIOENCODING"] = "utf-8"
    environment["PYTHONPATH"] = str(TOP)
    environment.setdefault("TMPDIR", tempfile.gettempdir())
    environment.update(extra or {})
    return environment


def run_python(
    arguments: Sequence[str],
    *,
    cwd: Path = TOP,
    environment: Mapping[str, str] | None = None,
    text: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run this Python with `arguments` (such as `["-m", "chapter10.quickstart"]`) and return what it said."""
    return subprocess.run(
        [sys.executable, *ALONE, *arguments],
        cwd=cwd,
        env=child_environment(environment),
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=CHILD_SECONDS,
        check=False,
    )


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Make calls that wait for processes of their own at the same time; return their answers in the same order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [answer.result() for answer in [pool.submit(call) for call in calls]]


def start_python(
    arguments: Sequence[str], *, cwd: Path = TOP, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start this Python in the background, its standard streams as text pipes."""
    return subprocess.Popen(
        [sys.executable, *ALONE, *arguments],
        cwd=cwd,
        env=child_environment(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="backslashreplace",
    )
