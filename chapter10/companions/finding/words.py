"""The words of a plain sentence, in English or Chinese: what is counted when a question looks for a tool.

`tool_list.words_of` takes a text apart: at white space and punctuation, `camelCase`, `snake_case`, letters beside
digits, and each two neighbours of a Chinese run. Four small rules come on top, all of them tables to be read:

    fillers      what a person says around the matter, in both languages, is no word (`STOP_WORDS`, `FILLERS`).
                 Verbs that name tools stay: find, get, show, create, 查, 删
    stems        an English word loses its ending, so that `booked` and `books` meet `booking` (`stem`)
    single signs a pair of Chinese signs is there as the pair and as its two signs: 删 meets 删除
    once         a word counts once in a text, however often it stands there

The same rules hold for questions and for tools, so that what is lost is lost on both sides. No dictionary, no
part of speech, no spelling; words that differ and mean the same are the business of a table that a user passes
to `ranking`. Source: the chapter on its query, which is split at white space and understands nothing (claims
C10-033, C10-034).
"""

from __future__ import annotations

import re
from typing import Final

from chapter10.companions.finding.tool_list import words_of

__all__ = ["FILLERS", "STOP_WORDS", "first_sentence", "is_pair", "stem", "terms"]

_SAID_AROUND: Final = """
a able about above after again all also am an and any anything are as at be because been before being below best
better between both but by can certain could did do does doing don down during each especially feature features
few following for from further give good great had has have having he help her here hers him his how i if in
include included includes including interested interesting into is it its itself just kind know let like ll
looking me more most my need nice no nor not now of off on once one ones only option options or other our ours out
over own particular please provide provided providing re really recommend same she should so some someone
something specific such suggest sure t tell than that the their theirs them themselves then there these they thing
things this those through to today too under until up us use using various ve very want was way ways we were what
when where which while who whom why will with would you your yours
"""
STOP_WORDS: Final = frozenset(_SAID_AROUND.split())
"""English words that say nothing of the matter, and how people ask."""

FILLERS: Final = (
    *("请问", "请帮我", "帮我", "帮忙", "麻烦", "一下", "什么", "怎么", "怎样", "如何", "哪些", "哪个", "哪里"),
    *("有没有", "能不能", "可不可以", "是不是", "可以", "我想", "想要", "需要", "告诉", "看看"),
    *("这个", "那个", "这些", "那些", "我们", "你们", "他们", "自己"),
)
"""The same in Chinese: phrases that are taken out before a run is cut into pairs. None begins with another."""

_FILLERS: Final = re.compile("|".join(FILLERS))
_SENTENCE: Final = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
_ENDINGS: Final = (
    ("ies", "y"),
    ("sses", "ss"),
    ("ing", ""),
    ("edly", ""),
    ("ed", ""),
    ("es", ""),
    ("s", ""),
    ("ly", ""),
)
_FIRST_SIGN: Final = "\u3005"
"""From here on letters are those of Chinese, Japanese and Korean."""


def terms(text: str) -> list[str]:
    """Return the distinct words of `text` that count, in the order in which they first stand."""
    found: dict[str, None] = {}
    for word in words_of(_FILLERS.sub(" ", text)):
        if word in STOP_WORDS:
            continue
        found[stem(word)] = None
        if is_pair(word):
            found[word[0]] = found[word[1]] = None
    return list(found)


def is_pair(word: str) -> bool:
    """Say whether `word` is two neighbours of a Chinese run, whose signs are words by themselves."""
    return len(word) == 2 and word[0] >= _FIRST_SIGN


def stem(word: str) -> str:
    """Return an English word without its ending; any other word, and one of at most three letters, as it is.

    One ending at most, which leaves three letters at least; then a final e, the second of two equal consonants
    (other than l and s), and a final y as i: `booking` is `book`, `planned` is `plan`, `cities` is `citi` as `city`.
    """
    if not word.isascii():
        return word
    for ending, rest in _ENDINGS:
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + rest
            break
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word[-1] == "y" else word


def first_sentence(text: str) -> tuple[str, str]:
    """Return the first sentence of `text` and the rest; a line or one of `。！？` ends it, or `.!?` before a space."""
    end = _SENTENCE.search(text)
    return (text, "") if end is None else (text[: end.end()], text[end.end() :])
