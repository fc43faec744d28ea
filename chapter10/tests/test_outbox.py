"""Messages in the business transaction: the outbox against its faults, a model, and every order of two relays."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import json
import random
import sqlite3
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any

from chapter10.companions.effects import idempotency, outbox_rows
from chapter10.companions.effects import outbox as module
from chapter10.companions.effects.outbox import (
    AGEING_S,
    BATCH_LIMIT,
    DEAD_ALARM,
    FEW,
    GIVE_UP_S,
    HORIZON_S,
    INBOX_TABLES,
    INTERVAL_S,
    MAX_PAYLOAD_BYTES,
    PATIENCE_S,
    PENDING_ALARM,
    STATUSES,
    TABLES,
    Batch,
    Consumer,
    Delivery,
    Outbox,
    OutboxError,
    OutboxWriter,
    PassReport,
    PermanentRefusal,
    Relay,
    TransportDown,
    derive_event_id,
    growing_delay,
    outbox_worker,
    saga_demonstration,
)
from chapter10.database import Database, StoreError
from chapter10.tests.faulty_stores import OUTBOX, interleavings, taken_out
from chapter10.tests.support import FolderTestCase, ManualClock, defaults
from chapter10.tests.virtual_time import run_virtual

BUSINESS = "CREATE TABLE ledger (entry TEXT PRIMARY KEY, cents INTEGER NOT NULL);"
APPLICATION = 78


class Receiver:
    """Somebody elsewhere: takes messages, refuses some, or cannot be reached."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.tried: list[str] = []
        self.refuses: dict[str, Exception] = {}
        self.down = False

    async def send(self, topic: str, payload: str, *, key: str) -> None:
        self.tried.append(key)
        if self.down:
            raise TransportDown("unreachable")
        if key in self.refuses:
            raise self.refuses[key]
        self.got.append(key)


class Uncomparable:
    """Something that cannot be compared with a text, nor with anything else."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


class OutboxTestCase(FolderTestCase):
    """A business database with an outbox and an inbox, a clock moved by hand, and a receiver."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = ManualClock(1000.0)
        self.receiver = Receiver()
        self.outbox = self.open()
        self.database = self.outbox.database

    def business(self, busy_seconds: float = 1) -> Database:
        """One more connection to the business database with an outbox and an inbox."""
        migrations = (BUSINESS, TABLES, INBOX_TABLES)
        path = self.folder / "business.db"
        database = Database(path, application_id=APPLICATION, migrations=migrations, busy_seconds=busy_seconds)
        self.addCleanup(database.close)
        return database

    def open(self, **more: Any) -> Outbox:
        more.setdefault("delay", lambda failures: float(2 ** (failures - 1)))
        more.setdefault("patience_s", 0)
        return Outbox(self.business(), clock=self.clock, **more)

    def claimed(self, *limits: int, outbox: Outbox | None = None, **more: Any) -> Batch:
        """Claim what is due, of which there is something."""
        batch = (outbox or self.outbox).claim(*limits, **more)
        assert batch is not None
        return batch

    def record(self, *event_ids: str, outbox: Outbox | None = None, **more: Any) -> None:
        outbox = outbox or self.outbox
        with outbox.database.write() as db:
            for event_id in event_ids:
                outbox.record(db, "payments", {"event": event_id}, event_id=event_id, **more)

    def relay(self, outbox: Outbox | None = None, **more: Any) -> Relay:
        more.setdefault("clock", self.clock)
        more.setdefault("sleep", self.sleep)
        return Relay(outbox or self.outbox, more.pop("send", self.receiver.send), **more)

    async def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def passes(self, count: int, relay: Relay | None = None, step_s: float = 0) -> list[PassReport]:
        relay = relay or self.relay()
        reports = []
        for _ in range(count):
            reports.append(asyncio.run(relay.run_pass()))
            self.clock.advance(step_s)
        return reports

    def status(self, event_id: str) -> str:
        return str(self.outbox.status(event_id)["status"])

    def assert_code(self, code: str, call: Callable[[], object]) -> None:
        with self.assertRaises(OutboxError) as caught:
            call()
        self.assertEqual((code, code), (caught.exception.code, str(caught.exception)))

    def awaited(self) -> Iterator[Callable[[sqlite3.Connection], Any]]:
        """Yield functions whose answer wants to be awaited: a coroutine, which must be closed afterwards, and more."""

        async def network() -> None:
            """Never started."""

        class Other:
            def __await__(self) -> Iterator[None]:
                yield

        coroutine = network()
        yield lambda db: coroutine
        self.assertEqual(inspect.CORO_CLOSED, inspect.getcoroutinestate(coroutine))
        yield lambda db: Other()


