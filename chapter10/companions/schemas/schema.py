"""Arguments are checked before anything runs: strict JSON in, and the part of JSON Schema that tools use.

A schema is compiled once, when its tool is registered, and only what is compiled is promised:

S1  What is not checked is refused. A keyword outside the table below is a `SchemaError` with its name and
    its place, never something silently ignored; nothing is ever fetched.
S2  Types are those of JSON, not those of Python: true is no integer and not equal to 1, 3.0 is an integer,
    NaN and the infinities do not exist, a tuple is no array.
S3  A value is never changed: no default is filled in, nothing is converted, nothing is repaired.
S4  Every check ends, soon: size, depth, steps and the number of violations have a bound, recursive references
    and patterns included; long lists of names and long texts use it up too. Past a bound a value is invalid,
    with the keyword `limit`.
S5  A violation says where (a JSON pointer into the value), which keyword, and why, in words made of the
    schema alone. Parts of the value appear in no reason; the names of its keys appear in paths.

    checked   every keyword of 2020-12 that judges a value or leads to a subschema, but for the refused ones:
              type enum const, those for numbers, texts, arrays and objects, allOf anyOf oneOf not if then else,
              $defs, and $ref into the same schema: a JSON pointer, an $anchor, an $id, recursive ones too
    also      definitions; and where the schema does not say that it is 2020-12, what draft-07 wrote: a list of
              items with additionalItems, dependencies; and draft-04's exclusiveMinimum: true
    kept for  title description default examples deprecated readOnly writeOnly $comment format content*
    readers   discriminator x-* $schema (2020-12 or draft-07; at the root)
    refused   all others: unevaluatedItems, unevaluatedProperties, $dynamicRef, $dynamicAnchor, $vocabulary, a
              $ref that leads out of the schema, what is no keyword

Lengths are counted in Unicode code points, as the standard says; `multipleOf` is exact for the numbers as they are
written. In draft-07 a `$ref` hides what stands beside it, in 2020-12 it does not; so a draft-07 schema that has
both is refused, as is a keyword that draft-07 does not know. Of `anyOf` and `oneOf` a violation names the nearest
alternative, if one is near, and what it lacks. How `pattern` is matched stands in `pattern`. The arguments of a
model arrive as text: `strict_json` reads them, and tells text that was cut off from text that is wrong.

Source: the document on the tool registry, its first step (claims T6-003, T6-005, T6-022, T6-035), and the
keywords that real tool lists use.
"""

from __future__ import annotations

import graphlib
import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from chapter10.canonical import CanonicalError, CodedError, canonical
from chapter10.companions.schemas.pattern import MAX_PATTERN_WORK, Pattern, PatternError, PatternLimit
from chapter10.companions.schemas.schema_rules import (
    LIMITS,
    MAX_NESTED,
    MAX_STEPS,
    MAX_VIOLATIONS,
    TYPES,
    Additional,
    Combined,
    Conditional,
    Contains,
    Dependent,
    Items,
    LimitReached,
    Limits,
    Matches,
    MultipleOf,
    Names,
    Never,
    Node,
    OneOfValues,
    PatternProperties,
    Prefix,
    Properties,
    Reference,
    Required,
    Rule,
    Run,
    Type,
    Unique,
)
from chapter10.companions.schemas.strict_json import (
    MAX_JSON_DEPTH,
    MAX_JSON_SIZE,
    JsonError,
    copy_json,
    pointer,
    strict_json,
)

__all__ = [
    "CHECKED_KEYWORDS",
    "DIALECTS",
    "IGNORED_KEYWORDS",
    "MAX_SCHEMA_SIZE",
    "MAX_STEPS",
    "MAX_VIOLATIONS",
    "JsonError",
    "SchemaError",
    "Validator",
    "Violation",
    "compile_schema",
    "copy_json",
    "strict_json",
]

MAX_SCHEMA_SIZE: Final = 256 * 1024
"""Characters of the canonical form of a schema. The largest of 644 real ones has 7,356 bytes."""
DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "http://json-schema.org/draft-07/schema": "draft-07",
}
IGNORED_KEYWORDS: Final = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "format",
    "contentEncoding", "contentMediaType", "contentSchema", "discriminator",
})  # fmt: skip
_ONLY_2020_12: Final = frozenset({
    "prefixItems", "minContains", "maxContains", "dependentRequired", "dependentSchemas", "$anchor",
})  # fmt: skip
_ONLY_DRAFT_07: Final = frozenset({"additionalItems", "dependencies"})


