"""What workers were refused: a small log beside the store, so that a late delivery can be seen afterwards.

A refused call changes nothing in the store, not even a counter (J5 of `chapter10.jobs`); and still a person wants to
know that a worker came back late and was turned away. So the workers note it themselves, in a file of their own:
`jobs.db.workers` beside `jobs.db`. Nothing is decided by it. Losing it loses a statistic and no job.

    owner, verb, code   who owned the job, which call was refused (`finish`, `fail`, `progress`, `renew`), and why
    count               kept for ever, one row for each of these
    recent              the newest `MAX_RECENT` refusals one by one, with job, attempt and worker

Source: the chapter's late worker (claims C10-229 to C10-232); a refusal shown to a person is our addition.
"""

from __future__ import annotations

import os
from typing import Any, Final

from chapter10.database import BUSY_SECONDS, Database

__all__ = ["APPLICATION_ID", "MAX_RECENT", "SUFFIX", "WorkerLog", "log_path"]

SUFFIX: Final = ".workers"
"""What the name of the log has after the name of the store."""
MAX_RECENT: Final = 1000
"""The most refusals that are kept one by one."""
APPLICATION_ID: Final = 0x43485752  # "CHWR"

_MIGRATIONS: Final = (
    """
    CREATE TABLE counts (
        owner TEXT NOT NULL,
        verb TEXT NOT NULL,
        code TEXT NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (owner, verb, code)
    ) WITHOUT ROWID;
    CREATE TABLE recent (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        owner TEXT NOT NULL,
        worker TEXT NOT NULL,
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        verb TEXT NOT NULL,
        code TEXT NOT NULL,
        at NUMERIC NOT NULL                -- by the clock of the worker
    );
    """,
)


def log_path(store_path: str | os.PathLike[str]) -> str:
    """Return the path of the log that belongs to a store: beside the file itself, whatever link leads to it."""
    return os.path.realpath(os.fsdecode(store_path)) + SUFFIX


class WorkerLog:
    """The log of one store; `path` is what `log_path` returns. Close it, or use it as a context manager.

    Every method may raise `StoreError`.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._database = Database(
            path, application_id=APPLICATION_ID, migrations=_MIGRATIONS, busy_seconds=busy_seconds
        )

    def __enter__(self) -> WorkerLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second close does nothing."""
        self._database.close()

    def refused(self, owner: str, worker: str, job_id: int, attempt: int, verb: str, code: str, *, at: float) -> None:
        """Note one refused call: who, which attempt of which job, which verb, with which code, and when."""
        with self._database.write() as db:
            db.execute("INSERT OR IGNORE INTO counts VALUES (?, ?, ?, 0)", (owner, verb, code))
            db.execute(
                "UPDATE counts SET count = count + 1 WHERE owner = ? AND verb = ? AND code = ?", (owner, verb, code)
            )
            seq = db.execute(
                "INSERT INTO recent (owner, worker, job_id, attempt, verb, code, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (owner, worker, job_id, attempt, verb, code, at),
            ).lastrowid
            assert seq is not None
            db.execute("DELETE FROM recent WHERE seq <= ?", (seq - MAX_RECENT,))

    def counts(self) -> list[dict[str, Any]]:
        """Return `{owner, verb, code, count}` for each kind of refusal that occurred, in this order."""
        rows = self._database.rows("SELECT owner, verb, code, count FROM counts ORDER BY owner, verb, code")
        return [dict(zip(("owner", "verb", "code", "count"), row, strict=True)) for row in rows]

    def recent(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return the newest refusals, the newest first: `{owner, worker, job_id, attempt, verb, code, at}`."""
        names = ("owner", "worker", "job_id", "attempt", "verb", "code", "at")
        rows = self._database.rows(
            f"SELECT {', '.join(names)} FROM recent ORDER BY seq DESC LIMIT ?", (max(0, min(limit, MAX_RECENT)),)
        )
        return [dict(zip(names, row, strict=True)) for row in rows]
