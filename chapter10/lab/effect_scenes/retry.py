"""The group `retry`: what may be repeated, how long the waits are, and what stops the loop.

Source: the document on interruption, section 7, and the chapter's section on retries (claims C10-196 to C10-206,
I4-072, I4-073, I4-077, I4-078, I4-082, I4-095, I4-100).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from chapter10.companions.interruption.budget import Budget
from chapter10.companions.retrying.circuit_breaker import CircuitBreaker
from chapter10.companions.retrying.retry import (
    EFFECTS,
    Attempt,
    ConnectFailed,
    Effect,
    ReadTimedOut,
    RetryPolicy,
    Status,
    TokenBucket,
    backoff_ms,
    retry,
)
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.virtual_time import VirtualLoop, pause, run_virtual

__all__ = ["GROUP", "retry_experiment"]

_SEED: Final = 10
_FAULTS: Final[tuple[tuple[str, type[Exception]], ...]] = (
    ("not_sent", ConnectFailed),
    ("unknown", ReadTimedOut),
    ("permanent", ValueError),
)
_KEYS: Final = (
    ("none", None),
    ("key only", None),
    ("key, status says not done", "not_done"),
    ("key, status says done", "done"),
)


class _Dependency:
    """Fails always or `times` times, and counts the calls and the keys that it gets."""

    def __init__(self, error: type[Exception], times: int = 1000) -> None:
        self.error, self.times = error, times
        self.calls = 0
        self.keys: list[str | None] = []

    async def __call__(self, attempt: Attempt) -> str:
        self.calls += 1
        self.keys.append(attempt.key)
        if self.calls <= self.times:
            raise self.error
        return "value"


def retry_experiment(scene: Scene) -> dict[str, Any]:
    """Play the table of effects and faults, the waits, nested layers, and each of the four questions that stop."""
    return {
        "effects": run_virtual(_effects),
        **run_virtual(_same_key),
        "layers": run_virtual(_layers),
        **_waits(),
        "stops": run_virtual(lambda loop: _stops(scene, loop)),
        **run_virtual(_bucket),
    }


# Effect and fault --------------------------------------------------------------------------------


async def _effects(loop: VirtualLoop) -> list[dict[str, Any]]:
    rows = []
    for effect in EFFECTS:
        for fault, error in _FAULTS:
            # Only a lost answer of a write asks for more than the effect; a keyed write has its key in any case.
            asks = fault == "unknown" and effect not in ("read", "keyed_write")
            for named, answer in _KEYS if asks else _KEYS[1:2] if effect == "keyed_write" else _KEYS[:1]:
                rows.append(await _one(effect, fault, error, named, answer))
    return rows


async def _one(effect: Effect, fault: str, error: type[Exception], named: str, answer: Any) -> dict[str, Any]:
    """Call something that always fails in one way, and count."""
    dependency = _Dependency(error)

    async def status(key: str) -> Status[str]:
        return Status(answer, "value of then" if answer == "done" else None)

    try:
        end: str = await retry(
            dependency,
            effect=effect,
            key=None if named == "none" else "order-7",
            status=None if answer is None else status,
            sleep=_no_wait,
            random=random.Random(_SEED).random,
        )
        stopped = ""
    except Exception as failed:
        end, stopped = type(failed).__name__, failed.retry_stop.reason  # type: ignore[attr-defined]
    return {
        "effect": effect,
        "fault": fault,
        "key_and_status": named,
        "calls": dependency.calls,
        "end": end,
        "stopped_by": stopped,
    }


async def _same_key(loop: VirtualLoop) -> dict[str, Any]:
    """A reversible write whose answer is lost twice; the status says each time that it was not done."""
    dependency, asked = _Dependency(ReadTimedOut, times=2), list[str]()

    async def status(key: str) -> Status[str]:
        asked.append(key)
        return Status("not_done")

    value = await retry(
        dependency, effect="reversible_write", key="refund-order-7", status=status, sleep=_no_wait, random=lambda: 0.5
    )
    return {
        "write_after_two_lost_answers": value,
        "different_keys_seen_by_the_other_side": len({*dependency.keys, *asked}),
    }


# Layers ------------------------------------------------------------------------------------------


async def _layers(loop: VirtualLoop) -> list[dict[str, Any]]:
    """An SDK in a runtime in a job system, three attempts each, over a dependency that stays down."""
    three = RetryPolicy(max_attempts=3)

    async def by_hand(call: Callable[[], Awaitable[str]]) -> str:
        for number in range(3):
            try:
                return await call()
            except ConnectFailed:
                if number == 2:
                    raise
        raise AssertionError

    async def ours(call: Callable[[], Awaitable[str]], new_chain: bool = False) -> str:
        return await retry(
            lambda attempt: call(),
            effect="read",
            policy=three,
            new_chain=new_chain,
            sleep=_no_wait,
            random=lambda: 0.5,
        )

    rows = []
    for case, sdk, runtime, job in (
        ("three loops that know nothing of each other", by_hand, by_hand, by_hand),
        ("three layers of retry in one chain", ours, ours, ours),
        ("the outermost layer alone", _plain, _plain, ours),
    ):
        dependency = _Dependency(ConnectFailed)
        attempt = Attempt(1, None, three)

        async def bottom(dependency: _Dependency = dependency, attempt: Attempt = attempt) -> str:
            return await dependency(attempt)

        try:
            await job(lambda sdk=sdk, runtime=runtime, bottom=bottom: runtime(lambda: sdk(bottom)))  # type: ignore[misc]
        except ConnectFailed:
            pass
        rows.append({"layers": case, "attempts_of_each": 3, "calls": dependency.calls})
    return rows


async def _plain(call: Callable[[], Awaitable[str]]) -> str:
    return await call()


# Waits -------------------------------------------------------------------------------------------


def _waits() -> dict[str, Any]:
    """Seeded waits, and the longest of many draws at the cap, by two orders of cap and jitter."""
    chance = random.Random(_SEED)
    first = [backoff_ms(attempt, random=chance.random) for attempt in range(6)]
    chance = random.Random(_SEED)
    at_the_cap = [backoff_ms(20, random=chance.random) for _ in range(1000)]
    chance = random.Random(_SEED)
    jitter_last = [int(min(200 * 2**20, 30_000) * (0.5 + chance.random())) for _ in range(1000)]
    return {
        "seeded_waits_ms": first,
        "cap_ms": 30_000,
        "longest_of_1000_at_the_cap_ms": max(at_the_cap),
        "longest_if_the_jitter_came_last_ms": max(jitter_last),
        "spread_at_the_cap_percent": round(100 * (max(at_the_cap) - min(at_the_cap)) / 20_000),
    }


# What stops it -------------------------------------------------------------------------------------


async def _stops(scene: Scene, loop: VirtualLoop) -> list[dict[str, Any]]:
    """One read after another, each stopped by another question; waits are virtual."""
    scene.begin("睡眠之前的四个问题 / four questions before a wait")
    bucket, breaker = TokenBucket(capacity=1, refill=0.1), CircuitBreaker(min_calls=2, clock=loop.time)
    cases: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("the third attempt succeeds", 2, {}),
        ("always fails", 1000, {}),
        ("300 ms are left, the next wait is 400", 1000, {"budget_ms": 300, "base_ms": 400}),
        ("one retry is left for all callers", 1000, {"bucket": bucket}),
        ("the circuit opens after two failures", 1000, {"breaker": breaker}),
    )
    rows = []
    for case, times, options in cases:
        start, slept = loop.time(), list[float]()
        dependency = _Dependency(ConnectFailed, times)

        async def sleep(seconds: float, slept: list[float] = slept) -> None:
            slept.append(seconds)
            await pause(seconds)

        async def call(attempt: Attempt, dependency: _Dependency = dependency, case: str = case) -> str:
            scene.now = round(loop.time(), 3)
            answer = "answers" if dependency.calls >= dependency.times else "no connection"
            scene.note("caller", f"attempt {attempt.number}: {case}", answer)
            return await dependency(attempt)

        policy = RetryPolicy(base_backoff_ms=options.pop("base_ms", 200))
        if "budget_ms" in options:
            options["budget"] = Budget(options.pop("budget_ms"), clock=loop.time)
        try:
            end = await retry(
                call, effect="read", policy=policy, min_reserve_ms=0, sleep=sleep, random=lambda: 0.5, **options
            )
            reason = ""
        except ConnectFailed as failed:
            end, reason = type(failed).__name__, failed.retry_stop.reason  # type: ignore[attr-defined]
            scene.note("caller", f"gives up with {end}", reason)
        rows.append(
            {
                "case": case,
                "calls": dependency.calls,
                "waits_ms": [round(seconds * 1000) for seconds in slept],
                "took_ms": round((loop.time() - start) * 1000),
                "end": end,
                "stopped_by": reason,
            }
        )
    return rows


async def _bucket(loop: VirtualLoop) -> dict[str, Any]:
    """Twenty callers of a dependency that is down share ten retries."""
    calls = []
    for bucket in (TokenBucket(capacity=10), None):
        dependency = _Dependency(ConnectFailed)
        for _ in range(20):
            try:
                await retry(dependency, effect="read", bucket=bucket, sleep=_no_wait, random=lambda: 0.5)
            except ConnectFailed:
                continue
        calls.append(dependency.calls)
    return {
        "callers_of_a_dead_dependency": 20,
        "calls_with_a_shared_bucket": calls[0],
        "calls_without_one": calls[1],
    }


async def _no_wait(seconds: float) -> None:
    return None


GROUP: Final = Group(
    retry_experiment,
    title="重试 / retry",
    target="dependency",
    text="""\
能不能重试，先看动作的效果和故障的种类：没有送出，谁都可以再来；送出了没有回答，只有读和对方记着键的写可以直接重来，
可逆的写要有业务键并先查询状态，不可逆的写由人决定；注定再失败的不重来。三层各三次共用一个计数，是 3 次调用，不是 27
次。等待带 50% 到 150% 的抖动，却不超过上限。预算、共享的重试桶、熔断都在睡眠之前决定；停下时出来的是最后一个真实错误。

What may be repeated depends on the effect and on the fault. Not sent: everybody. Sent and not answered: a read, and a
write whose key the other side keeps; a reversible write with a key and a status that says "not done"; an irreversible
write is left to a person. Three layers of three attempts share one count and make 3 calls, not 27. Waits spread over
50 to 150 % and stay below the cap ({longest_of_1000_at_the_cap_ms} ms of {cap_ms} ms; with the jitter last it would be
{longest_if_the_jitter_came_last_ms} ms). What stops the loop decides before it sleeps, and the last real error comes
out.
""",
    tables=("effects", "layers", "stops"),
)
