"""The guards of the job store by name, and a way to take one out from outside the production code.

A guard is a condition that a verb checks before it writes, or a limit that it puts on what it writes.
Its name is `condition.verb`; with it stand the sentence of the chapter that it implements and the
change of the source text that takes it out.

Verbs share helpers, so a guard is taken out of *one verb*: the verb and the helpers that it reaches
are copied, the helpers under other names, the change is made in the copies, and only that verb calls
them. The copies make a class of their own, below `chapter10.jobs.JobStore`, in a module of its own;
`chapter10.jobs` is never touched. A change must fit in exactly one place, so a guard that moves or
goes away makes its entry fail instead of proving nothing.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from chapter10 import jobs as production
from chapter10.lab.histories.world import World

__all__ = ["GUARDS", "Guard", "jobs_without", "line_of"]


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard of one verb.

    `name`: condition.verb. `sentence`: what it is for. `claims`: where the chapter says so.
    `change`: the text with the guard and without it, in the verb or a helper that it reaches.
    `world`: a small world in which its absence shows.
    """

    name: str
    sentence: str
    claims: tuple[str, ...]
    change: tuple[str, str]
    world: World = field(default_factory=World)

    @property
    def verb(self) -> str:
        """The method of `JobStore` that loses the guard."""
        return self.name.partition(".")[2]


