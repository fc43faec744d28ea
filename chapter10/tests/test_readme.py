"""What the two READMEs and the pages under `docs/` say is executed, computed and looked up.

A new module gets one row in `docs/companions.md` or `docs/lab.md`, a new figure one row with its place in the
evidence. Whoever changes README.md brings its twin into step and then writes the new hash into its last line; the
failing test prints it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import re
import shlex
import shutil
import unittest
from pathlib import Path
from typing import Final
from unittest import mock

from chapter10.__main__ import COMMANDS
from chapter10.catalog import Catalog, CatalogError, fixture_tools
from chapter10.experiments import SALES
from chapter10.jobs import JobStore
from chapter10.lab.exercises.book import EXERCISES
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.proof import claim_map as map_command
from chapter10.lab.reader import companion_experiments
from chapter10.tests.programs import run_here
from chapter10.tests.shared import chapter_evidence as evidence
from chapter10.tests.shared import claim_map, companions_run
from chapter10.tests.support import TOP, FolderTestCase, run_python
from chapter10.tests.syntax import IGNORED_FOLDERS, all_of, modules, own_imports
from chapter10.tests.test_layout import FLOOR, HOUSE, MARKERS, definition, room_of

README: Final = TOP / "README.md"
TWIN: Final = TOP / "README.zh-CN.md"
DOCS: Final = TOP / "docs"
MAP, HOUSE_PAGE, COMPANIONS, LAB, GUIDE, LEDGER = (
    DOCS / f"{name}.md" for name in ("map", "house", "companions", "lab", "experiments", "sources")
)
READ: Final = (README, TWIN, MAP, HOUSE_PAGE, COMPANIONS, LAB, GUIDE, LEDGER)
PAGES: Final = (*sorted({*READ, *DOCS.glob("*.md")}), *sorted((TOP / "reports").glob("*.md")))

NOT_RUN: Final[dict[str, str]] = {
    "python -m unittest discover -s chapter10/tests -v": "it is what runs this test",
    "python -m chapter10 serve": "test_serving starts it",
    "python -m chapter10 two_terminals": "test_chaos plays it",
    "python -m chapter10 benchmark --quick": "test_benchmark runs it and reads its figures",
    "python -m chapter10 explore": "test_explore walks through the same world; .ci/run runs it",
    "python -m chapter10 explore --check": "test_explore compares the page; .ci/run runs it",
    "python -m chapter10 scheduler --check": "test_scheduler plays the page; .ci/run runs it",
    "python -m chapter10 claims --check": "test_claim_map compares the page; .ci/run runs it",
    "python -m chapter10 mutants --list": "test_mutants reads the list; .ci/run runs it",
    "python -m chapter10 proofs --claim C10-227": "it runs tests in a copy of the tree; .ci/run runs it",
    "python -m chapter10.experiments --write": "test_environment writes them in a copy of the tree",
    "python -m chapter10 chaos --seconds 10 --workers 3 --seed 1": "test_chaos makes a shorter run",
    "python -m pip install .": "it needs an installer; .ci/run does it in a fresh environment",
}
"""Documented commands that no test runs, each with the reason."""

FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [body for name, body in FENCE.findall(text_of(path)) if name == language]


def commands(path: Path) -> list[str]:
    """The commands of a page that start with `python`, in blocks and in running text."""
    found = [line for body in blocks(path, "sh") for line in body.splitlines()]
    return found + re.findall(r"`(python -m [^`]+)`", FENCE.sub("", text_of(path)))


def rows(path: Path) -> list[list[str]]:
    """The rows of all tables of a page, as lists of cells, without heads and rulers."""
    found = []
    lines = text_of(path).splitlines()
    for number, line in enumerate(lines):
        is_head = number + 1 < len(lines) and re.fullmatch(r"\|[-:|]+\|", lines[number + 1])
        if line.startswith("|") and not is_head and not re.fullmatch(r"\|[-:|]+\|", line):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def figures(path: Path) -> dict[str, int]:
    """The figures that a page prints, by their place in the evidence."""
    return {
        match.group(1): int(cells[1].replace(",", ""))
        for cells in rows(path)
        if len(cells) == 3 and (match := re.fullmatch(r"`([a-z_.]+)`", cells[2])) and re.fullmatch(r"[\d,]+", cells[1])
    }


def modules_in(text: str) -> list[str]:
    """The modules of the package to which a text links."""
    found = re.findall(r"\]\((?:\.\./)?chapter10/([\w/]+)\.py\)", text)
    return [name.replace("/", ".") for name in found if not name.startswith("tests/")]


def all_imports(name: str) -> set[str]:
    """What a module imports from this package, early or late."""
    return own_imports(modules()[name].tree, frozenset(modules()))


def documented() -> list[str]:
    """Every command of every page, once."""
    return list(dict.fromkeys(line for page in READ for line in commands(page)))


class TheFirstPage(FolderTestCase):
    """The README tells the truth about what happens when one types what it says."""

    def test_every_documented_command_runs(self) -> None:
        """From a folder that contains `chapter10`, each command exits with 0.

        Here they share the process of the test; `.ci/run` types each one as it stands.

        Claims: C10-009.
        """
        for name in ("chapter10", "examples"):
            shutil.copytree(TOP / name, self.folder / name, ignore=shutil.ignore_patterns(*IGNORED_FOLDERS))
        self.assertGreaterEqual(len(documented()), 20)
        self.assertLessEqual(set(NOT_RUN), set(documented()))
        # the sources are read and the companions run once, and the folder is the reader's
        read_once = mock.patch.object(map_command, "read_map", claim_map)
        run_once = mock.patch.object(companion_experiments, "_run", companions_run)
        with contextlib.chdir(self.folder), read_once, run_once:
            for line in documented():
                if line not in NOT_RUN:
                    with self.subTest(command=line):
                        ended = run_here(shlex.split(line)[2:])
                        self.assertEqual(ended.code, 0, ended.out + ended.errors)

    def test_every_program_is_its_main_and_nothing_else(self) -> None:
        """The last lines of a module that is run call its `main`, so that who calls `main` runs the program."""
        named = {line.split()[2].partition(".")[2] or "__main__" for line in documented() if " chapter10" in line}
        for name in named | {command.module for command in COMMANDS}:
            with self.subTest(program=name):
                last = modules()[name].tree.body[-1]
                if isinstance(last, ast.If):  # else it is run by its command only
                    self.assertEqual(ast.unparse(last.test), "__name__ == '__main__'")
                    self.assertIn(ast.unparse(last.body[-1]), ("main_guard(main)", "command()"))
                self.assertIn("main", all_of(modules()[name].tree) or [])

    def test_every_command_is_typed_out_on_a_page(self) -> None:
        """What `python -m chapter10` lists can be copied from here with its usual options."""
        typed = {line.split()[3] for line in documented() if line.startswith("python -m chapter10 ")}
        self.assertEqual({known.name for known in COMMANDS} - typed, {"experiments"})  # as `chapter10.experiments`

    def test_the_examples_take_the_places_of_the_fixtures(self) -> None:
        """The two files under `examples/` are really read: four tools, and ten thousand cents in August."""
        tools, sales = (line for line in commands(GUIDE) if "examples/" in line and "--group" in line)
        with contextlib.chdir(TOP):
            listed, report = (json.loads(run_here(shlex.split(line)[2:]).out) for line in (tools, sales))
        self.assertEqual(listed["registered"], len(json.loads(text_of(TOP / "examples" / "tools.json"))["tools"]))
        self.assertEqual(listed["hits"][0]["name"], "invoices.get")
        self.assertEqual(report["result"]["data"], {"month": "2026-08", "row_count": 4, "total_cents": 10000})

    def test_two_commands_do_everything_and_the_chapters_own_come_next(self) -> None:
        """The first block runs the main job and the tests; the second is what the chapter prints first."""
        everything = "python -m chapter10.experiments\npython -m unittest discover -s chapter10/tests -v\n"
        first = "python -m chapter10.experiments --group catalog\npython -m chapter10.experiments --group lifecycle\n"
        for page in (README, TWIN):
            self.assertEqual(blocks(page, "sh")[:2], [everything, first])

    def test_the_program_in_the_readme_prints_what_the_readme_says(self) -> None:
        """The listing runs as it stands, twice on the same database, with the same output."""
        (listing,) = blocks(README, "python")
        self.assertLessEqual(len([line for line in listing.splitlines() if line]), 12)
        for _ in range(2):
            child = run_python(["-c", listing], cwd=self.folder)
            self.assertEqual((child.returncode, child.stdout.split()), (0, ["orders.get", "6000"]), child.stderr)

    def test_the_figures_are_those_of_a_fresh_run(self) -> None:
        """Each figure is looked up at the place that stands beside it."""
        printed = figures(README)
        self.assertGreaterEqual(len(printed), 8)
        for place, figure in printed.items():
            with self.subTest(place=place):
                value = evidence()["groups"]
                for key in place.split("."):
                    value = value[key]
                self.assertEqual(value, figure)

    def test_versions_and_dates_are_those_of_the_chapter(self) -> None:
        """The chapter's version, its date and the date of its product facts stand on the first page.

        Claims: C10-001.
        """
        for page in (README, TWIN):
            for word in ("v1.0", "2026-09-07", "2026-09-08"):
                self.assertIn(word, text_of(page), page.name)
        pages = " ".join(text_of(page) for page in (README, TWIN, GUIDE, LEDGER))
        dates = set(re.findall(r"\b20\d\d-\d\d-\d\d\b", pages))
        self.assertEqual(dates, {"2026-09-07", "2026-09-08"})

    def test_the_story_has_the_numbers_of_the_chapter(self) -> None:
        """Three tools, three hundred, one question.

        Claims: C10-005.
        """
        for page, three in ((README, "three tools"), (TWIN, "三个工具")):
            for word in ("订单 A 付过款了吗", "300", three):
                self.assertIn(word, text_of(page))
        self.assertLess(evidence()["groups"]["catalog"]["loaded"], 300 / 100)


class TheMap(unittest.TestCase):
    """Every module is on a page, and what the pages name exists."""

    def test_every_module_of_a_room_has_one_row(self) -> None:
        """A companion in `companions.md`, a module of the lab in `lab.md`; each row names tests, with its question."""
        for page, house in ((COMPANIONS, "companions."), (LAB, "lab.")):
            found = [name for cells in rows(page) for name in modules_in(cells[1])]
            expected = {name for name in modules() if name.startswith(house) and name not in MARKERS}
            with self.subTest(page=page.name):
                self.assertEqual(sorted(found), sorted(expected))
                self.assertTrue(all(len(cells) == 3 and "test_" in cells[2] for cells in rows(page)))

    def test_the_map_goes_through_the_chapter(self) -> None:
        """Six files first; a row names a function that is there; no question and no exercise is left out."""
        first = text_of(MAP).split("\n\n")[1]
        six = ["quickstart", "catalog", "concurrency", "database", "jobs", "experiments"]
        self.assertEqual(modules_in(first), six)
        self.assertEqual(set(modules_in(text_of(MAP))), {*FLOOR, "__main__"})
        sections, code, guesses, exercises, _ = map(list, zip(*rows(MAP), strict=True))
        for name, module in re.findall(r"\[`([\w.]+)`\]\(\.\./chapter10/(\w+)\.py\)", " ".join(code)):
            self.assertIsNotNone(definition(f"{module}.{name}"), name)
        asked = {question.section for area in AREAS.values() for question in area.questions}
        self.assertLessEqual(asked, {section.partition(" / ")[0] for section in sections})
        groups = set(re.findall(r"\w+", " ".join(guesses)))
        self.assertTrue(set(AREAS) <= groups <= {*AREAS, *companion_experiments.GROUPS})
        self.assertEqual({int(number) for number in re.findall(r"\d+", " ".join(exercises[:-1]))}, set(EXERCISES))

    def test_the_house_is_drawn_as_it_stands(self) -> None:
        """Every room is in the picture and has a row, from below; every arrow is an import."""
        (drawn,) = blocks(HOUSE_PAGE, "mermaid")
        self.assertEqual([cells[0].partition("]")[0][1:] for cells in rows(HOUSE_PAGE)[1:]], list(HOUSE))
        places = {room.rpartition(".")[2]: room for room in HOUSE} | {name: name for name in FLOOR}
        self.assertLessEqual(set(places), set(re.findall(r"\w+", drawn)))
        arrows = {
            (places[one], places[other])
            for line in re.findall(r"^ +(\w+ --> .+)$", drawn, re.MULTILINE)
            for one, other in [line.split(" --> ")]
            for other in other.split(" & ")
        }
        known = {(room_of(name) or name, room_of(other) or other) for name in modules() for other in all_imports(name)}
        self.assertEqual(arrows - known, set())

    def test_every_report_is_linked(self) -> None:
        """Whatever is committed as evidence can be found from a page, or from a report that a page links."""
        reports = {path.name: path for path in (TOP / "reports").iterdir() if path.suffix != ".tmp"}
        found = {
            Path(target).name
            for page in PAGES
            if page.parent != TOP / "reports"
            for target in LINK.findall(text_of(page))
        } & set(reports)
        for name in tuple(found):
            found |= {target for target in LINK.findall(text_of(reports[name])) if target in reports}
        self.assertEqual(found, set(reports))

    def test_every_link_resolves(self) -> None:
        """A relative link names a file of the repository, another one is https; none is fetched."""
        for page in PAGES:
            for target in LINK.findall(FENCE.sub("", text_of(page))):
                with self.subTest(page=page.name, target=target):
                    if "://" in target:
                        self.assertTrue(target.startswith("https://"))
                    else:
                        name, _, anchor = target.partition("#")
                        file = (page.parent / name).resolve() if name else page
                        self.assertTrue(file.exists())
                        if anchor:
                            self.assertIn(anchor, anchors(file))


def anchors(path: Path) -> set[str]:
    """The anchors that a page offers, made of its headings as the usual hosts make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


