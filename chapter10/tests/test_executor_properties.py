"""The executor under random schedules, against a small model that knows the rules and nothing of the code.

A schedule is a list of calls with their ways to end, and a list of moves: add a call, let a tool report, let a
tool end, let the loop turn, cancel something, break off. The moves are drawn from a seed, so each schedule can
be repeated. What the tools saw is written to a log by the tools themselves; the rules are checked on that log.
"""

from __future__ import annotations

import asyncio
import random
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from chapter10.companions.tools.executor import NEXT_STATE, StreamingToolExecutor, ToolState
from chapter10.companions.tools.tool_calls import (
    CAUSE_TEXTS,
    SIBLING_ERROR,
    STREAMING_FALLBACK,
    USER_INTERRUPT,
    CallFailure,
    CancelScope,
    Progress,
    ProgressSink,
    ToolCall,
    ToolResult,
)

SCHEDULES: Final = 400
LIMIT: Final = 3
KEEP: Final = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How one call behaves: safe or not, and how it ends."""

    safe: bool
    shell: bool
    ending: str  # value, failure, local, error, timeout, refused
    on_cancel: str = "obey"  # obey, slow, swallow, fail, ignore
    arguments: str = "good"  # good, broken, cut


@dataclass(slots=True)
class Seen:
    """What the tools and the consumer saw."""

    starts: list[str] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    overlaps: list[frozenset[str]] = field(default_factory=list)
    emitted: dict[str, int] = field(default_factory=dict)
    cleanups: dict[str, int] = field(default_factory=dict)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    got: list[Progress | ToolResult] = field(default_factory=list)
    moves: dict[str, list[ToolState]] = field(default_factory=dict)
    started_after_cancel: list[str] = field(default_factory=list)


class Scene:
    """One schedule, played."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.seen = Seen()
        self.plans: dict[str, Plan] = {}
        self.ends: dict[str, asyncio.Event] = {}
        self.sinks: dict[str, ProgressSink] = {}
        self.release = asyncio.Event()  # for the tools that take their time to stop
        self.finale = asyncio.Event()  # for those that ignore their cancel
        self.timers: list[tuple[Callable[[], None], list[bool]]] = []
        self.query = CancelScope()
        self.stopped = False  # nothing may start from here on
        self.left = False  # the consumer was cancelled, which it notices in the next turn of the loop
        self.executor = StreamingToolExecutor(
            self.run,
            is_safe=lambda call, arguments: self.plans[call.call_id].safe,
            query=self.query,
            limit=LIMIT,
            keep_progress=KEEP,
            call_later=self.call_later,
            observe=lambda call_id, state: self.seen.moves.setdefault(call_id, [ToolState.QUEUED]).append(state),
        )

    def call_later(self, seconds: float, action: Callable[[], None]) -> Any:
        cancelled: list[bool] = []

        class Handle:
            def cancel(self) -> None:
                cancelled.append(True)

        self.timers.append((action, cancelled))
        return Handle()

    async def run(self, call: ToolCall, progress: ProgressSink) -> Any:
        call_id, plan, seen = call.call_id, self.plans[call.call_id], self.seen
        task = asyncio.current_task()
        assert task is not None
        seen.tasks.append(task)
        seen.starts.append(call_id)
        if self.stopped or self.executor.siblings.cancelled:
            seen.started_after_cancel.append(call_id)
        seen.running.add(call_id)
        seen.overlaps.append(frozenset(seen.running))
        self.sinks[call_id] = progress
        try:
            return await self.work(call_id, plan)
        finally:
            seen.running.discard(call_id)
            seen.cleanups[call_id] = seen.cleanups.get(call_id, 0) + 1

    async def work(self, call_id: str, plan: Plan) -> Any:
        try:
            await self.ends[call_id].wait()
        except asyncio.CancelledError:
            if plan.on_cancel == "slow":
                await self.release.wait()
            if plan.on_cancel == "ignore":
                await self.finale.wait()
            if plan.on_cancel in ("swallow", "ignore"):
                return "swallowed"
            if plan.on_cancel == "fail":
                raise RuntimeError from None
            raise
        if plan.ending == "value":
            return f"value {call_id}"
        if plan.ending in ("failure", "local"):
            return CallFailure("failed", local=plan.ending == "local")
        raise {"error": ValueError(), "timeout": TimeoutError(), "refused": PermissionError()}[plan.ending]

    def draw_plan(self, stubborn: bool) -> Plan:
        chance = self.chance
        ways = ["obey"] * 4 + ["slow", "swallow", "fail"] + (["ignore"] * 4 if stubborn else [])
        return Plan(
            safe=chance.random() < 0.6,
            shell=chance.random() < 0.3,
            ending=chance.choice(["value"] * 6 + ["failure", "local", "error", "timeout", "refused"]),
            on_cancel=chance.choice(ways),
            arguments=chance.choice(["good"] * 10 + ["broken", "cut"]),
        )

    def add(self, stubborn: bool) -> None:
        call_id = str(len(self.plans))
        plan = self.plans[call_id] = self.draw_plan(stubborn)
        self.ends[call_id] = asyncio.Event()
        text = {"good": "{}", "broken": "{]", "cut": '{"a'}[plan.arguments]
        self.executor.add(ToolCall(call_id, "tool", text, cancels_siblings=plan.shell))

    async def play(self, *, cancels: bool, stubborn: bool = False) -> None:
        """Draw and make the moves, then let everything end."""
        chance = self.chance
        consumer = asyncio.ensure_future(self.consume())
        calls = chance.randint(1, 12)
        await self.turns(1)  # a task that is cancelled before its first step enters no `async with`
        while len(self.plans) < calls and not self.stopped and not self.left:
            await self.move(cancels, stubborn, consumer)
        self.executor.end_input()
        for _ in range(200):
            if consumer.done():
                break
            await self.end_something()
            await self.turns(3)
            if stubborn and chance.random() < 0.1:
                self.fire_timers()
        self.release.set()
        await self.turns(20)
        if stubborn:
            self.fire_timers()
            await self.turns(20)
        assert consumer.done(), "a wake-up was lost"
        self.seen.got += [update.message for update in self.executor.ready()]
        self.finale.set()
        for event in self.ends.values():
            event.set()
        await self.turns(20)

    async def move(self, cancels: bool, stubborn: bool, consumer: asyncio.Future[None]) -> None:
        kind = self.chance.choice(["add"] * 4 + ["report"] * 3 + ["end"] * 3 + ["turn"] * 3 + ["cancel"] * cancels)
        if kind == "add":
            self.add(stubborn)
        elif kind == "report":
            self.report()
        elif kind == "end":
            await self.end_something()
        elif kind == "turn":
            await self.turns(self.chance.randint(1, 6))
        else:
            self.cancel_something(consumer)

    def report(self) -> None:
        running = sorted(self.seen.running & self.sinks.keys())
        if running:
            call_id = self.chance.choice(running)
            for _ in range(self.chance.choice((1, 1, 1, 9))):
                number = self.seen.emitted[call_id] = self.seen.emitted.get(call_id, 0) + 1
                if self.executor.state_of(call_id) is ToolState.EXECUTING:
                    self.sinks[call_id](number)

    async def end_something(self) -> None:
        running = sorted(self.seen.running)
        for call_id in self.chance.sample(running, min(len(running), self.chance.choice((1, 1, 2)))):
            self.ends[call_id].set()  # two in one tick, sometimes
        if self.chance.random() < 0.3:
            self.release.set()
            await self.turns(1)
            self.release.clear()

    def cancel_something(self, consumer: asyncio.Future[None]) -> None:
        what = self.chance.choice(["call", "call", "siblings", "query", "fallback", "consumer", "both"])
        if what == "call" and self.plans:
            self.executor.cancel_call(self.chance.choice(list(self.plans)))
        elif what == "siblings":
            self.executor.siblings.cancel(SIBLING_ERROR)
            self.stopped = True
        elif what == "query":
            self.query.cancel(USER_INTERRUPT)
            self.stopped = True
        elif what == "fallback":
            self.executor.discard()
            self.stopped = True
        elif what == "consumer":
            consumer.cancel()
            self.left = True
        elif what == "both":
            self.executor.siblings.cancel(SIBLING_ERROR)
            self.query.cancel(USER_INTERRUPT)
            self.stopped = True

    def fire_timers(self) -> None:
        for action, cancelled in self.timers:
            if not cancelled:
                action()

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def consume(self) -> None:
        async with self.executor:
            async for update in self.executor.updates():
                self.seen.got.append(update.message)
                if self.chance.random() < 0.3:
                    await asyncio.sleep(0)


