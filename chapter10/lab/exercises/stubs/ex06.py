"""练习 6 / Exercise 6

给目录增加一个“查询发票状态”的只读定义。写两个测试：有权限时可发现；无权限时不泄露。
再写下：有了这个定义，它就是真实可执行的连接器了吗？

检查会把你的两个测试用在真实的目录上（应当通过），也用在做错了的目录上（应当失败）。

Add a read-only definition for 查询 发票 状态, write two tests (found with its permission, not leaked without),
and say whether the definition is now an executable connector. Your tests are run on the real catalog, where
they should pass, and on broken ones, where they should fail.

    Tool("orders.get", "读取一张订单的状态", ("查询", "订单", "状态"), "orders:read", "read")
                                    name, description, keywords, permission, effect
    catalog.search("查询 订单 状态", {"orders:read"})
                                    query and grants; a list of dicts, each with "name"

检查 / check:  python -m chapter10 exercises check 6
"""

from chapter10.catalog import Catalog, Tool


def invoice_tool() -> Tool:
    """Return the definition."""
    raise NotImplementedError


def test_found(catalog: Catalog) -> None:
    """Assert that an identity with the permission finds the tool. `catalog`: the 300 tools and yours."""
    raise NotImplementedError


def test_hidden(catalog: Catalog) -> None:
    """Assert that an identity without the permission does not even see its name."""
    raise NotImplementedError


# True or False: can somebody ask for the state of an invoice now?
IS_A_CONNECTOR: bool | None = None
