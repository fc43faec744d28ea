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

                  claim                  complete
        absent ----------> in_progress ------------> completed
          ^  ^               |   |  \\     fail          ^
          |  +--- release ---+   |   +-----> failed_final
          |   surely not made    | doubt, or the lease ended         ^
          |                      v                                   |
          +---- not_done ---- unknown ---- done / failed ------------+

What holds
    I1  of any number of callers with one intent at most one is at work
    I2  an effect that was made is never made again because saving its result failed
    I3  a record moves forward only; it returns to absent only when the effect was surely not made, or
        when its result has outlived its lifetime
    I4  the end of a lease proves nothing: a repeatable call is taken over with a higher fence,
        any other becomes `unknown`
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
import hashlib
import inspect
import json
import math
import os
import sqlite3
import time
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Protocol

from chapter10.canonical import CanonicalError, CodedError, canonical, text_digest
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

State = Literal["absent", "in_progress", "completed", "failed_final", "unknown"]
STATES: Final = ("absent", "in_progress", "completed", "failed_final", "unknown")

DEFAULT_TTL_S: Final = 86_400
"""Seconds that a result is replayed after it was stored, where nothing else is said."""
LEASE_S: Final = 30
"""Seconds of a lease; more than a tool's timeout and its grace together, or renewed."""
RUN_LIMIT_S: Final = 3_600
"""Seconds after which a running call is no longer renewed, so that no holder lives for ever."""
POLL_S: Final = 0.1
"""Seconds between two looks of a caller that waits for another one's result."""
MAX_SECONDS: Final = 10 * 366 * 86_400
"""The longest lifetime, lease or wait."""
MAX_TEXT: Final = 200
"""Characters of a namespace, an owner, a key, a holder or an error code; at least one."""
MAX_INTENT_BYTES: Final = 64 * 1024
"""Bytes of the canonical form of all arguments."""
MAX_RESULT_BYTES: Final = 1024 * 1024
"""Bytes of the canonical form of a stored value; a larger one is completed without its value."""
MAX_LIMIT: Final = 1000
"""The most rows that one call returns or removes."""
SHARED_OWNER: Final = "-"
"""The owner of a call that names none."""

APPLICATION_ID: Final = 0x43483149  # "CH1I"
_INTENT_VERSION: Final = "chapter10.intent.1"

_TRACE_NAMES: Final = {"traceid", "requestid", "xrequestid", "spanid", "parentspanid", "traceparent", "tracestate"}
_TIME_NAMES: Final = {"timestamp", "ts", "now", "createdat", "updatedat", "sentat", "requestedat"}
_SEND_NAMES: Final = {"correlationid", "messageid", "attempt", "retry", "retrycount", "nonce"}
_UNSTABLE: Final = frozenset(_TRACE_NAMES | _TIME_NAMES | _SEND_NAMES)
"""Names, without case and separators, of what changes from one transmission to the next."""

TABLES: Final = """
    CREATE TABLE idempotency (
        namespace TEXT NOT NULL,
        owner TEXT NOT NULL,
        key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,      -- of all arguments, 64 hex
        state TEXT NOT NULL,
        fence INTEGER NOT NULL,         -- of the latest claim
        holder TEXT NOT NULL,           -- who has the claim, for people
        repeatable INTEGER NOT NULL,    -- 1: a second run does no harm
        lease_until INTEGER,            -- milliseconds; while in progress
        ttl_ms INTEGER NOT NULL,        -- how long the result will live
        begun_at INTEGER NOT NULL,      -- milliseconds, of the latest claim
        expires_at INTEGER,             -- milliseconds; of a result
        result TEXT,                    -- canonical JSON of the value, or of the refusal's detail
        mark TEXT,                      -- completed: why there is no value; failed_final: the code
        CONSTRAINT state_is_known CHECK (state IN ('in_progress', 'completed', 'failed_final', 'unknown')),
        CONSTRAINT lease_while_in_progress CHECK ((lease_until IS NOT NULL) = (state = 'in_progress')),
        CONSTRAINT only_results_expire CHECK ((expires_at IS NOT NULL) = (state IN ('completed', 'failed_final'))),
        CONSTRAINT value_or_mark CHECK (state <> 'completed' OR (result IS NULL) = (mark IS NOT NULL)),
        CONSTRAINT failure_has_code CHECK (state <> 'failed_final' OR mark IS NOT NULL),
        CONSTRAINT one_record_per_intent PRIMARY KEY (namespace, owner, key)
    );
    CREATE INDEX idempotency_results ON idempotency (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX idempotency_open ON idempotency (begun_at) WHERE state IN ('in_progress', 'unknown');
    CREATE TABLE idempotency_fence (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        last INTEGER NOT NULL           -- a deleted record takes no number back with it
    );
    INSERT INTO idempotency_fence VALUES (1, 0);
"""
"""One migration for `Database`. Put it among a business database's own, and `run_in` shares its transactions."""

