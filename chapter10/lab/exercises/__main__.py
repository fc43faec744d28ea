"""The chapter's fourteen exercises: `python -m chapter10 exercises`.

    python -m chapter10 exercises              all fourteen, and how far you are
    python -m chapter10 exercises start 6      puts the pristine file into my_work
    python -m chapter10 exercises check 6      looks at your file; one failure at a time
    python -m chapter10 exercises hint 6       the next of three hints; `hint 6 1` is the first again
    python -m chapter10 exercises next         the first that is not done, and its file
    python -m chapter10 exercises watch        the same, checked whenever you save it, and then the one after it
    python -m chapter10 exercises answer 6     one answer, once yours passes (or with --anyway)
    python -m chapter10 exercises reset 6      back to the pristine file; yours is kept beside it, each time

What is shown as done is worked out anew each time from the files; all that is remembered is how many hints of each
were read (`hints.json` beside them, until `reset`). A coding exercise
is judged in a child process (`lab.exercises.judge`) that is cut off after `CHECK_SECONDS`. Prose is not
judged: `check` says which headings are still empty.

Exit codes: 0 fine, 1 wrong, 2 not started (or usage), 3 the machine lacks something.
Source: the chapter's exercises (claims C10-299 to C10-313).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, NamedTuple

from chapter10.lab.console.strings import LANGUAGES, TABLE, choose_language, say
from chapter10.lab.console.textio import EXIT_FINE, EXIT_MACHINE, EXIT_USAGE, EXIT_WRONG, display_width, main_guard, pad
from chapter10.lab.console.workplace import ReadersFileError, read_text, save_text, work_folder
from chapter10.lab.exercises.book import CODE, EXERCISES, STEPS, Exercise
from chapter10.lab.exercises.checking import FAILED, NOT_STARTED, PASSED, in_chinese

__all__ = ["CHECK_SECONDS", "LOOK_SECONDS", "Report", "finished", "headings_of", "main", "report_on"]

CHECK_SECONDS: Final = 20
"""How long the check of one file may take before it is cut off."""

LOOK_SECONDS: Final = 0.5
"""Between two looks at a file that is watched."""

_BROKEN: Final = "broken"
_HINTS: Final = "hints.json"
_ROOT: Final = Path(__file__).resolve().parents[3]
_EXIT: Final = {PASSED: EXIT_FINE, FAILED: EXIT_WRONG, NOT_STARTED: EXIT_USAGE, _BROKEN: EXIT_MACHINE}
_HEADING: Final = re.compile(r"^## +(.+?)\s*$", re.MULTILINE)
_BEGINS: Final = re.compile(r"^begins (\w+)\r?$", re.MULTILINE)
"""What the judge says before each check."""
_PROGRAM: Final = "python -m chapter10 exercises"


class Report(NamedTuple):
    """How far one exercise is.

    `status`: passed, failed, not started, or broken (the machine). `lines`: one `(done, name)` for each
    check or heading, `done` None where it was not reached. `failure`: the failed check as the judge wrote
    it, or None. `printed`: what the file printed. `reason`: why the machine failed.
    """

    status: str
    lines: tuple[tuple[bool | None, str], ...] = ()
    failure: Mapping[str, Any] | None = None
    printed: str = ""
    reason: str = ""


# How far a reader is -----------------------------------------------------------------------------


def report_on(exercise: Exercise, path: Path, language: str = "en", seconds: float = CHECK_SECONDS) -> Report:
    """Look at the reader's file of one exercise, whether it exists or not; `seconds` bounds the child.

    Raises `OSError` when the file is there and cannot be read.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return Report(NOT_STARTED)
    except ReadersFileError as error:
        failure = _failure("file", path.name, error.code, "UTF-8", TABLE[f"file.{error.code}"])
        return Report(FAILED, failure=failure)
    if text == read_text(exercise.stub):
        return Report(NOT_STARTED)
    if exercise.kind == CODE:
        return _judged(exercise, path, language, seconds)
    lines = headings_of(text)
    done = [is_filled for is_filled, _ in lines]
    status = NOT_STARTED if not any(done) else PASSED if all(done) else FAILED
    return Report(status, tuple(lines))


