"""What a reader guesses before each of the chapter's five experiments.

One `Area` for each group. The letters are worked out from the run by the small functions at the end; a
test gives them the run of the chapter and one with a rule taken out, and sees the letters differ.

Source: the chapter's section on its five experiments (claims C10-263 to C10-267, C10-299, C10-300).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chapter10.catalog import Catalog
from chapter10.concurrency import bounded_reads
from chapter10.jobs import JobStore
from chapter10.lab.console.strings import Text
from chapter10.lab.guessing.predict import Area, Question

__all__ = ["AREAS"]

_RUN: Final = "python -m chapter10.experiments --group"


def _visible(result: Any) -> str:
    return {2: "a", 299: "b", 300: "c"}.get(result["discoverable"], "")


def _share(result: Any) -> str:
    share = result["deferred_visible_payload_bytes"] / max(1, result["full_definitions_bytes"])
    return "a" if share > 0.3 else "b" if share > 0.05 else "c"


def _largest_part(result: Any) -> str:
    parts = {"a": "bootstrap_bytes", "b": "hit_summaries_bytes", "c": "loaded_definitions_bytes"}
    return max(parts, key=lambda letter: result[parts[letter]])


def _tie(result: Any) -> str:
    hits = result["ambiguous_query"]
    if len(hits) < 2:
        return "a" if hits else "c"
    return "b" if len({hit["score"] for hit in hits}) == 1 else ""


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


AREAS: Final[Mapping[str, Area]] = {
    "catalog": Area(
        name="catalog",
        title=Text("目录体积", "how much a request must show"),
        scene=(
            Text(
                "系统注册了 300 个工具；其中只有退款工具需要退款写权限。",
                "300 tools are registered; only the refund tool asks for refunds:write.",
            ),
            Text(
                "当前身份能读订单、能写报表、能读档案，不能退款。",
                "This identity reads orders, writes reports, reads the archive, and cannot refund.",
            ),
            Text(
                "用户问：订单 A 付过款了吗？查询词：查询 订单 状态，最多两个候选。",
                "The user asks 订单 A 付过款了吗; the query is 查询 订单 状态, at most two hits.",
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
                    "a": Text("2 个：加载了的那些", "2: those that are loaded"),
                    "b": Text("299 个", "299"),
                    "c": Text("300 个：执行时再检查权限", "300: permission is checked at execution"),
                },
                truth=_visible,
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
                    "b": Text("十分之一左右", "about a tenth"),
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
                reason=Text(
                    "完整定义带参数结构，最大；入口每次请求都在，最小。三部分都要算上。",
                    "A definition has its parameters and is the largest; the entry is small but in every request.\n"
                    "All three count.",
                ),
                section="搜索之后，为什么还要有加载这一步",
                code=Catalog.load,
                test="test_experiments.CatalogGroup.test_the_payload_counts_entry_summaries_and_definitions",
            ),
        ),
        change=(
            f'{_RUN} catalog --query "报表 导出" --predict',
            Text("换一个查询：哪些字节数会变，哪些不会？", "Another query: which byte counts change, which do not?"),
        ),
    ),
    "boundaries": Area(
        name="boundaries",
        title=Text("发现边界", "five ways to say no"),
        scene=(
            Text(
                "同一个目录，同一个身份。五种情况，五种回答。",
                "The same catalog and identity. Five situations, five answers.",
            ),
            Text(
                "查询“状态”：订单工具和物流工具各命中一个词。",
                "The query 状态 hits one word of the order tool and one of the shipment tool.",
            ),
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
                ask=Text("“状态”让两个工具同分，返回什么？", "状态 gives two tools the same score: what comes back?"),
                options={
                    "a": Text("只有排在第一的那个", "only the first of them"),
                    "b": Text("两个都返回，分数相等", "both, with equal scores"),
                    "c": Text("一个也不返回", "none of them"),
                },
                truth=_tie,
                shows=("ambiguous_query",),
                reason=Text(
                    "平分时目录不替人做决定。按名字排序只是为了可复现；该做的是澄清。",
                    "The catalog decides no tie. The order by name is for repeatability; what is due is a question.",
                ),
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
    ),
    "concurrency": Area(
        name="concurrency",
        title=Text("有限并发", "two reads at a time"),
        scene=(
            Text(
                "三个互不依赖的读取：订单 A、B、C，上限为 2。",
                "Three independent reads: orders A, B and C, at most 2 at once.",
            ),
            Text("C 不存在，读它会失败。", "C does not exist; reading it fails."),
            Text(
                "前两个读取在屏障前会合：两者都在途，才放行。",
                "The first two meet at a barrier that opens when both are in flight.",
            ),
            Text("如果它们不重叠，运行就不会结束。", "If they did not overlap, the run would not end."),
            Text("没有测量任何时间。", "No time is measured."),
        ),
        code=(bounded_reads,),
        questions=(
            Question(
                name="peak",
                ask=Text("三个调用、上限为 2：同时在途最多几个？", "Three calls, limit 2: how many in flight at most?"),
                options={"a": Text("1 个", "1"), "b": Text("2 个", "2"), "c": Text("3 个", "3")},
                truth=_peak,
                shows=("limit", "peak_in_flight"),
                reason=Text(
                    "只有两个 worker，从同一个迭代器领取；不是先建三个任务再让它们排队。",
                    "Two workers take from one iterator; nobody makes three tasks and lets them wait.",
                ),
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
    ),
    "lifecycle": Area(
        name="lifecycle",
        title=Text("完整生命期", "a report that outlives its request"),
        scene=(
            Text(
                "alice 在时刻 0 提交八月报表，随后数据库连接关闭。",
                "alice submits the report of August at 0; then the connection is closed.",
            ),
            Text(
                "worker 用另一个连接，凭作业号在时刻 1 领取。",
                "A worker claims the job by its number at 1, over another connection.",
            ),
            Text(
                "八月有三条销售记录；每处理一条，报告一次进度。",
                "August has three sales; each one counted is one report of progress.",
            ),
            Text(
                "第三次进度之后，alice 看一次状态，记下游标。",
                "After the third, alice looks at the state and notes the cursor.",
            ),
            Text(
                "然后 worker 交付结果，alice 从游标之后补读事件。",
                "Then the worker delivers, and alice reads the events after the cursor.",
            ),
        ),
        code=(JobStore.submit, JobStore.claim, JobStore.progress, JobStore.finish),
        questions=(
            Question(
                name="progress",
                ask=Text(
                    "进度是三分之三，还没有交付。这时的状态是什么？",
                    "Progress says 3/3, nothing is delivered: which state?",
                ),
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
    ),
    "failures": Area(
        name="failures",
        title=Text("故障注入", "what still holds when things go wrong"),
        scene=(
            Text(
                "作业 1：A 在时刻 1 领取，租约长度 2，之后再无消息。",
                "Job 1: A claims at 1 with a lease of 2, and falls silent.",
            ),
            Text(
                "B 在时刻 3 领取同一份作业；A 在时刻 4 回来交付。",
                "B claims the same job at 3; A comes back at 4 and delivers.",
            ),
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
                ask=Text(
                    "B 已在时刻 3 领取，A 到时刻 4 才来交付：谁的结果算数？",
                    "A delivers at 4, B has claimed at 3: whose result counts?",
                ),
                options={
                    "a": Text("A 的：它先开始", "A's: it began first"),
                    "b": Text("只有 B 的；A 被拒绝", "only B's; A is refused"),
                    "c": Text("两份结果都在", "both are there"),
                },
                truth=_whose_result,
                shows=("recovery_attempts", "expired_worker", "stale_worker", "recovered_receipts"),
                reason=Text(
                    "每次领取都有新的尝试代次；交付时代次不是最新的，就是 stale_attempt。\n"
                    "即使还没有人重新领取，租约到期后也不许交付（expired_worker）。",
                    "Each claim is a new attempt; a delivery by another than the newest is stale_attempt.\n"
                    "The end of the lease alone forbids it as well (expired_worker).",
                ),
                section="worker 消失了，旧 worker 又回来了",
                code=JobStore.finish,
                test="test_jobs_worker.Fencing.test_the_late_worker_is_refused_and_the_new_one_delivers",
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
    ),
}
"""The areas of the chapter's groups, by the name of the group."""
