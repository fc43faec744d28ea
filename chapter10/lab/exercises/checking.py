"""What a check is, how its failure reads, and how a row of checks becomes a verdict.

A `Check` looks at the names that a reader's file defines and raises `Failed` with what was called, what
came back, what was expected and why. Checks run in order and the first failure ends the row, so that a
reader has one thing to mend at a time.

In three exercises the reader writes *tests*. Such a test is judged twice: it must accept the real thing
(`accepts`) and it must fail for a thing with one rule taken out (`catches`). A test that passes both
times shows nothing, and the failure says so.

Nothing here reads a file, starts a process or knows an exercise.
Source: claims C10-304 to C10-309, C10-313.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isfunction
from typing import Any, Final, TypeVar

from chapter10.lab.console.strings import Text
from chapter10.lab.console.textio import Event
from chapter10.lab.evidence.telling import COLUMNS, narrow_lanes

__all__ = [
    "ANOTHER",
    "BY_ITS_CLASS",
    "FAILED",
    "IN_CHINESE",
    "NOT_STARTED",
    "PASSED",
    "CannotCheck",
    "Check",
    "Failed",
    "Failure",
    "Names",
    "Verdict",
    "accepts",
    "alike",
    "catches",
    "drawn",
    "expect",
    "function_of",
    "in_chinese",
    "own_test",
    "run_checks",
    "unexpected",
]

_Kind = TypeVar("_Kind")

PASSED: Final = "passed"
FAILED: Final = "failed"
NOT_STARTED: Final = "not started"

Names = Mapping[str, Any]
"""What a reader's file defines, by name."""

IN_CHINESE: Final[Mapping[str, str]] = {
    # what was done
    "the real catalog": "真实的目录",
    "another class that behaves like the real one": "换了一个类、行为相同的一个",
    "one that makes all tasks at once": "一次创建全部任务的写法",
    "one that ends at the first failure": "一失败就整批结束的写法",
    "one that keeps a cancel to itself": "把取消吞掉的写法",
    "a right claim": "正确的 claim",
    "one that ignores the lease": "不看租约的写法",
    "one that never gives it again": "租约到期也不再给的写法",
    "one that counts no attempts": "代次不增加的写法",
    "the real store": "真实的作业库",
    "a catalog that never finds your tool": "永远找不到你的工具的目录",
    "a catalog that ignores the grants": "不看权限的目录",
    "a catalog that refuses exactly enough": "恰好够也拒绝的目录",
    "a catalog that lets one byte too many through": "多一个字节也放行的目录",
    "a catalog that hands out what fits": "放得下几份就给几份的目录",
    "a catalog that returns an empty list": "返回空列表的目录",
    "a catalog that answers denied": "回答 denied 的目录",
    "a store without the guard lease_expired": "没有 lease_expired 这道防护的库",
    "a store without the guard stale_attempt": "没有 stale_attempt 这道防护的库",
    "a store whose lease ends a moment late": "租约晚一刻到期的库",
    "a store that answers ": "这样回答的库：",
    "does another tool have the permission of ": "别的工具有没有同样的权限：",
    "the words 查询 发票 状态 that are not among the keywords": "查询 发票 状态 这三个词里，关键词没有的",
    "the four sales": "那四条记录",
    "the sales after ": "调用之后的记录：",
    "the types in ": "各值的类型：",
    "the ids in ": "其中的 ID：",
    "the check ": "检查 ",
    "look for the function ": "寻找函数 ",
    " of a queued job": "，作业在排队",
    " of a job held until 3": "，作业被别人持有到时刻 3",
    " of a job that does not exist": "，没有这份作业",
    " of a succeeded job": "，作业已成功",
    " on two connections, ": "，两个连接，",
    "a queued job": "作业在排队",
    "a job whose lease is over": "租约已到期",
    "the row after that": "此后的那一行",
    "the row after ": "那一行，执行之后：",
    "count reads in flight during ": "数在途的读取：",
    " while 2 reads are in flight": "，此时有 2 个读取在途",
    # what came back
    "your test passes": "你的测试通过了",
    "nothing of that name": "没有这个名字",
    "it waits for ever": "一直在等",
    "it returned or went on": "返回了，或者继续运行",
    "both have it": "两个都领到了",
    "neither can go on": "两个都走不下去",
    # what should have
    "your test fails (AssertionError)": "你的测试失败（AssertionError）",
    "it asserts, and returns nothing": "用 assert 断言，不返回值",
    "no exception": "没有异常",
    "no open transaction": "没有未结束的事务",
    "a whole number of cents": "整数，单位是分",
    "a dict with 5 entries": "有 5 个条目的字典",
    "it returns": "会返回",
    "at most 2": "最多 2",
    "True or False": "True 或 False",
    ", the other None, in all of the ": "，另一个得到 None；次序一共有 ",
    "one gets ": "一个得到 ",
    " orders": " 种，种种如此",
}
"""The fixed words of the failures, for a reader of Chinese; names, calls and values stay as they are."""

