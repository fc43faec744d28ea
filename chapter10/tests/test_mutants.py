"""The mutants: operators on small texts, the list against the code as it is, and a bounded run in a real copy."""

from __future__ import annotations

import ast
import contextlib
import io
import textwrap
import unittest
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.experiments import reports_folder
from chapter10.lab.histories.guards import GUARDS, mark_of
from chapter10.lab.proof import mutants as command
from chapter10.lab.proof import touched
from chapter10.lab.proof.mutants import Tree, Verdict, mutants_page, rows_before, rows_of, run
from chapter10.lab.proof.mutations import EQUIVALENTS, Mutant, automatic, extent, read_list, written
from chapter10.tests.overlapping import overlapping
from chapter10.tests.support import TOP, FolderTestCase


def text_of(module: str) -> str:
    return path_of(module).read_text(encoding="utf-8")


def path_of(module: str) -> Path:
    return TOP.joinpath("chapter10", *module.split(".")).with_suffix(".py")


def changed(text: str, operator: str) -> list[str]:
    """What the faults of one operator make of a text."""
    return [mutant.apply(text) for mutant in automatic("m", text) if mutant.operator == operator]


class TheOperators(unittest.TestCase):
    """Each operator makes the faults that it is there for, and changes nothing else."""

    def test_a_comparison_is_flipped_where_it_stands(self) -> None:
        """At its boundary or turned round, each part of a chain by itself."""
        self.assertEqual(["x = a <= b < c\n", "x = a < b <= c\n"], changed("x = a < b < c\n", "compare"))
        self.assertEqual(["x = a is b\n"], changed("x = a is not b\n", "compare"))
        self.assertEqual(["x = (a) not in (b)\n"], changed("x = (a) in (b)\n", "compare"))

    def test_a_condition_is_negated_and_a_guard_dropped(self) -> None:
        """A guard is an `if` that only refuses; one that leaves is another kind."""
        text = "def f(a):\n    if a > 0:\n        raise ValueError\n    return a\n"
        self.assertIn("if not (a > 0):", changed(text, "condition")[0])
        self.assertIn("if False:", changed(text, "guard")[0])
        self.assertEqual([], changed(text.replace("raise ValueError", "a = 0"), "guard"))
        self.assertEqual(1, len(changed(text.replace("raise ValueError", '_refuse("x")'), "guard")))
        self.assertEqual(1, len(changed(text.replace("raise ValueError", "return 0"), "leave")))

    def test_a_part_of_a_condition_is_left_out(self) -> None:
        """In an `and` it is True, in an `or` False; and the two are exchanged."""
        self.assertEqual(["x = True and b\n", "x = a and True\n"], changed("x = a and b\n", "part"))
        self.assertEqual(["x = False or b\n", "x = a or False\n"], changed("x = a or b\n", "part"))
        self.assertEqual(["x = a or b\n"], changed("x = a and b\n", "logic"))
        self.assertEqual(["x = (a)\n"], changed("x = not a\n", "logic"))

    def test_a_call_that_stands_alone_is_left_out(self) -> None:
        """Awaited or not; one whose value is used stays."""
        self.assertEqual(["pass\nx = f()\n"], changed("f(1)\nx = f()\n", "call"))
        self.assertIn("    pass\n", changed("async def g():\n    await f()\n", "call")[0])

    def test_what_people_forget_has_an_operator(self) -> None:
        """An argument that is not handed on, a copy, the right end, an order, a clearing, the stronger word."""
        query = 'q = "SELECT a FROM t WHERE b <= ? AND c = 1 ORDER BY a DESC LIMIT 3"\n'
        part = "SELECT a FROM t WHERE b <= ? AND c = 1"
        for operator, text, expected in (
            ("argument", "f(a, b=1, c=2)\n", ["f(a, c=2)\n", "f(a, b=1)\n"]),
            ("argument", "f(b=1, c=2)\ng(d=3)\n", ["f( c=2)\ng(d=3)\n", "f(b=1)\ng(d=3)\n", "f(b=1, c=2)\ng()\n"]),
            ("copy", "x = dict(a)\ny = b.copy()\n", ["x = (a)\ny = b.copy()\n", "x = dict(a)\ny = b\n"]),
            ("end", "x = a.popleft()\n", ["x = a.pop()\n"]),
            ("end", "x = a.pop(0) + b[-1]\n", ["x = a.pop() + b[-1]\n", "x = a.pop(0) + b[0]\n"]),
            ("weaker", "x = os.path.realpath(a.casefold())\n", [
                "x = os.path.abspath(a.casefold())\n", "x = os.path.realpath(a.lower())\n"]),
            ("assign", "s.a = 1\nb += 2\n", ["pass\nb += 2\n", "s.a = 1\npass\n"]),
            ("number", "def f():\n    return 0.5\n", ["def f():\n    return 1.5\n"]),
            ("sql", query, [
                'q = "SELECT a FROM t WHERE c = 1 ORDER BY a DESC LIMIT 3"\n',
                'q = "SELECT a FROM t WHERE b < ? AND c = 1 ORDER BY a DESC LIMIT 3"\n',
                'q = "SELECT a FROM t WHERE b <= ? ORDER BY a DESC LIMIT 3"\n',
                f'q = "{part} LIMIT 3"\n', f'q = "{part} ORDER BY a LIMIT 3"\n', f'q = "{part} ORDER BY a DESC"\n']),
            ("sql", 'q = f"DELETE FROM {t} WHERE a > 1"\n', ['q = f"DELETE FROM {t} WHERE a >= 1"\n']),
        ):  # fmt: skip
            with self.subTest(operator=operator, text=text):
                self.assertEqual(expected, changed(text, operator))

    def test_numbers_sums_and_extremes(self) -> None:
        """One larger, plus and minus, min and max; constants of a module by themselves."""
        self.assertEqual(["LIMIT = 6\n"], changed("LIMIT = 5\n", "limit"))
        self.assertEqual(["def f():\n    return 6\n"], changed("def f():\n    return 5\n", "number"))
        self.assertEqual(["x = a - b\n"], changed("x = a + b\n", "sum"))
        self.assertEqual(["x = max(a, b)\n"], changed("x = min(a, b)\n", "extreme"))

    def test_a_handler_catches_nothing(self) -> None:
        """The error that it is there for passes."""
        text = "try:\n    f()\nexcept KeyError:\n    g()\n"
        self.assertIn("except ZeroDivisionError:", changed(text, "handler")[0])

    def test_the_last_statement_is_moved_out_of_the_transaction(self) -> None:
        """Only out of a block that writes, and never a return."""
        text = "with s.write() as db:\n    a(db)\n    b(db)\n"
        self.assertEqual(["with s.write() as db:\n    a(db)\nb(db)\n"], changed(text, "outside"))
        self.assertEqual([], changed(text.replace("s.write()", "s.read()"), "outside"))
        text = "def f():\n" + "".join(
            f"    {line}\n" for line in ("with s.write() as db:", "    a(db)", "    return b")
        )
        self.assertEqual([], changed(text, "outside"))

    def test_texts_annotations_and_docstrings_are_left_alone(self) -> None:
        """They hold no decision."""
        text = '"""5 < 6"""\n__all__ = ["a"]\ndef f(a: "int < 5") -> "not 3":\n    """7"""\n    assert a < 5\n'
        self.assertEqual([], automatic("m", text))

    def test_letters_of_more_than_one_byte_do_not_shift_a_change(self) -> None:
        """The tree counts bytes, a text counts characters."""
        self.assertEqual(["x = f('作业', a <= b)\n"], changed("x = f('作业', a < b)\n", "compare"))

    def test_every_fault_is_a_program(self) -> None:
        """Each one of two modules parses, and differs from the text; names are distinct."""
        for module in ("canonical", "companions.basics.tasks", "companions.effects.inbox"):
            text = text_of(module)
            found = automatic(module, text)
            self.assertEqual(len({mutant.name for mutant in found}), len(found))
            for mutant in found:
                ast.parse(mutant.apply(text))
                self.assertNotEqual(mutant.apply(text), text, mutant.name)


