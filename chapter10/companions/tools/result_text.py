"""What a tool returned becomes the text that a model reads: stable, without secrets, and cut where it is safe.

The one place that knows what is empty, how half a character is repaired, and how a value becomes text; the
registry and the result budget both ask here.

R1  A string stays as it is; any other JSON value is its canonical JSON, not Python's `str` of it.
R2  A value without content (None, "", white space, [], text blocks that are all empty) is the empty text, so
    that whoever looks for empty results still sees one (X-14). 0 and false are not empty.
R3  What is no JSON (NaN, an object, bytes) is refused and never half written.
R4  Secrets go before the cut, since a cut secret is still most of a secret.
R5  A cut takes the middle out and keeps head and tail, by whole lines where there are lines. It falls between
    characters (Python code points) and never inside an escape of JSON.

Half a character in a text, which UTF-8 cannot carry, becomes U+FFFD; keys that would then be one are refused.
What a secret is stands in `redaction`.

Source: the document on the tool registry, its path of a result (claims T6-005, T6-006, T6-019, T6-041; X-13, X-14).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from chapter10.canonical import CanonicalError, canonical

__all__ = [
    "canonical_text",
    "cut_text",
    "encoded",
    "is_empty",
    "result_text",
    "whole_characters",
]

_CHUNK_CHARS: Final = 65_536


def is_empty(value: object) -> bool:
    """Say whether a result has no content that a model could read: the six empty forms.

    None (or missing), "", blanks, [], only text blocks without text. 0, False, {} and an image are something.
    Source: claims C8-071, C8-072.
    """
    if value is None:
        return True
    if isinstance(value, str):
        return not value or value.isspace()  # stops at the first character and copies nothing
    return isinstance(value, list) and all(_is_empty_block(item) for item in value)


def _is_empty_block(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    if type(kind) is not str or kind != "text":
        return False
    text = item.get("text")
    return not isinstance(text, str) or not text or text.isspace()


def result_text(value: object) -> str:
    """Return the text of a result (R1, R2). Raises `CanonicalError` (`not_json`) for what is no JSON value."""
    if is_empty(value):
        return ""
    return whole_characters(value) if type(value) is str else canonical_text(value)


def canonical_text(value: object) -> str:
    """Return the canonical JSON of a value, with half characters repaired. Raises `CanonicalError` (`not_json`)."""
    try:
        return canonical(value)
    except CanonicalError as error:
        if "surrogate" not in error.reason:
            raise
    return canonical(_with_whole_characters(value))


def whole_characters(text: str) -> str:
    """Join halves of characters that belong together, and replace the ones that do not by U+FFFD.

    A text that is whole comes back as it is; finding that out makes no second copy of it.
    """
    if text.isascii():
        return text
    try:
        for _ in encoded(text):
            pass
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encoded(text: str) -> Iterator[bytes]:
    """The UTF-8 of a text in chunks, so that no second copy of the whole is made."""
    for start in range(0, len(text), _CHUNK_CHARS):
        yield text[start : start + _CHUNK_CHARS].encode("utf-8")


def _with_whole_characters(value: Any) -> Any:
    if type(value) is str:
        return whole_characters(value)
    if type(value) is list:
        return [_with_whole_characters(item) for item in value]
    if type(value) is dict:
        repaired = {_with_whole_characters(key): _with_whole_characters(item) for key, item in value.items()}
        if len(repaired) < len(value):
            raise CanonicalError("two keys that differ in half a character")
        return repaired
    return value


def cut_text(text: str, most: int, *, is_json: bool = False) -> str:
    """Return at most `most` characters of `text`: its head and its tail, and between them how much is left out.

    Test runs and compilers say at the end what counts. Where there are lines, whole ones stay; no character that is
    written with several code points is divided, and no escape of JSON. Where there is no room for a middle
    (`_SHORT`), the head alone stays, of JSON up to five characters less. The cost follows `most` and not the text.
    """
    if len(text) <= most:
        return text
    room = most - len(_left_out(len(text)))
    if room < _SHORT:
        return text[: _end_of_head(text, most, is_json)]
    end = _end_of_head(text, room // 2, is_json)
    line = text.rfind("\n", end // 2, end)
    end = end if line < 0 else line
    start = _start_of_tail(text, len(text) - (room - room // 2), is_json)
    line = text.find("\n", start, (start + len(text)) // 2)
    start = start if line < 0 else line + 1
    return text[:end] + _left_out(start - end) + text[start:]


_SHORT: Final = 100
"""Characters below which a text is not worth a tail."""
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{0,3})?\Z")
_JOINERS: Final = 16
"""Code points that one character is looked for in."""


def _left_out(count: int) -> str:
    return f"\n[... {count} characters left out ...]\n"


def _end_of_head(text: str, end: int, is_json: bool) -> int:
    """Move the end of a head back to where a character, or an escape, ends."""
    for _ in range(_JOINERS):
        if end < 1 or not (_continues(text[end]) or text[end - 1] == "\u200d"):
            break
        end -= 1
    return _open_escape(text, end) if is_json else end


def _start_of_tail(text: str, start: int, is_json: bool) -> int:
    """Move the start of a tail on to where a character, or what follows an escape, begins."""
    if is_json and (escape := _open_escape(text, start)) < start:
        return escape + (6 if text[escape + 1] == "u" else 2)
    for _ in range(_JOINERS):
        if start >= len(text) or not (_continues(text[start]) or text[start - 1] == "\u200d"):
            break
        start += 1
    return start


def _open_escape(text: str, end: int) -> int:
    """Return where an escape begins that a cut at `end` would divide, else `end`."""
    found = _ESCAPE.search(text[max(0, end - 5) : end])
    if found is None:
        return end
    first = max(0, end - 5) + found.start()
    backslashes = first + 1
    while backslashes and text[backslashes - 1] == "\\":
        backslashes -= 1
    return first if (first + 1 - backslashes) % 2 else end


def _continues(character: str) -> bool:
    """Is it a combining mark, a joiner, a variation selector or a skin tone?"""
    return (
        "\u0300" <= character <= "\u036f"
        or character in "\u200d\u20e3"
        or "\ufe00" <= character <= "\ufe0f"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )
