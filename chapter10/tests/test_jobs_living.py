"""What a living system asks of the job store: turns, renewal, sweeping, retention, waiting, upgrades, plans."""

from __future__ import annotations

import re
import sqlite3
import unittest
from contextlib import closing
from typing import Any, ClassVar
from unittest import mock

from chapter10.companions.work import living_store
from chapter10.companions.work.living_store import CLAIM_SCAN, MIGRATIONS, LivingStore
from chapter10.database import StoreError
from chapter10.jobs import APPLICATION_ID, LIVE_STATES, SCHEMA, STATES, JobStore
from chapter10.limits import MAX_LIMIT
from chapter10.tests.job_checker import contents, violations
from chapter10.tests.job_support import AUGUST, JULY, REPORT, LivingTestCase, writes_of
from chapter10.tests.support import ManualClock, also_on


class Turns(LivingTestCase):
    def submit_for(self, owner: str, count: int, **options: Any) -> list[int]:
        batch = [(f"{owner}-{number}", AUGUST) for number in range(count)]
        ids: list[int] = self.store.submit_many(owner, batch, now=0, **options)
        return ids

    def owner_of(self, job_id: int) -> str:
        owner: str = self.store.db.execute("SELECT owner FROM jobs WHERE id = ?", (job_id,)).fetchone()[0]
        return owner

    def claim_owner(self, now: float = 1) -> str:
        claimed = self.store.claim_next(now=now)
        assert claimed is not None
        return self.owner_of(claimed[0])

    def test_nothing_due_is_none(self) -> None:
        """An empty store, a job that waits for its retry, a held one and a final one give nothing."""
        self.assertIsNone(self.store.claim_next(now=1))
        job_id, attempt = self.running()
        self.assertIsNone(self.store.claim_next(now=2))
        self.store.fail(job_id, attempt, "temporary", now=3, retry_after=5)
        self.assertIsNone(self.store.claim_next(now=7.999))
        self.assertEqual((job_id, 2), self.store.claim_next(now=8))
        self.store.finish(job_id, 2, REPORT, now=9)
        self.assertIsNone(self.store.claim_next(now=50))

    def test_within_an_owner_the_longest_due_comes_first(self) -> None:
        """By the moment from which a job could be had, then by its number."""
        self.submit("late", now=5)
        self.submit("early", now=3)
        self.submit("twin", now=3)
        self.assertEqual([(2, 1), (3, 1), (1, 1), None], [self.store.claim_next(now=6) for _ in range(4)])

    def test_a_lost_lease_is_due_from_its_end(self) -> None:
        """A job whose worker vanished is handed out again, with its next attempt."""
        self.running()
        self.assertEqual([None, (1, 2)], [self.store.claim_next(now=now) for now in (10.9, 11)])

    def test_owners_take_turns(self) -> None:
        """Whoever has work is served round by round, in the order of names."""
        for owner, count in (("bob", 2), ("alice", 3), ("carol", 1)):
            self.submit_for(owner, count)
        self.assertEqual(
            ["alice", "bob", "carol", "alice", "bob", "alice"], [self.claim_owner() for _ in range(6)]
        )  # fmt: skip

    def test_a_thousand_jobs_of_one_owner_delay_another_by_one(self) -> None:
        """Whenever a new owner comes, at most one claim for each other owner is before his first job."""
        self.submit_for("m", 1000)
        for newcomer in ("a", "z", "l", "n", "m0", "é"):
            for _ in range(3):
                self.claim_owner()
            self.submit_for(newcomer, 1)
            others = 1
            self.assertIn(newcomer, [self.claim_owner() for _ in range(others + 1)])

    def test_the_bound_holds_for_every_owner_at_every_moment(self) -> None:
        """Five owners with more and more work: between two claims of one there is at most one of each other."""
        for number, owner in enumerate("abcde"):
            self.submit_for(owner, 3 + 7 * number)
        served = [self.claim_owner() for _ in range(5 * 3 + 7 * 10)]
        for place, owner in enumerate(served):
            before = served[:place]
            if owner in before:
                since = before[len(before) - before[::-1].index(owner) :]
                self.assertEqual(len(since), len(set(since)))

    def test_the_turn_is_kept_by_the_file(self) -> None:
        """After a restart the next owner is served, and not the first one again."""
        self.submit_for("alice", 2)
        self.submit_for("bob", 2)
        self.assertEqual("alice", self.claim_owner())
        self.store.close()
        self.store = self.open()
        self.assertEqual("bob", self.claim_owner())

    def test_dead_jobs_on_the_way_are_ended_and_passed(self) -> None:
        """Past its deadline, out of attempts, cancelled: each ends, and the claim takes the living one.

        Claims: C10-209, C10-291.
        """
        self.submit("late", deadline=5)
        self.running("exhausted", max_attempts=1)
        cancelled, _ = self.running("cancelled")
        self.store.cancel("alice", cancelled)
        alive = self.submit("alive", now=12)
        self.assertEqual((alive, 1), self.store.claim_next(now=20))
        rows = self.store.db.execute("SELECT state, error FROM jobs WHERE id < 4 ORDER BY id").fetchall()
        self.assertEqual(
            [("failed", "deadline_exceeded"), ("failed", "attempts_exhausted"), ("cancelled", None)], rows
        )  # fmt: skip

    def test_the_dead_that_one_call_ends_are_bounded(self) -> None:
        """After `CLAIM_SCAN` dead jobs a call stops with None; the next one goes on."""
        self.submit_for("alice", CLAIM_SCAN + 1, deadline=5)
        alive = self.submit("alive", "bob", capacity=1000)
        self.assertIsNone(self.store.claim_next(now=20))
        ended = "SELECT count(*) FROM jobs WHERE state = 'failed'"
        self.assertEqual((CLAIM_SCAN,), self.store.db.execute(ended).fetchone())
        self.assertEqual((alive, 1), self.store.claim_next(now=20))


