"""Known-wrong twins of the idempotency store and the outbox: what the guards are there for.

Each has the shape that one writes first. The tests run the same scene against a twin, where it goes
wrong, and against the real thing, where it does not; a scene that a twin survives shows nothing.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

IDEMPOTENCY = "chapter10.companions.effects.intent_records"
OUTBOX = "chapter10.companions.effects.outbox_rows"


class CacheServer:
    """A key-value server with expiry, as far as the twin needs one; values are bytes, as clients give them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[str, tuple[bytes, float]] = {}

    def get(self, key: str) -> bytes | None:
        value, end = self._held.get(key, (b"", 0.0))
        return value if self._clock() < end else None

    def put(self, key: str, value: str, seconds: float, *, if_absent: bool = False) -> bool:
        if if_absent and self.get(key) is not None:
            return False
        self._held[key] = (value.encode("utf-8"), self._clock() + seconds)
        return True

    def drop(self, key: str) -> None:
        self._held.pop(key, None)


class MarkerStore:
    """Idempotency with one marker, one expiry and no owner: faults I1 to I13."""

    def __init__(self, cache: CacheServer, *, decode: bool = True) -> None:
        self._cache, self._decode = cache, decode

    def key(self, namespace: str, intent: Any) -> str:
        """I9, I10: any JSON-like thing, all of it, and nothing else. I11: joined with a colon."""
        return f"idem:{namespace}:" + json.dumps(intent, sort_keys=True, separators=(",", ":"))

    async def execute_once(
        self, namespace: str, intent: Any, fn: Callable[[], Awaitable[Any]], ttl_s: float = 86_400
    ) -> Any:
        key = self.key(namespace, intent)
        if not self._cache.put(key, "in-progress", ttl_s, if_absent=True):
            found: Any = self._cache.get(key)
            if self._decode and found is not None:
                found = found.decode("utf-8")
            if found == "in-progress":  # I7: bytes are never equal to text
                raise RuntimeError("in progress")
            return json.loads(found)
        try:
            result = await fn()
            self._cache.put(key, json.dumps(result), ttl_s)  # I4: whoever's it is by now
            return result
        except Exception:  # I1, I2: whatever went wrong, it did not happen; I3: a cancellation is none
            self._cache.drop(key)  # I5: whoever's it is by now
            raise


class TruthCache:
    """I13: presence is taken from the truth of the value."""

    def __init__(self) -> None:
        self._results: dict[str, Any] = {}

    def run_once(self, key: str, operation: Callable[[], Any]) -> Any:
        if not self._results.get(key):
            self._results[key] = operation()
        return self._results[key]


@contextmanager
def taken_out(module: str, name: str, guard: str, instead: str = "1") -> Iterator[None]:
    """Take one guard out of an SQL statement of a module: `name` is the constant, `guard` a part of it."""
    target = f"{module}.{name}"
    package = __import__(module, fromlist=[name])
    statement: str = getattr(package, name)
    assert guard in statement, (name, guard)
    with mock.patch(target, statement.replace(guard, instead)):
        yield


class PlainOutbox:
    """An outbox with a status column and nothing else: faults O1 to O11 without O8."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.db = connection
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS plain (id INTEGER PRIMARY KEY, event_id TEXT, topic TEXT, payload TEXT,"
            " status TEXT NOT NULL DEFAULT 'pending', tries INTEGER NOT NULL DEFAULT 0)"
        )
        self._made = 0

    def record(self, topic: str, payload: Any) -> str:
        """O7: a new event id a call. O9: no transaction is asked for."""
        self._made += 1
        event_id = f"random-{self._made}"
        self.db.execute(
            "INSERT INTO plain (event_id, topic, payload) VALUES (?, ?, ?)", (event_id, topic, json.dumps(payload))
        )
        return event_id

    def fetch_pending(self, limit: int = 100) -> list[Any]:
        """O2: looked at, not claimed. O6: no key, no order after a failure."""
        return self.db.execute(
            "SELECT event_id, topic, payload FROM plain WHERE status = 'pending' ORDER BY id LIMIT ?", (limit,)
        ).fetchall()

    def mark_sent(self, event_id: str) -> None:
        self.db.execute("UPDATE plain SET status = 'sent' WHERE event_id = ?", (event_id,))

    def mark_retry(self, event_id: str, most: int | None = None) -> None:
        """O1: no delay and, without `most`, no end. O4: with `most`, an outage buries everything."""
        self.db.execute(
            "UPDATE plain SET tries = tries + 1, status = CASE WHEN tries + 1 >= ? THEN 'dead' ELSE status END"
            " WHERE event_id = ?",
            (most or 2**62, event_id),
        )

    async def one_pass(self, send: Callable[..., Awaitable[object]], most: int | None = None) -> None:
        for event_id, topic, payload in self.fetch_pending():
            try:
                await send(topic, payload, key=event_id)
                self.mark_sent(event_id)  # O3: its failure counts as one of the delivery
            except Exception:
                self.mark_retry(event_id, most)

    async def worker(self, send: Callable[..., Awaitable[object]], passes: int) -> None:
        """O5: the first exception of a fetch ends it."""
        for _ in range(passes):
            await self.one_pass(send)

    def archive(self, older_than_s: float) -> int:
        """O10: there is no such thing; every payload stays for ever."""
        return 0

    def alarms(self) -> dict[str, Any]:
        """O10: nobody counts."""
        return {"alarms": []}

    def statuses(self) -> list[str]:
        return [row[0] for row in self.db.execute("SELECT status FROM plain ORDER BY id")]


class ReadThenRunConsumer:
    """O11: looks whether the event is known, makes the effect, and remembers it afterwards."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    async def handle(self, event_id: str, effect: Callable[[], Awaitable[object]]) -> None:
        if event_id not in self._known:
            await effect()
            self._known.add(event_id)


class NaiveTimes:
    """O8: due times as text of each machine's own wall clock, without a zone."""

    def __init__(self) -> None:
        self._due: list[tuple[str, str]] = []

    def record(self, event_id: str, wall_clock: datetime.datetime) -> None:
        self._due.append((wall_clock.replace(tzinfo=None).isoformat(), event_id))

    def due(self, wall_clock: datetime.datetime) -> list[str]:
        now = wall_clock.replace(tzinfo=None).isoformat()
        return [event_id for at, event_id in self._due if at <= now]


class FutureBridge:
    """O12: the result comes back through a future in memory, which only this process's relay resolves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: dict[str, asyncio.Future[str]] = {}

    def expect(self, event_id: str) -> None:
        self._futures[event_id] = self._loop.create_future()

    def sent(self, event_id: str) -> None:
        self._futures[event_id].set_result("sent")

    async def wait_for(self, event_id: str, looks: int) -> str:
        for _ in range(looks):
            if self._futures[event_id].done():
                return self._futures[event_id].result()
            await asyncio.sleep(0)
        return "no answer"
