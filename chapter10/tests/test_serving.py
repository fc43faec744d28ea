"""The door: what a client of either era is answered, what it is never answered, and what it finds again."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import logging
import os
import random
import re
import stat
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.catalog import FIXTURE_GRANTS, fixture_tools
from chapter10.companions.serving import door, serve
from chapter10.companions.serving.door import open_door
from chapter10.companions.serving.loading import (
    ServingError,
    definition_spec,
    job_tools,
    load_module,
    offer_file,
    offer_fixture,
    offer_tools,
)
from chapter10.companions.serving.messages import (
    MAX_LINE_BYTES,
    RpcError,
    error_answer,
    read_message,
    split_lines,
    write_message,
)
from chapter10.companions.serving.offer import CHANGED, DIRECT_TOOLS, Offer
from chapter10.companions.serving.session import MAX_OPEN, MAX_PROGRESS
from chapter10.companions.serving.task_handles import STATUS, Jobs, JobTool, SecretError, read_secret
from chapter10.companions.tools.registry import CallContext, ToolRegistry, ToolSpec
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Handler, Worker
from chapter10.jobs import FINAL_STATES, STATES
from chapter10.tests.mcp_client import LEGACY, META, TASKS, Answer, Beside, Started, notification, request, text_of
from chapter10.tests.support import (
    CHILD_SECONDS,
    TOP,
    FolderTestCase,
    ManualClock,
    at_once,
    child_environment,
    run_python,
)

SERVED = "chapter10.tests.served"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


MODULES = itertools.count()


def spec(name: str, handler: Callable[..., Any], effect: str = "read", **fields: Any) -> ToolSpec:
    """Return a tool with the limits of these tests."""
    return ToolSpec(name, f"The tool {name}.", effect, 30, 1, 10_000, handler, **fields)


def keys() -> Callable[[], str]:
    """Return fresh keys that are the same in every run."""
    numbers = itertools.count(1)
    return lambda: f"key-{next(numbers)}"


def offer_of(*specs: ToolSpec, grants: tuple[str, ...] = (), **options: Any) -> Offer:
    """Return an offer of these tools."""
    offer = Offer(ToolRegistry(), grants=grants, new_key=keys(), **options)
    for one in specs:
        offer.put(one)
    return offer


async def nothing() -> None:
    """Do nothing."""


class Waiting:
    """A tool that has started and does not end by itself."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


