"""A list of real tools as catalog tools: what a server answers to `tools/list`, from a file or a value.

The document is an object with `tools`, or a bare list. Of each tool are read `name` and, where they are
there, `title`, `description`, `inputSchema` and `annotations`; other fields are ignored, and `null` is
as good as missing. The schema may also be called `input_schema` or `parameters`, and all of it may stand in
`function`, as two kinds of requests write a tool; two schemas are refused. What a real list leaves open is decided
here:

    keywords    the words of name, title and description, as `words_of` splits them
    effect      `read` only if `annotations.readOnlyHint` is true; what is not said to be harmless is a
                `write`. The hint is the server's word and no proof
    permission  given by the caller; a list says nothing of it
    version     "1"; a list has none, so that the digest alone tells a changed definition
    no schema   an object that says nothing of its members
    a name that stands twice
                `duplicate_tool` with both places, because one of the two would win without a word. To
                look at such a list all the same, `repeated="first"` keeps the first of each name and
                lists the others in `left_out`
    a tool that is none
                is listed in `refused` with its name, place and reason, and the others are taken; with
                `bad="refuse"` it raises `ToolListError` instead
    a list that goes on
                `next_cursor` is what to ask the server for the rest with; `is_partial` also says that a tool
                was refused or left out
    a name that two servers have
                `server="files"` puts `files__` before each name, as providers take it; the server knows the
                tool by the name without it (`name_at_server`)
    a definition larger than the budget
                is registered and found like any other; loading it is refused as a whole, because
                nothing is ever cut. `larger_than` names such tools beforehand

A query is split at white space by the catalog. `" ".join(words_of(text))` makes such a query out of any
text in the way the keywords were made, so that a name or a Chinese phrase finds its tool.

A file is JSON in UTF-8, with or without a byte order mark, or in UTF-16 with one (what a Windows shell
writes). Not taken: an object with the same key twice, NaN and the infinities, more than `MAX_FILE_BYTES`.
What does not fit raises `ToolListError` with the place and a reason, and no tool is returned.

(`companions.schemas.strict_json` reads what a model writes: it bounds it more tightly and tells cut-off text from
wrong text; a person with a file wants the line and the column.)

What it does not do: check that a schema can be enforced (`companions.schemas.schema` does), connect to a server,
or follow a cursor. Source: the chapter's first half on real tool lists (claims C10-011, C10-028, C10-033).
"""

from __future__ import annotations

import codecs
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from chapter10.canonical import CodedError, byte_size
from chapter10.catalog import MAX_DESCRIPTION, MAX_TEXT, CatalogError, Effect, Tool

__all__ = [
    "DEFAULT_PERMISSION",
    "MAX_FILE_BYTES",
    "MAX_TOOLS",
    "LeftOut",
    "RefusedTool",
    "ToolList",
    "ToolListError",
    "parse_tool_list",
    "read_tool_list",
    "words_of",
]

DEFAULT_PERMISSION: Final = "tools:use"
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_TOOLS: Final = 100_000

_NO_SCHEMA: Final = {"type": "object"}
_SCHEMAS: Final = ("inputSchema", "input_schema", "parameters")
_SERVER: Final = re.compile("[a-zA-Z0-9-]{1,30}")
_BETWEEN: Final = "__"


