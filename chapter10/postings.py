"""Which tools have which words: the index behind `catalog`, fast for a rare word and for a common one.

Every tool has a number. For each word (a keyword, or a permission) the index keeps the set of the
numbers that have it. A search then never reads the catalog; it works on those sets alone:

- *few matches in a large catalog*: count the numbers of the sets. The cost follows the matches, whatever the
  size of the catalog, so that a rare word costs the same among 3,000 tools and among 300,000;
- *otherwise*: each set becomes one Python integer with a bit for each number, and whole sets are
  combined at once (`&` on 100,000 tools takes less than a microsecond; looking at 100 tools one by one
  takes twenty). The numbers follow the names, so that the lowest bits are the first names and the best
  few are taken without sorting the matches.

How bits give scores: adding one bit a tool, with no carry from tool to tool, needs one integer for each
binary digit of the score (`_bit_sliced_sum`). Score 2 is then "digit 1 and not digit 0".

A new name cannot get a number in the middle, so it gets a *late* number after all others, and late
numbers are put in order by name one by one. When there are more than `MAX_LATE` of them, or that many
more gaps than tools, the next search numbers all tools anew; a change itself costs what the words of
the one tool cost.

It knows nothing of grants beyond a set of words that a tool's permission must be in, and nothing of
definitions. One thread at a time. Source: claims C10-035 to C10-040.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["FEW", "FEW_SHARE", "MAX_KEPT_BYTES", "MAX_LATE", "MAX_VIEWS", "Indexed", "Postings", "ToolIndex"]

FEW: Final = 16
"""Matches that are always counted one by one, and so is one match in `FEW_SHARE` tools more."""
FEW_SHARE: Final = 1024
MAX_LATE: Final = 512
"""Late numbers that a search puts in order itself before it has all tools numbered anew."""
MAX_VIEWS: Final = 64
"""Different sets of grants whose visible tools are remembered."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the integers that are kept; past it all are dropped, and made again when they are asked for."""

_SMALL: Final = 2048
"""Up to so many tools an integer is as cheap as a number, and is always used."""
_WINDOWS: Final = ((512, (1 << 4096) - 1), (4096, (1 << 32768) - 1))
"""How many of the lowest bytes of an integer are looked at, in turn, before all of them."""


class Indexed(Protocol):
    """What the index needs of a tool. `words` are as they are looked up; one may stand twice."""

    @property
    def name(self) -> str: ...
    @property
    def permission(self) -> str: ...
    @property
    def words(self) -> Sequence[str]: ...


ToolT = TypeVar("ToolT", bound=Indexed)
_by_name = attrgetter("name")
_words = attrgetter("words")
_permission = attrgetter("permission")


class Postings:
    """For each word the numbers that have it: as a set, and as an integer once that was asked for."""

    __slots__ = ("_bits", "_numbers")

    def __init__(self) -> None:
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)  # no set in it is empty
        self._bits: dict[str, int] = {}  # in step with the sets

    def fill(self, rows: Iterable[Sequence[str]]) -> None:
        """Add the words of the numbers 0, 1, 2 and so on, before any integer was asked for."""
        numbers = self._numbers
        for number, words in enumerate(rows):
            for word in words:
                numbers[word].add(number)

    def add(self, word: str, number: int) -> None:
        """Note that `number` has `word`."""
        self._numbers[word].add(number)
        if word in self._bits:
            self._bits[word] |= 1 << number

    def remove(self, word: str, number: int) -> None:
        """Take `number` away from `word`, which has it."""
        numbers = self._numbers[word]
        numbers.remove(number)
        if word in self._bits:
            self._bits[word] ^= 1 << number
        if not numbers:
            del self._numbers[word]
            self._bits.pop(word, None)

    def numbers(self, word: str) -> set[int] | None:
        """Return the set of `word`, for reading only, or None when no tool has it."""
        return self._numbers.get(word)

    def known(self, words: Iterable[str]) -> tuple[list[str], int]:
        """Return those of `words` that some tool has, and how many numbers their sets have together."""
        sizes = {word: len(numbers) for word in words if (numbers := self._numbers.get(word))}
        return list(sizes), sum(sizes.values())

    def bits(self, words: Iterable[str], size: int) -> list[int]:
        """Return for each of `words` that some tool has its numbers as an integer; `size` is above every number."""
        kept, numbers = self._bits, self._numbers
        found = []
        for word in words:
            if word in kept:
                found.append(kept[word])
            elif word in numbers:
                found.append(self._make_bits(word, size))
        return found

    def _make_bits(self, word: str, size: int) -> int:
        numbers = self._numbers[word]
        bits = _as_bits(numbers, size)
        if len(numbers) > size // FEW_SHARE:
            if (len(self._bits) + 1) * size > MAX_KEPT_BYTES * 8:
                self._bits.clear()
            self._bits[word] = bits
        return bits


