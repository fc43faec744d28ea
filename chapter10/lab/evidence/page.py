"""The pages that show a run: figures, lanes in text, and the same events in Mermaid.

Every Mermaid picture has its twin in plain text beside it, drawn from the same list of events.

What holds
    E1  The same run gives the same bytes on every machine: no clock, no path, no random number

Source: the chapter's sections on its experiments and reports (claims C10-274, C10-277 to C10-282).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.lab.console.textio import json_text, mermaid_sequence, mermaid_state, text_lanes, text_states
from chapter10.lab.evidence.evidence import Scene

__all__ = ["chapter_reports", "figures_table", "page", "pictures"]

_MAX_CELL: Final = 200
"""Characters of a figure in a table of the page; a longer one is left to the JSON file."""

_HEAD: Final = """\
# 第 10 章的实验证据 / The evidence of chapter 10

{contract}

这一页由程序从一次真实运行写成，不手工修改；同一份代码在任何机器上得到相同的字节。
This page is written by the program from one real run and is never edited by hand; the same code gives
the same bytes on any machine.

```text
python -m chapter10.experiments --write     write this page and the two files beside it
python -m chapter10.experiments --check     compare them with a new run
```

所有数值见 / all figures: [tool-jobs-evidence.json](tool-jobs-evidence.json).
作业事件见 / the job's events: [job-events.jsonl](job-events.jsonl).
代码见 / the code: [experiments.py](../chapter10/experiments.py).

**没有测量的，就是空值。 What was not measured is null.**

| 项 / item | 值 / value | 意思 / meaning |
|---|---|---|
| `model_quality` | `{model_quality}` | 没有请求任何模型 / no model was asked |
| `provider_tokens` | `{provider_tokens}` | 字节不是 Token / bytes are not tokens |
| `external_exactly_once` | `{external_exactly_once}` | 只在自己的数据库内成立 / holds inside its own database only |

**两类证据分开看。 Two kinds of evidence, kept apart.** 目录、边界、生命期、故障四组按固定步骤或逻辑时间进行：
顺序由代码安排，不靠快慢。并发一组在真实的事件循环里运行，用屏障证明重叠。没有一组测量速度。
Catalog, boundaries, lifecycle and failures go by fixed steps or logical time: the code arranges the
order, not the speed. Concurrency runs on a real event loop and proves the overlap with a barrier. None
measures speed.
"""

_TEXTS: Final[dict[str, tuple[str, str, str]]] = {
    "catalog": (
        "目录体积 / catalog",
        "catalog",
        """\
注册了 `registered` 个工具，这个身份能发现 `discoverable` 个（没有退款写权限），本轮只加载 `loaded` 个。
按需路径要把三部分都算上：搜索入口、候选摘要、完整定义。

Registered, discoverable and loaded are three different sets. The path on demand counts everything that
it shows: the search entry, the summaries of the hits and the loaded definitions,
{bootstrap_bytes:,} + {hit_summaries_bytes:,} + {loaded_definitions_bytes:,} = \
{deferred_visible_payload_bytes:,} bytes, against {full_definitions_bytes:,} bytes for every
discoverable definition. These are bytes of UTF-8, neither tokens nor cost nor time.
""",
    ),
    "boundaries": (
        "发现边界 / boundaries",
        "catalog",
        """\
五种结果，五种后续：没有匹配就说没有；平分要澄清，不能拿第一名当答案；超预算就缩小候选，差一个字节也不给半份定义；
权限撤销后，重复多少次仍是 `denied`；定义过期，重新查找并加载即可。

Five outcomes, five different next steps: nothing found, a tie to be clarified, a budget to be met by
fewer candidates (one byte short gives no half definition), a revoked permission that no repetition
brings back, and a stale definition that is found and loaded again.
""",
    ),
    "concurrency": (
        "有限并发 / concurrency",
        "order service",
        """\
前两个读取在屏障前会合，两者都在途才放行，所以 `peak_in_flight` 是观察到的，不是估计的。B 比 A 先完成，
结果仍按调用 ID 归位；C 失败，A 和 B 保留。

