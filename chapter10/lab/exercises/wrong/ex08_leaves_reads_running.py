# expect: cancel
"""A cancel ends the waiting and not what it waits for: the reads go on, and the next ones start."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def read_all(
    calls: list[tuple[str, str]], read: Callable[[str], Awaitable[Any]], limit: int
) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    pending = iter(calls)

    async def worker() -> None:
        for call_id, argument in pending:
            try:
                results[call_id] = {"value": await read(argument)}
            except Exception as error:
                results[call_id] = {"error": type(error).__name__}

    await asyncio.wait([asyncio.create_task(worker()) for _ in range(limit)])
    return results
