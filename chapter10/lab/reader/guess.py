"""Guess, run, compare, for any group: `python -m chapter10 predict GROUP`.

A group is one of the chapter's five or one of the companions'; the rest of the line goes to its experiment. Without a
group they are listed, each with what it asks about and what the reader guessed last.
Source: the chapter's section on its five experiments (claims C10-263 to C10-269).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from chapter10 import experiments
from chapter10.lab.console.strings import LANGUAGES, choose_language, say
from chapter10.lab.console.textio import EXIT_FINE, main_guard
from chapter10.lab.console.workplace import work_folder
from chapter10.lab.guessing.predict import NO_GUESS, saved_guesses
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.reader import companion_experiments

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask about the group that is named first, run it and compare; without a name, list the groups.

    Raises `SystemExit` with code 2 for a name that no group has.
    """
    areas = {**AREAS, **companion_experiments.AREAS}
    parser = argparse.ArgumentParser(prog="python -m chapter10 predict", allow_abbrev=False)
    parser.add_argument("group", nargs="?", metavar="GROUP", choices=list(areas), help=f"one of {', '.join(areas)}")
    parser.add_argument("--lang", choices=LANGUAGES, help="the language of the list and of the questions")
    options, rest = parser.parse_known_args(arguments)
    if options.group is not None:
        run = experiments.main if options.group in experiments.GROUPS else companion_experiments.main
        rest += ["--lang", options.lang] if options.lang else []
        return run(["--group", options.group, "--predict", *rest])
    if rest:
        parser.error(f"without a group nothing is asked: {' '.join(rest)}")
    width = max(map(len, areas))
    language = choose_language(options.lang)
    kept = {name: letters for name, letters in saved_guesses(work_folder()).items() if isinstance(letters, dict)}
    for name, area in areas.items():
        before = kept.get(name)
        letters = [str(before.get(question.name, NO_GUESS)) for question in area.questions] if before else []
        last = f"   ({say('predict.guessed', language, letters=','.join(letters))})" if letters else ""
        print(f"python -m chapter10 predict {name:<{width}}  {area.title.in_language(language)}{last}")
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
