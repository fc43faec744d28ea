"""Area `search`: top 10 of three words with a permission filter, beside the bare operation on prebuilt postings.

The bare operation exists twice, and the faster one at each size is the limit: Python integers with a bit for
each tool (one integer a binary digit of the score, the lowest bits are the first names), and sets of numbers
that are counted. Neither checks its input, resolves grants or makes cards; both give the same scores and
names as both catalogs, which is checked before anything is measured. The naive scan looks at each tool.

The bare operation reads whole integers. The catalog reads only the first names where these are enough, and is
then faster than it; so a third way, not judged, takes the same steps bare, and shows what the door and the cards
of a call cost. Of the query for the *last names* only the last of all tools have two words, and no first names
can answer it.

What is judged is `IndexedCatalog`. The `Catalog` of the chapter's floor looks at each tool; its figures stand
beside it, and of them only the search in the chapter's 300 tools has a target.

A *common* word is that of a third of all tools, a *rare* one of five, the *last* one that of the last fiftieth.
Source: claims C10-035 to C10-040.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from typing import Any, Final

from chapter10.catalog import FIXTURE_GRANTS, Catalog, Tool, fixture_tools
from chapter10.companions.finding.indexed_catalog import IndexedCatalog
from chapter10.lab.benchmarks.instrument import Finding, Growth, Plan, Table, by_turns, compare, peak_bytes, ready

__all__ = ["BarePostings", "make_tools", "measure", "naive"]

_GRANTS: Final = frozenset({"read:a", "read:b"})
_QUERY: Final = ("common0", "common1", "common2")
_LAST: Final = ("common0", "common1", "last")
_RARE: Final = ("rare0", "absent")
_FIRST: Final = (1 << 512) - 1
_LIMIT: Final = 10
_MICROSECONDS: Final = {IndexedCatalog: 30.0, Catalog: 500.0}
"""What a search in the chapter's 300 tools may take."""


