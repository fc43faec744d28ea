"""One screen for whoever looks after the workers: what waits, what runs and how far it is, what failed last.

The same lines are drawn over themselves on a terminal and printed once anywhere else, so a pipe and a pager see what a
person sees. Each look is a few queries and changes nothing. Source: the chapter on what an operator looks at (claims
C10-288 to C10-291).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TextIO

from chapter10.companions.operating.jobs_watch import bar_text
from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError

__all__ = ["ROWS", "lines", "top"]

ROWS: Final = 10
"""Running jobs, and failures, that are shown at most."""
_CLEAR: Final = "\x1b[H\x1b[J"


def lines(store: LivingStore, now: float) -> list[str]:
    """Return the screen at the time `now`, for `store`. Raises `StoreError`."""
    owners = store.stats(now=now)
    waits = [figures["oldest_wait"] for figures in owners.values() if figures["oldest_wait"] is not None]
    head = {name: sum(figures[name] for figures in owners.values()) for name in ("queued", "running", "expired")}
    said = [
        ", ".join(f"{name} {count}" for name, count in head.items()) + f", longest wait {_age(max(waits, default=0))}"
    ]
    said += [f"paused: {'everybody' if owner is None else owner}" for owner in store.paused()]
    said += [f"kind {row['kind']} {row['version']}: {row['queued']} of {row['live']} wait" for row in store.kinds()]
    for title, state, text in (("running", "running", _running), ("failed last", "failed", _failed)):
        jobs = store.survey(state=state, limit=ROWS)
        said += ["", title] + ([f"  {text(job, now)}" for job in jobs] or ["  -"])
    return said


def top(
    store: LivingStore,
    out: TextIO,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    show: Callable[[Sequence[str]], str],
    every: float = 1.0,
    once: bool = False,
) -> None:
    """Draw the screen every `every` seconds until somebody interrupts; once where nobody sees it being drawn over.

    `show`: makes the text of the lines. A busy store is asked again. Raises `StoreError`.
    """
    once = once or not out.isatty()
    while True:
        try:
            said = lines(store, clock())
        except StoreError as error:
            if once or error.code != "store_busy":
                raise
        else:
            out.write(("" if once else _CLEAR) + show(said))
            out.flush()
        if once:
            return
        sleep(every)


def _running(job: Mapping[str, Any], now: float) -> str:
    since = "" if job["started"] is None else f"  for {_age(now - job['started'])}"
    return (
        f"{job['id']:>6}  {bar_text(job['done'], job['total'], job['attempt'])}  {job['kind']}  {job['owner']}{since}"
    )


def _failed(job: Mapping[str, Any], now: float) -> str:
    ago = "" if job["ended"] is None else f", {_age(now - job['ended'])} ago"
    return f"{job['id']:>6}  {job['error']}  {job['kind']}  {job['owner']}, key {job['action_key']}{ago}"


def _age(seconds: float) -> str:
    """Return a length of time in its largest whole unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