class Lines(unittest.TestCase):
    """A line is read or refused, and whoever wrote it hears of it."""

    def refusal(self, line: bytes | None) -> tuple[int, object]:
        with self.assertRaises(RpcError) as caught:
            read_message(line)
        return caught.exception.number, error_answer(caught.exception, caught.exception.request_id).get("id", "none")

    def lines(self, *pieces: bytes, most: int = MAX_LINE_BYTES) -> list[bytes | None]:
        left = iter((*pieces, b""))
        return list(split_lines(lambda: next(left), most))

    def test_a_line_that_is_no_json_is_a_parse_error_without_an_id(self) -> None:
        """Text, half an object, a byte order mark, bytes that are no UTF-8, and nesting without an end."""
        for line in (b"hello", b'{"jsonrpc":"2.0","id":1', b"\xef\xbb\xbf{}", b"\xff\xfe", b"[" * 100_000, b"1" * 5000):
            with self.subTest(line=line[:20]):
                self.assertEqual(self.refusal(line), (-32700, "none"))

    def test_what_is_json_and_no_request_is_refused_to_its_writer(self) -> None:
        """A batch, a null id, no method, another version of JSON-RPC, and params that are a list."""
        for line, expected in (
            (b"[]", (-32600, "none")),
            (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', (-32600, "none")),
            (b"3", (-32600, "none")),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', (-32600, "none")),
            (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', (-32600, "none")),
            (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', (-32600, "none")),
            (b'{"jsonrpc":"2.0","id":0}', (-32600, 0)),
            (b'{"jsonrpc":"1.0","id":"a","method":"ping"}', (-32600, "a")),
            (b'{"jsonrpc":"2.0","id":"a","method":7}', (-32600, "a")),
            (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":[]}', (-32602, "a")),
        ):
            with self.subTest(line=line):
                self.assertEqual(self.refusal(line), expected)

    def test_what_cannot_be_taken_says_so_with_its_id(self) -> None:
        """Half a character, a key that stands twice, and NaN: nobody waits for an answer that never comes."""
        for value in (b'"\\ud83d"', b'{"a":1,"a":2}', b"NaN", b"[" * 70 + b"]" * 70, b"9" * 400):
            line = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":' + value + b"}}"
            with self.subTest(value=value[:20]):
                self.assertEqual(self.refusal(line), (-32600, 7))

    def test_an_empty_line_and_an_answer_are_passed_over(self) -> None:
        """Nobody was asked anything, so there is nothing to say."""
        for line in (b"", b"  \r", b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":1,"error":{}}'):
            with self.subTest(line=line):
                self.assertIsNone(read_message(line))

    def test_lines_come_whole_whatever_the_pieces(self) -> None:
        """Cut anywhere, with a last line that has no end."""
        text = "一\r\n{}\n\n三".encode()
        for size in range(1, len(text) + 1):
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            self.assertEqual(self.lines(*pieces), ["一\r".encode(), b"{}", b"", "三".encode()])

    def test_a_line_without_an_end_is_not_kept(self) -> None:
        """Too long is said once, and what comes after it is read."""
        pieces = [b"x" * 5, b"x" * 6, b"\nab\n" + b"y" * 11 + b"\n", b"z" * 11]
        self.assertEqual(self.lines(*pieces, most=10), [None, b"ab", None, None])
        self.assertEqual(self.refusal(None), (-32700, "none"))
        self.assertGreater(MAX_LINE_BYTES, 1_000_000)

    def test_a_message_is_one_line_whatever_is_in_it(self) -> None:
        """Line ends of every kind in a value do not end the line."""
        line = write_message({"text": "a\nb\r\nc\u2028d 一"})
        self.assertEqual(line.count(b"\n"), 1)
        self.assertNotIn(b"\r", line)
        self.assertIn("一".encode(), line)


class SessionTestCase(unittest.IsolatedAsyncioTestCase):
    """A test with a client beside its session."""

    def setUp(self) -> None:
        super().setUp()
        logger = logging.getLogger("chapter10")
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)

    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)  # it counts how long each step takes, and slows all of them

    def error(self, answer: Answer) -> tuple[int, Any]:
        """Return the number and the data of an error."""
        return answer["error"]["code"], answer["error"].get("data")


class Eras(SessionTestCase):
    """The era is read from each request, and never guessed."""

    async def test_a_modern_client_discovers_lists_and_calls(self) -> None:
        """Each request says what it is; each result says its type and who made it."""
        client = Beside(offer_of(spec("echo", lambda text: text)))
        found = await client.ask("server/discover")
        self.assertEqual(found["result"]["supportedVersions"], ["2026-07-28"])
        self.assertEqual(found["result"]["capabilities"], {"tools": {"listChanged": True}})
        self.assertGreaterEqual(found["result"]["ttlMs"], 0)
        listed = await client.ask("tools/list")
        self.assertEqual([tool["name"] for tool in listed["result"]["tools"]], ["echo"])
        self.assertEqual((listed["result"]["ttlMs"], listed["result"]["cacheScope"]), (0, "private"))
        called = await client.call("echo", text="一")
        self.assertEqual(called["result"]["content"], [{"type": "text", "text": "一"}])
        for answer in (found, listed, called):
            self.assertEqual(answer["result"]["resultType"], "complete")
            self.assertEqual(answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "chapter10")

    async def test_a_legacy_client_initializes_lists_and_calls(self) -> None:
        """Nothing of the newer era is in its results."""
        client = Beside(offer_of(spec("echo", lambda text: text)))
        greeted = await client.ask("initialize", LEGACY, protocolVersion="2025-06-18", capabilities={}, clientInfo={})
        self.assertEqual(greeted["result"]["protocolVersion"], "2025-06-18")
        client.write(notification("notifications/initialized"))
        self.assertEqual((await client.ask("ping", LEGACY))["result"], {})
        listed = await client.ask("tools/list", LEGACY)
        self.assertEqual(sorted(listed["result"]), ["tools"])
        called = await client.call("echo", LEGACY, text="a")
        self.assertEqual(called["result"], {"content": [{"type": "text", "text": "a"}], "isError": False})

    async def test_both_eras_are_served_at_once(self) -> None:
        """A modern request after `initialize` is modern, and the next one without `_meta` is legacy."""
        client = Beside(offer_of())
        await client.ask("initialize", LEGACY, protocolVersion="2025-11-25")
        self.assertIn("resultType", (await client.ask("tools/list"))["result"])
        self.assertNotIn("resultType", (await client.ask("tools/list", LEGACY))["result"])

    async def test_a_version_is_never_echoed(self) -> None:
        """An unknown one is refused (modern), or answered with the newest that is spoken here (legacy)."""
        client = Beside(offer_of())
        for version in ("1900-01-01", "2025-11-25", ""):
            refused = await client.ask("server/discover", {**META, VERSION: version})
            spoken = ["2026-07-28", "2025-11-25", "2025-06-18"]
            self.assertEqual(self.error(refused), (-32022, {"supported": spoken, "requested": version}))
        for version in ("1900-01-01", "2024-11-05", "2026-07-28", "2025-11-25"):
            greeted = await client.ask("initialize", LEGACY, protocolVersion=version)
            self.assertEqual(greeted["result"]["protocolVersion"], "2025-11-25")

    async def test_a_request_that_says_half_of_what_it_must_is_refused(self) -> None:
        """Either field alone, one of another type, and none of them before `initialize`."""
        client = Beside(offer_of())
        half: list[dict[str, Any]] = [{VERSION: "2026-07-28"}, {CAPABILITIES: {}}, {}]
        for meta in (*half, {**META, VERSION: 3}, {**META, CAPABILITIES: []}):
            with self.subTest(meta=meta):
                self.assertEqual(self.error(await client.ask("tools/list", meta)), (-32602, None))
        client.write({"jsonrpc": "2.0", "id": "m", "method": "tools/list", "params": {"_meta": 1}})
        self.assertEqual(self.error(await client.answer("m")), (-32602, None))

    async def test_a_method_of_the_other_era_is_unknown(self) -> None:
        """No ping in the newer era, no tasks and no discovery in the older one."""
        client = Beside(offer_of())
        self.assertEqual((await client.ask("ping", LEGACY))["result"], {})
        self.assertEqual(self.error(await client.ask("ping")), (-32601, None))
        self.assertEqual(self.error(await client.ask("resources/list", LEGACY)), (-32601, None))
        await client.ask("initialize", LEGACY, protocolVersion="2025-11-25")
        for method in ("server/discover", "tasks/get", "tasks/list", "prompts/list", "logging/setLevel"):
            with self.subTest(method=method):
                self.assertEqual(self.error(await client.ask(method, LEGACY)), (-32601, None))

    async def test_ids_of_both_kinds_come_back_as_they_were(self) -> None:
        """0, a negative number, an empty text and a text that looks like a number."""
        client = Beside(offer_of())
        for request_id in (0, -1, "", "7", 7):
            client.write(request(request_id, "ping", LEGACY))
            self.assertEqual((await client.answer(request_id))["id"], request_id)

    async def test_an_id_that_is_open_is_not_opened_again(self) -> None:
        """And more than so many open requests are refused, while the others go on."""
        waiting = Waiting()
        client = Beside(offer_of(spec("wait", waiting)))
        client.write(request("a", "tools/call", name="wait"))
        await waiting.started.wait()
        client.write(request("a", "tools/list"))
        self.assertEqual(client.said[-1]["error"]["code"], -32600)
        for number in range(MAX_OPEN):
            client.write(request(number, "subscriptions/listen", notifications={}))
        self.assertEqual(client.said[-1]["error"]["code"], -32603)
        await client.session.drain(0)


class Calls(SessionTestCase):
    """A call passes the one boundary, and its end is told in the protocol's two ways."""

    async def test_arguments_that_do_not_fit_are_a_result_that_the_model_reads(self) -> None:
        """A value against the schema is an error of the tool; a call that is none is one of the protocol."""
        schema = {"properties": {"text": {"type": "string"}}}
        client = Beside(offer_of(spec("echo", lambda text: text, parameters=schema)))
        answer = await client.call("echo", text=3)
        self.assertTrue(answer["result"]["isError"])
        self.assertEqual(text_of(answer)["error"], "invalid_arguments")
        self.assertEqual(text_of(answer)["problems"][0]["path"], "/text")
        self.assertNotIn("structuredContent", answer["result"])
        wrong: list[dict[str, Any]] = [{"name": "nobody"}, {"name": 3}, {}]
        for value in ("x", None, 3):
            wrong.append({"name": "echo", "arguments": value})
        for params in wrong:
            with self.subTest(params=params):
                self.assertEqual(self.error(await client.ask("tools/call", **params)), (-32602, None))

    async def test_a_failure_of_a_tool_is_a_code_and_never_its_text(self) -> None:
        """What a handler raises reaches the log only."""

        def fail() -> None:
            raise OSError("secret path")

        answer = await Beside(offer_of(spec("fail", fail))).call("fail")
        self.assertTrue(answer["result"]["isError"])
        self.assertEqual(text_of(answer)["error"], "tool_failure")
        self.assertNotIn("secret path", json.dumps(answer))

    async def test_a_tool_that_ends_the_program_or_cancels_itself_ends_its_own_call(self) -> None:
        """`sys.exit` and a `CancelledError` of its own are answered, and the next call is served."""

        async def cancels() -> None:
            raise asyncio.CancelledError

        exits = spec("exits", lambda: sys.exit(3))
        client = Beside(offer_of(exits, spec("cancels", cancels), spec("nothing", nothing)))
        for name in ("exits", "cancels"):
            answer = await client.call(name)
            self.assertTrue("error" in answer or answer["result"]["isError"])
        self.assertFalse((await client.call("nothing"))["result"]["isError"])

    async def test_a_write_without_a_key_of_its_own_gets_a_fresh_one(self) -> None:
        """So a repeated request is a second act, as in the protocol itself."""
        seen = []

        def write(context: CallContext) -> None:
            seen.append(context.key)

        client = Beside(offer_of(spec("write", write, "reversible_write", context_argument="context")))
        await client.call("write")
        await client.call("write")
        self.assertEqual(seen, ["key-1", "key-2"])

    async def test_an_irreversible_write_needs_a_grant_that_names_it(self) -> None:
        """Nobody can be asked over this connection, and who calls does not approve."""
        for grants, ok in (((), False), (("approve:other",), False), (("approve:burn",), True)):
            client = Beside(offer_of(spec("burn", nothing, "irreversible_write"), grants=grants))
            answer = await client.call("burn")
            with self.subTest(grants=grants):
                self.assertEqual(answer["result"]["isError"], not ok)
                if not ok:
                    self.assertEqual(text_of(answer)["error"], "approval_required")

    async def test_progress_rises_and_ends_with_the_answer(self) -> None:
        """Only with a token; numbers, pairs and texts; what does not rise is left out, and nothing comes later."""
        late: list[Callable[[Any], None]] = []

        def work(context: CallContext) -> None:
            late.append(context.progress)
            for data in ((1, 3), 1, (2, 3), float("nan"), None, "nearly", [3.5]):
                context.progress(data)

        async def at_once(context: CallContext) -> None:
            context.progress((1, 1))

        client = Beside(
            offer_of(
                spec("work", work, context_argument="context"), spec("at_once", at_once, context_argument="context")
            )
        )
        await client.call("work")
        self.assertEqual(client.heard("notifications/progress"), [])
        for token, name in (("t", "work"), (0, "at_once")):
            await client.ask("tools/call", name=name, _meta={"progressToken": token})
        late[-1]((9, 9))
        await client.turns()
        self.assertEqual(
            client.heard("notifications/progress"),
            [
                {"progressToken": "t", "progress": 1, "total": 3},
                {"progressToken": "t", "progress": 2, "total": 3},
                {"progressToken": "t", "progress": 3.0, "message": "nearly"},
                {"progressToken": "t", "progress": 3.5},
                {"progressToken": 0, "progress": 1, "total": 1},
            ],
        )
        self.assertEqual(client.said[-1]["result"]["isError"], False)

    async def test_nothing_is_said_of_a_request_that_has_its_answer(self) -> None:
        """Whatever the offer still reports, from this thread or another one."""

        class Late:
            on_change = None

            async def call(self, name: str, arguments: Any, *, progress: Any, task: bool) -> Answer:
                self.report = progress
                return {"content": []}

        offer: Any = Late()
        client = Beside(offer)
        await client.ask("tools/call", name="x", _meta={"progressToken": 1})
        offer.report(1)
        await asyncio.get_running_loop().run_in_executor(None, offer.report, 2)
        await client.turns()
        self.assertEqual(client.heard("notifications/progress"), [])

    async def test_an_id_that_is_used_again_is_another_request(self) -> None:
        """The end of the cancelled one takes nothing from the new one, which can be cancelled too."""
        slow, quick = Waiting(), Waiting()
        go = asyncio.Event()

        async def ends_late() -> None:
            try:
                await slow()
            finally:
                await go.wait()

        client = Beside(offer_of(spec("slow", ends_late), spec("quick", quick)))
        client.write(request("a", "tools/call", name="slow"))
        await slow.started.wait()
        client.write(notification("notifications/cancelled", requestId="a"))
        client.write(request("a", "tools/call", name="quick"))
        await quick.started.wait()
        go.set()
        await client.turns()
        client.write(notification("notifications/cancelled", requestId="a"))
        await client.turns()
        self.assertEqual((slow.cancelled, quick.cancelled, client.said), (True, True, []))

    async def test_progress_has_a_bound(self) -> None:
        """A handler that reports without end floods nobody."""

        def work(context: CallContext) -> None:
            for number in range(MAX_PROGRESS + 50):
                context.progress(number)

        client = Beside(offer_of(spec("work", work, context_argument="context")))
        await client.ask("tools/call", name="work", _meta={"progressToken": 1})
        self.assertEqual(len(client.heard("notifications/progress")), MAX_PROGRESS)

    async def test_a_cancelled_request_is_stopped_and_never_answered(self) -> None:
        """Nothing more is said of it, and its id may be used again while it ends."""
        waiting = Waiting()
        client = Beside(offer_of(spec("wait", waiting)))
        client.write(request("a", "tools/call", name="wait"))
        await waiting.started.wait()
        client.write(notification("notifications/cancelled", requestId="a", reason="enough"))
        client.write(request("a", "ping", LEGACY))
        await client.turns()
        self.assertTrue(waiting.cancelled)
        self.assertEqual(client.said, [{"jsonrpc": "2.0", "id": "a", "result": {}}])

    async def test_a_cancel_that_comes_at_a_wrong_time_changes_nothing(self) -> None:
        """Before the start, after the answer, twice, for nothing, and malformed."""
        client = Beside(offer_of(spec("nothing", nothing)))
        await client.call("nothing")
        for request_id in (1, 1, 99, [1], True, None):
            client.write(notification("notifications/cancelled", requestId=request_id))
        client.write(notification("notifications/cancelled"))
        client.write(request("b", "tools/call", name="nothing"))
        client.write(notification("notifications/cancelled", requestId="b"))
        await client.turns()
        self.assertEqual([message["id"] for message in client.said], [1])
        self.assertEqual((await client.ask("ping", LEGACY))["result"], {})

    async def test_the_end_gives_what_is_due_and_cancels_the_rest(self) -> None:
        """A short call is answered, a stream ends with its own result, and what does not end is stopped."""
        waiting = Waiting()
        go = asyncio.Event()

        async def short() -> str:
            await go.wait()
            return "done"

        client = Beside(offer_of(spec("wait", waiting), spec("short", short)))
        client.write(request("short", "tools/call", name="short"))
        client.write(request("long", "tools/call", name="wait"))
        client.write(request("stream", "subscriptions/listen", notifications={}))
        await waiting.started.wait()
        go.set()
        await client.session.drain(0.05)
        answers = {message["id"]: message for message in client.said if "id" in message}
        self.assertEqual(sorted(answers), ["short", "stream"])
        self.assertEqual(answers["stream"]["result"]["resultType"], "complete")
        self.assertEqual(answers["stream"]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "stream")
        self.assertTrue(waiting.cancelled)


class Offers(SessionTestCase):
    """Few tools are listed, many are found; permission decides both, and again the call."""

    async def found(self, client: Beside, query: str) -> list[dict[str, Any]]:
        """Search, load and return the definitions."""
        cards = text_of(await client.call("tools_search", query=query, limit=3))["tools"]
        chosen = [{"name": card["name"], "digest": card["digest"]} for card in cards]
        return list(text_of(await client.call("tools_load", tools=chosen))["tools"])

    async def test_a_client_of_300_tools_sees_three(self) -> None:
        """It finds by words, loads whole definitions, and calls with the digest of what it loaded."""
        offer = Offer(ToolRegistry(), grants=FIXTURE_GRANTS, new_key=keys())
        offer_fixture(offer)
        offer.put(definition_spec(fixture_tools()[0], lambda record_id: record_id, "orders:read"))
        client = Beside(offer)
        listed = (await client.ask("tools/list"))["result"]["tools"]
        self.assertEqual([tool["name"] for tool in listed], ["tools_search", "tools_load", "tools_call"])
        first = (await self.found(client, "查询订单状态"))[0]
        self.assertEqual(first["name"], "orders.get")
        named = {"name": first["name"], "digest": first["digest"]}
        answer = await client.call("tools_call", **named, arguments={"record_id": "A"})
        self.assertEqual((text_of(answer), answer["result"]["isError"]), ("A", False))
        self.assertEqual(text_of(await client.call("tools_call", **named))["error"], "invalid_arguments")
        self.assertEqual(self.error(await client.call("orders.get", record_id="A")), (-32602, None))

    async def test_the_number_that_is_listed_is_stated(self) -> None:
        """One more than `DIRECT_TOOLS` that this identity may see, or a name that the protocol does not allow."""
        specs = [spec(f"tool_{number:02}", nothing) for number in range(DIRECT_TOOLS)]
        hidden = spec("hidden", nothing, permission="secret")
        for offer, searches in (
            (offer_of(*specs, hidden), False),
            (offer_of(*specs, hidden, grants=("secret",)), True),
            (offer_of(spec("two words", nothing)), True),
            (offer_of(), False),
        ):
            self.assertEqual(offer.searches(), searches)

    async def test_two_identities_get_two_lists(self) -> None:
        """And what one may not see looks to it like what does not exist, in every way of asking.

        Claims: C10-012.
        """
        specs = [spec("open", nothing), spec("closed", nothing, permission="secret")]
        few, all_of_them = Beside(offer_of(*specs)), Beside(offer_of(*specs, grants=("secret",)))
        names = [[tool["name"] for tool in (await c.ask("tools/list"))["result"]["tools"]] for c in (few, all_of_them)]
        self.assertEqual(names, [["open"], ["closed", "open"]])
        closed, absent = await few.call("closed"), await few.call("absent")
        self.assertEqual(closed["error"]["message"].replace("closed", "absent"), absent["error"]["message"])
        self.assertFalse((await all_of_them.call("closed"))["result"]["isError"])
        many = Beside(offer_of(*specs, direct=0))
        digest = offer_of(*specs, grants=("secret",)).visible("closed")
        assert digest is not None
        answers = [
            (await many.call("tools_call", name=name, digest=digest.digest))["result"] for name in ("closed", "absent")
        ]
        self.assertEqual(answers[0], answers[1])
        answers = [
            (await many.call("tools_load", tools=[{"name": name, "digest": digest.digest}]))["result"]
            for name in ("closed", "absent")
        ]
        self.assertEqual(answers[0], answers[1])

    async def test_permission_is_asked_again_when_the_tool_is_called(self) -> None:
        """A tool that is listed and whose permission has changed since is not called."""
        called = []
        offer = offer_of(spec("tool", lambda: called.append("old"), permission="old"), grants=("old",))
        client = Beside(offer)
        await client.ask("tools/list")
        offer.put(spec("tool", lambda: called.append("new"), permission="new"))
        self.assertEqual(self.error(await client.call("tool")), (-32602, None))
        self.assertEqual(called, [])

    async def test_a_definition_that_changed_since_it_was_listed_is_not_called(self) -> None:
        """The answer is a fixed sentence, the client is told that the list changed, and after a new list it is called.

        Claims: C10-083.
        """
        called = []
        offer = offer_of(spec("tool", lambda: called.append("old")))
        client = Beside(offer)
        client.write(request("stream", "subscriptions/listen", notifications={"toolsListChanged": True, "other": 1}))
        await client.ask("initialize", LEGACY, protocolVersion="2025-11-25")
        client.write(notification("notifications/initialized"))
        await client.ask("tools/list")
        offer.put(replace(spec("tool", lambda: called.append("new")), description="Do something else."))
        for _ in range(2):
            answer = await client.call("tool")
            self.assertEqual((text_of(answer)["text"], answer["result"]["isError"]), (CHANGED, True))
        self.assertEqual(called, [])
        about = {"io.modelcontextprotocol/subscriptionId": "stream"}
        acknowledged = {"_meta": about, "notifications": {"toolsListChanged": True}}
        self.assertEqual(client.heard("notifications/subscriptions/acknowledged"), [acknowledged])
        self.assertEqual(client.heard("notifications/tools/list_changed"), [{}, {"_meta": about}] * 2)
        await client.ask("tools/list")
        await client.call("tool")
        self.assertEqual(called, ["new"])

    async def test_a_list_that_changed_is_told_to_those_who_asked_to_hear_it(self) -> None:
        """Not before `notifications/initialized`, not on a stream that did not ask, not on a cancelled one."""
        offer = offer_of(spec("tool", nothing))
        client = Beside(offer)
        await client.ask("initialize", LEGACY, protocolVersion="2025-11-25")
        client.write(request("a", "subscriptions/listen", notifications={}))
        client.write(request("b", "subscriptions/listen", notifications={"toolsListChanged": True}))
        await client.turns()
        client.write(notification("notifications/cancelled", requestId="b"))
        await client.turns()
        await client.ask("tools/list")
        offer.drop("tool")
        self.assertEqual(self.error(await client.call("tool")), (-32602, None))
        self.assertEqual(client.heard("notifications/tools/list_changed"), [])
        self.assertEqual(self.error(await client.ask("subscriptions/listen")), (-32602, None))

    async def test_a_definition_that_changed_since_it_was_loaded_is_not_called(self) -> None:
        """Search to load, and load to call: each carries the digest of what was seen."""
        offer = offer_of(spec("tool", nothing, keywords=("word",)), direct=0)
        client = Beside(offer)
        card = text_of(await client.call("tools_search", query="Word?"))["tools"][0]
        offer.put(replace(spec("tool", nothing, keywords=("word",)), version="2"))
        named = {"name": "tool", "digest": card["digest"]}
        for name, arguments in (("tools_load", {"tools": [named]}), ("tools_call", named)):
            answer = await client.call(name, **arguments)
            self.assertEqual(text_of(answer)["error"], "stale_definition")
            self.assertIn("tools_search", text_of(answer)["text"])

    async def test_several_definitions_are_loaded_within_a_budget_and_one_alone_always(self) -> None:
        """A refusal says what to do next, and nothing is ever cut."""
        long = "x" * 20_000
        offer = offer_of(
            *(ToolSpec(name, long, "read", 1, 1, 1, nothing, keywords=("word",)) for name in ("a", "b")), direct=0
        )
        client = Beside(offer)
        cards = text_of(await client.call("tools_search", query="word"))["tools"]
        named = [{"name": card["name"], "digest": card["digest"]} for card in cards]
        refused = text_of(await client.call("tools_load", tools=named))
        self.assertEqual(refused["error"], "definition_budget_exceeded")
        self.assertIn("fewer", refused["text"])
        self.assertEqual(text_of(await client.call("tools_load", tools=named[:1]))["tools"][0]["description"], long)
        self.assertEqual(text_of(await client.call("tools_search", query="nothing"))["tools"], [])
        self.assertEqual(text_of(await client.call("tools_search", quary="word"))["error"], "invalid_arguments")

    async def test_a_long_list_comes_in_pages(self) -> None:
        """All tools once, in a fixed order; a cursor of another list, an invented and an empty one are refused."""
        specs = [spec(f"tool_{number:02}", nothing) for number in range(9)]
        offer = offer_of(*reversed(specs), page_bytes=500)
        client = Beside(offer)
        names, cursors = [], []
        params: dict[str, Any] = {}
        while True:
            page = (await client.ask("tools/list", **params))["result"]
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
            cursors.append(page["nextCursor"])
        self.assertEqual(names, [one.name for one in specs])
        self.assertGreater(len(cursors), 1)
        bad = ["", "x", "1", "0" + cursors[0], cursors[0].replace(cursors[0].partition("-")[0], "99"), "-" + cursors[0]]
        for cursor in bad:
            with self.subTest(cursor=cursor):
                self.assertEqual(self.error(await client.ask("tools/list", cursor=cursor)), (-32602, None))
        self.assertEqual(self.error(await client.ask("tools/list", cursor=3)), (-32602, None))
        offer.drop("tool_00")
        self.assertEqual(self.error(await client.ask("tools/list", cursor=cursors[0])), (-32602, None))

    async def test_one_page_holds_a_tool_that_is_larger_than_a_page(self) -> None:
        """The list ends, whatever the sizes."""
        specs = [ToolSpec(name, "x" * 1000, "read", 1, 1, 1, nothing) for name in ("a", "b")]
        page = offer_of(*specs, page_bytes=10).page(None)
        self.assertEqual([tool["name"] for tool in page["tools"]], ["a"])


class TaskTestCase(SessionTestCase, FolderTestCase):
    """A test with a store of jobs and a clock of its own; `work` is a worker that does one job."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = ManualClock(1_800_000_000.0)
        self.keys = keys()
        self.outcomes: list[Any] = []

    def jobs(self, owner: str = "alice", **options: Any) -> tuple[Jobs, Beside]:
        """Return the jobs of an owner in the one store, and a client."""
        run = self.run_job
        schema = {
            "type": "object",
            "properties": {"month": {"type": "string"}},
            "required": ["month"],
            "additionalProperties": False,
        }
        tool = JobTool("export", "Export a month.", schema, Handler(run, temporary=(ConnectionError,)), seconds=100)
        jobs = Jobs(
            self.folder / "jobs.db",
            owner,
            [tool],
            new_key=self.keys,
            clock=self.clock,
            random=random.Random(7).randbytes,
            **options,
        )
        self.addCleanup(jobs.close)
        offer = offer_of()
        jobs.offer_to(offer)
        return jobs, Beside(offer, jobs)

    def run_job(self, context: Any) -> Any:
        """Do one job as `outcomes` says."""
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome(context) if callable(outcome) else outcome

    def work(self) -> None:
        """Let a worker do one job."""
        with Worker(
            self.folder / "jobs.db",
            {"export": Handler(self.run_job, temporary=(ConnectionError,))},
            clock=self.clock,
            sleep=self.clock.sleep,
            renew_every=float("inf"),
            random=lambda: 0.5,
        ) as worker:
            worker.run_once()

    def prune(self, *, results: bool) -> None:
        """Remove what retention no longer keeps: the results, or the jobs."""
        with LivingStore(self.folder / "jobs.db") as store:
            keys_before = self.clock() - 10_000 if results else self.clock()
            store.prune(now=self.clock, results_before=self.clock(), keys_before=keys_before)

    async def submit(self, client: Beside, **arguments: Any) -> Answer:
        """Call the job tool with the extension declared."""
        return dict((await client.call("export", TASKS, **{"month": "2026-08", **arguments}))["result"])


class TasksOfJobs(TaskTestCase):
    """A long call is a task for who knows tasks, and a number for who does not."""

    async def test_every_state_has_a_word_of_the_protocol(self) -> None:
        """And only the final ones have a final word.

        Claims: C10-262.
        """
        self.assertEqual(sorted(STATUS), sorted(STATES))
        final = {"completed", "failed", "cancelled"}
        self.assertEqual({state for state, word in STATUS.items() if word in final}, set(FINAL_STATES))
        self.assertEqual(set(STATUS.values()), {"working", "completed", "cancelled"})

    async def test_a_task_from_its_handle_to_its_result(self) -> None:
        """Flat, after the commit, and found with `tasks/get` until it is completed.

        Claims: C10-262.
        """
        _, client = self.jobs()
        task = await self.submit(client)
        self.assertEqual(task["resultType"], "task")
        self.assertEqual((task["status"], task["ttlMs"], task["pollIntervalMs"]), ("working", 100_000, 1000))
        self.assertEqual(task["createdAt"], "2027-01-15T08:00:00.000Z")
        self.assertNotIn("task", task)
        handle = task["taskId"]
        found = (await client.ask("tasks/get", TASKS, taskId=handle))["result"]
        self.assertEqual((found["resultType"], found["status"], found["taskId"]), ("complete", "working", handle))
        self.assertNotIn("result", found)
        self.clock.advance(5)
        self.outcomes = [lambda context: context.progress(1, 2) and {"rows": 3}]
        self.work()
        found = (await client.ask("tasks/get", TASKS, taskId=handle))["result"]
        self.assertEqual((found["resultType"], found["status"]), ("complete", "completed"))
        self.assertEqual(found["result"], {"content": [{"type": "text", "text": '{"rows":3}'}], "isError": False})
        self.assertEqual(found["createdAt"], "2027-01-15T08:00:00.000Z")
        self.assertEqual(found["lastUpdatedAt"], "2027-01-15T08:00:05.000Z")

    async def test_a_handle_outlives_the_process_that_gave_it(self) -> None:
        """Another server over the same file, with the same owner, knows it."""
        first, client = self.jobs()
        handle = (await self.submit(client))["taskId"]
        first.close()
        _, client = self.jobs()
        self.assertEqual((await client.ask("tasks/get", TASKS, taskId=handle))["result"]["status"], "working")

    async def test_what_is_not_yours_looks_like_what_is_not_there(self) -> None:
        """Another owner's handle, a changed, an invented and an empty one, for every verb."""
        a_jobs, alice = self.jobs()
        b_jobs, bob = self.jobs("bob")
        handle = (await self.submit(alice))["taskId"]
        number, _, seal = handle.partition(".")
        theirs = (await bob.ask("tasks/get", TASKS, taskId=handle))["error"]
        for wrong in (f"2.{seal}", f"0{handle}", f"{number}.{seal[::-1]}", number, "", "x" * 5000, "1." + "0" * 64):
            for verb in ("tasks/get", "tasks/cancel", "tasks/update"):
                with self.subTest(wrong=wrong[:20], verb=verb):
                    answer = await bob.ask(verb, TASKS, taskId=wrong, inputResponses={})
                    self.assertEqual(answer["error"], theirs)
        self.assertEqual(theirs["code"], -32602)
        unsealed = await alice.ask("tasks/get", TASKS, taskId=f"{number}.{seal[::-1]}")
        self.assertEqual(unsealed["error"], theirs, "nobody guesses a handle, not even of a job of their own")
        self.assertNotEqual(a_jobs.handle(1), b_jobs.handle(1))
        self.assertEqual(self.error(await bob.ask("tasks/get", TASKS, taskId=3)), (-32602, None))
        answer = text_of(await bob.call("jobs_get", job=int(number)))
        self.assertEqual(answer, text_of(await bob.call("jobs_get", job=99)))
        self.assertEqual(answer["error"], "not_found")
        self.assertEqual((await alice.ask("tasks/get", TASKS, taskId=handle))["result"]["status"], "working")

    async def test_only_who_declares_the_extension_is_given_a_task(self) -> None:
        """Who does not gets the number; who asks about tasks all the same is told what is missing."""
        _, client = self.jobs()
        discovered = (await client.ask("server/discover"))["result"]["capabilities"]
        self.assertEqual(discovered["extensions"], {"io.modelcontextprotocol/tasks": {}})
        answer = (await client.call("export", month="2026-08"))["result"]
        self.assertEqual(answer["resultType"], "complete")
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
        for verb, params in (
            ("tasks/get", {"taskId": "1"}),
            ("tasks/cancel", {"taskId": "1"}),
            ("tasks/update", {"taskId": "1"}),
            ("subscriptions/listen", {"notifications": {"taskIds": []}}),
        ):
            with self.subTest(verb=verb):
                self.assertEqual(self.error(await client.ask(verb, **params)), (-32021, missing))

    async def test_who_knows_no_tasks_asks_and_cancels_by_number(self) -> None:
        """The receipt says with what to ask and to cancel; both are ordinary tools, in either form of the list."""
        for direct in (30, 0):
            jobs, _ = self.jobs()
            offer = offer_of(direct=direct)
            jobs.offer_to(offer)
            client = Beside(offer, jobs)
            await client.ask("initialize", LEGACY, protocolVersion="2025-11-25")
            name, arguments = "export", {"month": "2026-08"}
            if direct == 0:
                tool = offer.visible("export")
                assert tool is not None
                name, arguments = "tools_call", {"name": name, "digest": tool.digest, "arguments": arguments}  # type: ignore[dict-item]
            receipt = text_of(await client.call(name, LEGACY, **arguments))
            asked = text_of(await client.call(receipt["ask"]["name"], LEGACY, **receipt["ask"]["arguments"]))
            self.assertEqual((asked["id"], asked["state"], asked["result"]), (receipt["job"], "queued", None))
            told = text_of(await client.call(receipt["cancel"]["name"], LEGACY, **receipt["cancel"]["arguments"]))
            self.assertEqual(told, {"id": receipt["job"], "state": "cancelled"})

    async def test_the_result_is_there_by_number_too(self) -> None:
        """As a text, like every result."""
        _, client = self.jobs()
        number = text_of(await client.call("export", month="2026-08"))["job"]
        self.outcomes = ["done"]
        self.work()
        asked = text_of(await client.call("jobs_get", job=number))
        self.assertEqual((asked["state"], asked["result"]), ("succeeded", "done"))

    async def test_a_cancel_asks_and_what_was_done_stays_done(self) -> None:
        """Queued: cancelled at once. Running: still working until the worker confirms. Done: completed."""
        _, client = self.jobs()
        handle = (await self.submit(client))["taskId"]
        answer = (await client.ask("tasks/cancel", TASKS, taskId=handle))["result"]
        self.assertEqual(sorted(answer), ["_meta", "resultType"])
        self.assertEqual((await client.ask("tasks/get", TASKS, taskId=handle))["result"]["status"], "cancelled")

        for ends, expected in (("cancel", "cancelled"), ("finish", "completed")):
            handle = (await self.submit(client))["taskId"]
            number = int(handle.partition(".")[0])
            with LivingStore(self.folder / "jobs.db") as store:
                attempt = store.claim(number, now=self.clock)
                assert attempt is not None
                if ends == "finish":
                    store.finish(number, attempt, "done", now=self.clock)
                for _ in range(2):
                    self.assertIn("result", await client.ask("tasks/cancel", TASKS, taskId=handle))
                if ends == "cancel":
                    found = (await client.ask("tasks/get", TASKS, taskId=handle))["result"]
                    self.assertEqual((found["status"], found["statusMessage"]), ("working", "A cancel was asked for."))
                    store.finish(number, attempt, "done", now=self.clock)
            self.assertEqual((await client.ask("tasks/get", TASKS, taskId=handle))["result"]["status"], expected)

    async def test_an_update_is_acknowledged_and_ignored(self) -> None:
        """No job here asks for anything."""
        _, client = self.jobs()
        handle = (await self.submit(client))["taskId"]
        answer = await client.ask("tasks/update", TASKS, taskId=handle, inputResponses={"x": {}})
        self.assertEqual(answer["result"]["resultType"], "complete")
        self.assertEqual(self.error(await client.ask("tasks/update", TASKS, taskId=handle)), (-32602, None))

    async def test_a_key_is_one_job_and_another_intent_under_it_a_conflict(self) -> None:
        """A repeated call without a key is a second job.

        Claims: C10-219.
        """
        _, client = self.jobs()
        handles = [(await self.submit(client, action_key="k"))["taskId"] for _ in range(2)]
        self.assertEqual(handles[0], handles[1])
        refused = await client.call("export", TASKS, month="2026-07", action_key="k")
        self.assertEqual(self.error(refused), (-32602, {"code": "key_conflict"}))
        handles += [(await self.submit(client))["taskId"] for _ in range(2)]
        self.assertEqual(len(set(handles)), 3)
        empty = await client.call("export", TASKS, month="2026-08", action_key="")
        self.assertEqual(text_of(empty)["error"], "invalid_arguments")

    async def test_a_full_queue_is_an_answer_that_the_model_reads(self) -> None:
        """It says to ask again later; a known key gets its job all the same."""
        _, client = self.jobs(capacity=1)
        handle = (await self.submit(client, action_key="k"))["taskId"]
        refused = await self.submit(client)
        self.assertTrue(refused["isError"])
        self.assertEqual(json.loads(refused["content"][0]["text"])["error"], "queue_full")
        self.assertEqual((await self.submit(client, action_key="k"))["taskId"], handle)

    async def test_a_failure_of_the_tool_is_a_result_and_one_of_the_runtime_an_error(self) -> None:
        """The handler's own code is `completed` with `isError`; a deadline or used-up attempts are `failed`."""
        _, client = self.jobs()
        own = (await self.submit(client))["taskId"]
        self.outcomes = [ValueError("its text is never told")]
        self.work()
        found = (await client.ask("tasks/get", TASKS, taskId=own))["result"]
        self.assertEqual((found["status"], found["result"]["isError"]), ("completed", True))
        self.assertIn("handler_failed", found["result"]["content"][0]["text"])
        self.assertNotIn("never told", json.dumps(found))

        late = (await self.submit(client))["taskId"]
        self.clock.advance(101)
        self.assertEqual((await client.ask("tasks/get", TASKS, taskId=late))["result"]["status"], "working")
        self.work()
        found = (await client.ask("tasks/get", TASKS, taskId=late))["result"]
        self.assertEqual((found["status"], found["error"]["code"]), ("failed", -32603))
        self.assertIn("deadline_exceeded", found["error"]["message"])
        self.assertNotIn("result", found)

    async def test_a_task_that_works_is_never_forgotten_and_one_that_is_done_is_kept_past_its_time(self) -> None:
        """The end of `ttlMs` ends work and not knowledge; only pruning forgets, and then it is said."""
        _, client = self.jobs()
        handle = (await self.submit(client))["taskId"]
        self.outcomes = ["done"]
        self.work()
        self.clock.advance(1000)
        self.assertEqual((await client.ask("tasks/get", TASKS, taskId=handle))["result"]["status"], "completed")
        self.prune(results=True)
        self.assertIn("expired", (await client.ask("tasks/get", TASKS, taskId=handle))["error"]["message"])
        self.prune(results=False)
        self.assertEqual(self.error(await client.ask("tasks/get", TASKS, taskId=handle)), (-32602, None))

    async def test_a_result_is_shown_as_every_result_is(self) -> None:
        """Secrets go, and what is too long is cut and says so."""
        _, client = self.jobs()
        handle = (await self.submit(client))["taskId"]
        self.outcomes = ["password=hunter2hunter2 " + "x" * 200_000]
        self.work()
        found = (await client.ask("tasks/get", TASKS, taskId=handle))["result"]["result"]["content"][0]["text"]
        self.assertNotIn("hunter2", found)
        self.assertLess(len(found), 101_000)
        self.assertIn("[Cut:", found)


class Secrets(FolderTestCase):
    """The secret lies beside the file, for its owner alone, and is the same for all."""

    def test_a_secret_is_made_once_whoever_comes_first(self) -> None:
        """Many at once read the same 32 bytes, and nothing else is left in the folder."""
        path = self.folder / "jobs.db.secret"
        secrets = at_once(*[lambda: read_secret(path)] * 8)
        self.assertEqual(len(set(secrets)), 1)
        self.assertEqual(len(secrets[0]), 32)
        self.assertEqual([each.name for each in self.folder.iterdir()], ["jobs.db.secret"])

    @unittest.skipUnless(os.name == "posix", "rights of files as POSIX has them")
    def test_a_secret_that_others_can_read_is_refused(self) -> None:
        """It is made with mode 600; whoever opened it hears of it before anything is sealed."""
        path = self.folder / "secret"
        read_secret(path)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        path.chmod(0o640)
        with self.assertRaises(SecretError) as caught:
            read_secret(path)
        self.assertEqual(str(caught.exception), "secret_open")

    def test_a_secret_that_is_none_is_refused(self) -> None:
        """An empty file seals nothing."""
        path = self.folder / "secret"
        path.touch(0o600)
        with self.assertRaises(SecretError) as caught:
            read_secret(path)
        self.assertEqual(str(caught.exception), "secret_broken")


class Fuzz(SessionTestCase):
    """Whatever comes in, what goes out is messages."""

    async def test_ten_thousand_lines_leave_a_server_that_answers(self) -> None:
        """No exception, no log of a failure, nothing that is no message, and a ping at the end."""
        chance = random.Random(1016)
        offer = offer_of(
            spec("echo", lambda text: text), spec("nothing", nothing), *(spec(f"t{n}", nothing) for n in range(3))
        )
        client = Beside(offer)
        seeds = [
            json.dumps(message).encode()
            for message in (
                request(1, "server/discover"),
                request(2, "initialize", LEGACY, protocolVersion="2025-11-25"),
                request("a", "tools/list", cursor="x"),
                request(3, "tools/call", name="nothing", arguments={}, _meta={"progressToken": 1}),
                request(4, "tools/call", TASKS, name="t1"),
                request(5, "tasks/get", TASKS, taskId="1.00"),
                request(6, "subscriptions/listen", notifications={"toolsListChanged": True}),
                request(7, "ping", LEGACY),
                notification("notifications/cancelled", requestId=6),
                notification("notifications/initialized"),
            )
        ]
        logging.getLogger("chapter10").setLevel(logging.ERROR)
        with self.assertNoLogs("chapter10", logging.ERROR):
            for _ in range(10_000):
                line = fuzzed(chance, chance.choice(seeds))
                client.write(line)
                await client.turns(2)
            await client.session.drain(0.5)
        for message in client.said:
            self.assertEqual(message["jsonrpc"], "2.0")
            self.assertTrue("result" in message or "error" in message or "method" in message)
        client.write(request("end", "ping", LEGACY))
        self.assertEqual((await client.answer("end"))["result"], {})


def fuzzed(chance: random.Random, line: bytes) -> bytes:
    """Return a line that was changed a little, or is noise."""
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randrange(60)).replace(b"\n", b"")
    if kind == 1:
        return line[: chance.randrange(len(line))]
    if kind == 2:
        at = chance.randrange(len(line))
        return line[:at] + chance.randbytes(chance.randrange(1, 4)).replace(b"\n", b"") + line[at + 1 :]
    message = json.loads(line)
    place = message if kind == 3 else message.get("params", message)
    if kind == 5:
        place = place.get("_meta", place)
    if place:
        values: list[Any] = [None, True, -1, 1.5, 2**70, "", "x", "\0", [], {}, [[]], {"a": {}}, "\ud800", "1.00"]
        place[chance.choice(sorted(place))] = chance.choice(values)
    return json.dumps(message).encode()


