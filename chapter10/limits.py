"""What may come in: the questions about a value that every door of the chapter's floor asks.

Each answers yes or no and changes nothing; which error a no becomes is the business of the module whose door
it is. A bool is no number here, and what UTF-8 cannot carry is no text.
Source: the rule that bad input gets a clear, coded error (claims C10-283, C10-287).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeGuard

__all__ = [
    "JOB_ARGUMENTS", "MAX_ARGS_BYTES", "MAX_COUNT", "MAX_LIMIT", "MAX_RESULT_BYTES", "MAX_TEXT", "MAX_TIME",
    "MIN_SECONDS", "are_names", "are_words", "is_label", "is_seconds", "is_string", "is_text", "is_unicode", "is_whole",
]  # fmt: skip

MAX_TIME: Final = 2.0**40
"""Seconds, either side of zero. Below it the sum of a time and a lease is exact enough to be later."""
MIN_SECONDS: Final = 2.0**-10  # of a lease, and of a pause between two looks: still later than `MAX_TIME` when added
MAX_TEXT: Final = 200  # characters of an owner, a key, a tool name or an error code
MAX_ARGS_BYTES: Final = 64 * 1024  # of the canonical form of the arguments of a job
MAX_RESULT_BYTES: Final = 8 * 1024 * 1024  # of that of a result; something larger is stored elsewhere and named here
MAX_COUNT: Final = 2**53  # the largest `done` and `total`, which any JSON reader holds exactly
MAX_LIMIT: Final = 1000  # rows that one call returns or moves


def is_unicode(text: str) -> bool:
    """Say whether `text` is free of lone surrogates, which UTF-8 cannot carry."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_text(value: object, most: int, least: int = 1) -> TypeGuard[str]:
    """Say whether `value` is a `str` of `least` to `most` characters without a NUL and without a lone surrogate."""
    return type(value) is str and least <= len(value) <= most and "\0" not in value and is_unicode(value)


def is_string(value: object, most: int) -> TypeGuard[str]:
    """Say whether `value` is a `str` of at most `most` characters, whatever they are, without a lone surrogate."""
    return type(value) is str and len(value) <= most and is_unicode(value)


def is_label(value: object, most: int) -> TypeGuard[str]:
    """Say whether `value` is a `str` of 1 to `most` characters on one line: no control character, no lone surrogate."""
    return type(value) is str and 0 < len(value) <= most and value.isprintable()


def are_words(value: object, most: int, longest: int) -> TypeGuard[tuple[str, ...]]:
    """Say whether `value` is a tuple of at most `most` words of 1 to `longest` characters, none with white space."""
    if type(value) is not tuple or len(value) > most:
        return False
    return all(is_string(word, longest) and word.split() == [word] for word in value)


def are_names(value: object, most: int) -> TypeGuard[Collection[str]]:
    """Say whether `value` is a set, list or tuple of at most `most` strings; one string alone is none."""
    if not isinstance(value, (frozenset, set, list, tuple, AbstractSet)):
        return False
    return len(value) <= most and set(map(type, value)) <= {str}


def is_whole(value: object, low: int, high: int = 2**63 - 1) -> TypeGuard[int]:
    """Say whether `value` is an `int` from `low` to `high`, both included."""
    return type(value) is int and low <= value <= high


def is_seconds(value: object, low: float = -MAX_TIME) -> TypeGuard[float]:
    """Say whether `value` is an `int` or a `float` from `low` to `MAX_TIME`; NaN and infinity are neither."""
    return type(value) in (int, float) and low <= value <= MAX_TIME  # type: ignore[operator]


_Bound = tuple[Callable[[Any], bool], str]
_LABEL: Final[_Bound] = (lambda value: is_text(value, MAX_TEXT), f"a text of 1 to {MAX_TEXT} characters")
_POSITIVE: Final[_Bound] = (lambda value: is_whole(value, 1), "a whole number from 1")
_COUNT: Final[_Bound] = (lambda value: is_whole(value, 0, MAX_COUNT), f"a whole number from 0 to {MAX_COUNT}")

JOB_ARGUMENTS: Final[dict[str, _Bound]] = {
    **dict.fromkeys(("owner", "action_key", "tool", "version", "code"), _LABEL),
    **dict.fromkeys(("job_id", "max_attempts", "capacity"), _POSITIVE),
    **dict.fromkeys(("done", "total"), _COUNT),
    "attempt": (lambda value: type(value) is int, "a whole number"),
    "after": (lambda value: is_whole(value, 0), "a whole number from 0"),
    "limit": (lambda value: is_whole(value, 1, MAX_LIMIT), f"a whole number from 1 to {MAX_LIMIT}"),
    "now": (lambda value: callable(value) or is_seconds(value), "a number of seconds that can be stored, or a clock"),
    "moment": (is_seconds, "a number of seconds that can be stored"),
    "deadline": (lambda value: value is None or is_seconds(value), "a number of seconds that can be stored"),
    "lease": (lambda value: is_seconds(value, MIN_SECONDS), "a number of seconds from a thousandth"),
    "retry_after": (lambda value: value is None or is_seconds(value, 0), "a number of seconds from 0"),
}
"""What the arguments of a job store have to be, by name: the question, and the answer in words."""
