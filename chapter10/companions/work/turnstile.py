"""Who writes next: a fair queue of processes in front of one SQLite file.

SQLite lets one process write at a time and does not say who is next. A process that finds the file locked
sleeps 1, 2, 5, 10 … 100 ms between its tries; the one that has just written comes again at once and
finds the lock free. So of two busy processes one may get nothing for seconds.

Two locks of the operating system on two empty files beside the database mend that:

    turn    held by the one process that is next, while it waits for the room; all others wait for the turn
    room    held by the process that writes, from before its `BEGIN` until after its `COMMIT`

Whoever has come in by the turn may come again, straight to the room, for `SLICE_SECONDS`. After that it finds
the turn taken by the one that is next, and stands behind it. Two processes take it by turns, a few
transactions each; of more, those that have waited longest ask most often, and so are mostly next.

Why not a turn for each transaction: another process's write empties SQLite's page cache, and whoever waits
needs a moment to notice that it may go on. With a slice that is paid once in a few transactions, and nobody
waits noticeably longer. A process that is alone saves the locks of the turn.

What holds
    T1  It is advice. That one process writes at a time is SQLite's doing, with or without this.
    T2  Nobody waits here for longer than `PATIENCE_SECONDS`. Whoever has waited in vain asks without waiting
        for as long a rest, then waits again, and rests twice as long after each wait in vain, up to
        `LONGEST_REST_SECONDS`. So a process that was stopped while it held a lock costs the others ever
        less, and after one long transaction nobody is left to SQLite's own way for good. Whoever has the turn
        when its patience is over keeps it until it has written.
    T3  The end of a process, however it ends, frees its locks, unless one that it has forked has them open
        too: the system keeps them, not the files.
    T4  Where there are no such locks (Windows, some network drives) or no file may be made (a read-only
        folder), nobody waits here, and SQLite's own way is all there is.
    T5  Closing removes the two files. Whoever still has one of them open notices when it next asks for the
        turn and opens new ones, also where only one was removed.
    T6  While others wait, nobody comes in `SLICE_SECONDS` or later after it has come in by the turn, unless it
        takes the turn again or waits for nobody (T2, T4). So whoever is next waits for the rest of a slice
        and for one transaction.

Why it asks again and again instead of letting the system wake it: a wait for such a lock has no time limit,
and T2 needs one. A try costs less than a microsecond. Only one process waits for the room, so it may ask
often; it asks less often the longer it waits, so that a long wait costs no processor time. Many may wait for
the turn, which moves once in a slice; they ask seldom, and more often the longer they wait, so that the turn
comes to those that wait longest rather than to anybody.

`FairDatabase` is a `Database` with this queue in front of it, and so it promises more than D1 to D5:

    D6  Of several processes that write, none is left out for long: they take turns, where the system has the locks
        for it, and who got none within a second asks again every second. D1 to D5 hold without that.
    D7  A file that was removed or replaced while it was open is named (`store_unavailable`, `replaced`) by the next
        call, and nothing is written to what nobody finds any more. WAL is asked for at every opening, not once.

Measured on two cores with `python -m chapter10 benchmark --area jobs`, which tells the figures.
Source: the chapter's section on job state in the database (claim C10-153) and what it leaves open.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from chapter10.database import BUSY_SECONDS, Database, StoreError, Transaction, is_busy

try:
    import fcntl
except ImportError:  # not on this system
    _flock: Callable[[int, int], Any] | None = None
else:
    _flock = fcntl.flock

__all__ = [
    "LONGEST_REST_SECONDS",
    "PATIENCE_SECONDS",
    "ROOM_SUFFIX",
    "SLICE_SECONDS",
    "TURN_SUFFIX",
    "FairDatabase",
    "FairTransaction",
    "Turnstile",
]

TURN_SUFFIX: Final = "-turn"
ROOM_SUFFIX: Final = "-room"
"""What the names of the two files have more than the database's."""

PATIENCE_SECONDS: Final = 1.0
"""How long a process waits here before it goes on without."""

LONGEST_REST_SECONDS: Final = 60.0
"""After waits in vain, the longest time in which a process asks without waiting."""

SLICE_SECONDS: Final = 0.004
"""For how long a process that has had its turn may come again without another."""

_PIECE_SECONDS: Final = 1.0
"""How long SQLite waits at a time for who has no turn; then the turn is asked for again."""
_JOURNAL_TRIES: Final = 100
_NEVER: Final = float("-inf")
_TRY: Final = 2 | 4  # LOCK_EX | LOCK_NB, the same numbers on every system that has `flock`
_FREE: Final = 8  # LOCK_UN
_TURN_PAUSE_SECONDS: Final = 0.002
_SHORTEST_TURN_PAUSE_SECONDS: Final = 0.0005
_ROOM_PAUSE_SECONDS: Final = 0.00015
_LONGEST_ROOM_PAUSE_SECONDS: Final = 0.001


