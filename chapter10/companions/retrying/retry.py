"""Try again, when that is safe, when there is time, when it does not make things worse, and not otherwise.

After a failed attempt four questions decide, in this order and *before* anything sleeps:

    1. effect    may this action be repeated after such a fault?  (`may_retry`, and a status query for writes)
    2. budget    is there time for the wait and one more attempt?
    3. bucket    may the whole process still add retries for this dependency, and this chain of calls?
    4. breaker   would the dependency's circuit let the call through after the wait?

A *fault* is what is known of a failed attempt. `not_sent`: the connection was not made, so nothing can have happened
and everybody may repeat. `unknown`: it was sent and no answer came; only a read may be repeated blindly. `permanent`:
it will fail again. So the limits for connecting and for reading are two, and their time-outs two errors.

                    not_sent    unknown                                              permanent
    read            repeat      repeat                                               no
    keyed           repeat      repeat                                               no
    reversible      repeat      with a key, and a status that says "not done"        no
    irreversible    repeat      no; with a status that says "done" it is settled     no

A *keyed* write is one whose key the other side keeps: sent twice, it is done once, and the second answer is that of
the first. Only the other side can promise that, so whoever says `keyed_write` has read it there, and gives the key.

R1  `max_attempts` counts every attempt, the first included (X-11).
R2  No wait exceeds `max_backoff_ms`: the nominal wait is capped at two thirds of it, and 50 to 150 % of that is drawn.
    A longer wait that the other side asks for (`asked_wait`) is kept, up to the same cap.
R3  The last *real* error comes out, not the reason that stopped: that is its `retry_stop`, a note, and for an open
    circuit its `__context__`. An error that takes neither of the two comes out without them.
R4  A cancel, a keyboard interrupt and an exit are never caught, never counted as a failure, never repeated.
R5  Nested layers of retry share one count: whatever is called from inside draws on the outer layer's attempts, so
    three layers of three tries are three calls and not twenty-seven. Tasks side by side have that count each, and one
    that lives on in the background keeps what was left when it began, once; `new_chain` cuts it off.
R6  Every attempt of a write carries the same key, and so does the status query.
R7  A value may be no good (`reject`): then the attempt has failed, and the last such value comes out in a
    `ValueRejected`. It is no failure of the dependency, which has answered, unless `is_failure` says so.

What it does not do: it makes no write safe that has no key on the other side. See `companions.effects.idempotency`.
For a function that blocks, and as a decorator, see `companions.retrying.retried`.
Source: the document on interruption, section 7 (claims I4-072, I4-073, I4-077, I4-078, I4-082, I4-095, I4-098,
I4-100), the chapter's section on retries (C10-196 to C10-206); X-11, X-12, X-25, X-52 to X-54.
"""

from __future__ import annotations

import asyncio
import math
import random as chance
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, Final, Generic, Literal, NoReturn, Protocol, TypeVar
from weakref import WeakKeyDictionary

from chapter10.canonical import CodedError
from chapter10.companions.basics.arguments import Arguments
from chapter10.companions.basics.blame import blame
from chapter10.companions.basics.tasks import leaves, own
from chapter10.companions.interruption.budget import Outcome

__all__ = [
    "CONNECT_RANGE_MS",
    "EFFECTS",
    "JITTER",
    "MAX_ATTEMPTS",
    "MAX_KEY",
    "READ_RANGE_MS",
    "Attempt",
    "Breaker",
    "ConnectFailed",
    "ConnectTimedOut",
    "Effect",
    "Fault",
    "Permit",
    "ReadTimedOut",
    "Reason",
    "RetryError",
    "OWN_RANGE_MS",
    "RetryPolicy",
    "Sleep",
    "Status",
    "Stop",
    "TimeLeft",
    "TokenBucket",
    "Try",
    "ValueRejected",
    "answer_within",
    "asked_wait",
    "backoff_ms",
    "classify",
    "connect_then_read",
    "may_retry",
    "retry",
]

T = TypeVar("T")
C = TypeVar("C")

