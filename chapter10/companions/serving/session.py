"""One connection: each line that a client wrote is answered, in the way of the era that it speaks.

    modern  a request says its version and what its client can do in `_meta` (2026-07-28); nothing is remembered
    legacy  `initialize` comes first and holds for the process (2025-11-25, 2025-06-18)
    open    a request that has no answer yet; a cancel, a progress and a listener are about an open one

What holds
    S1  Every request gets one answer, unless the client cancelled it while it was open: then none, and nothing more
        about it. A cancel that comes too late, twice or for nothing changes nothing.
    S2  The era is read from each request. A version is never echoed: who asks for one that is not spoken here is
        told -32022 (modern), or gets the newest that is (legacy).
    S3  Progress is sent for an open request with a token, rising, at most `MAX_PROGRESS` times, and not after its
        answer.
    S4  A task answers only a request that declares the extension; without it `tasks/get` and its like are -32021.
    S5  That the list changed is told to a legacy client after `notifications/initialized`, and to a modern one on
        each stream of `subscriptions/listen` that asked for it, after its acknowledgement.
    S6  What fails here and is nobody's request is -32603 with a fixed text; the reason goes to the log.
    S7  `drain` answers what is due, ends the streams, and then cancels what is left.

Source: the protocol's pages of 2026-07-28 (overview, versioning, discovery, cancellation, progress, subscriptions,
caching) and 2025-11-25 (lifecycle, ping), and of the tasks extension, as they stood on 2026-11-30.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from chapter10.companions.serving.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    Message,
    RequestId,
    RpcError,
    error_answer,
    read_message,
)

__all__ = ["LEGACY", "MAX_OPEN", "MAX_PROGRESS", "MODERN", "TASKS", "Offered", "Session", "Tasks"]

MODERN: Final = ("2026-07-28",)
"""Versions that a request names for itself."""
LEGACY: Final = ("2025-11-25", "2025-06-18")
"""Versions that `initialize` agrees on, the newest first."""
TASKS: Final = "io.modelcontextprotocol/tasks"
MAX_OPEN: Final = 256
"""Requests that may be open at once; one more is refused."""
MAX_PROGRESS: Final = 1000
"""Notifications of progress for one request."""

_META: Final = "io.modelcontextprotocol/"
_VERSION: Final = _META + "protocolVersion"
_CAPABILITIES: Final = _META + "clientCapabilities"
_SUBSCRIPTION: Final = _META + "subscriptionId"
_SERVER: Final = {"name": "chapter10", "version": "1.0"}
_DAY_MS: Final = 24 * 60 * 60 * 1000
_log: Final = logging.getLogger(__name__)


class Offered(Protocol):
    """What a session asks about tools; each raises `RpcError` (-32602) for what is not offered."""

    on_change: Callable[[], None]
    """Called when the list is no longer what was shown; the session sets it."""

    def page(self, cursor: str | None) -> dict[str, Any]:
        """Return one page of the list, `{tools, nextCursor?}`."""

    async def call(
        self, name: str, arguments: dict[str, Any], *, progress: Callable[[Any], None] | None, task: bool
    ) -> dict[str, Any]:
        """Return the result of a call; `task`: a handle will do."""


class Tasks(Protocol):
    """What a session asks about tasks; each raises `RpcError` (-32602) for a handle that is none of this owner's."""

    async def get(self, handle: str) -> dict[str, Any]:
        """Return the task as it is now, with its result or its error where it has one."""

    async def cancel(self, handle: str) -> None:
        """Ask for the task to be stopped."""

    async def update(self, handle: str) -> None:
        """Take note of answers that nobody asked for, which is nothing but to know the handle."""


_Method = Callable[["Session", Message, bool], Awaitable[dict[str, Any]]]


