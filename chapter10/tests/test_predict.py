"""Guess, run, compare: the letters come from the run, the loop never blocks, and what it points at exists."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import os
import re
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10 import experiments
from chapter10.__main__ import COMMANDS
from chapter10.catalog import Catalog, CatalogError, Grants, Tool
from chapter10.experiments import GROUPS
from chapter10.jobs import JobStore
from chapter10.lab.console.strings import Text, say
from chapter10.lab.console.textio import Event, display_width
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.exercises.book import EXERCISES
from chapter10.lab.guessing import questions
from chapter10.lab.guessing.predict import (
    NO_GUESS,
    Area,
    Outcome,
    Question,
    field_of,
    place_of,
    predict,
    read_answers,
    reason_for,
)
from chapter10.lab.guessing.predictions import AREAS, area_of, asked_about
from chapter10.lab.histories.guards import guard_named, store_without
from chapter10.lab.reader import guess
from chapter10.lab.reader.companion_experiments import AREAS as COMPANION_AREAS
from chapter10.lab.reader.companion_experiments import GROUPS as COMPANION_GROUPS
from chapter10.lab.reader.companion_experiments import main as companions_main
from chapter10.tests.programs import run_here
from chapter10.tests.shared import companion_run
from chapter10.tests.support import TOP, FolderTestCase
from chapter10.tests.syntax import parsed


class _Everything(Catalog):
    """A catalog that forgets who asks, keeps the first of a tie, hands out what fits, and checks nothing later."""

    __slots__ = ()

    def discoverable(self, grants: Grants) -> list[Tool]:
        return list(self.tools.values())

    def search(self, query: str, grants: Grants, limit: int = 3) -> list[dict[str, Any]]:
        return super().search(query, grants, 1 if query == "状态" else limit)

    def load(self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = 4096) -> list[dict[str, Any]]:
        try:
            return super().load(hits, grants, budget_bytes)
        except CatalogError as error:
            if error.code != "definition_budget_exceeded":
                raise
            return super().load(hits[:1], grants)

    def authorize(self, loaded: dict[str, Any], grants: Grants) -> Tool:
        return self.tools[loaded["name"]]


async def _all_at_once(calls: Sequence[tuple[str, Any]], read: Any, limit: int) -> dict[str, Any]:
    outcomes = await asyncio.gather(*(read(argument) for _, argument in calls), return_exceptions=True)
    values = (None if isinstance(outcome, BaseException) else outcome for outcome in outcomes)
    return {call_id: {"value": value} for (call_id, _), value in zip(calls, values, strict=True)}


class _DoneWhenCounted(JobStore):
    """A store that takes the last report of progress for the end, and reads every event again."""

    def progress(self, job_id: int, attempt: int, done: int, total: int, *, now: Any = None) -> bool:
        answer = super().progress(job_id, attempt, done, total, now=now)
        if done == total:
            self.finish(job_id, attempt, {"total_cents": 0}, now=now)
        return answer

    def events(self, owner: str, job_id: int, after: int = 0, *more: Any, **options: Any) -> list[dict[str, Any]]:
        return super().events(owner, job_id)


@cache
def guarded(group: str) -> dict[str, Any]:
    """The run of the chapter."""
    return GROUPS[group]()


@cache
def naive(group: str) -> dict[str, Any]:
    """The same run with a rule taken out."""
    broken: dict[str, tuple[str, Any]] = {
        "catalog": ("Catalog", _Everything),
        "boundaries": ("Catalog", _Everything),
        "concurrency": ("bounded_reads", _all_at_once),
        "lifecycle": ("JobStore", _DoneWhenCounted),
    }
    if group == "failures":
        with mock.patch.object(experiments, "JobStore", store_without(guard_named("stale_attempt.finish"))):
            return GROUPS[group]()
    name, other = broken[group]
    with mock.patch.object(experiments, name, other):
        return GROUPS[group]()


@cache
def answers_of_the_questions() -> dict[str, dict[str, Any]]:
    """The runs of the second document's questions."""
    return {name: run(Scene()) for name, run in questions.RUNS.items()}


