"""Every history of a small world, checked: `python -m chapter10 explore`.

A test tries one history. The faults that matter here need a particular order of a few calls, and
nobody thinks of all orders. But a small world has only so many: one job, two workers, one caller, a
clock that ends. So try them all. Start from the empty store; from each state try everything that may
happen next (`lab.histories.world.actions`); check the promises on each step (`lab.histories.invariants`); and keep each
new state for later. That is breadth-first search, and it has two gifts: no order is left out, and the
first broken history found is one of the shortest there are, because shorter ones were tried before.

Different histories often lead to the same state. A state is kept once, so the search ends.

    python -m chapter10 explore                      all histories of the small world
    python -m chapter10 explore --jobs 2 --until 6   a larger one
    python -m chapter10 explore --chapter            the chapter's store instead of the living one
    python -m chapter10 explore --guards             the guards by name
    python -m chapter10 explore --without stale_attempt.finish
                                                         the shortest history that breaks without it
    python -m chapter10 explore --write              reports/guards.md anew (--check compares it)

What it does not prove: anything about worlds that are larger, about disks that lie, networks, clocks
that run backwards, or two processes inside one transaction. The last is what `BEGIN IMMEDIATE` is for
and what the tests with real processes and the schedules of exercise 11 are about.

It runs the real code of the stores, not a model of it. Source: claims C10-213, C10-229 to
C10-238, C10-297.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from chapter10.companions.work.living_store import LivingStore
from chapter10.experiments import reports_folder
from chapter10.jobs import JobStore
from chapter10.lab.console.strings import parser_in, say
from chapter10.lab.console.textio import (
    EXIT_FINE,
    EXIT_WRONG,
    Event,
    main_guard,
    mermaid_sequence,
    text_lanes,
)
from chapter10.lab.console.workplace import read_text, save_text, work_folder
from chapter10.lab.evidence.files import differences, replace_together, say_differences
from chapter10.lab.evidence.telling import narrow_lanes
from chapter10.lab.histories.explorer import Answers, Broken, Exploration, Explorer, counterexample
from chapter10.lab.histories.guards import GUARDS, Guard, guard_named, mark_of
from chapter10.lab.histories.invariants import INVARIANTS, WAY_TO_END, Invariant
from chapter10.lab.histories.world import CHAPTER_VERBS, Action, World

__all__ = ["CHINESE", "PAGE", "explored", "guards_page", "lanes", "main"]

PAGE: Final = "guards.md"
_KEPT: Final = "guards.json"

CHINESE: Final[Mapping[str, str]] = {
    "the same key is the same intent: a repeat gets its job back and makes no second one":
        "同一个键就是同一个意图：重复提交得回原来的作业，不会再有第二份",
    "a known key with another intent is refused; the old result is not passed off for it":
        "已知的键配上别的意图会被拒绝；旧结果不会冒充新意图的结果",
    "the jobs that are not final are counted in the transaction that adds one":
        "未到终态的作业，在加入一份的同一个事务里清点",
    "knowing a job's number is no right to touch it": "知道作业号，不等于有权动它",
    "knowing a job's number is no right to see its state": "知道作业号，不等于有权看它的状态",
    "knowing a job's number is no right to read what happened to it": "知道作业号，不等于有权读它的经过",
    "knowing a job's number is no right to its result": "知道作业号，不等于有权取它的结果",
    "a cancel of a running job is a request; of an ended one it changes nothing":
        "取消运行中的作业只是请求；取消已结束的作业什么也不改变",
    "a final state never runs again": "终态不会再运行",
    "a job is not to be had before its retry is due, nor while another worker's lease lives":
        "重试时间未到，或别人的租约还在，作业都领不到",
    "a cancelled job does not go back to work when its lease ends; the claim confirms the cancel":
        "被取消的作业不因租约到期而重新开工；领取时确认取消",
    "nobody starts at or after the deadline": "到了截止时间，谁也不能开始",
    "the number of attempts is limited, and a crash counts as one": "尝试次数有上限，崩溃也算一次",
    "a lease gives no right that the deadline takes away": "截止时间收走的权利，租约给不回来",
    "a worker whose attempt is no longer the newest must not write": "尝试代次已不是最新的 worker 不许写",
    "a final state never changes, and a repeated delivery stores nothing new":
        "终态不再改变，重复交付不会存下新东西",
    "only a job that somebody holds can be written by a worker": "只有正被持有的作业，worker 才能写",
    "a worker that finds a cancel request stops and confirms it; it stores no result":
        "worker 发现取消请求就停下并确认，不存结果",
    "the deadline is looked at again when something is written, not only before the start":
        "截止时间在写入时再看一次，不只在开始之前",
    "a lease that has ended gives no right to write, even while nobody else has claimed":
        "租约到期就无权再写，即使还没有别人领取",
    "within an attempt progress does not go backwards": "同一次尝试之内，进度不后退",
    "the last attempt's failure is final; it is not queued again": "最后一次尝试失败就是终局，不再排队",
    "a retry that would not be due before the deadline is not queued": "截止时间之前轮不到的重试不排队",
    "a final state never changes": "终态不再改变",
    "no worker lives past the deadline": "没有 worker 活过截止时间",
    "no worker extends itself past the deadline": "没有 worker 能把自己延到截止时间之后",
    "every call ends in a declared answer, and the answer is true": "每个调用都以声明过的回答结束，而且回答属实",
    "a job has one receipt if and only if it is succeeded": "作业有且只有一份回执，当且仅当它已成功",
    "attempt rises by one with each claim and never exceeds its limit": "每次领取代次加一，从不超过上限",
    "nothing is committed by a stale attempt, after the lease, past the deadline, or after a cancel request":
        "旧代次、租约之后、截止之后、取消请求之后，都提交不了任何东西",
    "a refused call changes nothing": "被拒绝的调用什么也不改变",
    "replaying a job's events gives its row": "重放作业的事件，就得到它的那一行",
    "seq rises and never comes back": "seq 递增，从不回头",
    "a key is unique and keeps its job": "键是唯一的，一直指着它的作业",
    "jobs that are not final never exceed the capacity": "未到终态的作业从不超过容量",
    "whatever an owner does, nothing of another owner changes": "一个所有者无论做什么，别人的东西都不变",
    WAY_TO_END: "时间加上一个肯干活的 worker，能让每份作业结束",
}  # fmt: skip
"""What the guards and the promises say, for a reader of Chinese."""

_HEAD: Final = """\
# 每道防护为什么必要 / Why each guard is needed

