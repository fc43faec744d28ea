"""A process for a race without the start of an interpreter: a fork of the tests that becomes a program.

What a race between processes proves does not depend on how they came to be. Two rules make the fork as good as a
new process: the caller has no store open (SQLite must not be carried over a fork), and the child gives up every
file that it inherits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from chapter10.tests.support import CHILD_SECONDS, start_python

__all__ = ["Forked", "start_main"]

CAN_FORK: Final = hasattr(os, "fork")


class Forked:
    """A forked process with text pipes, to be handled like one of `start_python`."""

    def __init__(self, main: Callable[[], object], arguments: Sequence[str]) -> None:
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = os.pipe(), os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _be_a_program(main, arguments, (stdin, stdout, stderr))
        for end in (stdin, stdout, stderr):
            os.close(end)
        self.stdin = os.fdopen(to_stdin, "w", encoding="utf-8", newline="\n")
        self.stdout = os.fdopen(from_stdout, encoding="utf-8")
        self.stderr = os.fdopen(from_stderr, encoding="utf-8")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        return self._wait(os.WNOHANG)

    def kill(self) -> None:
        """End the process at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float = CHILD_SECONDS) -> tuple[str, str]:
        """Close the input, wait for the end, killing the process after `timeout` seconds; return what it wrote."""
        late = threading.Timer(timeout, self.kill)
        late.start()
        try:
            with self.stdin, self.stdout, self.stderr:
                self.stdin.close()
                said = self.stdout.read(), self.stderr.read()
            self._wait(0)
        finally:
            late.cancel()
            late.join()
        return said

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def start_main(main: Callable[[], object], module: str, arguments: Sequence[str]) -> Forked | subprocess.Popen[str]:
    """Start `main`, which is what `python -m MODULE ARGUMENTS` runs, in a process of its own."""
    if CAN_FORK:
        return Forked(main, arguments)
    return start_python(["-m", module, *arguments])


def _be_a_program(main: Callable[[], object], arguments: Sequence[str], streams: tuple[int, int, int]) -> NoReturn:
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin = os.fdopen(0, encoding="utf-8")
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", newline="\n")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", newline="\n")
        sys.argv = [sys.argv[0], *arguments]
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
