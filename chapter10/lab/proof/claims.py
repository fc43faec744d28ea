"""The claims of the book and where each stands in the sources: promised, proved, broken.

`claims.toml` holds one sentence of our own for each claim and no place in the code. The places are found
here, in the source texts, so that they cannot go out of date:

    promised   a docstring of the package names the claim, alone or in a range with `to`
    proved     the docstring of a test names it in its last lines, after `Claims:`
    broken     a guard of the job store that can be taken out (`lab.histories.guards`), a written mutant, or a
               known-wrong answer of an exercise names it

What it does not do: it does not judge whether a test proves what it names; that is what the guards, the
mutants and the known-wrong answers are for. The ids are those of the claim list.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chapter10.lab.console.strings import Text
from chapter10.lab.exercises.book import EXERCISES
from chapter10.lab.histories.guards import GUARDS, mark_of

__all__ = [
    "KINDS",
    "Breaker",
    "Claim",
    "Expectation",
    "Map",
    "Place",
    "docstrings",
    "ids_in",
    "parse_file",
    "proof_of",
    "read_claim",
    "read_claims",
    "read_map",
]

KINDS: Final = ("fact", "rule", "guarantee", "limit", "exercise")
"""What a claim can be; `claims.toml` says what each means."""

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_CLAIMS: Final = _PACKAGE / "lab" / "proof" / "claims.toml"
_MUTANTS: Final = _PACKAGE / "lab" / "proof" / "mutants.toml"

_ID: Final = re.compile(r"(C10|C8|T6|I4)-(\d{3})(?:\s+to\s+\1-(\d{3}))?")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A figure that the book prints: `field` of `group` in the evidence (of the whole run if "") is `value`."""

    group: str
    field: str
    value: Any

    @property
    def place(self) -> str:
        """The place in the evidence, such as `catalog.hits.0.score`."""
        return f"{self.group}.{self.field}" if self.group else self.field

    def found_in(self, evidence: Mapping[str, Any]) -> Any:
        """Return what the evidence of `run_all` has in this place. Raises `KeyError`, `IndexError`."""
        value: Any = evidence["groups"][self.group] if self.group else evidence
        for name in self.field.split("."):
            value = value[int(name)] if isinstance(value, list) else value[name]
        return value


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim: `kind` of `KINDS`; `document`, `section` and `room` are where it stands and who answers for it.

    `reason` says why no test names it; `reason_kind` is `out_of_scope`, `prose` or "". `unguarded` says
    why nothing can be taken out to see it break.
    """

    id: str
    kind: str
    sentence: Text
    document: str
    section: Text
    room: str
    expect: tuple[Expectation, ...]
    reason: str
    reason_kind: str
    unguarded: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A name in a source file: `path` as in `jobs.py` below the package, `name` as in `JobStore.finish`.

    A module itself has the name "". `line` is that of the definition, for whoever looks now.
    """

    path: str
    name: str
    line: int

    @property
    def module(self) -> str:
        """The module below `chapter10`, such as `companions.retrying.retry`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True, slots=True)
class Breaker:
    """Something that shows the claim broken: a `guard`, a `mutant` or a known-`wrong` answer, by `name`.

    `command` shows it. `path` and `line` say where it stands, `text` is the code there.
    """

    kind: str
    name: str
    command: str
    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Map:
    """Every claim in order and, by id, where it is promised, what proves it and what breaks it."""

    claims: Mapping[str, Claim]
    promised: Mapping[str, Sequence[Place]]
    proved: Mapping[str, Sequence[Place]]
    broken: Mapping[str, Sequence[Breaker]]

    @property
    def missing(self) -> list[str]:
        """The claims with neither a test nor a reason."""
        return [name for name, claim in self.claims.items() if name not in self.proved and not claim.reason]

    @property
    def unknown(self) -> list[str]:
        """The ids that docstrings, guards or mutants name and `claims.toml` does not have."""
        return sorted({*self.promised, *self.proved, *self.broken} - set(self.claims))


def ids_in(text: str) -> list[str]:
    """Return the claim ids of a text in order, each once, and those between the two of a range."""
    found: dict[str, None] = {}
    for match in _ID.finditer(text):
        first = int(match.group(2))
        last = int(match.group(3) or first)
        found.update(dict.fromkeys(f"{match.group(1)}-{number:03}" for number in range(first, last + 1)))
    return list(found)


def read_claims(path: Path = _CLAIMS) -> dict[str, Claim]:
    """Return the claims of the file by id, in its order.

    Raises `ValueError` for a claim that lacks something, has something unknown, or stands twice.
    """
    claims: dict[str, Claim] = {}
    for section in tomllib.loads(path.read_text(encoding="utf-8"))["sections"]:
        for row in section["claims"]:
            claim = read_claim(section, row)
            if claim.id in claims:
                raise ValueError(f"{claim.id} stands twice")
            claims[claim.id] = claim
    return claims


def read_claim(section: Mapping[str, Any], row: Mapping[str, Any]) -> Claim:
    """Return the claim of one row of a section. Raises `ValueError`, naming it, for a row that does not fit."""
    optional = {"expect", "out_of_scope", "prose", "unguarded"}
    if not {"id", "kind", "zh", "en"} <= set(row) <= {"id", "kind", "zh", "en"} | optional:
        raise ValueError(f"a claim needs id, kind, zh, en and may have {', '.join(sorted(optional))}: {row}")
    if ids_in(row["id"]) != [row["id"]] or not row["id"].startswith(section["document"] + "-"):
        raise ValueError(f"{row['id']} is no id of {section['document']}")
    if row["kind"] not in KINDS:
        raise ValueError(f"{row['id']}: a kind is one of {', '.join(KINDS)}")
    if "out_of_scope" in row and "prose" in row:
        raise ValueError(f"{row['id']}: one reason is enough")
    reason_kind = next((kind for kind in ("out_of_scope", "prose") if kind in row), "")
    return Claim(
        id=row["id"],
        kind=row["kind"],
        sentence=Text(row["zh"], row["en"]),
        document=section["document"],
        section=Text(section["zh"], section["en"]),
        room=section["room"],
        expect=tuple(
            Expectation(figure.get("group", ""), figure["field"], figure.get("value"))
            for figure in row.get("expect", ())
        ),
        reason=row.get(reason_kind, ""),
        reason_kind=reason_kind,
        unguarded=row.get("unguarded", ""),
    )


def parse_file(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_bytes())


def read_map(package: Path = _PACKAGE, *, parse: Callable[[Path], ast.Module] = parse_file) -> Map:
    """Read the claims and every source file of the package; return where each claim stands.

    A copy without its tests gives a map in which nothing is proved. `parse`: for whoever has the trees already.
    Raises `MarkError` (a `ValueError`) for a guard without its mark.
    """
    promised: dict[str, list[Place]] = {}
    proved: dict[str, list[Place]] = {}
    for path in sorted(package.rglob("*.py"), key=_rooms_first):
        relative = path.relative_to(package)
        tests = relative.parts[0] == "tests"
        for place, docstring in docstrings(path, relative.as_posix(), parse=parse):
            if not tests:
                _add(promised, ids_in(docstring), place)
            elif place.name.rpartition(".")[2].startswith("test_"):
                _add(proved, ids_in(proof_of(docstring)), place)
    broken: dict[str, list[Breaker]] = {}
    for claims, breaker in _breakers():
        _add(broken, claims, breaker)
    return Map(read_claims(), promised, proved, broken)


def _rooms_first(path: Path) -> tuple[bool, bool, str]:
    """The chapter's rooms, then the companions, then the lab and the tests, each in the order of their names."""
    return ("lab" in path.parts or "tests" in path.parts, "companions" in path.parts, path.as_posix())


