"""What each keyword of JSON Schema says of a value: one small class a keyword, put together by `schema`.

A rule answers twice. `accepts` only decides, which is all that a valid value needs and all that `anyOf` and
`not` ask; `explain` is called after a refusal and reports where and why. Values are plain JSON (`copy_json` has
been over them), so that `type(value)` is enough to know their type: a `bool` is no `int` here.

A rule that goes on into a value or a subschema uses up steps and depth of its `Run`, so every check ends.

Source: JSON Schema 2020-12, its keywords for validation, for the subset that `schema` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

__all__ = [
    "LIMITS",
    "MAX_NESTED",
    "MAX_STEPS",
    "MAX_VIOLATIONS",
    "NAMES_A_STEP",
    "TYPES",
    "Additional",
    "Combined",
    "Conditional",
    "Contains",
    "Dependent",
    "Items",
    "LimitReached",
    "Limits",
    "Matches",
    "Never",
    "MultipleOf",
    "Names",
    "Node",
    "OneOfValues",
    "PatternProperties",
    "Prefix",
    "Properties",
    "Reference",
    "Required",
    "Rule",
    "Run",
    "Type",
    "Unique",
]

MAX_STEPS: Final = 100_000
"""Subschemas applied in one validation."""
NAMES_A_STEP: Final = 32
"""So many names that are looked up cost as much as one subschema that is applied."""
MAX_NESTED: Final = 150
"""Subschemas applied inside one another."""
MAX_VIOLATIONS: Final = 20
"""Violations that one validation reports."""

_Path = tuple[str | int, ...]


class LimitReached(Exception):
    """Ends one validation whose steps or depth are used up."""


class Run:
    """What one validation has used up and found so far."""

    __slots__ = ("depth", "found", "nearest", "pattern_work", "steps", "trying")

    def __init__(self, pattern_work: int = 0) -> None:
        self.nearest = True  # alternatives are explained, as long as there are steps for it
        self.trying = False  # inside such an explanation
        self.steps = MAX_STEPS
        self.depth = MAX_NESTED
        self.pattern_work = [pattern_work]  # shared by all texts of the value
        self.found: list[tuple[_Path, str, str]] = []

    def spend(self, steps: int) -> None:
        """Use up steps that no subschema counts. Raises `LimitReached`."""
        self.steps -= steps
        if self.steps < 0:
            raise LimitReached

    def report(self, path: _Path, keyword: str, reason: str) -> None:
        """Note a violation, if there is room for one more."""
        if len(self.found) < MAX_VIOLATIONS:
            self.found.append((path, keyword, reason))


class Rule:
    """One keyword of one schema. `accepts` decides; `explain` reports, when it did not accept."""

    __slots__ = ()
    keyword = ""

    def accepts(self, value: Any, run: Run) -> bool:
        """Say whether `value` keeps this rule. Raises `LimitReached`."""
        raise NotImplementedError

    def reason(self) -> str:
        """Return the words of a violation, made of the schema alone."""
        raise NotImplementedError

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        """Report why `value`, which stands at `path`, does not keep this rule."""
        run.report(path, self.keyword, self.reason())

    def in_place(self) -> Iterator[Node]:
        """The subschemas that see the same value again; a circle of them would never end."""
        return iter(())


class Node:
    """A subschema: its rules, and the place where it stands."""

    __slots__ = ("path", "rules")

    def __init__(self, path: _Path) -> None:
        self.path = path
        self.rules: tuple[Rule, ...] = ()

    def accepts(self, value: Any, run: Run) -> bool:
        """Say whether `value` keeps all rules. Raises `LimitReached`."""
        run.steps -= 1
        run.depth -= 1
        if run.steps < 0 or run.depth < 0:
            raise LimitReached
        for rule in self.rules:
            if not rule.accepts(value, run):
                run.depth += 1
                return False
        run.depth += 1
        return True

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        """Report which rules `value`, which stands at `path`, does not keep."""
        for rule in self.rules:
            if len(run.found) >= MAX_VIOLATIONS:
                return
            if not rule.accepts(value, run):
                rule.explain(value, path, run)


class Never(Rule):
    """The schema `false`: nothing is allowed here."""

    __slots__ = ()
    keyword = "false"

    def accepts(self, value: Any, run: Run) -> bool:
        return False

    def reason(self) -> str:
        return "is not allowed here"


TYPES: Final[dict[str, frozenset[type]]] = {
    "null": frozenset({type(None)}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "string": frozenset({str}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}


class Type(Rule):
    """`type`: one name or several; a float without a fraction is an integer too."""

    __slots__ = ("_names", "_types", "_whole_floats")
    keyword = "type"

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._types = frozenset().union(*(TYPES[name] for name in names))
        self._whole_floats = "integer" in names

    def accepts(self, value: Any, run: Run) -> bool:
        kind = type(value)
        return kind in self._types or (self._whole_floats and kind is float and value.is_integer())

    def reason(self) -> str:
        return "is not of type " + " or ".join(self._names)


class Required(Rule):
    """`required`: the names that an object must have."""

    __slots__ = ("_names",)
    keyword = "required"

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) is dict:
            run.steps -= len(self._names) // NAMES_A_STEP
            for name in self._names:
                if name not in value:
                    return False
        return True

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for name in self._names:
            if name not in value:
                run.report((*path, name), self.keyword, "is missing")


class Properties(Rule):
    """`properties`: a subschema for each name that an object may have."""

    __slots__ = ("_nodes",)
    keyword = "properties"

    def __init__(self, nodes: dict[str, Node]) -> None:
        self._nodes = nodes

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) is dict:
            run.steps -= len(value) // NAMES_A_STEP
            nodes = self._nodes
            for key, item in value.items():
                node = nodes.get(key)
                if node is not None and not node.accepts(item, run):
                    return False
        return True

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for key, node in self._nodes.items():
            if key in value:
                node.explain(value[key], (*path, key), run)


class PatternProperties(Rule):
    """`patternProperties`: a subschema for each name in which a pattern is found; a name may have several."""

    __slots__ = ("_nodes",)
    keyword = "patternProperties"

    def __init__(self, nodes: list[tuple[Callable[[str, list[int]], bool], Node]]) -> None:
        self._nodes = nodes

    def _applied(self, value: dict[str, Any], run: Run) -> Iterator[tuple[str, Node]]:
        for key in value:
            run.spend(len(self._nodes))
            for found_in, node in self._nodes:
                if found_in(key, run.pattern_work):
                    yield key, node

    def accepts(self, value: Any, run: Run) -> bool:
        return type(value) is not dict or all(node.accepts(value[key], run) for key, node in self._applied(value, run))

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for key, node in self._applied(value, run):
            node.explain(value[key], (*path, key), run)


class Additional(Rule):
    """`additionalProperties`: the subschema of every name that no keyword for properties beside it takes."""

    __slots__ = ("_known", "_node", "_patterns")
    keyword = "additionalProperties"

    def __init__(self, known: frozenset[str], patterns: list[Callable[[str, list[int]], bool]], node: Node) -> None:
        self._known = known
        self._patterns = patterns
        self._node = node

    def _is_other(self, key: str, run: Run) -> bool:
        run.spend(len(self._patterns))
        return key not in self._known and not any(found_in(key, run.pattern_work) for found_in in self._patterns)

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) is dict and not value.keys() <= self._known:
            for key, item in value.items():
                if self._is_other(key, run) and not self._node.accepts(item, run):
                    return False
        return True

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for key in value:
            if not self._is_other(key, run):
                continue
            if any(isinstance(rule, Never) for rule in self._node.rules):
                run.report((*path, key), self.keyword, "is not a property of this tool or object")
            else:
                self._node.explain(value[key], (*path, key), run)


class Names(Rule):
    """`propertyNames`: the subschema of every name of an object."""

    __slots__ = ("_node",)
    keyword = "propertyNames"

    def __init__(self, node: Node) -> None:
        self._node = node

    def accepts(self, value: Any, run: Run) -> bool:
        return type(value) is not dict or all(self._node.accepts(key, run) for key in value)

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for key in value:
            if not self._node.accepts(key, run):
                run.report((*path, key), self.keyword, "has a name that is not allowed")


class Dependent(Rule):
    """`dependentSchemas` and `dependentRequired`: what an object with a certain name must also keep."""

    __slots__ = ("_nodes", "keyword")

    def __init__(self, keyword: str, nodes: Mapping[str, Node]) -> None:
        self.keyword = keyword
        self._nodes = nodes

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) is not dict:
            return True
        run.spend(len(self._nodes) // NAMES_A_STEP)
        return all(node.accepts(value, run) for name, node in self._nodes.items() if name in value)

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for name, node in self._nodes.items():
            if name in value:
                node.explain(value, path, run)

    def in_place(self) -> Iterator[Node]:
        return iter(self._nodes.values())


class Items(Rule):
    """`items`: the subschema of every item of an array that has none by its place."""

    __slots__ = ("_node", "_start", "keyword")

    def __init__(self, keyword: str, node: Node, start: int = 0) -> None:
        self.keyword = keyword
        self._node = node
        self._start = start

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) is not list:
            return True
        items = value[self._start :] if self._start else value
        return all(self._node.accepts(item, run) for item in items)

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for place in range(self._start, len(value)):
            if len(run.found) >= MAX_VIOLATIONS:
                return
            self._node.explain(value[place], (*path, place), run)


class Prefix(Rule):
    """`prefixItems`: the subschemas of the first items of an array, each by its place."""

    __slots__ = ("_nodes", "keyword")

    def __init__(self, keyword: str, nodes: list[Node]) -> None:
        self.keyword = keyword
        self._nodes = nodes

    def accepts(self, value: Any, run: Run) -> bool:
        return type(value) is not list or all(
            node.accepts(item, run) for node, item in zip(self._nodes, value, strict=False)
        )

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        for place, (node, item) in enumerate(zip(self._nodes, value, strict=False)):
            node.explain(item, (*path, place), run)


class Contains(Rule):
    """`contains` with its counts: how many items of an array keep a subschema."""

    __slots__ = ("_least", "_most", "_node")
    keyword = "contains"

    def __init__(self, node: Node, least: int, most: int | None) -> None:
        self._node = node
        self._least = least
        self._most = most

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) is not list:
            return True
        fitting = sum(self._node.accepts(item, run) for item in value)
        return fitting >= self._least and (self._most is None or fitting <= self._most)

    def reason(self) -> str:
        most = "" if self._most is None else f" and at most {self._most}"
        return f"has not at least {self._least}{most} of the items that are asked for"


class Unique(Rule):
    """`uniqueItems`: no two items of an array are equal as JSON values."""

    __slots__ = ()
    keyword = "uniqueItems"

    def accepts(self, value: Any, run: Run) -> bool:
        return type(value) is not list or len(set(_comparable(value, run)[1])) == len(value)

    def reason(self) -> str:
        return "has the same item twice"


class MultipleOf(Rule):
    """`multipleOf`: exact, for the numbers as they are written down and not as a double holds them."""

    __slots__ = ("_step",)
    keyword = "multipleOf"

    def __init__(self, step: int | float) -> None:
        self._step = Fraction(str(step))

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) not in _NUMBERS:
            return True
        run.spend(8)  # exact fractions are slow
        return Fraction(str(value)) % self._step == 0

    def reason(self) -> str:
        return f"is not a multiple of {self._step}"


class OneOfValues(Rule):
    """`enum`, and `const` as an `enum` of one: equal as JSON values, not as Python values."""

    __slots__ = ("_containers", "_values", "keyword")

    def __init__(self, keyword: str, values: list[Any]) -> None:
        self.keyword = keyword
        self._values = frozenset(_comparable(value, Run()) for value in values)
        self._containers = any(type(value) in (list, dict) for value in values)

    def accepts(self, value: Any, run: Run) -> bool:
        if type(value) in (list, dict) and not self._containers:
            return False
        return _comparable(value, run) in self._values

    def reason(self) -> str:
        return "is not one of the listed values" if self.keyword == "enum" else "is not the one allowed value"


class Limits(Rule):
    """One bound on a number, or on the length of a text or an array."""

    __slots__ = ("_bound", "_fits", "_types", "_words", "keyword")

    def __init__(self, keyword: str, bound: int | float) -> None:
        self.keyword = keyword
        self._bound = bound
        self._types, self._fits, self._words = LIMITS[keyword]

    def accepts(self, value: Any, run: Run) -> bool:
        return type(value) not in self._types or self._fits(value, self._bound)

    def reason(self) -> str:
        return f"{self._words} {self._bound}"


_NUMBERS: Final = TYPES["number"]
_STRINGS: Final = TYPES["string"]
_ARRAYS: Final = TYPES["array"]
_OBJECTS: Final = TYPES["object"]
LIMITS: Final[dict[str, tuple[frozenset[type], Callable[[Any, Any], bool], str]]] = {
    "minimum": (_NUMBERS, lambda value, bound: value >= bound, "is less than"),
    "maximum": (_NUMBERS, lambda value, bound: value <= bound, "is more than"),
    "exclusiveMinimum": (_NUMBERS, lambda value, bound: value > bound, "is not more than"),
    "exclusiveMaximum": (_NUMBERS, lambda value, bound: value < bound, "is not less than"),
    "minLength": (_STRINGS, lambda value, bound: len(value) >= bound, "has fewer characters than"),
    "maxLength": (_STRINGS, lambda value, bound: len(value) <= bound, "has more characters than"),
    "minItems": (_ARRAYS, lambda value, bound: len(value) >= bound, "has fewer items than"),
    "maxItems": (_ARRAYS, lambda value, bound: len(value) <= bound, "has more items than"),
    "minProperties": (_OBJECTS, lambda value, bound: len(value) >= bound, "has fewer members than"),
    "maxProperties": (_OBJECTS, lambda value, bound: len(value) <= bound, "has more members than"),
}


class Matches(Rule):
    """`pattern`: a text in which the pattern is found."""

    __slots__ = ("_found_in",)
    keyword = "pattern"

    def __init__(self, found_in: Callable[[str, list[int]], bool]) -> None:
        self._found_in = found_in

    def accepts(self, value: Any, run: Run) -> bool:
        return type(value) is not str or self._found_in(value, run.pattern_work)

    def reason(self) -> str:
        return "does not match the pattern"


class Combined(Rule):
    """`allOf`, `anyOf`, `oneOf`, `not`: how many of the subschemas must accept the same value."""

    __slots__ = ("_least", "_most", "_nodes", "keyword")

    def __init__(self, keyword: str, nodes: list[Node]) -> None:
        self.keyword = keyword
        self._nodes = nodes
        self._least, self._most = {
            "allOf": (len(nodes), len(nodes)),
            "anyOf": (1, len(nodes)),
            "oneOf": (1, 1),
            "not": (0, 0),
        }[keyword]

    def accepts(self, value: Any, run: Run) -> bool:
        accepted = 0
        for tried, node in enumerate(self._nodes, 1):
            if node.accepts(value, run):
                accepted += 1
            if accepted > self._most or accepted + len(self._nodes) - tried < self._least:
                return False
            if accepted >= self._least and self._most == len(self._nodes):
                return True
        return True

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        if self.keyword == "allOf":
            for node in self._nodes:
                node.explain(value, path, run)
        elif self.keyword == "not":
            run.report(path, self.keyword, "is what the schema excludes")
        elif self.keyword == "oneOf" and sum(node.accepts(value, run) for node in self._nodes) > 1:
            run.report(path, self.keyword, "fits more than one of the alternatives")
        else:
            self._explain_nearest(value, path, run)

    def _explain_nearest(self, value: Any, path: _Path, run: Run) -> None:
        """Say which alternative is nearest, if one is near, and what it lacks."""
        number, lacks = self._nearest(value, path, run) if run.nearest else (0, [])
        nearest = f"; the nearest is number {number}" if number else ""
        run.report(path, self.keyword, f"fits none of the alternatives{nearest}")
        for one in lacks:
            run.report(*one)

    def _nearest(self, value: Any, path: _Path, run: Run) -> tuple[int, list[tuple[_Path, str, str]]]:
        """Return the number of the alternative with the fewest faults, and these; (0, []) if none is near.

        One that already wants another type or another listed value at this place is not meant; one that wants
        another listed value further inside, such as a `kind`, is hardly meant.
        """
        found, steps, depth, outermost = run.found, run.steps, run.depth, not run.trying
        run.trying = True
        best: tuple[bool, int, int] | None = None
        lacks: list[tuple[_Path, str, str]] = []
        try:
            for number, node in enumerate(self._nodes, 1):
                run.found = []
                node.explain(value, path, run)
                if any(at == path and keyword in _OTHER for at, keyword, _ in run.found):
                    continue
                rank = any(keyword in ("const", "enum") for _, keyword, _ in run.found), len(run.found), number
                if best is None or rank < best:
                    best, lacks = rank, run.found
        except LimitReached:  # the verdict stands; only the explanation was too long
            if not outermost:
                raise
            run.nearest, run.steps, run.depth, best, lacks = False, steps, depth, None, []
        finally:
            run.found, run.trying = found, not outermost
        return (best[2], lacks) if best else (0, [])

    def in_place(self) -> Iterator[Node]:
        return iter(self._nodes)


_OTHER: Final = frozenset({"type", "const", "enum", "false"})


class Conditional(Rule):
    """`if` with `then` and `else`: which of the two a value must keep, decided by the value."""

    __slots__ = ("_else", "_if", "_then")
    keyword = "if"

    def __init__(self, condition: Node, then: Node, otherwise: Node) -> None:
        self._if = condition
        self._then = then
        self._else = otherwise

    def accepts(self, value: Any, run: Run) -> bool:
        return (self._then if self._if.accepts(value, run) else self._else).accepts(value, run)

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        (self._then if self._if.accepts(value, run) else self._else).explain(value, path, run)

    def in_place(self) -> Iterator[Node]:
        return iter((self._if, self._then, self._else))


class Reference(Rule):
    """`$ref`: the subschema at another place of the same schema."""

    __slots__ = ("holder", "node", "place")
    keyword = "$ref"

    def __init__(self, holder: _Path, place: tuple[str, str]) -> None:
        self.holder = holder
        self.place = place  # the resource, and the fragment in it
        self.node = Node(holder)  # replaced when all places are known

    def accepts(self, value: Any, run: Run) -> bool:
        return self.node.accepts(value, run)

    def explain(self, value: Any, path: _Path, run: Run) -> None:
        self.node.explain(value, path, run)

    def in_place(self) -> Iterator[Node]:
        yield self.node


def _comparable(value: Any, run: Run) -> Any:
    """A form of a JSON value that is equal and hashed as JSON sees it: true is not 1, but 1 is 1.0."""
    kind = type(value)
    if kind is bool:
        return "bool", value
    if kind is list or kind is dict:
        run.steps -= len(value)
        if run.steps < 0:
            raise LimitReached
    if kind is list:
        return "list", tuple(_comparable(item, run) for item in value)
    if kind is dict:
        return "dict", frozenset((key, _comparable(item, run)) for key, item in value.items())
    return value
