"""Stop calling a dependency that mostly fails, and find out with one call at a time when it works again.

         rate reached, enough calls             more than reset_s later
    closed ----------------------> open -------------------------> half-open
      ^                             ^                               |  |
      |                             |        the probe failed       |  |
      |                             +-------------------------------+  |
      +----------------------------------------------------------------+
                              the probe succeeded

K1  It opens by the *rate* of failures over a rolling window, and only past a minimum of calls: a busy dependency
    has many failures, and a quiet one has a high rate after a single one.
K2  Every call takes a `Permit` first and gives back one judgement: success, failure or neutral. Neutral moves nothing.
    Callers that give up, and calls that never had their whole time, are neutral: they say nothing of the dependency.
K3  Half-open lets exactly one call through. Its permit is taken before anything is awaited, under a lock, and ends by
    itself after `probe_s`, so that a probe that never returns does not hold the circuit for ever.
K4  Every change of state starts a new *generation*. A judgement of an older one is dropped: a call begun before the
    circuit opened neither closes it nor keeps it open for longer.
K5  A person may take it out of service (`isolate`) and put it back (`reset`); until then no time opens it again.
K6  A success that took longer than `slow_s` counts as a failure, if that is given: what answers every call after
    twenty seconds is down for those who wait five.
K7  Time is a monotonic clock that is passed in. Memory is `BUCKETS` pairs of counters, whatever the traffic, and a
    call costs the same, whatever the history.

An event counts for at least `window_s` less one bucket, and never for longer than `window_s`: whole buckets of a
sixtieth of the window fall out at once.

What it does not do: it does not wait, and it does not try again (see `retrying.retry`). It knows one process.
Source: the document on interruption, section 7 (claims I4-071, I4-074 to I4-076, I4-079 to I4-081, I4-085, I4-100; X-50
to X-52).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, TypeVar

from chapter10.canonical import CodedError
from chapter10.companions.basics.blame import blame
from chapter10.companions.interruption.budget import Outcome

__all__ = [
    "BUCKETS",
    "FAILURE_RATE",
    "MIN_CALLS",
    "PROBE_SECONDS",
    "RESET_SECONDS",
    "WINDOW_SECONDS",
    "BreakerError",
    "CircuitBreaker",
    "CircuitOpenError",
    "Clock",
    "Judgement",
    "Permit",
    "State",
    "Statistics",
    "judge",
]

T = TypeVar("T")

Clock = Callable[[], float]
"""Seconds on a monotonic clock; only differences mean something."""
State = Literal["closed", "open", "half-open"]
Judgement = Literal["success", "failure", "neutral"]

WINDOW_SECONDS: Final = 60.0
BUCKETS: Final = 60
MIN_CALLS: Final = 10
"""The fewest calls in the window that say anything; the `cb_failure_threshold` of the document (X-50)."""
FAILURE_RATE: Final = 0.5
"""The share of failures at which it opens. The document leaves it open; half is our choice."""
RESET_SECONDS: Final = 30.0
"""It is open for so long, and half-open as soon as *more* has passed."""
PROBE_SECONDS: Final = 60.0
"""How long a probe may take before another one is let through: longer than a connect and a read together."""


class BreakerError(CodedError, ValueError):
    """Raised when a breaker is made with something that it does not take: `bad_input`, with a `reason`."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__("bad_input")
        self.reason = reason