_Path = tuple[str | int, ...]


class SchemaError(CodedError, ValueError):
    """Raised when a schema is refused, once, at compilation.

    `unsupported_keyword`: a keyword or a use of it that is not checked here. `invalid_schema`: no schema.
    `keyword` names it ("" for a schema as a whole), `path` is a JSON pointer to the schema that holds it,
    `reason` says why in a few words.
    """

    keyword: str
    path: str
    reason: str

    def __init__(self, code: str, keyword: str, path: str, reason: str) -> None:
        super().__init__(code)
        self.keyword = keyword
        self.path = path
        self.reason = reason


class Violation(NamedTuple):
    """One reason why a value is not valid: a JSON pointer into the value, the keyword, the words."""

    path: str
    keyword: str
    reason: str


class Validator:
    """A compiled schema; made by `compile_schema`. It never changes and may be used by many threads."""

    __slots__ = ("_root",)

    def __init__(self, root: Node) -> None:
        self._root = root

    def validate(self, value: object) -> list[Violation]:
        """Return why `value` is not valid, at most `MAX_VIOLATIONS` reasons; an empty list if it is valid."""
        return self.read(value)[1]

    def read(self, value: object) -> tuple[Any, list[Violation]]:
        """Return a deep copy of `value` and the violations. Without a violation the copy may be used."""
        try:
            copied = copy_json(value)
        except JsonError as error:
            return None, [Violation(error.path, *_JSON_REASONS[error.code])]
        run = Run(MAX_PATTERN_WORK)
        try:
            if not self._root.accepts(copied, run):
                run = Run(MAX_PATTERN_WORK)
                self._root.explain(copied, (), run)
        except (LimitReached, PatternLimit, RecursionError):
            run.report((), "limit", f"not decided within {MAX_STEPS} steps and {MAX_NESTED} levels")
        return copied, [Violation(pointer(path), keyword, reason) for path, keyword, reason in run.found]


_JSON_REASONS: Final = {
    "json_number": ("json", "is not a number of JSON"),
    "json_surrogate": ("json", "holds half a character"),
    "json_type": ("json", "is not a value of JSON, or has a key that is no string"),
    "json_too_deep": ("limit", f"has more than {MAX_JSON_DEPTH} levels"),
    "json_too_long": ("limit", f"is larger than {MAX_JSON_SIZE} characters"),
}


def compile_schema(schema: object) -> Validator:
    """Return the validator of a JSON Schema (a dict, or True or False). Raises `SchemaError`.

    The schema is copied; changing it afterwards changes nothing.
    """
    try:
        text = canonical(schema)
    except CanonicalError as error:
        raise SchemaError("invalid_schema", "", "", error.reason) from None
    if len(text) > MAX_SCHEMA_SIZE:
        raise SchemaError("invalid_schema", "", "", f"more than {MAX_SCHEMA_SIZE} characters")
    try:
        return Validator(_Compiler().compile(json.loads(text)))
    except (LimitReached, RecursionError):
        raise SchemaError("invalid_schema", "", "", "too large or too deep to compile") from None


