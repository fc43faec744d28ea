"""练习 6 的一种答案 / one answer to exercise 6

定义是数据。要能执行，还缺：处理函数、服务合同（超时、错误码、幂等）、凭证、网关上的再次检查。
A definition is data. To run it you still need a handler, a contract with the service, credentials, and the
check at the gateway. Compare: python -m unittest chapter10.tests.test_catalog.SearchTests
"""

from chapter10.catalog import Catalog, Tool


def invoice_tool() -> Tool:
    return Tool("invoices.get", "读取一张发票的状态", ("查询", "发票", "状态"), "invoices:read", "read")


def test_found(catalog: Catalog) -> None:
    names = [hit["name"] for hit in catalog.search("查询 发票 状态", {"invoices:read"})]
    assert "invoices.get" in names, names


def test_hidden(catalog: Catalog) -> None:
    others = {"orders:read", "archive:read"}
    assert "invoices.get" not in [hit["name"] for hit in catalog.search("查询 发票 状态", others, 10)]
    assert "invoices.get" not in [tool.name for tool in catalog.discoverable(others)]


IS_A_CONNECTOR: bool | None = False
