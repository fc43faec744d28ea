"""The experiments of the companions: the same bytes everywhere, the committed pages fresh, each group what it says."""

from __future__ import annotations

import json
import re
import unittest
from functools import cache
from pathlib import Path
from typing import Any

from chapter10.companions.experiments import (
    GROUPS,
    REPORTS,
    check_reports,
    main,
    run_companions,
    write_reports,
)
from chapter10.evidence import Scene
from chapter10.experiments import GROUPS as CHAPTER_GROUPS
from chapter10.experiments import reports_folder, run_all
from chapter10.tests.support import FolderTestCase, run_python

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def evidence() -> dict[str, Any]:
    """The evidence of one run, for the tests that only look at it."""
    return run_companions()


def figures(group: str) -> Any:
    """The figures of one group in that run."""
    return evidence()["groups"][group]


class TheEvidence(FolderTestCase):
    """What is committed is what a run gives, and two runs give the same."""

    def test_the_committed_reports_are_those_of_a_new_run(self) -> None:
        """`--check` finds no line that differs."""
        self.assertEqual(check_reports(reports_folder()), [])

    def test_two_runs_give_the_same_bytes(self) -> None:
        """Written twice, in two folders, the two files are equal, and nothing else is there."""
        for name in ("first", "second"):
            write_reports(self.folder / name)
        for name in REPORTS:
            first, second = ((self.folder / folder / name).read_bytes() for folder in ("first", "second"))
            self.assertEqual(first, second)
            self.assertNotIn(b"\r", first)
        self.assertEqual(sorted(path.name for path in (self.folder / "first").iterdir()), sorted(REPORTS))

    def test_a_changed_figure_is_found(self) -> None:
        """The check names the file and the line."""
        write_reports(self.folder)
        path = self.folder / REPORTS[0]
        path.write_text(path.read_text(encoding="utf-8").replace("null", "0", 1), encoding="utf-8", newline="\n")
        (line,) = check_reports(self.folder)
        self.assertIn("companion-evidence.json: line 3", line)

    def test_no_path_and_no_address_of_a_machine_is_in_the_reports(self) -> None:
        """What differs between two machines is not evidence. Claims: C8-050."""
        for name in REPORTS:
            text = (reports_folder() / name).read_text(encoding="utf-8")
            for pattern in (r"0x[0-9a-f]{6,}", r"/[t]mp", re.escape(str(Path.home()))):
                self.assertIsNone(re.search(pattern, text), pattern)

    def test_every_picture_has_its_twin_in_text(self) -> None:
        """On the page a Mermaid picture follows the lanes with the same events."""
        page = (reports_folder() / "companion-evidence.md").read_text(encoding="utf-8")
        languages = [language for language, _ in FENCE.findall(page)]
        for number, language in enumerate(languages):
            if language == "mermaid":
                self.assertEqual(languages[number - 1], "text")
        self.assertGreaterEqual(languages.count("mermaid"), len(GROUPS))

    def test_the_chapter_keeps_its_five_groups(self) -> None:
        """The companions have a file of their own; `run_all` knows nothing of them."""
        self.assertEqual(list(run_all()["groups"]), list(CHAPTER_GROUPS))
        self.assertEqual(set(CHAPTER_GROUPS) & set(GROUPS), set())
        self.assertEqual(list(evidence()["groups"]), list(GROUPS))


class TheCommand(unittest.TestCase):
    """What is printed is the evidence."""

    def test_a_group_prints_its_figures_as_json(self) -> None:
        """Standard output is exactly the JSON of that group, for each group."""
        for group in GROUPS:
            with self.subTest(group=group):
                child = run_python(["-m", "chapter10.companions.experiments", "--group", group])
                self.assertEqual((child.returncode, child.stderr), (0, ""))
                self.assertEqual(json.loads(child.stdout), figures(group))

    def test_a_group_runs_alone_and_twice(self) -> None:
        """No group leaves anything behind that another run sees."""
        for name, group in GROUPS.items():
            with self.subTest(group=name):
                self.assertEqual(group.run(Scene()), figures(name))

    def test_options_that_mean_nothing_together_are_usage_errors(self) -> None:
        """Exit code 2 and nothing is run."""
        for arguments in (["--group", "none"], ["--write", "--check"], ["--group", "schema", "--check"], ["--wri"]):
            with self.subTest(arguments=arguments), self.assertRaises(SystemExit) as caught:
                main(arguments)
            self.assertEqual(caught.exception.code, 2)


class TheSchemaGroup(unittest.TestCase):
    """Checked, refused and never repaired."""

    def test_only_the_two_first_arguments_are_valid(self) -> None:
        """Types are those of JSON: 3.0 is an integer, true is none and not equal to 1."""
        valid = [row["case"] for row in figures("schema")["arguments"] if not row["violations"]]
        self.assertEqual(valid, ["an order", "3.0 is an integer"])

    def test_every_schema_that_promises_too_much_is_refused_by_keyword_and_place(self) -> None:
        """Nothing is accepted that is not checked."""
        for row in figures("schema")["refused"]:
            self.assertIn(row["code"], ("unsupported_keyword", "invalid_schema"))
            self.assertTrue(row["keyword"])
        self.assertFalse(figures("schema")["default_filled_in"])

    def test_no_text_that_is_no_strict_json_is_accepted(self) -> None:
        """Cut off is told apart from wrong."""
        codes = [row["code"] for row in figures("schema")["texts"]]
        self.assertEqual(codes[0], "json_cut_off")
        self.assertEqual(len(set(codes)), len(codes))
        self.assertNotIn("accepted", codes)


if __name__ == "__main__":
    unittest.main()
