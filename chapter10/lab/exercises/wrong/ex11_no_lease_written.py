# expect: first
"""It takes the job and writes no end of the lease."""

from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    changed = db.execute("UPDATE jobs SET state = 'running', attempt = attempt + 1 WHERE id = ?", (job_id,))
    if changed.rowcount == 0:
        return None
    attempt: int = db.execute("SELECT attempt FROM jobs WHERE id = ?", (job_id,)).fetchone()[0]
    return attempt
