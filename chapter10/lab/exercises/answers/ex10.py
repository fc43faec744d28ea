"""练习 10 的一种答案 / one answer to exercise 10

时刻 3 租约已到期：lease_expired，尽管还没有别人领取。被重新领取之后：stale_attempt，因为代次已经不是最新。
At 3 the lease is over: lease_expired, though nobody else has claimed. After another claim: stale_attempt.
Compare: python -m chapter10 explore --without stale_attempt.finish
"""

from chapter10.jobs import JobError, JobStore


def refusal(store: JobStore, job: int, attempt: int, now: float) -> str | None:
    """Deliver, and return the code of the refusal; None if it was accepted."""
    try:
        store.finish(job, attempt, {"total_cents": 6000}, now=now)
    except JobError as error:
        return error.code
    return None


def test_lease_over(store: JobStore) -> None:
    job = store.submit("alice", "key", {"month": "2026-08"}, now=0, deadline=10)
    attempt = store.claim(job, now=1, lease=2)
    assert attempt == 1
    assert refusal(store, job, attempt, now=3) == "lease_expired"
    assert store.receipt_count(job) == 0


def test_new_worker(store: JobStore) -> None:
    job = store.submit("alice", "key", {"month": "2026-08"}, now=0, deadline=10)
    old = store.claim(job, now=1, lease=2)
    new = store.claim(job, now=3, lease=2)
    assert (old, new) == (1, 2)
    assert refusal(store, job, 1, now=4) == "stale_attempt"
    assert store.finish(job, 2, {"total_cents": 6000}, now=4)
