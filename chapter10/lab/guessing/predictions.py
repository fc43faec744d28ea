"""What a reader guesses before each of the chapter's five experiments.

One `Area` for each group and for each choice of its options: scene, questions and reasons speak of the run that is
made, and a question that no option answers is dropped by `asked_about`. The letters are worked out from the run by
the small functions at the top; a test gives them the run of the chapter and one with a rule taken out, and sees the
letters differ.

Source: the chapter's section on its five experiments (claims C10-263 to C10-267, C10-299, C10-300).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from chapter10.catalog import FIXTURE_GRANTS, Catalog, Grants, fixture_tools
from chapter10.concurrency import bounded_reads
from chapter10.experiments import QUERY, SALES
from chapter10.jobs import JobStore
from chapter10.lab.console.strings import Text
from chapter10.lab.guessing.predict import Area, Question

__all__ = ["AREAS", "area_of", "asked_about"]

_RUN: Final = "python -m chapter10.experiments --group"
_TIE: Final = "状态"
_CALLS: Final = 3
_LATE: Final = 2
"""The longest lease that is over when worker A comes at 3."""


def _share(result: Any) -> str:
    share = result["deferred_visible_payload_bytes"] / max(1, result["full_definitions_bytes"])
    return "a" if share > 1 / 3 else "b" if share > 1 / 20 else "c"


def _largest_part(result: Any) -> str:
    parts = {"a": "bootstrap_bytes", "b": "hit_summaries_bytes", "c": "loaded_definitions_bytes"}
    most = max(result[part] for part in parts.values())
    largest = [letter for letter, part in parts.items() if result[part] == most]
    return largest[0] if len(largest) == 1 else ""


def _tie(result: Any) -> str:
    hits = result["ambiguous_query"]
    if len(hits) < 2:
        return "a" if hits else "c"
    return "b" if hits[0]["score"] == hits[1]["score"] else "d"


def _one_byte_short(result: Any) -> str:
    return {"definition_budget_exceeded": "c", None: "b"}.get(result["budget"], "")


def _revoked(result: Any) -> str:
    answers = (result["revoked"], result["revoked_repeated"])
    return {(None, None): "a", ("denied", "denied"): "b", ("denied", None): "c"}.get(answers, "")


def _peak(result: Any) -> str:
    return {1: "a", 2: "b", 3: "c"}.get(result["peak_in_flight"], "")


def _beside_a_failure(result: Any) -> str:
    results = result["results"]
    kept = all("value" in results.get(f"call-{name}", {}) for name in "AB")
    if not kept:
        return "a"
    return "c" if "error" in results.get("call-C", {}) else "b"


def _all_counted(result: Any) -> str:
    return {"succeeded": "a", "running": "b", "queued": "c"}.get(result["all_rows_counted"]["state"], "")


def _after_the_cursor(result: Any) -> str:
    new = result["new_events_after_cursor"]
    return {0: "a", 1: "b", len(result["events"]): "c"}.get(len(new), "")


def _same_job(result: Any) -> str:
    same = result["resumed_with_same_job_id"] == result["submitted"]["id"]
    return "b" if same else "c"


def _whose_result(result: Any) -> str:
    if result["recovered_receipts"] > 1:
        return "c"
    return "b" if result["stale_worker"] == "stale_attempt" else "a"


def _cancel_too_late(result: Any) -> str:
    return {"cancelled": "a", "cancel_requested": "b", "succeeded": "c"}.get(result["cancel_after_commit"], "")


def _early_retry(result: Any) -> str:
    return "b" if result["early_retry"] is None else "a"


def _literal(text: str) -> str:
    """Return what a reader typed as it can stand in a `Text`, which has placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def _catalog(query: str = QUERY, limit: int = 2, grants: Grants = FIXTURE_GRANTS) -> Area:
    tools = fixture_tools()
    numbers = [limit, sum(tool.permission in grants for tool in tools), len(tools)]
    asks = "用户问：订单 A 付过款了吗？", "The user asks 订单 A 付过款了吗. "
    if query != QUERY:
        asks = "", ""
    identity = Text(
        "当前身份能读订单、能写报表、能读档案，不能退款。",
        "This identity reads orders, writes reports, reads the archive, and cannot refund.",
    )
    if frozenset(grants) != FIXTURE_GRANTS:
        held = _literal(", ".join(sorted(grants))) or "-"
        identity = Text(f"当前身份的权限：{held}。", f"The permissions of this identity: {held}.")
    query = _literal(query)

    def visible(result: Any) -> str:
        same = [letter for letter, number in zip("abc", numbers, strict=True) if number == result["discoverable"]]
        return same[0] if len(same) == 1 else ""

    def why_largest(result: Any) -> Text:
        return {
            "a": Text(
                "入口每次请求都在，与命中几个无关；这一次，命中和加载的加起来各自都比它小。",
                "The entry is in every request, whatever is hit; this time summaries and definitions are both smaller.",
            ),
            "b": Text(
                "每个候选都带着摘要；这一次，它们比入口大，也比加载了的定义大。",
                "Every hit has its summary; this time they weigh more than the entry and than what was loaded.",
            ),
            "c": Text(
                "完整定义带参数结构，最大；入口每次请求都在。三部分都要算上。",
                "A definition has its parameters and is the largest; the entry is in every request. All three count.",
            ),
        }[_largest_part(result)]

    return Area(
        name="catalog",
        title=Text("目录体积", "how much a request must show"),
        scene=(
            Text(
                "系统注册了 300 个工具；其中只有退款工具需要退款写权限。",
                "300 tools are registered; only the refund tool asks for refunds:write.",
            ),
            identity,
            Text(
                f"{asks[0]}查询词：{query}，最多 {limit} 个候选。",
                f"{asks[1]}The query is {query}; hits: {limit} at most.",
            ),
            Text(
                "按需路径：搜索入口 + 候选摘要 + 加载的完整定义。",
                "The path on demand: the search entry + summaries of the hits + loaded definitions.",
            ),
            Text(
                "单位是规范 JSON 的 UTF-8 字节，不是 Token。",
                "The unit is bytes of canonical JSON in UTF-8, not tokens.",
            ),
        ),
        code=(Catalog.discoverable, Catalog.search, Catalog.load),
        questions=(
            Question(
                name="visible",
                ask=Text("300 个工具里，这个身份能发现多少个？", "How many of the 300 can this identity find?"),
                options={
                    "a": Text(f"{numbers[0]} 个：能加载的那些", f"{numbers[0]}: those that can be loaded"),
                    "b": Text(f"{numbers[1]} 个", f"{numbers[1]}"),
                    "c": Text(
                        f"{numbers[2]} 个：执行时再检查权限", f"{numbers[2]}: permission is checked at execution"
                    ),
                },
                truth=visible,
                shows=("registered", "discoverable", "loaded"),
                reason=Text(
                    "注册、可发现、已加载是三个集合。搜索先按权限过滤，再计算分数；\n加载得少不说明权限少。",
                    "Registered, discoverable and loaded are three sets. Permission filters before the score;\n"
                    "few loaded tools do not mean few permissions.",
                ),
                section="三个集合：注册过、找得到、能调用",
                code=Catalog.discoverable,
                test="test_catalog.FixtureTests.test_registered_discoverable_and_loaded_are_three_numbers",
            ),
            Question(
                name="share",
                ask=Text(
                    "按需路径的字节数，大约是全部可发现定义的多少？",
                    "How large is the path on demand beside all discoverable definitions?",
                ),
                options={
                    "a": Text("三分之一以上", "more than a third"),
                    "b": Text("二十分之一到三分之一", "between a twentieth and a third"),
                    "c": Text("不到二十分之一", "less than a twentieth"),
                },
                truth=_share,
                shows=("deferred_visible_payload_bytes", "full_definitions_bytes"),
                reason=Text(
                    "只有命中的工具进入请求，所以这部分随候选数增长，不随目录增长。\n字节少了多少，不能直接换算成费用。",
                    "Only what was hit enters the request: this part grows with the hits, not with the catalog.\n"
                    "Fewer bytes are not a figure of money.",
                ),
                section="搜索之后，为什么还要有加载这一步",
                code=Catalog.load,
                test="test_catalog.FixtureTests.test_the_published_bytes_come_out",
            ),
            Question(
                name="part",
                ask=Text(
                    "按需路径的三部分，哪一部分最大？", "Which of the three parts of the path on demand is the largest?"
                ),
                options={
                    "a": Text("搜索入口", "the search entry"),
                    "b": Text("候选摘要", "the summaries of the hits"),
                    "c": Text("已加载的完整定义", "the loaded definitions"),
                },
                truth=_largest_part,
                shows=("bootstrap_bytes", "hit_summaries_bytes", "loaded_definitions_bytes"),
                reason=why_largest,
                section="搜索之后，为什么还要有加载这一步",
                code=Catalog.load,
                test="test_experiments.CatalogGroup.test_the_payload_counts_entry_summaries_and_definitions",
            ),
        ),
        change=(
            f'{_RUN} catalog --query "报表 导出" --predict',
            Text("换一个查询：哪些字节数会变，哪些不会？", "Another query: which byte counts change, which do not?"),
        ),
    )


