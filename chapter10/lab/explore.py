"""Every history of a small world, checked: `python -m chapter10.lab.explore`.

A test tries one history. The faults that matter here need a particular order of a few calls, and
nobody thinks of all orders. But a small world has only so many: one job, two workers, one caller, a
clock that ends. So try them all. Start from the empty store; from each state try everything that may
happen next (`lab.world.actions`); check the promises on each step (`lab.invariants`); and keep each
new state for later. That is breadth-first search, and it has two gifts: no order is left out, and the
first broken history found is one of the shortest there are, because shorter ones were tried before.

Different histories often lead to the same state. A state is kept once, so the search ends. What a
call does depends only on the store's rows and the time, not on who believes what; so each call is run
once for each (rows, time) and its answer used again, which is why tens of thousands of states take
seconds.

    python -m chapter10.lab.explore                      all histories of the small world
    python -m chapter10.lab.explore --jobs 2 --until 6   a larger one
    python -m chapter10.lab.explore --guards             the guards by name
    python -m chapter10.lab.explore --without stale_attempt.finish
                                                         the shortest history that breaks without it

What it does not prove: anything about worlds that are larger, about disks that lie, networks, clocks
that run backwards, or two processes inside one transaction. The last is what `BEGIN IMMEDIATE` is for
and what the tests with real processes and the schedules of exercise 11 are about.

It runs the real code of `chapter10.jobs`, not a model of it. Source: claims C10-213, C10-229 to
C10-238, C10-297.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, NamedTuple

from chapter10 import jobs as production
from chapter10.lab.guards import GUARDS, Guard, jobs_without
from chapter10.lab.invariants import INVARIANTS, WAY_TO_END, Seen, first_broken, stuck
from chapter10.lab.textio import Event, prepare_streams, text_lanes
from chapter10.lab.world import EMPTY, WORKERS, Action, Bench, Content, Memory, State, Step, World, actions

__all__ = ["Broken", "Exploration", "Explorer", "counterexample", "main"]

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


class _Known(NamedTuple):
    """What one call does from one content at one time, and which promise that breaks."""

    step: Step
    content: int
    broken: tuple[str, str, str] | None


class Explorer:
    """Breadth-first search over the states of a world.

    `module`: the `jobs` module to explore. `limit`: stop after so many states (None: none).
    `report`: called with the exploration so far every `REPORT_EVERY` states; it may raise
    `KeyboardInterrupt` to stop. Use `run` once.
    """

    def __init__(
        self,
        world: World,
        module: ModuleType = production,
        *,
        limit: int | None = None,
        report: Callable[[Exploration], object] = lambda seen: None,
    ) -> None:
        self._world = world
        self._bench = Bench(world, module)
        self._limit = limit
        self._report = report
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
            if seen.states % REPORT_EVERY == 0:
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

    def _follow(self, node: _Node, action: Action) -> tuple[_Node, object, tuple[str, str, str] | None]:
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
        # To the store one worker is like another, and so is an answer that will be lost.
        asked = action._replace(
            actor="worker" if action.actor in WORKERS else action.actor, verb=action.verb.removesuffix(", answer lost")
        )
        key = (content_id, now, asked)
        known = self._known.get(key)
        if known is None:
            before = self._contents[content_id]
            step = self._bench.call(before, now, asked)
            self.seen.calls += 1
            found = first_broken(Seen(self._world, before, now, asked, step))
            broken = None if found is None else (found[0].number, found[0].sentence, found[1])
            known = self._known[key] = _Known(step, self._id(step.content), broken)
        return known

    def _is_stuck(self, content_id: int, now: int) -> str | None:
        key = (content_id, now)
        if key not in self._stuck:
            self._stuck[key] = stuck(self._bench, self._world, self._contents[content_id], now)
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


_Node = tuple[int, int, Memory]


def counterexample(guard: Guard) -> Exploration:
    """Explore the guard's world without the guard; `broken` is the shortest history that fails."""
    return Explorer(guard.world, jobs_without(guard)).run()