class WhoMayBegin(LivingTestCase):
    """Kinds, pauses and a start that lies ahead."""

    def test_a_claim_takes_only_the_kinds_that_were_named(self) -> None:
        """By tool and version; none at all takes nothing, and a row without a readable kind is everybody's."""
        self.submit("a")
        own = [("other", "1"), ("reports.export", "1")]
        for kinds in ([], [("reports.export", "2")], [("other", "1")]):
            self.assertIsNone(self.store.claim_next(now=1, kinds=kinds))
        self.assertEqual((1, 1), self.store.claim_next(now=1, kinds=own))
        for text in ("[]", "no JSON", '{"tool": 1, "version": "1"}', '{"tool": "reports.export"}'):
            with self.subTest(text):
                job_id = self.submit(text)
                self.store.db.execute("UPDATE jobs SET intent = ? WHERE id = ?", (text, job_id))
                self.assertEqual((job_id, 1), self.store.claim_next(now=1, kinds=[]))

    def test_the_kinds_of_live_work_are_counted(self) -> None:
        """Queued and live; what has ended is no work, and what is damaged has no name."""
        self.submit("a")
        self.running("b")
        self.store.cancel("alice", self.submit("c"))
        job_id = self.submit("d")
        self.store.db.execute("UPDATE jobs SET intent = 'x' WHERE id = ?", (job_id,))
        self.assertEqual(
            [
                {"kind": None, "version": None, "queued": 1, "live": 1},
                {"kind": "reports.export", "version": "1", "queued": 1, "live": 2},
            ],
            self.store.kinds(),
        )

    def test_nothing_of_who_is_paused_is_begun(self) -> None:
        """Of one owner or of everybody, each taken back by its name; who holds a job goes on, and the file knows."""
        self.submit("a")
        self.store.submit("bob", "b", AUGUST, now=0)
        self.assertEqual((True, False), (self.store.pause("alice", now=1), self.store.pause("alice", now=2)))
        with LivingStore(self.path) as other:
            self.assertEqual(
                (["alice"], (2, 1), None), (other.paused(), other.claim_next(now=1), other.claim_next(now=1))
            )
        self.assertTrue(self.store.pause(now=1))
        self.assertTrue(self.store.resume("alice"))
        self.assertEqual(([None], None), (self.store.paused(), self.store.claim_next(now=1)))
        self.assertTrue(self.store.finish(2, 1, REPORT, now=2))
        self.assertEqual((True, False), (self.store.resume(), self.store.resume()))
        self.assertEqual((1, 1), self.store.claim_next(now=1))

    def test_a_job_starts_not_before_its_time(self) -> None:
        """One and a whole batch; a time that has passed is now, and one at the deadline is refused."""
        one = self.store.submit("alice", "one", AUGUST, now=0, start=50)
        two, three = self.store.submit_many("alice", [("two", AUGUST), ("three", AUGUST)], now=0, start=60)
        past = self.store.submit("alice", "past", AUGUST, now=10, start=5)
        claimed = [self.store.claim_next(now=now, lease=1) for now in (9.9, 10, 49.9, 50, 60)]
        self.assertEqual([None, (past, 1), (past, 2), (one, 1), (past, 3)], claimed)
        self.assertEqual(
            {(two, 1), (three, 1)}, {self.store.claim_next(now=60, lease=9) for _ in range(3)} - {(one, 2)}
        )
        self.refused("invalid_submission", self.store.submit, "alice", "x", AUGUST, now=0, deadline=50, start=50)


class Renewing(LivingTestCase):
    def lease_until(self, job_id: int = 1) -> float:
        end: float = self.store.db.execute("SELECT lease_until FROM jobs WHERE id = ?", (job_id,)).fetchone()[0]
        return end

    def test_a_renewed_lease_ends_so_long_after_now(self) -> None:
        """Nobody else gets the job before the new end, and the holder may deliver until then.

        Claims: C10-226, C10-233.
        """
        self.running()
        self.assertEqual("running", self.store.renew(1, 1, now=8))
        self.assertEqual([None, None, 2], [self.store.claim(1, now=now) for now in (12, 17.999, 18)])

    def test_only_the_current_attempt_renews_and_only_in_time(self) -> None:
        """A late heartbeat does not take the lease back, from nobody and from no other attempt.

        Claims: C10-233.
        """
        self.running()
        self.refused("lease_expired", self.store.renew, 1, 1, now=11)
        self.claim(1, now=11)
        self.refused("stale_attempt", self.store.renew, 1, 1, now=12)
        self.assertEqual("running", self.store.renew(1, 2, now=12))

    def test_a_lease_is_never_renewed_past_the_deadline(self) -> None:
        """However long a renewal asks for, the deadline is the end; at the deadline the job has failed.

        Claims: C10-233.
        """
        self.running(deadline=20)
        self.store.renew(1, 1, now=5, lease=1000)
        self.assertEqual(20, self.lease_until())
        self.assertEqual("failed", self.store.renew(1, 1, now=20))
        self.assertEqual("deadline_exceeded", self.store.get("alice", 1)["error"])

    def test_a_renewal_makes_a_lease_no_shorter(self) -> None:
        """A short renewal leaves the longer lease as it is, and writes nothing."""
        self.running(lease=50)
        before = self.contents()
        self.assertEqual("running", self.store.renew(1, 1, now=2, lease=1))
        self.assertEqual(before, self.contents())

    def test_a_renewal_tells_of_the_cancel_request(self) -> None:
        """The worker learns that it is to stop, and keeps its lease to clean up.

        Claims: C10-163, C10-233.
        """
        self.running()
        self.store.cancel("alice", 1)
        self.assertEqual("cancel_requested", self.store.renew(1, 1, now=5))
        self.assertEqual(15, self.lease_until())
        self.assertEqual("cancel_requested", self.state(1))

    def test_a_renewal_writes_no_event(self) -> None:
        """A heartbeat is no news: the log of a long job stays short."""
        self.running()
        self.store.renew(1, 1, now=5)
        self.assertEqual(["queued", "running"], self.kinds(1))


