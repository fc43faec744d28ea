"""One effect for one intent: a durable record with a short fenced lease and a long-lived result.

A caller may repeat a request for many reasons: a lost answer, a restart, a model that asks twice.
The record of the *intent* decides whether the effect is made, replayed, waited for or refused.

The words
    intent       what somebody wants to happen once: `(namespace, owner, key)` names it
    key          given by the caller, or a hash of declared stable fields; never of a transmission
    fingerprint  hash of all arguments; the same key with another one is `key_conflict`
    lease        how long one holder may be at work: seconds, renewed, apart from the result's life
    fence        number of a claim; it rises over the whole file and never comes back
    repeatable   a second run does no harm: a read, or a tool that hands the key downstream
    lifetime     how long a result is replayed: at least twice the time in which anybody may retry

The states
    absent        no record, or one whose result has outlived its lifetime (judged when it is read)
    in_progress   a holder is at work until `lease_until`
    completed     the effect was made; its value is stored, or a mark says why it could not be
    failed_final  the effect was tried and refused for good; the refusal is replayed
    unknown       the effect may have been made: a blind second run is refused until it is settled

                  claim                   complete
        absent ----------> in_progress -------------> completed <-----+
          ^  ^                |  |  |    fail                         |
          |  +--- release ----+  |  +---------------> failed_final <--+
          |   surely not made    |                                    |
          |                      | doubt, or the lease ended          |
          |                      v                                    |
          +---- not_done ----- unknown ------ done / failed ----------+

What holds
    I1  of any number of callers with one intent at most one is at work
    I2  an effect that was made is never made again because saving its result failed
    I3  a record moves forward only; it returns to absent only when the effect was surely not made, or
        when its result has outlived its lifetime
    I4  the end of a lease proves nothing: a repeatable call is taken over with a higher fence,
        any other becomes `unknown`; and none is longer than a lease from now, whatever the clock once was
    I5  a holder whose fence is not the record's fence changes nothing
    I6  presence is the state, never the truth of the value: None, 0, "" and [] are replayed
    I7  the sweeper removes outlived results and nothing else
    I8  a call that is not held up costs two durable commits: the claim and the result

At a boundary one side wins: `now >= lease_until` is over, `now >= expires_at` is outlived. A holder may
still complete after its lease if nobody came in between: what it knows is better than a doubt.

What it does not do. It gives no exactly-once: one effect per intent holds for effects in *this*
database, in one transaction (`run_in`). An effect elsewhere is made at least once or left in doubt,
and only the other side's own key, or a status query, makes it one. A probe must answer for good:
"not done" has to mean that it will not be done later either. One clock judges all leases of a file.

Names of the document: `_key` is `document_key`, its in-memory marker is the state `in_progress`.
Source: claims I4-002, I4-004 to I4-006, I4-035 to I4-051, I4-095, I4-097, T6-028 to T6-034 with the
readings X-05, X-07 to X-10, X-20, X-26, X-41, X-48.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from chapter10.canonical import CodedError
from chapter10.companions.basics.blame import may_be_done
from chapter10.companions.basics.locks import at_once, off_the_loop
from chapter10.companions.basics.tasks import leaves
from chapter10.companions.effects.intent_records import (
    APPLICATION_ID,
    DEFAULT_TTL_S,
    LEASE_S,
    MAX_LIMIT,
    MAX_RESULT_BYTES,
    STATES,
    TABLES,
    Claim,
    IntentRecords,
    LeaseLost,
    Record,
    State,
    Verdict,
)
from chapter10.companions.effects.intents import (
    MAX_INTENT_BYTES,
    MAX_SECONDS,
    MAX_TEXT,
    PAYMENT,
    QUERY,
    SHARED_OWNER,
    IdempotencyError,
    Intent,
    Lifetime,
    document_key,
    intent_key,
    make_intent,
    number,
    refuse,
    seconds,
    ttl_for,
)
from chapter10.companions.interruption.budget import Outcome
from chapter10.database import BUSY_SECONDS, Database, StoreError

__all__ = [
    "APPLICATION_ID",
    "DEFAULT_TTL_S",
    "LEASE_S",
    "MAX_INTENT_BYTES",
    "MAX_LIMIT",
    "MAX_RESULT_BYTES",
    "MAX_SECONDS",
    "MAX_TEXT",
    "PAYMENT",
    "POLL_S",
    "QUERY",
    "RUN_LIMIT_S",
    "SHARED_OWNER",
    "STATES",
    "TABLES",
    "Claim",
    "CompletedWithoutValue",
    "FailedFinal",
    "IdempotencyError",
    "IdempotencyStore",
    "InProgressError",
    "Intent",
    "LeaseLost",
    "Lifetime",
    "NotExecuted",
    "NotRecorded",
    "OutcomeUnknown",
    "Record",
    "State",
    "Timer",
    "Verdict",
    "document_key",
    "intent_key",
    "make_intent",
    "ttl_for",
]

T = TypeVar("T")

RUN_LIMIT_S: Final = 3_600
"""Seconds after which a running call is no longer renewed, so that no holder lives for ever."""
POLL_S: Final = 0.1
"""Seconds between two looks of a caller that waits for another one's result."""


