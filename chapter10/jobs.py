"""Work that outlives the request: a durable job store with leases, fencing and an event log.

A caller submits an *intent* under a key of its own and gets a job id once the job is on disk. A worker *claims* it for
a limited time, reports progress and delivers one result. Either may vanish; the store decides what counts.

    owner      a trusted identity; what is not yours looks exactly like what does not exist
    action_key names one intent of one owner; the same key is the same job
    job id     names the accepted work; `attempt` numbers its executions, from 1
    lease      until when an attempt may write; when it has ended, another attempt may be claimed
    receipt    the one stored result of a job that succeeded
    event      one line of what happened; `seq` is the cursor of a reader
    now        logical time in seconds, passed in by the trusted runtime, never read from a clock here

             submit            claim               finish
        o ----------> queued ----------> running ----------> succeeded
                       |  ^               |  |  |
                cancel |  | fail + retry  |  |  | fail, deadline_exceeded, attempts_exhausted
                       |  +---------------+  |  +----------> failed
                       v                     v cancel
                   cancelled <---------- cancel_requested

What holds at every committed moment
    J1   a job has one receipt if and only if it is succeeded
    J2   a final state never changes
    J3   attempt rises by one with each claim, never falls, never exceeds max_attempts
    J4   nothing is committed by a stale attempt, after the lease, at or past the deadline, or after a cancel request
    J5   a refused call changes nothing
    J6   replaying a job's events gives its row; state, receipt and event change in one transaction
    J7   job ids and `seq` rise and never come back
    J8   (owner, action_key) is unique and keeps its job
    J9   jobs that are not final never exceed the capacity that admitted them
    J10  whatever an owner does, nothing of another changes by a byte; owners share the numbering and the capacity
    J11  time and one willing worker bring every job to an end

At a boundary one side wins: `now >= deadline` is past it, `now >= lease_until` is expired. When an answer is lost,
repeat the call: `submit` gives the same job, `finish` says False, `cancel` and `fail` give the state, `progress` with
equal numbers writes nothing. A lost `claim`, and a crash, wait for the end of the lease. No effect outside of this file
is made to happen once. What the chapter leaves open (renewing, sweeping, …) is `companions.work.living_store`.
Source: the chapter from "当一次调用放不下整个任务" on (claims C10-129 to C10-255, C10-288 to C10-295).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any, ClassVar, Final, NamedTuple, Self

from chapter10.canonical import CanonicalError, CodedError, canonical, text_digest
from chapter10.database import BUSY_SECONDS, Database, StoreError
from chapter10.limits import JOB_ARGUMENTS, MAX_ARGS_BYTES, MAX_RESULT_BYTES, MAX_TIME, is_unicode, is_whole

__all__ = [
    "APPLICATION_ID", "DEADLINE_SECONDS", "FINAL_STATES", "LIVE_STATES", "REPORTS_EXPORT", "SCHEMA", "STATES",
    "Job", "JobError", "JobStore", "LostLease", "Now", "Operation",
]  # fmt: skip

SCHEMA: Final = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    action_key TEXT NOT NULL,
    intent TEXT NOT NULL,              -- canonical {tool, version, args}
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,          -- the number of claims so far
    max_attempts INTEGER NOT NULL,     -- includes the first
    deadline NUMERIC NOT NULL,         -- nobody starts or succeeds from here on
    ready_at NUMERIC NOT NULL,         -- earliest claim while queued
    lease_until NUMERIC,               -- the current attempt may write before this
    done INTEGER NOT NULL,             -- of the current attempt
    total INTEGER NOT NULL,            -- 0: not known yet
    error TEXT,                        -- why it failed, or why it is queued again
    CONSTRAINT state_is_known CHECK (
        state IN ('queued', 'running', 'cancel_requested', 'succeeded', 'failed', 'cancelled')),
    CONSTRAINT attempt_within_limit CHECK (0 <= attempt AND attempt <= max_attempts),
    CONSTRAINT done_within_total CHECK (0 <= done AND done <= total),
    CONSTRAINT lease_while_held CHECK ((lease_until IS NOT NULL) = (state IN ('running', 'cancel_requested'))),
    CONSTRAINT lease_within_deadline CHECK (lease_until IS NULL OR lease_until <= deadline),
    CONSTRAINT held_means_claimed CHECK (lease_until IS NULL OR attempt >= 1),
    CONSTRAINT failed_says_why CHECK (state <> 'failed' OR error IS NOT NULL),
    CONSTRAINT one_job_per_key UNIQUE (owner, action_key)
);
CREATE TABLE receipts (
    job_id INTEGER PRIMARY KEY REFERENCES jobs (id),  -- one receipt a job
    attempt INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    data TEXT                          -- canonical JSON
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL REFERENCES jobs (id),
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL,              -- canonical JSON: counts and codes, never arguments or results
    at NUMERIC                         -- logical time; NULL where the caller gave none
);
CREATE INDEX jobs_live ON jobs (id) WHERE state IN ('queued', 'running', 'cancel_requested');
CREATE INDEX events_by_job ON events (job_id, seq);
"""
APPLICATION_ID: Final = 0x43483130  # "CH10"

