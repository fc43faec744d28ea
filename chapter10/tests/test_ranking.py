"""The ranking: scores that can be counted again, nothing that a hidden tool changes, and how often a question finds."""

from __future__ import annotations

import random
import re
import unittest
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.canonical import canonical
from chapter10.catalog import FIXTURE_GRANTS, Catalog, CatalogError, Tool, fixture_tools
from chapter10.companions.finding import ranking as ranking_module
from chapter10.companions.finding.ranking import WEIGHTS, Ranking, RankingError, places, rarity
from chapter10.companions.finding.tool_list import words_of
from chapter10.companions.finding.words import FILLERS, first_sentence, is_pair, stem, terms
from chapter10.experiments import reports_folder
from chapter10.lab.benchmarks import recall
from chapter10.lab.benchmarks.recall import Question, Sample, read_sample
from chapter10.lab.tool_scenes.ranking import shared_index
from chapter10.tests.support import TOP, FolderTestCase

OPEN = frozenset({"open"})
ALL = frozenset({"open", "shut"})


def tool(name: str, description: str = "", permission: str = "open", **others: Any) -> Tool:
    """A tool of which only what is given matters."""
    parameters = others.pop("parameters", {"type": "object"})
    return Tool(name, description, others.pop("keywords", ()), permission, "read", parameters=parameters, **others)


