"""What a handler returned, as values of Python or in the form of a tool server, becomes JSON or a text.

Values of Python, one rule (`json_value`)
    V1  A tuple, a set and a frozenset are lists; a set is in the order of its canonical texts. A mapping is an object,
        a dataclass an object of its fields, an `Enum` its value. A key that is an integer or one of V2 is its text.
    V2  `Decimal`, `UUID`, a date, a time, both together and a path are their text, with every digit. Bytes are the
        text that they are in UTF-8.
    V3  Anything else goes through `encode`, if the registry was given one, and what that returns through this rule.
        What is left, and NaN, is refused: nothing is shown as what it is not.

Results of a tool server (`server_answer`): an object with a list `content` of blocks, or such a list alone
    V4  A text is its text, without the JSON around it. `structuredContent` is data, and a text that says the same is
        left out. `isError` is a failure, whose text the server chose.
    V5  An image, a sound or a resource is named with its kind and its size, and its data is kept by `keep`, which
        returns where; the model reads the place and not the data. A link is named.

Source: the document on the tool registry, its path of a result (claims T6-005, T6-019).
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from chapter10.canonical import MAX_DEPTH, CanonicalError, canonical

__all__ = ["Encode", "Keep", "json_value", "server_answer"]

Encode = Callable[[Any], Any]
"""Makes of a value that the rule does not know one that it knows, or raises."""
Keep = Callable[[str], str]
"""Stores a text and returns where it can be read."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_AS_TEXT: Final = (Decimal, UUID, PurePath)
_ANSWER: Final = frozenset({"content", "isError", "structuredContent", "_meta", "resultType"})


def json_value(value: Any, encode: Encode | None = None) -> Any:
    """Return a value as JSON by the rule above. Raises `CanonicalError` (`not_json`), and what `encode` raises."""
    return _json(value, encode, MAX_DEPTH)


def _json(value: Any, encode: Encode | None, levels: int) -> Any:
    if type(value) in _PLAIN:
        return value
    if levels < 0:
        raise CanonicalError(f"more than {MAX_DEPTH} levels")
    if isinstance(value, enum.Enum):
        return _json(value.value, encode, levels - 1)
    if isinstance(value, list | tuple):
        return [_json(item, encode, levels - 1) for item in value]
    if isinstance(value, AbstractSet):
        return sorted((_json(item, encode, levels - 1) for item in value), key=canonical)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        made = {_key(key): _json(item, encode, levels - 1) for key, item in value.items()}
        if len(made) < len(value):
            raise CanonicalError("two keys with one text")
        return made
    if (text := _text(value)) is not None:
        return text
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    if encode is None:
        raise CanonicalError("a value that is no JSON")
    return _json(encode(value), encode, levels - 1)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise CanonicalError("bytes that are no text") from None
    return None


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    text = str(key) if type(key) is int else _text(key)
    if text is None:
        raise CanonicalError("a key that is no text")
    return text


def server_answer(value: Any, keep: Keep | None = None) -> tuple[Any, bool]:
    """Return what a JSON value says, read as a tool server's result where it is one, and whether it is an error."""
    if isinstance(value, dict) and _ANSWER.issuperset(value) and _are_blocks(value.get("content")):
        parts = [_block(block, keep) for block in value["content"]]
        data = value.get("structuredContent")
        if data is not None:
            parts = [part for part in parts if not _says(part, data)]
            if not parts:
                return data, value.get("isError") is True
            parts.append(canonical(data))
        return "\n".join(parts), value.get("isError") is True
    if value and _are_blocks(value):
        return "\n".join(_block(block, keep) for block in value), False
    return value, False


def _are_blocks(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(block, dict) and _is_block(block) for block in value)


def _is_block(block: dict[str, Any]) -> bool:
    kind, resource = block.get("type"), block.get("resource")
    if kind == "text":
        return isinstance(block.get("text"), str)
    if kind == "resource_link":
        return isinstance(block.get("uri"), str)
    if kind == "resource":
        return isinstance(resource, dict) and any(isinstance(resource.get(key), str) for key in ("text", "blob"))
    return kind in ("image", "audio") and isinstance(block.get("data"), str)


def _block(block: dict[str, Any], keep: Keep | None) -> str:
    kind = block["type"]
    if kind == "text":
        return str(block["text"])
    holder = block["resource"] if kind == "resource" else block
    name = " ".join(str(holder[key]) for key in ("uri", "name", "mimeType") if isinstance(holder.get(key), str))
    head = f"{kind} {name}".rstrip()
    if kind == "resource_link":
        return f"[{head}]"
    if kind == "resource" and isinstance(holder.get("text"), str):
        return f"[{head}]\n{holder['text']}"
    data = holder["blob"] if kind == "resource" else holder["data"]
    return f"[{head}, {len(data)} characters of base64, {_place(data, keep)}]"


def _place(data: str, keep: Keep | None) -> str:
    if keep is None:
        return "not kept"
    try:
        return f"kept in {keep(data)}"
    except Exception:  # the answer is worth more than its picture
        return "not kept"


def _says(text: str, data: Any) -> bool:
    try:
        return canonical(json.loads(text)) == canonical(data)
    except (ValueError, RecursionError):
        return False
