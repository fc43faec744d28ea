"""One time budget for a whole chain of calls, and a runner that keeps a call within it.

A tool with a time limit of its own knows nothing of the time that its neighbours used, nor of the waits between
them. So the chain gets one *deadline*, and everybody computes what is left of it: the clock charges by itself, for
successes, failures, waits and work in parallel alike, and nothing is ever written back.

        start                         main deadline          hard deadline
          |------------ main lane ----------|-- compensation --|
          |  total * (1 - ratio)            |  total * ratio   |

B1  A budget never changes. What is left is computed from a monotonic clock that is passed in, never stored.
B2  The main path cannot spend the compensation lane. What it leaves unused falls to the compensation.
B3  The lane is reserved once a chain: `child` shortens the main path and keeps the reserve as it is.
B4  A child never outlives its parent. The earliest deadline wins.
B5  Before every attempt, and again after every wait: less than the minimum means that the tool is *not called*
    (`BudgetExhausted`). Equal is enough. Nothing left means exhausted, whatever the minimum, and never "no limit";
    no limit is `None` in place of a budget.
B6  Time *left* crosses a process (`to_wire`, `from_wire`), never a clock reading: another clock starts elsewhere.
B7  A run ends in exactly one `Outcome`; an outer cancel is never lost, and a stubborn tool never holds its caller
    for longer than time left + grace.

At a boundary `now >= deadline` is past it (X-24), so a value that comes at that moment is late.

Two ways to make one. `Budget.start(total_ms)` is for the top of a chain and reserves a quarter. `Budget(total_ms,
used_ms)` is the form of the document's sample, where `remaining` is total minus used: it reserves nothing unless it is
told to (X-43).

What it does not do: it does not undo what a tool did before its time was over (see `interruption.cancellation`), and it
does not try again (see `companions.retrying.retry`).
Source: the document on interruption, section 3 (claims I4-007, I4-011 to I4-024, I4-102; X-06, X-24, X-42 to X-44).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar

from chapter10.canonical import CodedError
from chapter10.companions.basics.tasks import Ending, own

__all__ = [
    "COMPENSATION_RATIO",
    "GRACE_MS",
    "MAX_MS",
    "MIN_RESERVE_MS",
    "OUTCOMES",
    "RECOMMENDED_RATIOS",
    "Budget",
    "BudgetError",
    "BudgetExhausted",
    "Clock",
    "Kind",
    "Outcome",
    "RunCancelled",
    "ToolTimedOut",
    "run_within",
    "tool_with_budget",
]

T = TypeVar("T")

Clock = Callable[[], float]
"""Seconds on a monotonic clock; only differences mean something."""

MIN_RESERVE_MS: Final = 200
"""Milliseconds that must be left for any call at all, by default."""
COMPENSATION_RATIO: Final = 0.25
"""The share of the total that `Budget.start` keeps for compensation."""
RECOMMENDED_RATIOS: Final = (0.2, 0.3)
"""The range that the document recommends for that share; nothing here enforces it."""
GRACE_MS: Final = 1000
"""Milliseconds that a tool has to stop after it was asked to: the finite T_c of the document."""
MAX_MS: Final = 7 * 24 * 3600 * 1000
"""The longest budget: a week. What lives longer is a job, and has a deadline in the store."""

Kind = Literal[
    "value", "late_value", "tool_error", "timed_out_stopped", "timed_out_abandoned", "cancelled", "not_started"
]
OUTCOMES: Final[tuple[Kind, ...]] = (
    "value",  # returned in time
    "late_value",  # returned, but past its time: the effect has happened
    "tool_error",  # raised by itself, whatever the type: also a TimeoutError of its own
    "timed_out_stopped",  # asked to stop at the end of its time, and did
    "timed_out_abandoned",  # asked to stop, and still running when the grace was over
    "cancelled",  # the caller, or somebody else, cancelled it
    "not_started",  # the tool was not called
)

_log: Final = logging.getLogger(__name__)


class BudgetError(CodedError, ValueError):
    """Raised when a budget is given something that it does not take: `bad_input`, with a `reason`."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__("bad_input")
        self.reason = reason


class BudgetExhausted(CodedError, RuntimeError):
    """Raised before a call that has too little time; the code is `budget_exhausted` and the tool was not called.

    `name` of the tool, `remaining` and `minimum` in milliseconds.
    """

    name: str
    remaining: int
    minimum: int

    def __init__(self, name: str, remaining: int, minimum: int) -> None:
        super().__init__("budget_exhausted")
        self.name = name
        self.remaining = remaining
        self.minimum = minimum

    @property
    def explanation(self) -> str:
        """Return one line for a log: `{name}: budget {remaining}ms < {minimum}ms` (claim I4-015)."""
        return f"{self.name}: budget {self.remaining}ms < {self.minimum}ms"


