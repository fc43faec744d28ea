"""What a reader is asked and told, in Chinese and in English, and which of the two it is.

A `Text` is one sentence in both languages with the same `{placeholders}`. `TABLE` holds the sentences of
the programs by id; the questions and exercises carry their texts in their own data modules, as `Text`s too.

The language is `--lang`, else `CHAPTER10_LANG`, else Chinese if the locale is Chinese and the output can
carry it, else English. Names, keys, codes and file names are never translated.

What it does not do: no plural forms, no third language, no catalogue files.
Source: claims C10-277, C10-313.
"""

from __future__ import annotations

import locale
import os
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["LANGUAGES", "TABLE", "VARIABLE", "Text", "choose_language", "say"]

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


def say(name: str, language: str, **values: object) -> str:
    """Return the sentence `name` of the table. Raises `KeyError` for a name or a value that is missing."""
    return TABLE[name].in_language(language, **values)


TABLE: Final[Mapping[str, Text]] = {
    # Predict, then run
    "predict.code": Text("将要运行的代码：", "The code that will run:"),
    "predict.choose": Text("你的猜测（{letters}；直接回车跳过）：", "Your guess ({letters}; an empty line skips it): "),
    "predict.unknown": Text("请输入其中一个字母：{letters}。", "Please type one of these letters: {letters}."),
    "predict.silent": Text(
        "这里没有可以输入的终端：问题照印，猜测记作 -。可以用 --answers b,a 作答。",
        "There is no terminal to type in: the questions are printed and the guesses are -. Answer with --answers b,a.",
    ),
    "predict.run": Text("现在运行。结果：", "Now it runs. The result:"),
    "predict.timeline": Text("发生了什么，按先后：", "What happened, in order:"),
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
    "predict.saved": Text("猜测存在 {path}", "The guesses are in {path}"),
    "predict.not_saved": Text(
        "[!] 猜测没有存下来：{reason}。不影响运行。",
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
}
"""The sentences of the programs by id: what a reader is asked and told."""
