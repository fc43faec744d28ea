"""One effect for one intent: the store against its faults, a model, and every order of two callers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import itertools
import json
import random
import sqlite3
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

from chapter10.companions.effects import idempotency, intent_records
from chapter10.companions.effects.idempotency import (
    APPLICATION_ID,
    DEFAULT_TTL_S,
    MAX_RESULT_BYTES,
    PAYMENT,
    POLL_S,
    QUERY,
    SHARED_OWNER,
    TABLES,
    Claim,
    CompletedWithoutValue,
    FailedFinal,
    IdempotencyError,
    IdempotencyStore,
    InProgressError,
    Intent,
    LeaseLost,
    Lifetime,
    NotExecuted,
    NotRecorded,
    OutcomeUnknown,
    Record,
    Verdict,
    document_key,
    intent_key,
    make_intent,
    ttl_for,
)
from chapter10.companions.interruption.budget import BudgetExhausted
from chapter10.companions.interruption.cancellation import ToolCancelled
from chapter10.companions.retrying.circuit_breaker import CircuitOpenError
from chapter10.companions.tools.registry import ToolRegistry
from chapter10.companions.tools.tool_spec import ToolSpec
from chapter10.database import Database, StoreError
from chapter10.tests.faulty_stores import IDEMPOTENCY, interleavings, taken_out
from chapter10.tests.support import FolderTestCase, ManualClock, defaults

ORDER = {"user_id": "u1", "action": "charge", "target_id": "order-7", "cents": 1000}
BUSINESS = "CREATE TABLE ledger (entry TEXT PRIMARY KEY, cents INTEGER NOT NULL);"


class Bank:
    """A service elsewhere: it counts what was done to it and may lose its answer."""

    def __init__(self, ending: object = None) -> None:
        self.balance = 0
        self.calls = 0
        self.ending = ending

    async def charge(self) -> Any:
        self.calls += 1
        self.balance -= 1000
        return self._end({"charged": 1000})

    async def refuse_connection(self) -> Any:
        self.calls += 1
        return self._end(None)

    def _end(self, value: object) -> Any:
        if isinstance(self.ending, BaseException):
            ending, self.ending = self.ending, None
            raise ending
        return value if self.ending is None else self.ending


class Beats:
    """A `call_later` whose callbacks come when a test calls them."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> Beats:
        self.due.append(call)
        return self

    def cancel(self) -> None:
        """Nothing is to be taken off a schedule."""


