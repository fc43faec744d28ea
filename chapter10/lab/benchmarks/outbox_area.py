"""Area `outbox`: recording and relaying messages beside the same rows in bare batches.

The bare side reads a batch, marks it as claimed in one durable transaction, sends, and marks it as sent in
another, on the same tables with the same settings; it decides nothing, keeps no order and looks at no lease.
What is sent goes nowhere.
Source: claims I4-052 to I4-068.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Final

from chapter10.canonical import canonical
from chapter10.companions.effects.outbox import BATCH_LIMIT, TABLES, Outbox, Relay
from chapter10.lab.benchmarks.instrument import Finding, Growth, Plan, Side, by_turns, compare, peak_bytes

__all__ = ["BareRelay", "measure"]

_PAYLOAD: Final = {"order": "A-1", "amount_cents": 1000}
_DUE: Final = (
    "SELECT id, event_id, topic, payload, ordering_key, attempts FROM outbox"
    " WHERE status = 'pending' AND turn = 1 AND next_attempt_at <= ? ORDER BY rank, id LIMIT ?"
)


_numbers: Final = itertools.count()
"""An event id is never used twice: the outbox would know it."""


async def _send(topic: str, payload: str, *, key: str) -> None:
    """Take a message and forget it."""


class BareRelay:
    """The rows of a relay that nothing can happen to."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            self.db.execute(f"PRAGMA {pragma}")
        self.db.executescript(TABLES)
        self._recorded = 0

    def record(self, count: int) -> None:
        """Store so many messages, in one transaction."""
        payload = canonical(_PAYLOAD)
        self.db.execute("BEGIN IMMEDIATE")
        for _ in range(count):
            self._recorded += 1
            self.db.execute(
                "INSERT INTO outbox (event_id, topic, payload, sha256, ordering_key, priority, rank, turn, status,"
                " attempts, misses, suspect, lease, next_attempt_at, noted_at, fence, created_at)"
                " VALUES (?, 'orders', ?, ?, NULL, 0, 0, 1, 'pending', 0, 0, 0, 0, 0, 0, 0, 0)",
                (f"event {self._recorded}", payload, "0" * 64),
            )
        self.db.execute("COMMIT")

    async def run(self) -> int:
        """Relay all that is there, batch by batch, and return how many were sent."""
        db, sent = self.db, 0
        while True:
            db.execute("BEGIN IMMEDIATE")
            rows = db.execute(_DUE, (0, BATCH_LIMIT)).fetchall()
            db.execute("UPDATE outbox_fence SET last = last + 1")
            ids = [(row[0],) for row in rows]
            db.executemany("UPDATE outbox SET status = 'claimed', lease_until = 60000, fence = 1 WHERE id = ?", ids)
            db.execute("COMMIT")
            if not rows:
                return sent
            for _, event_id, topic, payload, _, _ in rows:
                await _send(topic, payload, key=event_id)
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "UPDATE outbox SET status = 'sent', turn = NULL, lease_until = NULL, ended_at = 0 WHERE id = ?", ids
            )
            db.execute("COMMIT")
            sent += len(rows)


def measure(plan: Plan) -> Iterator[Finding]:
    """Yield the ratio with and without the wait for the disk, keys included, and the growth with what was sent."""
    count, repeats = plan.pick(20, 1000), plan.pick(3, 15)
    with asyncio.Runner() as runner:
        for keys in (False, True):
            for waiting in (True, False):
                name = f"relaying{' with ordering keys' if keys else ''}{'' if waiting else ', no wait for the disk'}"
                plan.report(f"outbox: {name}")
                outbox = Outbox(plan.folder / f"outbox-{keys}-{waiting}.db", clock=lambda: 0.0)
                bare = BareRelay(plan.folder / f"bare-{keys}-{waiting}.db")
                with outbox, closing(bare.db):
                    if not waiting:
                        for db in (outbox.database.connection, bare.db):
                            db.execute("PRAGMA synchronous=OFF")
                    yield compare(
                        f"{name}, one message",
                        _ours(runner, outbox, count, keys),
                        _bare(runner, bare, count),
                        count=count,
                        repeats=repeats,
                        target=1.3 if waiting and not keys else None,
                        computes=not waiting,
                    )
        yield _growth(plan, runner)


def _growth(plan: Plan, runner: asyncio.Runner) -> Finding:
    sizes = plan.pick((0, 100, 300), (0, 10_000, 100_000))
    count = plan.pick(20, 1000)
    with ExitStack() as stack:
        sides = []
        for size in sizes:
            plan.report(f"outbox: {size:,} messages sent before")
            outbox = stack.enter_context(Outbox(plan.folder / f"outbox-after-{size}.db", clock=lambda: 0.0))
            outbox.database.connection.execute("PRAGMA synchronous=OFF")
            if size:
                _ours(runner, outbox, size, False)()()
            sides.append(_ours(runner, outbox, count, False))
        costs = [computed.median for _, computed in by_turns(sides, count=count, repeats=plan.pick(3, 15))]
        peaks = [peak_bytes(side()) for side in sides]
    return Growth("relaying a message, so many sent before", sizes, tuple(costs), tuple(peaks), most=1.2)


def _ours(runner: asyncio.Runner, outbox: Outbox, count: int, keys: bool) -> Side:
    def prepare() -> Callable[[], object]:
        with outbox.database.write() as db:
            for number in islice(_numbers, count):
                key = f"customer {number % 50}" if keys else None
                outbox.record(db, "orders", _PAYLOAD, event_id=f"event {number}", ordering_key=key)
        return lambda: runner.run(_relay_all(Relay(outbox, _send), count))

    return prepare


async def _relay_all(relay: Relay, count: int) -> None:
    sent = 0
    while sent < count:
        report = await relay.run_pass()
        assert report.sent
        sent += report.sent


def _bare(runner: asyncio.Runner, bare: BareRelay, count: int) -> Side:
    def prepare() -> Callable[[], object]:
        bare.record(count)
        return lambda: runner.run(bare.run())

    return prepare
