"""A tool is described, limited and implemented in one record, and what a call of it can come to has one table.

A `ToolSpec` holds the description that a model sees, the policy of running and the handler together, so that
no change of the one can forget the other. `companions.tools.registry` runs what is described here.

Source: the document on the tool registry (claims T6-007 to T6-016; X-21, X-37).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from chapter10.canonical import CodedError
from chapter10.companions.tools.redaction import redact_secrets

__all__ = [
    "ANSWER_LOST",
    "CODES",
    "EFFECTS",
    "MAX_ATTEMPTS",
    "MAX_KEY",
    "MAX_OUTPUT_CHARS",
    "MAX_TIMEOUT_SECONDS",
    "PUBLIC",
    "RETRYABLE",
    "STALE",
    "TEXTS",
    "ApprovalRequest",
    "CallContext",
    "HandlerSignature",
    "RegistryError",
    "Status",
    "ToolRefused",
    "ToolSpec",
    "is_seconds",
]

EFFECTS: Final = ("read", "reversible_write", "irreversible_write")
RETRYABLE: Final = {
    "unknown_tool": False,
    "invalid_arguments": False,
    "forbidden": False,
    "approval_required": False,
    "transient_failure": True,
    "outcome_unknown": False,
    "tool_failure": False,
}
"""Every code, and whether the same call may simply be made again."""
CODES: Final = tuple(RETRYABLE)
TEXTS: Final = {
    "unknown_tool": "There is no tool of this name. Search for one that does it.",
    "invalid_arguments": "The arguments do not fit this tool. It was not called. Correct them and call it again.",
    "forbidden": "This call is not permitted. Do not repeat it: do without it, or tell the user.",
    "approval_required": "This call needs an approval and has none. It was not made. Ask the user.",
    "transient_failure": "The tool cannot answer at the moment. The call may be made again.",
    "outcome_unknown": "It is not known whether the call took effect. Check before doing it again.",
    "tool_failure": "The tool failed. Do not repeat the same call: change it, or do without it.",
}
"""The fixed text for each code, with what to do next, for whoever shows a model more than the code."""
STALE: Final = "This tool has changed since its definition was loaded. Search for it again, then call it as it is now."
"""The text of a `forbidden` call whose definition is not the registered one any more."""
ANSWER_LOST: Final = "The call was carried out. Its answer cannot be shown. Do not make it again."
"""What stands for the answer of a write that was done and returned what cannot be shown."""

MAX_ATTEMPTS: Final = 3
"""Executions of one call: the first, and at most two repetitions, whatever `max_attempts` allows."""
MAX_TIMEOUT_SECONDS: Final = 3600.0
"""What takes longer than an hour is a job."""
MAX_OUTPUT_CHARS: Final = 10_000_000
"""The largest `max_output_chars`, in Unicode code points."""
MAX_KEY: Final = 500
"""Characters of a business key."""
PUBLIC: Final = "public"
"""The permission of a tool that names none. Everybody holds it, for a call and for a search."""


class RegistryError(CodedError, ValueError):
    """Raised for a mistake of the program that uses the registry; nothing was changed and nothing called.

    `duplicate_tool`: the name is taken. `invalid_tool`: a spec that cannot be registered. `not_registered`:
    nothing to replace. `invalid_call`: an option of `invoke`. `catalog_mismatch`: what can be found is not
    what can be called. `field` names the place, `reason` says why in a few words; `__cause__` has more.
    """

    field: str
    reason: str

    def __init__(self, code: str, field: str = "", reason: str = "") -> None:
        super().__init__(code)
        self.field = field
        self.reason = reason


class ToolRefused(Exception):
    """Raised by a handler that wants the model to know why it failed: `text` is shown, and nothing else ever is.

    It goes the way of a result, so that it is redacted and cut. The code is `tool_failure`, and the call is not
    repeated. A write raises it for what it has not done.
    """

    text: str

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class Status:
    """What a status query says of a write: `done` (with the result), `not_done`, or `unknown`."""

    state: Literal["done", "not_done", "unknown"]
    value: Any = None


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a handler is told of its call, when its spec has a `context_argument`.

    `key` is the business key, the same at every attempt, and never None for a write; `attempt` counts from 1;
    `is_stopped()` says that nobody waits any more, and a handler in a thread that takes notice ends early.
    `progress(data)` reports to whoever asked for it, in the thread of the handler, and says nothing once nobody
    waits any more; a text or any JSON value, which goes the way of a result.
    """

    tool: str
    attempt: int
    key: str | None
    is_stopped: Callable[[], bool]
    progress: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What somebody is asked to approve. `arguments` is a copy; `digest` is that of the tool's definition."""

    tool: str
    version: str
    description: str
    effect: str
    arguments: dict[str, Any]
    digest: str


