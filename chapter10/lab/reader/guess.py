"""Guess, run, compare, for any group: `python -m chapter10 predict GROUP`.

A group is one of the chapter's five or one of the companions'; the rest of the line goes to its experiment.
Source: the chapter's section on its five experiments (claims C10-263 to C10-269).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from chapter10 import experiments
from chapter10.lab.console.textio import EXIT_FINE, EXIT_USAGE, main_guard
from chapter10.lab.reader import companion_experiments

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask about the group that is named first, run it and compare; without a name, list the groups."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    for program in (experiments, companion_experiments):
        if given and given[0] in program.GROUPS:
            return program.main(["--group", given[0], "--predict", *given[1:]])
    names = "\n".join("    " + " ".join(program.GROUPS) for program in (experiments, companion_experiments))
    if given and given != ["--help"]:
        print(f"there is no group {given[0]}; the groups are\n{names}", file=sys.stderr)
        return EXIT_USAGE
    print(f"python -m chapter10 predict GROUP [--lang zh|en]\n{names}")
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
