"""What the tests of the job store share: stores on one file, refusals by code, the checker at the end."""

from __future__ import annotations

import functools
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from chapter10.companions.work.living_store import LivingStore
from chapter10.database import BUSY_SECONDS
from chapter10.jobs import JobError, JobStore, LostLease, Operation
from chapter10.limits import MAX_TIME
from chapter10.tests.job_checker import Contents, contents, violations
from chapter10.tests.support import FolderTestCase

__all__ = ["AUGUST", "JULY", "REPORT", "WRITES", "JobTestCase", "LivingTestCase", "Write", "anything", "writes_of"]

AUGUST: Final = {"month": "2026-08"}
JULY: Final = {"month": "2026-07"}
REPORT: Final = {"month": "2026-08", "row_count": 3, "total_cents": 6000}


def anything(args: dict[str, Any]) -> None:
    """Take all arguments: the check of an operation that has no rules of its own."""


class Write(NamedTuple):
    """One way in which a verb writes: how the store comes to it, the call, its answer, and what a repeat answers.

    A repeat is the same call after the first was committed and its answer was lost.
    """

    name: str
    prepare: Callable[[Any], object]
    call: Callable[[Any], Any]
    answer: Any
    repeated: Any


def _queued(store: JobStore) -> int:
    return store.submit("alice", "k", AUGUST, now=0, deadline=100, max_attempts=2)


def _running(store: JobStore) -> int | None:
    return store.claim(_queued(store), now=1)


def _cancel_requested(store: JobStore) -> None:
    _running(store)
    store.cancel("alice", 1)


def _last_attempt(store: JobStore) -> None:
    _running(store)
    store.claim(1, now=11)


def _several_dead(store: JobStore) -> None:
    _cancel_requested(store)
    store.submit("bob", "k", AUGUST, now=0, deadline=5)
    store.submit("bob", "exhausted", AUGUST, now=0, max_attempts=1)
    store.claim(3, now=1)


def _failed(store: JobStore) -> None:
    _running(store)
    store.fail(1, 1, "bad_input", now=2)


def _several_ended(store: JobStore) -> None:
    for number, key in enumerate(("a", "b", "c"), 1):
        store.submit("alice", key, AUGUST, now=0)
        store.claim(number, now=1)
        store.finish(number, 1, REPORT, now=number + 1)


_BATCH: Final = [("k", AUGUST), ("l", JULY), ("k", AUGUST)]
_SWEPT: Final = {"deadline_exceeded": 1, "attempts_exhausted": 1, "cancelled": 1, "damaged": 0, "skipped": 0}
_NOTHING: Final = dict.fromkeys(_SWEPT, 0)

WRITES: Final = (
    Write("submit", lambda s: None, lambda s: s.submit("alice", "k", AUGUST, now=0), 1, 1),
    Write("claim", _queued, lambda s: s.claim(1, now=1), 1, None),
    Write("claim after a lost lease", _running, lambda s: s.claim(1, now=11), 2, None),
    Write("claim of a dead job", _last_attempt, lambda s: s.claim(1, now=50), None, None),
    Write("progress", _running, lambda s: s.progress(1, 1, 1, 2, now=2), True, True),
    Write("progress of a cancelled job", _cancel_requested, lambda s: s.progress(1, 1, 1, 2, now=2), False, False),
    Write("finish", _running, lambda s: s.finish(1, 1, REPORT, now=2), True, False),
    Write("finish of a cancelled job", _cancel_requested, lambda s: s.finish(1, 1, REPORT, now=2), False, False),
    Write("finish past the deadline", _running, lambda s: s.finish(1, 1, REPORT, now=100), False, False),
    Write("fail", _running, lambda s: s.fail(1, 1, "bad_input", now=2), "failed", "failed"),
    Write("fail to retry", _running, lambda s: s.fail(1, 1, "temporary", now=2, retry_after=1), "queued", "queued"),
    Write("cancel in line", _queued, lambda s: s.cancel("alice", 1), "cancelled", "cancelled"),
    Write("cancel while running", _running, lambda s: s.cancel("alice", 1), "cancel_requested", "cancel_requested"),
)
"""Every way in which the chapter's store writes, each from a state of its own."""

