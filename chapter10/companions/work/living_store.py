"""The chapter's job store for everyday use: batches, turns, renewed leases, upkeep and an end to old results.

A `LivingStore` is a `JobStore` in every verb of the chapter, with the same answers and the same promises (J1 to J11).
What it adds is what the chapter names and leaves open:

    submit_many, owner_capacity   several intents in one commit; no owner fills the queue alone
    claim_next, kinds             the next due job of the kinds that a worker can do, owners by turns
    renew                         a long calculation keeps its lease
    list_jobs, keyed, wait        what an owner and a caller look at
    survey, stats, failed_after   what an operator looks at
    retry                         what is dead, once more, as a job of its own
    hand_back                     an interruption is no failure and burns no attempt
    sweep                         jobs that can no longer be run end without a worker that asks
    release                       a job that waits for a time that was a mistake is due now
    pause, resume                 nothing of an owner, or of anybody, is begun for a while
    prune, compact, backup        results and keys have a stated life, and the file a size and a copy

Of a job's progress events the newest `MAX_PROGRESS_EVENTS` stay: a reader who comes late finds a gap in `seq` and no
wrong count.

Its file is version 4 of the chapter's: a chapter's file is upgraded in place when it is opened here, and a `JobStore`
refuses the newer file (D5). The rows are the chapter's; new are the times at which a job was submitted and ended, and
seven indexes, so that each query that a caller repeats costs what the live work costs, and not the history. A table
says who is paused.

Further codes of `JobError`: `owner_full`: no place for new work of this owner. `result_expired`: there was a result,
and it was removed by rule. `not_dead`: only what failed or was cancelled is tried once more. What J7 says holds after
pruning too: a removed number never comes back. Processes that write to one file take turns (D6, see `turnstile`).
Source: what the chapter leaves open in its section on production (claims C10-233, C10-288 to C10-295).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, ClassVar, Final

from chapter10.canonical import canonical
from chapter10.companions.work.turnstile import FairDatabase
from chapter10.database import Database, StoreError
from chapter10.jobs import (
    APPLICATION_ID,
    FINAL_STATES,
    LIVE_STATES,
    SCHEMA,
    STATES,
    Job,
    JobError,
    JobStore,
    LostLease,
    Now,
)
from chapter10.limits import JOB_ARGUMENTS, MAX_LIMIT, MAX_TEXT, MAX_TIME, MIN_SECONDS, is_seconds, is_text, is_whole

__all__ = [
    "CAPACITY", "CLAIM_SCAN", "DEADLINE_S", "MAX_ATTEMPTS", "MAX_BATCH", "MAX_PROGRESS_EVENTS", "MIGRATIONS",
    "WAITING", "LivingStore", "kinds_text",
]  # fmt: skip

DEADLINE_S: Final = 24 * 60 * 60
"""Seconds from a submission to its deadline, where the caller names none: a day."""
CAPACITY: Final = 10_000
"""The most jobs of all owners that are not final, where the caller names no other number."""
MAX_BATCH: Final = CAPACITY
"""Submissions in one commit: what a queue that is empty takes."""
CLAIM_SCAN: Final = 100
"""The most dead jobs that one `claim_next` buries on its way to a live one."""

MAX_PROGRESS_EVENTS: Final = 1000
"""Of one job: the newest stay; what the others said is in the counts of those that came later (claim C10-250)."""
MAX_ATTEMPTS: Final = 1000
"""Of one submission; with the bound above, the events of one job are bounded."""

_LIVE: Final = "state IN ('queued', 'running', 'cancel_requested')"
_DEAD_STATE: Final = "state IN ('failed', 'cancelled')"
_NO_STATE: Final = f"state NOT IN {STATES}"
_TOOL: Final = "CASE WHEN json_valid(intent) THEN json_extract(intent, '$.tool') END"
_DUE: Final = "coalesce(lease_until, ready_at)"
"""When a live job may be claimed: the end of its lease, or the end of its wait where it has none."""

MIGRATIONS: Final = (
    SCHEMA,
    f"""
    ALTER TABLE jobs ADD COLUMN ended_at NUMERIC;
    UPDATE jobs SET ended_at = coalesce(
        (SELECT at FROM events WHERE job_id = jobs.id ORDER BY seq DESC LIMIT 1), deadline)
        WHERE state IN ('succeeded', 'failed', 'cancelled');
    -- The same moment again beside the data, so that the results still kept are found without a walk
    -- over all those that retention has emptied.
    ALTER TABLE receipts ADD COLUMN ended_at NUMERIC;
    UPDATE receipts SET ended_at = (SELECT ended_at FROM jobs WHERE id = job_id);
    DROP INDEX jobs_live;
    CREATE INDEX jobs_live ON jobs (owner, {_DUE}, id) WHERE {_LIVE};
    CREATE INDEX jobs_by_owner ON jobs (owner, id);
    CREATE INDEX jobs_ended ON jobs (ended_at, id) WHERE ended_at IS NOT NULL;
    CREATE INDEX receipts_kept ON receipts (ended_at) WHERE data IS NOT NULL;
    CREATE INDEX events_claims ON events (seq) WHERE kind = 'running';
    """,
    """
    CREATE TABLE pauses (owner TEXT PRIMARY KEY, at NUMERIC NOT NULL);  -- an empty owner stands for everybody
    """,
    f"""
    ALTER TABLE jobs ADD COLUMN submitted_at NUMERIC;
    UPDATE jobs SET submitted_at = (SELECT at FROM events WHERE job_id = jobs.id ORDER BY seq LIMIT 1);
    -- A job that goes well enters neither of the first two.
    CREATE INDEX jobs_dead ON jobs (state, id) WHERE {_DEAD_STATE};
    CREATE INDEX jobs_strange ON jobs (id) WHERE {_NO_STATE};
    CREATE INDEX jobs_by_kind ON jobs ({_TOOL}, id);
    """,
)
"""Version 1 is the chapter's store. Version 2 knows when a job ended, so that old ones can be removed,
and finds the next due job, the last claim and an owner's latest jobs by an index. Version 3 knows who is paused.
Version 4 knows when a job was submitted, and finds what is dead, what has a state that is none, and each kind."""

_SHOWN: Final = ("id", "state", "attempt", "done", "total", "error")
_INTENT: Final = "SELECT intent FROM jobs WHERE id = ?"
_SELECT_KEY: Final = "SELECT id, intent FROM jobs WHERE owner = ? AND action_key = ?"
_INSERT_JOB: Final = (
    "INSERT INTO jobs (owner, action_key, intent, max_attempts, deadline, ready_at, submitted_at, state, attempt, done,"
    " total) VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', 0, 0, 0)"
)
_COUNT_LIVE: Final = f"SELECT count(*) FROM jobs WHERE {_LIVE}"
_SELECT_LIVE: Final = f"SELECT {', '.join(Job._fields)} FROM jobs WHERE {_LIVE}"
_NOT_PAUSED: Final = "NOT EXISTS (SELECT 1 FROM pauses WHERE pauses.owner IN ('', jobs.owner))"
_OF_KINDS: Final = (  # of a JSON list of endings of intents; a row whose intent is damaged is of every kind
    "CASE WHEN EXISTS (SELECT 1 FROM json_each(?) WHERE substr(intent, -length(value)) = value) THEN 1"
    " WHEN NOT json_valid(intent) THEN 1 ELSE json_type(intent, '$.tool') IS NOT 'text'"
    " OR json_type(intent, '$.version') IS NOT 'text' END"
)
_NEXT_DUE: Final = f"{_SELECT_LIVE} AND owner > ? AND {_DUE} <= ? AND {_NOT_PAUSED}"
_FIRST: Final = f" ORDER BY owner, {_DUE}, id LIMIT 1"
WAITING: Final = (
    f"SELECT count(*), min(CASE WHEN typeof({_DUE}) IN ('integer', 'real') AND {_NOT_PAUSED} THEN {_DUE} END)"
    f" FROM jobs WHERE {_LIVE} AND {_OF_KINDS}"
)
"""For a worker of some kinds: how many live jobs are its own, and when the next one is due, a damaged time aside."""
_LAST_CLAIM: Final = (
    "SELECT owner FROM jobs WHERE id = (SELECT job_id FROM events WHERE kind = 'running' ORDER BY seq DESC LIMIT 1)"
)
_DEAD: Final = (
    f"{_SELECT_LIVE} AND (deadline <= ? OR (lease_until <= ?"
    f" AND (state = 'cancel_requested' OR attempt >= max_attempts))) ORDER BY owner, {_DUE}, id LIMIT ?"
)
_DAMAGED: Final = (
    f"{_SELECT_LIVE} AND (typeof(attempt) <> 'integer' OR typeof(max_attempts) <> 'integer'"
    " OR typeof(done) <> 'integer' OR typeof(total) <> 'integer' OR typeof(owner) <> 'text'"
    " OR attempt NOT BETWEEN 0 AND max_attempts OR done NOT BETWEEN 0 AND total"
    " OR typeof(deadline) NOT IN ('integer', 'real') OR typeof(ready_at) NOT IN ('integer', 'real')"
    f" OR typeof(lease_until) NOT IN ('integer', 'real', 'null')) ORDER BY owner, {_DUE}, id LIMIT ?"
)
"""Live rows that are not sound (`Job.is_sound`): a text in a time is never due, so no claim meets it."""
_STRANGE: Final = f"SELECT {', '.join(Job._fields)} FROM jobs WHERE {_NO_STATE} ORDER BY id LIMIT ?"
"""Rows whose state is none: they are neither live nor final, and nothing else ever meets them."""
_COUNTED: Final = "typeof(done) = 'integer' AND typeof(total) = 'integer' AND done BETWEEN 0 AND total"
_SET_ASIDE: Final = (
    "UPDATE jobs SET state = :state, error = :error, lease_until = NULL, attempt = :claims,"
    " ended_at = CASE WHEN typeof(ended_at) IN ('integer', 'real') THEN ended_at ELSE :now END,"
    " max_attempts = max(:claims, 1, CASE typeof(max_attempts) WHEN 'integer' THEN max_attempts ELSE 0 END),"
    f" done = CASE WHEN {_COUNTED} THEN done ELSE 0 END, total = CASE WHEN {_COUNTED} THEN total ELSE 0 END,"
    " deadline = CASE WHEN typeof(deadline) IN ('integer', 'real') THEN deadline ELSE :now END,"
    " ready_at = CASE WHEN typeof(ready_at) IN ('integer', 'real') THEN ready_at ELSE :now END WHERE id = :id"
)
_CLAIMS: Final = "SELECT count(*) FROM events WHERE job_id = ? AND kind = 'running'"
_ENDING: Final = (  # as the log has it
    "SELECT kind, CASE WHEN kind <> 'failed' THEN NULL WHEN json_valid(detail)"
    " THEN coalesce(json_extract(detail, '$.error'), 'damaged') ELSE 'damaged' END FROM events"
    f" WHERE job_id = ? AND kind IN {FINAL_STATES} ORDER BY seq DESC LIMIT 1"
)
_TOO_OLD: Final = "SELECT seq FROM events WHERE job_id = ? AND kind = 'progress' ORDER BY seq DESC LIMIT 1 OFFSET ?"
_SURVEYED: Final = (*_SHOWN, "owner", "action_key", "kind", "deadline", "submitted", "started", "ended")
_KINDS: Final = (
    f"SELECT {_TOOL} AS kind, CASE WHEN json_valid(intent) THEN json_extract(intent, '$.version') END AS version,"
    f" sum(state = 'queued'), count(*) FROM jobs INDEXED BY jobs_live WHERE {_LIVE}"
    " GROUP BY kind, version ORDER BY kind, version"
)
_SURVEY: Final = (
    f"SELECT {', '.join(_SHOWN)}, owner, action_key, {_TOOL}, deadline, submitted_at, (SELECT at FROM events"
    " WHERE job_id = jobs.id AND kind = 'running' ORDER BY seq DESC LIMIT 1), ended_at FROM jobs"
)
_ENDED: Final = "SELECT id FROM jobs WHERE ended_at IS NOT NULL AND ended_at < ? ORDER BY ended_at, id LIMIT ?"
_KEPT: Final = "SELECT job_id FROM receipts WHERE data IS NOT NULL AND ended_at < ? ORDER BY ended_at, job_id LIMIT ?"
_STATS: Final = (
    "SELECT owner, sum(state = 'queued'), sum(state = 'running'), sum(state = 'cancel_requested'),"
    f" sum(lease_until <= ?), min(CASE WHEN typeof({_DUE}) IN ('integer', 'real') THEN {_DUE} END)"
    f" FROM jobs WHERE {_LIVE} GROUP BY owner ORDER BY owner"
)


class LivingStore(JobStore):
    """A `JobStore` with batches, turns, renewal, upkeep and retention; see the module.

    Opened, closed and shared as a `JobStore` is, and with its errors.
    """

    _arguments: ClassVar = {
        **JOB_ARGUMENTS,
        "max_attempts": (lambda value: is_whole(value, 1, MAX_ATTEMPTS), f"a whole number from 1 to {MAX_ATTEMPTS}"),
        "owner_capacity": (lambda value: value is None or is_whole(value, 1), "a whole number from 1"),
        "before": (lambda value: value is None or is_whole(value, 0), "a whole number from 0"),
        "start": (lambda value: value is None or is_seconds(value), "a number of seconds"),
        "timeout": (is_seconds, "a number of seconds"),
        "poll": (lambda value: is_seconds(value, MIN_SECONDS), "a number of seconds from a thousandth"),
        "clock": (callable, "a clock"),
        "sleep": (callable, "a sleep"),
        "results_before": (is_seconds, "a number of seconds"),
        "keys_before": (is_seconds, "a number of seconds"),
    }

    def _open(self, path: str | os.PathLike[str], busy_seconds: float) -> Database:
        return FairDatabase(path, application_id=APPLICATION_ID, migrations=MIGRATIONS, busy_seconds=busy_seconds)

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
        capacity: int = CAPACITY,
        owner_capacity: int | None = None,
        start: float | None = None,
        tool: str = "reports.export",
    ) -> int:
        """Store an intent and return its job id, as `JobStore.submit` does; it is a batch of one.

        `deadline`: `DEADLINE_S` after `now` by default, for work that may wait; `capacity` likewise. `owner_capacity`:
        the most jobs of this owner that are not final (None: no own limit). `start`: nobody claims it before this time,
        which is before the deadline (None: at once). Raises as it does, and `JobError`: `owner_full`.
        Source: claims C10-288, C10-290.
        """
        return self.submit_many(
            owner,
            [(action_key, args)],
            now=now,
            deadline=deadline,
            max_attempts=max_attempts,
            capacity=capacity,
            owner_capacity=owner_capacity,
            start=start,
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
        capacity: int = CAPACITY,
        owner_capacity: int | None = None,
        start: float | None = None,
        tool: str = "reports.export",
    ) -> list[int]:
        """Store several intents of one owner in one commit, all or none; return their ids in order.

        `submissions`: a list of pairs of key and arguments, `MAX_BATCH` at most; the rest is as for `submit`, and one
        refusal refuses all. One commit is one wait for the disk, which is most of what a submission costs.
        """
        self._check("invalid_submission", owner=owner, now=now, deadline=deadline, max_attempts=max_attempts)
        self._check("invalid_submission", capacity=capacity, owner_capacity=owner_capacity, start=start)
        prepared = self._prepared(submissions, tool)
        with self._database.write() as db:
            moment = self._read(now, "invalid_submission")
            end = min(moment + DEADLINE_S, MAX_TIME) if deadline is None else deadline
            ids: dict[str, int] = {}
            new: dict[str, str] = {}
            for key, intent in prepared:
                known = db.execute(_SELECT_KEY, (owner, key)).fetchone()
                if known is not None:  # guard: known_key
                    if known[1] != intent:  # guard: key_conflict
                        self.intent(known[0])  # which says so where it is damaged
                        raise JobError("key_conflict")
                    ids[key] = known[0]
                elif new.setdefault(key, intent) != intent:
                    raise JobError("key_conflict")
            if new:
                ready = moment if start is None else max(start, moment)
                if ready >= end:
                    raise JobError("invalid_submission", "the deadline comes before it may start")
                if db.execute(_COUNT_LIVE).fetchone()[0] + len(new) > capacity:  # guard: queue_full
                    raise JobError("queue_full")
                if owner_capacity is not None:
                    if db.execute(f"{_COUNT_LIVE} AND owner = ?", (owner,)).fetchone()[0] + len(new) > owner_capacity:
                        raise JobError("owner_full")
            for key, intent in new.items():
                job_id = db.execute(_INSERT_JOB, (owner, key, intent, max_attempts, end, ready, moment)).lastrowid
                assert job_id is not None
                self._tell(db, job_id, 0, "queued", {}, moment)
                ids[key] = job_id
            return [ids[key] for key, _ in prepared]

    def retry(
        self,
        job_id: int,
        *,
        now: Now,
        by: str,
        why: str,
        deadline: float | None = None,
        max_attempts: int = 3,
        capacity: int = CAPACITY,
    ) -> int:
        """Store the intent of a job that failed or was cancelled once more, and return the id of the new job.

        The old job stays as it ended (J2); the new one has the same owner and the key `retry of job ID`, so that a
        repeat gives the same job. Its first event says `{retry_of, by, why}`: both are short texts for those who read
        events, and no place for arguments. The rest is as for `submit`. Raises `JobError`: `not_found`, `not_dead`
        (the job lives or has succeeded), `bad_input`, `queue_full`, `key_conflict`.
        """
        self._check(job_id=job_id, now=now, deadline=deadline, max_attempts=max_attempts, capacity=capacity)
        self._check(code=by)
        self._check(code=why)
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            if job.state not in ("failed", "cancelled"):
                raise JobError("not_dead", f"the job is {job.state}")
            key, intent = f"retry of job {job_id}", db.execute(_INTENT, (job_id,)).fetchone()[0]
            known = db.execute(_SELECT_KEY, (job.owner, key)).fetchone()
            if known is not None:
                if known[1] != intent:
                    raise JobError("key_conflict")
                return int(known[0])
            end = min(moment + DEADLINE_S, MAX_TIME) if deadline is None else deadline
            if moment >= end:
                raise JobError("bad_input", "the deadline has passed already")
            if db.execute(_COUNT_LIVE).fetchone()[0] >= capacity:
                raise JobError("queue_full")
            again = db.execute(_INSERT_JOB, (job.owner, key, intent, max_attempts, end, moment, moment)).lastrowid
            assert again is not None
            self._tell(db, again, 0, "queued", {"retry_of": job_id, "by": by, "why": why}, moment)
            return again

    def keyed(self, owner: str, prefix: str, *, limit: int = 50) -> list[dict[str, Any]]:
        """Return an owner's jobs whose key begins with `prefix`, in the order of the keys, as `get` shows them.

        Raises `JobError` (`bad_input`).
        """
        self._check(owner=owner, action_key=prefix, limit=limit)
        rows = self._database.rows(
            f"SELECT {', '.join(_SHOWN)} FROM jobs WHERE owner = ? AND action_key >= ? AND action_key < ?"
            " ORDER BY action_key LIMIT ?",
            (owner, prefix, prefix + "\U0010ffff", limit),
        )
        return [dict(zip(_SHOWN, row, strict=True)) for row in rows]

    def result(self, owner: str, job_id: int) -> dict[str, Any]:
        """Return `{artifact_id, sha256, data}` as `JobStore.result` does; `result_expired` where it was removed."""
        try:
            return super().result(owner, job_id)
        except JobError as error:
            gone = "SELECT 1 FROM receipts WHERE job_id = ? AND data IS NULL"
            if error.code == "not_ready" and self._database.row(gone, (job_id,)):
                raise JobError("result_expired") from None
            raise

    def list_jobs(self, owner: str, *, before: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """Return an owner's jobs as `get` shows them, newest first, with `id < before`.

        Raises `JobError` (`bad_input`).
        """
        self._check(owner=owner, before=before, limit=limit)
        names = ("id", "state", "attempt", "done", "total", "error")
        rows = self._database.rows(
            f"SELECT {', '.join(names)} FROM jobs WHERE owner = ? AND id < ? ORDER BY id DESC LIMIT ?",
            (owner, 2**63 - 1 if before is None else before, limit),
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def survey(
        self,
        *,
        owner: str | None = None,
        state: str | None = None,
        kind: str | None = None,
        since: float | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Return jobs for an operator, the newest first: what `get` shows, and owner, key, kind, deadline and times.

        `owner`, `state`, `kind` (the tool), `since` (submitted then or later): None for any. `before`: with a smaller
        id. The times are `submitted`, `started` (the last claim) and `ended`, None where it has not come to that. An
        owner, a state and a kind are found by an index, what does not fit the rest is walked over. A damaged row is
        shown as it is. Raises `JobError` (`bad_input`).
        """
        self._check(before=before, limit=limit, deadline=since)
        for text in (owner, state, kind):
            self._check(owner="any" if text is None else text)
        found = {"succeeded": "1", **dict.fromkeys(LIVE_STATES, _LIVE), **dict.fromkeys(FINAL_STATES[1:], _DEAD_STATE)}
        wanted = {
            "owner = ?": owner,
            f"state = ? AND {found.get(state or '', _NO_STATE)}": state,
            f"{_TOOL} = ?": kind,
            "submitted_at >= ?": since,
            "id < ?": before,
        }
        chosen = {test: value for test, value in wanted.items() if value is not None}
        where = " AND ".join(("1", *chosen))
        order = "+id" if state in LIVE_STATES else "id"  # the few live jobs are sorted, and no history is walked
        rows = self._database.rows(f"{_SURVEY} WHERE {where} ORDER BY {order} DESC LIMIT ?", (*chosen.values(), limit))
        return [dict(zip(_SURVEYED, row, strict=True)) for row in rows]

    def newest_event(self) -> int:
        """Return the highest `seq` of any job, 0 where there is none."""
        return int(self._database.row("SELECT coalesce(max(seq), 0) FROM events")[0])

    def failed_after(self, seq: int) -> int:
        """Return how many jobs of any owner have failed after an event. Raises `JobError` (`bad_input`)."""
        self._check(after=seq)
        return int(self._database.row("SELECT count(*) FROM events WHERE seq > ? AND kind = 'failed'", (seq,))[0])

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

        Only the looking has a limit: the job does not learn of it (C10-190, C10-193). `poll`: the longest sleep between
        two looks, a thousandth of a second at least, so a final state is seen within that time. A clock that stands
        still makes it wait for ever. Raises `JobError`: `not_found`, `bad_input`.
        """
        self._check(poll=poll, clock=clock, sleep=sleep, timeout=timeout)
        end = self._read(clock) + timeout
        while True:
            status = self.get(owner, job_id)
            remaining = end - self._read(clock)
            if status["state"] in FINAL_STATES or remaining <= 0:
                return status
            sleep(min(poll, remaining))

    # The worker's side -----------------------------------------------------------------------

    def claim_next(
        self, *, now: Now, lease: float = 10, kinds: Collection[tuple[str, str]] | None = None
    ) -> tuple[int, int] | None:
        """Take the next due job of any owner and return `(job_id, attempt)`, or None if nothing is due.

        `kinds`: pairs of tool and version; other jobs wait for a worker that can do them (None: all kinds). Nothing of
        a paused owner is taken.
        Owners take turns in the order of their names, starting after the owner of the last claim; within an owner the
        longest due comes first. So however many jobs an owner has waiting, another owner's first due job is taken after
        at most one claim for each other owner that has due work. (A `claim` by id counts as its owner's turn, and
        pruning the last claim gives the turn back to the one before.) Jobs found dead on the way are ended as in
        `claim`, at most `CLAIM_SCAN` a call (if that many were dead, None comes back although more may be due: call
        again), and so are rows that no store has written: `failed`, with `damaged`. Raises `JobError` (`bad_input`).
        """
        self._check(now=now, lease=lease)
        query = f"{_NEXT_DUE}{'' if kinds is None else f' AND {_OF_KINDS}'}{_FIRST}"
        own = () if kinds is None else (kinds_text(kinds),)
        with self._database.write() as db:
            moment = self._read(now)
            last = _readable(db, _LAST_CLAIM, ())
            turn = last[0][0] if last and is_text(last[0][0], MAX_TEXT) else ""
            after, first = ((owner, moment, *own) for owner in (turn, ""))
            for _ in range(CLAIM_SCAN):
                # The owners after the last one first, and when nothing is due there, from the start.
                rows = _readable(db, query, after) or _readable(db, query, first)
                if not rows:
                    return None
                job = Job._make(rows[0])
                if not job.is_sound():
                    self._set_aside(db, job.id, moment)
                elif self._bury(db, job, moment) is None:
                    end = min(moment + lease, job.deadline)
                    attempt = job.attempt + 1
                    self._move(
                        db, job, "running", moment, attempt=attempt, lease_until=end, done=0, total=0, error=None
                    )
                    return job.id, attempt
            return None

    def renew(self, job_id: int, attempt: int, *, now: Now, lease: float = 10) -> str:
        """Let the lease of a live attempt end `lease` seconds from now, and return the job's state.

        `running`: go on. `cancel_requested`: clean up and stop; the lease was renewed for that. A final state: stop,
        the job has ended (perhaps by this call, past its deadline). A lease never gets shorter by this and never
        reaches past the deadline, so no worker lives for ever (C10-233). Repeat it when its answer was lost.

        Raises `JobError`: `not_found`, `not_running`, `bad_input`; `LostLease`: `stale_attempt`, `lease_expired`.
        """
        self._check(job_id=job_id, attempt=attempt, now=now, lease=lease)
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            if attempt != job.attempt:  # guard: stale_attempt
                raise LostLease("stale_attempt")
            if job.state in FINAL_STATES:  # guard: ended
                return job.state
            if job.state == "queued":  # guard: not_running
                raise JobError("not_running")
            if moment >= job.deadline:  # guard: deadline
                self._bury(db, job, moment)
                return "cancelled" if job.state == "cancel_requested" else "failed"
            if moment >= job.lease_until:  # guard: lease_expired
                raise LostLease("lease_expired")
            end = min(moment + lease, job.deadline)  # guard: lease_within_deadline
            if end > job.lease_until:
                db.execute("UPDATE jobs SET lease_until = ? WHERE id = ?", (end, job_id))
            return job.state

    def hand_back(self, job_id: int, attempt: int, code: str, *, now: Now) -> str:
        """Give up an attempt that was interrupted, and return the state that the job has then.

        A worker that is asked to leave is no failure of the job: it is due at once, and its budget grows by the attempt
        that was taken, up to `MAX_ATTEMPTS` in all, so that attempts still only rise (J3). A repeat changes nothing.
        Raises as `fail` does.
        """
        self._check(job_id=job_id, attempt=attempt, code=code, now=now)
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            if (job.state, job.attempt, job.error) == ("queued", attempt, code):
                return "queued"
            state = self._may_write(db, job, attempt, moment)
            if state != "running":
                return state
            most = max(job.max_attempts, min(job.max_attempts + 1, MAX_ATTEMPTS))
            if attempt >= most:
                return self._end(db, job, "failed", moment, code)
            queued = {"max_attempts": most, "ready_at": moment, "lease_until": None, "done": 0, "total": 0}
            return self._move(db, job, "queued", moment, **queued, error=code)

    # Upkeep ----------------------------------------------------------------------------------

    def sweep(self, *, now: Now, limit: int = 100) -> dict[str, int]:
        """End the jobs that can no longer be run, without a worker having to ask for them.

        Past the deadline: `deadline_exceeded`. Lease over after the last attempt: `attempts_exhausted`. Lease over
        after a cancel request: `cancelled`. A row that no store has written: `damaged`; it is `failed`, or what its log
        says that it had become. Returns how many of each, and `skipped`: rows that the database refused to change. They
        do not hold up the others, up to `MAX_LIMIT` of them. At most `limit` jobs are ended a call, in one transaction.
        Reads no job that has ended.

        Raises `JobError` (`bad_input`). Source: claim C10-291 (what the chapter leaves open).
        """
        self._check(limit=limit, now=now)
        counts = {"deadline_exceeded": 0, "attempts_exhausted": 0, "cancelled": 0, "damaged": 0, "skipped": 0}
        with self._database.write() as db:
            moment = self._read(now)
            dead = _readable(db, _DAMAGED, (limit + MAX_LIMIT,))
            dead += _readable(db, _STRANGE, (limit + MAX_LIMIT,))
            dead += _readable(db, _DEAD, (moment, moment, limit + MAX_LIMIT))
            for job in {row[0]: Job._make(row) for row in dead}.values():
                if sum(counts.values()) - counts["skipped"] == limit:
                    break
                db.execute("SAVEPOINT one_job")
                try:
                    ended = self._bury(db, job, moment) if job.is_sound() else self._set_aside(db, job.id, moment)
                    counts[ended or "skipped"] += 1
                except sqlite3.IntegrityError:
                    db.execute("ROLLBACK TO one_job")
                    counts["skipped"] += 1
                db.execute("RELEASE one_job")
        return counts

    def prune(self, *, now: Now, results_before: float, keys_before: float, limit: int = 100) -> dict[str, int]:
        """Remove what retention no longer keeps, of final jobs only; return `{results, keys}` removed.

        `results_before`: the data of jobs that ended before this time goes; `result` then says `result_expired`, and
        the key still gives the old job. `keys_before`: jobs that ended before this time go with key, receipt and
        events; their key is free and their numbers never come back. A job that was cancelled without a time ended at
        its deadline. Results go first, so `keys_before <= results_before <= now`. At most `limit` jobs of either kind a
        call, in one transaction; zero of both means that nothing is left to remove.

        Keep keys for longer than any client may retry (C10-295). Raises `JobError` (`bad_input`).
        """
        self._check(limit=limit, results_before=results_before, keys_before=keys_before, now=now)
        with self._database.write() as db:
            moment = self._read(now)
            if not keys_before <= results_before <= moment:
                raise JobError("bad_input", "the times are not in the order keys_before, results_before, now")
            gone = db.execute(_ENDED, (keys_before, limit)).fetchall()
            for table, column in (("receipts", "job_id"), ("events", "job_id"), ("jobs", "id")):
                db.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
            stale = db.execute(_KEPT, (results_before, limit)).fetchall()
            db.executemany("UPDATE receipts SET data = NULL WHERE job_id = ?", stale)
        return {"results": len(stale), "keys": len(gone)}

    def release(self, job_id: int, *, now: Now) -> bool:
        """Let a live job be due now, whatever it waits for; say whether it was waiting.

        For an operator, after a clock was set back: a job waits for the moment at which it was submitted or may be
        tried again, and a held one for the end of its lease. Whoever holds it loses it, as at the end of a lease, and
        what he delivers is refused. Raises `JobError`: `not_found`, `bad_input`.
        """
        self._check(job_id=job_id, now=now)
        with self._database.write() as db:
            moment, job = self._read(now), self._find(db, job_id)
            waits = job.lease_until if job.lease_until is not None else job.ready_at
            if job.state in FINAL_STATES or waits <= moment:
                return False
            column = "ready_at" if job.lease_until is None else "lease_until"
            db.execute(f"UPDATE jobs SET {column} = ? WHERE id = ?", (moment, job_id))
            return True

    def pause(self, owner: str | None = None, *, now: Now) -> bool:
        """Let no worker begin a job of `owner` (None: of anybody) until `resume`; False where it was so already.

        What runs goes on, what is submitted is kept, and deadlines pass. A `claim` of one job by its number is not
        stopped. Raises `JobError` (`bad_input`).
        """
        self._check(owner="any" if owner is None else owner, now=now)
        with self._database.write() as db:
            row = ("" if owner is None else owner, self._read(now))
            return db.execute("INSERT OR IGNORE INTO pauses VALUES (?, ?)", row).rowcount == 1

    def resume(self, owner: str | None = None) -> bool:
        """Take one pause back, that of `owner` or the one of everybody; False where there was none. `bad_input`."""
        self._check(owner="any" if owner is None else owner)
        with self._database.write() as db:
            return db.execute("DELETE FROM pauses WHERE owner = ?", ("" if owner is None else owner,)).rowcount == 1

    def paused(self) -> list[str | None]:
        """Return who is paused, by name; None, at the front, stands for everybody."""
        return [owner or None for (owner,) in self._database.rows("SELECT owner FROM pauses ORDER BY owner")]

    def compact(self) -> dict[str, int]:
        """Give the room of what was pruned back to the disk; return `{before, after}`, bytes of the file.

        It writes the file anew, with as much free room on the disk, and holds up every writer meanwhile.
        """
        before = self._bytes()
        self._database.row("VACUUM")
        self._database.row("PRAGMA wal_checkpoint(TRUNCATE)")
        return {"before": before, "after": self._bytes()}

    def backup(self, target: str | os.PathLike[str]) -> int:
        """Write a copy of the store as it is at one moment to a new file, while others work; return its bytes.

        It is a store that can be opened as it is. Raises `StoreError` (`store_unavailable`): the file is there already,
        or it cannot be written, and then nothing is left of it.
        """
        try:
            name = os.fsdecode(target)
            open(name, "xb").close()
        except (OSError, TypeError, ValueError) as error:
            raise StoreError("store_unavailable", "the target is there already, or cannot be made") from error
        try:
            self._database.row("VACUUM INTO ?", (name,))
            return os.path.getsize(name)
        except BaseException:
            os.unlink(name)
            raise

    def _bytes(self) -> int:
        return int(self._database.row("PRAGMA page_count")[0] * self._database.row("PRAGMA page_size")[0])

    def stats(self, *, now: Now) -> dict[str, dict[str, Any]]:
        """Return, for each owner with live work, `{queued, running, cancel_requested, expired, oldest_wait}`.

        `expired`: leases that are over. `oldest_wait`: seconds that the longest due job has been claimable, None if
        none is. Reads the live jobs only. Raises `JobError` (`bad_input`).
        """
        self._check(now=now)
        moment = self._read(now)
        return {
            owner if type(owner) is str else repr(owner): {
                "queued": queued,
                "running": running,
                "cancel_requested": asked,
                "expired": expired or 0,
                "oldest_wait": moment - due if due is not None and due <= moment else None,
            }
            for owner, queued, running, asked, expired, due in self._database.rows(_STATS, (moment,))
        }

    def kinds(self) -> list[dict[str, Any]]:
        """Return the kinds of live work, `{kind, version, queued, live}` each; both None for what is damaged."""
        rows = self._database.rows(_KINDS)
        return [dict(zip(("kind", "version", "queued", "live"), row, strict=True)) for row in rows]

    # What the verbs share --------------------------------------------------------------------

    def _prepared(self, submissions: list[tuple[str, dict[str, Any]]], tool: str) -> list[tuple[str, str]]:
        """Return the pairs of key and canonical intent."""
        if type(submissions) is not list or not 1 <= len(submissions) <= MAX_BATCH:
            raise JobError("invalid_submission", f"the submissions are not a list of 1 to {MAX_BATCH}")
        if not all(type(pair) is tuple and len(pair) == 2 for pair in submissions):
            raise JobError("invalid_submission", "a submission is not a pair of key and arguments")
        prepared = []
        for key, args in submissions:
            self._check("invalid_submission", action_key=key)
            prepared.append((key, self._intent(tool, args)))
        return prepared

    def _bury(self, db: sqlite3.Connection, job: Job, now: float) -> str | None:
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

    def _set_aside(self, db: sqlite3.Connection, job_id: int, now: float) -> str:
        """End a job whose row is damaged, so that it stops nobody; what the log still knows of it is put back."""
        claims = db.execute(_CLAIMS, (job_id,)).fetchone()[0]
        ending = db.execute(_ENDING, (job_id,)).fetchone()
        state, error = ending or ("failed", "damaged")
        db.execute(_SET_ASIDE, {"now": now, "claims": claims, "id": job_id, "state": state, "error": error})
        if ending is None:
            self._tell(db, job_id, claims, "failed", {"error": "damaged"}, now)
        return "damaged"

    def _tell(
        self, db: sqlite3.Connection, job_id: int, attempt: int, kind: str, detail: object, now: float | None
    ) -> None:
        """Write an event; of a job's progress the newest `MAX_PROGRESS_EVENTS` stay, so no log grows for ever."""
        super()._tell(db, job_id, attempt, kind, detail, now)
        if kind == "progress":
            old = db.execute(_TOO_OLD, (job_id, MAX_PROGRESS_EVENTS)).fetchone()
            if old is not None:
                db.execute("DELETE FROM events WHERE seq = ?", old)

    def _move(self, db: sqlite3.Connection, job: Job, state: str, now: float | None, **columns: Any) -> str:
        """Give a job another state as the chapter's store does, and note when it ended."""
        if state in FINAL_STATES:
            columns["ended_at"] = job.deadline if now is None else now
            if state == "succeeded":
                db.execute("UPDATE receipts SET ended_at = ? WHERE job_id = ?", (now, job.id))
        return super()._move(db, job, state, now, **columns)