class Sweeping(LivingTestCase):
    def test_a_sweep_ends_what_nobody_can_run(self) -> None:
        """Past the deadline, out of attempts, cancelled and abandoned; what lives is left alone.

        Claims: C10-291.
        """
        self.submit("late", deadline=5)
        running, _ = self.running("late and running", deadline=5)
        self.running("exhausted", max_attempts=1)
        asked, _ = self.running("cancelled")
        self.store.cancel("alice", asked)
        self.submit("waits")
        self.running("may be tried again")
        self.running("held", lease=50)
        counts = self.store.sweep(now=11)
        self.assertEqual(
            {"deadline_exceeded": 2, "attempts_exhausted": 1, "cancelled": 1, "damaged": 0, "skipped": 0}, counts
        )  # fmt: skip
        states = [row[0] for row in self.store.db.execute("SELECT state FROM jobs ORDER BY id")]
        self.assertEqual(["failed", "failed", "failed", "cancelled", "queued", "running", "running"], states)
        self.assertEqual({"error": "deadline_exceeded"}, self.store.events("alice", running)[-1]["detail"])

    def test_a_sweep_agrees_with_the_claim_about_each_moment(self) -> None:
        """At the deadline and at the end of the lease, not before."""
        self.submit("late", deadline=5)
        self.running("exhausted", max_attempts=1, lease=4)
        self.assertEqual(0, sum(self.store.sweep(now=4.999).values()))
        self.assertEqual(2, sum(self.store.sweep(now=5).values()))

    def test_a_sweep_frees_each_place_once(self) -> None:
        """A second sweep finds nothing, and the queue has room again."""
        for number in range(3):
            self.submit(f"k{number}", deadline=5, capacity=3)
        self.assertEqual([3, 0], [self.store.sweep(now=5)["deadline_exceeded"] for _ in range(2)])
        self.submit("new", now=6, capacity=1)

    def test_a_sweep_ends_at_most_its_limit(self) -> None:
        """The rest is for the next call."""
        for number in range(5):
            self.submit(f"k{number}", deadline=5)
        self.assertEqual([2, 2, 1, 0], [self.store.sweep(now=5, limit=2)["deadline_exceeded"] for _ in range(4)])

    def test_a_row_that_cannot_be_changed_holds_up_no_other(self) -> None:
        """Even with a limit of one and bad rows first; where the row changed and its event did not, neither stays."""
        for number in range(4):
            self.submit(f"k{number}", deadline=5)
        for trigger in ("BEFORE UPDATE ON jobs WHEN old.id = 1", "BEFORE INSERT ON events WHEN new.job_id = 2"):
            name = trigger.split()[3]
            self.store.db.execute(f"CREATE TRIGGER on_{name} {trigger} BEGIN SELECT raise(ABORT, 'stuck'); END")
        counts = [self.store.sweep(now=5, limit=1) for _ in range(3)]
        self.assertEqual([1, 1, 0], [count["deadline_exceeded"] for count in counts])
        self.assertEqual([2, 2, 2], [count["skipped"] for count in counts])
        self.assertEqual(["queued", "queued", "failed", "failed"], [self.state(job_id) for job_id in (1, 2, 3, 4)])
        self.store.db.execute("DROP TRIGGER on_jobs")
        self.store.db.execute("DROP TRIGGER on_events")
        self.assertEqual(2, self.store.sweep(now=5)["deadline_exceeded"])

    def test_a_sweep_sets_a_damaged_row_aside_and_says_so(self) -> None:
        """Before anybody asks for the job; what the log knows of its attempts is put back."""
        self.submit("sound")
        for key, change in (("a", "deadline = 'x'"), ("b", "attempt = 99"), ("c", "ready_at = 'x'")):
            self.damage(f"UPDATE jobs SET {change} WHERE id = {self.submit(key)}")
        self.assertEqual(self.store.stats(now=1)["alice"]["queued"], 4)
        swept = self.store.sweep(now=1)
        self.assertEqual((swept["damaged"], swept["skipped"]), (3, 0))
        self.assertEqual(
            (self.store.get("alice", 3)["state"], self.store.get("alice", 3)["error"]), ("failed", "damaged")
        )
        self.assertEqual(self.store.stats(now=1)["alice"]["queued"], 1)

    def test_a_sweep_meets_a_state_that_is_none(self) -> None:
        """Nothing else does. Once: what had ended is again what its log says, with its result, the rest has failed."""
        for state in ("succeeded", "failed", "queued"):
            self.in_state(state, state)
        self.damage("UPDATE events SET detail = '{oops' WHERE kind = 'failed'")
        self.damage("UPDATE jobs SET state = 'lurking'")
        self.assertEqual([None, {}], [self.store.claim_next(now=6), self.store.stats(now=6)])
        self.assertEqual([3, 2, 1], [job["id"] for job in self.store.survey(state="lurking")])
        self.assertEqual([3, 0], [self.store.sweep(now=now)["damaged"] for now in (6, 7)])
        shown = [(job["state"], job["error"], job["ended"]) for job in self.store.survey()]
        self.assertEqual([("failed", "damaged", 6), ("failed", "damaged", 5), ("succeeded", None, 5)], shown)
        self.assertEqual(REPORT, self.store.result("alice", 1)["data"])
        self.damage("""UPDATE events SET detail = '{"error":"damaged"}' WHERE kind = 'failed'""")  # for the checker

    def test_a_claim_sets_a_damaged_row_aside_and_takes_the_next(self) -> None:
        """It is met once; the claims that its log knows of are its attempts again."""
        self.running("bad", lease=5)
        self.submit("good", now=10)
        self.damage("UPDATE jobs SET attempt = 99, owner = 'alice' WHERE id = 1")
        self.assertEqual((2, 1), self.store.claim_next(now=20))
        bad = self.store.get("alice", 1)
        self.assertEqual(("failed", 1, "damaged"), (bad["state"], bad["attempt"], bad["error"]))


class InOrder(LivingTestCase):
    """What has an order has it by a word of the statement, also where rows happen to lie the other way."""

    def setUp(self) -> None:
        super().setUp()
        self.store.db.execute("PRAGMA reverse_unordered_selects=OFF")  # so that the newest do not come first by luck

    def test_the_newest_job_comes_first(self) -> None:
        """For its owner and for an operator."""
        for key in "abc":
            self.submit(key)
        self.assertEqual([3, 2, 1], [job["id"] for job in self.store.list_jobs("alice")])
        self.assertEqual([3, 2, 1], [job["id"] for job in self.store.survey()])

    def test_a_job_started_when_its_newest_attempt_did(self) -> None:
        """Not when somebody first began it; it was submitted once."""
        job_id = self.submit("k", now=1)
        self.claim(job_id, now=2, lease=10)
        self.claim(job_id, now=12, lease=10)
        (job,) = self.store.survey()
        self.assertEqual((1, 12), (job["submitted"], job["started"]))

    def test_a_lease_that_ends_now_is_over_in_the_figures_too(self) -> None:
        """As for whoever would write under it."""
        self.claim(self.submit("k"), now=2, lease=10)
        expired = [self.store.stats(now=now)["alice"]["expired"] for now in (11.9, 12)]
        self.assertEqual([0, 1], expired)

    def test_what_ended_first_is_pruned_first(self) -> None:
        """Also when its number is higher."""
        for key in "ab":
            self.submit(key)
        for job_id, now in ((2, 5), (1, 6)):
            self.store.finish(job_id, self.claim(job_id, now=now), REPORT, now=now)
        self.assertEqual(
            {"results": 0, "keys": 1},
            self.store.prune(now=9, results_before=8, keys_before=8, limit=1) | {"results": 0},
        )
        self.refused("not_found", self.store.get, "alice", 2)


