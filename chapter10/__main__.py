"""One entry for every command: `python -m chapter10`, or `chapter10` once it is installed.

Without a word it prints one line about this machine and one line for each command that is at hand, in the
order in which a newcomer meets them. With a word it runs that command; what follows is the command's own. A
command whose file is missing is not offered: an installed copy has no tests. All of the list is ASCII.

Exit codes, as everywhere in this package: 0 fine, 1 wrong, 2 usage, 3 the machine lacks something.
Source: the chapter's section on its five experiments (claims C10-009, C10-314).
"""

from __future__ import annotations

import argparse
import importlib
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from chapter10.lab.console.textio import EXIT_FINE, main_guard

__all__ = ["COMMANDS", "Command", "available", "command", "main"]


class Command(NamedTuple):
    """One command: what to type, the module whose `main(arguments)` it is, what it is for."""

    name: str
    module: str
    purpose: str


COMMANDS: Final = (
    Command("quickstart", "quickstart", "one job from its receipt to its result"),
    Command("experiments", "experiments", "the chapter's five groups: --group, --predict, --write, --check"),
    Command("doctor", "lab.reader.doctor", "is this machine fit?"),
    Command("predict", "lab.reader.guess", "guess first, then run, then compare"),
    Command("exercises", "lab.exercises.__main__", "fourteen exercises, checked"),
    Command("questions", "lab.guessing.questions", "three questions on tool orchestration"),
    Command("companions", "lab.reader.companion_experiments", "what the companions decide, as evidence"),
    Command("jobs", "companions.operating.jobs_command", "exports that outlive the request, on your own CSV"),
    Command("serve", "companions.serving.serve", "tools and jobs for any MCP client, on standard input and output"),
    Command("two_terminals", "lab.processes.two_terminals", "one worker killed, one frozen, step by step"),
    Command("stops", "lab.processes.stops", "one cancel, and what stops each of four processes"),
    Command("explore", "lab.histories.explore", "every history of a small world; a guard taken out"),
    Command("simulate", "lab.histories.simulate", "long random lives against a plain model"),
    Command("chaos", "lab.processes.chaos", "processes killed and frozen while jobs rain in"),
    Command("fuzz", "lab.proof.fuzz", "bad input at scale"),
    Command("claims", "lab.proof.claim_map", "where each sentence of the book is promised and proved"),
    Command("proofs", "lab.proof.proofs", "do the tests that name a claim prove it?"),
    Command("mutants", "lab.proof.mutants", "does a test notice when the code is wrong?"),
    Command("benchmark", "lab.benchmarks.benchmark", "speed and scale, side by side"),
    Command("site", "lab.reader.site", "the five groups on one page for a browser"),
)
"""Every command, in reading order; modules are those of `chapter10`."""


def available(package: Path) -> list[Command]:
    """Return the commands whose file is in the folder `package`, in the order of the table."""
    return [
        command for command in COMMANDS if package.joinpath(*command.module.split(".")).with_suffix(".py").is_file()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list and return 0, or run the command that is named; `arguments` are those of the process if None.

    Raises `SystemExit` with code 2 for a word that is no command.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    commands = available(Path(__file__).resolve().parent)
    for known in commands:
        if given[:1] == [known.name]:
            module = importlib.import_module(f"chapter10.{known.module}")
            return int(module.main(given[1:]))
    parser = argparse.ArgumentParser(prog="chapter10", description="Print the commands, or run one of them.")
    parser.add_argument("command", nargs="?", choices=[known.name for known in commands])
    parser.parse_args(given)
    width = max((len(known.name) for known in commands), default=0)
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"chapter10 on Python {python}, SQLite {sqlite3.sqlite_version}. Guess first, then run:")
    print()
    for known in commands:
        print(f"  python -m chapter10 {known.name:<{width}}  {known.purpose}")
    print()
    print("Run them from the folder that contains chapter10; docs/map.md goes through the code.")
    return EXIT_FINE


def command() -> NoReturn:
    """Be the installed `chapter10` command: `main`, with the streams and the ends of a program."""
    main_guard(main)


if __name__ == "__main__":
    command()
