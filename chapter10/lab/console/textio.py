"""What a person sees: streams that never crash, padded columns, lanes in text, pictures in Mermaid.

One list of `Event`s feeds every picture of a run, so that no picture shows something else than another,
and the text form always stands beside the Mermaid form.

- `text_lanes` is plain ASCII apart from what the events say; columns are padded by display width, in
  which a Chinese character takes two places.
- `mermaid_sequence` and `mermaid_state` replace what is known to break a Mermaid page (`;`, `#`, `<`,
  `>`, line breaks; also quotes, comment marks and the word `end`) in every label, and use ids of their
  own (`p0`, `s1`), so that no name can be read as a keyword. A state's label holds no second colon either.
- `prepare_streams` and `main_guard` are for the entry points of programs: a character that the console
  lacks is written as an escape, a reader who closes the pipe is no failure, and the exit code says who
  has to act.

Exit codes: 0 fine, 1 wrong, 2 usage or not started, 3 the machine lacks something (130: interrupted).
Nothing here decides what is shown. Source: claims C10-183, C10-277, C10-281.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TextIO

from chapter10.database import StoreError

__all__ = [
    "EXIT_FINE",
    "EXIT_INTERRUPTED",
    "EXIT_MACHINE",
    "EXIT_USAGE",
    "EXIT_WRONG",
    "MAX_EVENTS",
    "Event",
    "display_width",
    "json_text",
    "main_guard",
    "mermaid_label",
    "mermaid_sequence",
    "mermaid_state",
    "pad",
    "prepare_streams",
    "print_json",
    "text_lanes",
    "text_states",
]

EXIT_FINE: Final = 0
EXIT_WRONG: Final = 1
EXIT_USAGE: Final = 2
EXIT_MACHINE: Final = 3
EXIT_INTERRUPTED: Final = 130

MAX_EVENTS: Final = 1000
"""The most events or transitions in one picture; more is not a picture any more."""

_BREAKERS: Final = {";": "#59;", "#": "#35;", "<": "#60;", ">": "#62;", '"': "#34;", "%": "#37;"}
_WIDE: Final = frozenset("WF")
_NO_WIDTH: Final = frozenset({"Mn", "Me", "Cf"})


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run: at `t`, `actor` did `what`, and `detail` came of it.

    `t`: logical time or the number of the step, as printed. `detail` may be empty.
    """

    t: int | float
    actor: str
    what: str
    detail: str = ""


# Text in columns ---------------------------------------------------------------------------------


def display_width(text: str) -> int:
    """Return the places that `text` takes in a console: 2 for wide characters, 0 for combining ones.

    Characters of ambiguous width count as 1, as modern consoles draw them.
    """
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in _WIDE else int(unicodedata.category(char) not in _NO_WIDTH)
        for char in text
    )


def pad(text: str, width: int) -> str:
    """Return `text` with spaces up to `width` places; a longer text comes back as it is."""
    return text + " " * (width - display_width(text))


