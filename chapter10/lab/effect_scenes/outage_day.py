"""A day of an outbox: `python -m chapter10.lab.effect_scenes.outage_day SEEDS [FIRST]`.

Twelve receivers of random kinds get messages at random times: some take everything, some slowly; some are gone, hang
(and obey their cancel or not), kill the process of the relay, refuse for good, or hang for every fifth message only.
The relay is started again a second after each death. Time is virtual, so that a day takes a moment.

Each day is held against two promises: what a receiver takes is delivered within `BOUND_S` seconds, however the others
fare, and everything else ends by the rule that is meant for it, within its time.

What it does not do: the outbox is in memory and its process dies in play only; see `tests/test_resilience_processes.py`
for processes that are killed.
Source: claims I4-058, I4-059, I4-066.
"""

from __future__ import annotations

import asyncio
import errno
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chapter10.companions.effects.messages import (
    Batch,
    Delivery,
    PassReport,
    PermanentRefusal,
    TransportDown,
    growing_delay,
)
from chapter10.companions.effects.outbox_rows import Outbox
from chapter10.companions.effects.relay import Relay
from chapter10.companions.retrying.circuit_breaker import CircuitOpenError
from chapter10.database import StoreError
from chapter10.lab.evidence.virtual_time import VirtualLoop, pause, run_virtual

__all__ = ["BOUND_S", "DAY_S", "Day", "day", "main"]

DAY_S: Final = 86_400
BOUND_S: Final = 120.0
"""Seconds within which a message that its receiver takes is delivered: from its record, or from the delivery of the one
before it in its key."""
_RECEIVERS: Final = 12
_SEND_S: Final = 3.0
_LEASE_S: Final = 10.0
_PATIENCE_S: Final = 1800
_GIVE_UP_S: Final = 2700
_ATTEMPTS: Final = 8
_SLACK_S: Final = 600.0
"""Seconds above its rule's time that an end may take: the longest delay, its jitter, a lease and a place."""
_KINDS: Final = ("healthy", "slow", "dead", "hangs", "hangs on", "kills", "refuses", "mixed")
_MOST: Final = {"healthy": 20, "slow": 20, "kills": 2}
"""The most messages of a receiver of this kind; 4 of any other."""
_GONE: Final = (
    ConnectionRefusedError(),
    OSError(errno.ENETUNREACH, "no network"),
    OSError(errno.EHOSTUNREACH, "no route"),
    CircuitOpenError(5.0),
    TransportDown("unreachable"),
)


@dataclass
class Day:
    """What a day came to. `problems`: broken promises, in words. Seconds are virtual."""

    seed: int
    delivered: int = 0
    longest_wait_s: float = 0.0
    twice: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Messages that nobody took, by kind of receiver."""
    relays_died: int = 0
    problems: list[str] = field(default_factory=list)


class _Mortal:
    """The rows of an outbox as one process sees them: once it is dead it changes nothing."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox, self.database = outbox, outbox.database
        self.dead = asyncio.Event()

    def _alive(self) -> Outbox:
        if self.dead.is_set():
            raise StoreError("store_unavailable", "the process is dead")
        return self.outbox

    def claim(self, limit: int = 100, lease_s: float = _LEASE_S) -> Batch | None:
        return self._alive().claim(limit, lease_s)

    def has_time(self, batch: Batch, needed_s: float = 0.0) -> bool:
        return self._alive().has_time(batch, needed_s)

    def mark(self, batch: Batch, deliveries: Sequence[Delivery]) -> PassReport:
        return self._alive().mark(batch, deliveries)

    def status(self, event_id: str) -> dict[str, Any]:
        return self._alive().status(event_id)


