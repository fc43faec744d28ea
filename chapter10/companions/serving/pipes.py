"""The two descriptors of the protocol: taken away from everybody else, read in a thread, written a line at a time.

What is left in their place is an input that is at its end, and standard error. So a `print`, a library that writes to
descriptor 1, and a child that inherits both can neither break a message nor eat one.

A line is greeted in the thread that reads, which answers what needs nothing; the messages that are left are handed to
`take` in the event loop, once there is one. At the end of the input, when a client has gone, and on `end`, it is over:
`over` is called in the loop, and a timer ends the process should anything still hold it up after `LAST_SECONDS`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from chapter10.companions.serving.greeting import Greeter
from chapter10.companions.serving.messages import (
    Message,
    split_lines,
    write_message,
)

__all__ = ["LAST_SECONDS", "Pipes"]

LAST_SECONDS: Final = 20.0
"""After the end of the input nothing keeps the process for longer."""
_READ_BYTES: Final = 65_536
_AHEAD: Final = 64
"""Messages that are read before the ones in front of them were looked at."""

_Deliver = Callable[[Callable[[], None]], None]
"""Calls a function in the event loop."""


class Pipes:
    """The connection of one process. `greeter` answers what needs no tools. Raises `OSError`."""

    def __init__(self, greeter: Greeter) -> None:
        self.greeter = greeter
        self._source, self._target = os.dup(0), os.dup(1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._writing = threading.Lock()
        self._room = threading.Semaphore(_AHEAD)
        self._handing = threading.RLock()  # a signal may come while it is held
        self._deliver: _Deliver | None = None
        self._early: list[Callable[[], None]] = []  # as many as there is room for
        self._take: Callable[[Message], None] = lambda message: None
        self._over: Callable[[], None] = lambda: None
        threading.Thread(target=self._read, name="input", daemon=True).start()

    def open(self, deliver: _Deliver, take: Callable[[Message], None], over: Callable[[], None]) -> None:
        """Hand messages to `take` from now on, and say `over` when nothing more can come or go, both by `deliver`."""
        with self._handing:
            self._deliver, self._take, self._over = deliver, take, over
            for function in self._early:
                deliver(function)

    def send(self, message: dict[str, Any]) -> None:
        """Write a message. It waits while the client does not read; a client that is gone ends the server."""
        data = write_message(message)
        try:
            with self._writing:
                while data:
                    data = data[os.write(self._target, data) :]
        except OSError:
            self.end()

    def end(self) -> None:
        """Say that it is over."""
        last = threading.Timer(LAST_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()
        self._hand(lambda: self._over())

    def _read(self) -> None:
        for line in split_lines(self._chunk):
            message = self.greeter.greet(line, self.send)
            if message is not None:
                self._room.acquire()
                self._hand(partial(self._taken, message))
        self.end()

    def _hand(self, function: Callable[[], None]) -> None:
        with self._handing:
            if self._deliver is None:
                self._early.append(function)
            else:
                self._deliver(function)

    def _taken(self, message: Message) -> None:
        self._room.release()
        self._take(message)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._source, _READ_BYTES)
        except OSError:
            return b""
