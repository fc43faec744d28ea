"""Records of intents: what is known of each, who may be at work on it, and until when.

The steps of `companions.effects.idempotency`, which says what holds (I1 to I8) and has all these names too. Here
are the table, the guards and the single steps; there are the whole calls that are made of them.

    claim ---> renew ... ---> complete | fail | release | doubt        look, unsettled, settle, sweep

A step that changes a record names it by its fence. Who holds another fence changes nothing (I5).
Source: claims I4-036 to I4-039, I4-043 to I4-050, T6-030 to T6-034 with the readings X-09, X-10, X-41, X-48.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from chapter10.canonical import CanonicalError, canonical
from chapter10.companions.effects.intents import (
    MAX_SECONDS,
    PAYMENT,
    IdempotencyError,
    Intent,
    Lifetime,
    number,
    refuse,
    seconds,
    text_of,
    ttl_for,
    whole,
)
from chapter10.database import BUSY_SECONDS, Database

__all__ = [
    "APPLICATION_ID",
    "DEFAULT_TTL_S",
    "LEASE_S",
    "MAX_LIMIT",
    "MAX_RESULT_BYTES",
    "STATES",
    "TABLES",
    "Claim",
    "IntentRecords",
    "LeaseLost",
    "Record",
    "State",
    "Verdict",
    "need_transaction",
]

State = Literal["absent", "in_progress", "completed", "failed_final", "unknown"]
STATES: Final = ("absent", "in_progress", "completed", "failed_final", "unknown")

DEFAULT_TTL_S: Final = 86_400
"""Seconds that a result is replayed after it was stored, where nothing else is said."""
LEASE_S: Final = 30
"""Seconds of a lease; more than a tool's timeout and its grace together, or renewed."""
MAX_RESULT_BYTES: Final = 1024 * 1024
"""Bytes of the canonical form of a stored value; a larger one is completed without its value."""
MAX_LIMIT: Final = 1000
"""The most rows that one call returns or removes."""

APPLICATION_ID: Final = 0x43483149  # "CH1I"

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
        lease_ms INTEGER NOT NULL,      -- how long the longest lease of this claim was
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
    "SELECT state, fence, fingerprint, holder, repeatable, lease_until, begun_at, expires_at, result, mark, lease_ms"
    " FROM idempotency WHERE namespace = ? AND owner = ? AND key = ?"
)
_TAKE: Final = (
    "INSERT OR REPLACE INTO idempotency (namespace, owner, key, fingerprint, state, fence, holder, repeatable,"
    " lease_until, lease_ms, ttl_ms, begun_at) VALUES (?, ?, ?, ?, 'in_progress', ?, ?, ?, ?, ?, ?, ?)"
)
_IS_OURS: Final = "namespace = ? AND owner = ? AND key = ? AND fence = ?"
_IS_OPEN: Final = "state IN ('in_progress', 'unknown')"
_END: Final = (
    "UPDATE idempotency SET state = ?, lease_until = NULL, expires_at = ? + ttl_ms, result = ?, mark = ?"
    f" WHERE {_IS_OURS} AND {_IS_OPEN}"
)
_DOUBT: Final = f"UPDATE idempotency SET state = 'unknown', lease_until = NULL WHERE {_IS_OURS} AND {_IS_OPEN}"
_RELEASE: Final = f"DELETE FROM idempotency WHERE {_IS_OURS} AND {_IS_OPEN}"
_SHORTEN: Final = f"UPDATE idempotency SET lease_until = ? + lease_ms WHERE {_IS_OURS}"
_RENEW: Final = (
    "UPDATE idempotency SET lease_until = max(min(lease_until, ? + lease_ms), ?), lease_ms = max(lease_ms, ?)"
    f" WHERE {_IS_OURS} AND state = 'in_progress' AND lease_until > ?"
)


class LeaseLost(IdempotencyError):
    """Raised when a holder's right to write has ended (`lease_lost`); nothing was changed.

    `value` is what the call returned, if it had ended.
    """

    def __init__(self, value: object = None) -> None:
        super().__init__("lease_lost")
        self.value = value


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


