"""A message stored with the business write, sent afterwards, at least once and in order per key.

A program that changes its database and then tells somebody may die in between. Here the message is a
row of the same transaction: both are there or neither is. A relay claims due rows, sends them outside
any transaction and marks them. What it sent but could not mark is sent again, so the receiver keeps
the event ids that it has handled, in the transaction of its own effect.

The words
    event_id      names a message for ever; from the caller, derived from the intent, unique
    ordering_key  messages with one key go out one after the other; without a key there is no order
    turn          a row has its turn when no earlier row of its key is unfinished
    compensates   the event that this one undoes; it stands in the queue right behind that one
    priority      between keys only; a level is worth `AGEING_S` seconds of waiting
    fence         number of a claimed batch; a relay's mark counts only with it
    refused       the receiver's answer to this one message; it costs an attempt
    down          the transport does not reach anybody; it costs nobody an attempt and pauses the relay

The states
    pending    record made it; due at `next_attempt_at`, if it has its turn
    claimed    a relay has it until `lease_until`; a crash leaves it here and the next claim finds it
    sent       somebody took it
    dead       refused for good, or `max_attempts` times; a person replays or discards it
    archived   sent or discarded and old: the payload is gone, the event id stays known
    withdrawn  taken back while it was pending

What holds
    O1  a message exists if and only if the transaction that recorded it was committed
    O2  one event id is one row; the same id with other content is `event_conflict`
    O3  at most one row of an ordering key has its turn, so no row is claimable while an earlier row of
        its key is unfinished
    O4  a relay whose lease was taken over marks nothing
    O5  a message that cannot be sent delays only itself and its own key, and not for ever
    O6  an outage of the transport, and a mark that was not stored, cost no attempt
    O7  a consumer's effect and its memory of the event are one transaction

Order. Within a key: by id, except that a compensation stands right behind what it compensates, before
later rows of the key that were recorded earlier. It never overtakes the row that it undoes, and what
is in flight already is not called back. If the first row of a key is dead, the rule `when_dead`
decides: `block` (the key waits for a person) or `skip` (the next row goes). Between keys the lower
rank goes first: the time of recording minus priority times `AGEING_S`, so a low priority waits at most
that much longer per level than what is recorded after it.

What it does not do. It gives no exactly-once: it delivers at least once, and the receiver drops what
it knows. A relay that dies sends up to one batch again. A process that a message kills each time is
for its supervisor to notice. Outbox and business tables are in one database file, by construction.

Names of the document: `OutboxWriter.do_business_and_record` and `outbox_worker` are here;
`fetch_pending` is `Outbox.claim`, `mark_sent` and `mark_retry` are verdicts of `Outbox.mark`.
Source: claims I4-052 to I4-068, I4-094, I4-095, I4-101 with the readings X-05, X-20, X-23, X-47, X-49.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Protocol

from chapter10.canonical import CanonicalError, CodedError, canonical, text_digest
from chapter10.database import BUSY_SECONDS, Database, StoreError

__all__ = [
    "AGEING_S",
    "APPLICATION_ID",
    "BATCH_LIMIT",
    "DEAD_ALARM",
    "HORIZON_S",
    "INBOX_APPLICATION_ID",
    "INBOX_TABLES",
    "INTERVAL_S",
    "LEASE_S",
    "MAX_ATTEMPTS",
    "MAX_LIMIT",
    "MAX_PAYLOAD_BYTES",
    "MAX_PRIORITY",
    "MAX_SECONDS",
    "MAX_TEXT",
    "PENDING_ALARM",
    "STATUSES",
    "TABLES",
    "Batch",
    "Consumer",
    "Message",
    "Outbox",
    "OutboxError",
    "OutboxWriter",
    "PassReport",
    "PermanentRefusal",
    "Producer",
    "Relay",
    "Send",
    "TransportDown",
    "Verdict",
    "derive_event_id",
    "growing_delay",
    "outbox_worker",
    "saga_demonstration",
]

STATUSES: Final = ("pending", "claimed", "sent", "dead", "archived", "withdrawn")

BATCH_LIMIT: Final = 100
"""Rows that a relay claims at once (I4-057)."""
INTERVAL_S: Final = 1.0
"""Seconds that an idle relay sleeps (I4-056)."""
LEASE_S: Final = 60.0
"""Seconds that a relay has for its batch; when they are over it gives back what it has not sent."""
MAX_ATTEMPTS: Final = 8
"""Refusals after which a message is dead, the first included. The document leaves the number open."""
PENDING_ALARM: Final = 10_000
"""More pending rows than this raise an alarm (I4-067)."""
DEAD_ALARM: Final = 100
"""More dead rows than this need a person (I4-068)."""
AGEING_S: Final = 60
"""Seconds of waiting that one level of priority is worth."""
HORIZON_S: Final = 30 * 86_400
"""Seconds after which nothing is delivered a second time: no replay, no broker, no restart."""
MAX_PRIORITY: Final = 1000
MAX_TEXT: Final = 200
"""Characters of an event id, a topic, an ordering key, an error; at least one."""
MAX_PAYLOAD_BYTES: Final = 256 * 1024
"""Bytes of the canonical form of a payload."""
MAX_LIMIT: Final = 1000
MAX_SECONDS: Final = 10 * 366 * 86_400

APPLICATION_ID: Final = 0x4348314F  # "CH1O"
INBOX_APPLICATION_ID: Final = 0x4348314E  # "CH1N"

TABLES: Final = """
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        event_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        payload TEXT,                      -- canonical JSON; NULL once archived
        sha256 TEXT NOT NULL,              -- of topic, key, compensated event and payload
        ordering_key TEXT,
        anchor INTEGER,                    -- of a compensation: the place of what it undoes
        priority INTEGER NOT NULL,
        rank INTEGER NOT NULL,             -- created_at less the waiting that the priority is worth
        turn INTEGER,                      -- 1: first of its key, 0: waits behind another, NULL: finished
        status TEXT NOT NULL,
        attempts INTEGER NOT NULL,         -- refusals of this message
        next_attempt_at INTEGER NOT NULL,  -- milliseconds, as all times here
        fence INTEGER NOT NULL,            -- of the last batch that had it, 0 before the first
        lease_until INTEGER,
        last_error TEXT,
        created_at INTEGER NOT NULL,
        ended_at INTEGER,                  -- when it became sent, dead, archived or withdrawn
        CONSTRAINT status_is_known CHECK (
            status IN ('pending', 'claimed', 'sent', 'dead', 'archived', 'withdrawn')),
        CONSTRAINT lease_while_claimed CHECK ((lease_until IS NOT NULL) = (status = 'claimed')),
        CONSTRAINT claimed_in_turn CHECK (status <> 'claimed' OR turn = 1),
        CONSTRAINT unfinished_has_turn CHECK (status NOT IN ('pending', 'claimed') OR turn IS NOT NULL),
        CONSTRAINT finished_has_none CHECK (status NOT IN ('sent', 'archived', 'withdrawn') OR turn IS NULL),
        CONSTRAINT ended_or_not CHECK ((ended_at IS NULL) = (status IN ('pending', 'claimed'))),
        CONSTRAINT payload_until_archived CHECK ((payload IS NULL) = (status = 'archived')),
        CONSTRAINT one_row_per_event UNIQUE (event_id)
    );
    CREATE INDEX outbox_due ON outbox (turn, rank, id) WHERE status = 'pending';
    CREATE INDEX outbox_claimed ON outbox (lease_until) WHERE status = 'claimed';
    CREATE INDEX outbox_queue ON outbox (ordering_key, coalesce(anchor, id), id)
        WHERE ordering_key IS NOT NULL AND turn IS NOT NULL;
    CREATE UNIQUE INDEX one_turn_per_key ON outbox (ordering_key) WHERE ordering_key IS NOT NULL AND turn = 1;
    CREATE INDEX outbox_ended ON outbox (status, ended_at, id) WHERE ended_at IS NOT NULL;
    CREATE TABLE outbox_fence (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        last INTEGER NOT NULL
    );
    INSERT INTO outbox_fence VALUES (1, 0);
