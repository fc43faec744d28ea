"""The tools of a server become tools of a registry in one call: `connect_tools(registry, ask)`.

`ask(method, params)` asks that server and returns the `result` of its answer, or raises; it may be plain, and is then
called in threads, or a coroutine function. How it reaches the server is its own affair.

    B1  `tools/list` is asked page by page, by `nextCursor`, at most `MAX_PAGES` times. Nothing is registered before the
        list has ended; a list that does not end says so (`is_partial`).
    B2  A tool that cannot be offered (no name, a schema that cannot be enforced, a name that is taken) is refused
        alone, by its name and with the reason; the others are registered.
    B3  A call passes the registry's one boundary. What the server answered is read there as the result of a server:
        texts, data, `isError`. What is no such result, the model is told; whether it took effect is not known then.
    B4  With `server="files"` a tool `read` is `files__read` here, and the server hears its own name.

A tool that does not say of itself that it only reads is a write. Its business key is the digest of its arguments: a
server is given no key, so that the key names the call and makes nothing idempotent; nothing is repeated.

`read_pages` and `said_of` are the parts; `upstream` reads its children by them.
Source: the document on the tool registry, its last section (claims T6-016, T6-043).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from chapter10.canonical import digest
from chapter10.companions.finding.tool_list import RefusedTool, parse_tool_list
from chapter10.companions.serving.loading import ServingError, definition_spec
from chapter10.companions.tools.attempt import is_async
from chapter10.companions.tools.registry import RegistryError, ToolRegistry
from chapter10.companions.tools.tool_spec import PUBLIC

__all__ = ["MAX_PAGES", "UNREAD", "Ask", "Connected", "connect_tools", "read_pages", "said_of"]

MAX_PAGES: Final = 100
"""Pages of one list."""
UNREAD: Final = "The server's answer is none that is passed on here. It is not known whether the call took effect."
"""What stands for an answer that is no result of a call, such as a question back."""


Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]] | dict[str, Any]]
"""Asks a server: the method and its params, the result."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The names that were registered, what was refused, and whether the server has tools that are not here."""

    names: tuple[str, ...]
    refused: tuple[RefusedTool, ...]
    is_partial: bool


async def connect_tools(
    registry: ToolRegistry, ask: Ask, *, server: str = "", permission: str = PUBLIC, **options: Any
) -> Connected:
    """Register the tools that a server lists; `options` are further fields of `ToolSpec`, the same for all.

    `server`: what stands before each name, 1 to 30 letters, digits and `-`; "" for nothing. Raises `ServingError`
    (`bad_tools`) for an answer that is no list, `ToolListError`, `ValueError` (`server`), `CatalogError`
    (`permission`), and what `ask` raises; then nothing was registered.
    """
    parse_tool_list([], permission=permission, server=server)  # what the caller got wrong, before a server is asked
    listed, goes_on = await read_pages(ask)
    found = parse_tool_list(listed, permission=permission, repeated="first", server=server)
    refused = list(found.refused)
    refused += [RefusedTool(one.name, one.place, f"the same name as {one.first_place}") for one in found.left_out]
    names = []
    for tool in found.tools:
        try:
            handler = _handler(ask, found.name_at_server(tool.name))
            registry.register(definition_spec(tool, handler, permission, **{"idempotency_key": digest, **options}))
            names.append(tool.name)
        except RegistryError as error:
            reason = error.reason or "is taken"
            refused.append(RefusedTool(tool.name, error.field, reason))
    return Connected(tuple(names), tuple(refused), goes_on or bool(refused))


async def read_pages(ask: Ask) -> tuple[list[Any], bool]:
    """Return all that `tools/list` lists, and whether it would go on. Raises `ServingError` (`bad_tools`)."""
    listed: list[Any] = []
    params: dict[str, Any] = {}
    for _ in range(MAX_PAGES):
        asked = ask("tools/list", params)
        page: Any = await asked if inspect.isawaitable(asked) else asked
        tools = page.get("tools") if type(page) is dict else None
        if type(tools) is not list:
            raise ServingError("bad_tools", "the server's answer holds no list of tools")
        listed += tools
        if type(page.get("nextCursor")) is not str:
            return listed, False
        params = {"cursor": page["nextCursor"]}
    return listed, True


def said_of(result: object) -> dict[str, Any]:
    """Return what a server said in the result of a call: blocks, data, whether it is an error."""
    if type(result) is not dict or result.get("resultType", "complete") != "complete":
        return _UNREAD
    if type(result.get("content")) is not list:
        return _UNREAD
    said = {key: result[key] for key in ("content", "structuredContent") if key in result}
    return {**said, "isError": result.get("isError") is True}


_UNREAD: Final = {"content": [{"type": "text", "text": UNREAD}], "isError": True}


def _handler(ask: Ask, name: str) -> Callable[..., Any]:
    def params(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "arguments": arguments}

    if is_async(ask):

        async def later(**arguments: Any) -> dict[str, Any]:
            answer: Any = ask("tools/call", params(arguments))
            return said_of(await answer)

        return later
    return lambda **arguments: said_of(ask("tools/call", params(arguments)))
