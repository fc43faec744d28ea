"""Bounded reads and read streams: identity, bounds, cancellation, and nothing left behind.

Order is forced with events and barriers; `asyncio.sleep(0)` only gives the loop a turn.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import inspect
import itertools
import logging
import random
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10 import concurrency
from chapter10.concurrency import Outcome, ReadsError, bounded_reads, stream_reads

HANG_SECONDS = 30
"""A test that would hang fails instead; no test waits for it."""


class ReadsTestCase(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.addAsyncCleanup(self.no_task_is_left)

    async def no_task_is_left(self) -> None:
        """Every test ends with the tasks that it began with (claim C10-119)."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        self.assertEqual([task for task in others if "chapter10" in repr(task.get_coro())], [])

    async def assert_cancelled(self, task: asyncio.Task[Any]) -> None:
        with self.assertRaises(asyncio.CancelledError):
            await asyncio.wait_for(task, HANG_SECONDS)
        self.assertTrue(task.cancelled())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """A read that counts itself in and waits until it is let through."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.ended: list[Any] = []
        self.open = asyncio.Event()
        self.in_flight = self.peak = 0

    async def __call__(self, argument: Any) -> Any:
        self.entered.append(argument)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await self.open.wait()
            return argument
        finally:
            self.in_flight -= 1
            self.ended.append(argument)


def numbered(count: int) -> list[tuple[str, int]]:
    return [(f"c{number:05}", number) for number in range(count)]


class BoundedReadsTests(ReadsTestCase):
    async def test_two_succeed_and_one_fails_each_under_its_own_id(self) -> None:
        """The three calls of the chapter: A and B keep their values, C has the class of its error.

        Claims: C10-101, C10-102, C10-106, C10-117.
        """

        async def read(order_id: str) -> dict[str, str]:
            await asyncio.sleep(0)
            if order_id == "C":
                raise LookupError(order_id)
            return {"order_id": order_id}

        calls = [(f"call-{name}", name) for name in "ABC"]
        self.assertEqual(
            await bounded_reads(calls, read),
            {
                "call-A": {"value": {"order_id": "A"}},
                "call-B": {"value": {"order_id": "B"}},
                "call-C": {"error": "LookupError"},
            },
        )

    async def test_two_reads_are_in_flight_before_either_goes_on(self) -> None:
        """A barrier for two lets both through, which one after the other never could; the peak is the limit.

        Claims: C10-114, C10-115, C10-116.
        """
        barrier = asyncio.Barrier(2)
        in_flight = peak = 0

        async def read(_: int) -> int:
            nonlocal in_flight, peak
            in_flight += 1
            peak = max(peak, in_flight)
            await barrier.wait()
            in_flight -= 1
            return peak

        async with asyncio.timeout(HANG_SECONDS):
            await bounded_reads(numbered(6), read, limit=2)
        self.assertEqual(peak, 2)

    async def test_the_fastest_does_not_take_the_place_of_another(self) -> None:
        """B ends first, C second, A last; each value stands under its own id, in the order of the ids.

        Claims: C10-099, C10-109, C10-118.
        """
        done = {name: asyncio.Event() for name in "ABC"}
        order: list[str] = []

        async def read(name: str) -> str:
            after = {"A": "C", "C": "B"}.get(name)
            if after:
                await done[after].wait()
            order.append(name)
            done[name].set()
            return name.lower()

        outcomes = await bounded_reads([("C", "C"), ("A", "A"), ("B", "B")], read, limit=3)
        self.assertEqual(order, ["B", "C", "A"])
        self.assertEqual(list(outcomes.items()), [(n, {"value": n.lower()}) for n in "ABC"])

    async def test_every_call_is_read_once_and_no_more_than_the_limit_at_a_time(self) -> None:
        """Random numbers of calls, limits and turns: each argument once, the peak within the limit.

        Claims: C10-112.
        """
        for seed in range(20):
            chance = random.Random(seed)
            count, limit = chance.randrange(40), chance.randint(1, 9)
            seen: list[int] = []
            in_flight = [0, 0]

            async def read(
                number: int,
                seen: list[int] = seen,
                in_flight: list[int] = in_flight,
                chance: random.Random = chance,
            ) -> int:
                seen.append(number)
                in_flight[0] += 1
                in_flight[1] = max(in_flight)
                await turns(chance.randrange(4))
                in_flight[0] -= 1
                if chance.random() < 0.3:
                    raise OSError
                return number

            calls = chance.sample(numbered(count), count)
            outcomes = await bounded_reads(calls, read, limit)
            self.assertEqual(sorted(seen), list(range(count)))
            self.assertLessEqual(in_flight[1], limit)
            self.assertEqual(list(outcomes), sorted(call_id for call_id, _ in calls))
            for call_id, number in calls:
                self.assertIn(outcomes[call_id], ({"value": number}, {"error": "OSError"}))

    async def test_ten_thousand_calls_make_as_many_tasks_as_the_limit(self) -> None:
        """Two tasks for ten thousand calls with limit 2, and two for two calls with limit 5.

        Claims: C10-094, C10-105.
        """
        loop = asyncio.get_running_loop()
        loop.set_debug(False)  # it would keep the stack of each of many callbacks
        for count, limit, expected in ((10_000, 2, 2), (2, 5, 2), (5, 2, 2), (1, 1, 1)):
            made: list[Any] = []

            def factory(loop: Any, coro: Any, made: list[Any] = made, **more: Any) -> asyncio.Task[Any]:
                task = asyncio.Task(coro, loop=loop, **more)
                made.append(task)
                return task

            async def read(number: int) -> int:
                await asyncio.sleep(0)
                return number

            loop.set_task_factory(factory)
            try:
                await bounded_reads(numbered(count), read, limit)
            finally:
                loop.set_task_factory(None)
            self.assertEqual(len(made), expected)

    async def test_no_calls_give_no_outcomes_and_start_nothing(self) -> None:
        """An empty list gives an empty dict and never calls the reader.

        Claims: C10-122.
        """
        reader = mock.AsyncMock()
        self.assertEqual(await bounded_reads([], reader), {})
        self.assertEqual(await bounded_reads((), reader, 7), {})
        reader.assert_not_called()

    async def test_the_text_of_an_error_is_not_kept(self) -> None:
        """Only the class name of a failure is in the outcome; groups and odd errors are named alike.

        Claims: C10-110.
        """
        errors: list[Exception] = [
            LookupError("secret-token"),
            ExceptionGroup("secret-token", [ValueError("secret-token")]),
            StopIteration("secret-token"),
            StopAsyncIteration("secret-token"),
            TimeoutError(),
        ]

        def read(error: Exception) -> Awaitable[None]:
            raise error

        outcomes = await bounded_reads([(str(n), error) for n, error in enumerate(errors)], read)
        self.assertEqual(
            [outcome["error"] for outcome in outcomes.values()], [type(error).__name__ for error in errors]
        )
        self.assertNotIn("secret", repr(outcomes))

    async def test_a_cancelled_error_that_nobody_asked_for_is_an_outcome(self) -> None:
        """A read that raises it by hand, or awaits a task that was cancelled elsewhere, fails alone."""
        other = asyncio.create_task(asyncio.sleep(3600))
        other.cancel()

        async def read(name: str) -> str:
            if name == "by hand":
                raise asyncio.CancelledError
            if name == "elsewhere":
                await other
            return name

        outcomes = await bounded_reads([("a", "by hand"), ("b", "elsewhere"), ("c", "c"), ("d", "d")], read, 1)
        self.assertEqual(outcomes["a"], {"error": "CancelledError"})
        self.assertEqual(outcomes["b"], {"error": "CancelledError"})
        self.assertEqual([outcomes["c"], outcomes["d"]], [{"value": "c"}, {"value": "d"}])

    async def test_a_timeout_inside_a_read_is_its_error(self) -> None:
        """`asyncio.timeout` in a read cancels and takes the cancel back; the worker goes on."""

        async def read(number: int) -> int:
            async with asyncio.timeout(0 if number == 0 else None):
                await turns()
            return number

        outcomes = await bounded_reads(numbered(3), read, 1)
        self.assertEqual(list(outcomes.values()), [{"error": "TimeoutError"}, {"value": 1}, {"value": 2}])


class CancellationTests(ReadsTestCase):
    async def test_cancelling_the_caller_cancels_the_reads_and_waits_for_them(self) -> None:
        """Both running reads see the cancellation and end before the caller does; no third one starts.

        Claims: C10-119, C10-120, C10-121.
        """
        gate = Gate()
        task = asyncio.create_task(bounded_reads(numbered(5), gate, 2))
        await turns()
        task.cancel()
        await self.assert_cancelled(task)
        self.assertEqual((sorted(gate.entered), sorted(gate.ended)), ([0, 1], [0, 1]))

    async def test_a_read_that_swallows_the_cancellation_starts_no_other(self) -> None:
        """It returns as if nothing were, or raises another error; the run ends cancelled all the same.

        Claims: C10-121.
        """

        async def as_a_result(number: int) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "nothing happened"
            return ""

        async def as_another_error(number: int) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise LookupError from None
            return ""

        reads: tuple[Callable[[int], Awaitable[str]], ...] = (as_a_result, as_another_error)
        for read in reads:
            started: list[int] = []

            def counted(number: int, read: Any = read, started: list[int] = started) -> Awaitable[str]:
                started.append(number)
                result: Awaitable[str] = read(number)
                return result

            task = asyncio.create_task(bounded_reads(numbered(6), counted, 2))
            await turns()
            task.cancel()
            await self.assert_cancelled(task)
            self.assertEqual(started, [0, 1])

    async def test_slow_cleaning_up_is_waited_for_through_a_second_cancellation(self) -> None:
        """A read whose `finally` takes turns is over when the caller is, however often it was cancelled."""
        cleaned: list[int] = []

        async def read(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await turns(20)
                cleaned.append(number)

        task = asyncio.create_task(bounded_reads(numbered(3), read, 3))
        await turns()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        await self.assert_cancelled(task)
        self.assertEqual(sorted(cleaned), [0, 1, 2])

    async def test_a_cancellation_in_the_tick_of_the_last_result_is_not_lost(self) -> None:
        """The read is over and the cancel comes before the caller ran again: the caller is cancelled."""
        for spare_turns in range(6):
            gate = Gate()
            task = asyncio.create_task(bounded_reads(numbered(1), gate, 1))
            await turns()
            gate.open.set()
            await turns(spare_turns)
            if task.cancel():
                await self.assert_cancelled(task)
            else:
                self.assertEqual(await task, {"c00000": {"value": 0}})

    async def test_a_worker_cancelled_from_outside_ends_the_run(self) -> None:
        """A part is never returned as the whole, not even if only one worker was hit.

        Claims: C10-121.
        """
        workers: list[asyncio.Task[Any] | None] = []

        async def read(number: int) -> int:
            workers.append(asyncio.current_task())
            if number == 0:
                await asyncio.Event().wait()
            return number

        task = asyncio.create_task(bounded_reads(numbered(4), read, 2))
        await turns()
        assert workers[0] is not None
        workers[0].cancel()
        await self.assert_cancelled(task)

    async def test_what_is_no_ordinary_error_ends_the_run_and_the_other_reads(self) -> None:
        """Such an exception comes out in the task group's own group, after the other read has ended."""

        class Unusual(BaseException):
            pass

        gate = Gate()

        async def read(number: int) -> int:
            if number == 1:
                raise Unusual
            result: int = await gate(number)
            return result

        with self.assertRaises(BaseExceptionGroup) as caught:
            await bounded_reads(numbered(4), read, 2)
        self.assertIsInstance(caught.exception.exceptions[0], Unusual)
        self.assertEqual((gate.entered, gate.ended), ([0], [0]))

    def test_an_interrupt_passes_through(self) -> None:
        """`KeyboardInterrupt` and `SystemExit` in a read leave the event loop, from a list and from a stream.

        Claims: C10-121.
        """

        async def from_list(error: type[BaseException]) -> None:
            def read(_: int) -> Awaitable[None]:
                raise error

            await bounded_reads(numbered(2), read)

        async def from_stream(error: type[BaseException]) -> None:
            def read(_: int) -> Awaitable[None]:
                raise error

            async with contextlib.aclosing(stream_reads(numbered(2), read)) as outcomes:
                async for _ in outcomes:
                    pass

        # The loop reports the worker that nobody could await any more; that is not what is tested.
        with mock.patch.object(logging.getLogger("asyncio"), "disabled", True):
            for error in (KeyboardInterrupt, SystemExit):
                for run in (from_list, from_stream):
                    with self.assertRaises(error):
                        asyncio.run(run(error))
            gc.collect()

    def test_no_handler_in_the_module_catches_everything(self) -> None:
        """There is no bare `except` and no `except BaseException`, and nothing that writes.

        Claims: C10-096, C10-103, C10-104, C10-121.
        """
        source = Path(concurrency.__file__).read_text(encoding="utf-8")
        handlers = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)]
        self.assertTrue(handlers)
        for handler in handlers:
            assert handler.type is not None
            self.assertNotIn("BaseException", ast.unparse(handler.type))
        self.assertEqual(list(inspect.signature(bounded_reads).parameters), ["calls", "read", "limit"])
        self.assertEqual(
            sorted(concurrency.__all__), ["MAX_CALLS", "Outcome", "ReadsError", "bounded_reads", "stream_reads"]
        )


