"""The group `budget`: one deadline for a chain of calls, against a limit for each call of its own.

Source: the document on interruption, section 3 (claims I4-011 to I4-024, I4-102).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from chapter10.companions.interruption.budget import MIN_RESERVE_MS, OUTCOMES, Budget, Outcome, run_within
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.virtual_time import VirtualLoop, pause, run_virtual

__all__ = ["GROUP", "budget_experiment"]

_TOTAL_MS: Final = 16_000
_SEARCH_S: Final = 9.0
_WAIT_S: Final = 0.5
_SUMMARY_S: Final = 4.5
_SUMMARY_MINIMUM_MS: Final = 3000
_GRACE_MS: Final = 400

_Tool = Callable[[], Awaitable[object]]


def budget_experiment(scene: Scene) -> dict[str, Any]:
    """Run one chain by two rules, a compensation after its end, children, every outcome, and a way to another process.

    All times are virtual: milliseconds in the figures, seconds in the pictures.
    """
    chains = [
        run_virtual(lambda loop: _limits_of_their_own(scene, loop)),
        run_virtual(lambda loop: _one_deadline(scene, loop)),
    ]
    refund = run_virtual(lambda loop: _compensation(scene, loop))
    outcomes = run_virtual(lambda loop: _outcomes(scene, loop))
    return {
        "promised_ms": _TOTAL_MS - _TOTAL_MS // 4,
        "chains": chains,
        **refund,
        "children": run_virtual(_children),
        "outcomes": outcomes,
        "every_outcome_was_seen": {row["outcome"] for row in outcomes} == set(OUTCOMES),
        **_wire(),
    }


# One chain by two rules ------------------------------------------------------------------------


async def _limits_of_their_own(scene: Scene, loop: VirtualLoop) -> dict[str, Any]:
    scene.begin("各有各的时限：9 秒 + 等待 + 4.5 秒 / a limit each: nobody counts the whole")
    search = await run_within(None, "search", _works(_SEARCH_S), limit_ms=10_000)
    _note(scene, loop, "search", "ends; its limit was 10 s", search.kind)
    await pause(_WAIT_S)
    _note(scene, loop, "agent", f"waited {_WAIT_S:g} s between the two", "charged to nobody")
    summary = await run_within(None, "summarize", _works(_SUMMARY_S), limit_ms=5000)
    _note(scene, loop, "summarize", "ends; its limit was 5 s", summary.kind)
    return _chain("a limit each", loop, search, summary, None)


async def _one_deadline(scene: Scene, loop: VirtualLoop) -> dict[str, Any]:
    scene.begin("同一个截止时间 / one deadline")
    budget = Budget.start(_TOTAL_MS, clock=loop.time)
    _note(scene, loop, "agent", f"starts with {_TOTAL_MS} ms", f"{budget.remaining} ms for the main path")
    search = await run_within(budget, "search", _works(_SEARCH_S), limit_ms=10_000)
    _note(scene, loop, "search", search.kind, f"{budget.remaining} ms left")
    await pause(_WAIT_S)
    _note(scene, loop, "agent", f"waited {_WAIT_S:g} s between the two", f"{budget.remaining} ms left")
    summary = await run_within(budget, "summarize", _works(_SUMMARY_S), limit_ms=5000, minimum_ms=_SUMMARY_MINIMUM_MS)
    _note(scene, loop, "summarize", f"needs {_SUMMARY_MINIMUM_MS} ms at least", summary.kind)
    return _chain("one deadline", loop, search, summary, budget)


def _chain(
    rule: str, loop: VirtualLoop, search: Outcome[object], summary: Outcome[object], budget: Budget | None
) -> dict[str, Any]:
    return {
        "rule": rule,
        "search": search.kind,
        "summarize": summary.kind,
        "ended_at_ms": round(loop.time() * 1000),
        "left_for_compensation_ms": None if budget is None else budget.compensation_remaining,
    }


# The second lane ---------------------------------------------------------------------------------


async def _compensation(scene: Scene, loop: VirtualLoop) -> dict[str, Any]:
    """The main path is cut off at its deadline; the refund runs on time that nobody could spend before."""
    scene.begin("主路径超时之后的退款 / a refund after the time-out")
    budget = Budget.start(_TOTAL_MS, clock=loop.time)
    charge = await run_within(budget, "ship", _works(60.0))
    _note(scene, loop, "ship", charge.kind, f"{budget.remaining} ms left, {budget.compensation_remaining} ms reserved")
    again = await run_within(budget, "ship", _works(0.1))
    _note(scene, loop, "ship", "another attempt on the main path", again.kind)
    refund = await run_within(budget.compensation(), "refund", _works(1.5))
    _note(scene, loop, "refund", "on the compensation lane", refund.kind)
    return {
        "main_path_after_its_time": again.kind,
        "refund_after_its_time": refund.kind,
        "reserve_after_the_refund_ms": budget.compensation_remaining,
    }


async def _children(loop: VirtualLoop) -> list[dict[str, Any]]:
    """Three levels below one another that ask for more than there is, and what cutting a quarter each would leave."""
    budget, rows, cut = Budget.start(_TOTAL_MS, clock=loop.time), [], _TOTAL_MS
    for level, asked in enumerate((_TOTAL_MS, 60_000, 60_000, 2000)):
        await pause(1.0)
        budget = budget if level == 0 else budget.child(asked)
        cut -= cut // 4
        rows.append(
            {
                "level": level,
                "asked_ms": asked,
                "main_ms": budget.remaining,
                "compensation_ms": budget.compensation_remaining,
                "main_if_each_level_cut_a_quarter_ms": cut,
            }
        )
    return rows


# How a run ends ------------------------------------------------------------------------------------


async def _outcomes(scene: Scene, loop: VirtualLoop) -> list[dict[str, Any]]:
    scene.begin("一次调用只有一个结局 / a run has one outcome")
    cases: tuple[tuple[str, int, _Tool], ...] = (
        ("returns in time", 1000, _works(0.3)),
        ("stops at its cancel, but returns a value", 1000, _returns_late),
        ("a connect time-out of its own", 1000, _connect_times_out),
        ("obeys", 1000, _works(60.0)),
        ("ignores its cancel", 1000, _ignores),
        ("is cancelled by somebody else", 1000, _is_cancelled),
        ("has one millisecond too little", MIN_RESERVE_MS - 1, _works(0.1)),
        ("has just enough", MIN_RESERVE_MS, _works(0.1)),
    )
    rows = []
    for case, total_ms, tool in cases:
        start, called = loop.time(), [0]

        async def counted(tool: _Tool = tool, called: list[int] = called) -> object:
            called[0] += 1
            return await tool()

        budget = Budget(total_ms, clock=loop.time)
        # What is abandoned ends when the loop does, long after its row was written.
        outcome = await run_within(budget, "tool", counted, grace_ms=_GRACE_MS, report_end=lambda ended: None)
        took = round((loop.time() - start) * 1000)
        _note(scene, loop, "tool", f"{case}: {total_ms} ms", f"{outcome.kind} after {took} ms")
        rows.append(
            {
                "tool": case,
                "budget_ms": total_ms,
                "outcome": outcome.kind,
                "calls": called[0],
                "took_ms": took,
                "left_ms": budget.remaining,
                "value_known": outcome.returned,
            }
        )
    return rows


def _works(seconds: float) -> _Tool:
    async def work() -> str:
        await pause(seconds)
        return "done"

    return work


async def _returns_late() -> str:
    try:
        await pause(60.0)
    except asyncio.CancelledError:
        return "charged"  # the effect has happened, and is not forgotten
    return "never"


async def _connect_times_out() -> None:
    await pause(0.2)
    raise TimeoutError


async def _ignores() -> None:
    for _ in range(2):
        try:
            await pause(60.0)
        except asyncio.CancelledError:
            continue


async def _is_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await pause(60.0)


# Another process ---------------------------------------------------------------------------------


def _wire() -> dict[str, Any]:
    """Two machines whose monotonic clocks started at different times; what is sent is time left."""
    here, there = [5000.0], [17.0]
    budget = Budget.start(_TOTAL_MS, clock=lambda: here[0])
    here[0] += 2.0
    wire = budget.to_wire()
    received = Budget.from_wire(wire, clock=lambda: there[0])
    there[0] += 1.0
    return {"sent_to_another_process": wire, "left_there_a_second_later_ms": received.remaining}


def _note(scene: Scene, loop: VirtualLoop, actor: str, what: str, detail: str) -> None:
    scene.now = round(loop.time(), 3)
    scene.note(actor, what, detail)


GROUP: Final = Group(
    budget_experiment,
    title="时间预算 / budget",
    target="budget",
    text="""\
每个工具各有时限时，9 秒加 0.5 秒等待加 4.5 秒共 14 秒，没有一个时限被违反，而答应用户的时间已经过了。改用同一个截止
时间：剩余时间由时钟算出，等待也在其中；剩下的不够工具的最短时间，就不再调用。四分之一留给补偿，主路径用不到它，所以
超时之后的退款还有时间。预算只预留一次，子级不再扣，也不会比父级活得久。

With a limit each, 9 s and 0.5 s of waiting and 4.5 s are 14 s: no limit was broken, and the time that the user was
promised ({promised_ms} ms) is over. With one deadline the clock charges everything, waits included, and a tool
whose minimum is more than what is left is not called. A quarter is kept for compensation, which the main path
cannot spend: a refund after the time-out has its time. The reserve is taken once and not again at each level.
""",
    tables=("chains", "children", "outcomes"),
)
