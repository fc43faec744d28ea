"""From a result to the text that a model reads: form, emptiness, secrets, cut."""

from __future__ import annotations

import json
import unittest
from typing import Any

from chapter10.canonical import CanonicalError
from chapter10.companions.tools.result_text import cut_text, is_empty, result_text


class Form(unittest.TestCase):
    """Which text stands for which value."""

    def test_a_string_stays_and_json_is_canonical(self) -> None:
        """No Python text reaches a model: true instead of True, double quotes, sorted keys.

        Claims: T6-019.
        """
        for value, text in (
            ("as it is\n", "as it is\n"),
            (42, "42"),
            (True, "true"),
            (0, "0"),
            (False, "false"),
            ({"b": [1, None], "a": "\u4e2d"}, '{"a":"\u4e2d","b":[1,null]}'),
        ):
            with self.subTest(text=text):
                self.assertEqual(result_text(value), text)

    def test_what_has_no_content_is_the_empty_text(self) -> None:
        """Emptiness is decided on the value, before there is a text `None` or `[]` that looks like content.

        Claims: T6-019.
        """
        empty: list[Any] = [
            None,
            "",
            " \n",
            [],
            [{"type": "text", "text": ""}],
            [{"type": "text", "text": " "}, {"type": "text"}, {"type": "text", "text": 7}],
        ]
        for value in empty:
            with self.subTest(value=value):
                self.assertTrue(is_empty(value))
                self.assertEqual(result_text(value), "")
        full: list[Any] = [0, False, 0.0, {}, [0], [{"type": "image"}], [{"type": "text", "text": "a"}], "0"]
        for value in full:
            with self.subTest(value=value):
                self.assertFalse(is_empty(value))
                self.assertNotEqual(result_text(value), "")

    def test_half_characters_are_joined_or_replaced(self) -> None:
        """Two halves that belong together are one character; a lone one is U+FFFD, in keys too."""
        self.assertEqual(result_text("a\ud83d\ude00b\ud800"), "a\U0001f600b\ufffd")
        self.assertEqual(result_text({"\udc00": ["\ud800"]}), '{"\ufffd":["\ufffd"]}')
        for keys in (("\ud800", "\udc00"), ("\ud800", "\ufffd"), ("a\ufffd", "b", "a\ud800")):
            with self.subTest(keys=ascii(keys)), self.assertRaises(CanonicalError):  # one of two would be lost
                result_text([dict.fromkeys(keys, 1)])

    def test_what_is_no_json_is_refused(self) -> None:
        """A value is never changed in silence: NaN, bytes, tuples and objects have no text."""
        inside: list[Any] = []
        inside.append(inside)
        for value in (inside, float("nan"), {"mean": float("inf")}, b"x", (1,), object(), {1: "a"}, {"a": {1, 2}}):
            with self.subTest(value=type(value)), self.assertRaises(CanonicalError):
                result_text(value)


class Cut(unittest.TestCase):
    """Where a text is cut."""

    def test_a_cut_is_exact_and_between_characters(self) -> None:
        """The unit is the Python code point.

        Claims: T6-041.
        """
        self.assertEqual(cut_text("a\U0001f600bc", 2), "a\U0001f600")
        self.assertEqual(cut_text("abc", 3), "abc")
        self.assertEqual(cut_text("C:\\dir", 3), "C:\\")

    def test_json_is_never_cut_inside_an_escape(self) -> None:
        """At every length, what is left of a string ends with whole escapes."""
        text = json.dumps('a\n"b\\c\\\\d\u0001e\\', ensure_ascii=False)

        for most in range(1, len(text)):
            cut = cut_text(text, most, is_json=True)
            self.assertLessEqual(most - len(cut), 5)
            self.assertTrue(text.startswith(cut))
            json.loads(cut + '"')  # raises when an escape is open
        for whole in ('"a\\n"', "no JSON\\"):  # what is not cut is not looked at
            self.assertEqual(cut_text(whole, len(whole), is_json=True), whole)


class OtherTypes(unittest.TestCase):
    """A block's type is a text, or the block is no text block."""

    def test_a_type_that_is_no_text_is_not_compared(self) -> None:
        """Its comparison may fail; the block counts as something."""

        class NoComparison:
            __hash__ = object.__hash__

            def __eq__(self, other: object) -> bool:
                raise AssertionError("nobody compares it")

        for kind in (NoComparison(), None, 1, ["text"]):
            self.assertFalse(is_empty([{"type": kind, "text": ""}]))
