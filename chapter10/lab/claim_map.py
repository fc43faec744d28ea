"""Where each sentence of the book is promised, proved and broken: `python -m chapter10.lab.claim_map`.

    python -m chapter10.lab.claim_map                    how many claims have a test, how many a reason
    python -m chapter10.lab.claim_map --claim C10-229    one claim: the line, the tests, what breaks without it
    python -m chapter10.lab.claim_map --missing          claims with neither a test nor a reason
    python -m chapter10.lab.claim_map --write            reports/claim-map.md anew (--check compares it)

`claims.toml` holds one sentence of our own for each claim and no place in the code. The places are found
here, in the source texts, so that they cannot go out of date:

    promised   a docstring of the package names the claim, alone or in a range such as `C10-229 to C10-238`
    proved     the docstring of a test names it in its last lines, `Claims: C10-229, C10-232.`
    broken     a guard of the job store that can be taken out (`lab.guards`), a written mutant or a
               known-wrong answer of an exercise names it

The map has no line numbers; `--claim` looks them up when it runs. A claim without a test says why: it is
out of scope, or prose. What it does not do: it does not judge whether a test proves what it names; that
is what the guards and the mutants are for.

Exit codes: 0 fine, 1 a claim is missing or the page differs, 2 usage, 3 the machine lacks something.
Source: the design of the reader's way through the code; the ids are those of the claim list.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.evidence import differences, replace_together
from chapter10.experiments import reports_folder
from chapter10.lab.guards import GUARDS, line_of
from chapter10.lab.strings import LANGUAGES, Text, choose_language
from chapter10.lab.textio import EXIT_FINE, EXIT_USAGE, EXIT_WRONG, main_guard

__all__ = [
    "KINDS",
    "PAGE",
    "Breaker",
    "Claim",
    "Expectation",
    "Map",
    "Place",
    "ids_in",
    "main",
    "page",
    "read_claims",
    "read_map",
]

KINDS: Final = ("fact", "rule", "guarantee", "limit", "exercise")
PAGE: Final = "claim-map.md"

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_CLAIMS: Final = _PACKAGE / "lab" / "claims.toml"
_MUTANTS: Final = _PACKAGE / "lab" / "mutants.toml"
_WRONG: Final = _PACKAGE / "lab" / "exercises" / "wrong"
_TESTS: Final = _PACKAGE / "tests"

_ID: Final = re.compile(r"(C10|C8|T6|I4)-(\d{3})(?:\s+to\s+\1-(\d{3}))?")
_DOCUMENTS: Final[Mapping[str, Text]] = {
    "C10": Text("章节", "the chapter"),
    "C8": Text("工具编排", "tool orchestration"),
    "T6": Text("工具系统", "the tool registry"),
    "I4": Text("幂等性与中断传播", "idempotency and interrupts"),
}


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
        """The module below `chapter10`, such as `companions.retry`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True, slots=True)
