"""One checker for every scenario of the job store: what must hold in the file, whatever happened before.

`violations` looks at a store from outside, as a reader of the file would, and returns one line for each
thing that is wrong; an empty list means that all of J1 to J9 hold as far as a single look can tell.
`contents` returns every row of every table, to compare before and after a call that was refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

__all__ = ["Contents", "Source", "contents", "violations"]

_LIVE: Final = ("queued", "running", "cancel_requested")
_FINAL: Final = ("succeeded", "failed", "cancelled")
# Written down here once more, on purpose: a checker that imports its words from the code under test
# would agree with whatever that code says.

Contents = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""

Source = str | os.PathLike[str] | sqlite3.Connection
"""A store: its file, or a connection to it."""


@contextmanager
def _connection(source: Source) -> Iterator[sqlite3.Connection]:
    if isinstance(source, sqlite3.Connection):
        yield source
    else:
        with closing(sqlite3.connect(source, timeout=30)) as connection:
            yield connection


def contents(source: Source) -> Contents:
    """Return all rows of the three tables and of the counters that number them, in order."""
    with _connection(source) as db:
        return {
            table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in ("jobs", "receipts", "events", "sqlite_sequence")
        }


def violations(
    source: Source,
    *,
    accepted: Iterable[int] = (),
    pruned: Iterable[int] = (),
    seen_seq: int = 0,
    capacity: int | None = None,
) -> list[str]:
    """Return what is wrong with a store, one line each.

    `accepted`: job ids that were handed out; each must exist or be among `pruned`, which must not
    exist. `seen_seq`: the highest `seq` that a reader saw; its number is never given again.
    `capacity`: the limit that every submission named.
    """
    with _connection(source) as db:
        wrong = [f"integrity: {text}" for (text,) in db.execute("PRAGMA integrity_check") if text != "ok"]
        wrong += [f"foreign key: {row}" for row in db.execute("PRAGMA foreign_key_check").fetchall()]
        names = [row[1] for row in db.execute("PRAGMA table_info(jobs)")]
        jobs = [dict(zip(names, row, strict=True)) for row in db.execute("SELECT * FROM jobs ORDER BY id")]
        receipts = {row[0]: row[1:] for row in db.execute("SELECT job_id, attempt, sha256, data FROM receipts")}
        events: dict[int, list[tuple[str, int, Any]]] = {job["id"]: [] for job in jobs}
        newest = 0
        for seq, job_id, attempt, kind, detail in db.execute(
            "SELECT seq, job_id, attempt, kind, detail FROM events ORDER BY seq"
        ):
            newest = seq
            if job_id in events:
                events[job_id].append((kind, attempt, json.loads(detail)))
            else:
                wrong.append(f"event {seq} belongs to no job")
        counters = dict(db.execute("SELECT name, seq FROM sqlite_sequence"))
    if counters.get("events", 0) < max(newest, seen_seq):
        wrong.append("the counter of seq fell back")
    known, removed = {job["id"] for job in jobs}, set(pruned)
    if counters.get("jobs", 0) < max(known | removed, default=0):
        wrong.append("the counter of job ids fell back")
    wrong += [f"job {job_id} was accepted and is lost" for job_id in set(accepted) - known - removed]
    wrong += [f"job {job_id} was pruned and is back" for job_id in removed & known]
    wrong += [f"receipt of job {job_id}, which is not there" for job_id in receipts.keys() - known]
    keys = [(job["owner"], job["action_key"]) for job in jobs]
    if len(set(keys)) != len(keys):
        wrong.append("a key has two jobs")
    live = sum(job["state"] in _LIVE for job in jobs)
    if capacity is not None and live > capacity:
        wrong.append(f"{live} live jobs exceed the capacity of {capacity}")
    for job in jobs:
        wrong += [f"job {job['id']}: {text}" for text in _of_row(job)]
        wrong += [f"job {job['id']}: {text}" for text in _of_receipt(job, receipts.get(job["id"]))]
        wrong += [f"job {job['id']}: {text}" for text in _of_events(job, events[job["id"]])]
    return wrong


def _of_row(job: dict[str, Any]) -> Iterator[str]:
    state = job["state"]
    if state not in _LIVE + _FINAL:
        yield f"unknown state {state}"
    if not 0 <= job["attempt"] <= job["max_attempts"]:
        yield "attempt beyond its limit"
    if not 0 <= job["done"] <= job["total"]:
        yield "done exceeds total"
    if (state == "failed") != (job["error"] is not None) and state != "queued":
        yield "error and state disagree"
    if (job["lease_until"] is not None) != (state in ("running", "cancel_requested")):
        yield "a lease without a holder, or the other way round"
    if (
        state in _LIVE
        and not (job["ready_at"] if job["lease_until"] is None else job["lease_until"]) <= job["deadline"]
    ):
        yield "no time at which it could move before its deadline"
    if "ended_at" in job and (state in _FINAL) != (job["ended_at"] is not None):
        yield "final and ended disagree"


def _of_receipt(job: dict[str, Any], receipt: tuple[Any, ...] | None) -> Iterator[str]:
    if (job["state"] == "succeeded") != (receipt is not None):
        yield "succeeded and receipt disagree"
    if receipt is not None:
        attempt, sha256, data = receipt
        if attempt != job["attempt"]:
            yield "the receipt is of another attempt"
        if data is not None and hashlib.sha256(data.encode("utf-8")).hexdigest() != sha256:
            yield "the digest is of another result"


def _of_events(job: dict[str, Any], events: list[tuple[str, int, Any]]) -> Iterator[str]:
    kinds = [kind for kind, _, _ in events]
    claims = [attempt for kind, attempt, _ in events if kind == "running"]
    if claims != list(range(1, job["attempt"] + 1)):
        yield f"attempt {job['attempt']} but claims {claims}"
    if [kind for kind in kinds if kind in _FINAL] != [job["state"]][: job["state"] in _FINAL]:
        yield "final state and final events disagree"
    if any(kind in _FINAL for kind in kinds[:-1]):
        yield "an event after the end"
    if kinds[:1] != ["queued"]:
        yield "the first event is not queued"
    row = {name: job[name] for name in ("state", "attempt", "done", "total", "error")}
    if _replay(events) != row:
        yield f"its events replay to {_replay(events)}, its row is {row}"


def _replay(events: list[tuple[str, int, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"state": "queued", "attempt": 0, "done": 0, "total": 0, "error": None}
    for kind, attempt, detail in events:
        if kind == "progress":
            row.update(detail)
        else:
            row.update(state=kind, error=detail.get("error"))
        if kind in ("running", "queued"):
            row.update(attempt=attempt, done=0, total=0)
    return row