class IntentRecords:
    """Records of intents in one SQLite file, one step at a time.

    `place`: a path (`:memory:` by default, which a restart forgets), or a `Database` that has `TABLES`
    among its migrations. `lifetimes`: by namespace; a namespace that is not named may retry for
    43,200 s. `holder`: who is at work, for people. `clock`: seconds, shared by all users of the file.
    A store belongs to the thread that made it; any number of stores may share a file.

    Each step exists twice: `step_in(db, …)` inside the caller's transaction, `step(…)` in one of its own.

    Raises `IdempotencyError` (`bad_input`), `StoreError`; every method may raise `StoreError`.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Database = ":memory:",
        *,
        lifetimes: Mapping[str, Lifetime] | None = None,
        holder: str = "local",
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._lifetimes = dict(lifetimes or {})
        for name, life in self._lifetimes.items():
            if type(life) is not Lifetime:
                refuse(f"the lifetime of {text_of(name, 'namespace')} is not a Lifetime")
        self._holder = text_of(holder, "holder")
        self._clock = clock
        self._owned = not isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(place, application_id=APPLICATION_ID, migrations=(TABLES,), busy_seconds=busy_seconds)
        self._database = place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file if this store opened it; a second close does nothing."""
        if self._owned:
            self._database.close()

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, for looking."""
        return self._database.connection

    # One step at a time --------------------------------------------------------------------------

    def claim(
        self, intent: Intent, *, ttl_s: int = DEFAULT_TTL_S, lease_s: float = LEASE_S, repeatable: bool = False
    ) -> Claim | Record:
        """Take the right to make the effect, or return what is known already. One commit.

        A record whose lease is over is taken over if both its holder and this caller called it
        repeatable, and becomes `unknown` otherwise. A lease that would end later than a lease from now, since
        the clock was ahead when it began, ends a lease from now.

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
        need_transaction(db)
        ttl = self._ttl(intent.namespace, ttl_s)
        lease = seconds(lease_s, "lease_s", 0.001)
        if type(repeatable) is not bool:
            refuse("repeatable is not True or False")
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
        if _is_too_long(row, now):
            db.execute(_SHORTEN, (now, *_name(intent), row[1]))
        return _record(intent.key, row, now)

    def renew(self, claim: Claim, lease_s: float = LEASE_S) -> Claim:
        """Let a live lease end `lease_s` seconds from now, never earlier than it would. One commit.

        Raises `LeaseLost` when the lease is over or the claim is not the record's.
        """
        lease = seconds(lease_s, "lease_s", 0.001)
        with self._database.write() as db:
            now = self._now_ms()
            values = (now, now + _ms(lease), _ms(lease), *_name(claim.intent), claim.fence, now)
            if db.execute(_RENEW, values).rowcount != 1:
                raise LeaseLost
            until: int = db.execute(_FIND, _name(claim.intent)).fetchone()[5]
        return Claim(claim.intent, claim.fence, until / 1000, claim.repeatable)

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
        self._end(db, claim.intent, claim.fence, "failed_final", _encode(detail)[0], text_of(code, "code"))

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
        A dead lease that nobody has touched since counts as the doubt that it is, and so does a lease of a clock
        that was ahead. One commit.

        Raises `IdempotencyError`: `not_unknown` (settled already, or another claim), `bad_input`.
        """
        kinds = ("done", "failed", "not_done", "unknown")
        if type(verdict) is not Verdict or type(verdict.kind) is not str or verdict.kind not in kinds:
            refuse("not a verdict")
        whole(fence, "fence", 1, 2**63 - 1)
        if verdict.kind == "unknown":
            return
        with self._database.write() as db:
            row, now = db.execute(_FIND, _name(intent)).fetchone(), self._now_ms()
            seen = _judge(intent.key, row, now)
            if seen.fence != fence or (seen.state != "unknown" and not _is_too_long(row, now)):
                raise IdempotencyError("not_unknown")
            if verdict.kind == "done":
                self._end(db, intent, fence, "completed", *_encode(verdict.value))
            elif verdict.kind == "failed":
                self._end(db, intent, fence, "failed_final", None, text_of(verdict.value, "code"))
            else:
                _guarded(db, _RELEASE, (*_name(intent), fence))

    def settle_by_name(self, namespace: str, owner: str, key: str, verdict: Verdict, *, fence: int) -> None:
        """As `settle`, by what `unsettled` lists: for a person, who has no arguments at hand."""
        name = text_of(namespace, "namespace"), text_of(owner, "owner"), text_of(key, "key")
        self.settle(Intent(*name, fingerprint=""), verdict, fence=fence)

    # Looking and upkeep --------------------------------------------------------------------------

    def look(self, intent: Intent) -> Record:
        """Return what is known of an intent, judged now; nothing is written.

        A dead lease shows as `unknown`, or as `in_progress` with `retry_after` 0 if the call is
        repeatable. An outlived result shows as `absent`.
        """
        row = self._database.row(_FIND, (intent.namespace, intent.owner, intent.key))
        return _judge(intent.key, row, self._now_ms())

    def unsettled(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return `{namespace, owner, key, state, fence, holder, begun_at}` of what waits for an end, oldest first.

        What is `unknown`, and what is `in_progress` under a lease that no clock that was right can have given.
        Raises `IdempotencyError` (`bad_input`).
        """
        now = self._now_ms()
        rows = self._database.rows(
            "SELECT namespace, owner, key, state, fence, holder, begun_at, lease_until FROM idempotency"
            f" WHERE {_IS_OPEN} AND (state = 'unknown' OR (lease_until <= ? AND NOT repeatable)"
            " OR lease_until > ? + lease_ms) ORDER BY begun_at LIMIT ?",
            (now, now, whole(limit, "limit", 1, MAX_LIMIT)),
        )
        names = ("namespace", "owner", "key", "state", "fence", "holder")
        return [
            {
                **dict(zip(names, row, strict=False)),
                "state": "in_progress" if row[7] is not None and row[7] > now else "unknown",
                "begun_at": row[6] / 1000,
            }
            for row in rows
        ]

    def sweep(self, limit: int = 100) -> int:
        """Remove results that have outlived their lifetime, `limit` at most; return how many.

        Nothing in progress and nothing unknown is ever removed (I7). Raises `bad_input`.
        """
        whole(limit, "limit", 1, MAX_LIMIT)
        with self._database.write() as db:
            return db.execute(
                "DELETE FROM idempotency WHERE rowid IN (SELECT rowid FROM idempotency"
                " WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?)",
                (self._now_ms(), limit),
            ).rowcount

    # Within --------------------------------------------------------------------------------------

    def _take(
        self, db: sqlite3.Connection, intent: Intent, now: int, ttl_s: int, lease_s: float, repeatable: bool
    ) -> Claim:
        db.execute("UPDATE idempotency_fence SET last = last + 1")
        fence: int = db.execute("SELECT last FROM idempotency_fence").fetchone()[0]
        until = now + _ms(lease_s)
        name = (*_name(intent), intent.fingerprint)
        db.execute(_TAKE, (*name, fence, self._holder, repeatable, until, _ms(lease_s), ttl_s * 1000, now))
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

    def _ttl(self, namespace: str, ttl_s: int) -> int:
        life = self._lifetimes.get(namespace)
        ttl = whole(ttl_s, "ttl_s", 1, MAX_SECONDS)
        window = PAYMENT.retry_window_s if life is None else life.retry_window_s
        ttl = ttl if life is None else min(ttl, life.ttl_s)
        if ttl < ttl_for(window):
            raise IdempotencyError("ttl_too_short", "ttl_s is below twice the retry window")
        return ttl

    def _now_ms(self) -> int:
        return _ms(number(self._clock(), "the clock"))