LIVE_STATES: Final = ("queued", "running", "cancel_requested")
FINAL_STATES: Final = ("succeeded", "failed", "cancelled")
STATES: Final = LIVE_STATES + FINAL_STATES
DEADLINE_SECONDS: Final = 100  # from a submission to its deadline, where the caller names none

Now = int | float | Callable[[], int | float]
"""Logical time in seconds, or a clock, which is read once the write lock is held: waiting eats nothing of a lease."""


class JobError(CodedError, ValueError):
    """Raised when a caller's request cannot be granted; nothing was changed.

    `invalid_submission`: submit was given something it does not take, `bad_input`: another verb was; `reason` says
    what. `key_conflict`: the key stands for another intent. `queue_full`: no place for new work. `not_found`: no such
    job of this owner. `not_running`: nobody holds it. `invalid_progress`: the count falls or exceeds the total.
    `not_ready`: there is no result yet.
    """

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.reason = reason


class LostLease(JobError):
    """Raised when a worker's right to write has ended, which in a race is no fault; nothing was changed.

    `stale_attempt`: this attempt is not the newest. `lease_expired`: it is, but its time is over.
    """


@dataclass(frozen=True, slots=True)
class Operation:
    """What may be submitted; `check(args)` gets a dict of its own and refuses it by a `ValueError` with the reason."""

    tool: str
    version: str
    check: Callable[[dict[str, Any]], None]


def _check_month(args: dict[str, Any]) -> None:
    if set(args) != {"month"} or type(args["month"]) is not str:
        raise ValueError('the arguments are {"month": "YYYY-MM"} and nothing else')
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", args["month"]):
        raise ValueError("the month is not YYYY-MM")


REPORTS_EXPORT: Final = Operation("reports.export", "1", _check_month)
"""The chapter's operation: a monthly sales report."""


class Job(NamedTuple):
    """A row of `jobs`, as far as decisions need it; times in seconds."""

    id: int
    owner: str
    state: str
    attempt: int
    max_attempts: int
    deadline: float
    ready_at: float
    lease_until: Any  # None while nobody holds it
    done: int
    total: int
    error: str | None

    def is_sound(self) -> bool:
        """Say whether a store can have written this row; what the disk or another program changed is damage."""
        times = {*map(type, (self.deadline, self.ready_at, self.lease_until or 0))} <= {int, float}
        texts = all(type(text) is str and is_unicode(text) for text in (self.owner, self.state, self.error or ""))
        attempts = is_whole(self.max_attempts, 0) and is_whole(self.attempt, 0, self.max_attempts)
        counts = is_whole(self.total, 0) and is_whole(self.done, 0, self.total)
        return times and texts and attempts and counts and self.state in STATES


