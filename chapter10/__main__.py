"""A map of what to run next: `python -m chapter10`, or `chapter10` once it is installed.

It prints one line about this machine and one line for each command that is at hand, in the order in
which a newcomer meets them. A command whose file is missing is not offered: an installed copy has no
tests. Nothing is run, nothing is asked, nothing is written, and all of the output is ASCII.

`jobs` and what follows it goes to `jobs_command`, the command line of the job system.

Exit codes, as everywhere in this package: 0 fine, 2 usage.
Source: the chapter's section on its five experiments (claims C10-009, C10-314).
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from chapter10.jobs_command import main as jobs
from chapter10.lab.textio import EXIT_FINE, main_guard

__all__ = ["COMMANDS", "Command", "available", "command", "main"]


class Command(NamedTuple):
    """One command of the map: the file that must be there, what to type, what it is for."""

    file: str
    line: str
    purpose: str


COMMANDS: Final = (
    Command("lab/doctor.py", "python -m chapter10.lab.doctor", "is this machine fit?"),
    Command("quickstart.py", "python -m chapter10.quickstart", "one job from submit to result"),
    Command(
        "experiments.py",
        "python -m chapter10.experiments --group catalog --predict",
        "then boundaries, concurrency, lifecycle, failures",
    ),
    Command("lab/exercises/__main__.py", "python -m chapter10.lab.exercises", "fourteen exercises, checked"),
    Command("lab/questions.py", "python -m chapter10.lab.questions", "three questions on tool orchestration"),
    Command("jobs_command.py", "python -m chapter10 jobs --help", "exports that outlive the request, on your own CSV"),
    Command("lab/explore.py", "python -m chapter10.lab.explore", "every history of a small world, checked"),
    Command("experiments.py", "python -m chapter10.experiments --check", "is the committed evidence still true?"),
    Command("tests/support.py", "python -m unittest discover -s chapter10/tests -v", "the contract, as tests"),
)
"""The map, in reading order; files are relative to the package."""


def available(package: Path) -> list[Command]:
    """Return the commands of the map whose file is in the folder `package`, in the order of the map."""
    return [command for command in COMMANDS if (package / command.file).is_file()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the map and return the exit code 0, or run `jobs`; `arguments` are those of the process if None.

    Raises `SystemExit` with code 2 for arguments that it does not know.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["jobs"]:
        return jobs(given[1:])
    parser = argparse.ArgumentParser(
        prog="chapter10", description="Print a map of what to run next; `jobs` is the command line of the job system."
    )
    parser.parse_args(given)
    commands = available(Path(__file__).resolve().parent)
    width = max((len(command.line) for command in commands), default=0)
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"chapter10 on Python {python}, SQLite {sqlite3.sqlite_version}. Guess first, then run:")
    print()
    for command in commands:
        print(f"  {command.line:<{width}}  {command.purpose}")
    print()
    print("Run them from the folder that contains chapter10; README.md has the map of the code.")
    return EXIT_FINE


def command() -> NoReturn:
    """Be the installed `chapter10` command: `main`, with the streams and the ends of a program."""
    main_guard(main)


if __name__ == "__main__":
    command()
