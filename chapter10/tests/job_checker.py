"""The checker of the job store, where the tests look for it; a chaos run needs it without the tests."""

from __future__ import annotations

from chapter10.lab.histories.job_checker import Contents, contents, violations

__all__ = ["Contents", "contents", "violations"]
