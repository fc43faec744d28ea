"""The committed evidence: it is what a run gives, it breaks nowhere, and it claims no more than it shows."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10 import experiments
from chapter10.experiments import REPORTS, check_reports, run_all, write_reports
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.evidence.files import differences, replace_together
from chapter10.tests.published import PUBLISHED
from chapter10.tests.support import TOP, FolderTestCase, run_python

COMMITTED = TOP / "reports"

LEGAL = {
    ("", "queued"),
    ("queued", "running"),
    ("queued", "cancelled"),
    ("running", "running"),
    ("running", "queued"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "cancel_requested"),
    ("cancel_requested", "cancelled"),
}
"""The changes of state that the chapter allows, as far as these runs can show them."""


def committed(name: str) -> str:
    return (COMMITTED / name).read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of one language in the page."""
    return re.findall(rf"^```{language}\n(.*?)\n```$", committed("tool-jobs-evidence.md"), re.DOTALL | re.MULTILINE)


class Committed(FolderTestCase):
    """What stands in the repository."""

    def test_the_reports_are_what_a_new_run_gives(self) -> None:
        """Byte for byte, line ends aside.

        Claims: C10-277, C10-279.
        """
        self.assertEqual(check_reports(COMMITTED), [])

    def test_the_json_file_holds_the_published_figures(self) -> None:
        """Compared with figures typed by hand, not with the run.

        Claims: C10-263, C10-264, C10-265, C10-266, C10-267.
        """
        groups = json.loads(committed("tool-jobs-evidence.json"))["groups"]
        self.assertEqual(list(groups), list(PUBLISHED))
        for group, figures in PUBLISHED.items():
            with self.subTest(group=group):
                self.assertEqual({key: groups[group].get(key) for key in figures}, figures)

    def test_the_event_file_has_the_six_events_of_the_life(self) -> None:
        """One JSON object a line: queued, running, three times progress, succeeded; `seq` 1 to 6.

        Claims: C10-183.
        """
        lines = committed("job-events.jsonl").splitlines()
        self.assertEqual([json.loads(line) for line in lines], PUBLISHED["lifecycle"]["events"])

    def test_writing_twice_gives_the_same_three_files(self) -> None:
        """Exactly these names, the same bytes, UTF-8 with LF.

        Claims: C10-279, C10-280.
        """
        paths = write_reports(self.folder)
        first = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.assertEqual((set(first), [path.name for path in paths]), (set(REPORTS), list(REPORTS)))
        write_reports(self.folder)
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, first)
        for name, content in first.items():
            with self.subTest(name=name):
                content.decode("utf-8")
                self.assertNotIn(b"\r", content)
                self.assertEqual(content[-1:], b"\n")
                self.assertNotEqual(content[-2:], b"\n\n")

    def test_nothing_in_them_belongs_to_one_machine_or_one_moment(self) -> None:
        """No path, no date, no time of day, no random id.

        Claims: C10-281.
        """
        patterns = {
            "a folder": r"(?<![\w.])/(?:tmp|var|home|root|usr|Users|private)\b|[A-Z]:\\|jobs\.db",
            "a time": r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d",
            "a random id": r"[0-9a-f]{8}-[0-9a-f]{4}-",
        }
        for name in REPORTS:
            for what, pattern in patterns.items():
                with self.subTest(name=name, what=what):
                    self.assertIsNone(re.search(pattern, committed(name)))

    def test_they_call_nothing_a_success_rate(self) -> None:
        """Contract examples are no sample of tasks, and the page says so.

        Claims: C10-278.
        """
        for name in REPORTS:
            text = committed(name).casefold()
            for phrase in ("success rate", "success_rate", "成功率", "pass rate", "accuracy", "准确率"):
                with self.subTest(name=name, phrase=phrase):
                    self.assertNotIn(phrase, text)
        self.assertIn("no sample of real tasks", json.loads(committed("tool-jobs-evidence.json"))["contract"])

    def test_they_claim_no_crash_test_and_no_exactly_once_outside(self) -> None:
        """The page says what the reconnection does not prove.

        Claims: C10-173.
        """
        self.assertIn("no power-loss test", committed("tool-jobs-evidence.md"))
        self.assertIn("这不是断电测试", committed("tool-jobs-evidence.md"))
        self.assertIs(json.loads(committed("tool-jobs-evidence.json"))["external_exactly_once"], False)

    def test_what_was_not_measured_is_null(self) -> None:
        """Model, tokens and latency are empty, not zero.

        Claims: C10-274.
        """
        found = json.loads(committed("tool-jobs-evidence.json"))
        empty = (
            found["model_quality"],
            found["provider_tokens"],
            found["groups"]["concurrency"]["measured_network_latency_ms"],
        )
        self.assertEqual(empty, (None, None, None))

    def test_the_two_kinds_of_evidence_are_kept_apart(self) -> None:
        """The page tells logical time from the barrier, and only the concurrency group speaks of a barrier.

        Claims: C10-282.
        """
        page = committed("tool-jobs-evidence.md")
        head, *groups = re.split(r"^## ", page, flags=re.MULTILINE)
        self.assertIn("Two kinds of evidence, kept apart", head)
        self.assertEqual([group[0] for group in groups if "barrier" in group], ["3"])

    def test_no_page_is_too_long_to_be_read(self) -> None:
        """60 KB a page; the one for a browser holds its pictures and is let off."""
        for path in COMMITTED.glob("*.md"):
            with self.subTest(page=path.name):
                self.assertLessEqual(path.stat().st_size, 60 * 1024)

    def test_every_link_leads_to_a_file(self) -> None:
        """A reader who clicks arrives."""
        links = re.findall(r"\]\(([^)]+)\)", committed("tool-jobs-evidence.md"))
        self.assertGreaterEqual(len(links), 3)
        for link in links:
            with self.subTest(link=link):
                self.assertTrue((COMMITTED / link).is_file())


