"""What several test modules look at and nobody changes: computed once in a run of the suite.

A test about a second run, another folder or another process computes anew what it compares with these.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from chapter10.experiments import run_all
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.proof.claims import Map, read_map
from chapter10.lab.reader import companion_experiments
from chapter10.lab.reader.companion_experiments import GROUPS
from chapter10.tests.syntax import parsed

__all__ = ["chapter_evidence", "claim_map", "companion_run", "companions_run"]


@cache
def chapter_evidence() -> dict[str, Any]:
    """The evidence of one run of the chapter's five groups; to be looked at and not written to."""
    return run_all()


@cache
def companion_run(group: str) -> tuple[dict[str, Any], Scene]:
    """The figures and the scene of one run of a group of the companions; to be looked at and not written to."""
    scene = Scene()
    return GROUPS[group].run(scene), scene


def companions_run() -> tuple[dict[str, Any], dict[str, Scene]]:
    """The evidence of all groups of the companions with their scenes, each as it was computed once; a new dictionary.

    It stands in for `companion_experiments._run` where a test looks at what is made of a run.
    """
    runs = {group: companion_run(group) for group in GROUPS}
    figures = {group: found for group, (found, _) in runs.items()}
    return companion_experiments._evidence(figures), {group: scene for group, (_, scene) in runs.items()}


@cache
def claim_map() -> Map:
    """The claims of this tree with their promises, tests and breakers."""
    return read_map(parse=parsed)
