"""How often a plain question finds its tool: four ways beside each other on questions that others wrote, and on ours.

    python -m chapter10.lab.benchmarks.recall            print the page
    python -m chapter10.lab.benchmarks.recall --write    write reports/ranking.md anew
    python -m chapter10.lab.benchmarks.recall --check    compare it with a new run

    recall at k   the share of a question's right tools that are among the first k, averaged over the questions
    MRR           one divided by the place of the first right tool (0 beyond ten), averaged
    chosen on     the first, third, fifth … question of a sample: weights, fillers and endings were tried on these
    reported on   the second, fourth, sixth …: nothing was chosen by them, and the tables show them unless they say more

The four ways
    the chapter's rule   how many words of the question are among the keywords, as `tool_list` makes these
    BM25                 with its usual constants (1.2, 0.75) over all texts of a tool as one, words as they stand
    FTS5                 the full-text index of the standard `sqlite3`, with Porter's endings; name 3, description 1,
                         arguments 0.5. For comparison only: nothing else here uses it, and where it is not built in
                         its table is neither written nor compared
    words                `companions.finding.ranking` as it comes

Every figure is exact and the same on any machine: no time is among them (`--area ranking` of the benchmark measures
those). Who wrote the questions and how they were taken stands in `samples/sources.md`.
Exit codes: 0 fine, 1 the page differs, 2 usage. Source: the chapter on what an
evaluation of search looks at (claims C10-052, C10-054, C10-056).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import nsmallest
from pathlib import Path
from typing import Final

from chapter10.catalog import Catalog, Tool
from chapter10.companions.finding.ranking import Ranking
from chapter10.companions.finding.tool_list import DEFAULT_PERMISSION, parse_tool_list, words_of
from chapter10.experiments import reports_folder
from chapter10.lab.console.textio import EXIT_FINE, main_guard
from chapter10.lab.evidence.files import differences, replace_together, say_differences

__all__ = [
    "KS",
    "METHODS",
    "REPORT",
    "SAMPLES",
    "SYNONYMS",
    "Finder",
    "Question",
    "Sample",
    "bm25",
    "chapter",
    "check_report",
    "full_text",
    "has_full_text",
    "leak",
    "main",
    "measured",
    "page",
    "read_sample",
    "words",
]

SAMPLES: Final = ("metatool", "bfcl-live", "seal-tools", "feishu-zh")
"""The samples, by the name of their file."""

KS: Final = (1, 3, 5, 10)
"""How many of the first cards are looked at."""

REPORT: Final = "ranking.md"

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "新建": ("创建",),
    "建": ("创建",),
    "加": ("添加", "新增", "创建"),
    "增加": ("添加", "新增", "创建"),
    "插入": ("创建",),
    "登记": ("创建",),
    "申请": ("创建",),
    "删": ("删除", "移除"),
    "取消": ("删除", "撤回"),
    "移出": ("移除", "删除"),
    "改": ("修改", "更新"),
    "换成": ("更新", "设置"),
    "看": ("获取", "查询"),
    "查": ("查询", "获取"),
    "列出": ("列表", "获取"),
    "都有": ("列表", "获取"),
    "谁": ("成员", "参与人", "用户"),
    "找": ("搜索", "查找"),
    "搜": ("搜索",),
    "叫": ("名称",),
    "名字": ("名称",),
    "约": ("预约", "预定"),
    "录": ("录制",),
    "分享": ("协作者", "权限"),
    "打开": ("开启", "获取"),
    "同事": ("用户", "成员", "员工"),
    "有空": ("忙闲",),
    "挪": ("移动",),
}
"""A table as a user may pass it: everyday Chinese verbs and the words that definitions have for them. It was written
from the half of the questions that things were chosen on."""

_FOLDER: Final = Path(__file__).resolve().parent / "samples"
_MOST: Final = KS[-1]
_GRANTS: Final = frozenset({DEFAULT_PERMISSION})
_HIDDEN: Final = "tools:hidden"
_FULL_TEXT_HEAD: Final = "## FTS5"

Finder = Callable[[str], list[str]]
"""Gives the names of at most ten tools for a question, best first."""


@dataclass(frozen=True, slots=True)
class Question:
    """A plain question, and the tools that answer it."""

    text: str
    right: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sample:
    """The tools of one source and questions to them."""

    name: str
    tools: tuple[Tool, ...]
    questions: tuple[Question, ...]

    @property
    def chosen(self) -> tuple[Question, ...]:
        """The half on which things were chosen."""
        return self.questions[::2]

    @property
    def reported(self) -> tuple[Question, ...]:
        """The half that says how good they are."""
        return self.questions[1::2]


def read_sample(name: str) -> Sample:
    """Return one of `SAMPLES`. Raises `OSError` where the files are missing, as in some installed copies."""
    document = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    entries = [
        {"name": tool, "description": text, "inputSchema": {"type": "object", "properties": _described(arguments)}}
        for tool, text, arguments in document["tools"]
    ]
    questions = tuple(Question(text, frozenset(right)) for text, *right in document["questions"])
    return Sample(name, parse_tool_list(entries).tools, questions)


def _described(arguments: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"description": text} for name, text in arguments.items()}


# The ways to find --------------------------------------------------------------------------------


def chapter(tools: Sequence[Tool]) -> Finder:
    """Count shared words, as `Catalog.search` does for `" ".join(words_of(question))`."""
    weights: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for tool in tools:
        for word in set(tool.keywords):
            weights[word][tool.name] = 1
    return _by_sum(weights)


def bm25(tools: Sequence[Tool]) -> Finder:
    """Rank by BM25 over all tools, the words of a tool being those of all its texts."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    lengths = {}
    for tool in tools:
        texts = [tool.name, tool.description, *_argument_texts(tool)]
        found = [word for text in texts for word in words_of(text)]
        lengths[tool.name] = len(found)
        for word in found:
            counts[word][tool.name] = counts[word].get(tool.name, 0) + 1
    average = sum(lengths.values()) / len(tools)
    weights: dict[str, dict[str, float]] = {}
    for word, having in counts.items():
        rare = math.log(1 + (len(tools) - len(having) + 0.5) / (len(having) + 0.5))
        weights[word] = {
            name: rare * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * lengths[name] / average))
            for name, count in having.items()
        }
    return _by_sum(weights)


