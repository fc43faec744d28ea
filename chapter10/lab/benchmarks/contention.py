"""Contention: 1, 2, 4 and 8 processes claim and finish jobs of one file, as fast as they can.

    python -m chapter10.lab.benchmarks.contention FILE JOBS      one of the processes

Each process says that it is ready, waits for the word, and then claims and finishes until nothing is due. A
*wait* is the time of one call, a commit included. A *share* is what a process got, divided by what each would
have got if all had got the same, while all of them worked. Afterwards the file is examined: every job ended
once, no job twice.
Source: claims C10-153, C10-154, and what the chapter leaves open about fairness.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError
from chapter10.jobs import JobError
from chapter10.lab.benchmarks.instrument import Finding, Plan, Table, chunks
from chapter10.lab.console.textio import EXIT_FINE, main_guard

__all__ = ["contend", "main", "measure_contention"]

_PROCESSES: Final = (1, 2, 4, 8)
_FAULTS: Final = ("errors", "lost", "doubled")
_TOP: Final = Path(__file__).resolve().parents[3]


def contend(path: Path, jobs: int, go: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Any:
    """Claim and finish until nothing is due or `jobs` are done; return what happened, as JSON can carry it."""
    waits: list[float] = []
    ends: list[float] = []
    errors = 0
    with LivingStore(path) as store:
        go()
        while len(ends) < jobs:
            try:
                started = clock()
                claimed = store.claim_next(now=1)
                waits.append(clock() - started)
                if claimed is None:
                    break
                started = clock()
                store.finish(*claimed, {"rows": 3}, now=2)
                ends.append(clock())
                waits.append(ends[-1] - started)
            except (StoreError, JobError):
                errors += 1
                if errors > jobs:
                    break
    return {"waits": waits, "ends": ends, "errors": errors}


def measure_contention(plan: Plan) -> Iterator[Finding]:
    """Yield one table: a row for each number of processes, the medians of several rounds, faults added up.

    In each round all numbers have their turn, and `to one` compares within a round: a disk that is quick now may
    take ten times as long a moment later.
    """
    jobs, rounds = plan.pick(16, 600), plan.pick(1, 7)
    measured: dict[int, list[dict[str, float]]] = {processes: [] for processes in _PROCESSES}
    for number in range(rounds):
        plan.report(f"jobs: processes on one file, round {number + 1} of {rounds}")
        for processes in _PROCESSES:
            row = _contention(plan.folder / f"contention-{number}-{processes}.db", processes, jobs)
            row["to one"] = row["jobs/s"] / measured[1][number]["jobs/s"] if processes > 1 else 1.0
            measured[processes].append(row)
    rows: list[dict[str, int | float | str]] = []
    for processes, found in measured.items():
        middle = {name: median(row[name] for row in found) for name in found[0]}
        faults = {name: int(sum(row[name] for row in found)) for name in _FAULTS}
        rows.append({"processes": processes, **middle, **faults})
    clean = all(row[name] == 0 for row in rows for name in _FAULTS)
    verdict = "no error, none lost, none doubled" if clean else "jobs went wrong"
    yield Table("processes on one file", tuple(rows), verdict)


def _contention(path: Path, processes: int, total: int) -> dict[str, float]:
    with LivingStore(path) as store:
        for numbers in chunks(total, 1000):
            pairs = [(f"key {number}", {"month": "2026-08"}) for number in numbers]
            store.submit_many("alice", pairs, now=0, capacity=total)
    results = _run(path, processes, total)
    start = min(result["ends"][0] for result in results if result["ends"])
    stop = max(result["ends"][-1] for result in results if result["ends"])
    together = min(result["ends"][-1] if result["ends"] else start for result in results)
    got = [sum(end <= together for end in result["ends"]) for result in results]
    waits = sorted(wait for result in results for wait in result["waits"])
    with LivingStore(path) as store:
        ended = store.db.execute("SELECT count(*) FROM jobs WHERE state = 'succeeded'").fetchone()[0]
        events = store.db.execute("SELECT count(*) FROM events WHERE kind = 'succeeded'").fetchone()[0]
    return {
        "jobs/s": total / max(stop - start, 1e-9),
        "to one": 0.0,
        "wait ms median": 1000 * waits[len(waits) // 2],
        "p99": 1000 * waits[len(waits) * 99 // 100],
        "longest": 1000 * waits[-1],
        "smallest share": min(got) / max(1, sum(got)) * processes,
        "errors": sum(result["errors"] for result in results),
        "lost": total - ended,
        "doubled": events - ended,
    }


def _run(path: Path, processes: int, jobs: int) -> list[Any]:
    command = [sys.executable, "-m", "chapter10.lab.benchmarks.contention", str(path), str(jobs)]
    children = [
        subprocess.Popen(command, cwd=_TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        for _ in range(processes)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        return [json.loads(child.communicate()[0]) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.communicate()


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one of the processes: wait for a line on standard input, work, print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10.lab.benchmarks.contention", description="One process of the contention benchmark."
    )
    parser.add_argument("file", type=Path, help="the job store")
    parser.add_argument("jobs", type=int, help="the most jobs to take")
    options = parser.parse_args(arguments)
    result = contend(options.file, options.jobs, lambda: (print("ready", flush=True), sys.stdin.readline()))
    print(json.dumps(result))
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
