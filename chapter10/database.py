"""One SQLite file, opened, written and closed by the same rules everywhere.

D1  Every write is one transaction that takes the write lock before its first read (`BEGIN IMMEDIATE`), so that what
    was read is still true when the write is made. A transaction that reads first and writes later fails at once when
    another process wrote in between, and no timeout helps it.
D2  A transaction is stored whole or not at all. After an error the caller sees the first error, and the next call on
    the same object works.
D3  A commit has reached the disk when the call returns (`synchronous=FULL`), in WAL mode where the file system has it
    and with the rollback journal where it has not.
D4  A broken machine looks different from a caller's mistake: `StoreError` with `store_busy` (may be tried again) or
    `store_unavailable` (read-only, full, no database, not ours, closed), the sqlite3 error as `__cause__`. A violated
    constraint is our own bug and comes out as the `sqlite3.IntegrityError` that it is, after the rollback.
D5  A file belongs to one kind of store (`application_id`) and has a version (`user_version`). An older version is
    upgraded in place, a newer one and a stranger's file are refused untouched.

It works from SQLite 3.34 up, without `RETURNING` and `STRICT`. It does not survive a disk that lies about having
written. A `Database` belongs to the thread that made it; while a transaction is open, whoever else wants one, another
task or the block itself, is refused (`second_owner`). SQLite's locks do not follow a fork: a process that was forked
while a file was open is refused that file (`forked`), so start children before, or by `spawn`. Who writes next is
SQLite's choice; `companions.work.turnstile` makes it fair. A process that is stopped within a transaction keeps the
lock until it goes on or ends: writers are told `store_busy`, in WAL mode readers go on, and its end stores nothing.
Source: the chapter's section on job state in the database (claims C10-150, C10-153, C10-154).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet, ref

from chapter10.canonical import CodedError
from chapter10.limits import is_seconds

__all__ = ["BUSY_SECONDS", "MAX_BUSY_SECONDS", "Database", "StoreError", "Transaction", "is_busy"]

BUSY_SECONDS: Final = 10.0  # how long a call waits for another process to let go of the write lock, by default
MAX_BUSY_SECONDS: Final = 24 * 60 * 60.0  # the longest such wait; SQLite counts it in milliseconds and in 32 bits
_WAL_LIMIT_BYTES: Final = 16 * 1024 * 1024
_JOURNAL_TRIES: Final = 100
# SQLITE_PROTOCOL: too many processes raced for the first lock of a WAL file; it passes, as the others do.
_BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_BROKEN: Final = (sqlite3.Error, UnicodeDecodeError)  # the second of a damaged name in an error of SQLite
_opened: Final[WeakSet[Database]] = WeakSet()
_inherited: Final[set[str]] = set()  # the paths that were open when this process was forked
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _inherited.update({each.path for each in _opened} - {":memory:"}))


class StoreError(CodedError, RuntimeError):
    """Raised when the machine under a store fails; nothing of the call was stored.

    (If it was the commit that broke off, the call is stored whole or not at all; repeating it tells.)
    `store_busy`: another process held the lock for the whole waiting time; the call may be repeated.
    `store_unavailable`: the file cannot be used as this store; `reason` says why, and `__cause__` where sqlite3 did.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.reason = reason


