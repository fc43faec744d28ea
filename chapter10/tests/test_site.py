"""The page for a browser: fresh, well-formed, by itself, and with the figures that the chapter prints."""

from __future__ import annotations

import contextlib
import io
import json
import re
import unittest
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from chapter10.canonical import canonical
from chapter10.experiments import GROUPS
from chapter10.lab.console.textio import Event
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.guessing.predictions import AREAS
from chapter10.lab.reader.site import PAGE, main, site
from chapter10.tests.published import PUBLISHED
from chapter10.tests.support import TOP

VOID = {"meta"}
"""Elements of the page that have no end tag; those of SVG end themselves."""
_TEXT = (
    "html head meta title style body h1 h2 h3 p span nav a section kbd ul ol li div details summary code b table tr td"
)
_DRAWING = "svg line circle rect text path marker"
ALLOWED = set(re.findall(r"\w+", f"{_TEXT} {_DRAWING}"))


@cache
def text() -> str:
    """The page of a run that is made once for these tests."""
    return site()


@cache
def runs() -> dict[str, tuple[dict[str, Any], Scene]]:
    """Figures and scene of each group."""
    scenes = {name: Scene() for name in GROUPS}
    return {name: (run(scene=scenes[name]), scenes[name]) for name, run in GROUPS.items()}


class Reader(HTMLParser):
    """Reads the page as a tree of sections and complains about what does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.section = ""
        self.rows: dict[str, list[list[str]]] = {}
        self.lanes: dict[str, list[str]] = {}
        self.answers: dict[str, list[str]] = {}
        self.feed(text())
        self.close()
        self.wrong += [f"{tag} is not closed" for tag, _ in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append((tag, attributes))
        if tag == "section":
            self.section = attributes.get("id") or ""
        if tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        if tag == "td":
            self.rows[self.section][-1].append("")
        if tag == "li" and self._inside("ol", "lanes"):
            self.lanes.setdefault(self.section, []).append("")
        if tag == "p" and attributes.get("class") == "truth":
            self.answers.setdefault(self.section, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1][0] != tag:
            self.wrong.append(f"{tag} ends where {[name for name, _ in self.open[-2:]]} is open")
            return
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self._inside("td"):
            self.rows[self.section][-1][-1] += data
        if self._inside("ol", "lanes"):
            self.lanes[self.section][-1] += data + "\n"
        if self._inside("p", "truth"):
            self.answers[self.section][-1] += data

    def _inside(self, tag: str, name: str | None = None) -> bool:
        return any(each == tag and (name is None or found.get("class") == name) for each, found in self.open)


@cache
def read() -> Reader:
    """The page, read once."""
    return Reader()


class ThePage(unittest.TestCase):
    """What holds for the file as a file."""

    def test_the_committed_page_is_what_a_new_run_gives(self) -> None:
        """After an intended change: `python -m chapter10 site --write`.

        Claims: C10-277.
        """
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(main(["--check"]), 0)
        self.assertEqual(out.getvalue(), f"[OK] {PAGE}: as a new run gives it\n")
        self.assertEqual(text(), site())

    def test_it_is_well_formed(self) -> None:
        """Every element is closed where it was opened, and ids are there once."""
        self.assertEqual(read().wrong, [])
        ids = [found["id"] for _, found in read().tags if "id" in found]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertTrue(text().startswith("<!doctype html>\n"))
        self.assertIn(("meta", {"charset": "utf-8"}), read().tags)
        self.assertNotIn("\r", text())

    def test_it_has_no_script_and_nothing_from_elsewhere(self) -> None:
        """No script, no handler, no import, no font, no address; every link is a file of the repository."""
        names = {tag for tag, _ in read().tags}
        self.assertLessEqual(names, ALLOWED)
        self.assertNotRegex(text(), r"://|url\((?!#)|@import|@font-face|javascript:")
        ids = {found["id"] for _, found in read().tags if "id" in found}
        for _, attributes in read().tags:
            for name, value in attributes.items():
                self.assertFalse(name.startswith("on") or name in ("src", "srcset", "data"), name)
                if name == "href" and value:
                    if value.startswith("#"):
                        self.assertIn(value[1:], ids)
                    else:
                        self.assertTrue((TOP / "reports" / value).resolve().is_file(), value)
                if value and "url(#" in value:
                    self.assertIn(re.sub(r"url\(#(.*)\)", r"\1", value), ids)

    def test_it_names_no_machine_and_no_line_of_code(self) -> None:
        """The same bytes everywhere, and no edit above a function changes them.

        Claims: C10-281.
        """
        self.assertNotRegex(text(), r"\.py:\d|[/]tmp[/]|[/]home[/]|[A-Z]:\\|\d{4}-\d\d-\d\d[T ]\d\d:")

    def test_both_languages_stand_in_every_heading(self) -> None:
        """Chinese, and English marked as such."""
        for heading in re.findall(r"<h[123]>(.*?)</h[123]>", text()):
            with self.subTest(heading=heading):
                self.assertRegex(heading, "[\u4e00-\u9fff]")
                self.assertRegex(heading, r'<span lang="en">[A-Za-z0-9 ,:&#;\u2019-]+</span>')

    def test_it_fits_a_phone_and_the_dark(self) -> None:
        """A viewport, no fixed width beyond it, and both palettes can be read."""
        self.assertIn('name="viewport" content="width=device-width, initial-scale=1"', text())
        self.assertIn("@media (prefers-color-scheme: dark)", text())
        for _, attributes in read().tags:
            if str(attributes.get("width", "")).isdigit() and "x" not in attributes:
                self.assertLessEqual(int(attributes["width"] or 0), 100)
        palettes = re.findall(r":root \{(.*?)\}", text(), re.DOTALL)
        self.assertEqual(len(palettes), 2)
        for palette in palettes:
            colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", palette))
            for name in ("ink", "soft", "mark", "c0", "c1", "c2", "c3"):
                for ground in ("paper", "box"):
                    with self.subTest(colour=name, on=ground, palette=colours["paper"]):
                        self.assertGreaterEqual(contrast(colours[name], colours[ground]), 4.5)


def contrast(one: str, other: str) -> float:
    """The ratio of luminance of two colours as the accessibility guidelines define it."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


