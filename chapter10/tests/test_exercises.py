"""The fourteen exercises: pristine files, answers and known-wrong files against the checks, and the command.

The pristine files of the package are used, so a reader's work cannot break these tests. The checks run in
this process but for a few real children.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sqlite3
import subprocess
import unittest
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.experiments import GROUPS
from chapter10.lab.console.strings import Text
from chapter10.lab.console.textio import display_width
from chapter10.lab.console.workplace import read_text
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.exercises import __main__ as desk
from chapter10.lab.exercises import progress
from chapter10.lab.exercises.__main__ import LOOK_SECONDS, headings_of, main
from chapter10.lab.exercises.book import CODE, CONCEPT, DESIGN, EXERCISES, STEPS, Exercise
from chapter10.lab.exercises.checking import (
    FAILED,
    IN_CHINESE,
    NOT_STARTED,
    PASSED,
    Check,
    Failed,
    Verdict,
    expect,
    in_chinese,
    run_checks,
)
from chapter10.lab.exercises.judge import CHECKS, MAX_PRINTED, judge
from chapter10.lab.exercises.judge import main as judge_main
from chapter10.lab.exercises.schedules import MAX_STATEMENTS, Connection, Order, OrdersError, every_order
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.histories import explore
from chapter10.lab.histories.guards import GUARDS
from chapter10.lab.reader.companion_experiments import AREAS as COMPANION_AREAS
from chapter10.lab.reader.experiments_command import command_line
from chapter10.tests.support import TOP, FolderTestCase, at_once, run_python
from chapter10.tests.test_predict import names_a_test

CODING = [exercise for exercise in EXERCISES.values() if exercise.kind == CODE]
PROSE = [exercise for exercise in EXERCISES.values() if exercise.kind != CODE]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def wrong_verdicts() -> dict[str, tuple[str, Verdict]]:
    """For each known-wrong file the check that it names, and the verdict on it."""
    found = {}
    for exercise in CODING:
        for path in exercise.wrong:
            expected = text_of(path).splitlines()[0]
            found[path.name] = (expected.removeprefix("# expect: "), judge(exercise.number, path))
    return found


class TheBook(unittest.TestCase):
    """Fourteen exercises, complete."""

    def test_there_are_fourteen_of_three_kinds(self) -> None:
        """Five conceptual, six coding, three design exercises, with the numbers of the chapter. Claims: C10-313."""
        kinds = {number: exercise.kind for number, exercise in EXERCISES.items()}
        self.assertEqual(list(kinds), list(range(1, 15)))
        self.assertEqual([n for n, kind in kinds.items() if kind == CONCEPT], [1, 2, 3, 4, 5])
        self.assertEqual([n for n, kind in kinds.items() if kind == CODE], [6, 7, 8, 9, 10, 11])
        self.assertEqual([n for n, kind in kinds.items() if kind == DESIGN], [12, 13, 14])

    def test_each_has_a_claim_three_hints_a_stub_and_an_answer(self) -> None:
        """In both languages; hints never show code that could be copied. Claims: C10-313."""
        for number, exercise in EXERCISES.items():
            with self.subTest(exercise=number):
                self.assertEqual(exercise.claim, f"C10-{298 + number}")
                self.assertEqual(len(exercise.hints), STEPS)
                self.assertEqual(len(set(exercise.hints)), STEPS)
                for hint in exercise.hints:
                    self.assertTrue(hint.zh and hint.en)
                    self.assertNotRegex(hint.en, r"\bdef |\breturn |assert .* ==")
                self.assertTrue(exercise.stub.is_file())
                self.assertTrue(exercise.answer.is_file())

    def test_every_stub_and_answer_begins_in_chinese_with_an_english_gist(self) -> None:
        """A reader of either language knows what is asked."""
        for number, exercise in EXERCISES.items():
            for path in (exercise.stub, exercise.answer):
                with self.subTest(file=path.name, folder=path.parent.name):
                    head = text_of(path)[:2_000]
                    self.assertRegex(head, rf"练习 {number}\b")
                    self.assertRegex(head, rf"[Ee]xercise {number}\b")
                    self.assertRegex(head, r"[\u4e00-\u9fff]{4}")
                    self.assertRegex(head, r"[A-Za-z]+ [a-z]+ [a-z]+ [a-z]+")

    def test_every_command_that_an_answer_names_is_one(self) -> None:
        """A group that exists, a guard that exists, a test that exists."""
        count = 0
        for exercise in EXERCISES.values():
            for command in re.findall(r"python -m [^`\n]+", text_of(exercise.answer)):
                with self.subTest(exercise=exercise.number, command=command):
                    self.assertTrue(is_known(command), command)
                    count += 1
        self.assertGreater(count, 40)

    def test_a_conceptual_answer_is_a_list_of_points_with_their_commands(self) -> None:
        """Three to five points; each names the command that shows it.

        Claims: C10-299, C10-300, C10-301, C10-302, C10-303.
        """
        for exercise in PROSE:
            with self.subTest(exercise=exercise.number):
                points, _, rest = text_of(exercise.answer).partition("\n## ")
                self.assertIn(len(re.findall(r"^\d\. ", points, re.MULTILINE)), (3, 4, 5))
                self.assertEqual(
                    len(re.findall(r"^\d\. ", points, re.MULTILINE)), len(re.findall(r"^   `python -m ", points, re.M))
                )
                self.assertEqual(bool(rest), exercise.kind == DESIGN)
        first, third, fourth = (text_of(EXERCISES[number].answer) for number in (1, 3, 4))
        for word in ("300", "299", "不能这样说", "网关"):
            self.assertIn(word, first)
        self.assertIn("1412", third)
        self.assertIn("600、400、200", fourth)

    def test_a_design_answer_has_two_designs_a_wrong_one_and_five_scenes(self) -> None:
        """Each scene names the command that shows it. Claims: C10-310, C10-311, C10-312."""
        for exercise in PROSE:
            if exercise.kind == DESIGN:
                with self.subTest(exercise=exercise.number):
                    sections = text_of(exercise.answer).split("\n## ")[1:]
                    self.assertEqual(len(sections), 3)
                    self.assertEqual(len(re.findall(r"^- \*\*[AB]\*\*", sections[0], re.M)), 2)
                    self.assertEqual(len(re.findall(r"^- ", sections[1], re.M)), 1)
                    self.assertEqual(len(re.findall(r"^\d\. ", sections[2], re.M)), 5)
                    self.assertEqual(len(re.findall(r"^   `python -m ", sections[2], re.M)), 5)

    def test_the_design_answers_hold_what_the_chapter_asks_for(self) -> None:
        """Reason and both plans; five items and three situations; four choices and six metrics or more.

        Claims: C10-310, C10-311, C10-312.
        """
        mail, page, many = (text_of(EXERCISES[number].answer) for number in (12, 13, 14))
        for word in ("另一个系统", "幂等键", "消息 ID", "待确认", "不自动重发"):
            self.assertIn(word, mail)
        for word in ("提交回执", "作业状态", "事件游标", "取消请求", "下载结果", "running", "failed", "cancelled"):
            self.assertIn(word, page)
        for word in ("按需加载", "并发上限", "队列容量", "幂等记录的保留"):
            self.assertIn(word, many)
        metrics = re.findall(r"[^：、]+（[^）]+）", many[many.index("六项以上指标") :].splitlines()[0])
        self.assertGreaterEqual(len(metrics), 6)


def is_known(command: str) -> bool:
    """Whether a command of an answer would find what it names; nothing is run."""
    words = command.split()
    module, arguments = words[2], words[3:]
    if module == "unittest":
        return all(names_a_test(name.removeprefix("chapter10.tests.")) for name in arguments)
    if words[2:4] == ["chapter10", "explore"]:
        return arguments[1] == "--without" and arguments[2] in {guard.name for guard in GUARDS}
    if words[2:4] == ["chapter10", "companions"]:
        return arguments[1] == "--group" and arguments[2] in COMPANION_AREAS
    if module == "chapter10.experiments":
        cleaned = re.sub(r'"[^"]*"', "x", command).split()[3:]
        try:
            command_line(list(GROUPS)).parse_args(cleaned)
        except (SystemExit, argparse.ArgumentError):
            return False
        return True
    return False


def _made(statement: str, connection: Connection) -> Any:
    return connection.execute(statement)


class TheChecks(unittest.TestCase):
    """Each stub is unsolved, each answer passes, each known-wrong file fails where it says."""

    def test_every_stub_is_not_started(self) -> None:
        """Also when somebody changed a blank in it, so it is not only the same text. Claims: C10-313."""
        for exercise in CODING:
            with self.subTest(exercise=exercise.number):
                self.assertEqual(judge(exercise.number, exercise.stub), Verdict(NOT_STARTED))

    def test_every_answer_passes(self) -> None:
        """All checks, in order. Claims: C10-304, C10-305, C10-306, C10-307, C10-308, C10-309, C10-313."""
        for exercise in CODING:
            with self.subTest(exercise=exercise.number):
                names = tuple(check.name for check in CHECKS[exercise.number])
                self.assertEqual(judge(exercise.number, exercise.answer), Verdict(PASSED, names))

    def test_every_known_wrong_file_fails_at_the_check_it_names(self) -> None:
        """The failure says what was called, what came back, what was expected, why, and the claim.

        Claims: C10-304, C10-305, C10-306, C10-307, C10-308, C10-309.
        """
        for name, (expected, verdict) in wrong_verdicts().items():
            with self.subTest(file=name):
                self.assertEqual(verdict.status, FAILED)
                failure = verdict.failure
                assert failure is not None
                self.assertEqual(failure.check, expected)
                self.assertTrue(all((failure.called, failure.got, failure.expected, *failure.why)))
                self.assertRegex(failure.claim, r"^C10-3\d\d$")

    def test_the_words_of_a_failure_are_chinese_for_a_reader_of_chinese(self) -> None:
        """Every fixed word stands in a check as it is spelled here, and a reader's value is left as it is."""
        folder = TOP / "chapter10" / "lab" / "exercises"
        pages = [text_of(path) for path in (*folder.glob("checks/*.py"), folder / "schedules.py")]
        pages.append(text_of(folder / "checking.py").partition("\ndef unexpected")[2])
        self.assertEqual([words for words in IN_CHINESE if not any(words in page for page in pages)], [])
        self.assertEqual(in_chinese("test_found(the real catalog)"), "test_found(真实的目录)")
        self.assertEqual(in_chinese("both have it: (1, 1)", value=True), "两个都领到了: (1, 1)")
        self.assertEqual(in_chinese("['the real catalog']", value=True), "['the real catalog']")
        for name, (_, verdict) in wrong_verdicts().items():
            assert verdict.failure is not None
            said = in_chinese(verdict.failure.called) + in_chinese(verdict.failure.expected)
            with self.subTest(file=name):
                self.assertNotRegex(said, r"\b(the|a|an|your|while|during) \w")

    def test_every_coding_exercise_has_two_wrong_files_or_more(self) -> None:
        """And every check is failed by one of them, but for those that only open the way."""
        for exercise in CODING:
            with self.subTest(exercise=exercise.number):
                self.assertGreaterEqual(len(exercise.wrong), 2)
        failed = {(name[2:4], expected) for name, (expected, _) in wrong_verdicts().items()}
        never = [
            f"{exercise.number}.{check.name}"
            for exercise in CODING
            for check in CHECKS[exercise.number]
            if (f"{exercise.number:02}", check.name) not in failed
        ]
        self.assertEqual(never, [])

    def test_a_schedule_that_goes_wrong_is_drawn(self) -> None:
        """The shortest one, in two lanes: for a claim that reads first, four statements; a deadlock; lanes of calls.

        Claims: C10-306, C10-309.
        """
        drawn = {name: verdict.failure.lanes for name, (_, verdict) in wrong_verdicts().items() if verdict.failure}
        rows = drawn["ex11_read_then_write.py"].splitlines()
        self.assertEqual(rows[0].split(), ["t", "worker", "A", "worker", "B"])
        self.assertEqual(len([row for row in rows if re.match(r"\d", row)]), 4)
        self.assertIn("<- both have it", rows[-1])
        for name, words in (
            ("ex11_deferred.py", "neither can go on"),
            ("ex08_everything_at_once.py", "call-A"),
            ("ex08_order_of_completion.py", "call-A"),
            ("ex08_swallows_the_cancel.py", "call-A"),
        ):
            self.assertIn(words, drawn[name])
        for name, lanes in drawn.items():
            self.assertLessEqual(max(map(display_width, lanes.splitlines()), default=0), 76, name)

    def test_a_long_statement_in_the_lanes_is_shown_or_says_that_it_is_cut(self) -> None:
        """Nobody takes a part of it for the whole."""
        for length, shown in ((90, "x" * 80), (900, "...")):
            made = "SELECT '" + "x" * length + "'"
            _, bad = every_order(lambda _: None, [partial(_made, made)] * 2, lambda *_: "bad")
            assert bad is not None
            self.assertIn(shown, bad.events[0].what)