_FIND: Final = (
    "SELECT state, fence, fingerprint, holder, repeatable, lease_until, begun_at, expires_at, result, mark"
    " FROM idempotency WHERE namespace = ? AND owner = ? AND key = ?"
)
_TAKE: Final = (
    "INSERT OR REPLACE INTO idempotency (namespace, owner, key, fingerprint, state, fence, holder, repeatable,"
    " lease_until, ttl_ms, begun_at) VALUES (?, ?, ?, ?, 'in_progress', ?, ?, ?, ?, ?, ?)"
)
_IS_OURS: Final = "namespace = ? AND owner = ? AND key = ? AND fence = ?"
_IS_OPEN: Final = "state IN ('in_progress', 'unknown')"
_END: Final = (
    "UPDATE idempotency SET state = ?, lease_until = NULL, expires_at = ? + ttl_ms, result = ?, mark = ?"
    f" WHERE {_IS_OURS} AND {_IS_OPEN}"
)
_DOUBT: Final = f"UPDATE idempotency SET state = 'unknown', lease_until = NULL WHERE {_IS_OURS} AND {_IS_OPEN}"
_RELEASE: Final = f"DELETE FROM idempotency WHERE {_IS_OURS} AND {_IS_OPEN}"
_RENEW: Final = (
    f"UPDATE idempotency SET lease_until = max(lease_until, ?) WHERE {_IS_OURS}"
    " AND state = 'in_progress' AND lease_until > ?"
)


class IdempotencyError(CodedError, ValueError):
    """Raised when a call cannot be granted; nothing was run and nothing was changed.

    `bad_input`, `unstable_field` (a field of one transmission, such as `trace_id`, in an intent),
    `ttl_too_short` (below twice the retry window), `key_conflict` (the key stands for other
    arguments), `budget_exhausted` (no time is left), `no_transaction`, `not_unknown` (there is nothing
    to settle, or no longer what was looked at). `reason` says more in a few words.
    """

    reason: str | None

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.reason = reason


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


class LeaseLost(IdempotencyError):
    """Raised when a holder's right to write has ended (`lease_lost`); nothing was changed.

    `value` is what the call returned, if it had ended.
    """

    def __init__(self, value: object = None) -> None:
        super().__init__("lease_lost")
        self.value = value


class NotRecorded(CodedError, RuntimeError):
    """Raised when the effect was made and the machine failed to save that (`not_recorded`).

    `value` is what the call returned; `__cause__` is the `StoreError`. The record stays in progress
    and turns `unknown` with the end of its lease: the effect is not made again.
    """

    def __init__(self, value: object) -> None:
        super().__init__("not_recorded")
        self.value = value


class NotExecuted(CodedError, RuntimeError):
    """Raised by an operation that surely did nothing (a refused connection): the key is free again."""


