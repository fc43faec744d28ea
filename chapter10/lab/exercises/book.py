"""The chapter's fourteen exercises: what kind each is, its three hints, and where its files are.

Conceptual (1 to 5) and design exercises (12 to 14) are Markdown files with headings to write under; coding
exercises (6 to 11) are Python files that checks look at. Hints go in steps: where to look, the rule, the
shape of what is to be written; never the code. Stubs, answers and known-wrong files lie in folders beside
this module, so that a test can hold all of them against the checks, whatever a reader does.

Source: the chapter's exercises (claims C10-299 to C10-313).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chapter10.lab.console.strings import Text

__all__ = ["CODE", "CONCEPT", "DESIGN", "EXERCISES", "FOLDER", "STEPS", "Exercise"]

CONCEPT: Final = "concept"
CODE: Final = "code"
DESIGN: Final = "design"
STEPS: Final = 3
"""Hints of each exercise."""

FOLDER: Final = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise. `number`: as in the chapter. `claim`: the row that says what a good answer contains."""

    number: int
    kind: str
    title: Text
    claim: str
    hints: tuple[Text, Text, Text]

    @property
    def filename(self) -> str:
        """The name of the reader's file."""
        return f"ex{self.number:02}.{'py' if self.kind == CODE else 'md'}"

    @property
    def stub(self) -> Path:
        """The pristine file that a reader starts from."""
        return FOLDER / "stubs" / self.filename

    @property
    def answer(self) -> Path:
        """One answer, as plain text."""
        return FOLDER / "answers" / self.filename

    @property
    def wrong(self) -> list[Path]:
        """The known-wrong files, by name; the first line of each names the check at which it fails."""
        return sorted((FOLDER / "wrong").glob(f"ex{self.number:02}_*.py"))


