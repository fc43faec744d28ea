"""Bad input at scale: a bounded run, and proof that every public callable is thought of and a fault is seen."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import unittest
from collections.abc import Iterator
from pathlib import Path

from chapter10.canonical import CodedError
from chapter10.lab.proof import fuzz as command
from chapter10.lab.proof.fuzz import TRAPS, CallableTrap, fuzz
from chapter10.lab.proof.fuzz_subjects import FUZZED, NOT_FUZZED, NOT_FUZZED_MODULES, SUBJECTS, Bench, Verb
from chapter10.tests.support import FolderTestCase
from chapter10.tests.syntax import all_of, modules

CALLS = 60
"""Of each subject, in the suite."""


def public_callables() -> Iterator[str]:
    """Every public function and class outside the modules that are left out, and the public methods of classes."""
    for name, source in modules().items():
        if any(name == left_out or name.startswith(f"{left_out}.") for left_out in NOT_FUZZED_MODULES):
            continue
        listed = all_of(source.tree) or []
        for node in source.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in listed:
                yield node.name
            elif isinstance(node, ast.ClassDef) and node.name in listed and not is_error_or_protocol(node):
                yield node.name
                yield from (f"{node.name}.{method}" for method in public_methods(node))


def is_error_or_protocol(node: ast.ClassDef) -> bool:
    """An error is made by its module; a protocol has no code."""
    bases = [ast.unparse(base) for base in node.bases]
    errors = ("Error", "Exception", "ChildFailed", "ConnectFailed")
    return any(base.endswith(errors) or base.startswith("Protocol") for base in bases)


def public_methods(node: ast.ClassDef) -> Iterator[str]:
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
            if not any("property" in ast.unparse(decorator) for decorator in method.decorator_list):
                yield method.name


class EveryPublicCallable(FolderTestCase):
    """Nothing that a caller can reach is forgotten."""

    def verbs(self) -> set[str]:
        """The verbs of all subjects, with and without the name of the class."""
        names: set[str] = set()
        for number, subject in enumerate(SUBJECTS.values()):
            home = self.folder / str(number)
            home.mkdir()
            with subject(home) as bench:
                names |= {verb.name for verb in bench.verbs} | {verb.name.rpartition(".")[2] for verb in bench.verbs}
        return names

    def test_every_public_name_is_called_or_has_a_reason(self) -> None:
        """A new function or class stands in one of the two tables."""
        called = {name for names in FUZZED.values() for name in names}
        left_out = {name for names in NOT_FUZZED.values() for name in names}
        names = {name for name in public_callables() if "." not in name}

        self.assertEqual([], sorted(names - called - left_out))
        self.assertEqual([], sorted(called & left_out))
        self.assertEqual(sorted(FUZZED), sorted(SUBJECTS))

    def test_every_method_of_a_fuzzed_class_is_a_verb_or_has_a_reason(self) -> None:
        """A new method of such a class is called with traps too."""
        called = {name for names in FUZZED.values() for name in names}
        left_out = {name for names in NOT_FUZZED.values() for name in names}
        verbs = self.verbs()
        findings = [
            name
            for name in public_callables()
            if "." in name
            and name.partition(".")[0] in called
            and name not in left_out
            and name not in verbs
            and name.partition(".")[2] not in verbs
        ]
        self.assertEqual([], sorted(findings))

    def test_no_table_names_what_is_gone(self) -> None:
        """An entry for a name that no module has would hide the next one of that name."""
        names = set(public_callables())
        listed = {name for table in (FUZZED, NOT_FUZZED) for row in table.values() for name in row}

        self.assertEqual([], sorted(listed - names))
        for left_out in NOT_FUZZED_MODULES:
            self.assertTrue(any(f"{name}.".startswith(f"{left_out}.") for name in modules()), left_out)

    def test_valid_arguments_are_valid(self) -> None:
        """Without a trap every verb has an answer, so that a refusal is the trap's doing."""
        with contextlib.chdir(self.folder):
            for name, subject in SUBJECTS.items():
                number = verbs = 0
                while number == 0 or number < verbs:
                    home = self.folder / f"{name}-{number}"
                    home.mkdir()
                    with self.subTest(name, number=number), subject(home) as bench:
                        verbs = len(bench.verbs)
                        verb = bench.verbs[number]
                        answer = verb.call(**verb.arguments())
                        if verb.is_async:
                            asyncio.run(answer)
                        self.assertIs(bench.usable(), True, verb.name)
                    number += 1


