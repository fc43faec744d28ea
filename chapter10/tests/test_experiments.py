"""The five groups: the figures that the chapter prints, and what each scene stands for."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import sqlite3
import tempfile
import unittest
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10 import experiments
from chapter10.catalog import FIXTURE_GRANTS, Catalog, CatalogError, byte_size, fixture_tools
from chapter10.experiments import (
    GROUPS,
    MAX_SALES,
    SALES,
    boundaries_experiment,
    catalog_experiment,
    concurrency_experiment,
    failures_experiment,
    lifecycle_experiment,
    run_all,
)
from chapter10.jobs import JobError, JobStore, LostLease
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.reader.own_data import MAX_NAMED
from chapter10.tests.programs import run_here
from chapter10.tests.published import PUBLISHED
from chapter10.tests.support import FolderTestCase, run_python

AUGUST = {"month": "2026-08"}
PROGRAM = ("chapter10.experiments",)
COMMAND = ["-W", "error", "-m", *PROGRAM]
EXTRA_KEYS = {
    "catalog": set[str](),
    "boundaries": {"loaded_at_exact_budget", "revoked_repeated", "stale_reloaded_version"},
    "concurrency": set[str](),
    "lifecycle": {"all_rows_counted"},
    "failures": {"expired_worker", "cancel_while_queued"},
}


def run_main(*arguments: str) -> tuple[int, str, str]:
    """Run the command in this process; return exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = experiments.main(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, out.getvalue(), err.getvalue()


class Commands(FolderTestCase):
    """What a reader types; all five groups as a real process, which treats warnings as errors."""

    def assert_published(self, group: str, figures: dict[str, Any]) -> None:
        published = PUBLISHED[group]
        self.assertEqual({key: figures.get(key, "missing") for key in published}, published)
        self.assertEqual(set(figures) - set(published), EXTRA_KEYS[group])

    def assert_group_prints(self, group: str) -> None:
        with mock.patch.object(tempfile, "tempdir", str(self.folder)):
            done = run_here([*PROGRAM, "--group", group])
        self.assertEqual((done.code, done.errors), (0, ""))
        self.assert_published(group, json.loads(done.out))
        self.assertEqual(list(self.folder.iterdir()), [], "a temporary database was left behind")

    def test_group_catalog_prints_the_published_figures(self) -> None:
        """300 registered, 299 discoverable, 2 loaded, 1,412 bytes against 93,644.

        Claims: C10-263.
        """
        self.assert_group_prints("catalog")

    def test_group_boundaries_prints_the_published_figures(self) -> None:
        """Five outcomes.

        Claims: C10-264.
        """
        self.assert_group_prints("boundaries")

    def test_group_concurrency_prints_the_published_figures(self) -> None:
        """Peak 2, three call ids, one error.

        Claims: C10-117, C10-265.
        """
        self.assert_group_prints("concurrency")

    def test_group_lifecycle_prints_the_published_figures(self) -> None:
        """6000 cents, and one event after cursor 5.

        Claims: C10-251, C10-266, C10-275.
        """
        self.assert_group_prints("lifecycle")

    def test_group_failures_prints_the_published_figures(self) -> None:
        """Every fault with its code.

        Claims: C10-267, C10-276.
        """
        self.assert_group_prints("failures")

    def test_the_bare_command_prints_all_five_groups(self) -> None:
        """One JSON object: what was not measured is null, and the groups in the reader's order.

        Claims: C10-269, C10-274.
        """
        done = run_python(COMMAND)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        printed = json.loads(done.stdout)
        self.assertEqual(
            list(printed), ["contract", "model_quality", "provider_tokens", "external_exactly_once", "groups"]
        )
        self.assertIs(printed["model_quality"], None)
        self.assertIs(printed["provider_tokens"], None)
        self.assertIs(printed["external_exactly_once"], False)
        self.assertEqual(list(printed["groups"]), list(PUBLISHED))
        for group, figures in printed["groups"].items():
            with self.subTest(group=group):
                self.assert_published(group, figures)

    def test_what_was_written_is_named(self) -> None:
        """One line a report, so that a reader finds it."""
        with mock.patch.object(experiments, "reports_folder", return_value=self.folder):
            code, out, err = run_main("--write")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.splitlines(), [str(self.folder / name) for name in experiments.REPORTS])

    def test_an_unknown_group_is_refused(self) -> None:
        """Exit code 2, usage on standard error, nothing on standard output.

        Claims: C10-269.
        """
        done = run_python([*COMMAND, "--group", "nope"])
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage:", done.stderr)

    def test_every_console_gets_json_with_the_same_values(self) -> None:
        """Chinese and Western code pages and plain ASCII change the bytes, never the figures."""
        for encoding in ("cp936", "cp1252", "ascii"):
            with self.subTest(encoding=encoding):
                done = run_here([*PROGRAM, "--group", "catalog", "--query", "报表 导出"], encoding=encoding)
                self.assertEqual((done.code, done.errors), (0, ""))
                self.assertEqual(json.loads(done.out)["hits"], [{"name": "reports.export", "score": 2}])


