"""Everything a reader is told is there in both languages, and the language is chosen by one rule."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import re
import string
import unittest
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from chapter10.companions.operating.jobs_words import WORDS
from chapter10.lab.console.strings import TABLE, Text, choose_language, say
from chapter10.lab.exercises.book import EXERCISES
from chapter10.lab.exercises.judge import CHECKS
from chapter10.lab.guessing.predict import Area
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.guessing.questions import AREAS as QUESTION_AREAS
from chapter10.lab.processes import stops
from chapter10.lab.reader.companion_experiments import AREAS as COMPANION_AREAS
from chapter10.tests.support import TOP
from chapter10.tests.syntax import parsed

LAB = TOP / "chapter10" / "lab"
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def areas() -> Iterator[Area]:
    """Every area of questions that a program offers."""
    yield from AREAS.values()
    yield from QUESTION_AREAS.values()
    yield from COMPANION_AREAS.values()


def texts() -> dict[str, Text]:
    """Every text that a reader may meet, by a name that says where it is."""
    found = dict(TABLE) | {f"jobs.{name}": text for name, text in WORDS.items()}
    for area in areas():
        found[f"{area.name}.title"] = area.title
        found[f"{area.name}.change"] = area.change[1]
        found |= {f"{area.name}.scene.{number}": text for number, text in enumerate(area.scene)}
        for question in area.questions:
            name = f"{area.name}.{question.name}"
            found[f"{name}.ask"] = question.ask
            if isinstance(question.reason, Text):
                found[f"{name}.reason"] = question.reason
            found |= {f"{name}.{letter}": text for letter, text in question.options.items()}
    for exercise in EXERCISES.values():
        found[f"exercise.{exercise.number}"] = exercise.title
        found |= {f"exercise.{exercise.number}.hint.{step}": text for step, text in enumerate(exercise.hints)}
    for number, checks in CHECKS.items():
        found |= {f"check.{number}.{check.name}": check.text for check in checks}
    return found


def text_of_the_program() -> str:
    """The source of the one entry for every command."""
    return (TOP / "chapter10" / "__main__.py").read_text(encoding="utf-8")


class BothLanguages(unittest.TestCase):
    """One text, two languages."""

    def test_both_are_present(self) -> None:
        """Neither half is empty or has blanks around it."""
        self.assertGreater(len(texts()), 200)
        for name, text in texts().items():
            with self.subTest(text=name):
                for half in text:
                    self.assertEqual(half.strip(), half)
                    self.assertTrue(half.strip())

    def test_english_has_no_chinese_but_words_of_the_data(self) -> None:
        """A reader without Chinese is not left alone: only query words and names of the fixture stand in English."""
        data = {"查询", "订单", "状态", "物流", "报表", "导出", "发票", "付过款了吗", "退款", "申请"}
        for name, text in texts().items():
            with self.subTest(text=name):
                rest = text.en
                for word in data:
                    rest = rest.replace(word, "")
                self.assertIsNone(CHINESE.search(rest), text.en)

    def test_placeholders_are_the_same(self) -> None:
        """What is filled in is filled in in both. Only the tables have placeholders."""
        for name, text in (*TABLE.items(), *WORDS.items()):
            with self.subTest(text=name):
                zh, en = ({field for _, field, _, _ in string.Formatter().parse(half) if field} for half in text)
                self.assertEqual(zh, en)

    def test_every_text_of_the_table_is_used(self) -> None:
        """And every text that a program asks for is in the table."""
        code = " ".join(path.read_text(encoding="utf-8") for path in LAB.rglob("*.py") if path.name != "strings.py")
        used = set(re.findall(r'["\']([a-z_0-9.]+)["\']', code))
        code += text_of_the_program()
        helps = re.findall(r'parser_in\("[^"]+", "(\w+)"', code)
        used |= {f"{name}.help" for name in [*helps, "help"]}
        self.assertEqual([name for name in TABLE if name not in used and name.partition(".")[2] not in used], [])
        asked = {name for name in used if re.fullmatch(r"(predict|doctor|exercises|file)\.[a-z_0-9]+", name)}
        self.assertGreater(len(asked), 10)
        self.assertLessEqual(asked, set(TABLE) | {"file.py"})

    def test_a_text_is_said_with_its_values(self) -> None:
        """The values come in, in the language that was asked for; any other language is English."""
        self.assertEqual(say("exercises.all_pass", "zh", number=6), "[OK] 练习 6 通过。")
        self.assertEqual(say("exercises.all_pass", "en", number=6), "[OK] exercise 6 passes.")
        self.assertEqual(say("exercises.all_pass", "fr", number=6), "[OK] exercise 6 passes.")
        with self.assertRaises(KeyError):
            say("no.such_text", "en")


class TheCommands(unittest.TestCase):
    """What a command says to a person is in the table, and in the language of the person."""

    COMMANDS = {  # noqa: RUF012 - a table of this class
        "program": "chapter10.__main__",
        "explore": "chapter10.lab.histories.explore",
        "progress": "chapter10.lab.exercises.progress",
        "terminals": "chapter10.lab.processes.two_terminals",
        "chaos": "chapter10.lab.processes.chaos",
        "stops": "chapter10.lab.processes.stops",
    }

    def test_the_help_is_in_the_readers_language(self) -> None:
        """What the command is for and what each option does, by `--lang` before or after, or by the variable."""
        for name, module in self.COMMANDS.items():
            main = importlib.import_module(module).main
            for language in ("zh", "en"):
                out = io.StringIO()
                with contextlib.redirect_stdout(out), self.assertRaises(SystemExit) as left:
                    main(["--lang", language, "--help"])
                self.assertEqual(left.exception.code, 0)
                said = " ".join(out.getvalue().split())
                for text in (f"{name}.help", "help.help", "help.lang"):
                    self.assertIn(say(text, language).replace(" ", ""), said.replace(" ", ""))
            with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as left:
                main(["--lang", "fr"])
            self.assertEqual(left.exception.code, 2)
            self.assertIn("--lang", err.getvalue())

    def test_nothing_is_printed_past_the_table(self) -> None:
        """No sentence stands in a `print` of these commands: names and figures do, and what `say` brings."""
        for module in self.COMMANDS.values():
            path = TOP / Path(*module.split(".")).with_suffix(".py")
            for call in (node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)):
                if isinstance(call.func, ast.Name) and call.func.id == "print":
                    written = [part.value for part in plain(call) if isinstance(part.value, str)]
                    sentences = [text for text in written if re.search(r"[A-Za-z]{3,} [A-Za-z]{2,}", text)]
                    self.assertEqual(sentences, [], f"{module}:{call.lineno}")

    def test_the_table_of_the_stops_is_in_both_languages(self) -> None:
        """Its head and its verdict; the states stay as they are."""
        rows = [(kind, stops.EXPECTED[kind], "running", "cancelled") for kind in stops.KINDS]
        for language in ("zh", "en"):
            out = io.StringIO()
            with mock.patch.object(stops, "play", return_value=rows), contextlib.redirect_stdout(out):
                self.assertEqual(stops.main(["--lang", language]), 0)
            for name in ("stops.process", "stops.row_before", "stops.fine"):
                self.assertIn(say(name, language), out.getvalue())


def plain(call: ast.AST) -> Iterator[ast.Constant]:
    """The constants of a call that no `say` looks up."""
    for child in ast.iter_child_nodes(call):
        if isinstance(child, ast.Constant):
            yield child
        elif not (isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "say"):
            yield from plain(child)


class TheLanguage(unittest.TestCase):
    """`--lang`, then `CHAPTER10_LANG`, then the locale."""

    def test_what_is_said_goes_first(self) -> None:
        """A flag beats the variable, the variable beats the locale."""
        environment = {"CHAPTER10_LANG": "zh", "LANG": "en_US.UTF-8"}
        self.assertEqual(choose_language("en", environment=environment), "en")
        self.assertEqual(choose_language(None, environment=environment), "zh")

    def test_a_variable_that_names_no_language_is_ignored(self) -> None:
        """A typing error is no reason to fail."""
        environment = {"CHAPTER10_LANG": "klingon", "LANG": "zh_CN.UTF-8"}
        self.assertEqual(choose_language(None, environment=environment, encoding="utf-8"), "zh")

    def test_a_chinese_locale_gives_chinese_where_the_console_can_show_it(self) -> None:
        """Names of Linux and of Windows; GBK will do, a Western page will not."""
        for name, encoding, language in (
            ("zh_CN", "utf-8", "zh"),
            ("zh_TW.UTF-8", "utf-8", "zh"),
            ("Chinese (Simplified)_China", "cp936", "zh"),
            ("zh_CN", "cp1252", "en"),
            ("zh_CN", "no-such-encoding", "en"),
            ("en_US", "utf-8", "en"),
            ("", "utf-8", "en"),
            ("C", "utf-8", "en"),
        ):
            with self.subTest(locale=name, encoding=encoding):
                self.assertEqual(choose_language(None, environment={}, locale_name=name, encoding=encoding), language)

    def test_the_variables_of_the_locale_are_read_in_their_order(self) -> None:
        """`LC_ALL`, `LC_MESSAGES`, `LANG`; an empty one counts as absent."""
        environment = {"LC_ALL": "", "LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}
        self.assertEqual(choose_language(None, environment=environment, encoding="utf-8"), "zh")


if __name__ == "__main__":
    unittest.main()
