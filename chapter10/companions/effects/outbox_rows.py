"""The rows of an outbox: recorded with the business write, claimed with a lease, marked with a fence.

`effects.outbox` says what holds (O1 to O7) and has all these names too. Here are the table, its guards, the business
side (`Outbox.record`, `OutboxWriter`), the side of the relay (`claim`, `mark`) and the upkeep.

    record ---> pending ---> claimed ---> sent ---> archived ---> forgotten
                  |  ^          |  refused or held: pending again, later, behind what is fresh
                  |  +----------+  its relay died: pending again, and claimed apart from others
        withdrawn +             +--> dead ---> replay: pending, discard: archived
                                     what undoes a skipped one: waiting ---> pending or withdrawn with it

Source: the document on interruption, section 6 (claims I4-052 to I4-068, I4-094, I4-101; X-05, X-20, X-49).
"""

from __future__ import annotations

import inspect
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, Final, Literal

from chapter10.canonical import canonical, text_digest
from chapter10.companions.basics.locks import off_the_loop
from chapter10.companions.effects.messages import (
    BATCH_LIMIT,
    HORIZON_S,
    LEASE_S,
    MAX_LIMIT,
    MAX_TEXT,
    Batch,
    Delivery,
    Message,
    OutboxError,
    PassReport,
    derive_event_id,
    growing_delay,
    json_of,
    milliseconds,
    need_transaction,
    number,
    refuse,
    seconds,
    text_of,
    whole,
)
from chapter10.database import BUSY_SECONDS, Database, StoreError
from chapter10.limits import is_unicode

__all__ = [
    "AGEING_S",
    "APPLICATION_ID",
    "DEAD_ALARM",
    "FEW",
    "GIVE_UP_S",
    "MAX_ATTEMPTS",
    "MAX_PAYLOAD_BYTES",
    "MAX_PRIORITY",
    "OVERDUE_S",
    "PATIENCE_S",
    "PENDING_ALARM",
    "STATUSES",
    "TABLES",
    "Outbox",
    "OutboxWriter",
]

STATUSES: Final = ("pending", "claimed", "waiting", "sent", "dead", "archived", "withdrawn")

MAX_ATTEMPTS: Final = 8
"""Attempts after which a message is dead, the first included. The document leaves the number open."""
PATIENCE_S: Final = 3600
"""Seconds from its first claim in which refusals bury no message: they may be the receiver's outage."""
GIVE_UP_S: Final = 3 * 86_400
"""Seconds from its first claim after which a message that still reaches nobody is dead."""
OVERDUE_S: Final = 900
"""Seconds from its first claim after which a message that is still pending raises an alarm."""
FEW: Final = 4
"""Rows of a relay that died that are tried together."""
PENDING_ALARM: Final = 10_000
"""More pending rows than this raise an alarm (I4-067)."""
DEAD_ALARM: Final = 100
"""More dead rows than this need a person (I4-068)."""
AGEING_S: Final = 60
"""Seconds of waiting that one level of priority is worth."""
MAX_PRIORITY: Final = 1000
MAX_PAYLOAD_BYTES: Final = 256 * 1024
"""Bytes of the canonical form of a payload."""

APPLICATION_ID: Final = 0x4348314F  # "CH1O"