Effect = Literal["read", "keyed_write", "reversible_write", "irreversible_write"]
EFFECTS: Final[tuple[Effect, ...]] = ("read", "keyed_write", "reversible_write", "irreversible_write")
Fault = Literal["not_sent", "unknown", "permanent"]
Reason = Literal[
    "permanent",  # it would fail again
    "outcome_unknown",  # a write may have been done, and nobody can say
    "effect_forbids",  # it was not done, but an irreversible write is not sent a second time by a machine
    "attempts_exhausted",
    "budget_exhausted",
    "bucket_empty",
    "circuit_open",
]
Sleep = Callable[[float], Awaitable[object]]
"""Waits for so many seconds, and can be cancelled."""

CONNECT_RANGE_MS: Final = (1000, 2000)
READ_RANGE_MS: Final = (5000, 30_000)
OWN_RANGE_MS: Final = (1, 3_600_000)
"""The range of both for whoever has limits of their own: a service of 300 ms, a model that thinks for five minutes."""
JITTER: Final = (0.5, 1.5)
"""The factor of a wait is drawn from here; the upper end is not reached."""
MAX_ATTEMPTS: Final = 100
"""The most attempts that a policy may ask for."""
MAX_KEY: Final = 500
"""Characters of a key; at least one."""
_MAX_DOUBLINGS: Final = 40
"""Past this no wait grows any more; it keeps 2 ** n from growing without bound."""
_GRACE_S: Final = 1.0
"""Seconds that an attempt has to stop after its time-out."""


class RetryError(CodedError, ValueError):
    """Raised when a policy or a call is given something that it does not take: `bad_input`, with a `reason`."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__("bad_input")
        self.reason = reason


_whole: Final = Arguments(RetryError).whole


class ConnectFailed(CodedError, ConnectionError):
    """Raised when no connection was made: `connect_failed`. Nothing was sent, so anything may be repeated."""

    def __init__(self, code: str = "connect_failed") -> None:
        super().__init__(code)


class ConnectTimedOut(ConnectFailed, TimeoutError):
    """Raised when connecting took longer than its limit: `connect_timed_out`. Nothing was sent.

    `whole_limit`: False if the caller's remainder, and not the connect limit itself, was the limit.
    """

    whole_limit: bool

    def __init__(self, whole_limit: bool = True) -> None:
        super().__init__("connect_timed_out")
        self.whole_limit = whole_limit


class ReadTimedOut(CodedError, TimeoutError):
    """Raised when no answer came in time: `read_timed_out`. What was sent may or may not have been done.

    `whole_limit`: False if the caller's remainder, and not the read limit itself, was the limit. `late_value`: what
    came after the limit all the same, in a tuple of one; empty if nothing did.
    """

    whole_limit: bool
    late_value: tuple[object, ...]

    def __init__(self, whole_limit: bool = True, late_value: tuple[object, ...] = ()) -> None:
        super().__init__("read_timed_out")
        self.whole_limit = whole_limit
        self.late_value = late_value


class ValueRejected(CodedError, RuntimeError):
    """Raised when the last attempt gave a value that was no good: `value_rejected`, with `value` and `fault`."""

    value: object
    fault: Fault

    def __init__(self, value: object, fault: Fault) -> None:
        super().__init__("value_rejected")
        self.value = value
        self.fault = fault


class TimeLeft(Protocol):
    """What is asked of a budget; `companions.interruption.budget.Budget` has it."""

    @property
    def remaining(self) -> int:
        """Whole milliseconds left."""

    def check(self, name: str, minimum_ms: int = 0, *, min_reserve_ms: int = 200) -> int:
        """Return the milliseconds left, or raise an error of its own if an attempt must not start."""


class Permit(Protocol):
    """The right to make one call; `companions.retrying.circuit_breaker.Permit` has it."""

    def success(self) -> None:
        """The dependency did what it was asked to."""

    def failure(self) -> None:
        """The dependency failed."""

    def neutral(self) -> None:
        """Nothing was learnt about the dependency."""


class Breaker(Protocol):
    """What is asked of a breaker; `companions.retrying.circuit_breaker.CircuitBreaker` has it."""

    def check(self, after_s: float = 0.0) -> None:
        """Raise an error of its own if a call that comes so much later would be refused; takes no permit."""

    def acquire(self) -> Permit:
        """Return a permit, or raise an error of its own while the circuit is open."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, how far apart, and how long an attempt may take. All times in milliseconds.

    `max_attempts` includes the first (1 to `MAX_ATTEMPTS`). `connect_timeout_ms`: 1000 to 2000, the network's part.
    `read_timeout_ms`: 5000 to 30,000, the work's part. `limits`: `own` for two that somebody has chosen with other
    figures in hand, within `OWN_RANGE_MS`. Raises `RetryError`. Source: claims I4-070, I4-082.
    """

    max_attempts: int = 4
    base_backoff_ms: int = 200
    max_backoff_ms: int = 30_000
    connect_timeout_ms: int = 1500
    read_timeout_ms: int = 5000
    limits: Literal["usual", "own"] = "usual"

    def __post_init__(self) -> None:
        _whole(self.max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
        _whole(self.base_backoff_ms, "base_backoff_ms", 1, 2**31)
        _whole(self.max_backoff_ms, "max_backoff_ms", 1, 2**31)
        if self.limits not in ("usual", "own"):
            raise RetryError("limits is neither usual nor own")
        usual = self.limits == "usual"
        _whole(self.connect_timeout_ms, "connect_timeout_ms", *(CONNECT_RANGE_MS if usual else OWN_RANGE_MS))
        _whole(self.read_timeout_ms, "read_timeout_ms", *(READ_RANGE_MS if usual else OWN_RANGE_MS))

    @classmethod
    def from_max_retries(cls, max_retries: int, **others: Any) -> RetryPolicy:
        """Return the policy with so many attempts *after* the first: 3 retries are 4 attempts (X-11)."""
        return cls(max_attempts=_whole(max_retries, "max_retries", 0, MAX_ATTEMPTS - 1) + 1, **others)


@dataclass(frozen=True)  # no slots: with them `Status[int]("done", 1)` fails before Python 3.13
class Status(Generic[T]):
    """The answer to "was it done?": `done` with the `value` of then, `not_done`, or `unknown`."""

    state: Literal["done", "not_done", "unknown"]
    value: T | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why no further attempt was made, and how many were; stands on the error as `retry_stop`."""

    reason: Reason
    attempts: int


