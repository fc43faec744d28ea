"""Several workers by one command: as many processes of the same `jobs work`, stopped together.

The one that was started does no job. It passes on each SIGTERM and Ctrl-C, so the first one asks all workers to leave
and the second one ends them, waits for all, and leaves with the worst of their exit codes. A worker that ends by itself
(`--jobs`, `--drain`, a broken store) leaves the others at work. Nothing of the store is open here, so nothing of it is
shared by the processes.

What it does not do: it starts no worker again, and when it is killed outright its workers go on.
Source: the chapter on several processes and one file (claims C10-153, C10-154).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from chapter10.companions.work.stop_signals import StopSignals

__all__ = ["MAX_WORKERS", "run_crew", "worker_arguments"]

MAX_WORKERS: Final = 64


def worker_arguments(arguments: Sequence[str], number: int) -> list[str]:
    """Return what one worker is started with: the same without `--concurrency`, and a name with its number."""
    kept: list[str] = []
    rest = iter(arguments)
    for each in rest:
        option, is_long, value = each.partition("=")
        if option == "--concurrency":
            if not is_long:
                next(rest, None)
        elif option == "--name":
            kept += ["--name", f"{value if is_long else next(rest, '')}-{number}"]
        else:
            kept.append(each)
    return kept


def run_crew(arguments: Sequence[str], count: int) -> int:
    """Run `count` workers until all have left; return the highest of their exit codes.

    `arguments`: what was typed after `jobs`. Raises `OSError` where no process can be started.
    """
    workers: list[subprocess.Popen[bytes]] = []
    reached: int | None = None  # how many there were when it was last asked

    def pass_on(_: int) -> None:
        nonlocal reached
        reached = len(workers)
        for worker in workers[:reached]:
            worker.send_signal(signal.SIGTERM)

    with StopSignals(pass_on):
        try:
            for number in range(1, count + 1):
                command = [sys.executable, "-m", "chapter10", "jobs", *worker_arguments(arguments, number)]
                # A group of its own: a Ctrl-C reaches it once, from here.
                workers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0))
                if reached is not None:
                    for late in workers[reached:]:
                        late.send_signal(signal.SIGTERM)
                    break
            return max(abs(worker.wait()) for worker in workers)
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.terminate()
