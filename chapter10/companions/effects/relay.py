"""A relay sends what an outbox holds: claim a batch, send it outside any transaction, mark it.

    idle ---> claim ---> send, `in_flight` at once ---> mark ---> again at once
      ^         | nothing due                             | transport down: give back, pause, then one probe
      +---------+-----------------------------------------+

Whose fault it is (O5, O6 of `effects.outbox`). `basics.blame` says of an error whether an attempt was made, and whose
it is; what the send function means by its own types is asked first.

    the transport's   `TransportDown`: what is not begun is given back, the relay pauses, and the row that said so
                      stands back, so that the probe is another one
    nobody reached    refused connection, no name, no route, an open circuit, no budget: the row is held, nothing spent
    this message's    `PermanentRefusal`, a declined effect, a status 4xx: dead at once
    undecided         no answer, or an answer that no row of `blame` knows: the attempt is spent, and the outbox decides
                      by number and time

What holds besides. Each send has `send_s` seconds and `grace_s` to obey its cancel; one that does not is left running
(`basics.tasks.abandoned`) and counts as refused. A receiver that left three messages unanswered, with none taken in
between, has at most half of the places until it takes one, so that others go on; what finds no place is held. A row
that was in flight when a relay died is sent while nothing else is. A mark that could not be stored is tried again
before the next claim; a send begins only if its whole time fits into the lease.

Within a key the order is the outbox's: one row of a key is claimed at a time, however many are in flight.

What it does not do: a relay that dies between a send and its mark sends again (see `effects.inbox` for the other side).
Source: the document on interruption, section 6 (claims I4-056 to I4-059, I4-063, I4-066; X-49).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from chapter10.canonical import CodedError
from chapter10.companions.basics.blame import blame
from chapter10.companions.basics.locks import off_the_loop
from chapter10.companions.basics.tasks import leaves, own, until
from chapter10.companions.effects.messages import (
    BATCH_LIMIT,
    HORIZON_S,
    LEASE_S,
    MAX_LIMIT,
    MAX_TEXT,
    Batch,
    Delivery,
    Message,
    PassReport,
    PermanentRefusal,
    TransportDown,
    growing_delay,
    refuse,
    seconds,
    whole,
)
from chapter10.database import Database, StoreError

__all__ = [
    "GRACE_S",
    "INTERVAL_S",
    "IN_FLIGHT",
    "KEEP_S",
    "SEND_S",
    "UPKEEP_S",
    "Kept",
    "Relay",
    "Rows",
    "Send",
    "upkeep",
]

INTERVAL_S: Final = 1.0
"""Seconds that an idle relay sleeps (I4-056)."""
IN_FLIGHT: Final = 10
"""Messages that a relay sends at once."""
SEND_S: Final = 10.0
"""Seconds that one send may take, or half a lease, if that is less."""
GRACE_S: Final = 1.0
"""Seconds that a send has to obey its cancel."""
UPKEEP_S: Final = 60.0
"""Seconds between two rounds of upkeep."""
KEEP_S: Final = 7 * 86_400
"""Seconds that the payload of a sent message is kept."""
_MOST_WAIT_S: Final = 300.0
"""The longest wait that an error may ask for."""
_UNANSWERED: Final = 3
"""Messages that a receiver may leave unanswered in a row before others come before it."""
_RECEIVERS: Final = 1000
"""Receivers in trouble that are remembered; the one that was so first is forgotten first."""


class Rows(Protocol):
    """What a relay asks of an outbox; `companions.effects.outbox_rows.Outbox` has it."""

    database: Database

    def claim(self, limit: int = ..., lease_s: float = ...) -> Batch | None:
        """Take due rows, or None."""

    def has_time(self, batch: Batch, needed_s: float = ...) -> bool:
        """Say whether the batch's lease runs for more than so many seconds."""

    def mark(self, batch: Batch, deliveries: Sequence[Delivery]) -> PassReport:
        """Store how the messages of a batch fared."""

    def status(self, event_id: str) -> dict[str, Any]:
        """Return what is known of a message, its `status` among it."""


class Kept(Protocol):
    """What upkeep asks of an outbox."""

    database: Database

    def archive(self, older_than_s: float, limit: int = ...) -> int:
        """Drop the payload of messages that were sent that long ago; return how many."""

    def forget(self, older_than_s: float, limit: int = ...) -> int:
        """Remove what ended that long ago; return how many."""

    def alarms(self) -> dict[str, Any]:
        """Return counts, and under `alarms` the names of those that are too high."""


