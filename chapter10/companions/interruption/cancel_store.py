"""Cancel across processes: a durable row, addressed by trace and span, that every later step looks at.

Two processes share no object, but they share a database and a trace id. So a cancel is a *row* first, and whatever is
sent around afterwards only says "look now". The row also covers work that does not exist yet: a child that is
registered after the cancel is born cancelled.

The words
    trace       one piece of business; `epoch` counts its runs, so that an old cancel does not hit a new run
    span        one invocation of a tool; `parent_span_id` says who called it, at run time and to any depth
    cancel      a row for a whole trace (span '') or for a span and everything below it
    cancelled   the column means *requested* (X-19); the state `cancelled` means that it has stopped
    compensation  an invocation that undoes another; no cancel touches it, nor what it calls
    fence       rises with each claim; a result counts only with the fence that holds now

       register          claim              finish
    o ----------> queued ----------> running ----------> succeeded
                    |                 |   |  fail
             cancel |          cancel |   +------------> failed
                    v        + confirm v
                 cancelled <--------- (requested)

C1  The cancel row is committed before anything is sent or marked. It is written once an address, however often asked.
C2  It is looked at in the transaction that registers, claims, takes over, finishes or fails an invocation.
C3  Queued work is cancelled at once. Running work gets the request and confirms, or its next step does.
C4  A final state never changes. Who commits first wins: a cancel that comes after a success says `already_done`, and
    what is left is to compensate, once.
C5  A compensation cannot be cancelled; the database itself refuses such a row. The same holds for what it calls, also
    if that was registered before it: then it is adopted, unless a cancel was first.
C6  One clock, the store's, dates cancels; times are whole seconds of UTC.
C7  A holder that gave a lease is looked for when it is over (`overdue`); nobody is replaced by the clock alone. A lease
    never ends later than a lease from now, wherever the clock was when it began.
C8  A trace is forgotten (`prune`) when everything in it has ended, long ago, and its cancels with it.

What it does not do: it runs nothing, stops no process (see `interruption.process_stop`) and undoes no effect elsewhere.
Source: the document on interruption, sections 3, 4 and 8 (claims I4-003, I4-021, I4-030, I4-087 to I4-094, I4-099;
X-19, X-56 to X-58).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from chapter10.canonical import CodedError
from chapter10.companions.basics.arguments import Arguments
from chapter10.database import BUSY_SECONDS, Database

__all__ = [
    "APPLICATION_ID",
    "FINAL_STATES",
    "MAX_LEASE_S",
    "MAX_LISTED",
    "MAX_RESULT_BYTES",
    "MAX_TEXT",
    "MIGRATIONS",
    "STATES",
    "TOPIC",
    "TRACE_EVENTS",
    "CancelReceipt",
    "CancelStore",
    "CancelStoreError",
    "Invocation",
    "LostInvocation",
    "State",
]

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
STATES: Final[tuple[State, ...]] = ("queued", "running", "succeeded", "failed", "cancelled")
FINAL_STATES: Final[tuple[State, ...]] = ("succeeded", "failed", "cancelled")

TOPIC: Final = "tool.cancel"
"""Where the message about a cancel goes."""
TRACE_EVENTS: Final = ("initiate", "input", "output", "cancel", "compensation")
"""The names under which a trace shows a tool call, whatever carries the trace (claim I4-096)."""

MAX_TEXT: Final = 200
"""Characters of an id, a tool name, a reason or an error code; at least one."""
MAX_RESULT_BYTES: Final = 1024 * 1024
"""Bytes of the canonical form of a result."""
MAX_LISTED: Final = 1000
"""The most rows that one call returns or names."""

MAX_LEASE_S: Final = 10 * 366 * 86_400
"""The longest lease or age, in seconds."""

_MAX_WHOLE: Final = 2**63 - 1
"""The largest number that SQLite holds."""

APPLICATION_ID: Final = 0x43483143  # "CH1C"

MIGRATIONS: Final = (
    """
    CREATE TABLE traces (
        trace_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL            -- the run that counts now; a trace without a row is in its first
    ) WITHOUT ROWID;
    CREATE TABLE cancels (
        cancel_id INTEGER PRIMARY KEY AUTOINCREMENT,
        trace_id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        span_id TEXT NOT NULL,            -- with all that is below it; '' is the whole trace
        reason TEXT NOT NULL,
        cancelled_at INTEGER NOT NULL,
        CONSTRAINT one_cancel_per_address UNIQUE (trace_id, epoch, span_id)
    );
    CREATE TABLE tool_invocations (
        trace_id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        span_id TEXT NOT NULL,
        parent_span_id TEXT,              -- NULL: the root of the trace
        tool TEXT NOT NULL,
        compensation INTEGER NOT NULL,
        state TEXT NOT NULL,
        fence INTEGER NOT NULL,           -- the number of claims so far
        cancelled INTEGER NOT NULL,       -- a stop was requested
        cancelled_at INTEGER,
        result TEXT,                      -- canonical JSON
        error TEXT,
        CONSTRAINT one_row_per_span PRIMARY KEY (trace_id, epoch, span_id),
        CONSTRAINT state_is_known CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
        CONSTRAINT running_means_claimed CHECK (state NOT IN ('running', 'succeeded') OR fence >= 1),
        CONSTRAINT success_has_a_result CHECK ((state = 'succeeded') = (result IS NOT NULL)),
        CONSTRAINT request_has_a_time CHECK (cancelled IN (0, 1) AND (cancelled = 1) = (cancelled_at IS NOT NULL)),
        CONSTRAINT stopped_because_requested CHECK (state <> 'cancelled' OR cancelled = 1),
        CONSTRAINT compensation_is_exempt CHECK (compensation = 0 OR cancelled = 0)
    ) WITHOUT ROWID;
    CREATE INDEX invocations_by_parent ON tool_invocations (trace_id, epoch, parent_span_id);
    CREATE INDEX invocations_by_state ON tool_invocations (trace_id, epoch, state);
    """,
    """
    ALTER TABLE tool_invocations ADD COLUMN lease_until INTEGER;               -- if the holder gave a lease
    ALTER TABLE tool_invocations ADD COLUMN lease INTEGER;                     -- how long that is
    ALTER TABLE tool_invocations ADD COLUMN touched_at INTEGER NOT NULL DEFAULT 0;  -- of the last change of state
    ALTER TABLE traces ADD COLUMN touched_at INTEGER NOT NULL DEFAULT 0;
    UPDATE tool_invocations SET touched_at = CAST(strftime('%s', 'now') AS INTEGER);  -- nobody knows: count from now
    UPDATE traces SET touched_at = CAST(strftime('%s', 'now') AS INTEGER);
    CREATE INDEX invocations_by_lease ON tool_invocations (lease_until) WHERE state = 'running';
    """,
)


class CancelStoreError(CodedError, ValueError):
    """Raised when a request cannot be granted; nothing was changed.

    `bad_input`: with a `reason`. `not_found`: no such invocation. `span_conflict`: the span stands for another call.
    `not_cancelled`: no stop was requested. `not_done`: there is nothing to compensate. `wrong_thread`: asked in another
    thread, of a store that is not in a file of its own.
    """

    reason: str | None

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.reason = reason


_arguments: Final = Arguments(lambda reason: CancelStoreError("bad_input", reason), max_text=MAX_TEXT)
_text: Final = _arguments.text
_whole: Final = _arguments.whole


class LostInvocation(CancelStoreError):
    """Raised when the fence is not the one that holds: `stale_fence`. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__("stale_fence")


