"""The group `clocks`: three clocks side by side.

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

from chapter10.companions.operating.status import status_text
from chapter10.companions.work.heartbeat import JobContext
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Backoff, Handler, Worker
from chapter10.jobs import REPORTS_EXPORT, JobStore
from chapter10.lab.evidence.evidence import Group, Scene

__all__ = ["ATTEMPT_SECONDS", "DEADLINE_SECONDS", "GROUP", "WAIT_SECONDS", "clocks_experiment"]

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


def clocks_experiment(scene: Scene | None = None) -> dict[str, Any]:
    """Let each clock run out once, note it in the scene, and return what became of the job.

    `limits`: the three, in seconds. `clocks`: for each `{clock, belongs_to, started_at, noticed_at, state_then,
    code, text, state_at_the_end, attempts}`. `wait_changed_the_store`: False. `lease`: what the end of a lease is
    instead. `codes`: every code that was recorded or raised.
    """
    scene = Scene() if scene is None else scene
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        clocks = [
            _the_caller_leaves(scene, Path(folder, "wait.db")),
            _an_attempt_takes_too_long(scene, Path(folder, "attempt.db")),
            _the_deadline_passes(scene, Path(folder, "deadline.db")),
        ]
        lease = _a_lease_ends(scene, Path(folder, "lease.db"))
    return {
        "limits": {"caller_wait": WAIT_SECONDS, "attempt": ATTEMPT_SECONDS, "deadline": DEADLINE_SECONDS},
        "clocks": clocks,
        "wait_changed_the_store": clocks[0].pop("changed"),
        "lease": lease,
        "codes": sorted({clock["code"] for clock in clocks if clock["code"]} | {lease["code"]}),
    }


def _the_caller_leaves(scene: Scene, path: Path) -> dict[str, Any]:
    scene.begin("调用者不再等待 / the caller stops waiting")
    logical = _Time()
    with LivingStore(path) as store:
        job_id = store.submit(_OWNER, "k", _ARGS, now=logical, deadline=DEADLINE_SECONDS)
        attempt = store.claim(job_id, now=logical, lease=DEADLINE_SECONDS)
        assert attempt is not None
        _note(scene, logical, "worker", "claims the job", "attempt 1")
        before = list(store.db.iterdump())
        seen = store.wait(_OWNER, job_id, WAIT_SECONDS, clock=logical, sleep=logical.sleep, poll=1)
        changed = list(store.db.iterdump()) != before
        noticed_at = logical()
        _note(scene, logical, "caller", f"has waited {WAIT_SECONDS} s and leaves", seen["state"])
        logical.sleep(2)
        store.finish(job_id, attempt, {"total_cents": 6000}, now=logical)
        _note(scene, logical, "worker", "delivers", store.get(_OWNER, job_id)["state"])
        scene.follow(store.events(_OWNER, job_id))
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


def _an_attempt_takes_too_long(scene: Scene, path: Path) -> dict[str, Any]:
    scene.begin("一次尝试太久 / one attempt takes too long")

    def run(context: JobContext) -> dict[str, int]:
        for _ in range(10 if context.attempt == 1 else 1):  # the first one hangs, the second one does not
            logical.sleep(_STEP_SECONDS)
            context.checkpoint()
        return {"total_cents": 6000}

    logical = _Time()
    handler = Handler(run, limit=ATTEMPT_SECONDS)
    with LivingStore(path) as store, _worker(path, handler, logical) as worker:
        job_id = store.submit(_OWNER, "k", _ARGS, now=logical, deadline=DEADLINE_SECONDS)
        first = worker.run_once()
        assert first is not None
        noticed_at, then = logical(), store.get(_OWNER, job_id)
        _note(scene, logical, "worker", f"looks: {ATTEMPT_SECONDS} s are over", f"{then['state']}, {first.code}")
        logical.sleep(1)  # the pause before the next attempt
        second = worker.run_once()
        assert second is not None
        _note(scene, logical, "worker", "delivers attempt 2", second.state)
        scene.follow(store.events(_OWNER, job_id))
        return _figures(store, job_id, "attempt", "one attempt", noticed_at, then, first.code)


def _the_deadline_passes(scene: Scene, path: Path) -> dict[str, Any]:
    scene.begin("截止时间到了 / the deadline passes")

    def run(context: JobContext) -> dict[str, int]:
        while True:
            logical.sleep(_STEP_SECONDS)
            context.checkpoint()

    logical = _Time()
    with LivingStore(path) as store, _worker(path, Handler(run), logical) as worker:
        job_id = store.submit(_OWNER, "k", _ARGS, now=logical, deadline=DEADLINE_SECONDS)
        ended = worker.run_once()
        assert ended is not None
        _note(scene, logical, "worker", f"looks: second {DEADLINE_SECONDS} has come", f"{ended.state}, {ended.code}")
        scene.follow(store.events(_OWNER, job_id))
        return _figures(store, job_id, "deadline", "the job", logical(), store.get(_OWNER, job_id), ended.code)


def _a_lease_ends(scene: Scene, path: Path) -> dict[str, Any]:
    """Nothing has run out but the right to write: the same work may be claimed again."""
    scene.begin("租约不是任务的时限 / a lease is no limit of the work")
    with LivingStore(path) as store:
        job_id = store.submit(_OWNER, "k", _ARGS, now=0, deadline=DEADLINE_SECONDS)
        attempt = store.claim(job_id, now=0, lease=ATTEMPT_SECONDS)
        assert attempt is not None
        code = scene.refusal("worker", store.finish, job_id, attempt, {}, now=ATTEMPT_SECONDS)
        then = store.get(_OWNER, job_id)["state"]
        again = scene.call("another worker", store.claim, job_id, now=ATTEMPT_SECONDS)
        return {"code": code, "state_then": then, "next_attempt": again}


def _note(scene: Scene, logical: _Time, actor: str, what: str, detail: str) -> None:
    scene.now = logical()
    scene.note(actor, what, detail)


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


GROUP: Final = Group(
    run=clocks_experiment,
    title="三只钟 / three clocks",
    target="job store",
    text="""\
调用者等多久、一次尝试能跑多久、整个任务到何时为止，是三只不同的钟。第一只走完，作业一个字节也没有变；第二只走完，
这次尝试停下，作业还可以再试；第三只走完，什么都不再算数。租约是另一回事：它只说谁现在可以写。

How long a caller waits, how long one attempt may take and until when a result counts are three clocks. When the first
runs out, not a byte of the job changes; after the second this attempt stops and the job may be tried again; after the
third nothing counts any more. A lease is none of them: it only says who may write now.
""",
    tables=("clocks",),
)
"""The experiment and the words of its page."""
