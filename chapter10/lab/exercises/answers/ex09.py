"""练习 9 的一种答案 / one answer to exercise 9

6000 + 4000 = 10000 分，四条记录；七月记录不属于八月。金额是整数分，不是小数。
6000 + 4000 = 10000 cents in four rows; a row of July is none of August. Cents are whole numbers.
Compare: python -m chapter10.experiments --group lifecycle
"""

from typing import Any

AFTER_AUGUST: int | None = 10000
AFTER_JULY: int | None = 10000


def month_report(sales: list[dict[str, Any]], month: str) -> dict[str, Any]:
    amounts = [sale["amount_cents"] for sale in sales if sale["month"] == month]
    return {"month": month, "row_count": len(amounts), "total_cents": sum(amounts)}
