"""The `pattern` of JSON Schema, matched without going back: no expression and no text makes it slow.

A backtracking engine can need longer than the universe for `^(a+)+$` and thirty letters, and its dialect
is not the one that JSON Schema names. Here a pattern becomes a set of states, all states that a prefix
can lead to are walked at once (Thompson's construction), and each step is remembered. The cost is at
most states times characters, and there is a bound on both.

The rule: what means the same in every ECMA 262 engine is taken, everything else is refused by name when
the pattern is compiled.

    taken     characters, `.`, classes with ranges and `^`, `\\d \\w \\s` and their capitals (ASCII digits and
              words, as ECMA says, not Python's), `\\t \\n \\r \\f \\v \\0 \\xHH \\uHHHH \\u{H...}`, a backslash
              before punctuation, `^`, `$`, groups (plain, `(?:`), `|`, and `* + ? {n} {n,} {n,m}`,
              lazy or not (which text matches is the same)
    refused   looking ahead or behind, back references, named groups, flags, `\\b`, `\\B`, `\\p{...}`, `\\c`,
              braces and brackets that are no quantifier and no class

`$` is the end of the text and nothing else (Python's also matches before a last line feed). A pattern is
not anchored: it matches anywhere unless it says otherwise.

Source: the table of keywords in real tool lists; JSON Schema 2020-12, section 6.3.3.
"""

from __future__ import annotations

import string
from typing import Any, Final, NamedTuple, NoReturn

from chapter10.canonical import CodedError

__all__ = [
    "CHARACTERS_A_COMPARISON",
    "MAX_PATTERN",
    "MAX_PATTERN_STATES",
    "MAX_PATTERN_TEXT",
    "MAX_PATTERN_WORK",
    "Pattern",
    "PatternError",
    "PatternLimit",
]

MAX_PATTERN: Final = 1000
"""Characters of a pattern."""
MAX_PATTERN_STATES: Final = 1000
"""States of a compiled pattern; `a{1000}` needs all of them."""
MAX_PATTERN_TEXT: Final = 10_000
"""Characters of a text that is matched."""
MAX_PATTERN_WORK: Final = 300_000
"""Comparisons of one match with classes that were not remembered yet: well below a second."""
CHARACTERS_A_COMPARISON: Final = 16
"""So many characters whose next step is remembered cost as much as one comparison."""
_MAX_NESTING: Final = 50
_MAX_REMEMBERED: Final = 2000

_Ranges = tuple[tuple[int, int], ...]
"""Code points from the first to the second, both included; rising and apart."""

_LAST: Final = 0x10FFFF
_END: Final = -1
_SYNTAX: Final = frozenset("^$\\.*+?()[]{}|")
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class PatternError(CodedError, ValueError):
    """Raised when a pattern is refused; the code is `bad_pattern`, `reason` says what, `position` where."""

    reason: str
    position: int

    def __init__(self, reason: str, position: int) -> None:
        super().__init__("bad_pattern")
        self.reason = reason
        self.position = position


class PatternLimit(CodedError, RuntimeError):
    """Raised when a text cannot be matched within the stated bounds; the code is `pattern_limit`."""

    def __init__(self) -> None:
        super().__init__("pattern_limit")


