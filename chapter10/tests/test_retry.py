"""What `companions.retrying.retry` promises, with waits that are written down instead of waited for."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import math
import random
import unittest
import urllib.error
from collections.abc import Awaitable, Callable
from email.message import Message
from types import SimpleNamespace
from typing import Any

from chapter10.companions.effects.idempotency import (
    FailedFinal,
    IdempotencyError,
    IdempotencyStore,
    InProgressError,
    make_intent,
)
from chapter10.companions.effects.messages import PermanentRefusal
from chapter10.companions.interruption.budget import Budget, BudgetExhausted, run_within
from chapter10.companions.retrying.adaptive_caller import AdaptiveCaller, AdaptivePolicy
from chapter10.companions.retrying.circuit_breaker import BreakerError, CircuitBreaker, CircuitOpenError, judge
from chapter10.companions.retrying.retry import (
    CONNECT_RANGE_MS,
    EFFECTS,
    JITTER,
    MAX_ATTEMPTS,
    MAX_KEY,
    OWN_RANGE_MS,
    READ_RANGE_MS,
    Attempt,
    Breaker,
    ConnectFailed,
    ConnectTimedOut,
    Effect,
    Fault,
    ReadTimedOut,
    RetryError,
    RetryPolicy,
    Status,
    Stop,
    TimeLeft,
    TokenBucket,
    Try,
    ValueRejected,
    answer_within,
    asked_wait,
    backoff_ms,
    classify,
    connect_then_read,
    may_retry,
    retry,
)
from chapter10.tests.support import ManualClock
from chapter10.tests.virtual_time import VirtualLoop, pause, run_virtual, virtual

THREE = RetryPolicy(max_attempts=3)


class Script:
    """A tool that plays a list: an exception is raised, anything else returned; the last line repeats."""

    def __init__(self, *lines: object, clock: ManualClock | None = None, takes: float = 0.0) -> None:
        self.lines = lines
        self.attempts: list[Attempt] = []
        self.clock = clock
        self.takes = takes

    @property
    def calls(self) -> int:
        return len(self.attempts)

    async def __call__(self, attempt: Attempt) -> Any:
        line = self.lines[min(self.calls, len(self.lines) - 1)]
        self.attempts.append(attempt)
        if self.clock is not None:
            self.clock.advance(self.takes)
        if isinstance(line, BaseException):
            raise line
        return line


class RetryTestCase(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = ManualClock(500.0)

    async def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def retry(self, fn: Callable[[Attempt], Awaitable[Any]], **options: Any) -> Any:
        """Run `retry` in a loop of its own, with waits on the hand-moved clock and the middle of the jitter."""
        settings: dict[str, Any] = {"effect": "read", "policy": THREE, "sleep": self.sleep, "random": lambda: 0.5}
        return run_virtual(lambda loop: retry(fn, **settings | options))

    def assert_stops(self, kind: type[BaseException], fn: Any, reason: str, attempts: int, **options: Any) -> Any:
        """The last error is of this kind, and says why there was no further attempt."""
        with self.assertRaises(kind) as caught:
            self.retry(fn, **options)
        self.assertEqual(getattr(caught.exception, "retry_stop", None), Stop(reason, attempts))  # type: ignore[arg-type]
        self.assertIn(f"retry stopped: {reason} after {attempts} of ", caught.exception.__notes__[-1])
        return caught.exception


class Waits(unittest.TestCase):
    """The pure arithmetic of the wait."""

    def test_the_first_waits_are_those_of_the_document(self) -> None:
        """Attempt 0 waits 100 to 299 ms, attempt 1 200 to 599, in whole milliseconds. Claims: I4-072, I4-073."""
        low, high = (lambda: 0.0), (lambda: math.nextafter(1.0, 0.0))
        self.assertEqual((backoff_ms(0, random=low), backoff_ms(0, random=high)), (100, 299))
        self.assertEqual((backoff_ms(1, random=low), backoff_ms(1, random=high)), (200, 599))
        self.assertEqual([backoff_ms(n, random=lambda: 0.5) for n in range(5)], [200, 400, 800, 1600, 3200])

    def test_no_wait_exceeds_the_cap_and_the_spread_is_whole_at_it(self) -> None:
        """At the cap the waits are 10 to 30 s: fifty to a hundred and fifty per cent of two thirds of it.

        Claims: I4-072, I4-073, I4-100.
        """
        dice = random.Random(7)
        waits = [backoff_ms(30, random=dice.random) for _ in range(5000)]
        self.assertGreaterEqual(min(waits), 10_000)
        self.assertLessEqual(max(waits), 30_000)
        self.assertGreater(max(waits) / min(waits), 2.9)
        self.assertEqual(JITTER, (0.5, 1.5))

    def test_seeded_waits_repeat(self) -> None:
        """The same seed gives the same waits; two clients do not wake together. Claims: I4-073."""

        def waits(seed: int) -> list[int]:
            dice = random.Random(seed)
            return [backoff_ms(n, random=dice.random) for n in range(10)]

        self.assertEqual(waits(1), waits(1))
        self.assertNotEqual(waits(1), waits(2))

    def test_bad_input_is_refused_by_name(self) -> None:
        """Wrong types, negatives and a random source out of its range are `bad_input`."""
        wrong: list[Callable[[], object]] = [
            lambda: backoff_ms(-1),
            lambda: backoff_ms(True),
            lambda: backoff_ms(1.5),  # type: ignore[arg-type]
            lambda: backoff_ms(0, base_ms=0),
            lambda: backoff_ms(0, max_ms=0),
            lambda: backoff_ms(0, random=lambda: 1.0),
            lambda: backoff_ms(0, random=lambda: -0.1),
            lambda: backoff_ms(0, random=lambda: math.nan),
            lambda: RetryPolicy(max_attempts=0),
            lambda: RetryPolicy(max_attempts=101),
            lambda: RetryPolicy(max_attempts=True),
            lambda: RetryPolicy(base_backoff_ms=0),
            lambda: RetryPolicy(max_backoff_ms=1.5),  # type: ignore[arg-type]
            lambda: RetryPolicy.from_max_retries(-1),
            lambda: TokenBucket(-1),
            lambda: TokenBucket(1, math.nan),
            lambda: TokenBucket(1, True),
        ]
        for make in wrong:
            with self.assertRaisesRegex(RetryError, "^bad_input$"):
                make()

    def test_the_bounds_are_taken_and_what_is_beyond_is_not(self) -> None:
        """The smallest and the largest of each number, and the next one on either side."""

        def policy(name: str) -> Callable[[Any], object]:
            return lambda value: RetryPolicy(**{name: value})

        largest = 2**31
        for make, low, high in (
            (policy("max_attempts"), 1, MAX_ATTEMPTS),
            (policy("base_backoff_ms"), 1, largest),
            (policy("max_backoff_ms"), 1, largest),
            (RetryPolicy.from_max_retries, 0, MAX_ATTEMPTS - 1),
            (TokenBucket, 0, largest),
            (lambda value: TokenBucket(1, value), 0, 1),
            (lambda value: backoff_ms(value), 0, 2**63 - 1),
            (lambda value: backoff_ms(0, base_ms=value), 1, largest),
            (lambda value: backoff_ms(0, max_ms=value), 1, largest),
        ):
            for value in (low, high):
                make(value)
            for value in (low - 1, high + 1):
                with self.subTest(make=make, value=value), self.assertRaises(RetryError):
                    make(value)


class Policies(unittest.TestCase):
    """The figures, and the names that stand for them."""

    def test_what_is_not_said_has_a_published_value(self) -> None:
        """A stock of ten that refills by tenths, waits of 0.2 to 30 s, and time-outs that were the whole limit."""
        self.assertEqual((MAX_ATTEMPTS, MAX_KEY), (100, 500))
        bucket = TokenBucket()
        self.assertEqual(bucket.tokens, 10)
        self.assertTrue(bucket.take())
        bucket.succeeded()
        self.assertEqual(bucket.tokens, 9.1)
        highest = math.nextafter(1.0, 0.0)
        self.assertEqual([backoff_ms(number, random=lambda: highest) for number in (0, 30)], [299, 29_999])
        self.assertTrue(ConnectTimedOut().whole_limit and ReadTimedOut().whole_limit)
        self.assertEqual(ReadTimedOut().late_value, ())

    def test_what_is_asked_of_a_budget_and_a_breaker_is_what_they_take(self) -> None:
        """The same parameters with the same defaults."""
        for asked, taken in ((TimeLeft.check, Budget.check), (Breaker.check, CircuitBreaker.check)):
            self.assertEqual(
                [(each.name, each.kind, each.default) for each in inspect.signature(asked).parameters.values()],
                [(each.name, each.kind, each.default) for each in inspect.signature(taken).parameters.values()],
            )

    def test_the_policy_of_the_document_has_its_figures(self) -> None:
        """Six names with six defaults, each of which can be set. Claims: I4-069, I4-070."""
        self.assertEqual(
            dataclasses.asdict(AdaptivePolicy()),
            {"base_timeout_ms": 5000, "max_retries": 3, "base_backoff_ms": 200, "max_backoff_ms": 30_000}
            | {"cb_failure_threshold": 10, "cb_reset_timeout_s": 30},
        )
        self.assertEqual(AdaptivePolicy().retry_policy(), RetryPolicy())
        self.assertEqual(AdaptivePolicy(max_retries=0, base_timeout_ms=9000).retry_policy().read_timeout_ms, 9000)

    def test_attempts_include_the_first_and_retries_do_not(self) -> None:
        """Three retries are four attempts, and the conversion has a name. Claims: C10-202."""
        self.assertEqual(RetryPolicy.from_max_retries(3).max_attempts, 4)
        self.assertEqual(RetryPolicy.from_max_retries(0).max_attempts, 1)
        with self.assertRaises(RetryError) as caught:
            RetryPolicy.from_max_retries(MAX_ATTEMPTS)
        self.assertIn("max_retries", caught.exception.reason)  # the name that the caller has used

    def test_connecting_and_reading_have_two_limits(self) -> None:
        """1 to 2 s and 5 to 30 s; what is outside is refused. Claims: I4-082, I4-098."""
        self.assertEqual((CONNECT_RANGE_MS, READ_RANGE_MS), ((1000, 2000), (5000, 30_000)))
        policy = RetryPolicy()
        self.assertEqual((policy.connect_timeout_ms, policy.read_timeout_ms), (1500, 5000))
        for name, values in (("connect_timeout_ms", (999, 2001)), ("read_timeout_ms", (4999, 30_001))):
            for value in values:
                with self.subTest(name=name, value=value), self.assertRaises(RetryError):
                    RetryPolicy(**{name: value})  # type: ignore[arg-type]

    def test_who_has_figures_of_their_own_may_use_them(self) -> None:
        """A service of 300 ms and a model that thinks for five minutes have limits too, from 1 ms to an hour."""
        self.assertEqual(OWN_RANGE_MS, (1, 3_600_000))
        for connect_ms, read_ms in ((50, 300), (1500, 300_000), (1, 3_600_000), (3_600_000, 1)):
            policy = RetryPolicy(connect_timeout_ms=connect_ms, read_timeout_ms=read_ms, limits="own")
            self.assertEqual(Attempt(1, None, policy).read_limit(), (read_ms / 1000, True))
        for values in ({"connect_timeout_ms": 0}, {"read_timeout_ms": 3_600_001}, {"limits": "any"}):
            with self.subTest(values=values), self.assertRaises(RetryError):
                RetryPolicy(**{"limits": "own", **values})  # type: ignore[arg-type]


class Effects(RetryTestCase):
    """The first question: may this action be repeated after this fault?"""

    def test_the_table_of_effects(self) -> None:
        """Effect, fault, key and status give the answers that the module shows. Claims: C10-196, C10-197."""
        for effect in EFFECTS:
            for key in (False, True):
                for done in (False, True):
                    self.assertTrue(may_retry(effect, "not_sent", has_key=key, not_done=done))
                    self.assertFalse(may_retry(effect, "permanent", has_key=key, not_done=done))
                    asked = effect == "reversible_write" and key and done
                    expected = effect == "read" or asked or (effect == "keyed_write" and key)
                    self.assertEqual(may_retry(effect, "unknown", has_key=key, not_done=done), expected)
        self.assertFalse(may_retry("reversible_write", "unknown", has_key=True))  # what is not said is not so
        self.assertFalse(may_retry("reversible_write", "unknown", not_done=True))

    def test_errors_say_what_they_say_by_their_type(self) -> None:
        """A failed connect was not sent, a lost answer is unknown, all else is permanent. Claims: C10-195."""
        table: list[tuple[Exception, Fault]] = [
            (ConnectFailed(), "not_sent"),
            (ConnectTimedOut(), "not_sent"),
            (ConnectionRefusedError(), "not_sent"),
            (ReadTimedOut(), "unknown"),
            (TimeoutError(), "unknown"),
            (ConnectionResetError(), "unknown"),
            (ValueError(), "permanent"),
            (PermissionError(), "permanent"),
            (ExceptionGroup("g", [ConnectFailed(), ExceptionGroup("h", [ConnectTimedOut()])]), "not_sent"),
            (ExceptionGroup("g", [ConnectFailed(), TimeoutError()]), "unknown"),
            (ExceptionGroup("g", [ConnectFailed(), ValueError(), TimeoutError()]), "permanent"),
        ]
        for error, fault in table:
            with self.subTest(error=error):
                self.assertEqual(classify(error), fault)

    def test_a_group_of_the_callers_mistakes_is_no_failure_of_the_dependency(self) -> None:
        """A tool that uses a task group is judged by what happened in it."""
        for errors, failures in (([ValueError(), TypeError()], 0), ([ValueError(), ConnectionResetError()], 1)):
            breaker = CircuitBreaker(clock=self.clock)
            with self.assertRaises(ExceptionGroup):
                self.retry(Script(ExceptionGroup("g", errors)), breaker=breaker)
            self.assertEqual(breaker.failures, failures)

    def test_a_read_is_repeated_after_a_lost_answer(self) -> None:
        """Two failures and a value are three attempts with two waits. Claims: C10-196."""
        script = Script(TimeoutError(), ConnectionResetError(), "rows")
        self.assertEqual(self.retry(script), "rows")
        self.assertEqual((script.calls, self.clock.slept), (3, [0.2, 0.4]))
        self.assertEqual([attempt.number for attempt in script.attempts], [1, 2, 3])

    def test_a_lost_answer_of_a_write_stops_at_once(self) -> None:
        """The charge is made once: no second attempt, no wait, and the reason is on the error.

        Claims: C10-196, I4-001.
        """
        for effect in ("reversible_write", "irreversible_write"):
            script = Script(ReadTimedOut())
            self.assert_stops(ReadTimedOut, script, "outcome_unknown", 1, effect=effect, key="order-7")
            self.assertEqual((script.calls, self.clock.slept), (1, []))

    def test_a_failed_connect_may_be_repeated_by_everybody(self) -> None:
        """Nothing was sent, so even an irreversible write goes on. Claims: I4-082."""
        for effect in EFFECTS:
            script = Script(ConnectTimedOut(), ConnectFailed(), "done")
            self.assertEqual(self.retry(script, effect=effect, key="order-7"), "done")

    def test_a_write_whose_key_the_other_side_keeps_is_sent_again(self) -> None:
        """Under the same key and without a status query; without a key it is no such write. Claims: I4-095."""
        script = Script(ReadTimedOut(), ConnectionResetError(), "charged")
        self.assertEqual(self.retry(script, effect="keyed_write", key="order-7"), "charged")
        self.assertEqual([attempt.key for attempt in script.attempts], ["order-7"] * 3)
        with self.assertRaises(RetryError):
            self.retry(script, effect="keyed_write")
        self.assertEqual(script.calls, 3)

    def test_a_value_that_is_no_good_is_a_failed_attempt(self) -> None:
        """It is asked for again, comes out in an error at last, and is held against nobody."""
        busy: Any = {"state": "busy"}
        breaker = CircuitBreaker(clock=self.clock)

        def reject(value: Any) -> Fault | None:
            return "unknown" if value == busy else "permanent" if value == "gone" else None

        script = Script(busy, busy, "rows")
        self.assertEqual(self.retry(script, reject=reject, breaker=breaker), "rows")
        self.assertEqual((script.calls, breaker.failures), (3, 0))
        error = self.assert_stops(ValueRejected, Script(busy), "attempts_exhausted", 3, reject=reject)
        self.assertEqual((str(error), error.value, error.fault), ("value_rejected", busy, "unknown"))
        self.assert_stops(ValueRejected, Script("gone"), "permanent", 1, reject=reject)
        write: dict[str, Any] = {"effect": "irreversible_write", "reject": reject}
        self.assert_stops(ValueRejected, Script(busy), "outcome_unknown", 1, **write)
        self.assert_stops(ReadTimedOut, Script(ReadTimedOut(late_value=(busy,))), "outcome_unknown", 1, **write)

    def test_every_attempt_is_told_to_whoever_asks(self) -> None:
        """Its number, its error and what follows; a listener that raises changes nothing."""
        lost, refused = TimeoutError(), ValueError()
        for lines, heard in (
            ((lost, "rows"), [Try(1, lost, 0.2), Try(2)]),
            ((lost, refused), [Try(1, lost, 0.2), Try(2, refused, None, "permanent")]),
            ((ReadTimedOut(late_value=("rows",)),), [Try(1, ReadTimedOut())]),
        ):
            seen: list[Try] = []

            def observe(each: Try, seen: list[Try] = seen) -> None:
                seen.append(each)
                raise RuntimeError

            with contextlib.suppress(ValueError):
                self.retry(Script(*lines), observe=observe)
            self.assertEqual(len(seen), len(heard))
            for ours, right in zip(seen, heard, strict=True):
                self.assertEqual((ours.number, ours.wait_s, ours.reason), (right.number, right.wait_s, right.reason))
                self.assertIs(type(ours.error), type(right.error))

    def test_a_permanent_error_is_not_repeated(self) -> None:
        """An illegal month and a missing permission come out at once. Claims: C10-195."""
        for error in (ValueError("month"), PermissionError()):
            script = Script(error)
            self.assert_stops(type(error), script, "permanent", 1)
            self.assertEqual(script.calls, 1)

    def test_what_an_error_means_may_be_said_by_the_caller(self) -> None:
        """A dependency's own "503" is made retryable by a function, never by its text alone."""

        class Busy(Exception):
            pass

        script = Script(Busy(), "rows")
        self.assertEqual(self.retry(script, classify=lambda error: "unknown"), "rows")
        self.assert_stops(Busy, Script(Busy()), "permanent", 1)

    def ask(self, *answers: object) -> tuple[Callable[[str], Awaitable[Status[Any]]], list[str]]:
        """Return a status query that plays a list, and the keys that it was asked for."""
        keys: list[str] = []

        async def status(key: str) -> Status[Any]:
            answer = answers[min(len(keys), len(answers) - 1)]
            keys.append(key)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]

        return status, keys

    def test_a_reversible_write_asks_before_it_repeats(self) -> None:
        """Key and "not done" allow another attempt, with the same key for attempts and query.

        Claims: C10-196, C10-197, I4-095.
        """
        status, keys = self.ask(Status("not_done"))
        script = Script(ReadTimedOut(), "draft 1")
        self.assertEqual(self.retry(script, effect="reversible_write", key="draft:7", status=status), "draft 1")
        self.assertEqual((keys, [attempt.key for attempt in script.attempts]), (["draft:7"], ["draft:7"] * 2))

    def test_a_status_of_done_gives_the_value_of_then(self) -> None:
        """It was done: no second call, whatever the effect. Claims: I4-095."""
        for effect in ("reversible_write", "irreversible_write"):
            status, _ = self.ask(Status("done", {"charge": 1}))
            script = Script(ReadTimedOut())
            self.assertEqual(self.retry(script, effect=effect, key="k", status=status), {"charge": 1})
            self.assertEqual((script.calls, self.clock.slept), (1, []))

    def test_a_status_that_nobody_can_give_leaves_it_unknown(self) -> None:
        """A query that fails, says unknown or answers nonsense allows nothing."""
        for answer in (Status[Any]("unknown"), OSError(), "done", None):
            script = Script(ReadTimedOut())
            write = {"effect": "reversible_write", "key": "k", "status": self.ask(answer)[0]}
            self.assert_stops(ReadTimedOut, script, "outcome_unknown", 1, **write)
            self.assertEqual(script.calls, 1)

    def test_without_time_nobody_is_asked(self) -> None:
        """The attempt used up the budget: the outcome stays unknown, and the real error comes out."""
        status, keys = self.ask(Status("done", 1))
        write: dict[str, Any] = {"effect": "reversible_write", "key": "k", "status": status}
        script = Script(ReadTimedOut(), clock=self.clock, takes=5)
        budget = Budget(5000, clock=self.clock)
        self.assert_stops(ReadTimedOut, script, "outcome_unknown", 1, budget=budget, **write)
        self.assertEqual(keys, [])
        script = Script(ReadTimedOut(), clock=self.clock, takes=4.5)
        budget = Budget(5000, clock=self.clock)
        self.assertEqual(self.retry(script, budget=budget, **write), 1)  # half a second was enough

    def test_without_a_key_nobody_is_asked(self) -> None:
        """A status query needs the name of the intent; a read and a fault that will come again ask nobody either."""
        cases: tuple[tuple[Exception, str, dict[str, Any]], ...] = (
            (ReadTimedOut(), "outcome_unknown", {"effect": "reversible_write"}),
            (ReadTimedOut(), "attempts_exhausted", {"key": "k", "policy": RetryPolicy(max_attempts=1)}),
            (ValueError(), "permanent", {"effect": "reversible_write", "key": "k", "classify": lambda _: "permanent"}),
        )
        for error, reason, options in cases:
            with self.subTest(reason):
                status, keys = self.ask(Status("done", 1))
                self.assert_stops(type(error), Script(error), reason, 1, status=status, **options)
                self.assertEqual(keys, [])

    def test_what_was_surely_not_sent_needs_no_query(self) -> None:
        """The connection was never made: the next attempt comes at once, whatever the status would say."""
        status, keys = self.ask(Status("done", "another"))
        script = Script(ConnectFailed(), "sent")
        self.assertEqual(self.retry(script, effect="reversible_write", key="k", status=status), "sent")
        self.assertEqual(keys, [])

    def test_an_irreversible_write_is_not_repeated_even_if_it_was_not_done(self) -> None:
        """A machine does not send it again; the reason says so."""
        write = {"effect": "irreversible_write", "key": "k", "status": self.ask(Status("not_done"))[0]}
        self.assert_stops(ReadTimedOut, Script(ReadTimedOut()), "effect_forbids", 1, **write)

    def test_an_order_that_is_charged_twice_is_charged_once(self) -> None:
        """The answer is lost after the charge; the service knows the key, and the balance falls once.

        Claims: I4-006, I4-095.
        """
        balance, known, seen = [1000], {}, []

        async def charge(attempt: Attempt) -> str:
            seen.append(attempt.key)
            if attempt.key not in known:
                known[attempt.key] = "charged"
                balance[0] -= 300
                raise ReadTimedOut
            return known[attempt.key]

        async def status(key: str) -> Status[str]:
            seen.append(key)
            return Status("not_done")  # a service that is late to know: the key still guards the second attempt

        value = self.retry(charge, effect="reversible_write", key="order-7", status=status)
        self.assertEqual((value, balance, seen), ("charged", [700], ["order-7"] * 3))

    def test_a_late_answer_is_an_answer(self) -> None:
        """What came within the grace after the read limit is known to be done, and is not asked for again."""
        script = Script(ReadTimedOut(late_value=("charged",)))
        self.assertEqual(self.retry(script, effect="irreversible_write"), "charged")
        self.assertEqual(script.calls, 1)


