"""The group `ranking`: half of the tools are hidden from bob, and his cards must not tell that they exist.

The same question goes to a ranking for alice, who may see all eight tools, for bob, who may see four, and to a
catalog in which the other four were never registered. Beside it stands what a shared index gives bob: words are
counted over all eight, and the hidden tools are left out of the list before he gets it.
Source: the chapter's rule that permission comes before the score (claims C10-035, C10-044, C10-047, C10-051).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from chapter10.catalog import Catalog, Tool
from chapter10.companions.finding.ranking import Ranking
from chapter10.lab.evidence.evidence import Group, Scene

__all__ = ["GROUP", "ranking_experiment", "shared_index"]

_QUESTION: Final = "Please cancel the refund"
_TIE: Final = "cancel something"
_ELSEWHERE: Final = "What is the weather in Paris?"
_BOTH: Final = {
    "orders.cancel": "Cancel an order.",
    "orders.get": "Read an order.",
    "refunds.get": "Read a refund.",
    "shipments.cancel": "Cancel a shipment.",
}
_HIDDEN: Final = {
    "refunds.approve": "Approve a refund.",
    "refunds.create": "Create a refund.",
    "refunds.list": "List the refunds of a month.",
    "refunds.reject": "Reject a refund.",
}
_BOB: Final = frozenset({"orders:use"})
_ALICE: Final = _BOB | {"refunds:write"}


def ranking_experiment(scene: Scene) -> dict[str, Any]:
    """Ask the same for alice, for bob, and where the hidden tools do not exist; then by a shared index."""
    both = [Tool(name, text, (), "orders:use", "read") for name, text in _BOTH.items()]
    hidden = [Tool(name, text, (), "refunds:write", "read") for name, text in _HIDDEN.items()]
    ranking, alone = Ranking(Catalog(both + hidden)), Ranking(Catalog(both))
    scene.begin("同一个问题，三个目录 / one question, three views")
    alice = scene.call("alice", ranking.search, _QUESTION, _ALICE, limit=8)
    bob = scene.call("bob", ranking.search, _QUESTION, _BOB)
    without = scene.call("nobody hidden", alone.search, _QUESTION, _BOB)
    scene.begin("共用的索引 / a shared index")
    shared = scene.call("bob", shared_index, ranking, _QUESTION, _ALICE, _BOTH)
    scene.begin("平分与没有 / a tie, and nothing")
    tie = scene.call("bob", ranking.search, _TIE, _BOB)
    elsewhere = scene.call("bob", ranking.search, _ELSEWHERE, _BOB)
    of_both = [card["name"] for card in alice if card["name"] in _BOTH][:3]
    return {
        "question": _QUESTION,
        "cards": [
            *_rows("alice, all eight", alice[:3]),
            *_rows("bob, four", bob),
            *_rows("the four alone", without),
            *_rows("bob, shared index", shared),
        ],
        "points_of_bobs_first": ranking.explain(_QUESTION, _BOB, bob[0]["name"])["words"],
        "first_three_of_what_both_see": of_both,
        "bob_differs_from_alice": [card["name"] for card in bob] != of_both,
        "bob_is_as_without_the_hidden": bob == without,
        "shared_index_is_as_without_the_hidden": shared == without,
        "tie": [[card["name"], card["score"]] for card in tie],
        "elsewhere": len(elsewhere),
    }


def shared_index(
    ranking: Ranking, question: str, everything: Collection[str], visible: Collection[str], limit: int = 3
) -> list[dict[str, Any]]:
    """Return what an index over all tools gives: rarity counted over everything, hidden tools left out of the list.

    `everything`: grants that see all tools. `visible`: the names that the caller may see.
    """
    cards = ranking.search(question, frozenset(everything), 1000)
    return [card for card in cards if card["name"] in visible][:limit]


def _rows(view: str, cards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"view": view, "card": card["name"], "score": card["score"]} for card in cards]


GROUP: Final = Group(
    ranking_experiment,
    title="排序与权限 / ranking",
    target="catalog",
    text="""\
八个工具，bob 只看得见四个。少见的词分量重；什么算少见，只在看得见的工具里数。bob 的四个工具里 refund 只有一个，
cancel 有两个，所以退款在先；alice 的八个里 refund 有五个，取消在先。bob 的回答和根本没有另外四个工具时逐字节相同：
{bob_is_as_without_the_hidden}。

共用一份索引，在列表里去掉看不见的，回答就不同了：退款落到了后面，bob 由此知道还有许多他看不见的退款工具。
先过滤再列出，照样泄漏；要先过滤再计数。

Eight tools, of which bob may see four. A rare word weighs more, and what is rare is counted among the tools
that are seen. Of bob's four tools one has *refund* and two have *cancel*, so refunds come first; of the eight of
alice five have *refund*, so to cancel comes first. Bob's answer is, to the byte, that of a catalog in which the
other four do not exist.

An index that all share, with the hidden tools left out of the list, gives bob another answer: refunds fall
behind, and from that he knows that there are many tools for refunds that he may not see. Filtered before the
list, it leaks all the same; the filter has to come before the counting.

Equal scores stay equal ({tie}), and a question about something else finds nothing.
""",
    tables=("cards", "points_of_bobs_first"),
)
