"""One registry of tools, and one boundary that every call passes: `invoke` is the only way to a handler.

    arguments -> schema -> permission -> approval -> a place and a time limit -> handler
    model's result <- stable code or data <- cut <- secrets removed <- what it returned

What a user of this module may rely on
    G1  A refusal stops the way at once: what comes after it, the handler first of all, is not called.
    G2  The arguments that reach a handler are valid, are a copy, and all of them can take effect: what its
        signature does not take is refused, also under an open schema.
    G3  Permission, and the loaded definition where one is given, are checked again at the moment of each
        execution: after the approval, after the wait for a place, before every repetition.
    G4  A read is repeated at most twice. A write has a business key, or it is not called (I4-097). A reversible
        write is repeated only after a status query under that key has said that it was not done, and only when
        the first call has really ended. An irreversible write is never repeated and never runs without approval.
    G5  No repetition exceeds `max_attempts` or the time that the whole task has left; waits count.
    G6  A timeout says that the outcome is not known. The late result is dropped.
    G7  A failure is a code and whether trying again makes sense. Texts of exceptions reach the log only.
    G8  A cancel of the caller, Ctrl-C and the exit of the program are never turned into a result. A cancel that a
        handler makes itself is its failure, as in `bounded_reads`; the calls beside it go on.
    G9  What a model may find is made from the same entries as what it may call: whoever may call a tool finds it by
        its name and by the words of its description, unless the spec names other keywords.
    G10 What happens after a write has returned does not make it undone: an answer that cannot be shown is a
        success with a fixed text and `unreadable`. Of a read, which did nothing, it is `tool_failure`.

Codes, each with its `retryable` (`RETRYABLE`)
    unknown_tool        no such name
    invalid_arguments   no JSON, cut off, against the schema, or what the handler does not take; not called
    forbidden           no permission, a definition that has changed, or the handler refused
    approval_required   nobody approved this call; not called
    transient_failure   retryable: a read that failed for the moment; a write that surely was not done
    outcome_unknown     a write that may have been done: ask its status, do not simply repeat it
    tool_failure        anything else

                       read               reversible_write         irreversible_write
    connection lost    up to 3 calls      status query, then       status query (if any):
    or own timeout                        done / again / unknown   done / failed / unknown
    time limit over    up to 3 calls      the same; no repetition  the same
                                          while the first runs on
    any other error    1 call             1 call                   1 call
    some of a group    1 call             status query: done /     the same
    were lost                             failed / unknown

A success is `{"ok": True, "data": text}`; when the text was cut, also `truncated` and `original_length` in
characters. A failure is `{"ok": False, "error": code, "retryable": bool}` and nothing else, unless the caller asks
for more (`explain=True`): a `text` that says what to do next, which is fixed (`TEXTS`, `STALE`) or the one that a
handler chose (`ToolRefused`), and `problems`: where the arguments break the schema, without their values.
How a value becomes text stands in `returned` and `result_text`; how a handler is stopped stands in `attempt`.

Two gateways, two words: the catalog says `denied` or `stale_definition`, this registry says `forbidden` for
both, and the log says which (X-15). The effect of the catalog is `read` or `write`; the class that decides
about repetition is known here only (X-21).

What it does not do: it knows no identity (the caller passes the grants), makes no write idempotent (the
business key is passed on to the handler, see `companions.effects.idempotency`), and cannot stop a thread.

Source: the document on the tool registry (claims T6-001 to T6-044; X-11, X-13 to X-16, X-36 to X-40).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, TypeVar

from chapter10.canonical import canonical
from chapter10.catalog import BUDGET_BYTES, MAX_QUERY, Catalog, CatalogError, Grants, Tool
from chapter10.companions.basics.blame import in_doubt
from chapter10.companions.basics.tasks import leaves
from chapter10.companions.finding.ranking import Ranking
from chapter10.companions.finding.tool_list import words_of
from chapter10.companions.schemas.hints import HintError, typed_function
from chapter10.companions.schemas.schema import (
    MAX_VIOLATIONS,
    JsonError,
    SchemaError,
    Validator,
    Violation,
    compile_schema,
    strict_json,
)
from chapter10.companions.tools.attempt import Ending, Places, Stop, is_async, run
from chapter10.companions.tools.result_text import canonical_text, cut_text, result_text, whole_characters
from chapter10.companions.tools.returned import Encode, Keep, json_value, server_answer
from chapter10.companions.tools.tool_spec import (
    ANSWER_LOST,
    MAX_ATTEMPTS,
    MAX_KEY,
    MAX_TIMEOUT_SECONDS,
    PUBLIC,
    RETRYABLE,
    STALE,
    TEXTS,
    ApprovalRequest,
    CallContext,
    HandlerSignature,
    RegistryError,
    Status,
    ToolRefused,
    ToolSpec,
    is_seconds,
)

__all__ = [
    "GRACE_SECONDS",
    "MAX_RUNNING",
    "ApprovalRequest",
    "CallContext",
    "RegistryError",
    "Status",
    "ToolRefused",
    "ToolRegistry",
    "ToolSpec",
    "invoke_tool",
]

MAX_RUNNING: Final = 64
"""Handlers that run at once in one registry, by default."""
GRACE_SECONDS: Final = 1.0
"""How long a handler that was told to stop is waited for, by default."""
_FLAT: Final = frozenset({str, int, float, bool, type(None)})
"""Arguments of these types alone need no deep copy."""
_ANY: Final = (Exception, asyncio.CancelledError)
"""What a function of others may raise that is called and not awaited: no cancel of our caller can come out of it."""
_CUT_OFF: Final = Violation("", "json", "was cut off")
_log: Final = logging.getLogger(__name__)


_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Entry:
    """A registered tool: the spec, and what was made from it once."""

    __slots__ = ("asynchronous", "fits", "places", "signature", "spec", "status_is_async", "tool", "validator")

    spec: ToolSpec
    tool: Tool
    signature: HandlerSignature
    validator: Validator
    places: Places | None

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec
        self.signature = HandlerSignature(spec)
        schema = self.signature.schema() if spec.parameters is None else dict(spec.parameters)
        effect: Literal["read", "write"] = "read" if spec.effect == "read" else "write"
        try:
            self.validator = compile_schema(schema)
            keywords = _keywords_of(spec) if spec.keywords is None else spec.keywords
            self.tool = Tool(spec.name, spec.description, keywords, spec.permission, effect, spec.version, schema)
        except SchemaError as error:
            raise RegistryError("invalid_tool", f"parameters{error.path}", error.keyword) from error
        except CatalogError as error:
            raise RegistryError("invalid_tool", error.field or "", error.reason or error.code) from error
        self._check_handler_fits(schema)
        self.fits = self._schema_implies_signature(schema)
        self.asynchronous = is_async(spec.handler)
        self.status_is_async = spec.status_query is not None and is_async(spec.status_query)
        self.places = None if spec.max_concurrency is None else Places(spec.max_concurrency)

    def _check_handler_fits(self, schema: dict[str, Any]) -> None:
        """Refuse a schema that lets a model send what the handler does not take, or leave out what it needs."""
        described = set(schema.get("properties", ()))
        if self.spec.context_argument in described:
            raise RegistryError("invalid_tool", "context_argument", "a model could give it")
        unknown = described - self.signature.names
        if unknown and not self.signature.any_name:
            raise RegistryError("invalid_tool", "parameters", f"the handler does not take {min(unknown)}")

    def _schema_implies_signature(self, schema: dict[str, Any]) -> bool:
        """Whether what this schema accepts is always taken by the handler, so that no call needs to ask."""
        closed = schema.get("additionalProperties") is False  # the arguments are an object in any case
        return closed and self.signature.required <= set(schema.get("required", ()))

    def not_taken(self, arguments: dict[str, Any]) -> list[Violation]:
        """What the handler's signature refuses, found without calling it."""
        signature = self.signature
        missing = [
            Violation(f"/{name}", "required", "is missing") for name in sorted(signature.required - arguments.keys())
        ]
        hidden = self.spec.context_argument
        extra = [name for name in arguments if name == hidden or not (signature.any_name or name in signature.names)]
        return missing + [_not_a_parameter(name) for name in sorted(extra)[:MAX_VIOLATIONS]]


