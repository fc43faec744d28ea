"""A message stored with the business write, sent afterwards, at least once and in order per key.

A program that changes its database and then tells somebody may die in between. Here the message is a
row of the same transaction: both are there or neither is. A relay claims due rows, sends them outside
any transaction and marks them. What it sent but could not mark is sent again, so the receiver keeps
the event ids that it has handled, in the transaction of its own effect.

The words
    event_id      names a message for ever; from the caller, derived from the intent's business key, unique
    ordering_key  messages with one key go out one after the other; without a key there is no order
    turn          a row has its turn when no earlier row of its key is unfinished
    compensates   the event that this one undoes; it stands in the queue right behind that one
    priority      between keys only; a level is worth `AGEING_S` seconds of waiting
    fence         number of a claimed batch; a relay's mark counts only with it
    attempt       counted when a row is claimed, given back if none was made
    refused       an attempt that failed; who is to blame shows in time, see `max_attempts` and `patience_s`
    held          nobody was reached: put off, no attempt spent, dead after `give_up_s`
    down          the send function says that the transport is; it costs nobody an attempt and pauses the relay
    suspect       was in flight when a relay died; it is sent apart from others until a relay survives it

The states
    pending    record made it; due at `next_attempt_at`, if it has its turn
    claimed    a relay has it until `lease_until`; a crash leaves it here and the next claim finds it
    sent       somebody took it
    dead       refused for good, too often or for too long; a person replays or discards it
    archived   sent or discarded and old: the payload is gone, the event id stays known
    waiting    undoes what is dead and was skipped: pending again with it, withdrawn with it
    withdrawn  taken back while it was pending, or with what it undoes

What holds
    O1  a message exists if and only if the transaction that recorded it was committed
    O2  one event id is one row; the same id with other content is `event_conflict`
    O3  at most one row of an ordering key has its turn, so no row is claimable while an earlier row of
        its key is unfinished
    O4  a relay whose lease was taken over marks nothing
    O5  a message that cannot be sent delays only itself and its own key, and not for ever: whatever was claimed once
        ends by rule, stands behind what is fresh meanwhile, and raises an alarm
    O6  only an attempt that was made is spent, and an outage that is shorter than `patience_s` buries nobody
    O7  a consumer's effect and its memory of the event are one transaction

Order. Within a key: by id, except that a compensation stands right behind what it compensates, before
later rows of the key that were recorded earlier. It never overtakes the row that it undoes, and what
is in flight already is not called back. If the first row of a key is dead, the rule `when_dead`
decides: `block` (the key waits for a person) or `skip` (the next row goes, but for what undoes the dead one: that
waits, since nobody is refunded what was never charged). Between keys the lower
rank goes first: the time of recording minus priority times `AGEING_S`, so a low priority waits at most
that much longer per level than what is recorded after it.

What it does not do. It gives no exactly-once: it delivers at least once, and the receiver drops what
it knows. A relay that dies sends up to one batch again. A send that ignores its cancel is left
running. A process that a message kills is for its supervisor to start again. Outbox and business
tables are in one database file, by construction.

Names of the document: `OutboxWriter.do_business_and_record` and `outbox_worker` are here;
`fetch_pending` is `Outbox.claim`, `mark_sent` and `mark_retry` are kinds of `Delivery` for `Outbox.mark`.
Source: claims I4-052 to I4-068, I4-094, I4-095, I4-101 with the readings X-05, X-20, X-23, X-47, X-49.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable
from typing import Any, Protocol

from chapter10.companions.effects.inbox import INBOX_APPLICATION_ID, INBOX_TABLES, Consumer
from chapter10.companions.effects.messages import (
    BATCH_LIMIT,
    HORIZON_S,
    LEASE_S,
    MAX_LIMIT,
    MAX_SECONDS,
    MAX_TEXT,
    Batch,
    Delivery,
    Message,
    OutboxError,
    PassReport,
    PermanentRefusal,
    TransportDown,
    derive_event_id,
    growing_delay,
)
from chapter10.companions.effects.outbox_rows import (
    AGEING_S,
    APPLICATION_ID,
    DEAD_ALARM,
    FEW,
    GIVE_UP_S,
    MAX_ATTEMPTS,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    OVERDUE_S,
    PATIENCE_S,
    PENDING_ALARM,
    STATUSES,
    TABLES,
    Outbox,
    OutboxWriter,
)
from chapter10.companions.effects.relay import (
    GRACE_S,
    IN_FLIGHT,
    INTERVAL_S,
    KEEP_S,
    SEND_S,
    UPKEEP_S,
    Relay,
    Send,
    upkeep,
)
from chapter10.database import Database

__all__ = [
    "AGEING_S",
    "APPLICATION_ID",
    "BATCH_LIMIT",
    "DEAD_ALARM",
    "FEW",
    "GIVE_UP_S",
    "GRACE_S",
    "HORIZON_S",
    "INBOX_APPLICATION_ID",
    "INBOX_TABLES",
    "INTERVAL_S",
    "IN_FLIGHT",
    "KEEP_S",
    "LEASE_S",
    "MAX_ATTEMPTS",
    "MAX_LIMIT",
    "MAX_PAYLOAD_BYTES",
    "MAX_PRIORITY",
    "MAX_SECONDS",
    "MAX_TEXT",
    "OVERDUE_S",
    "PATIENCE_S",
    "PENDING_ALARM",
    "SEND_S",
    "STATUSES",
    "TABLES",
    "UPKEEP_S",
    "Batch",
    "Consumer",
    "Delivery",
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
    "derive_event_id",
    "growing_delay",
    "outbox_worker",
    "saga_demonstration",
    "upkeep",
]


class Producer(Protocol):
    """The document's message producer."""

    def send(self, topic: str, payload: str, *, key: str) -> Awaitable[object]:
        """As `Send`."""


async def outbox_worker(writer: OutboxWriter, producer: Producer, *, stop: asyncio.Event, **relay: Any) -> None:
    """The document's worker: relay what `writer` records through `producer.send` until `stop` is set.

    `relay`: further parameters of `Relay`. Source: I4-056.
    """
    await Relay(writer.outbox, producer.send, **relay).run(stop)


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