class TheJudge(FolderTestCase):
    """One file, whatever is in it."""

    def judged(self, content: bytes, number: int = 9) -> Verdict:
        path = self.folder / "ex.py"
        path.write_bytes(content)
        return judge(number, path)

    def reason(self, content: bytes) -> str:
        failure = self.judged(content).failure
        assert failure is not None
        return failure.got

    def test_byte_order_mark_and_line_ends_do_not_matter(self) -> None:
        """As editors on Windows save it."""
        answer = EXERCISES[9].answer.read_bytes()
        for content in (b"\xef\xbb\xbf" + answer, answer.replace(b"\n", b"\r\n"), answer.replace(b"\n", b"\r")):
            self.assertEqual(self.judged(content).status, PASSED)

    def test_a_text_is_read_with_lf_and_without_a_mark(self) -> None:
        """Whatever the editor saved, what is compared with a stub is the same."""
        for name in ("a.py", "a.md"):
            path = self.folder / name
            path.write_bytes(b"\xef\xbb\xbfx = 1\r\ny\rz\n")
            self.assertEqual(read_text(path), "x = 1\ny\nz\n")

    def test_an_encoding_that_is_declared_is_used(self) -> None:
        """GBK with its line at the top is fine."""
        text = "# -*- coding: gbk -*-\n" + text_of(EXERCISES[9].answer)
        self.assertEqual(self.judged(text.encode("gbk")).status, PASSED)

    def test_other_encodings_are_named(self) -> None:
        """UTF-16, zero bytes, GBK without a declaration, an encoding that does not exist, a file without an end."""
        text = text_of(EXERCISES[9].answer)
        self.assertEqual(self.reason(text.encode("utf-16")), "utf_16")
        self.assertEqual(self.reason(text.encode("utf-16-le")), "zero_bytes")
        self.assertEqual(self.reason(text.encode("gbk")), "not_utf_8")
        self.assertEqual(self.reason(("\n" * 5 + "# 注释\n").encode("gbk")), "not_utf_8")
        self.assertEqual(self.reason(b"# -*- coding: klingon -*-\n"), "unknown_encoding")
        self.assertEqual(self.reason(b"#" * 1_000_001), "too_long")

    def test_errors_of_the_file_come_with_their_line(self) -> None:
        """A mistake in syntax, an error at the top, an exit, an error inside a function."""
        for content, got in (
            ("x = 1\nif True\n", r"^SyntaxError: .*\(line 2 of your file\)$"),
            ("\n\n1 / 0\n", r"^ZeroDivisionError: .*\(line 3 of your file\)$"),
            ("raise SystemExit(5)\n", r"^SystemExit: 5 \(line 1 of your file\)$"),
            ("def month_report(sales, month):\n    return sales['x']\n", r"^TypeError: .*\(line 2 of your file\)$"),
            ("def month_report(sales, month):\n    raise SystemExit\n", r"^SystemExit \(line 2 of your file\)$"),
        ):
            with self.subTest(content=content):
                self.assertRegex(self.reason(content.encode()), got)

    def test_a_missing_function_is_named(self) -> None:
        """The check looks for it by name."""
        self.assertIn("nothing of that name", self.reason(b"x = 1\n"))

    def test_a_half_done_file_is_not_called_unstarted(self) -> None:
        """What passes is shown, and what is left raises its error."""
        text = text_of(EXERCISES[6].answer)
        begun = text[: text.index("def test_hidden")] + "def test_hidden(catalog):\n    raise NotImplementedError\n"
        verdict = self.judged(begun.encode("utf-8"), 6)
        self.assertEqual(verdict.status, FAILED)
        self.assertEqual(verdict.passed, ("definition", "found_accepts", "found_catches"))
        assert verdict.failure is not None
        self.assertIn("NotImplementedError", verdict.failure.got)

    def test_what_the_reader_wrote_comes_with_its_reason_and_line(self) -> None:
        """What a test returns nobody reads; a code or a bare assertion alone would leave a newcomer guessing."""
        answer = text_of(EXERCISES[6].answer)
        line = r"\(line \d+ of your file\)$"
        for old, new, got in (
            ('    assert "invoices.get" in names, names', "    return True", r"^it returns True$"),
            ('("查询", "发票", "状态")', '"查询 发票 状态"', r"^CatalogError: invalid_tool, keywords, .+ " + line),
            ('assert "invoices.get" in names, names', "assert not names", r"^AssertionError " + line),
        ):
            with self.subTest(new=new):
                failure = self.judged(answer.replace(old, new).encode("utf-8"), 6).failure
                assert failure is not None
                self.assertRegex(failure.got, got)
                if new == "    return True":
                    self.assertEqual(failure.check, "found_accepts")

    def test_what_the_file_prints_is_kept_up_to_a_bound(self) -> None:
        """A loop that prints fills no memory and does not disturb the verdict."""
        loop = "\nfor _ in range(10_000):\n    print('喵' * 10)\n"
        verdict = self.judged((text_of(EXERCISES[9].answer) + loop).encode("utf-8"))
        self.assertEqual((verdict.status, len(verdict.printed), verdict.printed[0]), (PASSED, MAX_PRINTED, "喵"))

    def test_a_file_saved_twice_within_a_second_is_read_anew(self) -> None:
        """No cache of the import system stands between: same size, same second, another verdict."""
        answer = EXERCISES[9].answer.read_bytes()
        self.assertEqual(self.judged(answer).status, PASSED)
        self.assertEqual(self.judged(answer.replace(b"== month", b"!= month")).status, FAILED)
        self.assertEqual(self.judged(answer).status, PASSED)

    def test_dataclasses_of_the_reader_work(self) -> None:
        """They look their module up by its name."""
        head = (
            "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n"
        )
        self.assertEqual(self.judged((head + text_of(EXERCISES[9].answer)).encode("utf-8")).status, PASSED)

    def test_reads_that_wait_for_nothing_are_stuck_and_do_not_hang(self) -> None:
        """No time passes: the function is told that what it waits for will not come. Claims: C10-306."""
        waiting = "import asyncio\nasync def read_all(calls, read, limit):\n    await asyncio.Event().wait()\n"
        failure = self.judged(waiting.encode(), 8).failure
        assert failure is not None
        self.assertEqual((failure.check, failure.got), ("entries", "it waits for ever"))


