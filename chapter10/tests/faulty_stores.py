"""Stores with one guard taken out, and every order in which several actors can make their steps.

A scene that also holds without a guard shows nothing of that guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

IDEMPOTENCY = "chapter10.companions.effects.intent_records"
OUTBOX = "chapter10.companions.effects.outbox_rows"


@contextmanager
def taken_out(module: str, name: str, guard: str, instead: str = "1") -> Iterator[None]:
    """Take one guard out of an SQL statement of a module: `name` is the constant, `guard` a part of it."""
    target = f"{module}.{name}"
    package = __import__(module, fromlist=[name])
    statement: str = getattr(package, name)
    assert guard in statement, (name, guard)
    with mock.patch(target, statement.replace(guard, instead)):
        yield


def interleavings(*counts: int) -> Iterator[tuple[int, ...]]:
    """Yield every order in which actors 0, 1, … make their given numbers of steps."""
    if not any(counts):
        yield ()
        return
    for actor, left in enumerate(counts):
        if left:
            fewer = (*counts[:actor], left - 1, *counts[actor + 1 :])
            for rest in interleavings(*fewer):
                yield (actor, *rest)
