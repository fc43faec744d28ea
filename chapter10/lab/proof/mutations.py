"""Small faults for a program text: the operators that make them, and the list written by hand.

A *mutant* is a module with one small fault. A test suite that still passes with it has not looked at that
place, or the place makes no difference (an *equivalent* mutant, which needs a reason in words).

`automatic` walks the syntax tree and makes every fault of these kinds:

    compare     a comparison flipped at its boundary or turned round (`<` to `<=`, `==` to `!=`)
    condition   a condition negated
    guard       an `if` that only refuses (raises) is never taken
    leave       an `if` that only leaves (return, continue, break) is never taken
    part        one part of an `and` or `or` left out
    logic       `and` and `or` exchanged, a `not` left out
    call        a call that stands alone as a statement left out
    argument    a named argument of a call left out, so that a default decides
    copy        a value itself where a copy of it stood
    end         the other end of a container (`popleft` and `pop`, `[0]` and `[-1]`)
    sql         in the text of a statement: no order, no limit, a condition less, a comparison moved
    weaker      a word that does less (`lower` for `casefold`, `abspath` for `realpath`, `copy` for `deepcopy`)
    assign      an assignment to an attribute, or one that adds, left out: a state that is not cleared or counted
    number      a number one larger, True and False exchanged
    limit       the same in a constant of the module, which tests mostly name instead of repeating it
    sum         `+` and `-`, or `*` and `//`, exchanged
    extreme     `min` and `max` exchanged
    handler     an `except` that catches nothing of what it is there for
    outside     the last statement of a write transaction moved behind it

A fault is a change of text between two places, so that comments and layout stay as they are. Its name says
where it is without a line number, so that it can be written in a list and still be found after an edit.
Annotations, docstrings, asserts, decorators and texts that are no statements of SQL are left alone.

`read_list` reads `mutants.toml`, which has faults that somebody thought of and the tests of each module, and
the folder `equivalents`, which has the reasons for those that no test can see. Everybody may add to both.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

__all__ = [
    "EQUIVALENTS",
    "LIST",
    "MAX_NAME",
    "OPERATORS",
    "Mutant",
    "MutantList",
    "automatic",
    "extent",
    "read_list",
    "written",
]

LIST: Final = Path(__file__).resolve().parent / "mutants.toml"
EQUIVALENTS: Final = "equivalents"
"""The folder beside the list whose TOML files say why a fault makes no difference."""
MAX_NAME: Final = 70
"""Characters of a text that are shown in a name."""

OPERATORS: Final = (
    "compare", "condition", "guard", "leave", "part", "logic", "call", "argument", "copy", "end", "sql", "weaker",
    "assign", "number", "limit", "sum", "extreme", "handler", "outside",
)  # fmt: skip

_FLIPPED: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_TURNED_ROUND: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_SUMS: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
}
_COPIES: Final = ("copy", "deepcopy", "dict", "list", "tuple", "set", "frozenset")
_WEAKER: Final = {"casefold": "lower", "realpath": "abspath", "resolve": "absolute", "deepcopy": "copy"}
_SQL: Final = re.compile(r"\b(SELECT|UPDATE|DELETE|INSERT|WHERE|ORDER BY)\b")
_CLAUSE_ENDS: Final = r"(?= AND\b| OR\b| ORDER\b| GROUP\b| LIMIT\b|[\"'\n)])"
_SQL_FAULTS: Final = (
    (re.compile(rf" ORDER BY [^\"'\n)]+?{_CLAUSE_ENDS}"), ""),
    (re.compile(r" DESC\b"), ""),
    (re.compile(rf" LIMIT [^\"'\n)]+?{_CLAUSE_ENDS}"), ""),
    (re.compile(rf" AND [^\"'\n()]+?{_CLAUSE_ENDS}"), ""),
    (re.compile(r"(?<=WHERE )[^\"'\n()]+? AND "), ""),
    (re.compile(r"(?<= )<(?= )"), "<="),
    (re.compile(r"(?<= )<=(?= )"), "<"),
    (re.compile(r"(?<= )>(?= )"), ">="),
    (re.compile(r"(?<= )>=(?= )"), ">"),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: in `module` (below `chapter10`) the text from `start` to `end` becomes `new`.

    `name` is unique in a list; `operator` is one of `OPERATORS` or `written`; `line` counts from 1.
    `reason` says why no test can see it, where somebody found that out.
    """

    name: str
    module: str
    operator: str
    line: int
    start: int
    end: int
    new: str
    reason: str | None = None

    def apply(self, text: str) -> str:
        """Return the module's text with this fault in it."""
        return text[: self.start] + self.new + text[self.end :]


@dataclass(frozen=True, slots=True)
class MutantList:
    """What the files say: test modules by module, entries, and reasons by the name of an automatic fault."""

    tests: dict[str, list[str]]
    entries: list[dict[str, Any]]
    reasons: dict[str, str]


