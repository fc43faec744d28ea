# expect: entries
"""The first error ends the batch, and the results that were there are lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def read_all(
    calls: list[tuple[str, str]], read: Callable[[str], Awaitable[Any]], limit: int
) -> dict[str, dict[str, Any]]:
    gate = asyncio.Semaphore(limit)

    async def one(argument: str) -> Any:
        async with gate:
            return await read(argument)

    values = await asyncio.gather(*(one(argument) for _, argument in calls))
    return {call_id: {"value": value} for (call_id, _), value in zip(calls, values, strict=True)}
