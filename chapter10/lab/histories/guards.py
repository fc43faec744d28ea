"""The guards of the job stores by name, and a way to take one out from outside the production code.

A guard is a condition that a verb checks before it writes, or a limit that it puts on what it writes. In the
store a comment `# guard: CONDITION` ends the line that it protects. Here stand, as `CONDITION.verb`, the
sentence of the chapter that the line implements and a small world in which its absence shows.

A guard is found by its mark alone, whatever the line says. To take it out, the condition of a marked `if`
becomes False; where the entry has `instead`, the body of the `if`, or the marked line, becomes that.

Verbs share helpers, so a guard is taken out of *one verb*: the verb and the helpers that it reaches are
copied, the helpers under other names, the change is made in the copies, and only that verb calls them. The
copies make a class below the store's own; the production code is never touched.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, Final, NamedTuple

from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import JobStore
from chapter10.lab.histories.world import World

__all__ = ["GUARDS", "Guard", "Mark", "MarkError", "guard_named", "mark_of", "marks", "store_without"]


class MarkError(ValueError):
    """Raised when a guard's mark is not where it must be; one line says which, what it is for and what to do."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard of one verb.

    `name`: condition.verb. `sentence`: what it is for. `claims`: where the chapter says so. `instead`: what stands
    in the body of the marked `if`, or for the marked line, when the guard is taken out; without it the condition
    of the `if` is False. `world`: a small one in which its absence shows. `store`: the class whose verb it is.
    """

    name: str
    sentence: str
    claims: tuple[str, ...]
    instead: str = ""
    world: World = field(default_factory=World)
    store: type[JobStore] = JobStore

    @property
    def verb(self) -> str:
        """The method that loses the guard."""
        return self.name.partition(".")[2]


class Mark(NamedTuple):
    """Where a mark stands: the file below the package, the line counted from 1, and the code in it."""

    path: str
    line: int
    text: str


def guard_named(name: str) -> Guard:
    """Return the guard of that name. Raises `MarkError`."""
    for guard in GUARDS:
        if guard.name == name:
            return guard
    raise MarkError(f"there is no guard {name} in lab/histories/guards.py; `explore --guards` lists them")


def mark_of(guard: Guard) -> Mark:
    """Return where the mark of a guard stands. Raises `MarkError` if that is not exactly one place."""
    name, row = _marked(guard)
    owner = _reached(guard.store, guard.verb)[name]
    lines, first = _source(owner, name)
    path = Path(inspect.getfile(owner)).relative_to(Path(__file__).parents[2])
    return Mark(path.as_posix(), first + row, lines[row].partition("# guard:")[0].strip())


_NOT_PLAYED: Final = frozenset({"hand_back"})
"""Verbs of operators that pass guarded helpers; the explorer's small world does not play them."""


def marks(store: type[JobStore]) -> list[str]:
    """Return the guards that have a mark in the verbs that a class itself defines, such as `due.claim`."""
    own = [name for name in vars(store) if not name.startswith("_") and inspect.isfunction(vars(store)[name])]
    verbs = [name for name in own if name not in _NOT_PLAYED]
    return [f"{mark}.{verb}" for verb in verbs for *_, mark in _marks(store, verb)]


def store_without(guard: Guard, store: type[JobStore] | None = None) -> type[JobStore]:
    """Return a class like the guard's store, or like `store` below it, one verb of which lacks the guard.

    Raises `MarkError`.
    """
    marked, row = _marked(guard)
    reached = _reached(guard.store, guard.verb)
    copied = {marked}
    for _ in reached:  # and whatever calls it, up to the verb
        copied |= {name for name, owner in reached.items() if copied & _calls(owner, name)}
    store = store or guard.store
    for name in sorted(copied):
        text = dedent("".join(_source(reached[name], name)[0]))
        if name == marked:
            text = _removed(text, row, guard)
        for helper in copied - {guard.verb}:
            text = re.sub(rf"\b(self\.|def ){helper}\(", rf"\1{helper}_unguarded(", text)
        store = _with(store, text, vars(sys.modules[reached[name].__module__]))
    return store