def headings_of(text: str) -> list[tuple[bool, str]]:
    """Return `(is written, heading)` for each second-level heading of a Markdown text.

    What counts is a line under it that is neither blank nor a quotation nor a comment.
    """
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    found = list(_HEADING.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [
        (any(line.strip() and not line.startswith(">") for line in text[match.end() : end].splitlines()), match[1])
        for match, end in zip(found, ends, strict=False)
    ]


def _judged(exercise: Exercise, path: Path, language: str, seconds: float) -> Report:
    """Let a child process judge the file, and read its verdict from the last line of its output."""
    command = [sys.executable, "-m", "chapter10.lab.exercises.judge", str(exercise.number), str(path.resolve())]
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        child = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as cut_off:
        why = TABLE["exercises.timeout"].in_language(language, seconds=f"{seconds:g}")
        place = _last_begun(cut_off.stdout or b"")
        return Report(
            FAILED, failure=_failure(f"TIMEOUT {place}", f"the check {place}", "TIMEOUT", "it ends", (why, why))
        )
    except OSError as error:
        return Report(_BROKEN, reason=str(error))
    try:
        verdict = json.loads(child.stdout.rstrip("\n").rpartition("\n")[2])
        checks, status = verdict["checks"], verdict["status"]
    except (ValueError, KeyError, TypeError):
        if child.returncode == EXIT_MACHINE:
            return Report(_BROKEN, reason=child.stderr.strip())
        why = TABLE["exercises.ended"].in_language(language, code=child.returncode)
        failure = _failure("file", path.name, f"exit code {child.returncode}", "a verdict", (why, why))
        return Report(FAILED, failure=failure, printed=_BEGINS.sub("", child.stdout + child.stderr)[-4_000:])
    failed = verdict["failure"]["check"] if verdict["failure"] else None
    width = max(len(name) for name, _, _ in checks)
    lines = [
        (
            True if name in verdict["passed"] else False if name == failed else None,
            f"{name:<{width}}  {_in(text, language)}",
        )
        for name, *text in checks
    ]
    return Report(status, tuple(lines), verdict["failure"], verdict["printed"])


def _last_begun(output: bytes | str) -> str:
    """Return the check that the judge had begun when it was cut off: `file` while the file itself was run."""
    text = output if isinstance(output, str) else output.decode("utf-8", "backslashreplace")
    return ["file", *(found[1] for found in _BEGINS.finditer(text))][-1]


def _failure(check: str, called: str, got: str, expected: str, why: Sequence[str]) -> dict[str, Any]:
    return {"check": check, "called": called, "got": got, "expected": expected, "why": list(why), "claim": "C10-313"}


def _in(text: Sequence[str], language: str) -> str:
    return text[0] if language == "zh" else text[1]


# The commands ------------------------------------------------------------------------------------


def finished(exercise: Exercise, folder: Path) -> bool:
    """Does a reader's file pass, or is every heading of it written?"""
    return report_on(exercise, folder / exercise.filename).status == PASSED


class _Desk:
    """One reader at work: the folder and the language; each method is a command and returns the exit code."""

    def __init__(self, folder: Path, language: str, seconds: float) -> None:
        self.folder = folder
        self.language = language
        self.seconds = seconds

    def say(self, name: str, **values: object) -> None:
        print(say(f"exercises.{name}", self.language, **values))

    def remark(self, name: str, **values: object) -> None:
        print(f"     {say(f'exercises.{name}', self.language, **values)}")

    def next(self, *commands: str) -> None:
        self.say("next")
        for command in commands:
            print(f"  {_PROGRAM} {command}")

    def path(self, exercise: Exercise) -> Path:
        return self.folder / exercise.filename

    def report(self, exercise: Exercise) -> Report:
        return report_on(exercise, self.path(exercise), self.language, self.seconds)

    def overview(self) -> int:
        self.say("head", folder=self.folder)
        kinds = {kind: say(f"exercises.{kind}", self.language) for kind in ("concept", "code", "design")}
        titles = [exercise.title.in_language(self.language) for exercise in EXERCISES.values()]
        width = max(map(display_width, titles))
        for exercise, title in zip(EXERCISES.values(), titles, strict=True):
            report = self.report(exercise)
            mark = {PASSED: "[OK]", FAILED: "[X]"}.get(report.status, "[ ]")
            print(
                f"{mark:<4} {exercise.number:>2}  {pad(kinds[exercise.kind], 7)}  {pad(title, width)}  "
                f"{self.summary(exercise, report)}"
            )
        self.say("commands")
        return EXIT_FINE

    def upcoming(self) -> Exercise | None:
        """The first exercise that is not done; None when all are."""
        return next((exercise for exercise in EXERCISES.values() if not finished(exercise, self.folder)), None)

    def go_on(self) -> int:
        exercise = self.upcoming()
        if exercise is not None:
            return self.start(exercise)
        self.say("all_done")
        return EXIT_FINE

    def watch(self, wait: Callable[[float], object]) -> int:
        """Check the next file whenever it was saved, until all are done; `wait(seconds)` passes the time between."""
        exercise = self.upcoming()
        while exercise is not None:
            self.start(exercise)
            seen = None
            while True:
                now = _saved(self.path(exercise))
                if now != seen:
                    seen = now
                    if self.check(exercise) == EXIT_FINE:
                        break
                wait(LOOK_SECONDS)
            done = sum(finished(each, self.folder) for each in EXERCISES.values())
            self.say("so_far", done=done, total=len(EXERCISES))
            exercise = self.upcoming()
        self.say("all_done")
        return EXIT_FINE

    def summary(self, exercise: Exercise, report: Report) -> str:
        if report.status == _BROKEN:
            return say("exercises.broken", self.language, reason=report.reason)
        if report.status == NOT_STARTED:
            return say("exercises.not_started", self.language)
        if exercise.kind != CODE and report.lines:
            filled = sum(done is True for done, _ in report.lines)
            return say("exercises.written", self.language, filled=filled, total=len(report.lines))
        if report.failure is not None:
            return say("exercises.failed", self.language, check=report.failure["check"])
        return say("exercises.passed", self.language)

    def start(self, exercise: Exercise) -> int:
        path = self.path(exercise)
        if path.exists():
            self.say("is_there", path=path)
        else:
            save_text(path, read_text(exercise.stub))
            self.say("started", path=path)
        self.say("edit")
        print(f"  {_PROGRAM} check {exercise.number}")
        return EXIT_FINE

    def reset(self, exercise: Exercise) -> int:
        path = self.path(exercise)
        kept = None
        if path.exists() and not _is_pristine(exercise, path):
            kept = _free_name(path)
            os.replace(path, kept)
        save_text(path, read_text(exercise.stub))
        read = self.hints_read()
        if read.pop(exercise.filename, 0):
            self.remember(read)
        self.say("reset", path=path)
        if kept is not None:
            self.remark("kept", path=kept)
        return EXIT_FINE

    def check(self, exercise: Exercise) -> int:
        report = self.report(exercise)
        number = exercise.number
        for done, line in report.lines:
            failed = done is False and exercise.kind == CODE
            print(f"{'[OK]' if done else '[X]' if failed else '[ ]':<4} {line}")
        if report.status == _BROKEN:
            self.say("broken", reason=report.reason)
            self.say("doctor")
        elif report.status == NOT_STARTED:
            is_there = self.path(exercise).exists()
            self.say("nothing_yet", number=number)
            if is_there:
                self.remark("untouched", path=self.path(exercise))
            self.next(f"check {number}" if is_there else f"start {number}", f"hint {number}")
        elif report.failure is not None:
            self.failure(report)
            self.next(f"check {number}", f"hint {number}")
        elif report.status == FAILED:
            self.say("to_write", count=sum(not done for done, _ in report.lines))
            self.next(f"check {number}", f"hint {number}")
        else:
            self.say("all_pass" if exercise.kind == CODE else "all_written", number=number)
            self.next(f"answer {number}", *([f"start {number + 1}"] if number + 1 in EXERCISES else []))
        return _EXIT[report.status]

    def failure(self, report: Report) -> None:
        failure = report.failure or {}
        labels = ("called", "got", "expected", "why", "claim")
        width = max(display_width(say(f"exercises.{label}", self.language)) for label in labels)
        print()
        print(f"[X] {failure['check']}")
        for label in labels:
            text = _in(failure["why"], self.language) if label == "why" else failure[label]
            if self.language == "zh" and label in ("called", "got", "expected"):
                text = in_chinese(text, value=label == "got")
            first, *rest = text.split("\n")
            print(f"    {pad(say(f'exercises.{label}', self.language), width)}  {first}")
            for line in rest:
                print(f"    {' ' * width}  {line}")
        if failure.get("lanes"):
            print()
            self.say("lanes")
            for line in failure["lanes"].splitlines():
                print(f"    {line}")
        if report.printed.strip():
            print()
            self.say("printed")
            for line in report.printed.rstrip().splitlines():
                print(f"    {line}")
        print()

    def hint(self, exercise: Exercise, wanted: int | None) -> int:
        read = self.hints_read()
        step = wanted or min(read.get(exercise.filename, 0) + 1, STEPS)
        self.remember({**read, exercise.filename: step})
        text = exercise.hints[step - 1].in_language(self.language)
        self.say("hint", step=step, steps=STEPS, text=text)
        if step < STEPS:
            self.say("hints_left", left=STEPS - step)
            self.next(f"hint {exercise.number}")
        else:
            self.say("no_hints_left")
        return EXIT_FINE

    def hints_read(self) -> dict[str, int]:
        """How many hints of each exercise were read; a file that somebody else wrote over counts for none."""
        try:
            kept = json.loads(read_text(self.folder / _HINTS))
        except (OSError, ValueError):
            return {}
        steps = kept.items() if isinstance(kept, dict) else ()
        return {name: step for name, step in steps if type(step) is int and 0 <= step <= STEPS}

    def remember(self, read: Mapping[str, int]) -> None:
        # A folder that cannot be written is no reason to keep a hint back.
        with contextlib.suppress(OSError):
            save_text(self.folder / _HINTS, json.dumps(read, indent=2, sort_keys=True) + "\n")

    def answer(self, exercise: Exercise, anyway: bool) -> int:
        if not anyway:
            report = self.report(exercise)
            may_look = report.status == PASSED or (exercise.kind != CODE and report.status == FAILED)
            if not may_look:
                self.say("no_answer_yet")
                print(f"  {_PROGRAM} answer {exercise.number} --anyway")
                return _EXIT[report.status]
        print(read_text(exercise.answer).rstrip("\n"))
        return EXIT_FINE


def _saved(path: Path) -> tuple[int, int] | None:
    """When a file was saved last and how long it is, or None while there is none, as when an editor replaces it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _is_pristine(exercise: Exercise, path: Path) -> bool:
    try:
        return read_text(path) == read_text(exercise.stub)
    except ReadersFileError:
        return False


def _free_name(path: Path) -> Path:
    """Return the first of `ex06_old.py`, `ex06_old2.py`, ... that no earlier reset has taken."""
    names = (path.with_name(f"{path.stem}_old{number}{path.suffix}") for number in chain([""], count(2)))
    return next(name for name in names if not name.exists())


def main(
    arguments: Sequence[str] | None = None,
    *,
    seconds: float = CHECK_SECONDS,
    wait: Callable[[float], object] = time.sleep,
) -> int:
    """Do what the arguments say (those of the process if None) and return the exit code.

    `seconds`: the limit for the check of one file. `wait`: passes the time between two looks of `watch`.
    """
    parser = argparse.ArgumentParser(prog=_PROGRAM, description="The chapter's fourteen exercises.", allow_abbrev=False)
    languages = argparse.ArgumentParser(add_help=False)
    languages.add_argument("--lang", choices=LANGUAGES, default=argparse.SUPPRESS, help="the language of the texts")
    parser.add_argument("--lang", choices=LANGUAGES, default=None, help="the language of the texts")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, purpose in (
        ("next", "the first that is not done"),
        ("watch", "check it whenever it is saved, then the one after it"),
        ("start", "put the pristine file into my_work"),
        ("check", "look at your file"),
        ("hint", "one of three hints"),
        ("answer", "one answer"),
        ("reset", "back to the pristine file"),
    ):
        command = commands.add_parser(name, help=purpose, parents=[languages])
        if name in ("next", "watch"):
            continue
        command.add_argument("number", type=int, choices=sorted(EXERCISES), metavar="N", help="1 to 14")
        if name == "hint":
            command.add_argument("step", type=int, choices=range(1, STEPS + 1), nargs="?")
        if name == "answer":
            command.add_argument("--anyway", action="store_true", help="before your own passes")
    options = parser.parse_args(arguments)
    desk = _Desk(work_folder(), choose_language(options.lang), seconds)
    if options.command is None:
        return desk.overview()
    if options.command == "next":
        return desk.go_on()
    if options.command == "watch":
        return desk.watch(wait)
    exercise = EXERCISES[options.number]
    if options.command == "hint":
        return desk.hint(exercise, options.step)
    if options.command == "answer":
        return desk.answer(exercise, options.anyway)
    return {"start": desk.start, "check": desk.check, "reset": desk.reset}[options.command](exercise)


if __name__ == "__main__":
    main_guard(main)
