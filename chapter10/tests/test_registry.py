"""The registry: every rule of the boundary, each failure with the number of times that the handler was called."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import functools
import gc
import inspect
import json
import logging
import threading
import types
import unittest
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest import mock

from chapter10.catalog import MAX_QUERY, Catalog, CatalogError, Tool
from chapter10.companions.tools import attempt
from chapter10.companions.tools.attempt import MAX_WAITING, Ending, Places, Stop
from chapter10.companions.tools.registry import (
    GRACE_SECONDS,
    MAX_RUNNING,
    ApprovalRequest,
    CallContext,
    RegistryError,
    Status,
    ToolRefused,
    ToolRegistry,
    ToolSpec,
    invoke_tool,
)
from chapter10.companions.tools.result_text import cut_text
from chapter10.companions.tools.tool_spec import (
    ANSWER_LOST,
    CODES,
    EFFECTS,
    MAX_ATTEMPTS,
    MAX_KEY,
    MAX_OUTPUT_CHARS,
    MAX_TIMEOUT_SECONDS,
    PUBLIC,
    RETRYABLE,
    STALE,
    TEXTS,
)
from chapter10.tests.syntax import nodes, python_files
from chapter10.tests.virtual_time import VirtualLoop, pause, run_virtual, virtual

T = TypeVar("T")

ORDER = {
    "type": "object",
    "properties": {"order_id": {"type": "string", "maxLength": 12}, "limit": {"type": "integer"}},
    "required": ["order_id"],
    "additionalProperties": False,
}
LOG = "chapter10.companions.tools.registry"
LATE_LOG = "chapter10.companions.tools.attempt"


def failure(code: str) -> dict[str, Any]:
    return {"ok": False, "error": code, "retryable": code == "transient_failure"}


class Scripted:
    """A handler that answers its calls one after another from a script: values to return, errors to raise."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, order_id: str, limit: int = 1) -> Any:
        self.calls.append({"order_id": order_id, "limit": limit})
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, BaseException):
            raise step
        if callable(step):
            return await step()
        return step


class NoSignature:
    """What can be called, and says something else than a signature of itself."""

    __signature__ = 5

    async def __call__(self, order_id: str) -> str:
        return order_id


async def turns(count: int) -> None:
    """Let the loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


def left_of(total: float, loop: VirtualLoop) -> Callable[[], float]:
    """What is left of so many seconds from now on."""
    end = loop.time() + total
    return lambda: end - loop.time()


class Gated:
    """A handler that notes its calls and waits until its gate opens."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = asyncio.get_running_loop().create_future()

    async def __call__(self, order_id: str) -> str:
        self.calls.append(order_id)
        await self.gate
        return order_id


def cancelled_by_itself(*_: Any, **__: Any) -> Any:
    """Raise a cancel that nobody asked for."""
    raise asyncio.CancelledError


class InAGroup(BaseExceptionGroup[BaseException]):
    """Ctrl-C beside an error, as a task group raises it."""

    def __new__(cls) -> InAGroup:
        return super().__new__(cls, "", [ValueError(), KeyboardInterrupt()])


async def never() -> None:
    """Wait for ever, and obey a cancel."""
    await asyncio.get_running_loop().create_future()


def spec(handler: Callable[..., Any], effect: str = "read", **options: Any) -> ToolSpec:
    """A spec with usual numbers: one second, three attempts, a thousand characters."""
    usual: dict[str, Any] = {
        "name": "orders.get",
        "description": "Reads an order.",
        "timeout_seconds": 1.0,
        "max_attempts": 3,
        "max_output_chars": 1000,
        "parameters": ORDER,
        "idempotency_key": None if effect == "read" else lambda arguments: "k",
    }
    return ToolSpec(**(usual | {"handler": handler, "effect": effect} | options))


def registry_of(*specs: ToolSpec, **options: Any) -> ToolRegistry:
    registry = ToolRegistry(**options)
    for one in specs:
        registry.register(one)
    return registry


def get(registry: ToolRegistry, order_id: str = "A", **options: Any) -> Coroutine[Any, Any, dict[str, Any]]:
    return registry.invoke("orders.get", {"order_id": order_id}, **options)


