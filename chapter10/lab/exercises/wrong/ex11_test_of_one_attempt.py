# expect: own_test
from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    changed = db.execute(
        "UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_until = ? "
        "WHERE id = ? AND (state = 'queued' OR (state = 'running' AND lease_until <= ?))",
        (now + lease, job_id, now),
    )
    if changed.rowcount == 0:
        return None
    attempt: int = db.execute("SELECT attempt FROM jobs WHERE id = ?", (job_id,)).fetchone()[0]
    return attempt


def test_claim(claim: Any, connect: Any) -> None:
    one, other = connect(), connect()
    assert claim(one, 1, 1, 2) == 1
    assert claim(other, 1, 2, 2) is None
    assert claim(one, 1, 4, 2) is None