class Invocation(NamedTuple):
    """One row of `tool_invocations`."""

    trace_id: str
    epoch: int
    span_id: str
    parent_span_id: str | None
    tool: str
    compensation: bool
    state: State
    fence: int
    cancelled: bool
    cancelled_at: int | None
    result: Any
    error: str | None


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """What a cancel did; `cancel_id` is the same however often the same address is cancelled."""

    cancel_id: int
    trace_id: str
    epoch: int
    span_id: str | None
    """The top of the subtree, None for the whole trace."""
    reason: str
    cancelled_at: int
    stopped: int
    """Queued invocations that are cancelled now."""
    requested: int
    """Running ones that were asked to stop just now."""
    already_done: tuple[str, ...]
    """Spans that had succeeded: nothing to cancel, only to compensate. At most `MAX_LISTED`."""

    def message(self) -> dict[str, Any]:
        """Return the body of the message about it, a JSON object for the topic `tool.cancel`.

        `trace_id`, `parent_span_id` (the top of the subtree, null for the whole trace), `ts`, `reason`, and `cancel_id`
        and `epoch`, so that an old message is known as one. Source: claims I4-088, I4-091, X-58.
        """
        return {
            "trace_id": self.trace_id,
            "parent_span_id": self.span_id,
            "ts": self.cancelled_at,
            "reason": self.reason,
            "cancel_id": self.cancel_id,
            "epoch": self.epoch,
        }


