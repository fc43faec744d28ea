"""The same result on machines that are not ours: code pages, folder names, line ends, old Pythons, no network.

Each scene stands for a break that readers of other books have met: a console that lacks a character,
a path with a space, a checkout with CRLF, a Python that is too old, a machine without network.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import unittest
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from chapter10.tests.overlapping import overlapping
from chapter10.tests.programs import run_here
from chapter10.tests.support import ALONE, CHILD_SECONDS, TOP, FolderTestCase, at_once, run_python
from chapter10.tests.syntax import IGNORED_FOLDERS, PACKAGE

ENCODINGS: Final = ("cp936", "cp1252", "ascii", "utf-8")

PROGRAMS: Final[tuple[tuple[tuple[str, ...], int], ...]] = (
    (("chapter10",), 0),
    (("chapter10", "--no-such-option"), 2),
    (("chapter10.quickstart",), 0),
    (("chapter10.experiments", "--group", "catalog"), 0),
    (("chapter10.experiments", "--group", "boundaries"), 0),
    (("chapter10.experiments", "--group", "lifecycle"), 0),
    (("chapter10.experiments", "--group", "catalog", "--query", "报表 导出"), 0),
    (("chapter10.experiments", "--group", "火星"), 2),
    (("chapter10.experiments", "--check"), 0),
    (("chapter10.lab.histories.explore", "--guards"), 0),
)
"""What a reader types after `python -m`, and the exit code: 0 fine, 1 wrong, 2 usage, 3 the machine."""

GROUPS: Final = ("catalog", "boundaries", "concurrency", "lifecycle", "failures")

OLD_PYTHONS: Final = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10")
"""Versions that the guard must be able to turn away with one line."""

OUTSIDE: Final = ("192.0.2.1", 9)
"""An address that belongs to nobody (RFC 5737)."""


def _no_network(event: str, arguments: tuple[object, ...]) -> None:
    if event in {"socket.getaddrinfo", "socket.sendto", "urllib.Request"}:
        raise RuntimeError(f"the network was used: {event}")
    if event == "socket.connect":
        address = arguments[1]
        # Windows has no socket pairs, so an event loop there makes one by connecting to itself.
        loops_back = isinstance(address, tuple) and address[0] in {"127.0.0.1", "::1"}
        if not (loops_back and sys.platform == "win32"):
            raise RuntimeError("the network was used: socket.connect")


sys.addaudithook(_no_network)  # from the import of this module on, for the whole suite


def program(arguments: tuple[str, ...], **keywords: object) -> subprocess.CompletedProcess[str]:
    return run_python(["-m", *arguments], **keywords)  # type: ignore[arg-type]


def old_pythons() -> Iterator[tuple[str, str]]:
    """The Pythons that are too old, of those that are on this machine: version and program."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in OLD_PYTHONS:
        homes = sorted(versions.glob(f"{version}.*/bin")) if versions.is_dir() else []
        for folder in [*homes, *folders]:
            candidate = folder / f"python{version}"
            if candidate.is_file() and os.access(candidate, os.X_OK) and "shims" not in folder.parts:
                yield version, str(candidate)
                break


