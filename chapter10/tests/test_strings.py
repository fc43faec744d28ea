"""Everything a reader is told is there in both languages, and the language is chosen by one rule."""

from __future__ import annotations

import re
import string
import unittest
from collections.abc import Iterator

from chapter10.lab.console.strings import TABLE, Text, choose_language, say
from chapter10.lab.exercises.book import EXERCISES
from chapter10.lab.exercises.judge import CHECKS
from chapter10.lab.guessing.predict import Area
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.guessing.questions import AREAS as QUESTION_AREAS
from chapter10.lab.reader.companion_experiments import AREAS as COMPANION_AREAS
from chapter10.tests.support import TOP

LAB = TOP / "chapter10" / "lab"
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def areas() -> Iterator[Area]:
    """Every area of questions that a program offers."""
    yield from AREAS.values()
    yield from QUESTION_AREAS.values()
    yield from COMPANION_AREAS.values()


def texts() -> dict[str, Text]:
    """Every text that a reader may meet, by a name that says where it is."""
    found = dict(TABLE)
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
        """What is filled in is filled in in both. Only the table has placeholders."""
        for name, text in TABLE.items():
            with self.subTest(text=name):
                zh, en = ({field for _, field, _, _ in string.Formatter().parse(half) if field} for half in text)
                self.assertEqual(zh, en)

    def test_every_text_of_the_table_is_used(self) -> None:
        """And every text that a program asks for is in the table."""
        code = " ".join(path.read_text(encoding="utf-8") for path in LAB.rglob("*.py") if path.name != "strings.py")
        used = set(re.findall(r'["\']([a-z_0-9.]+)["\']', code))
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