_COLUMNS: Final = (
    "trace_id, epoch, span_id, parent_span_id, tool, compensation, state, fence, cancelled, cancelled_at, result, error"
)
_AT: Final = "trace_id = ? AND epoch = ?"
_COVERED: Final = """
    WITH RECURSIVE up (span_id) AS (
        SELECT ?
        UNION
        SELECT i.parent_span_id FROM tool_invocations i JOIN up ON i.span_id = up.span_id
        WHERE i.trace_id = ? AND i.epoch = ? AND i.compensation = 0 AND i.parent_span_id IS NOT NULL)
    SELECT reason FROM cancels
    WHERE trace_id = ? AND epoch = ? AND (span_id = '' OR span_id IN (SELECT span_id FROM up))
    ORDER BY cancel_id LIMIT 1
"""
"""The first cancel that covers a span: of the trace, of itself, or of any of its parents up to a compensation, past
which no cancel reaches. `UNION` ends a circle."""
_BELOW: Final = """
    WITH RECURSIVE below (span_id) AS (
        SELECT ?
        UNION
        SELECT i.span_id FROM tool_invocations i JOIN below ON i.parent_span_id = below.span_id
        WHERE i.trace_id = ? AND i.epoch = ? AND i.compensation = 0)
    SELECT span_id FROM below
"""
"""A span and everything that it called, to any depth, without compensations."""
_ADOPT: Final = (
    f"UPDATE tool_invocations SET compensation = 1 WHERE {_AT} AND span_id IN ({_BELOW})"
    " AND cancelled = 0 AND state IN ('queued', 'running')"
)
"""What a compensation calls was registered before it: exempt from now on, unless a cancel or its end was first."""

_DATED: Final = (("tool_invocations", "touched_at"), ("cancels", "cancelled_at"), ("traces", "touched_at"))
_ENDED: Final = (
    "SELECT trace_id FROM ("
    + " UNION ALL ".join(f"SELECT trace_id, {column} AS at FROM {table}" for table, column in _DATED)
    + ") AS dated GROUP BY trace_id HAVING max(at) <= ? AND NOT EXISTS (SELECT 1 FROM tool_invocations AS open"
    " WHERE open.trace_id = dated.trace_id AND open.state IN ('queued', 'running')) ORDER BY max(at), trace_id LIMIT ?"
)
"""Traces in which nothing is open and nothing was written since a moment."""


