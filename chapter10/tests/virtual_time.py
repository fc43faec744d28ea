"""An event loop whose clock jumps to the next timer as soon as nothing else is left to do.

So a test of a five-second limit takes no time, always gives the same order, and never waits for the machine. The clock
stands still while code runs; what wakes the loop from a thread or a file does so at once, at the same virtual time.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

__all__ = ["VirtualLoop", "pause", "run_virtual", "virtual"]

S = TypeVar("S")
T = TypeVar("T")

IDLE_SECONDS = 60.0
"""How long, in real time, a loop without timers waits for a thread before the test fails instead of hanging."""


class _JumpingSelector(selectors.BaseSelector):
    """A selector that moves the clock instead of waiting for a timer."""

    def __init__(self) -> None:
        self.inner = selectors.DefaultSelector()
        self.now = 1000.0  # not 0, so that a forgotten start shows

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.inner.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self.inner.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = self.inner.select(IDLE_SECONDS)
            if not ready:
                raise AssertionError("nothing is left that could wake the loop")
            return ready
        self.now += timeout
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self.inner.get_map()

    def close(self) -> None:
        self.inner.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual; `advance` is work that blocks the loop for so many seconds."""

    def __init__(self) -> None:
        self.jumping = _JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now

    def advance(self, seconds: float) -> None:
        self.jumping.now += seconds


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main(loop)` in a fresh virtual loop, check that it left no task behind, and return its value."""
    loop = VirtualLoop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: errors.append(context))
    try:
        value = loop.run_until_complete(main(loop))
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
    assert not left, f"tasks were left behind: {left}"
    assert not errors, f"the loop was told of errors: {errors}"
    return value


def virtual(test: Callable[[S, VirtualLoop], Coroutine[Any, Any, None]]) -> Callable[[S], None]:
    """Make a test that is a coroutine a plain one: it runs in a fresh virtual loop, as in `run_virtual`."""

    @functools.wraps(test)
    def run(self: S) -> None:
        run_virtual(lambda loop: test(self, loop))

    return run


async def pause(seconds: float) -> None:
    """Let virtual time pass; a cancel ends it at once."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    handle = loop.call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        handle.cancel()