class ToolIndex(Generic[ToolT]):
    """The tools by number, their words and their permissions, always in step."""

    def __init__(self, tools: Iterable[ToolT] = ()) -> None:
        """Number `tools`, which have distinct names, in the order of their names."""
        self._number_anew(tools)

    def _number_anew(self, tools: Iterable[ToolT]) -> None:
        in_order = sorted(tools, key=_by_name)
        self._tools: list[ToolT | None] = [*in_order]  # None: a gap, its tool is gone
        self._number = dict(zip(map(_by_name, in_order), range(len(in_order)), strict=True))
        self._in_step = len(in_order)  # numbers below it follow the names, the late ones do not
        self._words = Postings()
        self._words.fill(map(_words, in_order))
        self._permissions = Postings()
        self._permissions.fill(zip(map(_permission, in_order), strict=True))
        self._views: dict[frozenset[str], int] = {}  # grants -> the tools that they may see

    # Changes. Each costs what the words of the one tool cost.

    def put(self, tool: ToolT) -> None:
        """Add `tool`, or let it take the place of the one with its name."""
        number = self._number.get(tool.name)
        if number is None:
            self._append(tool)
            return
        old = self._at(number)
        self._tools[number] = tool
        if old.words != tool.words:
            before, after = set(old.words), set(tool.words)
            for word in before - after:
                self._words.remove(word, number)
            for word in after - before:
                self._words.add(word, number)
        if old.permission != tool.permission:
            self._permissions.remove(old.permission, number)
            self._permissions.add(tool.permission, number)
            self._views.clear()

    def discard(self, name: str) -> None:
        """Take out the tool called `name`, which is there; its number becomes a gap."""
        number = self._number.pop(name)
        tool = self._at(number)
        self._tools[number] = None
        for word in set(tool.words):
            self._words.remove(word, number)
        self._permissions.remove(tool.permission, number)
        self._views.clear()

    def _append(self, tool: ToolT) -> None:
        number = self._number[tool.name] = len(self._tools)
        self._tools.append(tool)
        for word in tool.words:
            self._words.add(word, number)
        self._permissions.add(tool.permission, number)
        self._views.clear()

    def _at(self, number: int) -> ToolT:
        tool = self._tools[number]
        assert tool is not None  # a number in `_number` or in a posting is no gap
        return tool

    # Questions.

    def best(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, ToolT]]:
        """Return at most `limit` pairs (score, tool): score down, then name; only permissions in `grants`.

        The score is the number of `words` (distinct) that the tool has, and at least 1.
        """
        self._tidy()
        if len(self._tools) > _SMALL:
            words, matches = self._words.known(words)
            if matches <= FEW + len(self._tools) // FEW_SHARE:
                return self._best_by_counting(words, grants, limit)
        return self._best_by_bits(words, grants, limit)

    def visible(self, grants: frozenset[str]) -> list[ToolT]:
        """Return the tools whose permission is in `grants`, by name."""
        sets = [numbers for permission in grants if (numbers := self._permissions.numbers(permission))]
        return sorted((self._at(number) for numbers in sets for number in numbers), key=_by_name)

    def _best_by_counting(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, ToolT]]:
        scores: dict[int, int] = {}
        for word in words:
            for number in self._words.numbers(word) or ():
                if number in scores:
                    scores[number] += 1
                elif self._at(number).permission in grants:
                    scores[number] = 1
        pairs = [(score, self._at(number)) for number, score in scores.items()]
        return sorted(pairs, key=_rank) if len(pairs) <= limit else nsmallest(limit, pairs, key=_rank)

    def _best_by_bits(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, ToolT]]:
        visible = self._view(grants)
        sets = [visible & bits for bits in self._words.bits(words, len(self._tools))]
        if not sets:
            return []
        # Most searches end here: enough tools have every word, and no score need be counted.
        all_words = sets[0]
        for bits in sets:
            all_words &= bits
        found = [(len(sets), tool) for tool in self._first(all_words, limit)] if all_words else []
        if len(found) == limit or len(sets) == 1:
            return found
        for score, bits in _by_score(_bit_sliced_sum(sets)):
            if score < len(sets):
                found += [(score, tool) for tool in self._first(bits, limit - len(found))]
                if len(found) == limit:
                    break
        return found

    def _first(self, bits: int, limit: int) -> list[ToolT]:
        """Return the first `limit` tools of `bits` by name."""
        tools = self._tools
        late = bits >> self._in_step if self._in_step < len(tools) else 0
        if not late:
            return [tool for number in _lowest(bits, limit) if (tool := tools[number]) is not None]
        numbers = [number for number in _lowest(bits, limit) if number < self._in_step]
        numbers += [self._in_step + number for number in _lowest(late, late.bit_length())]
        return sorted(map(self._at, numbers), key=_by_name)[:limit]

    def _view(self, grants: frozenset[str]) -> int:
        """Return the tools that `grants` may see as bits, worked out once for each value of grants."""
        view = self._views.get(grants)
        if view is None:
            view = 0
            permissions, _ = self._permissions.known(grants)
            for bits in self._permissions.bits(permissions, len(self._tools)):
                view |= bits
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            self._views[grants] = view
        return view

    def _tidy(self) -> None:
        """Number all tools anew when there are too many late numbers or gaps."""
        total, live = len(self._tools), len(self._number)
        if total - self._in_step > MAX_LATE or total - live > live + MAX_LATE:
            self._number_anew([tool for tool in self._tools if tool is not None])


