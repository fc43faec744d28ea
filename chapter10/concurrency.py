"""Independent reads, a few at a time; the outcome belongs to the call's id, not to the order of arrival.

For *reads that do not need one another*: a second call that needs the answer of the first has to wait for it,
and writes have other rules (a failed read may simply be missing; a half-done set of writes may not). There is
no batch of writes here on purpose.

What holds
    R1  At most `limit` reads are in flight: `min(limit, len(calls))` tasks, however long the list.
    R2  Each call is read exactly once, and its outcome stands under its own id.
    R3  A read that fails leaves `{"error": ExceptionClassName}` and the others go on. The text of an
        exception is never kept: it may hold what a model must not see.
    R4  Cancelling the caller cancels the reads, waits for the end of each, and is never answered with a
        result. No read starts after it, not even when a running one swallowed the cancellation.
    R5  Nothing outlives the call: no task is left.
    R6  A `CancelledError` that comes out of a read though nobody cancelled it is that call's error.

Why two workers never take the same call: they share one iterator in one event loop, and between taking
an item and the next `await` nothing else runs. That says nothing about threads, and nothing about
processes, which need an atomic claim (see `jobs`).

What it does not do: spread computing over cores (one event loop only overlaps waiting), retry, limit the
time of a read (`asyncio.timeout` inside the read does), or stop a read that swallows its cancellation
and goes on: it is waited for. Input without an end is `companions.work.stream_reads`.

`KeyboardInterrupt` and `SystemExit` pass through. Any other exception that is no `Exception` ends the run, in
the group that `asyncio.TaskGroup` makes.

Source: the chapter's section on concurrent reads (claims C10-093 to C10-124).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from chapter10.canonical import CodedError

__all__ = ["MAX_CALLS", "Outcome", "ReadsError", "bounded_reads"]

MAX_CALLS: Final = 10_000_000
"""The most calls of one `bounded_reads`; each costs memory until the end. A longer input is a stream."""

Outcome = dict[str, Any]
"""`{"value": what the read returned}` or `{"error": class name of what it raised}`."""

Argument = TypeVar("Argument")


class ReadsError(CodedError, ValueError):
    """Raised when the calls cannot be run as they are, before any read has started.

    `invalid_read`, `invalid_limit`, `invalid_calls`, `too_many_calls`, `invalid_call`, `duplicate_call`.
    """


async def bounded_reads(
    calls: Sequence[tuple[str, Argument]],
    read: Callable[[Argument], Awaitable[Any]],
    limit: int = 2,
) -> dict[str, Outcome]:
    """Await `read(argument)` for every `(call_id, argument)`, at most `limit` at a time.

    Returns the outcomes by call id, sorted by id. `calls` is a list or tuple of pairs whose ids are
    distinct strings; changing it meanwhile changes nothing. Raises `ReadsError` before any read has started.
    Source: claims C10-104 to C10-123.
    """
    _check(calls, read, limit)
    calls = tuple((call_id, argument) for call_id, argument in calls)  # a pair may be a list that is changed
    pending = iter(calls)
    results: dict[str, Outcome] = {}
    workers: list[asyncio.Task[None]] = []
    caller = asyncio.current_task()
    assert caller is not None
    asked_before = caller.cancelling()

    async def worker() -> None:
        for call_id, argument in pending:
            if caller.cancelling() > asked_before:  # the group has not told this worker yet
                raise asyncio.CancelledError
            try:
                results[call_id] = {"value": await read(argument)}
            except asyncio.CancelledError:  # nobody's but the read's own, or the look below raises it again
                results[call_id] = {"error": "CancelledError"}
            except Exception as error:
                results[call_id] = {"error": type(error).__name__}
            if _was_cancelled():
                raise asyncio.CancelledError

    async with asyncio.TaskGroup() as group:
        for _ in range(min(limit, len(calls))):
            workers.append(group.create_task(worker()))
    if any(one.cancelled() for one in workers):  # a worker alone was cancelled: a part is not the whole
        raise asyncio.CancelledError
    return dict(sorted(results.items()))


def _was_cancelled() -> bool:
    """Say whether somebody asked this task to stop, whatever became of the `CancelledError`."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() > 0


def _check(calls: Sequence[tuple[str, Any]], read: object, limit: object) -> None:
    if not callable(read):
        raise ReadsError("invalid_read")
    if type(limit) is not int or limit < 1:
        raise ReadsError("invalid_limit")
    if type(calls) not in (list, tuple):
        raise ReadsError("invalid_calls")
    if len(calls) > MAX_CALLS:
        raise ReadsError("too_many_calls")
    for call in calls:
        if type(call) not in (list, tuple) or len(call) != 2 or type(call[0]) is not str:
            raise ReadsError("invalid_call")
    if len({call_id for call_id, _ in calls}) < len(calls):
        raise ReadsError("duplicate_call")
