"""The group `results`: what the two limits decide over three turns, and that what was sent never changes.

Sizes are code points. The results lie in a temporary folder; what a model reads names them by a label and a
digest, so that the same bytes come out everywhere.
Source: the orchestration document, sections 8.4 to 8.6 (claims C8-043 to C8-074, C8-080 to C8-084).
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from chapter10.companions.tools.result_budget import (
    MESSAGE_LIMIT_CHARS,
    BudgetReport,
    Candidate,
    Message,
    ReplacementState,
    ResultBudget,
    select_fresh_to_replace,
)
from chapter10.companions.tools.result_store import PREVIEW_CHARS, ResultStore, visible_content
from chapter10.companions.tools.result_text import cut_text
from chapter10.companions.tools.returned import server_answer
from chapter10.companions.tools.transcript import prefix_digests, problems_of
from chapter10.lab.evidence.evidence import Group, Scene

__all__ = ["GROUP", "results_experiment"]

_TURNS: Final[Sequence[Sequence[tuple[str, str, int]]]] = (
    tuple((f"a{number}", "Bash", 40_000) for number in range(10)),
    (("b0", "Grep", 120_000), ("b1", "Bash", 45_000), ("b2", "Read", 250_000)),
    (("c0", "Bash", 30_000), ("c1", "Bash", 0)),
)
"""The results of three turns: id, tool, characters. Ten of 40,000 are the document's example."""
_LIMITS: Final = {"Read": math.inf}
_EMPTY: Final[Sequence[tuple[str, Any]]] = (
    ("nothing", None),
    ("no text", ""),
    ("white space", " \n\t"),
    ("no blocks", []),
    ("empty text blocks", [{"type": "text", "text": ""}, {"type": "text", "text": " "}]),
    ("zero", 0),
    ("false", False),
    ("one full block", [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]),
)
_SERVER: Final[Sequence[tuple[str, Any]]] = (
    ("a text", {"content": [{"type": "text", "text": "3 orders"}]}),
    ("a text and the data", {"content": [{"type": "text", "text": "3 orders"}], "structuredContent": {"orders": 3}}),
    ("data said twice", {"content": [{"type": "text", "text": '{"orders":3}'}], "structuredContent": {"orders": 3}}),
    ("a failure", {"content": [{"type": "text", "text": "no such day"}], "isError": True}),
    ("an image", {"content": [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]}),
)
"""What tool servers really return."""
_GREEDY: Final = (50_000, 50_000, 50_000, 47_000, 6_000)


def results_experiment(scene: Scene) -> dict[str, Any]:
    """Send three turns, save and load the state before the third, then look at the choice and at what is empty."""
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        turns = _three_turns(scene, Path(folder))
    scene.begin("空结果 / empty results")
    empty = []
    for case, content in _EMPTY:
        seen = visible_content("Bash", content)
        scene.note("tool", f"returns {case}", str(seen))
        empty.append(
            {"result": case, "success": str(seen), "failure": str(visible_content("Bash", content, is_error=True))}
        )
    return {**turns, **_the_choice(), "empty": empty, "servers": _of_servers(scene), **_the_cut()}


def _of_servers(scene: Scene) -> list[dict[str, Any]]:
    """Read answers in the form of a tool server; what is no text is kept, and the model reads where."""
    scene.begin("工具服务器的结果 / results of tool servers")
    rows = []
    for case, answer in _SERVER:
        found = server_answer(answer, lambda text: f"<place of {len(text)} characters>")
        assert found is not None
        data, failed = found
        scene.note("server", f"returns {case}", str(data))
        rows.append({"returned": case, "failed": failed, "the model reads": str(data)})
    return rows


def _the_cut() -> dict[str, Any]:
    """What a test run says stands at its end, so head and tail are shown, by whole lines."""
    lines = [f"test {number} ok" for number in range(1, 500)] + ["test 500 FAILED", "1 of 500 failed"]
    shown = cut_text("\n".join(lines), 200).splitlines()
    return {"first_line_of_a_cut_log": shown[0], "last_lines_of_a_cut_log": shown[-2:]}


def _three_turns(scene: Scene, folder: Path) -> dict[str, Any]:
    scene.begin("三轮请求 / three requests")
    store = ResultStore(folder / "results")
    budget = ResultBudget(store, tool_limits=_LIMITS)
    transcript: list[Message] = [{"role": "user", "content": "Read everything."}]
    requests: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    before: list[str] = []
    for number, results in enumerate(_TURNS, 1):
        if number == 3:  # another process goes on, the limit is lower now, and the disk has lost its files
            shutil.rmtree(folder / "results")
            state = ReplacementState.from_text(budget.state.to_text())
            budget = ResultBudget(
                ResultStore(folder / "results"), state=state, tool_limits=_LIMITS, message_limit=20_000
            )
            scene.note("program", "saves the state, loads it elsewhere, lowers the limit", "20000 characters a message")
        transcript += _turn(budget, results)
        messages, report = budget.apply(transcript)
        digests = prefix_digests(messages)
        requests.append(
            {
                "request": number,
                "messages": len(messages),
                "size before": report.groups[-1].size_before,
                "size sent": report.groups[-1].size_after,
                "limit": report.groups[-1].limit,
                "over the limit": report.groups[-1].over_limit,
                "earlier part as sent before": digests[: len(before)] == before,
                "digest of the earlier part": digests[len(before) - 1][:16] if before else "-",
                "digest": digests[-1][:16],
                "problems": len(problems_of(messages)),
            }
        )
        group = report.groups[-1]
        scene.note("program", f"request {number}", f"{group.size_before} -> {group.size_after} of {group.limit}")
        decisions += _decisions(scene, number, report, messages)
        before = digests
    return {"requests": requests, "decisions": decisions, "replaced_in_all": sorted(budget.state.replacements)}


