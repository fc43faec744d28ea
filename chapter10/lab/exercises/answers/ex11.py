"""练习 11 的一种答案 / one answer to exercise 11

条件和写入在同一条 UPDATE 里：rowcount 说明是不是这一次改成的。领到之后，租约有效期内没有人能再改这一行。
另一种：先 BEGIN IMMEDIATE，再读，再写，再 COMMIT。
Condition and write are one UPDATE, and rowcount says whether this one did it. Nobody else can change the row
while the lease lives. The other way: BEGIN IMMEDIATE, read, write, COMMIT.
Compare: python -m unittest chapter10.tests.test_jobs_races
"""

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
    assert claim(other, 1, 3, 2) == 2
    assert claim(one, 1, 4, 2) is None
