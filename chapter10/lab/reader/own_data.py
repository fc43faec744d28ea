"""The chapter's machinery on a reader's own files.

Nothing here is evidence of the chapter: the reports hold the fixtures only.
Source: the chapter's report that can be worked out by hand, at another size (claims C10-168 to C10-172).
"""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from chapter10.companions.finding.tool_list import ToolList
from chapter10.companions.operating.sales import PROGRESS_STEPS, SalesError, summarize
from chapter10.jobs import JobStore
from chapter10.limits import MAX_LIMIT

__all__ = ["MAX_NAMED", "export_sales", "remarks"]

MAX_NAMED: Final = 20
"""The most tools that a remark names; the number beside them counts all."""

_ENOUGH: Final = PROGRESS_STEPS + 10
"""Logical seconds of the lease and to the deadline: one for each report of progress, and some for the rest."""


def remarks(listed: ToolList, budget_bytes: int) -> dict[str, Any]:
    """Return what a reader should know of a tool list besides the figures.

    `left_out`: tools whose name had come before in the list (the first one counts). `never_loadable`:
    definitions that alone exceed the load budget, so that every load with one of them is refused.
    Each is `{count, first}`, with at most `MAX_NAMED` in `first`.
    """
    too_large = listed.larger_than(budget_bytes)
    return {
        "left_out": {
            "count": len(listed.left_out),
            "first": [{"name": tool.name, "place": tool.place} for tool in listed.left_out[:MAX_NAMED]],
        },
        "never_loadable": {
            "count": len(too_large),
            "first": [{"name": name, "bytes": size} for name, size in too_large[:MAX_NAMED]],
        },
    }


def export_sales(path: str | os.PathLike[str], month: str) -> dict[str, Any]:
    """Run the same life over a sales file of any length, read as a stream; see `companions.operating.sales`.

    Gives what `lifecycle_experiment` gives, with `final` (the job at its end) and `fault`: None, or
    `{code, line, reason}` of the row that failed the job; then the job's error is that code, and
    `result` is None. At most `PROGRESS_STEPS` events of progress, each one step of logical time.
    Raises `JobError` (`invalid_submission`) for a month that is not `YYYY-MM`.
    """
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        database = Path(folder, "jobs.db")
        with JobStore(database) as store:
            job_id = store.submit("alice", "sales-export", {"month": month}, now=0, deadline=_ENOUGH)
            submitted = store.get("alice", job_id)
        with JobStore(database) as store:
            resumed = store.get("alice", job_id)["id"]
            fault, cursor = _run(store, job_id, path, month)
            return {
                "submitted": submitted,
                "resumed_with_same_job_id": resumed,
                "result": store.result("alice", job_id) if fault is None else None,
                "fault": fault,
                "final": store.get("alice", job_id),
                "cursor": cursor,
                "new_events_after_cursor": store.events("alice", job_id, after=cursor),
                "events": store.events("alice", job_id, limit=MAX_LIMIT),
            }


def _run(store: JobStore, job_id: int, path: str | os.PathLike[str], month: str) -> tuple[dict[str, Any] | None, int]:
    """Claim the job and deliver the report, or fail with the fault; return the fault and the last `seq` before."""
    attempt = store.claim(job_id, now=1, lease=_ENOUGH)
    assert attempt is not None  # nobody else knows this database
    moments = itertools.count(2)

    def progress(done: int, total: int) -> bool:
        return store.progress(job_id, attempt, done, total, now=next(moments))

    def last_seq() -> int:
        return int(store.events("alice", job_id, limit=MAX_LIMIT)[-1]["seq"])

    try:
        summary = summarize(path, month, progress)
    except SalesError as error:
        cursor = last_seq()
        store.fail(job_id, attempt, error.code, now=next(moments))
        return {"code": error.code, "line": error.line, "reason": error.reason}, cursor
    assert summary is not None  # nobody asks this job to stop
    cursor = last_seq()
    store.finish(job_id, attempt, summary.data(), now=next(moments))
    return None, cursor