def _turn(budget: ResultBudget, results: Sequence[tuple[str, str, int]]) -> list[Message]:
    """The calls of one answer and their results, each through the limit of its tool."""
    calls = [{"type": "tool_use", "id": call_id, "name": tool, "input": {}} for call_id, tool, _ in results]
    blocks = []
    for call_id, tool, size in results:
        content = budget.shape_result(call_id, tool, _text(call_id, size)).content
        blocks.append({"type": "tool_result", "tool_use_id": call_id, "content": content})
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": blocks}]


def _text(call_id: str, size: int) -> str:
    """A text of so many characters that is like no other."""
    line = f"{call_id}: one line of what the tool found\n"
    return (line * (size // len(line) + 1))[:size]


def _decisions(scene: Scene, number: int, report: BudgetReport, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """What became of each result in this request, the earlier ones too."""
    blocks = {
        block["tool_use_id"]: block["content"]
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    }
    rows = []
    for turn, group in enumerate(report.groups, 1):
        for fate in ("must_reapply", "frozen", "replaced", "kept"):
            ids = getattr(group, fate)
            if ids:
                sent = sum(len(blocks[call_id]) for call_id in ids)
                rows.append({"request": number, "of turn": turn, "fate": fate, "results": " ".join(ids), "sent": sent})
                scene.note("budget", f"turn {turn}: {fate}", " ".join(ids))
    return rows


def _the_choice() -> dict[str, Any]:
    """Greedy replaces the fewest results; it does not replace the fewest characters."""
    ten = [Candidate(f"a{number}", 40_000) for number in range(10)]
    shown = [Candidate(one.call_id, one.size, PREVIEW_CHARS) for one in ten]
    sizes = [Candidate(f"g{number}", size, PREVIEW_CHARS) for number, size in enumerate(_GREEDY)]
    chosen = select_fresh_to_replace(sizes, 0, MESSAGE_LIMIT_CHARS)
    smallest = sizes[-1]
    return {
        "ten_of_40000_by_the_formula": len(select_fresh_to_replace(ten, 0, MESSAGE_LIMIT_CHARS)),
        "ten_of_40000_with_previews": len(select_fresh_to_replace(shown, 0, MESSAGE_LIMIT_CHARS)),
        "greedy_of": list(_GREEDY),
        "greedy_replaces": [candidate.size for candidate in chosen],
        "total_if_6000_were_replaced": sum(_GREEDY) - smallest.size + smallest.replacement_size,
        "message_limit_chars": MESSAGE_LIMIT_CHARS,
        "preview_chars": PREVIEW_CHARS,
    }


GROUP: Final = Group(
    results_experiment,
    title="结果预算 / results",
    target="transcript",
    text="""\
第一轮十个 40,000 字符：公式算出替换 5 个，但每个预览还占着位置，真正发送的要 6 个才够。第二轮里 `b0` 超过单个工具的
阈值，当场存成文件；`b2` 来自回读结果的工具，永远豁免，所以整条消息放不下，如实报告。第三轮换了进程、调低了上限、文件也
没有了：早先决定过的一个字节都不变，摘要相同；只有新结果参加新的决定。

工具服务器的结果按它自己的说法读：`isError` 是失败，文字是文字，图像存起来只给位置。
剪短时留下头和尾，按整行剪：{last_lines_of_a_cut_log} 还在。

Ten results of 40,000 characters: the formula replaces five, but a preview stays in the place of each, and six
are needed for what is really sent. In the second turn `b0` is over the limit of a single tool and is stored
at once; `b2` comes from the tool that reads stored results and is always exempt, so that the message cannot
be kept within its limit, which is reported. For the third, the state was saved and loaded, the limit lowered
and the files lost: nothing that was decided changes by a byte, as the digests show, and only new results are
decided about.

Greedy by size replaces the fewest results. It is not optimal in what reading them back would take: of
{greedy_of} it replaces {greedy_replaces}, where 6,000 would have done ({total_if_6000_were_replaced:,} of \
{message_limit_chars:,}).

What a tool server returns is read as it means it: `isError` is a failure, a text is a text, an image is kept and its
place is shown. A cut keeps head and tail by whole lines, so that the last word of a test run is still there.
""",
    tables=("requests", "decisions", "empty", "servers"),
)