class RowsOfChecks(unittest.TestCase):
    """How checks become a verdict."""

    def test_the_first_failure_ends_the_row(self) -> None:
        """What comes after is not reached."""
        ran = []

        def fail(names: Any) -> None:
            raise Failed("f()", 1, 2, Text("因", "why"), "C10-313")

        checks = [
            Check("one", Text("一", "1"), lambda names: ran.append(1)),
            Check("two", Text("二", "2"), fail),
            Check("three", Text("三", "3"), lambda names: ran.append(3)),
        ]
        verdict = run_checks({}, checks)
        self.assertEqual((verdict.status, verdict.passed, ran), (FAILED, ("one",), [1]))
        assert verdict.failure is not None
        self.assertEqual((verdict.failure.got, verdict.failure.expected), ("1", "2"))

    def test_a_value_of_another_type_is_not_the_expected_one(self) -> None:
        """True is no 1, and 1.0 is none either."""
        expect("f()", 1, 1, Text("因", "why"), "C10-313")
        for got in (True, 1.0, "1", 2):
            with self.subTest(got=got), self.assertRaises(Failed):
                expect("f()", got, 1, Text("因", "why"), "C10-313")

    def test_a_long_value_is_cut(self) -> None:
        """A failure stays readable."""
        failed = Failed("f()", "x" * 10_000, 2, Text("因", "why"), "C10-313")
        self.assertLess(len(failed.got), 500)


