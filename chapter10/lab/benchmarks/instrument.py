"""How something is measured on a machine that does other things too: side by side, again and again.

A time by itself says little: the same code takes twice as long while a neighbour compiles. So what is
measured stands beside a *limit*, the least that the same work could cost, and the two take turns in one
process, the first of a pair being ours and the limit's by turns. Whatever slows the machine slows both, and
the ratio of a pair says more than either time.

    repeat     one timed run of one side: `count` operations
    pair       one repeat of ours and one of the limit, next to each other
    ratio      ours divided by the limit, within a pair; the median over all pairs, with its quartiles
    wide       the quartiles lie further apart than `WIDE` of the median: the ratio means little, and that is said
    exponent   slope of cost against size, both as logarithms: 0 no growth, 1 in proportion

Processor time stands beside wall time: waiting for a disk hides how much a program computes.
Source: the chapter's section on what its experiments do not measure (claim C10-256).
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import platform
import sqlite3
import statistics
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from chapter10.database import Database

__all__ = [
    "WIDE",
    "Clock",
    "Comparison",
    "Finding",
    "Growth",
    "Plan",
    "Side",
    "Spread",
    "Table",
    "by_turns",
    "chunks",
    "compare",
    "exponent",
    "machine",
    "peak_bytes",
    "ready",
    "ready_async",
    "seconds_text",
    "timed",
]

WIDE: Final = 0.25
"""The share of a ratio's median beyond which its quartiles lie too far apart."""

Side = Callable[[], Callable[[], object]]
"""Makes one repeat ready, untimed, and returns what is timed."""

