"""The group `turn`: one conversation from the first search to the last word, and every way to leave a turn.

There is no model: a fixed script of blocks stands in for it, and cues decide when a tool goes on. After each
turn the transcript is checked, and each request is compared with the one before it.
Source: the orchestration document, section 8.7 (claims C8-075 to C8-082; also C8-058, C8-074).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from chapter10.companions.tools.executor import Update
from chapter10.companions.tools.gateway import READ_TOOL, SEARCH_TOOL, Gateway
from chapter10.companions.tools.registry import ApprovalRequest, CallContext, ToolRegistry, ToolSpec
from chapter10.companions.tools.result_budget import ResultBudget, merge_messages
from chapter10.companions.tools.result_store import ResultStore
from chapter10.companions.tools.tool_calls import Progress, ToolResult
from chapter10.companions.tools.transcript import prefix_digests, problems_of
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.stage import Stage

__all__ = ["GROUP", "turn_experiment"]

_Block = dict[str, Any]
_ALL: Final = frozenset({"orders:read", "logs:read", "mail:send", "notes:write", "shell:run"})
_LOG_CHARS: Final = 60_000
_MESSAGE_LIMIT: Final = 80_000
_TIMEOUT_SECONDS: Final = 60.0
"""Nothing here takes any time; a scene that hangs would end by it."""


def turn_experiment(scene: Scene) -> dict[str, Any]:
    """Play a conversation of seven requests, then each exit of a turn, and check the transcript at every step."""
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder, _quiet():
        return asyncio.run(_play(scene, Path(folder)))


async def _play(scene: Scene, folder: Path) -> dict[str, Any]:
    talk = _Talk(scene, folder / "talk", "一次完整的对话 / one whole conversation")
    requests = await _whole_conversation(talk)
    exits = [await play(scene, folder / play.__name__) for play in _EXITS]
    return {
        "requests": requests,
        "answers": talk.answers,
        "handler_calls": talk.calls,
        "approvals_asked": talk.approvals,
        "loaded": talk.gateway.loaded,
        "exits": exits,
        "problems": sum(row["problems"] for row in [*requests, *exits]),
        "earlier_part_always_as_sent": all(row["earlier part as sent before"] for row in [*requests, *exits]),
    }


class _Talk:
    """A conversation: tools that wait for their cue, a gateway, and what has been seen of both."""

    def __init__(self, scene: Scene, folder: Path, title: str) -> None:
        scene.begin(title)
        self.scene = scene
        self.stage = Stage()
        self.grants = set(_ALL)
        self.calls: dict[str, int] = {}
        self.approvals: list[str] = []
        self.answers: list[dict[str, Any]] = []
        self.folder = folder
        self.budget = ResultBudget(ResultStore(folder), message_limit=_MESSAGE_LIMIT)
        self.gateway = Gateway(
            self._registry(),
            self.budget,
            grants=lambda: frozenset(self.grants),
            approve=self._approve,
            shell={"shell.run"},
        )
        self._sent: list[str] = []
        self._names: dict[str, str] = {}

    def ask(self, text: str) -> None:
        """The user says something."""
        self.scene.note("user", "asks", text)
        self.gateway.ask(text)

    def request(self) -> dict[str, Any]:
        """Send the next request and compare it with the one before."""
        request = self.gateway.request()
        digests = prefix_digests(request.messages, request.tools)
        same, before = digests[: len(self._sent)] == self._sent, self._sent
        self._sent = digests
        groups = request.report.groups
        count = len(request.messages)
        what = "sends 1 message" if count == 1 else f"sends {count} messages"
        self.scene.note("program", what, "as before, and more" if same else "CHANGED")
        return {
            "messages": len(request.messages),
            "blocks": len(digests),
            "replaced so far": len(self.budget.state.replacements),
            "over the limit": bool(groups) and groups[-1].over_limit,
            "earlier part as sent before": same,
            "digest of the earlier part": digests[len(before) - 1][:16] if before else "-",
            "digest": digests[-1][:16],
            "problems": len(problems_of(request.messages)),
        }

    async def turn(self, answer: AsyncIterator[_Block], *, leave: bool = False) -> None:
        """Let the model answer and take what comes; `leave`: break off at the first result."""
        turn, seen = self.gateway.turn(answer), 0
        try:
            async with turn:
                async for update in turn:
                    self._note(update)
                    seen += isinstance(update.message, ToolResult)
                    if leave and seen:
                        break
        finally:
            for result in turn.results[seen:]:  # the answers that were made when the turn was left
                self._note(Update(result, None))

    async def answer(self, *script: _Block | Callable[[], Any]) -> AsyncIterator[_Block]:
        """The model writes the blocks of a script; between them, what is callable is done, one thing at a time."""
        for part in script:
            if callable(part):
                part()
            else:
                if part["type"] == "tool_use":
                    self._names[part["id"]] = part["name"]
                yield part
            await self.stage.settle()

    def cue(self, name: str, value: Any) -> Callable[[], None]:
        """Give a cue to a handler, at this place of a script."""
        return lambda: self.stage.give(name, value)

    def validity(self) -> int:
        """What a provider would refuse in the transcript as it is now."""
        return len(problems_of(merge_messages(self.gateway.transcript)))

    def codes(self) -> str:
        """How the calls of the conversation ended, in their order."""
        return ", ".join(row["code"] for row in self.answers)

    def _note(self, update: Update) -> None:
        message = update.message
        if isinstance(message, Progress):
            name = self._names[message.call_id.partition("_")[0]]  # an id that came twice has a number behind it
            what = f"{message.call_id} {name}, progress {message.number}"
            self.scene.note("tool", what, str(message.data))
            return
        what = f"{message.call_id} {message.name}, {message.code or 'ok'}"
        self.scene.note("tool", what, f"{len(message.content)} characters")
        self.answers.append(
            {
                "call": message.call_id,
                "tool": message.name,
                "code": message.code or "ok",
                "characters": len(message.content),
                "the model reads": _head(message.content),
            }
        )

    def _approve(self, request: ApprovalRequest) -> bool:
        self.approvals.append(f"{request.tool}({request.arguments['to']})")
        self.scene.note("approver", f"approves {request.tool}", str(request.arguments["to"]))
        return True

    def _registry(self) -> ToolRegistry:
        async def order(order_id: str, context: CallContext) -> Any:
            self._count("orders.get")
            context.progress(f"looks for {order_id}")
            return await self.stage.cue(f"order {order_id}")

        async def log(day: str) -> str:
            self._count("logs.get")
            return f"{day} one line of the log\n".ljust(25) * (_LOG_CHARS // 25)

        async def send(to: str) -> str:
            self._count("mail.send")
            return f"sent to {to}"

        async def save(path: str) -> Any:
            self._count("notes.save")
            return await self.stage.cue(f"save {path}")

        async def shell(command: str) -> Any:
            self._count("shell.run")
            return await self.stage.cue(f"shell {command}")

        registry = ToolRegistry()
        for name, effect, handler, argument, words in (
            ("orders.get", "read", order, "order_id", ("order", "state")),
            ("logs.get", "read", log, "day", ("log",)),
            ("mail.send", "irreversible_write", send, "to", ("mail",)),
            ("notes.save", "reversible_write", save, "path", ("note",)),
            ("shell.run", "reversible_write", shell, "command", ("shell",)),
        ):
            registry.register(_spec(name, effect, handler, argument, words))
        return registry

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1


def _spec(name: str, effect: str, handler: Callable[..., Any], argument: str, words: tuple[str, ...]) -> ToolSpec:
    return ToolSpec(
        name,
        f"Does what {name} does.",
        effect,
        timeout_seconds=_TIMEOUT_SECONDS,
        max_attempts=1,
        max_output_chars=1_000_000,
        handler=handler,
        parameters={
            "type": "object",
            "properties": {argument: {"type": "string", "maxLength": 40}},
            "required": [argument],
            "additionalProperties": False,
        },
        permission=next(right for right in _ALL if right.split(":")[0] == name.split(".")[0]),
        keywords=words,
        concurrency_safe=effect == "read",
        idempotency_key=None if effect == "read" else lambda arguments: f"{name} {arguments[argument]}",
        context_argument="context" if name == "orders.get" else None,
    )


def _text(text: str) -> _Block:
    return {"type": "text", "text": text}


def _call(call_id: str, name: str, **arguments: Any) -> _Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _search(call_id: str, query: str) -> _Block:
    return _call(call_id, SEARCH_TOOL, query=query, limit=1)


def _head(content: Any) -> str:
    line = str(content).split("\n")[0]
    return line if len(line) <= 72 else line[:69] + "..."


async def _whole_conversation(talk: _Talk) -> list[dict[str, Any]]:
    """Find, load, call two together, meet a large result, read it back, ask for approval, lose a permission."""
    talk.ask("Are the orders A and B paid? Mail the customer.")
    requests = [talk.request()]
    await talk.turn(talk.answer(_text("I look for a tool."), _search("c1", "order state"), _search("c2", "log")))
    requests.append(talk.request())
    await talk.turn(
        talk.answer(
            _call("c3", "orders.get", order_id="A"),
            _call("c4", "orders.get", order_id="B"),
            _call("c5", "logs.get", day="monday"),
            _call("c6", "mail.send", to="alice"),  # it exists, but was not found yet
            talk.cue("order B", {"state": "open"}),
            talk.cue("order A", {"state": "paid"}),
        )
    )
    requests.append(talk.request())
    path = next(result.path for result in talk.budget.state.results.values() if result.path)
    await talk.turn(talk.answer(_call("c7", READ_TOOL, path=path, start=25, max_chars=24), _search("c8", "mail")))
    requests.append(talk.request())
    await talk.turn(
        talk.answer(_call("c9", "mail.send", to="alice"), {**_call("c10", "mail.send"), "input": '{"to":"bo'})
    )
    requests.append(talk.request())
    talk.grants.discard("orders:read")
    talk.scene.note("user", "loses orders:read")
    await talk.turn(talk.answer(_call("c11", "orders.get", order_id="C"), _call("c12", "orders.get", order="C")))
    requests.append(talk.request())
    await talk.turn(talk.answer(_text("A is paid, B is open, the mail is sent.")))
    assert talk.gateway.finished
    return [{"request": number, **row} for number, row in enumerate(requests, 1)]


async def _ready_talk(scene: Scene, folder: Path, title: str, *tools: str) -> _Talk:
    """A conversation in which the tools have been found and loaded."""
    talk = _Talk(scene, folder, title)
    talk.ask("Do it.")
    talk.request()
    await talk.turn(talk.answer(*(_search(f"s{number}", tool) for number, tool in enumerate(tools))))
    talk.request()
    talk.answers.clear()
    return talk


def _exit(talk: _Talk, name: str, error: str = "-") -> dict[str, Any]:
    """Look at the transcript as it was left; then the user goes on and the next request is compared."""
    problems, can_go_on = talk.validity(), not talk.gateway.finished
    if not can_go_on:
        talk.ask("Go on.")
    row = talk.request()
    return {
        "exit": name,
        "error": error,
        "answers": talk.codes(),
        "the user has to ask again": not can_go_on,
        "earlier part as sent before": row["earlier part as sent before"],
        "over the limit": row["over the limit"],
        "digest": row["digest"],
        "problems": problems + row["problems"],
    }


async def _all_done(scene: Scene, folder: Path) -> dict[str, Any]:
    talk = await _ready_talk(scene, folder, "正常结束 / done", "order")
    await talk.turn(talk.answer(_call("a", "orders.get", order_id="A"), talk.cue("order A", None)))
    return _exit(talk, "done")


async def _interrupted(scene: Scene, folder: Path) -> dict[str, Any]:
    """One is answered, one writes, one waits, and what the model would have written next never comes."""
    talk = await _ready_talk(scene, folder, "用户中断 / the user interrupts", "order", "note")
    await talk.turn(
        talk.answer(
            _call("a", "orders.get", order_id="A"),
            talk.cue("order A", "paid"),
            _call("b", "notes.save", path="x"),
            _call("c", "notes.save", path="y"),
            talk.gateway.interrupt,
            _call("d", "notes.save", path="z"),
        )
    )
    return _exit(talk, "the user interrupts")


async def _stream_breaks(scene: Scene, folder: Path) -> dict[str, Any]:
    """The answer breaks off after two calls; one has had its effect, which nobody may forget."""
    talk = await _ready_talk(scene, folder, "模型的流中断 / the model's stream breaks", "note")

    def fail() -> None:
        raise ConnectionResetError

    script = talk.answer(
        _call("a", "notes.save", path="x"), talk.cue("save x", "saved"), _call("b", "notes.save", path="y"), fail
    )
    try:
        await talk.turn(script)
    except ConnectionResetError as error:
        return _exit(talk, "the model's stream breaks", type(error).__name__)
    raise AssertionError("the error of the stream was lost")


async def _consumer_leaves(scene: Scene, folder: Path) -> dict[str, Any]:
    talk = await _ready_talk(scene, folder, "调用方中途离开 / the consumer leaves", "order")
    script = talk.answer(
        _call("a", "orders.get", order_id="A"),
        _call("b", "orders.get", order_id="B"),
        talk.cue("order A", "paid"),
        _text("never written"),
    )
    await talk.turn(script, leave=True)
    return _exit(talk, "the consumer leaves")


async def _consumer_cancelled(scene: Scene, folder: Path) -> dict[str, Any]:
    talk = await _ready_talk(scene, folder, "调用方被取消 / the consumer is cancelled", "note")
    task = asyncio.current_task()
    assert task is not None
    script = talk.answer(_call("a", "notes.save", path="x"), _call("b", "notes.save", path="y"), task.cancel)
    try:
        await talk.turn(script)
    except asyncio.CancelledError as error:
        task.uncancel()
        return _exit(talk, "the consumer is cancelled", type(error).__name__)
    raise AssertionError("the cancel was lost")


async def _command_fails(scene: Scene, folder: Path) -> dict[str, Any]:
    talk = await _ready_talk(scene, folder, "命令失败 / a command fails", "shell", "note")
    await talk.turn(
        talk.answer(
            _call("a", "shell.run", command="mkdir x"),
            _call("b", "notes.save", path="x"),
            talk.cue("shell mkdir x", OSError("secret")),
        )
    )
    return _exit(talk, "a command fails")


async def _over_budget(scene: Scene, folder: Path) -> dict[str, Any]:
    """Three results of 40,000 are above the limit of a message; the largest go to files."""
    talk = await _ready_talk(scene, folder, "超出预算 / over budget", "order")
    await _three_large(talk)
    return _exit(talk, "over budget")


async def _disk_refuses(scene: Scene, folder: Path) -> dict[str, Any]:
    """The same, and no file can be written: everything stays whole, and the report says so."""
    talk = await _ready_talk(scene, folder, "磁盘拒绝 / the disk refuses", "order")
    shutil.rmtree(folder)
    await _three_large(talk)
    return _exit(talk, "over budget, the disk refuses")


async def _three_large(talk: _Talk) -> None:
    orders = ("A", "B", "C")
    await talk.turn(
        talk.answer(
            *(_call(order.lower(), "orders.get", order_id=order) for order in orders),
            *(talk.cue(f"order {order}", order * 40_000) for order in orders),
        )
    )


async def _one_bad_block(scene: Scene, folder: Path) -> dict[str, Any]:
    """A thought, a block of a kind that nobody knows, an id that was used before, an empty name: one good call runs."""
    talk = await _ready_talk(scene, folder, "一个坏块不结束一轮 / one bad block ends no turn", "order")
    await talk.turn(
        talk.answer(
            {"type": "thinking", "thinking": "Order A.", "signature": "s"},
            {"type": "server_note", "data": "kept as it came"},
            _call("s0", "orders.get", order_id="B"),
            _call("b", "", order_id="B"),
            _call("a", "orders.get", order_id="A"),
            talk.cue("order A", "paid"),
            talk.cue("order B", "open"),
        )
    )
    return _exit(talk, "bad blocks among good calls")


async def _cut_off(scene: Scene, folder: Path) -> dict[str, Any]:
    talk = await _ready_talk(scene, folder, "参数被截断 / cut off", "note")
    await talk.turn(
        talk.answer(
            _call("a", "notes.save", path="x"),
            talk.cue("save x", "saved"),
            {**_call("b", "notes.save"), "input": '{"path":"y"}', "cut_off": True},
        )
    )
    return _exit(talk, "the last call is cut off")


_EXITS: Final = (
    _all_done,
    _interrupted,
    _stream_breaks,
    _consumer_leaves,
    _consumer_cancelled,
    _command_fails,
    _over_budget,
    _disk_refuses,
    _one_bad_block,
    _cut_off,
)


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
    turn_experiment,
    title="一轮完整的调用 / turn",
    target="gateway",
    text="""\
把前面的都串起来：查找、加载、授权、执行、流式进度、预算、下一轮请求。没有模型，一份固定的脚本代替它。模型一直看得到的只有
两个工具；加载到的定义放在查找结果里，不改动请求的开头。每一轮结束后检查整份对话：每个调用恰好一份回答，就在下一条消息里，
空结果一个也没有；每次请求的开头与上一次逐字节相同。模型写坏的一块只得到它自己的回答，别的调用照常执行。

Everything together: find, load, authorize, invoke, stream, budget, next request. There is no model; a fixed script
stands in for it. The model always sees two tools only, and the definitions that it loads stand in the result
of the search, so that the head of a request never changes. After every turn, however it was left, the
transcript is checked ({problems} problems in all): each call has one answer, in the very next message, none
of them empty, and each request begins with the bytes of the one before. A block that the model wrote badly
gets its own answer, and the other calls run.
""",
    tables=("requests", "answers", "exits"),
)
