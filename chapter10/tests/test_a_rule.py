"""What a changed rule breaks first; the name of this module puts it before all others."""

from __future__ import annotations

import re
import unittest

from chapter10.companions.work.living_store import LivingStore
from chapter10.experiments import reports_folder
from chapter10.jobs import JobStore
from chapter10.lab.histories.guards import GUARDS, MarkError, mark_of, marks
from chapter10.tests.support import TOP


class ARule(unittest.TestCase):
    """A line of a store that guards something, and the row that says what."""

    def test_every_guard_has_its_mark_and_every_mark_its_guard(self) -> None:
        """Whoever drops or adds a condition reads here which one, what it is for, its page, and where to go on."""
        page = (reports_folder() / "guards.md").read_text(encoding="utf-8")
        wrong, found = [], set()
        for guard in GUARDS:
            try:
                found.add(mark_of(guard)[:2])
            except MarkError as lost:
                row = re.search(rf"^\| \[{guard.name}\]\((\S+)\) .* \| (J\d+) \|$", page, re.MULTILINE)
                wrong.append(f"{lost}. Without it {row[2]} breaks: reports/guards.md{row[1]}" if row else str(lost))
        for name in sorted({*marks(JobStore), *marks(LivingStore)} - {guard.name for guard in GUARDS}):
            wrong.append(f"mark {name}: no row of lab/histories/guards.py says what for: docs/changing-a-rule.md")
        for path in ("jobs.py", "companions/work/living_store.py"):
            lines = (TOP / "chapter10" / path).read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                if "# guard:" in line and (path, number) not in found:
                    wrong.append(f"{path}:{number}: no guard of a verb is found here: docs/changing-a-rule.md")
        if wrong:
            self.fail("\n".join(wrong))
