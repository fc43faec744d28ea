"""What the tests of bounded reads and of read streams share: a gate, turns of the loop, and no task left behind."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any

__all__ = ["HANG_SECONDS", "Gate", "ReadsTestCase", "numbered", "turns"]

HANG_SECONDS = 30
"""A test that would hang fails instead; no test waits for it."""


class ReadsTestCase(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.addAsyncCleanup(self.no_task_is_left)

    async def no_task_is_left(self) -> None:
        """Every test ends with the tasks that it began with (claim C10-119)."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        self.assertEqual([task for task in others if "chapter10" in repr(task.get_coro())], [])

    async def assert_cancelled(self, task: asyncio.Task[Any]) -> None:
        with self.assertRaises(asyncio.CancelledError):
            await asyncio.wait_for(task, HANG_SECONDS)
        self.assertTrue(task.cancelled())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """A read that counts itself in and waits until it is let through."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.ended: list[Any] = []
        self.open = asyncio.Event()
        self.in_flight = self.peak = 0

    async def __call__(self, argument: Any) -> Any:
        self.entered.append(argument)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await self.open.wait()
            return argument
        finally:
            self.in_flight -= 1
            self.ended.append(argument)


def numbered(count: int) -> list[tuple[str, int]]:
    return [(f"c{number:05}", number) for number in range(count)]
