"""JSON as it is written down, and nothing else: no repair, no second meaning, nothing without a bound.

Python's reader takes the last of two equal keys, reads `NaN`, and lets half a character through. Here each of
these is refused by a code of its own, and text that was cut off is told from text that is wrong: a model whose
answer hit its limit leaves half a call, which must neither run nor be taken for the model's mistake.

Source: the failure matrix of the document on the tool registry (claims T6-003, T6-022, T6-035).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from chapter10.canonical import CodedError

__all__ = [
    "MAX_INTEGER_BITS",
    "MAX_JSON_DEPTH",
    "MAX_JSON_SIZE",
    "MAX_SHOWN_KEY",
    "JsonError",
    "copy_json",
    "pointer",
    "strict_json",
]

MAX_JSON_DEPTH: Final = 64
"""Levels of arrays and objects in a value that is read or checked."""
MAX_JSON_SIZE: Final = 1_000_000
"""Characters of a JSON text; for a value, the characters of its strings and keys plus one for each item."""
MAX_INTEGER_BITS: Final = 1024
"""Integers beyond the range of a double are refused, as their floats are."""
MAX_SHOWN_KEY: Final = 80
"""Characters of one key in a path."""


_Path = tuple[str | int, ...]


class JsonError(CodedError, ValueError):
    """Raised when a text or a value is not the JSON that is accepted here; nothing of it is in the error.

    `json_cut_off`: the text ends before the value does (also: an empty text). `json_syntax`: it is wrong.
    `json_duplicate_key`, `json_number` (NaN, an infinity, too large), `json_surrogate` (half a character),
    `json_type` (a type or a key that JSON does not have), `json_too_deep`, `json_too_long`.
    `path` is a JSON pointer to the place, where there is one.
    """

    path: str

    def __init__(self, code: str, path: str = "") -> None:
        super().__init__(code)
        self.path = path


def strict_json(text: str) -> Any:
    """Return the value of a JSON text, every rule of JSON kept. Raises `JsonError`.

    A text that ends too early is `json_cut_off` and never repaired: half a call is not a call.
    """
    if type(text) is not str:
        raise JsonError("json_type")
    if len(text) > MAX_JSON_SIZE:
        raise JsonError("json_too_long")
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        raise JsonError("json_cut_off" if _is_cut_off(text, error) else "json_syntax") from None
    except RecursionError:
        raise JsonError("json_too_deep") from None
    except JsonError:
        raise
    except ValueError:  # an integer of more digits than Python reads
        raise JsonError("json_number") from None
    return copy_json(value)


def copy_json(value: object) -> Any:
    """Return a deep copy of a JSON value. Raises `JsonError` for what is none, with the path to it."""
    return _copy(value, (), [MAX_JSON_SIZE])


def _copy(value: Any, path: _Path, left: list[int]) -> Any:
    left[0] -= 1
    kind = type(value)
    if kind is str:
        _check_text(value, path, left)
        return value
    if value is None or kind is bool:
        return value
    if kind is int or kind is float:
        if not math.isfinite(value) if kind is float else value.bit_length() > MAX_INTEGER_BITS:
            raise JsonError("json_number", pointer(path))
        return value
    if kind is not dict and kind is not list:
        raise JsonError("json_type", pointer(path))
    if len(path) >= MAX_JSON_DEPTH:
        raise JsonError("json_too_deep", pointer(path))
    if left[0] < len(value):
        raise JsonError("json_too_long", pointer(path))
    if kind is list:
        return [_copy(item, (*path, place), left) for place, item in enumerate(value)]
    copied = {}
    for key, item in value.items():
        if type(key) is not str:
            raise JsonError("json_type", pointer(path))
        _check_text(key, path, left)
        if type(item) is str and len(item) < left[0] and item.isascii():  # the usual argument, without a call
            left[0] -= len(item) + 1
            copied[key] = item
        else:
            copied[key] = _copy(item, (*path, key), left)
    return copied


def _check_text(text: str, path: _Path, left: list[int]) -> None:
    left[0] -= len(text)
    if left[0] < 0:
        raise JsonError("json_too_long", pointer(path))
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise JsonError("json_surrogate", pointer(path)) from None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise JsonError("json_duplicate_key")
    return read


_decode: Final = json.JSONDecoder(object_pairs_hook=_refuse_duplicates).decode

_BEGUN: Final = re.compile(r"[ \t\n\r]*(?:t|tr|tru|f|fa|fal|fals|n|nu|nul|-|\.|[eE][+-]?|\.[0-9]+[eE][+-]?)?\Z")
"""What may follow the last thing that was understood, if more text would have made it right."""


_OPEN_ESCAPE: Final = re.compile(r"\\u[0-9A-Fa-f]{0,4}\Z")


def _is_cut_off(text: str, error: json.JSONDecodeError) -> bool:
    if error.msg.startswith("Unterminated string"):
        return True
    if error.msg.startswith("Invalid \\"):  # an escape; the position is just behind its backslash
        return _OPEN_ESCAPE.match(text, error.pos - 1) is not None
    return _BEGUN.match(text, error.pos) is not None


def pointer(path: _Path) -> str:
    """Return the JSON pointer of a path; each key in it has at most `MAX_SHOWN_KEY` characters."""
    return "".join("/" + _shown(step).replace("~", "~0").replace("/", "~1") for step in path)


def _shown(step: str | int) -> str:
    text = str(step)
    text = text if len(text) <= MAX_SHOWN_KEY else text[:MAX_SHOWN_KEY] + "..."
    return text.encode("utf-8", "replace").decode("utf-8")
