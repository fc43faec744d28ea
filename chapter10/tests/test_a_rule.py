"""What a changed rule breaks first; the name of this module puts it before all others."""

from __future__ import annotations

import re
import unittest

from chapter10.companions.work.living_store import LivingStore
from chapter10.experiments import reports_folder
from chapter10.jobs import JobStore
from chapter10.lab.histories.guards import GUARDS, MarkError, mark_of, marks


class ARule(unittest.TestCase):
    """A line of a store that guards something, and the entry that says what."""

    def test_every_guard_has_its_mark_and_every_mark_its_guard(self) -> None:
        """Whoever drops or adds a condition reads here which one, what it is for, its page, and where to go on."""
        wrong = []
        page = (reports_folder() / "guards.md").read_text(encoding="utf-8")
        for guard in GUARDS:
            try:
                mark_of(guard)
            except MarkError as lost:
                row = re.search(rf"^\| \[{guard.name}\]\((\S+)\) .* \| (J\d+) \|$", page, re.MULTILINE)
                wrong.append(f"{lost}. Without it {row[2]} breaks: reports/guards.md{row[1]}" if row else str(lost))
        for name in sorted({*marks(JobStore), *marks(LivingStore)} - {guard.name for guard in GUARDS}):
            wrong.append(f"mark {name}: lab/histories/guards.py does not say what it is for: docs/changing-a-rule.md")
        if wrong:
            self.fail("\n".join(wrong))
