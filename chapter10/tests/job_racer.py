"""One process of a race: it opens what it needs, says `ready`, waits for a line, runs, and prints what it got.

    python -m chapter10.tests.job_racer STORE VERB PATH NUMBER COUNT

`STORE` is the name of its class, `NUMBER` tells the racers apart, `COUNT` is how much each has to do. The answer is
one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError
from chapter10.jobs import JobError, JobStore

AUGUST: Final = {"month": "2026-08"}


def claim_next(store: LivingStore, number: int, count: int) -> list[Any]:
    """Claim whatever is due until nothing is left."""
    got = []
    while (claimed := store.claim_next(now=1, lease=50)) is not None:
        got.append(claimed)
    return got


def claim_each(store: JobStore, number: int, count: int) -> list[Any]:
    """Ask for jobs 1 to `count` by number, and keep those that were to be had."""
    attempts = {job_id: store.claim(job_id, now=1, lease=50) for job_id in range(1, count + 1)}
    return [(job_id, attempt) for job_id, attempt in attempts.items() if attempt is not None]


def live(store: JobStore, number: int, count: int) -> list[Any]:
    """Bring `count` jobs of one's own from submit to finish."""
    got = []
    for index in range(count):
        job_id = store.submit(f"owner-{number}", f"key-{index}", AUGUST, now=0, capacity=10_000)
        attempt = store.claim(job_id, now=1)
        assert attempt is not None
        assert store.progress(job_id, attempt, 1, 1, now=2)
        assert store.finish(job_id, attempt, {"index": index}, now=3)
        got.append(job_id)
    return got


def submit(store: JobStore, number: int, count: int) -> list[Any]:
    """Submit `count` jobs to a queue of 50 places; give the code where there was none."""
    got: list[Any] = []
    for index in range(count):
        try:
            got.append(store.submit(f"owner-{number}", f"key-{index}", AUGUST, now=0, capacity=50))
        except JobError as error:
            got.append(error.code)
    return got


def submit_same(store: JobStore, number: int, count: int) -> list[Any]:
    """Submit the same `count` intents as everybody else."""
    return [store.submit("alice", f"key-{index}", AUGUST, now=0, capacity=10_000) for index in range(count)]


def cancel_or_finish(store: JobStore, number: int, count: int) -> list[Any]:
    """Racer 0 cancels and racer 1 delivers jobs 1 to `count`, each when the same line has come to both."""
    got: list[Any] = []
    for job_id in range(1, count + 1):
        wait_for_the_start()
        got.append(store.cancel("alice", job_id) if number == 0 else store.finish(job_id, 1, {"job": job_id}, now=2))
    return got


STORES: Final = {"JobStore": JobStore, "LivingStore": LivingStore}
RACES: Final[dict[str, Callable[[Any, int, int], list[Any]]]] = {
    race.__name__: race for race in (claim_next, claim_each, live, submit, submit_same, cancel_or_finish)
}


def main() -> None:
    make, verb, path = STORES[sys.argv[1]], sys.argv[2], Path(sys.argv[3])
    number, count = int(sys.argv[4]), int(sys.argv[5])
    if verb == "open":  # the opening itself is the race
        wait_for_the_start()
        with make(path) as store:
            answer: list[Any] = [store.submit(f"owner-{number}", "key", AUGUST, now=0)]
    else:
        with make(path, busy_seconds=60) as store:
            wait_for_the_start()
            answer = RACES[verb](store, number, count)
    print(json.dumps(answer), flush=True)


def wait_for_the_start() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    try:
        main()
    except (JobError, StoreError) as error:
        print(json.dumps(f"{error.code}: {error.reason}"), flush=True)
