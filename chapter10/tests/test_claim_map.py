"""The claim map: every sentence has a test or a reason, every figure is in the evidence, the page is fresh."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.lab.console.textio import main_guard
from chapter10.lab.histories.guards import MarkError
from chapter10.lab.proof import claim_map
from chapter10.lab.proof.claim_map import PAGE, main, pages, problems
from chapter10.lab.proof.claims import (
    KINDS,
    Claim,
    Map,
    docstrings,
    ids_in,
    proof_of,
    read_claim,
    read_claims,
    read_map,
)
from chapter10.tests.published import PUBLISHED
from chapter10.tests.shared import chapter_evidence
from chapter10.tests.shared import claim_map as whole
from chapter10.tests.support import TOP
from chapter10.tests.syntax import parsed

COUNTS = {"C10": 316, "C8": 85, "T6": 44, "I4": 103}
"""How many claims each document has; none may get lost."""

CHINESE = re.compile("[\u4e00-\u9fff]")


def claims() -> list[Claim]:
    """Every claim in order."""
    return list(whole().claims.values())


def call(*arguments: str) -> tuple[int, str, str]:
    """Run the command in this process; return exit code, output and errors."""
    out, error = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        mock.patch.object(claim_map, "read_map", whole),  # the sources are read once
    ):
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
    return code, out.getvalue(), error.getvalue()


class EveryClaim(unittest.TestCase):
    """What must hold for all of them."""

    def test_each_has_a_test_or_a_stated_reason(self) -> None:
        """`--missing` is empty; a claim with a test needs no reason."""
        self.assertEqual(whole().missing, [])
        excused = [claim.id for claim in claims() if claim.reason and claim.id in whole().proved]
        self.assertEqual(excused, [], "these have a test, so their reason is out of date")

    def test_no_id_is_named_that_does_not_exist(self) -> None:
        """A slip of the pen in a docstring, a guard or a mutant proves nothing."""
        self.assertEqual(whole().unknown, [])

    def test_ids_in_the_tests_stand_in_the_line_that_is_read(self) -> None:
        """A test that names a claim elsewhere in its docstring would not be found."""
        for path in sorted((TOP / "chapter10" / "tests").glob("test_*.py")):
            for place, docstring in docstrings(path, path.name, parse=parsed):
                if place.name.rpartition(".")[2].startswith("test_") and ids_in(docstring):
                    with self.subTest(test=f"{path.stem}.{place.name}"):
                        self.assertTrue(proof_of(docstring), "the ids do not stand after `Claims:`")

    def test_each_document_is_complete_and_in_order(self) -> None:
        """The numbers run from 1 without a gap."""
        for document, count in COUNTS.items():
            numbers = [claim.id for claim in claims() if claim.document == document]
            self.assertEqual(numbers, [f"{document}-{number:03}" for number in range(1, count + 1)])

    def test_each_has_a_sentence_in_both_languages(self) -> None:
        """Short, ended, and no two the same."""
        for language in ("zh", "en"):
            sentences = [claim.sentence.in_language(language) for claim in claims()]
            self.assertEqual(len(set(sentences)), len(sentences))
        for claim in claims():
            with self.subTest(claim=claim.id):
                self.assertTrue(claim.sentence.zh.endswith("。") and CHINESE.search(claim.sentence.zh))
                self.assertTrue(claim.sentence.en.endswith(".") and not CHINESE.search(claim.sentence.en))
                self.assertLessEqual(len(claim.sentence.en), 160)
                self.assertIn(claim.kind, KINDS)

    def test_the_list_names_no_place_in_the_code(self) -> None:
        """Places are found when the map is read; a written one would go out of date."""
        text = (TOP / "chapter10" / "lab" / "proof" / "claims.toml").read_text(encoding="utf-8")
        rows = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "unguarded", "prose")))
        self.assertNotRegex(rows, r"\w\.py\b|\bline \d|test_[a-z]+_[a-z]")

    def test_every_room_exists(self) -> None:
        """`room` is a module, or the documents beside the code."""
        modules = {path.stem for path in (TOP / "chapter10").rglob("*.py") if "tests" not in path.parts}
        self.assertEqual({claim.room for claim in claims()} - modules, {"documents"})


class TheFigures(unittest.TestCase):
    """What the book prints is what a run gives."""

    def test_every_expected_figure_is_in_the_evidence(self) -> None:
        """Compared by value and by type, so that 1 is not True."""
        evidence = chapter_evidence()
        seen = 0
        for claim in claims():
            for figure in claim.expect:
                with self.subTest(claim=claim.id, place=figure.place):
                    found = figure.found_in(evidence)
                    self.assertEqual((type(found), found), (type(figure.value), figure.value))
                    seen += 1
        self.assertGreater(seen, 60)

    def test_every_published_field_is_expected_by_a_claim(self) -> None:
        """A published figure is there because some sentence of the book has it."""
        expected = {(figure.group, figure.field.partition(".")[0]) for claim in claims() for figure in claim.expect}
        published = {(group, field) for group, fields in PUBLISHED.items() for field in fields}
        self.assertEqual(published - expected, set())


class WhatBreaksThem(unittest.TestCase):
    """For each guarantee of the job store something can be taken out."""

    def test_each_guarantee_of_the_jobs_has_a_breaker_or_a_reason(self) -> None:
        """A guard or a mutant that names it; one of the two, and no reason beside it."""
        for claim in claims():
            if claim.room == "jobs" and claim.kind == "guarantee":
                with self.subTest(claim=claim.id, says=claim.sentence.en):
                    self.assertNotEqual(bool(whole().broken.get(claim.id)), bool(claim.unguarded))


class TheCommand(unittest.TestCase):
    """What a reader types."""

    def test_the_old_worker_is_answered_by_one_command(self) -> None:
        """Which line makes sure that a late worker cannot deliver, and how does one know?"""
        code, out, _ = call("--claim", "C10-229", "--lang", "en")
        self.assertEqual(code, 0)
        found = re.search(r"chapter10/jobs\.py:(\d+)  (.+?)    \((.*)\)", out)
        assert found is not None
        line = (TOP / "chapter10" / "jobs.py").read_text(encoding="utf-8").splitlines()[int(found.group(1)) - 1]
        self.assertEqual(line.strip(), f"{found.group(2)}  # guard: stale_attempt")
        self.assertIn("finish", found.group(3))
        self.assertIn('failures.stale_worker = "stale_attempt"', out)
        self.assertIn("python -m chapter10 explore --without stale_attempt.finish", out)
        tests = re.findall(r"python -m unittest (chapter10\.tests\.\S+)", out)
        self.assertGreaterEqual(len(tests), 2)
        loaded = unittest.defaultTestLoader.loadTestsFromNames(tests)
        self.assertEqual(loaded.countTestCases(), len(tests))
        self.assertEqual(unittest.defaultTestLoader.errors, [])

    def test_a_claim_without_a_test_says_why(self) -> None:
        """Out of scope is said, not hidden."""
        code, out, _ = call("--claim", "c10-127", "--lang", "zh")
        self.assertEqual(code, 0)
        self.assertIn("为什么没有测试", out)

    def test_an_unknown_claim_is_a_mistake_of_usage(self) -> None:
        """Exit code 2 and one line."""
        code, out, error = call("--claim", "C99-001")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("there is no claim C99-001", error)
        self.assertEqual(call("--write", "--check")[0], 2)

    def test_a_guard_without_its_mark_is_one_line(self) -> None:
        """The line says which guard it is and what to do; exit code 1, and no traceback."""
        out = io.StringIO()
        lost = mock.patch.object(claim_map, "read_map", side_effect=MarkError("guard due.claim: lost"))
        with lost, contextlib.redirect_stdout(out):
            self.assertEqual(main(["--claim", "C10-229"]), 1)
        self.assertEqual(out.getvalue(), "[X] guard due.claim: lost\n")

    def test_claims_are_found_by_words(self) -> None:
        """Both languages, section titles and error codes lead to the sentence; all words must fit."""
        for words in (
            "old worker late",
            "late stale_attempt",
            "迟到 回执",
            "vanished receipt",
            "failures.stale_worker",
        ):
            code, out, _ = call("--find", words, "--lang", "en")
            self.assertEqual(code, 0, words)
            self.assertIn("C10-229  The old worker that comes back late", out)
        code, out, error = call("--find", "lease unicorn")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no claim has these words", error)

    def test_missing_names_what_is_missing(self) -> None:
        """A claim that no test names and that has no reason is listed, and the exit code is 1."""
        known = whole()
        lonely = Map(known.claims, known.promised, {k: v for k, v in known.proved.items() if k != "C10-229"}, {})
        self.assertEqual(set(lonely.missing) - set(known.missing), {"C10-229"})
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(problems(lonely), 1)
        self.assertIn("[X] C10-229", out.getvalue())

    def test_it_keeps_its_exit_code_in_a_poor_console(self) -> None:
        """A console without Chinese gets escapes, not a traceback."""
        console = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        with (
            contextlib.redirect_stdout(console),
            mock.patch.object(claim_map, "read_map", whole),
            self.assertRaises(SystemExit) as left,
        ):
            main_guard(lambda: main(["--claim", "C10-229", "--lang", "zh"]))
        self.assertEqual(left.exception.code, 0)
        said = console.buffer.getvalue().decode("ascii")
        self.assertIn("stale_attempt", said)
        self.assertIn("\\u", said)


class ThePages(unittest.TestCase):
    """`reports/claim-map.md` and a page for each part of the book."""

    def test_they_are_fresh(self) -> None:
        """After a change of docstrings: `python -m chapter10 claims --write`."""
        code, out, _ = call("--check")
        self.assertEqual((code, out), (0, f"[OK] {PAGE}, the pages beside it: as a new run gives them\n"))

    def test_they_have_a_row_for_each_claim_and_no_line_numbers(self) -> None:
        """Written twice they are the same, and an edit above a function does not change them."""
        texts = pages(whole())
        self.assertEqual(texts, pages(read_map(parse=parsed)))
        rows = re.findall(r"^\| ((?:C10|C8|T6|I4)-\d{3}) \|", "\n".join(texts.values()), re.MULTILINE)
        self.assertEqual(sorted(rows), sorted(whole().claims))
        self.assertNotRegex("".join(texts.values()), r"\.py:\d")
        moved = {
            name: [place.__class__(place.path, place.name, place.line + 7) for place in places]
            for name, places in whole().promised.items()
        }
        self.assertEqual(pages(Map(whole().claims, moved, whole().proved, whole().broken)), texts)


class Reading(unittest.TestCase):
    """How ids and claims are read."""

    def test_ids_and_ranges(self) -> None:
        """A range may stand over a line break; each id comes once."""
        self.assertEqual(ids_in("C10-001, I4-002 and C10-001"), ["C10-001", "I4-002"])
        self.assertEqual(ids_in("claims T6-001 to\n    T6-003"), ["T6-001", "T6-002", "T6-003"])
        self.assertEqual(ids_in("C10-001 to C8-003, X-02, C10-1, AC10"), ["C10-001", "C8-003"])

    def test_only_the_last_lines_of_a_test_count(self) -> None:
        """What stands before `Claims:` is talk."""
        self.assertEqual(proof_of("Like C10-001.\n\nClaims: C10-002,\nC10-003."), " C10-002,\nC10-003.")
        self.assertEqual(proof_of("One line. Claims: C10-002."), " C10-002.")
        self.assertEqual(proof_of("Like C10-001."), "")
        self.assertEqual(proof_of("NotClaims: C10-001."), "")

    def test_a_bad_row_is_refused_by_name(self) -> None:
        """What lacks something, what is unknown, what stands twice."""
        section: dict[str, Any] = {"document": "C10", "zh": "一", "en": "one", "room": "jobs"}
        row = {"id": "C10-001", "kind": "fact", "zh": "一。", "en": "One."}
        for change in ({"id": "C8-001"}, {"kind": "wish"}, {"line": 7}, {"prose": "a", "out_of_scope": "b"}):
            with self.subTest(change=change), self.assertRaises(ValueError):
                read_claim(section, {**row, **change})
        with self.assertRaises(ValueError):
            read_claim(section, {key: value for key, value in row.items() if key != "en"})
        with tempfile.TemporaryDirectory() as folder:
            twice = Path(folder, "claims.toml")
            head = '[[sections]]\ndocument = "C10"\nroom = "jobs"\nzh = "a"\nen = "b"\n'
            one = '[[sections.claims]]\nid = "C10-001"\nkind = "fact"\nzh = "一。"\nen = "One."\n'
            twice.write_text(head + one, encoding="utf-8")
            self.assertEqual(list(read_claims(twice)), ["C10-001"])
            twice.write_text(head + one + one, encoding="utf-8")
            with self.assertRaisesRegex(ValueError, "twice"):
                read_claims(twice)


if __name__ == "__main__":
    unittest.main()
