"""练习 10 / Exercise 10

作业在时刻 1 被领取，租约长度 2，截止时间 10。
  一、时刻 3，还没有被别人领取：旧 worker 能提交吗？
  二、时刻 3 被新 worker 领取，时刻 4 旧 worker 提交：得到什么？
各写一个测试。检查会把它们用在真实的作业库上（应当通过），也用在少了一道防护的库上（应当失败）。

A job is claimed at 1 with a lease of 2 and a deadline of 10. First: at 3, with nobody else having claimed,
may the old worker deliver? Second: claimed anew at 3, what does the old worker get at 4? Write a test for
each. They are run on the real store and on stores with one guard taken out.

    job = store.submit("alice", "key", {"month": "2026-08"}, now=0, deadline=10)
    attempt = store.claim(job, now=1, lease=2)                a number, or None
    store.finish(job, attempt, {"total_cents": 6000}, now=3)  True, False, or JobError with a .code

检查 / check:  python -m chapter10 exercises check 10
"""

from chapter10.jobs import JobStore


def test_lease_over(store: JobStore) -> None:
    """Assert what the old worker gets at 3 when nobody else has claimed. `store`: empty, in memory."""
    raise NotImplementedError


def test_new_worker(store: JobStore) -> None:
    """Assert what the old worker gets at 4 when a new one has claimed at 3. `store`: empty, in memory."""
    raise NotImplementedError