class TheRun(unittest.TestCase):
    """The bounded version of the command."""

    def test_only_declared_errors_and_nothing_changed_by_a_refused_call(self) -> None:
        """Every subject, with traps in one to three arguments.

        Claims: C10-277.
        """
        self.assertEqual([], [str(finding) for finding in fuzz(11, CALLS)])

    def test_the_same_seed_gives_the_same_calls(self) -> None:
        """A finding can be found again."""
        with self.broken(raises=ZeroDivisionError("found")):
            first, again, other = (list(map(str, fuzz(seed, 30, ["broken"]))) for seed in (5, 5, 6))

        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_an_undeclared_error_is_found(self) -> None:
        """A `TypeError` from inside is a finding, a coded error is none, and so is what the docstring names."""
        with self.broken(raises=TypeError("unsupported operand")):
            self.assertTrue(list(fuzz(1, 5, ["broken"])))
        with self.broken(raises=CodedError("bad_input")):
            self.assertEqual([], list(fuzz(1, 5, ["broken"])))
        with self.broken(raises=ValueError("documented"), declared=(ValueError,)):
            self.assertEqual([], list(fuzz(1, 5, ["broken"])))
        with self.broken(raises=CallableTrap("the caller's own")):
            self.assertEqual([], list(fuzz(1, 5, ["broken"])))

    def test_a_refused_call_that_changed_something_is_found(self) -> None:
        """The content before and after is compared."""
        with self.broken(raises=CodedError("bad_input"), changes=True):
            findings = list(fuzz(1, 5, ["broken"]))

        self.assertTrue(findings)
        self.assertIn("something has changed", findings[0].what)

    def test_an_object_that_is_of_no_use_afterwards_is_found(self) -> None:
        """The plain call is made after each call."""
        with self.broken(usable=False):
            findings = list(fuzz(1, 5, ["broken"]))

        self.assertTrue(findings)
        self.assertIn("another answer", findings[0].what)

    def test_an_error_whose_text_is_not_its_code_is_found(self) -> None:
        """Data is an attribute and never the text."""

        class Talkative(CodedError):
            def __str__(self) -> str:
                return "the value was 5"

        with self.broken(raises=Talkative("bad_input")):
            self.assertIn("not its code", next(fuzz(1, 5, ["broken"])).what)

    @contextlib.contextmanager
    def broken(
        self,
        *,
        raises: Exception | None = None,
        declared: tuple[type[Exception], ...] = (),
        changes: bool = False,
        usable: bool = True,
    ) -> Iterator[None]:
        """A subject of one verb that does what it should not."""
        content = [0]

        def verb(value: object) -> None:
            content[0] += changes
            if raises is not None:
                raise raises

        @contextlib.contextmanager
        def subject(_: Path) -> Iterator[Bench]:
            yield Bench(
                [Verb("verb", verb, lambda: {"value": {"a": [1]}}, declared)], lambda: content[0], lambda: usable
            )

        SUBJECTS["broken"] = subject
        try:
            yield
        finally:
            del SUBJECTS["broken"]


class TheTraps(unittest.TestCase):
    """The values of the traps are what their names say."""

    def test_names_are_distinct(self) -> None:
        """A finding names its trap."""
        names = [trap.name for trap in TRAPS]
        self.assertEqual(len(set(names)), len(names))

    def test_what_can_be_changed_is_made_anew(self) -> None:
        """A call that changed its argument would spoil the next one."""
        for trap in TRAPS:
            if type(trap.make()) in (list, dict, set, bytearray) and not trap.name.startswith("a deep"):
                self.assertIsNot(trap.make(), trap.make(), trap.name)


class TheCommand(unittest.TestCase):
    """`python -m chapter10 fuzz`, in this process."""

    def run_command(self, *arguments: str) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                code = command.main(arguments)
            except SystemExit as left:
                code = int(left.code or 0)
        return code, out.getvalue()

    def test_it_prints_calls_and_findings(self) -> None:
        """One line when nothing was found."""
        self.assertEqual((0, "calls 20, findings 0\n"), self.run_command("--calls", "20", "--subject", "canonical"))

    def test_it_lists_the_subjects(self) -> None:
        """One a line."""
        self.assertEqual((0, "\n".join(SUBJECTS) + "\n"), self.run_command("--list"))

    def test_sizes_and_names_out_of_bounds_are_usage_errors(self) -> None:
        """Exit 2."""
        self.assertEqual(2, self.run_command("--calls", "0")[0])
        self.assertEqual(2, self.run_command("--subject", "nothing")[0])