def _turn_pause(waited: float) -> float:
    """Return how long to sleep before asking for the turn again, after `waited` seconds."""
    return max(_TURN_PAUSE_SECONDS - waited / 32, _SHORTEST_TURN_PAUSE_SECONDS)


def _room_pause(waited: float) -> float:
    """Return how long to sleep before asking for the room again, after `waited` seconds."""
    return min(_ROOM_PAUSE_SECONDS + waited / 64, _LONGEST_ROOM_PAUSE_SECONDS)


class Turnstile:
    """The queue in front of the database at `path`: `enter` before a write transaction, `leave` after it.

    `path`: the database file, or None for one that nobody else can open. `patience`: seconds; at most
    `PATIENCE_SECONDS` of them are used. The files are opened by the first `enter`. No method raises.
    """

    __slots__ = (
        "_clock", "_path", "_patience", "_process", "_rest", "_rest_end", "_room", "_sleep", "_slice_end", "_turn",
        "_with_turn",
    )  # fmt: skip

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
        self._rest = 0.0  # seconds, after the last wait in vain; 0 when it has been let in since
        self._rest_end = _NEVER
        self._clock = clock
        self._sleep = sleep
        self._process = os.getpid()
        self._slice_end = _NEVER
        self._with_turn = False  # true from before the turn is asked for until after it was given back
        self._turn = self._room = -1  # descriptors; -1: not open

    def enter(self) -> bool:
        """Wait for the turn and then for the room; False when that took too long, and others may be in it."""
        if self._path is None:
            return True
        try:
            if self._clock() < self._slice_end:
                try:
                    _lock(self._room, _TRY)
                    return True
                except BlockingIOError:  # the one that is next has slipped in
                    pass
            return self._take_turn(self._path)
        except OSError:  # no such locks, or no place for the files
            self._shut()
            self._path = None
            return True

    def leave(self) -> None:
        """Let the next one in. After an `enter` that did not come to its end it also gives the turn back."""
        if self._turn >= 0:
            try:
                _lock(self._room, _FREE)
                if self._with_turn:
                    _lock(self._turn, _FREE)
                    self._with_turn = False
            except OSError:
                pass

    def close(self) -> None:
        """Remove the files and close them; a second close does nothing, and a later `enter` waits for nobody.

        In a process that was forked since, the files stay: they are the parent's.
        """
        if self._path is not None and self._process == os.getpid():
            # The turn last: whoever sees it gone opens both anew, and must not find the old room.
            _remove(self._path + ROOM_SUFFIX, self._room)
            _remove(self._path + TURN_SUFFIX, self._turn)
        self._shut()
        self._path = None

    def __del__(self) -> None:
        self._shut()

    def _take_turn(self, path: str) -> bool:
        """Come in by the turn, which starts a slice; False where the patience was over first."""
        if self._turn < 0 or not (_has_a_name(self._room) and _has_a_name(self._turn)):
            self._open(path)
        self._with_turn = True
        try:  # as a rule nobody else is there
            _lock(self._turn, _TRY)
            _lock(self._room, _TRY)
            let_in = True
        except BlockingIOError:
            let_in = self._wait()
        if let_in:
            _lock(self._turn, _FREE)
            self._with_turn = False
            self._rest = 0.0
            self._rest_end = _NEVER
            self._slice_end = self._clock() + SLICE_SECONDS
        else:  # with the turn, if it came so far: until it has written, nobody is to overtake it again and again
            self._slice_end = _NEVER
        return let_in

    def _wait(self) -> bool:
        """Wait for the turn and the room while the patience lasts; without patience, ask for each once."""
        now = self._clock()
        patient = now >= self._rest_end
        until = now + self._patience if patient else now
        let_in = self._take(self._turn, _turn_pause, until) and self._take(self._room, _room_pause, until)
        if patient:  # for who was let in, the rest is over at once
            self._rest = min(max(self._patience, self._rest * 2), LONGEST_REST_SECONDS)
            self._rest_end = self._clock() + self._rest
        return let_in

    def _take(self, lock: int, pause: Callable[[float], float], until: float) -> bool:
        """Try until the lock is ours or the time is over, but once in any case."""
        started = self._clock()
        while True:
            try:
                _lock(lock, _TRY)
                return True
            except BlockingIOError:
                now = self._clock()
            if now >= until:
                return False
            self._sleep(pause(now - started))

    def _open(self, path: str) -> None:
        self._shut()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._room = os.open(path + ROOM_SUFFIX, flags, 0o666)
        self._turn = os.open(path + TURN_SUFFIX, flags, 0o666)

    def _shut(self) -> None:
        """Close the descriptors; the system takes back the locks that no forked process has as well.

        They are forgotten before they are closed: after an interrupt in between, their numbers may be another's.
        """
        self._slice_end = _NEVER
        room, turn, self._room, self._turn = self._room, self._turn, -1, -1
        try:
            try:
                if room >= 0:
                    os.close(room)
            finally:
                if turn >= 0:
                    os.close(turn)
        except OSError:  # a drive may report what it could not write; there was nothing to write
            pass