class Limits(RetryTestCase):
    """Attempts, budget, bucket and breaker."""

    def test_max_attempts_counts_the_first(self) -> None:
        """Three attempts, two waits, the last error. Claims: C10-202."""
        errors = [TimeoutError("1"), TimeoutError("2"), TimeoutError("3")]
        error = self.assert_stops(TimeoutError, Script(*errors), "attempts_exhausted", 3)
        self.assertIs(error, errors[2])
        self.assertEqual(len(self.clock.slept), 2)

    def test_no_wait_leads_into_certain_failure(self) -> None:
        """300 ms left and a wait of 400: it stops at once with the real error. Claims: I4-102."""
        budget = Budget(900, clock=self.clock)
        script = Script(ConnectionResetError("503"), clock=self.clock, takes=0.2)
        self.assert_stops(ConnectionResetError, script, "budget_exhausted", 2, budget=budget)
        # 900 - 200 - 200 (wait) - 200 = 300 ms left, and the next wait would be 400 ms.
        self.assertEqual((script.calls, self.clock.slept, budget.remaining), (2, [0.2], 300))

    def test_the_wait_and_one_more_attempt_must_fit_and_equal_is_enough(self) -> None:
        """A wait of 200 ms and the larger minimum, which is 200 if nobody says another, and at least one."""
        for minima, left, calls in (
            ({}, 400, 2), ({}, 399, 1), ({"minimum_ms": 300}, 500, 2), ({"minimum_ms": 300}, 499, 1),
            ({"min_reserve_ms": 0}, 201, 2), ({"min_reserve_ms": 0}, 200, 1),
        ):  # fmt: skip
            with self.subTest(minima=minima, left=left):
                self.clock.now = 500.0
                script = Script(TimeoutError(), "rows")
                with contextlib.suppress(TimeoutError):
                    self.retry(script, budget=Budget(left, clock=self.clock), **minima)
                self.assertEqual(script.calls, calls)
        self.assertEqual(self.retry(Script("rows"), budget=Budget(200, clock=self.clock)), "rows")

    def test_the_budget_is_looked_at_again_after_the_wait(self) -> None:
        """A wait that took longer than it was meant to leaves no time: the real error comes out, nothing is called."""

        async def oversleep(seconds: float) -> None:
            self.clock.advance(60)

        script, rest = Script(ConnectionResetError()), {"budget": Budget(5000, clock=self.clock), "sleep": oversleep}
        error = self.assert_stops(ConnectionResetError, script, "budget_exhausted", 1, **rest)
        self.assertIsInstance(error.__context__, BudgetExhausted)
        self.assertEqual(script.calls, 1)

    def test_without_time_for_the_first_attempt_nothing_is_called(self) -> None:
        """The budget's own error comes out, since there is no other. Claims: I4-102."""
        script = Script("rows")
        with self.assertRaises(BudgetExhausted):
            self.retry(script, budget=Budget(199, clock=self.clock))
        self.assertEqual(script.calls, 0)

    def test_a_bucket_bounds_the_retries_of_all_callers(self) -> None:
        """Ten callers with two retries each add no more than the five that are in stock."""
        bucket = TokenBucket(5, 0.5)
        script = Script(TimeoutError())
        reasons = []
        for _ in range(10):
            with self.assertRaises(TimeoutError) as caught:
                self.retry(script, bucket=bucket)
            reasons.append(caught.exception.retry_stop.reason)  # type: ignore[attr-defined]
        self.assertEqual((script.calls, bucket.tokens), (15, 0.0))
        self.assertEqual(reasons[-1], "bucket_empty")

    def test_a_retry_that_is_not_made_costs_the_others_nothing(self) -> None:
        """Ten callers give up during their wait, and one has no time left after it: the stock is whole.

        A hundred users who leave would else take every retry from those who stay.
        """
        bucket = TokenBucket(10, 0)

        async def never(seconds: float) -> None:
            await asyncio.get_running_loop().create_future()

        async def main(loop: VirtualLoop) -> None:
            for _ in range(10):
                task = loop.create_task(retry(Script(TimeoutError()), effect="read", bucket=bucket, sleep=never))
                while bucket.tokens == 10:
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                self.assertEqual((task.cancelled(), bucket.tokens), (True, 10))

        run_virtual(main)

        async def oversleeps(seconds: float) -> None:
            self.clock.advance(3600)

        budget = Budget(10_000, clock=self.clock)
        self.assert_stops(
            TimeoutError, Script(TimeoutError()), "budget_exhausted", 1, bucket=bucket, budget=budget, sleep=oversleeps
        )
        self.assertEqual(bucket.tokens, 10)

    def test_successes_fill_the_bucket_again_up_to_its_size(self) -> None:
        """A healthy dependency earns retries back, slowly."""
        bucket = TokenBucket(2, 0.5)
        self.assertEqual([bucket.take(), bucket.take(), bucket.take()], [True, True, False])
        for expected in (0.5, 1.0, 1.5, 2.0, 2.0):
            self.retry(Script("rows"), bucket=bucket)
            self.assertEqual(bucket.tokens, expected)

    def test_a_wait_that_the_other_side_asks_for_is_kept_within_the_cap(self) -> None:
        """An error's `retry_after` or the header of an HTTP answer, where it is longer than our own wait."""
        asked: Any = InProgressError("k", 7.0)
        refused = urllib.error.HTTPError("http://host", 503, "", Message(), None)
        refused.headers["Retry-After"] = "9"
        policy = RetryPolicy(max_attempts=2, max_backoff_ms=8000)
        grouped = ExceptionGroup("two", [ConnectFailed(), asked])
        for error, expected in ((asked, 7.0), (refused, 8.0), (ConnectFailed(), 0.2), (grouped, 7.0)):
            before = self.clock()
            self.assertEqual("rows", self.retry(Script(error, "rows"), policy=policy))
            self.assertAlmostEqual(expected, self.clock() - before)
        refused.headers.replace_header("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")
        for number in (refused, *(InProgressError("k", wait) for wait in (math.nan, math.inf, -1.0, True, "1"))):  # type: ignore[arg-type]
            self.assertEqual(0.0, asked_wait(number))

    async def inner(self, script: Script, **options: Any) -> Any:
        """A layer below another one, with three attempts of its own."""
        return await retry(script, effect="read", policy=THREE, sleep=self.sleep, random=lambda: 0.5, **options)

    def test_stacked_layers_make_the_attempts_of_one(self) -> None:
        """Three layers of three tries make three calls, not twenty-seven. Claims: C10-206."""
        script = Script(TimeoutError())

        async def runtime(attempt: Attempt) -> Any:
            layer: Any = lambda attempt: self.inner(script)  # noqa: E731
            return await self.inner(layer)

        with self.assertRaises(TimeoutError):
            self.retry(runtime)
        self.assertEqual(script.calls, 3)

    def test_a_layer_that_succeeds_earns_the_chain_no_attempts(self) -> None:
        """The inner call needs one retry and the outer one another; after that the two of the chain are used up."""
        script = Script(TimeoutError(), "part", TimeoutError(), "part")

        async def runtime(attempt: Attempt) -> Any:
            await self.inner(script)
            raise TimeoutError

        with self.assertRaises(TimeoutError):
            self.retry(runtime)
        self.assertEqual(script.calls, 3)

    def test_reads_side_by_side_leave_each_other_their_retries(self) -> None:
        """Twenty under one layer that fail twice each all succeed at the third try, however few run at once."""
        for at_once in (20, 3):
            scripts = [Script(ConnectFailed(), ConnectFailed(), number) for number in range(20)]
            places = asyncio.Semaphore(at_once)

            async def read(script: Script, places: asyncio.Semaphore = places) -> Any:
                async with places:
                    return await self.inner(script)

            async def fan_out(attempt: Attempt, scripts: list[Script] = scripts, read: Any = read) -> list[Any]:
                return await asyncio.gather(*map(read, scripts))

            self.assertEqual(list(range(20)), self.retry(fan_out))

    def test_the_layer_above_has_used_what_the_most_eager_path_has(self) -> None:
        """One of two reads fails three times, so nothing is left for another round of both."""
        good, bad = Script("a", "b", "c"), Script(*[ConnectFailed() for _ in range(9)])

        async def both(attempt: Attempt) -> Any:
            return await asyncio.gather(self.inner(good), self.inner(bad))

        with self.assertRaises(ConnectFailed):
            self.retry(both, policy=RetryPolicy(max_attempts=3))
        self.assertEqual((1, 3), (good.calls, bad.calls))

    def test_calls_one_after_the_other_on_a_path_share_its_count(self) -> None:
        """A task that makes two calls has no more retries for them than one call has."""
        first, second = Script(ConnectFailed(), ConnectFailed(), "a"), Script(ConnectFailed(), "b")

        async def path() -> None:
            await self.inner(first)
            await self.inner(second)

        with self.assertRaises(ConnectFailed):
            self.retry(lambda attempt: asyncio.gather(path()), policy=RetryPolicy(max_attempts=3))
        self.assertEqual((3, 1), (first.calls, second.calls))

    def test_a_layer_with_errors_of_its_own_counts_for_itself(self) -> None:
        """`new_chain` starts a count of its own, and the product is then somebody's decision."""
        script = Script(TimeoutError())
        with self.assertRaises(TimeoutError):
            self.retry(lambda attempt: self.inner(script, new_chain=True), policy=RetryPolicy(max_attempts=2))
        self.assertEqual(script.calls, 6)

    def test_one_chain_leaves_nothing_for_the_next(self) -> None:
        """The count ends with the outermost call: a later call has all its attempts."""
        for _ in range(2):
            script = Script(TimeoutError())
            with self.assertRaises(TimeoutError):
                self.retry(script)
            self.assertEqual(script.calls, 3)

    def opened(self, failures: int = 10) -> CircuitBreaker:
        breaker = CircuitBreaker(clock=self.clock)
        for _ in range(failures):
            breaker.acquire().failure()
        return breaker

    def test_an_open_circuit_refuses_the_first_attempt(self) -> None:
        """The breaker's own error comes out, and nothing is called. Claims: I4-078."""
        script = Script("rows")
        with self.assertRaises(CircuitOpenError):
            self.retry(script, breaker=self.opened())
        self.assertEqual(script.calls, 0)

    def test_a_circuit_that_opens_in_between_ends_the_loop_with_the_real_error(self) -> None:
        """No further call and no wait; the real error, with the open circuit as its context. Claims: I4-078."""
        breaker = self.opened(9)
        bucket = TokenBucket(5)
        script = Script(ConnectionResetError())
        error = self.assert_stops(ConnectionResetError, script, "circuit_open", 1, breaker=breaker, bucket=bucket)
        self.assertIsInstance(error.__context__, CircuitOpenError)
        self.assertEqual((script.calls, self.clock.slept, bucket.tokens), (1, [], 5))

    def test_a_wait_that_lasts_until_the_circuit_lets_a_call_through_is_made(self) -> None:
        """It opens for 200 ms, and the wait is as long: the attempt after it is the probe."""
        self.clock.now = 0.0
        breaker = CircuitBreaker(clock=self.clock, min_calls=1, reset_s=0.2)

        async def a_little_longer(seconds: float) -> None:
            self.clock.advance(seconds + 0.001)

        script = Script(ConnectionResetError(), "rows")
        self.assertEqual(self.retry(script, breaker=breaker, sleep=a_little_longer), "rows")
        self.assertEqual((script.calls, breaker.state), (2, "closed"))

    def test_a_circuit_that_others_open_during_the_wait_ends_the_loop(self) -> None:
        """After the wait the permit is refused, and the real error comes out."""
        breaker = CircuitBreaker(clock=self.clock)

        async def meanwhile(seconds: float) -> None:
            for _ in range(10):
                with contextlib.suppress(CircuitOpenError):
                    breaker.acquire().failure()

        script = Script(ConnectionResetError())
        error = self.assert_stops(ConnectionResetError, script, "circuit_open", 1, breaker=breaker, sleep=meanwhile)
        self.assertIsInstance(error.__context__, CircuitOpenError)

    def test_the_four_questions_are_asked_in_order_and_before_the_wait(self) -> None:
        """Each refusal stops the questions behind it, and only four times yes lets it sleep."""
        asked: list[str] = []

        class Watched(TokenBucket):
            def take(self) -> bool:
                asked.append("bucket")
                return super().take()

        class WatchedBreaker(CircuitBreaker):
            def check(self, after_s: float = 0.0) -> None:
                asked.append("breaker")
                super().check(after_s)

        class WatchedBudget:
            remaining_ms = 10_000

            @property
            def remaining(self) -> int:
                asked.append("budget")
                return self.remaining_ms

            def check(self, name: str, minimum_ms: int = 0, *, min_reserve_ms: int = 200) -> int:
                return self.remaining_ms

        async def sleep(seconds: float) -> None:
            asked.append("sleep")

        def run(effect: Effect, left: int, stock: int, opened: bool) -> list[str]:
            asked.clear()
            budget = WatchedBudget()
            budget.remaining_ms = left
            breaker = WatchedBreaker(clock=self.clock, min_calls=1 if opened else 10)
            with self.assertRaises(TimeoutError):
                self.retry(
                    Script(TimeoutError()),
                    effect=effect,
                    policy=RetryPolicy(max_attempts=2),
                    budget=budget,
                    bucket=Watched(stock),
                    breaker=breaker,
                    sleep=sleep,
                )
            return list(asked)

        self.assertEqual(run("irreversible_write", 10_000, 5, False), [])
        self.assertEqual(run("read", 300, 5, False), ["budget"])
        self.assertEqual(run("read", 10_000, 0, False), ["budget", "bucket"])
        self.assertEqual(run("read", 10_000, 5, True), ["budget", "bucket", "breaker"])
        self.assertEqual(run("read", 10_000, 5, False), ["budget", "bucket", "breaker", "sleep"])

    def test_every_attempt_gives_its_permit_a_verdict(self) -> None:
        """Failures count, mistakes of the caller and small remainders do not, and a broken classifier leaks none."""
        breaker = CircuitBreaker(clock=self.clock)
        with self.assertRaises(TimeoutError):
            self.retry(Script(TimeoutError()), breaker=breaker)
        with self.assertRaises(ValueError):
            self.retry(Script(ValueError()), breaker=breaker)
        with self.assertRaises(ReadTimedOut):
            self.retry(Script(ReadTimedOut(whole_limit=False)), breaker=breaker)

        def broken(error: Exception) -> Fault:
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.retry(Script(TimeoutError()), breaker=breaker, classify=broken)
        record = breaker.statistics()
        self.assertEqual((record.failures, record.neutral, record.permitted), (3, 5, 8))

    def test_what_counts_for_the_breaker_may_be_said_by_the_caller(self) -> None:
        """A function of the caller decides, also for errors that would be judged otherwise."""
        for error, verdict in ((TimeoutError(), False), (ValueError(), True)):
            breaker = CircuitBreaker(clock=self.clock)
            own = {"policy": RetryPolicy(max_attempts=1), "is_failure": lambda error, verdict=verdict: verdict}
            with self.assertRaises(type(error)):
                self.retry(Script(error), breaker=breaker, **own)
            self.assertEqual(breaker.failures, int(verdict))

    def test_a_retry_and_a_breaker_judge_the_same_error_in_the_same_way(self) -> None:
        """Whether a call goes through `retry` or through the breaker alone, the same errors open the circuit."""
        for error in (
            TimeoutError(), ConnectionResetError(), OSError(), RuntimeError(), ConnectFailed(), ReadTimedOut(),
            ReadTimedOut(whole_limit=False), ConnectTimedOut(whole_limit=False), TypeError(), ValueError(), KeyError(),
            AttributeError(), ZeroDivisionError(), AssertionError(), CircuitOpenError(1.0),
        ):  # fmt: skip
            with self.subTest(error=error):
                breaker = CircuitBreaker(clock=self.clock)
                with self.assertRaises(type(error)):
                    self.retry(Script(error), policy=RetryPolicy(max_attempts=1), breaker=breaker)
                record = breaker.statistics()
                self.assertEqual("failure" if record.failures else "neutral", judge(error))
                self.assertEqual(record.failures + record.neutral, 1)

    def test_the_same_error_object_gets_its_note_once(self) -> None:
        """An error that is raised again and again does not grow."""
        error = ValueError()
        for _ in range(3):
            self.assert_stops(ValueError, Script(error), "permanent", 1)
        self.assertEqual(len(error.__notes__), 1)

    def test_an_error_that_takes_no_note_comes_out_all_the_same(self) -> None:
        """A frozen one takes neither the reason nor the note; one of them is no reason to lose the other."""

        @dataclasses.dataclass(frozen=True)
        class Frozen(Exception):
            shard: int

        error = Frozen(7)
        with self.assertRaises(Frozen) as caught:
            self.retry(Script(error))
        self.assertIs(caught.exception, error)

        class OwnReason(Exception):
            @property
            def retry_stop(self) -> str:
                return "mine"

        with self.assertRaises(OwnReason) as other:
            self.retry(Script(OwnReason()))
        self.assertEqual(other.exception.__notes__, ["retry stopped: permanent after 1 of 3 attempts"])

    def test_options_have_their_bounds(self) -> None:
        """An unknown effect, a foreign policy, a flag that is none, an empty key and bad minima: nothing is called."""
        script = Script("rows")
        bad: list[dict[str, Any]] = [
            {"effect": "write"}, {"effect": None}, {"effect": type("Word", (str,), {})("read")},
            {"policy": AdaptivePolicy()}, {"key": ""}, {"key": 7}, {"key": "k" * (MAX_KEY + 1)},
            {"minimum_ms": -1}, {"minimum_ms": 2**31 + 1}, {"min_reserve_ms": True}, {"min_reserve_ms": 2**31 + 1},
            {"new_chain": 1}, {"new_chain": 0}, {"new_chain": None}, {"new_chain": "yes"}, {"new_chain": []},
        ]  # fmt: skip
        for wrong in bad:
            with self.subTest(wrong=wrong), self.assertRaises(RetryError):
                self.retry(script, **wrong)
        self.assertEqual(script.calls, 0)
        for good in (
            {"key": "k"}, {"key": "k" * MAX_KEY},
            {"minimum_ms": 0, "min_reserve_ms": 0}, {"minimum_ms": 2**31, "min_reserve_ms": 2**31},
        ):  # fmt: skip
            with self.subTest(good=good):
                self.assertEqual(self.retry(Script("rows"), **good), "rows")

    def test_a_budget_of_another_kind_is_told_the_name_and_the_minima(self) -> None:
        """What is not said is "tool", nothing for itself and 200 ms for everybody."""
        told: list[tuple[str, int, int]] = []

        class Told:
            remaining = 10_000

            def check(self, name: str, minimum_ms: int = 0, *, min_reserve_ms: int = 200) -> int:
                told.append((name, minimum_ms, min_reserve_ms))
                return self.remaining

        self.retry(Script("rows"), budget=Told())
        self.retry(Script("rows"), budget=Told(), name="orders", minimum_ms=50, min_reserve_ms=10)
        self.assertEqual(told, [("tool", 0, 200), ("orders", 50, 10)])

    def test_a_token_that_was_taken_comes_back_as_one(self) -> None:
        """Two are taken and one is put back; a stock that is full stays so."""
        bucket = TokenBucket(5, 0)
        bucket.take()
        bucket.take()
        bucket.put_back()
        self.assertEqual(bucket.tokens, 4)
        bucket.put_back()
        bucket.put_back()
        self.assertEqual(bucket.tokens, 5)


