"""One conversation through all of the tool layer: what reaches a handler, what is sent, how every turn ends."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import unittest
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, ClassVar
from unittest import mock

from chapter10.companions.tools.executor import KEEP_PROGRESS
from chapter10.companions.tools.gateway import (
    MAX_MESSAGES,
    NEXT_STEPS,
    NO_NAME,
    READ_TOOL,
    SEARCH_TOOL,
    Gateway,
    GatewayError,
    ThreadProgress,
    answer_of,
)
from chapter10.companions.tools.registry import ApprovalRequest, CallContext, ToolRegistry, ToolSpec
from chapter10.companions.tools.result_budget import ResultBudget, merge_messages
from chapter10.companions.tools.result_store import ResultStore
from chapter10.companions.tools.tool_calls import CallFailure, Progress, ToolResult
from chapter10.companions.tools.transcript import (
    MAX_PROBLEMS,
    blocks_of,
    fits,
    messages_for,
    prefix_digests,
    problems_of,
)
from chapter10.tests.support import FolderTestCase

Block = dict[str, Any]
GRANTS = frozenset({"orders:use"})
SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string", "maxLength": 20}},
    "required": ["order_id"],
    "additionalProperties": False,
}


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def call(call_id: str, name: str = "orders.get", arguments: Any = None, **more: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {"order_id": "A"}, **more}


def search(call_id: str, query: str, limit: int = 5) -> Block:
    return call(call_id, SEARCH_TOOL, {"query": query, "limit": limit})


async def settle() -> None:
    """Let everything happen that needs no further cue."""
    for _ in range(50):
        await asyncio.sleep(0)


class GatewayTestCase(FolderTestCase, unittest.IsolatedAsyncioTestCase):
    """A registry whose tools are counted, and a conversation with them."""

    def setUp(self) -> None:
        super().setUp()
        quiet = logging.NullHandler()  # what the registry refuses is in the answers
        logging.getLogger("chapter10").addHandler(quiet)
        self.addCleanup(logging.getLogger("chapter10").removeHandler, quiet)
        self.calls: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}
        self.registry = ToolRegistry(grace_seconds=0.05)
        self.budget = ResultBudget(ResultStore(self.folder / "results"), message_limit=50_000)
        self.sent: list[str] = []

    def tool(self, name: str, handler: Callable[..., Any] | None = None, effect: str = "read", **more: Any) -> None:
        """Register a tool; without a handler it returns `<name> <order>` at once."""

        async def plain(order_id: str) -> str:
            self.calls.append(f"{name} {order_id}")
            return f"{name} {order_id}"

        base = ToolSpec(name, f"Is {name}.", effect, 30, 1, 1_000_000, handler or plain, SCHEMA, "orders:use")
        if effect != "read":
            base = replace(base, idempotency_key=lambda arguments: f"{name} {sorted(arguments.items())}")
        self.registry.register(replace(base, **{"keywords": (name.split(".")[0],), **more}))

    def waiting(self, name: str, effect: str = "read", **more: Any) -> None:
        """Register a tool that waits until its door opens."""

        async def wait(order_id: str) -> str:
            self.calls.append(f"{name} {order_id}")
            await self.door(order_id).wait()
            return f"{name} {order_id}"

        self.tool(name, wait, effect, **more)

    def door(self, order_id: str) -> asyncio.Event:
        return self.doors.setdefault(order_id, asyncio.Event())

    def open_doors(self) -> None:
        """Whoever waits goes on, and whoever comes later does not wait."""
        for order_id in "XY":
            self.door(order_id).set()

    def gateway(self, **more: Any) -> Gateway:
        return Gateway(self.registry, self.budget, **{"grants": GRANTS, **more})

    async def ready(self, *words: str, **more: Any) -> Gateway:
        """A conversation in which the tools of these words are loaded and a request was sent."""
        gateway = self.gateway(**more)
        gateway.ask("Do it.")
        self.send(gateway)
        await self.play(gateway, search("s", " ".join(words)))
        self.send(gateway)
        return gateway

    def send(self, gateway: Gateway) -> Any:
        """Send a request: it is valid, and it begins as the one before."""
        request = gateway.request()
        digests = prefix_digests(request.messages, request.tools)
        self.assertEqual(problems_of(request.messages), [])
        self.assertEqual(digests[: len(self.sent)], self.sent)
        self.sent = digests
        return request

    async def play(self, gateway: Gateway, *script: Block | Callable[[], Any]) -> list[ToolResult]:
        """Let the model answer with a script, take everything, and return the results."""
        async with gateway.turn(model(*script)) as turn:
            async for _ in turn:
                pass
        return turn.results

    def valid(self, gateway: Gateway) -> None:
        self.assertEqual(problems_of(merge_messages(gateway.transcript)), [])


async def model(*script: Block | Callable[[], Any]) -> AsyncIterator[Block]:
    """Write the blocks of a script; what is callable is done in between."""
    for part in script:
        if callable(part):
            part()
        else:
            yield part
        await settle()


class PlainQuestions(GatewayTestCase):
    """A search takes words that somebody chose, or a question as people ask it."""

    async def test_one_word_says_how_a_search_reads_its_query(self) -> None:
        """The plain question finds what its words alone do not, and never what the caller may not see."""
        self.tool("parcels.track", description="Tells where a shipment is.", keywords=("物流",))
        self.tool("parcels.hidden", description="Tells where a shipment is.", permission="secret")
        for ranking, found in (("words", []), ("plain", ["parcels.track"])):
            self.sent = []
            gateway = await self.ready("where", "is", "my", "shipment?", ranking=ranking)
            self.assertEqual(gateway.loaded, found)

    async def test_another_word_is_refused(self) -> None:
        """A search that nobody knows is not guessed at."""
        self.assertRaisesRegex(GatewayError, "bad_input", self.gateway, ranking="best")


class WhatReachesAHandler(GatewayTestCase):
    """Only the registry calls, and only what was loaded and may run now."""

    async def test_a_tool_is_found_loaded_and_called(self) -> None:
        """The flow from the question to the last word; each next request begins as the one before.

        Claims: C8-075, C8-079, C8-082, T6-016, T6-043.
        """
        self.tool("orders.get")
        gateway = self.gateway()
        gateway.ask("Is A paid?")
        self.send(gateway)
        await self.play(gateway, text("I look."), search("c1", "orders"))
        self.assertEqual(gateway.loaded, ["orders.get"])
        self.send(gateway)
        (result,) = await self.play(gateway, call("c2"))
        self.assertEqual((result.content, self.calls), ("orders.get A", ["orders.get A"]))
        self.send(gateway)
        await self.play(gateway, text("Yes."))
        self.assertTrue(gateway.finished)
        self.assertEqual([len(message["content"]) for message in gateway.transcript], [1, 2, 1, 1, 1, 1])

    async def test_a_tool_that_was_not_loaded_is_not_called(self) -> None:
        """One that exists and one that does not look alike, and no handler runs."""
        self.tool("orders.get")
        gateway = self.gateway()
        gateway.ask("Is A paid?")
        known, unknown = await self.play(gateway, call("c1"), call("c2", "orders.none"))
        self.assertEqual((known.code, known.content), (unknown.code, unknown.content))
        self.assertEqual((known.code, self.calls), ("unknown_tool", []))

    async def test_a_search_that_does_not_say_how_many_loads_three(self) -> None:
        """Four tools match equally; the one behind the third is not loaded."""
        for number in range(4):
            self.tool(f"orders.get{number}")
        gateway = self.gateway()
        gateway.ask("?")
        await self.play(gateway, call("c1", SEARCH_TOOL, {"query": "orders"}))
        self.assertEqual(gateway.loaded, ["orders.get0", "orders.get1", "orders.get2"])

    def test_the_effect_of_a_tool_says_whether_its_call_only_reads(self) -> None:
        """The two that are always there read; what nobody knows is taken for a write."""
        self.tool("orders.get")
        self.tool("notes.save", effect="reversible_write")
        gateway = self.gateway()
        names = (SEARCH_TOOL, READ_TOOL, "orders.get", "notes.save", "none.such")
        found = [gateway._call(call(name, name)).read_only for name in names]
        self.assertEqual(found, [True, True, True, False, False])

    async def test_a_tool_that_names_no_permission_and_no_words_is_found_and_called(self) -> None:
        """What may be called can be found: by its name, by a phrase, with a question mark, whatever the grants are."""
        self.tool("order_status", permission="public", keywords=None, description="查询订单状态")
        for number, query in enumerate(("order_status", "订单状态", "status?")):
            for grants in ((), {"other"}):
                gateway = self.gateway(grants=grants)
                gateway.ask("?")
                await self.play(gateway, search(f"s{number}", query))
                (result,) = await self.play(gateway, call("c", "order_status"))
                self.assertEqual(result.content, "order_status A")

    async def test_names_are_as_providers_take_them_and_lead_back(self) -> None:
        """Whatever a registered name looks like, its tool is offered, called and limited under one that fits."""
        names = ["orders.get", "orders_get", "orders/get", "查询订单", "x" * 70 + "1", "x" * 70 + "2", "a b"]
        for name in names:
            self.tool(name, keywords=("all",), permission="public")
        self.budget = ResultBudget(ResultStore(self.folder / "results"), tool_limits={"orders.get": 12_345})
        gateway = self.gateway(definition_bytes=100_000)
        gateway.ask("?")
        (found,) = await self.play(gateway, search("c", "all", limit=20))
        offered = [one["name"] for one in json.loads(found.content)["loaded"]]
        self.assertTrue(all(map(fits, offered)), offered)
        self.assertEqual((len(set(offered)), gateway.loaded), (len(names), sorted(names)))
        await self.play(gateway, *(call(f"call{number}", name) for number, name in enumerate(offered)))
        self.assertEqual(sorted(self.calls), sorted(f"{name} A" for name in names))
        self.assertEqual(self.budget.threshold("orders_get"), 12_345)
        self.send(gateway)
        sent = {block["name"] for message in gateway.transcript for block in message["content"] if "name" in block}
        self.assertTrue(all(map(fits, sent)), sent)

    async def test_a_name_is_mapped_by_what_was_loaded_alone(self) -> None:
        """A tool that this user may not see has no part in it; the registered name of a loaded tool is understood."""
        self.tool("orders_get", permission="secret")
        self.tool("orders.get")
        gateway = await self.ready("orders")
        results = await self.play(gateway, call("a", "orders.get"), call("b", "orders_get"), call("c", "orders/get"))
        self.assertEqual([result.code for result in results], [None, None, "unknown_tool"])
        self.assertEqual([result.name for result in results], ["orders_get"] * 3)
        self.assertEqual(self.calls, ["orders.get A"] * 2)

    async def test_the_request_has_a_form_for_each_provider(self) -> None:
        """The tools that are always there, and those that were loaded, in the two common shapes."""
        self.tool("orders.get")
        gateway = await self.ready("orders")
        request = gateway.request()
        flat = request.tools_for("input_schema")
        self.assertEqual([one["name"] for one in flat], [SEARCH_TOOL, READ_TOOL, "orders_get"])
        self.assertEqual({tuple(sorted(one)) for one in flat}, {("description", "input_schema", "name")})
        self.assertEqual(flat[2]["input_schema"], SCHEMA)
        nested = request.tools_for("function", loaded=False)
        self.assertEqual([one["function"]["name"] for one in nested], [SEARCH_TOOL, READ_TOOL])
        self.assertEqual({one["type"] for one in nested}, {"function"})
        self.assertEqual(nested[0]["function"]["parameters"], flat[0]["input_schema"])
        with self.assertRaises(ValueError):
            request.tools_for("other")  # type: ignore[arg-type]
        request.loaded[0]["parameters"].clear()
        self.assertEqual(gateway.request().tools_for("input_schema")[2]["input_schema"], SCHEMA)

    async def test_messages_have_the_two_forms_of_providers(self) -> None:
        """An answer with `tool_calls` runs as its blocks would, and the next request can be sent in that form.

        Claims: C8-074.
        """
        self.tool("orders.get")
        gateway = await self.ready("orders")
        function = {"name": "orders_get", "arguments": '{"order_id": "A"}'}
        calls: Any = [{"id": "a", "type": "function", "function": function}, {"id": "b", "type": "function"}, None]
        results = await self.play(gateway, {"role": "assistant", "content": "Wait.", "tool_calls": calls})
        self.assertEqual([one.code for one in results], [None, "unknown_tool", "unknown_tool"])
        request = gateway.request()
        self.assertEqual(problems_of(request.messages), [])
        sent = request.messages_for("function")
        roles = ["user", "assistant", "tool", "assistant", "tool", "tool", "tool"]
        self.assertEqual([one["role"] for one in sent], roles)
        self.assertEqual((sent[1]["content"], sent[3]["content"]), (None, "Wait."))
        made = {"id": "a", "type": "function", "function": {**function, "arguments": '{"order_id":"A"}'}}
        self.assertEqual(sent[3]["tool_calls"][0], made)
        self.assertEqual(sent[4], {"role": "tool", "tool_call_id": "a", "content": "orders.get A"})
        self.assertEqual(request.messages_for("input_schema"), request.messages)
        await self.play(gateway, {"type": "thinking", "thinking": "hm"}, {"role": "assistant", "content": "Done."})
        self.assertEqual(messages_for(gateway.transcript, "function")[-1], {"role": "assistant", "content": "Done."})
        self.assertEqual(blocks_of({"content": None, "tool_calls": 3}), [])
        with self.assertRaises(ValueError):
            request.messages_for("other")  # type: ignore[arg-type]

    async def test_the_two_tools_may_be_called_otherwise(self) -> None:
        """By names that fit and that no registered tool has, so that none is hidden behind another."""
        self.tool("orders.get")
        self.tool("find_it")
        gateway = self.gateway(search_tool="find", read_tool="read")
        gateway.ask("?")
        self.assertEqual([one["name"] for one in gateway.request().tools], ["find", "read"])
        await self.play(gateway, call("a", "find", {"query": "orders"}))
        self.assertEqual(gateway.loaded, ["orders.get"])
        (result,) = await self.play(gateway, call("b", "find_it"))
        self.assertIn("Find it with find.", result.content)
        for options in (
            {"search_tool": "a.b"},
            {"read_tool": SEARCH_TOOL},
            {"search_tool": "find_it"},
            {"read_tool": ""},
        ):
            with self.subTest(options=options), self.assertRaisesRegex(GatewayError, "^bad_input$"):
                self.gateway(**options)

    async def test_what_the_grants_do_not_show_is_not_found(self) -> None:
        """A search shows nothing of a tool that this user may not see."""
        self.tool("orders.get")
        gateway = self.gateway(grants=())
        gateway.ask("Is A paid?")
        (result,) = await self.play(gateway, search("c1", "orders"))
        self.assertEqual((json.loads(result.content)["loaded"], gateway.loaded), ([], []))

    async def test_permission_is_asked_for_when_the_call_runs(self) -> None:
        """Grants that were taken away after the tool was loaded give `forbidden` and no call."""
        grants = set(GRANTS)
        self.tool("orders.get")
        gateway = await self.ready("orders", grants=lambda: grants)
        grants.clear()
        (result,) = await self.play(gateway, call("c1"))
        self.assertEqual((result.code, self.calls), ("forbidden", []))

    async def test_a_definition_that_changed_is_not_run(self) -> None:
        """The model has another contract in mind; after a new search it is fine again."""
        self.tool("orders.get")
        gateway = await self.ready("orders")
        spec = self.registry.get("orders.get")
        assert spec is not None
        self.registry.replace(replace(spec, version="2"))
        (result,) = await self.play(gateway, call("c1"))
        self.assertEqual((result.code, self.calls), ("forbidden", []))
        self.send(gateway)
        _, again = await self.play(gateway, search("c2", "orders"), call("c3"))
        self.assertEqual((again.code, self.calls), (None, ["orders.get A"]))

    async def test_a_write_that_makes_no_business_key_is_refused_at_the_start(self) -> None:
        """A model gives no keys: it could find the tool and never call it. One that comes later is not called.

        Claims: I4-097, I4-103.
        """
        for effect in ("reversible_write", "irreversible_write"):
            self.tool(f"notes.{effect}", effect=effect, idempotency_key=None)
            with self.assertRaisesRegex(GatewayError, "^bad_input$"):
                self.gateway()
            self.registry.remove(f"notes.{effect}")
        gateway = self.gateway(approve=True)
        self.tool("notes.save", effect="irreversible_write", idempotency_key=None)
        gateway.ask("Do it.")
        _, result = await self.play(gateway, search("s", "notes"), call("c1", "notes.save"))
        self.assertEqual((result.code, self.calls), ("tool_failure", []))
        self.send(gateway)

    async def test_an_irreversible_write_asks_somebody(self) -> None:
        """Without an approver it is not made; with one it is made once."""
        self.tool("mails.send", effect="irreversible_write")
        gateway = await self.ready("mails")
        (refused,) = await self.play(gateway, call("c1", "mails.send"))
        self.assertEqual((refused.code, self.calls), ("approval_required", []))
        self.sent = []
        asked: list[str] = []

        def approve(request: ApprovalRequest) -> bool:
            asked.append(request.tool)
            return True

        other = await self.ready("mails", approve=approve)
        (made,) = await self.play(other, call("c1b", "mails.send"))
        self.assertEqual((made.code, asked, self.calls), (None, ["mails.send"], ["mails.send A"]))

    async def test_a_task_without_time_runs_nothing(self) -> None:
        """The time that the whole task has left reaches the registry."""
        self.tool("orders.get")
        gateway = await self.ready("orders", remaining=lambda: 0.0)
        (result,) = await self.play(gateway, call("c1"))
        self.assertEqual((result.code, self.calls), ("transient_failure", []))

    async def test_ten_safe_calls_run_at_once(self) -> None:
        """What is not said about the limit means ten; the eleventh waits."""
        self.waiting("orders.get", concurrency_safe=True)
        gateway = await self.ready("orders")
        seen: list[int] = []
        calls = [call(f"c{number}", arguments={"order_id": "X"}) for number in range(11)]
        await self.play(gateway, *calls, lambda: seen.append(len(self.calls)), self.open_doors)
        self.assertEqual((seen, len(self.calls)), ([10], 11))

    async def test_a_search_loads_what_fits_best_first(self) -> None:
        """No definition is cut. What did not fit is named, and is found by its name."""
        for number in range(3):
            self.tool(f"orders.get{number}", description="x" * 1000)
        gateway = self.gateway(definition_bytes=2000)
        gateway.ask("?")
        (answer,) = await self.play(gateway, search("c1", "orders"))
        found = json.loads(answer.content)
        self.assertEqual([one["name"] for one in found["loaded"]], ["orders_get0"])
        self.assertEqual([one["name"] for one in found["left_out"]], ["orders.get1", "orders.get2"])
        self.assertEqual((found["next"], set(found)), (NEXT_STEPS["left_out"], {"loaded", "left_out", "next"}))
        await self.play(gateway, search("c2", "orders", limit=1))
        self.assertEqual(gateway.loaded, ["orders.get0"])

    async def test_a_large_definition_hides_no_other(self) -> None:
        """The one that fits alone nowhere is named apart; what stands behind it is loaded."""
        self.tool("orders.huge", description="x" * 3000, keywords=("orders", "best"))
        self.tool("orders.small")
        gateway = self.gateway(definition_bytes=2000)
        gateway.ask("?")
        (answer,) = await self.play(gateway, search("c1", "orders best"))
        found = json.loads(answer.content)
        self.assertEqual(gateway.loaded, ["orders.small"])
        self.assertEqual([one["name"] for one in found["too_large"]], ["orders.huge"])
        self.assertEqual(found["next"], NEXT_STEPS["too_large"])

    async def test_a_search_that_finds_nothing_says_what_to_do(self) -> None:
        """It is no error, and it is no end."""
        gateway = self.gateway()
        gateway.ask("?")
        (answer,) = await self.play(gateway, search("c1", "nothing"))
        self.assertEqual(json.loads(answer.content), {"loaded": [], "next": NEXT_STEPS["nothing"]})

    async def test_a_definition_is_sent_as_it_is_registered(self) -> None:
        """Neither the redaction of secrets nor a limit touches a contract."""
        self.tool("orders.get", description="Give token=abcdefghijkl as it is. " + "x" * 60_000)
        gateway = self.gateway(definition_bytes=100_000)
        gateway.ask("?")
        await self.play(gateway, search("c1", "orders"))
        request = self.send(gateway)
        self.assertIn("token=abcdefghijkl", request.messages[-1]["content"][0]["content"])
        self.assertGreater(len(request.messages[-1]["content"][0]["content"]), 60_000)


class WhatTheModelReads(GatewayTestCase):
    """Codes, fixed texts, previews; never a value and never an exception."""

    async def test_a_failure_is_a_code_and_a_fixed_text(self) -> None:
        """The text of an exception is in no message. Claims: T6-024, T6-043."""

        async def broken(order_id: str) -> str:
            raise RuntimeError("hunter2")

        self.tool("orders.get", broken)
        gateway = await self.ready("orders")
        with self.assertLogs("chapter10.companions.tools.registry"):
            failed, wrong = await self.play(
                gateway, call("c1"), call("c2", arguments={"order_id": "A", "colour": "red wine"})
            )
        self.assertEqual((failed.code, wrong.code), ("tool_failure", "invalid_arguments"))
        self.assertIn('"retryable":false', failed.content)
        self.assertIn("/colour", wrong.content)
        self.assertNotIn("hunter2", str(gateway.transcript))
        self.assertNotIn("red wine", wrong.content)
        self.assertTrue(all(block["is_error"] for block in gateway.transcript[-1]["content"]))

    def test_data_that_was_cut_says_so(self) -> None:
        """The original length is in what the model reads. Claims: T6-041."""
        cut = answer_of({"ok": True, "data": "abc", "truncated": True, "original_length": 9})
        self.assertEqual(cut, "abc\n[Cut: 3 of 9 characters.]")
        self.assertEqual(answer_of({"ok": True, "data": "abc"}), "abc")

    def test_only_the_tool_s_own_failure_is_not_local(self) -> None:
        """A refusal and a timeout end no other call, not even those of a shell. Claims: C8-028."""
        for code in ("forbidden", "invalid_arguments", "approval_required", "transient_failure", "outcome_unknown"):
            failure = answer_of({"ok": False, "error": code, "retryable": False})
            self.assertIsInstance(failure, CallFailure)
            self.assertTrue(failure.local, code)
        self.assertFalse(answer_of({"ok": False, "error": "tool_failure", "retryable": False}).local)

    async def test_a_command_that_fails_ends_its_siblings_and_not_the_query(self) -> None:
        """The name decides which tools are commands. Claims: C8-024, C8-030, C8-031."""

        async def broken(order_id: str) -> str:
            raise RuntimeError

        self.tool("shell.run", broken, "reversible_write")
        self.tool("notes.save", effect="reversible_write")
        for shell, code in (({"shell.run"}, "sibling_error"), (set(), None)):
            self.sent = []
            gateway = await self.ready("shell", "notes", shell=shell)
            shell.clear()  # whoever made the gateway may go on with what he gave
            _, second = await self.play(gateway, call(f"a{code}", "shell.run"), call(f"b{code}", "notes.save"))
            self.assertEqual(second.code, code)
            self.assertFalse(gateway.finished)
            self.send(gateway)
            self.budget = ResultBudget(ResultStore(self.folder / "results"))

    async def test_a_command_that_is_not_loaded_ends_nobody(self) -> None:
        """It did not run, so nothing of it can have failed."""
        self.tool("notes.save", effect="reversible_write")
        gateway = await self.ready("notes", shell={"shell.run"})
        first, second = await self.play(gateway, call("a", "shell.run"), call("b", "notes.save"))
        self.assertEqual((first.code, second.code), ("unknown_tool", None))

    async def test_an_empty_result_is_visible(self) -> None:
        """A silent tool says that it was silent. Claims: C8-069, C8-074."""

        async def silent(order_id: str) -> None:
            return None

        self.tool("files.move", silent, "reversible_write")
        gateway = await self.ready("files")
        (result,) = await self.play(gateway, call("c1", "files.move"))
        self.assertEqual(result.content, "(files_move completed with no output)")

    async def test_a_large_result_is_stored_and_read_back_whole(self) -> None:
        """The preview names a path; the tool that reads it is never replaced itself. Claims: C8-047, C8-049, C8-077."""

        async def large(order_id: str) -> str:
            return "0123456789" * 9_000

        self.tool("logs.get", large)
        gateway = await self.ready("logs")
        (result,) = await self.play(gateway, call("c1", "logs.get"))
        self.assertLessEqual(len(result.content), 2000)
        path = self.budget.state.results["c1"].path
        self.send(gateway)
        (whole,) = await self.play(gateway, call("c2", READ_TOOL, {"path": path}))
        self.assertEqual(whole.content, "0123456789" * 9_000)
        request = self.send(gateway)
        self.assertEqual(request.messages[-1]["content"][0]["content"], whole.content)
        self.assertTrue(request.report.over_limit)  # exempt, and reported

    async def test_the_tools_that_are_always_there_take_this(self) -> None:
        """Their parameters stand in the head of every request; what goes beyond them is not run."""
        gateway = self.gateway()
        gateway.ask("?")
        expected: list[tuple[dict[str, Any], list[str]]] = [
            (
                {
                    "query": {"type": "string", "minLength": 1, "maxLength": 1000},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 20},
                },
                ["query"],
            ),
            (
                {
                    "path": {"type": "string", "maxLength": 200},
                    "start": {"type": "integer", "minimum": 0},
                    "max_chars": {"type": "integer", "minimum": 1, "maximum": 100_000},
                },
                ["path"],
            ),
        ]
        self.assertEqual(
            [tool["parameters"] for tool in gateway.request().tools],
            [
                {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
                for properties, required in expected
            ],
        )
        for spec, seconds, is_safe in ((gateway._search_spec(), 10, False), (gateway._read_spec(), 60, True)):
            self.assertEqual((spec.max_attempts, spec.timeout_seconds, spec.concurrency_safe), (1, seconds, is_safe))
        with self.assertLogs("chapter10.companions.tools.registry"):
            results = await self.play(
                gateway,
                call("a", SEARCH_TOOL, {"query": "x", "colour": "red"}),
                call("b", READ_TOOL, {"path": "x", "colour": "red"}),
            )
        self.assertEqual([result.code for result in results], ["invalid_arguments"] * 2)
        self.assertTrue(all("/colour" in result.content for result in results))

    async def test_a_path_that_was_never_stored_is_not_read(self) -> None:
        """The model names paths; only those of the store mean something."""
        gateway = self.gateway()
        gateway.ask("?")
        with self.assertLogs("chapter10.companions.tools.registry"):
            (result,) = await self.play(gateway, call("c1", READ_TOOL, {"path": "../secret.txt"}))
        self.assertEqual(result.code, "tool_failure")
        self.assertEqual(json.loads(result.content)["text"], NEXT_STEPS["no_result"])

    async def test_results_over_the_message_limit_are_replaced_before_they_are_sent(self) -> None:
        """The transcript keeps them whole; the request has previews, and the next one the same. Claims: C8-080."""

        async def large(order_id: str) -> str:
            return order_id * 20_000

        self.tool("logs.get", large, concurrency_safe=True)
        gateway = await self.ready("logs")
        await self.play(gateway, *(call(letter, "logs.get", {"order_id": letter}) for letter in "ABC"))
        request = self.send(gateway)
        self.assertEqual([len(block["content"]) for block in request.messages[-1]["content"]], [2000, 20_000, 20_000])
        self.assertEqual(len(gateway.transcript[-1]["content"][0]["content"]), 20_000)
        await self.play(gateway, text("I see."))
        gateway.ask("And?")
        self.send(gateway)


class HowATurnEnds(GatewayTestCase):
    """At every exit the transcript is valid, and nothing starts after a stop. Scenarios 1, 2, 6 and 9."""

    async def interrupted(self) -> Gateway:
        """One is answered, one writes, two wait when the user stops."""
        self.tool("orders.get")
        self.waiting("notes.save", "reversible_write")
        gateway = await self.ready("orders", "notes")
        await self.play(
            gateway,
            call("a"),
            call("b", "notes.save"),
            call("c", "notes.save"),
            call("d"),
            gateway.interrupt,
            call("e"),
        )
        return gateway

    async def test_an_interruption_answers_every_call(self) -> None:
        """The real result, `outcome unknown` for the write, `not started` for what waited; nothing twice.

        Claims: C8-026, C8-032, C8-074.
        """
        gateway = await self.interrupted()
        self.valid(gateway)
        contents = [block["content"] for block in gateway.transcript[-1]["content"]]
        self.assertEqual(len(contents), 4)
        self.assertEqual(contents[0], "orders.get A")
        self.assertIn("outcome is unknown", contents[1])
        self.assertTrue(all("not started" in content for content in contents[2:]))
        self.assertEqual(self.calls, ["orders.get A", "notes.save A"])

    async def test_what_waits_for_somebody_or_for_a_place_has_not_started(self) -> None:
        """It was never called; only a call whose handler was called is said to have started."""
        self.registry = ToolRegistry(grace_seconds=0.05, max_running=1)
        self.waiting("orders.get", concurrency_safe=True)
        self.waiting("mail.send", "irreversible_write")

        async def approve(request: ApprovalRequest) -> bool:
            return await self.door("nobody").wait()

        gateway = await self.ready("orders", "mail", approve=approve)
        for calls, started in (
            ([call("runs"), call("queues")], [True, False]),
            ([call("asks", "mail.send")], [False]),
        ):
            results = await self.play(gateway, *calls, gateway.interrupt)
            self.assertEqual([result.started for result in results], started)
            self.assertEqual(["not started" in result.content for result in results], [not one for one in started])
            gateway.ask("Go on.")

    async def test_after_an_interruption_the_user_asks_before_anything_is_sent(self) -> None:
        """No request and no turn; then the results and the new question are one message, results first."""
        gateway = await self.interrupted()
        self.assertTrue(gateway.finished)
        for refused in (gateway.request, lambda: gateway.turn(model())):
            with self.assertRaisesRegex(GatewayError, "^interrupted$"):
                refused()
        self.assertFalse(gateway.interrupt())
        gateway.ask("Go on.")
        request = self.send(gateway)
        kinds = [block["type"] for block in request.messages[-1]["content"]]
        self.assertEqual(kinds, ["tool_result"] * 4 + ["text"])

    async def test_a_stream_that_breaks_keeps_the_calls_that_came(self) -> None:
        """Their answers stand in the transcript and the error comes out at the end of the turn.

        A cancel that nobody here asked for does not look like a complete answer either.
        """
        self.tool("orders.get")
        self.waiting("notes.save", "reversible_write")
        for number, broken in enumerate((ConnectionResetError, asyncio.CancelledError)):
            self.sent = []
            self.budget = ResultBudget(ResultStore(self.folder / str(number)))
            gateway = await self.ready("orders", "notes")
            fail = mock.Mock(side_effect=broken)
            task = asyncio.create_task(self.play(gateway, call("a"), call("b", "notes.save"), fail))
            for _ in range(5):
                await settle()
            self.open_doors()
            self.door("A").set()  # too late: the call was given up when the stream ended
            with self.assertRaises((ConnectionResetError, GatewayError)) as caught:
                await task
            if isinstance(caught.exception, GatewayError):
                self.assertEqual(caught.exception.code, "stream_cancelled")
            self.assertEqual(isinstance(caught.exception, GatewayError), broken is asyncio.CancelledError)
            self.doors.clear()
            self.valid(gateway)
            first, second = gateway.transcript[-1]["content"]
            self.assertEqual(first["content"], "orders.get A")
            self.assertIn("given up", second["content"])
            self.assertFalse(gateway.finished)
            self.send(gateway)

    async def test_a_stream_that_breaks_without_a_call_leaves_no_trace(self) -> None:
        """Half a sentence is not kept; the same request can be sent again."""
        gateway = self.gateway()
        gateway.ask("?")
        before = self.send(gateway).messages
        fail = mock.Mock(side_effect=ConnectionResetError)
        for script in ((text("It is"), fail), (fail,)):
            with self.assertRaises(ConnectionResetError):
                await self.play(gateway, *script)
            self.assertFalse(gateway.finished)
            self.assertEqual(self.send(gateway).messages, before)

    async def test_an_error_of_the_consumer_comes_out_and_the_transcript_is_complete(self) -> None:
        """What it raises is not covered by anything, not even by an error of the stream that comes first."""
        self.tool("orders.get")
        for number, stream_fails in enumerate((False, True)):
            self.sent = []
            self.budget = ResultBudget(ResultStore(self.folder / str(number)))
            gateway = await self.ready("orders")
            fail = mock.Mock(side_effect=ConnectionResetError)
            with self.assertRaises(ZeroDivisionError):
                async with gateway.turn(model(call("a"), fail if stream_fails else call("b"))) as turn:
                    async for _ in turn:
                        if stream_fails:
                            await settle()
                        raise ZeroDivisionError
            self.valid(gateway)
            self.assertEqual(gateway.transcript[-1]["content"][0]["tool_use_id"], "a")

    async def test_half_a_character_never_gets_into_a_request(self) -> None:
        """The user's text is refused, the model's is repaired, joined where two halves belong together."""
        gateway = self.gateway()
        with self.assertRaises(GatewayError) as caught:
            gateway.ask("half \ud83d")
        self.assertEqual((caught.exception.code, gateway.transcript), ("bad_input", []))
        gateway.ask("?")
        self.send(gateway)
        await self.play(gateway, text("a \ud83d b \ud83d\ude00"), search("c1", "orders"))

        request = self.send(gateway)
        self.assertEqual(request.messages[1]["content"][0], text("a \ufffd b \U0001f600"))

    async def test_a_stream_that_does_not_stop_changes_nothing_afterwards(self) -> None:
        """It ignores its cancel for the whole grace and then goes on: the transcript stays as the turn left it."""
        self.tool("orders.get")
        gateway = await self.ready("orders")
        release = asyncio.Event()

        async def stubborn() -> AsyncIterator[Block]:
            yield text("I look.")
            yield call("a")
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    pass
            yield text("And then")
            yield call("b")

        with mock.patch("chapter10.companions.tools.gateway._STREAM_GRACE_SECONDS", 0.001):
            async with gateway.turn(stubborn()):
                await settle()
                gateway.interrupt()
        left = gateway.transcript
        self.valid(gateway)
        release.set()
        await settle()

        self.assertEqual(gateway.transcript, left)
        gateway.ask("Go on.")
        self.send(gateway)

    async def test_a_stream_that_does_not_stop_holds_no_consumer(self) -> None:
        """The iteration ends at the interruption, though the stream ignores its cancel."""
        gateway = await self.ready("orders")
        release = asyncio.Event()
        over: list[bool] = []

        async def stubborn() -> AsyncIterator[Block]:
            yield text("I look.")
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    pass

        async def consume() -> None:
            async with gateway.turn(stubborn()) as turn:
                async for _ in turn:
                    pass
                over.append(release.is_set())
                release.set()

        task = asyncio.create_task(consume())
        await settle()
        gateway.interrupt()
        await settle()
        release.set()
        await task
        self.assertEqual(over, [False])

    async def test_a_long_query_does_not_collect_its_turns(self) -> None:
        """Each turn leaves the tree of cancels when it ends."""
        self.tool("orders.get")
        gateway = await self.ready("orders")
        await self.play(gateway, call("a"))
        self.assertEqual(gateway._query._children, {})

    async def test_a_consumer_that_leaves_stops_what_runs(self) -> None:
        """A break is an interruption: the rest is answered, the model is not read on."""
        self.waiting("orders.get", concurrency_safe=True)
        gateway = await self.ready("orders")
        written: list[str] = []
        script = model(
            call("a"),
            call("b", arguments={"order_id": "B"}),
            lambda: self.door("A").set(),
            lambda: written.append("no"),
        )
        async with gateway.turn(script) as turn:
            async for _ in turn:
                break
        self.valid(gateway)
        self.assertEqual([result.code for result in turn.results], [None, "user_interrupt"])
        self.assertEqual((gateway.finished, written), (True, []))
        updates: Any = turn.__aiter__()
        self.assertIsNone(updates.ag_frame)  # closed, and not left to the garbage collector
        self.assertEqual([task for task in asyncio.all_tasks() if task is not asyncio.current_task()], [])

    async def test_leaving_while_a_tool_runs_is_an_interruption_too(self) -> None:
        """The model has written everything, the tool has not ended: nobody goes on from here by itself."""
        self.waiting("notes.save", "reversible_write")
        gateway = await self.ready("notes")
        async with gateway.turn(model(call("a", "notes.save"))):
            for _ in range(4):
                await settle()
        self.valid(gateway)
        self.assertEqual(gateway.transcript[-1]["content"][0]["is_error"], True)
        with self.assertRaisesRegex(GatewayError, "^interrupted$"):
            gateway.request()

    async def test_a_cancel_of_the_consumer_comes_out_and_the_transcript_is_complete(self) -> None:
        """The cancel is raised after every call has its answer. Claims: C8-032."""
        self.waiting("notes.save", "reversible_write")
        gateway = await self.ready("notes")
        task = asyncio.create_task(self.play(gateway, call("a", "notes.save"), call("b", "notes.save")))
        while len(gateway._call_ids) < 3:
            await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.valid(gateway)
        self.assertEqual(len(gateway.transcript[-1]["content"]), 2)
        self.assertTrue(gateway.finished)

    async def test_a_turn_that_nobody_reads_is_complete_too(self) -> None:
        """Entered and left at once: nothing was said, and the user has to ask again."""
        gateway = await self.ready("orders")
        async with gateway.turn(model(call("a"))):
            pass
        self.valid(gateway)
        self.assertTrue(gateway.finished)

    async def test_an_answer_with_nothing_in_it_ends_the_query(self) -> None:
        """A loop over `finished` ends, and nothing empty is recorded."""
        gateway = self.gateway()
        gateway.ask("?")
        await self.play(gateway, text("  "))
        self.assertTrue(gateway.finished)
        self.assertEqual(len(gateway.transcript), 1)
        gateway.ask("Hello?")
        self.assertFalse(gateway.finished)
        self.send(gateway)

    async def test_arguments_that_are_no_object_are_noted_as_an_empty_one(self) -> None:
        """A cut-off call is answered without being run, and the block that is sent has an object."""
        self.tool("orders.get")
        gateway = await self.ready("orders")
        await self.play(
            gateway, {**call("a"), "input": '{"order_id": "A'}, call("b", cut_off=True), {**call("c"), "input": "[]"}
        )
        self.valid(gateway)
        inputs = [block["input"] for block in gateway.transcript[-2]["content"]]
        self.assertEqual(inputs, [{}, {"order_id": "A"}, {}])
        self.assertEqual(self.calls, [])
        self.assertIn("cut off", gateway.transcript[-1]["content"][1]["content"])

    async def test_one_bad_block_ends_nothing(self) -> None:
        """It gets its answer if it is a call; the good calls run, and what is sent is valid."""
        self.tool("orders.get")
        unknown = "unknown_tool"
        cases: list[tuple[Any, str | None]] = [
            (None, None), ("x", None), ({}, None), ({"type": 7}, None), ({"type": ""}, None),
            (text("x") | {"text": 1}, None),
            ({"type": "tool_result", "tool_use_id": "a", "content": "mine"}, None), ({"type": "odd", "x": b"y"}, None),
            (call("s"), ""), (call("good"), ""), (call(""), ""), (call("x" * 201), ""), (call("\ud800"), ""),
            ({"type": "tool_use", "name": "orders.get", "input": {"order_id": "A"}}, ""), (call(None), ""),  # type: ignore[arg-type]
            (call("n", ""), unknown), (call("n", "x" * 201), unknown), (call("n", None), unknown),  # type: ignore[arg-type]
            (call("n", "a\0b"), unknown), ({"type": "tool_use"}, unknown),
            (call("n", cut_off="yes"), "invalid_arguments"),
            ({**call("n"), "odd": b"y"}, ""),
        ]  # fmt: skip
        for wrong, code in cases:
            with self.subTest(wrong=wrong):
                self.sent, self.calls = [], []
                self.budget = ResultBudget(ResultStore(self.folder / "results"))
                gateway = await self.ready("orders")
                results = await self.play(gateway, call("good"), wrong, call("last"))
                codes = [result.code for result in results]
                self.assertEqual(codes, [None, None] if code is None else [None, code or None, None])
                self.assertEqual(len(self.calls), 3 if code == "" else 2)
                self.send(gateway)

    async def test_a_model_that_counts_from_nothing_in_every_answer_is_understood(self) -> None:
        """An id that was used before, in this answer or an earlier one, becomes one that was not."""
        self.tool("orders.get")
        gateway = await self.ready("orders")
        for _ in range(3):
            await self.play(gateway, call("call_0"), call("call_1"), call("call_0"))
            self.send(gateway)
        ids = [block["id"] for message in gateway.transcript for block in message["content"] if "id" in block]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len(self.calls), 9)
        self.assertEqual(ids[1:5], ["call_0", "call_1", "call_0_2", "call_0_3"])

    async def test_a_name_that_no_tool_can_have_is_no_tool_of_the_name_that_is_noted(self) -> None:
        """What stands in the transcript for it is a name that a tool may have."""
        self.tool(NO_NAME)
        gateway = await self.ready(NO_NAME)
        (result,) = await self.play(gateway, call("a", ""))
        self.assertEqual((result.code, self.calls), ("unknown_tool", []))
        await self.play(gateway, call("b", NO_NAME))
        self.assertEqual(len(self.calls), 1)

    async def test_blocks_of_other_kinds_are_kept_as_they_came(self) -> None:
        """Thoughts with their signature stand where they stood, and what comes with a text or a call stays there."""
        self.tool("orders.get")
        gateway = await self.ready("orders")
        thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
        quoted = {**text("It is."), "citations": [{"url": "x"}]}
        signed = {**call("a", "orders_get"), "thought_signature": "t"}
        await self.play(gateway, thought, quoted, signed)
        self.assertEqual(gateway.transcript[-2]["content"], [thought, quoted, signed])
        self.send(gateway)
        await self.play(gateway, thought)
        self.assertTrue(gateway.finished)

    async def test_random_conversations_are_valid_at_every_exit(self) -> None:
        """Random answers, cues, failures and exits; each request continues the one before.

        Claims: C8-032, C8-058, C8-060, C8-064, C8-074, C8-078.
        """
        asyncio.get_running_loop().set_debug(False)  # it would keep the stack of each of many callbacks
        for seed in range(15):
            with self.subTest(seed=seed):
                await self._random_conversation(random.Random(seed), seed)

    async def _random_conversation(self, chance: random.Random, seed: int) -> None:
        self.registry, self.doors, self.sent = ToolRegistry(grace_seconds=0.05), {}, []
        store = ResultStore(self.folder / str(seed))
        self.budget = ResultBudget(store, tool_limits={"logs.get": 3_000}, message_limit=8_000)

        async def large(order_id: str) -> str:
            return order_id * chance.choice((0, 500, 2500, 5000))

        async def broken(order_id: str) -> str:
            raise chance.choice((RuntimeError, PermissionError, TimeoutError))

        self.tool("orders.get", concurrency_safe=True)
        self.tool("logs.get", large, concurrency_safe=True)
        self.tool("shell.run", broken, "reversible_write")
        self.waiting("notes.save", "reversible_write")
        gateway = await self.ready("orders", "logs", "shell", "notes", shell={"shell.run"})
        names = ("orders.get", "logs.get", "shell.run", "notes.save", "none.such", SEARCH_TOOL)
        for turn in range(6):
            script: list[Block | Callable[[], Any]] = []
            for place in range(chance.randrange(6)):
                name = chance.choice(names)
                script.append(call(f"{turn}.{place}", name, {"order_id": chance.choice("XY")}))
                if chance.random() < 0.3:
                    script.append(self.open_doors)
            exit_by = chance.choice(("end", "end", "interrupt", "break", "error"))
            if exit_by == "interrupt":
                script.insert(chance.randrange(len(script) + 1), gateway.interrupt)
            if exit_by == "error":
                script.insert(chance.randrange(len(script) + 1), lambda: 1 / 0)
            script.append(self.open_doors)
            try:
                async with gateway.turn(model(*script)) as running:
                    async for _ in running:
                        if exit_by == "break" and chance.random() < 0.5:
                            break
            except ZeroDivisionError:
                pass
            self.valid(gateway)
            if gateway.finished:
                gateway.ask("Go on.")
            self.send(gateway)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        self.assertEqual(left, [])


class TheDoor(GatewayTestCase):
    """What does not fit is refused with a code, and nothing is changed."""

    async def test_a_turn_excludes_everything_else(self) -> None:
        """While the model answers nobody asks, sends or starts another turn."""
        gateway = await self.ready("orders")
        async with gateway.turn(model()) as turn:
            for refused in (gateway.request, lambda: gateway.ask("x"), lambda: gateway.turn(model())):
                with self.assertRaisesRegex(GatewayError, "^turn_open$"):
                    refused()
            async for _ in turn:
                pass

    async def test_a_turn_that_was_prepared_before_an_interruption_does_not_begin(self) -> None:
        """The check is made again when it is entered."""
        gateway = await self.ready("orders")
        turn = gateway.turn(model(call("a")))
        gateway.interrupt()
        with self.assertRaisesRegex(GatewayError, "^interrupted$"):
            await turn.__aenter__()
        gateway.ask("Go on.")
        self.send(gateway)

    def test_a_tool_that_is_gone_between_two_looks_is_no_mistake(self) -> None:
        """Another thread may remove it after its name was read."""

        class Vanishing(ToolRegistry):
            def get(self, name: str) -> ToolSpec | None:
                return None

        self.registry = Vanishing()
        self.tool("orders.get")
        self.assertIsNone(self.registry.get("orders.get"))
        self.assertFalse(self.gateway().transcript)

    def test_nothing_is_sent_before_somebody_asks(self) -> None:
        """Nor is an empty question one."""
        gateway = self.gateway()
        with self.assertRaisesRegex(GatewayError, "^nothing_asked$"):
            gateway.request()
        for nothing in ("", " \n", None, 7):
            with self.assertRaisesRegex(GatewayError, "^bad_input$"):
                gateway.ask(nothing)  # type: ignore[arg-type]
        self.assertEqual(gateway.transcript, [])

    def test_one_name_is_no_collection_of_names(self) -> None:
        """`shell="bash"` would mean four tools of one letter."""
        with self.assertRaises(GatewayError):
            self.gateway(shell="bash")

    def test_a_conversation_has_an_end(self) -> None:
        """A question needs room for one message, a turn for two."""
        gateway = self.gateway()
        gateway.ask("?")
        message = gateway._transcript[0]
        self.assertEqual(MAX_MESSAGES, 100_000)
        gateway._transcript[:] = [message] * (MAX_MESSAGES - 2)
        gateway.turn(model())
        gateway._transcript[:] = [message] * (MAX_MESSAGES - 1)
        with self.assertRaisesRegex(GatewayError, "^conversation_full$"):
            gateway.turn(model())
        gateway.ask("?")
        with self.assertRaises(GatewayError):
            gateway.ask("?")

    async def test_what_is_handed_out_is_a_copy(self) -> None:
        """Transcript, tools and messages can be changed without any effect."""
        gateway = await self.ready("orders")
        gateway.transcript[0]["content"][0]["text"] = "changed"
        request = gateway.request()
        request.tools[0]["parameters"].clear()
        request.messages[0]["content"].clear()
        self.send(gateway)


class ProgressFromThreads(GatewayTestCase):
    """A handler in a thread reports through the loop."""

    async def test_progress_comes_before_its_result_and_in_order(self) -> None:
        """From a thread by way of the loop, and from a coroutine at once. Claims: C8-034, C8-035, C8-041."""

        def in_a_thread(order_id: str, context: CallContext) -> str:
            for step in range(3):
                context.progress(step)
            return "done"

        async def in_the_loop(order_id: str, context: CallContext) -> str:
            return in_a_thread(order_id, context)

        self.tool("orders.get", in_a_thread, context_argument="context")
        self.tool("orders.find", in_the_loop, context_argument="context")
        gateway = await self.ready("orders")
        for name in ("orders.get", "orders.find"):
            seen = []
            async with gateway.turn(model(call(name, name))) as turn:
                async for update in turn:
                    message = update.message
                    seen.append(message.data if isinstance(message, Progress) else message.content)
            self.assertEqual(seen, [0, 1, 2, "done"])
            self.send(gateway)

    async def test_a_thread_that_reports_to_a_busy_loop_keeps_the_newest(self) -> None:
        """Ten thousand reports while the loop does something else take the place of a hundred."""
        heard: list[int] = []
        progress = ThreadProgress(heard.append)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()

        def report() -> None:
            for number in range(10_000):
                progress(number)

        with mock.patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as wake:
            thread = threading.Thread(target=report)
            thread.start()
            thread.join()
        wake.assert_called_once()
        self.assertEqual(len(progress._waiting), KEEP_PROGRESS)
        await settle()
        self.assertEqual(heard, list(range(10_000 - KEEP_PROGRESS, 10_000)))
        heard.clear()
        later = threading.Thread(target=lambda: progress(7))
        later.start()
        later.join()
        await settle()
        self.assertEqual(heard, [7])

    def test_a_thread_that_reports_to_a_closed_loop_is_not_disturbed(self) -> None:
        """A handler that was left behind goes on to its end."""

        async def make() -> ThreadProgress:
            return ThreadProgress(lambda data: self.fail("nobody listens"))  # type: ignore[arg-type]

        progress = asyncio.run(make())
        went_on: list[bool] = []

        def report() -> None:
            progress("late")
            went_on.append(True)

        thread = threading.Thread(target=report)
        with mock.patch.object(threading, "excepthook"):  # what fails is said by the assertion
            thread.start()
            thread.join()
        self.assertEqual(went_on, [True])


class TheTranscript(unittest.TestCase):
    """The checker finds each fault that it is there for; a digest stands for each beginning."""

    good: ClassVar[list[dict[str, Any]]] = [
        {"role": "user", "content": [text("?")]},
        {"role": "assistant", "content": [text("I look."), call("a"), call("b")]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": [text("2")]},
                text("And?"),
            ],
        },
    ]

    def test_a_valid_transcript_has_no_problems(self) -> None:
        """Also an empty one, and one that ends with the model."""
        self.assertEqual(problems_of(self.good), [])
        self.assertEqual(problems_of([]), [])

    def test_each_fault_is_found(self) -> None:
        """What a provider would refuse is named, with its message. Claims: C8-032, C8-066, C8-074."""
        ask, answer, results = self.good
        first, second, words = results["content"]
        for fault, messages in {
            "its turn": [answer],
            "no content": [ask, {"role": "assistant", "content": []}],
            "not exactly the results": [ask, answer, {"role": "user", "content": [second, first]}],
            "calls without results": [ask, answer],
            "stands before a result": [ask, answer, {"role": "user", "content": [words, first, second]}],
            "an empty result": [ask, answer, {"role": "user", "content": [first, {**second, "content": " "}]}],
            "an empty text": [{"role": "user", "content": [text(" ")]}],
            "used before": [ask, {"role": "assistant", "content": [call("a"), call("a")]}],
            "no object": [ask, {"role": "assistant", "content": [{**call("a"), "input": "{}"}]}],
            "does not belong": [{"role": "user", "content": [call("a")]}],
        }.items():
            with self.subTest(fault=fault):
                self.assertTrue(any(fault in line for line in problems_of(messages)), problems_of(messages))
        odd: list[Any] = ["x", None, ["x"], {"role": [], "content": "hi"}, {"role": "user", "content": [None, []]}]
        for message in odd:
            self.assertTrue(problems_of([message]))
        broken = [ask, answer, {"role": "user", "content": [first, {**second, "tool_use_id": [], "content": [1]}]}]
        self.assertTrue(problems_of(broken))
        missing = [ask, answer, {"role": "user", "content": [first]}]
        self.assertTrue(problems_of(missing))
        self.assertTrue(problems_of([ask, answer, {"role": "user", "content": [first, first, second]}]))

    def test_what_is_in_a_message_decides_what_is_said_of_it(self) -> None:
        """Contents, ids and results of other kinds, each with the line that it deserves, or none."""

        def said(content: Any) -> list[str]:
            ask, answer = self.good[0], {"role": "assistant", "content": [call("a")]}
            result = {"type": "tool_result", "tool_use_id": "a", "content": content}
            return problems_of([ask, answer, {"role": "user", "content": [result]}])

        empty = ["message 2: an empty result"]
        picture = {"type": "image", "id": "p", "input": {}, "content": "x"}
        results: list[tuple[Any, list[str]]] = [
            ("", empty), (7, empty), (None, empty), ([], empty), ([7], empty), ([text(" ")], empty),
            ("x", []), ([text("x")], []), ([picture], []), ([text(" "), picture], []),
        ]  # fmt: skip
        for content, problems in results:
            with self.subTest(content=content):
                self.assertEqual(said(content), problems)
        contents: list[Any] = [7, "hi", {}, None, []]
        for content in contents:
            self.assertEqual(problems_of([{"role": "user", "content": content}]), ["message 0: no content"])
        wrong_ids: list[Any] = [None, 7, "", []]
        for call_id in wrong_ids:
            problems = problems_of([self.good[0], {"role": "assistant", "content": [call(call_id)]}])
            self.assertEqual(problems[0], "message 1: an id that is missing or was used before")
        result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
        line = "message 1: a block that does not belong there: tool_result"
        self.assertIn(line, problems_of([self.good[0], {"role": "assistant", "content": [result]}]))
        self.assertEqual(problems_of([self.good[0], {"role": "assistant", "content": [picture]}]), [])
        self.assertTrue(problems_of([{"role": "user", "content": [picture]}]))
        self.assertTrue(problems_of([self.good[0], {"role": "assistant", "content": [{"type": 7}]}]))

    def test_the_list_of_problems_is_bounded(self) -> None:
        """A broken transcript of any length gives a list that one can read."""
        self.assertEqual(MAX_PROBLEMS, 100)
        self.assertEqual(len(problems_of([{"role": "user", "content": []}] * 1000)), MAX_PROBLEMS)

    def test_a_digest_stands_for_each_beginning(self) -> None:
        """One for each block; a longer transcript begins with the digests of the shorter one. Claims: C8-058."""
        digests = prefix_digests(self.good)
        self.assertEqual(len(digests), 7)
        self.assertEqual(prefix_digests(self.good[:2]), digests[:4])
        self.assertNotEqual(prefix_digests(self.good, head=["tools"])[0], digests[0])

    def test_a_change_of_one_byte_is_seen_from_there_on(self) -> None:
        """What stands before it has the same digests."""
        changed = [
            self.good[0],
            {"role": "assistant", "content": [text("I look!"), call("a"), call("b")]},
            self.good[2],
        ]
        before, after = prefix_digests(self.good), prefix_digests(changed)
        self.assertEqual([one == other for one, other in zip(before, after, strict=True)], [True] + [False] * 6)

    def test_who_says_something_counts(self) -> None:
        """The same blocks under another role, or in two messages, are other bytes."""
        one = prefix_digests([{"role": "user", "content": [text("a"), text("b")]}])
        other = prefix_digests([{"role": "assistant", "content": [text("a"), text("b")]}])
        apart = prefix_digests([{"role": "user", "content": [text("a")]}, {"role": "user", "content": [text("b")]}])
        self.assertEqual(len({one[-1], other[-1], apart[-1]}), 3)


if __name__ == "__main__":
    unittest.main()