def text_lanes(events: Iterable[Event]) -> str:
    """Return the events as lanes: one line an event and one for what came of it, one column an actor.

    Actors stand in the order of their first event, `|` marks the lanes that wait. No line ends in
    spaces and the text ends without a line break; without events it is empty.
    Raises `ValueError` for more than `MAX_EVENTS`.
    """
    shown = _bounded(events)
    if not shown:
        return ""
    actors = _actors(shown)
    rows = [["t", *actors]]
    for event in shown:
        lines = [_one_line(event.what)] + ([f"-> {_one_line(event.detail)}"] if event.detail else [])
        for number, line in enumerate(lines):
            time = _number(event.t) if number == 0 else ""
            rows.append([time, *(line if actor == event.actor else "|" for actor in actors)])
    widths = [max(4, *(display_width(row[column]) for row in rows)) for column in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def text_states(transitions: Iterable[tuple[str, str, str]]) -> str:
    """Return `(state before, state after, label)` as lines, each distinct one once: the twin of `mermaid_state`.

    The empty string stands for the start and the end, both shown as `o`.
    Raises `ValueError` for more than `MAX_EVENTS` distinct ones.
    """
    edges = [(before or "o", after or "o", _one_line(label)) for before, after, label in _distinct(transitions)]
    left = max((display_width(before) for before, _, _ in edges), default=0)
    right = max((display_width(after) for _, after, _ in edges), default=0)
    return "\n".join(f"{pad(before, left)} -> {pad(after, right)}  {label}".rstrip() for before, after, label in edges)


# Pictures in Mermaid -----------------------------------------------------------------------------


def mermaid_label(text: str) -> str:
    """Return `text` as it can stand in any Mermaid label: one line, breakers as character codes, never empty."""
    label = "".join(_BREAKERS.get(char, char) for char in _one_line(text))
    if label.casefold() == "end":  # a keyword of Mermaid, wherever it stands alone
        label = f"{label[0]}#110;{label[2]}"
    return label or "-"


def mermaid_sequence(events: Iterable[Event], target: str) -> str:
    """Return a `sequenceDiagram` in which every actor talks to `target`, which answers with the detail.

    An event without detail has no answer. The text ends without a line break.
    Raises `ValueError` for more than `MAX_EVENTS`.
    """
    shown = _bounded(events)
    ids = {actor: f"p{number}" for number, actor in enumerate(_actors(shown))}
    lines = ["sequenceDiagram"]
    lines += [f"    participant {name} as {mermaid_label(actor)}" for actor, name in ids.items()]
    lines.append(f"    participant p{len(ids)} as {mermaid_label(target)}")
    for event in shown:
        actor, other = ids[event.actor], f"p{len(ids)}"
        lines.append(f"    {actor}->>{other}: {mermaid_label(f'{_number(event.t)} {event.what}')}")
        if event.detail:
            lines.append(f"    {other}-->>{actor}: {mermaid_label(event.detail)}")
    return "\n".join(lines)


def mermaid_state(transitions: Iterable[tuple[str, str, str]]) -> str:
    """Return a `stateDiagram-v2` of `(state before, state after, label)`, each distinct one drawn once.

    The empty string stands for the start (as a state before) and the end (as a state after).
    Raises `ValueError` for more than `MAX_EVENTS` distinct ones.
    """
    edges = _distinct(transitions)
    states = dict.fromkeys(state for before, after, _ in edges for state in (before, after) if state)
    ids = {"": "[*]"} | {state: f"s{number}" for number, state in enumerate(states)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{_state_label(state)}" as {ids[state]}' for state in states]
    for before, after, label in edges:
        lines.append(f"    {ids[before]} --> {ids[after]}" + (f": {_state_label(label)}" if label else ""))
    return "\n".join(lines)


def _state_label(text: str) -> str:
    return mermaid_label(text).replace(":", "#58;")  # a second colon ends the label of a transition


# The entry points of programs --------------------------------------------------------------------


def json_text(value: object, encoding: str | None = "utf-8") -> str:
    """Return `value` as indented JSON that `encoding` can carry, with a line break at the end.

    Text stands as it is where the encoding has all of it; otherwise every character outside ASCII is
    a JSON escape, so that what arrives is still JSON with the same value.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, indent=2) + "\n"
    return text


def print_json(value: object, stream: TextIO | None = None) -> None:
    """Write `value` as JSON to `stream` (standard output by default), readable in any encoding."""
    out = sys.stdout if stream is None else stream
    out.write(json_text(value, out.encoding))


def prepare_streams() -> None:
    """Let standard output and error write an escape for what their encoding lacks, instead of failing.

    The encoding itself stays: it is what the console or the reader of the pipe expects. A program that was started
    with one of them closed writes to nobody instead.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nobody = open(os.devnull, "w", encoding="utf-8", newline="\n")  # noqa: SIM115 - until the program ends
            setattr(sys, name, nobody)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def main_guard(main: Callable[[], int]) -> NoReturn:
    """Run a program's `main` and leave with its exit code; the last line of every entry point.

    Streams are prepared before. A reader who closed the pipe early (a pager, `head`) is no failure.
    A broken store or file is one line on standard error and `EXIT_MACHINE`; Ctrl-C is
    `EXIT_INTERRUPTED`. Every other exception is a bug and keeps its traceback.
    """
    prepare_streams()
    try:
        try:
            code = main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        code = EXIT_FINE
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except StoreError as error:
        sys.stderr.write(f"{error.code}: {error.reason}\n")
        code = EXIT_MACHINE
    except OSError as error:
        sys.stderr.write(f"the machine failed: {error}\n")
        code = EXIT_MACHINE
    raise SystemExit(code)


def _drop_stdout() -> None:
    # Python flushes standard output once more at exit and would complain about the closed pipe there.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


# Helpers -----------------------------------------------------------------------------------------


def _bounded(events: Iterable[Event]) -> Sequence[Event]:
    shown = list(events)
    if len(shown) > MAX_EVENTS:
        raise ValueError(f"more than {MAX_EVENTS} events")
    return shown


def _distinct(transitions: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    edges = list(dict.fromkeys(transitions))
    if len(edges) > MAX_EVENTS:
        raise ValueError(f"more than {MAX_EVENTS} transitions")
    return edges


def _actors(events: Iterable[Event]) -> list[str]:
    return list(dict.fromkeys(event.actor for event in events))


def _number(value: int | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _one_line(text: str) -> str:
    """Return `text` without line breaks and control characters, each run of white space as one space."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
