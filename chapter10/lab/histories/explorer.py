"""Breadth-first search over the states of a small world; the command is `chapter10.lab.histories.explore`.

From each state everything is tried that may happen next; what each call does is judged by the promises;
each new state is kept for later. States are kept once, so the search ends; shorter histories come
first, so the first that breaks a promise is one of the shortest there are.

What a call does depends on the store's rows and the time alone. So each call is run once for each
(rows, time) and its answer used again for every belief that the workers may have. Explorations that
differ in the code of one verb may share `Answers`: what the other verbs do is the same in all of them.

Source: claims C10-213, C10-229 to C10-238, C10-297.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import JobStore
from chapter10.lab.histories.guards import Guard, store_without
from chapter10.lab.histories.invariants import WAY_TO_END, Seen, first_broken, stuck
from chapter10.lab.histories.world import (
    EMPTY,
    LOOKS,
    WORKERS,
    Action,
    Bench,
    Content,
    Memory,
    State,
    Step,
    World,
    actions,
)

__all__ = ["REPORT_EVERY", "Answers", "Broken", "Exploration", "Explorer", "counterexample"]

REPORT_EVERY: Final = 20_000
"""States between two lines of progress."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A history that breaks a promise: the steps as (now, action, answer), the promise, what is wrong."""

    history: tuple[tuple[int, Action, object], ...]
    number: str
    sentence: str
    wrong: str