class EveryGroup(unittest.TestCase):
    """What holds for all five."""

    def test_two_runs_give_the_same_in_any_order(self) -> None:
        """Nothing depends on chance, on time or on the group before.

        Claims: C10-277.
        """
        first = run_all()
        for name in reversed(list(GROUPS)):
            with self.subTest(group=name):
                self.assertEqual(GROUPS[name](), first["groups"][name])
        self.assertEqual(json.dumps(run_all()), json.dumps(first))

    def test_what_is_handed_out_can_be_changed_without_harm(self) -> None:
        """The next run does not see what a caller did with the last one."""
        run_all()["groups"]["lifecycle"]["events"].clear()
        self.assertEqual(len(lifecycle_experiment()["events"]), 6)


class CatalogGroup(unittest.TestCase):
    """How much a request must show."""

    def test_another_query_loads_another_tool(self) -> None:
        """The export tool instead of the two order tools; what is registered stays the same.

        Claims: C10-270.
        """
        chapter, reports = catalog_experiment(), catalog_experiment("报表 导出")
        self.assertEqual([hit["name"] for hit in reports["hits"]], ["reports.export"])
        changed = {key for key in chapter if chapter[key] != reports[key]}
        self.assertEqual(
            changed,
            {
                "hits",
                "loaded",
                "hit_summaries_bytes",
                "loaded_definitions_bytes",
                "deferred_visible_payload_bytes",
            },
        )

    def test_the_payload_counts_entry_summaries_and_definitions(self) -> None:
        """Leaving the entry or the summaries out would compare a whole with a part.

        Claims: C10-263.
        """
        for query, limit in (("查询 订单 状态", 1), ("归档", 5), ("火星 着陆", 2)):
            with self.subTest(query=query):
                figures = catalog_experiment(query, limit)
                parts = ("bootstrap_bytes", "hit_summaries_bytes", "loaded_definitions_bytes")
                self.assertEqual(figures["deferred_visible_payload_bytes"], sum(figures[part] for part in parts))

    def test_two_hits_are_enough_where_nobody_says_how_many(self) -> None:
        """In the function and in the command, though hundreds would match."""
        self.assertEqual(len(catalog_experiment("归档")["hits"]), 2)
        code, out, _ = run_main("--group", "catalog", "--query", "归档")
        self.assertEqual((code, len(json.loads(out)["hits"])), (0, 2))

    def test_the_limit_and_the_grants_are_those_of_the_caller(self) -> None:
        """One hit where one is asked for; nothing is visible without a permission."""
        self.assertEqual(catalog_experiment(limit=1)["loaded"], 1)
        nobody = catalog_experiment(grants=())
        self.assertEqual((nobody["registered"], nobody["discoverable"], nobody["hits"]), (300, 0, []))
        self.assertEqual(catalog_experiment("订单 退款", grants=["refunds:write"])["loaded"], 1)

    def test_definitions_beyond_the_budget_are_not_loaded_and_the_answer_says_so(self) -> None:
        """No half list: zero loaded, the code, and what it would have taken."""
        figures = catalog_experiment("归档", 50)
        self.assertEqual((figures["loaded"], figures["refused"]), (0, "definition_budget_exceeded"))
        self.assertGreater(figures["needed_bytes"], figures["budget_bytes"])
        tools = sorted(fixture_tools(), key=lambda tool: tool.name)
        found = [{**tool.definition(), "digest": tool.digest} for tool in tools if "归档" in tool.keywords][:50]
        self.assertEqual(figures["needed_bytes"], byte_size(found))
        self.assertEqual(figures["loaded_definitions_bytes"], byte_size([]))

    def test_a_bad_argument_is_the_catalogs_refusal(self) -> None:
        """It comes through with its own code."""
        for arguments in ((None,), ("x", 0), ("x", True), ("x", 2, "orders:read")):
            with self.subTest(arguments=arguments), self.assertRaises(CatalogError):
                catalog_experiment(*arguments)


