"""One attempt: a handler gets a place and some seconds, and afterwards it is known how it ended.

A1  A handler never holds its caller for longer than its seconds and, for one that can be stopped, the grace.
A2  Whether the time was over is known from our own timer. A handler may raise `TimeoutError` for reasons of
    its own, and that is another ending.
A3  A cancel of the caller is never lost, not even in the tick in which the handler ends.
A4  After its time is over, a handler's late value counts for nothing.
A5  A place is given back when the handler has really ended, and not before. So what ignores its end (a
    coroutine that eats the cancel, a thread, which nobody can cancel) can pile up to the limit only.

An `async` handler runs in a task of its own: within the caller's task nothing could leave it behind. From
Python 3.12 the task starts at once, and on 3.11 it is given one turn of the loop, so that a handler that waits
for nothing needs no timer and nobody to wake. Its time counts from before that. Any other handler runs in a
thread of its own, as a daemon: the interpreter's end does not wait for it.

`asyncio.wait_for` is not used. It waits for ever for a stubborn task, hands out a late value as if it were on
time, and on Python 3.11 loses a cancel that comes while the inner task ends. `companions.basics.tasks` tells more of
an ending; this module does less, and costs about half.

Source: the document on the tool registry (claims T6-002, T6-011, T6-027, T6-040; X-06).
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

__all__ = ["MAX_WAITING", "Ending", "Places", "Stop", "is_async", "run"]

MAX_WAITING: Final = 16_384
"""Calls that may wait for one kind of place."""

_STARTS_AT_ONCE: Final = sys.version_info >= (3, 12)
_log: Final = logging.getLogger(__name__)
_abandoned: Final[set[asyncio.Task[Any]]] = set()
"""Tasks that ignored their cancel, kept until they end. Bounded by the places that they hold."""


class Ending:
    """How an attempt ended. `error` is None for a value; a time that was over is a `TimeoutError` of ours.

    `started`: the handler was entered. `ended`: it runs no more, so what it has not done it will not do.
    """

    __slots__ = ("ended", "error", "started", "value")

    def __init__(
        self, value: Any = None, error: BaseException | None = None, *, started: bool = True, ended: bool = True
    ) -> None:
        self.value = value
        self.error = error
        self.started = started
        self.ended = ended


class Stop:
    """How a handler in a thread learns that nobody waits for it any more; it may look from any thread."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def is_set(self) -> bool:
        """Say whether the call was given up."""
        return self._event.is_set()

    def set(self) -> None:
        """Give the call up."""
        self._event.set()


class Places:
    """So many handlers at once, first come first served, across threads and event loops.

    `asyncio.Semaphore` belongs to one loop; a thread that ends late gives its place back to another.
    """

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._free = limit
        self._waiting: deque[_Waiter] = deque()

    @property
    def free(self) -> int:
        """The places that nobody has."""
        return self._free

    def take_now(self) -> bool:
        """Take a place if one is free; then nobody waits for it, since a place that is given back is handed on."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
        return False

    async def take(self, seconds: float) -> bool:
        """Take a place, waiting at most `seconds`; False when there was none, or too many wait."""
        waiter = _Waiter()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            if len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting.append(waiter)
        try:
            await _until(waiter.woken, seconds)
        except asyncio.CancelledError:
            if not self._withdraw(waiter):
                self.give_back()
            raise
        return not self._withdraw(waiter)

    def give_back(self) -> None:
        """Give a place back: the first that waits gets it."""
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                if waiter.wake():
                    return
            self._free += 1

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Take a waiter out of the line; False when a place was given to it."""
        with self._lock:
            if waiter.served:
                return False
            self._waiting.remove(waiter)
            return True


class _Waiter:
    __slots__ = ("loop", "served", "woken")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.woken: asyncio.Future[None] = self.loop.create_future()
        self.served = False

    def wake(self) -> bool:
        try:
            self.loop.call_soon_threadsafe(_wake, self.woken)
        except RuntimeError:  # its loop is closed: nobody waits there any more
            return False
        self.served = True
        return True


