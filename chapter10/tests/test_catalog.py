"""The catalog: what may be found, what is loaded, what may run now; and the index that searches it."""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import json
import random
import unittest
from collections.abc import Callable, Collection, Iterable
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
from chapter10.companions.finding import postings
from chapter10.jobs import JobError, JobStore
from chapter10.tests.support import FolderTestCase

ALL = FIXTURE_GRANTS | {"refunds:write"}
SURROGATE = "\ud800"


def fixture() -> Catalog:
    return Catalog(fixture_tools())


def tool(name: str, *keywords: str, permission: str = "p", **more: Any) -> Tool:
    return Tool(name, "A description.", keywords, permission, more.pop("effect", "read"), **more)


def ranking(hits: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(hit["name"], hit["score"]) for hit in hits]


class CatalogTestCase(unittest.TestCase):
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
        catalog = fixture()
        loaded = catalog.load(catalog.search("查询 订单 状态", FIXTURE_GRANTS), FIXTURE_GRANTS)
        self.assertEqual(len(catalog.tools), 300)
        self.assertEqual(len(catalog.discoverable(FIXTURE_GRANTS)), 299)
        self.assertEqual(len(catalog.discoverable(ALL)), 300)
        self.assertEqual([definition["name"] for definition in loaded], ["orders.get", "shipments.get"])

    def test_the_published_bytes_come_out(self) -> None:
        """The entry, the cards, the definitions and all definitions have the bytes that the book prints.

        Claims: C10-066, C10-069, C10-070, C10-259.
        """
        catalog = fixture()
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
        tools = fixture().tools
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
        found = fixture().tools["orders.get"]
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
        self.assertEqual({canonical(item.parameters) for item in tools}, {canonical(tools[0].parameters)})
        self.assertEqual(list(tools[0].parameters["properties"]), ["record_id"])
        values = [getattr(tools[0], name) for name in ("name", "description", "keywords", "permission", "effect")]
        self.assertFalse(any(callable(value) for value in values))

    def test_the_question_of_day_one_needs_one_definition_of_300(self) -> None:
        """The words of "has order A been paid" load one contract, not three hundred.

        Claims: C10-005.
        """
        catalog = fixture()
        loaded = catalog.load(catalog.search("订单 支付", FIXTURE_GRANTS), FIXTURE_GRANTS)
        self.assertEqual([definition["name"] for definition in loaded], ["orders.get"])

    def test_another_query_loads_another_tool(self) -> None:
        """The words for reports find the export and neither of the order tools.

        Claims: C10-270.
        """
        self.assertEqual(ranking(fixture().search("报表 导出", FIXTURE_GRANTS)), [("reports.export", 2)])