class JobStore:
    """Jobs, receipts and events in one SQLite file; see the module for what it promises.

    `path`: the file, made if absent. `operations`: what may be submitted besides `reports.export`. `busy_seconds`: how
    long a call waits for another process. `db`: the connection, for looking. Use it as a context manager or call
    `close`. A store belongs to the thread that made it; any number of stores may share a file. Raises `JobError`
    (`bad_input`) for no operation; every method may raise `StoreError` (`store_busy`, `store_unavailable`) as well.
    What is read back is checked: of a row that no store has written, the `reason` is `damaged:` and which row.
    """

    _arguments: ClassVar = JOB_ARGUMENTS

    def __init__(
        self, path: str | os.PathLike[str], operations: Iterable[Operation] = (), *, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._operations: dict[str, Operation] = {}
        if not isinstance(operations, Iterable):
            raise JobError("bad_input", "the operations are no list")
        for operation in (REPORTS_EXPORT, *operations):
            self.register(operation)
        self._database = self._open(path, busy_seconds)
        self.db: Connection = self._database.connection

    def _open(self, path: str | os.PathLike[str], busy_seconds: float) -> Database:
        return Database(path, application_id=APPLICATION_ID, migrations=(SCHEMA,), busy_seconds=busy_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second close does nothing, and every later call is `store_unavailable`."""
        self._database.close()

    def register(self, operation: Operation) -> None:
        """Let another operation be submitted. Raises `JobError` (`bad_input`) for no operation or a known name."""
        if type(operation) is not Operation or not callable(operation.check):
            raise JobError("bad_input", "not an operation")
        self._check(tool=operation.tool, version=operation.version)
        if operation.tool in self._operations:
            raise JobError("bad_input", "the tool is registered already")
        self._operations[operation.tool] = operation

    def submit(
        self,
        owner: str,
        action_key: str,
        args: dict[str, Any],
        *,
        now: Now,
        deadline: float | None = None,
        max_attempts: int = 3,
        capacity: int = 20,
        tool: str = "reports.export",
    ) -> int:
        """Store an intent, `{tool, version, args}`, and return its job id; a known key returns the id that it has.

        `args`: as the tool's check wants it, `MAX_ARGS_BYTES` of JSON at most. `deadline`: seconds, `DEADLINE_SECONDS`
        after `now` by default. `max_attempts`: all executions. `capacity`: the most jobs that are not final. The job
        keeps what it was first given, and a repeat is answered whether or not there is room and time for new work.
        Raises `JobError`: `invalid_submission`, `key_conflict`, `queue_full`.
        Source: claims C10-138 to C10-144, C10-216 to C10-225, C10-288, C10-289.
        """
        self._check("invalid_submission", owner=owner, action_key=action_key, now=now)
        self._check("invalid_submission", deadline=deadline, max_attempts=max_attempts, capacity=capacity)
        intent = self._intent(tool, args)
        with self._database.write() as db:
            moment = self._read(now, "invalid_submission")
            end = min(moment + DEADLINE_SECONDS, MAX_TIME) if deadline is None else deadline
            query = "SELECT id, intent FROM jobs WHERE owner = ? AND action_key = ?"
            known = db.execute(query, (owner, action_key)).fetchone()
            if known is not None:  # guard: known_key
                if known[1] != intent:  # guard: key_conflict
                    raise JobError("key_conflict")
                return int(known[0])
            if moment >= end:
                raise JobError("invalid_submission", "the deadline has passed already")
            live = db.execute("SELECT count(*) FROM jobs WHERE state IN ('queued', 'running', 'cancel_requested')")
            if live.fetchone()[0] >= capacity:  # guard: queue_full
                raise JobError("queue_full")
            job_id = db.execute(
                "INSERT INTO jobs (owner, action_key, intent, max_attempts, deadline, ready_at, state, attempt, done,"
                " total) VALUES (?, ?, ?, ?, ?, ?, 'queued', 0, 0, 0)",
                (owner, action_key, intent, max_attempts, end, moment),
            ).lastrowid
            assert job_id is not None
            self._tell(db, job_id, 0, "queued", {}, moment)
            return job_id

    def get(self, owner: str, job_id: int) -> dict[str, Any]:
        """Return `{id, state, attempt, done, total, error}` of a job; reading never changes it.

        A job past its deadline shows its last stored state until a claim or a delivery touches it (C10-291). Raises
        `JobError`: `not_found`, `bad_input`. Source: claims C10-135 to C10-137, C10-155, C10-191.
        """
        self._check(owner=owner, job_id=job_id)
        names = ("id", "state", "attempt", "done", "total", "error")
        query = f"SELECT {', '.join(Job._fields)} FROM jobs WHERE id = ? AND owner = ?"  # guard: owner
        row = self._database.row(query, (job_id, owner))
        return {name: value for name, value in self._sound(job_id, row)._asdict().items() if name in names}

    def cancel(self, owner: str, job_id: int, *, now: Now | None = None) -> str:
        """Ask for a job to be stopped and return its state after the request; `now` only dates it.

        A queued job is `cancelled` at once, a running one `cancel_requested` until its worker or the end of its lease
        confirms; a final state stays. Raises `JobError`: `not_found`, `bad_input`. Source: claims C10-208 to C10-215.
        """
        self._check(owner=owner, job_id=job_id, now=0 if now is None else now)
        with self._database.write() as db:
            job = self._find(db, job_id)
            if job.owner != owner:  # guard: owner
                raise JobError("not_found")
            moment = None if now is None else self._read(now)
            if job.state == "queued":
                return self._end(db, job, "cancelled", moment)
            if job.state != "running":  # guard: running
                return job.state
            return self._move(db, job, "cancel_requested", moment)

    def events(self, owner: str, job_id: int, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return the events of a job with `seq > after`, oldest first: `{seq, kind, attempt, detail}`, at most `limit`.

        Keep the `seq` of the last event that you have dealt with and pass it as `after`; after a crash you may see an
        event again, so drop a `seq` that you know (C10-253). Raises `JobError`: `not_found`, `bad_input`.
        Source: claims C10-251 to C10-254.
        """
        self._check(owner=owner, job_id=job_id, after=after, limit=limit)
        rows = self._database.rows(  # the outer join tells a job without newer events from no job
            "SELECT e.seq, e.kind, e.attempt, CAST(e.detail AS BLOB) FROM jobs j LEFT JOIN events e"
            " ON e.job_id = j.id AND e.seq > ? WHERE j.id = ? AND j.owner = ? ORDER BY e.seq LIMIT ?",  # guard: owner
            (after, job_id, owner, limit),
        )
        if not rows:
            raise JobError("not_found")
        names = ("seq", "kind", "attempt", "detail")
        found = [(*row[:3], _parsed(row[3], f"event {row[0]}", dict)) for row in rows if row[0] is not None]
        return [dict(zip(names, row, strict=True)) for row in found]

    def result(self, owner: str, job_id: int) -> dict[str, Any]:
        """Return `{artifact_id, sha256, data}` of a job that succeeded; `sha256` is the digest of `data`.

        `artifact_id` is a label and opens nothing by itself. Raises `JobError`: `not_found`, `not_ready` (in every
        other state), `bad_input`. Source: claims C10-239, C10-244 to C10-249.
        """
        self._check(owner=owner, job_id=job_id)
        row = self._database.row(
            "SELECT r.sha256, CAST(r.data AS BLOB) FROM jobs j LEFT JOIN receipts r ON r.job_id = j.id"
            " WHERE j.id = ? AND j.owner = ?",  # guard: owner
            (job_id, owner),
        )
        if row is None:
            raise JobError("not_found")
        if row[1] is None:
            raise JobError("not_ready")
        data = _parsed(row[1], f"the result of job {job_id}", object, row[0])
        return {"artifact_id": f"report-{job_id}", "sha256": row[0], "data": data}

    # The worker's side: who may call these is the business of the process that does.

    def intent(self, job_id: int) -> dict[str, Any]:
        """Return `{tool, version, args}` of a job, for the worker. Raises `JobError`: `not_found`, `bad_input`."""
        self._check(job_id=job_id)
        row = self._database.row("SELECT CAST(intent AS BLOB) FROM jobs WHERE id = ?", (job_id,))
        if row is None:
            raise JobError("not_found")
        intent: dict[str, Any] = _parsed(row[0], f"the intent of job {job_id}", dict)
        if {name: type(value) for name, value in intent.items()} != {"tool": str, "version": str, "args": dict}:
            raise StoreError("store_unavailable", f"damaged: the intent of job {job_id}")
        return intent

    def claim(self, job_id: int, *, now: Now, lease: float = 10) -> int | None:
        """Take a job for `lease` seconds and return the attempt number, or None if it is not to be had.

        None: it is final, not due, or held by a live lease; or it cannot be run any more and ends here: past its
        deadline, after its last attempt, or cancelled. The lease never reaches past the deadline. Raises `JobError`:
        `not_found`, `bad_input`. Source: claims C10-154, C10-201, C10-205, C10-209, C10-226, C10-227, C10-291.
        """
        self._check(job_id=job_id, now=now, lease=lease)
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            if job.state in FINAL_STATES:  # guard: ended
                return None
            if moment < (job.ready_at if job.lease_until is None else job.lease_until):  # guard: due
                return None
            if job.state == "cancel_requested":  # guard: cancel_requested
                self._end(db, job, "cancelled", moment)
                return None
            if moment >= job.deadline:  # guard: deadline
                self._end(db, job, "failed", moment, "deadline_exceeded")
                return None
            if job.attempt >= job.max_attempts:  # guard: attempts_exhausted
                self._end(db, job, "failed", moment, "attempts_exhausted")
                return None
            end = min(moment + lease, job.deadline)  # guard: lease_within_deadline
            attempt = job.attempt + 1
            self._move(db, job, "running", moment, attempt=attempt, lease_until=end, done=0, total=0, error=None)
            return attempt

    def progress(self, job_id: int, attempt: int, done: int, total: int, *, now: Now) -> bool:
        """Record that `done` of `total` units are done; return whether to go on.

        False means stop: the job has ended, perhaps by this call. Within an attempt neither number falls; equal ones
        write nothing. `done == total` is not success: only `finish` is. Raises `JobError`: `invalid_progress`, and as
        `finish` does. Source: claims C10-179 to C10-181, C10-232.
        """
        self._check(job_id=job_id, attempt=attempt, now=now)
        self._check("invalid_progress", done=done, total=total)
        if done > total:
            raise JobError("invalid_progress", "done exceeds total")
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            if self._may_write(db, job, attempt, moment) != "running":
                return False
            if done < job.done or total < job.total:  # guard: count_falls
                raise JobError("invalid_progress", "a count falls")
            if (done, total) != (job.done, job.total):
                db.execute("UPDATE jobs SET done = ?, total = ? WHERE id = ?", (done, total, job_id))
                self._tell(db, job_id, attempt, "progress", {"done": done, "total": total}, moment)
            return True

    def finish(self, job_id: int, attempt: int, result: Any, *, now: Now) -> bool:
        """Deliver the result of an attempt, JSON of `MAX_RESULT_BYTES` at most; True if this call stored it.

        False only says that nothing new was stored by this call, because the job is final, perhaps from now on; ask
        `get` what it is. Raises `JobError`: `not_found`, `not_running`, `bad_input`; `LostLease`: `stale_attempt`,
        `lease_expired`. Source: claims C10-211, C10-228 to C10-238 and the order of X-02.
        """
        self._check(job_id=job_id, attempt=attempt, now=now)
        data = self._json(result, MAX_RESULT_BYTES)
        receipt = (job_id, attempt, text_digest(data), data)
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            if attempt != job.attempt:  # guard: stale_attempt
                raise LostLease("stale_attempt")
            if job.state in FINAL_STATES:  # guard: ended
                return False
            if job.state == "queued":  # guard: not_running
                raise JobError("not_running")
            if job.state == "cancel_requested":  # guard: cancel_requested
                self._end(db, job, "cancelled", moment)
                return False
            if moment >= job.deadline:  # guard: deadline
                self._end(db, job, "failed", moment, "deadline_exceeded")
                return False
            if moment >= job.lease_until:  # guard: lease_expired
                raise LostLease("lease_expired")
            db.execute("INSERT INTO receipts (job_id, attempt, sha256, data) VALUES (?, ?, ?, ?)", receipt)
            self._end(db, job, "succeeded", moment)
            return True

    def fail(self, job_id: int, attempt: int, code: str, *, now: Now, retry_after: float | None = None) -> str:
        """Give an attempt up with an error code; return the state that the job has then.

        With `retry_after` the job is `queued` again, to be had from `now + retry_after` seconds on. Without it, after
        the last attempt, or where that moment is not before the deadline, it is `failed`. Whether another try may help
        is for the caller to say; no error text is read here. The repeat of a call whose answer was lost changes
        nothing. Raises as `finish` does. Source: claims C10-161, C10-162, C10-199 to C10-205.
        """
        self._check(job_id=job_id, attempt=attempt, code=code, now=now, retry_after=retry_after)
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            if (job.state, job.attempt, job.error) == ("queued", attempt, code):
                return "queued"
            state = self._may_write(db, job, attempt, moment)
            if state != "running":
                return state
            if retry_after is None:
                return self._end(db, job, "failed", moment, code)
            if job.attempt >= job.max_attempts:  # guard: last_attempt
                return self._end(db, job, "failed", moment, code)
            again = moment + retry_after
            if again >= job.deadline:  # guard: retry_before_deadline
                return self._end(db, job, "failed", moment, code)
            return self._move(db, job, "queued", moment, ready_at=again, lease_until=None, done=0, total=0, error=code)

    def receipt_count(self, job_id: int) -> int:
        """Return how many receipts a job has: 1 if it succeeded, else 0. Raises `JobError` (`bad_input`)."""
        self._check(job_id=job_id)
        return int(self._database.row("SELECT count(*) FROM receipts WHERE job_id = ?", (job_id,))[0])

    def _find(self, db: Connection, job_id: int) -> Job:
        query = f"SELECT {', '.join(Job._fields)} FROM jobs WHERE id = ?"
        return self._sound(job_id, db.execute(query, (job_id,)).fetchone())

    def _sound(self, job_id: int, row: Any) -> Job:
        if row is None:
            raise JobError("not_found")
        job = Job._make(row)
        if not job.is_sound():
            raise StoreError("store_unavailable", f"damaged: job {job_id}")
        return job

    def _may_write(self, db: Connection, job: Job, attempt: int, now: float) -> str:
        """Ask in the order of `finish`; return `running` where the attempt may write, or as what the job has ended."""
        if attempt != job.attempt:  # guard: stale_attempt
            raise LostLease("stale_attempt")
        if job.state in FINAL_STATES:  # guard: ended
            return job.state
        if job.state == "queued":  # guard: not_running
            raise JobError("not_running")
        if job.state == "cancel_requested":  # guard: cancel_requested
            return self._end(db, job, "cancelled", now)
        if now >= job.deadline:  # guard: deadline
            return self._end(db, job, "failed", now, "deadline_exceeded")
        if now >= job.lease_until:  # guard: lease_expired
            raise LostLease("lease_expired")
        return "running"

    def _end(self, db: Connection, job: Job, state: str, now: float | None, error: str | None = None) -> str:
        return self._move(db, job, state, now, lease_until=None, error=error)

    def _move(self, db: Connection, job: Job, state: str, now: float | None, **columns: Any) -> str:
        """Give a job another state, and write the event that says so: every change of state passes here."""
        setting = ", ".join(f"{name} = ?" for name in ("state", *columns))
        db.execute(f"UPDATE jobs SET {setting} WHERE id = ?", (state, *columns.values(), job.id))
        error = columns.get("error")
        detail = {} if error is None else {"error": error}
        self._tell(db, job.id, columns.get("attempt", job.attempt), state, detail, now)
        return state

    def _tell(self, db: Connection, job_id: int, attempt: int, kind: str, detail: object, now: float | None) -> None:
        event = (job_id, attempt, kind, canonical(detail) if detail else "{}", now)
        db.execute("INSERT INTO events (job_id, attempt, kind, detail, at) VALUES (?, ?, ?, ?, ?)", event)

    def _check(self, refusal: str = "bad_input", /, **arguments: object) -> None:
        """Refuse the first argument that is not what its name asks for; a number that no job has is `not_found`."""
        for name, value in arguments.items():
            fits, wanted = self._arguments[name]
            if not fits(value):
                no_such_job = name == "job_id" and type(value) is int
                raise JobError("not_found" if no_such_job else refusal, f"{name} is not {wanted}")

    def _read(self, now: Now, refusal: str = "bad_input") -> float:
        moment = now() if callable(now) else now
        self._check(refusal, moment=moment)
        return moment

    def _json(self, value: object, most: int, refusal: str = "bad_input") -> str:
        try:
            text = canonical(value)
        except CanonicalError as error:
            raise JobError(refusal, error.reason) from error
        if len(text.encode("utf-8")) > most:
            raise JobError(refusal, f"more than {most} bytes")
        return text

    def _intent(self, tool: str, args: dict[str, Any]) -> str:
        """Return the canonical `{args, tool, version}` of a submission, once its operation has agreed to `args`."""
        self._check("invalid_submission", tool=tool)
        operation = self._operations.get(tool)
        if operation is None or type(args) is not dict:
            raise JobError("invalid_submission", "no such operation, or the arguments are no dict")
        text = self._json(args, MAX_ARGS_BYTES, "invalid_submission")
        try:
            operation.check(json.loads(text))
        except ValueError as refused:
            raise JobError("invalid_submission", str(refused)) from refused
        return f'{{"args":{text},"tool":{canonical(tool)},"version":{canonical(operation.version)}}}'


def _parsed(stored: bytes, what: str, kind: type, sha256: object = None) -> Any:
    """Return a value of this kind that was stored as JSON, once its digest is the one that was stored with it."""
    try:
        text = stored.decode("utf-8")
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError("store_unavailable", f"damaged: {what}") from error
    if not isinstance(value, kind) or sha256 not in (None, text_digest(text)):
        raise StoreError("store_unavailable", f"damaged: {what}")
    return value
