"""Known-wrong twins of budget, cancellation, retry and breaker: each has one fault that a test must see.

A test that no wrong program fails proves nothing. For each fault that the document's samples have, a check runs
against the twin here, which must fail it, and against ours, which must pass. The twins are as small as the fault
allows and are used nowhere else. The letters are those of the list of faults: B budget, T time-out and cancel,
R retry and breaker, D cancel across processes.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

# Budget --------------------------------------------------------------------------------------


class CounterBudget:
    """B1, B2, B3, B5, B7: a counter that tools write to, with one lane."""

    def __init__(self, total_ms: int, used_ms: int = 0) -> None:
        self.total_ms = total_ms
        self.used_ms = used_ms

    @property
    def remaining(self) -> int:
        return self.total_ms - self.used_ms

    def consume(self, milliseconds: int) -> CounterBudget:
        self.used_ms += milliseconds
        return self

    def compensation(self) -> CounterBudget:
        return self


async def tool_on_a_counter(
    name: str,
    args: dict[str, Any],
    budget: CounterBudget,
    fn: Callable[..., Awaitable[Any]],
    min_reserve_ms: int = 200,
    minimum_ms: int = 0,
) -> Any:
    """B2, B4, B6, B7, T1, T2: charges after a success, drains on any TimeoutError, knows no minimum of the tool."""
    if budget.remaining < min_reserve_ms:
        raise RuntimeError(name)
    clock = asyncio.get_running_loop().time
    start = clock()
    try:
        value = await asyncio.wait_for(fn(**args), timeout=budget.remaining / 1000)
        budget.consume(int((clock() - start) * 1000))
        return value
    except TimeoutError:
        budget.consume(budget.remaining)
        raise


class DeadlineOnTheWire:
    """B8: sends a reading of its own clock, which means nothing elsewhere."""

    def __init__(self, total_ms: int, *, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.deadline = clock() + total_ms / 1000

    @property
    def remaining(self) -> int:
        return round((self.deadline - self.clock()) * 1000)

    def to_wire(self) -> dict[str, float]:
        return {"deadline": self.deadline}

    @classmethod
    def from_wire(cls, wire: dict[str, float], *, clock: Callable[[], float]) -> DeadlineOnTheWire:
        budget = cls(0, clock=clock)
        budget.deadline = wire["deadline"]
        return budget


# Time-outs -----------------------------------------------------------------------------------


async def run_by_wait_for(fn: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> str:
    """T1, T2, T3: waits as long as the tool likes, hands out a late value as if in time, may lose a cancel (3.11)."""
    try:
        await asyncio.wait_for(fn(), seconds)
    except TimeoutError:
        return "timed_out_stopped"
    return "value"


async def run_that_drops_a_cancel(fn: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> str:
    """T3 on every Python, as `wait_for` of 3.11 has it: a cancel that comes while the tool ends is dropped."""
    task = asyncio.ensure_future(fn())
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            raise
    return "value" if task.done() else "timed_out_stopped"


async def run_behind_a_shield(fn: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> str:
    """T5: the time-out comes at once, and nobody has the task that would have to be cancelled and awaited."""
    try:
        await asyncio.wait_for(asyncio.shield(fn()), seconds)
    except TimeoutError:
        return "timed_out_stopped"
    return "value"


async def run_by_hand(fn: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> str:
    """T4: the cure of the text. It hangs on a stubborn task, and a cancelled caller leaves the child running."""
    task = asyncio.ensure_future(fn())
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if done:
        return "value"
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "timed_out_stopped"
    return "late_value"


async def run_by_timeout(fn: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> str:
    """T6: starts a timer that is over already, which swallows a cancel that came before."""
    try:
        async with asyncio.timeout(seconds):
            await fn()
    except TimeoutError:
        return "not_started"
    return "value"


# Breaker -------------------------------------------------------------------------------------


class CountingBreaker:
    """R1, R2, R3, R5, R6: counts for ever, lets everybody probe, sees only TimeoutError, has no generations."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.state = "closed"
        self.failures = 0
        self.opened_at = 0.0

    def acquire(self) -> CountingBreaker:
        if self.state == "open":
            if self.clock() - self.opened_at <= 30:
                raise RuntimeError("circuit_open")
            self.state = "half-open"
        return self

    def success(self) -> None:
        if self.state == "half-open":
            self.state = "closed"
            self.failures = 0

    def failure(self) -> None:
        self.failures += 1
        if self.failures >= 10:
            self.state = "open"
            self.opened_at = self.clock()

    def neutral(self) -> None:
        """No such thing here: a call that told nothing leaves no trace."""

    async def call(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        self.acquire()
        try:
            value = await fn()
        except TimeoutError:
            self.failure()
            raise
        self.success()
        return value


class CancelIsFailure(CountingBreaker):
    """R4: books a caller that gave up as the dependency's fault."""

    def neutral(self) -> None:
        self.failure()

    async def call(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await super().call(fn)
        except asyncio.CancelledError:
            self.failure()
            raise


class CancelIsSuccess(CountingBreaker):
    """R4, the other way: a probe that was given up closes the circuit."""

    def neutral(self) -> None:
        self.success()


# Retry ---------------------------------------------------------------------------------------


def jitter_after_the_cap(attempt: int, *, base_ms: float, max_ms: float, random: Callable[[], float]) -> int:
    """R8, R9: caps first and spreads then, with a float that grows without bound."""
    nominal = min(float(base_ms) * (2.0**attempt), max_ms)
    return int(nominal * (0.5 + random()))


async def retry_everything(
    fn: Callable[[], Awaitable[Any]],
    *,
    max_retries: int = 3,
    breaker: Any = None,
    sleep: Callable[[float], Awaitable[Any]],
    delay: float = 0.4,
    **ignored: Any,
) -> Any:
    """R10, R11, R12, R13, R14: knows no effect, no budget, no bucket; a refusal replaces the real error."""
    last: BaseException | None = None
    for attempt in range(max_retries + 1):
        if breaker is not None:
            breaker.acquire()
        try:
            return await fn()
        except Exception as error:
            last = error
            if attempt < max_retries:
                await sleep(delay)
    assert last is not None
    raise last


async def retry_all_but_value_errors(
    fn: Callable[[], Awaitable[Any]], *, sleep: Callable[[float], Awaitable[Any]], **ignored: Any
) -> Any:
    """R4: "retry on everything except X" catches the cancel and the keyboard interrupt as well."""
    for _ in range(3):
        try:
            return await fn()
        except ValueError:
            raise
        except BaseException:
            await sleep(0.4)


async def one_time_out(connect: Callable[[], Awaitable[Any]], read: Callable[[Any], Awaitable[Any]]) -> Any:
    """T14: one limit of five seconds for both, so nobody knows whether anything was sent."""

    async def both() -> Any:
        return await read(await connect())

    return await asyncio.wait_for(both(), 5)


# Cancellation --------------------------------------------------------------------------------


class AttributeToken:
    """T8: `is_cancelled` is a method, and the loop below reads it as an attribute, which is always true."""

    def __init__(self) -> None:
        self.flag = False

    def cancel(self) -> None:
        self.flag = True

    def is_cancelled(self) -> bool:
        return self.flag


async def fetch_by_attribute(
    url: str, cancel_token: AttributeToken, *, http_get: Callable[..., Awaitable[bytes]], total: int
) -> bytes:
    """T7, T8, T9: reads a method as a flag, raises the cancel by hand, asks for one byte too many of a closed range."""
    chunks: list[bytes] = []
    for offset in range(0, total, 8192):
        if cancel_token.is_cancelled:  # type: ignore[truthy-function]
            raise asyncio.CancelledError
        chunks.append(await http_get(url, range=(offset, offset + 8192 + 1)))
    return b"".join(chunks)


class CancelByHand:
    """T7: its check point raises `CancelledError`, which a task group takes for its own."""

    def __init__(self) -> None:
        self.flag = False

    def cancel(self) -> None:
        self.flag = True

    def check(self) -> None:
        if self.flag:
            raise asyncio.CancelledError


async def clean_up_unshielded(fn: Callable[[], Awaitable[Any]], limit_s: float) -> Any:
    """T12: a second cancel ends the clean-up."""
    return await fn()


async def thread_without_a_flag(fn: Callable[[Any], Any], token: Any) -> Any:
    """T11: the await is cancelled, and the thread runs on."""
    return await asyncio.get_running_loop().run_in_executor(None, fn, AttributeToken())


class LocalOnlyToken:
    """D1, D2, D7: sends first and writes then, looks at its own event only, which wakes nobody from a thread."""

    def __init__(self, trace_id: str, mq_client: Any, db_pool: Any) -> None:
        self.trace_id = trace_id
        self.mq = mq_client
        self.db = db_pool
        self.event = asyncio.Event()

    async def cancel(self, reason: str = "parent_cancelled") -> None:
        self.event.set()
        await self.mq.publish("tool.cancel", json.dumps({"trace_id": self.trace_id, "reason": reason}))
        self.db.cancel(self.trace_id)

    def is_cancelled(self) -> bool:
        return self.event.is_set()

    def receive(self, body: str) -> None:
        """D6: an old message of the same trace cancels a new run."""
        if json.loads(body)["trace_id"] == self.trace_id:
            self.event.set()

    async def wait(self) -> None:
        await self.event.wait()


class RunningOnlyStore:
    """D3, D4, D5: marks what runs, of the whole trace; registers, claims and finishes without a look at the cancel."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE tool_invocations (trace_id, span_id, parent_span_id, state, cancelled DEFAULT 0)")

    def close(self) -> None:
        self.db.close()

    def register(self, trace_id: str, span_id: str, *, tool: str, parent_span_id: str | None = None) -> None:
        self.db.execute(
            "INSERT INTO tool_invocations VALUES (?, ?, ?, 'queued', 0)", (trace_id, span_id, parent_span_id)
        )

    def compensate(self, trace_id: str, span_id: str, tool: str) -> None:
        self.register(trace_id, f"{span_id}:compensation", tool=tool, parent_span_id=span_id)

    def claim(self, trace_id: str, span_id: str) -> int | None:
        changed = self.db.execute(
            "UPDATE tool_invocations SET state = 'running' WHERE trace_id = ? AND span_id = ? AND state = 'queued'",
            (trace_id, span_id),
        ).rowcount
        return 1 if changed else None

    def finish(self, trace_id: str, span_id: str, fence: int, result: object) -> str:
        self.db.execute(
            "UPDATE tool_invocations SET state = 'succeeded' WHERE trace_id = ? AND span_id = ?", (trace_id, span_id)
        )
        return "succeeded"

    def cancel(self, trace_id: str, span_id: str | None = None) -> None:
        self.db.execute(
            "UPDATE tool_invocations SET cancelled = 1 WHERE trace_id = ? AND state = 'running'", (trace_id,)
        )

    def cancel_reason(self, trace_id: str, span_id: str | None = None) -> str | None:
        row = self.db.execute(
            "SELECT cancelled FROM tool_invocations WHERE trace_id = ? AND span_id = ?", (trace_id, span_id)
        ).fetchone()
        return "parent_cancelled" if row is not None and row[0] else None
