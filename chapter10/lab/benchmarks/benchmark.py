"""Speed and scale, measured side by side with what nothing in Python could beat.

    python -m chapter10 benchmark                    everything; some minutes, about 1.5 GB of temporary files
    python -m chapter10 benchmark --quick            a look at everything, in seconds; its ratios mean little
    python -m chapter10 benchmark --area search      jobs, search, ranking, reads, json, tools or outbox
    python -m chapter10 benchmark --json FILE        the figures as JSON as well, without names or folders
    python -m chapter10 benchmark --folder DIR       where the temporary files lie: another disk, other figures

Nothing is installed and nothing is left behind. How it is measured stands in `lab.benchmarks.instrument`, and
what stands beside what in the file of each area. A ratio belongs to the machine and the moment; a time even
more so. Ctrl-C ends it, and what was measured until then is kept, in the JSON too.

Exit codes: 0 measured, whether or not a target was reached; 2 usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from chapter10.lab.benchmarks import (
    jobs_area,
    json_form,
    outbox_area,
    ranking_area,
    reads_area,
    search_area,
    tools_area,
)
from chapter10.lab.benchmarks.instrument import Finding, Plan, machine
from chapter10.lab.console.textio import EXIT_FINE, EXIT_INTERRUPTED, json_text, main_guard

__all__ = ["AREAS", "main", "run"]

AREAS: Final[dict[str, Callable[[Plan], Iterator[Finding]]]] = {
    "jobs": jobs_area.measure,
    "search": search_area.measure,
    "ranking": ranking_area.measure,
    "reads": reads_area.measure,
    "json": json_form.measure,
    "tools": tools_area.measure,
    "outbox": outbox_area.measure,
}


def run(areas: Sequence[str], plan: Plan, figures: dict[str, Any], show: Callable[[str], object]) -> None:
    """Measure `areas`; show each finding and put it into `figures` as soon as it is there.

    `figures` gets `machine`, `quick`, `complete` (False until the end) and `areas`, so that an interrupt
    between two findings loses neither.
    """
    figures["machine"] = facts = machine(plan.folder)
    figures["quick"] = plan.quick
    figures["complete"] = False
    figures["areas"] = {}
    show(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    for area in areas:
        show(f"\n{area}")
        found: list[dict[str, Any]] = []
        figures["areas"][area] = found
        for finding in AREAS[area](plan):
            found.append(finding.data())
            for line in finding.lines():
                show(line)
    figures["complete"] = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see the top of the module. Raises `OSError` when the JSON file cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 benchmark", description="Speed and scale, measured side by side."
    )
    parser.add_argument("--area", choices=AREAS, help="measure this area only")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the temporary files lie")
    options = parser.parse_args(arguments)
    if options.folder is not None and not options.folder.is_dir():
        parser.error("the folder is not there")
    areas = list(AREAS) if options.area is None else [options.area]
    figures: dict[str, Any] = {}
    code = EXIT_FINE
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=options.folder) as folder:
        try:
            run(areas, Plan(options.quick, Path(folder), _progress), figures, _show)
        except KeyboardInterrupt:
            _show("\ninterrupted: what stands above was measured, the rest was not")
            code = EXIT_INTERRUPTED
    if options.json is not None:
        options.json.write_text(json_text(figures), encoding="utf-8", newline="\n")
    return code


def _show(line: str) -> None:
    print(line, flush=True)


def _progress(line: str) -> None:
    print(f"... {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main_guard(main)