class TheList(unittest.TestCase):
    """`mutants.toml` fits the code as it is."""

    def test_every_entry_stands_in_exactly_one_place(self) -> None:
        """An entry whose place has moved fails here instead of proving nothing, and each makes a program."""
        for entry in read_list().entries:
            with self.subTest(entry["name"]):
                text = text_of(entry["module"])
                first, last = extent(text, entry)
                fault = written(entry, text)
                part = text[first : fault.start] + fault.new + text[fault.end : last]
                ast.parse(textwrap.dedent(" " * (first - text.rfind("\n", 0, first) - 1) + part))
                self.assertNotEqual(text, fault.apply(text))

    def test_every_module_has_tests_that_exist(self) -> None:
        """The tests of each module are named, and so are those of every module of the chapter and every companion."""
        tests = read_list().tests
        for module, names in tests.items():
            self.assertTrue(path_of(module).is_file(), module)
            self.assertTrue(names)
            for name in names:
                self.assertTrue((TOP / "chapter10" / "tests" / f"{name}.py").is_file(), name)
        self.assertLessEqual({entry["module"] for entry in read_list().entries}, set(tests))

    def test_no_fault_stands_on_a_line_with_a_mark(self) -> None:
        """A guard is taken out by its mark, so its line may be written in other words and nothing here notices."""
        marked = {mark_of(guard)[:2] for guard in GUARDS}
        for entry in read_list().entries:
            text, module = text_of(entry["module"]), entry["module"].replace(".", "/") + ".py"
            fault = written(entry, text)
            lines = range(fault.line, text.count("\n", 0, fault.end) + 2)
            self.assertFalse({(module, line) for line in lines} & marked, entry["name"])

    def test_every_reason_names_a_fault_that_the_operators_make(self) -> None:
        """A reason for a place that has changed must be thought of anew."""
        reasons = read_list().reasons
        made = {
            mutant.name
            for module in {name.partition(":")[0] for name in reasons}
            for mutant in automatic(module, text_of(module))
        }
        self.assertEqual([], sorted(set(reasons) - made))

    def test_a_wrong_entry_is_refused(self) -> None:
        """No place, two places, no such function."""
        entry = {"name": "n", "module": "m", "old": "a < b", "new": "a <= b"}
        self.assertEqual("x = a <= b\n", written(entry, "x = a < b\n").apply("x = a < b\n"))
        for text, where in (("x = 1\n", {}), ("a < b\na < b\n", {}), ("x = a < b\n", {"in": "f"})):
            with self.assertRaises(ValueError):
                written({**entry, **where}, text)


