"""Arguments are checked before anything runs: strict JSON in, and the part of JSON Schema that tools use.

A schema is compiled once, when its tool is registered, and only what is compiled is promised:

S1  What is not checked is refused. A keyword outside the table below is a `SchemaError` with its name and
    its place, never something silently ignored; nothing is ever fetched.
S2  Types are those of JSON, not those of Python: true is no integer and not equal to 1, 3.0 is an integer,
    NaN and the infinities do not exist, a tuple is no array.
S3  A value is never changed: no default is filled in, nothing is converted, nothing is repaired.
S4  Every check ends: size, depth, steps and the number of violations have a bound, recursive references
    and patterns included. Past a bound a value is invalid, with the keyword `limit`.
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
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from chapter10.canonical import CanonicalError, CodedError, canonical
from chapter10.companions.pattern import MAX_PATTERN_WORK, Pattern, PatternError, PatternLimit

__all__ = [
    "CHECKED_KEYWORDS",
    "DIALECTS",
    "IGNORED_KEYWORDS",
    "MAX_JSON_DEPTH",
    "MAX_JSON_SIZE",
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

MAX_JSON_DEPTH: Final = 64
"""Levels of arrays and objects in a value that is read or checked."""
MAX_JSON_SIZE: Final = 1_000_000
"""Characters of a JSON text; for a value, the characters of its strings and keys plus one for each item."""
MAX_INTEGER_BITS: Final = 1024
"""Integers beyond the range of a double are refused, as their floats are."""
MAX_SCHEMA_SIZE: Final = 256 * 1024
"""Characters of the canonical form of a schema. The largest of 644 real ones has 7,356 bytes."""
MAX_STEPS: Final = 100_000
"""Subschemas applied in one validation."""
MAX_NESTED: Final = 150
"""Subschemas applied inside one another."""
MAX_VIOLATIONS: Final = 20
"""Violations that one validation reports."""
MAX_SHOWN_KEY: Final = 80
"""Characters of one key in a path."""

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "http://json-schema.org/draft-07/schema": "draft-07",
}
IGNORED_KEYWORDS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "format"}
)


class JsonError(CodedError, ValueError):
    """Raised when a text or a value is not the JSON that is accepted here; nothing of it is in the error.

    `json_cut_off`: the text ends before the value does (also: an empty text). `json_syntax`: it is wrong.
    `json_duplicate_key`, `json_number` (NaN, an infinity, too large), `json_surrogate` (half a character),
    `json_type` (a type or a key that JSON does not have), `json_too_deep`, `json_too_long`.
    `path` is a JSON pointer to the place, where there is one.
    """

    path: str

    def __init__(self, code: str, path: str = "") -> None:
        super().__init__(code)
        self.path = path


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


Path = tuple[str | int, ...]


def strict_json(text: str) -> Any:
    """Return the value of a JSON text, every rule of JSON kept. Raises `JsonError`.

    A text that ends too early is `json_cut_off` and never repaired: half a call is not a call.
    """
    if type(text) is not str:
        raise JsonError("json_type")
    if len(text) > MAX_JSON_SIZE:
        raise JsonError("json_too_long")
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        raise JsonError("json_cut_off" if _is_cut_off(text, error) else "json_syntax") from None
    except RecursionError:
        raise JsonError("json_too_deep") from None
    except JsonError:
        raise
    except ValueError:  # an integer of more digits than Python reads
        raise JsonError("json_number") from None
    return copy_json(value)


def copy_json(value: object) -> Any:
    """Return a deep copy of a JSON value. Raises `JsonError` for what is none, with the path to it."""
    return _copy(value, (), [MAX_JSON_SIZE])


def _copy(value: Any, path: Path, left: list[int]) -> Any:
    left[0] -= 1
    kind = type(value)
    if kind is str:
        _check_text(value, path, left)
        return value
    if value is None or kind is bool:
        return value
    if kind is int or kind is float:
        if not math.isfinite(value) if kind is float else value.bit_length() > MAX_INTEGER_BITS:
            raise JsonError("json_number", _pointer(path))
        return value
    if kind is not dict and kind is not list:
        raise JsonError("json_type", _pointer(path))
    if len(path) >= MAX_JSON_DEPTH:
        raise JsonError("json_too_deep", _pointer(path))
    if left[0] < len(value):
        raise JsonError("json_too_long", _pointer(path))
    if kind is list:
        return [_copy(item, (*path, place), left) for place, item in enumerate(value)]
    copied = {}
    for key, item in value.items():
        if type(key) is not str:
            raise JsonError("json_type", _pointer(path))
        _check_text(key, path, left)
        copied[key] = _copy(item, (*path, key), left)
    return copied


def _check_text(text: str, path: Path, left: list[int]) -> None:
    left[0] -= len(text)
    if left[0] < 0:
        raise JsonError("json_too_long", _pointer(path))
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise JsonError("json_surrogate", _pointer(path)) from None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise JsonError("json_duplicate_key")
    return read


def _refuse_number(_: str) -> NoReturn:
    raise JsonError("json_number")


_decode: Final = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_number).decode

_BEGUN: Final = re.compile(r"[ \t\n\r]*(?:t|tr|tru|f|fa|fal|fals|n|nu|nul|-|\.|[eE][+-]?|\.[0-9]+[eE][+-]?)?\Z")
"""What may follow the last thing that was understood, if more text would have made it right."""


def _is_cut_off(text: str, error: json.JSONDecodeError) -> bool:
    if error.msg.startswith("Unterminated string"):
        return True
    if error.msg.startswith("Invalid \\"):  # an escape; the position is at its backslash, or just behind it
        return text[error.pos - 1 :].lstrip("\\")[:1] in ("", "u") and len(text) - error.pos < 6
    return _BEGUN.match(text, error.pos) is not None


class _Limit(Exception):
    """Ends one validation whose steps or depth are used up."""


class _Run:
    """What one validation has used up and found so far."""

    __slots__ = ("depth", "found", "pattern_work", "steps")

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.depth = MAX_NESTED
        self.pattern_work = [MAX_PATTERN_WORK]  # shared by all texts of the value
        self.found: list[Violation] = []

    def report(self, path: Path, keyword: str, reason: str) -> None:
        if len(self.found) < MAX_VIOLATIONS:
            self.found.append(Violation(_pointer(path), keyword, reason))


class _Rule:
    """One keyword of one schema. `accepts` decides; `explain` reports, when it did not accept."""

    __slots__ = ()
    keyword = ""

    def accepts(self, value: Any, run: _Run) -> bool:
        raise NotImplementedError

    def reason(self) -> str:
        raise NotImplementedError

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        run.report(path, self.keyword, self.reason())

    def in_place(self) -> Iterator[_Node]:
        """The subschemas that see the same value again; a circle of them would never end."""
        return iter(())


class _Node:
    """A subschema: its rules, and the place where it stands."""

    __slots__ = ("path", "rules")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rules: tuple[_Rule, ...] = ()

    def accepts(self, value: Any, run: _Run) -> bool:
        run.steps -= 1
        run.depth -= 1
        if run.steps < 0 or run.depth < 0:
            raise _Limit
        for rule in self.rules:
            if not rule.accepts(value, run):
                run.depth += 1
                return False
        run.depth += 1
        return True

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        for rule in self.rules:
            if len(run.found) >= MAX_VIOLATIONS:
                return
            if not rule.accepts(value, run):
                rule.explain(value, path, run)


class Validator:
    """A compiled schema; made by `compile_schema`. It never changes and may be used by many threads."""

    __slots__ = ("_root",)

    def __init__(self, root: _Node) -> None:
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
        run = _Run()
        try:
            if not self._root.accepts(copied, run):
                run = _Run()
                self._root.explain(copied, (), run)
        except (_Limit, RecursionError):
            run.report((), "limit", f"not decided within {MAX_STEPS} steps and {MAX_NESTED} levels")
        return copied, run.found


_JSON_REASONS: Final = {
    "json_number": ("json", "is not a number of JSON"),
    "json_surrogate": ("json", "holds half a character"),
    "json_type": ("json", "is not a value of JSON, or has a key that is no string"),
    "json_too_deep": ("limit", f"has more than {MAX_JSON_DEPTH} levels"),
    "json_too_long": ("limit", f"is larger than {MAX_JSON_SIZE} characters"),
}


class _Never(_Rule):
    __slots__ = ()
    keyword = "false"

    def accepts(self, value: Any, run: _Run) -> bool:
        return False

    def reason(self) -> str:
        return "is not allowed here"


_PYTHON_TYPES: Final[dict[str, frozenset[type]]] = {
    "null": frozenset({type(None)}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "string": frozenset({str}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}


class _Type(_Rule):
    __slots__ = ("_names", "_types", "_whole_floats")
    keyword = "type"

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._types = frozenset().union(*(_PYTHON_TYPES[name] for name in names))
        self._whole_floats = "integer" in names

    def accepts(self, value: Any, run: _Run) -> bool:
        kind = type(value)
        return kind in self._types or (self._whole_floats and kind is float and value.is_integer())

    def reason(self) -> str:
        return "is not of type " + " or ".join(self._names)


class _Required(_Rule):
    __slots__ = ("_names",)
    keyword = "required"

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def accepts(self, value: Any, run: _Run) -> bool:
        if type(value) is dict:
            for name in self._names:
                if name not in value:
                    return False
        return True

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        for name in self._names:
            if name not in value:
                run.report((*path, name), self.keyword, "is missing")


class _Properties(_Rule):
    __slots__ = ("_nodes",)
    keyword = "properties"

    def __init__(self, nodes: dict[str, _Node]) -> None:
        self._nodes = nodes

    def accepts(self, value: Any, run: _Run) -> bool:
        if type(value) is dict:
            nodes = self._nodes
            for key, item in value.items():
                node = nodes.get(key)
                if node is not None and not node.accepts(item, run):
                    return False
        return True

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        for key, node in self._nodes.items():
            if key in value:
                node.explain(value[key], (*path, key), run)


class _Additional(_Rule):
    __slots__ = ("_known", "_node")
    keyword = "additionalProperties"

    def __init__(self, known: frozenset[str], node: _Node) -> None:
        self._known = known
        self._node = node

    def accepts(self, value: Any, run: _Run) -> bool:
        if type(value) is dict and not value.keys() <= self._known:
            for key, item in value.items():
                if key not in self._known and not self._node.accepts(item, run):
                    return False
        return True

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        for key in value:
            if key in self._known:
                continue
            if any(isinstance(rule, _Never) for rule in self._node.rules):
                run.report((*path, key), self.keyword, "is not a property of this tool or object")
            else:
                self._node.explain(value[key], (*path, key), run)


class _Items(_Rule):
    __slots__ = ("_node",)
    keyword = "items"

    def __init__(self, node: _Node) -> None:
        self._node = node

    def accepts(self, value: Any, run: _Run) -> bool:
        return type(value) is not list or all(self._node.accepts(item, run) for item in value)

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        for place, item in enumerate(value):
            if len(run.found) >= MAX_VIOLATIONS:
                return
            self._node.explain(item, (*path, place), run)


class _OneOfValues(_Rule):
    """`enum`, and `const` as an `enum` of one: equal as JSON values, not as Python values."""

    __slots__ = ("_containers", "_values", "keyword")

    def __init__(self, keyword: str, values: list[Any]) -> None:
        self.keyword = keyword
        self._values = frozenset(_comparable(value, _Run()) for value in values)
        self._containers = any(type(value) in (list, dict) for value in values)

    def accepts(self, value: Any, run: _Run) -> bool:
        if type(value) in (list, dict) and not self._containers:
            return False
        return _comparable(value, run) in self._values

    def reason(self) -> str:
        return "is not one of the listed values" if self.keyword == "enum" else "is not the one allowed value"


class _Limits(_Rule):
    """One bound on a number, or on the length of a text or an array."""

    __slots__ = ("_bound", "_fits", "_types", "_words", "keyword")

    def __init__(self, keyword: str, bound: int | float) -> None:
        self.keyword = keyword
        self._bound = bound
        self._types, self._fits, self._words = _LIMITS[keyword]

    def accepts(self, value: Any, run: _Run) -> bool:
        return type(value) not in self._types or self._fits(value, self._bound)

    def reason(self) -> str:
        return f"{self._words} {self._bound}"


_NUMBERS: Final = _PYTHON_TYPES["number"]
_STRINGS: Final = _PYTHON_TYPES["string"]
_ARRAYS: Final = _PYTHON_TYPES["array"]
_LIMITS: Final[dict[str, tuple[frozenset[type], Callable[[Any, Any], bool], str]]] = {
    "minimum": (_NUMBERS, lambda value, bound: value >= bound, "is less than"),
    "maximum": (_NUMBERS, lambda value, bound: value <= bound, "is more than"),
    "exclusiveMinimum": (_NUMBERS, lambda value, bound: value > bound, "is not more than"),
    "exclusiveMaximum": (_NUMBERS, lambda value, bound: value < bound, "is not less than"),
    "minLength": (_STRINGS, lambda value, bound: len(value) >= bound, "has fewer characters than"),
    "maxLength": (_STRINGS, lambda value, bound: len(value) <= bound, "has more characters than"),
    "minItems": (_ARRAYS, lambda value, bound: len(value) >= bound, "has fewer items than"),
    "maxItems": (_ARRAYS, lambda value, bound: len(value) <= bound, "has more items than"),
}


class _Matches(_Rule):
    __slots__ = ("_pattern",)
    keyword = "pattern"

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern

    def accepts(self, value: Any, run: _Run) -> bool:
        try:
            return type(value) is not str or self._pattern.found_in(value, run.pattern_work)
        except PatternLimit:
            raise _Limit from None

    def reason(self) -> str:
        return "does not match the pattern"


class _Combined(_Rule):
    """`allOf`, `anyOf`, `oneOf`, `not`: how many of the subschemas must accept the same value."""

    __slots__ = ("_least", "_most", "_nodes", "keyword")

    def __init__(self, keyword: str, nodes: list[_Node]) -> None:
        self.keyword = keyword
        self._nodes = nodes
        self._least, self._most = {
            "allOf": (len(nodes), len(nodes)),
            "anyOf": (1, len(nodes)),
            "oneOf": (1, 1),
            "not": (0, 0),
        }[keyword]

    def accepts(self, value: Any, run: _Run) -> bool:
        accepted = 0
        for tried, node in enumerate(self._nodes, 1):
            if node.accepts(value, run):
                accepted += 1
            if accepted > self._most or accepted + len(self._nodes) - tried < self._least:
                return False
            if accepted >= self._least and self._most == len(self._nodes):
                return True
        return True

    def reason(self) -> str:
        return {
            "anyOf": "fits none of the alternatives",
            "oneOf": "fits none, or more than one, of the alternatives",
            "not": "is what the schema excludes",
        }[self.keyword]

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        if self.keyword == "allOf":
            for node in self._nodes:
                node.explain(value, path, run)
        else:
            run.report(path, self.keyword, self.reason())

    def in_place(self) -> Iterator[_Node]:
        return iter(self._nodes)


class _Reference(_Rule):
    __slots__ = ("holder", "node", "target")
    keyword = "$ref"

    def __init__(self, holder: Path, target: Path) -> None:
        self.holder = holder
        self.target = target
        self.node = _Node(target)  # replaced when all places are known

    def accepts(self, value: Any, run: _Run) -> bool:
        return self.node.accepts(value, run)

    def explain(self, value: Any, path: Path, run: _Run) -> None:
        self.node.explain(value, path, run)

    def in_place(self) -> Iterator[_Node]:
        yield self.node


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
    except (_Limit, RecursionError):
        raise SchemaError("invalid_schema", "", "", "too large or too deep to compile") from None


class _Compiler:
    """Walks a schema once, makes a node for each place, then joins the references to the places."""

    def __init__(self) -> None:
        self._nodes: dict[Path, _Node] = {}
        self._references: list[_Reference] = []
        self._dialect = "2020-12"

    def compile(self, schema: Any) -> _Node:
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

    def _node(self, schema: Any, path: Path) -> _Node:
        node = self._nodes[path] = _Node(path)
        if schema is False:
            node.rules = (_Never(),)
        elif type(schema) is dict:
            node.rules = tuple(rule for keyword in schema for rule in self._rules(keyword, schema, path))
        elif schema is not True:
            self._invalid("", path, "neither an object nor true nor false")
        return node

    def _rules(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        if keyword in IGNORED_KEYWORDS or keyword.startswith("x-"):
            return []
        build = _BUILD.get(keyword)
        if build is None:
            self._unsupported(keyword, path, "not checked here")
        return build(self, keyword, schema, path)

    def _type(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        names = schema[keyword]
        names = [names] if type(names) is str else self._texts(keyword, names, path)
        if not names or not set(names) <= set(_PYTHON_TYPES):
            self._invalid(keyword, path, "not a type of JSON")
        return [_Type(names)]

    def _required(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        names = self._texts(keyword, schema[keyword], path)
        return [_Required(names)] if names else []

    def _properties(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        return [_Properties(self._named(keyword, schema, path))]

    def _definitions(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        self._named(keyword, schema, path)
        return []

    def _additional(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        known = schema.get("properties", {})
        known = frozenset(known) if type(known) is dict else frozenset()  # the other keyword is refused by itself
        return [_Additional(known, self._node(schema[keyword], (*path, keyword)))]

    def _items(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        if type(schema[keyword]) is list:
            self._unsupported(keyword, path, "a list of schemas is not checked here")
        return [_Items(self._node(schema[keyword], (*path, keyword)))]

    def _values(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        values = [schema[keyword]] if keyword == "const" else schema[keyword]
        if type(values) is not list:
            self._invalid(keyword, path, "not a list")
        return [_OneOfValues(keyword, values)]

    def _limits(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        bound = schema[keyword]
        if type(bound) not in _NUMBERS:
            self._invalid(keyword, path, "not a number")
        if keyword.endswith(("Length", "Items")):
            if bound < 0 or bound != int(bound):
                self._invalid(keyword, path, "not a count")
            bound = int(bound)
        return [_Limits(keyword, bound)]

    def _pattern(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        try:
            return [_Matches(Pattern(schema[keyword]))]
        except PatternError as error:
            self._unsupported(keyword, path, error.reason)

    def _combined(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
        if keyword == "not":
            return [_Combined(keyword, [self._node(schema[keyword], (*path, keyword))])]
        if type(schema[keyword]) is not list or not schema[keyword]:
            self._invalid(keyword, path, "not a list of schemas")
        nodes = [self._node(inner, (*path, keyword, str(place))) for place, inner in enumerate(schema[keyword])]
        return [_Combined(keyword, nodes)]

    def _reference(self, keyword: str, schema: dict[str, Any], path: Path) -> list[_Rule]:
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
        rule = _Reference(path, tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens))
        self._references.append(rule)
        return [rule]

    def _named(self, keyword: str, schema: dict[str, Any], path: Path) -> dict[str, _Node]:
        if type(schema[keyword]) is not dict:
            self._invalid(keyword, path, "not an object of schemas")
        return {name: self._node(inner, (*path, keyword, name)) for name, inner in schema[keyword].items()}

    def _texts(self, keyword: str, value: Any, path: Path) -> list[str]:
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

    def _unsupported(self, keyword: str, path: Path, reason: str) -> NoReturn:
        raise SchemaError("unsupported_keyword", keyword, _pointer(path), reason)

    def _invalid(self, keyword: str, path: Path, reason: str) -> NoReturn:
        raise SchemaError("invalid_schema", keyword, _pointer(path), reason)


_BUILD: Final[dict[str, Callable[[_Compiler, str, dict[str, Any], Path], list[_Rule]]]] = {
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
    **dict.fromkeys(_LIMITS, _Compiler._limits),
}

CHECKED_KEYWORDS: Final = frozenset(_BUILD)


def _comparable(value: Any, run: _Run) -> Any:
    """A form of a JSON value that is equal and hashed as JSON sees it: true is not 1, but 1 is 1.0."""
    kind = type(value)
    if kind is bool:
        return "bool", value
    if kind is list or kind is dict:
        run.steps -= len(value)
        if run.steps < 0:
            raise _Limit
    if kind is list:
        return "list", tuple(_comparable(item, run) for item in value)
    if kind is dict:
        return "dict", frozenset((key, _comparable(item, run)) for key, item in value.items())
    return value


def _pointer(path: Path) -> str:
    """The JSON pointer of a path; each key in it at most `MAX_SHOWN_KEY` characters."""
    return "".join("/" + _shown(step).replace("~", "~0").replace("/", "~1") for step in path)


def _shown(step: str | int) -> str:
    text = str(step)
    text = text if len(text) <= MAX_SHOWN_KEY else text[:MAX_SHOWN_KEY] + "..."
    return text.encode("utf-8", "replace").decode("utf-8")


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
