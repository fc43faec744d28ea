"""Whether the tests that name a claim prove it: the command, one true proof, and one that proves nothing."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from functools import partial
from unittest import mock

from chapter10.lab.histories.guards import GUARDS, guard_named, mark_of
from chapter10.lab.proof import proofs as command
from chapter10.lab.proof.mutants import Tree
from chapter10.lab.proof.proofs import Proof, main, proofs, prove, without
from chapter10.tests.shared import claim_map
from chapter10.tests.support import TOP, FolderTestCase, at_once


class Proving(FolderTestCase):
    """A fault, the tests that name its claim, and what comes of both."""

    def test_every_fault_with_a_claim_still_has_its_place_and_tests(self) -> None:
        """A fault that cannot be put in any more, or a claim that lost its tests, proves nothing."""
        found = list(proofs(claim_map()))
        self.assertGreaterEqual(len(found), 25)
        for proof in found:
            with self.subTest(claim=proof.claim, fault=proof.mutant.name):
                self.assertTrue(proof.tests)

    def test_the_tests_of_a_claim_notice_its_fault_and_others_do_not(self) -> None:
        """A claim that keeps the attempt at a new claim is noticed; by tests of another claim it is not.

        Claims: C10-297.
        """
        found = {proof.claim: proof for proof in proofs(claim_map())}
        proof = replace(found["C10-227"], tests=("test_jobs_worker.Fencing",))
        elsewhere = replace(proof, tests=("test_jobs.Keys.test_owners_do_not_share_keys",))
        broken = replace(proof, tests=("test_jobs.Keys.no_such_test",))
        untested = replace(proof, tests=())

        def proved(name: str, *wanted: Proof) -> list[str]:
            folder = self.folder / name
            folder.mkdir()
            tree = Tree(folder, compiled=False)
            return [prove(tree, one) for one in wanted]

        found_wrong = at_once(partial(proved, "a", proof, untested), partial(proved, "b", elsewhere, broken))
        self.assertEqual(
            [
                ["", "no test names the claim"],
                ["no test that names it notices the fault", "the tests that name it fail without the fault"],
            ],
            found_wrong,
        )

    def test_a_guard_is_taken_out_at_its_mark(self) -> None:
        """The condition of an `if` is False; where there is none, what the entry has instead stands in the line."""
        for name, line in (
            ("stale_attempt.finish", "            if False:  # guard: stale_attempt"),
            ("lease_within_deadline.renew", "            end = moment + lease  # guard: lease_within_deadline"),
        ):
            mark, fault = mark_of(guard_named(name)), without(guard_named(name))
            text = (TOP / "chapter10" / mark.path).read_text(encoding="utf-8")
            before, after = text.splitlines(), fault.apply(text).splitlines()
            changed = [number for number, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]]
            self.assertEqual((changed, after[mark.line - 1]), ([mark.line], line))

    def test_a_claim_of_the_job_store_has_a_fault_wherever_a_guard_names_it(self) -> None:
        """The first guard of a claim that no written fault names."""
        found = {proof.claim: proof.mutant.name for proof in proofs(claim_map())}
        self.assertEqual({claim for guard in GUARDS for claim in guard.claims} - set(found), set())
        self.assertEqual(found["C10-231"], "without lease_expired.finish")

    def test_a_claim_without_a_fault_is_a_mistake_of_usage(self) -> None:
        """Exit code 2."""
        with (
            contextlib.redirect_stderr(io.StringIO()),
            mock.patch.object(command, "read_map", claim_map),
            self.assertRaises(SystemExit) as left,
        ):
            main(["--claim", "C10-001"])
        self.assertEqual(left.exception.code, 2)
