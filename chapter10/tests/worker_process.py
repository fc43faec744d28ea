"""Worker processes for the tests with real signals, and a child that behaves well; the others are in `bad_child`.

    python -m chapter10.tests.worker_process work STORE KIND GRACE LEASE      a worker with one handler
    python -m chapter10.tests.worker_process child good                       a child of such a worker

A worker says each note as a line `kind job attempt detail`; a handler that has begun says `begun`. Then it reads lines
from standard input: `go` lets it end, so that a test and not the clock decides the order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from chapter10.companions.work.child_process import ChildContext, ChildProcess, TemporaryChildError, serve
from chapter10.companions.work.heartbeat import AttemptOver, JobContext
from chapter10.companions.work.stop_signals import StopSignals
from chapter10.companions.work.worker import Backoff, Handler, Note, Worker
from chapter10.tests.support import ALONE

GO = threading.Event()


def say(*words: object) -> None:
    print(*words, flush=True)


def looks(context: JobContext) -> Any:
    """Look until the test lets it end."""
    say("begun", context.job_id, context.attempt)
    while not GO.wait(0.01):
        context.checkpoint()
    return {"attempt": context.attempt}


def deaf(context: JobContext) -> Any:
    """Never look."""
    say("begun", context.job_id, context.attempt)
    GO.wait(120)
    return {"attempt": context.attempt}


def child_command(kind: str) -> list[str]:
    """The command of a child of that kind."""
    program = ["worker_process", "child"] if kind == "good" else ["bad_child"]
    return [sys.executable, *ALONE, "-m", f"chapter10.tests.{program[0]}", *program[1:], kind]


def child_of(kind: str, grace: float) -> ChildProcess:
    return ChildProcess(child_command(kind), grace=grace)


def work(path: str, kind: str, grace: float, lease: float) -> None:
    handlers = {
        "looks": Handler(looks),
        "deaf": Handler(deaf),
    }
    handler = handlers.get(kind) or Handler(
        child_of(kind, 0.2 if kind == "good" else 0.05), temporary=(TemporaryChildError,)
    )

    def observe(note: Note) -> None:
        say(note.kind, note.job_id, note.attempt, note.detail)

    def overrun() -> None:
        os._exit(0)

    def read() -> None:
        if hasattr(signal, "pthread_sigmask"):  # as the heartbeat does: the main thread is the one to wake
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        for line in sys.stdin:
            if line.strip() == "go":
                GO.set()

    threading.Thread(target=read, daemon=True).start()
    with (
        Worker(
            path,
            {"reports.export": handler},
            lease=lease,
            grace=grace,
            observe=observe,
            overrun=overrun,
            backoff=Backoff(base_ms=10),
            name=kind,
        ) as worker,
        StopSignals(lambda count: worker.stop() if count == 1 else os._exit(130)),
    ):
        say("ready", os.getpid())
        worker.run()


def _good(context: ChildContext) -> Any:
    context.progress(1, os.getpid())
    if context.args["month"] == "2026-07":  # asked to go on until it is asked to stop
        try:
            while True:
                context.checkpoint()
                threading.Event().wait(0.01)
        except AttemptOver:
            print("asked", file=sys.stderr, flush=True)
            raise
    return {"month": context.args["month"], "attempt": context.attempt}


def main() -> None:
    if sys.argv[1] == "child":
        sys.exit(serve(_good))
    work(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))


if __name__ == "__main__":
    main()