class SearchTests(CatalogTestCase):
    def test_scores_are_those_that_a_reader_works_out(self) -> None:
        """Three words for the order tool, two for the shipment tool, nothing for the hidden refund tool.

        Claims: C10-036, C10-257.
        """
        hits = fixture().search("查询 订单 状态", FIXTURE_GRANTS)
        self.assertEqual(ranking(hits), [("orders.get", 3), ("shipments.get", 2)])

    def test_a_granted_write_tool_is_a_candidate_and_no_more(self) -> None:
        """With the permission the refund tool ranks first; finding it has run nothing and changed nothing.

        Claims: C10-006, C10-049, C10-050.
        """
        catalog = fixture()
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
        self.assertEqual(ranking(fixture().search("状态", FIXTURE_GRANTS)), [("orders.get", 1), ("shipments.get", 1)])
        twins = Catalog([tool("b.info", "信息"), tool("a.info", "信息")])
        self.assertEqual(ranking(twins.search("信息", {"p"})), [("a.info", 1), ("b.info", 1)])

    def test_no_match_is_an_empty_list(self) -> None:
        """Words that nobody has, a whole sentence, no word at all: nothing is forced on the model.

        Claims: C10-033, C10-039, C10-043, C10-044.
        """
        catalog = fixture()
        for query in ("火星 着陆", "帮我看看包裹到哪了", "", " \t\n"):
            self.assertEqual(catalog.search(query, ALL), [], query)
        self.assertEqual(Catalog([]).search("订单", ALL), [])
        self.assertEqual(catalog.search("订单", set()), [])

    def test_a_word_counts_once_and_any_white_space_parts_words(self) -> None:
        """A repeated word raises no score; a tab, a line end and a wide space part words as a space does.

        Claims: C10-038.
        """
        catalog = fixture()
        expected = catalog.search("状态", FIXTURE_GRANTS)
        for query in ("状态 状态\t状态", "\n状态\u3000状态\u2028"):
            self.assertEqual(catalog.search(query, FIXTURE_GRANTS), expected)

    def test_case_is_folded_on_both_sides(self) -> None:
        """A keyword with capitals is found by any case, and two keywords that fold alike count once.

        Claims: C10-037.
        """
        catalog = Catalog([tool("a", "HTTP", "Straße", "http")])
        self.assertEqual(ranking(catalog.search("http", {"p"})), [("a", 1)])
        self.assertEqual(ranking(catalog.search("Http STRASSE", {"p"})), [("a", 2)])

    def test_only_the_keywords_are_searched(self) -> None:
        """Description, effect and version change no score, and a name typed as a query finds nothing.

        Claims: C10-032, C10-053.
        """
        catalog = fixture()
        before = ranking(catalog.search("查询 订单", FIXTURE_GRANTS))
        catalog.tools["orders.get"] = replace(
            catalog.tools["orders.get"], description="订单 订单", effect="write", version="9"
        )
        self.assertEqual(ranking(catalog.search("查询 订单", FIXTURE_GRANTS)), before)
        self.assertEqual(catalog.search("orders.get", FIXTURE_GRANTS), [])
        named = Catalog([tool("orders.get", "orders.get")])
        self.assertEqual(ranking(named.search("orders.get", {"p"})), [("orders.get", 1)])

    def test_a_card_has_no_parameters(self) -> None:
        """A card holds what one chooses by and what identifies the contract, and leads back to the tool.

        Claims: C10-042, C10-045, C10-079.
        """
        catalog = fixture()
        card = catalog.search("订单", FIXTURE_GRANTS)[0]
        self.assertEqual(list(card), ["name", "description", "version", "digest", "effect", "score"])
        self.assertEqual(catalog.tools[card["name"]].permission, "orders:read")
        self.assertEqual(catalog.tools[card["name"]].digest, card["digest"])

    def test_the_limit_is_a_parameter(self) -> None:
        """One keeps the best, two both, twenty all that match; three is the default.

        Claims: C10-055.
        """
        catalog = fixture()
        self.assertEqual(len(catalog.search("查询 订单 状态", FIXTURE_GRANTS, limit=1)), 1)
        self.assertEqual(len(catalog.search("查询 订单 状态", FIXTURE_GRANTS, limit=20)), 2)
        self.assertEqual(len(catalog.search("归档", FIXTURE_GRANTS)), 3)
        self.assertEqual(len(catalog.search("归档", FIXTURE_GRANTS, MAX_LIMIT)), 296)

    def test_the_order_of_registration_does_not_matter(self) -> None:
        """However the tools arrive, the answer is the same: score down, then name.

        Claims: C10-040.
        """
        expected = canonical(fixture().search("归档 历史 007 订单", ALL, 20))
        for seed in range(5):
            shuffled = random.Random(seed).sample(fixture_tools(), 300)
            self.assertEqual(canonical(Catalog(shuffled).search("归档 历史 007 订单", ALL, 20)), expected)

    def test_what_is_hidden_has_no_influence_on_any_byte(self) -> None:
        """With a hidden perfect match there or not there, every query gives the same bytes.

        Claims: C10-012, C10-013, C10-035.
        """
        without = Catalog([item for item in fixture_tools() if item.name != "refunds.create"])
        catalog = fixture()
        words = sorted({word for item in fixture_tools()[:4] for word in item.keywords} | {"归档", "001"})
        for number in range(200):
            query = " ".join(random.Random(number).sample(words, 1 + number % 5))
            answer = canonical(catalog.search(query, FIXTURE_GRANTS, 10))
            self.assertEqual(answer, canonical(without.search(query, FIXTURE_GRANTS, 10)))
            self.assertNotIn("refunds.create", answer)
            self.assertNotIn("退款申请", answer)

    def test_permission_comes_before_the_score(self) -> None:
        """What is summed up never holds a hidden tool, and counting never starts one.

        Claims: C10-016, C10-035.
        """
        catalog = Catalog([tool(f"t{i:03}", "word", "also", permission="pq"[i % 2]) for i in range(100)])
        evens = sum(1 << number for number in range(0, 100, 2))
        with mock.patch.object(postings, "_lower_scores", wraps=postings._lower_scores) as counted:
            catalog.search("word also", {"p"}, 60)
        counted.assert_called_once_with([evens, evens], evens)

    def test_what_is_handed_out_is_a_copy(self) -> None:
        """Changing cards, definitions, the entry or a read schema changes nothing in the catalog."""
        catalog = fixture()
        hits = catalog.search("订单", FIXTURE_GRANTS)
        before = copy.deepcopy((hits, catalog.load(hits, FIXTURE_GRANTS), search_entry()))
        catalog.load(hits, FIXTURE_GRANTS)[0]["parameters"]["properties"].clear()
        catalog.tools["orders.get"].parameters["required"].clear()
        search_entry()["parameters"].clear()
        hits[0]["description"] = "changed"
        again = catalog.search("订单", FIXTURE_GRANTS)
        self.assertEqual((again, catalog.load(again, FIXTURE_GRANTS), search_entry()), before)


