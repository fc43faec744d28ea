"""What a terminal is told: sentences that are true of the run, whatever its options, and lanes that fit."""

from __future__ import annotations

import contextlib
import io
import json
import re
import unittest
from collections.abc import Iterator
from string import Formatter
from typing import Any

from chapter10 import experiments
from chapter10.experiments import GROUPS, SALES
from chapter10.lab.console.textio import Event, display_width
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.evidence.telling import narrow_lanes, wrapped
from chapter10.lab.guessing import questions
from chapter10.lab.reader.own_data import export_sales
from chapter10.lab.reader.story import SENTENCES, TABLE, sentences
from chapter10.tests.programs import Terminal
from chapter10.tests.support import TOP, FolderTestCase


def told(*arguments: str, main: Any = experiments.main) -> str:
    """What a program tells on a terminal; it ends with 0."""
    with contextlib.redirect_stdout(Terminal()) as out:
        code = main(list(arguments))
    assert code == 0, code
    return out.getvalue()


def said_of(group: str, *arguments: Any, **options: Any) -> str:
    """The English sentences about a run of a group, in one line."""
    scene = Scene()
    figures = GROUPS[group](*arguments, scene=scene)
    return " ".join(sentences(group, figures, scene, options, "en"))


class TheFirstHour(FolderTestCase):
    """docs/first-hour.md: what it quotes is what a terminal shows."""

    def test_each_quoted_line_is_one_of_the_run_that_stands_above_it(self) -> None:
        """In Chinese or in English, from the group that is guessed in the same quarter."""
        quarters = (TOP / "docs" / "first-hour.md").read_text(encoding="utf-8").split("\n## ")[1:]
        self.assertEqual(len(quarters), 4)
        for quarter in quarters:
            (group,) = re.findall(r"^python -m chapter10 predict (\w+)$", quarter, re.MULTILINE)
            texts = [told("--group", group, "--lang", language) for language in ("zh", "en")]
            said = {line for text in texts for line in text.splitlines()}
            (quoted,) = re.findall(r"```text\n(.+?)```", quarter, re.DOTALL)
            with self.subTest(group=group):
                self.assertEqual(set(quoted.splitlines()) - said, set())
                self.assertRegex(quarter, r"exercises start \d+")


