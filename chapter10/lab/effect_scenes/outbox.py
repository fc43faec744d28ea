"""The group `outbox`: message and business write together, poison, order, an outage, and a receiver that remembers.

Source: the document on interruption, section 6 (claims I4-052 to I4-068, I4-094, I4-101).
"""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial
from typing import Any, Final

from chapter10.companions.effects.outbox import (
    APPLICATION_ID,
    DEAD_ALARM,
    INBOX_TABLES,
    PENDING_ALARM,
    TABLES,
    Consumer,
    Outbox,
    PermanentRefusal,
    Relay,
    TransportDown,
    growing_delay,
    saga_demonstration,
)
from chapter10.database import Database
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.virtual_time import VirtualLoop, run_virtual

__all__ = ["GROUP", "outbox_experiment"]

_ORDERS: Final = "CREATE TABLE orders (id TEXT PRIMARY KEY);"
_POISON: Final = 100
_HEALTHY: Final = 50
_ROWS_IN_AN_OUTAGE: Final = 1000
_OUTAGE_S: Final = 60.0
_MAX_ATTEMPTS: Final = 5
_MAX_PASSES: Final = 2000


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Died(Exception):
    """The process ended here."""


def outbox_experiment(scene: Scene) -> dict[str, Any]:
    """Break the business write at each step, send poison, keep an order, survive an outage, deliver twice."""
    return {
        "transactions": _transactions(),
        **run_virtual(lambda loop: _poison(scene)),
        "order": run_virtual(lambda loop: _order(scene)),
        "skipped": run_virtual(lambda loop: _skipped(scene)),
        **run_virtual(lambda loop: _outage(scene)),
        "others_fail": [run_virtual(partial(_others_fail, scene, case)) for case in _CASES],
        **run_virtual(lambda loop: _twice(scene)),
        **run_virtual(lambda loop: _saga(scene)),
        "alarm_above_pending": PENDING_ALARM,
        "alarm_above_dead": DEAD_ALARM,
    }


def _open(clock: _Clock, **options: Any) -> tuple[Database, Outbox]:
    database = Database(":memory:", application_id=APPLICATION_ID, migrations=(TABLES, INBOX_TABLES, _ORDERS))
    return database, Outbox(database, clock=clock, **options)


# Together or not at all ------------------------------------------------------------------------------


def _transactions() -> list[dict[str, Any]]:
    """One order and its message; the process dies at each step."""
    rows = []
    for dies in ("before the order", "after the order", "after the message", "never"):
        database, outbox = _open(_Clock())
        try:
            with database.write() as db:
                _die_if(dies == "before the order")
                db.execute("INSERT INTO orders VALUES ('order-7')")
                _die_if(dies == "after the order")
                outbox.record(db, "mails", {"order": 7}, event_id="mail-7")
                _die_if(dies == "after the message")
        except _Died:
            pass
        orders, messages = (database.row(f"SELECT count(*) FROM {table}")[0] for table in ("orders", "outbox"))
        rows.append({"dies": dies, "orders": orders, "messages": messages})
        database.close()
    return rows


def _die_if(now: bool) -> None:
    if now:
        raise _Died


def _record(outbox: Outbox, event_id: str, **options: Any) -> None:
    with outbox.database.write() as db:
        outbox.record(db, "mails", {"event": event_id}, event_id=event_id, **options)


# Poison ------------------------------------------------------------------------------------------------


async def _poison(scene: Scene) -> dict[str, Any]:
    """A hundred messages that nobody will ever take stand before fifty good ones."""
    scene.begin("一百条毒消息在前 / a hundred poison rows in front")
    clock = _Clock()
    database, outbox = _open(clock, max_attempts=_MAX_ATTEMPTS, patience_s=0, delay=growing_delay(random=lambda: 0.5))
    sends = {"poison": 0, "good": 0}

    async def send(topic: str, payload: str, *, key: str) -> None:
        kind = key.split("-")[0]
        sends[kind] += 1
        if kind == "poison":
            raise ValueError

    with database.write() as db:
        for kind, count in (("poison", _POISON), ("good", _HEALTHY)):
            for number in range(count):
                outbox.record(db, "mails", {}, event_id=f"{kind}-{number}")
    relay = Relay(outbox, send, clock=clock)
    passes = out_after = 0
    while outbox.alarms()["pending"] and passes < _MAX_PASSES:
        passes += 1
        report = await relay.run_pass()
        if report.claimed:
            scene.now = clock.now
            scene.note(
                "relay", f"claims {report.claimed}", f"{report.sent} sent, {report.refused} refused, {report.dead} dead"
            )
        else:
            clock.now += 1.0
        if sends["good"] == _HEALTHY and not out_after:
            out_after = passes
    dead = outbox.alarms()["dead"]
    database.close()
    return {
        "good_rows_were_out_after_passes": out_after,
        "poison_rows": _POISON,
        "sends_of_poison": sends["poison"],
        "dead_at_the_end": dead,
        "seconds_until_all_were_dead": clock.now,
    }


