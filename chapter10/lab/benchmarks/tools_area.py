"""Area `tools`: `ToolRegistry.invoke` beside the bare handler under `asyncio.timeout`.

The bare call knows what it calls and with what: no name is looked up, nothing is validated or copied, there is
no permission, no place, no task of its own that could be left behind, and no result text. The handlers are
one that waits for nothing and one that gives way to the loop once.

Where the time goes that the bare call does not need, in tenths: three for the task of its own, which is what
lets a handler be left behind that eats its cancel; two for the copy and the check of the arguments; two for
name, permission, place and time limit; the rest for the result. From Python 3.12 a task starts at once; on 3.11
it costs a turn of the loop more.
Source: claims T6-002, T6-011, T6-017 to T6-027.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from chapter10.companions.tools.registry import ToolRegistry, ToolSpec
from chapter10.lab.benchmarks.instrument import Finding, Growth, Plan, by_turns, compare, peak_bytes, ready_async

__all__ = ["measure"]

_SECONDS: Final = 5.0
_SCHEMA: Final = {
    "type": "object",
    "properties": {"order_id": {"type": "string", "maxLength": 40}, "lines": {"type": "integer", "minimum": 1}},
    "required": ["order_id"],
    "additionalProperties": False,
}


async def _at_once(order_id: str, lines: int = 1) -> str:
    return f"{order_id}: paid, {lines}"


async def _giving_way(order_id: str, lines: int = 1) -> str:
    await asyncio.sleep(0)
    return f"{order_id}: paid, {lines}"


def measure(plan: Plan) -> Iterator[Finding]:
    """Yield the ratios, and the growth with the number of registered tools and of calls at once."""
    count, repeats = plan.pick(50, 2000), plan.pick(5, 15)
    with asyncio.Runner() as runner:
        for name, handler in (("that waits for nothing", _at_once), ("that gives way once", _giving_way)):
            registry = _registry(1, handler)
            yield compare(
                f"a call of a handler {name}",
                ready_async(runner, lambda registry=registry: _invoked(registry, count)),  # type: ignore[misc]
                ready_async(runner, lambda handler=handler: _bare(handler, count)),  # type: ignore[misc]
                count=count,
                repeats=repeats,
                target=4.0,
                computes=True,
            )
        sizes = plan.pick((1, 10, 100), (10, 1000, 10_000))
        sides, peaks = [], []
        for size in sizes:
            plan.report(f"tools: {size:,} registered")
            registry = _registry(size, _at_once)
            sides.append(ready_async(runner, lambda registry=registry: _invoked(registry, count)))  # type: ignore[misc]
            peaks.append(peak_bytes(lambda size=size: _registry(size, _at_once)))  # type: ignore[misc]
        costs = [computed.median for _, computed in by_turns(sides, count=count, repeats=repeats)]
        yield Growth("a call among so many tools", sizes, tuple(costs), tuple(peaks), most=1.2)
        together = plan.pick((1, 10, 50), (1, 100, 1000))
        costs = []
        for size in together:
            plan.report(f"tools: {size:,} calls at once")
            registry = _registry(1, _giving_way, max_running=max(together))
            side = ready_async(runner, lambda registry=registry, size=size: _together(registry, size))  # type: ignore[misc]
            costs.append(by_turns([side], count=size, repeats=repeats)[0][1].median)
        yield Growth("a call of so many at once", together, tuple(costs))


def _registry(size: int, handler: Callable[..., Awaitable[str]], max_running: int = 64) -> ToolRegistry:
    registry = ToolRegistry(max_running=max_running)
    for number in range(size):
        name = "order.get" if number == 0 else f"order.get_{number}"
        spec = ToolSpec(
            name=name,
            description="Reads an order.",
            handler=handler,
            effect="read",
            parameters=_SCHEMA,
            timeout_seconds=_SECONDS,
            max_attempts=1,
            max_output_chars=1000,
        )
        registry.register(spec)
    return registry


async def _invoked(registry: ToolRegistry, count: int) -> None:
    arguments = {"order_id": "A-1", "lines": 2}
    for _ in range(count):
        result = await registry.invoke("order.get", arguments)
    assert result == {"ok": True, "data": "A-1: paid, 2"}


async def _bare(handler: Callable[..., Awaitable[str]], count: int) -> None:
    arguments = {"order_id": "A-1", "lines": 2}
    for _ in range(count):
        async with asyncio.timeout(_SECONDS):
            await handler(**arguments)


async def _together(registry: ToolRegistry, size: int) -> None:
    await asyncio.gather(*(registry.invoke("order.get", {"order_id": "A-1"}) for _ in range(size)))
