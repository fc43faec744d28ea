"""Ask work to stop, in a way that it really does: tokens, check points, protected clean-up, and a token for a trace.

A cancel is a *request* that must reach whoever does the work, at a point where that can stop in order:

    coroutine          stopped at its next await, by `CancelToken.run`, and given a grace to clean up
    loop of our own    looks every few items (`checked`, `checked_async`) or at its own points (`check`, `checkpoint`)
    thread             cannot be stopped; it is given the token and looks (`in_thread`)
    process            `companions.interruption.process_stop`
    another process    `DistributedCancelToken`: a durable row first, then a message that only says "look now"

P1  One spelling: `is_cancelled()` is a method, of every token. Whatever is cancelled stays so, with its first reason.
P2  A cancel reaches all tokens below, however deep, from any thread, and wakes a loop that sleeps. It never goes up.
P3  A check raises `ToolCancelled` and not a `CancelledError`: raised by hand, that one vanishes in a task group.
P4  Pushing is bounded: a task is cancelled once, has its grace, and is then abandoned and kept in sight.
P5  Clean-up has time of its own (`clean_up`), which neither the cancel nor a second one shortens.
P6  Across processes the row is written first. A message that cannot be sent is recorded and harms nothing; an old one
    only makes somebody look. Nobody looks at the database more often than `poll_s` says.

Each tool declares one of three modes. Cooperative is the default. Preemptive is for what ignores a cooperative cancel,
and ends in a process of its own. Fire-and-forget is for effects that may be lost; what must arrive is no such thing but
an outbox event (X-47).

What it does not do: it undoes nothing. After an irreversible effect only a compensation is left
(`companions.interruption.cancel_store.CancelStore.compensate`).
Source: the document on interruption, sections 3, 4 and 8 (claims I4-001, I4-021, I4-022, I4-025 to I4-034, I4-087 to
I4-093; X-22, X-45 to X-47, X-56, X-58).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

from chapter10.canonical import CodedError
from chapter10.companions.basics.locks import at_once, off_the_loop
from chapter10.companions.basics.tasks import own, until
from chapter10.database import Database, StoreError

__all__ = [
    "CHECK_EVERY",
    "CHECK_RANGE",
    "CHUNK_BYTES",
    "GRACE_SECONDS",
    "LONGEST_BLOCK_MS",
    "MAX_REASON",
    "POLL_SECONDS",
    "TOPIC",
    "CancelRows",
    "CancelToken",
    "CancellationError",
    "CleanUpTimedOut",
    "DistributedCancelToken",
    "Interruption",
    "Mode",
    "Publisher",
    "Receipt",
    "ToolCancelled",
    "checked",
    "checked_async",
    "clean_up",
    "fetch_large_blob",
    "in_thread",
]

T = TypeVar("T")

Mode = Literal["cooperative", "preemptive", "fire_and_forget"]

GRACE_SECONDS: Final = 1.0
"""How long work has to stop after it was asked to."""
CHECK_EVERY: Final = 50
CHECK_RANGE: Final = (10, 100)
"""A loop looks every so many items."""
LONGEST_BLOCK_MS: Final = 100
"""A computation that blocks for longer belongs in a thread (`in_thread`) or a process."""
CHUNK_BYTES: Final = 8192
POLL_SECONDS: Final = 1.0
TOPIC: Final = "tool.cancel"
MAX_REASON: Final = 200
"""Characters of a reason; at least one."""
_PUBLISH_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 2.0**31
"""The longest limit or grace, which every timer holds."""


class CancellationError(CodedError, ValueError):
    """Raised when something is given that is not taken: `bad_input`, or `mode_refused`; `reason` says what."""

    reason: str

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.reason = reason


class ToolCancelled(CodedError, RuntimeError):
    """Raised at a check point, and by `CancelToken.run`, when the work was cancelled: `cancelled`.

    `reason`: the first one given. `late_value`: what the work returned all the same after it had been asked to stop,
    in a tuple of one; its effect has happened. Empty if it did not.
    """

    reason: str
    late_value: tuple[Any, ...]

    def __init__(self, reason: str, late_value: tuple[Any, ...] = ()) -> None:
        super().__init__("cancelled")
        self.reason = reason
        self.late_value = late_value


class CleanUpTimedOut(CodedError, RuntimeError):
    """Raised when a clean-up had no time, or did not end in it: `clean_up_timed_out`."""

    def __init__(self) -> None:
        super().__init__("clean_up_timed_out")


@dataclass(frozen=True, slots=True)
class Interruption:
    """How a tool is stopped; checked when it is made. Source: claim I4-031, X-47.

    `ignores_cancel`: it does not obey a cooperative cancel (a driver without time-outs, a C extension); only then may
    it be `preemptive`. `discardable`: its effect may be lost (logs, metrics); only then may it be `fire_and_forget`,
    and not if `at_least_once` is asked for. Raises `CancellationError` (`mode_refused`, `bad_input`).
    """

    tool: str
    mode: Mode = "cooperative"
    ignores_cancel: bool = False
    discardable: bool = False
    at_least_once: bool = False

    def __post_init__(self) -> None:
        flags = (self.ignores_cancel, self.discardable, self.at_least_once)
        modes = ("cooperative", "preemptive", "fire_and_forget")
        if type(self.mode) is not str or self.mode not in modes or {type(flag) for flag in flags} != {bool}:
            raise CancellationError("bad_input", "not a mode, or not a flag")
        if self.mode == "cooperative" and self.ignores_cancel:
            raise CancellationError("mode_refused", "what ignores a cooperative cancel cannot be cooperative")
        if self.mode == "preemptive" and not self.ignores_cancel:
            raise CancellationError("mode_refused", "preemptive is for what ignores a cooperative cancel")
        if self.mode == "fire_and_forget" and not self.discardable:
            raise CancellationError("mode_refused", "an effect that may not be lost needs a handle or an outbox")
        if self.mode == "fire_and_forget" and self.at_least_once:
            raise CancellationError("mode_refused", "what must arrive is an outbox event")


class CancelToken:
    """A request to stop that can be looked at, waited for and passed down; any thread may use it.

    Made alone it is the top of a tree; `child()` makes one below. A cancel goes down the tree and never up.
    """

    def __init__(self, parent: CancelToken | None = None) -> None:
        self._parent = parent  # keeps what is above alive; what is below is kept by its users alone
        # One lock a tree. It can be taken again by its holder, since a signal may interrupt a cancel with a cancel.
        self._lock: threading.RLock = threading.RLock() if parent is None else parent._lock
        self._reason: str | None = None
        self._cause: BaseException | None = None
        # Both in the order in which they came, so that a cancel wakes in the same order each time.
        self._children: weakref.WeakValueDictionary[int, CancelToken] = weakref.WeakValueDictionary()
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._made = 0
        if parent is not None:
            with self._lock:
                self._reason, self._cause = parent._reason, parent._cause
                parent._made += 1
                parent._children[parent._made] = self

    @property
    def reason(self) -> str | None:
        """The first reason that was given, None as long as it is not cancelled."""
        return self._reason

    @property
    def cause(self) -> BaseException | None:
        """The error that led to the cancel, if one was given."""
        return self._cause

    def is_cancelled(self) -> bool:
        """Return whether a stop was requested, here or above."""
        return self._reason is not None

    def child(self) -> CancelToken:
        """Return a token below this one; of a cancelled token the child is cancelled from birth."""
        return CancelToken(self)

    def cancel(self, reason: str = "cancelled", cause: BaseException | None = None) -> bool:
        """Request a stop of this token and all below it; return False if that had been done before.

        Wakes whoever waits, in whichever loop. Raises `CancellationError` (`bad_input`).
        """
        if type(reason) is not str or not 1 <= len(reason) <= MAX_REASON:
            raise CancellationError("bad_input", f"the reason is not a text of 1 to {MAX_REASON} characters")
        with self._lock:
            if self._reason is not None:
                return False
            waiting: list[asyncio.Future[None]] = []
            below = deque([self])
            while below:
                token = below.popleft()
                if token._reason is None:
                    token._reason, token._cause = reason, cause
                    waiting += token._waiting
                    below += token._children.values()
        for future in waiting:
            try:
                # Setting it here would not wake a loop that sleeps in another thread.
                future.get_loop().call_soon_threadsafe(_wake, future)
            except RuntimeError:
                pass  # that loop is closed, and nobody waits in it any more
        return True

    def check(self) -> None:
        """Raise `ToolCancelled` if a stop was requested: a check point for code without awaits."""
        if self._reason is not None:
            raise ToolCancelled(self._reason) from self._cause

    async def checkpoint(self) -> None:
        """Let others run, and raise `ToolCancelled` if a stop was requested: a check point between awaits."""
        self.check()
        await asyncio.sleep(0)
        self.check()

    async def wait(self) -> str:
        """Wait until a stop is requested and return the reason."""
        future = self._future()
        try:
            await future
        finally:
            self._forget(future)
        assert self._reason is not None
        return self._reason

    async def run(self, fn: Callable[[], Awaitable[T]], *, grace_s: float = GRACE_SECONDS) -> T:
        """Return `await fn()`, which is stopped when a stop is requested; `fn` is not called if it was before.

        Stopped means cancelled once, with `grace_s` to clean up; what still runs then is abandoned. A cancel of the
        caller stops it too, and is raised again. Raises `ToolCancelled`, what `fn` raises, and `CancellationError`
        for a `grace_s` that is not above 0. Source: claims I4-008, I4-022, I4-025.
        """
        _check_seconds(grace_s, "grace_s")
        self.check()
        stop = self._future()
        try:
            ending = await own(fn, grace_s=grace_s, stop=stop)
        finally:
            self._forget(stop)
        if ending.outer is not None:
            raise ending.outer
        if ending.why == "stop":
            assert self._reason is not None
            late = (ending.value,) if ending.returned else ()
            error = None if isinstance(ending.error, asyncio.CancelledError) else ending.error
            raise ToolCancelled(self._reason, late) from (error or self._cause)
        if isinstance(ending.error, asyncio.CancelledError):
            raise ToolCancelled(self._reason or "cancelled_inside")
        if ending.error is not None:
            raise ending.error
        return ending.value  # type: ignore[return-value]  # it returned

    def _future(self) -> asyncio.Future[None]:
        """Return a future of the running loop that is done when a stop is requested."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._reason is None:
                self._waiting[future] = None
            else:
                future.set_result(None)
        return future

    def _forget(self, future: asyncio.Future[None]) -> None:
        with self._lock:
            self._waiting.pop(future, None)


