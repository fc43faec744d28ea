"""A small world around the real job store: what can happen next, and what the store makes of it.

A *world* has a few jobs, a few workers and one caller for each job's owner, and a logical clock that
ends. Its *state* is the content of the store, the time, and what each worker believes that it holds.
An *action* is one call by one actor, or the clock moving on, or a worker losing its memory. Nothing
here knows the rules of the store: every call runs the real store, the chapter's or the living one, on
an in-memory database whose rows are put back as they were before.

The rows of `jobs` and `receipts` are all that a verb reads, so they are the content that counts. The
event log only grows; leaving it out of the content is what makes two histories meet. Each step hands
out the events that it added, so that they can be judged step by step.

Workers differ only by name. A worker remembers the attempt that it was handed until it vanishes: so it
may deliver late, deliver twice because an answer was lost, and work on after its lease. While it
believes that it holds a job it does not ask for it again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from chapter10.canonical import CodedError
from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import JobStore

__all__ = [
    "CHAPTER_VERBS",
    "EMPTY",
    "LOOKS",
    "MONTHS",
    "NOTHING_SEEN",
    "OWNERS",
    "STRANGER",
    "TOTAL",
    "WORKERS",
    "Action",
    "Bench",
    "Content",
    "Memory",
    "Row",
    "State",
    "Step",
    "World",
    "actions",
]

OWNERS: Final = ("alice", "bob", "carol")
WORKERS: Final = ("worker A", "worker B", "worker C")
STRANGER: Final = "mallory"
LOOKS: Final = ("get", "events", "result", "cancel")
"""The caller's verbs that a stranger tries, one after the other."""
NOTHING_SEEN: Final = ", ".join(f"{verb} not_found" for verb in LOOKS)
"""What a stranger is told, whatever is there."""
MONTHS: Final = ("2026-08", "2026-07")
TOTAL: Final = 2
"""Units of work in each job, so that progress can rise once and fall back."""
CHAPTER_VERBS: Final = frozenset({"progress", "finish", "fail", "retry"})
"""What a worker does with the chapter's store, which has no `renew` and no `sweep`."""


class Row(NamedTuple):
    """One row of `jobs`: its columns in the order of the table; the chapter's store has not the last two."""

    id: int
    owner: str
    action_key: str
    intent: str
    state: str
    attempt: int
    max_attempts: int
    deadline: float
    ready_at: float
    lease_until: float | None
    done: int
    total: int
    error: str | None
    ended_at: float | None = None
    submitted_at: float | None = None


class Content(NamedTuple):
    """What the store holds: the rows of `jobs` by id, and of `receipts` as (job_id, attempt, sha256, data)."""

    rows: tuple[Row, ...]
    receipts: tuple[tuple[int, int, str, str | None], ...]

    def row(self, job_id: int) -> Row | None:
        """Return the row of a job, or None."""
        return next((row for row in self.rows if row.id == job_id), None)


EMPTY: Final = Content((), ())
"""A store that nobody has used yet."""

Memory = tuple[tuple[tuple[int, int], ...], ...]
"""For each worker the (job_id, attempt) pairs that it was handed, in order."""


class State(NamedTuple):
    """A point of a history: content, time, and what the workers believe."""

    content: Content
    now: int
    memory: Memory


class Action(NamedTuple):
    """One thing that happens: `actor` does `verb` to job `job_id` with `attempt` and `number`.

    `job_id` is also which intent a caller submits (1 is the first). Unused numbers are 0.
    """

    actor: str
    verb: str
    job_id: int = 0
    attempt: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """The size of a world.

    `jobs`: intents, one caller each (up to 3). `workers`: up to 3. `until`: the last moment of the
    clock. `attempts`: `max_attempts` of every job. `deadline`, `lease`, `retry_after`: in ticks.
    `capacity`: of the queue. `verbs`: which worker verbs are played.
    """

    jobs: int = 1
    workers: int = 2
    until: int = 5
    attempts: int = 2
    deadline: int = 4
    lease: int = 2
    retry_after: int = 1
    capacity: int = 3
    verbs: frozenset[str] = CHAPTER_VERBS | {"renew", "sweep"}

    def __post_init__(self) -> None:
        for name, low, high in (("jobs", 1, 3), ("workers", 1, 3), ("until", 1, 99), ("attempts", 1, 9)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} is not a whole number from {low} to {high}")


class Step(NamedTuple):
    """What one call did: `answer` is what it returned, or the code that it raised (`refused`).

    `events` are the (seq, job_id, attempt, kind, detail, at) rows that it added; `last_seq` is the
    highest number given out before. `crashed` names an error that no verb declares.
    """

    answer: Any
    refused: bool
    content: Content
    events: tuple[tuple[int, int, int, str, str, float | None], ...]
    last_seq: int
    crashed: str | None


def actions(world: World, state: State) -> Iterator[Action]:
    """Yield everything that may happen next in `state`, in a fixed order."""
    if state.now < world.until:
        yield Action("clock", "tick")
    for number in range(1, world.jobs + 1):
        owner = OWNERS[number - 1]
        yield Action(owner, "submit", number)
        row = _of_owner(state.content, owner)
        if row is not None:
            yield Action(owner, "submit another intent", number)
            yield Action(owner, "cancel", row.id)
            yield Action(STRANGER, "look and cancel", row.id)
    if "sweep" in world.verbs:
        yield Action("sweeper", "sweep")
    for index in range(world.workers):
        worker, held = WORKERS[index], state.memory[index]
        for row in state.content.rows:
            if all(job_id != row.id for job_id, _ in held):
                yield Action(worker, "claim", row.id)
                yield Action(worker, "claim, answer lost", row.id)
        if held:
            yield Action(worker, "vanish")
        for job_id, attempt in held:
            if "progress" in world.verbs:
                for done in range(1, TOTAL + 1):
                    yield Action(worker, "progress", job_id, attempt, done)
            for verb in ("finish", "fail", "retry", "renew"):
                if verb in world.verbs:
                    yield Action(worker, verb, job_id, attempt)