def jobs_without(guard: Guard) -> ModuleType:
    """Return a module like `chapter10.jobs`, but one verb of its `JobStore` lacks one guard.

    Raises `ValueError` if the guard's text does not stand in exactly one place of the verb.
    """
    text = Path(production.__file__).read_text(encoding="utf-8")
    spec = importlib.util.spec_from_loader("chapter10_jobs_without_a_guard", _Text(_HEAD + _without(text, guard)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_HEAD: Final = """\
from __future__ import annotations

from chapter10 import jobs

globals().update({name: value for name, value in vars(jobs).items() if not name.startswith("__")})


class JobStore(jobs.JobStore):
"""


def line_of(guard: Guard) -> int:
    """Return the line of `chapter10/jobs.py` in which the guard's text begins, counted from 1."""
    text = Path(production.__file__).read_text(encoding="utf-8")
    methods = _methods(text)
    reached = {guard.verb, *_reached(methods, guard.verb)}
    method = next(methods[name] for name in sorted(reached) if guard.change[0] in methods[name])
    start = text.index(method) + method.index(guard.change[0])
    return text.count("\n", 0, start) + 1


class _Text(importlib.abc.SourceLoader):
    """Loads a module from a text at hand; nothing is cached on disk."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_filename(self, fullname: str) -> str:
        return "<chapter10.jobs without a guard>"

    def get_data(self, path: str) -> bytes:
        return self._text.encode("utf-8")


def _without(text: str, guard: Guard) -> str:
    """Return the source of the guard's verb without the guard, and of the helpers that it reaches."""
    methods = _methods(text)
    if guard.verb not in methods:
        raise ValueError(f"{guard.name}: there is no verb {guard.verb}")
    reached = {guard.verb, *_reached(methods, guard.verb)}
    copies = {name: methods[name] for name in reached}
    places = [name for name, source in copies.items() if guard.change[0] in source]
    if len(places) != 1 or copies[places[0]].count(guard.change[0]) != 1:
        raise ValueError(f"{guard.name}: the text does not stand in exactly one place, but in {sorted(places)}")
    copies[places[0]] = copies[places[0]].replace(*guard.change)
    for name, source in copies.items():
        for helper in reached - {guard.verb}:
            source = re.sub(rf"\b{helper}\(", f"{helper}_unguarded(", source)
        copies[name] = source
    return "\n".join(source for _, source in sorted(copies.items()))


@cache
def _methods(text: str) -> Mapping[str, str]:
    """Return the source of each method of `JobStore`, whole lines, by name."""
    lines = text.splitlines(keepends=True)
    store = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == "JobStore")
    return {
        node.name: "".join(lines[node.lineno - 1 : node.end_lineno])
        for node in store.body
        if isinstance(node, ast.FunctionDef)
    }


def _reached(methods: Mapping[str, str], verb: str) -> set[str]:
    """Return the private methods that a verb calls, and those that they call."""
    reached: set[str] = set()
    waiting = [verb]
    while waiting:
        for name in re.findall(r"self\.(_\w+)\(", methods[waiting.pop()]):
            if name in methods and name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


# The list ------------------------------------------------------------------------------------

_TWO_JOBS: Final = World(jobs=2, workers=1, until=1, capacity=1, verbs=frozenset({"finish"}))
_AS_IF_HELD: Final = "job = job._replace(lease_until=job.deadline)"
_HELD_CONDITIONS: Final = (
    (
        "stale_attempt",
        "a worker whose attempt is no longer the newest must not write",
        ("C10-228", "C10-229", "C10-232"),
        ("if attempt != job.attempt:", "if False:"),
    ),
    (
        "not_running",
        "only a job that somebody holds can be written by a worker",
        ("C10-161", "C10-228"),
        ('raise JobError("not_running")', _AS_IF_HELD),
    ),
    (
        "ended",
        "a final state never changes, and a repeated delivery stores nothing new",
        ("C10-158", "C10-238"),
        ("if job.ended:\n            return job\n", f"if job.ended:\n            {_AS_IF_HELD}\n"),
    ),
    (
        "cancel_requested",
        "a worker that finds a cancel request stops and confirms it; it stores no result",
        ("C10-163", "C10-211"),
        ('if job.state == "cancel_requested":', "if False:"),
    ),
    (
        "deadline",
        "the deadline is looked at again when something is written, not only before the start",
        ("C10-187", "C10-188", "C10-189"),
        ("if now >= job.deadline:", "if False:"),
    ),
    (
        "lease_expired",
        "a lease that has ended gives no right to write, even while nobody else has claimed",
        ("C10-231", "C10-308"),
        ("if now >= job.lease_until:", "if False:"),
    ),
)


def _held_guards() -> Iterator[Guard]:
    for verb in ("progress", "finish", "fail"):
        for condition, sentence, claims, change in _HELD_CONDITIONS:
            # Whoever is not running was put back into the line, and only a retry does that.
            more = {"retry"} if condition == "not_running" else set()
            yield Guard(
                f"{condition}.{verb}", sentence, claims, change, World(verbs=frozenset({verb, "finish", *more}))
            )
    for condition, sentence, claims, change in _HELD_CONDITIONS:
        if condition in ("stale_attempt", "not_running", "lease_expired"):
            yield Guard(f"{condition}.renew", sentence, claims, change)


GUARDS: Final[tuple[Guard, ...]] = (
    Guard(
        "known_key.submit_many",
        "the same key is the same intent: a repeat gets its job back and makes no second one",
        ("C10-144", "C10-216"),
        (
            "if row is not None:\n                ids[key] = row[0]",
            "if row is not None:\n                new[key] = intent",
        ),
    ),
    Guard(
        "key_conflict.submit_many",
        "a known key with another intent is refused; the old result is not passed off for it",
        ("C10-224",),
        ('raise JobError("key_conflict")', "pass"),
    ),
    Guard(
        "queue_full.submit_many",
        "the jobs that are not final are counted in the transaction that adds one",
        ("C10-288",),
        ('raise JobError("queue_full")', "pass"),
        _TWO_JOBS,
    ),
    Guard(
        "owner.cancel",
        "knowing a job's number is no right to touch it",
        ("C10-155",),
        ("if job is None or job.owner != owner:", "if job is None:"),
    ),
    Guard(
        "owner.get",
        "knowing a job's number is no right to see its state",
        ("C10-155",),
        ("WHERE id = ? AND owner = ?", "WHERE id = ? AND ? <> ''"),
    ),
    Guard(
        "owner.events",
        "knowing a job's number is no right to read what happened to it",
        ("C10-155",),
        ("j.owner = ?", "? <> ''"),
    ),
    Guard(
        "owner.result",
        "knowing a job's number is no right to its result",
        ("C10-155", "C10-247"),
        ("j.owner = ?", "? <> ''"),
    ),
    Guard(
        "running.cancel",
        "a cancel of a running job is a request; of an ended one it changes nothing",
        ("C10-212", "C10-164", "C10-213", "C10-215"),
        ('if job.state == "running":', "if True:"),
    ),
    Guard(
        "ended.claim",
        "a final state never runs again",
        ("C10-158",),
        ("if job.ended or now <", "if now <"),
    ),
    Guard(
        "due.claim",
        "a job is not to be had before its retry is due, nor while another worker's lease lives",
        ("C10-154", "C10-201", "C10-226"),
        ("if job.ended or now < (job.ready_at if job.lease_until is None else job.lease_until):", "if job.ended:"),
    ),
    Guard(
        "cancel_requested.claim",
        "a cancelled job does not go back to work when its lease ends; the claim confirms the cancel",
        ("C10-209",),
        ('if job.state == "cancel_requested":', "if False:"),
        World(verbs=frozenset({"claim", "finish"})),
    ),
    Guard(
        "deadline.claim",
        "nobody starts at or after the deadline",
        ("C10-187", "C10-291"),
        ("if now >= job.deadline:", "if False:"),
        World(verbs=frozenset({"claim", "finish"})),
    ),
    Guard(
        "attempts_exhausted.claim",
        "the number of attempts is limited, and a crash counts as one",
        ("C10-201", "C10-202"),
        ("elif job.attempt >= job.max_attempts:", "elif False:"),
    ),
    Guard(
        "lease_within_deadline.claim",
        "a lease gives no right that the deadline takes away",
        ("C10-187", "C10-226"),
        ("lease_until=min(now + lease, job.deadline)", "lease_until=now + lease"),
    ),
    Guard(
        "ended.renew",
        "a final state never changes",
        ("C10-158", "C10-233"),
        ("if job.ended:\n                return job.state\n", f"if job.ended:\n                {_AS_IF_HELD}\n"),
        World(verbs=frozenset({"renew", "finish"})),
    ),
    Guard(
        "deadline.renew",
        "no worker lives past the deadline",
        ("C10-233",),
        ("if moment >= job.deadline:", "if False:"),
        World(verbs=frozenset({"renew", "finish"})),
    ),
    Guard(
        "lease_within_deadline.renew",
        "no worker extends itself past the deadline",
        ("C10-233",),
        ("min(moment + lease, job.deadline)", "moment + lease"),
    ),
    Guard(
        "count_falls.progress",
        "within an attempt progress does not go backwards",
        ("C10-180",),
        ("if done < job.done or total < job.total:", "if False:"),
    ),
    Guard(
        "last_attempt.fail",
        "the last attempt's failure is final; it is not queued again",
        ("C10-201", "C10-202"),
        ("or job.attempt >= job.max_attempts or", "or"),
    ),
    Guard(
        "retry_before_deadline.fail",
        "a retry that would not be due before the deadline is not queued",
        ("C10-205",),
        ("or moment + retry_after >= job.deadline:", ":"),
    ),
    *_held_guards(),
)
"""Every guard of every verb that the explorer plays."""