class ToolListError(CodedError, ValueError):
    """Raised for a list that cannot be read; `place` says where, such as `tools[12].name`, `reason` why.

    `unreadable_file`, `not_json`, `bad_tool_list`, `duplicate_tool`. `line` has all of it on one line.
    """

    place: str
    reason: str

    def __init__(self, code: str, place: str, reason: str) -> None:
        super().__init__(code)
        self.place = place
        self.reason = reason

    @property
    def line(self) -> str:
        """Code, place and reason on one line, whatever the file put into a place."""
        text = f"{self.code}: {self.place[:MAX_TEXT]}: {self.reason[:MAX_TEXT]}"
        return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A tool that was left out because its name had come before."""

    name: str
    place: str
    first_place: str


@dataclass(frozen=True, slots=True)
class RefusedTool:
    """A tool that was refused: its name ("" if it has none that is a text), its place, and why."""

    name: str
    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools of a document in its order, what was left out or refused, and whether the server has more."""

    tools: tuple[Tool, ...]
    left_out: tuple[LeftOut, ...]
    refused: tuple[RefusedTool, ...] = ()
    next_cursor: str | None = None
    server: str = ""

    @property
    def is_partial(self) -> bool:
        """Whether the server has tools that are not here."""
        return bool(self.left_out or self.refused or self.next_cursor is not None)

    def name_at_server(self, name: str) -> str:
        """Return the name by which the server knows the tool `name` of this list."""
        return name.removeprefix(self.server + _BETWEEN) if self.server else name

    def larger_than(self, budget_bytes: int) -> list[tuple[str, int]]:
        """Return (name, bytes) of each definition that alone, as a list of one, exceeds the budget."""
        sizes = [(tool.name, byte_size([{**tool.definition(), "digest": tool.digest}])) for tool in self.tools]
        return [(name, size) for name, size in sizes if size > budget_bytes]


def read_tool_list(
    path: str | os.PathLike[str],
    *,
    permission: str = DEFAULT_PERMISSION,
    repeated: Literal["refuse", "first"] = "refuse",
    bad: Literal["refuse", "leave_out"] = "leave_out",
    server: str = "",
) -> ToolList:
    """Read the file `path` and return what `parse_tool_list` makes of it.

    Raises `ToolListError` (`unreadable_file`, `not_json`, and those of `parse_tool_list`).
    """
    try:
        if Path(path).is_fifo():  # it would be waited for, perhaps for ever
            raise ToolListError("unreadable_file", "file", "not a regular file")
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except ToolListError:
        raise
    except (OSError, TypeError, ValueError) as error:  # a path with NUL in it is a ValueError
        reason = error.strerror if isinstance(error, OSError) else None
        raise ToolListError("unreadable_file", "file", reason or "not a path of a file") from error
    if len(data) > MAX_FILE_BYTES:
        raise ToolListError("unreadable_file", "file", f"more than {MAX_FILE_BYTES} bytes")
    return parse_tool_list(_strict_json(_text(data)), permission=permission, repeated=repeated, bad=bad, server=server)


def parse_tool_list(
    document: object,
    *,
    permission: str = DEFAULT_PERMISSION,
    repeated: Literal["refuse", "first"] = "refuse",
    bad: Literal["refuse", "leave_out"] = "leave_out",
    server: str = "",
) -> ToolList:
    """Return the tools of `document`, a value as `json.loads` gives it.

    Raises `ToolListError` (`bad_tool_list`, `duplicate_tool`), and `CatalogError` (`invalid_tool`) for a
    `permission` that is none; `ValueError` for an unknown word in `repeated` or `bad`, and for a `server` that is
    not of 1 to 30 letters, digits and `-`.
    """
    if type(repeated) is not str or repeated not in ("refuse", "first"):
        raise ValueError("repeated is neither 'refuse' nor 'first'")
    if type(bad) is not str or bad not in ("refuse", "leave_out"):
        raise ValueError("bad is neither 'refuse' nor 'leave_out'")
    if type(server) is not str or (server and not _SERVER.fullmatch(server)):
        raise ValueError("server is not 1 to 30 letters, digits and -")
    Tool("permission.check", "", (), permission, "read")
    tools: dict[str, Tool] = {}
    places: dict[str, str] = {}
    left_out: list[LeftOut] = []
    refused: list[RefusedTool] = []
    for place, entry in _entries(document):
        try:
            tool = _tool(entry, place, permission, server + _BETWEEN if server else "")
        except ToolListError as error:
            if bad == "refuse":
                raise
            refused.append(RefusedTool(_name_of(entry), error.place, error.reason))
            continue
        if tool.name not in tools:
            tools[tool.name], places[tool.name] = tool, place
        elif repeated == "first":
            left_out.append(LeftOut(tool.name, place, places[tool.name]))
        else:
            raise ToolListError("duplicate_tool", f"{place}.name", f"the same name as {places[tool.name]}")
    return ToolList(tuple(tools.values()), tuple(left_out), tuple(refused), _cursor(document), server)


