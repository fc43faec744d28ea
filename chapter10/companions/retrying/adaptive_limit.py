"""Let a dependency's slow answers decide how many calls run at once, by its tail and not by its mean.

Most prompts take 200 ms and a few take five seconds: the mean of that says little, and a dependency in trouble shows in
its tail first. So the 99th percentile of the latest answers is compared with the best one seen lately, and the limit
moves as in a network: it falls by a factor when the tail has jumped, and rises by one when it is back.

A1  The limit stays within `low` and `high`, and moves at most once in `window` answers, so that each move shows in
    the answers before the next one.
A2  Memory is the last `window` times and the baseline, whatever the traffic.
A3  While the limit is down, `backoff_factor` says by how much longer retries should wait.

The baseline is the lowest tail so far, and drifts up by `DRIFT` with each decision: a dependency that has become slower
for good is not measured against its youth for ever.

What it does not do: it counts and admits no calls; pass `limit` to whatever does. Errors are the breaker's business.
Source: the document on interruption, section 7 (claims I4-083, I4-084).
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Final

from chapter10.canonical import CodedError
from chapter10.companions.basics.arguments import Arguments

__all__ = ["DECREASE", "DRIFT", "JUMP", "MAX_LIMIT", "MAX_WINDOW", "AdaptiveLimit", "LimitError", "quantile"]

JUMP: Final = 2.0
"""A tail of more than so many times the baseline means congestion."""
DECREASE: Final = 0.7
"""What a jump leaves of the limit."""
DRIFT: Final = 1.02
MAX_LIMIT: Final = 10_000
MAX_WINDOW: Final = 10_000


class LimitError(CodedError, ValueError):
    """Raised for something that is not taken: `bad_input`, with a `reason`; nothing was changed."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__("bad_input")
        self.reason = reason


_whole: Final = Arguments(LimitError).whole


def quantile(values: list[float], share: float) -> float:
    """Return the smallest of the values that at least `share` of them (above 0, at most 1) do not exceed.

    Raises `LimitError` for no values, for what are no numbers and for another share. Source: claim I4-084.
    """
    if type(values) is not list or not set(map(type, values)) <= {int, float}:
        raise LimitError("the values are not a list of numbers")
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise LimitError("the share is not a number above 0 and at most 1")
    if not values:
        raise LimitError("there are no values")
    return sorted(values)[math.ceil(share * len(values)) - 1]


class AdaptiveLimit:
    """A limit for concurrent calls that follows the 99th percentile of their latency; see the module.

    `low`, `high`: the bounds, from 1 to `MAX_LIMIT`; it starts at `start`, or at `low`. `window`: answers that make one
    decision, 10 to `MAX_WINDOW`. Any thread may use it. Raises `LimitError`.
    """

    def __init__(self, low: int = 1, high: int = 64, *, start: int | None = None, window: int = 100) -> None:
        self._low = _whole(low, "low", 1, MAX_LIMIT)
        self._high = _whole(high, "high", low, MAX_LIMIT)
        self._limit = float(low if start is None else _whole(start, "start", low, high))
        self._latest: deque[float] = deque(maxlen=_whole(window, "window", 10, MAX_WINDOW))
        self._since = 0  # answers since the last decision
        self._baseline = math.inf
        self._congested = False
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """How many calls may run at once now."""
        return int(self._limit)

    @property
    def backoff_factor(self) -> float:
        """1.0 in good times; after a jump, the baseline's multiple that the tail had, at most 10."""
        with self._lock:
            return min(max(self._tail() / self._baseline, 1.0), 10.0) if self._congested else 1.0

    def record(self, seconds: float) -> None:
        """Book the latency of one answer, in seconds above zero. Raises `LimitError`."""
        if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
            raise LimitError("the latency is not a finite number above 0")
        with self._lock:
            self._latest.append(seconds)
            self._since += 1
            if self._since == self._latest.maxlen:
                self._since = 0
                self._decide()

    def quantile(self, share: float) -> float:
        """Return a quantile of the latest answers, such as 0.95 or 0.99. Raises `LimitError`."""
        with self._lock:
            return quantile(list(self._latest), share)

    def _decide(self) -> None:
        tail = self._tail()
        self._congested = tail > self._baseline * JUMP
        if self._congested:
            self._limit = max(self._limit * DECREASE, float(self._low))
        else:
            self._limit = min(self._limit + 1, float(self._high))
        self._baseline = min(self._baseline * DRIFT, tail)

    def _tail(self) -> float:
        return quantile(list(self._latest), 0.99)
