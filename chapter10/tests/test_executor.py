"""The streaming executor: who runs when, what is handed out when, and one answer for every call."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import itertools
import threading
import unittest
import warnings
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any
from unittest import mock

from chapter10.companions.tools import executor as executor_module
from chapter10.companions.tools.executor import (
    GRACE_SECONDS,
    KEEP_PROGRESS,
    MAX_CALLS,
    MAX_PARALLEL,
    MAX_PENDING_PROGRESS,
    MAX_UNSHAPED_CHARS,
    NEXT_STATE,
    StreamingToolExecutor,
    ToolState,
    Update,
    can_execute,
)
from chapter10.companions.tools.tool_calls import (
    CALL_CANCELLED,
    CAUSE_TEXTS,
    MAX_REFUSAL,
    MAX_TEXT,
    PIPELINE_STEPS,
    SIBLING_ERROR,
    STREAMING_FALLBACK,
    USER_INTERRUPT,
    CallFailure,
    CancelScope,
    ExecutorError,
    Progress,
    ProgressSink,
    ToolCall,
    ToolPipeline,
    ToolResult,
    cancelled_answer,
    invalid_arguments,
    parse_arguments,
)
from chapter10.companions.tools.tool_spec import ANSWER_LOST, ToolRefused
from chapter10.jobs import STATES


async def settle(ticks: int = 10) -> None:
    """Let everything run that can run."""
    for _ in range(ticks):
        await asyncio.sleep(0)


class Timers:
    """The timers of a grace, run out by hand."""

    class Handle:
        def __init__(self, action: Callable[[], None]) -> None:
            self.action = action
            self.cancelled = False

        def cancel(self) -> None:
            self.cancelled = True

    def __init__(self) -> None:
        self.set: list[tuple[float, Timers.Handle]] = []

    def __call__(self, seconds: float, action: Callable[[], None]) -> Timers.Handle:
        handle = Timers.Handle(action)
        self.set.append((seconds, handle))
        return handle

    def run_out(self) -> None:
        for _, handle in self.set:
            if not handle.cancelled:
                handle.action()


class Stage:
    """Tools that run until the test says how they end, and a log of what happened."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.started: list[str] = []
        self.sinks: dict[str, ProgressSink] = {}
        self.ends: dict[str, asyncio.Future[Any]] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.reasons: dict[str, Any] = {}

    async def run(self, call: ToolCall, progress: ProgressSink) -> Any:
        name = call.call_id
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        self.started.append(name)
        self.log.append(f"start {name}")
        self.sinks[name] = progress
        self.ends[name] = asyncio.get_running_loop().create_future()
        try:
            return await self.ends[name]
        except asyncio.CancelledError as error:
            self.reasons[name] = (progress.reason, error.args)
            raise
        finally:
            self.log.append(f"end {name}")

    async def end(self, name: str, value: Any = None) -> None:
        self.ends[name].set_result(value)
        await settle()

    async def fail(self, name: str, error: BaseException) -> None:
        self.ends[name].set_exception(error)
        await settle()

    def live(self) -> list[asyncio.Task[Any]]:
        return [task for task in self.tasks if not task.done()]


def safe_by_argument(call: ToolCall, arguments: dict[str, Any]) -> object:
    """The test of the scenes: arguments say whether the call is safe, as a shell command would."""
    return arguments["safe"]


def safe(call_id: str, name: str = "Read", **options: Any) -> ToolCall:
    return ToolCall(call_id, name, {"safe": True}, read_only=True, **options)


def unsafe(call_id: str, name: str = "Edit", **options: Any) -> ToolCall:
    return ToolCall(call_id, name, {"safe": False}, **options)


def bash(call_id: str, *, is_safe: bool = False, **options: Any) -> ToolCall:
    return ToolCall(call_id, "Bash", {"safe": is_safe}, cancels_siblings=True, **options)


def ids(updates: list[Update]) -> list[str]:
    return [update.message.call_id for update in updates if isinstance(update.message, ToolResult)]


