"""What a reader guesses about time, interruption, trying again and the circuit breaker.

One `Area` for each of these groups of the companions, written with `lab.guessing.areas`. Each question names the
claims that it is about, so that the claim map leads from there to every test.

Source: the document on idempotency and interruption (claims I4-011, I4-032, I4-079, I4-080), and the chapter
on its three clocks and on retry (claims C10-185, C10-206).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chapter10.companions.interruption.budget import Budget, run_within
from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.cancellation import checked
from chapter10.companions.retrying.circuit_breaker import CircuitBreaker, judge
from chapter10.companions.retrying.retry import may_retry, retry
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Worker
from chapter10.jobs import JobStore
from chapter10.lab.guessing.areas import area, at, question
from chapter10.lab.guessing.predict import Area

__all__ = ["AREAS"]

_I4: Final = ("幂等与中断文档", "the document on idempotency and interruption")
_C10: Final = ("本章", "the chapter")

_CLOCKS: Final = ("三只钟：我愿意等多久，这次能跑多久，整件事还剩多久", "Three clocks")
_LATE: Final = ("worker 消失了，旧 worker 又回来了", "A worker vanished and came back")
_LAYERS: Final = ("重试前先问：为什么失败，再试是否会改变事实", "Before a retry: where did it fail")
_CHAIN: Final = ("三、工具调用的超时传播", "3 Timeouts along the chain")
_CANCEL: Final = ("四、取消语义的分层实现", "4 Layers of cancellation")
_RETRY: Final = ("七、重试、超时、限流的三角权衡", "7 Retry, timeout, breaker")
_PROCESSES: Final = ("八、跨进程的中断传播", "8 Interrupts across processes")


def _kept_promises(result: Any) -> list[bool]:
    """Whether each way of limiting the chain ended within what was promised."""
    return [chain["ended_at_ms"] <= result["promised_ms"] for chain in result["chains"]]


def _where_the_loop_stopped(result: Any) -> str:
    """At once, at the next look after the cancel, or not before its end."""
    asked, stopped, every = result["cancelled_at_item"], result["stopped_after_items"], result["looks_every"]
    if stopped == asked:
        return "at once"
    return "at the next look" if stopped == -(-asked // every) * every else "at the end"


_ALL: Final = (
    area(
        "clocks",
        ("三只钟", "three clocks"),
        (
            "调用者愿意等 5 秒；一次尝试最多 10 秒；整个作业限 60 秒。\n"
            "三种情形，每种让另一只钟先响；工作每 4 秒看一次自己的时限。\n"
            "还有第四样东西，租约：它不限时间，只说谁现在可以写。",
            "The caller waits for 5 s, one attempt may take 10 s, the whole job has 60 s.\n"
            "Three situations; in each another clock rings first. Work looks at its limit every 4 s.\n"
            "And there is a lease, which is no limit of time: it says who may write now.",
        ),
        (LivingStore.wait, Worker.run_once, JobStore.finish),
        (
            question(
                "wait",
                (
                    "5 秒到了，调用者不等了。这一刻作业是什么状态？",
                    "5 s are over and the caller leaves. In which state is the job?",
                ),
                "clocks.0.state_then",
                (
                    ("failed", "failed：超时了", "failed: it is a time-out"),
                    ("cancel_requested", "cancel_requested：没人要了", "cancel_requested: nobody wants it"),
                    ("running", "running", "running"),
                ),
                (
                    "不再等待只是调用者自己的事，库里一个字节也没有变；2 秒之后作业就成功了。\n"
                    "界面该说的是：暂时没有等到结果，可以稍后查看。",
                    "To wait no longer is the caller's own affair, and no byte of the store changed; the job\n"
                    "succeeded 2 s later. A screen should say: no result yet, look again later.",
                ),
                at(_C10, _CLOCKS, "C10-185", "C10-191"),
                LivingStore.wait,
                "test_clocks.ClocksTestCase.test_the_callers_wait_does_nothing_to_the_job",
                also=("wait_changed_the_store", "clocks.0.state_at_the_end"),
            ),
            question(
                "attempt",
                (
                    "第一次尝试超过了 10 秒。作业接下来是什么状态？",
                    "The first attempt exceeds 10 s. What is the job then?",
                ),
                "clocks.1.state_then",
                (
                    ("failed", "failed：结束了", "failed: it is over"),
                    ("queued", "queued：等下一次尝试", "queued: for the next attempt"),
                    ("running", "running：它还没有停", "running: it has not stopped"),
                ),
                (
                    "结束的是这一次尝试，不是作业：次数和时间都还有剩。\n"
                    "发现得比 10 秒晚，因为工作每 4 秒才看一次：12 秒时才知道。",
                    "This attempt is over and not the job, which has attempts and time left.\n"
                    "It was noticed later than 10 s, as the work looks every 4 s: at 12.",
                ),
                at(_C10, _CLOCKS, "C10-185"),
                Worker.run_once,
                "test_clocks.ClocksTestCase.test_an_attempt_that_takes_too_long_is_one_attempt",
                also=("clocks.1.code", "clocks.1.noticed_at", "clocks.1.attempts"),
            ),
            question(
                "lease",
                (
                    "租约 10 秒，旧 worker 正好在 10 秒时交付。得到什么？",
                    "A lease of 10 s, and its worker delivers exactly at 10. What happens?",
                ),
                "lease.code",
                (
                    (None, "交付成功：还没有别人领取", "it is taken: nobody else has claimed"),
                    ("lease_expired", "lease_expired，作业仍在运行", "lease_expired, and the job still runs"),
                    ("deadline_exceeded", "deadline_exceeded，作业失败", "deadline_exceeded, and the job fails"),
                ),
                (
                    "到了那一刻就算过期，等于也算；写的权利没有了，哪怕没有人来抢。\n"
                    "作业没有失败：同一时刻另一个 worker 就领到了第 2 次尝试。",
                    "That very moment counts as over; the right to write is gone, even if nobody came.\n"
                    "The job has not failed: another worker gets attempt 2 at the same moment.",
                ),
                at(_C10, _LATE, "C10-231"),
                JobStore.finish,
                "test_jobs_worker.Fencing.test_after_the_lease_the_current_attempt_is_refused_as_well",
                also=("lease.state_then", "lease.next_attempt"),
            ),
        ),
        (
            "_STEP_SECONDS: Final = 4",
            "_STEP_SECONDS: Final = 9",
            "看得更少，时限没有变：每只钟各在什么时候被发现？",
            "It looks less often under the same limits: when is each clock noticed?",
        ),
    ),
    area(
        "budget",
        ("时间预算", "a budget of time"),
        (
            "总共 16 秒，其中 12 秒是答应给用户的。\n"
            "搜索要 9 秒，中间等 0.5 秒，总结要 4.5 秒。\n"
            "做法一：搜索限 10 秒，总结限 5 秒。做法二：全链一个截止时间。\n"
            "另一条链：发货把 12 秒全用完了，这时要退款。",
            "There are 16 s in all, of which 12 s are promised to the user.\n"
            "The search takes 9 s, then 0.5 s of waiting, and the summary takes 4.5 s.\n"
            "One way: 10 s for the search, 5 s for the summary. The other: one deadline for all.\n"
            "In another chain shipping uses up all 12 s, and then a refund is due.",
        ),
        (run_within, Budget.compensation),
        (
            question(
                "promise",
                ("两种做法，哪一种守住了 12 秒？", "Which of the two ways keeps the 12 seconds?"),
                _kept_promises,
                (
                    ([True, True], "两种都守住", "both"),
                    ([True, False], "只有各限各的", "only a limit for each"),
                    ([False, True], "只有一个截止时间的", "only one deadline for all"),
                    ([False, False], "两种都没有", "neither"),
                ),
                (
                    "每一步都没有超过自己的上限，合起来是 14 秒：等待的 0.5 秒没有人记账。\n"
                    "截止时间沿着链传下去，等待也算在内，谁也借不到不存在的时间。",
                    "No step exceeded its own limit, and all together took 14 s: nobody charged the waiting.\n"
                    "A deadline is handed down the chain, waiting is charged, and nobody borrows what is not there.",
                ),
                at(_I4, _CHAIN, "I4-011", "I4-012"),
                run_within,
                "test_budget.TheBudget.test_the_clock_charges_waits_between_tools",
                also=("promised_ms", "chains.0.ended_at_ms", "chains.1.ended_at_ms"),
            ),
            question(
                "short",
                (
                    "一个截止时间：还剩 2.5 秒，总结至少要 3 秒。怎么办？",
                    "One deadline: 2.5 s are left, and the summary needs 3 s at least. What happens?",
                ),
                "chains.1.summarize",
                (
                    ("timed_out_stopped", "开始，到时间了停下", "it starts and is stopped in time"),
                    ("not_started", "根本不开始", "it is not even started"),
                    ("value", "开始，晚一点就晚一点", "it starts and is a little late"),
                ),
                (
                    "明知来不及还开始，只会白花时间、白占资源，最后一样没有结果。\n"
                    "没有开始是最好处理的失败：什么都没有发生过，还剩 6.5 秒可以善后。",
                    "To start what cannot end in time spends time and gives nothing.\n"
                    "Not started is the easiest failure: nothing has happened, and 6.5 s are left to clean up.",
                ),
                at(_I4, _CHAIN, "I4-012", "I4-015"),
                run_within,
                "test_budget.TheRunner.test_too_little_time_means_not_called",
                also=("chains.1.left_for_compensation_ms",),
            ),
            question(
                "refund",
                ("发货把主路的时间用完了。退款还能跑吗？", "Shipping has used up the main path. Can the refund run?"),
                "refund_after_its_time",
                (
                    ("not_started", "不能：时间用完了", "no: the time is used up"),
                    ("timed_out_stopped", "能开始，但会被中止", "it starts and is cut off"),
                    ("value", "能，而且做完", "yes, and to its end"),
                ),
                (
                    "四分之一的时间一开始就留给了补偿，主路花不到它。\n最需要退款的时候，恰恰是时间用完的时候。",
                    "A quarter of the time was kept for compensation from the start, out of the main path's reach.\n"
                    "It is just when the time is used up that a refund is due.",
                ),
                at(_I4, _CHAIN, "I4-023", "I4-024"),
                Budget.compensation,
                "test_budget.TheRunner.test_compensation_runs_after_the_main_path_timed_out",
                also=("main_path_after_its_time", "reserve_after_the_refund_ms"),
            ),
        ),
        (
            "_SEARCH_S: Final = 9.0",
            "_SEARCH_S: Final = 6.0",
            "搜索快了 3 秒：两种做法还有区别吗？",
            "The search is 3 s faster: is there still a difference between the two ways?",
        ),
        ("a limit each: nobody counts the whole", "one deadline", "a refund after the time-out"),
    ),
    area(
        "interruption",
        ("中断", "interruption"),
        (
            "取消先写进数据库，再发消息；这一次消息丢了。\n"
            "那项工作在别的进程里，那里没有收到任何消息。\n"
            "取消与完成赛跑；扣款完成之后要求退款，问了三次。\n"
            "一个循环要处理 1000 项，每 50 项看一眼有没有取消。",
            "A cancel is written to the database and then sent as a message, which is lost.\n"
            "The work is in another process, which gets no message at all.\n"
            "A cancel races a result; after a charge a refund is asked for, three times.\n"
            "A loop has 1000 items and looks every 50 whether it is cancelled.",
        ),
        (CancelStore.cancel, CancelStore.finish, checked),
        (
            question(
                "lost",
                (
                    "消息丢了。别处的 worker 什么时候知道取消了？",
                    "The message is lost. When does the worker elsewhere know?",
                ),
                "noticed_elsewhere_after_s",
                (
                    (0.0, "马上", "at once"),
                    (1.0, "下一次看数据库时，1 秒后", "at its next look at the database, after 1 s"),
                    (None, "永远不知道", "never"),
                ),
                (
                    "行先写好，消息只是催一催：丢了，只是晚一点，不会漏。\n"
                    "反过来先发消息再写行，消息一丢就没有人知道了。",
                    "The row is there first and the message only hurries: lost, it is later and never missed.\n"
                    "The other way round a lost message would be the end of it.",
                ),
                at(_I4, _PROCESSES, "I4-092"),
                CancelStore.cancel_reason,
                "test_cancellation.TheDistributedToken.test_the_row_is_there_when_the_message_is_sent_and_when_it_is_lost",
                also=("row_was_there_when_the_message_was_sent", "message_arrived"),
            ),
            question(
                "race",
                (
                    "worker 先交付，取消后到。最后是什么状态？",
                    "The worker delivers, and then the cancel comes. Which state?",
                ),
                "races.1.state",
                (
                    ("succeeded", "succeeded", "succeeded"),
                    ("cancelled", "cancelled：用户说了算", "cancelled: the user decides"),
                ),
                (
                    "谁先提交谁算数，数据库里的一行只有一个结局；取消得到的回答是已经做完了。\n"
                    "做完的事要撤回，靠补偿：退款要求了三次，只登记一次。",
                    "Whoever commits first wins: a row ends once, and the cancel is told that it is done.\n"
                    "What is done is taken back by a compensation: asked for three times, registered once.",
                ),
                at(_I4, _PROCESSES, "I4-094"),
                CancelStore.finish,
                "test_cancel_store.Results.test_a_result_before_the_cancel_wins",
                also=("races.1.cancel_says", "refunds_asked_for", "refunds_registered"),
            ),
            question(
                "loop",
                (
                    "第 120 项处理到一半时取消。循环一共处理几项？",
                    "Cancelled during item 120. How many items are done in all?",
                ),
                _where_the_loop_stopped,
                (
                    ("at once", "120 项：马上停", "120: it stops at once"),
                    ("at the next look", "到下一个检查点为止", "as many as up to the next check point"),
                    ("at the end", "1000 项：循环不能打断", "1000: a loop cannot be interrupted"),
                ),
                (
                    "合作式取消只在检查点生效：120 之后的下一个，在 150 项之后。\n"
                    "间隔就是你答应的响应时间，所以要写明；没有检查点的循环会跑到底。",
                    "A cooperative cancel acts at check points, and the next one after 120 is behind item 150.\n"
                    "Their distance is the response you promise, so it is stated; without any a loop runs to its end.",
                ),
                at(_I4, _CANCEL, "I4-032"),
                checked,
                "test_cancellation.LongLoops.test_a_cancel_is_seen_after_at_most_fifty_items",
                also=("cancelled_at_item", "looks_every", "stopped_after_items"),
            ),
        ),
        (
            "_CANCEL_AT: Final = 120",
            "_CANCEL_AT: Final = 151",
            "晚了 31 项取消：循环多做几项？",
            "The cancel comes 31 items later: how many more items are done?",
        ),
        ("the row first, the message afterwards", "the result first", "a compensation is exempt"),
    ),
    area(
        "retry",
        ("重试", "trying again"),
        (
            "SDK、运行时、作业系统三层，每层最多试 3 次；最底下一直失败。\n"
            "先用三个各写各的循环，再用同一条链上的三层 retry。\n"
            "一个可逆的写，回答丢了两次；每次查询都说没有做成。\n"
            "20 个调用者同时去碰一个死掉的依赖，各可以试 4 次。",
            "SDK, runtime, job system: each tries up to 3 times, and what is below always fails.\n"
            "First as three loops written apart, then as three layers of retry in one chain.\n"
            "A reversible write loses its answer twice; each time a query says it was not done.\n"
            "20 callers meet a dead dependency at once, and each may try 4 times.",
        ),
        (retry, may_retry),
        (
            question(
                "layers",
                (
                    "两种写法，最底下各被调用几次？",
                    "How often is the bottom called: by loops written apart, and by retry in one chain?",
                ),
                lambda result: [row["calls"] for row in result["layers"][:2]],
                (
                    ([3, 3], "3 次和 3 次", "3 and 3"),
                    ([9, 3], "9 次和 3 次", "9 and 3"),
                    ([27, 27], "27 次和 27 次", "27 and 27"),
                    ([27, 3], "27 次和 3 次", "27 and 3"),
                ),
                (
                    "各层不知道彼此，次数就相乘：3 x 3 x 3。对方正忙的时候，这就是压垮它的那一脚。\n"
                    "一个错误范围只归一层管；同一条链上，里面试过了，外面就不再试。",
                    "Layers that do not know of each other multiply: 3 x 3 x 3, just when the other side is busy.\n"
                    "One layer owns a range of errors: in one chain, what was tried inside is not tried outside.",
                ),
                at(_C10, _LAYERS, "C10-206"),
                retry,
                "test_retry.Limits.test_stacked_layers_make_the_attempts_of_one",
                also=("layers.0.calls", "layers.1.calls"),
            ),
            question(
                "keys",
                (
                    "那个写试了三次。对方一共看到几个不同的键？",
                    "That write is tried three times. How many different keys does the other side see?",
                ),
                "different_keys_seen_by_the_other_side",
                (
                    (1, "1 个", "one"),
                    (3, "3 个：每次请求一个", "three: one for each request"),
                ),
                (
                    "键认的是意图，不是请求：三次都是同一笔退款。\n每次换一个新键，对方就认不出重复，会真的做三次。",
                    "A key names the intent and not the request: all three are the same refund.\n"
                    "With a new key each time nobody could know the repetition, and three would be made.",
                ),
                at(_I4, _PROCESSES, "I4-095"),
                retry,
                "test_idempotency.OutcomeTest.test_the_same_key_goes_downstream_on_every_attempt",
                also=("write_after_two_lost_answers",),
            ),
            question(
                "bucket",
                (
                    "20 个调用者共用一只重试桶（10 个令牌）。依赖一共被调用几次？",
                    "The 20 callers share a bucket of 10 retries. How often is the dependency called in all?",
                ),
                "calls_with_a_shared_bucket",
                (
                    (20, "20 次：谁也不重试", "20: nobody retries"),
                    (30, "30 次", "30"),
                    (80, "80 次", "80"),
                ),
                (
                    "第一次人人都可以试，20 次；之后的重试一起算，桶里只有 10 个。\n"
                    "没有桶是 80 次：每个人都守规矩，合起来仍是一场风暴。",
                    "The first call is everybody's, 20; all retries together are the 10 of the bucket.\n"
                    "Without it there are 80: each keeps the rules, and together they are a storm.",
                ),
                at(_I4, _RETRY, "I4-069"),
                retry,
                "test_retry.Limits.test_a_bucket_bounds_the_retries_of_all_callers",
                also=("callers_of_a_dead_dependency", "calls_without_one"),
            ),
        ),
        (
            "_SEED: Final = 10",
            "_SEED: Final = 11",
            "换一个随机种子：六次等待的时间都变了，什么不会变？",
            "Another seed: all six waits change. What does not?",
        ),
    ),
    area(
        "breaker",
        ("熔断", "the circuit breaker"),
        (
            "熔断只看最近一分钟的调用，再早的不算。\n"
            "一个繁忙的依赖：1010 次调用里有 10 次失败。\n"
            "断开之后超过 30 秒，可以试探；这时 60 个调用者一起来。\n"
            "还有 100 次调用，全都因为用户取消而结束。",
            "The breaker looks at the calls of the last minute, and at nothing before it.\n"
            "A busy dependency: 10 of 1010 calls fail.\n"
            "More than 30 s after it opened it may be probed, and 60 callers come at once.\n"
            "And there are 100 calls that all end because their users cancel.",
        ),
        (CircuitBreaker.acquire, judge),
        (
            question(
                "rate",
                ("1010 次里 10 次失败。电路断开吗？", "10 failures in 1010 calls. Does the circuit open?"),
                "opening.0.state",
                (
                    ("closed", "不断开", "it stays closed"),
                    ("open", "断开：失败满 10 次了", "it opens: there are 10 failures"),
                ),
                (
                    "至少 10 次调用、而且一半失败，才断开；百分之一是健康的。\n"
                    "次数随流量增长，越忙越容易误断；比率才说明好坏。\n"
                    "从不清零的计数器，在第 10 次失败时就会断开。",
                    "It takes at least 10 calls of which half fail; one per cent is healthy.\n"
                    "A count grows with the traffic; a rate tells good from bad.\n"
                    "A counter that is never set back would have opened at the tenth failure.",
                ),
                at(_I4, _RETRY, "I4-079"),
                CircuitBreaker.acquire,
                "test_circuit_breaker.States.test_a_few_failures_among_many_calls_leave_it_closed",
                also=("opening.0.a_counter_of_10_would_be", "opening.1.state", "opening.2.state"),
            ),
            question(
                "probes",
                (
                    "可以试探了，60 个调用者一起来。放行几个？",
                    "It may be probed, and 60 callers come. How many go through?",
                ),
                "probes_let_through",
                (
                    (1, "1 个", "one"),
                    (10, "10 个：凑够判断的次数", "ten: enough to judge by"),
                    (60, "60 个：时间到了", "all 60: the time is over"),
                ),
                (
                    "一个就够知道它醒了没有；60 个一起去，会把刚醒来的又压倒。\n"
                    "其余的立刻被拒绝，并且知道多久以后再来。",
                    "One is enough to learn whether it is awake; 60 would trample what has just woken up.\n"
                    "The others are refused at once, and told when to come again.",
                ),
                at(_I4, _RETRY, "I4-080"),
                CircuitBreaker.acquire,
                "test_circuit_breaker.Probes.test_fifty_tasks_and_ten_threads_make_one_call",
                also=("callers_at_half_open", "refused_with_a_hint"),
            ),
            question(
                "cancelled",
                ("100 次调用都被用户取消了。电路是什么状态？", "100 calls are cancelled by their users. Which state?"),
                "verdicts.2.state",
                (
                    ("open", "断开：100 次都没有成功", "open: not one has succeeded"),
                    ("closed", "闭合", "closed"),
                    ("half-open", "半开：说不准", "half-open: one cannot say"),
                ),
                (
                    "用户改了主意，不是依赖的错；这样的结束不好也不坏，两边都不算。\n"
                    "调用者自己只剩 5 毫秒、参数写错，也一样。",
                    "That users change their minds is not the dependency's fault: it counts for neither side.\n"
                    "So it is with a caller who has 5 ms left, or who sends wrong arguments.",
                ),
                at(_I4, _RETRY, "I4-079"),
                judge,
                "test_circuit_breaker.Verdicts.test_callers_who_give_up_do_not_open_it",
                also=("verdicts.2.neutral", "verdicts.0.state"),
            ),
        ),
        (
            "_CALLERS: Final = 60",
            "_CALLERS: Final = 6",
            "来的人少了：放行几个，拒绝几个？",
            "Fewer come: how many go through, and how many are refused?",
        ),
        ("one probe",),
    ),
)

AREAS: Final[Mapping[str, Area]] = {one.name: one for one in _ALL}
"""The areas of the resilience groups, by the name of the group."""
