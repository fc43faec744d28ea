"""What the real store answers, from everywhere in a small world: with all of its guards, and without each of them.

The world is `lab.histories.world.World()`: one job, two workers, two attempts, a clock from 0 to 5. A *place* is what
the store holds and the time. From each place every action is asked of the real store, and each answer is judged by
the promises J0 to J11. Who was handed what is not in it: that is the business of whoever plays.

A *recording* of a store without a guard begins with all of these places, asks there only the verb that lost the guard,
and goes on to at most `MAX_NEW` contents that the whole store never holds, those first that are reached first.

Source: claims C10-213, C10-229 to C10-238, C10-297.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import JobStore
from chapter10.lab.histories.guards import GUARDS, Guard, store_without
from chapter10.lab.histories.invariants import Seen, first_broken
from chapter10.lab.histories.world import EMPTY, STRANGER, TOTAL, Action, Bench, Content, World

__all__ = ["CALLER", "MAX_NEW", "PLAYED", "WORLD", "Outcome", "Place", "Recording", "asked", "record", "record_without"]

WORLD: Final = World()
CALLER: Final = "alice"
MAX_NEW: Final = 40
"""Contents that a recording without a guard adds at most."""
PLAYED: Final = tuple(guard for guard in GUARDS if guard.world == WORLD)
"""The guards whose absence shows in the world with one job."""

Place = tuple[Content, int]
"""What the store holds, and the time."""


class Outcome(NamedTuple):
    """What an action did: its answer, the events (attempt, kind, detail) that it added, the number of the promise
    that it broke or an empty text, and what the store holds now; None: further than was recorded."""

    answer: Any
    events: tuple[tuple[int, str, str], ...]
    broken: str
    content: Content | None


@dataclass(slots=True)
class Recording:
    """The answers by place and action, in the order in which the places were found."""

    outcomes: dict[Place, dict[Action, Outcome]] = field(default_factory=dict)


def asked(content: Content) -> Iterator[Action]:
    """Yield what may be asked of a store that holds `content`, in a fixed order; to it one worker is like another."""
    yield Action(CALLER, "submit", 1)
    if content.rows:
        yield Action(CALLER, "submit another intent", 1)
        yield Action(CALLER, "cancel", 1)
        yield Action(STRANGER, "look and cancel", 1)
    yield Action("sweeper", "sweep")
    for row in content.rows:
        yield Action("worker", "claim", 1)
        for attempt in range(1, row.attempt + 1):
            for done in range(1, TOTAL + 1):
                yield Action("worker", "progress", 1, attempt, done)
            for verb in ("finish", "fail", "retry", "renew"):
                yield Action("worker", verb, 1, attempt)


def record(store: type[JobStore] = LivingStore) -> Recording:
    """Ask a store everything, from every place that can be reached."""
    return _explored(store, Recording(), "", None)


def record_without(guard: Guard, whole: Recording) -> Recording:
    """Ask the living store without a guard; `whole`: the recording with all of them. Raises `MarkError`."""
    return _explored(store_without(guard, LivingStore), whole, guard.verb, MAX_NEW)


def _explored(store: type[JobStore], whole: Recording, changed: str, limit: int | None) -> Recording:
    known, found, new = {content for content, _ in whole.outcomes}, Recording(), set[Content]()
    waiting: deque[Place] = deque(whole.outcomes or [(EMPTY, 0)])
    seen = set(waiting)
    bench = Bench(WORLD, store)
    try:
        while waiting:
            content, now = place = waiting.popleft()
            before = whole.outcomes.get(place, {})
            answers = dict(before)
            for action in before or asked(content):
                if before and not _calls(action, changed):
                    continue
                outcome = _outcome(bench, content, now, action)
                after = outcome.content
                if after is not None and after not in known and after not in new:
                    if limit is not None and len(new) >= limit:
                        after = None
                    else:
                        new.add(after)
                answers[action] = outcome._replace(content=after)
                if after is not None and (after, now) not in seen:
                    seen.add((after, now))
                    waiting.append((after, now))
            found.outcomes[place] = before if before == answers else answers
            if now < WORLD.until and (content, now + 1) not in seen:
                seen.add((content, now + 1))
                waiting.append((content, now + 1))
    finally:
        bench.close()
    return found


@cache
def _calls(action: Action, changed: str) -> bool:
    """Does an action call the method of the store that was changed?"""
    if action.verb == "look and cancel":
        return changed in ("get", "events", "result", "cancel")
    verb = {"retry": "fail", "submit another intent": "submit"}.get(action.verb, action.verb)
    return verb == changed.removesuffix("_many")


def _outcome(bench: Bench, content: Content, now: int, action: Action) -> Outcome:
    step = bench.call(content, now, action)
    broken = first_broken(Seen(WORLD, content, now, action, step))
    events = tuple((attempt, kind, detail) for _, _, attempt, kind, detail, _ in step.events)
    answer = step.answer
    if isinstance(answer, dict):  # what a sweep counted
        answer = {name: count for name, count in answer.items() if count}
    return Outcome(step.crashed or answer, events, broken[0].number if broken else "", step.content)
