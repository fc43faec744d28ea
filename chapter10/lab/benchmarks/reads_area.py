"""Area `reads`: `bounded_reads` beside the smallest pool that keeps an outcome for each item.

The pool is so many workers over one shared iterator, each writing `{"value": …}` under the id, and nothing
else: no check of the calls, no error kept, no cancellation understood, no order of the ids. The read gives way
to the loop once. Both sides make the same outcome, a dict of one entry, because that is the published shape;
its bytes are shown by themselves. `bounded_reads` stands on the chapter's floor and is written to be read: its
figures are shown and held to no target. The stream keeps no outcome, so its memory does not grow.
Source: claims C10-104 to C10-123.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from chapter10.companions.work.stream_reads import stream_reads
from chapter10.concurrency import bounded_reads
from chapter10.lab.benchmarks.instrument import Finding, Growth, Plan, Table, by_turns, compare, peak_bytes, ready_async

__all__ = ["measure", "smallest_pool"]

_LIMIT: Final = 100

_Calls = list[tuple[str, int]]


async def _read(argument: int) -> int:
    await asyncio.sleep(0)
    return argument


async def smallest_pool(calls: _Calls, limit: int) -> dict[str, dict[str, Any]]:
    """Return the outcomes by id, of reads that never fail."""
    outcomes: dict[str, dict[str, Any]] = {}
    pending = iter(calls)

    async def worker() -> None:
        for call_id, argument in pending:
            outcomes[call_id] = {"value": await _read(argument)}

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(worker())
    return outcomes


async def _streamed(calls: _Calls) -> int:
    seen = 0
    async for _ in stream_reads(calls, _read, _LIMIT):
        seen += 1
    return seen


def measure(plan: Plan) -> Iterator[Finding]:
    """Yield the ratio at three sizes, the growth with peak memory, and the bytes for each item."""
    sizes = plan.pick((30, 100, 300), (1000, 100_000, 1_000_000))
    with asyncio.Runner() as runner:
        costs, peaks = [], []
        for size in sizes:
            plan.report(f"reads: {size:,} calls")
            calls = [(f"{number:07}", number) for number in range(size)]
            found = compare(
                f"{size:,} reads, limit {_LIMIT}",
                ready_async(runner, lambda calls=calls: bounded_reads(calls, _read, _LIMIT)),  # type: ignore[misc]
                ready_async(runner, lambda calls=calls: smallest_pool(calls, _LIMIT)),  # type: ignore[misc]
                count=size,
                repeats=plan.pick(3, 15) if size < sizes[-1] else plan.pick(3, 5),
                computes=True,
            )
            yield found
            costs.append(found.ours.median * size)
            peaks.append(peak_bytes(lambda calls=calls: runner.run(bounded_reads(calls, _read, _LIMIT))))  # type: ignore[misc]
        yield Growth(f"reads, limit {_LIMIT}", sizes, tuple(costs), tuple(peaks))
        yield _memory(runner, sizes[-1])
        yield _streams(runner, plan)


def _memory(runner: asyncio.Runner, size: int) -> Finding:
    """What an item costs: the outcomes alone, and what the pool adds to them; tasks at the peak."""
    calls = [(f"{number:07}", number) for number in range(size)]
    tasks = 0

    async def counted(argument: int) -> int:
        nonlocal tasks
        if argument == _LIMIT:
            tasks = len(asyncio.all_tasks()) - 1
        return await _read(argument)

    outcomes = peak_bytes(lambda: [{"value": number} for _, number in calls]) / size
    runner.run(bounded_reads(calls, counted, _LIMIT))
    ours = peak_bytes(lambda: runner.run(bounded_reads(calls, _read, _LIMIT))) / size
    pool = peak_bytes(lambda: runner.run(smallest_pool(calls, _LIMIT))) / size
    row: dict[str, int | float | str] = {
        "items": size,
        "tasks": tasks,
        "outcome B": round(outcomes),
        "ours B more": round(ours - outcomes),
        "smallest pool B more": round(pool - outcomes),
    }
    return Table("bytes for each item, at the peak", (row,))


def _streams(runner: asyncio.Runner, plan: Plan) -> Finding:
    """The stream keeps no outcome, so its memory does not grow with its length."""
    sizes = plan.pick((100, 300), (1000, 100_000))
    costs, peaks = [], []
    for size in sizes:
        calls = [(f"{number:07}", number) for number in range(size)]
        run = ready_async(runner, lambda calls=calls: _streamed(calls))  # type: ignore[misc]
        costs.append(by_turns([run], count=1, repeats=3)[0][1].median)
        peaks.append(peak_bytes(run()))
    return Growth(f"streamed reads, limit {_LIMIT}", sizes, tuple(costs), tuple(peaks))