"""
"""One migration for `Database`, to stand among the business database's own."""

INBOX_TABLES: Final = """
    CREATE TABLE inbox (
        consumer TEXT NOT NULL,
        event_id TEXT NOT NULL,
        handled_at INTEGER NOT NULL,       -- milliseconds
        CONSTRAINT handled_once PRIMARY KEY (consumer, event_id)
    ) WITHOUT ROWID;
    CREATE INDEX inbox_handled ON inbox (handled_at);
"""
"""One migration for the receiver's `Database`."""

_QUEUED: Final = "ordering_key = ? AND turn IS NOT NULL"
_RECORD: Final = (
    "INSERT INTO outbox (event_id, topic, payload, sha256, ordering_key, anchor, priority, rank, turn, status,"
    " attempts, next_attempt_at, fence, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?,"
    # A new row is the last of its key, so it has its turn if nobody else is in the queue.
    f" NOT EXISTS (SELECT 1 FROM outbox WHERE {_QUEUED}), 'pending', 0, ?, 0, ?)"
    " ON CONFLICT (event_id) DO NOTHING"
)
_DUE: Final = (
    "SELECT id, event_id, topic, payload, ordering_key, attempts FROM outbox"
    " WHERE status = 'pending' AND turn = 1 AND next_attempt_at <= ? ORDER BY rank, id LIMIT ?"
)
_CLAIM: Final = "UPDATE outbox SET status = 'claimed', lease_until = ?, fence = ? WHERE id = ?"
_IS_OURS: Final = "id = ? AND status = 'claimed' AND fence = ?"
_SENT: Final = f"UPDATE outbox SET status = 'sent', turn = NULL, lease_until = NULL, ended_at = ? WHERE {_IS_OURS}"
_GIVE_BACK: Final = f"UPDATE outbox SET status = 'pending', lease_until = NULL WHERE {_IS_OURS}"
_RETRY: Final = (
    "UPDATE outbox SET status = 'pending', lease_until = NULL, attempts = attempts + 1, next_attempt_at = ?,"
    f" last_error = ? WHERE {_IS_OURS}"
)
_BURY: Final = (
    "UPDATE outbox SET status = 'dead', lease_until = NULL, attempts = attempts + 1, last_error = ?, ended_at = ?,"
    f" turn = CASE WHEN ? THEN 1 END WHERE {_IS_OURS}"
)
_STAND_BACK: Final = "UPDATE outbox SET turn = 0 WHERE ordering_key = ? AND turn = 1 AND status <> 'claimed'"
_ELECT: Final = (
    f"UPDATE outbox SET turn = 1 WHERE id = (SELECT id FROM outbox WHERE {_QUEUED}"
    " ORDER BY coalesce(anchor, id), id LIMIT 1)"
    " AND NOT EXISTS (SELECT 1 FROM outbox WHERE ordering_key = ? AND turn = 1)"
)
_STATUS: Final = (
    "SELECT id, event_id, topic, ordering_key, priority, status, attempts, next_attempt_at, last_error, created_at,"
    " fence > 0 FROM outbox"
)
_STATUS_NAMES: Final = (
    "id event_id topic ordering_key priority status attempts next_attempt_at last_error created_at claimed_before"
)