_ALL: Final = (
    Exercise(
        1,
        CONCEPT,
        Text("三百、二百九十九、二：三个数各是什么", "300, 299 and 2: what each number says"),
        "C10-299",
        (
            Text(
                "运行 python -m chapter10.experiments --group catalog --predict，看前三个数。",
                "Run python -m chapter10.experiments --group catalog --predict and look at the first three numbers.",
            ),
            Text(
                "每个数回答不同的问题：系统有什么，这个身份能找到什么，这次请求带了什么。",
                "Each number answers another question: what exists, what this identity may find, what this "
                "request holds.",
            ),
            Text(
                "对每个数写一句：它由谁决定，什么时候会变；再写权限在哪一刻检查。",
                "One sentence for each: who decides it, when it changes; then, at which moment permission is checked.",
            ),
        ),
    ),
    Exercise(
        2,
        CONCEPT,
        Text("三个候选怎样处理；平分为什么不是答案", "How three candidates are treated; why a tie is no answer"),
        "C10-300",
        (
            Text(
                "读 chapter10/catalog.py 里 search 的文档，再运行 boundaries 这一组。",
                "Read the docstring of search in chapter10/catalog.py, then run the group boundaries.",
            ),
            Text(
                "先按权限过滤，再数查询词命中了几个关键词；没有权限的不参与计分。",
                "Permission filters first; then the query words among the keywords are counted.",
            ),
            Text(
                "列出三个工具：是否可见、得几分；再说按名字排序是为了什么，平分时下一步做什么。",
                "List the three tools: visible, which score; then what the order by name is for, and what "
                "a tie asks for.",
            ),
        ),
    ),
    Exercise(
        3,
        CONCEPT,
        Text("三个字节数合计多少；为什么不是 Token", "Three byte counts together; why they are no tokens"),
        "C10-301",
        (
            Text(
                "catalog 这一组打印了四个字节数；合计是其中三个。",
                "The group catalog prints four byte counts; the total is of three of them.",
            ),
            Text(
                "字节由 UTF-8 编码决定；Token 由某个模型的分词器决定，外面还有请求的包装。",
                "Bytes are made by UTF-8; tokens by one model's tokenizer, with the wrapping of the "
                "request around them.",
            ),
            Text(
                "写出加法；再列出至少三样字节数里没有的东西。",
                "Write the sum; then name at least three things that the byte counts do not hold.",
            ),
        ),
    ),
    Exercise(
        4,
        CONCEPT,
        Text("三个 200 毫秒的读取：串行、上限二、上限三", "Three reads of 200 ms: one by one, limit 2, limit 3"),
        "C10-302",
        (
            Text(
                "在纸上画三条横线，每条长 200；上限就是同一时刻最多几条。",
                "Draw three bars of 200 on paper; the limit is how many may lie side by side.",
            ),
            Text(
                "一轮里同时等待的只算一次；轮数是三除以上限，向上取整。",
                "What waits side by side counts once; the number of rounds is three by the limit, rounded up.",
            ),
            Text(
                "给出三个时间；再说本章的报告里时延为什么是空值。",
                "Give three times; then why the latency in the chapter's report is null.",
            ),
        ),
    ),
    Exercise(
        5,
        CONCEPT,
        Text("作业号与提交键；为什么不能每次换新的随机键", "Job number and key; why not a fresh random key each time"),
        "C10-303",
        (
            Text(
                "运行 failures 这一组，看最前面两个字段；再读 JobStore.submit 的文档。",
                "Run the group failures and look at the first two fields; then read the docstring of JobStore.submit.",
            ),
            Text(
                "一个由系统在接受之后给出，一个由调用者在请求之前定下。",
                "One is given by the system after accepting, one is fixed by the caller before asking.",
            ),
            Text(
                "写：由谁生成、何时生成、认的是什么；再写响应丢失后换用新键会发生什么。",
                "Write who makes it, when, and what it identifies; then what a new key does after a lost answer.",
            ),
        ),
    ),
    Exercise(
        6,
        CODE,
        Text("增加“查询发票状态”的只读定义", "A read-only definition for the state of an invoice"),
        "C10-304",
        (
            Text(
                "chapter10/catalog.py：Tool 的字段，fixture_tools 里 orders.get 的写法，search 返回什么。",
                "chapter10/catalog.py: the fields of Tool, orders.get in fixture_tools, what search returns.",
            ),
            Text(
                "先过滤后计分：没有权限，结果里就不会有它的名字。定义里没有任何可以运行的东西。",
                "Filter first, then score: without the permission its name is not there. A definition "
                "holds nothing that runs.",
            ),
            Text(
                "每个测试：用一组权限搜索，取出结果里的 name，断言工具的名字在（或不在）其中。",
                "Each test: search with a set of grants, take the names of the hits, assert that yours is "
                "(or is not) among them.",
            ),
        ),
    ),
    Exercise(
        7,
        CODE,
        Text("预算恰好够与少一个字节", "Exactly enough budget, and one byte less"),
        "C10-305",
        (
            Text(
                "Catalog.load 的 budget_bytes，以及 byte_size；boundaries 这一组做的正是这件事。",
                "budget_bytes of Catalog.load, and byte_size; the group boundaries does just this.",
            ),
            Text(
                "整批或者没有：超出一个字节也要抛出 CatalogError，错误码说明原因。",
                "All or nothing: one byte over raises CatalogError, and its code says why.",
            ),
            Text(
                "先加载一次，量出它的字节数；用这个数断言通过；用它减一断言抛出异常，没有异常要让测试失败。",
                "Load once and measure; assert that this size passes; assert that one less raises, and "
                "fail if nothing is raised.",
            ),
        ),
    ),
    Exercise(
        8,
        CODE,
        Text("五个调用、上限二、一个失败、外层取消", "Five calls, limit 2, one failure, a cancel from outside"),
        "C10-306",
        (
            Text(
                "章节“用固定数量的 worker，而不是无限创建任务”；asyncio.TaskGroup 的文档。",
                "The section on a fixed number of workers; the documentation of asyncio.TaskGroup.",
            ),
            Text(
                "worker 数等于上限，共用一个迭代器；普通异常写进自己的条目；CancelledError 不是 Exception，放行。",
                "As many workers as the limit share one iterator; an ordinary error goes into its entry; "
                "CancelledError passes.",
            ),
            Text(
                "一个迭代器；一个 async 的 worker，循环里 try/except Exception；TaskGroup 创建的 worker 数等于上限。",
                "One iterator; an async worker with try/except Exception in its loop; a TaskGroup that "
                "makes `limit` of them.",
            ),
        ),
    ),
    Exercise(
        9,
        CODE,
        Text("再加一条八月、一条七月的销售", "One more sale of August, one more of July"),
        "C10-307",
        (
            Text(
                "chapter10/experiments.py 里的 SALES 和 lifecycle_experiment。",
                "SALES and lifecycle_experiment in chapter10/experiments.py.",
            ),
            Text(
                "只有月份相等的记录属于这份报表；金额是整数的分。",
                "Only rows of exactly that month belong to the report; amounts are whole cents.",
            ),
            Text(
                "先按月份挑出金额，再计数、求和；不要改动传入的列表。",
                "Pick the amounts of the month, count them, add them up; leave the given list as it is.",
            ),
        ),
    ),
    Exercise(
        10,
        CODE,
        Text("租约到期的旧 worker，与被取代的旧 worker", "An old worker after its lease, and after another's claim"),
        "C10-308",
        (
            Text(
                "运行 python -m chapter10.experiments --group failures --predict，看作业 1 的时间线。",
                "Run python -m chapter10.experiments --group failures --predict and look at the lanes of job 1.",
            ),
            Text(
                "先看代次是不是最新的，再看租约是不是还在；到期那一刻已经不在了。两种拒绝的错误码不同。",
                "The attempt is looked at first, then the lease; at its end it is over. The two refusals "
                "have two codes.",
            ),
            Text(
                "提交、领取、（再领取、）交付；用 try/except/else 断言错误码，else 里让测试失败。",
                "Submit, claim, (claim again,) deliver; try/except/else around it: assert the code, fail in the else.",
            ),
        ),
    ),
    Exercise(
        11,
        CODE,
        Text("两个连接竞争同一份作业", "Two connections compete for one job"),
        "C10-309",
        (
            Text(
                "章节“把作业状态写在数据库里”；失败时看检查画出的那张两列的图。",
                "The section on job state in the database; when it fails, look at the two lanes that the check draws.",
            ),
            Text(
                "读和写之间不能有别人：要么条件和写入是同一条语句，要么先拿写锁再读。",
                "Nobody may come between read and write: either condition and write are one statement, or "
                "the lock comes first.",
            ),
            Text(
                "UPDATE ... WHERE 里写上“可领取”的条件，看 rowcount 是 0 还是 1；领到之后再读代次。",
                "UPDATE ... WHERE with the condition in it, then look at rowcount; read the attempt after "
                "you have the job.",
            ),
        ),
    ),
    Exercise(
        12,
        DESIGN,
        Text("先生成报表，再发送邮件", "First the report, then the mail"),
        "C10-310",
        (
            Text(
                "章节“一份回执为什么只能在明确的事务边界内成立”；chapter10/companions/effects/outbox.py 的开头。",
                "The section on the receipt and its transaction; the top of chapter10/companions/effects/outbox.py.",
            ),
            Text(
                "邮件不在本地事务里：发出之后、提交之前崩溃，本地什么都没有留下。",
                "The mail is outside the local transaction: a crash after sending and before the commit "
                "leaves no trace here.",
            ),
            Text(
                "一种方案让对方认得一个键，或能查询状态；另一种在不能确认时停下来等人。",
                "One plan gives the other side a key it knows, or a status to ask for; the other stops and "
                "waits for a person.",
            ),
        ),
    ),
    Exercise(
        13,
        DESIGN,
        Text("一页可恢复的任务进度界面", "A page of progress that can be resumed"),
        "C10-311",
        (
            Text(
                "chapter10/companions/operating/status.py，以及 JobStore 的 get、events、result、cancel。",
                "chapter10/companions/operating/status.py, and get, events, result and cancel of JobStore.",
            ),
            Text(
                "页面不拥有作业：关掉页面什么都不改变；三种情况对应三个不同的状态。",
                "The page does not own the job: closing it changes nothing; the three situations are three states.",
            ),
            Text(
                "五样东西各写一行：存在哪里，怎样查询，刷新之后从哪里接着读。",
                "One line for each of the five things: where it is kept, how it is asked for, where a reload goes on.",
            ),
        ),
    ),
    Exercise(
        14,
        DESIGN,
        Text("三百个工具、十个租户、持续的报表请求", "300 tools, 10 tenants, reports all the time"),
        "C10-312",
        (
            Text(
                "章节“走向生产之前，还缺什么”；catalog、concurrency、failures 三组实验。",
                "The section on what production still lacks; the groups catalog, concurrency and failures.",
            ),
            Text(
                "并发、速率、队列容量、租户公平是四个不同的控制；键的保留要长过客户端的重试。",
                "Concurrency, rate, queue capacity and fairness are four controls; keys are kept longer "
                "than clients retry.",
            ),
            Text(
                "四个选择，每个写数值和理由；六项以上指标，每项写“它变坏时，我先去看哪里”。",
                'Four choices, each with a number and a reason; six or more metrics, each with "when it is '
                'bad I look at ...".',
            ),
        ),
    ),
)

EXERCISES: Final[Mapping[int, Exercise]] = {exercise.number: exercise for exercise in _ALL}
"""The exercises by number."""
