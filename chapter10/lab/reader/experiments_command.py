"""The command of the experiments: what may be said, what means something together, and what is then done.

    python -m chapter10.experiments                     all five: a story on a terminal, else one JSON object
    python -m chapter10.experiments --group catalog     one of them; --json on a terminal, --lang zh|en
    python -m chapter10.experiments --group catalog --predict
                                                        guess first, then run, then compare
    python -m chapter10.experiments --write             write the three reports anew
    python -m chapter10.experiments --check             compare the reports with a new run

On other data (standard output only, the reports are not touched):

    --group catalog --query "报表 导出" --limit 3 [--grant PERMISSION]...
    --group boundaries --query 订单    --group concurrency --limit 3    --group failures --lease 3
    --group catalog --tools TOOLS.json --query "..." [--permission PERMISSION] [--grant PERMISSION]...
    --group lifecycle --sales SALES.csv --month 2026-08

`--write` and `--check` concern the evidence of all five groups and stand alone; an option for other data
belongs to certain groups. A mistake is one line on standard error and exit code 2, before anything has run.
Exit codes: 0 fine, 1 wrong (a report differs, a file is bad), 2 usage, 3 the machine lacks something.
Source: the chapter's list of commands (claims C10-263 to C10-269, C10-279).
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from chapter10 import experiments
from chapter10.catalog import BUDGET_BYTES, CatalogError
from chapter10.companions.finding.tool_list import DEFAULT_PERMISSION, ToolListError, read_tool_list, words_of
from chapter10.concurrency import ReadsError
from chapter10.jobs import JobError
from chapter10.lab.console.strings import choose_language
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG, print_json
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.evidence.files import say_differences
from chapter10.lab.evidence.telling import add_json, is_told, print_lines
from chapter10.lab.guessing.predict import Outcome, add_options, predict_group, with_answers
from chapter10.lab.guessing.predict import refuse_what_does_not_combine as refuse_predictions
from chapter10.lab.guessing.predictions import area_of, asked_about
from chapter10.lab.reader.own_data import export_sales, remarks
from chapter10.lab.reader.story import TABLE, story

__all__ = ["command_line", "refuse_what_does_not_combine", "run"]

_GROUPS_OF_OPTION: Final = {
    "query": ("catalog", "boundaries"),
    "limit": ("catalog", "concurrency"),
    "grant": ("catalog",),
    "tools": ("catalog",),
    "permission": ("catalog",),
    "sales": ("lifecycle",),
    "month": ("lifecycle",),
    "lease": ("failures",),
}
"""The groups that each option for other data belongs to."""


def command_line(groups: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of `python -m chapter10.experiments`, for these groups."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10.experiments",
        usage="%(prog)s [--group GROUP] [OPTION ...]",  # all of them would bury the one line of a mistake
        description="Run the chapter's five experiments and say what they show: a story on a terminal, else JSON.",
        epilog="Exit codes: 0 fine, 1 wrong (a report differs, a file is bad), 2 usage, 3 the machine lacks something.",
        allow_abbrev=False,
    )
    parser.add_argument("--group", choices=groups, help="run one group; all five without it")
    evidence = parser.add_mutually_exclusive_group()
    evidence.add_argument("--write", action="store_true", help="write the three reports anew")
    evidence.add_argument("--check", action="store_true", help="compare the reports with a new run")
    own = parser.add_argument_group("the groups on other data")
    own.add_argument("--query", help="catalog: words between spaces; boundaries: instead of the tied word")
    own.add_argument("--limit", type=int, help="catalog: the most hits; concurrency: reads at once (default 2)")
    own.add_argument("--grant", action="append", help="catalog: a permission of the caller; may be repeated")
    own.add_argument("--tools", type=Path, help="catalog: a JSON file in the shape of an MCP tools/list result")
    own.add_argument("--permission", help="catalog: the permission that every tool of --tools asks for")
    own.add_argument("--sales", type=Path, help="lifecycle: a CSV file with order_id, month, amount_cents")
    own.add_argument("--month", help="lifecycle: YYYY-MM")
    own.add_argument("--lease", type=int, help="failures: how long the late worker's lease is (default 2)")
    add_options(parser)
    add_json(parser)
    return parser


def refuse_what_does_not_combine(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Leave with exit code 2 and one line for options that mean nothing together."""
    given = {name for name in _GROUPS_OF_OPTION if getattr(options, name) is not None}
    said = options.group or options.predict or options.json or options.lang
    if (options.write or options.check) and (given or said):
        parser.error("--write and --check are for the evidence of all five groups and take no other option")
    for name in sorted(given):
        if options.group not in _GROUPS_OF_OPTION[name]:
            parser.error(f"--{name} goes with --group {' or --group '.join(_GROUPS_OF_OPTION[name])}")
    if options.tools and not options.query:
        parser.error("--tools needs --query")
    if options.permission and not options.tools:
        parser.error("--permission goes with --tools")
    if options.sales and not options.month:
        parser.error("--sales needs --month")
    refuse_predictions(parser, options)
    if options.predict and (options.tools or options.sales):
        parser.error("--predict asks about the fixtures and takes neither --tools nor --sales")
    for name in ("tools", "sales"):
        path = getattr(options, name)
        if path is not None and not path.is_file():
            parser.error(f"--{name}: there is no file {path}")