class Breaker:
    """Something that shows the claim broken: a `guard`, a `mutant` or a known-`wrong` answer, by `name`.

    `command` shows it. `path` and `line` say where its text stands, `text` is that line.
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


# Reading ------------------------------------------------------------------------------------------


def ids_in(text: str) -> list[str]:
    """Return the claim ids of a text in order, each once; `C10-229 to C10-231` are three."""
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
            claim = _claim(section, row)
            if claim.id in claims:
                raise ValueError(f"{claim.id} stands twice")
            claims[claim.id] = claim
    return claims


def _claim(section: Mapping[str, Any], row: Mapping[str, Any]) -> Claim:
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


def read_map(package: Path = _PACKAGE) -> Map:
    """Read the claims and every source file of the package; return where each claim stands.

    A copy without its tests gives a map in which nothing is proved.
    """
    promised: dict[str, list[Place]] = {}
    proved: dict[str, list[Place]] = {}
    for path in sorted(package.rglob("*.py"), key=_rooms_first):
        relative = path.relative_to(package)
        if path == Path(__file__).resolve():
            continue  # its docstrings show how ids are written
        tests = relative.parts[0] == "tests"
        for place, docstring in _docstrings(path, relative.as_posix()):
            if not tests:
                _add(promised, ids_in(docstring), place)
            elif place.name.rpartition(".")[2].startswith("test_"):
                _add(proved, ids_in(_last_lines(docstring)), place)
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


def _docstrings(path: Path, relative: str) -> Iterator[tuple[Place, str]]:
    """Yield each docstring of a file with its place; a name inside a class has the class before it."""
    waiting: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text(encoding="utf-8")), "")]
    while waiting:
        node, name = waiting.pop(0)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield Place(relative, name, getattr(node, "lineno", 1)), docstring
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                waiting.append((child, f"{name}.{child.name}" if name else child.name))


def _last_lines(docstring: str) -> str:
    """Return what follows `Claims:` at the end of a docstring, or nothing."""
    before, claims, after = docstring.rpartition("Claims:")
    return after if claims and (not before or before[-1].isspace()) else ""


def _breakers() -> Iterator[tuple[Sequence[str], Breaker]]:
    """Yield what shows claims broken, with those claims."""
    lines = (_PACKAGE / "jobs.py").read_text(encoding="utf-8").splitlines()
    for guard in GUARDS:
        line = line_of(guard)
        command = f"python -m chapter10.lab.explore --without {guard.name}"
        yield guard.claims, Breaker("guard", guard.name, command, "jobs.py", line, lines[line - 1].strip())
    for entry in tomllib.loads(_MUTANTS.read_text(encoding="utf-8")).get("mutant", []) if _MUTANTS.exists() else []:
        path = entry["module"].replace(".", "/") + ".py"
        text = (_PACKAGE / path).read_text(encoding="utf-8")
        line = text.count("\n", 0, max(0, text.find(entry["old"]))) + 1
        command = f"python -m chapter10.lab.mutants --module {entry['module']}"
        first = entry["old"].strip().partition("\n")[0]
        yield ids_in(entry["name"]), Breaker("mutant", entry["name"], command, path, line, first)
    for answer in sorted(_WRONG.rglob("*.py")):
        head = answer.read_text(encoding="utf-8").split("\n\n", 1)[0]
        path = answer.relative_to(_PACKAGE).as_posix()
        command = "python -m unittest chapter10.tests.test_exercises"
        yield ids_in(head), Breaker("wrong", answer.stem, command, path, 1, head.partition("\n")[0])


# The page -----------------------------------------------------------------------------------------

_HEAD: Final = """\
# 断言地图 / The claim map

书里每一句可以由程序检查的话：在哪里承诺，由哪些测试证明，对应证据里的哪个数，拿掉什么它就破。由程序从源码写成，不手改。
Every sentence of the chapter and of its three companion documents that a program can check: where the code
promises it, which tests prove it, which figure of the evidence shows it, and what breaks it when it is taken
out. Written from the sources by a program, never by hand.

```text
python -m chapter10.lab.claim_map --claim {example}    one claim, with the lines of code as they are now
python -m chapter10.lab.claim_map --missing            claims with neither a test nor a reason
python -m chapter10.lab.claim_map --write              this page anew
```

A guard that is named in the last column has its counterexample in [guards.md](guards.md).

