"""What `interruption.cancel_store` promises: cancels that reach other processes, and work that does not exist yet."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from chapter10.companions.interruption.cancel_store import (
    APPLICATION_ID,
    FINAL_STATES,
    MIGRATIONS,
    STATES,
    TOPIC,
    TRACE_EVENTS,
    CancelStore,
    CancelStoreError,
    LostInvocation,
)
from chapter10.database import Database, StoreError
from chapter10.tests.support import FolderTestCase, ManualClock, run_python, start_python

T = "trace-1"


class StoreTestCase(FolderTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.clock = ManualClock(1_700_000_000.9)
        self.path = self.folder / "cancels.db"
        self.store = self.open()

    def open(self) -> CancelStore:
        store = CancelStore.open(self.path, clock=self.clock)
        self.addCleanup(store.close)
        return store

    def tree(self) -> None:
        """a calls b and c, b calls d, d calls e; all queued."""
        for span, parent in (("a", None), ("b", "a"), ("c", "a"), ("d", "b"), ("e", "d")):
            self.store.register(T, span, tool="tool", parent_span_id=parent)

    def charged(self) -> None:
        """The same, and a has succeeded."""
        self.tree()
        self.store.finish(T, "a", self.running("a"), "charged")

    def states(self) -> dict[str, str]:
        return {row.span_id: row.state for row in self.store.invocations(T)}

    def running(self, span: str) -> int:
        fence = self.store.claim(T, span)
        assert fence is not None
        return fence


class Addresses(StoreTestCase):
    """Whom a cancel reaches."""

    def test_a_row_carries_trace_and_parent_span(self) -> None:
        """Every invocation has both, and so has the message about its cancel. Claims: I4-088, I4-091."""
        row = self.store.register(T, "b", tool="search", parent_span_id="a")
        self.assertEqual((row.trace_id, row.parent_span_id, row.state, row.epoch), (T, "a", "queued", 1))
        receipt = self.store.cancel(T, "a")
        self.assertEqual(
            receipt.message(),
            {"trace_id": T, "parent_span_id": "a", "ts": 1_700_000_000, "reason": "parent_cancelled"}
            | {"cancel_id": 1, "epoch": 1},
        )
        self.assertEqual((TOPIC, self.store.cancel(T).message()["parent_span_id"]), ("tool.cancel", None))
        json.dumps(receipt.message(), allow_nan=False)

    def test_a_trace_shows_its_calls_under_five_names(self) -> None:
        """Initiate, input, output, cancel and compensation: the names, whatever carries them. Claims: I4-096."""
        self.assertEqual(TRACE_EVENTS, ("initiate", "input", "output", "cancel", "compensation"))

    def test_queued_work_is_cancelled_and_running_work_is_asked(self) -> None:
        """Of a trace both are reached; the request is marked with its time, and is not yet the end.

        Claims: I4-021, I4-089, I4-092.
        """
        self.tree()
        fence = self.running("a")
        receipt = self.store.cancel(T)
        self.assertEqual((receipt.stopped, receipt.requested, receipt.already_done), (4, 1, ()))
        self.assertEqual(self.states(), {"a": "running"} | dict.fromkeys("bcde", "cancelled"))
        row = self.store.get(T, "a")
        self.assertEqual((row.cancelled, row.cancelled_at), (True, 1_700_000_000))
        self.assertEqual([r.span_id for r in self.store.invocations(T, state="running")], ["a"])
        self.assertEqual(self.store.confirm(T, "a", fence), "cancelled")

    def test_other_traces_are_not_touched(self) -> None:
        """Only rows of that trace change. Claims: I4-089."""
        self.tree()
        self.store.register("trace-2", "a", tool="tool")
        self.store.cancel(T)
        self.assertEqual(self.store.get("trace-2", "a").state, "queued")
        self.assertIsNone(self.store.cancel_reason("trace-2", "a"))

    def test_a_subtree_is_reached_to_any_depth_and_nothing_beside_it(self) -> None:
        """b takes d and e with it; a and c go on. Claims: I4-003, I4-021."""
        self.tree()
        self.assertEqual(self.store.cancel(T, "b", reason="user").stopped, 3)
        self.assertEqual(
            self.states(), {"a": "queued", "b": "cancelled", "c": "queued", "d": "cancelled", "e": "cancelled"}
        )
        self.assertEqual(self.store.cancel_reason(T, "e"), "user")
        self.assertIsNone(self.store.cancel_reason(T, "c"))
        self.assertIsNone(self.store.cancel_reason(T))

    def test_a_child_that_is_registered_later_is_born_cancelled(self) -> None:
        """The process that registers it still holds the old view; its function is never called. Claims: I4-021."""
        self.tree()
        self.running("a")
        self.store.cancel(T, "a")
        late = self.open().register(T, "late", tool="tool", parent_span_id="c")
        self.assertEqual((late.state, late.cancelled), ("cancelled", True))
        self.assertIsNone(self.store.claim(T, "late"))

    def test_a_parent_that_is_registered_late_joins_its_children_to_the_cancel(self) -> None:
        """The child came first; when its parent turns out to be cancelled, the child's next step is the end."""
        self.store.register(T, "child", tool="tool", parent_span_id="middle")
        fence = self.running("child")
        self.store.cancel(T, "top")
        self.assertIsNone(self.store.cancel_reason(T, "child"))
        self.assertEqual(self.store.register(T, "middle", tool="tool", parent_span_id="top").state, "cancelled")
        self.assertEqual(self.store.cancel_reason(T, "child"), "parent_cancelled")
        self.assertEqual(self.store.finish(T, "child", fence, 1), "cancelled")

    def test_parents_in_a_circle_end_the_search(self) -> None:
        """Two spans that name each other as parent are an error of the caller, and no endless loop."""
        self.store.register(T, "x", tool="tool", parent_span_id="y")
        self.store.register(T, "y", tool="tool", parent_span_id="x")
        self.assertIsNone(self.store.cancel_reason(T, "x"))
        self.assertEqual(self.store.cancel(T, "x").stopped, 2)

    def test_a_deep_chain_is_reached(self) -> None:
        """A hundred levels down, by row and by search."""
        parent = None
        for number in range(100):
            span = f"s{number:03}"
            self.store.register(T, span, tool="tool", parent_span_id=parent)
            parent = span
        self.assertEqual(self.store.cancel(T, "s000").stopped, 100)
        self.assertEqual(self.store.register(T, "s100", tool="tool", parent_span_id=parent).state, "cancelled")

    def test_a_cancel_is_written_once(self) -> None:
        """A repeat has the same id, reason and time, marks nothing again, and catches what it can."""
        self.tree()
        self.running("a")
        first = self.store.cancel(T, reason="user")
        self.clock.advance(60)
        again = self.open().cancel(T, reason="other")
        self.assertEqual(
            (again.cancel_id, again.reason, again.cancelled_at), (first.cancel_id, "user", first.cancelled_at)
        )
        self.assertEqual((again.stopped, again.requested), (0, 0))
        self.assertEqual(self.store.get(T, "a").cancelled_at, first.cancelled_at)

    def test_the_first_request_dates_the_stop(self) -> None:
        """The worker confirms a minute later, and the row keeps the time at which it was asked."""
        self.tree()
        fence = self.running("a")
        self.store.cancel(T)
        self.clock.advance(60)
        self.assertEqual(self.store.confirm(T, "a", fence), "cancelled")
        self.assertEqual(self.store.get(T, "a").cancelled_at, 1_700_000_000)

    def test_a_new_run_is_not_hit_by_the_cancel_of_an_old_one(self) -> None:
        """The cancel belongs to an epoch; the same span is fresh in the next one."""
        self.tree()
        self.store.cancel(T)
        self.assertEqual(self.store.new_run(T), 2)
        self.assertIsNone(self.store.cancel_reason(T, "a"))
        self.assertEqual(self.store.register(T, "a", tool="tool").state, "queued")
        self.assertEqual(self.store.cancel_reason(T, "a", epoch=1), "parent_cancelled")
        self.assertEqual(self.store.register(T, "new", tool="tool", epoch=1).state, "cancelled")

    def test_a_message_that_is_on_its_way_is_skipped_by_its_consumer(self) -> None:
        """What was fired has no handle: a cancel for its span, written before it is consumed, makes it a no-op.

        Claims: I4-030.
        """
        queue = [{"trace_id": T, "span_id": "mail", "tool": "mail.send"}]
        self.store.cancel(T, "mail", reason="compensated")
        sent: list[str] = []
        consumer = self.open()
        for message in queue:
            consumer.register(message["trace_id"], message["span_id"], tool=message["tool"])
            if consumer.claim(message["trace_id"], message["span_id"]) is not None:
                sent.append(message["span_id"])
        self.assertEqual((sent, self.store.get(T, "mail").state), ([], "cancelled"))


