"""The experiments of the companions: the same bytes everywhere, the committed pages fresh, each group what it says."""

from __future__ import annotations

import io
import json
import re
import subprocess
import unittest
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.experiments import GROUPS as CHAPTER_GROUPS
from chapter10.experiments import reports_folder, run_all
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.reader import companion_experiments as experiments
from chapter10.lab.reader.companion_experiments import (
    GROUPS,
    REPORTS,
    check_reports,
    main,
    write_reports,
)
from chapter10.tests.shared import companions_run
from chapter10.tests.support import FolderTestCase, run_python

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def evidence() -> dict[str, Any]:
    """The evidence of that run."""
    return companions_run()[0]


def figures(group: str) -> Any:
    """The figures of one group in that run."""
    return evidence()["groups"][group]


class TheEvidence(FolderTestCase):
    """What is committed is what a run gives, and two runs give the same."""

    def test_the_committed_reports_are_those_of_a_new_run(self) -> None:
        """`--check` finds no line that differs."""
        with mock.patch.object(experiments, "_run", companions_run):
            self.assertEqual(check_reports(reports_folder()), [])

    def test_a_run_writes_the_committed_bytes_and_a_changed_figure_is_found(self) -> None:
        """Written into another folder, the files are equal and alone; then the check names file and line.

        That another run gives the same is seen below, by each group alone and by all of them in another process.
        """
        with mock.patch.object(experiments, "_run", companions_run):
            write_reports(self.folder)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(REPORTS))
        for name in REPORTS:
            written = (self.folder / name).read_bytes()
            self.assertEqual(written, (reports_folder() / name).read_bytes())
            self.assertNotIn(b"\r", written)
        path = self.folder / REPORTS[0]
        path.write_text(path.read_text(encoding="utf-8").replace("null", "0", 1), encoding="utf-8", newline="\n")
        with mock.patch.object(experiments, "_run", companions_run):
            (line,) = check_reports(self.folder)
        self.assertIn("companion-evidence.json: line 3", line)

    def test_no_path_and_no_address_of_a_machine_is_in_the_reports(self) -> None:
        """What differs between two machines is not evidence. Claims: C8-050."""
        for name in REPORTS:
            text = (reports_folder() / name).read_text(encoding="utf-8")
            for pattern in (r"0x[0-9a-f]{6,}", r"/[t]mp", re.escape(str(Path.home()))):
                self.assertIsNone(re.search(pattern, text), pattern)

    def test_every_picture_has_its_twin_in_text(self) -> None:
        """On the page of each group a Mermaid picture follows the lanes with the same events."""
        for group in GROUPS:
            page = (reports_folder() / f"companion-{group}.md").read_text(encoding="utf-8")
            languages = [language for language, _ in FENCE.findall(page)]
            self.assertIn("mermaid", languages)
            for number, language in enumerate(languages):
                if language == "mermaid":
                    self.assertEqual(languages[number - 1], "text")

    def test_the_chapter_keeps_its_five_groups(self) -> None:
        """The companions have a file of their own; `run_all` knows nothing of them."""
        self.assertEqual(list(run_all()["groups"]), list(CHAPTER_GROUPS))
        self.assertEqual(set(CHAPTER_GROUPS) & set(GROUPS), set())
        self.assertEqual(list(evidence()["groups"]), list(GROUPS))


class TheCommand(unittest.TestCase):
    """What is printed is the evidence; the one program of its own runs while the groups run here."""

    program: Future[subprocess.CompletedProcess[str]]

    @classmethod
    def setUpClass(cls) -> None:
        pool = cls.enterClassContext(ThreadPoolExecutor(1))
        cls.program = pool.submit(run_python, ["-m", "chapter10.lab.reader.companion_experiments"])

    def test_a_group_prints_its_figures_as_json(self) -> None:
        """Standard output is exactly the JSON of that group; all of them are run by the program below."""
        with redirect_stdout(io.StringIO()) as out:
            self.assertEqual(main(["--group", "schema"]), 0)
        self.assertEqual(json.loads(out.getvalue()), figures("schema"))

    def test_the_command_prints_all_groups(self) -> None:
        """As a program of its own: all the evidence on standard output, nothing on standard error."""
        child = self.program.result()
        self.assertEqual((child.returncode, child.stderr), (0, ""))
        self.assertEqual(json.loads(child.stdout), evidence())

    def test_options_that_mean_nothing_together_are_usage_errors(self) -> None:
        """Exit code 2 and nothing is run."""
        for arguments in (["--group", "none"], ["--write", "--check"], ["--group", "schema", "--check"], ["--wri"]):
            with (
                self.subTest(arguments=arguments),
                redirect_stderr(io.StringIO()),
                self.assertRaises(SystemExit) as caught,
            ):
                main(arguments)
            self.assertEqual(caught.exception.code, 2)