def read_list(path: Path = LIST) -> MutantList:
    """Return the list in `path`, with the reasons of the folder beside it.

    Raises `ValueError` for an entry that lacks something or a name that stands twice.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    entries = content.get("mutant", [])
    for entry in entries:
        if not {"name", "module", "old", "new"} <= set(entry) <= {"name", "module", "in", "old", "new", "reason"}:
            raise ValueError(f"an entry needs name, module, old, new and may have in, reason: {entry}")
    _refuse_twice(entry["name"] for entry in entries)
    groups = []
    for file in sorted((path.parent / EQUIVALENTS).glob("*.toml")):
        groups += tomllib.loads(file.read_text(encoding="utf-8")).get("equivalent", [])
    for group in groups:
        if set(group) != {"names", "reason"} or not group["names"] or not group["reason"]:
            raise ValueError(f"equivalents have names and a reason: {group}")
    _refuse_twice(name for group in groups for name in group["names"])
    return MutantList(
        content.get("tests", {}), entries, {name: group["reason"] for group in groups for name in group["names"]}
    )


def _refuse_twice(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"these names stand twice: {twice}")


def written(entry: dict[str, Any], text: str) -> Mutant:
    """Return the fault of an entry in its module's `text`.

    `old` must stand in exactly one place of the function or class `in`, or of the module: an entry whose
    place has moved fails instead of proving nothing. Raises `ValueError`.
    """
    first, last = extent(text, entry)
    places = text.count(entry["old"], first, last)
    if places != 1:
        raise ValueError(f"{entry['name']}: the old text stands in {places} places of {entry.get('in', 'the module')}")
    start = text.index(entry["old"], first, last)
    line = text.count("\n", 0, start) + 1
    end = start + len(entry["old"])
    return Mutant(entry["name"], entry["module"], "written", line, start, end, entry["new"], entry.get("reason"))


def automatic(module: str, text: str, reasons: dict[str, str] | None = None) -> list[Mutant]:
    """Return every fault of the operators in a module's `text`, in the order of the text, with distinct names."""
    seen: Counter[str] = Counter()
    mutants = []
    lines = text.splitlines()
    walk = _Walk(text)
    for operator, place, start, end, new in sorted(walk.faults(ast.parse(text)), key=lambda fault: fault[2:4]):
        line = text.count("\n", 0, start) + 1
        name = f"{module}:{place}:{operator}: {_short(text[start:end])} -> {_short(new)} @ {_short(lines[line - 1])}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" #{seen[name]}"
        mutants.append(Mutant(name, module, operator, line, start, end, new, (reasons or {}).get(name)))
    return mutants


