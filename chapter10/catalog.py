"""Which tools exist, which may be found, which are loaded, and which may run now.

Four sets that are never one: *registered* (everything here), *discoverable* (what these grants may know
of), *loaded* (the definitions in this one request) and *allowed now* (worked out again at execution).
`search` gives candidates, `load` gives contracts, `authorize` decides; nothing here runs a tool.

What holds
    C1  What the caller may not see has no influence on any byte of an answer: permission comes before
        the score, and an unknown, a hidden and a revoked tool all give `denied`.
    C2  A score is the number of distinct words of the query (split at white space) among the tool's
        keywords, case folded on both sides. A score of 0 is no candidate, so that nothing is returned
        rather than something forced. Score down, then name; an equal score is a tie, not a ranking.
    C3  `load` gives all the definitions whole, or none: `denied` before `stale_definition` before
        `definition_budget_exceeded`, each decided for the whole batch before the next.
    C4  A definition that was changed in any field since it was found or loaded is stale, whether or not
        its version was changed. A digest says *changed*; it is no permission and no signature.
    C5  What is handed out is a copy, and a `Tool` never changes. Grants are read again at every call.
    C6  A refused call changes nothing.

The words
    card        what `search` returns for a tool: enough to choose by, without the parameters
    definition  what `load` returns: the contract that a call must follow, and its digest
    grants      the permissions of an identity: a set, list or tuple of strings. One string is refused
                (`in` would look for a part of it)
    digest      SHA-256 of the canonical form of every field, also of those that the model does not see

Names are compared as they are: `search` and `Search` are two tools. A tool is found by its keywords and
nothing else, so that a name typed as a query finds a tool only if the name is among them. Unicode forms
are not unified: a keyword in another normal form is another keyword.

What it costs (`lab.benchmarks.benchmark --area search`): a search in the chapter's 300 tools takes one to ten
microseconds for three cards, and thirteen for a hundred, of which seven are the copies that C5 asks for. Three
common words among 100,000 tools take 0.75 of the bare operation on whole integers, since a few names decide,
and twice as long as the same steps bare: the difference is the door and ten cards. Where only the last names
will do it is 1.4 of the bare operation. Making 100,000 tools and their catalog takes 1.3 times the work by
hand, and 2 times for 300: every field is looked at, which is half of a tool's cost, while a number that has a
word alone needs no set. An upgrade takes a third of a microsecond at any size.

What it does not do: understand language (a query is words that somebody chose), authorize an object
(whether *this* order may be read is for the service that has it), or make a check here and an effect
elsewhere one atomic act. One thread at a time.

Source: the chapter up to its section on caches and versions (claims C10-005 to C10-092).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, NoReturn, TypeVar, cast, final

from chapter10.canonical import CanonicalError, CodedError, byte_size, canonical, digest, is_unicode
from chapter10.companions.finding.postings import ToolIndex

__all__ = [
    "BUDGET_BYTES",
    "EFFECTS",
    "FIXTURE_GRANTS",
    "MAX_BATCH",
    "MAX_DESCRIPTION",
    "MAX_GRANTS",
    "MAX_KEYWORDS",
    "MAX_LIMIT",
    "MAX_PARAMETERS_BYTES",
    "MAX_QUERY",
    "MAX_TEXT",
    "MAX_TOOLS",
    "Catalog",
    "CatalogError",
    "Effect",
    "Grants",
    "Tool",
    "ToolMap",
    "byte_size",
    "fixture_tools",
    "search_entry",
]

Effect = Literal["read", "write"]
Grants = AbstractSet[str] | list[str] | tuple[str, ...]

Value = TypeVar("Value")
_are_strings: Final = frozenset({str}).issuperset

_COLLECTIONS: Final = (frozenset, set, list, tuple, AbstractSet)  # what most callers pass stands first

EFFECTS: Final = ("read", "write")
BUDGET_BYTES: Final = 4096
"""Default of `load`: bytes of the canonical list of definitions. A threshold for teaching, no model's limit."""
MAX_TOOLS: Final = 1_000_000
"""Tools of one catalog."""
MAX_TEXT: Final = 200
"""Characters of a name, a version, a permission or one keyword; at least one."""
MAX_DESCRIPTION: Final = 64 * 1024
"""Characters of a description, which may be empty."""
MAX_KEYWORDS: Final = 100_000
"""Keywords of one tool."""
MAX_PARAMETERS_BYTES: Final = 1024 * 1024
"""Bytes of the canonical form of a tool's parameters."""
MAX_QUERY: Final = 1000
"""Characters of a query."""
MAX_LIMIT: Final = 1000
"""The most cards that one search returns."""
MAX_BATCH: Final = 1000
"""The most definitions that one call loads."""
MAX_GRANTS: Final = 10_000
"""Permissions that one identity may have."""


