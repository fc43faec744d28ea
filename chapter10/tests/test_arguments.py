"""What `companions.basics.arguments` lets in, at each limit, and how it refuses the rest."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

from chapter10.companions.basics.arguments import MAX_TIME, Arguments


class Text(str):
    """A text of another type: nobody knows what its methods answer."""


class Checks(unittest.TestCase):
    """Each check returns what it was given, or refuses it by its name."""

    def setUp(self) -> None:
        self.check = Arguments(LookupError, max_text=3, max_seconds=60)

    def refused(self, reason: str, call: Callable[[], object]) -> None:
        with self.assertRaises(LookupError) as caught:
            call()
        self.assertEqual(caught.exception.args, (reason,))

    def test_a_text_has_one_to_so_many_characters(self) -> None:
        """Without NUL and lone surrogates, and a `str` exactly."""
        for text in ("x", "é\n ", "xxx"):
            self.assertIs(self.check.text(text, "the name"), text)
        wrong: list[Any] = ["", "xxxx", "x\0", b"x", None, 1, Text("x")]
        for value in wrong:
            reason = "the name is not a text of 1 to 3 characters without NUL"
            self.refused(reason, partial(self.check.text, value, "the name"))
        self.refused("the name holds a lone surrogate", lambda: self.check.text("x\ud800", "the name"))

    def test_a_whole_number_lies_between_two(self) -> None:
        """Both ends are inside, and `True` is no number."""
        for number in (-1, 0, 7):
            self.assertEqual(self.check.whole(number, "limit", -1, 7), number)
        wrong: list[Any] = [-2, 8, True, 1.0, "1", None, 10**400]
        for value in wrong:
            self.refused("limit is not a whole number from -1 to 7", partial(self.check.whole, value, "limit", -1, 7))

    def test_a_number_is_finite_and_not_too_large(self) -> None:
        """2**40 seconds either side of zero, whole or not; no NaN, no infinity, no truth value."""
        self.assertEqual(MAX_TIME, 1_099_511_627_776.0)
        for number in (0, -0.5, 7, 2**40, -(2.0**40)):
            self.assertIs(self.check.number(number, "now"), number)
        wrong: list[Any] = [2**40 + 1, -(2.0**40) - 1, True, "1", None, float("nan"), float("inf"), 10**400]
        for value in wrong:
            self.refused("now is not a number of seconds", partial(self.check.number, value, "now"))
            self.refused("now is not a number of seconds", partial(self.check.seconds, value, "now", 0))

    def test_seconds_lie_between_a_least_and_the_most(self) -> None:
        """Both ends are inside, and what comes out is a float."""
        for number in (0.5, 7, 60):
            found = self.check.seconds(number, "wait", 0.5)
            self.assertEqual((found, type(found)), (number, float))
        for value in (0.499, 60.001, -1):
            self.refused("wait is not from 0.5 to 60 seconds", partial(self.check.seconds, value, "wait", 0.5))

    def test_a_json_value_is_counted_in_bytes(self) -> None:
        """The canonical form comes out, as long as it may be; a refused one is named with the reason."""
        self.assertEqual(self.check.json({"b": 1, "a": "é"}, "value", 16), '{"a":"é","b":1}')
        self.refused("value exceeds 15 bytes", lambda: self.check.json({"b": 1, "a": "é"}, "value", 15))
        with self.assertRaisesRegex(LookupError, "^value: ") as caught:
            self.check.json(float("nan"), "value", 16)
        self.assertIsNotNone(caught.exception.__cause__)

    def test_without_limits_no_text_and_no_time_is_taken(self) -> None:
        """A module that names none has no such check: everything but zero seconds is refused."""
        bare = Arguments(LookupError)
        self.assertEqual(bare.seconds(0, "wait", 0), 0)
        self.refused("wait is not from 0 to 0 seconds", lambda: bare.seconds(0.5, "wait", 0))
        self.refused("name is not a text of 1 to 0 characters without NUL", lambda: bare.text("x", "name"))
        self.refused("why", lambda: bare.refuse("why"))


if __name__ == "__main__":
    unittest.main()
