"""Exercise 8: five independent calls, at most two at a time, one failure, and a cancel from outside.

The reads that the reader's function awaits end when the check says so, so every order in which two
workers can get their answers is tried, and the shortest one that goes wrong is shown as lanes. No time
passes: a function that waits for nothing that can come is told that it is stuck.
Source: claim C10-306.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chapter10.concurrency import bounded_reads
from chapter10.lab.console.strings import Text
from chapter10.lab.console.textio import Event
from chapter10.lab.exercises.checking import Check, Failed, Names, accepts, catches, drawn, function_of, own_test

__all__ = ["CHECKS"]

_CLAIM: Final = "C10-306"
_CALLS: Final = [(f"call-{name}", name) for name in "ABCDE"]
_FAILING: Final = "C"
_LIMIT: Final = 2
_TURNS: Final = 50
"""Turns of the event loop without anything new, after which nothing more will come."""
_MAX_ORDERS: Final = 200

_SHOWN: Final = "read_all(5 calls, read, limit=2)"
_ReadAll = Callable[[list[tuple[str, str]], Callable[[str], Coroutine[Any, Any, Any]], int], Coroutine[Any, Any, Any]]


@dataclass
class _Run:
    """One order of answers: what happened, how many were in flight, and what came back."""

    events: list[Event] = field(default_factory=list)
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    peak: int = 0
    result: Any = None
    error: BaseException | None = None
    stuck: bool = False

    def note(self, name: str, what: str, detail: str = "") -> None:
        self.events.append(Event(len(self.events), f"call-{name}", what, detail))

    async def read(self, name: str) -> str:
        future = asyncio.get_running_loop().create_future()
        self.waiting[name] = future
        self.started.append(name)
        self.peak = max(self.peak, len(self.waiting))
        over = "   <- more than 2" if len(self.waiting) > _LIMIT else ""
        self.note(name, "asks", f"{len(self.waiting)} in flight{over}")
        try:
            await future
        except asyncio.CancelledError:
            self.note(name, "is cancelled")
            raise
        finally:
            del self.waiting[name]
        if name == _FAILING:
            self.note(name, "fails", "LookupError")
            raise LookupError(name)
        self.note(name, "gets its answer", f"paid {name}")
        return f"paid {name}"

    async def settle(self, task: asyncio.Task[Any]) -> None:
        """Let the loop turn until nothing new happens."""
        seen, still = -1, 0
        while still < _TURNS and not task.done():
            still = still + 1 if seen == len(self.events) else 0
            seen = len(self.events)
            await asyncio.sleep(0)


async def _one_order(read_all: _ReadAll, prefix: Sequence[int]) -> tuple[_Run, list[tuple[int, int]]]:
    run = _Run()
    choices: list[tuple[int, int]] = []
    task = asyncio.ensure_future(read_all(list(_CALLS), run.read, _LIMIT))
    while True:
        await run.settle(task)
        if task.done():
            break
        if not run.waiting:
            run.stuck = True
            break
        chosen = prefix[len(choices)] if len(choices) < len(prefix) else 0
        choices.append((chosen, len(run.waiting)))
        list(run.waiting.values())[chosen].set_result(None)
        if run.peak > _LIMIT:
            break
    await _end(run, task)
    return run, choices


async def _end(run: _Run, task: asyncio.Task[Any]) -> None:
    """Take what the task gave, and leave nothing running."""
    if not task.done():
        task.cancel()
    await asyncio.wait([task], timeout=0)
    for _ in range(_TURNS):
        if task.done():
            break
        await asyncio.sleep(0)
    if task.done() and not task.cancelled():
        run.error = task.exception()
        run.result = None if run.error else task.result()
    for other in asyncio.all_tasks() - {asyncio.current_task()}:
        other.cancel()
    await asyncio.sleep(0)


def _orders(read_all: _ReadAll) -> Iterator[_Run]:
    """Run every order of answers, the one in which the oldest read always ends first to begin with."""
    choices: list[tuple[int, int]] = []
    for _ in range(_MAX_ORDERS):
        run, choices = asyncio.run(_one_order(read_all, [chosen for chosen, _ in choices]))
        yield run
        while choices and choices[-1][0] + 1 >= choices[-1][1]:
            choices.pop()
        if not choices:
            return
        choices[-1] = (choices[-1][0] + 1, choices[-1][1])


def _shortest(read_all: _ReadAll, is_bad: Callable[[_Run], bool]) -> _Run | None:
    return min((run for run in _orders(read_all) if is_bad(run)), key=lambda run: len(run.events), default=None)


def _read_all(names: Names) -> _ReadAll:
    return function_of(names, "read_all")


def _entries(names: Names) -> None:
    run = next(_orders(_read_all(names)))
    if isinstance(run.error, NotImplementedError):
        raise run.error
    lanes = drawn(run.events)
    if run.stuck:
        why = Text(
            "没有读取在途，而函数还在等：它等的东西不会来。", "No read is in flight and the function still waits."
        )
        raise Failed(_SHOWN, "it waits for ever", "it returns", why, _CLAIM, lanes)
    if run.error is not None:
        why = Text(
            "C 的失败是 C 的结果，不是整批的失败；每个调用 ID 都要有条目。",
            "The failure of C is the outcome of C, not of the batch; every call id needs an entry.",
        )
        raise Failed(_SHOWN, f"{type(run.error).__name__}: {run.error}", "a dict with 5 entries", why, _CLAIM, lanes)
    wanted = sorted(call_id for call_id, _ in _CALLS)
    why = Text("每个调用 ID 都要有一个条目，失败的也有。", "Every call id needs an entry, the failing one too.")
    got = sorted(map(str, run.result)) if isinstance(run.result, dict) else run.result
    if run.peak <= _LIMIT and got != wanted:
        raise Failed(f"the ids in {_SHOWN}", got, wanted, why, _CLAIM, lanes)


def _peak(names: Names) -> None:
    run = _shortest(_read_all(names), lambda run: run.peak > _LIMIT)
    if run is not None:
        why = Text(
            "上限是在途的数目。先创建全部任务，上限就不存在了。",
            "The limit is of what is in flight; making all tasks at once ends it.",
        )
        raise Failed(f"count reads in flight during {_SHOWN}", run.peak, "at most 2", why, _CLAIM, drawn(run.events))


def _overlap(names: Names) -> None:
    run = _shortest(_read_all(names), lambda run: run.peak < _LIMIT)
    if run is not None:
        why = Text(
            "它们互不依赖，一个一个地等就浪费了上限。",
            "They do not depend on each other; one after the other wastes the limit.",
        )
        raise Failed(f"count reads in flight during {_SHOWN}", run.peak, "2", why, _CLAIM, drawn(run.events))


def _own_id(names: Names) -> None:
    wanted = {f"call-{name}": {"value": f"paid {name}"} for name in "ABDE"} | {"call-C": {"error": "LookupError"}}
    run = _shortest(_read_all(names), lambda run: run.result != wanted)
    if run is not None:
        why = Text(
            "完成的先后每次都不同；结果按调用 ID 归位，失败写成异常的类名。",
            "The order of completion differs each time; a result belongs to its call id, a failure is\n"
            "the name of its class.",
        )
        got = run.error if run.error is not None else run.result
        raise Failed(_SHOWN, got, wanted, why, _CLAIM, drawn(run.events))


async def _cancelled(read_all: _ReadAll) -> tuple[_Run, bool, list[str]]:
    """Cancel from outside while two reads are in flight: the run, whether it was cancelled, what is left."""
    run = _Run()
    task = asyncio.ensure_future(read_all(list(_CALLS), run.read, _LIMIT))
    await run.settle(task)
    task.cancel()
    await run.settle(task)
    ended = task.done() and task.cancelled()
    left = list(run.waiting)
    await _end(run, task)
    return run, ended, left


def _cancel(names: Names) -> None:
    run, ended, left = asyncio.run(_cancelled(_read_all(names)))
    called = f"cancel {_SHOWN} while 2 reads are in flight"
    lanes = drawn(run.events)
    if not ended:
        why = Text(
            "取消必须传到调用者那里。不要捕获 CancelledError 却不再抛出；它不是 Exception。",
            "A cancel must reach the caller. Do not catch CancelledError without raising it; it is no Exception.",
        )
        raise Failed(called, "it returned or went on", "CancelledError", why, _CLAIM, lanes)
    if left or len(run.started) > _LIMIT:
        why = Text(
            "取消之后不能再有读取在途，也不能开始新的。", "After a cancel no read may be in flight, and none may start."
        )
        got = f"in flight: {left}, started: {run.started}"
        raise Failed(called, got, "in flight: none, started: 2", why, _CLAIM, lanes)


# The reader's own test ---------------------------------------------------------------------------


async def _all_at_once(calls: Any, read: Any, limit: int) -> dict[str, Any]:
    return await bounded_reads(calls, read, len(calls))


async def _one_fails_all(calls: Any, read: Any, limit: int) -> dict[str, Any]:
    results = await bounded_reads(calls, read, limit)
    return {call_id: outcome for call_id, outcome in results.items() if "value" in outcome}


async def _keeps_the_cancel(calls: Any, read: Any, limit: int) -> dict[str, Any]:
    try:
        return dict(await bounded_reads(calls, read, limit))
    except asyncio.CancelledError:
        return {}


def _own_test(names: Names) -> None:
    test = own_test(names, "test_read_all")
    if test is None:
        return
    why = Text("它做得对，你的测试应该通过。", "It does all of it right; your test should pass.")
    accepts(test, bounded_reads, "test_read_all(bounded_reads)", why, _CLAIM)
    for broken, what, zh, en in (
        (_all_at_once, "one that makes all tasks at once", "在途的数目", "how many are in flight"),
        (
            _one_fails_all,
            "one that ends at the first failure",
            "失败的那个调用 ID 有没有条目",
            "the entry of the failed call",
        ),
        (_keeps_the_cancel, "one that keeps a cancel to itself", "外层的取消", "a cancel from outside"),
    ):
        why = Text(f"测试没有发现。也要看{zh}。", f"The test did not notice. Look at {en} too.")
        catches(test, broken, f"test_read_all({what})", why, _CLAIM)


CHECKS: Final = (
    Check("entries", Text("每个调用 ID 都有条目", "every call id has an entry"), _entries),
    Check("peak", Text("在途从不超过二（走遍所有次序）", "never more than two in flight, in every order"), _peak),
    Check("overlap", Text("两个读取真的重叠", "two reads really overlap"), _overlap),
    Check(
        "own_id", Text("结果在自己的 ID 之下（走遍所有次序）", "each result under its own id, in every order"), _own_id
    ),
    Check("cancel", Text("外层取消能传播，什么都不留下", "a cancel from outside arrives and leaves nothing"), _cancel),
    Check("own_test", Text("你自己的测试，如果写了", "your own test, if you wrote one"), _own_test),
)
