"""The catalog: what may be found, what is loaded, what may run now."""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import json
import random
import unittest
from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10 import catalog as catalog_module
from chapter10.canonical import canonical
from chapter10.canonical import digest as canonical_digest
from chapter10.catalog import (
    BUDGET_BYTES,
    FIXTURE_GRANTS,
    MAX_BATCH,
    MAX_GRANTS,
    MAX_LIMIT,
    MAX_QUERY,
    MAX_TEXT,
    Catalog,
    CatalogError,
    Tool,
    byte_size,
    fixture_tools,
    search_entry,
)
from chapter10.jobs import JobError, JobStore
from chapter10.tests.support import FolderTestCase

ALL = FIXTURE_GRANTS | {"refunds:write"}
SURROGATE = "\ud800"


def tool(name: str, *keywords: str, permission: str = "p", **more: Any) -> Tool:
    return Tool(name, "A description.", keywords, permission, more.pop("effect", "read"), **more)


def ranking(hits: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(hit["name"], hit["score"]) for hit in hits]


class CatalogTestCase(unittest.TestCase):
    make: type[Catalog] = Catalog
    """Every catalog is held to the same tests; see `test_indexed_catalog`."""

    def fixture(self) -> Catalog:
        return self.make(fixture_tools())

    def assert_refused(self, code: str, call: Callable[..., object], *arguments: Any, **named: Any) -> CatalogError:
        with self.assertRaises(CatalogError) as caught:
            call(*arguments, **named)
        self.assertEqual(str(caught.exception), code)
        self.assertEqual(caught.exception.code, code)
        return caught.exception


class FixtureTests(CatalogTestCase):
    def test_registered_discoverable_and_loaded_are_three_numbers(self) -> None:
        """300 are registered, 299 may be found, 2 are loaded; the refund permission makes it 300.

        Claims: C10-014, C10-017, C10-018, C10-019.
        """
        catalog = self.fixture()
        loaded = catalog.load(catalog.search("查询 订单 状态", FIXTURE_GRANTS), FIXTURE_GRANTS)
        self.assertEqual(len(catalog.tools), 300)
        self.assertEqual(len(catalog.discoverable(FIXTURE_GRANTS)), 299)
        self.assertEqual(len(catalog.discoverable(ALL)), 300)
        self.assertEqual([definition["name"] for definition in loaded], ["orders.get", "shipments.get"])

    def test_the_published_bytes_come_out(self) -> None:
        """The entry, the cards, the definitions and all definitions have the bytes that the book prints.

        Claims: C10-066, C10-069, C10-070, C10-259.
        """
        catalog = self.fixture()
        hits = catalog.search("查询 订单 状态", FIXTURE_GRANTS, limit=2)
        parts = [byte_size(search_entry()), byte_size(hits), byte_size(catalog.load(hits, FIXTURE_GRANTS))]
        full = byte_size([found.definition() for found in catalog.discoverable(FIXTURE_GRANTS)])
        self.assertEqual(parts, [150, 452, 810])
        self.assertEqual(sum(parts), 1412)
        self.assertEqual(full, 93_644)

    def test_the_descriptions_of_the_book_stand_letter_by_letter(self) -> None:
        """The three tools of the chapter have its descriptions, with what they do not do or that they write.

        Claims: C10-025, C10-026, C10-027, C10-028.
        """
        tools = self.fixture().tools
        self.assertEqual(tools["orders.get"].description, "查询一笔订单的支付与履约状态；只读，不发起退款。")
        self.assertEqual(tools["shipments.get"].description, "查询一笔订单的物流运输状态；不返回支付状态。")
        self.assertEqual(tools["refunds.create"].description, "为已支付订单创建退款申请；会产生写入，需要审批。")
        self.assertEqual(
            [tools[n].effect for n in ("orders.get", "shipments.get", "refunds.create")], ["read", "read", "write"]
        )

    def test_orders_get_has_the_published_fields(self) -> None:
        """Keywords, permission and effect of the order tool are those of the listing.

        Claims: C10-030, C10-031.
        """
        found = self.fixture().tools["orders.get"]
        self.assertEqual(found.keywords, ("查询", "订单", "状态"))
        self.assertEqual((found.permission, found.effect, found.version), ("orders:read", "read", "1"))
        self.assertRegex(found.digest, "^[0-9a-f]{64}$")

    def test_the_rest_is_archive_and_nothing_has_a_handler(self) -> None:
        """296 archive tools and four others, all with one schema, and no field in which code could stand.

        Claims: C10-010, C10-020, C10-021, C10-060, C10-061.
        """
        tools = fixture_tools()
        archive = [item for item in tools if item.name.startswith("archive.lookup_")]
        self.assertEqual(len(archive), 296)
        self.assertEqual({len(item.description.encode()) for item in archive}, {47})
        self.assertEqual((archive[7].name, archive[7].keywords), ("archive.lookup_007", ("归档", "历史", "007")))
        self.assertEqual({canonical(item.parameters) for item in tools}, {canonical(tools[0].parameters)})
        self.assertEqual(list(tools[0].parameters["properties"]), ["record_id"])
        values = [getattr(tools[0], name) for name in ("name", "description", "keywords", "permission", "effect")]
        self.assertFalse(any(callable(value) for value in values))

    def test_the_question_of_day_one_needs_one_definition_of_300(self) -> None:
        """The words of "has order A been paid" load one contract, not three hundred.

        Claims: C10-005.
        """
        catalog = self.fixture()
        loaded = catalog.load(catalog.search("订单 支付", FIXTURE_GRANTS), FIXTURE_GRANTS)
        self.assertEqual([definition["name"] for definition in loaded], ["orders.get"])

    def test_another_query_loads_another_tool(self) -> None:
        """The words for reports find the export and neither of the order tools.

        Claims: C10-270.
        """
        self.assertEqual(ranking(self.fixture().search("报表 导出", FIXTURE_GRANTS)), [("reports.export", 2)])