Clock = Callable[[], float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of some repeats."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(low, median, high)

    def data(self) -> dict[str, float]:
        """Return the three numbers, for JSON."""
        return {"low": _short(self.low), "median": _short(self.median), "high": _short(self.high)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours beside the limit. Times are seconds for one operation; `target` is the ratio to reach, if there is one.

    `computes`: neither side waits for anything, so processor time is compared and wall time only shown.
    `beats`: the other side is no limit but a plain way, and the target is how many times as fast we are.
    """

    name: str
    count: int
    ours: Spread
    limit: Spread
    ratio: Spread
    processor: Spread
    repeats: int
    target: float | None = None
    computes: bool = False
    beats: bool = False

    @property
    def judged(self) -> Spread:
        """The ratio that counts: of processor time where nothing waits, else of wall time."""
        return self.processor if self.computes else self.ratio

    @property
    def wide(self) -> bool:
        """Whether the ratio varied too much to mean something."""
        return self.judged.high - self.judged.low > WIDE * self.judged.median

    @property
    def verdict(self) -> str:
        """`reached`, `missed`, `too wide to tell`, or nothing without a target."""
        if self.target is None:
            return "too wide to tell" if self.wide else ""
        low, median, high = self.judged.low, self.judged.median, self.judged.high
        bound = 1 / self.target if self.beats else self.target
        if self.wide and low <= bound < high:
            return "too wide to tell"
        return "reached" if median <= bound else "missed"

    def lines(self) -> list[str]:
        """Return what a person reads."""
        times = f"ours {seconds_text(self.ours.median):>9}  other {seconds_text(self.limit.median):>9}"
        judged = self.judged
        if self.beats:
            ratio, bound = f"{1 / judged.median:.0f} times as fast", "at least"
        else:
            ratio, bound = f"ratio {judged.median:.2f} [{judged.low:.2f} {judged.high:.2f}]", "at most"
            if not self.computes:
                ratio += f"  processor {self.processor.median:.2f}"
        wanted = "" if self.target is None else f"  ({bound} {self.target:g})"
        return [f"{self.name:46} {times}  {ratio}{wanted}  {self.verdict}".rstrip()]

    def data(self) -> dict[str, Any]:
        """Return the figures, for JSON."""
        return {
            "kind": "comparison",
            "name": self.name,
            "operations": self.count,
            "repeats": self.repeats,
            "ours_seconds": self.ours.data(),
            "other_seconds": self.limit.data(),
            "ratio": self.ratio.data(),
            "processor_ratio": self.processor.data(),
            "judged_by": "processor" if self.computes else "wall",
            "target": self.target,
            "times_as_fast": self.beats,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Growth:
    """Cost of one operation at several sizes, and memory where it was looked at."""

    name: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    peak: tuple[int, ...] = ()
    most: float | None = None
    """The last cost may be at most so many times the first, if there is a target."""

    @property
    def verdict(self) -> str:
        """`reached`, `missed`, or nothing without a target."""
        if self.most is None:
            return ""
        return "reached" if self.seconds[-1] <= self.most * self.seconds[0] else "missed"

    def lines(self) -> list[str]:
        """Return what a person reads."""
        costs = "  ".join(
            f"{size:,}: {seconds_text(cost)}" for size, cost in zip(self.sizes, self.seconds, strict=True)
        )
        most = "" if self.most is None else f"  (last at most {self.most:g} of the first)"
        lines = [f"{self.name:46} {costs}  exponent {exponent(self.sizes, self.seconds):.2f}{most}  {self.verdict}"]
        if self.peak:
            memory = "  ".join(f"{size:,}: {peak:,} B" for size, peak in zip(self.sizes, self.peak, strict=True))
            lines.append(f"{'':46} peak memory {memory}")
        return [line.rstrip() for line in lines]

    def data(self) -> dict[str, Any]:
        """Return the figures, for JSON."""
        return {
            "kind": "growth",
            "name": self.name,
            "sizes": list(self.sizes),
            "seconds": [_short(cost) for cost in self.seconds],
            "exponent": round(exponent(self.sizes, self.seconds), 3),
            "peak_bytes": list(self.peak),
            "at_most_of_the_first": self.most,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Table:
    """Any other figures: rows of the same columns, numbers or short words."""

    name: str
    rows: tuple[dict[str, int | float | str], ...]
    verdict: str = ""

    def lines(self) -> list[str]:
        """Return what a person reads: a heading, then one line a row."""
        shown = [{key: _cell(value) for key, value in row.items()} for row in self.rows]
        widths = {key: max(len(key), *(len(row[key]) for row in shown)) for key in self.rows[0]}
        head = "  ".join(f"{key:>{width}}" for key, width in widths.items())
        body = ["  ".join(f"{row[key]:>{width}}" for key, width in widths.items()) for row in shown]
        return [f"{self.name}  {self.verdict}".rstrip(), *(f"    {line}" for line in (head, *body))]

    def data(self) -> dict[str, Any]:
        """Return the figures, for JSON."""
        rows = [{k: _short(v) if type(v) is float else v for k, v in row.items()} for row in self.rows]
        return {"kind": "table", "name": self.name, "rows": rows, "verdict": self.verdict}


Finding = Comparison | Growth | Table


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run measures: `quick` for a look, `folder` for files, `report` for progress, which nobody needs."""

    quick: bool
    folder: Path
    report: Callable[[str], object] = field(default=lambda _: None)

    def pick(self, quick: T, full: T) -> T:
        """Return the one for this run."""
        return quick if self.quick else full


def ready(run: Callable[[], object]) -> Side:
    """Return a side that needs nothing made ready."""
    return lambda: run


def ready_async(runner: asyncio.Runner, run: Callable[[], Coroutine[Any, Any, object]]) -> Side:
    """Return a side that is a coroutine function, run in the loop of `runner`."""
    return lambda: lambda: runner.run(run())


def timed(
    run: Callable[[], object], wall: Clock = time.perf_counter, processor: Clock = time.process_time
) -> tuple[float, float]:
    """Return the seconds that one run takes, by the wall and by the processor."""
    started, computed = wall(), processor()
    run()
    return wall() - started, processor() - computed


def compare(
    name: str,
    ours: Side,
    limit: Side,
    *,
    count: int,
    repeats: int,
    target: float | None = None,
    computes: bool = False,
    beats: bool = False,
    counts: tuple[int, int] | None = None,
    clocks: tuple[Clock, Clock] = (time.perf_counter, time.process_time),
) -> Comparison:
    """Measure `repeats` pairs after one that does not count, and return how the sides compare.

    `count`: operations in a repeat of either side (`counts` when they differ).
    """
    our_count, limit_count = counts or (count, count)
    gc.collect()  # nobody pays for what was measured before
    pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for number in range(repeats + 1):
        if number % 2:
            first = timed(ours(), *clocks)
            pairs.append((first, timed(limit(), *clocks)))
        else:
            first = timed(limit(), *clocks)
            pairs.append((timed(ours(), *clocks), first))
    kept = pairs[1:]
    scale = limit_count / our_count
    return Comparison(
        name,
        our_count,
        Spread.of([our[0] / our_count for our, _ in kept]),
        Spread.of([other[0] / limit_count for _, other in kept]),
        Spread.of([_ratio(our[0], other[0]) * scale for our, other in kept]),
        Spread.of([_ratio(our[1], other[1]) * scale for our, other in kept]),
        repeats,
        target,
        computes,
        beats,
    )


def by_turns(
    sides: Sequence[Side],
    *,
    count: int,
    repeats: int,
    clocks: tuple[Clock, Clock] = (time.perf_counter, time.process_time),
) -> list[tuple[Spread, Spread]]:
    """Measure several sides, each once in a round, and return wall and processor seconds of one operation of each.

    The first of `repeats` + 1 rounds does not count, and the order of the sides changes from round to round.
    """
    gc.collect()
    taken: list[list[tuple[float, float]]] = [[] for _ in sides]
    for number in range(repeats + 1):
        places = range(len(sides))
        for place in places if number % 2 else reversed(places):
            taken[place].append(timed(sides[place](), *clocks))
    return [
        (Spread.of([wall / count for wall, _ in each[1:]]), Spread.of([computed / count for _, computed in each[1:]]))
        for each in taken
    ]


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most memory that Python had beyond what it had before, while `run` ran (slowly, for that)."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of log cost over log size by least squares; a size of 0 counts as 1."""
    x = [math.log(max(size, 1)) for size in sizes]
    y = [math.log(max(cost, 1e-12)) for cost in costs]
    if len(set(x)) < 2:
        return 0.0
    return statistics.linear_regression(x, y).slope


def machine(folder: Path) -> dict[str, Any]:
    """Return what the figures depend on: Python, SQLite, cores, and the journal mode in force in `folder`.

    No name of a host, a user or a folder is among it.
    """
    path = folder / "machine.db"
    database = Database(path, application_id=0x43483142, migrations=("CREATE TABLE facts (a);",))  # "CH1B"
    try:
        journal = database.row("PRAGMA journal_mode")[0]
        synchronous = database.row("PRAGMA synchronous")[0]
    finally:
        database.close()
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "processor": platform.machine(),
        "journal_mode": journal,
        "synchronous": ("OFF", "NORMAL", "FULL", "EXTRA")[synchronous],
    }


def seconds_text(seconds: float) -> str:
    """Return a time with a unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def chunks(total: int, size: int) -> Iterator[range]:
    """Yield the numbers from 0 to `total` in ranges of at most `size`."""
    for start in range(0, total, size):
        yield range(start, min(start + size, total))


def _ratio(ours: float, other: float) -> float:
    return ours / other if other > 0 else math.inf if ours > 0 else 1.0


def _short(value: float) -> float:
    """Four digits that count: more would be noise."""
    return float(f"{value:.4g}") if math.isfinite(value) else 0.0


def _cell(value: int | float | str) -> str:
    return f"{value:.3g}" if type(value) is float else f"{value:,}" if type(value) is int else str(value)
