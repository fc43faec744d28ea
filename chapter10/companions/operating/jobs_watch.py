"""Watching a job: its events as they come, a bar where there is a terminal, and its state at the end.

    cursor     the `seq` of the last event that was shown; what is read after it was not shown yet
    bar        one line that is drawn over itself; only on a terminal

What holds
    V1  every event is shown once and in order: `seq` only rises, and one that is not above the cursor is dropped
    V2  the last word is the job's stored state, after all of its events; the bar never says that a job has succeeded
    V3  a store that is busy is asked again; a watcher changes nothing and may come and go (`--after`)
    V4  the end of the watcher's patience is not the end of the job

The second attempt starts its bar again, because it counts from the start (C10-181).
Source: the chapter's events and cursor (claims C10-182, C10-190 to C10-194, C10-250 to C10-253).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TextIO

from chapter10.companions.operating.jobs_words import Say
from chapter10.database import StoreError
from chapter10.jobs import FINAL_STATES

__all__ = ["BAR_PLACES", "PAGE", "Bar", "Events", "bar_text", "event_line", "watch"]

PAGE: Final = 100
"""Events that are read at once."""
BAR_PLACES: Final = 30


class Events(Protocol):
    """What a watcher asks the store; `JobStore` has it."""

    def get(self, owner: str, job_id: int) -> dict[str, Any]:
        """Return the status of a job."""

    def events(self, owner: str, job_id: int, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return the events with a `seq` above `after`."""


def watch(
    store: Events,
    owner: str,
    job_id: int,
    *,
    show: Callable[[dict[str, Any]], object],
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    after: int = 0,
    timeout: float | None = None,
    poll: float = 0.2,
    busy: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Show the events of a job until it is final or `timeout` seconds of `clock` are over; return its status.

    `show(event)` gets each event with a `seq` above `after` once. `sleep(poll)` between two looks. `busy()` is called
    when the store could not be asked and will be again. Raises `JobError` (`not_found`, `bad_input`) and `StoreError`
    (`store_unavailable`; `store_busy` after the timeout).
    """
    end = None if timeout is None else clock() + timeout
    cursor = after
    while True:
        over = end is not None and clock() >= end
        try:
            # The state first: what was final here has all of its events in the log already.
            status = store.get(owner, job_id)
            while page := [event for event in store.events(owner, job_id, cursor, PAGE) if event["seq"] > cursor]:
                for event in page:
                    show(event)
                    cursor = event["seq"]
            if status["state"] in FINAL_STATES or over:
                return status
        except StoreError as error:
            if error.code != "store_busy" or over:
                raise
            busy()
        sleep(poll if end is None else max(0.001, min(poll, end - clock())))


def event_line(event: Mapping[str, Any], say: Say) -> str:
    """Return an event as one line of text, in the words of `say`."""
    detail = event["detail"]
    if event["kind"] == "progress":
        said = f" {detail['done']}/{detail['total']}"
    else:
        said = f" ({detail['error']})" if "error" in detail else ""
        if "retry_of" in detail:
            said = " " + say("event.again", job=detail["retry_of"], by=detail["by"], why=detail["why"])
    return say("event", seq=event["seq"], attempt=event["attempt"], kind=event["kind"], said=said)


def bar_text(done: int, total: int, attempt: int, say: Say, places: int = BAR_PLACES) -> str:
    """Return a bar; full only when everything is done, and empty while the total is not known."""
    filled = 0 if total == 0 else done * places // total
    percent = 0 if total == 0 else done * 100 // total
    bar = "#" * filled + "." * (places - filled)
    return say("bar", bar=bar, percent=percent, done=done, total=total, attempt=attempt)


class Bar:
    """Shows events on a terminal: progress as one bar that moves, everything else as a line above it."""

    def __init__(self, out: TextIO, say: Say) -> None:
        self._out = out
        self._say = say
        self._drawn = 0

    def show(self, event: Mapping[str, Any]) -> None:
        """Draw one event."""
        if event["kind"] == "progress":
            detail = event["detail"]
            width = max(10, shutil.get_terminal_size().columns - 1)
            text = bar_text(detail["done"], detail["total"], event["attempt"], self._say)[:width]
            self._out.write("\r" + text.ljust(self._drawn))
            self._drawn = len(text)
        else:
            self.clear()
            self._out.write(event_line(event, self._say) + "\n")
        self._out.flush()

    def clear(self) -> None:
        """Take the bar away, for what is written next."""
        if self._drawn:
            self._out.write("\r" + " " * self._drawn + "\r")
            self._drawn = 0