class Send(Protocol):
    """Delivers one message; `key` is its event id, for the receiver to know it again."""

    def __call__(self, topic: str, payload: str, *, key: str) -> Awaitable[object]:
        """Return when the receiver has taken the message; raise what went wrong."""


class Relay:
    """Sends what the outbox holds: claim, send outside any transaction, mark.

    `send`: delivers one message. `limit`, `lease_s`: as in `Outbox.claim`. `in_flight`: sends at once, 1 to 1000.
    `send_s`, `grace_s`: seconds for one send, and for it to obey; together not more than the lease. `interval_s`:
    sleep of an idle relay, through `sleep`. `transport_errors`: what says that nobody can be reached. `permanent`:
    what says that this message will never be taken. `pause`: from the number of failed probes, or of misses of one
    row, to seconds. `receiver`: who gets a message; by default its topic and its ordering key. `on_error`: told of a
    pass that failed. Any number of relays may share a file, each with an `Outbox` of its own.
    """

    def __init__(
        self,
        outbox: Rows,
        send: Send,
        *,
        limit: int = BATCH_LIMIT,
        lease_s: float = LEASE_S,
        in_flight: int = IN_FLIGHT,
        send_s: float | None = None,
        grace_s: float | None = None,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        pause: Callable[[int], float] | None = None,
        transport_errors: tuple[type[Exception], ...] = (TransportDown,),
        permanent: tuple[type[Exception], ...] = (PermanentRefusal,),
        receiver: Callable[[Message], Hashable] | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._outbox, self._send = outbox, send
        self._limit, self._lease_s = whole(limit, "limit", 1, MAX_LIMIT), seconds(lease_s, "lease_s", 0.001)
        self._send_s = seconds(min(SEND_S, lease_s / 2) if send_s is None else send_s, "send_s", 0.0001)
        self._grace_s = seconds(min(GRACE_S, lease_s / 4) if grace_s is None else grace_s, "grace_s", 0.0001)
        if self._send_s + self._grace_s > lease_s:
            refuse("one send and its grace do not fit into the lease")
        self._interval_s = seconds(interval_s, "interval_s", 0.001)
        self._clock, self._sleep = clock, sleep
        self._pause = growing_delay(max_s=30.0) if pause is None else pause
        self._transport_errors, self._permanent, self._on_error = transport_errors, permanent, on_error
        self._in_flight = whole(in_flight, "in_flight", 1, MAX_LIMIT)
        self._receiver = _topic_and_key if receiver is None else receiver
        self._places = asyncio.Semaphore(self._in_flight)
        self._open: set[asyncio.Future[None]] = set()
        """One for each pass that has not marked its batch yet."""
        self._at: dict[Hashable, int] = {}
        """How many sends each receiver has in flight."""
        self._unanswered: dict[Hashable, set[int]] = {}
        """Rows that each receiver in trouble did not answer since it last took one; `_RECEIVERS` of them at most."""
        self._probes_failed = 0
        self._paused_until = 0.0
        self._owed: list[tuple[Batch, list[Delivery]]] = []
        self._marked = asyncio.Event()
        self._begun = asyncio.Event()
        self._stop: asyncio.Event | None = None

    async def run_pass(self) -> PassReport:
        """Claim one batch, send it and mark it; return what happened.

        Each message stands alone: one that is refused stops no other. When the transport is down the rest is given
        back, the relay pauses, and after the pause one message is the probe. A mark that could not be stored is tried
        again before the next claim.

        Raises `StoreError`, and `CancelledError` when it is cancelled (what was sent is marked first).
        """
        while self._owed:
            await self._mark(self._owed.pop(0))
        if self._is_paused():
            return PassReport(paused=True)
        limit = 1 if self._probes_failed else self._limit
        batch = await off_the_loop(self._outbox.database, partial(self._outbox.claim, limit, self._lease_s))
        if batch is None:
            return PassReport()
        told: list[Delivery] = []
        others, mine = set(self._open), asyncio.get_running_loop().create_future()
        self._open.add(mine)
        try:
            if batch.apart and others:
                await asyncio.wait(others)  # marked as well: a relay that dies now takes nobody along
            await self._send_batch(batch, told)
        except BaseException:
            with suppress(StoreError):  # it stays owed, and the end of the lease gives it to the next claim
                await self._mark((batch, told))
            raise
        else:
            return await self._mark((batch, told))
        finally:
            self._open.remove(mine)
            mine.set_result(None)

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop` is set; sleep only when there was nothing to do or a pass failed.

        The next pass begins when all of the last one has begun: a send that takes its whole time keeps one place, and
        nobody waiting. A pass that fails is reported to `on_error` and the loop goes on. After `stop` nothing is
        begun, and what is in flight ends within its time. Source: I4-056, I4-059.
        """
        self._stop = stop
        passes: set[asyncio.Task[PassReport]] = set()
        try:
            while not stop.is_set():
                await _first_of(stop.wait(), self._a_place())
                if stop.is_set():
                    break
                self._begun.clear()
                turn = asyncio.ensure_future(self.run_pass())
                passes.add(turn)
                turn.add_done_callback(passes.discard)
                turn.add_done_callback(self._report_of)
                await _first_of(turn, self._begun.wait())
                if not turn.done():
                    continue  # the stragglers of this pass need no one to wait for them
                report = PassReport() if turn.cancelled() or turn.exception() else turn.result()
                if report.sent + report.refused + report.dead + report.held == 0:
                    left = self._paused_until - self._clock() if report.paused else 0.0
                    await _first_of(stop.wait(), self._sleep(max(left, self._interval_s)))
                else:
                    await asyncio.sleep(0)
            while passes:
                await asyncio.wait(passes)
        finally:
            for turn in passes:
                turn.cancel()
            await until(asyncio.gather(*passes, return_exceptions=True), self._send_s + 2 * self._grace_s)
            self._stop = None

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
            await _first_of(marked.wait(), self._sleep(pause))

    # Sending -------------------------------------------------------------------------------------

    async def _send_batch(self, batch: Batch, told: list[Delivery]) -> None:
        waiting = iter(batch.messages)
        left = len(batch.messages)

        async def lane() -> None:
            nonlocal left
            for message in waiting:
                async with self._places:
                    left -= 1
                    if left == 0 and not batch.apart:
                        self._begun.set()
                    await self._send_one(batch, message, told)

        lanes = [asyncio.ensure_future(lane()) for _ in range(min(self._in_flight, left))]
        try:
            await asyncio.gather(*lanes)
        finally:
            for each in lanes:
                each.cancel()
            await until(asyncio.gather(*lanes, return_exceptions=True), 2 * self._grace_s)

    async def _send_one(self, batch: Batch, message: Message, told: list[Delivery]) -> None:
        """Send one message, if it may begin now, and note how it fared."""
        if (self._stop is not None and self._stop.is_set()) or self._is_paused():
            return
        if not self._outbox.has_time(batch, self._send_s + self._grace_s):
            return
        to = self._receiver(message)
        if len(self._unanswered.get(to, ())) >= _UNANSWERED and self._at.get(to, 0) >= max(self._in_flight // 2, 1):
            told.append(self._held(message, "", None))  # its last error stays
            return
        self._at[to] = self._at.get(to, 0) + 1
        try:
            ending = await own(
                lambda: self._send(message.topic, message.payload, key=message.event_id),
                limit_s=self._send_s,
                grace_s=self._grace_s,
            )
        finally:
            self._at[to] -= 1
            if not self._at[to]:
                del self._at[to]
        if ending.returned:
            delivery = Delivery(message, "sent")
        elif ending.outer is not None:
            raise ending.outer
        else:
            in_time = ending.why == "itself" and ending.error is not None
            delivery = self._judged(message, ending.error if in_time else TimeoutError())  # type: ignore[arg-type]
        told.append(delivery)
        if delivery.kind in ("sent", "refused_for_good"):  # somebody answered
            self._probes_failed = 0
            self._unanswered.pop(to, None)
        if ending.outer is not None:
            raise ending.outer

    def _judged(self, message: Message, error: BaseException) -> Delivery:
        """Return what an error means for its message, and note it against the transport or the receiver."""
        found, name = blame(error), _short(error)
        if _are_all(error, self._transport_errors):
            if not self._is_paused():  # of those that were in flight together, one counts
                self._probes_failed += 1
                self._paused_until = self._clock() + self._pause(self._probes_failed)
            return self._held(message, name, error)
        if found.whose == "request" or _are_all(error, self._permanent):
            return Delivery(message, "refused_for_good", name)
        if found.applied == "yes":
            return Delivery(message, "sent")
        if found.again or not found.reached:
            self._note(message)
        return Delivery(message, "refused", name) if found.reached else self._held(message, name, error)

    def _note(self, message: Message) -> None:
        """Note a message that its receiver did not answer."""
        unanswered = self._unanswered.setdefault(self._receiver(message), set())
        if len(unanswered) < _UNANSWERED:
            unanswered.add(message.id)
        if len(self._unanswered) > _RECEIVERS:
            del self._unanswered[next(iter(self._unanswered))]

    def _held(self, message: Message, name: str, error: BaseException | None) -> Delivery:
        """Put a message off; as long as an open circuit or another holder says, if that is longer."""
        wait_s = seconds(self._pause(message.misses + 1), "pause", 0)
        asked: object = getattr(error, "retry_after", None)
        if type(asked) in (int, float) and wait_s < asked:  # type: ignore[operator]
            wait_s = min(float(asked), _MOST_WAIT_S)  # type: ignore[arg-type]
        return Delivery(message, "held", name, wait_s)

    def _is_paused(self) -> bool:
        return self._probes_failed > 0 and self._clock() < self._paused_until

    # Marking -------------------------------------------------------------------------------------

    async def _mark(self, owed: tuple[Batch, list[Delivery]]) -> PassReport:
        """Store how a batch fared, also for a caller who is cancelled meanwhile; what cannot be stored stays owed."""
        batch, told = owed
        judged = {each.message.id for each in told}
        rest = [Delivery(message, "not_tried") for message in batch.messages if message.id not in judged]
        reports: list[PassReport] = []

        def step() -> PassReport:
            reports.append(self._outbox.mark(batch, [*told, *rest]))
            return reports[0]

        try:
            return await off_the_loop(self._outbox.database, step, shielded=True)
        finally:
            if reports:
                self._marked.set()
                self._marked = asyncio.Event()
            else:
                self._owed.append(owed)

    def _report_of(self, turn: asyncio.Task[PassReport]) -> None:
        error = None if turn.cancelled() else turn.exception()
        if isinstance(error, Exception) and self._on_error is not None:
            with suppress(Exception):  # who cannot take a report does not end the loop
                self._on_error(error)

    async def _a_place(self) -> None:
        async with self._places:
            pass


async def upkeep(
    outbox: Kept,
    stop: asyncio.Event,
    *,
    every_s: float = UPKEEP_S,
    keep_s: float = KEEP_S,
    forget_s: float = 2 * HORIZON_S,
    on_alarm: Callable[[dict[str, Any]], object] | None = None,
    on_error: Callable[[Exception], object] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Archive what was sent `keep_s` ago, forget what ended `forget_s` ago, look at the alarms; until `stop` is set.

    A loop of its own beside a relay, so that neither waits for the other; a round moves `MAX_LIMIT` rows of each kind
    in a commit, and comes again at once while that was not all. `on_alarm`: given what `Outbox.alarms` says, in each
    round with an alarm. `on_error`: told of a round that failed; the loop goes on. `forget_s` is not below the
    outbox's horizon. Raises `OutboxError` (`bad_input`) for bad figures. Source: I4-062, I4-067, I4-068.
    """
    for value, name in ((every_s, "every_s"), (keep_s, "keep_s"), (forget_s, "forget_s")):
        seconds(value, name, 0.001)
    while not stop.is_set():
        moved = 0
        try:
            steps = (partial(outbox.archive, keep_s), partial(outbox.forget, forget_s))
            moved = max([await off_the_loop(outbox.database, step) for step in steps])
            state = outbox.alarms()
            if state["alarms"] and on_alarm is not None:
                on_alarm(state)
        except Exception as error:
            with suppress(Exception):
                if on_error is not None:
                    on_error(error)
        if moved < MAX_LIMIT:
            await _first_of(stop.wait(), sleep(every_s))
        else:
            await asyncio.sleep(0)


async def _first_of(*waits: Awaitable[object]) -> None:
    """Wait for the first of them; what was made here for it is ended, a task that was given goes on."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ours = [task for task, given in zip(tasks, waits, strict=True) if task is not given]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)


def _topic_and_key(message: Message) -> Hashable:
    return message.topic, message.ordering_key


def _are_all(error: BaseException, types: tuple[type[Exception], ...]) -> bool:
    """Say whether an error, or each leaf of a group, is of these types."""
    return isinstance(error, types) or all(isinstance(leaf, types) for leaf in leaves(error))


def _short(error: BaseException) -> str:
    """Return a code or a class name: never the text of an error, which may hold anything."""
    name = error.code if isinstance(error, CodedError) else type(error).__name__
    # A receiver's code may be a number or half a character; what it means for its message is stored all the same.
    return str(name).encode("utf-8", "replace").decode("utf-8")[:MAX_TEXT] or type(error).__name__
