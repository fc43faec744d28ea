"""Which tools have which words: the index behind `indexed_catalog`, fast for a rare word and for a common one.

Every tool has a number. For each key (a keyword, or a permission) the index keeps the set of the
numbers that have it. A search then never reads the catalog; it works on those sets alone:

- *few matches in a large catalog*: count the numbers of the sets. The cost follows the matches, whatever the
  size of the catalog, so that a rare word costs the same among 3,000 tools and among 300,000;
- *otherwise*: each set becomes one Python integer with a bit for each number, and whole sets are
  combined at once (`&` on 100,000 tools takes two microseconds; looking at 100 tools one by one takes
  twenty). The numbers follow the names, so that the lowest bits are the first names and the best few are
  taken without sorting the matches; and where the first names hold enough of the best, nothing else is read.

How bits give scores: adding one bit a tool, with no carry from tool to tool, needs one integer for each
binary digit of the score (`_sum`). Score 2 is then "digit 1 and not digit 0" (`_with_score`).

A new name cannot get a number in the middle, so it gets a *late* number after all others, and late
numbers are put in order by name one by one. When there are more than `MAX_LATE` of them, or that many
more gaps than tools, the next search numbers all tools anew; a change itself costs what the words of
the one tool cost.

It knows nothing of grants beyond a set of words that a tool's permission must be in, and nothing of
definitions. One thread at a time. Source: claims C10-035 to C10-040.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_, attrgetter, or_
from typing import Final

from chapter10.catalog import Tool

__all__ = ["FEW", "FEW_SHARE", "FIRST", "MAX_KEPT_BYTES", "MAX_LATE", "Key", "Postings", "ToolIndex"]

FEW: Final = 16
"""Matches that are always counted one by one, and so is one match in `FEW_SHARE` tools more."""
FEW_SHARE: Final = 1024
FIRST: Final = 2048
"""So many first names are tried alone; in a catalog of no more, an integer is as cheap as a number."""
MAX_LATE: Final = 512
"""Late numbers that a search puts in order itself before it has all tools numbered anew."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the integers that are kept; past it all are dropped, and made again when they are asked for."""

_WINDOW: Final = 512  # bits that are looked at one by one
_ALL: Final = -1

Key = str | tuple[str]
"""A word with its case folded, or a permission as a tuple of one, which no word is."""

_by_name = attrgetter("name")