@dataclass(slots=True)
class Exploration:
    """What was seen: all counts are deterministic. `finished` is False after a stop or a finding."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    contents: int = 0
    calls: int = 0
    finished: bool = False
    broken: Broken | None = None


_Node = tuple[int, int, Memory]
"""A state, its content by number: what a search keeps for each."""


_Broken = tuple[str, str, str] | None
"""The number and the sentence of a promise, and what is wrong."""

_Judged = dict[tuple[Content, int, Action], tuple[Step, _Broken]]
"""What each call does from a content at a time, and which promise that breaks."""


class _Known(NamedTuple):
    """What one call does from one content at one time, and which promise that breaks."""

    step: Step
    content: int
    broken: _Broken


_CALLED: Final = {
    "submit": ("submit", "submit_many"),
    "submit another intent": ("submit", "submit_many"),
    "look and cancel": LOOKS,
    "retry": ("fail",),
}
"""The methods of the store that an action calls, where its verb is not the name of the one that it calls."""


class Answers:
    """What calls of one store did in explorations of worlds with the same rules, to be used by further ones.

    A world's rules are all of it but how much is played (`jobs`, `workers`, `until`, `verbs`): of the world
    a call depends on nothing else.
    """

    def __init__(self) -> None:
        self._of_rules: dict[World, _Judged] = {}

    def of(self, world: World) -> _Judged:
        """Return the answers in worlds with the rules of `world`, to be read and added to."""
        return self._of_rules.setdefault(replace(world, jobs=1, workers=1, until=1, verbs=frozenset()), {})


class Explorer:
    """Breadth-first search over the states of a world.

    `store`: the class of store to explore. `limit`: stop after so many states (None: none). `answers`: of
    earlier explorations, used and added to for every method of the store but `changed`, the one in which
    their stores differ. `report`: called with the exploration so far every `report_every`
    states; it may raise `KeyboardInterrupt` to stop. Use `run` once.
    """

    def __init__(
        self,
        world: World,
        store: type[JobStore] = LivingStore,
        *,
        limit: int | None = None,
        answers: Answers | None = None,
        changed: str = "",
        report: Callable[[Exploration], object] = lambda seen: None,
        report_every: int = REPORT_EVERY,
    ) -> None:
        self._world = world
        self._bench = Bench(world, store)
        self._limit = limit
        self._judged = (answers or Answers()).of(world)
        self._changed = changed
        self._report = report
        self._report_every = report_every
        self._ids: dict[Content, int] = {}
        self._contents: list[Content] = []
        self._known: dict[tuple[int, int, Action], _Known] = {}
        self._stuck: dict[tuple[int, int], str | None] = {}
        self.seen = Exploration()

    def run(self) -> Exploration:
        """Explore until everything is seen, a promise breaks, the limit is reached, or Ctrl-C."""
        try:
            self._search()
        except KeyboardInterrupt:
            pass
        finally:
            self._bench.close()
        return self.seen

    def _search(self) -> None:
        start = (self._id(EMPTY), 0, ((),) * self._world.workers)
        came_from: dict[_Node, tuple[_Node, Action, object] | None] = {start: None}
        waiting: deque[tuple[_Node, int]] = deque([(start, 0)])
        seen = self.seen
        while waiting:
            node, depth = waiting.popleft()
            seen.states += 1
            seen.depth = depth
            if seen.states % self._report_every == 0:
                self._report(seen)
            content_id, now, memory = node
            wrong = self._is_stuck(content_id, now)
            if wrong is not None:
                seen.broken = Broken(self._history(came_from, node), "J11", WAY_TO_END, wrong)
                return
            for action in actions(self._world, State(self._contents[content_id], now, memory)):
                seen.transitions += 1
                following, answer, broken = self._follow(node, action)
                if broken is not None:
                    history = (*self._history(came_from, node), (now, action, answer))
                    seen.broken = Broken(history, *broken)
                    return
                if following not in came_from:
                    came_from[following] = (node, action, answer)
                    waiting.append((following, depth + 1))
            if self._limit is not None and seen.states >= self._limit:
                return
        seen.finished = True

    def _follow(self, node: _Node, action: Action) -> tuple[_Node, object, _Broken]:
        """Return the state after an action, what was answered, and the promise that it broke."""
        content_id, now, memory = node
        if action.verb == "tick":
            return (content_id, now + 1, memory), None, None
        if action.verb == "vanish":
            return (content_id, now, _remember(memory, action.actor, None)), None, None
        known = self._call(content_id, now, action)
        answer = known.step.answer
        if action.verb == "claim" and type(answer) is int and not known.step.refused:
            memory = _remember(memory, action.actor, (action.job_id, answer))
        return (known.content, now, memory), answer, known.broken

    def _call(self, content_id: int, now: int, action: Action) -> _Known:
        asked = _asked(action)
        key = (content_id, now, asked)
        known = self._known.get(key)
        if known is None:
            self.seen.calls += 1
            step, broken = self._judge(self._contents[content_id], now, asked)
            known = self._known[key] = _Known(step, self._id(step.content), broken)
        return known

    def _judge(self, before: Content, now: int, asked: Action) -> tuple[Step, _Broken]:
        if self._changed in _CALLED.get(asked.verb, (asked.verb,)):
            return self._run(before, now, asked)
        key = (before, now, asked)
        judged = self._judged.get(key)
        if judged is None:
            judged = self._judged[key] = self._run(before, now, asked)
        return judged

    def _run(self, before: Content, now: int, asked: Action) -> tuple[Step, _Broken]:
        step = self._bench.call(before, now, asked)
        found = first_broken(Seen(self._world, before, now, asked, step))
        return step, None if found is None else (found[0].number, found[0].sentence, found[1])

    def _ask(self, content: Content, now: int, action: Action) -> Step:
        return self._call(self._id(content), now, action).step

    def _is_stuck(self, content_id: int, now: int) -> str | None:
        key = (content_id, now)
        if key not in self._stuck:
            self._stuck[key] = stuck(self._ask, self._world, self._contents[content_id], now)
        return self._stuck[key]

    def _id(self, content: Content) -> int:
        number = self._ids.setdefault(content, len(self._contents))
        if number == len(self._contents):
            self._contents.append(content)
            self.seen.contents += 1
        return number

    def _history(
        self, came_from: dict[_Node, tuple[_Node, Action, object] | None], node: _Node
    ) -> tuple[tuple[int, Action, object], ...]:
        steps: list[tuple[int, Action, object]] = []
        while (link := came_from[node]) is not None:
            node, action, answer = link
            steps.append((node[1], action, answer))
        return tuple(reversed(steps))


def counterexample(guard: Guard, answers: Answers | None = None) -> Exploration:
    """Explore the guard's world without the guard; `broken` is the shortest history that fails.

    `answers`: of explorations of the living store or of copies without another guard. Raises `MarkError`.
    """
    return Explorer(guard.world, store_without(guard, LivingStore), answers=answers, changed=guard.verb).run()


@cache
def _asked(action: Action) -> Action:
    # To the store one worker is like another, and so is an answer that will be lost.
    actor = "worker" if action.actor in WORKERS else action.actor
    return action._replace(actor=actor, verb=action.verb.removesuffix(", answer lost"))


def _remember(memory: Memory, actor: str, handed: tuple[int, int] | None) -> Memory:
    index = WORKERS.index(actor)
    held = () if handed is None else tuple(sorted({*memory[index], handed}))
    return (*memory[:index], held, *memory[index + 1 :])
