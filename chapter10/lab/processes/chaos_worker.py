"""One worker of a chaos run: it does jobs that are slow, deaf, flaky, wrong or deadly, by a clock that may run ahead.

    python -m chapter10.lab.processes.chaos_worker STORE NAME AHEAD_SECONDS LEASE_SECONDS

`lab.processes.chaos` starts it, kills it, stops it and continues it. The kinds of work:

    plain    a few steps with progress; it looks whether it should stop at each
    deaf     as long, and never looks: what it delivers after its lease is refused
    flaky    a temporary error on its first attempts
    wrong    an error that no retry mends
    deadly   ends the whole process at once, every time: after its last attempt the job ends as `attempts_exhausted`
    forking  starts a child by `fork`, which must not be let into the file that its parent has open
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, Final

from chapter10.canonical import CodedError
from chapter10.companions.work.heartbeat import JobContext
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Backoff, Handler, Worker
from chapter10.database import StoreError
from chapter10.jobs import Operation

__all__ = ["CHAOS_WORK", "DEADLY_EXIT", "KINDS", "LET_IN", "Work", "main"]

KINDS: Final = ("plain", "deaf", "flaky", "wrong", "deadly", "forking")
DEADLY_EXIT: Final = 86
"""The exit code of a process that a deadly job ended."""
LET_IN: Final = "a_fork_was_let_in"
_STEP: Final = 0.04
"""Of a lease, for one step of the work."""
_GRACE_SECONDS: Final = 2.0


def _check(args: dict[str, Any]) -> None:
    if set(args) != {"kind", "steps"} or args["kind"] not in KINDS or args["steps"] not in range(1, 101):
        raise ValueError("the arguments are kind and steps")


CHAOS_WORK: Final = Operation("chaos.work", "1", _check)
"""The operation of a chaos run: `{"kind", "steps"}`."""


class _Flaky(CodedError):
    pass


class Work:
    """Does `chaos.work` of the store at `path`; `sleep` makes a step last, in proportion to the `lease` in seconds."""

    def __init__(self, path: str, lease: float, sleep: Callable[[float], object]) -> None:
        self._path = path
        self._lease = lease
        self._sleep = sleep

    def __call__(self, context: JobContext) -> dict[str, Any]:
        """Return `{steps}`, or fail as the kind has it."""
        kind, steps = context.args["kind"], context.args["steps"]
        if kind == "deadly":
            os._exit(DEADLY_EXIT)
        if kind == "wrong":
            raise CodedError("wrong_input")
        if kind == "forking" and hasattr(os, "fork") and not self._is_refused():
            raise CodedError(LET_IN)
        if kind == "flaky" and context.attempt < 3:
            raise _Flaky("flaky")
        for step in range(1, steps + 1):
            self._sleep(_STEP * self._lease)
            if kind != "deaf":
                context.progress(step, steps)
        return {"steps": steps}

    def _is_refused(self) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is what is tried
            child = os.fork()
        if child == 0:
            try:
                LivingStore(self._path)
            except StoreError as error:
                os._exit(0 if error.reason == "forked" else 1)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main(
    arguments: list[str], *, clock: Callable[[], float] = time.time, sleep: Callable[[float], object] = time.sleep
) -> int:
    """Work until SIGTERM and return 0."""
    path, name, ahead, lease = arguments[0], arguments[1], float(arguments[2]), float(arguments[3])
    with Worker(
        path,
        {CHAOS_WORK.tool: Handler(Work(path, lease, sleep), temporary=(_Flaky,))},
        clock=lambda: clock() + ahead,
        sleep=sleep,
        lease=lease,
        progress_every=0.1,
        grace=_GRACE_SECONDS,
        backoff=Backoff(base_ms=50, cap_ms=500),
        name=name,
        overrun=lambda: os._exit(0),
    ) as worker:
        signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
        worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