def full_text(tools: Sequence[Tool]) -> Finder:
    """Rank by FTS5 in a database in memory. Raises `sqlite3.OperationalError` where it is not built in."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE tools USING fts5(name, description, arguments, tokenize = 'porter')")
    rows = ((tool.name, tool.description, "\n".join(_argument_texts(tool))) for tool in tools)
    db.executemany("INSERT INTO tools VALUES (?, ?, ?)", ([" ".join(words_of(text)) for text in row] for row in rows))
    names = [tool.name for tool in tools]

    def find(question: str) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in words_of(question))
        query = "SELECT rowid, bm25(tools, 3, 1, 0.5) FROM tools WHERE tools MATCH ?"
        scored = db.execute(query, (words,)) if words else ()
        best = nsmallest(_MOST, ((round(score, 6), names[row - 1]) for row, score in scored))
        return [name for _, name in best]

    return find


def words(tools: Sequence[Tool], synonyms: Mapping[str, tuple[str, ...]] | None = None) -> Finder:
    """Ask a `Ranking` of all `tools`."""
    return _finder(Ranking(Catalog(tools), synonyms=synonyms))


METHODS: Final[Mapping[str, Callable[[Sequence[Tool]], Finder]]] = {
    "the chapter's rule": chapter,
    "BM25": bm25,
    "words": words,
}
"""What stands in every table; FTS5 has one of its own."""


def has_full_text() -> bool:
    """Say whether the `sqlite3` of this Python has FTS5."""
    try:
        full_text([])
    except sqlite3.OperationalError:
        return False
    return True


def _finder(ranking: Ranking) -> Finder:
    return lambda question: [card["name"] for card in ranking.search(question, _GRANTS, _MOST)]


def _by_sum(weights: Mapping[str, Mapping[str, float]]) -> Finder:
    """Add up what each word of a question gives to each tool. Equal sums go by name."""

    def find(question: str) -> list[str]:
        scores: defaultdict[str, float] = defaultdict(float)
        for word in words_of(question):
            for name, weight in weights.get(word, {}).items():
                scores[name] += weight
        return [name for _, name in nsmallest(_MOST, ((-round(score, 6), name) for name, score in scores.items()))]

    return find


def _argument_texts(tool: Tool) -> list[str]:
    """Return the names and texts of the arguments of a tool of a sample."""
    return [text for name, member in tool.parameters["properties"].items() for text in (name, member["description"])]


# What is measured --------------------------------------------------------------------------------


def measured(find: Finder, questions: Sequence[Question]) -> tuple[list[str], str]:
    """Return the recalls at `KS` in per cent and the MRR, as text with one and three decimals."""
    recalls, reciprocal = [Fraction()] * len(KS), Fraction()
    for question in questions:
        found = find(question.text)
        places_of_right = [place for place, name in enumerate(found, 1) if name in question.right]
        for number, k in enumerate(KS):
            recalls[number] += Fraction(sum(place <= k for place in places_of_right), len(question.right))
        if places_of_right:
            reciprocal += Fraction(1, places_of_right[0])
    return [_text(100 * recall / len(questions), 1) for recall in recalls], _text(reciprocal / len(questions), 3)


def leak(sample: Sample) -> dict[str, int]:
    """Hide about half of the tools and ask the reported questions; return how many answers hidden tools changed.

    `questions`; `first three` and `first`: how often the first visible cards, names and order, are others when rarity
    is counted over all tools and the hidden ones are left out afterwards; `ours`: how often an answer of ours has
    another byte than that of a catalog without the hidden tools. Whether a tool is hidden hangs on its name's digest.
    """
    mixed = [replace(tool, permission=_HIDDEN) if _is_hidden(tool) else tool for tool in sample.tools]
    visible = [tool for tool in mixed if tool.permission != _HIDDEN]
    both, alone = Ranking(Catalog(mixed)), Ranking(Catalog(visible))
    everybody = _GRANTS | {_HIDDEN}
    counts = {"questions": len(sample.reported), "first three": 0, "first": 0, "ours": 0}
    names = {tool.name for tool in visible}
    for question in sample.reported:
        right = alone.search(question.text, _GRANTS)
        shared = [card["name"] for card in both.search(question.text, everybody, 1000) if card["name"] in names]
        counts["first three"] += [card["name"] for card in right] != shared[: len(right)]
        counts["first"] += [card["name"] for card in right[:1]] != shared[: len(right[:1])]
        counts["ours"] += both.search(question.text, _GRANTS) != right
    return counts


def _is_hidden(tool: Tool) -> bool:
    return hashlib.sha256(tool.name.encode("utf-8")).digest()[0] % 2 == 1


def _text(value: Fraction, decimals: int) -> str:
    """Return a number rounded half up, with so many decimals."""
    digits = str(math.floor(value * 10**decimals + Fraction(1, 2))).rjust(decimals + 1, "0")
    return f"{digits[:-decimals]}.{digits[-decimals:]}"


# The page ----------------------------------------------------------------------------------------

_HEAD: Final = """\
# 用一句话找工具 / Finding a tool by a plain question