class Retention(LivingTestCase):
    def test_a_result_goes_before_its_key(self) -> None:
        """Within the time of keys the old job answers, but its data is gone and says so; nothing runs again.

        Claims: C10-295.
        """
        job_id = self.succeeded("k")
        sha256 = self.store.result("alice", job_id)["sha256"]
        self.assertEqual(
            {"results": 1, "keys": 0}, self.store.prune(now=1000, results_before=900, keys_before=0)
        )  # fmt: skip
        self.refused("result_expired", self.store.result, "alice", job_id)
        self.assertEqual(job_id, self.submit("k", now=1000))
        self.refused("key_conflict", self.store.submit, "alice", "k", JULY, now=1000)
        self.assertEqual(("succeeded", 1), (self.state(job_id), self.store.receipt_count(job_id)))
        self.assertEqual((sha256,), self.store.db.execute("SELECT sha256 FROM receipts").fetchone())
        self.assertIs(False, self.store.finish(job_id, 1, REPORT, now=1001))

    def test_after_the_time_of_keys_the_key_is_free(self) -> None:
        """The same key is new work then, under a new number, with any arguments; nothing of the old is left.

        Claims: C10-295.
        """
        job_id = self.succeeded("k")
        self.assertEqual({"results": 0, "keys": 1}, self.store.prune(now=50, results_before=9, keys_before=9))
        self.assertEqual(([], [], []), tuple(self.contents()[name] for name in ("jobs", "receipts", "events")))
        self.refused("not_found", self.store.get, "alice", job_id)
        self.assertEqual(2, self.store.submit("alice", "k", JULY, now=50))
        self.assertEqual([], violations(self.path, accepted=[1, 2], pruned=[1], seen_seq=3))

    def test_only_what_has_ended_goes(self) -> None:
        """However old, what is not final stays; and so does what ended at the limit or later."""
        for state in LIVE_STATES:
            self.in_state(state, key=state)
        for state in ("succeeded", "failed"):
            self.in_state(state, key=state)  # at 5
        before = self.contents()
        self.assertEqual({"results": 0, "keys": 0}, self.store.prune(now=5, results_before=5, keys_before=5))
        self.assertEqual(before, self.contents())
        self.assertEqual({"results": 0, "keys": 2}, self.store.prune(now=9, results_before=5.1, keys_before=5.1))
        self.assertEqual(3, len(self.contents()["jobs"]))

    def test_the_oldest_go_first_and_a_call_is_bounded(self) -> None:
        """At most `limit` of either kind a call; zero of both says that nothing is left."""
        for number in range(5):
            job_id, attempt = self.running(f"k{number}", capacity=99)
            self.store.finish(job_id, attempt, REPORT, now=9 - number)
        rounds = [self.store.prune(now=20, results_before=20, keys_before=7.5, limit=2) for _ in range(4)]
        self.assertEqual([(2, 2), (1, 1), (0, 0), (0, 0)], [(r["results"], r["keys"]) for r in rounds])
        self.assertEqual([1, 2], [row[0] for row in self.contents()["jobs"]])

    def test_retention_walks_over_nothing_that_it_has_emptied(self) -> None:
        """The results still kept have an index of their own: emptied ones are not in it."""
        for number in range(3):
            self.succeeded(f"k{number}")
        self.store.prune(now=20, results_before=20, keys_before=0)
        count = "SELECT count(*) FROM receipts INDEXED BY receipts_kept WHERE data IS NOT NULL AND ended_at < 99"
        self.assertEqual((0,), self.store.db.execute(count).fetchone())

    def test_an_equal_key_of_another_owner_is_not_touched(self) -> None:
        """Alice's key goes with her old job; Bob's runs on under the same text."""
        self.succeeded("k")
        job_id, attempt = self.running("k", "bob")
        self.store.prune(now=20, results_before=20, keys_before=20)
        self.assertTrue(self.store.finish(job_id, attempt, REPORT, now=9))
        self.assertEqual(job_id, self.submit("k", "bob"))

    def test_results_must_not_outlive_their_keys(self) -> None:
        """The three moments are in order, or nothing is removed."""
        self.succeeded()
        for moments in (
            {"now": 20, "results_before": 21, "keys_before": 0},
            {"now": 20, "results_before": 10, "keys_before": 11},
        ):
            self.refused("bad_input", self.store.prune, **moments)

    def test_numbers_never_come_back(self) -> None:
        """After everything was removed, ids and `seq` go on; an old id finds nothing, least of all the new job."""
        last_id = [self.succeeded(f"k{number}") for number in range(3)][-1]
        cursor = self.store.events("alice", last_id)[-1]["seq"]
        self.store.prune(now=50, results_before=50, keys_before=50)
        self.store.close()
        self.store = self.open()
        job_id, attempt = self.running("new")
        self.assertEqual((last_id + 1, 1), (job_id, attempt))
        self.assertEqual(["queued", "running"], [e["kind"] for e in self.store.events("alice", job_id, after=cursor)])
        for old in range(1, last_id + 1):
            self.refused("not_found", self.store.get, "alice", old)
            self.refused("not_found", self.store.result, "alice", old)
            self.refused("not_found", self.store.finish, old, 1, REPORT, now=3)
        self.assertEqual([], violations(self.path, pruned=(1, 2, 3), seen_seq=cursor))

    def test_the_turn_survives_a_prune(self) -> None:
        """When the last claim is removed the turn goes back to the one before, and nobody is skipped for ever."""
        for owner in ("alice", "bob"):
            self.store.submit_many(owner, [(f"k{n}", AUGUST) for n in range(3)], now=0)
        served = []
        for now in range(1, 7):
            claimed = self.store.claim_next(now=now)
            assert claimed is not None
            self.store.finish(*claimed, REPORT, now=now)
            served.append(claimed[0])
            self.store.prune(now=now, results_before=now, keys_before=now)
        self.assertEqual([1, 2, 3, 4, 5, 6], sorted(served))


