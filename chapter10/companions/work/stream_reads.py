"""Reads of a stream that may never end, a few at a time: outcomes come as they complete, and a slow consumer slows it.

The hard version of `concurrency.bounded_reads`, with the same outcomes, for input that is no list. R2 to R6 hold here
as there: each call once and under its own id, a failure is one call's, a cancellation is never swallowed, nothing
outlives the closing of the stream.

What holds besides
    R7  A stream holds at most `limit` calls and outcomes, whatever its length: it pulls only when it has
        room, so that a slow consumer slows the source down.

A service with a queue in front needs the same: a bound on what runs is no bound on what waits.

`KeyboardInterrupt` and `SystemExit` pass through. Any other exception that is no `Exception` ends the stream and comes
out as it is.

Source: the chapter's section on concurrent reads, on input that keeps coming (claims C10-123, C10-124).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, Final, NoReturn, TypeVar

from chapter10.concurrency import Outcome, ReadsError

__all__ = ["stream_reads"]

Argument = TypeVar("Argument")
_END: Final = object()


async def stream_reads(
    calls: Iterable[tuple[str, Argument]] | AsyncIterable[tuple[str, Argument]],
    read: Callable[[Argument], Awaitable[Any]],
    limit: int = 2,
) -> AsyncGenerator[tuple[str, Outcome], None]:
    """Yield `(call_id, outcome)` as reads complete, over a source that may be endless, sync or async.

    A consumer that may break off wraps it in `contextlib.aclosing`, because `break` alone closes a
    generator at some later time. An id must not be in flight twice; whether it came before is not
    remembered. An error of the source, or a call that is no pair, is raised after every outcome of what
    was pulled before it. The source is iterated in one task and is not closed here.
    Raises `ReadsError`: at the first step `invalid_read`, `invalid_limit` or `invalid_calls`; later
    `invalid_call`, `duplicate_call`, and `source_cancelled` when the source stops with a `CancelledError` of
    its own. Source: claims C10-123, C10-124.
    """
    if not callable(read):
        _refuse("invalid_read")
    if type(limit) is not int or limit < 1:
        _refuse("invalid_limit")
    stream = _Stream(_puller(calls), read, limit)
    feeder = asyncio.create_task(stream.feed())
    feeder.add_done_callback(lambda _: stream.news.set())
    try:
        while True:
            while stream.ready:
                call_id, task = stream.take()
                yield call_id, task.result()
            if feeder.done() and not stream.in_flight:
                break
            stream.news.clear()
            await stream.news.wait()
        feeder.result()  # raises what the source raised
    finally:
        await _stop([feeder, *stream.in_flight.values()])


class _Stream:
    """What the feeder, the reads and the consumer of one stream share."""

    def __init__(self, pull: Callable[[], Awaitable[Any]], read: Callable[[Any], Awaitable[Any]], limit: int) -> None:
        self.pull = pull
        self.read = read
        self.limit = limit
        self.in_flight: dict[str, asyncio.Task[Outcome]] = {}  # pulled and not taken yet; at most `limit`
        self.ready: deque[str] = deque()  # those of them that are done, in the order of their end
        self.room = asyncio.Event()  # set when an outcome was taken
        self.news = asyncio.Event()  # set when there is something for the consumer to look at

    async def feed(self) -> None:
        """Pull a call when there is room for it, and start its read."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            while len(self.in_flight) >= self.limit:
                self.room.clear()
                await self.room.wait()
            try:
                item = await self.pull()
            except asyncio.CancelledError:
                if task.cancelling():
                    raise
                raise ReadsError("source_cancelled") from None
            if task.cancelling():  # the source swallowed it
                raise asyncio.CancelledError
            if item is _END:
                return
            self._start(item)

    def take(self) -> tuple[str, asyncio.Task[Outcome]]:
        """Hand over the read that has been ready longest, which makes room for another."""
        call_id = self.ready.popleft()
        self.room.set()
        return call_id, self.in_flight.pop(call_id)

    def _start(self, item: Any) -> None:
        if type(item) not in (tuple, list) or len(item) != 2 or type(item[0]) is not str:
            _refuse("invalid_call")
        call_id, argument = item
        if call_id in self.in_flight:
            _refuse("duplicate_call")
        task = self.in_flight[call_id] = asyncio.create_task(_outcome(argument, self.read))
        task.add_done_callback(lambda _: self._finish(call_id))

    def _finish(self, call_id: str) -> None:
        self.ready.append(call_id)
        self.news.set()


async def _outcome(argument: Argument, read: Callable[[Argument], Awaitable[Any]]) -> Outcome:
    """Await one read and say how it ended; only a cancellation that somebody asked for passes."""
    try:
        return {"value": await read(argument)}
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        if task.cancelling():
            raise
        return {"error": "CancelledError"}
    except Exception as error:
        return {"error": type(error).__name__}


async def _stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel `tasks` and wait for the end of each, even when the waiting itself is cancelled."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    waiting = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while waiting:
        try:
            _, waiting = await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
            waiting = {task for task in waiting if not task.done()}
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at, so that the event loop does not report it
    if cancelled is not None:
        raise cancelled


def _puller(calls: object) -> Callable[[], Awaitable[Any]]:
    """Return a coroutine function that gives the next call of a sync or async source, then `_END`."""
    if isinstance(calls, AsyncIterable):
        from_async = aiter(calls)

        async def pull() -> Any:
            return await anext(from_async, _END)

    elif isinstance(calls, Iterable) and not isinstance(calls, str | bytes):
        from_sync = iter(calls)

        async def pull() -> Any:
            return next(from_sync, _END)

    else:
        _refuse("invalid_calls")
    return pull


def _refuse(code: str) -> NoReturn:
    raise ReadsError(code)