class SearchTests(CatalogTestCase):
    def test_scores_are_those_that_a_reader_works_out(self) -> None:
        """Three words for the order tool, two for the shipment tool, nothing for the hidden refund tool.

        Claims: C10-036, C10-257.
        """
        hits = self.fixture().search("查询 订单 状态", FIXTURE_GRANTS)
        self.assertEqual(ranking(hits), [("orders.get", 3), ("shipments.get", 2)])

    def test_a_granted_write_tool_is_a_candidate_and_no_more(self) -> None:
        """With the permission the refund tool ranks first; finding it has run nothing and changed nothing.

        Claims: C10-006, C10-049, C10-050.
        """
        catalog = self.fixture()
        before = [item.digest for item in catalog.tools.values()]
        hits = catalog.search("订单 退款", ALL)
        self.assertEqual(ranking(hits), [("refunds.create", 2), ("orders.get", 1)])
        self.assertFalse(any(callable(value) for value in hits[0].values()))
        catalog.load(hits, ALL)
        self.assertEqual([item.digest for item in catalog.tools.values()], before)

    def test_an_equal_score_is_a_tie_that_nobody_resolves(self) -> None:
        """Both tools of the query come back with the same score, and so do two that cannot be told apart.

        Claims: C10-029, C10-046, C10-047.
        """
        self.assertEqual(
            ranking(self.fixture().search("状态", FIXTURE_GRANTS)), [("orders.get", 1), ("shipments.get", 1)]
        )
        twins = self.make([tool("b.info", "信息"), tool("a.info", "信息")])
        self.assertEqual(ranking(twins.search("信息", {"p"})), [("a.info", 1), ("b.info", 1)])

    def test_no_match_is_an_empty_list(self) -> None:
        """Words that nobody has, a whole sentence, no word at all: nothing is forced on the model.

        Claims: C10-033, C10-039, C10-043, C10-044.
        """
        catalog = self.fixture()
        for query in ("火星 着陆", "帮我看看包裹到哪了", "", " \t\n"):
            self.assertEqual(catalog.search(query, ALL), [], query)
        self.assertEqual(self.make([]).search("订单", ALL), [])
        self.assertEqual(catalog.search("订单", set()), [])

    def test_a_word_counts_once_and_any_white_space_parts_words(self) -> None:
        """A repeated word raises no score; a tab, a line end and a wide space part words as a space does.

        Claims: C10-038.
        """
        catalog = self.fixture()
        expected = catalog.search("状态", FIXTURE_GRANTS)
        for query in ("状态 状态\t状态", "\n状态\u3000状态\u2028"):
            self.assertEqual(catalog.search(query, FIXTURE_GRANTS), expected)

    def test_case_is_folded_on_both_sides(self) -> None:
        """A keyword with capitals is found by any case, and two keywords that fold alike count once.

        Claims: C10-037.
        """
        catalog = self.make([tool("a", "HTTP", "Straße", "http")])
        self.assertEqual(ranking(catalog.search("http", {"p"})), [("a", 1)])
        for query in ("Http STRASSE", "HTTP Straße"):
            self.assertEqual(ranking(catalog.search(query, {"p"})), [("a", 2)])

    def test_only_the_keywords_are_searched(self) -> None:
        """Description, effect and version change no score, and a name typed as a query finds nothing.

        Claims: C10-032, C10-053.
        """
        catalog = self.fixture()
        before = ranking(catalog.search("查询 订单", FIXTURE_GRANTS))
        catalog.tools["orders.get"] = replace(
            catalog.tools["orders.get"], description="订单 订单", effect="write", version="9"
        )
        self.assertEqual(ranking(catalog.search("查询 订单", FIXTURE_GRANTS)), before)
        self.assertEqual(catalog.search("orders.get", FIXTURE_GRANTS), [])
        named = self.make([tool("orders.get", "orders.get")])
        self.assertEqual(ranking(named.search("orders.get", {"p"})), [("orders.get", 1)])

    def test_a_card_has_no_parameters(self) -> None:
        """A card holds what one chooses by and what identifies the contract, and leads back to the tool.

        Claims: C10-042, C10-045, C10-079.
        """
        catalog = self.fixture()
        card = catalog.search("订单", FIXTURE_GRANTS)[0]
        self.assertEqual(list(card), ["name", "description", "version", "digest", "effect", "score"])
        self.assertEqual(catalog.tools[card["name"]].permission, "orders:read")
        self.assertEqual(catalog.tools[card["name"]].digest, card["digest"])

    def test_the_limit_is_a_parameter(self) -> None:
        """One keeps the best, two both, twenty all that match; three is the default.

        Claims: C10-055.
        """
        catalog = self.fixture()
        self.assertEqual(len(catalog.search("查询 订单 状态", FIXTURE_GRANTS, limit=1)), 1)
        self.assertEqual(len(catalog.search("查询 订单 状态", FIXTURE_GRANTS, limit=20)), 2)
        self.assertEqual(len(catalog.search("归档", FIXTURE_GRANTS)), 3)
        self.assertEqual(len(catalog.search("归档", FIXTURE_GRANTS, MAX_LIMIT)), 296)

    def test_the_order_of_registration_does_not_matter(self) -> None:
        """However the tools arrive, the answer is the same: score down, then name.

        Claims: C10-040.
        """
        expected = canonical(self.fixture().search("归档 历史 007 订单", ALL, 20))
        for seed in range(5):
            shuffled = random.Random(seed).sample(fixture_tools(), 300)
            self.assertEqual(canonical(self.make(shuffled).search("归档 历史 007 订单", ALL, 20)), expected)

    def test_what_is_hidden_has_no_influence_on_any_byte(self) -> None:
        """With a hidden perfect match there or not there, every query gives the same bytes.

        Claims: C10-012, C10-013, C10-035.
        """
        without = self.make([item for item in fixture_tools() if item.name != "refunds.create"])
        catalog = self.fixture()
        words = sorted({word for item in fixture_tools()[:4] for word in item.keywords} | {"归档", "001"})
        for number in range(200):
            query = " ".join(random.Random(number).sample(words, 1 + number % 5))
            answer = canonical(catalog.search(query, FIXTURE_GRANTS, 10))
            self.assertEqual(answer, canonical(without.search(query, FIXTURE_GRANTS, 10)))
            self.assertNotIn("refunds.create", answer)
            self.assertNotIn("退款申请", answer)

    def test_permission_comes_before_the_score(self) -> None:
        """The words of a hidden tool are never looked at.

        Claims: C10-016, C10-035.
        """
        catalog = Catalog(tool(f"t{n}", "word", permission="pq"[n % 2]) for n in range(6))
        looked_at = []

        def words(item: Tool) -> tuple[str, ...]:
            looked_at.append(item.name)
            return item.keywords

        with mock.patch.object(Tool, "words", property(words)):
            self.assertEqual(len(catalog.search("word", {"p"}, 6)), 3)
        self.assertEqual(looked_at, ["t0", "t2", "t4"])

    def test_what_is_handed_out_is_a_copy(self) -> None:
        """Changing cards, definitions, the entry or a read schema changes nothing in the catalog."""
        catalog = self.fixture()
        hits = catalog.search("订单", FIXTURE_GRANTS)
        before = copy.deepcopy((hits, catalog.load(hits, FIXTURE_GRANTS), search_entry()))
        catalog.load(hits, FIXTURE_GRANTS)[0]["parameters"]["properties"].clear()
        catalog.tools["orders.get"].parameters["required"].clear()
        search_entry()["parameters"].clear()
        hits[0]["description"] = "changed"
        again = catalog.search("订单", FIXTURE_GRANTS)
        self.assertEqual((again, catalog.load(again, FIXTURE_GRANTS), search_entry()), before)

    def test_an_answer_is_what_the_rule_says_for_any_catalog(self) -> None:
        """The rule worked out with sets alone, for random tools, queries, grants and limits.

        Claims: C10-037, C10-039, C10-040.
        """
        for seed, size in enumerate((0, 1, 2, 17, 300)):
            chance = random.Random(seed)
            words = {f"t{n}": chance.sample("abcDEFGH", chance.randint(0, 8)) for n in chance.sample(range(999), size)}
            catalog = self.make(tool(name, *kept, permission=chance.choice("pqrs")) for name, kept in words.items())
            for _ in range(40):
                asked = chance.choices("ABCDefgh", k=chance.randint(1, 9))
                grants, limit = set(chance.sample("pqrs", chance.randint(0, 3))), chance.choice((1, 2, 5, 1000))
                scores = {n: len({*"".join(words[n]).lower()} & {*"".join(asked).lower()}) for n in words}
                seen = [name for name in words if scores[name] and catalog.tools[name].permission in grants]
                expected = sorted(((name, scores[name]) for name in seen), key=lambda pair: (-pair[1], pair[0]))
                self.assertEqual(ranking(catalog.search(" ".join(asked), grants, limit)), expected[:limit])

    def test_many_words_are_summed_right(self) -> None:
        """Scores up to 100 come out in order: each tool has one word more than the one before."""
        words = [f"w{number:03}" for number in range(100)]
        catalog = self.make([tool(f"t{n:03}", *words[: n + 1]) for n in range(100)])
        hits = ranking(catalog.search(" ".join(words), {"p"}, 1000))
        self.assertEqual(hits, [(f"t{n:03}", n + 1) for n in reversed(range(100))])