def awaiting(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a handler of a tool, which is a function that awaits."""

    async def handler() -> Any:
        return await call()

    return handler


class StoreTestCase(FolderTestCase):
    """A store on a file and a clock moved by hand."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = ManualClock(1000.0)
        self.store = self.open()

    def open(self, **more: Any) -> IdempotencyStore:
        store = IdempotencyStore(self.folder / "once.db", clock=self.clock, sleep=self.sleep, **more)
        self.addCleanup(store.close)
        return store

    async def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        await asyncio.sleep(0)

    def once(self, fn: Callable[[], Any], intent: Any = ORDER, store: Any = None, **more: Any) -> Any:
        return asyncio.run((store or self.store).execute_once("payments", intent, fn, **more))

    def claimed(self, what: Intent, store: Any = None, **more: Any) -> Claim:
        """Claim an intent that nobody has."""
        found = (store or self.store).claim(what, **more)
        assert isinstance(found, Claim)
        return found

    def state(self, intent: Any = ORDER, **more: Any) -> str:
        return self.store.look(make_intent("payments", intent, **more)).state

    def assert_code(self, code: str, call: Callable[[], object]) -> IdempotencyError:
        with self.assertRaises(IdempotencyError) as caught:
            call()
        self.assertEqual(code, caught.exception.code)
        self.assertEqual(code, str(caught.exception))
        return caught.exception


class KeyTest(StoreTestCase):
    """What names an intent."""

    def test_each_business_field_changes_the_key_and_nothing_else_does(self) -> None:
        """User, action, target and arguments make the key; their order does not. Claims: I4-035, I4-002, I4-040."""
        keys = {intent_key("payments", {**ORDER, name: "other"}) for name in ORDER}
        keys.add(intent_key("payments", ORDER))

        self.assertEqual(len(ORDER) + 1, len(keys))
        self.assertEqual(intent_key("payments", ORDER), intent_key("payments", dict(reversed(ORDER.items()))))
        self.assertRegex(intent_key("payments", ORDER), "^[0-9a-f]{64}$")
        self.assertEqual(make_intent("payments", ORDER), make_intent("payments", ORDER, fields=list(ORDER)))

    def test_parts_of_a_briefing_key_are_joined_unambiguously(self) -> None:
        """Task, path and content hash make the key, and no two ways of cutting a text meet. Claims: T6-028."""

        def key(task: str, path: str, content: str) -> str:
            return intent_key("briefings", {"task_id": task, "path": path, "content_hash": content})

        self.assertEqual(key("t", "a", "h"), key("t", "a", "h"))
        others = [("u", "a", "h"), ("t", "b", "h"), ("t", "a", "i"), ("ta", "", "h")]
        self.assertEqual(5, len({key("t", "a", "h"), *(key(*parts) for parts in others)}))
        self.assertNotEqual(intent_key("a", {"b": "c"}), intent_key("ab", {"": "c"}))

    def test_what_belongs_to_one_transmission_is_refused_at_any_depth(self) -> None:
        """A trace id, a request id or a time stamp would make every retry a new intent.

        Claims: I4-041, T6-033, I4-002, I4-051.
        """
        for name in ("trace_id", "request_id", "traceId", "X-Request-ID", "timestamp", "created_at", "attempt"):
            for intent in ({name: "1"}, {"a": [{"b": {name: "1"}}]}):
                self.assert_code("unstable_field", partial(intent_key, "payments", intent))
                self.assert_code("unstable_field", partial(make_intent, "payments", intent))
                self.assert_code("unstable_field", partial(document_key, "payments", intent))
        self.assertEqual({"namespace", "fields"}, set(inspect.signature(intent_key).parameters))

    def test_with_a_key_of_the_callers_own_content_is_content(self) -> None:
        """A mail's `message_id` or a booking's `created_at` is compared as any field, and is no reason to refuse."""
        mail = {"message_id": "m-1", "created_at": "2026-08-01", "items": [{"attempt": 2}]}
        first = make_intent("mails", mail, key="order-7")
        self.assertEqual(first, make_intent("mails", dict(mail), key="order-7"))
        other = make_intent("mails", {**mail, "created_at": "2026-08-02"}, key="order-7")
        self.assertEqual((first.key, False), (other.key, first.fingerprint == other.fingerprint))

    def test_the_document_key_has_the_bytes_of_the_document(self) -> None:
        """Its form is recomputed here from its description, also for text that is not ASCII. Claims: I4-040."""
        for intent in (ORDER, {"b": 1, "a": [True, None, "x"]}, {"月": "八"}):
            text = json.dumps(intent, sort_keys=True, separators=(",", ":"))
            expected = "idem:payments:" + hashlib.sha256(text.encode()).hexdigest()[:32]

            self.assertEqual(expected, document_key("payments", intent))
        self.assert_code("bad_input", lambda: document_key("a:b", ORDER))

    def test_values_that_two_programs_may_write_differently_are_refused_or_brought_to_one_form(self) -> None:
        """Two forms of an accent are one name; what JSON does not have, or not in one way, is no intent.

        Claims: I4-040.
        """
        self.assertEqual(intent_key("n", {"name": "é"}), intent_key("n", {"name": "e\u0301"}))
        self.assertEqual(make_intent("n", {}, key="é"), make_intent("n", {}, key="e\u0301"))
        numbers: list[Any] = [{1: 2}, {"a": float("nan")}, {"a": 1.0}]
        for bad in [*numbers, {"a": (1,)}, {"\ud800": 1}, [], None, {"é": 1, "e\u0301": 2}]:
            self.assert_code("bad_input", partial(intent_key, "n", bad))

    def test_namespaces_and_owners_do_not_touch_each_other(self) -> None:
        """Columns keep them apart where joined text would let `a:b` + `c` meet `a` + `b:c` (I11). Claims: I4-049."""
        runs = []
        names = [("a", "b", "c"), ("a:b", "-", "c"), ("a", "-", "b:c"), ("查询订单", "-", "c"), ("取消订单", "-", "c")]
        for namespace, owner, key in names:
            found = self.store.claim(make_intent(namespace, ORDER, owner=owner, key=key))
            runs.append(type(found))

        self.assertEqual([Claim] * 5, runs)

    def test_same_key_with_other_arguments_is_a_conflict_in_every_state(self) -> None:
        """Neither run nor replayed (X-08). Claims: I4-035."""
        what = make_intent("payments", ORDER, fields=["user_id", "target_id"])
        again = make_intent("payments", {**ORDER, "cents": 2000}, fields=("target_id", "user_id"))
        self.assertEqual(what.key, again.key)
        claim = self.claimed(what)
        self.assert_code("key_conflict", lambda: self.store.claim(again))
        self.store.doubt(claim)
        self.assert_code("key_conflict", lambda: self.store.claim(again))
        self.store.complete(claim, 1)
        self.assert_code("key_conflict", lambda: self.store.claim(again))
        self.assertEqual(1, self.store.look(what).value)

    def test_two_real_purchases_stay_two_and_a_reworded_text_stays_one(self) -> None:
        """A key of the caller's own tells intents apart that look alike, and the other way round (X-07).

        Claims: I4-002, I4-051, T6-033.
        """
        bank = Bank()
        for order in ("order-1", "order-2", "order-1"):
            self.once(bank.charge, {"cents": 1000}, key=order)
        self.assertEqual(2, bank.calls)
        self.assertNotEqual(intent_key("queries", {"order": "7"}), intent_key("payments", {"order": "7"}))
        one = make_intent("payments", {"order": "7", "note": "please"}, fields=["order"])
        two = make_intent("payments", {"order": "7", "note": "kindly"}, fields=["order"])
        self.assertEqual(one.key, two.key)


class LifeTest(StoreTestCase):
    """How long results and leases live."""

    def test_a_lifetime_is_twice_the_retry_window_or_refused_at_set_up(self) -> None:
        """Payments live 24 hours and queries 5 minutes; below twice the window nothing is set up, and nothing run.

        Claims: I4-038, I4-039, I4-097.
        """
        self.assertEqual(600, ttl_for(300))
        self.assertEqual((86_400, 300), (PAYMENT.ttl_s, QUERY.ttl_s))
        self.assertEqual(86_400, DEFAULT_TTL_S)
        self.assert_code("ttl_too_short", lambda: Lifetime(150, 299))
        self.assertEqual(300, Lifetime(150, 300).ttl_s)
        bank = Bank()
        self.assert_code("ttl_too_short", lambda: self.store.claim(make_intent("payments", ORDER), ttl_s=86_399))
        self.assert_code("ttl_too_short", lambda: self.once(bank.charge, ttl_s=60))
        self.assertEqual(("absent", 0), (self.state(), bank.calls))

    def test_a_result_lives_from_its_completion_to_its_end_and_not_longer(self) -> None:
        """Equal to the end is outlived; then the same intent is a new one. Claims: I4-036, I4-037, I4-046, I4-039."""
        store = self.open(lifetimes={"payments": QUERY})
        what = make_intent("payments", ORDER)
        claim = self.claimed(what, store=store)
        self.clock.advance(20)
        store.complete(claim, "first")
        self.clock.advance(299.999)
        self.assertEqual("first", store.look(what).value)
        self.assertEqual(Record, type(store.claim(what)))
        self.clock.advance(0.001)

        self.assertEqual("absent", store.look(what).state)
        self.assertEqual(Claim, type(store.claim(what)))

    def test_what_has_no_value_is_outlived_like_any_result(self) -> None:
        """An effect whose value could not be stored, and a final refusal, end with their lifetime too.

        Claims: I4-037.
        """
        store = self.open(lifetimes={"payments": QUERY})
        valueless, refused = (make_intent("payments", ORDER, key=key) for key in ("valueless", "refused"))
        for what in (valueless, refused):
            claim = self.claimed(what, store=store)
            if what is valueless:
                store.complete(claim, object())
            else:
                store.fail(claim, "declined")
        self.clock.advance(299.999)
        self.assertEqual(["completed", "failed_final"], [store.look(what).state for what in (valueless, refused)])
        self.clock.advance(0.001)
        self.assertEqual(["absent"] * 2, [store.look(what).state for what in (valueless, refused)])
        self.assertEqual([Claim] * 2, [type(store.claim(what)) for what in (valueless, refused)])

    def test_the_sweeper_removes_outlived_results_and_nothing_else(self) -> None:
        """In progress, unknown and live results stay, whatever their age. Claims: I4-037."""
        store = self.open(lifetimes={"payments": QUERY})
        names = ["running", "doubt", "old", "failed", "young"]
        claims: dict[str, Any] = {}
        for name in names[:4]:
            claims[name] = store.claim(make_intent("payments", ORDER, key=name))
        store.doubt(claims["doubt"])
        store.complete(claims["old"], None)
        self.clock.advance(1)
        store.fail(claims["failed"], "declined")
        self.clock.advance(300)
        claims["young"] = store.claim(make_intent("payments", ORDER, key="young"))
        store.complete(claims["young"], 1)
        self.assertEqual(1, store.sweep(limit=1))
        self.assertEqual([], store.db.execute("SELECT key FROM idempotency WHERE key = 'old'").fetchall())

        self.assertEqual((1, 0), (store.sweep(), store.sweep()))
        kept = store.db.execute("SELECT key FROM idempotency ORDER BY key").fetchall()
        self.assertEqual([("doubt",), ("running",), ("young",)], kept)

    def test_a_shorter_lifetime_than_the_declared_one_is_kept_and_a_longer_one_is_not(self) -> None:
        """Between twice the retry window and what the namespace says the caller chooses. Claims: I4-038."""
        store = self.open(lifetimes={"payments": Lifetime(100, 600)})
        self.assert_code("ttl_too_short", lambda: store.claim(make_intent("payments", ORDER), ttl_s=199))
        for ttl_s, lived in ((200, 200), (600, 600), (601, 600)):
            what = make_intent("payments", ORDER, key=str(ttl_s))
            claim = self.claimed(what, ttl_s=ttl_s, store=store)
            store.complete(claim, 1)
            self.assertEqual(self.clock() + lived, store.look(what).expires_at)

    def test_a_store_closes_what_it_opened_and_nothing_else(self) -> None:
        """A file of its own is closed with the block, twice if one likes; a database of the caller's stays open."""
        database = Database(self.folder / "shared.db", application_id=77, migrations=(TABLES,))
        self.addCleanup(database.close)
        for place in (self.folder / "own.db", database):
            with IdempotencyStore(place, clock=self.clock) as store:
                self.assertEqual("absent", store.look(make_intent("n", ORDER)).state)
            if place is database:
                self.assertEqual("absent", store.look(make_intent("n", ORDER)).state)
            else:
                with self.assertRaises(StoreError):
                    store.look(make_intent("n", ORDER))
            store.close()

    def test_a_restart_forgets_nothing(self) -> None:
        """A second store on the file replays what the first one stored. Claims: I4-037, T6-034."""
        bank = Bank()
        first = self.once(bank.charge)
        self.store.close()

        self.assertEqual(first, self.once(bank.charge, store=self.open()))
        self.assertEqual(1, bank.calls)

    def test_a_lease_is_short_where_the_result_is_long(self) -> None:
        """A killed holder blocks for its lease and not for a day (bug 11). Claims: I4-048."""
        for repeatable, expected in ((True, Claim), (False, Record)):
            what = make_intent("payments", ORDER, key=f"killed-{repeatable}")
            self.store.claim(what, lease_s=2, repeatable=repeatable)
            self.clock.advance(1.999)
            self.assertEqual("in_progress", self.store.look(what).state)
            self.clock.advance(0.001)
            found = self.store.claim(what, repeatable=repeatable)
            self.assertEqual(expected, type(found))
        self.assertEqual("unknown", self.store.look(what).state)

    def test_zero_time_left_is_refused_before_the_claim(self) -> None:
        """0 is exhausted and None is no limit; no row is left behind (bug 12). Claims: I4-102."""
        bank = Bank()
        self.assert_code("budget_exhausted", lambda: self.once(bank.charge, remaining=lambda: 0))
        self.assert_code("bad_input", lambda: self.once(bank.charge, remaining=lambda: float("nan")))
        self.assertEqual((0, "absent"), (bank.calls, self.state()))
        self.once(bank.charge, remaining=lambda: 0.001)
        self.once(bank.charge, remaining=None)

        self.assertEqual(1, bank.calls)


class OutcomeTest(StoreTestCase):
    """How a call ends, and what may happen afterwards."""

    def test_the_same_intent_runs_once_and_is_replayed(self) -> None:
        """A model that asks twice, or twelve times, is charged once and gets the first answer.

        Claims: I4-001, I4-005, I4-006, I4-042, I4-043, I4-045, T6-029.
        """
        for n in range(1, 13):
            bank = Bank()
            answers = [self.once(bank.charge, {**ORDER, "n": n}) for _ in range(n)]
            self.assertEqual(([{"charged": 1000}] * n, -1000, 1), (answers, bank.balance, bank.calls))
        signature = inspect.signature(IdempotencyStore.execute_once)
        self.assertEqual(["self", "namespace", "intent", "fn", "ttl_s"], list(signature.parameters)[:5])
        self.assertEqual(86_400, signature.parameters["ttl_s"].default)
        self.assertTrue(inspect.iscoroutinefunction(IdempotencyStore.execute_once))

    def test_a_lost_answer_makes_a_doubt_and_no_second_charge(self) -> None:
        """Its own error comes out, and the key stays taken. Claims: I4-050, I4-047, T6-032."""
        for lost in (TimeoutError(), ConnectionResetError(), RuntimeError("boom")):
            bank = Bank(lost)
            intent = {**ORDER, "case": type(lost).__name__}
            with self.assertRaises(type(lost)) as caught:
                self.once(bank.charge, intent)
            self.assertIs(lost, caught.exception)
            with self.assertRaises(OutcomeUnknown):
                self.once(bank.charge, intent)
            self.assertEqual((-1000, "unknown"), (bank.balance, self.state(intent)))

    def test_what_surely_did_nothing_frees_the_key(self) -> None:
        """No connection, no time, an open circuit, one's own class or a declared one: tried again at once.

        Claims: I4-047.
        """
        store = self.open(not_executed=(LookupError,))
        declared = ExceptionGroup("all of it", [KeyError("no such account"), NotExecuted("checked")])
        for nothing in (
            NotExecuted("checked"),
            ConnectionRefusedError(),
            CircuitOpenError(1.0),
            BudgetExhausted("charge", 0, 1),
            LookupError(),
            declared,
        ):
            bank = Bank(nothing)
            with self.assertRaises(type(nothing)):
                self.once(bank.refuse_connection, store=store)
            self.assertEqual("absent", self.state())
        self.once(bank.charge, store=store)

        self.assertEqual(2, bank.calls)

    def test_one_leaf_that_may_have_been_applied_is_a_doubt(self) -> None:
        """A group with a time-out in it, a cancel that came with a value, a busy store: nobody charges again."""
        for lost in (
            ExceptionGroup("two", [NotExecuted("checked"), TimeoutError()]),
            ToolCancelled("user", ({"charged": 1000},)),
            NotRecorded({"charged": 1000}),
            StoreError("store_busy", "after the charge"),
        ):
            bank = Bank(lost)
            intent = {**ORDER, "case": type(lost).__name__}
            with self.assertRaises(type(lost)):
                self.once(bank.charge, intent)
            for _ in range(2):
                with self.assertRaises(OutcomeUnknown):
                    self.once(bank.charge, intent)
            self.assertEqual((-1000, "unknown"), (bank.balance, self.state(intent)))

    def test_a_tool_tells_a_doubt_as_one_the_first_time_and_every_time(self) -> None:
        """Whatever loses the outcome of a write, its caller hears `outcome_unknown`, and so does a repeat."""
        for lost in (
            ConnectionResetError(),
            NotRecorded({"charged": 1000}),
            LeaseLost({"charged": 1000}),
            ToolCancelled("user", ({"charged": 1000},)),
            ExceptionGroup("two", [ValueError(), TimeoutError()]),
        ):
            bank = Bank(lost)
            intent = {**ORDER, "case": type(lost).__name__}

            charge = partial(self.store.execute_once, "payments", intent, bank.charge)
            registry = ToolRegistry()
            registry.register(ToolSpec("charge", "Charge.", "irreversible_write", 5.0, 1, 1000, awaiting(charge), {}))
            for _ in range(3):
                with self.assertLogs("chapter10", "INFO"):
                    answer = asyncio.run(registry.invoke("charge", {}, approved=True, key="order-7"))
                self.assertEqual("outcome_unknown", answer["error"], repr(lost))
            self.assertEqual(-1000, bank.balance)

    def test_any_error_of_a_repeatable_call_frees_the_key(self) -> None:
        """A read, or a tool that hands the key downstream, is run again. Claims: I4-047, T6-032."""
        bank = Bank(TimeoutError())
        with self.assertRaises(TimeoutError):
            self.once(bank.charge, repeatable=True)
        self.once(bank.charge, repeatable=True)

        self.assertEqual((2, "completed"), (bank.calls, self.state()))

    def test_a_final_refusal_is_stored_and_replayed(self) -> None:
        """A declined card stays declined without asking again. Claims: I4-005."""
        bank = Bank(FailedFinal("declined", {"why": "limit"}))
        for _ in range(2):
            with self.assertRaises(FailedFinal) as caught:
                self.once(bank.charge)
            self.assertEqual(("declined", {"why": "limit"}), (caught.exception.code, caught.exception.detail))

        self.assertEqual((1, "failed_final"), (bank.calls, self.state()))

    def test_a_value_that_cannot_be_stored_does_not_free_the_key(self) -> None:
        """The caller has it, and everybody after is told that it was done. Claims: I4-046."""
        for n, value in enumerate((object(), {1: 2}, "x" * MAX_RESULT_BYTES, float("nan"), "\ud800")):
            bank = Bank(value)
            self.assertIs(value, self.once(bank.charge, {**ORDER, "n": n}))
            with self.assertRaises(CompletedWithoutValue):
                self.once(bank.charge, {**ORDER, "n": n})
            self.assertEqual((1, "completed"), (bank.calls, self.state({**ORDER, "n": n})))

    def test_a_machine_that_fails_to_save_does_not_make_a_second_charge(self) -> None:
        """The caller gets the value with the error; the end of the lease makes a doubt (I2). Claims: I4-046, I4-050."""
        bank = Bank()

        async def charge_and_fill_the_disk() -> Any:
            value = await bank.charge()
            self.store.db.execute("PRAGMA query_only=ON")
            return value

        with self.assertRaises(NotRecorded) as caught:
            self.once(charge_and_fill_the_disk)
        self.store.db.execute("PRAGMA query_only=OFF")
        self.assertEqual(("not_recorded", {"charged": 1000}), (caught.exception.code, caught.exception.value))
        self.assertIsInstance(caught.exception.__cause__, StoreError)
        with self.assertRaises(InProgressError):
            self.once(bank.charge)
        self.clock.advance(30)
        with self.assertRaises(OutcomeUnknown):
            self.once(bank.charge)

        self.assertEqual(1, bank.calls)

    def test_a_cancelled_call_is_a_doubt_or_free_and_never_a_day_in_progress(self) -> None:
        """Cancellation, interrupt and exit are no `Exception`, and are recorded all the same (I3, X-10).

        Claims: I4-048.
        """
        store = self.open(call_later=Beats())
        for n, stop in enumerate((asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(3), GeneratorExit())):
            for repeatable, expected in ((False, "unknown"), (True, "absent")):
                intent = {**ORDER, "n": n, "repeatable": repeatable}
                run = store.execute_once("payments", intent, Bank(stop).charge, repeatable=repeatable)
                with self.assertRaises(type(stop)):
                    run.send(None)
                self.assertEqual(expected, self.state(intent))

    def test_a_call_that_surely_did_not_start_frees_the_key(self) -> None:
        """An interrupt between the claim and the function leaves nothing behind. Claims: I4-048."""
        bank = Bank()
        store = self.open(call_later=mock.Mock(side_effect=KeyboardInterrupt))
        with self.assertRaises(KeyboardInterrupt):
            store.execute_once("payments", ORDER, bank.charge).send(None)
        self.assertEqual((0, "absent"), (bank.calls, self.state()))

    def test_falsy_results_are_replayed(self) -> None:
        """Presence is the state, and not the truth of the value. Claims: I4-045."""
        values: list[Any] = [None, 0, False, "", [], {}]
        for value in values:
            calls: list[int] = []

            async def fn(value: Any = value, calls: list[int] = calls) -> Any:
                calls.append(1)
                return value

            intent = {**ORDER, "value": value}
            self.assertEqual([value, value], [self.once(fn, intent), self.once(fn, intent)])
            self.assertEqual([1], calls)

    def test_the_second_caller_is_told_what_is_in_progress_and_for_how_long(self) -> None:
        """The error has the key and a hint. Claims: I4-044."""

        async def two() -> Any:
            release = asyncio.Event()

            async def slow() -> str:
                await release.wait()
                return "done"

            first = asyncio.create_task(self.store.execute_once("payments", ORDER, slow))
            await asyncio.sleep(0)
            second = await asyncio.gather(self.store.execute_once("payments", ORDER, slow), return_exceptions=True)
            release.set()
            return await first, second[0]

        value, error = asyncio.run(two())
        self.assertEqual("done", value)
        self.assertIsInstance(error, InProgressError)
        key = make_intent("payments", ORDER).key
        self.assertEqual(("in_progress", key, 30.0), (error.code, error.key, error.retry_after))

    def test_a_caller_may_wait_for_the_result_within_its_time(self) -> None:
        """It replays what the other one came to, or is refused when its time is over; never both run.

        Claims: I4-043, I4-044, I4-045.
        """

        async def scene(wait_s: float, ending: object) -> Any:
            bank, gate = Bank(ending), asyncio.Event()

            async def slow() -> Any:
                await gate.wait()
                return await bank.charge()

            intent = {**ORDER, "wait": int(wait_s), "ending": repr(ending)}
            first = asyncio.create_task(self.store.execute_once("payments", intent, slow))
            await asyncio.sleep(0)
            second = asyncio.create_task(self.store.execute_once("payments", intent, bank.charge, wait_s=wait_s))
            await asyncio.sleep(0)
            if wait_s > 1:
                gate.set()
                await asyncio.gather(first, return_exceptions=True)
            ends = await asyncio.gather(second, return_exceptions=True)
            gate.set()
            await asyncio.gather(first, return_exceptions=True)
            return ends[0], bank.calls

        self.assertEqual(({"charged": 1000}, 1), asyncio.run(scene(5, None)))
        end, calls = asyncio.run(scene(5, TimeoutError()))
        self.assertEqual((OutcomeUnknown, 1), (type(end), calls))
        self.assertEqual(({"charged": 1000}, 2), asyncio.run(scene(5, NotExecuted("connect_failed"))))
        end, calls = asyncio.run(scene(1, None))
        self.assertEqual((InProgressError, 1), (type(end), calls))

    def test_a_caller_waits_as_long_as_it_said_and_only_if_it_said_so(self) -> None:
        """A look each tenth of a second and one at the end; without `wait_s` none at all. Claims: I4-044."""
        self.store.claim(make_intent("payments", ORDER))
        for more, slept in (({}, []), ({"wait_s": 0}, []), ({"wait_s": 0.25}, [0.1, 0.1, 0.05])):
            self.clock.slept.clear()
            with self.assertRaises(InProgressError):
                self.once(Bank().charge, **more)
            self.assertEqual(slept, [round(pause, 6) for pause in self.clock.slept])

    def test_the_error_of_the_call_comes_out_when_the_machine_fails_too(self) -> None:
        """The doubt could not be stored, and the end of the lease makes it. Claims: I4-048, I4-050."""

        async def charge_and_break() -> Any:
            self.store.db.execute("PRAGMA query_only=ON")
            raise TimeoutError

        with self.assertRaises(TimeoutError):
            self.once(charge_and_break)
        self.store.db.execute("PRAGMA query_only=OFF")
        self.assertEqual("in_progress", self.state())
        self.clock.advance(30)

        self.assertEqual("unknown", self.state())

    def test_a_waiter_takes_over_when_the_lease_it_waits_for_ends(self) -> None:
        """A repeatable call goes on within its waiting time; any other becomes a doubt. Claims: I4-044, I4-048."""
        for repeatable in (True, False):
            intent = {**ORDER, "repeatable": repeatable}
            self.store.claim(make_intent("payments", intent), lease_s=2, repeatable=repeatable)
            bank = Bank()
            try:
                self.once(bank.charge, intent, wait_s=5, repeatable=repeatable)
            except OutcomeUnknown:
                self.assertFalse(repeatable)
            self.assertEqual((int(repeatable), 2.0), (bank.calls, round(sum(self.clock.slept), 3)))
            self.clock.slept.clear()

    def test_waiting_ends_with_the_budget(self) -> None:
        """A waiter whose time runs out is refused and runs nothing. Claims: I4-102."""
        self.store.claim(make_intent("payments", ORDER), lease_s=1000)
        end = self.clock() + 0.25
        error = self.assert_code(
            "budget_exhausted", lambda: self.once(Bank().charge, wait_s=50, remaining=lambda: end - self.clock())
        )

        self.assertIsNone(error.reason)
        self.assertLess(self.clock() - end, 0.1)

    def test_a_status_query_ends_a_doubt(self) -> None:
        """Done is replayed, not done is run, failed is refused; a probe that knows nothing changes nothing (bug 13).

        Claims: I4-050, T6-032.
        """
        expected = [
            (Verdict("done", {"charged": 1000}), {"charged": 1000}, 1),
            (Verdict("not_done"), {"charged": 1000}, 2),
            (Verdict("failed", "declined"), "declined", 1),
            (Verdict("unknown"), "outcome_unknown", 1),
        ]
        for n, (answer, value, calls) in enumerate(expected):
            bank = Bank(TimeoutError())
            asked: list[int] = []

            async def probe(answer: Verdict = answer, asked: list[int] = asked) -> Verdict:
                asked.append(1)
                return answer

            intent = {**ORDER, "n": n}
            with self.assertRaises(TimeoutError):
                self.once(bank.charge, intent, probe=probe)
            self.assertEqual([], asked)
            try:
                end = self.once(bank.charge, intent, probe=probe)
            except (IdempotencyError, FailedFinal) as error:
                end = error.code
            self.assertEqual((value, calls, [1]), (end, bank.calls, asked))

    def test_nobody_is_asked_about_what_is_known(self) -> None:
        """A probe is for a doubt: what is at work, done or refused is told without it. Claims: I4-050."""
        asked: list[int] = []

        async def probe() -> Verdict:
            asked.append(1)
            return Verdict("unknown")

        states: list[str] = []
        for name in ("in_progress", "completed", "failed_final"):
            claim = self.claimed(make_intent("payments", ORDER, key=name))
            if name == "completed":
                self.store.complete(claim, 1)
            elif name == "failed_final":
                self.store.fail(claim, "declined")
            try:
                self.once(Bank().charge, key=name, probe=probe)
            except (InProgressError, FailedFinal) as error:
                states.append(error.code)

        self.assertEqual((["in_progress", "declined"], []), (states, asked))

    def test_an_answer_that_is_no_verdict_is_not_taken_for_one(self) -> None:
        """The probe is wrong, and that comes out; the doubt stands and nothing is run. Claims: I4-050."""
        bank = Bank(TimeoutError())
        with self.assertRaises(TimeoutError):
            self.once(bank.charge)
        answers: list[Any] = [None, "done", Verdict("perhaps"), Verdict("failed", ""), Verdict("failed", None)]  # type: ignore[arg-type]
        for answer in answers:

            async def probe(answer: Any = answer) -> Verdict:
                return answer  # type: ignore[no-any-return]

            self.assert_code("bad_input", lambda probe=probe: self.once(bank.charge, probe=probe))  # type: ignore[misc]
        self.assertEqual((1, "unknown"), (bank.calls, self.state()))

    def test_a_budget_that_a_probe_used_up_starts_nothing(self) -> None:
        """The other side says "not done" after the time was over: the key is free and nobody has it.

        Claims: I4-102.
        """
        bank = Bank(TimeoutError())
        with self.assertRaises(TimeoutError):
            self.once(bank.charge)
        end = self.clock() + 1

        async def slow_probe() -> Verdict:
            self.clock.advance(1)
            return Verdict("not_done")

        self.assert_code(
            "budget_exhausted",
            lambda: self.once(bank.charge, probe=slow_probe, remaining=lambda: end - self.clock()),
        )
        self.assertEqual((1, "absent"), (bank.calls, self.state()))

    def test_a_person_settles_only_what_was_looked_at(self) -> None:
        """The fence of the look has to be the record's; a settled record is not settled again. Claims: I4-050."""
        what = make_intent("payments", ORDER)
        claim = self.claimed(what, lease_s=5)
        self.assert_code("not_unknown", lambda: self.store.settle(what, Verdict("not_done"), fence=claim.fence))
        self.clock.advance(5)
        [open_case] = self.store.unsettled()
        self.assertEqual(("unknown", claim.fence), (open_case["state"], open_case["fence"]))
        self.assert_code("not_unknown", lambda: self.store.settle(what, Verdict("not_done"), fence=claim.fence + 1))
        self.store.settle(what, Verdict("done", 7), fence=claim.fence)
        self.assert_code("not_unknown", lambda: self.store.settle(what, Verdict("not_done"), fence=claim.fence))

        self.assertEqual((7, []), (self.store.look(what).value, self.store.unsettled()))
        with self.assertRaises(LeaseLost):
            self.store.complete(claim, 8)

    def test_what_waits_for_an_end_is_listed_oldest_first(self) -> None:
        """Each with its name, its fence, who had it and since when; a live or a repeatable one is not among them.

        Claims: I4-050.
        """
        store = self.open(holder="worker 7")
        for key, repeatable in (("dead", False), ("doubted", False), ("repeatable", True)):
            claim = self.claimed(
                make_intent("payments", ORDER, owner="o", key=key), lease_s=2, repeatable=repeatable, store=store
            )
            if key == "doubted":
                store.doubt(claim)
            self.clock.advance(0.5)
        store.claim(make_intent("payments", ORDER, owner="o", key="live"))
        self.clock.advance(5)

        same = {"namespace": "payments", "owner": "o", "state": "unknown", "holder": "worker 7"}
        expected = [
            {**same, "key": "dead", "fence": 1, "begun_at": 1000.0},
            {**same, "key": "doubted", "fence": 2, "begun_at": 1000.5},
        ]
        self.assertEqual((expected, expected[:1]), (store.unsettled(), store.unsettled(1)))
        dead = make_intent("payments", ORDER, owner="o", key="dead")
        told = Record("unknown", "dead", 1, "worker 7")
        self.assertEqual([told] * 3, [store.look(dead), self.store.claim(dead), store.look(dead)])

    def test_a_stale_probe_does_not_free_a_newer_claim(self) -> None:
        """Two callers ask at once; the slower answer finds another fence and decides nothing. Claims: I4-043."""
        bank = Bank(TimeoutError())
        with self.assertRaises(TimeoutError):
            self.once(bank.charge)

        async def slow_probe() -> Verdict:
            await self.store.execute_once("payments", ORDER, bank.charge, probe=quick_probe)
            return Verdict("not_done")

        async def quick_probe() -> Verdict:
            return Verdict("not_done")

        self.assertEqual({"charged": 1000}, self.once(bank.charge, probe=slow_probe))
        self.assertEqual(2, bank.calls)

    def test_an_irreversible_call_is_not_taken_over_when_its_lease_ends(self) -> None:
        """A takeover needs both callers to call it repeatable (I6). Claims: I4-048, I4-050."""
        for first, second in itertools.product((True, False), repeat=2):
            expected = Claim if first and second else Record
            what = make_intent("payments", ORDER, key=f"{first}-{second}")
            self.store.claim(what, lease_s=1, repeatable=first)
            self.clock.advance(1)

            self.assertEqual(expected, type(self.store.claim(what, repeatable=second)))

    def test_the_same_key_goes_downstream_on_every_attempt(self) -> None:
        """The other side sees one key on first send, repeat and compensation lookup. Claims: I4-095."""
        seen: list[str] = []
        key = intent_key("payments", ORDER)

        async def call() -> Any:
            seen.append(key)
            if len(seen) == 1:
                raise TimeoutError
            return {"refund_of": key}

        with self.assertRaises(TimeoutError):
            self.once(call, key=key, repeatable=True)
        answer = self.once(call, key=key, repeatable=True)

        self.assertEqual(([key, key], key), (seen, answer["refund_of"]))


class LeaseTest(StoreTestCase):
    """Fences and renewals."""

    def setUp(self) -> None:
        super().setUp()
        self.what = make_intent("payments", ORDER)

    def taken_over(self) -> tuple[Claim, Claim]:
        first = self.store.claim(self.what, lease_s=1, repeatable=True)
        self.clock.advance(1)
        second = self.store.claim(self.what, repeatable=True)
        assert isinstance(first, Claim) and isinstance(second, Claim)
        return first, second

    def test_a_late_holder_changes_nothing_of_its_successor(self) -> None:
        """Complete, fail, release, doubt and renew all ask for the fence (I4, I5, bug 10). Claims: I4-043."""
        first, second = self.taken_over()
        before = self.store.look(self.what)
        for late in (
            lambda: self.store.complete(first, "late"),
            lambda: self.store.fail(first, "late"),
            lambda: self.store.release(first),
            lambda: self.store.doubt(first),
            lambda: self.store.renew(first),
        ):
            with self.assertRaises(LeaseLost) as caught:
                late()
            self.assertEqual("lease_lost", caught.exception.code)
        self.assertEqual(before, self.store.look(self.what))
        self.store.complete(second, "second")

        self.assertGreater(second.fence, first.fence)
        self.assertEqual("second", self.store.look(self.what).value)

    def test_an_outlived_holder_neither_answers_for_its_successor_nor_frees_its_key(self) -> None:
        """A is outlived, B is at work, A ends well or badly, C asks: C is told that B is at work.

        Claims: I4-043, I4-048.
        """
        for a_fails in (False, True):
            store = self.open(lifetimes={"n": QUERY}, call_later=Beats())
            once = partial(store.execute_once, "n", {**ORDER, "a_fails": a_fails}, lease_s=2, repeatable=True)
            end = asyncio.run(self.outlived(once, a_fails))
            self.assertEqual(("InProgressError", {"a": 1, "b": 1, "c": 0}), end)

    async def outlived(self, once: Callable[[Any], Any], a_fails: bool) -> tuple[str, dict[str, int]]:
        """Play the scene; return what C got, and how often each of the three functions ran."""
        runs = {"a": 0, "b": 0, "c": 0}
        gates = {"a": asyncio.Event(), "b": asyncio.Event()}

        async def fn(name: str) -> str:
            runs[name] += 1
            if name in gates:
                await gates[name].wait()
            if name == "a" and a_fails:
                raise RuntimeError
            return name

        a = asyncio.create_task(once(partial(fn, "a")))
        await asyncio.sleep(0)
        self.clock.advance(2)
        b = asyncio.create_task(once(partial(fn, "b")))
        await asyncio.sleep(0)
        gates["a"].set()
        await asyncio.gather(a, return_exceptions=True)
        ends = await asyncio.gather(once(partial(fn, "c")), return_exceptions=True)
        gates["b"].set()
        await asyncio.gather(b, return_exceptions=True)
        return ends[0] if isinstance(ends[0], str) else type(ends[0]).__name__, runs

    def test_each_fence_guard_is_needed(self) -> None:
        """Without it in one statement, that statement lets the late holder through."""
        for name, act in (
            ("_END", lambda claim: self.store.complete(claim, "late")),
            ("_RELEASE", lambda claim: self.store.release(claim)),
            ("_DOUBT", lambda claim: self.store.doubt(claim)),
            ("_RENEW", lambda claim: self.store.renew(claim, lease_s=60)),
        ):
            self.store.db.execute("DELETE FROM idempotency")
            first, _ = self.taken_over()
            before = self.store.db.execute("SELECT * FROM idempotency").fetchall()
            with taken_out(IDEMPOTENCY, name, "fence = ?", "? IS NOT NULL"):
                act(first)
            self.assertNotEqual(before, self.store.db.execute("SELECT * FROM idempotency").fetchall(), name)

    def test_a_fence_does_not_come_back_after_a_release(self) -> None:
        """The holder from before a release is not mistaken for the one after it. Claims: I4-043."""
        first = self.claimed(self.what)
        self.store.release(first)
        second = self.claimed(self.what)

        self.assertGreater(second.fence, first.fence)
        with self.assertRaises(LeaseLost):
            self.store.complete(first, "late")

    def test_a_holder_that_renews_is_not_replaced_and_a_silenced_one_cannot_commit(self) -> None:
        """A tool of 10 s with a lease of 3 s runs once while its timer renews (bug 10).

        Without the timer the lease ends at 3 s, another caller takes over, and the late result is refused.

        Claims: I4-043, I4-044.
        """
        self.assertEqual((["in_progress"] * 10, "done"), self.long_run(silenced=False))
        self.clock.advance(DEFAULT_TTL_S)
        seen, value = self.long_run(silenced=True)
        self.assertEqual(["in_progress"] * 2 + ["taken"] + ["in_progress"] * 7, seen)
        self.assertEqual(("LeaseLost", "in_progress"), (value, self.store.look(self.what).state))

    def long_run(self, *, silenced: bool) -> tuple[list[str], str]:
        """Run a tool of 10 s while a second caller asks each second; return what that one saw, and the end."""
        beats = Beats()
        seen: list[str] = []

        async def long_tool() -> str:
            for _ in range(10):
                self.clock.advance(1)
                if beats.due and not silenced:
                    beats.due.pop(0)()
                found = self.store.claim(self.what, repeatable=True)
                seen.append("taken" if isinstance(found, Claim) else found.state)
            return "done"

        try:
            value = self.once(long_tool, store=self.open(call_later=beats), lease_s=3, repeatable=True)
        except LeaseLost as error:
            self.assertEqual("done", error.value)
            value = "LeaseLost"
        return seen, value

    def test_a_lease_that_is_over_is_not_renewed(self) -> None:
        """At its end exactly one side wins, and that is the next caller."""
        claim = self.claimed(self.what, lease_s=2)
        self.assertEqual(1002.0, claim.lease_until)
        self.clock.advance(1.5)
        claim = self.store.renew(claim, lease_s=2)
        self.assertEqual(1003.5, claim.lease_until)
        self.assertEqual(1003.5, self.store.renew(claim, lease_s=1).lease_until)
        self.assertEqual(2.0, self.store.look(self.what).retry_after)
        self.clock.advance(2)

        with self.assertRaises(LeaseLost):
            self.store.renew(claim)

    def test_a_lease_of_a_clock_that_was_ahead_ends_a_lease_from_now(self) -> None:
        """Who was killed while the clock was a year ahead blocks its key for one lease more, and not for a year."""
        for repeatable, ending in ((True, "a claim"), (False, "unknown")):
            what = make_intent("payments", ORDER, key=ending)
            self.clock.advance(365 * 86_400)
            self.store.claim(what, lease_s=30, repeatable=repeatable)
            self.clock.advance(-365 * 86_400)
            for seen in (self.store.look(what), self.store.claim(what, repeatable=repeatable)):
                assert isinstance(seen, Record)
                self.assertEqual(("in_progress", 30.0), (seen.state, seen.retry_after))
            self.clock.advance(30)
            found = self.store.claim(what, repeatable=repeatable)
            self.assertEqual(ending, "a claim" if isinstance(found, Claim) else found.state)

    def test_a_holder_that_lives_keeps_its_lease_when_the_clock_is_put_right(self) -> None:
        """Its next renewal gives it the lease that it asks for, and no year with it."""
        self.clock.advance(86_400)
        claim = self.claimed(self.what, lease_s=30)
        self.clock.advance(-86_400)
        renewed = self.store.renew(claim, 10)
        self.assertEqual(self.clock() + 30, renewed.lease_until)
        self.assertEqual(self.clock() + 60, self.store.renew(renewed, 60).lease_until)

    def test_what_a_wrong_clock_left_is_listed_and_released_by_name(self) -> None:
        """An operator sees it at once, and frees the key by the names in the list; a healthy lease is not listed."""
        self.claimed(make_intent("payments", ORDER, key="healthy"), lease_s=30)
        self.clock.advance(86_400)
        self.store.claim(self.what, repeatable=True)
        self.clock.advance(-86_400)
        (row,) = self.store.unsettled()
        self.assertEqual(("in_progress", self.what.key), (row["state"], row["key"]))
        healthy = self.store.look(make_intent("payments", ORDER, key="healthy"))
        for key, fence in (("healthy", healthy.fence), (row["key"], row["fence"] + 1)):
            with self.assertRaises(IdempotencyError) as caught:
                self.store.settle_by_name("payments", SHARED_OWNER, key, Verdict("not_done"), fence=fence)
            self.assertEqual("not_unknown", caught.exception.code)
        names = (row["namespace"], row["owner"], row["key"])
        self.store.settle_by_name(*names, Verdict("not_done"), fence=row["fence"])
        self.assertEqual(("absent", []), (self.state(), self.store.unsettled()))

    def test_a_holder_may_complete_late_when_nobody_came_in_between(self) -> None:
        """What it knows is better than the doubt that the end of its lease made."""
        claim = self.claimed(self.what, lease_s=2)
        self.clock.advance(10)
        self.assertEqual("unknown", self.store.claim(self.what).state)  # type: ignore[union-attr]
        self.store.complete(claim, "late but true")

        self.assertEqual("late but true", self.store.look(self.what).value)

    def test_a_renewal_ends_with_the_longest_run(self) -> None:
        """The number of renewals is bounded, so that a stuck call does not hold its key for ever."""
        beats = Beats()

        async def stuck() -> int:
            count = 0
            while beats.due:
                self.clock.advance(400)
                beats.due.pop()()
                count += 1
            return count

        self.assertEqual(9, self.once(stuck, store=self.open(call_later=beats), lease_s=1200))

    def test_a_timer_comes_at_a_third_of_the_lease_and_goes_with_the_call(self) -> None:
        """A call that ended leaves nothing on the schedule, whether it gave a value, an error or a cancel."""
        seen: list[Any] = []

        class Timer:
            def cancel(self) -> None:
                seen.append("off")

        def later(seconds: float, call: Callable[[], None]) -> Timer:
            seen.append(seconds)
            return Timer()

        store = self.open(call_later=later)
        for n, ending in enumerate((7, ValueError(), asyncio.CancelledError())):
            with contextlib.suppress(ValueError, asyncio.CancelledError):
                self.once(Bank(ending).charge, {**ORDER, "n": n}, store=store, lease_s=12)
        self.assertEqual([4.0, "off"] * 3, seen)

    def test_a_renewal_that_fails_is_made_up_for_by_the_next(self) -> None:
        """The machine is busy for one beat of the timer; two more fit into the lease."""
        beats = Beats()
        store = self.open(call_later=beats)
        until: list[float] = []

        async def long_tool() -> None:
            for broken in ("ON", "OFF"):
                self.clock.advance(1)
                store.db.execute(f"PRAGMA query_only={broken}")
                beats.due.pop()()
                until.append(self.clock() + store.look(self.what).retry_after)

        self.once(long_tool, store=store, lease_s=3)
        self.assertEqual([1003.0, 1005.0], until)

    def test_a_timer_stops_when_the_lease_is_lost(self) -> None:
        """One beat finds out; no other is scheduled."""
        beats = Beats()

        async def outlived() -> None:
            self.clock.advance(3)
            beats.due.pop()()

        self.once(outlived, store=self.open(call_later=beats), lease_s=3)
        self.assertEqual([], beats.due)


class TransactionTest(StoreTestCase):
    """The record and the business write together."""

    def setUp(self) -> None:
        super().setUp()
        self.database = Database(
            self.folder / "business.db", application_id=77, migrations=(BUSINESS, TABLES), busy_seconds=1
        )
        self.addCleanup(self.database.close)
        self.both = IdempotencyStore(self.database, clock=self.clock)
        self.what = make_intent("payments", ORDER)

    def write(self, db: sqlite3.Connection) -> str:
        db.execute("INSERT INTO ledger VALUES ('order-7', -1000)")
        return "written"

    def entries(self) -> int:
        return int(self.database.row("SELECT count(*) FROM ledger")[0])

    def test_an_effect_in_this_database_is_made_once(self) -> None:
        """Run the whole chain twice: one order row, one answer, where a bare insert would fail on its key.

        Claims: I4-004, T6-029, T6-034.
        """
        answers = []
        for _ in range(2):
            with self.database.write() as db:
                answers.append(self.both.run_in(db, self.what, self.write))

        self.assertEqual((["written"] * 2, 1), (answers, self.entries()))

    def test_effect_and_record_are_both_there_or_neither_is(self) -> None:
        """An error after the effect, and one after the record, leave nothing; then the call runs.

        Claims: I4-004, T6-034.
        """
        for late in (False, True):
            with self.assertRaises(ZeroDivisionError), self.database.write() as db:
                self.both.run_in(db, self.what, self.write if late else lambda db: self.write(db) and 1 // 0)
                raise ZeroDivisionError
            self.assertEqual((0, "absent"), (self.entries(), self.both.look(self.what).state))
        with self.database.write() as db:
            self.both.run_in(db, self.what, self.write)

        self.assertEqual((1, "completed"), (self.entries(), self.both.look(self.what).state))

    def test_every_step_inside_a_transaction_asks_for_one(self) -> None:
        """Outside a transaction sqlite3 would commit each statement by itself."""
        claim = self.both.claim(self.what)
        assert isinstance(claim, Claim)
        db = self.database.connection
        for call in (
            lambda: self.both.claim_in(db, self.what),
            lambda: self.both.complete_in(db, claim, 1),
            lambda: self.both.fail_in(db, claim, "no"),
            lambda: self.both.release_in(db, claim),
            lambda: self.both.doubt_in(db, claim),
            lambda: self.both.run_in(db, self.what, self.write),
        ):
            self.assert_code("no_transaction", call)

    def test_an_operation_that_wants_to_be_awaited_is_refused(self) -> None:
        """Nothing is awaited while the write lock is held, and the refusal rolls back. Claims: I4-101."""

        async def elsewhere() -> None:
            """Never started."""

        class Later:
            """To be awaited, and nothing that could be closed."""

            def __await__(self) -> Iterator[None]:
                yield

        def call(value: object) -> None:
            with self.database.write() as db:
                self.both.run_in(db, self.what, lambda db: value)

        made = elsewhere()
        for value in (made, Later()):
            self.assert_code("bad_input", partial(call, value))
            self.assertEqual("absent", self.both.look(self.what).state)
        self.assertEqual(inspect.CORO_CLOSED, inspect.getcoroutinestate(made))

    def test_an_idempotent_call_costs_two_durable_commits_and_a_replay_none(self) -> None:
        """Counted on the connection: transactions that changed something."""
        for call, expected in ((lambda: self.once(Bank().charge), 2), (lambda: self.once(Bank().charge), 0)):
            self.assertEqual(expected, self.commits(self.store, call))
        self.assertEqual(2, self.commits(self.store, lambda: self.store.run_once("k", lambda: {"ok": True})))
        self.assertEqual(2, self.store.db.execute("PRAGMA synchronous").fetchone()[0])  # FULL

    def test_every_step_looks_and_writes_in_one_transaction(self) -> None:
        """Nothing is asked or written before its BEGIN or after its COMMIT, where another process may come between."""

        def claimed(key: str) -> Claim:
            claim = self.claimed(make_intent("payments", ORDER, key=key))
            return claim

        held = [claimed(str(n)) for n in range(5)]
        self.store.doubt(held[4])
        steps: list[Callable[[], object]] = [
            lambda: claimed("new"),
            lambda: self.store.renew(held[0]),
            lambda: self.store.complete(held[0], 1),
            lambda: self.store.fail(held[1], "declined"),
            lambda: self.store.release(held[2]),
            lambda: self.store.doubt(held[3]),
            lambda: self.store.settle(held[4].intent, Verdict("not_done"), fence=held[4].fence),
            lambda: self.store.sweep(),
        ]
        db = self.store.db
        outside: list[str] = []

        def note(sql: str) -> None:
            if not db.in_transaction:
                outside.append(sql)

        db.set_trace_callback(note)
        self.addCleanup(db.set_trace_callback, None)
        for step in steps:
            step()
        self.assertEqual(["BEGIN IMMEDIATE"] * len(steps), outside)

    def commits(self, store: IdempotencyStore, call: Callable[[], object]) -> int:
        seen: list[int] = []

        def note(sql: str) -> None:
            if sql in ("BEGIN IMMEDIATE", "COMMIT"):
                seen.append(store.db.total_changes)

        store.db.set_trace_callback(note)
        call()
        store.db.set_trace_callback(None)
        return sum(begin != end for begin, end in zip(seen[::2], seen[1::2], strict=True))


class RunOnceTest(StoreTestCase):
    """The synchronous form with `ok`."""

    def run_twice(self, *answers: Any, **more: Any) -> list[Any]:
        left = list(answers)

        def operation() -> Any:
            answer = left.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        ends: list[Any] = []
        for _ in range(len(answers) + 1):
            try:
                ends.append(self.store.run_once("briefing", operation, **more))
            except (IndexError, OutcomeUnknown, TimeoutError, IdempotencyError) as error:
                ends.append(type(error).__name__)
        return [*ends, len(answers) - len(left)]

    def test_a_true_ok_is_stored(self) -> None:
        """The second call gives the first answer and runs nothing; a store in memory needs no argument.

        Claims: T6-030, T6-029.
        """
        self.assertEqual([{"ok": True, "id": 1}] * 2 + [1], self.run_twice({"ok": True, "id": 1}))
        with IdempotencyStore() as store:
            self.assertEqual({"ok": True}, store.run_once("k", lambda: {"ok": True}))
        parameters = inspect.signature(IdempotencyStore.run_once).parameters
        self.assertEqual(["self", "key", "operation"], list(parameters)[:3])

    def test_a_false_ok_and_an_exception_of_a_read_are_not_stored(self) -> None:
        """The next call runs, and the third replays what that one said. Claims: T6-030, T6-031, T6-032."""
        done = {"ok": True}
        self.assertEqual([{"ok": False}, done, done, 2], self.run_twice({"ok": False}, done))
        self.store.db.execute("DELETE FROM idempotency")
        ends = self.run_twice(TimeoutError(), done, repeatable=True)
        self.assertEqual(["TimeoutError", done, done, 2], ends)

    def test_an_unknown_outcome_blocks_the_key(self) -> None:
        """An answer that says so, an exception of a write and an answer that is none are not run again (X-09).

        Claims: T6-031, T6-032.
        """
        unknown = {"ok": False, "error": "outcome_unknown"}
        for answer, told in ((unknown, unknown), (TimeoutError(), "TimeoutError"), (None, "IdempotencyError")):
            self.store.db.execute("DELETE FROM idempotency")
            self.assertEqual([told, "OutcomeUnknown", 1], self.run_twice(answer))

    def test_another_operation_under_the_same_key_is_a_conflict(self) -> None:
        """Where arguments are given they are compared (X-08). Claims: T6-030."""
        self.store.run_once("k", lambda: {"ok": True}, arguments={"path": "a"})

        self.assert_code("key_conflict", lambda: self.store.run_once("k", dict, arguments={"path": "b"}))


class Word(str):
    """A text of another type: nobody knows what its methods answer."""


class BadInputTest(StoreTestCase):
    """The door."""

    def test_bad_input_is_refused_and_changes_nothing(self) -> None:
        """Wrong types, bool for int, NaN, NUL, lone surrogates and over-long texts."""
        what = make_intent("payments", ORDER)
        claim: Any = self.store.claim(make_intent("payments", ORDER, key="held"))
        before = list(self.store.db.iterdump())
        texts: list[Any] = [None, 1, True, "", "x" * 201, "a\0b", "\ud800", b"x"]
        numbers: list[Any] = [None, True, "1", float("nan"), float("inf"), -1, 10**400]
        calls: list[Callable[[], object]] = []
        for bad in texts:
            calls += [
                partial(make_intent, bad, ORDER),
                partial(make_intent, bad, ORDER, key="k"),
                partial(intent_key, bad, ORDER),
                partial(document_key, bad, ORDER),
                partial(make_intent, "n", ORDER, owner=bad),
                partial(self.store.fail, claim, bad),
                partial(IdempotencyStore, holder=bad),
            ]
            if bad is not None:
                calls.append(partial(make_intent, "n", ORDER, key=bad))
        for bad in numbers:
            calls += [
                partial(self.store.claim, what, ttl_s=bad),
                partial(self.store.claim, what, lease_s=bad),
                partial(self.store.renew, claim, bad),
                partial(self.once, Bank().charge, wait_s=bad),
                partial(ttl_for, bad),
                partial(self.store.sweep, bad),
                partial(self.store.unsettled, bad),
                partial(self.store.settle, what, Verdict("not_done"), fence=bad),
            ]
        calls += [
            lambda: make_intent("n", ORDER, fields=["absent"]),
            lambda: make_intent("n", ORDER, fields=[]),
            lambda: make_intent("n", ORDER, fields="cents"),
            lambda: make_intent("n", ORDER, fields={"cents"}),  # type: ignore[arg-type]
            lambda: make_intent("n", ORDER, fields=["cents", None]),  # type: ignore[list-item]
            lambda: make_intent("n", ORDER, fields=["cents"], key="k"),
            lambda: make_intent("n", {"text": "x" * 70_000}),
            lambda: self.store.claim(what, repeatable=1),  # type: ignore[arg-type]
            lambda: self.store.settle(what, "done", fence=1),  # type: ignore[arg-type]
            lambda: self.store.settle(what, Verdict("perhaps"), fence=1),  # type: ignore[arg-type]
            lambda: self.store.settle(what, Verdict(Word("done")), fence=1),  # type: ignore[arg-type]
            lambda: self.store.settle(what, Verdict(["done"]), fence=1),  # type: ignore[arg-type]
            lambda: IdempotencyStore(lifetimes={"n": 300}),  # type: ignore[dict-item]
        ]
        for call in calls:
            self.assert_code("bad_input", call)

        self.assertEqual(before, list(self.store.db.iterdump()))

    def test_the_limits_are_the_published_ones(self) -> None:
        """Ten years, an hour, a day and half a minute; texts, values and lists as large as they may be."""
        names = "MAX_SECONDS RUN_LIMIT_S DEFAULT_TTL_S LEASE_S MAX_TEXT MAX_INTENT_BYTES MAX_RESULT_BYTES MAX_LIMIT"
        self.assertEqual(
            [316_224_000, 3600, 86_400, 30, 200, 65_536, 1_048_576, 1000],
            [getattr(idempotency, name) for name in names.split()],
        )
        self.assertEqual((0.1, "-", b"CH1I"), (POLL_S, SHARED_OWNER, APPLICATION_ID.to_bytes(4, "big")))
        self.assertEqual(
            [(43_200, 86_400), (150, 300)], [(life.retry_window_s, life.ttl_s) for life in (PAYMENT, QUERY)]
        )

    def test_the_defaults_are_the_published_ones(self) -> None:
        """Whoever says nothing waits for nobody, repeats nothing and has no limit but the lease and a day."""
        usual = {"owner": "-", "ttl_s": 86_400, "repeatable": False, "lease_s": 30}
        unsaid = {"key": None, "fields": None, "remaining": None, "probe": None}
        self.assertEqual({**usual, **unsaid, "wait_s": 0}, defaults(IdempotencyStore.execute_once))
        self.assertEqual({**usual, "namespace": "run_once", "arguments": None}, defaults(IdempotencyStore.run_once))
        self.assertEqual({"ttl_s": 86_400}, defaults(IdempotencyStore.run_in))
        for claim in (IdempotencyStore.claim, IdempotencyStore.claim_in):
            self.assertEqual({"ttl_s": 86_400, "lease_s": 30, "repeatable": False}, defaults(claim))
        self.assertEqual({"lease_s": 30}, defaults(IdempotencyStore.renew))
        self.assertEqual([{"limit": 100}] * 2, [defaults(IdempotencyStore.sweep), defaults(IdempotencyStore.unsettled)])
        self.assertEqual(
            Record("absent", "k", fence=0, holder=None, retry_after=0, expires_at=None, value=None, mark=None),
            Record("absent", "k"),
        )

    def test_the_least_and_the_most_are_taken(self) -> None:
        """At each limit a call is granted, and one step beyond it is not."""
        most = "x" * 200
        what = make_intent(most, ORDER, owner=most, key=most)
        store = self.open(holder=most, poll_s=0.001)
        self.assert_code("bad_input", lambda: self.open(poll_s=0.0009))
        self.assert_code("bad_input", lambda: store.claim(what, lease_s=0.0009))
        self.assert_code("bad_input", lambda: store.claim(what, ttl_s=316_224_001))
        self.assert_code("bad_input", lambda: store.claim(what, ttl_s=0))
        self.assert_code("ttl_too_short", lambda: store.claim(what, ttl_s=1))
        self.assert_code("bad_input", lambda: store.claim(what, lease_s=316_224_000.1))
        claim = self.claimed(what, ttl_s=316_224_000, lease_s=0.001, store=store)
        self.assert_code("bad_input", partial(store.renew, claim, 0.0009))
        claim = store.renew(claim, 0.001)
        self.assertEqual(316_225_000, store.renew(claim, 316_224_000).lease_until)
        store.fail(claim, most)
        self.assertEqual((most, most), (store.look(what).mark, store.look(what).holder))
        self.clock.advance(316_224_000)
        self.assertEqual(1, store.sweep(1000))
        for limit in (0, 1001):
            self.assert_code("bad_input", partial(store.sweep, limit))
            self.assert_code("bad_input", partial(store.unsettled, limit))
        self.assertEqual(([], []), (store.unsettled(1), store.unsettled(1000)))
        for fence, code in ((0, "bad_input"), (1, "not_unknown"), (2**63 - 1, "not_unknown"), (2**63, "bad_input")):
            self.assert_code(code, partial(store.settle, what, Verdict("not_done"), fence=fence))
        self.assertEqual(2, ttl_for(1))
        self.assert_code("bad_input", lambda: ttl_for(0))
        self.assertEqual(2, Lifetime(1, 2).ttl_s)
        self.assert_code("ttl_too_short", lambda: Lifetime(1, 1))
        self.assert_code("bad_input", lambda: Lifetime(1, 0))
        self.assertEqual(316_224_000, Lifetime(1, 316_224_000).ttl_s)
        self.assert_code("bad_input", lambda: Lifetime(1, 316_224_001))
        make_intent("n", {"text": "x" * (65_536 - len('{"text":""}'))})
        self.assert_code("bad_input", lambda: make_intent("n", {"text": "x" * (65_537 - len('{"text":""}'))}))
        for length, found in ((1_048_574, "completed"), (1_048_575, "completed_without_value")):
            intent, value = {**ORDER, "length": length}, "x" * length
            self.once(Bank(value).charge, intent)
            try:
                self.assertEqual(("completed", value), (found, self.once(Bank().charge, intent)))
            except CompletedWithoutValue as error:
                self.assertEqual((found, "more than 1048576 bytes"), (error.code, error.reason))

    def test_repeated_queries_are_served_by_an_index(self) -> None:
        """The record, the sweep and the open cases never walk the table."""
        for sql in (
            intent_records._FIND,
            "SELECT rowid FROM idempotency WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at",
            f"SELECT key FROM idempotency WHERE {intent_records._IS_OPEN} AND (state = 'unknown' OR (lease_until <= ?"
            " AND NOT repeatable)) ORDER BY begun_at",
        ):
            plan = self.store.db.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?")).fetchall()
            self.assertIn("INDEX", " ".join(row[3] for row in plan))
            self.assertNotIn("TEMP B-TREE", " ".join(row[3] for row in plan))

    def test_what_is_handed_out_is_a_copy(self) -> None:
        """Changing a replayed value changes nothing in the store."""
        self.store.run_once("k", lambda: {"ok": True, "list": [1]})
        self.store.run_once("k", dict)["list"].append(2)

        self.assertEqual({"ok": True, "list": [1]}, self.store.run_once("k", dict))

    def test_a_tool_call_through_the_store_always_has_a_key(self) -> None:
        """There is no way to run something here without an intent, and the guards are the defaults.

        Claims: I4-097, I4-103.
        """
        parameters = inspect.signature(IdempotencyStore.execute_once).parameters

        self.assertIs(inspect.Parameter.empty, parameters["namespace"].default)
        self.assertIs(inspect.Parameter.empty, parameters["intent"].default)
        self.assertIs(False, parameters["repeatable"].default)


# Every order of two callers ------------------------------------------------------------------


class TwoCallers:
    """Two callers of one intent and a clock that lets one lease end, one step at a time."""

    def __init__(self, store: IdempotencyStore, clock: ManualClock, repeatable: bool, ends: tuple[str, ...]) -> None:
        self.clock, self.store = clock, store
        self.store.db.execute("DELETE FROM idempotency")
        self.what = make_intent("payments", ORDER)
        self.repeatable, self.ends = repeatable, ends
        self.claims: list[Claim | None] = [None, None]
        self.effects: list[int] = []
        self.accepted: list[tuple[int, str]] = []
        self.lease_ended = False
        self.late: int | None = None
        self.steps = [iter(self.caller(0)), iter(self.caller(1)), iter(self.time())]

    def caller(self, me: int) -> Iterator[None]:
        found = self.store.claim(self.what, lease_s=5, repeatable=self.repeatable)
        self.claims[me] = claim = found if isinstance(found, Claim) else None
        yield
        if claim is not None and self.ends[me] != "release":
            self.effects.append(me)
        yield
        if claim is not None:
            try:
                if self.ends[me] == "complete":
                    self.store.complete(claim, me)
                elif self.ends[me] == "release":
                    self.store.release(claim)
                else:
                    self.store.doubt(claim)
                self.accepted.append((me, self.ends[me]))
                if claim.fence != max(other.fence for other in self.claims if other is not None):
                    self.late = me
            except LeaseLost:
                pass
        yield

    def time(self) -> Iterator[None]:
        self.clock.advance(5)
        self.lease_ended = True
        yield

    def problem(self) -> str | None:
        """Say what is wrong now, or None."""
        completed = [me for me, end in self.accepted if end == "complete"]
        record = self.store.look(self.what)
        if self.late is not None:
            return "the end of a holder that was replaced was accepted"
        if len(completed) > 1:
            return "two results were accepted"
        if completed and (record.state, record.value) != ("completed", completed[0]):
            return "an accepted result is not the record"
        if len(self.effects) > 1 and not self.repeatable:
            return "an irreversible effect was made twice"
        if len(self.effects) > 1 and not self.lease_ended and "doubt" not in self.ends:
            return "two effects although no lease ended"
        if self.effects and record.state == "absent" and not self.repeatable:
            return "an effect was made and the key is free"
        return None


def first_problem() -> str | None:
    """Run every order of two callers and one end of a lease, in every combination of endings."""
    clock = ManualClock()
    cases = itertools.product((False, True), itertools.product(("complete", "release", "doubt"), repeat=2))
    with IdempotencyStore(clock=clock) as store:
        for (repeatable, ends), order in itertools.product(cases, interleavings(3, 3, 1)):
            scene = TwoCallers(store, clock, repeatable, ends)
            for actor in order:
                next(scene.steps[actor])
                problem = scene.problem()
                if problem is not None:
                    return f"{problem}: repeatable={repeatable}, ends={ends}, order={order}"
    return None


class EveryOrderTest(unittest.TestCase):
    """Two owners of one lease."""

    def test_no_order_of_two_callers_breaks_a_promise(self) -> None:
        """All 140 orders of claim, effect and end of two callers and the end of a lease, for 18 pairs of endings.

        Claims: I4-043, I4-047, I4-048, I4-050.
        """
        self.assertEqual(140, len(list(interleavings(3, 3, 1))))
        self.assertIsNone(first_problem())

    def test_without_a_guard_some_order_breaks_one(self) -> None:
        """Taking out the fence, or the state, of one statement gives a counterexample."""
        with taken_out(IDEMPOTENCY, "_END", "fence = ?", "? IS NOT NULL"):
            self.assertIsNotNone(first_problem())
        with taken_out(IDEMPOTENCY, "_RELEASE", "fence = ?", "? IS NOT NULL"):
            self.assertIsNotNone(first_problem())


# A model -------------------------------------------------------------------------------------


class Model:
    """What a record is, in a dict and a few questions; it shares no code with the store."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.fence = 0

    def state(self, key: str, now: float) -> tuple[str, Any]:
        row = self.rows.get(key)
        if row is None or (row["end"] is not None and now >= row["end"]):
            return "absent", None
        if row["state"] == "in_progress" and now >= row["lease"] and not row["repeatable"]:
            return "unknown", None
        return row["state"], row["value"]

    def claim(self, key: str, args: int, now: float, repeatable: bool) -> object:
        state, _ = self.state(key, now)
        row = self.rows.get(key)
        if state != "absent":
            assert row is not None
            if row["args"] != args:
                return "key_conflict"
            if not (row["state"] == "in_progress" and now >= row["lease"] and row["repeatable"] and repeatable):
                if row["state"] == "in_progress" and now >= row["lease"]:
                    row["state"] = "unknown"
                return row["state"]
        self.fence += 1
        self.rows[key] = {
            "state": "in_progress",
            "args": args,
            "fence": self.fence,
            "lease": now + 10,
            "repeatable": repeatable,
            "end": None,
            "value": None,
        }
        return self.fence

    def end(self, key: str, fence: int, state: str, value: Any, now: float) -> bool:
        row = self.rows.get(key)
        if row is None or row["fence"] != fence or row["state"] not in ("in_progress", "unknown"):
            return False
        if state == "absent":
            del self.rows[key]
        else:
            row.update(state=state, value=value, end=None if state == "unknown" else now + 300)
        return True


class ModelTest(unittest.TestCase):
    """Random histories against the model."""

    def test_random_histories_agree_with_the_model(self) -> None:
        """Forty seeds, 120 steps each: every answer and every state is the model's.

        Claims: I4-005, I4-043, I4-045, I4-047.
        """
        for seed in range(40):
            with self.subTest(seed=seed):
                self.play(random.Random(seed))

    def play(self, chance: random.Random) -> None:
        clock, model = ManualClock(), Model()
        claims: list[tuple[str, Claim]] = []
        with IdempotencyStore(clock=clock, lifetimes={"n": QUERY}) as store:
            for _ in range(120):
                key, args = chance.choice("abc"), chance.randrange(5) // 4
                what = make_intent("n", {"args": args}, key=key)
                act = chance.choice(("claim", "claim", "end", "end", "time", "settle", "sweep"))
                if act == "claim":
                    repeatable = chance.random() < 0.5
                    expected = model.claim(key, args, clock(), repeatable)
                    try:
                        found = store.claim(what, lease_s=10, repeatable=repeatable)
                    except IdempotencyError as error:
                        self.assertEqual(expected, error.code)
                        continue
                    if isinstance(found, Claim):
                        claims.append((key, found))
                    self.assertEqual(expected, found.fence if isinstance(found, Claim) else found.state)
                elif act == "end" and claims:
                    self.finish(store, model, clock(), *chance.choice(claims), chance.randrange(4))
                elif act == "settle":
                    seen = store.look(what)
                    if model.state(key, clock())[0] == "unknown":
                        store.settle(what, Verdict("done", 5), fence=seen.fence)
                        self.assertTrue(model.end(key, seen.fence, "completed", 5, clock()))
                elif act == "sweep":
                    store.sweep()
                else:
                    clock.advance(chance.choice((1, 5, 10, 100, 300)))
                for name in "abc":
                    shown = store.look(make_intent("n", {"args": 0}, key=name))
                    self.assertEqual(model.state(name, clock()), (shown.state, shown.value))

    def finish(self, store: IdempotencyStore, model: Model, now: float, key: str, claim: Claim, way: int) -> None:
        state = ("completed", "failed_final", "absent", "unknown")[way]
        value = claim.fence if way < 2 else None
        expected = model.end(key, claim.fence, state, value, now)
        try:
            (
                lambda: store.complete(claim, value),
                lambda: store.fail(claim, "no", value),
                lambda: store.release(claim),
                lambda: store.doubt(claim),
            )[way]()
            self.assertTrue(expected)
        except LeaseLost:
            self.assertFalse(expected)


if __name__ == "__main__":
    unittest.main()
