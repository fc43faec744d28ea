"""Read streams: outcomes as they come, room before the next pull, and nothing left behind.

Order is forced with events and barriers; `asyncio.sleep(0)` only gives the loop a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import unittest
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any
from unittest import mock

from chapter10.companions.work.stream_reads import stream_reads
from chapter10.concurrency import Outcome, ReadsError, bounded_reads
from chapter10.tests.reading import HANG_SECONDS, Gate, ReadsTestCase, numbered, turns


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

    async def test_what_has_been_ready_longest_is_handed_out_first(self) -> None:
        """A consumer that was away finds its outcomes in the order in which the reads ended."""
        ends = {name: asyncio.Event() for name in "abc"}

        async def read(name: str) -> str:
            await ends[name].wait()
            return name

        calls = [(name, name) for name in "abc"]
        async with contextlib.aclosing(stream_reads(calls, read, 3)) as found:
            ends["b"].set()
            names = [(await anext(found))[0]]
            for name in "ca":
                ends[name].set()
                await turns()
            names += [(await anext(found))[0] for _ in "ca"]
        self.assertEqual(names, ["b", "c", "a"])

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

    async def test_a_stream_gives_what_a_list_gives(self) -> None:
        """The same ids with the same outcomes, failures and a `CancelledError` of a read's own among them."""
        calls: list[tuple[str, Any]] = [*numbered(30), ("bad", LookupError("secret"))]

        async def read(argument: Any) -> Any:
            if argument == 7:
                raise asyncio.CancelledError
            return await self.echo(argument)

        for limit in (1, 4, 100):
            async with contextlib.aclosing(stream_reads(calls, read, limit)) as found:
                streamed = [outcome async for outcome in found]
            self.assertEqual(sorted(streamed, key=str), sorted((await bounded_reads(calls, read, limit)).items()))

    async def test_who_names_no_limit_has_two_reads_in_flight(self) -> None:
        """The default is the two of the chapter."""
        gate = Gate()

        async def consume() -> None:
            async with contextlib.aclosing(stream_reads(numbered(5), gate)) as found:
                self.assertEqual(len([outcome async for outcome in found]), 5)

        task = asyncio.create_task(consume())
        await turns()
        self.assertEqual(gate.entered, [0, 1])
        gate.open.set()
        await task
        self.assertEqual(gate.peak, 2)

    def test_an_interrupt_passes_through(self) -> None:
        """`KeyboardInterrupt` and `SystemExit` in a read leave the event loop.

        Claims: C10-121.
        """

        async def run(error: type[BaseException]) -> None:
            def read(_: int) -> Awaitable[None]:
                raise error

            async with contextlib.aclosing(stream_reads(numbered(2), read)) as outcomes:
                async for _ in outcomes:
                    pass

        # The loop reports the task that nobody could await any more; that is not what is tested.
        with mock.patch.object(logging.getLogger("asyncio"), "disabled", True):
            for error in (KeyboardInterrupt, SystemExit):
                with self.assertRaises(error):
                    asyncio.run(run(error))
            gc.collect()


if __name__ == "__main__":
    unittest.main()
