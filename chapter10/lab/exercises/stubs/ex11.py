"""练习 11 / Exercise 11

两个连接竞争同一份作业。写出 claim：租约有效期内只有一个能领到；租约一到期，可以领到新的代次。
检查在任何两条语句之间都可能切换到另一个连接，走遍所有次序，并画出最短的一个错误次序。

Two connections compete for one job. Write claim: while a lease lives only one gets it; as soon as the lease
is over, a new attempt can be had. The check may switch to the other connection between any two statements;
it tries every order and draws the shortest one that goes wrong.

    CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT, attempt INTEGER, lease_until REAL)
    state: 'queued' (attempt 0, lease_until NULL), 'running', or 'succeeded' (final)

    answer = db.execute("UPDATE ... WHERE id = ?", (job_id,))   answer.rowcount, answer.fetchone()
    每条语句各自提交，除非你写 BEGIN ... COMMIT / each statement commits by itself, unless you write BEGIN

检查 / check:  python -m chapter10 exercises check 11
"""

from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    """Take the job until `now + lease` and return the number of this attempt, or None if it is not to be had."""
    raise NotImplementedError