@dataclass(frozen=True)
class ToolSpec:
    """A tool: what the model sees, how it may be run, and the handler, in one registered item.

    name, description   what the model sees; a name as the catalog takes it
    effect              one of `EFFECTS`
    timeout_seconds     of one execution, above 0
    max_attempts        executions of one call, the first included, at least 1 (see `MAX_ATTEMPTS`)
    max_output_chars    characters of the text that a model gets, at least 1
    handler             called with the arguments as keywords; `async`, or else in a thread
    parameters          JSON Schema of the arguments; None: made from the handler's signature, names only
    permission          what the grants must hold
    keywords            what a search finds it by; None: the words of its name and description (`words_of`)
    version             for the catalog
    concurrency_safe    whether a call may run beside others: True, False, or a test of the arguments
    max_concurrency     executions of this tool at once; None: as many as the registry runs
    approval            True: needs approval. An irreversible write always does
    status_query        called with (key, arguments) to ask what became of a write; returns a `Status`
    idempotency_key     makes the business key from the arguments, where the caller of `invoke` gives none; a
                        write without the one and the other is not called
    context_argument    name of the handler's parameter that takes a `CallContext`; not an argument of a model
    redact              text to text, before the cut

    Raises `RegistryError` (`invalid_tool`). Source: claims T6-007, T6-012, T6-016; X-37.
    """

    name: str
    description: str
    effect: str
    timeout_seconds: float
    max_attempts: int
    max_output_chars: int
    handler: Callable[..., Any]
    parameters: Mapping[str, Any] | None = None
    permission: str = PUBLIC
    keywords: tuple[str, ...] | None = None
    version: str = "1"
    concurrency_safe: bool | Callable[[dict[str, Any]], bool] = False
    max_concurrency: int | None = None
    approval: bool = False
    status_query: Callable[[str, dict[str, Any]], Any] | None = None
    idempotency_key: Callable[[dict[str, Any]], str] | None = None
    context_argument: str | None = None
    redact: Callable[[str], str] = redact_secrets

    def __post_init__(self) -> None:
        if type(self.effect) is not str or self.effect not in EFFECTS:
            raise RegistryError("invalid_tool", "effect", "not one of " + ", ".join(EFFECTS))
        if not is_seconds(self.timeout_seconds):
            raise RegistryError("invalid_tool", "timeout_seconds", f"not above 0, up to {MAX_TIMEOUT_SECONDS}")
        for field, most in (
            ("max_attempts", 1000),
            ("max_output_chars", MAX_OUTPUT_CHARS),
            ("max_concurrency", 10_000),
        ):
            value = getattr(self, field)
            if (type(value) is not int or not 1 <= value <= most) and not (
                value is None and field == "max_concurrency"
            ):
                raise RegistryError("invalid_tool", field, f"not an integer from 1 to {most}")
        if self.parameters is not None and not isinstance(self.parameters, Mapping):
            raise RegistryError("invalid_tool", "parameters", "not a JSON object")
        if self.context_argument is not None and type(self.context_argument) is not str:
            raise RegistryError("invalid_tool", "context_argument", "not a name")
        if type(self.approval) is not bool:
            raise RegistryError("invalid_tool", "approval", "neither True nor False")
        if type(self.concurrency_safe) is not bool and not callable(self.concurrency_safe):
            raise RegistryError("invalid_tool", "concurrency_safe", "neither a truth value nor callable")
        for field in ("handler", "redact", "status_query", "idempotency_key"):
            value = getattr(self, field)
            if not callable(value) and not (value is None and field in ("status_query", "idempotency_key")):
                raise RegistryError("invalid_tool", field, "not callable")

    @property
    def needs_approval(self) -> bool:
        """Whether a call is made only after somebody approved it."""
        return self.approval or self.effect == "irreversible_write"


class HandlerSignature:
    """Which keywords a handler takes. Raises `RegistryError` (`invalid_tool`) when it cannot be called by name."""

    __slots__ = ("any_name", "names", "required")

    def __init__(self, spec: ToolSpec) -> None:
        try:
            parameters = list(inspect.signature(spec.handler).parameters.values())
        except (TypeError, ValueError):
            raise RegistryError("invalid_tool", "handler", "its signature cannot be read") from None
        named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        if any(one.kind is one.POSITIONAL_ONLY and one.default is one.empty for one in parameters):
            raise RegistryError("invalid_tool", "handler", "a parameter cannot be given by name")
        self.any_name = any(one.kind is one.VAR_KEYWORD for one in parameters)
        self.names = {one.name for one in named}
        self.required = {one.name for one in named if one.default is one.empty}
        if spec.context_argument is not None:
            if spec.context_argument not in self.names:
                raise RegistryError("invalid_tool", "context_argument", "the handler has no such parameter")
            self.names.discard(spec.context_argument)
            self.required.discard(spec.context_argument)

    def schema(self) -> dict[str, Any]:
        """Return a schema that knows the names only, for a spec that has none of its own."""
        return {
            "type": "object",
            "properties": dict.fromkeys(sorted(self.names), True),
            "required": sorted(self.required),
            "additionalProperties": self.any_name,
        }


def is_seconds(value: object) -> bool:
    """Say whether `value` is a number above 0 and up to `MAX_TIMEOUT_SECONDS`."""
    return isinstance(value, int | float) and type(value) is not bool and 0 < value <= MAX_TIMEOUT_SECONDS
