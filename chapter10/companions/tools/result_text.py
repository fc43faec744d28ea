"""What a tool returned becomes the text that a model reads: stable, without secrets, and cut where it is safe.

The one place that knows what is empty, how half a character is repaired, and how a value becomes text; the
registry and the result budget both ask here.

R1  A string stays as it is; any other JSON value is its canonical JSON, not Python's `str` of it.
R2  A value without content (None, "", white space, [], text blocks that are all empty) is the empty text, so
    that whoever looks for empty results still sees one (X-14). 0 and false are not empty.
R3  What is no JSON (NaN, an object, bytes) is refused and never half written.
R4  Secrets go before the cut, since a cut secret is still most of a secret.
R5  A cut falls between characters (Python code points) and never inside an escape of JSON.

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
    """Return the first `most` characters of `text`; of JSON up to five fewer, where an escape would be open."""
    head = text[:most]
    found = _LAST_ESCAPE.search(head, max(0, most - 5)) if is_json and len(text) > most else None
    if found is None:
        return head
    end = found.start() + 1
    backslashes = end - len(head[:end].rstrip("\\"))
    return head[: end - 1] if backslashes % 2 else head


_LAST_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{0,3})?\Z")
