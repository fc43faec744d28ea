"""How a run becomes evidence: what was called, what came back, the page that shows it, the files that keep it.

A `Scene` makes the calls of an experiment and keeps each one with its answer. All pictures are drawn from
that list, so that none of them can show something that did not happen, and every Mermaid picture has its
twin in plain text beside it.

What holds
    E1  The same run gives the same bytes on every machine: no clock, no path, no random number
    E2  `replace_together` puts all files in place or leaves the old ones
    E3  `differences` compares text, not line ends, and names the file and the line

Source: the chapter's sections on its experiments and reports (claims C10-274, C10-277 to C10-282).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import CodedError, canonical
from chapter10.catalog import Tool
from chapter10.jobs import STATES
from chapter10.lab.console.textio import (
    EXIT_FINE,
    EXIT_WRONG,
    Event,
    mermaid_sequence,
    mermaid_state,
    text_lanes,
    text_states,
)

__all__ = [
    "Group",
    "Scene",
    "differences",
    "envelope",
    "figures_table",
    "page",
    "pictures",
    "replace_together",
    "say_differences",
]

_MAX_SHOWN: Final = 64
"""Characters of one value in a picture; a longer one is shown as `{...}`."""
_MAX_ITEMS: Final = 4
"""Items of a list in a picture; a longer one is shown by its length."""
_MAX_CELL: Final = 200
"""Characters of a figure in a table of the page; a longer one is left to the JSON file."""


class Scene:
    """The calls of one experiment in the order in which they were made, for its pictures.

    `parts`: `(title, events)`, one picture each; without `begin` there is one part without a title.
    `transitions`: changes of state as `(before, after, why)`, such as `follow` finds in the event log of a job.
    `now`: the logical time of the last call; None in a part without time, which numbers its steps.
    """

    whose_states = "作业走过的状态变化 / the changes of state that the jobs went through"
    """The title of the picture of `transitions`."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, list[Event]]] = [("", [])]
        self.transitions: list[tuple[str, str, str]] = []
        self.now: int | float | None = None

    def begin(self, title: str) -> None:
        """Start another part, in which time starts anew."""
        if not self.parts[-1][1]:
            self.parts.pop()
        self.parts.append((title, []))
        self.now = None

    def call(self, actor: str, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call `verb`, note it as done by `actor`, and return the answer.

        An option `now` moves the time of the scene. A refusal is noted and raised again.
        """
        self.now = options.get("now", self.now)
        shown = [_argument(value) for value in arguments]
        shown += [f"{name}={_argument(value)}" for name, value in options.items() if name != "now"]
        what = f"{verb.__name__}({', '.join(shown)})"
        try:
            answer = verb(*arguments, **options)
        except CodedError as refused:
            self.note(actor, what, f"refused: {refused.code}")
            raise
        self.note(actor, what, _brief(answer))
        return answer

    def refusal(self, actor: str, verb: Callable[..., Any], *arguments: Any, **options: Any) -> str | None:
        """Make a call as `call` does and return the code with which it is refused; None if it is not."""
        try:
            self.call(actor, verb, *arguments, **options)
        except CodedError as refused:
            return refused.code
        return None

    def note(self, actor: str, what: str, detail: str = "") -> None:
        """Note what happened outside a call."""
        events = self.parts[-1][1]
        events.append(Event(len(events) + 1 if self.now is None else self.now, actor, what, detail))

    def follow(self, job_events: Sequence[Mapping[str, Any]]) -> None:
        """Note the changes of state in the event log of one job, its first event included."""
        before = ""
        for event in job_events:
            kind, error = event["kind"], event["detail"].get("error")
            after = kind if kind in STATES else before  # progress keeps the state
            self.transitions.append((before, after, f"{kind}, {error}" if error else kind))
            before = after


@dataclass(frozen=True, slots=True)
class Group:
    """One experiment and the words that its page has for it.

    `run(scene)` makes the experiment and returns its figures, a JSON object. `title`: in both languages.
    `target`: whom the actors of its pictures talk to. `text`: what it shows, in both languages; `{name}`
    stands for the figure of that name. `tables`: the figures that are lists of objects with the same
    members, each shown as a table of its own.
    """

    run: Callable[[Scene], dict[str, Any]]
    title: str
    target: str
    text: str
    tables: tuple[str, ...] = ()


def envelope(contract: str, groups: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of groups with what they are (`contract`), and with what nothing here measures or claims."""
    return {
        "contract": contract,
        "model_quality": None,
        "provider_tokens": None,
        "external_exactly_once": False,
        "groups": groups,
    }


def _argument(value: object) -> str:
    """Return an argument in few characters, as it could stand in code where it is short."""
    if isinstance(value, AbstractSet):
        return f"{{{len(value)} permissions}}" if value else "{}"
    if isinstance(value, list):
        return f"[{len(value)} items]"
    if isinstance(value, Mapping) and "name" in value:
        return _brief_mapping(value)
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else "{...}"


def _brief(value: object) -> str:
    """Return an answer in few characters, by what a reader wants to know of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Tool):
        return f"{value.name} v{value.version}"
    if isinstance(value, Mapping):
        return _brief_mapping(value)
    if isinstance(value, list):
        if len(value) > _MAX_ITEMS:
            return f"[{len(value)} items]"
        return "[" + ", ".join(_brief(item) for item in value) + "]"
    return repr(value)


def _brief_mapping(value: Mapping[str, Any]) -> str:
    if "score" in value:
        return f"{value['name']} ({value['score']})"
    if "name" in value:
        return f"{value['name']} v{value['version']}"
    if "state" in value:
        error = f", {value['error']}" if value["error"] else ""
        return f"{value['state']}, attempt {value['attempt']}, {value['done']}/{value['total']}{error}"
    if "seq" in value:
        return f"{value['seq']} {value['kind']}"
    if "artifact_id" in value:
        return f"{value['artifact_id']}, sha256 {value['sha256'][:8]}"
    text = canonical(value)
    return text if len(text) <= _MAX_SHOWN else "{...}"


# The page ----------------------------------------------------------------------------------------

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


# The files ---------------------------------------------------------------------------------------


def replace_together(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write the files `name -> text` in `directory` (made if absent), all or none; return their paths.

    UTF-8 with LF. Everything is written beside its target first; then each file replaces the old one in
    one step. If a step fails, those already replaced get their old content back and the error is
    raised: `OSError`, or what interrupted.
    """
    directory.mkdir(parents=True, exist_ok=True)
    replaced: list[str] = []
    # In the same folder, because a file can be replaced in one step only within one file system.
    with tempfile.TemporaryDirectory(dir=directory, prefix=".new-") as staging:
        new, old = Path(staging, "new"), Path(staging, "old")
        new.mkdir()
        old.mkdir()
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8", newline="\n")
            if (directory / name).exists():
                shutil.copy2(directory / name, old / name)
        try:
            for name in texts:
                replaced.append(name)
                os.replace(new / name, directory / name)
        except BaseException:
            for name in replaced:
                if (old / name).exists():
                    os.replace(old / name, directory / name)
                elif not (new / name).exists():  # it was put in place, and nothing was there before
                    (directory / name).unlink()
            raise
    return [directory / name for name in texts]


def differences(directory: Path, texts: Mapping[str, str]) -> list[str]:
    """Return one line for each file of `directory` whose text is not as given, line ends aside."""
    found = []
    for name, expected in texts.items():
        try:
            with open(directory / name, encoding="utf-8", newline=None) as file:
                actual = file.read()
        except OSError:
            found.append(f"{name}: is missing or cannot be read")
            continue
        except UnicodeDecodeError:
            found.append(f"{name}: is not UTF-8")
            continue
        if actual != expected:
            found.append(f"{name}: {_first_difference(actual, expected)}")
    return found


def say_differences(found: Sequence[str], names: Sequence[str], program: str) -> int:
    """Print what `program --check` found in the files `names`, or that they are right, and return the exit code."""
    for line in found:
        print(f"[X] {line}")
    if found:
        print(f"If the change is intended: python -m {program} --write")
        return EXIT_WRONG
    print(f"[OK] {', '.join(names)}: as a new run gives {'them' if len(names) > 1 else 'it'}")
    return EXIT_FINE


def _first_difference(actual: str, expected: str) -> str:
    have, want = actual.split("\n"), expected.split("\n")
    shared = min(len(have), len(want))
    line = next((index for index in range(shared) if have[index] != want[index]), shared)
    if line == len(have):
        return f"line {line + 1}: the file ends, a new run goes on"
    if line == len(want):
        return f"line {line + 1}: the file goes on, a new run ends"
    return f"line {line + 1}: the file has {_short(have[line])}, a new run gives {_short(want[line])}"


def _short(line: str) -> str:
    return canonical(line.strip()[:_MAX_SHOWN])