TABLES: Final = """
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        event_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        payload TEXT,                      -- canonical JSON; NULL once archived
        sha256 TEXT NOT NULL,              -- of topic, key, compensated event and payload
        ordering_key TEXT,
        anchor INTEGER,                    -- of a compensation: the place of what it undoes
        undoes INTEGER,                    -- of a compensation: the row that it undoes
        priority INTEGER NOT NULL,
        rank INTEGER NOT NULL,             -- created_at less the waiting that the priority is worth
        turn INTEGER,                      -- 1: first of its key, 0: waits behind another, NULL: finished
        status TEXT NOT NULL,
        attempts INTEGER NOT NULL,         -- tries of this message, counted when it is claimed
        misses INTEGER NOT NULL,           -- times that it was put off, since nobody was reached
        suspect INTEGER NOT NULL,          -- 1: its relay died, with others in flight; 2: with few, so it goes alone
        first_claimed_at INTEGER,
        next_attempt_at INTEGER NOT NULL,  -- milliseconds, as all times here
        noted_at INTEGER NOT NULL,         -- when that was set, by the clock of then
        fence INTEGER NOT NULL,            -- of the last batch that had it, 0 before the first
        lease_until INTEGER,
        lease INTEGER NOT NULL,            -- how long the last lease was
        last_error TEXT,
        created_at INTEGER NOT NULL,
        ended_at INTEGER,                  -- when it became sent, dead, archived or withdrawn
        CONSTRAINT status_is_known CHECK (
            status IN ('pending', 'claimed', 'waiting', 'sent', 'dead', 'archived', 'withdrawn')),
        CONSTRAINT lease_while_claimed CHECK ((lease_until IS NOT NULL) = (status = 'claimed')),
        CONSTRAINT claimed_in_turn CHECK (status <> 'claimed' OR turn = 1),
        CONSTRAINT unfinished_has_turn CHECK (status NOT IN ('pending', 'claimed') OR turn IS NOT NULL),
        CONSTRAINT finished_has_none CHECK (status NOT IN ('waiting', 'sent', 'archived', 'withdrawn') OR turn IS NULL),
        CONSTRAINT ended_or_not CHECK ((ended_at IS NULL) = (status IN ('pending', 'claimed', 'waiting'))),
        CONSTRAINT payload_until_archived CHECK ((payload IS NULL) = (status = 'archived')),
        CONSTRAINT one_row_per_event UNIQUE (event_id)
    );
    CREATE INDEX outbox_due ON outbox (turn, rank, id) WHERE status = 'pending';
    CREATE INDEX outbox_overdue ON outbox (first_claimed_at) WHERE status = 'pending' AND first_claimed_at IS NOT NULL;
    CREATE INDEX outbox_claimed ON outbox (lease_until) WHERE status = 'claimed';
    CREATE INDEX outbox_queue ON outbox (ordering_key, coalesce(anchor, id), id)
        WHERE ordering_key IS NOT NULL AND turn IS NOT NULL;
    CREATE INDEX outbox_undone ON outbox (undoes) WHERE undoes IS NOT NULL;
    CREATE UNIQUE INDEX one_turn_per_key ON outbox (ordering_key) WHERE ordering_key IS NOT NULL AND turn = 1;
    CREATE INDEX outbox_ended ON outbox (status, ended_at, id) WHERE ended_at IS NOT NULL;
    CREATE TABLE outbox_fence (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        last INTEGER NOT NULL
    );
    INSERT INTO outbox_fence VALUES (1, 0);
"""
"""One migration for `Database`, to stand among the business database's own."""

