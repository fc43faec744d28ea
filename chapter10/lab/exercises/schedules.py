"""Every order of two workers over two real connections, and the shortest one that goes wrong.

Between any two statements of one worker the other may run. With few statements there are few orders, so
all of them are tried and nothing is left to chance: no threads, no sleeping.

To stop a worker between two statements its function is *replayed*: it is called again from its start,
each statement that it has made already is answered from the record, one more is made for real, and at
the next it is stopped. That works for code whose statements depend on its arguments and on what it read,
and on nothing else; a function that does something else the second time is told so.

A statement that meets the other's lock is not made; the worker waits until the other has ended its
transaction. If neither can go on, the order is a deadlock, which is as bad as a wrong result.

Bounds: `MAX_STATEMENTS` a worker, `MAX_ORDERS` in all. Source: claims C10-297, C10-309.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chapter10.lab.console.textio import Event

__all__ = ["MAX_ORDERS", "MAX_STATEMENTS", "WORKERS", "Answer", "Connection", "Order", "OrdersError", "every_order"]

WORKERS: Final = ("worker A", "worker B")
MAX_STATEMENTS: Final = 12
"""Statements that one worker may make."""
MAX_ORDERS: Final = 2_000

_MAX_SQL: Final = 200
"""Characters of a statement that are shown; a longer one is cut, and says so."""


class OrdersError(Exception):
    """Raised for a function that cannot be stopped and replayed; the text says why, for a reader."""


class _Stop(BaseException):
    """Leaves the reader's function at its next statement; no `except Exception` of its own meets it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave: all of its rows, and how many rows it changed (-1 for a query)."""

    rows: tuple[tuple[Any, ...], ...]
    rowcount: int

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return list(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)


@dataclass(slots=True)
class Connection:
    """What a worker's function gets: a connection in autocommit mode that can be stopped at each statement."""

    _database: sqlite3.Connection
    _record: list[tuple[str, Answer | sqlite3.Error]] = field(default_factory=list)
    _place: int = 0
    _may_run: bool = False
    _ran: str | None = None
    _blocked: str | None = None
    _stopped: bool = False

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Answer:
        """Run one statement. Errors of SQLite are raised, but for a lock, at which the worker waits."""
        statement = " ".join(sql.split())
        if self._stopped:
            raise _Stop
        if self._place < len(self._record):
            made, answer = self._record[self._place]
            if made != statement:
                raise OrdersError(f"called again it makes another statement: {_cut(statement)}")
        elif self._may_run:
            self._may_run = False
            answer = self._make(statement, sql, parameters)
            self._record.append((statement, answer))
        else:
            self._stopped = True
            raise _Stop
        self._place += 1
        if isinstance(answer, sqlite3.Error):
            raise answer
        return answer

    def _make(self, statement: str, sql: str, parameters: Sequence[Any]) -> Answer | sqlite3.Error:
        if len(self._record) >= MAX_STATEMENTS:
            raise OrdersError(f"more than {MAX_STATEMENTS} statements")
        try:
            cursor = self._database.execute(sql, tuple(parameters))
            answer: Answer | sqlite3.Error = Answer(tuple(map(tuple, cursor.fetchall())), cursor.rowcount)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._blocked = statement
                self._stopped = True
                raise _Stop from None
            answer = error
        except sqlite3.Error as error:
            answer = error
        self._ran = statement
        return answer

    def _rewind(self, may_run: bool) -> None:
        self._place, self._may_run, self._ran, self._blocked, self._stopped = 0, may_run, None, None, False


@dataclass(frozen=True, slots=True)
class Order:
    """One order: its events, what each worker's function returned, and what the check made of it.

    `wrong`: empty if it is fine, else what went wrong in a few words.
    """

    events: tuple[Event, ...]
    returned: tuple[Any, ...]
    wrong: str = ""


