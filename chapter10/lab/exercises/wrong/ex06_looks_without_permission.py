# expect: found_accepts
"""It looks for the tool with an identity that may not see it."""

from chapter10.catalog import Catalog, Tool


def invoice_tool() -> Tool:
    return Tool("invoices.get", "读取一张发票的状态", ("查询", "发票", "状态"), "invoices:read", "read")


def test_found(catalog: Catalog) -> None:
    names = [hit["name"] for hit in catalog.search("查询 发票 状态", {"orders:read"})]
    assert "invoices.get" in names, names


def test_hidden(catalog: Catalog) -> None:
    others = {"orders:read", "archive:read"}
    assert "invoices.get" not in [hit["name"] for hit in catalog.search("查询 发票 状态", others, 10)]
    assert "invoices.get" not in [tool.name for tool in catalog.discoverable(others)]


IS_A_CONNECTOR: bool | None = False
