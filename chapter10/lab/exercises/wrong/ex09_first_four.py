# expect: august
"""It looks at the four rows that it knows."""

from typing import Any

AFTER_AUGUST: int | None = 10000
AFTER_JULY: int | None = 10000


def month_report(sales: list[dict[str, Any]], month: str) -> dict[str, Any]:
    amounts = [sale["amount_cents"] for sale in sales[:4] if sale["month"] == month]
    return {"month": month, "row_count": len(amounts), "total_cents": sum(amounts)}
