"""What a reader guesses about the tool layer: schema, registry, orchestration, results, a whole turn, the ranking,
and the door.

One `Area` for each of these groups of the companions, written with `lab.guessing.areas`. Each question names the
claims that it is about, so that the claim map leads from there to every test.

Source: the documents on the tool registry and on orchestration (claims T6-035, T6-040, C8-010, C8-055, C8-060), and
the chapter on its search (C10-035, C10-044, C10-051).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chapter10.companions.finding.ranking import Ranking
from chapter10.companions.schemas.schema import Validator, compile_schema
from chapter10.companions.schemas.strict_json import strict_json
from chapter10.companions.serving.offer import Offer
from chapter10.companions.serving.task_handles import Jobs
from chapter10.companions.tools.executor import StreamingToolExecutor, can_execute
from chapter10.companions.tools.gateway import Gateway
from chapter10.companions.tools.registry import ToolRegistry
from chapter10.companions.tools.result_budget import ResultBudget, select_fresh_to_replace
from chapter10.companions.tools.result_store import visible_content
from chapter10.lab.guessing.areas import area, at, question
from chapter10.lab.guessing.predict import Area

__all__ = ["AREAS"]

_C10: Final = ("本章", "the chapter")
_T6: Final = ("工具注册表文档", "the document on the registry")
_C8: Final = ("工具编排文档", "the document on orchestration")

_FILTER: Final = ("先过滤，再计算分数", "Filter first, then score")
_RELEVANT: Final = ("相关不等于适用，更不等于批准", "Relevant is neither applicable nor approved")
_RISKS: Final = ("普通函数进入 Agent 后会多出哪些风险", "What a plain function risks inside an agent")
_MATRIX: Final = ("用故障矩阵写测试", "The failure matrix")
_ONE_FORM: Final = ("统一调用结果", "One form of result")
_SCHEDULE: Final = ("8.1 并发执行的状态机", "8.1 The state machine of concurrent execution")
_SIBLINGS: Final = ("8.2 兄弟取消与三层 AbortController", "8.2 Sibling cancel and three layers of abort")
_BUDGET: Final = ("8.4 结果预算：两层防线", "8.4 Result budget: two lines of defence")
_FROZEN: Final = ("8.5 预算状态的不可变性：为 prompt cache 而设计", "8.5 Decisions that never change")
_EMPTY: Final = ("8.6 空结果的防御性处理", "8.6 Empty results")
_READS: Final = ("Read(a.ts)", "Read(b.ts)", "Read(d.ts)")


def _most_read_calls(result: Any) -> Any:
    """How often a read was called whose connection never came back."""
    return max(
        row["calls"] for row in result["matrix"] if (row["effect"], row["fault"]) == ("read", "connection lost always")
    )


def _others_after_a_failure(result: Any) -> list[str]:
    """What became of the calls beside a command that failed, and beside a read that failed."""
    return [
        next(row["code"] for row in result["stopped"] if (row["case"], row["call"]) == beside)
        for beside in (("a read fails", "Read(b.ts)"), ("a command fails", "Read(a.ts)"))
    ]


def _answers(result: Any) -> int:
    """How many calls of the interrupted turn have an answer."""
    (row,) = (row for row in result["exits"] if row["exit"] == "the user interrupts")
    return len(row["answers"].split(", "))


_ALL: Final = (
    area(
        "schema",
        ("参数与 Schema", "arguments and their schema"),
        (
            "模型写的参数先按 Schema 检查，通过了才执行工具。\n"
            "order_id 必填；lines 是 1 到 50 的整数，default 写着 1。\n"
            "也有根本不是 JSON 的文本，还有几份不寻常的 Schema。",
            "Arguments that a model wrote are checked by a schema; only then does the tool run.\n"
            "order_id is required; lines is an integer from 1 to 50, and its default says 1.\n"
            "There are also texts that are no JSON, and a few unusual schemas.",
        ),
        (compile_schema, Validator.validate, strict_json),
        (
            question(
                "bool",
                ("模型把 lines 写成 true。检查会发现几处错误？", "The model writes true for lines. How many mistakes?"),
                "arguments.2.violations",
                (
                    (0, "没有：在 Python 里 true 就是 1", "none: in Python, true is 1"),
                    (1, "一处：true 不是整数", "one: true is no integer"),
                    (2, "两处：既不是整数，也不知道够不够 1", "two: no integer, and perhaps below 1"),
                ),
                (
                    "类型按 JSON 判断，不按 Python：在 JSON 里 true 不是整数，3.0 反而是。\n"
                    "isinstance(True, int) 为真，用它来检查就会放过这个参数。",
                    "Types are those of JSON and not of Python: true is no integer there, but 3.0 is one.\n"
                    "isinstance(True, int) holds, so a check by it would let this argument through.",
                ),
                at(_T6, _ONE_FORM, "T6-022"),
                Validator.validate,
                "test_registry.Arguments.test_types_are_those_of_json",
                also=("arguments.2.found", "arguments.1.arguments", "arguments.1.violations"),
            ),
            question(
                "default",
                (
                    "模型没有写 lines。工具收到的参数里有 lines 吗？",
                    "The model leaves lines out. Does the tool get it?",
                ),
                "default_filled_in",
                (
                    (False, "没有", "no"),
                    (True, "有，值是默认的 1", "yes, as 1, the default"),
                ),
                (
                    "default 是给人看的说明，不是指令。检查只判断，不改写：\n"
                    "工具收到的就是模型写的，日志里看到的也一样。",
                    "A default is a remark for people and no order. Checking judges and rewrites nothing:\n"
                    "the tool gets what the model wrote, and so does the log.",
                ),
                at(_T6, _MATRIX, "T6-035"),
                compile_schema,
                "test_schema.Keywords.test_no_default_is_filled_in",
            ),
            question(
                "unevaluated",
                (
                    "工具作者的 Schema 里写了 unevaluatedProperties，检查器不认识它。怎么办？",
                    "A schema uses unevaluatedProperties, which the checker does not know. And now?",
                ),
                "refused.0.code",
                (
                    ("accepted", "注册成功，这个词不检查", "registered, and the word goes unchecked"),
                    ("unsupported_keyword", "注册时就拒绝", "refused at registration"),
                ),
                (
                    "能注册却不检查，作者会以为有人把关。\n不检查的关键字在注册时拒绝，并说出名字和位置。",
                    "Registered and unchecked, it would look to its author as if somebody checked.\n"
                    "A keyword that is not checked is refused at registration, by name and place.",
                ),
                at(_T6, _RISKS, "T6-005"),
                compile_schema,
                "test_schema.Refusals.test_every_other_validation_keyword_is_refused_by_name_and_place",
                also=("refused.0.keyword", "refused.0.reason"),
            ),
        ),
        (
            '"maximum": 50',
            '"maximum": 2',
            "第二个参数 lines: 3.0 还通过吗？别的参数会不会也变？",
            "Does the second argument, lines: 3.0, still pass? Does any other one change?",
        ),
        ("arguments meet the schema first", "refused at registration"),
    ),
    area(
        "registry",
        ("工具注册表", "the registry of tools"),
        (
            "九种故障，每种各遇到三种效果：读、可逆的写、不可逆的写。\n"
            "每个工具最多尝试 3 次；处理函数真正被调用一次，就数一次。\n"
            "写操作还可能有状态查询，它回答 done、not done 或 unknown。\n"
            "最后，一份加载好的定义：权限被撤销，或者工具换了版本。",
            "Nine faults, each meets three effects: read, reversible write, irreversible write.\n"
            "Each tool may be tried 3 times; every real call of its handler is counted.\n"
            "A write may have a status query, which says done, not done or unknown.\n"
            "Last, a definition is loaded, and then the permission goes, or the tool changes.",
        ),
        (ToolRegistry.invoke,),
        (
            question(
                "reads",
                (
                    "读操作的连接一直断。处理函数被调用几次？",
                    "The connection of a read is always lost. How many calls?",
                ),
                _most_read_calls,
                (
                    (1, "1 次", "one"),
                    (3, "3 次", "three"),
                    (4, "4 次：第一次，再加 3 次重试", "four: the first, and 3 retries"),
                ),
                (
                    "读可以重复，但有上限：3 次尝试包括第一次，也就是最多重试两次。\n"
                    "处理函数真的被数了三次，不是从返回值里推出来的。",
                    "A read may be repeated, with a bound: 3 attempts include the first, so two retries at most.\n"
                    "The calls are counted in the handler, and not guessed from the answer.",
                ),
                at(_T6, _MATRIX, "T6-036", "T6-042"),
                ToolRegistry.invoke,
                "test_registry.Repetition.test_a_read_is_repeated_at_most_twice",
                also=("matrix.21.fault", "matrix.21.effect", "matrix.21.calls"),
            ),
            question(
                "writes",
                (
                    "写操作超时，状态查询没有说“没做成”。最多被调用几次？",
                    'A write runs out of time, and no query says "not done". How many calls at most?',
                ),
                "most_calls_of_a_write_out_of_time_not_known_undone",
                (
                    (1, "1 次", "one"),
                    (2, "2 次", "two"),
                    (3, "3 次，和读一样", "three, as for a read"),
                ),
                (
                    "超时只说明没等到回答，不说明没有做。再写一次，可能就是两次。\n"
                    "答案是 outcome_unknown；只有查询确认没做、而且可逆，才会再试。",
                    "Out of time means that no answer came, not that nothing was done: again may be twice.\n"
                    "It is outcome_unknown; only a reversible write that was surely not done is tried again.",
                ),
                at(_T6, _MATRIX, "T6-040"),
                ToolRegistry.invoke,
                "test_registry.Repetition.test_a_write_is_repeated_only_if_it_was_surely_not_done",
                also=("matrix.31.outcome", "matrix.33.status query says", "matrix.33.calls"),
            ),
            question(
                "revoked",
                (
                    "定义加载之后，权限被撤销。再调用得到什么？",
                    "The permission goes after loading. What does a call give?",
                ),
                "found_and_callable.revoked",
                (
                    ("ok", "ok：加载的时候有权限", "ok: it was permitted when it was loaded"),
                    ("forbidden", "forbidden", "forbidden"),
                    ("unknown_tool", "unknown_tool：它不见了", "unknown_tool: it is gone"),
                ),
                (
                    "找得到、加载过，都不是许可；每次执行之前重新检查权限。\n"
                    "工具换了版本也一样：手里的旧定义不再有效。",
                    "Found and loaded is not permitted: permission is looked at before every single call.\n"
                    "A new version of the tool does the same to a definition that was loaded before.",
                ),
                at(_T6, _MATRIX, "T6-038"),
                ToolRegistry.invoke,
                "test_registry.Permission.test_a_refusal_is_not_repeated",
                also=("found_and_callable.changed", "found_and_callable.calls"),
            ),
        ),
        (
            '_writes_ask([_LOST, "fine"])',
            '_writes_ask([_LOST, _LOST, "fine"])',
            "连接断两次才恢复：哪些格子的次数会变，哪些不变？",
            "The connection is lost twice before it is fine: which counts change, and which do not?",
        ),
        (
            "connection lost always",
            "out of time",
            "the catalog is made from the registry; authorized again before it runs",
        ),
    ),
    area(
        "orchestration",
        ("工具编排", "orchestration"),
        (
            "模型一次写下五个调用：读 a、读 b、npm test、改 c、读 d。\n"
            "读是安全的，可以一起跑；npm test 和编辑不安全，要独占。\n"
            "另有三个读 x、y、z，完成的先后是 z、x、y。\n"
            "再看几种收场：读失败、命令失败、用户中断。",
            "The model writes five calls at once: read a, read b, npm test, edit c, read d.\n"
            "Reads are safe and may run together; npm test and the edit are not and run alone.\n"
            "Three more reads x, y, z are done in the order z, x, y.\n"
            "Then some bad ends: a read fails, a command fails, the user interrupts.",
        ),
        (StreamingToolExecutor.add, can_execute, StreamingToolExecutor.updates),
        (
            question(
                "running",
                (
                    "五个调用都加入了，一个也没有完成。正在执行的是哪些？",
                    "All five are added, none is done. Which execute?",
                ),
                "executing_after_all_were_added",
                (
                    (
                        [_READS[0], _READS[1], "Bash(npm test)"],
                        "前两个读和 npm test",
                        "the first two reads and npm test",
                    ),
                    ([_READS[0], _READS[1]], "前两个读", "the first two reads"),
                    (list(_READS), "三个读", "the three reads"),
                    (
                        [_READS[0], _READS[1], "Bash(npm test)", "Edit(c.ts)", _READS[2]],
                        "五个都在执行",
                        "all five",
                    ),
                ),
                (
                    "npm test 要等两个读完成；它一挡，后面的就都不看了。\n"
                    "读 d 虽然安全，也不能越过前面的命令和编辑：它要看到改过之后的样子。",
                    "npm test waits for both reads, and nothing behind a call that waits is looked at.\n"
                    "Reading d is safe, but it may not overtake the edit whose outcome it may have to see.",
                ),
                at(_C8, _SCHEDULE, "C8-010", "C8-012", "C8-016"),
                can_execute,
                "test_executor.Scheduling.test_the_five_tool_walk_through",
                also=("result_order",),
            ),
            question(
                "order",
                ("x、y、z 的结果按什么次序交出来？", "In which order are the results of x, y, z handed out?"),
                "yielded_order",
                (
                    (["x", "y", "z"], "x、y、z：按模型写的次序", "x, y, z: as the model wrote them"),
                    (["z", "x", "y"], "z、x、y：谁先完成谁先交", "z, x, y: as they are done"),
                ),
                (
                    "z 早就完成了，也要等前面的两个；对话里的次序因此每次都一样。\n"
                    "进度不等：z 做到一半的消息，当时就出来了。",
                    "z is done first and waits for the two before it, so the transcript is always the same.\n"
                    "Progress does not wait: that z was half done came out at once.",
                ),
                at(_C8, _SCHEDULE, "C8-006"),
                StreamingToolExecutor.updates,
                "test_executor.Handing.test_a_result_waits_for_the_results_before_it",
                also=("completed_order",),
            ),
            question(
                "failure",
                (
                    "一批里有一个失败了，旁边的读怎样？读失败和命令失败一样吗？",
                    "One of a batch fails. What of the read beside it: the same for a read and a command?",
                ),
                _others_after_a_failure,
                (
                    (["-", "-"], "两种情况下，旁边的读都照常完成", "it goes on in both cases"),
                    (
                        ["-", "sibling_error"],
                        "旁边是读失败：照常；旁边是命令失败：取消",
                        "beside a read it goes on, beside a command it is cancelled",
                    ),
                    (["sibling_error", "sibling_error"], "两种情况下都取消", "it is cancelled in both cases"),
                ),
                (
                    "一个文件没读到，说明不了别的文件。命令失败却往往让后面的都没有意义。\n"
                    "被取消的调用也有回答，写明开始过没有；整个查询没有被取消。",
                    "That one file is missing says nothing of others; after a failed command the rest is often vain.\n"
                    "A cancelled call has its answer too, which says whether it had started; the query goes on.",
                ),
                at(_C8, _SIBLINGS, "C8-023", "C8-024", "C8-030"),
                StreamingToolExecutor.updates,
                "test_executor.Failures.test_a_failing_command_ends_its_siblings",
                also=("stopped.1.code", "stopped.2.code"),
            ),
        ),
        (
            'frozenset({"ls", "git status"})',
            'frozenset({"ls", "git status", "npm test"})',
            "如果有人把 npm test 也当成只读命令，谁和谁会一起跑？",
            "If somebody took npm test for a command that only looks, which calls would run together?",
        ),
        (
            "the schedule of five calls",
            "done out of order, handed out in order, progress at once",
        ),
    ),
    area(
        "results",
        ("结果预算", "the budget of results"),
        (
            "十个结果，各 40,000 字符；一条消息最多 200,000 字符。\n"
            "放不下的存成文件，原处换成 2,000 字符的预览。\n"
            "第二轮来了更大的结果，其中一个永远不许替换。\n"
            "第三轮换了进程，上限降到 20,000，文件也没有了。",
            "Ten results of 40,000 characters; a message may have 200,000.\n"
            "What does not fit goes to a file and leaves a preview of 2,000 characters.\n"
            "The second turn brings larger ones, of which one may never be replaced.\n"
            "For the third there is another process, a limit of 20,000, and no file is left.",
        ),
        (ResultBudget.apply, select_fresh_to_replace),
        (
            question(
                "ten",
                (
                    "第一轮：要替换几个，发出去的才在上限之内？",
                    "Turn 1: how many are replaced, so that the message fits?",
                ),
                "ten_of_40000_with_previews",
                (
                    (5, "5 个：剩下的正好 200,000", "five: what is left is exactly 200,000"),
                    (6, "6 个", "six"),
                    (10, "10 个：要公平", "all ten, to be fair"),
                ),
                (
                    "不算预览，5 个就够，正好 200,000。可是 5 个预览也要发出去，又是 10,000。\n"
                    "所以是 6 个：预算管的是真正发送的，不是公式里的。",
                    "Without the previews five would do, to exactly 200,000. But five previews are sent as well.\n"
                    "So it is six: the budget is for what is really sent, and not for a formula.",
                ),
                at(_C8, _BUDGET, "C8-055"),
                select_fresh_to_replace,
                "test_companion_experiments.TheResultsGroup.test_ten_of_forty_thousand_need_six_previews",
                also=("ten_of_40000_by_the_formula",),
            ),
            question(
                "lowered",
                (
                    "第三轮上限低多了。第一轮完整发过的四个，现在怎样？",
                    "In turn 3 the limit is much lower. What of the four that were sent whole in turn 1?",
                ),
                "decisions.8.fate",
                (
                    ("frozen", "一个字节也不动", "they stay, to the byte"),
                    ("replaced", "换成预览", "they become previews"),
                ),
                (
                    "发过的内容是提示缓存的前缀，改一个字节，后面的缓存就全失效。\n"
                    "所以决定过的永远不变；新上限只管新结果，装不下就如实报告。",
                    "What was sent is the prefix of the prompt cache: one byte changed, and all behind it is lost.\n"
                    "What was decided stays. A new limit is for new results, and what cannot fit is reported.",
                ),
                at(_C8, _FROZEN, "C8-060", "C8-062"),
                ResultBudget.apply,
                "test_companion_experiments.TheResultsGroup.test_no_result_changes_its_fate",
                also=("decisions.8.results", "decisions.8.sent", "requests.2.earlier part as sent before"),
            ),
            question(
                "empty",
                (
                    "命令成功了，什么也没有输出。模型看到什么？",
                    "A command succeeds without output. What does the model see?",
                ),
                "empty.1.success",
                (
                    (
                        "(Bash completed with no output)",
                        "一句话：已完成，没有输出",
                        "a sentence: completed with no output",
                    ),
                    ("", "空的结果", "an empty result"),
                ),
                (
                    "空结果看起来像回答已经完了，模型可能就此停下。\n"
                    "所以换成看得见的一句话；0 和 false 不算空，照原样给。",
                    "An empty result looks like the end of an answer, and a model may stop there.\n"
                    "So it becomes a visible sentence; 0 and false are something and stay as they are.",
                ),
                at(_C8, _EMPTY, "C8-069", "C8-071"),
                visible_content,
                "test_result_budget.Empty.test_six_forms_are_empty",
                also=("empty.5.result", "empty.5.success"),
            ),
        ),
        (
            'ten = [Candidate(f"a{number}", 40_000) for number in range(10)]',
            'ten = [Candidate(f"a{number}", 40_000) for number in range(9)]',
            "九个而不是十个：公式说几个，真正要几个？",
            "Nine instead of ten: how many by the formula, and how many in truth?",
        ),
        ("three requests",),
    ),
    area(
        "turn",
        ("一轮完整的调用", "a whole turn"),
        (
            "一次对话，六次请求：找工具、加载、调用，发邮件前要批准。\n"
            "中途一个很大的结果变成预览，一项权限被收回。\n"
            "然后同样的一轮以九种方式收场：完成、中断、断流……\n"
            "被中断的那一轮：三个调用里，一个已完成，一个在写，一个在等。",
            "A conversation of six requests: tools are found, loaded, called; a mail asks for approval.\n"
            "On the way a large result becomes a preview, and a permission is taken back.\n"
            "Then a turn ends in nine ways: done, interrupted, the stream breaks, and so on.\n"
            "The interrupted one has three calls: one is done, one is writing, one waits.",
        ),
        (Gateway.request, Gateway.turn, Gateway.interrupt),
        (
            question(
                "answers",
                (
                    "用户中断了。这三个调用在对话里有几个回答？",
                    "The user interrupts. How many of the three have an answer?",
                ),
                _answers,
                (
                    (1, "1 个：完成的那个", "one: that of the call that is done"),
                    (2, "2 个：还在等的那个没有开始", "two: the one that waits has not started"),
                    (3, "3 个", "all three"),
                ),
                (
                    "没有回答的调用会让下一次请求不合格式，整个对话就断在这里。\n"
                    "所以没做完的也有回答，而且说明开始过没有：写到一半的，结果未知。",
                    "A call without an answer makes the next request invalid, and the conversation ends there.\n"
                    "So each has one, which also says whether it had started: half a write is an unknown outcome.",
                ),
                at(_C8, _SIBLINGS, "C8-032", "C8-033"),
                Gateway.interrupt,
                "test_gateway.HowATurnEnds.test_an_interruption_answers_every_call",
                also=("exits.1.exit", "exits.1.answers", "problems"),
            ),
            question(
                "prefix",
                (
                    "有预览、有中断、有收回的权限。后来的请求改动过先前发出的内容吗？",
                    "Previews, interrupts, a permission gone: does a later request change what was sent before?",
                ),
                "earlier_part_always_as_sent",
                (
                    (True, "没有，逐字节相同", "no, it is the same to the byte"),
                    (False, "改过，至少一次", "yes, at least once"),
                ),
                (
                    "对话只在末尾增长：连工具定义也是，收回的权限不从前面抹去，而是在执行时拒绝。\n"
                    "提示缓存只认相同的开头，改一处就从那里起重新计费。",
                    "A conversation only grows at its end. What is no longer permitted is not wiped out at the\n"
                    "beginning but refused when it runs. A prompt cache knows equal beginnings and nothing else.",
                ),
                at(_C8, _FROZEN, "C8-058"),
                Gateway.request,
                "test_companion_experiments.TheTurnGroup.test_every_request_begins_as_the_one_before",
                also=("requests.2.replaced so far", "requests.2.earlier part as sent before"),
            ),
            question(
                "handlers",
                (
                    "orders.get 被请求了四次：两次正常，一次没有权限，一次参数不对。真正执行几次？",
                    "orders.get is asked for four times: twice well, once without permission, once with a wrong "
                    "argument. How often does it run?",
                ),
                lambda result: result["handler_calls"]["orders.get"],
                (
                    (2, "2 次", "twice"),
                    (3, "3 次：参数错误由工具自己发现", "three times: it finds the wrong argument itself"),
                    (4, "4 次", "four times"),
                ),
                (
                    "检查和权限都在处理函数之前；被拒绝的调用，一行业务代码也没有跑。\n"
                    "模型读到的是稳定的代码，不是异常的文字。",
                    "Check and permission come before the handler: of what is refused, no line of it ran.\n"
                    "The model reads a stable code, and not the text of an exception.",
                ),
                at(_T6, _MATRIX, "T6-035", "T6-038"),
                ToolRegistry.invoke,
                "test_companion_experiments.TheTurnGroup.test_every_call_of_the_conversation_ends_as_it_must",
                also=("handler_calls", "answers.10.code", "answers.11.code"),
            ),
        ),
        (
            "_MESSAGE_LIMIT: Final = 80_000",
            "_MESSAGE_LIMIT: Final = 200_000",
            "一条消息能装更多了：哪几种收场还有预览，哪些请求一个字节也没变？",
            "A message may hold more: which ends still have a preview, and which requests do not change by a byte?",
        ),
        ("the user interrupts",),
    ),
    area(
        "ranking",
        ("排序与权限", "ranking and permission"),
        (
            "八个工具，alice 都看得见；其中四个退款工具对 bob 隐藏。\n"
            "两个人问同一句话：Please cancel the refund。\n"
            "越少见的词分量越重；cancel 和 refund 各有几个工具，先数一数。\n"
            "最后换一种做法：在八个工具里计数，列表里去掉 bob 看不见的。",
            "Eight tools. Alice may see all; four of them, all for refunds, are hidden from bob.\n"
            "Both ask the same: Please cancel the refund.\n"
            "A rare word weighs more. Count first: how many tools have cancel, how many refund?\n"
            "At the end another way: counted over all eight, hidden ones left out of bob's list.",
        ),
        (Ranking.search, Ranking.explain),
        (
            question(
                "alice",
                (
                    "只看两个人都看得见的工具：bob 的前三个可以和 alice 的不同吗？",
                    "Of the tools that both see: may bob's first three differ from alice's?",
                ),
                "bob_differs_from_alice",
                (
                    (False, "不可以：同样的工具，同样的问题", "no: the same tools, the same question"),
                    (True, "可以，而且必须可以", "yes, and they have to be free to"),
                ),
                (
                    "bob 的四个里 refund 少见，退款在先；alice 的八个里 refund 常见，取消在先。\n"
                    "如果两人的次序必须一样，bob 的次序就取决于他看不见的工具。",
                    "Of bob's four, refund is the rare word and comes first; of alice's eight it is the common one.\n"
                    "Were the order the same for both, bob's would hang on tools that he may not see.",
                ),
                at(_C10, _FILTER, "C10-035"),
                Ranking.search,
                "test_ranking.WhatIsHidden.test_an_answer_is_that_of_a_catalog_without_the_hidden_tools",
                also=("first_three_of_what_both_see", "cards.3.card", "cards.3.score"),
            ),
            question(
                "shared",
                (
                    "在八个工具里计数，列表里去掉四个。得到的和只有四个工具的目录一样吗？",
                    "Counted over eight, four left out of the list. Is it what a catalog of the four gives?",
                ),
                "shared_index_is_as_without_the_hidden",
                (
                    (True, "一样：看不见的都去掉了", "yes: whatever is hidden was left out"),
                    (False, "不一样", "no"),
                ),
                (
                    "去掉的是卡片，不是它们的影响：五个退款工具让 refund 变得常见，分数和次序都变了。\n"
                    "要先过滤再计数，只在列表之前过滤还不够。",
                    "The cards are gone, their influence is not: five tools for refunds made the word a common one.\n"
                    "The filter has to come before the counting; before the list is too late.",
                ),
                at(_C10, _RELEVANT, "C10-051"),
                Ranking.search,
                "test_ranking.WhatIsHidden.test_a_shared_index_changes_answers",
                also=("bob_is_as_without_the_hidden", "cards.9.card", "cards.9.score"),
            ),
            question(
                "elsewhere",
                ("问巴黎的天气，得到几张卡片？", "How many cards for the weather in Paris?"),
                "elsewhere",
                (
                    (3, "3 张：最接近的三个", "three: the nearest ones"),
                    (1, "1 张：总要给一个", "one: there has to be something"),
                    (0, "0 张", "none"),
                ),
                (
                    "没有一个词对得上，就没有候选；塞给模型一个，它多半就会用。\n"
                    "只碰上一个常见词的，分数在下限之下，也不算。",
                    "No word is shared, so there is no candidate: what is handed to a model is likely to be used.\n"
                    "One common word alone does not do either, its score being under the floor.",
                ),
                at(_C10, _FILTER, "C10-044"),
                Ranking.search,
                "test_ranking.Scores.test_a_question_about_something_else_finds_nothing",
                also=("tie",),
            ),
        ),
        (
            '_QUESTION: Final = "Please cancel the refund"',
            '_QUESTION: Final = "Please cancel the order"',
            "改问订单：谁的回答会变，共用的索引还泄漏吗？",
            "Ask about the order instead: whose answer changes, and does the shared index still leak?",
        ),
    ),
    area(
        "serving",
        ("给 MCP 客户端的门", "the door for MCP clients"),
        (
            "章节的 300 个工具，放到一扇 MCP 的门后；alice 可以用 299 个，bob 只有两个。\n"
            "客户端先要列表，再找，再加载，再调用；每一步都数字节。\n"
            "alice 还交了一份作业，得到一个任务句柄；bob 也拿到了它。\n"
            "最后，客户端和它的服务器都不在了，作业还没有做。",
            "The chapter's 300 tools behind a door for MCP. Alice may use 299 of them, bob two.\n"
            "A client asks for the list, then finds, loads and calls; the bytes of each step are counted.\n"
            "Alice also hands in a job and gets the handle of a task, which comes into bob's hands.\n"
            "At the end the client and its server are gone, and the job is not done yet.",
        ),
        (Offer.page, Offer.call, Jobs.cancel),
        (
            question(
                "listed",
                ("alice 的客户端列出几个工具？", "How many tools is alice's client listed?"),
                "listed_of_299",
                (
                    (299, "299 个：她可以用的全部", "299: all that she may use"),
                    (30, "30 个：第一页", "30: the first page"),
                    (3, "3 个", "three"),
                ),
                (
                    "列出的是三个入口：查找、加载、调用。列表的字节不随工具的数目增长，\n"
                    "整次交换，连查找和加载在内，也比全部列出小得多。bob 只有两个工具，就直接列出。",
                    "The three ways in: find, load, call. The bytes of the list do not grow with the tools, and the\n"
                    "whole exchange, find and load included, is far smaller than the list of all.",
                ),
                at(_C10, ("预算约束完整定义，不截断合同", "A budget limits whole definitions"), "C10-069", "C10-070"),
                Offer.page,
                "test_serving.Offers.test_a_client_of_300_tools_sees_three",
                also=("all_listed_bytes", "exchange_bytes", "lists.1.tools listed"),
            ),
            question(
                "cancel",
                (
                    "bob 拿着 alice 的句柄请求取消。得到什么？",
                    "Bob asks for a cancel with alice's handle. What does he get?",
                ),
                "bobs_cancel",
                (
                    ("acknowledged", "确认：有句柄就够了", "acknowledged: whoever has the handle may"),
                    (-32602, "-32602，没有这个任务", "-32602, there is no such task"),
                    (-32021, "-32021，客户端缺少能力", "-32021, his client lacks a capability"),
                ),
                (
                    "句柄是名字，不是许可：每次都重新核对身份。\n"
                    "别人的任务和不存在的任务看起来一样，否则句柄会说出它存在。",
                    "A handle is a name and no permission: the identity is looked at each time.\n"
                    "Somebody else's task looks like none, or the answer would say that it exists.",
                ),
                at(
                    _C10,
                    ("状态、进度和结果，不要全塞回模型", "State, progress and result need not all go to the model"),
                    "C10-247",
                ),
                Jobs.cancel,
                "test_serving.TasksOfJobs.test_what_is_not_yours_looks_like_what_is_not_there",
                also=("cancels.1.tasks/cancel", "cancels.2.the task then"),
            ),
            question(
                "gone",
                (
                    "客户端和它的服务器都不在了。五十分钟后，另一个客户端用句柄去问。任务怎样？",
                    "Client and server are gone. Fifty minutes later another client asks with the handle. And?",
                ),
                "after_the_client_left",
                (
                    ("cancelled", "cancelled：没有人等它了", "cancelled: nobody waits for it"),
                    ("completed", "completed", "completed"),
                    ("failed", "failed：做它的进程也不在了", "failed: the process that did it is gone as well"),
                ),
                (
                    "作业属于文件，不属于连接；等待的人走了，只是不再等。\n"
                    "别的 worker 领取并做完，写下来的句柄仍然有效：密钥和文件放在一起。",
                    "A job belongs to the file and to no connection; who leaves has only stopped waiting.\n"
                    "Another worker takes it and does it, and the handle still holds: its secret lies with the file.",
                ),
                at(_C10, ("三只钟：我愿意等多久，这次能跑多久，整件事还剩多久", "Three clocks"), "C10-193"),
                Jobs.get,
                "test_serving.Processes.test_a_client_killed_in_the_middle_of_a_job_finds_it_again",
            ),
        ),
        (
            "_DIRECT: Final = 30",
            "_DIRECT: Final = 300",
            "直接列出的上限提高到三百：列表有多少字节，还找得到查找的入口吗？",
            "Up to three hundred are listed: how many bytes is the list, and is there still a way to search?",
        ),
    ),
)

AREAS: Final[Mapping[str, Area]] = {one.name: one for one in _ALL}
"""The areas of the tool layer's groups, by the name of the group."""