def _boundaries(query: str = _TIE) -> Area:
    wanted = set(query.split())
    hidden = sum(
        tool.permission not in FIXTURE_GRANTS and bool(wanted.intersection(tool.keywords)) for tool in fixture_tools()
    )
    shown = _literal(query)
    scene = Text(f"一个查询：“{shown}”。", f"One query is {shown}.")
    ask = Text(f"“{shown}”返回什么？", f"The query {shown}: what comes back?")
    options = {
        "a": Text("只有一个工具", "one tool"),
        "b": Text("几个工具，最前面的分数相等", "several, the first of them with equal scores"),
        "c": Text("一个也不返回", "none"),
        "d": Text("几个工具，第一个分数最高", "several, and the first has the highest score"),
    }
    if query == _TIE:
        scene = Text(
            "查询“状态”：订单工具和物流工具各命中一个词。",
            "The query 状态 hits one word of the order tool and one of the shipment tool.",
        )
        ask = Text("“状态”让两个工具同分，返回什么？", "状态 gives two tools the same score: what comes back?")
        options = {
            "a": Text("只有排在第一的那个", "only the first of them"),
            "b": Text("两个都返回，分数相等", "both, with equal scores"),
            "c": Text("一个也不返回", "none of them"),
        }

    def why(result: Any) -> Text:
        zh, en = {
            "a": ("这个身份找得到的工具里，只有一个有这些词。", "Of the tools that it may find, one has a word of it."),
            "b": (
                "平分时目录不替人做决定。按名字排序只是为了可复现；该做的是澄清。",
                "The catalog decides no tie. The order by name is for repeatability; what is due is a question.",
            ),
            "c": (
                "这个身份找得到的工具里，没有一个有这些词；也不硬选一个。",
                "Of the tools that it may find, none has a word of it; nothing is picked instead.",
            ),
            "d": (
                "命中的词多的在前。分数只说词相近，不批准任何动作。",
                "Who has more of the words stands first. A score says that words agree and approves nothing.",
            ),
        }[_tie(result)]
        if hidden:
            zh += f"\n还有工具有这些词，但权限先过滤：看不见的有 {hidden} 个。"
            en += f"\nOthers have one too, but permission filters first; out of sight: {hidden}."
        return Text(zh, en)

    return Area(
        name="boundaries",
        title=Text("发现边界", "five ways to say no"),
        scene=(
            Text(
                "同一个目录，同一个身份。五种情况，五种回答。",
                "The same catalog and identity. Five situations, five answers.",
            ),
            scene,
            Text("预算先是恰好够，然后少一个字节。", "The budget is exactly enough, then one byte less."),
            Text(
                "定义加载之后，权限被清空；这时去执行，再重试一次。",
                "After loading, the grants are emptied; then the tool is to run, twice.",
            ),
            Text(
                "最后，工具升级到版本 2，而手里的摘要还是版本 1。",
                "At last a tool becomes version 2 while the summary at hand is of version 1.",
            ),
        ),
        code=(Catalog.search, Catalog.load, Catalog.authorize),
        questions=(
            Question(
                name="tie",
                ask=ask,
                options=options,
                truth=_tie,
                shows=("ambiguous_query",),
                reason=why,
                section="先过滤，再计算分数",
                code=Catalog.search,
                test="test_catalog.SearchTests.test_an_equal_score_is_a_tie_that_nobody_resolves",
            ),
            Question(
                name="budget",
                ask=Text("预算少一个字节，得到几份定义？", "One byte short of the budget: how many definitions?"),
                options={
                    "a": Text("两份，各缩短一点", "two, each a little shorter"),
                    "b": Text("放得下的那一份", "the one that fits"),
                    "c": Text("零份：definition_budget_exceeded", "none: definition_budget_exceeded"),
                },
                truth=_one_byte_short,
                shows=("budget", "loaded_at_exact_budget"),
                reason=Text(
                    "要么整批，要么没有。半份定义会让模型按残缺的参数去调用。",
                    "The whole batch or nothing: half a definition would make the model call with half the arguments.",
                ),
                section="搜索之后，为什么还要有加载这一步",
                code=Catalog.load,
                test="test_catalog.LoadTests.test_the_budget_is_for_the_whole_batch",
            ),
            Question(
                name="revoked",
                ask=Text(
                    "加载之后权限被清空，执行时得到什么？",
                    "The grants are emptied after loading: what does execution answer?",
                ),
                options={
                    "a": Text("照常执行：加载时有权限", "it runs: it was allowed when loaded"),
                    "b": Text("denied，重复多少次都一样", "denied, however often it is repeated"),
                    "c": Text("先 denied，重试一次就好", "denied first, and fine when tried again"),
                },
                truth=_revoked,
                shows=("revoked", "revoked_repeated"),
                reason=Text(
                    "权限以执行那一刻为准；重试恢复不了已撤销的权限。",
                    "The permission of the moment of execution counts; no repetition brings it back.",
                ),
                section="缓存和版本：昨天读过，不代表今天还能用",
                code=Catalog.authorize,
                test="test_catalog.AuthorizeTests.test_emptied_grants_deny_a_loaded_definition",
            ),
        ),
        change=(
            f"{_RUN} boundaries --query 订单 --predict",
            Text(
                "两个工具有“订单”这个词。这个身份看见几个？",
                "Two tools have the word 订单. How many does this identity see?",
            ),
        ),
    )


