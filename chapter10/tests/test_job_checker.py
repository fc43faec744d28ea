"""The checker of job stores sees each kind of damage; one that finds nothing must be able to find something."""

from __future__ import annotations

import sqlite3
import unittest
from contextlib import closing
from pathlib import Path

from chapter10.companions.work.living_store import LivingStore
from chapter10.tests.job_checker import violations
from chapter10.tests.job_support import AUGUST, REPORT
from chapter10.tests.support import FolderTestCase


class TheChecker(FolderTestCase):
    """A checker that finds nothing must be able to find something."""

    def test_each_kind_of_damage_is_seen(self) -> None:
        """One store, one damage at a time, done behind the verbs."""
        damages = {
            "receipt disagree": "DELETE FROM receipts",
            "another attempt": "UPDATE receipts SET attempt = 2",
            "another result": "UPDATE receipts SET data = '{}'",
            "which is not there": "INSERT INTO receipts (job_id, attempt, sha256) VALUES (9, 1, '')",
            "foreign key": "INSERT INTO receipts (job_id, attempt, sha256) VALUES (9, 1, '')",
            "belongs to no job": "INSERT INTO events (job_id, attempt, kind, detail) VALUES (9, 0, 'queued', '{}')",
            "after the end": "INSERT INTO events (job_id, attempt, kind, detail) VALUES (1, 1, 'progress', '{}')",
            "final events disagree": "DELETE FROM events WHERE kind = 'succeeded'",
            "but claims": "DELETE FROM events WHERE kind = 'running'",
            "not queued": "DELETE FROM events WHERE kind = 'queued'",
            "replay": "UPDATE jobs SET done = 1, total = 2",
            "accepted and is lost": "DELETE FROM events; DELETE FROM receipts; DELETE FROM jobs",
            "counter of seq": "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'events'",
            "counter of job ids": "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'jobs'",
            "pruned and is back": "UPDATE jobs SET id = 77; UPDATE receipts SET job_id = 77",
            "unknown state": "UPDATE jobs SET state = 'done'",
            "beyond its limit": "UPDATE jobs SET attempt = 9",
            "done exceeds": "UPDATE jobs SET done = 9",
            "error and state": "UPDATE jobs SET error = 'x'",
            "without a holder": "UPDATE jobs SET lease_until = 3",
            "ended disagree": "UPDATE jobs SET ended_at = NULL",
            "before its deadline": "UPDATE jobs SET state = 'queued', ready_at = 100000",
            "exceed the capacity": "UPDATE jobs SET state = 'queued'",
            "two jobs": "".join(
                f"CREATE TABLE loose AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE loose RENAME TO {table};"
                for table in ("events", "receipts", "jobs")
            )
            + "INSERT INTO jobs SELECT * FROM jobs",
        }
        for number, (word, script) in enumerate(damages.items()):
            with self.subTest(word):
                path = self.folder / f"{number}.db"
                self.one_job(path)
                with closing(sqlite3.connect(path)) as db:
                    db.execute("PRAGMA ignore_check_constraints=ON")
                    db.executescript(script)
                found = violations(path, accepted=[1], pruned=[77], seen_seq=3, capacity=0)
                self.assertTrue([line for line in found if word in line], found)

    def one_job(self, path: Path) -> None:
        with LivingStore(path) as store:
            store.submit("alice", "k", AUGUST, now=0)
            store.claim(1, now=1)
            store.finish(1, 1, REPORT, now=2)
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE sqlite_sequence SET seq = 77 WHERE name = 'jobs'")
            db.commit()
        self.assertEqual([], violations(path, accepted=[1], pruned=[77], seen_seq=3, capacity=0))


if __name__ == "__main__":
    unittest.main()
