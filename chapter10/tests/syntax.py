"""Python files as syntax trees: what a module imports, defines and uses, without running it.

The rules of the house stand in `test_layout`; here stand the questions that those rules ask of a file.
"""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from chapter10.tests.support import TOP

PACKAGE: Final = TOP / "chapter10"
IGNORED_FOLDERS: Final = frozenset({"__pycache__", "my_work", "build", "dist", "chapter10.egg-info"})
CHECKED_FOLDERS: Final = ("chapter10", "reports", "docs", "examples", ".ci")
TEXT_MODES: Final = frozenset({"r", "w", "a", "x", "rt", "wt", "at", "xt", "r+", "w+"})

N = TypeVar("N", bound=ast.AST)


class Source(NamedTuple):
    """One Python file of the package: its dotted name below `chapter10`, where it is, its tree."""

    name: str
    path: Path
    tree: ast.Module


class Reference(NamedTuple):
    """A use of a name that came from outside the file: where it came from, and the node that uses it."""

    origin: str
    node: ast.AST


@cache
def python_files() -> tuple[Source, ...]:
    """Every Python file of the package, tests and readers' files included; read once in a run of the suite.

    The trees are half a million objects that live as long as the process. They are set aside from the garbage
    collection, which otherwise would walk through all of them each time that some later test asks for one.
    """
    gc.collect()
    gc.disable()
    try:
        found = tuple(_sources())
        for source in found:
            _by_kind(source.tree)
        gc.freeze()
    finally:
        gc.enable()
    return found


