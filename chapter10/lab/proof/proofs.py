"""Do the tests that name a claim really prove it? `python -m chapter10 proofs`.

    python -m chapter10 proofs                     every claim that a fault of mutants.toml or a guard names
    python -m chapter10 proofs --claim C10-227     only this one

A test may name a claim in its docstring and pass whatever the code does. So each fault whose name begins with
claim ids is put into a copy of the tree, and only the tests that name the claim run there: at least one must
fail. Without the fault they pass; that is looked at first. A claim that only a guard of the job store names is broken
by taking that guard out, at its mark. It takes some minutes and nothing here is changed.

What it does not do: it says nothing about claims without such a fault.
Exit codes: 0 each claim was proved, 1 a claim was not, 2 usage. Source: claim C10-297.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chapter10.lab.console.textio import EXIT_FINE, EXIT_USAGE, EXIT_WRONG, main_guard
from chapter10.lab.histories.guards import GUARDS, Guard, mark_of
from chapter10.lab.proof.claims import Map, ids_in, read_map
from chapter10.lab.proof.mutants import Tree
from chapter10.lab.proof.mutations import Mutant, read_list, written

__all__ = ["Proof", "main", "proofs", "prove", "without"]

_PACKAGE: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Proof:
    """What is to be shown: with the fault `mutant`, one of `tests` (below `chapter10.tests`) fails for `claim`."""

    claim: str
    mutant: Mutant
    tests: tuple[str, ...]


def proofs(found: Map) -> Iterator[Proof]:
    """Yield each claim of each fault whose name begins with claim ids, with the tests that name the claim.

    After them each other claim of a guard, with the first guard that names it. Raises `ValueError` for a fault whose
    place has moved, or a mark that is gone.
    """

    def tests(claim: str) -> tuple[str, ...]:
        places = found.proved.get(claim, ())
        return tuple(f"{place.module.removeprefix('tests.')}.{place.name}" for place in places)

    seen = set()
    for entry in read_list().entries:
        text = _PACKAGE.joinpath(*entry["module"].split(".")).with_suffix(".py").read_text(encoding="utf-8")
        for claim in ids_in(entry["name"].partition(".")[0]):
            seen.add(claim)
            yield Proof(claim, written(entry, text), tests(claim))
    for guard in GUARDS:
        for claim in guard.claims:
            if claim not in seen:
                seen.add(claim)
                yield Proof(claim, without(guard), tests(claim))


def without(guard: Guard) -> Mutant:
    """Return the fault that takes a guard out at its mark: its condition is False, or another line stands there."""
    mark = mark_of(guard)
    text = (_PACKAGE / mark.path).read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: mark.line - 1])) + lines[mark.line - 1].index(mark.text)
    new = f"{mark.text.partition('if ')[0]}if False:" if mark.text.endswith(":") else guard.instead
    module = mark.path.removesuffix(".py").replace("/", ".")
    return Mutant(f"without {guard.name}", module, "written", mark.line, start, start + len(mark.text), new)


def prove(tree: Tree, proof: Proof) -> str:
    """Return what is wrong with a proof, or nothing; `tree` is a copy of the sources as they are."""
    if not proof.tests:
        return "no test names the claim"
    if tree.test(proof.tests).ending != "survived":
        return "the tests that name it fail without the fault"
    if tree.verdict(proof.mutant, proof.tests).ending == "survived":
        return "no test that names it notices the fault"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 proofs",
        description="Do the tests that name a claim really prove it?",
        allow_abbrev=False,
    )
    parser.add_argument("--claim", metavar="ID", help="only this claim, such as C10-227")
    options = parser.parse_args(arguments)
    if not (_PACKAGE / "tests").is_dir():
        sys.stderr.write("this copy has no tests; run it in the repository\n")
        return EXIT_USAGE
    wanted = [proof for proof in proofs(read_map()) if options.claim in (None, proof.claim)]
    if not wanted:
        parser.error("no fault of mutants.toml and no guard names that claim")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        tree = Tree(Path(folder), compiled=len(wanted) > 2)
        for proof in wanted:
            problem = prove(tree, proof)
            wrong += bool(problem)
            mark = "[X] " if problem else "[OK]"
            print(f"{mark} {proof.claim}  {proof.mutant.name}: {problem or 'a test that names it fails'}", flush=True)
    return EXIT_WRONG if wrong else EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
