"""The indexed catalog: the answers of `Catalog` in every byte, and an index whose costs follow the matches."""

from __future__ import annotations

import random
import unittest
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest import mock

from chapter10.canonical import canonical
from chapter10.catalog import Catalog, CatalogError, Tool
from chapter10.companions.finding import postings
from chapter10.companions.finding.indexed_catalog import IndexedCatalog
from chapter10.tests import test_catalog
from chapter10.tests.test_catalog import ranking, tool


class FixtureTests(test_catalog.FixtureTests):
    make = IndexedCatalog


class SearchTests(test_catalog.SearchTests):
    make = IndexedCatalog

    def test_permission_comes_before_the_score(self) -> None:
        """What is summed up never holds a hidden tool, and counting starts none.

        Claims: C10-016, C10-035.
        """
        catalog = IndexedCatalog(tool(f"t{i:03}", "word", "also", permission="pq"[i % 2]) for i in range(100))
        evens = sum(1 << number for number in range(0, 100, 2))
        with mock.patch.object(postings, "_sum", wraps=postings._sum) as counted:
            catalog.search("word also", {"p"}, 60)
        counted.assert_called_once_with([evens, evens])


class LoadTests(test_catalog.LoadTests):
    make = IndexedCatalog


class AuthorizeTests(test_catalog.AuthorizeTests):
    make = IndexedCatalog


class ToolMapTests(test_catalog.ToolMapTests):
    make = IndexedCatalog


class BadInputTests(test_catalog.BadInputTests):
    make = IndexedCatalog


SMALL: dict[str, Any] = {
    "FIRST": 4, "FEW": 2, "FEW_SHARE": 16, "MAX_LATE": 3, "MAX_KEPT_BYTES": 20, "_WINDOW": 5,
}  # fmt: skip
"""Bounds so small that a catalog of thirty tools goes every way of the index."""

USUAL: dict[str, Any] = {name: getattr(postings, name) for name in SMALL}