class ToolTimedOut(CodedError, TimeoutError):
    """Raised by `tool_with_budget` when a tool used up its time: `timed_out`, with the whole `outcome`.

    A time-out proves nothing about the effect; a `late_value` proves that it happened, and is kept in the outcome.
    """

    outcome: Outcome[Any]

    def __init__(self, outcome: Outcome[Any]) -> None:
        super().__init__("timed_out")
        self.outcome = outcome


class RunCancelled(CodedError, RuntimeError):
    """Raised by `tool_with_budget` when somebody other than its caller cancelled the tool: `cancelled`.

    An error of its own, since a `CancelledError` raised by hand vanishes in a task group without a trace.
    """

    def __init__(self) -> None:
        super().__init__("cancelled")


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """A deadline with two lanes; see the module. Made with `Budget.start(total_ms)` at the top of a chain.

    `total_ms`, `used_ms`: whole milliseconds, 0 to `MAX_MS`; what was used before now counts against both lanes.
    `compensation_budget_ratio`: the share that the main path cannot spend, 0 or more and below 1; from 0.2 to 0.3 is
    usual. `clock`: seconds, monotonic. The clock is read once here, and again for each question.

    Raises `BudgetError` (`bad_input`).
    """

    total_ms: int
    used_ms: int
    compensation_budget_ratio: float
    clock: Clock = field(repr=False)
    # Whole microseconds on the clock, so that 200 ms left are 200 and not 199.99999.
    _main_us: int
    _hard_us: int

    def __init__(
        self,
        total_ms: int,
        used_ms: int = 0,
        *,
        compensation_budget_ratio: float = 0.0,
        clock: Clock = time.monotonic,
    ) -> None:
        _milliseconds(total_ms, "total_ms")
        _milliseconds(used_ms, "used_ms")
        ratio = compensation_budget_ratio
        if type(ratio) not in (int, float) or not 0 <= ratio < 1:
            raise BudgetError("the compensation ratio is not a number from 0 up to, but not including, 1")
        start = _read(clock) - used_ms * 1000
        hard = start + total_ms * 1000
        self._fill(total_ms, used_ms, ratio, clock, hard - round(total_ms * 1000 * ratio), hard)

    @classmethod
    def start(
        cls, total_ms: int, *, compensation_budget_ratio: float = COMPENSATION_RATIO, clock: Clock = time.monotonic
    ) -> Budget:
        """Return the budget of a new chain, a quarter of it reserved for compensation (claim I4-023)."""
        return cls(total_ms, compensation_budget_ratio=compensation_budget_ratio, clock=clock)

    @classmethod
    def from_wire(cls, wire: Mapping[str, object], *, clock: Clock = time.monotonic) -> Budget:
        """Return the budget that another process sent with `to_wire`, with deadlines on this process's clock.

        The time on the way is not known and not charged. Raises `BudgetError` for anything else than
        `{"main_ms": …, "hard_ms": …}`.
        """
        if not isinstance(wire, Mapping) or set(wire) != {"main_ms", "hard_ms"}:
            raise BudgetError("not a budget from the wire")
        main, hard = (_milliseconds(wire[name], name) for name in ("main_ms", "hard_ms"))
        if main > hard:
            raise BudgetError("main_ms exceeds hard_ms")
        now = _read(clock)
        return _budget(main, (hard - main) / hard if hard else 0.0, clock, now + main * 1000, now + hard * 1000)

    @property
    def remaining(self) -> int:
        """Whole milliseconds that the main path has left, rounded down; 0 means exhausted."""
        left = self._main_us - _read(self.clock)
        return left // 1000 if left > 0 else 0

    @property
    def compensation_remaining(self) -> int:
        """Whole milliseconds until the hard deadline: the reserve, and what the main path has not used."""
        left = self._hard_us - _read(self.clock)
        return left // 1000 if left > 0 else 0

    @property
    def expired(self) -> bool:
        """Whether the main deadline has come (`now >= deadline`)."""
        return _read(self.clock) >= self._main_us

    def seconds(self) -> float:
        """Return the seconds that the main path has left, 0.0 or more, for a timer."""
        return max(self._main_us - _read(self.clock), 0) / 1_000_000

    def check(self, name: str, minimum_ms: int = 0, *, min_reserve_ms: int = MIN_RESERVE_MS) -> int:
        """Return the milliseconds left, or raise `BudgetExhausted` if a call of `name` must not start.

        It needs the larger of `minimum_ms` (the tool's) and `min_reserve_ms` (everybody's). Ask before every attempt
        and again after every wait. Source: claims I4-012, I4-015.
        """
        if type(minimum_ms) is not int or type(min_reserve_ms) is not int:
            raise BudgetError("a minimum is not a whole number of milliseconds")
        minimum = minimum_ms if minimum_ms > min_reserve_ms else min_reserve_ms
        remaining = self.remaining
        if remaining < minimum or remaining == 0:
            raise BudgetExhausted(name, remaining, minimum)
        return remaining

    def child(self, total_ms: int) -> Budget:
        """Return a budget for a part of the main path: `total_ms` from now, or what this one has left, if less.

        The compensation lane is the chain's and is not cut again. Raises `BudgetError`.
        """
        end = min(_read(self.clock) + _milliseconds(total_ms, "total_ms") * 1000, self._main_us)
        return _budget(total_ms, self.compensation_budget_ratio, self.clock, end, self._hard_us)

    def consume(self, milliseconds: int) -> Budget:
        """Return this budget with that much less in the main lane, for time that this clock did not see.

        Time that passes here is charged by the clock and is not reported. Raises `BudgetError`. Source: claim I4-013,
        whose budget changed itself; this one stays as it was.
        """
        used = self.used_ms + _milliseconds(milliseconds, "milliseconds")
        spent = _budget(
            self.total_ms,
            self.compensation_budget_ratio,
            self.clock,
            self._main_us - milliseconds * 1000,
            self._hard_us - milliseconds * 1000,
        )
        object.__setattr__(spent, "used_ms", used)
        return spent

    def compensation(self) -> Budget:
        """Return the compensation lane as a budget: all of it until the hard deadline.

        It lives on when the main lane has expired or the main path was cancelled. Source: claim I4-024.
        """
        return _budget(self.total_ms, 0.0, self.clock, self._hard_us, self._hard_us)

    def to_wire(self) -> dict[str, int]:
        """Return `{"main_ms": …, "hard_ms": …}`, the time left in both lanes, rounded down."""
        now = _read(self.clock)
        main, hard = (max(end - now, 0) // 1000 for end in (self._main_us, self._hard_us))
        return {"main_ms": main, "hard_ms": hard}

    def _fill(self, total_ms: int, used_ms: int, ratio: float, clock: Clock, main_us: int, hard_us: int) -> None:
        put = partial(object.__setattr__, self)
        put("total_ms", total_ms)
        put("used_ms", used_ms)
        put("compensation_budget_ratio", ratio)
        put("clock", clock)
        put("_main_us", main_us)
        put("_hard_us", hard_us)


@dataclass(frozen=True)  # no slots: with them `Outcome[int](...)` fails before Python 3.13
class Outcome(Generic[T]):
    """How one run of one tool ended; exactly one for each run."""

    name: str
    kind: Kind
    value: T | None = None
    error: BaseException | None = None
    """What the tool raised; for `not_started`, why."""
    returned: bool = False
    """Whether `value` is what the tool returned, `None` included. Also true for a cancelled run that had ended well."""
    running: bool = False
    """Whether the tool ignored its cancel and still runs."""
    own_limit: bool = False
    """Whether the tool's own limit set its time, and not the smaller rest of a budget. Only then is a time-out the
    dependency's fault."""

    def get(self) -> T:
        """Return the value that came in time, or raise: for layers that see a failure by its error.

        `BudgetExhausted`: not called. `ToolTimedOut`: stopped, abandoned or late. `RunCancelled`: somebody else
        cancelled it. Else what the tool raised.
        """
        if self.kind == "value":
            return self.value  # type: ignore[return-value]  # `returned`: it is a T
        if self.kind in ("tool_error", "not_started"):
            assert self.error is not None
            raise self.error
        if self.kind == "cancelled":
            raise RunCancelled()
        raise ToolTimedOut(self) from self.error


async def run_within(
    budget: Budget | None,
    name: str,
    fn: Callable[[], Awaitable[T]],
    *,
    minimum_ms: int = 0,
    min_reserve_ms: int = MIN_RESERVE_MS,
    limit_ms: int | None = None,
    grace_ms: int = GRACE_MS,
    report: Callable[[Outcome[T]], None] | None = None,
    report_end: Callable[[Outcome[T]], None] | None = None,
) -> Outcome[T]:
    """Run `await fn()` within what `budget` has left and return its one `Outcome`.

    `budget`: None for no limit. `limit_ms`: the tool's own limit; the smaller of the two counts. `minimum_ms`,
    `min_reserve_ms`: see `Budget.check`. `grace_ms`: how long a tool may take to stop; it lies behind the deadline.
    `report`: called once with the outcome, also when this call is cancelled. `report_end`: called with the outcome of
    an abandoned tool when it ends after all; without it, that is logged. What decides by errors takes no `Outcome` as
    a value (`retry`, a breaker, `execute_once`): give it `outcome.get()`.

    A cancel of the caller stops the tool, is reported as `cancelled` (with the value, if there was one by then), and is
    raised again. Raises `BudgetError` for bad limits and nothing that the tool raised. Source: claims I4-007, I4-008,
    I4-016, I4-020.
    """
    if budget is not None and type(budget) is not Budget:
        raise BudgetError("not a budget")
    for value, label in ((minimum_ms, "minimum_ms"), (min_reserve_ms, "min_reserve_ms")):
        _milliseconds(value, label)
    for value, label in ((grace_ms, "grace_ms"), (1 if limit_ms is None else limit_ms, "limit_ms")):
        if _milliseconds(value, label) == 0:
            raise BudgetError(f"{label} is 0")
    try:
        seconds, own_limit = _limit(budget, name, minimum_ms, min_reserve_ms, limit_ms)
    except BudgetExhausted as error:
        return _reported(Outcome(name, "not_started", error=error), report)
    clock = asyncio.get_running_loop().time if budget is None else budget.clock
    end = None if seconds is None else _read(clock) + round(seconds * 1_000_000)
    finished: list[int] = []

    async def timed() -> T:
        value = await fn()
        finished.append(_read(clock))
        return value

    ending = await own(
        timed,
        limit_s=seconds,
        grace_s=grace_ms / 1000,
        on_late_end=partial(_late_end, name, own_limit, report_end),
    )
    late = end is not None and bool(finished) and finished[0] >= end
    outcome = _reported(_outcome(name, ending, late, own_limit), report)
    if ending.outer is not None:
        raise ending.outer
    return outcome


async def tool_with_budget(
    name: str,
    args: Mapping[str, Any],
    budget: Budget,
    fn: Callable[..., Awaitable[T]],
    min_reserve_ms: int = MIN_RESERVE_MS,
) -> T:
    """Call `fn(**args)` within `budget` and return its value in time, or raise as `Outcome.get` does.

    Raises `BudgetError` for arguments that are no keywords.
    Source: claims I4-014 to I4-019.
    """
    if not isinstance(args, Mapping) or not all(type(key) is str for key in args):
        raise BudgetError("the arguments are no mapping of names")
    outcome = await run_within(budget, name, lambda: fn(**args), min_reserve_ms=min_reserve_ms)
    return outcome.get()


def _budget(total_ms: int, ratio: float, clock: Clock, main_us: int, hard_us: int) -> Budget:
    """Make a budget from deadlines that are on the clock already."""
    budget = object.__new__(Budget)
    budget._fill(total_ms, 0, ratio, clock, main_us, hard_us)
    return budget


def _limit(
    budget: Budget | None, name: str, minimum_ms: int, min_reserve_ms: int, limit_ms: int | None
) -> tuple[float | None, bool]:
    """Return the seconds that a tool has, and whether its own limit says so."""
    if budget is None:
        return (None, False) if limit_ms is None else (limit_ms / 1000, True)
    budget.check(name, minimum_ms, min_reserve_ms=min_reserve_ms)
    seconds = budget.seconds()
    if seconds <= 0:  # the last moment went by between the two looks at the clock
        raise BudgetExhausted(name, 0, max(minimum_ms, min_reserve_ms))
    return (limit_ms / 1000, True) if limit_ms is not None and limit_ms / 1000 <= seconds else (seconds, False)


def _outcome(name: str, ending: Ending[T], late: bool, own_limit: bool) -> Outcome[T]:
    obeyed = isinstance(ending.error, asyncio.CancelledError)
    kind: Kind
    if ending.outer is not None or (ending.why == "itself" and obeyed):
        kind = "cancelled"
    elif ending.returned:
        kind = "late_value" if late or ending.why == "limit" else "value"
    elif ending.why == "itself":
        kind = "tool_error"
    else:
        kind = "timed_out_stopped" if ending.done else "timed_out_abandoned"
    error = None if obeyed else ending.error
    return Outcome(name, kind, ending.value, error, ending.returned, not ending.done, own_limit)


def _late_end(name: str, own_limit: bool, report_end: Callable[[Outcome[T]], None] | None, ending: Ending[T]) -> None:
    outcome = _outcome(name, ending, True, own_limit)
    if report_end is not None:
        report_end(outcome)
    else:
        _log.warning("%s: an abandoned call ended as %s", name, outcome.kind)


def _reported(outcome: Outcome[T], report: Callable[[Outcome[T]], None] | None) -> Outcome[T]:
    if report is not None:
        report(outcome)
    return outcome


def _milliseconds(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_MS:
        raise BudgetError(f"{name} is not a whole number of milliseconds from 0 to {MAX_MS}")
    return value


def _read(clock: Clock) -> int:
    """Return the clock's reading in whole microseconds."""
    try:
        return round(clock() * 1_000_000)
    except (TypeError, ValueError, OverflowError) as error:
        raise BudgetError("the clock does not give a finite number of seconds") from error