class EveryOrder(unittest.TestCase):
    """The machine that tries every order of two workers."""

    def tried(self, *calls: Any, judge_by: Any = None) -> tuple[int, Order | None]:
        def prepare(database: sqlite3.Connection) -> None:
            database.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER NOT NULL)")
            database.execute("DELETE FROM t")
            database.execute("INSERT INTO t VALUES (0)")

        return every_order(prepare, calls * (2 // len(calls)), judge_by or (lambda database, returned: ""))

    def test_the_number_of_orders_is_the_number_there_is(self) -> None:
        """Two statements against two: six; three against three: twenty. Claims: C10-297."""

        def statements(count: int, connection: Connection) -> None:
            for _ in range(count):
                connection.execute("SELECT n FROM t")

        for count, orders in ((1, 2), (2, 6), (3, 20), (4, 70)):
            with self.subTest(statements=count):
                self.assertEqual(self.tried(partial(statements, count)), (orders, None))

    def test_a_lost_update_is_found_and_a_guarded_one_is_not_lost(self) -> None:
        """Read, then write: four of six orders lose one; one statement, or `BEGIN IMMEDIATE` around both: none.

        Claims: C10-297, C10-309.
        """
        lost: list[str] = []

        def total(database: sqlite3.Connection, returned: tuple[Any, ...]) -> str:
            lost.append("" if database.execute("SELECT n FROM t").fetchone()[0] == 2 else "lost")
            return lost[-1]

        def naive(connection: Connection) -> None:
            row = connection.execute("SELECT n FROM t").fetchone()
            assert row is not None
            connection.execute("UPDATE t SET n = ?", (row[0] + 1,))

        def locked(connection: Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            naive(connection)
            connection.execute("COMMIT")

        count, bad = self.tried(naive, judge_by=total)
        assert bad is not None
        self.assertEqual((count, lost.count("lost"), len(bad.events)), (6, 4, 4))
        one_statement = self.tried(lambda connection: connection.execute("UPDATE t SET n = n + 1"), judge_by=total)
        self.assertEqual(one_statement, (2, None))
        count, bad = self.tried(locked, judge_by=total)
        self.assertIsNone(bad)
        self.assertGreater(count, 2)

    def test_an_error_of_sqlite_is_the_functions_own(self) -> None:
        """It is raised where it happened, each time the function is replayed."""

        def broken(connection: Connection) -> str:
            try:
                connection.execute("SELECT n FROM nowhere")
            except sqlite3.OperationalError as error:
                connection.execute("SELECT n FROM t")
                return str(error)
            return ""

        def judged(database: sqlite3.Connection, returned: tuple[Any, ...]) -> str:
            return "" if returned == ("no such table: nowhere",) * 2 else f"returned {returned}"

        self.assertIsNone(self.tried(broken, judge_by=judged)[1])

    def test_what_cannot_be_replayed_is_said(self) -> None:
        """Other statements the second time, too many of them, a stop that is swallowed."""
        calls = iter(range(1_000))

        def changing(connection: Connection) -> None:
            for _ in range(2):
                connection.execute(f"SELECT {next(calls)}")

        def endless(connection: Connection) -> None:
            for _ in range(MAX_STATEMENTS + 1):
                connection.execute("SELECT n FROM t")

        def swallowing(connection: Connection) -> None:
            for _ in range(2):
                with contextlib.suppress(BaseException):
                    connection.execute("SELECT n FROM t")

        for function, reason in (
            (changing, "another statement"),
            (endless, "more than 12 statements"),
            (swallowing, "bare"),
        ):
            with self.subTest(function=function.__name__), self.assertRaisesRegex(OrdersError, reason):
                self.tried(function)

    def test_the_number_of_orders_has_a_bound(self) -> None:
        """Two workers of nine statements have 48,620 orders; nobody waits for all of them."""

        def statements(connection: Connection) -> None:
            for _ in range(3):
                connection.execute("SELECT n FROM t")

        bound = "chapter10.lab.exercises.schedules.MAX_ORDERS"
        with mock.patch(bound, 19), self.assertRaisesRegex(OrdersError, "more than 19 orders"):
            self.tried(statements)
        with mock.patch(bound, 20):
            self.assertEqual(self.tried(statements), (20, None))

    def test_an_open_transaction_at_the_end_is_wrong(self) -> None:
        """Nobody else could write any more."""
        _, bad = self.tried(lambda connection: connection.execute("BEGIN IMMEDIATE"))
        assert bad is not None
        self.assertIn("leaves its transaction open", bad.wrong)


def judged_here(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """What the child would have said, without the child."""
    assert command[1:3] == ["-m", "chapter10.lab.exercises.judge"]
    assert options["stdin"] is subprocess.DEVNULL, "a file that asks for input must not wait for the reader"
    assert options["env"]["PYTHONPATH"].split(os.pathsep)[0] == str(TOP), "the child finds the package from any folder"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = judge_main(command[3:])
    return subprocess.CompletedProcess(command, code, out.getvalue(), "")


def solved(exercise: Exercise) -> str:
    """A file of a reader that is done: the answer's code, or a line under each heading."""
    if exercise.kind == CODE:
        return text_of(exercise.answer)
    return re.sub(r"(?m)^(## .+)$", r"\1\n\nmine\n", text_of(exercise.stub))


class Desk(FolderTestCase):
    """The command, at a reader's desk."""

    def setUp(self) -> None:
        super().setUp()
        self.work = self.folder / "my_work"
        patch = mock.patch.dict(os.environ, {"CHAPTER10_WORK": str(self.work), "CHAPTER10_LANG": "en"})
        patch.start()
        self.addCleanup(patch.stop)

    def say(self, *arguments: str, code: int = 0, seconds: float = 60) -> str:
        """Run the command and return what it printed; its exit code is checked."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            found = main(arguments, seconds=seconds)
        self.assertEqual(found, code, out.getvalue())
        return out.getvalue()

    def without_children(self) -> None:
        """Let the judge work in this process from here on; what it says is the same."""
        patch = mock.patch("subprocess.run", judged_here)
        patch.start()
        self.addCleanup(patch.stop)

    def put(self, exercise: Exercise, text: str) -> Path:
        self.work.mkdir(exist_ok=True)
        path = self.work / exercise.filename
        path.write_text(text, encoding="utf-8", newline="\n")
        return path

    def test_start_copies_the_stub_and_never_writes_over_work(self) -> None:
        """The second start leaves the file as it is."""
        exercise = EXERCISES[6]
        self.assertIn(str(self.work / "ex06.py"), self.say("start", "6"))
        self.assertEqual((self.work / "ex06.py").read_bytes(), exercise.stub.read_bytes())
        self.put(exercise, "mine\n")
        self.assertIn("there already", self.say("start", "6"))
        self.assertEqual(text_of(self.work / "ex06.py"), "mine\n")

    def test_reset_keeps_what_was_there(self) -> None:
        """Beside it, under a name that is said and is its own; a pristine file is not worth a copy."""
        self.put(EXERCISES[6], "mine\n")
        self.assertIn("ex06_old.py", self.say("reset", "6"))
        self.assertEqual(text_of(self.work / "ex06.py"), text_of(EXERCISES[6].stub))
        self.assertNotIn("old", self.say("reset", "6"))
        self.put(EXERCISES[6], "again\n")
        self.assertIn("ex06_old2.py", self.say("reset", "6"))
        copies = [text_of(self.work / name) for name in ("ex06_old.py", "ex06_old2.py")]
        self.assertEqual(copies, ["mine\n", "again\n"])
        self.say("reset", "7")
        self.assertTrue((self.work / "ex07.py").is_file())

    def test_not_started_is_exit_code_2(self) -> None:
        """No file, and the pristine file also when git made its line ends others."""
        self.assertIn("start 9", self.say("check", "9", code=2))
        self.say("start", "9")
        path = self.work / "ex09.py"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        text = self.say("check", "9", code=2)
        self.assertIn("nothing written yet", text)
        self.assertIn("check 9", text)
        self.assertNotIn("start 9", text)

    def test_a_passing_file_is_exit_code_0(self) -> None:
        """In a real child process; the next steps are named, and the answer opens."""
        self.put(EXERCISES[9], text_of(EXERCISES[9].answer) + "\nprint('hello')\n")
        text = self.say("check", "9")
        self.assertEqual(text.count("[OK]"), len(CHECKS[9]) + 1)
        self.assertIn("answer 9", text)
        self.assertIn("start 10", text)

    def test_a_wrong_file_is_exit_code_1_with_one_failure(self) -> None:
        """Called, got, expected, why, claim; lanes; what it printed; what was not reached."""
        self.without_children()
        (path,) = (path for path in EXERCISES[11].wrong if path.name.endswith("read_then_write.py"))
        self.put(EXERCISES[11], text_of(path) + "\nprint('hello')\n")
        text = self.say("check", "11", code=1)
        for word in ("called  ", "got  ", "expected  ", "why  ", "C10-309", "worker A", "<- both have it", "hello"):
            self.assertIn(word, text)
        self.assertEqual(len(re.findall(r"^\[X\]  every_order ", text, re.M)), 1)
        self.assertEqual(len(re.findall(r"^\[ \]  every_order_over", text, re.M)), 1)

    def test_a_file_that_does_not_end_is_cut_off(self) -> None:
        """It is named TIMEOUT, and is wrong, not a broken machine."""
        self.put(EXERCISES[9], "while True:\n    pass\n")
        text = self.say("check", "9", code=1, seconds=0.2)
        self.assertIn("[X] TIMEOUT", text)
        self.assertIn("0.2 seconds", text)

    def test_a_check_that_does_not_end_is_named(self) -> None:
        """TIMEOUT says at which check, so that a reader knows where to look."""
        self.put(EXERCISES[9], "def month_report(*arguments):\n    while True:\n        pass\n")
        text = self.say("check", "9", code=1, seconds=2)
        self.assertIn(f"[X] TIMEOUT {CHECKS[9][0].name}", text)

    def test_a_file_that_ends_the_process_is_wrong(self) -> None:
        """No verdict came, and what it printed is shown."""
        self.put(EXERCISES[9], "import os\nprint('bye', flush=True)\nos._exit(0)\n")
        self.assertIn("ended the whole process", self.say("check", "9", code=1))

    def test_a_machine_that_fails_is_exit_code_3(self) -> None:
        """It cannot start a child, or the child lacks something: the reason is shown, and the way to the doctor."""
        self.put(EXERCISES[9], "x = 1\n")
        with mock.patch("subprocess.run", side_effect=OSError("no more processes")):
            text = self.say("check", "9", code=3)
        self.assertIn("no more processes", text)
        self.assertIn("python -m chapter10 doctor", text)
        child = subprocess.CompletedProcess([], 3, "", "the machine failed: no room\n")
        with mock.patch("subprocess.run", return_value=child):
            self.assertIn("no room", self.say("check", "9", code=3))

    def test_a_pristine_file_needs_no_child(self) -> None:
        """The overview of a beginner starts nothing."""
        for number in EXERCISES:
            self.say("start", str(number))
        with mock.patch("subprocess.run", side_effect=AssertionError):
            self.assertEqual(self.say().count("not started"), 14)

    def test_prose_is_counted_by_headings(self) -> None:
        """Nothing is judged: not started, some, all."""
        exercise = EXERCISES[12]
        self.say("start", "12")
        self.say("check", "12", code=2)
        stub = text_of(exercise.stub)
        self.put(exercise, stub.replace("## 状态 / states\n", "## 状态 / states\n\n六个状态。\n"))
        self.assertIn("5 headings are still to write", self.say("check", "12", code=1))
        self.put(exercise, re.sub(r"(^## .+$)", r"\1\n\ntext", stub, flags=re.M))
        self.assertIn("every heading is written", self.say("check", "12"))

    def test_a_heading_is_written_when_a_line_of_ones_own_is_under_it(self) -> None:
        """Blank lines, quotations and comments are none."""
        text = "# t\n\nintro\n\n## a\n\n> quoted\n\n## b\nmine\n## c\n<!-- not\nyet -->\n## d  \n\n- x\n"
        self.assertEqual(headings_of(text), [(False, "a"), (True, "b"), (False, "c"), (True, "d")])
        self.assertEqual(headings_of("no heading"), [])
        self.put(EXERCISES[1], "no heading\n")
        self.say("check", "1", code=2)

    def test_every_prose_stub_has_empty_headings(self) -> None:
        """Two to six of them, none filled."""
        for exercise in PROSE:
            with self.subTest(exercise=exercise.number):
                found = headings_of(text_of(exercise.stub))
                self.assertIn(len(found), range(2, 7))
                self.assertFalse(any(filled for filled, _ in found))

    def test_hints_come_one_at_a_time(self) -> None:
        """The first by default, the next is named, the third is the last."""
        for step, left in ((0, "Hints left: 2."), (1, "Hints left: 1."), (2, "the last hint"), (2, "the last hint")):
            text = self.say("hint", "6")
            self.assertIn(EXERCISES[6].hints[step].en, text)
            self.assertIn(left, text)
            self.assertEqual("hint 6\n" in text, step < 2)
        self.assertIn(EXERCISES[6].hints[0].en, self.say("hint", "6", "1"))
        self.assertIn(EXERCISES[6].hints[1].en, self.say("hint", "6"))
        self.assertIn(EXERCISES[7].hints[0].en, self.say("hint", "7"))
        self.say("reset", "6")
        self.assertIn(EXERCISES[6].hints[0].en, self.say("hint", "6"))

    def test_hints_that_were_read_are_no_reason_to_fail(self) -> None:
        """A file that somebody wrote over, or a folder that cannot be written, gives the first hint."""
        self.work.mkdir()
        for content in ("[1]", "{", '{"ex06.py": "x"}', '{"ex06.py": 9}', '{"ex06.py": true}'):
            (self.work / "hints.json").write_text(content, encoding="utf-8")
            self.assertIn(EXERCISES[6].hints[0].en, self.say("hint", "6"))
        with mock.patch("chapter10.lab.exercises.__main__.save_text", side_effect=PermissionError):
            self.assertIn(EXERCISES[6].hints[1].en, self.say("hint", "6"))

    def test_an_answer_opens_after_the_work_or_on_request(self) -> None:
        """Code that passes, prose that is begun, or `--anyway`."""
        self.without_children()
        self.assertIn("--anyway", self.say("answer", "9", code=2))
        self.assertIn("def month_report", self.say("answer", "9", "--anyway"))
        self.put(EXERCISES[9], "x = 1\n")
        self.say("answer", "9", code=1)
        self.put(EXERCISES[9], text_of(EXERCISES[9].answer))
        self.assertIn("def month_report", self.say("answer", "9"))
        self.assertIn("--anyway", self.say("answer", "1", code=2))
        self.put(EXERCISES[1], "## 300\n\nall of them\n\n## 299\n")
        self.assertIn("1. 300", self.say("answer", "1"))

    def test_the_overview_is_worked_out_from_the_files(self) -> None:
        """Fourteen lines; nothing is remembered, so nothing can be wrong about it."""
        self.without_children()
        self.assertEqual(self.say().count("not started"), 14)
        self.put(EXERCISES[9], text_of(EXERCISES[9].answer))
        self.put(EXERCISES[11], "def claim(db, job_id, now, lease):\n    return 1\n")
        self.put(EXERCISES[2], "## a\n\nx\n\n## b\n")
        text = self.say()
        self.assertEqual(text.count("not started"), 11)
        self.assertRegex(text, r"\[OK\]  9 .* passed")
        self.assertRegex(text, r"\[X\]  11 .* fails at first")
        self.assertRegex(text, r"\[X\]   2 .* 1 of 2 headings written")
        (self.work / "ex09.py").unlink()
        self.assertEqual(self.say().count("not started"), 12)

    def test_next_opens_the_first_that_is_not_done(self) -> None:
        """Its file is there then; a second `next` names the same one, and in the end there is none."""
        self.without_children()
        self.assertIn(str(self.work / "ex01.md"), self.say("next"))
        self.put(EXERCISES[1], solved(EXERCISES[1]))
        self.assertIn(str(self.work / "ex02.md"), self.say("next"))
        self.assertIn("there already", self.say("next"))
        with mock.patch.object(desk, "finished", return_value=True):
            self.assertIn("all fourteen exercises are done", self.say("next"))

    def test_a_watched_file_is_checked_when_it_was_saved_and_the_next_one_opens(self) -> None:
        """Once at the start, not while nothing is saved, and on to the one behind it, past what was done before."""
        self.without_children()
        for number in set(EXERCISES) - {6, 9}:
            self.put(EXERCISES[number], solved(EXERCISES[number]))
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            self.assertLess(len(waits), 9)
            if len(waits) == 3:
                self.put(EXERCISES[6], "def nothing(): ...\n")
            if len(waits) in (4, 5):
                exercise = EXERCISES[6 if len(waits) == 4 else 9]
                self.put(exercise, solved(exercise))

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(main(["watch"], wait=wait), 0)
        said = out.getvalue()
        self.assertEqual(waits, [LOOK_SECONDS] * 5)
        self.assertEqual((said.count("nothing written yet"), "[X]" in said), (2, True), said)
        steps = ["ex06.py", "exercise 6 passes", "13 of 14 done", "ex09.py", "14 of 14 done", "all fourteen"]
        places = [said.index(step) for step in steps]
        self.assertEqual(places, sorted(places))

    def test_progress_is_one_screen_worked_out_from_the_files(self) -> None:
        """Exercises done, guesses right and wrong, guards taken out, and what comes next of each."""
        self.without_children()
        self.assertEqual(self.progress(), ["0/14", "exercises next", "0 right, 0 wrong", "predict catalog", "0/44"])
        self.put(EXERCISES[1], solved(EXERCISES[1]))
        truths = {
            question.name: question.truth(GROUPS["catalog"](scene=Scene())) for question in AREAS["catalog"].questions
        }
        first, *rest = truths
        wrong = next(letter for letter in "abc" if letter != truths[first])
        kept = {"catalog": {**truths, first: wrong}, "boundaries": "x"}
        (self.work / "predictions.json").write_text(json.dumps(kept), encoding="utf-8")
        (self.work / "guards.json").write_text('["owner.get", 3, "no guard"]', encoding="utf-8")
        figures = ["1/14", "exercises next", f"{len(rest)} right, 1 wrong", "predict boundaries", "1/44"]
        self.assertEqual(self.progress(), figures)

    def progress(self) -> list[str]:
        """What the screen says: figures and commands, the first five."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(progress.main([]), 0)
        return re.findall(r"\d+/\d+|exercises next|\d+ right, \d+ wrong|predict \w+", out.getvalue())

    def test_a_guard_that_was_taken_out_is_noted_for_who_has_begun(self) -> None:
        """In the folder of his work, and nowhere when there is none."""
        for folder, expected in ((False, []), (True, ["owner.get"])):
            if folder:
                self.work.mkdir()
            with contextlib.redirect_stdout(io.StringIO()):
                explore.main(["--without", "owner.get"])
            self.assertEqual(explore.explored(self.work), expected)

    def test_a_file_in_another_encoding_is_wrong_and_says_what_to_do(self) -> None:
        """For prose as well as for code, without a child."""
        for number in (1, 9):
            path = self.put(EXERCISES[number], "")
            path.write_bytes("## 三百\n".encode("utf-16"))
            self.assertIn("Save it as UTF-8", self.say("check", str(number), code=1))

    def test_a_number_that_is_none_is_usage(self) -> None:
        """Exit code 2, as for a command that is none."""
        for arguments in (["check", "15"], ["check", "x"], ["check"], ["solve", "6"], ["hint", "6", "4"]):
            with self.subTest(arguments=arguments), contextlib.redirect_stderr(io.StringIO()):
                with self.assertRaises(SystemExit) as caught:
                    main(arguments)
                self.assertEqual(caught.exception.code, 2)

    def test_a_reader_in_any_console_and_folder(self) -> None:
        """From a folder with a blank and Chinese in its name, in a Western console: no traceback, the right codes."""

        def check(name: str, text: str) -> subprocess.CompletedProcess[str]:
            work = self.folder / name
            work.mkdir()
            (work / "ex06.py").write_text(text, encoding="utf-8", newline="\n")
            return run_python(
                ["-m", "chapter10.lab.exercises", "check", "6", "--lang", "zh"],
                cwd=self.folder,
                environment={"PYTHONIOENCODING": "cp1252", "CHAPTER10_WORK": str(work)},
            )

        right, wrong = at_once(
            partial(check, "我的 书", text_of(EXERCISES[6].answer)),
            partial(check, "我的 错", text_of(EXERCISES[6].wrong[0])),
        )
        for child, code in ((right, 0), (wrong, 1)):
            self.assertEqual((child.returncode, child.stderr), (code, ""))
            self.assertIn("definition", child.stdout)

    def test_the_verdict_is_one_ascii_line(self) -> None:
        """Whatever the console, and whatever the file prints."""
        self.put(EXERCISES[9], text_of(EXERCISES[9].answer) + "\nprint('喵')\n")
        child = run_python(
            ["-m", "chapter10.lab.exercises.judge", "9", str(self.work / "ex09.py")],
            environment={"PYTHONIOENCODING": "ascii"},
        )
        last = child.stdout.splitlines()[-1]
        self.assertTrue(last.isascii())
        verdict: dict[str, Any] = json.loads(last)
        self.assertEqual((verdict["status"], verdict["printed"]), ("passed", "喵\n"))
        names: Sequence[Any] = [check.name for check in CHECKS[9]]
        self.assertEqual([name for name, _, _ in verdict["checks"]], names)


if __name__ == "__main__":
    unittest.main()