def _concurrency(limit: int = 2) -> Area:
    workers = min(limit, _CALLS)
    barrier = (
        Text(
            "前两个读取在屏障前会合：两者都在途，才放行。",
            "The first two meet at a barrier that opens when both are in flight.",
        ),
        Text("如果它们不重叠，运行就不会结束。", "If they did not overlap, the run would not end."),
    )
    why = Text(
        "只有两个 worker，从同一个迭代器领取；不是先建三个任务再让它们排队。",
        "Two workers take from one iterator; nobody makes three tasks and lets them wait.",
    )
    if workers == 1:
        barrier = (
            Text("前面有一道屏障，有一个在途就放行。", "A barrier opens when one of them is in flight."),
            Text("所以谁也不必等谁。", "So nobody has to wait for another."),
        )
        why = Text(
            "只有一个 worker，领一个，做完一个，再领下一个。",
            "One worker takes a call, ends it, and takes the next.",
        )
    elif workers == _CALLS:
        barrier = (
            Text(
                "三个读取在屏障前会合：三个都在途，才放行。",
                "The three meet at a barrier that opens when all of them are in flight.",
            ),
            barrier[1],
        )
        why = Text(
            "worker 有三个：不超过上限，也不超过调用的个数。这一次没有谁要等别人做完。",
            "There are three workers: no more than the limit, and no more than there are calls.\n"
            "This time none waits for another to end.",
        )

    return Area(
        name="concurrency",
        title=Text("有限并发", "two reads at a time" if limit == 2 else f"at most {limit} reads at a time"),
        scene=(
            Text(
                f"三个互不依赖的读取：订单 A、B、C，上限为 {limit}。",
                f"Three independent reads: orders A, B and C, at most {limit} at once.",
            ),
            Text("C 不存在，读它会失败。", "C does not exist; reading it fails."),
            *barrier,
            Text("没有测量任何时间。", "No time is measured."),
        ),
        code=(bounded_reads,),
        questions=(
            Question(
                name="peak",
                ask=Text(
                    f"三个调用、上限为 {limit}：同时在途最多几个？",
                    f"Three calls, limit {limit}: how many in flight at most?",
                ),
                options={"a": Text("1 个", "1"), "b": Text("2 个", "2"), "c": Text("3 个", "3")},
                truth=_peak,
                shows=("limit", "peak_in_flight"),
                reason=why,
                section="用固定数量的 worker，而不是无限创建任务",
                code=bounded_reads,
                test="test_experiments.ConcurrencyGroup.test_the_barrier_sees_the_overlap_and_the_bound",
            ),
            Question(
                name="failure",
                ask=Text("C 失败了，A 和 B 怎样？", "C fails: what becomes of A and B?"),
                options={
                    "a": Text("被取消，或者丢了结果", "cancelled, or without a result"),
                    "b": Text("有结果；C 没有条目", "they have results; C has no entry"),
                    "c": Text("有结果；C 的条目是一个错误", "they have results; C's entry is an error"),
                },
                truth=_beside_a_failure,
                shows=("results",),
                reason=Text(
                    "普通错误是这一次调用的结果，按调用 ID 归位；不影响别的调用。",
                    "An ordinary error is the outcome of its own call, under its own id; it touches no other.",
                ),
                section="找到了几个工具，能不能一起调用",
                code=bounded_reads,
                test="test_concurrency.BoundedReadsTests.test_two_succeed_and_one_fails_each_under_its_own_id",
            ),
        ),
        change=(
            f"{_RUN} concurrency --limit 3 --predict",
            Text("上限改为 3：峰值会变，什么不会变？", "With limit 3 the peak changes. What does not?"),
        ),
    )