class CircuitOpenError(CodedError, RuntimeError):
    """Raised instead of a call while the circuit is open, or while its one probe is out: `circuit_open`.

    `retry_after`: seconds until a call may be let through, if nothing happens before.
    """

    retry_after: float

    def __init__(self, retry_after: float) -> None:
        super().__init__("circuit_open")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a breaker has seen; `calls` and `failures` within the window, the others since it was made."""

    state: State
    generation: int
    calls: int
    failures: int
    probing: bool
    """Whether a probe is out."""
    isolated: bool
    """Whether a person has taken it out of service."""
    permitted: int
    refused: int
    opened: int
    neutral: int
    dropped: int
    """Judgements of an older generation, and of probes that took too long."""


class Permit:
    """The right to make one call; it takes exactly one judgement, and further ones do nothing.

    As a context manager it gives the judgement of `judge` on what comes out of the block.
    """

    __slots__ = ("_breaker", "_generation", "_taken_at", "_used")

    def __init__(self, breaker: CircuitBreaker, generation: int, taken_at: float) -> None:
        self._breaker = breaker
        self._generation = generation
        self._taken_at = taken_at
        self._used = False

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give(judge(error))

    def success(self) -> None:
        """The dependency did what it was asked to."""
        self._breaker._settle(self, "success")

    def failure(self) -> None:
        """The dependency failed, and had all the time that it was promised."""
        self._breaker._settle(self, "failure")

    def neutral(self) -> None:
        """Nothing was learnt about the dependency; a probe may be made again at once."""
        self._breaker._settle(self, "neutral")

    def give(self, judgement: Judgement) -> None:
        """Give a judgement; the first one counts. Raises `BreakerError` for anything but the three words."""
        if type(judgement) is not str or judgement not in ("success", "failure", "neutral"):
            raise BreakerError("not a judgement")
        self._breaker._settle(self, judgement)


class CircuitBreaker:
    """One circuit for one dependency, shared by all who call it, in any thread; see the module.

    `window_s`, `reset_s`, `probe_s`: seconds above zero. `min_calls`: at least 1. `failure_rate`: above 0, at most 1.
    `slow_s`: seconds above zero, None for no limit (K6). `on_change(old, new)`: told of each change of state, in the
    thread that saw it and without the lock; what it raises is dropped. Raises `BreakerError` (`bad_input`).
    """

    def __init__(
        self,
        *,
        window_s: float = WINDOW_SECONDS,
        min_calls: int = MIN_CALLS,
        failure_rate: float = FAILURE_RATE,
        reset_s: float = RESET_SECONDS,
        probe_s: float = PROBE_SECONDS,
        slow_s: float | None = None,
        on_change: Callable[[State, State], object] | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        if type(min_calls) is not int or not 1 <= min_calls <= 2**31:
            raise BreakerError("min_calls is not a whole number from 1 to 2**31")
        if _number(failure_rate, "failure_rate") > 1:
            raise BreakerError("failure_rate exceeds 1")
        self._bucket_s = _number(window_s, "window_s") / BUCKETS
        self._min_calls = min_calls
        self._rate = failure_rate
        self._reset_s = _number(reset_s, "reset_s")
        self._probe_s = _number(probe_s, "probe_s")
        self._slow_s = math.inf if slow_s is None else _number(slow_s, "slow_s")
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()

        # All that follows is read and written with the lock held.
        self._state: State = "closed"
        self._isolated = False
        self._untold: list[tuple[State, State]] = []  # changes that `on_change` has not heard of
        self._generation = 0
        self._now = -math.inf  # the latest reading; a clock that falls back moves nothing
        self._bucket_end = -math.inf  # until when the newest bucket is the newest
        self._opened_at = 0.0
        self._probe_until: float | None = None  # None: no probe is out
        self._calls = 0  # the sums of the two rings
        self._failures = 0
        self._call_ring = [0] * BUCKETS
        self._failure_ring = [0] * BUCKETS
        self._bucket = 0  # the number of the newest bucket, counted from the clock's zero
        self._permitted = self._refused = self._opened = self._neutral = self._dropped = 0
        try:
            self._advance()
        except TypeError as error:
            raise BreakerError("the clock does not give a finite number of seconds") from error

    @property
    def state(self) -> State:
        """`closed`, `open` or `half-open`, at this moment."""
        return self.statistics().state

    @property
    def failures(self) -> int:
        """Failures within the window."""
        return self.statistics().failures

    @property
    def retry_after(self) -> float:
        """Seconds until a call may be let through: 0.0 if it would be now. Takes no permit.

        While it is isolated nobody knows, and it is `reset_s`.
        """
        with self._lock:
            wait = self._wait(self._advance())
        self._tell()
        return wait

    def check(self, after_s: float = 0.0) -> None:
        """Raise `CircuitOpenError` if a call that comes `after_s` from now would be refused, as things stand.

        Takes no permit, so that somebody may ask before a wait. Raises `BreakerError` for what is no such number.
        """
        if type(after_s) not in (int, float) or not 0 <= after_s <= 2**40:
            raise BreakerError("after_s is not a number of seconds, 0 or more")
        if (wait := self.retry_after) > after_s:
            raise CircuitOpenError(wait)

    def acquire(self) -> Permit:
        """Return a permit for one call, or raise `CircuitOpenError`. Never waits.

        Take it before the first await of the call, and give it a judgement in every case.
        """
        with self._lock:
            now = self._advance()
            wait = self._wait(now)
            if wait > 0:
                self._refused += 1
            else:
                if self._state == "half-open":
                    if self._probe_until is not None:  # it took too long; what it still says is not heard
                        self._generation += 1
                    self._probe_until = now + self._probe_s
                self._permitted += 1
            permit = Permit(self, self._generation, now)
        self._tell()
        if wait > 0:
            raise CircuitOpenError(wait)
        return permit

    async def call(
        self,
        fn: Callable[[], Awaitable[T]],
        judge: Callable[[BaseException | None], Judgement] | None = None,
    ) -> T:
        """Return `await fn()` under a permit. Raises `CircuitOpenError` without a call, and what `fn` raises.

        `judge`: the judgement on an error, or on None for a value; by default the function of that name. What it
        raises comes out, and the permit goes back as neutral.
        """
        permit = self.acquire()
        try:
            try:
                value = await fn()
            except BaseException as error:
                permit.give((judge or _judge)(error))
                raise
            if type(value) is Outcome:  # with every failure inside it a success
                raise BreakerError("an outcome is no value; give what `get()` says")
            permit.give((judge or _judge)(None))
            return value
        finally:
            permit.neutral()  # does nothing after a judgement; a judge that raises gave none

    def isolate(self) -> None:
        """Take the dependency out of service: every call is refused until `reset`, whatever the time."""
        with self._lock:
            now = self._advance()
            self._isolated = True
            self._enter("open", now)
        self._tell()

    def reset(self) -> None:
        """Close the circuit by hand, with a clean window; what is under way is not heard any more."""
        with self._lock:
            now = self._advance()
            self._isolated = False
            self._enter("closed", now)
        self._tell()

    def statistics(self) -> Statistics:
        """Return a record of what it is and has seen."""
        with self._lock:
            self._advance()
            seen = Statistics(
                self._state,
                self._generation,
                self._calls,
                self._failures,
                self._probe_until is not None,
                self._isolated,
                self._permitted,
                self._refused,
                self._opened,
                self._neutral,
                self._dropped,
            )
        self._tell()
        return seen

    def _settle(self, permit: Permit, judgement: Judgement) -> None:
        with self._lock:
            if permit._used:
                return
            permit._used = True
            now = self._advance()
            if judgement == "success" and now - permit._taken_at > self._slow_s:
                judgement = "failure"
            if permit._generation != self._generation:
                self._dropped += 1
            elif judgement == "neutral":
                self._neutral += 1
                self._probe_until = None
            elif self._state == "half-open":
                self._enter("closed" if judgement == "success" else "open", now)
            else:
                self._count(judgement == "failure")
                if self._calls >= self._min_calls and self._failures >= self._rate * self._calls:
                    self._enter("open", now)
        self._tell()

    def _tell(self) -> None:
        """Hand each change of state on once; never called with the lock held."""
        while self._on_change is not None and self._untold:
            with suppress(IndexError):  # another thread tells it
                old, new = self._untold.pop(0)
                with suppress(Exception):
                    self._on_change(old, new)

    def _advance(self) -> float:
        """Read the clock, drop what has left the window, and let an open circuit become half-open."""
        now = self._clock()
        if now < self._now:
            now = self._now
        if not now < self._bucket_end:
            self._drop(now)
        self._now = now
        if self._state == "open" and not self._isolated and now - self._opened_at > self._reset_s:
            self._enter("half-open", now)
        return now

    def _drop(self, now: float) -> None:
        if not -math.inf < now < math.inf:
            raise BreakerError("the clock does not give a finite number of seconds")
        newest = int(now // self._bucket_s)
        # Never more steps than there are buckets, and never more than time has brought new ones.
        for number in range(max(self._bucket + 1, newest - BUCKETS + 1), newest + 1):
            slot = number % BUCKETS
            self._calls -= self._call_ring[slot]
            self._failures -= self._failure_ring[slot]
            self._call_ring[slot] = self._failure_ring[slot] = 0
        self._bucket = newest
        self._bucket_end = (newest + 1) * self._bucket_s

    def _wait(self, now: float) -> float:
        if self._isolated:
            return self._reset_s
        if self._state == "open":
            # It opens *after* the reset time, so the wait is never nothing.
            return max(self._opened_at + self._reset_s - now, math.ulp(now))
        # Only a probe that is out makes others wait, and while the circuit is closed there is none.
        return 0.0 if self._probe_until is None else max(self._probe_until - now, 0.0)

    def _count(self, failed: bool) -> None:
        slot = self._bucket % BUCKETS
        self._call_ring[slot] += 1
        self._calls += 1
        if failed:
            self._failure_ring[slot] += 1
            self._failures += 1

    def _enter(self, state: State, now: float) -> None:
        if state != self._state and self._on_change is not None:
            self._untold.append((self._state, state))
        self._state = state
        self._generation += 1
        self._probe_until = None
        if state == "open":
            self._opened_at = now
            self._opened += 1
        elif state == "closed":
            # It starts with a clean window: the failures that opened it are not held against it twice.
            self._calls = self._failures = 0
            self._call_ring = [0] * BUCKETS
            self._failure_ring = [0] * BUCKETS


def judge(error: BaseException | None) -> Judgement:
    """Return the usual judgement on how a call ended; `None` stands for a value.

    A failure is what `companions.basics.blame` puts on the other side. All else is neutral: a cancel or another stop,
    our own giving up (a cancelled tool, a budget that was spent, another circuit that is open), a mistake of the
    caller, a refusal of this one request, our own records. A group that holds a stop is neutral, any other is a failure
    as soon as one leaf is. Source: X-52.
    """
    if error is None:
        return "success"
    return "failure" if isinstance(error, Exception) and blame(error).whose == "there" else "neutral"


_judge: Final = judge


def _number(value: object, name: str) -> float:
    # Not below 2**-40: a part of it must still be a number above zero.
    if type(value) not in (int, float) or not 2**-40 <= value <= 2**40:  # type: ignore[operator]
        raise BreakerError(f"{name} is not a number above 0")
    return value  # type: ignore[return-value]