class Results(StoreTestCase):
    """Who commits first."""

    def test_a_result_is_stored_once(self) -> None:
        """The first finish counts, the second says so and writes nothing."""
        self.tree()
        fence = self.running("a")
        writes: list[int] = []
        self.assertEqual(self.store.finish(T, "a", fence, {"n": 1}, write=lambda db: writes.append(1)), "succeeded")
        self.assertEqual(self.store.finish(T, "a", fence, {"n": 2}, write=lambda db: writes.append(2)), "succeeded")
        self.assertEqual((self.store.get(T, "a").result, writes), ({"n": 1}, [1]))

    def test_a_cancel_before_the_result_wins(self) -> None:
        """The result is dropped, its business row is not written, and the state is final. Claims: I4-092, I4-099."""
        self.tree()
        fence = self.running("a")
        self.open().cancel(T)
        writes: list[int] = []
        self.assertEqual(self.store.finish(T, "a", fence, 1, write=lambda db: writes.append(1)), "cancelled")
        self.assertEqual((self.store.get(T, "a").result, writes), (None, []))
        self.assertEqual(self.store.finish(T, "a", fence, 1), "cancelled")

    def test_a_result_before_the_cancel_wins(self) -> None:
        """The cancel says that it is already done, and the result stays. Claims: I4-094."""
        self.charged()
        receipt = self.open().cancel(T)
        self.assertEqual((receipt.already_done, self.store.get(T, "a").state), (("a",), "succeeded"))
        self.assertFalse(self.store.get(T, "a").cancelled)

    def test_a_cancel_after_success_is_compensated_once(self) -> None:
        """One refund, however often it is asked for, and no cancel touches it. Claims: I4-094."""
        self.charged()
        made = []
        for _ in range(3):
            for span in self.store.cancel(T).already_done:
                made.append(self.store.compensate(T, span, "refund")[1])
        self.assertEqual(made, [True, False, False])
        self.assertEqual(self.store.get(T, "a:compensation").state, "queued")
        fence = self.running("a:compensation")
        self.store.cancel(T)
        self.store.cancel(T, "a")
        self.assertIsNone(self.store.cancel_reason(T, "a:compensation"))
        self.assertEqual(self.store.finish(T, "a:compensation", fence, "refunded"), "succeeded")

    def test_the_first_cancel_gives_the_reason_and_what_was_done_comes_in_order(self) -> None:
        """Of a span that two cancels cover; the spans that had succeeded are named by name."""
        self.tree()
        for span in "cb":
            self.store.finish(T, span, self.running(span), 1)
        self.assertEqual(self.store.cancel(T, reason="shutdown").already_done, ("b", "c"))
        self.store.cancel(T, "d", reason="user")
        self.assertEqual(self.store.cancel_reason(T, "e"), "shutdown")

    def test_what_a_compensation_calls_is_exempt_too(self) -> None:
        """Its children are compensations by birth, though they never say so."""
        self.charged()
        self.store.compensate(T, "a", "refund")
        self.store.cancel(T)
        child = self.store.register(T, "bank", tool="bank.refund", parent_span_id="a:compensation")
        self.assertEqual((child.compensation, child.state), (True, "queued"))

    def test_no_cancel_reaches_past_a_compensation(self) -> None:
        """What hangs below one is adopted, even if it was registered before it, to any depth.

        Neither the cancel of a subtree nor that of the trace touches it; a repeat of its registration is no conflict.
        """
        self.charged()
        self.store.register(T, "bank", tool="bank", parent_span_id="a:compensation")
        self.store.register(T, "wire", tool="wire", parent_span_id="bank")
        self.store.compensate(T, "a", "refund")
        self.store.cancel(T, "a")
        self.assertIsNone(self.store.cancel_reason(T, "bank"))
        self.assertEqual((self.store.cancel(T).stopped, self.states()["wire"]), (0, "queued"))
        again = self.store.register(T, "bank", tool="bank", parent_span_id="a:compensation")
        self.assertEqual((again.compensation, again.state), (True, "queued"))
        self.assertEqual(self.store.finish(T, "wire", self.running("wire"), 1), "succeeded")
        self.assertEqual(self.store.claim(T, "bank"), 1)

    def test_a_cancel_before_the_compensation_stands(self) -> None:
        """What had been asked to stop before stays so, and what is over is not rewritten."""
        self.charged()
        for span in ("stopped", "asked", "over"):
            self.store.register(T, span, tool="bank", parent_span_id="a:compensation")
        asked = self.running("asked")
        self.store.finish(T, "over", self.running("over"), 1)
        self.store.cancel(T)
        self.store.compensate(T, "a", "refund")
        found = {row.span_id: row.compensation for row in self.store.invocations(T)}
        self.assertEqual([found[span] for span in ("stopped", "asked", "over")], [False, False, False])
        self.assertEqual(self.store.register(T, "over", tool="bank", parent_span_id="a:compensation").result, 1)
        self.assertEqual(self.store.finish(T, "asked", asked, 1), "cancelled")

    def test_the_database_refuses_to_cancel_a_compensation(self) -> None:
        """The rule is a constraint with a name, not only a line of code."""
        self.charged()
        self.store.compensate(T, "a", "refund")
        other = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(other.close)
        with self.assertRaisesRegex(sqlite3.IntegrityError, "compensation_is_exempt"):
            other.execute("UPDATE tool_invocations SET cancelled = 1, cancelled_at = 1 WHERE compensation = 1")

    def test_what_was_not_done_is_not_compensated(self) -> None:
        """Queued, running, failed and cancelled work has nothing to undo."""
        self.tree()
        with self.assertRaisesRegex(CancelStoreError, "not_done"):
            self.store.compensate(T, "a", "refund")
        self.store.fail(T, "b", self.running("b"), "bad_input")
        self.store.cancel(T)
        for span in "abc":
            with self.assertRaisesRegex(CancelStoreError, "not_done"):
                self.store.compensate(T, span, "refund")
        with self.assertRaisesRegex(CancelStoreError, "not_found"):
            self.store.compensate(T, "zzz", "refund")

    def test_a_compensation_and_an_ordinary_call_do_not_stand_for_each_other(self) -> None:
        """The same span, parent and tool are a conflict all the same, whichever of the two was first."""
        for first in ("compensation", "call"):
            self.store.register(first, "a", tool="pay")
            self.assertEqual(self.store.claim(first, "a"), 1)
            self.store.finish(first, "a", 1, "charged")
            steps: list[Callable[[], object]] = [
                partial(self.store.compensate, first, "a", "refund"),
                partial(self.store.register, first, "a:compensation", tool="refund", parent_span_id="a"),
            ]
            made, refused = steps if first == "compensation" else reversed(steps)
            made()
            with self.assertRaisesRegex(CancelStoreError, "span_conflict"):
                refused()
            self.assertEqual(self.store.get(first, "a:compensation").compensation, first == "compensation")

    def test_a_replaced_owner_cannot_commit(self) -> None:
        """After a takeover the old fence is refused for every verb, and the new one counts."""
        self.tree()
        old = self.running("a")
        new = self.store.take_over(T, "a", old)
        assert new is not None
        for late in (
            lambda: self.store.finish(T, "a", old, 1),
            lambda: self.store.fail(T, "a", old, "x"),
            lambda: self.store.confirm(T, "a", old),
            lambda: self.store.take_over(T, "a", old),
        ):
            with self.assertRaisesRegex(LostInvocation, "^stale_fence$"):
                late()
        self.assertEqual(self.store.finish(T, "a", new, 1), "succeeded")

    def test_a_takeover_of_cancelled_work_ends_it(self) -> None:
        """Nobody starts what was cancelled while its owner was gone."""
        self.tree()
        fence = self.running("a")
        self.store.cancel(T)
        self.assertIsNone(self.store.take_over(T, "a", fence))
        self.assertEqual(self.store.get(T, "a").state, "cancelled")

    def test_one_of_two_claims_gets_the_work(self) -> None:
        """The second sees that it is taken."""
        self.tree()
        self.assertEqual((self.store.claim(T, "a"), self.open().claim(T, "a")), (1, None))

    def test_a_failure_after_a_cancel_is_a_cancel(self) -> None:
        """The request came first, so its state is what counts; without one the code is kept."""
        self.tree()
        a, b = self.running("a"), self.running("b")
        self.assertEqual(self.store.fail(T, "a", a, "temporary"), "failed")
        self.store.cancel(T)
        self.assertEqual(self.store.fail(T, "b", b, "temporary"), "cancelled")
        self.assertEqual((self.store.get(T, "a").error, self.store.get(T, "b").error), ("temporary", None))

    def test_nobody_confirms_what_was_not_asked(self) -> None:
        """A worker that stops by itself has failed; a queued row cannot be confirmed."""
        self.tree()
        with self.assertRaisesRegex(CancelStoreError, "not_cancelled"):
            self.store.confirm(T, "a", self.running("a"))
        with self.assertRaises(LostInvocation):
            self.store.confirm(T, "b", 1)

    def test_business_rows_and_result_share_a_transaction(self) -> None:
        """An error in either leaves neither, in a database that the caller shares with the store."""
        database = Database(
            self.folder / "shop.db",
            application_id=APPLICATION_ID + 1,
            migrations=("CREATE TABLE orders (id TEXT PRIMARY KEY);", *MIGRATIONS),
        )
        store = CancelStore(database, clock=self.clock)
        self.addCleanup(store.close)
        for span in ("a", "b"):
            store.register(T, span, tool="order")
            store.claim(T, span)

        def order(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO orders VALUES ('7')")

        self.assertEqual(store.finish(T, "a", 1, "ok", write=order), "succeeded")
        with self.assertRaises(sqlite3.IntegrityError):
            store.finish(T, "b", 1, "ok", write=order)
        self.assertEqual((store.get(T, "b").state, database.row("SELECT count(*) FROM orders")[0]), ("running", 1))

    def test_every_verb_looks_and_writes_in_one_transaction(self) -> None:
        """Nothing is asked or written before its BEGIN or after its COMMIT, where another process may come between."""
        self.tree()
        verbs: list[tuple[str, Callable[[], object]]] = [
            ("register", lambda: self.store.register(T, "f", tool="tool", parent_span_id="a")),
            ("claim", lambda: self.store.claim(T, "a")),
            ("take_over", lambda: self.store.take_over(T, "a", 1)),
            ("finish", lambda: self.store.finish(T, "a", 2, "charged")),
            ("compensate", lambda: self.store.compensate(T, "a", "refund")),
            ("fail", lambda: self.store.fail(T, "b", self.running("b"), "temporary")),
            ("cancel", lambda: self.store.cancel(T, "c")),
            ("cancel a trace", lambda: self.store.cancel(T)),
            ("new_run", lambda: self.store.new_run(T)),
        ]
        db = self.store._database.connection
        outside: list[str] = []

        def note(sql: str) -> None:
            if not db.in_transaction:
                outside.append(sql.split()[0])

        db.set_trace_callback(note)
        self.addCleanup(db.set_trace_callback, None)
        for name, verb in verbs:
            outside.clear()
            with self.subTest(verb=name):
                verb()
                self.assertEqual(set(outside), {"BEGIN"})


class Orders(StoreTestCase):
    """Every order of two parties' steps, and long random histories."""

    def test_every_order_of_worker_and_canceller_ends_in_one_of_two_ways(self) -> None:
        """Result and no cancel mark, or cancelled and no result: whoever committed first. Claims: I4-099."""
        steps = ["register", "claim", "finish"]
        for number, position in enumerate(range(4)):
            trace = f"order-{number}"
            worker, canceller = self.store, self.open()
            states: list[object] = []
            for step in [*steps[:position], "cancel", *steps[position:]]:
                if step == "register":
                    worker.register(trace, "a", tool="tool")
                elif step == "claim":
                    states.append(worker.claim(trace, "a"))
                elif step == "finish" and states == [1]:
                    worker.finish(trace, "a", 1, "result")
                elif step == "cancel":
                    canceller.cancel(trace)
            row = worker.get(trace, "a")
            expected = ("succeeded", False, "result") if position == 3 else ("cancelled", True, None)
            self.assertEqual((row.state, row.cancelled, row.result), expected, position)

    def test_final_states_never_change(self) -> None:
        """From each final state every verb of every party leaves the row as it is."""
        for state in ("succeeded", "failed", "cancelled"):
            self.store.register(state, "a", tool="tool")
            self.assertEqual(self.store.claim(state, "a"), 1)
            if state == "succeeded":
                self.store.finish(state, "a", 1, "result")
            elif state == "failed":
                self.store.fail(state, "a", 1, "x")
            else:
                self.store.cancel(state)
                self.store.confirm(state, "a", 1)
            before = self.store.get(state, "a")
            self.assertEqual(before.state, state)
            self.assert_frozen(state)
        self.assertEqual(set(FINAL_STATES), set(STATES) - {"queued", "running"})

    def assert_frozen(self, trace: str) -> None:
        before = self.store.get(trace, "a")
        verbs: list[Callable[[], object]] = [
            lambda: self.store.register(trace, "a", tool="tool"),
            lambda: self.store.claim(trace, "a"),
            lambda: self.store.take_over(trace, "a", 1),
            lambda: self.store.cancel(trace),
            lambda: self.store.cancel(trace, "a"),
            lambda: self.store.finish(trace, "a", 1, "another"),
            lambda: self.store.fail(trace, "a", 1, "y"),
            lambda: self.store.confirm(trace, "a", 1),
        ]
        for verb in verbs:
            verb()
            self.assertEqual(self.store.get(trace, "a"), before)

    def test_random_histories_agree_with_a_model(self) -> None:
        """Twenty histories of 60 steps with a model that keeps sets and walks the parents itself.

        Claims: I4-003, I4-021, I4-089.
        """
        for seed in range(20):
            with self.subTest(seed=seed), CancelStore.open(":memory:", clock=self.clock) as store:
                dice, model = random.Random(seed), Model()
                for _ in range(60):
                    model.step(store, dice)
                    found = {row.span_id: (row.state, row.compensation) for row in store.invocations(T)}
                    self.assertEqual(found, {span: (model.state[span], span in model.exempt) for span in model.state})


class Model:
    """What a trace is by now, in sets and dicts; every choice is taken from lists, so that a seed is one history."""

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}
        self.state: dict[str, str] = {}
        self.cancels: set[str | None] = set()
        self.asked: set[str] = set()
        self.exempt: set[str] = set()

    def step(self, store: CancelStore, dice: random.Random) -> None:
        span = dice.choice("abcdef")
        undo = f"{span}:compensation"
        verb = dice.choice(("register", "register", "claim", "finish", "finish", "compensate", "cancel", "whole"))
        if verb == "register" and span not in self.state:
            parent = dice.choice([None, *"abcdef", *(f"{each}:compensation" for each in "abcdef")])
            store.register(T, span, tool="t", parent_span_id=parent)
            self.join(span, parent, parent in self.exempt)
        elif verb == "claim" and span in self.state:
            store.claim(T, span)
            if self.state[span] == "queued":
                self.state[span] = "cancelled" if self.stops(span, self.cancels) else "running"
        elif verb == "finish" and self.state.get(span) == "running":
            store.finish(T, span, 1, 1)
            stops = span in self.asked or self.stops(span, self.cancels)
            self.state[span] = "cancelled" if stops else "succeeded"
        elif verb == "compensate" and self.state.get(span) == "succeeded":
            store.compensate(T, span, "t")
            if undo not in self.state:
                self.join(undo, span, True)
        elif (verb == "cancel" and dice.random() < 0.3) or (verb == "whole" and dice.random() < 0.05):
            target = span if verb == "cancel" else None
            store.cancel(T, target)
            self.cancels.add(target)
            # Only what this cancel reaches; what joined an older one later is found at its next step.
            for each in [each for each in self.state if self.stops(each, {target})]:
                if self.state[each] == "queued":
                    self.state[each] = "cancelled"
                elif self.state[each] == "running":
                    self.asked.add(each)

    def join(self, span: str, parent: str | None, exempt: bool) -> None:
        self.parents[span] = parent
        self.state[span] = "queued"
        if not exempt:
            self.state[span] = "cancelled" if self.stops(span, self.cancels) else "queued"
            return
        self.exempt.add(span)
        below = [span]
        for top in below:
            for each in [each for each, above in self.parents.items() if above == top and each not in below]:
                if each not in self.exempt:
                    below.append(each)
                if self.state[each] in ("queued", "running") and each not in self.asked:
                    self.exempt.add(each)

    def stops(self, span: str | None, cancels: set[str | None]) -> bool:
        """Whether a cancel covers a span: of the trace, of itself, or of what is above it up to a compensation."""
        if span in self.exempt:
            return False
        seen: set[str | None] = {None}
        while span not in seen and span not in cancels and span not in self.exempt:
            seen.add(span)
            span = self.parents.get(span) if span is not None else None
        return None in cancels or span in cancels


