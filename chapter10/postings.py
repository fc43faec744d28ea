"""Which tools have which words: the index behind `catalog`, fast for a rare word and for a common one.

Every tool has a number. For each word (a keyword, or a permission) the index keeps the set of the
numbers that have it. A search then never reads the catalog; it works on those sets alone:

- *rare words only*: count the numbers of their sets. The cost is the number of matches, whatever the
  size of the catalog;
- *a common word among them*: each set becomes one Python integer with a bit for each number, and whole
  sets are combined at once. The numbers follow the names, so that the lowest bits are the first names
  and the best few are taken without sorting the matches.

How bits give scores: adding integers of one bit a tool, without carrying from tool to tool, needs one
integer for each binary digit of the score (`_bit_sliced_sum`). Score 3 is then "digit 1 and digit 0".

A new name cannot get a number in the middle, so it gets a *late* number after all others, and late
numbers are put in order by name one by one. When there are more than `MAX_LATE` of them, or more gaps
than tools, the next search numbers all tools anew, so that a change itself costs what the one tool has.

It knows nothing of grants beyond a set of words that a tool's permission must be in, and nothing of
definitions. One thread at a time. Source: claims C10-035 to C10-040.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["COMMON", "MAX_LATE", "MAX_VIEWS", "Indexed", "Postings", "ToolIndex"]

COMMON: Final = 256
"""A word is common when one tool in so many has it. Its integer then takes no more room than its set."""
MAX_LATE: Final = 512
"""Late numbers that a search puts in order itself before it has all tools numbered anew."""
MAX_VIEWS: Final = 64
"""Different sets of grants whose visible tools are remembered."""

_CHUNK: Final = 32
"""Bytes that are turned into single bits at a time."""


class Indexed(Protocol):
    """What the index needs of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def permission(self) -> str: ...
    @property
    def words(self) -> frozenset[str]: ...


ToolT = TypeVar("ToolT", bound=Indexed)


class Postings:
    """For each word the numbers that have it, as a set, and for a common word as an integer too."""

    __slots__ = ("_bits", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[str, set[int]] = {}
        self._bits: dict[str, int] = {}  # made at the first use, then kept in step

    def add(self, word: str, number: int) -> None:
        """Note that `number` has `word`."""
        numbers = self._numbers.get(word)
        if numbers is None:
            self._numbers[word] = {number}
            return
        numbers.add(number)
        if word in self._bits:
            self._bits[word] |= 1 << number

    def remove(self, word: str, number: int) -> None:
        """Take `number` away from `word`, which has it."""
        numbers = self._numbers[word]
        numbers.discard(number)
        if word in self._bits:
            self._bits[word] &= ~(1 << number)
        if not numbers:
            del self._numbers[word]
            self._bits.pop(word, None)

    def numbers(self, word: str) -> set[int] | None:
        """Return the set of `word`, for reading only, or None when no tool has it."""
        return self._numbers.get(word)

    def bits(self, word: str, size: int) -> int:
        """Return the numbers of a known `word` as an integer; `size` is above every number."""
        bits = self._bits.get(word)
        if bits is None:
            numbers = self._numbers[word]
            bits = _as_bits(numbers, size)
            if len(numbers) * COMMON >= size:
                self._bits[word] = bits
        return bits


class ToolIndex(Generic[ToolT]):
    """The tools by number, their words and their permissions, always in step."""

    def __init__(self, tools: Iterable[ToolT] = ()) -> None:
        """Number `tools`, which have distinct names, in the order of their names."""
        self._number_anew(tools)

    def _number_anew(self, tools: Iterable[ToolT]) -> None:
        self._tools: list[ToolT | None] = []  # None: a gap, its tool is gone
        self._words = Postings()
        self._permissions = Postings()
        self._views: dict[frozenset[str], int] = {}  # grants -> the tools that they may see
        self._in_step = 0  # numbers below it follow the names, the late ones do not
        self._live = 0
        self._number: dict[str, int] = {}
        for tool in sorted(tools, key=_name):
            self._append(tool)
        self._in_step = len(self._tools)

    # Changes. Each costs what the words of the one tool cost.

    def put(self, tool: ToolT) -> None:
        """Add `tool`, or let it take the place of the one with its name."""
        number = self._number.get(tool.name)
        old = None if number is None else self._tools[number]
        if number is None or old is None:
            self._append(tool)
            return
        self._tools[number] = tool
        for word in old.words - tool.words:
            self._words.remove(word, number)
        for word in tool.words - old.words:
            self._words.add(word, number)
        if old.permission != tool.permission:
            self._permissions.remove(old.permission, number)
            self._permissions.add(tool.permission, number)
            self._views.clear()

    def discard(self, name: str) -> None:
        """Take out the tool called `name`, which is there; its number becomes a gap."""
        number = self._number.pop(name)
        tool = self._tools[number]
        assert tool is not None
        self._tools[number] = None
        self._live -= 1
        for word in tool.words:
            self._words.remove(word, number)
        self._permissions.remove(tool.permission, number)
        self._views.clear()

    def _append(self, tool: ToolT) -> None:
        number = len(self._tools)
        self._tools.append(tool)
        self._number[tool.name] = number
        self._live += 1
        for word in tool.words:
            self._words.add(word, number)
        self._permissions.add(tool.permission, number)
        if self._views:
            self._views.clear()

    # Questions.

    def best(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, ToolT]]:
        """Return at most `limit` pairs (score, tool): score down, then name; only permissions in `grants`.

        The score is the number of `words` (distinct) that the tool has, and at least 1.
        """
        self._tidy()
        known = [word for word in words if self._words.numbers(word)]
        common = len(self._tools)
        if all(len(self._words.numbers(word) or ()) * COMMON < common for word in known):
            return self._best_by_counting(known, grants, limit)
        return self._best_by_bits(known, grants, limit)

    def visible(self, grants: frozenset[str]) -> list[ToolT]:
        """Return the tools whose permission is in `grants`, by name."""
        self._tidy()
        numbers = (number for permission in grants for number in self._permissions.numbers(permission) or ())
        return sorted((tool for number in numbers if (tool := self._tools[number]) is not None), key=_name)

    def _best_by_counting(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, ToolT]]:
        tools = self._tools
        scores: dict[int, int] = {}
        hidden: set[int] = set()
        for word in words:
            for number in self._words.numbers(word) or ():
                if number in scores:
                    scores[number] += 1
                elif number not in hidden:
                    tool = tools[number]
                    if tool is not None and tool.permission in grants:
                        scores[number] = 1
                    else:
                        hidden.add(number)
        pairs = [(score, tool) for number, score in scores.items() if (tool := tools[number]) is not None]
        if len(pairs) <= limit:
            return sorted(pairs, key=_rank)
        return nsmallest(limit, pairs, key=_rank)

    def _best_by_bits(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, ToolT]]:
        size = len(self._tools)
        visible = self._view(grants)
        sets = [self._words.bits(word, size) for word in words]
        # Most searches end here: enough tools have every word, and no score need be counted.
        all_words = visible
        for bits in sets:
            all_words &= bits
        found = [(len(sets), tool) for tool in self._first(all_words, limit)]
        if len(found) == limit or len(sets) == 1:
            return found
        for score, bits in _by_score(_bit_sliced_sum([visible & bits for bits in sets])):
            if score < len(sets):
                found += [(score, tool) for tool in self._first(bits, limit - len(found))]
            if len(found) == limit:
                break
        return found

    def _first(self, bits: int, limit: int) -> list[ToolT]:
        """Return the first `limit` tools of `bits` by name."""
        late = bits >> self._in_step
        numbers = _lowest(bits, limit)
        if late:
            numbers = [number for number in numbers if number < self._in_step]
            numbers += [self._in_step + number for number in _lowest(late, late.bit_length())]
        tools = [tool for number in numbers if (tool := self._tools[number]) is not None]
        return sorted(tools, key=_name)[:limit] if late else tools

    def _view(self, grants: frozenset[str]) -> int:
        """Return the tools that `grants` may see as bits, worked out once for each value of grants."""
        view = self._views.get(grants)
        if view is None:
            view = 0
            for permission in grants:
                if self._permissions.numbers(permission):
                    view |= self._permissions.bits(permission, len(self._tools))
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            self._views[grants] = view
        return view

    def _tidy(self) -> None:
        late = len(self._tools) - self._in_step
        gaps = len(self._tools) - self._live
        if late > MAX_LATE or gaps > self._live + MAX_LATE:
            self._number_anew([tool for tool in self._tools if tool is not None])


