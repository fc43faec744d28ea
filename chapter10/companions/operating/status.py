"""What to tell a person about a job: one sentence for each situation, none of which says more than is known.

A page that stops waiting, a job that failed and a job that was cancelled are three different things, and
one text for all of them ("it timed out") leaves nobody knowing what to do. The sentence comes from the
stored status and from nothing else, so that no model has to polish a vague one.

The number of the attempt is part of every sentence about work in progress: a second attempt counts from
the start again, and one curve over both would be a lie.

The Chinese sentences are those of the chapter. Nothing here reads or changes a job.
Source: the chapter's sections on progress and on three clocks (claims C10-182, C10-194).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chapter10.companions.operating.jobs_words import WORDS, speaker
from chapter10.jobs import STATES

__all__ = ["status_text"]

_NUMERALS: Final = ("零", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十")


def status_text(status: Mapping[str, Any], *, stopped_waiting: bool = False, language: str = "zh") -> str:
    """Return a sentence for a person about `status`, which is what `JobStore.get` returns.

    `stopped_waiting`: the caller's own patience ended before the job did. It matters only while the job
    lives, and it never makes a living job look failed. `language`: `zh` or `en`. Raises `ValueError` for a
    state that no job has.
    """
    state, error = status["state"], status["error"]
    if state not in STATES:
        raise ValueError("no job has such a state")
    if state in ("queued", "running") and stopped_waiting:
        situation = f"{state}.left"
    elif state == "queued" and error:
        situation = "queued.again"
    elif state == "failed" and f"is.failed.{error}" in WORDS:
        situation = f"failed.{error}"
    else:
        situation = state
    attempt, done = status["attempt"], status["done"]
    if language == "zh":
        attempt, done = _numeral(attempt), _count(done)
    return speaker(language)(f"is.{situation}", attempt=attempt, done=done, error=error)


def _numeral(number: int) -> str:
    return _NUMERALS[number] if 0 <= number < len(_NUMERALS) else str(number)


def _count(number: int) -> str:
    return "两" if number == 2 else _numeral(number)
