# expect: own_id
"""Results are put beside the ids in the order in which they came."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def read_all(
    calls: list[tuple[str, str]], read: Callable[[str], Awaitable[Any]], limit: int
) -> dict[str, dict[str, Any]]:
    outcomes: list[dict[str, Any]] = []
    pending = iter(calls)

    async def worker() -> None:
        for _, argument in pending:
            try:
                outcomes.append({"value": await read(argument)})
            except Exception as error:
                outcomes.append({"error": type(error).__name__})

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(worker())
    return {call_id: outcome for (call_id, _), outcome in zip(calls, outcomes, strict=True)}