class BoundariesGroup(unittest.TestCase):
    """Five ways to say no, five next steps."""

    def test_the_five_outcomes_differ_and_none_is_a_general_one(self) -> None:
        """Nothing, a tie and three codes are five different things to a program.

        Claims: C10-271.
        """
        figures = boundaries_experiment()
        outcomes = [figures[key] for key in ("unknown_query", "ambiguous_query", "budget", "revoked", "stale")]
        self.assertEqual(len({json.dumps(outcome) for outcome in outcomes}), 5)

    def test_each_outcome_has_its_own_next_step(self) -> None:
        """A repetition brings no permission back; finding the tool again gives the new definition.

        Claims: C10-272.
        """
        figures = boundaries_experiment()
        self.assertEqual(figures["revoked_repeated"], "denied")
        self.assertEqual(figures["stale_reloaded_version"], "2")
        self.assertEqual(figures["loaded_at_exact_budget"], 2)

        catalog = Catalog(fixture_tools())
        tie = catalog.search("状态", FIXTURE_GRANTS)
        clarified = catalog.search("物流 状态", FIXTURE_GRANTS)
        self.assertEqual({hit["score"] for hit in tie}, {1})
        self.assertEqual([hit["score"] for hit in clarified], [2, 1])


class ConcurrencyGroup(unittest.TestCase):
    """Two reads at a time, seen and not timed."""

    def test_the_barrier_sees_the_overlap_and_the_bound(self) -> None:
        """Two are in flight together and never three; A and B are there though C failed.

        Claims: C10-115, C10-117, C10-273.
        """
        scene = Scene()
        figures = concurrency_experiment(scene=scene)
        self.assertEqual(figures["peak_in_flight"], figures["limit"])
        self.assertEqual(sorted(figures["results"]), ["call-A", "call-B", "call-C"])
        (_, events), *_ = scene.parts
        answers = [event.actor for event in events if event.detail]
        self.assertLess(answers.index("call-B"), answers.index("call-A"), "B should end before A here")

    def test_every_limit_gives_its_own_peak_and_the_same_results(self) -> None:
        """One at a time, two, three, and more than there are calls.

        Claims: C10-115.
        """
        for limit, peak in ((1, 1), (2, 2), (3, 3), (9, 3)):
            with self.subTest(limit=limit):
                figures = concurrency_experiment(limit)
                self.assertEqual((figures["peak_in_flight"], figures["limit"]), (peak, limit))
                self.assertEqual(figures["results"], PUBLISHED["concurrency"]["results"])

    def test_reads_that_do_not_overlap_fail_the_experiment(self) -> None:
        """A reader that goes one by one never opens the barrier: the proof can fail.

        Claims: C10-116, C10-273.
        """

        async def one_by_one(
            calls: Iterable[tuple[str, str]], read: Callable[[str], Awaitable[Any]], limit: int
        ) -> dict[str, Any]:
            return {call_id: await read(argument) for call_id, argument in calls}

        with (
            mock.patch.object(experiments, "bounded_reads", one_by_one),
            mock.patch.object(experiments, "_STUCK_SECONDS", 0),
            self.assertRaises(TimeoutError),
        ):
            concurrency_experiment()

    def test_no_time_is_measured(self) -> None:
        """The latency is null, and the module has neither a clock nor a sleep.

        Claims: C10-116, C10-274.
        """
        self.assertIs(concurrency_experiment()["measured_network_latency_ms"], None)
        source = inspect.getsource(experiments)
        for word in ("sleep(", "import time", "perf_counter", "monotonic"):
            self.assertNotIn(word, source)

    def test_a_limit_below_one_is_refused(self) -> None:
        """As `bounded_reads` refuses it."""
        for limit in (0, -1):
            with self.subTest(limit=limit), self.assertRaises(ValueError):
                concurrency_experiment(limit)