class Bounds(LivingTestCase):
    def test_the_events_of_one_job_are_bounded(self) -> None:
        """Of its progress the newest stay, in every attempt together; replaying them still gives the row.

        Claims: C10-250.
        """
        with mock.patch.object(living_store, "MAX_PROGRESS_EVENTS", 3):
            job_id, attempt = self.running(max_attempts=2)
            other, _ = self.running("other")
            self.store.progress(other, 1, 1, 9, now=2)
            for done in range(1, 6):
                self.store.progress(job_id, attempt, done, 9, now=2)
            self.store.fail(job_id, attempt, "temporary", now=3, retry_after=0)
            self.claim(job_id, now=3)
            for done in range(1, 3):
                self.store.progress(job_id, 2, done, 9, now=4)
        said = [e["detail"]["done"] for e in self.store.events("alice", job_id) if e["kind"] == "progress"]
        self.assertEqual([5, 1, 2], said)
        self.assertIn("progress", self.kinds(other))
        self.assertEqual((1000, 1000), (living_store.MAX_PROGRESS_EVENTS, living_store.MAX_ATTEMPTS))
        self.refused("invalid_submission", self.submit, "many", max_attempts=1001)
        self.submit("most", max_attempts=1000)


class OnceMore(LivingTestCase):
    def test_an_interruption_burns_no_attempt_and_has_an_end(self) -> None:
        """The budget grows with each, up to a bound; then the job has failed."""
        job_id, _ = self.running(max_attempts=1)
        with mock.patch.object(living_store, "MAX_ATTEMPTS", 3):
            for attempt, state in ((1, "queued"), (2, "queued"), (3, "failed")):
                self.assertEqual(state, self.store.hand_back(job_id, attempt, "worker_stopped", now=2))
                if state == "queued":
                    self.assertEqual(attempt + 1, self.claim(job_id, now=2))
        self.refused("stale_attempt", self.store.hand_back, job_id, 1, "worker_stopped", now=3)

    def test_what_is_dead_is_tried_once_more_as_a_job_of_its_own(self) -> None:
        """The old one stays as it ended; the new one says whose it is, of which job, who asked and why."""
        for state in ("failed", "cancelled"):
            job_id, _ = self.in_state(state, state)
            before = self.store.get("alice", job_id)
            again = self.store.retry(job_id, now=10, by="ops", why="disk was full", max_attempts=7)
            self.assertEqual(again, self.store.retry(job_id, now=99, by="x", why="y", deadline=1, capacity=1))
            self.assertEqual(before, self.store.get("alice", job_id))
            self.assertEqual(self.store.intent(job_id), self.store.intent(again))
            (first,) = self.store.events("alice", again)
            self.assertEqual({"retry_of": job_id, "by": "ops", "why": "disk was full"}, first["detail"])
            self.assertEqual(1, self.claim(again, now=11))
            self.assertTrue(self.store.finish(again, 1, REPORT, now=12))

    def test_what_lives_or_has_succeeded_is_not_tried_once_more(self) -> None:
        """Nor is anything without a place, a time and a name for who asks; nothing is written."""
        for state in ("queued", "running", "cancel_requested", "succeeded"):
            self.refused("not_dead", self.store.retry, self.in_state(state, state)[0], now=9, by="ops", why="again")
        dead, _ = self.in_state("failed", "dead")
        self.refused("queue_full", self.store.retry, dead, now=9, by="ops", why="again", capacity=3)
        self.refused("not_found", self.store.retry, 99, now=9, by="ops", why="again")
        for wrong in ({"deadline": 9}, {"by": ""}, {"why": "x" * 201}, {"max_attempts": 1001}):
            given = {"now": 9, "by": "ops", "why": "again", **wrong}
            self.refused("bad_input", self.store.retry, dead, **given)

    def test_an_operator_finds_any_job_by_what_he_knows(self) -> None:
        """State, kind, owner and time of submission, alone and together; key and times are shown."""
        self.succeeded("a")
        self.submit("b", "bob", now=7)
        self.damage("UPDATE jobs SET intent = '{oops' WHERE id = 2")
        done, waiting = (self.store.survey(limit=1, before=before)[0] for before in (2, 3))
        shown = ("owner", "action_key", "kind", "submitted", "started", "ended", "deadline")
        self.assertEqual(["alice", "a", "reports.export", 0, 1, 5, 100], [done[name] for name in shown])
        self.assertEqual(["bob", "b", None, 7, None, None, 107], [waiting[name] for name in shown])
        for wanted, ids in (
            ({}, [2, 1]),
            ({"owner": "bob"}, [2]),
            ({"state": "succeeded"}, [1]),
            ({"kind": "reports.export"}, [1]),
            ({"since": 7}, [2]),
            ({"since": 7, "owner": "alice"}, []),
        ):
            with self.subTest(wanted):
                self.assertEqual(ids, [job["id"] for job in self.store.survey(**wanted)])
        self.refused("bad_input", self.store.survey, state="")
        self.assertEqual([1], [job["id"] for job in self.store.keyed("alice", "a")])
        self.assertEqual([], self.store.keyed("alice", "b"))

    def test_failures_are_counted_from_an_event_on(self) -> None:
        """Of every owner, whoever ended them."""
        seen = self.store.newest_event()
        self.assertEqual((0, 0), (seen, self.store.failed_after(seen)))
        self.in_state("failed")
        self.assertEqual((1, 0), (self.store.failed_after(0), self.store.failed_after(self.store.newest_event())))


class AClockSetBack(LivingTestCase):
    def test_a_job_that_waits_for_a_mistake_is_released(self) -> None:
        """A queued one, one that waits for its retry, and a held one, whose worker then has lost it."""
        for job_id in (
            self.submit("queued", now=3600, deadline=9000),
            *self.running("held", lease=3600, deadline=9000)[:1],
        ):
            self.assertIsNone(self.store.claim(job_id, now=10))
            self.assertTrue(self.store.release(job_id, now=10))
            self.assertFalse(self.store.release(job_id, now=10))
            self.assertIsNotNone(self.store.claim(job_id, now=10))
        self.refused("stale_attempt", self.store.finish, 2, 1, REPORT, now=11)
        self.refused("not_found", self.store.release, 99, now=10)
        self.assertFalse(self.store.release(self.succeeded("done"), now=4))


