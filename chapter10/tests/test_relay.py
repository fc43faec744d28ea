"""A relay when the others are down, slow, gone or deadly: whose fault a failure is, and whom it delays."""

from __future__ import annotations

import asyncio
import errno
import socket
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

from chapter10.companions.basics.tasks import abandoned
from chapter10.companions.effects.messages import (
    Delivery,
    OutboxError,
    PassReport,
    TransportDown,
    growing_delay,
)
from chapter10.companions.effects.outbox_rows import Outbox
from chapter10.companions.effects.relay import Relay, upkeep
from chapter10.companions.retrying.circuit_breaker import CircuitBreaker, CircuitOpenError
from chapter10.lab.effect_scenes.outage_day import BOUND_S, day
from chapter10.tests.support import ManualClock
from chapter10.tests.virtual_time import VirtualLoop, pause, run_virtual

Sender = Callable[..., Awaitable[None]]
HOUR = 3600.0


class Place:
    """An outbox in memory on the loop's clock, and a relay that runs over it."""

    def __init__(self, loop: VirtualLoop, send: Sender, interval_s: float = 1.0, **options: Any) -> None:
        self.loop, self.began = loop, loop.time()
        delay = growing_delay(random=lambda: 0.5)
        self.outbox = Outbox(":memory:", clock=loop.time, delay=delay, **options)
        wait = growing_delay(max_s=30, random=lambda: 0.5)
        self.relay = Relay(self.outbox, send, clock=loop.time, pause=wait, interval_s=interval_s)

    def record(self, *event_ids: str, topic: str = "t", key: str | None = None) -> None:
        with self.outbox.database.write() as db:
            for event_id in event_ids:
                self.outbox.record(db, topic, {}, event_id=event_id, ordering_key=key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the relay, and cancel it afterwards."""
        task = asyncio.ensure_future(self.relay.run(asyncio.Event()))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def for_s(self, seconds: float) -> None:
        """Run the relay for so long."""
        async with self.running():
            await pause(seconds)

    def states(self) -> dict[str, int]:
        rows = self.outbox.database.rows("SELECT status, count(*) FROM outbox GROUP BY status")
        return dict(rows)

    def row(self, event_id: str) -> tuple[str, int, int]:
        shown = self.outbox.status(event_id)
        return shown["status"], shown["attempts"], shown["misses"]


def failing(names: set[str], error: Exception, got: list[str]) -> Sender:
    async def send(topic: str, payload: str, *, key: str) -> None:
        if key in names:
            raise error
        got.append(key)

    return send


class WhoseFaultTest(unittest.TestCase):
    """A fault belongs to a message, to its receiver or to the transport."""

    def test_one_receiver_that_is_gone_stops_nobody_else(self) -> None:
        """Fifty others get theirs; its own message ages without an attempt, raises an alarm and ends by its rule.

        Claims: I4-058, I4-066.
        """
        for error in (
            ConnectionRefusedError(),
            socket.gaierror(-3, "temporary"),
            OSError(errno.EHOSTUNREACH, "no route"),
            TransportDown("unreachable"),
            CircuitOpenError(1.0),
        ):

            async def play(loop: VirtualLoop, error: Exception = error) -> None:
                got: list[str] = []
                place = Place(loop, failing({"e0"}, error, got), 30.0, give_up_s=HOUR)
                for number in range(51):
                    place.record(f"e{number}", key=f"customer-{number}")
                await place.for_s(100)
                self.assertEqual(50, len(got))
                self.assertEqual(("pending", 0), place.row("e0")[:2])
                self.assertGreater(place.row("e0")[2], 1)
                await place.for_s(900)
                self.assertEqual(["overdue"], place.outbox.alarms()["alarms"])
                await place.for_s(HOUR)
                self.assertEqual("dead", place.row("e0")[0])

            with self.subTest(error=error):
                run_virtual(play)

    def test_an_outage_of_five_minutes_buries_nobody(self) -> None:
        """Whatever the send raises meanwhile, known or not: all of twenty-four rows are delivered after it.

        Claims: I4-066.
        """
        for error in (
            socket.gaierror(-3, "temporary"),
            OSError(errno.EHOSTUNREACH, "no route"),
            TimeoutError(),
            ConnectionResetError(),
            RuntimeError("503"),
            TypeError("a release that was none"),
        ):
            for breaker in (None, CircuitBreaker)[: 2 if type(error) is RuntimeError else 1]:

                async def play(loop: VirtualLoop, error: Exception = error, breaker: Any = breaker) -> None:
                    circuit = CircuitBreaker(clock=loop.time) if breaker else None
                    began = loop.time()

                    async def wire() -> None:
                        if loop.time() - began < 300:
                            raise error

                    async def send(topic: str, payload: str, *, key: str) -> None:
                        await (wire() if circuit is None else circuit.call(wire))

                    place = Place(loop, send, 5.0)
                    place.record(*(f"e{number}" for number in range(24)))
                    await place.for_s(300)
                    self.assertEqual({"pending": 24}, place.states())
                    await place.for_s(600)
                    self.assertEqual({"sent": 24}, place.states())

                with self.subTest(error=error, breaker=breaker):
                    run_virtual(play)

    def test_a_message_that_fails_for_ever_dies_by_number_and_time(self) -> None:
        """Not before its eighth attempt, and not in its first hour; then soon. Claims: I4-066."""

        async def play(loop: VirtualLoop) -> None:
            place = Place(loop, failing({"bad"}, RuntimeError("500"), []), 10.0)
            place.record("bad", "good")
            await place.for_s(HOUR - 1)
            status, attempts, _ = place.row("bad")
            self.assertEqual("pending", status)
            self.assertGreater(attempts, 8)
            await place.for_s(320)
            self.assertEqual(("dead", "sent"), (place.row("bad")[0], place.row("good")[0]))

        run_virtual(play)

    def test_an_effect_that_is_done_is_not_made_again(self) -> None:
        """A send that came back late, or whose record alone failed, counts as sent."""

        async def play(loop: VirtualLoop) -> None:
            async def send(topic: str, payload: str, *, key: str) -> None:
                try:
                    await pause(100)
                except asyncio.CancelledError:
                    return  # it was done at the last moment

            place = Place(loop, send)
            place.record("late")
            await place.for_s(30)
            self.assertEqual(("sent", 1, 0), place.row("late"))

        run_virtual(play)

    def test_a_stated_outage_is_probed_with_another_row(self) -> None:
        """The row that said that nobody is reached stands back; the next one finds that it was wrong."""

        async def play(loop: VirtualLoop) -> None:
            got: list[str] = []
            place = Place(loop, failing({"e0"}, TransportDown("unreachable"), got))
            place.relay = Relay(place.outbox, place.relay._send, clock=loop.time, in_flight=1, pause=lambda n: 5.0)
            place.record("e0", "e1", "e2")
            await place.relay.run_pass()
            self.assertTrue((await place.relay.run_pass()).paused)
            await pause(5)
            self.assertEqual(PassReport(claimed=1, sent=1), await place.relay.run_pass())
            self.assertEqual(2, (await place.relay.run_pass()).claimed)
            self.assertEqual(["e1", "e2"], got)

        run_virtual(play)

    def test_a_wait_that_an_error_asks_for_is_kept(self) -> None:
        """As long as the circuit says, and not beyond five minutes; a wait that is no number is none."""

        async def play(loop: VirtualLoop) -> None:
            waits: list[Any] = [90.0, 1e9, float("nan"), True, "soon", -5]
            errors = {f"e{number}": CircuitOpenError(wait) for number, wait in enumerate(waits)}

            async def send(topic: str, payload: str, *, key: str) -> None:
                raise errors[key]

            place = Place(loop, send)
            place.record(*errors)
            await place.relay.run_pass()
            due = [round(place.outbox.status(name)["next_attempt_at"] - loop.time(), 3) for name in errors]
            self.assertEqual([90.0, 300.0, 1.0, 1.0, 1.0, 1.0], due)

        run_virtual(play)


class HangingTest(unittest.TestCase):
    """Sends that take their whole time, and more."""

    def test_twenty_hanging_messages_keep_nobody_back_for_longer_than_one_limit(self) -> None:
        """Whether they obey their cancel or not, and each has paid its attempt. Claims: I4-058."""
        for obeys in (True, False):

            async def play(loop: VirtualLoop, obeys: bool = obeys) -> None:
                got: list[float] = []

                async def send(topic: str, payload: str, *, key: str) -> None:
                    if topic == "good":
                        got.append(loop.time() - place.began)
                        return
                    try:
                        await pause(HOUR)
                    except asyncio.CancelledError:
                        if obeys:
                            raise
                        await pause(HOUR)

                place = Place(loop, send)
                place.record(*(f"bad{number}" for number in range(20)), topic="bad")
                place.record(*(f"good{number}" for number in range(50)), topic="good")
                await place.for_s(60)
                self.assertEqual(50, len(got))
                self.assertLessEqual(got[-1], 11.1)
                self.assertGreater(place.row("bad0")[1], 0)
                self.assertEqual("TimeoutError", place.outbox.status("bad0")["last_error"])
                self.assertEqual(obeys, not abandoned())
                await pause(2 * HOUR)  # those that were left running end

            with self.subTest(obeys=obeys):
                run_virtual(play)

    def test_a_receiver_in_trouble_has_half_of_the_places(self) -> None:
        """Two hundred messages that hang leave the other half to those that come, until it takes one again."""

        async def play(loop: VirtualLoop) -> None:
            at_work: set[str] = set()
            got: list[str] = []
            most = [0]
            healed = [False]

            async def send(topic: str, payload: str, *, key: str) -> None:
                at_work.add(key)
                most[0] = max(most[0], sum(name.startswith("bad") for name in at_work))
                try:
                    if topic == "bad" and not healed[0]:
                        await pause(HOUR)
                    await pause(0.1)
                    got.append(key)
                finally:
                    at_work.remove(key)

            place = Place(loop, send)
            place.record(*(f"bad{number}" for number in range(200)), topic="bad")
            await place.for_s(12)
            self.assertEqual(10, most[0])
            most[0] = 0
            async with place.running():
                for number in range(60):
                    place.record(f"good{number}", topic="good")
                    await pause(3)
                    self.assertIn(f"good{number}", got)
                self.assertEqual(5, most[0])
                healed[0] = True
                await pause(60)
                self.assertEqual(10, most[0])
                self.assertEqual({"sent": 260}, place.states())

        run_virtual(play)

    def test_a_stop_waits_for_one_limit_and_no_longer(self) -> None:
        """Nothing is begun after it; what was not begun is given back without an attempt."""

        async def play(loop: VirtualLoop) -> None:
            async def send(topic: str, payload: str, *, key: str) -> None:
                while True:
                    try:
                        await pause(40)
                        return
                    except asyncio.CancelledError:
                        pass

            place = Place(loop, send)
            place.record(*(f"e{number}" for number in range(30)))
            stop = asyncio.Event()
            task = asyncio.ensure_future(place.relay.run(stop))
            await pause(1)
            stop.set()
            await task
            self.assertAlmostEqual(11.0, loop.time() - place.began, delta=0.1)
            self.assertEqual({"pending": 30}, place.states())
            self.assertEqual((("pending", 1, 0), ("pending", 0, 0)), (place.row("e9"), place.row("e10")))
            await pause(100)

        run_virtual(play)

    def test_a_limit_that_does_not_fit_into_the_lease_is_refused(self) -> None:
        """One send and its grace end within the lease, or another relay would send as well."""
        with Outbox(":memory:", clock=ManualClock()) as outbox:
            make = partial(Relay, outbox, failing(set(), ValueError(), []))
            make(lease_s=6, send_s=5, grace_s=1)
            for bad in (
                {"lease_s": 6, "send_s": 5, "grace_s": 1.1},
                {"in_flight": 0},
                {"in_flight": True},
                {"send_s": 0},
                {"grace_s": 0},
            ):
                with self.assertRaises(OutboxError) as caught:
                    make(**bad)
                self.assertEqual("bad_input", caught.exception.code)


class InFlightTest(unittest.TestCase):
    """Several at once."""

    def test_ten_are_in_flight_and_no_more(self) -> None:
        """Two hundred sends of 50 ms take one second. Claims: I4-057."""

        async def play(loop: VirtualLoop) -> None:
            now_and_most = [0, 0]

            async def send(topic: str, payload: str, *, key: str) -> None:
                now_and_most[0] += 1
                now_and_most[1] = max(now_and_most)
                await pause(0.05)
                now_and_most[0] -= 1

            place = Place(loop, send)
            place.record(*(f"e{number}" for number in range(200)))
            async with place.running():
                while place.states() != {"sent": 200}:
                    await pause(0.01)
                    self.assertLess(loop.time() - place.began, 1.2)
            self.assertEqual(10, now_and_most[1])

        run_virtual(play)

    def test_the_order_within_a_key_holds(self) -> None:
        """However long each takes: of one key the next begins after the last was marked. Claims: I4-064."""

        async def play(loop: VirtualLoop) -> None:
            got: dict[str, list[int]] = {}
            at_work: set[str] = set()

            async def send(topic: str, payload: str, *, key: str) -> None:
                name, number = key.split(".")
                self.assertNotIn(name, at_work)
                at_work.add(name)
                await pause(0.01 * (hash(number) % 7 + 1) if number.isdigit() else 0)
                at_work.remove(name)
                got.setdefault(name, []).append(int(number))

            place = Place(loop, send)
            for number in range(10):
                for name in ("a", "b", "c", "d"):
                    place.record(f"{name}.{number}", key=name)
            await place.for_s(30)
            self.assertEqual({name: list(range(10)) for name in "abcd"}, got)

        run_virtual(play)

    def test_what_failed_does_not_stand_before_what_is_fresh(self) -> None:
        """A row that is due again has the place of its new time; its priority was for its first try."""
        clock = ManualClock(1000.0)
        with Outbox(":memory:", clock=clock, delay=lambda attempts: 5.0) as outbox:

            def record(event_id: str, priority: int = 0) -> None:
                with outbox.database.write() as db:
                    outbox.record(db, "t", {}, event_id=event_id, priority=priority)

            kinds: tuple[Literal["refused", "held"], ...] = ("refused", "held")
            for kind in kinds:
                record(f"old-{kind}", priority=5)
                batch = outbox.claim()
                assert batch is not None
                outbox.mark(batch, [Delivery(batch.messages[0], kind, wait_s=5.0)])
                clock.advance(4)
                record(f"fresh-{kind}")
                clock.advance(1)
                batch = outbox.claim()
                assert batch is not None
                self.assertEqual([f"fresh-{kind}", f"old-{kind}"], [each.event_id for each in batch.messages])
                outbox.mark(batch, [Delivery(each, "sent") for each in batch.messages])


class CrashTest(unittest.TestCase):
    """A message that kills its process."""

    def test_a_deadly_message_is_found_and_ends(self) -> None:
        """Its attempts are counted though nobody could mark them; a dozen others are delivered meanwhile.

        Claims: I4-059, I4-066.
        """
        clock = ManualClock(1000.0)
        sent: list[str] = []
        deaths: list[list[str]] = []
        with Outbox(":memory:", clock=clock, delay=lambda attempts: float(attempts), max_attempts=4) as outbox:
            with outbox.database.write() as db:
                for number in range(13):
                    outbox.record(db, "t", {}, event_id="deadly" if number == 6 else f"e{number}")
            for _ in range(60):
                batch = outbox.claim(lease_s=10)
                if batch is None:
                    clock.advance(1)
                    continue
                names = [message.event_id for message in batch.messages]
                if "deadly" in names:
                    deaths.append(names)
                    self.assertEqual(len(deaths), outbox.status("deadly")["attempts"])
                    continue
                sent += names
                outbox.mark(batch, [Delivery(message, "sent") for message in batch.messages])
            shown = outbox.status("deadly")

        self.assertEqual(([13, 4, 1, 1], 12), ([len(names) for names in deaths], len(set(sent))))
        self.assertEqual(("dead", 4, "relay_died"), (shown["status"], shown["attempts"], shown["last_error"]))

    def test_who_was_in_flight_with_a_killer_is_not_buried_for_it(self) -> None:
        """Its last attempt was spent when the process died: it gets one alone."""
        clock = ManualClock(1000.0)
        with Outbox(":memory:", clock=clock, max_attempts=1, patience_s=0) as outbox:
            with outbox.database.write() as db:
                outbox.record(db, "t", {}, event_id="innocent")
                outbox.record(db, "t", {}, event_id="killer")
            for size in (2, 2, 1):
                batch = outbox.claim(lease_s=10)
                assert batch is not None
                self.assertEqual(size, len(batch.messages))
                clock.advance(10)
            self.assertEqual("pending", outbox.status("killer")["status"])

    def test_suspects_go_when_nothing_else_is_in_flight(self) -> None:
        """Not even what was sent a moment ago and is not marked yet: a relay that dies now takes nobody along."""

        async def play(loop: VirtualLoop) -> None:
            seen: list[tuple[str, dict[str, int]]] = []

            async def send(topic: str, payload: str, *, key: str) -> None:
                if key == "suspect":
                    seen.append((key, place.states()))
                await pause(5)

            place = Place(loop, send)
            place.record("suspect")
            place.outbox.claim(lease_s=1)
            await pause(1)
            place.record("after")
            with place.outbox.database.write() as db:
                db.execute("UPDATE outbox SET rank = 0 WHERE event_id = 'after'")
            await place.for_s(20)
            self.assertEqual([("suspect", {"claimed": 1, "sent": 1})], seen)
            self.assertEqual({"sent": 2}, place.states())

        run_virtual(play)

    def test_a_lease_is_never_longer_than_a_lease_from_now(self) -> None:
        """A clock that was a year ahead during a claim does not keep the row for a year."""
        clock = ManualClock(1000.0 + 365 * 86_400)
        with Outbox(":memory:", clock=clock) as outbox:
            with outbox.database.write() as db:
                outbox.record(db, "t", {}, event_id="e")
                db.execute("UPDATE outbox SET rank = 0, next_attempt_at = 0")
            outbox.claim(lease_s=10)
            clock.now = 1000.0
            self.assertIsNone(outbox.claim())
            clock.advance(10)
            self.assertIsNotNone(outbox.claim())


class UpkeepTest(unittest.TestCase):
    """A loop of its own."""

    def test_upkeep_archives_forgets_and_calls_somebody(self) -> None:
        """Round by round, at once again while a round was full, and a broken round does not end it.

        Claims: I4-062, I4-067, I4-068.
        """

        async def play(loop: VirtualLoop) -> None:
            said: list[Any] = []
            archived, broken = iter((1000, 3, 0)), [True]

            class Rows:
                database = Outbox(":memory:").database

                def archive(self, older_than_s: float, limit: int = 1000) -> int:
                    said.append(("archive", older_than_s, loop.time() - began))
                    return next(archived)

                def forget(self, older_than_s: float, limit: int = 1000) -> int:
                    if broken and not broken.pop():
                        return 0
                    said.append(("forget", older_than_s))
                    return 0

                def alarms(self) -> dict[str, Any]:
                    return {"dead": 101, "alarms": ["dead"] if len(said) > 3 else []}

            def alarm(state: dict[str, Any]) -> None:
                said.append(state["alarms"])
                raise OSError  # who cannot be called does not end the loop

            began, stop = loop.time(), asyncio.Event()
            errors: list[Exception] = []
            more: dict[str, Any] = {"every_s": 60, "keep_s": 5, "forget_s": 7, "on_alarm": alarm}
            task = asyncio.ensure_future(upkeep(Rows(), stop, on_error=errors.append, **more))
            await pause(130)
            stop.set()
            await task
            expected = [
                ("archive", 5, 0.0), ("forget", 7), ("archive", 5, 0.0), ("forget", 7), ["dead"],
                ("archive", 5, 60.0), ("forget", 7), ["dead"], ("archive", 5, 120.0),
            ]  # fmt: skip
            self.assertEqual(expected, said)
            self.assertEqual([OSError, OSError, RuntimeError], [type(error) for error in errors])

        with self.assertRaises(OutboxError):
            asyncio.run(upkeep(Outbox(":memory:"), asyncio.Event(), every_s=0))
        run_virtual(play)

    def test_an_outbox_is_kept_up(self) -> None:
        """A sent payload goes after its time, and the row after the horizon. Claims: I4-062."""

        async def play(loop: VirtualLoop) -> None:
            place = Place(loop, failing(set(), ValueError(), []), horizon_s=100)
            place.record("e")
            await place.for_s(5)
            stop = asyncio.Event()
            task = asyncio.ensure_future(upkeep(place.outbox, stop, every_s=10, keep_s=20, forget_s=100))
            await pause(40)
            self.assertEqual({"archived": 1}, place.states())
            await pause(120)
            self.assertEqual({}, place.states())
            stop.set()
            await task

        run_virtual(play)


class DayTest(unittest.TestCase):
    """A whole day; a thousand of them: `python -m chapter10.lab.effect_scenes.outage_day 1000`."""

    def test_a_day_of_dead_slow_hanging_and_deadly_receivers(self) -> None:
        """What is taken is delivered within its bound, and everything else ends by its rule. Claims: I4-058, I4-066."""
        for seed in (8,):
            with self.subTest(seed=seed):
                found = day(seed)
                self.assertEqual([], found.problems)
                self.assertGreater(found.delivered, 20)
                self.assertLessEqual(found.longest_wait_s, BOUND_S)


if __name__ == "__main__":
    unittest.main()
