"""The questions about the companions: letters that follow the run, places that exist, and a change that shows."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import io
import re
import sqlite3
import sys
import unittest
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest import mock

from chapter10.companions.effects import intents
from chapter10.companions.effects.inbox import Consumer
from chapter10.companions.finding.ranking import Ranking
from chapter10.companions.interruption.budget import Budget
from chapter10.companions.retrying import retry as retry_module
from chapter10.companions.retrying.circuit_breaker import CircuitBreaker
from chapter10.companions.schemas.schema import Violation, compile_schema
from chapter10.companions.serving.offer import Offer
from chapter10.companions.tools.registry import ToolRegistry
from chapter10.companions.tools.result_budget import BudgetReport, Message, ResultBudget
from chapter10.companions.work.living_store import LivingStore
from chapter10.lab.console.textio import text_lanes
from chapter10.lab.effect_scenes.mail import _PLANS
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.guessing import areas
from chapter10.lab.guessing.predict import Area, Question, predict, reason_for
from chapter10.lab.proof.claims import ids_in, read_claims
from chapter10.lab.reader.companion_experiments import AREAS, GROUPS
from chapter10.tests.shared import companion_run as run
from chapter10.tests.support import TOP, FolderTestCase, run_python

MAX_LINES_OF_A_PICTURE = 90
"""So many lines of events are left on the way from the questions to the answers."""


# What each group would be without one of its rules ------------------------------------------------


class _Lenient:
    """Checks no type, and fills in what was left out."""

    def __init__(self, schema: object) -> None:
        self._real = compile_schema(schema)

    def validate(self, value: object) -> list[Violation]:
        return [found for found in self._real.validate(value) if found.keyword != "type"]

    def read(self, value: Mapping[str, Any]) -> tuple[dict[str, Any], list[Violation]]:
        return {"lines": 1, **value}, []


class _OncePermitted(ToolRegistry):
    """Takes a definition that was loaded for a permission."""

    async def invoke(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        if options.get("loaded"):
            options["grants"] = {"orders:use"}
        return await super().invoke(*arguments, **options)


class _Dated(ResultBudget):
    """Writes the number of the request in front of everything, as a date in a system prompt does."""

    _number = 0

    def apply(self, messages: Any) -> tuple[list[Message], BudgetReport]:
        self._number += 1
        sent, report = super().apply(messages)
        return [{"role": "user", "content": [{"type": "text", "text": f"request {self._number}"}]}, *sent], report


class _Shared(Ranking):
    """Counts over all tools and leaves out of the list what may not be seen."""

    def search(self, query: str, grants: Any, limit: int = 3) -> list[dict[str, Any]]:
        tools = self.catalog.tools
        everything = {tool.permission for tool in tools.values()}
        cards = super().search(query, everything, 1000)
        return [card for card in cards if tools[card["name"]].permission in grants][:limit]


class _Lists(Offer):
    """Lists every tool, however many there are."""

    def searches(self) -> bool:
        return False


class _CancelledWhenNobodyWaits(LivingStore):
    """Cancels the job of a caller who has waited long enough."""

    def wait(self, owner: str, job_id: int, *arguments: Any, **options: Any) -> dict[str, Any]:
        super().wait(owner, job_id, *arguments, **options)
        self.cancel(owner, job_id)
        return self.get(owner, job_id)


class _Forgetful(Consumer):
    """Makes the effect of every delivery."""

    _deliveries = 0

    def handle(self, event_id: str, effect: Callable[[sqlite3.Connection], object]) -> bool:
        self._deliveries += 1
        named = f"{event_id}, delivery {self._deliveries}"
        return super().handle(named, lambda db: db.execute("INSERT INTO orders VALUES (?)", (named,)))


async def _each_layer_for_itself(call: Callable[..., Awaitable[Any]], **options: Any) -> Any:
    return await retry_module.retry(call, **{**options, "new_chain": True})


def _never_looks(items: Iterable[Any], token: object) -> Iterator[Any]:
    return iter(items)


def _without_a_fingerprint(*arguments: Any, **options: Any) -> intents.Intent:
    return replace(intents.make_intent(*arguments, **options), fingerprint="0" * 64)


def scene_of(group: str) -> ModuleType:
    """The module of a group."""
    room = (
        "tool_scenes"
        if group in {"schema", "registry", "orchestration", "results", "turn", "ranking", "serving"}
        else "effect_scenes"
    )
    return importlib.import_module(f"chapter10.lab.{room}.{group}")


def without_a_rule(group: str) -> AbstractContextManager[Any]:
    """While it is open, one rule of the group does not hold."""
    work, afterwards, _ = _PLANS["outbox_and_dedupe"]
    easily_open = functools.partial(CircuitBreaker, failure_rate=0.001)
    in_scene: dict[str, tuple[str, Any]] = {
        "schema": ("compile_schema", _Lenient),
        "registry": ("ToolRegistry", _OncePermitted),
        "results": ("PREVIEW_CHARS", 0),
        "turn": ("ResultBudget", _Dated),
        "ranking": ("Ranking", _Shared),
        "serving": ("Offer", _Lists),
        "clocks": ("LivingStore", _CancelledWhenNobodyWaits),
        "interruption": ("checked", _never_looks),
        "retry": ("retry", _each_layer_for_itself),
        "breaker": ("CircuitBreaker", easily_open),
        "outbox": ("Consumer", _Forgetful),
    }
    if group in in_scene:
        return mock.patch.object(scene_of(group), *in_scene[group])
    elsewhere: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "orchestration": lambda: mock.patch("chapter10.companions.tools.executor.can_execute", lambda *_: True),
        "budget": lambda: mock.patch.object(Budget, "compensation", lambda budget: budget),
        "idempotency": lambda: mock.patch(
            "chapter10.companions.effects.idempotency.make_intent", _without_a_fingerprint
        ),
        "mail": lambda: mock.patch.dict(_PLANS, outbox_and_dedupe=(work, afterwards, False)),
    }
    return elsewhere[group]()


class _Text(importlib.abc.SourceLoader):
    """Loads a module from a text at hand."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_filename(self, fullname: str) -> str:
        return "<edited>"

    def get_data(self, path: Any) -> bytes:
        return self._text.encode()


