"""What `interruption.budget` promises, checked with time that jumps (and `basics.tasks` below it)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import unittest
from collections.abc import Awaitable, Callable
from typing import Any

from chapter10.companions.basics.tasks import Ending, abandoned, own, until
from chapter10.companions.interruption.budget import (
    COMPENSATION_RATIO,
    GRACE_MS,
    MAX_MS,
    MIN_RESERVE_MS,
    OUTCOMES,
    RECOMMENDED_RATIOS,
    Budget,
    BudgetError,
    BudgetExhausted,
    Outcome,
    RunCancelled,
    ToolTimedOut,
    run_within,
    tool_with_budget,
)
from chapter10.tests.support import ManualClock, run_python
from chapter10.tests.virtual_time import VirtualLoop, pause, run_virtual, virtual


async def stubborn(seconds: float, value: object = "late") -> object:
    """A tool that ignores every cancel for so long, and then returns."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        with contextlib.suppress(asyncio.CancelledError):
            await pause(end - loop.time())
    return value


async def until_done(task: asyncio.Future[Any]) -> None:
    """Wait for a task without looking at how it ended."""
    await asyncio.wait({task})


class TheBudget(unittest.TestCase):
    """What is left, in which lane, and for whom."""

    def setUp(self) -> None:
        self.clock = ManualClock(50.0)

    def test_remaining_is_total_minus_used(self) -> None:
        """The form of the sample holds: total, used, remaining, and `consume` in a chain. Claims: I4-013."""
        budget = Budget(1000, 200, clock=self.clock)
        self.assertEqual((budget.total_ms, budget.used_ms, budget.remaining), (1000, 200, 800))
        self.assertEqual(Budget(1000, clock=self.clock).used_ms, 0)
        spent = budget.consume(100).consume(50)
        self.assertEqual((spent.used_ms, spent.remaining, spent.compensation_remaining), (350, 650, 650))
        self.assertEqual(budget.remaining, 800, "a budget never changes")
        self.assertEqual((spent.child(100).used_ms, spent.compensation().used_ms), (0, 0))

    def test_the_clock_charges_waits_between_tools(self) -> None:
        """Nine seconds of search, a wait of three, and the summary has what is left of the promise.

        Claims: I4-011, I4-012.
        """
        budget = Budget(20_000, clock=self.clock)
        self.clock.advance(9)
        self.clock.advance(3)
        self.assertEqual(budget.remaining, 8000)

    def test_long_budgets_are_exact_in_both_lanes(self) -> None:
        """Of hours no millisecond is lost or won by a child, by time that was used elsewhere, or on the wire."""
        budget = Budget.start(40_000_000, clock=self.clock)
        self.assertEqual((budget.remaining, budget.compensation_remaining), (30_000_000, 40_000_000))
        self.assertEqual(budget.child(20_000_000).remaining, 20_000_000)
        spent = budget.consume(10_000_000)
        self.assertEqual((spent.remaining, spent.compensation_remaining), (20_000_000, 30_000_000))
        there = Budget.from_wire(budget.to_wire(), clock=self.clock)
        self.assertEqual((there.remaining, there.compensation_remaining), (30_000_000, 40_000_000))
        self.assertEqual((there.compensation_budget_ratio, there.used_ms), (0.25, 0))

    def test_the_limits_and_defaults_are_the_published_ones(self) -> None:
        """A week, a second of grace, and a record that claims nothing which nobody said."""
        self.assertEqual((MAX_MS, GRACE_MS), (604_800_000, 1000))
        self.assertEqual(Budget(MAX_MS, MAX_MS, clock=self.clock).remaining, 0)
        outcome: Outcome[int] = Outcome("tool", "not_started")
        self.assertEqual(dataclasses.astuple(outcome), ("tool", "not_started", None, None, False, False, False))

    def test_a_budget_in_a_log_shows_no_clock(self) -> None:
        """The figures are there, the function that tells the time is not."""
        shown = repr(Budget(1000, 200, clock=self.clock))
        self.assertIn("total_ms=1000, used_ms=200", shown)
        self.assertNotIn("clock", shown)

    def test_a_budget_cannot_be_changed(self) -> None:
        """Parallel siblings share a value, not a counter."""
        budget = Budget.start(1000, clock=self.clock)
        for name in ("total_ms", "used_ms", "_main_us", "clock"):
            with self.assertRaises(dataclasses.FrozenInstanceError):
                setattr(budget, name, 0)
        self.assertEqual(budget.remaining, 750)

    def test_a_quarter_is_kept_for_compensation(self) -> None:
        """The main path ends at 75 %, the hard deadline is the total, and both lanes are in one object.

        Claims: I4-023.
        """
        budget = Budget.start(1000, clock=self.clock)
        self.assertEqual(COMPENSATION_RATIO, 0.25)
        self.assertTrue(RECOMMENDED_RATIOS[0] <= COMPENSATION_RATIO <= RECOMMENDED_RATIOS[1])
        self.assertEqual((budget.remaining, budget.compensation_remaining), (750, 1000))
        self.clock.advance(0.75)
        self.assertEqual((budget.remaining, budget.compensation_remaining), (0, 250))
        self.assertTrue(budget.expired)
        with self.assertRaises(BudgetExhausted):
            budget.check("search", min_reserve_ms=0)
        self.assertEqual(budget.compensation().check("refund"), 250)

    def test_ratios_from_two_to_three_tenths_are_taken(self) -> None:
        """The usual ratios give the lanes that they say. Claims: I4-023."""
        for ratio, main in ((0.2, 800), (0.25, 750), (0.3, 700), (0, 1000)):
            with self.subTest(ratio=ratio):
                budget = Budget.start(1000, compensation_budget_ratio=ratio, clock=self.clock)
                self.assertEqual((budget.remaining, budget.compensation().remaining), (main, 1000))

    def test_the_reserve_is_taken_once_a_chain(self) -> None:
        """Ten levels down the main path is as long, and the reserve as large, as at the top."""
        budget = Budget.start(1000, clock=self.clock)
        for _ in range(10):
            budget = budget.child(5000)
        self.assertEqual((budget.remaining, budget.compensation_remaining), (750, 1000))

    def test_a_child_never_outlives_its_parent(self) -> None:
        """A child has the smaller of its own time and the parent's, at every moment. Claims: I4-102."""
        parent = Budget.start(1000, clock=self.clock)
        self.clock.advance(0.25)
        short, long = parent.child(100), parent.child(9000)
        for _ in range(12):
            self.assertLessEqual(short.remaining, parent.remaining)
            self.assertEqual(long.remaining, parent.remaining)
            self.clock.advance(0.0625)
        self.assertEqual((short.remaining, long.remaining, parent.remaining), (0, 0, 0))

    def test_a_value_at_its_minimum_is_enough(self) -> None:
        """199 ms are refused with the figures, 200 ms are enough; a tool may ask for more. Claims: I4-012, I4-015."""
        budget = Budget(1000, 801, clock=self.clock)
        with self.assertRaises(BudgetExhausted) as caught:
            budget.check("search")
        error = caught.exception
        self.assertEqual((error.code, str(error)), ("budget_exhausted", "budget_exhausted"))
        self.assertEqual((error.name, error.remaining, error.minimum), ("search", 199, 200))
        self.assertEqual(error.explanation, "search: budget 199ms < 200ms")
        self.assertEqual(Budget(1000, 800, clock=self.clock).check("search"), 200)
        self.assertEqual(MIN_RESERVE_MS, 200)
        with self.assertRaises(BudgetExhausted) as caught:
            Budget(1000, clock=self.clock).check("export", 1001)
        self.assertEqual(caught.exception.minimum, 1001)
        self.assertEqual(Budget(1000, clock=self.clock).check("export", 1000), 1000)

    def test_the_rounding_of_a_clock_costs_no_millisecond(self) -> None:
        """1.001 s and 1.801 s have no exact form, and 200 ms of a second are left all the same. Claims: I4-017."""
        self.clock.now = 1.001
        budget = Budget(1000, clock=self.clock)
        self.clock.now = 1.801
        self.assertEqual(budget.check("search"), 200)

    def test_nothing_left_is_exhausted_whatever_the_minimum(self) -> None:
        """Zero never means "no limit", and what is left never falls below zero."""
        for budget in (Budget(0, clock=self.clock), Budget(100, 500, clock=self.clock)):
            self.assertEqual((budget.remaining, budget.seconds(), budget.compensation_remaining), (0, 0.0, 0))
            with self.assertRaises(BudgetExhausted) as caught:
                budget.check("read", min_reserve_ms=0)
            self.assertEqual((caught.exception.remaining, caught.exception.minimum), (0, 0))

    def test_time_left_crosses_a_process_and_clock_readings_do_not(self) -> None:
        """Both lanes arrive at another clock as they were, less the part of a millisecond that was begun."""
        budget = Budget.start(1000, clock=self.clock)
        self.clock.advance(0.1006)
        wire = json.loads(json.dumps(budget.to_wire()))
        self.assertEqual(wire, {"main_ms": 649, "hard_ms": 899})
        other = ManualClock(9_000_000.0)
        there = Budget.from_wire(wire, clock=other)
        self.assertEqual((there.remaining, there.compensation_remaining), (649, 899))
        other.advance(0.649)
        self.assertEqual((there.remaining, there.compensation_remaining), (0, 250))
        self.assertEqual(Budget.from_wire({"main_ms": 0, "hard_ms": 0}, clock=other).remaining, 0)

    def test_a_real_process_gets_the_time_that_is_left(self) -> None:
        """A child process rebuilds the deadline on its own clock and has no more than was sent."""
        program = (
            "import json,sys\nfrom chapter10.companions.interruption.budget import Budget\n"
            "budget = Budget.from_wire(json.loads(sys.stdin.read()))\nprint(budget.remaining)"
        )
        done = run_python(["-c", program], text=json.dumps(Budget.start(60_000, clock=self.clock).to_wire()))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(int(done.stdout), 45_000)
        self.assertGreater(int(done.stdout), 0)

    def test_bad_input_is_refused_by_name(self) -> None:
        """Wrong types, booleans, NaN, negatives and what is too long are `bad_input`, at every door."""
        good = Budget(1000, clock=self.clock)
        no_times = [True, -1, 1.5, math.nan, "5", None, MAX_MS + 1, 10**30]
        no_ratios = [1, 1.0, -0.1, math.nan, math.inf, True, "0.25", None]
        no_wires: list[Any] = [
            {}, [], None, {"main_ms": 1}, {"main_ms": 2, "hard_ms": 1}, {"main_ms": True, "hard_ms": 1},
            {"main_ms": 1, "hard_ms": 1.5}, {"main_ms": -1, "hard_ms": 1}, {"main_ms": 1, "hard_ms": 1, "x": 1},
        ]  # fmt: skip
        doors: list[tuple[str, Callable[[Any], object], list[Any]]] = [
            ("total", lambda total: Budget(total, clock=self.clock), no_times),
            ("used", lambda used: Budget(5, used, clock=self.clock), no_times),
            ("ratio", lambda ratio: Budget(5, compensation_budget_ratio=ratio, clock=self.clock), no_ratios),
            ("wire", lambda wire: Budget.from_wire(wire, clock=self.clock), no_wires),
            ("clock", lambda now: Budget(5, clock=lambda: now), [math.nan, "now"]),
            ("child", good.child, [-1]),
            ("consume", good.consume, [-1]),
            ("minimum", lambda least: good.check("x", least), [True, 1.5]),
            ("reserve", lambda least: good.check("x", min_reserve_ms=least), [True, 1.5]),
        ]
        for door, make, values in doors:
            for wrong in values:
                with self.subTest(door=door, wrong=wrong), self.assertRaises(BudgetError) as caught:
                    make(wrong)
                self.assertEqual((caught.exception.code, str(caught.exception)), ("bad_input", "bad_input"))
        self.assertEqual(good.remaining, 1000)