class OutboxError(CodedError, ValueError):
    """Raised when a call cannot be granted; nothing was changed.

    `bad_input`, `no_transaction` (record was called outside one), `event_conflict` (the event id has
    other content), `not_found`, `wrong_status` (not pending, or not dead, any more),
    `replay_too_late` (the receivers may have forgotten the event), `retention_too_short`.
    """

    reason: str | None

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.reason = reason


class TransportDown(CodedError, RuntimeError):
    """Raised by a send function that reached nobody: no message's fault, the relay pauses."""


class PermanentRefusal(CodedError, RuntimeError):
    """Raised by a send function whose receiver will never take this message: dead at once."""


@dataclass(frozen=True, slots=True)
class Message:
    """One claimed row, as it is sent. `payload` is canonical JSON text; `attempts` counts refusals so far."""

    id: int
    event_id: str
    topic: str
    payload: str
    ordering_key: str | None
    attempts: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that one relay may send until `lease_until` (seconds on the outbox's clock)."""

    fence: int
    lease_until: float
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one message of a batch fared; `error` is a short text, a code or the name of a class."""

    message: Message
    kind: Literal["sent", "refused", "refused_for_good", "not_tried"]
    error: str = "refused"


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass of a relay did, in rows; `lost` were marked by nobody, since their lease was over."""

    claimed: int = 0
    sent: int = 0
    refused: int = 0
    dead: int = 0
    given_back: int = 0
    lost: int = 0
    paused: bool = False


class Send(Protocol):
    """Delivers one message; `key` is its event id, for the receiver to know it again."""

    def __call__(self, topic: str, payload: str, *, key: str) -> Awaitable[object]:
        """Return when the receiver has taken the message; raise what went wrong."""


class Producer(Protocol):
    """The document's message producer."""

    def send(self, topic: str, payload: str, *, key: str) -> Awaitable[object]:
        """As `Send`."""


def derive_event_id(*parts: str) -> str:
    """Return 64 hex digits that stand for an intent, such as `("refund", "order-7")`; joined unambiguously.

    The same parts give the same id, so a repeat after an unclear commit is the same event.
    Raises `OutboxError` (`bad_input`).
    """
    if not parts or len(parts) > 20:
        _refuse("an event id is derived from 1 to 20 texts")
    return text_digest(canonical(["chapter10.event.1", *[_text(part, "part") for part in parts]]))


def growing_delay(
    *, base_s: float = 1.0, max_s: float = 300.0, random: Callable[[], float] = random.random
) -> Callable[[int], float]:
    """Return a function from the number of failures (1, 2, …) to seconds: doubling, 50 to 150 % jitter.

    No delay exceeds `max_s`, jitter included. `random` gives numbers from 0 to 1.
    Raises `OutboxError` (`bad_input`).
    """
    _seconds(base_s, "base_s", 0.001)
    _seconds(max_s, "max_s", base_s)

    def delay(failures: int) -> float:
        nominal = min(base_s * 2.0 ** min(failures - 1, 40), max_s / 1.5)
        return nominal * (0.5 + random())

    return delay


class Outbox:
    """Messages in the database of the business that records them; see the module for what it promises.

    `place`: a `Database` that has `TABLES` among its migrations, or a path for a file of its own.
    `clock`: seconds, one clock for all users of the file. `max_attempts`: refusals, the first
    included. `delay`: from the number of refusals to seconds. `when_dead`: `block` or `skip`.
    `horizon_s`: a dead message is replayed only this long after its death.

    Every method may raise `StoreError` besides what it names.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Database,
        *,
        clock: Callable[[], float] = time.time,
        max_attempts: int = MAX_ATTEMPTS,
        delay: Callable[[int], float] | None = None,
        when_dead: Literal["block", "skip"] = "block",
        horizon_s: float = HORIZON_S,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._clock = clock
        self._max_attempts = _whole(max_attempts, "max_attempts", 1, 1000)
        self._delay = growing_delay() if delay is None else delay
        if when_dead not in ("block", "skip"):
            _refuse("when_dead is neither block nor skip")
        self._block = when_dead == "block"
        self.horizon_s = _seconds(horizon_s, "horizon_s", 1)
        self._owned = not isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(place, application_id=APPLICATION_ID, migrations=(TABLES,), busy_seconds=busy_seconds)
        self.database = place

    def __enter__(self) -> Outbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file if this outbox opened it; a second close does nothing."""
        if self._owned:
            self.database.close()

    # The business side -----------------------------------------------------------------------

    def record(
        self,
        db: sqlite3.Connection,
        topic: str,
        payload: Any,
        *,
        event_id: str,
        ordering_key: str | None = None,
        priority: int = 0,
        compensates: str | None = None,
        delay_s: float = 0,
    ) -> int:
        """Store a message in the caller's open transaction and return its row id.

        `payload`: JSON, `MAX_PAYLOAD_BYTES` at most. `compensates`: the event id of a row of the same
        ordering key that this message undoes. `delay_s`: not before. An event id that stands already
        with the same content gives the row that it has, and writes nothing.

        Raises `OutboxError`: `no_transaction` (sqlite3 would commit the row by itself), `bad_input`,
        `event_conflict`, `not_found` (what is to be compensated). Source: I4-053 to I4-055, I4-061, I4-065.
        """
        _need_transaction(db)
        for value, name in ((topic, "topic"), (event_id, "event_id")):
            _text(value, name)
        if ordering_key is not None:
            _text(ordering_key, "ordering_key")
        _whole(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
        text, sha256 = _content(topic, payload, ordering_key, compensates)
        later = _ms(_seconds(delay_s, "delay_s", 0))
        anchor = None if compensates is None else self._place(db, compensates, ordering_key)
        now = self._now_ms()
        rank = now - priority * AGEING_S * 1000
        row = (event_id, topic, text, sha256, ordering_key, anchor, priority, rank, ordering_key, now + later, now)
        done = db.execute(_RECORD, row)
        if done.rowcount != 1:
            return self._known(db, event_id, sha256)
        row_id = done.lastrowid
        assert row_id is not None
        if anchor is not None:
            _next_turn(db, [ordering_key])
        return row_id

    def withdraw(self, event_id: str) -> None:
        """Take back a message that is pending. What was claimed before may have been delivered:
        `status` says so in `claimed_before`, and then only another message undoes it.

        Raises `OutboxError`: `not_found`, `wrong_status`.
        """
        self._move(event_id, "pending", "status = 'withdrawn', turn = NULL, ended_at = :now")

    # The relay's side ------------------------------------------------------------------------

    def claim(self, limit: int = BATCH_LIMIT, lease_s: float = LEASE_S) -> Batch | None:
        """Take due rows that have their turn, lowest rank first; None if there is none. One commit.

        Rows of a relay whose lease is over come back first. Raises `OutboxError` (`bad_input`).
        """
        _whole(limit, "limit", 1, MAX_LIMIT)
        lease = _ms(_seconds(lease_s, "lease_s", 0.001))
        with self.database.write() as db:
            now = self._now_ms()
            self._recover(db, now)
            messages = tuple(Message(*row) for row in db.execute(_DUE, (now, limit)))
            if not messages:
                return None
            db.execute("UPDATE outbox_fence SET last = last + 1")
            fence: int = db.execute("SELECT last FROM outbox_fence").fetchone()[0]
            db.executemany(_CLAIM, [(now + lease, fence, message.id) for message in messages])
        return Batch(fence, (now + lease) / 1000, messages)

    def has_time(self, batch: Batch) -> bool:
        """Say whether the batch's lease still runs; nothing of it is sent afterwards."""
        return self._now_ms() < _ms(batch.lease_until)

    def mark(self, batch: Batch, verdicts: Sequence[Verdict]) -> PassReport:
        """Store how the messages of a batch fared. One commit; a row that is no longer ours is left alone.

        Raises `OutboxError` (`bad_input`).
        """
        kinds: dict[str, list[Verdict]] = {"sent": [], "refused": [], "refused_for_good": [], "not_tried": []}
        for verdict in verdicts:
            if type(verdict) is not Verdict or verdict.kind not in kinds:
                _refuse("not a verdict")
            kind = verdict.kind
            if kind == "refused" and verdict.message.attempts + 1 >= self._max_attempts:
                kind = "refused_for_good"
            kinds[kind].append(verdict)
        with self.database.write() as db:
            now, fence = self._now_ms(), batch.fence
            sent = _change(db, _SENT, [(now, v.message.id, fence) for v in kinds["sent"]])
            back = _change(db, _GIVE_BACK, [(v.message.id, fence) for v in kinds["not_tried"]])
            retries = [(self._retry_at(now, v), v.error[:MAX_TEXT], v.message.id, fence) for v in kinds["refused"]]
            refused = _change(db, _RETRY, retries)
            buried = [(v.error[:MAX_TEXT], now, self._block, v.message.id, fence) for v in kinds["refused_for_good"]]
            dead = _change(db, _BURY, buried)
            # A row that was sent has left its turn to the next; any other may have to stand back for it.
            kept = {verdict.message.ordering_key for verdict in verdicts if verdict.kind != "sent"}
            _next_turn(db, kept)
            _elect(db, {verdict.message.ordering_key for verdict in kinds["sent"]} - kept)
        lost = len(verdicts) - sent - back - refused - dead
        return PassReport(len(batch.messages), sent, refused, dead, back, lost)

    # Looking and upkeep ----------------------------------------------------------------------

    def status(self, event_id: str) -> dict[str, Any]:
        """Return `{id, event_id, topic, ordering_key, priority, status, attempts, next_attempt_at, last_error,
        created_at, claimed_before}`; times in seconds.

        Raises `OutboxError`: `not_found`, `bad_input`.
        """
        row = self.database.row(f"{_STATUS} WHERE event_id = ?", (_text(event_id, "event_id"),))
        if row is None:
            raise OutboxError("not_found")
        return _shown(row)

    def dead(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return dead messages as `status` shows them, the longest dead first. Raises `bad_input`."""
        _whole(limit, "limit", 1, MAX_LIMIT)
        rows = self.database.rows(f"{_STATUS} WHERE status = 'dead' ORDER BY ended_at, id LIMIT ?", (limit,))
        return [_shown(row) for row in rows]

    def replay(self, event_id: str) -> None:
        """Make a dead message pending again, due now, with all its attempts and in its old place.

        Raises `OutboxError`: `not_found`, `wrong_status`, and `replay_too_late` after the horizon: a
        refused message may have been delivered after all, and receivers remember only so long.
        """
        self._move(
            event_id,
            "dead",
            "status = 'pending', attempts = 0, next_attempt_at = :now, ended_at = NULL,"
            " turn = CASE WHEN ordering_key IS NULL THEN 1 ELSE 0 END",
        )

    def discard(self, event_id: str) -> None:
        """Give a dead message up; its key goes on. Raises `OutboxError`: `not_found`, `wrong_status`."""
        self._move(event_id, "dead", "status = 'archived', payload = NULL, turn = NULL, ended_at = :now")

    def archive(self, older_than_s: float, limit: int = MAX_LIMIT) -> int:
        """Drop the payload of messages that were sent at least `older_than_s` seconds ago; return how many.

        Nothing but sent messages is touched. Raises `OutboxError` (`bad_input`). Source: I4-062.
        """
        before = self._now_ms() - _ms(_seconds(older_than_s, "older_than_s", 0))
        return self._upkeep("UPDATE outbox SET status = 'archived', payload = NULL", ("sent",), before, limit)

    def forget(self, older_than_s: float, limit: int = MAX_LIMIT) -> int:
        """Remove archived and withdrawn rows that ended that long ago, event id and all; return how many.

        Raises `OutboxError`: `bad_input`, `retention_too_short` below the horizon.
        """
        if _seconds(older_than_s, "older_than_s", 0) < self.horizon_s:
            raise OutboxError("retention_too_short")
        before = self._now_ms() - _ms(older_than_s)
        return self._upkeep("DELETE FROM outbox", ("archived", "withdrawn"), before, limit)

    def alarms(self) -> dict[str, Any]:
        """Return `{pending, dead, alarms}`: counts (not beyond one above a limit) and the names of those above.

        Pending rows above `PENDING_ALARM` say that the relay is slow or down; dead rows above
        `DEAD_ALARM` need a person (I4-067, I4-068).
        """
        counts = {
            status: self.database.row(
                f"SELECT count(*) FROM (SELECT 1 FROM outbox WHERE status = '{status}'{known} LIMIT ?)", (limit + 1,)
            )[0]
            for status, known, limit in (
                ("pending", "", PENDING_ALARM),
                ("dead", " AND ended_at IS NOT NULL", DEAD_ALARM),
            )
        }
        limits = {"pending": PENDING_ALARM, "dead": DEAD_ALARM}
        return {**counts, "alarms": [name for name, count in counts.items() if count > limits[name]]}

    # Within ----------------------------------------------------------------------------------

    def _place(self, db: sqlite3.Connection, event_id: str, ordering_key: str | None) -> int:
        """Return the place of what is compensated, in the same key's queue."""
        if ordering_key is None:
            _refuse("a compensation has the ordering key of what it undoes")
        row = db.execute(
            "SELECT coalesce(anchor, id), ordering_key FROM outbox WHERE event_id = ?",
            (_text(event_id, "compensates"),),
        ).fetchone()
        if row is None:
            raise OutboxError("not_found", "there is no event to compensate")
        if row[1] != ordering_key:
            _refuse("a compensation has the ordering key of what it undoes")
        return int(row[0])

    def _known(self, db: sqlite3.Connection, event_id: str, sha256: str) -> int:
        row = db.execute("SELECT id, sha256 FROM outbox WHERE event_id = ?", (event_id,)).fetchone()
        if row[1] != sha256:
            raise OutboxError("event_conflict")
        return int(row[0])

    def _recover(self, db: sqlite3.Connection, now: int) -> None:
        """Make the rows of dead leases pending again; a compensation may have come before them meanwhile."""
        dead = "status = 'claimed' AND lease_until <= ?"
        keys = [row[0] for row in db.execute(f"SELECT ordering_key FROM outbox WHERE {dead}", (now,))]
        if keys:
            db.execute(f"UPDATE outbox SET status = 'pending', lease_until = NULL WHERE {dead}", (now,))
            _next_turn(db, keys)

    def _retry_at(self, now: int, verdict: Verdict) -> int:
        return now + _ms(_seconds(self._delay(verdict.message.attempts + 1), "delay", 0))

    def _move(self, event_id: str, status: str, change: str) -> None:
        """Move one row by hand out of the status that it must have; the rest of its key moves up."""
        _text(event_id, "event_id")
        with self.database.write() as db:
            now = self._now_ms()
            row = db.execute(
                "SELECT status, ordering_key, ended_at FROM outbox WHERE event_id = ?", (event_id,)
            ).fetchone()
            if row is None:
                raise OutboxError("not_found")
            if row[0] != status:
                raise OutboxError("wrong_status", row[0])
            if change.startswith("status = 'pending'") and now - row[2] >= _ms(self.horizon_s):
                raise OutboxError("replay_too_late")
            db.execute(f"UPDATE outbox SET {change} WHERE event_id = :event_id", {"now": now, "event_id": event_id})
            _next_turn(db, [row[1]])

    def _upkeep(self, change: str, statuses: tuple[str, ...], before: int, limit: int) -> int:
        _whole(limit, "limit", 1, MAX_LIMIT)
        changed = 0
        with self.database.write() as db:
            for status in statuses:
                changed += db.execute(
                    f"{change} WHERE id IN (SELECT id FROM outbox WHERE status = ? AND ended_at IS NOT NULL"
                    " AND ended_at <= ? ORDER BY ended_at, id LIMIT ?)",
                    (status, before, limit),
                ).rowcount
        return changed

    def _now_ms(self) -> int:
        return _ms(_number(self._clock(), "the clock"))


class Relay:
    """Sends what the outbox holds: claim, send outside any transaction, mark.

    `send`: delivers one message. `limit`, `lease_s`: as in `Outbox.claim`. `interval_s`: sleep of an
    idle relay, through `sleep`. `transport_errors`: what says that nobody was reached. `permanent`:
    what says that this message will never be taken. `pause`: from the number of failed probes to
    seconds. `on_error`: told of a pass that failed. Any number of relays may share a file, each with
    an `Outbox` of its own.
    """

    def __init__(
        self,
        outbox: Outbox,
        send: Send,
        *,
        limit: int = BATCH_LIMIT,
        lease_s: float = LEASE_S,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        pause: Callable[[int], float] | None = None,
        transport_errors: tuple[type[Exception], ...] = (TransportDown, ConnectionError),
        permanent: tuple[type[Exception], ...] = (PermanentRefusal,),
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._outbox, self._send = outbox, send
        self._limit, self._lease_s = _whole(limit, "limit", 1, MAX_LIMIT), _seconds(lease_s, "lease_s", 0.001)
        self._interval_s = _seconds(interval_s, "interval_s", 0.001)
        self._clock, self._sleep = clock, sleep
        self._pause = growing_delay(max_s=30.0) if pause is None else pause
        self._transport_errors, self._permanent, self._on_error = transport_errors, permanent, on_error
        self._probes_failed = 0
        self._paused_until = 0.0
        self._unmarked: tuple[Batch, list[Verdict]] | None = None
        self._marked = asyncio.Event()

    async def run_pass(self) -> PassReport:
        """Claim one batch, send it in order and mark it; return what happened.

        Each message stands alone: one that is refused stops no other. When the transport is down the
        rest is given back, the relay pauses, and after the pause one message is the probe. A mark that
        could not be stored is tried again before the next claim.

        Raises `StoreError`, and `CancelledError` when it is cancelled (what was sent is marked first).
        """
        self._mark_what_is_owed()
        if self._probes_failed and self._clock() < self._paused_until:
            return PassReport(paused=True)
        batch = self._outbox.claim(1 if self._probes_failed else self._limit, self._lease_s)
        if batch is None:
            return PassReport()
        verdicts: list[Verdict] = []
        self._unmarked = (batch, verdicts)
        try:
            await self._send_batch(batch, verdicts)
        except BaseException:
            try:
                self._mark_what_is_owed()
            except StoreError:
                pass  # it stays owed, and the end of the lease gives it to the next claim
            raise
        return self._mark_what_is_owed()

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop` is set; sleep only when there was nothing to do or a pass failed.

        A pass that fails is reported to `on_error` and the loop goes on. Source: I4-056, I4-059.
        """
        while not stop.is_set():
            try:
                report = await self.run_pass()
            except Exception as error:
                report = PassReport()
                self._report(error)
            if report.sent + report.refused + report.dead == 0:
                await self._sleep_or(stop, self._interval_s)
            else:
                await asyncio.sleep(0)

    async def wait_for(self, event_id: str, timeout_s: float) -> str:
        """Return the status of a message once it is sent or dead, or after `timeout_s` seconds as it is.

        The row is the truth; the relay's mark only wakes the reader earlier than the interval would.
        Raises `OutboxError`: `not_found`, `bad_input`. Source: I4-063.
        """
        left = _seconds(timeout_s, "timeout_s", 0)
        while True:
            marked = self._marked
            status: str = self._outbox.status(event_id)["status"]
            if status not in ("pending", "claimed") or left <= 0:
                return status
            pause = min(self._interval_s, left)
            left -= pause
            await self._sleep_or(marked, pause)

    async def _send_batch(self, batch: Batch, verdicts: list[Verdict]) -> None:
        for message in batch.messages:
            if not self._outbox.has_time(batch):
                return
            try:
                await self._send(message.topic, message.payload, key=message.event_id)
            except self._transport_errors:
                self._probes_failed += 1
                self._paused_until = self._clock() + self._pause(self._probes_failed)
                return
            except self._permanent as error:
                verdicts.append(Verdict(message, "refused_for_good", _short(error)))
            except Exception as error:
                verdicts.append(Verdict(message, "refused", _short(error)))
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                verdicts.append(Verdict(message, "refused", _short(error)))  # nobody cancelled us
            else:
                verdicts.append(Verdict(message, "sent"))
            self._probes_failed = 0

    def _mark_what_is_owed(self) -> PassReport:
        if self._unmarked is None:
            return PassReport()
        batch, verdicts = self._unmarked
        judged = {verdict.message.id for verdict in verdicts}
        rest = [Verdict(message, "not_tried") for message in batch.messages if message.id not in judged]
        report = self._outbox.mark(batch, [*verdicts, *rest])
        self._unmarked = None
        self._marked.set()
        self._marked = asyncio.Event()
        return report

    def _report(self, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(error)

    async def _sleep_or(self, event: asyncio.Event, seconds: float) -> None:
        sleeper = asyncio.ensure_future(self._sleep(seconds))
        waiter = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleeper, waiter):
                task.cancel()
            await asyncio.gather(sleeper, waiter, return_exceptions=True)


class OutboxWriter:
    """The document's writer: a business write and its message in one transaction."""

    def __init__(self, database: Database, outbox: Outbox, *, topic: str = "events") -> None:
        if outbox.database is not database:
            _refuse("outbox and business tables are in one database")
        self._database = database
        self.outbox = outbox
        self._topic = _text(topic, "topic")

    async def do_business_and_record(
        self,
        business_fn: Callable[[sqlite3.Connection], Any],
        event_payload: Any,
        *,
        event_id: str | None = None,
        topic: str | None = None,
        ordering_key: str | None = None,
        priority: int = 0,
        compensates: str | None = None,
    ) -> str:
        """Run `business_fn(connection)` and record its message, both or neither; return the event id.

        Without `event_id` it is derived from topic and payload: a repeat after an unclear commit is the
        same event, and a second equal intent needs an id of its own. A known event runs nothing.

        The method is `async` as in the document, yet nothing is awaited while the write lock is held:
        `business_fn` is a plain function, and one that wants to be awaited is refused and rolled back.

        Raises as `Outbox.record`, and what `business_fn` raises. Source: I4-053, I4-054, I4-101.
        """
        where = self._topic if topic is None else _text(topic, "topic")
        text, sha256 = _content(where, event_payload, ordering_key, compensates)
        name = derive_event_id(where, text_digest(text)) if event_id is None else _text(event_id, "event_id")
        with self._database.write() as db:
            if db.execute("SELECT 1 FROM outbox WHERE event_id = ?", (name,)).fetchone() is not None:
                self.outbox._known(db, name, sha256)
                return name
            answer = business_fn(db)
            if inspect.isawaitable(answer):
                if inspect.iscoroutine(answer):
                    answer.close()
                _refuse("a business function inside a transaction is not awaited")
            self.outbox.record(
                db,
                where,
                event_payload,
                event_id=name,
                ordering_key=ordering_key,
                priority=priority,
                compensates=compensates,
            )
        return name


async def outbox_worker(writer: OutboxWriter, producer: Producer, *, stop: asyncio.Event, **relay: Any) -> None:
    """The document's worker: relay what `writer` records through `producer.send` until `stop` is set.

    `relay`: further parameters of `Relay`. Source: I4-056.
    """
    await Relay(writer.outbox, producer.send, **relay).run(stop)


class Consumer:
    """The receiving side: each event has one effect, however often it is delivered.

    `place`: a `Database` that has `INBOX_TABLES` among its migrations, where the effects are made too,
    or a path. `name`: one consumer's own memory. `retention_s`: how long an event is remembered, not
    below `horizon_s`, the longest time between two deliveries (replays, restarts and brokers included).

    Raises `OutboxError`: `retention_too_short`, `bad_input`; every method may raise `StoreError`.
    Source: I4-060.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Database,
        name: str,
        *,
        retention_s: float = 2 * HORIZON_S,
        horizon_s: float = HORIZON_S,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._name, self._clock = _text(name, "name"), clock
        self._retention_s = _seconds(retention_s, "retention_s", 1)
        if self._retention_s < _seconds(horizon_s, "horizon_s", 1):
            raise OutboxError("retention_too_short")
        self._owned = not isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(
                place, application_id=INBOX_APPLICATION_ID, migrations=(INBOX_TABLES,), busy_seconds=busy_seconds
            )
        self.database = place

    def close(self) -> None:
        """Close the file if this consumer opened it; a second close does nothing."""
        if self._owned:
            self.database.close()

    def handle(self, event_id: str, effect: Callable[[sqlite3.Connection], object]) -> bool:
        """Make the effect of an event in this database if it is new; return whether it was. One commit.

        If `effect` raises, nothing is stored and the event may be delivered again.
        Raises `OutboxError` (`bad_input`), and what `effect` raises.
        """
        with self.database.write() as db:
            if not self.first_time_in(db, event_id):
                return False
            answer = effect(db)
            if inspect.isawaitable(answer):
                if inspect.iscoroutine(answer):
                    answer.close()
                _refuse("an effect inside a transaction is not awaited")
            return True

    def first_time_in(self, db: sqlite3.Connection, event_id: str) -> bool:
        """Remember an event in the caller's open transaction; False if it is known.

        Raises `OutboxError`: `no_transaction`, `bad_input`.
        """
        _need_transaction(db)
        return (
            db.execute(
                "INSERT INTO inbox (consumer, event_id, handled_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (self._name, _text(event_id, "event_id"), _ms(_number(self._clock(), "the clock"))),
            ).rowcount
            == 1
        )

    def sweep(self, limit: int = MAX_LIMIT) -> int:
        """Forget events that were handled longer than `retention_s` ago; return how many."""
        before = _ms(_number(self._clock(), "the clock") - self._retention_s)
        with self.database.write() as db:
            rows = db.execute(
                "SELECT consumer, event_id FROM inbox WHERE handled_at <= ? ORDER BY handled_at LIMIT ?",
                (before, _whole(limit, "limit", 1, MAX_LIMIT)),
            ).fetchall()
            db.executemany("DELETE FROM inbox WHERE consumer = ? AND event_id = ?", rows)
        return len(rows)


# A saga --------------------------------------------------------------------------------------


async def saga_demonstration(path: str | os.PathLike[str] = ":memory:") -> dict[str, Any]:
    """Play a saga and return `{timeline, sends, effects, balance_cents}`; it has no clock and no chance.

    Order 7 is charged; a later charge of the same key is recorded; shipping fails, so the first charge
    is refunded, asked for twice. The relay dies after sending the refund and before marking it, so the
    refund is sent again. Only the first delivery has an effect, and it comes before the later charge.
    Source: I4-064, I4-094, I4-095.
    """
    now = [0.0]
    timeline: list[dict[str, Any]] = []
    tables = "CREATE TABLE ledger (event_id TEXT PRIMARY KEY, cents INTEGER NOT NULL);"
    database = Database(path, application_id=APPLICATION_ID, migrations=(TABLES, INBOX_TABLES, tables))
    try:
        outbox = Outbox(database, clock=lambda: now[0], delay=lambda failures: 1.0)
        bank = Consumer(database, "bank", clock=lambda: now[0])

        def say(what: str, event_id: str) -> None:
            timeline.append({"at": now[0], "what": what, "event": event_id})

        def record(event_id: str, cents: int, compensates: str | None = None) -> None:
            with database.write() as db:
                outbox.record(
                    db, "payments", {"cents": cents}, event_id=event_id, ordering_key="order-7", compensates=compensates
                )
            say("recorded", event_id)

        async def send(topic: str, payload: str, *, key: str) -> None:
            cents = json.loads(payload)["cents"]
            fresh = bank.handle(key, lambda db: db.execute("INSERT INTO ledger VALUES (?, ?)", (key, cents)))
            say("delivered" if fresh else "dropped as known", key)

        record("charge-1", -1000)
        await Relay(outbox, send).run_pass()
        now[0] = 1.0
        record("charge-2", -500)
        say("shipping failed", "charge-1")
        record("refund-1", 1000, compensates="charge-1")
        record("refund-1", 1000, compensates="charge-1")
        batch = outbox.claim(lease_s=5)
        assert batch is not None
        for message in batch.messages:
            await send(message.topic, message.payload, key=message.event_id)
        say("relay died before its mark", batch.messages[0].event_id)
        now[0] = 6.0
        relay = Relay(outbox, send)
        while (await relay.run_pass()).claimed:
            pass
        effects = database.rows("SELECT event_id, cents FROM ledger ORDER BY rowid LIMIT 100")
    finally:
        database.close()
    return {
        "timeline": timeline,
        "sends": [line["event"] for line in timeline if line["what"] in ("delivered", "dropped as known")],
        "effects": [event_id for event_id, _ in effects],
        "balance_cents": sum(cents for _, cents in effects),
    }


# Rows ----------------------------------------------------------------------------------------


def _content(topic: str, payload: Any, ordering_key: str | None, compensates: str | None) -> tuple[str, str]:
    """Return the canonical text of a payload and the digest of all that a receiver could tell apart."""
    try:
        text = canonical(payload)
        frame = canonical([topic, ordering_key, compensates])
    except CanonicalError as error:
        raise OutboxError("bad_input", f"the payload: {error.reason}") from error
    if len(text.encode("utf-8")) > MAX_PAYLOAD_BYTES:
        _refuse(f"the payload exceeds {MAX_PAYLOAD_BYTES} bytes")
    return text, text_digest(frame + text)


def _change(db: sqlite3.Connection, sql: str, rows: Sequence[tuple[object, ...]]) -> int:
    return db.executemany(sql, rows).rowcount if rows else 0


def _next_turn(db: sqlite3.Connection, keys: Iterable[str | None]) -> None:
    """Give the turn of each key to the first row of its queue, unless a row of it is in flight."""
    names = {key for key in keys if key is not None}
    if names:
        db.executemany(_STAND_BACK, [(name,) for name in names])
        _elect(db, names)


def _elect(db: sqlite3.Connection, keys: Iterable[str | None]) -> None:
    """Give the turn of each key to the first row of its queue, unless some row has it."""
    names = [(key, key) for key in keys if key is not None]
    if names:
        db.executemany(_ELECT, names)


def _shown(row: Any) -> dict[str, Any]:
    shown = dict(zip(_STATUS_NAMES.split(), row, strict=True))
    shown["next_attempt_at"] /= 1000
    shown["created_at"] /= 1000
    shown["claimed_before"] = bool(shown["claimed_before"])
    return shown


def _short(error: BaseException) -> str:
    """Return a code or a class name: never the text of an error, which may hold anything."""
    return error.code if isinstance(error, CodedError) else type(error).__name__


# What is let in ------------------------------------------------------------------------------


def _refuse(reason: str) -> NoReturn:
    raise OutboxError("bad_input", reason)


def _need_transaction(db: sqlite3.Connection) -> None:
    if not db.in_transaction:
        raise OutboxError("no_transaction")


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
