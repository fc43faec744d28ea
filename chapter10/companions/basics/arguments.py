"""What is let in: checks of arguments that companions share, each refusing with the error of its own module.

A check returns the value, so that it can stand where the value is used. A refusal says in the `reason` which argument
was refused and what would be taken, never the value. `True` is no number, and neither are NaN and the infinities.

What it does not do: it changes nothing, fills in no default, and knows no code. `catalog` and `jobs` are read alone and
have checks of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from chapter10.canonical import CanonicalError, canonical
from chapter10.limits import is_unicode

__all__ = ["MAX_TIME", "Arguments"]

MAX_TIME: Final = 2.0**40
"""Seconds, either side of zero; up to it milliseconds are exact."""


class Arguments:
    """The checks of one module.

    `refusal(reason)`: makes the error that is raised. `max_text`: the most characters of a text; `max_seconds`: the
    longest duration. Each is for the check that needs it.
    """

    __slots__ = ("_max_seconds", "_max_text", "_refusal")

    def __init__(self, refusal: Callable[[str], Exception], *, max_text: int = 0, max_seconds: float = 0) -> None:
        self._refusal = refusal
        self._max_text = max_text
        self._max_seconds = max_seconds

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error of the module with this reason."""
        raise self._refusal(reason)

    def text(self, value: object, name: str) -> str:
        """Return a text of 1 to `max_text` characters without NUL and lone surrogates, or refuse it by its name."""
        if type(value) is not str or not 1 <= len(value) <= self._max_text or "\0" in value:
            self.refuse(f"{name} is not a text of 1 to {self._max_text} characters without NUL")
        if not is_unicode(value):
            self.refuse(f"{name} holds a lone surrogate")
        return value

    def whole(self, value: object, name: str, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, or refuse it by its name."""
        if type(value) is not int or not low <= value <= high:
            self.refuse(f"{name} is not a whole number from {low} to {high}")
        return value

    def number(self, value: object, name: str) -> float:
        """Return a finite number of seconds, at most `MAX_TIME` either side of zero, or refuse it by its name."""
        if (type(value) is not int and type(value) is not float) or not -MAX_TIME <= value <= MAX_TIME:
            self.refuse(f"{name} is not a number of seconds")
        return value

    def seconds(self, value: object, name: str, low: float) -> float:
        """Return seconds from `low` to `max_seconds`, or refuse them by their name."""
        found = self.number(value, name)
        if not low <= found <= self._max_seconds:
            self.refuse(f"{name} is not from {low} to {self._max_seconds} seconds")
        return float(found)

    def json(self, value: object, name: str, most_bytes: int) -> str:
        """Return the canonical form of a JSON value, `most_bytes` of UTF-8 at most, or refuse the value by its name."""
        try:
            text = canonical(value)
        except CanonicalError as error:
            raise self._refusal(f"{name}: {error.reason}") from error
        if len(text.encode("utf-8")) > most_bytes:
            self.refuse(f"{name} exceeds {most_bytes} bytes")
        return text
