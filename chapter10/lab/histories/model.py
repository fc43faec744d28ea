"""The job store's contract once more, as plainly as it can be said: dicts, no database, no speed.

This is the yardstick of `lab.histories.simulate`. It was written from the contract and shares no code with
`chapter10.jobs`; where the two disagree, one of them is wrong. It knows nothing of files, locks, faults
or sizes, and it takes only well-formed arguments: what is let in is tested elsewhere.

Each verb returns what the store returns, or raises `Refused` with the code that the store raises.
Source: claims C10-129 to C10-255, X-02.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["LIVE", "Model", "ModelJob", "Refused"]

LIVE: Final = ("queued", "running", "cancel_requested")


class Refused(Exception):
    """Raised with the code that the store would raise."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class ModelJob:
    """One job with its own event list; `due` is when it may be claimed, whatever its state."""

    id: int
    owner: str
    key: str
    month: str
    deadline: float
    max_attempts: int
    due: float
    state: str = "queued"
    attempt: int = 0
    done: int = 0
    total: int = 0
    error: str | None = None
    ended_at: float | None = None
    result: Any = None
    expired: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        """Return what `get` shows."""
        return {name: getattr(self, name) for name in ("id", "state", "attempt", "done", "total", "error")}


class Model:
    """All jobs by id, and the numbers that were given out."""

    def __init__(self) -> None:
        self.jobs: dict[int, ModelJob] = {}
        self.last_id = 0
        self.last_seq = 0
        self.claims: list[tuple[int, int]] = []

    # The caller's side

    def submit(
        self, owner: str, key: str, month: str, now: float, deadline: float, max_attempts: int, capacity: int, own: int
    ) -> int:
        """`own`: this owner's capacity."""
        for job in self.jobs.values():
            if (job.owner, job.key) == (owner, key):
                if job.month != month:
                    raise Refused("key_conflict")
                return job.id
        if now >= deadline:
            raise Refused("invalid_submission")
        live = [job for job in self.jobs.values() if job.state in LIVE]
        if len(live) >= capacity:
            raise Refused("queue_full")
        if sum(job.owner == owner for job in live) >= own:
            raise Refused("owner_full")
        self.last_id += 1
        job = ModelJob(self.last_id, owner, key, month, deadline, max_attempts, due=now)
        self.jobs[job.id] = job
        self._tell(job, "queued")
        return job.id

    def get(self, owner: str, job_id: int) -> dict[str, Any]:
        return self._mine(owner, job_id).status()

    def cancel(self, owner: str, job_id: int, now: float) -> str:
        job = self._mine(owner, job_id)
        if job.state == "queued":
            self._end(job, "cancelled", now)
        elif job.state == "running":
            job.state = "cancel_requested"
            self._tell(job, "cancel_requested")
        return job.state

    def events(self, owner: str, job_id: int, after: int, limit: int) -> list[dict[str, Any]]:
        return [dict(event) for event in self._mine(owner, job_id).events if event["seq"] > after][:limit]

    def result(self, owner: str, job_id: int) -> dict[str, Any]:
        job = self._mine(owner, job_id)
        if job.state != "succeeded":
            raise Refused("not_ready")
        if job.expired:
            raise Refused("result_expired")
        text = json.dumps(job.result, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return {"artifact_id": f"report-{job_id}", "sha256": sha256, "data": job.result}

    def list_jobs(self, owner: str, limit: int) -> list[dict[str, Any]]:
        return [self.jobs[i].status() for i in sorted(self.jobs, reverse=True) if self.jobs[i].owner == owner][:limit]

    # The worker's side

    def claim(self, job_id: int, now: float, lease: float) -> int | None:
        return self._take(self._any(job_id), now, lease)

    def claim_next(self, now: float, lease: float) -> tuple[int, int] | None:
        """Owners in the order of their names, from the one after the owner of the last claim."""
        while True:
            due = [job for job in self.jobs.values() if job.state in LIVE and job.due <= now]
            if not due:
                return None
            last = self.jobs[self.claims[-1][1]].owner if self.claims else ""
            owners = sorted({job.owner for job in due})
            owner = next((name for name in owners if name > last), owners[0])
            job = min((job for job in due if job.owner == owner), key=lambda job: (job.due, job.id))
            attempt = self._take(job, now, lease)
            if attempt is not None:
                return job.id, attempt

    def renew(self, job_id: int, attempt: int, now: float, lease: float) -> str:
        job = self._holder(job_id, attempt)
        if job.state in LIVE:
            if now >= job.deadline:
                self._bury(job, now)
            elif now >= job.due:
                raise Refused("lease_expired")
            else:
                job.due = max(job.due, min(now + lease, job.deadline))
        return job.state

    def progress(self, job_id: int, attempt: int, done: int, total: int, now: float) -> bool:
        if done > total:
            raise Refused("invalid_progress")
        job = self._held(job_id, attempt, now)
        if job.state not in LIVE:
            return False
        if done < job.done or total < job.total:
            raise Refused("invalid_progress")
        if (done, total) != (job.done, job.total):
            job.done, job.total = done, total
            self._tell(job, "progress", {"done": done, "total": total})
        return True

    def finish(self, job_id: int, attempt: int, result: Any, now: float) -> bool:
        job = self._held(job_id, attempt, now)
        if job.state not in LIVE:
            return False
        job.result = result
        self._end(job, "succeeded", now)
        return True

    def fail(self, job_id: int, attempt: int, code: str, now: float, retry_after: float | None) -> str:
        known = self.jobs.get(job_id)
        if known is not None and (known.state, known.attempt, known.error) == ("queued", attempt, code):
            return "queued"
        job = self._held(job_id, attempt, now)
        if job.state not in LIVE:
            return job.state
        if retry_after is None or job.attempt == job.max_attempts or now + retry_after >= job.deadline:
            self._end(job, "failed", now, code)
        else:
            job.state, job.due, job.error, job.done, job.total = "queued", now + retry_after, code, 0, 0
            self._tell(job, "queued", {"error": code})
        return job.state

    # Upkeep

    def sweep(self, now: float) -> dict[str, int]:
        counts = {"deadline_exceeded": 0, "attempts_exhausted": 0, "cancelled": 0, "damaged": 0, "skipped": 0}
        for job in sorted(self.jobs.values(), key=lambda job: (job.owner, job.due, job.id)):
            lease_over = job.state in ("running", "cancel_requested") and now >= job.due
            spent = job.state == "cancel_requested" or job.attempt == job.max_attempts
            if job.state in LIVE and (now >= job.deadline or (lease_over and spent)):
                counts[self._bury(job, now) or ""] += 1
        return counts

    def prune(self, now: float, results_before: float, keys_before: float) -> dict[str, int]:
        if not keys_before <= results_before <= now:
            raise Refused("bad_input")
        gone = [job for job in self.jobs.values() if job.ended_at is not None and job.ended_at < keys_before]
        for job in gone:
            del self.jobs[job.id]
        self.claims = [claim for claim in self.claims if claim[1] in self.jobs]
        stale = [
            job
            for job in self.jobs.values()
            if job.state == "succeeded" and not job.expired and (job.ended_at or 0) < results_before
        ]
        for job in stale:
            job.expired = True
        return {"results": len(stale), "keys": len(gone)}

    # Rules

    def _any(self, job_id: int) -> ModelJob:
        if job_id not in self.jobs:
            raise Refused("not_found")
        return self.jobs[job_id]

    def _mine(self, owner: str, job_id: int) -> ModelJob:
        job = self._any(job_id)
        if job.owner != owner:
            raise Refused("not_found")
        return job

    def _holder(self, job_id: int, attempt: int) -> ModelJob:
        job = self._any(job_id)
        if attempt != job.attempt:
            raise Refused("stale_attempt")
        if job.state == "queued":
            raise Refused("not_running")
        return job

    def _held(self, job_id: int, attempt: int, now: float) -> ModelJob:
        job = self._holder(job_id, attempt)
        if job.state == "cancel_requested" or (job.state == "running" and now >= job.deadline):
            self._bury(job, now)
        elif job.state == "running" and now >= job.due:
            raise Refused("lease_expired")
        return job

    def _take(self, job: ModelJob, now: float, lease: float) -> int | None:
        if job.state not in LIVE or now < job.due or self._bury(job, now):
            return None
        job.state, job.attempt, job.done, job.total, job.error = "running", job.attempt + 1, 0, 0, None
        job.due = min(now + lease, job.deadline)
        self._tell(job, "running")
        self.claims.append((self.last_seq, job.id))
        return job.attempt

    def _bury(self, job: ModelJob, now: float) -> str | None:
        if job.state == "cancel_requested":
            self._end(job, "cancelled", now)
            return "cancelled"
        if now >= job.deadline:
            self._end(job, "failed", now, "deadline_exceeded")
        elif job.attempt == job.max_attempts:
            self._end(job, "failed", now, "attempts_exhausted")
        else:
            return None
        return job.error

    def _end(self, job: ModelJob, state: str, now: float, error: str | None = None) -> None:
        job.state, job.error, job.ended_at = state, error, now
        self._tell(job, state, {"error": error} if error else {})

    def _tell(self, job: ModelJob, kind: str, detail: dict[str, Any] | None = None) -> None:
        self.last_seq += 1
        job.events.append({"seq": self.last_seq, "kind": kind, "attempt": job.attempt, "detail": detail or {}})
