"""The experiments of the companions, and the evidence that they leave.

    python -m chapter10 companions                   every group, as one JSON object
    python -m chapter10 companions --group registry  one of them
    python -m chapter10 companions --group registry --predict
                                                     guess first, then run, then compare
    python -m chapter10 companions --write           write the reports anew
    python -m chapter10 companions --check           compare the reports with a new run

The chapter has five experiments of its own, in `chapter10.experiments`, and its three reports stay as
they are: what is shown here is what surrounds the chapter. A group is a module of `lab.tool_scenes` or
`lab.effect_scenes` and one line in `GROUPS`. Each needs none of the others, goes by logical or virtual time, and
gives the same bytes on every machine; files and databases lie in temporary folders whose paths appear nowhere.

Exit codes: 0 fine, 1 a report differs, 2 usage, 3 the machine lacks something.
Source: the three companion documents (claims C8-001 to C8-085, T6-001 to T6-044, I4-001 to I4-103), and the
chapter where it leaves something to them (C10-185 to C10-206, C10-240 to C10-242, C10-310).
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.experiments import UNMEASURED, reports_folder
from chapter10.lab.console.textio import EXIT_FINE, json_text, main_guard, print_json
from chapter10.lab.effect_scenes import breaker, budget, clocks, idempotency, interruption, mail, outbox, retry
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.files import differences, replace_together, say_differences
from chapter10.lab.evidence.page import figures_table, pictures
from chapter10.lab.guessing import predictions_effects, predictions_resilience, predictions_tools
from chapter10.lab.guessing.predict import (
    Area,
    Outcome,
    add_options,
    predict_group,
    refuse_what_does_not_combine,
    with_answers,
)
from chapter10.lab.tool_scenes import orchestration, ranking, registry, results, schema, serving, turn

__all__ = ["AREAS", "CONTRACT", "GROUPS", "REPORTS", "check_reports", "main", "run_companions", "write_reports"]

GROUPS: Final[Mapping[str, Group]] = {
    "schema": schema.GROUP,
    "registry": registry.GROUP,
    "orchestration": orchestration.GROUP,
    "results": results.GROUP,
    "turn": turn.GROUP,
    "ranking": ranking.GROUP,
    "serving": serving.GROUP,
    "clocks": clocks.GROUP,
    "budget": budget.GROUP,
    "interruption": interruption.GROUP,
    "retry": retry.GROUP,
    "breaker": breaker.GROUP,
    "idempotency": idempotency.GROUP,
    "outbox": outbox.GROUP,
    "mail": mail.GROUP,
}
"""Every group in the order in which a reader takes them. A new one is a module of scenes and a line here."""

AREAS: Final[Mapping[str, Area]] = {
    **predictions_tools.AREAS,
    **predictions_resilience.AREAS,
    **predictions_effects.AREAS,
}
"""What a reader is asked before each group, by its name."""

_INDEX: Final = "companion-evidence.md"

REPORTS: Final = ("companion-evidence.json", _INDEX, *(f"companion-{name}.md" for name in GROUPS))
"""The files that `write_reports` writes: all figures, the index of the pages, and one page for each group."""

CONTRACT: Final = (
    "Fixed scripts, orders and fault times show what the companions decide; they measure no model, no network "
    "and no speed, and are no sample of real tasks."
)
"""What this evidence is, in one sentence."""

_MARKUP: Final = re.compile(r'[{\[<*"]')
"""What Markdown might take for its own is shown as code."""

_HEAD: Final = """\
# 伴随系统的实验证据 / The evidence of the companions

{contract}

这一页由程序从一次真实运行写成，不手工修改；同一份代码在任何机器上得到相同的字节。章节自己的五组实验在
[tool-jobs-evidence.md](tool-jobs-evidence.md)，两处互不影响。
This page is written by the program from one real run and is never edited by hand; the same code gives
the same bytes on any machine. The chapter's own five experiments are on the page above, and neither page
changes the other.

```text
python -m chapter10 companions --write     write this page, the pages of the groups and the JSON file
python -m chapter10 companions --check     compare them with a new run
```

