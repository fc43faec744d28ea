"""JSON-RPC as one line of bytes a message: what is read, what is wrong with it, and how an answer is written.

    request       has an `id`, a text or a whole number, and is answered once
    notification  has none, and nothing is ever said to it
    line          UTF-8, ended by a line feed; no byte order mark, and no line feed inside

What holds
    M1  A line that is no JSON in UTF-8 is -32700; JSON that is no request (a list, no method, an `id` of null) is
        -32600; `params` that are no object are -32602. The id is in the answer wherever it could be read, so that
        nobody waits for an answer that never comes; where it could not, there is no `id`, as in the protocol's schema.
    M2  Half a character, a key that stands twice, a number beyond a double and what is too deep or too long are
        refused as everywhere here, with -32600.
    M3  No line is kept that is longer than `MAX_LINE_BYTES`; what comes after it is read as usual.
    M4  What is written is one line without a line feed in it, whatever stands in the values.

Source: the protocol's pages of 2026-07-28 (overview, stdio) and 2025-11-25 (transports), as they stood on 2026-11-30.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from chapter10.companions.schemas.strict_json import JsonError, strict_json
from chapter10.limits import is_unicode

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MAX_LINE_BYTES",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "PARSE_ERROR",
    "UNSUPPORTED_VERSION",
    "Message",
    "RequestId",
    "RpcError",
    "error_answer",
    "read_message",
    "split_lines",
    "write_message",
]

RequestId = str | int

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one line; the values in it have the tighter bounds of `strict_json`."""


class RpcError(Exception):
    """Raised for a request that is answered with an error: the protocol's number, a fixed text, and data.

    `request_id` is None where no id could be read.
    """

    number: int
    text: str
    data: dict[str, Any] | None
    request_id: RequestId | None

    def __init__(
        self, number: int, text: str, data: dict[str, Any] | None = None, request_id: RequestId | None = None
    ) -> None:
        super().__init__(text)
        self.number = number
        self.text = text
        self.data = data
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class Message:
    """A request, or a notification where `request_id` is None. `params` is a copy that belongs to its reader."""

    method: str
    params: dict[str, Any]
    request_id: RequestId | None


def split_lines(read: Callable[[], bytes], most: int = MAX_LINE_BYTES) -> Iterator[bytes | None]:
    """Yield the lines of a stream without their ends, and None for each that is longer than `most` bytes.

    `read()` returns the next bytes, none at the end. A last line without an end counts as a line.
    """
    kept = bytearray()
    too_long = False
    while chunk := read():
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            yield None if too_long or len(kept) + len(piece) > most else bytes(kept + piece)
            kept.clear()
            too_long = False
        too_long = too_long or len(kept) + len(rest) > most
        if too_long:
            kept.clear()
        else:
            kept += rest
    if too_long or kept:
        yield None if too_long else bytes(kept)


def read_message(line: bytes | None) -> Message | None:
    """Return the message of a line (None: one that was too long); None for an empty line and for an answer.

    A client has nothing to answer here, so what looks like an answer is passed over. Raises `RpcError` (M1, M2).
    """
    if line is None:
        raise RpcError(PARSE_ERROR, f"The line is longer than {MAX_LINE_BYTES} bytes.")
    if not line.strip():
        return None
    try:
        value = strict_json(line.decode("utf-8"))
    except (JsonError, UnicodeDecodeError) as error:
        raise _refused(line, error) from None
    if type(value) is not dict:
        raise RpcError(INVALID_REQUEST, "A message is one object.")
    if "method" not in value and ("result" in value or "error" in value):
        return None
    request_id = value.get("id")
    if "id" in value and type(request_id) not in (str, int):
        raise RpcError(INVALID_REQUEST, "The id is neither a text nor a whole number.")
    method, params = value.get("method"), value.get("params", {})
    if value.get("jsonrpc") != "2.0" or type(method) is not str:
        raise RpcError(INVALID_REQUEST, "Not a request of JSON-RPC 2.0.", request_id=request_id)
    if type(params) is not dict:
        raise RpcError(INVALID_PARAMS, "The params are no object.", request_id=request_id)
    return Message(method, params, request_id)


def write_message(message: dict[str, Any]) -> bytes:
    """Return a message as the bytes of its line (M4). Raises `ValueError` for NaN and half a character."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8") + b"\n"


def error_answer(error: RpcError, request_id: RequestId | None) -> dict[str, Any]:
    """Return the answer that says an error; without an id where there was none to read."""
    said: dict[str, Any] = {"code": error.number, "message": error.text}
    if error.data is not None:
        said["data"] = error.data
    answer: dict[str, Any] = {"jsonrpc": "2.0"}
    if request_id is not None:
        answer["id"] = request_id
    return {**answer, "error": said}


def _refused(line: bytes, error: JsonError | UnicodeDecodeError) -> RpcError:
    """Say what is wrong with a line that is not taken, and to whom, if it can be read at all."""
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return RpcError(PARSE_ERROR, "The line is not JSON.")
    request_id = value.get("id") if type(value) is dict else None
    if type(request_id) not in (str, int) or not is_unicode(str(request_id)):
        request_id = None
    if isinstance(error, UnicodeDecodeError):
        return RpcError(PARSE_ERROR, "The line is not UTF-8.", request_id=request_id)
    reason = error.code.removeprefix("json_").replace("_", " ")
    return RpcError(INVALID_REQUEST, f"Not taken: {reason}.", request_id=request_id)
