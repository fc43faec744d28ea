"""SIGTERM and Ctrl-C, heard by a thread of their own: none is missed, and nothing holds them up.

Python runs the handler of a signal in the main thread, between two of its steps. A signal that comes right before the
main thread begins to wait (for a lock, for a child, for SQLite) is answered when the wait is over, which may be never.
So here the system's part of it writes a byte to a descriptor, whatever the main thread does, and a thread that waits
for it says `heard(1)`, then `heard(2)`. The handler only waits until that was said: what the main thread does after
a signal that it has noticed, it does after `heard`.

What it does not do: it wakes nobody. What the main thread waits in has to look, or `heard` ends the process. A process
that is forked within the block has the signals as they were before it.
Source: what the chapter leaves open about the life of a worker.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

__all__ = ["StopSignals"]

_CAUGHT: Final = [
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
]  # the last one is Windows' Ctrl-Break
_END, _NOTICED = 0, 255  # no signals have these numbers


class StopSignals:
    """Within the block `heard(count)` is called for each signal, counted from 1, in a thread; it raises nothing.

    For the main thread, which alone may set handlers: elsewhere `ValueError`.
    """

    def __init__(self, heard: Callable[[int], object]) -> None:
        self._heard = heard
        self._said = threading.Semaphore(0)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        self._read, self._write = os.pipe()
        if hasattr(os, "set_blocking"):
            os.set_blocking(self._write, False)
        try:
            self._descriptor_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        except ValueError:
            self._close()
            raise
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        _open.append(self)
        for number in _CAUGHT:
            self._before[number] = signal.signal(number, self._noticed)

    def __exit__(self, *_: object) -> None:
        self._give_back()
        os.write(self._write, bytes([_END]))
        self._thread.join()
        self._close()

    def _noticed(self, number: int, frame: object) -> None:
        os.write(self._write, bytes([_NOTICED]))
        self._said.acquire()

    def _give_back(self) -> None:
        _open.remove(self)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._descriptor_before)

    def _close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def _listen(self) -> None:
        count = 0
        while (number := os.read(self._read, 1)[0]) != _END:
            if number == _NOTICED:
                self._said.release()
            elif number in _CAUGHT:
                count += 1
                self._heard(count)

    def _forked(self) -> None:
        """In the child the thread is not there, and the descriptors are the parent's."""
        self._give_back()
        self._close()


_open: Final[list[StopSignals]] = []


def _in_the_child() -> None:
    for each in reversed(_open):
        each._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