_QUEUED: Final = "ordering_key = ? AND turn IS NOT NULL"
_RECORD: Final = (
    "INSERT INTO outbox (event_id, topic, payload, sha256, ordering_key, anchor, undoes, priority, rank, turn, status,"
    " attempts, misses, suspect, next_attempt_at, fence, lease, noted_at, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?,"
    # A new row is the last of its key, so it has its turn if nobody else is in the queue.
    f" NOT EXISTS (SELECT 1 FROM outbox WHERE {_QUEUED}), 'pending', 0, 0, 0, ?, 0, 0, ?, ?)"
)
_DUE: Final = (
    "SELECT suspect, id, event_id, topic, payload, ordering_key, attempts, misses,"
    " coalesce(first_claimed_at, ?) / 1000.0"
    " FROM outbox WHERE status = 'pending' AND turn = 1 AND next_attempt_at <= ? ORDER BY rank, id LIMIT ?"
)
_CLAIM: Final = (
    "UPDATE outbox SET status = 'claimed', attempts = attempts + 1, lease_until = ?, lease = ?, fence = ?,"
    " first_claimed_at = coalesce(first_claimed_at, ?) WHERE id = ?"
)
_IS_OURS: Final = "id = ? AND status = 'claimed' AND fence = ?"
_SENT: Final = f"UPDATE outbox SET status = 'sent', turn = NULL, lease_until = NULL, ended_at = ? WHERE {_IS_OURS}"
_GIVE_BACK: Final = (
    f"UPDATE outbox SET status = 'pending', lease_until = NULL, attempts = attempts - 1 WHERE {_IS_OURS}"
)
# What was tried is due later and then stands behind what was recorded before that: a priority is for the first try.
_LATER: Final = (
    "UPDATE outbox SET status = 'pending', lease_until = NULL, next_attempt_at = :due, rank = max(rank, :due),"
    " noted_at = :now"
)
_RETRY: Final = (
    f"{_LATER}, suspect = 0, last_error = coalesce(nullif(:error, ''), last_error)"
    " WHERE id = :id AND status = 'claimed' AND fence = :fence"
)
_HOLD: Final = _RETRY.replace("suspect = 0", "suspect = 0, misses = misses + 1, attempts = attempts - 1")
_BURY: Final = (
    "UPDATE outbox SET status = 'dead', lease_until = NULL,"
    " last_error = coalesce(nullif(?, ''), last_error, 'held'), ended_at = ?,"
    f" turn = CASE WHEN ? THEN 1 END WHERE {_IS_OURS}"
)
_LEASE_OVER: Final = "status = 'claimed' AND lease_until <= ?"
_TOO_LONG: Final = "UPDATE outbox SET lease_until = ? + lease WHERE status = 'claimed' AND lease_until > ? + lease"
# A wait is what was asked for from now on: the clock may have been ahead when it began.
_FROM_AHEAD: Final = (
    "UPDATE outbox SET next_attempt_at = next_attempt_at - noted_at + :now, rank = rank - noted_at + :now,"
    " first_claimed_at = min(first_claimed_at, :now), noted_at = :now"
    " WHERE status = 'pending' AND turn = 1 AND rank > :now AND noted_at > :now"
)
# What undoes the row :id and what undoes that, as far as it is in one of two states, goes to another one.
_WITH_IT: Final = (
    "WITH RECURSIVE undoing (id) AS (VALUES (:id) UNION"
    " SELECT outbox.id FROM outbox JOIN undoing ON outbox.undoes = undoing.id WHERE outbox.undoes IS NOT NULL)"
    " UPDATE outbox SET {change} WHERE status = '{state}' AND id IN (SELECT id FROM undoing)"
)
_LET_WAIT: Final = _WITH_IT.format(change="status = 'waiting', turn = NULL", state="pending")
_WAKE: Final = _WITH_IT.format(change="status = 'pending', turn = 0", state="waiting")
_TAKE_ALONG: Final = tuple(
    _WITH_IT.format(change="status = 'withdrawn', turn = NULL, ended_at = :now", state=state)
    for state in ("waiting", "pending")
)
_STAND_BACK: Final = "UPDATE outbox SET turn = 0 WHERE ordering_key = ? AND turn = 1 AND status <> 'claimed'"
_ELECT: Final = (
    f"UPDATE outbox SET turn = 1 WHERE id = (SELECT id FROM outbox WHERE {_QUEUED}"
    " ORDER BY coalesce(anchor, id), id LIMIT 1)"
    " AND NOT EXISTS (SELECT 1 FROM outbox WHERE ordering_key = ? AND turn = 1)"
)
_STATUS: Final = (
    "SELECT id, event_id, topic, ordering_key, priority, status, attempts, misses, next_attempt_at, last_error,"
    " created_at, fence > 0 FROM outbox"
)
_UNSETTLED: Final = "status IN ('claimed', 'waiting') OR (status = 'pending' AND (turn = 0 OR next_attempt_at > ?))"
_STATUS_NAMES: Final = (
    "id event_id topic ordering_key priority status attempts misses next_attempt_at last_error created_at"
    " claimed_before"
)


