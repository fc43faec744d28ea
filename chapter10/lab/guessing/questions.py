"""The three questions at the end of the orchestration document, each answered by a run.

    python -m chapter10 questions                             all three: told on a terminal, else one JSON object
    python -m chapter10 questions --group greedy --predict    guess first, then run, then compare

`greedy`   a case in which replacing the largest result is not the cheapest way
`freezing` what it costs that a decision stays, and what it saves
`order`    what a scheduler that keeps the order of the model cannot mend, and why it should not try

The real code decides: `companions.tools.result_budget` and `companions.tools.executor`. Characters are code points; no
token, no cache and no model is measured. Exit codes: 0 fine, 2 usage, 3 the machine lacks something.
Source: the orchestration document's questions (claims C8-083 to C8-085).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from chapter10.canonical import canonical
from chapter10.companions.tools.executor import StreamingToolExecutor
from chapter10.companions.tools.result_budget import (
    MESSAGE_LIMIT_CHARS,
    Candidate,
    Message,
    ResultBudget,
    select_fresh_to_replace,
)
from chapter10.companions.tools.result_store import ResultStore
from chapter10.companions.tools.tool_calls import ToolCall
from chapter10.lab.console.strings import Text, choose_language, say
from chapter10.lab.console.textio import EXIT_FINE, main_guard, print_json
from chapter10.lab.evidence.evidence import Scene
from chapter10.lab.evidence.telling import add_json, half, is_told, narrow_lanes, print_lines
from chapter10.lab.guessing.predict import (
    Area,
    Outcome,
    Question,
    add_options,
    predict_group,
    reason_for,
    refuse_what_does_not_combine,
    with_answers,
)

__all__ = ["AREAS", "RUNS", "freezing", "greedy", "main", "order"]

_SIZES: Final = {"log": 50_000, "diff": 50_000, "trace": 50_000, "table": 47_000, "note": 6_000}
"""The results of one message, in characters; each is within the limit of its own tool."""
_PREVIEW: Final = 2_000
"""Characters of what stands in for a result, about."""
_TIGHTER: Final = 150_000
"""The limit of the next turn, when room has become scarce."""


# 1 Greedy is not optimal -------------------------------------------------------------------------


def greedy(scene: Scene) -> dict[str, Any]:
    """Let the greedy rule choose among five results, and compare with the cheapest choice there is.

    The cost is what the model would read back: the characters of the replaced results. All choices are
    tried, of which there are 32. Source: claim C8-083.
    """
    fresh = [Candidate(name, size, _PREVIEW) for name, size in _SIZES.items()]
    chosen = select_fresh_to_replace(fresh, 0, MESSAGE_LIMIT_CHARS)
    total = sum(_SIZES.values())
    enough = [
        choice
        for count in range(len(fresh) + 1)
        for choice in combinations(fresh, count)
        if total - sum(one.size - one.replacement_size for one in choice) <= MESSAGE_LIMIT_CHARS
    ]
    cheapest = min(enough, key=lambda choice: sum(one.size for one in choice))
    for rule, choice in (("greedy", chosen), ("cheapest", list(cheapest))):
        names = ", ".join(one.call_id for one in choice)
        scene.note(f"{rule} rule", f"replaces {names}", f"{sum(one.size for one in choice)} characters to read back")
    return {
        "total_chars": total,
        "limit_chars": MESSAGE_LIMIT_CHARS,
        "greedy_replaces": [one.call_id for one in chosen],
        "greedy_reads_back_chars": sum(one.size for one in chosen),
        "cheapest_replaces": [one.call_id for one in cheapest],
        "cheapest_reads_back_chars": sum(one.size for one in cheapest),
        "fewest_replaced": min(len(choice) for choice in enough),
    }


# 2 What freezing costs and saves ----------------------------------------------------------------


def freezing(scene: Scene) -> dict[str, Any]:
    """Send two results whole, then let the limit fall: with decisions that stay, and without any memory.

    Source: claim C8-084 (and C8-060, C8-061 for the cache).
    """
    transcript = _transcript({"log": 120_000, "diff": 60_000})
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        store = ResultStore(folder)
        first = ResultBudget(store)
        sent, _ = first.apply(transcript)
        before = canonical(sent)
        scene.note("turn 1", "log 120000 and diff 60000, limit 200000", "both whole")
        for name, state in (("frozen", first.state), ("stateless", None)):
            again, report = ResultBudget(store, state=state, message_limit=_TIGHTER).apply(transcript)
            group = report.groups[0]
            kept = _same_prefix(before, canonical(again))
            what = f"the same messages, limit {_TIGHTER}, {name}"
            scene.note("turn 2", what, f"{group.size_after} sent, {kept} of {len(before)} as before")
            figures |= {
                f"{name}_sent_chars": group.size_after,
                f"{name}_over_limit": group.over_limit,
                f"{name}_replaced": list(group.replaced),
                f"{name}_same_prefix_chars": kept,
            }
    return {"first_request_chars": len(before), "tighter_limit_chars": _TIGHTER, **figures}


def _transcript(sizes: Mapping[str, int]) -> list[Message]:
    calls = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in sizes]
    results = [{"type": "tool_result", "tool_use_id": name, "content": "x" * size} for name, size in sizes.items()]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def _same_prefix(before: str, after: str) -> int:
    """Return for how many characters two texts begin alike."""
    shorter = min(len(before), len(after))
    return next((place for place in range(shorter) if before[place] != after[place]), shorter)


# 3 What order cannot fix -------------------------------------------------------------------------


def order(scene: Scene) -> dict[str, Any]:
    """Run Edit before Read, as a model wrote it, and what a scheduler that moves reads to the front would give.

    Source: claim C8-085.
    """
    as_written = asyncio.run(_edit_and_read(scene, "as written", ("Edit", "Read")))
    moved = asyncio.run(_edit_and_read(scene, "reads moved to the front", ("Read", "Edit")))
    return {
        "model_wrote": ["Edit", "Read"],
        "executed": [name for name, _ in as_written],
        "read_as_written": dict(as_written)["Read"],
        "read_if_moved": dict(moved)["Read"],
        "a_check_after_the_edit_still_sees_it": dict(moved)["Read"] == dict(as_written)["Read"],
    }


async def _edit_and_read(scene: Scene, title: str, names: Sequence[str]) -> list[tuple[str, str]]:
    scene.begin(title)
    file = "limit = 1"
    done: list[tuple[str, str]] = []

    async def run(call: ToolCall, _: object) -> str:
        nonlocal file
        if call.name == "Edit":
            file = "limit = 2"
        answer = file if call.name == "Read" else "edited"
        done.append((call.name, answer))
        scene.note("executor", call.name, answer)
        return answer

    async with StreamingToolExecutor(run, is_safe=lambda call, _: call.name == "Read") as executor:
        for number, name in enumerate(names):
            executor.add(ToolCall(f"call-{number}", name))
        executor.end_input()
        await executor.results()
    return done


# The questions -----------------------------------------------------------------------------------


def _greedy_choice(result: Any) -> str:
    chosen = result["greedy_replaces"]
    if len(chosen) == 1 and _SIZES[chosen[0]] == max(_SIZES.values()):
        return "a"
    return "b" if chosen == ["note"] else "c"


def _times_dearer(result: Any) -> str:
    times = result["greedy_reads_back_chars"] / result["cheapest_reads_back_chars"]
    return "a" if times == 1 else "b" if times < 3 else "c"


def _over(result: Any) -> str:
    return "b" if result["frozen_over_limit"] else "a"


def _prefix(result: Any) -> str:
    frozen = result["frozen_same_prefix_chars"] == result["first_request_chars"]
    stateless = result["stateless_same_prefix_chars"] == result["first_request_chars"]
    return {(True, True): "a", (True, False): "b", (False, False): "c"}.get((frozen, stateless), "")


def _executed(result: Any) -> str:
    return {("Edit", "Read"): "a", ("Read", "Edit"): "b"}.get(tuple(result["executed"]), "c")


def _if_moved(result: Any) -> str:
    return "a" if result["a_check_after_the_edit_still_sees_it"] else "b"


_TWO_LAYERS: Final = "思考题 1 与 2；8.4 至 8.6 / questions 1 and 2"
_SCHEDULER: Final = "思考题 3；8.2 / question 3"

AREAS: Final[Mapping[str, Area]] = {
    "greedy": Area(
        name="greedy",
        title=Text("贪心不是最优的一个场景", "a case in which greedy is not optimal"),
        scene=(
            Text(
                "一条消息里有五个结果：50、50、50、47、6 千字符。",
                "One message has five results: 50, 50, 50, 47 and 6 thousand characters.",
            ),
            Text("合计 203 千，上限 200 千，要替换到上限以内。", "Together 203 thousand; the limit is 200 thousand."),
            Text("被替换的留下大约两千字符的预览。", "What is replaced leaves a preview of about two thousand."),
            Text("贪心规则：从最大的开始替换。", "The greedy rule: the largest first."),
            Text("模型以后可能要把被替换的内容读回来。", "Later the model may have to read back what was replaced."),
        ),
        code=(greedy, select_fresh_to_replace),
        questions=(
            Question(
                name="choice",
                ask=Text("贪心替换哪些？", "What does greedy replace?"),
                options={
                    "a": Text("一个 50 千的", "one of the 50 thousand"),
                    "b": Text("只有 6 千的那个", "the 6 thousand alone"),
                    "c": Text("两个或更多", "two or more"),
                },
                truth=_greedy_choice,
                shows=("greedy_replaces", "cheapest_replaces", "fewest_replaced"),
                reason=Text(
                    "最大的一个就够，所以个数最少；但 6 千的那个也够，超出的只有 3 千。",
                    "The largest is enough, so the number is smallest; the 6 thousand would do as well: 3 "
                    "are too many.",
                ),
                section=_TWO_LAYERS,
                code=select_fresh_to_replace,
                test="test_result_budget.Selection.test_greedy_replaces_the_smallest_number_of_results",
            ),
            Question(
                name="cost",
                ask=Text(
                    "若都要读回来，贪心比最省的选法多读多少？",
                    "If all is read back, how much dearer is greedy than the cheapest choice?",
                ),
                options={
                    "a": Text("一样", "the same"),
                    "b": Text("不到三倍", "less than three times"),
                    "c": Text("三倍以上", "three times or more"),
                },
                truth=_times_dearer,
                shows=("greedy_reads_back_chars", "cheapest_reads_back_chars"),
                reason=Text(
                    "贪心让替换的个数最少，不让读回的字符最少。这是两个目标。",
                    "Greedy makes the number of replacements smallest, not what is read back: two different aims.",
                ),
                section=_TWO_LAYERS,
                code=select_fresh_to_replace,
                test="test_result_budget.Selection.test_greedy_is_not_optimal_in_what_is_read_again",
            ),
        ),
        change=(
            "python -m chapter10 questions --group freezing --predict",
            Text("选好之后能不能反悔？", "And may a choice be taken back?"),
        ),
    ),
    "freezing": Area(
        name="freezing",
        title=Text("冻结的代价与收益", "what freezing costs and saves"),
        scene=(
            Text(
                "第一轮：两个结果，120 千和 60 千字符，上限 200 千：都完整发出。",
                "Turn 1: results of 120 and 60 thousand characters, limit 200 thousand: both are sent whole.",
            ),
            Text(
                "第二轮：同样的消息，上限变成 150 千。",
                "Turn 2: the same messages, and the limit has become 150 thousand.",
            ),
            Text(
                "一种做法记住决定（冻结），一种每轮重新选。",
                "One way remembers its decisions (frozen), one chooses anew each turn.",
            ),
            Text(
                "提示缓存只认相同的前缀：一个字节不同，后面全不算。",
                "A prompt cache knows equal prefixes only: one byte differs, and all behind it is lost.",
            ),
            Text("这里比较的是字符，没有真的缓存。", "What is compared here are characters; there is no real cache."),
        ),
        code=(freezing, ResultBudget.apply),
        questions=(
            Question(
                name="limit",
                ask=Text(
                    "记住决定的那一种，第二轮守得住 150 千吗？",
                    "Does the one that remembers keep the 150 thousand in turn 2?",
                ),
                options={
                    "a": Text("守得住：它替换了 120 千的那个", "yes: it replaces the 120 thousand"),
                    "b": Text("守不住，并且报告出来", "no, and it says so"),
                },
                truth=_over,
                shows=("frozen_sent_chars", "frozen_over_limit", "stateless_sent_chars", "stateless_over_limit"),
                reason=Text(
                    "看过而没有替换的，永远完整。这就是代价：预算紧张也不能反悔。",
                    "What was seen and left whole stays whole for ever. That is the cost: no way back under pressure.",
                ),
                section=_TWO_LAYERS,
                code=ResultBudget.apply,
                test="test_result_budget.PerMessage.test_what_was_left_whole_stays_whole",
            ),
            Question(
                name="prefix",
                ask=Text(
                    "第一轮请求的哪些部分，在第二轮原样不动？",
                    "How much of the first request is unchanged in the second?",
                ),
                options={
                    "a": Text("两种做法都是全部", "all of it, both ways"),
                    "b": Text("冻结：全部；重新选：只到被替换处", "frozen: all; chosen anew: up to the replaced one"),
                    "c": Text("两种做法都只有开头", "only the beginning, both ways"),
                },
                truth=_prefix,
                shows=("first_request_chars", "frozen_same_prefix_chars", "stateless_same_prefix_chars"),
                reason=Text(
                    "冻结换来不变的前缀。没有前缀缓存时，seen_ids、replacements 和冻结规则都可以去掉，\n"
                    "每轮对全部结果重新选即可。",
                    "Freezing buys an unchanged prefix. Without a prefix cache seen_ids, replacements and "
                    "the rule could go:\n"
                    "each turn would choose anew among all results.",
                ),
                section=_TWO_LAYERS,
                code=ResultBudget.apply,
                test="test_result_budget.PerMessage.test_without_a_prompt_cache_the_choice_needs_no_state",
            ),
        ),
        change=(
            "python -m chapter10 questions --group order --predict",
            Text("结果选好了；调用的次序呢？", "So much for results. And the order of the calls?"),
        ),
    ),
    "order": Area(
        name="order",
        title=Text("次序修不好什么", "what order cannot fix"),
        scene=(
            Text(
                "模型写下两个调用：先 Edit，再 Read，同一个文件。",
                "The model writes two calls: first Edit, then Read, on the same file.",
            ),
            Text("逻辑上它应该先 Read，看清楚再 Edit。", "It should have read first, and edited then."),
            Text("Read 可以并发，Edit 要独占。", "Read is safe to run beside others; Edit runs alone."),
            Text(
                "第二段假设调度器把读取都挪到前面。",
                "A second part supposes a scheduler that moves reads to the front.",
            ),
            Text(
                "文件原来是 limit = 1，Edit 把它改成 limit = 2。", "The file says limit = 1; Edit makes it limit = 2."
            ),
        ),
        code=(order, StreamingToolExecutor.add),
        questions=(
            Question(
                name="executed",
                ask=Text("执行的次序是？", "In which order are they executed?"),
                options={
                    "a": Text("Edit，Read：照模型写的", "Edit, Read: as the model wrote"),
                    "b": Text("Read，Edit：读取先走", "Read, Edit: reads go first"),
                    "c": Text("拒绝执行", "they are refused"),
                },
                truth=_executed,
                shows=("model_wrote", "executed"),
                reason=Text(
                    "调度器只知道能不能一起跑，不知道谁依赖谁；次序是模型的意图，它不改。",
                    "The scheduler knows what may run together, not what depends on what; the order is the "
                    "model's intent.",
                ),
                section=_SCHEDULER,
                code=StreamingToolExecutor.add,
                test="test_executor.Scheduling.test_calls_run_as_they_were_written",
            ),
            Question(
                name="moved",
                ask=Text(
                    "如果把读取挪到前面，“改完再读一遍核对”的程序会怎样？",
                    "If reads were moved to the front, what of a program that reads again to check its edit?",
                ),
                options={
                    "a": Text("照样看到改后的内容", "it still sees the edited text"),
                    "b": Text("读到改之前的内容，核对失效", "it reads the text before the edit: the check is void"),
                },
                truth=_if_moved,
                shows=("read_as_written", "read_if_moved"),
                reason=Text(
                    "同样的两个调用，在另一个程序里正是对的次序。纠正一个，就弄坏另一个；\n错的次序要由提示、工具的前提检查或模型自己来修。",
                    "The same two calls are the right order in another program: mending one breaks the "
                    "other. A wrong order is\n"
                    "mended by the prompt, by a tool that checks what it needs, or by the model.",
                ),
                section=_SCHEDULER,
                code=StreamingToolExecutor.add,
                test="test_executor.Scheduling.test_an_unsafe_call_waits_for_safe_ones_and_safe_ones_for_it",
            ),
        ),
        change=(
            "python -m chapter10 questions --group greedy --predict",
            Text("还没看过第一题的话。", "If you have not seen the first question yet."),
        ),
    ),
}
"""What a reader is asked, by the name of the question."""

RUNS: Final[Mapping[str, Callable[[Scene], dict[str, Any]]]] = {"greedy": greedy, "freezing": freezing, "order": order}
"""The runs, by the same names."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say (those of the process if None) and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 questions",
        description="Answer the orchestration document's three questions by a run.",
        allow_abbrev=False,
    )
    parser.add_argument("--group", choices=list(RUNS), help="one question; all three without it")
    add_options(parser)
    add_json(parser)
    options = parser.parse_args(with_answers(arguments))
    refuse_what_does_not_combine(parser, options)
    if options.predict:

        def run() -> Outcome:
            scene = Scene()
            return RUNS[options.group](scene), scene.parts

        return predict_group(parser, options, AREAS[options.group], run)
    scenes = {name: Scene() for name in ([options.group] if options.group else RUNS)}
    results = {name: RUNS[name](scene) for name, scene in scenes.items()}
    if is_told(options):
        language = choose_language(options.lang)
        for name, scene in scenes.items():
            print_lines(_story(AREAS[name], results[name], scene, language))
    else:
        print_json(results[options.group] if options.group else results)
    return EXIT_FINE


def _story(area: Area, result: Any, scene: Scene, language: str) -> list[str]:
    """Return a question as lines: the case, what happened, then each thing asked with its answer and the reason."""
    lines = [f"== {area.name}: {area.title.in_language(language)}", ""]
    lines += [text.in_language(language) for text in area.scene]
    for title, events in scene.parts:
        if events:
            lines += ["", *([f"-- {half(title, language)}"] if title else []), *narrow_lanes(events)]
    for asked in area.questions:
        letter = asked.truth(result)
        answer = asked.options[letter].in_language(language) if letter else say("predict.no_option", language)
        reason = reason_for(asked, result).in_language(language).replace("\n", " " if language == "en" else "")
        lines += ["", asked.ask.in_language(language), f"-> {answer}", reason]
    return [*lines, ""]


if __name__ == "__main__":
    main_guard(main)
