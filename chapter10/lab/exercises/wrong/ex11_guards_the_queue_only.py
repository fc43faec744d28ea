# expect: every_order_over
"""A queued job is taken in one statement, one whose lease is over is read first."""

from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    changed = db.execute(
        "UPDATE jobs SET state = 'running', attempt = 1, lease_until = ? WHERE id = ? AND state = 'queued'",
        (now + lease, job_id),
    )
    if changed.rowcount:
        return 1
    row = db.execute("SELECT state, attempt, lease_until FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None or row[0] != "running" or row[2] > now:
        return None
    attempt: int = row[1] + 1
    db.execute("UPDATE jobs SET attempt = ?, lease_until = ? WHERE id = ?", (attempt, now + lease, job_id))
    return attempt
