"""Where each sentence of the book is promised, proved and broken: `python -m chapter10 claims`.

    python -m chapter10 claims                    how many claims have a test, how many a reason
    python -m chapter10 claims --claim C10-229    one claim: the line, the tests, what breaks without it
    python -m chapter10 claims --find 租约        claims with these words, in either language
    python -m chapter10 claims --missing          claims with neither a test nor a reason
    python -m chapter10 claims --write            reports/claim-map.md anew (--check compares it)

The places come from `lab.proof.claims`, which finds them in the sources. The page has no line numbers, so that an
edit above a function does not change it; `--claim` looks them up when it runs. A claim without a test says
why: it is out of scope, or prose. Whether a test proves what it names is the question of `lab.proof.proofs`.

Exit codes: 0 fine, 1 a claim is missing or the page differs, 2 usage, 3 the machine lacks something.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from chapter10.canonical import canonical
from chapter10.experiments import reports_folder
from chapter10.lab.console.strings import LANGUAGES, Text, choose_language
from chapter10.lab.console.textio import EXIT_FINE, EXIT_USAGE, EXIT_WRONG, main_guard
from chapter10.lab.evidence.files import differences, replace_together, say_differences
from chapter10.lab.proof.claims import Breaker, Claim, Map, Place, read_map

__all__ = ["PAGE", "main", "page", "problems", "sheet"]

PAGE: Final = "claim-map.md"

_TESTS: Final = Path(__file__).resolve().parents[2] / "tests"
_DOCUMENTS: Final[Mapping[str, Text]] = {
    "C10": Text("章节", "the chapter"),
    "C8": Text("工具编排", "tool orchestration"),
    "T6": Text("工具系统", "the tool registry"),
    "I4": Text("幂等性与中断传播", "idempotency and interrupts"),
}


# The page -----------------------------------------------------------------------------------------

_HEAD: Final = """\
# 断言地图 / The claim map

书里每一句可以由程序检查的话：在哪里承诺，由哪些测试证明，对应证据里的哪个数，拿掉什么它就破。由程序从源码写成，不手改。
Every sentence of the chapter and of its three companion documents that a program can check: where the code
promises it, which tests prove it, which figure of the evidence shows it, and what breaks it when it is taken
out. Written from the sources by a program, never by hand.

```text
python -m chapter10 claims --claim {example}    one claim, with the lines of code as they are now
python -m chapter10 claims --missing            claims with neither a test nor a reason
python -m chapter10 claims --write              this page anew
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
    "unguarded": Text("为什么没有可以拿掉的防护", "why there is no guard to take out"),
    "nothing": Text("[X] 没有测试，也没有理由", "[X] neither a test nor a reason"),
}


def sheet(claim: Claim, found: Map, language: str) -> list[str]:
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
    lines += block("broken", (breaker.command for breaker in breakers))
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
        prog="python -m chapter10 claims",
        description="Where each sentence of the book is promised, proved and broken.",
        allow_abbrev=False,
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--claim", metavar="ID", help="one claim, such as C10-229")
    one.add_argument("--find", metavar="WORDS", help="list the claims whose sentence or section has these words")
    one.add_argument("--missing", action="store_true", help="list claims with neither a test nor a reason")
    one.add_argument("--write", action="store_true", help=f"write reports/{PAGE} anew")
    one.add_argument("--check", action="store_true", help=f"compare reports/{PAGE} with the sources")
    parser.add_argument("--lang", choices=LANGUAGES, help="with --claim and --find: the language of the sentences")
    options = parser.parse_args(arguments)
    if not _TESTS.is_dir():
        sys.stderr.write("this copy has no tests; run it in the repository\n")
        return EXIT_USAGE
    found = read_map()
    if options.claim is not None:
        return _show(options.claim.strip().upper(), found, choose_language(options.lang))
    if options.find is not None:
        return _find(options.find, found, choose_language(options.lang))
    if options.write:
        for path in replace_together(reports_folder(), {PAGE: page(found)}):
            print(path)
        return EXIT_FINE
    if options.check:
        wrong = differences(reports_folder(), {PAGE: page(found)})
        return say_differences(wrong, (PAGE,), "chapter10.lab.proof.claim_map")
    if not options.missing:
        print(_summary(found))
    return problems(found)


def _show(name: str, found: Map, language: str) -> int:
    if name not in found.claims:
        sys.stderr.write(f"there is no claim {name}; they are C10-001 to I4-103, see reports/{PAGE}\n")
        return EXIT_USAGE
    print("\n".join(sheet(found.claims[name], found, language)))
    return EXIT_FINE


def _find(words: str, found: Map, language: str) -> int:
    wanted = words.casefold().split()
    hits = [claim for claim in found.claims.values() if all(word in _searched(claim) for word in wanted)]
    for claim in hits:
        print(f"{claim.id}  {claim.sentence.in_language(language)}")
    if not hits:
        sys.stderr.write("no claim has these words; fewer or other ones may help\n")
    return EXIT_FINE if hits else EXIT_WRONG


def _searched(claim: Claim) -> str:
    """Return what is said of a claim in both languages, folded, with its id and its figures' places."""
    figures = [f"{figure.place} {canonical(figure.value)}" for figure in claim.expect]
    return " ".join([claim.id, claim.kind, *claim.sentence, *claim.section, *figures]).casefold()


def _summary(found: Map) -> str:
    tested = sum(name in found.proved for name in found.claims)
    reasons = [c.reason_kind for name, c in found.claims.items() if name not in found.proved and c.reason]
    tests = {(place.path, place.name) for places in found.proved.values() for place in places}
    return (
        f"{len(found.claims)} claims: {tested} with a test, {reasons.count('out_of_scope')} out of scope, "
        f"{reasons.count('prose')} prose, {len(found.missing)} missing; {len(tests)} tests name a claim, "
        f"{len(found.broken)} claims have something that breaks them"
    )


def problems(found: Map) -> int:
    """Print what is missing or unknown, and return the exit code."""
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
