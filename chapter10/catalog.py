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

Names and keywords are compared as they are: `search` and `Search` are two tools, another Unicode form is another
keyword. A name typed as a query finds its tool only if it is among the keywords. A search looks at every tool;
`companions.finding.indexed_catalog` has the same answers for many tools. Nothing here understands language, knows
whether *this* order may be read, or makes a check here and an effect elsewhere one act. One thread at a time.

Source: the chapter up to its section on caches and versions (claims C10-005 to C10-092).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NoReturn

from chapter10.canonical import CanonicalError, CodedError, byte_size, canonical, digest
from chapter10.limits import are_names, are_words, is_label, is_string, is_whole

__all__ = [
    "BUDGET_BYTES", "EFFECTS", "FIXTURE_GRANTS", "MAX_BATCH", "MAX_DESCRIPTION", "MAX_GRANTS", "MAX_KEYWORDS",
    "MAX_LIMIT", "MAX_PARAMETERS_BYTES", "MAX_QUERY", "MAX_TEXT", "MAX_TOOLS", "Catalog", "CatalogError", "Effect",
    "Grants", "Tool", "ToolMap", "byte_size", "fixture_tools", "search_entry",
]  # fmt: skip

Effect = Literal["read", "write"]
Grants = AbstractSet[str] | list[str] | tuple[str, ...]

EFFECTS: Final = ("read", "write")
BUDGET_BYTES: Final = 4096
"""Default of `load`: bytes of the canonical list of definitions. A threshold for teaching, no model's limit."""
MAX_TOOLS: Final = 1_000_000  # of one catalog
MAX_TEXT: Final = 200  # characters of a name, a version, a permission or one keyword; at least one
MAX_DESCRIPTION: Final = 64 * 1024  # characters; it may be empty
MAX_KEYWORDS: Final = 100_000  # of one tool
MAX_PARAMETERS_BYTES: Final = 1024 * 1024  # of their canonical form
MAX_QUERY: Final = 1000  # characters
MAX_LIMIT: Final = 1000  # cards of one search
MAX_BATCH: Final = 1000  # definitions that one call loads
MAX_GRANTS: Final = 10_000  # permissions of one identity


class CatalogError(CodedError, ValueError):
    """Raised for every refusal of this module; `code` says which.

    The caller's mistakes: `invalid_tool`, `duplicate_tool`, `too_many_tools`, `name_mismatch`, `invalid_query`,
    `invalid_grants`, `invalid_limit`, `invalid_hits`, `invalid_definition`, `invalid_budget`; with them
    `field` names what was wrong and `reason` says in a few words why, without the value.
    What the catalog decides and says no more of: `denied`, `stale_definition`, `definition_budget_exceeded`.
    """

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
    """The field `parameters`: kept as canonical text, so that whoever reads it gets a copy of their own."""

    def __get__(self, tool: Tool | None, owner: type[Tool] | None = None) -> Any:
        return None if tool is None else json.loads(tool.__dict__["_parameters"])

    def __set__(self, tool: Tool, value: Mapping[str, Any] | None) -> None:
        tool.__dict__["_parameters"] = _RECORD_ID_TEXT if value is None else _parameters_text(value)


@dataclass(frozen=True, eq=False)
class Tool:
    """What the catalog knows of one tool. It holds no handler and cannot run anything.

    `keywords` is a tuple of words (no white space inside); `permission` is what a caller's grants must
    hold; `effect` is `read` or `write`; `parameters` is a JSON Schema object and is copied, by default the
    one of the fixture. Two tools are equal when all their fields are. `dataclasses.replace(tool, version="2")`
    makes a changed one. Raises `CatalogError` (`invalid_tool`, with `field` and `reason`).
    Source: claims C10-011, C10-030, C10-032, C10-079.
    """

    name: str
    description: str
    keywords: tuple[str, ...]
    permission: str
    effect: Effect
    version: str = "1"
    parameters: _Parameters = _Parameters()

    def __post_init__(self) -> None:
        if isinstance(self.keywords, list):
            object.__setattr__(self, "keywords", tuple(self.keywords))
        for field in ("name", "permission", "version"):
            if not is_label(getattr(self, field), MAX_TEXT):
                _refuse("invalid_tool", field, f"not a printable text of 1 to {MAX_TEXT} characters")
        if not is_string(self.description, MAX_DESCRIPTION):
            _refuse("invalid_tool", "description", f"not a text of at most {MAX_DESCRIPTION} characters")
        if not are_words(self.keywords, MAX_KEYWORDS, MAX_TEXT):
            _refuse("invalid_tool", "keywords", f"not a tuple of at most {MAX_KEYWORDS} words")
        if type(self.effect) is not str or self.effect not in EFFECTS:
            _refuse("invalid_tool", "effect", "neither read nor write")

    def definition(self) -> dict[str, Any]:
        """Return what a model needs for a call: name, description, version, effect, parameters."""
        return {field: getattr(self, field) for field in ("name", "description", "version", "effect", "parameters")}

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The keywords with their case folded: what a search compares."""
        return tuple(map(str.casefold, self.keywords))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all fields, also of those that the model does not see, worked out once (claim C10-080)."""
        return digest({**self.definition(), "keywords": list(self.keywords), "permission": self.permission})

    def card(self, score: int) -> dict[str, Any]:
        """Return what a search shows of this tool: enough to choose by, without the parameters."""
        return {
            "name": self.name, "description": self.description, "version": self.version,
            "digest": self.digest, "effect": self.effect, "score": score,
        }  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Tool) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)


