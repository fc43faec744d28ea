# expect: own_test
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

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(worker())
    return results


def test_read_all(read_all: Any) -> None:
    calls = [(f"call-{name}", name) for name in "ABCDE"]
    in_flight = peak = 0

    async def read(name: str) -> str:
        nonlocal in_flight, peak
        in_flight += 1
        peak = max(peak, in_flight)
        await asyncio.sleep(0)
        in_flight -= 1
        if name == "C":
            raise LookupError(name)
        return name

    async def never(name: str) -> None:
        await asyncio.Event().wait()

    async def cancelled() -> Any:
        task = asyncio.ensure_future(read_all(calls, never, 2))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    results = asyncio.run(read_all(calls, read, 2))
    assert peak == 2
    assert sorted(results) == [call_id for call_id, _ in calls]
    assert results["call-C"] == {"error": "LookupError"}
