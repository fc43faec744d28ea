# expect: new_code
"""Any refusal will do for it."""

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
    assert refusal(store, job, 1, now=4) is not None
    assert store.finish(job, 2, {"total_cents": 6000}, now=4)
