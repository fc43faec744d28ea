"""The group `breaker`: an error rate and not a count, one probe and not a batch, and who is not to blame.

Source: the document on interruption, section 7 (claims I4-071, I4-074 to I4-076, I4-079 to I4-081, I4-085, I4-100).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from chapter10.companions.retrying.circuit_breaker import MIN_CALLS, CircuitBreaker, CircuitOpenError, Permit
from chapter10.lab.evidence.evidence import Group, Scene

__all__ = ["GROUP", "breaker_experiment"]

_CALLERS: Final = 60


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def breaker_experiment(scene: Scene) -> dict[str, Any]:
    """Show when it opens, how it heals, and what it does not count; seconds of a logical clock."""
    return {
        "opening": _opening(scene),
        **_probing(scene),
        "verdicts": _verdicts(),
        **_late_verdicts(scene),
    }


def _opening(scene: Scene) -> list[dict[str, Any]]:
    """Feed calls at even times over a stretch of seconds and look at the state afterwards."""
    scene.begin("按错误率，不按次数 / a rate and not a count")
    cases = (
        ("1 % of a busy dependency", 1000, 10, 50.0),
        ("a quiet one, too few calls", 0, MIN_CALLS - 1, 50.0),
        ("the same and one more", 0, MIN_CALLS, 50.0),
        ("60 % of 20", 8, 12, 50.0),
        ("49 % of 100", 51, 49, 50.0),
        ("half of 100", 50, 50, 50.0),
        ("half of 100 over twenty minutes", 50, 50, 1200.0),
    )
    rows = []
    for case, good, bad, seconds in cases:
        clock = _Clock()
        breaker = CircuitBreaker(clock=clock)
        calls = good + bad
        for number in range(calls):
            clock.now = number * seconds / calls
            # Failures are spread evenly and late, so that the rate never runs ahead of its last value.
            failed = (number + 1) * bad // calls > number * bad // calls
            try:
                permit = breaker.acquire()
            except CircuitOpenError:
                break
            (permit.failure if failed else permit.success)()
        scene.note("callers", f"{case}: {bad} of {calls} calls fail in {seconds:g} s", breaker.state)
        rows.append(
            {
                "case": case,
                "calls": calls,
                "failures": bad,
                "seconds": seconds,
                "state": breaker.state,
                "a_counter_of_10_would_be": "open" if bad >= MIN_CALLS else "closed",
            }
        )
    return rows


def _open(clock: _Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(clock=clock)
    for _ in range(MIN_CALLS):
        breaker.acquire().failure()
    return breaker


def _ask(breaker: CircuitBreaker, callers: int) -> tuple[list[Permit], int]:
    permits, refused = [], 0
    for _ in range(callers):
        try:
            permits.append(breaker.acquire())
        except CircuitOpenError:
            refused += 1
    return permits, refused


def _probing(scene: Scene) -> dict[str, Any]:
    scene.begin("一个试探 / one probe")
    clock = _Clock()
    breaker = _open(clock)
    scene.whose_states = "电路走过的状态 / the states that the circuit went through"
    states = ["closed"]

    def say(actor: str, what: str) -> None:
        scene.now = clock.now
        scene.note(actor, what, breaker.state)
        if breaker.state != states[-1]:
            scene.transitions.append((states[-1], breaker.state, what))
            states.append(breaker.state)

    say("callers", f"{MIN_CALLS} calls have failed")
    clock.now = 30.0
    at_thirty = breaker.state
    say("callers", "look again: thirty seconds are not more than thirty")
    clock.now = 30.5
    permits, refused = _ask(breaker, _CALLERS)
    say("callers", f"{_CALLERS} at once: {len(permits)} goes through, {refused} are refused")
    permits[0].neutral()
    after_neutral = breaker.state
    say("probe", "its caller gave up: nothing was learnt")
    (probe,), _ = _ask(breaker, 1)
    probe.failure()
    after_failure = breaker.state
    say("probe", "fails: open again, and the thirty seconds start anew")
    clock.now = 61.0
    (slow,), _ = _ask(breaker, 1)
    say("probe", "goes out and does not come back")
    clock.now = 121.0
    (second,), _ = _ask(breaker, 1)
    say("probe", "sixty seconds later another one may go")
    slow.success()
    after_slow = breaker.state
    say("old probe", "comes back well: not heard any more")
    second.success()
    say("probe", "succeeds")
    return {
        "state_at_exactly_30_s": at_thirty,
        "callers_at_half_open": _CALLERS,
        "probes_let_through": len(permits),
        "refused_with_a_hint": refused,
        "after_a_probe_that_gave_up": after_neutral,
        "after_a_probe_that_failed": after_failure,
        "after_an_old_probe_came_back": after_slow,
        "after_a_probe_that_succeeded": breaker.state,
    }


def _verdicts() -> list[dict[str, Any]]:
    """A hundred calls that end in one way each: what they say of the dependency."""

    class Shortened(TimeoutError):
        whole_limit = False

    rows = []
    for case, error in (
        ("a time-out with its whole time", TimeoutError()),
        ("a lost connection", ConnectionResetError()),
        ("cancelled by the user", asyncio.CancelledError()),
        ("5 ms were left of the caller's budget", Shortened()),
        ("a mistake of the caller", ValueError()),
    ):
        breaker = CircuitBreaker(clock=_Clock())
        for _ in range(100):
            try:
                with breaker.acquire():
                    raise error
            except (TimeoutError, ConnectionError, ValueError, CircuitOpenError, asyncio.CancelledError):
                continue
        seen = breaker.statistics()
        rows.append(
            {"a_hundred_calls_end_by": case, "failures": seen.failures, "neutral": seen.neutral, "state": seen.state}
        )
    return rows


def _late_verdicts(scene: Scene) -> dict[str, Any]:
    """Calls that began before the circuit opened and end while it is open or half-open."""
    scene.begin("迟到的结果 / late verdicts")
    clock = _Clock()
    breaker = CircuitBreaker(clock=clock)
    early = [breaker.acquire() for _ in range(2)]
    for _ in range(MIN_CALLS):
        breaker.acquire().failure()
    scene.now = clock.now
    scene.note("callers", f"two calls are out, {MIN_CALLS} others fail", breaker.state)
    clock.now = 25.0
    early[0].failure()
    clock.now = 30.5
    scene.now = clock.now
    scene.note("first of the two", "had failed at 25 s: the opening time did not move", breaker.state)
    early[1].success()
    scene.note("second of the two", "succeeds: it closes nothing", breaker.state)
    return {"state_after_late_verdicts": breaker.state, "late_verdicts_dropped": breaker.statistics().dropped}


GROUP: Final = Group(
    breaker_experiment,
    title="熔断 / breaker",
    target="circuit",
    text="""\
1,010 次调用里有 10 次失败，是百分之一：电路保持闭合；从不清零的计数器会在第十次失败时断开。要断开，滚动 60 秒内既要
有足够的调用，又要有足够高的错误率。半开时 {callers_at_half_open} 个调用者只放行 {probes_let_through} 个，其余立刻被
拒绝并得到等待提示。用户取消、调用者自己只剩 5 毫秒、参数写错，都不算依赖方的错；更早一代的结果迟到了，既不闭合也不
延长。

Ten failures in 1,010 calls are one per cent: the circuit stays closed, where a counter that never resets would have
opened. It takes enough calls and a high enough rate within a rolling minute. Half-open, one of
{callers_at_half_open} callers goes through and the others are refused at once with a hint. A user's cancel, a
caller's last 5 ms and a wrong argument are no fault of the dependency, and a verdict of an older generation is
dropped.
""",
    tables=("opening", "verdicts"),
)
