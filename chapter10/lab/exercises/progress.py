"""How far a reader is, on one screen: `python -m chapter10 progress`.

Exercises done, guesses right and wrong, guards that were taken out, and for each what comes next. All of it is worked
out from the files in `my_work`: exercises are checked and guessed groups are run anew, so it takes some seconds.

What it does not do: it gives no marks, and it keeps nothing. Source: claims C10-277, C10-313.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from chapter10.experiments import GROUPS
from chapter10.lab.console.strings import parser_in, say
from chapter10.lab.console.textio import EXIT_FINE, display_width, main_guard, pad
from chapter10.lab.console.workplace import work_folder
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.exercises.__main__ import finished
from chapter10.lab.exercises.book import EXERCISES
from chapter10.lab.guessing.predict import NO_GUESS, saved_guesses
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.histories.explore import explored
from chapter10.lab.histories.guards import GUARDS
from chapter10.lab.reader import companion_experiments

__all__ = ["guesses", "main"]

_ALL: Final = {**AREAS, **companion_experiments.AREAS}


def guesses(folder: Path) -> tuple[int, int, list[str]]:
    """Return how many guesses of a reader were right and wrong, and the groups in which a question is left."""
    kept = saved_guesses(folder)
    right = wrong = 0
    left = []
    for name, area in _ALL.items():
        letters = kept.get(name)
        letters = letters if isinstance(letters, dict) else {}
        guessed = [question for question in area.questions if letters.get(question.name, NO_GUESS) in question.options]
        figures: Any = _run(name) if guessed else {}
        good = sum(question.truth(figures) == letters[question.name] for question in guessed)
        right, wrong = right + good, wrong + len(guessed) - good
        if len(guessed) < len(area.questions):
            left.append(name)
    return right, wrong, left


def _run(name: str) -> Any:
    return GROUPS[name](scene=Scene()) if name in GROUPS else companion_experiments.GROUPS[name].run(Scene())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the screen and return 0."""
    parser, language = parser_in("python -m chapter10 progress", "progress", arguments)
    parser.parse_args(arguments)
    folder = work_folder()
    done = [number for number, exercise in EXERCISES.items() if finished(exercise, folder)]
    right, wrong, groups = guesses(folder)
    asked = sum(len(area.questions) for area in _ALL.values())
    out = explored(folder)
    guards = [guard.name for guard in GUARDS if guard.name not in out]
    lines = (
        ("exercises", f"{len(done)}/{len(EXERCISES)}", "exercises next" if len(done) < len(EXERCISES) else ""),
        ("guesses", say("progress.guessed", language, right=right, wrong=wrong, left=asked - right - wrong),
         f"predict {groups[0]}" if groups else ""),
        ("guards", f"{len(GUARDS) - len(guards)}/{len(GUARDS)}", f"explore --without {guards[0]}" if guards else ""),
    )  # fmt: skip
    print(say("progress.head", language, folder=folder))
    names = [say(f"progress.{name}", language) for name, *_ in lines]
    width = max(map(display_width, names))
    for name, (_, figures, command) in zip(names, lines, strict=True):
        print(f"  {pad(name, width)}  {figures}")
        print(f"  {pad('', width)}  {f'python -m chapter10 {command}' if command else say('progress.all', language)}")
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
