"""The canonical form is one text for each value, and a value without one is refused by name."""

from __future__ import annotations

import enum
import hashlib
import json
import unittest
from collections import OrderedDict, namedtuple
from typing import Any
from unittest import mock

from chapter10 import canonical as module
from chapter10.canonical import (
    MAX_DEPTH,
    CanonicalError,
    CodedError,
    byte_size,
    canonical,
    digest,
    text_digest,
)


class Text(str):
    """A text that is not quite `str`."""


class Number(enum.IntEnum):
    """An int that is not quite `int`."""

    ONE = 1


Point = namedtuple("Point", "x")


def nested(levels: int) -> Any:
    """Return a value of exactly so many levels, lists and dicts by turns."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


class TheForm(unittest.TestCase):
    def test_keys_are_sorted_and_nothing_is_padded(self) -> None:
        """The form has sorted keys at every level and no blank anywhere.

        Claims: C10-080.
        """
        value = {"b": [1, {"d": None, "c": True}], "a": 1.5}
        self.assertEqual('{"a":1.5,"b":[1,{"c":true,"d":null}]}', canonical(value))

    def test_text_outside_ascii_stands_as_it_is(self) -> None:
        """Chinese text is not escaped, so its size is that of its UTF-8.

        Claims: C10-080.
        """
        self.assertEqual('{"月":"八"}', canonical({"月": "八"}))
        self.assertEqual(len('{"月":"八"}'.encode()), byte_size({"月": "八"}))

    def test_the_digest_is_sha_256_of_the_utf_8(self) -> None:
        """A digest can be recomputed with the standard library alone.

        Claims: C10-080.
        """
        value = {"版本": 2, "a": ["é"]}
        plain = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        self.assertEqual(hashlib.sha256(plain.encode("utf-8")).hexdigest(), digest(value))
        self.assertEqual(digest(value), text_digest(canonical(value)))

    def test_the_order_of_keys_has_no_influence(self) -> None:
        """Two dicts that are equal have one digest, in whatever order they were filled.

        Claims: C10-081.
        """
        self.assertEqual(digest({"a": 1, "b": {"c": 2, "d": 3}}), digest({"b": {"d": 3, "c": 2}, "a": 1}))

    def test_each_change_of_content_changes_the_digest(self) -> None:
        """Values that Python calls equal, and texts that look alike, still differ here.

        Claims: C10-081.
        """
        values = [1, 1.0, True, "1", [1], {"a": 1}, None, 0, False, "", [], {}, -0.0, 0.0, "\u00e9", "e\u0301"]
        self.assertEqual(len(values), len({digest(value) for value in values}))

    def test_a_value_reads_back_as_the_same_value(self) -> None:
        """What has a form comes back from it exactly, the edges of each type included."""
        edges = [
            None, True, 0, -1, 2**63, 2**53 + 1, 10**4000, 0.1, -0.0, 5e-324, 1.7976931348623157e308,
            "", "\0", "\u2028", "\U0001f600", "\uffff", '"\\', [], {}, [[]], {"": {}}, nested(MAX_DEPTH),
        ]  # fmt: skip
        for value in edges:
            with self.subTest(value=repr(value)[:40]):
                back = json.loads(canonical(value))
                self.assertEqual((type(value), repr(value)), (type(back), repr(back)))

    def test_what_stands_twice_is_written_twice(self) -> None:
        """One container in many places is no cycle, in a narrow value and in a wide one."""
        shared = {"a": [1]}
        for times in (2, 1000):
            self.assertEqual("[" + ",".join(['{"a":[1]}'] * times) + "]", canonical([shared] * times))


class WhatIsRefused(unittest.TestCase):
    def test_a_value_that_would_read_back_otherwise_is_refused_by_name(self) -> None:
        """Each kind of value outside JSON gives `not_json`, wherever it stands, and no other exception."""
        loop: list[Any] = []
        loop.append(loop)
        refused: dict[str, Any] = {
            "NaN": float("nan"), "infinity": float("inf"), "minus infinity": float("-inf"),
            "tuple": (1,), "named tuple": Point(1), "bytes": b"x", "set": {1}, "complex": 1j, "object": object(),
            "str subclass": Text("a"), "int subclass": Number.ONE, "dict subclass": OrderedDict(a=1),
            "int key": {1: "a"}, "None key": {None: 1}, "bool key": {True: 1}, "mixed keys": {"a": 1, 2: 3},
            "tuple key": {(1, 2): 3}, "str subclass key": {Text("a"): 1},
            "lone surrogate": "\ud800", "lone surrogate in a key": {"\udfff": 1}, "two halves": "\ud83d\ude00",
            "endless digits": 10**5000, "itself": loop,
        }  # fmt: skip
        for name, value in refused.items():
            for place, wrapped in (("alone", value), ("inside", {"a": [{"b": value}]})):
                with self.subTest(name, place=place):
                    for function in (canonical, byte_size, digest):
                        with self.assertRaises(CanonicalError) as caught:
                            function(wrapped)
                        self.assertEqual("not_json", caught.exception.code)

    def test_one_wrong_thing_among_many_is_found(self) -> None:
        """Every item and every key counts, wherever it stands."""
        for wrong in ((1,), Text("a"), {"a": 1, Text("b"): 1}, {1: 1}, [Number.ONE], OrderedDict(a=1)):
            for place in (0, 50, 100):
                items: list[Any] = [{"a": [number]} for number in range(100)]
                items.insert(place, wrong)
                with self.subTest(wrong=type(wrong).__name__, place=place), self.assertRaises(CanonicalError):
                    canonical(items)

    def test_a_wide_cycle_is_refused_at_once(self) -> None:
        """A list that holds itself a thousand times does not grow with each level."""
        loop: list[Any] = [{"a": 1}]
        loop += [loop] * 1000
        with self.assertRaises(CanonicalError) as caught:
            canonical({"a": loop})
        self.assertIn("levels", caught.exception.reason)

    def test_a_narrow_cycle_is_refused_at_once(self) -> None:
        """A list that holds itself three times does not grow threefold with each level, alone or beside others."""
        loop: list[Any] = [1]
        loop += [loop] * 3
        for value in (loop, {"a": [loop, *([number] for number in range(100))]}):
            with self.assertRaises(CanonicalError) as caught:
                canonical(value)
            self.assertIn("levels", caught.exception.reason)

    def test_the_number_of_members_is_bounded(self) -> None:
        """Parts that are shared are written each time, so a small value may be a text without end."""
        doubled: list[object] = []
        for _ in range(26):
            doubled = [doubled, doubled]
        with mock.patch.object(module, "MAX_MEMBERS", 1000):
            self.assertRaisesRegex(CanonicalError, "not_json", canonical, doubled)
            self.assertEqual(canonical([0] * 1000).count("0"), 1000)
            self.assertRaisesRegex(CanonicalError, "not_json", canonical, [0] * 1001)

    def test_the_number_of_levels_is_bounded(self) -> None:
        """`MAX_DEPTH` levels pass, one more is refused, and 100,000 end no differently."""
        self.assertEqual(MAX_DEPTH, 100)
        self.assertEqual(MAX_DEPTH, canonical(nested(MAX_DEPTH)).count(":") + canonical(nested(MAX_DEPTH)).count("["))
        for levels in (MAX_DEPTH + 1, 500, 100_000):
            with self.subTest(levels=levels):
                with self.assertRaises(CanonicalError) as caught:
                    canonical(nested(levels))
                self.assertIn("levels", caught.exception.reason)

    def test_what_only_the_encoder_notices_is_refused_with_the_same_code(self) -> None:
        """The caller stands too deep, or a number has too many digits."""
        for error, words in ((RecursionError(), "levels"), (ValueError(), "number")):
            with mock.patch("chapter10.canonical._JSON.encode", side_effect=error), self.subTest(error=error):
                with self.assertRaises(CanonicalError) as caught:
                    canonical([1])
                self.assertEqual(caught.exception.code, "not_json")
                self.assertIn(words, caught.exception.reason)

    def test_a_refusal_holds_nothing_of_the_value(self) -> None:
        """The text of the error is its code; the reason names the kind and quotes nothing."""
        with self.assertRaises(CanonicalError) as caught:
            canonical({"password": "hunter2", "x": {1}})
        error = caught.exception
        self.assertEqual(("not_json", "not_json"), (str(error), error.code))
        self.assertNotIn("hunter2", error.reason)
        self.assertIsInstance(error, CodedError)
        self.assertIsInstance(error, ValueError)


if __name__ == "__main__":
    unittest.main()