class TheSchemaGroup(unittest.TestCase):
    """Checked, refused and never repaired."""

    def test_only_the_two_first_arguments_are_valid(self) -> None:
        """Types are those of JSON: 3.0 is an integer, true is none and not equal to 1."""
        valid = [row["case"] for row in figures("schema")["arguments"] if not row["violations"]]
        self.assertEqual(valid, ["an order", "3.0 is an integer"])

    def test_every_schema_that_promises_too_much_is_refused_by_keyword_and_place(self) -> None:
        """Nothing is accepted that is not checked."""
        for row in figures("schema")["refused"]:
            self.assertIn(row["code"], ("unsupported_keyword", "invalid_schema"))
            self.assertTrue(row["keyword"])
        self.assertFalse(figures("schema")["default_filled_in"])

    def test_no_text_that_is_no_strict_json_is_accepted(self) -> None:
        """Cut off is told apart from wrong."""
        codes = [row["code"] for row in figures("schema")["texts"]]
        self.assertEqual(codes[0], "json_cut_off")
        self.assertEqual(len(set(codes)), len(codes))
        self.assertNotIn("accepted", codes)


class TheRegistryGroup(unittest.TestCase):
    """The failure matrix, by the calls of the handler."""

    def rows(self, fault: str, effect: str | None = None) -> list[dict[str, Any]]:
        rows = figures("registry")["matrix"]
        return [row for row in rows if row["fault"] == fault and effect in (None, row["effect"])]

    def test_a_refusal_calls_nothing(self) -> None:
        """Missing arguments, no permission, no approval: no handler runs, whatever the effect.

        Claims: T6-010, T6-035, T6-042.
        """
        for fault, code in (("missing argument", "invalid_arguments"), ("no permission", "forbidden")):
            rows = self.rows(fault)
            self.assertEqual([(row["calls"], row["outcome"]) for row in rows], [(0, code)] * 3)
        (row,) = self.rows("not approved", "irreversible_write")
        self.assertEqual((row["calls"], row["outcome"]), (0, "approval_required"))

    def test_a_read_is_repeated_at_most_twice(self) -> None:
        """A lost connection and a time that is over are worth two repetitions. Claims: T6-008, T6-036, T6-039."""
        self.assertEqual([row["calls"] for row in self.rows("connection lost once", "read")], [2])
        for fault in ("connection lost always", "out of time"):
            (row,) = self.rows(fault, "read")
            self.assertEqual((row["calls"], row["outcome"], row["retryable"]), (3, "transient_failure", True))

    def test_a_write_is_repeated_only_after_its_status_said_that_it_was_not_done(self) -> None:
        """And an irreversible one not even then. Claims: T6-009, T6-010, T6-011, T6-037, T6-040."""
        for fault in ("connection lost always", "out of time"):
            for effect in ("reversible_write", "irreversible_write"):
                for row in self.rows(fault, effect):
                    again = effect == "reversible_write" and row["status query says"] == "not done"
                    self.assertEqual(row["calls"], 3 if again else 1, row)
                    if row["status query says"] in ("no query", "unknown"):
                        self.assertEqual((row["outcome"], row["retryable"]), ("outcome_unknown", False))
                    if row["status query says"] == "done":
                        self.assertEqual((row["outcome"], row["data"]), ("ok", "receipt A"))

    def test_a_large_output_is_cut_and_its_length_recorded(self) -> None:
        """For every effect. Claims: T6-041."""
        for row in self.rows("output too large"):
            self.assertEqual((len(row["data"]), row["original length"]), (40, 100))

    def test_nothing_of_an_exception_is_in_the_matrix(self) -> None:
        """Handlers raise with a password in their text. Claims: T6-024."""
        self.assertFalse(figures("registry")["secret_seen"])
        for name in REPORTS:
            self.assertNotIn("hunter2", (reports_folder() / name).read_text(encoding="utf-8"))

    def test_what_is_found_runs_only_as_it_was_loaded(self) -> None:
        """Revoked and changed are refused at the moment of execution. Claims: T6-014, T6-016, T6-018."""
        self.assertEqual(
            figures("registry")["found_and_callable"],
            {"as loaded": "ok", "revoked": "forbidden", "changed": "forbidden", "calls": 1},
        )
        self.assertEqual(figures("registry")["registered_twice"], "duplicate_tool")
        self.assertEqual(figures("registry")["unknown_tool"], "unknown_tool")


