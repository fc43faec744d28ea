"""The receiving side of an outbox: each event has one effect, however often it is delivered.

The event id and the effect are stored in one transaction; the unique index decides who was first. So a crash leaves
both or neither, and two deliveries at once have one effect (O7 of `effects.outbox`). What is remembered outlives
every possible redelivery, or the set-up is refused.

What it does not do: an effect outside this database is not protected by it.
Source: the document on interruption, section 6 (claims I4-060, I4-101).
"""

from __future__ import annotations

import inspect
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from chapter10.companions.effects.messages import (
    HORIZON_S,
    MAX_LIMIT,
    OutboxError,
    milliseconds,
    need_transaction,
    number,
    refuse,
    seconds,
    text_of,
    whole,
)
from chapter10.database import BUSY_SECONDS, Database

__all__ = [
    "INBOX_APPLICATION_ID",
    "INBOX_TABLES",
    "Consumer",
]

INBOX_APPLICATION_ID: Final = 0x4348314E  # "CH1N"

INBOX_TABLES: Final = """
    CREATE TABLE inbox (
        consumer TEXT NOT NULL,
        event_id TEXT NOT NULL,
        handled_at INTEGER NOT NULL,       -- milliseconds, of the latest delivery
        CONSTRAINT handled_once PRIMARY KEY (consumer, event_id)
    ) WITHOUT ROWID;
    CREATE INDEX inbox_handled ON inbox (handled_at);
"""
"""One migration for the receiver's `Database`."""

_REMEMBER: Final = "INSERT INTO inbox (consumer, event_id, handled_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_REMEMBER_LONGER: Final = "UPDATE inbox SET handled_at = max(handled_at, ?) WHERE consumer = ? AND event_id = ?"


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
        self._name, self._clock = text_of(name, "name"), clock
        self._retention_s = seconds(retention_s, "retention_s", 1)
        if self._retention_s < seconds(horizon_s, "horizon_s", 1):
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
                refuse("an effect inside a transaction is not awaited")
            return True

    def first_time_in(self, db: sqlite3.Connection, event_id: str) -> bool:
        """Remember an event in the caller's open transaction; False if it is known.

        A known one is remembered anew: the horizon is a time between two deliveries, and one may follow another.
        Raises `OutboxError`: `no_transaction`, `bad_input`.
        """
        need_transaction(db)
        name, now = text_of(event_id, "event_id"), milliseconds(number(self._clock(), "the clock"))
        if db.execute(_REMEMBER, (self._name, name, now)).rowcount == 1:
            return True
        db.execute(_REMEMBER_LONGER, (now, self._name, name))
        return False

    def sweep(self, limit: int = MAX_LIMIT) -> int:
        """Forget events that were last delivered longer than `retention_s` ago; return how many."""
        before = milliseconds(number(self._clock(), "the clock") - self._retention_s)
        with self.database.write() as db:
            rows = db.execute(
                "SELECT consumer, event_id FROM inbox WHERE handled_at <= ? ORDER BY handled_at LIMIT ?",
                (before, whole(limit, "limit", 1, MAX_LIMIT)),
            ).fetchall()
            db.executemany("DELETE FROM inbox WHERE consumer = ? AND event_id = ?", rows)
        return len(rows)