class ToolMap(MutableMapping[str, Tool]):
    """The registered tools by name, in the order of arrival. `tools[name] = tool` adds or replaces.

    Raises `CatalogError`: `invalid_tool` for what is no `Tool`, `name_mismatch` when the key is not the tool's
    name, `too_many_tools`. A missing name is a `KeyError`, as in any mapping.
    """

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

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
        self._tools[name] = tool

    def __delitem__(self, name: str) -> None:
        del self._tools[self[name].name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def values(self) -> ValuesView[Tool]:
        """Return the tools, without a look-up by name for each."""
        return self._tools.values()


class Catalog:
    """The registered tools and the three questions about them. `tools` is the live mapping `name -> Tool`."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Register `tools`. Raises `CatalogError`: `invalid_tool`, `duplicate_tool`, `too_many_tools`."""
        self.tools = ToolMap()
        if not isinstance(tools, Iterable):
            _refuse("invalid_tool", "tools", "not a collection of tools")
        for place, tool in enumerate(tools):
            if type(tool) is not Tool:
                _refuse("invalid_tool", f"tools[{place}]", "not a Tool")
            if tool.name in self.tools:
                first = list(self.tools).index(tool.name)
                _refuse("duplicate_tool", f"tools[{place}]", f"the same name as tools[{first}]")
            self.tools[tool.name] = tool

    def discoverable(self, grants: Grants) -> list[Tool]:
        """Return all tools that `grants` may know of, by name. For the trusted side, not for a model.

        Raises `CatalogError` (`invalid_grants`). Source: claims C10-012, C10-018.
        """
        grants = _checked(grants)
        return sorted((tool for tool in self.tools.values() if tool.permission in grants), key=lambda tool: tool.name)

    def search(self, query: str, grants: Grants, limit: int = 3) -> list[dict[str, Any]]:
        """Return at most `limit` cards `{name, description, version, digest, effect, score}`, best first.

        No match gives an empty list. Equal scores are a tie that this method does not resolve.
        Raises `CatalogError`: `invalid_query`, `invalid_grants`, `invalid_limit`.
        Source: claims C10-035 to C10-049, C10-055.
        """
        grants = self._asked(query, grants, limit)
        candidates = []
        words = set(query.casefold().split())
        for tool in self.tools.values():
            if tool.permission not in grants:
                continue
            score = len(words.intersection(tool.words))
            if score > 0:
                candidates.append((score, tool))
        candidates.sort(key=lambda found: (-found[0], found[1].name))
        return [tool.card(score) for score, tool in candidates[:limit]]

    def load(
        self, hits: list[dict[str, Any]], grants: Grants, budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        """Return the whole current definitions of `hits`, each with its `digest`, in the same order.

        `hits` are cards of `search`; of each, `name` and `digest` must be there, and what else of a
        definition is there must be as registered. The budget is in bytes of the canonical list that is returned.
        Raises `CatalogError`: `invalid_hits` (also for a name that stands twice), `invalid_grants`,
        `invalid_budget`; then `denied`, `stale_definition`, `definition_budget_exceeded`, each decided
        for the whole batch. Nothing is ever cut. Source: claims C10-057, C10-072 to C10-089.
        """
        _check_hits(hits)
        grants = _checked(grants)
        if type(budget_bytes) is not int or budget_bytes < 1:
            _refuse("invalid_budget", "budget_bytes", "not a positive integer")
        tools = []
        for hit in hits:
            tool = self.tools.get(hit["name"])
            if tool is None or tool.permission not in grants:
                raise CatalogError("denied")
            tools.append(tool)
        if not all(map(_is_current, hits, tools)):
            raise CatalogError("stale_definition")
        definitions = [{**tool.definition(), "digest": tool.digest} for tool in tools]
        if byte_size(definitions) > budget_bytes:
            raise CatalogError("definition_budget_exceeded")
        return definitions

    def authorize(self, loaded: dict[str, Any], grants: Grants) -> Tool:
        """Return the tool of one loaded definition if it may run now: the checks of `load` once more.

        The catalog and the grants are read at every call and nothing is remembered. It says nothing of
        the object that the call is about, and nothing of the next moment.
        Raises `CatalogError`: `invalid_definition`, `invalid_grants`; then `denied`, `stale_definition`.
        Source: claims C10-015, C10-022, C10-059, C10-083 to C10-090.
        """
        _check_reference(loaded, "invalid_definition", "loaded")
        grants = _checked(grants)
        tool = self.tools.get(loaded["name"])
        if tool is None or tool.permission not in grants:
            raise CatalogError("denied")
        if not _is_current(loaded, tool):
            raise CatalogError("stale_definition")
        return tool

    @staticmethod
    def _asked(query: str, grants: Grants, limit: int) -> frozenset[str]:
        """Check the question of a search and return the grants."""
        if not is_string(query, MAX_QUERY):
            _refuse("invalid_query", "query", f"not a text of at most {MAX_QUERY} characters")
        granted = _checked(grants)
        if not is_whole(limit, 1, MAX_LIMIT):
            _refuse("invalid_limit", "limit", f"not an integer from 1 to {MAX_LIMIT}")
        return granted


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
            name="orders.get",
            description="查询一笔订单的支付与履约状态；只读，不发起退款。",
            keywords=("查询", "订单", "状态"),
            permission="orders:read",
            effect="read",
        ),
        Tool(
            name="shipments.get",
            description="查询一笔订单的物流运输状态；不返回支付状态。",
            keywords=("查询", "物流", "状态"),
            permission="orders:read",
            effect="read",
        ),
        Tool(
            name="refunds.create",
            description="为已支付订单创建退款申请；会产生写入，需要审批。",
            keywords=("订单", "退款", "申请"),
            permission="refunds:write",
            effect="write",
        ),
        Tool(
            name="reports.export",
            description="将指定自然月的销售记录汇总为报表；会写入结果文件。",
            keywords=("报表", "导出", "月度"),
            permission="reports:write",
            effect="write",
        ),
    ]
    archive = [
        Tool(name, f"查询第 {name[-3:]} 类历史归档记录；只读。", ("归档", "历史", name[-3:]), "archive:read", "read")
        for name in (f"archive.lookup_{number:03}" for number in range(296))
    ]
    return met + archive


