# expect: silent
"""An empty list is no half batch, so it is content."""

from chapter10.catalog import Catalog, CatalogError, byte_size, fixture_tools


def test_budget(catalog: Catalog) -> None:
    grants = {"orders:read"}
    hits = catalog.search("查询 订单 状态", grants, 2)
    whole = Catalog(fixture_tools()).load(hits, grants)
    exact = byte_size(whole)

    assert catalog.load(hits, grants, budget_bytes=exact) == whole
    returned = None
    try:
        returned = catalog.load(hits, grants, budget_bytes=exact - 1)
    except CatalogError as error:
        assert error.code == "definition_budget_exceeded", error.code
    assert not returned
