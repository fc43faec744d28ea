"""Exercise 7: exactly enough budget loads, one byte less is refused, and no half definition comes back.

The reader's test meets the real catalog and four that are wrong at the edge. Source: claim C10-305.
"""

from __future__ import annotations

from typing import Any, Final

from chapter10.catalog import BUDGET_BYTES, Catalog, CatalogError, Grants, fixture_tools
from chapter10.lab.console.strings import Text
from chapter10.lab.exercises.checking import ANOTHER, BY_ITS_CLASS, Check, Names, accepts, alike, catches, function_of

__all__ = ["CHECKS"]

_CLAIM: Final = "C10-305"


class _Strict(Catalog):
    """It refuses a budget that is exactly enough."""

    __slots__ = ()

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        return super().load(hits, grants, budget_bytes - 1)


class _Lenient(Catalog):
    """It lets one byte too many through."""

    __slots__ = ()

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        return super().load(hits, grants, budget_bytes + 1)


class _Half(Catalog):
    """It hands out what fits."""

    __slots__ = ()

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        try:
            return super().load(hits, grants, budget_bytes)
        except CatalogError:
            return super().load(hits[:-1], grants, BUDGET_BYTES)


class _Silent(Catalog):
    """It hands out nothing, and does not say why."""

    __slots__ = ()

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        try:
            return super().load(hits, grants, budget_bytes)
        except CatalogError:
            return []


class _OtherCode(Catalog):
    """It refuses with a code that sends the caller the wrong way."""

    __slots__ = ()

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        try:
            return super().load(hits, grants, budget_bytes)
        except CatalogError:
            raise CatalogError("denied") from None


def _accepts(names: Names) -> None:
    why = Text("真实的目录遵守这条规则，你的测试应该通过。", "The real catalog keeps the rule; your test should pass.")
    test = function_of(names, "test_budget")
    accepts(test, Catalog(fixture_tools()), "test_budget(the real catalog)", why, _CLAIM)
    accepts(test, alike(Catalog)(fixture_tools()), f"test_budget({ANOTHER})", BY_ITS_CLASS, _CLAIM)


def _catches(names: Names, kind: type[Catalog], what: str, why: Text) -> None:
    catches(function_of(names, "test_budget"), kind(fixture_tools()), f"test_budget({what})", why, _CLAIM)


def _exact(names: Names) -> None:
    why = Text(
        "恰好等于字节数的预算应当通过；这个目录拒绝了它，而测试没有发现。",
        "A budget of exactly the bytes must load; this catalog refuses it, and the test did not notice.",
    )
    _catches(names, _Strict, "a catalog that refuses exactly enough", why)


def _one_less(names: Names) -> None:
    why = Text(
        "少一个字节必须失败。把预算取为恰好的字节数减一，而不是随便一个小数；没有抛出异常时测试要失败。",
        "One byte less must be refused. Take the exact size minus one, not just a small number, and let the test\n"
        "fail when nothing is raised.",
    )
    _catches(names, _Lenient, "a catalog that lets one byte too many through", why)


def _half(names: Names) -> None:
    why = Text(
        "这个目录超预算时交出放得下的那份定义。半份结果比没有更危险。",
        "Over budget, this catalog hands out what fits. Half a batch is more dangerous than none.",
    )
    _catches(names, _Half, "a catalog that hands out what fits", why)


def _silent(names: Names) -> None:
    why = Text(
        "空列表看上去像“没有工具”。超预算要用错误码说出来。",
        'An empty list looks like "no tools". Being over budget is said by a code.',
    )
    _catches(names, _Silent, "a catalog that returns an empty list", why)


def _code(names: Names) -> None:
    why = Text(
        "后续动作由错误码决定：denied 去要权限，definition_budget_exceeded 缩小候选。请断言 error.code。",
        "The code decides what to do next: denied asks for a permission, definition_budget_exceeded takes\n"
        "fewer candidates. Assert error.code.",
    )
    _catches(names, _OtherCode, "a catalog that answers denied", why)


CHECKS: Final = (
    Check("accepts", Text("测试接受真实的目录", "the test accepts the real catalog"), _accepts),
    Check("exact", Text("发现恰好够却被拒绝", "it notices that exactly enough is refused"), _exact),
    Check("half", Text("发现半份定义", "it notices half a batch"), _half),
    Check("silent", Text("发现一声不响的空列表", "it notices a silent empty list"), _silent),
    Check("one_less", Text("发现少一个字节却通过", "it notices that one byte less passes"), _one_less),
    Check("code", Text("发现错误码不对", "it notices a wrong code"), _code),
)