The first two reads meet at a barrier that opens only when both are in flight: the overlap is seen, not
guessed from time. B ends before A, and still every result stands under its own call id. C fails alone.
No latency was measured, so that field is null.
""",
    ),
    "lifecycle": (
        "完整生命期 / lifecycle",
        "job store",
        """\
提交之后关闭数据库连接，再用新连接按同一个作业号领取。进度到达总数时状态仍是 `running`：完成由 `finish` 决定。
带着游标 {cursor} 补读，只得到第 {next_seq} 号事件。这不是断电测试。

The connection is closed after the submission and another one claims the same job id. When the progress
is complete the job is still running: only `finish` makes it succeed. Reading after cursor {cursor} gives
the one event that was missed. This is no power-loss test and proves nothing about disk faults.
""",
    ),
    "failures": (
        "故障注入 / failures",
        "job store",
        """\
每个故障发生的时刻由逻辑时间安排：重复提交、同键改参数、租约到期、旧 worker 迟到、提交前后的取消、截止时间、
等待者离开、重试耗尽、越权读取。

Each fault is put at its moment of logical time: a repeated submission, the same key with another
intent, a lease that is over, a worker that comes back late, a cancel before and after the commit, a
deadline, a caller who stops looking, retries that run out, a stranger who asks for the result.
""",
    ),
}
"""For each group: its title, whom its actors talk to, and what it shows."""


def chapter_reports(run: Callable[[Mapping[str, Scene]], dict[str, Any]], groups: Iterable[str]) -> dict[str, str]:
    """Run the chapter's groups and return the text of each of its three reports by file name.

    `run(scenes)` gives the evidence of all groups and lets each scene see its group.
    """
    scenes = {name: Scene() for name in groups}
    evidence = run(scenes)
    events = evidence["groups"]["lifecycle"]["events"]
    return {
        "tool-jobs-evidence.json": json_text(evidence),
        "tool-jobs-evidence.md": page(evidence, scenes),
        "job-events.jsonl": "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events),
    }


def page(evidence: Mapping[str, Any], scenes: Mapping[str, Scene]) -> str:
    """Return the Markdown page of a whole run: figures, lanes in text and the same events in Mermaid.

    `evidence`: what `run_all` returns. `scenes`: the scene of each group.
    """
    head = {name: canonical(value) for name, value in evidence.items() if name not in ("contract", "groups")}
    parts = [_HEAD.format(contract=evidence["contract"], **head)]
    for number, (group, figures) in enumerate(evidence["groups"].items(), 1):
        title, target, text = _TEXTS[group]
        after = {"next_seq": figures["cursor"] + 1} if "cursor" in figures else {}
        parts.append(f"## {number} {title}\n\n```text\npython -m chapter10.experiments --group {group}\n```\n")
        parts.append(text.format(**figures, **after))
        parts.append(figures_table(figures))
        parts += pictures(scenes[group], target)
    return "\n".join(parts)


def figures_table(figures: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table of two columns; a long one is left to the JSON file."""
    lines = ["| 字段 / field | 值 / value |", "|---|---|"]
    for name, value in figures.items():
        text = canonical(value)
        shown = f"`{text}`" if len(text) <= _MAX_CELL else "见 JSON 文件 / see the JSON file"
        lines.append(f"| `{name}` | {shown.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def pictures(scene: Scene, target: str) -> list[str]:
    """Return the pictures of a scene as Markdown blocks: each part in lanes of text, then its events in Mermaid."""
    blocks = []
    for title, events in scene.parts:
        blocks.append(
            f"**{title}**\n" if title else "发生了什么，先文字，后图 / what happened, as text and as a picture\n"
        )
        blocks.append(_fence("text", text_lanes(events)))
        blocks.append(_fence("mermaid", mermaid_sequence(events, target)))
    if scene.transitions:
        blocks.append(f"**{scene.whose_states}**\n")
        blocks.append(_fence("text", text_states(scene.transitions)))
        blocks.append(_fence("mermaid", mermaid_state(scene.transitions)))
    return blocks


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"
