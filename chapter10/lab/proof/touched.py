"""Which test runs which line: so that a fault on a line is first shown to the tests that come by.

    python -m chapter10.lab.proof.touched OUT test_jobs test_canonical

runs these test modules in one process and writes to OUT, as JSON, for each line of the package the tests that ran it,
those first that run the fewest lines: `{"jobs": {"120": ["test_jobs.Claims.test_...", ...]}}`.
Exit code: 0 if all tests passed.

It needs `sys.monitoring`, so Python 3.12. Lines that run only in another process, at an import or while a class is set
up stand under no test: whoever picks tests by this runs the whole modules where nothing noticed.
Source: claim C10-277.
"""

from __future__ import annotations

import json
import sys
import unittest
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Final

__all__ = ["POSSIBLE", "main"]

POSSIBLE: Final = sys.version_info >= (3, 12)
"""Whether this Python can tell."""
_PACKAGE: Final = Path(__file__).resolve().parents[2]


class _Recorder(unittest.TextTestResult):
    """Notes the lines of each test."""

    lines: set[tuple[str, int]]
    seen: dict[str, set[tuple[str, int]]]

    def startTestRun(self) -> None:
        super().startTestRun()
        self.lines, self.seen = set(), {}
        monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - not there before Python 3.12
        tool, line = monitoring.COVERAGE_ID, monitoring.events.LINE

        def note(code: CodeType, number: int) -> Any:
            self.lines.add((code.co_filename, number))
            return monitoring.DISABLE

        monitoring.use_tool_id(tool, "touched")
        monitoring.register_callback(tool, line, note)
        monitoring.set_events(tool, line)
        self._again = monitoring.restart_events

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.lines.clear()
        self._again()

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.seen[test.id().removeprefix("chapter10.tests.")] = set(self.lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and write what they touched. Raises `RuntimeError` on a Python that cannot tell."""
    if not POSSIBLE:
        raise RuntimeError("sys.monitoring is there from Python 3.12 on")
    out, *names = sys.argv[1:] if arguments is None else arguments
    suite = unittest.defaultTestLoader.loadTestsFromNames([f"chapter10.tests.{name}" for name in names])
    kind: Any = _Recorder
    result: Any = unittest.TextTestRunner(resultclass=kind).run(suite)
    lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test in sorted(result.seen, key=lambda test: (len(result.seen[test]), test)):
        for file, number in result.seen[test]:
            path = Path(file)
            if path.is_relative_to(_PACKAGE) and not path.is_relative_to(_PACKAGE / "tests"):
                lines[".".join(path.relative_to(_PACKAGE).with_suffix("").parts)][number].append(test)
    Path(out).write_text(json.dumps(lines), encoding="utf-8", newline="\n")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
