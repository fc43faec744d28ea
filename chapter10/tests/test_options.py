"""Every option of every command has a test that shows what it does, and one that is lost is missed."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.jobs import JobStore
from chapter10.lab.benchmarks import benchmark, recall
from chapter10.lab.exercises import __main__ as exercises
from chapter10.lab.guessing import predict, questions
from chapter10.lab.histories import explore, simulate
from chapter10.lab.histories.world import CHAPTER_VERBS
from chapter10.lab.processes import chaos
from chapter10.lab.proof import claim_map, fuzz, mutants, proofs
from chapter10.lab.proof import options as command
from chapter10.lab.proof.mutants import Tree
from chapter10.lab.proof.mutations import read_list
from chapter10.lab.proof.options import every_option, fault, programs, read_table
from chapter10.lab.reader import companion_experiments, site
from chapter10.lab.scheduler import page
from chapter10.tests.support import FolderTestCase


class TheTable(unittest.TestCase):
    """`options.toml` beside the commands as they are."""

    def test_every_option_has_a_row_and_every_row_an_option(self) -> None:
        """Whoever adds an option says which test shows what it changes."""
        known = every_option()
        rows = [(row, option) for row, tests in read_table().items() for option in tests]
        covered = {(prog, option) for row, option in rows for prog in programs(row, option, known)}
        self.assertEqual({(prog, option) for prog, options in known.items() for option in options}, covered)
        self.assertEqual([], [row for row in rows if not programs(*row, known)])

    def test_every_test_of_a_row_is_there(self) -> None:
        """A test that was renamed is missed here, and not only when all options are tried."""
        names = sorted({f"chapter10.tests.{test}" for tests in read_table().values() for test in tests.values()})
        loader = unittest.TestLoader()
        for name in names:
            loader.loadTestsFromName(name)
        self.assertEqual([], loader.errors)


class TheCommand(FolderTestCase):
    """`python -m chapter10.lab.proof.options`."""

    def test_a_lost_option_is_missed_by_its_test(self) -> None:
        """In a real copy: with the default instead of what was asked for, the test of the row fails."""
        known = every_option()
        row, option = "python -m chapter10 jobs list", "--state"
        test = read_table()[row][option]
        tree = Tree(self.folder, compiled=False)
        text = tree.text("__init__")
        self.assertEqual("survived", tree.test([test]).ending)
        self.assertEqual("noticed", tree.verdict(fault([row], known[row][option], text), [test]).ending)
        other = fault(["python -m chapter10 jobs top"], known[row][option], text)
        self.assertEqual("survived", tree.verdict(other, [test]).ending)

    def test_it_lists_the_rows_of_one_command(self) -> None:
        """Without a run; a name that no command has is a mistake in the command."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(0, command.main(["--list", "--command", "prune"]))
        self.assertTrue(all(" prune " in line for line in out.getvalue().splitlines()), out.getvalue())
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            command.main(["--list", "--command", "moon"])


class Reached(Exception):
    """The place that a command hands its options on to."""