这一页由程序算出，不手工修改；没有时间，任何机器得到相同的字节。
每个数是百分比（MRR 除外），对没有参与挑选的那一半问题取平均。
读法见 [docs/ranking.md](../docs/ranking.md)，题目从哪里来见
[sources.md](../chapter10/lab/benchmarks/samples/sources.md)。
This page is computed and never edited by hand; no time is in it, and every machine gives the same bytes. Each number
is a percentage (the MRR aside), averaged over the half of the questions on which nothing was chosen.

```text
python -m chapter10.lab.benchmarks.recall --write     write this page
python -m chapter10.lab.benchmarks.recall --check     compare it with a new run
python -m chapter10 benchmark --area ranking          the same on a terminal, and how long it takes
```
"""

_COLUMNS: Final = (*(f"first {k}" for k in KS), "MRR")


def page() -> str:
    """Return the whole report. Without FTS5 its table is missing."""
    samples = [read_sample(name) for name in SAMPLES]
    parts = [*map(_section, samples), _halves(samples), _floors(samples), _leaks(samples), *_full_text(samples)]
    return "\n".join([_HEAD, *parts])


def _section(sample: Sample) -> str:
    finders = {name: method(sample.tools) for name, method in METHODS.items()}
    if sample.name == "feishu-zh":
        finders["words, with a table"] = words(sample.tools, SYNONYMS)
    rows = [[name, *_figures(find, sample.reported)] for name, find in finders.items()]
    head = f"## {sample.name}\n\n{len(sample.tools)} tools, {len(sample.reported)} questions\n"
    return f"{head}\n{_table(['', *_COLUMNS], rows)}"


def _halves(samples: Sequence[Sample]) -> str:
    rows = []
    for sample in samples:
        find = words(sample.tools)
        for half, questions in (("chosen on", sample.chosen), ("reported on", sample.reported)):
            rows.append([sample.name, half, str(len(questions)), *_figures(find, questions)])
    return f"## The two halves, words\n\n{_table(['', '', 'questions', *_COLUMNS], rows)}"


def _floors(samples: Sequence[Sample]) -> str:
    by_name = {sample.name: sample for sample in samples}
    own, foreign = by_name["metatool"], by_name["bfcl-live"].reported
    rows = []
    for least in range(5):
        ranking = Ranking(Catalog(own.tools), least=least)
        asked = [[len(ranking.search(one.text, _GRANTS)) == 0 for one in half] for half in (own.reported, foreign)]
        empty = [_text(Fraction(100 * sum(half), len(half)), 1) for half in asked]
        rows.append([str(least), measured(_finder(ranking), own.reported)[0][2], *empty])
    head = ["least", "first 5", "own questions without a card", "foreign questions without a card"]
    return f"""\
