"""What happened in a run, in a few sentences of the reader's language: what a terminal shows instead of JSON.

Each sentence is filled in from the figures of that very run, whatever its options were, and left out where it would
not be true. `TABLE` has all of them in both languages. The lanes beneath are the calls that the scene saw.

What it does not do: it decides nothing and measures nothing; the same run gives the JSON with `--json`.
Source: the chapter's section on its five experiments (claims C10-263 to C10-269, C10-271 to C10-277).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from chapter10.lab.console.strings import LANGUAGES, Text, choose_language
from chapter10.lab.console.textio import print_json
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.evidence.telling import add_json, half, is_told, narrow_lanes, print_lines

__all__ = ["SENTENCES", "TABLE", "quickstart_options", "sentences", "story", "tell_quickstart"]

_MOST_NAMED: Final = 4
"""The most tools that a sentence names; the number of the others follows."""
_MOST_SHOWN: Final = 40
"""Characters of a query in a sentence; a longer one is cut."""

_Sentence = tuple[str, Mapping[str, Any]]
"""The name of a sentence in `TABLE`, and what to fill in."""


def story(group: str, title: Text, figures: Mapping[str, Any], scene: Scene, asked: Any, language: str) -> list[str]:
    """Return what happened in a group as lines: a heading, the sentences, then the lanes of each part.

    `asked`: the options of the run by name, with the defaults of the experiment where nothing else was said.
    """
    lines = [f"== {group}: {title.in_language(language)}", ""]
    lines += sentences(group, figures, scene, asked, language)
    for part, events in scene.parts:
        if events:
            lines += ["", *([f"-- {half(part, language)}"] if part else []), *narrow_lanes(events)]
    return [*lines, ""]


def sentences(group: str, figures: Mapping[str, Any], scene: Scene, asked: Any, language: str) -> list[str]:
    """Return the sentences that are true of this run of a group."""
    return [TABLE[name].in_language(language, **values) for name, values in SENTENCES[group](figures, scene, asked)]


def _catalog(figures: Mapping[str, Any], scene: Scene, asked: Any) -> Iterator[_Sentence]:
    hits = figures["hits"]
    yield "catalog.sets", figures
    query = _cut(figures.get("query", asked["query"]))
    yield ("catalog.hits" if hits else "catalog.no_hits"), {"query": query, "hits": _ranked(hits)}
    tied = sum(hit["score"] == hits[0]["score"] for hit in hits)
    if tied > 1:
        yield "catalog.tie", {"count": tied, "score": hits[0]["score"]}
    if "refused" in figures:
        yield "catalog.refused", figures
    elif hits:
        yield "catalog.loaded", figures
    yield "catalog.bytes", figures
    yield "catalog.all", figures
    for name in ("left_out", "never_loadable"):
        if name in figures and figures[name]["count"]:
            yield f"catalog.{name}", figures[name]


def _boundaries(figures: Mapping[str, Any], scene: Scene, asked: Any) -> Iterator[_Sentence]:
    unknown = figures["unknown_query"]
    yield ("boundaries.ranked" if unknown else "boundaries.unknown"), {"query": "火星 着陆", "hits": _ranked(unknown)}
    hits = figures["ambiguous_query"]
    tied = sum(hit["score"] == hits[0]["score"] for hit in hits)
    outcome = "none" if not hits else "one" if len(hits) == 1 else "tie" if tied > 1 else "ranked"
    yield f"boundaries.{outcome}", {"query": _cut(asked["query"]), "hits": _ranked(hits), "count": tied}
    for name in ("budget", "revoked", "stale"):
        yield f"boundaries.{name}", figures


def _concurrency(figures: Mapping[str, Any], scene: Scene, asked: Any) -> Iterator[_Sentence]:
    results = figures["results"]
    yield "concurrency.peak", {**figures, "count": len(results)}
    ended = [event.actor for _, events in scene.parts for event in events if event.detail]
    yield "concurrency.order", {"order": ", ".join(ended)}
    told = (f"{call_id} {outcome.get('error') or outcome['value']['status']}" for call_id, outcome in results.items())
    yield "concurrency.results", {"results": ", ".join(told)}
    failed = [call_id for call_id, outcome in results.items() if "error" in outcome]
    if failed and len(failed) < len(results):
        yield "concurrency.failed", {"failed": ", ".join(failed)}
    if figures["measured_network_latency_ms"] is None:
        yield "concurrency.unmeasured", {}


def _lifecycle(figures: Mapping[str, Any], scene: Scene, asked: Any) -> Iterator[_Sentence]:
    yield "lifecycle.receipt", figures["submitted"]
    yield "lifecycle.reconnected", {"id": figures["resumed_with_same_job_id"]}
    steps = [event["detail"] for event in figures["events"] if event["kind"] == "progress"]
    fault = figures.get("fault")
    if steps:
        yield "lifecycle.progress", {"count": len(steps), **steps[-1]}
    elif fault is None:
        yield "lifecycle.no_rows", {}
    if "all_rows_counted" in figures:
        yield "lifecycle.counted", figures["all_rows_counted"]
    if fault is None:
        result = figures["result"]
        yield "lifecycle.result", {**result["data"], "artifact_id": result["artifact_id"]}
    else:
        yield ("lifecycle.bad_line" if fault["line"] else "lifecycle.bad_file"), {**fault, **figures["final"]}
    kinds = [event["kind"] for event in figures["new_events_after_cursor"]]
    yield "lifecycle.cursor", {"cursor": figures["cursor"], "count": len(kinds), "kinds": ", ".join(kinds)}


def _failures(figures: Mapping[str, Any], scene: Scene, asked: Any) -> Iterator[_Sentence]:
    yield ("failures.same" if figures["same_submission_same_job"] else "failures.other"), figures
    late = figures["recovery_attempts"][1] is not None
    yield ("failures.late" if late else "failures.in_time"), {**figures, "lease": asked["lease"]}
    for name in ("cancelled", "deadline", "retried", "permanent", "stranger", "queued"):
        yield f"failures.{name}", figures


SENTENCES: Final[Mapping[str, Callable[[Mapping[str, Any], Scene, Any], Iterator[_Sentence]]]] = {
    "catalog": _catalog,
    "boundaries": _boundaries,
    "concurrency": _concurrency,
    "lifecycle": _lifecycle,
    "failures": _failures,
}
"""For each group, which sentences its figures bear."""


def _ranked(hits: Sequence[Mapping[str, Any]]) -> str:
    """Return the hits with their scores, the first of them by name."""
    named = [f"{hit['name']} ({hit['score']})" for hit in hits[:_MOST_NAMED]]
    return ", ".join(named) + (f" (+{len(hits) - _MOST_NAMED})" if len(hits) > _MOST_NAMED else "")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


# Quickstart --------------------------------------------------------------------------------------


def quickstart_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of `python -m chapter10.quickstart`: `--json` and `--lang`; a mistake is exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10.quickstart",
        description="One job from its receipt to its result: sentences on a terminal, JSON elsewhere.",
        allow_abbrev=False,
    )
    add_json(parser)
    parser.add_argument("--lang", choices=LANGUAGES, help="the language of the sentences")
    return parser.parse_args(arguments)


def tell_quickstart(figures: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Print what happened after the receipt: `{states, result, events, receipt_count}` in sentences, or as JSON."""
    if not is_told(options):
        print_json(figures)
        return
    steps = [event["detail"] for event in figures["events"] if event["kind"] == "progress"]
    values = {
        **figures["result"]["data"],
        **steps[-1],
        "states": " -> ".join(figures["states"]),
        "steps": len(steps),
        "artifact_id": figures["result"]["artifact_id"],
        "receipts": figures["receipt_count"],
        "events": len(figures["events"]),
    }
    language = choose_language(options.lang)
    print_lines(
        TABLE[f"quickstart.{name}"].in_language(language, **values)
        for name in ("receipt", "states", "progress", "result", "next")
    )


