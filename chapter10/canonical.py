"""One form for each value: canonical JSON, its size in bytes, its SHA-256 digest, and errors with a code.

Two programs that hold the same value must come to the same bytes, or a fingerprint says nothing.
The form is JSON with sorted keys, `,` and `:` as separators and text as it stands (not escaped),
in UTF-8. A value that would not read back as the same value is refused and never repaired:

- NaN and the infinities, which JSON does not have;
- a dict key that is not a string (`{1: "a"}` would come back as `{"1": "a"}`);
- a lone surrogate, which UTF-8 cannot carry;
- any type but `None`, `bool`, `int`, `float`, `str`, `list`, `dict` (a tuple would come back as a list);
- more than `MAX_DEPTH` levels, an integer of more digits than Python prints, a container inside itself.

A digest shows that content has changed. It is no signature and grants nothing.

This floor imports nothing of the package, and everything else may import it.
Source: the chapter's section on caches and versions (claims C10-080, C10-081).

Why the check is fast: the C encoder runs first, so that what follows walks a finite tree. Then each
*level* of the tree is checked at once with `map` and `chain`, so that Python code runs once a level
and not once an item.
"""

from __future__ import annotations

import hashlib
import json
from itertools import chain
from typing import Any, Final

__all__ = ["MAX_DEPTH", "CanonicalError", "CodedError", "byte_size", "canonical", "digest", "text_digest"]

MAX_DEPTH: Final = 100
"""Levels of lists and dicts that a value may have; a scalar alone has none."""

_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_TYPES: Final = _SCALARS | {list, dict}
_STRING_KEYS: Final = frozenset({str})


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


_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def canonical(value: object) -> str:
    """Return the canonical JSON text of `value`.

    Raises `CanonicalError` (`not_json`) for a value that would not read back as the same value.
    Source: claim C10-080.
    """
    return _canonical_bytes(value).decode("utf-8")


def byte_size(value: object) -> int:
    """Return the length in bytes of the canonical form of `value` in UTF-8.

    Bytes are not tokens: a tokenizer is no UTF-8 encoder. Raises as `canonical` does.
    Source: the chapter's section on the definition budget (claims C10-066, C10-068).
    """
    return len(_canonical_bytes(value))


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical form of `value`: 64 lower-case hexadecimal digits.

    Raises as `canonical` does. Source: claim C10-080.
    """
    return hashlib.sha256(_canonical_bytes(value)).hexdigest()


def text_digest(text: str) -> str:
    """Return the SHA-256 of a canonical text that is at hand already, as `digest` does for its value."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _canonical_bytes(value: object) -> bytes:
    try:
        encoded = _encode(value).encode("utf-8")
    except UnicodeEncodeError:
        raise CanonicalError("a lone surrogate") from None
    except RecursionError:
        raise CanonicalError(f"more than {MAX_DEPTH} levels") from None
    except TypeError:
        raise CanonicalError("a type or a key that JSON does not have") from None
    except ValueError:
        raise CanonicalError("a number that JSON does not have, or a container inside itself") from None
    _refuse_what_reads_back_otherwise(value)
    return encoded


def _refuse_what_reads_back_otherwise(value: object) -> None:
    """Refuse what the encoder lets through: tuples, subclasses, number keys, too many levels.

    The encoder has been through the value, so it is finite and holds no container inside itself.
    """
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        types = set(map(type, level))
        if types <= _SCALARS:
            return
        if not types <= _TYPES:
            raise CanonicalError("a type that reads back as another")
        dicts = [item for item in level if type(item) is dict]
        lists = [item for item in level if type(item) is list]
        if not set(map(type, chain.from_iterable(dicts))) <= _STRING_KEYS:
            raise CanonicalError("a key that is not a string")
        level = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
    raise CanonicalError(f"more than {MAX_DEPTH} levels")