def words_of(text: str) -> list[str]:
    """Return the distinct words of `text`, case folded, in the order in which they first stand.

    Words end at whatever is no letter, mark or digit; between a small and a capital letter; before the
    last of several capitals that a small one follows (`HTTPServer`: http, server); and between letters
    and digits. A run of Chinese, Japanese or Korean signs, which has no spaces, gives each two
    neighbours (three signs: two words), or its one sign. Wide forms count as the plain ones. A word of
    more than `MAX_TEXT` characters is left out.
    """
    words: dict[str, None] = {}
    for kind, group in groupby(unicodedata.normalize("NFKC", text), key=_kind):
        run = "".join(group)
        if kind == "cjk":
            pieces = [run[i : i + 2] for i in range(max(len(run) - 1, 1))]
        elif kind == "letters":
            pieces = _split_at_case(run)
        elif kind == "digits":
            pieces = [run]
        else:
            continue
        words.update((piece.casefold(), None) for piece in pieces)
    return [word for word in words if len(word) <= MAX_TEXT]


def _kind(sign: str) -> str:
    """Say what a sign is for `words_of`: cjk, letters, digits or nothing of it."""
    if sign.isascii():
        return "letters" if sign.isalpha() else "digits" if sign.isdigit() else ""
    if any(first <= sign <= last for first, last in _CJK):
        return "cjk"
    category = unicodedata.category(sign)[0]
    return "letters" if category in "LM" else "digits" if category == "N" else ""


_CJK: Final = (
    ("\u3005", "\u3007"),  # signs of repetition, zero
    ("\u3040", "\u30ff"),  # kana
    ("\u3400", "\u4dbf"),
    ("\u4e00", "\u9fff"),
    ("\uac00", "\ud7a3"),  # Korean syllables
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
)


def _split_at_case(run: str) -> list[str]:
    starts = [0]
    for i in range(1, len(run)):
        after_small = run[i].isupper() and not run[i - 1].isupper()
        last_capital = run[i].isupper() and run[i + 1 : i + 2].islower()
        if after_small or last_capital:
            starts.append(i)
    return [run[start:end] for start, end in zip(starts, [*starts[1:], len(run)], strict=True)]


def _cursor(document: object) -> str | None:
    cursor = document.get("nextCursor") if isinstance(document, dict) else None
    if cursor is not None and type(cursor) is not str:
        _refuse("nextCursor", "not a text")
    return cursor


def _name_of(entry: object) -> str:
    name = _inner(entry).get("name") if isinstance(entry, dict) else None
    return name[:MAX_TEXT] if type(name) is str else ""


def _inner(entry: dict[str, Any]) -> dict[str, Any]:
    """The object that has the name: the entry, or what stands in its `function`."""
    function = entry.get("function")
    return function if type(function) is dict and entry.get("name") is None else entry