class RefusalTests(ReadsTestCase):
    async def assert_refused(self, code: str, calls: Any, limit: Any = 2, read: Any = None) -> None:
        reader = mock.AsyncMock()
        with self.assertRaises(ReadsError) as caught:
            await bounded_reads(calls, reader if read is None else read, limit)
        self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual(str(caught.exception), code)
        reader.assert_not_called()

    async def test_who_names_no_limit_has_two_reads_in_flight(self) -> None:
        """The default is the two of the chapter, for a list and for a stream."""

        async def stream(gate: Gate) -> None:
            async with contextlib.aclosing(stream_reads(numbered(5), gate)) as found:
                self.assertEqual(len([outcome async for outcome in found]), 5)

        for run in (lambda gate: bounded_reads(numbered(5), gate), stream):
            gate = Gate()
            task = asyncio.create_task(run(gate))
            await turns()
            self.assertEqual(gate.entered, [0, 1])
            gate.open.set()
            await task
            self.assertEqual(gate.peak, 2)

    async def test_a_limit_is_a_positive_integer(self) -> None:
        """Zero, negative numbers, bool, floats and texts are refused before any read.

        Claims: C10-107.
        """
        for limit in (0, -1, True, 1.0, "2", None, float("inf")):
            await self.assert_refused("invalid_limit", numbered(2), limit)

    async def test_ids_are_distinct_strings(self) -> None:
        """A double id and an id of another type are refused before any read.

        Claims: C10-108.
        """
        await self.assert_refused("duplicate_call", [("a", 1), ("b", 2), ("a", 3)])
        for call_id in (1, None, b"a", True, ["a"]):
            await self.assert_refused("invalid_call", [("a", 1), (call_id, 2)])

    async def test_calls_are_a_list_of_pairs_within_the_bound(self) -> None:
        """Streams, texts, dicts and triples are refused, and so is one call more than the maximum.

        Claims: C10-123.
        """
        for calls in (iter(numbered(2)), "ab", {"a": 1}, None, 5, {("a", 1)}):
            await self.assert_refused("invalid_calls", calls)
        lists: list[Any] = [["ab"], [("a",)], [("a", 1, 2)], [None], [3], [{}]]
        for of_no_pairs in lists:
            await self.assert_refused("invalid_call", of_no_pairs)
        both_kinds: list[Any] = [("a", 1), ["b", 2]]
        self.assertEqual(list(await bounded_reads(both_kinds, mock.AsyncMock())), ["a", "b"])
        with mock.patch.object(concurrency, "MAX_CALLS", 2):
            await self.assert_refused("too_many_calls", numbered(3))
            self.assertEqual(len(await bounded_reads(numbered(2), mock.AsyncMock())), 2)
        self.assertEqual(concurrency.MAX_CALLS, 10_000_000)

    async def test_a_reader_is_callable_and_a_reader_that_gives_nothing_to_await_fails(self) -> None:
        """What cannot be called is refused; what returns a plain value is an error of each call."""
        await self.assert_refused("invalid_read", numbered(2), read="read")
        plain: Any = int
        self.assertEqual(await bounded_reads([("a", 1)], plain), {"a": {"error": "TypeError"}})

    async def test_changing_the_list_while_it_is_read_changes_nothing(self) -> None:
        """The calls that were checked are the calls that are made."""
        calls = numbered(3)

        async def read(number: int) -> int:
            calls.append(("late", 99))
            await asyncio.sleep(0)
            return number

        self.assertEqual(list(await bounded_reads(calls, read)), [call_id for call_id, _ in numbered(3)])


