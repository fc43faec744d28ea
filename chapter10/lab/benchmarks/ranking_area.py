"""The area `ranking`: how often a plain question finds its tool, and how long that takes.

How often is what `reports/ranking.md` says, from the same samples; see `lab.benchmarks.recall`. How long is asked of
527 tools, as many as seventy public servers had, and of 10,000: the questions of a sample one by one, so that the
median is that of questions and not of repeats. Beside it: grants that come for the first time, an upgrade between two
questions, and the full-text index of `sqlite3` where it is built in, which is C and knows no permission.
Source: the chapter on what its experiments do not measure (claim C10-256).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Final

from chapter10.catalog import Catalog, Tool
from chapter10.companions.finding.ranking import Ranking
from chapter10.companions.finding.tool_list import DEFAULT_PERMISSION
from chapter10.lab.benchmarks.instrument import Finding, Growth, Plan, Table, by_turns, compare, ready
from chapter10.lab.benchmarks.recall import (
    KS,
    METHODS,
    SAMPLES,
    SYNONYMS,
    Finder,
    Sample,
    full_text,
    has_full_text,
    measured,
    read_sample,
    words,
)

__all__ = ["TARGETS", "many", "measure"]

TARGETS: Final = {527: 1.0, 10_000: 5.0}
"""The median of a question in milliseconds, by the number of tools."""

_GRANTS: Final = frozenset({DEFAULT_PERMISSION})
_LIMIT: Final = 5


def measure(plan: Plan) -> Iterator[Finding]:
    """Yield a table of recall for each sample, then times. Raises `OSError` where the samples are not at hand."""
    for name in plan.pick(SAMPLES[:1], SAMPLES):
        plan.report(f"ranking: {name}")
        yield _recall(read_sample(name))
    samples = [read_sample(name) for name in plan.pick(SAMPLES[:2], SAMPLES[:3])]
    tools = [tool for sample in samples for tool in sample.tools]
    sizes = plan.pick((100, 200), (527, 10_000))
    asked = [question.text for question in samples[1].reported[: plan.pick(5, 60)]]
    rankings = []
    for size in sizes:
        plan.report(f"ranking: {size:,} tools")
        rankings.append(Ranking(Catalog(many(tools, size))))
        yield _questions(plan, size, rankings[-1], asked)
    yield _changes(plan, sizes, rankings, asked[0])
    if has_full_text():
        find = full_text(many(tools, sizes[0]))
        yield compare(
            f"{sizes[0]} tools, beside the index of sqlite3",
            ready(partial(_all, lambda text: rankings[0].search(text, _GRANTS, 10), asked)),
            ready(partial(_all, find, asked)),
            count=len(asked),
            repeats=plan.pick(3, 9),
            computes=True,
        )


def many(tools: list[Tool], size: int) -> list[Tool]:
    """Return `size` tools: the given ones, then copies under other names, so that words stay as common as they are."""
    copies = (replace(tool, name=f"{tool.name}_copy{turn}") if turn else tool for turn in count() for tool in tools)
    return list(islice(copies, size))


def _recall(sample: Sample) -> Finding:
    finders: dict[str, Finder] = {name: method(sample.tools) for name, method in METHODS.items()}
    if has_full_text():
        finders["FTS5"] = full_text(sample.tools)
    if sample.name == "feishu-zh":
        finders["words, with a table"] = words(sample.tools, SYNONYMS)
    rows: list[dict[str, int | float | str]] = []
    for name, find in finders.items():
        recalls, reciprocal = measured(find, sample.reported)
        rows.append(
            {"way": name, **{f"first {k}": text for k, text in zip(KS, recalls, strict=True)}, "MRR": reciprocal}
        )
    return Table(f"{sample.name}: {len(sample.tools):,} tools, {len(sample.reported)} questions", tuple(rows))


def _questions(plan: Plan, size: int, ranking: Ranking, asked: list[str]) -> Finding:
    _all(lambda text: ranking.search(text, _GRANTS, _LIMIT), asked)  # the first time each word is counted
    repeats, times = plan.pick(2, 5), plan.pick(1, 10)
    sides = [ready(partial(_all, lambda text: ranking.search(text, _GRANTS, _LIMIT), [text] * times)) for text in asked]
    costs = by_turns(sides, count=times, repeats=repeats)
    medians = sorted(computed.median * 1e3 for _, computed in costs)
    row: dict[str, int | float | str] = {
        "p50 ms": statistics.median(wall.median * 1e3 for wall, _ in costs),
        "processor p50 ms": statistics.median(medians),
        "processor p90 ms": medians[len(medians) * 9 // 10],
    }
    most = TARGETS.get(size)
    reached = most is None or statistics.median(medians) <= most
    verdict = "" if most is None else f"p50 at most {most:g} ms: {'reached' if reached else 'missed'}"
    return Table(f"a question to {size:,} tools", (row,), verdict)


def _changes(plan: Plan, sizes: tuple[int, ...], rankings: list[Ranking], text: str) -> Finding:
    """Ask after each upgrade of one tool: the catalog is looked through, one tool read, the words counted anew."""
    times = plan.pick(2, 10)
    sides = [ready(partial(_upgrades, ranking, text, times)) for ranking in rankings]
    costs = by_turns(sides, count=times, repeats=plan.pick(2, 5))
    return Growth("a question after an upgrade", sizes, tuple(computed.median for _, computed in costs))


def _upgrades(ranking: Ranking, text: str, times: int) -> None:
    tools = ranking.catalog.tools
    name = next(iter(tools))
    for number in range(times):
        tools[name] = replace(tools[name], version=str(number))
        ranking.search(text, _GRANTS, _LIMIT)


def _all(find: Callable[[str], object], asked: list[str]) -> None:
    for text in asked:
        find(text)
