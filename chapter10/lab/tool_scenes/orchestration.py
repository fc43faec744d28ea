"""The group `orchestration`: which calls of one answer run together, what a failure ends, how answers leave.

Time is the number of the step: one cue is given, and everything that follows from it happens before the next.
Source: the orchestration document, sections 8.1 to 8.3 (claims C8-001 to C8-042).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from chapter10.companions.tools.executor import StreamingToolExecutor, ToolState
from chapter10.companions.tools.tool_calls import (
    STREAMING_FALLBACK,
    USER_INTERRUPT,
    CancelScope,
    Progress,
    ProgressSink,
    ToolCall,
    ToolResult,
)
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.stage import Stage

__all__ = ["GROUP", "orchestration_experiment"]

_FIVE: Final = (
    ToolCall("1", "Read", {"path": "a.ts"}, read_only=True),
    ToolCall("2", "Read", {"path": "b.ts"}, read_only=True),
    ToolCall("3", "Bash", {"command": "npm test"}, cancels_siblings=True),
    ToolCall("4", "Edit", {"path": "c.ts"}),
    ToolCall("5", "Read", {"path": "d.ts"}, read_only=True),
)
"""The five calls of the document's walk-through, in one answer of the model."""
_READ_COMMANDS: Final = frozenset({"ls", "git status"})


def orchestration_experiment(scene: Scene) -> dict[str, Any]:
    """Play the walk-through of five calls, then a failure, an order, and each way to be stopped."""
    return asyncio.run(_play(scene))


async def _play(scene: Scene) -> dict[str, Any]:
    scene.whose_states = "调用走过的状态 / the states that the calls went through"
    return {
        **await _walk_through(scene),
        **await _results_in_order(scene),
        "stopped": [
            *await _a_read_fails(scene),
            *await _a_tool_cancels_itself(scene),
            *await _a_command_fails(scene),
            *await _the_user_interrupts(scene),
            *await _the_stream_falls_back(scene),
        ],
    }


class _Run:
    """An executor whose tools wait for their cue, with everything that it says noted in the scene."""

    def __init__(self, scene: Scene, query: CancelScope | None = None) -> None:
        self.stage = Stage()
        self.scene = scene
        self.scene.now = 0
        self.times: dict[str, dict[str, int]] = {}
        self.started_beside: dict[str, list[str]] = {}
        self.results: list[ToolResult] = []
        self._states: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self.executor = StreamingToolExecutor(self._run, is_safe=_is_safe, query=query, observe=self._observe)

    async def add(self, *calls: ToolCall) -> None:
        """The model writes these calls, one after the other."""
        for call in calls:
            self._labels[call.call_id] = _label(call)
            self.times[call.call_id] = {"queued": self._now}
            self._note(call.call_id, "queued", "safe" if _is_safe(call, call.arguments) else "alone")
            self.executor.add(call)
            await self.stage.settle()
            self._hand_out()

    async def step(self, action: Callable[[], Any]) -> None:
        """One thing happens, at the next step of logical time, and then everything that follows from it."""
        self.scene.now = self._now + 1
        action()
        await self.stage.settle()
        self._hand_out()

    async def ends(self, call_id: str, value: Any = "ok") -> None:
        """The tool of this call returns (or raises) at the next step."""
        await self.step(lambda: self.stage.give(call_id, value))

    async def close(self) -> None:
        """Nothing more comes and nothing may be left."""
        self.executor.end_input()
        await self.executor.aclose()
        self._hand_out()

    @property
    def _now(self) -> int:
        return int(self.scene.now or 0)

    async def _run(self, call: ToolCall, progress: ProgressSink) -> Any:
        while True:
            value = await self.stage.cue(call.call_id)
            if not isinstance(value, Progress):
                return value
            progress(value.data)

    def _observe(self, call_id: str, state: ToolState) -> None:
        self.times[call_id].setdefault(state.value, self._now)
        before, self._states[call_id] = self._states.get(call_id, "queued"), state.value
        self.scene.transitions.append((before, state.value, ""))
        detail = ""
        if state is ToolState.EXECUTING:
            beside = [self._labels[other] for other in self.executor.executing if other != call_id]
            self.started_beside[call_id] = beside
            detail = f"beside {', '.join(beside)}" if beside else ""
        self._note(call_id, state.value, detail)

    def _hand_out(self) -> None:
        for update in self.executor.ready():
            if isinstance(update.message, ToolResult):
                self.results.append(update.message)
            else:
                self._note(update.message.call_id, f"progress {update.message.number}", str(update.message.data))

    def _note(self, call_id: str, what: str, detail: str = "") -> None:
        self.scene.note(self._labels[call_id], what, detail)

    def rows(self, case: str) -> list[dict[str, Any]]:
        """How each call ended, as rows of a table."""
        return [
            {
                "case": case,
                "call": self._labels[result.call_id],
                "started": result.started,
                "code": result.code or "-",
                "the model reads": result.content,
            }
            for result in self.results
        ]


def _is_safe(call: ToolCall, arguments: Any) -> bool:
    """Reads are safe, and so is a shell command that only looks; the arguments decide, not the name (X-32)."""
    return call.name == "Read" or (call.name == "Bash" and arguments["command"] in _READ_COMMANDS)


def _label(call: ToolCall) -> str:
    return f"{call.name}({next(iter(call.arguments.values()))})"


