"""Work that outlives the request: a durable job store with leases, fencing and an event log.

A caller submits an *intent* under a key of its own and gets a job id back after the job is on disk.
A worker *claims* the job for a limited time, reports progress and delivers one result. Either may
vanish at any moment; the store decides what counts.

The words
    owner      a trusted identity; what is not yours looks exactly like what does not exist
    action_key names one intent of one owner; the same key is the same job
    job id     names the accepted work; `attempt` numbers its executions, from 1
    lease      until when an attempt may write; when it has ended, another attempt may be claimed
    fence      a worker's write counts only with the current attempt and a live lease
    receipt    the one stored result of a job that succeeded
    event      one line of what happened; `seq` is the cursor of a reader
    now        logical time in seconds, passed in by the trusted runtime, never read from a clock here

The states, who moves a job on, and what a crash leaves behind
    queued            submit made it; claim moves it to running, cancel ends it
    running           a worker has it; finish, fail or the end of its lease move it on. A crash
                      leaves it here until the lease ends and the next claim or sweep finds it
    cancel_requested  the caller asked; the worker's next call or the end of the lease confirms
    succeeded, failed, cancelled    final: nothing changes them

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
    J4   nothing is committed by a stale attempt, after the lease, at or past the deadline, or after
         a cancel request
    J5   a refused call changes nothing
    J6   replaying a job's events gives its row; state, receipt and event change in one transaction
    J7   job ids and `seq` rise and never come back, not even after pruning
    J8   (owner, action_key) is unique and keeps its job
    J9   jobs that are not final never exceed the capacity that admitted them
    J10  whatever an owner does, no job, event or result of another changes by a byte; what owners share
         is the numbering (ids and `seq` have gaps), the capacity and the turns
    J11  time and one willing worker bring every job to an end

At a boundary exactly one side wins: `now >= deadline` is past it and `now >= lease_until` is
expired, so a claim at the end of a lease gets the job and a delivery then is refused.

When an answer is lost, repeat the call. `submit` gives the same job, `finish` says False (nothing new
was stored; read the result with `result`), `cancel` and `fail` give the state, `progress` with equal
numbers writes nothing, `renew` only lengthens. A `claim` whose answer was lost waits out its lease.

What it does not do: it runs nothing, it does not know who is calling, and it does not make an effect
outside this database happen once. See `companions.work.worker` for a process that lives by these rules,
`companions.effects.outbox` for effects elsewhere, and `lab.histories.explore` for the histories that break when a guard
is taken out.

Source: the chapter from "当一次调用放不下整个任务" on (claims C10-129 to C10-255, C10-288 to C10-295).
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from chapter10.canonical import CanonicalError, CodedError, canonical, text_digest
from chapter10.database import BUSY_SECONDS, Database
from chapter10.limits import is_unicode

__all__ = [
    "APPLICATION_ID",
    "CLAIM_SCAN",
    "DEADLINE_SECONDS",
    "FINAL_STATES",
    "LIVE_STATES",
    "MAX_ARGS_BYTES",
    "MAX_COUNT",
    "MAX_LIMIT",
    "MAX_RESULT_BYTES",
    "MAX_TEXT",
    "MAX_TIME",
    "MIGRATIONS",
    "MIN_SECONDS",
    "REPORTS_EXPORT",
    "STATES",
    "JobError",
    "JobStore",
    "LostLease",
    "Now",
    "Operation",
]

Now = int | float | Callable[[], int | float]
"""Logical time in seconds, or a clock. A clock is read once, when the write lock is held, so that
waiting for the lock eats nothing of a lease."""

LIVE_STATES: Final = ("queued", "running", "cancel_requested")
FINAL_STATES: Final = ("succeeded", "failed", "cancelled")
STATES: Final = LIVE_STATES + FINAL_STATES

MAX_TEXT: Final = 200
"""Characters of an owner, a key, a tool name or an error code; at least one."""
MAX_TIME: Final = 2.0**40
"""Seconds, either side of zero. Below it the sum of a time and a lease is exact enough to be later."""
MIN_SECONDS: Final = 2.0**-10
"""The shortest lease and the shortest pause between two looks; still later than `MAX_TIME` when added."""
DEADLINE_SECONDS: Final = 100
"""From a submission to its deadline, where the caller names none."""
MAX_ARGS_BYTES: Final = 64 * 1024
"""Bytes of the canonical form of the arguments of a job."""
MAX_RESULT_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the canonical form of a result; something larger is stored elsewhere and named here."""
MAX_COUNT: Final = 2**53
"""The largest `done` and `total`, which any JSON reader holds exactly."""
MAX_LIMIT: Final = 1000
"""The most rows that one call returns or moves."""
CLAIM_SCAN: Final = 100
"""The most dead jobs that one `claim_next` buries on its way to a live one."""

APPLICATION_ID: Final = 0x43483130  # "CH10"

_LIVE_SQL: Final = "state IN ('queued', 'running', 'cancel_requested')"
_DUE_SQL: Final = "coalesce(lease_until, ready_at)"
"""When a live job may be claimed: the end of its lease, or the end of its wait where it has none."""

