"""Which tools have which words: the index behind `catalog`, fast for a rare word and for a common one.

Every tool has a number. For each word (a keyword, or a permission) the index keeps the set of the
numbers that have it. A search then never reads the catalog; it works on those sets alone:

- *few matches in a large catalog*: count the numbers of the sets. The cost follows the matches, whatever the
  size of the catalog, so that a rare word costs the same among 3,000 tools and among 300,000;
- *otherwise*: each set becomes one Python integer with a bit for each number, and whole sets are
  combined at once (`&` on 100,000 tools takes two microseconds; looking at 100 tools one by one takes
  twenty). The numbers follow the names, so that the lowest bits are the first names and the best few are
  taken without sorting the matches; and where the first 512 or 4,096 names hold enough of the best, nothing
  else is read, so that a common word costs the same in a catalog of any size.

How bits give scores: adding one bit a tool, with no carry from tool to tool, needs one integer for each
binary digit of the score (`_bit_sliced_sum`). Score 2 is then "digit 1 and not digit 0". Two or three words
need no sum (`_lower_scores`).

A new name cannot get a number in the middle, so it gets a *late* number after all others, and late
numbers are put in order by name one by one. When there are more than `MAX_LATE` of them, or that many
more gaps than tools, the next search numbers all tools anew; a change itself costs what the words of
the one tool cost.

It knows nothing of grants beyond a set of words that a tool's permission must be in, and nothing of
definitions. One thread at a time. Source: claims C10-035 to C10-040.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

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

_GAP: Final[Any] = None
"""Stands where a tool is gone."""
_SMALL: Final = 2048
"""Up to so many tools an integer is as cheap as a number, and is always used."""
_WINDOWS: Final = (64, 512, 4096)
"""How many of the lowest bytes of an integer are looked at, in turn, before all of them."""
_PREFIXES: Final = tuple((1 << 8 * size) - 1 for size in _WINDOWS)
_PLACES: Final = tuple(tuple(place for place in range(8) if byte >> place & 1) for byte in range(256))
"""For each byte the places of its bits; to look them up costs a third of taking an integer apart bit by bit."""
_DIGITS: Final = bytes.maketrans(b"01", b"\0\1")
_MANY: Final = 32
"""So many hits of a small catalog are taken all at once, for then it pays to look at every bit."""
_STRIDE: Final = 8
"""After so many bytes, zeros are skipped at once instead of one by one."""


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
    """For each word the numbers that have it: as a set, and as an integer once that was asked for.

    A number that has a word alone stands there without a set, which would take more memory than its tool:
    most words of a large catalog are had by one tool.
    """

    __slots__ = ("_bits", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[str, int | set[int]] = {}  # no set in it is empty
        self._bits: dict[str, int] = {}  # in step with the numbers

    def fill(self, rows: Iterable[Sequence[str]]) -> None:
        """Add the words of the numbers 0, 1, 2 and so on, before any integer was asked for."""
        numbers = self._numbers
        for number, words in enumerate(rows):
            for word in words:  # as in `add`, without a call for each word
                held = numbers.setdefault(word, number)
                if isinstance(held, set):
                    held.add(number)
                elif held != number:
                    numbers[word] = {held, number}

    def add(self, word: str, number: int) -> None:
        """Note that `number` has `word`."""
        held = self._numbers.setdefault(word, number)
        if isinstance(held, set):
            held.add(number)
        elif held != number:
            self._numbers[word] = {held, number}
        if word in self._bits:
            self._bits[word] |= 1 << number

    def remove(self, word: str, number: int) -> None:
        """Take `number` away from `word`, which has it."""
        held = self._numbers[word]
        if isinstance(held, set) and len(held) > 1:
            held.remove(number)
            if word in self._bits:
                self._bits[word] ^= 1 << number
        else:
            del self._numbers[word]
            self._bits.pop(word, None)

    def numbers(self, words: Iterable[str]) -> list[Collection[int]]:
        """Return for each of `words` that some tool has its numbers, for reading only."""
        held = [numbers for word in words if (numbers := self._numbers.get(word)) is not None]
        return [numbers if isinstance(numbers, set) else (numbers,) for numbers in held]

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
        [numbers] = self.numbers([word])
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
        self._tools = in_order  # a gap is in no posting and in no `_number`
        self._number = dict(zip(map(_by_name, in_order), range(len(in_order)), strict=True))
        self._in_step = len(in_order)  # numbers below it follow the names, the late ones do not
        # What is tried in vain must not cost much beside the whole.
        self._prefixes = [prefix for prefix in _PREFIXES if _SMALL < len(in_order) > 8 * prefix.bit_length()]
        self._words = Postings()
        self._words.fill(map(_words, in_order))
        self._permissions = Postings()
        self._permissions.fill(zip(map(_permission, in_order), strict=True))
        self._views: dict[frozenset[str], int] = {}  # grants -> the tools that they may see
        self._moved = False  # whether a tool came or went since the last search

    # Changes. Each costs what the words of the one tool cost.

    def put(self, tool: ToolT) -> None:
        """Add `tool`, or let it take the place of the one with its name."""
        number = self._number.get(tool.name)
        if number is None:
            self._append(tool)
            return
        old = self._tools[number]
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
        """Take out the tool called `name`, which is there; its number becomes a gap, which a view may go on to hold."""
        number = self._number.pop(name)
        tool = self._tools[number]
        self._tools[number] = _GAP
        for word in set(tool.words):
            self._words.remove(word, number)
        self._permissions.remove(tool.permission, number)
        self._moved = True

    def _append(self, tool: ToolT) -> None:
        number = self._number[tool.name] = len(self._tools)
        self._tools.append(tool)
        for word in tool.words:
            self._words.add(word, number)
        self._permissions.add(tool.permission, number)
        self._views.clear()
        self._moved = True

    # Questions.

    def best(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, list[ToolT]]]:
        """Return at most `limit` tools with a permission in `grants`, as (score, tools): score down, tools by name.

        The score is the number of `words` (distinct) that the tool has, and at least 1.
        """
        if self._moved:
            self._tidy()
        if len(self._tools) > _SMALL:
            matches = self._words.numbers(words)
            if sum(map(len, matches)) <= FEW + len(self._tools) // FEW_SHARE:
                return self._best_by_counting(matches, grants, limit)
        return self._best_by_bits(words, grants, limit)

    def visible(self, grants: frozenset[str]) -> list[ToolT]:
        """Return the tools whose permission is in `grants`, by name."""
        sets = self._permissions.numbers(grants)
        return sorted((self._tools[number] for numbers in sets for number in numbers), key=_by_name)

    def _best_by_counting(
        self, matches: Iterable[Iterable[int]], grants: frozenset[str], limit: int
    ) -> list[tuple[int, list[ToolT]]]:
        tools = self._tools
        scores: dict[int, int] = {}
        for numbers in matches:
            for number in numbers:
                if number in scores:
                    scores[number] += 1
                elif tools[number].permission in grants:
                    scores[number] = 1
        groups: defaultdict[int, list[ToolT]] = defaultdict(list)
        for number, score in scores.items():
            groups[score].append(tools[number])
        found = []
        for score in sorted(groups, reverse=True):
            found.append((score, sorted(groups[score], key=_by_name)[:limit]))
            limit -= len(groups[score])
            if limit <= 0:
                break
        return found

    def _best_by_bits(self, words: Iterable[str], grants: frozenset[str], limit: int) -> list[tuple[int, list[ToolT]]]:
        visible = self._views.get(grants)
        if visible is None:
            visible = self._view(grants)
        sets = self._words.bits(words, len(self._tools))
        if not sets:
            return []
        # First come the tools that have every word, and what has fewer is looked at only while there are too few.
        # In a large catalog the first names are tried alone: `&` reads no more than the shorter integer has.
        prefixes = self._prefixes if self._in_step == len(self._tools) else []
        for prefix in prefixes:
            first = visible & prefix
            for bits in sets:
                first &= bits
            if first.bit_count() >= limit:
                return [(len(sets), self._first(first, limit))]
        all_words = first_set = visible & sets[0]
        for bits in sets[1:]:
            all_words &= bits
        found = []
        if all_words:
            found.append((len(sets), self._first(all_words, limit)))
            limit -= len(found[0][1])
        if len(sets) == 1 or not limit:
            return found
        for prefix in prefixes:
            seen = visible & prefix
            score, bits = next(_lower_scores([seen & bits for bits in sets], all_words & prefix), (0, 0))
            if score == len(sets) - 1 and bits.bit_count() >= limit:
                return [*found, (score, self._first(bits, limit))]
        for score, bits in _lower_scores([first_set, *(visible & bits for bits in sets[1:])], all_words):
            if bits:
                found.append((score, self._first(bits, limit)))
                limit -= len(found[-1][1])
                if not limit:
                    break
        return found

    def _first(self, bits: int, limit: int) -> list[ToolT]:
        """Return the first `limit` tools of `bits` by name."""
        tools = self._tools
        late = bits >> self._in_step if self._in_step < len(tools) else 0
        if not late:
            if limit > _MANY and bits.bit_length() <= _SMALL and bits.bit_count() > _MANY:
                return list(islice(compress(tools, _flags(bits)), limit))
            return [tools[number] for number in _lowest(bits, limit)]
        numbers = [number for number in _lowest(bits, limit) if number < self._in_step]
        numbers += [self._in_step + number for number in _lowest(late, late.bit_length())]
        return sorted((tools[number] for number in numbers), key=_by_name)[:limit]

    def _view(self, grants: frozenset[str]) -> int:
        """Return the tools that `grants` may see as bits, worked out once for each value of grants."""
        view = 0
        for bits in self._permissions.bits(grants, len(self._tools)):
            view |= bits
        if len(self._views) >= MAX_VIEWS:
            self._views.clear()
        self._views[grants] = view
        return view

    def _tidy(self) -> None:
        """Number all tools anew when there are too many late numbers or gaps."""
        self._moved = False
        total, live = len(self._tools), len(self._number)
        if total - self._in_step > MAX_LATE or total - live > live + MAX_LATE:
            self._number_anew([tool for tool in self._tools if tool is not _GAP])


def _as_bits(numbers: Collection[int], size: int) -> int:
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


def _flags(bits: int) -> bytes:
    """Return a byte for each bit, the lowest first: 0 or 1. The fastest way to many tools of a small catalog."""
    return f"{bits:b}"[::-1].encode().translate(_DIGITS)


def _lowest(bits: int, limit: int) -> list[int]:
    """Return the positions of the `limit` lowest bits of `bits`, ascending.

    A large integer is not turned into bytes as a whole: its lowest part is often enough; then a larger part.
    """
    found: list[int] = []
    size = bits.bit_length()
    if size <= _SMALL and (limit <= 4 or bits.bit_count() <= 4):
        while bits:
            lowest = bits & -bits
            found.append(lowest.bit_length() - 1)
            if len(found) == limit:
                break
            bits ^= lowest
        return found
    start = 0  # bits below it are found already or were no bits
    for size, prefix in zip(_WINDOWS, _PREFIXES, strict=True):
        if bits <= prefix:
            break
        if not bits & prefix:
            zeros = (bits & -bits).bit_length() - 1
            bits >>= zeros
            start += zeros
        _lowest_in_bytes((bits & prefix).to_bytes(size, "little"), start, limit, found)
        if len(found) == limit:
            return found
        bits >>= 8 * size
        start += 8 * size
    _lowest_in_bytes(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), start, limit, found)
    return found


def _lowest_in_bytes(data: bytes, start: int, limit: int, found: list[int]) -> None:
    """Add to `found` the places of the bits in `data` from the lowest on, plus `start`, until there are `limit`."""
    end = start + 8 * len(data)
    while data := data.lstrip(b"\0"):
        base = end - 8 * len(data)
        for byte in data[:_STRIDE]:
            if byte:
                for place in _PLACES[byte]:
                    found.append(base + place)
                if len(found) >= limit:
                    del found[limit:]
                    return
            base += 8
        data = data[_STRIDE:]


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


def _lower_scores(sets: list[int], all_words: int) -> Iterator[tuple[int, int]]:
    """Yield (score, tools with that score as bits) downwards, from one less than all of `sets` to 1.

    `all_words` are the tools in all of them. Two and three sets are told apart without counting.
    """
    if len(sets) == 2:
        a, b = sets
        yield 1, a ^ b
    elif len(sets) == 3:
        a, b, c = sets
        one_of_two = a ^ b
        yield 2, (a & b | one_of_two & c) ^ all_words
        yield 1, one_of_two ^ c ^ all_words
    else:
        for score, bits in _by_score(_bit_sliced_sum(sets)):
            if score < len(sets):
                yield score, bits


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