class LoadTests(CatalogTestCase):
    def setUp(self) -> None:
        self.catalog = fixture()
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
        self.catalog = fixture()
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
            del made.words
        self.assertEqual(replace(made).digest, before)
        self.assertEqual(made.parameters, {"type": "object", "properties": {}})
        self.assertFalse(hasattr(made, "__dict__"))

    def test_a_copied_tool_is_equal(self) -> None:
        """`copy` and `deepcopy` give an equal tool; something else is not equal."""
        made = tool("a", "K", parameters={"type": "object"})
        self.assertEqual(copy.copy(made), made)
        self.assertEqual(copy.deepcopy(made), made)
        self.assertNotEqual(made, "a")

    def test_there_is_no_class_of_tools_beside_tool(self) -> None:
        """One derived from it is refused when it is made, not when it loses its methods."""
        for body in ({}, {"__slots__": ()}):
            with self.subTest(body=body), self.assertRaisesRegex(TypeError, "no subclasses"):
                type("Special", (Tool,), body)

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
        catalog = fixture()
        upgraded = replace(catalog.tools["orders.get"], keywords=("新词", "订单"), permission="reports:write")
        catalog.tools["orders.get"] = upgraded
        self.assertEqual(ranking(catalog.search("新词", {"reports:write"})), [("orders.get", 1)])
        self.assertEqual(ranking(catalog.search("状态", FIXTURE_GRANTS)), [("shipments.get", 1)])
        self.assertEqual([item.name for item in catalog.discoverable({"orders:read"})], ["shipments.get"])
        self.assertEqual(len(catalog.tools), 300)

    def test_a_new_tool_is_found_in_the_order_of_names_and_a_removed_one_is_gone(self) -> None:
        """Names that arrive later rank among the earlier ones, and deletion works through every mapping verb."""
        catalog = Catalog([tool("b", "w"), tool("d", "w")])
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
        error = self.assert_refused("duplicate_tool", Catalog, [tool("x"), tool("search"), tool("search", "w")])
        self.assertEqual((error.field, error.reason), ("tools[2]", "the same name as tools[1]"))
        same = tool("search")
        self.assert_refused("duplicate_tool", Catalog, [same, same])
        self.assertEqual(len(Catalog([tool("search"), tool("Search")]).tools), 2)

    def test_a_key_is_the_name_of_its_tool(self) -> None:
        """Another key is refused and nothing changes, and so is what is no tool."""
        catalog = fixture()
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
        catalog = fixture()
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
            self.assert_refused("too_many_tools", Catalog, [tool("a"), tool("b"), tool("c")])
            catalog = Catalog([tool("a"), tool("b")])
            self.assert_refused("too_many_tools", catalog.tools.__setitem__, "c", tool("c"))
            catalog.tools["a"] = tool("a", "w")
            self.assertEqual(len(catalog.search("w", {"p"})), 1)


