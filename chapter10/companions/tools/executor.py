"""Run the tool calls of one model answer: safe ones together, unsafe ones alone, every call answered once.

    model ----add----> queued ----> executing ----> completed ----> yielded ----> the next request
                                      |  progress, at once                ^
                                      +-----------------------------------+

What a user of this module may rely on
    E1   Calls start in the order in which they were added. A safe call runs beside other safe ones, up
         to `limit`; any other call runs alone. Nothing behind a blocked call starts.
    E2   Safety is decided once, when a call is added, from its parsed arguments. What cannot be parsed
         and what the test cannot decide is unsafe. Arguments that were cut off are never executed.
    E3   Results leave in the order of adding, whatever the order of finishing. Progress leaves at once,
         first in first out for each call, and always before the result of its own call.
    E4   Each call gets exactly one answer, whatever happens: its own result, an error, or a synthetic
         text that says why it was cancelled and whether it had started. What was done stays done: an answer
         that `shape_result` refuses is no failure of a call that does more than read.
    E5   A cancel goes from the query to the siblings to one call, never up. Each scope keeps the first
         reason that reached it, so two reasons in one tick are both known afterwards.
    E6   Only a failing call with `cancels_siblings` (a shell command) ends the others. A refusal, a
         timeout and the failure of any other tool concern that call alone.
    E7   After a cancel nothing new starts, also when a running tool swallowed it and returned.
    E8   No task outlives `aclose` and the end of `async with`, but a tool that ignores its cancel for
         `grace_seconds`: it is reported in `abandoned`, its late result is dropped, and no further call
         of the batch starts, because it can no longer be kept apart from it.
    E9   A cancel of the task that consumes is never lost and never swallowed; it may be late by the grace.
    E10  A tool that reports progress never waits. Of each call the newest `keep_progress` events are
         kept, of all calls `MAX_PENDING_PROGRESS`; what is dropped is the oldest, and it is counted.

A call is started by a task of its own and watched by that task's done callback. There is no task group
here: on Python 3.11 and 3.12 a nested group can lose a cancel that arrives in the tick in which it
fails. The tool's task is cancelled at most once, so that a second reason does not break into its cleanup.

What it does not do: it checks no schema and no permission, keeps no time limit for a tool (`run` does
that, see `companions.tools.registry`), and does not correct the order that the model chose: dependencies
between calls are not visible here, and a program that relies on its order must get it.

A call that is answered without being run passes `executing` and `completed` in one step, so that the
three transitions are the only ones. Everything here belongs to the thread of one event loop.

Calls, answers, reasons and the pipeline of one call are in `companions.tools.tool_calls`.
Source: the orchestration document, sections 8.1 to 8.3 and 8.7 (claims C8-001 to C8-042, C8-075 to C8-079).
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from chapter10.companions.tools.tool_calls import (
    CALL_CANCELLED,
    CAUSE_TEXTS,
    FAILURE_TEXTS,
    SIBLING_ERROR,
    STREAMING_FALLBACK,
    USER_INTERRUPT,
    CallFailure,
    CancelScope,
    ExecutorError,
    Progress,
    Run,
    ToolCall,
    ToolResult,
    cancelled_answer,
    check_call,
    failure_of,
    invalid_arguments,
    parse_arguments,
)
from chapter10.companions.tools.tool_spec import ANSWER_LOST

__all__ = [
    "GRACE_SECONDS",
    "KEEP_PROGRESS",
    "MAX_CALLS",
    "MAX_PARALLEL",
    "MAX_PENDING_PROGRESS",
    "MAX_UNSHAPED_CHARS",
    "NEXT_STATE",
    "CallLater",
    "ExecutorStatistics",
    "StreamingToolExecutor",
    "Timer",
    "ToolState",
    "Update",
    "can_execute",
]

MAX_CALLS: Final = 10_000
"""Calls that one executor accepts, which is one answer of the model."""
MAX_PARALLEL: Final = 1_000
"""The largest `limit`."""
KEEP_PROGRESS: Final = 100
"""Progress events of one call that wait for the consumer; older ones are dropped and counted."""
MAX_PENDING_PROGRESS: Final = 10_000
"""Progress events of all calls that wait for the consumer."""
MAX_UNSHAPED_CHARS: Final = 2_000
"""Characters of the text of a failure that could not be shaped."""
GRACE_SECONDS: Final = 5.0
"""How long a cancelled tool may take to stop before it is abandoned."""


_ANY: Final = (Exception, asyncio.CancelledError)
"""What a function of others may raise that is called and not awaited: no cancel of ours can come out of it."""


class ToolState(enum.Enum):
    """Where a call is. This is the state within one answer of the model, not the state of a job."""

    QUEUED = "queued"  # added; waits for its turn
    EXECUTING = "executing"  # its task runs
    COMPLETED = "completed"  # its answer is known and waits for the answers before it
    YIELDED = "yielded"  # its answer was handed out; final

    __hash__ = object.__hash__  # each is one object; the hash of an enum is a call of Python code


NEXT_STATE: Final = {
    ToolState.QUEUED: ToolState.EXECUTING,
    ToolState.EXECUTING: ToolState.COMPLETED,
    ToolState.COMPLETED: ToolState.YIELDED,
}
"""The three transitions; there is no other."""


@dataclass(frozen=True, slots=True)
class Update:
    """What the consumer gets: a `Progress` or a `ToolResult`, with the context of the query (C8-038)."""

    message: Progress | ToolResult
    new_context: Any


@dataclass(frozen=True, slots=True)
class ExecutorStatistics:
    """Counts for tests and reports."""

    queued: int
    executing: int
    completed: int
    yielded: int
    pending_progress: int
    dropped_progress: int
    wake_ups: int  # how often the waiting consumer was woken
    abandoned: int


class Timer(Protocol):
    """What `call_later` returns; the handle of an event loop is one."""

    def cancel(self) -> None:
        """Do not run the action."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Runs an action after so many seconds, unless the timer is cancelled."""