class _Worker:
    def __init__(self, name: str, database: sqlite3.Connection, call: Callable[[Connection], Any]) -> None:
        self.name = name
        self.database = database
        self._call = call
        self._connection = Connection(database)
        self.done = False
        self.returned: Any = None
        self.waits = False

    def step(self) -> tuple[str, str]:
        """Let the worker make one more statement; return it and what came of it. Sets `done` and `waits`."""
        connection = self._connection
        connection._rewind(may_run=True)
        try:
            self.returned = self._call(connection)
            self.done = True
        except _Stop:
            pass
        if self.done and connection._stopped:
            raise OrdersError("a bare `except:` catches everything, also what stops the worker")
        if connection._blocked is not None:
            self.waits = True
            return connection._blocked, "waits for the lock"
        if connection._ran is None:
            return "returns", ""
        answer = connection._record[-1][1]
        return connection._ran, _summary(answer)


def every_order(
    prepare: Callable[[sqlite3.Connection], object],
    calls: Sequence[Callable[[Connection], Any]],
    judge: Callable[[sqlite3.Connection, tuple[Any, ...]], str],
) -> tuple[int, Order | None]:
    """Try every order of two workers; return how many there are, and the shortest bad one or None.

    `prepare(database)` sets the content before each order. `calls`: one function a worker. `judge`
    gets a connection and what the functions returned, and says what is wrong, or "".
    Raises `OrdersError`, and whatever a reader's function raises.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chapter10-"))
        path = Path(folder, "orders.db")
        databases = [
            stack.enter_context(closing(sqlite3.connect(path, timeout=0, isolation_level=None))) for _ in range(3)
        ]
        for database in databases:
            database.execute("PRAGMA synchronous=OFF")  # nothing here has to survive
        shortest: Order | None = None
        count = 0
        choices: list[tuple[int, int]] = []
        while True:
            if count >= MAX_ORDERS:
                raise OrdersError(f"more than {MAX_ORDERS} orders")
            count += 1
            prepare(databases[2])
            workers = [
                _Worker(name, database, call)
                for name, database, call in zip(WORKERS, databases[:2], calls, strict=True)
            ]
            order, choices = _one_order(workers, [chosen for chosen, _ in choices], databases[2], judge)
            if order.wrong and (shortest is None or len(order.events) < len(shortest.events)):
                shortest = order
            while choices and choices[-1][0] + 1 >= choices[-1][1]:
                choices.pop()
            if not choices:
                return count, shortest
            choices[-1] = (choices[-1][0] + 1, choices[-1][1])


def _one_order(
    workers: Sequence[_Worker],
    prefix: Sequence[int],
    database: sqlite3.Connection,
    judge: Callable[[sqlite3.Connection, tuple[Any, ...]], str],
) -> tuple[Order, list[tuple[int, int]]]:
    """Run one order: the choices of `prefix`, then always the first worker that can go on."""
    choices: list[tuple[int, int]] = []
    events: list[Event] = []
    try:
        while not all(worker.done for worker in workers):
            able = [worker for worker in workers if not worker.done and not worker.waits]
            if not able:
                wrong = "neither can go on"
                break
            chosen = prefix[len(choices)] if len(choices) < len(prefix) else 0
            choices.append((chosen, len(able)))
            worker = able[chosen]
            what, detail = worker.step()
            if worker.done:
                detail = f"{detail}; returns {worker.returned!r}".removeprefix("; ")
            events.append(Event(len(events), worker.name, _cut(what), detail))
            if worker.done and worker.database.in_transaction:
                wrong = f"{worker.name} leaves its transaction open"
                break
            if not worker.database.in_transaction:
                for other in workers:
                    other.waits = other.waits and other is worker
        else:
            wrong = judge(database, tuple(worker.returned for worker in workers))
    finally:
        for worker in workers:
            if worker.database.in_transaction:
                worker.database.execute("ROLLBACK")
    if wrong and events:
        last = events[-1]
        events[-1] = Event(last.t, last.actor, last.what, f"{last.detail}   <- {wrong}".strip())
    return Order(tuple(events), tuple(worker.returned for worker in workers), wrong), choices


def _cut(statement: str) -> str:
    return statement if len(statement) <= _MAX_SQL else statement[: _MAX_SQL - 3] + "..."


def _summary(answer: Answer | sqlite3.Error) -> str:
    if isinstance(answer, sqlite3.Error):
        return f"{type(answer).__name__}: {answer}"
    if answer.rows:
        return ", ".join(map(str, answer.rows[0]))
    return "" if answer.rowcount < 0 else f"{answer.rowcount} changed"