class OtherConsoles(unittest.TestCase):
    """A console that lacks our characters changes neither the exit code nor the meaning."""

    def test_every_program_keeps_its_exit_code_under_every_code_page(self) -> None:
        """No code page makes a program fail or show a traceback; one of the programs is a real one in each."""
        for encoding in ENCODINGS:
            for arguments, expected in PROGRAMS:
                with self.subTest(encoding=encoding, arguments=arguments):
                    ended = run_here(arguments, encoding=encoding)
                    self.assertEqual(ended.code, expected, ended.errors)
                    self.assertNotIn("Traceback", ended.errors)
        words = ("chapter10.experiments", "--group", "火星")
        children = at_once(
            *(partial(program, words, environment={"PYTHONIOENCODING": encoding}) for encoding in ENCODINGS)
        )
        for encoding, child in zip(ENCODINGS, children, strict=True):
            with self.subTest(encoding=encoding):
                self.assertEqual(child.returncode, 2, child.stderr)
                self.assertNotIn("Traceback", child.stderr)

    def test_evidence_says_the_same_in_every_code_page(self) -> None:
        """What a group prints is JSON that reads back as the same value, whatever the console can show."""
        expected = json.loads(run_here(("chapter10.experiments", "--group", "catalog")).out)

        def printed(encoding: str) -> bytes:
            return subprocess.run(
                [sys.executable, *ALONE, "-m", "chapter10.experiments", "--group", "catalog"],
                cwd=TOP,
                env={**os.environ, "PYTHONIOENCODING": encoding},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CHILD_SECONDS,
                check=True,
            ).stdout

        for encoding, said in zip(ENCODINGS, at_once(*(partial(printed, e) for e in ENCODINGS)), strict=True):
            with self.subTest(encoding=encoding):
                self.assertEqual(json.loads(said.decode(encoding)), expected)

    def test_a_reader_who_leaves_early_breaks_nothing(self) -> None:
        """A pager that closes the pipe ends the program without a traceback."""
        with subprocess.Popen(
            [sys.executable, *ALONE, "-m", "chapter10.experiments"],
            cwd=TOP,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None and child.stderr is not None
            child.stdout.close()
            said = child.stderr.read()
            child.wait(CHILD_SECONDS)
        self.assertEqual(said, b"")
        self.assertEqual(child.returncode, 0)


class OtherFolders(FolderTestCase):
    """The package works from where a reader has put it."""

    def setUp(self) -> None:
        super().setUp()
        self.home = self.folder / "我的 书" / "ch 10"
        self.home.mkdir(parents=True)
        ignored = shutil.ignore_patterns(*IGNORED_FOLDERS)
        shutil.copytree(PACKAGE, self.home / "chapter10", ignore=ignored)
        shutil.copytree(TOP / "reports", self.home / "reports", ignore=ignored)

    def run_there(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return program(arguments, cwd=self.home, environment={"PYTHONPATH": str(self.home)})

    def test_a_group_and_the_check_run_in_a_folder_with_a_space_and_chinese_characters(self) -> None:
        """The path of the package is no part of any result."""
        here = run_here(("chapter10.experiments", "--group", "lifecycle"))
        there, checked = at_once(
            partial(self.run_there, "chapter10.experiments", "--group", "lifecycle"),
            partial(self.run_there, "chapter10.experiments", "--check"),
        )
        self.assertEqual((there.returncode, there.stdout), (0, here.out), there.stderr)
        self.assertEqual(checked.returncode, 0)

    def test_evidence_that_git_gave_crlf_still_agrees(self) -> None:
        """Line ends of a checkout are no difference; a changed word is one."""
        for path in (self.home / "reports").glob("*.*"):
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        self.assertEqual(self.run_there("chapter10.experiments", "--check").returncode, 0)
        evidence = self.home / "reports" / "tool-jobs-evidence.json"
        evidence.write_bytes(evidence.read_bytes().replace(b"93644", b"93645"))
        child = self.run_there("chapter10.experiments", "--check")
        self.assertEqual(child.returncode, 1)
        self.assertIn("tool-jobs-evidence.json", child.stdout + child.stderr)

    def test_written_evidence_has_no_cr_and_the_committed_bytes(self) -> None:
        """`--write` in another folder gives the files that are committed here."""
        for path in (self.home / "reports").glob("*.*"):
            path.unlink()
        self.assertEqual(self.run_there("chapter10.experiments", "--write").returncode, 0)
        written = sorted((self.home / "reports").glob("*.*"))
        self.assertLessEqual(
            {"job-events.jsonl", "tool-jobs-evidence.json", "tool-jobs-evidence.md"}, {path.name for path in written}
        )
        for path in written:
            with self.subTest(report=path.name):
                self.assertNotIn(b"\r", path.read_bytes())
                self.assertEqual(path.read_bytes(), (TOP / "reports" / path.name).read_bytes())


class NoMachine(FolderTestCase):
    """Nothing of the machine is needed: no variable, no network, no key."""

    def test_every_group_runs_in_an_emptied_environment_without_network(self) -> None:
        """No variable is set, and every attempt to open a connection would raise.

        Claims: C10-004.
        """
        code = f"import json, sys\nsys.path.insert(0, {str(TOP)!r})\nimport chapter10.tests.test_environment\n"
        code += "from chapter10.experiments import run_all\nprint(json.dumps(run_all()))\n"
        empty = {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if "SYSTEMROOT" in os.environ else {}
        child = subprocess.run(
            [sys.executable, *ALONE, "-c", code],
            cwd=self.folder,
            env=empty,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=CHILD_SECONDS,
            check=False,
        )
        self.assertEqual(child.returncode, 0, child.stderr)
        evidence = json.loads(child.stdout)
        self.assertEqual(sorted(evidence["groups"]), sorted(GROUPS))
        self.assertEqual((evidence["model_quality"], evidence["provider_tokens"]), (None, None))

    def test_the_suite_itself_cannot_reach_the_network(self) -> None:
        """A test that tried would fail here and now, with a name.

        Claims: C10-004.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            self.assertRaisesRegex(RuntimeError, "the network was used", connection.connect, OUTSIDE)

    def test_a_run_leaves_nothing_behind(self) -> None:
        """The five groups write neither into the folder of the reader nor into the temporary folder."""
        temporary = self.folder / "temporary"
        temporary.mkdir()
        names = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
        environment = {**names, "PYTHONDONTWRITEBYTECODE": "1"}
        child = program(("chapter10.experiments",), cwd=self.folder, environment=environment)
        self.assertEqual(child.returncode, 0, child.stderr)
        self.assertEqual(list(json.loads(child.stdout)["groups"]), list(GROUPS))
        self.assertEqual([path.name for path in self.folder.rglob("*")], ["temporary"])


class OldPythons(unittest.TestCase):
    """A Python that is too old says so in one line and exits with 3."""

    def test_the_guard_of_this_python_lets_it_pass(self) -> None:
        """The Pythons that the chapter names can import the package and have `TaskGroup`.

        Claims: C10-002.
        """
        child = run_python(["-c", "import asyncio, chapter10; print(asyncio.TaskGroup.__name__)"])
        self.assertEqual((child.returncode, child.stdout.strip(), child.stderr), (0, "TaskGroup", ""))

    def test_a_python_below_3_11_gets_one_line_and_exit_code_3(self) -> None:
        """The guard stands in syntax that every old Python reads.

        Claims: C10-002.
        """
        found = list(old_pythons())
        if not found:
            self.skipTest("no Python below 3.11 on this machine")

        def run(python: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [python, "-B", "-m", "chapter10"],
                cwd=TOP,
                env={**os.environ, "PYTHONPATH": str(TOP)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                timeout=CHILD_SECONDS,
                check=False,
            )

        children = at_once(*(partial(run, python) for _, python in found))
        for (version, _), child in zip(found, children, strict=True):
            with self.subTest(python=version):
                self.assertEqual(child.returncode, 3, child.stderr)
                self.assertEqual(child.stdout, "")
                self.assertEqual(child.stderr, f"chapter10 needs Python 3.11 or later; this is {version}.\n")


load_tests = overlapping(OtherFolders, NoMachine, OldPythons)
