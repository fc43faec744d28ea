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

Why it is fast: the check comes first, a whole *level* of the tree at a time, so that most of it runs
in C (`gc.get_referents` gives what lists and dicts hold in one call) and so that no cycle is left when
the encoder starts. The encoder then need not remember where it is, so one of them, made once, serves
every call: `json.dumps` with sorted keys makes an encoder for each, which costs more than encoding a
small value. Measured beside `json.dumps(sort_keys=True)` of the same bytes and SHA-256, refusals included:
0.6 of it for a job's arguments, 1.1 for a tool's definition, for 300 of them and for 1,000 rows, 1.2 for
1,000 numbers (`lab.benchmarks.benchmark --area json`). A number takes 70 nanoseconds to write and 12 to ask its type,
which is the least that a check can cost; so it is 1.3 for numbers and texts by turns, 1.4 for 100 lists of ten
numbers, and more than 2 for 50 lists within each other, which nobody sends.
"""

from __future__ import annotations

import hashlib
import json.encoder
from collections.abc import Callable
from gc import get_referents
from itertools import chain
from typing import Any, Final

__all__ = ["MAX_DEPTH", "CanonicalError", "CodedError", "byte_size", "canonical", "digest", "is_unicode", "text_digest"]

MAX_DEPTH: Final = 100
"""Levels of lists and dicts that a value may have; a scalar alone has none."""

_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_are_scalars: Final = _SCALARS.issuperset
_are_containers: Final = frozenset({dict, list}).issuperset
_are_strings: Final = frozenset({str}).issuperset
_NARROW: Final = 16
"""Up to so many things are looked at one by one."""
_WIDER: Final = 16
"""A level may hold so many times what one level held without repetition; then what stands in it twice is taken out."""


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


_plain: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _encoder() -> Callable[[object], str]:
    """Return the function that encodes what the check let through."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without the accelerator
        return _plain.encode
    quote: Any = json.encoder.encode_basestring
    # In order: no marks against cycles, what is no JSON, text as it stands, no indent, separators, sorted
    # keys, no key skipped, NaN refused.
    chunks = make(None, _plain.default, quote, None, ":", ",", True, False, False)
    return lambda value: "".join(chunks(value, 0))


_encode: Final = _encoder()


def canonical(value: object) -> str:
    """Return the canonical JSON text of `value`.

    Raises `CanonicalError` (`not_json`) for a value that would not read back as the same value.
    Source: claim C10-080.
    """
    text = _text(value)
    if not text.isascii():
        _utf8(text)
    return text


def byte_size(value: object) -> int:
    """Return the length in bytes of the canonical form of `value` in UTF-8.

    Bytes are not tokens: a tokenizer is no UTF-8 encoder. Raises as `canonical` does.
    Source: the chapter's section on the definition budget (claims C10-066, C10-068).
    """
    return len(_utf8(_text(value)))


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical form of `value`: 64 lower-case hexadecimal digits.

    Raises as `canonical` does. Source: claim C10-080.
    """
    return hashlib.sha256(_utf8(_text(value))).hexdigest()


def text_digest(text: str) -> str:
    """Return the SHA-256 of a canonical text that is at hand already, as `digest` does for its value."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def is_unicode(text: str) -> bool:
    """Say whether `text` is free of lone surrogates, which UTF-8 cannot carry."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(value: object) -> str:
    if type(value) not in _SCALARS:
        _refuse_what_reads_back_otherwise(value)
    try:
        return _encode(value)
    except RecursionError:  # the caller itself stands deep
        raise CanonicalError(f"more than {MAX_DEPTH} levels") from None
    except TypeError:
        raise CanonicalError("a type or a key that JSON does not have") from None
    except ValueError:
        raise CanonicalError("a number that JSON does not have") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise CanonicalError("a lone surrogate") from None


def _refuse_what_reads_back_otherwise(value: object) -> None:
    """Refuse what the encoder would let through: tuples, subclasses, number keys, too many levels, cycles.

    A container inside itself has a next level for ever, so it is one of too many levels.
    """
    level: list[Any] = [value]
    room = _WIDER * _NARROW
    for _ in range(MAX_DEPTH):
        if len(level) > _NARROW:
            if not _are_containers(map(type, level)):
                raise CanonicalError("a type that reads back as another")
            size = sum(map(len, level))
        else:
            size = 0
            for container in level:
                kind = type(container)
                if kind is not dict and kind is not list:
                    raise CanonicalError("a type that reads back as another")
                size += len(container)
        if size > room:
            if len(level) > 1:
                # Once is enough; and so a container that holds itself twice does not double with each level.
                level = list({id(container): container for container in level}.values())
                size = sum(map(len, level))
            room = _WIDER * size
        held = level[0] if len(level) == 1 and type(level[0]) is list else get_referents(*level)
        if len(held) != size:
            held = _held_with_string_keys(level)
        if size > _NARROW and _all_scalars(held):
            return
        level = [item for item in held if type(item) not in _SCALARS]
        if not level:
            return
    raise CanonicalError(f"more than {MAX_DEPTH} levels, or a container inside itself")


def _all_scalars(held: list[Any]) -> bool:
    """Say whether there is no container and nothing foreign in `held`."""
    kinds = set(map(type, held[:_NARROW]))
    if not kinds <= _SCALARS:
        return False
    # A long list is of one kind as a rule, and to count one type is faster than to look each up.
    return (len(kinds) == 1 and [*map(type, held)].count(kinds.pop()) == len(held)) or _are_scalars(map(type, held))


def _held_with_string_keys(level: list[Any]) -> list[Any]:
    """Return the items of lists and the values of dicts; refuse a key that is no `str`.

    CPython keeps a dict whose keys were all of type `str` in a form of its own, and only then leaves the
    keys out of what the dict refers to. So as many objects as there are places means that all keys are
    strings; where it is more, or where another Python counts otherwise, the keys are looked at here.
    """
    dicts = [container for container in level if type(container) is dict]
    if not _are_strings(map(type, chain.from_iterable(dicts))):
        raise CanonicalError("a key that is not a string")
    lists = (container for container in level if type(container) is list)
    return [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