class OtherProcesses(StoreTestCase):
    """Real processes that share nothing but the file and the trace id."""

    def test_a_cancel_reaches_a_worker_in_another_process(self) -> None:
        """The child claims and works until its checkpoint sees the row; no message is sent at all.

        Claims: I4-087, I4-099.
        """
        program = (
            "import sys\n"
            "from chapter10.companions.interruption.cancel_store import CancelStore\n"
            "from chapter10.companions.interruption.cancellation import DistributedCancelToken\n"
            "with CancelStore.open(sys.argv[1]) as store:\n"
            "    store.register('trace-1', 'child', tool='export', parent_span_id='a')\n"
            "    fence = store.claim('trace-1', 'child')\n"
            "    print('claimed', flush=True)\n"
            "    token = DistributedCancelToken('trace-1', None, store, span_id='child', poll_s=0.01)\n"
            "    while not token.is_cancelled():\n"
            "        pass\n"
            "    print(store.finish('trace-1', 'child', fence, 'late'), flush=True)\n"
        )
        child = start_python(["-c", program, str(self.path)])
        assert child.stdout is not None
        self.assertEqual(child.stdout.readline().strip(), "claimed")
        receipt = self.store.cancel(T)
        self.assertEqual((receipt.stopped, receipt.requested), (0, 1))
        out, err = child.communicate(timeout=60)
        self.assertEqual((out.strip(), child.returncode), ("cancelled", 0), err)
        self.assertEqual(self.store.get(T, "child").state, "cancelled")

    def test_a_child_that_another_process_registers_later_is_born_cancelled(self) -> None:
        """The cancel was there first; the process that registers has never heard of it. Claims: I4-021, I4-087."""
        self.store.cancel(T, "a")
        program = (
            "import sys\n"
            "from chapter10.companions.interruption.cancel_store import CancelStore\n"
            "with CancelStore.open(sys.argv[1]) as store:\n"
            "    print(store.register('trace-1', 'late', tool='export', parent_span_id='a').state)\n"
            "    print(store.claim('trace-1', 'late'))\n"
        )
        done = run_python(["-c", program, str(self.path)])
        self.assertEqual((done.stdout.split(), done.returncode), (["cancelled", "None"], 0), done.stderr)

    def test_claims_and_cancels_from_four_processes_add_up(self) -> None:
        """Each of 40 spans has one owner or none, and none that is cancelled has a result."""
        program = (
            "import sys\n"
            "from chapter10.companions.interruption.cancel_store import CancelStore\n"
            "who = sys.argv[2]\n"
            "with CancelStore.open(sys.argv[1]) as store:\n"
            "    for number in range(40):\n"
            "        span = f's{number:02}'\n"
            "        if who == 'canceller':\n"
            "            store.cancel('trace-1', span)\n"
            "            continue\n"
            "        store.register('trace-1', span, tool='t')\n"
            "        fence = store.claim('trace-1', span)\n"
            "        if fence is not None:\n"
            "            print(span, store.finish('trace-1', span, fence, who))\n"
        )
        children = [start_python(["-c", program, str(self.path), who]) for who in ("w1", "w2", "w3", "canceller")]
        ended: list[list[str]] = []
        for child in children:
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, err)
            ended += [line.split() for line in out.splitlines()]
        spans = [span for span, _ in ended]
        self.assertEqual(len(spans), len(set(spans)), "a span has one owner")
        for row in self.store.invocations(T):
            self.assertIn(row.state, ("succeeded", "cancelled"))
            self.assertEqual(row.result is None, row.state == "cancelled")
            if [row.span_id, "succeeded"] in ended:
                self.assertEqual(row.state, "succeeded")