class TheReasons(FolderTestCase):
    """The files beside the list."""

    def read(self, *texts: str) -> dict[str, str]:
        (self.folder / "mutants.toml").write_text("", encoding="utf-8")
        (self.folder / EQUIVALENTS).mkdir(exist_ok=True)
        for number, text in enumerate(texts):
            (self.folder / EQUIVALENTS / f"{number}.toml").write_text(text, encoding="utf-8")
        return read_list(self.folder / "mutants.toml").reasons

    def test_one_reason_holds_for_several_faults_and_several_files_are_read(self) -> None:
        """Each name leads to the words of its group."""
        first = '[[equivalent]]\nnames = ["a", "b"]\nreason = "same"\n'
        self.assertEqual(
            {"a": "same", "b": "same", "c": "other"},
            self.read(first, '[[equivalent]]\nnames = ["c"]\nreason = "other"\n'),
        )

    def test_a_group_without_names_or_reason_and_a_name_that_stands_twice_are_refused(self) -> None:
        """A reason that says nothing is none."""
        for text in (
            '[[equivalent]]\nnames = ["a"]\n',
            '[[equivalent]]\nnames = []\nreason = "r"\n',
            '[[equivalent]]\nnames = ["a"]\nreason = ""\n',
            '[[equivalent]]\nnames = ["a", "a"]\nreason = "r"\n',
        ):
            with self.subTest(text), self.assertRaises(ValueError):
                self.read(text)