def _lifecycle(month: str = "2026-08") -> Area:
    month, count = _literal(month), sum(row["month"] == month for row in SALES)
    rows = Text(
        f"{month} 有 {count} 条销售记录；每处理一条，报告一次进度。",
        f"{month} has {count} {'sale' if count == 1 else 'sales'}; each one counted is one report of progress.",
    )
    look = Text(
        "最后一次进度之后，alice 看一次状态，记下游标。",
        "After the last of them, alice looks at the state and notes the cursor.",
    )
    if not count:
        rows = Text(
            f"{month} 没有销售记录，没有进度可报告。", f"{month} has no sale, so there is no progress to report."
        )
        look = Text(
            "领取之后，alice 看一次状态，记下游标。", "After the claim, alice looks at the state and notes the cursor."
        )
    counted = Text(
        f"进度是 {count}/{count}，还没有交付。这时的状态是什么？",
        f"Progress says {count}/{count}, nothing is delivered: which state?",
    )

    return Area(
        name="lifecycle",
        title=Text("完整生命期", "a report that outlives its request"),
        scene=(
            Text(
                f"alice 在时刻 0 提交 {month} 的报表，随后数据库连接关闭。",
                f"alice submits the report of {month} at 0; then the connection is closed.",
            ),
            Text(
                "worker 用另一个连接，凭作业号在时刻 1 领取。",
                "A worker claims the job by its number at 1, over another connection.",
            ),
            rows,
            look,
            Text(
                "然后 worker 交付结果，alice 从游标之后补读事件。",
                "Then the worker delivers, and alice reads the events after the cursor.",
            ),
        ),
        code=(JobStore.submit, JobStore.claim, JobStore.progress, JobStore.finish),
        questions=(
            Question(
                name="progress",
                ask=counted,
                options={
                    "a": Text("succeeded：数完了", "succeeded: all is counted"),
                    "b": Text("running", "running"),
                    "c": Text("queued", "queued"),
                },
                truth=_all_counted,
                shows=("all_rows_counted",),
                reason=Text(
                    "进度只是观察。完成由 finish 决定：结果、状态和事件在同一个事务里。",
                    "Progress is an observation. Only finish completes: receipt, state and event in one transaction.",
                ),
                section="状态、进度和结果，不要全塞回模型",
                code=JobStore.finish,
                test="test_jobs_worker.Working.test_all_rows_done_is_not_success",
            ),
            Question(
                name="cursor",
                ask=Text("从游标之后补读，得到几条事件？", "Reading after the cursor: how many events?"),
                options={
                    "a": Text("0 条", "none"),
                    "b": Text("1 条：漏掉的那一条", "one: the one that was missed"),
                    "c": Text("全部，从头再来", "all of them, from the start"),
                },
                truth=_after_the_cursor,
                shows=("cursor", "new_events_after_cursor"),
                reason=Text(
                    "事件有递增的 seq；补读只给更新的。先处理再存游标，重复可以，遗漏不行。",
                    "Events have a rising seq; what is read again is only newer. Handle first, then save the cursor:\n"
                    "a repetition is harmless, a gap is not.",
                ),
                section="状态、进度和结果，不要全塞回模型",
                code=JobStore.events,
                test="test_jobs.Reading.test_a_cursor_brings_only_what_is_newer",
            ),
            Question(
                name="connection",
                ask=Text(
                    "提交之后连接关闭了，作业怎样？", "The connection was closed after the submission: what of the job?"
                ),
                options={
                    "a": Text("没有了", "it is gone"),
                    "b": Text("还在，作业号不变", "it is there, under the same number"),
                    "c": Text("还在，但换了作业号", "it is there, under another number"),
                },
                truth=_same_job,
                shows=("submitted", "resumed_with_same_job_id"),
                reason=Text(
                    "作业号在提交落盘之后才给出，所以它比请求和连接都活得久。",
                    "The number is given when the job is on disk, so it outlives request and connection.",
                ),
                section="当一次调用放不下整个任务",
                code=JobStore.submit,
                test="test_jobs.Submitting.test_a_job_survives_the_connection_that_submitted_it",
            ),
        ),
        change=(
            f"{_RUN} lifecycle --month 2026-07 --predict",
            Text(
                "七月只有一条记录：进度、事件数、金额各变成多少？",
                "July has one sale: what become progress, events and total?",
            ),
        ),
    )