class TheRunner(unittest.TestCase):
    """Each run ends in exactly one outcome, and in bounded time."""

    def run_it(
        self, fn: Callable[[], Awaitable[Any]], *, total_ms: int | None = 1000, **options: Any
    ) -> tuple[Outcome[Any], float, list[str]]:
        """Return the outcome, the seconds that it took and what was reported, in a fresh virtual loop."""
        reported: list[str] = []

        async def main(loop: VirtualLoop) -> tuple[Outcome[Any], float, list[str]]:
            budget = None if total_ms is None else Budget(total_ms, clock=loop.time)
            start = loop.time()
            outcome: Outcome[Any] = await run_within(
                budget,
                "tool",
                fn,
                report=lambda outcome: reported.append(outcome.kind),
                report_end=lambda outcome: reported.append(f"end {outcome.kind}"),
                **options,
            )
            took = round(loop.time() - start, 6)
            while abandoned():
                await until_done(next(iter(abandoned())))
                await asyncio.sleep(0)
            return outcome, took, reported

        return run_virtual(main)

    @virtual
    async def test_a_value_and_an_error_charge_the_time_that_they_took(self, loop: VirtualLoop) -> None:
        """Of a second 700 ms are left after a value that took 300, 900 after an error that took 100.

        Claims: I4-007, I4-017, I4-019.
        """

        async def fails() -> None:
            await pause(0.1)
            raise ConnectionResetError

        budget = Budget(1000, clock=loop.time)
        self.assertEqual(await tool_with_budget("tool", {"seconds": 0.3}, budget, self.work), "done")
        self.assertEqual(budget.remaining, 700)
        budget = Budget(1000, clock=loop.time)
        with self.assertRaises(ConnectionResetError):
            await tool_with_budget("tool", {}, budget, fails)
        self.assertEqual(budget.remaining, 900)

    @virtual
    async def test_short_calls_are_not_free(self, loop: VirtualLoop) -> None:
        """500 calls of 0.9 ms are 450 ms, and three of 400 ms at once are 400. Claims: I4-017."""
        budget = Budget(1000, clock=loop.time)
        for _ in range(500):
            await run_within(budget, "tool", lambda: pause(0.0009), min_reserve_ms=0)
        self.assertIn(budget.remaining, (549, 550))
        budget = Budget(1000, clock=loop.time)
        await asyncio.gather(*(run_within(budget, "tool", lambda: pause(0.4)) for _ in range(3)))
        self.assertEqual(budget.remaining, 600)

    async def work(self, seconds: float) -> str:
        await pause(seconds)
        return "done"

    def test_an_outcome_of_a_named_type_can_be_made(self) -> None:
        """`Outcome[int](…)` is an ordinary call on every supported Python, and the record stays as it is."""
        outcome = Outcome[int]("tool", "value", 7, returned=True)
        self.assertEqual(outcome.value, 7)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            outcome.kind = "late_value"  # type: ignore[misc]

    def test_falsy_values_are_values(self) -> None:
        """None, 0 and empty are what the tool returned."""
        falsy: list[object] = [None, 0, "", []]
        for value in falsy:

            async def give(value: object = value) -> object:
                return value

            outcome, _, _ = self.run_it(give)
            self.assertEqual((outcome.kind, outcome.value, outcome.returned), ("value", value, True))

    def test_a_tool_past_its_time_is_stopped_and_awaited(self) -> None:
        """At the end of the budget the tool is cancelled, cleans up, and is done when the call returns.

        Claims: I4-007, I4-008, I4-016, I4-020.
        """
        seen = []

        async def slow() -> None:
            try:
                await pause(9)
            finally:
                await pause(0.3)
                seen.append("cleaned up")

        outcome, took, reported = self.run_it(slow)
        self.assertEqual((outcome.kind, outcome.running, took), ("timed_out_stopped", False, 1.3))
        self.assertEqual((seen, reported), (["cleaned up"], ["timed_out_stopped"]))

    def test_a_stubborn_tool_is_abandoned_after_the_grace(self) -> None:
        """The caller waits for limit and grace and no longer; the tool is kept, and its end is reported.

        Claims: I4-008.
        """
        outcome, took, reported = self.run_it(lambda: stubborn(60))
        self.assertEqual((outcome.kind, outcome.running, took), ("timed_out_abandoned", True, 1 + GRACE_MS / 1000))
        self.assertEqual(reported, ["timed_out_abandoned", "end late_value"])
        self.assertEqual(abandoned(), frozenset())

    @virtual
    async def test_the_end_of_an_abandoned_tool_is_logged_without_its_data(self, loop: VirtualLoop) -> None:
        """Who passes no `report_end` finds a line in the log, and no text of the tool in it."""

        async def fails() -> None:
            await stubborn(60)
            raise ValueError("secret")

        name = "chapter10.companions.interruption.budget"
        with self.assertLogs(name, "WARNING") as logs:
            await run_within(Budget(1000, clock=loop.time), "tool", fails)
            await until_done(next(iter(abandoned())))
            await asyncio.sleep(0)
        self.assertEqual(logs.output, [f"WARNING:{name}:tool: an abandoned call ended as timed_out_stopped"])

    def test_a_late_value_is_late_and_known(self) -> None:
        """A tool that finishes after it was asked to stop did have its effect: the value is kept and marked.

        So it is if the loop's timer ended its time, while the budget's own clock stood still.
        """
        outcome, took, _ = self.run_it(lambda: stubborn(1.5, "charged"))
        self.assertEqual((outcome.kind, outcome.value, took), ("late_value", "charged", 1.5))
        still = Budget(1000, clock=ManualClock())
        outcome = run_virtual(lambda loop: run_within(still, "tool", lambda: stubborn(1.5, "charged")))
        self.assertEqual((outcome.kind, outcome.value), ("late_value", "charged"))

    def test_a_tool_that_blocks_the_loop_past_its_deadline_is_late(self) -> None:
        """No timer fires while code blocks, so the deadline is looked at again when the value is there.

        Claims: I4-033.
        """
        for seconds, kind in ((0.999, "value"), (1.0, "late_value"), (5.0, "late_value")):

            async def block(seconds: float = seconds) -> str:
                loop = asyncio.get_running_loop()
                assert isinstance(loop, VirtualLoop)
                loop.advance(seconds)
                return "done"

            with self.subTest(seconds=seconds):
                outcome, _, _ = self.run_it(block)
                self.assertEqual((outcome.kind, outcome.value), (kind, "done"))

    def test_an_error_of_the_tool_is_its_own(self) -> None:
        """Whatever it raises is a tool error, also before its first await and also a TimeoutError of its own.

        Claims: I4-019.
        """
        for raised in (ValueError("x"), TimeoutError("connect"), ConnectionResetError()):

            async def fails(raised: Exception = raised) -> None:
                await pause(0.1)
                raise raised

            def fails_at_once(raised: Exception = raised) -> Awaitable[None]:
                raise raised

            with self.subTest(error=type(raised).__name__):
                outcome, took, _ = self.run_it(fails)
                self.assertEqual((outcome.kind, outcome.error, took), ("tool_error", raised, 0.1))
                outcome, took, _ = self.run_it(fails_at_once)
                self.assertEqual((outcome.kind, outcome.error, took), ("tool_error", raised, 0))

    @virtual
    async def test_too_little_time_means_not_called(self, loop: VirtualLoop) -> None:
        """Below the minimum nothing starts; at the minimum it does. Claims: I4-014, I4-015, I4-102."""
        calls = []

        async def tool(month: str) -> str:
            calls.append(month)
            return month

        with self.assertRaises(BudgetExhausted):
            await tool_with_budget("tool", {"month": "2026-08"}, Budget(199, clock=loop.time), tool)
        self.assertEqual(calls, [])
        outcome = await run_within(Budget(500, clock=loop.time), "tool", lambda: tool("x"), minimum_ms=501)
        self.assertEqual((outcome.kind, outcome.returned, calls), ("not_started", False, []))
        self.assertIsInstance(outcome.error, BudgetExhausted)
        outcome = await run_within(Budget(0, clock=loop.time), "tool", lambda: tool("x"), min_reserve_ms=0)
        assert isinstance(outcome.error, BudgetExhausted)
        self.assertEqual((outcome.kind, outcome.error.minimum, calls), ("not_started", 0, []))
        self.assertEqual(
            await tool_with_budget("tool", {"month": "2026-08"}, Budget(200, clock=loop.time), tool), "2026-08"
        )

    @virtual
    async def test_a_time_out_leaves_nothing_of_the_budget(self, loop: VirtualLoop) -> None:
        """The main path has 0 ms, and a `TimeoutError` with a code comes out, which keeps a late value.

        Claims: I4-016, I4-018.
        """
        budget = Budget(1000, clock=loop.time)
        with self.assertRaises(TimeoutError) as caught:
            await tool_with_budget("tool", {"seconds": 9}, budget, self.work)
        assert isinstance(caught.exception, ToolTimedOut)
        self.assertEqual((str(caught.exception), budget.remaining), ("timed_out", 0))
        self.assertEqual(caught.exception.outcome.kind, "timed_out_stopped")
        with self.assertRaises(ToolTimedOut) as late:
            await tool_with_budget("tool", {"seconds": 1.5}, Budget(1000, clock=loop.time), stubborn)
        self.assertEqual(late.exception.outcome.value, "late")

    @virtual
    async def test_compensation_runs_after_the_main_path_timed_out(self, loop: VirtualLoop) -> None:
        """The refund has the reserve, and its own time limit is the hard deadline. Claims: I4-024."""
        budget = Budget.start(2000, clock=loop.time)
        payment = await run_within(budget, "pay", lambda: self.work(9), grace_ms=100)
        self.assertEqual((payment.kind, budget.remaining), ("timed_out_stopped", 0))
        refund = await run_within(budget.compensation(), "refund", lambda: self.work(0.3))
        self.assertEqual((refund.kind, refund.value), ("value", "done"))
        again = await run_within(budget.compensation(), "refund", lambda: self.work(9))
        self.assertEqual((again.kind, budget.compensation_remaining), ("timed_out_stopped", 0))
        after = await run_within(budget.compensation(), "refund", lambda: self.work(0.1))
        self.assertEqual(after.kind, "not_started")

    @virtual
    async def test_each_tool_of_a_chain_gets_what_is_left(self, loop: VirtualLoop) -> None:
        """Every child sees less than the one before; when too little is left nothing is called.

        Claims: I4-012, I4-102.
        """
        seen: list[int] = []
        budget = Budget(1000, clock=loop.time)

        async def tool(part: Budget) -> None:
            seen.append(part.remaining)
            await pause(0.3)

        for _ in range(4):
            part = budget.child(600)
            outcome = await run_within(part, "tool", lambda part=part: tool(part))  # type: ignore[misc]
        self.assertEqual((seen, outcome.kind), ([600, 600, 400], "not_started"))

    def test_the_smaller_of_two_limits_counts(self) -> None:
        """A tool's own limit ends it early and is named; the rest of a budget ends it as the caller's doing."""
        for total_ms, limit_ms, kind, own_limit, took in (
            (1000, 400, "timed_out_stopped", True, 0.4),
            (1000, 999, "timed_out_stopped", True, 0.999),
            (1000, 1000, "timed_out_stopped", True, 1.0),
            (1000, 1001, "timed_out_stopped", False, 1.0),
            (None, 400, "timed_out_stopped", True, 0.4),
            (None, None, "value", False, 9),
        ):
            with self.subTest(total_ms=total_ms, limit_ms=limit_ms):
                outcome, seconds, _ = self.run_it(lambda: self.work(9), total_ms=total_ms, limit_ms=limit_ms)
                self.assertEqual((outcome.kind, outcome.own_limit, seconds), (kind, own_limit, took))
                if limit_ms is not None:
                    self.assertEqual(
                        self.run_it(lambda: self.work(0.1), total_ms=total_ms, limit_ms=limit_ms)[0].own_limit,
                        own_limit,
                    )

    @virtual
    async def test_a_cancel_of_the_caller_stops_the_tool_and_goes_on(self, loop: VirtualLoop) -> None:
        """The tool has ended, the outcome is reported, and the caller is cancelled. Claims: I4-001, I4-020."""
        seen: list[str] = []

        async def parse() -> None:
            try:
                await pause(600)
            finally:
                seen.append("tool stopped")

        budget = Budget(MAX_MS, clock=loop.time)
        caller = loop.create_task(run_within(budget, "parse", parse, report=lambda outcome: seen.append(outcome.kind)))
        await pause(5)
        caller.cancel()
        await until_done(caller)
        self.assertTrue(caller.cancelled())
        self.assertEqual(loop.time(), 1005)
        self.assertEqual(seen, ["tool stopped", "cancelled"])

    @virtual
    async def test_a_cancel_of_the_caller_is_bounded_by_the_grace(self, loop: VirtualLoop) -> None:
        """A stubborn tool holds a cancelled caller no longer than the grace, however often it is cancelled."""
        seen: list[str] = []
        caller = loop.create_task(
            run_within(
                None,
                "tool",
                lambda: stubborn(60),
                grace_ms=500,
                report=lambda outcome: seen.append(f"{outcome.kind} {outcome.running}"),
                report_end=lambda outcome: seen.append(f"end {outcome.kind}"),
            )
        )
        await pause(1)
        for _ in range(4):
            caller.cancel()
            await pause(0.1)
        await until_done(caller)
        self.assertTrue(caller.cancelled())
        self.assertAlmostEqual(loop.time(), 1001.5)
        await until_done(next(iter(abandoned())))
        await asyncio.sleep(0)
        self.assertEqual(seen, ["cancelled True", "end late_value"])

    @virtual
    async def test_a_cancel_in_the_turn_of_the_end_is_not_lost_and_neither_is_the_value(
        self, loop: VirtualLoop
    ) -> None:
        """The caller ends as cancelled, and the outcome still says what the tool returned."""
        seen: list[Outcome[Any]] = []
        gate: asyncio.Future[str] = loop.create_future()

        async def tool() -> str:
            return await gate

        caller = loop.create_task(run_within(Budget(1000, clock=loop.time), "tool", tool, report=seen.append))
        await pause(0.1)
        gate.set_result("job 7")
        await asyncio.sleep(0)  # the tool has finished, its caller has not been told yet
        caller.cancel()
        await until_done(caller)
        self.assertTrue(caller.cancelled())
        self.assertEqual([(o.kind, o.value, o.returned) for o in seen], [("cancelled", "job 7", True)])

    def test_a_cancel_that_nobody_here_asked_for_is_an_outcome(self) -> None:
        """A tool whose own inner task was cancelled does not cancel its caller."""

        async def torn() -> None:
            raise asyncio.CancelledError

        outcome, _, reported = self.run_it(torn)
        self.assertEqual((outcome.kind, reported), ("cancelled", ["cancelled"]))
        with self.assertRaisesRegex(RunCancelled, "^cancelled$"):
            run_virtual(lambda loop: tool_with_budget("tool", {}, Budget(1000, clock=loop.time), torn))

    def test_every_kind_of_outcome_is_reached(self) -> None:
        """The seven kinds are the ones that the tests above saw. Claims: I4-007."""
        ends = ["timed_out_stopped", "timed_out_abandoned", "cancelled", "not_started"]
        self.assertCountEqual(OUTCOMES, ["value", "late_value", "tool_error", *ends])

    def test_bad_limits_are_refused_before_the_tool_is_called(self) -> None:
        """Zero, negative, boolean and missing limits are `bad_input`; the tool never starts."""
        calls: list[int] = []

        async def tool() -> None:
            calls.append(1)

        for options in (
            {"limit_ms": 0}, {"limit_ms": -1}, {"limit_ms": True}, {"grace_ms": 0}, {"grace_ms": None},
            {"minimum_ms": -1}, {"min_reserve_ms": 1.5},
        ):  # fmt: skip
            with self.subTest(options=options), self.assertRaises(BudgetError):
                self.run_it(tool, **options)
        with self.assertRaises(BudgetError):
            run_virtual(lambda loop: run_within("no budget", "tool", tool))  # type: ignore[arg-type]
        self.assertEqual(calls, [])

    @virtual
    async def test_a_group_of_siblings_stops_when_one_fails(self, loop: VirtualLoop) -> None:
        """Children of a batch that fails are cancelled with it, and no further tool starts. Claims: I4-001."""
        seen: list[str] = []

        async def child(name: str, seconds: float, fails: bool) -> None:
            try:
                await pause(seconds)
            except asyncio.CancelledError:
                seen.append(f"{name} cancelled")
                raise
            if fails:
                raise ConnectionResetError
            seen.append(f"{name} done")

        async def batch(budget: Budget) -> None:
            async def one(name: str, seconds: float, fails: bool) -> None:
                outcome = await run_within(budget, name, lambda: child(name, seconds, fails))
                if outcome.error is not None:
                    raise outcome.error

            async with asyncio.TaskGroup() as group:
                group.create_task(one("a", 0.1, True))
                group.create_task(one("b", 5, False))
                group.create_task(one("c", 5, False))
            seen.append("went on")

        with self.assertRaises(ExceptionGroup) as caught:
            await batch(Budget(9000, clock=loop.time))
        self.assertEqual([type(error) for error in caught.exception.exceptions], [ConnectionResetError])
        self.assertAlmostEqual(loop.time(), 1000.1)
        self.assertEqual(sorted(seen), ["b cancelled", "c cancelled"])