def _sources() -> Iterator[Source]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if IGNORED_FOLDERS.isdisjoint(path.parts):
            parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            yield Source(".".join(parts), path, ast.parse(path.read_bytes()))


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """What `ast.walk` yields for a tree, in that order, walked once however many rules ask.

    Whether a name is read or written is no node here: `ctx` would be a third of them.
    """
    found = [tree]
    for node in found:  # it grows meanwhile
        for name in node._fields:
            value = None if name == "ctx" else getattr(node, name, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
    return tuple(found)


def nodes_of(tree: ast.AST, *kinds: type[N]) -> Iterator[N]:
    """The nodes of a tree that are of these classes and of none below them, one class after the other."""
    for kind in kinds:
        yield from _by_kind(tree).get(kind, ())


@cache
def _by_kind(tree: ast.AST) -> dict[type[ast.AST], list[Any]]:
    found: dict[type[ast.AST], list[Any]] = {}
    for node in nodes(tree):
        found.setdefault(type(node), []).append(node)
    return found


def parsed(path: Path) -> ast.Module:
    """The tree of one file of the package, from `python_files`; a file from elsewhere is parsed anew."""
    return _by_path().get(path) or ast.parse(path.read_bytes())


@cache
def _by_path() -> dict[Path, ast.Module]:
    return {source.path: source.tree for source in python_files()}


@cache
def modules() -> dict[str, Source]:
    """The library's modules by name: importable, hence in a chain of packages, and no tests."""
    return {
        source.name: source
        for source in python_files()
        if source.name.split(".")[0] != "tests" and _is_importable(source.path)
    }


def _is_importable(path: Path) -> bool:
    folders = [folder for folder in path.parents if PACKAGE in (folder, *folder.parents)]
    return all((folder / "__init__.py").is_file() for folder in folders)


def repository_files() -> Iterator[Path]:
    """The files that a reader gets: the checked folders and what lies beside them at the top."""
    for folder in CHECKED_FOLDERS:
        for root, folders, files in os.walk(TOP / folder):
            folders[:] = [name for name in folders if name not in IGNORED_FOLDERS]
            yield from (Path(root, name) for name in files)
    for path in TOP.iterdir():
        if (path.is_file() and path.suffix in {".md", ".toml"}) or path.name in {".gitattributes", ".gitignore"}:
            yield path


def own_imports(tree: ast.AST, known: frozenset[str]) -> set[str]:
    """The modules of this package that a tree imports, by name below `chapter10` ("" is the root)."""
    named = (alias.name for plain in nodes_of(tree, ast.Import) for alias in plain.names)
    found = {_below(name) for name in named if name.split(".")[0] == "chapter10"}
    for node in nodes_of(tree, ast.ImportFrom):
        if (node.module or "").split(".")[0] == "chapter10":
            base = _below(node.module or "")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                found.add(inner if inner in known else base)
    return found


def _below(name: str) -> str:
    return name.partition(".")[2]


@cache
def references(tree: ast.AST) -> tuple[Reference, ...]:
    """Every use of an imported or built-in name as a dotted origin, `from x import y as z` resolved."""
    names: dict[str, str] = {}
    for plain in nodes_of(tree, ast.Import):
        for alias in plain.names:
            root = alias.name.split(".")[0]
            names[alias.asname or root] = alias.name if alias.asname else root
    for named in nodes_of(tree, ast.ImportFrom):
        names |= {alias.asname or alias.name: f"{named.module}.{alias.name}" for alias in named.names}
    found = [
        Reference(names.get(node.id, node.id), node)
        for node in nodes_of(tree, ast.Name)
        if isinstance(node.ctx, ast.Load)
    ]
    for node in nodes_of(tree, ast.Attribute):
        chain: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            found.append(Reference(".".join([names.get(inner.id, inner.id), *reversed(chain)]), node))
    return tuple(found)


def imported_roots(tree: ast.AST) -> set[str]:
    """The first parts of all names that a tree imports."""
    found = {alias.name.split(".")[0] for node in nodes_of(tree, ast.Import) for alias in node.names}
    return found | {"." if node.level else (node.module or "").split(".")[0] for node in nodes_of(tree, ast.ImportFrom)}


def default_values(tree: ast.AST) -> set[ast.AST]:
    """The nodes that stand in a parameter's default, or in the default of a record's field."""
    found: set[ast.AST] = set()
    defaults: list[ast.AST | None] = []
    for arguments in nodes_of(tree, ast.arguments):
        defaults += [*arguments.defaults, *arguments.kw_defaults]
    for record in nodes_of(tree, ast.ClassDef):
        defaults += [item.value for item in record.body if isinstance(item, ast.AnnAssign)]
    for default in defaults:
        if default is not None:
            found |= set(ast.walk(default))
    return found


def public_definitions(tree: ast.Module) -> set[str]:
    """The names without underscore that a module itself defines at its top level; type variables are none."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and not _makes_a_type_variable(node.value):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {name for name in found if not name.startswith("_")}


def _makes_a_type_variable(value: ast.expr) -> bool:
    made_by = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    return made_by in {"TypeVar", "ParamSpec", "TypeVarTuple"}


def all_of(tree: ast.Module) -> list[str] | None:
    """The literal list of `__all__`, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def undocumented(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The public functions, classes and methods of a module that have no docstring.

    A method that a base class of the same module has already needs none of its own, nor do the members
    of a `Protocol`, whose docstring tells what they are.
    """
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if _wants_a_docstring(node):
            yield getattr(node, "name", ""), node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = {inner.id for base in node.bases for inner in ast.walk(base) if isinstance(inner, ast.Name)}
            inherited = {getattr(method, "name", "") for name in bases & set(classes) for method in classes[name].body}
            for method in node.body:
                name = getattr(method, "name", "")
                if _wants_a_docstring(method) and name not in inherited and "Protocol" not in bases:
                    yield f"{node.name}.{name}", method


def _wants_a_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
        and not _is_overload(node)
    )


def _is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    names = {
        d.id if isinstance(d, ast.Name) else d.attr
        for d in node.decorator_list
        if isinstance(d, ast.Name | ast.Attribute)
    }
    return bool(names & {"overload", "setter"})


def leaves_the_encoding_open(call: ast.Call) -> bool:
    """Whether a call opens, reads, writes or pipes text without saying how it is encoded."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    owner = call.func.value.id if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) else ""
    given = {keyword.arg for keyword in call.keywords}
    if None in given or "encoding" in given:
        return False
    if (name == "open" and isinstance(call.func, ast.Name)) or (name, owner) in {("open", "io"), ("fdopen", "os")}:
        return "b" not in mode_of(call, 1)
    if name == "open" and isinstance(call.func, ast.Attribute):  # a path's, if its first argument is a mode
        return bool(call.args) and isinstance(call.args[0], ast.Constant) and mode_of(call, 0) in TEXT_MODES
    if name == "read_text":
        return not call.args and owner != "resources"
    if name == "write_text":
        return len(call.args) < 2
    if name in {"run", "Popen", "check_output", "check_call"} and owner == "subprocess":
        return bool(given & {"text", "universal_newlines"})
    return False


def leaves_the_line_end_open(call: ast.Call) -> bool:
    """Whether a call writes a text file whose line ends depend on the system."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    given = {keyword.arg for keyword in call.keywords}
    if "newline" in given or None in given:
        return False
    if name == "write_text":
        return True
    at_place = 1 if isinstance(call.func, ast.Name) else 0
    mode = mode_of(call, at_place)
    return (
        name in {"open", "fdopen"} and "b" not in mode and bool(set(mode) & set("wax")) and set(mode) <= set("rwaxt+")
    )


def mode_of(call: ast.Call, place: int) -> str:
    """The literal mode of a call that opens a file, `r` if none is given."""
    values: list[ast.expr] = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    values += call.args[place : place + 1]
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return "r"


def catches_everything(node: ast.expr | None) -> bool:
    """Whether an `except` (or `suppress`) of this type also catches a cancel and Ctrl-C."""
    if node is None:
        return True
    return any(isinstance(inner, ast.Name) and inner.id == "BaseException" for inner in ast.walk(node))


def strings_of(tree: ast.AST) -> list[ast.Constant]:
    """The string constants of a tree that are no docstrings: what a program may print or send to a database."""
    prose = {node.value for node in nodes_of(tree, ast.Expr) if isinstance(node.value, ast.Constant)}
    return [node for node in nodes_of(tree, ast.Constant) if isinstance(node.value, str) and node not in prose]


def words_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
