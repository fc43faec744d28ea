"""What `companions.retrying.retried` promises: the same retry for what blocks, and as a decorator."""

from __future__ import annotations

import inspect
import threading
import unittest
from contextvars import copy_context
from typing import Any

from chapter10.companions.retrying.circuit_breaker import CircuitBreaker
from chapter10.companions.retrying.retried import retried, retry_blocking
from chapter10.companions.retrying.retry import Attempt, RetryError, RetryPolicy, Status, Stop, retry
from chapter10.tests.support import ManualClock
from chapter10.tests.virtual_time import VirtualLoop, run_virtual

HALF: dict[str, Any] = {"random": lambda: 0.5}


class Lines:
    """A tool that blocks and plays a list: an exception is raised, anything else returned; the last line repeats."""

    def __init__(self, *lines: object) -> None:
        self.lines = lines
        self.attempts: list[Attempt] = []

    def __call__(self, attempt: Attempt) -> Any:
        line = self.lines[min(len(self.attempts), len(self.lines) - 1)]
        self.attempts.append(attempt)
        if isinstance(line, BaseException):
            raise line
        return line


class Blocking(unittest.TestCase):
    """`retry_blocking`: in the calling thread, to its end."""

    def setUp(self) -> None:
        self.clock = ManualClock(500.0)

    def test_it_waits_in_its_own_thread_and_gives_the_value(self) -> None:
        """Two lost answers of a read, two waits, a value; no event loop is there."""
        lines = Lines(TimeoutError(), TimeoutError(), "rows")
        self.assertEqual(retry_blocking(lines, effect="read", sleep=self.clock.sleep, **HALF), "rows")
        self.assertEqual(self.clock.slept, [0.2, 0.4])
        self.assertEqual([attempt.number for attempt in lines.attempts], [1, 2, 3])

    def test_it_asks_the_same_questions(self) -> None:
        """A write stops at a lost answer, goes on when the query says "not done", and ends when it says "done"."""
        answers: dict[str, tuple[Any, Any, int]] = {
            "no query": (None, Stop("outcome_unknown", 1), 1),
            "not done": (lambda key: Status("not_done"), "charged", 2),
            "done": (lambda key: Status("done", f"of {key}"), "of order-7", 1),
            "query fails": (lambda key: 1 / 0, Stop("outcome_unknown", 1), 1),
        }
        for name, (status, expected, calls) in answers.items():
            with self.subTest(name):
                lines, ending = Lines(TimeoutError(), "charged"), None
                try:
                    ending = retry_blocking(
                        lines, effect="reversible_write", key="order-7", status=status, sleep=self.clock.sleep
                    )
                except TimeoutError as error:
                    ending = error.retry_stop  # type: ignore[attr-defined]
                self.assertEqual((ending, len(lines.attempts)), (expected, calls))

    def test_an_interrupt_comes_out_at_once(self) -> None:
        """Ctrl-C in the call or in the wait is not caught, and gives the probe back."""
        for where in ("call", "wait"):
            with self.subTest(where=where):
                breaker = CircuitBreaker(clock=self.clock)

                def wait(seconds: float) -> None:
                    raise KeyboardInterrupt

                lines = Lines(KeyboardInterrupt() if where == "call" else TimeoutError())
                with self.assertRaises(KeyboardInterrupt):
                    retry_blocking(lines, effect="read", sleep=wait, breaker=breaker)
                self.assertEqual(len(lines.attempts), 1)

    def test_layers_share_one_count(self) -> None:
        """Three layers of three tries are three calls here too."""
        three = RetryPolicy(max_attempts=3)
        lines = Lines(TimeoutError())

        def layer(depth: int, call: Any) -> Any:
            inner = call if depth == 0 else (lambda attempt: layer(depth - 1, call))
            return retry_blocking(inner, effect="read", policy=three, sleep=self.clock.sleep)

        with self.assertRaises(TimeoutError):
            layer(2, lines)
        self.assertEqual(len(lines.attempts), 3)

    def test_threads_side_by_side_do_not_take_each_others_retries(self) -> None:
        """Three threads beneath one outer layer have its count each."""
        side_by_side = [Lines(TimeoutError()) for _ in range(3)]

        def read(lines: Lines) -> None:
            with self.assertRaises(TimeoutError):
                retry_blocking(lines, effect="read", policy=RetryPolicy(max_attempts=9), sleep=self.clock.sleep)

        def fan_out(attempt: Attempt) -> None:
            for lines in side_by_side:
                thread = threading.Thread(target=copy_context().run, args=(read, lines))
                thread.start()
                thread.join()

        retry_blocking(fan_out, effect="read", policy=RetryPolicy(max_attempts=3))
        self.assertEqual([len(lines.attempts) for lines in side_by_side], [3, 3, 3])

    def test_a_coroutine_function_is_refused(self) -> None:
        """It would give a coroutine for a value, and nobody would run it."""

        async def later(attempt: Attempt) -> str:
            return "rows"

        async def ask(key: str) -> Status[str]:
            return Status("done")

        for options in ({"fn": later}, {"fn": Lines("rows"), "status": ask}):
            with self.assertRaises(RetryError):
                retry_blocking(effect="read", **options)


