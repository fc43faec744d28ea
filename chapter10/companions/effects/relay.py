"""A relay sends what an outbox holds: claim a batch, send it outside any transaction, mark it.

    idle ---> claim ---> send, one after the other ---> mark ---> again at once
      ^         | nothing due                             | transport down: give back, pause, then one probe
      +---------+-----------------------------------------+

What holds (O4 to O6 of `effects.outbox`): a message that is refused stops no other; an outage costs nobody an
attempt and is probed with one message; a mark that could not be stored is tried again before the next claim; after the
end of its lease a relay sends nothing more of its batch.

The sends of a batch end with its lease, since one message that hangs must not hold the others for ever: the one at hand
is cancelled, and counts as refused, with a `TimeoutError`, if it had the whole lease. A transport that hangs for all of
them is better known to the send function: with a shorter limit of its own it raises `TransportDown`, and nobody pays an
attempt.

What it does not do: a relay that dies between a send and its mark sends again (see `effects.inbox` for the other
side), and one whose send ignores its cancel hangs.
Source: the document on interruption, section 6 (claims I4-056 to I4-059, I4-063, I4-066; X-49).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from chapter10.canonical import CodedError
from chapter10.companions.basics.tasks import leaves
from chapter10.companions.effects.messages import (
    BATCH_LIMIT,
    LEASE_S,
    MAX_LIMIT,
    MAX_TEXT,
    Batch,
    Message,
    PassReport,
    PermanentRefusal,
    TransportDown,
    Verdict,
    growing_delay,
    seconds,
    whole,
)
from chapter10.database import StoreError

__all__ = [
    "INTERVAL_S",
    "Relay",
    "Rows",
    "Send",
]

INTERVAL_S: Final = 1.0
"""Seconds that an idle relay sleeps (I4-056)."""


class Rows(Protocol):
    """What a relay asks of an outbox; `companions.effects.outbox_rows.Outbox` has it."""

    def claim(self, limit: int = ..., lease_s: float = ...) -> Batch | None:
        """Take due rows, or None."""

    def has_time(self, batch: Batch) -> bool:
        """Say whether the batch's lease still runs."""

    def mark(self, batch: Batch, verdicts: Sequence[Verdict]) -> PassReport:
        """Store how the messages of a batch fared."""

    def status(self, event_id: str) -> dict[str, Any]:
        """Return what is known of a message, its `status` among it."""


class Send(Protocol):
    """Delivers one message; `key` is its event id, for the receiver to know it again."""

    def __call__(self, topic: str, payload: str, *, key: str) -> Awaitable[object]:
        """Return when the receiver has taken the message; raise what went wrong."""