class Pictures(unittest.TestCase):
    """The page can be drawn, and the text beside each picture says the same."""

    def test_no_mermaid_line_holds_a_known_breaker(self) -> None:
        """Labels are free of `;`, `#`, `<`, `>` and quotes but for character codes; ids are our own."""
        arrow = re.compile(r"    (?:p\d+-?->>p\d+|(?:s\d+|\[\*\]) --> (?:s\d+|\[\*\])): (.+)")
        named = re.compile(r'    (?:participant p\d+ as (.+)|state "(.+)" as s\d+)')
        pictures = blocks("mermaid")
        self.assertGreaterEqual(len(pictures), 10)
        for picture in pictures:
            first, *lines = picture.split("\n")
            self.assertIn(first, ("sequenceDiagram", "stateDiagram-v2"))
            for line in lines:
                with self.subTest(line=line):
                    found = arrow.fullmatch(line) or named.fullmatch(line)
                    assert found is not None
                    label = next(group for group in found.groups() if group)
                    self.assertIsNone(re.search(r'[;#<>"%]', re.sub(r"#\d+;", "", label)))
                    self.assertNotEqual(label.casefold(), "end")
                    if first == "stateDiagram-v2":
                        self.assertNotIn(":", label)

    def test_every_picture_has_its_twin_in_text(self) -> None:
        """Each Mermaid block follows a text block with the same events."""
        page = committed("tool-jobs-evidence.md")
        pairs = re.findall(r"^```text\n([^`]*?)\n```\n\n```mermaid\n([^`]*?)\n```$", page, re.MULTILINE)
        self.assertEqual([picture for _, picture in pairs], blocks("mermaid"))
        for text, picture in pairs:
            if picture.startswith("sequenceDiagram"):
                asked = [line for line in picture.split("\n") if "->>" in line and "-->>" not in line]
                told = [line for line in text.split("\n")[2:] if line[0] != " "]
                self.assertEqual(len(asked), len(told))
                for message, lane in zip(asked, told, strict=True):
                    time, what = message.split(": ", 1)[1].split(" ", 1)
                    self.assertEqual(lane.split()[0], time)
                    self.assertIn(what, lane)
            else:
                edges = [line for line in picture.split("\n") if " --> " in line]
                self.assertEqual(len(edges), len(text.split("\n")))

    def test_every_change_of_state_in_a_picture_is_a_legal_one(self) -> None:
        """The edges come from the event logs, and the chapter allows each of them."""
        seen: set[tuple[str, str]] = set()
        for name in ("lifecycle", "failures"):
            scene = Scene()
            experiments.GROUPS[name](scene=scene)
            edges = {(before, after) for before, after, _ in scene.transitions}
            self.assertLessEqual(edges, LEGAL)
            seen |= edges
        self.assertEqual(seen, LEGAL)

    def test_a_scene_notes_what_was_really_called(self) -> None:
        """Answers, refusals and time come from the calls; a bug passes through."""
        scene = Scene()
        self.assertEqual(scene.call("a", max, 3, 4), 4)
        with self.assertRaises(ZeroDivisionError):
            scene.call("a", divmod, 1, 0)
        scene.begin("next")
        self.assertEqual([len(events) for _, events in scene.parts], [1, 0])
        self.assertEqual((scene.parts[0][1][0].what, scene.parts[0][1][0].detail), ("max(3, 4)", "4"))
        self.assertIsNone(scene.refusal("a", max, 1, 2))