def is_async(handler: Callable[..., Any]) -> bool:
    """Say whether calling `handler` gives a coroutine; also for a `partial` and for an object with `__call__`."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


async def run(
    handler: Callable[..., Any],
    arguments: dict[str, Any],
    *,
    asynchronous: bool,
    seconds: float,
    grace_seconds: float,
    on_end: Callable[[], None],
    on_start: Callable[[], None] | None = None,
    stop: Stop | None = None,
) -> Ending:
    """Call `handler(**arguments)` for at most `seconds`, which are more than zero, and return its `Ending`.

    `on_start` is called in the loop when the handler is, and not at all if a cancel comes before that. `on_end`
    is called once, when the handler has really ended, from whatever thread that happens in. `stop`  is what a
    handler in a thread looks at; with it, and for a coroutine, an end is waited for during the grace.  Raises
    `CancelledError` when the caller is cancelled, after the same grace; what the handler raises, a
    `CancelledError` of its own included, is in the ending.
    """
    if not asynchronous:
        if on_start is not None:
            on_start()
        return await _run_thread(handler, arguments, seconds, grace_seconds, on_end, stop)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    execution = _Execution(handler, arguments, on_end, on_start)
    task = execution.start(loop)
    try:
        if not _STARTS_AT_ONCE:
            await asyncio.sleep(0)  # its first step comes before our next one
        if not task.done():
            woken = execution.woken = loop.create_future()
            timer = loop.call_at(end, _wake, woken)
            try:
                await woken
            finally:
                timer.cancel()
    except asyncio.CancelledError:
        await execution.stop(task, grace_seconds)
        raise
    if not execution.ended:
        return Ending(error=TimeoutError(), ended=await execution.stop(task, grace_seconds))
    if execution.ending.error is not None and not task.cancelled():
        task.exception()  # a stop that is raised again by the caller; asking keeps the loop from complaining
    return execution.ending


class _Execution:
    """A coroutine handler on its way. It notes its own end and wakes who waits, in one turn of the loop."""

    __slots__ = ("_arguments", "_given_up", "_handler", "_on_end", "_on_start", "ended", "ending", "woken")

    def __init__(
        self,
        handler: Callable[..., Any],
        arguments: dict[str, Any],
        on_end: Callable[[], None],
        on_start: Callable[[], None] | None = None,
    ) -> None:
        self._handler = handler
        self._arguments = arguments
        self._on_start = on_start
        self._on_end = on_end
        self._given_up = False
        self.ending = Ending()
        self.ended = False
        self.woken: asyncio.Future[None] | None = None  # None: nobody waits yet

    def start(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        if sys.version_info >= (3, 12):
            return asyncio.Task(self._call(), loop=loop, eager_start=True)
        return loop.create_task(self._call())

    async def _call(self) -> None:
        try:
            if self._on_start is not None:
                self._on_start()
            self.ending.value = await self._handler(**self._arguments)
        except BaseException as error:
            self.ending.error = error
            # Ctrl-C is raised again by who waits, where it does not tear the loop; if nobody does, here.
            if self._given_up or isinstance(error, asyncio.CancelledError | GeneratorExit):
                raise
        finally:
            self.ended = True
            self._on_end()
            if self.woken is not None and not self.woken.done():
                self.woken.set_result(None)

    async def stop(self, task: asyncio.Task[None], grace_seconds: float) -> bool:
        """Cancel the task once and wait for the grace; keep it in sight while it goes on. Say whether it ended."""
        self._given_up = True
        _abandoned.add(task)
        task.add_done_callback(self._note_late_end)
        task.cancel()
        return await _until(task, grace_seconds)

    def _note_late_end(self, task: asyncio.Task[None]) -> None:
        _abandoned.discard(task)
        if not self.ended:  # cancelled before its first step, so that nothing in it ran
            self._on_end()
        if not task.cancelled() and task.exception() is not None:  # asking also keeps the loop from complaining
            _log.info("a handler failed after its time was over", exc_info=task.exception())


async def _run_thread(
    handler: Callable[..., Any],
    arguments: dict[str, Any],
    seconds: float,
    grace_seconds: float,
    on_end: Callable[[], None],
    stop: Stop | None,
) -> Ending:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Ending] = loop.create_future()
    context = contextvars.copy_context()

    def body() -> None:
        ending = Ending()
        try:
            ending.value = context.run(handler, **arguments)
        except BaseException as error:
            ending.error = error
            if loop.is_closed():  # nobody is left who could raise it again
                raise
        finally:
            on_end()
        try:
            loop.call_soon_threadsafe(_deliver, ended, ending)
        except RuntimeError:  # the loop is closed: nobody waits for a late result
            pass

    thread = threading.Thread(target=body, name="tool handler", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the system has no more threads
        on_end()
        return Ending(error=error, started=False)
    try:
        in_time = await _until(ended, seconds)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
            await _until(ended, grace_seconds)
        raise
    if in_time:
        return ended.result()
    if stop is not None:
        stop.set()
        return Ending(error=TimeoutError(), ended=await _until(ended, grace_seconds))
    return Ending(error=TimeoutError(), ended=False)


def _deliver(ended: asyncio.Future[Ending], ending: Ending) -> None:
    if not ended.done():
        ended.set_result(ending)


async def _until(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait until `future` is done, at most `seconds`; say whether it is. A cancel of the caller comes out."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = loop.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await woken
    finally:
        timer.cancel()
        future.remove_done_callback(wake)
    return future.done()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
