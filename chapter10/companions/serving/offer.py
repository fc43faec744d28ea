"""What one identity is offered: the tools themselves while they are few, and otherwise three that find, load and call.

    few       up to `DIRECT_TOOLS` that these grants may see, each with a name that the protocol allows: they are
              listed, each with its whole schema
    many      the list has `tools_search`, `tools_load` and `tools_call`; what they find is not listed, so that the
              list stays the same however many tools there are

What holds
    O1  Permission decides what is listed, found and loaded, and again, at the moment of execution, what is called.
        What these grants may not see looks like what does not exist.
    O2  Every call of a tool goes through `ToolRegistry.invoke`, with the definition that the client was shown. One that
        has changed since it was listed or loaded is not called: the answer is a fixed sentence that says what to do
        next, and the client is told that the list changed.
    O3  An irreversible write, or a tool that asks for approval, runs only if the grants hold `approve:NAME`. Nobody
        can be asked over this connection, and who calls does not approve.
    O4  A page of the list ends before `PAGE_BYTES`, with one tool at least. A cursor belongs to the list that it came
        from; after a change it is refused, and the client begins anew.

The names of the three have no dot: the chapter's `tools.search` is refused by common clients, whose names are
letters, digits, `_` and `-`. A definition alone is loaded whatever its size, several within `LOAD_BYTES` or not at all.

Source: the chapter from its search to its caches and versions (claims C10-018 to C10-092), and the protocol's page on
tools, 2026-07-28.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from chapter10.canonical import canonical, digest
from chapter10.catalog import CatalogError, Grants, Tool
from chapter10.companions.schemas.schema import Validator, compile_schema
from chapter10.companions.serving.messages import INVALID_PARAMS, RpcError
from chapter10.companions.tools.gateway import answer_of
from chapter10.companions.tools.registry import ApprovalRequest, ToolRegistry, ToolSpec
from chapter10.companions.tools.tool_calls import CallFailure
from chapter10.companions.tools.tool_spec import PUBLIC

__all__ = ["CHANGED", "DIRECT_TOOLS", "ENTRIES", "LOAD_BYTES", "PAGE_BYTES", "Offer", "Shape", "refusal", "text_result"]

DIRECT_TOOLS: Final = 30
"""The most tools that are listed one by one."""
PAGE_BYTES: Final = 256 * 1024
"""Bytes of the tools on one page of the list."""
LOAD_BYTES: Final = 16 * 1024
"""Bytes of several definitions that are loaded at once."""
_MAX_FOUND: Final = 20

CHANGED: Final = "The definition of this tool has changed since it was listed. It was not called. List the tools again."
_CHANGED_SINCE_LOADED: Final = (
    "The definition of this tool has changed since it was loaded. It was not called. Find it again with tools_search."
)
_REFUSED: Final = {
    "denied": "There is no tool of this name. Find one with tools_search.",
    "stale_definition": "A definition has changed since it was found. Find it again with tools_search.",
    "definition_budget_exceeded": f"Together they exceed {LOAD_BYTES} bytes. Load fewer at a time, or one alone.",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")

_FOUND: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "digest": {"type": "string"}},
    "required": ["name", "digest"],
}
ENTRIES: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "tools_search",
        "description": "Find tools by words. Returns names, descriptions and digests, and no schemas.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": 1000},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MAX_FOUND},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "tools_load",
        "description": "Load the whole definitions of tools that tools_search found, to see their parameters.",
        "inputSchema": {
            "type": "object",
            "properties": {"tools": {"type": "array", "items": _FOUND, "minItems": 1, "maxItems": _MAX_FOUND}},
            "required": ["tools"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "tools_call",
        "description": "Call a tool that was loaded: its name, the digest of its definition, and its arguments.",
        "inputSchema": {
            "type": "object",
            "properties": {**_FOUND["properties"], "arguments": {"type": "object"}},  # type: ignore[dict-item]
            "required": ["name", "digest"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False},
    },
)
"""What a client with many tools sees, always the same bytes."""

Shape = Callable[[str, bool], Awaitable[dict[str, Any]]]
"""Makes the result of a call from the text of the boundary; the second argument says whether a task will do."""


class Offer:
    """The tools of one process for one identity; `grants` are its permissions, and every identity has `public`.

    `new_key()`: a fresh business key, for a write that makes none; a repetition of the request is then a new act.
    `direct`, `page_bytes`: see `DIRECT_TOOLS`, `PAGE_BYTES`. `on_change` is called when the list is no longer what was
    shown; whoever speaks to the client sets it.
    """

    on_change: Callable[[], None]

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        grants: Grants = (),
        new_key: Callable[[], str],
        direct: int = DIRECT_TOOLS,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self.on_change = lambda: None
        self._registry = registry
        self._grants = frozenset(grants) | {PUBLIC}
        self._new_key = new_key
        self._direct = direct
        self._page_bytes = page_bytes
        self._shapes: dict[str, Shape] = {}
        self._validators = {entry["name"]: compile_schema(entry["inputSchema"]) for entry in ENTRIES}
        self._shown: dict[str, str] = {}  # by name, the digest that a client was last shown

    def put(self, spec: ToolSpec, shape: Shape | None = None) -> None:
        """Offer a tool, or a changed one in its place. Raises `RegistryError` (`invalid_tool`)."""
        if self._registry.get(spec.name) is None:
            self._registry.register(spec)
        else:
            self._registry.replace(spec)
        self._shapes.pop(spec.name, None)
        if shape is not None:
            self._shapes[spec.name] = shape

    def drop(self, name: str) -> None:
        """Offer a tool no more. Raises `RegistryError` (`not_registered`)."""
        self._registry.remove(name)
        self._shapes.pop(name, None)

    def has(self, name: str) -> bool:
        """Say whether a tool of this name is offered to anybody."""
        return self._registry.get(name) is not None

    def visible(self, name: str) -> Tool | None:
        """Return a tool that these grants may see, or None (O1)."""
        tool = self._registry.catalog().tools.get(name)
        return tool if tool is not None and tool.permission in self._grants else None

    def searches(self) -> bool:
        """Say whether the tools are many, so that they are found and not listed."""
        tools = self._registry.catalog().discoverable(self._grants)
        return len(tools) > self._direct or not all(_NAME.fullmatch(tool.name) for tool in tools)

    def page(self, cursor: str | None) -> dict[str, Any]:
        """Return one page of the list, `{tools, nextCursor?}`; `cursor` None for the first.

        Raises `RpcError` (-32602) for a cursor that is none of this list's, the empty text included.
        """
        tools = [] if self.searches() else self._registry.catalog().discoverable(self._grants)
        listed = [_listed(tool) for tool in tools] if tools else [dict(entry) for entry in ENTRIES]
        sizes = [len(canonical(tool).encode("utf-8")) for tool in listed]
        whole = digest(listed)[:16]
        start = 0
        if cursor is not None:
            number, _, of_list = cursor.partition("-")
            start = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
            if of_list != whole or f"{start}" != number or not 0 < start < len(listed):
                raise RpcError(INVALID_PARAMS, "The cursor belongs to no list of now. Begin anew without one.")
        end, room = start, self._page_bytes
        while end < len(listed) and (end == start or sizes[end] <= room):
            room -= sizes[end]
            end += 1
        self._shown.update({tool.name: tool.digest for tool in tools[start:end]})
        more = {"nextCursor": f"{end}-{whole}"} if end < len(listed) else {}
        return {"tools": listed[start:end], **more}

    def how_to_call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return name and arguments with which this client calls a tool that it was not shown yet."""
        tool = self._registry.catalog().tools[name]
        if not self.searches():
            return {"name": name, "arguments": arguments}
        return {"name": "tools_call", "arguments": {"name": name, "digest": tool.digest, "arguments": arguments}}

    async def call(
        self, name: str, arguments: dict[str, Any], *, progress: Callable[[Any], None] | None = None, task: bool = False
    ) -> dict[str, Any]:
        """Call what a client named and return the protocol's result; `task`: a handle will do as an answer.

        Raises `RpcError` (-32602) for a name that is not offered.
        """
        if self.searches():
            validator = self._validators.get(name)
            if validator is None:
                raise _unknown(name)
            return await self._enter(name, validator, arguments, progress, task)
        tool = self.visible(name)
        if tool is None:
            if self._shown.pop(name, None) is not None:
                self.on_change()
            raise _unknown(name)
        if self._shown.get(name, tool.digest) != tool.digest:
            self.on_change()
            return refusal("stale_definition", CHANGED)
        return await self._run(tool, arguments, progress, task)

    async def _enter(
        self,
        name: str,
        validator: Validator,
        arguments: dict[str, Any],
        progress: Callable[[Any], None] | None,
        task: bool,
    ) -> dict[str, Any]:
        """One of the three that are listed where the tools are many."""
        read, problems = validator.read(arguments)
        if problems:
            wrong = [problem._asdict() for problem in problems]
            return refusal("invalid_arguments", "The arguments do not fit this tool. It was not called.", wrong)
        if name == "tools_call":
            tool = self.visible(read["name"])
            if tool is None:
                return refusal("unknown_tool", _REFUSED["denied"])
            if read["digest"] != tool.digest:
                return refusal("stale_definition", _CHANGED_SINCE_LOADED)
            return await self._run(tool, read.get("arguments", {}), progress, task)
        try:
            found = self._search(read) if name == "tools_search" else self._load(read["tools"])
        except CatalogError as error:
            return refusal(error.code, _REFUSED.get(error.code, "The arguments do not fit this tool."))
        return text_result(canonical({"tools": found}))

    def _search(self, read: dict[str, Any]) -> list[dict[str, Any]]:
        """Find by a plain question, counted among what this identity may see."""
        return self._registry.search(read["query"], self._grants, int(read.get("limit", 3)), "plain")

    def _load(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        catalog = self._registry.catalog()
        hits = [{"name": hit["name"], "digest": hit["digest"]} for hit in found]
        return catalog.load(hits, self._grants, LOAD_BYTES if len(hits) > 1 else 2**30)

    async def _run(
        self, tool: Tool, arguments: dict[str, Any], progress: Callable[[Any], None] | None, task: bool
    ) -> dict[str, Any]:
        """Call through the one boundary, with the definition that is right now; it is compared again there (O2)."""
        spec = self._registry.get(tool.name)
        keyless = spec is not None and spec.effect != "read" and spec.idempotency_key is None
        answer = await self._registry.invoke(
            tool.name,
            arguments,
            grants=self._grants,
            approved=self._approved,
            loaded={"name": tool.name, "digest": tool.digest},
            key=self._new_key() if keyless else None,
            explain=True,
            progress=progress,
        )
        shape = self._shapes.get(tool.name)
        if shape is not None and answer["ok"] and answer.keys() <= {"ok", "data"}:  # whole, and as it was returned
            return await shape(answer["data"], task)
        said = answer_of(answer)
        return text_result(said.content, is_error=True) if isinstance(said, CallFailure) else text_result(said)

    def _approved(self, request: ApprovalRequest) -> bool:
        return f"approve:{request.tool}" in self._grants


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return the protocol's result of a call that said `text`."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def refusal(code: str, text: str, problems: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return the result of a call that was not made: a stable code, and a sentence that says what to do next."""
    said: dict[str, Any] = {"error": code, "retryable": False, "text": text}
    return text_result(canonical({**said, "problems": problems} if problems else said), is_error=True)


def _listed(tool: Tool) -> dict[str, Any]:
    definition = tool.definition()
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"type": "object", **definition["parameters"]},
        "annotations": {"readOnlyHint": tool.effect == "read"},
    }


def _unknown(name: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Unknown tool: {name[:128]}")