class FailedFinal(CodedError, RuntimeError):
    """Raised by an operation that was refused for good (a declined card), and on every repeat.

    `code` and `detail` (a JSON value) are stored and replayed.
    """

    def __init__(self, code: str, detail: object = None) -> None:
        super().__init__(code)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to happen once; made by `make_intent`. Four texts."""

    namespace: str
    owner: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make an effect: handed out by `claim`, handed back to end it."""

    intent: Intent
    fence: int
    lease_until: float
    """Seconds on the store's clock."""
    repeatable: bool


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of an intent. Times are seconds on the store's clock."""

    state: State
    key: str
    fence: int = 0
    holder: str | None = None
    retry_after: float = 0.0
    """Seconds until the lease ends; 0 when nobody is at work."""
    expires_at: float | None = None
    value: Any = None
    """The stored value, or the detail of a final failure."""
    mark: str | None = None
    """Why there is no value, or the code of a final failure."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a status query or a person found out.

    `done` with the value of the effect, `failed` with the code as value, `not_done` (now and for
    ever), or `unknown` still.
    """

    kind: Literal["done", "failed", "not_done", "unknown"]
    value: Any = None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long results of a namespace live, checked against how long somebody may retry.

    `retry_window_s` and `ttl_s` in whole seconds, `ttl_s >= 2 * retry_window_s` (I4-038, X-48).
    Raises `IdempotencyError`: `ttl_too_short`, `bad_input`.
    """

    retry_window_s: int
    ttl_s: int

    def __post_init__(self) -> None:
        _whole(self.ttl_s, "ttl_s", 1, MAX_SECONDS)
        if self.ttl_s < ttl_for(self.retry_window_s):
            raise IdempotencyError("ttl_too_short", "ttl_s is below twice the retry window")


def ttl_for(retry_window_s: int) -> int:
    """Return the shortest lifetime of a result, in seconds: twice the longest retry window (I4-038)."""
    return 2 * _whole(retry_window_s, "retry_window_s", 1, MAX_SECONDS)


class Timer(Protocol):
    """What a scheduled callback gives back."""

    def cancel(self) -> object:
        """Take the callback off the schedule."""


# Keys ----------------------------------------------------------------------------------------


def intent_key(namespace: str, fields: Mapping[str, Any]) -> str:
    """Return the key of an intent: 64 hex digits of SHA-256 over its stable business fields.

    `fields`: a dict of null, bool, int, str, list, dict. Floats are refused (1 and 1.0 are equal in
    Python and differ in JSON: count in the smallest unit), text is brought to NFC, and a field that
    belongs to one transmission (`trace_id`, `request_id`, a time stamp) is `unstable_field` at any depth.
    The hash covers a version tag, the namespace and each field by name, so that no two ways of cutting
    the same text meet. No time window enters it: the lifetime of the record is the window (I4-036).

    Raises `IdempotencyError`: `bad_input`, `unstable_field`. Source: I4-035, I4-040, I4-041, T6-028, T6-033.
    """
    _text(namespace, "namespace")
    return text_digest(canonical([_INTENT_VERSION, namespace, _stable_fields(fields)]))


def document_key(namespace: str, intent: Mapping[str, Any]) -> str:
    """Return the key in the document's form, `idem:{namespace}:{32 hex}` (I4-040).

    The same bytes as there: JSON with sorted keys, `,` and `:`, non-ASCII escaped. What `intent_key`
    refuses is refused here, and a `:` in the namespace too, since two namespaces could meet. The
    document's third parameter, the lifetime, is not here: it belongs to the record and not to the name.
    Use it to find what another system has stored; new records use the full hash.

    Raises `IdempotencyError`: `bad_input`, `unstable_field`.
    """
    if ":" in _text(namespace, "namespace"):
        _refuse("a namespace of this form has no colon")
    text = json.dumps(_stable_fields(intent), sort_keys=True, separators=(",", ":"))
    return f"idem:{namespace}:{hashlib.sha256(text.encode('ascii')).hexdigest()[:32]}"


def make_intent(
    namespace: str,
    arguments: Mapping[str, Any],
    *,
    owner: str = SHARED_OWNER,
    fields: Sequence[str] | None = None,
    key: str | None = None,
) -> Intent:
    """Name what is to happen once.

    `arguments`: everything that the call is about; all of it enters the fingerprint. `key`: the
    caller's own name of the intent, such as an order number. Without it the key is `intent_key` over
    the `fields` (names among the arguments; None: all). Only with a key or with fields can the same
    intent with other arguments be seen as the conflict that it is (X-07, X-08).

    Raises `IdempotencyError`: `bad_input`, `unstable_field`.
    """
    _text(namespace, "namespace")
    _text(owner, "owner")
    stable = _stable_fields(arguments)
    fingerprint = text_digest(canonical([_INTENT_VERSION, stable]))
    if key is not None:
        if fields is not None:
            _refuse("a key and fields are two ways of naming an intent")
        return Intent(namespace, owner, _text(key, "key"), fingerprint)
    return Intent(namespace, owner, intent_key(namespace, _chosen(stable, fields)), fingerprint)


class IdempotencyStore:
    """Records of intents in one SQLite file; see the module for what it promises.

    `place`: a path (`:memory:` by default, which a restart forgets), or a `Database` that has `TABLES`
    among its migrations. `lifetimes`: by namespace; a namespace that is not named may retry for
    43,200 s. `holder`: who is at work, for people. `clock`: seconds, shared by all users of the file.
    `sleep` and `call_later` belong to `execute_once`. `not_executed`: errors that show that nothing
    was done. A store belongs to the thread that made it; any number of stores may share a file. Each
    step blocks that thread, and an event loop on it, for one commit: milliseconds.

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
        self._lifetimes = dict(lifetimes or {})
        for name, life in self._lifetimes.items():
            if type(life) is not Lifetime:
                _refuse(f"the lifetime of {_text(name, 'namespace')} is not a Lifetime")
        self._holder = _text(holder, "holder")
        self._clock, self._sleep, self._call_later = clock, sleep, call_later
        self._poll_s = _seconds(poll_s, "poll_s", 0.001)
        self._not_executed: tuple[type[BaseException], ...] = (NotExecuted, *not_executed)
        self._owned = not isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(place, application_id=APPLICATION_ID, migrations=(TABLES,), busy_seconds=busy_seconds)
        self._database = place
        self.db = self._database.connection

    def __enter__(self) -> IdempotencyStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file if this store opened it; a second close does nothing."""
        if self._owned:
            self._database.close()

    # Whole calls -----------------------------------------------------------------------------

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

        How `fn` ends decides: a value is stored; `FailedFinal` is stored; `NotExecuted` (or one of
        `not_executed`) frees the key; every other end, cancellation included, frees the key of a
        repeatable call and makes any other `unknown`. The error always comes out as it is.

        Raises `IdempotencyError` (its codes), `InProgressError`, `OutcomeUnknown`, `FailedFinal`,
        `CompletedWithoutValue`, `LeaseLost`, `NotRecorded`, and what `fn` or `probe` raises.
        Source: I4-042 to I4-051 with X-09, X-10.
        """
        what = make_intent(namespace, intent, owner=owner, fields=fields, key=key)
        left = _seconds(wait_s, "wait_s", 0)
        _refuse_exhausted(remaining)
        found = self.claim(what, ttl_s=ttl_s, lease_s=lease_s, repeatable=repeatable)
        if isinstance(found, Record) and found.state == "unknown" and probe is not None:
            self._settle_if_it_stands(what, await probe(), found.fence)
            _refuse_exhausted(remaining)
            found = self.claim(what, ttl_s=ttl_s, lease_s=lease_s, repeatable=repeatable)
        while isinstance(found, Record) and found.state == "in_progress" and left > 0:
            pause = min(self._poll_s, left)
            left -= pause  # what was asked for counts, so that a clock that stands still ends the loop too
            await self._sleep(pause)
            _refuse_exhausted(remaining)
            seen = self.look(what)
            if seen.state != "in_progress" or seen.retry_after == 0:
                found = self.claim(what, ttl_s=ttl_s, lease_s=lease_s, repeatable=repeatable)
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
        started = False
        try:
            started = True
            answer = operation()
            if type(answer) is not dict:
                _refuse("the operation did not answer with a dict")
        except BaseException as error:
            self._give_back(found, error, started)
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
            _refuse("an operation inside a transaction is not awaited")
        self.complete_in(db, found, value)
        return value

    # One step at a time ----------------------------------------------------------------------
    # Each step exists twice: `step_in(db, …)` inside the caller's transaction, `step(…)` in one of
    # its own.

    def claim(
        self, intent: Intent, *, ttl_s: int = DEFAULT_TTL_S, lease_s: float = LEASE_S, repeatable: bool = False
    ) -> Claim | Record:
        """Take the right to make the effect, or return what is known already. One commit.

        A record whose lease is over is taken over if both its holder and this caller called it
        repeatable, and becomes `unknown` otherwise.

        Raises `IdempotencyError`: `key_conflict`, `ttl_too_short`, `bad_input`.
        """
        with self._database.write() as db:
            return self.claim_in(db, intent, ttl_s=ttl_s, lease_s=lease_s, repeatable=repeatable)

    def claim_in(
        self,
        db: sqlite3.Connection,
        intent: Intent,
        *,
        ttl_s: int = DEFAULT_TTL_S,
        lease_s: float = LEASE_S,
        repeatable: bool = False,
    ) -> Claim | Record:
        """As `claim`, inside the caller's open transaction; also `no_transaction`."""
        _need_transaction(db)
        ttl = self._ttl(intent.namespace, ttl_s)
        lease = _seconds(lease_s, "lease_s", 0.001)
        if type(repeatable) is not bool:
            _refuse("repeatable is not True or False")
        now = self._now_ms()
        row = db.execute(_FIND, (intent.namespace, intent.owner, intent.key)).fetchone()
        if row is None or _has_outlived(row, now):
            return self._take(db, intent, now, ttl, lease, repeatable)
        if row[2] != intent.fingerprint:
            raise IdempotencyError("key_conflict")
        if row[0] == "in_progress" and now >= row[5]:
            if row[4] and repeatable:
                return self._take(db, intent, now, ttl, lease, repeatable)
            db.execute(_DOUBT, (*_name(intent), row[1]))
            return Record("unknown", intent.key, row[1], row[3])
        return _record(intent.key, row, now)

    def renew(self, claim: Claim, lease_s: float = LEASE_S) -> Claim:
        """Let a live lease end `lease_s` seconds from now, never earlier than it would. One commit.

        Raises `LeaseLost` when the lease is over or the claim is not the record's.
        """
        lease = _seconds(lease_s, "lease_s", 0.001)
        with self._database.write() as db:
            now = self._now_ms()
            until = now + _ms(lease)
            if db.execute(_RENEW, (until, *_name(claim.intent), claim.fence, now)).rowcount != 1:
                raise LeaseLost
        return Claim(claim.intent, claim.fence, max(until / 1000, claim.lease_until), claim.repeatable)

    def complete(self, claim: Claim, value: Any) -> None:
        """Record that the effect was made, with its value if it can be stored. One commit.

        A value that is not JSON or exceeds `MAX_RESULT_BYTES` is left out and the record says so: the
        effect was made all the same (I2). Raises `LeaseLost`.
        """
        with self._database.write() as db:
            self.complete_in(db, claim, value)

    def complete_in(self, db: sqlite3.Connection, claim: Claim, value: Any) -> None:
        """As `complete`, inside the caller's open transaction; also `no_transaction`."""
        text, mark = _encode(value)
        self._end(db, claim.intent, claim.fence, "completed", text, mark, value)

    def fail(self, claim: Claim, code: str, detail: Any = None) -> None:
        """Record that the effect was refused for good. One commit. Raises `LeaseLost`, `bad_input`."""
        with self._database.write() as db:
            self.fail_in(db, claim, code, detail)

    def fail_in(self, db: sqlite3.Connection, claim: Claim, code: str, detail: Any = None) -> None:
        """As `fail`, inside the caller's open transaction; also `no_transaction`."""
        self._end(db, claim.intent, claim.fence, "failed_final", _encode(detail)[0], _text(code, "code"))

    def release(self, claim: Claim) -> None:
        """Free the key of an effect that was surely not made. One commit. Raises `LeaseLost`."""
        with self._database.write() as db:
            self.release_in(db, claim)

    def release_in(self, db: sqlite3.Connection, claim: Claim) -> None:
        """As `release`, inside the caller's open transaction; also `no_transaction`."""
        _guarded(db, _RELEASE, (*_name(claim.intent), claim.fence))

    def doubt(self, claim: Claim) -> None:
        """Record that nobody knows whether the effect was made. One commit. Raises `LeaseLost`."""
        with self._database.write() as db:
            self.doubt_in(db, claim)

    def doubt_in(self, db: sqlite3.Connection, claim: Claim) -> None:
        """As `doubt`, inside the caller's open transaction; also `no_transaction`."""
        _guarded(db, _DOUBT, (*_name(claim.intent), claim.fence))

    def settle(self, intent: Intent, verdict: Verdict, *, fence: int) -> None:
        """End a doubt by what the other side or a person says; `fence` is what was looked at.

        `done` completes, `failed` fails for good, `not_done` frees the key, `unknown` changes nothing.
        A dead lease that nobody has touched since counts as the doubt that it is. One commit.

        Raises `IdempotencyError`: `not_unknown` (settled already, or another claim), `bad_input`.
        """
        if type(verdict) is not Verdict or verdict.kind not in ("done", "failed", "not_done", "unknown"):
            _refuse("not a verdict")
        _whole(fence, "fence", 1, 2**63 - 1)
        if verdict.kind == "unknown":
            return
        with self._database.write() as db:
            seen = self._look(db, intent)
            if seen.state != "unknown" or seen.fence != fence:
                raise IdempotencyError("not_unknown")
            if verdict.kind == "done":
                self._end(db, intent, fence, "completed", *_encode(verdict.value))
            elif verdict.kind == "failed":
                self._end(db, intent, fence, "failed_final", None, _text(verdict.value, "code"))
            else:
                _guarded(db, _RELEASE, (*_name(intent), fence))

    # Looking and upkeep ----------------------------------------------------------------------

    def look(self, intent: Intent) -> Record:
        """Return what is known of an intent, judged now; nothing is written.

        A dead lease shows as `unknown`, or as `in_progress` with `retry_after` 0 if the call is
        repeatable. An outlived result shows as `absent`.
        """
        row = self._database.row(_FIND, (intent.namespace, intent.owner, intent.key))
        return _judge(intent.key, row, self._now_ms())

    def unsettled(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return `{namespace, owner, key, state, fence, holder, begun_at}` of what waits for an end, oldest first.

        Raises `IdempotencyError` (`bad_input`).
        """
        rows = self._database.rows(
            "SELECT namespace, owner, key, state, fence, holder, begun_at, lease_until FROM idempotency"
            f" WHERE {_IS_OPEN} AND (state = 'unknown' OR (lease_until <= ? AND NOT repeatable))"
            " ORDER BY begun_at LIMIT ?",
            (self._now_ms(), _whole(limit, "limit", 1, MAX_LIMIT)),
        )
        names = ("namespace", "owner", "key", "state", "fence", "holder")
        return [{**dict(zip(names, row, strict=False)), "state": "unknown", "begun_at": row[6] / 1000} for row in rows]

    def sweep(self, limit: int = 100) -> int:
        """Remove results that have outlived their lifetime, `limit` at most; return how many.

        Nothing in progress and nothing unknown is ever removed (I7). Raises `bad_input`.
        """
        _whole(limit, "limit", 1, MAX_LIMIT)
        with self._database.write() as db:
            return db.execute(
                "DELETE FROM idempotency WHERE rowid IN (SELECT rowid FROM idempotency"
                " WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?)",
                (self._now_ms(), limit),
            ).rowcount

    # Within ----------------------------------------------------------------------------------

    async def _perform(self, claim: Claim, fn: Callable[[], Awaitable[Any]], lease_s: float) -> Any:
        started = False
        heartbeat = _Heartbeat(self, claim, lease_s, self._call_later)
        try:
            heartbeat.start()
            started = True
            value = await fn()
        except BaseException as error:
            self._give_back(claim, error, started)
            raise
        finally:
            heartbeat.stop()
        # From here on the effect is a fact; nothing is awaited before it is recorded.
        self._save(claim, value)
        return value

    def _save(self, claim: Claim, value: Any) -> None:
        try:
            self.complete(claim, value)
        except StoreError as error:
            raise NotRecorded(value) from error

    def _give_back(self, claim: Claim, error: BaseException, started: bool) -> None:
        """Record how a call ended that gave no value; the caller's error is the one that comes out."""
        try:
            if isinstance(error, FailedFinal):
                self.fail(claim, error.code, error.detail)
            elif not started or claim.repeatable or isinstance(error, self._not_executed):
                self.release(claim)
            else:
                self.doubt(claim)
        except (StoreError, IdempotencyError):
            pass  # the record stays in progress, and the end of its lease says the rest

    def _settle_if_it_stands(self, intent: Intent, verdict: Verdict, fence: int) -> None:
        try:
            self.settle(intent, verdict, fence=fence)
        except IdempotencyError as error:
            if error.code != "not_unknown":  # somebody else settled it first: read on
                raise

    def _take(
        self, db: sqlite3.Connection, intent: Intent, now: int, ttl_s: int, lease_s: float, repeatable: bool
    ) -> Claim:
        db.execute("UPDATE idempotency_fence SET last = last + 1")
        fence: int = db.execute("SELECT last FROM idempotency_fence").fetchone()[0]
        until = now + _ms(lease_s)
        name = (*_name(intent), intent.fingerprint)
        db.execute(_TAKE, (*name, fence, self._holder, repeatable, until, ttl_s * 1000, now))
        return Claim(intent, fence, until / 1000, repeatable)

    def _end(
        self,
        db: sqlite3.Connection,
        intent: Intent,
        fence: int,
        state: str,
        text: str | None,
        mark: str | None,
        value: object = None,
    ) -> None:
        _guarded(db, _END, (state, self._now_ms(), text, mark, *_name(intent), fence), value)

    def _look(self, db: sqlite3.Connection, intent: Intent) -> Record:
        return _judge(intent.key, db.execute(_FIND, _name(intent)).fetchone(), self._now_ms())

    def _ttl(self, namespace: str, ttl_s: int) -> int:
        life = self._lifetimes.get(namespace)
        ttl = _whole(ttl_s, "ttl_s", 1, MAX_SECONDS)
        window = PAYMENT.retry_window_s if life is None else life.retry_window_s
        ttl = ttl if life is None else min(ttl, life.ttl_s)
        if ttl < ttl_for(window):
            raise IdempotencyError("ttl_too_short", "ttl_s is below twice the retry window")
        return ttl

    def _now_ms(self) -> int:
        return _ms(_number(self._clock(), "the clock"))


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
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        later = self._call_later or asyncio.get_running_loop().call_later
        self._timer = later(self._lease_s / 3, self._beat)

    def _beat(self) -> None:
        self._beats_left -= 1
        try:
            self._claim = self._store.renew(self._claim, self._lease_s)
        except LeaseLost:
            return
        except StoreError:
            pass  # two more beats fit into the lease
        if self._beats_left > 0:
            self._schedule()


# Rows and values -----------------------------------------------------------------------------


def _name(intent: Intent) -> tuple[str, str, str]:
    return intent.namespace, intent.owner, intent.key


def _has_outlived(row: Any, now: int) -> bool:
    return row[7] is not None and now >= row[7]


def _judge(key: str, row: Any, now: int) -> Record:
    """Say what a row means at this moment."""
    if row is None or _has_outlived(row, now):
        return Record("absent", key)
    if row[0] == "in_progress" and now >= row[5] and not row[4]:
        return Record("unknown", key, row[1], row[3])
    return _record(key, row, now)


def _record(key: str, row: Any, now: int) -> Record:
    state, fence, _, holder, _, lease_until, _, expires_at, result, mark = row
    return Record(
        state,
        key,
        fence,
        holder,
        0.0 if lease_until is None else max(lease_until - now, 0) / 1000,
        None if expires_at is None else expires_at / 1000,
        None if result is None else json.loads(result),
        mark,
    )


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


def _encode(value: object) -> tuple[str | None, str | None]:
    """Return the canonical text of a value and no mark, or no text and the mark that says why."""
    try:
        text = canonical(value)
    except CanonicalError as error:
        return None, error.reason
    if len(text.encode("utf-8")) > MAX_RESULT_BYTES:
        return None, f"more than {MAX_RESULT_BYTES} bytes"
    return text, None


def _guarded(db: sqlite3.Connection, sql: str, parameters: tuple[object, ...], value: object = None) -> None:
    """Change the one row that is still ours, or nothing."""
    _need_transaction(db)
    if db.execute(sql, parameters).rowcount != 1:
        raise LeaseLost(value)


# What is let in ------------------------------------------------------------------------------


def _refuse(reason: str) -> NoReturn:
    raise IdempotencyError("bad_input", reason)


def _need_transaction(db: sqlite3.Connection) -> None:
    if not db.in_transaction:
        raise IdempotencyError("no_transaction")


def _refuse_exhausted(remaining: Callable[[], float] | None) -> None:
    if remaining is not None and _number(remaining(), "remaining") <= 0:
        raise IdempotencyError("budget_exhausted")


def _text(value: object, name: str) -> str:
    if type(value) is not str or not 1 <= len(value) <= MAX_TEXT or "\0" in value:
        _refuse(f"{name} is not a text of 1 to {MAX_TEXT} characters without NUL")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        _refuse(f"{name} holds a lone surrogate")
    return value


def _whole(value: object, name: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        _refuse(f"{name} is not a whole number from {low} to {high}")
    return value


def _number(value: object, name: str) -> float:
    if (type(value) is not int and type(value) is not float) or not -(2.0**40) <= value <= 2.0**40:
        _refuse(f"{name} is not a number of seconds")
    return value


def _seconds(value: object, name: str, low: float) -> float:
    if not low <= _number(value, name) <= MAX_SECONDS:
        _refuse(f"{name} is not from {low} to {MAX_SECONDS} seconds")
    return float(_number(value, name))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _stable_fields(fields: object) -> dict[str, Any]:
    """Return a copy of the fields with text in NFC; refuse what is not the same on every attempt."""
    if type(fields) is not dict:
        _refuse("the intent is not a dict")
    try:
        text = canonical(fields)
    except CanonicalError as error:
        raise IdempotencyError("bad_input", f"the intent: {error.reason}") from error
    if len(text.encode("utf-8")) > MAX_INTENT_BYTES:
        _refuse(f"the intent exceeds {MAX_INTENT_BYTES} bytes")
    stable: dict[str, Any] = _stable(fields)
    return stable


def _stable(value: Any) -> Any:
    if type(value) is str:
        return unicodedata.normalize("NFC", value)
    if type(value) is float:
        _refuse("a float in an intent; count in the smallest unit")
    if type(value) is list:
        return [_stable(item) for item in value]
    if type(value) is not dict:
        return value
    result: dict[str, Any] = {}
    for name, item in value.items():
        name = unicodedata.normalize("NFC", name)
        if "".join(filter(str.isalnum, name)).casefold() in _UNSTABLE:
            raise IdempotencyError("unstable_field", "a field that changes from one transmission to the next")
        if name in result:
            _refuse("two names of the intent are one in NFC")
        result[name] = _stable(item)
    return result


def _chosen(stable: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    if fields is None:
        return stable
    if type(fields) not in (list, tuple) or not fields or not all(type(name) is str for name in fields):
        _refuse("fields are not a list of names")
    names = [unicodedata.normalize("NFC", name) for name in fields]
    if not set(names) <= set(stable):
        _refuse("a declared field is not among the arguments")
    return {name: stable[name] for name in names}


PAYMENT: Final = Lifetime(retry_window_s=43_200, ttl_s=86_400)
QUERY: Final = Lifetime(retry_window_s=150, ttl_s=300)
"""The document's two examples: payments live 24 hours, content queries 5 minutes (I4-039)."""