class RecordTest(OutboxTestCase):
    """The business side."""

    def writer(self) -> OutboxWriter:
        return OutboxWriter(self.database, self.outbox, topic="payments")

    def do(self, business: Callable[[sqlite3.Connection], Any], **more: Any) -> str:
        more = more if "event_id" in more else {"business_key": "order-7", **more}
        return asyncio.run(self.writer().do_business_and_record(business, {"order": 7}, **more))

    def charge(self, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO ledger VALUES ('order-7', -1000)")

    def counts(self) -> tuple[int, int]:
        entries = self.database.row("SELECT count(*) FROM ledger")[0]
        return entries, self.database.row("SELECT count(*) FROM outbox")[0]

    def test_business_write_and_message_are_one_transaction(self) -> None:
        """The business function gets the connection, and afterwards both rows are there.

        Claims: I4-053, I4-061, I4-065, I4-101.
        """
        event_id = self.do(self.charge)

        self.assertEqual((1, 1), self.counts())
        self.assertEqual("pending", self.status(event_id))
        names = list(inspect.signature(OutboxWriter.do_business_and_record).parameters)
        self.assertEqual(["self", "business_fn", "event_payload"], names[:3])
        self.assertTrue(inspect.iscoroutinefunction(OutboxWriter.do_business_and_record))
        other = Database(self.folder / "other.db", application_id=1, migrations=(BUSINESS,))
        self.addCleanup(other.close)
        self.assert_code("bad_input", lambda: OutboxWriter(other, self.outbox))

    def test_a_failure_at_any_step_leaves_neither(self) -> None:
        """Before, in and after the business write, and in the insert of the message. Claims: I4-054, I4-061."""

        def fails_late(db: sqlite3.Connection) -> None:
            self.charge(db)
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.do(fails_late)
        self.assert_code("not_found", lambda: self.do(self.charge, ordering_key="k", compensates="nobody"))
        self.assert_code("bad_input", lambda: self.do(self.charge, priority=10_000))
        with self.assertRaises(ZeroDivisionError), self.database.write() as db:
            self.outbox.record(db, "payments", {}, event_id="e")
            raise ZeroDivisionError

        self.assertEqual((0, 0), self.counts())

    def test_outside_a_transaction_nothing_is_recorded(self) -> None:
        """A message that no rollback could take back is refused. Claims: I4-054, I4-061."""
        db = self.database.connection
        self.assert_code("no_transaction", lambda: self.outbox.record(db, "payments", {}, event_id="e"))
        self.assertEqual((0, 0), self.counts())

    def test_a_business_function_is_not_awaited_under_the_lock(self) -> None:
        """No network inside: a coroutine function is refused, never started, and rolled back. Claims: I4-101."""

        for business in self.awaited():
            self.assert_code("bad_input", partial(self.do, business))
        self.assertEqual((0, 0), self.counts())

    def test_a_repeat_after_an_unclear_commit_is_the_same_event(self) -> None:
        """The business write does not happen again either. Claims: I4-061."""
        event_id = self.do(self.charge)
        self.assertEqual(event_id, self.do(self.charge))
        self.assert_code("event_conflict", lambda: self.do(self.charge, event_id=event_id, ordering_key="k"))
        self.assertEqual((1, 1), self.counts())

    def test_one_event_id_with_other_content_is_a_conflict(self) -> None:
        """Payload, topic, key and what it undoes count; an equal repeat gives the row that stands, also archived."""
        self.record("e", ordering_key="k")
        with self.database.write() as db:
            record = partial(self.outbox.record, db, event_id="e")
            self.assertEqual(1, record("payments", {"event": "e"}, ordering_key="k"))
            for topic, payload, key in (
                ("payments", {}, "k"),
                ("other", {"event": "e"}, "k"),
                ("payments", {"event": "e"}, "j"),
            ):
                self.assert_code("event_conflict", partial(record, topic, payload, ordering_key=key))
        self.passes(1)
        self.outbox.archive(0)
        with self.database.write() as db:
            self.assertEqual(1, self.outbox.record(db, "payments", {"event": "e"}, event_id="e", ordering_key="k"))
        self.record("a", "b", ordering_key="k")
        self.record("undo", ordering_key="k", compensates="a")
        self.assert_code("event_conflict", lambda: self.record("undo", ordering_key="k", compensates="b"))

    def test_what_was_taken_back_is_not_recorded_again_in_silence(self) -> None:
        """A withdrawn or discarded event is refused, and with it the business write; one that was sent is known."""
        self.record("withdrawn", "discarded", "sent")
        self.outbox.withdraw("withdrawn")
        self.receiver.refuses["discarded"] = PermanentRefusal("gone")
        self.receiver.refuses["sent"] = RuntimeError()
        self.passes(1)
        self.receiver.refuses.clear()
        self.passes(3, step_s=1)
        self.outbox.discard("discarded")
        self.outbox.archive(0)
        for event_id in ("withdrawn", "discarded"):
            self.assert_code("wrong_status", partial(self.record, event_id))
        self.record("sent")
        self.assertEqual("archived", self.status("sent"))

    def test_equal_payloads_of_two_customers_are_two_events(self) -> None:
        """Content names nothing: without an event id or a business key a message is refused, and with both as well."""
        writer = self.writer()

        def do(**more: Any) -> str:
            return asyncio.run(writer.do_business_and_record(lambda db: None, {"welcome": True}, **more))

        self.assert_code("business_key_needed", do)
        self.assert_code("bad_input", lambda: do(event_id="e", business_key="k"))
        first, second = do(business_key="customer-1"), do(business_key="customer-2")
        self.assertNotEqual(first, second)
        self.assertEqual((first, derive_event_id("payments", "customer-1")), (do(business_key="customer-1"), first))

    def test_tables_that_are_none_or_from_before_are_named_at_the_opening(self) -> None:
        """The machine's fault with the column or table that is missing, and not a surprise at the first write."""
        for tables, missing in ((BUSINESS, "outbox"), ("CREATE TABLE outbox (id INTEGER PRIMARY KEY);", "undoes")):
            database = Database(":memory:", application_id=APPLICATION, migrations=(tables,))
            self.addCleanup(database.close)
            with self.assertRaises(StoreError) as caught:
                Outbox(database)
            self.assertEqual("store_unavailable", caught.exception.code)
            self.assertIn(missing, caught.exception.reason)

    def test_a_message_may_be_due_later(self) -> None:
        """Not before its delay is over, and exactly then."""
        self.record("e", delay_s=2)
        self.clock.advance(1.999)
        self.assertIsNone(self.outbox.claim())
        self.clock.advance(0.001)

        self.assertIsNotNone(self.outbox.claim())

    def test_a_fresh_row_has_what_the_document_asks_for(self) -> None:
        """Sequence, event id, topic, canonical payload, status, priority, attempts, error and time, as integers.

        Claims: I4-055.
        """
        with self.database.write() as db:
            self.outbox.record(db, "payments", {"b": 1, "a": "é"}, event_id="e", priority=3)
        row = self.database.row(
            "SELECT id, event_id, topic, payload, status, priority, attempts, last_error, created_at,"
            " typeof(created_at)"
            " FROM outbox"
        )

        self.assertEqual((1, "e", "payments", '{"a":"é","b":1}', "pending", 3, 0, None, 1_000_000, "integer"), row)
        self.assertEqual({"pending", "claimed", "waiting", "sent", "dead", "archived", "withdrawn"}, set(STATUSES))

    def test_an_event_id_is_derived_without_ambiguity(self) -> None:
        """Equal parts give equal ids, and no two ways of cutting a text meet."""
        self.assertEqual(derive_event_id("refund", "7"), derive_event_id("refund", "7"))
        self.assertNotEqual(derive_event_id("a", "bc"), derive_event_id("ab", "c"))
        self.assertEqual(derive_event_id("caf\u00e9"), derive_event_id("cafe\u0301"))
        self.assertRegex(derive_event_id("a"), "^[0-9a-f]{64}$")

    def test_bad_input_is_refused_and_changes_nothing(self) -> None:
        """Wrong types, bool for int, NaN, NUL, lone surrogates and over-long texts."""
        self.record("e")
        before = list(self.database.connection.iterdump())
        batch = Batch(1, 1.0, ())
        texts: list[Any] = [1, True, "", "x" * 201, "a\0b", "\ud800", b"x"]
        numbers: list[Any] = [None, True, "1", float("nan"), float("inf"), -1, 10**400]
        calls: list[Callable[[], object]] = []

        def record(*args: Any, **more: Any) -> None:
            with self.database.write() as db:
                self.outbox.record(db, *args, **more)

        for bad in texts:
            calls += [
                partial(record, bad, {}, event_id="f"),
                partial(record, "t", {}, event_id=bad),
                partial(record, "t", {}, event_id="f", ordering_key=bad),
                partial(record, "t", {}, event_id="f", ordering_key="k", compensates=bad),
                partial(self.outbox.status, bad),
                partial(self.outbox.withdraw, bad),
                partial(derive_event_id, bad),
                partial(Consumer, self.database, bad),
            ]
        for bad in numbers:
            calls += [
                partial(record, "t", {}, event_id="f", delay_s=bad),
                partial(self.outbox.claim, bad),
                partial(self.outbox.claim, 1, bad),
                partial(self.outbox.archive, bad),
                partial(self.outbox.forget, bad),
                partial(self.outbox.dead, bad),
                partial(self.relay, limit=bad),
                partial(self.relay, interval_s=bad),
                partial(Outbox, self.database, max_attempts=bad),
                partial(Consumer, self.database, "c", retention_s=bad),
                partial(growing_delay, base_s=bad),
                partial(growing_delay, max_s=bad),
            ]
        odd: list[Any] = [float("nan"), {1: 2}, (1,), "\ud800", object(), "x" * MAX_PAYLOAD_BYTES]
        calls += [partial(record, "t", payload, event_id="f") for payload in odd]
        calls += [
            partial(record, "t", {}, event_id="f", priority=True),
            partial(record, "t", {}, event_id="f", compensates="e"),
            partial(record, "t", {}, event_id="f", compensates="e", ordering_key="k"),
            partial(Outbox, self.database, when_dead="ignore"),  # type: ignore[arg-type]
            partial(Outbox, self.database, when_dead=Uncomparable()),  # type: ignore[arg-type]
            partial(self.outbox.mark, batch, ["sent"]),  # type: ignore[list-item]
            partial(growing_delay, base_s=2, max_s=1.999),
            derive_event_id,
        ]
        for call in calls:
            self.assert_code("bad_input", call)
        self.assert_code("not_found", lambda: self.outbox.replay("nobody"))
        self.assert_code("wrong_status", lambda: self.outbox.replay("e"))

        self.assertEqual(before, list(self.database.connection.iterdump()))


class LimitsTest(OutboxTestCase):
    """What callers plan with, in figures, and what is let in at the edges."""

    def test_the_published_limits_are_these(self) -> None:
        """Counts, seconds, bytes and characters; and the numbers that mark the two files."""
        self.assertEqual(
            {
                "AGEING_S": 60, "BATCH_LIMIT": 100, "DEAD_ALARM": 100, "FEW": 4, "GIVE_UP_S": 259_200, "GRACE_S": 1.0,
                "HORIZON_S": 2_592_000, "INTERVAL_S": 1.0, "IN_FLIGHT": 10, "KEEP_S": 604_800, "LEASE_S": 30.0,
                "MAX_ATTEMPTS": 8, "MAX_LIMIT": 1000, "MAX_PAYLOAD_BYTES": 262_144, "MAX_PRIORITY": 1000,
                "MAX_SECONDS": 316_224_000, "MAX_TEXT": 200, "OVERDUE_S": 900, "PATIENCE_S": 3600,
                "PENDING_ALARM": 10_000, "SEND_S": 10.0, "UPKEEP_S": 60.0,
            },
            {name: value for name in module.__all__ if type(value := getattr(module, name)) in (int, float)
             and not name.endswith("_ID")},
        )  # fmt: skip
        marks = [mark.to_bytes(4, "big") for mark in (module.APPLICATION_ID, module.INBOX_APPLICATION_ID)]
        self.assertEqual([b"CH1O", b"CH1N"], marks)

    def test_what_may_be_left_out_is_this(self) -> None:
        """The defaults of the verbs, and a report of nothing."""
        queued = {"ordering_key": None, "priority": 0, "compensates": None}
        for function, expected in (
            (Outbox.record, {**queued, "delay_s": 0}),
            (OutboxWriter.do_business_and_record, {**queued, "event_id": None, "business_key": None, "topic": None}),
            (Outbox.claim, {"limit": 100, "lease_s": 30.0}),
            (Outbox.dead, {"limit": 100}),
            (Outbox.archive, {"limit": 1000}),
            (Outbox.forget, {"limit": 1000}),
            (Consumer.sweep, {"limit": 1000}),
            (PassReport, {**dict.fromkeys(("claimed", "sent", "refused", "dead", "given_back", "lost"), 0),
                          "paused": False, "held": 0}),
        ):  # fmt: skip
            with self.subTest(function.__qualname__):
                self.assertEqual(expected, defaults(function))
        self.assertEqual(2 * HORIZON_S, defaults(Consumer)["retention_s"])
        self.assertEqual((8, PATIENCE_S, GIVE_UP_S, "block", HORIZON_S), tuple(
            defaults(Outbox)[name] for name in ("max_attempts", "patience_s", "give_up_s", "when_dead", "horizon_s")
        ))  # fmt: skip

    def test_a_number_of_rows_or_attempts_is_from_one_to_a_thousand(self) -> None:
        """Both ends are taken, and what lies beyond is refused."""
        consumer = Consumer(self.database, "c", clock=self.clock)
        calls: list[Callable[[int], object]] = [
            self.outbox.claim, self.outbox.dead, partial(self.outbox.archive, 0),
            partial(self.outbox.forget, HORIZON_S), consumer.sweep, lambda limit: self.relay(limit=limit),
            lambda most: Outbox(self.database, max_attempts=most),
        ]  # fmt: skip
        for number, call in enumerate(calls):
            with self.subTest(number):
                call(1)
                call(1000)
                self.assert_code("bad_input", partial(call, 0))
                self.assert_code("bad_input", partial(call, 1001))

    def test_edges_are_taken_and_what_lies_beyond_is_refused(self) -> None:
        """Priorities, horizons, delays, and how many texts an event id is derived from."""
        self.record("low", priority=-1000, delay_s=0)
        self.record("high", priority=1000)
        for priority in (-1001, 1001):
            self.assert_code("bad_input", partial(self.record, "other", priority=priority))
        Outbox(self.database, horizon_s=1)
        Consumer(self.database, "c", retention_s=1, horizon_s=1)
        self.assert_code("bad_input", lambda: Outbox(self.database, horizon_s=0.999))
        self.assert_code("bad_input", lambda: Consumer(self.database, "c", retention_s=1, horizon_s=0.999))
        self.assert_code("bad_input", lambda: Consumer(self.database, "c", retention_s=0.999, horizon_s=1))
        self.assert_code("retention_too_short", lambda: self.outbox.forget(0))
        self.assertEqual(64, len(derive_event_id(*["part"] * 20)))
        self.assert_code("bad_input", lambda: derive_event_id(*["part"] * 21))

    def test_a_delay_of_nothing_is_one(self) -> None:
        """A refused message is due again at once; a delay below nothing is refused, and the batch stays claimed."""
        for delay in (0.0, -0.001):
            outbox = self.open(delay=lambda failures, delay=delay: delay)
            self.record(f"e{delay}", outbox=outbox)
            batch = self.claimed(outbox=outbox)
            mark = partial(outbox.mark, batch, [Delivery(batch.messages[0], "refused")])
            if delay < 0:
                self.assert_code("bad_input", mark)
                self.assertEqual("claimed", self.status(f"e{delay}"))
            else:
                mark()
                self.assertIsNotNone(outbox.claim())


class RelayTest(OutboxTestCase):
    """Claim, send, mark."""

    def test_a_pass_sends_in_id_order_with_topic_payload_and_event_id(self) -> None:
        """The calls of one pass, as the document has them, and nothing is sent twice. Claims: I4-056, I4-064."""
        seen: list[Any] = []

        async def send(topic: str, payload: str, *, key: str) -> None:
            seen.append((topic, json.loads(payload), key, self.status(key)))

        self.record("a", "b", "c")
        [first, second] = self.passes(2, self.relay(send=send))

        self.assertEqual([("payments", {"event": e}, e, "claimed") for e in "abc"], seen)
        self.assertEqual(PassReport(claimed=3, sent=3), first)
        self.assertEqual(PassReport(), second)
        self.assertEqual((100, 1.0), (BATCH_LIMIT, INTERVAL_S))

    def test_two_hundred_and_fifty_rows_are_three_batches(self) -> None:
        """100, 100, 50. Claims: I4-057."""
        self.record(*(f"e{n}" for n in range(250)))

        self.assertEqual([100, 100, 50, 0], [report.sent for report in self.passes(4)])

    def test_one_refused_message_stops_no_other(self) -> None:
        """The second fails: the first and the third are out, the second has a retry record. Claims: I4-058."""
        self.receiver.refuses["b"] = RuntimeError("secret text")
        self.record("a", "b", "c")
        self.passes(1)

        self.assertEqual(["a", "c"], self.receiver.got)
        row = self.outbox.status("b")
        self.assertEqual(
            ("pending", 1, "RuntimeError", 1001.0, 1000.0),
            tuple(row[k] for k in ("status", "attempts", "last_error", "next_attempt_at", "created_at")),
        )

    def test_a_relay_that_dies_after_sending_sends_again(self) -> None:
        """At least once: twice in total, after the lease and not before. Claims: I4-059."""
        self.record("a")
        batch = self.claimed(lease_s=5)
        asyncio.run(self.receiver.send("payments", "", key="a"))
        self.clock.advance(4.999)
        self.assertIsNone(self.outbox.claim())
        self.clock.advance(0.001)
        self.passes(1, self.relay(self.open()))

        self.assertEqual(["a", "a"], self.receiver.got)
        self.assertEqual(PassReport(claimed=1, lost=1), self.outbox.mark(batch, [Delivery(batch.messages[0], "sent")]))

    def test_two_relays_share_the_rows(self) -> None:
        """Ten rows are sent ten times (O2). Claims: I4-059."""
        self.record(*(f"e{n}" for n in range(10)))
        relays = [self.relay(self.open(), limit=3), self.relay(self.open(), limit=3)]
        for _ in range(4):
            for relay in relays:
                self.passes(1, relay)
        self.assertEqual(sorted(f"e{n}" for n in range(10)), sorted(self.receiver.got))

    def test_poison_does_not_hold_up_the_healthy(self) -> None:
        """100 rows that can never be sent stand first, and 50 good ones go out all the same (O1, bug 17).

        Claims: I4-058, I4-066.
        """
        names = [f"bad{n}" for n in range(100)] + [f"good{n}" for n in range(50)]
        self.record(*names)
        self.receiver.refuses = {name: RuntimeError() for name in names[:100]}
        self.passes(2)
        self.assertEqual(names[100:], self.receiver.got)
        tried = len(self.receiver.tried)
        self.passes(60, step_s=1)
        self.assertLessEqual(len(self.receiver.tried) - tried, 6 * 100)  # in a minute: after 1, 2, 4, 8, 16, 32 s
        self.passes(70, step_s=2)
        self.assertEqual(100, len(self.outbox.dead(1000)))
        self.assertEqual(8, self.receiver.tried.count("bad0"))
        tried = len(self.receiver.tried)
        self.passes(5, step_s=1000)
        self.assertEqual(tried, len(self.receiver.tried))

    def test_gaps_grow_between_the_tries_of_one_message(self) -> None:
        """Doubling from the injected delay, so a minute has few of them; a permanent refusal has one try.

        Claims: I4-066.
        """
        times: list[float] = []

        async def send(topic: str, payload: str, *, key: str) -> None:
            if key == "never":
                raise PermanentRefusal("gone")
            times.append(self.clock())
            raise RuntimeError

        self.record("e", "never")
        self.passes(300, self.relay(send=send), step_s=1)

        self.assertEqual([1, 2, 4, 8, 16, 32, 64], [int(b - a) for a, b in pairwise(times)])
        self.assertEqual(
            [("e", 8, "RuntimeError"), ("never", 1, "gone")],
            sorted((d["event_id"], d["attempts"], d["last_error"]) for d in self.outbox.dead()),
        )

    def test_the_delay_is_jittered_and_never_above_its_limit(self) -> None:
        """50 to 150 % of the doubling, at the limit too, for any number of failures."""
        low, high = growing_delay(max_s=30, random=lambda: 0.0), growing_delay(max_s=30, random=lambda: 1.0)

        self.assertEqual([0.5, 1.0, 2.0], [low(n) for n in (1, 2, 3)])
        self.assertEqual([1.5, 3.0, 6.0], [high(n) for n in (1, 2, 3)])
        self.assertEqual((10.0, 30.0), (low(10_000), high(10_000)))

    def test_an_outage_costs_nobody_an_attempt(self) -> None:
        """1000 rows, 60 s without a transport: few probes, nothing dead, all delivered (O4, bug 18). Claims: I4-066."""
        self.record(*(f"e{n}" for n in range(1000)))
        relay = self.relay(self.open(max_attempts=5), in_flight=1, pause=growing_delay(max_s=30, random=lambda: 0.5))
        self.receiver.down = True
        reports = self.passes(60, relay, step_s=1)
        self.assertEqual([100] + [1] * 6, [report.claimed for report in reports if report.claimed])
        self.assertEqual(7, len(self.receiver.tried))
        self.receiver.down = False
        self.passes(45, relay, step_s=1)

        self.assertEqual(1000, len(set(self.receiver.got)))
        self.assertEqual((1,), self.database.row("SELECT max(attempts) FROM outbox"))

    def test_a_mark_that_fails_is_no_failed_delivery(self) -> None:
        """It is stored before the next claim, without an attempt and without a second send (O3). Claims: I4-059."""

        async def send_and_lose_the_disk(topic: str, payload: str, *, key: str) -> None:
            self.receiver.got.append(key)
            self.database.connection.execute("PRAGMA query_only=ON")

        self.record("e")
        relay = self.relay(send=send_and_lose_the_disk)
        for _ in range(2):
            with self.assertRaises(StoreError):
                self.passes(1, relay)
        self.database.connection.execute("PRAGMA query_only=OFF")
        self.passes(1, relay)

        row = self.outbox.status("e")
        told = (row["status"], row["attempts"], row["last_error"], self.receiver.got)
        self.assertEqual(("sent", 1, None, ["e"]), told)

    def test_the_loop_survives_a_failed_pass_and_sleeps_only_when_idle(self) -> None:
        """Two passes fail, then 150 rows go out without a sleep between (O5). Claims: I4-056, I4-062."""
        self.record(*(f"e{n}" for n in range(150)))
        errors: list[str] = []
        slept_when: list[int] = []

        async def run() -> None:
            stop = asyncio.Event()
            claim = self.outbox.claim
            failing = [True, True]

            def flaky(*args: Any) -> Batch | None:
                if failing and failing.pop():
                    raise StoreError("store_unavailable", "scripted")
                return claim(*args)

            async def sleep(seconds: float) -> None:
                self.clock.sleep(seconds)
                slept_when.append(len(self.receiver.got))
                if len(self.receiver.got) == 150:
                    stop.set()
                await asyncio.sleep(0)

            self.outbox.claim = flaky  # type: ignore[method-assign, assignment]
            writer = OutboxWriter(self.database, self.outbox)
            more: dict[str, Any] = {"clock": self.clock, "sleep": sleep, "on_error": lambda e: errors.append(str(e))}
            await outbox_worker(writer, self.receiver, stop=stop, **more)

        asyncio.run(run())

        self.assertEqual((["store_unavailable"] * 2, 150, [0, 0, 150]), (errors, len(self.receiver.got), slept_when))
        self.assertEqual([1.0] * 3, self.clock.slept)

    def test_what_means_that_the_transport_is_down_may_be_named(self) -> None:
        """A send that hangs, or a kind of group whatever its leaves are: nobody pays, and the relay pauses."""

        class Unreachable(ExceptionGroup[Exception]):
            pass

        async def hangs(topic: str, payload: str, *, key: str) -> None:
            await asyncio.get_running_loop().create_future()

        async def nobody(topic: str, payload: str, *, key: str) -> None:
            raise Unreachable("nobody", [ValueError()])

        self.record("a", "b")
        for send, kind in ((nobody, Unreachable), (hangs, TimeoutError)):
            self.clock.advance(30)
            relay = self.relay(send=send, transport_errors=(kind,))
            reports = [run_virtual(lambda loop, relay=relay: relay.run_pass()) for _ in range(2)]  # type: ignore[misc]
            self.assertEqual((2, 0, True), (reports[0].given_back, reports[0].refused, reports[1].paused))
            self.assertEqual(0, self.outbox.status("a")["attempts"])

    def test_a_report_that_cannot_be_taken_does_not_end_the_loop(self) -> None:
        """The log is down too: the next pass comes all the same."""
        passes: list[int] = []

        async def run() -> None:
            stop = asyncio.Event()

            def claim(*args: Any) -> None:
                passes.append(1)
                if len(passes) == 3:
                    stop.set()
                raise StoreError("store_unavailable", "as it was told to")

            def no_log(error: Exception) -> None:
                raise OSError

            self.outbox.claim = claim  # type: ignore[method-assign, assignment]
            await self.relay(on_error=no_log).run(stop)

        asyncio.run(run())
        self.assertEqual(3, len(passes))

    def test_a_code_that_is_no_text_is_kept_as_one(self) -> None:
        """A receiver that answers with a number, or with half a character, is marked like any other."""
        odd: list[Any] = [410, None, "\ud800", "", "x" * 300]
        self.record(*(f"e{number}" for number in range(len(odd))), "last")
        for number, code in enumerate(odd):
            self.receiver.refuses[f"e{number}"] = PermanentRefusal(code)

        (report,) = self.passes(1)

        self.assertEqual(PassReport(claimed=6, sent=1, dead=5), report)
        words = ["410", "None", "?", "PermanentRefusal", "x" * 200]
        self.assertEqual(words, [self.outbox.status(f"e{number}")["last_error"] for number in range(5)])

    def test_a_verdict_of_another_kind_or_with_an_error_that_is_no_text_is_refused(self) -> None:
        """Nothing of the batch is marked then."""
        self.record("e")
        batch = self.claimed()
        for error in (5, None, "\ud800"):
            verdict = Delivery(batch.messages[0], "refused", error)  # type: ignore[arg-type]
            self.assert_code("bad_input", partial(self.outbox.mark, batch, [verdict]))
        kinds: list[Any] = ["lost", "", None, 5, ["sent"]]
        for kind in kinds:
            self.assert_code("bad_input", partial(self.outbox.mark, batch, [Delivery(batch.messages[0], kind)]))
        self.assertEqual("claimed", self.status("e"))

    def test_a_group_is_what_its_leaves_are(self) -> None:
        """A send that uses a task group and reaches nobody is an outage, and costs no attempt."""
        self.record("down", "mixed", "never")
        down = TransportDown("unreachable")
        one_by_one = partial(self.relay, in_flight=1)
        self.receiver.refuses = {
            "mixed": ExceptionGroup("g", [down, ValueError()]),
            "never": ExceptionGroup("g", [PermanentRefusal("gone")]),
            "down": ExceptionGroup("g", [down, ExceptionGroup("h", [TransportDown("refused")])]),
        }

        (report,) = self.passes(1, one_by_one())
        self.assertEqual((0, 0, 3, 1), (report.refused, report.dead, report.given_back, report.held))
        del self.receiver.refuses["down"]
        self.clock.advance(3600)
        (report,) = self.passes(1, one_by_one())

        self.assertEqual((1, 1, 1), (report.sent, report.refused, report.dead))

    def test_a_stop_ends_a_sleeping_relay(self) -> None:
        """The sleep is left at once and nothing stays behind, not even a sleep that takes its time to leave."""
        left: list[str] = []

        async def sleep(seconds: float) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(3):
                    await asyncio.sleep(0)
                left.append("sleep")

        async def run() -> int:
            stop = asyncio.Event()
            task = asyncio.create_task(self.relay(sleep=sleep).run(stop))
            for _ in range(20):
                await asyncio.sleep(0)
            stop.set()
            await task
            left.append("relay")
            return len(asyncio.all_tasks())

        self.assertEqual((1, ["sleep", "relay"]), (asyncio.run(run()), left))

    def test_a_cancelled_relay_marks_what_it_sent_and_gives_back_the_rest(self) -> None:
        """The cancellation comes out, nothing stays claimed, and no attempt is counted."""

        async def run() -> None:
            entered = asyncio.Event()

            async def send(topic: str, payload: str, *, key: str) -> None:
                if key == "b":
                    entered.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(self.relay(send=send, in_flight=1).run_pass())
            await entered.wait()
            task.cancel()
            await task

        self.record("a", "b", "c")
        with self.assertRaises(asyncio.CancelledError):
            asyncio.run(run())

        self.assertEqual(["sent", "pending", "pending"], [self.status(e) for e in "abc"])
        self.assertEqual(0, self.outbox.status("b")["attempts"])

    def test_a_cancellation_that_nobody_asked_for_is_a_refusal(self) -> None:
        """A receiver library that cancels itself costs that message an attempt and not the relay its life."""

        async def send(topic: str, payload: str, *, key: str) -> None:
            if key == "a":
                raise asyncio.CancelledError

        self.record("a", "b")
        [report] = self.passes(1, self.relay(send=send))

        self.assertEqual((1, 1), (report.sent, report.refused))

    def test_a_relay_sleeps_only_when_a_pass_moved_nothing(self) -> None:
        """One that sent, refused or buried anything is followed by the next at once, which lets others have their turn.

        Claims: I4-056.
        """
        moved = [PassReport(sent=1, refused=1), PassReport(refused=1, dead=1), PassReport(sent=1), PassReport(dead=1)]
        idle = [PassReport(claimed=1, given_back=1), PassReport(paused=True), PassReport(claimed=1, lost=1)]
        passes: list[PassReport] = []
        slept_after: list[PassReport] = []
        others: list[int] = []

        class Scripted(Relay):
            async def run_pass(self) -> PassReport:
                passes.append([*moved, *idle][len(passes)])
                return passes[-1]

        async def sleep(seconds: float) -> None:
            slept_after.append(passes[-1])

        async def run(loop: asyncio.AbstractEventLoop) -> None:
            stop = asyncio.Event()

            async def other() -> None:
                while len(passes) < len(moved) + len(idle):
                    others.append(len(passes))
                    self.assertLess(len(others), 1000)
                    await asyncio.sleep(0)
                stop.set()

            began = loop.time()
            await asyncio.gather(Scripted(self.outbox, self.receiver.send, sleep=sleep).run(stop), other())
            self.assertEqual(began, loop.time())

        run_virtual(run)

        self.assertEqual(idle, slept_after)
        self.assertLessEqual({1, 2, 3}, set(others))

    def test_a_pause_ends_at_its_moment_and_is_none_before_a_failure(self) -> None:
        """Whatever the clock says at first: only a transport that was down makes a relay wait."""
        for start in (-1e9, 0.0, 1e9):
            clock = ManualClock(start)
            self.clock.advance(5)  # what was held is due again
            relay = self.relay(clock=clock, pause=lambda failures: 5.0)
            self.record(f"e{start}")
            self.receiver.down = True
            self.assertEqual(1, self.passes(1, relay)[0].given_back)
            clock.now = start + 4.999
            self.assertTrue(self.passes(1, relay)[0].paused)
            clock.now = start + 5
            self.clock.advance(5)
            self.receiver.down = False
            self.assertEqual(1, self.passes(1, relay)[0].sent)

    def test_a_cancelled_relay_whose_store_is_broken_is_cancelled(self) -> None:
        """What it sent stays owed and is marked by the next pass."""
        self.record("a", "b")

        async def run(relay: Relay, entered: asyncio.Event) -> None:
            task = asyncio.create_task(relay.run_pass())
            await entered.wait()
            self.database.connection.execute("PRAGMA query_only=ON")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.database.connection.execute("PRAGMA query_only=OFF")
            self.assertEqual("claimed", self.status("a"))
            await relay.run_pass()

        entered = asyncio.Event()

        async def send(topic: str, payload: str, *, key: str) -> None:
            if key == "b" and not entered.is_set():
                entered.set()
                await asyncio.Event().wait()

        asyncio.run(run(self.relay(send=send), entered))

        self.assertEqual(["sent", "sent"], [self.status(e) for e in "ab"])

    def test_a_lease_ends_at_its_moment(self) -> None:
        """A batch says until when it may be sent, and at that very moment its time is over."""
        self.record("e")
        batch = self.claimed(lease_s=6)
        self.assertEqual((1006.0, True), (batch.lease_until, self.outbox.has_time(batch)))
        self.clock.advance(5.999)
        self.assertTrue(self.outbox.has_time(batch))
        self.clock.now = 1006.0
        self.assertFalse(self.outbox.has_time(batch))

    def test_nothing_is_sent_after_the_lease(self) -> None:
        """No send begins that might not end within the lease; the rest is given back. Claims: I4-059."""

        async def slow(topic: str, payload: str, *, key: str) -> None:
            self.receiver.got.append(key)
            self.clock.advance(2)

        self.record("a", "b", "c")
        [report] = self.passes(1, self.relay(send=slow, lease_s=6, in_flight=1, send_s=2, grace_s=1))

        self.assertEqual((["a", "b"], 2, 1), (self.receiver.got, report.sent, report.given_back))

    def test_a_caller_waits_for_the_delivery_and_the_row_is_the_truth(self) -> None:
        """It resolves after the relay's mark, not after the send, and gives up with its time (O12). Claims: I4-063."""
        self.record("e")

        async def run() -> list[str]:
            gate = asyncio.Event()

            async def send(topic: str, payload: str, *, key: str) -> None:
                await gate.wait()

            relay = self.relay(send=send, sleep=lambda seconds: asyncio.Event().wait())
            waiter = asyncio.create_task(relay.wait_for("e", 5))
            work = asyncio.create_task(relay.run_pass())
            for _ in range(5):
                await asyncio.sleep(0)
            seen = ["waiting" if not waiter.done() else "early"]
            gate.set()
            await work
            return [*seen, await waiter]

        self.assertEqual(["waiting", "sent"], asyncio.run(run()))
        self.record("f")
        self.assertEqual("pending", asyncio.run(self.relay().wait_for("f", 2.5)))
        self.assertEqual([1.0, 1.0, 0.5], self.clock.slept)

    def test_a_delivery_by_another_relay_is_seen_too(self) -> None:
        """It reads the row and does not hear of its own process only (O12). Claims: I4-063."""

        async def run() -> list[str]:
            self.record("here", "there")
            here, there = self.relay(limit=1), self.relay(self.open(), limit=1)
            await here.run_pass()
            await there.run_pass()
            return [await here.wait_for(event_id, 0) for event_id in ("here", "there")]

        self.assertEqual(["sent", "sent"], asyncio.run(run()))

    def test_times_are_numbers_of_one_clock(self) -> None:
        """Recorded east of here and due at once: a naive text would be due eight hours later (O8). Claims: I4-055."""
        noon = datetime.datetime(2026, 8, 1, 12, tzinfo=datetime.UTC)
        east = noon.astimezone(datetime.timezone(datetime.timedelta(hours=8)))
        self.clock.now = east.timestamp()
        self.record("e")
        self.clock.now = noon.timestamp()
        self.assertEqual(["e"], [message.event_id for message in self.claimed().messages])
        types = self.database.row("SELECT typeof(created_at), typeof(next_attempt_at), typeof(lease_until) FROM outbox")
        self.assertEqual(("integer", "integer", "integer"), types)


class OrderTest(OutboxTestCase):
    """Turns, priorities, compensations."""

    def test_order_within_a_key_survives_a_retry(self) -> None:
        """The refund waits for its charge while other keys go on (O6, bug 20). Claims: I4-064."""
        self.record("charge", ordering_key="order-7")
        self.record("refund", ordering_key="order-7", compensates="charge")
        self.record("other", ordering_key="order-8")
        self.receiver.refuses["charge"] = RuntimeError()
        self.passes(1)
        self.receiver.refuses.clear()
        self.passes(3, step_s=1)

        self.assertEqual(["other", "charge", "refund"], self.receiver.got)

    def test_a_compensation_goes_right_behind_what_it_undoes(self) -> None:
        """It overtakes later rows of its key that were recorded earlier, and never the row itself.

        Claims: I4-064, I4-094.
        """
        self.record("charge-1", "charge-2", "charge-3", ordering_key="k")
        self.record("refund-2", ordering_key="k", compensates="charge-2")
        self.record("undo-refund-2", ordering_key="k", compensates="refund-2")
        self.record("refund-1", ordering_key="k", compensates="charge-1")
        self.passes(7)

        self.assertEqual(
            ["charge-1", "refund-1", "charge-2", "refund-2", "undo-refund-2", "charge-3"], self.receiver.got
        )

    def test_a_compensation_takes_the_turn_of_a_row_that_waits(self) -> None:
        """One that was refused, or whose relay died; what is in flight is not called back, and is alone of its key.

        Claims: I4-064.
        """
        for dies in (False, True):
            self.record("charge-1", "charge-2", ordering_key="k")
            self.passes(1)
            in_flight = self.claimed(lease_s=5)
            self.record("refund-1", ordering_key="k", compensates="charge-1")
            self.assertIsNone(self.outbox.claim())
            if not dies:
                self.outbox.mark(in_flight, [Delivery(in_flight.messages[0], "refused")])
            self.clock.advance(5 if dies else 1)
            self.passes(3)
            self.assertEqual(["charge-1", "refund-1", "charge-2"], self.receiver.got)
            self.receiver.got.clear()
            self.database.connection.execute("DELETE FROM outbox")

    def test_a_higher_priority_goes_first_between_keys_and_waiting_lifts_the_low(self) -> None:
        """One level is worth a minute: an older low row beats a newer high one after that. Claims: I4-064."""
        self.record("low", ordering_key="a")
        self.record("high", ordering_key="b", priority=1)
        self.record("behind-low", ordering_key="a", priority=9)
        self.passes(1)
        self.assertEqual(["high", "low"], self.receiver.got)
        self.passes(1)
        self.receiver.got.clear()
        self.record("old")
        self.clock.advance(AGEING_S)
        self.record("new", priority=1)
        self.record("newer", priority=2)
        self.passes(1)

        self.assertEqual(["newer", "old", "new"], self.receiver.got)

    def test_a_dead_first_row_blocks_its_key_or_is_skipped_by_the_stated_rule(self) -> None:
        """Other keys go on in both cases; a person's replay or discard ends the block. Claims: I4-064, I4-066."""
        for rule, got in (("block", ["x"]), ("skip", ["x", "second"])):
            outbox = self.open(when_dead=rule)
            self.record("first", "second", outbox=outbox, ordering_key="k")
            self.record("x", outbox=outbox)
            self.receiver.refuses["first"] = PermanentRefusal("no")
            self.passes(3, self.relay(outbox), step_s=1)
            self.assertEqual(("dead", got), (self.status("first"), self.receiver.got))
            self.receiver.refuses.clear()
            self.receiver.got.clear()
            outbox.replay("first")
            self.passes(3, self.relay(outbox), step_s=1)
            self.assertEqual(["first", "second"] if rule == "block" else ["first"], self.receiver.got)
            self.receiver.got.clear()
            self.database.connection.execute("DELETE FROM outbox")

    def test_what_undoes_a_skipped_row_waits_for_it(self) -> None:
        """Recorded before or after the death, and what undoes that too; a replay sends them all in order.

        Claims: I4-064, I4-066.
        """
        outbox = self.open(when_dead="skip")
        self.record("charge", outbox=outbox, ordering_key="k")
        self.record("refund", outbox=outbox, ordering_key="k", compensates="charge")
        self.receiver.refuses["charge"] = PermanentRefusal("declined")
        self.passes(2, self.relay(outbox))
        self.record("undo", outbox=outbox, ordering_key="k", compensates="refund")
        self.record("next", outbox=outbox, ordering_key="k")
        self.passes(3, self.relay(outbox))
        self.assertEqual((["next"], "waiting", "waiting"), (self.receiver.got, *map(self.status, ("refund", "undo"))))
        self.receiver.refuses.clear()
        outbox.replay("charge")
        self.passes(4, self.relay(outbox))

        self.assertEqual(["next", "charge", "refund", "undo"], self.receiver.got)

    def test_what_undoes_a_row_that_was_given_up_is_withdrawn_with_it(self) -> None:
        """By a discard under either rule and by a withdrawal; afterwards there is nothing to undo.

        Claims: I4-064, I4-066.
        """
        for rule, give_up in (("skip", "discard"), ("block", "discard"), ("block", "withdraw")):
            with self.subTest(rule=rule, give_up=give_up):
                outbox = self.open(when_dead=rule)
                self.record("charge", "next", outbox=outbox, ordering_key="k")
                self.record("refund", outbox=outbox, ordering_key="k", compensates="charge")
                self.record("undo", outbox=outbox, ordering_key="k", compensates="refund")
                if give_up == "discard":
                    outbox.mark(batch := self.claimed(), [Delivery(batch.messages[0], "refused_for_good")])
                getattr(outbox, give_up)("charge")
                self.passes(3, self.relay(outbox))
                self.assertEqual(["next"], self.receiver.got)
                self.assertEqual(["withdrawn", "withdrawn"], [self.status(one) for one in ("refund", "undo")])
                again = partial(self.record, "late", ordering_key="k", compensates="charge")
                self.assert_code("wrong_status", again)
                self.receiver.got.clear()
                self.database.connection.execute("DELETE FROM outbox")

    def test_what_may_have_been_delivered_is_still_undone(self) -> None:
        """A row that was claimed before it was withdrawn keeps its compensation, also one that comes later."""
        self.record("charge", ordering_key="k")
        self.record("refund-1", ordering_key="k", compensates="charge")
        self.outbox.mark(batch := self.claimed(), [Delivery(batch.messages[0], "refused")])
        self.outbox.withdraw("charge")
        self.record("refund-2", ordering_key="k", compensates="charge")
        self.passes(2)

        self.assertEqual(["refund-1", "refund-2"], self.receiver.got)

    def test_a_wait_of_a_clock_that_was_ahead_is_that_wait_from_now(self) -> None:
        """A row that was recorded or put off a year ahead is due after its own delay, and has its rank of now."""
        self.clock.now += 365 * 86_400
        self.record("refused", "delayed", delay_s=0)
        self.record("later", delay_s=50)
        batch = self.claimed()
        refused = [Delivery(one, "refused" if one.event_id == "refused" else "not_tried") for one in batch.messages]
        self.outbox.mark(batch, refused)
        self.clock.now -= 365 * 86_400
        self.passes(1)
        self.assertEqual(["delayed"], self.receiver.got)
        self.passes(1, step_s=1)
        self.record("fresh")
        self.passes(2, step_s=48)
        self.assertEqual(["delayed", "refused", "fresh"], self.receiver.got)
        self.passes(2, step_s=1)
        self.assertEqual("later", self.receiver.got[-1])

    def test_the_age_of_a_message_that_a_clock_ahead_claimed_counts_from_now(self) -> None:
        """It ends by rule all the same: after its patience from the moment at which the clock was right again."""
        outbox = self.open(patience_s=10, max_attempts=1)
        self.record("a", outbox=outbox)
        self.receiver.refuses["a"] = ValueError()
        self.clock.now += 365 * 86_400
        self.passes(1, self.relay(outbox))
        self.clock.now -= 365 * 86_400
        self.passes(100, self.relay(outbox), step_s=1)

        self.assertEqual("dead", self.status("a"))

    def test_what_stands_still_is_listed_and_released_by_name(self) -> None:
        """Claimed, put off, behind another, waiting: each with its name; what was released goes at once."""
        outbox = self.open(when_dead="skip")
        self.record("taken", "behind", outbox=outbox, ordering_key="a")
        batch = self.claimed(outbox=outbox)
        self.record("charge", outbox=outbox, ordering_key="b")
        self.record("refund", outbox=outbox, ordering_key="b", compensates="charge")
        outbox.mark(dead := self.claimed(outbox=outbox), [Delivery(dead.messages[0], "refused_for_good")])
        self.record("due", outbox=outbox)
        self.record("later", outbox=outbox, delay_s=3600)
        names = [row["event_id"] for row in outbox.unsettled()]
        self.assertEqual(["taken", "behind", "refund", "later"], names)
        self.assertEqual(["taken"], [row["event_id"] for row in outbox.unsettled(1)])
        for name in ("taken", "later"):
            outbox.release(name)
        self.assertEqual(1, outbox.mark(batch, [Delivery(batch.messages[0], "sent")]).lost)
        self.passes(2, self.relay(outbox))
        self.assertEqual({"due", "taken", "later", "behind"}, set(self.receiver.got))
        for name in ("charge", "refund", "due"):
            self.assert_code("wrong_status", partial(outbox.release, name))

    def test_a_discarded_row_frees_its_key(self) -> None:
        """The next one goes; the event id stays known. Claims: I4-066."""
        self.record("first", "second", ordering_key="k")
        self.receiver.refuses["first"] = PermanentRefusal("no")
        self.passes(2)
        self.assertEqual([], self.receiver.got)
        self.outbox.discard("first")
        self.passes(1)

        self.assertEqual(("archived", ["second"]), (self.status("first"), self.receiver.got))

    def test_a_pending_row_is_withdrawn_and_a_claimed_or_sent_one_is_not(self) -> None:
        """Its key goes on; what may have been delivered says so."""
        self.record("first", "second", "third", ordering_key="k")
        self.outbox.withdraw("first")
        batch = self.claimed()
        self.assertEqual("second", batch.messages[0].event_id)
        self.assert_code("wrong_status", lambda: self.outbox.withdraw("second"))
        self.outbox.mark(batch, [Delivery(batch.messages[0], "refused")])
        self.assertTrue(self.outbox.status("second")["claimed_before"])
        self.outbox.withdraw("second")
        self.passes(1)

        self.assertEqual((["third"], False), (self.receiver.got, self.outbox.status("first")["claimed_before"]))
        with self.assertRaises(OutboxError) as caught:
            self.outbox.withdraw("third")
        self.assertEqual(("wrong_status", "sent"), (caught.exception.code, caught.exception.reason))

    def test_two_rows_of_a_key_cannot_both_have_the_turn(self) -> None:
        """The unique index `one_turn_per_key` refuses what no code here should try (O3)."""
        self.record("first", "second", ordering_key="k")

        with self.assertRaises(sqlite3.IntegrityError):
            self.database.connection.execute("UPDATE outbox SET turn = 1")


class UpkeepTest(OutboxTestCase):
    """Dead letters, archive, alarms."""

    def fill(self, status: str, count: int) -> None:
        """Put rows of one status there without the time that living through them takes."""
        ended = status != "pending"
        with self.database.write() as db:
            db.executemany(
                "INSERT INTO outbox (event_id, topic, payload, sha256, priority, rank, turn, status, attempts,"
                " misses, suspect, lease, next_attempt_at, noted_at, fence, created_at, ended_at)"
                " VALUES (?, 't', '{}', '', 0, 0, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, ?)",
                [
                    (f"{status}-{n}-{db.total_changes}", None if ended else 1, status, 0 if ended else None)
                    for n in range(count)
                ],
            )

    def test_the_alarms_are_above_ten_thousand_pending_and_a_hundred_dead(self) -> None:
        """At the number itself there is none, one more calls for a person; rows of other states do not count.

        Claims: I4-067, I4-068.
        """
        self.assertEqual((10_000, 100), (PENDING_ALARM, DEAD_ALARM))
        self.fill("sent", 5)
        self.fill("pending", 10_000)
        self.assertEqual({"pending": 10_000, "dead": 0, "overdue": 0, "alarms": []}, self.outbox.alarms())
        for _ in range(2):  # what lies further above is not counted
            self.fill("pending", 1)
            self.assertEqual({"pending": 10_001, "dead": 0, "overdue": 0, "alarms": ["pending"]}, self.outbox.alarms())
        self.database.connection.execute("DELETE FROM outbox")
        self.fill("dead", 100)
        self.assertEqual([], self.outbox.alarms()["alarms"])
        self.fill("dead", 1)
        self.assertEqual(["dead"], self.outbox.alarms()["alarms"])

    def test_sent_payloads_go_and_somebody_is_called(self) -> None:
        """A year later no payload of a sent row is held, and 101 dead rows alarm somebody (O10).

        Claims: I4-062, I4-068.
        """
        self.record(*(f"sent-{number}" for number in range(10)))
        self.passes(1)
        self.fill("dead", 101)
        self.clock.advance(366 * 86_400)
        self.outbox.archive(86_400)
        kept = self.database.row("SELECT count(*) FROM outbox WHERE payload IS NOT NULL AND status = 'sent'")[0]
        self.assertEqual((0, ["dead"]), (kept, self.outbox.alarms()["alarms"]))

    def test_what_ended_first_is_shown_and_cleared_first(self) -> None:
        """Dead rows in the order of their deaths, whatever their numbers; sent ones likewise lose their payload."""
        for status in ("dead", "sent"):
            self.fill(status, 3)
            with self.database.write() as db:
                db.execute("UPDATE outbox SET ended_at = 10 - id WHERE status = ?", (status,))
        dead = [row["event_id"] for row in self.outbox.dead()]
        self.assertEqual(sorted(dead, reverse=True), dead)
        self.assertEqual(1, self.outbox.archive(0, limit=1))
        archived = self.database.rows("SELECT id, (SELECT max(id) FROM outbox) FROM outbox WHERE status = 'archived'")
        self.assertEqual([(6, 6)], archived)

    def test_a_dead_row_is_out_of_the_way_until_it_is_replayed(self) -> None:
        """Not sent again by itself; a replay has all its attempts, and is refused past the horizon. Claims: I4-066."""
        outbox = self.open(max_attempts=2, horizon_s=100)
        self.record("e", outbox=outbox)
        self.receiver.refuses["e"] = RuntimeError()
        self.passes(10, self.relay(outbox), step_s=5)
        self.assertEqual((2, "dead"), (len(self.receiver.tried), self.status("e")))
        outbox.replay("e")
        self.passes(10, self.relay(outbox), step_s=5)
        self.assertEqual((4, 2), (len(self.receiver.tried), outbox.status("e")["attempts"]))
        died = self.database.row("SELECT ended_at FROM outbox")[0] / 1000
        self.clock.now = died + 100
        self.assert_code("replay_too_late", lambda: outbox.replay("e"))
        self.clock.now = died + 99.999
        outbox.replay("e")

        self.assertEqual("pending", self.status("e"))

    def test_only_old_sent_rows_are_archived_and_only_old_archived_ones_forgotten(self) -> None:
        """The payload goes first, the event id after the horizon; pending, claimed and dead rows stay.

        Claims: I4-062.
        """
        self.record("sent", "dead", "claimed", "pending")
        self.receiver.refuses["dead"] = PermanentRefusal("no")
        self.passes(1, self.relay(limit=2))
        self.clock.advance(60)
        self.outbox.claim(1, lease_s=10 * HORIZON_S)
        self.assertEqual((0, 1), (self.outbox.archive(61), self.outbox.archive(60)))
        self.assertEqual(
            ["archived", "dead", "claimed", "pending"], [self.status(e) for e in ("sent", "dead", "claimed", "pending")]
        )
        self.assert_code("retention_too_short", lambda: self.outbox.forget(HORIZON_S - 1))
        self.assertEqual(0, self.outbox.forget(HORIZON_S))
        self.clock.advance(HORIZON_S)

        self.assertEqual((1, 0), (self.outbox.forget(HORIZON_S), self.outbox.forget(HORIZON_S)))
        self.assert_code("not_found", lambda: self.outbox.status("sent"))

    def test_each_verb_is_one_transaction(self) -> None:
        """It takes the write lock before it looks, and its last statement is the commit."""
        said: list[str] = []
        consumer = Consumer(self.database, "c", clock=self.clock, retention_s=HORIZON_S)
        claimed: list[Batch] = []
        for event_id in ("sent", "dead", "gone", "withdrawn"):
            self.record(event_id, ordering_key=event_id)

        def claim() -> None:
            batch = self.claimed(3)
            claimed.append(batch)

        def mark() -> None:
            kinds: Any = ("sent", "refused_for_good", "refused_for_good")
            batch = claimed[0]
            self.outbox.mark(batch, [Delivery(one, kind) for one, kind in zip(batch.messages, kinds, strict=True)])

        def forget() -> None:
            self.clock.advance(HORIZON_S)
            self.outbox.forget(HORIZON_S)

        self.database.connection.set_trace_callback(said.append)
        for verb in (
            claim, mark, partial(self.outbox.withdraw, "withdrawn"), partial(self.outbox.replay, "dead"),
            partial(self.outbox.discard, "gone"), partial(self.outbox.archive, 0), partial(consumer.handle, "e", repr),
            forget, consumer.sweep,
        ):  # fmt: skip
            said.clear()
            verb()
            self.assertEqual(("BEGIN IMMEDIATE", "COMMIT", 1), (said[0], said[-1], said.count("BEGIN IMMEDIATE")))
            self.assertGreater(len(said), 2)
        self.assertEqual([("dead",)], self.database.rows("SELECT event_id FROM outbox"))

    def test_who_opened_the_file_closes_it(self) -> None:
        """A database that was given stays open; one that was opened by its path is closed, and once is enough."""
        for of_mine, of_theirs in (
            (Outbox(self.folder / "own.db", clock=self.clock), Outbox(self.database)),
            (Consumer(self.folder / "in.db", "c", clock=self.clock), Consumer(self.database, "c")),
        ):
            with closing(of_theirs):
                self.assertIsNotNone(of_mine.database.row("SELECT 1"))
            self.assertIsNotNone(of_theirs.database.row("SELECT 1"))
            of_mine.close()
            of_mine.close()
            with self.assertRaises(StoreError):
                of_mine.database.row("SELECT 1")
        with Outbox(self.folder / "own.db", clock=self.clock) as outbox:
            self.assertIsNone(outbox.claim())
        with self.assertRaises(StoreError):
            outbox.claim()

    def test_repeated_queries_are_served_by_an_index(self) -> None:
        """Due rows, dead leases, queues, alarms and archive never walk the table."""
        for sql in (
            outbox_rows._DUE,
            "SELECT ordering_key FROM outbox WHERE status = 'claimed' AND lease_until <= ?",
            f"SELECT id FROM outbox WHERE {outbox_rows._QUEUED} ORDER BY coalesce(anchor, id), id LIMIT 1",
            "SELECT 1 FROM outbox WHERE ordering_key = ? AND turn = 1",
            "SELECT 1 FROM outbox WHERE status = 'pending' LIMIT 5",
            "SELECT 1 FROM outbox WHERE status = 'dead' AND ended_at IS NOT NULL LIMIT 5",
            f"{outbox_rows._STATUS} WHERE status = 'dead' AND ended_at IS NOT NULL ORDER BY ended_at, id LIMIT 5",
            "SELECT id FROM outbox WHERE status = 'sent' AND ended_at IS NOT NULL AND ended_at <= ?"
            " ORDER BY ended_at, id",
        ):
            plan = " ".join(row[3] for row in self.database.rows(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?")))
            self.assertIn("INDEX", plan, sql)
            self.assertNotIn("TEMP B-TREE", plan, sql)


class ConsumerTest(OutboxTestCase):
    """The receiving side."""

    def consumer(self, name: str = "bank", **more: Any) -> Consumer:
        return Consumer(self.database, name, clock=self.clock, **more)

    def book(self, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO ledger VALUES ((SELECT 'n' || count(*) FROM ledger), 1)")

    def entries(self) -> int:
        return int(self.database.row("SELECT count(*) FROM ledger")[0])

    def test_a_duplicate_has_no_second_effect(self) -> None:
        """Each consumer has a memory of its own. Claims: I4-060."""
        first, other = self.consumer(), self.consumer("mail")

        self.assertEqual([True, False, True], [c.handle("e", self.book) for c in (first, first, other)])
        self.assertEqual(2, self.entries())

    def test_effect_and_memory_are_one_transaction(self) -> None:
        """An effect that fails is forgotten with its event, and made at the next delivery. Claims: I4-060."""

        def fails(db: sqlite3.Connection) -> None:
            self.book(db)
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.consumer().handle("e", fails)
        self.assertEqual(0, self.entries())
        self.assertTrue(self.consumer().handle("e", self.book))

        self.assertEqual(1, self.entries())

    def test_two_deliveries_at_once_have_one_effect(self) -> None:
        """While one is at work the other finds the write lock held; afterwards it is known (O11). Claims: I4-060."""

        def meanwhile(db: sqlite3.Connection) -> None:
            with self.assertRaises(StoreError):  # the write lock is held: the other delivery waits and is busy
                other.handle("e", self.book)
            self.book(db)

        other = Consumer(self.business(busy_seconds=0), "bank", clock=self.clock)
        self.consumer().handle("e", meanwhile)
        self.assertFalse(other.handle("e", self.book))
        self.assertEqual(1, self.entries())

    def test_memory_outlives_every_redelivery(self) -> None:
        """Three hours down, clean-up first, then a duplicate; and a replay after ten days (bug 21). Claims: I4-060."""
        self.assert_code("retention_too_short", lambda: self.consumer(retention_s=300))
        consumer = self.consumer(horizon_s=HORIZON_S, retention_s=HORIZON_S)
        consumer.handle("e", self.book)
        for wait in (3 * 3600, 10 * 86_400):
            self.clock.advance(wait)
            self.assertEqual(0, consumer.sweep())
            self.assertFalse(consumer.handle("e", self.book))
        self.clock.advance(HORIZON_S)

        self.assertEqual((1, 0), (consumer.sweep(), consumer.sweep()))

    def test_what_was_handled_first_is_forgotten_first(self) -> None:
        """A sweep with a limit goes on where the last one ended."""
        consumer = self.consumer(horizon_s=HORIZON_S, retention_s=HORIZON_S)
        for event_id in "abc":
            consumer.handle(event_id, self.book)
            self.clock.advance(1)
        self.clock.advance(HORIZON_S)
        self.assertEqual(1, consumer.sweep(limit=1))
        left = consumer.database.rows("SELECT event_id FROM inbox ORDER BY event_id")
        self.assertEqual([("b",), ("c",)], left)

    def test_each_delivery_lengthens_the_memory(self) -> None:
        """The horizon lies between two deliveries; a message that is replayed again and again has one effect still.

        A clock that falls back shortens nothing. Claims: I4-060.
        """
        consumer = self.consumer(horizon_s=HORIZON_S, retention_s=HORIZON_S)
        consumer.handle("e", self.book)
        for _ in range(5):
            self.clock.advance(HORIZON_S - 1)
            self.assertEqual(0, consumer.sweep())
            self.assertFalse(consumer.handle("e", self.book))
        self.clock.advance(1 - HORIZON_S)
        self.assertFalse(consumer.handle("e", self.book))
        self.clock.advance(2 * HORIZON_S - 2)

        self.assertEqual((0, 1), (consumer.sweep(), self.entries()))

    def test_an_effect_is_not_awaited_under_the_lock(self) -> None:
        """A coroutine function is refused and the event stays new. Claims: I4-101."""

        for effect in self.awaited():
            self.assert_code("bad_input", partial(self.consumer().handle, "e", effect))
        self.assert_code("no_transaction", lambda: self.consumer().first_time_in(self.database.connection, "e"))
        self.assertTrue(self.consumer().handle("e", self.book))

    def test_the_saga_refunds_once_and_before_the_later_charge(self) -> None:
        """A dead relay sends the refund twice; it has one effect, right behind the charge that it undoes.

        Claims: I4-064, I4-094, I4-095.
        """
        saga = asyncio.run(saga_demonstration(self.folder / "saga.db"))

        self.assertEqual(["charge-1", "refund-1", "refund-1", "charge-2"], saga["sends"])
        self.assertEqual((["charge-1", "refund-1", "charge-2"], -500), (saga["effects"], saga["balance_cents"]))
        self.assertEqual(saga, asyncio.run(saga_demonstration()))
        self.assertEqual(["saga.db"], [path.name for path in self.folder.iterdir() if path.name.startswith("saga")])

    def test_the_saga_tells_what_happened_when(self) -> None:
        """Recorded twice, delivered, the relay's death, and the second delivery that is dropped."""
        timeline = asyncio.run(saga_demonstration())["timeline"]

        self.assertEqual(
            [
                (0.0, "recorded", "charge-1"), (0.0, "delivered", "charge-1"),
                (1.0, "recorded", "charge-2"), (1.0, "shipping failed", "charge-1"),
                (1.0, "recorded", "refund-1"), (1.0, "recorded", "refund-1"), (1.0, "delivered", "refund-1"),
                (1.0, "relay died before its mark", "refund-1"),
                (6.0, "dropped as known", "refund-1"), (6.0, "delivered", "charge-2"),
            ],
            [(line["at"], line["what"], line["event"]) for line in timeline],
        )  # fmt: skip

    def test_no_module_claims_exactly_once(self) -> None:
        """Each says what holds inside one database, and what does not outside. Claims: I4-010, I4-052."""
        for each in (module, idempotency):
            text = inspect.getdoc(each) or ""
            self.assertIn("It gives no exactly-once", text)
            self.assertEqual(1, text.count("exactly-once"))


# Every order of two relays -------------------------------------------------------------------


class TwoRelays:
    """Two relays over a queue of three and one loose row, and a clock that ends a lease."""

    def __init__(self, outbox: Outbox, clock: ManualClock) -> None:
        self.clock, self.outbox = clock, outbox
        with self.outbox.database.write() as db:
            db.execute("DELETE FROM outbox")
            for event_id, key in (("k1", "k"), ("loose", None), ("k2", "k")):
                self.outbox.record(db, "t", {}, event_id=event_id, ordering_key=key)
        self.sends: list[str] = []
        self.claims: Counter[str] = Counter()
        self.marked: list[str] = []
        self.lease_ended = False
        self.bad: str | None = None
        self.steps = [iter(self.relay(2)), iter(self.relay(1)), iter(self.time())]

    def relay(self, rounds: int) -> Iterator[None]:
        for _ in range(rounds):
            batch = self.claim(2)
            yield
            if batch is not None:
                for message in batch.messages:
                    if message.event_id == "k2" and "k1" not in self.marked:
                        self.bad = "a later row of a key was sent before the earlier one was finished"
                    self.sends.append(message.event_id)
            yield
            if batch is not None:
                newest = self.outbox.database.row("SELECT max(fence) FROM outbox")[0]
                report = self.outbox.mark(batch, [Delivery(message, "sent") for message in batch.messages])
                if report.sent:
                    self.marked += [message.event_id for message in batch.messages]
                    if self.lease_ended and report.lost == 0 and batch.fence != newest and self.taken(batch):
                        self.bad = "a relay that was replaced marked a row"
            yield

    def claim(self, limit: int) -> Batch | None:
        batch = self.outbox.claim(limit, lease_s=5)
        self.claims.update([] if batch is None else [message.event_id for message in batch.messages])
        return batch

    def taken(self, batch: Batch) -> bool:
        ids = [message.id for message in batch.messages]
        return any(
            self.outbox.database.row("SELECT fence FROM outbox WHERE id = ?", (n,))[0] != batch.fence for n in ids
        )

    def time(self) -> Iterator[None]:
        self.clock.advance(5)
        self.lease_ended = True
        yield

    def end(self) -> str | None:
        """Let the leases end, drain the rest, and say what is wrong, or None."""
        self.clock.advance(5)
        for _ in range(6):
            self.clock.advance(1)
            batch = self.claim(100)
            if batch is not None:
                self.sends += [message.event_id for message in batch.messages]
                self.outbox.mark(batch, [Delivery(message, "sent") for message in batch.messages])
        rows = self.outbox.database.rows("SELECT status, turn, event_id, attempts FROM outbox ORDER BY id")
        if self.bad:
            return self.bad
        if rows != [("sent", None, event_id, self.claims[event_id]) for event_id in ("k1", "loose", "k2")]:
            return "a row was left, or a claim not counted"
        if not self.lease_ended and len(self.sends) != len(set(self.sends)) and len(self.marked) != 3:
            return "a row was sent twice although no lease ended"
        return None


def first_problem() -> str | None:
    """Run every order of two relays, one with two rounds, and the end of a lease."""
    clock = ManualClock()
    with Outbox(":memory:", clock=clock, delay=lambda failures: 1.0) as outbox:
        for order in interleavings(6, 3, 1):
            scene = TwoRelays(outbox, clock)
            for actor in order:
                next(scene.steps[actor])
            problem = scene.end()
            if problem is not None:
                return f"{problem}: {order}"
    return None


class EveryOrderTest(unittest.TestCase):
    """Two relays on one file."""

    def test_no_order_of_two_relays_breaks_a_promise(self) -> None:
        """All 840 orders of claim, send and mark of two relays and the end of a lease. Claims: I4-059, I4-064."""
        self.assertEqual(840, len(list(interleavings(6, 3, 1))))
        self.assertIsNone(first_problem())

    def test_without_a_guard_some_order_breaks_one(self) -> None:
        """Without the fence of a mark, or without the turn of a claim, there is a counterexample."""
        with taken_out(OUTBOX, "_SENT", "fence = ?", "? IS NOT NULL"):
            self.assertIsNotNone(first_problem())
        with taken_out(OUTBOX, "_DUE", "turn = 1", "turn IS NOT NULL"), self.assertRaises(sqlite3.IntegrityError):
            first_problem()  # the constraint `claimed_in_turn` stands behind it


# A model -------------------------------------------------------------------------------------


class Model:
    """An outbox as a list of dicts and a few loops; it shares no code with the real one."""

    def __init__(self, block: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self.block, self.fence = block, 0

    def find(self, event_id: str) -> dict[str, Any]:
        return next(row for row in self.rows if row["event_id"] == event_id)

    def record(self, event_id: str, key: str | None, priority: int, compensates: str | None, now: float) -> None:
        place = (len(self.rows) + 1,)
        if compensates is not None:
            place = (self.find(compensates)["place"][0],)
        self.rows.append(
            {
                "event_id": event_id,
                "key": key,
                "place": (*place, len(self.rows) + 1),
                "undoes": compensates,
                "status": "pending",
                "rank": now - 60 * priority,
                "due": now,
                "attempts": 0,
                "suspect": 0,
                "fence": 0,
                "lease": 0.0,
            }
        )
        if compensates is not None and self.stops(self.find(compensates)):
            self.rows[-1]["status"] = "waiting"

    def stops(self, row: dict[str, Any]) -> bool:
        return row["status"] == "waiting" or (row["status"] == "dead" and not self.block)

    def given_up(self, row: dict[str, Any]) -> bool:
        return row["status"] == "archived" or (row["status"] == "withdrawn" and not row["fence"])

    def take_along(self, row: dict[str, Any], before: tuple[str, ...], after: str) -> None:
        for other in self.rows:
            if other["undoes"] == row["event_id"]:
                self.take_along(other, before, after)
                if other["status"] in before:
                    other["status"] = after

    def die(self, row: dict[str, Any]) -> None:
        row["status"] = "dead"
        if not self.block:
            self.take_along(row, ("pending",), "waiting")

    def unfinished(self, row: dict[str, Any]) -> bool:
        return row["status"] in ("pending", "claimed") or (row["status"] == "dead" and self.block)

    def has_turn(self, row: dict[str, Any]) -> bool:
        others = [r for r in self.rows if r is not row and r["key"] == row["key"] and self.unfinished(r)]
        return row["key"] is None or not any(r["place"] < row["place"] or r["status"] == "claimed" for r in others)

    def claim(self, limit: int, now: float) -> list[str]:
        for row in self.rows:
            if row["status"] == "claimed" and now >= row["lease"]:
                self.relay_died(row, now)
        due = [r for r in self.rows if r["status"] == "pending" and r["due"] <= now and self.has_turn(r)]
        due.sort(key=lambda row: (row["rank"], row["place"][-1]))
        self.fence += bool(due)
        taken: list[dict[str, Any]] = []
        for row in due[:limit]:
            if taken and (row["suspect"] != taken[0]["suspect"] or len(taken) == (limit, FEW, 1)[row["suspect"]]):
                break
            taken.append(row)
        for row in taken:
            row.update(status="claimed", attempts=row["attempts"] + 1, fence=self.fence, lease=now + 20)
        return [row["event_id"] for row in taken]

    def relay_died(self, row: dict[str, Any], now: float) -> None:
        alone = row["suspect"] == 2
        if alone and row["attempts"] >= 3:
            self.die(row)
            for other in self.rows:
                if other["key"] == row["key"] is not None and other["status"] == "pending":
                    other["suspect"] = 2
            return
        due = now + 4 if alone else now
        row.update(status="pending", due=due, rank=max(row["rank"], due), suspect=min(row["suspect"] + 1, 2))
        if not alone:
            row["attempts"] = min(row["attempts"], 2)

    def mark(self, event_id: str, fence: int, kind: str, now: float) -> None:
        row = self.find(event_id)
        if row["status"] != "claimed" or row["fence"] != fence:
            return
        if kind == "sent":
            row["status"] = "sent"
        elif kind == "not_tried":
            row.update(status="pending", attempts=row["attempts"] - 1)
        elif kind == "refused_for_good" or (kind == "refused" and row["attempts"] >= 3):
            self.die(row)
        else:
            due = now + (4 if kind == "refused" else 7)
            row.update(status="pending", due=due, rank=max(row["rank"], due), suspect=0)
            row["attempts"] -= kind == "held"


class ModelTest(unittest.TestCase):
    """Random histories against the model."""

    def test_random_histories_agree_with_the_model(self) -> None:
        """Forty seeds, 120 steps each: every claimed batch and every status is the model's.

        Claims: I4-058, I4-059, I4-064, I4-066.
        """
        for seed in range(40):
            with self.subTest(seed=seed):
                self.play(random.Random(seed), block=seed % 2 == 0)

    def play(self, chance: random.Random, block: bool) -> None:
        clock, model = ManualClock(), Model(block)
        batches: list[Batch] = []
        when_dead: Any = "block" if block else "skip"
        with Outbox(
            ":memory:", clock=clock, delay=lambda n: 4.0, max_attempts=3, patience_s=0, when_dead=when_dead
        ) as outbox:
            for step in range(120):
                act = chance.choice(("record", "record", "claim", "mark", "mark", "time", "hand"))
                if act == "record":
                    self.record(outbox, model, chance, f"e{step}", clock())
                elif act == "claim":
                    limit = chance.randint(1, 4)
                    batch = outbox.claim(limit, lease_s=20)
                    if batch is not None:
                        batches.append(batch)
                    got = [] if batch is None else [message.event_id for message in batch.messages]
                    self.assertEqual(model.claim(limit, clock()), got)
                elif act == "mark" and batches:
                    self.mark(outbox, model, chance, chance.choice(batches[-3:]), clock())
                elif act == "hand" and model.rows:
                    self.by_hand(outbox, model, chance.choice(model.rows), chance.random(), clock())
                else:
                    clock.advance(chance.choice((1, 4, 20)))
                shown = outbox.database.rows("SELECT status FROM outbox ORDER BY id")
                self.assertEqual([row["status"] for row in model.rows], [status for (status,) in shown])

    def record(self, outbox: Outbox, model: Model, chance: random.Random, event_id: str, now: float) -> None:
        key, priority = chance.choice((None, "a", "a", "b")), chance.randrange(-1, 2)
        same = [row for row in model.rows if row["key"] == key and key is not None]
        undone = chance.choice(same) if same and chance.random() < 0.4 else None
        compensates = None if undone is None else undone["event_id"]
        with outbox.database.write() as db:
            if undone is not None and model.given_up(undone):
                with self.assertRaises(OutboxError) as caught:
                    outbox.record(db, "t", {}, event_id=event_id, ordering_key=key, compensates=compensates)
                self.assertEqual("wrong_status", caught.exception.code)
                return
            # A compensation of a compensation stands behind the first one's place.
            outbox.record(db, "t", {}, event_id=event_id, ordering_key=key, priority=priority, compensates=compensates)
        model.record(event_id, key, priority, compensates, now)

    def mark(self, outbox: Outbox, model: Model, chance: random.Random, batch: Batch, now: float) -> None:
        words = ("sent", "refused", "refused_for_good", "held", "not_tried")
        kinds: Any = [chance.choice(words) for _ in batch.messages]
        told = [Delivery(message, kind, wait_s=7) for message, kind in zip(batch.messages, kinds, strict=True)]
        outbox.mark(batch, told)
        for message, kind in zip(batch.messages, kinds, strict=True):
            model.mark(message.event_id, batch.fence, kind, now)

    def by_hand(self, outbox: Outbox, model: Model, row: dict[str, Any], way: float, now: float) -> None:
        if row["status"] in ("pending", "waiting") and way < 0.3:
            outbox.withdraw(row["event_id"])
            row["status"] = "withdrawn"
            if not row["fence"]:
                model.take_along(row, ("pending", "waiting"), "withdrawn")
        elif row["status"] in ("pending", "claimed") and way > 0.9:
            outbox.release(row["event_id"])
            row.update(status="pending", due=now, rank=min(row["rank"], now))
        elif row["status"] == "dead" and way < 0.5:
            outbox.replay(row["event_id"])
            row.update(status="pending", attempts=0, suspect=0, due=now)
            model.take_along(row, ("waiting",), "pending")
        elif row["status"] == "dead":
            outbox.discard(row["event_id"])
            row["status"] = "archived"
            model.take_along(row, ("pending", "waiting"), "withdrawn")


if __name__ == "__main__":
    unittest.main()