class InProgressError(IdempotencyError):
    """Raised when another caller is at work on the intent (`in_progress`).

    `key`: the intent's key. `retry_after`: seconds until the lease ends, unless it is renewed.
    """

    def __init__(self, key: str, retry_after: float = 0.0) -> None:
        super().__init__("in_progress")
        self.key = key
        self.retry_after = retry_after


class OutcomeUnknown(IdempotencyError):
    """Raised when the effect may have been made and nobody knows (`outcome_unknown`); do not repeat it.

    `key` and `fence` are what `settle` wants once the other side has been asked.
    """

    def __init__(self, key: str, fence: int) -> None:
        super().__init__("outcome_unknown")
        self.key = key
        self.fence = fence


class CompletedWithoutValue(IdempotencyError):
    """Raised instead of a replay when the effect was made but its value could not be stored.

    The code is `completed_without_value`; `reason` says why the value was not stored.
    """


class NotRecorded(CodedError, RuntimeError):
    """Raised when the effect was made and the machine failed to save that (`not_recorded`).

    `value` is what the call returned; `__cause__` is the `StoreError`. The record stays in progress
    and turns `unknown` with the end of its lease: the effect is not made again.
    """

    def __init__(self, value: object) -> None:
        super().__init__("not_recorded")
        self.value = value


class NotExecuted(CodedError, RuntimeError):
    """Raised by an operation that surely did nothing (a check that failed before the call): the key is free again."""


class FailedFinal(CodedError, RuntimeError):
    """Raised by an operation that was refused for good (a declined card), and on every repeat.

    `code` and `detail` (a JSON value) are stored and replayed.
    """

    def __init__(self, code: str, detail: object = None) -> None:
        super().__init__(code)
        self.detail = detail


class Timer(Protocol):
    """What a scheduled callback gives back."""

    def cancel(self) -> object:
        """Take the callback off the schedule."""


