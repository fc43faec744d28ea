"""Own a task: start it, wait for it, stop it, and know in every case how it ended.

Everything here that sets a limit to somebody else's coroutine goes through `own`, because the ready-made tools do not
hold on every supported Python. `asyncio.wait_for` waits for ever for a task that ignores its cancel, hands out a late
value as if it were on time, and on 3.11 loses a cancel that arrives while the inner task finishes.

T1  The task is ours: at the end of the call it is done, or it is kept in `abandoned()` until it is.
T2  An outer cancel is never lost. It stops the task and stands in `Ending.outer`; the caller raises it again.
T3  Nothing waits longer than limit + grace, however stubborn the task is.
T4  A task is asked to stop once. A second cancel would land in its clean-up and break that.
T5  Whether our own limit ended it is known from our own record, and not from the type of an error: a tool may raise
    `TimeoutError` for reasons of its own.

What it does not do: end a task that ignores its cancel. Such a task runs on as long as the loop does, and `asyncio.run`
waits for it at its end. Only a process can be ended from outside: see `companions.interruption.process_stop`.
Source: the document on interruption, sections 3 and 4 (claims I4-008, I4-020, I4-098; X-06).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, overload

__all__ = ["Ending", "Why", "abandoned", "leaves", "own", "until"]

T = TypeVar("T")

Why = Literal["itself", "limit", "stop", "caller"]
"""What ended the waiting: the task itself, our time limit, the `stop` future, or a cancel of the caller."""

_abandoned: Final[set[asyncio.Task[Any]]] = set()
"""Tasks that ignored their cancel, kept so that the garbage collector cannot take them. As many as still run."""


@dataclass(frozen=True)  # no slots: with them `Ending[int](...)` fails before Python 3.13
class Ending(Generic[T]):
    """How an owned task ended, or that it has not."""

    why: Why
    done: bool
    """False: it ignored its cancel for the whole grace, and runs on."""
    returned: bool
    """True: `value` is what it returned, perhaps after it had been asked to stop."""
    value: T | None = None
    error: BaseException | None = None
    """What it raised; a `CancelledError` when it obeyed."""
    outer: asyncio.CancelledError | None = None
    """The cancel of the caller. Who gets it raises it again, after having noted the rest."""


async def own(
    make: Callable[[], Awaitable[T]],
    *,
    grace_s: float,
    limit_s: float | None = None,
    stop: asyncio.Future[Any] | None = None,
    shielded: bool = False,
    on_late_end: Callable[[Ending[T]], None] | None = None,
) -> Ending[T]:
    """Run `await make()` in a task of its own and return its `Ending`; never raises what the task raised.

    `limit_s`: seconds until it is asked to stop, None for no limit; never zero or less, since a timer that is over
    before it starts hides a cancel that came earlier. `grace_s`: seconds that it has to stop. `stop`: a future; when
    it is done, the task is asked to stop. `shielded`: a cancel of the caller does not touch the task, which keeps its
    whole limit. `on_late_end`: called with the ending of a task that had been abandoned.

    Raises `ValueError` for a limit or a grace that is not above zero, and for a shield without a limit.
    """
    if (limit_s is not None and not limit_s > 0) or not grace_s > 0 or (shielded and limit_s is None):
        raise ValueError("limit and grace are above zero, and a shield has a limit")
    task: asyncio.Task[T] = asyncio.get_running_loop().create_task(_call(make))
    outer = await _first_end(task, limit_s, stop, shielded)
    if task.done():
        return _ending(task, "itself", outer)
    why: Why = "limit"
    if outer is not None and not shielded:
        why = "caller"
    elif stop is not None and stop.done():
        why = "stop"
    task.cancel()
    outer = await until(task, grace_s, outer)
    if not task.done():
        _abandon(task, why, on_late_end)
        return Ending(why, done=False, returned=False, outer=outer)
    return _ending(task, why, outer)


def abandoned() -> frozenset[asyncio.Task[Any]]:
    """Return the tasks that ignored their cancel and still run."""
    return frozenset(_abandoned)


@overload
def leaves(error: Exception) -> list[Exception]: ...
@overload
def leaves(error: BaseException) -> list[BaseException]: ...
def leaves(error: BaseException) -> Any:
    """Return the errors that a group is made of, in their order and however deep; an error alone is its own leaf.

    A tool that uses a task group raises a group for what it would have raised itself; whoever decides by the type of
    an error asks for the leaves, or each group would be an error of no known kind.
    """
    found = []
    waiting = [error]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, BaseExceptionGroup):
            waiting.extend(reversed(inner.exceptions))
        else:
            found.append(inner)
    return found


async def _call(make: Callable[[], Awaitable[T]]) -> T:
    # Called in here, so that what `make` itself raises is the task's error too.
    return await make()


async def _first_end(
    task: asyncio.Task[T], limit_s: float | None, stop: asyncio.Future[Any] | None, shielded: bool
) -> asyncio.CancelledError | None:
    """Wait for the task, the limit, the stop or a cancel of the caller; return that cancel, if any."""
    loop = asyncio.get_running_loop()
    waiting: set[asyncio.Future[Any]] = {task} if stop is None else {task, stop}
    end = None if limit_s is None else loop.time() + limit_s
    outer: asyncio.CancelledError | None = None
    left = limit_s
    while left is None or left > 0:
        try:
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            break
        except asyncio.CancelledError as error:
            outer = outer or error
            if not shielded:
                break
        left = None if end is None else end - loop.time()
    return outer


async def until(
    task: asyncio.Future[Any], seconds: float, outer: asyncio.CancelledError | None = None
) -> asyncio.CancelledError | None:
    """Wait for a task or future through any number of cancels of the caller, but not longer than `seconds`.

    Returns `outer`, or else the first of these cancels; the caller raises it again. The task itself is not touched.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not task.done() and (left := end - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as error:
            outer = outer or error
    return outer


def _ending(task: asyncio.Task[T], why: Why, outer: asyncio.CancelledError | None = None) -> Ending[T]:
    if task.cancelled():
        return Ending(why, done=True, returned=False, error=asyncio.CancelledError(), outer=outer)
    error = task.exception()
    if error is not None:
        return Ending(why, done=True, returned=False, error=error, outer=outer)
    return Ending(why, done=True, returned=True, value=task.result(), outer=outer)


def _abandon(task: asyncio.Task[T], why: Why, on_late_end: Callable[[Ending[T]], None] | None) -> None:
    def ended(task: asyncio.Task[T]) -> None:
        _abandoned.discard(task)
        ending = _ending(task, why)
        if on_late_end is not None:
            on_late_end(ending)

    _abandoned.add(task)
    task.add_done_callback(ended)