class Stops(RetryTestCase):
    """Cancel, keyboard interrupt and exit."""

    @virtual
    async def test_a_cancel_during_an_attempt_is_one_attempt(self, loop: VirtualLoop) -> None:
        """No wait, no second attempt, a neutral verdict, and the task ends as cancelled."""
        breaker = CircuitBreaker(clock=self.clock)
        calls: list[int] = []

        async def hang(attempt: Attempt) -> None:
            calls.append(1)
            await pause(600)

        task = loop.create_task(
            retry(hang, effect="read", breaker=breaker, classify=lambda error: "unknown", sleep=self.sleep)
        )
        await pause(1)
        task.cancel()
        await asyncio.wait({task})
        self.assertTrue(task.cancelled())
        self.assertEqual((calls, self.clock.slept, breaker.statistics().neutral), ([1], [], 1))

    @virtual
    async def test_a_cancel_during_the_wait_or_the_status_query_is_the_end(self, loop: VirtualLoop) -> None:
        """What is going on ends at once, no attempt follows, and the cancel goes on."""

        async def status(key: str) -> Status[Any]:
            await pause(600)
            return Status("not_done")

        for error, options in (
            (TimeoutError(), {"effect": "read", "sleep": pause, "random": lambda: 0.5}),
            (ReadTimedOut(), {"effect": "reversible_write", "key": "k", "status": status, "sleep": self.sleep}),
        ):
            script = Script(error)
            task: asyncio.Task[Any] = loop.create_task(retry(script, **options))  # type: ignore[arg-type]
            await pause(0.1)
            task.cancel()
            await asyncio.wait({task})
            self.assertEqual((task.cancelled(), script.calls), (True, 1))

    def test_a_status_that_comes_too_late_is_none(self) -> None:
        """A query that hangs, or ignores its cancel, has the read limit: unknown after five seconds."""

        async def hangs(key: str) -> Status[Any]:
            await pause(600)
            return Status("not_done")

        async def ignores_its_cancel(key: str) -> Status[Any]:
            with contextlib.suppress(asyncio.CancelledError):
                await pause(600)
            return Status("not_done")

        async def main(loop: VirtualLoop, status: Any) -> None:
            with self.assertRaises(ReadTimedOut) as caught:
                await retry(Script(ReadTimedOut()), effect="reversible_write", key="k", status=status)
            self.assertEqual(caught.exception.retry_stop.reason, "outcome_unknown")  # type: ignore[attr-defined]
            self.assertEqual(loop.time(), 1005)

        for status in (hangs, ignores_its_cancel):
            run_virtual(lambda loop, status=status: main(loop, status))  # type: ignore[misc]

    def test_an_interrupt_and_an_exit_are_not_repeated(self) -> None:
        """They come out at once, whatever the policy says is retryable."""
        for stop in (KeyboardInterrupt(), SystemExit(3), GeneratorExit(), BaseExceptionGroup("x", [SystemExit()])):
            script = Script(stop)

            async def catch(script: Script = script) -> BaseException | None:
                try:
                    await retry(script, effect="read", classify=lambda error: "unknown", sleep=self.sleep)
                except BaseException as error:
                    return error
                return None

            self.assertIs(asyncio.run(catch()), stop)
            self.assertEqual((script.calls, self.clock.slept), (1, []))