class IdempotencyStore(IntentRecords):
    """Whole calls over the records of intents; see the module for what it promises.

    `place`, `lifetimes`, `holder`, `clock`: as `IntentRecords` has them. `sleep`, `call_later` and `poll_s` belong to
    `execute_once`. `not_executed`: errors that show that nothing was done. `execute_once` waits for another process's
    lock off the event loop and within `remaining`; a step alone blocks its thread for as long as that lasts.

    Raises `IdempotencyError` (`bad_input`), `StoreError`; every method may raise `StoreError`.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Database = ":memory:",
        *,
        lifetimes: Mapping[str, Lifetime] | None = None,
        holder: str = "local",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        call_later: Callable[[float, Callable[[], None]], Timer] | None = None,
        poll_s: float = POLL_S,
        not_executed: tuple[type[BaseException], ...] = (),
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._sleep, self._call_later = sleep, call_later
        self._poll_s = seconds(poll_s, "poll_s", 0.001)
        self._not_executed: tuple[type[BaseException], ...] = (NotExecuted, *not_executed)
        super().__init__(place, lifetimes=lifetimes, holder=holder, clock=clock, busy_seconds=busy_seconds)

    async def execute_once(
        self,
        namespace: str,
        intent: Mapping[str, Any],
        fn: Callable[[], Awaitable[Any]],
        ttl_s: int = DEFAULT_TTL_S,
        *,
        owner: str = SHARED_OWNER,
        key: str | None = None,
        fields: Sequence[str] | None = None,
        repeatable: bool = False,
        lease_s: float = LEASE_S,
        wait_s: float = 0,
        remaining: Callable[[], float] | None = None,
        probe: Callable[[], Awaitable[Verdict]] | None = None,
    ) -> Any:
        """Run `fn` for the intent, or replay what its first run came to; return the value.

        `intent`: all arguments, named by `key` or `fields` as in `make_intent`. `ttl_s`: how long the
        value is replayed from its completion on; a declared lifetime of the namespace is never
        exceeded. `repeatable`: a second run does no harm. `lease_s`: renewed at thirds while `fn`
        runs, for `RUN_LIMIT_S`. `wait_s`: how long to wait for another caller's result. `remaining`:
        seconds left of the caller's budget; 0 is exhausted and refused before the claim, None is no
        limit. `probe`: asked once, if the outcome is unknown, before anything runs.

        How `fn` ends decides: a value is stored; `FailedFinal` is stored; an error that proves that nothing
        was done frees the key (`NotExecuted`, one of `not_executed`, or what `companions.basics.blame` knows as
        such: no connection, an open circuit, no time; of a group every leaf); every other end, cancellation
        included, frees the key of a repeatable call and makes any other `unknown`. So `fn` makes one effect:
        after a first one, a second one's refused connection proves nothing. The error comes out as it is.

        Raises `IdempotencyError` (its codes), `InProgressError`, `OutcomeUnknown`, `FailedFinal`,
        `CompletedWithoutValue`, `LeaseLost`, `NotRecorded`, and what `fn` or `probe` raises.
        Source: I4-042 to I4-051 with X-09, X-10.
        """
        what = make_intent(namespace, intent, owner=owner, fields=fields, key=key)
        left = seconds(wait_s, "wait_s", 0)
        _refuse_exhausted(remaining)
        claim = partial(self.claim, what, ttl_s=ttl_s, lease_s=lease_s, repeatable=repeatable)
        found = await self._off_the_loop(claim, remaining)
        if isinstance(found, Record) and found.state == "unknown" and probe is not None:
            settle = partial(self._settle_if_it_stands, what, await probe(), found.fence)
            await self._off_the_loop(settle, remaining)
            _refuse_exhausted(remaining)
            found = await self._off_the_loop(claim, remaining)
        while isinstance(found, Record) and found.state == "in_progress" and left > 0:
            pause = min(self._poll_s, left)
            left -= pause  # what was asked for counts, so that a clock that stands still ends the loop too
            await self._sleep(pause)
            _refuse_exhausted(remaining)
            if self.look(what).retry_after == 0:  # nobody is at work any more
                found = await self._off_the_loop(claim, remaining)
        if isinstance(found, Record):
            return _replay(found)
        return await self._perform(found, fn, lease_s)

    def run_once(
        self,
        key: str,
        operation: Callable[[], dict[str, Any]],
        *,
        namespace: str = "run_once",
        owner: str = SHARED_OWNER,
        arguments: Mapping[str, Any] | None = None,
        ttl_s: int = DEFAULT_TTL_S,
        repeatable: bool = False,
        lease_s: float = LEASE_S,
    ) -> dict[str, Any]:
        """Run an operation that answers `{"ok": …}`, or return the stored answer of its first success.

        A true `ok` is stored. A false one says that nothing was done and frees the key, unless its
        `error` is `outcome_unknown`, which blocks it. An exception frees the key of a repeatable
        operation (a read) and leaves any other unknown. `arguments`, if given, are compared.
        The lease is not renewed here: choose `lease_s` above the operation's own timeout.

        Raises as `execute_once`; `bad_input` for an answer that is no dict (outcome unknown then).
        Source: T6-030 to T6-032 with X-09, X-41.
        """
        what = make_intent(namespace, {} if arguments is None else arguments, owner=owner, key=key)
        found = self.claim(what, ttl_s=ttl_s, lease_s=lease_s, repeatable=repeatable)
        if isinstance(found, Record):
            stored: dict[str, Any] = _replay(found)
            return stored
        try:
            answer = operation()
            if type(answer) is not dict:
                refuse("the operation did not answer with a dict")
        except BaseException as error:
            self._give_back(found, error)
            raise
        if answer.get("ok"):
            self._save(found, answer)
        elif answer.get("error") == "outcome_unknown":
            self.doubt(found)
        else:
            self.release(found)
        return answer

    def run_in(
        self,
        db: sqlite3.Connection,
        intent: Intent,
        operation: Callable[[sqlite3.Connection], Any],
        *,
        ttl_s: int = DEFAULT_TTL_S,
    ) -> Any:
        """Make an effect *in this database* and its record in the caller's open transaction.

        If the caller commits, effect and record are both there; if not, neither is. This is the one
        place where an effect happens once and no outcome is ever unknown. Let every error leave the
        transaction, so that it is rolled back. An operation that wants to be awaited is refused.

        Raises as `execute_once`; `no_transaction` when none is open. Source: I4-004, T6-034.
        """
        found = self.claim_in(db, intent, ttl_s=ttl_s)
        if isinstance(found, Record):
            return _replay(found)
        value = operation(db)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            refuse("an operation inside a transaction is not awaited")
        self.complete_in(db, found, value)
        return value

    # Within --------------------------------------------------------------------------------------

    async def _perform(self, claim: Claim, fn: Callable[[], Awaitable[Any]], lease_s: float) -> Any:
        started = False
        heartbeat = _Heartbeat(self, claim, lease_s, self._call_later)
        try:
            heartbeat.start()
            started = True
            value = await fn()
            if type(value) is Outcome:  # with every failure inside it a value to be stored
                if value.kind == "not_started":
                    value.get()
                refuse("an outcome is no value; give what `get()` says")
        except BaseException as error:
            with suppress(StoreError, IdempotencyError):  # it stays in progress; the end of its lease says the rest
                await self._off_the_loop(partial(self._end_by, claim, error, started), shielded=True)
            raise
        finally:
            heartbeat.stop()
        # From here on the effect is a fact; no cancel comes between it and its record.
        try:
            await self._off_the_loop(partial(self.complete, claim, value), shielded=True)
        except StoreError as error:
            raise NotRecorded(value) from error
        return value

    async def _off_the_loop(
        self, step: Callable[[], T], remaining: Callable[[], float] | None = None, *, shielded: bool = False
    ) -> T:
        return await off_the_loop(self._database, step, left=remaining, sleep=self._sleep, shielded=shielded)

    def _save(self, claim: Claim, value: Any) -> None:
        try:
            self.complete(claim, value)
        except StoreError as error:
            raise NotRecorded(value) from error

    def _give_back(self, claim: Claim, error: BaseException) -> None:
        with suppress(StoreError, IdempotencyError):  # it stays in progress; the end of its lease says the rest
            self._end_by(claim, error, started=True)

    def _end_by(self, claim: Claim, error: BaseException, started: bool) -> None:
        """Record how a call ended that gave no value; the caller's error is the one that comes out."""
        if isinstance(error, FailedFinal):
            self.fail(claim, error.code, error.detail)
        elif not started or claim.repeatable or self._proves_nothing_was_done(error):
            self.release(claim)
        else:
            self.doubt(claim)

    def _proves_nothing_was_done(self, error: BaseException) -> bool:
        return not any(may_be_done(leaf) and not isinstance(leaf, self._not_executed) for leaf in leaves(error))

    def _settle_if_it_stands(self, intent: Intent, verdict: Verdict, fence: int) -> None:
        try:
            self.settle(intent, verdict, fence=fence)
        except IdempotencyError as error:
            if error.code != "not_unknown":  # somebody else settled it first: read on
                raise


