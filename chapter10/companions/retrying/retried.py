"""The same retry in two other forms: for a function that blocks, and as a decorator.

Both are `retrying.retry` itself, with all its questions and options; nothing is decided here. The blocking form runs it
to its end in the calling thread, so it waits there and interrupts nothing: the limits of an attempt are the function's
own business, which finds them in its `Attempt` (`socket.settimeout`, `urlopen(timeout=...)`).

    @retried(effect="read", policy=RetryPolicy(max_attempts=3))
    def page(url: str) -> bytes: ...

    @retried(effect="keyed_write", key=lambda order: f"charge-{order}")
    async def charge(order: int, *, attempt: Attempt | None = None) -> str: ...   # sends attempt.key along

What it does not do: stop a function that blocks. See `companions.interruption.cancellation.in_thread` and a process.
Source: as `retrying.retry` (claims I4-072, I4-077, I4-078, I4-095; C10-196 to C10-206).
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from chapter10.companions.retrying.retry import Attempt, Effect, RetryError, Status, TimeLeft, retry

__all__ = ["retried", "retry_blocking"]

T = TypeVar("T")
P = ParamSpec("P")


def retry_blocking(
    fn: Callable[[Attempt], T],
    *,
    effect: Effect,
    status: Callable[[str], Status[T]] | None = None,
    sleep: Callable[[float], object] = time.sleep,
    **options: Any,
) -> T:
    """Return what `fn(attempt)` returns, trying again as `retry` does, in this thread.

    `status` and `sleep(seconds)`: as there, and they block too. `options`: the others of `retry`. Raises as it does;
    `RetryError` (`bad_input`) for a function that is a coroutine's.
    """
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(status):
        raise RetryError("a coroutine function is for retry, not for its blocking form")

    async def once(attempt: Attempt) -> T:
        return fn(attempt)

    async def wait(seconds: float) -> None:
        sleep(seconds)

    work = retry(once, effect=effect, status=status, sleep=wait, **options)
    try:
        work.send(None)  # nothing in it waits for a loop, so it runs to its end
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    work.close()
    raise RetryError("something in it waits for an event loop")


def retried(
    *,
    effect: Effect,
    key: Callable[..., str] | None = None,
    budget: Callable[[], TimeLeft | None] | None = None,
    **options: Any,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that makes each call of a function, `def` or `async def`, a call of `retry`.

    `key`: gives the intent's key from the arguments of the call. `budget`: gives the time that is left at the call.
    `options`: the others of `retry`. A function with a parameter `attempt` is given its `Attempt`; one that has a key
    must have it, or the key would never be sent. Raises `RetryError` (`bad_input`) when the function is decorated, and
    when it is called what `retry` raises.
    """
    try:
        inspect.signature(retry).bind(None, effect=effect, **options)
    except TypeError as error:
        raise RetryError(f"not an option: {error}") from error

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        told = "attempt" in inspect.signature(function).parameters
        if key is not None and not told:
            raise RetryError("a function with a key takes attempt, and sends attempt.key along")

        def prepared(args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
            return {
                "fn": lambda attempt: function(*args, **(kwargs | {"attempt": attempt} if told else kwargs)),
                "effect": effect,
                "key": None if key is None else key(*args, **kwargs),
                "budget": None if budget is None else budget(),
                **options,
            }

        @functools.wraps(function)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            return retry_blocking(**prepared(args, kwargs))  # type: ignore[no-any-return]

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await retry(**prepared(args, kwargs))

        return awaited if inspect.iscoroutinefunction(function) else blocking  # type: ignore[return-value]

    return decorate
