"""One page with the five groups, for whoever has a browser and no terminal: `python -m chapter10 site`.

    python -m chapter10 site              what it would write, in a few words
    python -m chapter10 site --write      reports/index.html anew (--check compares it with a new run)

The page has no script, no font, no picture file and nothing from elsewhere: a click unfolds what happened, at a
question and below all of a group. Its figures, pictures and answers come from a run that is made now, out of the same
list of calls that the other reports are drawn from, and the questions are those of `--predict`. Every picture is text
beside a drawing: the lanes of the actors are drawn, what they did is written.

What it does not do: it asks nothing, keeps nothing, and shows no line of code that would move.
Source: the chapter's section on its five experiments (claims C10-271 to C10-277).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.experiments import CONTRACT, GROUPS, reports_folder
from chapter10.lab.console.strings import Text
from chapter10.lab.console.textio import EXIT_FINE, Event, main_guard
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.evidence.files import differences, replace_together, say_differences
from chapter10.lab.guessing.predict import Area, Question, reason_for
from chapter10.lab.guessing.predictions import AREAS

__all__ = ["PAGE", "main", "site"]

PAGE: Final = "index.html"

_MAX_CELL: Final = 160
"""Characters of a figure in the table; a longer one is left to the JSON file."""
_LANE: Final = 18
"""Pixels from one lane to the next."""
_PLACES: Final = {
    "queued": (60, 40),
    "running": (190, 40),
    "succeeded": (330, 40),
    "failed": (330, 100),
    "cancel_requested": (190, 160),
    "cancelled": (330, 160),
}
"""The middle of each state's box in the picture of states."""

_STYLE: Final = """\
:root { color-scheme: light dark; --paper: #fdfcf9; --ink: #22262b; --soft: #5d6570; --line: #d9d6cd; --box: #f3f0e8;
  --mark: #0b6e4f; --c0: #1f5fa8; --c1: #a8481f; --c2: #2a752d; --c3: #7a3f9d; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e4e6e8; --soft: #9aa4ae; --line: #363d45;
  --box: #1e2328; --mark: #5fd0a5; --c0: #7fb4f0; --c1: #f0a57f; --c2: #8fd693; --c3: #d0a2ec; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.1rem 4rem; max-width: 52rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.3; } h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 2px solid var(--line); }
p { margin: .4rem 0; } a { color: var(--c0); } [lang=en] { color: var(--soft); }
h1 [lang=en], h2 [lang=en], h3 [lang=en] { font-weight: 500; }
code, kbd { font: .88em/1.5 ui-monospace, Menlo, Consolas, "Noto Sans Mono CJK SC", monospace; }
kbd { display: block; padding: .5rem .7rem; background: var(--box); border-radius: .4rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem .9rem; margin: 1rem 0; }
.scene [lang=en], .ask > p [lang=en], .why [lang=en] { display: block; }
.scene { padding-left: 1.2rem; } .scene li { margin: .2rem 0; }
.ask { margin: 1rem 0; padding: .7rem .9rem; background: var(--box); border-radius: .5rem; }
.ask ol { list-style: lower-alpha; margin: .3rem 0 .6rem; padding-left: 1.6rem; }
summary { cursor: pointer; color: var(--mark); font-weight: 600; padding: .3rem 0; }
.truth { font-weight: 600; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); } td:first-child { width: 46%; }
@media (max-width: 30rem) { td code { font-size: .78em; } }
.lanes { list-style: none; margin: .4rem 0 1.4rem; padding: 0; }
.lanes li { position: relative; padding-left: 2rem; }
.lanes svg { position: absolute; left: 2rem; top: 0; height: 100%; } .lanes p { margin: 0; padding-bottom: .5rem; }
.lanes .t { position: absolute; left: 0; width: 1.5rem; color: var(--soft); text-align: right; }
.came { color: var(--soft); display: block; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
svg line { stroke: var(--line); stroke-width: 2; } svg circle { fill: currentColor; }
.wide { display: block; width: 100%; max-width: 30rem; height: auto; }
.wide rect { fill: var(--box); stroke: var(--soft); } .wide text { fill: var(--ink); font-size: 11px;
  text-anchor: middle; } .wide path { stroke: var(--soft); fill: none; } .wide .tip { fill: var(--soft); }
.wide .full { fill: var(--c1); stroke: none; } .wide .part { fill: var(--mark); stroke: none; }
.wide text.left { text-anchor: start; }
"""

_HEAD: Final = """\
<!doctype html>
<html lang="zh">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>第 10 章的五组实验 / The five experiments of chapter 10</title>
<style>
{style}</style>
</head>
<body>
<h1>第 10 章的五组实验 <span lang="en">The five experiments of chapter 10</span></h1>
<p>先猜，再展开。每个答案都由一次真实运行算出；这一页由程序写成，没有脚本，也不取外面的任何东西。</p>
<p lang="en">Guess, then unfold. Every answer was worked out from a real run; a program wrote this page, it has no
script and takes nothing from elsewhere. {contract}</p>
<nav>{links}</nav>
"""