async def _walk_through(scene: Scene) -> dict[str, Any]:
    """The five calls of the document: two reads together, the command alone, the edit alone, the last read."""
    scene.begin("五个调用的调度 / the schedule of five calls")
    run = _Run(scene)
    await run.add(*_FIVE)
    first = [_label(call) for call in _FIVE if call.call_id in run.executor.executing]
    for call_id in ("2", "1", "3", "4", "5"):  # b.ts is faster than a.ts
        await run.ends(call_id)
    await run.close()
    schedule = [
        {
            "call": _label(call),
            "safe": _is_safe(call, call.arguments),
            **{state.value: run.times[call.call_id][state.value] for state in ToolState},
            "started beside": ", ".join(run.started_beside[call.call_id]) or "-",
        }
        for call in _FIVE
    ]
    return {
        "executing_after_all_were_added": first,
        "schedule": schedule,
        "result_order": [result.call_id for result in run.results],
    }


async def _results_in_order(scene: Scene) -> dict[str, Any]:
    """The third is done first and waits; its progress does not."""
    scene.begin("完成是乱序的，交付是顺序的，进度不等人 / done out of order, handed out in order, progress at once")
    run = _Run(scene)
    reads = [ToolCall(name, "Read", {"path": f"{name}.ts"}, read_only=True) for name in ("x", "y", "z")]
    await run.add(*reads)
    await run.step(lambda: run.stage.give("z", Progress("z", 0, "half")))
    for call_id in ("z", "x", "y"):
        await run.ends(call_id)
    await run.close()
    completed = sorted(reads, key=lambda call: run.times[call.call_id]["completed"])
    return {
        "completed_order": [call.call_id for call in completed],
        "yielded_order": [result.call_id for result in run.results],
    }


async def _a_read_fails(scene: Scene) -> list[dict[str, Any]]:
    """A missing file is the matter of that read alone."""
    scene.begin("读取失败只影响自己 / a read that fails concerns itself")
    run = _Run(scene)
    await run.add(_FIVE[0], _FIVE[1])
    await run.ends("1", FileNotFoundError("a.ts"))
    await run.ends("2")
    await run.close()
    return run.rows("a read fails")


async def _a_tool_cancels_itself(scene: Scene) -> list[dict[str, Any]]:
    """A tool that raises `CancelledError` of its own has failed; nobody asked for that cancel, so nobody else ends."""
    scene.begin("工具自己抛出的取消只是它的失败 / a cancel that a tool makes itself is its own failure")
    run = _Run(scene)
    await run.add(_FIVE[0], _FIVE[1])
    await run.ends("1", asyncio.CancelledError())
    await run.ends("2")
    await run.close()
    return run.rows("a tool cancels itself")


async def _a_command_fails(scene: Scene) -> list[dict[str, Any]]:
    """A command that fails ends what runs beside it and what waits behind it, but not the query."""
    scene.begin("命令失败取消兄弟，不取消查询 / a command that fails ends its siblings and not the query")
    query = CancelScope()
    run = _Run(scene, query)
    command = ToolCall("6", "Bash", {"command": "ls"}, cancels_siblings=True, read_only=True)
    await run.add(_FIVE[0], command, _FIVE[3])
    await run.ends("6", RuntimeError("exit code 1"))
    await run.close()
    rows = run.rows("a command fails")
    again = _Run(scene, query)
    scene.now = 2
    await again.add(ToolCall("7", "Read", {"path": "e.ts"}, read_only=True))
    await again.ends("7")
    await again.close()
    return rows + again.rows("the next answer of the same query")


async def _the_user_interrupts(scene: Scene) -> list[dict[str, Any]]:
    """One was handed out, one is done, one writes, two wait; each gets its answer, and none twice."""
    scene.begin("用户中断 / the user interrupts")
    query = CancelScope()
    run = _Run(scene, query)
    await run.add(_FIVE[0])
    await run.ends("1")
    await run.add(_FIVE[3], *(ToolCall(name, "Edit", {"path": f"{name}.ts"}) for name in ("f", "g")))
    await run.step(lambda: query.cancel(USER_INTERRUPT))
    await run.close()
    return run.rows("the user interrupts")


async def _the_stream_falls_back(scene: Scene) -> list[dict[str, Any]]:
    """The answer that asked for the calls is given up; a read that ran may be read again without a thought."""
    scene.begin("回答作废重来 / the answer is given up and produced anew")
    run = _Run(scene)
    await run.add(_FIVE[0], _FIVE[3])
    await run.step(run.executor.discard)
    await run.close()
    rows = run.rows("the stream falls back")
    assert all(result.code == STREAMING_FALLBACK for result in run.results)
    return rows


GROUP: Final = Group(
    orchestration_experiment,
    title="工具编排 / orchestration",
    target="executor",
    text="""\
文档的五个调用：两个读取一起跑，命令独占，编辑独占，最后一个读取虽然安全也不越过前面被挡住的调用。`t` 是步号：每一步只
给一个提示，其后能发生的都先发生。结果按入队顺序交付，进度不等任何人。工具自己抛出的取消只是它自己的失败。
只有命令自己的失败会取消兄弟，而且不向上取消查询；
被取消的每个调用都有一份说明原因的回答。

The five calls of the document: two reads together, the command alone, the edit alone, and the last read does
not overtake what is blocked before it, though it is safe. `t` is the number of the step: one cue is given,
and everything that follows from it happens before the next. Results leave in the order of the calls,
progress waits for nobody. A cancel that a tool raises itself is the failure of that call. Only the failure
of a command ends its siblings, and it never goes up to the query; each call that was ended has an answer that
says why, and whether it had started.
""",
    tables=("schedule", "stopped"),
)
