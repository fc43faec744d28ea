"""Stop a process in three steps: ask, insist, end; and, inside of it, take SIGTERM as a request.

    ask        a cancel row, a message: the process may end its work in order       cooperative
    SIGTERM    the operating system's word for "please stop"; still a request       cooperative
    SIGKILL    the process is gone at its next instruction, with no clean-up        preemptive

S1  Each step has its time. The ladder ends after the sum of them at the latest, with a process that is gone and reaped.
S2  A later step is taken only when the one before was not enough.
S3  In a worker, SIGTERM runs a callback in the event loop (or, without a loop, between two instructions of the main
    thread). It stops no loop and raises nothing: whoever is told cancels, stores and leaves.

What a process leaves behind that was ended by the last step is whatever its storage makes of it: in SQLite, nothing of
an open transaction; in a file, perhaps a half. On Windows the second step is the third one.

What it does not do: it finds no processes, and it ends none but the one that it is handed.
Source: the document on interruption, sections 4 and 8 (claims I4-009, I4-028, I4-029, I4-086; X-46).
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal, Protocol

from chapter10.canonical import CodedError

__all__ = [
    "GRACE_SECONDS",
    "MAX_SECONDS",
    "REAP_SECONDS",
    "How",
    "Process",
    "StopError",
    "Stopped",
    "sigterm_is_a_request",
    "stop_process",
]

GRACE_SECONDS: Final = 10.0
"""How long a process has after SIGTERM, by default."""
REAP_SECONDS: Final = 10.0
"""How long the operating system has after SIGKILL until the process counts as one that cannot be ended."""
MAX_SECONDS: Final = 3600.0
"""The longest time of one step."""

How = Literal["already_ended", "asked", "terminated", "killed"]


class StopError(CodedError, RuntimeError):
    """Raised when a process cannot be stopped, or SIGTERM cannot be taken: nothing was changed by the failing step.

    `bad_input`: a time that is none. `not_main_thread`: only the main thread receives signals. `still_running`: the
    operating system did not end it (it hangs in a device, say).
    """


class Process(Protocol):
    """What is asked of a process; `subprocess.Popen` has it."""

    @property
    def returncode(self) -> int | None:
        """The exit code; below zero for a signal. None while it runs."""

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or raise `subprocess.TimeoutExpired`."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a process ended: the step that was enough, and its exit code."""

    how: How
    returncode: int


def stop_process(
    process: Process,
    grace_s: float = GRACE_SECONDS,
    *,
    ask: Callable[[], object] | None = None,
    ask_s: float = GRACE_SECONDS,
    reap_s: float = REAP_SECONDS,
) -> Stopped:
    """Stop a process and return how; it has been waited for, so no zombie is left.

    `ask`: the cooperative step, such as writing a cancel row; its errors come out before anything is done. `ask_s`,
    `grace_s`, `reap_s`: seconds for the three steps. Blocks for at most their sum: call it from a thread in an event
    loop. Raises `StopError`. Source: claims I4-009, I4-028.
    """
    for seconds in (grace_s, ask_s, reap_s):
        if type(seconds) not in (int, float) or not 0 <= seconds <= MAX_SECONDS:
            raise StopError("bad_input")
    ended = process.poll()
    if ended is not None:
        return Stopped("already_ended", ended)
    if ask is not None:
        ask()
        if (ended := _wait(process, ask_s)) is not None:
            return Stopped("asked", ended)
    process.terminate()
    if (ended := _wait(process, grace_s)) is not None:
        return Stopped("terminated", ended)
    process.kill()
    if (ended := _wait(process, reap_s)) is not None:
        return Stopped("killed", ended)
    raise StopError("still_running")


@contextmanager
def sigterm_is_a_request(
    on_request: Callable[[], object], *, loop: asyncio.AbstractEventLoop | None = None
) -> Iterator[None]:
    """Within the block, SIGTERM calls `on_request()` and does nothing else; afterwards the old handler is back.

    `loop`: the running loop, in which the callback is called; an idle loop wakes up for it. None for a worker without a
    loop: the callback then runs in the main thread between two instructions, and must be as short as setting a flag.
    Raises `StopError` (`not_main_thread`). Source: claims I4-029, I4-086.
    """
    old = signal.getsignal(signal.SIGTERM)
    if loop is not None:
        try:
            loop.add_signal_handler(signal.SIGTERM, on_request)
        except NotImplementedError:
            pass  # Windows, or a loop of another kind: a plain handler hands over to the loop
        except (ValueError, RuntimeError) as error:
            raise StopError("not_main_thread") from error
        else:
            try:
                yield
            finally:
                loop.remove_signal_handler(signal.SIGTERM)  # leaves the default, whatever was there before
                if old is not None:  # None: a handler that was not made in Python
                    signal.signal(signal.SIGTERM, old)
            return

    def handler(number: int, frame: FrameType | None) -> None:
        if loop is None:
            on_request()
        else:
            loop.call_soon_threadsafe(on_request)

    try:
        signal.signal(signal.SIGTERM, handler)
    except ValueError as error:
        raise StopError("not_main_thread") from error
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if old is None else old)


def _wait(process: Process, seconds: float) -> int | None:
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
