"""The chapter's five experiments, and the evidence that they leave.

    python -m chapter10.experiments                     all five, as one JSON object
    python -m chapter10.experiments --group catalog     one of them
    python -m chapter10.experiments --group catalog --predict
                                                        guess first, then run, then compare
    python -m chapter10.experiments --write             write the three reports anew
    python -m chapter10.experiments --check             compare the reports with a new run

On your own data (standard output only, the reports are not touched):

    --group catalog --query "报表 导出" --limit 3 [--grant PERMISSION]...
    --group boundaries --query 订单    --group concurrency --limit 3    --group failures --lease 3
    --group catalog --tools TOOLS.json --query "..." [--permission PERMISSION] [--grant PERMISSION]...
    --group lifecycle --sales SALES.csv --month 2026-08

Each experiment is one function that needs none of the others: fixed queries, fixed order, logical time,
a database in a temporary folder that is closed and removed. What differs between two runs differs in
the code of the catalog or the jobs, not in what a model chose. Nothing here measures a model, a network
or speed, and what was not measured is null.

Exit codes: 0 fine, 1 wrong (a report differs, a file is bad), 2 usage, 3 the machine lacks something.
Source: the chapter's section on its five experiments (claims C10-115 to C10-117, C10-167 to C10-194,
C10-201, C10-219, C10-229, C10-251, C10-263 to C10-282).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from chapter10.catalog import (
    BUDGET_BYTES,
    FIXTURE_GRANTS,
    Catalog,
    CatalogError,
    Grants,
    Tool,
    byte_size,
    fixture_tools,
    search_entry,
)
from chapter10.companions.finding.tool_list import DEFAULT_PERMISSION, ToolListError, read_tool_list, words_of
from chapter10.concurrency import ReadsError, bounded_reads
from chapter10.jobs import JobError, JobStore
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG, json_text, main_guard, print_json
from chapter10.lab.evidence.evidence import Scene, differences, envelope, page, replace_together, say_differences
from chapter10.lab.guessing.predict import Outcome, predict_group
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.reader.experiments_command import command_line, refuse_what_does_not_combine
from chapter10.lab.reader.own_data import export_sales, remarks

__all__ = [
    "CONTRACT",
    "GROUPS",
    "MAX_SALES",
    "QUERY",
    "REPORTS",
    "SALES",
    "boundaries_experiment",
    "catalog_experiment",
    "check_reports",
    "concurrency_experiment",
    "failures_experiment",
    "lifecycle_experiment",
    "main",
    "reports_folder",
    "run_all",
    "write_reports",
]

QUERY: Final = "查询 订单 状态"
"""The query of the chapter: three words, of which the order tool has three and the shipment tool two."""

SALES: Final[Sequence[Mapping[str, Any]]] = [
    {"order_id": "A", "month": "2026-08", "amount_cents": 1000},
    {"order_id": "B", "month": "2026-08", "amount_cents": 2000},
    {"order_id": "C", "month": "2026-08", "amount_cents": 3000},
    {"order_id": "D", "month": "2026-07", "amount_cents": 9900},
]
"""Four sales in whole cents, so that the report can be worked out by hand."""

MAX_SALES: Final = 90
"""The most rows of a month in `lifecycle_experiment`, which reports each; `own_data.export_sales` takes any number."""

REPORTS: Final = ("tool-jobs-evidence.json", "tool-jobs-evidence.md", "job-events.jsonl")
"""The files that `write_reports` writes."""

CONTRACT: Final = (
    "Fixed queries, orders and fault times show what the catalog and the job store decide; "
    "they measure no model, no network and no speed, and are no sample of real tasks."
)
"""What this evidence is, in one sentence."""

_STUCK_SECONDS: Final = 10
"""Ends a concurrency run in which the reads never meet; nothing is decided by this time."""


# 1 Catalog: how much a request must show ------------------------------------------------------------


def catalog_experiment(
    query: str = QUERY,
    limit: int = 2,
    grants: Grants = FIXTURE_GRANTS,
    *,
    tools: Sequence[Tool] | None = None,
    scene: Scene | None = None,
) -> dict[str, Any]:
    """Search, load and weigh what the path on demand shows against all discoverable definitions.

    `tools`: another catalog than the chapter's 300. Sizes are bytes of canonical JSON in UTF-8. When
    the definitions exceed the load budget nothing is loaded, and `refused` says
    so, with the bytes that it would have taken.
    Raises `CatalogError` for a query, limit, grants or tools that a catalog does not take.
    Source: claims C10-017 to C10-020, C10-066 to C10-071, C10-263, C10-270.
    """
    scene = scene or Scene()
    catalog = Catalog(fixture_tools() if tools is None else tools)
    visible = catalog.discoverable(grants)
    hits = scene.call("model", catalog.search, query, grants, limit)
    refused: dict[str, Any] = {}
    try:
        loaded = scene.call("model", catalog.load, hits, grants)
    except CatalogError as error:
        if error.code != "definition_budget_exceeded":
            raise
        loaded = []
        needed = [{**catalog.tools[hit["name"]].definition(), "digest": hit["digest"]} for hit in hits]
        refused = {"refused": error.code, "needed_bytes": byte_size(needed), "budget_bytes": BUDGET_BYTES}
    entry, summaries, definitions = byte_size(search_entry()), byte_size(hits), byte_size(loaded)
    return {
        "registered": len(catalog.tools),
        "discoverable": len(visible),
        "loaded": len(loaded),
        "hits": _names_and_scores(hits),
        "full_definitions_bytes": byte_size([tool.definition() for tool in visible]),
        "bootstrap_bytes": entry,
        "hit_summaries_bytes": summaries,
        "loaded_definitions_bytes": definitions,
        "deferred_visible_payload_bytes": entry + summaries + definitions,
        **refused,
    }


def _names_and_scores(hits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": hit["name"], "score": hit["score"]} for hit in hits]


# 2 Boundaries: five ways to say no -------------------------------------------------------------------


def boundaries_experiment(query: str = "状态", *, scene: Scene | None = None) -> dict[str, Any]:
    """Meet each limit of discovery once, and see what the next step is.

    `query`: the one that two tools answer equally well. Raises `CatalogError` for one that is none.
    Besides the five outcomes: what exactly enough budget loads, that a repetition does not bring back a
    permission, and that a stale definition is found and loaded again.
    Source: claims C10-044, C10-047, C10-072, C10-082, C10-264, C10-271, C10-272.
    """
    scene = scene or Scene()
    catalog, grants = Catalog(fixture_tools()), FIXTURE_GRANTS
    scene.begin("没有匹配与平分 / no match, and a tie")
    unknown = scene.call("model", catalog.search, "火星 着陆", grants)
    ambiguous = scene.call("model", catalog.search, query, grants)

    scene.begin("预算恰好够，与少一个字节 / exactly enough budget, and one byte less")
    hits = scene.call("model", catalog.search, QUERY, grants, 2)
    enough = byte_size(catalog.load(hits, grants))
    loaded = scene.call("runtime", catalog.load, hits, grants, budget_bytes=enough)
    budget = scene.refusal("runtime", catalog.load, hits, grants, budget_bytes=enough - 1)

    scene.begin("加载之后权限被撤销 / permission revoked after loading")
    nothing: frozenset[str] = frozenset()
    scene.call("gateway", catalog.authorize, loaded[0], grants)
    revoked = scene.refusal("gateway", catalog.authorize, loaded[0], nothing)
    revoked_again = scene.refusal("gateway", catalog.authorize, loaded[0], nothing)

    scene.begin("定义已经更新 / the definition has changed")
    name = loaded[0]["name"]
    catalog.tools[name] = replace(catalog.tools[name], version="2")
    scene.note("team of the tool", f"registers {name} v2")
    stale = scene.refusal("runtime", catalog.load, hits, grants)
    found_again = scene.call("model", catalog.search, QUERY, grants, 2)
    reloaded = scene.call("runtime", catalog.load, found_again, grants)
    return {
        "unknown_query": unknown,
        "ambiguous_query": _names_and_scores(ambiguous),
        "budget": budget,
        "revoked": revoked,
        "stale": stale,
        "loaded_at_exact_budget": len(loaded),
        "revoked_repeated": revoked_again,
        "stale_reloaded_version": reloaded[0]["version"],
    }


# 3 Concurrency: two reads at a time ------------------------------------------------------------------


def concurrency_experiment(limit: int = 2, *, scene: Scene | None = None) -> dict[str, Any]:
    """Read three orders, at most `limit` at once; the third does not exist.

    The first reads wait for each other at a barrier that opens when `limit` of them are in flight: if
    they did not overlap, the run would not end. Raises `ValueError` for a limit below 1 and
    `TimeoutError` for reads that never meet. Source: claims C10-115 to C10-117, C10-265, C10-273.
    """
    return asyncio.run(_concurrent_reads(limit, scene or Scene()))


async def _concurrent_reads(limit: int, scene: Scene) -> dict[str, Any]:
    calls = [("call-A", "A"), ("call-B", "B"), ("call-C", "C")]
    statuses = {"A": "paid", "B": "paid"}
    meeting = min(limit, len(calls))
    together = asyncio.Event()
    in_flight = peak = 0

    async def read(order_id: str) -> dict[str, str]:
        nonlocal in_flight, peak
        in_flight += 1
        peak = max(peak, in_flight)
        call_id = f"call-{order_id}"
        scene.note(call_id, f"asks for order {order_id}, {in_flight} in flight")
        try:
            if in_flight == meeting:
                together.set()
            await together.wait()
            if order_id not in statuses:
                scene.note(call_id, "gets an error", "LookupError")
                raise LookupError(order_id)
            scene.note(call_id, "gets the answer", statuses[order_id])
            return {"order_id": order_id, "status": statuses[order_id]}
        finally:
            in_flight -= 1

    async with asyncio.timeout(_STUCK_SECONDS):
        results = await bounded_reads(calls, read, limit)
    return {"limit": limit, "peak_in_flight": peak, "measured_network_latency_ms": None, "results": results}


# 4 Lifecycle: a report that outlives its request -----------------------------------------------------


def lifecycle_experiment(
    sales: Sequence[Mapping[str, Any]] = SALES, month: str = "2026-08", *, scene: Scene | None = None
) -> dict[str, Any]:
    """Submit, close the connection, open another one, claim the same job, count row by row, deliver.

    `sales`: dicts with `month` and `amount_cents`, at most `MAX_SALES` of the month. Submission is at
    0, the claim at 1, then one step of logical time for each row and one for the delivery.
    Raises `JobError` (`invalid_submission`) for a month that is not `YYYY-MM`, `ValueError` for too many rows.
    Source: claims C10-167 to C10-184, C10-251, C10-266, C10-275, C10-307.
    """
    scene = scene or Scene()
    rows = [row for row in sales if row["month"] == month]
    if len(rows) > MAX_SALES:
        raise ValueError(f"more than {MAX_SALES} rows of the month")
    with _database() as path:
        with JobStore(path) as store:
            job_id = scene.call("alice", store.submit, "alice", "august-report", {"month": month}, now=0)
            submitted = scene.call("alice", store.get, "alice", job_id)
        scene.note("alice", "closes the connection")
        with JobStore(path) as store:  # another connection, and nothing else than the number is left
            resumed = store.get("alice", job_id)["id"]
            attempt = scene.call("worker", store.claim, job_id, now=1, lease=100)
            total = 0
            for index, row in enumerate(rows, 1):
                total += row["amount_cents"]
                scene.call("worker", store.progress, job_id, attempt, index, len(rows), now=index + 1)
            counted = scene.call("alice", store.get, "alice", job_id)
            cursor = store.events("alice", job_id)[-1]["seq"]
            report = {"month": month, "row_count": len(rows), "total_cents": total}
            scene.call("worker", store.finish, job_id, attempt, report, now=len(rows) + 2)
            new_events = scene.call("alice", store.events, "alice", job_id, after=cursor)
            result = scene.call("alice", store.result, "alice", job_id)
            events = store.events("alice", job_id)
    scene.follow(events)
    return {
        "submitted": submitted,
        "resumed_with_same_job_id": resumed,
        "all_rows_counted": counted,
        "result": result,
        "cursor": cursor,
        "new_events_after_cursor": new_events,
        "events": events,
    }


# 5 Failures: what still holds when things go wrong ---------------------------------------------------


def failures_experiment(lease: int = 2, *, scene: Scene | None = None) -> dict[str, Any]:
    """Put each fault at its moment of logical time; one job a scene, all in one store.

    `lease`: of the worker that comes back late; from 3 on it is not late. Raises `JobError` for one below 1.
    Source: claims C10-187 to C10-191, C10-201, C10-208 to C10-219, C10-229 to C10-240, C10-267, C10-276.
    """
    scene = scene or Scene()
    with _database() as path, JobStore(path) as store:
        figures = {
            **_submitted_twice_and_delivered_late(store, scene, lease),
            **_cancelled_before_and_after_the_commit(store, scene),
            **_past_the_deadline(store, scene),
            **_retried_to_the_end(store, scene),
            **_asked_by_a_stranger(store, scene),
            **_cancelled_in_the_queue(store, scene),
        }
        for job in reversed(store.list_jobs("alice")):
            scene.follow(store.events("alice", job["id"]))
    return figures


def _submitted_twice_and_delivered_late(store: JobStore, scene: Scene, lease: int) -> dict[str, Any]:
    """Job 1. The answer to the submission was lost; then worker A lost its lease, and came back."""
    scene.begin("作业 1：重复提交，旧 worker 迟到 / job 1: submitted twice, delivered late")
    august, july = {"month": "2026-08"}, {"month": "2026-07"}
    job_id = scene.call("alice", store.submit, "alice", "august-report", august, now=0)
    repeated = scene.call("alice", store.submit, "alice", "august-report", august, now=0)
    conflict = scene.refusal("alice", store.submit, "alice", "august-report", july, now=0)
    first = scene.call("worker A", store.claim, job_id, now=1, lease=lease)
    # At 3 the lease is over and nobody else has the job: the number alone would still be the newest.
    expired = scene.refusal("worker A", store.finish, job_id, first, {"by": "A"}, now=3)
    second = scene.call("worker B", store.claim, job_id, now=3, lease=2)
    stale = scene.refusal("worker A", store.finish, job_id, first, {"by": "A"}, now=4)
    again = None
    if second is not None:
        scene.call("worker B", store.finish, job_id, second, {"by": "B"}, now=4)
        again = scene.call("worker B", store.finish, job_id, second, {"by": "B"}, now=4)
    return {
        "same_submission_same_job": repeated == job_id,
        "key_conflict": conflict,
        "recovery_attempts": [first, second],
        "expired_worker": expired,
        "stale_worker": stale,
        "recovered_receipts": store.receipt_count(job_id),
        "repeated_finish_created_receipt": again,
    }


def _cancelled_before_and_after_the_commit(store: JobStore, scene: Scene) -> dict[str, Any]:
    """Job 2 is cancelled while it runs; job 1 has succeeded before anybody asks."""
    scene.begin("作业 2 与 1：提交前后的取消 / jobs 2 and 1: a cancel before and after the commit")
    job_id = scene.call("alice", store.submit, "alice", "cancelled-report", {"month": "2026-08"}, now=0)
    attempt = scene.call("worker A", store.claim, job_id, now=1)
    scene.now = 2
    asked = scene.call("alice", store.cancel, "alice", job_id)
    scene.call("worker A", store.finish, job_id, attempt, {"by": "A"}, now=3)
    stopped = scene.call("alice", store.get, "alice", job_id)
    return {
        "cancel_acknowledgement": asked,
        "cancel_before_commit": stopped["state"],
        "cancelled_receipts": store.receipt_count(job_id),
        "cancel_after_commit": scene.call("alice", store.cancel, "alice", 1),
    }


def _past_the_deadline(store: JobStore, scene: Scene) -> dict[str, Any]:
    """Job 3. At 2 the caller stops looking, which changes nothing; at 3 the deadline does."""
    scene.begin("作业 3：停止等待与截止时间 / job 3: no longer looking, and the deadline")
    job_id = scene.call("alice", store.submit, "alice", "late-report", {"month": "2026-08"}, now=0, deadline=3)
    attempt = scene.call("worker A", store.claim, job_id, now=1)
    scene.now = 2
    last_seen = scene.call("alice", store.get, "alice", job_id)
    scene.call("worker A", store.finish, job_id, attempt, {"by": "A"}, now=3)
    ended = scene.call("alice", store.get, "alice", job_id)
    return {"deadline_error": ended["error"], "stopped_polling_job_state": last_seen["state"]}


def _retried_to_the_end(store: JobStore, scene: Scene) -> dict[str, Any]:
    """Job 4 may run twice and fails twice; job 5 fails in a way that no repetition mends."""
    scene.begin("作业 4 与 5：重试耗尽与不可重试 / jobs 4 and 5: no attempt left, no attempt worth it")
    job_id = scene.call("alice", store.submit, "alice", "retried-report", {"month": "2026-08"}, now=0, max_attempts=2)
    first = scene.call("worker A", store.claim, job_id, now=1)
    scene.call("worker A", store.fail, job_id, first, "temporary", now=2, retry_after=3)
    early = scene.call("worker B", store.claim, job_id, now=4)
    second = scene.call("worker B", store.claim, job_id, now=5)
    scene.call("worker B", store.fail, job_id, second, "temporary", now=6, retry_after=3)
    retried = scene.call("alice", store.get, "alice", job_id)

    other_id = scene.call("alice", store.submit, "alice", "refused-report", {"month": "2026-08"}, now=0)
    attempt = scene.call("worker A", store.claim, other_id, now=1)
    scene.call("worker A", store.fail, other_id, attempt, "bad_input", now=2)
    refused = scene.call("alice", store.get, "alice", other_id)
    return {"early_retry": early, "retry_final": retried, "permanent_final": refused}


def _cancelled_in_the_queue(store: JobStore, scene: Scene) -> dict[str, Any]:
    """Job 6. Nobody runs it, so there is nothing to wait for: the request is the end."""
    scene.begin("作业 6：排队时取消 / job 6: cancelled in the queue")
    job_id = scene.call("alice", store.submit, "alice", "queued-report", {"month": "2026-08"}, now=0)
    return {"cancel_while_queued": scene.call("alice", store.cancel, "alice", job_id)}


def _asked_by_a_stranger(store: JobStore, scene: Scene) -> dict[str, Any]:
    """Job 1 again. What is not yours looks exactly like what does not exist."""
    scene.begin("作业 1：别人来取结果 / job 1: a stranger asks for the result")
    return {"cross_owner_result": scene.refusal("bob", store.result, "bob", 1)}


@contextmanager
def _database() -> Iterator[Path]:
    """Yield the path of a database that is to be made, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        yield Path(folder, "jobs.db")