class Transaction:
    """`with database.write():` one `BEGIN IMMEDIATE` … `COMMIT`, or `ROLLBACK` on any error."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        if self._database._owner and self._database._owner():
            raise StoreError("store_unavailable", "second_owner")
        try:
            self._database._owner = ref(self)
            if self._database.connection.in_transaction:
                # Ctrl-C struck between a block and its `__exit__`; what that left open was never committed.
                self._database.connection.execute("ROLLBACK")
            self._begin()
        except BaseException as error:
            self._rollback(error)
            raise
        return self._database.connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._rollback(error)
            return
        try:
            self._database.connection.execute("COMMIT")
            self._database._owner = None
        except BaseException as failed:
            self._rollback(failed)
            raise

    def _begin(self) -> None:
        self._database.connection.execute("BEGIN IMMEDIATE")

    def _rollback(self, error: BaseException) -> None:
        """Take everything back; where the machine failed, raise the `StoreError` that says so."""
        self._database._owner = None
        with suppress(sqlite3.Error):  # rolled back already (a full disk), or closed: it must not hide the first error
            self._database.connection.execute("ROLLBACK")
        if isinstance(error, _BROKEN) and not isinstance(error, sqlite3.IntegrityError):
            raise _store_error(error) from error


class Database:
    """A SQLite file with a schema of its own; `connection` is the `sqlite3.Connection`.

    `path`: a file (`:memory:` gives a private one), the same one wherever the process goes later. `application_id`: a
    number that marks our kind of file. `migrations`: SQL scripts; the file's version is how many of them have run, each
    in one transaction with the number. `busy_seconds`: how long to wait for another process's lock, 0 to
    `MAX_BUSY_SECONDS`. Raises `StoreError` when the path cannot be opened or is not ours.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: int,
        migrations: Sequence[str],
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        if not is_seconds(busy_seconds, 0) or busy_seconds > MAX_BUSY_SECONDS:
            raise StoreError("store_unavailable", f"busy_seconds is not from 0 to {MAX_BUSY_SECONDS:.0f}")
        try:
            name = os.fsdecode(path)
            self.path: str = name if name in ("", ":memory:") else os.path.realpath(name)
        except (TypeError, ValueError, OSError) as error:  # a NUL in the name; a folder that is gone
            raise StoreError("store_unavailable", "not a path") from error
        if not name or self.path in _inherited:  # of no name SQLite would make a file and delete it at the end
            raise StoreError("store_unavailable", "forked" if name else "an empty path")
        self._process = os.getpid()
        self._owner: ref[Transaction] | None = None  # of the transaction that is open
        try:
            self._connection = sqlite3.connect(name, timeout=busy_seconds, isolation_level=None, cached_statements=256)
        except _BROKEN as error:
            raise _store_error(error) from error
        _opened.add(self)
        try:
            self._prepare(application_id, migrations)
        except BaseException as error:
            self.close()
            if isinstance(error, _BROKEN):
                raise _store_error(error) from error
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """Return the connection, for statements of one's own. Raises `StoreError` (`forked`)."""
        if os.getpid() != self._process:
            raise StoreError("store_unavailable", "forked")
        return self._connection

    def write(self) -> Transaction:
        """Return the context manager of one durable transaction; it yields the connection. Raises `StoreError`."""
        return Transaction(self)

    def row(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """Return the first row of a query, or None. Raises `StoreError`."""
        try:
            return self.connection.execute(sql, parameters).fetchone()
        except _BROKEN as error:
            raise _store_error(error) from error

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query, which says itself how many there may be. Raises `StoreError`."""
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except _BROKEN as error:
            raise _store_error(error) from error

    def close(self) -> None:
        """Close the connection; a second close does nothing. Raises `StoreError` in another thread."""
        try:
            self.connection.close()
        except _BROKEN as error:
            raise _store_error(error) from error
        _opened.discard(self)

    def _prepare(self, application_id: int, migrations: Sequence[str]) -> None:
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute("PRAGMA foreign_keys=ON")
        if self._needs_migration(application_id, len(migrations)):
            self._choose_journal()
            self._migrate(application_id, migrations)
        self.connection.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT_BYTES}")

    def _needs_migration(self, application_id: int, newest: int) -> bool:
        """Look before touching: is this file ours, and how old is it?"""
        version, owner = self._pragma("user_version"), self._pragma("application_id")
        if owner == 0 and version == 0:
            tables = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            # Another process may have made the file since the look at the numbers; then it has ours now.
            if tables and self._pragma("application_id") != application_id:
                raise StoreError("store_unavailable", "the file holds tables that are not ours")
        elif owner != application_id:
            raise StoreError("store_unavailable", "the file belongs to another kind of store")
        if version > newest:
            raise StoreError("store_unavailable", f"the file has version {version}, newer than {newest}")
        return bool(version < newest)

    def _choose_journal(self) -> None:
        """Ask for WAL, once in a file's life; a file system without shared memory keeps the rollback journal."""
        for _ in range(_JOURNAL_TRIES):
            try:
                self.connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            with self.write():  # SQLite does not wait above: of several that open a new file, the refused wait here
                pass

    def _migrate(self, application_id: int, migrations: Sequence[str]) -> None:
        with self.write() as connection:
            # Another process may have migrated while this one waited for the lock.
            if not self._needs_migration(application_id, len(migrations)):
                return
            for script in migrations[self._pragma("user_version") :]:
                for statement in _statements(script):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id={application_id}")
            connection.execute(f"PRAGMA user_version={len(migrations)}")

    def _pragma(self, name: str) -> int:
        return int(self.connection.execute(f"PRAGMA {name}").fetchone()[0])


def _statements(script: str) -> list[str]:
    """Split a script at the semicolons that end a statement (`executescript` would commit first)."""
    statements, current = [], ""
    for piece in script.split(";"):
        current += piece + ";"
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return [statement for statement in statements if statement.strip() != ";"]


def is_busy(error: BaseException) -> bool:
    """Say whether another process held a lock that this statement wanted."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _BUSY_CODES


def _store_error(error: BaseException) -> StoreError:
    if is_busy(error):
        return StoreError("store_busy", "another process held the lock for the whole waiting time")
    return StoreError("store_unavailable", str(error))