## What the floor costs

The tools of metatool, asked their own questions and those of bfcl-live, which were meant for other tools (some of them
do the same). A higher floor is silent more often, on either.

{_table(head, rows)}"""


def _leaks(samples: Sequence[Sample]) -> str:
    rows = [[sample.name, *(str(count) for count in leak(sample).values())] for sample in samples]
    head = ["", "questions", "the first three differ", "the first differs", "ours differ in a byte"]
    return f"""\
## What hidden tools change

About half of the tools are hidden. With a rarity that is counted over all tools and the hidden ones left out of the
list afterwards, so many answers differ from those of a catalog without them; with ours, none may.

{_table(head, rows)}"""


def _full_text(samples: Sequence[Sample]) -> list[str]:
    if not has_full_text():
        return []
    rows = [[sample.name, *_figures(full_text(sample.tools), sample.reported)] for sample in samples]
    return [f"{_FULL_TEXT_HEAD}\n\nThe index of `sqlite3`, for comparison.\n\n{_table(['', *_COLUMNS], rows)}"]


def _figures(find: Finder, questions: Sequence[Question]) -> list[str]:
    recalls, reciprocal = measured(find, questions)
    return [*recalls, reciprocal]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see the top of the module."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10.lab.benchmarks.recall", description="How often it finds."
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--write", action="store_true", help="write the page anew")
    one.add_argument("--check", action="store_true", help="compare the page with a new run")
    options = parser.parse_args(arguments)
    text = page()
    if options.write:
        for path in replace_together(reports_folder(), {REPORT: text}):
            print(path)
        return EXIT_FINE
    if options.check:
        return say_differences(check_report(reports_folder(), text), [REPORT], "chapter10.lab.benchmarks.recall")
    print(text, end="")
    return EXIT_FINE


def check_report(directory: Path, text: str) -> list[str]:
    """Return what differs between the page in `directory` and `text`, the table of FTS5 aside where this has none."""
    if _FULL_TEXT_HEAD not in text and (directory / REPORT).is_file():
        kept = (directory / REPORT).read_text(encoding="utf-8").partition(_FULL_TEXT_HEAD)[2]
        text = f"{text}\n{_FULL_TEXT_HEAD}{kept}" if kept else text
    return differences(directory, {REPORT: text})


if __name__ == "__main__":
    main_guard(main)