class Outbox:
    """Messages in the database of the business that records them; see the module for what it promises.

    `place`: a `Database` that has `TABLES` among its migrations, or a path for a file of its own.
    `clock`: seconds, one clock for all users of the file. `delay`: from the number of attempts to seconds.
    A message dies by rule: refused for good at once; refused `max_attempts` times, but not in its first
    `patience_s` seconds; reaching nobody for `give_up_s` seconds; in flight alone when its relay died, as its
    `max_attempts`-th attempt or a later one. `when_dead`: `block` or `skip`. What undoes a dead message goes no
    way of its own: it waits until that is replayed, and is withdrawn when that is discarded.
    `horizon_s`: a dead message is replayed only this long after its death.

    Every method may raise `StoreError` besides what it names.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Database,
        *,
        clock: Callable[[], float] = time.time,
        max_attempts: int = MAX_ATTEMPTS,
        patience_s: float = PATIENCE_S,
        give_up_s: float = GIVE_UP_S,
        delay: Callable[[int], float] | None = None,
        when_dead: Literal["block", "skip"] = "block",
        horizon_s: float = HORIZON_S,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._clock = clock
        self._max_attempts = whole(max_attempts, "max_attempts", 1, 1000)
        self._patience = milliseconds(seconds(patience_s, "patience_s", 0))
        self._give_up = milliseconds(seconds(give_up_s, "give_up_s", 1))
        self._delay = growing_delay() if delay is None else delay
        rule: object = when_dead  # a wrong one may be of any type, also of one that cannot be compared
        if type(rule) is not str or rule not in ("block", "skip"):
            refuse("when_dead is neither block nor skip")
        self._block = when_dead == "block"
        self.horizon_s = seconds(horizon_s, "horizon_s", 1)
        self._owned = not isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(place, application_id=APPLICATION_ID, migrations=(TABLES,), busy_seconds=busy_seconds)
        self.database = place
        try:
            place.row("SELECT undoes, noted_at FROM outbox LIMIT 0")  # a file from before is named now, not at a write
        except StoreError:
            self.close()
            raise

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *_: object) -> None:
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
        `event_conflict`, `not_found` (what is to be compensated), `wrong_status` (the event, or what is to be
        compensated, was withdrawn or discarded: nothing of it would ever be sent).
        Source: I4-053 to I4-055, I4-061, I4-065.
        """
        need_transaction(db)
        for value, name in ((topic, "topic"), (event_id, "event_id")):
            text_of(value, name)
        if ordering_key is not None:
            text_of(ordering_key, "ordering_key")
        whole(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
        if compensates is not None:
            text_of(compensates, "compensates")
        text, sha256 = _content(topic, payload, ordering_key, compensates)
        later = milliseconds(seconds(delay_s, "delay_s", 0))
        if db.execute("SELECT 1 FROM outbox WHERE event_id = ?", (event_id,)).fetchone() is not None:
            return self._known(db, event_id, sha256)
        undone = None if compensates is None else _undone(db, compensates, ordering_key)
        anchor, undoes, waits = (None, None, False) if undone is None else undone
        now = self._now_ms()
        rank = now - priority * AGEING_S * 1000
        place = (ordering_key, anchor, undoes, priority, rank, ordering_key)
        row_id = db.execute(_RECORD, (event_id, topic, text, sha256, *place, now + later, now, now)).lastrowid
        assert row_id is not None
        if waits:
            db.execute(_LET_WAIT, {"id": row_id})
        if undone is not None:
            _next_turn(db, [ordering_key])
        return row_id

    def withdraw(self, event_id: str) -> None:
        """Take back a message that is pending or waiting, and what undoes it.

        What was claimed before may have been delivered: `status` says so in `claimed_before`, and then
        only another message undoes it; such a message stays.

        Raises `OutboxError`: `not_found`, `wrong_status`.
        """
        self._move(event_id, ("pending", "waiting"), "status = 'withdrawn', turn = NULL, ended_at = :now")

    # The relay's side ------------------------------------------------------------------------

    def claim(self, limit: int = BATCH_LIMIT, lease_s: float = LEASE_S) -> Batch | None:
        """Take due rows that have their turn, lowest rank first; None if there is none. One commit.

        Each is charged its attempt now, so that a relay that dies has paid. Rows of a relay whose lease is over come
        back first. They are suspects from then on, claimed apart, `FEW` together or, if that was deadly too, one alone,
        until a relay survives it.
        Raises `OutboxError` (`bad_input`).
        """
        whole(limit, "limit", 1, MAX_LIMIT)
        lease = milliseconds(seconds(lease_s, "lease_s", 0.001))
        with self.database.write() as db:
            now = self._now_ms()
            self._recover(db, now)
            rows = db.execute(_DUE, (now, now, limit)).fetchall()
            if not rows:
                return None
            level = rows[0][0]
            taken = list(takewhile(lambda row: row[0] == level, rows[: (limit, FEW, 1)[level]]))
            messages = tuple(Message(*row[1:]) for row in taken)
            db.execute("UPDATE outbox_fence SET last = last + 1")
            fence: int = db.execute("SELECT last FROM outbox_fence").fetchone()[0]
            db.executemany(_CLAIM, [(now + lease, lease, fence, now, message.id) for message in messages])
        return Batch(fence, (now + lease) / 1000, messages, apart=level > 0)

    def has_time(self, batch: Batch, needed_s: float = 0.0) -> bool:
        """Say whether the batch's lease runs for more than `needed_s` seconds; nothing of it is sent afterwards."""
        return self._now_ms() + milliseconds(needed_s) < milliseconds(batch.lease_until)

    def mark(self, batch: Batch, deliveries: Sequence[Delivery]) -> PassReport:
        """Store how the messages of a batch fared. One commit; a row that is no longer ours is left alone.

        Raises `OutboxError` (`bad_input`).
        """
        kinds: dict[str, list[Delivery]] = {
            kind: [] for kind in ("sent", "refused", "refused_for_good", "held", "not_tried")
        }
        for each in deliveries:
            if type(each) is not Delivery or type(each.kind) is not str or each.kind not in kinds:
                refuse("not a delivery")
            if type(each.error) is not str or not is_unicode(each.error):
                refuse("the error of a delivery is not a text")
            seconds(each.wait_s, "wait_s", 0)
        with self.database.write() as db:
            now, fence = self._now_ms(), batch.fence
            for each in deliveries:
                kinds["refused_for_good" if self._is_over(each, now) else each.kind].append(each)
            sent = _change(db, _SENT, [(now, each.message.id, fence) for each in kinds["sent"]])
            back = _change(db, _GIVE_BACK, [(each.message.id, fence) for each in kinds["not_tried"]])
            held = _change(db, _HOLD, [_put_off(each, now, each.wait_s, fence) for each in kinds["held"]])
            retries = [_put_off(each, now, self._delay_s(each), fence) for each in kinds["refused"]]
            refused = _change(db, _RETRY, retries)
            dead = sum(
                self._bury(db, each.error[:MAX_TEXT], now, each.message.id, fence) for each in kinds["refused_for_good"]
            )
            # A row that was sent has left its turn to the next; any other may have to stand back for it.
            kept = {each.message.ordering_key for each in deliveries if each.kind != "sent"}
            _next_turn(db, kept)
            _elect(db, {each.message.ordering_key for each in kinds["sent"]} - kept)
        lost = len(deliveries) - sent - back - held - refused - dead
        return PassReport(len(batch.messages), sent, refused, dead, back + held, lost, held=held)

    # Looking and upkeep ----------------------------------------------------------------------

    def status(self, event_id: str) -> dict[str, Any]:
        """Return `{id, event_id, topic, ordering_key, priority, status, attempts, misses, next_attempt_at, last_error,
        created_at, claimed_before}`; times in seconds.

        Raises `OutboxError`: `not_found`, `bad_input`.
        """
        row = self.database.row(f"{_STATUS} WHERE event_id = ?", (text_of(event_id, "event_id"),))
        if row is None:
            raise OutboxError("not_found")
        return _shown(row)

    def dead(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return dead messages as `status` shows them, the longest dead first. Raises `bad_input`."""
        whole(limit, "limit", 1, MAX_LIMIT)
        rows = self.database.rows(f"{_STATUS} WHERE status = 'dead' ORDER BY ended_at, id LIMIT ?", (limit,))
        return [_shown(row) for row in rows]

    def unsettled(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return what has neither ended nor may be claimed now, as `status` shows it, in the order of recording.

        That is what a relay has or died with, what was put off, what stands behind another row of its key and what
        waits with one that is dead. Raises `OutboxError` (`bad_input`).
        """
        whole(limit, "limit", 1, MAX_LIMIT)
        rows = self.database.rows(f"{_STATUS} WHERE {_UNSETTLED} ORDER BY id LIMIT ?", (self._now_ms(), limit))
        return [_shown(row) for row in rows]

    def release(self, event_id: str) -> None:
        """Make a message that was claimed or put off due now, by hand; the mark of whoever has it counts no more.

        One that was claimed may have been delivered, and is sent again. Raises `OutboxError`: `not_found`,
        `wrong_status`.
        """
        self._move(
            event_id,
            ("pending", "claimed"),
            "status = 'pending', lease_until = NULL, next_attempt_at = :now, noted_at = :now, rank = min(rank, :now)",
        )

    def replay(self, event_id: str) -> None:
        """Make a dead message pending again, due now, with all its attempts, in its old place; what undoes it follows.

        Raises `OutboxError`: `not_found`, `wrong_status`, and `replay_too_late` after the horizon: a
        refused message may have been delivered after all, and receivers remember only so long.
        """
        self._move(
            event_id,
            ("dead",),
            "status = 'pending', attempts = 0, misses = 0, suspect = 0, first_claimed_at = NULL,"
            " next_attempt_at = :now, noted_at = :now, ended_at = NULL,"
            " turn = CASE WHEN ordering_key IS NULL THEN 1 ELSE 0 END",
        )

    def discard(self, event_id: str) -> None:
        """Give a dead message up as never delivered, and what undoes it; its key goes on.

        Raises `OutboxError`: `not_found`, `wrong_status`.
        """
        self._move(event_id, ("dead",), "status = 'archived', payload = NULL, turn = NULL, ended_at = :now")

    def archive(self, older_than_s: float, limit: int = MAX_LIMIT) -> int:
        """Drop the payload of messages that were sent at least `older_than_s` seconds ago; return how many.

        Nothing but sent messages is touched. Raises `OutboxError` (`bad_input`). Source: I4-062.
        """
        before = self._now_ms() - milliseconds(seconds(older_than_s, "older_than_s", 0))
        return self._upkeep(
            "UPDATE outbox SET status = 'archived', payload = NULL, last_error = NULL", ("sent",), before, limit
        )

    def forget(self, older_than_s: float, limit: int = MAX_LIMIT) -> int:
        """Remove archived and withdrawn rows that ended that long ago, event id and all; return how many.

        Raises `OutboxError`: `bad_input`, `retention_too_short` below the horizon.
        """
        if seconds(older_than_s, "older_than_s", 0) < self.horizon_s:
            raise OutboxError("retention_too_short")
        before = self._now_ms() - milliseconds(older_than_s)
        return self._upkeep("DELETE FROM outbox", ("archived", "withdrawn"), before, limit)

    def alarms(self) -> dict[str, Any]:
        """Return `{pending, dead, overdue, alarms}`: counts (not beyond one above a limit), and what is above one.

        Pending rows above `PENDING_ALARM` say that the relay is slow or down; dead rows above `DEAD_ALARM` need a
        person (I4-067, I4-068). One row is enough that was claimed `OVERDUE_S` ago and is still pending.
        """
        overdue = self._now_ms() - milliseconds(OVERDUE_S)
        limits = {"pending": PENDING_ALARM, "dead": DEAD_ALARM, "overdue": 0}
        wheres = {
            "pending": "status = 'pending'",
            "dead": "status = 'dead' AND ended_at IS NOT NULL",
            "overdue": f"status = 'pending' AND first_claimed_at <= {overdue}",
        }
        counts = {
            name: self.database.row(
                f"SELECT count(*) FROM (SELECT 1 FROM outbox WHERE {where} LIMIT ?)", (limits[name] + 1,)
            )[0]
            for name, where in wheres.items()
        }
        return {**counts, "alarms": [name for name, count in counts.items() if count > limits[name]]}

    # Within ----------------------------------------------------------------------------------

    def _known(self, db: sqlite3.Connection, event_id: str, sha256: str) -> int:
        row = db.execute("SELECT id, sha256, status, last_error FROM outbox WHERE event_id = ?", (event_id,)).fetchone()
        if row[1] != sha256:
            raise OutboxError("event_conflict")
        _refuse_given_up(*row[2:])
        return int(row[0])

    def _bury(self, db: sqlite3.Connection, error: str, now: int, row_id: int, fence: int) -> int:
        """Make a claimed row dead; a skipped one keeps what undoes it from going on. Return how many it was."""
        buried = db.execute(_BURY, (error, now, self._block, row_id, fence)).rowcount
        if buried and not self._block:
            db.execute(_LET_WAIT, {"id": row_id})
        return buried

    def _recover(self, db: sqlite3.Connection, now: int) -> None:
        """Make the rows of dead leases pending again, as suspects; one that was alone has killed its relay.

        A lease is never longer than a lease from now: the clock may have been ahead when it began. A compensation may
        have come before such a row meanwhile.
        """
        db.execute(_TOO_LONG, (now, now))
        db.execute(_FROM_AHEAD, {"now": now})
        rows = db.execute(
            f"SELECT id, fence, ordering_key, attempts, suspect FROM outbox WHERE {_LEASE_OVER}", (now,)
        ).fetchall()
        for row_id, fence, key, attempts, suspect in rows:
            alone = suspect == 2
            if alone and attempts >= self._max_attempts:
                self._bury(db, "relay_died", now, row_id, fence)
                db.execute("UPDATE outbox SET suspect = 2 WHERE status = 'pending' AND ordering_key = ?", (key,))
                continue
            wait = milliseconds(seconds(self._delay(attempts), "delay", 0)) if alone else 0
            kept = attempts if alone else min(attempts, self._max_attempts - 1)  # others may have been the killers
            db.execute(
                f"{_LATER}, suspect = min(suspect + 1, 2), attempts = :attempts, last_error = 'relay_died'"
                " WHERE id = :id",
                {"due": now + wait, "attempts": kept, "id": row_id, "now": now},
            )
        if rows:
            _next_turn(db, [row[2] for row in rows])

    def _is_over(self, delivery: Delivery, now: int) -> bool:
        """Say whether a message has had its tries, or its time."""
        age = now - milliseconds(delivery.message.since)
        if delivery.kind == "held":
            return age >= self._give_up
        tries = delivery.message.attempts + 1
        return delivery.kind == "refused" and tries >= self._max_attempts and age >= self._patience

    def _delay_s(self, delivery: Delivery) -> float:
        return seconds(self._delay(delivery.message.attempts + 1), "delay", 0)

    def _move(self, event_id: str, statuses: tuple[str, ...], change: str) -> None:
        """Move one row by hand out of a status that it must have; the rest of its key moves up.

        What undoes it goes along: with one that is pending again or given up, unless that may have been delivered.
        """
        text_of(event_id, "event_id")
        with self.database.write() as db:
            now = self._now_ms()
            row = db.execute(
                "SELECT status, ordering_key, ended_at, id, fence FROM outbox WHERE event_id = ?", (event_id,)
            ).fetchone()
            if row is None:
                raise OutboxError("not_found")
            if row[0] not in statuses:
                raise OutboxError("wrong_status", row[0])
            again, dead = change.startswith("status = 'pending'"), row[0] == "dead"
            if again and dead and now - row[2] >= milliseconds(self.horizon_s):
                raise OutboxError("replay_too_late")
            names = {"now": now, "id": row[3]}
            db.execute(f"UPDATE outbox SET {change} WHERE id = :id", names)
            if again:
                db.execute(_WAKE, names)
            elif dead or row[4] == 0:
                for along in _TAKE_ALONG:
                    db.execute(along, names)
            _next_turn(db, [row[1]])

    def _upkeep(self, change: str, statuses: tuple[str, ...], before: int, limit: int) -> int:
        whole(limit, "limit", 1, MAX_LIMIT)
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
        return milliseconds(number(self._clock(), "the clock"))


class OutboxWriter:
    """The document's writer: a business write and its message in one transaction."""

    def __init__(self, database: Database, outbox: Outbox, *, topic: str = "events") -> None:
        if outbox.database is not database:
            refuse("outbox and business tables are in one database")
        self._database = database
        self.outbox = outbox
        self._topic = text_of(topic, "topic")

    async def do_business_and_record(
        self,
        business_fn: Callable[[sqlite3.Connection], Any],
        event_payload: Any,
        *,
        event_id: str | None = None,
        business_key: str | None = None,
        topic: str | None = None,
        ordering_key: str | None = None,
        priority: int = 0,
        compensates: str | None = None,
    ) -> str:
        """Run `business_fn(connection)` and record its message, both or neither; return the event id.

        One of two names the event: `event_id`, or `business_key`, what the business calls this intent ("order-7 paid"),
        from which the id is derived together with the topic. A repeat after an unclear commit has the same name, is the
        same event and runs nothing. The content names nothing: two customers may say the same.

        The method is `async` as in the document, yet nothing is awaited while the write lock is held: `business_fn` is
        a plain function, and one that wants to be awaited is refused and rolled back. Another process's lock is waited
        for beside the loop, as long as the database would.

        Raises as `Outbox.record`, `business_key_needed` without a name, and what `business_fn` raises.
        Source: I4-053, I4-054, I4-101.
        """
        where = self._topic if topic is None else text_of(topic, "topic")
        if event_id is None and business_key is None:
            raise OutboxError("business_key_needed")
        if event_id is not None and business_key is not None:
            refuse("an event has one name: event_id or business_key")
        name = text_of(event_id, "event_id") if business_key is None else derive_event_id(where, business_key)
        _, sha256 = _content(where, event_payload, ordering_key, compensates)

        def both() -> str:
            with self._database.write() as db:
                if db.execute("SELECT 1 FROM outbox WHERE event_id = ?", (name,)).fetchone() is not None:
                    self.outbox._known(db, name, sha256)
                    return name
                answer = business_fn(db)
                if inspect.isawaitable(answer):
                    if inspect.iscoroutine(answer):
                        answer.close()
                    refuse("a business function inside a transaction is not awaited")
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

        return await off_the_loop(self._database, both)


def _undone(db: sqlite3.Connection, event_id: str, ordering_key: str | None) -> tuple[int, int, bool]:
    """Return the place of what is compensated in its key's queue, its row, and whether it is dead and was skipped."""
    if ordering_key is None:
        refuse("a compensation has the ordering key of what it undoes")
    row = db.execute(
        "SELECT coalesce(anchor, id), id, ordering_key, turn, fence, status, last_error FROM outbox WHERE event_id = ?",
        (event_id,),
    ).fetchone()
    if row is None:
        raise OutboxError("not_found", "there is no event to compensate")
    place, row_id, key, turn, fence, status, error = row
    if key != ordering_key:
        refuse("a compensation has the ordering key of what it undoes")
    if status != "withdrawn" or fence == 0:  # what was claimed before it was withdrawn may have been delivered
        _refuse_given_up(status, error)
    return place, row_id, status == "waiting" or (status == "dead" and turn is None)


def _refuse_given_up(status: str, last_error: str | None) -> None:
    """Raise `wrong_status` for what will never be sent. Only what was given up keeps its error in the archive."""
    if status == "withdrawn" or (status == "archived" and last_error is not None):
        raise OutboxError("wrong_status", "withdrawn" if status == "withdrawn" else "discarded")


def _content(topic: str, payload: Any, ordering_key: str | None, compensates: str | None) -> tuple[str, str]:
    """Return the canonical text of a payload and the digest of all that a receiver could tell apart."""
    text = json_of(payload, "the payload", MAX_PAYLOAD_BYTES)
    return text, text_digest(canonical([topic, ordering_key, compensates]) + text)


def _put_off(delivery: Delivery, now: int, wait_s: float, fence: int) -> dict[str, object]:
    due = now + milliseconds(wait_s)
    return {"due": due, "now": now, "error": delivery.error[:MAX_TEXT], "id": delivery.message.id, "fence": fence}


def _change(db: sqlite3.Connection, sql: str, rows: Sequence[tuple[object, ...] | dict[str, object]]) -> int:
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
