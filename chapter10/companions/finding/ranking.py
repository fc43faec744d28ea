"""A plain question finds its tool, and what the caller may not see changes no byte of the answer.

The chapter's search counts words that somebody chose. A question as people ask it has none of them for sure, so
here every text of a tool counts, a rare word more than a common one:

    points of a word in a tool = weight of the best place where it stands  x  rarity of the word
    score of a tool            = the sum over the words of the question, and of nothing else

    weight   name 3; keywords, first sentence of the description and names of arguments 2; the rest of the
             description, the texts of arguments and the values that they may take 1 (`WEIGHTS`)
    rarity   tenths of a bit: how often 1 + tools / tools-that-have-it can be halved, times ten, rounded down.
             In 100 tools: 66 for a word of one tool, 34 for a word of ten, 10 for a word that all have
    a pair   of Chinese signs gives half its points, rounded down: its two signs are words too

All numbers are whole, so that every machine gives the same bytes, and anybody can count a score again: `explain`
says which word gave how much, and where it stood. An equal score is a tie and stays one, by name. A tool below the
floor is no candidate: `least` words' worth, where one is a word that one tool alone has in the plainest place. So
a question about something else gives an empty list rather than something forced on the model.

What holds
    C1  Tools and tools-that-have-it are counted among those that these grants may see. A rarity over *all* tools
        would let a hidden tool move the cards of the others, although the filter came first: that is what every
        shared index does. An answer is that of a catalog without the hidden tools, to the byte.
    C2  What is returned has the form of `Catalog.search`, with its refusals, and goes to `Catalog.load` as it is.
    C5  Each question looks whether the catalog changed and follows it: an upgrade costs the words of one tool.

For grants that come again the counting is remembered (`MAX_VIEWS` sets of grants, `MAX_KEPT` counted words in
tools); what is remembered is never asked for by anybody else's grants. Time is no byte: how long an answer takes
may depend on everything.

What it does not do: understand (a word that no tool uses finds nothing; pass `synonyms`), correct spelling, or
keep a tool from putting every word of the language into its own texts: who writes the texts is trusted.
Weights and fillers were chosen on one half of the questions of `lab.benchmarks.samples`; `reports/ranking.md` has
what the other half says. One thread at a time. Source: the chapter's rule and what it leaves out (claims
C10-034, C10-035, C10-044, C10-047, C10-051).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from heapq import nlargest
from operator import is_
from typing import Any, Final

from chapter10.canonical import CodedError
from chapter10.catalog import MAX_TEXT, Catalog, CatalogError, Grants, Tool
from chapter10.companions.finding.tool_list import words_of
from chapter10.companions.finding.words import first_sentence, is_pair, terms

__all__ = [
    "LEAST",
    "MAX_KEPT",
    "MAX_SYNONYMS",
    "MAX_VIEWS",
    "WEIGHTS",
    "Ranking",
    "RankingError",
    "places",
    "rarity",
]

WEIGHTS: Final[Mapping[str, int]] = {
    "name": 3,
    "keywords": 2,
    "summary": 2,
    "arguments": 2,
    "description": 1,
    "texts": 1,
    "values": 1,
}
"""What a word counts by the place where it stands, the best first. `summary` is the description's first sentence."""

LEAST: Final = 1
"""The floor: so many times the points of a word that one tool alone has in a place of weight 1."""
MAX_VIEWS: Final = 64
"""Different sets of grants whose counting is remembered."""
MAX_KEPT: Final = 1_000_000
"""Words in tools that are kept counted over all of them; past it all are dropped and counted again when asked for."""
MAX_SYNONYMS: Final = 10_000
"""Entries of the table that a user passes; each text has at most `catalog.MAX_TEXT` characters."""
_MAX_DEPTH: Final = 8
"""How deep a schema is looked into for arguments."""

_CHECKS: Final = Catalog()


class RankingError(CodedError, ValueError):
    """Raised for what a `Ranking` is made of: `invalid_catalog`, `invalid_synonyms`, `invalid_least`."""


