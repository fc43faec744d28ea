"""Where each sentence of the book is promised, proved and broken: `python -m chapter10 claims`.

    python -m chapter10 claims                    how many claims have a test, how many a reason
    python -m chapter10 claims --claim ID         one claim: the line, the tests, what breaks without it
    python -m chapter10 claims --find 租约        claims with these words, in either language
    python -m chapter10 claims --missing          claims with neither a test nor a reason
    python -m chapter10 claims --write            reports/claim-map*.md anew (--check compares them)

The places come from `lab.proof.claims`, which finds them in the sources. The pages have no line numbers, so that an
edit above a function does not change them; `--claim` looks them up when it runs. A claim without a test says
why: it is out of scope, or prose. Whether a test proves what it names is the question of `lab.proof.proofs`.

Exit codes: 0 fine, 1 a claim is missing or a page differs, 2 usage, 3 the machine lacks something.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from chapter10.canonical import canonical
from chapter10.experiments import reports_folder
from chapter10.lab.console.strings import LANGUAGES, Text, choose_language
from chapter10.lab.console.textio import EXIT_FINE, EXIT_USAGE, EXIT_WRONG, main_guard
from chapter10.lab.evidence.files import differences, replace_together, say_differences
from chapter10.lab.proof.claims import Claim, Map, Place, read_map

__all__ = ["PAGE", "main", "pages", "problems", "sheet"]

PAGE: Final = "claim-map.md"
"""The index; the pages of the parts stand beside it."""

_TESTS: Final = Path(__file__).resolve().parents[2] / "tests"
_PARTS: Final[Mapping[str, Text]] = {
    "catalog": Text("章节，找工具", "the chapter, finding tools"),
    "concurrency": Text("章节，有限并发", "the chapter, bounded reads"),
    "jobs": Text("章节，持久作业", "the chapter, durable jobs"),
    "chapter": Text("章节，三者之外", "the chapter, around the three"),
    "orchestration": Text("工具编排", "tool orchestration"),
    "registry": Text("工具系统", "the tool registry"),
    "interruption": Text("幂等性与中断传播", "idempotency and interrupts"),
}
"""The pages of the map: four of the chapter, one of each companion document."""
_COMPANIONS: Final = {"C8": "orchestration", "T6": "registry", "I4": "interruption"}


# The pages ----------------------------------------------------------------------------------------

_HEAD: Final = """\
# 断言地图 / The claim map

书里每一句可以由程序检查的话：在代码的哪里承诺或守住，由哪个测试证明。由程序从源码写成，不手改。
Every sentence of the chapter and of its three companion documents that a program can check: where the code
promises or guards it, and a test that proves it. Written from the sources by a program, never by hand.
产品事实核对至 2026-09-07。Product facts are as of 2026-09-07: lock your client version.

```text
python -m chapter10 claims --claim C10-229    one claim: its lines as they are now, every test, what breaks it
python -m chapter10 claims --find 租约        claims with these words
python -m chapter10 claims --write            these pages anew
```

| 页 / page | 断言 / claims | 有测试 / with a test | 超出范围 / out of scope | 文字 / prose | 缺 / missing |
|---|---:|---:|---:|---:|---:|
{counts}

| 断言 / claims | 小节 / section |
|---|---|
{sections}
"""

_PART: Final = """\
# 断言地图：{title.zh} / The claim map: {title.en}