class OwnedTasks(unittest.TestCase):
    """The floor below: `companions.basics.tasks.own`."""

    def test_a_limit_of_nothing_is_refused(self) -> None:
        """A timer that is over before it starts would hide a cancel."""

        async def tool() -> None: ...

        for options in ({"limit_s": 0}, {"limit_s": -1.0}, {"limit_s": math.nan}, {"shielded": True}):
            with self.subTest(options=options), self.assertRaises(ValueError):
                run_virtual(lambda loop, options=options: own(tool, grace_s=1, **options))  # type: ignore[misc]
        with self.assertRaises(ValueError):
            run_virtual(lambda loop: own(tool, grace_s=0))

    @virtual
    async def test_of_several_cancels_the_first_is_handed_on(self, loop: VirtualLoop) -> None:
        """While it waits, and while the task has its grace; with a shield and without."""

        async def slow_to_stop() -> None:
            try:
                await pause(9)
            finally:
                await pause(2)

        for shielded, why, took in ((False, "caller", 2.5), (True, "limit", 5.0)):
            began = loop.time()
            task = loop.create_task(own(slow_to_stop, limit_s=3, grace_s=2.5, shielded=shielded))
            for number in range(4):  # at 0.5, 1, 1.5 and 2 seconds
                await pause(0.5)
                task.cancel(f"cancel {number}")
            ending = await task
            assert ending.outer is not None
            self.assertEqual(ending.outer.args, ("cancel 0",))
            self.assertIsInstance(ending.error, asyncio.CancelledError)
            self.assertEqual((ending.why, loop.time() - began, ending.returned), (why, took, False))

    @virtual
    async def test_an_error_in_the_grace_is_the_error_of_the_task(self, loop: VirtualLoop) -> None:
        """It was asked to stop, and what its clean-up raised is kept beside the reason of the stop."""

        async def breaks() -> None:
            try:
                await pause(9)
            finally:
                raise ValueError

        ending = await own(breaks, limit_s=1, grace_s=1)
        self.assertEqual((ending.why, ending.done, ending.returned, ending.value), ("limit", True, False, None))
        self.assertIsInstance(ending.error, ValueError)

    @virtual
    async def test_the_wait_for_an_end_is_as_long_as_it_says(self, loop: VirtualLoop) -> None:
        """A future that is done is not waited for; one that is not, no longer than the seconds, and it is untouched."""
        future: asyncio.Future[None] = loop.create_future()
        self.assertIsNone(await until(future, 2))
        self.assertEqual((loop.time(), future.done()), (1002, False))
        earlier = asyncio.CancelledError("earlier")
        self.assertIs(await until(future, 0, earlier), earlier)
        future.set_result(None)
        self.assertIs(await until(future, 2, earlier), earlier)
        self.assertEqual(loop.time(), 1002)

    @virtual
    async def test_an_ending_claims_nothing_that_nobody_said(self, loop: VirtualLoop) -> None:
        """No value, no error, no cancel of the caller; one that returned is done, and one that failed has no value."""
        self.assertEqual(Ending("limit", False, False), Ending("limit", False, False, None, None, None))
        error = ValueError()

        async def fails() -> None:
            raise error

        ended = await own(lambda: asyncio.sleep(0, 7), grace_s=1)
        self.assertEqual(ended, Ending("itself", True, True, 7, None, None))
        self.assertEqual(await own(fails, grace_s=1), Ending("itself", True, False, None, error, None))

    @virtual
    async def test_a_stop_from_elsewhere_ends_the_task(self, loop: VirtualLoop) -> None:
        """The `stop` future cancels the task as a limit does, and is named as the reason."""
        stop: asyncio.Future[None] = loop.create_future()
        loop.call_later(2, stop.set_result, None)
        ending = await own(lambda: pause(9), grace_s=1, stop=stop)
        self.assertEqual((ending.why, ending.done, ending.returned, loop.time()), ("stop", True, False, 1002))
        idle: asyncio.Future[None] = loop.create_future()
        ending = await own(lambda: pause(9), limit_s=3, grace_s=1, stop=idle)
        self.assertEqual((ending.why, loop.time()), ("limit", 1005))

    @virtual
    async def test_a_shield_keeps_its_time_and_the_cancel_is_raised_afterwards(self, loop: VirtualLoop) -> None:
        """Cancels of the caller do not touch shielded work, and its own limit still does."""
        for work, expected in (
            (lambda: pause(2), ("itself", True, 2.0)),
            (lambda: pause(9), ("limit", False, 3.0)),
        ):
            began = loop.time()
            task = loop.create_task(own(work, limit_s=3, grace_s=1, shielded=True))
            for _ in range(2):
                await pause(0.5)
                task.cancel()
            ending = await task
            self.assertIsInstance(ending.outer, asyncio.CancelledError)
            self.assertEqual((ending.why, ending.returned, loop.time() - began), expected)


