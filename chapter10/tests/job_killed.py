"""One process that dies while it writes: it opens a store, makes a call, and is killed before a statement of it.

    python -m chapter10.tests.job_killed STORE CALL PATH NUMBER

`STORE` is the name of its class. SIGKILL comes right before statement `NUMBER` of the call; `opening` counts the
statements of the opening instead. A process that got through ends as well, right after, with everything open and exit
code 3.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import JobStore
from chapter10.tests.job_support import AUGUST, REPORT, writes_of

__all__ = ["GOT_THROUGH", "OPENING", "WHOLE_LIFE", "whole_life"]

GOT_THROUGH: Final = 3
OPENING: Final = "opening"
WHOLE_LIFE: Final = "whole life"
CONNECT: Final = sqlite3.connect


def whole_life(store: JobStore) -> None:
    """Bring one job from submit to finish."""
    store.submit("alice", "k", AUGUST, now=0)
    store.claim(1, now=1)
    store.progress(1, 1, 1, 1, now=2)
    store.finish(1, 1, REPORT, now=3)


STORES: Final = {"JobStore": JobStore, "LivingStore": LivingStore}
CALLS: Final[dict[str, Callable[[Any], object]]] = {
    OPENING: lambda store: None,
    WHOLE_LIFE: whole_life,
    **{write.name: write.call for write in writes_of(LivingStore)},
}


def main() -> None:
    make, call, path, left = STORES[sys.argv[1]], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])

    def die_at_zero(statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(*given: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = CONNECT(*given, **named)
        connection.set_trace_callback(die_at_zero)
        return connection

    with mock.patch("sqlite3.connect", traced if call == OPENING else CONNECT):
        store = make(path)
    store.db.set_trace_callback(die_at_zero)
    CALLS[call](store)
    os._exit(GOT_THROUGH)


if __name__ == "__main__":
    main()