class Relay:
    """Sends what the outbox holds: claim, send outside any transaction, mark.

    `send`: delivers one message. `limit`, `lease_s`: as in `Outbox.claim`. `interval_s`: sleep of an
    idle relay, through `sleep`. `transport_errors`: what says that nobody was reached. `permanent`:
    what says that this message will never be taken. `pause`: from the number of failed probes to
    seconds. `on_error`: told of a pass that failed. Any number of relays may share a file, each with
    an `Outbox` of its own.
    """

    def __init__(
        self,
        outbox: Rows,
        send: Send,
        *,
        limit: int = BATCH_LIMIT,
        lease_s: float = LEASE_S,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        pause: Callable[[int], float] | None = None,
        transport_errors: tuple[type[Exception], ...] = (TransportDown, ConnectionError),
        permanent: tuple[type[Exception], ...] = (PermanentRefusal,),
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._outbox, self._send = outbox, send
        self._limit, self._lease_s = whole(limit, "limit", 1, MAX_LIMIT), seconds(lease_s, "lease_s", 0.001)
        self._interval_s = seconds(interval_s, "interval_s", 0.001)
        self._clock, self._sleep = clock, sleep
        self._pause = growing_delay(max_s=30.0) if pause is None else pause
        self._transport_errors, self._permanent, self._on_error = transport_errors, permanent, on_error
        self._probes_failed = 0
        self._paused_until = 0.0
        self._unmarked: tuple[Batch, list[Verdict]] | None = None
        self._marked = asyncio.Event()

    async def run_pass(self) -> PassReport:
        """Claim one batch, send it in order and mark it; return what happened.

        Each message stands alone: one that is refused stops no other. When the transport is down the
        rest is given back, the relay pauses, and after the pause one message is the probe. A mark that
        could not be stored is tried again before the next claim.

        Raises `StoreError`, and `CancelledError` when it is cancelled (what was sent is marked first).
        """
        self._mark_what_is_owed()
        if self._probes_failed and self._clock() < self._paused_until:
            return PassReport(paused=True)
        batch = self._outbox.claim(1 if self._probes_failed else self._limit, self._lease_s)
        if batch is None:
            return PassReport()
        verdicts: list[Verdict] = []
        self._unmarked = (batch, verdicts)
        try:
            await self._send_batch(batch, verdicts)
        except BaseException:
            try:
                self._mark_what_is_owed()
            except StoreError:
                pass  # it stays owed, and the end of the lease gives it to the next claim
            raise
        return self._mark_what_is_owed()

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop` is set; sleep only when there was nothing to do or a pass failed.

        A pass that fails is reported to `on_error` and the loop goes on. Source: I4-056, I4-059.
        """
        while not stop.is_set():
            try:
                report = await self.run_pass()
            except Exception as error:
                report = PassReport()
                self._report(error)
            if report.sent + report.refused + report.dead == 0:
                await self._sleep_or(stop, self._interval_s)
            else:
                await asyncio.sleep(0)

    async def wait_for(self, event_id: str, timeout_s: float) -> str:
        """Return the status of a message once it is sent or dead, or after `timeout_s` seconds as it is.

        The row is the truth; the relay's mark only wakes the reader earlier than the interval would.
        Raises `OutboxError`: `not_found`, `bad_input`. Source: I4-063.
        """
        left = seconds(timeout_s, "timeout_s", 0)
        while True:
            marked = self._marked
            status: str = self._outbox.status(event_id)["status"]
            if status not in ("pending", "claimed") or left <= 0:
                return status
            pause = min(self._interval_s, left)
            left -= pause
            await self._sleep_or(marked, pause)

    async def _send_batch(self, batch: Batch, verdicts: list[Verdict]) -> None:
        try:
            async with asyncio.timeout(self._lease_s):
                await self._send_each(batch, verdicts)
        except TimeoutError as error:  # ours: what a send raises is in its verdict
            if not verdicts:  # the first had the whole lease; any other gets it with the next batch
                self._judge(batch.messages[0], error, verdicts)

    async def _send_each(self, batch: Batch, verdicts: list[Verdict]) -> None:
        for message in batch.messages:
            if not self._outbox.has_time(batch):
                return
            try:
                await self._send(message.topic, message.payload, key=message.event_id)
            except Exception as error:
                if not self._judge(message, error, verdicts):
                    return
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                verdicts.append(Verdict(message, "refused", _short(error)))  # nobody cancelled us
            else:
                verdicts.append(Verdict(message, "sent"))
            self._probes_failed = 0

    def _judge(self, message: Message, error: Exception, verdicts: list[Verdict]) -> bool:
        """Note what an error means for its message; False when it is the transport's, which begins a pause."""
        if _are_all(error, self._transport_errors):
            self._probes_failed += 1
            self._paused_until = self._clock() + self._pause(self._probes_failed)
            return False
        for_good = _are_all(error, self._permanent)
        verdicts.append(Verdict(message, "refused_for_good" if for_good else "refused", _short(error)))
        return True

    def _mark_what_is_owed(self) -> PassReport:
        if self._unmarked is None:
            return PassReport()
        batch, verdicts = self._unmarked
        judged = {verdict.message.id for verdict in verdicts}
        rest = [Verdict(message, "not_tried") for message in batch.messages if message.id not in judged]
        report = self._outbox.mark(batch, [*verdicts, *rest])
        self._unmarked = None
        self._marked.set()
        self._marked = asyncio.Event()
        return report

    def _report(self, error: Exception) -> None:
        if self._on_error is not None:
            with suppress(Exception):  # who cannot take a report does not end the loop
                self._on_error(error)

    async def _sleep_or(self, event: asyncio.Event, seconds: float) -> None:
        sleeper = asyncio.ensure_future(self._sleep(seconds))
        waiter = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleeper, waiter):
                task.cancel()
            await asyncio.gather(sleeper, waiter, return_exceptions=True)


def _are_all(error: Exception, types: tuple[type[Exception], ...]) -> bool:
    """Say whether an error, or each leaf of a group, is of these types."""
    return isinstance(error, types) or all(isinstance(leaf, types) for leaf in leaves(error))


def _short(error: BaseException) -> str:
    """Return a code or a class name: never the text of an error, which may hold anything."""
    name = error.code if isinstance(error, CodedError) else type(error).__name__
    # A receiver's code may be a number or half a character; the verdict on its message is stored all the same.
    return str(name).encode("utf-8", "replace").decode("utf-8")[:MAX_TEXT] or type(error).__name__
