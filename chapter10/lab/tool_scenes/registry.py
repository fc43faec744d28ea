"""The group `registry`: the failure matrix, one row for each fault and effect, with the calls of the handler.

A code alone does not show that a write ran twice; only the count of its calls does. A handler that is out
of time waits for something that never comes, so that no row depends on the speed of a machine.
Source: the document on the tool registry, its matrix (claims T6-008 to T6-011, T6-035 to T6-042).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from chapter10.companions.tools.registry import Status, ToolRegistry, ToolSpec
from chapter10.companions.tools.tool_spec import EFFECTS
from chapter10.lab.evidence.evidence import Group, Scene

__all__ = ["GROUP", "registry_experiment"]

_SHORT_SECONDS: Final = 0.01
"""The time limit of a handler that never ends by itself."""
_LONG_SECONDS: Final = 30.0
_GRANT: Final = "orders:use"
_ARGUMENTS: Final = {"order_id": "A"}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}},
    "required": ["order_id"],
    "additionalProperties": False,
}
_DONE: Final = Status("done", "receipt A")


class _Tool:
    """A tool of one effect that fails as told, and counts how often it and its status query are called."""

    def __init__(self, effect: str, faults: list[BaseException | str], status: Status | None) -> None:
        self.calls = 0
        self.queries = 0
        self._faults = faults
        self._status = status
        self.spec = ToolSpec(
            "orders.use",
            "Does something with an order.",
            effect,
            timeout_seconds=_LONG_SECONDS,
            max_attempts=3,
            max_output_chars=40,
            handler=self._handle,
            parameters=_SCHEMA,
            permission=_GRANT,
            status_query=None if status is None else self._query,
            idempotency_key=lambda arguments: f"order {arguments['order_id']}",
        )

    async def _handle(self, order_id: str) -> object:
        fault = self._faults[min(self.calls, len(self._faults) - 1)]
        self.calls += 1
        if fault == "hang":
            await asyncio.Event().wait()
        if isinstance(fault, BaseException):
            raise fault
        return object() if fault == _UNSHOWN else str(fault)

    async def _query(self, key: str, arguments: dict[str, Any]) -> Status:
        self.queries += 1
        assert self._status is not None
        return self._status


def registry_experiment(scene: Scene) -> dict[str, Any]:
    """Run the matrix and the path of a result; no text of an exception may come through."""
    with _quiet():
        return asyncio.run(_play(scene))


async def _play(scene: Scene) -> dict[str, Any]:
    matrix = []
    for fault, play in _MATRIX:
        scene.begin(fault)
        for effect in EFFECTS:
            for status in play(effect):
                matrix.append(await _row(scene, fault.rpartition(" / ")[2], effect, *status))
    return {
        "matrix": matrix,
        "most_calls_of_a_write_out_of_time_not_known_undone": max(
            row["calls"] for row in matrix if _is_late_write(row)
        ),
        "unknown_tool": (await ToolRegistry().invoke("orders.use", _ARGUMENTS))["error"],
        "registered_twice": await _registered_twice(scene),
        "found_and_callable": await _one_source(scene),
        "secret_seen": any("hunter2" in str(row) for row in matrix),
    }


_Case = tuple[list[BaseException | str], str, Status | None, dict[str, Any]]
_Play = Callable[[str], list[_Case]]


def _same(faults: list[BaseException | str], **options: Any) -> _Play:
    """The same fault for every effect, without a status query."""
    return lambda effect: [(faults, "-", None, options)]


def _writes_ask(faults: list[BaseException | str], **options: Any) -> _Play:
    """The same fault; for a write once for each answer of its status query, and once without one."""

    def play(effect: str) -> list[_Case]:
        if effect == "read":
            return [(faults, "-", None, options)]
        answers: list[tuple[str, Status | None]] = [
            ("no query", None),
            ("unknown", Status("unknown")),
            ("not done", Status("not_done")),
            ("done", _DONE),
        ]
        return [(faults, said, status, options) for said, status in answers]

    return play


_UNSHOWN: Final = "an object that is no JSON"
_LOST: Final = ConnectionError("password=hunter2")
_MATRIX: Final[tuple[tuple[str, _Play], ...]] = (
    ("参数缺失 / missing argument", _same(["fine"], arguments={})),
    ("没有权限 / no permission", _same(["fine"], grants=())),
    ("未经批准 / not approved", _same(["fine"], approved=False)),
    ("处理函数拒绝 / the handler refuses", _same([PermissionError("password=hunter2")])),
    ("断连一次 / connection lost once", _writes_ask([_LOST, "fine"])),
    ("一直断连 / connection lost always", _writes_ask([_LOST])),
    ("超时 / out of time", _writes_ask(["hang"], seconds=_SHORT_SECONDS)),
    ("别的错误 / any other error", _same([KeyError("password=hunter2")])),
    ("输出过大 / output too large", _same(["x" * 100])),
    ("做完了，答案无法显示 / done, and its answer cannot be shown", _same([_UNSHOWN])),
)
"""Each fault, and how it is played for an effect. Whatever is not said is fine: permitted, approved, in time."""


async def _row(
    scene: Scene, fault: str, effect: str, faults: list[BaseException | str], said: str, status: Status | None,
    options: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    tool = _Tool(effect, faults, status)
    registry = ToolRegistry(grace_seconds=_SHORT_SECONDS)
    registry.register(replace(tool.spec, timeout_seconds=options.get("seconds", _LONG_SECONDS)))
    answer = await registry.invoke(
        tool.spec.name,
        options.get("arguments", _ARGUMENTS),
        grants=options.get("grants", {_GRANT}),
        approved=options.get("approved", True),
    )
    outcome = answer.get("error", "ok")
    asked = f", status {said}" if status else ""
    times = "1 call" if tool.calls == 1 else f"{tool.calls} calls"
    scene.note(effect, f"invoke{asked}", f"{outcome}, {times}")
    return {
        "fault": fault,
        "effect": effect,
        "status query says": said,
        "calls": tool.calls,
        "queries": tool.queries,
        "outcome": outcome,
        "retryable": answer.get("retryable", "-"),
        "data": answer.get("data", "-"),
        "original length": answer.get("original_length", "-"),
    }


def _is_late_write(row: dict[str, Any]) -> bool:
    return bool(row["fault"] == "out of time" and row["effect"] != "read" and row["status query says"] != "not done")


async def _registered_twice(scene: Scene) -> str | None:
    scene.begin("一个名字一个工具 / one name, one tool")
    registry = ToolRegistry()
    first = _Tool("read", ["first"], None).spec
    registry.register(first)
    code = scene.refusal("program", registry.register, _Tool("read", ["second"], None).spec)
    assert registry.get(first.name) is first
    return code


async def _one_source(scene: Scene) -> dict[str, Any]:
    """What is found is what runs; a definition that has changed since it was loaded is refused."""
    scene.begin("目录来自注册表，执行前再授权 / the catalog is made from the registry; authorized again before it runs")
    tool = _Tool("read", ["fine"], None)
    registry = ToolRegistry()
    registry.register(replace(tool.spec, keywords=("order",)))
    catalog, grants = registry.catalog(), {_GRANT}
    (hit,) = scene.call("model", catalog.search, "order", grants)
    (loaded,) = scene.call("model", catalog.load, [hit], grants)
    outcomes = {}
    for case, now, held in (("as loaded", "1", grants), ("revoked", "1", set()), ("changed", "2", grants)):
        registry.replace(replace(tool.spec, keywords=("order",), version=now))
        answer = await registry.invoke(loaded["name"], _ARGUMENTS, grants=held, loaded=loaded)
        outcomes[case] = answer.get("error", "ok")
        scene.note("gateway", f"invoke, {case}", f"{outcomes[case]}, {tool.calls} calls so far")
    return {**outcomes, "calls": tool.calls}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the registry writes into the log of the service out of the console of the reader."""
    log = logging.getLogger("chapter10.companions.tools.registry")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


GROUP: Final = Group(
    registry_experiment,
    title="工具注册表 / registry",
    target="registry",
    text="""\
每种故障、每个副作用级别一行，最要紧的一列是 `calls`：处理函数真正运行了几次。只看错误码，看不出写入跑了两遍。读取最多
重复两次；写入超时是 `outcome_unknown`，先查状态，绝不盲目重写；不可逆的写入未经批准不运行，也从不重复。写入做完了而答案
无法显示，仍是做成了，模型读到“不要再做”。模型只看到错误码，异常里的文字（这里有一个口令）不会出现在任何一行。

One row for each fault and effect. The column that counts is `calls`: how often the handler really ran. A code
alone would not show that a write ran twice. A read is repeated at most twice; a write that was out of time
is `outcome_unknown` until its status was asked, and never simply repeated; an irreversible write needs an
approval and is never repeated. A write that was done and whose answer cannot be shown was done all the same, and
the model reads that it is not to be made again. The model reads a code: the text of an exception, here with a
password in it, is in no row.
""",
    tables=("matrix",),
)