_INDENT: Final = 4
_MAX_VALUE: Final = 400
"""Characters of one value in a failure; a longer one is cut."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed check, for a person: plain text but for `why`, which is in both languages.

    `lanes`: a schedule in text lanes, or empty.
    """

    check: str
    called: str
    got: str
    expected: str
    why: Text
    claim: str
    lanes: str = ""


class Failed(Exception):
    """Raised by a check: called, got, expected, why, claim, and perhaps lanes."""

    def __init__(self, called: str, got: object, expected: object, why: Text, claim: str, lanes: str = "") -> None:
        super().__init__(called)
        self.called = called
        self.got = _shown(got)
        self.expected = _shown(expected)
        self.why = why
        self.claim = claim
        self.lanes = lanes


class CannotCheck(Exception):
    """Raised by a check that cannot be made here, whatever the reader wrote; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of an exercise: its name, what it looks at in one line, and the function that does it."""

    name: str
    text: Text
    run: Callable[[Names], None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a reader's file: the status, the checks that passed, the failure, what the file printed."""

    status: str
    passed: tuple[str, ...] = ()
    failure: Failure | None = None
    printed: str = field(default="", compare=False)


def drawn(events: Sequence[Event]) -> str:
    """Return a schedule as lanes that fit in a terminal below their heading."""
    return "\n".join(narrow_lanes(events, COLUMNS - _INDENT))


def run_checks(
    names: Names, checks: Sequence[Check], filename: str = "", begins: Callable[[str], object] = lambda name: None
) -> Verdict:
    """Run the checks in order up to the first failure.

    `filename`: what the reader's code was compiled as, to find the line of an error. `begins` is told the name of each
    check before it is made. A file whose first
    check meets `NotImplementedError` is not started; later, that error is a failure like any other. Raises
    `CannotCheck`.
    """
    passed: list[str] = []
    for check in checks:
        begins(check.name)
        try:
            check.run(names)
        except Failed as failed:
            failure = Failure(
                check.name, failed.called, failed.got, failed.expected, failed.why, failed.claim, failed.lanes
            )
            return Verdict(FAILED, tuple(passed), failure)
        except CannotCheck:
            raise
        except NotImplementedError as error:
            if not passed:
                return Verdict(NOT_STARTED)
            return Verdict(FAILED, tuple(passed), unexpected(check.name, error, filename))
        except (Exception, SystemExit) as error:
            return Verdict(FAILED, tuple(passed), unexpected(check.name, error, filename))
        passed.append(check.name)
    return Verdict(PASSED, tuple(passed))


def unexpected(check: str, error: BaseException, filename: str) -> Failure:
    """Return the failure for an error that came out of the reader's code, with its line there if it has one."""
    why = Text("你的代码抛出了没有人要求的异常。", "Your code raised an error that nobody asked for.")
    if isinstance(error, NotImplementedError):
        why = Text("前面的都对了；这一部分还没有写。", "All before this is right; this part is not written yet.")
    return Failure(
        check=check,
        called=f"the check {check}",
        got=_cut(_described(error, filename)),
        expected="no exception",
        why=why,
        claim="C10-313",
    )


def in_chinese(text: str, *, value: bool = False) -> str:
    """Return what was called, got or expected with our fixed words in Chinese.

    `value`: the text may be a value of the reader's, which nobody rewrites: only if ours is all of it, or all
    before its first colon.
    """
    if value:
        ours, colon, rest = text.partition(": ")
        return IN_CHINESE.get(ours, ours) + colon + rest
    for words in sorted(IN_CHINESE, key=len, reverse=True):
        text = text.replace(words, IN_CHINESE[words])
    return text


# What checks are made of -------------------------------------------------------------------------

ANOTHER: Final = "another class that behaves like the real one"
BY_ITS_CLASS: Final = Text(
    "它的行为与真实的一样，只是换了一个类。请断言它做了什么，而不是它是什么。",
    "It behaves as the real one does and has another class. Assert what it does, not what it is.",
)


def function_of(names: Names, name: str) -> Callable[..., Any]:
    """Return the reader's function `name`, or fail because it is gone."""
    function: Callable[..., Any] | None = names.get(name)
    if not callable(function):
        why = Text("检查按名字寻找这个函数；请不要改名。", "The check looks for this function by name; keep the name.")
        raise Failed(f"look for the function {name}", "nothing of that name", f"def {name}(...)", why, "C10-313")
    return function


def expect(called: str, got: object, expected: object, why: Text, claim: str) -> None:
    """Fail unless `got` is `expected`, by value and by type."""
    if type(got) is not type(expected) or got != expected:
        raise Failed(called, got, expected, why, claim)


def accepts(test: Callable[..., Any], subject: object, called: str, why: Text, claim: str) -> None:
    """Fail unless the reader's test accepts the real thing, and returns nothing: what it returns, nobody reads."""
    try:
        returned = test(subject)
    except NotImplementedError:
        raise
    except Exception as error:
        code = getattr(test, "__code__", None)
        got = _described(error, code.co_filename if code else "")
        raise Failed(called, got, "your test passes", why, claim) from error
    if returned is not None:
        ignored = Text("测试返回的值没有人看。请用 assert 断言。", "Nobody looks at what a test returns. Use assert.")
        raise Failed(called, f"it returns {returned!r}", "it asserts, and returns nothing", ignored, claim)


def alike(kind: type[_Kind]) -> type[_Kind]:
    """Return a class of its own with the verbs of `kind`: what a test says of it, it says of what it does."""
    verbs = {name: _handed_on(verb) for name, verb in vars(kind).items() if isfunction(verb) and name[0] != "_"}
    return type("Another", (kind,), {"__slots__": (), **verbs})


def _handed_on(verb: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: verb(*arguments, **options)


def own_test(names: Names, test: str) -> Callable[..., Any] | None:
    """Return the test that a reader may add to a file, or None as long as it is not begun."""
    function: Callable[..., Any] | None = names.get(test)
    return function if callable(function) else None


def catches(test: Callable[..., Any], subject: object, called: str, why: Text, claim: str) -> None:
    """Fail unless the reader's test fails for a thing that is broken."""
    try:
        test(subject)
    except NotImplementedError:
        raise
    except Exception:
        return
    raise Failed(called, "your test passes", "your test fails (AssertionError)", why, claim)


def _described(error: BaseException, filename: str) -> str:
    """Return class and text of an error, what a coded one knows beside its code, and the reader's line."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    known = [getattr(error, name, None) for name in ("field", "reason")]
    text += "".join(f", {value}" for value in known if isinstance(value, str) and value)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    if isinstance(error, SyntaxError) and error.filename == filename:
        lines = [error.lineno]
    return f"{text} (line {lines[-1]} of your file)" if lines else text


def _shown(value: object) -> str:
    return _cut(value if isinstance(value, str) else repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + "..."
