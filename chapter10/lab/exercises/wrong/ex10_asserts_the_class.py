# expect: over_accepts
from chapter10.jobs import JobStore


def test_lease_over(store: JobStore) -> None:
    assert type(store) is JobStore


def test_new_worker(store: JobStore) -> None:
    assert type(store) is JobStore