def make_tools(count: int) -> list[Tool]:
    """Return `count` tools: three common words each had by a third, a rare one, the last one, one of its own each."""
    tools = []
    for number in range(count):
        words = [f"common{place}" for place in range(3) if (number * 7919 + place * 104729) % 9 < 3]
        words += [f"own{number}"] + (["rare0"] if number % (count // 5) == 0 else [])
        words += ["last"] if number >= count - count // 50 else []
        permission = f"read:{'abc'[number % 3]}"
        tools.append(Tool(f"tool.{number:06}", f"Tool number {number}; reads.", tuple(words), permission, "read"))
    return tools


class BarePostings:
    """Prebuilt postings of a catalog in the order of names, as integers and as sets."""

    def __init__(self, tools: list[Tool], grants: frozenset[str]) -> None:
        self.tools = sorted(tools, key=lambda tool: tool.name)
        self.sets: defaultdict[str, set[int]] = defaultdict(set)
        for number, tool in enumerate(self.tools):
            for word in tool.keywords:
                self.sets[word].add(number)
        self.visible = {n for n, tool in enumerate(self.tools) if tool.permission in grants}
        self.visible_bits = _bits(self.visible)
        self.bits = {word: _bits(numbers) for word, numbers in self.sets.items() if 100 * len(numbers) > len(tools)}

    def by_integers(self, words: tuple[str, ...], limit: int) -> list[tuple[int, Tool]]:
        """Return the best by `&`, `|` and `^` on whole integers; for three words."""
        a, b, c = (self.bits[word] & self.visible_bits for word in words)
        three = a & b & c
        found = self._lowest(three, 3, limit, [])
        if len(found) < limit:
            found = self._lowest((a & b | a & c | b & c) ^ three, 2, limit, found)
        if len(found) < limit:
            found = self._lowest((a ^ b ^ c) & ~three, 1, limit, found)
        return found

    def by_first_names(self, words: tuple[str, ...], limit: int) -> list[tuple[int, Tool]]:
        """Return the same, from the first names alone as far as these are enough."""
        a, b, c = (self.bits[word] for word in words)
        first = self.visible_bits & _FIRST
        three = first & a & b & c
        if three.bit_count() < limit:
            three = self.visible_bits & a & b & c
        found = self._lowest(three, 3, limit, [])
        if len(found) == limit:
            return found
        a, b, c = first & a, first & b, first & c
        two = (a & b | a & c | b & c) ^ (three & _FIRST)
        enough = two.bit_count() >= limit - len(found)
        return self._lowest(two, 2, limit, found) if enough else self.by_integers(words, limit)

    def by_sets(self, words: tuple[str, ...], limit: int) -> list[tuple[int, Tool]]:
        """Return the best by counting how often each visible number occurs."""
        counts: Counter[int] = Counter()
        for word in words:
            counts.update(self.sets.get(word, set()) & self.visible)
        best = nsmallest(limit, counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return [(score, self.tools[number]) for number, score in best]

    def _lowest(self, bits: int, score: int, limit: int, found: list[tuple[int, Tool]]) -> list[tuple[int, Tool]]:
        # The lowest bits are rarely far away, and then few bytes hold them; zeros before them are skipped at once.
        start, width = 0, 64
        while bits and len(found) < limit:
            low = bits & ((1 << width) - 1)
            if not low:
                width = (bits & -bits).bit_length() - 1
            while low and len(found) < limit:
                lowest = low & -low
                found.append((score, self.tools[start + lowest.bit_length() - 1]))
                low ^= lowest
            bits >>= width
            start += width
            width = 512
        return found


def naive(tools: list[Tool], words: tuple[str, ...], grants: frozenset[str], limit: int) -> list[tuple[int, Tool]]:
    """Return the best by looking at every tool."""
    wanted = set(words)
    scored = [(len(wanted.intersection(tool.keywords)), tool) for tool in tools if tool.permission in grants]
    found = sorted((pair for pair in scored if pair[0]), key=lambda pair: (-pair[0], pair[1].name))
    return found[:limit]


def measure(plan: Plan) -> Iterator[Finding]:
    """Yield the chapter's catalog in microseconds, then every ratio at three sizes, then building and changing."""
    yield _fixture(plan, IndexedCatalog)
    yield _fixture(plan, Catalog)
    sizes = plan.pick((100, 200, 400), (300, 10_000, 100_000))
    common: list[float] = []
    rare: list[float] = []
    for size in sizes:
        plan.report(f"search: {size:,} tools")
        for finding, costs in _at_size(plan, size, size == sizes[-1]):
            yield finding
            costs_of = {"common": common, "rare": rare}
            for name, cost in costs.items():
                costs_of[name].append(cost)
    yield Growth("three common words", sizes, tuple(common))
    yield Growth("a rare word", sizes, tuple(rare), most=1.3)
    yield from _building(plan, sizes)


def _fixture(plan: Plan, kind: type[Catalog]) -> Finding:
    catalog = kind(fixture_tools())
    queries = {
        "one word": "查询",
        "two words": "订单 状态",
        "the chapter's three": "查询 订单 状态",
        "seven words": "查询 订单 状态 物流 报表 导出 归档",
        "one that all have": "归档 历史",
        "none": "天气",
        "one, limit 100": "归档",
    }
    count = plan.pick(50, 2000) if kind is IndexedCatalog else plan.pick(5, 100)
    limits = {name: 100 if name.endswith("100") else 3 for name in queries}
    sides = [ready(_searches(catalog, queries[name], FIXTURE_GRANTS, limits[name], count)) for name in queries]
    costs = by_turns(sides, count=count, repeats=plan.pick(5, 15))
    rows: list[dict[str, int | float | str]] = [
        {"query": name, "us": wall.median * 1e6, "processor us": computed.median * 1e6}
        for name, (wall, computed) in zip(queries, costs, strict=True)
    ]
    most = _MICROSECONDS[kind]
    reached = all(computed.median * 1e6 <= most for _, computed in costs[:-1])
    verdict = f"at most {most:g} us with limit 3: {'reached' if reached else 'missed'}"
    return Table(f"{kind.__name__} of the chapter's 300 tools", tuple(rows), verdict)


def _at_size(plan: Plan, size: int, largest: bool) -> Iterator[tuple[Finding, dict[str, float]]]:
    tools = make_tools(size)
    catalog, floor, bare = IndexedCatalog(tools), Catalog(tools), BarePostings(tools, _GRANTS)
    count, repeats = max(plan.pick(1, 10), plan.pick(1000, 200_000) // size), plan.pick(5, 15)
    yield from _common_words(plan, catalog, bare, count, 1.3 if largest else None)
    few = max(1, count // 50)
    scan = _repeated(lambda: naive(tools, _QUERY, _GRANTS, _LIMIT), few)
    yield (
        compare(
            f"{size:,} tools, beside a scan of all",
            ready(_searches(catalog, " ".join(_QUERY), _GRANTS, _LIMIT, few * 20)),
            ready(scan),
            count=0,
            counts=(few * 20, few),
            repeats=plan.pick(3, 7),
            target=500 if largest and not plan.quick else None,
            computes=True,
            beats=True,
        ),
        {},
    )
    yield (
        compare(
            f"{size:,} tools, the floor's loop beside that scan",
            ready(_searches(floor, " ".join(_QUERY), _GRANTS, _LIMIT, few)),
            ready(scan),
            count=few,
            repeats=plan.pick(3, 7),
            computes=True,
        ),
        {},
    )
    word = _searches(catalog, " ".join(_RARE), _GRANTS, _LIMIT, plan.pick(100, 2000))
    seldom = compare(
        f"{size:,} tools, a rare word, beside bare sets",
        ready(word),
        ready(_repeated(lambda: bare.by_sets(_RARE, _LIMIT), plan.pick(100, 2000))),
        count=plan.pick(100, 2000),
        repeats=repeats,
        computes=True,
    )
    yield seldom, {"rare": seldom.ours.median}


def _common_words(
    plan: Plan, catalog: Catalog, bare: BarePostings, count: int, target: float | None
) -> Iterator[tuple[Finding, dict[str, float]]]:
    for words in (_QUERY, _LAST):
        cards = [(card["score"], card["name"]) for card in catalog.search(" ".join(words), _GRANTS, _LIMIT)]
        bare_ways: dict[str, Callable[[], list[tuple[int, Tool]]]] = {
            "integers": partial(bare.by_integers, words, _LIMIT),
            "sets": partial(bare.by_sets, words, _LIMIT),
            "first names": partial(bare.by_first_names, words, _LIMIT),
        }
        for other in (*(way() for way in bare_ways.values()), naive(bare.tools, words, _GRANTS, _LIMIT)):
            assert cards == [(score, tool.name) for score, tool in other]
        found = {
            name: compare(
                f"{len(bare.tools):,} tools{', last names' if words is _LAST else ''}, beside bare {name}",
                ready(_searches(catalog, " ".join(words), _GRANTS, _LIMIT, count)),
                ready(_repeated(way, count)),
                count=count,
                repeats=plan.pick(5, 15),
                computes=True,
            )
            for name, way in bare_ways.items()
        }
        first_names = found.pop("first names")
        best = min(found.values(), key=lambda each: each.limit.median)
        if words is _QUERY:
            yield replace(best, target=target), {"common": best.ours.median}
            yield first_names, {}
        else:
            yield best, {}


def _building(plan: Plan, sizes: tuple[int, ...]) -> Iterator[Finding]:
    making, costs, peaks = [], [], []
    for size in sizes:
        plan.report(f"search: building {size:,} tools")
        making.append(by_turns([ready(partial(make_tools, size))], count=1, repeats=3)[0][1].median)
        tools = make_tools(size)
        found = compare(
            f"making the catalog of {size:,} tools",
            ready(partial(IndexedCatalog, tools)),
            ready(partial(_by_hand, tools)),
            count=size,
            repeats=plan.pick(3, 7),
            computes=True,
            target=2.5 if size == sizes[-1] else None,
        )
        yield found
        costs.append(found.ours.median * size)
        peaks.append(peak_bytes(partial(IndexedCatalog, tools)))
    yield Growth("making the tools", sizes, tuple(making))
    yield Growth("making their catalog", sizes, tuple(costs), tuple(peaks))
    yield _upgrades(plan, sizes)


def _by_hand(tools: list[Tool]) -> Any:
    by_name = {tool.name: tool for tool in tools}
    postings: defaultdict[str, set[int]] = defaultdict(set)
    permissions: defaultdict[str, set[int]] = defaultdict(set)
    for number, tool in enumerate(tools):
        permissions[tool.permission].add(number)
        for word in tool.keywords:
            postings[word].add(number)
    return by_name, postings, permissions


def _upgrades(plan: Plan, sizes: tuple[int, ...]) -> Finding:
    """Put a changed tool in the place of another, in a catalog that has been searched."""
    count = plan.pick(50, 1000)
    sides = []
    for size in sizes:
        catalog = IndexedCatalog(make_tools(size))
        catalog.search(" ".join(_QUERY), _GRANTS)
        name = f"tool.{size // 2:06}"
        versions = [replace(catalog.tools[name], version=str(number)) for number in (1, 2)]
        sides.append(ready(partial(_upgrade, catalog, name, versions, count)))
    costs = [computed.median for _, computed in by_turns(sides, count=count, repeats=plan.pick(5, 15))]
    return Growth("upgrading one tool", sizes, tuple(costs), most=2.0)


def _upgrade(catalog: Catalog, name: str, versions: list[Tool], count: int) -> None:
    for number in range(count):
        catalog.tools[name] = versions[number % 2]


def _searches(catalog: Catalog, query: str, grants: frozenset[str], limit: int, count: int) -> Callable[[], None]:
    return _repeated(lambda: catalog.search(query, grants, limit), count)


def _repeated(call: Callable[[], object], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            call()

    return run


def _bits(numbers: set[int]) -> int:
    array = bytearray(max(numbers, default=0) // 8 + 1)
    for number in numbers:
        array[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(array, "little")
