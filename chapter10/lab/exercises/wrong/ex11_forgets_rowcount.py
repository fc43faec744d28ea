# expect: held
"""The condition is in the UPDATE, and nobody looks whether it changed anything."""

from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    db.execute(
        "UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_until = ? "
        "WHERE id = ? AND (state = 'queued' OR (state = 'running' AND lease_until <= ?))",
        (now + lease, job_id, now),
    )
    attempt: int = db.execute("SELECT attempt FROM jobs WHERE id = ?", (job_id,)).fetchone()[0]
    return attempt
