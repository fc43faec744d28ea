"""A stage: handlers that wait for their cue, so that a scene arranges the order and not the speed.

A handler awaits `stage.cue(name)`; the script gives it with `stage.give(name)` and then lets everything
happen that can happen without another cue (`settle`). So one thing happens at a time, in the same order on
every machine and every Python.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["Stage"]

_TURNS: Final = 50
"""Turns of the loop after which whatever could happen has happened; a call needs about ten."""


class Stage:
    """Cues by name, first in first out; what is given before it is awaited waits for its handler."""

    def __init__(self) -> None:
        self._cues: dict[str, asyncio.Queue[Any]] = {}

    async def cue(self, name: str) -> Any:
        """Wait for the next cue `name` and return what came with it; an exception is raised."""
        value = await self._queue(name).get()
        if isinstance(value, BaseException):
            raise value
        return value

    def give(self, name: str, value: Any = None) -> None:
        """Give the cue `name` with a value, or with an exception that is raised where it is awaited."""
        self._queue(name).put_nowait(value)

    async def settle(self) -> None:
        """Let everything happen that needs no further cue."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def play(self, name: str, value: Any = None) -> None:
        """Give a cue and let everything happen that follows from it."""
        self.give(name, value)
        await self.settle()

    def _queue(self, name: str) -> asyncio.Queue[Any]:
        return self._cues.setdefault(name, asyncio.Queue())
