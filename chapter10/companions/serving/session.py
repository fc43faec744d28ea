"""One connection: each request is answered, stopped when its client no longer wants it, and never answered twice.

    open    a request that has no answer yet; a cancel, a progress and a listener are about an open one

What holds
    S1  Every request gets one answer, unless the client cancelled it while it was open: then none, and nothing more
        about it. A cancel that comes too late, twice or for nothing changes nothing.
    S2  Progress is sent for an open request with a token, rising, at most `MAX_PROGRESS` times, and not after its
        answer.
    S3  A task answers only a request that declares the extension; without it `tasks/get` and its like are -32021.
    S4  That the list changed is told to a legacy client after `notifications/initialized`, and to a modern one on
        each stream of `subscriptions/listen` that asked for it, after its acknowledgement.
    S5  What fails here and is nobody's request is -32603 with a fixed text; the reason goes to the log.
    S6  `drain` answers what is due, ends the streams, and then cancels what is left.

Source: the protocol's pages of 2026-07-28 (tools, cancellation, progress, subscriptions, caching) and 2025-11-25, and
of the tasks extension, as they stood on 2026-11-30.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from chapter10.companions.serving.greeting import META, TASKS, Greeter
from chapter10.companions.serving.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    Message,
    RequestId,
    RpcError,
    error_answer,
)

__all__ = ["MAX_OPEN", "MAX_PROGRESS", "Offered", "Session", "Tasks"]

MAX_OPEN: Final = 256
"""Requests that may be open at once; one more is refused."""
MAX_PROGRESS: Final = 1000
"""Notifications of progress for one request."""

_SUBSCRIPTION: Final = META + "subscriptionId"
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


_Method = Callable[["Session", Message], Awaitable[dict[str, Any]]]


class Session:
    """Answers the requests of one client that `greeter` let in; `send` writes a message to it.

    It belongs to one event loop. `tasks` is None where nothing can be a task.
    """

    def __init__(
        self, offer: Offered, tasks: Tasks | None, greeter: Greeter, send: Callable[[dict[str, Any]], None]
    ) -> None:
        self._offer = offer
        self._tasks = tasks
        self._greeter = greeter
        self._send = send
        self._open: dict[RequestId | None, asyncio.Task[None]] = {}
        self._listeners: set[RequestId | None] = set()
        self._ending = asyncio.Event()
        self._initialized = False
        offer.on_change = self._tell_change

    def take(self, message: Message) -> None:
        """Start what a message asks for."""
        if message.request_id is None:
            self._notified(message)
            return
        number, text = INVALID_REQUEST, "A request with this id is open."
        if message.request_id not in self._open:
            number, text = INTERNAL_ERROR, f"{MAX_OPEN} requests are open."
            if len(self._open) < MAX_OPEN:
                task = asyncio.get_running_loop().create_task(self._answer(message, message.request_id))
                self._open[message.request_id] = task
                return
        self._send(error_answer(RpcError(number, text), message.request_id))

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for the answers that are due, then cancel the others (S6)."""
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
        return self._greeter.signed(message, await _METHODS[message.method](self, message))

    async def _list(self, message: Message) -> dict[str, Any]:
        cursor = message.params.get("cursor")
        if cursor is not None and type(cursor) is not str:
            raise RpcError(INVALID_PARAMS, "The cursor is no text.")
        # Fresh for no time at all: who is told that a definition changed must not read the old one in a cache.
        hints = {"ttlMs": 0, "cacheScope": "private"} if self._greeter.is_modern(message) else {}
        return {**self._offer.page(cursor), **hints}

    async def _call(self, message: Message) -> dict[str, Any]:
        name, arguments = message.params.get("name"), message.params.get("arguments", {})
        if type(name) is not str or type(arguments) is not dict:
            raise RpcError(INVALID_PARAMS, "A call has a name, a text, and arguments, an object.")
        task = self._greeter.takes_tasks(message)
        return await self._offer.call(name, arguments, progress=self._progress(message), task=task)

    async def _listen(self, message: Message) -> dict[str, Any]:
        wanted = message.params.get("notifications")
        if type(wanted) is not dict:
            raise RpcError(INVALID_PARAMS, "The notifications are no object.")
        if "taskIds" in wanted:
            self._need_tasks(message)
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

    async def _task_get(self, message: Message) -> dict[str, Any]:
        tasks, handle = self._handle(message)
        return await tasks.get(handle)

    async def _task_cancel(self, message: Message) -> dict[str, Any]:
        tasks, handle = self._handle(message)
        await tasks.cancel(handle)
        return {}

    async def _task_update(self, message: Message) -> dict[str, Any]:
        tasks, handle = self._handle(message)
        if type(message.params.get("inputResponses")) is not dict:
            raise RpcError(INVALID_PARAMS, "The inputResponses are no object.")
        await tasks.update(handle)
        return {}

    def _handle(self, message: Message) -> tuple[Tasks, str]:
        self._need_tasks(message)
        handle = message.params.get("taskId")
        if self._tasks is None or type(handle) is not str:
            raise RpcError(INVALID_PARAMS, "There is no such task.")
        return self._tasks, handle

    def _need_tasks(self, message: Message) -> None:
        if not self._greeter.takes_tasks(message):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise RpcError(MISSING_CAPABILITY, "Missing required client capability", needed)

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
        if self._greeter.legacy and self._initialized:
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


_METHODS: Final[dict[str, _Method]] = {
    "tools/list": Session._list,
    "tools/call": Session._call,
    "subscriptions/listen": Session._listen,
    "tasks/get": Session._task_get,
    "tasks/cancel": Session._task_cancel,
    "tasks/update": Session._task_update,
}
"""What `Greeter` lets in and does not answer itself."""


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