class Bench:
    """A real store whose rows can be set, so that a call can be tried from any content.

    `store`: the class under test. The chapter's store plays no world with `renew` or `sweep`. Close it after use.
    """

    def __init__(self, world: World, store: type[JobStore] = LivingStore) -> None:
        self._world = world
        self._store: Any = store(":memory:")
        self._db: sqlite3.Connection = self._store.db
        there = {column[1] for column in self._db.execute("PRAGMA table_info(jobs)")}
        self._columns = [name for name in Row._fields if name in there]
        # Rows are put back table by table, and events of other histories stay: nothing reads them.
        self._db.execute("PRAGMA foreign_keys=OFF")
        self._last_seq = 0
        self._now = 0
        self._content = EMPTY
        self._calls: dict[str, Callable[[Action], Any]] = {
            "submit": self._submit,
            "submit another intent": self._submit,
            "cancel": lambda action: self._store.cancel(action.actor, action.job_id, now=self._now),
            "look and cancel": self._look_and_cancel,
            "sweep": lambda action: self._store.sweep(now=self._now),
            "claim": lambda action: self._store.claim(action.job_id, now=self._now, lease=world.lease),
            "progress": lambda action: self._store.progress(
                action.job_id, action.attempt, action.number, TOTAL, now=self._now
            ),
            "finish": lambda action: self._store.finish(
                action.job_id, action.attempt, {"by": action.attempt}, now=self._now
            ),
            "fail": lambda action: self._store.fail(action.job_id, action.attempt, "broken", now=self._now),
            "retry": lambda action: self._store.fail(
                action.job_id, action.attempt, "temporary", now=self._now, retry_after=world.retry_after
            ),
            "renew": lambda action: self._store.renew(action.job_id, action.attempt, now=self._now, lease=world.lease),
        }

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def call(self, content: Content, now: int, action: Action) -> Step:
        """Let the real store answer `action` from `content` at `now`."""
        if content != self._content:
            self._restore(content)
        self._now = now
        last_seq = self._last_seq
        changes = self._db.total_changes
        answer, refused, crashed = None, False, None
        try:
            answer = self._calls[action.verb.removesuffix(", answer lost")](action)
        except CodedError as error:
            answer, refused = error.code, True
        except Exception as error:  # the finding itself: an error that no verb declares
            answer, refused, crashed = type(error).__name__, True, f"{type(error).__name__}: {error}"
        if self._db.total_changes == changes and not self._db.in_transaction:
            return Step(answer, refused, content, (), last_seq, crashed)
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
            crashed = crashed or "a transaction was left open"
        events = tuple(
            self._db.execute(
                "SELECT seq, job_id, attempt, kind, detail, at FROM events WHERE seq > ? ORDER BY seq", (last_seq,)
            )
        )
        if events:
            self._last_seq = max(last_seq, events[-1][0])
        self._content = self._read()
        return Step(answer, refused, self._content, events, last_seq, crashed)

    def _submit(self, action: Action) -> Any:
        month = MONTHS[action.verb == "submit another intent"]
        return self._store.submit(
            action.actor,
            "report",
            {"month": month},
            now=self._now,
            deadline=self._now + self._world.deadline,
            max_attempts=self._world.attempts,
            capacity=self._world.capacity,
        )

    def _look_and_cancel(self, action: Action) -> Any:
        """Try each of `LOOKS` as somebody else; return in one line what came of each."""
        answers = []
        for verb in LOOKS:
            try:
                getattr(self._store, verb)(action.actor, action.job_id)
                answers.append(f"{verb} answered")
            except CodedError as error:
                answers.append(f"{verb} {error.code}")
        return ", ".join(answers)

    def _read(self) -> Content:
        rows = tuple(Row(*row) for row in self._db.execute(f"SELECT {', '.join(self._columns)} FROM jobs ORDER BY id"))
        receipts = tuple(self._db.execute("SELECT job_id, attempt, sha256, data FROM receipts ORDER BY job_id"))
        return Content(rows, receipts)

    def _restore(self, content: Content) -> None:
        db, width = self._db, len(self._columns)
        db.execute("BEGIN")
        db.execute("DELETE FROM jobs")
        db.executemany(
            f"INSERT INTO jobs ({', '.join(self._columns)}) VALUES ({', '.join('?' * width)})",
            [row[:width] for row in content.rows],
        )
        if content.receipts != self._content.receipts:
            db.execute("DELETE FROM receipts")
            db.executemany("INSERT INTO receipts (job_id, attempt, sha256, data) VALUES (?, ?, ?, ?)", content.receipts)
        # Ids go on from the rows that are there; `seq` goes on rising over the whole exploration.
        newest = content.rows[-1].id if content.rows else 0
        if newest != (self._content.rows[-1].id if self._content.rows else 0):
            db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'jobs'", (newest,))
        db.execute("COMMIT")
        self._content = content


def _of_owner(content: Content, owner: str) -> Row | None:
    return next((row for row in content.rows if row.owner == owner), None)