# The evidence ----------------------------------------------------------------------------------------

GROUPS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "catalog": catalog_experiment,
    "boundaries": boundaries_experiment,
    "concurrency": concurrency_experiment,
    "lifecycle": lifecycle_experiment,
    "failures": failures_experiment,
}
"""The five groups in the order in which a reader takes them."""


def run_all() -> dict[str, Any]:
    """Run the five groups and return `{contract, model_quality, provider_tokens, external_exactly_once, groups}`.

    Source: claims C10-269, C10-274.
    """
    return _run()[0]


def _run() -> tuple[dict[str, Any], dict[str, Scene]]:
    scenes = {name: Scene() for name in GROUPS}
    return envelope(CONTRACT, {name: run(scene=scenes[name]) for name, run in GROUPS.items()}), scenes


def write_reports(directory: str | os.PathLike[str]) -> list[Path]:
    """Run everything and write the three reports in `directory`, all or none; return their paths.

    Raises `OSError` when the folder cannot be written; the old files are left then.
    Source: claims C10-183, C10-279 to C10-281.
    """
    return replace_together(Path(directory), _reports())


def check_reports(directory: str | os.PathLike[str]) -> list[str]:
    """Run everything and return what differs from the reports in `directory`: one line a file, empty if nothing."""
    return differences(Path(directory), _reports())