def can_execute(is_safe: bool, executing_safe: int, executing_unsafe: int, limit: int) -> bool:
    """May a call start now? Alone always; else only safe among safe ones, and below the limit.

    The check is symmetric: the newcomer and everybody who runs must be safe. The limit is our addition,
    since an unbounded number of parallel calls is a fault of its own (claims C8-007 to C8-009, X-18).
    """
    if executing_safe + executing_unsafe == 0:
        return True
    return is_safe and executing_unsafe == 0 and executing_safe < limit


class _Entry:
    """One call inside the executor."""

    __slots__ = (
        "call", "dropped", "emitted", "pending", "refusal", "result", "safe", "scope", "sent", "started",
        "state", "task", "timer",
    )  # fmt: skip

    def __init__(self, call: ToolCall, safe: bool, refusal: CallFailure | None) -> None:
        self.call = call
        self.safe = safe
        self.refusal = refusal  # set: answered with this when its turn comes, and never run
        self.state = ToolState.QUEUED
        self.scope: CancelScope | None = None  # from the start of the task to its end
        self.task: asyncio.Task[Any] | None = None
        self.started = False  # the tool was called, as far as `run` says
        self.sent: str | None = None  # the reason that was sent into the running task, once
        self.timer: Timer | None = None  # runs while a cancelled task may still stop by itself
        self.pending: deque[tuple[int, Any]] | None = None
        self.emitted = 0
        self.dropped = 0
        self.result: ToolResult | None = None  # while completed


class _Sink:
    """The `ProgressSink` of one call."""

    __slots__ = ("_emit", "_entry")

    def __init__(self, emit: Callable[[_Entry, Any], None], entry: _Entry) -> None:
        self._emit = emit
        self._entry = entry

    def __call__(self, data: Any) -> None:
        self._emit(self._entry, data)

    @property
    def called(self) -> bool:
        return self._entry.started

    @called.setter
    def called(self, value: bool) -> None:
        self._entry.started = value

    @property
    def reason(self) -> str | None:
        scope = self._entry.scope
        return None if scope is None else scope.reason


