"""Three clocks side by side: how long a caller waits, how long one attempt may take, and until when a result counts.

    caller's wait   belongs to the caller; when it runs out, the caller goes away and the job does not learn of it
    attempt         belongs to the handler; when it runs out, this attempt stops and the job may be tried again
    deadline        belongs to the job; when it runs out, nothing counts any more

One word for all three ("it timed out") leaves nobody knowing what to do, so no code here is called so. The lease stands
beside them and is none of them: it says who may write, not how long the work may take.

Everything runs on logical time, so the evidence has the same bytes on every machine. The numbers are those of the
chapter: five seconds, ten seconds, one minute.
Source: the chapter's section on three clocks (claims C10-185 to C10-194).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from chapter10.companions.heartbeat import JobContext
from chapter10.companions.status import status_text
from chapter10.companions.worker import Backoff, Handler, Worker
from chapter10.jobs import REPORTS_EXPORT, JobStore, LostLease

__all__ = ["ATTEMPT_SECONDS", "DEADLINE_SECONDS", "WAIT_SECONDS", "clocks_experiment"]

WAIT_SECONDS: Final = 5
"""How long the caller looks (C10-186)."""
ATTEMPT_SECONDS: Final = 10
"""How long one attempt may take."""
DEADLINE_SECONDS: Final = 60
"""Until when, from the submission on, a result counts."""

_OWNER: Final = "alice"
_ARGS: Final = {"month": "2026-08"}
_STEP_SECONDS: Final = 4


class _Time:
    """Logical seconds; somebody waits, and they have passed."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def clocks_experiment() -> dict[str, Any]:
    """Let each clock run out once and return what became of the job.

    `limits`: the three, in seconds. `clocks`: for each `{clock, belongs_to, started_at, noticed_at, state_then,
    code, text, state_at_the_end, attempts}`. `wait_changed_the_store`: False. `lease`: what the end of a lease is
    instead. `codes`: every code that was recorded or raised.
    """
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        clocks = [
            _the_caller_leaves(Path(folder, "wait.db")),
            _an_attempt_takes_too_long(Path(folder, "attempt.db")),
            _the_deadline_passes(Path(folder, "deadline.db")),
        ]
        lease = _a_lease_ends(Path(folder, "lease.db"))
    return {
        "limits": {"caller_wait": WAIT_SECONDS, "attempt": ATTEMPT_SECONDS, "deadline": DEADLINE_SECONDS},
        "clocks": clocks,
        "wait_changed_the_store": clocks[0].pop("changed"),
        "lease": lease,
        "codes": sorted({clock["code"] for clock in clocks if clock["code"]} | {lease["code"]}),
    }


def _the_caller_leaves(path: Path) -> dict[str, Any]:
    logical = _Time()
    with JobStore(path) as store:
        job_id = store.submit(_OWNER, "k", _ARGS, now=logical, deadline=DEADLINE_SECONDS)
        attempt = store.claim(job_id, now=logical, lease=DEADLINE_SECONDS)
        assert attempt is not None
        before = list(store.db.iterdump())
        seen = store.wait(_OWNER, job_id, WAIT_SECONDS, clock=logical, sleep=logical.sleep, poll=1)
        changed = list(store.db.iterdump()) != before
        noticed_at = logical()
        logical.sleep(2)
        store.finish(job_id, attempt, {"total_cents": 6000}, now=logical)
        return {
            "clock": "caller_wait",
            "belongs_to": "the caller",
            "started_at": 0.0,
            "noticed_at": noticed_at,
            "state_then": seen["state"],
            "code": None,
            "text": status_text(seen, stopped_waiting=True),
            "state_at_the_end": store.get(_OWNER, job_id)["state"],
            "attempts": 1,
            "changed": changed,
        }


def _an_attempt_takes_too_long(path: Path) -> dict[str, Any]:
    def run(context: JobContext) -> dict[str, int]:
        for _ in range(10 if context.attempt == 1 else 1):  # the first one hangs, the second one does not
            logical.sleep(_STEP_SECONDS)
            context.checkpoint()
        return {"total_cents": 6000}

    logical = _Time()
    handler = Handler(run, limit=ATTEMPT_SECONDS)
    with JobStore(path) as store, _worker(path, handler, logical) as worker:
        job_id = store.submit(_OWNER, "k", _ARGS, now=logical, deadline=DEADLINE_SECONDS)
        first = worker.run_once()
        assert first is not None
        noticed_at, then = logical(), store.get(_OWNER, job_id)
        logical.sleep(1)  # the pause before the next attempt
        worker.run_once()
        return _figures(store, job_id, "attempt", "one attempt", noticed_at, then, first.code)


def _the_deadline_passes(path: Path) -> dict[str, Any]:
    def run(context: JobContext) -> dict[str, int]:
        while True:
            logical.sleep(_STEP_SECONDS)
            context.checkpoint()

    logical = _Time()
    with JobStore(path) as store, _worker(path, Handler(run), logical) as worker:
        job_id = store.submit(_OWNER, "k", _ARGS, now=logical, deadline=DEADLINE_SECONDS)
        ended = worker.run_once()
        assert ended is not None
        return _figures(store, job_id, "deadline", "the job", logical(), store.get(_OWNER, job_id), ended.code)


def _a_lease_ends(path: Path) -> dict[str, Any]:
    """Nothing has run out but the right to write: the same work may be claimed again."""
    with JobStore(path) as store:
        job_id = store.submit(_OWNER, "k", _ARGS, now=0, deadline=DEADLINE_SECONDS)
        attempt = store.claim(job_id, now=0, lease=ATTEMPT_SECONDS)
        assert attempt is not None
        try:
            store.finish(job_id, attempt, {}, now=ATTEMPT_SECONDS)
            code = None
        except LostLease as refused:
            code = refused.code
        return {
            "code": code,
            "state_then": store.get(_OWNER, job_id)["state"],
            "next_attempt": store.claim(job_id, now=ATTEMPT_SECONDS),
        }


def _worker(path: Path, handler: Handler, logical: _Time) -> Worker:
    return Worker(
        path,
        {REPORTS_EXPORT.tool: handler},
        clock=logical,
        sleep=logical.sleep,
        lease=2 * DEADLINE_SECONDS,
        renew_every=float("inf"),  # logical time: nothing happens beside it
        backoff=Backoff(base_ms=1000),
        random=lambda: 0.5,
    )


def _figures(
    store: JobStore, job_id: int, clock: str, belongs_to: str, noticed_at: float, then: dict[str, Any], code: str | None
) -> dict[str, Any]:
    end = store.get(_OWNER, job_id)
    return {
        "clock": clock,
        "belongs_to": belongs_to,
        "started_at": 0.0,
        "noticed_at": noticed_at,
        "state_then": then["state"],
        "code": code,
        "text": status_text(then),
        "state_at_the_end": end["state"],
        "attempts": end["attempt"],
    }
