"""One tool call as the layer sees it: the block, its answers, why it was stopped, the steps of its way.

The words
    call        one `tool_use` block; its id is unique in a conversation, its name and arguments are not
    answer      what the model reads for a call: content, an error with a code, or a synthetic text
    synthetic   made here because the tool did not answer; it says why, and whether the call had started
    scope       a node of the cancel tree: the query, the siblings of one answer, one call
    local       a failure that concerns its own call alone: a refusal or a timeout

What holds
    L1  A scope keeps the first reason that reached it; a cancel goes down the tree and never up.
    L2  Each cause has a text of its own, and each fate too: not started, only read, outcome unknown.
    L3  Arguments are strict JSON or they are refused; what was cut off is told apart from what is wrong.
    L4  The text of an exception never reaches the model; a failure is mapped by its leaves to a fixed text.

The scheduler that uses all this is `companions.tools.executor`. The codes are those of the registry.
Source: the orchestration document, sections 8.2 and 8.7 (claims C8-025 to C8-033, C8-076; X-16, X-31).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from chapter10.canonical import CodedError
from chapter10.companions.basics.tasks import leaves
from chapter10.companions.schemas.strict_json import JsonError, copy_json, strict_json
from chapter10.companions.tools.redaction import redact_secrets
from chapter10.companions.tools.result_text import cut_text, whole_characters
from chapter10.companions.tools.tool_spec import ANSWER_LOST, ToolRefused

__all__ = [
    "CALL_CANCELLED",
    "CAUSE_TEXTS",
    "FAILURE_TEXTS",
    "MAX_REFUSAL",
    "MAX_TEXT",
    "PIPELINE_STEPS",
    "SIBLING_ERROR",
    "STREAMING_FALLBACK",
    "USER_INTERRUPT",
    "CallFailure",
    "CancelScope",
    "Check",
    "ExecutorError",
    "Progress",
    "ProgressSink",
    "Run",
    "ToolCall",
    "ToolPipeline",
    "ToolResult",
    "cancelled_answer",
    "check_call",
    "failure_of",
    "invalid_arguments",
    "parse_arguments",
]

MAX_TEXT: Final = 200
"""Characters of a call id, a tool name or a description."""

MAX_REFUSAL: Final = 2_000
"""Characters of the text with which a tool refuses, where no spec sets another limit."""

SIBLING_ERROR: Final = "sibling_error"
USER_INTERRUPT: Final = "user_interrupt"
STREAMING_FALLBACK: Final = "streaming_fallback"
CALL_CANCELLED: Final = "call_cancelled"

CAUSE_TEXTS: Final = {
    SIBLING_ERROR: "Cancelled: another command of this batch failed.",
    USER_INTERRUPT: "Cancelled: the user interrupted the run.",
    STREAMING_FALLBACK: "Cancelled: the answer that asked for this call was given up and is produced anew.",
    CALL_CANCELLED: "Cancelled: this call alone was stopped.",
}
"""What the model reads, by reason; the keys are all reasons that a scope accepts."""

_NOT_STARTED: Final = " It was not started."
_ONLY_READ: Final = " It had started and only reads."
_UNKNOWN: Final = " It had started and its outcome is unknown: check before doing it again."

FAILURE_TEXTS: Final = {
    "tool_failure": "The tool failed.",
    "forbidden": "The call was refused. Do not repeat it.",
    "transient_failure": "The tool took too long. It only reads and may be called again.",
    "outcome_unknown": "The tool took too long and its outcome is unknown: check before doing it again.",
    "invalid_arguments": "The arguments are not a JSON object. The call was not executed. Write them anew.",
}
"""What the model reads when a call failed, by code."""
_CUT_OFF_TEXT: Final = "The arguments were cut off. The call was not executed. Make it again, with shorter ones."


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One `tool_use` block. `run` gets it with `arguments` parsed; the caller may give text or a dict."""

    call_id: str
    name: str
    arguments: Any = "{}"
    cut_off: bool = False  # the model's answer hit its limit inside this call
    cancels_siblings: bool = False  # shell class: what follows a failed command makes no sense
    read_only: bool = False  # if not, a cancel after the start leaves the outcome unknown
    description: str = ""  # for people: what failed; the name stands in when it is empty


