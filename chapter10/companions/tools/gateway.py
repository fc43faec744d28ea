"""One conversation with tools: find, load, authorize, invoke, stream, budget, and the next request.

    ask ----> request ----> the model ----> turn: its calls run while it is still writing
                 ^                            |  progress and results, as they come
                 +---- the transcript <-------+  one answer for every call, at every exit

A program brings the model, the tools (`companions.tools.registry`) and the limits (`companions.tools.result_budget`):

    gateway = Gateway(registry, budget, grants=read_grants, approve=ask_somebody)
    gateway.ask("Is order A paid?")
    while not gateway.finished:
        request = gateway.request()
        async with gateway.turn(model(request.tools, request.messages)) as turn:
            async for update in turn:
                show(update.message)

What a user of this module may rely on
    W1  The model reaches a handler only through `ToolRegistry.invoke`, and only with a definition that was
        loaded before and is still the registered one. Permission is asked for at the moment of execution.
    W2  At every exit of a turn (done, interrupted, failed, abandoned by its consumer) the transcript is
        valid: each call has one result, in the order of the calls, in the very next message.
    W3  The transcript only grows. What a request has sent is the beginning of the next one, byte for byte.
    W4  After an interruption nothing starts, and there is no further request until the user asks again.
    W5  What a model reads of a failure is its code, a fixed text that says what to do next (or the text that the
        handler chose, `ToolRefused`) and the places of wrong arguments: no value, and nothing of an exception.
    W6  Progress from a handler in a thread arrives before the result of its call, in its order, and never
        makes the handler wait. While the loop is busy the newest `KEEP_PROGRESS` reports of a call are kept.
    W7  One bad block ends nothing. A call whose id was used before gets a new one, a call that names no tool gets
        its answer, and the others run; a block of another kind is kept as it came; what cannot be sent is left out.

The model sees two tools always, one that searches and one that reads results; all others it finds. Names are as
providers take them: `orders.get` is called `orders_get`, and a name that was mapped leads back to its tool. The
definitions that a search loads stand in its result and not in the list of tools, because that list is the head of
every request: a tool added to it would change all the bytes that follow. They are never cut and never replaced; of
what does not fit into one search the best comes first, and the rest is named with what to do.

An answer that breaks off on its way (its stream raises) keeps the calls that had come, each with its answer,
since some may have had their effect; without any call nothing of it is kept. Its error is raised at the end
of the turn. Arguments that are no JSON object stand in the transcript as an empty object, and half a character
that the model wrote stands there as U+FFFD: what is sent is UTF-8, or no later request would be taken.

What it does not do: it asks no model, keeps nothing across processes but the state of the budget, and
decides nothing about the order of calls. One task at a time; everything belongs to one event loop.

Source: the orchestration document, section 8.7 (claims C8-075 to C8-082), and the document on the tool
registry, its last section (claims T6-016, T6-043).
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal

from chapter10.canonical import CanonicalError, CodedError, canonical
from chapter10.catalog import BUDGET_BYTES, CatalogError, Grants
from chapter10.companions.tools.executor import KEEP_PROGRESS, StreamingToolExecutor, ToolState, Update
from chapter10.companions.tools.registry import ApprovalRequest, ToolRefused, ToolRegistry, ToolSpec
from chapter10.companions.tools.result_budget import BudgetReport, Message, ResultBudget
from chapter10.companions.tools.result_store import BudgetError, is_name
from chapter10.companions.tools.result_text import canonical_text
from chapter10.companions.tools.tool_calls import (
    MAX_TEXT,
    USER_INTERRUPT,
    CallFailure,
    CancelScope,
    ExecutorError,
    ProgressSink,
    ToolCall,
    ToolResult,
    parse_arguments,
)
from chapter10.companions.tools.tool_spec import MAX_OUTPUT_CHARS, RETRYABLE, TEXTS
from chapter10.companions.tools.transcript import Shape, blocks_of, fits, messages_for, provider_name, tools_for
from chapter10.limits import is_unicode

__all__ = [
    "MAX_MESSAGES",
    "NEXT_STEPS",
    "NO_NAME",
    "READ_TOOL",
    "SEARCH_TOOL",
    "Gateway",
    "GatewayError",
    "Request",
    "ThreadProgress",
    "Turn",
    "answer_of",
]

SEARCH_TOOL: Final = "tools_search"
READ_TOOL: Final = "results_read"
"""How the two tools are called that the model always has, unless the gateway is told otherwise."""
NEXT_STEPS: Final = {
    "left_out": "What is left out did not fit beside the others. Search for it by its name, with limit 1.",
    "too_large": "What is too large cannot be loaded here. Use another tool, or tell the user.",
    "no_result": "No result is stored under this path. Take the path from the preview that names it.",
    "nothing": "Nothing was found. Search with other words: what the tool does, or its name.",
}
"""What the model reads of a search that did not load all that it found, or found nothing, and of a wrong path."""
MAX_MESSAGES: Final = 100_000
"""Messages of one conversation."""
_READ_CHARS: Final = 100_000
"""The most characters that one `results.read` gives."""
_STREAM_GRACE_SECONDS: Final = 5.0
"""How long the stream of a model may take to close."""
NO_NAME: Final = "unknown"
"""Stands in the transcript for a name that no tool can have."""
_log: Final = logging.getLogger(__name__)
_NOT_LOADED: Final = "No tool of this name is loaded. Find it with {}. The call was not made."

_SEARCH_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 1000},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_READ_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 200},
        "start": {"type": "integer", "minimum": 0},
        "max_chars": {"type": "integer", "minimum": 1, "maximum": _READ_CHARS},
    },
    "required": ["path"],
    "additionalProperties": False,
}


class GatewayError(CodedError, ValueError):
    """Raised for a call that does not fit the state of the conversation; nothing was changed.

    `bad_input`, `turn_open` (the model is still answering), `interrupted` (the user has to ask again),
    `nothing_asked` (the last word is the model's),
    `stream_cancelled` (the model's stream ended by a cancel of its own), `conversation_full`. `reason` says
    it in a few words.
    """

    reason: str

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent to the model: the tools that it always has, and the messages within their budget.

    `loaded`: the definitions that searches have loaded so far, under the names by which the model calls them.
    """

    tools: list[dict[str, Any]]
    messages: list[Message]
    report: BudgetReport
    loaded: list[dict[str, Any]] = field(default_factory=list)

    def tools_for(self, shape: Shape, *, loaded: bool = True) -> list[dict[str, Any]]:
        """Return the tools as a provider takes them; see `transcript`.

        A provider that lets a model call only what it was told of needs the loaded ones too: then the head of the
        request changes with each load. Raises `ValueError` for another shape.
        """
        return tools_for([*self.tools, *(self.loaded if loaded else ())], shape)

    def messages_for(self, shape: Shape) -> list[Message]:
        """Return the messages as a provider takes them; see `transcript`. Raises `ValueError` for another shape."""
        return messages_for(self.messages, shape)


class Gateway:
    """One conversation. `transcript` is all that was said, with whole results where the tool's limit allows.

    `grants`: the permissions of the user, or a function that reads them anew at every execution. `approve`:
    asks somebody about an irreversible write; without it such a call is answered `approval_required`.
    `shell`: names of tools whose failure ends the other calls of the same answer. `remaining`: seconds that
    the whole task has left. `limit`: safe calls at once. `definition_bytes`: budget of one search.
    `observe(call_id, state)`: hears what becomes of each call. `search_tool`, `read_tool`: the names of the two tools
    that are always there. `ranking`: how a search reads its query, as `words` that somebody chose or as a `plain`
    question. A model gives no business keys, so each write in the registry makes its own
    (`ToolSpec.idempotency_key`). Raises `GatewayError` (`bad_input`).
    """

    def __init__(
        self,
        registry: ToolRegistry,
        budget: ResultBudget,
        *,
        grants: Grants | Callable[[], Grants] = (),
        approve: bool | Callable[[ApprovalRequest], bool | Awaitable[bool]] = False,
        shell: Collection[str] = (),
        remaining: Callable[[], float] | None = None,
        limit: int = 10,
        definition_bytes: int = BUDGET_BYTES,
        observe: Callable[[str, ToolState], None] | None = None,
        search_tool: str = SEARCH_TOOL,
        read_tool: str = READ_TOOL,
        ranking: Literal["plain", "words"] = "words",
    ) -> None:
        names = (search_tool, read_tool)
        if not all(map(fits, names)) or search_tool == read_tool or any(map(registry.get, names)):
            raise GatewayError("bad_input", "two names of tools that no other tool has, as providers take them")
        if ranking not in ("plain", "words"):
            raise GatewayError("bad_input", "ranking is plain or words")
        if isinstance(shell, str):
            raise GatewayError("bad_input", "shell is a collection of names")
        for name in sorted(registry.catalog().tools):
            spec = registry.get(name)
            if spec is not None and spec.effect != "read" and spec.idempotency_key is None:
                raise GatewayError("bad_input", f"{name} is a write that makes no business key")
        self._registry = registry
        self._budget = budget
        self._grants = grants
        self._approve = approve
        self._shell = frozenset(shell)
        self._remaining = remaining
        self._limit = limit
        self._definition_bytes = definition_bytes
        self._observe = observe
        self._ranking: Literal["plain", "words"] = ranking
        self._search_tool, self._read_tool = names
        self._resident = ToolRegistry()
        for spec in (self._search_spec(), self._read_spec()):
            self._resident.register(spec)
            budget.exempt(spec.name)
        tools = self._resident.catalog().tools
        self._tools = [tools[name].definition() for name in names]
        self._loaded: dict[str, dict[str, Any]] = {}  # by the name by which the model calls it
        self._called: dict[str, str] = {}  # how the model calls a registered name
        self._transcript: list[Message] = []
        self._call_ids: set[str] = set()
        self._repeats: dict[str, int] = {}
        self._nameless: set[str] = set()  # calls whose name no tool can have
        self._query = CancelScope()
        self._silent = False  # the model has answered, with nothing
        self._turn: Turn | None = None

    # -- The conversation ------------------------------------------------------------------------------

    def ask(self, text: str) -> None:
        """Add what the user says; a new query begins.

        Raises `GatewayError`: `bad_input`, `turn_open`, `conversation_full`.
        """
        if not isinstance(text, str) or not text.strip() or not is_unicode(text):
            raise GatewayError("bad_input", "no text, or half a character in it")
        self._refuse_open_turn()
        self._refuse_more_messages(1)
        self._transcript.append({"role": "user", "content": [{"type": "text", "text": text}]})
        self._query = CancelScope()
        self._silent = False

    def request(self) -> Request:
        """Return what is to be sent now; the budget decides about the results that it has not seen (C8-080).

        Raises `GatewayError`: `turn_open`, `interrupted`, `nothing_asked`; `BudgetError` (`state_full`).
        """
        self._refuse_to_go_on()
        messages, report = self._budget.apply(self._transcript)
        loaded = [{**definition, "name": name} for name, definition in self._loaded.items()]
        return Request(copy.deepcopy(self._tools), messages, report, copy.deepcopy(loaded))

    def turn(self, answer: AsyncIterable[Mapping[str, Any]]) -> Turn:
        """Return the turn in which the calls of one model answer run; see `Turn`.

        `answer` gives the blocks as they come: text, and `tool_use` with an `input` that is a dict or JSON
        text; a call in which the answer was cut off has `"cut_off": True`. A whole assistant message with
        `tool_calls` stands for its blocks. See W7 for all other blocks.
        Raises `GatewayError`: `turn_open`, `interrupted`, `nothing_asked`, `conversation_full`.
        """
        self._refuse_to_go_on()
        self._refuse_more_messages(2)
        return Turn(self, answer)

    def interrupt(self) -> bool:
        """Stop everything for the user; False when it was stopped before."""
        return self._query.cancel(USER_INTERRUPT)

    @property
    def finished(self) -> bool:
        """Whether there is nothing to send: the model had the last word, the user interrupted, or nobody asked."""
        last = self._transcript[-1] if self._transcript else None
        return last is None or last["role"] == "assistant" or self._silent or self._query.cancelled

    @property
    def transcript(self) -> list[Message]:
        """A copy of all messages."""
        return copy.deepcopy(self._transcript)

    @property
    def loaded(self) -> list[str]:
        """The names of the tools whose definition the model has, as they are registered."""
        return sorted(self._called)

    # -- One call --------------------------------------------------------------------------------------

    async def run(self, call: ToolCall, progress: ProgressSink) -> Any:
        """Run one call through the registry and return what the model reads; the `run` of the executor."""
        reports = ThreadProgress(progress)
        progress.called = False

        def note_start() -> None:
            progress.called = True

        if call.name in (self._search_tool, self._read_tool) and call.call_id not in self._nameless:
            answer = await self._resident.invoke(call.name, call.arguments, explain=True, on_start=note_start)
        elif call.call_id in self._nameless or call.name not in self._loaded:
            return CallFailure(
                _failure_text("unknown_tool", _NOT_LOADED.format(self._search_tool)), "unknown_tool", local=True
            )
        else:
            answer = await self._registry.invoke(
                self._loaded[call.name]["name"],
                call.arguments,
                grants=self._grants,
                approved=self._approve,
                loaded=self._loaded[call.name],
                remaining=self._remaining,
                explain=True,
                progress=reports,
                on_start=note_start,
                keep=lambda text: self._budget.store.save(text).path,
            )
        return answer_of(answer)

    def is_safe(self, call: ToolCall, arguments: Any) -> bool:
        """Whether a call may run beside others, from its parsed arguments."""
        if call.name in (self._search_tool, self._read_tool):
            return self._resident.is_concurrency_safe(call.name, arguments)
        return self._registry.is_concurrency_safe(self._registered(call.name), arguments)

    def _registered(self, name: str) -> str:
        return str(self._loaded[name]["name"]) if name in self._loaded else name

    def _call_name(self, name: str) -> str:
        """Return how the model calls a registered tool from now on; what it may not see has no part in it."""
        if name not in self._called:
            self._called[name] = provider_name(name, {self._search_tool, self._read_tool, *self._loaded})
            self._budget.same_limits(self._called[name], name)
        return self._called[name]

    def _executor(self) -> StreamingToolExecutor:
        return StreamingToolExecutor(
            self.run,
            is_safe=self.is_safe,
            query=self._query,
            limit=self._limit,
            shape_result=self._shape,
            observe=self._observe,
        )

    def _shape(self, call: ToolCall, content: Any, is_error: bool) -> Any:
        return self._budget.shape_result(call.call_id, call.name, content, is_error=is_error).content

    def _call(self, block: Mapping[str, Any]) -> ToolCall:
        """Make the call of a `tool_use` block. One that names no tool, or no id of its own, is a call as well (W7)."""
        call_id, name = self._free_id(block.get("id")), block.get("name")
        if isinstance(name, str) and name not in self._loaded:
            name = self._called.get(name, name)  # a model may use the registered name of what it has loaded
        registered = self._registered(name) if isinstance(name, str) else ""
        if not fits(name):
            self._nameless.add(call_id)
            name = provider_name(name) if is_name(name) and isinstance(name, str) else NO_NAME
        assert isinstance(name, str)
        spec = self._registry.get(registered)
        read_only = name in (self._search_tool, self._read_tool) or (spec is not None and spec.effect == "read")
        arguments, cut_off = block.get("input", {}), block.get("cut_off", False) is not False
        return ToolCall(
            call_id, name, arguments, cut_off, cancels_siblings=registered in self._shell, read_only=read_only
        )

    def _free_id(self, given: object) -> str:
        """Return the id that a call has here: its own, or one made from it where that is none or was used before."""
        base = given if is_name(given) else "call"
        assert isinstance(base, str)
        call_id = base
        while call_id in self._call_ids or not is_name(given):
            self._repeats[base] = self._repeats.get(base, 1) + 1
            given = call_id = f"{base[: MAX_TEXT - 10]}_{self._repeats[base]}"
        self._call_ids.add(call_id)
        return call_id

    # -- The tools that are always there -----------------------------------------------------------------

    def _search_spec(self) -> ToolSpec:
        async def search(query: str, limit: int = 3) -> dict[str, Any]:
            grants = self._grants() if callable(self._grants) else self._grants
            hits = self._registry.search(query, grants, int(limit), self._ranking)
            definitions, left_out, too_large = self._load_what_fits(hits, grants)
            shown = []
            for definition in definitions:
                name = self._call_name(definition["name"])
                self._loaded[name] = definition
                shown.append({**definition, "name": name})
            answer: dict[str, Any] = {"loaded": shown}
            for case, cards in (("left_out", left_out), ("too_large", too_large)):
                if cards:
                    answer[case] = [{"name": card["name"], "description": card["description"]} for card in cards]
            steps = [NEXT_STEPS[case] for case in ("left_out", "too_large") if case in answer]
            if not hits:
                steps = [NEXT_STEPS["nothing"]]
            return {**answer, "next": " ".join(steps)} if steps else answer

        return ToolSpec(
            self._search_tool,
            "Find tools by words and load the definitions of the best ones.",
            "read",
            timeout_seconds=10,
            max_attempts=1,
            max_output_chars=MAX_OUTPUT_CHARS,
            handler=search,
            parameters=_SEARCH_PARAMETERS,
            redact=_unchanged,  # a definition is a contract and stays as it is registered
        )

    def _load_what_fits(self, hits: list[dict[str, Any]], grants: Grants) -> tuple[list[Any], list[Any], list[Any]]:
        """Load whole definitions, best first, within the budget; return them, the cards left out, those too large.

        Each load is all or nothing, as the catalog's rule is; a search is more than one, so that it is no dead end.
        """
        chosen: list[dict[str, Any]] = []
        left_out: list[dict[str, Any]] = []
        too_large: list[dict[str, Any]] = []
        for hit in hits:
            if self._fits([*chosen, hit], grants):
                chosen.append(hit)
            else:
                (left_out if self._fits([hit], grants) else too_large).append(hit)
        return self._registry.load(chosen, grants, self._definition_bytes), left_out, too_large

    def _fits(self, hits: list[dict[str, Any]], grants: Grants) -> bool:
        try:
            self._registry.load(hits, grants, self._definition_bytes)
        except CatalogError as error:
            if error.code != "definition_budget_exceeded":
                raise
            return False
        return True

    def _read_spec(self) -> ToolSpec:
        async def read(path: str, start: int = 0, max_chars: int = _READ_CHARS) -> str:
            try:
                return self._budget.store.read(path, int(start), int(max_chars))
            except BudgetError:
                raise ToolRefused(NEXT_STEPS["no_result"]) from None

        return ToolSpec(
            self._read_tool,
            "Read a stored result, or a part of it, by the path that its preview names.",
            "read",
            timeout_seconds=60,
            max_attempts=1,
            max_output_chars=_READ_CHARS,
            handler=read,
            parameters=_READ_PARAMETERS,
            concurrency_safe=True,
            redact=_unchanged,  # it was redacted before it was stored
        )

    # -- The transcript --------------------------------------------------------------------------------

    def _refuse_open_turn(self) -> None:
        if self._turn is not None:
            raise GatewayError("turn_open")

    def _refuse_to_go_on(self) -> None:
        self._refuse_open_turn()
        if self._query.cancelled:
            raise GatewayError("interrupted")
        if self.finished:
            raise GatewayError("nothing_asked")

    def _refuse_more_messages(self, count: int) -> None:
        if len(self._transcript) + count > MAX_MESSAGES:
            raise GatewayError("conversation_full")

    def _end_turn(self, blocks: list[Message], results: list[ToolResult], *, broke_off: bool) -> None:
        """Add the answer as far as it came, then one result for each of its calls, in one step."""
        self._turn = None
        if not blocks and not broke_off:
            self._silent = True
        if blocks and (results or not broke_off):
            self._transcript.append({"role": "assistant", "content": list(blocks)})  # a stubborn stream has the other
            if results:
                self._transcript.append({"role": "user", "content": [_result_block(result) for result in results]})


class Turn:
    """One answer of the model: its calls run while it is being written; iterate once for progress and results.

    It is used with `async with`; leaving it in any way stops what still runs, waits for it, and completes
    the transcript. Leaving it before the answer is complete is an interruption. The error of the model's
    stream, if there was one, is raised at the end. `results`: the answers so far, in the order of the calls.
    """

    def __init__(self, gateway: Gateway, answer: AsyncIterable[Mapping[str, Any]]) -> None:
        self.results: list[ToolResult] = []
        self._gateway = gateway
        self._answer = answer
        self._blocks: list[Message] = []
        self._error: Exception | None = None
        self._stopping = False

    async def __aenter__(self) -> Turn:
        self._gateway._refuse_to_go_on()
        self._gateway._turn = self
        self._executor = self._gateway._executor()
        self._updates = self._iterate()
        self._feeder = asyncio.get_running_loop().create_task(self._feed())
        self._scope = CancelScope(self._gateway._query, lambda reason: self._stop_feeding())
        return self

    def __aiter__(self) -> AsyncGenerator[Update, None]:
        """Return progress at once and results in order, while the model still writes and until all is answered."""
        return self._updates

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._feeder.done():
            self._gateway.interrupt()
        try:
            await self._updates.aclose()
            await asyncio.wait({self._feeder}, timeout=_STREAM_GRACE_SECONDS)
        finally:
            try:
                await self._executor.aclose()
            finally:
                self._close()
        if error is None and self._error is not None:
            raise self._error

    async def _iterate(self) -> AsyncGenerator[Update, None]:
        async with aclosing(self._executor.updates()) as updates:
            async for update in updates:
                self._keep(update)
                yield update

    async def _feed(self) -> None:
        """Take the blocks as they come, until the answer ends, breaks or is stopped."""
        try:
            async for block in self._answer:
                whole = isinstance(block, Mapping) and "type" not in block and block.get("role") == "assistant"
                for one in blocks_of(block) if whole else (block,):
                    self._take(one)
        except asyncio.CancelledError:
            if not self._stopping:  # the stream's own, and not ours
                self._error = GatewayError("stream_cancelled")
                self._executor.discard()
            raise
        except Exception as error:
            self._error = error
            self._executor.discard()
        finally:
            self._executor.end_input()

    def _take(self, block: Mapping[str, Any]) -> None:
        """Note a block; a call starts at once if it may."""
        kept = _kept(block)
        if kept.get("type") == "tool_use":
            call = self._gateway._call(kept)
            kept.pop("cut_off", None)
            self._executor.add(call)  # what it refuses is not noted and needs no answer
            self._blocks.append({**kept, "id": call.call_id, "name": call.name, "input": _input(call)})
        elif kept:
            self._blocks.append(kept)

    def _stop_feeding(self) -> None:
        self._stopping = True
        self._executor.end_input()
        self._feeder.cancel()

    def _keep(self, update: Update) -> None:
        if isinstance(update.message, ToolResult):
            self.results.append(update.message)

    def _close(self) -> None:
        """Collect the last answers and complete the transcript."""
        for update in self._executor.ready():
            self._keep(update)
        self._scope.close()
        if self._executor.cancelled:
            self._gateway.interrupt()  # also when the consumer left: nobody goes on from here
        self._gateway._end_turn(self._blocks, self.results, broke_off=self._error is not None)


class ThreadProgress:
    """Brings the progress of one call to its event loop, from whatever thread reports it (W6)."""

    __slots__ = ("_lock", "_loop", "_scheduled", "_sink", "_thread", "_waiting")

    def __init__(self, sink: ProgressSink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque(maxlen=KEEP_PROGRESS)
        self._scheduled = False

    def __call__(self, data: Any) -> None:
        """Report `data`; never waits and never raises because of the loop."""
        if threading.get_ident() == self._thread:
            self._sink(data)
            return
        with self._lock:
            self._waiting.append(data)
            if self._scheduled:
                return
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return
            self._scheduled = True

    def _drain(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
            self._scheduled = False
        for data in waiting:
            self._sink(data)


def answer_of(answer: Mapping[str, Any]) -> Any:
    """Return what the model reads of an answer of `ToolRegistry.invoke`: its data, or a `CallFailure`.

    Data that was cut says so. A failure is local, which ends no other call, unless the tool itself failed
    (X-31). Source: claims T6-024, T6-041.
    """
    if answer["ok"]:
        data: str = answer["data"]
        if answer.get("truncated"):
            data += f"\n[Cut: {len(data)} of {answer['original_length']} characters.]"
        return data
    code = answer["error"]
    text = _failure_text(code, answer.get("text", TEXTS[code]), answer.get("problems"))
    return CallFailure(text, code, local=code != "tool_failure")


def _failure_text(code: str, text: str, problems: object = None) -> str:
    failure: dict[str, Any] = {"error": code, "retryable": RETRYABLE[code], "text": text}
    return canonical({**failure, "problems": problems} if problems else failure)


def _result_block(result: ToolResult) -> Message:
    block = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.content}
    return {**block, "is_error": True} if result.is_error else block


def _input(call: ToolCall) -> dict[str, Any]:
    try:
        return parse_arguments(call)
    except ExecutorError:
        return {}


def _kept(block: object) -> Message:
    """Return a copy of a block as it came, with whole characters; an empty one for what cannot be sent.

    Of a call the copy is made of what is no argument: those are read by who may refuse them.
    """
    given = dict(block) if isinstance(block, Mapping) else {}
    kind = given.get("type")
    read_later = {
        key: given.pop(key) for key in ("id", "name", "input", "cut_off") if kind == "tool_use" and key in given
    }
    try:
        kept: Message = json.loads(canonical_text(given))
    except CanonicalError:
        kept = {"type": kind} if kind == "tool_use" else {}
    if type(kept.get("type")) is str and kept["type"] not in ("", "tool_result", "text"):
        return {**kept, **read_later}
    if kept.get("type") == "text" and isinstance(kept.get("text"), str):
        return kept if kept["text"].strip() else {}
    _log.warning("a block of the model is left out: it is none")
    return {}


def _unchanged(text: str) -> str:
    return text