def kinds_text(kinds: Collection[tuple[str, str]]) -> str:
    """Return pairs of tool and version as the queries take them: what the intents of these kinds end with.

    Raises `JobError` (`bad_input`).
    """
    try:
        pairs = tuple((tool, version) for tool, version in kinds)
    except (TypeError, ValueError):
        raise JobError("bad_input", "the kinds are not pairs of tool and version") from None
    if len(pairs) > MAX_LIMIT or not all(is_text(text, MAX_TEXT) for pair in pairs for text in pair):
        raise JobError("bad_input", "the kinds are not pairs of tool and version")
    return _endings(pairs)


@lru_cache  # a worker asks for the same kinds all its life
def _endings(pairs: tuple[tuple[str, str], ...]) -> str:
    return canonical([f',"tool":{canonical(tool)},"version":{canonical(version)}}}' for tool, version in pairs])


def _readable(db: sqlite3.Connection, sql: str, parameters: tuple[object, ...]) -> list[Any]:
    """Return all rows of a query; bytes that are no UTF-8 stand in them as lone surrogates, so the row is not sound."""
    try:
        return db.execute(sql, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if not str(error).startswith("Could not decode"):
            raise
    try:
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        return db.execute(sql, parameters).fetchall()
    finally:
        db.text_factory = str