def run(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say (those of the process if None) and return the exit code."""
    parser = command_line(list(experiments.GROUPS))
    options = parser.parse_args(with_answers(arguments))
    refuse_what_does_not_combine(parser, options)
    folder = experiments.reports_folder()
    if options.write:
        for path in experiments.write_reports(folder):
            print(path)
        return EXIT_FINE
    if options.check:
        return say_differences(experiments.check_reports(folder), experiments.REPORTS, "chapter10.experiments")
    try:
        if options.predict:
            return _predict(parser, options)
        scenes = {name: Scene() for name in experiments.GROUPS}
        figures = experiments.run_all(scenes) if options.group is None else _figures(options, scenes[options.group])
    except (CatalogError, JobError) as error:
        parser.error(f"{error.code}: {error.reason}")
    except ReadsError as error:
        parser.error(error.code)
    except ToolListError as error:
        sys.stderr.write(f"{options.tools}: {error.line}\n")
        return EXIT_WRONG
    if is_told(options):
        _tell(options, figures if options.group is None else {"groups": {options.group: figures}}, scenes)
    else:
        print_json(figures)
    fault = figures.get("fault")
    if fault is None:
        return EXIT_FINE
    where = f"{options.sales}" + (f", line {fault['line']}" if fault["line"] else "")
    sys.stderr.write(f"{where}: {fault['code']}: {fault['reason']}\n")
    return EXIT_WRONG


def _tell(options: argparse.Namespace, figures: Mapping[str, Any], scenes: Mapping[str, Scene]) -> None:
    language = choose_language(options.lang)
    for name, found in figures["groups"].items():
        asked = _asked(name, options)
        print_lines(story(name, area_of(name, asked).title, found, scenes[name], asked, language))
    print_lines([TABLE["story.more"].in_language(language)])


def _asked(group: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a group's experiment by name: what was said, else its defaults."""
    parameters = inspect.signature(experiments.GROUPS[group]).parameters.values()
    said = {**vars(options), "grants": options.grant and frozenset(options.grant)}
    given = {each.name: said.get(each.name) for each in parameters}
    return {each.name: each.default if given[each.name] is None else given[each.name] for each in parameters}


def _figures(options: argparse.Namespace, scene: Scene) -> dict[str, Any]:
    if options.tools is not None:
        return _figures_of_tools(options, scene)
    if options.sales is not None:
        return export_sales(options.sales, options.month)
    asked = {name: getattr(options, name) for name in ("query", "limit", "month", "lease")}
    if options.group == "catalog":
        asked["grants"] = options.grant
    given = {name: value for name, value in asked.items() if value is not None}
    return experiments.GROUPS[options.group](**given, scene=scene)


def _figures_of_tools(options: argparse.Namespace, scene: Scene) -> dict[str, Any]:
    permission = options.permission or DEFAULT_PERMISSION
    listed = read_tool_list(options.tools, permission=permission, repeated="first", bad="refuse")
    # Split as the keywords of the list were, so that a name or a Chinese phrase finds its tool.
    query = " ".join(words_of(options.query))
    grants = [permission] if options.grant is None else options.grant
    limit = 2 if options.limit is None else options.limit
    figures = experiments.catalog_experiment(query, limit, grants, tools=listed.tools, scene=scene)
    return {"query": query, **figures, **remarks(listed, BUDGET_BYTES)}


def _predict(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Ask about one group, run it with the same options, and compare."""
    asked = _asked(options.group, options)
    # Run once beforehand: what is refused is said before a question, and what no option answers is not asked.
    area = asked_about(area_of(options.group, asked), _figures(options, Scene()))

    def play() -> Outcome:
        scene = Scene()
        figures = _figures(options, scene)
        return figures, scene.parts

    code = (experiments.GROUPS[options.group], *area.code)
    return predict_group(parser, options, replace(area, code=code), play)
