"""One form for each value: canonical JSON, its size in bytes, its SHA-256 digest, and errors with a code.

The form is JSON with sorted keys, `,` and `:` as separators and text as it stands (not escaped), in UTF-8.
A value that would not read back as the same value is refused and never repaired:

- a type that JSON does not have (a tuple would come back as a list), NaN and the infinities among them;
- a dict key that is not a string (`{1: "a"}` would come back as `{"1": "a"}`);
- a lone surrogate, which UTF-8 cannot carry;
- more than `MAX_DEPTH` levels, an integer of more digits than Python prints, a container inside itself.

A digest shows that content has changed. It is no signature and grants nothing.
Source: the chapter's section on caches and versions (claims C10-080, C10-081).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from chapter10.limits import is_unicode

__all__ = [
    "MAX_DEPTH",
    "MAX_MEMBERS",
    "CanonicalError",
    "CodedError",
    "byte_size",
    "canonical",
    "digest",
    "text_digest",
]

MAX_DEPTH: Final = 100
"""Levels of lists and dicts that a value may have; a scalar alone has none."""
MAX_MEMBERS: Final = 5_000_000
"""Members of all lists and dicts of a value together."""

_JSON: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SCALARS: Final = frozenset({type(None), bool, int, float, str})


class CodedError(Exception):
    """An error that is part of an interface: `str(error) == error.code`, data only as attributes.

    The code is a short stable word such as `key_conflict`. A program compares it and a model may
    see it; what else is known (values, causes, places) stands in attributes and in `__cause__`.
    """

    code: str

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class CanonicalError(CodedError, ValueError):
    """Raised when a value has no canonical form; the code is always `not_json`.

    `reason` says in a few words what was refused. It never holds a part of the value.
    """

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__("not_json")
        self.reason = reason


def canonical(value: object) -> str:
    """Return the canonical JSON text of `value`.

    Raises `CanonicalError` (`not_json`) for a value that would not read back as the same. Source: claim C10-080.
    """
    try:
        _check(value, MAX_DEPTH, [MAX_MEMBERS])
        text = _JSON.encode(value)
    except RecursionError:  # the caller itself stands deep
        raise CanonicalError(f"more than {MAX_DEPTH} levels") from None
    except CanonicalError:
        raise
    except ValueError:
        raise CanonicalError("a number that JSON does not have") from None
    if not is_unicode(text):
        raise CanonicalError("a lone surrogate")
    return text


def byte_size(value: object) -> int:
    """Return the length in bytes of the canonical form of `value` in UTF-8.

    Bytes are not tokens: a tokenizer is no UTF-8 encoder. Raises as `canonical` does.
    Source: the chapter's section on the definition budget (claims C10-066, C10-068).
    """
    return len(canonical(value).encode("utf-8"))


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical form of `value`: 64 lower-case hexadecimal digits.

    Raises as `canonical` does. Source: claim C10-080.
    """
    return text_digest(canonical(value))


def text_digest(text: str) -> str:
    """Return the SHA-256 of a canonical text that is at hand already, as `digest` does for its value."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _check(value: object, levels: int, room: list[int]) -> None:
    """Refuse what `json` would let through. A container inside itself is one of too many levels."""
    if type(value) in _SCALARS:
        return
    if levels == 0:
        raise CanonicalError(f"more than {MAX_DEPTH} levels, or a container inside itself")
    members: Any = value
    if type(value) is dict:
        if not all(type(key) is str for key in value):
            raise CanonicalError("a key that is not a string")
        members = value.values()
    elif type(value) is not list:
        raise CanonicalError("a type that reads back as another")
    room[0] -= len(members)
    if room[0] < 0:  # parts that are shared count each time that they would be written
        raise CanonicalError(f"more than {MAX_MEMBERS} members")
    for member in members:
        if type(member) not in _SCALARS:
            _check(member, levels - 1, room)