_FOOT: Final = """\
<h2>还有 <span lang="en">More</span></h2>
<p>在自己的终端里猜 <span lang="en">Guess in your own terminal</span></p>
<p><kbd>python -m chapter10.experiments --group failures --predict</kbd></p>
<p><a href="tool-jobs-evidence.json">所有数值 / all figures</a> · <a href="tool-jobs-evidence.md">文字与 Mermaid /
text and Mermaid</a> · <a href="guards.md">拿掉一道防护 / one guard less</a> ·
<a href="claim-map.md">断言地图 / the claim map</a> · <a href="../README.zh-CN.md">README</a></p>
</body>
</html>
"""


def site() -> str:
    """Run the five groups and return the page, UTF-8 text of HTML with LF and a line break at its end."""
    links = " ".join(f'<a href="#{name}">{_both(AREAS[name].title)}</a>' for name in GROUPS)
    parts = [_HEAD.format(style=_STYLE, contract=escape(CONTRACT), links=links)]
    for number, (name, run) in enumerate(GROUPS.items(), 1):
        scene = Scene()
        figures = run(scene=scene)
        parts += _group(number, AREAS[name], figures, scene)
    return "\n".join([*parts, _FOOT])


def _group(number: int, area: Area, figures: Mapping[str, Any], scene: Scene) -> Iterator[str]:
    yield f'<section id="{area.name}">\n<h2>{number} {_both(area.title)}</h2>'
    yield f"<p><kbd>python -m chapter10.experiments --group {area.name}</kbd></p>"
    yield '<ul class="scene">' + "".join(f"<li>{_both(text)}</li>" for text in area.scene) + "</ul>"
    yield _heading("先猜", "Guess first")
    for question in area.questions:
        yield _question(question, figures)
    yield f"<details><summary>{_both(Text('发生了什么', 'What happened'))}</summary>"
    if "full_definitions_bytes" in figures:
        yield _bars(figures)
    for title, events in scene.parts:
        if title:
            yield _heading(*title.split(" / "))
        yield _lanes(events)
    if scene.transitions:
        yield _heading("作业走过的状态", "The states that the jobs went through")
        yield _states(scene.transitions, f"tip-{area.name}")
    yield _heading("数值", "Figures")
    yield f"{_table(figures)}</details>"
    command, why = area.change
    yield _heading("改一处，再猜", "Change one thing")
    yield f"<p>{_both(why)}</p>\n<p><kbd>{escape(command)}</kbd></p>\n</section>"


def _question(question: Question, figures: Mapping[str, Any]) -> str:
    letter = question.truth(figures)
    options = "".join(f"<li>{_both(text)}</li>" for text in question.options.values())
    shown = ", ".join(f"{name} = {canonical(_field(figures, name))}" for name in question.shows)
    answer = f"{letter}) {_both(question.options[letter])}"
    module = question.code.__module__.replace(".", "/")
    return (
        f'<div class="ask"><p>{_both(question.ask)}</p>\n<ol>{options}</ol>\n'
        f'<details><summary>看结果 <span lang="en">What happened</span></summary>\n'
        f'<p class="truth">{answer}</p>\n<p><code>{escape(shown)}</code></p>\n'
        f'<p class="why">{_both(reason_for(question, figures))}</p>\n'
        f"<p>《{escape(question.section)}》 · "
        f'<a href="../{module}.py"><code>{escape(question.code.__qualname__)}</code></a></p>\n'
        f"<p><code>python -m unittest chapter10.tests.{escape(question.test)}</code></p></details></div>"
    )


# Pictures -----------------------------------------------------------------------------------------


def _lanes(events: Sequence[Event]) -> str:
    """Return the events as rows: the time, the lanes of the actors with a dot in one, and what was done."""
    actors = list(dict.fromkeys(event.actor for event in events))
    lines = "".join(f'<line x1="{_x(n)}" x2="{_x(n)}" y1="0" y2="100%"/>' for n in range(len(actors)))
    rows = []
    for event in events:
        lane = actors.index(event.actor)
        dot = f'<circle cx="{_x(lane)}" cy="13" r="6"/>'
        came = f'<span class="came">-&gt; {escape(event.detail)}</span>' if event.detail else ""
        rows.append(
            f'<li><span class="t">{event.t:g}</span>'
            f'<svg class="c{lane % 4}" width="{_LANE * len(actors)}" aria-hidden="true">{lines}{dot}</svg>'
            f'<p style="padding-left: {_LANE * len(actors) + 6}px"><b class="c{lane % 4}">{escape(event.actor)}</b> '
            f"<code>{escape(event.what)}</code>{came}</p></li>"
        )
    return f'<ol class="lanes">{"".join(rows)}</ol>'