class Session:
    """Answers the lines of one client; `send` writes a message to it. It belongs to one event loop.

    `tasks`: whether there will be a store of tasks. What needs the tools waits for `open`; a greeting does not. A
    modern result says who made it, as the protocol asks.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None], *, tasks: bool = False) -> None:
        self._send = send
        self._with_tasks = tasks
        self._door: asyncio.Future[tuple[Offered, Tasks | None]] = asyncio.get_running_loop().create_future()
        self._open: dict[RequestId | None, asyncio.Task[None]] = {}
        self._listeners: set[RequestId | None] = set()
        self._ending = asyncio.Event()
        self._legacy = False
        self._initialized = False

    def open(self, offer: Offered, tasks: Tasks | None = None) -> None:
        """Answer from this offer from now on; requests that came before have waited for it."""
        offer.on_change = self._tell_change
        self._door.set_result((offer, tasks))

    def receive(self, line: bytes | None) -> None:
        """Take a line as `split_lines` gives it: answer it, start what it asks for, or pass it over."""
        try:
            message = read_message(line)
            if message is None:
                return
            if message.request_id is None:
                self._notified(message)
            elif message.request_id in self._open:
                raise RpcError(INVALID_REQUEST, "A request with this id is open.", request_id=message.request_id)
            elif len(self._open) >= MAX_OPEN:
                raise RpcError(INTERNAL_ERROR, f"{MAX_OPEN} requests are open.", request_id=message.request_id)
            else:
                task = asyncio.get_running_loop().create_task(self._answer(message, message.request_id))
                self._open[message.request_id] = task
        except RpcError as error:
            self._send(error_answer(error, error.request_id))

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for the answers that are due, then cancel the others (S7)."""
        self._ending.set()
        for cancel in (False, True):
            left = list(self._open.values())
            if left and cancel:
                for task in left:
                    task.cancel()
            if left:
                await asyncio.wait(left, timeout=seconds)

    # One request ---------------------------------------------------------------------------------

    async def _answer(self, message: Message, request_id: RequestId) -> None:
        try:
            answer = {"jsonrpc": "2.0", "id": request_id, "result": await self._result(message)}
        except RpcError as error:
            answer = error_answer(error, request_id)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the client asked for it, and hears nothing more (S1)
            answer = error_answer(RpcError(INTERNAL_ERROR, "The tool cancelled itself."), request_id)
        except (Exception, SystemExit):
            _log.exception("a request failed")
            answer = error_answer(RpcError(INTERNAL_ERROR, "The server failed at this request."), request_id)
        finally:
            if self._open.get(request_id) is asyncio.current_task():  # after a cancel the id may be in use again
                del self._open[request_id]
        self._send(answer)

    async def _result(self, message: Message) -> dict[str, Any]:
        meta = message.params.get("_meta", {})
        if type(meta) is not dict:
            raise RpcError(INVALID_PARAMS, "The _meta is no object.")
        if message.method == "initialize":
            return await self._initialize(message, False)
        if _VERSION in meta or _CAPABILITIES in meta:
            tasks = _declares_tasks(meta)
            result = await _method(_MODERN_METHODS, message)(self, message, tasks)
            said = {**result.pop("_meta", {}), _META + "serverInfo": _SERVER}
            return {"resultType": "complete", **result, "_meta": said}
        if self._legacy or message.method == "ping":
            return await _method(_LEGACY_METHODS, message)(self, message, False)
        _method(_MODERN_METHODS, message)
        raise RpcError(INVALID_PARAMS, f"_meta lacks {_VERSION} and {_CAPABILITIES}, and nobody sent initialize.")

    async def _discover(self, message: Message, tasks: bool) -> dict[str, Any]:
        extensions: dict[str, Any] = {"extensions": {TASKS: {}}} if self._with_tasks else {}
        return {
            "supportedVersions": list(MODERN),
            "capabilities": {"tools": {"listChanged": True}, **extensions},
            "ttlMs": _DAY_MS,
            "cacheScope": "public",
        }

    async def _initialize(self, message: Message, tasks: bool) -> dict[str, Any]:
        asked = message.params.get("protocolVersion")
        if type(asked) is not str:
            raise RpcError(INVALID_PARAMS, "The protocolVersion is no text.")
        self._legacy = True
        version = asked if asked in LEGACY else LEGACY[0]
        return {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": _SERVER}

    async def _ping(self, message: Message, tasks: bool) -> dict[str, Any]:
        return {}

    async def _list(self, message: Message, tasks: bool) -> dict[str, Any]:
        cursor = message.params.get("cursor")
        if cursor is not None and type(cursor) is not str:
            raise RpcError(INVALID_PARAMS, "The cursor is no text.")
        offer, _ = await asyncio.shield(self._door)
        return offer.page(cursor)

    async def _list_modern(self, message: Message, tasks: bool) -> dict[str, Any]:
        # Fresh for no time at all: who is told that a definition changed must not read the old one in a cache.
        return {**await self._list(message, tasks), "ttlMs": 0, "cacheScope": "private"}

    async def _call(self, message: Message, tasks: bool) -> dict[str, Any]:
        name, arguments = message.params.get("name"), message.params.get("arguments", {})
        if type(name) is not str or type(arguments) is not dict:
            raise RpcError(INVALID_PARAMS, "A call has a name, a text, and arguments, an object.")
        offer, _ = await asyncio.shield(self._door)
        return await offer.call(name, arguments, progress=self._progress(message), task=tasks)

    async def _listen(self, message: Message, tasks: bool) -> dict[str, Any]:
        wanted = message.params.get("notifications")
        if type(wanted) is not dict:
            raise RpcError(INVALID_PARAMS, "The notifications are no object.")
        if "taskIds" in wanted and not tasks:
            raise _no_tasks()
        agreed = {"toolsListChanged": True} if wanted.get("toolsListChanged") is True else {}
        about = {_SUBSCRIPTION: message.request_id}
        self._notify("notifications/subscriptions/acknowledged", {"_meta": about, "notifications": agreed})
        if agreed:
            self._listeners.add(message.request_id)
        try:
            await self._ending.wait()
        finally:
            self._listeners.discard(message.request_id)
        return {"_meta": about}

    async def _task_get(self, message: Message, tasks: bool) -> dict[str, Any]:
        store, handle = await self._handle(message, tasks)
        return await store.get(handle)

    async def _task_cancel(self, message: Message, tasks: bool) -> dict[str, Any]:
        store, handle = await self._handle(message, tasks)
        await store.cancel(handle)
        return {}

    async def _task_update(self, message: Message, tasks: bool) -> dict[str, Any]:
        store, handle = await self._handle(message, tasks)
        if type(message.params.get("inputResponses")) is not dict:
            raise RpcError(INVALID_PARAMS, "The inputResponses are no object.")
        await store.update(handle)
        return {}

    async def _handle(self, message: Message, tasks: bool) -> tuple[Tasks, str]:
        if not tasks:
            raise _no_tasks()
        _, store = await asyncio.shield(self._door)
        handle = message.params.get("taskId")
        if store is None or type(handle) is not str:
            raise RpcError(INVALID_PARAMS, "There is no such task.")
        return store, handle

    # What is told without being asked --------------------------------------------------------------

    def _notified(self, message: Message) -> None:
        if message.method == "notifications/initialized":
            self._initialized = True
        elif message.method == "notifications/cancelled":
            request_id = message.params.get("requestId")
            if type(request_id) in (str, int) and (task := self._open.pop(request_id, None)) is not None:
                task.cancel()

    def _tell_change(self) -> None:
        method = "notifications/tools/list_changed"
        if self._legacy and self._initialized:
            self._notify(method, {})
        for request_id in self._listeners:
            self._notify(method, {"_meta": {_SUBSCRIPTION: request_id}})

    def _progress(self, message: Message) -> Callable[[Any], None] | None:
        """Return what the handler's reports go to, where the client gave a token."""
        token = message.params.get("_meta", {}).get("progressToken")
        if type(token) not in (str, int):
            return None
        task, loop, thread = asyncio.current_task(), asyncio.get_running_loop(), threading.get_ident()
        last, heard = -math.inf, 0

        def tell(data: Any) -> None:
            nonlocal last
            said = _progress_of(data, last)
            if said is not None and self._open.get(message.request_id) is task:
                last = said["progress"]
                self._notify("notifications/progress", {"progressToken": token, **said})

        def report(data: Any) -> None:
            nonlocal heard
            heard += 1
            if heard > MAX_PROGRESS:
                return
            if threading.get_ident() == thread:
                tell(data)
                return
            try:
                loop.call_soon_threadsafe(tell, data)
            except RuntimeError:  # the loop is closed: nobody listens any more
                pass

        return report

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._send(
            {"jsonrpc": "2.0", "method": method, "params": params} if params else {"jsonrpc": "2.0", "method": method}
        )


_COMMON: Final[dict[str, _Method]] = {"tools/call": Session._call}
_LEGACY_METHODS: Final[dict[str, _Method]] = {"ping": Session._ping, "tools/list": Session._list, **_COMMON}
_MODERN_METHODS: Final[dict[str, _Method]] = {
    "server/discover": Session._discover,
    "tools/list": Session._list_modern,
    "subscriptions/listen": Session._listen,
    "tasks/get": Session._task_get,
    "tasks/cancel": Session._task_cancel,
    "tasks/update": Session._task_update,
    **_COMMON,
}


def _method(methods: dict[str, _Method], message: Message) -> _Method:
    method = methods.get(message.method)
    if method is None:
        raise RpcError(METHOD_NOT_FOUND, f"No such method: {message.method[:128]}")
    return method


def _declares_tasks(meta: dict[str, Any]) -> bool:
    """Check what a modern request says of itself, and return whether it takes a task as an answer (S2)."""
    version, capabilities = meta.get(_VERSION), meta.get(_CAPABILITIES)
    if type(version) is not str or type(capabilities) is not dict:
        raise RpcError(INVALID_PARAMS, f"_meta lacks {_VERSION}, a text, or {_CAPABILITIES}, an object.")
    if version not in MODERN:
        spoken = {"supported": [*MODERN, *LEGACY], "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", spoken)
    extensions = capabilities.get("extensions")
    return type(extensions) is dict and type(extensions.get(TASKS)) is dict


def _no_tasks() -> RpcError:
    needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return RpcError(MISSING_CAPABILITY, "Missing required client capability", needed)


def _progress_of(data: Any, last: float) -> dict[str, Any] | None:
    """Read a handler's report: a number, done and total, a text, or all of it by name. None for what does not rise."""
    said = {"progress": max(last, 0.0) + 1, "message": data} if type(data) is str else data
    if type(data) in (list, tuple):
        said = dict(zip(("progress", "total"), data, strict=False))
    elif type(data) in (int, float):
        said = {"progress": data}
    if type(said) is not dict or not _is_number(said.get("progress")) or said["progress"] <= last:
        return None
    total, text = said.get("total"), said.get("message")
    return {
        "progress": said["progress"],
        **({"total": total} if _is_number(total) else {}),
        **({"message": text[:1000]} if type(text) is str else {}),
    }


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