作业库的每个写操作都先检查几个条件。这一页把条件逐个拿掉，让程序走遍一个小世界的所有历史，并给出最短的一段出错过程。
没有反例的防护要么多余，要么说明这个探索器太弱；测试要求每道防护都有一个反例。

Every verb of the job store checks conditions before it writes. Here each one is taken out in turn, from a
copy of the code, and the explorer shows a shortest history in which a promise breaks. A guard without such
a history would be superfluous, or the explorer too weak; a test asks for one of each.
[改一条规则 / Changing a rule](../docs/changing-a-rule.md)

```text
python -m chapter10 explore                                   every history, with every guard
python -m chapter10 explore --without {example}    one guard less
python -m chapter10 explore --write                           this page anew
```

**防护齐全时 / With every guard**: {states:,} states, {transitions:,} transitions, depth {depth},
{contents:,} contents of the store, {calls:,} calls of the real code; every promise held on every step.
World: 1 job, 2 workers, 2 attempts, clock 0 to 5.

| 承诺 / promise | | 数据库里的约束 / constraint in the schema |
|---|---|---|
{promises}

| 防护 / guard | 为什么 / why | 步 / steps | 破坏 / breaks |
|---|---|---:|---|
{index}

{sections}"""


def lanes(broken: Broken) -> list[Event]:
    """Return a history as events for the lane and Mermaid printers; ticks are not lines of their own."""
    return [
        Event(now, action.actor, _sentence(action), _told(answer))
        for now, action, answer in broken.history
        if action.verb != "tick"
    ]


def _sentence(action: Action) -> str:
    job = f" job {action.job_id}" if action.job_id else ""
    attempt = f", attempt {action.attempt}" if action.attempt else ""
    number = f", {action.number} done" if action.number else ""
    return f"{action.verb}{job}{attempt}{number}"


def _told(answer: object) -> str:
    return "nothing" if answer is None else str(answer)


def guards_page(seen: Exploration | None = None, answers: Answers | None = None) -> str:
    """Return the Markdown page with a shortest broken history for each guard, in text and in Mermaid.

    `seen`: the exploration of `World()` whose counts stand on the page; without it the world is explored first.
    `answers`: of that exploration, to be used again. Raises `ValueError`: a mark is gone, or a promise is broken
    with every guard in place.
    """
    for guard in GUARDS:
        mark_of(guard)
    answers = Answers() if answers is None else answers
    seen = Explorer(World(), answers=answers).run() if seen is None else seen
    if seen.broken is not None or not seen.finished:
        raise ValueError(
            "no promise may break with every guard in place: `python -m chapter10 explore` shows what does"
        )
    promises = "\n".join(
        f"| {i.number} | {i.sentence} | {', '.join(f'`{name}`' for name in i.constraints) or '-'} |"
        for i in _promises()
    )
    found = {guard: counterexample(guard, answers).broken for guard in GUARDS}
    index = "\n".join(
        f"| [{guard.name}](#{guard.name.replace('.', '')}) | {guard.sentence} | "
        + (f"{len(lanes(broken))} | {broken.number} |" if broken else "- | - |")
        for guard, broken in found.items()
    )
    counts = {name: getattr(seen, name) for name in ("states", "transitions", "depth", "contents", "calls")}
    sections = "\n".join(_section(guard, broken) for guard, broken in found.items())
    return _HEAD.format(example="stale_attempt.finish", promises=promises, index=index, sections=sections, **counts)


def _section(guard: Guard, broken: Broken | None) -> str:
    """Return what the page says of one guard."""
    head = f"## {guard.name}\n\n{guard.sentence[0].upper()}{guard.sentence[1:]} ({', '.join(guard.claims)}).\n\n"
    if broken is None:
        return f"{head}**没有反例 / No counterexample was found.**\n"
    return (
        f"{head}没有它 / without it **{broken.number}** breaks, *{broken.sentence}*: {broken.wrong}.\n\n"
        f"```text\n{text_lanes(lanes(broken))}\n```\n\n"
        f"```mermaid\n{mermaid_sequence(lanes(broken), 'job store')}\n```\n"
    )


def _promises() -> list[Invariant]:
    """Return the promises in the order of their numbers, each once."""
    named = {invariant.number: invariant for invariant in reversed(INVARIANTS)}
    return sorted(named.values(), key=lambda invariant: int(invariant.number[1:]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit 0 if every promise held or the counterexample was found, 1 if not, 2 for usage."""
    parser, language = parser_in("python -m chapter10 explore", "explore", arguments)
    for name, usual in (("jobs", 1), ("workers", 2), ("until", 5), ("attempts", 2)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=say(f"explore.{name}", language))
    for name in ("chapter", "guards"):
        parser.add_argument(f"--{name}", action="store_true", help=say(f"explore.{name}", language))
    parser.add_argument("--without", metavar="GUARD", help=say("explore.without", language))
    for name in ("write", "check"):
        parser.add_argument(
            f"--{name}", action="store_true", help=say(f"help.{name}", language, page=f"reports/{PAGE}")
        )
    options = parser.parse_args(arguments)
    if options.guards:
        for guard in GUARDS:
            print(f"{guard.name:32} {_in(guard.sentence, language)}")
        return EXIT_FINE
    if options.without not in (None, *(guard.name for guard in GUARDS)):
        parser.error(say("explore.unknown", language, guard=options.without))
    try:
        if options.without is not None:
            return _show_without(guard_named(options.without), language)
        texts = {PAGE: guards_page()} if options.write or options.check else {}
    except ValueError as error:  # such as a mark that is gone
        print(f"[X] {error}")
        return EXIT_WRONG
    if options.write:
        for path in replace_together(reports_folder(), texts):
            print(path)
        return EXIT_FINE
    if options.check:
        return say_differences(differences(reports_folder(), texts), (PAGE,), "chapter10 explore")
    try:
        world = World(options.jobs, options.workers, options.until, options.attempts)
        if options.chapter:
            world = replace(world, verbs=CHAPTER_VERBS)
    except ValueError as error:
        parser.error(str(error))
    return _show_all(world, JobStore if options.chapter else LivingStore, language)