class LoadTests(CatalogTestCase):
    def setUp(self) -> None:
        self.catalog = self.fixture()
        self.hits = self.catalog.search("查询 订单 状态", FIXTURE_GRANTS)

    def test_a_loaded_definition_is_the_registered_one(self) -> None:
        """The whole schema comes with it, and the digest beside it.

        Claims: C10-057, C10-079.
        """
        loaded = self.catalog.load(self.hits, FIXTURE_GRANTS)
        for definition in loaded:
            registered = self.catalog.tools[definition["name"]]
            self.assertEqual(definition.pop("digest"), registered.digest)
            self.assertEqual(canonical(definition), canonical(registered.definition()))

    def test_the_budget_is_for_the_whole_batch(self) -> None:
        """810 bytes fit into 810 and not into 809, where nothing at all comes back; 4096 is the default.

        Claims: C10-072, C10-073, C10-074, C10-075.
        """
        self.assertEqual(inspect.signature(Catalog.load).parameters["budget_bytes"].default, 4096)
        self.assertEqual(BUDGET_BYTES, 4096)
        self.assertEqual(len(self.catalog.load(self.hits, FIXTURE_GRANTS, 810)), 2)
        error = self.assert_refused("definition_budget_exceeded", self.catalog.load, self.hits, FIXTURE_GRANTS, 809)
        self.assertEqual(
            {key: value for key, value in vars(error).items() if key != "code"}, {"field": None, "reason": None}
        )
        self.assertEqual(len(self.catalog.load(self.hits[:1], FIXTURE_GRANTS, 809)), 1)

    def test_the_counted_bytes_are_those_of_the_list(self) -> None:
        """For any batch the smallest budget that is enough is the canonical size of what comes back."""
        hits = self.catalog.search("归档", FIXTURE_GRANTS, 20)
        for count in range(1, 21):
            size = byte_size(self.catalog.load(hits[:count], FIXTURE_GRANTS, 10**9))
            self.catalog.load(hits[:count], FIXTURE_GRANTS, size)
            self.assert_refused("definition_budget_exceeded", self.catalog.load, hits[:count], FIXTURE_GRANTS, size - 1)
        self.assertEqual(self.catalog.load([], FIXTURE_GRANTS), [])

    def test_unknown_hidden_and_revoked_look_alike(self) -> None:
        """A guessed name, a hidden tool with its right digest and a revoked one give the same error.

        Claims: C10-015, C10-082, C10-089.
        """
        hidden = self.catalog.tools["refunds.create"].card(1)
        unknown = {**hidden, "name": "refunds.destroy"}
        errors = [
            self.assert_refused("denied", self.catalog.load, [hidden], FIXTURE_GRANTS),
            self.assert_refused("denied", self.catalog.load, [unknown], FIXTURE_GRANTS),
            self.assert_refused("denied", self.catalog.load, self.hits, set()),
        ]
        self.assertEqual(
            {repr((error.args, vars(error))) for error in errors}, {repr((errors[0].args, vars(errors[0])))}
        )
        self.assertIsNone(errors[0].__cause__)

    def test_denied_is_decided_for_the_batch_before_stale_and_stale_before_the_budget(self) -> None:
        """A stale card before a hidden one says nothing of staleness, and a stale one nothing of bytes.

        Claims: C10-086.
        """
        self.catalog.tools["orders.get"] = replace(self.catalog.tools["orders.get"], version="2")
        hidden = self.catalog.tools["refunds.create"].card(1)
        self.assert_refused("denied", self.catalog.load, [*self.hits, hidden], FIXTURE_GRANTS, 1)
        self.assert_refused("stale_definition", self.catalog.load, self.hits, FIXTURE_GRANTS, 1)
        self.assert_refused("definition_budget_exceeded", self.catalog.load, self.hits[1:], FIXTURE_GRANTS, 1)

    def test_any_change_between_search_and_load_is_stale(self) -> None:
        """A new version, and a changed field under the old version; the other card of the batch waits.

        Claims: C10-076, C10-078, C10-083, C10-084, C10-087.
        """
        original = self.catalog.tools["orders.get"]
        for change in (
            {"version": "2"},
            {"description": "按结算周期导出"},
            {"effect": "write"},
            {"keywords": ("订单",)},
            {"parameters": {"type": "object"}},
        ):
            with self.subTest(change=change):
                self.catalog.tools["orders.get"] = replace(original, **change)
                self.assert_refused("stale_definition", self.catalog.load, self.hits, FIXTURE_GRANTS)
                self.catalog.tools["orders.get"] = original
                self.assertEqual(len(self.catalog.load(self.hits, FIXTURE_GRANTS)), 2)

    def test_a_changed_permission_is_stale_for_who_has_it_and_denied_for_who_has_not(self) -> None:
        """The permission is part of what was found, although the card does not show it."""
        changed = replace(self.catalog.tools["orders.get"], permission="orders:audit")
        self.catalog.tools["orders.get"] = changed
        self.assert_refused("denied", self.catalog.load, self.hits, FIXTURE_GRANTS)
        grants = FIXTURE_GRANTS | {"orders:audit"}
        self.assert_refused("stale_definition", self.catalog.load, self.hits, grants)

    def test_what_to_do_next_differs(self) -> None:
        """After a stale card a new search helps; after a lost permission nothing here does; removed is denied.

        Claims: C10-092, C10-272.
        """
        self.catalog.tools["orders.get"] = replace(self.catalog.tools["orders.get"], version="2")
        again = self.catalog.search("查询 订单 状态", FIXTURE_GRANTS)
        self.assertEqual(self.catalog.load(again, FIXTURE_GRANTS)[0]["version"], "2")
        for _ in range(3):
            self.assert_refused("denied", self.catalog.load, again, ["reports:write"])
        del self.catalog.tools["orders.get"]
        self.assert_refused("denied", self.catalog.load, again, FIXTURE_GRANTS)

    def test_one_identity_gains_nothing_from_the_cards_of_another(self) -> None:
        """The cards that A found, with all that is remembered of A, are denied to B.

        Claims: C10-088, C10-089.
        """
        hits = self.catalog.search("退款", ALL)
        self.assertEqual(len(self.catalog.load(hits, ALL)), 1)
        self.assert_refused("denied", self.catalog.load, hits, FIXTURE_GRANTS)
        self.assertEqual(self.catalog.search("退款", FIXTURE_GRANTS), [])

    def test_an_edited_card_is_stale_or_refused(self) -> None:
        """Another text under the right digest is not what was found; without name or digest it is no card."""
        card = self.hits[0]
        for key, value in (("version", "2"), ("description", "x"), ("effect", True), ("digest", "0" * 64)):
            edited = {**card, key: value}
            self.assert_refused("stale_definition", self.catalog.load, [edited], FIXTURE_GRANTS)
        for key in ("name", "digest"):
            others: list[Any] = [None, 1, b"x", ["x"], {}]
            for other in others:
                broken = {**card, key: other}
                error = self.assert_refused("invalid_hits", self.catalog.load, [broken], FIXTURE_GRANTS)
                self.assertEqual(error.field, f"hits[0].{key}")
            missing = {k: v for k, v in card.items() if k != key}
            self.assert_refused("invalid_hits", self.catalog.load, [missing], FIXTURE_GRANTS)
        self.assert_refused("invalid_hits", self.catalog.load, [card, card], FIXTURE_GRANTS)