class TheTwins(unittest.TestCase):
    """The two READMEs say the same."""

    def test_commands_listings_figures_and_links_are_equal(self) -> None:
        """What a machine can compare is the same, in the same order; the first link of each is the other."""
        self.assertEqual(blocks(README, "python"), blocks(TWIN, "python"))
        for found in (commands, lambda page: list(figures(page).items()), lambda page: LINK.findall(text_of(page))[1:]):
            self.assertEqual(found(README), found(TWIN))
        for page, other in ((README, TWIN), (TWIN, README)):
            self.assertIn(f"({other.name})", text_of(page).splitlines()[0])
        heads, others = (re.findall(r"^#+ ", text_of(page), re.MULTILINE) for page in (README, TWIN))
        self.assertEqual(heads, others)

    def test_the_twin_was_read_after_the_last_change(self) -> None:
        """The hash in the last line of the twin says for which README.md it was written."""
        expected = f"<!-- README.md sha256: {hashlib.sha256(README.read_bytes()).hexdigest()} -->"
        self.assertEqual(text_of(TWIN).splitlines()[-1], expected, "README.md has changed: bring its twin into step")


class WhatIsNotPromised(unittest.TestCase):
    """The limits are on the page, and product statements have a date."""

    def test_the_readme_states_the_limits(self) -> None:
        """No exactly-once outside, bytes are no tokens, logical time."""
        for page in (README, TWIN):
            for word in ("exactly-once", "Token" if page == TWIN else "tokens", "`now`", "outbox", "`null`"):
                self.assertIn(word, text_of(page), page.name)

    def test_every_page_with_product_statements_is_dated(self) -> None:
        """A page that speaks of a product says as of when, and to lock one's version.

        Claims: C10-256.
        """
        products = re.compile(r"OpenAI|Anthropic|LangChain|LangGraph")
        for page in PAGES:
            if products.search(text_of(page)):
                with self.subTest(page=page.name):
                    self.assertIn("2026-09-07", text_of(page))
                    self.assertIn("lock your client version", text_of(page).replace("\n", " "))

    def test_the_ledger_has_the_ten_sources(self) -> None:
        """Ten numbered entries, on the topics of the chapter's ten notes.

        Claims: C10-315.
        """
        entries = [cells for cells in rows(LEDGER) if cells[0].isdigit()]
        self.assertEqual([int(cells[0]) for cells in entries], list(range(1, 11)))
        topics = "asyncio,Code execution,Transaction,idempotent,OpenAI,Anthropic,LangChain,Background,Tasks,LangGraph"
        for cells, topic in zip(entries, topics.split(","), strict=True):
            self.assertIn(topic, cells[1])
        self.assertIn("两处引用", entries[0][1])

    def test_the_ledger_keeps_products_apart(self) -> None:
        """Each product statement that is easily blurred is there.

        Claims: C10-257, C10-259, C10-260, C10-261, C10-262.
        """
        entries = {int(cells[0]): " ".join(cells) for cells in rows(LEDGER) if cells[0].isdigit()}
        for number, words in {
            5: ("hosted search", "client-executed", "Catalog.search"),
            6: ("defer_loading", "full definitions are still sent", "cannot be deferred"),
            7: ("LLMToolSelectorMiddleware", "ProviderToolSearchMiddleware", "max_tools", "always_include", "final"),
            8: ("model responses", "neither local functions nor the business database"),
            9: ("negotiated", "`running`"),
            10: ("checkpoint", "external effects"),
        }.items():
            for word in words:
                self.assertIn(word, entries[number])
        self.assertIn("they are no request sizes", text_of(LEDGER).replace("\n", " "))
        self.assertTrue(callable(Catalog.search))

    def test_every_page_is_linked_from_the_readme(self) -> None:
        """The companion material is there and linked from the README.

        Claims: C10-314.
        """
        linked = LINK.findall(text_of(README))
        for page in READ[2:]:
            self.assertIn(page.relative_to(TOP).as_posix(), linked)
        for group in evidence()["groups"]:
            self.assertIn(f"--group {group}", text_of(GUIDE))


