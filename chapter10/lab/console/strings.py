"""What a reader is asked and told, in Chinese and in English, and which of the two it is.

A `Text` is one sentence in both languages with the same `{placeholders}`. `TABLE` holds the sentences of
the programs by id; the questions and exercises carry their texts in their own data modules, as `Text`s too.

The language is `--lang`, else `CHAPTER10_LANG`, else Chinese if the locale is Chinese and the output can
carry it, else English. Names, keys, codes and file names are never translated.

What it does not do: no plural forms, no third language, no catalogue files.
Source: claims C10-277, C10-313.
"""

from __future__ import annotations

import argparse
import locale
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

__all__ = ["LANGUAGES", "TABLE", "VARIABLE", "Text", "asked_language", "choose_language", "parser_in", "say"]

LANGUAGES: Final = ("zh", "en")
VARIABLE: Final = "CHAPTER10_LANG"
"""The environment variable that chooses the language; any other value than `LANGUAGES` is ignored."""

_PROBE: Final = "预测"


class Text(NamedTuple):
    """One sentence in both languages, with the same placeholders."""

    zh: str
    en: str

    def in_language(self, language: str, **values: object) -> str:
        """Return the sentence in `language` (English unless it is `zh`) with its placeholders filled in."""
        return (self.zh if language == "zh" else self.en).format(**values)


def choose_language(
    wanted: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    locale_name: str | None = None,
    encoding: str | None = None,
) -> str:
    """Return `zh` or `en` by the rule of this module.

    `wanted`: what `--lang` says. The others are those of this process unless they are given.
    """
    variables = os.environ if environment is None else environment
    for choice in (wanted, variables.get(VARIABLE)):
        if choice in LANGUAGES:
            return choice
    if locale_name is None:
        named = (variables.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
        locale_name = next(filter(None, named), None) or locale.getlocale()[0] or ""
    is_chinese = locale_name.casefold().startswith(("zh", "chinese"))
    return "zh" if is_chinese and _can_carry(encoding or sys.stdout.encoding) else "en"


def _can_carry(encoding: str | None) -> bool:
    try:
        _PROBE.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def parser_in(prog: str, name: str, arguments: Sequence[str] | None) -> tuple[argparse.ArgumentParser, str]:
    """Return a parser whose help is in the reader's language, with `--lang`, and that language.

    `name`: of the command in the table, where `name.help` says what it is for. `arguments`: those of the process if
    None.
    """
    language = asked_language(prog, arguments)
    parser = argparse.ArgumentParser(
        prog=prog, description=say(f"{name}.help", language), allow_abbrev=False, add_help=False
    )
    parser.add_argument("-h", "--help", action="help", help=say("help.help", language))
    parser.add_argument("--lang", choices=LANGUAGES, help=say("help.lang", language))
    return parser, language


def asked_language(prog: str, arguments: Sequence[str] | None) -> str:
    """Return the language that a command is asked for, before it parses its arguments: its help needs it."""
    early = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False, exit_on_error=False)
    early.add_argument("--lang")
    try:
        wanted = early.parse_known_args(arguments)[0].lang
    except argparse.ArgumentError:  # the parser itself says what is wrong
        wanted = None
    return choose_language(wanted)


def say(name: str, language: str, **values: object) -> str:
    """Return the sentence `name` of the table. Raises `KeyError` for a name or a value that is missing."""
    return TABLE[name].in_language(language, **values)