def _with(store: type[JobStore], text: str, names: Mapping[str, Any]) -> type[JobStore]:
    """Return a class below a store with one more method, whose text uses the names of its module."""
    loader = _Text(f"from __future__ import annotations\nclass Store(_Guarded):\n{indent(text, '    ')}\n")
    spec = importlib.util.spec_from_loader("chapter10_without_a_guard", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update({name: value for name, value in names.items() if not name.startswith("__")}, _Guarded=store)
    loader.exec_module(module)
    unguarded: type[JobStore] = module.Store
    return unguarded


class _Text(importlib.abc.SourceLoader):
    """Loads a module from a text at hand; nothing is cached on disk."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_filename(self, fullname: str) -> str:
        return f"<{fullname}>"

    def get_data(self, path: str) -> bytes:
        return self._text.encode("utf-8")


@cache
def _source(owner: type, name: str) -> tuple[list[str], int]:
    return inspect.getsourcelines(vars(owner)[name])


def _calls(owner: type, name: str) -> set[str]:
    """Return the private methods that a method calls."""
    return set(re.findall(r"\bself\.(_\w+)\(", "".join(_source(owner, name)[0])))


def _reached(store: type[JobStore], verb: str) -> dict[str, type]:
    """Return the methods that a call of a verb runs, each with the class that defines it, the verb first."""
    reached: dict[str, type] = {}
    waiting = [verb]
    for name in waiting:  # it grows on the way
        owner = next((each for each in store.__mro__ if inspect.isfunction(vars(each).get(name))), None)
        if owner is not None and name not in reached:
            reached[name] = owner
            waiting += sorted(_calls(owner, name))
    return reached


def _marks(store: type[JobStore], verb: str) -> Iterator[tuple[str, int, str]]:
    """Yield the marks that a call of a verb passes: the method, the line in it counted from 0, the condition."""
    for name, owner in _reached(store, verb).items():
        text = io.StringIO(dedent("".join(_source(owner, name)[0])))
        for token in tokenize.generate_tokens(text.readline):
            if found := re.fullmatch(r"# guard: (\w+)", token.string):
                yield name, token.start[0] - 1, found[1]


def _marked(guard: Guard) -> tuple[str, int]:
    condition = guard.name.partition(".")[0]
    places = [(name, row) for name, row, mark in _marks(guard.store, guard.verb) if mark == condition]
    if len(places) != 1:
        raise _lost(guard, f"the mark `# guard: {condition}` stands {len(places)} times and not once")
    return places[0]


def _removed(text: str, row: int, guard: Guard) -> str:
    """Return the text of a method without the guard that is marked in a line of it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.lineno <= row + 1 < node.body[0].lineno:
            if guard.instead:
                node.body = ast.parse(guard.instead).body
            else:
                node.test = ast.Constant(False)
            return ast.unparse(tree)
    if not guard.instead:
        raise _lost(guard, "the marked line is no `if`, and the entry does not say what stands instead")
    lines = text.splitlines()
    lines[row] = indent(guard.instead, " " * (len(lines[row]) - len(lines[row].lstrip())))
    return "\n".join(lines)


def _lost(guard: Guard, what: str) -> MarkError:
    return MarkError(
        f"guard {guard.name}: {what}, in {guard.store.__name__}.{guard.verb} and its helpers. What it is for: "
        f"{guard.sentence} ({', '.join(guard.claims)}, reports/guards.md). Mark the line that sees to it now, "
        "or take the entry out of lab/histories/guards.py: docs/changing-a-rule.md"
    )


# The list ------------------------------------------------------------------------------------

_AS_IF_HELD: Final = "job = job._replace(lease_until=job.deadline)"

_LIST: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    ("known_key", "submit, submit_many", "C10-144, C10-216",
     "the same key is the same intent: a repeat gets its job back and makes no second one", ""),
    ("key_conflict", "submit, submit_many", "C10-224",
     "a known key with another intent is refused; the old result is not passed off for it", ""),
    ("queue_full", "submit, submit_many", "C10-288",
     "the jobs that are not final are counted in the transaction that adds one", ""),
    ("owner", "cancel", "C10-155", "knowing a job's number is no right to touch it", ""),
    ("owner", "get", "C10-155", "knowing a job's number is no right to see its state",
     """query = f"SELECT {', '.join(names)} FROM jobs WHERE id = ? AND ? <> ''\""""),
    ("owner", "events", "C10-155", "knowing a job's number is no right to read what happened to it",
     """" WHERE j.id = ? AND ? <> '' ORDER BY e.seq LIMIT ?","""),
    ("owner", "result", "C10-155, C10-247", "knowing a job's number is no right to its result",
     """" WHERE j.id = ? AND ? <> ''","""),
    ("running", "cancel", "C10-212, C10-164, C10-213, C10-215",
     "a cancel of a running job is a request; of an ended one it changes nothing", ""),
    ("ended", "claim", "C10-158", "a final state never runs again", "job = job._replace(lease_until=None)"),
    ("due", "claim", "C10-154, C10-201, C10-226",
     "a job is not to be had before its retry is due, nor while another worker's lease lives", ""),
    ("cancel_requested", "claim", "C10-209",
     "a cancelled job does not go back to work when its lease ends; the claim confirms the cancel", ""),
    ("deadline", "claim", "C10-187, C10-291", "nobody starts at or after the deadline", ""),
    ("attempts_exhausted", "claim", "C10-201, C10-202",
     "the number of attempts is limited, and a crash counts as one", ""),
    ("lease_within_deadline", "claim", "C10-187, C10-226",
     "a lease gives no right that the deadline takes away", "end = moment + lease"),
    ("stale_attempt", "finish, progress, fail, renew", "C10-228, C10-229, C10-232",
     "a worker whose attempt is no longer the newest must not write", ""),
    ("ended", "finish, progress, fail", "C10-158, C10-238",
     "a final state never changes, and a repeated delivery stores nothing new", _AS_IF_HELD),
    ("not_running", "finish, progress, fail, renew", "C10-161, C10-228",
     "only a job that somebody holds can be written by a worker", _AS_IF_HELD),
    ("cancel_requested", "finish, progress, fail", "C10-163, C10-211",
     "a worker that finds a cancel request stops and confirms it; it stores no result", ""),
    ("deadline", "finish, progress, fail", "C10-187, C10-188, C10-189",
     "the deadline is looked at again when something is written, not only before the start", ""),
    ("lease_expired", "finish, progress, fail, renew", "C10-231, C10-308",
     "a lease that has ended gives no right to write, even while nobody else has claimed", ""),
    ("count_falls", "progress", "C10-180", "within an attempt progress does not go backwards", ""),
    ("last_attempt", "fail", "C10-201, C10-202", "the last attempt's failure is final; it is not queued again", ""),
    ("retry_before_deadline", "fail", "C10-205",
     "a retry that would not be due before the deadline is not queued", ""),
    ("ended", "renew", "C10-158, C10-233", "a final state never changes", _AS_IF_HELD),
    ("deadline", "renew", "C10-233", "no worker lives past the deadline", ""),
    ("lease_within_deadline", "renew", "C10-233",
     "no worker extends itself past the deadline", "end = moment + lease"),
)  # fmt: skip
"""Condition, verbs, claims, sentence, and what stands instead."""

GUARDS: Final[tuple[Guard, ...]] = tuple(
    Guard(
        f"{condition}.{verb}",
        sentence,
        tuple(claims.split(", ")),
        instead,
        World(jobs=2, workers=1, until=1, capacity=1) if condition == "queue_full" else World(),
        JobStore if hasattr(JobStore, verb) else LivingStore,
    )
    for condition, verbs, claims, sentence, instead in _LIST
    for verb in verbs.split(", ")
)
"""Every guard of every verb that the explorer plays."""
