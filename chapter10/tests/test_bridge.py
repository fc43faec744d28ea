"""What a server lists becomes tools of a registry: pages, refusals by name, prefixes, calls and their results."""

from __future__ import annotations

import logging
import unittest
from typing import Any
from unittest.mock import Mock

from chapter10.companions.serving.bridge import MAX_PAGES, UNREAD, connect_tools
from chapter10.companions.serving.loading import ServingError
from chapter10.companions.tools.registry import ToolRegistry

READ_ONLY = {"readOnlyHint": True}
OBJECT = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}


def listed(name: str, **more: Any) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    return {"name": name, "description": f"It does {name}.", "inputSchema": OBJECT, **more}


class FakeServer:
    """A server of two pages; it notes what it is asked."""

    def __init__(self, *pages: list[Any], result: Any = None) -> None:
        self.pages = pages
        self.result = {"content": [{"type": "text", "text": "done"}]} if result is None else result
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def plain(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer at once."""
        self.asked.append((method, params))
        if method == "tools/call":
            answer: dict[str, Any] = self.result
            return answer
        page = int(params.get("cursor", 0))
        more = {"nextCursor": str(page + 1)} if page + 1 < len(self.pages) else {}
        return {"tools": self.pages[page], **more}

    async def later(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer as a coroutine."""
        return self.plain(method, params)


class Connecting(unittest.IsolatedAsyncioTestCase):
    """What is registered, and what is not."""

    async def test_every_page_is_registered_in_one_call(self) -> None:
        """The cursor is followed to the last page, through a plain function as through a coroutine.

        Claims: T6-016.
        """
        for kind in ("plain", "later"):
            with self.subTest(kind):
                registry, server = ToolRegistry(), FakeServer([listed("read")], [listed("write")])
                found = await connect_tools(registry, getattr(server, kind))
                self.assertEqual((found.names, found.refused, found.is_partial), (("read", "write"), (), False))
                self.assertEqual([hit["name"] for hit in registry.search("write")], ["write"])

    async def test_what_cannot_be_offered_is_refused_by_its_name_alone(self) -> None:
        """A schema that cannot be enforced, no name, a name twice, and one that is taken; the good ones are there."""
        dynamic = {"type": "object", "$dynamicRef": "#x"}
        page = [listed("a"), listed("dynamic", inputSchema=dynamic), {"description": "?"}, listed("a"), listed("z")]
        registry = ToolRegistry()
        await connect_tools(registry, FakeServer([listed("z")]).plain)
        found = await connect_tools(registry, FakeServer(page).plain)
        self.assertEqual((found.names, found.is_partial), (("a",), True))
        reasons = {(one.name, one.reason) for one in found.refused}
        twice, taken = ("a", "the same name as tools[0]"), ("z", "is taken")
        self.assertEqual(reasons, {("", "missing"), twice, ("dynamic", "$dynamicRef"), taken})

    async def test_two_servers_keep_their_names_apart(self) -> None:
        """A prefix goes before the name here; each server hears its own name."""
        registry, servers = ToolRegistry(), {name: FakeServer([listed("read")]) for name in ("files", "mail")}
        for name, server in servers.items():
            await connect_tools(registry, server.later, server=name)
        await registry.invoke("mail__read", {"path": "a"})
        self.assertEqual(servers["mail"].asked[-1], ("tools/call", {"name": "read", "arguments": {"path": "a"}}))
        self.assertEqual(len(servers["files"].asked), 1)

    async def test_a_list_without_an_end_says_that_it_is_partial(self) -> None:
        """So many pages are asked for and no more."""
        asked = []

        def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            asked.append(method)
            return {"tools": [listed(f"t{len(asked)}")], "nextCursor": "on"}

        found = await connect_tools(ToolRegistry(), ask)
        self.assertEqual((len(found.names), len(asked), found.is_partial), (MAX_PAGES, MAX_PAGES, True))

    async def test_a_wrong_prefix_is_refused_before_the_server_is_asked(self) -> None:
        """So is a permission that is none."""
        wrong: tuple[dict[str, Any], ...] = ({"server": "two words"}, {"permission": ""})
        for options in wrong:
            with self.subTest(options=options):
                server = FakeServer([listed("a")])
                with self.assertRaises(ValueError):
                    await connect_tools(ToolRegistry(), server.plain, **options)
                self.assertEqual(server.asked, [])

    async def test_a_list_that_fails_registers_nothing(self) -> None:
        """An answer that is no list on the second page leaves the registry as it was."""
        answers: tuple[Any, ...] = (None, [], {"tools": 3}, {"tool": []})
        for answer in answers:
            with self.subTest(answer=answer):
                registry, ask = ToolRegistry(), Mock(side_effect=[{"tools": [listed("a")], "nextCursor": "1"}, answer])
                with self.assertRaises(ServingError) as caught:
                    await connect_tools(registry, ask)
                self.assertEqual((caught.exception.code, registry.get("a")), ("bad_tools", None))


class Calling(unittest.IsolatedAsyncioTestCase):
    """A call passes the one boundary, and its result is read as a server's."""

    def setUp(self) -> None:
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)

    async def test_results_are_read_as_those_of_servers(self) -> None:
        """Text is text, data is data, an error is an error; what is no result is said to be none."""
        text = [{"type": "text", "text": "no such file"}]
        for result, expected in (
            ({"content": text, "_ours": 1}, (True, "no such file")),
            ({"content": text, "isError": True}, (False, "no such file")),
            ({"content": [], "structuredContent": {"a": 1}}, (True, '{"a":1}')),
            ({"resultType": "input_required", "content": []}, (False, UNREAD)),
            ({"text": "done"}, (False, UNREAD)),
            ([1], (False, UNREAD)),
        ):
            for kind in ("plain", "later"):
                with self.subTest(result=result, kind=kind):
                    registry, server = ToolRegistry(), FakeServer([listed("read")], result=result)
                    await connect_tools(registry, getattr(server, kind))
                    answer = await registry.invoke("read", {}, explain=True)
                    self.assertEqual((answer["ok"], answer.get("data", answer.get("text"))), expected)

    async def test_the_boundary_stands_before_the_server(self) -> None:
        """Wrong arguments, a permission that is missing, an approval that nobody gave: the server is not asked."""
        server = FakeServer([listed("read")])
        cases: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
            ({}, {"path": 3}, "invalid_arguments"),
            ({"permission": "files:read"}, {}, "forbidden"),
            ({"approval": True}, {}, "approval_required"),
        )
        for options, arguments, code in cases:
            with self.subTest(code):
                registry = ToolRegistry()
                await connect_tools(registry, server.plain, **options)
                self.assertEqual((await registry.invoke("read", arguments))["error"], code)
                self.assertNotIn("tools/call", [method for method, _ in server.asked])

    async def test_a_write_whose_server_is_lost_is_not_repeated(self) -> None:
        """A tool that is not said to be harmless has an outcome that nobody knows; it was called once."""
        calls = []

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            if method == "tools/list":
                return {"tools": [listed("write"), listed("read", annotations=READ_ONLY)]}
            calls.append(params["name"])
            raise ConnectionResetError

        registry = ToolRegistry()
        await connect_tools(registry, ask)
        codes = [(await registry.invoke(name, {}))["error"] for name in ("write", "read")]
        self.assertEqual((codes, calls), (["outcome_unknown", "transient_failure"], ["write", "read"]))