class AuthorizeTests(CatalogTestCase):
    def setUp(self) -> None:
        self.catalog = self.fixture()
        hits = self.catalog.search("查询 订单 状态", FIXTURE_GRANTS)
        self.loaded = self.catalog.load(hits, FIXTURE_GRANTS)[0]

    def test_a_current_definition_with_the_permission_gives_the_tool(self) -> None:
        """Search, load and gateway read one registry, so that what was found can be called.

        Claims: C10-016, C10-024, C10-059.
        """
        self.assertIs(self.catalog.authorize(self.loaded, FIXTURE_GRANTS), self.catalog.tools["orders.get"])
        for hit in self.catalog.search("归档", FIXTURE_GRANTS, 300):
            [loaded] = self.catalog.load([hit], FIXTURE_GRANTS)
            self.assertEqual(self.catalog.authorize(loaded, FIXTURE_GRANTS).name, hit["name"])

    def test_emptied_grants_deny_a_loaded_definition(self) -> None:
        """Loading gave no permission, and the grants are read again at each call, in both directions.

        Claims: C10-015, C10-022, C10-085, C10-090.
        """
        grants = {"orders:read"}
        self.catalog.authorize(self.loaded, grants)
        grants.clear()
        self.assert_refused("denied", self.catalog.authorize, self.loaded, grants)
        grants.add("orders:read")
        self.catalog.authorize(self.loaded, grants)

    def test_a_definition_that_changed_after_loading_is_stale(self) -> None:
        """A new version and a silent change are both seen at the moment of execution; denied comes first.

        Claims: C10-022, C10-083, C10-086, C10-087.
        """
        original = self.catalog.tools["orders.get"]
        for change in ({"version": "2"}, {"description": "x"}, {"effect": "write"}, {"keywords": ()}):
            self.catalog.tools["orders.get"] = replace(original, **change)
            self.assert_refused("stale_definition", self.catalog.authorize, self.loaded, FIXTURE_GRANTS)
            self.assert_refused("denied", self.catalog.authorize, self.loaded, set())
        del self.catalog.tools["orders.get"]
        self.assert_refused("denied", self.catalog.authorize, self.loaded, FIXTURE_GRANTS)

    def test_an_edited_definition_is_stale(self) -> None:
        """A schema that somebody loosened after loading is not the contract, though the digest is right."""
        self.loaded["parameters"]["additionalProperties"] = 0
        self.assert_refused("stale_definition", self.catalog.authorize, self.loaded, FIXTURE_GRANTS)
        self.loaded["parameters"] = {1: float("nan")}
        self.assert_refused("stale_definition", self.catalog.authorize, self.loaded, FIXTURE_GRANTS)

    def test_a_guessed_name_is_denied_whether_or_not_it_exists(self) -> None:
        """A hidden tool and none at all give one error, with or without the right digest.

        Claims: C10-012, C10-082.
        """
        right = self.catalog.tools["refunds.create"].digest
        guesses = [("refunds.create", right), ("refunds.create", "0" * 64), ("no.such", "0" * 64), (SURROGATE, "")]
        for name, digest in guesses:
            guess = {"name": name, "digest": digest}
            error = self.assert_refused("denied", self.catalog.authorize, guess, FIXTURE_GRANTS)
            self.assertEqual((error.field, error.reason), (None, None))

    def test_what_is_no_definition_is_refused(self) -> None:
        """Other types and missing fields are the caller's mistake and look like one."""
        for value in (None, 1, "orders.get", [self.loaded], {}, {"name": "orders.get"}, {"digest": "x"}):
            self.assert_refused("invalid_definition", self.catalog.authorize, value, FIXTURE_GRANTS)