class _Heartbeat:
    """Renews a lease at thirds of its length from the event loop's timer, until it is stopped or lost.

    A timer and not a task: there is nothing to await, so no cancellation can come between the effect
    and its record.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        claim: Claim,
        lease_s: float,
        call_later: Callable[[float, Callable[[], None]], Timer] | None,
    ) -> None:
        self._store, self._claim, self._lease_s = store, claim, lease_s
        self._call_later = call_later
        self._beats_left = math.ceil(RUN_LIMIT_S * 3 / lease_s)
        self._timer: Timer | None = None

    def start(self) -> None:
        self._schedule(self._lease_s / 3)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, after: float) -> None:
        later = self._call_later or asyncio.get_running_loop().call_later
        self._timer = later(after, self._beat)

    def _beat(self) -> None:
        self._beats_left -= 1
        after = self._lease_s / 3
        try:
            renew = partial(self._store.renew, self._claim, self._lease_s)
            self._claim = at_once(self._store._database, renew)
        except LeaseLost:
            return
        except StoreError:
            after = self._lease_s / 12  # until the lease ends, several more beats fit in
        if self._beats_left > 0:
            self._schedule(after)


def _replay(record: Record) -> Any:
    """Return the stored value, or raise what the state calls for."""
    if record.state == "in_progress":
        raise InProgressError(record.key, record.retry_after)
    if record.state == "unknown":
        raise OutcomeUnknown(record.key, record.fence)
    if record.state == "failed_final":
        assert record.mark is not None  # failure_has_code
        raise FailedFinal(record.mark, record.value)
    if record.mark is not None:
        raise CompletedWithoutValue("completed_without_value", record.mark)
    return record.value


def _refuse_exhausted(remaining: Callable[[], float] | None) -> None:
    if remaining is not None and number(remaining(), "remaining") <= 0:
        raise IdempotencyError("budget_exhausted")
