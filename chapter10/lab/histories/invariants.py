"""What the job store promises, as checks on one step: J1 to J11 of `chapter10.jobs`, one function each.

J0 is ours, and comes before them: a call ends in an answer that its verb declares, and the answer is true.

A check gets the step and what was before it, and returns a sentence about what is wrong, or None. The
checks know the promises and nothing of how the store keeps them: no check calls the store, but
`stuck`, which plays time and a willing worker to see that every job comes to an end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chapter10.jobs import FINAL_STATES, LIVE_STATES
from chapter10.lab.histories.world import NOTHING_SEEN, STRANGER, Action, Content, Row, Step, World

__all__ = ["CODES", "INVARIANTS", "WAY_TO_END", "WORKER_VERBS", "Invariant", "Seen", "first_broken", "stuck"]

WAY_TO_END: Final = "time and one willing worker bring every job to an end"
WORKER_VERBS: Final = frozenset({"progress", "finish", "fail", "retry", "renew"})
CODES: Final = frozenset(
    {
        "invalid_submission", "bad_input", "key_conflict", "queue_full", "not_found", "not_running",
        "stale_attempt", "lease_expired", "invalid_progress", "not_ready",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """One step with its surroundings: the content before, the moment, the action, and what came of it."""

    world: World
    before: Content
    now: int
    action: Action
    step: Step

    @property
    def changed(self) -> bool:
        """Whether the step changed what the store holds or added an event."""
        return bool(self.before != self.step.content or self.step.events)


@dataclass(frozen=True, slots=True)
class Invariant:
    """A numbered promise: its sentence, the constraints in the schema that state it too, and its check."""

    number: str
    sentence: str
    constraints: tuple[str, ...]
    check: Callable[[Seen], str | None]


def first_broken(seen: Seen) -> tuple[Invariant, str] | None:
    """Return the first invariant that a step breaks and what is wrong, or None.

    Where the database refused a write, the promise behind the constraint is the one that was at stake:
    the schema is the second line, and it had to be used.
    """
    if seen.step.crashed is not None:
        for invariant in INVARIANTS:
            if any(constraint in seen.step.crashed for constraint in invariant.constraints):
                return invariant, f"only the database refused it ({seen.step.crashed})"
    for invariant in INVARIANTS:
        wrong = invariant.check(seen)
        if wrong is not None:
            return invariant, wrong
    return None


def stuck(call: Callable[[Content, int, Action], Step], world: World, content: Content, now: int) -> str | None:
    """J11: let time pass and one worker claim and deliver whatever it gets; what is not final then?

    `call` is how the store is asked, with or without a memory of its answers.
    """
    for moment in range(now, now + world.deadline + world.lease + 2):
        for row in content.rows:
            if row.state in FINAL_STATES:
                continue
            taken = call(content, moment, Action("worker", "claim", row.id))
            content = taken.content
            if type(taken.answer) is int and not taken.refused:
                content = call(content, moment, Action("worker", "finish", row.id, taken.answer)).content
    for row in content.rows:
        if row.state not in FINAL_STATES:
            return f"job {row.id} is {row.state} for ever, although time passed and a worker asked for it"
    return None


def _declared(seen: Seen) -> str | None:
    if seen.step.crashed is not None:
        return f"the call ended with an error that it does not declare ({seen.step.crashed})"
    if seen.step.refused and seen.step.answer not in CODES:
        return f"the code {seen.step.answer} is not declared"
    return None


def _one_receipt(seen: Seen) -> str | None:
    content = seen.step.content
    for row in content.rows:
        receipts = [receipt for receipt in content.receipts if receipt[0] == row.id]
        if len(receipts) != (row.state == "succeeded"):
            return f"job {row.id} is {row.state} and has {len(receipts)} receipts"
        if receipts and receipts[0][1] != row.attempt:
            return f"the receipt of job {row.id} is of attempt {receipts[0][1]}, the job's last is {row.attempt}"
    if seen.action.verb == "finish" and seen.step.answer is True and seen.before.receipts == content.receipts:
        return "finish said that it stored the result, and there is none"
    return None


def _final_stays(seen: Seen) -> str | None:
    for row in seen.before.rows:
        if row.state in FINAL_STATES and seen.step.content.row(row.id) != row:
            after = seen.step.content.row(row.id)
            return f"job {row.id} was {row.state} and is {after.state if after else 'gone'}"
    return None


def _attempt_rises(seen: Seen) -> str | None:
    for before, after in _pairs(seen):
        if after.attempt not in (before.attempt, before.attempt + 1) or after.attempt > after.max_attempts:
            return f"attempt went from {before.attempt} to {after.attempt} (limit {after.max_attempts})"
        if after.attempt > before.attempt and not seen.action.verb.startswith("claim"):
            return f"{seen.action.verb} started an attempt"
        if seen.action.verb.startswith("claim") and type(seen.step.answer) is int and before.id == seen.action.job_id:
            if (after.attempt, after.state) != (before.attempt + 1, "running") or seen.step.answer != after.attempt:
                return "claim handed out an attempt that it did not start"
        if after.attempt == before.attempt and after.state in ("running", "cancel_requested"):
            if after.done < before.done or after.total < before.total:
                return f"within attempt {after.attempt} progress fell from {before.done} to {after.done}"
    return None


def _fenced(seen: Seen) -> str | None:
    now, action = seen.now, seen.action
    for before, after in _pairs(seen):
        if before == after:
            continue
        burial = after.state in ("cancelled", "failed") and (
            before.state == "cancel_requested" or now >= before.deadline
        )
        if action.verb in WORKER_VERBS:
            if before.state not in ("running", "cancel_requested"):
                return f"{action.verb} changed a job that nobody holds"
            if action.attempt != before.attempt:
                return f"attempt {action.attempt} wrote although attempt {before.attempt} is current"
            if not burial and before.lease_until is not None and now >= before.lease_until:
                return f"attempt {action.attempt} wrote at {now}, its lease ended at {before.lease_until:g}"
        if action.verb.startswith("claim") and after.attempt > before.attempt:
            due = before.ready_at if before.lease_until is None else before.lease_until
            if now < due:
                return f"the job was claimed at {now}, but it was not to be had before {due:g}"
        if before.state == "cancel_requested" and after.state not in ("cancel_requested", "cancelled"):
            return f"a cancel was requested, and the job became {after.state}"
        if now >= before.deadline and after.state in ("succeeded", "running", "queued"):
            return f"the deadline was {before.deadline:g}, and at {now} the job became {after.state}"
    for row in seen.step.content.rows:
        if row.lease_until is not None and row.lease_until > row.deadline:
            return "a lease reaches past the deadline"
    return None


def _refusal_changes_nothing(seen: Seen) -> str | None:
    if seen.step.refused and seen.changed:
        return f"{seen.step.answer} was answered, and something was written"
    if seen.action.actor == STRANGER and seen.changed:
        return "somebody who owns nothing changed something"
    return None


def _replay(seen: Seen) -> str | None:
    rows = {row.id: _replayed(row) for row in seen.before.rows}
    for _, job_id, attempt, kind, detail, _ in seen.step.events:
        state, _, done, total, error = rows.get(job_id, ("", 0, 0, 0, None))
        told = json.loads(detail)
        if kind == "progress":
            done, total = told["done"], told["total"]
        else:
            state, error = kind, told.get("error")
            if kind in ("running", "queued"):
                done = total = 0
        rows[job_id] = (state, attempt, done, total, error)
    for row in seen.step.content.rows:
        if rows.get(row.id) != _replayed(row):
            return f"the events of job {row.id} give {rows.get(row.id)}, the row says {_replayed(row)}"
    return None


def _numbers_rise(seen: Seen) -> str | None:
    last = seen.step.last_seq
    for event in seen.step.events:
        if event[0] <= last:
            return f"seq {event[0]} came after {last}"
        last = event[0]
    return None


def _key_keeps_job(seen: Seen) -> str | None:
    keys = [(row.owner, row.action_key) for row in seen.step.content.rows]
    if len(set(keys)) != len(keys):
        return "a key has two jobs"
    for before in seen.before.rows:
        after = seen.step.content.row(before.id)
        if after is None or _given(before) != _given(after):
            return f"what job {before.id} was given has changed"
    known = next((row for row in seen.before.rows if row.owner == seen.action.actor), None)
    if seen.action.verb == "submit" and known is not None and seen.step.answer != known.id:
        return f"the known key was answered with {seen.step.answer} instead of job {known.id}"
    if seen.action.verb == "submit another intent" and seen.step.answer != "key_conflict":
        return f"another intent under a known key was answered with {seen.step.answer}"
    return None


def _capacity(seen: Seen) -> str | None:
    live = sum(row.state in LIVE_STATES for row in seen.step.content.rows)
    if live > seen.world.capacity:
        return f"{live} jobs are not final, the capacity is {seen.world.capacity}"
    return None


def _others_unmoved(seen: Seen) -> str | None:
    action = seen.action
    if action.actor == STRANGER and seen.step.answer != NOTHING_SEEN:
        return f"of job {action.job_id} somebody else got: {seen.step.answer}"
    if action.verb in ("submit", "submit another intent", "cancel"):
        for before, after in _pairs(seen):
            if before.owner != action.actor and before != after:
                return f"{action.actor} changed a job of {before.owner}"
    return None


def _way_to_end(seen: Seen) -> str | None:
    """No job waits in line for nothing, and the holder's call past the deadline is where a job ends."""
    for row in seen.step.content.rows:
        if row.state == "queued" and row.attempt >= row.max_attempts:
            return f"job {row.id} waits in line without an attempt left"
        if row.state == "queued" and row.ready_at >= row.deadline:
            return f"job {row.id} waits for {row.ready_at:g}, its deadline is {row.deadline:g}"
    before = seen.before.row(seen.action.job_id)
    if before is None or seen.action.verb not in WORKER_VERBS or seen.action.attempt != before.attempt:
        return None
    if before.state in ("running", "cancel_requested") and seen.now >= before.deadline:
        after = seen.step.content.row(before.id)
        if after is None or after.state not in FINAL_STATES:
            return f"the holder called at {seen.now}, the deadline was {before.deadline:g}, and the job did not end"
    return None


