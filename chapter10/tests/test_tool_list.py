"""Tool lists of real servers: words, effects, places in errors, and what a file may be."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from chapter10.catalog import BUDGET_BYTES, MAX_DESCRIPTION, MAX_TEXT, Catalog, CatalogError, byte_size
from chapter10.companions.finding import tool_list
from chapter10.companions.finding.tool_list import (
    DEFAULT_PERMISSION,
    LeftOut,
    RefusedTool,
    ToolListError,
    parse_tool_list,
    read_tool_list,
    words_of,
)
from chapter10.tests.support import FolderTestCase

GRANTS = frozenset({DEFAULT_PERMISSION})
DATA = os.environ.get("CHAPTER10_DATA")
"""The folder with `mcp-tools-github.json`, which is not part of this project."""


def entry(name: str = "get_file", **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


class WordsTests(unittest.TestCase):
    def test_words_end_at_punctuation_case_and_digits(self) -> None:
        """Names in every usual spelling come apart into the words that a person would type.

        Claims: C10-033.
        """
        cases = {
            "get_file-contents.v2": ["get", "file", "contents", "v", "2"],
            "HTTPServer": ["http", "server"],
            "parseXMLDocument": ["parse", "xml", "document"],
            "ABcD": ["a", "bc", "d"],
            "oauth2token": ["oauth", "2", "token"],
            "SHA256": ["sha", "256"],
            "A/B (c), d's": ["a", "b", "c", "d", "s"],
            "same Same SAME": ["same"],
            "": [],
            " \n\t--": [],
            "éCOLE Straße ПриветМир": ["é", "cole", "strasse", "привет", "мир"],
            "हिन्दी": ["हिन्दी"],
        }
        for text, expected in cases.items():
            self.assertEqual(words_of(text), expected, text)

    def test_signs_without_spaces_give_their_neighbours(self) -> None:
        """A Chinese run gives pairs, one sign alone gives itself, and other letters end the run."""
        cases = {
            "查询订单": ["查询", "询订", "订单"],
            "查": ["查"],
            "二〇二六": ["二〇", "〇二", "二六"],
            "查询API状态2次": ["查询", "api", "状态", "2", "次"],
            "订单，状态": ["订单", "状态"],
            "ファイル": ["ファ", "ァイ", "イル"],
            "ＡＰＩ２": ["api", "2"],
            "\U00020000\U00020001": ["\U00020000\U00020001"],
        }
        for text, expected in cases.items():
            self.assertEqual(words_of(text), expected, text)

    def test_odd_text_gives_words_or_none(self) -> None:
        """Half characters, NUL and words longer than a keyword may be are left out; nothing raises."""
        self.assertEqual(words_of("a\ud800b\0c " + "x" * (MAX_TEXT + 1)), ["a", "b", "c"])
        self.assertEqual(words_of("x" * MAX_TEXT), ["x" * MAX_TEXT])
        self.assertEqual(words_of("e\u0301t\u00e9"), ["été"])


class ParseTests(unittest.TestCase):
    def test_the_published_limits_are_these(self) -> None:
        """64 MiB of a file and a hundred thousand tools."""
        self.assertEqual((tool_list.MAX_FILE_BYTES, tool_list.MAX_TOOLS), (67_108_864, 100_000))

    def refused(self, document: object, **options: Any) -> ToolListError:
        with self.assertRaises(ToolListError) as caught:
            parse_tool_list(document, **options)
        self.assertEqual(str(caught.exception), caught.exception.code)
        return caught.exception

    def test_an_object_with_tools_and_a_bare_list_say_the_same(self) -> None:
        """Both shapes give the same tools; fields that are not known here are ignored.

        Claims: C10-011.
        """
        entries = [entry(title="Get file", description="Reads one.", icons=[1], _meta={"x": 1})]
        [from_object] = parse_tool_list({"tools": entries, "nextCursor": "x"}).tools
        [from_list] = parse_tool_list(entries).tools
        self.assertEqual(from_object, from_list)
        self.assertEqual(from_list.keywords, ("get", "file", "reads", "one"))
        self.assertEqual((from_list.version, from_list.permission), ("1", DEFAULT_PERMISSION))
        self.assertEqual(parse_tool_list([]).tools, ())

    def test_a_tool_is_read_only_if_it_says_so(self) -> None:
        """Only `readOnlyHint: true` makes a read; everything unsaid is a write.

        Claims: C10-028.
        """
        for given, effect in (
            ({"readOnlyHint": True}, "read"),
            ({"readOnlyHint": False}, "write"),
            ({"readOnlyHint": None}, "write"),
            ({"destructiveHint": False}, "write"),
            ({}, "write"),
            (None, "write"),
        ):
            [found] = parse_tool_list([entry(annotations=given)]).tools
            self.assertEqual(found.effect, effect, given)
        self.assertEqual(parse_tool_list([entry()]).tools[0].effect, "write")

    def test_what_is_missing_or_null_is_filled_in(self) -> None:
        """No title, description, schema or annotations: an empty text and a schema that says nothing."""
        nothing = dict.fromkeys(("title", "description", "inputSchema", "annotations"))
        for more in ({}, nothing):
            [found] = parse_tool_list([{"name": "get_file", **more}]).tools
            self.assertEqual((found.description, found.parameters), ("", {"type": "object"}))
        self.assertEqual(parse_tool_list([entry(inputSchema={})]).tools[0].parameters, {})
        [titled] = parse_tool_list([entry("x", annotations={"title": "Nice name"})]).tools
        self.assertEqual(titled.keywords, ("x", "nice", "name"))
        self.assertEqual(parse_tool_list([entry("x")]).tools[0].keywords, ("x",))

    def test_the_permission_is_the_callers(self) -> None:
        """It is put on every tool, and one that is no permission is refused as the caller's mistake."""
        [found] = parse_tool_list([entry()], permission="files:read").tools
        self.assertEqual(found.permission, "files:read")
        for permission in ("", None, 1, "\ud800"):
            with self.assertRaises(CatalogError):
                parse_tool_list([], permission=permission)  # type: ignore[arg-type]
        with self.assertRaises(ValueError):
            parse_tool_list([], repeated="last")  # type: ignore[arg-type]

    def test_a_bad_entry_is_named_by_its_place(self) -> None:
        """Whatever is wrong with the third tool, the error says where and why, on one line."""
        deep: Any = {}
        for _ in range(100_000):
            deep = {"x": deep}
        cases: list[tuple[Any, str]] = [
            (None, "tools[2]"),
            ("get_file", "tools[2]"),
            ({}, "tools[2].name"),
            (entry(None), "tools[2].name"),  # type: ignore[arg-type]
            (entry(""), "tools[2].name"),
            (entry("x" * 201), "tools[2].name"),
            (entry("a\nb"), "tools[2].name"),
            (entry("\ud800"), "tools[2].name"),
            (entry(7), "tools[2].name"),  # type: ignore[arg-type]
            (entry(title=["x"]), "tools[2].title"),
            (entry(description=5), "tools[2].description"),
            (entry(description="\udfff"), "tools[2].description"),
            (entry(description="x" * (MAX_DESCRIPTION + 1)), "tools[2].description"),
            (entry(title="x" * (MAX_DESCRIPTION + 1)), "tools[2].title"),
            (entry(inputSchema=[]), "tools[2].inputSchema"),
            (entry(inputSchema={"x": float("nan")}), "tools[2].inputSchema"),
            (entry(inputSchema={1: 2}), "tools[2].inputSchema"),
            (entry(inputSchema=deep), "tools[2].inputSchema"),
            (entry(annotations=[]), "tools[2].annotations"),
            (entry(annotations={"readOnlyHint": "true"}), "tools[2].annotations.readOnlyHint"),
            (entry(annotations={"readOnlyHint": 1}), "tools[2].annotations.readOnlyHint"),
            (entry(annotations={"title": 1}), "tools[2].annotations.title"),
        ]
        for bad, place in cases:
            document = {"tools": [entry("a"), entry("b"), bad]}
            error = self.refused(document, bad="refuse")
            [listed] = parse_tool_list(document).refused
            self.assertEqual((listed.place, listed.reason), (error.place, error.reason))
            self.assertEqual((error.code, error.place), ("bad_tool_list", place))
            self.assertEqual(error.line, f"bad_tool_list: {place}: {error.reason}")
            self.assertNotIn("\n", error.line)
        self.assertEqual(self.refused([{}], bad="refuse").reason, "missing")
        self.assertEqual(len(parse_tool_list([entry(title="x" * MAX_DESCRIPTION)]).tools), 1)

    def test_a_bad_tool_among_good_ones_is_refused_alone(self) -> None:
        """It is named with its place and reason, and the list says that it is partial; a good list is whole."""
        listed = parse_tool_list([entry("a"), entry("b", inputSchema=[]), 7, entry("c")])
        self.assertEqual([found.name for found in listed.tools], ["a", "c"])
        self.assertEqual(
            listed.refused,
            (
                RefusedTool("b", "tools[1].inputSchema", "not an object"),
                RefusedTool("", "tools[2]", "not an object"),
            ),
        )
        self.assertTrue(listed.is_partial)
        self.assertFalse(parse_tool_list([entry("a")]).is_partial)

    def test_a_list_that_goes_on_says_so(self) -> None:
        """The cursor is handed on as it came, an empty text included; what is no text is refused."""
        for cursor in ("page 2", ""):
            listed = parse_tool_list({"tools": [], "nextCursor": cursor})
            self.assertEqual((listed.next_cursor, listed.is_partial), (cursor, True))
        listed = parse_tool_list({"tools": [], "nextCursor": None})
        self.assertEqual((listed.next_cursor, listed.is_partial), (None, False))
        self.assertEqual(self.refused({"tools": [], "nextCursor": 2}).place, "nextCursor")

    def test_a_list_that_left_a_name_out_is_partial(self) -> None:
        """Whoever keeps the first of two does not have all."""
        self.assertTrue(parse_tool_list([entry("a"), entry("a")], repeated="first").is_partial)

    def test_the_schema_is_found_under_each_usual_name(self) -> None:
        """As servers write it and as both kinds of requests do; two of them contradict each other."""
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        for tool in (
            entry(inputSchema=schema),
            entry(input_schema=schema),
            entry(type="function", parameters=schema),
            {"type": "function", "function": entry(parameters=schema)},
            entry(inputSchema=None, input_schema=schema),
        ):
            [found] = parse_tool_list([tool]).tools
            self.assertEqual((found.name, found.parameters), ("get_file", schema))
        error = self.refused([entry(inputSchema=schema, parameters=schema)], bad="refuse")
        self.assertEqual(error.place, "tools[0].parameters")
        error = self.refused([{"function": entry(parameters={"x": float("nan")})}], bad="refuse")
        self.assertEqual(error.place, "tools[0].function.parameters")

    def test_the_same_name_on_two_servers_makes_two_tools(self) -> None:
        """With the server before it, as providers take names; the server is called by the name that it gave."""
        lists = [parse_tool_list([entry("search")], server=server) for server in ("files", "web-2")]
        catalog = Catalog([found for listed in lists for found in listed.tools])
        self.assertEqual(sorted(catalog.tools), ["files__search", "web-2__search"])
        [hit] = catalog.search("files", GRANTS)
        self.assertEqual(lists[0].name_at_server(hit["name"]), "search")
        self.assertEqual(parse_tool_list([entry("a__b")]).name_at_server("a__b"), "a__b")
        self.assertEqual(lists[0].name_at_server("other"), "other")
        for server in (None, "a_b", "a.b", "x" * 31, " "):
            with self.assertRaises(ValueError):
                parse_tool_list([], server=server)  # type: ignore[arg-type]

    def test_a_document_of_another_shape_is_refused(self) -> None:
        """Neither an object with a list nor a list."""
        for document, place in (
            (None, "document"),
            ("x", "document"),
            (1, "document"),
            ({}, "tools"),
            ({"tools": {}}, "tools"),
        ):
            self.assertEqual((self.refused(document).code, self.refused(document).place), ("bad_tool_list", place))
        with mock.patch.object(tool_list, "MAX_TOOLS", 1):
            self.assertEqual(self.refused([entry("a"), entry("b")]).place, "tools")
            self.assertEqual(len(parse_tool_list([entry("a")]).tools), 1)

    def test_a_name_that_stands_twice_is_refused_or_reported(self) -> None:
        """By default with both places; on request the first is kept and the others are listed."""
        document = [entry("search"), entry("other"), entry("search", title="B"), entry("search", title="C")]
        error = self.refused(document)
        self.assertEqual(error.line, "duplicate_tool: tools[2].name: the same name as tools[0]")
        listed = parse_tool_list(document, repeated="first")
        self.assertEqual([found.name for found in listed.tools], ["search", "other"])
        self.assertEqual(
            listed.left_out,
            (LeftOut("search", "tools[2]", "tools[0]"), LeftOut("search", "tools[3]", "tools[0]")),
        )
        self.assertEqual(len(Catalog(listed.tools).tools), 2)
        self.assertEqual(len(parse_tool_list([entry("Search"), entry("search")]).tools), 2)

    def test_a_definition_larger_than_the_budget_is_found_and_not_loaded(self) -> None:
        """It is named beforehand with its bytes, found like any other, and refused as a whole when loaded."""
        listed = parse_tool_list([entry("small"), entry("large", description="much " * 1000)])
        catalog = Catalog(listed.tools)
        hits = catalog.search("large", GRANTS)
        with self.assertRaises(CatalogError) as caught:
            catalog.load(hits, GRANTS)
        self.assertEqual(caught.exception.code, "definition_budget_exceeded")
        [(name, size)] = listed.larger_than(BUDGET_BYTES)
        self.assertEqual((name, size), ("large", byte_size(catalog.load(hits, GRANTS, 10**6))))
        self.assertEqual(listed.larger_than(size), [])

    def test_any_text_becomes_a_query_by_the_same_rule(self) -> None:
        """A whole name and a Chinese phrase find their tool once they are split as the keywords were.

        Claims: C10-033, C10-053.
        """
        catalog = Catalog(parse_tool_list([entry("getOrder", description="查询订单状态"), entry("other")]).tools)
        for text in ("getOrder", "get_order", "订单状态", "状态?"):
            found = catalog.search(" ".join(words_of(text)), GRANTS)
            self.assertEqual([hit["name"] for hit in found], ["getOrder"], text)


