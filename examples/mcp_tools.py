"""Three tools for an MCP client: two that answer at once, and one whose call becomes a job.

    python -m chapter10 serve --handlers examples.mcp_tools --db jobs.db --grant reports:write

Run it from the folder that contains `examples`; the client starts it in the same way.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from chapter10.companions.serving.task_handles import JobTool
from chapter10.companions.tools.registry import ToolRefused, ToolSpec
from chapter10.companions.work.heartbeat import JobContext
from chapter10.companions.work.worker import Handler

SALES = Path(__file__).with_name("sales.csv")


def rows(month: str) -> list[dict[str, str]]:
    """Return the sales of a month."""
    with SALES.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["month"] == month]


def sales_months() -> list[str]:
    """Return the months that there are sales of."""
    with SALES.open(encoding="utf-8", newline="") as file:
        return sorted({row["month"] for row in csv.DictReader(file)})


def sales_total(month: str) -> int:
    """Return the cents of a month; a month without sales is refused with a text that the model reads."""
    found = rows(month)
    if not found:
        raise ToolRefused(f"No sales in {month}. Ask sales_months.")
    return sum(int(row["amount_cents"]) for row in found)


def export(context: JobContext) -> dict[str, Any]:
    """Count the rows of a month one by one, so that whoever asks sees how far it is."""
    found, total = rows(context.args["month"]), 0
    for number, row in enumerate(found, 1):
        total += int(row["amount_cents"])
        context.progress(number, len(found))
    return {"month": context.args["month"], "rows": len(found), "total_cents": total}


MONTH = {
    "type": "object",
    "properties": {"month": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$", "description": "YYYY-MM"}},
    "required": ["month"],
    "additionalProperties": False,
}
TOOLS = [
    ToolSpec("sales_months", "List the months that there are sales of.", "read", 10, 1, 10_000, sales_months),
    ToolSpec("sales_total", "Add up the sales of a month, in cents.", "read", 10, 1, 10_000, sales_total, MONTH),
    JobTool(
        "reports_export", "Export the sales of a month as a report.", MONTH, Handler(export), permission="reports:write"
    ),
]