class CatalogError(CodedError, ValueError):
    """Raised for every refusal of this module; `code` says which.

    The caller's mistakes: `invalid_tool`, `duplicate_tool`, `too_many_tools`, `name_mismatch`, `invalid_query`,
    `invalid_grants`, `invalid_limit`, `invalid_hits`, `invalid_definition`, `invalid_budget`; with them
    `field` names what was wrong and `reason` says in a few words why, without the value.
    What the catalog decides: `denied`, `stale_definition`, `definition_budget_exceeded`. `denied` says
    nothing more, whatever its cause.
    """

    field: str | None
    reason: str | None

    def __init__(self, code: str, *, field: str | None = None, reason: str | None = None) -> None:
        super().__init__(code)
        self.field = field
        self.reason = reason


_RECORD_ID: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"record_id": {"type": "string", "description": "要查询或操作的那条记录的编号"}},
    "required": ["record_id"],
    "additionalProperties": False,
}
"""The one schema of all fixture tools, there to be measured; no real service takes it (claim C10-060)."""

_RECORD_ID_TEXT: Final = canonical(_RECORD_ID)


class _Parameters:
    """The field `parameters` of a `Tool`: read as a fresh copy, kept as canonical text."""

    def __get__(self, tool: Tool | None, owner: type[Tool] | None = None) -> dict[str, Any]:
        if tool is None:  # `dataclass` asks for a default in this way, and there is none
            raise AttributeError("parameters")
        return cast("dict[str, Any]", json.loads(tool._parameters_text))


class _Slots:
    """The places of a `Tool`: its fields and what it keeps beside them, each cached one unset until it is asked for."""

    __slots__ = (
        *("description", "effect", "keywords", "name", "permission", "version"),
        *("_card", "_digest", "_loaded_bytes", "_parameters_text", "words"),
    )

    words: tuple[str, ...]  # the keywords with their case folded
    _parameters_text: str
    _digest: str
    _loaded_bytes: int
    _card: dict[str, Any]


class _OpenTool(_Slots):
    """What a `Tool` is while it is filled: the same places without the lock.

    Eight assignments and two changes of class take a third of the time of eight calls around the lock.
    """

    __slots__ = ()


@final
@dataclass(frozen=True, init=False, eq=False)
class Tool(_Slots):
    """What the catalog knows of one tool. It holds no handler and cannot run anything.

    `keywords` is a tuple of words (no white space inside); `permission` is what a caller's grants must
    hold; `effect` is `read` or `write`; `parameters` is a JSON Schema object and is copied. Two tools
    are equal when all their fields are. `dataclasses.replace(tool, version="2")` makes a changed one.
    Raises `CatalogError` (`invalid_tool`, with `field` and `reason`).
    Source: claims C10-011, C10-030, C10-032, C10-079.
    """

    __slots__ = ()

    name: str
    description: str
    keywords: tuple[str, ...]
    permission: str
    effect: Effect
    version: str
    parameters: _Parameters = _Parameters()

    def __init__(
        self,
        name: str,
        description: str,
        keywords: tuple[str, ...],
        permission: str,
        effect: Effect,
        version: str = "1",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(keywords, list):
            keywords = tuple(keywords)
        joined = _check_fields(name, description, keywords, permission, effect, version)
        text = _RECORD_ID_TEXT if parameters is None else _parameters_text(parameters)
        tool: Any = self
        object.__setattr__(tool, "__class__", _OpenTool)  # the lock is put on when all is in its place
        tool.name = name
        tool.description = description
        tool.keywords = keywords
        tool.permission = permission
        tool.effect = effect
        tool.version = version
        tool._parameters_text = text
        folded = joined.casefold() == joined  # as a rule, and then one tuple serves for both
        tool.words = keywords if folded else tuple(map(str.casefold, keywords))
        tool.__class__ = Tool

    @property
    def digest(self) -> str:
        """The fingerprint of every field, worked out once, when it is first asked for (claim C10-080)."""
        try:
            return self._digest
        except AttributeError:
            unseen = {"keywords": list(self.keywords), "permission": self.permission}
            return self._keep("_digest", digest({**self.definition(), **unseen}))

    @property
    def loaded_bytes(self) -> int:
        """The bytes of this definition with its digest in canonical form, worked out once."""
        try:
            return self._loaded_bytes
        except AttributeError:
            return self._keep("_loaded_bytes", byte_size({**self.definition(), "digest": self.digest}))

    def card(self, score: int) -> dict[str, Any]:
        """Return what a search shows of this tool."""
        try:
            card = self._card.copy()
        except AttributeError:
            fields = ("name", "description", "version", "digest", "effect")
            card = self._keep("_card", {**{field: getattr(self, field) for field in fields}, "score": 1}).copy()
        card["score"] = score
        return card

    def definition(self) -> dict[str, Any]:
        """Return what a model needs for a call: name, description, version, effect, parameters."""
        return {
            "name": self.name,
            "description": self.description,
            "version": self.version,
            "effect": self.effect,
            "parameters": json.loads(self._parameters_text),
        }

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Tool) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __init_subclass__(cls) -> None:
        """Refuse what `final` asks type checkers to refuse: what is made of it would be a plain `Tool`."""
        raise TypeError("Tool has no subclasses")

    def __reduce__(self) -> tuple[type[Tool], tuple[Any, ...]]:
        """Let `copy` make a tool as anybody does, through the checks."""
        fields = (self.name, self.description, self.keywords, self.permission, self.effect, self.version)
        return Tool, (*fields, json.loads(self._parameters_text))

    def _keep(self, slot: str, value: Value) -> Value:
        object.__setattr__(self, slot, value)
        return value


