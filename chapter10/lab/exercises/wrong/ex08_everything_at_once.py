# expect: peak
"""All reads are started together; the limit is never looked at."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def read_all(
    calls: list[tuple[str, str]], read: Callable[[str], Awaitable[Any]], limit: int
) -> dict[str, dict[str, Any]]:
    outcomes = await asyncio.gather(*(read(argument) for _, argument in calls), return_exceptions=True)
    return {
        call_id: {"error": type(outcome).__name__} if isinstance(outcome, BaseException) else {"value": outcome}
        for (call_id, _), outcome in zip(calls, outcomes, strict=True)
    }