class TheEdges(unittest.TestCase):
    """A clock that moves while it is asked, and what cannot be handed to a tool as keywords."""

    def test_a_budget_that_ends_between_the_check_and_the_start_starts_nothing(self) -> None:
        """The check still sees time, and the timer would have none: not started, as if the check had seen it."""
        called: list[int] = []
        looks = iter((0.0, 0.0, 5.0))

        async def tool() -> None:
            called.append(1)

        budget = Budget(1000, clock=lambda: next(looks, 5.0))
        outcome = asyncio.run(run_within(budget, "tool", tool, min_reserve_ms=1))
        self.assertEqual((outcome.kind, called), ("not_started", []))
        assert isinstance(outcome.error, BudgetExhausted)
        self.assertEqual((outcome.error.name, outcome.error.remaining, outcome.error.minimum), ("tool", 0, 1))

    def test_arguments_that_are_no_mapping_of_names_are_refused(self) -> None:
        """The tool is not called, and the refusal is ours and not an error of the call."""
        called: list[object] = []

        async def tool(**arguments: object) -> None:
            called.append(arguments)

        for wrong in (None, 5, "ab", [("a", 1)], {1: 2}, {"a": 1, None: 2}):
            with self.subTest(wrong=wrong), self.assertRaises(BudgetError):
                asyncio.run(tool_with_budget("tool", wrong, Budget.start(1000, clock=ManualClock()), tool))  # type: ignore[arg-type]
        self.assertEqual(called, [])


if __name__ == "__main__":
    unittest.main()