def names(cards: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of cards."""
    return [card["name"] for card in cards]


@cache
def sample(name: str) -> Sample:
    """A sample, read once."""
    return read_sample(name)


class Words(unittest.TestCase):
    """What is counted of a text."""

    def test_names_are_taken_apart(self) -> None:
        """At small and capital letters, underlines, dots, and between letters and digits."""
        found = terms("getUserInfo list_items v2.orders")
        self.assertEqual(found, ["get", "user", "info", "list", "item", "v", "2", "order"])

    def test_a_chinese_run_gives_pairs_and_single_signs(self) -> None:
        """So that one sign of a question meets a pair of a definition. Claims: C10-033."""
        self.assertEqual(terms("删除日程"), ["删除", "删", "除", "除日", "日", "日程", "程"])
        self.assertIn("删", terms("删掉"))

    def test_what_is_said_around_the_matter_is_no_word(self) -> None:
        """In both languages; the verbs that name tools stay."""
        self.assertEqual(terms("Could you please find me the invoice?"), ["find", "invoic"])
        self.assertEqual(terms("请帮我查一下发票"), terms("查 发票"))
        self.assertEqual([one for one in FILLERS for two in FILLERS if one != two and one.startswith(two)], [])

    def test_a_pair_is_two_chinese_signs(self) -> None:
        """From the sign of repetition on; two Latin letters are a word."""
        self.assertEqual(
            [is_pair(word) for word in ("日程", "々日", "日", "日程表", "id", "é日")], [True, True] + [False] * 4
        )

    def test_a_word_counts_once(self) -> None:
        """However often it is said."""
        self.assertEqual(terms("book, books and booking"), ["book"])

    def test_forms_of_a_word_meet(self) -> None:
        """Each pair has one stem."""
        for one, other in (
            ("books", "booked"),
            ("booking", "book"),
            ("cities", "city"),
            ("planning", "plan"),
            ("addresses", "address"),
            ("created", "create"),
            ("daily", "dai"),
        ):
            self.assertEqual(stem(one), stem(other), (one, other))

    def test_short_and_other_words_keep_their_ending(self) -> None:
        """Three letters are a word by themselves, and what is no English is not shortened."""
        for word in ("bus", "gas", "ing", "shed", "class", "straßes", "日程"):
            self.assertEqual(stem(word), word)
        self.assertEqual([stem("ties"), stem("2024s"), stem("sees")], ["tie", "2024", "see"])

    def test_the_first_sentence_ends_where_a_reader_sees_it(self) -> None:
        """At a line, at a Chinese full stop, at a full stop before a space; not inside a number."""
        self.assertEqual(first_sentence("Reads 1.5 pages. Then more."), ("Reads 1.5 pages.", " Then more."))
        self.assertEqual(first_sentence("查订单。只读。"), ("查订单。", "只读。"))
        self.assertEqual(first_sentence("One line\nand more"), ("One line\n", "and more"))
        self.assertEqual(first_sentence("no end"), ("no end", ""))


class Scores(unittest.TestCase):
    """Whole numbers that anybody can count again."""

    def test_rarity_is_tenths_of_a_bit_rounded_down(self) -> None:
        """The tenth power of 1 + tools / having lies between two powers of two."""
        self.assertEqual([rarity(1, 100), rarity(10, 100), rarity(100, 100), rarity(0, 100)], [66, 34, 10, 0])
        for having, tools in ((1, 1), (3, 7), (11, 1_000_000), (999_999, 1_000_000)):
            tenths = rarity(having, tools)
            self.assertLessEqual(2**tenths * having**10, (having + tools) ** 10)
            self.assertGreater(2 ** (tenths + 1) * having**10, (having + tools) ** 10)

    def test_a_word_counts_by_the_best_place_where_it_stands(self) -> None:
        """Of seven tools each has the word in one place more, from the last to the first; each place has its weight."""
        schema = {
            "type": "object",
            "properties": {"a": {"type": "string", "description": "fox", "enum": ["fox"]}, "b": {"type": "string"}},
        }
        deep = {"type": "object", "properties": {"list": {"type": "array", "items": {"properties": {"fox": {}}}}}}
        found = {
            "values": tool("a", parameters={"properties": {"x": {"enum": ["fox", 1, None]}}}),
            "texts": tool("b", parameters=schema),
            "description": tool("c", "One. A fox.", parameters=schema),
            "arguments": tool("d", "One. A fox.", parameters=deep),
            "summary": tool("e", "A fox. Two.", parameters=deep),
            "keywords": tool("f", "One. Two.", keywords=("Fox",), parameters=deep),
            "name": tool("find_fox", "A fox.", keywords=("fox",), parameters=deep),
        }
        for place, one in found.items():
            with self.subTest(place=place):
                self.assertEqual(places(one)["fox"], place)
        ranking = Ranking(Catalog(found.values()), least=0)
        self.assertEqual([WEIGHTS[place] for place in found], [1, 1, 1, 2, 2, 2, 3])
        cards = ranking.search("fox", OPEN, 10)
        each = rarity(7, 7)
        self.assertEqual({c["name"]: c["score"] for c in cards}, {t.name: WEIGHTS[p] * each for p, t in found.items()})

    def test_arguments_are_looked_for_eight_levels_deep(self) -> None:
        """Through objects and lists; what lies deeper is not read."""
        for nested in (lambda inner: {"properties": {"x": inner}}, lambda inner: {"items": inner}):
            schema: dict[str, Any] = {"properties": {"fox": {}}}
            for depth in range(10):
                with self.subTest(depth=depth):
                    self.assertEqual("fox" in places(tool("a", parameters=schema)), depth <= 8)
                schema = nested(schema)

    def test_a_keyword_that_the_description_has_counts_where_it_stands_there(self) -> None:
        """A list's keywords are the words of all its texts, and would make the rest as heavy as the first sentence."""
        one = tool("a", "First. Then the fox.", keywords=("fox", "hound"))
        self.assertEqual((places(one)["fox"], places(one)["hound"]), ("description", "keywords"))

    def test_a_pair_of_signs_gives_half(self) -> None:
        """Its two signs are words as well, so that a pair counts twice a sign and not three times."""
        ranking = Ranking(Catalog([tool("a", "日程"), tool("b")]), least=0)
        rows = ranking.explain("日程", OPEN, "a")["words"]
        self.assertEqual([(row["word"], row["points"]) for row in rows], [("日", 30), ("程", 30), ("日程", 15)])

    def test_an_explanation_adds_up_to_the_score(self) -> None:
        """For every card of forty questions: weight times rarity in each row, and the rows together are the score."""
        for name in ("metatool", "feishu-zh"):
            ranking = Ranking(Catalog(sample(name).tools))
            for question in sample(name).questions[:20]:
                for card in ranking.search(question.text, {"tools:use"}):
                    told = ranking.explain(question.text, {"tools:use"}, card["name"])
                    self.assertEqual((told["name"], told["score"]), (card["name"], card["score"]))
                    self.assertEqual(sum(row["points"] for row in told["words"]), card["score"])
                    for row in told["words"]:
                        whole = row["weight"] * row["rarity"]
                        self.assertIn(row["points"], (whole, whole // 2))
                        self.assertEqual(row["weight"], WEIGHTS[row["field"]])

    def test_a_tie_stays_a_tie(self) -> None:
        """The chapter's two tools for a state have one score and stand by name; asked for orders, one is first.

        Claims: C10-040, C10-047.
        """
        ranking = Ranking(Catalog(fixture_tools()))
        first, second = ranking.search("查询状态", FIXTURE_GRANTS, 2)
        self.assertEqual((first["name"], second["name"]), ("orders.get", "shipments.get"))
        self.assertEqual(first["score"], second["score"])
        first, second = ranking.search("这笔订单的履约状态", FIXTURE_GRANTS, 2)
        self.assertEqual(first["name"], "orders.get")
        self.assertGreater(first["score"], second["score"])

    def test_a_question_about_something_else_finds_nothing(self) -> None:
        """Neither without a shared word, nor with one that many tools have in a plain place.

        Claims: C10-043, C10-044.
        """
        many = [tool(f"tool{n}", f"One. Made in Paris, number {n}.") for n in range(50)]
        ranking = Ranking(Catalog(many))
        self.assertEqual(ranking.search("What is the weather like?", OPEN), [])
        self.assertEqual(ranking.search("Paris", OPEN), [])
        self.assertEqual(len(Ranking(Catalog(many), least=0).search("Paris", OPEN)), 3)

    def test_the_floor_is_a_word_of_one_tool_in_a_plain_place(self) -> None:
        """A score that equals it is a candidate, and `explain` says what it is."""
        tools = [tool("a", "One. A fox."), *(tool(f"b{n}", "One.") for n in range(20))]
        for least, found in ((1, ["a"]), (2, [])):
            ranking = Ranking(Catalog(tools), least=least)
            self.assertEqual(names(ranking.search("fox", OPEN)), found)
            told = ranking.explain("fox", OPEN, "a")
            self.assertEqual((told["score"], told["floor"]), (rarity(1, 21), least * rarity(1, 21)))

    def test_synonyms_are_looked_for_beside_a_word(self) -> None:
        """One word or a phrase of which every word is in the question; a word that is there by itself counts once."""
        tools = [tool("bugs.create"), tool("pull_request.list"), tool("other.thing"), tool("日程")]
        table = {"defect": ("bug",), "merge proposal": ["pull request"], "会": ("日程",), "bug": ("bugs",)}
        ranking = Ranking(Catalog(tools), synonyms=table)
        self.assertEqual(names(ranking.search("a defect", OPEN)), ["bugs.create"])
        self.assertEqual(names(ranking.search("the merge proposals", OPEN)), ["pull_request.list"])
        self.assertEqual(ranking.search("merge", OPEN), [])
        self.assertEqual(names(ranking.search("约个会", OPEN)), ["日程"])
        self.assertEqual(ranking.search("bug", OPEN), Ranking(Catalog(tools)).search("bug", OPEN))

    def test_cards_are_those_of_the_catalog(self) -> None:
        """The same members, which `load` takes as they are; a card that was changed changes nothing.

        Claims: C10-042.
        """
        catalog = Catalog(fixture_tools())
        ranking = Ranking(catalog)
        (card,) = ranking.search("导出月度报表", FIXTURE_GRANTS, 1)
        self.assertEqual({**card, "score": 0}, catalog.tools["reports.export"].card(0))
        self.assertIs(type(card["score"]), int)
        self.assertEqual(names(catalog.load([card], FIXTURE_GRANTS)), ["reports.export"])
        card["name"] = "changed"
        self.assertEqual(names(ranking.search("导出月度报表", FIXTURE_GRANTS, 1)), ["reports.export"])

    def test_the_best_are_returned_and_no_more(self) -> None:
        """At most `limit`, and the first of more are those of fewer. Claims: C10-055."""
        ranking = Ranking(Catalog(sample("metatool").tools))
        question = sample("metatool").questions[0].text
        every = ranking.search(question, {"tools:use"}, 1000)
        self.assertEqual(every, sorted(every, key=lambda card: (-card["score"], card["name"])))
        for limit in (1, 2, 5, len(every)):
            self.assertEqual(ranking.search(question, {"tools:use"}, limit), every[:limit])

    def test_bad_input_is_refused_as_the_catalog_refuses_it(self) -> None:
        """With the same codes, before anything is looked at. Claims: C10-041."""
        catalog = Catalog(fixture_tools())
        ranking = Ranking(catalog)
        for query, grants, limit in (
            (1, OPEN, 3),
            ("x" * 1001, OPEN, 3),
            ("\ud800", OPEN, 3),
            ("x", "open", 3),
            ("x", [1], 3),
            ("x", None, 3),
            ("x", OPEN, 0),
            ("x", OPEN, True),
            ("x", OPEN, 1001),
        ):
            with self.subTest(query=query, grants=grants, limit=limit):
                codes = []
                for searched in (catalog, ranking):
                    with self.assertRaises(CatalogError) as caught:
                        searched.search(query, grants, limit)  # type: ignore[arg-type]
                    codes.append(caught.exception.code)
                self.assertEqual(*codes)

    def test_what_a_ranking_is_made_of_is_checked(self) -> None:
        """A catalog, a table of texts of which each has a word, a whole number."""
        catalog = Catalog()
        for code, arguments in (
            ("invalid_catalog", {"catalog": [tool("a")]}),
            ("invalid_least", {"least": -1}),
            ("invalid_least", {"least": True}),
            ("invalid_least", {"least": 1.0}),
            ("invalid_synonyms", {"synonyms": [("a", "b")]}),
            ("invalid_synonyms", {"synonyms": {"a b c": "text"}}),
            ("invalid_synonyms", {"synonyms": {"fox": [1]}}),
            ("invalid_synonyms", {"synonyms": {"the": ["fox"]}}),
            ("invalid_synonyms", {"synonyms": {"fox": []}}),
            ("invalid_synonyms", {"synonyms": {"fox " * 51: ["hound"]}}),
        ):
            with self.subTest(code=code, arguments=arguments), self.assertRaises(RankingError) as caught:
                Ranking(**{"catalog": catalog, **arguments})  # type: ignore[arg-type]
            self.assertEqual(str(caught.exception), code)
        with mock.patch.object(ranking_module, "MAX_SYNONYMS", 1):
            Ranking(catalog, synonyms={"fox " * 50: ["hound"]})
            with self.assertRaises(RankingError):
                Ranking(catalog, synonyms={"fox": ["hound"], "hound": ["fox"]})


class WhatIsHidden(unittest.TestCase):
    """It changes no byte of any answer."""

    def halves(self, name: str, seed: int) -> tuple[Catalog, Catalog]:
        """A catalog of which a random half is hidden, and one without that half."""
        chance = random.Random(seed)
        tools = [replace(one, permission=chance.choice(("open", "shut"))) for one in sample(name).tools]
        chance.shuffle(tools)
        return Catalog(tools), Catalog(one for one in tools if one.permission == "open")

    def answers(self, catalog: Catalog, name: str) -> str:
        """Every byte of the answers to twenty questions of a sample."""
        ranking = Ranking(catalog, least=0)
        asked = [question.text for question in sample(name).reported[:20]]
        cards = [ranking.search(text, OPEN, limit) for limit in (3, 50) for text in asked]
        first = [(text, found[0]["name"]) for text, found in zip(asked, cards, strict=False) if found]
        told = [ranking.explain(text, OPEN, best) for text, best in first]
        return canonical([cards, told])

    def test_an_answer_is_that_of_a_catalog_without_the_hidden_tools(self) -> None:
        """To the byte, cards and explanations, for random halves of two lists. Claims: C10-035, C10-051."""
        for name, seed in (("metatool", 0), ("metatool", 1), ("metatool", 2), ("feishu-zh", 0)):
            with self.subTest(sample=name, seed=seed):
                mixed, alone = self.halves(name, seed)
                self.assertEqual(self.answers(mixed, name), self.answers(alone, name))

    def test_a_shared_index_changes_answers(self) -> None:
        """Counted over all tools and filtered before the list, hidden tools move the cards: the test above sees it.

        Claims: C10-051.
        """
        differ = 0
        for seed in range(3):
            mixed, alone = (Ranking(catalog) for catalog in self.halves("metatool", seed))
            visible = set(names(alone.search("a", OPEN, 1))) | {one.name for one in alone.catalog.tools.values()}
            for question in sample("metatool").reported[:30]:
                right = alone.search(question.text, OPEN)
                shared = shared_index(mixed, question.text, ALL, visible, 3)
                differ += names(shared) != names(right)
        self.assertGreater(differ, 9)

    def test_no_grants_get_what_was_counted_for_others(self) -> None:
        """Questions of two callers by turns have the answers of each alone."""
        mixed, alone = self.halves("metatool", 7)
        ranking, everything = Ranking(mixed), Ranking(mixed)
        for question in sample("metatool").reported[:20]:
            whole = everything.search(question.text, ALL)
            self.assertEqual(ranking.search(question.text, ALL), whole)
            self.assertEqual(ranking.search(question.text, ["open"]), Ranking(alone).search(question.text, OPEN))
            self.assertEqual(ranking.search(question.text, set()), [])

    def test_a_hidden_tool_is_explained_to_nobody(self) -> None:
        """It is refused as an unknown one is."""
        ranking = Ranking(Catalog([tool("fox"), tool("hound", permission="shut")]))
        for name in ("hound", "unicorn", 1):
            with self.assertRaises(CatalogError) as caught:
                ranking.explain("hound", OPEN, name)  # type: ignore[arg-type]
            self.assertEqual(caught.exception.code, "denied")
        self.assertEqual(ranking.explain("hound", ALL, "hound")["score"], 3 * rarity(1, 2))


class InStep(unittest.TestCase):
    """The ranking follows the catalog, and what it remembers is bounded."""

    def test_every_change_is_seen_by_the_next_question(self) -> None:
        """After random upgrades, departures and arrivals the answers are those of a new ranking. Claims: C10-084."""
        chance = random.Random(5)
        spare = list(sample("metatool").tools[:60])
        catalog = Catalog(spare[:30])
        ranking = Ranking(catalog)
        for step in range(40):
            present = list(catalog.tools)
            what = chance.choice(("add", "remove", "text", "permission"))
            if what == "add":
                one = chance.choice(spare)
                catalog.tools[one.name] = one
            elif what == "remove":
                del catalog.tools[chance.choice(present)]
            else:
                one = catalog.tools[chance.choice(present)]
                changed: Any = {"description": f"A fox, {step}."} if what == "text" else {"permission": "shut"}
                catalog.tools[one.name] = replace(one, **changed)
            anew = Ranking(catalog)
            for text in ("fox", sample("metatool").questions[step].text):
                for grants in ({"tools:use"}, {"tools:use", "shut"}):
                    self.assertEqual(ranking.search(text, grants), anew.search(text, grants))
        self.assertEqual(set(ranking._weights), {word for one in catalog.tools.values() for word in places(one)})

    def test_grants_that_come_again_are_not_counted_again(self) -> None:
        """A word of a question is counted once for a set of grants, in whatever form they are given."""
        ranking = Ranking(Catalog(sample("metatool").tools))
        ranking.search("weather in Paris", ["tools:use"])
        with mock.patch.object(ranking_module, "rarity", wraps=rarity) as counted:
            ranking.search("Paris weather", {"tools:use"})
            self.assertEqual(counted.call_count, 1)  # the floor
            ranking.search("Paris weather", {"tools:use", "other"})
            self.assertEqual(counted.call_count, 4)

    def test_what_is_remembered_is_bounded(self) -> None:
        """By the number of grants and by what was counted; the answers stay the same."""
        catalog = Catalog(sample("metatool").tools)
        text = sample("metatool").questions[0].text
        expected = Ranking(catalog).search(text, {"tools:use"})
        for bound, most in (("MAX_VIEWS", 4), ("MAX_KEPT", 1000), ("MAX_KEPT", 0)):
            with self.subTest(bound=bound, most=most), mock.patch.object(ranking_module, bound, most):
                ranking = Ranking(catalog)
                for number in range(30):
                    self.assertEqual(ranking.search(text, {"tools:use", str(number)}), expected)
                    self.assertLessEqual(len(ranking._views), ranking_module.MAX_VIEWS)
                    ranking.search("nothing of the kind", {"tools:use", str(-number)})
                    views = list(ranking._views.values())
                    held = sum(len(points) for view in views for points in view.points.values())
                    held += sum(len(view.names) for view in views[:-1])  # the last one is needed
                    self.assertLessEqual(held, ranking_module.MAX_KEPT)


class Recall(FolderTestCase):
    """How often a question finds its tool, and that the page says it."""

    PLAIN: Mapping[str, tuple[str, ...]] = {
        "What's the weather like in Berlin right now?": ("api_name.get_weather_forecast", "weather.get_weather_data"),
        "Order me a ride to the airport": ("uber.ride2", "uber.ride", "RideSharing_2_GetRide"),
        "Translate this sentence into French": ("MixerBox_Translate_AI_language_tutor", "get_translation_nllb"),
        "Book a hotel room in Tokyo for two nights": ("Hotels_4_ReserveHotel",),
        "How do I play this guitar chord?": ("uberchord",),
        "Buy bus tickets from Boston to New York": ("Buses_3_BuyBusTicket",),
        "Make a QR code for my website": ("create_qr_code", "qreator"),
        "Find a one way flight to Madrid on Friday": ("find_flights", "Flights_4_SearchOnewayFlight"),
        "Rent a car in Miami for the weekend": ("RentalCars_3_GetCarsAvailable",),
        "Convert 50 dollars to euros": ("ExchangeTool",),
    }
    """Ten questions that were written before they were asked, and what would do for each."""

    def test_ten_plain_questions_find_a_sensible_tool_first_in_eight(self) -> None:
        """Among 656 tools that others wrote."""
        tools = [*sample("metatool").tools, *sample("bfcl-live").tools]
        self.assertEqual(len(tools), 656)
        ranking = Ranking(Catalog(tools))
        sensible = [names(ranking.search(text, {"tools:use"}, 1))[0] in fit for text, fit in self.PLAIN.items()]
        self.assertGreaterEqual(sum(sensible), 8)

    def test_the_page_is_what_a_run_gives(self) -> None:
        """One sample here and the Chinese row of ours, all of it by `--check`; and no sample is left out."""
        page = (reports_folder() / recall.REPORT).read_text(encoding="utf-8")
        self.assertIn(recall._section(sample("metatool")), page)
        figures = recall._figures(recall.words(sample("feishu-zh").tools), sample("feishu-zh").reported)
        self.assertIn(f"| words | {' | '.join(figures)} |", page.partition("## feishu-zh\n")[2])
        self.assertIn(recall._leaks([sample("metatool")]).splitlines()[-1], page)
        self.assertEqual(re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE), list(recall.SAMPLES))

    def test_the_guide_has_the_figures_of_the_page(self) -> None:
        """Its table is the column of the first five, one row a sample, one column a way."""
        page = (reports_folder() / recall.REPORT).read_text(encoding="utf-8")
        guide = (TOP / "docs" / "ranking.md").read_text(encoding="utf-8").partition("## 3.")[2].replace("*", "")
        rows = [[cell.strip() for cell in line.split("|")[3:7]] for line in guide.splitlines() if line.startswith("| ")]
        for name, told in zip(recall.SAMPLES, rows[1:], strict=True):
            section = page.partition(f"## {name}\n")[2]
            index = page.partition("## FTS5\n")[2]
            found = [re.search(rf"^\| {way} \|(.+)\|$", section, re.MULTILINE) for way in recall.METHODS]
            found.insert(2, re.search(rf"^\| {name} \|(.+)\|$", index, re.MULTILINE))
            self.assertEqual([row[1].split("|")[2].strip() for row in found if row], told, name)

    def test_hidden_tools_change_none_of_our_answers_on_the_page(self) -> None:
        """And some of a shared index in each sample. Claims: C10-051."""
        counts = recall.leak(sample("metatool"))
        self.assertEqual(counts["ours"], 0)
        self.assertGreater(counts["first three"], counts["first"])
        self.assertGreater(counts["first"], 0)

    def test_recall_is_counted_as_by_hand(self) -> None:
        """Two questions: one finds its tool in second place, the other one of two in fourth."""
        found = {"a": ["x", "a"], "b": ["x", "y", "z", "b"]}
        asked = [Question("a", frozenset({"a"})), Question("b", frozenset({"b", "c"}))]
        self.assertEqual(recall.measured(found.__getitem__, asked), (["0.0", "50.0", "75.0", "75.0"], "0.375"))

    def test_the_chapters_rule_is_that_of_the_catalog(self) -> None:
        """The quick count of the comparison gives the cards of `Catalog.search`."""
        tools = sample("bfcl-live").tools
        catalog, find = Catalog(tools), recall.chapter(tools)
        for question in sample("bfcl-live").questions[:10]:
            query = " ".join(words_of(question.text))
            self.assertEqual(find(question.text), names(catalog.search(query, {"tools:use"}, 10)))

    def test_a_sample_has_its_licence_and_its_source_beside_it(self) -> None:
        """The file that it names is there, and the page of sources speaks of it."""
        folder = Path(recall.__file__).parent / "samples"
        sources = (folder / "sources.md").read_text(encoding="utf-8")
        for name in recall.SAMPLES:
            with self.subTest(sample=name):
                self.assertIn(f"`{name}.json`", sources)
                head = (folder / f"{name}.json").read_text(encoding="utf-8")[:400]
                (licence,) = re.findall(r"[a-z0-9.-]+\.licence\.txt", head)
                self.assertGreater((folder / licence).stat().st_size, 1000)
                self.assertIn(f'"licence": "{"MIT" if licence[:6] != "apache" else "Apache-2.0"}', head)

    def test_a_page_without_fts5_is_compared_without_its_table(self) -> None:
        """An SQLite without it is no reason for a page to be wrong, and any other difference is still found."""
        whole = "# a\n\n## FTS5\n\ntable\n"
        (self.folder / recall.REPORT).write_text(whole, encoding="utf-8", newline="\n")
        self.assertEqual(recall.check_report(self.folder, "# a\n"), [])
        self.assertEqual(recall.check_report(self.folder, whole), [])
        self.assertEqual(len(recall.check_report(self.folder, "# b\n")), 1)


if __name__ == "__main__":
    unittest.main()
