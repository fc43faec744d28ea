# expect: input
"""It takes the other months out of a list that is not its own."""

from typing import Any

AFTER_AUGUST: int | None = 10000
AFTER_JULY: int | None = 10000


def month_report(sales: list[dict[str, Any]], month: str) -> dict[str, Any]:
    for sale in list(sales):
        if sale["month"] != month:
            sales.remove(sale)
    amounts = [sale["amount_cents"] for sale in sales]
    return {"month": month, "row_count": len(amounts), "total_cents": sum(amounts)}