class Ranking:
    """Plain questions to `catalog`. `search` has the signature and the answers' form of `Catalog.search`."""

    def __init__(
        self, catalog: Catalog, *, synonyms: Mapping[str, Collection[str]] | None = None, least: int = LEAST
    ) -> None:
        """Rank the tools of `catalog`, whose changes are followed.

        `synonyms`: for a word or phrase of a question the words that it may also mean, looked for beside its own;
        the way back is another entry. `least`: the floor; 0 shows whatever shares a word.
        Raises `RankingError`.
        """
        if not isinstance(catalog, Catalog):
            raise RankingError("invalid_catalog")
        if type(least) is not int or least < 0:
            raise RankingError("invalid_least")
        self.catalog = catalog
        self._least = least
        self._synonyms = _read_synonyms({} if synonyms is None else synonyms)
        self._tools: list[Tool] = []  # as the catalog had them when it was last looked at
        self._weights: defaultdict[str, dict[str, int]] = defaultdict(dict)  # word -> name -> weight
        self._views: dict[frozenset[str], _View] = {}
        self._kept = 0

    def search(self, query: str, grants: Grants, limit: int = 3) -> list[dict[str, Any]]:
        """Return at most `limit` cards as `Catalog.search` does, best first; a score is a whole number of points.

        Raises `CatalogError`: `invalid_query`, `invalid_grants`, `invalid_limit`.
        """
        _CHECKS.search(query, grants, limit)
        view = self._view(frozenset(grants))
        scores: defaultdict[str, int] = defaultdict(int)
        for word in self._words(query):
            for name, points in self._points(word, view):
                scores[name] += points
        least = max((self._floor(view), *nlargest(limit, scores.values())[limit - 1 :]))  # of the last card, if full
        best = sorted((-score, name) for name, score in scores.items() if score >= least)
        tools = self.catalog.tools
        return [tools[name].card(-score) for score, name in best[:limit]]

    def explain(self, query: str, grants: Grants, name: str) -> dict[str, Any]:
        """Return where the score of the tool `name` comes from: `{name, score, floor, words}`.

        `words` has for each word of the question that the tool has `{word, field, weight, rarity, points}`, most
        points first; the points add up to the score. The word is as it is counted, without its ending.
        Raises `CatalogError`: `invalid_query`, `invalid_grants`; `denied` for an unknown and for a hidden tool.
        """
        _CHECKS.search(query, grants)
        view = self._view(frozenset(grants))
        if type(name) is not str or name not in view.names:
            raise CatalogError("denied")
        best = places(self.catalog.tools[name])
        rows: list[dict[str, Any]] = []
        for word in self._words(query):
            if word in best:
                points = dict(self._points(word, view))[name]
                row = {"word": word, "field": best[word], "weight": WEIGHTS[best[word]]}
                rows.append({**row, "rarity": self._rarity(word, view), "points": points})
        rows.sort(key=lambda row: (-row["points"], row["word"]))
        score = sum(row["points"] for row in rows)
        return {"name": name, "score": score, "floor": self._floor(view), "words": rows}

    # -- What is counted, and among whom ----------------------------------------------------------------

    def _words(self, query: str) -> list[str]:
        """Return the words of a question and those that the table adds, each once."""
        words = dict.fromkeys(terms(query))
        added = [more for word in words for all_of, more in self._synonyms.get(word, ()) if words.keys() >= all_of]
        return list(words | dict.fromkeys(word for more in added for word in more))

    def _points(self, word: str, view: _View) -> list[tuple[str, int]]:
        """Return (name, points) of the visible tools that have `word`."""
        points = view.points.get(word)
        if points is None:
            weights = self._weights.get(word, {})
            seen = view.names.intersection(weights)
            each, share = rarity(len(seen), len(view.names)), 2 if is_pair(word) else 1
            points = [(name, weights[name] * each // share) for name in seen]
            self._kept += len(points) + 1
            if self._kept > MAX_KEPT:
                self._forget()
            view.points[word] = points
        return points

    def _rarity(self, word: str, view: _View) -> int:
        return rarity(len(self._points(word, view)), len(view.names))

    def _floor(self, view: _View) -> int:
        return self._least * rarity(1, len(view.names))

    def _view(self, granted: frozenset[str]) -> _View:
        """Return what these grants may see, counted anew only for grants that are new or after a change."""
        self._follow()
        view = self._views.get(granted)
        if view is None:
            names = frozenset(tool.name for tool in self._tools if tool.permission in granted)
            if len(self._views) >= MAX_VIEWS or self._kept + len(names) > MAX_KEPT:
                self._forget()
            self._kept += len(names)
            view = self._views[granted] = _View(names)
        return view

    # -- In step with the catalog -----------------------------------------------------------------------

    def _follow(self) -> None:
        """Take in what the catalog gained, lost or replaced since the last question. A `Tool` itself never changes."""
        now = list(self.catalog.tools.values())
        if len(now) == len(self._tools) and all(map(is_, now, self._tools)):
            return
        before, after = ({id(tool): tool for tool in tools} for tools in (self._tools, now))
        for tool in (tool for key, tool in before.items() if key not in after):
            for word in places(tool):
                del self._weights[word][tool.name]
                if not self._weights[word]:
                    del self._weights[word]
        for tool in (tool for key, tool in after.items() if key not in before):
            for word, field in places(tool).items():
                self._weights[word][tool.name] = WEIGHTS[field]
        self._tools = now
        self._forget()

    def _forget(self) -> None:
        for view in self._views.values():  # one of them may be in use
            view.points.clear()
        self._views.clear()
        self._kept = 0


class _View:
    """The tools that some grants may see, and the words that were counted among them."""

    __slots__ = ("names", "points")

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.points: dict[str, list[tuple[str, int]]] = {}


def rarity(having: int, tools: int) -> int:
    """Return how rare a word is that `having` of `tools` have: `10 * log2(1 + tools / having)`, rounded down.

    In whole numbers, since a logarithm may differ between machines in its last digit: the tenth power of the ratio
    has one binary digit for each tenth of a bit. A word that none has gives 0.
    """
    return ((tools + having) ** 10 // having**10).bit_length() - 1 if having else 0


def places(tool: Tool) -> dict[str, str]:
    """Return each word of `tool` with the best place where it stands, a key of `WEIGHTS`.

    A keyword that name or description have as well counts where it stands there: `tool_list` makes keywords of both.
    """
    summary, rest = first_sentence(tool.description)
    told = set(words_of(f"{tool.name}\n{tool.description}"))
    keywords = [keyword for keyword in tool.keywords if keyword.casefold() not in told]
    texts = {"name": [tool.name], "keywords": keywords, "summary": [summary], "description": [rest]}
    for field, text in _schema_texts(tool.parameters):
        texts.setdefault(field, []).append(text)
    found: dict[str, str] = {}
    for field in WEIGHTS:
        for word in terms("\n".join(texts.get(field, ()))):
            found.setdefault(word, field)
    return found


def _schema_texts(schema: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the names of the arguments of a schema, their titles and descriptions, and the values of an `enum`."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    if depth:
        yield from (("texts", schema[key]) for key in ("title", "description") if isinstance(schema.get(key), str))
        values = schema.get("enum")
        yield from (("values", value) for value in values or () if isinstance(value, str))
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, member in properties.items():
            yield "arguments", name
            yield from _schema_texts(member, depth + 1)
    yield from _schema_texts(schema.get("items"), depth + 1)


def _read_synonyms(table: Mapping[str, Collection[str]]) -> dict[str, list[tuple[frozenset[str], list[str]]]]:
    """Return the table by the first word of each entry: all of its words, and what is looked for as well."""
    if not isinstance(table, Mapping) or len(table) > MAX_SYNONYMS:
        raise RankingError("invalid_synonyms")
    read: dict[str, list[tuple[frozenset[str], list[str]]]] = {}
    for phrase, others in table.items():
        if not _is_text(phrase) or isinstance(others, str) or not isinstance(others, Collection):
            raise RankingError("invalid_synonyms")
        if not all(map(_is_text, others)):
            raise RankingError("invalid_synonyms")
        words, more = terms(phrase), terms("\n".join(others))
        if not words or not more:
            raise RankingError("invalid_synonyms")
        read.setdefault(words[0], []).append((frozenset(words), more))
    return read


def _is_text(value: object) -> bool:
    return type(value) is str and len(value) <= MAX_TEXT
