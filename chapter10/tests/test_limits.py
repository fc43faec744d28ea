"""The questions of the doors: what each takes, at its edges, and what it does not."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

from chapter10.limits import (
    MAX_TIME,
    are_names,
    are_words,
    is_label,
    is_seconds,
    is_string,
    is_text,
    is_unicode,
    is_whole,
)

HALF = "\ud800"
"""Half of a character, which UTF-8 cannot carry."""


class Text(str):
    """A text that is not quite `str`."""


class TheQuestions(unittest.TestCase):
    def assert_answers(
        self, question: Callable[..., bool], yes: list[tuple[Any, ...]], no: list[tuple[Any, ...]]
    ) -> None:
        for expected, rows in ((True, yes), (False, no)):
            for row in rows:
                with self.subTest(ascii(row)[:60]):
                    self.assertIs(question(*row), expected)

    def test_a_text_is_unicode_unless_it_holds_half_a_character(self) -> None:
        """ASCII, other letters and whole emoji are; a lone half, and two halves as two characters, are not."""
        whole = [("",), ("a",), ("月é",), ("\U0001f600",)]
        self.assert_answers(is_unicode, whole, [(HALF,), ("a\ud83d\ude00",)])

    def test_a_string_is_bounded_above_only(self) -> None:
        """Empty, with NUL and as long as allowed; no other type, no half character, nothing longer."""
        no = [("abc", 2), (HALF, 9), (Text("a"), 9), (None, 9), (b"a", 9), (1, 9)]
        self.assert_answers(is_string, [("", 0), ("\0", 1), ("ab", 2), ("月", 1)], no)

    def test_a_text_is_bounded_on_both_sides_and_holds_no_nul(self) -> None:
        """At least one character unless another least is named; one of another kind is no text."""
        yes = [("a", 1), ("ab", 2), ("", 5, 0), ("abc", 3, 3)]
        no = [("", 5), ("ab", 1), ("ab", 9, 3), ("a\0", 9), (HALF, 9), (Text("a"), 9), (None, 9), (["a"], 9)]
        self.assert_answers(is_text, yes, no)

    def test_a_label_stands_on_one_line(self) -> None:
        """One to so many printable characters."""
        no = [("", 9), ("ab", 1), ("a\n", 9), ("a\0", 9), (HALF, 9), (Text("a"), 9), (None, 9), (["a"], 9)]
        self.assert_answers(is_label, [("a", 1), ("a 月", 3)], no)

    def test_words_are_a_tuple_without_white_space(self) -> None:
        """As many and as long as allowed, and none of them empty."""
        yes = [((), 0, 9), (("a", "月"), 2, 1), (("a\0",), 1, 2)]
        no: list[tuple[Any, ...]] = [
            (("a", "b"), 1, 9),
            (("ab",), 9, 1),
            (["a"], 9, 9),
            ("a", 9, 9),
            (("",), 9, 9),
            (("a b",), 9, 9),
        ]
        no += [(("a\u3000",), 9, 9), ((HALF,), 9, 9), ((Text("a"),), 9, 9), ((1,), 9, 9), (None, 9, 9)]
        self.assert_answers(are_words, yes, no)

    def test_names_are_a_collection_and_never_one_string(self) -> None:
        """A set, a frozen one, a list, a tuple, the keys of a dict; not a dict, an iterator or other things in them."""
        yes = [({"a"}, 1), (frozenset("ab"), 2), (["a", "a"], 2), ((), 0), ({"a": 1}.keys(), 1)]
        no = [("a", 9), (["a", "b"], 1), ({"a": 1}, 9), (iter("a"), 9), ([1], 9), ([Text("a")], 9), (None, 9)]
        self.assert_answers(are_names, yes, no)

    def test_a_whole_number_lies_between_its_ends(self) -> None:
        """Both included, the upper one being the largest that SQLite has; a bool and a float are none."""
        yes = [(1, 1), (-1, -1), (2**63 - 1, 0), (5, 1, 5)]
        self.assert_answers(is_whole, yes, [(0, 1), (2**63, 0), (6, 1, 5), (True, 0), (1.0, 0), ("1", 0), (None, 0)])

    def test_seconds_are_a_number_that_leaves_room_for_a_lease(self) -> None:
        """Either side of zero up to the bound; not NaN, not infinite, no bool and no text."""
        self.assertEqual(MAX_TIME, 2.0**40)
        yes = [(0,), (1.5,), (MAX_TIME,), (-MAX_TIME,), (3, 3)]
        no = [(MAX_TIME * 1.001,), (-MAX_TIME * 1.001,), (2, 3), (float("nan"),), (float("inf"),), (True,), ("1",)]
        self.assert_answers(is_seconds, yes, [*no, (None,)])


if __name__ == "__main__":
    unittest.main()