def _refuse(code: str, field: str, reason: str) -> NoReturn:
    raise CatalogError(code, field=field, reason=reason)


def _checked(grants: Grants) -> frozenset[str]:
    if not are_names(grants, MAX_GRANTS):
        _refuse("invalid_grants", "grants", f"not a set, list or tuple of at most {MAX_GRANTS} permissions")
    return frozenset(grants)


def _check_hits(hits: list[dict[str, Any]]) -> None:
    if type(hits) not in (list, tuple) or len(hits) > MAX_BATCH:
        _refuse("invalid_hits", "hits", f"not a list of at most {MAX_BATCH} cards")
    for place, hit in enumerate(hits):
        _check_reference(hit, "invalid_hits", f"hits[{place}]")
    if len({hit["name"] for hit in hits}) < len(hits):
        _refuse("invalid_hits", "hits", "a name stands twice")


def _check_reference(value: object, code: str, field: str) -> None:
    if type(value) is not dict:
        _refuse(code, field, "not a dict")
    for key in ("name", "digest"):
        if type(value.get(key)) is not str:
            _refuse(code, f"{field}.{key}", "missing or not a string")


def _is_current(reference: Mapping[str, Any], tool: Tool) -> bool:
    """Say whether the digest, and every field in `reference` that a definition has, is as registered."""
    if reference["digest"] != tool.digest:
        return False
    registered = tool.definition()
    shared = [key for key in registered if key in reference]
    try:
        return canonical([reference[key] for key in shared]) == canonical([registered[key] for key in shared])
    except CanonicalError:  # what has no canonical form was never registered
        return False


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