class EqualityTests(unittest.TestCase):
    """Both catalogs get the same tools, changes and questions."""

    def any_tool(self, chance: random.Random, name: str) -> Tool:
        keywords = [word for place, word in enumerate("abcDEFGßH") if chance.random() < 0.8 ** (place + 1)]
        keywords.append(f"rare{chance.randrange(9)}")
        return tool(name, *chance.sample(keywords, len(keywords)), permission=chance.choice("pqrs"))

    def change(self, both: tuple[Catalog, Catalog], chance: random.Random) -> None:
        name = f"{chance.choice('tuT')}{chance.randrange(40)}"
        new = None if chance.random() < 0.4 else self.any_tool(chance, name)
        for catalog in both:
            if new is None:
                catalog.tools.pop(name, None)
            else:
                catalog.tools[name] = new

    def compare(self, both: tuple[Catalog, Catalog], query: str, grants: frozenset[str], limit: int) -> None:
        plain, indexed = (catalog.search(query, grants, limit) for catalog in both)
        self.assertEqual(canonical(plain), canonical(indexed), (query, grants, limit))

    def test_three_thousand_questions_to_changing_catalogs_have_the_same_answers(self) -> None:
        """Catalogs, changes, queries, grants and limits by chance, with the bounds as they are and with small ones.

        Claims: C10-037, C10-039, C10-040.
        """
        for seed in range(60):
            chance = random.Random(seed)
            names = chance.sample([f"{letter}{number}" for letter in "tuT" for number in range(40)], 120)
            tools = [self.any_tool(chance, name) for name in names[: chance.choice((0, 1, 5, 30, 120))]]
            with mock.patch.multiple(postings, **(SMALL if seed % 4 else USUAL)):
                both = Catalog(tools), IndexedCatalog(tools)
                for _ in range(50):
                    for _ in range(chance.choice((0, 0, 1, 6))):
                        self.change(both, chance)
                    words = chance.choices("ABCDefghẞx", k=chance.randint(0, 6))
                    words += [f"rare{chance.randrange(10)}" for _ in range(chance.choice((0, 0, 1, 2)))]
                    grants = frozenset(chance.sample("pqrsx", chance.randint(0, 4)))
                    self.compare(both, " ".join(words), grants, chance.choice((1, 2, 3, 10, 1000)))
                everything = [[item.name for item in catalog.discoverable({"p", "q"})] for catalog in both]
                self.assertEqual(everything[0], everything[1])
                self.assertEqual(list(both[0].tools), list(both[1].tools))

    def test_a_large_catalog_has_the_same_answers_wherever_the_best_stand(self) -> None:
        """Words of the first, the middle, the last and a few of 6,000 names; then late names before all, and gaps."""
        chance = random.Random(9)

        def keywords(number: int) -> Iterable[str]:
            yield from (word for place, word in enumerate("ABCD") if chance.random() < 0.7 ** (place + 1))
            if number < 200 or number % 601 == 0:
                yield "first"
            if 4000 < number < 4300:
                yield "middle"
            if number > 5700:
                yield from ("last", "also")
            if number % 1500 == 7:
                yield "rare"

        tools = [tool(f"t{n:04}", *keywords(n), permission=chance.choice("ppq")) for n in range(6000)]
        both = Catalog(tools), IndexedCatalog(tools)
        queries = (
            "A", "B C", "last", "first", "A last", "middle last", "A B C", "first middle last", "A middle also",
            "A B C D", "A B last also middle", "rare", "rare middle", "rare nosuch",
        )  # fmt: skip
        for late in (False, True):
            if late:
                for catalog in both:
                    catalog.tools["a"] = tool("a", "A", "B", "last")
                    del catalog.tools["t0000"], catalog.tools["t5999"], catalog.tools["t0007"]
            for query in queries:
                for limit in (1, 3, 40, 1000):
                    self.compare(both, query, frozenset("p"), limit)

    def test_many_good_ones_among_the_first_names_hide_no_better_one_behind(self) -> None:
        """Two of four words in each of the first 600 names, three in one of the last: that one comes first."""
        words = {5000: ("a", "b", "c"), 5500: ("d",)}
        catalog = IndexedCatalog(
            tool(f"t{n:04}", *words.get(n, ("a", "b") if n < 600 else ("d",))) for n in range(6000)
        )
        for query, expected in (("a b c d", ("t5000", 3)), ("a b c", ("t5000", 3)), ("c d a", ("t5000", 2))):
            self.assertEqual(ranking(catalog.search(query, {"p"}, 1)), [expected])

    def test_the_first_names_do_not_win_by_being_first(self) -> None:
        """A thousand first names have two of four words, ten late ones three, and nobody has all."""
        words = dict.fromkeys(range(4500, 4510), "ABC") | {4999: "D"}
        catalog = IndexedCatalog(tool(f"t{n:04}", *words.get(n, "AB" if n < 1000 else "")) for n in range(5000))
        best = [(f"t{number}", 3) for number in range(4500, 4510)]
        for limit in (1, 3, 12, 40):
            expected = (best + [(f"t{number:04}", 2) for number in range(30)])[:limit]
            self.assertEqual(ranking(catalog.search("A B C D", {"p"}, limit)), expected)

    def test_a_refused_change_leaves_the_index_as_it_was(self) -> None:
        """What the mapping refuses, the index never hears of."""
        catalog = IndexedCatalog([tool("a", "w")])
        refused: tuple[tuple[Any, Any], ...] = (("b", tool("c", "w")), ("c", None), (1, tool("c", "w")))
        for name, value in refused:
            with self.assertRaises(CatalogError):
                catalog.tools[name] = value
        with self.assertRaises(KeyError):
            del catalog.tools["c"]
        self.assertEqual(ranking(catalog.search("w", {"p"})), [("a", 1)])


