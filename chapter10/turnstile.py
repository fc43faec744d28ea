"""Who writes next: a fair queue of processes in front of one SQLite file.

SQLite lets one process write at a time and does not say who is next. A process that finds the file locked
sleeps 1, 2, 5, 10 … 100 ms between its tries; the one that has just written comes again at once and
finds the lock free. So of two busy processes one may get nothing for seconds.

Two locks of the operating system on two empty files beside the database mend that:

    turn    held by the one process that is next, while it waits for the room; all others wait for the turn
    room    held by the process that writes, from before its `BEGIN` until after its `COMMIT`

Whoever leaves the room and wants in again finds the turn taken by the one that is next, and stands behind
it. Two processes take it by turns; of more, each that waits has the same chance to be next.

What holds
    T1  It is advice. That one process writes at a time is SQLite's doing, with or without this.
    T2  Nobody waits here for longer than `PATIENCE_SECONDS`. A process that was stopped while it held a
        lock costs each of the others that wait once; then they ask, without waiting, until it is free again.
    T3  The end of a process, however it ends, frees its locks: the system keeps them, not the files.
    T4  Where there are no such locks (Windows, some network drives) or no file may be made (a read-only
        folder), nobody waits here, and SQLite's own way is all there is.
    T5  Closing removes the two files. Whoever still has them open notices at its next write and opens
        new ones.

Why it asks again and again instead of letting the system wake it: a wait for such a lock has no time limit,
and T2 needs one. A try costs less than a microsecond. Each pause grows to a fiftieth of the time that was
waited, so that a short wait ends at once and a long one costs no processor time.

Measured on two cores with `python -m chapter10.lab.benchmark --area jobs`, which tells the figures.
Source: the chapter's section on job state in the database (claim C10-153) and what it leaves open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

try:
    import fcntl
except ImportError:  # not on this system
    _flock: Callable[[int, int], Any] | None = None
else:
    _flock = fcntl.flock

__all__ = ["PATIENCE_SECONDS", "ROOM_SUFFIX", "TURN_SUFFIX", "Turnstile"]

TURN_SUFFIX: Final = "-turn"
ROOM_SUFFIX: Final = "-room"
"""What the names of the two files have more than the database's."""

PATIENCE_SECONDS: Final = 1.0
"""How long a process waits here before it goes on without."""

_TRY: Final = 2 | 4  # LOCK_EX | LOCK_NB, the same numbers on every system that has `flock`
_FREE: Final = 8  # LOCK_UN
_TURN_PAUSE_SECONDS: Final = 0.0002
_ROOM_PAUSE_SECONDS: Final = 0.00005
"""The first pauses. Only one process waits for the room at a time, so it may look more often."""
_LONGEST_PAUSE_SECONDS: Final = 0.01
_PAUSE_SHARE: Final = 0.02


class Turnstile:
    """The queue in front of the database at `path`: `enter` before a write transaction, `leave` after it.

    `path`: the database file, or None for one that nobody else can open. `patience`: seconds; at most
    `PATIENCE_SECONDS` of them are used. The files are opened by the first `enter`. No method raises.
    """

    __slots__ = ("_clock", "_path", "_patience", "_patient", "_process", "_room", "_sleep", "_turn")

    def __init__(
        self,
        path: str | None,
        patience: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._path = None if path is None or _flock is None else os.path.realpath(path)
        self._patience = min(patience, PATIENCE_SECONDS)
        self._patient = True  # until it has waited in vain, and again when it has been let in
        self._clock = clock
        self._sleep = sleep
        self._process = os.getpid()
        self._turn = self._room = -1  # descriptors; -1: not open

    def enter(self) -> None:
        """Wait for the turn and then for the room; go on without them when that takes too long."""
        if self._path is None:
            return
        try:
            if self._turn < 0 or os.fstat(self._turn).st_nlink == 0:
                self._open(self._path)
            try:  # as a rule nobody else is there
                _lock(self._turn, _TRY)
                _lock(self._room, _TRY)
                self._patient = True
            except BlockingIOError:
                self._wait()
            _lock(self._turn, _FREE)
        except OSError:  # no such locks, or no place for the files
            self._shut()
            self._path = None

    def leave(self) -> None:
        """Let the next one in. After an `enter` that was broken off it also gives the turn back."""
        if self._turn >= 0:
            try:
                _lock(self._room, _FREE)
                _lock(self._turn, _FREE)
            except OSError:
                pass

    def close(self) -> None:
        """Remove the files and close them; a second close does nothing, and a later `enter` waits for nobody.

        In a process that was forked since, the files stay: they are the parent's.
        """
        if self._path is not None and self._turn >= 0 and self._process == os.getpid():
            # The turn last: whoever sees it gone opens both anew, and must not find the old room.
            _remove(self._path + ROOM_SUFFIX, self._room)
            _remove(self._path + TURN_SUFFIX, self._turn)
        self._shut()
        self._path = None

    def __del__(self) -> None:
        self._shut()

    def _wait(self) -> None:
        until = self._clock() + self._patience
        self._patient = self._take(self._turn, _TURN_PAUSE_SECONDS, until) and self._take(
            self._room, _ROOM_PAUSE_SECONDS, until
        )

    def _take(self, lock: int, pause: float, until: float) -> bool:
        """Try until the lock is ours or the patience is over; only once for who has none."""
        started = self._clock()
        while True:
            try:
                _lock(lock, _TRY)
                return True
            except BlockingIOError:
                now = self._clock()
            if not self._patient or now >= until:
                return False
            self._sleep(min(max(pause, (now - started) * _PAUSE_SHARE), _LONGEST_PAUSE_SECONDS))

    def _open(self, path: str) -> None:
        self._shut()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._room = os.open(path + ROOM_SUFFIX, flags, 0o666)
        self._turn = os.open(path + TURN_SUFFIX, flags, 0o666)

    def _shut(self) -> None:
        """Close the descriptors; the system takes back the locks that no forked process has as well."""
        for descriptor in (self._room, self._turn):
            if descriptor >= 0:
                os.close(descriptor)
        self._turn = self._room = -1


def _lock(descriptor: int, operation: int) -> None:
    """Raise `BlockingIOError` when another one has the lock."""
    assert _flock is not None
    _flock(descriptor, operation)


def _remove(path: str, descriptor: int) -> None:
    """Remove our file, unless it has been removed already and the name is another's, or something is in it."""
    try:
        status = os.fstat(descriptor)
        if status.st_nlink == 1 and status.st_size == 0:
            os.unlink(path)
    except OSError:
        pass