class Text(str):
    """A text of another type: nobody knows what its methods answer."""


class BadInput(StoreTestCase):
    """The door."""

    def test_the_least_and_the_most_are_taken(self) -> None:
        """One row, the largest whole number of SQLite as a run or a fence, and texts as long as they may be."""
        self.tree()
        self.assertEqual([row.span_id for row in self.store.invocations(T, limit=1)], ["a"])
        self.assertEqual(len(self.store.invocations(T, limit=1000)), 5)
        self.assertIsNone(self.store.cancel_reason(T, "a", epoch=2**63 - 1))
        with self.assertRaises(LostInvocation):
            self.store.finish(T, "a", 2**63 - 1, 1)
        longest = "x" * 200
        self.assertEqual(self.store.register(T, longest, tool=longest, epoch=2**63 - 1).epoch, 2**63 - 1)
        self.assertEqual(self.store.finish(T, "a", self.running("a"), "x" * (1024 * 1024 - 2)), "succeeded")

    def test_a_file_says_whose_it_is_and_is_closed_by_its_block(self) -> None:
        """Its mark is the four letters CH1C, and behind the `with` nothing can be asked."""
        path = self.folder / "other.db"
        with CancelStore.open(path) as store:
            self.assertIsNone(store.cancel_reason(T))
        with self.assertRaises(StoreError):
            store.cancel_reason(T)
        self.assertEqual(path.read_bytes()[68:72], b"CH1C")
        self.assertEqual(APPLICATION_ID.to_bytes(4, "big"), b"CH1C")

    def test_what_is_not_taken_changes_nothing(self) -> None:
        """Wrong types, empty, long and broken texts, booleans and bad results are `bad_input`."""
        self.tree()
        fence = self.running("a")
        before = self.store.invocations(T)
        texts: list[Any] = [7, "", "x" * 201, "a\0b", "\ud800", b"a"]
        numbers: list[Any] = [0, -1, True, 1.0, "1", 2**63]
        results: list[Any] = [float("nan"), {1: 2}, (1,), "\ud800", "x" * (1024 * 1024), object()]
        store = self.store
        refused: list[tuple[list[Any], list[Callable[[Any], object]]]] = [
            (
                [None, *texts],
                [
                    lambda text: store.cancel(text),
                    lambda text: store.cancel(T, reason=text),
                    lambda text: store.register(T, text, tool="t"),
                    lambda text: store.register(text, "z", tool="t"),
                    lambda text: store.register(T, "z", tool=text),
                    lambda text: store.claim(T, text),
                    lambda text: store.fail(T, "a", fence, text),
                    lambda text: store.compensate(T, "a", text),
                    lambda text: store.compensate(T, text, "refund"),
                    lambda text: store.compensate(text, "a", "refund"),
                    lambda text: store.finish(T, text, fence, 1),
                    lambda text: store.confirm(text, "a", fence),
                    lambda text: store.new_run(text),
                    lambda text: store.invocations(text),
                    lambda text: store.get(T, text),
                    lambda text: store.cancel_reason(text),
                ],
            ),
            (
                texts,
                [
                    lambda text: store.cancel(T, text),
                    lambda text: store.cancel_reason(T, text),
                    lambda text: store.register(T, "z", tool="t", parent_span_id=text),
                ],
            ),
            (
                numbers,
                [
                    lambda number: store.cancel(T, epoch=number),
                    lambda number: store.cancel_reason(T, epoch=number),
                    lambda number: store.invocations(T, epoch=number),
                    lambda number: store.get(T, "a", epoch=number),
                    lambda number: store.register(T, "z", tool="t", epoch=number),
                    lambda number: store.finish(T, "a", number, 1),
                    lambda number: store.invocations(T, limit=number),
                ],
            ),
            (results, [lambda result: store.finish(T, "a", fence, result)]),
            ([1001], [lambda limit: store.invocations(T, limit=limit)]),
            (["waiting", Text("queued")], [lambda state: store.invocations(T, state=state)]),
            (["x" * 195], [lambda span: store.compensate(T, span, "refund")]),
        ]
        for values, verbs in refused:
            for wrong, verb in itertools.product(values, verbs):
                with self.assertRaisesRegex(CancelStoreError, "^bad_input$"):
                    verb(wrong)
        self.assertEqual(self.store.invocations(T), before)
        self.assertIsNone(self.store.cancel_reason(T))

    def test_a_span_stands_for_one_call(self) -> None:
        """The same registration again returns the row; another tool or parent under its name is a conflict."""
        self.tree()
        self.assertEqual(self.store.register(T, "b", tool="tool", parent_span_id="a").state, "queued")
        for tool, parent in (("other", "a"), ("tool", None), ("tool", "c")):
            with self.assertRaisesRegex(CancelStoreError, "span_conflict"):
                self.store.register(T, "b", tool=tool, parent_span_id=parent)

    def test_what_does_not_exist_is_not_found(self) -> None:
        """Every verb of a worker says so, and a broken machine looks different."""
        verbs: list[Callable[[], object]] = [
            lambda: self.store.claim(T, "zzz"),
            lambda: self.store.take_over(T, "zzz", 1),
            lambda: self.store.finish(T, "zzz", 1, 1),
            lambda: self.store.get(T, "zzz"),
        ]
        for verb in verbs:
            with self.assertRaisesRegex(CancelStoreError, "not_found"):
                verb()
        self.store.close()
        verbs += [lambda: self.store.cancel_reason(T), lambda: self.store.invocations(T)]
        for verb in verbs:
            with self.assertRaises(StoreError):
                verb()

    def test_one_clock_dates_every_cancel(self) -> None:
        """Workers whose own clocks are wrong write nothing of them: the store's clock is the only one."""
        stores = [self.store, self.open()]
        self.clock.advance(30)
        for number, store in itertools.product(range(2), stores):
            store.register(f"t{number}", "a", tool="t")
            store.claim(f"t{number}", "a")
            store.cancel(f"t{number}")
            self.assertEqual(store.get(f"t{number}", "a").cancelled_at, 1_700_000_030)

    def test_what_is_handed_out_is_a_copy(self) -> None:
        """Changing a result that was read does not change the store."""
        self.tree()
        self.store.finish(T, "a", self.running("a"), {"rows": [1]})
        self.store.get(T, "a").result["rows"].append(2)
        self.assertEqual(self.store.get(T, "a").result, {"rows": [1]})

    def test_repeated_questions_are_answered_by_an_index(self) -> None:
        """No look scans the history of other traces."""
        plans: list[tuple[str, tuple[object, ...]]] = [
            ("SELECT * FROM tool_invocations WHERE trace_id = ? AND epoch = ? AND span_id = ?", (T, 1, "a")),
            ("SELECT * FROM tool_invocations WHERE trace_id = ? AND epoch = ? AND parent_span_id = ?", (T, 1, "a")),
            ("SELECT * FROM tool_invocations WHERE trace_id = ? AND epoch = ? AND state = 'running'", (T, 1)),
            ("SELECT * FROM cancels WHERE trace_id = ? AND epoch = ? AND span_id = ''", (T, 1)),
        ]
        db = self.store._database.connection
        for sql, values in plans:
            plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values))
            self.assertIn("SEARCH", plan)
            self.assertNotIn("SCAN", plan)