class TheFile(LivingTestCase):
    def test_room_is_given_back_and_nothing_else_changes(self) -> None:
        """After a prune the file has its size; compacted it is smaller, and every row and number stays."""
        job_id, attempt = self.running()
        self.store.finish(job_id, attempt, "x" * 500_000, now=2)
        self.submit("kept")
        self.store.prune(now=9, results_before=9, keys_before=9)
        before = self.contents()
        sizes = self.store.compact()
        self.assertGreater(sizes["before"] - sizes["after"], 400_000)
        self.assertEqual(sizes["after"], self.path.stat().st_size)
        self.assertEqual(before, self.contents())

    def test_a_backup_is_a_store_and_replaces_nothing(self) -> None:
        """It holds every row of one moment; a file that is there is left alone, and a half one does not stay."""
        self.succeeded()
        copy = self.folder / "copy.db"
        size = self.store.backup(copy)
        self.assertEqual(size, copy.stat().st_size)
        with LivingStore(copy) as store:
            self.assertEqual(self.contents(), contents(copy))
            self.assertEqual(REPORT, store.result("alice", 1)["data"])
        for target in (copy, self.path, self.folder / "no" / "such.db", "nul\0", 5):
            with self.subTest(target), self.assertRaises(StoreError):
                self.store.backup(target)  # type: ignore[arg-type]
        full = mock.patch.object(self.store._database, "row", side_effect=StoreError("store_unavailable", "full"))
        with full, self.assertRaises(StoreError):
            self.store.backup(self.folder / "half.db")
        self.assertFalse((self.folder / "half.db").exists())


class Places(LivingTestCase):
    def test_an_owner_has_a_limit_of_his_own(self) -> None:
        """Beyond it he is refused although the queue has room; others are not, and a repeat never is.

        Claims: C10-290.
        """
        self.submit("a", owner_capacity=2)
        self.submit("b", owner_capacity=2)
        self.refused("owner_full", self.store.submit, "alice", "c", AUGUST, now=0, owner_capacity=2)
        self.assertEqual(1, self.submit("a", owner_capacity=2))
        self.submit("c", "bob", owner_capacity=2)
        self.store.cancel("alice", 1)
        self.submit("c", owner_capacity=2)

    def test_a_full_queue_is_told_before_a_full_owner(self) -> None:
        """Where both hold, the answer is the one that concerns everybody."""
        self.submit("a")
        self.refused("queue_full", self.store.submit, "alice", "b", AUGUST, now=0, capacity=1, owner_capacity=1)

    def test_a_batch_is_taken_whole_or_not_at_all(self) -> None:
        """Ids in the order given; a key that stands twice, or is known, is one job and takes one place."""
        self.submit("known")
        batch = [("x", AUGUST), ("known", AUGUST), ("y", JULY), ("x", AUGUST)]
        self.refused("queue_full", self.store.submit_many, "alice", batch, now=0, capacity=2)
        self.refused("owner_full", self.store.submit_many, "alice", batch, now=0, owner_capacity=2)
        self.assertEqual([2, 1, 3, 2], self.store.submit_many("alice", batch, now=0, capacity=3, owner_capacity=3))
        self.assertEqual([2, 1, 3, 2], self.store.submit_many("alice", batch, now=999, capacity=1))
        self.assertEqual(["queued"], self.kinds(3))

    def test_a_known_key_whose_intent_is_damaged_is_no_conflict_of_the_caller(self) -> None:
        """Whoever repeats his submission is told of the damage."""
        self.submit("known")
        self.damage("UPDATE jobs SET intent = '{oops'")
        with self.assertRaisesRegex(StoreError, "store_unavailable") as caught:
            self.submit("known")
        self.assertEqual("damaged: the intent of job 1", caught.exception.reason)

    def test_a_batch_is_one_commit(self) -> None:
        """However many intents, the disk is waited for once."""
        said: list[str] = []
        self.store.db.set_trace_callback(said.append)
        self.store.submit_many("alice", [(f"k{n}", AUGUST) for n in range(50)], now=0, capacity=99)
        self.assertEqual(1, said.count("COMMIT"))


class Lists(LivingTestCase):
    def test_jobs_are_listed_newest_first_in_pages(self) -> None:
        """Each as `get` shows it; the last id of a page leads to the next."""
        for number in range(5):
            self.submit(f"k{number}")
        self.submit("k", "bob")
        self.succeeded("done")
        whole = self.store.list_jobs("alice")
        self.assertEqual([7, 5, 4, 3, 2, 1], [job["id"] for job in whole])
        self.assertEqual([self.store.get("alice", job["id"]) for job in whole], whole)
        pages: list[dict[str, Any]] = []
        while page := self.store.list_jobs("alice", before=pages[-1]["id"] if pages else None, limit=2):
            self.assertLessEqual(len(page), 2)
            pages += page
        self.assertEqual(whole, pages)
        self.assertEqual([], self.store.list_jobs("alice", before=0))
        self.assertEqual([], self.store.list_jobs("carol"))

    def test_a_list_has_fifty_jobs_by_default(self) -> None:
        """And a thousand at most."""
        batch = [(f"k{number}", AUGUST) for number in range(60)]
        self.store.submit_many("alice", batch, now=0, capacity=99)
        self.assertEqual((50, 60), (len(self.store.list_jobs("alice")), len(self.store.list_jobs("alice", limit=1000))))
        self.refused("bad_input", self.store.list_jobs, "alice", limit=MAX_LIMIT + 1)

    def test_figures_of_the_live_work(self) -> None:
        """For each owner with live work: states, leases that are over, and the longest wait of a due job."""
        self.assertEqual({}, self.store.stats(now=0))
        self.submit("a", now=2)
        self.running("b", lease=5)
        asked, _ = self.running("c", lease=50)
        self.store.cancel("alice", asked)
        job_id, attempt = self.running("d", "bob", lease=50)
        self.store.fail(job_id, attempt, "temporary", now=2, retry_after=20)
        self.succeeded("e", "carol")
        self.assertEqual(
            {
                "alice": {"queued": 1, "running": 1, "cancel_requested": 1, "expired": 1, "oldest_wait": 8},
                "bob": {"queued": 1, "running": 0, "cancel_requested": 0, "expired": 0, "oldest_wait": None},
            },
            self.store.stats(now=10),
        )
        self.assertEqual(0, self.store.stats(now=2)["alice"]["oldest_wait"])
        self.assertIs(int, type(self.store.stats(now=10)["bob"]["expired"]))