class Check(FolderTestCase):
    """`--check` names what differs."""

    def setUp(self) -> None:
        super().setUp()
        write_reports(self.folder)

    def main(self) -> tuple[int, str]:
        out = io.StringIO()
        with (
            mock.patch.object(experiments, "reports_folder", return_value=self.folder),
            contextlib.redirect_stdout(out),
        ):
            return experiments.main(["--check"]), out.getvalue()

    def test_equal_reports_are_fine(self) -> None:
        """Exit code 0, and a line that says what was compared."""
        code, out = self.main()
        self.assertEqual(code, 0)
        for name in REPORTS:
            self.assertIn(name, out)

    def test_line_ends_do_not_matter(self) -> None:
        """A checkout that turned LF into CRLF has the same text."""
        for path in self.folder.iterdir():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        self.assertEqual(self.main()[0], 0)

    def test_a_changed_figure_is_named_with_its_file_and_line(self) -> None:
        """One figure in one file: exit code 1, that file, that line, both values."""
        path = self.folder / "tool-jobs-evidence.json"
        text = path.read_text(encoding="utf-8").replace("93644", "93645")
        path.write_text(text, encoding="utf-8", newline="\n")
        line = next(number for number, row in enumerate(text.split("\n"), 1) if "93645" in row)
        code, out = self.main()
        self.assertEqual(code, 1)
        self.assertIn(f"[X] tool-jobs-evidence.json: line {line}: ", out)
        self.assertIn("93645", out)
        self.assertIn("93644", out)
        self.assertNotIn("tool-jobs-evidence.md: ", out)

    def test_missing_cut_longer_and_foreign_files_are_named(self) -> None:
        """Each in words of its own."""
        texts = {name: (self.folder / name).read_text(encoding="utf-8") for name in REPORTS}
        name = "job-events.jsonl"
        cases: dict[bytes | None, str] = {
            None: "is missing",
            b"\xff\xfe\0": "is not UTF-8",
            texts[name].encode()[:-20]: "line 6: the file has",
            (texts[name] + "{}\n").encode(): "line 7: the file has",
            texts[name].rsplit("\n", 2)[0].encode(): "the file ends",
        }
        for content, words in cases.items():
            with self.subTest(words=words):
                if content is None:
                    (self.folder / name).unlink()
                else:
                    (self.folder / name).write_bytes(content)
                found = differences(self.folder, texts)
                self.assertEqual(len(found), 1)
                self.assertTrue(found[0].startswith(f"{name}: "))
                self.assertIn(words, found[0])