class FairTransaction(Transaction):
    """A transaction that takes its turn before `BEGIN IMMEDIATE` and lets the next one in after its end.

    `busy_seconds`: how long it waits for the lock; `clock` measures that. `check()` is called with the lock in hand.
    """

    def __init__(
        self,
        database: Database,
        turnstile: Turnstile,
        busy_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(database)
        self._check = check
        self._turnstile = turnstile
        self._busy_seconds = busy_seconds
        self._clock = clock

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._turnstile.leave()

    def _rollback(self, error: BaseException) -> None:
        try:
            super()._rollback(error)
        finally:
            self._turnstile.leave()

    def _begin(self) -> None:
        self._take_lock()
        self._check()  # with the lock: what was true before the wait may not be so any more

    def _take_lock(self) -> None:
        if self._turnstile.enter():
            super()._begin()
            return
        # Others may take turns here, and SQLite's own wait loses against them. So it is made in pieces, and
        # between two the turnstile is asked again.
        until = self._clock() + self._busy_seconds
        let_in = False
        try:
            while True:
                left = max(0.0, until - self._clock())
                seconds = left if let_in else min(left, _PIECE_SECONDS)
                self._database.connection.execute(f"PRAGMA busy_timeout={round(seconds * 1000)}")
                try:
                    super()._begin()
                    return
                except sqlite3.Error as error:
                    if let_in or not left or not is_busy(error):
                        raise
                self._turnstile.leave()
                let_in = self._turnstile.enter()
        finally:
            self._database.connection.execute(f"PRAGMA busy_timeout={round(self._busy_seconds * 1000)}")


class FairDatabase(Database):
    """A `Database` whose writers take turns (D6); opened and used as one, and with its errors.

    Waits for a turn make the waiting time two seconds longer than `busy_seconds` at most.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: int,
        migrations: Sequence[str],
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._busy_seconds = busy_seconds
        self._file: tuple[int, int] | None = None  # device and number of the file; None: not known, or in memory
        super().__init__(path, application_id=application_id, migrations=migrations, busy_seconds=busy_seconds)

    def write(self) -> FairTransaction:
        """Return a context manager for one durable write transaction, with a turn. Raises as `Database.write` does.

        While `PRAGMA busy_timeout` is 0 it waits for nothing, and so for no turn either.
        """
        waits = self._pragma("busy_timeout") > 0
        turnstile = self._turnstile if waits else Turnstile(None, 0)
        return FairTransaction(self, turnstile, self._busy_seconds if waits else 0, check=self._check_file)

    def row(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """Return the first row of a query, or None. Raises as `Database.row` does."""
        self._check_file()
        return super().row(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query. Raises as `Database.rows` does."""
        self._check_file()
        return super().rows(sql, parameters)

    def close(self) -> None:
        """Close the connection and give the turn's files back. Raises as `Database.close` does."""
        super().close()
        self._turnstile.close()

    def _prepare(self, application_id: int, migrations: Sequence[str]) -> None:
        self._turnstile = Turnstile(None if self.path == ":memory:" else self.path, self._busy_seconds)
        super()._prepare(application_id, migrations)
        self._keep_journal()
        self._file = _file_at(self.path)

    def _keep_journal(self) -> None:
        """Ask for WAL where the file has lost it: a copy made by `VACUUM INTO` has the rollback journal."""
        for _ in range(_JOURNAL_TRIES):
            if super().row("PRAGMA journal_mode")[0] not in ("delete", "truncate", "persist"):
                return
            try:
                super().row("PRAGMA journal_mode=WAL")
                return
            except StoreError as error:
                if error.code != "store_busy":  # read-only: it stays as it is
                    return
            with self.write():  # SQLite does not wait above; this does
                pass

    def _check_file(self) -> None:
        """Raise `StoreError` where the path is not this file any more: what is written here would be nowhere (D7)."""
        if self._file is not None and _file_at(self.path) != self._file:
            raise StoreError("store_unavailable", "replaced: the file was removed, or another one lies at its path")


def _lock(descriptor: int, operation: int) -> None:
    """Raise `BlockingIOError` when another one has the lock."""
    assert _flock is not None
    _flock(descriptor, operation)


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _has_a_name(descriptor: int) -> bool:
    """Say whether the file is still in its folder, so that others find it."""
    return os.fstat(descriptor).st_nlink > 0


def _remove(path: str, descriptor: int) -> None:
    """Remove our file, unless it has been removed already and the name is another's, or something is in it."""
    try:
        status = os.fstat(descriptor)
        if status.st_nlink == 1 and status.st_size == 0:
            os.unlink(path)
    except OSError:
        pass
