"""The command line of the experiments: what may be said, and what means something together.

`--write` and `--check` concern the evidence of all five groups and stand alone; an option for other data
belongs to certain groups; `--predict` asks about one group before it runs. A mistake is one line on standard
error and exit code 2, before anything has run.
Source: the chapter's list of commands (claims C10-263 to C10-269, C10-279).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chapter10.lab.guessing.predict import add_options
from chapter10.lab.guessing.predict import refuse_what_does_not_combine as refuse_predictions

__all__ = ["command_line", "refuse_what_does_not_combine"]

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
        description="Run the chapter's five experiments and print what they show, as JSON.",
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
    return parser


def refuse_what_does_not_combine(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Leave with exit code 2 and one line for options that mean nothing together."""
    given = {name for name in _GROUPS_OF_OPTION if getattr(options, name) is not None}
    if (options.write or options.check) and (given or options.group or options.predict):
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
