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

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from chapter10.companions.work.living_store import LivingStore
from chapter10.experiments import reports_folder
from chapter10.jobs import JobStore
from chapter10.lab.console.textio import (
    EXIT_FINE,
    EXIT_WRONG,
    Event,
    main_guard,
    mermaid_sequence,
    text_lanes,
)
from chapter10.lab.evidence.files import differences, replace_together, say_differences
from chapter10.lab.evidence.telling import narrow_lanes
from chapter10.lab.histories.explorer import Answers, Broken, Exploration, Explorer, counterexample
from chapter10.lab.histories.guards import GUARDS, Guard, guard_named, mark_of
from chapter10.lab.histories.invariants import INVARIANTS, Invariant
from chapter10.lab.histories.world import CHAPTER_VERBS, Action, World

__all__ = ["PAGE", "guards_page", "lanes", "main"]

PAGE: Final = "guards.md"

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
    parser = argparse.ArgumentParser(prog="python -m chapter10 explore", description="Every history of a small world.")
    parser.add_argument("--jobs", type=int, default=1, help="jobs, 1 to 3 (default 1)")
    parser.add_argument("--workers", type=int, default=2, help="workers, 1 to 3 (default 2)")
    parser.add_argument("--until", type=int, default=5, help="the last moment of the clock (default 5)")
    parser.add_argument("--attempts", type=int, default=2, help="max_attempts of each job (default 2)")
    parser.add_argument("--chapter", action="store_true", help="the chapter's store instead of the living one")
    parser.add_argument("--guards", action="store_true", help="list the guards by name")
    parser.add_argument("--without", metavar="GUARD", help="take this guard out and show what breaks")
    parser.add_argument("--write", action="store_true", help=f"write reports/{PAGE}")
    parser.add_argument("--check", action="store_true", help=f"compare reports/{PAGE} with a new run")
    options = parser.parse_args(arguments)
    if options.guards:
        for guard in GUARDS:
            print(f"{guard.name:32} {guard.sentence}")
        return EXIT_FINE
    if options.without not in (None, *(guard.name for guard in GUARDS)):
        parser.error(f"there is no guard {options.without}; --guards lists them")
    try:
        if options.without is not None:
            return _show_without(guard_named(options.without))
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
    return _show_all(world, JobStore if options.chapter else LivingStore)


def _show_all(world: World, store: type[JobStore]) -> int:
    def report(seen: Exploration) -> None:
        print(f"... {seen.states} states, {seen.transitions} transitions, depth {seen.depth}", file=sys.stderr)

    started = time.perf_counter()
    seen = Explorer(world, store, report=report).run()
    seconds = time.perf_counter() - started
    print(f"world: {world.jobs} jobs, {world.workers} workers, clock 0 to {world.until}, {world.attempts} attempts")
    print(f"states {seen.states}, transitions {seen.transitions}, depth {seen.depth}")
    print(f"store contents {seen.contents}, calls run {seen.calls}, {seconds:.1f} s")
    if seen.broken is not None:
        _show_broken(seen.broken)
        return EXIT_WRONG
    if not seen.finished:
        print("stopped: what was seen held, the rest was not looked at")
        return EXIT_WRONG
    print("every promise held on every step:")
    for invariant in _promises():
        print(f"  {invariant.number:4}{invariant.sentence}")
    return EXIT_FINE


def _show_without(guard: Guard) -> int:
    seen = counterexample(guard)
    print(f"without {guard.name}: {guard.sentence} ({', '.join(guard.claims)})")
    if seen.broken is None:
        print(f"nothing broke in {seen.states} states")
        return EXIT_WRONG
    _show_broken(seen.broken)
    return EXIT_FINE


def _show_broken(broken: Broken) -> None:
    print(f"breaks {broken.number}: {broken.sentence}")
    print(f"here: {broken.wrong}")
    print()
    print("\n".join(narrow_lanes(lanes(broken))))


if __name__ == "__main__":
    main_guard(main)
