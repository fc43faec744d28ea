"""The shortest whole flow, to be read first: the receipt, then claim, count, finish, and read the result."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chapter10.experiments import SALES
from chapter10.jobs import JobStore

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job and print its receipt, then what became of it: sentences on a terminal, else (or `--json`) JSON."""
    from chapter10.lab.reader.story import quickstart_options, tell_quickstart

    options = quickstart_options(arguments)
    with tempfile.TemporaryDirectory() as folder, JobStore(Path(folder, "jobs.db")) as store:
        # The caller gets a receipt once the job is on disk. `now` is logical time, in seconds.
        job_id = store.submit("alice", "august-report", {"month": "2026-08"}, now=0)
        receipt = store.get("alice", job_id)
        print(json.dumps(receipt), flush=True)

        # A worker takes the job for a while; the attempt is its ticket for every later call.
        attempt = store.claim(job_id, now=1)
        assert attempt is not None
        states = [receipt["state"], store.get("alice", job_id)["state"]]
        rows = [row for row in SALES if row["month"] == "2026-08"]
        total = 0
        for index, row in enumerate(rows, 1):
            total += row["amount_cents"]
            store.progress(job_id, attempt, index, len(rows), now=index + 1)
        store.finish(job_id, attempt, {"month": "2026-08", "row_count": len(rows), "total_cents": total}, now=5)

        # The caller reads what was stored, as often as it likes.
        states.append(store.get("alice", job_id)["state"])
        result, events = store.result("alice", job_id), store.events("alice", job_id)
        figures = {"states": states, "result": result, "events": events, "receipt_count": store.receipt_count(job_id)}
    tell_quickstart(figures, options)
    return 0


if __name__ == "__main__":
    from chapter10.lab.console.textio import main_guard

    main_guard(main)