class CancelStore:
    """Cancels and invocations in one SQLite database; see the module.

    `database`: opened by the caller, with `MIGRATIONS` among its own, so that a result and its business rows share one
    transaction; or use `CancelStore.open(path)`. `clock`: seconds of UTC. It belongs to the thread that made it; only
    `cancel_reason` of a store in a file of its own answers in others too.

    Every method may raise `StoreError` besides what it names. `epoch=None` means the run that counts now.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self.database = self._database = database
        self._clock = clock
        self._thread = threading.get_ident()
        self._elsewhere: Callable[[], CancelStore] | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
    ) -> CancelStore:
        """Return a store in a file of its own, made if absent."""
        database = Database(path, application_id=APPLICATION_ID, migrations=MIGRATIONS, busy_seconds=busy_seconds)
        store = cls(database, clock=clock)
        if database.path != ":memory:":
            store._elsewhere = partial(cls.open, database.path, clock=clock, busy_seconds=busy_seconds)
        return store

    def __enter__(self) -> CancelStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; a second close does nothing."""
        self._database.close()

    # Who asks for a stop ---------------------------------------------------------------------

    def cancel(
        self,
        trace_id: str,
        span_id: str | None = None,
        *,
        reason: str = "parent_cancelled",
        epoch: int | None = None,
    ) -> CancelReceipt:
        """Cancel a trace, or a span and everything below it, and return what that did.

        The row stands for invocations that are registered later too. Repeating it writes no second row.
        Raises `CancelStoreError`. Source: claims I4-021, I4-089, I4-092, X-57.
        """
        _text(trace_id, "trace_id")
        _text(reason, "reason")
        if span_id is not None:
            _text(span_id, "span_id")
        _check_epoch(epoch)
        with self._database.write() as db:
            run, now = self._epoch(db, trace_id, epoch), self._now()
            db.execute(
                "INSERT OR IGNORE INTO cancels (trace_id, epoch, span_id, reason, cancelled_at) VALUES (?, ?, ?, ?, ?)",
                (trace_id, run, span_id or "", reason, now),
            )
            cancel_id, reason, at = db.execute(
                f"SELECT cancel_id, reason, cancelled_at FROM cancels WHERE {_AT} AND span_id = ?",
                (trace_id, run, span_id or ""),
            ).fetchone()
            where = f"{_AT} AND compensation = 0"
            values: tuple[object, ...] = (trace_id, run)
            if span_id is not None:
                where += f" AND span_id IN ({_BELOW})"
                values += (span_id, trace_id, run)
            stopped = db.execute(
                f"UPDATE tool_invocations SET state = 'cancelled', cancelled = 1, cancelled_at = ?"
                f" WHERE {where} AND state = 'queued'",
                (now, *values),
            ).rowcount
            requested = db.execute(
                f"UPDATE tool_invocations SET cancelled = 1, cancelled_at = ?"
                f" WHERE {where} AND state = 'running' AND cancelled = 0",
                (now, *values),
            ).rowcount
            done = db.execute(
                f"SELECT span_id FROM tool_invocations WHERE {where} AND state = 'succeeded' ORDER BY span_id LIMIT ?",
                (*values, MAX_LISTED),
            ).fetchall()
        return CancelReceipt(
            cancel_id, trace_id, run, span_id, reason, at, stopped, requested, tuple(row[0] for row in done)
        )

    def new_run(self, trace_id: str) -> int:
        """Start another run of a trace and return its epoch; cancels of earlier runs do not reach it."""
        _text(trace_id, "trace_id")
        with self._database.write() as db:
            epoch = self._epoch(db, trace_id, None) + 1
            db.execute("INSERT OR REPLACE INTO traces VALUES (?, ?, ?)", (trace_id, epoch, self._now()))
        return epoch

    def compensate(
        self, trace_id: str, span_id: str, tool: str, *, epoch: int | None = None
    ) -> tuple[Invocation, bool]:
        """Register the one invocation that undoes a succeeded one; return it and whether it is new.

        Its span is `{span_id}:compensation`. Raises `CancelStoreError` (`not_found`, `not_done`, `bad_input`).
        Source: claim I4-094.
        """
        _check_address(trace_id, span_id, epoch)
        _text(tool, "tool")
        undo = _text(f"{span_id}:compensation", "the span of the compensation")
        with self._database.write() as db:
            row = self._find(db, trace_id, self._epoch(db, trace_id, epoch), span_id)
            if row.state != "succeeded":
                raise CancelStoreError("not_done")
            return self._register(db, trace_id, row.epoch, undo, span_id, tool, True)

    # Who does the work -----------------------------------------------------------------------

    def register(
        self,
        trace_id: str,
        span_id: str,
        *,
        tool: str,
        parent_span_id: str | None = None,
        epoch: int | None = None,
    ) -> Invocation:
        """Write down an invocation before it starts and return its row: `queued`, or `cancelled` from birth.

        What a compensation calls is a compensation too, whichever was registered first (C5). Repeating it returns the
        row as it is by now.
        Raises `CancelStoreError` (`span_conflict`, `bad_input`). Source: claims I4-003, I4-088.
        """
        _check_address(trace_id, span_id, epoch)
        _text(tool, "tool")
        if parent_span_id is not None:
            _text(parent_span_id, "parent_span_id")
        with self._database.write() as db:
            run = self._epoch(db, trace_id, epoch)
            return self._register(db, trace_id, run, span_id, parent_span_id, tool, False)[0]

    def claim(self, trace_id: str, span_id: str, *, epoch: int | None = None, lease_s: int | None = None) -> int | None:
        """Take a queued invocation and return its fence; None if it is cancelled, taken or over.

        `lease_s`: seconds after which `overdue` names the holder, unless it says `renew`; None: never.
        Raises `CancelStoreError` (`not_found`, `bad_input`).
        """
        return self._take(trace_id, span_id, epoch, None, lease_s)

    def take_over(
        self, trace_id: str, span_id: str, fence: int, *, epoch: int | None = None, lease_s: int | None = None
    ) -> int | None:
        """Take a running invocation whose holder is known to be gone, and return the new fence.

        None if it is cancelled (and it has stopped now) or over. Raises `CancelStoreError`, `LostInvocation`.
        """
        return self._take(trace_id, span_id, epoch, _whole(fence, "fence", 1, _MAX_WHOLE), lease_s)

    def renew(self, trace_id: str, span_id: str, fence: int, lease_s: int, *, epoch: int | None = None) -> State:
        """Let the lease end `lease_s` seconds from now; return the state: `running`, or how it has ended.

        `cancelled`: a stop was requested and nothing of the work counts any more. Raises as `confirm` does, without
        `not_cancelled`.
        """
        _whole(lease_s, "lease_s", 1, MAX_LEASE_S)
        with self._held(trace_id, span_id, fence, epoch) as db:
            row = self._stopped_or(db, trace_id, span_id, fence, epoch)
            if row.state == "running":
                values = (lease_s, self._now() + lease_s + 1, trace_id, row.epoch, span_id)
                db.execute(
                    f"UPDATE tool_invocations SET lease = ?, lease_until = ? WHERE {_AT} AND span_id = ?", values
                )
            return row.state

    def cancel_reason(self, trace_id: str, span_id: str | None = None, *, epoch: int | None = None) -> str | None:
        """Return why a span (or, with None, the trace) is cancelled, or None. Writes nothing: a worker's checkpoint.

        A span need not be registered. In another thread it looks through a connection of its own, for this one look.
        Raises `CancelStoreError` (`bad_input`, `wrong_thread`).
        """
        _text(trace_id, "trace_id")
        if span_id is not None:
            _text(span_id, "span_id")
        _check_epoch(epoch)
        if threading.get_ident() != self._thread:
            if self._elsewhere is None:
                raise CancelStoreError("wrong_thread")
            with self._elsewhere() as store:
                return store.cancel_reason(trace_id, span_id, epoch=epoch)
        at = (trace_id, self._epoch_seen(trace_id, epoch))
        if span_id is None:
            row = self._database.row(f"SELECT reason FROM cancels WHERE {_AT} AND span_id = ''", at)
        else:
            exempt = self._database.row(
                f"SELECT compensation FROM tool_invocations WHERE {_AT} AND span_id = ?", (*at, span_id)
            )
            if exempt is not None and exempt[0]:
                return None
            row = self._database.row(_COVERED, (span_id, *at, *at))
        return None if row is None else str(row[0])

    def finish(
        self,
        trace_id: str,
        span_id: str,
        fence: int,
        result: object,
        *,
        epoch: int | None = None,
        write: Callable[[sqlite3.Connection], None] | None = None,
    ) -> State:
        """Store a result if it still counts, and return the state that the invocation then has.

        `succeeded`: stored now or before. `cancelled`: the cancel was first; nothing is stored. `write`: called with
        the connection in the same transaction, only when the result is stored now; an error in it undoes both.
        Raises `LostInvocation`, `CancelStoreError` (`not_found`, `bad_input`).
        """
        text = _arguments.json(result, "result", MAX_RESULT_BYTES)
        with self._held(trace_id, span_id, fence, epoch) as db:
            row = self._stopped_or(db, trace_id, span_id, fence, epoch)
            if row.state != "running":
                return row.state
            if write is not None:
                write(db)
            self._move(db, row, "succeeded", result=text)
            return "succeeded"

    def fail(self, trace_id: str, span_id: str, fence: int, code: str, *, epoch: int | None = None) -> State:
        """End an invocation that failed, with an error code; return its state (`cancelled` if that was requested).

        Raises as `finish` does.
        """
        _text(code, "code")
        with self._held(trace_id, span_id, fence, epoch) as db:
            row = self._stopped_or(db, trace_id, span_id, fence, epoch)
            if row.state != "running":
                return row.state
            self._move(db, row, "failed", error=code)
            return "failed"

    def confirm(self, trace_id: str, span_id: str, fence: int, *, epoch: int | None = None) -> State:
        """Say that the work has stopped as requested, and return the state: `cancelled`, or how it had ended.

        Raises `LostInvocation`, `CancelStoreError` (`not_cancelled`, `not_found`, `bad_input`).
        """
        with self._held(trace_id, span_id, fence, epoch) as db:
            row = self._stopped_or(db, trace_id, span_id, fence, epoch)
            if row.state == "running":
                raise CancelStoreError("not_cancelled")
            return row.state

    # Looking ---------------------------------------------------------------------------------

    def get(self, trace_id: str, span_id: str, *, epoch: int | None = None) -> Invocation:
        """Return an invocation, its result as a copy. Raises `CancelStoreError` (`not_found`, `bad_input`)."""
        _check_address(trace_id, span_id, epoch)
        row = self._database.row(
            f"SELECT {_COLUMNS} FROM tool_invocations WHERE {_AT} AND span_id = ?",
            (trace_id, self._epoch_seen(trace_id, epoch), span_id),
        )
        if row is None:
            raise CancelStoreError("not_found")
        return _invocation(row)

    def invocations(
        self, trace_id: str, *, state: State | None = None, epoch: int | None = None, limit: int = MAX_LISTED
    ) -> list[Invocation]:
        """Return a trace's invocations, in the order of their spans; `state` picks some. Claim I4-089.

        Raises `CancelStoreError` (`bad_input`).
        """
        _text(trace_id, "trace_id")
        _check_epoch(epoch)
        if state is not None and (type(state) is not str or state not in STATES):
            raise CancelStoreError("bad_input", "not a state")
        _whole(limit, "limit", 1, MAX_LISTED)
        run = self._epoch_seen(trace_id, epoch)
        where, values = (_AT, (trace_id, run)) if state is None else (f"{_AT} AND state = ?", (trace_id, run, state))
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM tool_invocations WHERE {where} ORDER BY span_id LIMIT ?", (*values, limit)
        )
        return [_invocation(row) for row in rows]

    # Upkeep ----------------------------------------------------------------------------------

    def overdue(self, limit: int = MAX_LISTED) -> list[Invocation]:
        """Return running invocations of all traces whose lease is over, the oldest lease first.

        Whether a holder is gone is for the caller to find out, who then says `take_over` with the row's fence. A lease
        that would end later than a lease from now, since the clock was ahead when it began, ends a lease from now.
        Raises `CancelStoreError` (`bad_input`).
        """
        _whole(limit, "limit", 1, MAX_LISTED)
        with self._database.write() as db:
            now = self._now()
            db.execute(
                "UPDATE tool_invocations SET lease_until = ? + lease + 1"
                " WHERE state = 'running' AND lease_until > ? + lease + 1",
                (now, now),
            )
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM tool_invocations WHERE state = 'running' AND lease_until <= ?"
                " ORDER BY lease_until, trace_id, epoch, span_id LIMIT ?",
                (now, limit),
            ).fetchall()
        return [_invocation(row) for row in rows]

    def prune(self, older_than_s: int, limit: int = MAX_LISTED) -> int:
        """Forget traces in which all has ended and nothing was written for `older_than_s` seconds; return how many.

        Their cancels and runs are forgotten too: choose more than a late message or a late step can take. What was
        written by a clock that was ahead counts from now. Raises `CancelStoreError` (`bad_input`).
        """
        _whole(older_than_s, "older_than_s", 1, MAX_LEASE_S)
        _whole(limit, "limit", 1, MAX_LISTED)
        with self._database.write() as db:
            now = self._now()
            for table, column in _DATED:
                db.execute(f"UPDATE {table} SET {column} = :now WHERE {column} > :now", {"now": now})
            traces = db.execute(_ENDED, (now - older_than_s, limit)).fetchall()
            for table, _ in _DATED:
                db.executemany(f"DELETE FROM {table} WHERE trace_id = ?", traces)
        return len(traces)

    # The guards and the writes ---------------------------------------------------------------

    def _register(
        self,
        db: sqlite3.Connection,
        trace_id: str,
        epoch: int,
        span_id: str,
        parent: str | None,
        tool: str,
        compensation: bool,
    ) -> tuple[Invocation, bool]:
        above = None if parent is None else self._look(db, trace_id, epoch, parent)
        inherited = above is not None and above.compensation
        compensation = compensation or inherited
        known = self._look(db, trace_id, epoch, span_id)
        if known is not None:
            # What was cancelled before its parent turned out to be a compensation is no compensation itself.
            same_kind = known.compensation == compensation or inherited
            if (known.parent_span_id, known.tool) != (parent, tool) or not same_kind:
                raise CancelStoreError("span_conflict")
            return known, False
        at = (trace_id, epoch)
        db.execute(
            f"INSERT INTO tool_invocations ({_COLUMNS}, touched_at)"
            " VALUES (?, ?, ?, ?, ?, ?, 'queued', 0, 0, NULL, NULL, NULL, ?)",
            (*at, span_id, parent, tool, compensation, self._now()),
        )
        row = self._find(db, trace_id, epoch, span_id)
        if compensation:
            db.execute(_ADOPT, (*at, span_id, *at))
        elif db.execute(_COVERED, (span_id, *at, *at)).fetchone() is not None:
            row = self._move(db, row, "cancelled")
        return row, True

    def _take(
        self, trace_id: str, span_id: str, epoch: int | None, fence: int | None, lease_s: int | None
    ) -> int | None:
        """Claim a queued invocation (no fence), or a running one from the holder of a fence."""
        _check_address(trace_id, span_id, epoch)
        if lease_s is not None:
            _whole(lease_s, "lease_s", 1, MAX_LEASE_S)
        with self._database.write() as db:
            row = self._find(db, trace_id, self._epoch(db, trace_id, epoch), span_id)
            if fence is not None and fence != row.fence:
                raise LostInvocation()
            if row.state != ("queued" if fence is None else "running"):
                return None
            if self._is_cancelled(db, row):
                self._move(db, row, "cancelled")
                return None
            now = self._now()
            until = None if lease_s is None else now + lease_s + 1  # the second that has begun does not count
            db.execute(
                "UPDATE tool_invocations SET state = 'running', fence = fence + 1, lease = ?, lease_until = ?,"
                f" touched_at = ? WHERE {_AT} AND span_id = ?",
                (lease_s, until, now, trace_id, row.epoch, span_id),
            )
            return row.fence + 1

    def _held(self, trace_id: str, span_id: str, fence: int, epoch: int | None) -> Any:
        _check_address(trace_id, span_id, epoch)
        _whole(fence, "fence", 1, _MAX_WHOLE)
        return self._database.write()

    def _stopped_or(
        self, db: sqlite3.Connection, trace_id: str, span_id: str, fence: int, epoch: int | None
    ) -> Invocation:
        """Return the invocation of this fence: still running, or final, by a cancel that was first perhaps just now."""
        row = self._find(db, trace_id, self._epoch(db, trace_id, epoch), span_id)
        if fence != row.fence:  # a queued one has the fence 0, which nobody holds
            raise LostInvocation()
        if row.state == "running" and self._is_cancelled(db, row):
            return self._move(db, row, "cancelled")
        return row

    def _is_cancelled(self, db: sqlite3.Connection, row: Invocation) -> bool:
        if row.compensation:
            return False
        at = (row.trace_id, row.epoch)
        # The mark alone is not enough: a parent that was registered late may have joined it to a cancelled subtree.
        return row.cancelled or db.execute(_COVERED, (row.span_id, *at, *at)).fetchone() is not None

    def _move(
        self,
        db: sqlite3.Connection,
        row: Invocation,
        state: State,
        *,
        result: str | None = None,
        error: str | None = None,
    ) -> Invocation:
        """Write a final state; the only place that does, besides `cancel` for what is queued."""
        cancelled_at = row.cancelled_at
        if state == "cancelled" and cancelled_at is None:
            cancelled_at = self._now()
        db.execute(
            f"UPDATE tool_invocations SET state = ?, cancelled = ?, cancelled_at = ?, result = ?, error = ?,"
            f" touched_at = ? WHERE {_AT} AND span_id = ? AND state IN ('queued', 'running')",
            (state, cancelled_at is not None, cancelled_at, result, error, self._now(), *row[:3]),
        )
        return self._find(db, row.trace_id, row.epoch, row.span_id)

    def _look(self, db: sqlite3.Connection, trace_id: str, epoch: int, span_id: str) -> Invocation | None:
        row = db.execute(
            f"SELECT {_COLUMNS} FROM tool_invocations WHERE {_AT} AND span_id = ?", (trace_id, epoch, span_id)
        ).fetchone()
        return None if row is None else _invocation(row)

    def _find(self, db: sqlite3.Connection, trace_id: str, epoch: int, span_id: str) -> Invocation:
        row = self._look(db, trace_id, epoch, span_id)
        if row is None:
            raise CancelStoreError("not_found")
        return row

    def _epoch(self, db: sqlite3.Connection, trace_id: str, epoch: int | None) -> int:
        if epoch is not None:
            return epoch
        row = db.execute("SELECT epoch FROM traces WHERE trace_id = ?", (trace_id,)).fetchone()
        return 1 if row is None else int(row[0])

    def _epoch_seen(self, trace_id: str, epoch: int | None) -> int:
        """Return the epoch outside of a transaction, with the errors of the machine translated."""
        if epoch is not None:
            return epoch
        row = self._database.row("SELECT epoch FROM traces WHERE trace_id = ?", (trace_id,))
        return 1 if row is None else int(row[0])

    def _now(self) -> int:
        return int(self._clock())


def _invocation(row: tuple[Any, ...]) -> Invocation:
    found = Invocation._make(row)
    return found._replace(
        compensation=bool(found.compensation),
        cancelled=bool(found.cancelled),
        result=None if found.result is None else json.loads(found.result),
    )


def _check_address(trace_id: object, span_id: object, epoch: object) -> None:
    _text(trace_id, "trace_id")
    _text(span_id, "span_id")
    _check_epoch(epoch)


def _check_epoch(epoch: object) -> None:
    if epoch is not None:
        _whole(epoch, "epoch", 1, _MAX_WHOLE)
