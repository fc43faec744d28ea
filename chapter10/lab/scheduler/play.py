"""Playing by a recording, move by move, as the script of the page does.

A *position* is what the store holds, the time, what each worker was handed and has not lost, and who is frozen. A
*move* is an actor, a verb, an attempt and a number, all 0 where there is none. Moves of the store are looked up; the
rest moves nothing in it: time, a worker that freezes and wakes, a process that dies with what it knew.

Source: claims C10-213, C10-229 to C10-238.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from chapter10.lab.histories.world import EMPTY, STRANGER, TOTAL, WORKERS, Action, Content
from chapter10.lab.scheduler.recorder import CALLER, WORLD, Outcome, Recording

__all__ = [
    "CHALLENGES",
    "START",
    "Challenge",
    "Position",
    "Turn",
    "met",
    "moves",
    "moves_of",
    "play",
    "possible",
    "shortest",
    "turn",
]


class Position(NamedTuple):
    """Where a play stands; `held`: for each worker the attempts that it was handed; `frozen`: by their places."""

    content: Content
    now: int
    held: tuple[tuple[int, ...], ...]
    frozen: tuple[int, ...] = ()


class Turn(NamedTuple):
    """A move, what the store made of it (None: it was not asked), and where the play stands then."""

    before: Position
    move: Action
    outcome: Outcome | None
    after: Position


START: Final = Position(EMPTY, 0, ((), ()))


def moves(position: Position) -> list[Action]:
    """Return what is possible now, in a fixed order; the letter of a move in an address is its place in it."""
    content, now, held, frozen = position
    found = [Action("clock", "tick")] if now < WORLD.until else []
    found.append(Action(CALLER, "submit", 1))
    if content.rows:
        found += [Action(CALLER, "submit another intent", 1), Action(CALLER, "cancel", 1)]
        found.append(Action(STRANGER, "look and cancel", 1))
    found.append(Action("sweeper", "sweep"))
    for index in range(WORLD.workers):
        worker = WORKERS[index]
        if index in frozen:
            found.append(Action(worker, "wake"))
            continue
        if content.rows and not held[index]:
            found += [Action(worker, "claim", 1), Action(worker, "claim, answer lost", 1)]
        if held[index]:
            found += [Action(worker, "freeze"), Action(worker, "die")]
        for attempt in held[index]:
            found += [Action(worker, "progress", 1, attempt, done) for done in range(1, TOTAL + 1)]
            found += [Action(worker, verb, 1, attempt) for verb in ("finish", "fail", "retry", "renew")]
    return found


def turn(recording: Recording, before: Position, move: Action) -> Turn | None:
    """Return what a move does, or None where that was not recorded."""
    content, now, held, frozen = before
    index = WORKERS.index(move.actor) if move.actor in WORKERS else -1
    if move.verb == "tick":
        return Turn(before, move, None, before._replace(now=now + 1))
    if move.verb in ("freeze", "wake"):
        others = tuple(worker for worker in frozen if worker != index)
        return Turn(before, move, None, before._replace(frozen=others + (index,) * (move.verb == "freeze")))
    if move.verb == "die":
        return Turn(before, move, None, before._replace(held=_with(held, index, ())))
    asked = move._replace(verb=move.verb.removesuffix(", answer lost"))
    outcome = recording.outcomes[content, now][asked._replace(actor="worker") if index >= 0 else asked]
    if outcome.content is None:
        return None
    after = before._replace(content=outcome.content)
    if move.verb == "claim" and type(outcome.answer) is int:
        after = after._replace(held=_with(held, index, (*held[index], outcome.answer)))
    return Turn(before, move, outcome, after)


def play(recording: Recording, made: Sequence[Action]) -> list[Turn]:
    """Play moves from the start. Raises `ValueError` for one that is not possible or not recorded."""
    turns: list[Turn] = []
    for move in made:
        before = turns[-1].after if turns else START
        found = turn(recording, before, move) if move in moves(before) else None
        if found is None:
            raise ValueError(f"{move} cannot be played")
        turns.append(found)
    return turns


def moves_of(history: Sequence[tuple[int, Action, object]]) -> list[Action]:
    """Return the moves of a history of the explorer."""
    names = {"vanish": "die"}
    return [action._replace(verb=names.get(action.verb, action.verb)) for _, action, _ in history]


def _with(held: tuple[tuple[int, ...], ...], index: int, attempts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*held[:index], attempts, *held[index + 1 :])


# The challenges -----------------------------------------------------------------------------------

Challenge = Callable[[str, Content, Outcome], bool]
"""From the verb, what the store held before and what became of it: was that it?"""


def _twice(verb: str, before: Content, outcome: Outcome) -> bool:
    """A second delivery got as far as the receipts: only a constraint of the database refused it."""
    return verb == "finish" and bool(before.receipts) and outcome.broken == "J1"


def _after_cancel(verb: str, before: Content, outcome: Outcome) -> bool:
    """A job that was cancelled, or asked to be, has succeeded."""
    return _succeeded(outcome) and before.rows[0].state in ("cancel_requested", "cancelled")


def _late(verb: str, before: Content, outcome: Outcome) -> bool:
    """The receipt is of an attempt that was no longer the newest."""
    return _succeeded(outcome) and outcome.content is not None and (
        outcome.content.receipts[0][1] < before.rows[0].attempt
    )  # fmt: skip


def _succeeded(outcome: Outcome) -> bool:
    return any(kind == "succeeded" for _, kind, _ in outcome.events)


CHALLENGES: Final[tuple[Challenge, ...]] = (_twice, _after_cancel, _late)
"""Deliver twice; finish after a cancel; let a late worker win."""


def possible(recording: Recording, challenge: Challenge) -> bool:
    """Is there any answer in a recording that meets the challenge?"""
    return any(
        challenge(action.verb, content, outcome)
        for (content, _), answers in recording.outcomes.items()
        for action, outcome in answers.items()
    )


def met(challenge: Challenge, turn: Turn) -> bool:
    """Did a turn meet the challenge?"""
    return turn.outcome is not None and challenge(turn.move.verb, turn.before.content, turn.outcome)


def shortest(recording: Recording, challenge: Challenge) -> list[Action]:
    """Return the fewest moves that meet a challenge which is possible; nobody has to freeze for it."""
    came: dict[Position, Turn | None] = {START: None}
    waiting = deque([START])
    while waiting:
        position = waiting.popleft()
        for move in moves(position):
            found = None if move.verb == "freeze" else turn(recording, position, move)
            if found is None:
                continue
            if met(challenge, found):
                made, back = [move], came[position]
                while back is not None:
                    made.append(back.move)
                    back = came[back.before]
                return made[::-1]
            if found.after not in came:
                came[found.after] = found
                waiting.append(found.after)
    raise ValueError("no moves meet the challenge")