def _failures(lease: int = _LATE) -> Area:
    comes = (
        Text(
            f"作业 1：A 在时刻 1 领取，租约长度 {lease}，之后再无消息。",
            f"Job 1: A claims at 1 with a lease of {lease}, and falls silent.",
        ),
        Text(
            "B 在时刻 3 领取同一份作业；A 在时刻 4 回来交付。",
            "B claims the same job at 3; A comes back at 4 and delivers.",
        ),
    )
    ask = Text(
        "B 已在时刻 3 领取，A 到时刻 4 才来交付：谁的结果算数？",
        "A delivers at 4, B has claimed at 3: whose result counts?",
    )
    first = Text("A 的：它先开始", "A's: it began first")
    why = Text(
        "每次领取都有新的尝试代次；交付时代次不是最新的，就是 stale_attempt。\n"
        "即使还没有人重新领取，租约到期后也不许交付（expired_worker）。",
        "Each claim is a new attempt; a delivery by another than the newest is stale_attempt.\n"
        "The end of the lease alone forbids it as well (expired_worker).",
    )
    test = "test_jobs_worker.Fencing.test_the_late_worker_is_refused_and_the_new_one_delivers"
    if lease > _LATE:
        comes = (
            Text(
                f"作业 1：A 在时刻 1 领取，租约长度 {lease}；时刻 3 交付，时刻 4 又交付一次。",
                f"Job 1: A claims at 1 with a lease of {lease}; it delivers at 3, and once more at 4.",
            ),
            Text("A 交付之后，B 也在时刻 3 要领取这份作业。", "After A's delivery, B asks for the same job at 3."),
        )
        ask = Text(
            "A 在时刻 3 交付，B 随后来领取：谁的结果算数？",
            "A delivers at 3, then B asks for the job: whose result counts?",
        )
        first = Text("A 的：租约还在，B 领不到", "A's: its lease holds, and B gets nothing")
        why = Text(
            f"租约到时刻 {1 + lease} 才结束，所以时刻 3 的交付有效；作业成功之后，谁也领不到。\n"
            "再交付一次不会再存一份回执。",
            f"The lease ends at {1 + lease}, so the delivery at 3 counts; nobody claims a job that has succeeded.\n"
            "Delivering once more stores no second receipt.",
        )
        test = "test_jobs_worker.Finishing.test_a_second_delivery_stores_nothing"

    return Area(
        name="failures",
        title=Text("故障注入", "what still holds when things go wrong"),
        scene=(
            *comes,
            Text("作业 1 成功之后，alice 请求取消它。", "After job 1 has succeeded, alice asks to cancel it."),
            Text("作业 4：时刻 2 失败，要求等 3 个时间单位再重试。", "Job 4 fails at 2, to be tried again after 3."),
            Text(
                "还有截止时间、越权读取、不可重试的失败。",
                "And there are a deadline, a stranger, and a failure not worth a retry.",
            ),
        ),
        code=(JobStore.claim, JobStore.finish, JobStore.cancel, JobStore.fail),
        questions=(
            Question(
                name="late",
                ask=ask,
                options={
                    "a": first,
                    "b": Text("只有 B 的；A 被拒绝", "only B's; A is refused"),
                    "c": Text("两份结果都在", "both are there"),
                },
                truth=_whose_result,
                shows=("recovery_attempts", "expired_worker", "stale_worker", "recovered_receipts"),
                reason=why,
                section="worker 消失了，旧 worker 又回来了",
                code=JobStore.finish,
                test=test,
            ),
            Question(
                name="cancel",
                ask=Text(
                    "结果提交之后才请求取消，状态是什么？", "A cancel after the commit of the result: which state?"
                ),
                options={
                    "a": Text("cancelled", "cancelled"),
                    "b": Text("cancel_requested", "cancel_requested"),
                    "c": Text("succeeded", "succeeded"),
                },
                truth=_cancel_too_late,
                shows=("cancel_after_commit", "cancel_before_commit"),
                reason=Text(
                    "取消是请求，不是时间机器：谁先提交，谁算数；终态不再改变。",
                    "A cancel is a request, no time machine: who commits first wins, and a final state stays.",
                ),
                section="取消是一个请求，不是时间机器",
                code=JobStore.cancel,
                test="test_jobs_worker.Cancelling.test_a_commit_before_the_cancel_wins",
            ),
            Question(
                name="retry",
                ask=Text(
                    "时刻 2 失败、要等 3 个单位：时刻 4 能领取吗？", "Failed at 2, wait 3: may it be claimed at 4?"
                ),
                options={
                    "a": Text("能，拿到新的代次", "yes, as a new attempt"),
                    "b": Text("不能：要到时刻 5", "no: not before 5"),
                },
                truth=_early_retry,
                shows=("early_retry",),
                reason=Text(
                    "最早重试时间写在作业这一行里，领取时检查；只让失败的那一方 sleep，拦不住别的 worker。",
                    "The moment is in the row and is looked at by the claim; a sleeping client would stop nobody else.",
                ),
                section="重试前先问：为什么失败，再试是否会改变事实",
                code=JobStore.claim,
                test="test_jobs_worker.Failing.test_a_retry_waits_in_line_until_its_time",
            ),
        ),
        change=(
            f"{_RUN} failures --lease 3 --predict",
            Text(
                "租约加长一个单位：时刻 3 A 交付、B 领取，各得到什么？",
                "A lease of 3: A delivers at 3 and B claims at 3. What does each get?",
            ),
        ),
    )


