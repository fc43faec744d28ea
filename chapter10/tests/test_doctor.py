"""The doctor names what a machine lacks, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import os
import unittest
from pathlib import Path
from unittest import mock

from chapter10.database import StoreError
from chapter10.lab.reader import doctor
from chapter10.lab.reader.doctor import (
    database_finding,
    encoding_finding,
    folder_finding,
    main,
    python_finding,
    sqlite_finding,
    write_finding,
)
from chapter10.tests.programs import run_here
from chapter10.tests.support import TOP, FolderTestCase


class Findings(FolderTestCase):
    """Each condition by itself."""

    def test_python_from_3_11_up(self) -> None:
        """The version of the chapter is fine, one below is not.

        Claims: C10-002.
        """
        for version, grade in (((3, 10, 14), "lacks"), ((3, 11, 0), "fine"), ((3, 13, 1), "fine"), ((4, 0, 0), "fine")):
            with self.subTest(version=version):
                self.assertEqual(python_finding(version).grade, grade)

    def test_sqlite_has_a_least_version_and_ranges_with_a_known_fix(self) -> None:
        """Too old is missing; an old bug in WAL is worth a remark; fixed lines are fine."""
        for version, grade in (
            ((3, 33, 0), "lacks"),
            ((3, 34, 0), "note"),
            ((3, 44, 5), "note"),
            ((3, 44, 6), "fine"),
            ((3, 45, 9), "note"),
            ((3, 50, 6), "note"),
            ((3, 50, 7), "fine"),
            ((3, 51, 2), "note"),
            ((3, 51, 3), "fine"),
            ((3, 52, 0), "fine"),
        ):
            with self.subTest(version=version):
                self.assertEqual(sqlite_finding(version).grade, grade)

    def test_a_console_without_chinese_is_a_remark(self) -> None:
        """GBK and UTF-8 can show the chapter's words, a Western page cannot; nothing stops."""
        for encoding, grade in (
            ("utf-8", "fine"),
            ("cp936", "fine"),
            ("cp1252", "note"),
            (None, "note"),
            ("?", "note"),
        ):
            with self.subTest(encoding=encoding):
                self.assertEqual(encoding_finding(encoding).grade, grade)

    def test_the_folder_is_the_one_that_contains_chapter10(self) -> None:
        """Elsewhere the commands do not find the package."""
        self.assertEqual(folder_finding(TOP).grade, "fine")
        self.assertEqual(folder_finding(self.folder).grade, "note")

    def test_what_is_made_for_a_test_is_removed(self) -> None:
        """Neither a folder nor a file nor a database stays; a folder that was there stays."""
        self.assertEqual(write_finding(self.folder / "my_work").grade, "fine")
        self.assertEqual(database_finding(self.folder).grade, "fine")
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertEqual(write_finding(self.folder).grade, "fine")
        self.assertTrue(self.folder.is_dir())

    def test_a_place_that_cannot_be_written_is_missing_with_the_reason(self) -> None:
        """A file stands where the folder should be."""
        blocked = self.folder / "file"
        blocked.write_text("x", encoding="utf-8")
        for finding in (write_finding(blocked / "my_work"), database_finding(blocked)):
            self.assertEqual(finding.grade, "lacks")
            self.assertNotEqual(finding.text, "")

    def test_a_store_that_fails_is_missing_with_its_reason(self) -> None:
        """A full disk is the machine's, not the reader's."""
        failing = mock.patch.object(doctor, "JobStore", side_effect=StoreError("store_unavailable", "the disk is full"))
        with failing:
            finding = database_finding(self.folder)
        self.assertEqual(finding.grade, "lacks")
        self.assertIn("the disk is full", finding.text)


class Command(FolderTestCase):
    """`python -m chapter10 doctor`."""

    def test_this_machine_is_fit(self) -> None:
        """Exit code 0, six conditions, in both languages."""
        for language, words in (("zh", "这台机器什么都不缺"), ("en", "lacks nothing")):
            work = {"CHAPTER10_WORK": str(self.folder / "my_work")}
            with contextlib.chdir(TOP), mock.patch.dict(os.environ, work):
                ended = run_here(["chapter10.lab.reader.doctor", "--lang", language])
            self.assertEqual((ended.code, ended.errors), (0, ""))
            self.assertIn(words, ended.out)
            self.assertEqual(sum(line.startswith("[") for line in ended.out.splitlines()), 7)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_missing_condition_is_exit_code_3(self) -> None:
        """The condition is named, and the last line counts."""
        blocked = self.folder / "file"
        blocked.write_text("x", encoding="utf-8")
        out = io.StringIO()
        environment = mock.patch.dict(os.environ, {"CHAPTER10_WORK": str(Path(blocked, "my_work"))})
        with environment, contextlib.redirect_stdout(out):
            self.assertEqual(main(["--lang", "en"]), 3)
        self.assertIn("[X]  my_work", out.getvalue())
        self.assertIn("1 conditions are not met", out.getvalue())


if __name__ == "__main__":
    unittest.main()