class TheOrchestrationGroup(unittest.TestCase):
    """Order, exclusivity, one answer each."""

    def test_the_five_calls_run_as_the_document_says(self) -> None:
        """Two reads together, the command alone, the edit alone, the last read last.

        Claims: C8-013, C8-014, C8-015, C8-016, C8-017.
        """
        group = figures("orchestration")
        self.assertEqual(group["executing_after_all_were_added"], ["Read(a.ts)", "Read(b.ts)"])
        self.assertEqual(
            [(row["executing"], row["completed"], row["yielded"]) for row in group["schedule"]],
            [(0, 2, 2), (0, 1, 2), (2, 3, 3), (3, 4, 4), (4, 5, 5)],
        )
        self.assertEqual([row["started beside"] for row in group["schedule"]], ["-", "Read(a.ts)", "-", "-", "-"])
        self.assertEqual(group["result_order"], ["1", "2", "3", "4", "5"])

    def test_answers_wait_for_their_turn_and_progress_does_not(self) -> None:
        """The third is done first and handed out last. Claims: C8-006, C8-037, C8-078."""
        group = figures("orchestration")
        self.assertEqual((group["completed_order"], group["yielded_order"]), (["z", "x", "y"], ["x", "y", "z"]))
        scene = Scene()
        GROUPS["orchestration"].run(scene)
        events = [event.what for event in scene.parts[1][1]]
        self.assertLess(events.index("progress 1"), events.index("completed"))

    def test_each_way_to_be_stopped_has_its_own_words(self) -> None:
        """A read stops nobody, a command its siblings, the user everybody.

        Claims: C8-023, C8-024, C8-031, C8-033.
        """
        codes: dict[str, list[str]] = {}
        for row in figures("orchestration")["stopped"]:
            codes.setdefault(row["case"], []).append(row["code"])
        self.assertEqual(
            codes,
            {
                "a read fails": ["tool_failure", "-"],
                "a tool cancels itself": ["tool_failure", "-"],
                "a command fails": ["sibling_error", "tool_failure", "sibling_error"],
                "the next answer of the same query": ["-"],
                "the user interrupts": ["-", "user_interrupt", "user_interrupt", "user_interrupt"],
                "the stream falls back": ["streaming_fallback", "streaming_fallback"],
            },
        )

    def test_only_the_three_changes_of_state_are_seen(self) -> None:
        """Queued, executing, completed, yielded, and nothing else. Claims: C8-004."""
        scene = Scene()
        GROUPS["orchestration"].run(scene)
        self.assertEqual(
            {(before, after) for before, after, _ in scene.transitions},
            {("queued", "executing"), ("executing", "completed"), ("completed", "yielded")},
        )


