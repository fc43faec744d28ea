"""You are the scheduler: a job's life on one page, to be read and played with: `python -m chapter10 scheduler`.

    python -m chapter10 scheduler            what it would write, in a few words
    python -m chapter10 scheduler --write    reports/scheduler.html anew (--check compares it with a new run)

Untouched the page tells of a worker that freezes and comes back too late. With its script, every move that is possible
is a button, and what the store makes of it is what the real store answered when it was asked: `lab.scheduler.recorder`
asks, `packing` makes it short. Choose a guard, and the page plays with the answers of the store without it. The script
is `page.js`; nothing else runs, and nothing is fetched or kept, which the page's own policy says to the browser.

What it does not do: more than one job, or a queue that is full, which takes two (reports/guards.md shows that).
Source: claims C10-213, C10-229 to C10-238, C10-297.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from chapter10.experiments import reports_folder
from chapter10.jobs import STATES
from chapter10.lab.console.strings import Text
from chapter10.lab.console.textio import EXIT_FINE, main_guard
from chapter10.lab.evidence.files import differences, replace_together, say_differences
from chapter10.lab.histories.explore import CHINESE
from chapter10.lab.histories.explorer import Answers, counterexample
from chapter10.lab.histories.guards import Guard, mark_of
from chapter10.lab.histories.invariants import INVARIANTS
from chapter10.lab.histories.world import STRANGER, WORKERS, Action, Row
from chapter10.lab.scheduler.packing import LETTERS, pack
from chapter10.lab.scheduler.play import CHALLENGES, START, Turn, moves, moves_of, play, possible, shortest
from chapter10.lab.scheduler.recorder import CALLER, PLAYED, WORLD, Recording, record, record_without
from chapter10.lab.scheduler.words import CHALLENGES as CHALLENGE_TEXTS
from chapter10.lab.scheduler.words import TEXTS

__all__ = ["ACTORS", "PAGE", "STORY", "address_of", "data_of", "main", "page", "sentence", "written"]

PAGE: Final = "scheduler.html"
ACTORS: Final = (CALLER, *WORKERS[:2], "clock", "sweeper", STRANGER)
_HERE: Final = Path(__file__).parent
_A, _B = WORKERS[:2]

STORY: Final = (
    Action(CALLER, "submit", 1),
    Action(_A, "claim", 1),
    Action(_A, "progress", 1, 1, 1),
    Action(_A, "freeze"),
    Action("clock", "tick"),
    Action("clock", "tick"),
    Action(_B, "claim", 1),
    Action(_A, "wake"),
    Action(_A, "finish", 1, 1),
    Action(_B, "finish", 1, 2),
)
"""What the page tells when nobody has touched it: the chapter's worker that comes back too late."""