class TwoLimits(unittest.TestCase):
    """Connecting and reading."""

    def attempt(self, budget: Budget | None = None) -> Attempt:
        return Attempt(1, None, RetryPolicy(), budget)

    def run_phases(
        self, connect_s: float | Exception, read_s: float | Exception, left_ms: int | None = None
    ) -> tuple[object, float, list[str]]:
        """Return the value or error, the seconds it took and what happened to the connection."""
        seen: list[str] = []

        async def connect() -> str:
            if isinstance(connect_s, Exception):
                raise connect_s
            await pause(connect_s)
            return "connection"

        async def read(connection: str) -> str:
            seen.append(f"read from {connection}")
            if isinstance(read_s, Exception):
                raise read_s
            await pause(read_s)
            return "answer"

        async def main(loop: VirtualLoop) -> tuple[object, float, list[str]]:
            budget = None if left_ms is None else Budget(left_ms, clock=loop.time)
            try:
                value: object = await connect_then_read(self.attempt(budget), connect, read)
            except Exception as error:
                value = error
            return value, round(loop.time() - 1000, 6), seen

        return run_virtual(main)

    def test_each_phase_has_its_own_limit_and_the_remainder_cuts_both(self) -> None:
        """1.4 s and 4.9 s are fine; more are two different errors, and the rest of a budget is named as no whole limit.

        Claims: I4-082, I4-098.
        """
        read = ["read from connection"]
        self.assertEqual(self.run_phases(1.4, 4.9), ("answer", 6.3, read))
        for connect_s, read_s, left_ms, kind, whole, expected in (
            (1.6, 1, None, ConnectTimedOut, True, (1.5, [])),
            (1, 5.1, None, ReadTimedOut, True, (6.0, read)),
            (9, 9, 800, ConnectTimedOut, False, (0.8, [])),
            (1, 9, 2000, ReadTimedOut, False, (2.0, read)),
            (1, 9, 0, ConnectTimedOut, False, (0, [])),
        ):
            with self.subTest(connect_s=connect_s, read_s=read_s, left_ms=left_ms):
                error, *told = self.run_phases(connect_s, read_s, left_ms)
                assert isinstance(error, ConnectTimedOut | ReadTimedOut)
                self.assertEqual((type(error), error.whole_limit, tuple(told)), (kind, whole, expected))
                self.assertEqual(str(error), "connect_timed_out" if kind is ConnectTimedOut else "read_timed_out")

    def test_a_refused_connection_was_not_sent(self) -> None:
        """Every operating-system error of connecting is `connect_failed`, with its cause; other errors stay."""
        for cause in (ConnectionRefusedError(), OSError("no route"), TimeoutError()):
            error, _, seen = self.run_phases(cause, 1)
            assert isinstance(error, ConnectFailed)
            self.assertEqual((str(error), error.__cause__, seen), ("connect_failed", cause, []))
        wrong = ValueError("bad address")
        self.assertIs(self.run_phases(wrong, 1)[0], wrong)

    def test_an_error_of_reading_stays_what_it_is(self) -> None:
        """A reset after sending is unknown, a time-out inside is the tool's own."""
        for cause in (ConnectionResetError(), TimeoutError(), KeyError()):
            self.assertIs(self.run_phases(0, cause)[0], cause)

    def test_a_connection_that_comes_too_late_is_discarded(self) -> None:
        """A connect that ignores its cancel and succeeds does not leak its connection; all others leave none."""

        async def stubborn() -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await pause(9)
            return "late connection"

        async def slow() -> str:
            await pause(9)
            return "no connection"

        async def quick() -> str:
            return "connection"

        async def refused() -> str:
            raise OSError

        async def read(connection: str) -> str:
            return "answer"

        def run(connect: Callable[[], Awaitable[str]], cancel_s: float, discard: Any) -> BaseException | None:
            async def main(loop: VirtualLoop) -> BaseException | None:
                task = loop.create_task(connect_then_read(self.attempt(), connect, read, discard=discard))
                loop.call_later(cancel_s, task.cancel)
                await asyncio.wait({task})
                return asyncio.CancelledError() if task.cancelled() else task.exception()

            return run_virtual(main)

        late = ["late connection"]
        for connect, cancel_s, kind, expected in (
            (stubborn, 60, ConnectTimedOut, late),
            (stubborn, 1, asyncio.CancelledError, late),
            (slow, 60, ConnectTimedOut, []),
            (slow, 1, asyncio.CancelledError, []),
            (refused, 60, ConnectFailed, []),
            (quick, 60, type(None), []),
        ):
            with self.subTest(connect=connect.__name__, cancel_s=cancel_s):
                discarded: list[str] = []
                self.assertIs(type(run(connect, cancel_s, discarded.append)), kind)
                self.assertEqual(discarded, expected)
                self.assertIs(type(run(connect, cancel_s, None)), kind)

    def test_a_cancel_of_the_caller_stops_both_phases(self) -> None:
        """No task is left behind, in whichever phase the cancel comes. Claims: I4-098."""
        for moment in (0.5, 2.0):

            async def main(loop: VirtualLoop, moment: float = moment) -> None:
                task = loop.create_task(
                    connect_then_read(self.attempt(), lambda: pause(1), lambda connection: pause(4))
                )
                await pause(moment)
                task.cancel()
                await asyncio.wait({task})
                self.assertTrue(task.cancelled())
                self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

            run_virtual(main)