def _in(sentence: str, language: str) -> str:
    """Return a sentence of the guards or the promises in a language."""
    return CHINESE[sentence] if language == "zh" else sentence


def _show_all(world: World, store: type[JobStore], language: str) -> int:
    def report(seen: Exploration) -> None:
        counts = {"states": seen.states, "transitions": seen.transitions, "depth": seen.depth}
        print(say("explore.seen_so_far", language, **counts), file=sys.stderr)

    started = time.perf_counter()
    seen = Explorer(world, store, report=report).run()
    seconds = time.perf_counter() - started
    sizes = {"jobs": world.jobs, "workers": world.workers, "until": world.until, "attempts": world.attempts}
    print(say("explore.world", language, **sizes))
    print(say("explore.seen", language, states=seen.states, transitions=seen.transitions, depth=seen.depth))
    print(say("explore.store", language, contents=seen.contents, calls=seen.calls, seconds=f"{seconds:.1f}"))
    if seen.broken is not None:
        _show_broken(seen.broken, language)
        return EXIT_WRONG
    if not seen.finished:
        print(say("explore.stopped", language))
        return EXIT_WRONG
    print(say("explore.held", language))
    for invariant in _promises():
        print(f"  {invariant.number:4}{_in(invariant.sentence, language)}")
    return EXIT_FINE