@dataclass(frozen=True, slots=True)
class Try:
    """What `observe` hears of one attempt: its `number` from 1, its `error` (None: it gave a value), what follows.

    `wait_s`: seconds until the next one. `reason`: why there is none; a wait that was in vain is told of twice. An
    error with neither: it was done all the same.
    """

    number: int
    error: Exception | None = None
    wait_s: float | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt is told: its `number` from 1, the `key` of all attempts, and its two limits."""

    number: int
    key: str | None
    policy: RetryPolicy
    budget: TimeLeft | None = None

    def connect_limit(self) -> tuple[float, bool]:
        """Return the seconds that connecting may take now, and whether that is the policy's whole limit."""
        return self._limit(self.policy.connect_timeout_ms)

    def read_limit(self) -> tuple[float, bool]:
        """Return the seconds that the answer may take now, and whether that is the policy's whole limit."""
        return self._limit(self.policy.read_timeout_ms)

    def _limit(self, configured_ms: int) -> tuple[float, bool]:
        left = configured_ms if self.budget is None else self.budget.remaining
        return min(configured_ms, left) / 1000, configured_ms <= left


class TokenBucket:
    """A stock of retries that all callers of one dependency share, in any thread.

    A retry takes one token, and gives it back if it is not made after all; a call that succeeds gives `refill` of one
    back. So while a dependency is down, the retries
    of all callers together are bounded by the stock, and while it is well, by a fraction of the calls.

    `capacity`: whole, 0 or more; the stock starts full. `refill`: 0 to 1. Raises `RetryError`.
    """

    def __init__(self, capacity: int = 10, refill: float = 0.1) -> None:
        self._capacity = _whole(capacity, "capacity", 0, 2**31)
        if type(refill) not in (int, float) or not 0 <= refill <= 1:
            raise RetryError("refill is not a number from 0 to 1")
        self._refill = refill
        self._tokens = float(capacity)
        self._lock = threading.Lock()

    @property
    def tokens(self) -> float:
        """What is in stock."""
        return self._tokens

    def take(self) -> bool:
        """Take a token for one retry; False if there is no whole one."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def put_back(self) -> None:
        """Return a token that was taken for a retry which was then not made."""
        self._add(1)

    def succeeded(self) -> None:
        """Book a call that succeeded."""
        self._add(self._refill)

    def _add(self, tokens: float) -> None:
        with self._lock:
            self._tokens = min(self._tokens + tokens, float(self._capacity))


class _Chain:
    """The retries of an outermost layer and of all beneath it: so many on each path of calls.

    Tasks side by side, and threads, are paths of their own, each with what was left where they branch off, so that they
    do not take each other's; whoever started them has used as many as the most eager of them.
    """

    def __init__(self, most: int, above: _Chain | None = None) -> None:
        self._most = most
        self._above = above
        self._used = 0  # on this path alone
        self._deepest = 0  # on the longest path through it
        self._runner = _runner()
        self._paths: WeakKeyDictionary[Any, _Chain] = WeakKeyDictionary()

    def here(self) -> _Chain:
        """Return the chain of whoever runs here: this one, or the path that branches off it."""
        runner = _runner()
        if runner is self._runner:
            return self
        if runner not in self._paths:
            self._paths[runner] = _Chain(self._most - self._used, self)
        return self._paths[runner]

    def take(self) -> bool:
        """Take a token for one retry; False if there is none on this path."""
        if self._deepest >= self._most:
            return False
        self._used = self._deepest + 1
        self._tell(self._used)
        return True

    def put_back(self) -> None:
        """Return a token that was taken for a retry which was then not made."""
        self._used -= 1
        self._deepest -= 1

    def succeeded(self) -> None:
        """Earn nothing: the chain is one piece of business, however many of its calls succeed."""

    def _tell(self, used: int) -> None:
        self._deepest = max(self._deepest, used)
        if self._above is not None:
            self._above._tell(self._above._used + used)


def _runner() -> asyncio.Task[Any] | threading.Thread:
    """Return the running task, or the thread where there is none."""
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no event loop runs in this thread
        return threading.current_thread()


_chain: Final[ContextVar[_Chain | None]] = ContextVar("retries that the outermost layer of this chain has left")


async def retry(
    fn: Callable[[Attempt], Awaitable[T]],
    *,
    effect: Effect,
    policy: RetryPolicy | None = None,
    name: str = "tool",
    budget: TimeLeft | None = None,
    minimum_ms: int = 0,
    min_reserve_ms: int = 200,
    bucket: TokenBucket | None = None,
    breaker: Breaker | None = None,
    key: str | None = None,
    status: Callable[[str], Awaitable[Status[T]] | Status[T]] | None = None,
    classify: Callable[[Exception], Fault] | None = None,
    is_failure: Callable[[Exception], bool] | None = None,
    reject: Callable[[T], Fault | None] | None = None,
    observe: Callable[[Try], object] | None = None,
    new_chain: bool = False,
    sleep: Sleep = asyncio.sleep,
    random: Callable[[], float] = chance.random,
) -> T:
    """Return what `await fn(attempt)` returns, trying again as the module says.

    `effect`: what the action does; nothing is guessed from the error alone. `policy`: None for the defaults. `budget`,
    `minimum_ms`, `min_reserve_ms`: checked before every attempt and after every wait. `bucket`: shared by the callers
    of a dependency. `breaker`: asked for a permit for each attempt. `key`, `status`: the intent's key, and a query
    under that key; both are needed to repeat a reversible write whose outcome is unknown, and a keyed write needs its
    key in any case. `classify`: what a failed attempt means, see the function. `is_failure`: whether an error is the
    dependency's fault and counts for the breaker; by default what `companions.basics.blame` puts on the other side.
    `reject`: what a value that is no good means, None for a good one (R7). `observe(try)`: told of every attempt; what
    it raises is dropped. `new_chain`: this layer owns another range of errors than the layers around it, or is a task
    that outlives them, and counts its own attempts. `random`: draws from 0 up to, not including, 1.

    Keeping to the limits is the part of `fn`, which gets them with its `Attempt`: see `connect_then_read`.

    Raises the budget's or the breaker's own error when the first attempt is not made, afterwards the last error of `fn`
    (R3), and `RetryError` (`bad_input`) before anything is called.
    """
    if type(effect) is not str or effect not in EFFECTS:
        raise RetryError("not an effect class")
    policy = RetryPolicy() if policy is None else policy
    if type(policy) is not RetryPolicy or not _is_key(key):
        raise RetryError("not a policy, or not a key")
    if effect == "keyed_write" and key is None:
        raise RetryError("a keyed write has a key")
    if type(new_chain) is not bool:
        raise RetryError("new_chain is neither True nor False")
    for value, label in ((minimum_ms, "minimum_ms"), (min_reserve_ms, "min_reserve_ms")):
        _whole(value, label, 0, 2**31)
    outer = None if new_chain else _chain.get(None)
    chain = _Chain(policy.max_attempts - 1) if outer is None else outer.here()
    token = _chain.set(chain)
    try:
        return await _Retry(
            fn,
            effect,
            policy,
            name,
            budget,
            minimum_ms,
            min_reserve_ms,
            (chain,) if bucket is None else (bucket, chain),
            breaker,
            key,
            status,
            classify or _classify,
            is_failure or _is_failure,
            reject,
            observe,
            sleep,
            random,
        ).run()
    finally:
        _chain.reset(token)


@dataclass(slots=True)
class _Retry(Generic[T]):
    """One call of `retry`: its parameters, and the steps in the order of the module."""

    fn: Callable[[Attempt], Awaitable[T]]
    effect: Effect
    policy: RetryPolicy
    name: str
    budget: TimeLeft | None
    minimum_ms: int
    min_reserve_ms: int
    buckets: tuple[TokenBucket | _Chain, ...]
    breaker: Breaker | None
    key: str | None
    status: Callable[[str], Awaitable[Status[T]] | Status[T]] | None
    classify: Callable[[Exception], Fault]
    is_failure: Callable[[Exception], bool]
    reject: Callable[[T], Fault | None] | None
    observe: Callable[[Try], object] | None
    sleep: Sleep
    random: Callable[[], float]
    number: int = field(default=0, init=False)
    taken: list[TokenBucket | _Chain] = field(default_factory=list, init=False)
    """Where a token was taken for a retry that is not made yet."""

    async def run(self) -> T:
        try:
            return await self.attempts()
        finally:
            # Whoever gives up during a wait, or is refused after it, leaves the others their retries.
            for bucket in self.taken:
                bucket.put_back()

    async def attempts(self) -> T:
        """Make the first attempt and those that are allowed after it."""
        last: Exception | None = None
        while True:
            permit = self.admit(last)
            self.taken.clear()
            self.number += 1
            attempt = Attempt(self.number, self.key, self.policy, self.budget)
            try:
                value = self.accept(await self.fn(attempt))
            except Exception as error:
                fault = self.book(permit, error)
                last = error
            except BaseException:
                if permit is not None:
                    permit.neutral()
                raise
            else:
                if permit is not None:
                    (permit.neutral if type(value) is Outcome else permit.success)()
                if type(value) is Outcome:  # with every failure inside it a success
                    raise RetryError("an outcome is no value; give what `get()` says")
                for bucket in self.buckets:
                    bucket.succeeded()
                self.tell(Try(self.number))
                return value
            settled = await self.settle(last, fault, attempt)
            if settled.state == "done":
                self.tell(Try(self.number, last))
                return settled.value  # type: ignore[return-value]  # the value of the call that was done
            wait_s = self.decide(last, fault, settled.state)
            self.tell(Try(self.number, last, wait_s))
            await self.sleep(wait_s)

    def accept(self, value: T) -> T:
        """Return a value that is good; one that is not fails the attempt."""
        if self.reject is not None and (fault := self.reject(value)) is not None:
            raise ValueRejected(value, fault)
        return value

    def tell(self, heard: Try) -> None:
        """Let `observe` hear of an attempt."""
        if self.observe is not None:
            with suppress(Exception):
                self.observe(heard)

    def admit(self, last: Exception | None) -> Permit | None:
        """Check the budget and get a permit; after a failed attempt a refusal brings out that attempt's error."""
        reason: Reason = "budget_exhausted"
        try:
            if self.budget is not None:
                self.budget.check(self.name, self.minimum_ms, min_reserve_ms=self.min_reserve_ms)
            reason = "circuit_open"
            return None if self.breaker is None else self.breaker.acquire()
        except CodedError:
            if last is None:
                raise
            self.stop(last, reason)

    def book(self, permit: Permit | None, error: Exception) -> Fault:
        """Say what a failed attempt means, and give its permit a judgement in every case."""
        failure = False
        try:
            fault = self.classify(error)
            failure = self.is_failure(error)
            return fault
        finally:
            if permit is not None:
                (permit.failure if failure else permit.neutral)()

    async def settle(self, last: Exception, fault: Fault, attempt: Attempt) -> Status[T]:
        """Find out whether it was done after all; a query that fails or takes too long leaves it unknown."""
        if isinstance(last, ReadTimedOut) and last.late_value:
            late: T = last.late_value[0]  # type: ignore[assignment]  # what `fn` would have returned
            with suppress(ValueRejected):
                return Status("done", self.accept(late))
        if fault == "not_sent":
            return Status("not_done")
        if fault == "permanent" or self.effect == "read" or self.key is None or self.status is None:
            return Status("unknown")
        key, query = self.key, self.status
        seconds, _ = attempt.read_limit()
        if seconds <= 0:
            return Status("unknown")
        try:
            answer = query(key)
        except Exception:
            return Status("unknown")
        if isinstance(answer, Status):
            return answer
        ending = await own(lambda: answer, limit_s=seconds, grace_s=_GRACE_S)
        if ending.outer is not None:
            raise ending.outer
        if ending.why == "itself" and type(ending.value) is Status:
            return ending.value
        return Status("unknown")

    def decide(self, last: Exception, fault: Fault, settled: str) -> float:
        """Return the seconds to wait before the next attempt, or bring `last` out with the reason that stopped."""
        if fault == "permanent":
            self.stop(last, "permanent")
        if not may_retry(self.effect, fault, has_key=self.key is not None, not_done=settled == "not_done"):
            self.stop(last, "effect_forbids" if settled == "not_done" else "outcome_unknown")
        if self.number >= self.policy.max_attempts:
            self.stop(last, "attempts_exhausted")
        delay = backoff_ms(
            self.number - 1,
            base_ms=self.policy.base_backoff_ms,
            max_ms=self.policy.max_backoff_ms,
            random=self.random,
        )
        delay = max(delay, math.ceil(min(asked_wait(last) * 1000, self.policy.max_backoff_ms)))
        if self.budget is not None:
            # Never sleep into certain failure: the wait and one more attempt must both fit.
            if delay + max(self.minimum_ms, self.min_reserve_ms, 1) > self.budget.remaining:
                self.stop(last, "budget_exhausted")
        for bucket in self.buckets:
            if not bucket.take():
                self.stop(last, "bucket_empty")
            self.taken.append(bucket)
        if self.breaker is not None:
            try:
                self.breaker.check(delay / 1000)
            except CodedError:
                self.stop(last, "circuit_open")
        return delay / 1000

    def stop(self, last: Exception, reason: Reason) -> NoReturn:
        """Raise the last real error with the reason on it; a refusal that is being handled becomes its context."""
        self.tell(Try(self.number, last, None, reason))
        note = f"retry stopped: {reason} after {self.number} of {self.policy.max_attempts} attempts"
        with suppress(AttributeError):  # a frozen error takes neither, and is still the one that comes out
            last.retry_stop = Stop(reason, self.number)  # type: ignore[attr-defined]
        with suppress(AttributeError):
            if note not in getattr(last, "__notes__", ()):  # the same object may come again and again
                last.add_note(note)
        raise last