| 文档 / document | 断言 / claims | 有测试 / with a test | 超出范围 / out of scope | 文字 / prose | 缺 / missing |
|---|---:|---:|---:|---:|---:|
{counts}
"""

_COLUMNS: Final = """\
| 断言 / claim | | 承诺在 / promised in | 证明 / tests | 证据 / evidence | 拿掉就破 / breaks it |
|---|---|---|---|---|---|"""


def page(found: Map) -> str:
    """Return the Markdown page of the whole map."""
    parts = [_HEAD.format(example="C10-229", counts="\n".join(_counts(found)))]
    sections = dict.fromkeys((claim.document, claim.section, claim.room) for claim in found.claims.values())
    for document, section, room in sections:
        rows = [
            _row(claim, found)
            for claim in found.claims.values()
            if (claim.document, claim.section, claim.room) == (document, section, room)
        ]
        title = f"## {document} · {section.zh} / {section.en}"
        parts.append(f"{title}\n\n{_COLUMNS}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _counts(found: Map) -> Iterator[str]:
    for document, title in [*_DOCUMENTS.items(), ("", Text("合计", "together"))]:
        claims = [claim for claim in found.claims.values() if document in ("", claim.document)]
        tested = [claim for claim in claims if claim.id in found.proved]
        reasons = [claim.reason_kind for claim in claims if claim.id not in found.proved]
        cells = [len(claims), len(tested), reasons.count("out_of_scope"), reasons.count("prose"), reasons.count("")]
        name = f"{document} {title.zh} / {title.en}".strip()
        yield f"| {name} | " + " | ".join(map(str, cells)) + " |"


def _row(claim: Claim, found: Map) -> str:
    sentence = f"{claim.sentence.zh} {claim.sentence.en} *{claim.kind}*"
    if claim.reason:
        sentence += f" — {claim.reason_kind.replace('_', ' ')}: {claim.reason}"
    promised = _linked(_specific(found.promised.get(claim.id, ())))
    proved = _linked(found.proved.get(claim.id, ()))
    figures = ", ".join(f"`{figure.place}` = `{canonical(figure.value)}`" for figure in claim.expect)
    broken = ", ".join(_named(breaker) for breaker in found.broken.get(claim.id, ()))
    cells = [claim.id, sentence, promised, proved, figures, broken or claim.unguarded]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _specific(places: Sequence[Place]) -> Sequence[Place]:
    """Leave out a module in which one of its names makes the promise."""
    named = {place.path for place in places if place.name}
    return [place for place in places if place.name or place.path not in named]


def _linked(places: Sequence[Place]) -> str:
    """Return places as Markdown, one link a file and the names after it."""
    names: dict[str, list[str]] = {}
    for place in places:
        names.setdefault(place.path, []).append(place.name.rpartition(".")[2] if "/test_" in place.path else place.name)
    linked = []
    for path, inside in names.items():
        title = path.removesuffix(".py").removeprefix("tests/").removesuffix("/__init__")
        shown = ", ".join(f"`{name}`" for name in inside if name)
        linked.append(
            f"[{title.replace('__', chr(92) + '_' * 2)}](../chapter10/{path})" + (f" {shown}" if shown else "")
        )
    return "; ".join(linked)


def _named(breaker: Breaker) -> str:
    if breaker.kind == "guard":
        return f"[`{breaker.name}`](guards.md#{breaker.name.replace('.', '')})"
    return f"{breaker.kind} [`{breaker.name}`](../chapter10/{breaker.path})"


# One claim ----------------------------------------------------------------------------------------

_LABELS: Final[Mapping[str, Text]] = {
    "line": Text("哪一行保证它", "the line that makes sure of it"),
    "promised": Text("在哪里承诺", "where it is promised"),
    "figures": Text("证据里的数", "the figures in the evidence"),
    "proved": Text("由谁证明（逐个可运行）", "what proves it (run any of them)"),
    "broken": Text("拿掉它，看它怎样破", "take it out and see it break"),
    "reason": Text("为什么没有测试", "why no test names it"),
    "unguarded": Text("为什么没有可拿掉的守卫", "why there is no guard to take out"),
    "nothing": Text("[X] 没有测试，也没有理由", "[X] neither a test nor a reason"),
}


def _sheet(claim: Claim, found: Map, language: str) -> list[str]:
    """Return what is known of one claim as lines for a person."""

    def block(label: str, lines: Iterable[str]) -> list[str]:
        shown = list(dict.fromkeys(lines))
        return ["", _LABELS[label].in_language(language), *(f"  {line}" for line in shown)] if shown else []

    promised = _specific(found.promised.get(claim.id, ()))
    proved = found.proved.get(claim.id, ())
    breakers = found.broken.get(claim.id, ())
    guards = [breaker for breaker in breakers if breaker.kind == "guard"]
    lines = [
        f"{claim.id}  {claim.kind}  {_DOCUMENTS[claim.document].in_language(language)}: "
        + claim.section.in_language(language),
        claim.sentence.in_language(language),
    ]
    lines += block("line", _lines_of(guards))
    lines += block("promised", (f"{_shown(p.path, p.line)}  {p.name or p.module}" for p in promised))
    lines += block("figures", (f"{figure.place} = {canonical(figure.value)}" for figure in claim.expect))
    lines += block("proved", (f"python -m unittest chapter10.{p.module}.{p.name}" for p in proved))
    lines += block("broken", (b.command if b.kind == "guard" else f"{b.command}    [{b.name}]" for b in breakers))
    lines += block("reason", [claim.reason] if claim.reason else [])
    lines += block("unguarded", [claim.unguarded] if claim.unguarded else [])
    if not proved and not claim.reason:
        lines += ["", _LABELS["nothing"].in_language(language)]
    return lines


def _lines_of(guards: Sequence[Breaker]) -> Iterator[str]:
    """Yield each line of code once, with the verbs that it guards."""
    verbs: dict[tuple[str, int, str], list[str]] = {}
    for guard in guards:
        verbs.setdefault((guard.path, guard.line, guard.text), []).append(guard.name.rpartition(".")[2])
    for (path, line, text), names in verbs.items():
        yield f"{_shown(path, line)}  {text}    ({', '.join(names)})"


def _shown(path: str, line: int) -> str:
    return f"chapter10/{path}:{line}"


# The command --------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say (those of the process if None) and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10.lab.claim_map",
        description="Where each sentence of the book is promised, proved and broken.",
        allow_abbrev=False,
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--claim", metavar="ID", help="one claim, such as C10-229")
    one.add_argument("--missing", action="store_true", help="list claims with neither a test nor a reason")
    one.add_argument("--write", action="store_true", help=f"write reports/{PAGE} anew")
    one.add_argument("--check", action="store_true", help=f"compare reports/{PAGE} with the sources")
    parser.add_argument("--lang", choices=LANGUAGES, help="with --claim: the language of the sentences")
    options = parser.parse_args(arguments)
    if not _TESTS.is_dir():
        sys.stderr.write("this copy has no tests; run it in the repository\n")
        return EXIT_USAGE
    found = read_map()
    if options.claim is not None:
        return _show(options.claim.strip().upper(), found, choose_language(options.lang))
    if options.write:
        for path in replace_together(reports_folder(), {PAGE: page(found)}):
            print(path)
        return EXIT_FINE
    if options.check:
        wrong = differences(reports_folder(), {PAGE: page(found)})
        print("\n".join(f"[X] {line}" for line in wrong) or f"[OK] {PAGE}: as the sources give it")
        return EXIT_WRONG if wrong else EXIT_FINE
    if not options.missing:
        print(_summary(found))
    return _problems(found)


def _show(name: str, found: Map, language: str) -> int:
    if name not in found.claims:
        sys.stderr.write(f"there is no claim {name}; they are C10-001 to I4-103, see reports/{PAGE}\n")
        return EXIT_USAGE
    print("\n".join(_sheet(found.claims[name], found, language)))
    return EXIT_FINE


def _summary(found: Map) -> str:
    tested = sum(name in found.proved for name in found.claims)
    reasons = [c.reason_kind for name, c in found.claims.items() if name not in found.proved and c.reason]
    tests = {(place.path, place.name) for places in found.proved.values() for place in places}
    return (
        f"{len(found.claims)} claims: {tested} with a test, {reasons.count('out_of_scope')} out of scope, "
        f"{reasons.count('prose')} prose, {len(found.missing)} missing; {len(tests)} tests name a claim, "
        f"{len(found.broken)} claims have something that breaks them"
    )


def _problems(found: Map) -> int:
    for name in found.missing:
        claim = found.claims[name]
        print(f"[X] {name}  {claim.kind}  {claim.sentence.en}")
    for name in found.unknown:
        print(f"[X] {name} is named and is no claim")
    if found.missing or found.unknown:
        return EXIT_WRONG
    print("[OK] every claim has a test or a reason")
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
