"""What `companions.retrying.adaptive_limit` promises, with made-up latencies."""

from __future__ import annotations

import math
import random
import unittest
from collections.abc import Callable
from typing import Any

from chapter10.companions.retrying.adaptive_limit import (
    DECREASE,
    JUMP,
    MAX_LIMIT,
    MAX_WINDOW,
    AdaptiveLimit,
    LimitError,
    quantile,
)


class Quantiles(unittest.TestCase):
    """The tail, and why the mean says little."""

    def test_a_quantile_is_one_of_the_values(self) -> None:
        """Of 1 to 100 the 95th percentile is 95 and the 99th is 99; of one value everything is that. Claims: I4-084."""
        values = [float(value) for value in range(100, 0, -1)]
        self.assertEqual([quantile(values, share) for share in (0.01, 0.5, 0.95, 0.99, 1)], [1, 50, 95, 99, 100])
        self.assertEqual(quantile([7.0], 0.01), 7.0)
        self.assertEqual(quantile([3, 1, 2.5], 0.5), 2.5)

    def test_the_mean_hides_what_the_tail_shows(self) -> None:
        """97 answers of 0.2 s and three of 5 s: the mean is nobody's time, and the tail is what some wait for.

        Claims: I4-084.
        """
        limit = AdaptiveLimit(window=100)
        for seconds in [0.2] * 97 + [5.0] * 3:
            limit.record(seconds)
        self.assertEqual((limit.quantile(0.5), limit.quantile(0.95), limit.quantile(0.99)), (0.2, 0.2, 5.0))


class TheLimit(unittest.TestCase):
    """Up by one, down by a factor."""

    def feed(self, limit: AdaptiveLimit, seconds: float, windows: int = 1) -> int:
        for _ in range(windows * 10):
            limit.record(seconds)
        return limit.limit

    def test_it_rises_by_one_and_falls_by_a_factor(self) -> None:
        """Steady answers raise it window by window; a tail that jumps cuts it; a tail that is back raises it again.

        Claims: I4-083.
        """
        limit = AdaptiveLimit(1, 20, start=10, window=10)
        self.assertEqual([self.feed(limit, 0.2) for _ in range(4)], [11, 12, 13, 14])
        self.assertEqual(limit.backoff_factor, 1.0)
        self.assertEqual(self.feed(limit, 1.0), int(14 * DECREASE))
        self.assertAlmostEqual(limit.backoff_factor, 5, delta=0.5)
        self.assertLess(self.feed(limit, 1.0), 9)
        before = limit.limit
        self.assertEqual(self.feed(limit, 0.2), before + 1)
        self.assertEqual(limit.backoff_factor, 1.0)

    def test_what_is_not_said_has_a_published_value(self) -> None:
        """From 1 to 64 calls, one step in a hundred answers, and no longer waits before the first one."""
        self.assertEqual((MAX_LIMIT, MAX_WINDOW), (10_000, 10_000))
        limit = AdaptiveLimit()
        self.assertEqual((limit.limit, limit.backoff_factor), (1, 1.0))
        seen = []
        for number in range(1, 6501):
            limit.record(0.2)
            if number in (99, 100, 6500):
                seen.append(limit.limit)
        self.assertEqual(seen, [1, 2, 64])

    def test_the_bounds_are_taken(self) -> None:
        """The widest range, the longest window and the shortest."""
        wide = AdaptiveLimit(1, MAX_LIMIT, start=MAX_LIMIT, window=MAX_WINDOW)
        narrow = AdaptiveLimit(MAX_LIMIT, MAX_LIMIT, start=MAX_LIMIT, window=10)
        self.assertEqual((MAX_LIMIT, MAX_LIMIT), (wide.limit, narrow.limit))

    def test_a_tail_that_grows_a_little_is_no_jump(self) -> None:
        """Up to twice the baseline it goes on rising. Claims: I4-083."""
        limit = AdaptiveLimit(1, 20, window=10)
        self.feed(limit, 0.2)
        self.assertEqual(self.feed(limit, 0.2 * JUMP), 3)

    def test_it_stays_within_its_bounds_whatever_comes(self) -> None:
        """Ten thousand random answers never lead out of 2 to 9. Claims: I4-083."""
        dice = random.Random(5)
        limit = AdaptiveLimit(2, 9, window=10)
        seen = set()
        for _ in range(10_000):
            limit.record(dice.choice((0.1, 0.2, 0.2, 6.0)) * (1 + dice.random()))
            seen.add(limit.limit)
        self.assertTrue(seen <= set(range(2, 10)) and len(seen) > 3, seen)

    def test_one_move_a_window(self) -> None:
        """Between two decisions a whole window of answers passes."""
        limit = AdaptiveLimit(1, 20, window=50)
        moves = []
        for number in range(200):
            before = limit.limit
            limit.record(0.2)
            if limit.limit != before:
                moves.append(number)
        self.assertEqual(moves, [49, 99, 149, 199])

    def test_a_dependency_that_is_slower_for_good_is_accepted_in_the_end(self) -> None:
        """The baseline drifts, so that the limit rises again some day."""
        limit = AdaptiveLimit(1, 20, start=10, window=10)
        self.feed(limit, 0.2)
        self.assertEqual(self.feed(limit, 1.0, 30), 1)
        self.assertGreater(self.feed(limit, 1.0, 60), 10)

    def test_bad_input_is_refused_by_name(self) -> None:
        """Wrong types, booleans, NaN and what is out of range are `bad_input`."""
        wrong: list[Callable[[], object]] = [
            lambda: AdaptiveLimit(0),
            lambda: AdaptiveLimit(5, 4),
            lambda: AdaptiveLimit(True),
            lambda: AdaptiveLimit(1, 10_001),
            lambda: AdaptiveLimit(1, 5, start=6),
            lambda: AdaptiveLimit(window=9),
            lambda: AdaptiveLimit(window=MAX_WINDOW + 1),
            lambda: quantile([], 0.5),
            lambda: AdaptiveLimit().quantile(0.99),
        ]
        shares: list[Any] = [0, 1.1, math.nan, True, "1"]
        wrong += [lambda share=share: quantile([1.0], share) for share in shares]  # type: ignore[misc]
        values: list[Any] = [None, 1, "1", (1.0,), ["1"], [1.0, None], [True]]
        wrong += [lambda value=value: quantile(value, 0.5) for value in values]  # type: ignore[misc]
        times: list[Any] = [0, -1, math.nan, math.inf, True, "1", None]
        wrong += [lambda time=time: AdaptiveLimit().record(time) for time in times]  # type: ignore[misc]
        for make in wrong:
            with self.assertRaises(LimitError) as caught:
                make()
            self.assertEqual(str(caught.exception), "bad_input")


if __name__ == "__main__":
    unittest.main()
