"""The recordings as one object of JSON that a short script reads: numbers in one or two letters, nothing said twice.

    errors     the error codes of jobs
    kinds      each different outcome once: [answer, [[attempt, kind, detail], ...], broken promise, what follows]; the
               last is 0 for the same content, 1 for another one, 2 for one further than was recorded
    patterns   each different row of kinds once: what a place answers to its actions, in the order of `asked`
    contents   eleven letters for each content: see `content_text`
    places     for each content the first moment of it; then for each moment from there to the last one the pattern,
               and for each of its kinds with 1 the content that follows
    guards     by name, for a store without that guard: `rules`, [pattern, [[action, kind, follows], ...]], of which
               the first holds for every place with that pattern and the others for those that `other` names, a place
               and a rule each; what follows is -1 the same, -2 unrecorded, -3 the next content of `next`, or what
               follows the action of that number with all guards; and its own `contents` and `places`

`unpack` gives back what was packed, to the last answer; the script of the page reads it in the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from chapter10.jobs import STATES
from chapter10.lab.histories.world import EMPTY, Action, Content, Row
from chapter10.lab.scheduler.recorder import CALLER, WORLD, Outcome, Place, Recording, asked

__all__ = ["LETTERS", "content_text", "pack", "unpack"]

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_DIGITS: Final = {letter: number for number, letter in enumerate(LETTERS)}
_LETTERS: Final = 11
_SAME, _UNRECORDED, _NEXT = -1, -2, -3
_INTENT: Final = '{"args":{"month":"2026-08"},"tool":"reports.export","version":"1"}'


def pack(whole: Recording, without: Mapping[str, Recording]) -> dict[str, Any]:
    """Return the object; `without`: the recordings by the name of the guard that is out. JSON makes it a text.

    Raises `ValueError` for what the form has no room for.
    """
    return _Packer(whole).packed(without)


def unpack(packed: Mapping[str, Any]) -> tuple[Recording, dict[str, Recording]]:
    """Return the recordings that `pack` was given; they share the answers of a place that answers as in the whole."""
    reader = _Reader(packed)
    return reader.whole, {name: reader.without(name) for name in packed["guards"]}


def content_text(content: Content, errors: list[str]) -> str:
    """Return state, attempt, deadline, ready_at, lease_until, done, total, error, ended_at, the attempt of the receipt
    and submitted_at as letters, `.` for none; `errors`: the codes so far, added to."""
    if not content.rows:
        return "." * _LETTERS
    (row,) = content.rows
    if row.error is not None and row.error not in errors:
        errors.append(row.error)
    error = None if row.error is None else errors.index(row.error)
    receipt = content.receipts[0][1] if content.receipts else None
    times = (row.attempt, row.deadline, row.ready_at, row.lease_until, row.done, row.total, error, row.ended_at)
    parts = (STATES.index(row.state), *times, receipt, row.submitted_at)
    return "".join("." if part is None else LETTERS[int(part)] for part in parts)


def _two(number: int) -> str:
    return LETTERS[number // 64] + LETTERS[number % 64]


class _Packer:
    def __init__(self, whole: Recording) -> None:
        self._whole = whole
        self._ids: dict[Content, int] = {}
        self._first: dict[Content, int] = {}
        for content, now in whole.outcomes:
            self._ids.setdefault(content, len(self._ids))
            self._first[content] = min(now, self._first.get(content, now))
        self._errors: list[str] = []
        self._kinds: dict[str, int] = {}
        self._patterns: dict[str, int] = {}
        self._numbers = {place: number for number, place in enumerate(_in_order(self._ids, self._first))}
        self._usual = [self._pattern(place[0], whole.outcomes[place]) for place in self._numbers]

    def packed(self, without: Mapping[str, Recording]) -> dict[str, Any]:
        contents = "".join(content_text(content, self._errors) for content in self._ids)
        places = self._places(self._whole, self._ids, self._first, {})
        guards = {name: self._guard(recording) for name, recording in without.items()}
        return {
            "errors": self._errors,
            "kinds": [json.loads(kind) for kind in self._kinds],
            "patterns": list(self._patterns),
            "contents": contents,
            "places": places,
            "guards": guards,
        }

    def _kind(self, content: Content, outcome: Outcome) -> int:
        follows = 2 if outcome.content is None else int(outcome.content != content)
        text = json.dumps([outcome.answer, outcome.events, outcome.broken, follows])
        return self._kinds.setdefault(text, len(self._kinds))

    def _places(
        self, recording: Recording, ids: Mapping[Content, int], first: Mapping[Content, int], own: Mapping[Content, int]
    ) -> str:
        text = []
        for content in own or ids:
            text.append(LETTERS[first[content]])
            for now in range(first[content], WORLD.until + 1):
                answers = recording.outcomes[content, now]
                pattern = self._pattern(content, answers)
                text.append(_two(self._patterns.setdefault(pattern, len(self._patterns))))
                following = (after for _, _, _, after in answers.values() if after not in (None, content))
                text += [_two(ids[after]) for after in following if after is not None]
        return "".join(text)

    def _guard(self, recording: Recording) -> dict[str, Any]:
        ids, first = dict(self._ids), dict(self._first)
        own: dict[Content, int] = {}
        for content, now in recording.outcomes:
            if (content, now) not in self._whole.outcomes:  # a content of its own, or one that comes earlier here
                ids[content] = own.setdefault(content, len(self._ids) + len(own))
                first[content] = min(now, first.get(content, now))
        rules: dict[str, Counter[str]] = {}
        of_place: dict[int, tuple[str, str]] = {}
        following: list[int] = []
        for place, number in self._numbers.items():
            before, answers = self._whole.outcomes[place], recording.outcomes[place]
            if answers == before:
                continue
            pattern, rule = self._usual[number], []
            for index, (action, outcome) in enumerate(answers.items()):
                if outcome != before[action]:
                    follows = self._follows(place, outcome, list(before.values()))
                    rule.append([index, self._kind(place[0], outcome), follows])
                    if follows == _NEXT and outcome.content is not None:
                        following.append(ids[outcome.content])
            of_place[number] = pattern, json.dumps(rule)
            rules.setdefault(pattern, Counter())[json.dumps(rule)] += 1
        numbered: dict[tuple[str, str], int] = {}
        for pattern, counted in rules.items():
            for rule_text, _ in counted.most_common():
                numbered[pattern, rule_text] = len(numbered)
        usual = {pattern: counted.most_common(1)[0][0] for pattern, counted in rules.items()}
        other = (
            _two(number) + LETTERS[numbered[found]] for number, found in of_place.items() if usual[found[0]] != found[1]
        )
        unchanged = (
            _two(number) + "."
            for number in self._numbers.values()
            if number not in of_place and self._usual[number] in rules
        )
        return {
            "rules": [[self._patterns[pattern], json.loads(rule_text)] for pattern, rule_text in numbered],
            "other": "".join([*other, *unchanged]),
            "next": "".join(map(_two, following)),
            "contents": "".join(content_text(content, self._errors) for content in own),
            "places": self._places(recording, ids, first, own) if own else "",
        }

    def _pattern(self, content: Content, answers: Mapping[Action, Outcome]) -> str:
        return "".join(_two(self._kind(content, outcome)) for outcome in answers.values())

    def _follows(self, place: Place, outcome: Outcome, before: list[Outcome]) -> int:
        if outcome.content is None:
            return _UNRECORDED
        if outcome.content == place[0]:
            return _SAME
        return next((i for i, known in enumerate(before) if known.content == outcome.content), _NEXT)


def _in_order(contents: Mapping[Content, int], first: Mapping[Content, int]) -> Iterator[Place]:
    for content in contents:
        for now in range(first[content], WORLD.until + 1):
            yield content, now


class _Reader:
    """Reads a packed object: the outcomes as rows of (kind, content) by the place, as the script has them."""

    def __init__(self, packed: Mapping[str, Any]) -> None:
        self._packed = packed
        self._contents = self._read_contents(packed["contents"])
        self._places = list(self._read_places(packed["places"], 0))
        self.whole = Recording(dict(self._outcomes(self._contents, self._places)))

    def without(self, name: str) -> Recording:
        """Return the recording without that guard."""
        packed = self._packed["guards"][name]
        contents = self._contents + self._read_contents(packed["contents"])
        rules = packed["rules"]
        usual: dict[int, int] = {}
        for number, (pattern, _) in enumerate(rules):
            usual.setdefault(pattern, number)
        other = {_number(text): text[2] for text in _cut(packed["other"], 3)}
        following = iter(_cut(packed["next"], 2))
        outcomes = dict(self.whole.outcomes)
        for number, (content, now, pattern, row) in enumerate(self._places):
            rule = usual.get(pattern)
            if number in other:
                rule = None if other[number] == "." else LETTERS.index(other[number])
            if rule is None:
                continue
            place = self._contents[content], now
            answers = outcomes[place] = dict(outcomes[place])
            actions = list(answers)
            for index, kind, follows in rules[rule][1]:
                after = {_SAME: content, _UNRECORDED: -1}.get(follows)
                if after is None:
                    after = _number(next(following)) if follows == _NEXT else row[follows][1]
                answers[actions[index]] = self._outcome(kind, contents, after)
        places = self._read_places(packed["places"], len(self._contents))
        return Recording(outcomes | dict(self._outcomes(contents, places)))

    def _read_contents(self, text: str) -> list[Content]:
        return [self._content(letters) for letters in _cut(text, _LETTERS)]

    def _content(self, letters: str) -> Content:
        if letters[0] == ".":
            return EMPTY
        state, attempt, deadline, ready_at, lease, done, total, error, ended_at, receipt, submitted_at = (
            None if letter == "." else LETTERS.index(letter) for letter in letters
        )
        row: Any = (
            1, CALLER, "report", _INTENT, STATES[state or 0], attempt, WORLD.attempts, deadline, ready_at, lease,
            done, total, None if error is None else self._packed["errors"][error], ended_at, submitted_at,
        )  # fmt: skip
        receipts = () if receipt is None else (_receipt(receipt),)
        return Content((Row(*row),), receipts)

    def _read_places(self, text: str, content: int) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
        """Yield content, time, pattern, and for each action the kind and the content that follows; -1: unrecorded."""
        position = 0
        while position < len(text):
            first = LETTERS.index(text[position])
            position += 1
            for now in range(first, WORLD.until + 1):
                pattern = _number(text[position : position + 2])
                position += 2
                row = []
                for letters in _cut(self._packed["patterns"][pattern], 2):
                    kind = _number(letters)
                    follows = self._packed["kinds"][kind][3]
                    after = content if follows == 0 else -1
                    if follows == 1:
                        after = _number(text[position : position + 2])
                        position += 2
                    row.append((kind, after))
                yield content, now, pattern, row
            content += 1

    def _outcomes(
        self, contents: list[Content], places: Iterable[tuple[int, int, int, list[tuple[int, int]]]]
    ) -> Iterator[tuple[Place, dict[Action, Outcome]]]:
        for content, now, _, row in places:
            outcomes = (self._outcome(kind, contents, after) for kind, after in row)
            yield (contents[content], now), dict(zip(asked(contents[content]), outcomes, strict=True))

    def _outcome(self, kind: int, contents: list[Content], content: int) -> Outcome:
        answer, events, broken, _ = self._packed["kinds"][kind]
        after = None if content < 0 else contents[content]
        return Outcome(answer, tuple(tuple(event) for event in events), broken, after)


def _receipt(attempt: int) -> tuple[int, int, str, str]:
    data = json.dumps({"by": attempt}, separators=(",", ":"))
    return (1, attempt, sha256(data.encode()).hexdigest(), data)


def _number(text: str) -> int:
    return _DIGITS[text[0]] * 64 + _DIGITS[text[1]]


def _cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