class Processes(FolderTestCase):
    """What only a real process shows: its descriptors, its end, and what is found again after it."""

    def test_nothing_but_messages_is_ever_on_standard_output(self) -> None:
        """A module that prints while it is loaded, a handler, and a child of it; and the child finds no input."""
        with Started("--handlers", SERVED, "--db", self.folder / "jobs.db") as client:
            for name, arguments, expected in (("noisy", {"text": "一"}, "一"), ("child_reads", {}, "''")):
                answer = client.ask("tools/call", name=name, arguments=arguments)
                self.assertEqual(answer["result"]["content"][0]["text"], expected)
            said, log, code = client.end()
        self.assertEqual((said, code), (b"", 0))
        for text in (b"while it is loaded", b"descriptor 1", b"on standard output", b"a child on standard output"):
            self.assertIn(text, log)

    def test_whose_jobs_they_are_and_what_may_be_called_is_said_at_the_start(self) -> None:
        """The name of an owner and every permission reach the door, before anybody asks for anything."""
        closed = mock.patch.object(door, "open_door", side_effect=ServingError("bad_handlers", "none"))
        with mock.patch.object(serve, "Pipes"), closed as opened, contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(serve.main(["--owner", "bob", "--grant", "a", "--grant", "b"]), 2)
        self.assertEqual((opened.call_args.kwargs["owner"], opened.call_args.kwargs["grants"]), ("bob", ["a", "b"]))

    def test_the_answers_that_are_due_come_after_the_end_of_the_input(self) -> None:
        """Whoever writes all requests and closes gets all answers; the last line needs no end."""
        lines = [request(number, "tools/call", name="echo", arguments={"text": "x"}) for number in range(50)]
        with Started("--handlers", SERVED, "--db", self.folder / "jobs.db") as client:
            client.write(b"\n".join(json.dumps(line).encode() for line in lines))
            said, _, code = client.end()
        self.assertEqual(sorted(json.loads(line)["id"] for line in said.splitlines()), list(range(50)))
        self.assertEqual(code, 0)

    def test_a_greeting_does_not_wait_for_the_tools(self) -> None:
        """Who discovers, initializes or pings is answered while the handlers are loaded; who lists waits for them."""
        gate = self.folder / "gate"
        text = (
            "import os, threading\n"
            "while not os.path.exists(os.environ['GATE']):\n"
            "    threading.Event().wait(0.01)\n"
            "def late() -> None:\n    'Late.'\n"
        )
        (self.folder / "slow_handlers.py").write_text(text, encoding="utf-8", newline="\n")
        path = os.pathsep.join([str(self.folder), child_environment()["PYTHONPATH"]])
        with Started("--handlers", "slow_handlers", environment={"GATE": str(gate), "PYTHONPATH": path}) as client:
            client.write(request("list", "tools/list"))
            client.ask("server/discover")
            client.ask("initialize", LEGACY, protocolVersion="2025-11-25")
            client.ask("ping", LEGACY)
            gate.touch()
            self.assertEqual(client.read()["result"]["tools"][0]["name"], "late")

    def test_a_call_that_does_not_end_holds_nobody_at_the_end(self) -> None:
        """A client that asked, cancelled and left has no orphan behind it."""
        with Started("--handlers", SERVED, "--db", self.folder / "jobs.db") as client:
            client.write(request("a", "tools/call", name="stubborn", _meta={"progressToken": 1}))
            self.assertEqual(client.read()["method"], "notifications/progress")
            client.write(notification("notifications/cancelled", requestId="a"))
            said, _, code = client.end()
        self.assertEqual((said, code), (b"", 0))

    def test_the_installed_command_finds_handlers_in_its_folder(self) -> None:
        """Where Python itself does not look there, as for a command in another folder."""
        (self.folder / "here.py").write_text(
            "def hello() -> str:\n    'Say it.'\n    return 'hello'\n", encoding="utf-8", newline="\n"
        )
        asked = json.dumps(request(1, "tools/call", name="hello")) + "\n"
        ended = run_python(
            ["-P", "-m", "chapter10", "serve", "--handlers", "here"],
            cwd=self.folder,
            text=asked,
        )
        self.assertEqual((json.loads(ended.stdout)["result"]["content"][0]["text"], ended.returncode), ("hello", 0))

    def test_bytes_are_the_same_under_every_code_page(self) -> None:
        """UTF-8 and a line feed, with lines that end as Windows ends them, under an ASCII console."""
        environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
        with Started(environment=environment) as client:
            found = request(1, "tools/call", name="tools_search", arguments={"query": "查询 订单"})
            client.write(json.dumps(found, ensure_ascii=False).encode() + b"\r\n")
            said, _, _ = client.end()
        self.assertIn("查询一笔订单".encode(), said)
        self.assertEqual((said.count(b"\n"), said.count(b"\r")), (1, 0))

    def test_random_lines_leave_a_server_that_answers(self) -> None:
        """The same noise through a pipe: no traceback, and nothing that is no message."""
        chance = random.Random(16)
        seed = json.dumps(request(1, "tools/call", name="tools_search", arguments={"query": "x"})).encode()
        with Started() as client:
            client.write(b"\n".join(fuzzed(chance, seed) for _ in range(500)) + b"\n")
            client.write(request("end", "ping", LEGACY))
            said, log, code = client.end()
        messages = [json.loads(line) for line in said.splitlines()]
        self.assertIn({"jsonrpc": "2.0", "id": "end", "result": {}}, messages)
        self.assertNotIn(b"Traceback", log)
        self.assertEqual(code, 0)

    def test_what_cannot_be_served_is_said_on_standard_error(self) -> None:
        """No such module, a list that is none, a job without a store: usage; and nothing on standard output."""
        broken = self.folder / "tools.json"
        broken.write_text("[1", encoding="utf-8", newline="\n")
        secret = self.folder / "jobs.db.secret"
        secret.touch(0o600)
        calls = [
            (("--handlers", "no.such.module"), 2, b"bad_handlers"),
            (("--tools", broken), 2, b"bad_tools"),
            (("--handlers", SERVED), 2, b"--db"),
            (("--db", self.folder / "jobs.db"), 3, b"secret_broken"),
            (("--db", self.folder), 3, b"store_unavailable"),
            (("--nonsense",), 2, b"usage"),
        ]

        def run(*options: object) -> tuple[bytes, bytes, int]:
            with Started(*map(str, options)) as client:
                return client.end()

        answers = at_once(*[lambda options=options: run(*options) for options, _, _ in calls])
        for (options, code, word), (said, log, ended) in zip(calls, answers, strict=True):
            with self.subTest(options=options):
                self.assertEqual((said, ended), (b"", code))
                self.assertIn(word, log)
                self.assertNotIn(b"Traceback", log)

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for other processes, for as long as a child may take."""
        for _ in range(CHILD_SECONDS * 20):
            if true():
                return
            threading.Event().wait(0.05)
        self.fail(f"not seen: {what}")

    def test_a_client_killed_in_the_middle_of_a_job_finds_it_again(self) -> None:
        """Both sides end and both start anew; the handle that it wrote down leads to the result.

        Claims: C10-193.
        """
        gate, started = self.folder / "gate", self.folder / "gate.started"
        options = ["--handlers", SERVED, "--db", str(self.folder / "jobs.db"), "--grant", "reports:write"]
        script = (
            "import sys, threading\n"
            "from chapter10.tests.mcp_client import Started, TASKS\n"
            "client = Started(*sys.argv[2:])\n"
            "call = {'name': 'reports_export', 'arguments': {'month': '2026-08', 'gate': sys.argv[1]}}\n"
            "task = client.ask('tools/call', TASKS, **call)['result']['taskId']\n"
            "print(task, client.process.pid, flush=True)\n"
            "threading.Event().wait()\n"
        )
        first = subprocess.Popen(
            [sys.executable, "-c", script, str(gate), *options],
            env=child_environment(),
            stdout=subprocess.PIPE,
        )
        assert first.stdout is not None
        handle, server = first.stdout.readline().decode("ascii").split()
        self.wait_until(started.exists, "the job has started")
        first.kill()
        first.communicate()
        self.wait_until(lambda: not alive(int(server)), "the server has ended with its client")
        gate.touch()
        with Started(*options) as client:

            def get() -> Answer:
                return dict(client.ask("tasks/get", TASKS, taskId=handle)["result"])

            self.wait_until(lambda: get()["status"] != "working", "the job has ended")
            found = get()
        self.assertEqual(found["status"], "completed")
        self.assertEqual(json.loads(found["result"]["content"][0]["text"]), {"attempt": 2, "month": "2026-08"})


def alive(pid: int) -> bool:
    """Say whether a process that is not ours runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Named(SessionTestCase, FolderTestCase):
    """What is named on the command line becomes what is offered."""

    def module(self, text: str) -> str:
        """Write a module and return its name; it can be loaded until the test ends."""
        name = f"served_{next(MODULES)}"
        (self.folder / f"{name}.py").write_text(text, encoding="utf-8", newline="\n")
        sys.path.insert(0, str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))
        self.addCleanup(sys.modules.pop, name, None)
        return name

    def tools(self, *tools: dict[str, Any]) -> Path:
        """Write a list of tools and return its path."""
        path = self.folder / "tools.json"
        path.write_text(json.dumps({"tools": tools}), encoding="utf-8", newline="\n")
        return path

    def named(self, **options: Any) -> Beside:
        """Return a client of what these options offer."""
        door = open_door(new_key=keys(), complain=self.complaints.append, **options)
        self.addCleanup(door.close)
        return Beside(door.offer, door.jobs)

    def setUp(self) -> None:
        super().setUp()
        self.complaints: list[str] = []

    async def test_without_options_the_chapter_is_offered_to_be_looked_at(self) -> None:
        """Its 300 tools, of which the chapter's identity finds 299; a call says that nothing carries them out."""
        client = self.named()
        card = text_of(await client.call("tools_search", query="订单 状态"))["tools"][0]
        answer = await client.call("tools_call", name=card["name"], digest=card["digest"], arguments={"record_id": "A"})
        self.assertEqual((text_of(answer)["error"], answer["result"]["isError"]), ("no_handler", True))
        found = text_of(await client.call("tools_search", query="退款"))["tools"]
        self.assertNotIn("refunds.create", [card["name"] for card in found])

    async def test_the_public_functions_of_a_module_are_tools(self) -> None:
        """Their hints and docstrings make the definitions; what was imported or is private is none."""
        text = (
            "from os import getcwd\ndef add(a: int, b: int = 1) -> int:\n"
            '    """Add."""\n    return a + b\ndef _own(): ...\n'
        )
        name = self.module(text)
        client = self.named(handlers=name)
        listed = (await client.ask("tools/list"))["result"]["tools"]
        self.assertEqual([(tool["name"], tool["description"]) for tool in listed], [("add", "Add.")])
        self.assertEqual(text_of(await client.call("add", a=2)), 3)
        self.assertEqual(text_of(await client.call("add", a="2"))["error"], "invalid_arguments")

    async def test_a_registry_is_offered_as_it_is_and_follows_its_owner(self) -> None:
        """What the module replaces later has changed for the client too."""
        name = self.module(
            "from chapter10.companions.tools.registry import ToolRegistry, ToolSpec\n"
            "TOOLS = ToolRegistry()\n"
            "TOOLS.register(ToolSpec('say', 'Say.', 'read', 5, 1, 100, lambda: 'old'))\n"
        )
        client = self.named(handlers=name)
        await client.ask("tools/list")
        self.assertEqual(text_of(await client.call("say")), "old")
        sys.modules[name].TOOLS.replace(ToolSpec("say", "Say it.", "read", 5, 1, 100, lambda: "new"))
        self.assertEqual(text_of(await client.call("say"))["text"], CHANGED)

    async def test_definitions_of_a_file_are_carried_out_by_functions_of_the_same_name(self) -> None:
        """`orders.get` by `orders_get`; a permission in the file is asked for; a missing function is named."""
        name = self.module("def orders_get(order):\n    return order\ndef orders_close(order): ...\n")
        schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
        read = {"name": "orders.get", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
        closed = {"name": "orders-close", "inputSchema": schema, "permission": "orders:write"}
        client = self.named(tools=self.tools(read, closed), handlers=name)
        listed = (await client.ask("tools/list"))["result"]["tools"]
        self.assertEqual([tool["name"] for tool in listed], ["orders.get"])
        self.assertEqual(listed[0]["annotations"], {"readOnlyHint": True})
        self.assertEqual(text_of(await client.call("orders.get", order="A")), "A")
        client = self.named(tools=self.tools(read, closed), handlers=name, grants=["orders:write"])
        self.assertEqual(len((await client.ask("tools/list"))["result"]["tools"]), 2)
        with self.assertRaises(ServingError) as caught:
            self.named(tools=self.tools({"name": "orders.burn"}), handlers=name)
        self.assertIn("orders.burn", caught.exception.reason)

    async def test_a_definition_that_cannot_be_enforced_is_left_out_and_named(self) -> None:
        """And so is an entry that is no tool; the others are offered."""
        bad = {"name": "bad", "inputSchema": {"type": "object", "$dynamicRef": "#x"}}
        client = self.named(tools=self.tools(bad, {"name": "good"}, {"title": "no name"}))
        self.assertEqual([tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]], ["good"])
        self.assertEqual(len(self.complaints), 2)
        self.assertIn("bad", self.complaints[1])

    async def test_a_module_that_offers_what_is_no_tool_is_refused_by_name(self) -> None:
        """A text, a number, a handler that cannot be called by name, and a module that raises."""
        bad = ("TOOLS = 'x'", "TOOLS = [3]", "TOOLS = 3", "def bad(a): 'No hint.'", "raise OSError('x')")
        for text in bad:
            with self.subTest(text=text), self.assertRaises(ServingError) as caught:
                self.named(handlers=self.module(text + "\n"))
            self.assertEqual(caught.exception.code, "bad_handlers")