async def connect_then_read(
    attempt: Attempt,
    connect: Callable[[], Awaitable[C]],
    read: Callable[[C], Awaitable[T]],
    *,
    discard: Callable[[C], object] | None = None,
) -> T:
    """Return `await read(await connect())`, each within its own limit, so that the fault is known.

    `discard`: called with a connection that came after its limit. Raises `ConnectTimedOut`, `ConnectFailed` (with the
    `OSError` as its cause), `ReadTimedOut`, and whatever else the two raise. No task is left behind that obeys its
    cancel. Source: claims I4-082, I4-098.
    """
    seconds, whole = attempt.connect_limit()
    if seconds <= 0:
        raise ConnectTimedOut(whole_limit=False)
    ending = await own(connect, limit_s=seconds, grace_s=_GRACE_S)
    if ending.returned and (ending.outer is not None or ending.why == "limit") and discard is not None:
        discard(ending.value)  # type: ignore[arg-type]  # `returned`: it is a C
    if ending.outer is not None:
        raise ending.outer
    if ending.why == "limit":
        raise ConnectTimedOut(whole)
    if isinstance(ending.error, OSError | asyncio.CancelledError):
        raise ConnectFailed() from ending.error
    if ending.error is not None:
        raise ending.error
    return await answer_within(attempt, lambda: read(ending.value))  # type: ignore[arg-type]  # as above


