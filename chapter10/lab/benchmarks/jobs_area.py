"""Area `jobs`: a whole life beside the same rows written by bare `sqlite3`, history, batches, contention.

A life is six durable commits: submit, claim, three times progress, finish. The other side writes the same
rows into the same tables with the same settings and decides nothing; the two files are compared row by row
before anything is measured. Both stores are measured so: the chapter's, and the living one with its indexes,
turns and times of ending. `plain tables` is the same without our indexes and constraints.

What ours needs more for a life is a tenth of a millisecond of processor time, in tenths: four for reading what
is decided about (the row, the key, the number of live jobs), one for canonical forms and digests, less than one
for the turn, the rest for checks and decisions. It buys the promises J1 to J9: every decision is made on what
was read under the write lock. Which share of a life it is, the disk says: with 4 ms a commit the ratio is 1.00,
with 0.2 ms it is 1.20, since after each wait for the disk the code is cold as well.
Source: claims C10-150 to C10-154; what the chapter leaves open about cost.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import canonical, text_digest
from chapter10.companions.work.living_store import MIGRATIONS, LivingStore
from chapter10.jobs import SCHEMA, JobStore
from chapter10.lab.benchmarks.contention import measure_contention
from chapter10.lab.benchmarks.instrument import Finding, Growth, Plan, Side, Table, by_turns, chunks, compare, ready

__all__ = ["BareJobs", "fill_history", "live", "measure"]

_OWNER: Final = "alice"
_ARGS: Final = {"month": "2026-08"}
_RESULT: Final = {"month": "2026-08", "row_count": 3, "total_cents": 6000}
_BATCH: Final = 10_000
_CAPACITY: Final = 1_000_000

_PLAIN: Final = """
    CREATE TABLE jobs (id INTEGER PRIMARY KEY, owner, action_key, intent, state, attempt, max_attempts, deadline,
        ready_at, lease_until, done, total, error, ended_at, submitted_at);
    CREATE TABLE receipts (job_id INTEGER PRIMARY KEY, attempt, sha256, data, ended_at);
    CREATE TABLE events (seq INTEGER PRIMARY KEY, job_id, attempt, kind, detail, at);