MIGRATIONS: Final = (
    f"""
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        owner TEXT NOT NULL,
        action_key TEXT NOT NULL,
        intent TEXT NOT NULL,              -- canonical {{tool, version, args}}
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
        CONSTRAINT lease_while_held CHECK (
            (lease_until IS NOT NULL) = (state IN ('running', 'cancel_requested'))),
        CONSTRAINT lease_within_deadline CHECK (lease_until IS NULL OR lease_until <= deadline),
        CONSTRAINT held_means_claimed CHECK (lease_until IS NULL OR attempt >= 1),
        CONSTRAINT failed_says_why CHECK (state <> 'failed' OR error IS NOT NULL),
        CONSTRAINT one_job_per_key UNIQUE (owner, action_key)
    );
    CREATE TABLE receipts (
        job_id INTEGER PRIMARY KEY REFERENCES jobs (id),  -- one receipt a job
        attempt INTEGER NOT NULL,
        sha256 TEXT NOT NULL,
        data TEXT                                         -- canonical JSON; NULL: removed by retention
    );
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id INTEGER NOT NULL REFERENCES jobs (id),
        attempt INTEGER NOT NULL,
        kind TEXT NOT NULL,
        detail TEXT NOT NULL,              -- canonical JSON: counts and codes, never arguments or results
        at NUMERIC                         -- logical time; NULL where the caller gave none
    );
    CREATE INDEX jobs_live ON jobs (owner, {_DUE_SQL}, id) WHERE {_LIVE_SQL};
    CREATE INDEX events_by_job ON events (job_id, seq);
    """,
    """
    ALTER TABLE jobs ADD COLUMN ended_at NUMERIC;
    UPDATE jobs SET ended_at = deadline WHERE state IN ('succeeded', 'failed', 'cancelled');
    -- The same moment again beside the data, so that the results still kept are found without a walk
    -- over all those that retention has emptied.
    ALTER TABLE receipts ADD COLUMN ended_at NUMERIC;
    UPDATE receipts SET ended_at = (SELECT ended_at FROM jobs WHERE id = job_id);
    CREATE INDEX jobs_by_owner ON jobs (owner, id);
    CREATE INDEX jobs_ended ON jobs (ended_at, id) WHERE ended_at IS NOT NULL;
    CREATE INDEX receipts_kept ON receipts (ended_at) WHERE data IS NOT NULL;
    CREATE INDEX events_claims ON events (seq) WHERE kind = 'running';
    """,
)
"""Version 1 is the chapter's store. Version 2 knows when a job ended, so that old ones can be removed,
and finds the last claim and an owner's latest jobs by an index."""


class JobError(CodedError, ValueError):
    """Raised when a caller's request cannot be granted; nothing was changed.

    `invalid_submission`: submit was given something it does not take; `reason` says what.
    `bad_input`: another verb was. `key_conflict`: the key stands for another intent.
    `queue_full`, `owner_full`: no place for new work now. `not_found`: no such job of this owner.
    `not_running`: nobody holds the job. `invalid_progress`: the count falls or exceeds the total.
    `not_ready`: there is no result yet. `result_expired`: there was one, and it was removed by rule.
    """

    reason: str | None

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.reason = reason


class LostLease(JobError):
    """Raised when a worker's right to write has ended; nothing was changed.

    `stale_attempt`: a newer attempt exists (or this one never did). `lease_expired`: the attempt is
    the newest, but its time is over. An ordinary outcome of a race, and no fault of the caller.
    """


@dataclass(frozen=True, slots=True)
class Operation:
    """What may be submitted: a tool name, a version, and a check of its arguments.

    `check(args)` gets the arguments as a dict of its own and raises `ValueError` to refuse them; its
    message becomes the `reason` of `invalid_submission`.
    """

    tool: str
    version: str
    check: Callable[[dict[str, Any]], None]


def _check_month(args: dict[str, Any]) -> None:
    month = args.get("month")
    if set(args) != {"month"} or type(month) is not str:
        raise ValueError('the arguments are {"month": "YYYY-MM"} and nothing else')
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", month):
        raise ValueError("the month is not YYYY-MM")


REPORTS_EXPORT: Final = Operation("reports.export", "1", _check_month)
"""The chapter's operation: a monthly sales report."""


class _Job(NamedTuple):
    """A row of `jobs`, as far as decisions need it."""

    id: int
    state: str
    attempt: int
    max_attempts: int
    deadline: float
    ready_at: float
    lease_until: float | None
    done: int
    total: int
    error: str | None
    owner: str

    @property
    def ended(self) -> bool:
        return self.state in FINAL_STATES


_STATUS: Final = ("id", "state", "attempt", "done", "total", "error")
"""What an owner sees of a job."""

