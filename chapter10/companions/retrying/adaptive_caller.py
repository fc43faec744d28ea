"""The document's caller under its own names: one policy, one breaker, one dependency.

It adds nothing to `retrying.retry` and `retrying.circuit_breaker`, which it puts together, but the names and the
figures that a reader of the document looks for. Where the document's code and its text differ, the text holds: the
breaker opens by rate, no wait exceeds its cap, and a write is not repeated blindly. Nothing in it adapts (X-55); for
that see `companions.retrying.adaptive_limit`.
Source: the document on interruption, section 7 (claims I4-069 to I4-071, I4-077, I4-078; X-25, X-50, X-53 to X-55).
"""

from __future__ import annotations

import asyncio
import random as chance
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from chapter10.companions.retrying.circuit_breaker import CircuitBreaker, Clock, State
from chapter10.companions.retrying.retry import Effect, RetryPolicy, Sleep, TimeLeft, TokenBucket, answer_within, retry

__all__ = ["AdaptiveCaller", "AdaptivePolicy"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdaptivePolicy:
    """The document's policy with its figures.

    `base_timeout_ms`: the limit of reading, 5000 to 30,000. `max_retries`: attempts after the first.
    `base_backoff_ms`, `max_backoff_ms`: the first and the longest wait. `cb_failure_threshold`: the fewest calls in the
    window that may open the circuit (X-50). `cb_reset_timeout_s`: how long it stays open. Source: claim I4-070.
    """

    base_timeout_ms: int = 5000
    max_retries: int = 3
    base_backoff_ms: int = 200
    max_backoff_ms: int = 30_000
    cb_failure_threshold: int = 10
    cb_reset_timeout_s: int = 30

    def retry_policy(self) -> RetryPolicy:
        """Return the part of it that `retry` takes. Raises `RetryError`."""
        return RetryPolicy.from_max_retries(
            self.max_retries,
            base_backoff_ms=self.base_backoff_ms,
            max_backoff_ms=self.max_backoff_ms,
            read_timeout_ms=self.base_timeout_ms,
        )


class AdaptiveCaller:
    """Calls one dependency, with retries and a breaker of its own.

    `effect`: of what is called. The default is the careful one, which repeats nothing that may have been done; say
    `read` for reads (X-25). Raises `RetryError` and `BreakerError` for a policy that is not taken.
    """

    def __init__(
        self,
        policy: AdaptivePolicy,
        *,
        effect: Effect = "irreversible_write",
        budget: TimeLeft | None = None,
        bucket: TokenBucket | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Callable[[], float] = chance.random,
    ) -> None:
        self.policy = policy
        self._retry_policy = policy.retry_policy()
        self._breaker = CircuitBreaker(
            min_calls=policy.cb_failure_threshold, reset_s=policy.cb_reset_timeout_s, clock=clock
        )
        self._effect = effect
        self._budget = budget
        self._bucket = bucket
        self._sleep = sleep
        self._random = random

    @property
    def cb_state(self) -> State:
        """`closed`, `open` or `half-open`."""
        return self._breaker.state

    @property
    def cb_failures(self) -> int:
        """Failures in the breaker's window."""
        return self._breaker.failures

    async def call(self, fn: Callable[..., Awaitable[T]], *args: object, **kwargs: object) -> T:
        """Return `await fn(*args, **kwargs)`, each attempt within the policy's time. Raises as `retry` does."""
        return await retry(
            lambda attempt: answer_within(attempt, lambda: fn(*args, **kwargs)),
            effect=self._effect,
            policy=self._retry_policy,
            budget=self._budget,
            bucket=self._bucket,
            breaker=self._breaker,
            sleep=self._sleep,
            random=self._random,
        )