"""
_LIVE_JOBS: Final = "SELECT id FROM jobs WHERE state IN ('queued', 'running', 'cancel_requested')"
_JOB: Final = (
    "INSERT INTO jobs (owner, action_key, intent, state, attempt, max_attempts, deadline, ready_at, done, total)"
    " VALUES (?, ?, ?, 'queued', 0, 3, 100, 0, 0, 0)"
)
_EVENT: Final = "INSERT INTO events (job_id, attempt, kind, detail, at) VALUES (?, ?, ?, ?, ?)"
_CLAIM: Final = "UPDATE jobs SET state = 'running', attempt = 1, lease_until = 11 WHERE id = ?"
_PROGRESS: Final = "UPDATE jobs SET done = ?, total = 3 WHERE id = ?"
_RECEIPT: Final = "INSERT INTO receipts (job_id, attempt, sha256, data) VALUES (?, 1, ?, ?)"
_END: Final = "UPDATE jobs SET state = 'succeeded', lease_until = NULL WHERE id = ?"
_DATED_JOB: Final = _JOB.replace("total)", "total, submitted_at)").replace("0, 0)", "0, 0, 0)")
_DATED_RECEIPT: Final = "INSERT INTO receipts (job_id, attempt, sha256, data, ended_at) VALUES (?, 1, ?, ?, 3)"
_DATED_END: Final = "UPDATE jobs SET state = 'succeeded', lease_until = NULL, ended_at = 3 WHERE id = ?"


@dataclass(frozen=True, slots=True)
class _Measured:
    """One of the two stores, with the ratios that it is to reach: to the same tables on a disk, and computing alone."""

    name: str
    make: Callable[[Path], JobStore]
    script: str
    on_disk: float
    computing: float


_STORES: Final = (
    _Measured("the chapter's store", JobStore, SCHEMA, 1.15, 2.2),
    _Measured("the living store", LivingStore, ";".join(MIGRATIONS), 1.1, 2.5),
)


class BareJobs:
    """The rows of whole lives on a bare connection: six commits each and no logic."""

    def __init__(self, path: Path, script: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("PRAGMA foreign_keys=ON")
        self.db.executescript(script)
        dated = "ended_at" in script
        plain, with_times = (_JOB, _RECEIPT, _END), (_DATED_JOB, _DATED_RECEIPT, _DATED_END)
        self._job, self._receipt, self._end = with_times if dated else plain
        self._intent = canonical({"tool": "reports.export", "version": "1", "args": _ARGS})
        self._data = canonical(_RESULT)
        self._sha256 = text_digest(self._data)

    def live(self, key: str) -> None:
        """Write what one life leaves behind."""
        do = self.db.execute
        do("BEGIN IMMEDIATE")
        job_id = do(self._job, (_OWNER, key, self._intent)).lastrowid
        do(_EVENT, (job_id, 0, "queued", "{}", 0))
        do("COMMIT")
        do("BEGIN IMMEDIATE")
        do(_CLAIM, (job_id,))
        do(_EVENT, (job_id, 1, "running", "{}", 1))
        do("COMMIT")
        for done in (1, 2, 3):
            do("BEGIN IMMEDIATE")
            do(_PROGRESS, (done, job_id))
            do(_EVENT, (job_id, 1, "progress", f'{{"done":{done},"total":3}}', 2))
            do("COMMIT")
        do("BEGIN IMMEDIATE")
        do(self._receipt, (job_id, self._sha256, self._data))
        do(self._end, (job_id,))
        do(_EVENT, (job_id, 1, "succeeded", "{}", 3))
        do("COMMIT")


def _submit(store: JobStore, key: str) -> int:
    return store.submit(_OWNER, key, _ARGS, now=0, deadline=100, capacity=_CAPACITY)


def live(store: JobStore, key: str) -> None:
    """Lead one job through its whole life."""
    job_id = _submit(store, key)
    attempt = store.claim(job_id, now=1)
    assert attempt == 1
    for done in (1, 2, 3):
        store.progress(job_id, attempt, done, 3, now=2)
    store.finish(job_id, attempt, _RESULT, now=3)


def measure(plan: Plan) -> Iterator[Finding]:
    """Yield the ratios of a life and of batches, the growth with the history, and the contention."""
    for measured in _STORES:
        yield from _lives(plan, measured)
    yield from _batches(plan)
    chapter, living = _STORES
    yield from _history(plan, chapter, plan.pick((0, 300), (0, 10_000, 100_000)))
    yield from _history(plan, living, plan.pick((0, 300), (0, 10_000, 100_000, 1_000_000)))
    yield from measure_contention(plan)


def _lives(plan: Plan, measured: _Measured) -> Iterator[Finding]:
    count, repeats = plan.pick(1, 2), plan.pick(3, 301)
    folder = plan.folder / measured.name.replace(" ", "-")
    folder.mkdir()
    store = measured.make(folder / "lives.db")
    bare, plain = BareJobs(folder / "bare.db", measured.script), BareJobs(folder / "plain.db", _PLAIN)
    with store, closing(bare.db), closing(plain.db):
        yield _same_work(measured, store, bare)
        ours = _counted(count, lambda key: live(store, key))
        bare_lives, plain_lives = _counted(count, bare.live), _counted(count, plain.live)
        plan.report(f"jobs: lives in {measured.name}")
        yield compare(
            f"{measured.name}: a life of six commits, same tables",
            ready(ours),
            ready(bare_lives),
            count=count,
            repeats=repeats,
            target=measured.on_disk,
        )
        yield compare(
            f"{measured.name}: a life, plain tables", ready(ours), ready(plain_lives), count=count, repeats=repeats
        )
    # The same again with the disk taken out, so that what is left is what is computed.
    store, bare = measured.make(folder / "computed.db"), BareJobs(folder / "computed-bare.db", measured.script)
    with store, closing(bare.db):
        for db in (store.db, bare.db):
            db.execute("PRAGMA synchronous=OFF")
        count, repeats = plan.pick(2, 30), plan.pick(3, 31)
        ours, bare_lives = _counted(count, lambda key: live(store, key)), _counted(count, bare.live)
        yield compare(
            f"{measured.name}: without waiting for the disk",
            ready(ours),
            ready(bare_lives),
            count=count,
            repeats=repeats,
            target=measured.computing,
            computes=True,
        )


def _same_work(measured: _Measured, store: JobStore, bare: BareJobs) -> Finding:
    """Compare what one life writes: its commits, which are waits for the disk, the pages of the log, the rows."""
    rows: list[dict[str, int | float | str]] = []
    sides: tuple[tuple[str, sqlite3.Connection, Callable[[], None]], ...] = (
        ("ours", store.db, lambda: live(store, "x")),
        ("other", bare.db, lambda: bare.live("x")),
    )
    for name, db, run in sides:
        said: list[str] = []
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.set_trace_callback(said.append)
        run()
        db.set_trace_callback(None)
        pages = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        rows.append({"side": name, "commits": said.count("COMMIT"), "log pages": pages, "statements": len(said)})
    same = all(
        store.db.execute(f"SELECT * FROM {table}").fetchall() == bare.db.execute(f"SELECT * FROM {table}").fetchall()
        for table in ("jobs", "receipts", "events")
    )
    equal = same and rows[0]["commits"] == rows[1]["commits"]
    return Table(
        f"{measured.name}: what one life writes", tuple(rows), "the same rows and commits" if equal else "not the same"
    )


def _batches(plan: Plan) -> Iterator[Finding]:
    """A submit within a batch, beside a submit of its own; all are durable."""
    repeats = plan.pick(3, 41)
    with LivingStore(plan.folder / "batches.db") as store:
        singles = _counted(plan.pick(3, 5), lambda key: _submit(store, key))
        for size, target in ((10, 0.3), (100, 0.12)):
            batches = plan.pick(1, 2)

            def batch(key: str, size: int = size) -> None:
                pairs = [(f"{key}-{size}-{number}", _ARGS) for number in range(size)]
                store.submit_many(_OWNER, pairs, now=0, capacity=_CAPACITY)

            many = _counted(batches, batch)
            counts = (size * batches, plan.pick(3, 5))
            yield compare(
                f"a submit among {size} at once, to one alone",
                ready(many),
                ready(singles),
                count=0,
                repeats=repeats,
                target=target,
                counts=counts,
            )


def _history(plan: Plan, measured: _Measured, sizes: tuple[int, ...]) -> Iterator[Finding]:
    stores: list[Any] = []
    try:
        for size in sizes:
            store = measured.make(plan.folder / f"{measured.name[4:7]}-history-{size}.db")
            stores.append(store)
            # The wait for the disk is the same at every size and would only hide what grows.
            store.db.execute("PRAGMA synchronous=OFF")
            fill_history(store, size, plan.report)
        for name in _VERBS:
            if hasattr(stores[0], name):
                plan.report(f"jobs: {name} over history, {measured.name}")
                yield _growth(f"{measured.name}: {name}, finished jobs kept", name, stores, sizes, plan)
    finally:
        for store in stores:
            store.close()


def _growth(title: str, name: str, stores: list[Any], sizes: tuple[int, ...], plan: Plan) -> Finding:
    """Measure one verb on all files by turns."""
    count = plan.pick(3, 10)
    sides = [_calls(name, store, count) for store in stores]
    costs = by_turns(sides, count=count, repeats=plan.pick(3, 31))
    for store in stores:  # the next verb finds no live job either
        for (job_id,) in store.db.execute(_LIVE_JOBS).fetchall():
            store.claim(job_id, now=1000)
    return Growth(title, sizes, tuple(wall.median for wall, _ in costs), most=1.2)


def _calls(name: str, store: Any, count: int) -> Side:
    """Return a side that makes `count` calls of a verb, each with arguments that were made ready for it."""
    prepare, call = _VERBS[name](store)
    numbers = itertools.count()

    def side() -> Callable[[], object]:
        given = [prepare(f"{name} {number}") for number in itertools.islice(numbers, count)]
        return lambda: [call(*arguments) for arguments in given]

    return side


_Verb = tuple[Callable[[str], tuple[Any, ...]], Callable[..., object]]
"""What makes a call ready, untimed, and the call itself, with the arguments that come of it."""


def _submitted(store: JobStore) -> Callable[[str], tuple[Any, ...]]:
    return lambda key: (_submit(store, key),)


def _claimed(store: JobStore) -> Callable[[str], tuple[Any, ...]]:
    def prepare(key: str) -> tuple[Any, ...]:
        job_id = _submit(store, key)
        return job_id, store.claim(job_id, now=1)

    return prepare


def _finished(store: JobStore) -> Callable[[str], tuple[Any, ...]]:
    def prepare(key: str) -> tuple[Any, ...]:
        live(store, key)
        return (store.db.execute("SELECT max(id) FROM jobs").fetchone()[0],)

    return prepare


_VERBS: Final[dict[str, Callable[[Any], _Verb]]] = {
    "submit": lambda s: (lambda key: (key,), lambda key: _submit(s, key)),
    "claim": lambda s: (_submitted(s), lambda job: s.claim(job, now=1)),
    "claim_next": lambda s: (_submitted(s), lambda job: s.claim_next(now=1)),
    "renew": lambda s: (_claimed(s), lambda job, attempt: s.renew(job, attempt, now=2)),
    "progress": lambda s: (_claimed(s), lambda job, attempt: s.progress(job, attempt, 1, 3, now=2)),
    "finish": lambda s: (_claimed(s), lambda job, attempt: s.finish(job, attempt, _RESULT, now=2)),
    "fail": lambda s: (_claimed(s), lambda job, attempt: s.fail(job, attempt, "broken", now=2)),
    "cancel": lambda s: (_submitted(s), lambda job: s.cancel(_OWNER, job, now=1)),
    "get": lambda s: (_submitted(s), lambda job: s.get(_OWNER, job)),
    "events": lambda s: (_finished(s), lambda job: s.events(_OWNER, job)),
    "result": lambda s: (_finished(s), lambda job: s.result(_OWNER, job)),
    "list_jobs": lambda s: (lambda key: (), lambda: s.list_jobs(_OWNER)),
    "stats": lambda s: (lambda key: (), lambda: s.stats(now=1)),
    "sweep": lambda s: (lambda key: (), lambda: s.sweep(now=1)),
}


def fill_history(store: JobStore, size: int, report: Callable[[str], object] = lambda _: None) -> None:
    """Put `size` succeeded jobs of 1000 owners into an empty store, as their lives would have left them."""
    intent = canonical({"tool": "reports.export", "version": "1", "args": _ARGS})
    data = canonical(_RESULT)
    sha256 = text_digest(data)
    db = store.db
    dated = isinstance(store, LivingStore)
    for numbers in chunks(size, _BATCH):
        ids = range(numbers.start + 1, numbers.stop + 1)
        db.execute("BEGIN IMMEDIATE")
        db.executemany(
            "INSERT INTO jobs (id, owner, action_key, intent, state, attempt, max_attempts, deadline, ready_at, done,"
            " total) VALUES (?, ?, ?, ?, 'succeeded', 1, 3, 100, 0, 0, 0)",
            [(number, f"owner {number % 1000}", f"key {number}", intent) for number in ids],
        )
        db.executemany(
            "INSERT INTO receipts (job_id, attempt, sha256, data) VALUES (?, 1, ?, ?)",
            [(number, sha256, data) for number in ids],
        )
        kinds = (("queued", 0, 0), ("running", 1, 1), ("succeeded", 1, 3))
        db.executemany(
            "INSERT INTO events (job_id, attempt, kind, detail, at) VALUES (?, ?, ?, '{}', ?)",
            [(number, attempt, kind, at) for number in ids for kind, attempt, at in kinds],
        )
        if dated:
            for table in ("jobs", "receipts"):
                db.execute(f"UPDATE {table} SET ended_at = 3 WHERE rowid > ?", (numbers.start,))
        db.execute("COMMIT")
        if numbers.stop % (10 * _BATCH) == 0:
            report(f"jobs: {numbers.stop:,} of {size:,} finished jobs written")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _counted(count: int, run: Callable[[str], object]) -> Callable[[], None]:
    """Return a run of `count` calls, each with a key that was not used before."""
    used = [0]

    def repeat() -> None:
        for _ in range(count):
            used[0] += 1
            run(f"key {used[0]}")

    return repeat