class LifecycleGroup(FolderTestCase):
    """A report that outlives its request."""

    def test_the_fixture_is_four_sales_in_whole_cents(self) -> None:
        """Three of August and one of July; amounts are integers.

        Claims: C10-167, C10-168, C10-169.
        """
        self.assertEqual(
            [(row["order_id"], row["month"], row["amount_cents"]) for row in SALES],
            [("A", "2026-08", 1000), ("B", "2026-08", 2000), ("C", "2026-08", 3000), ("D", "2026-07", 9900)],
        )
        self.assertEqual({type(row["amount_cents"]) for row in SALES}, {int})

    def test_an_august_row_counts_and_a_july_row_does_not(self) -> None:
        """4000 cents more make 10000 in four rows; another July row changes nothing.

        Claims: C10-170, C10-171, C10-307.
        """
        august = {"order_id": "E", "month": "2026-08", "amount_cents": 4000}
        july = {"order_id": "F", "month": "2026-07", "amount_cents": 777}
        self.assertEqual(
            lifecycle_experiment([*SALES, august])["result"]["data"],
            {"month": "2026-08", "row_count": 4, "total_cents": 10000},
        )
        self.assertEqual(lifecycle_experiment([*SALES, july]), lifecycle_experiment())
        self.assertEqual(lifecycle_experiment(month="2026-07")["result"]["data"]["total_cents"], 9900)

    def test_another_connection_finishes_what_the_first_accepted(self) -> None:
        """Two connections to one file, the first one closed before the claim, the same job id.

        Claims: C10-172.
        """
        opened: list[JobStore] = []

        class Watched(JobStore):
            def __init__(self, path: Any) -> None:
                if opened:
                    with self_test.assertRaises(sqlite3.ProgrammingError):
                        opened[0].db.execute("SELECT 1")
                super().__init__(path)
                opened.append(self)

        self_test = self
        with mock.patch.object(experiments, "JobStore", Watched):
            figures = lifecycle_experiment()
        self.assertEqual(len(opened), 2)
        self.assertIsNot(opened[0].db, opened[1].db)
        self.assertEqual(figures["resumed_with_same_job_id"], figures["submitted"]["id"])
        self.assertEqual(figures["result"]["data"]["total_cents"], 6000)

    def test_the_calls_and_their_times_are_those_of_the_chapter(self) -> None:
        """Claim at 1, progress at 2, 3 and 4, delivery at 5.

        Claims: C10-174, C10-175, C10-176, C10-177.
        """
        scene = Scene()
        lifecycle_experiment(scene=scene)
        (_, events), *_ = scene.parts
        self.assertEqual(
            [(event.t, event.what, event.detail) for event in events if event.actor == "worker"],
            [
                (1, "claim(1, lease=100)", "1"),
                (2, "progress(1, 1, 1, 3)", "True"),
                (3, "progress(1, 1, 2, 3)", "True"),
                (4, "progress(1, 1, 3, 3)", "True"),
                (5, "finish(1, 1, {'month': '2026-08', 'row_count': 3, 'total_cents': 6000})", "True"),
            ],
        )

    def test_all_rows_counted_is_not_success(self) -> None:
        """Between the last progress and the delivery the job runs, with 3 of 3.

        Claims: C10-179.
        """
        counted = lifecycle_experiment()["all_rows_counted"]
        self.assertEqual((counted["state"], counted["done"], counted["total"]), ("running", 3, 3))

    def test_the_report_is_plain_arithmetic(self) -> None:
        """For any sales it is the sum that this test works out by itself; nobody is asked anything.

        Claims: C10-178.
        """
        for size in (1, 2, 7, 40):
            rows = [
                {"order_id": str(n), "month": f"2026-0{7 + n % 2}", "amount_cents": n * n * 37 - 500}
                for n in range(size)
            ]
            august = [row["amount_cents"] for row in rows if row["month"] == "2026-08"]
            with self.subTest(size=size):
                self.assertEqual(
                    lifecycle_experiment(rows)["result"]["data"],
                    {"month": "2026-08", "row_count": len(august), "total_cents": sum(august)},
                )

    def test_a_month_without_rows_is_an_empty_report(self) -> None:
        """No progress, and still a result."""
        figures = lifecycle_experiment(month="2026-06")
        self.assertEqual(figures["result"]["data"], {"month": "2026-06", "row_count": 0, "total_cents": 0})
        self.assertEqual([event["kind"] for event in figures["events"]], ["queued", "running", "succeeded"])

    def test_the_number_of_rows_has_a_bound(self) -> None:
        """Each row is an event, so a month may have so many and no more."""
        row = {"order_id": "A", "month": "2026-08", "amount_cents": 1}
        self.assertEqual(MAX_SALES, 90)
        self.assertEqual(lifecycle_experiment([row] * MAX_SALES)["result"]["data"]["total_cents"], MAX_SALES)
        with self.assertRaises(ValueError):
            lifecycle_experiment([row] * (MAX_SALES + 1))
        with self.assertRaises(JobError):
            lifecycle_experiment(month="2026-8")


