"""Guess, run, compare: the questions about an experiment, and the loop that asks them.

An `Area` is what a reader is asked about one experiment: a scene in five lines, two or three `Question`s
with lettered options, and one thing to change afterwards. `predict` prints the scene, asks, runs, shows
the result and the order of events, and puts each guess beside what happened, with the reason, the
section, the line of code and the command of the test.

What holds
    P1  The right letter is never stored. `truth` computes it from the result of this very run, so it
        follows the code and the flags; an outcome that no option names is said to be none of them.
    P2  The places in the code are looked up from the functions themselves, never written down.
    P3  It never blocks: without a terminal and without `--answers` the guesses are `-` and the run goes
        on. An empty line skips one question, Ctrl-C or the end of the input the rest.
    P4  There is no score. Guesses are kept in `predictions.json` unless the reader says otherwise, and
        a folder that cannot be written does not disturb the run.

An area is data and belongs to whoever owns the experiment; the run is handed in as a function. A program
offers the loop with `add_options`, `refuse_what_does_not_combine` and `predict_group`.

Source: the chapter's section on its five experiments, "guess first" (claims C10-263 to C10-267, C10-277).
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from chapter10.canonical import canonical
from chapter10.lab.console.strings import LANGUAGES, Text, choose_language, say
from chapter10.lab.console.textio import EXIT_FINE, Event, display_width, pad
from chapter10.lab.console.workplace import save_text, work_folder
from chapter10.lab.evidence.telling import COLUMNS, half, narrow_lanes

__all__ = [
    "NO_GUESS",
    "Area",
    "Outcome",
    "Question",
    "add_options",
    "field_of",
    "place_of",
    "predict",
    "predict_group",
    "read_answers",
    "reason_for",
    "refuse_what_does_not_combine",
    "saved_guesses",
    "with_answers",
]

NO_GUESS: Final = "-"

_MAX_TRIES: Final = 3
"""How often a line that is no letter is asked for again, before the question counts as skipped."""
_MAX_SHOWN: Final = 88
"""Places of one value in the table of the result; a longer one is cut."""
_FILE: Final = "predictions.json"

Outcome = tuple[Any, Sequence[tuple[str, Sequence[Event]]]]
"""What a run hands back: its structured result, and its events in parts, `(title, events)` each."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question about a run.

    `name`: id, unique in its area. `options`: letter -> text, two to four. `truth`: the letter by the
    result, or "" if no option names what happened. `shows`: the places of the result that decide it, as
    `field_of` takes them. `reason`: why, or a function of the result that says it.
    `section`: the heading in the chapter. `code`: the function that decides it. `test`: the test that
    proves it, as `module.Class.name` below `chapter10.tests`.
    """

    name: str
    ask: Text
    options: Mapping[str, Text]
    truth: Callable[[Any], str]
    shows: tuple[str, ...]
    reason: Text | Callable[[Any], Text]
    section: str
    code: Callable[..., Any]
    test: str


@dataclass(frozen=True, slots=True)
class Area:
    """What a reader is asked about one experiment.

    `name`: that of the group. `scene`: up to five lines. `code`: the functions that will run.
    `change`: a command that changes one thing, and why it is worth a second guess. `pictures`: the English
    titles of the parts whose order of events is shown; all of them if empty.
    """

    name: str
    title: Text
    scene: tuple[Text, ...]
    code: tuple[Callable[..., Any], ...]
    questions: tuple[Question, ...]
    change: tuple[str, Text]
    pictures: tuple[str, ...] = ()


# The command line --------------------------------------------------------------------------------


def with_answers(arguments: Sequence[str] | None) -> list[str]:
    """Return the arguments (those of the process if None) with `--answers -,-` as one, which argparse splits."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for place in range(len(given) - 2, -1, -1):
        if given[place] == "--answers" and re.fullmatch(r"-(\s*,.*)?", given[place + 1]):
            given[place : place + 2] = [f"--answers={given[place + 1]}"]
    return given


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--predict`, `--answers`, `--no-save` and `--lang` to the parser of a program with groups."""
    asking = parser.add_argument_group("guess first")
    asking.add_argument("--predict", action="store_true", help="ask, then run, then compare")
    asking.add_argument("--answers", help="with --predict: letters such as b,a instead of asking; - skips")
    asking.add_argument("--no-save", action="store_true", help="with --predict: do not keep the guesses")
    asking.add_argument("--lang", choices=LANGUAGES, help="the language of what is said to a person")


def refuse_what_does_not_combine(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Leave with exit code 2 and one line for options of `add_options` that mean nothing alone.

    A program with `--json` tells a story in a language where nobody guesses.
    """
    if options.predict and options.group is None:
        parser.error("--predict needs --group")
    if options.predict and getattr(options, "json", False):
        parser.error("--predict asks a person and takes no --json")
    language = options.lang if "json" not in options else None
    for given, flag in ((options.answers is not None, "answers"), (options.no_save, "no-save"), (language, "lang")):
        if given and not options.predict:
            parser.error(f"--{flag} goes with --predict")


def predict_group(
    parser: argparse.ArgumentParser, options: argparse.Namespace, area: Area, run: Callable[[], Outcome]
) -> int:
    """Do what the options of `add_options` say for one group, in this terminal; return the exit code.

    Answers that do not fit the questions are a mistake of usage: `SystemExit` with code 2.
    """
    answers = None
    if options.answers is not None:
        try:
            answers = read_answers(area, options.answers)
        except ValueError as error:
            parser.error(f"--answers: {error}")
    return predict(
        area,
        run,
        language=choose_language(options.lang),
        answers=answers,
        ask=input if sys.stdin is not None and sys.stdin.isatty() else None,
        folder=None if options.no_save else work_folder(),
    )


def read_answers(area: Area, text: str) -> list[str]:
    """Return the guesses of `--answers`, one a question; missing ones are skipped.

    Raises `ValueError`, with one line as its text, for a letter that is no option or too many of them.
    """
    given = [part.strip().casefold() or NO_GUESS for part in text.split(",")] if text.strip() else []
    if len(given) > len(area.questions):
        raise ValueError(f"there are {len(area.questions)} questions")
    for number, (guess, question) in enumerate(zip(given, area.questions, strict=False), 1):
        if guess != NO_GUESS and guess not in question.options:
            raise ValueError(f"question {number} has the options {', '.join(question.options)}")
    return given + [NO_GUESS] * (len(area.questions) - len(given))


# The loop ----------------------------------------------------------------------------------------


def predict(
    area: Area,
    run: Callable[[], Outcome],
    *,
    language: str = "en",
    answers: Sequence[str] | None = None,
    ask: Callable[[str], str] | None = None,
    folder: Path | None = None,
    out: TextIO | None = None,
) -> int:
    """Print the scene, ask, run, and compare; return the exit code 0.

    `run`: makes the run and returns its outcome; what it raises is raised. `answers`: one guess a
    question, instead of asking. `ask`: prints a prompt and returns a line, as `input` does; None where
    nobody can type. `folder`: where the guesses are kept; None keeps nothing. `out`: standard output if None.
    """
    page = _Page(sys.stdout if out is None else out, language)
    page.opening(area)
    if answers is None and ask is None:
        page.line(say("predict.silent", language))
    guesses = _guesses(page, area, answers, ask)
    result, parts = run()
    page.outcome(area, result, parts)
    for number, (question, guess) in enumerate(zip(area.questions, guesses, strict=True), 1):
        page.comparison(number, question, guess, result)
    command, why = area.change
    page.line()
    page.line(say("predict.change", language))
    page.line(f"  {command}")
    for text in why.in_language(language).split("\n"):
        page.line(f"  {text}")
    if folder is not None and any(guess != NO_GUESS for guess in guesses):
        page.line()
        page.line(_save(folder / _FILE, area, guesses, language))
    return EXIT_FINE


def _guesses(page: _Page, area: Area, answers: Sequence[str] | None, ask: Callable[[str], str] | None) -> Sequence[str]:
    guesses = []
    asking = ask if answers is None else None
    for number, question in enumerate(area.questions, 1):
        page.question(number, question)
        guess = NO_GUESS if answers is None else answers[number - 1]
        if asking is not None:
            try:
                guess = _ask(page, question, asking)
            except (KeyboardInterrupt, EOFError):
                page.line()
                asking = None
        guesses.append(guess)
    return guesses


def _ask(page: _Page, question: Question, ask: Callable[[str], str]) -> str:
    letters = "/".join(question.options)
    for _ in range(_MAX_TRIES):
        # The prompt is one of ours: an escape for what the console lacks, as in everything else.
        page.out.write(f"   {say('predict.choose', page.language, letters=letters)} ")
        page.out.flush()
        typed = ask("").strip().casefold().strip(".")
        if not typed or typed == NO_GUESS:
            return NO_GUESS
        if typed in question.options:
            return typed
        page.line(f"   {say('predict.unknown', page.language, letters=letters)}")
    return NO_GUESS


class _Page:
    """What the loop prints, in one language."""

    def __init__(self, out: TextIO, language: str) -> None:
        self.out = out
        self.language = language

    def line(self, text: str = "") -> None:
        self.out.write(text + "\n")

    def opening(self, area: Area) -> None:
        self.line(f"== {area.name}: {area.title.in_language(self.language)}")
        for text in area.scene:
            self.line(f"   {text.in_language(self.language)}")
        self.line()
        self.line(say("predict.code", self.language))
        for function in area.code:
            self.line(f"   {place_of(function)}  {function.__qualname__}")

    def question(self, number: int, question: Question) -> None:
        self.line()
        self.line(f"{number}. {question.ask.in_language(self.language)}")
        for letter, text in question.options.items():
            self.line(f"   {letter}) {text.in_language(self.language)}")

    def outcome(self, area: Area, result: Any, parts: Sequence[tuple[str, Sequence[Event]]]) -> None:
        self.line()
        self.line(say("predict.run", self.language))
        rows = list(result.items()) if isinstance(result, Mapping) else [("result", result)]
        width = max((display_width(str(name)) for name, _ in rows), default=0)
        for name, value in rows:
            self.line(f"   {pad(str(name), width)}  {_short(value)}")
        drawn = [(title, events) for title, events in parts if events]
        shown = [part for part in drawn if not area.pictures or half(part[0], "en") in area.pictures]
        if shown:
            self.line()
            self.line(say("predict.timeline", self.language))
        for title, events in shown:
            if title:
                self.line(f"   -- {half(title, self.language)}")
            for text in narrow_lanes(events, COLUMNS - 3):
                self.line(f"   {text}")
        if len(shown) < len(drawn):
            self.line(f"   {say('predict.more', self.language, count=len(drawn) - len(shown))}")

    def comparison(self, number: int, question: Question, guess: str, result: Any) -> None:
        language = self.language
        truth = question.truth(result)
        if number == 1:
            self.line()
            self.line(say("predict.compare", language))
        verdict = "no_guess" if guess == NO_GUESS else "same" if guess == truth else "different"
        options = question.options
        named = f"{truth}) {options[truth].in_language(language)}" if truth else say("predict.no_option", language)
        yours = f"{guess}) {options[guess].in_language(language)}" if guess in options else NO_GUESS
        self.line(f"{number}. {question.ask.in_language(language)}   -> {say(f'predict.{verdict}', language)}")
        labels = ("guess", "result", "reason", "section", "function", "test")
        width = max(display_width(say(f"predict.{label}", language)) for label in labels)
        shown = [f"{name} = {_short(field_of(result, name))}" for name in question.shows]
        for label, text in (
            ("guess", yours),
            ("result", "\n".join([named, *shown])),
            ("reason", reason_for(question, result).in_language(language)),
            ("section", half(question.section, language)),
            ("function", f"{place_of(question.code)}  {question.code.__qualname__}"),
            ("test", f"python -m unittest chapter10.tests.{question.test}"),
        ):
            first, *rest = text.split("\n")
            self.line(f"   {pad(say(f'predict.{label}', language), width)}  {first}")
            for line in rest:
                self.line(f"   {' ' * width}  {line}")


# Helpers -----------------------------------------------------------------------------------------


def field_of(result: Any, place: str) -> Any:
    """Return `result["a"][0]["b"]` for the place `a.0.b`. Raises `KeyError` or `IndexError` if it is not there."""
    for key in place.split("."):
        result = result[int(key)] if isinstance(result, list) else result[key]
    return result


def reason_for(question: Question, result: Any) -> Text:
    """Return why the result is as it is."""
    return question.reason if isinstance(question.reason, Text) else question.reason(result)


def place_of(function: Callable[..., Any]) -> str:
    """Return `chapter10/file.py:line` of a function, a method or a class of this package."""
    target = inspect.unwrap(function)
    path = Path(inspect.getsourcefile(target) or "").resolve()
    line = target.__code__.co_firstlineno if inspect.isfunction(target) else inspect.getsourcelines(target)[1]
    top = Path(__file__).resolve().parents[3]
    return f"{path.relative_to(top).as_posix()}:{line}"


def _short(value: Any) -> str:
    text = canonical(value)
    if len(text) > _MAX_SHOWN and isinstance(value, list) and all(isinstance(row, Mapping) for row in value):
        text = f"{len(value)} x {{{', '.join(value[0])}}}"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def saved_guesses(folder: Path) -> dict[str, Any]:
    """Return the guesses that are kept in a folder: area -> question -> letter; none if there are none."""
    try:
        kept = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # a first guess, or a file that somebody else wrote over
    return kept if isinstance(kept, dict) else {}


def _save(path: Path, area: Area, guesses: Sequence[str], language: str) -> str:
    """Keep the guesses beside those of other areas; return the line that says so, or why not."""
    kept = saved_guesses(path.parent)
    kept[area.name] = {question.name: guess for question, guess in zip(area.questions, guesses, strict=True)}
    try:
        save_text(path, json.dumps(kept, ensure_ascii=True, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        return say("predict.not_saved", language, reason=error.strerror or type(error).__name__)
    return say("predict.saved", language, path=path)