class ThePage(SessionTestCase, FolderTestCase):
    """What `docs/mcp.md` shows is what is said."""

    PAGE = TOP / "docs" / "mcp.md"

    async def replay(
        self, client: Beside, lines: list[str], between: Callable[[str], None] = lambda line: None
    ) -> None:
        """Write what the client of the page writes; what is said in between are the next lines, `M`, `S` and `...`."""
        server = {"io.modelcontextprotocol/serverInfo": {"name": "chapter10", "version": "1.0"}}
        for line in lines:
            said = (
                line[3:]
                .replace('"_meta":M', f'"_meta":{compact(TASKS)}')
                .replace('"_meta":S', f'"_meta":{compact(server)}')
            )
            if line.startswith("-> "):
                between(line)
                message = json.loads(said)
                client.said.clear()
                client.write(message)
                if "id" in message:
                    await client.answer(message["id"])
                continue
            begin, _, end = said.partition("\u2026")
            heard = compact(client.said.pop(0))
            self.assertTrue(heard.startswith(begin) and heard.endswith(end), (said, heard))
        self.assertEqual(client.said, [])

    def recorded(self) -> list[list[str]]:
        """Return the exchanges of the page."""
        blocks = re.findall(r"^```text\n(.*?)^```$", self.PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        return [block.splitlines() for block in blocks if block.startswith("-> ")]

    async def test_the_recorded_exchanges_are_what_is_said(self) -> None:
        """Both eras, to the byte; a worker does the job before it is asked for."""
        older, newer = self.recorded()
        door = open_door(new_key=keys())
        await self.replay(Beside(door.offer), older)
        module = load_module("examples.mcp_tools")
        clock = ManualClock(1_796_083_200.0)
        tools = job_tools(module)
        jobs = Jobs(
            self.folder / "jobs.db", "alice", tools, new_key=keys(), clock=clock, random=lambda size: b"\7" * size
        )
        self.addCleanup(jobs.close)
        offer = offer_of(grants=("reports:write",))
        offer_tools(offer, module)
        jobs.offer_to(offer)

        def between(line: str) -> None:
            if "tasks/get" in line:
                clock.advance(2)
                handlers = {tool.name: tool.handler for tool in tools}
                with Worker(self.folder / "jobs.db", handlers, clock=clock, renew_every=float("inf")) as worker:
                    worker.run_once()

        await self.replay(Beside(offer, jobs), newer, between)

    async def test_the_example_answers(self) -> None:
        """Its tools do what the page says of them."""
        offer = offer_of()
        offer_tools(offer, load_module("examples.mcp_tools"))
        client = Beside(offer)
        months = text_of(await client.call("sales_months"))
        self.assertIn("2026-08", months)
        self.assertGreater(text_of(await client.call("sales_total", month="2026-08")), 0)
        refused = text_of(await client.call("sales_total", month="1999-01"))
        self.assertEqual(refused["text"], "No sales in 1999-01. Ask sales_months.")

    @unittest.skipUnless(
        os.environ.get("CHAPTER10_DATA"), "CHAPTER10_DATA does not name the folder with real tool lists"
    )
    async def test_the_bytes_of_five_hundred_tools_are_those_of_the_page(self) -> None:
        """All of them listed, beside an exchange that finds and loads one."""
        data = Path(os.environ["CHAPTER10_DATA"])
        tools = json.loads((data / "mcp-tools-github.json").read_bytes())["tools"]
        tools += json.loads((data / "retrieval" / "bfcl-live.json").read_bytes())["tools"][: 500 - len(tools)]
        path = self.folder / "tools.json"
        path.write_text(json.dumps(tools), encoding="utf-8", newline="\n")
        sizes = []
        for direct in (len(tools), DIRECT_TOOLS):
            offer = offer_of(direct=direct)
            self.assertEqual(offer_file(offer, path, None), [])
            client = Beside(offer)
            sizes.append(0)
            cursor: dict[str, Any] = {}
            while cursor is not None:
                answer = await client.ask("tools/list", **cursor)
                sizes[-1] += len(write_message(answer))
                more = answer["result"].get("nextCursor")
                cursor = None if more is None else {"cursor": more}  # type: ignore[assignment]
        found = await client.call("tools_search", query="merge a pull request", limit=3)
        first = text_of(found)["tools"][0]
        loaded = await client.call("tools_load", tools=[{"name": first["name"], "digest": first["digest"]}])
        self.assertEqual(first["name"], "merge_pull_request")
        sizes += [len(write_message(answer)) for answer in (found, loaded)]
        sizes.append(sum(sizes[1:]))
        page = self.PAGE.read_text(encoding="utf-8").partition("\n## 4.")[2]
        self.assertEqual([f"{size:,}" for size in sizes], re.findall(r"^\|.*\| ([0-9,]+) \|$", page, re.MULTILINE))


def compact(value: object) -> str:
    """Return JSON as the page writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


del TaskTestCase
if __name__ == "__main__":
    unittest.main()