@cache
def companions() -> dict[str, dict[str, Any]]:
    """The runs of the companions' groups."""
    return {name: companion_run(name)[0] for name in COMPANION_GROUPS}


def every_area() -> Iterator[tuple[Area, Mapping[str, Any]]]:
    """Each area with the result of its run."""
    for name, area in AREAS.items():
        yield area, guarded(name)
    for name, area in questions.AREAS.items():
        yield area, answers_of_the_questions()[name]
    for name, area in COMPANION_AREAS.items():
        yield area, companions()[name]


def _outcome(result: Any) -> Callable[[], Outcome]:
    return lambda: (result, [])


class TheQuestions(unittest.TestCase):
    """Data: complete, right, and pointing at what exists."""

    def test_every_group_of_the_chapter_has_questions(self) -> None:
        """Five groups, five areas, two or three questions each, a scene of five lines.

        Claims: C10-263, C10-264, C10-265, C10-266, C10-267.
        """
        self.assertEqual(list(AREAS), list(GROUPS))
        for area, _ in every_area():
            with self.subTest(area=area.name):
                self.assertIn(len(area.questions), (2, 3))
                self.assertLessEqual(len(area.scene), 5)
                self.assertEqual(len({question.name for question in area.questions}), len(area.questions))
                for question in area.questions:
                    self.assertIn("".join(question.options), ("ab", "abc", "abcd"))

    def test_the_truth_of_a_run_is_one_of_the_options(self) -> None:
        """The letter is worked out from the result, and the fields that decide it are in the result."""
        for area, result in every_area():
            for question in area.questions:
                with self.subTest(question=f"{area.name}.{question.name}"):
                    self.assertIn(question.truth(result), question.options)
                    for name in question.shows:
                        field_of(result, name)  # raises if it is not there

    def test_no_letter_is_written_down(self) -> None:
        """A run with a rule taken out gives another letter for at least one question of each group."""
        for name, area in AREAS.items():
            with self.subTest(group=name):
                letters = [(q.truth(guarded(name)), q.truth(naive(name))) for q in area.questions]
                self.assertTrue(any(right != other for right, other in letters), letters)

    def test_the_letters_of_the_chapter(self) -> None:
        """What a reader with the book in hand works out.

        Claims: C10-270, C10-271, C10-273, C10-275, C10-276.
        """
        letters = {name: "".join(q.truth(guarded(name)) for q in area.questions) for name, area in AREAS.items()}
        self.assertEqual(
            letters, {"catalog": "bcc", "boundaries": "bcb", "concurrency": "bc", "lifecycle": "bbb", "failures": "bcb"}
        )

    def test_the_letters_of_the_companions(self) -> None:
        """What a reader of the documents works out, one string of letters a group."""
        letters = {
            name: "".join(question.truth(companions()[name]) for question in area.questions)
            for name, area in COMPANION_AREAS.items()
        }
        expected = {"schema": "bab", "registry": "bab", "orchestration": "bab", "results": "baa", "turn": "caa"}
        expected |= {"clocks": "cbb", "budget": "cbc", "interruption": "bab", "retry": "dab", "breaker": "aab"}
        expected |= {"idempotency": "cc", "outbox": "aba", "mail": "cca", "ranking": "bbc", "serving": "cbb"}
        self.assertEqual(letters, expected)

    def test_other_flags_give_other_letters(self) -> None:
        """The change that is proposed at the end really changes what is asked about."""
        for result, question, letter in (
            (GROUPS["boundaries"]("订单"), AREAS["boundaries"].questions[0], "a"),
            (GROUPS["concurrency"](3), AREAS["concurrency"].questions[0], "c"),
            (GROUPS["failures"](3), AREAS["failures"].questions[0], "a"),
        ):
            self.assertEqual(question.truth(result), letter)

    def test_what_is_said_is_true_of_the_run_with_its_options(self) -> None:
        """Scene, questions and reasons speak of the limit, the query, the month and the lease of this very run."""
        for group, asked, said_of_it, never in (
            ("concurrency", {"limit": 1}, ("at most 1 at once", "limit 1:", "One worker"), ("limit 2", "Two workers")),
            ("concurrency", {"limit": 3}, ("at most 3 at once", "limit 3:", "three workers"), ("limit 2",)),
            ("concurrency", {"limit": 9}, ("at most 9 at once", "limit 9:", "three workers"), ("The first two",)),
            ("boundaries", {"query": "订单"}, ("out of sight: 1", "one tool"), ("only the first", "same score")),
            ("boundaries", {"query": "退款"}, ("out of sight: 1", "none has a word"), ("状态",)),
            ("boundaries", {"query": "订单 状态"}, ("stands first", "highest"), ("decides no tie",)),
            ("boundaries", {"query": "{x}"}, ("The query {x}:", "none has a word"), ("out of sight",)),
            ("lifecycle", {"month": "2026-07"}, ("1 sale;", "Progress says 1/1"), ("August", "3/3")),
            ("lifecycle", {"month": "2026-01"}, ("no sale", "After the claim"), ("August", "3/3")),
            ("failures", {"lease": 1}, ("a lease of 1,", "B claims the same job"), ("a lease of 2",)),
            ("failures", {"lease": 3}, ("a lease of 3;", "The lease ends at 4"), ("B claims", "falls silent")),
            ("catalog", {"query": "火星"}, ("is 火星", "The entry is in every"), ("付过款", "its parameters")),
            ("catalog", {"grants": frozenset()}, ("this identity: -",), ("reads orders",)),
        ):  # fmt: skip
            result = GROUPS[group](**asked)
            area = asked_about(area_of(group, asked), result)
            out = io.StringIO()
            predict(area, _outcome(result), answers=["-"] * len(area.questions), out=out)
            text = out.getvalue().partition("change one thing")[0]
            with self.subTest(group=group, asked=asked):
                for words in said_of_it:
                    self.assertIn(words, text)
                for words in never:
                    self.assertNotIn(words, text)
                self.assertNotIn("none of the options", text)
                self.assertEqual(area.change[0], f"python -m chapter10.experiments --group {group} --predict")
                for language in ("zh", "en"):
                    for question in area.questions:
                        self.assertTrue(reason_for(question, result).in_language(language))
                        self.assertTrue(names_a_test(question.test))

    def test_what_no_option_answers_is_not_asked(self) -> None:
        """Two options with the same number would both be right."""
        result = GROUPS["catalog"](limit=50, grants={"archive:read"})
        area = area_of("catalog", {"limit": result["discoverable"], "grants": {"archive:read"}})
        self.assertEqual(area.questions[0].truth(result), "")
        self.assertEqual([question.name for question in asked_about(area, result).questions], ["share", "part"])

    def test_what_no_option_names_is_said_to_be_none(self) -> None:
        """A truth may be empty; it never invents a letter."""
        self.assertEqual(AREAS["catalog"].questions[0].truth({"discoverable": 17}), "")

    def test_every_test_that_is_named_exists(self) -> None:
        """The command that is printed runs one test of the suite."""
        for area, _ in every_area():
            for question in area.questions:
                with self.subTest(test=question.test):
                    self.assertTrue(names_a_test(question.test))

    def test_every_command_that_is_proposed_is_a_command(self) -> None:
        """It starts the program itself with options that it knows."""
        for area, _ in every_area():
            with self.subTest(area=area.name):
                named = re.match(r"python -m chapter10(?:\.(experiments)| (\w+)) --group ", area.change[0])
                assert named is not None, area.change[0]
                self.assertIn(named[1] or named[2], {command.name for command in COMMANDS})
                self.assertIn("--predict", area.change[0])

    def test_a_place_is_looked_up(self) -> None:
        """The line is the one in which the function begins."""
        for function in {code for area, _ in every_area() for code in (*area.code, *(q.code for q in area.questions))}:
            file, _, line = place_of(function).rpartition(":")
            text = (TOP / file).read_text(encoding="utf-8").splitlines()
            below = " ".join(text[int(line) - 1 : int(line) + 3])
            self.assertRegex(below, rf"(def|class) {function.__name__}\b")


