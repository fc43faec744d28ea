"""Exercise 9: a sale of August changes the report of August, a sale of July does not. Source: claim C10-307."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.experiments import SALES, lifecycle_experiment
from chapter10.lab.console.strings import Text
from chapter10.lab.exercises.checking import Check, Failed, Names, expect, function_of

__all__ = ["CHECKS"]

_CLAIM: Final = "C10-307"
_AUGUST: Final = {"order_id": "E", "month": "2026-08", "amount_cents": 4000}
_JULY: Final = {"order_id": "F", "month": "2026-07", "amount_cents": 500}


def _report(names: Names, sales: list[dict[str, Any]], month: str) -> Any:
    return function_of(names, "month_report")(sales, month)


def _rows(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in SALES] + [dict(row) for row in more]


def _library(sales: list[dict[str, Any]], month: str) -> Any:
    return json.loads(_job_of(canonical(sales), month))


@cache
def _job_of(sales: str, month: str) -> str:
    """Run the chapter's job on these rows, once for each."""
    return canonical(lifecycle_experiment(json.loads(sales), month)["result"]["data"])


def _compare(names: Names, called: str, sales: list[dict[str, Any]], month: str, why: Text) -> None:
    report, wanted = _report(names, sales, month), _library(sales, month)
    expect(called, report, wanted, why, _CLAIM)
    why = Text(
        "金额是整数的分；小数相加会有误差。", "An amount is a whole number of cents; fractions add up with errors."
    )
    expect(f"the types in {called}", list(map(_type, report.values())), list(map(_type, wanted.values())), why, _CLAIM)


def _type(value: object) -> str:
    return type(value).__name__


def _fixture(names: Names) -> None:
    why = Text("八月有三条记录：1000 + 2000 + 3000。", "August has three rows: 1000 + 2000 + 3000.")
    _compare(names, 'month_report(the four sales, "2026-08")', _rows(), "2026-08", why)


def _guesses(names: Names) -> None:
    for name, rows in (("AFTER_AUGUST", _rows(_AUGUST)), ("AFTER_JULY", _rows(_AUGUST, _JULY))):
        guess = names.get(name)
        if guess is None:
            why = Text("先写下你算出的数，再看运行结果。", "Write down the number that you work out, then look.")
            raise Failed(name, guess, "a whole number of cents", why, _CLAIM)
        why = Text(
            "这是把记录加进去、让本章的作业真的跑一遍得到的数。",
            "This is what the chapter's job really gives for these rows.",
        )
        expect(name, guess, _library(rows, "2026-08")["total_cents"], why, _CLAIM)


def _august(names: Names) -> None:
    why = Text("多一条八月记录：多一行，多四千分。", "One more row of August: one row and 4000 cents more.")
    _compare(names, 'month_report(with E of August, "2026-08")', _rows(_AUGUST), "2026-08", why)


def _july(names: Names) -> None:
    why = Text("七月的记录不属于八月。", "A row of July is none of August.")
    _compare(names, 'month_report(with E and F, "2026-08")', _rows(_AUGUST, _JULY), "2026-08", why)


def _july_itself(names: Names) -> None:
    why = Text(
        "七月的报表只有七月的记录；月份要相等，不是“不早于”。",
        "July's report has July's rows: equal months, not \"from then on\".",
    )
    _compare(names, 'month_report(with E and F, "2026-07")', _rows(_AUGUST, _JULY), "2026-07", why)


def _input(names: Names) -> None:
    sales = _rows(_AUGUST, _JULY)
    before = copy.deepcopy(sales)
    _report(names, sales, "2026-08")
    why = Text("报表只读取记录；别人的列表不能被改动。", "A report reads; the list of another is not changed.")
    expect("the sales after month_report(sales, ...)", sales, before, why, _CLAIM)


CHECKS: Final = (
    Check("fixture", Text("四条记录的八月报表", "the report of August from the four sales"), _fixture),
    Check("guesses", Text("你算出的两个数", "the two numbers that you worked out"), _guesses),
    Check("august", Text("八月记录改变汇总", "a row of August changes the total"), _august),
    Check("july", Text("七月记录不改变八月汇总", "a row of July does not"), _july),
    Check("july_itself", Text("七月自己的报表", "the report of July itself"), _july_itself),
    Check("input", Text("传入的列表没有被改动", "the list that was given is unchanged"), _input),
)