# Order -------------------------------------------------------------------------------------------------


async def _order(scene: Scene) -> list[dict[str, Any]]:
    """Key order-7: the charge fails once, a later charge and a refund are due at once; another key goes on."""
    scene.begin("同键有序，补偿插队 / order within a key, and a compensation")
    clock = _Clock()
    database, outbox = _open(clock, delay=lambda failures: 5.0)
    failing = {"charge-1"}
    rows: list[dict[str, Any]] = []

    async def send(topic: str, payload: str, *, key: str) -> None:
        refused = key in failing
        failing.discard(key)
        rows.append({"at_s": clock.now, "event": key, "answer": "refused" if refused else "sent"})
        scene.now = clock.now
        scene.note("relay", f"sends {key}", rows[-1]["answer"])
        if refused:
            raise ValueError

    _record(outbox, "charge-1", ordering_key="order-7")
    _record(outbox, "charge-2", ordering_key="order-7")
    _record(outbox, "other", ordering_key="order-8")
    _record(outbox, "refund-1", ordering_key="order-7", compensates="charge-1")
    relay = Relay(outbox, send, clock=clock)
    for _ in range(20):
        if not (await relay.run_pass()).claimed:
            clock.now += 1.0
    database.close()
    return rows


async def _skipped(scene: Scene) -> list[dict[str, Any]]:
    """Key order-9 under `skip`: the charge is declined for good, and its refund waits for a person."""
    rows = []
    for by_hand in ("replay", "discard"):
        scene.begin(f"没有扣成的，不退 / nobody is refunded what was never charged: {by_hand}")
        clock = _Clock()
        database, outbox = _open(clock, when_dead="skip")
        got: list[str] = []

        async def send(topic: str, payload: str, *, key: str, got: list[str] = got, clock: _Clock = clock) -> None:
            declined = key == "charge" and clock.now < 1
            scene.now = clock.now
            scene.note("relay", f"sends {key}", "declined for good" if declined else "sent")
            if declined:
                raise PermanentRefusal("card_declined")
            got.append(key)

        _record(outbox, "charge", ordering_key="order-9")
        _record(outbox, "refund", ordering_key="order-9", compensates="charge")
        _record(outbox, "receipt", ordering_key="order-9")
        relay = Relay(outbox, send, clock=clock)
        for _ in range(3):
            await relay.run_pass()
        before, refund = list(got), outbox.status("refund")["status"]
        clock.now = 1.0
        scene.now = 1.0
        getattr(outbox, by_hand)("charge")
        scene.note("operator", f"{by_hand} charge", outbox.status("refund")["status"])
        for _ in range(3):
            await relay.run_pass()
        states = {f"{name}_ends": outbox.status(name)["status"] for name in ("charge", "refund")}
        rows.append({"by_hand": by_hand, "sent_before": before, "refund_before": refund, "sent": got, **states})
        database.close()
    return rows


# An outage -----------------------------------------------------------------------------------------------


async def _outage(scene: Scene) -> dict[str, Any]:
    """Nobody is reached for a minute, with a thousand rows waiting."""
    scene.begin("对方一分钟不可达 / nobody is reached for a minute")
    clock = _Clock()
    database, outbox = _open(clock, max_attempts=_MAX_ATTEMPTS)
    tried = [0]

    async def send(topic: str, payload: str, *, key: str) -> None:
        if clock.now < _OUTAGE_S:
            tried[0] += 1
            raise TransportDown("unreachable")

    with database.write() as db:
        for number in range(_ROWS_IN_AN_OUTAGE):
            outbox.record(db, "mails", {}, event_id=f"event-{number}")
    relay = Relay(outbox, send, clock=clock, pause=growing_delay(max_s=30.0, random=lambda: 0.5))
    sent = 0
    for _ in range(_MAX_PASSES):
        before = tried[0]
        report = await relay.run_pass()
        sent += report.sent
        if tried[0] > before or report.sent:
            scene.now = clock.now
            scene.note(
                "relay", f"claims {report.claimed}", f"{report.sent} sent" if report.sent else "unreachable: pause"
            )
        if not outbox.alarms()["pending"]:
            break
        if not report.sent:
            clock.now += 1.0
    most = database.row("SELECT max(attempts) - 1 FROM outbox")[0]
    dead = outbox.alarms()["dead"]
    database.close()
    return {
        "rows_in_the_outage": _ROWS_IN_AN_OUTAGE,
        "sends_during_the_outage": tried[0],
        "attempts_that_it_cost_a_row": most,
        "dead_by_the_outage": dead,
        "sent_after_it": sent,
    }


# When the others fail ------------------------------------------------------------------------------------

_CASES: Final = ("one receiver is gone", "nobody answers for five minutes", "twenty sends hang", "one kills the relay")