class _World:
    """Receivers, messages and relays of one day."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop, self.chance, self.day = loop, random.Random(seed), Day(seed)
        self.outbox = Outbox(
            ":memory:",
            clock=loop.time,
            max_attempts=_ATTEMPTS,
            patience_s=_PATIENCE_S,
            give_up_s=_GIVE_UP_S,
            delay=growing_delay(random=self.chance.random),
            when_dead="skip",
        )
        self.kinds = {f"receiver-{n}": self.chance.choice(_KINDS) for n in range(_RECEIVERS - 2)}
        self.kinds.update({"receiver-10": "healthy", "receiver-11": "slow"})
        self.recorded: dict[str, float] = {}
        self.takes: dict[str, bool] = {}
        self.got: Counter[str] = Counter()
        self.keyed = {name for name, kind in self.kinds.items() if kind != "mixed" and self.chance.random() < 0.5}
        self.turn_at: dict[str, float] = {}
        self.kick = asyncio.Event()

    async def write(self) -> None:
        """Record the messages of the day's first half, each at its time."""
        due: list[tuple[float, str, str, str | None]] = []
        for name, kind in self.kinds.items():
            for number in range(self.chance.randint(1, _MOST.get(kind, 4))):
                at = self.chance.choice((0.0, self.chance.uniform(0, DAY_S / 2)))  # many at once, or alone
                due.append((at, name, f"{name}.{number}", name if name in self.keyed else None))
        for at, name, event_id, key in sorted(due, key=lambda line: (line[0], line[2])):
            await pause(at - self.loop.time())
            kind = self.kinds[name]
            self.takes[event_id] = kind in ("healthy", "slow") or (kind == "mixed" and self.chance.random() > 0.2)
            self.recorded[event_id] = self.loop.time()
            with self.outbox.database.write() as db:
                self.outbox.record(db, name, {}, event_id=event_id, ordering_key=key)
            self.kick.set()

    async def idle(self, seconds: float) -> None:
        """Sleep as a relay that is woken by a record: at least its interval, then until something is due."""
        await pause(seconds)
        self.kick.clear()
        now = self.loop.time()
        next_due, lease = self.outbox.database.row(
            "SELECT min(CASE WHEN status = 'pending' AND turn = 1 THEN next_attempt_at END), min(lease_until)"
            " FROM outbox"
        )
        times = [moment / 1000 - now for moment in (next_due, lease) if moment is not None]
        waking = asyncio.ensure_future(self.kick.wait())
        try:
            await asyncio.wait({waking}, timeout=max(min(times), 0) if times else None)
        finally:
            waking.cancel()

    async def run(self) -> None:
        """Run one relay after the other until the day is over."""
        over = asyncio.Event()
        self.loop.call_later(DAY_S, over.set)
        while not over.is_set():
            rows = _Mortal(self.outbox)
            relay = Relay(
                rows,
                self.sender(rows),
                lease_s=_LEASE_S,
                send_s=_SEND_S,
                clock=self.loop.time,
                sleep=self.idle,
                pause=growing_delay(max_s=30.0, random=self.chance.random),
            )
            running = asyncio.ensure_future(relay.run(asyncio.Event()))
            ends = [asyncio.ensure_future(event.wait()) for event in (over, rows.dead)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (running, *ends):
                task.cancel()
            await asyncio.gather(running, *ends, return_exceptions=True)
            self.day.relays_died += rows.dead.is_set()
            await pause(1)

    def sender(self, rows: _Mortal) -> Any:
        async def send(topic: str, payload: str, *, key: str) -> None:
            kind = self.kinds[topic]
            if self.takes[key]:
                await pause(self.chance.uniform(0.5, 2) if kind == "slow" else 0.05)
                if not rows.dead.is_set():
                    self.took(key)
            elif kind == "dead":
                raise _GONE[int(topic.split("-")[1]) % len(_GONE)]
            elif kind == "kills":
                rows.dead.set()
                await asyncio.Event().wait()
            elif kind == "refuses":
                raise PermanentRefusal("gone")
            else:
                try:
                    await pause(600)
                except asyncio.CancelledError:
                    if kind != "hangs on":
                        raise
                    await pause(60)

        return send

    def took(self, event_id: str) -> None:
        self.got[event_id] += 1
        if self.got[event_id] > 1:
            self.day.twice += 1
            return
        self.day.delivered += 1
        name = event_id.split(".")[0]
        wait = self.loop.time() - max(self.recorded[event_id], self.turn_at.get(name, 0.0))
        if name in self.keyed:
            self.turn_at[name] = self.loop.time()
        self.day.longest_wait_s = max(self.day.longest_wait_s, wait)
        if wait > BOUND_S:
            self.day.problems.append(f"{event_id} ({self.kinds[name]}) waited {wait:.1f} s")

    def judge(self) -> Day:
        """Hold every message against its rule."""
        names = "event_id status attempts last_error created first ended"
        rows = self.outbox.database.rows(
            "SELECT event_id, status, attempts, last_error, created_at, first_claimed_at, ended_at FROM outbox"
        )
        for row in rows:
            line = dict(zip(names.split(), row, strict=True))
            problem = self.broken(line)
            if problem:
                self.day.problems.append(f"{line['event_id']}: {problem} {line}")
        return self.day

    def broken(self, line: dict[str, Any]) -> str:
        event_id, kind = line["event_id"], self.kinds[line["event_id"].split(".")[0]]
        if self.takes[event_id]:
            return "" if line["status"] == "sent" and self.got[event_id] else "was not delivered"
        self.day.ended[kind] += 1
        if line["status"] != "dead" or self.got[event_id]:
            return "has not ended"
        age, attempts = (line["ended"] - line["first"]) / 1000, line["attempts"]
        if kind == "refuses":
            return "" if line["last_error"] == "gone" and age < _SLACK_S else "ended by another rule than the refusal"
        if kind == "kills":
            own = line["last_error"] == "relay_died" and attempts == _ATTEMPTS
            return "" if own and age < _PATIENCE_S else "ended by another rule than its kills"
        rule = _GIVE_UP_S if kind == "dead" else _PATIENCE_S
        fits = rule <= age <= rule + _SLACK_S and (kind == "dead" or attempts >= _ATTEMPTS)
        return "" if fits else "ended by another rule than its time"


def day(seed: int) -> Day:
    """Play one day and return what it came to; the same seed gives the same day."""

    async def play(loop: VirtualLoop) -> Day:
        world = _World(loop, seed)
        try:
            await asyncio.gather(world.write(), world.run())
            return world.judge()
        finally:
            world.outbox.database.close()

    return run_virtual(play)


def main(arguments: Sequence[str]) -> int:
    """Play so many days, say what they came to, and return 1 if a promise was broken."""
    if not arguments or not all(each.isdigit() for each in arguments) or len(arguments) > 2:
        print("usage: python -m chapter10.lab.effect_scenes.outage_day SEEDS [FIRST]", file=sys.stderr)
        return 2
    first = int(arguments[1]) if len(arguments) == 2 else 0
    total, ended, problems = Counter[str](), Counter[str](), 0
    longest = 0.0
    for seed in range(first, first + int(arguments[0])):
        found = day(seed)
        total.update(delivered=found.delivered, twice=found.twice, relays_died=found.relays_died)
        ended.update(found.ended)
        longest = max(longest, found.longest_wait_s)
        problems += len(found.problems)
        for problem in found.problems[:3]:
            print(f"seed {seed}: {problem}")
    print(f"days {arguments[0]}, problems {problems}, longest wait {longest:.1f} s, {dict(total)}, ended {dict(ended)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