# The table ---------------------------------------------------------------------------------------

TABLE: Final[Mapping[str, Text]] = {
    "catalog.sets": Text(
        "目录里注册了 {registered:,} 个工具，这个身份能发现 {discoverable:,} 个。",
        "Registered tools: {registered:,}; this identity may discover {discoverable:,} of them.",
    ),
    "catalog.hits": Text(
        "搜索“{query}”，候选依次是：{hits}。",
        'A search for "{query}" gives, in this order: {hits}.',
    ),
    "catalog.no_hits": Text(
        "搜索“{query}”，没有匹配，所以什么也不加载。",
        'A search for "{query}" finds nothing, so nothing is loaded.',
    ),
    "catalog.tie": Text(
        "前 {count} 个同为 {score} 分：先后只按名称，不表示哪个更合适。",
        "The first {count} have the same score, {score}, and "
        "stand in the order of their names, which says nothing about fit.",
    ),
    "catalog.loaded": Text("完整定义加载了 {loaded} 份。", "Whole definitions that are loaded: {loaded}."),
    "catalog.refused": Text(
        "这些定义共 {needed_bytes:,} 字节，预算是 {budget_bytes:,}：{refused}，一份也不加载。",
        "Their definitions take {needed_bytes:,} bytes, the budget is {budget_bytes:,}: {refused}, and none is loaded.",
    ),
    "catalog.bytes": Text(
        "按需路径给模型看 {deferred_visible_payload_bytes:,} 字节：搜索入口 {bootstrap_bytes:,} + "
        "候选列表 {hit_summaries_bytes:,} + 定义列表 {loaded_definitions_bytes:,}。",
        "The path on demand shows {deferred_visible_payload_bytes:,} bytes: the search entry {bootstrap_bytes:,} + "
        "the list of hits {hit_summaries_bytes:,} + the list of definitions {loaded_definitions_bytes:,}.",
    ),
    "catalog.all": Text(
        "列出全部可发现的定义要 {full_definitions_bytes:,} 字节。都是 UTF-8 字节，不是 Token、费用或时间。",
        "The list of all discoverable definitions takes {full_definitions_bytes:,}. "
        "These are bytes of UTF-8, not tokens, cost or time.",
    ),
    "catalog.left_out": Text(
        "重名而没有计入的条目有 {count:,} 个，--json 列出最前面的。",
        "Entries left out because their name came before: {count:,}; --json names the first.",
    ),
    "catalog.never_loadable": Text(
        "单独一份就超过预算、永远加载不了的定义有 {count:,} 份。",
        "Definitions that alone exceed the budget and can never be loaded: {count:,}.",
    ),
    "boundaries.unknown": Text(
        "“{query}”没有匹配：返回空列表，不硬选一个。",
        '"{query}" has no match: an empty list, and nothing is picked instead.',
    ),
    "boundaries.none": Text("“{query}”没有匹配。", '"{query}" has no match.'),
    "boundaries.one": Text("“{query}”只找到一个：{hits}。", '"{query}" finds one tool: {hits}.'),
    "boundaries.tie": Text(
        "“{query}”的前 {count} 个平分：{hits}。要问清楚，不能拿第一个当答案。",
        '"{query}" is a tie of the first {count}: {hits}. It has to be asked which; the first is no answer.',
    ),
    "boundaries.ranked": Text(
        "“{query}”的候选依次是：{hits}。分数只说词相近，不批准任何动作。",
        '"{query}" gives, in this order: {hits}. A score says that words agree and approves nothing.',
    ),
    "boundaries.budget": Text(
        "预算恰好够，加载 {loaded_at_exact_budget} 份；少一个字节，得到 {budget}，不给半份。",
        "Exactly enough budget loads {loaded_at_exact_budget}; one byte less gives {budget}, and no half of it.",
    ),
    "boundaries.revoked": Text(
        "加载之后撤销权限，执行前再查得到 {revoked}；再试一次，得到 {revoked_repeated}。",
        "A permission is revoked after loading: the check before the call gives {revoked}, a repetition "
        "{revoked_repeated}.",
    ),
    "boundaries.stale": Text(
        "定义更新之后，旧候选得到 {stale}；重新查找并加载，得到版本 {stale_reloaded_version}。",
        "The definition changes: the old hit gives {stale}; found and loaded again it is version "
        "{stale_reloaded_version}.",
    ),
    "concurrency.peak": Text(
        "{count} 个读取，上限 {limit}：同时在途的最多 {peak_in_flight} 个，在屏障前数到，不靠计时。",
        "{count} reads, limit {limit}: at most {peak_in_flight} in flight at once, counted at a barrier and not timed.",
    ),
    "concurrency.order": Text("完成的先后：{order}。", "They ended in this order: {order}."),
    "concurrency.results": Text("结果按调用 ID 归位：{results}。", "Each result stands under its call id: {results}."),
    "concurrency.failed": Text("失败的是 {failed}，别的结果都保留。", "{failed} failed; the other results are kept."),
    "concurrency.unmeasured": Text(
        "没有测量延迟，所以那一项是空值。", "No latency was measured, so that field is null."
    ),
    "lifecycle.receipt": Text(
        "提交后先拿到凭证：作业 {id}，状态 {state}，尝试 {attempt}，进度 {done}/{total}。",
        "First there is a receipt: job {id}, state {state}, attempt {attempt}, progress {done}/{total}.",
    ),
    "lifecycle.reconnected": Text(
        "关闭连接，另开一个，凭编号领取：作业 {id}。",
        "The connection is closed; another one claims by the number: job {id}.",
    ),
    "lifecycle.progress": Text(
        "汇报进度 {count} 次，最后是 {done}/{total}。", "Reports of progress: {count}, the last one {done}/{total}."
    ),
    "lifecycle.no_rows": Text("这个月没有记录，也就没有进度。", "The month has no rows, so there is no progress."),
    "lifecycle.counted": Text(
        "数完之后状态是 {state}：完成由 finish 决定。", "When all is counted the state is {state}: finish decides."
    ),
    "lifecycle.result": Text(
        "交付 {artifact_id}：{month} 共 {row_count:,} 行，合计 {total_cents:,} 分。",
        "Delivered as {artifact_id}: {month}; rows: {row_count:,}, cents together: {total_cents:,}.",
    ),
    "lifecycle.bad_line": Text(
        "第 {line} 行不对（{code}）：作业以 {state} 结束，没有结果。",
        "Line {line} is bad ({code}): the job ends as {state} and has no result.",
    ),
    "lifecycle.bad_file": Text(
        "文件不对（{code}）：作业以 {state} 结束，没有结果。",
        "The file is bad ({code}): the job ends as {state} and has no result.",
    ),
    "lifecycle.cursor": Text(
        "带着游标 {cursor} 补读，得到 {count} 个事件：{kinds}。",
        "Read after cursor {cursor}, there are new events: {count} ({kinds}).",
    ),
    "failures.same": Text(
        "作业 1：同样的提交重复一次，还是同一个作业；同键改参数，得到 {key_conflict}。",
        "Job 1: the same submission again is the same job; the same key with another intent gives {key_conflict}.",
    ),
    "failures.other": Text(
        "作业 1：同样的提交重复一次，成了另一个作业；同键改参数，得到 {key_conflict}。",
        "Job 1: the same submission again made another job; the same key with another intent gives {key_conflict}.",
    ),
    "failures.late": Text(
        "worker A 的租约 {lease} 在时刻 3 已到期，提交得到 {expired_worker}；B 领到尝试 {recovery_attempts[1]}，"
        "A 再提交得到 {stale_worker}。B 交付，回执 {recovered_receipts} 份。",
        "Worker A's lease of {lease} is over at 3: its delivery gives {expired_worker}. B gets attempt "
        "{recovery_attempts[1]}, and A's next try gives {stale_worker}. B delivers; receipts: {recovered_receipts}.",
    ),
    "failures.in_time": Text(
        "worker A 的租约 {lease} 在时刻 3 还有效，提交成功；B 领不到，回执 {recovered_receipts} 份。",
        "Worker A's lease of {lease} still holds at 3: it delivers, B gets nothing; receipts: {recovered_receipts}.",
    ),
    "failures.cancelled": Text(
        "作业 2：运行中请求取消，先是 {cancel_acknowledgement}，交付时成为 {cancel_before_commit}，"
        "回执 {cancelled_receipts} 份。作业 1 交付之后再取消，状态是 {cancel_after_commit}。",
        "Job 2, asked to stop while it runs: {cancel_acknowledgement}, then {cancel_before_commit} at the delivery; "
        "receipts: {cancelled_receipts}. Job 1, asked after its delivery: {cancel_after_commit}.",
    ),
    "failures.deadline": Text(
        "作业 3：时刻 2 不再查看，它仍是 {stopped_polling_job_state}；时刻 3 到了截止时间，以 {deadline_error} 结束。",
        "Job 3: at 2 nobody looks any more, and it is {stopped_polling_job_state}; at 3 it ends with {deadline_error}.",
    ),
    "failures.retried": Text(
        "作业 4：可重试的错误，尝试到第 {retry_final[attempt]} 次，{retry_final[state]}（{retry_final[error]}）。",
        "Job 4, an error worth another try: attempt {retry_final[attempt]} is the last, {retry_final[state]} "
        "({retry_final[error]}).",
    ),
    "failures.permanent": Text(
        "作业 5：不可重试的错误，第 {permanent_final[attempt]} 次就是 {permanent_final[state]}"
        "（{permanent_final[error]}）。",
        "Job 5, an error that no repetition mends: {permanent_final[state]} after attempt {permanent_final[attempt]} "
        "({permanent_final[error]}).",
    ),
    "failures.stranger": Text(
        "别人来取作业 1 的结果，得到 {cross_owner_result}。",
        "A stranger asks for the result of job 1: {cross_owner_result}.",
    ),
    "failures.queued": Text(
        "作业 6：排队时取消，立刻是 {cancel_while_queued}。",
        "Job 6, cancelled in the queue: {cancel_while_queued} at once.",
    ),
    "quickstart.receipt": Text(
        "上面是凭证：作业已经存好，还没有人领取。",
        "That is the receipt: the job is stored, and nobody has claimed it yet.",
    ),
    "quickstart.states": Text("状态依次是 {states}。", "Its states, in order: {states}."),
    "quickstart.progress": Text(
        "worker 逐行计算，汇报进度 {steps} 次，最后是 {done}/{total}。",
        "A worker counts row by row; reports of progress: {steps}, the last one {done}/{total}.",
    ),
    "quickstart.result": Text(
        "交付 {artifact_id}：{month} 共 {row_count} 行，合计 {total_cents:,} 分；"
        "回执 {receipts} 份，事件 {events} 个。",
        "Delivered as {artifact_id}: {month}; rows: {row_count}, cents together: {total_cents:,}, "
        "receipts: {receipts}, events: {events}.",
    ),
    "quickstart.next": Text(
        "接着看：python -m chapter10.experiments --group lifecycle",
        "Next: python -m chapter10.experiments --group lifecycle",
    ),
    "story.more": Text(
        "全部数值：加上 --json。先猜再看：--group NAME --predict。",
        "All figures: --json. Guess first: --group NAME --predict.",
    ),
}
"""Every sentence by its name; the placeholders are figures of the run."""