class TheAdaptiveCaller(unittest.TestCase):
    """The document's caller under its own names."""

    def caller(self, loop: VirtualLoop, effect: Effect = "read") -> AdaptiveCaller:
        return AdaptiveCaller(AdaptivePolicy(), effect=effect, clock=loop.time, sleep=pause, random=lambda: 0.5)

    @virtual
    async def test_it_starts_closed(self, loop: VirtualLoop) -> None:
        """State `closed`, no failures. Claims: I4-071."""
        caller = self.caller(loop)
        self.assertEqual((caller.cb_state, caller.cb_failures, caller.policy), ("closed", 0, AdaptivePolicy()))
        self.assertEqual(AdaptiveCaller(AdaptivePolicy()).cb_state, "closed")

    @virtual
    async def test_a_call_that_always_times_out_is_made_four_times(self, loop: VirtualLoop) -> None:
        """Four attempts of five seconds, three waits, and a TimeoutError. Claims: I4-077."""
        calls: list[tuple[Any, ...]] = []

        async def slow(*args: Any, **kwargs: Any) -> None:
            calls.append((args, kwargs))
            await pause(60)

        caller = self.caller(loop)
        with self.assertRaises(TimeoutError):
            await caller.call(slow, "a", b=1)
        self.assertEqual(calls, [(("a",), {"b": 1})] * 4)
        self.assertAlmostEqual(loop.time() - 1000, 4 * 5 + 0.2 + 0.4 + 0.8)
        self.assertEqual(caller.cb_failures, 4)

    @virtual
    async def test_a_write_that_times_out_is_made_once(self, loop: VirtualLoop) -> None:
        """The same caller with another effect does not repeat (X-25)."""
        calls: list[int] = []

        async def slow() -> None:
            calls.append(1)
            await pause(60)

        with self.assertRaises(TimeoutError):
            await self.caller(loop, "irreversible_write").call(slow)
        self.assertEqual(calls, [1])

    @virtual
    async def test_the_circuit_opens_during_the_retries_and_heals(self, loop: VirtualLoop) -> None:
        """The tenth failure opens it and ends the loop; thirty seconds later one success closes it.

        Claims: I4-078, I4-081.
        """
        calls: list[int] = []

        async def fails() -> None:
            calls.append(1)
            raise ConnectionResetError

        async def works() -> str:
            return "rows"

        caller = self.caller(loop)
        for _ in range(3):
            with self.assertRaises(ConnectionResetError):
                await caller.call(fails)
        self.assertEqual((len(calls), caller.cb_state), (10, "open"))
        with self.assertRaises(CircuitOpenError):
            await caller.call(works)
        await pause(30.5)
        self.assertEqual(await caller.call(works), "rows")
        self.assertEqual(caller.cb_state, "closed")