class ToolTests(CatalogTestCase):
    def test_a_tool_takes_the_five_keywords_of_the_book(self) -> None:
        """The listing's call works, with version "1" and the one fixture schema as defaults.

        Claims: C10-011, C10-030.
        """
        made = Tool(name="a", description="b", keywords=("c",), permission="d", effect="read")
        self.assertEqual((made.version, list(made.parameters["properties"])), ("1", ["record_id"]))
        self.assertEqual(list(made.definition()), ["name", "description", "version", "effect", "parameters"])

    def test_a_list_of_keywords_is_kept_as_a_tuple(self) -> None:
        """What a file gives will do, and cannot be changed afterwards."""
        keywords: Any = ["c", "d"]
        self.assertEqual(Tool("a", "b", keywords, "p", "read").keywords, ("c", "d"))

    def test_the_digest_is_sha256_of_the_canonical_form(self) -> None:
        """Anybody can work it out again with `json` and `hashlib`, text not escaped, keys sorted.

        Claims: C10-080.
        """
        made = tool("a", "词")
        fields = {**made.definition(), "keywords": ["词"], "permission": "p"}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        self.assertEqual(made.digest, hashlib.sha256(text.encode("utf-8")).hexdigest())

    def test_the_digest_changes_with_each_field_and_not_with_the_order_of_keys(self) -> None:
        """Seven fields changed one by one give seven other digests; the same schema written otherwise, none.

        Claims: C10-076, C10-078, C10-081.
        """
        made = tool("a", "k", parameters={"type": "object", "x": 1})
        changes: list[dict[str, Any]] = [
            {"name": "b"},
            {"description": "b"},
            {"keywords": ("k", "l")},
            {"permission": "q"},
            {"effect": "write"},
            {"version": "2"},
            {"parameters": {"type": "object", "x": 1.0}},
        ]
        others = [replace(made, **change) for change in changes]
        self.assertEqual(len({made.digest, *(other.digest for other in others)}), 8)
        self.assertEqual(len({made, *others}), 8)
        reordered: dict[str, Any] = {"parameters": {"x": 1, "type": "object"}}
        same = replace(made, **reordered)
        self.assertEqual((same.digest, same), (made.digest, made))

    def test_the_digest_is_worked_out_once_and_not_before_it_is_asked_for(self) -> None:
        """Making tools hashes nothing; asking twice hashes once."""
        with mock.patch("chapter10.catalog.digest", wraps=canonical_digest) as hashed:
            made = tool("a")
            Catalog([made])
            self.assertEqual(hashed.call_count, 0)
            self.assertEqual(made.digest, made.digest)
            self.assertEqual(hashed.call_count, 1)

    def test_a_tool_never_changes(self) -> None:
        """No field can be set, and the schema that was passed in or read out is not the one inside."""
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        made = tool("a", parameters=schema)
        before = made.digest
        schema["properties"]["x"] = {}
        made.parameters["properties"]["y"] = {}
        with self.assertRaises(FrozenInstanceError):
            made.version = "2"  # type: ignore[misc]
        with self.assertRaises(FrozenInstanceError):
            del made.version
        with self.assertRaises(FrozenInstanceError):
            made.parameters = {}  # type: ignore[misc]
        self.assertEqual(replace(made).digest, before)
        self.assertEqual(made.parameters, {"type": "object", "properties": {}})

    def test_a_copied_tool_is_equal(self) -> None:
        """`copy` and `deepcopy` give an equal tool; something else is not equal."""
        made = tool("a", "K", parameters={"type": "object"})
        self.assertEqual(copy.copy(made), made)
        self.assertEqual(copy.deepcopy(made), made)
        self.assertNotEqual(made, "a")

    def test_bad_fields_are_refused_by_name(self) -> None:
        """Wrong types, sizes and signs in each field, with the field named and no tool made."""
        good: dict[str, Any] = {"name": "a", "description": "", "keywords": (), "permission": "p", "effect": "read"}
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        label: tuple[Any, ...] = ("", "x" * (MAX_TEXT + 1), "a\nb", "a\0b", SURROGATE, None, True, 1, b"a", ["a"], {})
        bad: dict[str, tuple[Any, ...]] = {
            "name": label,
            "permission": label,
            "version": label,
            "description": (None, True, b"", SURROGATE, "x" * (catalog_module.MAX_DESCRIPTION + 1)),
            "effect": ("READ", "", "reversible_write", None, True, ["read"]),
            "keywords": (
                "abc",
                None,
                {"a"},
                (1,),
                (None,),
                ("",),
                ("a b",),
                ("a\t",),
                (SURROGATE,),
                (True,),
                ("x" * 201,),
            ),
            "parameters": (
                [],
                "x",
                1,
                {1: 2},
                {"x": float("nan")},
                {"x": SURROGATE},
                {"x": {1}},
                {"x": deep},
                {"x": (1,)},
            ),
        }
        for field, values in bad.items():
            for value in values:
                with self.subTest(field=field, value=str(type(value))):
                    error = self.assert_refused("invalid_tool", Tool, **{**good, field: value})
                    self.assertEqual(error.field, field)
        self.assert_refused("invalid_tool", Tool, **good, parameters={"x": "y" * catalog_module.MAX_PARAMETERS_BYTES})

    def test_the_bounds_are_taken_and_what_is_beyond_is_not(self) -> None:
        """The longest name, keyword and parameters, the most keywords; a short keyword hides no long one."""
        longest = "x" * MAX_TEXT
        good: dict[str, Any] = {
            "name": longest, "description": "", "keywords": ("a", longest), "permission": longest, "effect": "read",
            "version": longest,
        }  # fmt: skip
        self.assertEqual(Tool(**good).keywords, ("a", longest))
        self.assert_refused("invalid_tool", Tool, **{**good, "keywords": ("a", longest + "x")})
        most = tuple(map(str, range(catalog_module.MAX_KEYWORDS)))
        self.assertEqual(len(Tool(**{**good, "keywords": most}).keywords), catalog_module.MAX_KEYWORDS)
        self.assert_refused("invalid_tool", Tool, **{**good, "keywords": (*most, "x")})
        room = catalog_module.MAX_PARAMETERS_BYTES - len(canonical({"x": ""}))
        Tool(**good, parameters={"x": "y" * room})
        self.assert_refused("invalid_tool", Tool, **good, parameters={"x": "y" * (room + 1)})

    def test_a_text_of_a_kind_of_its_own_is_no_text(self) -> None:
        """Equal to the word, or to the name; its methods could say anything."""

        class Word(str):
            pass

        self.assert_refused("invalid_tool", Tool, "n", "", (), "p", Word("read"))
        catalog = Catalog()
        self.assert_refused("name_mismatch", catalog.tools.__setitem__, Word("n"), tool("n"))

    def test_texts_are_kept_as_they_are(self) -> None:
        """Both Unicode forms, signs beyond the first plane, quotes and NUL in a description come back equal."""
        for text in (
            "e\u0301",
            "\u00e9",
            "\U0001f600",
            '"\\',
            "\0",
            "a\r\n\u2028b",
            "x" * catalog_module.MAX_DESCRIPTION,
        ):
            made = Tool("n", text, ("e\u0301",), "p", "read")
            loaded = json.loads(canonical(made.definition()))
            self.assertEqual(loaded["description"], text)