class IndexTests(unittest.TestCase):
    """What the index costs and keeps."""

    def test_what_the_same_grants_may_see_is_worked_out_again_after_a_change(self) -> None:
        """Between two searches a tool comes, another changes its permission, and one goes."""
        catalog = IndexedCatalog(tool(f"t{number}", "w") for number in range(3))
        catalog.search("w", {"p"})
        catalog.tools["a"] = tool("a", "w")
        self.assertEqual([hit["name"] for hit in catalog.search("w", {"p"}, 9)], ["a", "t0", "t1", "t2"])
        catalog.tools["t0"] = tool("t0", "w", permission="q")
        self.assertEqual([hit["name"] for hit in catalog.search("w", {"p"}, 9)], ["a", "t1", "t2"])
        del catalog.tools["t1"]
        self.assertEqual([hit["name"] for hit in catalog.search("w", {"p"}, 9)], ["a", "t2"])

    def test_what_is_remembered_is_bounded(self) -> None:
        """Late numbers, gaps and integers stay within their bounds, whatever is asked and changed."""
        catalog = IndexedCatalog(tool(f"t{number:03}", "w", f"v{number % 9}") for number in range(300))
        index = catalog.tools.index
        with mock.patch.multiple(postings, MAX_LATE=10, MAX_KEPT_BYTES=200):
            for number in range(60):
                catalog.tools[f"late{number:02}"] = tool(f"late{number:02}", "w")
                catalog.search(f"w v{number % 9}", {"p", f"q{number}"})
                self.assertLessEqual(len(index._tools) - index._in_step, 10)
                self.assertLessEqual(len(index._postings._bits) * len(index._tools) // 8, 200)
            for name in list(catalog.tools)[:350]:
                del catalog.tools[name]
            catalog.search("w", {"p"})
            self.assertLessEqual(len(index._tools), 2 * len(catalog.tools) + 10)

    def test_the_published_bounds_of_the_index_are_these(self) -> None:
        """What counts as few, how many first names are tried, and how much may be late or kept."""
        self.assertEqual(
            {name: getattr(postings, name) for name in postings.__all__ if name.isupper()},
            {"FEW": 16, "FEW_SHARE": 1024, "FIRST": 2048, "MAX_KEPT_BYTES": 67_108_864, "MAX_LATE": 512},
        )

    def test_integers_are_kept_while_they_fit_and_not_one_longer(self) -> None:
        """Three of ten bytes fit into thirty; for the fourth all are dropped, and it is kept."""
        catalog = IndexedCatalog(tool(f"t{number:02}", "u", "v", "w") for number in range(80))
        kept = catalog.tools.index._postings._bits
        with mock.patch.object(postings, "MAX_KEPT_BYTES", 30):
            for word, expected in (("u", {"u", ("p",)}), ("v", {"u", ("p",), "v"}), ("w", {"w"})):
                catalog.search(word, {"p"})
                self.assertEqual(set(kept), expected)

    def test_an_integer_is_made_once_for_many_searches(self) -> None:
        """The second search with a word finds what the first one made."""
        catalog = IndexedCatalog(tool(f"t{number:02}", "u") for number in range(80))
        catalog.search("u", {"p"})
        with mock.patch.object(postings.Postings, "_make_bits", side_effect=AssertionError):
            self.assertEqual(len(catalog.search("u", {"p"})), 3)

    def test_all_are_numbered_anew_past_the_bound_and_not_before(self) -> None:
        """The eleventh late name does it where ten may be late, and so does the gap that is one too many."""
        with mock.patch.object(postings, "MAX_LATE", 10):
            catalog = IndexedCatalog(tool(f"t{number}", "w") for number in range(20, 50))
            index = catalog.tools.index
            for number in range(10):
                catalog.tools[f"a{number}"] = tool(f"a{number}", "w")
            catalog.search("w", {"p"})
            self.assertEqual((index._in_step, len(index._tools)), (30, 40))
            catalog.tools["b"] = tool("b", "w")
            catalog.search("w", {"p"})
            self.assertEqual((index._in_step, len(index._tools)), (41, 41))
            catalog = IndexedCatalog(tool(f"t{number}", "w") for number in range(10, 50))
            for number in range(10, 35):
                del catalog.tools[f"t{number}"]
            catalog.search("w", {"p"})
            self.assertEqual(len(catalog.tools.index._tools), 40)  # 25 gaps are ten more than the 15 tools
            del catalog.tools["t35"]
            catalog.search("w", {"p"})
            self.assertEqual(len(catalog.tools.index._tools), 14)

    def test_a_word_that_no_tool_has_any_more_is_forgotten(self) -> None:
        """Its set goes with the last tool, and so does its integer, if there was one."""
        catalog = IndexedCatalog([tool("a", "lone", "both"), tool("b", "both")])
        kept = catalog.tools.index._postings
        catalog.search("lone both", {"p"})
        del catalog.tools["a"]
        self.assertEqual((kept._sets, kept._bits), ({"both": {1}, ("p",): {1}}, {"both": 2, ("p",): 2}))
        del catalog.tools["b"]
        self.assertEqual((kept._sets, kept._bits), ({}, {}))

    def test_a_rare_word_touches_only_its_matches(self) -> None:
        """A word of two tools among 20,000 is answered from two of them, with nothing else looked at."""
        catalog = IndexedCatalog(tool(f"t{n:05}", "all", "two" if n in (7, 19_999) else "other") for n in range(20_000))
        index = catalog.tools.index
        looked_at: list[Any] = []

        class Watched(list[Any]):
            def __getitem__(self, number: Any) -> Any:
                looked_at.append(number)
                return super().__getitem__(number)

        with (
            mock.patch.object(index, "_best_by_bits", side_effect=AssertionError),
            mock.patch.object(index, "_tools", Watched(index._tools)),
        ):
            self.assertEqual(ranking(catalog.search("two nosuch", {"p"})), [("t00007", 1), ("t19999", 1)])
        self.assertEqual([7, 19_999], sorted(looked_at))

    def test_a_common_word_reads_the_first_names_of_a_large_catalog(self) -> None:
        """Where they hold enough of the best, and none is late, no larger integer is taken apart or summed."""
        catalog = IndexedCatalog(tool(f"t{n:04}", "all", "ab"[n % 2]) for n in range(3000))
        with (
            mock.patch.object(postings, "_lowest", wraps=postings._lowest) as lowest,
            mock.patch.object(postings, "_sum", wraps=postings._sum) as summed,
        ):
            catalog.search("all", {"p"}, 3)
            catalog.search("all a b", {"p"}, 3)
        read = [call.args[0] for call in lowest.call_args_list] + [
            n for call in summed.call_args_list for n in call.args[0]
        ]
        self.assertTrue(read)
        self.assertLessEqual(max(bits.bit_length() for bits in read), postings.FIRST)

    def test_an_upgrade_touches_only_its_own_words(self) -> None:
        """A new version under the same words changes no posting; a changed word changes two."""
        catalog = IndexedCatalog(tool(f"t{n:03}", "all", "half") for n in range(100))
        with (
            mock.patch.object(postings.Postings, "add", autospec=True) as add,
            mock.patch.object(postings.Postings, "remove", autospec=True) as remove,
        ):
            catalog.tools["t050"] = replace(catalog.tools["t050"], version="2")
            self.assertEqual((add.call_count, remove.call_count), (0, 0))
            catalog.tools["t050"] = replace(catalog.tools["t050"], keywords=("all", "new"))
            self.assertEqual((add.call_args.args[1:], remove.call_args.args[1:]), (("new", 50), ("half", 50)))

    def test_the_lowest_bits_are_found_in_any_window(self) -> None:
        """Positions in the first window, at its edges, far behind, and none at all."""
        for positions in (
            [], [0], [511, 512], [4095, 4096], [32767, 32768, 100_000], list(range(7, 40)),
            list(range(0, 200_000, 777)),
        ):  # fmt: skip
            bits = sum(1 << position for position in positions)
            for limit in (1, 2, 3, 20, 1000):
                self.assertEqual(postings._lowest(bits, limit), positions[:limit])


if __name__ == "__main__":
    unittest.main()