def _entries(document: object) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each tool."""
    tools = document.get("tools") if isinstance(document, dict) else document
    if not isinstance(tools, list):
        _refuse("tools" if isinstance(document, dict) else "document", "not a list of tools")
    if len(tools) > MAX_TOOLS:
        _refuse("tools", f"more than {MAX_TOOLS} tools")
    for position, entry in enumerate(tools):
        yield f"tools[{position}]", entry


def _tool(entry: Any, place: str, permission: str, prefix: str) -> Tool:
    if not isinstance(entry, dict):
        _refuse(place, "not an object")
    if _inner(entry) is not entry:
        entry, place = _inner(entry), f"{place}.function"
    name = _member(entry, "name", str, place)
    if name is None:
        _refuse(f"{place}.name", "missing")
    annotations = _member(entry, "annotations", dict, place) or {}
    title = _member(entry, "title", str, place) or _member(annotations, "title", str, f"{place}.annotations") or ""
    description = _member(entry, "description", str, place) or ""
    harmless = _member(annotations, "readOnlyHint", bool, f"{place}.annotations")
    effect: Effect = "read" if harmless else "write"
    field, parameters = _schema_of(entry, place)
    keywords = tuple(words_of(f"{prefix}{name}\n{title}\n{description}"))
    try:
        return Tool(prefix + name, description, keywords, permission, effect, parameters=parameters)
    except CatalogError as error:
        at = field if error.field == "parameters" else error.field
        raise ToolListError("bad_tool_list", f"{place}.{at}", str(error.reason)) from None


def _schema_of(entry: dict[str, Any], place: str) -> tuple[str, dict[str, Any]]:
    """Return the name under which a schema stands, and the schema."""
    found = [(key, schema) for key in _SCHEMAS if (schema := _member(entry, key, dict, place)) is not None]
    if len(found) > 1:
        _refuse(f"{place}.{found[1][0]}", f"a second schema beside {found[0][0]}")
    return found[0] if found else (_SCHEMAS[0], dict(_NO_SCHEMA))


def _member(entry: dict[str, Any], key: str, kind: type, place: str) -> Any:
    """Return `entry[key]`, None where it is missing or null. Refuses one of another type."""
    value = entry.get(key)
    if value is not None and type(value) is not kind:
        words = {str: "not a text", dict: "not an object", bool: "neither true nor false"}
        _refuse(f"{place}.{key}", words[kind])
    if isinstance(value, str) and len(value) > MAX_DESCRIPTION:
        _refuse(f"{place}.{key}", f"more than {MAX_DESCRIPTION} characters")
    return value


def _refuse(place: str, reason: str) -> NoReturn:
    raise ToolListError("bad_tool_list", place, reason)


def _text(data: bytes) -> str:
    """Decode a file: UTF-8 with or without its mark, UTF-16 with one."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    wide = data.startswith(marks) and not data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if wide else "UTF-8"
        raise ToolListError("not_json", f"byte {error.start}", f"the file is not in {encoding}") from None


class _Doubled(dict[str, Any]):
    """An object in which a key stands twice; there is no such thing in a document that is returned."""

    key = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    doubled = _Doubled(members)
    seen: set[str] = set()
    doubled.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return doubled


def _no_constant(name: str) -> NoReturn:
    raise ToolListError("not_json", "document", f"{name} is no JSON number")


def _strict_json(text: str) -> object:
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ToolListError("not_json", f"line {error.lineno} column {error.colno}", error.msg) from None
    except RecursionError:
        raise ToolListError("not_json", "document", "nested too deep") from None
    except ToolListError:
        raise
    except ValueError:
        raise ToolListError("not_json", "document", "a number with too many digits") from None
    _refuse_doubled_keys(document)
    return document


def _refuse_doubled_keys(document: object) -> None:
    # The walk holds one step a level, and spells a place out only when it is named: a long key above many
    # members would otherwise stand in memory once for each of them.
    steps: list[str] = []
    levels = [_containers([document], named=False)]
    while levels:
        for step, value in levels[-1]:
            steps.append(step)
            if isinstance(value, _Doubled):
                place = "".join(steps).lstrip(".") or "document"
                raise ToolListError("not_json", place, f"the key {value.key!r} stands twice")
            levels.append(_containers(value))
            break
        else:
            levels.pop()
            del steps[len(levels) - 1 :]


def _containers(
    value: dict[str, Any] | list[Any], *, named: bool = True
) -> Iterator[tuple[str, dict[str, Any] | list[Any]]]:
    """Yield the members of a value that have members themselves, each with its step in a place."""
    if isinstance(value, dict):
        for key, member in value.items():
            if isinstance(member, dict | list):
                yield f".{key}", member
    else:
        for i, member in enumerate(value):
            if isinstance(member, dict | list):
                yield f"[{i}]" if named else "", member