def _union(*many: _Ranges) -> _Ranges:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(one for ranges in many for one in ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def _complement(ranges: _Ranges) -> _Ranges:
    gaps = []
    start = 0
    for low, high in ranges:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return (*gaps, (start, _LAST)) if start <= _LAST else tuple(gaps)


_DIGITS: Final[_Ranges] = ((48, 57),)
_WORDS: Final[_Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_LINE_ENDS: Final[_Ranges] = ((10, 10), (13, 13), (0x2028, 0x2029))
_SPACES: Final = _union(
    _LINE_ENDS,
    ((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    ((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_CLASSES: Final[dict[str, _Ranges]] = {
    "d": _DIGITS,
    "w": _WORDS,
    "s": _SPACES,
    "D": _complement(_DIGITS),
    "W": _complement(_WORDS),
    "S": _complement(_SPACES),
}


class _Characters(NamedTuple):
    ranges: _Ranges


class _Edge(NamedTuple):
    at_end: bool  # `$`; else `^`


class _Sequence(NamedTuple):
    parts: list[Any]


class _Choice(NamedTuple):
    options: list[Any]


class _Repeat(NamedTuple):
    part: Any
    least: int
    most: int | None  # None: no end


class _Parser:
    """Reads a pattern from left to right into a tree of the five records above."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nesting = 0

    def tree(self) -> Any:
        tree = self._choice()
        if self._at < len(self._text):
            self._refuse("a bracket that was not opened")
        return tree

    def _choice(self) -> Any:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(options)

    def _sequence(self) -> Any:
        parts: list[Any] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else _Sequence(parts)

    def _atom(self) -> Any:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            return _Characters(self._class())
        if sign == ".":
            return _Characters(_complement(_LINE_ENDS))
        if sign == "\\":
            return _Characters(self._escape())
        if sign in "^$":
            return _Edge(at_end=sign == "$")
        if sign in _SYNTAX:
            self._refuse(f"a bare {sign}")
        return _Characters(_single(ord(sign)))

    def _group(self) -> Any:
        if self._take("?") and not self._take(":"):
            self._refuse("a group that looks ahead or behind, or has a name or flags")
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            self._refuse(f"more than {_MAX_NESTING} groups inside one another")
        inner = self._choice()
        self._nesting -= 1
        if not self._take(")"):
            self._refuse("a group that does not end")
        return inner

    def _repeated(self, part: Any) -> Any:
        sign = self._text[self._at : self._at + 1]
        if sign == "" or sign not in "*+?{":
            return part
        if type(part) is _Edge:
            self._refuse("an edge that is repeated")
        self._at += 1
        least, most = self._braces() if sign == "{" else {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        self._take("?")
        return _Repeat(part, least, most)

    def _braces(self) -> tuple[int, int | None]:
        least = self._number()
        most: int | None = least
        if self._take(","):
            most = None if self._text[self._at : self._at + 1] == "}" else self._number()
        if not self._take("}") or (most is not None and most < least):
            self._refuse("braces that are no quantifier")
        return least, most

    def _number(self) -> int:
        start = self._at
        while self._text[self._at : self._at + 1] in set(string.digits):
            self._at += 1
        if not 0 < self._at - start <= 4:
            self._refuse("braces that are no quantifier")
        return int(self._text[start : self._at])

    def _class(self) -> _Ranges:
        negated = self._take("^")
        found: list[_Ranges] = []
        while not self._take("]"):
            low = self._member()
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member()
                first, last = _point(low), _point(high)
                if first is None or last is None or first > last:
                    self._refuse("a range that is none")
                found.append(((first, last),))
            else:
                found.append(low)
        ranges = _union(*found)
        return _complement(ranges) if negated else ranges

    def _member(self) -> _Ranges:
        sign = self._next()
        return self._escape() if sign == "\\" else _single(ord(sign))

    def _escape(self) -> _Ranges:
        sign = self._next()
        if sign in _CLASSES:
            return _CLASSES[sign]
        if sign in _CONTROLS:
            return _single(_CONTROLS[sign])
        if sign == "x":
            return _single(self._hex(2))
        if sign == "u":
            return _single(self._code_point())
        if sign == "0" and self._text[self._at : self._at + 1] not in set(string.digits):
            return _single(0)
        if sign in set(string.punctuation) - {"_"}:
            return _single(ord(sign))
        self._refuse(f"the escape \\{sign}" if sign.isascii() and sign.isprintable() else "an unknown escape")

    def _code_point(self) -> int:
        if not self._take("{"):
            return self._hex(4)
        end = self._text.find("}", self._at)
        if not 0 < end - self._at <= 6:
            self._refuse("an escape that does not end")
        point = self._hex(end - self._at)
        self._at += 1
        if point > _LAST:
            self._refuse("an escape that is no character")
        return point

    def _hex(self, digits: int) -> int:
        text = self._text[self._at : self._at + digits]
        if len(text) < digits or not set(text) <= set(string.hexdigits):
            self._refuse("an escape without its digits")
        self._at += digits
        point = int(text, 16)
        if 0xD800 <= point <= 0xDFFF:
            self._refuse("half a character")
        return point

    def _next(self) -> str:
        if self._at >= len(self._text):
            self._refuse("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, sign: str) -> bool:
        found = self._text.startswith(sign, self._at)
        self._at += len(sign) if found else 0
        return found

    def _refuse(self, reason: str) -> NoReturn:
        raise PatternError(reason, self._at)


def _single(point: int) -> _Ranges:
    return ((point, point),)


def _point(ranges: _Ranges) -> int | None:
    """The one code point of a class with one, else None."""
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


class _Step(NamedTuple):
    """A state: it reads one of `ranges` and goes on to `to[0]`, or reads nothing and goes on to all of `to`."""

    ranges: _Ranges | None
    to: list[int]
    edge: bool | None = None  # may be passed only at the start (False) or the end (True) of the text


class _Place:
    """All the states that a prefix of the text can have led to, and where each next character leads."""

    __slots__ = ("matched", "matched_at_end", "moves", "reading")

    def __init__(self, reading: tuple[int, ...], matched: bool, matched_at_end: bool) -> None:
        self.reading = reading  # the states that read a character
        self.matched = matched  # whatever follows
        self.matched_at_end = matched_at_end  # if nothing follows
        self.moves: dict[str, _Place] = {}


class Pattern:
    """A compiled pattern. `Pattern("^a*$").found_in("aaa")` is True. May be used by many threads.

    Raises `PatternError` (`bad_pattern`) for what the rule above refuses and what is too large.
    """

    def __init__(self, text: str) -> None:
        if type(text) is not str or len(text) > MAX_PATTERN:
            raise PatternError(f"not a text of at most {MAX_PATTERN} characters", 0)
        self._steps: list[_Step] = []
        self._added = 0
        self._start = self._add(_Parser(text).tree(), _END)
        self._places: dict[frozenset[int], _Place] = {}
        self._remembered = 0
        self._first = self._place(frozenset({self._start}), at_start=True)

    def found_in(self, text: str, work: list[int] | None = None) -> bool:
        """Say whether the pattern matches anywhere in `text`.

        `work` is a list of one number, the comparisons that are left; several matches may share it, and a
        long text costs some of it even where each of its steps is known.
        Raises `PatternLimit` for more than `MAX_PATTERN_TEXT` characters, and when no work is left.
        """
        if len(text) > MAX_PATTERN_TEXT:
            raise PatternLimit
        work = [MAX_PATTERN_WORK] if work is None else work
        work[0] -= len(text) // CHARACTERS_A_COMPARISON
        if work[0] < 0:
            raise PatternLimit
        place = self._first
        for character in text:
            if place.matched:
                return True
            known = place.moves.get(character)
            if known is None:
                work[0] -= len(place.reading) + 1
                if work[0] < 0:
                    raise PatternLimit
                known = self._move(place, character)
            place = known
        return place.matched_at_end  # also of a place that matches whatever follows

    def _move(self, place: _Place, character: str) -> _Place:
        point = ord(character)
        reached = {self._start}  # not anchored: an attempt begins at every character
        for number in place.reading:
            step = self._steps[number]
            if any(low <= point <= high for low, high in step.ranges or ()):
                reached.add(step.to[0])
        if self._remembered >= _MAX_REMEMBERED:
            self._remembered = 0
            self._places.clear()
            self._first.moves.clear()
        self._remembered += 1
        found = place.moves[character] = self._place(frozenset(reached))
        return found

    def _place(self, states: frozenset[int], *, at_start: bool = False) -> _Place:
        if at_start:
            return self._make_place(states, at_start=True)
        known = self._places.get(states)
        if known is None:
            known = self._places[states] = self._make_place(states, at_start=False)
        return known

    def _make_place(self, states: frozenset[int], *, at_start: bool) -> _Place:
        reached = self._closure(states, at_start=at_start, at_end=False)
        at_end = self._closure(states, at_start=at_start, at_end=True)
        reading = tuple(sorted(n for n in reached if n != _END and self._steps[n].ranges is not None))
        return _Place(reading, _END in reached, _END in at_end)

    def _closure(self, states: frozenset[int], *, at_start: bool, at_end: bool) -> set[int]:
        """All states that are reached from `states` without reading a character."""
        reached = set(states)
        waiting = list(states)
        while waiting:
            number = waiting.pop()
            step = self._steps[number] if number != _END else _Step((), [])
            if step.ranges is not None or (step.edge is not None and not (at_end if step.edge else at_start)):
                continue
            fresh = set(step.to) - reached
            reached |= fresh
            waiting.extend(fresh)
        return reached

    def _add(self, tree: Any, then: int) -> int:
        """Add the states of `tree`, which go on to the state `then`; return the first of them."""
        self._added += 1  # counted apart, because an empty group adds no state and may be repeated as well
        if self._added > 2 * MAX_PATTERN_STATES:
            raise PatternError(f"more than {MAX_PATTERN_STATES} states", 0)
        match tree:
            case _Characters(ranges):
                return self._append(_Step(ranges, [then]))
            case _Edge(at_end):
                return self._append(_Step(None, [then], at_end))
            case _Sequence(parts):
                for part in reversed(parts):
                    then = self._add(part, then)
                return then
            case _Choice(options):
                return self._append(_Step(None, [self._add(option, then) for option in options]))
            case _Repeat(part, least, most):
                return self._repeat(part, least, most, then)
        raise AssertionError(tree)

    def _repeat(self, part: Any, least: int, most: int | None, then: int) -> int:
        after = then
        if most is None:
            loop = _Step(None, [then])
            then = self._append(loop)
            loop.to.append(self._add(part, then))
        else:
            for _ in range(most - least):
                then = self._append(_Step(None, [self._add(part, then), after]))
        for _ in range(least):
            then = self._add(part, then)
        return then

    def _append(self, step: _Step) -> int:
        self._steps.append(step)
        if len(self._steps) > MAX_PATTERN_STATES:
            raise PatternError(f"more than {MAX_PATTERN_STATES} states", 0)
        return len(self._steps) - 1