async def answer_within(attempt: Attempt, make: Callable[[], Awaitable[T]]) -> T:
    """Return `await make()`, within the read limit of the attempt.

    Raises `ReadTimedOut` (with a value that came late), `ConnectionAbortedError` for a cancel that nobody here asked
    for, and what `make` raises.
    """
    seconds, whole = attempt.read_limit()
    if seconds <= 0:
        raise ReadTimedOut(whole_limit=False)
    ending = await own(make, limit_s=seconds, grace_s=_GRACE_S)
    if ending.outer is not None:
        raise ending.outer
    if ending.why == "limit":
        raise ReadTimedOut(whole, (ending.value,) if ending.returned else ()) from ending.error
    if isinstance(ending.error, asyncio.CancelledError):
        raise ConnectionAbortedError() from ending.error
    if ending.error is not None:
        raise ending.error
    return ending.value  # type: ignore[return-value]  # it returned


def may_retry(effect: Effect, fault: Fault, *, has_key: bool = False, not_done: bool = False) -> bool:
    """Return whether an action may be made again after a fault, as far as its effect is concerned.

    `has_key`: every attempt carries one business key. `not_done`: a status query under that key has said so.
    Source: claims C10-196, C10-197, X-25.
    """
    if fault == "permanent":
        return False
    if fault == "not_sent" or effect == "read" or (effect == "keyed_write" and has_key):
        return True
    return effect == "reversible_write" and has_key and not_done


