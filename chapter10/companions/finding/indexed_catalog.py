"""A `Catalog` for many tools: the same answers, byte for byte, at a cost that follows the matches.

It changes two things. The mapping `tools` keeps an index of words and permissions in step with every change, and
`search` asks that index instead of looking at every tool. `load`, `authorize` and `discoverable`, the checks at the
door, the errors and the order of an answer are those of `Catalog`.

When to take it: from some thousand tools on, or where many searches a second are asked (`lab.benchmarks`, area
`search`, has the figures of both). What it costs: the index is made once, in about the time that the tools took,
and every change of a tool is a change of the index too. One thread at a time.

Source: claims C10-035 to C10-040.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chapter10.catalog import Catalog, Grants, Tool, ToolMap
from chapter10.companions.finding.postings import ToolIndex

__all__ = ["IndexedCatalog", "IndexedToolMap"]


class IndexedToolMap(ToolMap):
    """The registered tools by name; every change keeps the index in step. Raises as `ToolMap` does."""

    def __init__(self, tools: ToolMap) -> None:
        """Take over what is in `tools`."""
        self._tools = dict(tools)
        self.index = ToolIndex(self._tools.values())

    def __setitem__(self, name: str, tool: Tool) -> None:
        super().__setitem__(name, tool)
        self.index.put(tool)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.index.discard(name)


class IndexedCatalog(Catalog):
    """A `Catalog` in every answer; see the top of the module."""

    tools: IndexedToolMap

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Register `tools`. Raises as `Catalog` does."""
        super().__init__(tools)
        self.tools = IndexedToolMap(self.tools)

    def search(self, query: str, grants: Grants, limit: int = 3) -> list[dict[str, Any]]:
        """Return what `Catalog.search` returns. Raises as it does."""
        granted = self._asked(query, grants, limit)
        words = set(query.casefold().split())
        return [tool.card(score) for score, tool in self.tools.index.best(words, granted, limit)]
