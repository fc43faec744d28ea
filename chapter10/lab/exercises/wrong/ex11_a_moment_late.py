# expect: over
"""At the end of the lease it still waits for a moment."""

from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    row = db.execute("SELECT state, attempt, lease_until FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None or row[0] == "succeeded" or (row[0] == "running" and row[2] >= now):
        return None
    attempt: int = row[1] + 1
    db.execute(
        "UPDATE jobs SET state = 'running', attempt = ?, lease_until = ? WHERE id = ?", (attempt, now + lease, job_id)
    )
    return attempt
