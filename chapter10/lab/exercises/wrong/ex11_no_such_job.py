# expect: missing
"""It reads the row of a job that does not exist."""

from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    row = db.execute("SELECT state, attempt, lease_until FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row[0] == "succeeded" or (row[0] == "running" and row[2] > now):
        return None
    attempt: int = row[1] + 1
    changed = db.execute(
        "UPDATE jobs SET state = 'running', attempt = ?, lease_until = ? WHERE id = ? AND attempt = ?",
        (attempt, now + lease, job_id, row[1]),
    )
    return attempt if changed.rowcount else None
