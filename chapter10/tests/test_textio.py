"""What a person sees: columns that line up, pictures that parse, streams that do not crash."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import unittest
from functools import partial
from unittest import mock

from chapter10.database import StoreError
from chapter10.lab.console.textio import (
    MAX_EVENTS,
    Event,
    display_width,
    json_text,
    main_guard,
    mermaid_label,
    mermaid_sequence,
    mermaid_state,
    pad,
    prepare_streams,
    text_lanes,
    text_states,
)
from chapter10.tests.support import ALONE, TOP, FolderTestCase, at_once, child_environment, run_python

NASTY = 'a; b # c < d > e\nf\r\ng\u2028h "q" %% x'


class Columns(unittest.TestCase):
    """Text is padded by what a console shows."""

    def test_a_chinese_character_takes_two_places_and_a_combining_mark_none(self) -> None:
        """Width follows the console, not the number of characters."""
        for text, width in (("abc", 3), ("报表", 4), ("a报b", 4), ("e\u0301", 1), ("Ａ", 2), ("", 0)):
            with self.subTest(text=text):
                self.assertEqual(display_width(text), width)

    def test_padding_fills_up_and_never_cuts(self) -> None:
        """A text that is too long stays whole."""
        self.assertEqual(pad("报表", 6), "报表  ")
        self.assertEqual(pad("报表", 3), "报表")

    def test_lanes_line_up_whatever_the_script(self) -> None:
        """Every cell of a lane begins at the same place of the console."""
        lanes = text_lanes([Event(0, "甲", "提交", "作业 1"), Event(1, "worker", "claim(1)", "1")]).split("\n")
        self.assertEqual(lanes[0], "t     甲         worker")
        starts = {display_width(line[: line.rindex(cell)]) for line, cell in zip(lanes[2:], "||c-", strict=True)}
        self.assertEqual(starts, {17})

    def test_each_event_is_one_line_and_its_outcome_another(self) -> None:
        """The waiting lanes show a bar; no line ends in spaces; line breaks inside a text are gone."""
        lanes = text_lanes([Event(0, "a", "asks\nthis", "yes"), Event(1, "b", "waits")])
        self.assertEqual(
            lanes,
            "t     a          b\n----  ---------  -----\n"
            "0     asks this  |\n      -> yes     |\n1     |          waits",
        )

    def test_no_events_give_no_lanes(self) -> None:
        """An empty list is not an empty table."""
        self.assertEqual(text_lanes([]), "")

    def test_a_picture_has_a_bound(self) -> None:
        """A thousand events may be drawn, one more is refused."""
        events = [Event(number, "a", "x") for number in range(MAX_EVENTS + 1)]
        for draw in (text_lanes, lambda shown: mermaid_sequence(shown, "b")):
            with self.subTest(draw=draw):
                draw(events[:-1])
                with self.assertRaises(ValueError):
                    draw(events)
        edges = [(str(number), "b", "x") for number in range(MAX_EVENTS + 1)]
        for draw_states in (text_states, mermaid_state):
            with self.assertRaises(ValueError):
                draw_states(edges)


class Mermaid(unittest.TestCase):
    """Nothing that an event says can break the page."""

    def test_a_label_holds_none_of_the_known_breakers(self) -> None:
        """`;`, `#`, `<`, `>` and line breaks become character codes or spaces; so do quotes and comments."""
        label = mermaid_label(NASTY)
        self.assertEqual(label, "a#59; b #35; c #60; d #62; e f g h #34;q#34; #37;#37; x")
        self.assertIsNone(re.search(r'[;#<>\n\r"%]', re.sub(r"#\d+;", "", label)))

    def test_the_word_end_is_no_keyword_in_a_label(self) -> None:
        """It is written so that a parser cannot take it for its own, and a reader still sees it."""
        for word in ("end", "End", " end "):
            with self.subTest(word=word):
                self.assertEqual(mermaid_label(word).replace("#110;", "n"), word.strip())
                self.assertNotIn("end", mermaid_label(word).casefold())

    def test_a_label_is_never_empty(self) -> None:
        """A message without text would not parse."""
        self.assertEqual(mermaid_label(" \n "), "-")

    def test_a_sequence_uses_ids_of_its_own(self) -> None:
        """An actor may have any name, also one that is a keyword."""
        drawn = mermaid_sequence([Event(1, "end", "x;y"), Event(2, "worker A", "z", "done")], "store")
        self.assertEqual(
            drawn.split("\n"),
            [
                "sequenceDiagram",
                "    participant p0 as e#110;d",
                "    participant p1 as worker A",
                "    participant p2 as store",
                "    p0->>p2: 1 x#59;y",
                "    p1->>p2: 2 z",
                "    p2-->>p1: done",
            ],
        )

    def test_states_are_drawn_once_with_start_and_end(self) -> None:
        """Equal transitions are one edge; a colon in a label cannot end it; the text twin says the same."""
        edges = [("", "end", "go"), ("end", "b", "failed: x"), ("end", "b", "failed: x"), ("b", "", "")]
        self.assertEqual(
            mermaid_state(edges).split("\n"),
            [
                "stateDiagram-v2",
                '    state "e#110;d" as s0',
                '    state "b" as s1',
                "    [*] --> s0: go",
                "    s0 --> s1: failed#58; x",
                "    s1 --> [*]",
            ],
        )
        self.assertEqual(text_states(edges), "o   -> end  go\nend -> b    failed: x\nb   -> o")


class Streams(FolderTestCase):
    """Output survives every console, and JSON stays JSON."""

    def test_json_is_escaped_only_where_the_encoding_lacks_a_character(self) -> None:
        """The value that arrives is the same in every encoding."""
        value = {"query": "报表 \U0001f600", "none": None}
        for encoding in ("utf-8", "cp936", "cp1252", "ascii", None, "no-such-encoding"):
            with self.subTest(encoding=encoding):
                text = json_text(value, encoding)
                self.assertEqual(json.loads(text), value)
                self.assertEqual("报表" in text, encoding == "utf-8")
        self.assertIn("报表", json_text({"query": "报表"}, "cp936"))

    def test_a_lone_surrogate_in_a_value_is_still_json(self) -> None:
        """What a shell handed over in a wrong encoding does not crash the printing."""
        self.assertEqual(json.loads(json_text({"x": "\udcff"})), {"x": "\udcff"})

    def test_a_character_that_the_console_lacks_is_an_escape(self) -> None:
        """`prepare_streams` changes the errors of the streams and leaves their encoding."""
        for encoding in ("cp936", "cp1252", "ascii", "utf-8"):
            with self.subTest(encoding=encoding):
                console = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
                with contextlib.redirect_stdout(console):
                    prepare_streams()
                    print("\u2713 报表", flush=True)
                self.assertEqual(console.encoding, encoding)
                escaped = "\u2713 报表".encode(encoding, "backslashreplace")
                self.assertEqual(console.buffer.getvalue(), escaped + b"\n")
        code = "from chapter10.lab.console.textio import *\nprepare_streams()\nprint('\\u2713 报表')"
        done = run_python(["-c", code], environment={"PYTHONIOENCODING": "ascii"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "\\u2713 \\u62a5\\u8868\n", ""))

    def test_each_ending_of_a_program_has_its_exit_code(self) -> None:
        """A result, a broken machine, an interruption and a bug are four different things."""
        for ending, code, said in (
            (mock.Mock(return_value=1), 1, ""),
            (mock.Mock(side_effect=StoreError("store_busy", "held")), 3, "store_busy: held\n"),
            (mock.Mock(side_effect=OSError("disk full")), 3, "the machine failed: disk full\n"),
            (mock.Mock(side_effect=KeyboardInterrupt), 130, ""),
            (mock.Mock(side_effect=SystemExit(2)), 2, ""),
        ):
            with self.subTest(code=code, said=said), contextlib.redirect_stderr(io.StringIO()) as errors:
                with self.assertRaises(SystemExit) as left:
                    main_guard(ending)
                self.assertEqual((left.exception.code, errors.getvalue()), (code, said))
        head = "from chapter10.database import StoreError\nfrom chapter10.lab.console.textio import main_guard\n"
        errors_raised = ("StoreError('store_busy', 'held')", "ZeroDivisionError")
        programs = (f"{head}def main():\n    raise {error}\nmain_guard(main)" for error in errors_raised)
        broken, bug = at_once(*(partial(run_python, ["-c", program]) for program in programs))
        self.assertEqual((broken.returncode, broken.stderr), (3, "store_busy: held\n"))
        self.assertEqual(bug.returncode, 1)
        self.assertIn("Traceback", bug.stderr)

    @unittest.skipUnless(os.name == "posix", "needs a descriptor that can be closed")
    def test_a_program_without_streams_has_its_exit_code(self) -> None:
        """Standard output and error were closed before it began: nobody hears it, and it ends as it would."""
        head = "from chapter10.lab.console.textio import main_guard\ndef main():\n    print('x')\n    "
        start = "import os, sys\nos.close(1)\nos.close(2)\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        endings = ("return 1", "raise OSError('disk full')")
        programs = (["-c", start, "-c", f"{head}{ending}\nmain_guard(main)"] for ending in endings)
        done = at_once(*(partial(run_python, program) for program in programs))
        self.assertEqual([(1, "", ""), (3, "", "")], [(d.returncode, d.stdout, d.stderr) for d in done])

    def test_a_reader_who_closes_the_pipe_is_no_failure(self) -> None:
        """A pager that was left early gives exit code 0 and no word on standard error."""
        code = (
            "import sys\nfrom chapter10.lab.console.textio import main_guard\n"
            "def main():\n    sys.stdin.readline()\n    print('x' * int(sys.argv[1]))\n    return 1\nmain_guard(main)"
        )

        def leave(size: str, unbuffered: str) -> tuple[bytes, int]:
            with subprocess.Popen(
                [sys.executable, *ALONE, "-c", code, size],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=TOP,
                env=child_environment({"PYTHONUNBUFFERED": unbuffered}),
            ) as child:
                assert child.stdin is not None and child.stdout is not None and child.stderr is not None
                child.stdout.close()
                child.stdin.write(b"go on\n")
                child.stdin.close()
                return child.stderr.read(), child.wait()

        sizes = ("10", "1000000")  # one fits into the buffer and fails at the flush, the other at once
        ended = at_once(*(partial(leave, size, unbuffered) for size in sizes for unbuffered in ("", "1")))
        self.assertEqual([(b"", 0)] * 4, ended)


if __name__ == "__main__":
    unittest.main()