class ABoundedRun(FolderTestCase):
    """A few faults in a real copy, with the real tests of a small module."""

    def test_faults_are_noticed_and_leave_nothing_behind(self) -> None:
        """A dropped guard and a flipped one are noticed by the module's tests; without a fault they pass."""
        tree = Tree(self.folder, compiled=False)
        text = tree.text("canonical")
        faults = [mutant for mutant in automatic("canonical", text) if mutant.operator == "guard"][:2]
        self.assertEqual("survived", tree.test(["test_canonical"]).ending)

        progress: list[str] = []
        verdicts = run(faults, {"canonical": ["test_canonical"]}, [tree], tell=progress.append)

        self.assertEqual(["noticed"] * 2, [verdict.ending for verdict in verdicts.values()])
        self.assertEqual({"test_canonical"}, {verdict.by for verdict in verdicts.values()})
        self.assertEqual(2, len(progress))
        self.assertEqual(text, tree.text("canonical"))
        self.assertEqual("survived", tree.test(["test_canonical"]).ending)

    @unittest.skipUnless(touched.POSSIBLE, "this Python cannot tell which lines run")
    def test_the_tests_of_a_line_are_asked_before_the_modules(self) -> None:
        """A fault on a line that a test runs is shown to that test alone; a fault nowhere run, to the whole module."""
        tree = Tree(self.folder, compiled=False)
        verdict, lines = tree.touched(["test_canonical"], 60.0)
        self.assertEqual("survived", verdict.ending)
        guard = next(each for each in automatic("canonical", tree.text("canonical")) if each.operator == "guard")
        near = lines["canonical"][str(guard.line)]
        self.assertTrue(all(test.startswith("test_canonical.") for test in near), near)
        asked: list[list[str]] = []

        class Asked(Tree):
            def __init__(self) -> None:  # no copy is made
                pass

            def verdict(self, mutant: Mutant, tests: Any, seconds: float = 0) -> Verdict:
                asked.append(tests)
                return Verdict("noticed" if mutant is guard else "survived", "test_m")

        nowhere = Mutant("nowhere", "canonical", "written", 0, 0, 0, "")
        for fault in (guard, nowhere):
            run([fault], {"canonical": ["test_canonical"]}, [Asked()], lines=lines, tell=len)
        self.assertEqual([near, ["test_canonical"]], asked)

    def test_a_hang_and_a_broken_import_are_noticed(self) -> None:
        """A loop without an end is ended from outside, and a module that cannot be imported is a failure."""
        tree = Tree(self.folder, compiled=False)
        text = tree.text("canonical")
        start = text.index("def canonical(")
        endless = Mutant("endless", "canonical", "written", 1, start, start, "while True:\n    pass\n\n\n")
        broken = Mutant("broken", "canonical", "written", 1, start, start, "raise KeyError\n\n\n")

        self.assertEqual("hung", tree.verdict(endless, ["test_canonical"], seconds=0.2).ending)
        self.assertEqual("noticed", tree.verdict(broken, ["test_canonical"]).ending)
        self.assertEqual("survived", tree.test(["test_canonical"]).ending)


