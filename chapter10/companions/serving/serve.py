"""The command `python -m chapter10 serve`: one process, one client, one identity, on standard input and output.

    python -m chapter10 serve --handlers mypackage.tools --db jobs.db --owner alice --grant orders:read

The two descriptors of the protocol are moved away before anything of the reader's is loaded. What is left in their
place: an input that is at its end, and standard error. So a `print`, a library that writes to descriptor 1, and a child
that inherits both can neither break a message nor eat one.

    --tools FILE, --handlers MODULE   what is offered, see `loading`; without both, the chapter's 300 tools to look at
    --db FILE                         the store of the jobs; tools that become jobs need it
    --owner NAME                      the identity whose jobs they are
    --grant PERMISSION                may be given more than once; `approve:NAME` lets a tool run that needs approval
    --servers FILE, --accept NAME     other servers behind this one, see `upstream`

It ends when its input does: the answers that are due are given first, within `DRAIN_SECONDS`, and a job at hand goes
back in line. Whoever starts this process decides who the owner is and what is granted; no message can.

Exit codes: 0 fine, 2 usage or nothing that can be served, 3 the machine lacks something.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import CodedError
from chapter10.companions.serving.messages import split_lines, write_message
from chapter10.companions.serving.session import Session

__all__ = ["DRAIN_SECONDS", "main"]

DRAIN_SECONDS: Final = 10.0
"""How long the answers that are due may take after the end of the input."""
_READ_BYTES: Final = 65_536
_AHEAD: Final = 64
"""Lines that are read before the ones in front of them were looked at."""
_FINE, _USAGE, _MACHINE, _INTERRUPTED = 0, 2, 3, 130


def main(arguments: Sequence[str] | None = None, *, random: Callable[[int], bytes] = os.urandom) -> int:
    """Serve until the input ends, and return the exit code; `arguments` are what follows `serve`.

    `random(n)`: bytes for the keys of work that names none. Raises `SystemExit` with code 2 for arguments that it does
    not know.
    """
    options = _parser().parse_args(arguments)
    pipes = _Pipes()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="chapter10 serve: %(message)s")
    try:
        asyncio.run(_serve(options, pipes, lambda: random(16).hex()))
    except (CodedError, OSError) as error:
        sys.stderr.write(f"{getattr(error, 'code', 'machine')}: {getattr(error, 'reason', error)}\n")
        return _USAGE if isinstance(error, ValueError) else _MACHINE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return _FINE


class _Pipes:
    """The two ends of the connection, taken from where everybody else could reach them."""

    def __init__(self) -> None:
        self._source, self._target = os.dup(0), os.dup(1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._room = threading.Semaphore(_AHEAD)
        self._over: Callable[[], None] = lambda: None

    def start(self, take: Callable[[bytes | None], None], over: Callable[[], None]) -> None:
        """Hand each line to `take`, in the running loop, and call `over` there when nothing more can come or go."""
        loop = asyncio.get_running_loop()
        self._over = lambda: _call(loop, over)

        def taken(line: bytes | None) -> None:
            self._room.release()
            take(line)

        def read() -> None:
            for line in split_lines(self._read):
                self._room.acquire()
                _call(loop, lambda line=line: taken(line))  # type: ignore[misc]
            self.end()

        threading.Thread(target=read, name="input", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Write a message. It waits while the client does not read; a client that is gone ends the server."""
        data = write_message(message)
        try:
            while data:
                data = data[os.write(self._target, data) :]
        except OSError:
            self.end()

    def end(self) -> None:
        """Say that it is over; and whatever may still hold the process up does not for long."""
        last = threading.Timer(2 * DRAIN_SECONDS, os._exit, (_FINE,))
        last.daemon = True
        last.start()
        self._over()

    def _read(self) -> bytes:
        try:
            return os.read(self._source, _READ_BYTES)
        except OSError:
            return b""


async def _serve(options: argparse.Namespace, pipes: _Pipes, new_key: Callable[[], str]) -> None:
    over = asyncio.Event()
    session = Session(pipes.send, tasks=options.db is not None)
    pipes.start(session.receive, over.set)
    signal.signal(signal.SIGTERM, lambda *_: pipes.end())
    behind = "chapter10.companions.serving.door"  # in a thread: the greeting does not wait for it
    code = await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, behind)
    door = code.open_door(
        tools=options.tools,
        handlers=options.handlers,
        db=options.db,
        owner=options.owner,
        grants=options.grant,
        new_key=new_key,
    )
    try:
        session.open(door.offer, door.jobs)
        await over.wait()
        await session.drain(DRAIN_SECONDS)
    finally:
        door.close()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop is closed: it is over already
        pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chapter10 serve", description="Offer tools and jobs to an MCP client on standard input and output."
    )
    parser.add_argument("--tools", type=Path, metavar="FILE", help="definitions as tools/list gives them")
    parser.add_argument("--handlers", metavar="MODULE", help="a Python module with TOOLS, JOBS or functions")
    parser.add_argument("--db", type=Path, metavar="FILE", help="the store of the jobs")
    parser.add_argument("--owner", default="local", metavar="NAME", help="whose jobs they are (default: local)")
    parser.add_argument(
        "--grant", action="append", default=[], metavar="PERMISSION", help="what may be seen and called"
    )
    parser.add_argument("--servers", type=Path, metavar="FILE", help="other servers, as mcpServers lists them")
    parser.add_argument("--accept", action="append", default=[], metavar="NAME", help="accept a changed definition")
    return parser
