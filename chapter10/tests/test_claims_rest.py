"""What the chapter says at its edges: limits, examples and advice that no single room owns.

Most of these sentences say what a figure is *not*, or where a chapter's part ends and a companion takes
over. Each test shows both sides.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import logging
import sqlite3
import unittest
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from chapter10.catalog import FIXTURE_GRANTS, Catalog, fixture_tools
from chapter10.companions.retrying.retry import backoff_ms
from chapter10.companions.tools.executor import StreamingToolExecutor
from chapter10.companions.tools.registry import Status, ToolRegistry, ToolSpec, invoke_tool
from chapter10.companions.tools.result_store import BudgetError, ResultStore
from chapter10.companions.tools.tool_calls import ProgressSink, ToolCall
from chapter10.concurrency import bounded_reads
from chapter10.experiments import QUERY, boundaries_experiment, catalog_experiment, lifecycle_experiment, run_all
from chapter10.jobs import STATES, JobError, JobStore
from chapter10.tests.support import TOP, FolderTestCase
from chapter10.tests.syntax import imported_roots, modules, nodes
from chapter10.tests.virtual_time import VirtualLoop, pause, run_virtual

MEASURES = ("latency", "seconds", "_ms", "tokens", "cost", "price", "throughput", "per_second", "success_rate")
"""Parts of names that would speak of speed, money or quality."""


def named_values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every member of a JSON value, at any depth, by its name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from named_values(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from named_values(inner, name)


class WhatTheFiguresAreNot(unittest.TestCase):
    """Counts and bytes are computed; nothing else is claimed."""

    def test_the_catalog_group_has_three_counts_and_each_part_of_the_bytes(self) -> None:
        """Counts of the three sets, the three parts on demand, their sum, and the full path.

        Claims: C10-065, C10-069.
        """
        figures = catalog_experiment()
        self.assertEqual([figures[name] for name in ("registered", "discoverable", "loaded")], [300, 299, 2])
        parts = [figures[f"{part}_bytes"] for part in ("bootstrap", "hit_summaries", "loaded_definitions")]
        self.assertEqual(sum(parts), figures["deferred_visible_payload_bytes"])
        self.assertGreater(figures["full_definitions_bytes"], sum(parts))

    def test_the_figures_are_computed_from_the_tools_and_kept_in_the_report(self) -> None:
        """Other tools give other figures; the committed file has those of the fixture.

        Claims: C10-067.
        """
        report = json.loads((TOP / "reports" / "tool-jobs-evidence.json").read_text(encoding="utf-8"))
        self.assertEqual(report["groups"]["catalog"], catalog_experiment())
        longer = [
            replace(tool, description=tool.description + "!") if tool.name == "orders.get" else tool
            for tool in fixture_tools()
        ]
        changed = catalog_experiment(tools=longer)
        for part in ("hit_summaries_bytes", "loaded_definitions_bytes", "full_definitions_bytes"):
            self.assertEqual(changed[part], report["groups"]["catalog"][part] + 1, part)

    def test_no_figure_speaks_of_speed_tokens_money_or_quality(self) -> None:
        """What sounds like a measurement is null; there is no 600 or 200 ms and no throughput.

        Claims: C10-068, C10-093, C10-151.
        """
        found = [(name, value) for name, value in named_values(run_all()) if any(word in name for word in MEASURES)]
        self.assertIn(("measured_network_latency_ms", None), found)
        self.assertIn(("provider_tokens", None), found)
        self.assertEqual({value for _, value in found}, {None})

    def test_a_tie_is_shown_as_a_tie(self) -> None:
        """Both tools come back with equal scores and nothing says which one to take.

        Claims: C10-048.
        """
        tied = boundaries_experiment()["ambiguous_query"]
        self.assertEqual(len(tied), 2)
        self.assertEqual(tied[0]["score"], tied[1]["score"])
        self.assertEqual({key for hit in tied for key in hit}, {"name", "score"})

    def test_exactly_once_is_not_claimed(self) -> None:
        """The evidence says so in a field, and no other name in it says the opposite.

        Claims: C10-241, I4-010, I4-052.
        """
        evidence = run_all()
        self.assertIs(evidence["external_exactly_once"], False)
        claims = [(name, value) for name, value in named_values(evidence) if "exactly" in name]
        self.assertEqual(claims, [("external_exactly_once", False)])

    def test_the_model_would_get_a_summary_and_no_rows(self) -> None:
        """The loop adds up; what is handed over are three members in whole cents, and no row is among them.

        Claims: C10-125, C10-169.
        """
        data = lifecycle_experiment()["result"]["data"]
        self.assertIs(type(data["total_cents"]), int)
        self.assertEqual(data, {"month": "2026-08", "row_count": 3, "total_cents": 6000})

    def test_events_hold_four_members_and_counts_or_codes(self) -> None:
        """No correlation, no queue time, no question: that would be a trace, and this is none.

        Claims: C10-254, C10-255.
        """
        for event in lifecycle_experiment()["events"]:
            self.assertEqual(set(event), {"seq", "kind", "attempt", "detail"})
            self.assertLessEqual(set(event["detail"]), {"done", "total", "error"})


class ThreeReads(unittest.TestCase):
    """Limits and rates by a clock that is moved by hand."""

    def time_of(self, calls: int, limit: int, seconds: float) -> float:
        async def read(argument: int) -> int:
            await pause(seconds)
            return argument

        async def main(loop: VirtualLoop) -> float:
            start = loop.time()
            await bounded_reads([(f"call-{number:04}", number) for number in range(calls)], read, limit)
            return loop.time() - start

        return run_virtual(main)

    def test_three_reads_of_200_ms_take_600_400_or_200(self) -> None:
        """One after the other, two at a time, three at a time: the ideal count of the exercise.

        Claims: C10-093, C10-302.
        """
        times = [round(self.time_of(3, limit, 0.2) * 1000) for limit in (1, 2, 3)]
        self.assertEqual(times, [600, 400, 200])

    def test_ten_slots_of_10_ms_are_a_thousand_a_second(self) -> None:
        """The same limit lets slow calls through a hundred times more rarely: it is no rate limit.

        Claims: C10-287.
        """
        self.assertEqual(round(1000 / self.time_of(1000, 10, 0.010)), 1000)
        self.assertEqual(round(1000 / self.time_of(1000, 10, 1.0)), 10)


class WhereACompanionTakesOver(FolderTestCase):
    """The chapter's part ends here; the companion's begins."""

    def setUp(self) -> None:
        super().setUp()
        logging.disable(logging.CRITICAL)  # refused calls are what is looked at here
        self.addCleanup(logging.disable, logging.NOTSET)

    def spec(self, handler: Any, **options: Any) -> ToolSpec:
        values: dict[str, Any] = {
            "name": "orders.note",
            "description": "Adds a note to an order.",
            "effect": "reversible_write",
            "timeout_seconds": 1.0,
            "max_attempts": 3,
            "max_output_chars": 200,
            "handler": handler,
            "idempotency_key": lambda arguments: "note",
        }
        return ToolSpec(**values | options)

    def call(self, spec: ToolSpec, arguments: dict[str, Any]) -> dict[str, Any]:
        registry = ToolRegistry()
        registry.register(spec)
        return invoke_tool(registry, spec.name, arguments)

    def test_arguments_are_checked_before_any_handler(self) -> None:
        """A definition that came late is no reason to look at the arguments after the error.

        Claims: C10-058.
        """
        calls: list[str] = []

        def note(order_id: str) -> str:
            calls.append(order_id)
            return "noted"

        schema = {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
            "additionalProperties": False,
        }
        for arguments in ({}, {"order_id": 7}, {"order_id": "A", "more": 1}):
            answer = self.call(self.spec(note, parameters=schema), arguments)
            self.assertEqual(answer["error"], "invalid_arguments")
        self.assertEqual(calls, [])
        self.assertTrue(self.call(self.spec(note, parameters=schema), {"order_id": "A"})["ok"])
        self.assertEqual(calls, ["A"])

    def test_the_definition_that_is_shown_is_the_one_that_is_checked(self) -> None:
        """In the registry one schema is both, and the catalog is made from it; the chapter's tools have no handler.

        Claims: C10-064.
        """
        schema = {"type": "object", "properties": {"order_id": {"type": "string", "maxLength": 3}}}
        registry = ToolRegistry()
        registry.register(self.spec(lambda order_id="": order_id, parameters=schema, keywords=("note",)))
        catalog = registry.catalog()
        shown = catalog.load(catalog.search("note", {"public"}), {"public"})[0]
        self.assertEqual(shown["parameters"], schema)
        self.assertTrue(invoke_tool(registry, "orders.note", {"order_id": "abc"})["ok"])
        refused = invoke_tool(registry, "orders.note", {"order_id": "abcd"})
        self.assertEqual(refused["error"], "invalid_arguments")
        self.assertFalse(any(hasattr(tool, "handler") for tool in fixture_tools()))

    def test_reads_keep_a_class_name_and_the_registry_gives_a_code(self) -> None:
        """In neither of the two is the text of the exception.

        Claims: C10-111.
        """

        def broken(*_: Any) -> str:
            raise LookupError("the secret of order A")

        async def read(argument: str) -> str:
            return broken(argument)

        outcome = asyncio.run(bounded_reads([("call-A", "A")], read))
        answer = self.call(self.spec(broken, parameters={"type": "object"}), {})
        self.assertEqual(outcome, {"call-A": {"error": "LookupError"}})
        self.assertEqual(answer, {"ok": False, "error": "tool_failure", "retryable": False})

    def test_an_unknown_outcome_is_no_failure_and_is_not_tried_again(self) -> None:
        """The job's six states know no unknown, because its results are in its own database; a write outside does.

        Claims: C10-166, C10-242.
        """
        calls: list[str] = []

        def pay(order_id: str) -> str:
            calls.append(order_id)
            raise TimeoutError

        def ask(key: str, arguments: dict[str, Any]) -> Status:
            return Status("unknown")

        def key(arguments: dict[str, Any]) -> str:
            return str(arguments["order_id"])

        for options in ({}, {"status_query": ask, "idempotency_key": key}):
            answer = self.call(self.spec(pay, **options), {"order_id": "A"})
            self.assertEqual(answer, {"ok": False, "error": "outcome_unknown", "retryable": False})
        self.assertEqual(calls, ["A", "A"])
        self.assertFalse([state for state in STATES if "unknown" in state])

    def mails_of(self, name: str, send: Callable[[str], None]) -> None:
        """Two attempts of one job: the first ends after its mail and before `finish`, the second delivers."""
        with JobStore(self.folder / f"{name}.db") as store:
            job = store.submit("alice", "august-report", {"month": "2026-08"}, now=0)
            self.assertEqual(store.claim(job, now=1, lease=10), 1)
            send("alice/august-report")
            self.assertEqual(store.claim(job, now=20, lease=10), 2)
            send("alice/august-report")
            self.assertTrue(store.finish(job, 2, {"total_cents": 6000}, now=21))
            self.assertEqual(store.receipt_count(job), 1)

    def test_a_mail_before_the_commit_is_sent_twice_unless_somebody_knows_the_key(self) -> None:
        """One receipt and two mails: no constraint of the store binds the mail service.

        Either the service knows the key, or the mail is marked as pending before it is sent, and what is
        pending is not sent again but confirmed by a person.

        Claims: C10-240, C10-310.
        """
        blind: list[str] = []
        self.mails_of("blind", blind.append)
        self.assertEqual(len(blind), 2)

        known: set[str] = set()
        self.mails_of("known", known.add)
        self.assertEqual(len(known), 1)

        pending: dict[str, str] = {}
        careful: list[str] = []

        def send(key: str) -> None:
            if key not in pending:
                pending[key] = "to be confirmed"
                careful.append(key)

        self.mails_of("careful", send)
        self.assertEqual((careful, pending), (["alice/august-report"], {"alice/august-report": "to be confirmed"}))

    def test_waits_of_a_job_are_fixed_and_those_of_a_caller_have_jitter(self) -> None:
        """The store keeps the time that it was told; the retry policy draws from a range that grows.

        Claims: C10-203, C10-204.
        """
        with JobStore(self.folder / "jobs.db") as store:
            job = store.submit("alice", "august-report", {"month": "2026-08"}, now=0)
            attempt = store.claim(job, now=1)
            assert attempt is not None
            store.fail(job, attempt, "temporary", now=2, retry_after=3)
            self.assertEqual([store.claim(job, now=now) for now in (4, 4.99, 5)], [None, None, 2])
        least = [backoff_ms(attempt, random=lambda: 0.0) for attempt in (0, 1, 2)]
        middle = [backoff_ms(attempt, random=lambda: 0.5) for attempt in (0, 1, 2)]
        self.assertEqual((least, middle), ([100, 200, 400], [200, 400, 800]))

    def test_a_stored_result_is_not_reached_by_a_path(self) -> None:
        """Absolute paths, parents and links are no result, whatever stands there.

        Claims: C10-248.
        """
        (self.folder / "secret.txt").write_text("the secret", encoding="utf-8")
        store = ResultStore(self.folder / "results")
        stored = store.save("a long result")
        self.assertEqual(store.read(stored.path), "a long result")
        folder = stored.path.partition("/")[0]
        for path in (str(self.folder / "secret.txt"), "../secret.txt", f"{folder}/../secret.txt", "/etc/passwd"):
            with self.assertRaises(BudgetError) as caught:
                store.read(path)
            self.assertEqual(caught.exception.code, "not_stored")

    def test_a_refund_and_the_read_after_it_are_not_in_flight_together(self) -> None:
        """The write runs alone; the read that depends on it starts when it has ended.

        Claims: C10-098.
        """
        log: list[str] = []

        async def run(call: ToolCall, progress: ProgressSink) -> str:
            log.append(f"start {call.name}")
            await asyncio.sleep(0)
            log.append(f"end {call.name}")
            return "done"

        async def main() -> None:
            executor = StreamingToolExecutor(run, is_safe=lambda call, _: call.name == "orders.get")
            for number, name in enumerate(("refunds.create", "orders.get")):
                executor.add(ToolCall(str(number), name, "{}"))
            executor.end_input()
            async for _ in executor.updates():
                pass

        asyncio.run(main())
        self.assertEqual(log, ["start refunds.create", "end refunds.create", "start orders.get", "end orders.get"])


class WhatIsNotHere(unittest.TestCase):
    """Limits that are stated are limits that can be seen."""

    def test_no_module_serves_http(self) -> None:
        """The worker's verbs are mapped to no route: nothing here could open one.

        Claims: C10-156, C10-284.
        """
        servers = {"http", "socketserver", "wsgiref", "xmlrpc", "socket"}
        for name, source in modules().items():
            with self.subTest(module=name):
                self.assertFalse(servers & set(imported_roots(source.tree)))
                called = {node.attr for node in nodes(source.tree) if isinstance(node, ast.Attribute)}
                self.assertFalse(called & {"start_server", "create_server", "start_unix_server"})

    def test_the_gateway_decides_on_tools_and_not_on_records(self) -> None:
        """One permission covers every record of a tool: which record it is, is nowhere asked.

        Claims: C10-023, C10-091.
        """
        catalog = Catalog(fixture_tools())
        loaded = catalog.load(catalog.search(QUERY, FIXTURE_GRANTS, limit=1), FIXTURE_GRANTS)
        tool = catalog.authorize(loaded[0], FIXTURE_GRANTS)
        self.assertEqual(tool.name, "orders.get")
        self.assertEqual(set(tool.definition()["parameters"]["properties"]), {"record_id"})
        self.assertEqual(tool.permission, "orders:read")
        self.assertEqual(list(inspect.signature(catalog.authorize).parameters), ["loaded", "grants"])

    def test_a_phrase_of_natural_language_and_a_synonym_find_nothing(self) -> None:
        """There is no understanding, no vector and no synonym behind the keywords; filtering first stays.

        Claims: C10-034, C10-051.
        """
        catalog = Catalog(fixture_tools())
        for query in ("帮我看看包裹到哪了", "订单A付过款了吗", "快递", "order state"):
            self.assertEqual(catalog.search(query, FIXTURE_GRANTS), [])
        self.assertTrue(catalog.search("物流", FIXTURE_GRANTS))

    def test_five_causes_of_a_bad_search_can_be_told_apart(self) -> None:
        """Exact name, alias, missing permission, no such ability, a tie: each has an outcome of its own kind.

        Claims: C10-052, C10-053, C10-054, C10-056.
        """
        catalog = Catalog(fixture_tools())
        everything = FIXTURE_GRANTS | {"refunds:write"}
        wanted = {
            "exact name": ("orders.get", "orders.get"),
            "alias": ("快递", "shipments.get"),
            "permission": ("退款", "refunds.create"),
            "no such ability": ("火星 着陆", None),
            "tie": ("状态", "shipments.get"),
        }
        found = {}
        for cause, (query, tool) in wanted.items():
            names = [hit["name"] for hit in catalog.search(query, FIXTURE_GRANTS, limit=5)]
            with_all = [hit["name"] for hit in catalog.search(query, everything, limit=5)]
            found[cause] = {
                "covered": tool in names,
                "misleading": sum(name != tool for name in names),
                "hidden": tool in with_all and tool not in names,
            }
        self.assertEqual(
            found,
            {
                "exact name": {"covered": False, "misleading": 0, "hidden": False},  # a name is no keyword here
                "alias": {"covered": False, "misleading": 0, "hidden": False},
                "permission": {"covered": False, "misleading": 0, "hidden": True},
                "no such ability": {"covered": False, "misleading": 0, "hidden": False},
                "tie": {"covered": True, "misleading": 1, "hidden": False},
            },
        )

    def test_two_writers_of_one_quota_need_the_database(self) -> None:
        """Different arguments, one account: a plan in the application does not see it, a constraint does.

        Claims: C10-100.
        """
        db = sqlite3.connect(":memory:")
        self.addCleanup(db.close)
        db.execute("CREATE TABLE quota (account TEXT PRIMARY KEY, remaining INTEGER CHECK (remaining >= 0))")
        db.execute("INSERT INTO quota VALUES ('acme', 1)")

        async def spend(order_id: str) -> str:
            db.execute("UPDATE quota SET remaining = remaining - 1 WHERE account = 'acme'")
            return order_id

        outcome = asyncio.run(bounded_reads([("call-A", "A"), ("call-B", "B")], spend, limit=1))
        self.assertEqual(outcome, {"call-A": {"value": "A"}, "call-B": {"error": "IntegrityError"}})

    def test_an_iterator_is_not_shared_between_threads(self) -> None:
        """A generator that is being advanced refuses the next hand; only `await`s may lie between two items.

        Claims: C10-112, C10-113.
        """

        def items() -> Iterator[int]:
            yield 1
            next(shared)  # another hand, while the first is inside
            yield 2

        shared = items()
        self.assertEqual(next(shared), 1)
        with self.assertRaisesRegex(ValueError, "already executing"):
            next(shared)

    def test_computing_holds_the_loop_of_the_reads(self) -> None:
        """A read that computes and never awaits lets no other start: a limit of two gives a peak of one.

        Claims: C10-095.
        """
        running, peaks = 0, []

        async def compute(argument: int) -> int:
            nonlocal running
            running += 1
            peaks.append(running)
            total = sum(range(argument))  # no await: nobody else gets a turn
            running -= 1
            return total

        asyncio.run(bounded_reads([("call-A", 1000), ("call-B", 2000)], compute, limit=2))
        self.assertEqual(peaks, [1, 1])


class Answers(FolderTestCase):
    """Facts behind the exercises that are answered in words."""

    def test_300_299_and_2_and_where_permission_is_decided(self) -> None:
        """Two loaded is not two permitted: a third tool is authorised when it is loaded, and revoked when it is not.

        Claims: C10-299.
        """
        catalog = Catalog(fixture_tools())
        self.assertEqual((len(catalog.tools), len(catalog.discoverable(FIXTURE_GRANTS))), (300, 299))
        hits = catalog.search(QUERY, FIXTURE_GRANTS, limit=2)
        self.assertEqual(len(catalog.load(hits, FIXTURE_GRANTS)), 2)
        third = catalog.load(catalog.search("报表", FIXTURE_GRANTS, limit=1), FIXTURE_GRANTS)[0]
        self.assertEqual(catalog.authorize(third, FIXTURE_GRANTS).name, "reports.export")

    def test_scores_by_hand(self) -> None:
        """Three words each; the refund tool is not scored without its permission; one word ties.

        Claims: C10-300.
        """
        catalog = Catalog(fixture_tools())
        words = {name: catalog.tools[name].keywords for name in ("orders.get", "shipments.get", "refunds.create")}
        self.assertEqual(
            words,
            {
                "orders.get": ("查询", "订单", "状态"),
                "shipments.get": ("查询", "物流", "状态"),
                "refunds.create": ("订单", "退款", "申请"),
            },
        )
        scores = [(hit["name"], hit["score"]) for hit in catalog.search(QUERY, {"orders:read"})]
        self.assertEqual(scores, [("orders.get", 3), ("shipments.get", 2)])
        tied = [(hit["name"], hit["score"]) for hit in catalog.search("状态", {"orders:read"})]
        self.assertEqual(tied, [("orders.get", 1), ("shipments.get", 1)])

    def test_three_random_keys_are_three_jobs(self) -> None:
        """One key three times is one job: the key is the caller's, the number is the store's.

        Claims: C10-303.
        """
        with JobStore(self.folder / "jobs.db") as store:
            month = {"month": "2026-08"}
            fresh = [store.submit("alice", key, month, now=0) for key in ("k-71", "k-05", "k-33")]
            same = [store.submit("alice", "august-report", month, now=0) for _ in range(3)]
            self.assertEqual((len(set(fresh)), len(set(same))), (3, 1))
            with self.assertRaises(JobError):
                store.submit("alice", "", month, now=0)

    def test_neither_a_cursor_nor_a_result_makes_another_intent(self) -> None:
        """Read from anywhere, with or without a result: the key is the intent, and the job is the same.

        Claims: C10-243.
        """
        with JobStore(self.folder / "jobs.db") as store:
            month = {"month": "2026-08"}
            job = store.submit("alice", "august-report", month, now=0)
            for cursor in (0, 1):
                store.events("alice", job, after=cursor)
                self.assertEqual(store.submit("alice", "august-report", month, now=1), job)
            self.assertEqual(store.claim(job, now=2), 1)
            self.assertTrue(store.finish(job, 1, {"total_cents": 6000}, now=3))
            self.assertEqual(store.result("alice", job)["artifact_id"], "report-1")
            self.assertEqual(store.submit("alice", "august-report", month, now=4), job)

    def test_150_452_and_810_are_1412(self) -> None:
        """Bytes of three parts, and each part is text of which no tokenizer was asked.

        Claims: C10-301.
        """
        figures = catalog_experiment()
        parts = [figures[f"{part}_bytes"] for part in ("bootstrap", "hit_summaries", "loaded_definitions")]
        self.assertEqual((parts, sum(parts)), ([150, 452, 810], 1412))
        self.assertIsNone(run_all()["provider_tokens"])


if __name__ == "__main__":
    unittest.main()