class RandomSchedules(unittest.TestCase):
    """The rules hold whatever happens."""

    def play(self, seed: int, **options: bool) -> Scene:
        async def scene() -> Scene:
            escaped: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
            played = Scene(seed)
            await played.play(**options)
            self.assertEqual(escaped, [])
            return played

        return asyncio.run(scene())

    def check_answers(self, scene: Scene) -> None:
        """One answer for each call, in the order of adding, through the three transitions."""
        results = [message for message in scene.seen.got if isinstance(message, ToolResult)]
        self.assertEqual([result.call_id for result in results], list(scene.plans))
        for call_id in scene.plans:
            self.assertEqual(scene.seen.moves[call_id], list(ToolState))
        self.assertEqual(list(NEXT_STATE), list(ToolState)[:3])
        for result in results:
            plan = scene.plans[result.call_id]
            self.assertEqual(result.started, result.call_id in scene.seen.starts)
            if result.code in CAUSE_TEXTS:
                self.assertTrue(result.content.startswith(CAUSE_TEXTS[result.code]))
                fate = "outcome is unknown" if result.started else "not started"
                self.assertIn(fate, result.content)
            elif result.code is None:
                self.assertIn(result.content, (f"value {result.call_id}", "swallowed"))
            elif plan.arguments != "good":
                self.assertEqual((result.code, result.started), ("invalid_arguments", False))
            else:
                codes = {"failure": "tool_failure", "local": "tool_failure", "error": "tool_failure"}
                codes |= {"timeout": "outcome_unknown", "refused": "forbidden"}
                self.assertEqual(result.code, codes[plan.ending])

    def check_schedule(self, scene: Scene) -> None:
        """Starts in the order of adding; an unsafe call alone; at most LIMIT at once; nothing after a stop."""
        starts = [int(call_id) for call_id in scene.seen.starts]
        self.assertEqual(starts, sorted(set(starts)))
        for together in scene.seen.overlaps:
            self.assertLessEqual(len(together), LIMIT)
            if len(together) > 1:
                self.assertTrue(all(scene.plans[call_id].safe for call_id in together), together)
        self.assertEqual(scene.seen.started_after_cancel, [])
        for call_id in scene.seen.starts:
            self.assertEqual(scene.plans[call_id].arguments, "good")

    def check_progress(self, scene: Scene) -> None:
        """In order within a call, before its result, the numbers of kept and dropped ones add up."""
        answered: set[str] = set()
        last: dict[str, Progress] = {}
        counts: dict[str, int] = {}
        for message in scene.seen.got:
            if isinstance(message, ToolResult):
                answered.add(message.call_id)
                continue
            before = last.get(message.call_id)
            self.assertNotIn(message.call_id, answered)
            self.assertGreater(message.number, 0 if before is None else before.number)
            self.assertEqual(message.number, message.data)
            counts[message.call_id] = counts.get(message.call_id, 0) + 1
            self.assertEqual(message.number, counts[message.call_id] + message.dropped)
            last[message.call_id] = message

    def check_no_task(self, scene: Scene) -> None:
        """All tasks have ended and each has cleaned up once."""
        self.assertEqual([task for task in scene.seen.tasks if not task.done()], [])
        self.assertEqual(scene.seen.cleanups, dict.fromkeys(scene.seen.starts, 1))
        statistics = scene.executor.statistics()
        self.assertEqual((statistics.queued, statistics.executing, statistics.pending_progress), (0, 0, 0))

    def check(self, scene: Scene) -> None:
        self.check_answers(scene)
        self.check_schedule(scene)
        self.check_progress(scene)
        self.check_no_task(scene)

    def test_without_cancels_the_model_predicts_every_answer(self) -> None:
        """Which calls run and what they answer follows from the plans alone: a failing shell call ends what is left.

        Claims: C8-006, C8-008, C8-011, C8-012, C8-019, C8-023, C8-030, C8-032, C8-037, C8-078.
        """
        for seed in range(SCHEDULES):
            with self.subTest(seed=seed):
                scene = self.play(seed, cancels=False)
                self.check(scene)
                broken = [
                    call_id
                    for call_id, plan in scene.plans.items()
                    if plan.shell and plan.arguments == "good" and plan.ending in ("failure", "error")
                ]
                codes = {m.call_id: m.code for m in scene.seen.got if isinstance(m, ToolResult)}
                self.assertEqual(
                    scene.executor.has_errored, any(codes[call_id] == "tool_failure" for call_id in broken)
                )
                if not broken:
                    self.assertTrue(set(codes.values()).isdisjoint(CAUSE_TEXTS))
                    good = [call_id for call_id, plan in scene.plans.items() if plan.arguments == "good"]
                    self.assertEqual(scene.seen.starts, good)
                self.assertFalse(scene.executor.cancelled)
                self.assertFalse(scene.query.cancelled)

    def test_with_cancels_of_every_kind_the_rules_hold(self) -> None:
        """One call, the siblings, the query, a fallback, the consumer, two reasons in one tick.

        Claims: C8-025, C8-026, C8-031, C8-032, C8-033, C8-042.
        """
        kinds = set()
        for seed in range(SCHEDULES):
            with self.subTest(seed=seed):
                scene = self.play(10_000 + seed, cancels=True)
                self.check(scene)
                kinds |= {m.code for m in scene.seen.got if isinstance(m, ToolResult)}
                if scene.query.cancelled or (scene.left and scene.executor.siblings.reason == USER_INTERRUPT):
                    self.assertTrue(scene.executor.cancelled)
        self.assertLessEqual({None, SIBLING_ERROR, USER_INTERRUPT, STREAMING_FALLBACK, "call_cancelled"}, kinds)

    def test_with_tools_that_ignore_their_cancel_the_run_still_ends(self) -> None:
        """They are abandoned when the timer fires; their late values are dropped; the other rules hold.

        Claims: C8-032.
        """
        abandoned = 0
        for seed in range(SCHEDULES // 2):
            with self.subTest(seed=seed):
                scene = self.play(20_000 + seed, cancels=True, stubborn=True)
                self.check(scene)
                abandoned += len(scene.executor.abandoned)
                for message in scene.seen.got:
                    if isinstance(message, ToolResult) and message.call_id in scene.executor.abandoned:
                        self.assertIn(message.code, CAUSE_TEXTS)
        self.assertGreater(abandoned, 10)

    def test_a_schedule_is_the_same_every_time(self) -> None:
        """One seed gives one history, so that a failure can be repeated."""
        first, second = (self.play(4, cancels=True) for _ in range(2))
        self.assertEqual(first.seen.moves, second.seen.moves)
        self.assertEqual(first.seen.got, second.seen.got)


if __name__ == "__main__":
    unittest.main()