def _short(text: str) -> str:
    """Return a text in one line, cut to what a name shows of it."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 3]}..."


def extent(text: str, entry: dict[str, Any]) -> tuple[int, int]:
    """Return where the function or class of an entry starts and ends; the whole text without `in`.

    Raises `ValueError` if there is none of that name.
    """
    if "in" not in entry:
        return 0, len(text)
    nodes: list[ast.stmt] = _parsed(text).body
    node: ast.stmt | None = None
    for part in entry["in"].split("."):
        found = [
            each
            for each in nodes
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each.name == part
        ]
        if len(found) != 1:
            raise ValueError(f"{entry['name']}: there is no {entry['in']}")
        node, nodes = found[0], found[0].body
    assert node is not None
    return _Walk(text).span(node)


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


class _Walk:
    """Finds the faults of one text; offsets of the tree are in UTF-8 bytes of a line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node starts and ends in the text."""
        assert isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.keyword)
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode("utf-8")[:column].decode("utf-8"))

    def source(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self._text[start:end]

    def faults(self, node: ast.AST, place: str = "") -> Iterator[tuple[str, str, int, int, str]]:
        """Yield (operator, place, start, end, new text) for everything below a node."""
        if isinstance(node, ast.Assert) or _is_list_of_names(node) or _is_docstring(node):
            return
        if isinstance(node, ast.JoinedStr):
            for operator, start, end, new in self._statements(node):
                yield operator, place or "module", start, end, new
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place = f"{place}.{node.name}" if place else node.name
        for operator, start, end, new in self._at(node):
            operator = "limit" if operator == "number" and not place else operator
            yield operator, place or "module", start, end, new
        for name, child in _children(node):
            if name not in {"annotation", "returns", "decorator_list", "format_spec"}:
                yield from self.faults(child, place)

    def _at(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node, ast.Compare):
            yield from self._comparisons(node)
        elif isinstance(node, ast.BoolOp):
            yield from self._parts(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield "logic", *self.span(node), f"({self.source(node.operand)})"
        elif isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
            yield from self._between("sum", node.left, node.right, *_SUMS[type(node.op)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "number", *self.span(node), str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield "number", *self.span(node), str(node.value + 1)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from self._statements(node)
        elif isinstance(node, ast.Call):
            yield from self._calls(node)
        elif isinstance(node, ast.Subscript) and self.source(node.slice) in {"0", "-1"} and not _is_row(node.value):
            yield "end", *self.span(node.slice), "-1" if self.source(node.slice) == "0" else "0"
        elif isinstance(node, ast.AugAssign) or _sets_attribute(node):
            yield "assign", *self.span(node), "pass"
        elif isinstance(node, ast.Expr) and isinstance(_called(node.value), ast.Call):
            yield "call", *self.span(node), "pass"
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            yield "handler", *self.span(node.type), "ZeroDivisionError"
        elif isinstance(node, ast.With):
            yield from self._moved_out(node)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield from self._conditions(node)
        elif isinstance(node, ast.comprehension):
            for condition in node.ifs:
                yield "condition", *self.span(condition), f"not ({self.source(condition)})"

    def _calls(self, node: ast.Call) -> Iterator[tuple[str, int, int, str]]:
        name = node.func
        word = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
        first, last = self.span(name)
        first = last - len(word)  # of `a.b` the `b`
        if word in {"min", "max"} and isinstance(name, ast.Name):
            yield "extreme", first, last, "max" if word == "min" else "min"
        if word in _WEAKER:
            yield "weaker", first, last, _WEAKER[word]
        if word == "popleft":
            yield "end", first, last, "pop"
        if word == "pop" and [self.source(each) for each in node.args] == ["0"]:
            yield "end", *self.span(node.args[0]), ""
        if word in _COPIES and not node.keywords:
            if len(node.args) == 1 and isinstance(node.args[0], _HELD):
                yield "copy", *self.span(node), f"({self.source(node.args[0])})"
            elif not node.args and isinstance(name, ast.Attribute):
                yield "copy", *self.span(node), self.source(name.value)
        for number, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                yield "argument", *self._with_comma(node, number), ""

    def _with_comma(self, node: ast.Call, number: int) -> tuple[int, int]:
        """Return where a named argument stands, with the comma before it or, for a first one, after it."""
        start, end = self.span(node.keywords[number])
        before = self._text[self.span(node.func)[1] : start].rstrip()
        if before.endswith(","):
            return self._text.rindex(",", 0, start), end
        after = re.match(r"\s*,", self._text[end:])
        return start, end + (after.end() if after else 0)

    def _statements(self, node: ast.expr) -> Iterator[tuple[str, int, int, str]]:
        """Make the faults of a text that is a statement of SQL, or a part of one."""
        start, end = self.span(node)
        text = self._text[start:end]
        if _SQL.search(text):
            for pattern, new in _SQL_FAULTS:
                for found in pattern.finditer(text):
                    yield "sql", start + found.start(), start + found.end(), new

    def _comparisons(self, node: ast.Compare) -> Iterator[tuple[str, int, int, str]]:
        operands = [node.left, *node.comparators]
        for number, operator in enumerate(node.ops):
            yield from self._between("compare", operands[number], operands[number + 1], *_FLIPPED[type(operator)])

    def _parts(self, node: ast.BoolOp) -> Iterator[tuple[str, int, int, str]]:
        word, other, neutral = ("and", "or", "True") if isinstance(node.op, ast.And) else ("or", "and", "False")
        for value in node.values:
            yield "part", *self.span(value), neutral
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from self._between("logic", left, right, word, other)

    def _conditions(self, node: ast.If | ast.While | ast.IfExp) -> Iterator[tuple[str, int, int, str]]:
        test = node.test
        only_one = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _TURNED_ROUND)
        is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        if not (only_one or is_not or isinstance(test, ast.Constant)):
            yield "condition", *self.span(test), f"not ({self.source(test)})"
        if isinstance(node, ast.If) and _refuses(node.body[0]):
            yield "guard", *self.span(test), "False"
        elif isinstance(node, ast.If) and isinstance(node.body[0], ast.Return | ast.Continue | ast.Break):
            yield "leave", *self.span(test), "False"

    def _between(
        self, operator: str, left: ast.expr, right: ast.expr, old: str, new: str
    ) -> Iterator[tuple[str, int, int, str]]:
        """Replace the operator that stands between two operands; brackets and line breaks may stand there too."""
        first, last = self.span(left)[1], self.span(right)[0]
        pattern = r"\s+".join(map(re.escape, old.split()))
        found = re.search(rf"(?<!\w){pattern}(?!\w)", self._text[first:last])
        if found is not None:
            yield operator, first + found.start(), first + found.end(), new

    def _moved_out(self, node: ast.With) -> Iterator[tuple[str, int, int, str]]:
        writes = any(self.source(item.context_expr).endswith(".write()") for item in node.items)
        if not writes or len(node.body) < 2 or isinstance(node.body[-1], ast.Return):
            return
        start, end = self.span(node.body[-1])
        line_start = self._text.rindex("\n", 0, start) + 1
        moved = re.sub(r"(?m)^    ", "", self._text[line_start:end])
        yield "outside", line_start, end, moved


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _called(value: ast.expr) -> ast.expr:
    return value.value if isinstance(value, ast.Await) else value


def _refuses(statement: ast.stmt) -> bool:
    """Whether a statement only refuses: raises, or calls what does."""
    if isinstance(statement, ast.Raise):
        return True
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and "refuse" in statement.value.func.id
    )


_HELD: Final = (ast.Name, ast.Attribute, ast.Subscript)
"""What somebody else may have as well; a copy of what was made just now is another form of it."""


def _is_row(value: ast.expr) -> bool:
    """Is it a row of a query? Its columns are named by a statement, which has faults of its own."""
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in {"fetchone", "row"}


def _sets_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_list_of_names(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