class Replace(FolderTestCase):
    """All files or none."""

    def setUp(self) -> None:
        super().setUp()
        self.old = {"a": "old a", "b": "old b"}
        self.new = {"a": "new a", "b": "new b", "c": "new c"}
        for name, text in self.old.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def content(self) -> dict[str, str]:
        return {path.name: path.read_text(encoding="utf-8") for path in self.folder.iterdir()}

    def test_all_are_replaced_and_nothing_else_is_left(self) -> None:
        """New and old names; no temporary file stays."""
        replace_together(self.folder, self.new)
        self.assertEqual(self.content(), self.new)

    def test_a_failure_at_any_replacement_leaves_the_old_files(self) -> None:
        """The first, the second, the third; by the machine or by Ctrl-C."""
        real = os.replace
        new_one_first = dict(reversed(self.new.items()))
        for failing, texts in ((1, self.new), (2, self.new), (3, self.new), (2, new_one_first), (3, new_one_first)):
            for error in (OSError("disk"), KeyboardInterrupt()):
                calls = 0

                def replace(source: Any, target: Any, error: BaseException = error, failing: int = failing) -> None:
                    nonlocal calls
                    calls += 1
                    if calls == failing:
                        raise error
                    real(source, target)

                with self.subTest(failing=failing, error=error):
                    with (
                        mock.patch("chapter10.lab.evidence.files.os.replace", replace),
                        self.assertRaises(type(error)),
                    ):
                        replace_together(self.folder, texts)
                    self.assertEqual(self.content(), self.old)

    def test_a_failure_while_preparing_leaves_the_old_files(self) -> None:
        """A text that cannot be encoded is found before anything is touched."""
        with self.assertRaises(UnicodeEncodeError):
            replace_together(self.folder, {"a": "new a", "b": "\udcff"})
        self.assertEqual(self.content(), self.old)

    def test_a_run_that_fails_writes_nothing(self) -> None:
        """An experiment that breaks leaves the reports as they are."""
        broken = mock.patch.dict(experiments.GROUPS, {"failures": mock.Mock(side_effect=RuntimeError)})
        with broken, self.assertRaises(RuntimeError):
            write_reports(self.folder)
        self.assertEqual(self.content(), self.old)

    def test_a_folder_that_cannot_be_made_is_the_machines_fault(self) -> None:
        """`OSError`, which the command turns into exit code 3."""
        with self.assertRaises(OSError):
            write_reports(self.folder / "a" / "reports")
        with (
            mock.patch.object(experiments, "reports_folder", return_value=self.folder / "a" / "reports"),
            self.assertRaises(OSError),
        ):
            experiments.main(["--write"])


class Elsewhere(FolderTestCase):
    """The same bytes from any folder."""

    def test_a_copy_in_a_folder_with_a_space_and_chinese_writes_the_same_reports(self) -> None:
        """Run from that folder and from another one, under a foreign code page.

        Claims: C10-277, C10-279, C10-281.
        """
        home = self.folder / "我的 书" / "ch 10"
        shutil.copytree(TOP / "chapter10", home / "chapter10", ignore=shutil.ignore_patterns("tests", "__pycache__"))
        code = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); from chapter10.experiments import main; sys.exit(main())"
        )
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        for folder, encoding in ((home, "utf-8"), (elsewhere, "utf-8"), (home, "cp1252"), (home, "cp936")):
            with self.subTest(folder=folder.name, encoding=encoding):
                done = run_python(
                    ["-c", code, str(home), "--write"],
                    cwd=folder,
                    environment={"PYTHONPATH": "", "PYTHONIOENCODING": f"{encoding}:backslashreplace"},
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for name in REPORTS:
                    written = (home / "reports" / name).read_bytes()
                    self.assertEqual(written.decode("utf-8"), committed(name))
                shutil.rmtree(home / "reports")
        self.assertEqual(list(elsewhere.iterdir()), [])

    def test_an_installed_copy_writes_into_the_working_folder(self) -> None:
        """Beside an installed package there is no place for reports."""
        inside = Path("lib", "site-packages", "chapter10", "experiments.py")
        with mock.patch.object(experiments, "__file__", str(self.folder / inside)):
            self.assertEqual(experiments.reports_folder(), Path.cwd() / "reports")
        self.assertEqual(experiments.reports_folder(), COMMITTED)

    def test_run_all_gives_what_the_json_file_holds(self) -> None:
        """From Python as from the command."""
        self.assertEqual(run_all(), json.loads(committed("tool-jobs-evidence.json")))


if __name__ == "__main__":
    unittest.main()
