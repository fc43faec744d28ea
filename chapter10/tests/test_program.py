"""One entry for every command: what it lists, in which language, and what it runs."""

from __future__ import annotations

import importlib
import os
import re
import tomllib
import unittest
from unittest import mock

from chapter10 import __main__ as program
from chapter10.__main__ import COMMANDS, available
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.reader import companion_experiments
from chapter10.tests.programs import run_here
from chapter10.tests.support import TOP
from chapter10.tests.syntax import PACKAGE


class TheCommands(unittest.TestCase):
    """`python -m chapter10`."""

    def test_it_lists_only_what_is_there(self) -> None:
        """Each command whose file exists, in one line that says what for."""
        self.assertEqual(available(PACKAGE), list(COMMANDS))
        self.assertEqual(available(PACKAGE / "no-such-folder"), [])
        said = run_here(["chapter10", "--lang", "en"])
        self.assertEqual((said.code, said.errors), (0, ""))
        self.assertTrue(said.out.isascii())
        lines = [line for line in said.out.splitlines() if line.startswith("  python -m chapter10 ")]
        self.assertEqual([line.split()[3] for line in lines], [known.name for known in COMMANDS])
        self.assertTrue(all(len(line) < 100 and known.en in line for line, known in zip(lines, COMMANDS, strict=True)))

    def test_it_speaks_the_readers_language(self) -> None:
        """Chinese by `--lang` or by the locale, English where the console cannot carry it."""
        for words, locale, encoding, language in (
            (["--lang", "zh"], "en_US.UTF-8", "utf-8", "zh"),
            (["--lang", "en"], "zh_CN.UTF-8", "utf-8", "en"),
            ([], "zh_CN.UTF-8", "utf-8", "zh"),
            ([], "zh_CN.UTF-8", "cp1252", "en"),
            ([], "de_DE.UTF-8", "utf-8", "en"),
        ):
            environment = {"LC_ALL": locale, "CHAPTER10_LANG": ""}
            with self.subTest(words=words, locale=locale), mock.patch.dict(os.environ, environment):
                said = run_here(["chapter10", *words], encoding=encoding)
                for known in COMMANDS:
                    self.assertIn(getattr(known, language), said.out)

    def test_a_command_gets_the_rest_of_the_line_and_gives_its_code(self) -> None:
        """What follows the word is the command's own, and so is the exit code."""
        module = mock.Mock(main=mock.create_autospec(program.main, return_value=7))
        with mock.patch.object(importlib, "import_module", return_value=module) as loaded:
            self.assertEqual(program.main(["jobs", "status", "1"]), 7)
        loaded.assert_called_once_with("chapter10.companions.operating.jobs_command")
        module.main.assert_called_once_with(["status", "1"])

    def test_the_installed_command_is_the_same_program(self) -> None:
        """The entry point of the package leaves with the exit code of what it ran."""
        scripts = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
        self.assertEqual(scripts, {"chapter10": "chapter10.__main__:command"})
        with mock.patch.object(program, "main", return_value=7), self.assertRaises(SystemExit) as caught:
            program.command()
        self.assertEqual(caught.exception.code, 7)

    def test_a_word_that_is_no_command_is_usage(self) -> None:
        """It is named, beside those that there are; a command after an option as well."""
        for given, said in ((["job"], "job is none of doctor,"), (["--lang", "zh", "doctor"], "doctor --lang zh")):
            ended = run_here(["chapter10", *given])
            self.assertEqual((ended.code, ended.out), (2, ""))
            self.assertIn(said, ended.errors)

    def test_predict_asks_about_any_group(self) -> None:
        """One of the chapter's or of the companions'; without a group it lists them, and another word is usage."""
        for group, words in (("catalog", "discoverable"), ("mail", "mails")):
            asked = run_here(["chapter10", "predict", group, "--lang", "en", "--no-save"])
            self.assertEqual(asked.code, 0)
            self.assertIn(words, asked.out)
        for given, code in (([], 0), (["--help"], 0), (["nothing"], 2)):
            ended = run_here(["chapter10", "predict", *given])
            self.assertEqual(ended.code, code)
            for group in (*AREAS, *companion_experiments.GROUPS):
                self.assertIn(group, ended.out + ended.errors)


class TheGapsBeforeProduction(unittest.TestCase):
    """`docs/production.md`, the chapter's section on production."""

    def test_every_gap_is_closed_by_something_that_is_there_or_said_to_be_open(self) -> None:
        """Each claim of the section has its row; a row names files, their names and tests, or says what is open."""
        page = TOP / "docs" / "production.md"
        lines = page.read_text(encoding="utf-8").splitlines()
        rows = [line.strip("|").split("|") for line in lines if line.startswith("|") and "C10-" in line]
        claims = [claim for gap, *_ in rows for claim in re.findall(r"C10-\d+", gap)]
        self.assertEqual(claims, [f"C10-{number}" for number in range(283, 297)])
        for gap, answer, tests in rows:
            with self.subTest(gap=gap):
                self.assertEqual(answer.count("仍然缺"), answer.lower().count("still open"))
                self.assertTrue("仍然缺" in answer or "test_" in tests)
                self.assertEqual(".py" in answer, "test_" in tests)
                for name, target in re.findall(r"\[`?([\w.]+)`?\]\(([^\s)]+)\)", answer + tests):
                    file = (page.parent / target).resolve()
                    self.assertTrue(file.is_file(), target)
                    if name != file.stem.removeprefix("test_"):
                        self.assertRegex(file.read_text(encoding="utf-8"), rf"(def|class) {name.rpartition('.')[2]}\b")
