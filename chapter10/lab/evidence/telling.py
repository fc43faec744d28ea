"""What happened, told on a terminal: sentences and lanes that fit in eighty columns.

Programs print JSON for other programs and a story for a person: `is_told` says which. `narrow_lanes` has the
events of a picture as one mark in the lane of the actor, and what happened beside the lanes, so that a long call takes
another line and not more columns.
Source: the chapter's section on its five experiments (claims C10-263 to C10-269, C10-277).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from chapter10.lab.console.textio import Event, display_width, pad

__all__ = ["COLUMNS", "add_json", "half", "is_told", "narrow_lanes", "print_lines", "wrapped"]

COLUMNS: Final = 80
"""The places of a line that every terminal shows."""

_LEAST: Final = 24
"""The places that the words beside the lanes get, however many lanes there are."""

# A word, or one Chinese character, with the marks that may not begin or end a line without it.
_UNIT: Final = re.compile(
    "[（“《]*(?:[^\\s\u2e80-\uffef“”]+|[\u2e80-\uffef]|[“”])[，。；：、）》”？！]*|\\s+",
)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json` to the parser of a program that tells a story on a terminal."""
    parser.add_argument("--json", action="store_true", help="JSON on a terminal too, as everywhere else")


def is_told(options: argparse.Namespace) -> bool:
    """Say whether a person reads standard output and did not ask for `--json`."""
    return not options.json and sys.stdout.isatty()


def half(title: str, language: str) -> str:
    """Return the half of a title "中文 / English" that is in `language`, or all of it."""
    halves = title.split(" / ")
    return halves[language == "en"] if len(halves) == 2 else title


def wrapped(text: str, width: int = COLUMNS) -> list[str]:
    """Return `text` in lines of at most `width` places, broken at spaces and between Chinese characters."""
    lines = [""]
    units = [part for found in _UNIT.findall(text) for part in (found if display_width(found) > width else [found])]
    for unit in units:
        if lines[-1] and display_width(lines[-1] + unit.rstrip()) > width:
            lines.append("")
        lines[-1] += unit if lines[-1] else unit.lstrip()
    return [line.rstrip() for line in lines]


def narrow_lanes(events: Sequence[Event], width: int = COLUMNS) -> list[str]:
    """Return the events as lines of at most `width` places: the time, a `*` in the lane of the actor, the words."""
    actors = list(dict.fromkeys(event.actor for event in events))
    times = [f"{event.t:g}" if isinstance(event.t, float) else str(event.t) for event in events]
    columns = [max(map(len, ["t", *times])), *map(display_width, actors)]

    def row(cells: Iterable[str]) -> str:
        return "  ".join(pad(cell, column) for cell, column in zip(cells, columns, strict=True))

    lines = [row(["t", *actors]), row("-" * column for column in columns)]
    room = max(_LEAST, width - sum(columns) - 2 * len(columns))
    for time, event in zip(times, events, strict=True):
        words = f"{event.what} -> {event.detail}" if event.detail else event.what
        first, *more = wrapped(words, room)
        lines.append(f"{row([time, *('*' if actor == event.actor else '|' for actor in actors)])}  {first}")
        lines += [f"{row(['', *('|' for _ in actors)])}  {line}" for line in more]
    return [line.rstrip() for line in lines]


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of any length, wrapped where they are longer than `COLUMNS`."""
    for line in lines:
        print("\n".join(wrapped(line) if display_width(line) > COLUMNS else [line]))