class Publisher(Protocol):
    """What is asked of a message broker's client."""

    async def publish(self, topic: str, body: str) -> object:
        """Send a message, or raise."""


class Receipt(Protocol):
    """What a cancel row answers; `companions.interruption.cancel_store.CancelReceipt` has it."""

    def message(self) -> dict[str, Any]:
        """Return the body of the message about it."""


class CancelRows(Protocol):
    """What is asked of the durable store; `companions.interruption.cancel_store.CancelStore` has it."""

    def cancel(
        self, trace_id: str, span_id: str | None = None, *, reason: str = "parent_cancelled", epoch: int | None = None
    ) -> Receipt:
        """Write the cancel row, durably and once."""

    def cancel_reason(self, trace_id: str, span_id: str | None = None, *, epoch: int | None = None) -> str | None:
        """Return why it is cancelled, or None."""


class DistributedCancelToken:
    """A token for a trace, or for a span of it, in every process that has the database and the trace id.

    `mq_client`: publishes, best effort. `db_pool`: the durable rows; it is used from this thread only, and each use
    blocks for one small query or commit; where it has a `database`, another process's lock is waited for off the loop.
    `span_id`: None for the whole trace. `epoch`: the run of the trace, None for the one that counts. `poll_s`: the
    least time between two looks at the rows. `clock`: monotonic seconds.

    Hold work by `token.run` and keep `watch()` running: then a cancel by another process stops the holders here.
    Source: claims I4-087 to I4-093, I4-099.
    """

    token: CancelToken
    """The local part: holders, children, check points."""
    publish_error: BaseException | None
    """Why the last message was not sent."""
    poll_error: StoreError | None
    """Why the last look failed; the flag keeps its value, and the commit looks again."""

    def __init__(
        self,
        trace_id: str,
        mq_client: Publisher | None,
        db_pool: CancelRows,
        *,
        span_id: str | None = None,
        epoch: int | None = None,
        poll_s: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        parent: CancelToken | None = None,
    ) -> None:
        if type(poll_s) not in (int, float) or not 0 < poll_s <= 3600:
            raise CancellationError("bad_input", "poll_s is not a number of seconds above 0")
        self.trace_id = trace_id
        self.span_id = span_id
        self.token = CancelToken(parent)
        self.publish_error = None
        self.poll_error = None
        self._mq = mq_client
        self._rows = db_pool
        database = getattr(db_pool, "database", None)
        self._database = database if isinstance(database, Database) else None
        self._epoch = epoch
        self._poll_s = poll_s
        self._clock = clock
        self._next_look = clock()
        self._told = CancelToken()

    async def cancel(self, reason: str = "parent_cancelled") -> Receipt:
        """Cancel here at once, then write the row, then tell the others; return the store's receipt.

        A message that fails or hangs is recorded in `publish_error`: the row is what counts. Raises `StoreError` if the
        row cannot be written; this process is cancelled all the same. Source: claims I4-091 to I4-093, X-56.
        """
        self.token.cancel(reason)
        write = partial(self._rows.cancel, self.trace_id, self.span_id, reason=reason, epoch=self._epoch)
        receipt = write() if self._database is None else await off_the_loop(self._database, write, shielded=True)
        if self._mq is not None:
            client, body = self._mq, json.dumps(receipt.message(), ensure_ascii=False, separators=(",", ":"))
            ending = await own(lambda: client.publish(TOPIC, body), limit_s=_PUBLISH_SECONDS, grace_s=_PUBLISH_SECONDS)
            self.publish_error = TimeoutError() if ending.why == "limit" else ending.error
            if ending.outer is not None:
                raise ending.outer
        return receipt

    def is_cancelled(self) -> bool:
        """Return whether a stop was requested: here, or by a row, at which this looks every `poll_s` at most."""
        if self.token.is_cancelled():
            return True
        now = self._clock()
        if now < self._next_look and not self._told.is_cancelled():
            return False
        self._next_look = now + self._poll_s
        self._told = CancelToken()
        try:
            look = partial(self._rows.cancel_reason, self.trace_id, self.span_id, epoch=self._epoch)
            reason = look() if self._database is None else at_once(self._database, look)
        except StoreError as error:
            self.poll_error = error
            return False
        self.poll_error = None
        if reason is not None:
            self.token.cancel(reason)
        return self.token.is_cancelled()

    def check(self) -> None:
        """Raise `ToolCancelled` if a stop was requested."""
        if self.is_cancelled():
            self.token.check()

    def receive(self, body: str | bytes) -> bool:
        """Take a message from `tool.cancel`, in any thread; return whether it makes this token look at the rows.

        Nothing is cancelled by a message alone: another trace's, another run's or a broken one is ignored, and a
        false one finds no row.
        """
        try:
            message = json.loads(body)
        except (ValueError, TypeError, RecursionError):
            return False
        if type(message) is not dict or message.get("trace_id") != self.trace_id:
            return False
        if self._epoch is not None and message.get("epoch") != self._epoch:
            return False
        self._told.cancel("message")
        return True

    async def watch(self) -> str:
        """Look at the rows every `poll_s`, and when a message says so, until it is cancelled; return the reason."""
        while not self.is_cancelled():
            told = self._told._future()
            here = self.token._future()
            try:
                await asyncio.wait({told, here}, timeout=self._poll_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._told._forget(told)
                self.token._forget(here)
        assert self.token.reason is not None
        return self.token.reason


def checked(items: Iterable[T], token: CancelToken, *, every: int = CHECK_EVERY) -> Iterator[T]:
    """Yield the items and look at the token before the first and after every `every` of them (10 to 100).

    For loops in threads; in a coroutine take `checked_async`, which lets others run as well. Raises `ToolCancelled`,
    `CancellationError`. Source: claim I4-032.
    """
    _check_every(every)
    return _checked(items, token, every)


def _checked(items: Iterable[T], token: CancelToken, every: int) -> Iterator[T]:
    for number, item in enumerate(items):
        if number % every == 0:
            token.check()
        yield item


def checked_async(items: Iterable[T], token: CancelToken, *, every: int = CHECK_EVERY) -> AsyncIterator[T]:
    """Yield the items as `checked` does, and let the event loop run at every look. Source: claim I4-032."""
    _check_every(every)
    return _checked_async(items, token, every)


async def _checked_async(items: Iterable[T], token: CancelToken, every: int) -> AsyncIterator[T]:
    for number, item in enumerate(items):
        if number % every == 0:
            await token.checkpoint()
        yield item


async def clean_up(fn: Callable[[], Awaitable[T]], limit_s: float, *, grace_s: float = 0.1) -> T:
    """Return `await fn()`, which keeps its `limit_s` seconds whatever cancels come meanwhile.

    Take the time from the compensation lane: `budget.compensation().seconds()`. A cancel that came meanwhile is raised
    when the clean-up has ended. Raises `CleanUpTimedOut` (also for no time at all), what `fn` raises, and
    `CancellationError` for what are no seconds, or for a `grace_s` that is not above 0.
    """
    _check_seconds(grace_s, "grace_s")
    if type(limit_s) not in (int, float) or limit_s > _MOST_SECONDS:
        raise CancellationError("bad_input", "limit_s is not a number of seconds")
    if not limit_s > 0:
        raise CleanUpTimedOut()
    ending = await own(fn, limit_s=limit_s, grace_s=grace_s, shielded=True)
    if ending.outer is not None:
        raise ending.outer from ending.error
    if ending.why == "limit" or isinstance(ending.error, asyncio.CancelledError):
        raise CleanUpTimedOut() from ending.error
    if ending.error is not None:
        raise ending.error
    return ending.value  # type: ignore[return-value]  # it returned


async def in_thread(fn: Callable[[CancelToken], T], token: CancelToken, *, grace_s: float = GRACE_SECONDS) -> T:
    """Return `fn(child)` computed in a thread, so that the event loop stays free; the child token is its way to stop.

    A cancel of the token or of the caller sets the child; the thread sees it at its next look and no sooner. Either
    waits for that `grace_s` at most, and a thread that does not look runs on. What still waits for a free thread is
    never begun, and nobody waits for it. Raises what `fn` raises, `ToolCancelled`
    for a thread that was left behind, and `CancellationError` for a `grace_s` that is not above 0.
    Source: claim I4-034, X-22.
    """
    _check_seconds(grace_s, "grace_s")
    child = token.child()
    child.check()
    begun: list[bool] = []

    def work() -> T:
        begun.append(True)
        child.check()  # it may have waited for this thread, and nobody waits for it any more
        return fn(child)

    future = asyncio.get_running_loop().run_in_executor(None, work)
    stop = child._future()
    try:
        waiting: set[asyncio.Future[Any]] = {future, stop}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        outer = await until(future, grace_s if begun else 0)
    except asyncio.CancelledError as error:
        child.cancel("caller_cancelled")
        outer = await until(future, grace_s if begun else 0, error)
    finally:
        child._forget(stop)
    if outer is None and future.done():
        return future.result()
    future.add_done_callback(_retrieve)
    if outer is not None:
        raise outer
    child.check()
    raise AssertionError  # nothing else ends the waiting


async def fetch_large_blob(
    url: str,
    cancel_token: CancelToken,
    *,
    http_get: Callable[..., Awaitable[bytes]],
    total: int,
) -> bytes:
    """Return a blob fetched in steps of `CHUNK_BYTES`, looking at the token before each.

    `http_get(url, range=(first, end))`: `end` is not included, and the last one may lie behind the blob. `total`: in
    bytes. Raises `ToolCancelled` (after a cancel nothing more is fetched) and `CancellationError` for a `total` that
    is no whole number from 0. Source: claims I4-026, I4-027, X-45.
    """
    if type(total) is not int or total < 0:
        raise CancellationError("bad_input", "total is not a whole number from 0")
    chunks = []
    for offset in range(0, total, CHUNK_BYTES):
        cancel_token.check()
        chunks.append(await http_get(url, range=(offset, offset + CHUNK_BYTES)))
    cancel_token.check()
    return b"".join(chunks)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Look at the error of a thread that nobody waits for any more, so that it is not reported as lost."""
    if not future.cancelled():
        future.exception()


def _check_seconds(value: object, name: str) -> None:
    if (type(value) is not int and type(value) is not float) or not 0 < value <= _MOST_SECONDS:
        raise CancellationError("bad_input", f"{name} is not a number of seconds above 0")


def _check_every(every: object) -> None:
    if type(every) is not int or not CHECK_RANGE[0] <= every <= CHECK_RANGE[1]:
        raise CancellationError("bad_input", f"every is not a whole number from {CHECK_RANGE[0]} to {CHECK_RANGE[1]}")