class _Refused(Exception):
    """Ends a call with a code on its way to the handler or back."""

    def __init__(self, code: str, cause: BaseException | None = None, text: str | None = None) -> None:
        self.code = code
        self.cause = cause
        self.text = text or TEXTS[code]


class _Call:
    """One call on its way: what it is, and with what right."""

    __slots__ = ("arguments", "entry", "grants", "key", "loaded", "nested", "on_start", "progress", "remaining")

    def __init__(
        self,
        entry: _Entry,
        arguments: dict[str, Any],
        grants: Grants | Callable[[], Grants],
        loaded: dict[str, Any] | None,
        remaining: Callable[[], float] | None,
        key: str | None,
        progress: Callable[[Any], None] | None,
        on_start: Callable[[], None] | None,
    ) -> None:
        self.entry = entry
        self.arguments = arguments
        self.grants = grants
        self.loaded = loaded
        self.remaining = remaining
        self.key = key
        self.progress = progress
        self.on_start = on_start
        self.nested = not _FLAT.issuperset(map(type, arguments.values()))

    def fresh_arguments(self) -> dict[str, Any]:
        """A copy that a handler may change without the next attempt seeing it."""
        return _copied(self.arguments) if self.nested else self.arguments.copy()

    def seconds(self) -> float:
        """The seconds that one execution may take now; 0 when the task has none left."""
        limit = self.entry.spec.timeout_seconds
        if self.remaining is None:
            return limit
        left = self.remaining()
        return min(limit, left) if left > 0 else 0.0  # a NaN is nothing left


