"""One screen for whoever looks after the workers: what waits, what runs and how far it is, what failed last.

The same lines are drawn over themselves on a terminal and printed once anywhere else, so a pipe and a pager see what a
person sees. Each look is a few queries and changes nothing. Source: the chapter on what an operator looks at (claims
C10-288 to C10-291).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TextIO

from chapter10.companions.operating.jobs_watch import bar_text
from chapter10.companions.operating.jobs_words import Say
from chapter10.companions.work.living_store import LivingStore
from chapter10.database import StoreError

__all__ = ["ROWS", "lines", "top", "whose"]

ROWS: Final = 10
"""Running jobs, and failures, that are shown at most."""
_CLEAR: Final = "\x1b[H\x1b[J"


def lines(store: LivingStore, now: float, say: Say) -> list[str]:
    """Return the screen at the time `now`, for `store`, in the words of `say`. Raises `StoreError`."""
    owners = store.stats(now=now)
    waits = [figures["oldest_wait"] for figures in owners.values() if figures["oldest_wait"] is not None]
    head = {name: sum(figures[name] for figures in owners.values()) for name in ("queued", "running", "expired")}
    said = [say("top.head", **head, wait=_age(max(waits, default=0), say))]
    said += [say("stats.paused", who=whose(owner, say)) for owner in store.paused()]
    said += [say("stats.kind", **row) for row in store.kinds()]
    for title, state, text in (("top.running", "running", _running), ("top.failed", "failed", _failed)):
        jobs = store.survey(state=state, limit=ROWS)
        said += ["", say(title)] + ([f"  {text(job, now, say)}" for job in jobs] or ["  -"])
    return said


def whose(owner: str | None, say: Say) -> str:
    """Return who that is; None stands for everybody."""
    return say("everybody") if owner is None else say("owner", owner=owner)


def top(
    store: LivingStore,
    out: TextIO,
    *,
    say: Say,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    show: Callable[[Sequence[str]], str],
    every: float = 1.0,
    once: bool = False,
) -> None:
    """Draw the screen every `every` seconds until somebody interrupts; once where nobody sees it being drawn over.

    `say`: the words; `show`: makes the text of the lines. A busy store is asked again. Raises `StoreError`.
    """
    once = once or not out.isatty()
    while True:
        try:
            said = lines(store, clock(), say)
        except StoreError as error:
            if once or error.code != "store_busy":
                raise
        else:
            out.write(("" if once else _CLEAR) + show(said))
            out.flush()
        if once:
            return
        sleep(every)


def _running(job: Mapping[str, Any], now: float, say: Say) -> str:
    since = "" if job["started"] is None else "  " + say("top.since", age=_age(now - job["started"], say))
    bar = bar_text(job["done"], job["total"], job["attempt"], say)
    return f"{job['id']:>6}  {bar}  {job['kind']}  {job['owner']}{since}"


def _failed(job: Mapping[str, Any], now: float, say: Say) -> str:
    ago = "" if job["ended"] is None else ", " + say("top.ago", age=_age(now - job["ended"], say))
    key = say("top.key", owner=job["owner"], key=job["action_key"])
    return f"{job['id']:>6}  {job['error']}  {job['kind']}  {key}{ago}"


def _age(seconds: float, say: Say) -> str:
    """Return a length of time in its largest whole unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return say(f"age.{unit}", count=f"{seconds // size:.0f}")
    return say("age.s", count=f"{max(seconds, 0):.0f}")