def told(change: str) -> list[str]:
    """The file, what stands there, and what to put there, as a reader is told in either language."""
    found = re.search(r"(chapter10/[a-z_/]+\.py).*\n    (.+)\n -> (.+)\n", change)
    assert found is not None, change
    return list(found.groups())


def as_a_reader_edits(change: str) -> Any:
    """Do in a copy of the scene what the English sentence says; return the result of its run."""
    file, old, new = told(change)
    text = (TOP / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, (file, old)
    spec = importlib.util.spec_from_loader("chapter10_edited_scene", _Text(text.replace(old, new)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {spec.name: module}):  # dataclasses look their module up by name
        spec.loader.exec_module(module)
        return module.GROUP.run(Scene())


def letters(area: Area, result: Any) -> list[str]:
    """The truths of a run."""
    return [question.truth(result) for question in area.questions]


def docstring_of(test: str) -> str:
    """What a test says of itself, by `module.Class.name`."""
    module, case, name = test.split(".")
    return getattr(getattr(importlib.import_module(f"chapter10.tests.{module}"), case), name).__doc__ or ""


def every_question() -> Iterator[tuple[str, Question]]:
    """Each question with the name of its group."""
    for group, area in AREAS.items():
        for question in area.questions:
            yield group, question


class TheLetters(unittest.TestCase):
    """They follow the run."""

    def test_without_a_rule_a_group_has_other_letters(self) -> None:
        """One rule is taken out of each group, and at least one answer changes."""
        self.assertEqual(list(AREAS), list(GROUPS))
        for group, area in AREAS.items():
            with self.subTest(group=group), without_a_rule(group):
                self.assertNotEqual(letters(area, GROUPS[group].run(Scene())), letters(area, run(group)[0]))

    def test_no_letter_is_right_everywhere(self) -> None:
        """Whoever always says the same is not right most of the time."""
        right = [question.truth(run(group)[0]) for group, question in every_question()]
        for letter in "abcd":
            self.assertLess(right.count(letter), len(right) * 0.6, letter)

    def test_options_of_a_question_differ(self) -> None:
        """In both languages, so that no two letters mean the same."""
        for group, question in every_question():
            for language in ("zh", "en"):
                with self.subTest(question=f"{group}.{question.name}", language=language):
                    texts = [text.in_language(language) for text in question.options.values()]
                    self.assertEqual(len(set(texts)), len(texts))

    def test_what_no_option_has_is_none_of_them(self) -> None:
        """And true is not 1."""
        asked = areas.question(
            "q", ("问", "ask"), "a.0", [(1, "一", "one"), ([2], "二", "two")], ("因", "why"), "", areas.at, "t"
        )
        self.assertEqual([asked.truth({"a": [value]}) for value in (1, [2], True, 3, None)], ["a", "b", "", "", ""])
        self.assertEqual(asked.shows, ("a.0",))

    def test_a_question_may_work_its_answer_out(self) -> None:
        """Then only the places that are named are shown."""
        asked = areas.question(
            "q", ("问", "ask"), len, [(0, "零", "none")], ("因", "why"), "", areas.at, "t", also=("x",)
        )
        self.assertEqual((asked.truth({}), asked.truth({"x": 1}), asked.shows), ("a", "", ("x",)))


class WhatIsSaid(unittest.TestCase):
    """Scenes, reasons, places, and the change."""

    def test_reasons_and_scenes_have_their_lines(self) -> None:
        """A reason has two to four lines, a scene two to five, and none is too long for a terminal."""
        for group, area in AREAS.items():
            with self.subTest(group=group):
                self.assertIn(len(area.scene), (2, 3, 4, 5))
                for asked in area.questions:
                    for half in reason_for(asked, run(group)[0]):
                        self.assertIn(len(half.split("\n")), (2, 3, 4), half)
                        self.assertLessEqual(max(map(len, half.split("\n"))), 110, half)

    def test_a_line_of_a_scene_has_its_twin(self) -> None:
        """A line that is missing in one language is refused."""
        with self.assertRaises(ValueError):
            areas.area("x", ("题", "title"), ("一\n二", "one"), (), (), ("a", "b", "因", "why"))

    def test_the_place_is_where_the_claims_stand(self) -> None:
        """The heading is that of every claim that is named, in both languages; the test proves one, if it names any."""
        claims = read_claims()
        names = {
            "C8": ("工具编排文档", "the document on orchestration"),
            "T6": ("工具注册表文档", "the document on the registry"),
            "I4": ("幂等与中断文档", "the document on idempotency and interruption"),
            "C10": ("本章", "the chapter"),
        }
        for group, asked in every_question():
            with self.subTest(question=f"{group}.{asked.name}"):
                found = re.findall(r"\b(?:C8|T6|I4|C10)-\d{3}\b", asked.section.partition(" / ")[0])
                self.assertTrue(found)
                (document,) = {claims[one].document for one in found}
                (heading,) = {claims[one].section for one in found}
                self.assertEqual(asked.section, areas.at(names[document], heading, *found))
                proved = ids_in(docstring_of(asked.test))
                self.assertTrue(not proved or set(proved) & set(found), (asked.test, proved))

    def test_the_change_can_be_made_and_shows(self) -> None:
        """What stands in the sentence stands once in the scene; put in place, the run is another one."""
        for group, area in AREAS.items():
            with self.subTest(group=group):
                command, why = area.change
                self.assertEqual(command, f"python -m chapter10 companions --group {group} --predict")
                self.assertNotEqual(as_a_reader_edits(why.in_language("en")), run(group)[0])
                self.assertEqual(told(why.in_language("en")), told(why.in_language("zh")))

    def test_a_change_with_braces_is_said_as_it_is_written(self) -> None:
        """Braces of the code are no placeholders."""
        _, why = areas.edit("x", "{1}", '{"a": 2}', "试", "Try.")
        self.assertEqual(told(why.in_language("en"))[1:], ["{1}", '{"a": 2}'])

    def test_the_pictures_that_are_shown_are_those_of_the_run(self) -> None:
        """Each title is that of one part, and all together leave room for the answers."""
        for group, area in AREAS.items():
            with self.subTest(group=group):
                parts = {title.partition(" / ")[2]: events for title, events in run(group)[1].parts if events}
                self.assertLessEqual(set(area.pictures), set(parts))
                shown = area.pictures or tuple(parts)
                lines = sum(len(text_lanes(parts[title]).splitlines()) + 1 for title in shown)
                self.assertLessEqual(lines, MAX_LINES_OF_A_PICTURE)


def page(group: str, language: str, answers: list[str] | None) -> str:
    """What a reader sees of a group; nobody can type."""
    result, scene = run(group)
    out = io.StringIO()
    code = predict(AREAS[group], lambda: (result, scene.parts), language=language, answers=answers, out=out)
    assert code == 0, code
    return out.getvalue()


class ThePage(FolderTestCase):
    """What a reader sees."""

    def test_every_group_compares_in_both_languages(self) -> None:
        """A right guess is the same, any other one different; place, code and test stand below."""
        for group, area in AREAS.items():
            right = letters(area, run(group)[0])
            wrong = ["b" if letter == "a" else "a" for letter in right]
            for language, same, different in (("zh", "-> 相同", "-> 不同"), ("en", "-> same", "-> different")):
                with self.subTest(group=group, language=language):
                    text = page(group, language, right)
                    self.assertEqual((text.count(same), text.count(different)), (len(right), 0))
                    self.assertEqual(page(group, language, wrong).count(different), len(right))
                    for asked in area.questions:
                        self.assertIn(asked.test, text)
                        self.assertIn(asked.section.split(" / ")[language == "en"], text)

    def test_only_the_pictures_that_answer_are_drawn(self) -> None:
        """How many are left out is said, and where they are; a group with few shows all."""
        text = page("breaker", "en", None)
        self.assertIn("-- one probe", text)
        self.assertNotIn("-- late verdicts", text)
        self.assertIn("Pictures that are left out: 2.", text)
        self.assertNotIn("left out", page("clocks", "en", None))

    def test_a_long_table_is_told_by_its_columns(self) -> None:
        """Half a row of JSON tells a reader nothing."""
        text = page("budget", "en", None)
        self.assertIn("2 x {rule, search, summarize, ended_at_ms, left_for_compensation_ms}", text)
        self.assertIn("promised_ms = 12000", text)

    def test_a_program_without_a_terminal_ends_with_0(self) -> None:
        """Nothing is asked, nothing is kept, and any console can show it."""
        child = run_python(
            ["-m", "chapter10.lab.reader.companion_experiments", "--group", "schema", "--predict"],
            environment={"PYTHONIOENCODING": "ascii", "CHAPTER10_WORK": str(self.folder), "CHAPTER10_LANG": "zh"},
        )
        self.assertEqual((child.returncode, child.stderr), (0, ""))
        self.assertIn("default_filled_in", child.stdout)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