def _name(intent: Intent) -> tuple[str, str, str]:
    return intent.namespace, intent.owner, intent.key


def _has_outlived(row: Any, now: int) -> bool:
    return row[7] is not None and now >= row[7]


def _is_too_long(row: Any, now: int) -> bool:
    """Say whether the lease ends later than a lease from now: the clock was ahead when it began."""
    return row is not None and row[5] is not None and row[5] > now + row[10]


def _judge(key: str, row: Any, now: int) -> Record:
    """Say what a row means at this moment."""
    if row is None or _has_outlived(row, now):
        return Record("absent", key)
    if row[0] == "in_progress" and now >= row[5] and not row[4]:
        return Record("unknown", key, row[1], row[3])
    return _record(key, row, now)


def _record(key: str, row: Any, now: int) -> Record:
    state, fence, _, holder, _, lease_until, _, expires_at, result, mark, lease_ms = row
    return Record(
        state,
        key,
        fence,
        holder,
        0.0 if lease_until is None else min(max(lease_until - now, 0), lease_ms) / 1000,
        None if expires_at is None else expires_at / 1000,
        None if result is None else json.loads(result),
        mark,
    )


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
    need_transaction(db)
    if db.execute(sql, parameters).rowcount != 1:
        raise LeaseLost(value)


def need_transaction(db: sqlite3.Connection) -> None:
    """Raise `IdempotencyError` (`no_transaction`) outside of a transaction."""
    if not db.in_transaction:
        raise IdempotencyError("no_transaction")


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