class Postings:
    """For each key the numbers that have it: as a set, and as an integer once that was asked for."""

    def __init__(self, rows: Iterable[Iterable[Key]]) -> None:
        """Note the keys of the numbers 0, 1, 2 and so on."""
        self._sets: defaultdict[Key, set[int]] = defaultdict(set)  # none is empty
        self._bits: dict[Key, int] = {}  # in step with the sets
        for number, keys in enumerate(rows):
            for key in keys:
                self._sets[key].add(number)

    def add(self, key: Key, number: int) -> None:
        """Note that `number` has `key`."""
        self._sets[key].add(number)
        if key in self._bits:
            self._bits[key] |= 1 << number

    def remove(self, key: Key, number: int) -> None:
        """Take `number` away from `key`, which has it."""
        self._sets[key].remove(number)
        if key in self._bits:
            self._bits[key] ^= 1 << number
        if not self._sets[key]:
            del self._sets[key]
            self._bits.pop(key, None)

    def sets(self, keys: Iterable[Key]) -> list[set[int]]:
        """Return for each of `keys` that some tool has its numbers, for reading only."""
        return [self._sets[key] for key in keys if key in self._sets]

    def bits(self, keys: Iterable[Key], size: int) -> list[int]:
        """Return for each of `keys` that some tool has its numbers as an integer; `size` is above every number."""
        return [self._bits.get(key) or self._make_bits(key, size) for key in keys if key in self._sets]

    def _make_bits(self, key: Key, size: int) -> int:
        array = bytearray(size // 8 + 1)
        for number in self._sets[key]:
            array[number >> 3] |= 1 << (number & 7)
        if (len(self._bits) + 1) * size > MAX_KEPT_BYTES * 8:
            self._bits.clear()
        self._bits[key] = bits = int.from_bytes(array, "little")
        return bits


class ToolIndex:
    """The tools by number and their keys, always in step."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Number `tools`, which have distinct names, in the order of their names."""
        self._tools = sorted(tools, key=_by_name)  # one that is gone stays here, in no posting and in no `_number`
        self._number = {tool.name: number for number, tool in enumerate(self._tools)}
        self._in_step = len(self._tools)  # numbers below it follow the names, the late ones do not
        self._postings = Postings(map(_keys, self._tools))
        self._seen: tuple[frozenset[str], int] = (frozenset(), 0)  # the last grants, and what they may see as bits

    def put(self, tool: Tool) -> None:
        """Add `tool`, or let it take the place of the one with its name. Costs what its keys cost."""
        number = self._number.get(tool.name)
        before: set[Key] = set()
        if number is None:
            number = self._number[tool.name] = len(self._tools)
            self._tools.append(tool)
        else:
            before = _keys(self._tools[number])
            self._tools[number] = tool
        self._change(number, before, _keys(tool))

    def discard(self, name: str) -> None:
        """Take out the tool called `name`, which is there; its number becomes a gap."""
        number = self._number.pop(name)
        self._change(number, _keys(self._tools[number]), set())

    def _change(self, number: int, before: set[Key], after: set[Key]) -> None:
        if before != after:
            self._seen = (frozenset(), 0)
        for key in before - after:
            self._postings.remove(key, number)
        for key in after - before:
            self._postings.add(key, number)

    def best(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, Tool]]:
        """Return the score and the tool of at most `limit` with a permission in `grants`, score down, then name.

        The score is the number of `words` (distinct, case folded) that the tool has, and at least 1.
        """
        late, gaps = len(self._tools) - self._in_step, len(self._tools) - len(self._number)
        if late > MAX_LATE or gaps > len(self._number) + MAX_LATE:
            ToolIndex.__init__(self, [self._tools[number] for number in self._number.values()])
        if len(self._tools) > FIRST:
            matches = self._postings.sets(words)
            if sum(map(len, matches)) <= FEW + len(self._tools) // FEW_SHARE:
                return self._best_by_counting(matches, grants, limit)
        return self._best_by_bits(words, grants, limit)

    def _best_by_counting(self, matches: list[set[int]], grants: frozenset[str], limit: int) -> list[tuple[int, Tool]]:
        found = {number: self._tools[number] for number in set().union(*matches)}
        scores = Counter(n for numbers in matches for n in numbers if found[n].permission in grants)
        seen = [(score, found[number]) for number, score in scores.items()]
        return sorted(seen, key=lambda each: (-each[0], each[1].name))[:limit]

    def _best_by_bits(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, Tool]]:
        """Go down from the tools that have every word; scores are counted only while there are too few."""
        size = len(self._tools)
        sets = self._postings.bits(words, size)
        if self._seen[0] != grants:
            permissions = self._postings.bits([(permission,) for permission in grants], size)
            self._seen = (grants, reduce(or_, permissions, 0))
        visible = self._seen[1]
        # In a large catalog the first names are tried alone: `&` reads no more than the shorter integer has.
        parts = [(1 << FIRST) - 1, _ALL] if size == self._in_step and size > FIRST else [_ALL]
        digits: dict[int, list[int]] = {}  # of a part, once they were needed
        found: list[tuple[int, Tool]] = []
        for score in range(len(sets), 0, -1):
            for part in parts:
                seen = visible if part == _ALL else visible & part
                if score == len(sets):
                    bits = reduce(and_, sets, seen)
                else:
                    if part not in digits:
                        digits[part] = _sum([seen & bits for bits in sets])
                    bits = _with_score(digits[part], score)
                if part == _ALL or bits.bit_count() >= limit:
                    first = self._first(bits, limit)
                    found += [(score, tool) for tool in first]
                    limit -= len(first)
                    break
            if not limit:
                break
        return found

    def _first(self, bits: int, limit: int) -> list[Tool]:
        """Return the first `limit` tools of `bits` by name."""
        numbers = _lowest(bits, limit)
        late = bits >> self._in_step
        if not late:
            return [self._tools[number] for number in numbers]
        late_ones = [self._in_step + number for number in _lowest(late, late.bit_length())]
        return sorted((self._tools[number] for number in {*numbers, *late_ones}), key=_by_name)[:limit]


def _keys(tool: Tool) -> set[Key]:
    return {*tool.words, (tool.permission,)}


def _lowest(bits: int, limit: int) -> list[int]:
    """Return the positions of the `limit` lowest bits, ascending; a large integer is gone through in windows."""
    found: list[int] = []
    start = 0
    while bits and len(found) < limit:
        window = bits & ((1 << _WINDOW) - 1)
        zeros = _WINDOW if window else (bits & -bits).bit_length() - 1
        while window and len(found) < limit:
            lowest = window & -window
            found.append(start + lowest.bit_length() - 1)
            window ^= lowest
        bits >>= zeros
        start += zeros
    return found


def _sum(sets: Iterable[int]) -> list[int]:
    """Return integers `digits` so that the binary digit `i` of a tool's score is its bit in `digits[i]`."""
    digits: list[int] = []
    for carry in sets:
        for place, digit in enumerate(digits):
            digits[place], carry = digit ^ carry, digit & carry
        if carry:
            digits.append(carry)
    return digits


def _with_score(digits: Sequence[int], score: int) -> int:
    """Return the tools whose digits are those of `score`, which is at least 1."""
    if score >> len(digits):
        return 0
    bits = _ALL
    for place, digit in enumerate(digits):
        bits &= digit if score >> place & 1 else ~digit
    return bits
