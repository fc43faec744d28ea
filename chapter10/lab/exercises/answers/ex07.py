"""练习 7 的一种答案 / one answer to exercise 7

先量出这一批恰好要多少字节，再用它自己作边界。没有异常就失败，并且断言错误码。
Measure the batch first, then use that size as the edge. No exception is a failure, and the code is asserted.
Compare: python -m unittest chapter10.tests.test_catalog.LoadTests.test_the_budget_is_for_the_whole_batch
"""

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
    else:
        raise AssertionError(f"one byte less gave {len(returned)} definitions")
    assert returned is None