_SELECT_STATUS: Final = f"SELECT {', '.join(_STATUS)} FROM jobs"
_SELECT_JOB: Final = f"SELECT {', '.join(_Job._fields)} FROM jobs"
_INSERT_JOB: Final = (
    "INSERT INTO jobs (owner, action_key, intent, state, attempt, max_attempts, deadline, ready_at, done, total)"
    " VALUES (?, ?, ?, 'queued', 0, ?, ?, ?, 0, 0)"
)
_UPDATE_JOB: Final = (
    "UPDATE jobs SET state = ?, attempt = ?, ready_at = ?, lease_until = ?, done = ?, total = ?, error = ?,"
    " ended_at = ? WHERE id = ?"
)
# Only two columns: setting one that an index holds would write that index's page as well.
_UPDATE_PROGRESS: Final = "UPDATE jobs SET done = ?, total = ? WHERE id = ?"
_UPDATE_LEASE: Final = "UPDATE jobs SET lease_until = ? WHERE id = ?"
_INSERT_EVENT: Final = "INSERT INTO events (job_id, attempt, kind, detail, at) VALUES (?, ?, ?, ?, ?)"
_INSERT_RECEIPT: Final = "INSERT INTO receipts (job_id, attempt, sha256, data, ended_at) VALUES (?, ?, ?, ?, ?)"
_SELECT_ENDED: Final = "SELECT id FROM jobs WHERE ended_at IS NOT NULL AND ended_at < ? ORDER BY ended_at, id LIMIT ?"
_SELECT_KEPT: Final = (
    "SELECT job_id FROM receipts WHERE data IS NOT NULL AND ended_at < ? ORDER BY ended_at, job_id LIMIT ?"
)
_SELECT_DEAD: Final = (
    f"{_SELECT_JOB} WHERE {_LIVE_SQL} AND (deadline <= ? OR (lease_until <= ?"
    " AND (state = 'cancel_requested' OR attempt >= max_attempts))) LIMIT ?"
)
_SELECT_KEY: Final = "SELECT id, intent FROM jobs WHERE owner = ? AND action_key = ?"
_COUNT_LIVE: Final = f"SELECT count(*) FROM jobs WHERE {_LIVE_SQL}"
_NEXT_DUE: Final = (
    f"{_SELECT_JOB} WHERE {_LIVE_SQL} AND owner > ? AND {_DUE_SQL} <= ? ORDER BY owner, {_DUE_SQL}, id LIMIT 1"
)
_LAST_CLAIM: Final = (
    "SELECT owner FROM jobs WHERE id = (SELECT job_id FROM events WHERE kind = 'running' ORDER BY seq DESC LIMIT 1)"
)