class StreamTests(ReadsTestCase):
    @staticmethod
    async def echo(argument: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(argument, Exception):
            raise argument
        return argument

    async def collect(self, calls: Any, limit: int = 2) -> list[tuple[str, Outcome]]:
        async with asyncio.timeout(HANG_SECONDS), contextlib.aclosing(stream_reads(calls, self.echo, limit)) as found:
            return [outcome async for outcome in found]

    async def test_sync_and_async_sources_give_every_outcome_with_its_id(self) -> None:
        """A list, an iterator and an async generator give the same outcomes, failures among them.

        Claims: C10-118, C10-124.
        """
        calls: list[tuple[str, Any]] = [*numbered(20), ("bad", LookupError("secret"))]

        async def source() -> AsyncIterator[tuple[str, Any]]:
            for call in calls:
                await asyncio.sleep(0)
                yield call

        expected = sorted(
            [*((call_id, {"value": n}) for call_id, n in numbered(20)), ("bad", {"error": "LookupError"})], key=str
        )
        for limit in (1, 3, 100):
            for given in (calls, iter(calls), source()):
                self.assertEqual(sorted(await self.collect(given, limit), key=str), expected)
        self.assertEqual(await self.collect([]), [])

    async def test_outcomes_come_as_reads_complete(self) -> None:
        """The second call ends first and is handed out first, while the first still runs."""
        first = asyncio.Event()

        async def read(name: str) -> str:
            if name == "slow":
                await first.wait()
            return name

        async with contextlib.aclosing(stream_reads([("a", "slow"), ("b", "fast")], read, 2)) as found:
            self.assertEqual(await anext(found), ("b", {"value": "fast"}))
            first.set()
            self.assertEqual(await anext(found), ("a", {"value": "slow"}))

    async def test_an_endless_source_is_pulled_only_when_there_is_room(self) -> None:
        """A consumer that stands still stops the source after `limit` calls; each outcome taken pulls one.

        Claims: C10-123, C10-124.
        """
        pulled = 0

        def endless() -> Iterator[tuple[str, int]]:
            nonlocal pulled
            for number in itertools.count():
                pulled += 1
                yield str(number), number

        async with contextlib.aclosing(stream_reads(endless(), self.echo, 3)) as found:
            await turns(50)
            self.assertEqual(pulled, 0)
            for taken in range(1, 200):
                await anext(found)
                await turns(20)
                self.assertEqual(pulled, taken + 3)

    async def test_only_so_many_reads_are_in_flight(self) -> None:
        """The peak of a stream is its limit."""
        in_flight = peak = 0

        async def read(number: int) -> int:
            nonlocal in_flight, peak
            in_flight += 1
            peak = max(peak, in_flight)
            await turns(3)
            in_flight -= 1
            return number

        async with contextlib.aclosing(stream_reads(numbered(50), read, 4)) as found:
            self.assertEqual(len([outcome async for outcome in found]), 50)
        self.assertEqual(peak, 4)

    async def test_a_slow_source_does_not_hold_back_what_is_ready(self) -> None:
        """While the source is waited for, outcomes that are there are handed out."""
        more = asyncio.Event()

        async def source() -> AsyncIterator[tuple[str, int]]:
            yield "a", 1
            await more.wait()
            yield "b", 2

        async with contextlib.aclosing(stream_reads(source(), self.echo, 2)) as found:
            self.assertEqual(await anext(found), ("a", {"value": 1}))
            more.set()
            self.assertEqual(await anext(found), ("b", {"value": 2}))

    async def test_breaking_off_stops_the_reads_and_the_source(self) -> None:
        """Closing the stream cancels what runs, waits for its end, and pulls nothing more."""
        gate = Gate()
        pulled: list[int] = []

        async def source() -> AsyncIterator[tuple[str, int]]:
            for number in itertools.count():
                pulled.append(number)
                yield str(number), number

        async def read(number: int) -> int:
            result: int = number if number == 0 else await gate(number)
            return result

        async with contextlib.aclosing(stream_reads(source(), read, 3)) as found:
            await anext(found)
            await turns()
        self.assertEqual((gate.entered, sorted(gate.ended)), ([1, 2, 3], [1, 2, 3]))
        self.assertEqual(pulled, [0, 1, 2, 3])

    async def test_a_cancelled_consumer_is_cancelled_and_leaves_nothing(self) -> None:
        """The consumer's own cancellation reaches the reads and is not swallowed, twice in a row neither."""
        gate = Gate()

        async def consume() -> None:
            async with contextlib.aclosing(stream_reads(numbered(9), gate, 2)) as found:
                async for _ in found:
                    pass

        for times in (1, 3):
            gate.ended.clear()
            task = asyncio.create_task(consume())
            await turns()
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            await self.assert_cancelled(task)
            self.assertEqual(sorted(gate.ended), [0, 1])

    async def test_slow_cleaning_up_is_waited_for_through_more_cancellations(self) -> None:
        """A consumer that is cancelled again, or cancelled while it closes the stream, leaves nothing running."""
        cleaned: list[int] = []
        closing = asyncio.Event()

        async def read(number: int) -> int:
            if number == 0:
                return number
            try:
                await asyncio.Event().wait()
            finally:
                await turns(20)
                cleaned.append(number)
            return number

        async def cancelled_while_waiting() -> None:
            async with contextlib.aclosing(stream_reads(numbered(9), read, 2)) as found:
                async for _ in found:
                    pass

        async def cancelled_while_closing() -> None:
            async with contextlib.aclosing(stream_reads(numbered(9), read, 2)) as found:
                await anext(found)
                await turns()
                closing.set()

        task = asyncio.create_task(cancelled_while_waiting())
        await turns()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        await self.assert_cancelled(task)
        self.assertEqual(sorted(cleaned), [1, 2])

        task = asyncio.create_task(cancelled_while_closing())
        await closing.wait()
        await turns(3)
        task.cancel()
        await self.assert_cancelled(task)
        self.assertEqual(sorted(cleaned), [1, 1, 2, 2])

    async def test_a_source_that_fails_is_heard_after_what_it_gave(self) -> None:
        """Its error comes as it is, after the outcome of every call that was pulled."""

        def broken() -> Iterator[tuple[str, int]]:
            yield from numbered(3)
            raise OSError("the file ended")

        async def broken_later() -> AsyncIterator[tuple[str, int]]:
            for call in numbered(3):
                await asyncio.sleep(0)
                yield call
            raise OSError("the file ended")

        for source in (broken(), broken_later()):
            taken: list[str] = []
            with self.assertRaisesRegex(OSError, "the file ended"):
                async with contextlib.aclosing(stream_reads(source, self.echo, 2)) as found:
                    async for call_id, _ in found:
                        taken.append(call_id)
            self.assertEqual(sorted(taken), [call_id for call_id, _ in numbered(3)])

    async def test_every_outcome_before_the_error_of_the_source_is_handed_out(self) -> None:
        """Three calls were pulled, so three outcomes come before the refusal of the fourth."""
        for fourth, code in (
            (("c00000", 1), None),
            (("x",), "invalid_call"),
            ("ab", "invalid_call"),
            ((1, 2), "invalid_call"),
        ):
            taken: list[str] = []

            async def consume(fourth: Any = fourth, taken: list[str] = taken) -> None:
                async with contextlib.aclosing(stream_reads([*numbered(3), fourth], self.echo, 2)) as found:
                    async for call_id, _ in found:
                        taken.append(call_id)

            if code is None:  # an id may come again when the first is done
                await consume()
                self.assertEqual(len(taken), 4)
            else:
                with self.assertRaises(ReadsError) as caught:
                    await consume()
                self.assertEqual(
                    (caught.exception.code, sorted(taken)), (code, [call_id for call_id, _ in numbered(3)])
                )

    async def test_an_error_that_nobody_fetches_is_not_reported_by_the_loop(self) -> None:
        """The source answers its cancellation with an error: closing looks at it, and no one is told."""
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

        async def source() -> AsyncIterator[tuple[str, int]]:
            yield "a", 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise OSError("the connection was cut") from None

        async with contextlib.aclosing(stream_reads(source(), self.echo, 2)) as found:
            self.assertEqual(await anext(found), ("a", {"value": 1}))
            await turns()
        del found
        gc.collect()
        self.assertEqual(told, [])

    async def test_an_id_is_not_in_flight_twice(self) -> None:
        """The second call of one id is refused while the first has not been handed out."""
        with self.assertRaises(ReadsError) as caught:
            await self.collect([("a", 1), ("a", 2)])
        self.assertEqual(caught.exception.code, "duplicate_call")

    async def test_a_foreign_cancelled_error_is_told_from_a_real_one(self) -> None:
        """Out of a read it is an outcome, out of the source a coded error; a cancelled read task ends the stream."""

        async def by_hand(_: int) -> None:
            raise asyncio.CancelledError

        async with contextlib.aclosing(stream_reads(numbered(1), by_hand)) as found:
            self.assertEqual(await anext(found), ("c00000", {"error": "CancelledError"}))

        async def source() -> AsyncIterator[tuple[str, int]]:
            yield "a", 1
            raise asyncio.CancelledError

        with self.assertRaises(ReadsError) as caught:
            await self.collect(source())
        self.assertEqual(caught.exception.code, "source_cancelled")

        async def cancels_itself(_: int) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        with self.assertRaises(asyncio.CancelledError):
            async with contextlib.aclosing(stream_reads(numbered(1), cancels_itself)) as cancelled:
                await anext(cancelled)

    async def test_a_source_that_swallows_its_cancellation_starts_no_read(self) -> None:
        """Closing the stream while the source waits: what it gives afterwards is not read."""
        reader = mock.AsyncMock()

        async def stubborn() -> AsyncIterator[tuple[str, int]]:
            yield "a", 1
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            yield "b", 2

        async with contextlib.aclosing(stream_reads(stubborn(), reader, 2)) as found:
            await anext(found)
            await turns()
        self.assertEqual(reader.await_count, 1)

    async def test_the_source_runs_in_one_task(self) -> None:
        """A timeout scope that spans two calls of the source is entered and left by the same task."""
        tasks: set[Any] = set()

        async def source() -> AsyncIterator[tuple[str, int]]:
            async with asyncio.timeout(HANG_SECONDS):
                for call in numbered(5):
                    tasks.add(asyncio.current_task())
                    yield call

        self.assertEqual(len(await self.collect(source(), 1)), 5)
        self.assertEqual(len(tasks), 1)

    async def test_a_forgotten_stream_is_closed_by_the_loop(self) -> None:
        """`break` without closing: the loop closes the generator when nobody holds it, and no task is left."""
        async for _ in stream_reads(numbered(100), self.echo, 2):
            break
        gc.collect()
        await turns(30)
        self.assertEqual({asyncio.current_task()}, asyncio.all_tasks())

    async def test_bad_arguments_are_refused_at_the_first_step(self) -> None:
        """Limit, reader and source are checked before anything is pulled."""
        cases: list[tuple[str, Any, Any, Any]] = [
            ("invalid_limit", numbered(1), self.echo, 0),
            ("invalid_limit", numbered(1), self.echo, True),
            ("invalid_read", numbered(1), None, 2),
            ("invalid_calls", None, self.echo, 2),
            ("invalid_calls", "ab", self.echo, 2),
            ("invalid_calls", 5, self.echo, 2),
        ]
        for code, calls, read, limit in cases:
            with self.assertRaises(ReadsError) as caught:
                await anext(stream_reads(calls, read, limit))
            self.assertEqual(caught.exception.code, code)

    async def test_an_unusual_error_of_a_read_comes_out_as_it_is(self) -> None:
        """What is no `Exception` ends the stream; the other read has ended when it is raised."""

        class Unusual(BaseException):
            pass

        gate = Gate()

        async def read(number: int) -> int:
            if number == 1:
                raise Unusual
            result: int = await gate(number)
            return result

        with self.assertRaises(Unusual):
            async with contextlib.aclosing(stream_reads(numbered(3), read, 2)) as found:
                await anext(found)
        self.assertEqual(gate.entered, gate.ended)


class OrderTests(ReadsTestCase):
    async def test_a_read_that_needs_another_waits_for_it(self) -> None:
        """Order first, then its shipment: two runs one after the other, the second made of the first's answer.

        Claims: C10-097.
        """
        shipments = {"A": "S-1", "B": "S-2"}

        async def order(order_id: str) -> str:
            return shipments[order_id]

        async def shipment(number: str) -> str:
            return f"{number} on its way"

        found = await bounded_reads([(name, name) for name in shipments], order)
        second = [(call_id, outcome["value"]) for call_id, outcome in found.items()]
        self.assertEqual(
            await bounded_reads(second, shipment),
            {"A": {"value": "S-1 on its way"}, "B": {"value": "S-2 on its way"}},
        )


if __name__ == "__main__":
    unittest.main()