def _rank(pair: tuple[int, Indexed]) -> tuple[int, str]:
    return -pair[0], pair[1].name


def _as_bits(numbers: set[int], size: int) -> int:
    """Return an integer with the bits `numbers`, all below `size`."""
    if len(numbers) <= FEW:
        bits = 0
        for number in numbers:
            bits |= 1 << number
        return bits
    array = bytearray(size // 8 + 1)
    for number in numbers:
        array[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(array, "little")


def _lowest(bits: int, limit: int) -> list[int]:
    """Return the positions of the `limit` lowest bits of `bits`, ascending.

    Taking `bits & -bits` again and again walks the whole integer for each, which is the fastest way while
    the integer is small. Of a large one the lowest part, which is often enough, becomes bytes, and they are
    searched for what is not zero; then a larger part.
    """
    found: list[int] = []
    size = bits.bit_length()
    if size <= _SMALL:
        while bits:
            lowest = bits & -bits
            found.append(lowest.bit_length() - 1)
            if len(found) == limit:
                break
            bits ^= lowest
        return found
    length = (size + 7) // 8
    seen = 0
    for size, mask in _WINDOWS:
        if size < length:
            data = (bits & mask).to_bytes(size, "little")
            found += _lowest_in_bytes(data[seen:], limit - len(found), 8 * seen)
            seen = size
            if len(found) == limit:
                return found
    return found + _lowest_in_bytes(bits.to_bytes(length, "little")[seen:], limit - len(found), 8 * seen)


def _lowest_in_bytes(data: bytes, limit: int, offset: int) -> list[int]:
    found: list[int] = []
    end = offset + 8 * len(data)
    while data := data.lstrip(b"\0"):
        position = end - 8 * len(data)
        eight = int.from_bytes(data[:8], "little")
        while eight:
            lowest = eight & -eight
            found.append(position + lowest.bit_length() - 1)
            if len(found) == limit:
                return found
            eight ^= lowest
        data = data[8:]
    return found


def _bit_sliced_sum(sets: Iterable[int]) -> list[int]:
    """Return integers `digits` so that the binary digit `i` of a tool's score is its bit in `digits[i]`."""
    digits: list[int] = []
    for carry in sets:
        for place, digit in enumerate(digits):
            if not carry:
                break
            digits[place], carry = digit ^ carry, digit & carry
        if carry:
            digits.append(carry)
    return digits


def _by_score(digits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (score, tools with that score as bits) from the highest score down to 1; none is empty."""
    pending = [(0, len(digits), -1)]  # a stack: (score so far, digits not looked at yet, tools); -1 is all
    while pending:
        score, places, bits = pending.pop()
        if not places:
            if score:
                yield score, bits
            continue
        have = bits & digits[places - 1]
        if bits != have:
            pending.append((score, places - 1, bits ^ have))
        if have:
            pending.append((score + (1 << (places - 1)), places - 1, have))
