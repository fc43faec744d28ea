"""Names and shapes that providers of models take: `[a-zA-Z0-9_-]{1,64}`, and two forms of a list of tools.

A name that fits stays. Another one is written with `_` for every other sign and cut, and gets a digest of itself at its
end where that is taken already: so no tool is dropped, and whoever keeps the pairs finds the way back.

Source: the orchestration document, section 8.7 (claim C8-075).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, Literal

from chapter10.canonical import digest

__all__ = ["MAX_NAME", "Shape", "fits", "provider_name", "tools_for"]

MAX_NAME: Final = 64
"""Characters of a name."""
Shape = Literal["input_schema", "function"]
"""A flat tool with `input_schema`, or a `function` with `parameters`."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST: Final = 12


def fits(name: object) -> bool:
    """Say whether providers take this name of a tool."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def provider_name(name: str, taken: Container[str] = ()) -> str:
    """Return a name that fits and is not taken: the name itself, if it can be."""
    made = name if fits(name) else (_OTHER.sub("_", name)[:MAX_NAME] or "_")
    if made not in taken:
        return made
    return f"{made[: MAX_NAME - _DIGEST - 1]}_{digest(name)[:_DIGEST]}"


def tools_for(definitions: Iterable[Mapping[str, Any]], shape: Shape) -> list[dict[str, Any]]:
    """Return definitions (`name`, `description`, `parameters`) as a provider takes them. `ValueError` for no shape."""
    if shape == "input_schema":
        return [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in definitions
        ]
    if shape == "function":
        parts = ("name", "description", "parameters")
        return [{"type": "function", "function": {part: one[part] for part in parts}} for one in definitions]
    raise ValueError("neither input_schema nor function")