class Waiting(LivingTestCase):
    def wait(self, timeout: float, clock: ManualClock, **options: Any) -> str:
        status = self.store.wait("alice", 1, timeout, clock=clock, sleep=clock.sleep, **options)
        state: str = status["state"]
        return state

    def test_the_end_of_waiting_changes_nothing(self) -> None:
        """The caller stops looking at 2; the job runs on and succeeds later.

        Claims: C10-185, C10-190, C10-193, C10-210.
        """
        self.running()
        before, clock = self.contents(), ManualClock()
        self.assertEqual("running", self.wait(2, clock))
        self.assertEqual((2, before), (clock.now, self.contents()))
        self.assertTrue(self.store.finish(1, 1, REPORT, now=3))
        self.assertEqual("succeeded", self.wait(2, clock))

    def test_a_final_state_is_seen_within_one_poll(self) -> None:
        """No sleep is longer than `poll`, and none comes after the end is seen."""
        self.running()
        clock = ManualClock()
        finish = self.store.finish

        def sleep(seconds: float) -> None:
            clock.sleep(seconds)
            if len(clock.slept) == 3:
                finish(1, 1, REPORT, now=2)

        status = self.store.wait("alice", 1, 60, clock=clock, sleep=sleep, poll=0.5)
        self.assertEqual(("succeeded", [0.5] * 3), (status["state"], clock.slept))

    def test_the_last_sleep_ends_with_the_time(self) -> None:
        """What is left of the time is the most that is slept; no time at all is one look."""
        self.submit()
        clock = ManualClock()
        self.wait(1.25, clock, poll=0.5)
        self.assertEqual([0.5, 0.5, 0.25], clock.slept)
        for timeout in (0, -5):
            self.assertEqual("queued", self.wait(timeout, clock))
        self.assertEqual(3, len(clock.slept))

    def test_waiting_for_what_is_not_there_is_not_found(self) -> None:
        """It is told at once, and for another's job alike."""
        self.submit(owner="bob")
        clock = ManualClock()
        self.refused("not_found", self.store.wait, "alice", 1, 9, clock=clock, sleep=clock.sleep)
        self.assertEqual([], clock.slept)

    def test_three_clocks_end_at_three_moments(self) -> None:
        """The caller's waiting ends at 2, the attempt's lease at 5, the deadline at 9: three answers.

        Claims: C10-185, C10-210.
        """
        self.running(lease=4, deadline=9)
        self.assertEqual("running", self.wait(2, ManualClock()))
        self.refused("lease_expired", self.store.finish, 1, 1, REPORT, now=5)
        self.assertIs(False, self.store.finish(1, 1, REPORT, now=9))
        self.assertEqual("deadline_exceeded", self.store.get("alice", 1)["error"])


