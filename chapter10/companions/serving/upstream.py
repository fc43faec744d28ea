"""Other servers behind this one: each is a child process, and its tools are offered under its name.

    servers   the common form `{"mcpServers": {NAME: {"command", "args", "env", "cwd"}}}`, standard input and output
              only; `timeout` are the seconds of one call, `permission` is what its tools ask for, `disabled` leaves
              it out
    prefix    a tool `read` of the server `files` is offered as `files__read`
    pins      see `pins`: a definition that changed is held back and named, until `serve --accept NAME`

What holds
    U1  A server that does not start, or ends, is started again after a pause that doubles from `FIRST_PAUSE` to
        `LONGEST_PAUSE`; one that lived for longer than that begins anew.
    U2  Whoever waits for a server that ends is told so, by its name, and that the outcome is not known; while it is
        down a call is answered at once.
    U3  A call passes the one boundary, with a time limit; who gives up tells the server that it did.
    U4  What a server says comes through as it said it: blocks, data, errors. Secrets are taken out of its texts.
    U5  A server that tells of a change is asked for its list again; so is one that was started anew.

Both eras are spoken: `server/discover` first, and `initialize` where that is not understood. What it does not do: HTTP,
OAuth, resources, prompts, sampling, questions to the user, tasks of another server.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.companions.finding.tool_list import ToolListError, parse_tool_list
from chapter10.companions.serving.bridge import read_pages, said_of
from chapter10.companions.serving.greeting import LEGACY, META, MODERN
from chapter10.companions.serving.loading import TIMEOUT_SECONDS, ServingError, definition_spec
from chapter10.companions.serving.messages import MAX_LINE_BYTES, METHOD_NOT_FOUND, write_message
from chapter10.companions.serving.offer import Offer, text_result
from chapter10.companions.serving.pins import Pins
from chapter10.companions.tools.redaction import redact_secrets
from chapter10.companions.tools.registry import CallContext, RegistryError
from chapter10.companions.tools.tool_spec import PUBLIC

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "START_SECONDS", "Upstreams", "read_servers"]

START_SECONDS: Final = 10.0
"""How long a client's first list waits for the servers, and their greeting for an answer."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
_MAX_OUTPUT_CHARS: Final = 1_000_000

_OLDER: Final = ("2025-03-26", "2024-11-05")
_ME: Final = {"name": "chapter10", "version": "1.0"}
_MODERN_META: Final = {
    META + "protocolVersion": MODERN[0],
    META + "clientInfo": _ME,
    META + "clientCapabilities": {},
}
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class _Gone(Exception):
    """The server has ended, or says nothing that can be understood."""