def names_a_test(dotted: str) -> bool:
    """Whether `module.Class.method` is a test of this suite, from its syntax."""
    module, _, rest = dotted.partition(".")
    return rest in named_tests_of(module)


@cache
def named_tests_of(module: str) -> frozenset[str]:
    """What a test module defines: "" for itself, `Class` and `Class.method`; nothing if there is none."""
    path = TOP / "chapter10" / "tests" / f"{module}.py"
    if not path.is_file():
        return frozenset()
    classes = [node for node in parsed(path).body if isinstance(node, ast.ClassDef)]
    methods = [
        f"{parent.name}.{node.name}"
        for parent in classes
        for node in parent.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return frozenset({"", *(parent.name for parent in classes), *methods})


class DocumentQuestions(unittest.TestCase):
    """The three questions at the end of the second document."""

    def test_greedy_is_not_the_cheapest(self) -> None:
        """It replaces 50,000 characters where 6,000 would do; both replace one result.

        Claims: C8-083.
        """
        result = answers_of_the_questions()["greedy"]
        self.assertEqual((result["greedy_reads_back_chars"], result["cheapest_reads_back_chars"]), (50_000, 6_000))
        self.assertEqual((len(result["greedy_replaces"]), result["fewest_replaced"]), (1, 1))
        self.assertEqual(result["cheapest_replaces"], ["note"])

    def test_freezing_costs_room_and_saves_the_prefix(self) -> None:
        """Under a tighter limit the frozen way is over it and unchanged; the stateless way is within and changed.

        Claims: C8-084.
        """
        result = answers_of_the_questions()["freezing"]
        self.assertEqual((result["frozen_over_limit"], result["stateless_over_limit"]), (True, False))
        self.assertEqual(result["frozen_same_prefix_chars"], result["first_request_chars"])
        self.assertLess(result["stateless_same_prefix_chars"], 1_000)
        self.assertEqual(result["stateless_replaced"], ["log"])

    def test_a_wrong_order_is_kept_because_it_may_be_right(self) -> None:
        """Edit then Read runs as written; moving the read changes what it sees.

        Claims: C8-085.
        """
        result = answers_of_the_questions()["order"]
        self.assertEqual(result["executed"], result["model_wrote"])
        self.assertEqual((result["read_as_written"], result["read_if_moved"]), ("limit = 2", "limit = 1"))

    def test_the_command_prints_json_or_asks(self) -> None:
        """All three, one of them, or one with a guess first."""
        self.assertEqual(list(json.loads(said(questions.main))), ["greedy", "freezing", "order"])
        self.assertEqual(json.loads(said(questions.main, "--group", "order"))["executed"], ["Edit", "Read"])
        text = said(questions.main, "--group", "order", "--predict", "--answers", "a,a", "--no-save", "--lang", "en")
        self.assertIn("-> same", text)
        self.assertIn("-> different", text)


def said(main: Any, *arguments: str) -> str:
    """What a program prints; it ends with 0."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(list(arguments))
    assert code == 0, code
    return out.getvalue()


def small_area() -> Area:
    """An area with two questions, for the loop."""
    text = Text("中", "en")
    options = {"a": Text("甲", "one"), "b": Text("乙", "two")}
    question = Question(
        "first", text, options, lambda r: r["letter"], ("letter",), text, "节", place_of, "test_predict.TheLoop"
    )
    return Area(
        "small", text, (text,), (place_of,), (question, replace(question, name="second")), ("python -m x", text)
    )


class TheLoop(FolderTestCase):
    """Ask, run, compare."""

    def loop(self, lines: Sequence[str | type[BaseException]] | None, **options: Any) -> str:
        """Run the loop with what a reader types; an exception stands for a key."""
        typed = iter(lines or ())
        letter = options.pop("letter", "a")

        def ask(prompt: str) -> str:
            line = next(typed)
            if isinstance(line, str):
                return line
            raise line

        out = io.StringIO()
        code = predict(
            small_area(),
            lambda: ({"letter": letter}, [("", [Event(1, "x", "runs", "well")])]),
            ask=None if lines is None else ask,
            out=out,
            **options,
        )
        self.assertEqual(code, 0)
        self.assertEqual(list(typed), [])
        return out.getvalue()

    def test_a_guess_is_same_or_different(self) -> None:
        """Capitals and a full stop are forgiven; the order is scene, questions, run, comparison, change."""
        text = self.loop(["A", "b."])
        self.assertIn("-> same", text)
        self.assertIn("-> different", text)
        places = [
            text.index(part) for part in ("The code that will run", "1. en", "Now it runs", "Compare", "change one")
        ]
        self.assertEqual(places, sorted(places))
        self.assertIn("test_predict.TheLoop", text)
        self.assertIn("chapter10/lab/guessing/predict.py:", text)
        self.assertIn("-> well", text)

    def test_an_empty_line_skips_one_question(self) -> None:
        """The next one is still asked."""
        text = self.loop(["", "a"])
        self.assertIn("-> no guess", text)
        self.assertIn("-> same", text)

    def test_an_interrupt_or_the_end_skips_the_rest_and_the_run_goes_on(self) -> None:
        """No second line is asked for."""
        for key in (KeyboardInterrupt, EOFError):
            with self.subTest(key=key.__name__):
                text = self.loop([key])
                self.assertEqual(text.count("-> no guess"), 2)
                self.assertIn("Now it runs", text)

    def test_a_line_that_is_no_letter_is_asked_for_again_three_times(self) -> None:
        """Then the question counts as skipped."""
        text = self.loop(["x", "yes", "c", "b"], letter="b")
        self.assertEqual(text.count("Please type one of these letters"), 3)
        self.assertIn("-> no guess", text)
        self.assertIn("-> same", text)

    def test_without_a_terminal_the_questions_are_printed_and_the_run_goes_on(self) -> None:
        """Nothing blocks, and the page says what happened."""
        text = self.loop(None)
        self.assertIn("no terminal, so nothing is read", text)
        self.assertIn("1. en", text)
        self.assertEqual(text.count("-> no guess"), 2)

    def test_a_result_outside_the_options_is_said_to_be(self) -> None:
        """The guess is different, and no letter is made up."""
        text = self.loop(None, answers=["a", "-"], letter="")
        self.assertIn("none of the options", text)
        self.assertIn("-> different", text)

    def test_guesses_are_kept_beside_those_of_other_areas(self) -> None:
        """In one small JSON file, ASCII with LF; without a folder nothing is kept."""
        path = self.folder / "work" / "predictions.json"
        self.loop(None, answers=["b", "-"])
        self.assertFalse(path.exists())
        path.parent.mkdir()
        path.write_text('{"other": {"q": "c"}}', encoding="utf-8")
        text = self.loop(None, answers=["b", "-"], folder=path.parent)
        self.assertIn("predictions.json", text)
        self.assertNotIn(b"\r", path.read_bytes())
        kept = json.loads(path.read_text(encoding="ascii"))
        self.assertEqual(kept, {"other": {"q": "c"}, "small": {"first": "b", "second": NO_GUESS}})

    def test_a_spoilt_file_of_guesses_is_begun_anew(self) -> None:
        """It is no reason to lose the run."""
        path = self.folder / "predictions.json"
        for content in (b"\xff\xfe", b"[1]", b"{"):
            path.write_bytes(content)
            self.loop(None, answers=["b", "a"], folder=self.folder)
            self.assertEqual(json.loads(path.read_text(encoding="ascii"))["small"]["first"], "b")

    def test_a_folder_that_cannot_be_written_does_not_disturb_the_run(self) -> None:
        """One line says so; the exit code is still 0."""
        blocked = self.folder / "file"
        blocked.write_text("x", encoding="utf-8")
        self.assertIn("were not saved", self.loop(None, answers=["a", "a"], folder=blocked / "my_work"))

    def test_a_skipped_round_keeps_nothing(self) -> None:
        """Old guesses are not wiped out by somebody who only looks."""
        self.loop(None, folder=self.folder)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_answers_are_letters_of_the_questions(self) -> None:
        """Missing ones are skipped; a letter that is none, or one too many, is refused."""
        area = small_area()
        self.assertEqual(read_answers(area, "B, a"), ["b", "a"])
        self.assertEqual(read_answers(area, ",a"), ["-", "a"])
        self.assertEqual(read_answers(area, "-"), ["-", "-"])
        self.assertEqual(read_answers(area, ""), ["-", "-"])
        for text in ("c", "a,b,a", "ab", "a;b"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                read_answers(area, text)


class TheCommand(FolderTestCase):
    """`python -m chapter10.experiments --group G --predict`."""

    def test_every_group_asks_runs_and_compares(self) -> None:
        """In both languages, from the same run; the plain command stays silent JSON.

        Claims: C10-263, C10-264, C10-265, C10-266, C10-267, C10-277.
        """
        for group, area in AREAS.items():
            for language in ("zh", "en"):
                with self.subTest(group=group, language=language):
                    text = said(
                        experiments.main,
                        "--group",
                        group,
                        "--predict",
                        "--answers",
                        "a",
                        "--no-save",
                        "--lang",
                        language,
                    )
                    for question in area.questions:
                        self.assertEqual(text.count(question.ask.in_language(language)), 2)
                        self.assertIn(question.test, text)
                        self.assertIn(question.section, text)
            self.assertEqual(json.loads(said(experiments.main, "--group", group)), guarded(group))

    def test_lanes_fit_in_a_terminal_and_time_goes_on(self) -> None:
        """No line of a picture is wider than eighty places, and none goes back in time."""
        for group in AREAS:
            for language in ("zh", "en"):
                text = said(guess.main, group, "--answers", "a", "--no-save", "--lang", language)
                head, foot = say("predict.timeline", language), say("predict.compare", language)
                picture = text.partition(head)[2].partition(foot)[0]
                self.assertTrue(picture)
                self.assertLessEqual(max(map(display_width, picture.splitlines())), 80)
            scene = Scene()
            GROUPS[group](scene=scene)
            for title, events in scene.parts:
                times = [event.t for event in events]
                self.assertEqual(times, sorted(times), title)

    def test_a_program_without_a_terminal_ends_with_0(self) -> None:
        """Nothing is asked, nothing is kept, and any console can show it."""
        for encoding in ("utf-8", "ascii"):
            reader = {"CHAPTER10_WORK": str(self.folder), "CHAPTER10_LANG": "zh"}
            with mock.patch.dict(os.environ, reader):
                ended = run_here(["chapter10.experiments", "--group", "concurrency", "--predict"], encoding=encoding)
            self.assertEqual((ended.code, ended.errors), (0, ""))
            self.assertIn("peak_in_flight", ended.out)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_guesses_go_to_the_readers_folder(self) -> None:
        """Unless the reader says `--no-save`."""
        with mock.patch.dict(os.environ, {"CHAPTER10_WORK": str(self.folder)}):
            said(experiments.main, "--group", "catalog", "--predict", "--answers", "c,a", "--lang", "en")
        kept = json.loads(Path(self.folder, "predictions.json").read_text(encoding="utf-8"))
        self.assertEqual(kept, {"catalog": {"visible": "c", "share": "a", "part": "-"}})

    def test_other_flags_go_with_predict(self) -> None:
        """The letters follow the flags of the run."""
        text = said(
            experiments.main, "--group", "concurrency", "--limit", "3", "--predict", "--answers", "c", "--no-save",
            "--lang", "en",
        )  # fmt: skip
        self.assertIn("at most?   -> same", text)

    def test_a_mistake_is_said_before_a_question(self) -> None:
        """Nothing is printed about a run that cannot be made."""
        for rest in (["concurrency", "--limit", "0"], ["lifecycle", "--month", "x"], ["failures", "--lease", "0"]):
            out = io.StringIO()
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(io.StringIO()),
                self.assertRaises(SystemExit) as caught,
            ):
                guess.main(rest)
            self.assertEqual((caught.exception.code, out.getvalue()), (2, ""))

    def test_a_companion_group_asks_before_it_runs(self) -> None:
        """Every one has questions; one that had none would be refused with the names of those that have."""
        self.assertEqual(list(COMPANION_AREAS), list(COMPANION_GROUPS))
        group = next(iter(COMPANION_GROUPS))
        text = said(companions_main, "--group", group, "--predict", "--answers", "b,b", "--no-save", "--lang", "en")
        self.assertIn("-> same", text)
        self.assertIn("-> different", text)
        with (
            mock.patch.dict(COMPANION_AREAS, clear=True),
            contextlib.redirect_stderr(io.StringIO()) as err,
            self.assertRaises(SystemExit) as caught,
        ):
            companions_main(["--group", group, "--predict"])
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("there are no questions about", err.getvalue())

    def test_predict_names_a_group_of_the_chapter_or_of_the_companions(self) -> None:
        """`predict GROUP` is the experiment with `--predict`; what follows goes to it, in any order."""
        for group, main in (("concurrency", experiments.main), ("schema", companions_main)):
            rest = ["--answers", "b,b", "--no-save", "--lang", "en"]
            expected = said(main, "--group", group, "--predict", *rest)
            self.assertEqual(said(guess.main, group, *rest), expected)
            self.assertEqual(said(guess.main, "--lang", "en", group, *rest[:-2]), expected)
        self.assertIn("at most?   -> same", said(guess.main, "concurrency", "--limit", "3", "--answers", "c",
                                                 "--no-save", "--lang", "en"))  # fmt: skip

    def test_predict_without_a_group_lists_all_of_them(self) -> None:
        """Each with what it asks about, in the reader's language; another name is a mistake of usage."""
        for language in ("zh", "en"):
            lines = said(guess.main, "--lang", language).splitlines()
            areas = {**AREAS, **COMPANION_AREAS}
            self.assertEqual([line.split()[4] for line in lines], list(areas))
            for line, area in zip(lines, areas.values(), strict=True):
                self.assertTrue(line.endswith(area.title.in_language(language)))
        for wrong in (["nothing"], ["--limit=3"]):
            with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as caught:
                guess.main(wrong)
            self.assertEqual(caught.exception.code, 2)
            self.assertIn("error: ", err.getvalue())

    def test_the_list_shows_what_was_guessed(self) -> None:
        """What is kept is shown; a file that somebody else wrote over is none."""
        with mock.patch.dict(os.environ, {"CHAPTER10_WORK": str(self.folder)}):
            said(guess.main, "catalog", "--answers", "c,-,a", "--lang", "en")
            lines = said(guess.main, "--lang", "en").splitlines()
            self.assertEqual([line[-23:] for line in lines if "guessed" in line], ["   (guessed last: c,-,a)"[-23:]])
            self.assertIn("(上次猜了 c,-,a)", said(guess.main, "--lang", "zh"))
            Path(self.folder, "predictions.json").write_text('{"catalog": "x"}', encoding="utf-8")
            self.assertNotIn("guessed", said(guess.main, "--lang", "en"))

    def test_skipping_the_first_question_is_an_answer(self) -> None:
        """`--answers -,-,-` is what the help offers, with every program that asks."""
        for main, group in ((experiments.main, "failures"), (companions_main, "schema"), (questions.main, "order")):
            text = said(main, "--group", group, "--predict", "--answers", "-,a", "--no-save", "--lang", "en")
            self.assertIn("-> no guess", text)
        text = said(guess.main, "failures", "--answers", "-,-,-", "--no-save", "--lang", "en")
        self.assertEqual(text.count("-> no guess"), 3)

    def test_the_hints_name_commands_that_exist(self) -> None:
        """A hint that sends a reader to a group names one that is there."""
        for exercise in EXERCISES.values():
            for hint in exercise.hints:
                for group in re.findall(r"--group (\w+)", hint.zh + hint.en):
                    self.assertIn(group, AREAS)


if __name__ == "__main__":
    unittest.main()
