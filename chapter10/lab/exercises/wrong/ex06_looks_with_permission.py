# expect: hidden_accepts
"""It looks for a leak with an identity that has the permission."""

from chapter10.catalog import Catalog, Tool


def invoice_tool() -> Tool:
    return Tool("invoices.get", "读取一张发票的状态", ("查询", "发票", "状态"), "invoices:read", "read")


def test_found(catalog: Catalog) -> None:
    names = [hit["name"] for hit in catalog.search("查询 发票 状态", {"invoices:read"})]
    assert "invoices.get" in names, names


def test_hidden(catalog: Catalog) -> None:
    others = {"orders:read", "invoices:read"}
    assert "invoices.get" not in [hit["name"] for hit in catalog.search("查询 发票 状态", others, 10)]
    assert "invoices.get" not in [tool.name for tool in catalog.discoverable(others)]


IS_A_CONNECTOR: bool | None = False
