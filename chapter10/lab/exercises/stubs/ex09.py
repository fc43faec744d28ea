"""练习 9 / Exercise 9

四条销售记录，八月汇总是 6000 分。增加一条八月记录，金额四千分，结果应是多少？再增加一条七月记录呢？
先写下两个数，再写出 month_report，让检查证明它。

The four sales give 6000 cents for August. With one more sale of August, of 4000 cents, what is the total?
And with one more of July? Write down both numbers, then write month_report.

    sales: [{"order_id": "A", "month": "2026-08", "amount_cents": 1000}, ...]

检查 / check:  python -m chapter10 exercises check 9
"""

from typing import Any

# The total of August in cents, after one more sale of August of 4000 cents.
AFTER_AUGUST: int | None = None

# The total of August in cents, after that and one more sale of July.
AFTER_JULY: int | None = None


def month_report(sales: list[dict[str, Any]], month: str) -> dict[str, Any]:
    """Return {"month": month, "row_count": how many sales, "total_cents": their sum} for one month."""
    raise NotImplementedError