class StreamingToolExecutor:
    """The calls of one answer, from `add` to the last result.

        async with StreamingToolExecutor(run, is_safe=is_safe, query=query) as executor:
            async for block in model:
                executor.add(block)
                for update in executor.ready(): ...       # what is there already, without waiting
            executor.end_input()
            async for update in executor.updates(): ...   # the rest, until every call is answered

    `run(call, progress)` executes; `is_safe(call, arguments)` decides at `add` and any answer that is
    not true, one that would have to be awaited, or an exception, means unsafe; without it every call is
    unsafe. `parse(call)` gives the arguments or raises. `query` is the outer scope, shared by the answers of
    one query. `limit`: safe calls at once. `shape_result(call, content, is_error)` is applied to each answer
    before it is completed (the per-tool limit of `companions.tools.result_budget`, C8-077). `observe(call_id, state)`
    hears every transition, and what it raises is ignored. `call_later(seconds, action)` is the timer of the
    grace. Raises `ExecutorError` (`bad_input`).
    """

    def __init__(
        self,
        run: Run,
        *,
        is_safe: Callable[[ToolCall, Any], object] | None = None,
        parse: Callable[[ToolCall], Any] = parse_arguments,
        query: CancelScope | None = None,
        limit: int = 10,
        keep_progress: int = KEEP_PROGRESS,
        grace_seconds: float = GRACE_SECONDS,
        context: Any = None,
        shape_result: Callable[[ToolCall, Any, bool], Any] | None = None,
        observe: Callable[[str, ToolState], None] | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        for part in (run, parse):
            if not callable(part):
                raise ExecutorError("bad_input", "not callable")
        self._run = run
        self._is_safe = is_safe
        self._parse = parse
        self._limit = _whole(limit, MAX_PARALLEL)
        self._keep_progress = _whole(keep_progress, MAX_PENDING_PROGRESS)
        self._grace_seconds = _seconds(grace_seconds)
        self._shape_result = shape_result
        self._observe = observe
        self._call_later = call_later
        self._thread = threading.get_ident()
        self.context = context
        self.query = CancelScope() if query is None else query
        self.siblings = CancelScope(self.query, self._on_siblings_cancelled)
        self.has_errored = False
        self.errored_description: str | None = None

        self._entries: dict[str, _Entry] = {}
        self._queue: deque[_Entry] = deque()  # waiting for their turn
        self._line: deque[_Entry] = deque()  # not handed out, in the order of adding
        self._running: dict[str, _Entry] = {}  # with a task, in the order of starting
        self._running_unsafe = 0
        self._abandoned: dict[str, asyncio.Task[Any]] = {}  # the reference keeps a task alive
        self._talking: dict[_Entry, None] = {}  # with pending progress, longest waiting first
        self._pending_progress = 0
        self._dropped_progress = 0
        self._progress_was_last = False
        self._wake = asyncio.Event()  # cleared before the look, so that nothing between is lost
        self._idle = asyncio.Event()
        self._wake_ups = 0
        self._input_ended = False
        self._consumed = False
        self._broken_off = False

    # -- The model's side ------------------------------------------------------------------------------

    def add(self, call: ToolCall) -> None:
        """Accept one call while the model may still be writing the next; it starts at once if it may.

        A call that comes after a cancel is accepted and answered without being run. Raises
        `ExecutorError`: `bad_input`, `duplicate_call`, `too_many_calls`, `executor_closed`.
        """
        check_call(call)
        if self._input_ended:
            raise ExecutorError("executor_closed")
        if call.call_id in self._entries:
            raise ExecutorError("duplicate_call")
        if len(self._entries) >= MAX_CALLS:
            raise ExecutorError("too_many_calls")
        entry = self._judge(call)
        self._entries[call.call_id] = entry
        self._queue.append(entry)
        self._line.append(entry)
        self._scan()

    def end_input(self) -> None:
        """Say that the model has written its last call; `updates` ends when all are answered."""
        self._input_ended = True
        self._wake.set()

    def discard(self) -> None:
        """Give up this answer because the model's stream fell back: nothing starts, what runs is cancelled.

        The query goes on and usually makes a new executor.
        """
        self.siblings.cancel(STREAMING_FALLBACK)
        self.end_input()

    def cancel_call(self, call_id: str, reason: str = CALL_CANCELLED) -> bool:
        """Cancel one call and nothing else; False when it is answered already. Raises `unknown_call`."""
        entry = self._entry(call_id)
        if not isinstance(reason, str) or reason not in CAUSE_TEXTS:
            raise ExecutorError("bad_input", "an unknown reason")
        if entry.state is ToolState.QUEUED:
            self._answer_unrun(entry, reason)
            self._scan()
            return True
        if entry.state is not ToolState.EXECUTING or entry.scope is None:
            return False
        return entry.scope.cancel(reason)

    # -- The consumer's side ---------------------------------------------------------------------------

    def ready(self) -> list[Update]:
        """Return what can be handed out now, without waiting; after a cancel also the last answers."""
        updates = []
        while (update := self._next_update()) is not None:
            updates.append(update)
        return updates

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield progress at once and results in order, until the input has ended and all are answered.

        One consumer at a time (`already_consumed`). Leaving it early, by `aclose` or by a cancel of the
        task, cancels all calls and waits for them; the answers are then in `ready`. A plain `break`
        closes no generator in Python: the `async with` of the executor does.
        """
        if self._consumed:
            raise ExecutorError("already_consumed")
        self._consumed = True
        try:
            while True:
                self._wake.clear()
                while (update := self._next_update()) is not None:
                    yield update
                if self._input_ended and not self._line:
                    break
                await self._wake.wait()
                self._wake_ups += 1
        finally:
            self._consumed = False
            await self.aclose()

    async def results(self) -> list[ToolResult]:
        """End the input, wait for all calls and return the results not handed out before, in order."""
        self.end_input()
        async with aclosing(self.updates()) as updates:
            return [update.message async for update in updates if isinstance(update.message, ToolResult)]

    async def aclose(self) -> None:
        """Cancel what is not answered, wait for the tasks (at most the grace), leave the tree of scopes.

        A second call does nothing. A cancel of this task that arrives in here is raised when the wait is over.
        """
        self.end_input()
        if self._running:
            self._broken_off = True
            self.siblings.cancel(USER_INTERRUPT)
        interrupted: asyncio.CancelledError | None = None
        while self._running:
            self._idle.clear()
            try:
                await self._idle.wait()
            except asyncio.CancelledError as error:
                interrupted = error
        self.siblings.close()
        if interrupted is not None:
            raise interrupted

    async def __aenter__(self) -> StreamingToolExecutor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- Looking in ------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether the run was stopped from outside; a sibling error or a fallback is no stop of the run."""
        return self.query.cancelled or self._broken_off

    @property
    def executing(self) -> tuple[str, ...]:
        """The ids of the calls that run now, in the order of starting."""
        return tuple(self._running)

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The ids of the calls whose tool ignored its cancel for the whole grace."""
        return tuple(self._abandoned)

    def state_of(self, call_id: str) -> ToolState:
        """Return the state of a call. Raises `ExecutorError` (`unknown_call`)."""
        return self._entry(call_id).state

    def is_safe(self, call_id: str) -> bool:
        """Return what was decided about a call when it was added. Raises `ExecutorError` (`unknown_call`)."""
        return self._entry(call_id).safe

    def statistics(self) -> ExecutorStatistics:
        """Count the calls by state and the traffic so far."""
        counts = dict.fromkeys(ToolState, 0)
        for entry in self._entries.values():
            counts[entry.state] += 1
        return ExecutorStatistics(
            queued=counts[ToolState.QUEUED],
            executing=counts[ToolState.EXECUTING],
            completed=counts[ToolState.COMPLETED],
            yielded=counts[ToolState.YIELDED],
            pending_progress=self._pending_progress,
            dropped_progress=self._dropped_progress,
            wake_ups=self._wake_ups,
            abandoned=len(self._abandoned),
        )

    # -- Scheduling ------------------------------------------------------------------------------------

    def _judge(self, call: ToolCall) -> _Entry:
        """Parse the arguments and decide about safety, once (E2)."""
        try:
            arguments = self._parse(call)
        except _ANY as error:
            cut_off = call.cut_off or getattr(error, "reason", "") == "cut off"
            return _Entry(call, safe=False, refusal=invalid_arguments(cut_off))
        if call.cut_off:  # it parses, but nobody knows what was to follow
            return _Entry(call, safe=False, refusal=invalid_arguments(True))
        try:
            answer = None if self._is_safe is None else self._is_safe(call, arguments)
            safe = not inspect.isawaitable(answer) and bool(answer)
            if inspect.iscoroutine(answer):
                answer.close()
        except _ANY:
            safe = False
        parsed = ToolCall(
            call.call_id, call.name, arguments, False, call.cancels_siblings, call.read_only, call.description
        )
        return _Entry(parsed, safe, refusal=None)

    def _scan(self) -> None:
        """Start what may start, from the head of the queue, and stop at the first that may not (E1).

        A safe call that is blocked would block every safe call behind it too, so one `break` serves
        both kinds and the work is constant for each call.
        """
        while self._queue:
            entry = self._queue[0]
            reason = self.siblings.reason
            if entry.state is ToolState.QUEUED and reason is None:
                running_safe = len(self._running) - self._running_unsafe
                if not can_execute(entry.safe, running_safe, self._running_unsafe, self._limit):
                    break
            self._queue.popleft()
            if entry.state is not ToolState.QUEUED:
                continue
            if reason is not None:
                self._answer_unrun(entry, reason)
            elif entry.refusal is not None:
                self._advance(entry, ToolState.EXECUTING)
                self._complete(entry, entry.refusal)
            else:
                self._start(entry)

    def _start(self, entry: _Entry) -> None:
        """Start without awaiting the end, which would make everything serial (X-28)."""
        entry.scope = CancelScope(self.siblings, lambda reason: self._send_cancel(entry, reason))
        self._running[entry.call.call_id] = entry
        self._running_unsafe += not entry.safe
        self._advance(entry, ToolState.EXECUTING)
        entry.task = asyncio.get_running_loop().create_task(self._execute(entry))
        entry.task.add_done_callback(lambda task: self._on_done(entry, task))
        # With an eager task factory the tool has run already, and may have cancelled its own query.
        if entry.scope.reason is not None:
            self._send_cancel(entry, entry.scope.reason)

    async def _execute(self, entry: _Entry) -> Any:
        entry.started = True
        return await self._run(entry.call, _Sink(self._emit, entry))

    def _on_done(self, entry: _Entry, task: asyncio.Task[Any]) -> None:
        """The task has ended: answer the call, end the siblings if it must be, start what comes next."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if entry.state is not ToolState.EXECUTING:  # abandoned: too late
            return
        self._release(entry)
        failure = None
        if error is None:
            value = task.result()
            failure = value if isinstance(value, CallFailure) else None
            self._complete(entry, value)
        elif entry.sent is not None:
            # It ended by the cancel, or by an error on the way out: the cancel is the reason.
            self._complete(entry, cancelled_answer(entry.call, entry.sent, entry.started), error)
        else:
            failure = failure_of(error, entry.call)
            self._complete(entry, failure, error)
        if failure is not None and not failure.local and entry.sent is None and entry.call.cancels_siblings:
            self._end_siblings(entry)
        self._scan()

    def _release(self, entry: _Entry) -> None:
        del self._running[entry.call.call_id]
        self._running_unsafe -= not entry.safe
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        if entry.scope is not None:
            entry.scope.close()
        self._idle.set()

    # -- Cancelling ------------------------------------------------------------------------------------

    def _end_siblings(self, entry: _Entry) -> None:
        if not self.siblings.cancelled:
            self.has_errored = True
            self.errored_description = entry.call.description or entry.call.name
            self.siblings.cancel(SIBLING_ERROR)

    def _on_siblings_cancelled(self, reason: str) -> None:
        self._scan()  # answers all that are queued

    def _send_cancel(self, entry: _Entry, reason: str) -> None:
        """Cancel a running task and give it the grace to stop by itself.

        It happens once in the life of a task, because a scope passes on its first reason only.
        """
        task = entry.task
        if task is None or task.done():
            return
        entry.sent = reason
        task.cancel(reason)
        call_later = self._call_later or asyncio.get_running_loop().call_later
        entry.timer = call_later(self._grace_seconds, lambda: self._abandon(entry))

    def _abandon(self, entry: _Entry) -> None:
        """Stop waiting for a tool that ignores its cancel (E8)."""
        if entry.task is None or entry.task.done() or entry.state is not ToolState.EXECUTING:
            return
        self._release(entry)
        self._abandoned[entry.call.call_id] = entry.task
        self._complete(entry, cancelled_answer(entry.call, entry.sent or CALL_CANCELLED, entry.started))
        self._end_siblings(entry)

    # -- Answers and progress --------------------------------------------------------------------------

    def _answer_unrun(self, entry: _Entry, reason: str) -> None:
        self._advance(entry, ToolState.EXECUTING)
        self._complete(entry, cancelled_answer(entry.call, reason, started=False))

    def _complete(self, entry: _Entry, value: Any, cause: BaseException | None = None) -> None:
        """Turn the outcome into the one answer of the call and wake the consumer."""
        call = entry.call
        failure = value if isinstance(value, CallFailure) else None
        content = value if failure is None else failure.content
        code = None if failure is None else failure.code
        if self._shape_result is not None:
            try:
                content = self._shape_result(call, content, code is not None)
            except _ANY as error:
                content, code, cause = *_unshaped(call, failure), error
        entry.result = ToolResult(call.call_id, call.name, content, code is not None, code, entry.started, cause)
        self._advance(entry, ToolState.COMPLETED)
        self._wake.set()

    def _emit(self, entry: _Entry, data: Any) -> None:
        if threading.get_ident() != self._thread:
            raise ExecutorError("wrong_thread")
        if entry.state is not ToolState.EXECUTING:
            return  # its answer is known; nothing may follow it
        entry.emitted += 1
        if entry.pending is None:
            entry.pending = deque()
        self._talking[entry] = None
        entry.pending.append((entry.emitted, data))
        self._pending_progress += 1
        if len(entry.pending) > self._keep_progress:
            self._drop_oldest(entry)
        elif self._pending_progress > MAX_PENDING_PROGRESS:
            self._drop_oldest(next(iter(self._talking)))
        self._wake.set()

    def _drop_oldest(self, entry: _Entry) -> None:
        self._take_progress(entry)
        entry.dropped += 1
        self._dropped_progress += 1

    def _take_progress(self, entry: _Entry) -> tuple[int, Any]:
        assert entry.pending is not None
        event = entry.pending.popleft()
        self._pending_progress -= 1
        if not entry.pending:
            del self._talking[entry]
        return event

    def _next_update(self) -> Update | None:
        """Progress before results, but by turns, so that a chatty tool does not hold back a result."""
        head = self._line[0] if self._line else None
        deliverable = head is not None and head.state is ToolState.COMPLETED and not head.pending
        if self._talking and not (self._progress_was_last and deliverable):
            entry = next(iter(self._talking))
            number, data = self._take_progress(entry)
            if entry in self._talking:  # others get their turn; the order within a call stays
                del self._talking[entry]
                self._talking[entry] = None
            self._progress_was_last = True
            return Update(Progress(entry.call.call_id, number, data, entry.dropped), self.context)
        self._progress_was_last = False
        if head is None or not deliverable:
            return None
        self._line.popleft()
        self._advance(head, ToolState.YIELDED)
        result, head.result = head.result, None  # a yielded result belongs to the consumer alone
        assert result is not None
        head.task = None
        return Update(result, self.context)

    def _advance(self, entry: _Entry, state: ToolState) -> None:
        assert NEXT_STATE[entry.state] is state
        entry.state = state
        if self._observe is not None:
            with suppress(*_ANY):
                self._observe(entry.call.call_id, state)

    def _entry(self, call_id: str) -> _Entry:
        entry = self._entries.get(call_id) if isinstance(call_id, str) else None
        if entry is None:
            raise ExecutorError("unknown_call")
        return entry


def _unshaped(call: ToolCall, failure: CallFailure | None) -> tuple[str, str | None]:
    """Return content and code of a call whose answer could not be shaped: what is known of its effect stays."""
    if failure is not None:
        text = failure.content if isinstance(failure.content, str) else FAILURE_TEXTS["tool_failure"]
        return text[:MAX_UNSHAPED_CHARS], failure.code
    return (FAILURE_TEXTS["tool_failure"], "tool_failure") if call.read_only else (ANSWER_LOST, None)


def _whole(value: int, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ExecutorError("bad_input", f"not a whole number from 1 to {most}")
    return value


def _seconds(value: float) -> float:
    if (type(value) is not int and type(value) is not float) or not 0 < value <= 2.0**31:  # what a timer holds
        raise ExecutorError("bad_input", "not a positive number of seconds")
    return value
