"""Bounded reads: identity, bounds, cancellation, and nothing left behind.

Order is forced with events and barriers; `asyncio.sleep(0)` only gives the loop a turn.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import logging
import random
import unittest
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10 import concurrency
from chapter10.concurrency import ReadsError, bounded_reads
from chapter10.tests.reading import HANG_SECONDS, Gate, ReadsTestCase, numbered, turns


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
        """`KeyboardInterrupt` and `SystemExit` in a read leave the event loop.

        Claims: C10-121.
        """

        async def run(error: type[BaseException]) -> None:
            def read(_: int) -> Awaitable[None]:
                raise error

            await bounded_reads(numbered(2), read)

        # The loop reports the worker that nobody could await any more; that is not what is tested.
        with mock.patch.object(logging.getLogger("asyncio"), "disabled", True):
            for error in (KeyboardInterrupt, SystemExit):
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
        self.assertEqual(sorted(concurrency.__all__), ["MAX_CALLS", "Outcome", "ReadsError", "bounded_reads"])


class NoReadStartsAfterACancel(ReadsTestCase):
    """Between the cancel of the caller and the word of the group a worker may be ready to go on."""

    async def test_a_ready_worker_starts_no_other_read(self) -> None:
        """R4 also where every further read would answer at once. Claims: C10-121."""
        started: list[int] = []
        first = asyncio.Event()

        async def read(number: int) -> int:
            started.append(number)
            if number == 0:
                await first.wait()
            return number

        task = asyncio.create_task(bounded_reads([(str(number), number) for number in range(1000)], read, 1))
        while not started:
            await asyncio.sleep(0)
        first.set()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(started, [0])

    async def test_a_pair_that_is_changed_meanwhile_changes_nothing(self) -> None:
        """The calls are those of the moment of the call, also where a pair is a list. Claims: C10-108."""
        pairs: list[list[Any]] = [["a", 1], ["b", 2]]

        async def read(number: int) -> int:
            pairs[1][0] = "a"
            return number

        calls: Any = pairs
        self.assertEqual(await bounded_reads(calls, read, 1), {"a": {"value": 1}, "b": {"value": 2}})


class RefusalTests(ReadsTestCase):
    async def assert_refused(self, code: str, calls: Any, limit: Any = 2, read: Any = None) -> None:
        reader = mock.AsyncMock()
        with self.assertRaises(ReadsError) as caught:
            await bounded_reads(calls, reader if read is None else read, limit)
        self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual(str(caught.exception), code)
        reader.assert_not_called()

    async def test_who_names_no_limit_has_two_reads_in_flight(self) -> None:
        """The default is the two of the chapter."""
        gate = Gate()
        task = asyncio.create_task(bounded_reads(numbered(5), gate))
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
