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

    def test_the_middle_goes_and_whole_lines_stay(self) -> None:
        """What a test run or a compiler says at its end is there, and how much is not."""
        text = "".join(f"test {number} ok\n" for number in range(10_000)) + "2 failed, 9998 passed"
        cut = cut_text(text, 1_000)
        self.assertLessEqual(len(cut), 1_000)
        self.assertGreater(len(cut), 900)
        head, _, rest = cut.partition("\n[... ")
        count, _, tail = rest.partition(" characters left out ...]\n")
        self.assertTrue(text.startswith(head + "\n"))
        self.assertTrue(text.endswith("\n" + tail))
        self.assertTrue(tail.endswith("2 failed, 9998 passed"))
        self.assertEqual(int(count), len(text) - len(head) - len(tail))

    def test_a_long_line_is_cut_inside(self) -> None:
        """A line end is kept to only where it costs less than half of a side."""
        cut = cut_text("short\n" + "a" * 10_000 + "b" * 10_000 + "\nshort", 1_000)
        self.assertEqual(len(cut), 1_000)
        self.assertIn("aaa\n[... ", cut)
        self.assertIn(" left out ...]\nbbb", cut)

    def test_a_text_that_is_not_worth_a_tail_keeps_its_head(self) -> None:
        """Below a hundred characters beside the line that says so."""
        self.assertEqual(cut_text("x" * 10_000, 136), "x" * 136)
        self.assertIn("left out", cut_text("x" * 10_000, 137))

    def test_a_cut_does_not_separate_an_emoji(self) -> None:
        """A skin tone, a joiner, a variation selector or an accent stays with what it belongs to, on both sides."""
        whole = cut_text("x" * 10_000, 1_000)
        head, tail = whole.index("\n"), len(whole) - whole.rindex("\n") - 1
        for cluster in (
            "\U0001f44d\U0001f3fd",
            "e\u0301",
            "\u2764\ufe0f",
            "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        ):
            for inside in range(1, len(cluster)):
                text = "x" * (head - inside) + cluster
                text += "y" * (10_000 - len(text) - tail - inside) + cluster
                text += "z" * (10_000 - len(text))
                cut = cut_text(text, 1_000)
                with self.subTest(cluster=cluster, inside=inside):
                    self.assertEqual(cut.partition("\n")[0], "x" * (head - inside))
                    self.assertEqual(set(cut.rpartition("\n")[2]), {"z"})

    def test_what_belongs_to_the_character_before_it_is_known_by_its_range(self) -> None:
        """The ends of each range, and what stands just outside; a cut never goes before the beginning."""
        for sign in "\u0300\u036f\u200d\u20e3\ufe00\ufe0f\U0001f3fb\U0001f3ff":
            self.assertEqual(cut_text(f"e{sign}x", 1), "", ascii(sign))
            self.assertEqual(cut_text(sign * 3, 1), "")
        for sign in "\u02ff\u0370\ufdff\ufe10\U0001f3fa\U0001f400":
            self.assertEqual(cut_text(f"e{sign}x", 1), "e", ascii(sign))
        many = "x" * 10 + "\u0301" * 40
        self.assertEqual(len(cut_text(many, 30)), 14)  # marks without end are cut all the same

    def test_the_tail_of_json_begins_behind_an_escape(self) -> None:
        """At every place of an escape, what is shown of the end reads as the end of a string."""
        for unit in ("\\n", "\\u0001", "\\\\", '\\"', "ab\\n"):
            for before in range(8):
                text = '"' + "x" * before + unit * 2_000 + '"'
                tail = cut_text(text, 400, is_json=True).rpartition("\n")[2]
                with self.subTest(unit=unit, before=before):
                    self.assertTrue(text.endswith(tail))
                    self.assertEqual(
                        json.loads('"' + tail), json.loads('"' + unit * 2_000 + '"')[-len(json.loads('"' + tail)) :]
                    )

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
