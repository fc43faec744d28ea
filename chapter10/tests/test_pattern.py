"""The patterns of JSON Schema: what is taken means what ECMA 262 says, what is not is refused, nothing is slow."""

from __future__ import annotations

import random
import re
import string
import unittest

from chapter10.companions.schemas.pattern import (
    CHARACTERS_A_COMPARISON,
    MAX_PATTERN,
    MAX_PATTERN_STATES,
    MAX_PATTERN_TEXT,
    MAX_PATTERN_WORK,
    Pattern,
    PatternError,
    PatternLimit,
)

SPACES = [9, 10, 11, 12, 13, 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
"""ECMA 262, 12.2 and 12.3: white space and line terminators."""


class Matching(unittest.TestCase):
    """What a pattern finds."""

    def test_each_piece_of_the_language_finds_what_it_says(self) -> None:
        """One accepted and one refused text for every construct of the table."""
        table = [
            ("", ("", "x"), ()),
            ("a", ("a", "xay"), ("", "b")),
            ("^a*$", ("", "aaa"), ("ab", "b")),
            ("^a+$", ("a", "aa"), ("", "b")),
            ("^ab?$", ("a", "ab"), ("abb",)),
            ("^a{2}$", ("aa",), ("a", "aaa")),
            ("^a{2,}$", ("aa", "aaaa"), ("a",)),
            ("^a{1,2}$", ("a", "aa"), ("", "aaa")),
            ("^a{0}$", ("",), ("a",)),
            ("^a+?b$", ("aab",), ("b",)),
            ("^(?:ab|cd)+$", ("abcd",), ("abc",)),
            ("^(a|)b$", ("ab", "b"), ("aab",)),
            ("^[a-c]$", ("a", "c"), ("d", "-")),
            ("^[^a-c]$", ("d", "-"), ("a",)),
            ("^[ac]$", ("a", "c"), ("b",)),
            ("^[a-cb-d]$", ("a", "b", "c", "d"), ("e",)),
            ("^[a-a]$", ("a",), ("b", "-")),
            ("^[^b]$", ("a", "c", "\0", "\U0010ffff"), ("b",)),
            ("^[^\\u{0}-\\u{10FFFE}]$", ("\U0010ffff",), ("a", "\0", "\U0010fffe")),
            ("^[^\\u{0}-\\u{10FFFF}]$", (), ("a", "\0", "\U0010ffff")),
            ("^\\u{9}\\u{01F600}$", ("\t\U0001f600",), ("\t",)),
            ("^\\ud7ff\\ue000$", ("\ud7ff\ue000",), ("",)),
            ("^a{0002}$", ("aa",), ("a", "aaa")),
            ("^[]$", (), ("", "a")),
            ("^[^]$", ("a", "\n"), ("",)),
            ("^[a\\-z]$", ("a", "-", "z"), ("b",)),
            ("^[-a]$", ("-", "a"), ("b",)),
            ("^[a-]$", ("-", "a"), ("b",)),
            ("^[\\d_]$", ("7", "_"), ("a",)),
            ("^[^\\D]$", ("7",), ("a",)),
            ("^\\d\\D\\w\\W$", ("1a_-",), ("aaaa",)),
            ("^\\s\\S$", ("\u00a0x", "\ufeffx"), ("xx",)),
            ("^.$", ("a", "\u4e2d", "\U0001f600"), ("\n", "\u2028", "")),
            ("^\\x41\\u4e2d\\u{1F600}$", ("A\u4e2d\U0001f600",), ("A",)),
            ("^\\.\\/\\-\\@$", ("./-@",), ("x/-@",)),
            ("^\\t\\n\\r\\f\\v\\0$", ("\t\n\r\f\v\0",), ("t",)),
            ("a$|^b", ("xa", "bx"), ("ax", "xb")),
        ]
        for text, accepted, refused in table:
            pattern = Pattern(text)
            for value in accepted:
                self.assertTrue(pattern.found_in(value), (text, value))
            for value in refused:
                self.assertFalse(pattern.found_in(value), (text, value))

    def test_the_end_is_the_end_of_the_text(self) -> None:
        """Python's `$` also matches before a last line feed; this one does not."""
        self.assertIsNotNone(re.search("^a$", "a\n"))

        self.assertFalse(Pattern("^a$").found_in("a\n"))

    def test_digits_and_words_are_those_of_ascii(self) -> None:
        """Python's `\\d` takes every script's digits, ECMA's does not."""
        self.assertFalse(Pattern("^\\d$").found_in("\u0663"))
        self.assertFalse(Pattern("^\\w$").found_in("\u00e4"))

    def test_each_class_of_characters_is_that_of_ecma(self) -> None:
        """At both edges of each of its ranges, and for the opposite class."""
        members = {
            "d": set(map(ord, string.digits)),
            "w": set(map(ord, string.ascii_letters + string.digits + "_")),
            "s": set(SPACES),
            ".": set(range(0x10000)) - {10, 13, 0x2028, 0x2029},
        }
        asked = {point + step for point in (*SPACES, *members["w"], 0) for step in (-1, 0, 1)} - {-1}
        for name, points in members.items():
            inside = Pattern(f"^\\{name}$" if name != "." else "^.$")
            outside = Pattern(f"^\\{name.upper()}$" if name != "." else "^[\n\r\u2028\u2029]$")
            for point in asked:
                self.assertEqual(inside.found_in(chr(point)), point in points, (name, point))
                self.assertEqual(outside.found_in(chr(point)), point not in points, (name, point))

    def test_random_patterns_agree_with_another_engine(self) -> None:
        """Two thousand patterns of a common part of both dialects, on texts of their letters."""
        rng = random.Random(10)

        def grow(depth: int) -> str:
            choice = rng.random()
            if depth == 0 or choice < 0.4:
                return rng.choice(["a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "[a-c]"])
            if choice < 0.6:
                return grow(depth - 1) + grow(depth - 1)
            if choice < 0.75:
                return f"(?:{grow(depth - 1)}|{grow(depth - 1)})"
            if choice < 0.9:
                return f"(?:{grow(depth - 1)}){rng.choice(['*', '+', '?', '{0,2}', '{2}', '{1,}', '*?'])}"
            return rng.choice(["^", "(?:^|a)", ""]) + grow(depth - 1) + rng.choice(["$", "(?:$|b)", ""])

        for _ in range(2000):
            text = grow(3)
            pattern, other = Pattern(text), re.compile(text.replace("$", "\\Z"), re.ASCII)
            for _ in range(6):
                value = "".join(rng.choice("abc1 ") for _ in range(rng.randrange(6)))
                self.assertEqual(other.search(value) is not None, pattern.found_in(value), (text, value))


class Refusals(unittest.TestCase):
    """What is refused when it is compiled, by name."""

    def test_what_is_not_taken_is_refused_with_its_place(self) -> None:
        """Nothing outside the table is guessed at."""
        for text in (
            "(?=a)", "(?!a)", "(?<=a)", "(?<n>a)", "(?i)a", "\\1", "\\b", "\\B", "\\p{L}", "\\cA", "\\k<n>", "\\_",
            "\\e", "\\00", "a{,2}", "a{", "a{2,1}", "a{99999}", "}", "]", "*", "+a", "^*", "a**", "(", ")", "(a", "[a",
            "[b-a]", "[\\d-z]", "a\\", "\\x4", "\\u12", "\\u{110000}", "\\u{}", "\\ud800", "a?+", "[a-\\d]", "\\00a",
            "a{00001}", "\\u{001F600}", "\\xZZ", "\\x+1", "\\udfff",
        ):  # fmt: skip
            with self.subTest(pattern=text), self.assertRaises(PatternError) as caught:
                Pattern(text)
            self.assertEqual(caught.exception.code, "bad_pattern")
            self.assertLessEqual(caught.exception.position, len(text))
            self.assertTrue(caught.exception.reason)

    def test_an_escape_is_named_where_it_can_be_shown(self) -> None:
        """What a log could not print is not repeated."""
        for text, reason in (
            ("\\q", "the escape \\q"),
            ("\\\u4e2d", "an unknown escape"),
            ("\\\x01", "an unknown escape"),
        ):
            with self.assertRaises(PatternError) as caught:
                Pattern(text)
            self.assertEqual(caught.exception.reason, reason)

    def test_the_published_limits_are_these(self) -> None:
        """What a reader is told of lengths, states and work."""
        self.assertEqual(
            (MAX_PATTERN, MAX_PATTERN_STATES, MAX_PATTERN_TEXT, MAX_PATTERN_WORK, CHARACTERS_A_COMPARISON),
            (1000, 1000, 10_000, 300_000, 16),
        )

    def test_each_size_is_taken_up_to_its_limit(self) -> None:
        """Length, states, empty groups, and groups inside one another however many stood beside them before."""
        for fits, too_large, position in (
            ("[" + "a" * (MAX_PATTERN - 2) + "]", "[" + "a" * (MAX_PATTERN - 1) + "]", 0),
            (f"a{{{MAX_PATTERN_STATES}}}", f"a{{{MAX_PATTERN_STATES + 1}}}", 0),
            (f"(){{{2 * MAX_PATTERN_STATES - 1}}}", f"(){{{2 * MAX_PATTERN_STATES}}}", 0),
            ("(" * 50 + "a" + ")" * 50, "(" * 51 + "a" + ")" * 51, 51),
            ("(b)?" * 60 + "(" * 50 + "a" + ")" * 50, "(b)?" * 60 + "(" * 51 + "a" + ")" * 51, 291),
        ):
            with self.subTest(fits=fits[:10]):
                Pattern(fits)
                with self.assertRaises(PatternError) as caught:
                    Pattern(too_large)
                self.assertEqual(caught.exception.position, position)

    def test_size_is_bounded(self) -> None:
        """Length, states, groups inside one another, and empty groups that would only cost time."""
        for text in (
            "a" * (MAX_PATTERN + 1), f"a{{{MAX_PATTERN_STATES + 1}}}", "(a{100}){100}", "(" * 51 + ")" * 51,
            "((){9999}){9999}", "((((a*)*)*)*){999}",
        ):  # fmt: skip
            with self.subTest(pattern=text[:20]), self.assertRaises(PatternError):
                Pattern(text)
        with self.assertRaises(PatternError):
            Pattern(b"a")  # type: ignore[arg-type]


class Cost(unittest.TestCase):
    """No pattern and no text makes a match expensive."""

    def test_nested_repetitions_cost_one_comparison_a_state(self) -> None:
        """A backtracking engine would not finish this one; the work that was used is counted here."""
        work = [MAX_PATTERN_WORK]

        self.assertFalse(Pattern("^(a+)+$").found_in("a" * 9_999 + "b", work))
        self.assertLess(MAX_PATTERN_WORK - work[0], 50 + 10_000 // CHARACTERS_A_COMPARISON)

    def test_work_is_counted_to_the_last_comparison(self) -> None:
        """One for each step that is new, and one for each state that reads; what is left may be nothing."""
        for text, value, cost in (("^a*$", "aaa", 4), ("a|b", "xx", 6), ("^a*$", "b", 2)):
            work = [cost]
            Pattern(text).found_in(value, work)
            self.assertEqual(work, [0])
            with self.assertRaises(PatternLimit) as caught:
                Pattern(text).found_in(value, [cost - 1])
            self.assertEqual((caught.exception.code, str(caught.exception)), ("pattern_limit", "pattern_limit"))

    def test_the_work_of_one_match_is_bounded(self) -> None:
        """A pattern whose places are never the same twice ends at the limit, not in minutes."""
        rng = random.Random(1)
        text = "".join(rng.choice("ab") for _ in range(MAX_PATTERN_TEXT))

        with self.assertRaises(PatternLimit):
            Pattern("(a|b)*a(a|b){200}c").found_in(text)

    def test_known_steps_of_a_long_text_cost_something_too(self) -> None:
        """The same text again and again uses the work up, though each of its steps is remembered."""
        pattern, text, work = Pattern("^a*$"), "a" * MAX_PATTERN_TEXT, [1000]
        self.assertTrue(pattern.found_in(text, work))
        self.assertLessEqual(work[0], 1000 - MAX_PATTERN_TEXT // CHARACTERS_A_COMPARISON)

        with self.assertRaises(PatternLimit):
            pattern.found_in(text, work)
        work = [MAX_PATTERN_TEXT // CHARACTERS_A_COMPARISON]
        self.assertTrue(pattern.found_in(text, work))
        self.assertEqual(work, [0])

    def test_the_text_is_bounded(self) -> None:
        """A text past the limit is not matched at all."""
        pattern = Pattern("^a*$")

        self.assertTrue(pattern.found_in("a" * MAX_PATTERN_TEXT))
        with self.assertRaises(PatternLimit):
            pattern.found_in("a" * (MAX_PATTERN_TEXT + 1))

    def test_what_is_remembered_is_bounded(self) -> None:
        """Ten thousand different characters leave no more than the stated number of moves behind."""
        pattern = Pattern("^[^b]*$")

        for start in range(0x4E00, 0x4E00 + 10_000, 1000):
            self.assertTrue(pattern.found_in("".join(map(chr, range(start, start + 1000)))))

        self.assertLessEqual(pattern._remembered, 2000)
        self.assertLessEqual(sum(len(place.moves) for place in pattern._places.values()), 2000)

    def test_what_is_remembered_is_forgotten_when_it_is_too_much(self) -> None:
        """Two thousand moves from the first place are kept; with one more there is this one."""
        pattern = Pattern("^[^b]*$")
        for point in range(0x4E00, 0x4E00 + 2000):
            self.assertTrue(pattern.found_in(chr(point)))
        self.assertEqual((pattern._remembered, len(pattern._first.moves)), (2000, 2000))

        self.assertTrue(pattern.found_in("a"))
        self.assertEqual((pattern._remembered, len(pattern._first.moves)), (1, 1))