class UpkeepTest(StoreTestCase):
    """Who is gone is found, and what is long over is forgotten."""

    def overdue(self) -> list[str]:
        return [row.span_id for row in self.store.overdue()]

    def test_a_holder_whose_lease_is_over_is_named_and_its_work_taken_over(self) -> None:
        """Not before, not without a lease, not once it has renewed; what was taken over is late for the first."""
        self.tree()
        first = self.store.claim(T, "a", lease_s=30)
        self.assertEqual(first, 1)
        self.running("b")
        self.clock.advance(30)
        self.assertEqual([], self.overdue())
        self.assertEqual("running", self.store.renew(T, "a", 1, 30))
        self.clock.advance(30)
        self.assertEqual([], self.overdue())
        self.clock.advance(1)
        self.assertEqual(["a"], self.overdue())
        self.assertEqual(2, self.store.take_over(T, "a", 1, lease_s=30))
        self.assertEqual([], self.overdue())
        with self.assertRaises(LostInvocation):
            self.store.renew(T, "a", 1, 30)

    def test_the_oldest_leases_are_named_first_and_so_many_as_were_asked_for(self) -> None:
        """By the end of the lease, whatever their names; the same bound holds for what is forgotten."""
        for span, lease_s in (("a", 30), ("b", 10), ("c", 20)):
            self.store.register(T, span, tool="tool")
            self.store.claim(T, span, lease_s=lease_s)
        self.clock.advance(60)
        self.assertEqual(["b", "c", "a"], self.overdue())
        self.assertEqual(["b", "c"], [row.span_id for row in self.store.overdue(2)])
        for trace in ("z", "y", "x"):
            self.store.cancel(trace)
            self.clock.advance(1)
        self.clock.advance(60)
        self.assertEqual([2, 1, 0], [self.store.prune(60, 2) for _ in range(3)])

    def test_a_renewal_tells_of_a_cancel(self) -> None:
        """The holder that asks for more time learns that it has none."""
        self.tree()
        fence = self.running("a")
        self.store.cancel(T)
        self.assertEqual("cancelled", self.store.renew(T, "a", fence, 30))

    def test_a_clock_that_was_ahead_keeps_nothing_for_a_year(self) -> None:
        """A lease ends a lease from now, and age counts from now."""
        self.tree()
        self.clock.advance(31_536_000)
        self.store.claim(T, "a", lease_s=30)
        self.store.register("t2", "a", tool="tool")
        self.store.cancel("t2")
        self.clock.advance(-31_536_000)
        self.assertEqual(([], 0), (self.overdue(), self.store.prune(60)))
        self.clock.advance(60)
        self.assertEqual((["a"], 1), (self.overdue(), self.store.prune(60)))

    def test_a_trace_is_forgotten_when_all_in_it_ended_long_ago(self) -> None:
        """With its cancels and runs; one that is open, or was just cancelled again, stays whole."""
        for trace in ("over", "open", "late"):
            self.store.new_run(trace)
            for span in ("a", "b"):
                self.store.register(trace, span, tool="tool")
                self.store.finish(trace, span, self.store.claim(trace, span) or 0, 1)
            self.store.cancel(trace, "a")
        self.store.register("open", "c", tool="tool")
        self.clock.advance(99)
        self.store.cancel("late")
        self.assertEqual(0, self.store.prune(100))
        self.clock.advance(1)
        self.assertEqual(1, self.store.prune(100))
        db = self.store.database
        for table in ("tool_invocations", "cancels", "traces"):
            rows = db.rows(f"SELECT DISTINCT trace_id FROM {table} ORDER BY trace_id LIMIT 9")
            self.assertEqual([("late",), ("open",)], rows, table)

    def test_a_worker_thread_looks_whether_to_go_on(self) -> None:
        """It sees a cancel at once, through a connection of its own; a store in memory says that it cannot."""
        self.tree()
        with ThreadPoolExecutor(1) as pool:
            self.assertIsNone(pool.submit(self.store.cancel_reason, T, "e").result())
            self.store.cancel(T, "b", reason="enough")
            self.assertEqual("enough", pool.submit(self.store.cancel_reason, T, "e").result())
            with CancelStore.open(":memory:") as private, self.assertRaisesRegex(CancelStoreError, "wrong_thread"):
                pool.submit(private.cancel_reason, T).result()

    def test_a_file_of_the_time_before_leases_is_opened(self) -> None:
        """Nobody knows how old its rows are, so they count from now."""
        path = self.folder / "old.db"
        old = Database(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:1])
        with old.write() as db:
            db.execute(
                "INSERT INTO tool_invocations VALUES ('t', 1, 'a', NULL, 'x', 0, 'failed', 1, 0, NULL, NULL, 'e')"
            )
        old.close()
        with CancelStore.open(path) as store:
            self.assertEqual(("failed", 0), (store.get("t", "a").state, store.prune(3600)))


if __name__ == "__main__":
    unittest.main()