class IndexTests(CatalogTestCase):
    """The index against the rule of the chapter, worked out tool by tool."""

    @staticmethod
    def by_rule(tools: Iterable[Tool], query: str, grants: Collection[str], limit: int) -> list[tuple[str, int]]:
        words = set(query.casefold().split())
        scored = [
            (item.name, len(words & {word.casefold() for word in item.keywords}))
            for item in tools
            if item.permission in grants
        ]
        return sorted((pair for pair in scored if pair[1]), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def compare(self, catalog: Catalog, chance: random.Random, times: int) -> None:
        for _ in range(times):
            query = " ".join([*chance.choices("ABCDEFGH", k=chance.randint(1, 9)), f"rare{chance.randrange(99)}"])
            grants = frozenset(chance.sample("pqrs", chance.randint(0, 3)))
            limit = chance.choice((1, 2, 5, 40, 1000))
            expected = self.by_rule(catalog.tools.values(), query, grants, limit)
            self.assertEqual(ranking(catalog.search(query, grants, limit)), expected, (query, grants, limit))

    def any_tool(self, chance: random.Random, name: str) -> Tool:
        keywords = [word for place, word in enumerate("abcDEFGH") if chance.random() < 0.5 ** (place + 1)]
        keywords.append(f"rare{chance.randrange(99)}")
        return tool(name, *chance.sample(keywords, len(keywords)), permission=chance.choice("pqrs"))

    def test_it_gives_what_the_rule_gives_for_any_catalog(self) -> None:
        """Random catalogs of 0 to 3,000 tools, queries, grants and limits, common words and rare ones.

        Claims: C10-037, C10-039, C10-040.
        """
        for seed, size in enumerate((0, 1, 2, 17, 300, 3000)):
            chance = random.Random(seed)
            names = chance.sample(range(10**6), size)
            self.compare(Catalog(self.any_tool(chance, f"t{name}") for name in names), chance, 60)

    def test_it_gives_what_the_rule_gives_wherever_the_best_stand(self) -> None:
        """Common words that all the first, the middle or the last names have, in a catalog of several windows."""
        chance = random.Random(9)
        size = 9000

        def keywords(number: int) -> Iterable[str]:
            yield from (word for place, word in enumerate("ABCD") if chance.random() < 0.7 ** (place + 1))
            if number < 200 or number % 601 == 0:
                yield "E"
            if 4000 < number < 4300:
                yield "F"
            if number > size - 300:
                yield from "GH"

        catalog = Catalog(tool(f"t{n:04}", *keywords(n), permission=chance.choice("ppq")) for n in range(size))
        for query in (
            "A",
            "B C",
            "G",
            "E",
            "A G",
            "F G",
            "A B C",
            "E F G",
            "A F H",
            "A B C D",
            "A B G H F",
            "D E F G H",
        ):
            expected = self.by_rule(catalog.tools.values(), query, {"p"}, 1000)
            for limit in (1, 3, 40, 1000):
                self.assertEqual(ranking(catalog.search(query, {"p"}, limit)), expected[:limit], (query, limit))

    def test_rare_words_in_a_large_catalog_are_ranked_by_the_rule(self) -> None:
        """Tools with one, two or three rare words among 5,000, at every limit, also after one of them went."""
        rare = {7: "x", 9: "y", 20: "x z", 300: "x y", 2500: "x y z", 4000: "z", 4999: "y z"}
        catalog = Catalog(
            tool(f"t{n:04}", "all", *rare.get(n, "").split(), permission="pq"[n == 20]) for n in range(5000)
        )
        for gone in (None, "t0300", "t2500"):
            if gone:
                del catalog.tools[gone]
                self.assertNotIn(gone, [item.name for item in catalog.discoverable({"p"})])
            for query in ("x", "x y", "x y z", "y nosuch z"):
                expected = self.by_rule(catalog.tools.values(), query, {"p"}, 1000)
                for limit in (1, 2, 3, 4, 1000):
                    self.assertEqual(ranking(catalog.search(query, {"p"}, limit)), expected[:limit], (query, limit))

    def test_many_good_ones_among_the_first_names_hide_no_better_one_behind(self) -> None:
        """Two of four words in each of the first 600 names, three in one of the last: that one comes first."""
        words = {5000: ("a", "b", "c"), 5500: ("d",)}
        catalog = Catalog(tool(f"t{n:04}", *words.get(n, ("a", "b") if n < 600 else ("d",))) for n in range(6000))
        for query in ("a b c d", "a b c", "c d a"):
            expected = self.by_rule(catalog.tools.values(), query, {"p"}, 12)
            self.assertEqual(expected[0], ("t5000", 3) if "b" in query else ("t5000", 2))
            self.assertEqual(ranking(catalog.search(query, {"p"}, 12)), expected)

    def test_a_name_that_came_late_stands_before_the_first_names_of_a_large_catalog(self) -> None:
        """Among 6,000 tools with one word, a new one whose name is the first is the first answer."""
        catalog = Catalog(tool(f"t{number:04}", "all", "also") for number in range(6000))
        catalog.tools["a"] = tool("a", "all", "also")
        catalog.tools["b"] = tool("b", "all")
        self.assertEqual(ranking(catalog.search("all also", {"p"}, 2)), [("a", 2), ("t0000", 2)])
        self.assertEqual([hit["name"] for hit in catalog.search("all", {"p"}, 3)], ["a", "b", "t0000"])

    def test_the_first_names_do_not_win_by_being_first(self) -> None:
        """A thousand first names have two of four words, ten late ones three, and nobody has all."""

        def keywords(number: int) -> str:
            return "AB" if number < 1000 else "ABC" if 4500 <= number < 4510 else "D" if number == 4999 else ""

        catalog = Catalog(tool(f"t{number:04}", *keywords(number)) for number in range(5000))
        for query in ("A B C D", "A B C", "A B D", "B C"):
            for limit in (1, 3, 12, 40):
                expected = self.by_rule(catalog.tools.values(), query, {"p"}, limit)
                self.assertEqual(ranking(catalog.search(query, {"p"}, limit)), expected, (query, limit))

    def test_it_gives_what_the_rule_gives_for_rare_words_in_a_large_catalog(self) -> None:
        """Nine of 3,000 tools have one to four of four rare words; at every limit, and without empty groups."""
        rare = {7: "ABCD", 300: "ABC", 301: "ABD", 302: "AB", 900: "CD", 901: "B", 1500: "A", 1501: "C", 2998: "D"}
        catalog = Catalog(
            tool(f"t{n:04}", "all", *rare.get(n, ""), permission="q" if n == 301 else "p") for n in range(3000)
        )
        for query in ("A", "C D", "A B", "A B C", "D C B A", "D nosuch"):
            for grants in (frozenset("p"), frozenset("pq"), frozenset("q"), frozenset("z")):
                for limit in range(1, 12):
                    expected = self.by_rule(catalog.tools.values(), query, grants, limit)
                    with self.subTest(query=query, limit=limit):
                        self.assertEqual(ranking(catalog.search(query, grants, limit)), expected)
                        groups = catalog.tools._index.best(query.casefold().split(), grants, limit)
                        self.assertTrue(all(tools for _, tools in groups))

    def test_it_gives_what_the_rule_gives_after_any_changes(self) -> None:
        """Tools come, change and go between searches, past the point where all are numbered anew."""
        chance = random.Random(7)
        catalog = Catalog(self.any_tool(chance, f"t{number}") for number in range(0, 400, 2))
        with mock.patch.object(postings, "MAX_LATE", 20):
            for _ in range(600):
                name = f"t{chance.randrange(400)}"
                if name in catalog.tools and chance.random() < 0.4:
                    del catalog.tools[name]
                else:
                    catalog.tools[name] = self.any_tool(chance, name)
                if chance.random() < 0.2:
                    self.compare(catalog, chance, 2)
            for name in list(catalog.tools)[5:]:
                del catalog.tools[name]
            self.compare(catalog, chance, 20)

    def test_dropping_what_is_remembered_changes_no_answer(self) -> None:
        """With room for almost no integer and one view, searches still give what the rule gives."""
        chance = random.Random(8)
        with mock.patch.multiple(postings, MAX_KEPT_BYTES=100, MAX_VIEWS=1):
            self.compare(Catalog(self.any_tool(chance, f"t{number}") for number in range(500)), chance, 60)

    def test_a_tool_that_arrives_after_a_search_is_visible_to_the_same_grants(self) -> None:
        """What was worked out for these grants is worked out again, among many tools as among few."""
        for size in (100, 5000):
            catalog = Catalog(tool(f"t{number:04}", "w") for number in range(size))
            self.assertEqual(ranking(catalog.search("w", {"p"}, 1)), [("t0000", 1)])
            catalog.tools["a"] = tool("a", "w")
            self.assertEqual(ranking(catalog.search("w", {"p"}, 1)), [("a", 1)])

    def test_what_is_remembered_is_bounded(self) -> None:
        """Late numbers, gaps, views and integers stay within their bounds, whatever is asked and changed."""
        catalog = Catalog(tool(f"t{number:03}", "w", f"v{number % 9}") for number in range(300))
        index = catalog.tools._index
        with mock.patch.multiple(postings, MAX_LATE=10, MAX_VIEWS=5, MAX_KEPT_BYTES=200):
            for number in range(60):
                catalog.tools[f"late{number:02}"] = tool(f"late{number:02}", "w")
                catalog.search(f"w v{number % 9}", {"p", f"q{number}"})
                self.assertLessEqual(len(index._tools) - index._in_step, 10)
                self.assertLessEqual(len(index._words._bits) * len(index._tools) // 8, 200)
            for number in range(20):
                catalog.search("w", {"p", f"q{number}"})
                self.assertLessEqual(len(index._views), 5)
            for name in list(catalog.tools)[:350]:
                del catalog.tools[name]
            catalog.search("w", {"p"})
            self.assertLessEqual(len(index._tools), 2 * len(catalog.tools) + 10)

    def test_the_published_bounds_of_the_index_are_these(self) -> None:
        """What counts as few, and how much may be late, remembered or kept."""
        self.assertEqual(
            {name: getattr(postings, name) for name in postings.__all__ if name.isupper()},
            {"FEW": 16, "FEW_SHARE": 1024, "MAX_KEPT_BYTES": 67_108_864, "MAX_LATE": 512, "MAX_VIEWS": 64},
        )

    def test_integers_are_kept_while_they_fit_and_not_one_longer(self) -> None:
        """Two of ten bytes fit into twenty; for the third all are dropped, and it is kept."""
        catalog = Catalog(tool(f"t{number:02}", "u", "v", "w") for number in range(80))
        kept = catalog.tools._index._words._bits
        with mock.patch.object(postings, "MAX_KEPT_BYTES", 20):
            for word, expected in (("u", {"u"}), ("v", {"u", "v"}), ("w", {"w"})):
                catalog.search(word, {"p"})
                self.assertEqual(set(kept), expected)

    def test_views_are_kept_while_there_are_not_too_many(self) -> None:
        """Two where there may be two; the third is kept alone."""
        catalog = Catalog([tool("a", "w")])
        kept = catalog.tools._index._views
        p, q, r = frozenset("p"), frozenset("pq"), frozenset("pr")
        with mock.patch.object(postings, "MAX_VIEWS", 2):
            for grants, expected in ((p, {p}), (q, {p, q}), (p, {p, q}), (r, {r})):
                catalog.search("w", grants)
                self.assertEqual(set(kept), expected)

    def test_all_are_numbered_anew_past_the_bound_and_not_before(self) -> None:
        """The eleventh late name does it where ten may be late, and so does the gap that is one too many."""
        with mock.patch.object(postings, "MAX_LATE", 10):
            catalog = Catalog(tool(f"t{number}", "w") for number in range(20, 50))
            index = catalog.tools._index
            for number in range(10):
                catalog.tools[f"a{number}"] = tool(f"a{number}", "w")
            catalog.search("w", {"p"})
            self.assertEqual((index._in_step, len(index._tools)), (30, 40))
            catalog.tools["b"] = tool("b", "w")
            catalog.search("w", {"p"})
            self.assertEqual((index._in_step, len(index._tools)), (41, 41))
            catalog = Catalog(tool(f"t{number}", "w") for number in range(10, 50))
            for number in range(10, 35):
                del catalog.tools[f"t{number}"]
            catalog.search("w", {"p"})
            self.assertEqual(len(catalog.tools._index._tools), 40)  # 25 gaps are ten more than the 15 tools
            del catalog.tools["t35"]
            catalog.search("w", {"p"})
            self.assertEqual(len(catalog.tools._index._tools), 14)

    def test_a_word_that_one_tool_has_needs_no_set_and_one_that_none_has_no_place(self) -> None:
        """Made at once or one by one; a word whose last tool is gone is forgotten."""
        catalog = Catalog([tool("a", "lone", "both"), tool("b", "both")])
        kept = catalog.tools._index._words._numbers
        self.assertEqual(kept, {"lone": 0, "both": {0, 1}})
        catalog.tools["c"] = tool("c", "late")
        self.assertEqual(kept, {"lone": 0, "both": {0, 1}, "late": 2})
        for name in "abc":
            del catalog.tools[name]
            self.assertNotIn(name, [item.name for item in catalog.discoverable({"p"})])
        self.assertEqual(kept, {})

    def test_many_words_are_summed_right(self) -> None:
        """Scores up to 100 come out in order: each tool has one word more than the one before."""
        words = [f"w{number:03}" for number in range(100)]
        catalog = Catalog([tool(f"t{n:03}", *words[: n + 1]) for n in range(100)])
        hits = ranking(catalog.search(" ".join(words), {"p"}, 1000))
        self.assertEqual(hits, [(f"t{n:03}", n + 1) for n in reversed(range(100))])

    def test_a_rare_word_touches_only_its_matches(self) -> None:
        """A word of two tools among 20,000 is answered from two of them, with nothing else looked at."""
        catalog = Catalog(tool(f"t{n:05}", "all", "two" if n in (7, 19_999) else "other") for n in range(20_000))
        index = catalog.tools._index
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
        self.assertEqual({7, 19_999}, set(looked_at))

    def test_an_upgrade_touches_only_its_own_words(self) -> None:
        """A new version under the same words changes no posting; a changed word changes two."""
        catalog = Catalog(tool(f"t{n:03}", "all", "half") for n in range(100))
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
        catalog = fixture()
        for query in (None, 1, True, b"x", ["x"], {"x"}, SURROGATE, "x" * (MAX_QUERY + 1), "x" * 2**20):
            self.assert_refused("invalid_query", catalog.search, query, ALL)
        for query in ("\0", "e\u0301", "x" * MAX_QUERY, "{}", "订单\0"):
            self.assertEqual(catalog.search(query, ALL), [])
        self.assertEqual(len(catalog.search("订单", ALL)), 2)

    def test_search_refuses_what_is_no_limit(self) -> None:
        """Zero, negative, bool, float, text, and more than the bound.

        Claims: C10-041, C10-055.
        """
        catalog = fixture()
        for limit in (0, -1, True, False, 1.0, float("nan"), "3", None, MAX_LIMIT + 1, 10**100):
            error = self.assert_refused("invalid_limit", catalog.search, "订单", ALL, limit)
            self.assertEqual((error.field, error.reason), ("limit", "not an integer from 1 to 1000"))

    def test_every_question_refuses_what_are_no_grants(self) -> None:
        """One string would match by its parts, so it is refused, and so is all that is no collection of strings."""
        catalog = fixture()
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
        catalog = fixture()
        expected = catalog.search("订单", frozenset({"orders:read"}))
        for grants in ({"orders:read"}, ["orders:read"] * 2, ("orders:read",), {"orders:read": 1}.keys()):
            self.assertEqual(catalog.search("订单", grants), expected)
        self.assertEqual(catalog.search("订单", ["orders:read"] * MAX_GRANTS), expected)

    def test_load_refuses_what_is_no_batch(self) -> None:
        """Other types, too many cards, a budget that is no positive integer."""
        catalog = fixture()
        hits = catalog.search("订单", ALL)
        bad: list[Any] = [None, 1, "x", hits[0], iter(hits), {1}, [None], ["orders.get"], [[]], hits * (MAX_BATCH + 1)]
        for value in bad:
            self.assert_refused("invalid_hits", catalog.load, value, ALL)
        for budget in (0, -1, True, 1e3, float("inf"), "4096", None):
            error = self.assert_refused("invalid_budget", catalog.load, hits, ALL, budget)
            self.assertEqual((error.field, error.reason), ("budget_bytes", "not a positive integer"))
        self.assertEqual(len(catalog.load(hits, ALL, 10**100)), 2)
        many = Catalog(tool(f"t{number}", "word") for number in range(MAX_BATCH + 1))
        cards = [{"name": item.name, "digest": item.digest} for item in many.tools.values()]
        self.assertEqual(len(many.load(cards[:MAX_BATCH], ["p"], 10**9)), MAX_BATCH)
        self.assert_refused("invalid_hits", many.load, cards, ["p"], 10**9)

    def test_a_catalog_is_made_of_tools(self) -> None:
        """What is no collection, and a collection of something else, is refused."""
        for tools in (None, 1, "abc", [None], [tool("a"), {}], {"a": tool("a")}):
            self.assert_refused("invalid_tool", Catalog, tools)


class BoundaryTests(FolderTestCase):
    def test_the_catalog_knows_nothing_of_jobs(self) -> None:
        """Neither module imports the other: the fixture schema and the report's month are two interfaces.

        Claims: C10-010, C10-062.
        """
        for module in ("catalog.py", "companions/finding/postings.py", "jobs.py"):
            source = (Path(catalog_module.__file__).parent / module).read_text(encoding="utf-8")
            imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
            self.assertFalse(imported & {"chapter10.jobs", "chapter10.catalog"} - {f"chapter10.{module[:-3]}"}, module)

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
