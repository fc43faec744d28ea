"""What is fuzzed: a subject for each module, with verbs, valid arguments and what must not change.

A *subject* makes a *bench* in an empty folder: an object in a usual state, its verbs, its content as a value
that can be compared, and a plain call that must still have its usual answer after anything that happened.
A *verb* is one public callable with valid arguments; what is not among its arguments (a connection, a token,
a clock of ours) is handed over by whoever wires a program together, and is not spoilt.

`FUZZED` says which subject calls a public name; `NOT_FUZZED` says why a name is not called. Together they hold
every public callable of every module, errors and protocols apart, and a test says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import byte_size, canonical, digest
from chapter10.catalog import Catalog, Tool, fixture_tools
from chapter10.companions.effects.idempotency import (
    Claim,
    IdempotencyStore,
    Lifetime,
    Verdict,
    document_key,
    intent_key,
    make_intent,
    ttl_for,
)
from chapter10.companions.effects.outbox import (
    Consumer,
    Delivery,
    Outbox,
    OutboxWriter,
    Relay,
    derive_event_id,
    growing_delay,
)
from chapter10.companions.finding.indexed_catalog import IndexedCatalog
from chapter10.companions.finding.ranking import Ranking
from chapter10.companions.finding.tool_list import parse_tool_list, read_tool_list
from chapter10.companions.interruption.budget import Budget, run_within, tool_with_budget
from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.cancellation import (
    CancelToken,
    DistributedCancelToken,
    Interruption,
    checked,
    clean_up,
    fetch_large_blob,
)
from chapter10.companions.operating.exports import export_arguments, remove_leftovers, take_snapshot
from chapter10.companions.operating.sales import SalesFile, summarize
from chapter10.companions.retrying.adaptive_caller import AdaptivePolicy
from chapter10.companions.retrying.adaptive_limit import AdaptiveLimit, quantile
from chapter10.companions.retrying.circuit_breaker import CircuitBreaker
from chapter10.companions.retrying.retry import RetryPolicy, TokenBucket, backoff_ms, retry
from chapter10.companions.schemas.pattern import Pattern
from chapter10.companions.schemas.schema import compile_schema
from chapter10.companions.schemas.strict_json import copy_json, strict_json
from chapter10.companions.tools.executor import StreamingToolExecutor
from chapter10.companions.tools.registry import ToolRegistry, ToolSpec
from chapter10.companions.tools.result_budget import ReplacementState, ResultBudget, threshold
from chapter10.companions.tools.result_store import ResultStore, visible_content
from chapter10.companions.tools.result_text import is_empty, result_text
from chapter10.companions.tools.tool_calls import CancelScope, ToolCall, check_call, parse_arguments
from chapter10.companions.tools.tool_spec import is_seconds
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.stream_reads import stream_reads
from chapter10.companions.work.worker import Backoff, Handler, Worker
from chapter10.concurrency import bounded_reads
from chapter10.database import Database
from chapter10.jobs import JobStore, Operation

__all__ = ["FUZZED", "NOT_FUZZED", "NOT_FUZZED_MODULES", "SUBJECTS", "Bench", "Subject", "Verb"]


@dataclass(frozen=True, slots=True)
class Verb:
    """One callable: its name, valid arguments (made anew for each call), and the errors of its docstring."""

    name: str
    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    raises: tuple[type[Exception], ...] = ()
    is_async: bool = False


@dataclass(frozen=True, slots=True)
class Bench:
    """An object on the bench: verbs, content, and a plain call that is True when all is well."""

    verbs: Sequence[Verb]
    content: Callable[[], object]
    usable: Callable[[], object]


Subject = Callable[[Path], AbstractContextManager[Bench]]


def _verb(
    call: Callable[..., Any], called: str = "", /, *, raises: tuple[type[Exception], ...] = (), **valid: Any
) -> Verb:
    """A verb whose valid arguments never change."""
    return Verb(called or call.__name__, call, lambda: dict(valid), raises)


def _waits(
    call: Callable[..., Any], called: str = "", /, *, raises: tuple[type[Exception], ...] = (), **valid: Any
) -> Verb:
    """An asynchronous verb."""
    return Verb(called or call.__name__, call, lambda: dict(valid), raises, is_async=True)


def _tables(database: Database, *names: str) -> Callable[[], object]:
    """The content of these tables, in the order of their rows."""
    return lambda: tuple(tuple(database.rows(f"SELECT * FROM {name} ORDER BY 1, 2")) for name in names)


def _clock() -> float:
    return 5.0


async def _answer(*_: object, **__: object) -> str:
    return "fine"


# The chapter's path --------------------------------------------------------------------------


@contextmanager
def _canonical(_: Path) -> Iterator[Bench]:
    value = {"a": [1, 2.5, "x", None, True, {"b": []}]}
    verbs = [_verb(call, value=value) for call in (canonical, byte_size, digest)]
    yield Bench(verbs, lambda: None, lambda: canonical({"b": 1, "a": 2}) == '{"a":2,"b":1}')


_TOOL: Final[dict[str, Any]] = {
    "name": "tickets.get",
    "description": "reads a ticket",
    "keywords": ("ticket", "read"),
    "permission": "tickets:read",
    "effect": "read",
    "version": "1",
    "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
}


@contextmanager
def _catalog(_: Path, kind: type[Catalog] = Catalog) -> Iterator[Bench]:
    catalog = kind(fixture_tools()[:20])
    (hit, *_others) = catalog.search("订单 查询", {"orders:read"})
    loaded = catalog.load([hit], {"orders:read"})[0]

    def put(name: Any, tool: Any) -> None:
        catalog.tools[name] = tool

    def take_out(name: Any) -> None:
        del catalog.tools[name]

    def usable() -> bool:
        return catalog.search("订单 查询", {"orders:read"})[0] == hit

    verbs = [
        _verb(Tool, **_TOOL),
        _verb(kind, tools=fixture_tools()[:2]),
        _verb(catalog.discoverable, grants={"orders:read"}),
        _verb(catalog.search, query="订单 查询", grants={"orders:read"}, limit=3),
        _verb(catalog.load, hits=[hit], grants={"orders:read"}, budget_bytes=4096),
        _verb(catalog.authorize, loaded=loaded, grants=["orders:read"]),
        Verb("ToolMap[...] = ...", put, lambda: {"name": "tickets.get", "tool": Tool(**_TOOL)}),
        Verb("ToolMap[...]", lambda name: catalog.tools[name], lambda: {"name": "orders.get"}, (KeyError,)),
        Verb("del ToolMap[...]", take_out, lambda: {"name": fixture_tools()[7].name}, (KeyError,)),
    ]
    yield Bench(verbs, lambda: [tool.digest for tool in catalog.tools.values()], usable)


@contextmanager
def _concurrency(_: Path) -> Iterator[Bench]:
    async def stream(**arguments: Any) -> None:
        async for _ in stream_reads(**arguments):
            pass

    valid: dict[str, Any] = {"calls": [("a", 1), ("b", 2)], "read": _answer, "limit": 2}
    # What a source raises comes out of the stream as it is, and an endless one never ends: that is a stream.
    verbs = [
        _waits(bounded_reads, **valid),
        _waits(stream, "stream_reads", **valid),
    ]
    yield Bench(verbs, lambda: None, lambda: True)


def _check_nothing(_: dict[str, Any]) -> None:
    return None


@contextmanager
def _jobs(_: Path, make: Any = JobStore) -> Iterator[Bench]:
    with make(":memory:", [Operation("notes.add", "1", _check_nothing)]) as store:
        first = store.submit("alice", "first", {"month": "2026-08"}, now=0)
        held = store.submit("alice", "held", {"month": "2026-08"}, now=0, deadline=1000)
        done = store.submit("alice", "done", {"month": "2026-08"}, now=0)
        attempt = store.claim(held, now=1, lease=900)
        store.finish(done, store.claim(done, now=1) or 0, {"total_cents": 6000}, now=2)
        expected = store.result("alice", done)
        registered: dict[str, Any] = {"tool": "notes.more", "version": "1", "check": _check_nothing}
        many: dict[str, Any] = {"now": 3, "deadline": 90, "max_attempts": 3, "capacity": 20}
        living: list[Verb] = []
        if make is LivingStore:
            many["owner_capacity"] = 10
            dead = store.submit("alice", "dead", {"month": "2026-08"}, now=0)
            store.cancel("alice", dead)
            living = [
                _verb(store.submit_many, owner="bob", submissions=[("k1", {"a": 1}), ("k2", {})], tool="notes.add",
                      **many),
                _verb(store.list_jobs, owner="alice", before=None, limit=50),
                _verb(partial(store.wait, clock=_clock, sleep=_raise_stop), "wait", raises=(_StopWaiting,),
                      owner="alice", job_id=done, timeout=1.0, poll=0.5),
                _verb(store.keyed, owner="alice", prefix="fir", limit=50),
                _verb(store.survey, owner="alice", state="queued", kind=None, since=0, before=None, limit=50),
                _verb(store.failed_after, seq=0),
                _verb(store.retry, job_id=dead, now=3, by="ops", why="mended", deadline=90, max_attempts=3,
                      capacity=20),
                _verb(store.hand_back, job_id=held, attempt=attempt, code="worker_stopped", now=3),
                _verb(store.release, job_id=held, now=3),
                _verb(store.pause, owner="bob", now=3), _verb(store.resume, owner="bob"),
                _verb(store.paused), _verb(store.kinds),
                _verb(store.claim_next, now=3, lease=10),
                _verb(store.renew, job_id=held, attempt=attempt, now=3, lease=10),
                _verb(store.sweep, now=3, limit=100),
                _verb(store.prune, now=3, results_before=-5.0, keys_before=-6.0, limit=100),
                _verb(store.stats, now=3),
            ]  # fmt: skip
        verbs = [
            *living,
            _verb(make, path=":memory:", operations=(), busy_seconds=1.0),
            _verb(lambda **fields: store.register(Operation(**fields)), "register", **registered),
            _verb(store.register, "register", operation=Operation(**registered)),
            _verb(
                store.submit, owner="alice", action_key="new", args={"month": "2026-08"}, tool="reports.export", **many
            ),
            _verb(store.submit, owner="bob", action_key="k", args={"a": [1, {"b": "x"}]}, tool="notes.add", **many),
            _verb(store.get, owner="alice", job_id=first),
            _verb(store.cancel, owner="alice", job_id=first, now=3),
            _verb(store.events, owner="alice", job_id=held, after=0, limit=100),
            _verb(store.result, owner="alice", job_id=done),
            _verb(store.intent, job_id=first),
            _verb(store.claim, job_id=first, now=3, lease=10),
            _verb(store.progress, job_id=held, attempt=attempt, done=1, total=2, now=3),
            _verb(store.finish, job_id=held, attempt=attempt, result={"total": [1, "x"]}, now=3),
            _verb(store.fail, job_id=held, attempt=attempt, code="temporary", now=3, retry_after=1.0),
            _verb(store.receipt_count, job_id=done),
        ]  # fmt: skip
        tables = {"jobs": "id", "receipts": "job_id", "events": "seq"}

        def content() -> object:
            return [store.db.execute(f"SELECT * FROM {name} ORDER BY {key}").fetchall() for name, key in tables.items()]

        def usable() -> bool:
            try:
                return bool(store.result("alice", done) == expected)
            except Exception as error:  # removed by a prune that was asked for in earnest
                return getattr(error, "code", "") in ("result_expired", "not_found")

        yield Bench(verbs, content, usable)


@contextmanager
def _living(folder: Path) -> Iterator[Bench]:
    with _jobs(folder, LivingStore) as bench:
        yield bench


class _StopWaiting(Exception):
    """Ends a wait that was asked to take long."""


def _raise_stop(_: float) -> None:
    raise _StopWaiting


@contextmanager
def _database(folder: Path) -> Iterator[Bench]:
    def opened(path: Any, busy_seconds: Any) -> None:
        made = folder / path if type(path) is str and path and len(path) < 99 and "\0" not in path else path
        Database(made, application_id=7, migrations=("CREATE TABLE t (x);",), busy_seconds=busy_seconds).close()

    verbs = [_verb(opened, "Database", path="a.db", busy_seconds=1.0)]
    yield Bench(verbs, lambda: None, lambda: True)


# Tools ---------------------------------------------------------------------------------------

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"id": {"type": "string", "pattern": "^[a-z]+$"}, "many": {"type": "array", "items": {"enum": [1]}}},
    "required": ["id"],
    "additionalProperties": False,
}


@contextmanager
def _schema(_: Path) -> Iterator[Bench]:
    validator = compile_schema(_SCHEMA)
    text = '{"a":[1,2.5,"x",null,true]}'
    verbs = [
        _verb(compile_schema, schema=_SCHEMA),
        _verb(validator.validate, value={"id": "x", "many": [1]}),
        _verb(validator.read, value={"id": "x", "many": [1]}),
        _verb(strict_json, text=text),
        _verb(copy_json, value={"a": [1, "x"]}),
        _verb(Pattern, text="^a+b{2,3}[^c]$"),
    ]
    yield Bench(verbs, lambda: None, lambda: validator.validate({"id": "x"}) == [])


def _handler(order: str, note: str = "") -> dict[str, Any]:
    return {"order": order, "note": note}


async def _async_handler(order: str) -> str:
    return order


@contextmanager
def _registry(_: Path) -> Iterator[Bench]:
    registry = ToolRegistry()
    spec: dict[str, Any] = {
        "name": "orders.read",
        "description": "reads an order",
        "effect": "read",
        "timeout_seconds": 5.0,
        "max_attempts": 2,
        "max_output_chars": 1000,
        "handler": _async_handler,
        "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
        "permission": "public",
        "keywords": ("order",),
        "version": "1",
        "concurrency_safe": True,
        "max_concurrency": 2,
        "approval": False,
        "status_query": None,
        "idempotency_key": None,
        "context_argument": None,
    }
    registry.register(ToolSpec(**spec))
    registry.register(ToolSpec(**{**spec, "name": "orders.third"}))

    def register(**fields: Any) -> None:
        registry.register(ToolSpec(**fields))

    def replace(**fields: Any) -> None:
        ToolRegistry().register(ToolSpec(**fields))

    def usable() -> bool:
        answer = asyncio.run(registry.invoke("orders.read", {"order": "a"}))
        return answer == {"ok": True, "data": "a"}

    invoked: dict[str, Any] = {
        "name": "orders.read",
        "arguments": {"order": "a"},
        "grants": ("x",),
        "approved": True,
        "loaded": None,
    }
    verbs = [
        _verb(ToolRegistry, max_running=3, grace_seconds=0.5),
        _verb(ToolSpec, **spec),
        _verb(register, **{**spec, "name": "orders.other"}),
        _verb(replace, **spec),
        _verb(registry.remove, name="orders.third"),
        _verb(registry.get, name="orders.read"),
        _verb(registry.search, query="order", grants={"orders:read"}, limit=3, raises=(ValueError,)),
        _verb(registry.load, hits=[], grants={"orders:read"}, budget_bytes=4096, raises=(ValueError,)),
        _verb(registry.is_concurrency_safe, name="orders.read", arguments={"order": "a"}),
        _waits(
            registry.invoke,
            **invoked,
            remaining=None,
            key=None,
            cut_off=False,
            explain=True,
            progress=None,
            on_start=None,
            keep=None,
        ),
        _verb(is_seconds, value=1.0),
        _verb(result_text, value={"a": [1, "x"]}, raises=(ValueError, TypeError)),
        _verb(is_empty, value=[]),
    ]
    yield Bench(verbs, lambda: sorted(registry.catalog().tools), usable)


@contextmanager
def _tool_list(folder: Path) -> Iterator[Bench]:
    document = {"tools": [{"name": "a.b", "description": "does", "inputSchema": {"type": "object"}}]}
    path = folder / "tools.json"
    path.write_text(json.dumps(document), encoding="utf-8", newline="\n")
    verbs = [
        _verb(
            parse_tool_list,
            document=document,
            permission="tools:use",
            repeated="refuse",
            bad="refuse",
            server="a",
            raises=(ValueError,),
        ),
        _verb(
            read_tool_list,
            path=path,
            permission="tools:use",
            repeated="first",
            bad="leave_out",
            server="",
            raises=(ValueError,),
        ),
    ]
    yield Bench(verbs, lambda: path.read_bytes(), lambda: len(parse_tool_list(document).tools) == 1)


@contextmanager
def _ranking(folder: Path) -> Iterator[Bench]:
    catalog = Catalog(fixture_tools()[:4])
    ranking = Ranking(catalog)

    def made(catalog: Any, synonyms: Any, least: Any) -> object:
        return Ranking(catalog, synonyms=synonyms, least=least)

    asked: dict[str, Any] = {"query": "订单的状态", "grants": {"orders:read"}}
    verbs = [
        _verb(made, "Ranking", catalog=catalog, synonyms={"看": ("查询",)}, least=1),
        _verb(ranking.search, **asked, limit=3),
        _verb(ranking.explain, **asked, name="orders.get"),
    ]
    yield Bench(verbs, lambda: sorted(catalog.tools), lambda: len(ranking.search(**asked)) == 2)


@contextmanager
def _executor(_: Path) -> Iterator[Bench]:
    call: dict[str, Any] = {
        "call_id": "c1",
        "name": "read",
        "arguments": '{"a": 1}',
        "cut_off": False,
        "cancels_siblings": False,
        "read_only": True,
        "description": "reads",
    }

    async def run(call: ToolCall, _: object) -> object:
        return call.name

    async def one(limit: Any = 3, keep_progress: Any = 5, grace_seconds: Any = 1.0, **fields: Any) -> None:
        executor = StreamingToolExecutor(run, limit=limit, keep_progress=keep_progress, grace_seconds=grace_seconds)
        try:
            executor.add(ToolCall(**fields))
        finally:
            executor.end_input()
            await executor.results()

    async def asked(call_id: Any, reason: Any) -> None:
        executor = StreamingToolExecutor(run)
        executor.add(ToolCall("c1", "read"))
        try:
            executor.state_of(call_id)
            executor.is_safe(call_id)
            executor.cancel_call(call_id, reason)
        finally:
            await executor.aclose()

    verbs = [
        _waits(one, "StreamingToolExecutor.add", limit=3, keep_progress=5, grace_seconds=1.0, **call),
        _waits(asked, "StreamingToolExecutor.cancel_call", call_id="c1", reason="call_cancelled"),
        _verb(lambda **fields: check_call(ToolCall(**fields)), "check_call", **call),
        _verb(check_call, call=ToolCall(**call)),
        _verb(lambda **fields: parse_arguments(ToolCall(**fields)), "parse_arguments", **call),
        _verb(CancelScope().cancel, reason="user_interrupt"),
    ]
    yield Bench(verbs, lambda: None, lambda: parse_arguments(ToolCall(**call)) == {"a": 1})


@contextmanager
def _results(folder: Path) -> Iterator[Bench]:
    store = ResultStore(folder / "results")
    stored = store.save("a long text")
    budget = ResultBudget(store, tool_limits={"read": 1000}, overrides={"write": 100})
    content = [{"type": "text", "text": "hello"}, {"type": "image", "data": "x"}]
    messages = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x" * 300}]},
        {"role": "assistant", "content": "fine"},
    ]
    verbs = [
        _verb(lambda label: ResultStore(folder / "other", label), "ResultStore", label="results"),
        _verb(store.save, text="another text"),
        _verb(store.read, path=stored.path, start=2, max_chars=4),
        _verb(partial(visible_content, "read"), "visible_content", content=content, is_error=False),
        _verb(partial(ResultBudget, store), "ResultBudget", tool_limits={"read": 1000}, overrides={"write": 100},
              message_limit=20_000),
        _verb(budget.threshold, tool_name="read"),
        _verb(budget.exempt, tool_name="other"),
        _verb(budget.shape_result, call_id="c1", tool_name="read", content=content, is_error=False),
        _verb(budget.apply, messages=messages),
        _verb(ReplacementState.from_text, text=ReplacementState().to_text()),
        _verb(threshold, tool_limit=5, override=7),
    ]  # fmt: skip
    yield Bench(verbs, budget.state.to_text, lambda: store.read(stored.path) == "a long text")


# Resilience ----------------------------------------------------------------------------------


@contextmanager
def _budget(_: Path) -> Iterator[Bench]:
    budget = Budget.start(10_000, clock=_clock)
    verbs = [
        _verb(partial(Budget, clock=_clock), "Budget", total_ms=1000, used_ms=0, compensation_budget_ratio=0.2),
        _verb(partial(Budget.start, clock=_clock), "Budget.start", total_ms=1000, compensation_budget_ratio=0.2),
        _verb(partial(Budget.from_wire, clock=_clock), "Budget.from_wire", wire={"main_ms": 5, "hard_ms": 7}),
        Verb("Budget.check", budget.check, lambda: {"name": "tool", "minimum_ms": 5, "min_reserve_ms": 200}),
        _verb(budget.child, total_ms=500),
        _verb(budget.consume, milliseconds=500),
        Verb("run_within", partial(run_within, budget, fn=_answer), lambda: {
            "name": "tool", "minimum_ms": 0, "min_reserve_ms": 1, "limit_ms": 1000, "grace_ms": 10}, (), True),
        Verb("tool_with_budget", partial(tool_with_budget, budget=budget, fn=_answer), lambda: {
            "name": "tool", "args": {"a": 1}, "min_reserve_ms": 1}, (), True),
    ]  # fmt: skip
    yield Bench(verbs, budget.to_wire, lambda: budget.remaining == 7500)


@contextmanager
def _retry(_: Path) -> Iterator[Bench]:
    async def no_wait(_: float) -> None:
        return None

    policy: dict[str, Any] = {
        "max_attempts": 3,
        "base_backoff_ms": 10,
        "max_backoff_ms": 100,
        "connect_timeout_ms": 1500,
        "read_timeout_ms": 5000,
    }
    bucket = TokenBucket()
    retried = partial(retry, _answer, sleep=no_wait, random=lambda: 0.5)
    verbs = [
        _verb(RetryPolicy, **policy),
        _verb(RetryPolicy.from_max_retries, max_retries=3),
        _verb(TokenBucket, capacity=10, refill=0.1),
        _verb(partial(backoff_ms, random=lambda: 0.5), "backoff_ms", attempt=1, base_ms=200, max_ms=3000),
        Verb("retry", retried, lambda: {
            "effect": "read", "policy": RetryPolicy(), "name": "tool", "minimum_ms": 0, "min_reserve_ms": 200,
            "key": None, "new_chain": True}, (), True),
        _verb(partial(AdaptivePolicy), "AdaptivePolicy", base_timeout_ms=100, max_retries=2),
        _verb(lambda **fields: AdaptivePolicy(**fields).retry_policy(), "AdaptivePolicy.retry_policy",
              base_timeout_ms=5000, max_retries=2, base_backoff_ms=5, max_backoff_ms=50),
    ]  # fmt: skip
    yield Bench(verbs, lambda: None, lambda: bucket.take() or True)


@contextmanager
def _breaker(_: Path) -> Iterator[Bench]:
    breaker = CircuitBreaker(clock=_clock)
    limit = AdaptiveLimit(2, 8)
    limit.record(0.1)
    verbs = [
        _verb(partial(CircuitBreaker, clock=_clock), "CircuitBreaker", window_s=60.0, min_calls=10,
              failure_rate=0.5, reset_s=30.0, probe_s=60.0, slow_s=1.0),
        _verb(breaker.check, after_s=1.0),
        _verb(lambda verdict: breaker.acquire().give(verdict), "Permit.give", verdict="success"),
        _verb(AdaptiveLimit, low=1, high=64, start=None, window=100),
        _verb(limit.record, seconds=0.1),
        _verb(limit.quantile, share=0.5),
        _verb(quantile, values=[1.0, 2.0], share=0.5),
    ]  # fmt: skip

    def content() -> object:
        seen = breaker.statistics()
        return limit.limit, seen.state, seen.generation, seen.calls, seen.failures

    yield Bench(verbs, content, lambda: breaker.statistics().state == "closed")


@contextmanager
def _cancel_store(_: Path) -> Iterator[Bench]:
    with closing(CancelStore.open(":memory:", clock=_clock)) as store:
        store.register("t1", "s1", tool="pay")
        store.register("t1", "s2", tool="pay", parent_span_id="s1")
        fence = store.claim("t1", "s2")
        span: dict[str, Any] = {"trace_id": "t1", "span_id": "s2", "epoch": None}
        store.register("t2", "s1", tool="pay")
        store.register("t4", "done", tool="pay")
        store.finish("t4", "done", store.claim("t4", "done") or 0, {"paid": True})
        store.register("t5", "stopped", tool="pay")
        stopped = store.claim("t5", "stopped") or 0
        store.cancel("t5")
        verbs = [
            _verb(lambda **options: CancelStore.open(":memory:", **options).close(), "open", busy_seconds=1.0),
            _verb(store.cancel, trace_id="t1", span_id="s1", reason="parent_cancelled", epoch=None),
            _verb(store.new_run, trace_id="t3"),
            _verb(store.compensate, trace_id="t4", span_id="done", tool="refund", epoch=None),
            _verb(store.register, trace_id="t1", span_id="s3", tool="pay", parent_span_id="s1", epoch=None),
            _verb(store.claim, trace_id="t1", span_id="s1", epoch=None, lease_s=None),
            _verb(store.take_over, fence=fence, lease_s=30, **span),
            _verb(store.renew, fence=fence, lease_s=30, **span),
            _verb(store.overdue, limit=100),
            _verb(store.prune, older_than_s=10**8, limit=100),
            _verb(store.cancel_reason, **span),
            _verb(store.finish, fence=fence, result={"a": [1, "x"]}, **span),
            _verb(store.fail, fence=fence, code="temporary", **span),
            _verb(store.confirm, trace_id="t5", span_id="stopped", fence=stopped, epoch=None),
            _verb(store.get, **span),
            _verb(store.invocations, trace_id="t1", state="running", epoch=None, limit=100),
        ]
        database = store._database
        names = [name for (name,) in database.rows("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 99")]
        yield Bench(verbs, _tables(database, *names), lambda: store.get("t2", "s1", epoch=1).tool == "pay")


@contextmanager
def _cancellation(_: Path) -> Iterator[Bench]:
    async def http_get(_url: str, *, range: tuple[int, int]) -> bytes:
        if range[0] > 10**8:
            raise _StopWaiting
        return b"x" * 10

    async def run(grace_s: Any) -> None:
        await CancelToken().run(_answer, grace_s=grace_s)

    with closing(CancelStore.open(":memory:", clock=_clock)) as store:
        token = DistributedCancelToken("t1", None, store, clock=_clock)
        verbs = [
            _verb(lambda reason, cause: CancelToken().cancel(reason, cause), "CancelToken.cancel",
                  reason="stop", cause=None),
            _waits(run, "CancelToken.run", grace_s=0.1),
            _verb(partial(DistributedCancelToken, mq_client=None, db_pool=store, clock=_clock),
                  "DistributedCancelToken", trace_id="t1", span_id=None, epoch=None, poll_s=1.0),
            _verb(token.receive, body='{"trace_id": "t2", "span_id": null, "epoch": 1}'),
            _verb(Interruption, tool="read", mode="cooperative", ignores_cancel=False, discardable=False,
                  at_least_once=False),
            _verb(lambda every: list(checked([1, 2], CancelToken(), every=every)), "checked", every=20),
            _waits(partial(clean_up, _answer), "clean_up", limit_s=1.0, grace_s=0.1),
            _waits(partial(fetch_large_blob, cancel_token=CancelToken(), http_get=http_get), "fetch_large_blob",
                   raises=(_StopWaiting,),
                   url="mem:blob", total=10),
        ]  # fmt: skip
        yield Bench(verbs, lambda: token.token.is_cancelled(), lambda: token.is_cancelled() is False)


# Effects elsewhere ---------------------------------------------------------------------------


@contextmanager
def _idempotency(_: Path) -> Iterator[Bench]:
    async def no_wait(_: float) -> None:
        return None

    with closing(IdempotencyStore(":memory:", clock=_clock, sleep=no_wait)) as store:
        intent = make_intent("pay", {"order": "1"}, key="order-1")
        claim = store.claim(intent)
        assert isinstance(claim, Claim)
        known = make_intent("pay", {"order": "2"}, key="order-2")
        first = store.claim(known)
        assert isinstance(first, Claim)
        store.complete(first, {"paid": True})
        lost = make_intent("pay", {"order": "4"}, key="order-4")
        doubtful = store.claim(lost)
        assert isinstance(doubtful, Claim)
        store.doubt(doubtful)
        once: dict[str, Any] = {"namespace": "pay", "owner": "-", "ttl_s": 86400, "repeatable": False, "lease_s": 30}
        verbs = [
            _verb(lambda holder, poll_s, busy_seconds: IdempotencyStore(
                ":memory:", holder=holder, poll_s=poll_s, busy_seconds=busy_seconds).close(),
                "IdempotencyStore", holder="local", poll_s=0.1, busy_seconds=1.0),
            _waits(partial(store.execute_once, fn=_answer), "execute_once", intent={"order": "3", "cents": 5},
                   key=None, fields=["order"], wait_s=0.0, **once),
            _verb(partial(store.run_once, operation=lambda: {"a": 1}), "run_once", key="k",
                  arguments={"order": "3"}, **once),
            _verb(partial(store.claim, make_intent("pay", {"order": "9"}, key="order-9")), "claim", ttl_s=86400,
                  lease_s=30.0, repeatable=False),
            _verb(partial(store.renew, claim), "renew", lease_s=30.0),
            _verb(partial(store.complete, claim), "complete", value={"a": [1, "x"]}),
            _verb(partial(store.fail, claim), "fail", code="card_declined", detail={"a": 1}),
            _verb(lambda kind, value, fence: store.settle(lost, Verdict(kind, value), fence=fence),
                  "settle", kind="done", value={"a": 1}, fence=doubtful.fence),
            _verb(lambda key, fence: store.settle_by_name("pay", "-", key, Verdict("unknown"), fence=fence),
                  "settle_by_name", key="k", fence=1),
            _verb(store.unsettled, limit=10),
            _verb(store.sweep, limit=10),
            _verb(make_intent, namespace="pay", arguments={"order": "1", "n": [1]}, owner="-", fields=["order"],
                  key=None),
            _verb(intent_key, namespace="pay", fields={"order": "1"}),
            _verb(document_key, namespace="pay", intent={"order": "1"}),
            _verb(ttl_for, retry_window_s=60),
            _verb(Lifetime, retry_window_s=60, ttl_s=86400),
        ]  # fmt: skip
        database = store.database if hasattr(store, "database") else store._database
        names = [name for (name,) in database.rows("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 99")]
        yield Bench(verbs, _tables(database, *names), lambda: store.look(known).value == {"paid": True})


@contextmanager
def _outbox(folder: Path) -> Iterator[Bench]:
    async def send(topic: str, payload: str, *, key: str) -> None:
        return None

    with closing(Outbox(":memory:", clock=_clock)) as outbox, closing(Consumer(":memory:", "c", clock=_clock)) as inbox:

        def record(**fields: Any) -> None:
            with outbox.database.write() as db:
                outbox.record(db, **fields)

        record(topic="events", payload={"n": 0}, event_id="dead")
        batch = outbox.claim()
        assert batch is not None
        outbox.mark(batch, [Delivery(batch.messages[0], "refused_for_good")])
        record(topic="events", payload={"n": 0}, event_id="first")
        record(topic="events", payload={"n": 0}, event_id="second")
        writer = OutboxWriter(outbox.database, outbox)
        record_fields: dict[str, Any] = {
            "topic": "events",
            "event_id": "e1",
            "ordering_key": "k",
            "priority": 0,
            "compensates": None,
        }
        verbs = [
            _verb(lambda **options: Outbox(":memory:", **options).close(), "Outbox", max_attempts=8,
                  when_dead="block", horizon_s=3600.0, busy_seconds=1.0),
            _verb(record, payload={"n": [1, "x"]}, delay_s=0.0, **record_fields),
            _verb(outbox.withdraw, event_id="second"),
            _verb(outbox.claim, limit=10, lease_s=60.0),
            _verb(outbox.status, event_id="first"),
            _verb(outbox.dead, limit=10),
            _verb(outbox.replay, event_id="dead"),
            _verb(outbox.discard, event_id="dead"),
            _verb(outbox.archive, older_than_s=3600.0, limit=10),
            _verb(outbox.forget, older_than_s=3_000_000.0, limit=10),
            _waits(partial(writer.do_business_and_record, lambda db: None), "do_business_and_record",
                   event_payload={"n": 1}, **record_fields),
            Verb("Consumer", lambda **options: Consumer(":memory:", clock=_clock, **options).close(),
                 lambda: {"name": "c", "retention_s": 7200.0, "horizon_s": 3600.0, "busy_seconds": 1.0}),
            _verb(partial(inbox.handle, effect=lambda db: None), "Consumer.handle", event_id="e1"),
            _verb(inbox.sweep, limit=10),
            _verb(partial(Relay, outbox, send), "Relay", limit=10, lease_s=60.0, interval_s=1.0),
            _verb(lambda part, other: derive_event_id(part, other), "derive_event_id", part="a", other="b"),
            _verb(growing_delay, base_s=1.0, max_s=300.0),
        ]  # fmt: skip
        yield Bench(verbs, _tables(outbox.database, "outbox"), lambda: outbox.status("first")["event_id"] == "first")


@contextmanager
def _sales(folder: Path) -> Iterator[Bench]:
    path = folder / "sales.csv"
    path.write_text("order_id,month,amount_cents\n1,2026-08,100\n", encoding="utf-8", newline="\n")

    LivingStore(folder / "jobs.db").close()

    def opened(path: Any, extra: Any) -> None:
        with closing(SalesFile(path, extra)) as file:
            list(file.rows())

    verbs = [
        _verb(summarize, path=path, month="2026-08", progress=None, steps=10, raises=(ValueError,)),
        _verb(opened, "SalesFile", path=path, extra=(), raises=(ValueError,)),
        _verb(export_arguments, month="2026-08", sales=path, raises=(ValueError,)),
        _verb(partial(remove_leftovers, folder, folder / "jobs.db"), "remove_leftovers", limit=5, raises=(ValueError,)),
        _verb(take_snapshot, path=path),
    ]
    yield Bench(verbs, path.read_bytes, lambda: summarize(path, "2026-08") is not None)


@contextmanager
def _worker(folder: Path) -> Iterator[Bench]:
    path = folder / "jobs.db"

    def made(**options: Any) -> None:
        Worker(handlers={"reports.export": Handler(lambda context: {})}, clock=_clock, **options).close()

    def usable() -> bool:
        made(path=path)
        return True

    verbs = [
        Verb("Worker", made, lambda: {"path": path,
                "lease": 10.0, "renew_every": 3.0, "poll": 0.05, "progress_every": 0.5,
                                      "grace": 10.0, "name": "worker"}),
        _verb(lambda attempt, **fields: Backoff(**fields).seconds(attempt, lambda: 0.5), "Backoff.seconds",
              base_ms=500, cap_ms=60_000, age_s=600.0, attempt=1),
    ]  # fmt: skip
    yield Bench(verbs, lambda: None, usable)


SUBJECTS: Final[dict[str, Subject]] = {
    "canonical": _canonical,
    "catalog": _catalog,
    "indexed_catalog": partial(_catalog, kind=IndexedCatalog),
    "concurrency": _concurrency,
    "jobs": _jobs,
    "living": _living,
    "database": _database,
    "schema": _schema,
    "registry": _registry,
    "tool_list": _tool_list,
    "ranking": _ranking,
    "executor": _executor,
    "results": _results,
    "budget": _budget,
    "retry": _retry,
    "breaker": _breaker,
    "cancel_store": _cancel_store,
    "cancellation": _cancellation,
    "idempotency": _idempotency,
    "outbox": _outbox,
    "sales": _sales,
    "worker": _worker,
}
"""Every subject by name."""

FUZZED: Final[dict[str, tuple[str, ...]]] = {
    "canonical": ("canonical", "byte_size", "digest"),
    "catalog": ("Tool", "Catalog", "ToolMap"),
    "indexed_catalog": ("IndexedCatalog",),
    "concurrency": ("bounded_reads", "stream_reads"),
    "jobs": ("JobStore", "Operation"),
    "living": ("LivingStore",),
    "database": ("Database",),
    "schema": ("compile_schema", "Validator", "strict_json", "copy_json", "Pattern"),
    "registry": ("ToolRegistry", "ToolSpec", "is_seconds", "result_text", "is_empty"),
    "tool_list": ("parse_tool_list", "read_tool_list"),
    "ranking": ("Ranking",),
    "executor": ("StreamingToolExecutor", "check_call", "parse_arguments", "CancelScope", "ToolCall"),
    "results": ("ResultStore", "ResultBudget", "ReplacementState", "threshold", "visible_content"),
    "budget": ("Budget", "run_within", "tool_with_budget"),
    "retry": ("RetryPolicy", "TokenBucket", "backoff_ms", "retry", "AdaptivePolicy"),
    "breaker": ("CircuitBreaker", "Permit", "AdaptiveLimit", "quantile"),
    "cancel_store": ("CancelStore",),
    "cancellation": (
        "CancelToken",
        "DistributedCancelToken",
        "Interruption",
        "checked",
        "clean_up",
        "fetch_large_blob",
    ),
    "idempotency": (
        "IdempotencyStore",
        "IntentRecords",
        "make_intent",
        "intent_key",
        "document_key",
        "ttl_for",
        "Lifetime",
        "Verdict",
    ),
    "outbox": ("Outbox", "OutboxWriter", "Consumer", "Relay", "derive_event_id", "growing_delay"),
    "sales": ("summarize", "SalesFile", "export_arguments", "take_snapshot", "remove_leftovers"),
    "worker": ("Worker", "Handler", "Backoff"),
}
"""Which subject calls a name. A class stands for its public methods too, but for those that stand below."""

NOT_FUZZED: Final[dict[str, tuple[str, ...]]] = {
    "it takes no arguments": (
        "Tool.definition", "fixture_tools", "search_entry", "JobStore.close", "LivingStore.compact",
        "LivingStore.newest_event", "Database.write", "Database.close", "Budget.compensation", "Budget.seconds",
        "Budget.to_wire", "CancelStore.close", "CancelToken.check", "CancelToken.checkpoint", "CancelToken.child",
        "CancelToken.is_cancelled", "CancelToken.wait", "DistributedCancelToken.check",
        "DistributedCancelToken.is_cancelled", "DistributedCancelToken.watch", "CircuitBreaker.acquire",
        "CircuitBreaker.statistics", "CircuitBreaker.isolate", "CircuitBreaker.reset",
        "Permit.success", "Permit.failure", "Permit.neutral", "CancelScope.close",
        "StreamingToolExecutor.aclose", "StreamingToolExecutor.discard", "StreamingToolExecutor.end_input",
        "StreamingToolExecutor.ready", "StreamingToolExecutor.results", "StreamingToolExecutor.statistics",
        "StreamingToolExecutor.updates", "IntentRecords.close", "Outbox.close", "Outbox.alarms", "Consumer.close",
        "Relay.run_pass", "ReplacementState.to_text", "SalesFile.close", "SalesFile.rows", "SalesFile.snapshot",
        "TokenBucket.put_back", "TokenBucket.succeeded", "TokenBucket.take", "ToolMap.values", "ToolRegistry.catalog",
        "Worker.close", "Worker.run_once", "Worker.stop", "abandoned",
    ),
    "it writes the file that it is told": ("LivingStore.backup",),
    "it gets what another part of the package has checked or made": (
        "text_digest", "Tool.card", "IndexedToolMap", "Database.row", "Database.rows", "Transaction",
        "Pattern.found_in", "CircuitBreaker.call", "judge", "blame", "in_doubt", "may_be_done", "upkeep", "Postings",
        "ToolIndex", "checked_async", "in_thread", "own", "until", "leaves", "run", "ToolRegistry.check", "is_async",
        "Places", "Stop", "HandlerSignature", "can_execute", "Attempt", "Held", "connect_then_read", "answer_within",
        "may_retry", "classify", "AdaptiveCaller", "pointer", "words_of", "terms", "stem", "is_pair",
        "first_sentence", "rarity", "places", "failure_of", "cancelled_answer", "invalid_arguments", "ToolPipeline",
        "ToolList", "content_size", "content_text", "preview", "preview_size", "fits", "json_value", "provider_name",
        "server_answer", "tools_for", "ResultBudget.same_limits", "Blame", "Delivery", "is_name", "check_name",
        "whole_number", "canonical_text", "whole_characters", "encoded", "cut_text", "redact_secrets", "partition",
        "merge_messages", "group_results", "select_fresh_to_replace", "ReplacementState.decide", "status_text",
        "WorkerLog", "log_path", "Heartbeat", "read_table", "export_key", "Exporter", "problems_of", "prefix_digests",
        "open_regular",
        "Turnstile", "Turn", "FairDatabase", "FairTransaction", "is_busy", "ThreadProgress", "answer_of", "Summary",
        "CancelReceipt", "IntentRecords.claim_in", "IntentRecords.complete", "IntentRecords.complete_in",
        "IntentRecords.doubt", "IntentRecords.doubt_in", "IntentRecords.fail_in", "IntentRecords.look",
        "IntentRecords.release", "IntentRecords.release_in", "IdempotencyStore.run_in", "Outbox.has_time",
        "Outbox.mark", "Consumer.first_time_in", "Relay.run", "Relay.wait_for", "Worker.run", "outbox_worker",
        "asked_wait", "Try", "retried", "retry_blocking",
        "at_once", "off_the_loop", "StreamingToolExecutor.is_safe", "StreamingToolExecutor.state_of",
        "messages_for", "blocks_of", "kinds_text", "speaker",
    ),
    "it is the check itself": (
        "Arguments", "is_unicode", "milliseconds", "need_transaction", "are_names", "are_words", "is_label",
        "is_string", "is_text", "is_whole",
    ),
    "it wires parts together that are fuzzed by themselves": (
        "Gateway", "invoke_tool", "saga_demonstration", "ToolRegistry.tool", "ToolList.name_at_server",
    ),
    "it starts or stops processes": (
        "ChildProcess", "ChildContext", "serve", "stop_process", "sigterm_is_a_request", "StopSignals",
    ),
    "it only carries what was found, and is made by its module": (
        "Ending", "Job", "Outcome", "Invocation", "Statistics", "Update", "ExecutorStatistics", "ToolState",
        "Request", "Claim", "Record", "Intent", "Message", "Batch", "PassReport", "Stopped", "Candidate",
        "SeenResult", "Partition", "ShapedResult", "GroupReport", "BudgetReport", "StoredResult", "Status", "Sale",
        "Violation", "CallFailure", "ToolResult", "Progress", "LeftOut", "CallContext", "ApprovalRequest", "Note",
        "RefusedTool",
    ),
}  # fmt: skip
"""Names and methods that are not called with traps, each under its reason."""

NOT_FUZZED_MODULES: Final[dict[str, str]] = {
    "lab": "a laboratory: programs for learning and proof, no boundary",
    "companions.basics.modules": "it loads what a person named in a command",
    "companions.work.functions": "it reads the program's own functions when the program starts",
    "companions.schemas.hints": "it reads the program's own functions when the program starts",
    "companions.schemas.schema_rules": "made by compile_schema, which is fuzzed with all of them",
    "experiments": "a program that writes reports",
    "quickstart": "a program",
    "__main__": "a program",
    "companions.operating.jobs_command": "a program",
    "companions.operating.jobs_crew": "starts processes",
    "companions.operating.jobs_top": "draws what the store answered",
    "companions.operating.jobs_watch": "draws what the store answered",
    "companions.serving": "ten thousand lines in its own test: what comes in comes as lines",
}
"""Modules whose names are left out, each with the reason. A name stands for what is below it."""
