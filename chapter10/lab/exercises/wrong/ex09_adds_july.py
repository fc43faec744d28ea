# expect: guesses
"""It adds the row of July to August."""

from typing import Any

AFTER_AUGUST: int | None = 10000
AFTER_JULY: int | None = 10500


def month_report(sales: list[dict[str, Any]], month: str) -> dict[str, Any]:
    amounts = [sale["amount_cents"] for sale in sales if sale["month"] == month]
    return {"month": month, "row_count": len(amounts), "total_cents": sum(amounts)}
