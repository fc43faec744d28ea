# expect: overlap
"""One after the other is correct, and waits for nothing that it had to wait for."""

from collections.abc import Awaitable, Callable
from typing import Any


async def read_all(
    calls: list[tuple[str, str]], read: Callable[[str], Awaitable[Any]], limit: int
) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    for call_id, argument in calls:
        try:
            results[call_id] = {"value": await read(argument)}
        except Exception as error:
            results[call_id] = {"error": type(error).__name__}
    return results
