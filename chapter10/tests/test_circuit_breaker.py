"""What `companions.retrying.circuit_breaker` promises, on a clock moved by hand."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import threading
import unittest
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

from chapter10.companions.interruption.budget import Budget, BudgetExhausted, ToolTimedOut, tool_with_budget
from chapter10.companions.interruption.cancellation import CancelToken, ToolCancelled
from chapter10.companions.retrying.circuit_breaker import (
    BUCKETS,
    FAILURE_RATE,
    MIN_CALLS,
    RESET_SECONDS,
    WINDOW_SECONDS,
    BreakerError,
    CircuitBreaker,
    CircuitOpenError,
    Judgement,
    Permit,
    judge,
)
from chapter10.tests.support import ManualClock
from chapter10.tests.virtual_time import VirtualLoop, pause, virtual


class ShortRemainder(TimeoutError):
    """A time-out that the caller's small remainder brought about."""

    whole_limit = False


class BreakerTestCase(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = ManualClock(500.0)
        self.breaker = CircuitBreaker(clock=self.clock)

    def give(self, verdict: Judgement, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.acquire().give(verdict)

    def open(self) -> None:
        """Open the circuit by ten failures."""
        self.give("failure", 10)
        self.assertEqual(self.breaker.state, "open")

    def half_open(self) -> None:
        self.open()
        self.clock.advance(30.5)
        self.assertEqual(self.breaker.state, "half-open")

    def assert_refused(self) -> float:
        with self.assertRaises(CircuitOpenError) as caught:
            self.breaker.acquire()
        self.assertEqual((caught.exception.code, str(caught.exception)), ("circuit_open", "circuit_open"))
        self.assertGreater(caught.exception.retry_after, 0)
        return caught.exception.retry_after


class States(BreakerTestCase):
    """The three words and how one becomes another."""

    def test_it_starts_closed_without_failures(self) -> None:
        """The figures of the document, and a breaker that has seen nothing. Claims: I4-070, I4-071, I4-085."""
        self.assertEqual((WINDOW_SECONDS, MIN_CALLS, RESET_SECONDS), (60, 10, 30))
        self.assertEqual((self.breaker.state, self.breaker.failures, self.breaker.retry_after), ("closed", 0, 0.0))

    def test_a_high_rate_past_the_minimum_opens_it(self) -> None:
        """8 failures of 16 open it, 7 of 15 do not; 12 of 20 open one that asks for 20 calls.

        Claims: I4-075, I4-079, I4-100.
        """
        self.give("success", 8)
        self.give("failure", 7)
        self.assertEqual((self.breaker.state, FAILURE_RATE), ("closed", 0.5))
        self.give("failure")
        self.assertEqual(self.breaker.state, "open")
        self.breaker = CircuitBreaker(min_calls=20, failure_rate=0.6, clock=self.clock)
        self.give("failure", 12)
        self.give("success", 7)
        self.assertEqual(self.breaker.state, "closed")
        self.give("success")
        self.assertEqual(self.breaker.state, "open")

    def test_a_few_failures_among_many_calls_leave_it_closed(self) -> None:
        """Ten failures among ten thousand successes are one in a thousand. Claims: I4-079."""
        for _ in range(10):
            self.give("success", 1000)
            self.give("failure")
        self.assertEqual((self.breaker.state, self.breaker.failures), ("closed", 10))

    def test_nine_failures_say_nothing_yet(self) -> None:
        """Below the minimum of calls even a rate of one leaves it closed; a tenth call of any kind decides.

        Claims: I4-079.
        """
        self.give("failure", 9)
        self.assertEqual(self.breaker.state, "closed")
        self.give("success")
        self.assertEqual(self.breaker.state, "open")

    def test_failures_leave_the_window_after_sixty_seconds(self) -> None:
        """Nine failures sixty seconds old do not count with one of today. Claims: I4-085."""
        self.give("failure", 9)
        self.clock.advance(59)
        self.assertEqual(self.breaker.failures, 9)
        self.clock.advance(1)
        self.assertEqual(self.breaker.failures, 0)
        self.give("failure", 9)
        self.assertEqual(self.breaker.state, "closed")

    def test_a_window_of_another_length_has_buckets_of_another_length(self) -> None:
        """Half a minute: what is older than that is gone, to half a second; two minutes: to two."""
        for window_s, bucket_s in ((30, 0.5), (120, 2)):
            breaker = CircuitBreaker(window_s=window_s, min_calls=100, clock=self.clock)
            breaker.acquire().failure()
            self.clock.advance(window_s - bucket_s)
            breaker.acquire().failure()
            self.assertEqual(breaker.failures, 2)
            self.clock.advance(bucket_s)
            self.assertEqual(breaker.failures, 1)
            self.clock.advance(window_s)
            self.assertEqual(breaker.failures, 0)

    def test_it_is_open_for_thirty_seconds_and_half_open_after(self) -> None:
        """At 30 s it is still open, just after it is half-open. Claims: I4-074."""
        self.open()
        self.assertEqual(self.assert_refused(), 30.0)
        self.clock.advance(30)
        self.assertEqual(self.breaker.state, "open")
        self.assert_refused()
        self.clock.advance(0.001)
        self.assertEqual(self.breaker.state, "half-open")

    def test_a_probe_that_succeeds_closes_it(self) -> None:
        """It heals: closed, no failures, and the next nine failures say nothing again. Claims: I4-075, I4-081."""
        self.half_open()
        self.assertEqual(self.breaker.failures, 10)  # they are still in the window until it closes
        self.breaker.acquire().success()
        self.assertEqual((self.breaker.state, self.breaker.failures), ("closed", 0))
        self.give("failure", 9)
        self.assertEqual(self.breaker.state, "closed")

    def test_a_probe_that_fails_opens_it_for_another_thirty_seconds(self) -> None:
        """The timer starts anew at the failure. Claims: I4-076."""
        self.half_open()
        probe = self.breaker.acquire()
        self.clock.advance(5)
        probe.failure()
        self.assertEqual(self.breaker.state, "open")
        self.assertEqual(self.assert_refused(), 30.0)
        self.clock.advance(30.001)
        self.assertEqual(self.breaker.state, "half-open")

    def test_a_neutral_probe_moves_nothing_and_gives_its_place_back(self) -> None:
        """Neither closed nor open: the next caller is the probe."""
        self.half_open()
        self.breaker.acquire().neutral()
        self.assertEqual(self.breaker.state, "half-open")
        self.breaker.acquire().success()
        self.assertEqual(self.breaker.state, "closed")

    def test_what_began_before_a_change_says_nothing_after_it(self) -> None:
        """A late success does not close it, and late failures do not move the time of the probe. Claims: I4-075."""
        old = [self.breaker.acquire() for _ in range(6)]
        self.open()
        for permit in old[:5]:
            self.clock.advance(5)
            permit.failure()
        self.clock.advance(6)
        self.assertEqual(self.breaker.state, "half-open")
        self.breaker.acquire()
        old[5].success()
        self.assertEqual(self.breaker.state, "half-open")

    def test_a_probe_that_never_returns_loses_its_place(self) -> None:
        """After its time another one is let through, and what the first says then is not heard."""
        self.half_open()
        lost = self.breaker.acquire()
        self.assertEqual(self.assert_refused(), 60.0)
        self.clock.advance(59.9)
        self.assert_refused()
        self.clock.advance(0.1)
        probe = self.breaker.acquire()
        lost.success()
        self.assertEqual(self.breaker.state, "half-open")
        lost.failure()
        self.assertEqual(self.breaker.state, "half-open")
        probe.success()
        record = self.breaker.statistics()
        self.assertEqual((record.state, record.dropped), ("closed", 1))
        self.assertEqual(record.generation, 4)  # open, half-open, another probe, closed

    def test_the_first_verdict_of_a_permit_counts(self) -> None:
        """A second one does nothing, so that a clean-up may always say neutral."""
        permit = self.breaker.acquire()
        permit.failure()
        for again in (permit.failure, permit.success, permit.neutral):
            again()
        record = self.breaker.statistics()
        self.assertEqual((record.calls, record.failures, record.neutral), (1, 1, 0))

    def test_the_record_shows_what_was_seen(self) -> None:
        """Counters of the window and of the whole life, in one frozen record."""
        self.give("success", 2)
        self.give("neutral", 3)
        self.give("failure", 8)
        self.assert_refused()
        record = self.breaker.statistics()
        self.assertEqual((record.state, record.generation, record.calls, record.failures), ("open", 1, 10, 8))
        self.assertEqual((record.permitted, record.refused, record.opened, record.neutral), (13, 1, 1, 3))
        self.assertFalse(record.probing)

    def test_a_person_takes_it_out_of_service_and_back(self) -> None:
        """Isolated it refuses whatever the time, and says to ask again after the reset; then it is closed and clean."""
        breaker = self.breaker
        straggler = breaker.acquire()
        breaker.isolate()
        for later in (0.0, RESET_SECONDS + 1, 1e6):
            self.clock.advance(later)
            with self.assertRaises(CircuitOpenError) as caught:
                breaker.acquire()
            self.assertEqual((caught.exception.retry_after, breaker.state), (RESET_SECONDS, "open"))
        self.assertTrue(breaker.statistics().isolated)
        straggler.success()  # of before: says nothing
        self.assertEqual(breaker.state, "open")
        breaker.reset()
        seen = breaker.statistics()
        self.assertEqual((seen.state, seen.isolated, seen.calls, seen.failures), ("closed", False, 0, 0))
        breaker.acquire().success()

    def test_each_change_of_state_is_told_once(self) -> None:
        """Closed, open, half-open, closed, and by hand; without the lock, and whatever the listener raises."""
        heard: list[tuple[str, str]] = []
        locked: list[bool] = []

        def listen(old: str, new: str) -> None:
            heard.append((old, new))
            locked.append(breaker._lock.locked())  # where it is not, a listener may ask the breaker
            raise RuntimeError

        breaker = CircuitBreaker(min_calls=1, on_change=listen, clock=self.clock)
        breaker.acquire().failure()
        self.clock.advance(RESET_SECONDS + 1)
        breaker.acquire().success()
        breaker.isolate()
        breaker.isolate()
        breaker.reset()
        names = ["closed", "open", "half-open", "closed", "open", "closed"]
        self.assertEqual(heard, list(itertools.pairwise(names)))
        self.assertEqual(locked, [False] * len(heard))

    def test_changes_are_told_in_their_order(self) -> None:
        """Also those that came while a listener was at work, here by its own hand."""
        heard: list[str] = []

        def listen(old: str, new: str) -> None:
            heard.append(new)
            if len(heard) == 1:
                with mock.patch.object(CircuitBreaker, "_tell"):  # calls of a thread that finds somebody telling
                    breaker.reset()
                    breaker.isolate()

        breaker = CircuitBreaker(on_change=listen, clock=self.clock)
        breaker.isolate()
        self.assertEqual(heard, ["open", "closed", "open"])

    def test_a_success_that_was_too_slow_is_a_failure(self) -> None:
        """Only past the limit, and only where there is one."""
        for slow_s, takes, state in ((5.0, 5.0, "closed"), (5.0, 5.25, "open"), (None, 1000.0, "closed")):
            with self.subTest(slow_s=slow_s, takes=takes):
                breaker = CircuitBreaker(min_calls=1, slow_s=slow_s, clock=self.clock)
                permit = breaker.acquire()
                self.clock.advance(takes)
                permit.success()
                self.assertEqual(breaker.state, state)
        with self.assertRaises(BreakerError):
            CircuitBreaker(slow_s=0)

    def test_a_clock_that_falls_back_moves_nothing(self) -> None:
        """An open circuit is not open for longer than the latest reading says."""
        self.give("failure", 5)
        self.clock.advance(-400)
        self.assertEqual(self.breaker.failures, 5)
        self.give("failure", 5)
        self.assertEqual(self.breaker.state, "open")
        self.clock.advance(-400)
        self.assertEqual(self.assert_refused(), 30.0)

    def test_memory_is_bounded_whatever_the_traffic(self) -> None:
        """A hundred thousand calls over many hours leave the same two rings."""
        for _ in range(100):
            self.give("success", 50)
            self.clock.advance(977)
        self.assertEqual((len(self.breaker._call_ring), len(self.breaker._failure_ring)), (BUCKETS, BUCKETS))
        self.assertEqual(self.breaker.statistics().calls, 0)
        self.clock.advance(1e9)
        self.assertEqual(self.breaker.state, "closed")

    def test_bad_input_is_refused_by_name(self) -> None:
        """Wrong types, booleans, NaN and what is out of range are `bad_input`."""
        wrong: list[dict[str, Any]] = [
            {name: value}
            for name in ("window_s", "reset_s", "probe_s", "failure_rate")
            for value in (0, -1, True, math.nan, math.inf, "5", None)
        ]
        wrong += [{"failure_rate": 1.1}, {"min_calls": 0}, {"min_calls": True}, {"min_calls": 1.0}, {"clock": None}]
        wrong += [{"clock": lambda now=now: now} for now in (math.nan, "x", math.inf, -math.inf)]
        for options in wrong:
            with self.subTest(options=options), self.assertRaisesRegex(BreakerError, "^bad_input$"):
                CircuitBreaker(**{"clock": self.clock, **options})
        with self.assertRaises(BreakerError):
            self.breaker.acquire().give("perhaps")  # type: ignore[arg-type]
        with self.assertRaises(BreakerError):
            self.breaker.acquire().give(type("Word", (str,), {})("failure"))


class LooksAhead(BreakerTestCase):
    """Asking before a wait whether the call after it would be refused."""

    def test_a_wait_up_to_the_end_is_long_enough(self) -> None:
        """Open for 30 seconds more: after 30 a call may come, just before it may not; a closed one refuses nothing."""
        self.breaker.check()
        self.open()
        with self.assertRaises(CircuitOpenError) as caught:
            self.breaker.check(29.5)
        self.assertEqual((caught.exception.code, caught.exception.retry_after), ("circuit_open", 30.0))
        self.breaker.check(30.0)
        self.breaker.check(31)

    def test_it_takes_no_permit(self) -> None:
        """A look at a half-open circuit leaves the probe to who calls."""
        self.half_open()
        self.breaker.check()
        self.breaker.check()
        self.breaker.acquire().success()
        self.assertEqual(self.breaker.state, "closed")

    def test_what_is_no_number_of_seconds_is_refused(self) -> None:
        """Negative, not finite, too large, another type; 2**40 is the last that is taken."""
        for wrong in (-1, -0.5, float("nan"), float("inf"), 2**40 + 1, 2**41, True, "1", None):
            with self.subTest(wrong=wrong), self.assertRaises(BreakerError):
                self.breaker.check(wrong)  # type: ignore[arg-type]
        self.breaker.check(2**40)
        self.breaker.check(0)

    def test_the_bounds_of_the_options_are_taken_and_what_is_beyond_is_not(self) -> None:
        """The smallest and the largest of each."""
        for options in (
            {"min_calls": 1}, {"min_calls": 2**31}, {"failure_rate": 1}, {"window_s": 2**40}, {"window_s": 2**-40},
            {"reset_s": 2**40}, {"probe_s": 2**40},
        ):  # fmt: skip
            CircuitBreaker(clock=self.clock, **options)
        for options in (
            {"min_calls": 0}, {"min_calls": 2**31 + 1}, {"failure_rate": 1.01}, {"window_s": 2**40 + 1},
            {"window_s": 5e-324}, {"reset_s": 2**-41},
        ):  # fmt: skip
            with self.subTest(options=options), self.assertRaises(BreakerError):
                CircuitBreaker(clock=self.clock, **options)


class Probes(BreakerTestCase):
    """Exactly one call is let through when half-open."""

    @virtual
    async def test_ten_callers_at_once_make_one_call(self, loop: VirtualLoop) -> None:
        """One probe, nine refusals with a hint when to come back. Claims: I4-080, I4-100."""
        calls: list[int] = []
        refused: list[float] = []

        async def probe() -> None:
            calls.append(1)
            await pause(1)

        breaker = CircuitBreaker(clock=loop.time)
        for _ in range(10):
            breaker.acquire().failure()
        await pause(30.5)

        async def caller() -> None:
            try:
                await breaker.call(probe)
            except CircuitOpenError as error:
                refused.append(error.retry_after)

        await asyncio.gather(*(caller() for _ in range(10)))
        self.assertEqual(breaker.state, "closed")
        self.assertEqual((len(calls), refused), (1, [60.0] * 9))

    def test_fifty_tasks_and_ten_threads_make_one_call(self) -> None:
        """The permit is taken under a lock: one of sixty gets it, whichever way they come. Claims: I4-080."""
        self.half_open()
        granted: list[Permit] = []
        refused: list[int] = []
        together = threading.Barrier(11)

        def attempt() -> None:
            try:
                granted.append(self.breaker.acquire())
            except CircuitOpenError:
                refused.append(1)

        def thread() -> None:
            together.wait()
            attempt()

        async def tasks() -> None:
            async def one() -> None:
                attempt()

            await asyncio.gather(*(one() for _ in range(50)))

        threads = [threading.Thread(target=thread) for _ in range(10)]
        for each in threads:
            each.start()
        together.wait()
        asyncio.run(tasks())
        for each in threads:
            each.join()
        self.assertEqual((len(granted), len(refused)), (1, 59))

    def test_threads_lose_no_count(self) -> None:
        """Eight threads with 500 calls each are 4000 calls."""
        together = threading.Barrier(8)

        def thread() -> None:
            together.wait()
            for _ in range(500):
                self.breaker.acquire().success()

        threads = [threading.Thread(target=thread) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        record = self.breaker.statistics()
        self.assertEqual((record.calls, record.permitted), (4000, 4000))


class Verdicts(BreakerTestCase):
    """What counts as the dependency's doing."""

    def test_errors_are_judged_by_whose_doing_they_are(self) -> None:
        """Failures of the dependency count; cancels, stops, mistakes of the caller and small remainders do not.

        Claims: I4-077.
        """
        table: list[tuple[BaseException | None, Judgement]] = [
            (None, "success"),
            (TimeoutError(), "failure"),
            (ConnectionResetError(), "failure"),
            (OSError(), "failure"),
            (RuntimeError("503"), "failure"),
            (ShortRemainder(), "neutral"),
            (asyncio.CancelledError(), "neutral"),
            (KeyboardInterrupt(), "neutral"),
            (SystemExit(), "neutral"),
            (GeneratorExit(), "neutral"),
            (TypeError(), "neutral"),
            (ValueError(), "neutral"),
            (KeyError(), "neutral"),
            (ExceptionGroup("g", [ValueError(), ExceptionGroup("h", [ShortRemainder()])]), "neutral"),
            (ExceptionGroup("g", [ValueError(), ConnectionResetError()]), "failure"),
            (BaseExceptionGroup("g", [ConnectionResetError(), asyncio.CancelledError()]), "neutral"),
        ]
        for error, verdict in table:
            with self.subTest(error=error):
                self.assertEqual(judge(error), verdict)

    @virtual
    async def test_our_own_giving_up_opens_no_circuit(self, loop: VirtualLoop) -> None:
        """What a token, a budget or another circuit ended leaves a healthy dependency's circuit closed."""
        open_one = CircuitBreaker(clock=self.clock, min_calls=1)
        open_one.acquire().failure()
        token = CancelToken()
        loop.call_later(0.002, token.cancel, "user")

        async def healthy() -> None:
            await pause(0.05)

        calls: tuple[tuple[type[Exception], Callable[[], Awaitable[None]]], ...] = (
            (ToolCancelled, partial(token.run, healthy)),
            (BudgetExhausted, partial(tool_with_budget, "t", {}, Budget(5, clock=loop.time), healthy)),
            (ToolTimedOut, partial(tool_with_budget, "t", {}, Budget(5, clock=loop.time), healthy, 0)),
            (CircuitOpenError, partial(open_one.call, healthy)),
        )
        for kind, call in calls:
            with self.assertRaises(kind):
                await self.breaker.call(call)
        self.assertEqual((self.breaker.failures, self.breaker.statistics().neutral), (0, 4))

    def test_a_permit_judges_its_block(self) -> None:
        """`with breaker.acquire():` books what comes out of it."""
        with self.breaker.acquire():
            pass
        with self.assertRaises(ConnectionResetError), self.breaker.acquire():
            raise ConnectionResetError
        with self.assertRaises(ValueError), self.breaker.acquire():
            raise ValueError
        record = self.breaker.statistics()
        self.assertEqual((record.calls, record.failures, record.neutral), (2, 1, 1))

    @virtual
    async def test_a_verdict_may_be_ones_own(self, loop: VirtualLoop) -> None:
        """A caller who knows more than the type of an error passes a judge."""

        async def fails() -> None:
            raise ValueError

        with self.assertRaises(ValueError):
            await self.breaker.call(fails, judge=lambda error: "failure")
        self.assertEqual(self.breaker.failures, 1)

    @virtual
    async def test_a_judge_that_fails_gives_the_permit_back(self, loop: VirtualLoop) -> None:
        """On an error and on a value: the probe's place is free again, and what the judge raised comes out."""

        async def fails() -> None:
            raise ConnectionResetError

        async def noop() -> None:
            pass

        def broken(error: BaseException | None) -> Judgement:
            raise KeyError

        self.half_open()
        for work in (fails, noop):
            with self.assertRaises(KeyError):
                await self.breaker.call(work, judge=broken)
            record = self.breaker.statistics()
            self.assertEqual((record.state, record.probing), ("half-open", False))

    @virtual
    async def test_callers_who_give_up_do_not_open_it(self, loop: VirtualLoop) -> None:
        """A hundred cancelled calls and a hundred with a small remainder leave a healthy circuit closed."""

        async def short() -> None:
            raise ShortRemainder

        for _ in range(100):
            task = loop.create_task(self.breaker.call(lambda: pause(9)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            with self.assertRaises(ShortRemainder):
                await self.breaker.call(short)
        record = self.breaker.statistics()
        self.assertEqual((record.state, record.calls, record.neutral), ("closed", 0, 200))

    @virtual
    async def test_a_call_books_every_kind_of_failure(self, loop: VirtualLoop) -> None:
        """A hundred connection errors open it, and a probe that ends in one opens it again. Claims: I4-076, I4-077."""

        async def reset() -> None:
            raise ConnectionResetError

        for _ in range(100):
            with self.assertRaises((ConnectionResetError, CircuitOpenError)):
                await self.breaker.call(reset)
        self.assertEqual(self.breaker.state, "open")
        self.clock.advance(31)
        with self.assertRaises(ConnectionResetError):
            await self.breaker.call(reset)
        self.assertEqual(self.breaker.state, "open")


@dataclass
class Model:
    """A second breaker that keeps every event and looks at all of them; nothing in it is shared with ours."""

    reset: float = 30.0
    probe: float = 60.0
    events: list[tuple[int, bool]] = field(default_factory=list)
    state: str = "closed"
    opened_at: float = 0.0
    probe_id: int | None = None
    probe_ends: float = 0.0
    valid: set[int] = field(default_factory=set)
    made: int = 0

    def look(self, now: float) -> None:
        if self.state == "open" and now > self.opened_at + self.reset:
            self.state, self.probe_id = "half-open", None
            self.valid.clear()

    def window(self, now: float) -> tuple[int, int]:
        live = [failed for second, failed in self.events if second > math.floor(now) - 60]
        return len(live), sum(live)

    def acquire(self, now: float) -> int | None:
        self.look(now)
        if self.state == "open":
            return None
        if self.state == "half-open":
            if self.probe_id is not None and now < self.probe_ends:
                return None
            self.valid.clear()
            self.probe_id, self.probe_ends = self.made, now + self.probe
        self.made += 1
        self.valid.add(self.made - 1)
        return self.made - 1

    def settle(self, permit: int, verdict: str, now: float) -> None:
        self.look(now)
        if permit not in self.valid:
            return
        self.valid.discard(permit)
        if verdict == "neutral":
            self.probe_id = None
        elif self.state == "half-open":
            self.change("closed" if verdict == "success" else "open", now)
        else:
            self.events.append((math.floor(now), verdict == "failure"))
            calls, failures = self.window(now)
            if calls >= 10 and failures * 2 >= calls:
                self.change("open", now)

    def change(self, state: str, now: float) -> None:
        self.state, self.probe_id = state, None
        self.valid.clear()
        if state == "closed":
            self.events.clear()
        else:
            self.opened_at = now


class AgainstAModel(BreakerTestCase):
    """Long random histories with fixed seeds."""

    def test_ours_and_the_model_never_differ(self) -> None:
        """Forty histories of 500 steps: same permits, states and counts, at every step.

        Claims: I4-075, I4-079, I4-085, I4-100.
        """
        seen: set[str] = set()
        for seed in range(40):
            dice = random.Random(seed)
            clock = ManualClock(dice.choice((0.0, 0.5, 123456.75)))
            breaker, model = CircuitBreaker(clock=clock), Model()
            out: list[tuple[Permit, int]] = []
            bias = dice.random()
            for step in range(500):
                clock.advance(dice.choice((0, 0, 0, 0.25, 0.5, 1, 1, 7.5, 30, 30.25, 59.75, 60, 200)))
                if out and dice.random() < 0.55:
                    permit, number = out.pop(dice.randrange(len(out)))
                    verdict: Judgement = "failure" if dice.random() < bias else dice.choice(("success", "neutral"))
                    permit.give(verdict)
                    model.settle(number, verdict, clock.now)
                else:
                    expected = model.acquire(clock.now)
                    try:
                        ours = breaker.acquire()
                    except CircuitOpenError:
                        self.assertIsNone(expected, f"seed {seed}, step {step}")
                    else:
                        assert expected is not None, f"seed {seed}, step {step}"
                        out.append((ours, expected))
                record = breaker.statistics()
                model.look(clock.now)
                self.assertEqual(record.state, model.state, f"seed {seed}, step {step}")
                if model.state == "closed":
                    counts = (record.calls, record.failures)
                    self.assertEqual(counts, model.window(clock.now), f"seed {seed}, step {step}")
                seen.add(record.state)
        self.assertEqual(seen, {"closed", "open", "half-open"})


if __name__ == "__main__":
    unittest.main()
