# expect: july
"""It leaves out the one row of July that it knows by name."""

from typing import Any

AFTER_AUGUST: int | None = 10000
AFTER_JULY: int | None = 10000


def month_report(sales: list[dict[str, Any]], month: str) -> dict[str, Any]:
    amounts = [sale["amount_cents"] for sale in sales if sale["order_id"] != "D"]
    return {"month": month, "row_count": len(amounts), "total_cents": sum(amounts)}