_BUILT: Final[Mapping[str, Callable[..., Area]]] = {
    "catalog": _catalog,
    "boundaries": _boundaries,
    "concurrency": _concurrency,
    "lifecycle": _lifecycle,
    "failures": _failures,
}
_BACK: Final = Text("这是章节自己的那一次：哪些答案会变？", "That is the chapter's own run: which answers change?")


def area_of(group: str, asked: Mapping[str, Any] | None = None) -> Area:
    """Return what a reader is asked about a group of the chapter when it is run with these options.

    `asked`: arguments of the group's experiment by name; what is not said is as in the chapter. Away from the
    chapter's own run, the one thing to change is to go back to it. Raises `KeyError` for another group.
    """
    build = _BUILT[group]
    usual = {each.name: each.default for each in inspect.signature(build).parameters.values()}
    given = {name: (asked or {}).get(name, default) for name, default in usual.items()}
    area = build(**given)
    return area if given == usual else replace(area, change=(f"{_RUN} {group} --predict", _BACK))


def asked_about(area: Area, result: Any) -> Area:
    """Return the area with those of its questions for which an option is true of this result."""
    return replace(area, questions=tuple(question for question in area.questions if question.truth(result)))


AREAS: Final[Mapping[str, Area]] = {name: area_of(name) for name in _BUILT}
"""The areas of the chapter's groups with the options of the chapter, by the name of the group."""
