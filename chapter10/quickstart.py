"""The shortest whole flow, to be read first: submit, claim, compute, report progress, finish, read the result."""

import tempfile
from pathlib import Path

from chapter10.experiments import SALES
from chapter10.jobs import JobStore
from chapter10.lab.console.textio import main_guard, print_json

__all__ = ["main"]


def main() -> int:
    """Run one job from its submission to its result and print what happened as one JSON object."""
    with tempfile.TemporaryDirectory() as folder, JobStore(Path(folder, "jobs.db")) as store:
        # The caller gets a number once the job is on disk. `now` is logical time, in seconds.
        job = store.submit("alice", "august-report", {"month": "2026-08"}, now=0)
        states = [store.get("alice", job)["state"]]

        # A worker takes the job for a while; the attempt is its ticket for every later call.
        attempt = store.claim(job, now=1)
        assert attempt is not None
        states.append(store.get("alice", job)["state"])
        cents = [sale["amount_cents"] for sale in SALES if sale["month"] == "2026-08"]
        for done in range(1, len(cents) + 1):
            store.progress(job, attempt, done, len(cents), now=1 + done)
        store.finish(job, attempt, {"month": "2026-08", "row_count": len(cents), "total_cents": sum(cents)}, now=5)

        # The caller reads what was stored, as often as it likes.
        states.append(store.get("alice", job)["state"])
        result, events = store.result("alice", job), store.events("alice", job)
        print_json({"states": states, "result": result, "events": events, "receipt_count": store.receipt_count(job)})
    return 0


if __name__ == "__main__":
    main_guard(main)
