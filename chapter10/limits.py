"""What may come in: the questions about a value that every door of the chapter's floor asks.

Each answers yes or no and changes nothing; which error a no becomes is the business of the module whose door
it is. A bool is no number here, and what UTF-8 cannot carry is no text.
Source: the rule that bad input gets a clear, coded error (claims C10-283, C10-287).
"""

from __future__ import annotations

from typing import TypeGuard

__all__ = ["MAX_TIME", "is_seconds", "is_text", "is_unicode", "is_whole"]

MAX_TIME = 2.0**40
"""Seconds, either side of zero. Below it the sum of a time and a lease is exact enough to be later."""


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


def is_whole(value: object, low: int, high: int = 2**63 - 1) -> TypeGuard[int]:
    """Say whether `value` is an `int` from `low` to `high`, both included."""
    return type(value) is int and low <= value <= high


def is_seconds(value: object, low: float = -MAX_TIME) -> TypeGuard[float]:
    """Say whether `value` is an `int` or a `float` from `low` to `MAX_TIME`; NaN and infinity are neither."""
    return type(value) in (int, float) and low <= value <= MAX_TIME  # type: ignore[operator]