def reports_folder() -> Path:
    """Return where the reports are: beside the package, or in the working folder for an installed copy."""
    top = Path(__file__).resolve().parents[1]
    installed = top.name in ("site-packages", "dist-packages")
    return (Path.cwd() if installed else top) / "reports"


def _reports() -> dict[str, str]:
    evidence, scenes = _run()
    events = evidence["groups"]["lifecycle"]["events"]
    return {
        "tool-jobs-evidence.json": json_text(evidence),
        "tool-jobs-evidence.md": page(evidence, scenes),
        "job-events.jsonl": "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events),
    }


# The command -----------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say (those of the process if None) and return the exit code."""
    parser = command_line(list(GROUPS))
    options = parser.parse_args(arguments)
    refuse_what_does_not_combine(parser, options)
    if options.write:
        for path in write_reports(reports_folder()):
            print(path)
        return EXIT_FINE
    if options.check:
        return say_differences(check_reports(reports_folder()), REPORTS, "chapter10.experiments")
    try:
        if options.predict:
            return _predict(parser, options)
        figures = _figures(options, Scene())
    except (CatalogError, JobError) as error:
        parser.error(f"{error.code}: {error.reason}")
    except ReadsError as error:
        parser.error(error.code)
    except ToolListError as error:
        sys.stderr.write(f"{options.tools}: {error.line}\n")
        return EXIT_WRONG
    print_json(figures)
    fault = figures.get("fault")
    if fault is None:
        return EXIT_FINE
    where = f"{options.sales}" + (f", line {fault['line']}" if fault["line"] else "")
    sys.stderr.write(f"{where}: {fault['code']}: {fault['reason']}\n")
    return EXIT_WRONG