def classify(error: Exception) -> Fault:
    """Return what an error says about the attempt, as `companions.basics.blame` knows it.

    `permanent`: it would go no better again. `not_sent`: nothing was done, for sure. `unknown`: time-outs, lost
    connections. A group is the worst of its leaves, in this order: permanent, unknown, not sent. A caller who knows the
    dependency's codes passes a function of its own.
    """
    if isinstance(error, ValueRejected):
        return error.fault
    found = blame(error)
    if not found.again:
        return "permanent"
    return "not_sent" if found.applied == "no" else "unknown"


_classify: Final = classify


def asked_wait(error: Exception) -> float:
    """Return the seconds that an error asks to be left alone, the most of its leaves; 0.0 if it asks for none.

    Its `retry_after`, or the `Retry-After` of an HTTP answer that is a number of seconds: a date is not read, since it
    would be compared with a clock that may be another one.
    """
    return max(map(_asked_wait, leaves(error)))


def _asked_wait(error: Exception) -> float:
    wait: Any = getattr(error, "retry_after", None)
    headers = getattr(error, "headers", None)
    if isinstance(headers, Message):
        header = str(headers.get("Retry-After", ""))
        wait = int(header) if header.isascii() and header.isdecimal() and len(header) < 10 else None
    return float(wait) if type(wait) in (int, float) and 0 <= wait < math.inf else 0.0


