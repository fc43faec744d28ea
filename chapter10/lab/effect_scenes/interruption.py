"""The group `interruption`: a cancel that reaches other processes, work that does not exist yet, and no compensation.

Source: the document on interruption, sections 3, 4 and 8 (claims I4-003, I4-021, I4-022, I4-032, I4-087 to I4-094,
I4-099).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.cancellation import (
    CHECK_EVERY,
    CHUNK_BYTES,
    CancelToken,
    DistributedCancelToken,
    ToolCancelled,
    checked,
    clean_up,
    fetch_large_blob,
)
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.virtual_time import VirtualLoop, pause, run_virtual

__all__ = ["GROUP", "interruption_experiment"]

_TRACE: Final = "trace-1"
_TREE: Final = (("a", None), ("b", "a"), ("c", "a"), ("d", "b"), ("e", "d"))
_ITEMS: Final = 1000
_CANCEL_AT: Final = 120


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def interruption_experiment(scene: Scene) -> dict[str, Any]:
    """Cancel a trace, a subtree, a call before and after its result, and work that looks only now and then."""
    return {
        **run_virtual(lambda loop: _row_first(scene, loop)),
        "subtree": _subtree(scene),
        **_born_cancelled(scene),
        "races": _races(scene),
        **_compensation(scene),
        **_new_run(),
        **run_virtual(_in_one_process),
    }


# Across processes ------------------------------------------------------------------------------------


async def _row_first(scene: Scene, loop: VirtualLoop) -> dict[str, Any]:
    """The broker is down, and the other process has the database and the trace id only."""
    scene.begin("先写行，再发消息 / the row first, the message afterwards")
    with CancelStore.open(":memory:", clock=loop.time) as store:
        seen: list[bool] = []

        class Broker:
            """Looks whether the row is there, and fails."""

            async def publish(self, topic: str, body: str) -> None:
                seen.append(store.cancel_reason(json.loads(body)["trace_id"]) is not None)
                _say(scene, loop.time(), "broker", f"gets {topic}; the row is there: {seen[-1]}", "is down")
                raise ConnectionError

        store.register(_TRACE, "a", tool="export")
        store.claim(_TRACE, "a")
        here = DistributedCancelToken(_TRACE, Broker(), store, clock=loop.time)
        there = DistributedCancelToken(_TRACE, None, store, clock=loop.time)
        _say(scene, loop.time(), "worker elsewhere", "looks", str(there.is_cancelled()))
        _say(scene, loop.time(), "caller", "cancels trace-1", "")
        receipt = await here.cancel()
        at_once = there.is_cancelled()
        _say(scene, loop.time(), "worker elsewhere", "looks again at once: too early to ask", str(at_once))
        reason = await there.watch()
        _say(scene, loop.time(), "worker elsewhere", "its next look", reason)
        return {
            "row_was_there_when_the_message_was_sent": seen == [True],
            "message_arrived": here.publish_error is None,
            "noticed_elsewhere_after_s": round(loop.time(), 3),
            "message": receipt.message(),
        }


def _subtree(scene: Scene) -> list[dict[str, Any]]:
    """b is cancelled: what is below it, what is beside it, and what is registered below it later."""
    scene.begin("只取消一个子树 / a subtree and nothing beside it")
    clock = _Clock()
    with CancelStore.open(":memory:", clock=clock) as store:
        for span, parent in _TREE:
            store.register(_TRACE, span, tool="tool", parent_span_id=parent)
        for span in ("a", "d"):
            store.claim(_TRACE, span)
        before = {row.span_id: row.state for row in store.invocations(_TRACE)}
        clock.now = 5.0
        receipt = store.cancel(_TRACE, "b")
        _say(
            scene,
            clock.now,
            "caller",
            "cancels span b",
            f"{receipt.stopped} stopped, {receipt.requested} asked to stop",
        )
        store.register(_TRACE, "late", tool="tool", parent_span_id="e")
        return [
            {
                "span": row.span_id,
                "called_by": row.parent_span_id or "",
                "before": before.get(row.span_id, ""),
                "after": row.state,
                "asked_to_stop": row.cancelled,
            }
            for row in store.invocations(_TRACE)
        ]


def _born_cancelled(scene: Scene) -> dict[str, Any]:
    """The cancel comes first; the child is registered afterwards by somebody who has not heard of it."""
    scene.begin("出生即取消 / born cancelled")
    clock, calls = _Clock(), 0
    with CancelStore.open(":memory:", clock=clock) as store:
        store.register(_TRACE, "a", tool="export")
        receipt = store.cancel(_TRACE)
        _say(scene, clock.now, "caller", "cancels trace-1", f"{receipt.stopped} stopped")
        clock.now = 0.005
        child = store.register(_TRACE, "child", tool="mail", parent_span_id="a")
        _say(scene, clock.now, "other process", "registers a child of a", child.state)
        fence = store.claim(_TRACE, "child")
        _say(scene, clock.now, "other process", "claims it", "nothing to do" if fence is None else "runs it")
        calls += fence is not None
    return {"late_child_is": child.state, "late_child_was_run": calls}


def _races(scene: Scene) -> list[dict[str, Any]]:
    """A cancel and a result in both orders, and with the confirmation in between."""
    rows = []
    for title, order in (
        ("取消在先 / the cancel first", ("cancel", "finish")),
        ("结果在先 / the result first", ("finish", "cancel")),
        ("先取消，再确认 / the cancel, then the worker confirms", ("cancel", "confirm", "finish")),
    ):
        scene.begin(title)
        clock, said = _Clock(), dict[str, str]()
        with CancelStore.open(":memory:", clock=clock) as store:
            store.register(_TRACE, "a", tool="charge")
            fence = store.claim(_TRACE, "a")
            assert fence is not None
            for step in order:
                clock.now += 1
                if step == "cancel":
                    done = store.cancel(_TRACE, "a").already_done
                    said[step] = f"already done: {', '.join(done)}" if done else "asked to stop"
                elif step == "finish":
                    said[step] = store.finish(_TRACE, "a", fence, {"charge": 1})
                else:
                    said[step] = store.confirm(_TRACE, "a", fence)
                _say(scene, clock.now, "caller" if step == "cancel" else "worker", f"{step} a", said[step])
            row = store.get(_TRACE, "a")
            rows.append(
                {
                    "order": " then ".join(order),
                    "cancel_says": said["cancel"],
                    "finish_says": said["finish"],
                    "state": row.state,
                    "result_stored": row.result is not None,
                }
            )
    return rows


def _compensation(scene: Scene) -> dict[str, Any]:
    """What was done is compensated once, and the cancel of the whole trace does not stop that."""
    scene.begin("补偿不可取消 / a compensation is exempt")
    clock = _Clock()
    with CancelStore.open(":memory:", clock=clock) as store:
        store.register(_TRACE, "charge", tool="charge")
        fence = store.claim(_TRACE, "charge")
        assert fence is not None
        store.finish(_TRACE, "charge", fence, {"charge": 1})
        _say(scene, clock.now, "worker", "finishes the charge", "succeeded")
        early = store.register(_TRACE, "wire", tool="wire", parent_span_id="charge:compensation")
        _say(scene, clock.now, "worker", "registers what the refund will call", early.state)
        clock.now = 1.0
        new = [store.compensate(_TRACE, "charge", "refund")[1] for _ in range(3)]
        _say(scene, clock.now, "caller", "asks for the refund three times", f"{sum(new)} refund")
        clock.now = 2.0
        receipt = store.cancel(_TRACE)
        _say(scene, clock.now, "caller", "cancels trace-1", f"already done: {', '.join(receipt.already_done)}")
        states = {}
        for span in ("wire", "charge:compensation"):
            held = store.claim(_TRACE, span)
            assert held is not None
            states[span] = store.finish(_TRACE, span, held, "refunded")
            _say(scene, clock.now, "worker", f"runs {span}", states[span])
    return {"refunds_asked_for": len(new), "refunds_registered": sum(new), "compensations_after_the_cancel": states}


def _new_run() -> dict[str, Any]:
    """The cancel of one run of a trace does not hit the next one."""
    with CancelStore.open(":memory:", clock=_Clock()) as store:
        store.cancel(_TRACE)
        old = store.register(_TRACE, "a", tool="export").state
        store.new_run(_TRACE)
        return {"first_run": old, "second_run": store.register(_TRACE, "a", tool="export").state}


# In one process --------------------------------------------------------------------------------------


async def _in_one_process(loop: VirtualLoop) -> dict[str, Any]:
    """A loop that looks every fifty items, a download in steps, and a clean-up with time of its own."""
    top = CancelToken()
    done = 0
    try:
        for done, _ in enumerate(checked(range(_ITEMS), top.child()), 1):
            if done == _CANCEL_AT:
                top.cancel("user left")
        reason = ""
    except ToolCancelled as stopped:
        reason = stopped.reason
    token, fetched = CancelToken(), list[int]()

    async def http_get(url: str, range: tuple[int, int]) -> bytes:
        fetched.append(range[0])
        if len(fetched) == 2:
            token.cancel()
        return b"x" * min(CHUNK_BYTES, 20_000 - range[0])

    try:
        await fetch_large_blob("blob", token, http_get=http_get, total=20_000)
    except ToolCancelled:
        pass
    start, cancels = loop.time(), 2
    task = asyncio.ensure_future(clean_up(lambda: pause(0.5), limit_s=1.0))
    for _ in range(cancels):
        await pause(0.1)
        task.cancel()
    await asyncio.wait({task})
    return {
        "cancelled_at_item": _CANCEL_AT,
        "stopped_after_items": done,
        "looks_every": CHECK_EVERY,
        "reason": reason,
        "fetched_before_the_cancel": fetched,
        "cancels_during_the_clean_up": cancels,
        "clean_up_took_ms": round((loop.time() - start) * 1000),
        "cancel_was_raised_afterwards": task.cancelled(),
    }


def _say(scene: Scene, now: float, who: str, what: str, answer: str) -> None:
    scene.now = round(now, 3)
    scene.note(who, what, answer)


GROUP: Final = Group(
    interruption_experiment,
    title="中断 / interruption",
    target="cancel store",
    text="""\
先写取消的行，再发消息：消息丢了，别的进程在下一次查看时也会知道。取消之后才登记的子调用一出生就是取消的，函数从不运
行。谁先提交谁算数：取消在先，结果不入库；结果在先，取消得到的是“已经完成”，剩下的只有补偿，而且只登记一次。补偿和它
所调用的一切不可取消，哪怕登记在它之前。一个子树被取消，旁边的不受影响；旧的取消不会击中新的运行。

The row is written first and the message afterwards: when the message is lost, another process knows at its next
look. A child that is registered after the cancel is born cancelled and never runs. Who commits first wins: after a
cancel no result is stored, and a cancel that comes after the result is told "already done": what is left is to
compensate, once. No cancel touches a compensation nor what it calls, even if that was registered before it. A loop
that was cancelled at item {cancelled_at_item} stopped after {stopped_after_items}, at its next look.
""",
    tables=("subtree", "races"),
)