def explored(folder: Path) -> list[str]:
    """Return the guards that a reader has taken out, from `guards.json` in the folder of his work."""
    try:
        kept = json.loads(read_text(folder / _KEPT))
    except (OSError, ValueError):
        return []
    return [name for name in kept if isinstance(name, str)] if isinstance(kept, list) else []


def _remember(guard: Guard) -> None:
    """Note for a reader who has begun, so where there is a folder of his work, that the guard was taken out."""
    folder = work_folder()
    if folder.is_dir():
        with suppress(OSError):
            names = sorted({*explored(folder), guard.name})
            save_text(folder / _KEPT, json.dumps(names, indent=2) + "\n")


def _show_without(guard: Guard, language: str) -> int:
    _remember(guard)
    seen = counterexample(guard)
    sentence, claims = _in(guard.sentence, language), ", ".join(guard.claims)
    print(say("explore.less", language, guard=guard.name, sentence=sentence, claims=claims))
    if seen.broken is None:
        print(say("explore.nothing", language, states=seen.states))
        return EXIT_WRONG
    _show_broken(seen.broken, language)
    return EXIT_FINE


def _show_broken(broken: Broken, language: str) -> None:
    print(say("explore.breaks", language, number=broken.number, sentence=_in(broken.sentence, language)))
    print(say("explore.here", language, wrong=broken.wrong))
    print()
    print("\n".join(narrow_lanes(lanes(broken))))


if __name__ == "__main__":
    main_guard(main)