def _add(places: dict[str, list[Any]], ids: Iterable[str], place: object) -> None:
    for name in ids:
        places.setdefault(name, []).append(place)


def docstrings(
    path: Path, relative: str, *, parse: Callable[[Path], ast.Module] = parse_file
) -> Iterator[tuple[Place, str]]:
    """Yield each docstring of a file with its place; a name inside a class has the class before it."""
    waiting: list[tuple[Any, str]] = [(parse(path), "")]
    for node, name in waiting:  # it grows on the way
        if docstring := ast.get_docstring(node):
            yield Place(relative, name, getattr(node, "lineno", 1)), docstring
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                waiting.append((child, f"{name}.{child.name}".removeprefix(".")))


def proof_of(docstring: str) -> str:
    """Return what follows `Claims:` at the end of a docstring, or nothing."""
    before, claims, after = docstring.rpartition("Claims:")
    return after if claims and (not before or before[-1].isspace()) else ""


def _breakers() -> Iterator[tuple[Sequence[str], Breaker]]:
    """Yield what shows claims broken, with those claims."""
    for guard in GUARDS:
        command = f"python -m chapter10 explore --without {guard.name}"
        yield guard.claims, Breaker("guard", guard.name, command, *mark_of(guard))
    for entry in tomllib.loads(_MUTANTS.read_text(encoding="utf-8"))["mutant"]:
        path = entry["module"].replace(".", "/") + ".py"
        text = (_PACKAGE / path).read_text(encoding="utf-8")
        line = text.count("\n", 0, max(0, text.find(entry["old"]))) + 1
        command = f"python -m chapter10 mutants --only {entry['name']}"
        first = entry["old"].strip().partition("\n")[0]
        yield ids_in(entry["name"]), Breaker("mutant", entry["name"], command, path, line, first)
    for exercise in EXERCISES.values():
        for file in exercise.wrong:
            path = file.relative_to(_PACKAGE).as_posix()
            command = f"python -m chapter10.lab.exercises.judge {exercise.number} chapter10/{path}"
            first = file.read_text(encoding="utf-8").partition("\n")[0]
            yield [exercise.claim], Breaker("wrong", file.stem, command, path, 1, first)