def _answer_is_true(seen: Seen) -> str | None:
    row = seen.step.content.row(seen.action.job_id)
    if row is None or seen.step.refused:
        return None
    if seen.action.verb in ("cancel", "fail", "retry", "renew") and seen.step.answer != row.state:
        return f"{seen.action.verb} answered {seen.step.answer}, the job is {row.state}"
    if seen.action.verb == "cancel" and row.state in ("queued", "running"):
        return f"a cancel was asked for, and the job is {row.state}"
    if seen.action.verb == "progress" and seen.step.answer is True and row.state != "running":
        return f"progress said go on, the job is {row.state}"
    return None


_ANSWERS: Final = "every call ends in a declared answer, and the answer is true"

INVARIANTS: Final = (
    Invariant("J0", _ANSWERS, (), _declared),
    Invariant("J1", "a job has one receipt if and only if it is succeeded", ("receipts.job_id",), _one_receipt),
    Invariant("J2", "a final state never changes", (), _final_stays),
    Invariant(
        "J3",
        "attempt rises by one with each claim and never exceeds its limit",
        ("attempt_within_limit", "done_within_total"),
        _attempt_rises,
    ),
    Invariant(
        "J4",
        "nothing is committed by a stale attempt, after the lease, past the deadline, or after a cancel request",
        ("lease_within_deadline", "lease_while_held", "held_means_claimed"),
        _fenced,
    ),
    Invariant("J5", "a refused call changes nothing", (), _refusal_changes_nothing),
    Invariant("J6", "replaying a job's events gives its row", (), _replay),
    Invariant("J7", "seq rises and never comes back", ("events.seq",), _numbers_rise),
    Invariant("J8", "a key is unique and keeps its job", ("jobs.owner, jobs.action_key",), _key_keeps_job),
    Invariant("J9", "jobs that are not final never exceed the capacity", (), _capacity),
    Invariant("J10", "whatever an owner does, nothing of another owner changes", (), _others_unmoved),
    Invariant("J11", WAY_TO_END, (), _way_to_end),
    Invariant("J0", _ANSWERS, (), _answer_is_true),
)
"""In the order in which they are looked at. What J11 says of the future is the work of `stuck`."""


def _pairs(seen: Seen) -> list[tuple[Row, Row]]:
    pairs = []
    for before in seen.before.rows:
        after = seen.step.content.row(before.id)
        if after is not None:
            pairs.append((before, after))
    return pairs


def _given(row: Row) -> tuple[object, ...]:
    return (row.owner, row.action_key, row.intent, row.max_attempts, row.deadline)


def _replayed(row: Row) -> tuple[str, int, int, int, str | None]:
    return (row.state, row.attempt, row.done, row.total, row.error)
