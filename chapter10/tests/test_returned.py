"""What a handler returned: values of Python by one rule, and the results of tool servers."""

from __future__ import annotations

import asyncio
import enum
import logging
import unittest
from collections import Counter, OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

from chapter10.canonical import MAX_DEPTH, CanonicalError
from chapter10.companions.tools.registry import RegistryError, ToolRegistry, ToolSpec
from chapter10.companions.tools.returned import json_value, server_answer


class Colour(enum.Enum):
    """Whose value is no text."""

    RED = (1, 2)


class Name(enum.StrEnum):
    """Whose value is a text, and which is one."""

    A = "a"


class Number(enum.IntEnum):
    """Which is a number."""

    ONE = 1


@dataclass
class Order:
    """A record with a record in it."""

    number: int
    inner: Any = None


class Values(unittest.TestCase):
    """Values of Python."""

    def test_each_kind_has_its_json(self) -> None:
        """One rule, at every depth; claims nothing about what comes back. Claims: T6-005."""
        table: list[tuple[Any, Any]] = [
            ((1, (2,)), [1, [2]]), ({3, 1, 2}, [1, 2, 3]), (frozenset("ba"), ["a", "b"]), ({"a": (1,)}, {"a": [1]}),
            (Counter("ab"), {"a": 1, "b": 1}), (OrderedDict(a=1), {"a": 1}), ({1: "a"}, {"1": "a"}),
            (Colour.RED, [1, 2]), (Name.A, "a"), (Number.ONE, 1), ({Name.A: 1}, {"a": 1}),
            (type("F", (float,), {})(1.5), 1.5),
            (Decimal("1.50"), "1.50"), (UUID(int=0), "00000000-0000-0000-0000-000000000000"),
            (date(2026, 9, 7), "2026-09-07"),
            (datetime(2026, 9, 7, 1, tzinfo=UTC), "2026-09-07T01:00:00+00:00"), (time(1, 2), "01:02:00"),
            (PurePosixPath("a/b"), "a/b"), (b"caf\xc3\xa9", "caf\u00e9"), (bytearray(b"x"), "x"),
            (Order(1, Order(2)), {"number": 1, "inner": {"number": 2, "inner": None}}),
            ({date(2026, 9, 7): 1}, {"2026-09-07": 1}),
        ]  # fmt: skip
        for value, expected in table:
            with self.subTest(value=value):
                self.assertEqual(json_value(value), expected)
                self.assertIs(type(json_value(value)), type(expected))

    def test_what_the_rule_does_not_know_is_refused(self) -> None:
        """Objects, classes, bytes that are no text, keys that are none or meet, a value inside itself."""
        inside: list[Any] = []
        inside.append(inside)
        deep: Any = 1
        for _ in range(MAX_DEPTH + 2):
            deep = (deep,)
        for value in (object(), Order, b"\xff", {None: 1}, {True: 1}, {1: 1, "1": 2}, {(1,): 1}, inside, deep, 1j):
            with self.subTest(value=type(value)), self.assertRaises(CanonicalError):
                json_value(value)

    def test_a_registry_may_know_more(self) -> None:
        """Its encoder is asked for the unknown alone, at every depth, and what it gives goes through the rule."""

        def encode(value: Any) -> Any:
            if isinstance(value, complex):
                return (value.real, Decimal(1))
            raise TypeError

        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)
        registry = ToolRegistry(encode=encode)
        for name, value in (("known", [2 + 1j, (3,)]), ("unknown", object()), ("not_a_number", {"a": float("nan")})):
            registry.register(ToolSpec(name, "d", "read", 5, 1, 99, handler=lambda value=value: value, parameters={}))
        answers = [asyncio.run(registry.invoke(name, {})) for name in ("known", "unknown", "not_a_number")]
        self.assertEqual([answer.get("data") for answer in answers], ['[[2.0,"1"],[3]]', None, None])
        self.assertEqual([answer.get("error") for answer in answers], [None, "tool_failure", "tool_failure"])
        with self.assertRaises(RegistryError):
            ToolRegistry(encode=7)  # type: ignore[arg-type]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


class Servers(unittest.TestCase):
    """Results as tool servers send them."""

    def test_a_text_is_text_and_data_are_data(self) -> None:
        """Without the JSON around it; what says the same twice is shown once."""
        line = 'line 1\nsays "hi"'
        same = {"content": [text('{"a": 1}')], "structuredContent": {"a": 1}}
        table: list[tuple[Any, Any]] = [
            ([text(line)], line), ({"content": [text(line), text("2")]}, line + "\n2"),
            ({"content": [], "_meta": {}}, ""),
            (same, {"a": 1}), ({"content": [text("one")], "structuredContent": {"a": 1}}, 'one\n{"a":1}'),
            ({"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}, "[resource_link file:///a a]"),
            ([{"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}], "[resource file:///a]\nx"),
        ]  # fmt: skip
        for value, expected in table:
            with self.subTest(value=value):
                self.assertEqual(server_answer(value), (expected, False))
        self.assertEqual(server_answer({"content": [text("no")], "isError": True}), ("no", True))
        self.assertEqual(server_answer({**same, "isError": True}), ({"a": 1}, True))

    def test_what_is_no_result_of_a_server_stays(self) -> None:
        """Other keys, other blocks, another type of content: data of the tool's own."""
        others: list[Any] = [
            {"content": "x"}, {"content": [text("x")], "total": 1}, [{"type": "row", "text": "x"}], [text("x"), 1], [],
            [{"type": "text"}], [{"type": "image"}], [{"type": "resource", "resource": {}}],
            [{"type": "resource_link"}], 7,
        ]  # fmt: skip
        for value in others:
            with self.subTest(value=value):
                self.assertEqual(server_answer(value), (value, False))

    def test_what_a_model_cannot_read_is_named_and_kept(self) -> None:
        """An image, a sound and a file: kind, size and place; the data is in none of the text."""
        kept: list[str] = []

        def keep(data: str) -> str:
            kept.append(data)
            return f"results/{len(kept)}"

        def broken(data: str) -> str:
            raise OSError

        blocks = [
            {"type": "image", "data": "QUJD", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "blob": "REVG"}},
        ]
        said, _ = server_answer(blocks, keep)
        self.assertEqual(
            said,
            "[image image/png, 4 characters of base64, kept in results/1]\n"
            "[resource file:///a, 4 characters of base64, kept in results/2]",
        )
        self.assertEqual(kept, ["QUJD", "REVG"])
        for other in (None, broken):
            self.assertIn("base64, not kept]", server_answer(blocks, other)[0])

    def test_an_error_of_a_server_is_an_error(self) -> None:
        """Its text is what the server chose, and goes the way of a result."""
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)
        answer = {"content": [text("ssh: not found, password=hunter2")], "isError": True}
        registry = ToolRegistry()
        registry.register(ToolSpec("ssh", "d", "read", 5, 3, 99, handler=lambda: answer, parameters={}))
        self.assertEqual(
            asyncio.run(registry.invoke("ssh", {}, explain=True)),
            {"ok": False, "error": "tool_failure", "retryable": False, "text": "ssh: not found, password=[redacted]"},
        )


if __name__ == "__main__":
    unittest.main()