class TheResultsGroup(unittest.TestCase):
    """What is sent stays as it was sent."""

    def test_every_request_begins_as_the_one_before(self) -> None:
        """The digest of the earlier part is the whole digest of the request before. Claims: C8-058, C8-061, C8-082."""
        requests = figures("results")["requests"]
        self.assertEqual(
            [row["digest of the earlier part"] for row in requests[1:]], [row["digest"] for row in requests[:-1]]
        )
        self.assertTrue(all(row["earlier part as sent before"] and not row["problems"] for row in requests))

    def test_no_result_changes_its_fate(self) -> None:
        """What was replaced is applied again, what was kept stays, under a lower limit too.

        Claims: C8-060, C8-062, C8-064, C8-065.
        """
        fates: dict[str, set[str]] = {}
        for row in figures("results")["decisions"]:
            whole = row["fate"] in ("frozen", "kept")
            for call_id in row["results"].split():
                fates.setdefault(call_id, set()).add("whole" if whole else "replaced")
        self.assertEqual(len(fates), sum(map(len, (range(10), range(3), range(2)))))
        self.assertTrue(all(len(fate) == 1 for fate in fates.values()), fates)

    def test_ten_of_forty_thousand_need_six_previews(self) -> None:
        """Five by the formula alone. Claims: C8-051, C8-055."""
        group = figures("results")
        self.assertEqual((group["ten_of_40000_by_the_formula"], group["ten_of_40000_with_previews"]), (5, 6))
        first = group["requests"][0]
        self.assertEqual((first["size before"], first["size sent"]), (400_000, 171_730))

    def test_greedy_is_not_optimal_in_characters(self) -> None:
        """It replaces 50,000 where 6,000 would have done. Claims: C8-083."""
        group = figures("results")
        self.assertEqual(group["greedy_replaces"], [50_000])
        self.assertLessEqual(group["total_if_6000_were_replaced"], group["message_limit_chars"])

    def test_a_limit_that_cannot_be_met_is_reported(self) -> None:
        """The exempt result of the second turn alone is over it. Claims: C8-047, C8-057."""
        self.assertEqual([row["over the limit"] for row in figures("results")["requests"]], [False, True, False])

    def test_nothing_empty_is_sent(self) -> None:
        """Six forms are empty, 0 and false are not. Claims: C8-069, C8-071, C8-072."""
        seen = [row["success"] for row in figures("results")["empty"]]
        self.assertEqual(seen[:5], ["(Bash completed with no output)"] * 5)
        self.assertEqual(seen[5:7], ["0", "false"])


class TheTurnGroup(unittest.TestCase):
    """The transcript is valid at every exit, and no request changes what was sent."""

    def test_no_exit_leaves_a_transcript_with_a_problem(self) -> None:
        """Done, interrupted, failed, left, cancelled, over budget, cut off. Claims: C8-032, C8-074."""
        group = figures("turn")
        self.assertEqual(group["problems"], 0)
        self.assertGreaterEqual(len(group["exits"]), 9)
        self.assertEqual({row["problems"] for row in [*group["requests"], *group["exits"]]}, {0})

    def test_every_request_begins_as_the_one_before(self) -> None:
        """In the whole conversation, and after each exit. Claims: C8-058, C8-082."""
        group = figures("turn")
        self.assertTrue(group["earlier_part_always_as_sent"])
        requests = group["requests"]
        self.assertEqual(
            [row["digest of the earlier part"] for row in requests[1:]], [row["digest"] for row in requests[:-1]]
        )

    def test_every_call_of_the_conversation_ends_as_it_must(self) -> None:
        """Found, called together, refused before it was found, read back, approved, cut off, revoked, wrong."""
        group = figures("turn")
        codes = [row["code"] for row in group["answers"]]
        self.assertEqual(codes[:5], ["ok"] * 5)
        self.assertEqual(
            codes[5:], ["unknown_tool", "ok", "ok", "ok", "invalid_arguments", "forbidden", "invalid_arguments"]
        )
        self.assertEqual(group["handler_calls"], {"orders.get": 2, "logs.get": 1, "mail.send": 1})
        self.assertEqual(group["approvals_asked"], ["mail.send(alice)"])

    def test_only_who_was_stopped_has_to_ask_again(self) -> None:
        """An interruption, a consumer that left, a cancel; a failure goes on with the next request."""
        stopped = [row["exit"] for row in figures("turn")["exits"] if row["the user has to ask again"]]
        self.assertEqual(stopped, ["the user interrupts", "the consumer leaves", "the consumer is cancelled"])

    def test_a_disk_that_refuses_is_reported_and_loses_nothing(self) -> None:
        """Over the limit, and everything whole. Claims: C8-081."""
        over = {row["exit"]: row["over the limit"] for row in figures("turn")["exits"]}
        self.assertEqual([exit for exit, is_over in over.items() if is_over], ["over budget, the disk refuses"])


if __name__ == "__main__":
    unittest.main()
