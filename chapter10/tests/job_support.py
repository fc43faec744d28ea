"""What the tests of the job store share: stores on one file, refusals by code, the checker at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from chapter10.database import BUSY_SECONDS
from chapter10.jobs import JobError, JobStore, LostLease, Operation
from chapter10.tests.job_checker import Contents, contents, violations
from chapter10.tests.support import FolderTestCase

__all__ = ["AUGUST", "JULY", "REPORT", "JobTestCase", "anything"]

AUGUST: Final = {"month": "2026-08"}
JULY: Final = {"month": "2026-07"}
REPORT: Final = {"month": "2026-08", "row_count": 3, "total_cents": 6000}


def anything(args: dict[str, Any]) -> None:
    """Take all arguments: the check of an operation that has no rules of its own."""


class JobTestCase(FolderTestCase):
    """A store at `self.path`; after each test the checker looks at the file from a connection of its own."""

    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "jobs.db"
        self.addCleanup(self._check)
        self.store = self.open()

    def _check(self) -> None:
        if self.path.exists():
            self.assertEqual([], violations(self.path))

    def open(self, operations: Iterable[Operation] = (), busy_seconds: float = BUSY_SECONDS) -> JobStore:
        """Open another store on the same file, closed at the end of the test."""
        store = JobStore(self.path, operations, busy_seconds=busy_seconds)
        self.addCleanup(store.close)
        return store

    def submit(self, key: str = "august-report", owner: str = "alice", *, now: float = 0, **options: Any) -> int:
        """Submit the report of August."""
        return self.store.submit(owner, key, AUGUST, now=now, **options)

    def claim(self, job_id: int, *, now: float = 1, lease: float = 10) -> int:
        """Claim a job that is there to be had."""
        attempt = self.store.claim(job_id, now=now, lease=lease)
        assert attempt is not None
        return attempt

    def running(self, key: str = "august-report", owner: str = "alice", **options: Any) -> tuple[int, int]:
        """Submit at 0 and claim at 1."""
        lease = options.pop("lease", 10)
        job_id = self.submit(key, owner, **options)
        return job_id, self.claim(job_id, lease=lease)

    def succeeded(self, key: str = "august-report", owner: str = "alice", **options: Any) -> int:
        """Submit at 0, claim at 1, finish at 5."""
        job_id, attempt = self.running(key, owner, **options)
        self.assertTrue(self.store.finish(job_id, attempt, REPORT, now=5))
        return job_id

    def in_state(self, state: str, key: str = "august-report") -> tuple[int, int]:
        """Bring a new job of alice's into a state by way of the verbs; return its id and attempt."""
        if state == "queued":
            return self.submit(key), 0
        job_id, attempt = self.running(key)
        if state == "cancel_requested":
            self.store.cancel("alice", job_id)
        elif state == "succeeded":
            self.store.finish(job_id, attempt, REPORT, now=5)
        elif state == "failed":
            self.store.fail(job_id, attempt, "bad_input", now=5)
        elif state == "cancelled":
            self.store.cancel("alice", job_id)
            self.store.finish(job_id, attempt, REPORT, now=5)
        self.assertEqual(state, self.state(job_id))
        return job_id, attempt

    def state(self, job_id: int, owner: str = "alice") -> str:
        state: str = self.store.get(owner, job_id)["state"]
        return state

    def kinds(self, job_id: int, owner: str = "alice") -> list[str]:
        return [event["kind"] for event in self.store.events(owner, job_id)]

    def contents(self) -> Contents:
        """Return every row, as another connection sees it."""
        return contents(self.path)

    def refused(self, code: str, call: Callable[..., object], *arguments: Any, **options: Any) -> JobError:
        """Check that a call is refused with this code, and that it changed not one byte of the tables."""
        before = self.contents()
        with self.assertRaises(JobError) as caught:
            call(*arguments, **options)
        error = caught.exception
        self.assertEqual((code, code), (error.code, str(error)))
        self.assertEqual(code in ("stale_attempt", "lease_expired"), isinstance(error, LostLease))
        self.assertEqual(before, self.contents())
        return error
