"""Exercise 10: an old worker after its lease, and an old worker after somebody else's claim.

The reader's two tests meet the real store, a store with that one guard taken out, one whose guard is a
moment too late, and one that answers with the other code. Source: claim C10-308.
"""

from __future__ import annotations

from contextlib import closing
from functools import cache
from typing import Any, Final

from chapter10.jobs import JobError, JobStore
from chapter10.lab.console.strings import Text
from chapter10.lab.exercises.checking import (
    ANOTHER,
    BY_ITS_CLASS,
    CannotCheck,
    Check,
    Names,
    accepts,
    alike,
    catches,
    function_of,
)
from chapter10.lab.histories.guards import MarkError, guard_named, store_without
from chapter10.limits import MIN_SECONDS

__all__ = ["CHECKS"]

_CLAIM: Final = "C10-308"


class _OtherCode(JobStore):
    """It refuses with a code that fits another situation."""

    def finish(self, *arguments: Any, **options: Any) -> bool:
        try:
            return super().finish(*arguments, **options)
        except JobError as error:
            codes = {"lease_expired": "stale_attempt", "stale_attempt": "lease_expired"}
            raise JobError(codes.get(error.code, error.code)) from None


class _MomentLate(JobStore):
    """To it a lease is over a moment later than it is."""

    def finish(self, *arguments: Any, **options: Any) -> bool:
        return super().finish(*arguments, **options | {"now": options["now"] - MIN_SECONDS})


@cache
def _without(name: str) -> type[JobStore]:
    try:
        return store_without(guard_named(name))
    except MarkError as error:  # the reader's answer is as right as before
        raise CannotCheck(str(error)) from None


def _accepts(names: Names, test: str) -> None:
    why = Text(
        "真实的作业库遵守这条规则，你的测试应该通过。对照时刻：领取在 1，租约 2，截止 10。",
        "The real store keeps the rule; your test should pass. Look at the moments: claim at 1, lease 2, deadline 10.",
    )
    with closing(JobStore(":memory:")) as store:
        accepts(function_of(names, test), store, f"{test}(the real store)", why, _CLAIM)
    with closing(alike(JobStore)(":memory:")) as store:
        accepts(function_of(names, test), store, f"{test}({ANOTHER})", BY_ITS_CLASS, _CLAIM)


def _catches(names: Names, test: str, broken: type[JobStore], what: str, why: Text) -> None:
    with closing(broken(":memory:")) as store:
        catches(function_of(names, test), store, f"{test}({what})", why, _CLAIM)


def _other_code(names: Names, test: str, what: str) -> None:
    why = Text(
        "两种拒绝是两件事：租约到期，还是已有新的代次。请断言 error.code。",
        "The two refusals are two situations: a lease that is over, or a newer attempt. Assert error.code.",
    )
    _catches(names, test, _OtherCode, what, why)


def _over_accepts(names: Names) -> None:
    _accepts(names, "test_lease_over")


def _over_catches(names: Names) -> None:
    why = Text(
        "这个库让过期的 worker 交付，而测试没有发现。只有 try/except 不够：没有抛出异常时测试也要失败。",
        "This store lets a worker deliver after its lease, and the test did not notice. try/except alone is not\n"
        "enough: the test must fail when nothing is raised.",
    )
    _catches(names, "test_lease_over", _without("lease_expired.finish"), "a store without the guard lease_expired", why)


def _over_edge(names: Names) -> None:
    why = Text(
        "租约从 1 起长 2，到 3 为止：在时刻 3 就已经到期。请正好在 3 交付。",
        "A lease of 2 from 1 ends at 3, and at 3 it is over. Deliver at 3 exactly.",
    )
    _catches(names, "test_lease_over", _MomentLate, "a store whose lease ends a moment late", why)


def _over_code(names: Names) -> None:
    _other_code(names, "test_lease_over", "a store that answers stale_attempt")


def _new_accepts(names: Names) -> None:
    _accepts(names, "test_new_worker")


def _new_catches(names: Names) -> None:
    why = Text(
        "这个库不看代次，旧 worker 盖掉了新的，而测试没有发现。旧 worker 要用旧的代次交付。",
        "This store does not look at the attempt: the old worker wins, and the test did not notice. The old worker\n"
        "delivers with the old attempt.",
    )
    _catches(names, "test_new_worker", _without("stale_attempt.finish"), "a store without the guard stale_attempt", why)


def _new_code(names: Names) -> None:
    _other_code(names, "test_new_worker", "a store that answers lease_expired")


CHECKS: Final = (
    Check("over_accepts", Text("租约到期：测试接受真实的库", "test_lease_over accepts the real store"), _over_accepts),
    Check("over_catches", Text("……发现没有这道防护的库", "... notices a store without the guard"), _over_catches),
    Check("over_edge", Text("……发现晚一刻到期的库", "... notices a lease that ends a moment late"), _over_edge),
    Check("over_code", Text("……发现错误码不对", "... notices a wrong code"), _over_code),
    Check(
        "new_accepts",
        Text("新 worker 已领取：测试接受真实的库", "test_new_worker accepts the real store"),
        _new_accepts,
    ),
    Check("new_catches", Text("……发现不看代次的库", "... notices a store that ignores the attempt"), _new_catches),
    Check("new_code", Text("……发现错误码不对", "... notices a wrong code"), _new_code),
)