class Upgrades(LivingTestCase):
    def old_file(self) -> None:
        """Make the file of version 1, with a job in every state and the receipt of one."""
        self.store.close()
        for name in self.folder.iterdir():
            name.unlink()
        with closing(sqlite3.connect(self.path)) as db:
            db.executescript(SCHEMA)
            db.executescript(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1;")
            for number, (state, lease, error) in enumerate(
                (
                    ("queued", None, None), ("running", 50, None), ("cancel_requested", 50, None),
                    ("succeeded", None, None), ("failed", None, "bad_input"), ("cancelled", None, None),
                ), 1,
            ):  # fmt: skip
                attempt = 0 if state == "queued" else 1
                db.execute(
                    "INSERT INTO jobs VALUES (?, 'alice', ?, ?, ?, ?, 3, 100, 0, ?, 0, 0, ?)",
                    (number, state, '{"args":{"month":"2026-08"},"tool":"reports.export","version":"1"}',
                     state, attempt, lease, error),
                )  # fmt: skip
                kinds = dict.fromkeys(["queued", *(["running"] if attempt else []), state])
                for kind in kinds:
                    detail = '{"error":"bad_input"}' if kind == "failed" else "{}"
                    claimed = 0 if kind == "queued" else attempt
                    at = None if kind == "cancelled" else number
                    db.execute(
                        "INSERT INTO events (job_id, attempt, kind, detail, at) VALUES (?, ?, ?, ?, ?)",
                        (number, claimed, kind, detail, at),
                    )
            db.execute(
                "INSERT INTO receipts VALUES (4, 1, ?, '{}')",
                ("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",),
            )
            db.commit()

    def test_a_file_of_version_1_is_upgraded_in_place(self) -> None:
        """Every job keeps its state and goes on; what had ended counts as ended when its last event says, or at its
        deadline where that says nothing.
        """
        self.old_file()
        self.store = self.open()
        self.assertEqual((len(MIGRATIONS),), self.store.db.execute("PRAGMA user_version").fetchone())
        self.assertEqual([], violations(self.path, accepted=range(1, 7)))
        states = [job["state"] for job in self.store.list_jobs("alice")]
        self.assertEqual(["cancelled", "failed", "succeeded", "cancel_requested", "running", "queued"], states)
        self.assertEqual({}, self.store.result("alice", 4)["data"])
        self.assertTrue(self.store.finish(2, 1, REPORT, now=5))
        self.assertEqual((1, 1), self.store.claim_next(now=5))
        self.assertEqual(4, self.submit("succeeded"))
        ended = self.store.db.execute("SELECT id, ended_at FROM jobs WHERE ended_at IS NOT NULL ORDER BY id").fetchall()
        self.assertEqual([(2, 5), (4, 4), (5, 5), (6, 100)], ended)
        self.assertEqual([*range(6, 0, -1)], [job["submitted"] for job in self.store.survey()])
        self.assertEqual({"results": 1, "keys": 1}, self.store.prune(now=200, results_before=101, keys_before=5))
        self.assertEqual({"results": 0, "keys": 3}, self.store.prune(now=200, results_before=101, keys_before=101))

    def test_the_chapters_store_refuses_the_file_afterwards(self) -> None:
        """It says that the file is newer, and touches no byte; the living store goes on with it."""
        path = self.folder / "chapter.db"
        with JobStore(path) as store:
            store.submit("alice", "k", AUGUST, now=0)
        with LivingStore(path) as living:
            self.assertEqual((1, 1), living.claim_next(now=1))
        before = path.read_bytes()
        with self.assertRaises(StoreError) as caught:
            JobStore(path)
        self.assertIn("newer", caught.exception.reason)
        self.assertEqual(before, path.read_bytes())

    def test_an_upgrade_that_is_interrupted_is_made_the_next_time(self) -> None:
        """A failing statement of the upgrade leaves version 1 as it was."""
        self.old_file()
        before = self.contents()
        broken = (MIGRATIONS[0], MIGRATIONS[1] + "CREATE TABLE jobs (a);")
        with mock.patch("chapter10.companions.work.living_store.MIGRATIONS", broken), self.assertRaises(StoreError):
            self.open()
        self.assertEqual(before, self.contents())
        self.store = self.open()

    def test_a_newer_file_is_refused_by_name(self) -> None:
        """What a later version has written is not touched by this one."""
        self.store.db.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
        self.store.close()
        before = self.path.read_bytes()
        with self.assertRaises(StoreError) as caught:
            self.open()
        self.assertEqual("store_unavailable", caught.exception.code)
        self.assertIn("newer", caught.exception.reason)
        self.assertEqual(before, self.path.read_bytes())

    def test_a_strange_file_is_refused_untouched(self) -> None:
        """A database of somebody else, even with tables of our names, keeps every byte."""
        strange = self.folder / "strange.db"
        with closing(sqlite3.connect(strange)) as db:
            db.executescript("CREATE TABLE jobs (id INTEGER); CREATE TABLE events (id INTEGER);")
        before = strange.read_bytes()
        with self.assertRaises(StoreError) as caught:
            LivingStore(strange)
        self.assertEqual("store_unavailable", caught.exception.code)
        self.assertEqual(before, strange.read_bytes())


@also_on(LivingStore)
class Plans(unittest.TestCase):
    """The cost of a call follows the live work and not the history."""

    make: ClassVar[Any] = JobStore

    def statements(self) -> tuple[sqlite3.Connection, dict[str, Any]]:
        """Run every verb and return each statement that it used, with one set of its parameters."""
        seen: dict[str, Any] = {}

        class Recorder(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
                seen.setdefault(sql, parameters)
                return super().execute(sql, parameters)

            def executemany(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
                rows = list(parameters)
                seen.setdefault(sql, rows[0] if rows else None)
                return super().executemany(sql, rows)

        connect = sqlite3.connect
        with mock.patch("sqlite3.connect", lambda *given, **named: connect(*given, **named, factory=Recorder)):
            for write in writes_of(self.make):
                store = self.make(":memory:")
                self.addCleanup(store.close)
                write.prepare(store)
                write.call(store)
            store = self.make(":memory:")
            self.addCleanup(store.close)
        store.submit("alice", "k", AUGUST, now=0)
        store.claim(job_id := 1, now=1)
        store.finish(job_id, 1, REPORT, now=2)
        store.get("alice", job_id)
        store.events("alice", job_id)
        store.intent(job_id)
        store.receipt_count(job_id)
        store.result("alice", job_id)
        if isinstance(store, LivingStore):
            store.submit("alice", "last", AUGUST, now=0, owner_capacity=99)
            store.list_jobs("alice")
            store.stats(now=1)
            store.kinds()
            store.survey(owner="alice")
            store.survey(kind="reports.export")
            for state in {*STATES, "none"} - {"succeeded"}:
                store.survey(state=state)
        wanted = ("SELECT", "INSERT", "UPDATE", "DELETE")
        made = re.compile(r"sqlite_master|SET (ended|submitted)_at = (coalesce)?\(")
        return store.db, {
            sql: given for sql, given in seen.items() if sql.strip().startswith(wanted) and not made.search(sql.strip())
        }

    def test_no_statement_walks_a_table_or_sorts(self) -> None:
        """Each is served by a key or an index; only the index of the live jobs is ever walked, and that of states that
        are none; the newest claim is the first entry of its own.

        Claims: C10-288.
        """
        db, statements = self.statements()
        living = self.make is LivingStore
        self.assertGreater(len(statements), 20 if living else 12)
        walks: set[str] = set()
        for sql, given in statements.items():
            with self.subTest(sql):
                plan = [row[3] for row in sqlite3.Connection.execute(db, f"EXPLAIN QUERY PLAN {sql}", given)]
                if not re.search(r"jobs_live.*GROUP BY kind|ORDER BY \+id", sql):  # for an operator
                    self.assertNotIn("TEMP B-TREE", " ".join(plan))
                for step in plan:
                    if step.startswith("SCAN") and "json_each" not in step:  # the few kinds of a worker
                        walks.add(step.split()[-1])
                        self.assertRegex(step, "INDEX (jobs_live|jobs_strange|events_claims)$")
                        if step.endswith("events_claims"):
                            self.assertIn("ORDER BY seq DESC LIMIT 1", sql)
        self.assertEqual({"jobs_live", "jobs_strange", "events_claims"} if living else {"jobs_live"}, walks)

    def test_a_final_job_is_not_in_the_index_of_the_live(self) -> None:
        """Fifty ended jobs leave it empty, so counting and claiming do not meet them."""
        with self.make(":memory:") as store:
            for number in range(50):
                store.submit("alice", f"k{number}", AUGUST, now=0)
                store.cancel("alice", number + 1)
            states = ", ".join(f"'{state}'" for state in LIVE_STATES)
            count = f"SELECT count(*) FROM jobs INDEXED BY jobs_live WHERE state IN ({states})"
            self.assertEqual((0,), store.db.execute(count).fetchone())

    def test_each_verb_is_few_statements(self) -> None:
        """BEGIN, one look, the writes, COMMIT: the number of statements of each way to write is fixed."""
        counts = {}
        for write in writes_of(self.make):
            with self.make(":memory:") as store:
                write.prepare(store)
                said: list[str] = []
                store.db.set_trace_callback(said.append)
                write.call(store)
                counts[write.name] = len(said)
        most = {"submit": 6, "claim": 5, "progress": 5, "finish": 6, "fail": 5, "cancel while running": 5}
        if self.make is LivingStore:
            most |= {"finish": 7, "progress": 6, "claim next": 6, "renew": 4}
        for name, statements in most.items():
            self.assertLessEqual(counts[name], statements, name)


if __name__ == "__main__":
    unittest.main()
