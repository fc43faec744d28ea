"""A process without the start of an interpreter: a fork of a small server that becomes a program.

What a race, a kill or a signal proves does not depend on how the processes came to be. The first one that is asked
for starts the server: an interpreter that has nothing open, imports the programs that it is asked for, and forks.
The tests themselves are no good to fork from: they are a large process by then, with stores open, and SQLite must
not be carried over a fork.

    python -S -m chapter10.tests.forked DESCRIPTOR      the server, on one end of a pair of sockets

A request is a line of JSON, `[module, arguments]`, with four descriptors: the three streams, and a pipe on which the
process id is answered and, when it has come, the exit code.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Final, NoReturn

from chapter10.tests.support import ALONE, CHILD_SECONDS, child_environment, start_python

__all__ = ["Forked", "start_module"]

CAN_FORK: Final = hasattr(os, "fork") and hasattr(socket, "send_fds")
MOST_BYTES: Final = 1 << 16
_ONE_AT_A_TIME: Final = threading.Lock()
"""A request is answered before the next one is sent."""


def start_module(module: str, arguments: Sequence[str]) -> Forked | subprocess.Popen[str]:
    """Start what `python -m MODULE ARGUMENTS` does, the module's function `main`, in a process of its own."""
    return Forked(module, arguments) if CAN_FORK else start_python(["-m", module, *arguments])


class Forked:
    """A forked process with text pipes, to be handled like one of `start_python`."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = os.pipe(), os.pipe(), os.pipe()
        from_status, status = os.pipe()
        request = json.dumps([module, list(arguments)]) + "\n"
        self._status = os.fdopen(from_status, encoding="ascii")
        with _ONE_AT_A_TIME:
            socket.send_fds(_server(), [request.encode("ascii")], [stdin, stdout, stderr, status])
            for end in (stdin, stdout, stderr, status):
                os.close(end)
            self.pid = int(self._status.readline())
        self.stdin = os.fdopen(to_stdin, "w", encoding="utf-8", newline="\n")
        self.stdout = os.fdopen(from_stdout, encoding="utf-8")
        self.stderr = os.fdopen(from_stderr, encoding="utf-8")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        return self._look(0)

    def wait(self, timeout: float = CHILD_SECONDS) -> int:
        """Wait for the end and return the exit code; `subprocess.TimeoutExpired` after `timeout` seconds."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = CHILD_SECONDS) -> tuple[str, str]:
        """Close the input, wait for the end, killing the process after `timeout` seconds; return what it wrote."""
        late = threading.Timer(timeout, self.kill)
        late.start()
        try:
            with self.stdin, self.stdout, self.stderr:
                self.stdin.close()
                said = self.stdout.read(), self.stderr.read()
            self.wait()
        finally:
            late.cancel()
            late.join()
        return said

    def _look(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            with self._status:
                self.returncode = int(self._status.readline())
        return self.returncode


@cache
def _server() -> socket.socket:
    """Start the server once in a run of the suite, and return this end of the pair of sockets."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, *ALONE, "-m", __name__, str(theirs.fileno())],
            env=child_environment(),
            pass_fds=[theirs.fileno()],
        )

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


# What the server runs ------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Fork for each request until the other end is closed."""
    while True:
        line, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
        if not line:
            return
        module, arguments = json.loads(line)
        program = importlib.import_module(module)
        if os.fork() == 0:
            requests.close()
            _watch(program, arguments, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # those whose programs have ended meanwhile
                pass


def _watch(program: ModuleType, arguments: list[str], *descriptors: int) -> NoReturn:
    """Fork the program, and say its process id and its exit code on the last of the descriptors."""
    *streams, status = descriptors
    try:
        pid = os.fork()
        if pid == 0:
            _be_a_program(program, arguments, streams)
        os.write(status, f"{pid}\n".encode("ascii"))
        for stream in (0, 1, 2, *streams):
            os.close(stream)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, f"{code}\n".encode("ascii"))
    finally:
        os._exit(0)


def _be_a_program(program: ModuleType, arguments: list[str], streams: Sequence[int]) -> NoReturn:
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin = os.fdopen(0, encoding="utf-8")
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", newline="\n")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", newline="\n")
        sys.argv = [str(program.__file__), *arguments]
        try:
            program.main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as end:
        serve(end)