class TheReport(unittest.TestCase):
    """What a run says of itself."""

    def test_ctrl_c_keeps_what_was_learned(self) -> None:
        """The verdicts so far come back, in the order of the list."""

        class Interrupted(Tree):
            def __init__(self) -> None:  # no copy is made
                self.seen = 0

            def verdict(self, mutant: Mutant, tests: object, seconds: float = 0) -> Verdict:
                self.seen += 1
                if self.seen == 2:
                    raise KeyboardInterrupt
                return Verdict("noticed", "test_m")

        faults = [Mutant(name, "m", "written", 1, 0, 0, "") for name in ("a", "b", "c")]
        with contextlib.redirect_stderr(io.StringIO()):
            verdicts = run(faults, {"m": ["test_m"]}, [Interrupted()])

        self.assertEqual(["a"], list(verdicts)[:1])
        self.assertNotIn("b", verdicts)

    def test_the_page_has_a_row_for_each_module_and_names_the_survivors(self) -> None:
        """Who noticed how often, that the tests hung, why nobody can; and a page can be read again."""
        faults = [Mutant(name, "m", "written", 1, 0, 0, "") for name in ("first", "second", "third")]
        faults.append(Mutant("fourth", "n", "written", 1, 0, 0, "", "it makes no difference"))
        verdicts = {"first": Verdict("noticed", "test_m"), "second": Verdict("hung"), "fourth": Verdict("survived")}
        verdicts["third"] = verdicts["first"]
        rows = rows_of(faults, verdicts)
        page = mutants_page(rows)

        self.assertEqual(rows, rows_before(page))
        self.assertIn("| m | 3 | 3 | (the tests hung) 1, test_m 2 |  |", page)
        self.assertIn("| n | 1 | 0 |  | fourth: it makes no difference |", page)
        self.assertIn("4 faults, 3 noticed, 1 with a reason.", page)

    def test_the_committed_page_says_no_more_than_the_list(self) -> None:
        """A run takes many minutes: a row may be older than the list, and is never of more than stands there."""
        rows = rows_before((reports_folder() / command.PAGE).read_text(encoding="utf-8"))
        entries = read_list().entries

        listed = Counter(entry["module"] for entry in entries)
        for module, (faults, noticed, _, survivors) in rows.items():
            self.assertLessEqual(faults, listed[module], module)
            reasons = [f"{e['name']}: {e['reason']}" for e in entries if e["module"] == module and "reason" in e]
            self.assertEqual((faults - noticed, survivors), (len(reasons), "; ".join(reasons)), module)


class TheCommand(unittest.TestCase):
    """`python -m chapter10 mutants`, in this process, without a run."""

    def run_command(self, *arguments: str) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                code = command.main(arguments)
            except SystemExit as left:
                code = int(left.code or 0)
        return code, out.getvalue()

    def test_it_lists_the_faults(self) -> None:
        """The list, and what operators make of a module; a sample depends on its seed alone."""
        code, out = self.run_command("--list")
        self.assertEqual((0, len(read_list().entries)), (code, len(out.splitlines())))
        sample = ("--list", "--automatic", "--module", "jobs", "--sample", "5")
        self.assertEqual(5, len(self.run_command(*sample)[1].splitlines()))
        self.assertEqual(self.run_command(*sample), self.run_command(*sample, "--seed", "1"))
        self.assertNotEqual(self.run_command(*sample), self.run_command(*sample, "--seed", "2"))

    def test_wrong_options_are_usage_errors(self) -> None:
        """Exit 2 for a module without tests, an unknown name, and a report of what is no row of the page."""
        for wrong in (
            ("--module", "nothing"),
            ("--only", "nothing"),
            ("--write", "--automatic", "--module", "canonical"),
            ("--write", "--only", read_list().entries[0]["name"]),
        ):
            self.assertEqual(2, self.run_command(*wrong)[0])

    def test_without_the_tests_it_says_so(self) -> None:
        """An installed copy has none."""
        with mock.patch.object(command, "_TOP", Path("nowhere")):
            self.assertEqual(2, self.run_command("--list")[0])


load_tests = overlapping(ABoundedRun)
