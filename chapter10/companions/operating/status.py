"""What to tell a person about a job: one sentence for each situation, none of which says more than is known.

A page that stops waiting, a job that failed and a job that was cancelled are three different things, and
one text for all of them ("it timed out") leaves nobody knowing what to do. The sentence comes from the
stored status and from nothing else, so that no model has to polish a vague one.

The number of the attempt is part of every sentence about work in progress: a second attempt counts from
the start again, and one curve over both would be a lie.

The sentences are Chinese, as the chapter gives them. Nothing here reads or changes a job.
Source: the chapter's sections on progress and on three clocks (claims C10-182, C10-194).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["status_text"]

_NUMERALS: Final = ("零", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十")

_FAILED: Final = {
    "deadline_exceeded": "作业已超过截止时间，未提交本地结果",
    "attempts_exhausted": "允许的尝试次数已用完，未提交本地结果",
}


def status_text(status: Mapping[str, Any], *, stopped_waiting: bool = False) -> str:
    """Return a sentence for a person about `status`, which is what `JobStore.get` returns.

    `stopped_waiting`: the caller's own patience ended before the job did. It matters only while the job
    lives, and it never makes a living job look failed. Raises `ValueError` for a state that no job has.
    """
    state, attempt = status["state"], _numeral(status["attempt"])
    if state in ("queued", "running") and stopped_waiting:
        doing = "排队" if state == "queued" else "运行"
        return f"暂时没有等到结果，作业仍在{doing}，可以稍后查看"
    if state == "queued":
        return f"第{attempt}次尝试没有成功，等待下一次尝试" if status["error"] else "已受理，等待处理"
    if state == "running":
        return f"第{attempt}次尝试，已处理{_count(status['done'])}条"
    if state == "cancel_requested":
        return f"第{attempt}次尝试，已请求取消，等待确认停止"
    if state == "succeeded":
        return "已完成，可以读取结果"
    if state == "cancelled":
        return "已确认取消，未提交本地结果"
    if state == "failed":
        return _FAILED.get(status["error"], f"作业失败，错误代码 {status['error']}")
    raise ValueError("no job has such a state")


def _numeral(number: int) -> str:
    return _NUMERALS[number] if 0 <= number < len(_NUMERALS) else str(number)


def _count(number: int) -> str:
    return "两" if number == 2 else _numeral(number)
