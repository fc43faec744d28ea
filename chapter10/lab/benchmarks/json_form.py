"""Area `json`: the canonical form and its digest beside `json.dumps` with sorted keys and one SHA-256.

The other side writes the same bytes (sorted keys, `,` and `:`, text as it stands) and checks nothing. Ours
refuses in the same call what would not read back as the same value.
Source: claims C10-080, C10-081.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from chapter10.canonical import CanonicalError, digest
from chapter10.catalog import fixture_tools
from chapter10.lab.benchmarks.instrument import Finding, Growth, Plan, by_turns, compare, peak_bytes, ready

__all__ = ["measure"]

_TARGET: Final = 3.0
"""The form is written plainly: a check of every member, and then the same `json.dumps`."""


def measure(plan: Plan) -> Iterator[Finding]:
    """Yield the ratios for payloads of the package, for refusals, and the growth with the number of rows."""
    for name, value in _payloads().items():
        count = max(1, plan.pick(500, 100_000) // max(20, len(json.dumps(value)) // 10))
        ours, other = _repeated(_ours, value, count), _repeated(_plain, value, count)
        yield compare(
            f"digest of {name}",
            ready(ours),
            ready(other),
            count=count,
            repeats=plan.pick(3, 15),
            target=_TARGET,
            computes=True,
        )
    rows: Any = _rows(plan.pick(100, 1000))
    refused = [*rows, ("a tuple", "is no list")]
    count = plan.pick(3, 30)
    yield compare(
        f"refusal of a tuple behind {len(rows)} rows",
        ready(_repeated(_refused, refused, count)),
        ready(_repeated(_plain, refused, count)),
        count=count,
        repeats=plan.pick(3, 15),
        target=_TARGET,
        computes=True,
    )
    sizes = plan.pick((10, 100, 1000), (1000, 10_000, 100_000))
    costs, peaks = [], []
    for size in sizes:
        plan.report(f"json: {size:,} rows")
        value = _rows(size)
        count = max(1, sizes[-1] // size // 4)
        costs.append(by_turns([ready(_repeated(_ours, value, count))], count=count, repeats=5)[0][1].median)
        peaks.append(peak_bytes(_repeated(_ours, value, 1)))
    yield Growth("digest of so many rows", sizes, tuple(costs), tuple(peaks))


def _payloads() -> dict[str, Any]:
    tools = [tool.definition() for tool in fixture_tools()]
    return {
        "a job's arguments": {"month": "2026-08"},
        "a job's intent": {"tool": "reports.export", "version": "1", "args": {"month": "2026-08"}},
        "a result": {"month": "2026-08", "row_count": 3, "total_cents": 6000},
        "a tool's definition": tools[0],
        "300 definitions": tools,
        "1,000 rows": _rows(1000),
        "1,000 numbers": list(range(1000)),
        "10,000 characters": "x" * 10_000,
    }


def _rows(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"row {i}", "amount": i * 1.5, "ok": True} for i in range(count)]


def _ours(value: object) -> object:
    return digest(value)


def _plain(value: object) -> object:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _refused(value: object) -> object:
    try:
        return digest(value)
    except CanonicalError:
        return None


def _repeated(function: Callable[[object], object], value: object, count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            function(value)

    return run