@dataclass(frozen=True, slots=True)
class CallFailure:
    """What `run` returns (instead of raising) when a call failed. `content` is what the model reads.

    `local`: a refusal or a timeout, which ends no sibling even for a call with `cancels_siblings`.
    """

    content: Any
    code: str = "tool_failure"
    local: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The one answer of a call. `code` is None for success, else a stable word."""

    call_id: str
    name: str
    content: Any
    is_error: bool = False
    code: str | None = None
    started: bool = True  # whether the tool was called: `run` was entered, or what `run` says in `progress.called`
    cause: BaseException | None = field(default=None, repr=False, compare=False)  # for a log, not the model


@dataclass(frozen=True, slots=True)
class Progress:
    """One event of a running call. `number` counts from 1 in a call; `dropped` were lost before this one."""

    call_id: str
    number: int
    data: Any
    dropped: int = 0


class ExecutorError(CodedError, ValueError):
    """Raised when the caller breaks the contract; nothing was changed.

    `bad_input`, `duplicate_call`, `too_many_calls`, `executor_closed` (a call after the end of input),
    `unknown_call`, `already_consumed` (a second consumer), `wrong_thread` (progress from another
    thread; use `loop.call_soon_threadsafe`). `reason` says it in a few words.
    """

    reason: str

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code)
        self.reason = reason


class CancelScope:
    """A node of the cancel tree: the query, the siblings of one answer, one call.

    `reason` is None, or the first reason that reached this scope, from its own `cancel` or from above.
    A cancel goes down and never up (C8-025, C8-031). Raises `ExecutorError` (`bad_input`) for a reason
    that is not a key of `CAUSE_TEXTS`.
    """

    __slots__ = ("_children", "_on_cancel", "_parent", "reason")

    def __init__(self, parent: CancelScope | None = None, on_cancel: Callable[[str], None] | None = None) -> None:
        self.reason: str | None = None if parent is None else parent.reason
        self._parent = parent
        self._on_cancel = on_cancel
        self._children: dict[CancelScope, None] = {}  # a dict keeps the order of entering
        if parent is not None:
            parent._children[self] = None

    @property
    def cancelled(self) -> bool:
        """Whether a reason has reached this scope."""
        return self.reason is not None

    def cancel(self, reason: str) -> bool:
        """Cancel this scope and all below it; False when it was cancelled before (the reason stays)."""
        if not isinstance(reason, str) or reason not in CAUSE_TEXTS:
            raise ExecutorError("bad_input", "an unknown reason")
        if self.reason is not None:
            return False
        self.reason = reason
        for child in tuple(self._children):
            child.cancel(reason)
        if self._on_cancel is not None:
            self._on_cancel(reason)
        return True

    def close(self) -> None:
        """Leave the tree, so that a long query does not collect the scopes of its past."""
        if self._parent is not None:
            self._parent._children.pop(self, None)
            self._parent = None


class ProgressSink(Protocol):
    """What a tool gets to report with.

    `called` says whether the tool was called. It is true from the entry into `run`; a `run` that asks or waits
    before it calls the tool sets it to False first, so that a cancel there is not said to have stopped anything.
    """

    called: bool

    def __call__(self, data: Any) -> None:
        """Hand one event to the consumer, unchanged, and return at once. Raises `wrong_thread`."""

    @property
    def reason(self) -> str | None:
        """Why this call is being cancelled, or None."""


Run = Callable[[ToolCall, ProgressSink], Awaitable[Any]]
"""Executes one call: returns its content or a `CallFailure`, or raises."""


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as a fresh dict: an object, in JSON as `companions.schemas.strict_json` reads it.

    The empty text is an empty object: so providers write a call without arguments.

    Raises `ExecutorError` (`invalid_arguments`); its `reason` is `cut off` where the text ends too early, else
    `not an object` or the code of the `JsonError` in words.
    """
    given = call.arguments
    try:
        value = strict_json(given or "{}") if isinstance(given, str) else copy_json(given)
    except JsonError as error:
        raise ExecutorError("invalid_arguments", error.code.removeprefix("json_").replace("_", " ")) from None
    if not isinstance(value, dict):
        raise ExecutorError("invalid_arguments", "not an object")
    return value


