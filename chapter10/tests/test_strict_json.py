"""Strict JSON: what is refused, by which code, and what is told apart."""

from __future__ import annotations

import json
import random
import unittest
from unittest import mock

from chapter10.companions.schemas import strict_json as strict_json_module
from chapter10.companions.schemas.strict_json import (
    MAX_INTEGER_BITS,
    MAX_JSON_DEPTH,
    MAX_JSON_SIZE,
    MAX_SHOWN_KEY,
    JsonError,
    copy_json,
    pointer,
    strict_json,
)


def code_of(text: str) -> str:
    """The code with which a text is refused, or `read`."""
    try:
        strict_json(text)
    except JsonError as error:
        return error.code
    return "read"


class Reading(unittest.TestCase):
    """From text to a value."""

    def test_json_is_read_as_it_is(self) -> None:
        """Numbers keep their kind, keys their order, text its characters."""
        value = strict_json(' {"b": [1, 2.0, -0.5e3, true, null], "a": "\\u00e4\\ud83d\\ude00"} ')

        self.assertEqual(value, {"b": [1, 2.0, -500.0, True, None], "a": "\u00e4\U0001f600"})
        self.assertEqual(list(value), ["b", "a"])
        self.assertIs(type(value["b"][1]), float)

    def test_what_is_no_json_is_refused_by_its_own_code(self) -> None:
        """A number that does not exist, a key twice, half a character, a depth, a syntax error."""
        table = {
            '{"a":NaN}': "json_number",
            "Infinity": "json_number",
            "-Infinity": "json_number",
            "1e999": "json_number",
            "9" * 5000: "json_number",
            str(1 << MAX_INTEGER_BITS): "json_number",
            '{"a":1,"a":1}': "json_duplicate_key",
            '{"x":{"a":1,"a":2}}': "json_duplicate_key",
            '"\\ud800"': "json_surrogate",
            '{"\\udc00":1}': "json_surrogate",
            "[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1): "json_too_deep",
            "[" * 100_000: "json_too_deep",
            " " * (MAX_JSON_SIZE + 1): "json_too_long",
            "{'a':1}": "json_syntax",
            "[1,]": "json_syntax",
            '{"a":1,}': "json_syntax",
            "[1 2]": "json_syntax",
            "[01]": "json_syntax",
            "+1": "json_syntax",
            "1 2": "json_syntax",
            '"\\x"': "json_syntax",
            '"\n"': "json_syntax",
            "// x": "json_syntax",
            "nope": "json_syntax",
            "\ufeff1": "json_syntax",
            "\u00a01": "json_syntax",
        }
        for text, code in table.items():
            with self.subTest(text=text[:20]):
                self.assertEqual(code_of(text), code)
        with self.assertRaisesRegex(JsonError, "^json_type$"):
            strict_json(b"1")  # type: ignore[arg-type]

    def test_the_published_limits_are_these(self) -> None:
        """What a reader is told of depth, size, integers and what is shown of a key."""
        self.assertEqual((MAX_JSON_DEPTH, MAX_JSON_SIZE, MAX_INTEGER_BITS, MAX_SHOWN_KEY), (64, 1_000_000, 1024, 80))

    def test_a_text_is_read_up_to_its_limit(self) -> None:
        """The longest text and the largest integer pass."""
        self.assertEqual(strict_json(" " * (MAX_JSON_SIZE - 1) + "1"), 1)
        largest = (1 << MAX_INTEGER_BITS) - 1
        self.assertEqual(strict_json(str(largest)), largest)

    def test_half_a_text_is_cut_off_wherever_it_was_cut(self) -> None:
        """Every proper beginning of an object is told apart from one that is wrong. Claims: T6-022."""
        whole = '{"text": "a\\u00e4\\n\\"b", "list": [1, -2.5e-3, true, false, null, {"x": []}], "n": 12}'
        self.assertEqual(code_of(whole), "read")

        codes = {cut: code_of(whole[:cut]) for cut in range(len(whole))}

        self.assertEqual({cut: code for cut, code in codes.items() if code != "json_cut_off"}, {})

    def test_a_wrong_text_is_not_called_cut_off(self) -> None:
        """What no further text could make right is a mistake of syntax, even near the end."""
        for text in ('{"a" 1', '{"a": tru}', '{"a": nul1', '["\\u12g', "[1}", '{"a":1 "b', "{1", '["\\q'):
            with self.subTest(text=text):
                self.assertEqual(code_of(text), "json_syntax")

    def test_random_beginnings_and_wholes_agree_with_the_plain_reader(self) -> None:
        """Every random value reads back; every beginning of its text that is no JSON is cut off."""
        rng = random.Random(3)

        def value(depth: int) -> object:
            if depth == 0 or rng.random() < 0.4:
                return rng.choice([None, True, False, 0, -17, 2.5, 1e-9, "", 'a"b\\', "\u4e2d"])
            if rng.random() < 0.5:
                return [value(depth - 1) for _ in range(rng.randrange(3))]
            return {rng.choice("abc"): value(depth - 1) for _ in range(rng.randrange(3))}

        for _ in range(300):
            made = {"v": value(3)}
            text = json.dumps(made)
            self.assertEqual(strict_json(text), made)
            for cut in range(len(text)):
                self.assertEqual(code_of(text[:cut]), "json_cut_off", text[:cut])


