"""What a reader guesses before each group of the companions' experiments.

One `Area` for each group, with two questions; the letters are worked out from the run, as everywhere. An
option of a question stands for a value of the result: `_by_value` turns the one that was found into its letter.

Source: the three companion documents (claims C8-001 to C8-085, T6-001 to T6-044, I4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from chapter10.companions.budget import run_within
from chapter10.companions.cancel_store import CancelStore
from chapter10.companions.cancellation import checked
from chapter10.companions.circuit_breaker import CircuitBreaker
from chapter10.companions.executor import StreamingToolExecutor
from chapter10.companions.gateway import Gateway
from chapter10.companions.idempotency import IdempotencyStore
from chapter10.companions.outbox import Outbox
from chapter10.companions.registry import ToolRegistry
from chapter10.companions.result_budget import ResultBudget, select_fresh_to_replace
from chapter10.companions.retry import retry
from chapter10.companions.schema import compile_schema
from chapter10.jobs import JobStore
from chapter10.lab.predict import Area, Question, field_of
from chapter10.lab.strings import Text

__all__ = ["AREAS"]


def _by_value(place: str, letters: Mapping[Any, str], other: str = "") -> Callable[[Any], str]:
    """Return a truth: the letter of the value that stands at `place` in the result, or `other`."""

    def truth(result: Any) -> str:
        value = field_of(result, place)
        return letters.get(tuple(value) if isinstance(value, list) else value, other)

    return truth


def _options(*texts: tuple[str, str]) -> dict[str, Text]:
    return {letter: Text(*text) for letter, text in zip("abcd", texts, strict=False)}


def _next(group: str, zh: str, en: str) -> tuple[str, Text]:
    return f"python -m chapter10.companions.experiments --group {group} --predict", Text(zh, en)


_ALL: Final = (
    Area(
        name="schema",
        title=Text("参数与 Schema", "arguments and their schema"),
        scene=(
            Text(
                "模型写的参数先按 Schema 检查，再执行。",
                "Arguments that a model wrote are checked by a schema before anything runs.",
            ),
            Text("Schema 里 lines 是整数，默认值是 1。", "In the schema, lines is an integer with the default 1."),
        ),
        code=(compile_schema,),
        questions=(
            Question(
                name="bool",
                ask=Text("lines 写成 true，怎样？", "lines is written as true: what happens?"),
                options=_options(
                    ("通过：在 Python 里 true 就是 1", "it passes: in Python true is 1"), ("一处违规", "one violation")
                ),
                truth=_by_value("arguments.2.violations", {0: "a", 1: "b"}),
                shows=("arguments.2.arguments", "arguments.2.found"),
                reason=Text("类型按 JSON 而不是按 Python。", "Types are those of JSON and not of Python."),
                section="工具注册表：先校验再执行 / the registry: validate first",
                code=compile_schema,
                test="test_registry.Arguments.test_types_are_those_of_json",
            ),
            Question(
                name="default",
                ask=Text("没有写 lines，默认值会被填进参数吗？", "lines is left out: is the default filled in?"),
                options=_options(("不会", "no"), ("会", "yes")),
                truth=_by_value("default_filled_in", {True: "b", False: "a"}),
                shows=("default_filled_in",),
                reason=Text(
                    "default 是说明，不是指令；填进去的值就不是模型写的了。",
                    "A default is a remark and no order; what is filled in was not written by the model.",
                ),
                section="工具注册表：先校验再执行 / the registry: validate first",
                code=compile_schema,
                test="test_schema.Keywords.test_no_default_is_filled_in",
            ),
        ),
        change=_next(
            "registry",
            "参数对了之后，这一次调用还要过哪些关？",
            "The arguments are right: what else has a call to pass?",
        ),
    ),
    Area(
        name="registry",
        title=Text("工具注册表", "the registry of tools"),
        scene=(
            Text(
                "每一种故障，配每一种效果：读、可逆的写、不可逆的写。",
                "Every fault meets every effect: read, reversible write, irreversible write.",
            ),
            Text("处理函数每被调用一次，就数一次。", "Each call of a handler is counted."),
        ),
        code=(ToolRegistry.invoke,),
        questions=(
            Question(
                name="writes",
                ask=Text(
                    "写操作超时，又查不到“没有做”：处理函数最多被调用几次？",
                    'A write runs out of time and nobody says "not done": how often is it called at most?',
                ),
                options=_options(("1 次", "once"), ("2 次", "twice"), ("3 次，和读一样", "three times, as a read")),
                truth=_by_value("most_calls_of_a_write_out_of_time_not_known_undone", {1: "a", 2: "b", 3: "c"}),
                shows=("most_calls_of_a_write_out_of_time_not_known_undone",),
                reason=Text(
                    "超时不等于没做。不能确认没做的写，再做一次可能就是两次。",
                    "Out of time is not undone. A write that may have happened is not made again.",
                ),
                section="工具注册表：超时与重试 / the registry: time and repetition",
                code=ToolRegistry.invoke,
                test="test_registry.Repetition.test_a_write_that_times_out_is_not_written_again",
            ),
            Question(
                name="revoked",
                ask=Text(
                    "加载之后权限被撤销，再调用得到什么？",
                    "The permission is revoked after loading: what does a call give?",
                ),
                options=_options(
                    ("ok", "ok"),
                    ("forbidden，处理函数没有被调用", "forbidden, and the handler is not called"),
                    ("unknown_tool", "unknown_tool"),
                ),
                truth=_by_value("found_and_callable.revoked", {"ok": "a", "forbidden": "b", "unknown_tool": "c"}),
                shows=("found_and_callable",),
                reason=Text(
                    "权限在每次调用时检查，不在加载时。", "Permission is looked at for every call, not when loading."
                ),
                section="工具注册表：权限 / the registry: permission",
                code=ToolRegistry.invoke,
                test="test_companion_experiments.TheRegistryGroup.test_what_is_found_runs_only_as_it_was_loaded",
            ),
        ),
        change=_next(
            "orchestration", "一次回答里有五个调用，谁和谁一起跑？", "Five calls in one answer: which run together?"
        ),
    ),
    Area(
        name="orchestration",
        title=Text("工具编排", "orchestration"),
        scene=(
            Text(
                "模型一次写下五个调用：读、读、命令、读、编辑。",
                "The model writes five calls at once: read, read, command, read, edit.",
            ),
            Text("读可以一起跑；命令和编辑要独占。", "Reads may run together; a command and an edit run alone."),
            Text("另有三个调用 x、y、z，完成的先后是 z、x、y。", "Three more calls x, y, z end in the order z, x, y."),
        ),
        code=(StreamingToolExecutor.add, StreamingToolExecutor.updates),
        questions=(
            Question(
                name="running",
                ask=Text("五个都加入之后，正在执行的有几个？", "All five are added: how many are executing?"),
                options=_options(("1 个", "1"), ("2 个", "2"), ("3 个：所有的读", "3: every read"), ("5 个", "5")),
                truth=lambda result: {1: "a", 2: "b", 3: "c", 5: "d"}.get(
                    len(result["executing_after_all_were_added"]), ""
                ),
                shows=("executing_after_all_were_added",),
                reason=Text(
                    "前两个读一起跑；命令要独占，等着；它后面的读不能越过它。",
                    "The two reads run; the command waits to be alone; no read behind it overtakes it.",
                ),
                section="8.2 并发安全 / which calls run together",
                code=StreamingToolExecutor.add,
                test="test_executor.Scheduling.test_the_five_tool_walk_through",
            ),
            Question(
                name="order",
                ask=Text("x、y、z 的结果按什么次序交出来？", "In which order are the results of x, y, z handed out?"),
                options=_options(
                    ("x、y、z：按加入的次序", "x, y, z: as they were added"),
                    ("z、x、y：谁先完成谁先", "z, x, y: as they end"),
                ),
                truth=_by_value("yielded_order", {("z", "x", "y"): "b", ("x", "y", "z"): "a"}),
                shows=("completed_order", "yielded_order"),
                reason=Text(
                    "进度可以马上出来，结果按入队次序。",
                    "Progress leaves at once; results leave in the order of adding.",
                ),
                section="8.3 进度与结果 / progress and results",
                code=StreamingToolExecutor.updates,
                test="test_executor.Handing.test_a_result_waits_for_the_results_before_it",
            ),
        ),
        change=_next(
            "results", "结果太大，下一次请求放不下怎么办？", "And if the results are too large for the next request?"
        ),
    ),
    Area(
        name="results",
        title=Text("结果预算", "the budget of results"),
        scene=(
            Text(
                "十个结果，各 4 万字符；一条消息的上限是 20 万。",
                "Ten results of 40,000 characters; the limit of a message is 200,000.",
            ),
            Text("被替换的，留下 2 千字符的预览。", "What is replaced leaves a preview of 2,000."),
        ),
        code=(ResultBudget.apply, select_fresh_to_replace),
        questions=(
            Question(
                name="ten",
                ask=Text(
                    "要替换几个，发出去的才在上限以内？",
                    "How many are replaced, so that what is sent is within the limit?",
                ),
                options=_options(("5 个", "5"), ("6 个", "6"), ("10 个", "10")),
                truth=_by_value("ten_of_40000_with_previews", {5: "a", 6: "b", 10: "c"}),
                shows=("ten_of_40000_by_the_formula", "ten_of_40000_with_previews"),
                reason=Text(
                    "不算预览是 5 个，恰好 20 万；预览也要发出去，所以是 6 个。",
                    "Without the previews five would do, to exactly 200,000; previews are sent as well, so it is six.",
                ),
                section="8.4 与 8.5 结果预算 / the budget of results",
                code=select_fresh_to_replace,
                test="test_companion_experiments.TheResultsGroup.test_ten_of_forty_thousand_need_six_previews",
            ),
            Question(
                name="over",
                ask=Text(
                    "第二次请求：完整发过的内容加上新的，超过了上限。怎样？",
                    "Request 2: what was sent whole and what is new are above the limit. What happens?",
                ),
                options=_options(
                    ("把旧的换成预览", "the old ones become previews"),
                    ("旧的不动，超出并报告", "the old ones stay; it is over, and says so"),
                ),
                truth=_by_value("requests.1.over the limit", {False: "a", True: "b"}),
                shows=("requests.1.size sent", "requests.1.limit", "requests.1.over the limit"),
                reason=Text(
                    "看过而完整的，永远完整；这样前面的内容一个字节也不变。",
                    "What was seen whole stays whole, so that nothing earlier changes by a byte.",
                ),
                section="8.6 冻结 / frozen decisions",
                code=ResultBudget.apply,
                test="test_companion_experiments.TheResultsGroup.test_a_limit_that_cannot_be_met_is_reported",
            ),
        ),
        change=(
            "python -m chapter10.lab.questions --group freezing --predict",
            Text("冻结值不值得？", "Is freezing worth it?"),
        ),
    ),
    Area(
        name="turn",
        title=Text("一轮完整的调用", "a whole turn"),
        scene=(
            Text(
                "一次对话：查找工具、加载、调用，其中一个写操作要批准。",
                "A conversation: tools are found, loaded, called; one write asks for approval.",
            ),
            Text(
                "然后换七种方式结束一轮：完成、打断、断流……",
                "Then a turn ends in several ways: done, interrupted, the stream breaks, ...",
            ),
        ),
        code=(Gateway.request, Gateway.turn, Gateway.interrupt),
        questions=(
            Question(
                name="answers",
                ask=Text(
                    "三个调用，一个已完成时用户打断：对话里有几个回答？",
                    "Three calls, one has ended, the user interrupts: how many answers are in the transcript?",
                ),
                options=_options(
                    ("1 个", "1"), ("3 个：没跑完的也有", "3: also for those that did not end"), ("0 个", "none")
                ),
                truth=lambda result: {1: "a", 3: "b", 0: "c"}.get(len(result["exits"][1]["answers"].split(", ")), ""),
                shows=("exits.1.exit", "exits.1.answers"),
                reason=Text(
                    "没有回答的调用会让下一次请求被拒；所以每个调用恰好一个回答。",
                    "A call without an answer makes the next request invalid; each call has exactly one.",
                ),
                section="8.7 完整流程 / the whole flow",
                code=Gateway.interrupt,
                test="test_gateway.HowATurnEnds.test_an_interruption_answers_every_call",
            ),
            Question(
                name="prefix",
                ask=Text("后来的请求会改动先前发过的内容吗？", "Does a later request change what was sent before?"),
                options=_options(("不会，逐字节相同", "no, it is the same to the byte"), ("会", "yes")),
                truth=_by_value("earlier_part_always_as_sent", {False: "b", True: "a"}),
                shows=("earlier_part_always_as_sent",),
                reason=Text("提示缓存只认相同的前缀。", "A prompt cache knows equal prefixes only."),
                section="8.6 缓存 / the cache",
                code=Gateway.request,
                test="test_companion_experiments.TheTurnGroup.test_every_request_begins_as_the_one_before",
            ),
        ),
        change=_next(
            "clocks", "等多久、试多久、做多久，是三只钟。", "How long to wait, to try, to work: three clocks."
        ),
    ),
    Area(
        name="clocks",
        title=Text("三只钟", "three clocks"),
        scene=(
            Text(
                "调用者等 5，一次尝试限 10，整个作业限 60。",
                "The caller waits for 5, an attempt may take 10, the job has 60.",
            ),
            Text("三种情形，各让一只钟先响。", "Three situations; in each another clock rings first."),
        ),
        code=(JobStore.claim, JobStore.finish),
        questions=(
            Question(
                name="wait",
                ask=Text(
                    "调用者的钟响了，这时作业是什么状态？", "The caller's clock rings: in which state is the job?"
                ),
                options=_options(("failed", "failed"), ("cancelled", "cancelled"), ("running", "running")),
                truth=_by_value("clocks.0.state_then", {"failed": "a", "cancelled": "b", "running": "c"}),
                shows=("clocks.0.state_then", "wait_changed_the_store"),
                reason=Text(
                    "不等了，什么都没有改变；以后再来看。",
                    "Not waiting any longer changes nothing; one may look later.",
                ),
                section="三只钟：我愿意等多久，这次能跑多久，整件事还剩多久",
                code=JobStore.get,
                test="test_clocks.ClocksTestCase.test_the_callers_wait_does_nothing_to_the_job",
            ),
            Question(
                name="attempt",
                ask=Text("一次尝试的钟响了，作业怎样？", "The clock of an attempt rings: what of the job?"),
                options=_options(
                    ("failed：结束了", "failed: it is over"),
                    ("queued：等下一次尝试", "queued: the next attempt is due"),
                ),
                truth=_by_value("clocks.1.state_then", {"failed": "a", "queued": "b"}),
                shows=("clocks.1.state_then", "clocks.1.code", "clocks.1.attempts"),
                reason=Text(
                    "这一次结束了，作业还有剩下的次数和时间。",
                    "One attempt is over; the job has attempts and time left.",
                ),
                section="三只钟：我愿意等多久，这次能跑多久，整件事还剩多久",
                code=JobStore.fail,
                test="test_clocks.ClocksTestCase.test_an_attempt_that_takes_too_long_is_one_attempt",
            ),
        ),
        change=_next("budget", "一条链上有好几步，时间怎样分？", "Several steps in a chain: how is the time shared?"),
    ),
    Area(
        name="budget",
        title=Text("时间预算", "a budget of time"),
        scene=(
            Text("答应用户 12 秒。先搜索，再总结。", "12 seconds are promised: first search, then summarise."),
            Text(
                "一种做法每步各有上限，一种做法全链一个截止时间。",
                "One way gives each step a limit, the other has one deadline for the chain.",
            ),
        ),
        code=(run_within,),
        questions=(
            Question(
                name="promise",
                ask=Text("每步各有上限，守得住 12 秒吗？", "With a limit for each step, are the 12 seconds kept?"),
                options=_options(("守不住：上限加起来更长", "no: limits add up to more"), ("守得住", "yes")),
                truth=lambda result: "a" if result["chains"][0]["ended_at_ms"] > result["promised_ms"] else "b",
                shows=("promised_ms", "chains.0.ended_at_ms", "chains.1.ended_at_ms"),
                reason=Text(
                    "每一步都没有超，合起来超了。截止时间要沿着链传下去。",
                    "No step was late, all together were. A deadline is handed down the chain.",
                ),
                section="时间预算 / the budget of a chain",
                code=run_within,
                test="test_budget.TheRunner.test_each_tool_of_a_chain_gets_what_is_left",
            ),
            Question(
                name="refund",
                ask=Text(
                    "主路的时间用完之后，退款还能跑吗？", "The main path has used its time: can the refund still run?"
                ),
                options=_options(("不能", "no"), ("能：补偿有自己的一份", "yes: compensation has its own share")),
                truth=_by_value("refund_after_its_time", {"not_started": "a", "value": "b"}),
                shows=("main_path_after_its_time", "refund_after_its_time"),
                reason=Text(
                    "预算先留出一份给补偿，主路碰不到它。",
                    "A share is kept for compensation, and the main path cannot touch it.",
                ),
                section="时间预算 / the budget of a chain",
                code=run_within,
                test="test_budget.TheRunner.test_compensation_runs_after_the_main_path_timed_out",
            ),
        ),
        change=_next("interruption", "时间没到，用户却走了呢？", "And if the user leaves before the time is up?"),
    ),
    Area(
        name="interruption",
        title=Text("中断", "interruption"),
        scene=(
            Text(
                "取消先写进数据库，再发消息；消息丢了。",
                "A cancel is written first and then sent as a message; the message is lost.",
            ),
            Text(
                "另外：取消与完成抢先后；一个循环每 50 项看一眼。",
                "Also: a cancel races a result; a loop looks up every 50 items.",
            ),
        ),
        code=(CancelStore.cancel, CancelStore.finish, checked),
        questions=(
            Question(
                name="race",
                ask=Text("先交付，后取消：状态是什么？", "First the result, then the cancel: which state?"),
                options=_options(
                    ("succeeded，取消被告知已完成", "succeeded; the cancel is told so"), ("cancelled", "cancelled")
                ),
                truth=_by_value("races.1.state", {"cancelled": "b", "succeeded": "a"}),
                shows=("races.1.order", "races.1.cancel_says", "races.1.state"),
                reason=Text(
                    "谁先提交谁算数；已完成的要撤回，靠补偿。",
                    "Whoever commits first wins; what is done is taken back by compensation.",
                ),
                section="中断 / the cancel and the result",
                code=CancelStore.finish,
                test="test_cancel_store.Results.test_a_result_before_the_cancel_wins",
            ),
            Question(
                name="loop",
                ask=Text(
                    "在第 120 项时取消，循环停在第几项之后？",
                    "Cancelled at item 120: after how many items does the loop stop?",
                ),
                options=_options(("120", "120"), ("150", "150"), ("全部做完", "all of them")),
                truth=_by_value("stopped_after_items", {120: "a", 150: "b"}, "c"),
                shows=("cancelled_at_item", "looks_every", "stopped_after_items"),
                reason=Text(
                    "合作式取消只在检查点生效，所以要写明多久看一眼。",
                    "A cooperative cancel acts at check points, so their distance is stated.",
                ),
                section="中断 / cooperative and preemptive",
                code=checked,
                test="test_cancellation.LongLoops.test_a_cancel_is_seen_after_at_most_fifty_items",
            ),
        ),
        change=_next("retry", "没有人取消，只是失败了：再试吗？", "Nobody cancelled, it only failed: try again?"),
    ),
    Area(
        name="retry",
        title=Text("重试", "trying again"),
        scene=(
            Text(
                "三层程序，每层各自最多试 3 次，底层一直失败。",
                "Three layers, each tries up to 3 times, and the lowest always fails.",
            ),
            Text("另外：一个写操作丢了两次回答。", "Also: a write whose answer is lost twice."),
        ),
        code=(retry,),
        questions=(
            Question(
                name="layers",
                ask=Text(
                    "三层互不知道彼此，底层被调用多少次？",
                    "The layers know nothing of each other: how often is the lowest called?",
                ),
                options=_options(("3 次", "3 times"), ("9 次", "9 times"), ("27 次", "27 times")),
                truth=_by_value("layers.0.calls", {3: "a", 9: "b", 27: "c"}),
                shows=("layers.0.calls", "layers.1.calls"),
                reason=Text(
                    "次数相乘。同一条链里的重试应当知道彼此。",
                    "Attempts multiply. Retries of one chain should know of each other.",
                ),
                section="重试 / layers of retry",
                code=retry,
                test="test_retry.Limits.test_stacked_layers_make_the_attempts_of_one",
            ),
            Question(
                name="keys",
                ask=Text(
                    "丢了两次回答的写，对方看到几个不同的键？",
                    "The write lost two answers: how many different keys does the other side see?",
                ),
                options=_options(("1 个", "1"), ("3 个：每次尝试一个", "3: one for each attempt")),
                truth=_by_value("different_keys_seen_by_the_other_side", {1: "a", 3: "b"}),
                shows=("write_after_two_lost_answers", "different_keys_seen_by_the_other_side"),
                reason=Text(
                    "键认的是意图，不是尝试；换了键，对方就认不出是同一件事。",
                    "A key names the intent, not the attempt; with another key it is another thing.",
                ),
                section="重试与幂等 / the key of an intent",
                code=retry,
                test="test_idempotency.OutcomeTest.test_the_same_key_goes_downstream_on_every_attempt",
            ),
        ),
        change=_next(
            "breaker", "一直失败的依赖，什么时候先不去碰它？", "A dependency that keeps failing: when is it left alone?"
        ),
    ),
    Area(
        name="breaker",
        title=Text("熔断", "the circuit breaker"),
        scene=(
            Text(
                "按一分钟窗口里的错误率判断，至少要有 10 次调用。",
                "It judges by the error rate of a minute, from 10 calls on.",
            ),
            Text(
                "打开 30 秒之后半开；60 个调用者同时来。", "After 30 seconds it is half open; 60 callers come at once."
            ),
        ),
        code=(CircuitBreaker.acquire,),
        questions=(
            Question(
                name="rate",
                ask=Text("1010 次调用里有 10 次失败：打开吗？", "10 failures among 1010 calls: does it open?"),
                options=_options(
                    ("打开：满 10 次了", "open: there are 10"), ("不打开：只有百分之一", "closed: that is one per cent")
                ),
                truth=_by_value("opening.0.state", {"open": "a", "closed": "b"}),
                shows=("opening.0.calls", "opening.0.failures", "opening.0.state"),
                reason=Text(
                    "次数随流量增长，比率才说明健康。", "A count grows with the traffic; a rate tells about health."
                ),
                section="熔断 / by rate and not by count",
                code=CircuitBreaker.acquire,
                test="test_circuit_breaker.States.test_a_few_failures_among_many_calls_leave_it_closed",
            ),
            Question(
                name="probes",
                ask=Text("半开时 60 个调用者，放过去几个？", "60 callers at half open: how many are let through?"),
                options=_options(("1 个", "1"), ("10 个", "10"), ("60 个", "60")),
                truth=_by_value("probes_let_through", {1: "a", 10: "b", 60: "c"}),
                shows=("callers_at_half_open", "probes_let_through", "refused_with_a_hint"),
                reason=Text(
                    "一个探针就够；别让刚醒来的依赖再被压倒。",
                    "One probe is enough; a dependency that wakes up is not to be trampled.",
                ),
                section="熔断 / half open",
                code=CircuitBreaker.acquire,
                test="test_circuit_breaker.Probes.test_fifty_tasks_and_ten_threads_make_one_call",
            ),
        ),
        change=_next("idempotency", "再试一次而不做两次，要靠什么？", "To try again and not do it twice: by what?"),
    ),
    Area(
        name="idempotency",
        title=Text("幂等", "one intent, one effect"),
        scene=(
            Text(
                "alice 用键 order-7 付款；同样的键，再来几次。",
                "alice pays with the key order-7; the same key comes again.",
            ),
            Text(
                "另外：进程死在扣款之后、记录之前，也没法问银行。",
                "Also: the process dies between charge and record, and the bank cannot be asked.",
            ),
        ),
        code=(IdempotencyStore.execute_once,),
        questions=(
            Question(
                name="conflict",
                ask=Text("同一个键，换了金额：得到什么？", "The same key with another amount: what comes back?"),
                options=_options(
                    ("再扣一次", "a second charge"),
                    ("上次的结果", "the earlier result"),
                    ("key_conflict", "key_conflict"),
                ),
                truth=_by_value("intents.2.answer", {"charged": "a", "replayed": "b", "key_conflict": "c"}),
                shows=("intents.1.answer", "intents.2.answer"),
                reason=Text(
                    "同键同参数是重放，同键异参数是冲突。",
                    "Same key and arguments is a replay; same key and others is a conflict.",
                ),
                section="幂等 / key and fingerprint",
                code=IdempotencyStore.execute_once,
                test="test_idempotency.KeyTest.test_same_key_with_other_arguments_is_a_conflict_in_every_state",
            ),
            Question(
                name="doubt",
                ask=Text(
                    "死在扣款与记录之间，最后的记录是什么？",
                    "Dead between charge and record: what does the record say at last?",
                ),
                options=_options(
                    ("completed：再扣了一次", "completed, by a second charge"),
                    ("unknown：等人来核对", "unknown: somebody has to look"),
                    ("failed", "failed"),
                ),
                truth=_by_value("crashes.1.record_at_the_end", {"completed": "a", "unknown": "b", "failed": "c"}),
                shows=("crashes.1.record_at_the_end", "crashes.1.requests_to_the_bank"),
                reason=Text(
                    "不能确认，就说不知道；不把不确定的事涂成成功或失败。",
                    "What cannot be confirmed is called unknown, neither success nor failure.",
                ),
                section="幂等 / forward-only states",
                code=IdempotencyStore.execute_once,
                test="test_idempotency.OutcomeTest.test_a_lost_answer_makes_a_doubt_and_no_second_charge",
            ),
        ),
        change=_next(
            "outbox", "对方在另一个系统里，消息怎样不丢？", "The other side is another system: how is no message lost?"
        ),
    ),
    Area(
        name="outbox",
        title=Text("发件箱", "the outbox"),
        scene=(
            Text("订单和待发的消息写在同一个事务里。", "The order and its message are written in one transaction."),
            Text(
                "进程死在两者之间；以及一条消息被送达两次。",
                "The process dies between the two; and a message is delivered twice.",
            ),
        ),
        code=(Outbox.record, Outbox.claim),
        questions=(
            Question(
                name="between",
                ask=Text(
                    "写了订单、没写消息就死了：订单还在吗？",
                    "Dead after the order and before the message: is the order there?",
                ),
                options=_options(
                    ("不在：两个都没有", "no: neither is"), ("在，只是没有消息", "yes, without its message")
                ),
                truth=_by_value("transactions.1.orders", {0: "a", 1: "b"}),
                shows=("transactions.1.dies", "transactions.1.orders", "transactions.1.messages"),
                reason=Text("一个事务：都有，或者都没有。", "One transaction: both or neither."),
                section="发件箱 / one transaction",
                code=Outbox.record,
                test="test_outbox.RecordTest.test_a_failure_at_any_step_leaves_neither",
            ),
            Question(
                name="twice",
                ask=Text("同一条消息送达两次，效果有几次？", "The message is delivered twice: how many effects?"),
                options=_options(("1 次", "1"), ("2 次", "2")),
                truth=_by_value("effects", {1: "a", 2: "b"}),
                shows=("deliveries", "effects"),
                reason=Text(
                    "发送至少一次；接收方在自己的事务里记住见过的消息。",
                    "Sent at least once; the receiver remembers what it has seen, in its own transaction.",
                ),
                section="发件箱 / the receiver remembers",
                code=Outbox.record,
                test="test_outbox.ConsumerTest.test_a_duplicate_has_no_second_effect",
            ),
        ),
        change=_next("mail", "对方是邮件服务呢？", "And if the other side is a mail service?"),
    ),
    Area(
        name="mail",
        title=Text("报表之后发邮件", "a mail after the report"),
        scene=(
            Text(
                "练习 12：先生成报表，再发邮件；六种方案，九种故障。",
                "Exercise 12: first the report, then a mail; six plans meet each fault.",
            ),
            Text(
                "其中一种：邮件发出之后、记录之前，进程死了。",
                "One of them: the process dies after the mail and before its record.",
            ),
        ),
        code=(JobStore.finish,),
        questions=(
            Question(
                name="plain",
                ask=Text(
                    "只有唯一回执，死了再重跑：几封邮件、几份回执？",
                    "With the unique receipt alone, dead and run again: how many mails and receipts?",
                ),
                options=_options(
                    ("1 封，1 份", "1 and 1"), ("2 封，1 份", "2 mails, 1 receipt"), ("2 封，2 份", "2 and 2")
                ),
                truth=lambda result: {(1, 1): "a", (2, 1): "b", (2, 2): "c"}.get(
                    (result["mails_when_plain_retry_died"], result["receipts_when_plain_retry_died"]), ""
                ),
                shows=("mails_when_plain_retry_died", "receipts_when_plain_retry_died"),
                reason=Text(
                    "回执在本地事务里唯一；邮件在另一个系统里，不知道这件事。",
                    "The receipt is unique in the local transaction; the mail is elsewhere and knows nothing of it.",
                ),
                section="一份回执为什么只能在明确的事务边界内成立",
                code=JobStore.finish,
                test="test_outbox.RelayTest.test_a_relay_that_dies_after_sending_sends_again",
            ),
            Question(
                name="plans",
                ask=Text("哪些方案在每种故障下都恰好一封？", "Which plans give exactly one mail after every fault?"),
                options=_options(
                    ("发件箱就够了", "the outbox alone"),
                    (
                        "要对方认得键，或者发件箱加接收方去重",
                        "those with a key that the other side knows, or outbox and dedupe",
                    ),
                    ("没有", "none"),
                ),
                truth=lambda result: (
                    "c"
                    if not result["plans_with_one_mail_after_every_fault"]
                    else "a"
                    if "outbox_alone" in result["plans_with_one_mail_after_every_fault"]
                    else "b"
                ),
                shows=("plans_with_one_mail_after_every_fault",),
                reason=Text(
                    "自己一方做不到；重复要由对方去掉。", "One side alone cannot: repetitions are dropped by the other."
                ),
                section="一份回执为什么只能在明确的事务边界内成立",
                code=JobStore.finish,
                test="test_outbox.RecordTest.test_business_write_and_message_are_one_transaction",
            ),
        ),
        change=(
            "python -m chapter10.lab.exercises start 12",
            Text("现在自己写下设计。", "Now write down a design of your own."),
        ),
    ),
)

AREAS: Final[Mapping[str, Area]] = {area.name: area for area in _ALL}
"""The areas of the companions' groups, by the name of the group."""