_LIVING_WRITES: Final = (
    Write("submit many", lambda s: None, lambda s: s.submit_many("alice", _BATCH, now=0), [1, 2, 1], [1, 2, 1]),
    Write("claim next", _queued, lambda s: s.claim_next(now=1), (1, 1), None),
    Write("claim next past dead jobs", _several_dead, lambda s: s.claim_next(now=12), None, None),
    Write("renew", _running, lambda s: s.renew(1, 1, now=2, lease=50), "running", "running"),
    Write("renew past the deadline", _running, lambda s: s.renew(1, 1, now=100), "failed", "failed"),
    Write("hand back", _last_attempt, lambda s: s.hand_back(1, 2, "worker_stopped", now=12), "queued", "queued"),
    Write("retry", _failed, lambda s: s.retry(1, now=3, by="ops", why="mended"), 2, 2),
    Write("release", _running, lambda s: s.release(1, now=2), True, False),
    Write("sweep", _several_dead, lambda s: s.sweep(now=12), _SWEPT, _NOTHING),
    Write(
        "prune",
        _several_ended,
        lambda s: s.prune(now=9, results_before=4, keys_before=3),
        {"results": 1, "keys": 1},
        {"results": 0, "keys": 0},
    ),
)
"""And those that only the living store has."""


def writes_of(make: type[JobStore]) -> tuple[Write, ...]:
    """Return every way in which stores of this class write."""
    return (*WRITES, *_LIVING_WRITES) if issubclass(make, LivingStore) else WRITES


@functools.cache
def _new_file(make: type[JobStore]) -> bytes:
    """Return the bytes of a store that was just made; making it anew for each test would wait for the disk."""
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        path = Path(folder) / "jobs.db"
        make(path).close()
        return path.read_bytes()


class JobTestCase(FolderTestCase):
    """A store of class `make` at `self.path`; after each test the checker looks at its file from outside.

    With `also_on(LivingStore)` the same tests run on the living store too.
    """

    make: ClassVar[Any] = JobStore
    store: Any

    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "jobs.db"
        self.path.write_bytes(_new_file(self.make))
        self.addCleanup(self._check)
        self.store = self.open()

    def _check(self) -> None:
        if self.path.exists():
            self.assertEqual([], violations(self.path))

    def open(self, operations: Iterable[Operation] = (), busy_seconds: float = BUSY_SECONDS) -> Any:
        """Open another store on the same file, closed at the end of the test."""
        store = self.make(self.path, operations, busy_seconds=busy_seconds)
        self.addCleanup(store.close)
        # Waiting for the disk is most of what these tests would do. That a store waits for it is tested
        # in `test_database`, and the races and kills run stores that do.
        store.db.execute("PRAGMA synchronous=OFF")
        return store

    def submit(self, key: str = "august-report", owner: str = "alice", *, now: float = 0, **options: Any) -> int:
        """Submit the report of August, with the chapter's hundred seconds for each kind of store."""
        options.setdefault("deadline", min(now + 100, MAX_TIME))
        job_id: int = self.store.submit(owner, key, AUGUST, now=now, **options)
        return job_id

    def claim(self, job_id: int, *, now: float = 1, lease: float = 10) -> int:
        """Claim a job that is there to be had."""
        attempt: int | None = self.store.claim(job_id, now=now, lease=lease)
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

    def deliveries(self, job_id: int, attempt: int, now: float) -> list[Callable[[], object]]:
        """Return every call by which the worker of an attempt writes."""
        store, given = self.store, (job_id, attempt)
        calls: list[Callable[[], object]] = [
            lambda: store.progress(*given, 1, 2, now=now),
            lambda: store.fail(*given, "other", now=now),
            lambda: store.fail(*given, "other", now=now, retry_after=1),
            lambda: store.finish(*given, REPORT, now=now),
        ]
        if isinstance(store, LivingStore):
            calls.append(lambda: store.renew(*given, now=now))
        return calls

    def damage(self, change: str) -> None:
        """Change the file behind the store's back, as a disk or another program does."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("PRAGMA ignore_check_constraints=ON")
            db.execute(change)

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


class LivingTestCase(JobTestCase):
    """The same with the living store: for what only that one has, and for who needs it."""

    make = LivingStore
    store: LivingStore
