"""What several test modules look at and nobody changes: computed once in a run of the suite.

A test about a second run, another folder or another process computes anew what it compares with these.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from chapter10.experiments import run_all
from chapter10.lab.claims import Map, read_map
from chapter10.tests.syntax import parsed

__all__ = ["chapter_evidence", "claim_map"]


@cache
def chapter_evidence() -> dict[str, Any]:
    """The evidence of one run of the chapter's five groups; to be looked at and not written to."""
    return run_all()


@cache
def claim_map() -> Map:
    """The claims of this tree with their promises, tests and breakers."""
    return read_map(parse=parsed)