所有数值见 / all figures: [companion-evidence.json](companion-evidence.json).
代码见 / the code: [companion_experiments.py](../chapter10/lab/reader/companion_experiments.py).

| 组 / group | |
|---|---|
{groups}
"""


def run_companions() -> dict[str, Any]:
    """Run every group and return `{contract, model_quality, provider_tokens, external_exactly_once, groups}`.

    The three in the middle say what is neither measured nor claimed, as in the chapter's evidence.
    """
    return _run()[0]


def write_reports(directory: str | os.PathLike[str]) -> list[Path]:
    """Run everything and write the reports in `directory`, all or none; return their paths.

    Raises `OSError` when the folder cannot be written; the old files are left then.
    """
    return replace_together(Path(directory), _reports())


def check_reports(directory: str | os.PathLike[str]) -> list[str]:
    """Run everything and return what differs from the reports in `directory`: one line a file, empty if nothing."""
    return differences(Path(directory), _reports())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say (those of the process if None) and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 companions",
        usage="%(prog)s [--group GROUP] [OPTION ...]",  # so many names would bury the one line of a mistake
        description="Run the experiments of the companions and print what they show, as JSON.",
        allow_abbrev=False,
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--group", choices=list(GROUPS), help="run one group; all of them without it")
    one.add_argument("--write", action="store_true", help="write the reports anew")
    one.add_argument("--check", action="store_true", help="compare the reports with a new run")
    add_options(parser)
    options = parser.parse_args(with_answers(arguments))
    refuse_what_does_not_combine(parser, options)
    if options.write:
        for path in write_reports(reports_folder()):
            print(path)
        return EXIT_FINE
    if options.check:
        return say_differences(check_reports(reports_folder()), REPORTS, "chapter10 companions")
    if options.predict:
        return _predict(parser, options)
    print_json(run_companions() if options.group is None else GROUPS[options.group].run(Scene()))
    return EXIT_FINE


def _predict(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Ask about one group, run it, and compare."""
    area = AREAS.get(options.group)
    if area is None:
        parser.error(f"there are no questions about {options.group}, but about: {', '.join(AREAS)}")

    def run() -> Outcome:
        scene = Scene()
        figures = GROUPS[options.group].run(scene)
        return figures, scene.parts

    return predict_group(parser, options, area, run)


def _run() -> tuple[dict[str, Any], dict[str, Scene]]:
    scenes = {name: Scene() for name in GROUPS}
    figures = {name: group.run(scenes[name]) for name, group in GROUPS.items()}
    return _evidence(figures), scenes


def _evidence(groups: Mapping[str, Any]) -> dict[str, Any]:
    return {"contract": CONTRACT, **UNMEASURED, "groups": groups}


def _reports() -> dict[str, str]:
    evidence, scenes = _run()
    groups = "\n".join(f"| [{name}](companion-{name}.md) | {group.title} |" for name, group in GROUPS.items())
    index = _HEAD.format(contract=evidence["contract"], groups=groups)
    pages = (_page(name, figures, scenes[name]) for name, figures in evidence["groups"].items())
    return dict(zip(REPORTS, (json_text(evidence), index, *pages), strict=True))


def _page(name: str, figures: Mapping[str, Any], scene: Scene) -> str:
    """Return the page of one group: what it shows, its figures, its pictures."""
    group = GROUPS[name]
    parts = [f"# {group.title}\n\n[所有的组 / all groups]({_INDEX})\n"]
    parts.append(f"```text\npython -m chapter10 companions --group {name}\n```\n")
    parts.append(group.text.format(**figures))
    single = {key: value for key, value in figures.items() if key not in group.tables}
    parts += [figures_table(single)] if single else []
    parts += [f"`{key}`\n\n{_table(figures[key])}" for key in group.tables]
    return "\n".join(parts + pictures(scene, group.target))


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return objects with the same members as a Markdown table, one row each."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        lines.append("| " + " | ".join(_cell(row[name]) for name in names) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    text = (value if isinstance(value, str) else canonical(value)).replace("|", "\\|")
    return f"`{text}`" if _MARKUP.search(text) else text


if __name__ == "__main__":
    main_guard(main)