class FileTests(FolderTestCase):
    def write(self, data: bytes) -> Path:
        path = self.folder / "tools.json"
        path.write_bytes(data)
        return path

    def refused(self, data: bytes) -> ToolListError:
        with self.assertRaises(ToolListError) as caught:
            read_tool_list(self.write(data), bad="refuse")
        return caught.exception

    def test_the_usual_encodings_are_read(self) -> None:
        """UTF-8 with and without its mark and UTF-16 in both orders give the same tool."""
        text = json.dumps([entry(description="查询订单")], ensure_ascii=False)
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            self.assertEqual(read_tool_list(self.write(text.encode(encoding))).tools[0].description, "查询订单")
        big = b"\xfe\xff" + text.encode("utf-16-be")
        self.assertEqual(read_tool_list(str(self.write(big))).tools[0].description, "查询订单")

    def test_another_encoding_is_refused_with_the_byte(self) -> None:
        """GBK, a cut UTF-16 and UTF-32 are named as not being what they should be."""
        gbk = json.dumps([entry(description="查询")], ensure_ascii=False).encode("gbk")
        self.assertRegex(self.refused(gbk).line, r"^not_json: byte \d+: the file is not in UTF-8$")
        self.assertEqual(self.refused(b"\xff\xfe[\0]").line, "not_json: byte 4: the file is not in UTF-16")
        self.assertEqual(self.refused("[]".encode("utf-32")).reason, "the file is not in UTF-8")

    def test_only_strict_json_is_read(self) -> None:
        """Cut-off text, NaN, a doubled key at any depth and bottomless nesting are refused with their place."""
        cases = [
            (b"", "line 1 column 1", "Expecting value"),
            (b'[{"name": "a"},\n {"name": "b', "line 2 column 11", "Unterminated string starting at"),
            (b'[{"name": "a", "x": NaN}]', "document", "NaN is no JSON number"),
            (b'[{"name": "a", "x": -Infinity}]', "document", "-Infinity is no JSON number"),
            (b'[{"name": "a", "name": "b"}]', "[0]", "the key 'name' stands twice"),
            (b'{"tools": [], "x": 1, "x": 1, "tools": []}', "document", "the key 'x' stands twice"),
            (
                b'{"tools": [{"name": "a", "inputSchema": {"x": {"y": 1, "y": 1}}}]}',
                "tools[0].inputSchema.x",
                "the key 'y' stands twice",
            ),
            (b'{"a": {"b": {}, "c": [[[]], {}]}, "d": [{"y": 1, "y": 1}]}', "d[0]", "the key 'y' stands twice"),
            (b'{"a": [[[1], [{}]], {"y": 1, "y": 1}]}', "a[1]", "the key 'y' stands twice"),
            (b"[" * 200_000, "document", "nested too deep"),
            (b'[{"name": "a", "x": ' + b"9" * 5000 + b"}]", "document", "a number with too many digits"),
        ]
        for data, place, reason in cases:
            error = self.refused(data)
            self.assertEqual((error.code, error.place, error.reason), ("not_json", place, reason), data[:60])

    def test_a_number_out_of_range_in_a_schema_is_refused(self) -> None:
        """1e999 reads as infinity, which no schema can hold."""
        error = self.refused(b'[{"name": "a", "inputSchema": {"maximum": 1e999}}]')
        self.assertEqual((error.code, error.place), ("bad_tool_list", "tools[0].inputSchema"))

    def test_a_long_key_above_many_members_is_walked_in_flat_memory(self) -> None:
        """Its place is spelled out for the one that is named, and not for each of its members."""
        data = b'{"tools": [], "%s": [%s]}' % (b"k" * 500_000, b",".join([b"[0]"] * 500))
        path = self.write(data)
        tracemalloc.start()
        try:
            self.assertEqual(read_tool_list(path).tools, ())
            self.assertLess(tracemalloc.get_traced_memory()[1], 100_000_000)  # the buffer for the largest file is in it
        finally:
            tracemalloc.stop()

    def test_a_key_of_the_file_cannot_break_the_line(self) -> None:
        """A key with a line end and one of a million characters still give one short line."""
        for key in ("a\\nb", "x" * 1_000_000):
            error = self.refused(b'{"%s": {"y": 1, "y": 2}}' % key.encode())
            self.assertNotIn("\n", error.line)
            self.assertLess(len(error.line), 500)
        error = self.refused(b'{"a\\nb": {"y": 1, "y": 2}}')
        self.assertEqual(error.line, "not_json: a\\nb: the key 'y' stands twice")

    def test_a_file_that_cannot_be_read_is_said_to_be_so(self) -> None:
        """Missing, a folder, a pipe, too large, and no path at all."""
        paths: list[tuple[Any, str]] = [
            (self.folder / "none.json", os.strerror(errno.ENOENT)),
            (self.folder, ""),  # what a system says of it differs
            ("a\0b", "not a path of a file"),
            (None, "not a path of a file"),
            (1.5, "not a path of a file"),
        ]
        for path, reason in paths:
            with self.subTest(path=path), self.assertRaises(ToolListError) as caught:
                read_tool_list(path)
            self.assertEqual((caught.exception.code, caught.exception.place), ("unreadable_file", "file"))
            self.assertEqual(caught.exception.reason, reason or caught.exception.reason)
        if hasattr(os, "mkfifo"):
            os.mkfifo(self.folder / "pipe")
            with self.assertRaises(ToolListError) as caught:
                read_tool_list(self.folder / "pipe")  # nobody writes to it, so to open it would be to wait
            self.assertEqual(caught.exception.reason, "not a regular file")
        with mock.patch.object(tool_list, "MAX_FILE_BYTES", 10):
            self.assertEqual(self.refused(b"[" + b" " * 9 + b"]").code, "unreadable_file")
            self.assertEqual(read_tool_list(self.write(b"[" + b" " * 8 + b"]")).tools, ())