class TheChaptersOpening(FolderTestCase):
    """What the first pages of the chapter say holds for this code."""

    def test_being_found_is_no_permission_to_run(self) -> None:
        """A refund tool that a search finds is data; loaded and revoked, the gateway still denies it.

        Claims: C10-006.
        """
        catalog = Catalog(fixture_tools())
        hits = catalog.search("订单 退款", {"refunds:write"})
        self.assertEqual([hit["name"] for hit in hits], ["refunds.create"])
        self.assertEqual(json.loads(json.dumps(hits)), hits)
        loaded = catalog.load(hits, {"refunds:write"})
        with self.assertRaises(CatalogError) as caught:
            catalog.authorize(loaded[0], frozenset())
        self.assertEqual(caught.exception.code, "denied")

    def test_a_second_click_makes_no_second_report(self) -> None:
        """The first answer is lost, the user submits again: one job, one result.

        Claims: C10-007.
        """
        with JobStore(self.folder / "jobs.db") as store:
            store.submit("alice", "august-report", {"month": "2026-08"}, now=0)  # the answer is lost
            job = store.submit("alice", "august-report", {"month": "2026-08"}, now=1)
            attempt = store.claim(job, now=2)
            assert attempt is not None
            self.assertTrue(store.finish(job, attempt, {"total_cents": 6000}, now=3))
            self.assertEqual(store.submit("alice", "august-report", {"month": "2026-08"}, now=4), job)
            self.assertEqual(store.db.execute("SELECT count(*) FROM jobs").fetchone()[0], 1)
            self.assertEqual(store.receipt_count(job), 1)

    def test_the_report_can_be_worked_out_by_hand(self) -> None:
        """Three sales of August, 1000 + 2000 + 3000.

        Claims: C10-008.
        """
        amounts = [row["amount_cents"] for row in SALES if row["month"] == "2026-08"]
        self.assertEqual(amounts, [1000, 2000, 3000])
        self.assertEqual(evidence()["groups"]["lifecycle"]["result"]["data"]["total_cents"], 6000)
