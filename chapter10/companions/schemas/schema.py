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

    checked   type properties required additionalProperties items enum const anyOf oneOf allOf not
              minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems
              pattern $ref (a JSON pointer into the same schema, recursive ones too) true false
    kept for  title description default examples deprecated readOnly writeOnly $comment format x-*
    readers   $defs definitions $schema (2020-12 or draft-07; at the root)
    refused   all others: if, patternProperties, prefixItems, uniqueItems, $id, $anchor, $dynamicRef, ...

Lengths are counted in Unicode code points, as the standard says. In draft-07 a `$ref` hides what stands
beside it, in 2020-12 it does not; so a draft-07 schema that has both is refused. How `pattern` is matched
stands in `pattern`. The arguments of a model arrive as text: `strict_json` reads them, and tells text that
was cut off from text that is wrong.

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
    Items,
    LimitReached,
    Limits,
    Matches,
    Never,
    Node,
    OneOfValues,
    Properties,
    Reference,
    Required,
    Rule,
    Run,
    Type,
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
IGNORED_KEYWORDS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "format"}
)


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
        self._dialect = "2020-12"

    def compile(self, schema: Any) -> Node:
        if type(schema) is dict and "$schema" in schema:
            named = schema.pop("$schema")
            dialect = DIALECTS.get(named.removesuffix("#")) if type(named) is str else None
            if dialect is None:
                raise SchemaError("unsupported_keyword", "$schema", "", "neither 2020-12 nor draft-07")
            self._dialect = dialect
        root = self._node(schema, ())
        for reference in self._references:
            target = self._nodes.get(reference.target)
            if target is None:
                self._unsupported("$ref", reference.holder, "points to no subschema of this schema")
            reference.node = target
        self._refuse_circles()
        return root

    def _node(self, schema: Any, path: _Path) -> Node:
        node = self._nodes[path] = Node(path)
        if schema is False:
            node.rules = (Never(),)
        elif type(schema) is dict:
            node.rules = tuple(rule for keyword in schema for rule in self._rules(keyword, schema, path))
        elif schema is not True:
            self._invalid("", path, "neither an object nor true nor false")
        return node

    def _rules(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if keyword in IGNORED_KEYWORDS or keyword.startswith("x-"):
            return []
        build = _BUILD.get(keyword)
        if build is None:
            self._unsupported(keyword, path, "not checked here")
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
        known = schema.get("properties", {})
        known = frozenset(known) if type(known) is dict else frozenset()  # the other keyword is refused by itself
        return [Additional(known, self._node(schema[keyword], (*path, keyword)))]

    def _items(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if type(schema[keyword]) is list:
            self._unsupported(keyword, path, "a list of schemas is not checked here")
        return [Items(self._node(schema[keyword], (*path, keyword)))]

    def _values(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        values = [schema[keyword]] if keyword == "const" else schema[keyword]
        if type(values) is not list:
            self._invalid(keyword, path, "not a list")
        return [OneOfValues(keyword, values)]

    def _limits(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        bound = schema[keyword]
        if type(bound) not in TYPES["number"]:
            self._invalid(keyword, path, "not a number")
        if keyword.endswith(("Length", "Items")):
            if bound < 0 or bound != int(bound):
                self._invalid(keyword, path, "not a count")
            bound = int(bound)
        return [Limits(keyword, bound)]

    def _pattern(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        try:
            return [Matches(Pattern(schema[keyword]).found_in)]
        except PatternError as error:
            self._unsupported(keyword, path, error.reason)

    def _combined(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        if keyword == "not":
            return [Combined(keyword, [self._node(schema[keyword], (*path, keyword))])]
        if type(schema[keyword]) is not list or not schema[keyword]:
            self._invalid(keyword, path, "not a list of schemas")
        nodes = [self._node(inner, (*path, keyword, str(place))) for place, inner in enumerate(schema[keyword])]
        return [Combined(keyword, nodes)]

    def _reference(self, keyword: str, schema: dict[str, Any], path: _Path) -> list[Rule]:
        reference = schema[keyword]
        if type(reference) is not str:
            self._invalid(keyword, path, "not a string")
        if self._dialect == "draft-07" and not set(schema) - {"$ref"} <= IGNORED_KEYWORDS | {"definitions", "$defs"}:
            self._unsupported(keyword, path, "draft-07 ignores what stands beside a reference")
        if not reference.startswith("#"):
            self._unsupported(keyword, path, "points outside this schema")
        pointer = _percent_decoded(reference[1:])
        if pointer is None or (pointer and not pointer.startswith("/")) or re.search("~(?![01])", pointer):
            self._unsupported(keyword, path, "not a JSON pointer")
        tokens = pointer.split("/")[1:]
        rule = Reference(path, tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens))
        self._references.append(rule)
        return [rule]

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
    **dict.fromkeys(("$defs", "definitions"), _Compiler._definitions),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "not"), _Compiler._combined),
    **dict.fromkeys(LIMITS, _Compiler._limits),
}

CHECKED_KEYWORDS: Final = frozenset(_BUILD)


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