class Decorated(unittest.TestCase):
    """`retried`: every call of a function is a call of `retry`."""

    def setUp(self) -> None:
        self.clock = ManualClock(500.0)

    def test_a_function_keeps_its_name_and_gets_its_arguments(self) -> None:
        """Each call counts for itself; `def` waits in its thread, `async def` in its loop."""
        failures = [TimeoutError(), TimeoutError()]

        @retried(effect="read", sleep=self.clock.sleep, **HALF)
        def page(url: str, *, limit: int = 1) -> tuple[str, int]:
            """Read a page."""
            if failures:
                raise failures.pop()
            return url, limit

        self.assertEqual((page.__name__, page.__doc__), ("page", "Read a page."))
        self.assertEqual(page("a", limit=2), ("a", 2))
        self.assertEqual(self.clock.slept, [0.2, 0.4])

        async def sleep(seconds: float) -> None:
            self.clock.sleep(seconds)

        @retried(effect="read", sleep=sleep, **HALF)
        async def later(url: str) -> str:
            if failures:
                raise failures.pop()
            return url

        async def main(loop: VirtualLoop) -> str:
            return await later("b")

        failures.append(TimeoutError())
        self.assertTrue(inspect.iscoroutinefunction(later))
        self.assertEqual(run_virtual(main), "b")
        self.assertEqual(self.clock.slept, [0.2, 0.4, 0.2])

    def test_a_write_sends_the_key_of_its_arguments(self) -> None:
        """The key is made from the call, once, and is in every attempt. Claims: I4-095."""
        sent: list[str | None] = []

        @retried(effect="keyed_write", key=lambda order: f"charge-{order}", sleep=self.clock.sleep)
        def charge(order: int, *, attempt: Attempt | None = None) -> str:
            assert attempt is not None
            sent.append(attempt.key)
            if len(sent) == 1:
                raise ConnectionResetError
            return "charged"

        self.assertEqual(charge(7), "charged")
        self.assertEqual(sent, ["charge-7", "charge-7"])

    def test_the_budget_is_the_one_of_the_call(self) -> None:
        """It is asked for when the function is called, and stops a wait that it does not hold."""
        asked: list[int] = []

        class Short:
            remaining = 100

            def check(self, name: str, minimum_ms: int = 0, *, min_reserve_ms: int = 200) -> int:
                asked.append(min_reserve_ms)
                return 100

        @retried(effect="read", budget=Short, sleep=self.clock.sleep)
        def page() -> str:
            raise TimeoutError

        with self.assertRaises(TimeoutError) as caught:
            page()
        self.assertEqual(caught.exception.retry_stop, Stop("budget_exhausted", 1))  # type: ignore[attr-defined]
        self.assertEqual((asked, self.clock.slept), ([200], []))

    def test_what_cannot_work_is_refused_when_it_is_decorated(self) -> None:
        """An option that there is none of, and a key that would never be sent."""
        with self.assertRaises(RetryError):
            retried(effect="read", tries=3)
        with self.assertRaises(RetryError):

            @retried(effect="keyed_write", key=lambda: "k")
            def charge() -> None:
                """Charge without a key."""

    def test_it_takes_every_option_of_retry(self) -> None:
        """Nothing that `retry` knows is missing from either form."""
        options = {name: None for name in inspect.signature(retry).parameters if name not in ("fn", "effect")}
        self.assertTrue(callable(retried(effect="read", **options)))
        self.assertGreater(len(options), 10)


if __name__ == "__main__":
    unittest.main()