class JobStore:
    """Jobs, receipts and events in one SQLite file; see the module for what it promises.

    `path`: the file, made if absent. `operations`: what may be submitted besides `reports.export`.
    `busy_seconds`: how long a call waits for another process. Use it as a context manager or call
    `close`. A store belongs to the thread that made it; any number of stores may share a file.
    Raises `JobError` (`bad_input`) for what is no operation.

    Every method may raise `StoreError` (`store_busy`, `store_unavailable`) besides what it names.
    """

    db: sqlite3.Connection
    """The connection, for looking: `jobs`, `receipts`, `events`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        operations: Iterable[Operation] = (),
        *,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._operations: dict[str, Operation] = {}
        if not isinstance(operations, Iterable):
            raise JobError("bad_input", "the operations are no list")
        for operation in (REPORTS_EXPORT, *operations):
            self.register(operation)
        self._database = Database(path, application_id=APPLICATION_ID, migrations=MIGRATIONS, busy_seconds=busy_seconds)
        self.db = self._database.connection

    def __enter__(self) -> JobStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second close does nothing, and every later call is `store_unavailable`."""
        self._database.close()

    def register(self, operation: Operation) -> None:
        """Allow another operation to be submitted; one tool name has one version at a time.

        Raises `JobError` (`bad_input`) for what is no operation and for a name that stands already.
        """
        if type(operation) is not Operation or not callable(operation.check):
            raise JobError("bad_input", "not an operation")
        _text(operation.tool, "tool")
        _text(operation.version, "version")
        if operation.tool in self._operations:
            raise JobError("bad_input", "the tool is registered already")
        self._operations[operation.tool] = operation

    # The caller's side -----------------------------------------------------------------------

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
        owner_capacity: int | None = None,
        tool: str = "reports.export",
    ) -> int:
        """Store an intent and return its job id; a known key returns the id that it has.

        `args`: a dict of JSON values as the tool's check wants it, `MAX_ARGS_BYTES` at most.
        `deadline`: seconds on the same scale as `now`, `DEADLINE_SECONDS` later by default. `max_attempts`: all
        executions, the first included. `capacity`: the most jobs that are not final, and
        `owner_capacity` the most of this owner (None: no own limit).

        A key is compared with its intent, `{tool, version, args}` in canonical form: another one is
        `key_conflict`, in every state of the job. Deadline, attempts and capacity are no part of the
        intent; the job keeps what it was first given, and a repeat is answered whether or not there
        is room and time for new work (C10-225, C10-289).

        Raises `JobError`: `invalid_submission`, `key_conflict`, `queue_full`, `owner_full`.
        Source: claims C10-138 to C10-144, C10-216 to C10-225, C10-288, C10-289.
        """
        return self.submit_many(
            owner,
            [(action_key, args)],
            now=now,
            deadline=deadline,
            max_attempts=max_attempts,
            capacity=capacity,
            owner_capacity=owner_capacity,
            tool=tool,
        )[0]

    def submit_many(
        self,
        owner: str,
        submissions: list[tuple[str, dict[str, Any]]],
        *,
        now: Now,
        deadline: float | None = None,
        max_attempts: int = 3,
        capacity: int = 20,
        owner_capacity: int | None = None,
        tool: str = "reports.export",
    ) -> list[int]:
        """Store several intents of one owner in one commit, all or none; return their ids in order.

        `submissions`: a list of pairs of key and arguments, `MAX_LIMIT` at most; the rest is as for
        `submit`, and one refusal refuses all. One commit is one wait for the disk, which is most of what
        a submission costs.
        """
        try:
            _text(owner, "owner")
            _whole(max_attempts, "max_attempts", 1)
            _whole(capacity, "capacity", 1)
            if owner_capacity is not None:
                _whole(owner_capacity, "owner_capacity", 1)
            if deadline is not None:
                _time(deadline, "deadline")
            prepared = [(_text(key, "action_key"), self._intent(tool, args)) for key, args in _pairs(submissions)]
            _check_now(now)
        except JobError as error:
            raise JobError("invalid_submission", error.reason) from error.__cause__
        with self._database.write() as db:
            moment = _read(now, "invalid_submission")
            end = moment + DEADLINE_SECONDS if deadline is None else deadline
            ids, new = self._known(db, owner, prepared)
            if new:
                self._admit(db, owner, len(new), moment, end, capacity, owner_capacity)
            for key, intent in new.items():
                ids[key] = self._insert(db, owner, key, intent, moment, end, max_attempts)
            return [ids[key] for key, _ in prepared]

    def get(self, owner: str, job_id: int) -> dict[str, Any]:
        """Return `{id, state, attempt, done, total, error}` of a job; reading never changes it.

        A job past its deadline shows its last stored state until a claim, a delivery or a sweep
        touches it (C10-291). Raises `JobError`: `not_found`, `bad_input`.
        Source: claims C10-135 to C10-137, C10-155, C10-191.
        """
        row = self._database.row(
            f"{_SELECT_STATUS} WHERE id = ? AND owner = ?", (_job_id(job_id), _text(owner, "owner"))
        )
        if row is None:
            raise JobError("not_found")
        return dict(zip(_STATUS, row, strict=True))

    def cancel(self, owner: str, job_id: int, *, now: Now | None = None) -> str:
        """Ask for a job to be stopped and return its state after the request.

        A queued job is `cancelled` at once. A running one is `cancel_requested` until its worker or
        the end of its lease confirms. A final state comes back unchanged: what is done is done.
        `now` only dates the end for retention; without it the job counts as ended at its deadline.

        Raises `JobError`: `not_found`, `bad_input`. Source: claims C10-208 to C10-215.
        """
        _text(owner, "owner")
        _job_id(job_id)
        if now is not None:
            _check_now(now)
        with self._database.write() as db:
            job = self._find(db, job_id)
            if job is None or job.owner != owner:
                raise JobError("not_found")
            moment = None if now is None else _read(now)
            if job.state == "queued":
                return self._end(db, job, "cancelled", moment)
            if job.state == "running":
                job = job._replace(state="cancel_requested")
                self._write(db, job, "cancel_requested", moment)
            return job.state

    def events(self, owner: str, job_id: int, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return the events of a job with `seq > after`, oldest first, at most `limit` of them.

        Each is `{seq, kind, attempt, detail}`. Keep the `seq` of the last event that you have dealt
        with and pass it as `after`; after a crash you may see an event again, so drop a `seq` that
        you know (C10-253). Raises `JobError`: `not_found`, `bad_input`.
        Source: claims C10-251 to C10-254.
        """
        _whole(after, "after", 0)
        _whole(limit, "limit", 1, MAX_LIMIT)
        rows = self._database.rows(
            # The outer join tells a job without newer events from a job that is not there.
            "SELECT e.seq, e.kind, e.attempt, e.detail FROM jobs j"
            " LEFT JOIN events e ON e.job_id = j.id AND e.seq > ?"
            " WHERE j.id = ? AND j.owner = ? ORDER BY e.seq LIMIT ?",
            (after, _job_id(job_id), _text(owner, "owner"), limit),
        )
        if not rows:
            raise JobError("not_found")
        return [
            {"seq": seq, "kind": kind, "attempt": attempt, "detail": _decode(detail)}
            for seq, kind, attempt, detail in rows
            if seq is not None
        ]

    def result(self, owner: str, job_id: int) -> dict[str, Any]:
        """Return `{artifact_id, sha256, data}` of a job that succeeded.

        `artifact_id` is a label and opens nothing by itself. `sha256` is the digest of `data`.
        Raises `JobError`: `not_found`, `not_ready` (in every other state), `result_expired`,
        `bad_input`. Source: claims C10-239, C10-244 to C10-249.
        """
        row = self._database.row(
            "SELECT r.sha256, r.data FROM jobs j LEFT JOIN receipts r ON r.job_id = j.id"
            " WHERE j.id = ? AND j.owner = ?",
            (_job_id(job_id), _text(owner, "owner")),
        )
        if row is None:
            raise JobError("not_found")
        sha256, data = row
        if sha256 is None:
            raise JobError("not_ready")
        if data is None:
            raise JobError("result_expired")
        return {"artifact_id": f"report-{job_id}", "sha256": sha256, "data": _decode(data)}

    def list_jobs(self, owner: str, *, before: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """Return an owner's jobs as `get` shows them, newest first, with `id < before`.

        Raises `JobError` (`bad_input`).
        """
        _whole(limit, "limit", 1, MAX_LIMIT)
        if before is not None:
            _whole(before, "before", 0)
        rows = self._database.rows(
            f"{_SELECT_STATUS} WHERE owner = ? AND id < ? ORDER BY id DESC LIMIT ?",
            (_text(owner, "owner"), 2**63 - 1 if before is None else before, limit),
        )
        return [dict(zip(_STATUS, row, strict=True)) for row in rows]

    def wait(
        self,
        owner: str,
        job_id: int,
        timeout: float,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
        poll: float = 0.2,
    ) -> dict[str, Any]:
        """Look at a job until it is final or `timeout` seconds of `clock` are over; return what `get` says.

        Only the looking has a limit: the job does not learn of it (C10-190, C10-193). `poll`: the
        longest sleep between two looks, a thousandth of a second at least, so a final state is seen
        within that time. A clock that stands still makes it wait for ever.

        Raises `JobError`: `not_found`, `bad_input`.
        """
        if _time(poll, "poll") < MIN_SECONDS:
            _refuse("poll is shorter than a thousandth of a second")
        if not callable(clock) or not callable(sleep):
            _refuse("the clock or the sleep cannot be called")
        end = _read(clock) + _time(timeout, "timeout")
        while True:
            status = self.get(owner, job_id)
            remaining = end - _read(clock)
            if status["state"] in FINAL_STATES or remaining <= 0:
                return status
            sleep(min(poll, remaining))

    # The worker's side -----------------------------------------------------------------------
    # Internal: who may call these is the business of the process that does, not of the store.

    def intent(self, job_id: int) -> dict[str, Any]:
        """Return `{tool, version, args}` of a job, for the worker that runs it.

        Raises `JobError`: `not_found`, `bad_input`.
        """
        row = self._database.row("SELECT intent FROM jobs WHERE id = ?", (_job_id(job_id),))
        if row is None:
            raise JobError("not_found")
        intent: dict[str, Any] = _decode(row[0])
        return intent

    def claim(self, job_id: int, *, now: Now, lease: float = 10) -> int | None:
        """Take a job for `lease` seconds and return the attempt number, or None if it is not to be had.

        None means: final, not due yet, or held by a live lease. A claim is also where a job ends that
        can no longer be run: past its deadline it becomes `failed` with `deadline_exceeded`, after
        its last attempt `attempts_exhausted`, and an expired cancel request becomes `cancelled`. The
        lease never reaches past the deadline.

        Raises `JobError`: `not_found`, `bad_input`.
        Source: claims C10-154, C10-201, C10-205, C10-209, C10-226, C10-227, C10-291.
        """
        _job_id(job_id)
        _check_lease(now, lease)
        with self._database.write() as db:
            moment = _read(now)
            job = self._find(db, job_id)
            if job is None:
                raise JobError("not_found")
            return self._take(db, job, moment, lease)

    def claim_next(self, *, now: Now, lease: float = 10) -> tuple[int, int] | None:
        """Take the next due job of any owner and return `(job_id, attempt)`, or None if nothing is due.

        Owners take turns in the order of their names, starting after the owner of the last claim;
        within an owner the longest due comes first. So however many jobs an owner has waiting,
        another owner's first due job is taken after at most one claim for each other owner that has
        due work. (A `claim` by id counts as its owner's turn, and pruning the last claim gives the
        turn back to the one before.) Jobs found dead on the way are ended as in `claim`, at most
        `CLAIM_SCAN` a call (if that many were dead, None comes back although more may be due: call
        again).

        Raises `JobError` (`bad_input`).
        """
        _check_lease(now, lease)
        with self._database.write() as db:
            moment = _read(now)
            last = db.execute(_LAST_CLAIM).fetchone()
            turn = last[0] if last else ""
            for _ in range(CLAIM_SCAN):
                # The owners after the last one first, and when nothing is due there, from the start.
                row = db.execute(_NEXT_DUE, (turn, moment)).fetchone() or db.execute(_NEXT_DUE, ("", moment)).fetchone()
                if row is None:
                    return None
                job = _Job._make(row)
                attempt = self._take(db, job, moment, lease)
                if attempt is not None:
                    return job.id, attempt
            return None

    def renew(self, job_id: int, attempt: int, *, now: Now, lease: float = 10) -> str:
        """Let the lease of a live attempt end `lease` seconds from now, and return the job's state.

        `running`: go on. `cancel_requested`: clean up and stop; the lease was renewed for that. A
        final state: stop, the job has ended (perhaps by this call, past its deadline). A lease never
        gets shorter by this and never reaches past the deadline, so no worker lives for ever (C10-233).

        Raises `JobError`: `not_found`, `not_running`, `bad_input`; `LostLease`: `stale_attempt`,
        `lease_expired`.
        """
        _check_attempt(job_id, attempt)
        _check_lease(now, lease)
        with self._database.write() as db:
            moment = _read(now)
            job = self._current(db, job_id, attempt)
            if job.ended:
                return job.state
            if moment >= job.deadline:
                self._bury(db, job, moment)
                return "cancelled" if job.state == "cancel_requested" else "failed"
            lease_until = self._live_lease(job, moment)
            new_end = min(moment + lease, job.deadline)
            if new_end > lease_until:
                db.execute(_UPDATE_LEASE, (new_end, job.id))
            return job.state

    def progress(self, job_id: int, attempt: int, done: int, total: int, *, now: Now) -> bool:
        """Record that `done` of `total` units are done; return whether to go on.

        False means stop: the job has ended, perhaps by this call, because a cancel was requested or
        the deadline has passed. Within an attempt neither number falls; equal numbers write nothing.
        `done == total` is not success: only `finish` is.

        Raises `JobError`: `invalid_progress`, `not_found`, `not_running`, `bad_input`; `LostLease`:
        `stale_attempt`, `lease_expired`. Source: claims C10-179 to C10-181, C10-232.
        """
        _check_attempt(job_id, attempt)
        _whole(done, "done", 0, MAX_COUNT, "invalid_progress")
        _whole(total, "total", 0, MAX_COUNT, "invalid_progress")
        if done > total:
            raise JobError("invalid_progress", "done exceeds total")
        _check_now(now)
        with self._database.write() as db:
            moment = _read(now)
            job = self._held(db, job_id, attempt, moment)
            if job.ended:
                return False
            if done < job.done or total < job.total:
                raise JobError("invalid_progress", "a count falls")
            if (done, total) != (job.done, job.total):
                db.execute(_UPDATE_PROGRESS, (done, total, job.id))
                self._record(db, job, "progress", f'{{"done":{done},"total":{total}}}', moment)
            return True

    def finish(self, job_id: int, attempt: int, result: Any, *, now: Now) -> bool:
        """Deliver the result of an attempt; True if this call stored it.

        One transaction checks in this order: the attempt is current (`stale_attempt`), the job is not
        final (False), it is held (`not_running`), no cancel was requested (it becomes `cancelled`,
        False), `now < deadline` (it becomes `failed` with `deadline_exceeded`, False), `now <
        lease_until` (`lease_expired`). Then receipt, state and event are written together.

        False only says that nothing new was stored by this call; ask `get` what the job is.

        Raises `JobError`: `not_found`, `not_running`, `bad_input` (a result that is not JSON or
        exceeds `MAX_RESULT_BYTES`); `LostLease`: `stale_attempt`, `lease_expired`.
        Source: claims C10-211, C10-228 to C10-238 and the order of X-02.
        """
        _check_attempt(job_id, attempt)
        data = _json(result, "result", MAX_RESULT_BYTES)
        _check_now(now)
        sha256 = text_digest(data)
        with self._database.write() as db:
            moment = _read(now)
            job = self._held(db, job_id, attempt, moment)
            if job.ended:
                return False
            db.execute(_INSERT_RECEIPT, (job.id, attempt, sha256, data, moment))
            self._end(db, job, "succeeded", moment)
            return True

    def fail(self, job_id: int, attempt: int, code: str, *, now: Now, retry_after: float | None = None) -> str:
        """Give an attempt up with an error code; return the state that the job has then.

        Without `retry_after` the job is `failed`. With it the job is `queued` again and can be
        claimed from `now + retry_after` on (seconds), unless that was its last attempt or that moment is
        not before its deadline: then it is `failed` with the same code, at once. Whether a fault is
        worth another try is for the caller to say; no error text is read here.

        A requested cancel and a passed deadline decide first, as in `finish`. On a job that has
        ended, or that this attempt put back in line with this code, nothing changes and its state
        comes back: the repeat of a call whose answer was lost.

        Raises as `finish` does. Source: claims C10-161, C10-162, C10-199 to C10-205.
        """
        _check_attempt(job_id, attempt)
        _text(code, "code")
        if retry_after is not None and _time(retry_after, "retry_after") < 0:
            raise JobError("bad_input", "retry_after is below zero")
        _check_now(now)
        with self._database.write() as db:
            moment = _read(now)
            if self._put_back_already(db, job_id, attempt, code):
                return "queued"
            job = self._held(db, job_id, attempt, moment)
            if job.ended:
                return job.state
            if retry_after is None or job.attempt >= job.max_attempts or moment + retry_after >= job.deadline:
                return self._end(db, job, "failed", moment, code)
            job = job._replace(
                state="queued", ready_at=moment + retry_after, lease_until=None, done=0, total=0, error=code
            )
            self._write(db, job, "queued", moment)
            return job.state

    def receipt_count(self, job_id: int) -> int:
        """Return how many receipts a job has: 1 if it succeeded, else 0.

        Raises `JobError`: `bad_input`; `not_found` only for what no store numbers (0, 2**63).
        """
        return int(self._database.row("SELECT count(*) FROM receipts WHERE job_id = ?", (_job_id(job_id),))[0])

    # Upkeep ----------------------------------------------------------------------------------

    def sweep(self, *, now: Now, limit: int = 100) -> dict[str, int]:
        """End the jobs that can no longer be run, without a worker having to ask for them.

        Past the deadline: `deadline_exceeded`. Lease over after the last attempt:
        `attempts_exhausted`. Lease over after a cancel request: `cancelled`. Returns how many of each,
        and `skipped`: rows that the database refused to change. They do not hold up the others, up to
        `MAX_LIMIT` of them. At most `limit` jobs are ended a call, in one transaction. Reads the live
        jobs only.

        Raises `JobError` (`bad_input`). Source: claim C10-291 (what the chapter leaves open).
        """
        _whole(limit, "limit", 1, MAX_LIMIT)
        _check_now(now)
        counts = {"deadline_exceeded": 0, "attempts_exhausted": 0, "cancelled": 0, "skipped": 0}
        with self._database.write() as db:
            moment = _read(now)
            dead = db.execute(_SELECT_DEAD, (moment, moment, limit + MAX_LIMIT)).fetchall()
            for job in map(_Job._make, dead):
                if sum(counts.values()) - counts["skipped"] == limit:
                    break
                db.execute("SAVEPOINT one_job")
                try:
                    counts[self._bury(db, job, moment) or "skipped"] += 1
                except sqlite3.IntegrityError:
                    db.execute("ROLLBACK TO one_job")
                    counts["skipped"] += 1
                db.execute("RELEASE one_job")
        return counts

    def prune(self, *, now: Now, results_before: float, keys_before: float, limit: int = 100) -> dict[str, int]:
        """Remove what retention no longer keeps, of final jobs only; return `{results, keys}` removed.

        `results_before`: the data of jobs that ended before this time goes; `result` then says
        `result_expired`, and the key still gives the old job. `keys_before`: jobs that ended before
        this time go with key, receipt and events; their key is free and their numbers never come back.
        Results go first, so `keys_before <= results_before <= now`. At most `limit` jobs of either
        kind a call, in one transaction; zero of both means that nothing is left to remove.

        Keep keys for longer than any client may retry (C10-295). Raises `JobError` (`bad_input`).
        """
        _whole(limit, "limit", 1, MAX_LIMIT)
        _time(results_before, "results_before")
        _time(keys_before, "keys_before")
        _check_now(now)
        with self._database.write() as db:
            moment = _read(now)
            if not keys_before <= results_before <= moment:
                raise JobError("bad_input", "the times are not in the order keys_before, results_before, now")
            gone = db.execute(_SELECT_ENDED, (keys_before, limit)).fetchall()
            for table, column in (("receipts", "job_id"), ("events", "job_id"), ("jobs", "id")):
                db.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
            stale = db.execute(_SELECT_KEPT, (results_before, limit)).fetchall()
            db.executemany("UPDATE receipts SET data = NULL WHERE job_id = ?", stale)
        return {"results": len(stale), "keys": len(gone)}

    def stats(self, *, now: Now) -> dict[str, dict[str, Any]]:
        """Return, for each owner with live work, `{queued, running, cancel_requested, expired, oldest_wait}`.

        `expired`: leases that are over. `oldest_wait`: seconds that the longest due job has been
        claimable, None if none is. Reads the live jobs only. Raises `JobError` (`bad_input`).
        """
        _check_now(now)
        moment = _read(now)
        rows = self._database.rows(
            "SELECT owner, sum(state = 'queued'), sum(state = 'running'), sum(state = 'cancel_requested'),"
            f" sum(lease_until <= ?), min({_DUE_SQL}) FROM jobs WHERE {_LIVE_SQL} GROUP BY owner ORDER BY owner",
            (moment,),
        )
        return {
            owner: {
                "queued": queued,
                "running": running,
                "cancel_requested": asked,
                "expired": expired or 0,
                "oldest_wait": moment - due if due <= moment else None,
            }
            for owner, queued, running, asked, expired, due in rows
        }

    # The guards and the writes ---------------------------------------------------------------

    def _intent(self, tool: str, args: dict[str, Any]) -> str:
        operation = self._operations.get(_text(tool, "tool"))
        if operation is None:
            raise JobError("bad_input", "no such operation is registered")
        if type(args) is not dict:
            raise JobError("bad_input", "the arguments are not a dict")
        text = _json(args, "args", MAX_ARGS_BYTES)
        try:
            operation.check(_decode(text))
        except ValueError as refused:
            raise JobError("bad_input", str(refused)) from refused
        # The canonical form of {tool, version, args}: its keys in order, each value in its own form.
        return f'{{"args":{text},"tool":{canonical(operation.tool)},"version":{canonical(operation.version)}}}'

    def _known(
        self, db: sqlite3.Connection, owner: str, prepared: list[tuple[str, str]]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Return the ids of the keys that have a job already, and the intents of those that have none."""
        ids: dict[str, int] = {}
        new: dict[str, str] = {}
        for key, intent in prepared:
            row = db.execute(_SELECT_KEY, (owner, key)).fetchone()
            known = new.setdefault(key, intent) if row is None else row[1]
            if known != intent:
                raise JobError("key_conflict")
            if row is not None:
                ids[key] = row[0]
        return ids, new

    def _admit(
        self,
        db: sqlite3.Connection,
        owner: str,
        count: int,
        now: float,
        deadline: float,
        capacity: int,
        owner_capacity: int | None,
    ) -> None:
        """Refuse new work that has no time or no place; what is known already does not come here."""
        if now >= deadline:
            raise JobError("invalid_submission", "the deadline has passed already")
        if db.execute(_COUNT_LIVE).fetchone()[0] + count > capacity:
            raise JobError("queue_full")
        if owner_capacity is not None:
            if db.execute(f"{_COUNT_LIVE} AND owner = ?", (owner,)).fetchone()[0] + count > owner_capacity:
                raise JobError("owner_full")

    def _insert(
        self,
        db: sqlite3.Connection,
        owner: str,
        action_key: str,
        intent: str,
        now: float,
        deadline: float,
        max_attempts: int,
    ) -> int:
        job_id = db.execute(_INSERT_JOB, (owner, action_key, intent, max_attempts, deadline, now)).lastrowid
        assert job_id is not None
        db.execute(_INSERT_EVENT, (job_id, 0, "queued", "{}", now))
        return job_id

    def _find(self, db: sqlite3.Connection, job_id: int) -> _Job | None:
        row = db.execute(f"{_SELECT_JOB} WHERE id = ?", (job_id,)).fetchone()
        return None if row is None else _Job._make(row)

    def _current(self, db: sqlite3.Connection, job_id: int, attempt: int) -> _Job:
        """Return the job if `attempt` is its newest and it is held or final."""
        job = self._find(db, job_id)
        if job is None:
            raise JobError("not_found")
        if attempt != job.attempt:
            raise LostLease("stale_attempt")
        if job.state == "queued":
            raise JobError("not_running")
        return job

    def _held(self, db: sqlite3.Connection, job_id: int, attempt: int, now: float) -> _Job:
        """Return the job as this attempt may change it, or as it ended, perhaps just now.

        Cancel and deadline are facts of the job and come before the lease, which is only a fact of
        this attempt (X-02).
        """
        job = self._current(db, job_id, attempt)
        if job.ended:
            return job
        if job.state == "cancel_requested":
            return job._replace(state=self._end(db, job, "cancelled", now))
        if now >= job.deadline:
            return job._replace(state=self._end(db, job, "failed", now, "deadline_exceeded"))
        self._live_lease(job, now)
        return job

    def _put_back_already(self, db: sqlite3.Connection, job_id: int, attempt: int, code: str) -> bool:
        """Say whether this attempt has failed with this code and waits in line again."""
        job = self._find(db, job_id)
        return job is not None and (job.state, job.attempt, job.error) == ("queued", attempt, code)

    def _live_lease(self, job: _Job, now: float) -> float:
        assert job.lease_until is not None  # lease_while_held
        if now >= job.lease_until:
            raise LostLease("lease_expired")
        return job.lease_until

    def _take(self, db: sqlite3.Connection, job: _Job, now: float, lease: float) -> int | None:
        """Claim a job if it is to be had, bury it if it is dead, and leave it alone otherwise."""
        if job.ended or now < (job.ready_at if job.lease_until is None else job.lease_until):
            return None
        if self._bury(db, job, now) is not None:
            return None
        job = job._replace(
            state="running",
            attempt=job.attempt + 1,
            lease_until=min(now + lease, job.deadline),
            done=0,
            total=0,
            error=None,
        )
        self._write(db, job, "running", now)
        return job.attempt

    def _bury(self, db: sqlite3.Connection, job: _Job, now: float) -> str | None:
        """End a job that nobody holds and that cannot be run again; say why, or None if it can be."""
        if job.state == "cancel_requested":
            return self._end(db, job, "cancelled", now)
        if now >= job.deadline:
            reason = "deadline_exceeded"
        elif job.attempt >= job.max_attempts:
            reason = "attempts_exhausted"
        else:
            return None
        self._end(db, job, "failed", now, reason)
        return reason

    def _end(self, db: sqlite3.Connection, job: _Job, state: str, now: float | None, error: str | None = None) -> str:
        job = job._replace(state=state, lease_until=None, error=error if state == "failed" else None)
        self._write(db, job, state, now)
        return state

    def _write(self, db: sqlite3.Connection, job: _Job, kind: str, now: float | None) -> None:
        """Write a changed row and its event; every transition but progress passes here.

        The event says why where there is something to say: on a failure, and on a retry.
        """
        ended_at = (job.deadline if now is None else now) if job.ended else None
        db.execute(
            _UPDATE_JOB,
            (job.state, job.attempt, job.ready_at, job.lease_until, job.done, job.total, job.error, ended_at, job.id),
        )
        self._record(db, job, kind, "{}" if job.error is None else canonical({"error": job.error}), now)

    def _record(self, db: sqlite3.Connection, job: _Job, kind: str, detail: str, now: float | None) -> None:
        db.execute(_INSERT_EVENT, (job.id, job.attempt, kind, detail, now))


# What is let in ------------------------------------------------------------------------------


def _refuse(reason: str, code: str = "bad_input") -> NoReturn:
    raise JobError(code, reason)


def _text(value: object, name: str) -> str:
    if type(value) is not str or not 1 <= len(value) <= MAX_TEXT:
        _refuse(f"{name} is not a text of 1 to {MAX_TEXT} characters")
    if "\0" in value or not is_unicode(value):
        _refuse(f"{name} holds a NUL or a lone surrogate")
    return value


def _whole(value: object, name: str, low: int, high: int = 2**63 - 1, code: str = "bad_input") -> int:
    if type(value) is not int or not low <= value <= high:
        _refuse(f"{name} is not a whole number from {low} to {high}", code)
    return value


def _job_id(value: object) -> int:
    if type(value) is not int:
        _refuse("the job id is not a whole number")
    if not 1 <= value < 2**63:
        raise JobError("not_found")  # no job has such a number
    return value


def _check_attempt(job_id: object, attempt: object) -> None:
    _job_id(job_id)
    if type(attempt) is not int:
        _refuse("the attempt is not a whole number")


def _time(value: object, name: str) -> float:
    if type(value) is not int and type(value) is not float:
        _refuse(f"{name} is not a number of seconds")
    if not -MAX_TIME <= value <= MAX_TIME:  # NaN neither
        _refuse(f"{name} is not a time that can be stored")
    return value


def _check_now(now: object) -> None:
    if not callable(now):
        _time(now, "now")


def _read(now: Now, code: str = "bad_input") -> float:
    """Return the moment of this call; a clock is read here, with the write lock held."""
    if not callable(now):
        return now
    try:
        return _time(now(), "now")
    except JobError as error:
        raise JobError(code, error.reason) from None


def _check_lease(now: object, lease: object) -> None:
    _check_now(now)
    if _time(lease, "lease") < MIN_SECONDS:
        _refuse("the lease is shorter than a thousandth of a second")


def _pairs(submissions: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    if type(submissions) is not list or not 1 <= len(submissions) <= MAX_LIMIT:
        _refuse(f"the submissions are not a list of 1 to {MAX_LIMIT}")
    if not all(type(pair) is tuple and len(pair) == 2 for pair in submissions):
        _refuse("a submission is not a pair of key and arguments")
    return submissions


def _json(value: object, name: str, most: int) -> str:
    try:
        text = canonical(value)
    except CanonicalError as error:
        raise JobError("bad_input", f"{name}: {error.reason}") from error
    if len(text) > most or (not text.isascii() and len(text.encode("utf-8")) > most):
        _refuse(f"{name} exceeds {most} bytes")
    return text


def _decode(text: str) -> Any:
    return json.loads(text)
