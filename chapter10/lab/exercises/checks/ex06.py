"""Exercise 6: a read-only definition is found with its permission, and its name does not leak without.

The reader's two tests meet the real catalog, one that finds the tool for nobody, and one that forgets to
filter. Source: claim C10-304.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from chapter10.catalog import BUDGET_BYTES, Catalog, Grants, Tool, fixture_tools
from chapter10.lab.console.strings import Text
from chapter10.lab.exercises.checking import (
    ANOTHER,
    BY_ITS_CLASS,
    Check,
    Failed,
    Names,
    accepts,
    alike,
    catches,
    expect,
    function_of,
)

__all__ = ["CHECKS"]

_CLAIM: Final = "C10-304"
_WORDS: Final = ("查询", "发票", "状态")


class _Losing(Catalog):
    """It finds the reader's tool for nobody."""

    __slots__ = ()

    def search(self, query: str, grants: Grants, limit: int = 3) -> list[dict[str, Any]]:
        hits = super().search(query, grants, 10)
        return [hit for hit in hits if "发票" not in self.tools[hit["name"]].keywords][:limit]

    def discoverable(self, grants: Grants) -> list[Tool]:
        return [tool for tool in super().discoverable(grants) if "发票" not in tool.keywords]


class _Leaking(Catalog):
    """It forgets who is asking."""

    __slots__ = ()

    def search(self, query: str, grants: Grants, limit: int = 3) -> list[dict[str, Any]]:
        return super().search(query, self._everything(), limit)

    def discoverable(self, grants: Grants) -> list[Tool]:
        return super().discoverable(self._everything())

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        return super().load(hits, self._everything(), budget_bytes)

    def _everything(self) -> frozenset[str]:
        return frozenset(tool.permission for tool in self.tools.values())


def _tool(names: Names) -> Tool:
    tool = function_of(names, "invoice_tool")()
    why = Text("目录里的工具是 Tool 这个类型的数据。", "A tool of the catalog is data of the type Tool.")
    if type(tool) is not Tool:
        raise Failed("invoice_tool()", tool, "a Tool", why, _CLAIM)
    return tool


def _filled(kind: type[Catalog], names: Names) -> Catalog:
    tools: Iterable[Tool] = [*fixture_tools(), _tool(names)]
    return kind(tools)


def _definition(names: Names) -> None:
    tool = _tool(names)
    why = Text("只读的定义，effect 是 read。", "The effect of a read-only definition is read.")
    expect("invoice_tool().effect", tool.effect, "read", why, _CLAIM)
    missing = [word for word in _WORDS if word not in tool.keywords]
    why = Text(
        "搜索只看关键词：查询“查询 发票 状态”要三个词都命中。",
        "Only keywords are searched; all three words have to hit.",
    )
    expect("the words 查询 发票 状态 that are not among the keywords", missing, [], why, _CLAIM)
    why = Text(
        "它要有自己的权限；如果借用别人的，能读订单的人就都能看见发票。",
        "It needs a permission of its own, or whoever reads orders sees invoices.",
    )
    taken = tool.permission in {other.permission for other in fixture_tools()}
    expect("does another tool have the permission of invoice_tool()?", taken, False, why, _CLAIM)


def _found_accepts(names: Names) -> None:
    why = Text(
        "真实的目录里有你的工具，这个测试应该通过。查询词之间用空格分开；权限放在集合里；结果是字典的列表，\n"
        '名字在 hit["name"]。',
        "The real catalog has your tool; this test should pass. Words of the query stand between spaces, grants in a\n"
        'set; the answer is a list of dicts, with the name in hit["name"].',
    )
    test = function_of(names, "test_found")
    accepts(test, _filled(Catalog, names), "test_found(the real catalog)", why, _CLAIM)
    accepts(test, _filled(alike(Catalog), names), f"test_found({ANOTHER})", BY_ITS_CLASS, _CLAIM)


def _found_catches(names: Names) -> None:
    why = Text(
        "这个目录对谁都找不到你的工具，而测试没有发现。要断言工具的名字在结果里。",
        "This catalog finds your tool for nobody, and the test did not notice. Assert that its name is there.",
    )
    called = "test_found(a catalog that never finds your tool)"
    catches(function_of(names, "test_found"), _filled(_Losing, names), called, why, _CLAIM)


def _hidden_accepts(names: Names) -> None:
    why = Text(
        "真实的目录对没有权限的身份不给出这个工具。你查的身份真的没有权限吗？",
        "The real catalog hides the tool from an identity without the permission. Is yours really without it?",
    )
    test = function_of(names, "test_hidden")
    accepts(test, _filled(Catalog, names), "test_hidden(the real catalog)", why, _CLAIM)
    accepts(test, _filled(alike(Catalog), names), f"test_hidden({ANOTHER})", BY_ITS_CLASS, _CLAIM)


def _hidden_catches(names: Names) -> None:
    why = Text(
        "这个目录忘了按权限过滤，而测试没有发现。名字出现在没有权限的结果里，就是泄露。",
        "This catalog forgets to filter by permission, and the test did not notice. A name that shows is a leak.",
    )
    called = "test_hidden(a catalog that ignores the grants)"
    catches(function_of(names, "test_hidden"), _filled(_Leaking, names), called, why, _CLAIM)


def _no_connector(names: Names) -> None:
    answer = names.get("IS_A_CONNECTOR")
    if answer is None:
        why = Text("写下你的判断：True 或 False。", "Write down what you think: True or False.")
        raise Failed("IS_A_CONNECTOR", answer, "True or False", why, _CLAIM)
    why = Text(
        "定义只是数据：没有处理函数，没有服务合同，也没有谁真的去查发票系统。能被发现不等于能被执行。",
        "A definition is data: no handler, no contract with a service, nobody who asks the invoice system.\n"
        "Being found is not being executable.",
    )
    expect("IS_A_CONNECTOR", answer, False, why, _CLAIM)


CHECKS: Final = (
    Check(
        "definition",
        Text("定义是只读的，并有自己的权限", "the definition is read-only and has its own permission"),
        _definition,
    ),
    Check(
        "found_accepts",
        Text("有权限可发现：测试在真实目录上通过", "test_found accepts the real catalog"),
        _found_accepts,
    ),
    Check(
        "found_catches",
        Text("……也能识破找不到它的目录", "... and notices a catalog that finds nothing"),
        _found_catches,
    ),
    Check(
        "hidden_accepts",
        Text("无权限不泄露：测试在真实目录上通过", "test_hidden accepts the real catalog"),
        _hidden_accepts,
    ),
    Check("hidden_catches", Text("……也能识破泄露名字的目录", "... and notices a catalog that leaks"), _hidden_catches),
    Check("no_connector", Text("判断它是不是可执行的连接器", "whether it is an executable connector"), _no_connector),
)