PIPELINE_STEPS: Final = (
    "validate_schema",
    "validate_input",
    "pre_tool_use",
    "check_permission",
    "call",
    "post_tool_use",
)
"""The steps of one call, in order (C8-076)."""

Check = Callable[[ToolCall], Any]
"""A step before the call, plain or async: None goes on, a `CallFailure` is the answer."""


@dataclass(frozen=True, slots=True)
class ToolPipeline:
    """A `run` made of the six named steps; a step that is None is left out.

    A step before the call that returns a `CallFailure` ends the pipeline: later steps are not entered
    and the failure is local, a refusal. `post_tool_use(call, value)` gets the value of a call that did
    not fail and returns the value to use. What a step raises passes through, but not from `post_tool_use` of a
    call that does more than read: it was done, and `ANSWER_LOST` says so.
    """

    call: Run
    validate_schema: Check | None = None
    validate_input: Check | None = None
    pre_tool_use: Check | None = None
    check_permission: Check | None = None
    post_tool_use: Callable[[ToolCall, Any], Any] | None = None

    async def __call__(self, call: ToolCall, progress: ProgressSink) -> Any:
        """Run the steps for one call."""
        progress.called = False
        for check in (self.validate_schema, self.validate_input, self.pre_tool_use, self.check_permission):
            answer = None if check is None else await _plain_or_async(check(call))
            if isinstance(answer, CallFailure):
                return replace(answer, local=True)
        progress.called = True
        value = await self.call(call, progress)
        if self.post_tool_use is None or isinstance(value, CallFailure):
            return value
        try:
            return await _plain_or_async(self.post_tool_use(call, value))
        except Exception:
            if call.read_only:
                raise
            return ANSWER_LOST


async def _plain_or_async(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def cancelled_answer(call: ToolCall, reason: str, started: bool) -> CallFailure:
    """Return the synthetic answer of a call that was cancelled, by cause and fate (claims C8-032, C8-033)."""
    if not started:
        fate = _NOT_STARTED
    elif call.read_only:
        fate = _ONLY_READ
    else:
        fate = _UNKNOWN
    return CallFailure(CAUSE_TEXTS[reason] + fate, reason, local=True)


def invalid_arguments(cut_off: bool) -> CallFailure:
    """Return the answer of a call that is not executed because of its arguments."""
    text = _CUT_OFF_TEXT if cut_off else FAILURE_TEXTS["invalid_arguments"]
    return CallFailure(text, "invalid_arguments", local=True)


def failure_of(error: BaseException, call: ToolCall) -> CallFailure:
    """Map what a tool raised by its leaves, to a fixed text, or to the text that a tool chose (`ToolRefused`).

    The text of any other exception never reaches the model.

    `TimeoutError` and `PermissionError` are both `OSError`s, so they are looked at by name. A
    `CancelledError` that nobody here asked for is a failure of the tool like any other.
    """
    codes = set()
    if isinstance(error, ToolRefused) and type(error.text) is str:
        return CallFailure(cut_text(redact_secrets(whole_characters(error.text)), MAX_REFUSAL))
    for leaf in leaves(error):
        if isinstance(leaf, PermissionError):
            codes.add("forbidden")
        elif isinstance(leaf, TimeoutError):
            codes.add("transient_failure" if call.read_only else "outcome_unknown")
        else:
            codes.add("tool_failure")
    code = codes.pop() if len(codes) == 1 else "tool_failure"
    return CallFailure(FAILURE_TEXTS[code], code, local=code != "tool_failure")


def check_call(call: ToolCall) -> None:
    """Check a call at the door. Raises `ExecutorError` (`bad_input`)."""
    if not isinstance(call, ToolCall):
        raise ExecutorError("bad_input", "not a ToolCall")
    named = _is_text(call.call_id) and _is_text(call.name) and call.call_id and call.name
    if not named or not _is_text(call.description):
        raise ExecutorError("bad_input", "an id, a name or a description")
    if not _FLAGS.issuperset(map(type, (call.cut_off, call.cancels_siblings, call.read_only))):
        raise ExecutorError("bad_input", "a flag")


_FLAGS: Final = frozenset({bool})


def _is_text(text: object) -> bool:
    return isinstance(text, str) and len(text) <= MAX_TEXT and _is_clean(text)


def _is_clean(text: str) -> bool:
    return "\0" not in text and (text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text))
