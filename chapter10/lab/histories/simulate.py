"""Long random lives of the job store against a small model: `python -m chapter10 simulate`.

The explorer sees every history of a small world. This goes the other way: long histories of a large
one (many jobs, three owners, workers that deliver late, retention), chosen by a seed, with faults on
the way. After each call the store's answer is compared with that of `lab.histories.model`; after each fault and
every so often the whole content is.

    python -m chapter10 simulate --seed 1 --steps 5000
    python -m chapter10 simulate --seed 1 --runs 20       the seeds 1 to 20
    python -m chapter10 simulate --seed 1 --chapter       the chapter's store instead of the living one

The faults: SQLite is stopped at the N-th instruction of its program somewhere inside a verb; the file
may not grow any more, as on a full disk; the store is closed and opened again. A verb that ends in a
`StoreError` must have changed nothing. A lost answer is the same call once more.

If the two disagree, the list of calls is shrunk: parts are left out as long as it still fails. What is
left is printed with the command that finds it again. The same seed gives the same calls on every
machine and every Python.

What it does not do: real processes, real kills, real time; the tests and `lab.processes.chaos` are for those.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import CodedError, canonical
from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError
from chapter10.jobs import JobStore
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG, main_guard
from chapter10.lab.histories.model import LIVE, Model, Refused

__all__ = [
    "COMPARE_EVERY",
    "MAX_STEPS",
    "MONTHS",
    "OWNERS",
    "UNKNOWN",
    "Call",
    "Disagreement",
    "history",
    "main",
    "replay",
    "shrink",
]

OWNERS: Final = ("alice", "bob", "carol")
MONTHS: Final = ("2026-07", "2026-08")
COMPARE_EVERY: Final = 50
"""Calls between two comparisons of the whole content."""
UNKNOWN: Final = 10**9
"""The number of a job that was never accepted; no run gives out so many."""
MAX_STEPS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a history: a verb with its arguments, at a time, and perhaps a fault on the way.

    A job is named by `owner/key`, since its number depends on what came before and was left out.
    `stop_at`: SQLite is stopped at this instruction (0: not). `full`: the file may not grow.
    """

    verb: str
    arguments: tuple[Any, ...]
    now: int
    stop_at: int = 0
    full: bool = False

    def __str__(self) -> str:
        fault = f"   [stopped at instruction {self.stop_at}]" if self.stop_at else ""
        fault += "   [disk full]" if self.full else ""
        return f"{self.now:6} {self.verb}({', '.join(map(repr, self.arguments))}){fault}"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where store and model part: the number of the call, and what each says."""

    index: int
    store: str
    model: str


def history(seed: int, steps: int, store: type[JobStore] = LivingStore) -> list[Call]:
    """Return `steps` calls of verbs that `store` has, chosen by `seed`; time never falls.

    A model lives along, so that most calls are about jobs that are in flight and by those who hold
    them; a choice without knowledge would mostly be refused.
    """
    chance = random.Random(seed)
    model = Model()
    ids: dict[str, int] = {}
    calls: list[Call] = []
    now = 0
    while len(calls) < steps:
        now += chance.choice((0, 0, 0, 0, 0, 1, 1, 2, 4))
        fault = chance.random()
        if calls and fault > 0.94:
            call, stop_at = Call(calls[-1].verb, calls[-1].arguments, now), 0  # its answer was lost
        else:
            stop_at = chance.randint(1, 220) if fault < 0.08 else 0
            call = Call(*_choose(chance, model, now, store), now, stop_at, full=0.08 <= fault < 0.11)
        calls.append(call)
        if not stop_at:
            _model_answer(model, ids, call)
    return calls


def _choose(chance: random.Random, model: Model, now: int, store: type[JobStore]) -> tuple[str, tuple[Any, ...]]:
    """Choose a verb and its arguments."""
    live = [job for job in model.jobs.values() if job.state in LIVE]
    known = live if live and chance.random() < 0.85 else list(model.jobs.values())
    job = chance.choice(known) if known else None
    named = f"{job.owner}/{job.key}" if job else "alice/k1"
    owner = job.owner if job and chance.random() < 0.9 else chance.choice(OWNERS)
    attempt = max(0, (job.attempt if job else 1) + chance.choice((0, 0, 0, 0, 0, 0, 0, -1, -1, 1)))
    done = (job.done if job else 0) + chance.choice((0, 1, 1, 1, -1))
    lease = chance.choice((1, 2, 5, 10))
    new_key = f"k{model.last_id + 1}" if chance.random() < 0.8 else f"k{chance.randint(1, model.last_id + 1)}"
    choices: dict[str, tuple[int, tuple[Any, ...]]] = {
        "submit": (16, (chance.choice(OWNERS), new_key, chance.choice(MONTHS), now + chance.choice((0, 2, 8, 20, 40)),
                        chance.randint(1, 3), 8, 4 if issubclass(store, LivingStore) else 8)),
        "claim_next": (10, (lease,)),
        "claim": (10, (named, lease)),
        "progress": (14, (named, attempt, max(0, done), max(0, chance.choice((4, 4, 4, 5, done))))),
        "finish": (10, (named, attempt, {"total_cents": chance.randint(0, 9)})),
        "fail": (9, (named, attempt, "temporary", chance.choice((None, 0, 1, 4, 30)))),
        "renew": (8, (named, attempt, lease)),
        "cancel": (4, (owner, named)),
        "get": (3, (owner, named)),
        "events": (3, (owner, named, chance.randint(0, model.last_seq + 1), chance.randint(1, 5))),
        "result": (4, (owner, named)),
        "list_jobs": (1, (owner, chance.randint(1, 5))),
        "sweep": (1, ()),
        "prune": (1, (now - chance.choice((0, 20, 60)), now - chance.choice((20, 60, 200)))),
        "reopen": (1, ()),
    }  # fmt: skip
    verbs = [name for name in choices if name == "reopen" or hasattr(store, name)]
    verb = chance.choices(verbs, [choices[name][0] for name in verbs])[0]
    return verb, choices[verb][1]


def _numbered(call: Call, ids: dict[str, int]) -> tuple[Any, ...]:
    """Return the arguments with numbers for names; a job that was never accepted has a number without a job."""
    return tuple(ids.get(each, UNKNOWN) if type(each) is str and "/" in each else each for each in call.arguments)


def _model_answer(model: Model, ids: dict[str, int], call: Call) -> str:
    now = call.now
    dated: dict[str, Callable[..., Any]] = {
        "submit": lambda owner, key, month, *limits: model.submit(owner, key, month, now, *limits),
        "claim": lambda job, lease: model.claim(job, now, lease),
        "claim_next": lambda lease: model.claim_next(now, lease),
        "renew": lambda job, attempt, lease: model.renew(job, attempt, now, lease),
        "progress": lambda job, attempt, done, total: model.progress(job, attempt, done, total, now),
        "finish": lambda job, attempt, result: model.finish(job, attempt, result, now),
        "fail": lambda job, attempt, code, wait: model.fail(job, attempt, code, now, wait),
        "cancel": lambda owner, job: model.cancel(owner, job, now),
        "sweep": lambda: model.sweep(now),
        "prune": lambda *times: model.prune(now, *times),
        "reopen": lambda: None,
    }
    verb = dated[call.verb] if call.verb in dated else getattr(model, call.verb)
    try:
        answer = verb(*_numbered(call, ids))
    except Refused as refused:
        return refused.code
    if call.verb == "submit":
        ids[f"{call.arguments[0]}/{call.arguments[1]}"] = answer
    return canonical(_plain(answer))


class _Run:
    """One store on a file of its own beside one model."""

    def __init__(self, folder: Path, store: type[JobStore]) -> None:
        self._make = store
        self._path = folder / "jobs.db"
        self._store: Any = store(self._path)
        self._model = Model()
        self._ids: dict[str, int] = {}

    def close(self) -> None:
        self._store.close()

    def step(self, call: Call) -> tuple[str, str]:
        """Make one call of both; return what each said."""
        if call.verb == "reopen":
            self._store.close()
            self._store = self._make(self._path)
            return self.contents()
        with _fault(self._store.db, call):
            answer = self._ask_store(call)
        if answer.startswith("the machine"):
            if not call.stop_at and not call.full:
                return answer, "no fault was put in the way"
            return self.contents()  # nothing may have changed, so the model is not asked
        return answer, _model_answer(self._model, self._ids, call)

    def _ask_store(self, call: Call) -> str:
        try:
            return canonical(_plain(self._verbs()[call.verb](*_numbered(call, self._ids), call.now)))
        except StoreError as error:
            return f"the machine: {error.code}"
        except CodedError as error:
            return error.code
        except Exception as error:  # whatever it is, it is no declared answer: that is the finding
            return f"{type(error).__name__}: {error}"

    def _verbs(self) -> dict[str, Callable[..., Any]]:
        store = self._store

        def submit(
            owner: str, key: str, month: str, deadline: float, attempts: int, most: int, own: int, now: int
        ) -> Any:
            more = {"owner_capacity": own} if isinstance(store, LivingStore) else {}
            return store.submit(
                owner, key, {"month": month}, now=now, deadline=deadline, max_attempts=attempts, capacity=most, **more
            )

        return {
            "submit": submit,
            "claim": lambda job, lease, now: store.claim(job, now=now, lease=lease),
            "claim_next": lambda lease, now: store.claim_next(now=now, lease=lease),
            "renew": lambda job, attempt, lease, now: store.renew(job, attempt, now=now, lease=lease),
            "progress": lambda job, attempt, done, total, now: store.progress(job, attempt, done, total, now=now),
            "finish": lambda job, attempt, result, now: store.finish(job, attempt, result, now=now),
            "fail": lambda job, attempt, code, wait, now: store.fail(job, attempt, code, now=now, retry_after=wait),
            "cancel": lambda owner, job, now: store.cancel(owner, job, now=now),
            "get": lambda owner, job, now: store.get(owner, job),
            "events": lambda owner, job, after, limit, now: store.events(owner, job, after, limit),
            "result": lambda owner, job, now: store.result(owner, job),
            "list_jobs": lambda owner, limit, now: store.list_jobs(owner, limit=limit),
            "sweep": lambda now: store.sweep(now=now, limit=1000),
            "prune": lambda results, keys, now: store.prune(
                now=now, results_before=results, keys_before=keys, limit=1000
            ),
        }

    def contents(self) -> tuple[str, str]:
        """Return everything that store and model hold, each as one text."""
        rows = self._store.db.execute(
            "SELECT id, state, attempt, done, total, error, owner, action_key, deadline, max_attempts,"
            " coalesce(lease_until, ready_at) FROM jobs ORDER BY id"
        )
        stored = {
            row[0]: [
                *row[:10],
                row[10] if row[1] in LIVE else None,
                [list(event) for event in self._store.db.execute(
                    "SELECT seq, kind, attempt, detail FROM events WHERE job_id = ? ORDER BY seq", (row[0],)
                )],
                [list(receipt) for receipt in self._store.db.execute(
                    "SELECT attempt, data FROM receipts WHERE job_id = ?", (row[0],)
                )],
            ]
            for row in rows.fetchall()
        }  # fmt: skip
        expected = {
            job.id: [
                *job.status().values(), job.owner, job.key, job.deadline, job.max_attempts,
                job.due if job.state in LIVE else None,
                [[event["seq"], event["kind"], event["attempt"], canonical(event["detail"])] for event in job.events],
                [[job.attempt, None if job.expired else canonical(job.result)]] if job.state == "succeeded" else [],
            ]
            for job in self._model.jobs.values()
        }  # fmt: skip
        return _by_job(stored), _by_job(expected)


def replay(calls: Sequence[Call], store: type[JobStore] = LivingStore) -> Disagreement | None:
    """Make the calls on a new `store` and a new model; return where they first part, or None."""
    with (
        tempfile.TemporaryDirectory(prefix="chapter10-") as folder,
        contextlib.closing(_Run(Path(folder), store)) as run,
    ):
        for index, call in enumerate(calls):
            stored, model = run.step(call)
            if stored == model and (index % COMPARE_EVERY == 0 or index == len(calls) - 1):
                stored, model = run.contents()
            if stored != model:
                return Disagreement(index, stored, model)
    return None


def shrink(calls: Sequence[Call], store: type[JobStore] = LivingStore) -> list[Call]:
    """Return a shorter list that still disagrees: halves, quarters, … single calls are left out in turn."""
    found = replay(calls, store)
    if found is None:
        raise ValueError("store and model agree on this history")
    short = list(calls[: found.index + 1])
    size = max(1, len(short) // 2)
    while True:
        start, smaller = 0, False
        while start < len(short):
            candidate = short[:start] + short[start + size :]
            found = replay(candidate, store) if candidate else None
            if found is None:
                start += size
            else:
                short, smaller = candidate[: found.index + 1], True
        if size == 1 and not smaller:
            return short
        size = max(1, size // 2)


@contextlib.contextmanager
def _fault(db: sqlite3.Connection, call: Call) -> Iterator[None]:
    """Put the fault of a call in its way, and take it out again.

    COMMIT runs to its end: SQLite asks the handler once more when a statement is over, and a commit
    that is over cannot be stopped. That would be a lost answer, which is a call made twice.
    """
    count = 0

    def watch(statement: str) -> None:
        if statement == "COMMIT":
            db.set_progress_handler(None, 0)

    def stop() -> int:
        nonlocal count
        count += 1
        return int(count == call.stop_at)

    if call.stop_at:
        db.set_progress_handler(stop, 1)
        db.set_trace_callback(watch)
    if call.full:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages}")
    try:
        yield
    finally:
        if call.stop_at:
            db.set_progress_handler(None, 0)
            db.set_trace_callback(None)
        if call.full:
            db.execute("PRAGMA max_page_count=1073741823")


def _by_job(contents: dict[int, list[Any]]) -> str:
    return "\n".join(canonical(contents[job_id]) for job_id in sorted(contents))


def _plain(answer: Any) -> Any:
    return list(answer) if isinstance(answer, tuple) else answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit 0 if store and model agreed on every seed, 1 with the shrunk history if not."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 simulate", description="Random histories of the job store against a model."
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--steps", type=int, default=2000, help="calls in a run (default 2000)")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, one after the other (default 1)")
    parser.add_argument("--chapter", action="store_true", help="the chapter's store instead of the living one")
    options = parser.parse_args(arguments)
    store = JobStore if options.chapter else LivingStore
    if not 1 <= options.steps <= MAX_STEPS or options.runs < 1:
        parser.error(f"--steps is from 1 to {MAX_STEPS} and --runs at least 1")
    checked = 0
    for seed in range(options.seed, options.seed + options.runs):
        calls = history(seed, options.steps, store)
        if replay(calls, store) is not None:
            _show(seed, options.steps, shrink(calls, store), store)
            return EXIT_WRONG
        checked += len(calls)
        if options.runs > 1:
            print(f"seed {seed}: {len(calls)} calls agreed", file=sys.stderr)
    print(f"calls checked {checked}, disagreements 0")
    return EXIT_FINE


def _show(seed: int, steps: int, calls: list[Call], store: type[JobStore]) -> None:
    found = replay(calls, store)
    assert found is not None
    which = "" if store is LivingStore else " --chapter"
    print(f"store and model disagree; again: python -m chapter10 simulate --seed {seed} --steps {steps}{which}")
    for call in calls:
        print(call)
    print("store:", found.store)
    print("model:", found.model)


if __name__ == "__main__":
    main_guard(main)