def _figures(options: argparse.Namespace, scene: Scene) -> dict[str, Any]:
    if options.group is None:
        return run_all()
    if options.tools is not None:
        return _figures_of_tools(options)
    if options.sales is not None:
        return export_sales(options.sales, options.month)
    if options.group == "catalog":
        return catalog_experiment(
            QUERY if options.query is None else options.query,
            2 if options.limit is None else options.limit,
            FIXTURE_GRANTS if options.grant is None else options.grant,
            scene=scene,
        )
    other = {name: getattr(options, name) for name in ("query", "limit", "month", "lease")}
    return GROUPS[options.group](**{name: value for name, value in other.items() if value is not None}, scene=scene)


def _predict(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Ask about one group, run it with the same options, and compare."""
    area = AREAS[options.group]

    def run() -> Outcome:
        scene = Scene()
        figures = _figures(options, scene)
        return figures, scene.parts

    return predict_group(parser, options, replace(area, code=(GROUPS[options.group], *area.code)), run)


def _figures_of_tools(options: argparse.Namespace) -> dict[str, Any]:
    permission = options.permission or DEFAULT_PERMISSION
    listed = read_tool_list(options.tools, permission=permission, repeated="first")
    # Split as the keywords of the list were, so that a name or a Chinese phrase finds its tool.
    query = " ".join(words_of(options.query))
    grants = [permission] if options.grant is None else options.grant
    limit = 2 if options.limit is None else options.limit
    figures = catalog_experiment(query, limit, grants, tools=listed.tools)
    return {"query": query, **figures, **remarks(listed, BUDGET_BYTES)}


if __name__ == "__main__":
    main_guard(main)