class RegistryTestCase(unittest.TestCase):
    """A test whose log is silent, and which calls in virtual time."""

    def setUp(self) -> None:
        super().setUp()
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)

    def call(self, one: ToolSpec, arguments: Any = None, **options: Any) -> dict[str, Any]:
        """Register one tool and call it in virtual time."""
        given = {"order_id": "A1"} if arguments is None else arguments
        registry = registry_of(one)
        return run_virtual(lambda loop: registry.invoke(one.name, given, **options))

    def run_virtual(self, main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
        return run_virtual(main)


class Registering(RegistryTestCase):
    """What can be registered."""

    def test_a_spec_has_the_seven_fields_of_the_document_first(self) -> None:
        """The order is an interface, and a spec does not change. Claims: T6-012."""
        names = [field.name for field in dataclasses.fields(ToolSpec)][:7]
        self.assertEqual(
            names,
            ["name", "description", "effect", "timeout_seconds", "max_attempts", "max_output_chars", "handler"],
        )
        one = ToolSpec("search", "Searches.", "read", 1.0, 3, 100, Scripted("x"))
        with self.assertRaises(dataclasses.FrozenInstanceError):
            one.name = "other"  # type: ignore[misc]

    def test_there_are_three_effects(self) -> None:
        """Another word, the catalog's `write` included, is refused. Claims: T6-007."""
        self.assertEqual(EFFECTS, ("read", "reversible_write", "irreversible_write"))
        for effect in EFFECTS:
            spec(Scripted("x"), effect)

        class Text(str):
            """A kind of text that is not the plain one."""

        others: list[Any] = ["write", "", "READ", None, 1, [], Text("read")]
        for other in others:
            with self.assertRaises(RegistryError):
                spec(Scripted("x"), other)

    def test_a_name_is_registered_once(self) -> None:
        """A registry starts empty; the second of a name is refused, the first stays, and another case is another name.

        Claims: T6-013, T6-014, T6-015.
        """
        registry = ToolRegistry()
        self.assertIsNone(registry.get("search"))
        self.assertEqual(list(registry.catalog().tools), [])
        first = spec(Scripted("first"), name="search")
        registry.register(first)
        with self.assertRaisesRegex(ValueError, "^duplicate_tool$"):
            registry.register(spec(Scripted("second"), name="search"))
        self.assertIs(registry.get("search"), first)
        self.assertIsNone(registry.get("Search"))
        registry.register(spec(Scripted("x"), name="Search"))

    def test_what_cannot_run_is_refused_when_it_is_registered(self) -> None:
        """Each field at the door, and nothing is registered."""
        table: list[tuple[str, Any]] = [
            ("name", ""), ("name", 1), ("name", "a\nb"), ("description", None), ("description", "\ud800"),
            ("timeout_seconds", 0), ("timeout_seconds", -1.0), ("timeout_seconds", float("nan")),
            ("timeout_seconds", float("inf")), ("timeout_seconds", True), ("timeout_seconds", 4000),
            ("timeout_seconds", "1"), ("max_attempts", 0), ("max_attempts", True), ("max_attempts", 1.0),
            ("max_attempts", 10**9), ("max_output_chars", 0), ("max_output_chars", None), ("handler", None),
            ("handler", "print"), ("permission", ""), ("permission", None), ("keywords", "word"), ("version", 2),
            ("keywords", ("two words",)), ("concurrency_safe", "yes"), ("max_concurrency", 0), ("approval", 1),
            ("max_concurrency", True), ("status_query", "x"), ("idempotency_key", 7), ("redact", None),
            ("parameters", []), ("parameters", {"type": "text"}), ("parameters", {"id": ""}), ("parameters", "object"),
            ("context_argument", "nowhere"), ("context_argument", "limit"), ("handler", dict),
            ("handler", NoSignature()),
        ]  # fmt: skip
        for field, value in table:
            registry = ToolRegistry()
            with self.subTest(field=field, value=value), self.assertRaises(RegistryError) as caught:
                options: dict[str, Any] = {"handler": Scripted("x"), field: value}
                registry.register(spec(options.pop("handler"), **options))
            self.assertEqual(caught.exception.code, "invalid_tool")
            self.assertEqual(caught.exception.field.split("/")[0], field)
            self.assertNotIn(caught.exception.reason, ("", "invalid_tool"))
            self.assertEqual(list(registry.catalog().tools), [])
        with self.assertRaises(RegistryError):
            ToolRegistry().register("search")  # type: ignore[arg-type]

    def test_the_published_limits_are_these(self) -> None:
        """What a reader is told of sizes and times, and what a spec and a registry take without being told."""
        self.assertEqual(
            (MAX_RUNNING, GRACE_SECONDS, MAX_WAITING, MAX_ATTEMPTS, MAX_TIMEOUT_SECONDS, MAX_OUTPUT_CHARS, MAX_KEY),
            (64, 1.0, 16_384, 3, 3600.0, 10_000_000, 500),
        )
        bare = ToolSpec("search", "Searches.", "read", 1.0, 3, 100, Scripted("x"))
        self.assertEqual(
            (bare.permission, bare.keywords, bare.version, bare.max_concurrency, bare.context_argument),
            (PUBLIC, None, "1", None, None),
        )
        self.assertEqual((bare.concurrency_safe, bare.approval, bare.needs_approval), (False, False, False))

    def test_each_number_is_taken_up_to_its_limit(self) -> None:
        """The limit itself passes, one more does not."""
        table: list[tuple[str, Any, Any]] = [
            ("timeout_seconds", MAX_TIMEOUT_SECONDS, 3600.1),
            ("max_attempts", 1000, 1001),
            ("max_output_chars", MAX_OUTPUT_CHARS, MAX_OUTPUT_CHARS + 1),
            ("max_concurrency", 10_000, 10_001),
        ]
        for field, most, more in table:
            with self.subTest(field=field):
                self.assertEqual(getattr(spec(Scripted("x"), **{field: most}), field), most)
                with self.assertRaises(RegistryError) as caught:
                    spec(Scripted("x"), **{field: more})
                self.assertEqual(caught.exception.field, field)
        self.assertEqual(ToolRegistry(max_running=10_000).running, 0)
        with self.assertRaises(RegistryError):
            ToolRegistry(max_running=10_001)

    def test_a_handler_that_takes_any_name_fits_every_schema(self) -> None:
        """What its signature does not list it still takes, under a schema that names it and under an open one."""

        async def anything(**options: Any) -> str:
            return ",".join(sorted(options))

        for parameters in ({"properties": {"a": {}, "b": {}}, "additionalProperties": False}, {}):
            with self.subTest(parameters=parameters):
                answer = self.call(spec(anything, parameters=parameters), {"b": 1, "a": 2})
                self.assertEqual(answer, {"ok": True, "data": "a,b"})

    def test_a_place_without_a_name_may_have_a_default(self) -> None:
        """Such a parameter is left out of every call; only one that is needed could never be given."""

        async def handler(limit: int = 5, /, *, order_id: str) -> str:
            return f"{order_id} {limit}"

        self.assertEqual(self.call(spec(handler, parameters=None), {"order_id": "A"}), {"ok": True, "data": "A 5"})

    def test_a_schema_and_a_handler_that_disagree_are_refused(self) -> None:
        """A model would be told of an argument that cannot take effect; arguments are handed over by name.

        Claims: T6-016.
        """

        async def by_place(order_id: str, /) -> str:
            return order_id

        for handler, parameters, field in (
            (Scripted("x"), {"properties": {"line_limit": {}}}, "parameters"),
            (by_place, ORDER, "handler"),
        ):
            with self.subTest(field=field), self.assertRaises(RegistryError) as caught:
                ToolRegistry().register(spec(handler, parameters=parameters))
            self.assertEqual((caught.exception.code, caught.exception.field), ("invalid_tool", field))

    def test_the_description_comes_from_the_registered_item(self) -> None:
        """What the model is told, what may run and the handler change together or not at all. Claims: T6-016."""
        old = spec(Scripted("old"), permission="orders:read", keywords=("order",))
        registry = registry_of(old)
        (hit,) = registry.catalog().search("order", {"orders:read"})
        (loaded,) = registry.catalog().load([hit], {"orders:read"})
        self.assertEqual(loaded["parameters"], ORDER)
        self.assertEqual(loaded["description"], old.description)

        registry.replace(dataclasses.replace(old, handler=Scripted("new"), description="Reads one order.", version="2"))

        (hit,) = registry.catalog().search("order", {"orders:read"})
        self.assertEqual((hit["description"], hit["version"]), ("Reads one order.", "2"))
        self.assertEqual(
            self.run_virtual(lambda loop: get(registry, grants={"orders:read"})),
            {"ok": True, "data": "new"},
        )

    def test_a_removed_tool_is_neither_found_nor_called(self) -> None:
        """Both sides at once, and removing or replacing what is not there is refused. Claims: T6-016."""
        registry = registry_of(spec(Scripted("x"), keywords=("order",)))

        registry.remove("orders.get")

        self.assertEqual(registry.catalog().search("order", {"public"}), [])
        self.assertEqual(invoke_tool(registry, "orders.get", {}), failure("unknown_tool"))
        changes: list[Callable[[], None]] = [
            lambda: registry.remove("orders.get"),
            lambda: registry.replace(spec(Scripted("x"))),
            lambda: registry.replace("orders.get"),  # type: ignore[arg-type]
        ]
        for change in changes:
            with self.assertRaisesRegex(RegistryError, "^not_registered$"):
                change()

    def test_a_spec_without_a_schema_takes_it_from_the_signature(self) -> None:
        """The document's seven fields are enough: names and what is required are known."""
        handler = Scripted("x")
        registry = registry_of(ToolSpec("search", "Searches.", "read", 1.0, 3, 100, handler))

        self.assertEqual(invoke_tool(registry, "search", {"order_id": "A"}), {"ok": True, "data": "x"})
        self.assertEqual(invoke_tool(registry, "search", {}), failure("invalid_arguments"))
        self.assertEqual(invoke_tool(registry, "search", {"order_id": "A", "x": 1}), failure("invalid_arguments"))
        self.assertEqual(len(handler.calls), 1)


class TheDocumentsForm(RegistryTestCase):
    """`invoke_tool` and its dicts."""

    def test_the_call_has_three_arguments_and_a_success_two_keys(self) -> None:
        """Registry, name, arguments; text as it is, other values as JSON. Claims: T6-017, T6-019."""
        self.assertEqual(list(inspect.signature(invoke_tool).parameters), ["registry", "name", "arguments"])
        for value, data in (("paid", "paid"), (42, "42"), ({"b": 1, "a": None}, '{"a":null,"b":1}'), (None, "")):
            registry = registry_of(spec(Scripted(value)))
            self.assertEqual(invoke_tool(registry, "orders.get", {"order_id": "A"}), {"ok": True, "data": data})

    def test_an_unknown_name(self) -> None:
        """The answer names no tool that exists. Claims: T6-018."""
        registry = registry_of(spec(Scripted("x"), name="secret.tool"))

        for name in ("orders.get", "", None, 1, "secret.tool "):
            self.assertEqual(
                invoke_tool(registry, name, {}),  # type: ignore[arg-type]
                {"ok": False, "error": "unknown_tool", "retryable": False},
            )

    def test_each_failure_of_a_handler_has_its_dict(self) -> None:
        """A refusal, a passing fault and everything else; the calls are counted.

        The caller is not blamed for a `TypeError` that came after the call began.

        Claims: T6-020, T6-021, T6-022, T6-023, T6-042.
        """
        table: list[tuple[Exception, str, int]] = [
            (PermissionError("no"), "forbidden", 1),
            (ConnectionError("lost"), "transient_failure", 3),
            (ConnectionResetError("lost"), "transient_failure", 3),
            (TimeoutError("slow"), "transient_failure", 3),
            (KeyError("x"), "tool_failure", 1),
            (OSError("disk"), "tool_failure", 1),
            (FileNotFoundError("file"), "tool_failure", 1),
            (RecursionError("deep"), "tool_failure", 1),
            (ValueError("bad"), "tool_failure", 1),
            (TypeError("unsupported operand"), "tool_failure", 1),
            (StopAsyncIteration("end"), "tool_failure", 1),
        ]
        for error, code, calls in table:
            with self.subTest(error=error):
                handler = Scripted(error)
                answer = invoke_tool(registry_of(spec(handler)), "orders.get", {"order_id": "A"})
                self.assertEqual(answer, {"ok": False, "error": code, "retryable": code == "transient_failure"})
                self.assertEqual(len(handler.calls), calls)

    def test_a_missing_argument_never_reaches_the_handler(self) -> None:
        """For a read and for a write: the body is not entered. Claims: T6-022, T6-035, T6-042."""
        for effect in EFFECTS:
            handler = Scripted("x")
            registry = registry_of(spec(handler, effect))
            self.assertEqual(
                invoke_tool(registry, "orders.get", {}),
                {"ok": False, "error": "invalid_arguments", "retryable": False},
            )
            self.assertEqual(handler.calls, [])

    @virtual
    async def test_inside_a_running_loop_the_plain_form_is_refused(self, loop: VirtualLoop) -> None:
        """It would block the loop; nothing is called."""
        handler = Scripted("x")
        registry = registry_of(spec(handler))
        with self.assertRaises(RuntimeError):
            invoke_tool(registry, "orders.get", {"order_id": "A"})
        self.assertEqual(handler.calls, [])

    def test_codes_have_one_verdict_and_one_text_each(self) -> None:
        """Only a passing fault may simply be tried again."""
        self.assertEqual([code for code in CODES if RETRYABLE[code]], ["transient_failure"])
        self.assertEqual(set(TEXTS), set(CODES))


class Arguments(RegistryTestCase):
    """What reaches a handler."""

    def test_too_long_arguments_are_caught_before_the_handler(self) -> None:
        """The schema's maximum, and the bound for everything. Claims: T6-002, T6-003."""
        handler = Scripted("x")

        for order_id in ("x" * 13, "x" * 2_000_000):
            self.assertEqual(self.call(spec(handler), {"order_id": order_id}), failure("invalid_arguments"))
        self.assertEqual(
            self.call(spec(handler), json.dumps({"order_id": "x" * 2_000_000})), failure("invalid_arguments")
        )
        self.assertEqual(handler.calls, [])

    def test_types_are_those_of_json(self) -> None:
        """True is no integer, 3.0 is one and stays a float."""
        for limit, called in ((True, False), (3.0, True), (3.5, False), ("3", False), (None, False)):
            handler = Scripted("x")
            answer = self.call(spec(handler), {"order_id": "A", "limit": limit})
            self.assertEqual(answer["ok"], called)
            self.assertEqual(len(handler.calls), int(called))

    def test_an_argument_that_cannot_take_effect_is_refused(self) -> None:
        """A misspelled option is not dropped, also where the schema is open, and its name is told on request."""
        named = {"properties": ORDER["properties"]}
        open_one = {**named, "required": ["order_id"], "type": "object"}
        for parameters in (ORDER, named, open_one, {**open_one, "additionalProperties": True}, {}, None):
            handler = Scripted("x")
            answer = self.call(spec(handler, parameters=parameters), {"order_id": "A", "line_limit": 5}, explain=True)
            self.assertEqual(answer["error"], "invalid_arguments")
            self.assertEqual([problem["path"] for problem in answer["problems"]], ["/line_limit"])
            self.assertEqual(handler.calls, [])
        long = self.call(spec(Scripted("x"), parameters={}), {"order_id": "A", "~" * 200: 5}, explain=True)
        self.assertEqual([problem["path"] for problem in long["problems"]], ["/" + "~0" * 80])

    def test_what_a_handler_needs_is_asked_for_under_an_open_schema(self) -> None:
        """The signature is checked before the call, not by a `TypeError` in it. Claims: T6-022, T6-035."""
        handler = Scripted("x")
        closed = {key: value for key, value in ORDER.items() if key != "required"}

        for parameters in ({}, closed):
            answer = self.call(spec(handler, parameters=parameters), {}, explain=True)
            self.assertEqual(answer["problems"], [{"path": "/order_id", "keyword": "required", "reason": "is missing"}])
        self.assertEqual(handler.calls, [])

    def test_cut_off_arguments_are_never_executed(self) -> None:
        """Text that ends early, and a whole text of an answer that hit its limit."""
        handler = Scripted("x")
        for arguments, options in (
            ('{"order_id": "A', {}), (" ", {}), ("", {"cut_off": True}), ('{"order_id": "A"}', {"cut_off": True}),
        ):  # fmt: skip
            answer = self.call(spec(handler), arguments, explain=True, **options)
            self.assertEqual(answer["error"], "invalid_arguments")
            self.assertEqual(answer["problems"], [{"path": "", "keyword": "json", "reason": "was cut off"}])
        self.assertEqual(handler.calls, [])

    def test_the_empty_text_is_no_arguments(self) -> None:
        """So providers write a call without any; what needs one says which."""

        async def now() -> str:
            return "12:00"

        self.assertEqual(self.call(spec(now, parameters=None), ""), {"ok": True, "data": "12:00"})
        self.assertEqual(self.call(spec(Scripted("x")), "", explain=True)["problems"][0]["path"], "/order_id")

    def test_text_that_is_no_strict_json_object_is_refused(self) -> None:
        """NaN, a key twice, half a character, another type."""
        handler = Scripted("x")
        refused: list[Any] = [
            '{"order_id": NaN}', '{"order_id":"A","order_id":"B"}', '{"order_id":"\\ud800"}', "[]", "null", '"A"', "{]",
            [], 1, ("order_id", "A"), {"order_id": float("nan")}, {1: "A"}, {"order_id": b"A"}, {"order_id": "\ud800"},
        ]  # fmt: skip
        for arguments in refused:
            with self.subTest(arguments=arguments):
                self.assertEqual(self.call(spec(handler), arguments), failure("invalid_arguments"))
                self.assertEqual(self.call(spec(handler, parameters={}), arguments), failure("invalid_arguments"))
        self.assertEqual(self.call(spec(handler), '{"order_id":"A"}'), {"ok": True, "data": "x"})
        self.assertEqual(len(handler.calls), 1)

    def test_a_handler_gets_a_copy_at_every_attempt(self) -> None:
        """What it changes is seen neither by the caller nor by its own repetition."""
        seen = []

        async def greedy(items: list[int]) -> str:
            seen.append(list(items))
            items.clear()
            raise ConnectionError

        given = {"items": [1, 2]}
        self.call(spec(greedy, parameters=None), given)

        self.assertEqual(seen, [[1, 2]] * 3)
        self.assertEqual(given, {"items": [1, 2]})

    def test_options_of_a_wrong_type_are_the_programs_mistake(self) -> None:
        """They raise, before anything is called, and never look like an answer."""
        handler = Scripted("x")
        wrong: list[dict[str, Any]] = [
            {"key": ""}, {"key": 5}, {"key": "k" * 501}, {"loaded": "x"}, {"approved": "yes"}, {"approved": 1},
            {"remaining": 5}, {"grants": "orders:read"}, {"grants": {1}}, {"grants": None}, {"cut_off": 1},
            {"cut_off": None}, {"explain": "yes"}, {"explain": []},
        ]  # fmt: skip
        for options in wrong:
            with self.subTest(options=options), self.assertRaisesRegex(RegistryError, "^invalid_call$"):
                self.call(spec(handler, permission="orders:read"), **options)
        for made in ({"max_running": 0}, {"max_running": True}, {"grace_seconds": 0}, {"grace_seconds": float("nan")}):
            with self.subTest(made=made), self.assertRaises(RegistryError):
                ToolRegistry(**made)  # type: ignore[arg-type,unused-ignore]
        self.assertEqual(handler.calls, [])

    def test_a_business_key_has_up_to_five_hundred_characters(self) -> None:
        """From the caller and from the spec; the longest one reaches the handler whole."""
        for options, given in (({}, "k" * 500), ({"idempotency_key": lambda arguments: "k" * 500}, None)):
            keys: list[str | None] = []

            async def save(order_id: str, call: CallContext, keys: list[str | None] = keys) -> str:
                keys.append(call.key)
                return "saved"

            one = spec(save, "reversible_write", parameters=None, context_argument="call", **options)
            self.assertEqual(self.call(one, key=given), {"ok": True, "data": "saved"})
            self.assertEqual(keys, ["k" * 500])

    def test_problems_are_told_of_arguments_only(self) -> None:
        """Who asks for them gets the plain answer where the arguments were fine."""
        answer = self.call(spec(Scripted("x"), permission="orders:read"), explain=True)
        self.assertEqual(answer, {**failure("forbidden"), "text": TEXTS["forbidden"]})


class Permission(RegistryTestCase):
    """Who may call, at which moment."""

    def test_the_way_of_a_call_has_its_order_and_a_refusal_ends_it(self) -> None:
        """Schema, permission, approval, permission again, handler, secrets, cut; each refusal is the last step.

        Claims: T6-005, T6-024.
        """
        steps: list[str] = []
        held = {"orders:read"}

        def grants() -> set[str]:
            steps.append("permission")
            return set(held)

        def approve(request: ApprovalRequest) -> bool:
            steps.append("approval")
            return bool(request.arguments["order_id"] != "refused")

        async def handler(order_id: str) -> str:
            steps.append("handler")
            return order_id * 600

        def redact(text: str) -> str:
            steps.append("redact")
            return text

        one = spec(
            handler,
            parameters={"properties": {"order_id": {"type": "string"}}},
            permission="orders:read",
            approval=True,
            redact=redact,
        )
        whole = ["permission", "approval", "permission", "handler", "redact"]
        answer = self.call(one, {"order_id": "ab"}, grants=grants, approved=approve)
        self.assertLessEqual(len(answer["data"]), 1000)
        self.assertEqual((answer["truncated"], steps), (True, whole))

        for arguments, given, code, expected in (
            ({"order_id": 1}, {"orders:read"}, "invalid_arguments", []),
            ({"order_id": "a"}, set(), "forbidden", whole[:1]),
            ({"order_id": "refused"}, {"orders:read"}, "approval_required", whole[:2]),
        ):
            steps.clear()
            held = given
            self.assertEqual(self.call(one, arguments, grants=grants, approved=approve), failure(code))
            self.assertEqual(steps, expected)

    def test_a_refusal_is_not_repeated(self) -> None:
        """Without the permission nothing is called; a service that refused is called once, a write's state not asked.

        Claims: T6-020, T6-038, T6-042.
        """
        for effect in EFFECTS:
            handler = Scripted("x")
            one = spec(handler, effect, permission="orders:read")
            for grants in ((), {"orders"}, ["orders:write"]):
                self.assertEqual(self.call(one, grants=grants, approved=True), failure("forbidden"))
            self.assertEqual(handler.calls, [])
            handler = Scripted(PermissionError("row level"))
            self.assertEqual(self.call(spec(handler, effect), approved=True), failure("forbidden"))
            self.assertEqual(len(handler.calls), 1)

    def test_grants_that_cannot_be_read_permit_nothing(self) -> None:
        """Whoever keeps them is down: refused at the door, and at the second look after the approval too."""
        for fine in (0, 1):
            looks: list[int] = []

            def grants(fine: int = fine, looks: list[int] = looks) -> set[str]:
                looks.append(1)
                if len(looks) > fine:
                    raise ConnectionError
                return {"orders:read"}

            handler = Scripted("x")
            registry = registry_of(spec(handler, permission="orders:read"))
            answer = self.run_virtual(
                lambda loop, registry=registry, grants=grants: registry.invoke(  # type: ignore[misc]
                    "orders.get", {"order_id": "A"}, grants=grants
                )
            )
            self.assertEqual((answer, handler.calls), (failure("forbidden"), []))
            self.assertEqual((len(looks), registry.running), (fine + 1, 0))

    @virtual
    async def test_a_public_tool_needs_no_grants(self, loop: VirtualLoop) -> None:
        """It runs for whoever holds nothing, with the loaded definition too, and where grants cannot be read."""

        def broken() -> set[str]:
            raise ConnectionError

        one = spec(Scripted("x"), keywords=("order",))
        registry = registry_of(one)
        (loaded,) = registry.catalog().load(registry.catalog().search("order", {PUBLIC}), {PUBLIC})
        given = {"order_id": "A"}
        self.assertEqual(await registry.invoke(one.name, given, grants=broken), {"ok": True, "data": "x"})
        self.assertEqual(await registry.invoke(one.name, given, loaded=loaded), {"ok": True, "data": "x"})
        registry.replace(dataclasses.replace(one, description="New."))
        self.assertEqual(await registry.invoke(one.name, given, loaded=loaded), failure("forbidden"))

    def test_a_grant_that_is_revoked_while_somebody_approves_counts(self) -> None:
        """The last look is after the approval, at the moment of execution."""
        handler = Scripted("x")
        held = {"orders:read"}

        def approve(request: ApprovalRequest) -> bool:
            held.clear()
            return True

        answer = self.call(spec(handler, permission="orders:read", approval=True), grants=held, approved=approve)

        self.assertEqual(answer, failure("forbidden"))
        self.assertEqual(handler.calls, [])

    def test_a_grant_that_is_revoked_between_attempts_counts(self) -> None:
        """A repetition is an execution of its own."""
        held = {"orders:read"}

        async def lose() -> None:
            held.clear()
            raise ConnectionError

        handler = Scripted(lose)
        registry = registry_of(spec(handler, permission="orders:read"))
        answer = self.run_virtual(lambda loop: get(registry, grants=lambda: held))

        self.assertEqual(answer, failure("forbidden"))
        self.assertEqual(len(handler.calls), 1)
        self.assertEqual(registry.running, 0)

    def test_a_changed_definition_is_not_executed(self) -> None:
        """The catalog's word is `denied` or `stale_definition`; this side says `forbidden`, the log says which.

        Claims: T6-038.
        """
        handler = Scripted("x")
        one = spec(handler, permission="orders:read", keywords=("order",))
        grants = {"orders:read"}
        changes: list[tuple[Callable[[ToolRegistry], None], str]] = [
            (lambda registry: registry.replace(dataclasses.replace(one, description="New.")), "stale_definition"),
            (lambda registry: registry.replace(dataclasses.replace(one, version="2")), "stale_definition"),
            (lambda registry: registry.replace(dataclasses.replace(one, permission="x")), "denied"),
            (
                lambda registry: registry.catalog().tools.update(
                    {one.name: Tool(one.name, "x", (), "orders:read", "read")}
                ),
                "stale_definition",
            ),
        ]
        for change, word in changes:
            registry = registry_of(one)
            (loaded,) = registry.catalog().load(registry.catalog().search("order", grants), grants)

            def call(loop: VirtualLoop, registry: ToolRegistry = registry, loaded: Any = loaded) -> Any:
                return registry.invoke(one.name, {"order_id": "A"}, grants=grants, loaded=loaded)

            self.assertEqual(self.run_virtual(call), {"ok": True, "data": "x"})
            change(registry)
            logging.disable(logging.NOTSET)
            with self.assertLogs(LOG, logging.WARNING) as log:
                self.assertEqual(self.run_virtual(call), failure("forbidden"))
            self.assertIn(word, log.output[0])
        self.assertEqual(len(handler.calls), 4)

    def test_a_refusal_says_what_to_do_next(self) -> None:
        """A fixed sentence for each code; a changed tool is to be searched again, unless it may not be seen."""
        one = spec(Scripted("x"), permission="orders:read", parameters=None)
        registry = registry_of(one)
        loaded = registry.load(registry.search("orders.get", {"orders:read"}), {"orders:read"})[0]
        registry.replace(dataclasses.replace(one, version="2"))

        def text(name: str = one.name, **options: Any) -> Any:
            return asyncio.run(registry.invoke(name, {"order_id": "A"}, explain=True, **options))["text"]

        self.assertEqual(text(grants={"orders:read"}, loaded=loaded), STALE)
        self.assertEqual(text(grants=(), loaded=loaded), TEXTS["forbidden"])
        self.assertEqual(text("other"), TEXTS["unknown_tool"])
        registry.replace(dataclasses.replace(one, permission=PUBLIC))
        self.assertEqual(text(loaded=loaded), STALE)

    def test_a_handler_may_say_why_it_failed(self) -> None:
        """The text that its author chose goes the way of a result; a group of them too, and nothing else ever does."""
        both = ExceptionGroup("hunter2", [ToolRefused("no a.txt"), ToolRefused("no b.txt")])
        mixed = ExceptionGroup("hunter2", [ToolRefused("no a.txt"), KeyError("hunter2")])
        cases: list[tuple[BaseException, str]] = [
            (ToolRefused("no such file: a.txt"), "no such file: a.txt"),
            (ToolRefused("bad password=hunter2 \ud800"), "bad password=[redacted] \ufffd"),
            (ToolRefused("x" * 2000), cut_text("x" * 2000, 1000)),
            (both, "no a.txt\nno b.txt"),
            (mixed, TEXTS["tool_failure"]),
            (ToolRefused(""), TEXTS["tool_failure"]),
            (ToolRefused(7), TEXTS["tool_failure"]),  # type: ignore[arg-type]
            (KeyError("hunter2"), TEXTS["tool_failure"]),
        ]
        for error, text in cases:
            for effect in EFFECTS:
                handler = Scripted(error)
                answer = self.call(spec(handler, effect), explain=True, approved=True)
                self.assertEqual(answer, {**failure("tool_failure"), "text": text})
                self.assertEqual(len(handler.calls), 1)
        broken: Any = cancelled_by_itself
        answer = self.call(spec(Scripted(ToolRefused("x")), redact=broken), explain=True)
        self.assertEqual(answer["text"], TEXTS["tool_failure"])
        self.assertEqual(self.call(spec(Scripted(ToolRefused("x")))), failure("tool_failure"))

    def test_a_spec_that_is_replaced_while_somebody_approves_is_not_executed(self) -> None:
        """What was approved is not what would run; neither the old nor the new handler is called."""
        old, new = Scripted("old"), Scripted("new")
        registry = registry_of(spec(old, approval=True))

        def approve(request: ApprovalRequest) -> bool:
            registry.replace(spec(new, approval=True, description="Does more."))
            return True

        answer = self.run_virtual(lambda loop: get(registry, approved=approve))

        self.assertEqual(answer, failure("forbidden"))
        self.assertEqual((old.calls, new.calls), ([], []))


class Approval(RegistryTestCase):
    """What runs only when somebody has said so."""

    def test_an_irreversible_write_needs_an_approval(self) -> None:
        """Without one it is not called; with one, exactly once. Claims: T6-010, T6-042."""
        handler = Scripted("sent")

        self.assertEqual(self.call(spec(handler, "irreversible_write")), failure("approval_required"))
        self.assertEqual(handler.calls, [])
        self.assertEqual(self.call(spec(handler, "irreversible_write"), approved=True), {"ok": True, "data": "sent"})
        self.assertEqual(len(handler.calls), 1)

    def test_only_a_true_answer_approves(self) -> None:
        """An error, a word, a pending answer that says no: not called."""

        async def later(answer: object) -> object:
            return answer

        def broken(request: ApprovalRequest) -> bool:
            raise OSError("the desk is closed")

        answers: list[tuple[Callable[[ApprovalRequest], Any], bool]] = [
            (lambda request: True, True),
            (lambda request: later(True), True),
            (lambda request: later(False), False),
            (lambda request: "yes", False),
            (lambda request: 1, False),
            (lambda request: None, False),
            (broken, False),
        ]
        for approve, called in answers:
            handler = Scripted("sent")
            answer = self.call(spec(handler, "irreversible_write"), approved=approve)
            self.assertEqual(answer, {"ok": True, "data": "sent"} if called else failure("approval_required"))
            self.assertEqual(len(handler.calls), int(called))

    def test_who_approves_sees_what_will_run_and_cannot_change_it(self) -> None:
        """Name, version, effect, description, digest, and a copy of the arguments."""
        handler = Scripted("sent")
        requests = []

        def approve(request: ApprovalRequest) -> bool:
            requests.append((request.tool, request.version, request.effect, dict(request.arguments)))
            request.arguments["order_id"] = "other"
            return True

        self.call(spec(handler, "irreversible_write"), approved=approve)

        self.assertEqual(requests, [("orders.get", "1", "irreversible_write", {"order_id": "A1"})])
        self.assertEqual(handler.calls, [{"order_id": "A1", "limit": 1}])


class Repetition(RegistryTestCase):
    """The failure matrix: how often a handler is called."""

    def write(self, handler: Any, effect: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        """Call a write with a business key and note the order of calls and status queries."""
        events: list[str] = []
        states = options.pop("states", None)

        async def logged(order_id: str) -> Any:
            events.append("write")
            return await handler(order_id)

        async def status(key: str, arguments: dict[str, Any]) -> Any:
            events.append(f"status {key} {arguments['order_id']}")
            state = states.pop(0) if states else Status("unknown")
            if isinstance(state, Exception):
                raise state
            return state

        remaining = options.pop("remaining", None)
        one = spec(logged, effect, status_query=None if states is None else status, **options)
        answer = self.call(one, approved=True, key="k", remaining=remaining)
        return answer, events

    def test_a_read_is_repeated_at_most_twice(self) -> None:
        """After a passing fault and after a timeout, since it changes nothing; fewer times when the spec says so.

        Claims: T6-008, T6-011, T6-026, T6-036, T6-039, T6-042.
        """
        paid, lost = {"ok": True, "data": "paid"}, failure("transient_failure")
        for script, most, calls, expected in (
            ([ConnectionError(), "paid"], 3, 2, paid),
            ([never, "paid"], 3, 2, paid),
            ([ConnectionError()], 1, 1, lost),
            ([ConnectionError()], 2, 2, lost),
            ([ConnectionError()], 3, 3, lost),
            ([ConnectionError()], 10, 3, lost),
        ):
            with self.subTest(script=script, most=most):
                handler = Scripted(*script)
                self.assertEqual(self.call(spec(handler, max_attempts=most)), expected)
                self.assertEqual(len(handler.calls), calls)

    @virtual
    async def test_the_time_of_the_task_ends_the_repetitions(self, loop: VirtualLoop) -> None:
        """Every execution counts toward the total; the smaller of both limits wins. Claims: T6-026, T6-036, T6-042."""

        async def slow() -> None:
            loop.advance(1.0)
            raise ConnectionError

        for total, calls in ((100.0, 3), (3.0, 3), (2.5, 3), (2.0, 2), (1.0, 1), (0.5, 1), (0.0, 0), (-1.0, 0)):
            handler, left = Scripted(slow), left_of(total, loop)
            registry = registry_of(spec(handler))
            self.assertEqual(await get(registry, remaining=left), failure("transient_failure"))
            self.assertEqual((len(handler.calls), registry.running), (calls, 0), total)
            self.assertAlmostEqual(total - left(), float(calls))

    @virtual
    async def test_nobody_sleeps_into_the_end_of_the_task(self, loop: VirtualLoop) -> None:
        """A wait that would use up the rest is not begun; others are, and come before the repetition.

        Claims: T6-026.
        """
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            loop.advance(seconds)

        for total, waits, calls in ((100.0, [1.0, 2.0], 3), (2.9, [1.0], 2), (1.0, [], 1)):
            slept.clear()
            handler = Scripted(ConnectionError())
            await get(registry_of(spec(handler), delay=float, sleep=sleep), remaining=left_of(total, loop))
            self.assertEqual((slept, len(handler.calls)), (waits, calls))

    @virtual
    async def test_the_smaller_of_both_limits_ends_an_execution(self, loop: VirtualLoop) -> None:
        """The tool's own second, or what the task has left."""
        for total, took in ((0.25, 0.25), (100.0, 1.0)):
            before = loop.time()
            answer = await get(registry_of(spec(Scripted(never), max_attempts=1)), remaining=left_of(total, loop))
            self.assertEqual(answer, failure("transient_failure"))
            self.assertAlmostEqual(loop.time() - before, took)

    def test_a_task_whose_time_is_over_before_the_call_has_not_called(self) -> None:
        """The last of it went into the wait for a place: surely nothing was done, so a write may be tried again.

        A remainder that is NaN is nothing left, and no endless permission.
        """
        for effect, left in (("reversible_write", [1.0, 0.0]), ("read", [float("nan")] * 2)):
            handler = Scripted("x")
            registry = registry_of(spec(handler, effect))
            answer = self.run_virtual(
                lambda loop, registry=registry, left=left: get(registry, remaining=lambda: left.pop(0))  # type: ignore[misc]
            )
            self.assertEqual((answer, handler.calls, left), (failure("transient_failure"), [], []))
            self.assertEqual(registry.running, 0)

    def test_a_pause_is_at_most_an_hour(self) -> None:
        """That hour is slept; a NaN would be slept for ever, and a week is no pause."""
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        def paused(seconds: float) -> dict[str, Any]:
            registry = registry_of(
                spec(Scripted(ConnectionError(), "x")), delay=lambda repetition: seconds, sleep=sleep
            )
            return self.run_virtual(lambda loop: get(registry))

        self.assertEqual((paused(MAX_TIMEOUT_SECONDS), slept), ({"ok": True, "data": "x"}, [3600.0]))
        for seconds in (float("nan"), -1.0, float("inf"), 604_800.0):
            with self.assertRaises(RegistryError) as caught:
                paused(seconds)
            self.assertEqual((caught.exception.code, caught.exception.field), ("invalid_call", "delay"))

    def test_a_write_is_repeated_only_if_it_was_surely_not_done(self) -> None:
        """Without a status nobody knows what a timeout and a lost connection left: one call, and the code says so.

        A status of "done" is the answer; after "not done" a reversible write is made again, three times at most, and
        an irreversible one never; any other answer stops it.

        Claims: T6-002, T6-009, T6-010, T6-011, T6-026, T6-037, T6-040, T6-042.
        """
        lost, write, asked = ConnectionError(), ["write"], ["write", "status k A1"]
        done, not_done = Status("done", {"id": 7}), Status("not_done")
        reversible, irreversible = EFFECTS[1:]
        unknown = failure("outcome_unknown")
        table: list[tuple[str, list[Any], list[Any] | None, dict[str, Any], list[str]]] = [
            *((effect, [first], None, unknown, write) for effect in EFFECTS[1:] for first in (never, lost)),
            *(
                (effect, [first], [done], {"ok": True, "data": '{"id":7}'}, asked)
                for effect in EFFECTS[1:]
                for first in (never, lost)
            ),
            (reversible, [lost, "saved"], [not_done], {"ok": True, "data": "saved"}, [*asked, "write"]),
            (reversible, [lost], [not_done] * 9, failure("transient_failure"), asked * 3),
            (irreversible, [lost, "sent"], [not_done], failure("tool_failure"), asked),
            *(
                (reversible, [lost], [state], unknown, asked)
                for state in (Status("unknown"), ConnectionError("status"), KeyError("x"), "not_done", None, True)
            ),
        ]
        for effect, script, states, answer, events in table:
            with self.subTest(effect=effect, script=script, states=states):
                self.assertEqual(
                    self.write(Scripted(*script), effect, states=states, parameters=None), (answer, events)
                )

    def test_a_plain_status_query_runs_in_a_thread(self) -> None:
        """Nobody waits in the loop for it, and its answer counts like that of an async one."""
        threads: list[threading.Thread] = []

        def status(key: str, arguments: dict[str, Any]) -> Status:
            threads.append(threading.current_thread())
            return Status("done", key)

        registry = registry_of(spec(Scripted(ConnectionError()), "reversible_write", status_query=status))

        self.assertEqual(invoke_tool(registry, "orders.get", {"order_id": "A"}), {"ok": True, "data": "k"})
        self.assertIsNot(threads[0], threading.current_thread())

    def test_a_task_without_time_asks_for_no_status(self) -> None:
        """What became of the write stays unknown."""
        left = [1.0, 1.0, 0.0]

        answer, events = self.write(
            Scripted(ConnectionError()),
            "reversible_write",
            states=[Status("done")],
            parameters=None,
            remaining=lambda: left.pop(0),
        )

        self.assertEqual((answer, events, left), (failure("outcome_unknown"), ["write"], []))

    @virtual
    async def test_status_queries_have_places_of_their_own(self, loop: VirtualLoop) -> None:
        """One place: a second query waits for the first, and gives up when its own time is over."""
        gate = loop.create_future()
        asked: list[str] = []

        async def status(key: str, arguments: dict[str, Any]) -> Status:
            asked.append(key)
            await gate
            return Status("done", key)

        def write(name: str, seconds: float) -> ToolSpec:
            return spec(
                Scripted(ConnectionError()),
                "reversible_write",
                name=name,
                timeout_seconds=seconds,
                status_query=status,
                idempotency_key=lambda arguments: name,
            )

        registry = registry_of(write("slow", 100.0), write("quick", 1.0), max_running=1)
        first = loop.create_task(registry.invoke("slow", {"order_id": "A"}))
        while not asked:
            await asyncio.sleep(0)
        before = loop.time()
        self.assertEqual(await registry.invoke("quick", {"order_id": "A"}), failure("outcome_unknown"))
        self.assertAlmostEqual(loop.time() - before, 1.0)
        self.assertEqual(asked, ["slow"])
        gate.set_result(None)
        self.assertEqual(await first, {"ok": True, "data": "slow"})
        self.assertEqual(await registry.invoke("quick", {"order_id": "A"}), {"ok": True, "data": "quick"})

    def test_a_write_without_a_business_key_is_not_called(self) -> None:
        """Nobody could know it again: the program is told, at the first call, and a read needs none.

        Claims: I4-097, I4-103, T6-009, T6-042.
        """
        for effect in ("reversible_write", "irreversible_write"):
            handler = Scripted("x")
            bare = ToolSpec("orders.get", "Changes an order.", effect, 1.0, 3, 100, handler, ORDER)
            with self.assertRaises(RegistryError) as caught:
                self.call(bare, approved=True)
            self.assertEqual((caught.exception.code, caught.exception.field), ("invalid_call", "key"))
            with self.assertRaises(RegistryError):
                invoke_tool(registry_of(bare), "orders.get", {"order_id": "A"})
            self.assertEqual(handler.calls, [])
            self.assertEqual(self.call(bare, approved=True, key="mine"), {"ok": True, "data": "x"})
            self.assertEqual(len(handler.calls), 1)
        self.assertEqual(self.call(spec(Scripted("x"))), {"ok": True, "data": "x"})

    @virtual
    async def test_not_done_does_not_count_while_the_first_write_runs_on(self, loop: VirtualLoop) -> None:
        """A handler that ignored its end may still do it: no second write beside it. What is done is done.

        Claims: T6-011, T6-040, T6-042.
        """
        release = loop.create_future()
        calls: list[str] = []

        async def stubborn(order_id: str) -> str:
            calls.append(order_id)
            while not release.done():
                try:
                    await asyncio.shield(release)
                except asyncio.CancelledError:
                    pass
            return "late"

        async def status(key: str, arguments: dict[str, Any]) -> Status:
            return Status("not_done") if key == "k" else Status("done", "saved")

        one = spec(stubborn, "reversible_write", parameters=None, status_query=status)
        registry = registry_of(one)
        answer = await get(registry, key="k")
        self.assertEqual((answer, calls), (failure("outcome_unknown"), ["A"]))
        self.assertEqual(registry.running, 1)
        answer = await get(registry, "B", key="done")
        self.assertEqual((answer, calls), ({"ok": True, "data": "saved"}, ["A", "B"]))
        release.set_result(None)
        while registry.running:
            await asyncio.sleep(0)

    def test_the_business_key_is_the_same_at_every_attempt(self) -> None:
        """It comes from the arguments or from the caller, and the handler is told; a network id plays no part.

        Claims: T6-009, T6-033.
        """
        seen: list[tuple[str | None, int, str]] = []

        async def save(path: str, call: CallContext) -> str:
            seen.append((call.key, call.attempt, call.tool))
            if call.attempt == 1:
                raise ConnectionError
            return "saved"

        async def status(key: str, arguments: dict[str, Any]) -> Status:
            return Status("not_done")

        one = spec(
            save,
            "reversible_write",
            parameters=None,
            context_argument="call",
            status_query=status,
            idempotency_key=lambda arguments: f"draft:{arguments['path']}",
        )
        self.assertEqual(self.call(one, {"path": "a"}), {"ok": True, "data": "saved"})
        self.assertEqual(seen, [("draft:a", 1, "orders.get"), ("draft:a", 2, "orders.get")])
        seen.clear()
        self.call(one, {"path": "a"}, key="mine")
        self.assertEqual([key for key, _, _ in seen], ["mine", "mine"])
        for handler in (save, lambda path, call, **more: path):
            hidden = spec(handler, parameters={"required": ["path"]}, context_argument="call")
            self.assertEqual(self.call(hidden, {"path": "a", "call": {}}), failure("invalid_arguments"))

    def test_a_key_that_cannot_be_made_ends_the_call(self) -> None:
        """A write without its key would be a write that cannot be recognised: not called."""

        def broken(arguments: dict[str, Any]) -> str:
            raise KeyError("x")

        for make in (broken, lambda arguments: "", lambda arguments: 5, lambda arguments: "k" * 501):
            handler = Scripted("x")
            self.assertEqual(self.call(spec(handler, idempotency_key=make)), failure("tool_failure"))
            self.assertEqual(handler.calls, [])

    @virtual
    async def test_a_repeated_request_is_a_call_of_its_own(self, loop: VirtualLoop) -> None:
        """The registry runs it again; a write carries the same key, by which its service knows it. Claims: T6-002."""
        seen: list[str | None] = []

        async def save(path: str, call: CallContext) -> str:
            seen.append(call.key)
            return "saved"

        one = spec(
            save, "reversible_write", parameters=None, context_argument="call", idempotency_key=lambda a: str(a["path"])
        )
        registry = registry_of(one)
        for _ in range(2):
            await registry.invoke("orders.get", {"path": "a"})
        self.assertEqual(seen, ["a", "a"])


class Failures(RegistryTestCase):
    """What a model sees of a failure, and what the log sees."""

    def test_the_text_of_an_exception_reaches_the_log_only(self) -> None:
        """The answer has a code; the log has the traceback. Claims: T6-024, T6-025."""
        logging.disable(logging.NOTSET)
        for error in (KeyError("db password hunter2"), ConnectionError("hunter2"), PermissionError("hunter2")):
            with self.assertLogs(LOG, logging.WARNING) as log:
                answer = self.call(spec(Scripted(error)))
            self.assertEqual(set(answer), {"ok", "error", "retryable"})
            self.assertNotIn("hunter2", json.dumps(answer))
            self.assertIn("hunter2", "\n".join(log.output))
            self.assertIn("Traceback", "\n".join(log.output))

    def test_a_group_is_mapped_by_its_leaves(self) -> None:
        """One code for all leaves is the code; leaves that disagree are a failure of the tool; nothing escapes."""
        table: list[tuple[Exception, str, int]] = [
            (ExceptionGroup("g", [PermissionError()]), "forbidden", 1),
            (ExceptionGroup("g", [ExceptionGroup("h", [ConnectionError()]), TimeoutError()]), "transient_failure", 3),
            (ExceptionGroup("g", [ConnectionError(), ValueError()]), "tool_failure", 1),
            (ExceptionGroup("g", [ConnectionError(), PermissionError()]), "tool_failure", 1),
        ]
        deep: Exception = PermissionError()
        for _ in range(3000):
            deep = ExceptionGroup("g", [deep])
        table.append((deep, "forbidden", 1))
        for error, code, calls in table:
            handler = Scripted(error)
            self.assertEqual(self.call(spec(handler)), failure(code))
            self.assertEqual(len(handler.calls), calls)

    def test_a_write_that_was_lost_in_part_may_have_been_done(self) -> None:
        """A group with a lost connection in it: the status decides, and what failed otherwise is not repeated."""
        error = ExceptionGroup("g", [ValueError(), ExceptionGroup("h", [ConnectionError()])])
        done, not_done, unknown = Status("done", "kept"), Status("not_done"), Status("unknown")
        for effect in ("reversible_write", "irreversible_write"):
            for status, expected in (
                (done, {"ok": True, "data": "kept"}),
                (not_done, failure("tool_failure")),
                (unknown, failure("outcome_unknown")),
                (None, failure("outcome_unknown")),
            ):
                with self.subTest(effect=effect, status=status):
                    handler = Scripted(error)
                    query = None if status is None else lambda key, arguments, status=status: status
                    one = spec(handler, effect, status_query=query)
                    self.assertEqual(expected, self.call(one, approved=True))
                    self.assertEqual(1, len(handler.calls))

    def test_a_status_query_gets_what_the_model_sent_and_no_more(self) -> None:
        """Not the context that the handler was given, nor what an earlier query did to its arguments."""
        seen: list[dict[str, Any]] = []

        def save(order_id: str, call: CallContext) -> None:
            raise ConnectionError

        def asked(key: str, arguments: dict[str, Any]) -> Status:
            seen.append(dict(arguments))
            arguments.clear()
            return Status("not_done")

        write = spec(save, "reversible_write", parameters=None, context_argument="call", status_query=asked)
        registry = registry_of(write)
        for _ in range(2):
            asyncio.run(registry.invoke("orders.get", {"order_id": "A"}))
        self.assertEqual([{"order_id": "A"}] * len(seen), seen)
        self.assertGreater(len(seen), 1)

    def test_a_stop_is_never_a_result(self) -> None:
        """Ctrl-C and the exit of the program come out, also from a group. Claims: T6-027."""
        for stop in (KeyboardInterrupt, SystemExit, GeneratorExit, InAGroup):

            async def stops(order_id: str, stop: type[BaseException] = stop) -> None:
                raise stop

            def stops_in_thread(order_id: str, stop: type[BaseException] = stop) -> None:
                raise stop

            for handler in (stops, stops_in_thread):
                with self.subTest(stop=stop, handler=handler), self.assertRaises(stop):
                    asyncio.run(registry_of(spec(handler, parameters=None)).invoke("orders.get", {"order_id": "A"}))

            async def asked(key: str, arguments: dict[str, Any], stop: type[BaseException] = stop) -> Status:
                raise stop

            write = spec(Scripted(ConnectionError()), "reversible_write", status_query=asked)
            with self.subTest(stop=stop, handler=asked), self.assertRaises(stop):
                asyncio.run(registry_of(write).invoke("orders.get", {"order_id": "A"}))

    def test_a_cancel_that_nobody_asked_for_is_a_failure_of_that_call(self) -> None:
        """From a coroutine, a thread, a group or a status query; the call beside it ends as it would have."""

        async def cancels_itself(order_id: str) -> None:
            if order_id == "task":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
            if order_id == "group":
                raise BaseExceptionGroup("", [ConnectionError(), asyncio.CancelledError()])
            raise asyncio.CancelledError

        registry = registry_of(
            spec(cancels_itself, parameters=None),
            spec(cancelled_by_itself, name="thread", parameters={}),
            spec(Scripted("x"), name="good"),
            spec(Scripted(ConnectionError()), "reversible_write", name="asks", status_query=cancelled_by_itself),
        )

        async def all_of_them() -> Any:
            orders = [registry.invoke("orders.get", {"order_id": way}) for way in ("task", "group", "raise")]
            names = [registry.invoke(name, {"order_id": "A"}) for name in ("thread", "good", "asks")]
            return await asyncio.gather(*orders, *names)

        answers = asyncio.run(all_of_them())
        self.assertEqual(answers[:4], [failure("tool_failure")] * 4)
        self.assertEqual(answers[4:], [{"ok": True, "data": "x"}, failure("outcome_unknown")])

    def test_functions_of_others_that_raise_a_cancel_refuse_their_own_call(self) -> None:
        """Each has its code, as for any other error of it."""
        cancelled: Any = cancelled_by_itself

        async def awaited(request: ApprovalRequest) -> bool:
            raise asyncio.CancelledError

        write = spec(Scripted("x"), "irreversible_write")
        for one, options, code in (
            (write, {"approved": cancelled}, "approval_required"),
            (write, {"approved": awaited}, "approval_required"),
            (spec(Scripted("x"), permission="orders:read"), {"grants": cancelled}, "forbidden"),
            (dataclasses.replace(write, idempotency_key=cancelled), {"approved": True}, "tool_failure"),
        ):
            with self.subTest(code=code):
                self.assertEqual(self.call(one, **options), failure(code))
        careful = registry_of(spec(Scripted("x"), concurrency_safe=cancelled))
        self.assertFalse(careful.is_concurrency_safe("orders.get", {"order_id": "A"}))

    @virtual
    async def test_an_approval_that_swallows_a_cancel_starts_nothing(self, loop: VirtualLoop) -> None:
        """The caller was told that nothing ran; the late yes must not make it untrue."""

        async def stubborn(request: ApprovalRequest) -> bool:
            try:
                await never()
            except asyncio.CancelledError:
                return True
            return True

        handler = Scripted("x")
        registry = registry_of(spec(handler, "irreversible_write"))
        task = loop.create_task(get(registry, approved=stubborn))
        await turns(3)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(handler.calls, [])

    @virtual
    async def test_a_stop_tears_no_loop(self, loop: VirtualLoop) -> None:
        """Ctrl-C and the exit that a coroutine raises reach its caller, who may go on; the loop hears of nothing."""
        for stop in (KeyboardInterrupt, SystemExit, GeneratorExit):
            handler = Scripted(stop(), "x")
            registry = registry_of(spec(handler))
            with self.assertRaises(stop):
                await get(registry)
            self.assertEqual(await get(registry), {"ok": True, "data": "x"})
        gc.collect()

    def test_the_log_says_what_the_answer_does_not(self) -> None:
        """Each passing fault, a test of safety that broke, a status query that broke, a name that is not there."""

        def broken(*_: Any, **__: Any) -> Any:
            raise KeyError("hunter2")

        async def status(key: str, arguments: dict[str, Any]) -> Status:
            raise KeyError("hunter2")

        logging.disable(logging.NOTSET)
        with self.assertLogs(LOG, logging.INFO) as log:
            self.call(spec(Scripted(ConnectionError("hunter2"), ConnectionError("hunter2"), "x")))
        self.assertEqual(len(log.records), 2)
        self.assertEqual([record.exc_info is not None for record in log.records], [True, True])
        with self.assertLogs(LOG, logging.WARNING) as log:
            registry_of(spec(Scripted("x"), concurrency_safe=broken)).is_concurrency_safe(
                "orders.get", {"order_id": "A"}
            )
        self.assertIn("hunter2", log.output[0])
        with self.assertLogs(LOG, logging.WARNING) as log:
            self.call(spec(Scripted(ConnectionError()), "reversible_write", status_query=status))
        self.assertIn("status query", log.output[0])
        self.assertIn("hunter2", log.output[0])
        with self.assertLogs(LOG, logging.WARNING) as log:
            self.call(spec(Scripted(ConnectionError()), "reversible_write"))
        self.assertEqual(len(log.records), 1)  # who has no status query is not told that it failed
        with self.assertLogs(LOG, logging.INFO) as log:
            invoke_tool(ToolRegistry(), "hunter2", {})
        self.assertNotIn("hunter2", log.output[0])

    def test_a_handler_that_returns_something_to_wait_for_fails(self) -> None:
        """It forgot to be async, or to wait: what it returned is closed, not shown."""

        async def inner() -> str:
            return "x"

        async def outer(order_id: str) -> Any:
            return inner()

        for handler in (lambda order_id: inner(), outer):
            registry = registry_of(spec(handler, parameters=None))
            with self.subTest(handler=handler), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.assertEqual(asyncio.run(get(registry)), failure("tool_failure"))
                gc.collect()
            self.assertEqual(caught, [])

    def test_a_write_that_returns_something_to_wait_for_is_not_known_to_be_done(self) -> None:
        """What it returned was never waited for, and what it did before nobody knows."""

        async def inner() -> str:
            return "x"

        one = spec(lambda order_id: inner(), "reversible_write", parameters=None)
        self.assertEqual(self.call(one, {"order_id": "A"}), failure("outcome_unknown"))


class Results(RegistryTestCase):
    """From what a handler returned to what a model gets."""

    def test_a_large_output_is_cut_and_its_length_recorded(self) -> None:
        """For a read, and for the receipt of a write. Claims: T6-002, T6-041."""
        for effect in EFFECTS:
            answer = self.call(spec(Scripted("x" * 5000), effect), approved=True)
            data = answer.pop("data")
            self.assertEqual(answer, {"ok": True, "truncated": True, "original_length": 5000})
            self.assertEqual((len(data), data[0], data[-1]), (1000, "x", "x"))
        self.assertEqual(self.call(spec(Scripted("x" * 1000))), {"ok": True, "data": "x" * 1000})
        path = self.call(spec(Scripted("C:\\dir"), max_output_chars=3))
        self.assertEqual((path["data"], path["original_length"]), ("C:\\", 6))
        escape = self.call(spec(Scripted(["\n\n"]), max_output_chars=3))
        self.assertEqual((escape["data"], escape["original_length"]), ('["', 8))

    def test_a_secret_is_gone_before_the_cut(self) -> None:
        """A cut through a secret would leave most of it. Claims: T6-006."""
        for value in ({"password": "hunter2hunter2", "a": 1}, "password=hunter2hunter2 " + "x" * 100):
            answer = self.call(spec(Scripted(value), max_output_chars=20))
            self.assertNotIn("hunter", json.dumps(answer))

    def test_a_tool_may_bring_its_own_redaction_and_a_broken_one_shows_nothing(self) -> None:
        """What could not be redacted is not shown. Claims: T6-006."""
        answer = self.call(spec(Scripted("order A1"), redact=lambda text: text.replace("A1", "*")))
        self.assertEqual(answer, {"ok": True, "data": "order *"})
        for broken in (lambda text: None, lambda text: text[10_000]):
            self.assertEqual(self.call(spec(Scripted("hunter2"), redact=broken)), failure("tool_failure"))

    def test_what_happens_after_a_write_does_not_make_it_undone(self) -> None:
        """A value that is no JSON, a broken redaction: of a read a failure, of a write a success that shows nothing.

        NaN is not turned into null, and nothing is made again.
        """
        done = {"ok": True, "data": ANSWER_LOST, "unreadable": True}
        broken: list[Callable[[str], Any]] = [lambda text: None, lambda text: text[10_000], cancelled_by_itself]
        cases: list[tuple[Any, dict[str, Any]]] = [(value, {}) for value in ({"mean": float("nan")}, object())]
        cases += [("fine", {"redact": redact}) for redact in broken]
        for value, options in cases:
            for effect in EFFECTS:
                handler = Scripted(value)
                answer = self.call(spec(handler, effect, **options), approved=True)
                self.assertEqual(answer, failure("tool_failure") if effect == "read" else done)
                self.assertEqual(len(handler.calls), 1)

    def test_a_status_query_that_says_done_is_believed_whatever_it_returns(self) -> None:
        """The write was done, also where its receipt cannot be shown."""

        async def status(key: str, arguments: dict[str, Any]) -> Status:
            return Status("done", float("nan"))

        for effect in EFFECTS[1:]:
            one = spec(Scripted(ConnectionError()), effect, status_query=status)
            answer = self.call(one, approved=True)
            self.assertEqual(answer, {"ok": True, "data": ANSWER_LOST, "unreadable": True})


class Time(RegistryTestCase):
    """Time limits, cancels, places."""

    @virtual
    async def test_a_handlers_own_timeout_is_told_from_the_limit(self, loop: VirtualLoop) -> None:
        """An inner timeout of a write leaves its outcome open too, but its task has ended."""
        handler = Scripted(TimeoutError("inner"))
        before = loop.time()
        registry = registry_of(spec(handler, "reversible_write"))
        self.assertEqual(await get(registry), failure("outcome_unknown"))
        self.assertEqual(loop.time(), before)

    @virtual
    async def test_a_handler_that_ignores_its_end_holds_nobody(self, loop: VirtualLoop) -> None:
        """The answer comes after limit and grace, the late value is dropped, and its place is kept until it ends."""
        finished = []

        async def stubborn(order_id: str) -> str:
            end = loop.time() + 50.0
            while loop.time() < end:
                try:
                    await pause(end - loop.time())
                except asyncio.CancelledError:
                    pass
            finished.append(order_id)
            return "late"

        registry = registry_of(spec(stubborn, parameters=None, max_attempts=1), grace_seconds=2.0)
        before = loop.time()
        self.assertEqual(await get(registry), failure("transient_failure"))
        self.assertAlmostEqual(loop.time() - before, 3.0)
        self.assertEqual((registry.running, finished), (1, []))
        await pause(60.0)
        self.assertEqual((registry.running, finished), (0, ["A"]))

    def test_a_polite_answer_to_the_end_is_not_a_result(self) -> None:
        """A handler that turns its cancel into a text was still late. Claims: T6-040."""

        async def polite() -> str:
            try:
                await never()
            except asyncio.CancelledError:
                pass
            return "cancelled, sorry"

        self.assertEqual(self.call(spec(Scripted(polite), max_attempts=1)), failure("transient_failure"))
        self.assertEqual(self.call(spec(Scripted(polite), "reversible_write")), failure("outcome_unknown"))

    @virtual
    async def test_a_cancel_of_the_caller_stops_the_handler_and_comes_out(self, loop: VirtualLoop) -> None:
        """Also when the handler swallows it, at every point of the way; afterwards all places are free."""

        async def swallows(order_id: str) -> str:
            try:
                await never()
            except asyncio.CancelledError:
                pass
            return "polite"

        async def obeys(order_id: str) -> None:
            await never()

        for handler in (obeys, swallows):
            for count in range(8):
                registry = registry_of(spec(handler, parameters=None), max_running=1)
                task = loop.create_task(get(registry))
                await turns(count)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(registry.running, 0)

    @virtual
    async def test_a_cancel_in_the_turn_in_which_the_handler_ends_is_not_lost(self, loop: VirtualLoop) -> None:
        """The race of Python 3.11: value and cancel arrive together, and the cancel wins."""
        gate: asyncio.Future[str] = loop.create_future()

        async def handler(order_id: str) -> str:
            return await gate

        registry = registry_of(spec(handler, parameters=None))
        task = loop.create_task(get(registry))
        await turns(5)
        gate.set_result("x")
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(registry.running, 0)

    def test_a_loop_that_ends_takes_no_place_with_it(self) -> None:
        """A handler whose task is cancelled before its first step has ended as well."""
        registry = registry_of(spec(Scripted(never)))

        async def main() -> None:
            task = asyncio.create_task(get(registry))
            await asyncio.sleep(0)
            self.assertEqual((registry.running, task.done()), (1, False))
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run(main())
        self.assertEqual(registry.running, 0)

    @virtual
    async def test_after_a_cancel_no_repetition_begins(self, loop: VirtualLoop) -> None:
        """A handler that answers its cancel with a passing fault is not asked again."""

        async def fails() -> None:
            try:
                await never()
            except asyncio.CancelledError:
                raise ConnectionError from None

        handler = Scripted(fails)
        registry = registry_of(spec(handler))
        task = loop.create_task(get(registry))
        await turns(5)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(len(handler.calls), 1)

    def test_a_thread_that_outlives_its_time_changes_nothing(self) -> None:
        """One call, `outcome_unknown`; the effect still happens, the late result is dropped, the place comes back.

        Claims: T6-002, T6-040, T6-042.
        """
        release, landed = threading.Event(), threading.Event()
        calls: list[str] = []

        def blocking(order_id: str) -> str:
            calls.append(order_id)
            release.wait(60)
            landed.set()
            return "late"

        async def status(key: str, arguments: dict[str, Any]) -> Status:
            return Status("not_done")

        registry = registry_of(spec(blocking, "reversible_write", parameters=None, status_query=status))

        async def main(loop: VirtualLoop) -> None:
            before = loop.time()
            self.assertEqual(await get(registry, key="k"), failure("outcome_unknown"))
            self.assertAlmostEqual(loop.time() - before, 1.0)
            self.assertEqual((calls, registry.running), (["A"], 1))
            release.set()
            self.assertTrue(landed.wait(60))

        self.run_virtual(main)
        for thread in threading.enumerate():
            if thread.name == "tool handler":
                thread.join(60)
        self.assertEqual((calls, registry.running), (["A"], 0))

    def test_a_thread_can_be_told_to_stop(self) -> None:
        """With a context it sees the end of its time and ends within the grace."""
        stopped: list[bool] = []
        entered = threading.Event()

        def patient(order_id: str, call: CallContext) -> str:
            entered.set()
            while not call.is_stopped():
                pass
            stopped.append(True)
            return "late"

        one = spec(patient, parameters=None, context_argument="call", timeout_seconds=0.01, max_attempts=1)

        self.assertEqual(
            asyncio.run(registry_of(one).invoke("orders.get", {"order_id": "A"})), failure("transient_failure")
        )
        self.assertEqual(stopped, [True])

    def test_the_caller_hears_when_the_handler_is_called(self) -> None:
        """Once for each execution, in a thread too, and not at all where the way ends before."""

        def plain(order_id: str) -> str:
            return "x"

        lost = Scripted(ConnectionError(), "x")
        for one, times in (
            (spec(lost), 2),
            (spec(plain, parameters=None), 1),
            (spec(plain, permission="orders:read", parameters=None), 0),
        ):
            heard: list[int] = []
            self.call(one, on_start=lambda heard=heard: heard.append(1))
            self.assertEqual(len(heard), times)

    @virtual
    async def test_a_handler_whose_first_step_never_came_was_not_called(self, loop: VirtualLoop) -> None:
        """On Python 3.11 a cancel may come between the task and its first step."""
        for count in range(4):
            heard: list[int] = []
            handler = Scripted(never)
            registry = registry_of(spec(handler))
            task = loop.create_task(get(registry, on_start=lambda heard=heard: heard.append(1)))
            await turns(count)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(len(heard), len(handler.calls))

    def test_who_hears_the_progress_never_touches_the_call(self) -> None:
        """What a display raises is logged, once for each attempt; the handler runs once and its answer stays."""

        async def talks(order_id: str, call: CallContext) -> str:
            ran.append(order_id)
            call.progress("half")
            call.progress("most")
            return "result"

        for effect in EFFECTS:
            for error in (ValueError(), BrokenPipeError(), asyncio.CancelledError()):
                ran: list[str] = []
                gone = mock.Mock(side_effect=error)
                one = spec(talks, effect, parameters=None, context_argument="call")
                logging.disable(logging.NOTSET)
                with self.assertLogs(LOG, logging.WARNING) as log:
                    answer = self.call(one, {"order_id": "A"}, progress=gone, approved=True)
                self.assertEqual((answer, ran, len(log.records)), ({"ok": True, "data": "result"}, ["A"], 1))

    def test_progress_passes_the_door_of_a_result(self) -> None:
        """Without secrets, with whole characters, at most as long; a value stays a value where that can be."""
        shown = [
            ("half \ud800 of it", "half \ufffd of it"),
            ("password=hunter2", "password=[redacted]"),
            ({"password": "hunter2", "done": 3}, {"password": "[redacted]", "done": 3}),
            ({"password": 12345}, '{"password":[redacted]}'),
            ([1, None, True], [1, None, True]),
            (None, None),
            ("", ""),
            ("y" * 50, "y" * 40),
            (["y" * 50], '["' + "y" * 38),
        ]

        async def talks(order_id: str, call: CallContext) -> str:
            for given, _ in shown:
                call.progress(given)
            call.progress(object())  # what is no JSON is not shown
            return "done"

        heard: list[Any] = []
        one = spec(talks, parameters=None, context_argument="call", max_output_chars=40)
        answer = self.call(one, {"order_id": "A"}, progress=heard.append)
        self.assertEqual((answer["data"], heard), ("done", [seen for _, seen in shown]))

    def test_progress_is_heard_until_the_attempt_is_over(self) -> None:
        """What a handler reports goes to the caller's function; after its time is over, nothing of it does."""
        heard: list[Any] = []
        left: list[CallContext] = []

        def reports(order_id: str, call: CallContext) -> str:
            call.progress("half")
            left.append(call)
            while not call.is_stopped():
                pass
            call.progress("late")
            return "done"

        async def talks(order_id: str, call: CallContext) -> str:
            call.progress("whole")
            left.append(call)
            return "done"

        slow = spec(reports, parameters=None, context_argument="call", timeout_seconds=0.01, max_attempts=1)
        asyncio.run(registry_of(slow).invoke("orders.get", {"order_id": "A"}, progress=heard.append))
        asyncio.run(
            registry_of(spec(talks, parameters=None, context_argument="call")).invoke(
                "orders.get", {"order_id": "A"}, progress=heard.append
            )
        )
        for call in left:
            call.progress("much later")
        self.assertEqual(heard, ["half", "whole"])
        unheard = spec(talks, parameters=None, context_argument="call")
        self.assertEqual(self.call(unheard), {"ok": True, "data": "done"})  # nobody asked for progress
        with self.assertRaises(RegistryError) as caught:
            asyncio.run(registry_of(slow).invoke("orders.get", {}, progress=7))  # type: ignore[arg-type]
        self.assertEqual(caught.exception.field, "progress")

    def test_a_plain_function_runs_in_a_thread_with_the_callers_context(self) -> None:
        """It blocks nobody, and it is the usual kind of handler in the document."""
        seen: list[threading.Thread] = []

        def plain(order_id: str) -> str:
            seen.append(threading.current_thread())
            return order_id

        registry = registry_of(spec(plain, parameters=None))

        self.assertEqual(invoke_tool(registry, "orders.get", {"order_id": "A"}), {"ok": True, "data": "A"})
        self.assertIsNot(seen[0], threading.current_thread())
        self.assertTrue(seen[0].daemon)

    def test_a_partial_and_an_object_are_async_when_their_call_is(self) -> None:
        """They run as coroutines and not in a thread."""
        threads: list[threading.Thread] = []

        async def base(prefix: str, order_id: str) -> str:
            threads.append(threading.current_thread())
            return prefix + order_id

        one = spec(functools.partial(base, "no. "), parameters=None)

        self.assertEqual(self.call(one, {"order_id": "A"}), {"ok": True, "data": "no. A"})
        self.assertEqual(threads, [threading.current_thread()])
        for handler in (Scripted("x"), functools.partial(Scripted("x"), limit=2)):
            self.assertEqual(self.call(spec(handler)), {"ok": True, "data": "x"})


class Concurrency(RegistryTestCase):
    """How many run at once."""

    @virtual
    async def test_no_more_calls_run_at_once_than_there_are_places(self, loop: VirtualLoop) -> None:
        """Ten calls of a tool with two places, six tools in a registry with three: first come first served."""
        inside, most, order = 0, 0, []

        async def handler(order_id: str) -> str:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            order.append(order_id)
            await pause(0.1)
            inside -= 1
            return order_id

        registry = registry_of(spec(handler, parameters=None, max_concurrency=2))
        answers = await asyncio.gather(*(get(registry, str(n)) for n in range(10)))
        self.assertEqual([answer["data"] for answer in answers], [str(n) for n in range(10)])
        self.assertEqual((most, order), (2, [str(n) for n in range(10)]))
        most = 0
        specs = [spec(handler, parameters=None, name=f"t{n}") for n in range(6)]
        registry = registry_of(*specs, max_running=3)
        await asyncio.gather(*(registry.invoke(one.name, {"order_id": "A"}) for one in specs))
        self.assertEqual((most, registry.running), (3, 0))

    @virtual
    async def test_a_call_that_gets_no_place_was_not_made(self, loop: VirtualLoop) -> None:
        """It waits as long as its own limit, then it is a passing fault, for a write too: nothing has happened.

        The registry may have no place, or the tool's own may belong to another call of it.
        """
        handler = Gated()
        first = spec(handler, "reversible_write", parameters=None, name="first", timeout_seconds=100)
        second = spec(handler, "reversible_write", parameters=None, name="second", max_concurrency=1)
        third = spec(handler, "reversible_write", parameters=None, name="third")
        registry = registry_of(first, second, third, max_running=1)
        busy = loop.create_task(registry.invoke("first", {"order_id": "A"}))
        await asyncio.sleep(0)
        for name in ("second", "third"):
            before = loop.time()
            self.assertEqual(await registry.invoke(name, {"order_id": "B"}), failure("transient_failure"))
            self.assertAlmostEqual(loop.time() - before, 1.0)
        self.assertEqual(handler.calls, ["A"])
        handler.gate.set_result(None)
        self.assertEqual(await busy, {"ok": True, "data": "A"})
        self.assertEqual(await registry.invoke("second", {"order_id": "B"}), {"ok": True, "data": "B"})

        handler = Gated()
        registry = registry_of(spec(handler, parameters=None, max_concurrency=1, timeout_seconds=100))
        busy = loop.create_task(get(registry))
        await asyncio.sleep(0)
        answer = await get(registry, "B", remaining=lambda: 1.0)
        self.assertEqual((answer, handler.calls, registry.running), (failure("transient_failure"), ["A"], 1))
        handler.gate.set_result(None)
        self.assertEqual(await busy, {"ok": True, "data": "A"})

    @virtual
    async def test_waiting_for_two_kinds_of_place_is_one_wait(self, loop: VirtualLoop) -> None:
        """Six tenths for the tool's place leave four for the registry's, which does not come in time."""

        async def handler(order_id: str) -> str:
            await pause(float(order_id))
            return order_id

        narrow = spec(handler, parameters=None, name="narrow", max_concurrency=1, max_attempts=1)
        wide = spec(handler, parameters=None, name="wide", timeout_seconds=100)
        registry = registry_of(narrow, wide, max_running=1)
        first = loop.create_task(registry.invoke("narrow", {"order_id": "0.6"}))
        second = loop.create_task(registry.invoke("wide", {"order_id": "50"}))
        await asyncio.sleep(0)
        before = loop.time()
        self.assertEqual(await registry.invoke("narrow", {"order_id": "0"}), failure("transient_failure"))
        self.assertAlmostEqual(loop.time() - before, 1.0)
        self.assertEqual([(await first)["ok"], (await second)["ok"]], [True, True])

    @virtual
    async def test_a_cancel_in_the_second_wait_gives_the_first_place_back(self, loop: VirtualLoop) -> None:
        """A tool's own place is not lost with a call that was still waiting for one of the registry's."""
        handler = Gated()
        wide = spec(handler, parameters=None, name="wide")
        narrow = spec(handler, parameters=None, name="narrow", max_concurrency=1)
        registry = registry_of(wide, narrow, max_running=1)
        busy = loop.create_task(registry.invoke("wide", {"order_id": "A"}))
        await asyncio.sleep(0)
        waiting = loop.create_task(registry.invoke("narrow", {"order_id": "B"}))
        await asyncio.sleep(0)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        handler.gate.set_result(None)
        self.assertEqual(await busy, {"ok": True, "data": "A"})
        self.assertEqual(await registry.invoke("narrow", {"order_id": "C"}), {"ok": True, "data": "C"})

    @virtual
    async def test_a_cancel_while_waiting_for_a_place_loses_none(self, loop: VirtualLoop) -> None:
        """Before, during and after the place is handed over, the others still get their turn."""
        for count in range(6):
            handler = Gated()
            registry = registry_of(spec(handler, parameters=None, max_concurrency=1), max_running=1)
            tasks = [loop.create_task(get(registry, name)) for name in "ABC"]
            await turns(4)
            handler.gate.set_result(None)
            await turns(count)
            tasks[1].cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual([answers[0], answers[2]], [{"ok": True, "data": "A"}, {"ok": True, "data": "C"}])
            self.assertEqual(registry.running, 0)
            self.assertEqual(await get(registry, "D"), {"ok": True, "data": "D"})

    def test_places_work_across_threads_and_loops(self) -> None:
        """A hundred calls from four event loops share three places, and all places come back."""
        registry = registry_of(spec(lambda order_id: order_id, parameters=None, max_concurrency=2), max_running=3)
        answers: list[dict[str, Any]] = []

        async def many() -> None:
            answers.extend(await asyncio.gather(*(get(registry) for _ in range(25))))

        threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        self.assertEqual(answers, [{"ok": True, "data": "A"}] * 100)
        self.assertEqual(registry.running, 0)

    def test_a_line_has_an_end(self) -> None:
        """More calls than may wait are refused at once instead of growing the line; here a hundred may."""

        async def main(loop: VirtualLoop) -> None:
            places = Places(1)
            self.assertTrue(places.take_now())
            waiting = [loop.create_task(places.take(1.0)) for _ in range(100)]
            await asyncio.sleep(0)
            before = loop.time()
            self.assertFalse(await places.take(1.0))
            self.assertEqual(loop.time(), before)
            places.give_back()
            self.assertEqual(sum(await asyncio.gather(*waiting)), 1)
            places.give_back()
            self.assertEqual(places.free, 1)

        with mock.patch.object(attempt, "MAX_WAITING", 100):
            self.run_virtual(main)

    def test_safety_is_a_truth_value_or_a_test_and_doubt_means_no(self) -> None:
        """Unknown tools, invalid arguments, tests that raise or say something else: unsafe."""

        def broken(arguments: dict[str, Any]) -> bool:
            raise KeyError("x")

        given = {"order_id": "A"}
        for safe, arguments, expected in (
            (True, given, True),
            (False, given, False),
            (lambda arguments: arguments["order_id"] == "A", given, True),
            (lambda arguments: arguments["order_id"] == "A", '{"order_id":"A"}', True),
            (lambda arguments: "yes", given, False),
            (broken, given, False),
            (True, {}, False),
            (True, '{"order_id":"A', False),
            (True, None, False),
        ):
            registry = registry_of(spec(Scripted("x"), concurrency_safe=safe))
            self.assertIs(registry.is_concurrency_safe("orders.get", arguments), expected)
            self.assertIs(registry.is_concurrency_safe("other", arguments), False)


class Attempts(RegistryTestCase):
    """One attempt alone: its place, its timer, its end."""

    def run_alone(
        self, handler: Callable[..., Any], *, asynchronous: bool = True, stop: Stop | None = None
    ) -> Coroutine[Any, Any, Ending]:
        """Run a handler for at most a second, with a grace of another."""
        return attempt.run(
            handler, {}, asynchronous=asynchronous, seconds=1.0, grace_seconds=1.0, on_end=lambda: None, stop=stop
        )

    @virtual
    async def test_a_free_place_is_taken_without_waiting(self, loop: VirtualLoop) -> None:
        """The last one too, and one place each."""
        places = Places(2)
        before = loop.time()
        for left in (1, 0):
            self.assertTrue(await places.take(1.0))
            self.assertEqual((places.free, loop.time()), (left, before))
        self.assertFalse(await places.take(1.0))

    def test_who_waits_in_a_loop_that_is_closed_gets_no_place(self) -> None:
        """What is given back goes to the next who waits, or is free."""
        places = Places(1)
        left: list[Coroutine[Any, Any, bool]] = []

        async def leave(loop: VirtualLoop) -> None:
            left.append(places.take(60.0))
            left[-1].send(None)  # it waits now, and nobody will go on with it

        async def wait(loop: VirtualLoop) -> None:
            waiting = loop.create_task(places.take(60.0))
            await asyncio.sleep(0)
            places.give_back()
            self.assertTrue(await waiting)

        self.assertTrue(places.take_now())
        self.run_virtual(leave)
        self.run_virtual(wait)
        self.assertEqual(places.free, 0)
        self.run_virtual(leave)
        places.give_back()
        self.assertEqual(places.free, 1)
        for one in left:
            one.close()

    @virtual
    async def test_no_timer_outlives_an_attempt(self, loop: VirtualLoop) -> None:
        """The one that would have ended a handler, or the wait for a place, is taken back when it is not needed."""
        timers: list[asyncio.TimerHandle] = []
        call_at = loop.call_at

        def noted(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
            timers.append(call_at(*arguments, **options))
            return timers[-1]

        async def handler() -> str:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return "x"

        places = Places(1)
        self.assertTrue(places.take_now())
        with mock.patch.object(loop, "call_at", noted):
            self.assertEqual((await self.run_alone(handler)).value, "x")
            loop.call_soon(places.give_back)
            self.assertTrue(await places.take(1.0))
        self.assertEqual([timer.cancelled() for timer in timers], [True, True])

    def test_a_thread_whose_time_is_over_is_told_before_the_grace(self) -> None:
        """It ends within the grace, and the ending says so."""
        stop = Stop()
        self.addCleanup(stop.set)  # it would run on where nobody told it

        def patient() -> None:
            while not stop.is_set():
                pass

        async def main() -> Ending:
            return await attempt.run(
                patient, {}, asynchronous=False, seconds=0.01, grace_seconds=10.0, on_end=lambda: None, stop=stop
            )

        ending = asyncio.run(main())
        self.assertEqual((ending.ended, isinstance(ending.error, TimeoutError)), (True, True))

    @virtual
    async def test_a_handler_that_waits_for_nothing_needs_no_timer(self, loop: VirtualLoop) -> None:
        """It is over before one would be set, on every Python, with a value and with an error."""

        async def value() -> str:
            return "x"

        async def error() -> str:
            raise ValueError

        with mock.patch.object(loop, "call_at", side_effect=AssertionError):
            self.assertEqual((await self.run_alone(value)).value, "x")
            self.assertIsInstance((await self.run_alone(error)).error, ValueError)

    def test_what_a_handler_does_before_it_waits_counts_in_its_time(self) -> None:
        """It holds the loop for six tenths of its second; four more are left, and then its time is over."""
        for waits, seconds in ((False, 0.6), (True, 1.0)):

            async def main(loop: VirtualLoop, waits: bool = waits) -> tuple[Ending, float]:
                async def handler() -> str:
                    loop.advance(0.6)
                    await (asyncio.Event().wait() if waits else asyncio.sleep(0))
                    return "x"

                started = loop.time()
                return await self.run_alone(handler), loop.time() - started

            ending, taken = self.run_virtual(main)
            self.assertEqual((isinstance(ending.error, TimeoutError), ending.ended), (waits, True))
            self.assertAlmostEqual(taken, seconds)

    @virtual
    async def test_a_cancel_that_a_handler_raises_is_in_its_ending(self, loop: VirtualLoop) -> None:
        """It is for the caller to raise it again."""

        async def gives_up() -> None:
            raise asyncio.CancelledError

        ending = await self.run_alone(gives_up)
        self.assertIsInstance(ending.error, asyncio.CancelledError)
        self.assertTrue(ending.ended)

    @virtual
    async def test_a_task_that_is_cancelled_says_so(self, loop: VirtualLoop) -> None:
        """Who ends all tasks of a loop sees that the handler's has obeyed."""
        running = loop.create_task(self.run_alone(never))
        await turns(3)
        (task,) = asyncio.all_tasks() - {running, asyncio.current_task()}
        task.cancel()
        self.assertIsInstance((await running).error, asyncio.CancelledError)
        self.assertTrue(task.cancelled())

    def test_ctrl_c_of_a_handler_that_was_given_up_is_not_lost(self) -> None:
        """Nobody waits for it any more, so it comes out of the loop."""

        async def interrupted() -> None:
            try:
                await never()
            finally:
                raise KeyboardInterrupt

        loop = VirtualLoop()
        self.addCleanup(loop.close)
        running = loop.create_task(self.run_alone(interrupted))
        with self.assertRaises(KeyboardInterrupt):
            loop.run_until_complete(running)
        ending = loop.run_until_complete(running)
        self.assertIsInstance(ending.error, TimeoutError)
        self.assertTrue(ending.ended)

    @virtual
    async def test_a_task_that_ignores_its_end_is_kept_until_it_ends(self, loop: VirtualLoop) -> None:
        """The loop itself holds tasks weakly only."""
        gate = loop.create_future()

        async def stubborn() -> None:
            while not gate.done():
                try:
                    await asyncio.shield(gate)
                except asyncio.CancelledError:
                    pass

        before = set(attempt._abandoned)
        self.assertFalse((await self.run_alone(stubborn)).ended)
        kept = attempt._abandoned - before
        self.assertEqual(len(kept), 1)
        gate.set_result(None)
        await asyncio.wait(kept)
        await asyncio.sleep(0)
        self.assertEqual(attempt._abandoned - before, set())

    def test_a_failure_that_comes_too_late_stands_in_the_log(self) -> None:
        """Who ends well or by the cancel after its time does not."""

        async def fails() -> None:
            try:
                await never()
            finally:
                raise KeyError("late")

        async def polite() -> None:
            try:
                await never()
            except asyncio.CancelledError:
                pass

        logging.disable(logging.NOTSET)
        with self.assertLogs(LATE_LOG, logging.INFO) as log:
            self.assertTrue(self.run_virtual(lambda loop: self.run_alone(fails)).ended)
        self.assertEqual(len(log.records), 1)
        self.assertIn("KeyError: 'late'", log.output[0])
        for handler in (polite, never):
            with self.subTest(handler=handler), self.assertNoLogs(LATE_LOG, logging.INFO):
                self.assertTrue(self.run_virtual(lambda loop, handler=handler: self.run_alone(handler)).ended)  # type: ignore[misc]

    @virtual
    async def test_from_python_3_12_a_handler_starts_at_once(self, loop: VirtualLoop) -> None:
        """Its task is told so there, and one that waits for nothing is over before anybody waits for it."""
        started: list[dict[str, Any]] = []
        ended: list[bool] = []

        async def handler() -> str:
            return "x"

        def task(body: Coroutine[Any, Any, None], **options: Any) -> None:
            started.append(options)
            with self.assertRaises(StopIteration):
                body.send(None)

        for version in ((3, 12), (3, 13)):
            execution = attempt._Execution(handler, {}, lambda: ended.append(True))
            with (
                mock.patch.object(attempt, "sys", types.SimpleNamespace(version_info=version)),
                mock.patch.object(asyncio, "Task", task),
            ):
                execution.start(loop)
            self.assertEqual((execution.ending.value, execution.ended), ("x", True))
        self.assertEqual(started, [{"loop": loop, "eager_start": True}] * 2)
        self.assertEqual(ended, [True, True])
        execution = attempt._Execution(handler, {}, lambda: None)
        with mock.patch.object(attempt, "sys", types.SimpleNamespace(version_info=(3, 11, 9))):
            await execution.start(loop)
        self.assertEqual((execution.ending.value, len(started)), ("x", 2))

    @virtual
    async def test_a_system_without_threads_has_called_nobody(self, loop: VirtualLoop) -> None:
        """A passing fault, for a write too, and the place is free again."""
        calls: list[str] = []

        def plain(order_id: str) -> None:
            calls.append(order_id)

        registry = registry_of(spec(plain, "reversible_write", parameters=None))
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            answer = await get(registry)
        self.assertEqual((answer, calls, registry.running), (failure("transient_failure"), [], 0))

    def test_a_cancel_of_the_caller_tells_a_thread_to_stop_and_waits_for_it(self) -> None:
        """It comes out when the thread has ended, within the grace."""
        entered, saw_it, may_end = threading.Event(), threading.Event(), threading.Event()
        steps: list[str] = []

        def patient(order_id: str, call: CallContext) -> None:
            entered.set()
            while not call.is_stopped():
                pass
            saw_it.set()
            may_end.wait(60)
            steps.append("the thread ends")

        async def main() -> None:
            one = spec(patient, parameters=None, context_argument="call", timeout_seconds=60)
            registry = registry_of(one, grace_seconds=60)
            task = asyncio.create_task(get(registry))
            while not entered.is_set():
                await asyncio.sleep(0)
            task.cancel()
            task.add_done_callback(lambda _: steps.append("the cancel comes out"))
            while not saw_it.is_set():
                await asyncio.sleep(0)
            await turns(10)
            may_end.set()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(registry.running, 0)

        asyncio.run(main())
        self.assertEqual(steps, ["the thread ends", "the cancel comes out"])

    @virtual
    async def test_a_cancel_of_the_caller_leaves_a_thread_that_nobody_can_tell(self, loop: VirtualLoop) -> None:
        """It comes out at once; the thread keeps its place until it ends."""
        entered, may_end = threading.Event(), threading.Event()

        def deaf(order_id: str) -> None:
            entered.set()
            may_end.wait(60)

        registry = registry_of(spec(deaf, parameters=None, timeout_seconds=60))
        task = loop.create_task(get(registry))
        while not entered.is_set():
            await asyncio.sleep(0)
        before = loop.time()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual((loop.time(), registry.running), (before, 1))
        may_end.set()
        while registry.running:
            await asyncio.sleep(0)

    def test_a_thread_that_outlives_the_loop_ends_quietly_unless_it_fails(self) -> None:
        """Its late value is for nobody; its late error is told where Python tells those of threads."""
        told: list[type[BaseException] | None] = []
        for fails in (False, True):
            may_end = threading.Event()
            threads: list[threading.Thread] = []

            def late(may_end: threading.Event = may_end, threads: Any = threads, fails: bool = fails) -> None:
                threads.append(threading.current_thread())
                may_end.wait(60)
                if fails:
                    raise KeyError("late")

            with mock.patch.object(threading, "excepthook", lambda unhandled: told.append(unhandled.exc_type)):
                ending = self.run_virtual(lambda loop, late=late: self.run_alone(late, asynchronous=False))  # type: ignore[misc]
                self.assertFalse(ending.ended)
                may_end.set()
                threads[0].join(60)
            self.assertEqual(told, [KeyError] if fails else [])


class OneSource(RegistryTestCase):
    """What can be found can be called, and everything goes through one boundary."""

    def test_everything_that_is_found_can_be_called(self) -> None:
        """Search, load, authorize and call read the same entries; a write is a write on both sides."""
        grants = {"orders:read", "orders:write", "public"}
        registry = registry_of(
            spec(Scripted("a"), name="a", permission="orders:read", keywords=("order",)),
            spec(Scripted("b"), "irreversible_write", name="b", permission="orders:write", keywords=("order",)),
            spec(Scripted("c"), name="c", keywords=("order",)),
        )
        registry.check(registry.catalog())
        hits = registry.catalog().search("order", grants)
        self.assertEqual([(hit["name"], hit["effect"]) for hit in hits], [("a", "read"), ("b", "write"), ("c", "read")])

        async def main(loop: VirtualLoop) -> list[Any]:
            return [
                await registry.invoke(loaded["name"], {"order_id": "A"}, grants=grants, loaded=loaded, approved=True)
                for loaded in registry.catalog().load(hits, grants)
            ]

        self.assertEqual([answer["data"] for answer in self.run_virtual(main)], ["a", "b", "c"])

    def test_whoever_may_call_a_tool_finds_it(self) -> None:
        """A tool without permission and keywords is found by everybody, by its name and by what it says of itself."""
        one = spec(Scripted("x"), name="order_status", description="查询订单状态 of one order.")
        registry = registry_of(one, spec(Scripted("x"), name="hidden_status", permission="orders:read"))
        for query in ("order_status", "OrderStatus", "order", "status?", "订单状态", "查询订单状态 " + "x" * 500):
            for grants in ((), {"other"}, [PUBLIC]):
                with self.subTest(query=query, grants=grants):
                    hits = registry.search(query, grants)
                    self.assertEqual([hit["name"] for hit in hits], ["order_status"])
                    self.assertEqual(registry.load(hits, grants)[0]["name"], "order_status")
        self.assertEqual(len(registry.search("status", {"orders:read"})), 2)
        named = registry_of(spec(Scripted("x"), name="C++", description="", keywords=("c++", "C#")))
        self.assertEqual(len(named.search("c#")), 1)
        self.assertEqual(len(registry_of(spec(Scripted("x"), name="++", description="")).search("++")), 1)
        self.assertEqual(registry_of(spec(Scripted("x"), keywords=())).search("orders.get"), [])

    def test_a_question_that_is_none_is_refused_as_by_the_catalog(self) -> None:
        """Its codes come out."""
        registry = registry_of(spec(Scripted("x")))
        wrong: list[tuple[str, tuple[Any, ...]]] = [
            ("invalid_query", (7,)), ("invalid_query", ("x" * (MAX_QUERY + 1),)), ("invalid_grants", ("x", "abc")),
            ("invalid_grants", ("x", [[]])), ("invalid_limit", ("x", (), 0)),
        ]  # fmt: skip
        for code, arguments in wrong:
            with self.subTest(code=code), self.assertRaisesRegex(CatalogError, f"^{code}$"):
                registry.search(*arguments)
        self.assertEqual(registry.search(" ".join(f"a{number}" for number in range(200))), [])

    def test_a_catalog_that_differs_is_noticed_at_the_start(self) -> None:
        """More tools, fewer tools, another definition."""
        registry = registry_of(spec(Scripted("x")))
        same = registry.catalog().tools["orders.get"]
        registry.check(Catalog([same]))
        for catalog in (
            Catalog(),
            Catalog([same, dataclasses.replace(same, name="more")]),
            Catalog([dataclasses.replace(same, version="2")]),
        ):
            with self.assertRaisesRegex(RegistryError, "^catalog_mismatch$"):
                registry.check(catalog)

    def test_no_handler_is_called_outside_the_boundary(self) -> None:
        """In the whole package nobody calls `.handler(...)`, and only one line hands it over to be run.

        Claims: T6-004, T6-043.
        """
        handed_over = []
        for source in python_files():
            if source.name.split(".")[0] == "tests":
                continue
            for node in nodes(source.tree):
                if not isinstance(node, ast.Call):
                    continue
                self.assertFalse(
                    isinstance(node.func, ast.Attribute) and node.func.attr == "handler", (source.path, node.lineno)
                )
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                if name == "run" and any(isinstance(one, ast.Attribute) and one.attr == "handler" for one in node.args):
                    handed_over.append(source.path.name)
        self.assertEqual(handed_over, ["registry.py"])

    def test_the_baseline_of_search_read_and_finish_is_the_same(self) -> None:
        """A dispatch by hand and the registry give the loop the same texts in the same order.

        Claims: T6-001, T6-043, T6-044.
        """
        documents = {"d1": "Leases end by themselves.", "d2": "Keys name intents."}

        def search_local_sources(query: str) -> list[str]:
            return [name for name, text in documents.items() if query in text]

        def get_document(document_id: str) -> str:
            return documents[document_id]

        tools: dict[str, Callable[..., Any]] = {
            "search_local_sources": search_local_sources,
            "get_document": get_document,
        }
        script: list[tuple[str, dict[str, str]]] = [
            ("search_local_sources", {"query": "Leases"}),
            ("get_document", {"document_id": "d1"}),
        ]
        registry = ToolRegistry()
        for name, handler in tools.items():
            registry.register(ToolSpec(name, name.replace("_", " "), "read", 5.0, 3, 1000, handler))

        def text(value: Any) -> str:
            return value if isinstance(value, str) else json.dumps(value)

        by_hand = [text(tools[name](**arguments)) for name, arguments in script]
        by_registry = [invoke_tool(registry, name, arguments) for name, arguments in script]

        self.assertEqual(by_registry, [{"ok": True, "data": data} for data in by_hand])


class OtherTypes(RegistryTestCase):
    """What is no name and no flag has an answer like any other that is not there."""

    def test_names_that_are_none_are_not_registered(self) -> None:
        """A list, a dict, a set, an own kind of text: no such tool, and no `TypeError` from a look-up."""
        registry = registry_of()
        no_names: list[Any] = [None, 1, [], {}, {"x"}, b"x"]
        for wrong in no_names:
            with self.subTest(wrong=wrong):
                self.assertIsNone(registry.get(wrong))
                with self.assertRaisesRegex(RegistryError, "^not_registered$"):
                    registry.remove(wrong)
                with self.assertRaises(RegistryError):
                    spec(Scripted("x"), context_argument=wrong if wrong is not None else 1)