class Copying(unittest.TestCase):
    """From a Python value to a plain copy."""

    def test_a_copy_shares_nothing(self) -> None:
        """Changing the copy, at any depth, leaves the value alone."""
        value = {"a": [{"b": 1}]}

        copied = copy_json(value)
        copied["a"][0]["b"] = 2

        self.assertEqual(value, {"a": [{"b": 1}]})

    def test_python_values_that_are_no_json_are_refused_with_their_place(self) -> None:
        """Types are those of JSON; the error says where and holds nothing of the value."""
        table: list[tuple[object, str, str]] = [
            ({"a": (1,)}, "json_type", "/a"),
            ({"a": {1: "x"}}, "json_type", "/a"),
            ({"a": [0, b"x"]}, "json_type", "/a/1"),
            ({"a": {1, 2}}, "json_type", "/a"),
            ({"a": float("nan")}, "json_number", "/a"),
            ({"a": float("-inf")}, "json_number", "/a"),
            ({"a": 1 << MAX_INTEGER_BITS}, "json_number", "/a"),
            ({"a/b~": "\ud800"}, "json_surrogate", "/a~1b~0"),
            ({"\udfff": 1}, "json_surrogate", ""),
            (object(), "json_type", ""),
        ]
        for value, code, path in table:
            with self.subTest(code=code, path=path), self.assertRaises(JsonError) as caught:
                copy_json(value)
            self.assertEqual((caught.exception.code, caught.exception.path), (code, path))

    def test_depth_and_size_are_bounded(self) -> None:
        """A value inside itself is too deep; many strings together are too long; the bounds themselves pass."""
        inside: list[object] = []
        inside.append(inside)
        deep: object = 1
        for _ in range(MAX_JSON_DEPTH):
            deep = [deep]
        self.assertEqual(copy_json(deep), deep)
        for value, code in (
            (inside, "json_too_deep"),
            ([deep], "json_too_deep"),
            (["x" * (MAX_JSON_SIZE // 2)] * 3, "json_too_long"),
            ({"k": "x" * MAX_JSON_SIZE}, "json_too_long"),
            ({"x" * MAX_JSON_SIZE: 1}, "json_too_long"),
            ([0] * (MAX_JSON_SIZE + 1), "json_too_long"),
        ):
            with self.subTest(code=code), self.assertRaises(JsonError) as caught:
                copy_json(value)
            self.assertEqual(caught.exception.code, code)
        self.assertEqual(len(copy_json("x" * (MAX_JSON_SIZE - 1))), MAX_JSON_SIZE - 1)

    def test_size_is_counted_to_the_last_character(self) -> None:
        """One for each item, and the characters of texts and keys: the last that fits, and one more."""
        table: list[tuple[object, object]] = [
            ("x" * 9, "x" * 10),
            ([0] * 9, [0] * 10),
            ([["x" * 3], "x" * 3], [["x" * 3], "x" * 4]),
            ({"k": "x" * 7}, {"k": "x" * 8}),
            ({"k": "\u4e2d" * 7}, {"k": "\u4e2d" * 8}),
            ({"k": "xxx", "l": "yy"}, {"k": "xxx", "l": "yyy"}),
            ({"key": [0, "xxx"]}, {"key": [0, "xxxx"]}),
        ]
        with mock.patch.object(strict_json_module, "MAX_JSON_SIZE", 10):
            for fits, too_long in table:
                with self.subTest(fits=fits):
                    self.assertEqual(copy_json(fits), fits)
                    with self.assertRaisesRegex(JsonError, "^json_too_long$"):
                        copy_json(too_long)

    def test_a_path_shows_little_of_a_long_key(self) -> None:
        """A key of a million characters does not come back in an error."""
        self.assertEqual(pointer(("k" * MAX_SHOWN_KEY,)), "/" + "k" * MAX_SHOWN_KEY)
        self.assertEqual(pointer(("k" * 1000, 2)), "/" + "k" * MAX_SHOWN_KEY + ".../2")
        self.assertEqual(pointer(("\ud800",)), "/?")