class ToolRegistry:
    """The tools of a program and the one way to run them.

    `max_running`: handlers at once, also those that were given up and still run. `grace_seconds`: how long a
    handler that was told to stop is waited for. `delay(repetition)`: seconds before repetition 1, 2; `sleep`
    waits for them. `encode`: makes JSON of what a handler returns and `returned` does not know. All may be left out.
    """

    def __init__(
        self,
        *,
        max_running: int = MAX_RUNNING,
        grace_seconds: float = GRACE_SECONDS,
        delay: Callable[[int], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        encode: Encode | None = None,
    ) -> None:
        if encode is not None and not callable(encode):
            raise RegistryError("invalid_call", "encode", "not callable")
        if type(max_running) is not int or not 1 <= max_running <= 10_000:
            raise RegistryError("invalid_call", "max_running", "not an integer from 1 to 10000")
        if not is_seconds(grace_seconds):
            raise RegistryError("invalid_call", "grace_seconds", f"not above 0, up to {MAX_TIMEOUT_SECONDS}")
        self._entries: dict[str, _Entry] = {}
        self._catalog = Catalog()
        self._ranking = Ranking(self._catalog)
        self._places = Places(max_running)
        self._status_places = Places(max_running)
        self._max_running = max_running
        self._grace = float(grace_seconds)
        self._delay = delay
        self._sleep = sleep
        self._encode = encode

    def register(self, spec: ToolSpec) -> None:
        """Add a tool. Raises `RegistryError`: `duplicate_tool` (the first one stays), `invalid_tool`.

        Names are compared as they are: `search` and `Search` are two tools. Source: claims T6-014, T6-016.
        """
        if not isinstance(spec, ToolSpec):
            raise RegistryError("invalid_tool", "spec", "not a ToolSpec")
        if self._has(spec.name):
            raise RegistryError("duplicate_tool", "name")
        self._put(_Entry(spec))

    def tool(
        self,
        *,
        effect: str,
        timeout_seconds: float = 30.0,
        max_attempts: int = MAX_ATTEMPTS,
        max_output_chars: int = 50_000,
        **more: Any,
    ) -> Callable[[_Function], _Function]:
        """Register the typed function that stands below: its hints and its docstring say what a model sees.

        `more` are fields of `ToolSpec`, such as `name` or `description`, and win. The function itself stays what it
        was. Raises `RegistryError` as `register` does; `field` names the argument that no schema expresses.
        """

        def put(function: _Function) -> _Function:
            try:
                found = typed_function(function, leave_out=more.get("context_argument"))
            except HintError as error:
                raise RegistryError("invalid_tool", error.argument or "handler", error.reason) from error
            if not found.description and "description" not in more:
                raise RegistryError("invalid_tool", "description", "the function has no docstring")
            fields = {"timeout_seconds": timeout_seconds, "max_attempts": max_attempts, **found._asdict(), **more}
            self.register(ToolSpec(effect=effect, max_output_chars=max_output_chars, **fields))
            return function

        return put

    def replace(self, spec: ToolSpec) -> None:
        """Put a changed spec in the place of the registered one; what was loaded before is stale from now on.

        Raises `RegistryError`: `not_registered`, `invalid_tool`.
        """
        if not isinstance(spec, ToolSpec) or not self._has(spec.name):
            raise RegistryError("not_registered", "name")
        self._put(_Entry(spec))

    def remove(self, name: str) -> None:
        """Take a tool out. Raises `RegistryError` (`not_registered`)."""
        if not self._has(name):
            raise RegistryError("not_registered", "name")
        del self._entries[name]
        self._catalog.tools.pop(name, None)

    def get(self, name: str) -> ToolSpec | None:
        """Return the registered spec, or None. Source: claim T6-015."""
        return self._entries[name].spec if self._has(name) else None

    def catalog(self) -> Catalog:
        """Return the catalog that is made from these tools; it follows `register`, `replace` and `remove`."""
        return self._catalog

    def search(
        self, query: str, grants: Grants = (), limit: int = 3, ranking: Literal["plain", "words"] = "words"
    ) -> list[dict[str, Any]]:
        """Return the cards of `Catalog.search`, for grants with which everybody holds `PUBLIC`.

        `ranking`: with `plain` the query is a question as people ask it, see `finding.ranking`. With `words` it goes
        through the words that keywords are made of, so that a name, a Chinese phrase and a word with a question mark
        find their tool. Raises `CatalogError`: `invalid_query`, `invalid_grants`, `invalid_limit`.
        """
        if ranking == "plain":
            return self._ranking.search(query, _with_public(grants), limit)
        if type(query) is str and len(query) <= MAX_QUERY:
            words = dict.fromkeys([*query.split(), *words_of(query)])
            while len(query := " ".join(words)) > MAX_QUERY:
                words.popitem()
        return self._catalog.search(query, _with_public(grants), limit)

    def load(
        self, hits: list[dict[str, Any]], grants: Grants = (), budget_bytes: int = BUDGET_BYTES
    ) -> list[dict[str, Any]]:
        """Return the definitions of `Catalog.load`, all or nothing, for grants with which everybody holds `PUBLIC`."""
        return self._catalog.load(hits, _with_public(grants), budget_bytes)

    def check(self, catalog: Catalog) -> None:
        """Raise `RegistryError` (`catalog_mismatch`) unless `catalog` has exactly these tools; for the start.

        `field` is the first name that one of the two has not, or has otherwise.
        """
        registered = {name: entry.tool for name, entry in self._entries.items()}
        for name in sorted(registered.keys() | set(catalog.tools)):
            if registered.get(name) != catalog.tools.get(name):
                raise RegistryError("catalog_mismatch", name, "can be found but not called, or is another tool")

    def is_concurrency_safe(self, name: str, arguments: object) -> bool:
        """Say whether this call may run beside others. Unknown, invalid and undecided mean no; never raises.

        Source: the orchestration document (claims C8-015 to C8-020).
        """
        entry = self._entries.get(name) if type(name) is str else None
        if entry is None:
            return False
        read, problems = _read_arguments(entry, arguments)
        if problems:
            return False
        safe = entry.spec.concurrency_safe
        if isinstance(safe, bool):
            return safe
        try:
            return safe(read) is True
        except _ANY:
            _log.warning("tool %s: its test of safety failed; the call runs alone", name, exc_info=True)
            return False

    @property
    def running(self) -> int:
        """The handlers that run now, those included that were given up and have not ended."""
        return self._max_running - self._places.free

    async def invoke(
        self,
        name: str,
        arguments: dict[str, Any] | str,
        *,
        grants: Grants | Callable[[], Grants] = (),
        approved: bool | Callable[[ApprovalRequest], bool | Awaitable[bool]] = False,
        loaded: dict[str, Any] | None = None,
        remaining: Callable[[], float] | None = None,
        key: str | None = None,
        cut_off: bool = False,
        explain: bool = False,
        progress: Callable[[Any], None] | None = None,
        on_start: Callable[[], None] | None = None,
        keep: Keep | None = None,
    ) -> dict[str, Any]:
        """Call a tool, and return what a model may see of it; see the top of this module.

        `arguments`: a dict, or the JSON text as the model wrote it; the empty text is no arguments. `grants`:
        the identity's permissions, or a function that reads them anew. `approved`: True, or a function that
        asks somebody. `loaded`: the definition that the model has, as `Catalog.load` gave it; a changed one is
        `forbidden`. `remaining`: seconds that the whole task has left. `key`: the business key of a write.
        `cut_off`: the model's answer ended because its limit was hit, so that its last call is not to be
        trusted. `explain`: add `text` and `problems`. `progress`: hears what the handler reports, in the
        handler's thread (`companions.tools.gateway` has one for handlers in threads); it gets nothing from an
        attempt that was given up, and what it raises is logged. What it gets is redacted and cut like a result.
        `on_start`: called in the loop whenever the handler is; until then nothing can have happened. `keep`:
        stores what a model cannot read of a server's result, such as an image, and returns its place.

        Raises `RegistryError` (`invalid_call`) for such an option of a wrong type and for a write that has no
        business key, neither from its spec nor from the caller; nothing is called then. `CancelledError` when the
        caller is cancelled, and whatever else is no `Exception`.
        Source: claims T6-005, T6-017 to T6-027, T6-035 to T6-041.
        """
        _check_options(loaded, key, approved, remaining=remaining, progress=progress, on_start=on_start, keep=keep)
        if type(cut_off) is not bool or type(explain) is not bool:
            raise RegistryError("invalid_call", "cut_off", "cut_off or explain is neither True nor False")
        entry = self._entries.get(name) if type(name) is str else None
        if entry is None:
            _log.info("no such tool")
            return {**_failure("unknown_tool"), **({"text": TEXTS["unknown_tool"]} if explain else {})}
        problems: list[Violation] = []
        try:
            read, problems = ({}, [_CUT_OFF]) if cut_off else _read_arguments(entry, arguments)
            if problems:
                raise _Refused("invalid_arguments")
            call = _Call(entry, read, grants, loaded, remaining, self._key_of(entry, read, key), progress, on_start)
            self._authorize(call)
            await self._approve(call, approved)
            return self._success(entry, await self._perform(call), keep)
        except _Refused as refused:
            _log.warning("tool %s: %s", name, refused.code, exc_info=refused.cause)
            failure = _failure(refused.code)
            if explain:
                failure["text"] = refused.text
                if problems:
                    failure["problems"] = [problem._asdict() for problem in problems]
            return failure

    def _has(self, name: object) -> bool:
        return type(name) is str and name in self._entries

    def _put(self, entry: _Entry) -> None:
        self._catalog.tools[entry.tool.name] = entry.tool
        self._entries[entry.tool.name] = entry

    def _key_of(self, entry: _Entry, arguments: dict[str, Any], key: str | None) -> str | None:
        if key is None and entry.spec.idempotency_key is None and entry.spec.effect != "read":
            raise RegistryError("invalid_call", "key", "a write has a business key: from its spec or from the caller")
        if key is not None or entry.spec.idempotency_key is None:
            return key
        try:
            key = entry.spec.idempotency_key(_copied(arguments))
        except _ANY as error:
            raise _Refused("tool_failure", error) from None
        if type(key) is not str or not 0 < len(key) <= MAX_KEY:
            raise _Refused("tool_failure", TypeError(f"the business key is no text of 1 to {MAX_KEY} characters"))
        return key

    def _authorize(self, call: _Call) -> None:
        """Refuse a call that may not run now, by the entry and the grants of this moment."""
        tool = call.entry.tool
        granted = frozenset({PUBLIC})
        if tool.permission != PUBLIC or call.loaded is not None:
            granted |= _granted(call.grants)
        try:
            if tool.permission not in granted:
                raise CatalogError("denied")
            if self._entries.get(tool.name) is not call.entry:
                raise CatalogError("stale_definition")
            if call.loaded is not None and self._catalog.authorize(call.loaded, granted) != tool:
                raise CatalogError("stale_definition")
        except CatalogError as error:
            raise _Refused("forbidden", error, STALE if error.code == "stale_definition" else None) from None

    async def _approve(self, call: _Call, approved: bool | Callable[[ApprovalRequest], Any]) -> None:
        spec = call.entry.spec
        if not spec.needs_approval or approved is True:
            return
        if callable(approved):
            arguments, digest = _copied(call.arguments), call.entry.tool.digest
            request = ApprovalRequest(spec.name, spec.version, spec.description, spec.effect, arguments, digest)
            try:
                if await _answer_to(approved, request) is True:
                    return
            except Exception as error:
                raise _Refused("approval_required", error) from None
        raise _Refused("approval_required")

    async def _perform(self, call: _Call) -> Any:
        """Execute, and decide after each failure whether there is another execution (G4, G5)."""
        spec = call.entry.spec
        for attempt in range(1, min(spec.max_attempts, MAX_ATTEMPTS) + 1):
            if attempt > 1 and not await self._pause(call, attempt - 1):
                break
            ending = await self._attempt(call, attempt)
            if ending.error is None:
                if not inspect.isawaitable(ending.value):
                    return ending.value
                _close(ending.value)  # a handler that forgot to be async, or to wait: what it meant to do is open
                raise _Refused("tool_failure" if spec.effect == "read" else "outcome_unknown")
            if not ending.started:
                break
            codes = _codes_of(ending.error)
            code = min(codes) if len(codes) == 1 else "tool_failure"
            if code != "transient_failure" and (spec.effect == "read" or "transient_failure" not in codes):
                raise _Refused(code, ending.error, _chosen_text(spec, ending.error))
            if spec.effect != "read":  # and lost, at least a part of it: it may have been done
                status = await self._status(call, ending)
                if status.state == "done":
                    return status.value
                if status.state != "not_done":
                    raise _Refused("outcome_unknown", ending.error)
                if spec.effect == "irreversible_write" or code != "transient_failure":
                    raise _Refused("tool_failure", ending.error)
            _log.info("tool %s: execution %d failed for the moment", spec.name, attempt, exc_info=ending.error)
        raise _Refused("transient_failure", ending.error)

    async def _pause(self, call: _Call, repetition: int) -> bool:
        """Wait before a repetition; False when the task would have no time left after it."""
        seconds = 0.0 if self._delay is None else self._delay(repetition)
        if not 0 <= seconds <= MAX_TIMEOUT_SECONDS:  # a NaN would be waited for without an end
            raise RegistryError("invalid_call", "delay", f"not from 0 to {MAX_TIMEOUT_SECONDS} seconds")
        if call.remaining is not None and not call.remaining() > seconds:
            return False
        await self._sleep(seconds)
        return True

    async def _attempt(self, call: _Call, number: int) -> Ending:
        """One execution: a place, the permission of this moment, the handler."""
        entry = call.entry
        if not await self._take_places(entry, call.seconds()):
            return Ending(error=TimeoutError(), started=False)
        try:
            self._authorize(call)
            seconds = call.seconds()
        except BaseException:
            self._give_back(entry)
            raise
        if not seconds:
            self._give_back(entry)
            return Ending(error=TimeoutError(), started=False)
        spec = entry.spec
        arguments = call.fresh_arguments()
        stop = None
        if spec.context_argument is not None:
            stop = Stop()
            report = _reporter(spec, call.progress, stop, self._encode)
            arguments[spec.context_argument] = CallContext(spec.name, number, call.key, stop.is_set, report)
        try:
            return await run(
                spec.handler,
                arguments,
                asynchronous=entry.asynchronous,
                seconds=seconds,
                grace_seconds=self._grace,
                on_start=call.on_start,
                on_end=lambda: self._give_back(entry),
                stop=stop,
            )
        finally:
            if stop is not None:
                stop.set()  # whatever of it still runs speaks for nobody

    async def _take_places(self, entry: _Entry, seconds: float) -> bool:
        if entry.places is not None and not entry.places.take_now():
            loop = asyncio.get_running_loop()
            end = loop.time() + seconds
            if not await entry.places.take(seconds):
                return False
            seconds = max(0.0, end - loop.time())  # both waits together are one
        taken = False
        try:
            taken = self._places.take_now() or await self._places.take(seconds)
        finally:
            if not taken and entry.places is not None:
                entry.places.give_back()
        return taken

    def _give_back(self, entry: _Entry) -> None:
        self._places.give_back()
        if entry.places is not None:
            entry.places.give_back()

    async def _status(self, call: _Call, ending: Ending) -> Status:
        """Ask what became of a write. `not_done` counts only if the handler can no longer do it."""
        query = call.entry.spec.status_query
        seconds = call.seconds()
        if query is None or not seconds or not await self._status_places.take(seconds):
            return Status("unknown")
        asked = await run(
            query,
            {"key": call.key, "arguments": call.fresh_arguments()},
            asynchronous=call.entry.status_is_async,
            seconds=seconds,
            grace_seconds=self._grace,
            on_end=self._status_places.give_back,
        )
        _raise_stop(asked.error)
        if asked.error is not None or not isinstance(asked.value, Status):
            _log.warning("tool %s: its status query failed", call.entry.spec.name, exc_info=asked.error)
            return Status("unknown")
        if asked.value.state == "not_done" and not ending.ended:
            return Status("unknown")
        return asked.value

    def _success(self, entry: _Entry, value: Any, keep: Keep | None) -> dict[str, Any]:
        """Make the answer of a handler that has returned (G10)."""
        spec = entry.spec
        try:
            value, failed = server_answer(json_value(value, self._encode), keep)
            text = _redacted(spec, result_text(value))
        except _ANY as error:
            if spec.effect == "read":
                raise _Refused("tool_failure", error) from None
            _log.warning("tool %s: it was done, and its answer cannot be shown", spec.name, exc_info=error)
            return {"ok": True, "data": ANSWER_LOST, "unreadable": True}
        if failed:
            raise _Refused("tool_failure", text=cut_text(text, spec.max_output_chars))
        if len(text) <= spec.max_output_chars:
            return {"ok": True, "data": text}
        return {
            "ok": True,
            "data": cut_text(text, spec.max_output_chars, is_json=type(value) is not str),
            "truncated": True,
            "original_length": len(text),
        }


def invoke_tool(registry: ToolRegistry, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool from a program without an event loop: the form of the document.

    No grants, no approval, and the business key that the spec makes; for these there is `ToolRegistry.invoke`,
    and also inside a running loop, where this raises `RuntimeError`. Source: claims T6-017 to T6-023.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(registry.invoke(name, arguments))
    raise RuntimeError("inside an event loop, await registry.invoke(...)")


def _redacted(spec: ToolSpec, text: str) -> str:
    """The one door of every text that leaves: the result, the progress, and why a handler refused."""
    text = spec.redact(text)
    if type(text) is not str:
        raise TypeError("redact returned no text")
    return text


def _chosen_text(spec: ToolSpec, error: BaseException) -> str | None:
    """Return the text that a handler chose for its failure, through the door; None where it chose none."""
    chosen = [leaf for leaf in leaves(error) if isinstance(leaf, ToolRefused) and type(leaf.text) is str]
    if not chosen or len(chosen) < len(leaves(error)):
        return None
    try:
        text = _redacted(spec, whole_characters("\n".join(leaf.text for leaf in chosen)))
    except _ANY:
        return None
    return cut_text(text, spec.max_output_chars)


def _shown(spec: ToolSpec, data: Any) -> Any:
    """Return what may be shown of a report: as whole, as clean and as short as a result, and of its type if it is."""
    is_text = type(data) is str
    text = _redacted(spec, whole_characters(data) if is_text else canonical_text(data))
    if len(text) > spec.max_output_chars:
        return cut_text(text, spec.max_output_chars, is_json=not is_text)
    try:
        return text if is_text else json.loads(text)
    except ValueError:  # without its secrets it is no JSON any more
        return text


def _failure(code: str) -> dict[str, Any]:
    return {"ok": False, "error": code, "retryable": RETRYABLE[code]}


def _read_arguments(entry: _Entry, arguments: object) -> tuple[dict[str, Any], list[Violation]]:
    """Return a copy of the arguments and what is wrong with them."""
    if type(arguments) is str:
        try:
            arguments = strict_json(arguments) if arguments else {}  # how providers write that there are none
        except JsonError as error:
            wrong = Violation(error.path, "json", error.code.removeprefix("json_").replace("_", " "))
            return {}, [_CUT_OFF if error.code == "json_cut_off" else wrong]
    if type(arguments) is not dict:
        return {}, [Violation("", "type", "is not of type object")]
    read, problems = entry.validator.read(arguments)
    return read, problems if problems or entry.fits else entry.not_taken(read)


def _not_a_parameter(name: str) -> Violation:
    return Violation("/" + name[:80].replace("~", "~0").replace("/", "~1"), "additionalProperties", "is no argument")


def _keywords_of(spec: ToolSpec) -> tuple[str, ...]:
    """Return the words of name and description; a name of signs alone is its own word."""
    if type(spec.name) is not str or type(spec.description) is not str:
        return ()  # and the tool is refused
    return tuple(words_of(f"{spec.name}\n{spec.description}") or spec.name.casefold().split())


def _with_public(grants: Grants) -> Grants:
    """Return the grants and `PUBLIC`; what are none are left for the catalog to refuse."""
    known = isinstance(grants, AbstractSet | list | tuple) and all(type(one) is str for one in grants)
    return {*grants, PUBLIC} if known else grants


def _close(value: object) -> None:
    if inspect.iscoroutine(value):
        value.close()


def _copied(arguments: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(canonical(arguments)))


def _granted(grants: Grants | Callable[[], Grants]) -> frozenset[str]:
    try:
        held = grants() if callable(grants) else grants
    except _ANY as error:  # who cannot say what is permitted permits nothing
        raise _Refused("forbidden", error) from None
    if not isinstance(held, AbstractSet | list | tuple) or not all(type(one) is str for one in held):
        raise RegistryError("invalid_call", "grants", "not a set, list or tuple of strings")
    return frozenset(held)


def _reporter(
    spec: ToolSpec, progress: Callable[[Any], None] | None, stop: Stop, encode: Encode | None
) -> Callable[[Any], None]:
    """Return what a handler reports with: nothing of an attempt that is over gets through, and no error comes back.

    Who shows the progress is no part of the call.
    """

    failures = 0

    def report(data: Any) -> None:
        nonlocal failures
        if progress is None or stop.is_set():
            return
        try:
            progress(_shown(spec, json_value(data, encode)))
        except _ANY:
            failures += 1
            if failures == 1:  # a display that is gone fails every time
                _log.warning("who hears the progress failed", exc_info=True)

    return report


def _check_options(loaded: object, key: object, approved: object, **functions: object) -> None:
    if loaded is not None and type(loaded) is not dict:
        raise RegistryError("invalid_call", "loaded", "not a dict")
    if key is not None and (type(key) is not str or not 0 < len(key) <= MAX_KEY):
        raise RegistryError("invalid_call", "key", f"not a text of 1 to {MAX_KEY} characters")
    if type(approved) is not bool and not callable(approved):
        raise RegistryError("invalid_call", "approved", "neither a truth value nor callable")
    for option, function in functions.items():
        if function is not None and not callable(function):
            raise RegistryError("invalid_call", option, "not callable")


def _codes_of(error: BaseException) -> set[str]:
    """Map what a handler raised to codes, one for each kind of leaf. Raises what is not to be a result."""
    _raise_stop(error)
    codes = set()
    for leaf in leaves(error):
        if isinstance(leaf, PermissionError):
            codes.add("forbidden")
        elif isinstance(leaf, ConnectionError | TimeoutError) or in_doubt(leaf):
            codes.add("transient_failure")
        else:
            codes.add("tool_failure")
    return codes


def _raise_stop(error: BaseException | None) -> None:
    """Raise what ends the program. A cancel is none: that of our own caller is never the ending of a handler."""
    if error is not None and not all(isinstance(leaf, _ANY) for leaf in leaves(error)):
        raise error


async def _answer_to(approved: Callable[[ApprovalRequest], Any], request: ApprovalRequest) -> Any:
    """Ask, and wait for the answer if one has to. A cancel of the caller comes out, also one that was swallowed there.

    A cancel that nobody asked for is an error of the one who answers.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        answer = approved(request)
        value = await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError:
        if task.cancelling() == before:
            raise RuntimeError("cancelled by itself") from None
        raise
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return value
