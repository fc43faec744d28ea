"""Wait for another process's lock without holding the event loop.

SQLite waits inside a call: while another process keeps the write lock, the thread stands still, and with it every task
of its event loop, also the one whose time is just running out. Here a step is tried without any waiting, and between
two tries the loop is free.

What it does not do: it makes no step faster, and it takes no turn (see `companions.work.turnstile`). The commit itself
is still made in the loop's thread: milliseconds.
Source: the document on interruption, section 3 (claims I4-011, I4-020).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from chapter10.database import Database, StoreError

__all__ = ["PAUSE_S", "at_once", "off_the_loop"]

T = TypeVar("T")

PAUSE_S: Final = 0.02
"""Seconds between two tries."""


async def off_the_loop(
    database: Database,
    step: Callable[[], T],
    *,
    left: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    shielded: bool = False,
) -> T:
    """Return `step()`, a call that uses `database`, tried again while another process has the lock.

    It waits as long as the database would have waited, and never longer than the `left()` seconds of the caller's time.
    `shielded`: a cancel of the caller ends no waiting and is raised after the step, for what must be stored.
    Raises `StoreError` (`store_busy` when the time is over), and what `step` raises; a step that is refused as busy has
    changed nothing.
    """
    patience: float = database.row("PRAGMA busy_timeout")[0] / 1000
    waited = 0.0
    outer: asyncio.CancelledError | None = None
    while True:
        try:
            value = at_once(database, step)
            break
        except StoreError as error:
            rest = patience - waited if left is None else min(patience - waited, left())
            if error.code != "store_busy" or not rest > 0:
                if outer is not None:
                    raise outer from error
                raise
        pause = min(PAUSE_S, rest)
        waited += pause
        try:
            await sleep(pause)
        except asyncio.CancelledError as error:
            if not shielded:
                raise
            outer = outer or error
    if outer is not None:
        raise outer
    return value


def at_once(database: Database, step: Callable[[], T]) -> T:
    """Return `step()`, which does not wait for a lock here; where one is held it raises `StoreError` (`store_busy`).

    A database whose writers take turns (`companions.work.turnstile`) does not wait for its turn either.
    """
    patience: int = database.row("PRAGMA busy_timeout")[0]
    database.row("PRAGMA busy_timeout=0")
    try:
        return step()
    finally:
        with suppress(StoreError):  # closed by the step: there is nothing left to set
            database.row(f"PRAGMA busy_timeout={patience}")