TABLE: Final[Mapping[str, Text]] = {
    # Help
    "help.help": Text("显示这份说明", "show this help and leave"),
    "help.lang": Text("对人说话用的语言", "the language of what is said to a person"),
    "help.write": Text("重新写出 {page}", "write {page} anew"),
    "help.check": Text("把 {page} 与一次新的运行相比较", "compare {page} with a new run"),
    "program.help": Text("列出全部命令，或执行其中一个。", "Print the commands, or run one of them."),
    # Every history
    "explore.help": Text("走遍一个小世界的每一段历史。", "Every history of a small world."),
    "explore.jobs": Text("作业数，1 到 3（默认 1）", "jobs, 1 to 3 (default 1)"),
    "explore.workers": Text("worker 数，1 到 3（默认 2）", "workers, 1 to 3 (default 2)"),
    "explore.until": Text("时钟的最后时刻（默认 5）", "the last moment of the clock (default 5)"),
    "explore.attempts": Text("每份作业的 max_attempts（默认 2）", "max_attempts of each job (default 2)"),
    "explore.chapter": Text("用章节的作业库，而不是 living store", "the chapter's store instead of the living one"),
    "explore.guards": Text("按名字列出防护", "list the guards by name"),
    "explore.without": Text("拿掉这道防护，看什么会坏", "take this guard out and show what breaks"),
    "explore.unknown": Text(
        "没有叫 {guard} 的防护；--guards 列出全部", "there is no guard {guard}; --guards lists them"
    ),
    "explore.seen_so_far": Text(
        "... {states} 个状态，{transitions} 次转移，深度 {depth}",
        "... {states} states, {transitions} transitions, depth {depth}",
    ),
    "explore.world": Text(
        "世界：{jobs} 份作业，{workers} 个 worker，时钟 0 到 {until}，每份最多 {attempts} 次尝试",
        "world: {jobs} jobs, {workers} workers, clock 0 to {until}, {attempts} attempts",
    ),
    "explore.seen": Text(
        "状态 {states}，转移 {transitions}，深度 {depth}", "states {states}, transitions {transitions}, depth {depth}"
    ),
    "explore.store": Text(
        "库的内容 {contents} 种，真实调用 {calls} 次，{seconds} 秒",
        "store contents {contents}, calls run {calls}, {seconds} s",
    ),
    "explore.stopped": Text(
        "停下了：看过的都成立，其余没有看", "stopped: what was seen held, the rest was not looked at"
    ),
    "explore.held": Text("每一步上，每个承诺都成立：", "every promise held on every step:"),
    "explore.less": Text("没有 {guard}：{sentence}（{claims}）", "without {guard}: {sentence} ({claims})"),
    "explore.nothing": Text("{states} 个状态里什么都没有坏", "nothing broke in {states} states"),
    "explore.breaks": Text("破坏 {number}：{sentence}", "breaks {number}: {sentence}"),
    "explore.here": Text("这里：{wrong}", "here: {wrong}"),
    # Processes
    "stops.help": Text(
        "用一行取消停下四个真实的进程；不够的，再加上各自需要的手段。",
        "Stop four real processes with one cancel row and as much more as each of them needs.",
    ),
    "stops.process": Text("进程", "process"),
    "stops.stopped_by": Text("怎样停下", "stopped by"),
    "stops.row_before": Text("当时的行", "row before"),
    "stops.row_at_the_end": Text("最后的行", "row at the end"),
    "stops.fine": Text(
        "[OK] 每个都停在预期的一步，每一行都是 cancelled",
        "[OK] each by the expected step, and every row is cancelled",
    ),
    "stops.wrong": Text("[X] 与预期不符", "[X] not as expected"),
    "chaos.help": Text(
        "作业不断到来时，杀死、冻结、恢复 worker；然后检查剩下的文件。",
        "Kill, stop and continue workers while jobs rain in; then examine what is left.",
    ),
    "chaos.seconds": Text("持续多少秒（默认 10）", "how long the chaos lasts (default 10)"),
    "chaos.workers": Text("worker 进程数（默认 3）", "worker processes (default 3)"),
    "chaos.seed": Text("对谁做什么（默认 1）", "what is done to whom (default 1)"),
    "chaos.json": Text("打印 JSON", "print JSON"),
    "chaos.bounds": Text(
        "worker 数为 1 到 {workers}，最长 {seconds} 秒", "from 1 to {workers} workers, and up to {seconds} seconds"
    ),
    "chaos.fine": Text(
        "[OK] 在剩下的文件上，作业库的每个承诺都成立",
        "[OK] every promise of the store holds on the file that is left",
    ),
    "terminals.help": Text(
        "杀死一个 worker，把另一个冻结到租约之后，看每份作业都只结束一次。",
        "Kill one worker, freeze another past its lease, and see every job end once.",
    ),
    "terminals.by_hand_help": Text("打印在两个终端里要输入什么", "print what to type in two terminals"),
    "terminals.cannot": Text(
        "这个系统不能暂停和恢复进程；请看 --by-hand",
        "this system cannot stop and continue a process; see --by-hand",
    ),
    "terminals.accepted": Text("接受了 {exports} 份导出", "{exports} exports are accepted"),
    "terminals.killed": Text(
        "terminal-1 在作业 {job} 的第 {attempt} 次尝试中被杀（kill -9）",
        "terminal-1 was killed (kill -9) in the middle of job {job}, attempt {attempt}",
    ),
    "terminals.frozen": Text(
        "terminal-2 被冻结（SIGSTOP），手里是作业 {job} 第 {attempt} 次尝试的报表",
        "terminal-2 was frozen (SIGSTOP) with the report of job {job}, attempt {attempt}, in its hands",
    ),
    "terminals.taken": Text(
        "它的租约只有 {lease} 秒；冻结 {seconds} 秒之后，作业 {job} 已由别的 worker 领走",
        "its lease is of {lease} s; {seconds} s after the freeze job {job} was another worker's",
    ),
    "terminals.refused": Text(
        "terminal-2 恢复运行（SIGCONT），来交付，被拒绝",
        "terminal-2 went on (SIGCONT), delivered, and was refused",
    ),
    "terminals.left": Text(
        "请 {terminal} 离开（SIGTERM）：退出码 {code}", "{terminal} was asked to leave (SIGTERM): exit code {code}"
    ),
    "terminals.ended": Text(
        "{jobs} 份作业结束，共 {attempts} 次尝试；被拒绝的迟到交付：{late}",
        "{jobs} jobs ended with {attempts} attempts; late deliveries refused: {late}",
    ),
    "terminals.log_killed": Text(
        "worker 被杀的那份作业，来自事件日志（从接受起的秒数）：",
        "The job whose worker was killed, from the event log (seconds since it was accepted):",
    ),
    "terminals.log_frozen": Text(
        "worker 被冻结的那份作业，来自事件日志（从接受起的秒数）：",
        "The job whose worker was frozen, from the event log (seconds since it was accepted):",
    ),
    "terminals.fine": Text(
        "[OK] 每份作业都只结束一次，迟到的被拒绝", "[OK] every job ended once, and what was late was refused"
    ),
    # Predict, then run
    "predict.code": Text("将要运行的代码：", "The code that will run:"),
    "predict.choose": Text("你的猜测（{letters}；直接回车跳过）：", "Your guess ({letters}; an empty line skips it):"),
    "predict.unknown": Text("请输入其中一个字母：{letters}。", "Please type one of these letters: {letters}."),
    "predict.silent": Text(
        "标准输入不是终端，不等待输入：问题照常列出，猜测记作 -。请用 --answers b,a 作答。",
        "Standard input is no terminal, so nothing is read: the guesses are -. Answer with --answers b,a.",
    ),
    "predict.run": Text("现在运行。结果：", "Now it runs. The result:"),
    "predict.timeline": Text("按先后顺序，发生了什么：", "What happened, in order:"),
    "predict.more": Text(
        "另有 {count} 幅图没有列出，见 reports/companion-evidence.md。",
        "Pictures that are left out: {count}. They are in reports/companion-evidence.md.",
    ),
    "predict.compare": Text("对照：", "Compare:"),
    "predict.guess": Text("你的猜测", "your guess"),
    "predict.result": Text("运行结果", "the result"),
    "predict.same": Text("相同", "same"),
    "predict.different": Text("不同", "different"),
    "predict.no_guess": Text("没有猜", "no guess"),
    "predict.no_option": Text("不在选项之中", "none of the options"),
    "predict.section": Text("章节", "section"),
    "predict.function": Text("代码", "code"),
    "predict.test": Text("测试", "test"),
    "predict.reason": Text("原因", "reason"),
    "predict.change": Text("现在改一处，先猜再运行：", "Now change one thing, guess, and run it:"),
    "predict.guessed": Text("上次猜了 {letters}", "guessed last: {letters}"),
    "predict.saved": Text("你的猜测已保存到 {path}", "The guesses are in {path}"),
    "predict.not_saved": Text(
        "[!] 猜测没有保存：{reason}。不影响运行。",
        "[!] The guesses were not saved: {reason}. The run is not affected.",
    ),
    # Doctor
    "doctor.fine": Text("[OK] 这台机器什么都不缺。", "[OK] This machine lacks nothing."),
    "doctor.lacks": Text("[X] 缺少 {count} 项条件，见上。", "[X] {count} conditions are not met, see above."),
    "doctor.python": Text("需要 3.11 或更高版本", "3.11 or later is needed"),
    "doctor.sqlite": Text("需要 SQLite 3.34 或更高版本", "SQLite 3.34 or later is needed"),
    "doctor.sqlite_reset": Text(
        "可以运行；但这个版本的 WAL 模式有一个极少见的缺陷（两个连接同时写入并做检查点），"
        "从 3.51.3 起修复，3.50.7 与 3.44.6 也已修复。真实数据请用修复后的版本",
        "it will do, but WAL of this version has a very rare bug (two connections that write and checkpoint at once), "
        "fixed from 3.51.3 on and in 3.50.7 and 3.44.6; for real data take a fixed version",
    ),
    "doctor.encoding": Text(
        "终端不能显示中文：中文会以 \\u 转义出现，数值不受影响；--lang en 用英文",
        "the console cannot show Chinese: it comes out as \\u escapes, no value changes; use --lang en",
    ),
    "doctor.folder": Text("请在含有 chapter10 的文件夹里执行", "run from the folder that contains chapter10"),
    "doctor.write": Text("不能在这里建立 my_work：{reason}", "my_work cannot be made here: {reason}"),
    "doctor.database": Text("不能在临时文件夹里建数据库：{reason}", "no database in the temporary folder: {reason}"),
    # A reader's file
    "file.utf_16": Text(
        "文件存成了 UTF-16。请在编辑器里另存为 UTF-8。", "The file is saved as UTF-16. Save it as UTF-8."
    ),
    "file.zero_bytes": Text("文件里有零字节。请另存为 UTF-8。", "The file holds zero bytes. Save it as UTF-8."),
    "file.not_utf_8": Text(
        "文件不是 UTF-8（可能存成了 GBK）。请在编辑器里另存为 UTF-8。",
        "The file is not UTF-8 (perhaps GBK). Save it as UTF-8.",
    ),
    "file.unknown_encoding": Text(
        "文件开头声明了 Python 不认识的编码。请删去那一行，存为 UTF-8。",
        "The first lines declare an encoding that Python lacks. Delete that line and save as UTF-8.",
    ),
    "file.too_long": Text("文件超过一百万字节。", "The file is longer than a million bytes."),
    # Exercises
    "exercises.head": Text("十四个练习；你的文件在 {folder}", "Fourteen exercises; your files are in {folder}"),
    "exercises.concept": Text("概念", "concept"),
    "exercises.code": Text("动手", "code"),
    "exercises.design": Text("设计", "design"),
    "exercises.not_started": Text("未开始", "not started"),
    "exercises.passed": Text("通过", "passed"),
    "exercises.failed": Text("未通过：{check}", "fails at {check}"),
    "exercises.written": Text("写了 {filled}/{total} 个标题", "{filled} of {total} headings written"),
    "exercises.commands": Text(
        "next 下一个   watch 存盘就检查   start N 开始   check N 检查   hint N 提示   answer N 答案   reset N 重来",
        "next   watch   start N   check N   hint N   answer N   reset N",
    ),
    "exercises.started": Text("[OK] 你的文件：{path}", "[OK] your file: {path}"),
    "exercises.is_there": Text(
        "[OK] 文件已经存在，原样保留：{path}", "[OK] your file is there already and was left as it is: {path}"
    ),
    "exercises.reset": Text("[OK] 重新开始：{path}", "[OK] back at the start: {path}"),
    "exercises.kept": Text("原来的文件已保存为：{path}", "what you had is in: {path}"),
    "exercises.next": Text("下一步：", "Next:"),
    "exercises.all_done": Text("[OK] 十四个练习都做完了。", "[OK] all fourteen exercises are done."),
    "exercises.so_far": Text("已完成 {done}/{total}", "{done} of {total} done"),
    "progress.help": Text("练习、猜测、防护：走到了哪里。", "Exercises, guesses, guards: how far you are."),
    "progress.head": Text("你的文件在 {folder}", "Your files are in {folder}"),
    "progress.exercises": Text("练习", "exercises"),
    "progress.guesses": Text("猜测", "guesses"),
    "progress.guards": Text("拿掉过的防护", "guards taken out"),
    "progress.guessed": Text("对 {right}，错 {wrong}，还没猜 {left}", "{right} right, {wrong} wrong, {left} not yet"),
    "progress.all": Text("全都做过了", "all of them"),
    "exercises.edit": Text("用编辑器写完这个文件，然后：", "Finish that file in an editor, then:"),
    "exercises.all_pass": Text("[OK] 练习 {number} 通过。", "[OK] exercise {number} passes."),
    "exercises.all_written": Text(
        "[OK] 每个标题下都写了。请自己对照答案；程序不给文字打分。",
        "[OK] every heading is written. Compare with the answer yourself; no program judges prose.",
    ),
    "exercises.to_write": Text("[X] 还有 {count} 个标题没有写。", "[X] {count} headings are still to write."),
    "exercises.nothing_yet": Text("[ ] 练习 {number} 还没有开始。", "[ ] exercise {number} is not started."),
    "exercises.untouched": Text(
        "文件已经建好，但还没有动笔：{path}", "the file is there, with nothing written yet: {path}"
    ),
    "exercises.called": Text("做了", "called"),
    "exercises.got": Text("得到", "got"),
    "exercises.expected": Text("应当", "expected"),
    "exercises.why": Text("原因", "why"),
    "exercises.claim": Text("依据", "claim"),
    "exercises.lanes": Text("会出错的次序中最短的一个：", "The shortest order of this kind:"),
    "exercises.printed": Text("你的文件打印了：", "Your file printed:"),
    "exercises.timeout": Text(
        "{seconds} 秒后还没有结束，已被终止。多半是死循环，或者在等永远不会来的东西。",
        "It had not ended after {seconds} seconds and was stopped: probably a loop without an end, or a wait in vain.",
    ),
    "exercises.ended": Text(
        "你的代码结束了整个进程（退出码 {code}），检查没有做完。",
        "Your code ended the whole process (exit code {code}) before the check was done.",
    ),
    "exercises.broken": Text("[X] 检查没能进行：{reason}", "[X] the check could not be made: {reason}"),
    "exercises.doctor": Text("请运行 python -m chapter10 doctor", "Run python -m chapter10 doctor"),
    "exercises.hint": Text("提示 {step}/{steps}：{text}", "Hint {step} of {steps}: {text}"),
    "exercises.hints_left": Text("还剩 {left} 个提示。", "Hints left: {left}."),
    "exercises.no_hints_left": Text("这是最后一个提示。", "That was the last hint."),
    "exercises.no_answer_yet": Text(
        "先自己做：通过检查（或写下文字）之后再看答案。一定要现在看：",
        "Try first: the answer opens once the check passes (or something is written). To see it now all the same:",
    ),
}
"""The sentences of the programs by id: what a reader is asked and told."""
