"""What a worker knows of the attempt that it holds, and the thread that keeps the lease alive meanwhile.

    held      one attempt of one job in the hands of this worker: until when it may write, and whether it is over
    beat      one renewal, about three times in a lease; one small write
    over      why a handler has to stop; the first reason stays

What holds
    H1  a beat is made only while the handler runs: after `let_go` has returned, none begins and none is under way
    H2  what the worker believes of its lease is never longer than what the store granted
    H3  an attempt past its own limit is not renewed any more, so no attempt keeps itself alive without end (C10-233)
    H4  a beat that fails because the machine does is tried again sooner; one that is refused ends the attempt
    H5  what is told may raise what it likes: it costs no beat

The thread has a connection of its own, because a connection belongs to one thread and because a handler that waits
must not keep the lease from being renewed. Between the beats it sleeps, never longer than `pause`.
Source: the chapter's lease and what it leaves open (claims C10-226, C10-233).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from chapter10.canonical import CodedError
from chapter10.database import StoreError

__all__ = ["BEATS_PER_LEASE", "OVER", "AttemptOver", "Heartbeat", "Held", "JobContext", "Leases"]

BEATS_PER_LEASE: Final = 3
"""Two beats may be missed before the lease is lost."""
_SHORTEST_PAUSE: Final = 0.005

OVER: Final = (
    "cancelled",
    "lease_lost",
    "deadline_exceeded",
    "attempt_limit_exceeded",
    "worker_stopped",
    "ended",
)
"""Why an attempt is over; see `AttemptOver`."""


class AttemptOver(BaseException):
    """Raised in a handler by `checkpoint` and `progress`: stop now, clean up, let it pass.

    `cancelled`: the caller asked. `lease_lost`: another attempt may run. `deadline_exceeded`: nothing counts any
    more. `attempt_limit_exceeded`: this attempt took longer than its handler may. `worker_stopped`: the worker is
    to leave. `ended`: the job has its final state. No `Exception`, so that a handler that catches those and goes on
    does not swallow it.
    """

    code: str

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class JobContext(Protocol):
    """What a handler is given: the job and the three things that it may say."""

    @property
    def job_id(self) -> int:
        """The number of the job."""

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""

    @property
    def args(self) -> dict[str, Any]:
        """The arguments; a copy that belongs to the handler."""

    @property
    def snapshot(self) -> Any:
        """The identity of the input as recorded at submit: `args["snapshot"]`, or None."""

    def progress(self, done: int, total: int) -> bool:
        """Say how much is done; True, or an `AttemptOver`."""

    def checkpoint(self) -> None:
        """Return if the attempt may go on; raise `AttemptOver` if not."""

    def time_left(self) -> float:
        """Return the seconds until this attempt must have ended."""


class Leases(Protocol):
    """The two verbs of the store that are called from the thread; `LivingStore` has them."""

    def renew(self, job_id: int, attempt: int, *, now: Callable[[], float], lease: float) -> str:
        """Let the lease end later and return the state of the job."""

    def hand_back(self, job_id: int, attempt: int, code: str, *, now: Callable[[], float]) -> str:
        """Give the interrupted attempt up and return the state of the job."""

    def close(self) -> None:
        """Close the connection."""


class Held:
    """One attempt in this worker's hands; the handler's thread and the heartbeat both read it."""

    __slots__ = (
        "again_until",
        "attempt",
        "deadline",
        "job_id",
        "lease_until",
        "limit_at",
        "over",
        "owner",
        "renew_at",
        "started",
    )

    def __init__(
        self,
        job_id: int,
        attempt: int,
        *,
        owner: str,
        started: float,
        lease: float,
        deadline: float,
        limit: float | None,
        renew_every: float,
    ) -> None:
        self.job_id: Final = job_id
        self.attempt: Final = attempt
        self.owner: Final = owner
        self.started: Final = started
        self.deadline: Final = deadline
        self.limit_at: Final = None if limit is None else started + limit
        self.lease_until = min(started + lease, deadline)
        """Not later than in the store: the clock was read before the store read it (H2)."""
        self.renew_at = started + renew_every
        self.again_until: float | None = None
        """Until when a temporary error is worth another attempt; None: as long as the job has attempts and time."""
        self.over: str | None = None
        """Why the attempt is over, None while it may go on."""

    def end(self, code: str) -> None:
        """Say why the attempt is over; the first reason stays."""
        if self.over is None:
            self.over = code

    def seen(self, state: str) -> None:
        """Take note of the state that the store gave."""
        if state == "cancel_requested":
            self.end("cancelled")
        elif state != "running":
            self.end("ended")


class Heartbeat:
    """Renews the lease of what is held, in a thread of its own.

    `connect`: opens the thread's connection, in the thread. `clock`, `lease`: as for the worker. `every`: seconds from
    one beat to the next. `pause`: the longest time between two looks. `release_at`: the moment from which a held job is
    put back for its handler's sake, None for never. `refused(held, verb, code)`, `failed(error)` and
    `overrun(held)` are told what happened, in the thread.
    """

    def __init__(
        self,
        connect: Callable[[], Leases],
        *,
        clock: Callable[[], float],
        lease: float,
        every: float,
        pause: float,
        release_at: Callable[[], float | None],
        refused: Callable[[Held, str, str], object],
        failed: Callable[[Exception], object],
        overrun: Callable[[Held], object],
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._lease = lease
        self._every = every
        self._pause = min(every, pause)
        self._release_at = release_at
        self._refused = refused
        self._failed = failed
        self._overrun = overrun
        self._lock = threading.Lock()
        """Held during a beat; whoever has it may change what is held (H1)."""
        self._held: Held | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it; the connection is closed. Without a thread it does nothing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def hold(self, held: Held) -> None:
        """Keep the lease of this attempt alive from now on."""
        with self._lock:
            self._held = held

    def let_go(self) -> None:
        """Renew nothing any more; a beat that is under way is waited for."""
        with self._lock:
            self._held = None

    def look(self, leases: Leases) -> float:
        """Do what is due and return the seconds until the next look. The thread does nothing but this."""
        with self._lock:
            held = self._held
            if held is None:
                return self._pause
            now = self._clock()
            release_at = self._release_at()
            if release_at is not None and now >= release_at:
                self._put_back(leases, held)
            elif now >= held.renew_at and held.over in (None, "cancelled"):
                if held.limit_at is None or now < held.limit_at:
                    self._beat(leases, held, now)
            until_beat = held.renew_at - now
            return self._pause if until_beat <= 0 else max(_SHORTEST_PAUSE, min(self._pause, until_beat))

    def _beat(self, leases: Leases, held: Held, now: float) -> None:
        try:
            state = leases.renew(held.job_id, held.attempt, now=self._clock, lease=self._lease)
        except StoreError as error:
            held.renew_at = now + self._every / 4
            _tell(self._failed, error)
        except CodedError as error:
            held.end("lease_lost")
            _tell(self._refused, held, "renew", error.code)
        else:
            held.lease_until = max(held.lease_until, min(now + self._lease, held.deadline))
            held.renew_at = now + self._every
            held.seen(state)

    def _put_back(self, leases: Leases, held: Held) -> None:
        """The handler did not stop in time: its job goes back in line, and whatever it delivers is refused."""
        self._held = None
        try:
            leases.hand_back(held.job_id, held.attempt, "worker_stopped", now=self._clock)
        except CodedError as error:  # the end of the lease does the same, later
            _tell(self._failed, error)
        held.end("worker_stopped")
        _tell(self._overrun, held)

    def _run(self) -> None:
        _leave_signals_to_the_main_thread()
        leases: Leases | None = None
        pause = self._pause
        try:
            while not self._stopping.wait(pause):
                try:
                    if leases is None:
                        leases = self._connect()
                    pause = self.look(leases)
                except Exception as error:  # a thread that died in silence would cost every later job its lease
                    pause = self._pause
                    _tell(self._failed, error)
        finally:
            if leases is not None:
                leases.close()


def _tell(callback: Callable[..., object], *said: object) -> None:
    with suppress(Exception):  # a log on a full disk, say: whoever listens decides nothing (H5)
        callback(*said)


def _leave_signals_to_the_main_thread() -> None:
    """A signal that the system gives to this thread would be noted, but the main thread would sleep on.

    Python runs handlers in the main thread only, and of two signals at once the system may hand the second one
    to any thread that takes it.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
