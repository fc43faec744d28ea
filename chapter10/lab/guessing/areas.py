"""How questions are written down: short, and every option beside the value of the result that it stands for.

`question` and `area` make the records of `lab.guessing.predict` from pairs `(Chinese, English)`. An option is
`(value, Chinese, English)`; the letters are dealt out in order, and the truth is the option whose value the
run has at the place that is asked about. So no letter is written down, and a value that no option has is
none of them. `edit` is the one thing to change afterwards: a line of a scene, and what to put in its place.

What it does not do: it asks nothing and runs nothing. A value is compared as canonical JSON, so that true is
not 1. Source: claims C10-263 to C10-267 (guess first).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.lab.console.strings import Text
from chapter10.lab.guessing.predict import Area, Question, field_of

__all__ = ["Edit", "Pair", "area", "at", "edit", "question"]

Pair = tuple[str, str]
"""The same in Chinese and in English."""
Edit = tuple[str, str, str, str]
"""What `edit` takes: a part of a line of the scene, what stands there instead, and why, in both languages."""

_LETTERS: Final = "abcd"
_RUN: Final = "python -m chapter10 companions --group"
_TOOLS: Final = frozenset({"schema", "registry", "orchestration", "results", "turn", "ranking", "serving"})


def at(document: Pair, heading: Pair, *claims: str) -> str:
    """Return where it stands: the document, the heading and the claims, as `Chinese / English`."""
    ids = ", ".join(claims)
    return f"{document[0]}，{heading[0]}（{ids}） / {document[1]}, {heading[1]} ({ids})"


def question(
    name: str,
    ask: Pair,
    found: str | Callable[[Any], Any],
    options: Sequence[tuple[Any, str, str]],
    reason: Pair,
    section: str,
    code: Callable[..., Any],
    test: str,
    *,
    also: tuple[str, ...] = (),
) -> Question:
    """Return a question whose truth is the option with the value that was found.

    `found`: a place of the result, as `field_of` takes it, or a function of the result where no single place
    says it. `also`: further places to show. The others are those of `Question`.
    """
    values = {letter: canonical(option[0]) for letter, option in zip(_LETTERS, options, strict=False)}

    def truth(result: Any) -> str:
        value = canonical(field_of(result, found) if isinstance(found, str) else found(result))
        return next((letter for letter, one in values.items() if one == value), "")

    return Question(
        name=name,
        ask=Text(*ask),
        options={letter: Text(*option[1:]) for letter, option in zip(_LETTERS, options, strict=False)},
        truth=truth,
        shows=((found,) if isinstance(found, str) else ()) + also,
        reason=Text(*reason),
        section=section,
        code=code,
        test=test,
    )


def area(
    name: str,
    title: Pair,
    scene: Pair,
    code: tuple[Callable[..., Any], ...],
    questions: tuple[Question, ...],
    change: Edit,
    pictures: tuple[str, ...] = (),
) -> Area:
    """Return the area of a group of the companions.

    `scene`: as many lines in Chinese as in English, up to five. `pictures`: the English titles of those to
    show; all of them if empty. The others are those of `Area`. Raises `ValueError` for lines without a twin.
    """
    lines = tuple(Text(*pair) for pair in zip(*(half.split("\n") for half in scene), strict=True))
    return Area(name, Text(*title), lines, code, questions, edit(name, *change), pictures)


def edit(group: str, old: str, new: str, zh: str, en: str) -> tuple[str, Text]:
    """Return the command to run again, and which line of the scene to change before."""
    room = "tool_scenes" if group in _TOOLS else "effect_scenes"
    file = f"chapter10/lab/{room}/{group}.py"
    old, new = (part.replace("{", "{{").replace("}", "}}") for part in (old, new))  # a Text has placeholders
    return f"{_RUN} {group} --predict", Text(
        f"先改 {file} 里的一处，之后改回来：\n    {old}\n -> {new}\n{zh}",
        f"Before that, change one place in {file}, and change it back afterwards:\n    {old}\n -> {new}\n{en}",
    )