class TheStory(FolderTestCase):
    """`python -m chapter10.experiments` on a terminal."""

    def test_every_group_is_told_in_both_languages_within_eighty_columns(self) -> None:
        """All five and each alone: heading, sentences, lanes; no line is wider than a terminal."""
        for language in ("zh", "en"):
            everything = told("--lang", language)
            for group in GROUPS:
                with self.subTest(group=group, language=language):
                    text = told("--group", group, "--lang", language)
                    self.assertTrue(text.startswith(f"== {group}: "))
                    self.assertIn(text.rpartition("\n\n")[0], everything)
                    self.assertIn("  *", text)
                    self.assertEqual([line for line in text.splitlines() if display_width(line) > 80], [])

    def test_the_figures_of_the_chapter_are_in_the_sentences(self) -> None:
        """What the book prints is what the reader is told.

        Claims: C10-263, C10-264, C10-265, C10-266, C10-267.
        """
        for group, expected in {
            "catalog": ("Registered tools: 300", "299 of them", "orders.get (3), shipments.get (2)", "shows 1,412",
                        "entry 150", "hits 452", "definitions 810", "takes 93,644"),
            "boundaries": ("no match", "tie of the first 2", "definition_budget_exceeded", "gives denied",
                           "stale_definition", "version 2"),
            "concurrency": ("3 reads, limit 2: at most 2", "call-B, call-C, call-A", "call-C LookupError",
                            "call-C failed"),
            "lifecycle": ("job 1, state queued, attempt 0, progress 0/0", "the last one 3/3", "running", "6,000",
                          "after cursor 5", "1 (succeeded)"),
            "failures": ("key_conflict", "lease_expired", "stale_attempt", "cancel_requested", "cancelled",
                         "deadline_exceeded", "attempt 2 is the last", "not_found"),
        }.items():  # fmt: skip
            text = " ".join(told("--group", group, "--lang", "en").split())
            for words in expected:
                with self.subTest(group=group, words=words):
                    self.assertIn(words, text)

    def test_other_options_change_the_sentences_or_leave_them_out(self) -> None:
        """No tie without one, no loading without hits, no late worker who is in time."""
        text = said_of("catalog", "归档", 3, query="归档")
        self.assertIn("The first 3 have the same score, 1", text)
        self.assertNotIn("same score", said_of("catalog", query=experiments.QUERY))
        text = said_of("catalog", "火星", query="火星")
        self.assertIn("nothing is loaded", text)
        self.assertNotIn("Whole definitions", text)
        text = said_of("catalog", "归档", 50, query="归档")
        self.assertIn("definition_budget_exceeded, and none is loaded", text)
        self.assertIn("(+46)", text)
        for query, words in (("订单", "finds one tool"), ("火星", "has no match"), ("状态", "is a tie"),
                             (experiments.QUERY, "in this order")):  # fmt: skip
            self.assertIn(f'"{query}" {words}' if query != experiments.QUERY else words,
                          said_of("boundaries", query, query=query))  # fmt: skip
        self.assertIn("at most 1 in flight", said_of("concurrency", 1))
        self.assertIn("order: call-A, call-B, call-C", said_of("concurrency", 1))
        self.assertIn("limit 9: at most 3 in flight", said_of("concurrency", 9))
        text = said_of("lifecycle", SALES, "2026-06", month="2026-06")
        self.assertIn("has no rows", text)
        self.assertNotIn("Reports of progress", text)
        text = said_of("failures", 3, lease=3)
        self.assertIn("lease of 3 still holds at 3: it delivers, B gets nothing; receipts: 1", text)
        self.assertNotIn("None", text)
        self.assertIn("lease of 1 is over at 3", said_of("failures", 1, lease=1))

    def test_a_sentence_that_another_run_would_make_false_is_not_said(self) -> None:
        """All reads well, all failed, nothing odd in a list, another job for the same key."""

        def of(group: str, **changed: Any) -> str:
            figures = {**GROUPS[group](), **changed}
            return " ".join(sentences(group, figures, Scene(), {"query": "x", "lease": 2}, "en"))

        well, ill = {"value": {"status": "paid"}}, {"error": "OSError"}
        self.assertIn("b failed; the other", of("concurrency", results={"a": well, "b": ill}))
        for results in ({"a": well}, {"a": ill, "b": ill}):
            self.assertNotIn("failed; the other", of("concurrency", results=results))
        none = {"count": 0, "first": []}
        self.assertNotRegex(of("catalog", left_out=none, never_loadable=none), "came before|can never")
        self.assertIn("again is the same job", of("failures"))
        self.assertIn("again made another job", of("failures", same_submission_same_job=False))

    def test_a_tie_and_a_long_list_are_counted_exactly(self) -> None:
        """Two of two, and no number of others where all are named; a query of forty characters stands whole."""
        self.assertIn("The first 2 have the same score, 1", said_of("catalog", "状态", query="状态"))
        self.assertNotIn("(+", said_of("catalog", "归档", 4, query="归档"))
        self.assertIn("(+1)", said_of("catalog", "归档", 5, query="归档"))
        self.assertIn(f'for "{"x" * 40}" finds', said_of("catalog", "x" * 40, query="x" * 40))
        self.assertIn(f'for "{"x" * 40}..." finds', said_of("catalog", "x" * 41, query="x" * 41))

    def test_each_part_stands_under_its_title_in_the_language_of_the_reader(self) -> None:
        """Half of a title in both; a group of one part has none."""
        self.assertIn("\n-- 作业 6：排队时取消\nt ", told("--group", "failures", "--lang", "zh"))
        self.assertIn("\n-- job 6: cancelled in the queue\nt ", told("--group", "failures", "--lang", "en"))
        self.assertNotIn("\n-- ", told("--group", "catalog", "--lang", "en"))

    def test_what_was_asked_is_what_is_told(self) -> None:
        """The command hands its options to the sentences, and the defaults where there are none."""
        self.assertIn("“报表 导出”", told("--group", "catalog", "--query", "报表 导出", "--lang", "zh"))
        self.assertIn("“查询 订单 状态”", told("--group", "catalog", "--limit", "1", "--lang", "zh"))
        self.assertIn("租约 3 ", told("--group", "failures", "--lease", "3", "--lang", "zh"))
        self.assertIn("上限 3", told("--group", "concurrency", "--limit", "3", "--lang", "zh"))

    def sales(self, last: str) -> str:
        path = self.folder / "sales.csv"
        path.write_text(f"order_id,month,amount_cents\nA,2026-08,1000\n{last}\n", encoding="utf-8")
        return str(path)

    def test_a_file_of_ones_own_is_told_too(self) -> None:
        """The sum of a good one; the line of a bad one, with exit code 1 and the reason on standard error."""
        month = ["--month", "2026-08", "--lang", "en"]
        self.assertIn(
            "cents together: 3,000", told("--group", "lifecycle", "--sales", self.sales("B,2026-08,2000"), *month)
        )
        with contextlib.redirect_stdout(Terminal()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = experiments.main(["--group", "lifecycle", "--sales", self.sales("B,2026-08,x"), *month])
        self.assertEqual(code, 1)
        self.assertIn("Line 3 is bad (bad_amount): the job ends as failed and has no result.", out.getvalue())
        self.assertNotIn("Delivered", out.getvalue())
        self.assertIn("line 3: bad_amount", err.getvalue())

    def test_a_tool_list_of_ones_own_is_told_too(self) -> None:
        """The words that were searched for, and what is odd in the list."""
        path = self.folder / "tools.json"
        tools = [{"name": "createIssue"}, {"name": "createIssue"}, {"name": "big", "description": "x" * 5000}]
        path.write_text(json.dumps({"tools": tools}), encoding="utf-8")
        text = told("--group", "catalog", "--tools", str(path), "--query", "create_issue", "--lang", "en")
        self.assertIn('A search for "create issue"', text)
        self.assertIn("their name came before: 1", text)
        self.assertIn("can never be loaded: 1", " ".join(text.split()))

    def test_everybody_else_gets_json(self) -> None:
        """With `--json` on a terminal, and where standard output is none, whatever the language."""
        plain = io.StringIO()
        with contextlib.redirect_stdout(plain):
            experiments.main(["--group", "concurrency", "--lang", "zh"])
        self.assertEqual(json.loads(plain.getvalue())["peak_in_flight"], 2)
        self.assertEqual(told("--group", "concurrency", "--json"), plain.getvalue())

    def test_the_questions_are_told_with_their_answers(self) -> None:
        """The case, the lanes, each question with the option that the run bears out and the reason."""
        for language in ("zh", "en"):
            text = told("--lang", language, main=questions.main)
            for area in questions.AREAS.values():
                self.assertIn(f"== {area.name}: {area.title.in_language(language)}\n", text)
            self.assertEqual([line for line in text.splitlines() if display_width(line) > 80], [])
        text = told("--group", "order", "--lang", "en", main=questions.main)
        self.assertIn("-> Edit, Read: as the model wrote\n", text)
        self.assertNotIn("-> Read, Edit", text)
        self.assertEqual(
            json.loads(told("--group", "order", "--json", main=questions.main))["read_if_moved"], "limit = 1"
        )


class TheTable(FolderTestCase):
    """Every sentence in both languages."""

    def runs(self) -> Iterator[tuple[str, Any, Scene, dict[str, Any]]]:
        """Runs whose sentences are all that there are, those of own files aside."""
        defaults = {"query": experiments.QUERY, "lease": 2}
        for group, arguments, asked in (
            ("catalog", (), {}), ("catalog", ("归档", 50), {}), ("catalog", ("火星",), {}),
            ("boundaries", (), {}), ("boundaries", ("订单",), {}), ("boundaries", ("火星",), {}),
            ("boundaries", (experiments.QUERY,), {}), ("concurrency", (), {}), ("lifecycle", (), {}),
            ("lifecycle", (SALES, "2026-06"), {}), ("failures", (), {}), ("failures", (3,), {"lease": 3}),
        ):  # fmt: skip
            scene = Scene()
            yield group, GROUPS[group](*arguments, scene=scene), scene, {**defaults, **asked}
        bad = self.folder / "bad.csv"
        yield "lifecycle", export_sales(bad, "2026-08"), Scene(), defaults
        bad.write_text("order_id,month,amount_cents\nA,2026-08,x\n", encoding="utf-8")
        yield "lifecycle", export_sales(bad, "2026-08"), Scene(), defaults
        odd = {"count": 1, "first": []}
        yield "catalog", {**GROUPS["catalog"](), "left_out": odd, "never_loadable": odd}, Scene(), defaults
        other = {**GROUPS["failures"](), "same_submission_same_job": False}
        yield "failures", other, Scene(), defaults

    def test_every_sentence_is_said_in_some_run_and_can_be_filled_in(self) -> None:
        """None is left that nothing says, and none asks for a figure that the run lacks."""
        seen = set()
        for group, figures, scene, asked in self.runs():
            for name, values in SENTENCES[group](figures, scene, asked):
                seen.add(name)
                for language in ("zh", "en"):
                    self.assertNotIn("{", TABLE[name].in_language(language, **values))
        others = {name for name in TABLE if name.startswith(("quickstart.", "story."))}
        self.assertEqual(set(TABLE) - seen, others)

    def test_both_languages_have_the_same_placeholders(self) -> None:
        """So that neither tells less than the other, and each is written in its own."""
        for name, text in TABLE.items():
            with self.subTest(sentence=name):
                fields = [sorted(str(field) for _, field, _, _ in Formatter().parse(one) if field) for one in text]
                self.assertEqual(*fields)
                self.assertIsNone(re.search("[\u2e80-\uffef]", text.en))
                self.assertIsNotNone(re.search("[\u2e80-\uffef]", text.zh))


class TheLines(unittest.TestCase):
    """Lanes and sentences in eighty columns."""

    def test_each_event_is_one_mark_in_the_lane_of_its_actor(self) -> None:
        """The words stand beside the lanes; what is long goes on beneath, beside lanes that wait."""
        events = [Event(1, "a", "asks", "yes"), Event(2.5, "bob", "counts " + "one " * 20), Event(3, "a", "ends")]
        self.assertEqual(
            narrow_lanes(events, 40),
            [
                "t    a  bob",
                "---  -  ---",
                "1    *  |    asks -> yes",
                "2.5  |  *    counts one one one one one",
                "     |  |    one one one one one one one",
                "     |  |    one one one one one one one",
                "     |  |    one",
                "3    *  |    ends",
            ],
        )

    def test_a_line_breaks_at_spaces_and_between_chinese_characters(self) -> None:
        """Nothing is lost but the space at the break; a mark does not begin a line, and a long word is cut."""
        text = "注册了 300 个工具，这个身份能发现 299 个（没有写权限）。Not one word of it is lost."
        for width in range(8, 60):
            lines = wrapped(text, width)
            self.assertEqual("".join(lines).replace(" ", ""), text.replace(" ", ""))
            self.assertLessEqual(max(map(display_width, lines)), width)
            self.assertEqual([line for line in lines if line[0] in "，。）"], [])
        self.assertEqual(wrapped("x" * 25, 10), ["x" * 10, "x" * 10, "x" * 5])
        self.assertEqual(wrapped("short"), ["short"])


if __name__ == "__main__":
    unittest.main()