class _Compiler:
    """Walks a schema once, makes a node for each place, then joins the references to the places."""

    def __init__(self) -> None:
        self._nodes: dict[_Path, Node] = {}
        self._references: list[Reference] = []
        self._dialect = ""  # not said: what has one meaning only is taken in both
        self._resource = ""  # the `$id` around the place that is compiled
        self._resources: dict[str, _Path] = {"": ()}
        self._anchors: dict[tuple[str, str], _Path] = {}

    def compile(self, schema: Any) -> Node:
        if type(schema) is dict and "$schema" in schema:
            named = schema.pop("$schema")
            dialect = DIALECTS.get(named.removesuffix("#")) if type(named) is str else None
            if dialect is None:
                raise SchemaError("unsupported_keyword", "$schema", "", "neither 2020-12 nor draft-07")
            self._dialect = dialect
        root = self._node(schema, ())
        for reference in self._references:
            reference.node = self._target(reference)
        self._refuse_circles()
        return root

    def _node(self, schema: Any, path: _Path) -> Node:
        node = self._nodes[path] = Node(path)
        if schema is False:
            node.rules = (Never(),)
        elif type(schema) is dict:
            around = self._resource
            if "$id" in schema:
                self._enter(schema.pop("$id"), schema, path)
            node.rules = tuple(rule for keyword in schema for rule in self._rules(keyword, schema, path))
            self._resource = around
        elif schema is not True:
            self._invalid("", path, "neither an object nor true nor false")
        return node

    def _rules(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if keyword in IGNORED_KEYWORDS or keyword.startswith("x-"):
            return []
        build = _BUILD.get(keyword)
        if build is None:
            self._unsupported(keyword, path, "not checked here")
        if keyword in {"draft-07": _ONLY_2020_12, "2020-12": _ONLY_DRAFT_07}.get(self._dialect, ()):
            self._unsupported(keyword, path, f"not a keyword of {self._dialect}")
        return build(self, keyword, schema, path)

    def _type(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        names = schema[keyword]
        names = [names] if type(names) is str else self._texts(keyword, names, path)
        if not names or not set(names) <= set(TYPES):
            self._invalid(keyword, path, "not a type of JSON")
        return [Type(names)]

    def _required(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        names = self._texts(keyword, schema[keyword], path)
        return [Required(names)] if names else []

    def _properties(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        return [Properties(self._named(keyword, schema, path))]

    def _definitions(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        self._named(keyword, schema, path)
        return []

    def _additional(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        known = frozenset(known) if type(known) is dict else frozenset()  # the other keyword is refused by itself
        found = [self._found_in("patternProperties", one, path) for one in (patterns if type(patterns) is dict else ())]
        return [Additional(known, found, self._node(schema[keyword], (*path, keyword)))]

    def _by_pattern(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        nodes = self._named(keyword, schema, path)
        return [PatternProperties([(self._found_in(keyword, name, path), node) for name, node in nodes.items()])]

    def _names(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        return [Names(self._node(schema[keyword], (*path, keyword)))]

    def _dependent(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if type(schema[keyword]) is not dict:
            self._invalid(keyword, path, "not an object")
        nodes = {}
        for name, inner in schema[keyword].items():
            here = (*path, keyword, name)
            if keyword == "dependentRequired" or (keyword == "dependencies" and type(inner) is list):
                nodes[name] = Node(here)
                nodes[name].rules = (Required(self._texts(keyword, inner, path)),)
            else:
                nodes[name] = self._node(inner, here)
        return [Dependent(keyword, nodes)]

    def _items(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if type(schema[keyword]) is list:
            if self._dialect == "2020-12" or "prefixItems" in schema:
                self._unsupported(keyword, path, "a list of schemas is prefixItems in 2020-12")
            return self._prefix(keyword, schema, path)
        prefix = schema.get("prefixItems", [])
        start = len(prefix) if type(prefix) is list else 0
        return [Items(keyword, self._node(schema[keyword], (*path, keyword)), start)]

    def _prefix(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        return [Prefix(keyword, self._listed(keyword, schema, path))]

    def _more_items(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        node = self._node(schema[keyword], (*path, keyword))
        prefix = schema.get("items")
        return [Items(keyword, node, len(prefix))] if type(prefix) is list else []

    def _contains(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        least, most = (
            self._count(name, schema[name], path) if name in schema else None for name in ("minContains", "maxContains")
        )
        return [Contains(self._node(schema[keyword], (*path, keyword)), 1 if least is None else least, most)]

    def _contained(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        self._count(keyword, schema[keyword], path)
        return []  # without `contains` it says nothing

    def _unique(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if type(schema[keyword]) is not bool:
            self._invalid(keyword, path, "neither true nor false")
        return [Unique()] if schema[keyword] else []

    def _multiple(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if type(schema[keyword]) not in TYPES["number"] or schema[keyword] <= 0:
            self._invalid(keyword, path, "not a number above 0")
        return [MultipleOf(schema[keyword])]

    def _condition(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        condition, then, otherwise = (
            self._node(schema.get(name, True), (*path, name)) for name in ("if", "then", "else")
        )
        return [Conditional(condition, then, otherwise)]

    def _branch(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if "if" not in schema:  # then it says nothing, but a reference may lead there
            self._node(schema[keyword], (*path, keyword))
        return []

    def _values(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        values = [schema[keyword]] if keyword == "const" else schema[keyword]
        if type(values) is not list:
            self._invalid(keyword, path, "not a list")
        return [OneOfValues(keyword, values)]

    def _limits(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        bound = schema[keyword]
        if type(bound) is bool and not self._dialect and keyword.startswith("exclusive"):  # as draft-04 wrote it
            if not bound or keyword.removeprefix("exclusive").lower() not in schema:
                return []
            bound = schema[keyword.removeprefix("exclusive").lower()]
        if type(bound) not in TYPES["number"]:
            self._invalid(keyword, path, "not a number")
        if keyword.endswith(("Length", "Items", "Properties")):
            bound = self._count(keyword, bound, path)
        return [Limits(keyword, bound)]

    def _count(self, keyword: str, bound: Any, path: _Path) -> int:
        if type(bound) not in TYPES["number"] or bound < 0 or bound != int(bound):
            self._invalid(keyword, path, "not a count")
        return int(bound)

    def _pattern(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        return [Matches(self._found_in(keyword, schema[keyword], path))]

    def _found_in(self, keyword: str, pattern: Any, path: _Path) -> Callable[[str, list[int]], bool]:
        try:
            return Pattern(pattern).found_in
        except PatternError as error:
            self._unsupported(keyword, path, error.reason)

    def _combined(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if keyword == "not":
            return [Combined(keyword, [self._node(schema[keyword], (*path, keyword))])]
        return [Combined(keyword, self._listed(keyword, schema, path))]

    def _enter(self, name: Any, schema: dict[str, Any], path: _Path) -> None:
        """Note the `$id` of a place: an address of its own, or in draft-07 also an anchor."""
        if type(name) is not str:
            self._invalid("$id", path, "not a string")
        if self._dialect == "draft-07" and "$ref" in schema:
            self._unsupported("$ref", path, "draft-07 ignores what stands beside a reference")
        address, _, anchor = name.partition("#")
        if anchor:
            if self._dialect == "2020-12" or not _ANCHOR.fullmatch(anchor):
                self._unsupported("$id", path, "has a fragment")
            self._put_anchor("$id", anchor, path)
        if address:
            self._resource = self._joined("$id", address, path)
            if self._resources.setdefault(self._resource, path) != path:
                self._invalid("$id", path, "names two places")
            if not path:
                self._resources[""] = ()

    def _anchor(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if type(schema[keyword]) is not str or not _ANCHOR.fullmatch(schema[keyword]):
            self._invalid(keyword, path, "not a name")
        self._put_anchor(keyword, schema[keyword], path)
        return []

    def _put_anchor(self, keyword: str, name: str, path: _Path) -> None:
        if self._anchors.setdefault((self._resource, name), path) != path:
            self._invalid(keyword, path, "names two places")

    def _joined(self, keyword: str, address: str, path: _Path) -> str:
        """An address as seen from the one around it; only whole ones and names of neighbours are taken."""
        if _WHOLE_ADDRESS.match(address):
            return address
        if address.startswith(("/", ".", "?")) or "/." in address:
            self._unsupported(keyword, path, "a relative address that is not read here")
        return self._resource[: self._resource.rfind("/") + 1] + address

    def _reference(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        reference = schema[keyword]
        if type(reference) is not str:
            self._invalid(keyword, path, "not a string")
        if self._dialect == "draft-07" and not set(schema) - {"$ref"} <= IGNORED_KEYWORDS | {"definitions", "$defs"}:
            self._unsupported(keyword, path, "draft-07 ignores what stands beside a reference")
        address, _, fragment = reference.partition("#")
        rule = Reference(path, (self._joined(keyword, address, path) if address else self._resource, fragment))
        self._references.append(rule)
        return [rule]

    def _target(self, reference: Reference) -> Node:
        """The node that a reference leads to, once all places are known."""
        resource, fragment = reference.place
        if resource not in self._resources:
            self._unsupported("$ref", reference.holder, "points outside this schema")
        pointer = _percent_decoded(fragment)
        if pointer is None or re.search("~(?![01])", pointer):
            self._unsupported("$ref", reference.holder, "neither a JSON pointer nor an anchor")
        if pointer and not pointer.startswith("/"):
            place = self._anchors.get((resource, pointer))
        else:
            tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
            place = (*self._resources[resource], *tokens)
        if place not in self._nodes:
            self._unsupported("$ref", reference.holder, "points to no subschema of this schema")
        return self._nodes[place]

    def _listed(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Node]:
        if type(schema[keyword]) is not list or not schema[keyword]:
            self._invalid(keyword, path, "not a list of schemas")
        return [self._node(inner, (*path, keyword, str(place))) for place, inner in enumerate(schema[keyword])]

    def _named(self, keyword: str, schema: dict[str, Any], path: _Path) -> dict[str, Node]:
        if type(schema[keyword]) is not dict:
            self._invalid(keyword, path, "not an object of schemas")
        return {name: self._node(inner, (*path, keyword, name)) for name, inner in schema[keyword].items()}

    def _texts(self, keyword: str, value: Any, path: _Path) -> list[str]:
        if type(value) is not list or not set(map(type, value)) <= {str} or len(set(value)) < len(value):
            self._invalid(keyword, path, "not a list of different strings")
        return list(value)

    def _refuse_circles(self) -> None:
        """Refuse a subschema that leads to itself without going into the value, such as `{"$ref": "#"}`."""
        order = graphlib.TopologicalSorter(
            {
                node.path: [inner.path for rule in node.rules for inner in rule.in_place()]
                for node in self._nodes.values()
            }
        )
        try:
            order.prepare()
        except graphlib.CycleError as error:
            circle = set(error.args[1])
            path = min(rule.holder for rule in self._references if rule.holder in circle)
            self._unsupported("$ref", path, "leads back to itself without going into the value")

    def _unsupported(self, keyword: str, path: _Path, reason: str) -> NoReturn:
        raise SchemaError("unsupported_keyword", keyword, pointer(path), reason)

    def _invalid(self, keyword: str, path: _Path, reason: str) -> NoReturn:
        raise SchemaError("invalid_schema", keyword, pointer(path), reason)


_BUILD: Final[dict[str, Callable[[_Compiler, str, dict[str, Any], _Path], list[Rule]]]] = {
    "type": _Compiler._type,
    "required": _Compiler._required,
    "properties": _Compiler._properties,
    "additionalProperties": _Compiler._additional,
    "items": _Compiler._items,
    "enum": _Compiler._values,
    "const": _Compiler._values,
    "pattern": _Compiler._pattern,
    "$ref": _Compiler._reference,
    "$anchor": _Compiler._anchor,
    "patternProperties": _Compiler._by_pattern,
    "propertyNames": _Compiler._names,
    "prefixItems": _Compiler._prefix,
    "additionalItems": _Compiler._more_items,
    "contains": _Compiler._contains,
    "uniqueItems": _Compiler._unique,
    "multipleOf": _Compiler._multiple,
    "if": _Compiler._condition,
    **dict.fromkeys(("then", "else"), _Compiler._branch),
    **dict.fromkeys(("minContains", "maxContains"), _Compiler._contained),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), _Compiler._dependent),
    **dict.fromkeys(("$defs", "definitions"), _Compiler._definitions),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "not"), _Compiler._combined),
    **dict.fromkeys(LIMITS, _Compiler._limits),
}
CHECKED_KEYWORDS: Final = frozenset(_BUILD) | {"$id"}

_ANCHOR: Final = re.compile("[A-Za-z_][-A-Za-z0-9._]*")
_WHOLE_ADDRESS: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


def _percent_decoded(text: str) -> str | None:
    """`%22` as a quotation mark, in UTF-8; None when that is not what the text is."""
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        return None
    parts = re.split("((?:%[0-9A-Fa-f]{2})+)", text)
    try:
        return "".join(
            bytes.fromhex(part.replace("%", "")).decode("utf-8") if part.startswith("%") else part for part in parts
        )
    except UnicodeDecodeError:
        return None