class JobScenes(FolderTestCase):
    """The job store in the chapter's single scenes."""

    def setUp(self) -> None:
        super().setUp()
        self.store = JobStore(self.folder / "jobs.db")
        self.addCleanup(self.store.close)

    def running(self, **options: Any) -> int:
        job = self.store.submit("alice", "k", AUGUST, now=0, **options)
        self.assertEqual(self.store.claim(job, now=1), 1)
        return job

    def test_progress_never_falls_within_an_attempt(self) -> None:
        """The refusal leaves the stored number; the next attempt counts from the start, under its number.

        Claims: C10-180, C10-181.
        """
        job = self.running()
        self.store.progress(job, 1, 2, 3, now=2)
        with self.assertRaises(JobError) as caught:
            self.store.progress(job, 1, 1, 3, now=3)
        self.assertEqual(caught.exception.code, "invalid_progress")
        self.assertEqual(self.store.get("alice", job)["done"], 2)
        self.store.fail(job, 1, "temporary", now=4, retry_after=0)
        self.store.claim(job, now=5)
        self.store.progress(job, 2, 1, 3, now=6)
        last = self.store.events("alice", job)[-1]
        self.assertEqual((last["attempt"], last["detail"]), (2, {"done": 1, "total": 3}))

    def test_an_event_is_written_with_the_change_or_neither_is(self) -> None:
        """When the event cannot be stored, the state is as before.

        Claims: C10-184.
        """
        job = self.running()
        self.store.db.execute(
            "CREATE TEMP TRIGGER no_event BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        before = list(self.store.db.iterdump())
        for change in (
            lambda: self.store.progress(job, 1, 1, 3, now=2),
            lambda: self.store.finish(job, 1, {}, now=2),
            lambda: self.store.fail(job, 1, "x", now=2),
            lambda: self.store.cancel("alice", job),
        ):
            with self.assertRaises(sqlite3.IntegrityError):
                change()
            self.assertEqual(list(self.store.db.iterdump()), before)

    def test_at_the_deadline_it_is_too_late_and_just_before_it_is_not(self) -> None:
        """`now >= deadline` is past it, checked at the delivery and not only at the start.

        Claims: C10-187, C10-188, C10-189.
        """
        late = self.running(deadline=3)
        self.assertFalse(self.store.finish(late, 1, {}, now=3))
        ended = self.store.get("alice", late)
        self.assertEqual((ended["state"], ended["error"]), ("failed", "deadline_exceeded"))
        self.assertEqual(self.store.receipt_count(late), 0)
        in_time = self.store.submit("alice", "other", AUGUST, now=0, deadline=3)
        self.store.claim(in_time, now=1)
        self.assertTrue(self.store.finish(in_time, 1, {}, now=2))

    def test_looking_changes_nothing(self) -> None:
        """Status, events, a result that is not there and a look at another's job leave every byte as it is.

        Claims: C10-190, C10-191.
        """
        job = self.running()
        before = list(self.store.db.iterdump())
        self.assertEqual(self.store.get("alice", job)["state"], "running")
        self.store.events("alice", job)
        for owner in ("alice", "bob"):
            with self.assertRaises(JobError):
                self.store.result(owner, job)
        self.assertEqual(list(self.store.db.iterdump()), before)

    def test_a_limit_on_the_waiting_is_no_limit_on_the_work(self) -> None:
        """The caller gives up after five looks; the job, which knows nothing of it, succeeds later.

        Claims: C10-190, C10-193.
        """
        job = self.running()
        looks = [self.store.get("alice", job)["state"] for _ in range(5)]
        self.assertEqual(looks, ["running"] * 5)
        self.assertTrue(self.store.finish(job, 1, {}, now=6))
        self.assertEqual(self.store.get("alice", job)["state"], "succeeded")

    def test_two_attempts_include_the_first(self) -> None:
        """Failed at 2 with a wait of 3: not at 4, again at 5, and a second failure is the end.

        Claims: C10-201.
        """
        job = self.running(max_attempts=2)
        self.assertEqual(self.store.fail(job, 1, "temporary", now=2, retry_after=3), "queued")
        self.assertIsNone(self.store.claim(job, now=4))
        self.assertEqual(self.store.claim(job, now=5), 2)
        self.assertEqual(self.store.fail(job, 2, "temporary", now=6, retry_after=3), "failed")
        self.assertIsNone(self.store.claim(job, now=50))

    def test_the_key_keeps_its_job_and_a_new_report_needs_a_new_key(self) -> None:
        """Submitted, repeated, failed, claimed again: job 1 all the time, attempts 1 and 2.

        Claims: C10-219.
        """
        submit = self.store.submit
        job = submit("alice", "august-report", AUGUST, now=0)
        self.assertEqual((job, submit("alice", "august-report", AUGUST, now=1)), (1, 1))
        self.assertEqual(self.store.claim(job, now=1), 1)
        self.store.fail(job, 1, "temporary", now=2, retry_after=0)
        self.assertEqual(self.store.claim(job, now=3), 2)
        self.assertEqual(submit("alice", "august-report", AUGUST, now=4), 1)
        self.assertEqual(submit("alice", "august-report-again", AUGUST, now=4), 2)

    def test_the_late_worker_loses_and_the_receipt_is_the_new_ones(self) -> None:
        """A claims at 1 for 2 seconds, B at 3; at 4 A is stale and B's report is the one receipt.

        Claims: C10-229, C10-308.
        """
        job = self.store.submit("alice", "k", AUGUST, now=0, deadline=10)
        self.assertEqual(self.store.claim(job, now=1, lease=2), 1)
        self.assertEqual(self.store.claim(job, now=3, lease=2), 2)
        with self.assertRaises(LostLease) as caught:
            self.store.finish(job, 1, {"by": "A"}, now=4)
        self.assertEqual(caught.exception.code, "stale_attempt")
        self.assertTrue(self.store.finish(job, 2, {"by": "B"}, now=4))
        self.assertEqual(self.store.receipt_count(job), 1)
        self.assertEqual(self.store.result("alice", job)["data"], {"by": "B"})
        self.assertEqual(self.store.db.execute("SELECT attempt FROM receipts").fetchall(), [(2,)])

    def test_a_lease_that_is_over_does_not_deliver_even_before_anybody_else_claims(self) -> None:
        """At 3 the attempt is still the newest, and its time is over.

        Claims: C10-308.
        """
        job = self.store.submit("alice", "k", AUGUST, now=0, deadline=10)
        self.store.claim(job, now=1, lease=2)
        with self.assertRaises(LostLease) as caught:
            self.store.finish(job, 1, {"by": "A"}, now=3)
        self.assertEqual(caught.exception.code, "lease_expired")
        self.assertEqual(self.store.receipt_count(job), 0)

    def test_wait_for_cancels_and_waits_for_the_cleanup(self) -> None:
        """So it must not wrap work that is meant to live on: the work is over when the timeout is raised.

        Claims: C10-192.
        """
        happened: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                for _ in range(3):
                    await asyncio.sleep(0)
                happened.append("cleaned up")
                raise

        async def caller() -> None:
            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            try:
                await asyncio.wait_for(task, timeout=0)
            except TimeoutError:
                happened.append("timeout seen")
            self.assertTrue(task.cancelled())

        asyncio.run(caller())
        self.assertEqual(happened, ["cleaned up", "timeout seen"])


class FailuresGroup(unittest.TestCase):
    """Each fault at its moment."""

    def test_the_six_faults_of_the_chapter_are_there_with_their_codes(self) -> None:
        """Twice, another intent, late, cancelled, past the deadline, retried to the end.

        Claims: C10-188, C10-190, C10-201, C10-219, C10-229, C10-276.
        """
        figures = failures_experiment()
        self.assertIs(figures["same_submission_same_job"], True)
        self.assertEqual(figures["key_conflict"], "key_conflict")
        self.assertEqual((figures["recovery_attempts"], figures["recovered_receipts"]), ([1, 2], 1))
        self.assertEqual((figures["expired_worker"], figures["stale_worker"]), ("lease_expired", "stale_attempt"))
        self.assertEqual((figures["cancel_before_commit"], figures["cancel_after_commit"]), ("cancelled", "succeeded"))
        self.assertEqual(figures["deadline_error"], "deadline_exceeded")
        self.assertEqual(figures["stopped_polling_job_state"], "running")
        self.assertEqual((figures["retry_final"]["attempt"], figures["early_retry"]), (2, None))

    def test_a_queued_job_is_cancelled_at_once_and_a_running_one_is_asked(self) -> None:
        """Where nobody works there is nobody to wait for."""
        figures = failures_experiment()
        self.assertEqual(figures["cancel_while_queued"], "cancelled")
        self.assertEqual(figures["cancel_acknowledgement"], "cancel_requested")


class OwnData(FolderTestCase):
    """The same machinery on files of a reader."""

    def sales(self, text: str, encoding: str = "utf-8") -> Path:
        path = self.folder / "sales.csv"
        path.write_text(text, encoding=encoding, newline="\n")
        return path

    def test_the_fixture_as_a_file_gives_the_same_report(self) -> None:
        """Same data, same digest; a byte order mark does not matter."""
        rows = "".join(f"{row['order_id']},{row['month']},{row['amount_cents']}\n" for row in SALES)
        for encoding in ("utf-8", "utf-8-sig"):
            path = self.sales("order_id,month,amount_cents\n" + rows, encoding)
            done = run_here([*PROGRAM, "--group", "lifecycle", "--sales", str(path), "--month", "2026-08"])
            self.assertEqual((done.code, done.errors), (0, ""))
            printed = json.loads(done.out)
            self.assertEqual(printed["result"], PUBLISHED["lifecycle"]["result"])
            self.assertEqual(printed["submitted"], PUBLISHED["lifecycle"]["submitted"])
            self.assertEqual((printed["fault"], printed["final"]["state"]), (None, "succeeded"))
            self.assertEqual([event["kind"] for event in printed["new_events_after_cursor"]], ["succeeded"])

    def test_a_bad_row_fails_the_job_with_a_code_and_the_line(self) -> None:
        """The job keeps the code, the output says where, the exit code is 1, and there is no result."""
        path = self.sales("order_id,month,amount_cents\nA,2026-08,1000\nB,2026-08,12.5\n")
        code, out, err = run_main("--group", "lifecycle", "--sales", str(path), "--month", "2026-08")
        self.assertEqual(code, 1)
        printed = json.loads(out)
        self.assertEqual((printed["fault"]["code"], printed["fault"]["line"]), ("bad_amount", 3))
        self.assertEqual((printed["final"]["state"], printed["final"]["error"]), ("failed", "bad_amount"))
        self.assertIs(printed["result"], None)
        self.assertEqual(printed["events"][-1]["detail"], {"error": "bad_amount"})
        self.assertEqual(err, f"{path}, line 3: bad_amount: {printed['fault']['reason']}\n")

    def test_many_rows_are_few_events(self) -> None:
        """Ten thousand rows, a hundred reports of progress, the exact total."""
        path = self.sales("order_id,month,amount_cents\n" + "".join(f"A,2026-08,{n}\n" for n in range(10_000)))
        code, out, _ = run_main("--group", "lifecycle", "--sales", str(path), "--month", "2026-08")
        printed = json.loads(out)
        self.assertEqual((code, printed["result"]["data"]["total_cents"]), (0, sum(range(10_000))))
        kinds = [event["kind"] for event in printed["events"]]
        self.assertEqual(kinds, ["queued", "running", *["progress"] * 100, "succeeded"])

    def tools(self, *entries: dict[str, Any]) -> str:
        path = self.folder / "tools.json"
        path.write_text(json.dumps({"tools": entries}, ensure_ascii=False), encoding="utf-8")
        return str(path)

    def catalog(self, path: str, query: str, *more: str) -> dict[str, Any]:
        code, out, err = run_main("--group", "catalog", "--tools", path, "--query", query, *more)
        self.assertEqual((code, err), (0, ""))
        printed: dict[str, Any] = json.loads(out)
        return printed

    def test_a_tool_list_is_weighed_like_the_chapters_catalog(self) -> None:
        """Same keys, same arithmetic; the words of names, titles and descriptions find a tool.

        Claims: C10-263.
        """
        path = self.tools(
            {"name": "createIssue", "description": "Open a new issue."},
            {"name": "list_issues", "title": "查询问题", "annotations": {"readOnlyHint": True}},
            {"name": "silent"},
        )
        printed = self.catalog(path, "create_issue")
        self.assertLessEqual(set(PUBLISHED["catalog"]), set(printed))
        self.assertEqual((printed["registered"], printed["discoverable"], printed["loaded"]), (3, 3, 1))
        self.assertEqual((printed["query"], printed["hits"]), ("create issue", [{"name": "createIssue", "score": 2}]))
        parts = ("bootstrap_bytes", "hit_summaries_bytes", "loaded_definitions_bytes")
        self.assertEqual(printed["deferred_visible_payload_bytes"], sum(printed[part] for part in parts))
        self.assertEqual(self.catalog(path, "问题")["hits"], [{"name": "list_issues", "score": 1}])
        self.assertEqual(self.catalog(path, "!?")["hits"], [])
        three = self.tools(*({"name": f"issue{sign}"} for sign in "ABC"))
        self.assertEqual(len(self.catalog(three, "issue")["hits"]), 2)  # where nobody says how many

    def test_a_permission_is_granted_unless_the_grants_say_otherwise(self) -> None:
        """The default finds everything, another grant nothing, the right one everything again."""
        path = self.tools({"name": "a"}, {"name": "b"})
        self.assertEqual(self.catalog(path, "a", "--permission", "p")["discoverable"], 2)
        self.assertEqual(self.catalog(path, "a", "--permission", "p", "--grant", "q")["discoverable"], 0)
        granted = self.catalog(path, "a", "--permission", "p", "--grant", "q", "--grant", "p", "--limit", "1")
        self.assertEqual((granted["discoverable"], granted["loaded"]), (2, 1))
        code, out, _ = run_main("--group", "catalog", "--tools", path, "--query", "a", "--permission", "p" * 300)
        self.assertEqual((code, out), (2, ""))

    def test_what_is_odd_in_a_list_is_said(self) -> None:
        """A name that stands twice counts once, and a definition that never fits is named."""
        path = self.tools(
            {"name": "a"}, {"name": "a", "description": "other"}, {"name": "big", "description": "x" * 5000}
        )
        printed = self.catalog(path, "big")
        self.assertEqual(printed["left_out"], {"count": 1, "first": [{"name": "a", "place": "tools[1]"}]})
        self.assertEqual(
            (printed["never_loadable"]["count"], printed["never_loadable"]["first"][0]["name"]), (1, "big")
        )
        self.assertEqual((printed["loaded"], printed["refused"]), (0, "definition_budget_exceeded"))
        self.assertEqual(printed["needed_bytes"], printed["never_loadable"]["first"][0]["bytes"])

    def test_what_is_named_has_a_bound(self) -> None:
        """A thousand repeated names are counted, twenty are listed."""
        printed = self.catalog(self.tools(*[{"name": "a"}] * 1001), "a")
        self.assertEqual((printed["left_out"]["count"], len(printed["left_out"]["first"])), (1000, MAX_NAMED))

    def test_a_bad_tool_list_is_one_line_with_place_and_reason(self) -> None:
        """Exit code 1, nothing on standard output."""
        deep: dict[str, Any] = {}
        for _ in range(98):
            deep = {"properties": deep}
        path = self.tools({"name": "a", "inputSchema": deep})
        self.assertIn("tools[0].inputSchema", run_main("--group", "catalog", "--tools", path, "--query", "a")[2])
        path = self.tools({"name": "a"}, {"name": 3})
        code, out, err = run_main("--group", "catalog", "--tools", path, "--query", "a")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err, f"{path}: bad_tool_list: tools[1].name: not a text\n")

    def test_what_means_nothing_together_is_usage(self) -> None:
        """Exit code 2, one line that says why, and nothing has run."""
        path = str(self.sales("order_id,month,amount_cents\n"))
        mistakes = [
            ["--write", "--check"],
            ["--write", "--group", "catalog"],
            ["--check", "--group", "catalog", "--query", "x"],
            ["--write", "--group", "lifecycle", "--sales", path, "--month", "2026-08"],
            ["--write", "--group", "catalog", "--tools", path, "--query", "x"],
            ["--query", "x"],
            ["--group", "lifecycle", "--query", "x"],
            ["--group", "concurrency", "--limit", "0"],
            ["--group", "failures", "--lease", "0"],
            ["--group", "boundaries", "--query", "x" * 2000],
            ["--predict"],
            ["--write", "--predict"],
            ["--group", "catalog", "--answers", "a"],
            ["--group", "catalog", "--no-save"],
            ["--check", "--json"],
            ["--write", "--lang", "zh"],
            ["--group", "catalog", "--predict", "--json"],
            ["--group", "catalog", "--predict", "--answers", "z"],
            ["--group", "catalog", "--predict", "--answers", "a,b,c,a"],
            ["--group", "catalog", "--predict", "--tools", path, "--query", "x"],
            ["--group", "catalog", "--month", "2026-08"],
            ["--group", "catalog", "--limit", "0"],
            ["--group", "catalog", "--limit", "x"],
            ["--group", "catalog", "--query", "x" * 2000],
            ["--group", "catalog", "--query", "\udcff"],
            ["--group", "catalog", "--tools", path],
            ["--group", "catalog", "--permission", "p", "--query", "x"],
            ["--group", "catalog", "--tools", path + "x", "--query", "x"],
            ["--group", "lifecycle", "--sales", path],
            ["--group", "lifecycle", "--sales", path + "x", "--month", "2026-08"],
            ["--group", "lifecycle", "--sales", str(self.folder), "--month", "2026-08"],
            ["--group", "lifecycle", "--sales", path, "--month", "2026-8"],
            ["--group", "lifecycle", "--month", "August"],
            ["more"],
        ]
        before = sorted(self.folder.iterdir())
        for arguments in mistakes:
            with self.subTest(arguments=arguments), mock.patch.object(experiments, "write_reports") as write:
                code, out, err = run_main(*arguments)
                self.assertEqual((code, out), (2, ""))
                self.assertIn("error: ", err.splitlines()[-1])
                write.assert_not_called()
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_the_line_names_the_option_that_is_missing(self) -> None:
        """Not an error of some deeper part."""
        path = str(self.sales("order_id,month,amount_cents\n"))
        _, _, err = run_main("--group", "lifecycle", "--sales", path)
        self.assertIn("--sales needs --month", err)
        _, _, err = run_main("--group", "catalog", "--tools", path)
        self.assertIn("--tools needs --query", err)

    def test_grants_and_month_change_the_groups_on_the_fixtures(self) -> None:
        """`--grant` replaces the identity; `--month` alone takes another month of the four sales."""
        code, out, _ = run_main("--group", "catalog", "--query", "订单 退款", "--grant", "refunds:write")
        self.assertEqual((code, json.loads(out)["discoverable"]), (0, 1))
        code, out, _ = run_main("--group", "lifecycle", "--month", "2026-07")
        self.assertEqual((code, json.loads(out)["result"]["data"]["total_cents"]), (0, 9900))


if __name__ == "__main__":
    unittest.main()