class ToolMapTests(CatalogTestCase):
    def test_an_upgrade_is_seen_by_every_question(self) -> None:
        """Replacing a tool moves it in the index: old words lose it, new words find it."""
        catalog = self.fixture()
        upgraded = replace(catalog.tools["orders.get"], keywords=("新词", "订单"), permission="reports:write")
        catalog.tools["orders.get"] = upgraded
        self.assertEqual(ranking(catalog.search("新词", {"reports:write"})), [("orders.get", 1)])
        self.assertEqual(ranking(catalog.search("状态", FIXTURE_GRANTS)), [("shipments.get", 1)])
        self.assertEqual([item.name for item in catalog.discoverable({"orders:read"})], ["shipments.get"])
        self.assertEqual(len(catalog.tools), 300)

    def test_a_new_tool_is_found_in_the_order_of_names_and_a_removed_one_is_gone(self) -> None:
        """Names that arrive later rank among the earlier ones, and deletion works through every mapping verb."""
        catalog = self.make([tool("b", "w"), tool("d", "w")])
        for name in ("e", "a", "c"):
            catalog.tools[name] = tool(name, "w")
        self.assertEqual([hit["name"] for hit in catalog.search("w", {"p"}, 4)], ["a", "b", "c", "d"])
        del catalog.tools["a"]
        self.assertEqual(catalog.tools.pop("c").name, "c")
        self.assertEqual([hit["name"] for hit in catalog.search("w", {"p"}, 4)], ["b", "d", "e"])
        catalog.tools.clear()
        self.assertEqual((catalog.search("w", {"p"}), len(catalog.tools), list(catalog.tools)), ([], 0, []))
        catalog.tools.update(a=tool("a", "w"))
        self.assertEqual(ranking(catalog.search("w", {"p"})), [("a", 1)])

    def test_a_name_is_registered_once(self) -> None:
        """Two tools of one name are refused with both places; `Search` and `search` are two names."""
        error = self.assert_refused("duplicate_tool", self.make, [tool("x"), tool("search"), tool("search", "w")])
        self.assertEqual((error.field, error.reason), ("tools[2]", "the same name as tools[1]"))
        same = tool("search")
        self.assert_refused("duplicate_tool", self.make, [same, same])
        self.assertEqual(len(self.make([tool("search"), tool("Search")]).tools), 2)

    def test_a_key_is_the_name_of_its_tool(self) -> None:
        """Another key is refused and nothing changes, and so is what is no tool."""
        catalog = self.fixture()
        before = list(catalog.tools.items())
        made = tool("new.tool", "订单", permission="orders:read")
        for key in ("other", "", 1, None, ("new.tool",), ["new.tool"]):
            self.assert_refused("name_mismatch", catalog.tools.__setitem__, key, made)
        for value in (None, "new.tool", {}, Tool, made.definition()):
            self.assert_refused("invalid_tool", catalog.tools.__setitem__, "new.tool", value)
        self.assertEqual(list(catalog.tools.items()), before)
        self.assertEqual(len(catalog.search("订单", ALL)), 2)

    def test_a_missing_name_is_a_key_error(self) -> None:
        """The mapping behaves as mappings do, also for keys that no mapping could hold."""
        catalog = self.fixture()
        keys: list[Any] = ["no.such", "", 1, None, ["x"], {}]
        for key in keys:
            with self.assertRaises(KeyError):
                catalog.tools[key]
            with self.assertRaises(KeyError):
                del catalog.tools[key]
            self.assertNotIn(key, catalog.tools)
            self.assertIsNone(catalog.tools.get(key))

    def test_there_is_a_largest_catalog(self) -> None:
        """One tool more than the bound is refused, at once or one by one; replacing still works."""
        with mock.patch.object(catalog_module, "MAX_TOOLS", 2):
            self.assert_refused("too_many_tools", self.make, [tool("a"), tool("b"), tool("c")])
            catalog = self.make([tool("a"), tool("b")])
            self.assert_refused("too_many_tools", catalog.tools.__setitem__, "c", tool("c"))
            catalog.tools["a"] = tool("a", "w")
            self.assertEqual(len(catalog.search("w", {"p"})), 1)


