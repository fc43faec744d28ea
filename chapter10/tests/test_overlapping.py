"""Tests that run at the same time are told of as those that come one after the other."""

from __future__ import annotations

import threading
import unittest

from chapter10.tests.overlapping import overlapping


def waiting() -> type[unittest.TestCase]:
    """Return tests that no runner discovers, since some of them fail."""

    class Waiting(unittest.TestCase):
        meet = threading.Barrier(2)

        def test_a_waits_for_b(self) -> None:
            """It passes only while the other one runs."""
            self.meet.wait(60)

        def test_b_waits_for_a(self) -> None:
            """And the other way round."""
            self.meet.wait(60)

        def test_c_fails(self) -> None:
            """An ordinary failure."""
            self.assertEqual(1, 2)

        def test_d_fails_in_a_part(self) -> None:
            """One of two."""
            for number in (1, 2):
                with self.subTest(number=number):
                    self.assertEqual(1, number)

        def test_e_breaks(self) -> None:
            """An error that nobody expects."""
            raise KeyError

        def test_f_is_skipped(self) -> None:
            """With its reason."""
            self.skipTest("no room")

    return Waiting


class TheRunner(unittest.TestCase):
    """What a result is told."""

    def ended(self, result: unittest.TestResult) -> unittest.TestResult:
        loader = unittest.TestLoader()
        kind = waiting()
        overlapping(kind)(loader, loader.loadTestsFromTestCase(kind), None).run(result)
        return result

    def test_each_outcome_arrives_and_tests_really_overlap(self) -> None:
        """Failures, parts, errors and skips stand where they would; two tests that need each other pass."""
        result = self.ended(unittest.TestResult())
        self.assertEqual(6, result.testsRun)
        failed = [str(test).split()[0] for test, _ in result.failures]
        self.assertEqual(["test_c_fails", "test_d_fails_in_a_part"], failed)
        self.assertEqual(["test_e_breaks"], [str(test).split()[0] for test, _ in result.errors])
        self.assertEqual(["no room"], [reason for _, reason in result.skipped])

    def test_a_run_that_stops_at_the_first_failure_does(self) -> None:
        """What comes after it is not told any more."""
        result = unittest.TestResult()
        result.failfast = True
        self.assertEqual((3, 1), (self.ended(result).testsRun, len(result.failures)))
