"""练习 7 / Exercise 7

写一个加载测试：预算恰好等于序列化的字节数时通过，少一个字节时失败，而且失败没有返回半份定义。
检查会把它用在真实的目录上（应当通过），也用在边界上做错了的目录上（应当失败）。

Write a test of loading: a budget of exactly the serialized bytes passes, one byte less fails, and nothing is
handed out then. It is run on the real catalog, where it should pass, and on catalogs that are wrong at the
edge, where it should fail.

    hits = catalog.search("查询 订单 状态", {"orders:read"}, 2)
    catalog.load(hits, {"orders:read"}, budget_bytes=810)     a list, or CatalogError with a .code
    byte_size(value)                                          bytes of its canonical JSON in UTF-8

检查 / check:  python -m chapter10 exercises check 7
"""

from chapter10.catalog import Catalog


def test_budget(catalog: Catalog) -> None:
    """Assert what happens at exactly enough budget, and at one byte less. `catalog`: the chapter's 300 tools."""
    raise NotImplementedError
