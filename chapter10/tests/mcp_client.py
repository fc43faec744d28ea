"""A client of MCP for the tests, of both eras: in this process beside a session, or with a server of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from chapter10.companions.serving.greeting import Greeter
from chapter10.companions.serving.messages import write_message
from chapter10.companions.serving.session import Offered, Session, Tasks
from chapter10.tests.support import CHILD_SECONDS, TOP, child_environment

META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
TASKS: Final = {
    **META,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
LEGACY: Final[dict[str, Any]] = {}
"""What a legacy client says of itself in a request: nothing."""

Answer = dict[str, Any]
ANSWER_SECONDS: Final = 20.0
"""How long a test waits for an answer before it fails instead of hanging."""


def request(request_id: object, method: str, meta: Mapping[str, Any] = META, **params: Any) -> Answer:
    """Return a request with what its era says in `_meta`."""
    said = {**meta, **params.pop("_meta", {})}
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": method,
        "params": {**params, **({"_meta": said} if said else {})},
    }


def notification(method: str, **params: Any) -> Answer:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def text_of(answer: Answer) -> Any:
    """Return the text of a call's result, read as JSON where it is JSON."""
    text = answer["result"]["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text


class Beside:
    """A client in the same process and loop as its session; `said` is all that the session wrote, in order."""

    def __init__(self, offer: Offered, tasks: Tasks | None = None) -> None:
        self.said: list[Answer] = []
        self._number = 0
        self._news = asyncio.Event()
        self._greeter = Greeter(tasks=tasks is not None)
        self.session = Session(offer, tasks, self._greeter, self._hear)

    def _hear(self, message: Answer) -> None:
        line = write_message(message)
        assert line.count(b"\n") == 1 and line.endswith(b"\n") and b"\r" not in line
        self.said.append(json.loads(line))
        self._news.set()

    def write(self, message: Answer | bytes) -> None:
        """Write a message, or the bytes of a line as they are."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        left = self._greeter.greet(line, self._hear)
        if left is not None:
            self.session.take(left)

    async def answer(self, request_id: object) -> Answer:
        """Wait for the answer to a request."""
        while True:
            for message in self.said:
                if "method" not in message and message.get("id") == request_id:
                    return message
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), ANSWER_SECONDS)

    async def ask(self, method: str, meta: Mapping[str, Any] = META, **params: Any) -> Answer:
        """Make a request with a number of its own, and return the answer."""
        self._number += 1
        self.write(request(self._number, method, meta, **params))
        return await self.answer(self._number)

    async def call(self, name: str, meta: Mapping[str, Any] = META, /, **arguments: Any) -> Answer:
        """Call a tool."""
        return await self.ask("tools/call", meta, name=name, arguments=arguments)

    async def turns(self, turns: int = 20) -> None:
        """Let everything run that needs nobody from outside."""
        for _ in range(turns):
            await asyncio.sleep(0)

    def heard(self, method: str) -> list[Answer]:
        """Return the params of all notifications of a method."""
        return [message.get("params", {}) for message in self.said if message.get("method") == method]


class Started:
    """A client with a server of its own, as a child process; use it as a context manager."""

    def __init__(self, *options: str | Path, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chapter10", "serve", *map(str, options)],
            cwd=TOP,
            env=child_environment(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._limit = threading.Timer(2 * ANSWER_SECONDS, self.process.kill)  # then a read ends, and the test with it
        self._limit.start()
        self._number = 0
        self.lines: list[bytes] = []

    def __enter__(self) -> Started:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.cancel()
        self.process.kill()
        self.process.communicate()

    def write(self, message: Answer | bytes) -> None:
        """Write a message, or bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> Answer:
        """Read the next message."""
        assert self.process.stdout is not None
        self.lines.append(self.process.stdout.readline())
        message: Answer = json.loads(self.lines[-1])
        return message

    def ask(self, method: str, meta: Mapping[str, Any] = META, **params: Any) -> Answer:
        """Make a request, and return the answer; what comes in between is passed over."""
        self._number += 1
        self.write(request(self._number, method, meta, **params))
        while (message := self.read()).get("id") != self._number:
            pass
        return message

    def end(self) -> tuple[bytes, bytes, int]:
        """Close the server's input, and return what it still wrote, what it logged, and its exit code."""
        said, log = self.process.communicate(timeout=CHILD_SECONDS)
        return said, log, self.process.returncode