class Order(unittest.TestCase):
    """The table of the room: a record around a retry around a breaker around one attempt."""

    def endings(self, error: BaseException | None, *, effect: Effect = "irreversible_write", **more: Any) -> list[Any]:
        """Return what the breaker counted, how often it was tried, and the states of the record, now and when asked."""
        clock, tried = ManualClock(), []
        breaker = CircuitBreaker(clock=clock)
        if more.pop("opened", False):
            for _ in range(10):
                breaker.acquire().failure()

        async def attempt(attempt: Attempt) -> str:
            tried.append(attempt.number)
            if error is not None:
                raise error
            return "done"

        async def main() -> None:
            await store.execute_once("n", {"a": 1}, lambda: call())

        def call() -> Awaitable[str]:
            policy = RetryPolicy(max_attempts=2)
            return retry(attempt, effect=effect, policy=policy, breaker=breaker, sleep=pause, **more)

        with IdempotencyStore(clock=clock) as store:
            before = breaker.statistics()
            with contextlib.suppress(BaseException):
                asyncio.run(main())
            seen = breaker.statistics()
            counts = (seen.calls - before.calls, seen.failures - before.failures, seen.neutral)
            return [counts, len(tried), store.look(make_intent("n", {"a": 1})).state]

    def test_each_layer_sees_what_the_table_says(self) -> None:
        """The breaker's calls, failures and neutrals; the attempts; the record. Claims: I4-100."""
        self.assertEqual([(1, 0, 0), 1, "completed"], self.endings(None))
        self.assertEqual([(2, 2, 0), 2, "absent"], self.endings(ConnectFailed()))
        self.assertEqual([(1, 1, 0), 1, "unknown"], self.endings(ReadTimedOut()))
        self.assertEqual([(2, 2, 0), 2, "unknown"], self.endings(ReadTimedOut(), effect="read"))
        self.assertEqual([(0, 0, 1), 1, "absent"], self.endings(PermanentRefusal("no")))
        self.assertEqual([(0, 0, 1), 1, "failed_final"], self.endings(FailedFinal("no")))
        self.assertEqual([(0, 0, 1), 1, "unknown"], self.endings(ReadTimedOut(whole_limit=False)))
        self.assertEqual([(0, 0, 1), 1, "unknown"], self.endings(asyncio.CancelledError()))
        self.assertEqual([(0, 0, 0), 0, "absent"], self.endings(None, opened=True))
        self.assertEqual([(0, 0, 0), 0, "absent"], self.endings(None, budget=Budget(0)))

    def test_an_outcome_is_no_value_to_who_decides_by_errors(self) -> None:
        """`run_within` inside: a failure would be counted, given back and stored as a success."""
        breaker = CircuitBreaker()

        async def within() -> Any:
            return await run_within(Budget(0), "t", asyncio.Event().wait)

        async def value() -> Any:
            return await run_within(None, "t", lambda: asyncio.sleep(0, "done"))

        async def told() -> Any:
            return (await value()).get()

        async def tried(fn: Callable[[], Awaitable[Any]]) -> Any:
            return await retry(lambda attempt: fn(), effect="read", breaker=breaker)

        for inner in (within, value):
            with self.assertRaises(RetryError):
                run_virtual(lambda loop, inner=inner: tried(inner))  # type: ignore[misc]
            with self.assertRaises(BreakerError):
                run_virtual(lambda loop, inner=inner: breaker.call(inner))  # type: ignore[misc]
        self.assertEqual((0, 4), (breaker.statistics().calls, breaker.statistics().neutral))
        self.assertEqual("done", run_virtual(lambda loop: tried(told)))
        self.assertEqual("done", run_virtual(lambda loop: breaker.call(told)))
        with IdempotencyStore() as store:
            for inner, error, state in ((within, BudgetExhausted, "absent"), (value, IdempotencyError, "unknown")):
                with self.assertRaises(error):
                    asyncio.run(store.execute_once("n", {"a": 1}, inner))
                self.assertEqual(state, store.look(make_intent("n", {"a": 1})).state)


class TheAnswer(unittest.TestCase):
    """`answer_within` by itself."""

    def test_without_time_nothing_is_called(self) -> None:
        """The budget ran out: a time-out that is not the dependency's, and no call."""
        called: list[int] = []

        async def answer() -> None:
            called.append(1)

        budget: Any = SimpleNamespace(remaining=0)
        with self.assertRaises(ReadTimedOut) as caught:
            asyncio.run(answer_within(Attempt(1, None, RetryPolicy(), budget), answer))
        self.assertEqual((caught.exception.whole_limit, called), (False, []))

    def test_a_cancel_that_nobody_asked_for_is_a_broken_connection(self) -> None:
        """A client that cancels itself must not look like a cancel of ours."""

        async def answer() -> None:
            raise asyncio.CancelledError

        with self.assertRaises(ConnectionAbortedError):
            asyncio.run(answer_within(Attempt(1, None, RetryPolicy()), answer))


if __name__ == "__main__":
    unittest.main()