def backoff_ms(
    attempt: int, *, base_ms: int = 200, max_ms: int = 30_000, random: Callable[[], float] = chance.random
) -> int:
    """Return the whole milliseconds to wait after attempt `attempt`, counted from 0; never more than `max_ms`.

    base * 2 ** attempt, at most two thirds of `max_ms`, times a factor from 0.5 up to 1.5: so the spread is whole at
    the cap too, and the name of the cap is true (X-53). Attempt 0 waits 100 to 299 ms, attempt 1 200 to 599.
    Raises `RetryError`. Source: claims I4-072, I4-073.
    """
    _whole(attempt, "attempt", 0, 2**63 - 1)
    _whole(base_ms, "base_ms", 1, 2**31)
    _whole(max_ms, "max_ms", 1, 2**31)
    nominal: float = min(base_ms * 2 ** min(attempt, _MAX_DOUBLINGS), max_ms / JITTER[1])
    drawn = random()
    if not 0 <= drawn < 1:
        raise RetryError("random does not draw from 0 up to, not including, 1")
    wait = int(nominal * (JITTER[0] + drawn * (JITTER[1] - JITTER[0])))
    return min(wait, math.ceil(nominal * JITTER[1]) - 1)  # 0.5 + 0.999... may be rounded up to the open end


def _is_failure(error: Exception) -> bool:
    return blame(error).whose == "there"


def _is_key(key: object) -> bool:
    return key is None or (type(key) is str and 1 <= len(key) <= MAX_KEY)