def read_servers(path: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the servers of a file by name, and a line for each that is left out.

    Raises `ServingError` (`bad_servers`), `OSError`.
    """
    try:
        listed = json.loads(path.read_bytes())["mcpServers"]
        items = list(listed.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServingError("bad_servers", f"{path.name} holds no mcpServers") from error
    servers, left_out = {}, []
    for name, entry in items:
        if not name or "__" in name or not _NAME_CHARACTERS.issuperset(name):
            left_out.append(f"{name}: a name of letters, digits, - and single _ is needed")
        elif type(entry) is not dict or not _is_command(entry):
            left_out.append(f"{name}: only servers with a command are spoken to")
        elif entry.get("disabled") is not True:
            servers[name] = entry
    return servers, left_out


def _is_command(entry: dict[str, Any]) -> bool:
    texts = [entry.get("command"), *(entry.get("args") or []), *(entry.get("env") or {}).values()]
    return all(type(text) is str for text in texts)


class Upstreams:
    """The other servers of one process. `complain(line)` hears what a person should know; `sleep` waits."""

    def __init__(
        self,
        servers: dict[str, dict[str, Any]],
        pins: Pins,
        offer: Offer,
        *,
        complain: Callable[[str], object],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._children = [_Child(name, entry, pins, offer, complain, sleep) for name, entry in servers.items()]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, seconds: float = START_SECONDS) -> None:
        """Start all servers, and wait until each has listed its tools or failed, at most so many seconds."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(child.keep()) for child in self._children]
        first = [loop.create_task(child.tried.wait()) for child in self._children]
        if first:
            _, late = await asyncio.wait(first, timeout=seconds)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """End all servers: their input is closed, and what does not end then is ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Child:
    """One server: the process while it lives, and what waits for its answers."""

    def __init__(
        self,
        name: str,
        entry: dict[str, Any],
        pins: Pins,
        offer: Offer,
        complain: Callable[[str], object],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.tried = asyncio.Event()  # its tools are listed, or it did not start
        self._name = name
        self._entry = entry
        self._pins = pins
        self._offer = offer
        self._tell = complain
        self._sleep = sleep
        self._process: asyncio.subprocess.Process | None = None
        self._meta: dict[str, Any] = {}
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._progress: dict[int, Callable[[Any], None]] = {}
        self._number = 0
        self._changed = asyncio.Event()
        self._offered: dict[str, str] = {}  # by the name it is offered under, the digest of what is offered

    def _complain(self, text: str) -> None:
        self._tell(f"{self._name}: {text}\n")

    async def keep(self) -> None:
        """Keep the server running (U1)."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while True:
            started = loop.time()
            try:
                await self._live()
            except (TimeoutError, OSError, _Gone) as error:
                self._complain(str(error) or "it did not answer in time")
            self.tried.set()
            if loop.time() - started > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            self._complain(f"is started again in {pause:.0f} seconds")
            await self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _live(self) -> None:
        """One life of the process: start, greet, list, and list again whenever it says that something changed."""
        entry = self._entry
        self._process = process = await asyncio.create_subprocess_exec(
            shutil.which(entry["command"]) or entry["command"],
            *entry.get("args") or [],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **(entry.get("env") or {})},
            cwd=entry.get("cwd"),
            limit=MAX_LINE_BYTES,
        )
        reader = asyncio.get_running_loop().create_task(self._read(process))
        try:
            lister = asyncio.get_running_loop().create_task(self._greet_and_list())
            done, _ = await asyncio.wait([reader, lister], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._process = None
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(_Gone("it has ended"))
            self._waiting.clear()
            for task in (reader, lister):
                task.cancel()
            await asyncio.gather(reader, lister, return_exceptions=True)
            await _end(process)

    async def _greet_and_list(self) -> None:
        await asyncio.wait_for(self._greet(), 2 * START_SECONDS)
        while True:
            self._changed.clear()
            self._offer_all(await self._list())
            self.tried.set()
            await self._changed.wait()

    async def _greet(self) -> None:
        """Find out which era the server speaks."""
        self._meta = dict(_MODERN_META)
        with suppress(asyncio.TimeoutError):
            answer = await asyncio.wait_for(self._ask("server/discover", {}), START_SECONDS)
            spoken = answer.get("result", {}).get("supportedVersions", ())
            if MODERN[0] in spoken:
                return
        self._meta = {}
        hello = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": _ME}
        version = (await self._ask("initialize", hello)).get("result", {}).get("protocolVersion")
        if version not in (*LEGACY, *_OLDER):
            raise _Gone("it speaks no version that is spoken here")
        await self._write({"method": "notifications/initialized"})

    async def _list(self) -> list[dict[str, Any]]:
        async def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
            answer = await asyncio.wait_for(self._ask(method, params), START_SECONDS)
            return {"tools": [], **answer["result"]} if type(answer.get("result")) is dict else {"tools": []}

        listed, _ = await read_pages(result)
        return [tool for tool in listed if type(tool) is dict]

    # What it offers ------------------------------------------------------------------------------

    def _offer_all(self, listed: list[dict[str, Any]]) -> None:
        """Offer what is pinned, take away what is gone, and say so where something changed."""
        now: dict[str, str] = {}
        for entry in listed:
            name = f"{self._name}__{entry.get('name')}"
            try:
                tool = parse_tool_list([entry], bad="refuse").tools[0]
                spec = definition_spec(
                    tool,
                    self._handler(tool.name),
                    self._entry.get("permission", PUBLIC),
                    timeout_seconds=self._entry.get("timeout", TIMEOUT_SECONDS),
                    max_output_chars=_MAX_OUTPUT_CHARS,
                    context_argument="chapter10_call",
                    redact=_redacted,
                )
                if name not in self._offered and self._offer.has(name):
                    raise RegistryError("duplicate_tool", "name", "is taken")
                if not self._pins.allows(name, entry):
                    self._complain(f"{name} has changed and is held back; see serve --accept {name}")
                    continue
                self._offer.put(replace(spec, name=name), _as_said)
                now[name] = self._pins.pinned[name]
            except (ToolListError, RegistryError) as error:
                reason = error.line if isinstance(error, ToolListError) else f"{error.field}: {error.reason}"
                self._complain(f"{name[:200]} is left out: {reason}")
        self._pins.save()
        for name in self._offered.keys() - now.keys():
            self._offer.drop(name)
        if now != self._offered:
            self._offered = now
            self._offer.on_change()

    def _handler(self, name: str) -> Callable[..., Any]:
        async def call(*, chapter10_call: CallContext, **arguments: Any) -> dict[str, Any]:
            # Within a member of its own it is data of ours, and not yet what a model is to read.
            return {"said": await self._call(name, arguments, chapter10_call.progress)}

        return call

    async def _call(self, name: str, arguments: dict[str, Any], progress: Callable[[Any], None]) -> dict[str, Any]:
        if self._process is None:
            return text_result(f"The server {self._name} is down. The call was not made.", is_error=True)
        try:
            answer = await self._ask("tools/call", {"name": name, "arguments": arguments}, progress)
        except (_Gone, OSError):
            text = f"The server {self._name} has ended. It is not known whether the call took effect."
            return text_result(text, is_error=True)
        result = answer.get("result")
        if type(result) is not dict:
            return text_result(f"{self._name}: {answer.get('error', {}).get('message')}", is_error=True)
        return said_of(result)

    # Lines ---------------------------------------------------------------------------------------

    async def _ask(
        self, method: str, params: dict[str, Any], progress: Callable[[Any], None] | None = None
    ) -> dict[str, Any]:
        self._number += 1
        number = self._number
        meta = {**self._meta, **({} if progress is None else {"progressToken": number})}
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        if progress is not None:
            self._progress[number] = progress
        try:
            whole = {**params, "_meta": meta} if meta else params
            await self._write({"id": number, "method": method, "params": whole})
            answer: dict[str, Any] = await waiting
            return answer
        except asyncio.CancelledError:
            if method == "tools/call":  # whoever waited has gone (U3)
                with suppress(OSError, _Gone):
                    await self._write({"method": "notifications/cancelled", "params": {"requestId": number}})
            raise
        finally:
            self._waiting.pop(number, None)
            self._progress.pop(number, None)

    async def _write(self, message: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            raise _Gone("it has ended")
        self._process.stdin.write(write_message({"jsonrpc": "2.0", **message}))
        await self._process.stdin.drain()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Hear what the server says until it ends; what is no message is passed over."""
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than any line may be
                continue
            if not line:
                raise _Gone("it has ended")
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if type(message) is dict:
                await self._heard(message)

    async def _heard(self, message: dict[str, Any]) -> None:
        method, params, number = message.get("method"), message.get("params"), message.get("id")
        if method is None:
            waiting = self._waiting.get(number) if type(number) is int else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif number is not None:  # a request to a client; we can be asked for nothing but a sign of life
            no = {"error": {"code": METHOD_NOT_FOUND, "message": "Not offered here."}}
            await self._write({"id": number, **({"result": {}} if method == "ping" else no)})
        elif method == "notifications/tools/list_changed":
            self._changed.set()
        elif method == "notifications/progress" and type(params) is dict:
            token = params.get("progressToken")
            report = self._progress.get(token) if type(token) is int else None
            if report is not None:
                report({key: params[key] for key in ("progress", "total", "message") if key in params})


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process as the protocol asks: its input first, then a signal, then the other one."""
    if process.stdin is not None:
        process.stdin.close()
    for stop in (None, process.terminate, process.kill):
        if stop is not None:
            with suppress(ProcessLookupError):
                stop()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), 1.0)
            return


def _redacted(text: str) -> str:
    """Take secrets out of the texts of a result, and leave its other blocks as they are (U4)."""
    if not text.startswith('{"said":'):
        return redact_secrets(text)  # a report, or why it failed
    result = json.loads(text)["said"]
    for block in result["content"]:
        if type(block) is dict and type(block.get("text")) is str:
            block["text"] = redact_secrets(block["text"])
    if "structuredContent" in result:
        try:
            result["structuredContent"] = json.loads(redact_secrets(canonical(result["structuredContent"])))
        except ValueError:
            del result["structuredContent"]
    return canonical({"said": result})


async def _as_said(data: str, task: bool) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(data)["said"]
    return said
