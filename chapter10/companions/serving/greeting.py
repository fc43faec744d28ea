"""Which era a request speaks, and the answers that need nothing but the request: discovery, the handshake, a ping.

    modern  a request says its version and what its client can do in `_meta` (2026-07-28); nothing is remembered
    legacy  `initialize` comes first and holds for the process (2025-11-25, 2025-06-18)

What holds
    E1  The era is read from each request. A version is never echoed: who asks for one that is not spoken here is
        told -32022 (modern), or gets the newest that is (legacy).
    E2  A modern request that says only half of what it must is -32602, as is one of neither era before `initialize`.
    E3  A method of the other era is -32601. `ping` is older than the newer era and needs no handshake.
    E4  A greeting waits for nothing: it is answered in the thread that reads, while everything else is still loaded.

Source: the protocol's pages of 2026-07-28 (overview, versioning, discovery, caching) and 2025-11-25 (lifecycle, ping),
as they stood on 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from chapter10.companions.serving.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Message,
    RpcError,
    error_answer,
    read_message,
)

__all__ = ["LEGACY", "META", "MODERN", "TASKS", "Greeter"]

MODERN: Final = ("2026-07-28",)
"""Versions that a request names for itself."""
LEGACY: Final = ("2025-11-25", "2025-06-18")
"""Versions that `initialize` agrees on, the newest first."""
TASKS: Final = "io.modelcontextprotocol/tasks"
META: Final = "io.modelcontextprotocol/"
"""Where the protocol's own members of `_meta` begin."""

_VERSION: Final = META + "protocolVersion"
_CAPABILITIES: Final = META + "clientCapabilities"
_SERVER: Final = {"name": "chapter10", "version": "1.0"}
_TOOLS: Final = {"tools": {"listChanged": True}}
_DAY_MS: Final = 24 * 60 * 60 * 1000
_BOTH: Final = ("tools/list", "tools/call")
_MODERN_ONLY: Final = ("server/discover", "subscriptions/listen", "tasks/get", "tasks/cancel", "tasks/update")


class Greeter:
    """Knows what one client is; `tasks`: whether there is a store of tasks, so that the extension is offered.

    `legacy` is True once `initialize` was answered.
    """

    def __init__(self, *, tasks: bool = False) -> None:
        self.legacy = False
        self._tasks = tasks

    def greet(self, line: bytes | None, send: Callable[[dict[str, Any]], None]) -> Message | None:
        """Answer a line as far as that needs no tools; return the message that does, or a notification."""
        request_id = None
        try:
            message = read_message(line)
            if message is None or message.request_id is None:
                return message
            request_id = message.request_id
            result = self.result(message)
        except RpcError as error:
            send(error_answer(error, error.request_id if request_id is None else request_id))
            return None
        if result is None:
            return message
        send({"jsonrpc": "2.0", "id": request_id, "result": result})
        return None

    def result(self, message: Message) -> dict[str, Any] | None:
        """Return the result of a greeting, None for a request that needs the tools. Raises `RpcError` (E1 to E3)."""
        meta = message.params.get("_meta", {})
        if type(meta) is not dict:
            raise RpcError(INVALID_PARAMS, "The _meta is no object.")
        if message.method == "initialize":
            return self._initialize(message.params.get("protocolVersion"))
        modern = _VERSION in meta or _CAPABILITIES in meta
        if modern:
            _check_version(meta)
        if message.method == "ping" and not modern:
            return {}
        if message.method not in _BOTH and (message.method not in _MODERN_ONLY or (self.legacy and not modern)):
            raise RpcError(METHOD_NOT_FOUND, f"No such method: {message.method[:128]}")
        if not modern and not self.legacy:
            raise RpcError(INVALID_PARAMS, f"_meta lacks {_VERSION} and {_CAPABILITIES}, and nobody sent initialize.")
        return self.signed(message, self._discover()) if message.method == "server/discover" else None

    def signed(self, message: Message, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result with what its era adds: a modern one says its type and who made it."""
        if _VERSION not in message.params.get("_meta", {}):
            return result
        said = {**result.pop("_meta", {}), META + "serverInfo": _SERVER}
        return {"resultType": "complete", **result, "_meta": said}

    def is_modern(self, message: Message) -> bool:
        """Say whether a request that was let in is a modern one."""
        return _VERSION in message.params.get("_meta", {})

    def takes_tasks(self, message: Message) -> bool:
        """Say whether a request that was let in declares the extension of tasks."""
        extensions = message.params.get("_meta", {}).get(_CAPABILITIES, {}).get("extensions")
        return type(extensions) is dict and type(extensions.get(TASKS)) is dict

    def _discover(self) -> dict[str, Any]:
        extensions: dict[str, Any] = {"extensions": {TASKS: {}}} if self._tasks else {}
        return {
            "supportedVersions": list(MODERN),
            "capabilities": {**_TOOLS, **extensions},
            "ttlMs": _DAY_MS,
            "cacheScope": "public",
        }

    def _initialize(self, asked: object) -> dict[str, Any]:
        if type(asked) is not str:
            raise RpcError(INVALID_PARAMS, "The protocolVersion is no text.")
        self.legacy = True
        version = asked if asked in LEGACY else LEGACY[0]
        return {"protocolVersion": version, "capabilities": _TOOLS, "serverInfo": _SERVER}


def _check_version(meta: dict[str, Any]) -> None:
    version = meta.get(_VERSION)
    if type(version) is not str or type(meta.get(_CAPABILITIES)) is not dict:
        raise RpcError(INVALID_PARAMS, f"_meta lacks {_VERSION}, a text, or {_CAPABILITIES}, an object.")
    if version not in MODERN:
        spoken = {"supported": [*MODERN, *LEGACY], "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", spoken)
