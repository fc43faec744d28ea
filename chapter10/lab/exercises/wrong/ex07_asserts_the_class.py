# expect: accepts
from chapter10.catalog import Catalog


def test_budget(catalog: Catalog) -> None:
    assert type(catalog).load is Catalog.load