async def _others_fail(scene: Scene, case: str, loop: VirtualLoop) -> dict[str, Any]:
    """Fifty good messages stand behind those of a case; how long do they wait, and what becomes of the others?"""
    scene.begin(f"别人出了故障 / {case}")
    outbox = Outbox(":memory:", clock=loop.time, delay=growing_delay(random=lambda: 0.5))
    bad = {"one receiver is gone": 1, "twenty sends hang": 20, "one kills the relay": 1}.get(case, 0)
    got: list[float] = []
    died = asyncio.Event()

    async def send(topic: str, payload: str, *, key: str) -> None:
        if topic == "good":
            if case == _CASES[1] and loop.time() < 300:
                raise TimeoutError
            got.append(loop.time())
        elif case == _CASES[0]:
            raise ConnectionRefusedError
        else:
            if case == _CASES[3]:
                died.set()
            await asyncio.Event().wait()

    with outbox.database.write() as db:
        for number in range(bad + _HEALTHY):
            topic = "bad" if number < bad else "good"
            outbox.record(db, topic, {}, event_id=f"{topic}-{number}", ordering_key=f"customer-{number}")
    pause = growing_delay(max_s=30.0, random=lambda: 0.5)
    if case == _CASES[3]:
        outbox.claim(1)  # a process takes the message, and dies of it
    relay = asyncio.ensure_future(Relay(outbox, send, clock=loop.time, pause=pause).run(asyncio.Event()))
    await asyncio.wait({relay, asyncio.ensure_future(died.wait())}, timeout=900, return_when=asyncio.FIRST_COMPLETED)
    relay.cancel()
    await asyncio.wait({relay})
    first_bad = outbox.database.row("SELECT status, attempts, misses FROM outbox WHERE id = 1")
    dead = outbox.alarms()["dead"]
    scene.now = loop.time()
    scene.note("receivers", f"{len(got)} of {_HEALTHY} delivered", f"the last after {max(got, default=0):.0f} s")
    row = {"case": case, "good_delivered": len(got), "last_after_s": round(max(got, default=0.0), 1), "dead": dead}
    outbox.close()
    return {**row, "first_row": first_bad[0], "its_attempts": first_bad[1], "its_misses": first_bad[2]}


# Twice ---------------------------------------------------------------------------------------------------


async def _twice(scene: Scene) -> dict[str, Any]:
    """A relay dies between sending and marking; the receiver keeps the ids that it has handled."""
    scene.begin("发出之后、标记之前死去 / a relay dies between sending and its mark")
    clock = _Clock()
    database, outbox = _open(clock)
    receiver, deliveries = Consumer(database, "shop", clock=clock), 0

    async def send(topic: str, payload: str, *, key: str) -> None:
        nonlocal deliveries
        deliveries += 1

        def effect(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO orders VALUES (?)", (key,))

        fresh = receiver.handle(key, effect)
        scene.now = clock.now
        scene.note("receiver", f"gets {key}", "makes the effect" if fresh else "drops it as known")

    _record(outbox, "order-7")
    batch = outbox.claim(lease_s=5)
    assert batch is not None
    for message in batch.messages:
        await send(message.topic, message.payload, key=message.event_id)
    scene.note("first relay", "dies before its mark", "")
    clock.now = 5.0
    report = await Relay(outbox, send, clock=clock).run_pass()
    scene.note("second relay", "sends and marks", f"{report.sent} sent")
    effects = database.row("SELECT count(*) FROM orders")[0]
    database.close()
    return {"deliveries": deliveries, "effects": effects}


async def _saga(scene: Scene) -> dict[str, Any]:
    """Charge, a shipment that fails, a refund that is asked for and delivered twice, and a later charge."""
    scene.begin("Saga：退款先于之后的扣款 / a saga")
    played = await saga_demonstration()
    for line in played["timeline"]:
        scene.now = line["at"]
        scene.note("shop", line["what"], line["event"])
    return {
        "saga_sends": played["sends"],
        "saga_effects": played["effects"],
        "saga_balance_cents": played["balance_cents"],
    }


GROUP: Final = Group(
    outbox_experiment,
    title="发件箱 / outbox",
    target="outbox",
    text="""\
业务写入和消息在同一个事务里：哪一步死去，都是两者俱在或俱无。送出之后才标记，所以至少送达一次；接收方把处理过的
event_id 和自己的效果写进同一个事务，重复的就丢掉。毒消息只耽误自己，退避之后进死信；对方整体不可达不算任何消息的失
败。同键先后不变，补偿紧跟在它要撤销的那条之后，早于之后的扣款；别的键照常进行。被跳过的死信没有生效，撤销它的补偿就等
着：重放则随后送出，放弃则一起收回。

The business write and the message are one transaction: whichever step dies, both are there or neither is. A row is
marked after it was sent, so it is delivered at least once, and the receiver drops what it knows, in the transaction
of its own effect. Poison delays only itself and ends as dead; an outage of the transport costs nobody an attempt.
Order holds within a key, a compensation stands right behind what it undoes and before later charges, other keys go
on. What undoes a dead message that was skipped waits: it follows a replay, and is withdrawn with a discard.
""",
    tables=("transactions", "order", "skipped", "others_fail"),
)
