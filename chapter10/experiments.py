"""The chapter's five experiments: they wire catalog, concurrency and jobs, and write down what happened.

    python -m chapter10.experiments                     all five: a story on a terminal, else one JSON object
    python -m chapter10.experiments --group catalog     one of them; --json and --lang zh|en choose by hand
    python -m chapter10.experiments --write             write the three reports anew; --check compares them

Each experiment is one function that needs none of the others: fixed queries, fixed order, logical time, a database in a
temporary folder. Nothing here measures a model, a network or speed; what was not measured is null. Whoever wants
pictures hands in an `Observer` that keeps what it sees. `--help` has the rest: guess first, other data, exit codes.

Source: the chapter's section on its five experiments (claims C10-115 to C10-117, C10-167 to C10-194,
C10-201, C10-219, C10-229, C10-251, C10-263 to C10-282).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import CodedError, byte_size
from chapter10.catalog import BUDGET_BYTES, FIXTURE_GRANTS, Catalog, Grants, Tool, fixture_tools, search_entry
from chapter10.concurrency import bounded_reads
from chapter10.jobs import JobStore

__all__ = [
    "CONTRACT", "GROUPS", "MAX_SALES", "QUERY", "REPORTS", "SALES", "UNMEASURED", "Observer", "boundaries_experiment",
    "catalog_experiment", "check_reports", "concurrency_experiment", "failures_experiment", "lifecycle_experiment",
    "main", "refusal_of", "reports_folder", "run_all", "write_reports",
]  # fmt: skip

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

UNMEASURED: Final = {"model_quality": None, "provider_tokens": None, "external_exactly_once": False}
"""What nothing here measures or claims."""

_STUCK_SECONDS: Final = 10  # ends a run in which the reads never meet; nothing is decided by it


class Observer:
    """Sees who does what in an experiment. This one looks away; `lab.evidence.evidence.Scene` keeps it all."""

    def begin(self, title: str) -> None:
        """Hear that another part of the experiment starts, in which time starts anew."""

    def at(self, now: int) -> None:
        """Hear what time it is, where the next call does not say it."""

    def of(self, actor: str, thing: Any) -> Any:
        """Return `thing` for the hands of `actor`; what it is called for there is seen."""
        return thing

    def note(self, actor: str, what: str, detail: str = "") -> None:
        """Hear of what happened outside a call."""

    def follow(self, job_events: Sequence[Mapping[str, Any]]) -> None:
        """Hear of the changes of state in the event log of one job."""


_NOBODY: Final = Observer()


def refusal_of(verb: Callable[..., Any], *arguments: Any, **options: Any) -> str | None:
    """Return the code with which a call is refused; None if it is not."""
    try:
        verb(*arguments, **options)
    except CodedError as refused:
        return refused.code
    return None


def catalog_experiment(
    query: str = QUERY,
    limit: int = 2,
    grants: Grants = FIXTURE_GRANTS,
    *,
    tools: Sequence[Tool] | None = None,
    scene: Observer = _NOBODY,
) -> dict[str, Any]:
    """Search, load and weigh what the path on demand shows against all discoverable definitions.

    `tools`: another catalog than the chapter's 300. Sizes are bytes of canonical JSON in UTF-8. Definitions
    beyond the load budget are not loaded; then `refused` says so, with the bytes that they take.
    Raises `CatalogError` for a query, limit, grants or tools that a catalog does not take.
    Source: claims C10-017 to C10-020, C10-066 to C10-071, C10-263, C10-270.
    """
    catalog = Catalog(fixture_tools() if tools is None else tools)
    visible = catalog.discoverable(grants)
    model = scene.of("model", catalog)
    hits = model.search(query, grants, limit)
    refused: dict[str, Any] = {}
    try:
        loaded = model.load(hits, grants)
    except CodedError as error:
        loaded = []
        needed = [{**catalog.tools[hit["name"]].definition(), "digest": hit["digest"]} for hit in hits]
        refused = {"refused": error.code, "needed_bytes": byte_size(needed), "budget_bytes": BUDGET_BYTES}
    entry, summaries, definitions = byte_size(search_entry()), byte_size(hits), byte_size(loaded)
    return {
        "registered": len(catalog.tools),
        "discoverable": len(visible),
        "loaded": len(loaded),
        "hits": [{"name": hit["name"], "score": hit["score"]} for hit in hits],
        "full_definitions_bytes": byte_size([tool.definition() for tool in visible]),
        "bootstrap_bytes": entry,
        "hit_summaries_bytes": summaries,
        "loaded_definitions_bytes": definitions,
        "deferred_visible_payload_bytes": entry + summaries + definitions,
        **refused,
    }


def boundaries_experiment(query: str = "状态", *, scene: Observer = _NOBODY) -> dict[str, Any]:
    """Meet each limit of discovery once, and see what the next step is.

    `query`: the one that two tools answer equally well. Raises `CatalogError` for one that is none.
    Source: claims C10-044, C10-047, C10-072, C10-082, C10-264, C10-271, C10-272.
    """
    catalog, grants = Catalog(fixture_tools()), FIXTURE_GRANTS
    model, runtime, gateway = (scene.of(actor, catalog) for actor in ("model", "runtime", "gateway"))
    scene.begin("没有匹配与平分 / no match, and a tie")
    unknown = model.search("火星 着陆", grants)
    ambiguous = model.search(query, grants)

    scene.begin("预算恰好够，与少一个字节 / exactly enough budget, and one byte less")
    hits = model.search(QUERY, grants, 2)
    enough = byte_size(catalog.load(hits, grants))
    loaded = runtime.load(hits, grants, budget_bytes=enough)
    budget = refusal_of(runtime.load, hits, grants, budget_bytes=enough - 1)

    scene.begin("加载之后权限被撤销 / permission revoked after loading")
    gateway.authorize(loaded[0], grants)
    revoked = refusal_of(gateway.authorize, loaded[0], frozenset())
    revoked_again = refusal_of(gateway.authorize, loaded[0], frozenset())

    scene.begin("定义已经更新 / the definition has changed")
    name = loaded[0]["name"]
    catalog.tools[name] = replace(catalog.tools[name], version="2")
    scene.note("team of the tool", f"registers {name} v2")
    stale = refusal_of(runtime.load, hits, grants)
    reloaded = runtime.load(model.search(QUERY, grants, 2), grants)
    return {
        "unknown_query": unknown,
        "ambiguous_query": [{"name": hit["name"], "score": hit["score"]} for hit in ambiguous],
        "budget": budget,
        "revoked": revoked,
        "stale": stale,
        "loaded_at_exact_budget": len(loaded),
        "revoked_repeated": revoked_again,
        "stale_reloaded_version": reloaded[0]["version"],
    }


def concurrency_experiment(limit: int = 2, *, scene: Observer = _NOBODY) -> dict[str, Any]:
    """Read three orders, at most `limit` at once; the third does not exist.

    The first reads wait for each other at a barrier that opens when `limit` of them are in flight. Raises `ValueError`
    for a limit below 1, `TimeoutError` for reads that never meet. Source: claims C10-115 to C10-117, C10-265, C10-273.
    """
    return asyncio.run(_concurrent_reads(limit, scene))


async def _concurrent_reads(limit: int, scene: Observer) -> dict[str, Any]:
    calls, statuses = [("call-A", "A"), ("call-B", "B"), ("call-C", "C")], {"A": "paid", "B": "paid"}
    together = asyncio.Event()
    in_flight = peak = 0

    async def read(order_id: str) -> dict[str, str]:
        nonlocal in_flight, peak
        call_id, in_flight = f"call-{order_id}", in_flight + 1
        peak = max(peak, in_flight)
        scene.note(call_id, f"asks for order {order_id}, {in_flight} in flight")
        if in_flight == min(limit, len(calls)):
            together.set()
        await together.wait()
        in_flight -= 1
        if order_id not in statuses:
            scene.note(call_id, "gets an error", "LookupError")
            raise LookupError(order_id)
        scene.note(call_id, "gets the answer", statuses[order_id])
        return {"order_id": order_id, "status": statuses[order_id]}

    async with asyncio.timeout(_STUCK_SECONDS):
        results = await bounded_reads(calls, read, limit)
    return {"limit": limit, "peak_in_flight": peak, "measured_network_latency_ms": None, "results": results}


def lifecycle_experiment(
    sales: Sequence[Mapping[str, Any]] = SALES, month: str = "2026-08", *, scene: Observer = _NOBODY
) -> dict[str, Any]:
    """Submit, close the connection, open another one, claim the same job, count row by row, deliver.

    `sales`: dicts with `month` and `amount_cents`, at most `MAX_SALES` of the month; each is a step of logical time.
    Raises `JobError` (`invalid_submission`) for a month that is not `YYYY-MM`, `ValueError` for too many rows.
    Source: claims C10-167 to C10-184, C10-251, C10-266, C10-275, C10-307.
    """
    rows = [row for row in sales if row["month"] == month]
    if len(rows) > MAX_SALES:
        raise ValueError(f"more than {MAX_SALES} rows of the month")
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        with JobStore(Path(folder, "jobs.db")) as connection:
            alice = scene.of("alice", connection)
            job_id = alice.submit("alice", "august-report", {"month": month}, now=0)
            submitted = alice.get("alice", job_id)
        scene.note("alice", "closes the connection")
        with JobStore(Path(folder, "jobs.db")) as connection:  # another one: only the number is left
            alice, store = scene.of("alice", connection), scene.of("worker", connection)
            resumed = connection.get("alice", job_id)["id"]
            attempt = store.claim(job_id, now=1, lease=100)
            total = 0
            for index, row in enumerate(rows, 1):
                total += row["amount_cents"]
                store.progress(job_id, attempt, index, len(rows), now=index + 1)
            counted = alice.get("alice", job_id)
            cursor = connection.events("alice", job_id)[-1]["seq"]
            report = {"month": month, "row_count": len(rows), "total_cents": total}
            store.finish(job_id, attempt, report, now=len(rows) + 2)
            new_events = alice.events("alice", job_id, after=cursor)
            result = alice.result("alice", job_id)
            events = connection.events("alice", job_id)
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


def failures_experiment(lease: int = 2, *, scene: Observer = _NOBODY) -> dict[str, Any]:
    """Put each fault at its moment of logical time; one job a scene, all in one store.

    `lease`: of the worker that comes back late; from 3 on it is not late. Raises `JobError` for one below 1.
    Source: claims C10-187 to C10-191, C10-201, C10-208 to C10-219, C10-229 to C10-240, C10-267, C10-276.
    """
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder, JobStore(Path(folder, "jobs.db")) as store:
        figures = {
            **_submitted_twice_and_delivered_late(store, scene, lease),
            **_stopped(store, scene),
            **_retried_to_the_end(store, scene),
        }
        scene.begin("作业 1：别人来取结果 / job 1: a stranger asks for the result")
        figures["cross_owner_result"] = refusal_of(scene.of("bob", store).result, "bob", 1)
        scene.begin("作业 6：排队时取消 / job 6: cancelled in the queue")
        alice = scene.of("alice", store)
        job_id = alice.submit("alice", "queued-report", {"month": "2026-08"}, now=0)
        figures["cancel_while_queued"] = alice.cancel("alice", job_id)
        for job_id in range(1, 7):
            scene.follow(store.events("alice", job_id))
    return figures


def _submitted_twice_and_delivered_late(store: JobStore, scene: Observer, lease: int) -> dict[str, Any]:
    """Job 1. The answer to the submission was lost; then worker A lost its lease, and came back."""
    alice, late, other = (scene.of(actor, store) for actor in ("alice", "worker A", "worker B"))
    scene.begin("作业 1：重复提交，旧 worker 迟到 / job 1: submitted twice, delivered late")
    job_id = alice.submit("alice", "august-report", {"month": "2026-08"}, now=0)
    repeated = alice.submit("alice", "august-report", {"month": "2026-08"}, now=0)
    conflict = refusal_of(alice.submit, "alice", "august-report", {"month": "2026-07"}, now=0)
    first = late.claim(job_id, now=1, lease=lease)
    # At 3 the lease is over and nobody else has the job: the number alone would still be the newest.
    expired = refusal_of(late.finish, job_id, first, {"by": "A"}, now=3)
    second = other.claim(job_id, now=3, lease=2)
    stale = refusal_of(late.finish, job_id, first, {"by": "A"}, now=4)
    again = None
    if second is not None:
        other.finish(job_id, second, {"by": "B"}, now=4)
        again = other.finish(job_id, second, {"by": "B"}, now=4)
    return {
        "same_submission_same_job": repeated == job_id,
        "key_conflict": conflict,
        "recovery_attempts": [first, second],
        "expired_worker": expired,
        "stale_worker": stale,
        "recovered_receipts": store.receipt_count(job_id),
        "repeated_finish_created_receipt": again,
    }


def _stopped(store: JobStore, scene: Observer) -> dict[str, Any]:
    """Job 2 is cancelled while it runs, job 1 after it has succeeded; nobody looks at job 3, and its deadline comes."""
    alice, worker = scene.of("alice", store), scene.of("worker A", store)
    scene.begin("作业 2 与 1：提交前后的取消 / jobs 2 and 1: a cancel before and after the commit")
    job_id = alice.submit("alice", "cancelled-report", {"month": "2026-08"}, now=0)
    attempt = worker.claim(job_id, now=1)
    scene.at(2)
    figures = {"cancel_acknowledgement": alice.cancel("alice", job_id)}
    worker.finish(job_id, attempt, {"by": "A"}, now=3)
    figures["cancel_before_commit"] = alice.get("alice", job_id)["state"]
    figures["cancelled_receipts"] = store.receipt_count(job_id)
    figures["cancel_after_commit"] = alice.cancel("alice", 1)
    scene.begin("作业 3：停止等待与截止时间 / job 3: no longer looking, and the deadline")
    job_id = alice.submit("alice", "late-report", {"month": "2026-08"}, now=0, deadline=3)
    attempt = worker.claim(job_id, now=1)
    scene.at(2)
    last_seen = alice.get("alice", job_id)
    worker.finish(job_id, attempt, {"by": "A"}, now=3)
    figures["deadline_error"] = alice.get("alice", job_id)["error"]
    return {**figures, "stopped_polling_job_state": last_seen["state"]}


def _retried_to_the_end(store: JobStore, scene: Observer) -> dict[str, Any]:
    """Job 4 may run twice and fails twice; job 5 fails in a way that no repetition mends."""
    alice, first, second = (scene.of(actor, store) for actor in ("alice", "worker A", "worker B"))
    scene.begin("作业 4：重试耗尽 / job 4: no attempt left")
    job_id = alice.submit("alice", "retried-report", {"month": "2026-08"}, now=0, max_attempts=2)
    attempt = first.claim(job_id, now=1)
    first.fail(job_id, attempt, "temporary", now=2, retry_after=3)
    early = second.claim(job_id, now=4)
    attempt = second.claim(job_id, now=5)
    second.fail(job_id, attempt, "temporary", now=6, retry_after=3)
    retried = alice.get("alice", job_id)
    scene.begin("作业 5：不可重试 / job 5: no attempt worth it")
    job_id = alice.submit("alice", "refused-report", {"month": "2026-08"}, now=0)
    attempt = first.claim(job_id, now=1)
    first.fail(job_id, attempt, "bad_input", now=2)
    return {"early_retry": early, "retry_final": retried, "permanent_final": alice.get("alice", job_id)}


GROUPS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "catalog": catalog_experiment,
    "boundaries": boundaries_experiment,
    "concurrency": concurrency_experiment,
    "lifecycle": lifecycle_experiment,
    "failures": failures_experiment,
}
"""The five groups in the order in which a reader takes them."""


def run_all(scenes: Mapping[str, Observer] | None = None) -> dict[str, Any]:
    """Run the five groups and return `{contract, model_quality, provider_tokens, external_exactly_once, groups}`.

    `scenes`: an observer for each group, by its name. Source: claims C10-269, C10-274.
    """
    figures = {name: run(scene=scenes[name] if scenes else _NOBODY) for name, run in GROUPS.items()}
    return {"contract": CONTRACT, **UNMEASURED, "groups": figures}


def write_reports(directory: str | Path) -> list[Path]:
    """Run everything and write the three reports in `directory`, all or none; return their paths.

    Raises `OSError`, and leaves the old files. Source: claims C10-183, C10-279 to C10-281.
    """
    from chapter10.lab.evidence.files import replace_together
    from chapter10.lab.evidence.page import chapter_reports

    return replace_together(Path(directory), chapter_reports(run_all, GROUPS))


def check_reports(directory: str | Path) -> list[str]:
    """Run everything and return what differs from the reports in `directory`: one line a file, empty if nothing."""
    from chapter10.lab.evidence.files import differences
    from chapter10.lab.evidence.page import chapter_reports

    return differences(Path(directory), chapter_reports(run_all, GROUPS))


def reports_folder() -> Path:
    """Return where the reports are: beside the package, or in the working folder for an installed copy."""
    top = Path(__file__).resolve().parents[1]
    return (Path.cwd() if top.name in ("site-packages", "dist-packages") else top) / "reports"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say (those of the process if None) and return the exit code."""
    from chapter10.lab.reader.experiments_command import run

    return run(arguments)


if __name__ == "__main__":
    from chapter10.lab.console.textio import main_guard

    main_guard(main)
