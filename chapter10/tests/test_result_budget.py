"""Results that are too large: the preview, the file behind it, the limit of a message, decisions that stay."""

from __future__ import annotations

import builtins
import itertools
import json
import math
import os
import random
import shutil
import stat
import tracemalloc
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from chapter10.canonical import canonical, text_digest
from chapter10.companions.tools import result_budget, result_store
from chapter10.companions.tools.result_budget import (
    DEFAULT_MAX_RESULT_CHARS,
    MESSAGE_LIMIT_CHARS,
    Candidate,
    GroupReport,
    ReplacementState,
    ResultBudget,
    SeenResult,
    group_results,
    merge_messages,
    partition,
    select_fresh_to_replace,
    threshold,
)
from chapter10.companions.tools.result_store import (
    MAX_TEXT,
    PREVIEW_CHARS,
    BudgetError,
    ResultStore,
    ResultStoreError,
    content_size,
    content_text,
    preview,
    preview_size,
    visible_content,
)
from chapter10.companions.tools.result_text import is_empty
from chapter10.tests.support import FolderTestCase

PREVIEW_PATH = "tool-results/" + "0" * 64 + ".txt"


def call(call_id: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def turn(*results: dict[str, Any], name: str = "Bash") -> list[dict[str, Any]]:
    """An assistant message with the calls and one user message with their results."""
    return [
        {"role": "assistant", "content": [call(block["tool_use_id"], name) for block in results]},
        {"role": "user", "content": list(results)},
    ]


def text_of(number: int, size: int) -> str:
    """A text of exactly `size` characters that no other number has."""
    return (f"{number}:" + "line of output\n" * (size // 15 + 1))[:size]


def sent_contents(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        block["tool_use_id"]: block["content"]
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    }


class Thresholds(unittest.TestCase):
    """Three levels and one exemption."""

    def test_the_remote_override_goes_before_the_tool_and_the_tool_before_the_default(self) -> None:
        """Override, tool, default; infinity beats them all: a wrong remote value starts no loop of storing and reading.

        Claims: C8-044, C8-045, C8-046.
        """
        self.assertEqual((threshold(), DEFAULT_MAX_RESULT_CHARS), (50_000, 50_000))
        for tool, override, expected in (
            (1_000, None, 1_000), (1_000, 150_000, 150_000), (None, 7, 7), (0, 0, 0), (math.inf, 10, math.inf),
        ):  # fmt: skip
            self.assertEqual(threshold(tool, override), expected)

    def test_what_is_no_limit_is_refused(self) -> None:
        """NaN, a bool, a fraction, a negative number, an infinite override, a text."""
        bad: list[Any] = [math.nan, -math.inf, True, 1.5, -1, "50000"]
        for value in bad:
            with self.subTest(value=value), self.assertRaises(BudgetError):
                threshold(value)
        for value in [*bad, math.inf]:
            with self.subTest(override=value), self.assertRaises(BudgetError):
                threshold(None, value)
            with self.subTest(override=value), self.assertRaises(BudgetError):
                threshold(math.inf, value)


class Empty(unittest.TestCase):
    """Every result has text that can be seen."""

    def test_six_forms_are_empty(self) -> None:
        """Missing, None, "", blanks, [], only empty text blocks; the sources are silent commands, MCP and a REPL.

        Claims: C8-069, C8-071, C8-073.
        """
        missing: dict[str, Any] = {"type": "tool_result", "tool_use_id": "1"}
        forms: dict[str, Any] = {
            "missing": missing.get("content"),
            "a REPL statement": None,
            "mv, cp, rm, mkdir": "",
            "blanks": " \n\t\u3000",
            "an empty MCP list": [],
            "empty blocks": [{"type": "text", "text": ""}, {"type": "text", "text": " \n"}, {"type": "text"}],
        }
        for name, content in forms.items():
            with self.subTest(form=name):
                self.assertTrue(is_empty(content))
                self.assertEqual(visible_content("Bash", content), "(Bash completed with no output)")

    def test_what_is_something_passes_through(self) -> None:
        """0, False, {}, an image, one block with text. Claims: C8-072."""
        image = {"type": "image", "source": {"data": "aGk="}}
        forms: list[tuple[Any, Any]] = [
            (0, "0"),
            (False, "false"),
            ({}, "{}"),
            ([0], "[0]"),
            ([{"a": 1}], '[{"a":1}]'),
            ("0", "0"),
            ([image], [image]),
            ([{"type": "text", "text": ""}, {"type": "text", "text": "x"}], None),
        ]
        for content, expected in forms:
            with self.subTest(content=content):
                self.assertFalse(is_empty(content))
                self.assertEqual(visible_content("t", content), content if expected is None else expected)

    def test_an_empty_result_is_an_event(self) -> None:
        """`tool_empty_result` with the tool's name, and no event for a result that has content. Claims: C8-070."""
        events: list[tuple[str, dict[str, Any]]] = []
        visible_content("mkdir", "", log=lambda name, data: events.append((name, data)))
        visible_content("ls", "a", log=lambda name, data: events.append((name, data)))
        self.assertEqual(events, [("tool_empty_result", {"toolName": "mkdir"})])

    def test_an_error_without_a_message_gets_another_text(self) -> None:
        """It must not read as if the tool had completed. Claims: C8-074."""
        self.assertEqual(visible_content("Bash", None, is_error=True), "(Bash failed with no message)")

    def test_half_characters_are_joined_or_replaced(self) -> None:
        """UTF-8 cannot carry a lone surrogate; two halves that belong together are one character."""
        self.assertEqual(visible_content("t", "a\ud83d\ude00b\ud800c"), "a\U0001f600b\ufffdc")
        self.assertEqual(
            visible_content("t", [{"type": "text", "text": "\udc00"}]), [{"type": "text", "text": "\ufffd"}]
        )
        deep = {"a": ["\ud800"]}
        self.assertEqual(visible_content("t", deep), '{"a":["\ufffd"]}')
        self.assertEqual(visible_content("t", [{"type": "x", "v": deep}]), [{"type": "x", "v": {"a": ["\ufffd"]}}])

    def test_what_is_no_json_is_refused(self) -> None:
        """NaN, bytes, an object, a number as a key."""
        bad: list[Any] = [math.nan, b"x", object(), {1: 2}, [{"type": "x", "v": {1: 2}}]]
        for content in bad:
            with self.subTest(content=content), self.assertRaisesRegex(BudgetError, "^bad_input$"):
                visible_content("t", content)

    def test_a_content_that_is_handed_out_is_a_copy(self) -> None:
        """Changing the blocks afterwards does not change the caller's."""
        given = [{"type": "text", "text": "a", "more": {"deep": [1]}}]
        visible_content("t", given)[0]["more"]["deep"].append(2)
        self.assertEqual(given[0]["more"], {"deep": [1]})

    def test_sizes_are_code_points(self) -> None:
        """An emoji is one, a Chinese character is one, an image is none, blocks are added."""
        self.assertEqual(content_size("\U0001f600字a"), 3)
        blocks = [{"type": "text", "text": "ab"}, {"type": "image"}, {"type": "text", "text": "c"}]
        self.assertEqual(content_size(blocks), 3)
        self.assertIsNone(content_text(blocks))
        self.assertEqual(content_text(blocks[::2]), "ab\nc")
        self.assertEqual(content_size([{"type": "image", "text": "not counted"}, {"text": "no type"}]), 0)
        others: list[Any] = [None, 7, {}, ["x"], [7]]
        for other in others:
            self.assertEqual((content_size(other), content_text(other)), (0, None))


class Previews(unittest.TestCase):
    """Bounded for every input."""

    def test_a_preview_of_one_endless_line_is_bounded(self) -> None:
        """60,000 characters without a line end: at most 2,000, with length, place, head and tail. Claims: C8-048."""
        text = "".join(f"{number:06}" for number in range(10_000))
        shown = preview(text, PREVIEW_PATH)
        self.assertEqual(len(shown), PREVIEW_CHARS)
        self.assertEqual(PREVIEW_CHARS, 2_000)
        header, head, gap, tail = shown.split("\n")
        self.assertIn("60000", header)
        self.assertIn(PREVIEW_PATH, header)
        self.assertIn("Partial", header)
        self.assertTrue(text.startswith(head))
        self.assertTrue(text.endswith(tail))
        self.assertEqual(gap, f"[... {len(text) - len(head) - len(tail)} characters left out ...]")
        self.assertGreater(min(len(head), len(tail)), 800)

    def test_a_preview_is_bounded_for_random_texts(self) -> None:
        """Whatever characters and lengths: within the limit, never more than half, carried by UTF-8."""
        chance = random.Random(8048)
        alphabet = ["a", "\n", "字", "\U0001f600", "\u0301", "\u200d", "\ufe0f", "\U0001f3fd", "\x00", " "]
        for _ in range(300):
            text = "".join(chance.choices(alphabet, k=chance.choice((1, 2, 50, 1_999, 2_000, 4_500))))
            shown = preview(text, PREVIEW_PATH)
            body = shown[shown.index("]\n") + 2 :]
            head, _, rest = body.partition("\n[... ")
            self.assertLessEqual(len(shown), PREVIEW_CHARS)
            self.assertTrue(text.startswith(head))
            self.assertTrue(text.endswith(rest.partition(" ...]\n")[2]))
            self.assertLessEqual(len(body), len(text) // 2)
            shown.encode("utf-8")
            self.assertEqual(preview_size(text, "tool-results"), len(shown))

    def test_a_limit_below_the_header_is_kept_too(self) -> None:
        """Even a preview of ten characters has ten characters."""
        self.assertEqual(len(preview("x" * 100, PREVIEW_PATH, limit=10)), 10)


class Store(FolderTestCase):
    """Whole results as files of one folder."""

    def setUp(self) -> None:
        super().setUp()
        self.place = self.folder / "results"
        self.store = ResultStore(self.place)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.place))

    def test_what_is_saved_is_read_back(self) -> None:
        """Line ends, NUL, emoji: the same text; a part of it by characters. Claims: C8-049."""
        text = "a\r\nb\rc\n\x00\U0001f600字" * 10_000
        stored = self.store.save(text)
        self.assertEqual(self.store.read(stored.path), text)
        self.assertEqual(self.store.read(stored.path, 70_003, 11), text[70_003:70_014])
        self.assertEqual(self.store.read(stored.path, len(text)), "")
        self.assertEqual((stored.chars, stored.digest), (len(text), text_digest(text)))

    def test_the_path_is_relative_and_stable(self) -> None:
        """No folder of this machine, no id, no chance: label and digest. Claims: C8-050."""
        stored = self.store.save("x")
        self.assertEqual((stored.path, self.store.save("x")), (f"tool-results/{text_digest('x')}.txt", stored))
        self.assertEqual(self.names(), [f"{text_digest('x')}.txt"])

    def test_a_part_begins_and_ends_at_whole_numbers(self) -> None:
        """Nothing of nothing is the empty text; what is no number from 0 up is refused."""
        stored = self.store.save("abc")
        self.assertEqual([self.store.read(stored.path, 1, most) for most in (0, 1, 9)], ["", "b", "bc"])
        wrong: list[Any] = [-1, 1.0, True, None, "1"]
        for number in wrong:
            for part in ({"start": number}, {"max_chars": number}):
                with self.subTest(part=part), self.assertRaisesRegex(BudgetError, "^bad_input$"):
                    self.store.read(stored.path, **part)

    def test_a_path_that_was_not_given_out_is_not_read(self) -> None:
        """Outside, above, absolute, partial, of another label, of another type."""
        secret = self.folder / "secret.txt"
        secret.write_text("secret", encoding="utf-8")
        name = self.store.save("x").path.split("/")[1]
        bad: list[Any] = [
            "../secret.txt", "tool-results/../../secret.txt", str(secret), f"tool-results/./{name}",
            f"tool-results/{name}\n", f"tool-results/{name}\0", f"other/{name}", f"tool-results/{'0' * 64}.txt", name,
            "", None, 7,
        ]  # fmt: skip
        for path in bad:
            with self.subTest(path=path), self.assertRaisesRegex(BudgetError, "^not_stored$"):
                self.store.read(path)

    @unittest.skipUnless(hasattr(os, "symlink"), "no symbolic links here")
    def test_links_are_not_followed(self) -> None:
        """A link under a digest's name is not read, and saving replaces it without touching its target."""
        target = self.folder / "target.txt"
        target.write_text("secret", encoding="utf-8")
        name = f"{text_digest('x')}.txt"
        (self.place / name).symlink_to(target)
        with self.assertRaises(BudgetError):
            self.store.read(f"tool-results/{name}")
        stored = self.store.save("x")
        self.assertEqual(target.read_text(encoding="utf-8"), "secret")
        self.assertEqual(self.store.read(stored.path), "x")
        (self.folder / "link").symlink_to(self.place)
        with self.assertRaises(ResultStoreError):
            ResultStore(self.folder / "link")

    @unittest.skipUnless(hasattr(os, "symlink"), "no symbolic links here")
    def test_a_folder_that_was_put_in_the_place_of_ours_is_not_used(self) -> None:
        """A link to another folder, or another folder, is neither read nor written, though all names fit."""
        stored = self.store.save("ours")
        theirs = self.folder / "theirs"
        shutil.copytree(self.place, theirs)
        self.place.rename(self.folder / "moved")
        for put in (lambda: self.place.symlink_to(theirs), lambda: theirs.rename(self.place)):
            self.place.unlink(missing_ok=True)
            put()
            for call in (lambda: self.store.save("more"), lambda: self.store.read(stored.path)):
                with self.assertRaises(ResultStoreError):
                    call()
            self.assertEqual(1, len(list(self.place.iterdir())))

    def test_a_file_that_holds_something_else_is_not_read(self) -> None:
        """A stored result is what its name says, every part of it, or a fault of the machine."""
        stored = self.store.save("the truth, and more")
        file = self.place / stored.path.partition("/")[2]
        file.write_text("the truth, or less", encoding="utf-8")
        for start in (0, 3):
            with self.assertRaises(ResultStoreError) as caught:
                self.store.read(stored.path, start, 3)
            self.assertEqual("result_not_read", caught.exception.code)

    def test_a_partial_file_that_is_there_already_is_stepped_over(self) -> None:
        """Neither a left-over of a crash nor a planted link is written to."""
        target = self.folder / "target.txt"
        target.write_text("secret", encoding="utf-8")
        (self.place / f".{os.getpid()}-1.partial").symlink_to(target)
        (self.place / f".{os.getpid()}-2.partial").write_text("old", encoding="utf-8")
        stored = self.store.save("x")
        self.assertEqual(self.store.read(stored.path), "x")
        self.assertEqual(target.read_text(encoding="utf-8"), "secret")
        self.assertEqual((self.place / f".{os.getpid()}-2.partial").read_text(encoding="utf-8"), "old")

    def test_a_failed_write_leaves_nothing(self) -> None:
        """Full while writing, while syncing, refused at the rename: the error is coded; an interrupt comes out."""
        for name in ("fsync", "replace", "open"):
            with self.subTest(fails=name):
                failing = mock.patch.object(os, name, side_effect=OSError(28, "full"))
                with failing, self.assertRaises(ResultStoreError) as caught:
                    self.store.save("x" * 200_000)
                self.assertEqual(str(caught.exception), "result_not_stored")
                self.assertIsInstance(caught.exception.__cause__, OSError)
                self.assertEqual(self.names(), [])
        with mock.patch.object(os, "fsync", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.store.save("x")
        self.assertEqual(self.names(), [])

    def test_when_the_rest_cannot_be_removed_either_the_first_error_is_reported(self) -> None:
        """The disk is full, and then it is read-only."""
        with (
            mock.patch.object(os, "fsync", side_effect=OSError(28, "full")),
            mock.patch.object(os, "unlink", side_effect=OSError(30, "read-only")),
            self.assertRaises(ResultStoreError) as caught,
        ):
            self.store.save("x")
        self.assertEqual(getattr(caught.exception.__cause__, "errno", None), 28)

    def test_what_is_synced_is_the_whole_text(self) -> None:
        """Nothing waits in a buffer when the disk is asked to be sure."""
        synced: list[int] = []
        with mock.patch.object(os, "fsync", side_effect=lambda handle: synced.append(os.fstat(handle).st_size)):
            self.store.save("x" * 10)
        self.assertEqual(synced, [10])

    @unittest.skipUnless(os.name == "posix", "the rights of POSIX")
    def test_nobody_else_may_look_into_the_folder_or_a_result(self) -> None:
        """Results may hold what is for one user alone."""
        stored = self.store.save("x")
        for place, rights in ((self.place, 0o700), (self.place / stored.path.split("/")[1], 0o600)):
            self.assertEqual(stat.S_IMODE(place.stat().st_mode), rights)

    def test_what_cannot_be_stored_is_refused(self) -> None:
        """Too long, half a character, no text; a label that would be a path; a folder that is a file."""
        self.assertEqual(result_store.MAX_STORED_CHARS, 100_000_000)
        with mock.patch.object(result_store, "MAX_STORED_CHARS", 10):
            os.unlink(self.place / self.store.save("x" * 10).path.split("/")[1])
            with self.assertRaises(ResultStoreError):
                self.store.save("x" * 11)
        with self.assertRaises(ResultStoreError):
            self.store.save("\ud800")
        with self.assertRaises(BudgetError):
            self.store.save(b"x")  # type: ignore[arg-type]
        ResultStore(self.place, "x" * 64)
        labels: list[Any] = ["", "a/b", "..", "A", "x" * 65, None, b"x"]
        for label in labels:
            with self.subTest(label=label), self.assertRaises(BudgetError):
                ResultStore(self.place, label)
        (self.folder / "file").write_text("", encoding="utf-8")
        with self.assertRaises(ResultStoreError):
            ResultStore(self.folder / "file")
        self.assertEqual(self.names(), [])

    def test_a_broken_file_is_a_broken_machine(self) -> None:
        """Bytes that are no UTF-8 are `result_not_read`, not an exception of the codec."""
        stored = self.store.save("x")
        (self.place / stored.path.split("/")[1]).write_bytes(b"\xff\xfe")
        with self.assertRaisesRegex(ResultStoreError, "^result_not_read$"):
            self.store.read(stored.path)

    def test_fifty_megabytes_make_no_second_copy(self) -> None:
        """A result of 50 MB goes to disk, to a preview and into the state with less than 2 MB of memory more."""
        text = "0123456789" * 5_000_000 + "\n"
        budget = ResultBudget(self.store)
        tracemalloc.start()
        try:
            shaped = budget.shape_result("1", "Bash", text)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(peak, 2_000_000)
        self.assertLessEqual(len(shaped.content), PREVIEW_CHARS)
        assert shaped.stored is not None
        self.assertEqual((self.place / shaped.stored.path.split("/")[1]).stat().st_size, 50_000_001)
        self.assertLess(len(budget.state.to_text()), 3_000)


class PerTool(FolderTestCase):
    """Layer 1: each result against its tool's threshold."""

    def setUp(self) -> None:
        super().setUp()
        self.store = ResultStore(self.folder / "results")

    def test_a_result_over_the_threshold_becomes_a_preview(self) -> None:
        """50,000 characters stay, also Chinese ones; 50,001 become at most 2,000 with the path.

        Claims: C8-043, C8-045, C8-048, C8-049.
        """
        budget = ResultBudget(self.store)
        for text in ("x" * 50_000, "字" * 50_000):
            self.assertEqual(budget.shape_result("whole", "Bash", text).content, text)
        text = text_of(1, 50_001)
        shaped = budget.shape_result("1", "Bash", text)
        assert shaped.stored is not None
        self.assertLessEqual(len(shaped.content), PREVIEW_CHARS)
        self.assertIn(shaped.stored.path, shaped.content)
        self.assertEqual(self.store.read(shaped.stored.path), text)
        log = "x" * 500_000
        self.assertLessEqual(len(budget.shape_result("2", "Bash", log).content), PREVIEW_CHARS)

    def test_the_limit_of_the_user_is_obeyed(self) -> None:
        """Override 150,000: 100,000 stay. Override 10 for an infinite tool: they stay too. Claims: C8-044, C8-046."""
        limits, overrides = {"Read": math.inf, "Grep": 20_000}, {"Bash": 150_000, "Read": 10}
        budget = ResultBudget(self.store, tool_limits=limits, overrides=overrides)
        limits.clear()
        overrides.clear()
        text = "x" * 100_000
        self.assertEqual(budget.shape_result("1", "Bash", text).content, text)
        self.assertEqual(budget.shape_result("2", "Read", text).content, text)
        self.assertIsNotNone(budget.shape_result("3", "Grep", "x" * 20_001).stored)
        self.assertIsNotNone(budget.shape_result("4", "Other", "x" * 50_001).stored)
        with self.assertRaises(BudgetError):
            ResultBudget(self.store, overrides={"Bash": math.inf})  # type: ignore[dict-item]

    def test_reading_a_stored_result_does_not_store_it_again(self) -> None:
        """The read tool is exempt from both layers: the loop of storing and reading cannot start. Claims: C8-047."""
        budget = ResultBudget(self.store, tool_limits={"Read": math.inf})
        text = text_of(1, 300_000)
        shaped = budget.shape_result("1", "Bash", text)
        assert shaped.stored is not None
        again = budget.shape_result("2", "Read", self.store.read(shaped.stored.path))
        self.assertEqual(again.content, text)
        messages, report = budget.apply(turn(result("2", again.content), name="Read"))
        self.assertEqual(sent_contents(messages)["2"], text)
        self.assertEqual(report.groups[0].kept, ("2",))
        self.assertTrue(report.over_limit)
        self.assertEqual(len(os.listdir(self.folder / "results")), 1)

    def test_a_result_that_a_preview_would_not_shorten_stays(self) -> None:
        """A threshold of ten and a result of a hundred: the header alone is longer."""
        budget = ResultBudget(self.store, overrides={"Bash": 10})
        self.assertEqual(budget.shape_result("1", "Bash", "x" * 100).content, "x" * 100)
        self.assertIsNotNone(budget.shape_result("2", "Bash", "x" * 1_000).stored)
        equal = next(n for n in range(100, 1_000) if preview_size("x" * n, "tool-results") == n)
        self.assertIsNone(budget.shape_result("3", "Bash", "x" * equal).stored)
        self.assertIsNotNone(budget.shape_result("4", "Bash", "x" * (equal + 2)).stored)

    def test_a_silent_tool_has_completed_unless_it_failed(self) -> None:
        """The two texts, and which of them comes when nobody says that it failed."""
        budget = ResultBudget(self.store)
        self.assertEqual(budget.shape_result("1", "mv", "").content, "(mv completed with no output)")
        self.assertEqual(budget.shape_result("2", "mv", "", is_error=True).content, "(mv failed with no message)")

    def test_an_image_is_never_replaced(self) -> None:
        """A file of text could not give it back."""
        budget = ResultBudget(self.store)
        content = [{"type": "text", "text": "x" * 60_000}, {"type": "image", "source": {}}]
        self.assertEqual(budget.shape_result("1", "Shot", content).content, content)
        blocks = [{"type": "text", "text": "x" * 40_000}, {"type": "text", "text": "y" * 40_000}]
        shaped = budget.shape_result("2", "Shot", blocks)
        assert shaped.stored is not None
        self.assertEqual(self.store.read(shaped.stored.path), "x" * 40_000 + "\n" + "y" * 40_000)

    def test_who_hears_the_events_never_touches_the_result(self) -> None:
        """A log that fails loses its event and nothing else."""

        def gone(name: str, data: dict[str, Any]) -> None:
            raise BrokenPipeError

        budget = ResultBudget(ResultStore(self.folder / "gone"), log=gone)
        self.assertIsNotNone(budget.shape_result("a", "Bash", "x" * 60_000).stored)
        self.assertEqual(budget.shape_result("b", "Bash", "").content, "(Bash completed with no output)")

    def test_an_id_never_becomes_a_path(self) -> None:
        """Ids that look like paths name nothing on disk; ids that are no text are refused."""
        budget = ResultBudget(self.store)
        for number, call_id in enumerate(("../../etc/passwd", "/abs", "a/b", "..", "CON", "a\\b")):
            shaped = budget.shape_result(call_id, "../x", text_of(number, 60_000))
            assert shaped.stored is not None
            self.assertRegex(shaped.stored.path, r"\Atool-results/[0-9a-f]{64}\.txt\Z")
        self.assertEqual(sorted(os.listdir(self.folder)), ["results"])
        bad: list[Any] = ["", "a\0", "\ud800", "x" * 201, None, 7]
        for call_id in bad:
            with self.subTest(call_id=call_id), self.assertRaises(BudgetError):
                budget.shape_result(call_id, "Bash", "x")
        self.assertEqual(len(budget.state.seen_ids), 6)

    def test_when_the_disk_refuses_the_result_stays_whole(self) -> None:
        """Kept, frozen as not replaced, the error in the answer and in the log; later turns agree. Claims: C8-081."""
        events: list[str] = []
        budget = ResultBudget(self.store, log=lambda name, data: events.append(name))
        text = "x" * 60_000
        with mock.patch.object(os, "open", side_effect=OSError(28, "full")):
            shaped = budget.shape_result("1", "Bash", text)
        self.assertEqual((shaped.content, shaped.stored, shaped.error), (text, None, "result_not_stored"))
        self.assertEqual(events, ["result_not_stored"])
        self.assertEqual(budget.shape_result("1", "Bash", text).content, text)
        self.assertNotIn("1", budget.state.replacements)
        self.assertIn("1", budget.state.seen_ids)


class Selection(unittest.TestCase):
    """The greedy choice, by the document's formula and with what is put back."""

    def test_equality_is_within_the_limit(self) -> None:
        """Exactly 200,000: nothing; one more: one. Claims: C8-054."""
        fresh = [Candidate("a", 100_000), Candidate("b", 100_000)]
        self.assertEqual(select_fresh_to_replace(fresh, 0, 200_000), [])
        self.assertEqual(select_fresh_to_replace(fresh, 1, 200_000), fresh[:1])
        self.assertEqual(select_fresh_to_replace([], 300_000, 200_000), [])

    def test_with_nothing_put_back_it_is_the_documents_formula(self) -> None:
        """Five hundred random cases against the formula, written out here by itself. Claims: C8-053."""

        def formula(fresh: list[Candidate], frozen_size: int, limit: int) -> list[Candidate]:
            ordered = list(fresh)
            ordered.sort(key=lambda candidate: candidate.size, reverse=True)
            chosen: list[Candidate] = []
            remaining = frozen_size
            for candidate in fresh:
                remaining += candidate.size
            while ordered and remaining > limit:
                largest = ordered.pop(0)
                chosen.append(largest)
                remaining -= largest.size
            return chosen

        chance = random.Random(8053)
        for _ in range(500):
            fresh = [Candidate(str(n), chance.randint(1, 60)) for n in range(chance.randint(0, 9))]
            frozen_size, limit = chance.randint(0, 120), chance.randint(0, 200)
            self.assertEqual(select_fresh_to_replace(fresh, frozen_size, limit), formula(fresh, frozen_size, limit))

    def test_what_is_chosen_by_hand(self) -> None:
        """Of ten of 40,000 five by the formula, and six when the previews count; one large before ten small ones.

        Everything fresh when frozen content is over the limit; nothing that a preview would not shorten.

        Claims: C8-055, C8-056, C8-057.
        """
        ten = range(10)
        small = [Candidate(str(n), 20_000) for n in ten]
        saves_nothing = [Candidate("a", 2_000, 2_000), Candidate("b", 1_000, 1_200), Candidate("c", 500, 499)]
        for fresh, frozen_size, limit, chosen in (
            ([Candidate(str(n), 40_000) for n in ten], 0, 200_000, "01234"),
            ([Candidate(str(n), 40_000, PREVIEW_CHARS) for n in ten], 0, 200_000, "012345"),
            ([*small, Candidate("L", 200_000)], 0, 200_000, "L"),
            ([Candidate(str(n), n + 1) for n in range(5)], 300_000, 200_000, "43210"),
            (saves_nothing, 0, 0, "c"),
        ):
            with self.subTest(chosen=chosen):
                found = select_fresh_to_replace(fresh, frozen_size, limit)
                self.assertEqual("".join(candidate.call_id for candidate in found), chosen)

    def test_greedy_replaces_the_smallest_number_of_results(self) -> None:
        """Against every subset, with previews counted: the limit is met if it can be, by as few as can be.

        Claims: C8-056.
        """
        chance = random.Random(8056)
        for _ in range(300):
            put_back = chance.randint(0, 12)
            fresh = [Candidate(str(n), chance.randint(1, 40), put_back) for n in range(chance.randint(0, 8))]
            frozen_size, limit = chance.randint(0, 60), chance.randint(0, 120)
            total = frozen_size + sum(candidate.size for candidate in fresh)

            def meets(chosen: tuple[Candidate, ...], total: int = total, limit: int = limit) -> bool:
                return total - sum(c.size - c.replacement_size for c in chosen) <= limit

            best = next((n for n in range(len(fresh) + 1) if any(map(meets, itertools.combinations(fresh, n)))), None)
            chosen = tuple(select_fresh_to_replace(fresh, frozen_size, limit))
            self.assertEqual(meets(chosen), best is not None)
            if best is not None:
                self.assertEqual(len(chosen), best)

    def test_greedy_is_not_optimal_in_what_is_read_again(self) -> None:
        """50, 50, 50, 47 and 6 thousand: greedy takes a 50, though the 6 alone would do and is cheaper to read.

        Claims: C8-083.
        """
        sizes = (50_000, 50_000, 50_000, 47_000, 6_000)
        fresh = [Candidate(str(size), size, PREVIEW_CHARS) for size in sizes]
        chosen = select_fresh_to_replace(fresh, 0, 200_000)
        self.assertEqual([candidate.size for candidate in chosen], [50_000])
        self.assertLessEqual(sum(sizes) - 6_000 + PREVIEW_CHARS, 200_000)


class Groups(unittest.TestCase):
    """What is measured together is what is sent together."""

    def test_only_an_assistant_message_ends_a_group(self) -> None:
        """user, progress, user, system, user are one group of three. Claims: C8-066."""
        user: list[dict[str, Any]] = [{"role": "user", "content": [result(str(n), "x")]} for n in range(4)]
        other = [{"role": role, "content": "note"} for role in ("progress", "system")]
        assistant = {"role": "assistant", "content": "..."}
        messages: list[dict[str, Any]] = [assistant, user[0], other[0], user[1], other[1], user[2], assistant, user[3]]
        self.assertEqual(group_results(messages), [["0", "1", "2"], ["3"]])

    def test_results_come_first_and_text_last(self) -> None:
        """A steering text between two results ends up behind both, and progress is not sent."""
        messages: list[dict[str, Any]] = [
            {"role": "assistant", "content": [call("1"), call("2")]},
            {"role": "user", "content": [result("1", "x"), {"type": "text", "text": "first"}]},
            {"role": "progress", "content": "50 %"},
            {"role": "attachment", "content": "a file"},
            {"role": "user", "content": [result("2", "y")]},
            {"role": "user", "content": "last"},
        ]
        merged = merge_messages(messages)
        self.assertEqual([message["role"] for message in merged], ["assistant", "user"])
        kinds = [block.get("tool_use_id", block.get("text")) for block in merged[1]["content"]]
        self.assertEqual(kinds, ["1", "2", "first", "a file", "last"])
        own = [{"type": "text", "text": "I look."}, result("3", "z")]
        said = [{"role": "assistant", "content": own}]  # what the model itself wrote keeps its order and is no group
        self.assertEqual((merge_messages(said), group_results(said)), (said, []))

    def test_random_transcripts_are_measured_as_they_are_sent(self) -> None:
        """Groups and their sizes equal those of the merged messages; roles alternate; no result is lost.

        Claims: C8-068.
        """
        chance = random.Random(8068)
        for _ in range(200):
            messages: list[dict[str, Any]] = []
            expected: list[list[str]] = [[]]
            for number in range(chance.randint(0, 12)):
                role = chance.choice(("assistant", "user", "user", "progress", "system", "attachment"))
                if role == "assistant":
                    messages.append({"role": role, "content": [call(f"c{number}")]})
                    expected.append([])
                elif role == "user":
                    messages.append({"role": role, "content": [result(str(number), "x" * number + "y")]})
                    expected[-1].append(str(number))
                else:
                    messages.append({"role": role, "content": "note"})
            merged = merge_messages(messages)
            roles = [message["role"] for message in merged]
            self.assertTrue(all(a != b for a, b in itertools.pairwise(roles)))
            sent = [
                [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
                for message in merged
                if message["role"] == "user"
            ]
            self.assertEqual([group for group in sent if group], group_results(messages))
            self.assertEqual(group_results(messages), [group for group in expected if group])
            self.assertEqual(
                sum(map(content_size, sent_contents(merged).values())),
                sum(int(n) + 1 for group in expected for n in group),
            )

    def test_a_transcript_that_is_none_is_refused(self) -> None:
        """Unknown roles, contents and ids of wrong types."""
        contents: list[Any] = [3, ["x"], [{"text": "x"}], [{"type": "tool_result"}], [result("", "x")]]
        bad: list[Any] = [[{"role": "tool", "content": "x"}], ["text"]]
        bad += [[{"role": "user", "content": content}] for content in contents]
        for messages in bad:
            with self.subTest(messages=messages), self.assertRaises(BudgetError):
                merge_messages(messages)


class PerMessage(FolderTestCase):
    """Layer 2: all results of a message together, and decisions that stay."""

    def setUp(self) -> None:
        super().setUp()
        self.store = ResultStore(self.folder / "results")
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.budget = self.new_budget()

    def new_budget(self, **options: Any) -> ResultBudget:
        return ResultBudget(self.store, log=lambda name, data: self.events.append((name, data)), **options)

    def only_group(self, messages: list[dict[str, Any]]) -> GroupReport:
        (group,) = self.budget.apply(messages)[1].groups
        return group

    def test_ten_parallel_commands_of_forty_thousand(self) -> None:
        """Layer 1 replaces none, layer 2 six; what is sent is within 200,000. Claims: C8-051, C8-055."""
        texts = [text_of(n, 40_000) for n in range(10)]
        shaped = [self.budget.shape_result(str(n), "Bash", text) for n, text in enumerate(texts)]
        self.assertEqual([s.content for s in shaped], texts)
        messages, report = self.budget.apply(turn(*(result(str(n), text) for n, text in enumerate(texts))))
        (group,) = report.groups
        self.assertEqual(group.size_before, 400_000)
        self.assertEqual(len(group.replaced), 6)
        self.assertLessEqual(group.size_after, MESSAGE_LIMIT_CHARS)
        self.assertEqual(group.size_after, sum(map(content_size, sent_contents(messages).values())))
        self.assertFalse(report.over_limit)

    def test_the_limit_is_for_each_message(self) -> None:
        """Two messages of 150,000 are both untouched. Claims: C8-052."""
        self.assertEqual(MESSAGE_LIMIT_CHARS, 200_000)
        messages = turn(result("1", "x" * 150_000)) + turn(result("2", "y" * 150_000))
        _, report = self.budget.apply(messages)
        self.assertEqual([group.replaced for group in report.groups], [(), ()])
        _, report = self.budget.apply(turn(result("3", "x" * 150_000), result("4", "y" * 50_000)))
        self.assertEqual((report.groups[0].replaced, report.groups[0].size_after), ((), MESSAGE_LIMIT_CHARS))
        self.assertFalse(report.over_limit)  # equal is within

    def test_a_progress_message_does_not_hide_half_of_a_group(self) -> None:
        """150,000, progress, 150,000: one group, one replaced. Three of 80,000 with notes between: one too.

        Claims: C8-067.
        """
        assistant = {"role": "assistant", "content": [call(n) for n in "12345"]}
        note = {"role": "progress", "content": "half"}
        user = [{"role": "user", "content": [result(n, n * 150_000)]} for n in "12"]
        self.assertEqual(self.only_group([assistant, user[0], note, user[1]]).replaced, ("1",))
        three = [{"role": "user", "content": [result(n, n * 80_000)]} for n in "345"]
        attachment = {"role": "attachment", "content": "a file"}
        text = {"role": "user", "content": "go on"}
        messages, report = self.budget.apply([assistant, three[0], note, three[1], attachment, three[2], text])
        (group,) = report.groups
        self.assertEqual((group.size_before, group.replaced), (240_000, ("3",)))
        self.assertEqual([b["type"] for b in messages[1]["content"]], ["tool_result"] * 3 + ["text"] * 2)

    def test_many_small_results_are_counted_with_their_previews(self) -> None:
        """A hundred of 2,500: the sum that is sent is within the limit, and not only the sum of the formula.

        Claims: C8-053.
        """
        group = self.only_group(turn(*(result(str(n), text_of(n, 2_500)) for n in range(100))))
        self.assertEqual(group.size_before, 250_000)
        self.assertLessEqual(group.size_after, 200_000)
        self.assertGreater(len(group.replaced), 20)

    def test_a_limit_that_cannot_be_met_is_reported(self) -> None:
        """A thousand results of 300 characters are shorter than their previews: nothing is gained, and it is said."""
        group = self.only_group(turn(*(result(str(n), text_of(n, 300)) for n in range(1_000))))
        self.assertEqual((group.replaced, group.over_limit), ((), True))
        self.assertEqual(self.events[-1], ("message_over_limit", {"size": 300_000, "limit": 200_000}))

    def test_decisions_come_in_three_kinds(self) -> None:
        """Disjoint, and together all ids: also the ones that were not chosen, and never in question.

        Claims: C8-059, C8-060, C8-063, C8-065.
        """
        image = result("image", [{"type": "image", "source": {}}])
        self.budget.apply(turn(result("large", "x" * 190_000), result("small", "y" * 20_000), image))
        state = self.budget.state
        self.assertEqual((state.seen_ids, set(state.replacements)), ({"large", "small", "image"}, {"large"}))
        self.assertEqual(state.results["image"].chars, 0)
        self.assertEqual(ReplacementState.from_text(state.to_text()), state)
        parts = partition(["new", "small", "large"], state)
        self.assertEqual((parts.must_reapply, parts.frozen, parts.fresh), (("large",), ("small",), ("new",)))

    def test_what_was_left_whole_stays_whole(self) -> None:
        """A smaller limit later changes nothing about it, and is reported; what comes beside it makes the room.

        Claims: C8-060, C8-062, C8-063.
        """
        messages = turn(result("1", "x" * 150_000))
        before, _ = self.budget.apply(messages)
        after, report = self.new_budget(state=self.budget.state, message_limit=1_000).apply(messages)
        self.assertEqual(after, before)
        self.assertEqual((report.groups[0].frozen, report.over_limit), (("1",), True))
        messages.append({"role": "user", "content": [result("2", "y" * 60_000)]})
        group = self.only_group(messages)
        self.assertEqual((group.frozen, group.replaced), (("1",), ("2",)))

    def test_a_replacement_is_applied_again_without_a_file(self) -> None:
        """The folder is gone and opening is forbidden: the same bytes. Claims: C8-061."""
        messages = turn(result("1", "x" * 150_000), result("2", "y" * 60_000))
        before, _ = self.budget.apply(messages)
        for name in os.listdir(self.folder / "results"):
            os.unlink(self.folder / "results" / name)
        forbidden = AssertionError("no file is touched")
        with (
            mock.patch.object(os, "open", side_effect=forbidden),
            mock.patch.object(builtins, "open", side_effect=forbidden),
        ):
            after, report = self.budget.apply(messages)
        self.assertEqual(canonical(after), canonical(before))
        self.assertEqual(report.groups[0].must_reapply, ("1",))

    def test_what_was_sent_may_be_sent_again_as_it_was(self) -> None:
        """A transcript that kept the previews gives the same request as one that kept the originals."""
        messages = turn(result("1", "x" * 150_000), result("2", "y" * 60_000))
        sent, _ = self.budget.apply(messages)
        again, report = self.budget.apply(sent)
        self.assertEqual(again, sent)
        self.assertEqual(report.groups[0].changed, ())

    def test_the_beginning_of_a_conversation_never_changes(self) -> None:
        """Twenty turns of random sizes, the state saved and loaded in each: every request starts with the last.

        Claims: C8-058, C8-060, C8-064, C8-082.
        """
        chance = random.Random(8064)
        transcript: list[dict[str, Any]] = []
        last: list[dict[str, Any]] = []
        replaced: dict[str, str] = {}
        state = ReplacementState()
        for number in range(20):
            sizes = [chance.choice((0, 500, 70_000, 120_000, 150_000)) for _ in range(chance.randint(1, 7))]
            transcript += turn(*(result(f"{number}-{n}", text_of(number, size)) for n, size in enumerate(sizes)))
            budget = self.new_budget(state=ReplacementState.from_text(state.to_text()))
            sent, report = budget.apply(transcript)
            self.assertEqual(canonical(sent[: len(last)]), canonical(last))
            self.assertFalse(report.over_limit)
            self.assertLessEqual(replaced.items(), budget.state.replacements.items())
            state, last, replaced = budget.state, sent, dict(budget.state.replacements)
        self.assertGreater(len(replaced), 5)

    def test_a_full_turn_goes_through_both_layers_and_then_the_state(self) -> None:
        """Layer 1 when a tool ends, layer 2 before the request, the decision in the state, in that order.

        Claims: C8-077, C8-080, C8-082.
        """
        contents = {"1": text_of(1, 60_000), **{n: text_of(int(n), 45_000) for n in "23456"}}
        shaped = {n: self.budget.shape_result(n, "Bash", text).content for n, text in contents.items()}
        self.assertEqual(set(self.budget.state.seen_ids), {"1"})
        messages = turn(*(result(n, content) for n, content in shaped.items()))
        sent, report = self.budget.apply(messages)
        (group,) = report.groups
        self.assertEqual((group.must_reapply, group.replaced), (("1",), ("2",)))
        self.assertEqual([name for name, _ in self.events], ["result_stored"] * 2)
        self.assertEqual(self.budget.state.seen_ids, set("123456"))
        raw, _ = self.budget.apply(turn(*(result(n, content) for n, content in contents.items())))
        self.assertEqual(raw, sent)

    def test_the_state_holds_no_result(self) -> None:
        """After 5 MB: preview, path, length and digest, and nothing else of it. Claims: C8-059."""
        text = text_of(1, 5_000_000)
        shaped = self.budget.shape_result("1", "Bash", text)
        saved = self.budget.state.to_text()
        self.assertLess(len(saved), 3_000)
        (item,) = json.loads(saved)["seen"]
        self.assertEqual(item["replacement"], shaped.content)
        self.assertEqual((item["chars"], item["digest"]), (5_000_000, text_digest(text)))

    def test_a_saved_state_reads_back_as_the_same(self) -> None:
        """The same bytes; and what `to_text` did not write is refused. Claims: C8-060."""
        self.budget.apply(turn(result("a", "x" * 150_000), result("b", "y" * 60_000), result("c", "字")))
        saved = self.budget.state.to_text()
        loaded = ReplacementState.from_text(saved)
        self.assertEqual(loaded, self.budget.state)
        self.assertEqual(loaded.to_text(), saved)
        first, *rest = json.loads(saved)["seen"]
        items: list[dict[str, Any]] = [
            {"chars": True}, {"chars": -1}, {"digest": "x"}, {"path": None}, {"path": 7}, {"replacement": 7},
            {"replacement": ""}, {"id": 3}, {"more": 3},
        ]  # fmt: skip
        seen: list[Any] = [[first, *rest, first], {"a": 1}, *([first | item] for item in items)]
        changed: list[Any] = [canonical({"seen": each, "version": 1}) for each in seen]
        changed += [saved[:-1], saved.replace('"version":1', '"version":2'), saved + " ", "null", "[" * 100_000, ""]
        changed += [saved.encode("utf-8"), bytearray(saved, "utf-8"), None, 7]
        for text in changed:
            with self.subTest(text=str(text)[:40]), self.assertRaisesRegex(BudgetError, "^bad_state$"):
                ReplacementState.from_text(text)
        with mock.patch.object(result_budget, "MAX_STATE_CHARS", len(saved)):
            self.assertEqual(ReplacementState.from_text(saved), loaded)
        with mock.patch.object(result_budget, "MAX_STATE_CHARS", len(saved) - 1), self.assertRaises(BudgetError):
            ReplacementState.from_text(saved)

    def test_the_published_limits_are_these(self) -> None:
        """A hundred thousand ids of a conversation, and half a thousand million characters of its state."""
        self.assertEqual((result_budget.MAX_SEEN, result_budget.MAX_STATE_CHARS), (100_000, 500_000_000))

    def test_when_the_disk_refuses_the_message_stays_whole_and_says_so(self) -> None:
        """All candidates are tried once, all are frozen whole, later turns send the same. Claims: C8-081."""
        messages = turn(result("1", "x" * 150_000), result("2", "y" * 60_000))
        with mock.patch.object(os, "fsync", side_effect=OSError(28, "full")):
            sent, report = self.budget.apply(messages)
        (group,) = report.groups
        self.assertEqual((group.failed, group.replaced, group.kept), (("1", "2"), (), ("1", "2")))
        self.assertTrue(report.over_limit)
        self.assertEqual(self.budget.state.replacements, {})
        self.assertEqual(self.budget.state.seen_ids, {"1", "2"})
        self.assertEqual(self.budget.apply(messages)[0], sent)

    def test_when_one_file_fails_the_next_largest_is_taken(self) -> None:
        """The limit is still met if it can be. Claims: C8-081."""
        save = self.store.save

        def failing(text: str) -> Any:
            if text.startswith("x"):
                raise ResultStoreError("result_not_stored")
            return save(text)

        with mock.patch.object(self.store, "save", side_effect=failing):
            group = self.only_group(turn(result("1", "x" * 150_000), result("2", "y" * 60_000)))
        self.assertEqual((group.failed, group.replaced, group.over_limit), (("1",), ("2",), False))

    def test_an_id_with_another_content_is_reported(self) -> None:
        """No preview stands in for something else: the new content is a result of its own, the decision stays."""
        first = turn(result("1", "x" * 250_000), result("2", "y"))
        self.budget.apply(first)
        decided = dict(self.budget.state.replacements)
        other = turn(result("1", "z" * 1_000), result("2", "other"))
        sent, report = self.budget.apply(other)
        self.assertEqual(sent_contents(sent), {"1": "z" * 1_000, "2": "other"})
        self.assertEqual(report.groups[0].changed, ("1", "2"))
        self.assertEqual(self.events[-2:], [("result_changed", {"call_id": call_id}) for call_id in "12"])
        self.assertEqual(self.budget.state.replacements, decided)
        self.assertEqual(self.budget.shape_result("1", "Bash", "new").content, "new")

    def test_a_changed_result_is_decided_about_like_any_other(self) -> None:
        """It is fresh, so that the largest of both makes room; then its fate stands beside the first one's."""
        self.budget.apply(turn(result("1", "x" * 250_000)))
        both = turn(result("1", "z" * 150_000), result("2", "y" * 60_000))
        group = self.only_group(both)
        self.assertEqual((group.changed, group.replaced, group.over_limit), (("1",), ("1",), False))
        sent = self.budget.apply(both)[0]
        again = ResultBudget(self.budget.store, state=ReplacementState.from_text(self.budget.state.to_text()))
        self.assertEqual(again.apply(both)[0], sent)
        self.assertEqual(again.apply(both)[1].groups[0].must_reapply, ("1",))
        self.assertEqual(len(self.budget.state.seen_ids), 3)

    def test_nothing_passes_a_limit_by_the_name_of_its_call(self) -> None:
        """A second result under a decided id is stored and previewed like the first, at both layers."""
        for first in ("A" * 10, "A" * 60_000):
            budget = ResultBudget(self.budget.store)
            messages = turn(result("call_0", first))
            budget.shape_result("call_0", "Bash", first)
            budget.apply(messages)
            shaped = budget.shape_result("call_0", "Bash", "B" * 5_000_000)
            self.assertLessEqual(len(shaped.content), PREVIEW_CHARS)
            assert shaped.stored is not None
            self.assertEqual(self.budget.store.read(shaped.stored.path, 0, 2), "BB")
            self.assertEqual(budget.shape_result("call_0", "Bash", "B" * 5_000_000).content, shaped.content)
            third = budget.shape_result("call_0", "Bash", "C" * 5_000_000)
            self.assertNotEqual(third.content, shaped.content)
            group = budget.apply([*messages, *turn(result("call_0", "B" * 5_000_000))])[1].groups[-1]
            self.assertLessEqual(group.size_after, PREVIEW_CHARS)

    def test_empty_results_of_a_transcript_become_visible(self) -> None:
        """With the tool's name from its call, the other fields kept, one event in the first turn only.

        Claims: C8-069, C8-070, C8-074.
        """
        blocks = [
            result(str(n), content) for n, content in enumerate((None, "", " ", [], [{"type": "text", "text": ""}]))
        ]
        blocks.append({"type": "tool_result", "tool_use_id": "missing", "is_error": False, "cache": {"a": 1}})
        blocks.append(result("error", "", is_error=True))
        messages = turn(*blocks, name="mkdir")
        sent, _ = self.budget.apply(messages)
        marker = "(mkdir completed with no output)"
        expected = {**{str(n): marker for n in range(5)}, "missing": marker, "error": "(mkdir failed with no message)"}
        self.assertEqual(sent_contents(sent), expected)
        self.assertEqual(sent[1]["content"][5]["cache"], {"a": 1})
        self.assertEqual(len(self.events), 7)
        self.assertEqual(self.budget.apply(messages)[0], sent)
        self.assertEqual(len(self.events), 7)

    def test_only_a_call_names_the_tool_of_a_result(self) -> None:
        """Another block with the same id and a name says nothing about it; a call that lacks one has no name."""
        messages = turn(result("1", ""), result("2", ""), result("3", ""), name="mkdir")
        no_name: list[Any] = [{"type": "tool_use", "id": "2"}, {"type": "tool_use", "id": "3", "name": 7}]
        odd = [{"type": "note", "id": "1", "name": "other"}, {"type": "tool_use", "name": "other"}]
        messages[0]["content"] = [call("1", "mkdir"), *odd, *no_name]
        sent, _ = self.budget.apply(messages)
        texts = ["(mkdir completed with no output)", *["(tool completed with no output)"] * 2]
        self.assertEqual(sent_contents(sent), dict(zip("123", texts, strict=True)))

    def test_the_transcript_is_not_changed(self) -> None:
        """What comes out is a copy at every depth, what went in is as before."""
        messages = turn(result("1", "x" * 250_000), result("2", [{"type": "text", "text": "y"}]))
        before = canonical(messages)
        sent, _ = self.budget.apply(messages)
        sent[1]["content"][1]["content"][0]["text"] = "changed"
        sent[0]["content"][0]["input"]["new"] = 1
        self.assertEqual(canonical(messages), before)

    def test_a_refused_transcript_decides_nothing(self) -> None:
        """Two results for one call, a content that is no JSON, too many ids: all or nothing."""
        good = turn(result("1", "x" * 250_000))
        for bad in (turn(result("2", "x"), result("2", "y")), turn(result("2", math.nan))):
            with self.assertRaises(BudgetError):
                self.budget.apply(good + bad)
            self.assertEqual(self.budget.state, ReplacementState())
        with mock.patch.object(result_budget, "MAX_SEEN", 1):
            with self.assertRaisesRegex(BudgetError, "^state_full$"):
                self.budget.apply(good + turn(result("2", "x")))
            self.assertEqual(self.budget.state, ReplacementState())
            self.new_budget(state=ReplacementState()).apply(turn(result("2", "x")))  # one is as many as there may be
            self.budget.state.decide("0", SeenResult("0" * 64, 1), None)
            with self.assertRaises(BudgetError):
                self.budget.shape_result("1", "Bash", "x" * 60_000)
        self.assertEqual(os.listdir(self.folder / "results"), [])

    def test_a_fate_is_decided_once(self) -> None:
        """The state itself refuses a second decision. Claims: C8-060."""
        state = ReplacementState()
        state.decide("1", SeenResult("0" * 64, 1), None)
        with self.assertRaises(BudgetError):
            state.decide("1", SeenResult("0" * 64, 1, "p"), "replacement")
        self.assertEqual(state.replacements, {})
        with mock.patch.object(result_budget, "MAX_SEEN", 1), self.assertRaises(BudgetError) as caught:
            state.decide("2", SeenResult("0" * 64, 1), None)
        self.assertEqual(caught.exception.code, "state_full")
        self.assertEqual(state.seen_ids, {"1"})

    def test_without_a_prompt_cache_the_choice_needs_no_state(self) -> None:
        """A new state each turn chooses anew among all results of a message, and may replace what was whole.

        Claims: C8-084.
        """
        messages = turn(result("1", "x" * 150_000))
        self.budget.apply(messages)
        messages.append({"role": "user", "content": [result("2", "y" * 60_000)]})
        self.assertEqual(self.only_group(messages).replaced, ("2",))
        _, report = self.new_budget().apply(messages)
        self.assertEqual(report.groups[0].replaced, ("1",))


class OtherTypes(FolderTestCase):
    """What are no limits, no names and no messages is refused, and nothing is decided."""

    def test_limits_that_are_no_mapping_of_names_are_refused(self) -> None:
        """A list of pairs would be taken apart by `dict`, and a number would be a `TypeError`."""
        store = ResultStore(self.folder / "results")
        for wrong in (5, "ab", [("read", 5)], {1: 5}, {"": 5}, [], 0):
            with self.subTest(wrong=wrong), self.assertRaises(BudgetError):
                ResultBudget(store, tool_limits=wrong)  # type: ignore[arg-type]
            with self.subTest(wrong=wrong), self.assertRaises(BudgetError):
                ResultBudget(store, overrides=wrong)  # type: ignore[arg-type]

    def test_names_and_messages_of_another_type_are_refused(self) -> None:
        """Also a role that is no text, such as one whose comparison fails."""

        class NoComparison:
            __hash__ = object.__hash__

            def __eq__(self, other: object) -> bool:
                raise AssertionError("nobody compares it")

        budget = ResultBudget(ResultStore(self.folder / "results"))
        self.assertEqual(budget.threshold("x" * MAX_TEXT), 50_000)
        no_names: list[Any] = [None, 1, [], {}, "x" * (MAX_TEXT + 1)]
        no_messages: list[Any] = [
            None, 5, "ab", {"role": "user"}, iter([]), [{"role": NoComparison()}], [{"role": ["user"]}],
        ]  # fmt: skip
        doors: list[tuple[Callable[[Any], object], list[Any]]] = [
            (budget.threshold, no_names),
            (budget.exempt, no_names),
            (lambda name: budget.shape_result("1", name, [{"type": "image"}]), no_names),
            (threshold, [NoComparison()]),
            (budget.apply, no_messages),
        ]
        for ask, values in doors:
            for wrong in values:
                with self.subTest(wrong=type(wrong)), self.assertRaises(BudgetError):
                    ask(wrong)
        self.assertEqual(budget.state.seen_ids, set())


if __name__ == "__main__":
    unittest.main()
