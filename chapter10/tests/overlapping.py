"""Tests that mostly wait for processes of their own, at the same time: `load_tests = overlapping(Waiting)` in a module.

Each test runs in a thread as it would by itself, from its `setUp` to its last clean-up, and the runner is told of it
in the order of the tests. Such tests share nothing: no fixture of a class or module, no patch that another one would
see, no stream that another one looks at. A test that is asked for by its name or by its class runs alone.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

__all__ = ["overlapping"]

THREADS: Final = 4
_TOLD: Final = (
    "startTest", "stopTest", "addSuccess", "addError", "addFailure", "addSkip", "addExpectedFailure",
    "addUnexpectedSuccess", "addSubTest", "addDuration",
)  # fmt: skip


def overlapping(*kinds: type[unittest.TestCase]) -> Callable[..., unittest.TestSuite]:
    """Return a `load_tests` with which the tests of these classes run at once, after the other tests of the module."""

    def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
        found = list(_each(tests))
        others = unittest.TestSuite(test for test in found if not isinstance(test, kinds))
        waiting = _Overlapping(test for test in found if isinstance(test, kinds))
        return unittest.TestSuite([others, waiting])

    return load_tests


class _Overlapping(unittest.TestSuite):
    def run(self, result: unittest.TestResult, debug: bool = False) -> unittest.TestResult:
        with ThreadPoolExecutor(THREADS) as pool:
            for record in pool.map(_recorded, _each(self)):
                if result.shouldStop:
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
                for name, arguments in record:
                    if hasattr(result, name):  # not every version tells everything
                        getattr(result, name)(*arguments)
        return result


class _Record(unittest.TestResult):
    """Keeps what a test says to its result, to be said again."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, tuple[Any, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in _TOLD:
            return super().__getattribute__(name)
        told = self.told
        return lambda *arguments: told.append((name, arguments))


def _recorded(test: unittest.TestCase) -> list[tuple[str, tuple[Any, ...]]]:
    record = _Record()
    test.run(record)
    return record.told


def _each(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _each(test)
        else:
            yield test
