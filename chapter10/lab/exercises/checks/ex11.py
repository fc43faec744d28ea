"""Exercise 11: two connections want the same job; every order of their statements is tried.

Source: claims C10-297, C10-309.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from chapter10.lab.console.strings import Text
from chapter10.lab.exercises.checking import (
    Check,
    Failed,
    Names,
    accepts,
    catches,
    drawn,
    expect,
    function_of,
    own_test,
)
from chapter10.lab.exercises.schedules import Connection, OrdersError, every_order

__all__ = ["CHECKS"]

_CLAIM: Final = "C10-309"
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL, attempt INTEGER NOT NULL, "
    "lease_until REAL)"
)
_Claim = Callable[[Connection, int, float, float], Any]
_QUEUED: Final = (1, "queued", 0, None)
_HELD: Final = (1, "running", 1, 3.0)


def _prepare(row: tuple[Any, ...], database: sqlite3.Connection) -> None:
    database.execute(_TABLE)
    database.execute("DELETE FROM jobs")
    database.execute("INSERT INTO jobs VALUES (?, ?, ?, ?)", row)


def _claim(names: Names) -> _Claim:
    return function_of(names, "claim")


def _alone(claim: _Claim, row: tuple[Any, ...], now: float) -> tuple[Any, tuple[Any, ...]]:
    """Let one worker claim; return what it got and the row. The other worker does nothing."""
    found: list[tuple[Any, ...]] = []

    def judge(database: sqlite3.Connection, returned: tuple[Any, ...]) -> str:
        found.append((returned[0], database.execute("SELECT * FROM jobs").fetchone()))
        return ""

    calls = (lambda connection: claim(connection, 1, now, 2), lambda connection: None)
    _, bad = _run(partial(_prepare, row), calls, judge)
    if bad is not None:
        why = Text(
            "事务要以 COMMIT 或 ROLLBACK 结束，否则别人一直等着。", "A transaction ends with COMMIT or ROLLBACK."
        )
        raise Failed(f"claim(db, 1, now={now:g}, lease=2)", bad.wrong, "no open transaction", why, _CLAIM)
    answer, now_there = found[0]
    return answer, tuple(now_there)


def _run(*arguments: Any) -> Any:
    try:
        return every_order(*arguments)
    except OrdersError as error:
        why = Text(
            "检查在每两条语句之间停下 claim，所以它只能依赖参数和读到的内容。",
            "The check stops claim between any two statements, so it may depend only on its\n"
            "arguments and on what it reads.",
        )
        raise Failed("claim(db, ...) in every order", str(error), "a few statements", why, _CLAIM) from error


def _first(names: Names) -> None:
    answer, row = _alone(_claim(names), _QUEUED, 1)
    why = Text("第一次领取得到代次 1。", "The first claim is attempt 1.")
    expect("claim(db, 1, now=1, lease=2) of a queued job", answer, 1, why, _CLAIM)
    why = Text("领取要写下状态、代次和租约的终点。", "A claim writes state, attempt and the end of the lease.")
    got = (row[0], row[1], row[2], None if row[3] is None else float(row[3]))
    expect("the row after claim(db, 1, now=1, lease=2)", got, _HELD, why, _CLAIM)


def _held(names: Names) -> None:
    answer, row = _alone(_claim(names), _HELD, 2)
    why = Text("租约有效期内，作业属于别人。", "While the lease lives, the job is another worker's.")
    expect("claim(db, 1, now=2, lease=2) of a job held until 3", answer, None, why, _CLAIM)
    expect("the row after that", row, _HELD, why, _CLAIM)


def _missing(names: Names) -> None:
    answer, _ = _alone(_claim(names), (7, "queued", 0, None), 1)
    why = Text("没有这份作业，就没有代次。", "No job, no attempt.")
    expect("claim(db, 1, now=1, lease=2) of a job that does not exist", answer, None, why, _CLAIM)


def _over(names: Names) -> None:
    answer, _ = _alone(_claim(names), _HELD, 3)
    why = Text(
        "租约到 3 为止，时刻 3 就可以重新领取，得到代次 2。",
        "The lease ends at 3; at 3 the job may be claimed again, as attempt 2.",
    )
    expect("claim(db, 1, now=3, lease=2) of a job held until 3", answer, 2, why, _CLAIM)


def _ended(names: Names) -> None:
    answer, _ = _alone(_claim(names), (1, "succeeded", 1, None), 9)
    why = Text(
        "终态不再改变：做完的作业不会再跑一遍。", "A final state stays: a job that succeeded does not run again."
    )
    expect("claim(db, 1, now=9, lease=2) of a succeeded job", answer, None, why, _CLAIM)


def _orders(names: Names, row: tuple[Any, ...], now: float, attempt: int, situation: str) -> None:
    claim = _claim(names)

    def judge(database: sqlite3.Connection, returned: tuple[Any, ...]) -> str:
        if returned.count(None) == 1 and attempt in returned:
            return ""
        return "both have it" if None not in returned else f"claimed: {returned}"

    def call(connection: Connection) -> Any:
        return claim(connection, 1, now, 2)

    count, bad = _run(partial(_prepare, row), (call, call), judge)
    if bad is not None:
        why = Text(
            "读和写之间，另一个连接可以插进来。把条件写进同一条 UPDATE 并看 rowcount，\n或者先 BEGIN IMMEDIATE 再读。",
            "Between read and write the other connection may come in. Put the condition into the UPDATE and look\n"
            "at rowcount, or take BEGIN IMMEDIATE before the read.",
        )
        expected = f"one gets {attempt}, the other None, in all of the {count} orders"
        got = f"{bad.wrong}: {bad.returned}"
        raise Failed(
            f"claim(db, 1, now={now:g}, lease=2) on two connections, {situation}",
            got,
            expected,
            why,
            _CLAIM,
            drawn(bad.events),
        )


def _every_order(names: Names) -> None:
    _orders(names, _QUEUED, 1, 1, "a queued job")


def _every_order_over(names: Names) -> None:
    _orders(names, _HELD, 3, 2, "a job whose lease is over")


# The reader's own test ---------------------------------------------------------------------------


def _claims_if(db: Any, job_id: int, now: float, lease: float, condition: str, attempt: str = "attempt + 1") -> Any:
    changed = db.execute(
        f"UPDATE jobs SET state = 'running', attempt = {attempt}, lease_until = :until "
        f"WHERE id = :id AND ({condition})",
        {"until": now + lease, "id": job_id, "now": now},
    )
    return db.execute("SELECT attempt FROM jobs WHERE id = ?", (job_id,)).fetchone()[0] if changed.rowcount else None


_DUE: Final = "state = 'queued' OR state = 'running' AND lease_until <= :now"
_RIGHT: Final = partial(_claims_if, condition=_DUE)


def _own_test(names: Names) -> None:
    test = own_test(names, "test_claim")
    if test is None:
        return

    def on_a_file(claim: Callable[..., Any]) -> Any:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chapter10-"))

            def connect() -> sqlite3.Connection:
                database = sqlite3.connect(Path(folder, "jobs.db"), timeout=0, isolation_level=None)
                stack.enter_context(closing(database))
                return database

            _prepare(_QUEUED, connect())
            return test(claim, connect)

    why = Text("这个 claim 是对的，你的测试应该通过。", "This claim is right; your test should pass.")
    accepts(on_a_file, _RIGHT, "test_claim(a right claim)", why, _CLAIM)
    for broken, what, zh, en in (
        (partial(_claims_if, condition="state <> 'succeeded'"), "one that ignores the lease",
         "租约还在时，第二个连接领不到", "while the lease lives the second connection gets nothing"),
        (partial(_claims_if, condition="state = 'queued'"), "one that never gives it again",
         "租约到期之后，可以再领", "after the lease it is to be had again"),
        (partial(_claims_if, condition=_DUE, attempt="1"), "one that counts no attempts",
         "再领到的是代次 2", "what is had then is attempt 2"),
    ):  # fmt: skip
        why = Text(f"测试没有发现。请断言：{zh}。", f"The test did not notice. Assert: {en}.")
        catches(on_a_file, broken, f"test_claim({what})", why, _CLAIM)


CHECKS: Final = (
    Check("first", Text("第一次领取", "the first claim"), _first),
    Check("held", Text("租约有效时领不到", "no claim while the lease lives"), _held),
    Check("over", Text("租约一到期就有新代次", "a new attempt as soon as the lease is over"), _over),
    Check("ended", Text("终态不再领取", "a final state is not claimed"), _ended),
    Check("missing", Text("不存在的作业", "a job that does not exist"), _missing),
    Check("every_order", Text("两个连接，走遍所有次序", "two connections, every order"), _every_order),
    Check("every_order_over", Text("租约到期后，走遍所有次序", "every order after the lease"), _every_order_over),
    Check("own_test", Text("你自己的测试，如果写了", "your own test, if you wrote one"), _own_test),
)
