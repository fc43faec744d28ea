"""What a person names on the command line becomes tools: a module of handlers, and a file of definitions.

    --handlers MODULE   a Python module by its name. Its `TOOLS` is a `ToolRegistry`, or a list of `ToolSpec`, `JobTool`
                        and functions; without `TOOLS` its public functions are the tools. `JOBS` may list `JobTool`s
                        beside a registry
    --tools FILE        definitions as `tools/list` gives them. Each is carried out by the module's function of the same
                        name, with `_` for every sign that a name in Python cannot have: `orders.get`, `orders_get`.
                        Without a module they are listed and found, and a call says that nothing carries them out

A function is described by its hints and its docstring, as `ToolRegistry.tool` takes it; it counts as a write, because
nobody said that it is harmless. A member `permission` of a tool in a file is its permission; without it the tool is
`public`. A definition in a file that cannot be enforced is left out and named; the others are offered.

A module is loaded by its name and runs with the rights of whoever started the server: name only what you trust. Raises
`ServingError` for what cannot be offered.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from chapter10.canonical import CodedError
from chapter10.catalog import Tool, fixture_tools
from chapter10.companions.basics import modules
from chapter10.companions.finding.tool_list import ToolListError, read_tool_list
from chapter10.companions.serving.offer import Offer, refusal
from chapter10.companions.serving.task_handles import JobTool
from chapter10.companions.tools.registry import RegistryError, ToolRegistry, ToolSpec
from chapter10.companions.tools.tool_spec import PUBLIC

__all__ = [
    "MAX_OUTPUT_CHARS",
    "TIMEOUT_SECONDS",
    "ServingError",
    "definition_spec",
    "job_tools",
    "load_module",
    "module_registry",
    "offer_file",
    "offer_fixture",
    "offer_tools",
]

TIMEOUT_SECONDS: Final = 60.0
"""Of one call of a tool that says nothing of its own."""
MAX_OUTPUT_CHARS: Final = 100_000


class ServingError(CodedError, ValueError):
    """Raised for what was named and cannot be served: `bad_handlers`, `bad_tools`, `bad_servers`; `reason` says why."""

    reason: str

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.reason = reason


def load_module(name: str) -> ModuleType:
    """Return the module `name` as `basics.modules` finds it. Raises `ServingError` (`bad_handlers`)."""
    try:
        return modules.load_module(name)
    except modules.ModuleError as error:
        raise ServingError(error.code, error.reason) from error


def module_registry(module: ModuleType | None) -> ToolRegistry:
    """Return the registry that a module calls its `TOOLS`, or a new one."""
    tools = getattr(module, "TOOLS", None)
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry()


def job_tools(module: ModuleType | None) -> list[JobTool]:
    """Return the job tools of a module, from `TOOLS` and `JOBS`."""
    items = [] if module is None else [*_items(module), *getattr(module, "JOBS", ())]
    return [item for item in items if isinstance(item, JobTool)]


def offer_fixture(offer: Offer) -> None:
    """Offer the chapter's 300 tools, to be looked at."""
    for tool in fixture_tools():
        offer.put(definition_spec(tool, _nothing, tool.permission), _not_carried_out)


def offer_tools(offer: Offer, module: ModuleType) -> None:
    """Offer what a module has besides job tools. Raises `ServingError` (`bad_handlers`)."""
    for item in _items(module):
        if isinstance(item, JobTool):
            continue
        if not isinstance(item, ToolSpec) and not inspect.isfunction(item):
            raise ServingError("bad_handlers", f"TOOLS holds neither a tool nor a function: {type(item).__name__}")
        try:
            offer.put(item if isinstance(item, ToolSpec) else _function_spec(item))
        except RegistryError as error:
            name = getattr(item, "name", getattr(item, "__name__", "?"))
            raise ServingError("bad_handlers", f"{name}: {error.code}: {error.field}: {error.reason}") from error


def offer_file(offer: Offer, path: Path, module: ModuleType | None) -> list[str]:
    """Offer the definitions of a file, and return a line for each that cannot be enforced.

    Raises `ServingError`: `bad_tools` for a file that is none, `bad_handlers` where a function is missing.
    """
    try:
        found = read_tool_list(path, permission=PUBLIC)
    except ToolListError as error:
        raise ServingError("bad_tools", error.line) from error
    document = json.loads(path.read_bytes())  # once more, for the one member that is ours
    entries = document["tools"] if isinstance(document, dict) else document
    permissions = {entry["name"]: entry["permission"] for entry in entries if _has_permission(entry)}
    left_out = [f"{tool.name or tool.place}: {tool.reason}" for tool in found.refused]
    for tool in found.tools:
        permission = permissions.get(tool.name, PUBLIC)
        handler = None
        if module is not None:
            handler = getattr(module, re.sub(r"\W", "_", tool.name), None)
            if not inspect.isfunction(handler):
                raise ServingError("bad_handlers", f"no function carries out {tool.name}")
        try:
            if handler is None:
                offer.put(definition_spec(tool, _nothing, permission), _not_carried_out)
            else:
                offer.put(definition_spec(tool, handler, permission))
        except RegistryError as error:
            left_out.append(f"{tool.name}: {error.field}: {error.reason}")
    return left_out


def definition_spec(tool: Tool, handler: Callable[..., Any], permission: str, **options: Any) -> ToolSpec:
    """Return the spec of a tool that another one defined; `options` are further fields of `ToolSpec`."""
    fields: dict[str, Any] = {"timeout_seconds": TIMEOUT_SECONDS, "max_output_chars": MAX_OUTPUT_CHARS, **options}
    return ToolSpec(
        tool.name,
        tool.description,
        "read" if tool.effect == "read" else "reversible_write",
        max_attempts=1,
        handler=handler,
        parameters=tool.definition()["parameters"],
        permission=permission,
        keywords=tool.keywords,
        version=tool.version,
        **fields,
    )


def _has_permission(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and "permission" in entry


def _items(module: ModuleType) -> Iterable[Any]:
    tools = getattr(module, "TOOLS", None)
    if isinstance(tools, ToolRegistry):
        return ()
    if tools is not None:
        if isinstance(tools, str) or not isinstance(tools, Iterable):
            raise ServingError("bad_handlers", "TOOLS is neither a registry nor a list")
        return list(tools)
    own = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [value for value in own if _is_own_function(value, module) or isinstance(value, ToolSpec | JobTool)]


def _is_own_function(value: object, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _function_spec(function: Callable[..., Any]) -> ToolSpec:
    registry = ToolRegistry()
    options: dict[str, Any] = {"timeout_seconds": TIMEOUT_SECONDS, "max_output_chars": MAX_OUTPUT_CHARS}
    registry.tool(effect="reversible_write", max_attempts=1, **options)(function)
    spec = registry.get(function.__name__)
    assert spec is not None
    return spec


def _nothing(**arguments: Any) -> None:
    """Stand where a handler would."""


async def _not_carried_out(data: str, task: bool) -> dict[str, Any]:
    return refusal("no_handler", "This tool is listed to be looked at. Nothing carries it out here.")
