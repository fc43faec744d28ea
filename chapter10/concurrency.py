"""Independent reads, a few at a time; the outcome belongs to the call's id, not to the order of arrival.

`bounded_reads` takes a finite list and gives one dict; `stream_reads` takes a stream that may never end
and gives outcomes as they come. Both are for *reads that do not need one another*: a second call that
needs the answer of the first has to wait for it, and writes have other rules (a failed read may simply
be missing; a half-done set of writes may not). There is no batch of writes here on purpose.

What holds
    R1  At most `limit` reads are in flight. A list makes `min(limit, len(calls))` tasks, however long.
    R2  Each call is read exactly once, and its outcome stands under its own id.
    R3  A read that fails leaves `{"error": ExceptionClassName}` and the others go on. The text of an
        exception is never kept: it may hold what a model must not see.
    R4  Cancelling the caller cancels the reads, waits for the end of each, and is never answered with a
        result. No read starts after it, not even when a running one swallowed the cancellation.
    R5  Nothing outlives the call (or the closing of the stream): no task is left.
    R6  A `CancelledError` that comes out of a read though nobody cancelled it is that call's error.
    R7  A stream holds at most `limit` calls and outcomes, whatever its length: it pulls only when it has
        room, so that a slow consumer slows the source down.

Why two workers never take the same call: they share one iterator in one event loop, and between taking
an item and the next `await` nothing else runs. That says nothing about threads, and nothing about
processes, which need an atomic claim (see `jobs`).

The cost of many reads that do nothing but give way once: 1.05 times a pool without any check when the ids
come in order, 1.2 times when they must be sorted; `limit` tasks; and for each call at most 90 bytes besides its
outcome (40 of them stay). The outcome itself, a dict of one entry, takes 184 bytes, which is the price of the
published shape; a consumer that cannot pay it takes the stream, which keeps none.

What it does not do: spread computing over cores (one event loop only overlaps waiting), retry, limit the
time of a read (`asyncio.timeout` inside the read does), or stop a read that swallows its cancellation
and goes on: it is waited for. A class name is enough to teach with; a service answers with codes.

`KeyboardInterrupt` and `SystemExit` pass through. Any other exception that is no `Exception` ends the
run: out of `bounded_reads` in the group that `asyncio.TaskGroup` makes, out of a stream as it is.

Source: the chapter's section on concurrent reads (claims C10-093 to C10-124).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from operator import eq, itemgetter
from typing import Any, Final, NoReturn, TypeVar

from chapter10.canonical import CodedError

__all__ = ["MAX_CALLS", "Outcome", "ReadsError", "bounded_reads", "stream_reads"]

MAX_CALLS: Final = 10_000_000
"""The most calls of one `bounded_reads`; each costs memory until the end. A longer input is a stream."""

Outcome = dict[str, Any]
"""`{"value": what the read returned}` or `{"error": class name of what it raised}`."""

Argument = TypeVar("Argument")
_END: Final = object()
_call_id: Final = itemgetter(0)


class ReadsError(CodedError, ValueError):
    """Raised when the calls cannot be run as they are, by `bounded_reads` before any read has started.

    `invalid_calls`, `invalid_call`, `duplicate_call`, `too_many_calls`, `invalid_limit`, `invalid_read`;
    a stream also raises `source_cancelled` when its source stops with a `CancelledError` of its own.
    """


async def bounded_reads(
    calls: Sequence[tuple[str, Argument]],
    read: Callable[[Argument], Awaitable[Any]],
    limit: int = 2,
) -> dict[str, Outcome]:
    """Await `read(argument)` for every `(call_id, argument)`, at most `limit` at a time.

    Returns the outcomes by call id, sorted by id. `calls` is a list or tuple of pairs whose ids are
    distinct strings. Raises `ReadsError` before any read has started.
    Source: claims C10-104 to C10-123.
    """
    _check(read, limit)
    calls = _checked_calls(calls)
    in_order = _ids_to_sort_by(calls)
    outcomes: list[Any] = [None] * len(calls)  # by place: a million look-ups by id cost more
    pending = enumerate(calls)
    stopped = False

    async def worker() -> None:
        nonlocal stopped
        task = asyncio.current_task()
        assert task is not None
        try:
            for place, (_, argument) in pending:
                # `_outcome` written out: a coroutine less for each call is a tenth of the pool's time.
                try:
                    outcomes[place] = {"value": await read(argument)}
                except asyncio.CancelledError:
                    if task.cancelling():
                        raise
                    outcomes[place] = {"error": "CancelledError"}
                except Exception as error:
                    outcomes[place] = {"error": type(error).__name__}
                if task.cancelling():  # the read swallowed it
                    raise asyncio.CancelledError
        except asyncio.CancelledError:
            stopped = True
            raise

    async with asyncio.TaskGroup() as group:
        for _ in range(min(limit, len(calls))):
            group.create_task(worker())
    if stopped:  # somebody cancelled a worker and not the caller; a part must not look like the whole
        raise asyncio.CancelledError
    by_id = dict(zip(map(_call_id, calls), outcomes, strict=True))
    return by_id if in_order is None else {call_id: by_id[call_id] for call_id in in_order}


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
    Raises `ReadsError` at the first step. Source: claims C10-123, C10-124.
    """
    _check(read, limit)
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


def _checked_calls(calls: Sequence[tuple[str, Argument]]) -> tuple[tuple[str, Argument], ...]:
    """Return the calls as a tuple of its own, which the caller cannot change while it is worked off."""
    if type(calls) not in (list, tuple):
        _refuse("invalid_calls")
    if len(calls) > MAX_CALLS:
        _refuse("too_many_calls")
    calls = tuple(calls)
    if not set(map(type, calls)) <= {tuple, list} or not set(map(len, calls)) <= {2}:
        _refuse("invalid_call")
    if not set(map(type, map(_call_id, calls))) <= {str}:
        _refuse("invalid_call")
    return calls


def _ids_to_sort_by(calls: tuple[tuple[str, Any], ...]) -> list[str] | None:
    """Return the ids in order, or None when the calls stand in that order already. Refuses one that stands twice.

    No list is kept that is not needed: the garbage collection looks through all of them again and again
    while the outcomes become more, and of a million reads that is half the time.
    """
    ids = list(map(_call_id, calls))
    in_order = sorted(ids)
    if any(map(eq, in_order, islice(in_order, 1, None))):
        _refuse("duplicate_call")
    return None if ids == in_order else in_order


def _check(read: object, limit: object) -> None:
    if not callable(read):
        _refuse("invalid_read")
    if type(limit) is not int or limit < 1:
        _refuse("invalid_limit")


def _refuse(code: str) -> NoReturn:
    raise ReadsError(code)
