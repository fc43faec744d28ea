"""One entry for every command: `python -m chapter10`, or `chapter10` once it is installed.

Without a word it prints one line about this machine and one line for each command that is at hand, in the
order in which a newcomer meets them and in the reader's language. With a word it runs that command; what
follows is the command's own. A command whose file is missing is not offered: an installed copy has no tests.

Exit codes, as everywhere in this package: 0 fine, 1 wrong, 2 usage, 3 the machine lacks something.
Source: the chapter's section on its five experiments (claims C10-009, C10-277, C10-314).
"""

from __future__ import annotations

import importlib
import inspect
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from chapter10.lab.console.strings import Text, parser_in
from chapter10.lab.console.textio import EXIT_FINE, main_guard

__all__ = ["COMMANDS", "Command", "available", "command", "main"]


class Command(NamedTuple):
    """One command: what to type, the module whose `main(arguments)` it is, what it is for in both languages."""

    name: str
    module: str
    zh: str
    en: str


COMMANDS: Final = (
    Command("doctor", "lab.reader.doctor", "这台机器行不行？", "is this machine fit?"),
    Command("quickstart", "quickstart", "一份作业，从提交凭证到结果", "one job, from its receipt to its result"),
    Command("experiments", "experiments", "章节的五组实验", "the five groups of the chapter"),
    Command("predict", "lab.reader.guess", "先猜，再运行，再对照", "guess first, then run, then compare"),
    Command("exercises", "lab.exercises.__main__", "十四个练习，有检查", "fourteen exercises, checked"),
    Command("progress", "lab.exercises.progress", "走到了哪里，下一步是什么", "how far you are, and what comes next"),
    Command("questions", "lab.guessing.questions", "三道思考题", "three questions on tool orchestration"),
    Command("companions", "lab.reader.companion_experiments", "伴随系统的各组", "the groups of the companions"),
    Command("jobs", "companions.operating.jobs_command", "自己的 CSV，作业来导出", "exports of your own CSV, as jobs"),
    Command("serve", "companions.serving.serve", "任何 MCP 客户端都能用的门", "tools and jobs for any MCP client"),
    Command("two_terminals", "lab.processes.two_terminals", "一个被杀，一个被冻结", "one worker killed, one frozen"),
    Command("stops", "lab.processes.stops", "一次取消，四个进程怎样停下", "one cancel, and what stops each of four"),
    Command("explore", "lab.histories.explore", "全部历史；拿掉一道防护", "every short history; take a guard out"),
    Command("simulate", "lab.histories.simulate", "长时间的随机运行", "long random lives against a plain model"),
    Command("chaos", "lab.processes.chaos", "进程被杀、被冻结", "processes killed and frozen while jobs rain in"),
    Command("fuzz", "lab.proof.fuzz", "大量的坏输入", "bad input at scale"),
    Command("claims", "lab.proof.claim_map", "书里的每句话由谁证明", "where each sentence of the book is proved"),
    Command("proofs", "lab.proof.proofs", "点名断言的测试真能证明它吗？", "do the tests that name a claim prove it?"),
    Command("mutants", "lab.proof.mutants", "代码写错了，测试会发现吗？", "does a test notice a fault in the code?"),
    Command("benchmark", "lab.benchmarks.benchmark", "速度与规模，并排测量", "speed and scale, side by side"),
    Command("site", "lab.reader.site", "五组实验的一页网页", "the five groups on one page for a browser"),
    Command("scheduler", "lab.scheduler.page", "你来调度：一份作业的一页", "you are the scheduler: a page that plays"),
)
"""Every command, in reading order; modules are those of `chapter10`."""

_HEAD: Final = Text("先猜，再运行：", "Guess first, then run:")
_FOOT: Final = Text(
    "请在含有 chapter10 的文件夹里执行；代码从哪里读起，见 docs/map.md。",
    "Run them from the folder that contains chapter10; docs/map.md says where to begin in the code.",
)


def available(package: Path) -> list[Command]:
    """Return the commands whose file is in the folder `package`, in the order of the table."""
    return [known for known in COMMANDS if package.joinpath(*known.module.split(".")).with_suffix(".py").is_file()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list and return 0, or run the command that is named and return its code.

    `arguments`: those of the process if None. Raises `SystemExit` with code 2 for a word that is no command.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    commands = available(Path(__file__).resolve().parent)
    for known in commands:
        if given[:1] == [known.name]:
            run = importlib.import_module(f"chapter10.{known.module}").main
            return int(run(given[1:]) if inspect.signature(run).parameters else run())
    parser, language = parser_in("python -m chapter10", "program", given)
    parser.usage = "%(prog)s [-h] [--lang {zh,en}] | COMMAND [OPTION ...]"
    options, rest = parser.parse_known_args(given)
    if options.lang and rest[:1] and rest[0] in {known.name for known in commands}:
        parser.error(f"say {rest[0]} --lang {options.lang}: the command comes first")
    if rest:
        parser.error(f"{rest[0]} is none of {', '.join(known.name for known in commands)}")
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"chapter10, Python {python}, SQLite {sqlite3.sqlite_version}. {_HEAD.in_language(language)}\n")
    for known in commands:
        print(f"  python -m chapter10 {known.name:<15}{known.zh if language == 'zh' else known.en}")
    print(f"\n{_FOOT.in_language(language)}")
    return EXIT_FINE


def command() -> NoReturn:
    """Be the installed `chapter10` command: `main`, with the streams and the ends of a program."""
    main_guard(main)


if __name__ == "__main__":
    command()