_PAGE: Final = """\
<!doctype html>
<html lang="zh">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{style_hash}'; script-src '{script_hash}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>你来调度 / You are the scheduler</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="tools"><button type="button" id="lang" data-key="lang">中文 / English</button></p>
{intro}
<div class="tools">
<h2>{challenges_title}</h2>
<ol id="challenges">{challenges}</ol>
<p><label for="guard">{guard_label}</label> <select id="guard" data-key="guard"></select></p>
<p id="why"></p>
</div>
<div class="columns">
<div>
<div class="tools">
<p id="say" role="status" tabindex="-1"></p>
{bar}
<p id="clock"></p>
<p><button type="button" id="back" data-key="back">&larr; {back}</button><button type="button" id="forward" data-key="forward">{forward} &rarr;</button><button type="button" id="again" data-key="again">{again}</button></p>
<div id="buttons"></div>
</div>
<h2>{story_title}</h2>
<ol id="story">{story}</ol>
</div>
<div>
<h2>{tables_title}</h2>
{tables}
<h2>{promises_title}</h2>
<ul id="promises">{promises}</ul>
</div>
</div>
<p>{more} <a href="guards.md">guards.md</a> · <a href="index.html">index.html</a> · <code>python -m chapter10 explore</code></p>
</main>
{lanes}
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""  # noqa: E501 - the head of a page
_INTRO: Final = (
    Text(
        "一份作业，两个 worker，一只走到 5 的时钟；租约 2 格，截止时间在提交后 4 格，最多尝试 2 次。"
        "下面是一个 worker 冻住、回来晚了的经过。每个回答都由真实的作业库给出，记录在这一页里。",
        "One job, two workers, a clock that goes to 5; a lease is 2 ticks, the deadline 4 after the submission, with 2 "
        "attempts at most. Below, a worker freezes and comes back too late. Each answer is the real store's, recorded "
        "in this page.",
    ),
    Text(
        "你来按：现在可以做的都是按钮，左右方向键前后走，地址里就是整段历史。"
        "防护齐全时三个挑战都做不到；在列表里拿掉一道防护再试。",
        "Press what you like: whatever is possible now is a button, the arrow keys go back and forward, and the "
        "address holds the whole history. With every guard in place none of the three can be done; take one out and "
        "try again.",
    ),
)
_HEADS: Final = {
    "title": Text("你来调度", "You are the scheduler"),
    "challenges_title": Text("三个挑战", "Three challenges"),
    "guard_label": Text("拿掉一道防护：", "Take a guard out:"),
    "back": Text("退一步", "back"),
    "forward": Text("进一步", "forward"),
    "again": Text("从头来", "from the start"),
    "story_title": Text("经过", "What happened"),
    "tables_title": Text("三张表", "The three tables"),
    "promises_title": Text("承诺", "The promises"),
    "more": Text("每道防护的最短反例：", "The shortest history that breaks without each guard:"),
}
_LANES: Final = 4
_BAR: Final = (
    '<svg class="wide" viewBox="0 0 400 56" aria-hidden="true"><line x1="20" x2="380" y1="30" y2="30"/>'
    + "".join(f'<text x="{20 + 36 * moment}" y="52">{moment}</text>' for moment in range(11))
    + '<rect id="lease" x="0" y="22" width="0" height="16"/><path id="due" d=""/><circle id="now" cy="30" r="7"/></svg>'
)
_TABLES: Final = {
    "jobs": ("id", "state", "attempt", "deadline", "ready_at", "lease_until", "done", "total", "error", "ended_at"),
    "receipts": ("job_id", "attempt", "data"),
    "events": ("seq", "at", "attempt", "kind", "detail"),
}


def page() -> str:
    """Ask the real store everything and return the page, UTF-8 text of HTML with LF and a line break at its end."""
    whole = record()
    without = {guard.name: record_without(guard, whole) for guard in PLAYED}
    return written(whole, data_of(whole, without))


def data_of(whole: Recording, without: Mapping[str, Recording]) -> dict[str, Any]:
    """Return what the script reads: the packed answers, the texts, and of each guard its history and its line."""
    data = pack(whole, without)
    answers = Answers()
    for guard in PLAYED:
        data["guards"][guard.name].update(_about(guard, without[guard.name], answers))
    ways = []
    for challenge in CHALLENGES:
        found = {name: recording for name, recording in without.items() if possible(recording, challenge)}
        ways.append([min(len(shortest(recording, challenge)) for recording in found.values()), *found])
    texts = {name: text._asdict() for name, text in TEXTS.items()}
    rules = {"letters": LETTERS, "states": STATES, "until": WORLD.until, "actors": ACTORS}
    return {**rules, "texts": texts, "challenges": ways, "story": address_of(whole, STORY), **data}


def _about(guard: Guard, recording: Recording, answers: Answers) -> dict[str, Any]:
    broken = counterexample(guard, answers).broken
    if broken is None:
        raise ValueError(f"without {guard.name} no history breaks a promise")
    mark = mark_of(guard)
    return {
        "why": {"zh": CHINESE[guard.sentence], "en": guard.sentence[0].upper() + guard.sentence[1:]},
        "where": mark.path,  # and no number of a line, which any other change would move
        "line": mark.text,
        "history": address_of(recording, moves_of(broken.history)),
    }


def address_of(recording: Recording, made: Sequence[Action]) -> str:
    """Return a history as letters: for each move its place among those that are possible."""
    turns = play(recording, made)
    return "".join(LETTERS[moves(turn.before).index(turn.move)] for turn in turns)


def written(whole: Recording, data: Mapping[str, Any]) -> str:
    """Return the page around what the script reads; `whole`: the recording that tells the story."""
    style, script = ((_HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    turns = play(whole, STORY)
    return _PAGE.format(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        intro="\n".join(f"<p>{_both(text)}</p>" for text in _INTRO),
        challenges="".join(f'<li>{_both(text)} <span class="done"></span></li>' for text in CHALLENGE_TEXTS),
        bar=_BAR,
        lanes="".join(f'<template id="lane{number}">{_lane(number)}</template>' for number in range(len(ACTORS))),
        story="".join(map(_step, turns)),
        tables="\n".join(_table(name, rows) for name, rows in _rows(turns).items()),
        promises="".join(_promises()),
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        **{name: _both(text) for name, text in _HEADS.items()},
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# What is read without the script -------------------------------------------------------------------


def _step(turn: Turn) -> str:
    moved = "; ".join(_changes(turn))
    code = f"<br><code>{escape(moved)}</code>" if moved else ""
    lane = _lane(ACTORS.index(turn.move.actor))
    return f'<li>{lane}<span class="t">{turn.before.now}</span><p>{_both(_told(turn))}{code}</p></li>'


def _lane(number: int) -> str:
    """Return the lanes of the caller, the two workers and everybody else, with a dot in one."""
    number = min(number, _LANES - 1)
    lines = "".join(f'<line x1="{9 + 18 * n}" x2="{9 + 18 * n}" y1="0" y2="100%"/>' for n in range(_LANES))
    dot = f'<circle cx="{9 + 18 * number}" cy="20" r="6"/>'
    return f'<svg class="c{number}" width="{18 * _LANES}" aria-hidden="true">{lines}{dot}</svg>'


def _told(turn: Turn) -> Text:
    return Text(*(sentence(turn, language) for language in Text._fields))


def sentence(turn: Turn, language: str) -> str:
    """Return what the page says of a turn, in `zh` or `en`: who did what, what the store answered, what that means."""

    def say(name: str, **values: object) -> str:
        return TEXTS[name].in_language(language, **values)

    move, outcome = turn.move, turn.outcome
    text = say(move.actor) + say("colon") + say(f"do {move.verb}", count=move.number)
    if move.attempt:
        text += say("of attempt", attempt=move.attempt)
    if outcome is None:
        return text + say("stop") + say(f"do {move.verb}.")
    answer = json.dumps(outcome.answer, separators=(",", ":"))
    verb = move.verb.removesuffix(", answer lost")
    names = (f"said {name}" for name in (f"{verb}:{answer}", answer, verb, ""))
    row = turn.after.content.rows[0]
    values = {"state": row.state, "lease": row.lease_until, "ready": row.ready_at, "error": row.error}
    return f"{text} → {answer}{say('stop')}{say(next(name for name in names if name in TEXTS), **values)}"


def _changes(turn: Turn) -> Iterator[str]:
    """Yield what a turn changed in the three tables."""
    if turn.outcome is None:
        return
    before = turn.before.content.rows[0] if turn.before.content.rows else None
    for name in Row._fields if turn.after.content.rows else ():
        old, new = getattr(before, name, None), getattr(turn.after.content.rows[0], name)
        if old != new and name in _TABLES["jobs"]:
            yield f"jobs.{name} {'-' if old is None else old} -> {'-' if new is None else new}"
    if turn.before.content.receipts != turn.after.content.receipts:
        yield "receipts + 1"
    yield from (f"events + {kind}" for _, kind, _ in turn.outcome.events)


def _rows(turns: Sequence[Turn]) -> dict[str, list[list[object]]]:
    """Return the rows of the three tables at the end."""
    content = turns[-1].after.content if turns else START.content
    events: list[list[object]] = []
    for turn in turns:
        for event in turn.outcome.events if turn.outcome else ():
            events.append([len(events) + 1, turn.before.now, *event])
    return {
        "jobs": [[getattr(row, name) for name in _TABLES["jobs"]] for row in content.rows],
        "receipts": [[job_id, attempt, data] for job_id, attempt, _, data in content.receipts],
        "events": events,
    }


def _table(name: str, rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in _TABLES[name])
    cells = ("".join(f"<td>{'-' if value is None else escape(str(value))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<div class="scroll"><table><caption>{name}</caption><thead><tr>{head}</tr></thead>'
        f'<tbody id="{name}">{body}</tbody></table></div>'
    )


def _promises() -> Iterator[str]:
    named = {invariant.number: invariant.sentence for invariant in reversed(INVARIANTS)}
    for number in sorted(named, key=lambda number: int(number[1:])):
        text = Text(CHINESE[named[number]], named[number])
        yield f'<li id="{number}"><span>✓</span> {number} {_both(text)}</li>'


def _both(text: Text) -> str:
    return f'<span lang="zh">{escape(text.zh)}</span> <span lang="en">{escape(text.en)}</span>'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say (those of the process if None) and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 scheduler", description="One page on which a job lives.", allow_abbrev=False
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--write", action="store_true", help=f"write reports/{PAGE} anew")
    one.add_argument("--check", action="store_true", help=f"compare reports/{PAGE} with a new run")
    options = parser.parse_args(arguments)
    print("... asking the store everything, with its guards and without each", file=sys.stderr, flush=True)
    text = page()
    if options.write:
        for path in replace_together(reports_folder(), {PAGE: text}):
            print(path)
        return EXIT_FINE
    if options.check:
        return say_differences(differences(reports_folder(), {PAGE: text}), (PAGE,), "chapter10 scheduler")
    print(f"{len(PLAYED)} guards, {len(text.encode()):,} bytes; --write puts it in {PAGE}")
    return EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