全部页面见 / all pages: [{index}]({index})。`+2` 表示还有两处，`--claim` 会逐个列出。
`+2`: there are two more, and `--claim` lists them.
"""

_COLUMNS: Final = "| 断言 / claim | | 承诺或守住它 / promised or guarded | 证明 / proved |\n|---|---|---|---|"


def pages(found: Map) -> dict[str, str]:
    """Return the Markdown pages of the map by file name: the index first, then one for each part of the book."""
    sections: dict[tuple[str, Text], list[Claim]] = {}
    for claim in found.claims.values():
        sections.setdefault((_part_of(claim), claim.section), []).append(claim)
    naming = Counter(place for of in (found.promised, found.proved) for places in of.values() for place in places)
    index, texts = [], {}
    for part, title in _PARTS.items():
        name = f"claim-map-{part}.md"
        texts[name] = _PART.format(title=title, index=PAGE)
        for (of, section), claims in sections.items():
            if of == part:
                rows = "\n".join(_row(claim, found, naming) for claim in claims)
                texts[name] += f"\n## {section.zh} / {section.en}\n\n{_COLUMNS}\n{rows}\n"
                index.append(f"| {claims[0].id} to {claims[-1].id} | [{section.zh} / {section.en}]({name}) |")
    return {PAGE: _HEAD.format(counts="\n".join(_counts(found)), sections="\n".join(index)), **texts}


def _part_of(claim: Claim) -> str:
    """The page of a claim: its document, and of the chapter the room, or all that is about none of the three."""
    return _COMPANIONS.get(claim.document) or (claim.room if claim.room in _PARTS else "chapter")


def _counts(found: Map) -> Iterator[str]:
    for part, title in [*_PARTS.items(), ("", Text("合计", "together"))]:
        claims = [claim for claim in found.claims.values() if part in ("", _part_of(claim))]
        reasons = [claim.reason_kind for claim in claims if claim.id not in found.proved]
        cells = [len(claims), len(claims) - len(reasons), *map(reasons.count, ("out_of_scope", "prose", ""))]
        name = f"{title.zh} / {title.en}"
        yield f"| {f'[{name}](claim-map-{part}.md)' if part else name} | " + " | ".join(map(str, cells)) + " |"


def _row(claim: Claim, found: Map, naming: Counter[Place]) -> str:
    words = f"{claim.sentence.zh}<br>{claim.sentence.en}"
    if claim.reason:
        words += f"<br>{claim.reason_kind.replace('_', ' ')}: {claim.reason}"
    guards = [breaker.name for breaker in found.broken.get(claim.id, ()) if breaker.kind == "guard"]
    lines = [f"[`{name}`](guards.md#{name.replace('.', '')}){_more(guards)}" for name in guards[:1]]
    lines.insert(0, _narrowest(_specific(found.promised.get(claim.id, ())), naming))
    cells = [claim.id, words, "<br>".join(filter(None, lines)), _narrowest(found.proved.get(claim.id, ()), naming)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _specific(places: Sequence[Place]) -> Sequence[Place]:
    """Leave out a module in which one of its names makes the promise."""
    named = {place.path for place in places if place.name}
    return [place for place in places if place.name or place.path not in named]


def _narrowest(places: Sequence[Place], naming: Counter[Place]) -> str:
    """Return a link to the place that names the fewest claims, on the lowest floor, and how many more there are."""
    if not places:
        return ""
    place = min(places, key=lambda each: (each.path.startswith("lab/"), each.path.count("/"), naming[each]))
    title = place.path.removesuffix(".py").removeprefix("tests/").rpartition("/")[2].replace("__", "\\_\\_")
    name = place.name.rpartition(".")[2] if "/test_" in place.path else place.name
    return f"[{title}](../chapter10/{place.path})" + f" `{name}`" * bool(name) + _more(places)


def _more(places: Sequence[object]) -> str:
    return f" +{len(places) - 1}" if len(places) > 1 else ""


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
        shown = [f"  {line}" for line in dict.fromkeys(lines)]
        return ["", _LABELS[label].in_language(language), *shown] if shown else []

    promised = _specific(found.promised.get(claim.id, ()))
    proved = found.proved.get(claim.id, ())
    breakers = found.broken.get(claim.id, ())
    verbs: dict[str, list[str]] = {}  # of each guarded line
    for guard in breakers:
        if guard.kind == "guard":
            line = f"chapter10/{guard.path}:{guard.line}  {guard.text}"
            verbs.setdefault(line, []).append(guard.name.rpartition(".")[2])
    title = f"{_PARTS[_part_of(claim)].in_language(language)}: {claim.section.in_language(language)}"
    lines = [f"{claim.id}  {claim.kind}  {title}", claim.sentence.in_language(language)]
    lines += block("line", (f"{line}    ({', '.join(names)})" for line, names in verbs.items()))
    lines += block("promised", (f"chapter10/{p.path}:{p.line}  {p.name or p.module}" for p in promised))
    lines += block("figures", (f"{figure.place} = {canonical(figure.value)}" for figure in claim.expect))
    lines += block("proved", (f"python -m unittest chapter10.{p.module}.{p.name}" for p in proved))
    lines += block("broken", (breaker.command for breaker in breakers))
    lines += block("reason", [claim.reason] if claim.reason else [])
    lines += block("unguarded", [claim.unguarded] if claim.unguarded else [])
    if not proved and not claim.reason:
        lines += ["", _LABELS["nothing"].in_language(language)]
    return lines


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
    one.add_argument("--write", action="store_true", help="write the pages reports/claim-map*.md anew")
    one.add_argument("--check", action="store_true", help="compare these pages with the sources")
    parser.add_argument("--lang", choices=LANGUAGES, help="with --claim and --find: the language of the sentences")
    options = parser.parse_args(arguments)
    if not _TESTS.is_dir():
        sys.stderr.write("this copy has no tests; run it in the repository\n")
        return EXIT_USAGE
    try:
        found = read_map()
    except ValueError as error:  # a guard without its mark, a row that does not fit
        print(f"[X] {error}")
        return EXIT_WRONG
    if options.claim is not None:
        return _show(options.claim.strip().upper(), found, choose_language(options.lang))
    if options.find is not None:
        return _find(options.find, found, choose_language(options.lang))
    if options.write:
        for path in replace_together(reports_folder(), pages(found)):
            print(path)
        return EXIT_FINE
    if options.check:
        wrong = differences(reports_folder(), pages(found))
        return say_differences(wrong, (PAGE, "the pages beside it"), "chapter10 claims")
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
    tested, broken = (len(found.claims.keys() & places.keys()) for places in (found.proved, found.broken))
    return f"{len(found.claims)} claims: {tested} with a test, {len(found.missing)} missing, {broken} can be broken"


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