def _x(lane: int) -> int:
    return lane * _LANE + _LANE // 2


def _states(transitions: Sequence[tuple[str, str, str]], tip: str) -> str:
    """Return the states that were seen, with an arrow for each change, and the reasons as a list."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for before, after, why in dict.fromkeys(transitions):
        reasons.setdefault((before, after), []).append(why.removeprefix(after).removeprefix(", "))
    arrows = "".join(_arrow(before, after, tip) for before, after in reasons if before and before != after)
    boxes = "".join(
        f'<rect x="{x - 52}" y="{y - 15}" width="104" height="30" rx="7"/><text x="{x}" y="{y + 4}">{state}</text>'
        for state, (x, y) in _PLACES.items()
        if any(state in (before, after) for before, after in reasons)
    )
    marker = f'<marker id="{tip}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    marker += '<path class="tip" d="M0 0L8 4L0 8z"/></marker>'
    rows = "".join(
        f"<li><code>{before or 'o'} -&gt; {after}</code> {escape(', '.join(filter(None, why)))}</li>"
        for (before, after), why in reasons.items()
    )
    return (
        f'<svg class="wide" viewBox="0 0 390 200" role="img" aria-label="states">{marker}{arrows}{boxes}</svg>'
        f'<ul class="scene">{rows}</ul>'
    )


def _arrow(before: str, after: str, tip: str) -> str:
    (x1, y1), (x2, y2) = _PLACES[before], _PLACES[after]
    if y1 == y2:  # side by side; the way back runs a little lower
        side, low = (53, -5) if x2 > x1 else (-53, 6)
        start, end = (x1 + side, y1 + low), (x2 - side, y2 + low)
    elif x1 == x2:
        start, end = (x1, y1 + 16), (x2, y2 - 16)
    elif x2 - x1 > 200:  # round the states in between
        return f'<path d="M{x1} {y1 + 16}V192H{x2}V{y2 + 17}" marker-end="url(#{tip})"/>'
    else:
        start, end = (x1 + 30, y1 + 16), (x2 - 53, y2)
    return f'<path d="M{start[0]} {start[1]}L{end[0]} {end[1]}" marker-end="url(#{tip})"/>'


def _bars(figures: Mapping[str, Any]) -> str:
    """Return the two paths of the catalog as bars of one scale."""
    full, part = figures["full_definitions_bytes"], figures["deferred_visible_payload_bytes"]
    rows = (("full", full, "全部可发现 / all discoverable", 10), ("part", part, "按需 / on demand", 60))
    drawn = "".join(
        f'<text class="left" x="0" y="{y}">{text}: {size:,} bytes</text>'
        f'<rect class="{name}" x="0" y="{y + 6}" width="{max(1.0, 380 * size / max(full, part)):.1f}" height="18"/>'
        for name, size, text, y in rows
    )
    return f'<svg class="wide" viewBox="0 0 390 92" role="img" aria-label="{full:,} : {part:,} bytes">{drawn}</svg>'


# Helpers ------------------------------------------------------------------------------------------


def _both(text: Text) -> str:
    if text.zh == text.en:  # a word of the code
        return _html(text.zh)
    return f'{_html(text.zh)} <span lang="en">{_html(text.en)}</span>'


def _html(text: str) -> str:
    return escape(text.replace("\n", " "))


def _heading(zh: str, en: str) -> str:
    return f"<h3>{_both(Text(zh, en))}</h3>"


def _field(figures: Any, name: str) -> Any:
    for key in name.split("."):
        figures = figures[key]
    return figures


def _table(figures: Mapping[str, Any]) -> str:
    rows = []
    for name, value in figures.items():
        text = canonical(value)
        link = '<a href="tool-jobs-evidence.json">JSON</a>'
        shown = f"<code>{escape(text)}</code>" if len(text) <= _MAX_CELL else link
        rows.append(f"<tr><td><code>{name}</code></td><td>{shown}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say (those of the process if None) and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 site", description="One page with the five groups.", allow_abbrev=False
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--write", action="store_true", help=f"write reports/{PAGE} anew")
    one.add_argument("--check", action="store_true", help=f"compare reports/{PAGE} with a new run")
    options = parser.parse_args(arguments)
    text = site()
    if options.write:
        for path in replace_together(reports_folder(), {PAGE: text}):
            print(path)
        return EXIT_FINE
    if options.check:
        return say_differences(differences(reports_folder(), {PAGE: text}), (PAGE,), "chapter10.lab.reader.site")
    questions = text.count('<div class="ask">')
    print(
        f"{len(GROUPS)} groups, {questions} questions, {len(text.encode('utf-8')):,} bytes; --write puts it in {PAGE}"
    )
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