@unittest.skipUnless(DATA, "CHAPTER10_DATA does not name the folder with mcp-tools-github.json")
class RealListTests(unittest.TestCase):
    def test_a_real_list_is_searched_loaded_and_authorized(self) -> None:
        """117 tools: most are found by their own names, one alone is over the budget, writes are writes."""
        listed = read_tool_list(Path(DATA or "") / "mcp-tools-github.json")
        catalog = Catalog(listed.tools)
        self.assertEqual((len(catalog.tools), listed.left_out), (117, ()))
        self.assertEqual(len(listed.larger_than(BUDGET_BYTES)), 1)
        for found in listed.tools:
            query = " ".join(words_of(found.name))
            hits = {hit["name"]: hit for hit in catalog.search(query, GRANTS, 117)}
            self.assertEqual(hits[found.name]["score"], len(query.split()))
            [definition] = catalog.load([hits[found.name]], GRANTS, 10**6)
            self.assertIs(catalog.authorize(definition, GRANTS), found)
        self.assertEqual({found.effect for found in listed.tools}, {"read", "write"})


class OtherTypes(unittest.TestCase):
    """What is no word."""

    def test_each_choice_is_one_of_two_words(self) -> None:
        """Another type is refused as another word is, also one whose comparison fails."""

        class NoComparison:
            __hash__ = object.__hash__

            def __eq__(self, other: object) -> bool:
                raise AssertionError("nobody compares it")

        for wrong in (None, 1, ["first"], NoComparison()):
            with self.assertRaises(ValueError):
                parse_tool_list([], repeated=wrong)  # type: ignore[arg-type]
            with self.assertRaises(ValueError):
                parse_tool_list([], bad=wrong)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