class BadInputTests(CatalogTestCase):
    def test_the_published_limits_are_these(self) -> None:
        """A number that is written down anywhere else is written down here too."""
        limits = {name: getattr(catalog_module, name) for name in catalog_module.__all__ if name.startswith("MAX_")}
        self.assertEqual(
            limits,
            {
                "MAX_BATCH": 1000,
                "MAX_DESCRIPTION": 65_536,
                "MAX_GRANTS": 10_000,
                "MAX_KEYWORDS": 100_000,
                "MAX_LIMIT": 1000,
                "MAX_PARAMETERS_BYTES": 1_048_576,
                "MAX_QUERY": 1000,
                "MAX_TEXT": 200,
                "MAX_TOOLS": 1_000_000,
            },
        )

    def test_search_refuses_what_is_no_query(self) -> None:
        """Other types, too long, a lone surrogate; the next search works.

        Claims: C10-041.
        """
        catalog = self.fixture()
        for query in (None, 1, True, b"x", ["x"], {"x"}, SURROGATE, "x" * (MAX_QUERY + 1), "x" * 2**20):
            self.assert_refused("invalid_query", catalog.search, query, ALL)
        for query in ("\0", "e\u0301", "x" * MAX_QUERY, "{}", "订单\0"):
            self.assertEqual(catalog.search(query, ALL), [])
        self.assertEqual(len(catalog.search("订单", ALL)), 2)

    def test_search_refuses_what_is_no_limit(self) -> None:
        """Zero, negative, bool, float, text, and more than the bound.

        Claims: C10-041, C10-055.
        """
        catalog = self.fixture()
        for limit in (0, -1, True, False, 1.0, float("nan"), "3", None, MAX_LIMIT + 1, 10**100):
            error = self.assert_refused("invalid_limit", catalog.search, "订单", ALL, limit)
            self.assertEqual((error.field, error.reason), ("limit", "not an integer from 1 to 1000"))

    def test_every_question_refuses_what_are_no_grants(self) -> None:
        """One string would match by its parts, so it is refused, and so is all that is no collection of strings."""
        catalog = self.fixture()
        hits = catalog.search("订单", ALL)
        loaded = catalog.load(hits, ALL)[0]
        bad = (
            "orders:read",
            "",
            b"x",
            None,
            1,
            True,
            {"orders:read": 1},
            iter(["x"]),
            [1],
            [None],
            [["x"]],
            (b"x",),
            {True},
        )
        for grants in (*bad, ["p"] * (MAX_GRANTS + 1)):
            self.assert_refused("invalid_grants", catalog.search, "订单", grants)
            self.assert_refused("invalid_grants", catalog.load, hits, grants)
            self.assert_refused("invalid_grants", catalog.authorize, loaded, grants)
            self.assert_refused("invalid_grants", catalog.discoverable, grants)

    def test_any_collection_of_strings_will_do_for_grants(self) -> None:
        """A set, a frozen one, a list, a tuple and the keys of a dict say the same."""
        catalog = self.fixture()
        expected = catalog.search("订单", frozenset({"orders:read"}))
        for grants in ({"orders:read"}, ["orders:read"] * 2, ("orders:read",), {"orders:read": 1}.keys()):
            self.assertEqual(catalog.search("订单", grants), expected)
        self.assertEqual(catalog.search("订单", ["orders:read"] * MAX_GRANTS), expected)

    def test_load_refuses_what_is_no_batch(self) -> None:
        """Other types, too many cards, a budget that is no positive integer."""
        catalog = self.fixture()
        hits = catalog.search("订单", ALL)
        bad: list[Any] = [None, 1, "x", hits[0], iter(hits), {1}, [None], ["orders.get"], [[]], hits * (MAX_BATCH + 1)]
        for value in bad:
            self.assert_refused("invalid_hits", catalog.load, value, ALL)
        for budget in (0, -1, True, 1e3, float("inf"), "4096", None):
            error = self.assert_refused("invalid_budget", catalog.load, hits, ALL, budget)
            self.assertEqual((error.field, error.reason), ("budget_bytes", "not a positive integer"))
        self.assertEqual(len(catalog.load(hits, ALL, 10**100)), 2)
        many = self.make(tool(f"t{number}", "word") for number in range(MAX_BATCH + 1))
        cards = [{"name": item.name, "digest": item.digest} for item in many.tools.values()]
        self.assertEqual(len(many.load(cards[:MAX_BATCH], ["p"], 10**9)), MAX_BATCH)
        self.assert_refused("invalid_hits", many.load, cards, ["p"], 10**9)

    def test_a_catalog_is_made_of_tools(self) -> None:
        """What is no collection, and a collection of something else, is refused; so is what is almost a tool."""

        class Special(Tool):
            pass

        special = Special("a", "", (), "p", "read")
        for tools in (None, 1, "abc", [None], [tool("a"), {}], {"a": tool("a")}, [special]):
            self.assert_refused("invalid_tool", self.make, tools)
        self.assert_refused("invalid_tool", self.make().tools.__setitem__, "a", special)


class BoundaryTests(FolderTestCase):
    def test_the_catalog_knows_nothing_of_jobs(self) -> None:
        """Neither module imports the other: the fixture schema and the report's month are two interfaces.

        Claims: C10-010, C10-062.
        """
        for module, other in (("catalog", "jobs"), ("jobs", "catalog")):
            source = Path(catalog_module.__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
            imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
            self.assertNotIn(f"chapter10.{other}", imported)

    def test_the_fixture_argument_is_no_report_argument(self) -> None:
        """A job for `record_id` is refused, a job for a month is taken.

        Claims: C10-062, C10-063.
        """
        with JobStore(self.folder / "jobs.db") as store:
            with self.assertRaises(JobError) as caught:
                store.submit("alice", "august", {"record_id": "2026-08"}, now=0)
            self.assertEqual(caught.exception.code, "invalid_submission")
            self.assertEqual(store.submit("alice", "august", {"month": "2026-08"}, now=0), 1)


if __name__ == "__main__":
    unittest.main()