class TheGroups(unittest.TestCase):
    """What is on it is what the run gave."""

    def test_the_figures_are_the_published_ones(self) -> None:
        """Each field of each group with the value that the chapter prints; long ones are left to the JSON.

        Claims: C10-271, C10-273, C10-275, C10-276.
        """
        for group, fields in PUBLISHED.items():
            shown = {cells[0]: cells[1] for cells in read().rows[group]}
            self.assertEqual(set(shown), set(runs()[group][0]))
            for name, value in fields.items():
                with self.subTest(group=group, field=name):
                    if shown[name] == "JSON":
                        self.assertGreater(len(canonical(value)), 160)
                    else:
                        self.assertEqual(json.loads(shown[name]), value)

    def test_the_answers_are_worked_out_from_the_run(self) -> None:
        """One question of `--predict` each, folded, with the letter that the run gives."""
        details = [attributes for tag, attributes in read().tags if tag == "details"]
        self.assertEqual(details, [{}] * sum(len(area.questions) + 1 for area in AREAS.values()))
        for group, area in AREAS.items():
            figures = runs()[group][0]
            letters = [question.truth(figures) for question in area.questions]
            self.assertEqual([answer[:2] for answer in read().answers[group]], [f"{letter})" for letter in letters])
            for question, answer in zip(area.questions, read().answers[group], strict=True):
                self.assertIn(question.options[answer[0]].zh, answer)

    def test_the_lanes_are_the_events_of_the_run(self) -> None:
        """A row for each call, in its order, with its time, its actor and what came back."""
        for group, (_, scene) in runs().items():
            events = [event for _, part in scene.parts for event in part]
            self.assertEqual([row(event) for event in events], [shown.split("\n")[:-1] for shown in lanes(group)])

    def test_the_arrows_are_the_changes_that_were_seen(self) -> None:
        """Only the groups with jobs have the picture of states, and each change is one arrow."""
        for group, (_, scene) in runs().items():
            section = text().partition(f'<section id="{group}">')[2].partition("</section>")[0]
            seen = {(before, after) for before, after, _ in scene.transitions if before and before != after}
            self.assertEqual(section.count("marker-end"), len(seen))
            for before, after in seen:
                self.assertIn(f"<code>{before} -&gt; {after}</code>", section)
        self.assertTrue(runs()["failures"][1].transitions)

    def test_nothing_that_happened_stands_open_beside_a_question(self) -> None:
        """Lanes, pictures, figures and answers are folded: what is left is what a reader may know before a guess."""
        for tag in ("lanes", "wide", "truth", "<table"):
            self.assertIn(tag, text())
        body = text().partition("<body>")[2]
        while "<details>" in body:
            body = re.sub(r"<details>(?:(?!<details>).)*?</details>", "", body, flags=re.DOTALL)
        for tag in ("lanes", "wide", "truth", "<table"):
            self.assertNotIn(tag, body)

    def test_the_picture_of_states_has_those_that_were_seen(self) -> None:
        """No box stands there that no arrow reaches."""
        for group, (_, scene) in runs().items():
            section = text().partition(f'<section id="{group}">')[2].partition("</section>")[0]
            seen = {state for before, after, _ in scene.transitions for state in (before, after) if state}
            self.assertEqual(section.count('rx="7"'), len(seen))

    def test_the_bars_are_of_one_scale(self) -> None:
        """The path on demand is as much narrower as it has fewer bytes."""
        full, part = (float(re.search(rf'class="{name}".*?width="([\d.]+)"', text()).group(1)) for name in BARS)  # type: ignore[union-attr]
        figures = runs()["catalog"][0]
        share = figures["deferred_visible_payload_bytes"] / figures["full_definitions_bytes"]
        self.assertAlmostEqual(part / full, share, places=3)


BARS = ("full", "part")


def lanes(group: str) -> list[str]:
    """The rows of lanes of a group, as text."""
    return read().lanes[group]


def row(event: Event) -> list[str]:
    """What a row of the lanes shows of an event, piece by piece."""
    pieces = [f"{event.t:g}", event.actor, " ", event.what]
    return [*pieces, f"-> {event.detail}"] if event.detail else pieces


class TheCommand(unittest.TestCase):
    """`python -m chapter10 site`."""

    def test_it_says_what_differs(self) -> None:
        """A page that is out of date is named with the line, and the exit code is 1."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(main([]), 0)
        self.assertRegex(out.getvalue(), r"^5 groups, 14 questions, [\d,]+ bytes")
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as left:
            main(["--write", "--check"])
        self.assertEqual(left.exception.code, 2)

    def test_the_generating_code_stays_small(self) -> None:
        """The page is a last resort for readers without a terminal, and not a program of its own."""
        source = (TOP / "chapter10" / "lab" / "reader" / "site.py").read_text(encoding="utf-8")
        templates = re.findall(r'Final = """\\\n(.*?)"""', source, re.DOTALL)
        code = len(source.splitlines()) - sum(len(template.splitlines()) for template in templates)
        self.assertLessEqual(code, 250)
        self.assertTrue(Path(TOP / "reports" / PAGE).is_file())


if __name__ == "__main__":
    unittest.main()
