"""An event loop whose clock jumps: what waits for five seconds is over at once, and always in the same order.

The clock starts at 0.0, stands still while code runs, and moves to the next timer as soon as nothing else is left to
do. So a demonstration of time-outs takes no time and gives the same bytes on every machine.

What it does not do: it has no files, no threads, no child processes and no network; a program that waits for one of
these, or for nothing, ends with `VirtualTimeError` instead of hanging.
Source: the rule that nothing in a report depends on the clock of a machine (claims C10-274, C10-277).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from chapter10.canonical import CodedError

__all__ = ["VirtualLoop", "VirtualTimeError", "pause", "run_virtual"]

T = TypeVar("T")

_MAX_STOPS: Final = 100
"""How many looks at the loop the tasks that were left over have to end after their cancel."""


class VirtualTimeError(CodedError, RuntimeError):
    """Raised when nothing is left that could wake the loop: `nothing_to_wait_for`."""

    def __init__(self) -> None:
        super().__init__("nothing_to_wait_for")


class _Key(NamedTuple):
    """What a selector hands out for a file; here only the loop's own wake-up pipe has one."""

    fileobj: Any
    fd: int
    events: int
    data: Any


class _Jumping:
    """Stands where the loop asks the system to wait, and moves the clock instead of waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[int, _Key] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> _Key:
        key = _Key(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> _Key:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_key(self, fileobj: Any) -> _Key:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def get_map(self) -> dict[int, _Key]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise VirtualTimeError
        self.now += max(timeout, 0.0)
        return []

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds from 0.0 on."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)  # type: ignore[arg-type]  # it has all that the loop asks of a selector

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._jumping.now


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main(loop)` in a fresh virtual loop and return its value; tasks that are left over are cancelled.

    Raises what `main` raises, and `VirtualTimeError` when it waits for nothing.
    """
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        _stop_the_rest(loop)
        loop.close()


async def pause(seconds: float) -> None:
    """Let virtual time pass; a cancel ends it at once."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    handle = loop.call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        handle.cancel()


def _stop_the_rest(loop: VirtualLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    for _ in range(_MAX_STOPS):
        if all(task.done() for task in left):
            break
        loop.run_until_complete(asyncio.sleep(0))