def _name(tool: Indexed) -> str:
    return tool.name


def _rank(pair: tuple[int, Indexed]) -> tuple[int, str]:
    return -pair[0], pair[1].name


def _as_bits(numbers: Iterable[int], size: int) -> int:
    """Return an integer with the bits `numbers`, all below `size`."""
    array = bytearray(size // 8 + 1)
    for number in numbers:
        array[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(array, "little")


def _lowest(bits: int, limit: int) -> list[int]:
    """Return the positions of the `limit` lowest bits of `bits`, ascending.

    Taking `bits & -bits` again and again would walk the whole integer for each; bytes are searched
    for the first that is not zero, and only a chunk of them becomes an integer.
    """
    found: list[int] = []
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    position = 0
    while len(found) < limit:
        rest = data.lstrip(b"\0")
        if not rest:
            break
        position += 8 * (len(data) - len(rest))
        chunk = int.from_bytes(rest[:_CHUNK], "little")
        while chunk and len(found) < limit:
            lowest = chunk & -chunk
            found.append(position + lowest.bit_length() - 1)
            chunk ^= lowest
        data = rest[_CHUNK:]
        position += 8 * _CHUNK
    return found


def _bit_sliced_sum(sets: Iterable[int]) -> list[int]:
    """Return integers `digits` so that the binary digit `i` of a tool's score is its bit in `digits[i]`."""
    digits: list[int] = []
    for carry in sets:
        for place, digit in enumerate(digits):
            digits[place], carry = digit ^ carry, digit & carry
            if not carry:
                break
        if carry:
            digits.append(carry)
    return digits


def _by_score(digits: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (score, tools with that score as bits) from the highest score down to 1; none is empty."""
    anyone = 0
    for digit in digits:
        anyone |= digit
    pending = [(0, len(digits), anyone)]  # a stack: (score so far, digits not looked at yet, tools)
    while pending:
        score, places, bits = pending.pop()
        if not bits:
            continue
        if not places:
            yield score, bits
            continue
        have = bits & digits[places - 1]
        pending.append((score, places - 1, bits ^ have))
        pending.append((score + (1 << (places - 1)), places - 1, have))
