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

章节要的是一个测试；这里先要代码。两样都可以做：在文件末尾加上 def test_claim(claim, connect)，connect() 给出同一个
文件的又一个连接，里面有一份排队的作业 1。检查会拿它去试一个对的和三个错的 claim。差别：测试一句接一句，看不见读和写
之间的空隙；检查在每两条语句之间都切换。

The chapter asks for a test, this file for the code. Do both if you like: add def test_claim(claim, connect) at the
end; connect() gives another connection to one file with job 1 in its queue. The check tries it on one right claim and
three wrong ones. The difference: a test makes one call after the other and never sees the gap between read and write;
the check switches between any two statements.

检查 / check:  python -m chapter10 exercises check 11
"""

from typing import Any


def claim(db: Any, job_id: int, now: float, lease: float) -> int | None:
    """Take the job until `now + lease` and return the number of this attempt, or None if it is not to be had."""
    raise NotImplementedError