def lanes(broken: Broken) -> list[Event]:
    """Return a history as events for the lane and Mermaid printers; ticks are not lines of their own."""
    events = [
        Event(now, action.actor, _sentence(action), _told(answer))
        for now, action, answer in broken.history
        if action.verb != "tick"
    ]
    return events


def _sentence(action: Action) -> str:
    job = f" job {action.job_id}" if action.job_id else ""
    attempt = f", attempt {action.attempt}" if action.attempt else ""
    number = f", {action.number} done" if action.number else ""
    return f"{action.verb}{job}{attempt}{number}"


def _told(answer: object) -> str:
    return "nothing" if answer is None else str(answer)


def _remember(memory: Memory, actor: str, handed: tuple[int, int] | None) -> Memory:
    index = WORKERS.index(actor)
    held = () if handed is None else tuple(sorted({*memory[index], handed}))
    return (*memory[:index], held, *memory[index + 1 :])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit 0 if every promise held (or the counterexample was found), 1 otherwise."""
    prepare_streams()
    parser = argparse.ArgumentParser(
        prog="python -m chapter10.lab.explore", description="Every history of a small world."
    )
    parser.add_argument("--jobs", type=int, default=1, help="jobs, 1 to 3 (default 1)")
    parser.add_argument("--workers", type=int, default=2, help="workers, 1 to 3 (default 2)")
    parser.add_argument("--until", type=int, default=5, help="the last moment of the clock (default 5)")
    parser.add_argument("--attempts", type=int, default=2, help="max_attempts of each job (default 2)")
    parser.add_argument("--guards", action="store_true", help="list the guards by name")
    parser.add_argument("--without", metavar="GUARD", help="take this guard out and show what breaks")
    options = parser.parse_args(arguments)
    if options.guards:
        for guard in GUARDS:
            print(f"{guard.name:32} {guard.sentence}")
        return 0
    if options.without is not None:
        return _show_without(options.without)
    try:
        world = World(options.jobs, options.workers, options.until, options.attempts)
    except ValueError as error:
        parser.error(str(error))
    return _show_all(world)


def _show_all(world: World) -> int:
    def report(seen: Exploration) -> None:
        print(f"... {seen.states} states, {seen.transitions} transitions, depth {seen.depth}", file=sys.stderr)

    started = time.perf_counter()
    seen = Explorer(world, report=report).run()
    seconds = time.perf_counter() - started
    print(f"world: {world.jobs} jobs, {world.workers} workers, clock 0 to {world.until}, {world.attempts} attempts")
    print(f"states {seen.states}, transitions {seen.transitions}, depth {seen.depth}")
    print(f"store contents {seen.contents}, calls run {seen.calls}, {seconds:.1f} s")
    if seen.broken is not None:
        _show_broken(seen.broken)
        return 1
    if not seen.finished:
        print("stopped: what was seen held, the rest was not looked at")
        return 1
    print("every promise held on every step:")
    for number, sentence in sorted({(i.number, i.sentence) for i in INVARIANTS}, key=_by_number):
        print(f"  {number:4}{sentence}")
    return 0


def _by_number(pair: tuple[str, str]) -> int:
    return int(pair[0][1:])


def _show_without(name: str) -> int:
    guard = next((guard for guard in GUARDS if guard.name == name), None)
    if guard is None:
        print(f"there is no guard {name}; --guards lists them", file=sys.stderr)
        return 2
    seen = counterexample(guard)
    print(f"without {guard.name}: {guard.sentence} ({', '.join(guard.claims)})")
    if seen.broken is None:
        print(f"nothing broke in {seen.states} states")
        return 1
    _show_broken(seen.broken)
    return 0


def _show_broken(broken: Broken) -> None:
    print(f"breaks {broken.number}: {broken.sentence}")
    print(f"here: {broken.wrong}")
    print()
    print(text_lanes(lanes(broken)))


if __name__ == "__main__":
    raise SystemExit(main())