class ToolMap(MutableMapping[str, Tool]):
    """The registered tools by name; every change keeps the index in step. Iterates in the order of arrival.

    `tools[name] = tool` adds or replaces and costs what the words of that tool cost. Raises `CatalogError`:
    `name_mismatch` when the key is not the tool's name, `invalid_tool` for what is no `Tool`. A missing
    name is a `KeyError`, as in any mapping.
    """

    __slots__ = ("_index", "_tools")

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = dict(tools)
        self._index = ToolIndex(self._tools.values())

    def __getitem__(self, name: str) -> Tool:
        if type(name) is not str:
            raise KeyError(name)
        return self._tools[name]

    def __setitem__(self, name: str, tool: Tool) -> None:
        if type(tool) is not Tool:
            _refuse("invalid_tool", "tool", "not a Tool")
        if type(name) is not str or name != tool.name:
            _refuse("name_mismatch", "name", "the key is not the name of the tool")
        if len(self._tools) >= MAX_TOOLS and name not in self._tools:
            _refuse("too_many_tools", "tools", f"more than {MAX_TOOLS} tools")
        self._index.put(tool)
        self._tools[name] = tool

    def __delitem__(self, name: str) -> None:
        if type(name) is not str:
            raise KeyError(name)
        del self._tools[name]
        self._index.discard(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


class Catalog:
    """The registered tools and the three questions about them. `tools` is the live mapping `name -> Tool`."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Register `tools`. Raises `CatalogError`: `invalid_tool`, `duplicate_tool`, `too_many_tools`."""
        if not isinstance(tools, Iterable):
            _refuse("invalid_tool", "tools", "not a collection of tools")
        tools = list(islice(tools, MAX_TOOLS + 1))
        if len(tools) > MAX_TOOLS:
            _refuse("too_many_tools", "tools", f"more than {MAX_TOOLS} tools")
        if not set(map(type, tools)) <= {Tool}:
            _refuse("invalid_tool", "tools", "not all are of type Tool")
        by_name = {tool.name: tool for tool in tools}
        if len(by_name) < len(tools):
            _refuse_repeated_name(tools)
        self._tools = ToolMap(by_name)

    @property
    def tools(self) -> ToolMap:
        """The registered tools; a change here is seen by the next search, load and authorization."""
        return self._tools

    def discoverable(self, grants: Grants) -> list[Tool]:
        """Return all tools that `grants` may know of, by name. For the trusted side, not for a model.

        Raises `CatalogError` (`invalid_grants`). Source: claims C10-012, C10-018.
        """
        return self._tools._index.visible(_check_grants(grants))

    def search(self, query: str, grants: Grants, limit: int = 3) -> list[dict[str, Any]]:
        """Return at most `limit` cards `{name, description, version, digest, effect, score}`, best first.

        No match gives an empty list. Equal scores are a tie that this method does not resolve. The cost
        follows the matches, not the catalog; see `postings`.
        Raises `CatalogError`: `invalid_query`, `invalid_grants`, `invalid_limit`.
        Source: claims C10-035 to C10-049, C10-055.
        """
        words = _check_query(query)
        granted = _check_grants(grants)
        _check_count(limit, MAX_LIMIT, "invalid_limit", "limit")
        cards: list[dict[str, Any]] = []
        for score, tools in self._tools._index.best(words, granted, limit):
            cards += _cards(tools, score)
        return cards

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        """Return the whole current definitions of `hits`, each with its `digest`, in the same order.

        `hits` are cards of `search`; of each, `name` and `digest` must be there and what else is there
        must be as registered. The budget is in bytes of the canonical list that is returned.
        Raises `CatalogError`: `invalid_hits` (also for a name that stands twice), `invalid_grants`,
        `invalid_budget`; then `denied`, `stale_definition`, `definition_budget_exceeded`, each decided
        for the whole batch. Nothing is ever cut. Source: claims C10-057, C10-072 to C10-089.
        """
        if type(hits) not in (list, tuple) or len(hits) > MAX_BATCH:
            _refuse("invalid_hits", "hits", f"not a list of at most {MAX_BATCH} cards")
        for position, hit in enumerate(hits):
            _check_reference(hit, "invalid_hits", f"hits[{position}]")
        if len({hit["name"] for hit in hits}) < len(hits):
            _refuse("invalid_hits", "hits", "a name stands twice")
        granted = _check_grants(grants)
        _check_count(budget_bytes, None, "invalid_budget", "budget_bytes")
        tools = [self._allowed(hit, granted) for hit in hits]
        for hit, tool in zip(hits, tools, strict=True):
            _refuse_stale(hit, tool)
        commas_and_brackets = max(len(tools) - 1, 0) + 2
        if commas_and_brackets + sum(tool.loaded_bytes for tool in tools) > budget_bytes:
            raise CatalogError("definition_budget_exceeded")
        return [{**tool.definition(), "digest": tool.digest} for tool in tools]

    def authorize(self, loaded: dict[str, Any], grants: Grants) -> Tool:
        """Return the tool of one loaded definition if it may run now: the checks of `load` once more.

        The catalog and the grants are read at every call and nothing is remembered. It says nothing of
        the object that the call is about, and nothing of the next moment.
        Raises `CatalogError`: `invalid_definition`, `invalid_grants`; then `denied`, `stale_definition`.
        Source: claims C10-015, C10-022, C10-059, C10-083 to C10-090.
        """
        _check_reference(loaded, "invalid_definition", "loaded")
        tool = self._allowed(loaded, _check_grants(grants))
        _refuse_stale(loaded, tool)
        return tool

    def _allowed(self, reference: Mapping[str, Any], granted: frozenset[str]) -> Tool:
        tool = self._tools.get(reference["name"])
        if tool is None or tool.permission not in granted:
            raise CatalogError("denied")
        return tool


def search_entry() -> dict[str, Any]:
    """Return the definition of the search itself: always in the request, so always counted (claim C10-259)."""
    return {
        "name": "tools.search",
        "description": "按关键词查找可用的工具，只返回摘要",
        "parameters": {"query": "string", "limit": "positive integer"},
    }


FIXTURE_GRANTS: Final = frozenset({"orders:read", "reports:write", "archive:read"})
"""What the identity of the chapter's experiments may do: everything but refunds (claim C10-018)."""


def fixture_tools() -> list[Tool]:
    """Return the chapter's 300 tools: four that a reader meets, and 296 that only make the catalog large.

    Source: claims C10-017 to C10-031, C10-060.
    """
    met = [
        Tool(
            "orders.get",
            "查询一笔订单的支付与履约状态；只读，不发起退款。",
            ("查询", "订单", "状态"),
            "orders:read",
            "read",
        ),
        Tool(
            "shipments.get",
            "查询一笔订单的物流运输状态；不返回支付状态。",
            ("查询", "物流", "状态"),
            "orders:read",
            "read",
        ),
        Tool(
            "refunds.create",
            "为已支付订单创建退款申请；会产生写入，需要审批。",
            ("订单", "退款", "申请"),
            "refunds:write",
            "write",
        ),
        Tool(
            "reports.export",
            "将指定自然月的销售记录汇总为报表；会写入结果文件。",
            ("报表", "导出", "月度"),
            "reports:write",
            "write",
        ),
    ]
    archive = [
        Tool(
            f"archive.lookup_{number:03}",
            f"查询第 {number:03} 类历史归档记录；只读。",
            ("归档", "历史", f"{number:03}"),
            "archive:read",
            "read",
        )
        for number in range(296)
    ]
    return met + archive


def _cards(tools: list[Tool], score: int) -> list[dict[str, Any]]:
    """Return copies of the cards of `tools`; to copy a dict whole is the least that a card can cost."""
    try:
        cards = [tool._card.copy() for tool in tools]
    except AttributeError:  # one of them is shown for the first time
        return [tool.card(score) for tool in tools]
    if score != 1:
        for card in cards:
            card["score"] = score
    return cards


def _refuse(code: str, field: str, reason: str) -> NoReturn:
    raise CatalogError(code, field=field, reason=reason)


def _refuse_repeated_name(tools: Iterable[Tool]) -> NoReturn:
    first: dict[str, int] = {}
    for position, tool in enumerate(tools):
        if tool.name in first:
            _refuse("duplicate_tool", f"tools[{position}]", f"the same name as tools[{first[tool.name]}]")
        first[tool.name] = position
    raise AssertionError("no name stands twice")


def _refuse_stale(reference: Mapping[str, Any], tool: Tool) -> None:
    """Raise `stale_definition` unless every field in `reference` that a definition has is as registered."""
    if reference["digest"] == tool.digest:
        registered = tool.definition()
        shared = [key for key in registered if key in reference]
        try:
            if canonical({key: reference[key] for key in shared}) == canonical(
                {key: registered[key] for key in shared}
            ):
                return
        except CanonicalError:
            pass  # what has no canonical form was never registered
    raise CatalogError("stale_definition")


def _check_reference(value: object, code: str, field: str) -> None:
    if type(value) is not dict:
        _refuse(code, field, "not a dict")
    for key in ("name", "digest"):
        if type(value.get(key)) is not str:
            _refuse(code, f"{field}.{key}", "missing or not a string")


def _check_query(query: str) -> set[str]:
    if type(query) is not str or len(query) > MAX_QUERY or not (query.isascii() or is_unicode(query)):
        _refuse("invalid_query", "query", f"not a text of at most {MAX_QUERY} characters")
    return set(query.casefold().split())


def _check_grants(grants: Grants) -> frozenset[str]:
    if not isinstance(grants, _COLLECTIONS) or len(grants) > MAX_GRANTS:
        _refuse("invalid_grants", "grants", f"not a set, list or tuple of at most {MAX_GRANTS} permissions")
    if not _are_strings(map(type, grants)):
        _refuse("invalid_grants", "grants", "a permission is not a string")
    return grants if type(grants) is frozenset else frozenset(grants)


def _check_count(value: int, most: int | None, code: str, field: str) -> None:
    if type(value) is not int or value < 1 or (most is not None and value > most):
        _refuse(code, field, "not a positive integer" if most is None else f"not an integer from 1 to {most}")


def _check_fields(
    name: str, description: str, keywords: tuple[str, ...], permission: str, effect: str, version: str
) -> str:
    """Return the keywords in one text, for what else is asked of all of them."""
    if not (_is_label(name) and _is_label(permission) and _is_label(version)):
        labels = {"name": name, "permission": permission, "version": version}
        wrong = next(field for field, text in labels.items() if not _is_label(text))
        _refuse("invalid_tool", wrong, f"not a printable text of 1 to {MAX_TEXT} characters")
    if type(description) is not str or len(description) > MAX_DESCRIPTION or not is_unicode(description):
        _refuse("invalid_tool", "description", f"not a text of at most {MAX_DESCRIPTION} characters")
    if type(effect) is not str or effect not in EFFECTS:
        _refuse("invalid_tool", "effect", "neither read nor write")
    if type(keywords) is not tuple or len(keywords) > MAX_KEYWORDS or not _are_strings(map(type, keywords)):
        _refuse("invalid_tool", "keywords", f"not a tuple of at most {MAX_KEYWORDS} strings")
    joined = " ".join(keywords)
    if tuple(joined.split()) != keywords or not is_unicode(joined):
        _refuse("invalid_tool", "keywords", "a keyword is empty, holds white space or a lone surrogate")
    if len(joined) > MAX_TEXT and max(map(len, keywords)) > MAX_TEXT:
        _refuse("invalid_tool", "keywords", f"a keyword has more than {MAX_TEXT} characters")
    return joined


def _is_label(text: object) -> bool:
    """Say whether `text` is a short text on one line, free of control characters and lone surrogates."""
    return type(text) is str and 0 < len(text) <= MAX_TEXT and text.isprintable()


def _parameters_text(parameters: Mapping[str, Any]) -> str:
    if type(parameters) is not dict:
        _refuse("invalid_tool", "parameters", "not a JSON object")
    try:
        # Two levels more than the schema itself: it stands in a definition, and that in a loaded list.
        text = canonical([[parameters]])[2:-2]
    except CanonicalError as error:
        raise CatalogError("invalid_tool", field="parameters", reason=error.reason) from None
    if len(text.encode("utf-8")) > MAX_PARAMETERS_BYTES:
        _refuse("invalid_tool", "parameters", f"more than {MAX_PARAMETERS_BYTES} bytes")
    return text