class TheLab(unittest.TestCase):
    """Commands that take long are looked at where they begin: what was asked for has come that far."""

    def setUp(self) -> None:
        for stream in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            self.enterContext(stream(io.StringIO()))

    def reached(self, main: Callable[[list[str]], int], line: str, place: Any, name: str) -> Any:
        """Run a command as far as the function `name` of `place` and return the call of it."""
        with mock.patch.object(place, name, side_effect=Reached) as met, self.assertRaises(Reached):
            main(line.split())
        return met.call_args_list[0]

    def test_the_world_that_is_explored_is_the_one_that_was_asked_for(self) -> None:
        """Its jobs, workers, time and attempts, and whose store."""
        line = "--jobs 2 --workers 1 --until 7 --attempts 1 --chapter"
        world, store, _ = self.reached(explore.main, line, explore, "_show_all").args
        self.assertEqual((world.jobs, world.workers, world.until, world.attempts), (2, 1, 7, 1))
        self.assertEqual((store, world.verbs), (JobStore, CHAPTER_VERBS))

    def test_a_history_is_of_the_seed_and_the_store_that_were_asked_for(self) -> None:
        """For the simulator, the chaos run and the calls with bad input."""
        made = self.reached(simulate.main, "--seed 5 --steps 9 --chapter", simulate, "history")
        self.assertEqual(made.args, (5, 9, JobStore))
        ran = self.reached(chaos.main, "--seconds 3 --workers 2 --seed 4", chaos, "run_chaos")
        self.assertEqual(ran.kwargs, {"seconds": 3, "workers": 2, "seed": 4})
        called = self.reached(fuzz.main, "--seed 6 --calls 2 --subject database", fuzz, "fuzz")
        self.assertEqual(called.args, (6, 2, ["database"]))

    def test_faults_are_tried_as_was_asked(self) -> None:
        """Those of an operator or of a name; in so many copies, for so many seconds; on the page or not."""
        with (
            mock.patch.object(mutants, "_trees") as trees,
            mock.patch.object(mutants, "_baseline", return_value=("", {})),
            mock.patch.object(mutants, "run", return_value={}) as ran,
            mock.patch.object(mutants, "_report", return_value=0) as told,
        ):
            trees.return_value.__enter__.return_value = [mock.Mock(text=mutants._text_of)]
            mutants.main(["--automatic", "--operator", "sql", "--module", "jobs", "--parallel", "1", "--seconds", "7"])
            mutants.main(["--module", "catalog", "--write"])
            mutants.main(["--only", read_list().entries[3]["name"]])
            mutants.main(["--list"])
        by_operator, of_module, by_name = ran.call_args_list
        self.assertEqual({fault.operator for fault in by_operator.args[0]}, {"sql"})
        self.assertEqual((trees.call_args_list[0].args, by_operator.kwargs["seconds"]), ((1,), 7))
        self.assertEqual({fault.module for fault in of_module.args[0]}, {"catalog"})
        self.assertEqual([call.kwargs["write"] for call in told.call_args_list], [False, True, False])
        self.assertEqual(len(by_name.args[0]), 1)

    def test_a_claim_that_is_named_is_the_only_one_that_is_proved(self) -> None:
        """The others take their minutes another time."""
        two = [mock.Mock(claim="C10-001"), mock.Mock(claim="C10-002")]
        with (
            mock.patch.object(proofs, "read_map"),
            mock.patch.object(proofs, "proofs", return_value=two),
            mock.patch.object(proofs, "Tree"),
            mock.patch.object(proofs, "prove", return_value="") as proved,
        ):
            proofs.main(["--claim", "C10-002"])
        self.assertEqual([call.args[1] for call in proved.call_args_list], two[1:])

    def test_a_page_is_written_only_when_it_was_asked_for(self) -> None:
        """Each command that writes one, where it hands over the text."""
        for module, text, name in (
            (explore, "guards_page", "replace_together"),
            (claim_map, "pages", "replace_together"),
            (recall, "page", "replace_together"),
            (site, "site", "replace_together"),
            (page, "page", "replace_together"),
            (companion_experiments, "run_companions", "write_reports"),
        ):
            with (
                self.subTest(module.__name__),
                mock.patch.object(module, text),
                mock.patch.object(claim_map, "read_map"),
            ):
                self.reached(module.main, "--write", module, name)
        with mock.patch.object(recall, "page"):
            self.reached(recall.main, "--check", recall, "check_report")
        self.reached(companion_experiments.main, "--check", companion_experiments, "check_reports")

    def test_guesses_are_asked_for_in_the_language_and_kept_in_the_folder_that_were_asked_for(self) -> None:
        """In Chinese, and nowhere."""
        for main, group in ((companion_experiments.main, "ranking"), (questions.main, "order")):
            line = f"--group {group} --predict --answers - --lang zh --no-save"
            asked = self.reached(main, line, predict, "predict").kwargs
            self.assertEqual((asked["language"], asked["folder"]), ("zh", None))

    def test_exercises_speak_the_language_that_was_asked_for(self) -> None:
        """Before the command or after it."""
        commands = ("next", "watch", *(f"{name} 1" for name in ("start", "check", "hint", "answer", "reset")))
        for line in ("--lang zh", *(f"{verb} --lang zh" for verb in commands)):
            self.assertEqual(self.reached(exercises.main, line, exercises, "_Desk").args[1], "zh")

    def test_a_benchmark_measures_what_and_where_it_was_asked_to(self) -> None:
        """One area, in small, in that folder."""
        with tempfile.TemporaryDirectory() as folder:
            line = f"--area reads --quick --folder {folder}"
            areas, plan, *_ = self.reached(benchmark.main, line, benchmark, "run").args
        self.assertEqual((areas, plan.quick, plan.folder.parent), (["reads"], True, Path(folder)))

    def test_claims_without_a_test_are_all_that_is_shown(self) -> None:
        """With `--missing` the summary is left out."""
        with (
            mock.patch.object(claim_map, "read_map"),
            mock.patch.object(claim_map, "problems", return_value=0),
            mock.patch.object(claim_map, "_summary") as said,
        ):
            claim_map.main(["--missing"])
        said.assert_not_called()


if __name__ == "__main__":
    unittest.main()