class ExecutorTestCase(unittest.IsolatedAsyncioTestCase):
    """A stage, timers run out by hand, and the check that no tool is left running."""

    def setUp(self) -> None:
        self.stage = Stage()
        self.timers = Timers()
        self.leaves_tasks = False
        self.escaped: list[dict[str, Any]] = []  # what a callback or a forgotten task raised

    async def asyncSetUp(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(False)  # it would print how slow the large scenes are
        loop.set_exception_handler(lambda _, context: self.escaped.append(context))

    def tearDown(self) -> None:
        self.assertEqual(self.escaped, [])
        if not self.leaves_tasks:
            self.assertEqual(self.stage.live(), [])

    def executor(self, *calls: ToolCall, **options: Any) -> StreamingToolExecutor:
        """An executor that was given these calls, which run on the stage if no other `run` is given."""
        options = {"is_safe": safe_by_argument, "call_later": self.timers, **options}
        executor = StreamingToolExecutor(options.pop("run", self.stage.run), **options)
        for call in calls:
            executor.add(call)
        return executor

    async def running(self, *calls: ToolCall, **options: Any) -> StreamingToolExecutor:
        """The same, after everything has run that can run."""
        executor = self.executor(*calls, **options)
        await settle()
        return executor

    def states(self, executor: StreamingToolExecutor, names: str) -> list[str]:
        return [executor.state_of(name).value for name in names.split()]


class Parts(unittest.TestCase):
    """The words and the rule, without a loop."""

    def test_the_states_are_four_with_three_transitions(self) -> None:
        """queued, executing, completed, yielded in a line; another enum than the words of a job. Claims: C8-004."""
        self.assertEqual([state.value for state in ToolState], ["queued", "executing", "completed", "yielded"])
        self.assertEqual(NEXT_STATE, dict(itertools.pairwise(ToolState)))
        self.assertNotIn(ToolState.QUEUED, STATES)

    def test_the_rule_is_a_truth_table(self) -> None:
        """Alone always, else safe among safe ones only, and never past the limit of three. Claims: C8-007, C8-009."""
        for running_safe, running_unsafe, safe_may, unsafe_may in (
            (0, 0, True, True),
            (2, 0, True, False),
            (3, 0, False, False),
            (0, 1, False, False),
            (1, 1, False, False),
        ):
            with self.subTest(running_safe=running_safe, running_unsafe=running_unsafe):
                self.assertIs(can_execute(True, running_safe, running_unsafe, 3), safe_may)
                self.assertIs(can_execute(False, running_safe, running_unsafe, 3), unsafe_may)

    def test_the_published_limits_are_these(self) -> None:
        """What a reader is told of sizes and times, and what an executor takes without being told."""
        self.assertEqual(
            (MAX_CALLS, MAX_PARALLEL, KEEP_PROGRESS, MAX_PENDING_PROGRESS, GRACE_SECONDS, MAX_TEXT),
            (10_000, 1_000, 100, 10_000, 5.0, 200),
        )
        options = inspect.signature(StreamingToolExecutor).parameters
        self.assertEqual(
            [options[name].default for name in ("limit", "keep_progress", "grace_seconds")],
            [10, KEEP_PROGRESS, GRACE_SECONDS],
        )

    def test_the_three_causes_have_three_texts(self) -> None:
        """What the model reads tells a sibling's error, an interrupt and a fallback apart. Claims: C8-033."""
        texts = {CAUSE_TEXTS[reason] for reason in (SIBLING_ERROR, USER_INTERRUPT, STREAMING_FALLBACK)}
        self.assertEqual(len(texts), 3)
        self.assertEqual(SIBLING_ERROR, "sibling_error")
        self.assertEqual(len(set(CAUSE_TEXTS.values())), len(CAUSE_TEXTS))

    def test_the_executor_neither_polls_nor_nests_task_groups(self) -> None:
        """The source has no sleep, no `wait_for` and no task group. Claims: C8-040."""
        used = {
            node.attr
            for node in ast.walk(ast.parse(inspect.getsource(executor_module)))
            if isinstance(node, ast.Attribute)
        }
        self.assertTrue(used.isdisjoint({"sleep", "wait_for", "TaskGroup", "gather", "shield"}))

    def test_scheduling_progress_and_budget_are_three_parts(self) -> None:
        """The executor knows nothing of the result budget: they meet through a parameter. Claims: C8-002."""
        tree = ast.parse(inspect.getsource(executor_module))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        self.assertNotIn("chapter10.companions.tools.result_budget", imported)
        self.assertIn("shape_result", inspect.signature(StreamingToolExecutor).parameters)

    def test_what_is_left_out_of_a_record_is_the_careful_choice(self) -> None:
        """A call is a plain write, a result a success that ran; two results are equal whatever caused them."""
        call = ToolCall("1", "t")
        self.assertEqual(
            (call.arguments, call.cut_off, call.cancels_siblings, call.read_only), ("{}", False, False, False)
        )
        result = ToolResult("1", "t", "text")
        self.assertEqual((result.is_error, result.code, result.started, result.cause), (False, None, True, None))
        self.assertEqual(result, ToolResult("1", "t", "text", cause=KeyError("secret")))
        self.assertNotIn("secret", repr(ToolResult("1", "t", "text", cause=KeyError("secret"))))
        self.assertEqual((CallFailure("no").code, CallFailure("no").local), ("tool_failure", False))
        self.assertEqual(Progress("1", 1, None).dropped, 0)

    def test_an_answer_that_is_made_here_ends_no_sibling(self) -> None:
        """A cancel and arguments that are none concern their own call."""
        for started in (False, True):
            self.assertTrue(cancelled_answer(ToolCall("1", "t"), CALL_CANCELLED, started).local)
        for cut_off in (False, True):
            self.assertTrue(invalid_arguments(cut_off).local)

    def test_only_the_first_cancel_of_a_scope_counts(self) -> None:
        """It says so, and what was to be told is told once."""
        told: list[str] = []
        scope = CancelScope(on_cancel=told.append)

        self.assertEqual((scope.cancel(USER_INTERRUPT), scope.cancel(SIBLING_ERROR)), (True, False))
        self.assertEqual((scope.reason, told), (USER_INTERRUPT, [USER_INTERRUPT]))


class Arguments(unittest.TestCase):
    """Strict JSON or nothing."""

    def test_an_object_is_parsed_into_a_fresh_dict(self) -> None:
        """A dict that was given is copied at every depth."""
        given = {"a": {"b": [1]}}
        parsed = parse_arguments(ToolCall("1", "t", given))
        given["a"]["b"].append(2)
        self.assertEqual(parsed, {"a": {"b": [1]}})
        self.assertEqual(parse_arguments(ToolCall("1", "t", '{"a": 3.5}')), {"a": 3.5})

    def test_what_is_not_a_strict_object_is_refused(self) -> None:
        """Duplicate keys, NaN, surrogates, other types, wrong JSON, too much depth. Claims: C8-021."""
        refused: list[Any] = [
            '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": "\\ud800"}', "[1]", "3", "{'a': 1}", '{"a": 1} x',
            "[" * 100_000 + "]" * 100_000, '{"a": ' + "9" * 5000 + "}", '{"a": "' + "x" * 1_000_000 + '"}',
            None, b"{}", {"a": float("nan")}, {1: 2},
        ]  # fmt: skip
        for arguments in refused:
            with self.subTest(arguments=repr(arguments)[:40]), self.assertRaises(ExecutorError) as caught:
                parse_arguments(ToolCall("1", "t", arguments))
            self.assertEqual(str(caught.exception), "invalid_arguments")

    def test_a_text_that_ends_too_early_is_called_cut_off(self) -> None:
        """Every prefix of an object is cut off and nothing else; the empty one is how providers write no arguments."""
        text = '{"path": "a\\n.ts", "lines": [1, 22, null], "deep": {"x": true}}'
        self.assertEqual(parse_arguments(ToolCall("1", "t", "")), {})
        for end in range(1, len(text)):
            with self.subTest(end=end), self.assertRaises(ExecutorError) as caught:
                parse_arguments(ToolCall("1", "t", text[:end]))
            self.assertEqual(caught.exception.reason, "cut off")
        with self.assertRaises(ExecutorError) as caught:
            parse_arguments(ToolCall("1", "t", '{"path" "a.ts"}'))
        self.assertEqual(caught.exception.reason, "syntax")


class Scheduling(ExecutorTestCase):
    """Safe ones together, unsafe ones alone, in the order of adding."""

    async def test_the_five_tool_walk_through(self) -> None:
        """[Read a, Read b, Bash npm test, Edit c, Read d]: {a, b}, then Bash, then Edit, then d.

        Claims: C8-001, C8-008, C8-010, C8-012, C8-013, C8-014, C8-015, C8-016, C8-017, C8-018, C8-022.
        """

        def read_only_command(call: ToolCall, arguments: dict[str, Any]) -> bool:
            return call.name == "Read" or arguments.get("command", "").startswith("ls")

        executor = self.executor(
            ToolCall("a", "Read", {"path": "a.ts"}), ToolCall("b", "Read", {"path": "b.ts"}), is_safe=read_only_command
        )
        self.assertEqual(executor.executing, ("a", "b"))
        executor.add(ToolCall("bash", "Bash", {"command": "npm test"}, cancels_siblings=True))
        executor.add(ToolCall("c", "Edit", {"path": "c.ts"}))
        executor.add(ToolCall("d", "Read", {"path": "d.ts"}))
        await settle()
        self.assertEqual(
            [executor.is_safe(name) for name in ("a", "b", "bash", "c", "d")], [True, True, False, False, True]
        )
        self.assertEqual(self.states(executor, "a b bash c d"), ["executing"] * 2 + ["queued"] * 3)
        await self.stage.end("a", "text a")
        self.assertEqual(executor.executing, ("b",))
        self.assertEqual(self.states(executor, "bash c d"), ["queued"] * 3)
        await self.stage.end("b", "text b")
        for name, rest in (("bash", 2), ("c", 1), ("d", 0)):
            self.assertEqual(executor.executing, (name,))
            self.assertEqual(executor.statistics().queued, rest)
            await self.stage.end(name, f"text {name}")
        self.assertEqual([result.call_id for result in await executor.results()], ["a", "b", "bash", "c", "d"])
        self.assertEqual(
            self.stage.log,
            ["start a", "start b", "end a", "end b", "start bash", "end bash", "start c", "end c", "start d", "end d"],
        )

    async def test_a_call_starts_before_the_model_has_written_the_next(self) -> None:
        """The first call runs, and ends, while later ones are unknown. Claims: C8-075."""
        async with self.executor() as executor:
            executor.add(safe("a"))
            await settle()
            await self.stage.end("a", "A")
            self.assertEqual(ids(executor.ready()), ["a"])
            executor.add(safe("b"))
            await settle()
            self.assertEqual(self.stage.started, ["a", "b"])
            await self.stage.end("b", "B")
            self.assertEqual([result.content for result in await executor.results()], ["B"])

    async def test_every_state_is_seen_at_its_moment(self) -> None:
        """queued while blocked, executing while it runs, completed when it ended, yielded when handed out.

        Claims: C8-005.
        """
        seen: list[tuple[str, str]] = []
        executor = await self.running(
            unsafe("a"), unsafe("b"), observe=lambda call_id, state: seen.append((call_id, state.value))
        )
        self.assertEqual(self.states(executor, "a b"), ["executing", "queued"])
        await self.stage.end("a")
        self.assertEqual(self.states(executor, "a b"), ["completed", "executing"])
        executor.ready()
        self.assertEqual(self.states(executor, "a b"), ["yielded", "executing"])
        await self.stage.end("b")
        executor.ready()
        self.assertEqual(
            seen,
            [
                ("a", "executing"),
                ("a", "completed"),
                ("b", "executing"),
                ("a", "yielded"),
                ("b", "completed"),
                ("b", "yielded"),
            ],
        )

    async def test_an_observer_that_raises_disturbs_nobody(self) -> None:
        """The schedule goes on when a log is broken."""
        executor = await self.running(safe("a"), observe=mock.Mock(side_effect=RuntimeError))
        await self.stage.end("a", 1)
        self.assertEqual([result.content for result in await executor.results()], [1])

    async def test_an_unsafe_call_waits_for_safe_ones_and_safe_ones_for_it(self) -> None:
        """One side's safety is not enough. Claims: C8-003, C8-009."""
        executor = await self.running(safe("a"), unsafe("b"), safe("c"), safe("d"))
        self.assertEqual(executor.executing, ("a",))
        await self.stage.end("a")
        self.assertEqual(executor.executing, ("b",))
        await self.stage.end("b")
        self.assertEqual(executor.executing, ("c", "d"))
        await self.stage.end("c")
        await self.stage.end("d")
        self.assertEqual(ids(executor.ready()), ["a", "b", "c", "d"])

    async def test_no_more_safe_calls_than_the_limit_run_at_once(self) -> None:
        """The fourth of four waits for a place. Claims: C8-007."""
        executor = await self.running(*map(safe, "abcd"), limit=3)
        self.assertEqual(executor.executing, ("a", "b", "c"))
        await self.stage.end("b")
        self.assertEqual(executor.executing, ("a", "c", "d"))
        for name in "acd":
            await self.stage.end(name)
        self.assertEqual(ids(executor.ready()), ["a", "b", "c", "d"])

    async def test_safety_is_decided_once_while_adding(self) -> None:
        """The test runs in `add`, before any execution, and never again; it gets the parsed arguments.

        Claims: C8-020, C8-022.
        """
        asked: list[Any] = []

        def is_safe(call: ToolCall, arguments: Any) -> bool:
            asked.append((call.call_id, arguments, list(self.stage.started)))
            return False

        executor = self.executor(
            ToolCall("a", "Read", '{"path": "x"}'), ToolCall("b", "Read", '{"path": "y"}'), is_safe=is_safe
        )
        self.assertEqual(asked, [("a", {"path": "x"}, []), ("b", {"path": "y"}, [])])
        await settle()
        await self.stage.end("a")
        await self.stage.end("b")
        self.assertEqual(len(asked), 2)
        executor.ready()

    async def test_what_cannot_be_decided_is_unsafe(self) -> None:
        """A test that raises or would be awaited, arguments that do not parse, no test: unsafe; a true value is safe.

        Claims: C8-021.
        """

        def is_safe(call: ToolCall, arguments: Any) -> object:
            if call.call_id == "raises":
                raise RuntimeError
            return {"one": 1, "zero": 0, "none": None, "text": "yes"}[call.call_id]

        executor = self.executor(is_safe=is_safe)
        for name, expected in (("one", True), ("text", True), ("zero", False), ("none", False), ("raises", False)):
            executor.add(ToolCall(name, "t"))
            self.assertIs(executor.is_safe(name), expected, name)
        executor.add(ToolCall("broken", "t", "{"))
        self.assertIs(executor.is_safe("broken"), False)
        await executor.aclose()

        async def asks(call: ToolCall, arguments: Any) -> bool:
            return True

        waits = self.executor(is_safe=asks)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            waits.add(ToolCall("c", "t"))
            gc.collect()
        self.assertEqual(caught, [])  # the coroutine is closed, not forgotten
        self.assertIs(waits.is_safe("c"), False)
        await waits.aclose()
        bare = StreamingToolExecutor(self.stage.run)
        bare.add(ToolCall("a", "t"))
        self.assertIs(bare.is_safe("a"), False)
        await bare.aclose()

    async def test_parallel_edits_lose_no_update(self) -> None:
        """read, edit, edit, read on one counter: each edit reads and writes across a pause, none is lost.

        Claims: C8-008, C8-011, C8-019.
        """
        value = 0

        async def run(call: ToolCall, progress: ProgressSink) -> int:
            nonlocal value
            seen = value
            await settle(3)
            if call.name == "Edit":
                value = seen + 1
            return value

        executor = self.executor(safe("1"), unsafe("2"), unsafe("3"), safe("4"), run=run)
        self.assertEqual([result.content for result in await executor.results()], [0, 1, 2, 2])

    async def test_calls_run_as_they_were_written(self) -> None:
        """[Edit, Read] is no [Read, Edit], and two equal calls are two: calls are known by id. Claims: C8-085."""
        for calls in ((unsafe("1"), safe("2")), (safe("1", name="search"), safe("2", name="search"))):
            self.stage = Stage()
            executor = await self.running(*calls)
            await self.stage.end("1", "x")
            await self.stage.end("2", "x")
            self.assertEqual(self.stage.started, ["1", "2"])
            self.assertEqual(ids(executor.ready()), ["1", "2"])

    async def test_cut_off_arguments_are_never_executed(self) -> None:
        """Neither a text that ends inside a string nor one that parses while the answer hit its limit."""
        executor = self.executor(
            ToolCall("half", "Write", '{"text": "abc'),
            ToolCall("whole", "Write", '{"safe": true}', cut_off=True),
            ToolCall("wrong", "Write", "{]"),
            ToolCall("both", "Write", "{]", cut_off=True),
        )
        self.assertEqual([executor.is_safe(name) for name in ("half", "whole", "wrong", "both")], [False] * 4)
        results = await executor.results()
        self.assertEqual(self.stage.started, [])
        self.assertEqual([result.code for result in results], ["invalid_arguments"] * 4)
        self.assertEqual([result.started for result in results], [False] * 4)
        self.assertEqual(["cut off" in result.content for result in results], [True, True, False, True])

    async def test_unparsed_calls_wait_for_their_turn(self) -> None:
        """A call without arguments is unsafe and keeps its place in the order. Claims: C8-021."""
        executor = await self.running(safe("a"), ToolCall("b", "Read", "{"), safe("c"))
        self.assertEqual(self.states(executor, "a b c"), ["executing", "queued", "queued"])
        await self.stage.end("a")
        self.assertEqual(self.states(executor, "a b c"), ["completed", "completed", "executing"])
        await self.stage.end("c")
        self.assertEqual(ids(executor.ready()), ["a", "b", "c"])

    async def test_the_tool_gets_parsed_arguments_of_its_own(self) -> None:
        """What a tool does to its arguments touches no dict of the caller."""
        given = {"safe": True, "list": [1]}
        got: list[ToolCall] = []

        async def run(call: ToolCall, progress: ProgressSink) -> int:
            got.append(call)
            call.arguments["list"].append(2)
            return len(call.arguments["list"])

        executor = self.executor(
            ToolCall("a", "t", given),
            ToolCall("b", "t", given, cancels_siblings=True, read_only=True, description="d"),
            run=run,
        )
        self.assertEqual([result.content for result in await executor.results()], [2, 2])
        self.assertEqual(given["list"], [1])
        parsed = {"safe": True, "list": [1, 2]}
        self.assertEqual(got, [ToolCall("a", "t", parsed), ToolCall("b", "t", parsed, False, True, True, "d")])

    async def test_with_eager_tasks_the_order_is_the_same(self) -> None:
        """A loop that runs a new task at once (Python 3.12) changes nothing, even if the tool ends at once."""
        factory = getattr(asyncio, "eager_task_factory", None)
        if factory is None:
            self.skipTest("this Python has no eager tasks")
        query = CancelScope()

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            progress(call.call_id)
            if call.call_id == "c":
                query.cancel(USER_INTERRUPT)
                await asyncio.sleep(0)
            return call.call_id

        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        self.addCleanup(loop.set_task_factory, None)
        executor = self.executor(safe("a"), unsafe("b"), safe("c"), unsafe("d"), run=run, query=query)
        results = await executor.results()
        self.assertEqual([result.call_id for result in results], ["a", "b", "c", "d"])
        self.assertEqual([result.code for result in results], [None, None, USER_INTERRUPT, USER_INTERRUPT])
        self.assertEqual([result.started for result in results], [True, True, True, False])


class Door(ExecutorTestCase):
    """Bad input is refused and changes nothing."""

    async def test_a_bad_call_is_refused(self) -> None:
        """Ids, names and flags of wrong types, empty, too long, with NUL or a lone surrogate."""
        executor = self.executor()
        odd: Any = ToolCall
        bad: list[Any] = [
            "call", odd("", "t"), odd("x" * 201, "t"), odd("a\0", "t"), odd("\ud800", "t"), odd("\udfff", "t"),
            odd("\u4e2d\0", "t"), odd("a", "t" * 201), odd("a", 1), odd(1, "t"), odd("a", ""),
            odd("a", "t", description="d" * 201), odd("a", "t", cut_off=1), odd("a", "t", cancels_siblings=None),
            odd("a", "t", read_only="yes"),
        ]  # fmt: skip
        for call in bad:
            with self.subTest(call=repr(call)[:50]), self.assertRaisesRegex(ExecutorError, "^bad_input$"):
                executor.add(call)
        self.assertEqual(executor.statistics().queued, 0)
        longest = ToolCall("\u4e2d" * 200, "t" * 200, description="\ue000" * 200)
        executor.add(longest)
        await settle()
        await self.stage.end(longest.call_id, "done")
        self.assertEqual([result.call_id for result in await executor.results()], [longest.call_id])

    async def test_bad_options_are_refused(self) -> None:
        """A limit or a grace that is no number in range, a `run` that is nothing to call."""
        for options in (
            {"limit": 0}, {"limit": True}, {"limit": 1001}, {"limit": 2.0}, {"keep_progress": 0}, {"grace_seconds": 0},
            {"grace_seconds": float("inf")}, {"grace_seconds": float("nan")}, {"grace_seconds": "5"},
            {"grace_seconds": 2.0**31 + 1}, {"keep_progress": MAX_PENDING_PROGRESS + 1}, {"run": None}, {"parse": 3},
        ):  # fmt: skip
            with self.subTest(options=options), self.assertRaises(ExecutorError):
                self.executor(**options)
        for fine in (
            {"limit": 1, "keep_progress": 1, "grace_seconds": 0.001},
            {"limit": MAX_PARALLEL, "keep_progress": MAX_PENDING_PROGRESS, "grace_seconds": 2**31},
        ):
            self.assertEqual(self.executor(**fine).executing, ())

    async def test_a_duplicate_id_is_refused_and_the_first_goes_on(self) -> None:
        """One id has one answer, also when the first is yielded already."""
        executor = await self.running(safe("a"))
        with self.assertRaisesRegex(ExecutorError, "^duplicate_call$"):
            executor.add(safe("a"))
        await self.stage.end("a", "A")
        self.assertEqual(ids(executor.ready()), ["a"])
        with self.assertRaises(ExecutorError):
            executor.add(safe("a"))
        self.assertEqual(self.stage.started, ["a"])

    async def test_after_the_end_of_input_nothing_is_accepted(self) -> None:
        """`executor_closed`, and an unknown id is `unknown_call`."""
        for closes in (StreamingToolExecutor.end_input, StreamingToolExecutor.discard, StreamingToolExecutor.aclose):
            executor = self.executor()
            waits = closes(executor)
            if waits is not None:
                await waits
            with self.assertRaisesRegex(ExecutorError, "^executor_closed$"):
                executor.add(safe("a"))
        unknown: list[Any] = ["a", None, []]
        for name in unknown:
            with self.assertRaisesRegex(ExecutorError, "^unknown_call$"):
                executor.state_of(name)

    async def test_a_reason_must_be_known(self) -> None:
        """A scope does not take a reason for which there is no text."""
        executor = self.executor(safe("a"))
        unknown: list[Any] = ["because", "", None, []]
        for reason in unknown:
            with self.subTest(reason=reason):
                with self.assertRaises(ExecutorError):
                    executor.query.cancel(reason)
                with self.assertRaises(ExecutorError):
                    executor.cancel_call("a", reason)
        self.assertFalse(executor.query.cancelled)
        await settle()
        await self.stage.end("a")
        executor.ready()
        with self.assertRaises(ExecutorError):  # a wrong reason is wrong for a call that is answered, too
            executor.cancel_call("a", "because")
        self.assertFalse(executor.cancel_call("a"))

    async def test_a_call_that_is_being_answered_cannot_be_cancelled(self) -> None:
        """Whoever hears of its state in that moment is told so."""
        heard: list[tuple[str, bool]] = []

        def observe(call_id: str, state: ToolState) -> None:
            heard.append((state.value, executor.cancel_call(call_id)))

        executor = self.executor(observe=observe)
        executor.add(ToolCall("a", "t", "no object"))
        await executor.results()
        self.assertEqual(heard, [("executing", False), ("completed", False), ("yielded", False)])

    async def test_a_second_consumer_is_refused(self) -> None:
        """Two readers of one executor would share the results at random."""
        executor = self.executor(safe("a"))
        first = asyncio.ensure_future(executor.results())
        await settle()
        with self.assertRaisesRegex(ExecutorError, "^already_consumed$"):
            await executor.updates().__anext__()
        await self.stage.end("a", "A")
        self.assertEqual([result.content for result in await first], ["A"])


class Handing(ExecutorTestCase):
    """Results in order, progress at once."""

    async def test_a_result_waits_for_the_results_before_it(self) -> None:
        """B ends before A: B stays completed until A is handed out. Claims: C8-006, C8-078."""
        executor = await self.running(safe("a"), safe("b"))
        self.stage.sinks["b"]("half")
        await self.stage.end("b", "B")
        first = executor.ready()
        self.assertEqual([update.message for update in first], [Progress("b", 1, "half")])
        self.assertEqual(self.states(executor, "a b"), ["executing", "completed"])
        await self.stage.end("a", "A")
        self.assertEqual(ids(executor.ready()), ["a", "b"])
        self.assertEqual(self.states(executor, "a b"), ["yielded", "yielded"])

    async def test_the_last_call_returns_as_many_results_as_calls(self) -> None:
        """`results` ends the input and gives one result for each call, progress left out.

        Claims: C8-001, C8-036, C8-079.
        """

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            progress("working")
            return call.call_id.upper()

        executor = self.executor(*map(safe, "abcde"), run=run)
        self.assertEqual([result.content for result in await executor.results()], list("ABCDE"))
        self.assertEqual(await executor.results(), [])

    async def test_without_calls_nothing_is_waited_for(self) -> None:
        """No call and the end of input: the loop over updates ends at once. Claims: C8-039."""
        executor = self.executor()
        executor.end_input()
        self.assertEqual([update async for update in executor.updates()], [])

    async def test_progress_wakes_the_consumer_before_any_tool_ends(self) -> None:
        """A waiting consumer gets each event on its own, unchanged, as message and context.

        Claims: C8-034, C8-035, C8-036, C8-038, C8-039, C8-041.
        """
        executor = self.executor(unsafe("compile"), context={"turn": 3})
        updates = executor.updates()
        data = {"stdout": "1/9", "stderr": ""}
        waiting = asyncio.ensure_future(updates.__anext__())
        await settle()
        self.assertFalse(waiting.done())
        self.stage.sinks["compile"](data)
        await settle()
        update = waiting.result()
        self.assertEqual(update.message, Progress("compile", 1, data))
        self.assertIs(update.message.data, data)  # type: ignore[union-attr]
        self.assertEqual(update.new_context, {"turn": 3})
        self.assertEqual(executor.state_of("compile"), ToolState.EXECUTING)
        executor.end_input()
        waiting = asyncio.ensure_future(updates.__anext__())
        await self.stage.end("compile", "done")
        self.assertIsInstance(waiting.result().message, ToolResult)
        await updates.aclose()

    async def test_progress_ignores_the_order_of_calls(self) -> None:
        """The third call reports while the first has not ended; the order within a call is kept. Claims: C8-037."""
        executor = await self.running(*map(safe, "abc"))
        for number in range(3):
            self.stage.sinks["c"](number)
        self.stage.sinks["b"]("b")
        events = [update.message for update in executor.ready()]
        self.assertEqual([e.data for e in events if isinstance(e, Progress) and e.call_id == "c"], [0, 1, 2])
        self.assertEqual(len(events), 4)
        for name in "abc":
            await self.stage.end(name)
        executor.ready()

    async def test_the_consumer_is_woken_once_for_each_event(self) -> None:
        """Three events and an end, each waited for: four wake-ups, and none while nothing happens. Claims: C8-040."""
        executor = self.executor(safe("a"))
        executor.end_input()
        consumer = asyncio.ensure_future(executor.results())
        await settle()
        for number in range(3):
            before = executor.statistics().wake_ups
            await settle(50)
            self.assertEqual(executor.statistics().wake_ups, before)
            self.stage.sinks["a"](number)
            await settle()
        await self.stage.end("a")
        await consumer
        self.assertEqual(executor.statistics().wake_ups, 4)

    async def test_progress_between_the_look_and_the_wait_is_not_lost(self) -> None:
        """An event emitted while the consumer handles another is delivered without a further event. Claims: C8-042."""
        executor = await self.running(safe("a"))
        self.stage.sinks["a"](1)
        seen = []
        async with aclosing(executor.updates()) as updates:
            async for update in updates:
                assert isinstance(update.message, Progress)
                seen.append(update.message.data)
                if len(seen) == 1:
                    self.stage.sinks["a"](2)
                else:
                    break
        self.assertEqual(seen, [1, 2])
        executor.ready()

    async def test_ten_thousand_events_without_a_consumer_wait_for_nobody(self) -> None:
        """The tool ends; the newest hundred events are kept, the rest is counted, the result arrives."""

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            for number in range(10_000):
                progress(number)
            return "done"

        executor = await self.running(safe("a"), run=run)
        self.assertEqual(executor.state_of("a"), ToolState.COMPLETED)
        statistics = executor.statistics()
        self.assertEqual((statistics.pending_progress, statistics.dropped_progress), (100, 9_900))
        updates = [update.message for update in executor.ready()]
        self.assertEqual(updates[0], Progress("a", 9_901, 9_900, dropped=9_900))
        self.assertEqual([u.data for u in updates[:-1] if isinstance(u, Progress)], list(range(9_900, 10_000)))
        self.assertEqual(updates[-1].content, "done")  # type: ignore[union-attr]

    async def test_all_calls_together_keep_a_bounded_number_of_events(self) -> None:
        """Two hundred calls of a hundred events each: the oldest are dropped, the sum stays in its bound."""

        async def run(call: ToolCall, progress: ProgressSink) -> None:
            for number in range(100):
                progress(number)

        executor = await self.running(*(safe(str(number)) for number in range(200)), run=run, limit=200)
        statistics = executor.statistics()
        self.assertEqual(statistics.pending_progress, MAX_PENDING_PROGRESS)
        self.assertEqual(statistics.dropped_progress, 20_000 - MAX_PENDING_PROGRESS)
        updates = executor.ready()
        self.assertEqual(len(updates), MAX_PENDING_PROGRESS + 200)
        self.assertEqual(executor.statistics().pending_progress, 0)

    async def test_a_chatty_tool_does_not_hold_back_a_result(self) -> None:
        """A tool that reports at every step of the consumer still lets the finished result through."""
        executor = await self.running(safe("a"), safe("chatty"))
        await self.stage.end("a", "A")
        self.stage.sinks["chatty"](0)
        got = []
        async with aclosing(executor.updates()) as updates:
            async for update in updates:
                got.append(update.message.call_id)
                self.stage.sinks["chatty"](len(got))
                if len(got) == 4:
                    break
        self.assertIn("a", got)

    async def test_progress_comes_before_a_result_that_is_ready_too(self) -> None:
        """The first look finds both: what another call reports is handed out, then a result, by turns."""
        executor = await self.running(*map(safe, "abc"))
        await self.stage.end("a", "A")
        await self.stage.end("b", "B")
        for number in range(3):
            self.stage.sinks["c"](number)
        kinds = [(type(update.message), update.message.call_id) for update in executor.ready()]
        event = (Progress, "c")
        self.assertEqual(kinds, [event, (ToolResult, "a"), event, (ToolResult, "b"), event])
        await self.stage.end("c")
        executor.ready()

    async def test_progress_never_follows_the_answer(self) -> None:
        """What a tool reports before its end comes before its result; what it reports after is dropped."""
        executor = await self.running(safe("a"))
        self.stage.sinks["a"]("early")
        await self.stage.end("a", "A")
        self.stage.sinks["a"]("late")
        messages = [update.message for update in executor.ready()]
        self.assertEqual([type(message) for message in messages], [Progress, ToolResult])
        self.stage.sinks["a"]("later")
        self.assertEqual(executor.ready(), [])

    async def test_progress_from_another_thread_is_refused(self) -> None:
        """The executor belongs to one thread; the error names the way in."""
        executor = await self.running(safe("a"))
        caught: list[ExecutorError] = []

        def report() -> None:
            try:
                self.stage.sinks["a"](1)
            except ExecutorError as error:
                caught.append(error)

        thread = threading.Thread(target=report)
        thread.start()
        thread.join()
        self.assertEqual([error.code for error in caught], ["wrong_thread"])
        self.assertEqual(executor.ready(), [])
        await self.stage.end("a")
        executor.ready()

    async def test_a_result_is_shaped_before_it_is_completed(self) -> None:
        """The per-tool limit sees each answer once, synthetic ones too, before it can be handed out. Claims: C8-077."""
        order: list[str] = []

        def shape(call: ToolCall, content: Any, is_error: bool) -> str:
            order.append(f"shape {call.call_id}")
            self.assertEqual(is_error, call.call_id == "b")
            return f"<{content}>"

        executor = self.executor(
            shape_result=shape, observe=lambda call_id, state: order.append(f"{state.value} {call_id}")
        )
        executor.add(unsafe("a"))
        executor.add(unsafe("b"))
        await settle()
        executor.cancel_call("b")
        await self.stage.end("a", "A")
        self.assertEqual([result.content[0] for result in await executor.results()], ["<", "<"])
        self.assertLess(order.index("shape a"), order.index("completed a"))
        self.assertEqual(sorted(step for step in order if "shape" in step), ["shape a", "shape b"])

    async def test_a_shaping_that_fails_is_the_error_of_that_call(self) -> None:
        """No exception escapes and the call is answered."""

        def shape(call: ToolCall, content: Any, is_error: bool) -> Any:
            raise RuntimeError("secret")

        executor = await self.running(safe("a"), shape_result=shape)
        await self.stage.end("a", "A")
        (result,) = await executor.results()
        self.assertEqual((result.is_error, result.code), (True, "tool_failure"))
        self.assertNotIn("secret", result.content)
        self.assertIsInstance(result.cause, RuntimeError)

    async def test_a_shaping_that_fails_takes_nothing_back(self) -> None:
        """A write that was done is no failure, and a call that failed or was cancelled keeps its code and its text."""

        def shape(call: ToolCall, content: Any, is_error: bool) -> Any:
            raise RuntimeError("secret")

        executor = await self.running(unsafe("done"), shape_result=shape)
        await self.stage.end("done", "receipt")
        (result,) = await executor.results()
        self.assertEqual((result.is_error, result.code, result.content), (False, None, ANSWER_LOST))
        failures: list[tuple[Any, Any]] = [
            ("no " * 1000, ("no " * 1000)[:MAX_UNSHAPED_CHARS]),
            ([1], "The tool failed."),
        ]
        for given, content in failures:
            self.stage = Stage()
            executor = await self.running(unsafe("refused"), shape_result=shape)
            await self.stage.end("refused", CallFailure(given, "forbidden"))
            (result,) = await executor.results()
            self.assertEqual((result.code, result.content), ("forbidden", content))
        self.stage = Stage()
        executor = await self.running(unsafe("stopped"), shape_result=shape)
        executor.query.cancel(USER_INTERRUPT)
        (result,) = await executor.results()
        self.assertEqual(result.code, USER_INTERRUPT)
        self.assertIn("outcome is unknown", result.content)

    async def test_a_tool_may_say_why_it_failed(self) -> None:
        """The text that its author chose, without secrets and bounded; a command that says so ends its siblings."""

        async def run(call: ToolCall, progress: ProgressSink) -> Any:
            raise ToolRefused("exit 1, password=hunter2 " + "x" * 10_000)

        executor = self.executor(bash("a"), run=run)
        (result,) = await executor.results()
        self.assertEqual((result.code, executor.has_errored), ("tool_failure", True))
        self.assertLessEqual(len(result.content), MAX_REFUSAL)
        self.assertTrue(result.content.startswith("exit 1, password=[redacted] x"))

    async def test_ten_thousand_calls_in_one_turn(self) -> None:
        """All are answered in order, one more is refused, and what was handed out is not kept."""

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            return call.call_id

        executor = self.executor(
            *(
                ToolCall(str(number), "t", '{"safe": true}' if number % 10 else '{"safe": false}')
                for number in range(MAX_CALLS)
            ),
            run=run,
        )
        with self.assertRaisesRegex(ExecutorError, "^too_many_calls$"):
            executor.add(safe("more"))
        results = await executor.results()
        self.assertEqual([result.content for result in results], [str(number) for number in range(MAX_CALLS)])
        self.assertEqual(executor.statistics().yielded, MAX_CALLS)
        self.assertEqual((len(executor._line), len(executor._queue), len(executor._running)), (0, 0, 0))
        self.assertFalse(any(entry.result or entry.task for entry in executor._entries.values()))


class Failures(ExecutorTestCase):
    """Only a failing command ends its siblings."""

    async def test_a_failing_read_leaves_the_others_alone(self) -> None:
        """ok, raises, slow: three results in order, the second an error whose text stays inside. Claims: C8-023."""
        executor = await self.running(*map(safe, ("ok", "bad", "slow")))
        await self.stage.fail("bad", FileNotFoundError("/secret/path"))
        await self.stage.end("ok", "fine")
        self.assertEqual(executor.executing, ("slow",))
        await self.stage.end("slow", "late")
        results = await executor.results()
        self.assertEqual([result.is_error for result in results], [False, True, False])
        self.assertEqual(results[1].code, "tool_failure")
        self.assertNotIn("secret", repr(results[1]))
        self.assertIsInstance(results[1].cause, FileNotFoundError)

    async def test_a_failing_command_ends_its_siblings(self) -> None:
        """Those that run get the reason, those that wait do not run, all are answered; the query goes on.

        Claims: C8-003, C8-024, C8-029, C8-031, C8-032.
        """
        query = CancelScope()
        executor = await self.running(
            bash("mkdir", is_safe=True, description="mkdir build"),
            safe("read"),
            unsafe("edit"),
            safe("last"),
            query=query,
        )
        await self.stage.fail("mkdir", OSError(17, "exists"))
        self.assertTrue(executor.has_errored)
        self.assertEqual(executor.errored_description, "mkdir build")
        self.assertEqual(executor.siblings.reason, "sibling_error")
        self.assertIsNone(query.reason)
        self.assertEqual(self.stage.reasons, {"read": ("sibling_error", ("sibling_error",))})
        results = await executor.results()
        self.assertEqual([result.call_id for result in results], ["mkdir", "read", "edit", "last"])
        self.assertEqual([result.code for result in results], ["tool_failure"] + ["sibling_error"] * 3)
        self.assertEqual([result.started for result in results], [True, True, False, False])
        self.assertTrue(all(result.content.startswith(CAUSE_TEXTS[SIBLING_ERROR]) for result in results[1:]))
        self.assertEqual(self.stage.started, ["mkdir", "read"])
        self.assertFalse(executor.cancelled)

        following = await self.running(safe("next"), query=query)
        await self.stage.end("next", "turn two")
        self.assertEqual([result.content for result in await following.results()], ["turn two"])

    async def test_a_call_that_comes_after_a_sibling_error_is_not_run(self) -> None:
        """The model was still writing: the late call belongs to the same batch and is answered. Claims: C8-032."""
        executor = await self.running(bash("bash"))
        await self.stage.fail("bash", RuntimeError())
        executor.add(safe("late"))
        self.assertEqual([result.code for result in await executor.results()], ["tool_failure", "sibling_error"])
        self.assertEqual(self.stage.started, ["bash"])

    async def test_the_name_of_a_tool_decides_nothing(self) -> None:
        """Whatever the name, only the flag makes a failure end the siblings. Claims: C8-030."""
        for name in ("Bash", "Read", "WebFetch", "Edit", "Grep"):
            for flag in (False, True):
                with self.subTest(name=name, flag=flag):
                    self.stage = Stage()
                    executor = await self.running(safe("a"), safe("b", name=name, cancels_siblings=flag))
                    await self.stage.fail("b", RuntimeError())
                    self.assertEqual(executor.siblings.reason, "sibling_error" if flag else None)
                    self.assertEqual(executor.errored_description, name if flag else None)
                    self.assertEqual(executor.executing, () if flag else ("a",))
                    if not flag:
                        await self.stage.end("a")
                    await executor.results()

    async def test_a_refusal_or_a_timeout_of_a_command_is_its_own_affair(self) -> None:
        """PermissionError, TimeoutError, a group of one kind, and a failure that says `local`. Claims: C8-028."""
        cases: list[tuple[Any, str]] = [
            (PermissionError(), "forbidden"),
            (TimeoutError(), "outcome_unknown"),
            (ExceptionGroup("g", [PermissionError(), ExceptionGroup("h", [PermissionError()])]), "forbidden"),
            (CallFailure("no", "approval_required", local=True), "approval_required"),
        ]
        for outcome, code in cases:
            with self.subTest(outcome=outcome):
                self.stage = Stage()
                executor = await self.running(bash("bash", is_safe=True), safe("a"))
                if isinstance(outcome, CallFailure):
                    await self.stage.end("bash", outcome)
                else:
                    await self.stage.fail("bash", outcome)
                await self.stage.end("a", "fine")
                self.assertEqual([result.code for result in await executor.results()], [code, None])

    async def test_what_is_no_refusal_ends_the_siblings(self) -> None:
        """A failure that `run` returns, a mixed group, and a cancel that nobody asked for. Claims: C8-024."""
        cases: list[Any] = [
            CallFailure("exit status 1"),
            ExceptionGroup("g", [ConnectionError(), PermissionError()]),
            asyncio.CancelledError(),
        ]
        for outcome in cases:
            with self.subTest(outcome=outcome):
                self.stage = Stage()

                async def run(call: ToolCall, progress: ProgressSink, outcome: Any = outcome) -> Any:
                    if isinstance(outcome, CallFailure):
                        return outcome
                    raise outcome

                executor = self.executor(bash("bash"), safe("a"), run=run)
                results = await executor.results()
                self.assertEqual([result.code for result in results], ["tool_failure", "sibling_error"])

    async def test_a_timeout_of_a_read_may_be_repeated(self) -> None:
        """A read that took too long is transient, a write is unknown."""
        executor = await self.running(safe("read"), unsafe("write"))
        await self.stage.fail("read", TimeoutError())
        await self.stage.fail("write", TimeoutError())
        self.assertEqual([r.code for r in await executor.results()], ["transient_failure", "outcome_unknown"])

    async def test_a_run_that_raises_before_it_awaits_is_answered(self) -> None:
        """A plain function that raises, and one that returns nothing to await."""

        def run(call: ToolCall, progress: ProgressSink) -> Awaitable[Any]:
            if call.call_id == "a":
                raise KeyError("x")
            return 3  # type: ignore[return-value]

        executor = self.executor(safe("a"), safe("b"), run=run)
        self.assertEqual([result.code for result in await executor.results()], ["tool_failure"] * 2)


class Cancelling(ExecutorTestCase):
    """Three scopes, their reasons, and an answer on every way out."""

    async def test_a_cancel_goes_down_and_never_up(self) -> None:
        """Query: all. Siblings: all calls, not the query. One call: that call alone. Claims: C8-025, C8-027, C8-031."""
        for level, stopped in (("query", "abc"), ("siblings", "abc"), ("call", "b")):
            with self.subTest(level=level):
                self.stage = Stage()
                executor = self.executor()
                self.assertIsNone(executor.siblings.reason)
                for name in "abc":
                    executor.add(safe(name))
                await settle()
                if level == "query":
                    executor.query.cancel(USER_INTERRUPT)
                elif level == "siblings":
                    executor.siblings.cancel(SIBLING_ERROR)
                else:
                    self.assertTrue(executor.cancel_call("b"))
                self.assertEqual(executor.query.cancelled, level == "query")
                self.assertEqual(executor.siblings.cancelled, level != "call")
                await settle()
                self.assertEqual("".join(sorted(self.stage.reasons)), stopped)
                for name in set("abc") - set(stopped):
                    await self.stage.end(name)
                self.assertEqual(len(await executor.results()), 3)

    async def test_an_executor_in_a_cancelled_query_runs_nothing(self) -> None:
        """Its middle scope starts cancelled; calls are answered. Claims: C8-027."""
        query = CancelScope()
        query.cancel(USER_INTERRUPT)
        executor = self.executor(safe("a"), query=query)
        self.assertEqual([result.code for result in await executor.results()], ["user_interrupt"])
        self.assertTrue(executor.cancelled)

    async def test_a_query_does_not_collect_the_scopes_of_its_past(self) -> None:
        """After each turn the tree is as small as before."""
        query = CancelScope()

        async def run(call: ToolCall, progress: ProgressSink) -> None:
            return None

        for _ in range(3):
            executor = self.executor(*(safe(str(number)) for number in range(5)), run=run, query=query)
            await executor.results()
            self.assertEqual(len(executor.siblings._children), 0)
        self.assertEqual(len(query._children), 0)

    async def test_an_interrupt_answers_every_call(self) -> None:
        """One yielded, one completed, a write executing, two queued: four more answers, in order.

        Claims: C8-026, C8-032, C8-033.
        """
        executor = await self.running(unsafe("yielded"))
        await self.stage.end("yielded", 1)
        self.assertEqual(ids(executor.ready()), ["yielded"])
        executor.add(safe("completed"))
        await settle()
        await self.stage.end("completed", 2)
        executor.add(unsafe("write"))
        executor.add(safe("read"))
        executor.add(unsafe("edit"))
        await settle()
        executor.query.cancel(USER_INTERRUPT)
        results = await executor.results()
        self.assertEqual([result.call_id for result in results], ["completed", "write", "read", "edit"])
        self.assertEqual(results[0].content, 2)
        self.assertEqual([result.code for result in results[1:]], ["user_interrupt"] * 3)
        self.assertIn("outcome is unknown", results[1].content)
        self.assertIn("not started", results[2].content)
        self.assertIn("not started", results[3].content)
        self.assertTrue(executor.cancelled)

    async def test_an_answer_says_whether_something_may_have_happened(self) -> None:
        """A call that only reads leaves nothing to check, and one whose task was never entered has not started."""
        executor = await self.running(safe("read"))
        executor.query.cancel(USER_INTERRUPT)
        (result,) = await executor.results()
        self.assertIn("only reads", result.content)
        self.assertTrue(result.started)
        self.stage = Stage()
        executor = self.executor(unsafe("a"))
        executor.query.cancel(USER_INTERRUPT)
        (result,) = await executor.results()
        self.assertEqual((result.started, self.stage.started), (False, []))
        self.assertIn("not started", result.content)

    async def test_a_streaming_fallback_has_its_own_text(self) -> None:
        """The answer is given up: calls are answered, the query goes on, nothing more is accepted. Claims: C8-033."""
        executor = await self.running(safe("a"), unsafe("b"))
        executor.discard()
        with self.assertRaises(ExecutorError):
            executor.add(safe("c"))
        results = await executor.results()
        self.assertEqual([result.code for result in results], [STREAMING_FALLBACK] * 2)
        self.assertTrue(all(result.content.startswith(CAUSE_TEXTS[STREAMING_FALLBACK]) for result in results))
        self.assertFalse(executor.query.cancelled)
        self.assertFalse(executor.cancelled)

    async def test_two_reasons_in_one_tick_are_both_kept(self) -> None:
        """Sibling error first, interrupt second, and the other way round: each scope has its first reason."""
        for first in ("sibling", "query"):
            with self.subTest(first=first):
                self.stage = Stage()
                executor = await self.running(bash("bash", is_safe=True), safe("a"))
                self.stage.ends["bash"].set_exception(RuntimeError())
                if first == "query":
                    executor.query.cancel(USER_INTERRUPT)
                else:
                    while not executor.siblings.cancelled:
                        await asyncio.sleep(0)
                    executor.query.cancel(USER_INTERRUPT)
                results = await executor.results()
                self.assertEqual(executor.query.reason, USER_INTERRUPT)
                self.assertEqual(executor.siblings.reason, USER_INTERRUPT if first == "query" else SIBLING_ERROR)
                self.assertEqual(results[1].code, executor.siblings.reason)
                self.assertTrue(executor.cancelled)

    async def test_a_tool_is_cancelled_once(self) -> None:
        """A second reason does not break into the cleanup of a tool that is stopping already."""
        steps: list[str] = []
        gate = asyncio.Event()

        async def run(call: ToolCall, progress: ProgressSink) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                steps.append("cleanup starts")
                await gate.wait()
                steps.append("cleanup ends")

        executor = await self.running(bash("a"), run=run)
        executor.cancel_call("a")
        await settle()
        executor.siblings.cancel(SIBLING_ERROR)
        executor.query.cancel(USER_INTERRUPT)
        await settle()
        gate.set()
        (result,) = await executor.results()
        self.assertEqual(steps, ["cleanup starts", "cleanup ends"])
        self.assertEqual(result.code, CALL_CANCELLED)
        self.assertEqual(executor.query.reason, USER_INTERRUPT)

    async def test_cleanup_runs_once_on_every_way_out(self) -> None:
        """Success, error, timeout, sibling cancel, user cancel, the consumer's leaving."""
        errors = {"error": RuntimeError, "timeout": TimeoutError}
        for way in ("success", "error", "timeout", "sibling", "user", "leaving"):
            with self.subTest(way=way):
                cleaned: list[str] = []
                release = asyncio.Event()

                async def run(
                    call: ToolCall,
                    progress: ProgressSink,
                    way: str = way,
                    release: Any = release,
                    cleaned: Any = cleaned,
                ) -> str:
                    try:
                        await release.wait()
                        if way in errors:
                            raise errors[way]
                        return "done"
                    finally:
                        await asyncio.sleep(0)
                        cleaned.append(way)

                executor = await self.running(bash("shell"), run=run)
                if way == "sibling":
                    executor.siblings.cancel(SIBLING_ERROR)
                elif way == "user":
                    executor.query.cancel(USER_INTERRUPT)
                elif way == "leaving":
                    await executor.aclose()
                else:
                    release.set()
                (result,) = await executor.results()
                self.assertEqual((cleaned, result.is_error), ([way], way != "success"))

    async def test_one_call_of_a_queue_can_be_cancelled(self) -> None:
        """A queued one is answered without being run, the one behind it starts; an answered one says False."""
        executor = await self.running(safe("a"), unsafe("b"), safe("c"))
        self.assertTrue(executor.cancel_call("b"))
        await settle()
        self.assertEqual(executor.executing, ("a", "c"))
        self.assertFalse(executor.cancel_call("b"))
        await self.stage.end("a")
        await self.stage.end("c")
        self.assertFalse(executor.cancel_call("c"))
        self.assertEqual([result.code for result in await executor.results()], [None, CALL_CANCELLED, None])
        self.assertFalse(executor.cancelled)

    async def test_a_swallowed_cancel_starts_nothing_new(self) -> None:
        """The tool turns the cancel into a text: the text is kept, two queued calls do not run."""

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            self.stage.started.append(call.call_id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
            return "stopped, politely"

        executor = await self.running(bash("a"), safe("b"), unsafe("c"), run=run)
        executor.query.cancel(USER_INTERRUPT)
        results = await executor.results()
        self.assertEqual(results[0].content, "stopped, politely")
        self.assertEqual([result.code for result in results], [None, USER_INTERRUPT, USER_INTERRUPT])
        self.assertEqual(self.stage.started, ["a"])
        self.assertTrue(executor.cancelled)

    async def test_a_cancelled_command_that_fails_on_its_way_out_ends_nobody(self) -> None:
        """It was told to stop: an error of its clean-up is the cause, a failure that it returns is its answer."""

        async def run(call: ToolCall, progress: ProgressSink) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if call.call_id == "raises":
                    raise RuntimeError("cleanup") from None
                return CallFailure("killed")

        for name, code in (("raises", CALL_CANCELLED), ("returns", "tool_failure")):
            executor = await self.running(bash(name), run=run)
            executor.cancel_call(name)
            (result,) = await executor.results()
            self.assertEqual((result.code, executor.has_errored, executor.siblings.reason), (code, False, None))
            if name == "raises":
                self.assertIsInstance(result.cause, RuntimeError)
            else:
                self.assertEqual(result.content, "killed")

    async def test_a_result_that_ends_in_the_tick_of_the_cancel_is_kept(self) -> None:
        """The tool's task is done and the interrupt comes before anybody looked: the result stays, the run stops."""
        executor = await self.running(safe("a"), unsafe("b"))
        (task,) = self.stage.tasks
        self.stage.ends["a"].set_result("A")
        task.add_done_callback(lambda _: None)
        while not task.done():
            await asyncio.sleep(0)
        executor.query.cancel(USER_INTERRUPT)
        results = await executor.results()
        self.assertEqual((results[0].content, results[0].code), ("A", None))
        self.assertEqual(results[1].code, USER_INTERRUPT)
        self.assertTrue(executor.cancelled)

    async def test_two_commands_that_fail_in_one_tick_keep_their_own_errors(self) -> None:
        """The first is recorded; the second failed by itself and is not called cancelled. Claims: C8-029."""
        executor = await self.running(
            bash("a", is_safe=True, description="first"), bash("b", is_safe=True, description="second")
        )
        self.stage.ends["a"].set_exception(RuntimeError())
        self.stage.ends["b"].set_exception(RuntimeError())
        self.assertEqual([result.code for result in await executor.results()], ["tool_failure"] * 2)
        self.assertEqual(executor.errored_description, "first")

    async def test_a_cancel_in_the_moment_of_a_start_is_a_cancel_like_any_other(self) -> None:
        """Whoever hears that a call starts may stop the query: it is told that it did, and nothing runs."""
        query = CancelScope()
        heard: list[bool] = []

        def observe(call_id: str, state: ToolState) -> None:
            if state is ToolState.EXECUTING:
                heard.append(query.cancel(USER_INTERRUPT))

        executor = self.executor(safe("a"), safe("b"), query=query, observe=observe)
        self.assertEqual([result.code for result in await executor.results()], [USER_INTERRUPT] * 2)
        self.assertEqual((heard, self.stage.started), ([True, False], []))

    async def test_a_tool_may_cancel_its_own_query(self) -> None:
        """The cancel reaches the tool itself and everybody behind it."""
        query = CancelScope()

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            query.cancel(USER_INTERRUPT)
            self.assertEqual(progress.reason, USER_INTERRUPT)
            await asyncio.sleep(0)
            return "not reached"

        executor = self.executor(unsafe("a"), unsafe("b"), run=run, query=query)
        results = await executor.results()
        self.assertEqual([result.code for result in results], [USER_INTERRUPT] * 2)
        self.assertEqual([result.started for result in results], [True, False])


class Leaving(ExecutorTestCase):
    """No task outlives the executor, and the cancel of the consumer is never lost."""

    async def test_leaving_the_loop_early_cancels_all_calls(self) -> None:
        """The consumer closes the updates: every task ends, the rest of the answers is still there. Claims: C8-032."""
        executor = await self.running(safe("a"), safe("b"), unsafe("c"))
        self.stage.sinks["b"]("half")
        async with aclosing(executor.updates()) as updates:
            async for _ in updates:
                break
        self.assertEqual(self.stage.live(), [])
        results = [update.message for update in executor.ready()]
        self.assertEqual([message.code for message in results if isinstance(message, ToolResult)], [USER_INTERRUPT] * 3)
        self.assertTrue(executor.cancelled)
        self.assertEqual(executor.ready(), [])

    async def test_an_error_in_the_block_cancels_all_calls(self) -> None:
        """`async with` waits for the tools and passes the error on."""
        with self.assertRaises(ZeroDivisionError):
            async with self.executor() as executor:
                executor.add(safe("a"))
                await settle()
                raise ZeroDivisionError
        self.assertEqual(self.stage.live(), [])
        self.assertEqual(ids(executor.ready()), ["a"])

    async def test_a_finished_run_is_not_called_cancelled(self) -> None:
        """Closing after the last answer changes nothing, also twice."""
        async with self.executor() as executor:
            executor.add(safe("a"))
            await settle()
            await self.stage.end("a", "A")
            self.assertEqual([result.content for result in await executor.results()], ["A"])
        await executor.aclose()
        self.assertFalse(executor.cancelled)
        self.assertIsNone(executor.siblings.reason)

    async def test_the_cancel_of_the_consumer_is_passed_on(self) -> None:
        """Cancelled while it waits, or while it closes: the tools stop first, slowly, and then the cancel is raised."""
        for waits in (StreamingToolExecutor.results, StreamingToolExecutor.aclose):
            gate = asyncio.Event()

            async def run(call: ToolCall, progress: ProgressSink, gate: asyncio.Event = gate) -> None:
                self.stage.tasks.append(asyncio.current_task())  # type: ignore[arg-type]
                try:
                    await asyncio.Event().wait()
                finally:
                    await gate.wait()

            executor = self.executor(*map(safe, "abc"), run=run)
            await settle()
            consumer: asyncio.Future[Any] = asyncio.ensure_future(waits(executor))
            await settle()
            for _ in range(2):  # once more, in the middle of the wait
                consumer.cancel()
                await settle()
                self.assertFalse(consumer.done())
            gate.set()
            await settle()
            self.assertTrue(consumer.cancelled())
            self.assertEqual(self.stage.live(), [])
            self.assertEqual(ids(executor.ready()), ["a", "b", "c"])

    async def test_a_cancel_in_the_tick_of_the_last_result_is_not_lost(self) -> None:
        """The tool ends and the consumer is cancelled at once, in both orders: what follows does not run."""
        for order in ("end first", "cancel first"):
            with self.subTest(order=order):
                self.stage = Stage()
                executor = self.executor(safe("a"))
                executor.end_input()
                went_on: list[bool] = []

                async def consume(executor: StreamingToolExecutor = executor, went_on: list[bool] = went_on) -> None:
                    async with executor:
                        async for _ in executor.updates():
                            await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    went_on.append(True)

                consumer = asyncio.ensure_future(consume())
                await settle()
                if order == "end first":
                    self.stage.ends["a"].set_result("A")
                    consumer.cancel()
                else:
                    consumer.cancel()
                    self.stage.ends["a"].set_result("A")
                await settle(30)
                self.assertTrue(consumer.cancelled())
                self.assertEqual(went_on, [])
                self.assertEqual(executor.state_of("a") in (ToolState.COMPLETED, ToolState.YIELDED), True)

    async def test_a_failing_command_in_the_tick_of_an_outer_cancel_loses_nothing(self) -> None:
        """The trap of nested groups: the error is handled inside and the outer cancel still stops the worker."""
        for first in ("failure", "cancel"):
            with self.subTest(first=first):
                self.stage = Stage()
                went_on: list[bool] = []

                async def worker(went_on: list[bool] = went_on) -> None:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(settle())
                        async with self.executor() as executor:
                            executor.add(bash("bash"))
                            executor.add(safe("read"))
                            await executor.results()
                        await asyncio.sleep(0)
                        went_on.append(True)

                task = asyncio.ensure_future(worker())
                await settle()
                if first == "failure":
                    self.stage.ends["bash"].set_exception(RuntimeError())
                    task.cancel()
                else:
                    task.cancel()
                    self.stage.ends["bash"].set_exception(RuntimeError())
                await settle(30)
                self.assertTrue(task.cancelled())
                self.assertEqual(went_on, [])

    async def test_a_timeout_around_the_run_is_seen_as_one(self) -> None:
        """`asyncio.timeout` around the consumer cancels all calls and raises its own error."""
        executor = self.executor(safe("a"))
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(None) as scope:
                consumer = executor.results()
                asyncio.get_running_loop().call_soon(scope.reschedule, asyncio.get_running_loop().time() - 1)
                await consumer
        self.assertEqual([update.message.code for update in executor.ready()], [USER_INTERRUPT])  # type: ignore[union-attr]

    async def test_a_tool_that_ignores_its_cancel_is_abandoned_after_the_grace(self) -> None:
        """The run ends when the timer does; the call is answered, reported, and its late result is dropped."""
        self.leaves_tasks = True
        gate = asyncio.Event()

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            progress("too late")
            return "too late"

        executor = await self.running(unsafe("stubborn"), safe("next"), run=run, grace_seconds=2.5)
        closing = asyncio.ensure_future(executor.aclose())
        await settle()
        self.assertFalse(closing.done())
        self.assertEqual([seconds for seconds, _ in self.timers.set], [2.5])
        self.timers.run_out()
        await settle()
        self.assertTrue(closing.done())
        self.assertEqual(executor.abandoned, ("stubborn",))
        self.timers.set[0][1].action()  # a timer that comes twice finds nothing to do
        messages = [update.message for update in executor.ready()]
        self.assertEqual(
            [message.code for message in messages if isinstance(message, ToolResult)], [USER_INTERRUPT] * 2
        )
        self.assertIn("outcome is unknown", messages[0].content)  # type: ignore[union-attr]
        gate.set()
        await settle()
        self.assertEqual(executor.ready(), [])
        self.assertEqual(executor.statistics().abandoned, 1)

    async def test_after_an_abandoned_call_no_other_starts(self) -> None:
        """It may still be writing, so nothing could be kept apart from it."""
        self.leaves_tasks = True
        gate = asyncio.Event()

        async def run(call: ToolCall, progress: ProgressSink) -> None:
            self.stage.started.append(call.call_id)
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue

        executor = await self.running(unsafe("stubborn"), unsafe("next"), run=run)
        executor.cancel_call("stubborn")
        await settle()
        self.assertEqual(executor.state_of("next"), ToolState.QUEUED)
        self.timers.run_out()
        self.assertEqual([result.code for result in await executor.results()], [CALL_CANCELLED, SIBLING_ERROR])
        self.assertEqual(self.stage.started, ["stubborn"])
        self.assertFalse(executor.query.cancelled)
        gate.set()
        await settle()

    async def test_a_tool_that_ends_in_the_tick_of_its_timer_is_not_abandoned(self) -> None:
        """Its task is over, though nobody has heard of it yet."""
        executor = await self.running(safe("a"))
        executor.query.cancel(USER_INTERRUPT)
        await asyncio.sleep(0)
        self.assertEqual((self.stage.live(), executor.state_of("a")), ([], ToolState.EXECUTING))
        self.timers.run_out()
        (result,) = await executor.results()
        self.assertEqual((result.code, executor.abandoned), (USER_INTERRUPT, ()))

    async def test_a_tool_that_stops_in_time_stops_the_timer(self) -> None:
        """No timer is left, and one that fires late does nothing."""
        executor = await self.running(safe("a"))
        executor.query.cancel(USER_INTERRUPT)
        await executor.results()
        self.assertEqual([handle.cancelled for _, handle in self.timers.set], [True])
        self.timers.set[0][1].action()
        self.assertEqual(executor.abandoned, ())
        self.assertGreater(GRACE_SECONDS, 0)


class Pipeline(ExecutorTestCase):
    """The six steps of one call."""

    def pipeline(self, trace: list[str], stop_at: str | None = None) -> ToolPipeline:
        def step(name: str) -> Callable[[ToolCall], Any]:
            async def check(call: ToolCall) -> Any:
                trace.append(name)
                return CallFailure(f"refused by {name}", "forbidden") if name == stop_at else None

            return check

        async def call(call: ToolCall, progress: ProgressSink) -> Any:
            trace.append("call")
            return CallFailure("exit status 1") if stop_at == "call" else "value"

        def post(call: ToolCall, value: Any) -> Any:
            trace.append("post_tool_use")
            return value.upper()

        steps = {name: step(name) for name in PIPELINE_STEPS[:4]}
        return ToolPipeline(call, post_tool_use=post, **steps)

    async def test_the_six_steps_run_in_order(self) -> None:
        """Schema, input, pre hooks, permission, call, post hooks. Claims: C8-076."""
        trace: list[str] = []
        executor = self.executor(safe("a"), run=self.pipeline(trace))
        self.assertEqual([result.content for result in await executor.results()], ["VALUE"])
        self.assertEqual(trace, list(PIPELINE_STEPS))

    async def test_a_step_that_refuses_stops_the_later_ones(self) -> None:
        """The call is not made, and a refused command ends no sibling. Claims: C8-028, C8-076."""
        for number, name in enumerate(PIPELINE_STEPS[:5]):
            with self.subTest(step=name):
                trace: list[str] = []
                executor = self.executor(bash("a"), run=self.pipeline(trace, stop_at=name))
                (result,) = await executor.results()
                self.assertEqual(trace, list(PIPELINE_STEPS[: number + 1]))
                self.assertTrue(result.is_error)
                self.assertEqual(executor.has_errored, name == "call")

    async def test_steps_may_be_plain_functions_or_left_out(self) -> None:
        """A pipeline of a call alone is a call."""

        async def call(call: ToolCall, progress: ProgressSink) -> str:
            return "value"

        self.assertEqual(await ToolPipeline(call)(safe("a"), self._no_progress()), "value")
        plain = ToolPipeline(call, check_permission=lambda call: CallFailure("no"))
        self.assertEqual(await plain(safe("a"), self._no_progress()), CallFailure("no", local=True))

    async def test_a_call_that_is_still_being_asked_about_has_not_started(self) -> None:
        """A cancel while a step before the call waits, and one while the tool runs: two fates."""
        asked = asyncio.Event()

        async def wait(call: ToolCall, progress: ProgressSink | None = None) -> Any:
            if call.call_id == "asked" or progress is not None:
                await asked.wait()

        executor = self.executor(run=ToolPipeline(wait, check_permission=wait))
        executor.add(unsafe("asked"))
        await settle()
        executor.cancel_call("asked")
        executor.add(unsafe("called"))
        await settle()
        executor.cancel_call("called")
        first, second = await executor.results()
        self.assertEqual((first.started, second.started), (False, True))
        self.assertIn("not started", first.content)
        self.assertIn("outcome is unknown", second.content)

    async def test_a_step_after_the_call_does_not_make_it_undone(self) -> None:
        """Of a read its failure is one; what was written stays written, and says so."""

        async def call(call: ToolCall, progress: ProgressSink) -> str:
            return "value"

        def post(call: ToolCall, value: Any) -> Any:
            raise KeyError("secret")

        run = ToolPipeline(call, post_tool_use=post)
        executor = self.executor(safe("read"), unsafe("write"), run=run)
        read, write = await executor.results()
        self.assertEqual((read.code, read.content), ("tool_failure", "The tool failed."))
        self.assertEqual((write.code, write.content), (None, ANSWER_LOST))

    def _no_progress(self) -> ProgressSink:
        class Sink:
            reason: str | None = None
            called = True

            def __call__(self, data: Any) -> None:
                raise AssertionError

        return Sink()


if __name__ == "__main__":
    unittest.main()
