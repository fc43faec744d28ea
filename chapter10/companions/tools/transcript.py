"""What providers take: a valid transcript, names and forms of tools; and that its earlier part did not change.

A message is `{"role": "user" | "assistant", "content": [block, ...]}`, as `result_budget.merge_messages`
sends it. A block is `{"type": "text", "text"}`, or in an assistant message `{"type": "tool_use", "id",
"name", "input"}`, or in a user message `{"type": "tool_result", "tool_use_id", "content"}` with
`"is_error": True` for a failure. An assistant message may have blocks of other kinds.

What a provider asks for, and `problems_of` looks at
    P1  Roles alternate, the first is the user's, and no content is empty.
    P2  The results of a turn stand in the very next message, all of them, before anything else in it.
    P3  Each call has exactly one result; no result is without its call; the order is that of the calls.
    P4  An id is used once in a conversation, an input is an object, no result is empty.

A provider's prompt cache holds as long as the beginning of the request stays the same bytes. `prefix_digests`
gives one fingerprint for each beginning, block by block: a request continues another if the digests of the
first are the beginning of the digests of the second.

Names of tools are `[a-zA-Z0-9_-]{1,64}`. One that fits stays. Another one is written with `_` for every other sign and
cut, and gets a digest of itself at its end where that is taken: so no tool is dropped, and whoever keeps the pairs
finds the way back. A list of tools has two common forms (`tools_for`), and so have messages:

    input_schema    blocks, as above
    function        assistant: `content` is a text or null, and `tool_calls` hold the calls, each with its arguments as
                    JSON text; each result is a message `{"role": "tool", "tool_call_id", "content"}` of its own

Blocks are kept, and the other form is made of them for sending (`messages_for`) and read back to them (`blocks_of`).
It has no place for blocks that only their provider knows, and no mark for a failure, whose content says that it is one.

What it does not do: it repairs nothing, and it knows no limit of a provider.
Source: the orchestration document, sections 8.2, 8.5 and 8.6 (claims C8-032, C8-058, C8-066, C8-074).
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from chapter10.canonical import canonical, digest

__all__ = [
    "MAX_NAME",
    "MAX_PROBLEMS",
    "Message",
    "Shape",
    "blocks_of",
    "fits",
    "messages_for",
    "prefix_digests",
    "problems_of",
    "provider_name",
    "tools_for",
]

MAX_PROBLEMS: Final = 100
"""The most problems that are listed."""

Message = dict[str, Any]
MAX_NAME: Final = 64
"""Characters of a name."""
Shape = Literal["input_schema", "function"]
"""A flat tool with `input_schema` and messages of blocks, or a `function` with `parameters` and `tool_calls`."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST: Final = 12


def problems_of(messages: Sequence[Message]) -> list[str]:
    """Return what a provider would refuse in a transcript, one line each; an empty list if it is valid.

    A transcript may end with either role; calls in its last message are calls without results.
    """
    found: list[str] = []
    ids: set[str] = set()
    waiting: list[str] = []  # the calls of the message before
    for place, message in enumerate(messages):
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role != ("assistant" if place % 2 else "user"):
            found.append(f"message {place}: {role} is not in its turn")
        if not isinstance(content, list) or not content:
            found.append(f"message {place}: no content")
            content = []
        if not all(isinstance(block, dict) for block in content):
            found.append(f"message {place}: a block that is no object")
            content = [block for block in content if isinstance(block, dict)]
        results = [block for block in content if block.get("type") == "tool_result"]
        if [block.get("tool_use_id") for block in results] != waiting:
            found.append(f"message {place}: not exactly the results of the calls before, in their order")
        if content[: len(results)] != results:
            found.append(f"message {place}: something stands before a result")
        found += [f"message {place}: {problem}" for block in content for problem in _block(block, role, ids)]
        waiting = [block.get("id", "") for block in content if block.get("type") == "tool_use"]
    if waiting:
        found.append("the end: calls without results")
    return found[:MAX_PROBLEMS]


def prefix_digests(messages: Sequence[Message], head: object = None) -> list[str]:
    """Return for each block the SHA-256 of everything up to and with it, 64 hexadecimal digits.

    `head`: what a request sends before its messages, such as its tools; a JSON value. Raises
    `CanonicalError` for a block that is no JSON value.
    """
    sha = hashlib.sha256(canonical(head).encode("utf-8"))
    digests = []
    for message in messages:
        sha.update(b"\n" + canonical(message["role"]).encode("utf-8"))
        for block in message["content"]:
            sha.update(b"\n" + canonical(block).encode("utf-8"))
            digests.append(sha.hexdigest())
    return digests


def fits(name: object) -> bool:
    """Say whether providers take this name of a tool."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def provider_name(name: str, taken: Container[str] = ()) -> str:
    """Return a name that fits and is not taken: the name itself, if it can be."""
    made = name if fits(name) else (_OTHER.sub("_", name)[:MAX_NAME] or "_")
    if made not in taken:
        return made
    return f"{made[: MAX_NAME - _DIGEST - 1]}_{digest(name)[:_DIGEST]}"


def tools_for(definitions: Iterable[Mapping[str, Any]], shape: Shape) -> list[dict[str, Any]]:
    """Return definitions (`name`, `description`, `parameters`) as a provider takes them. `ValueError` for no shape."""
    if shape == "input_schema":
        return [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in definitions
        ]
    if shape == "function":
        parts = ("name", "description", "parameters")
        return [{"type": "function", "function": {part: one[part] for part in parts}} for one in definitions]
    raise ValueError("neither input_schema nor function")


def messages_for(messages: Iterable[Message], shape: Shape) -> list[Message]:
    """Return messages of blocks, valid ones, as a provider takes them. `ValueError` for no shape."""
    if shape == "input_schema":
        return copy.deepcopy(list(messages))
    if shape != "function":
        raise ValueError("neither input_schema nor function")
    sent: list[Message] = []
    for message in messages:
        blocks, role = message["content"], message["role"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        sent += [{"role": "tool", "tool_call_id": one["tool_use_id"], "content": _text(one)} for one in results]
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        calls = [_tool_call(block) for block in blocks if block["type"] == "tool_use"]
        if calls:
            sent.append({"role": role, "content": text or None, "tool_calls": calls})
        elif text:
            sent.append({"role": role, "content": text})
    return sent


def blocks_of(message: Mapping[str, Any]) -> list[Message]:
    """Return the blocks of an assistant message with `tool_calls`, as `Gateway.turn` takes them.

    Arguments stay the text that the model wrote. Where an entry has no `function`, the call has no name, so that it
    gets its answer as such. What is no list of calls holds none.
    """
    text, calls = message.get("content"), message.get("tool_calls")
    blocks: list[Message] = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
    for call in calls if isinstance(calls, list) else ():
        given = call if isinstance(call, Mapping) else {}
        function = given.get("function")
        asked = function if isinstance(function, Mapping) else {}
        block = {"type": "tool_use", "id": given.get("id"), "name": asked.get("name")}
        blocks.append({**block, "input": asked.get("arguments", "")})
    return blocks


def _tool_call(block: Message) -> Message:
    function = {"name": block["name"], "arguments": canonical(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


def _text(result: Message) -> str:
    content = result["content"]
    return content if isinstance(content, str) else canonical(content)


def _block(block: Message, role: object, ids: set[str]) -> list[str]:
    kind = block.get("type")
    if kind == "text":
        return [] if str(block.get("text", "")).strip() else ["an empty text"]
    if kind == "tool_use" and role == "assistant":
        call_id = block.get("id")
        problems = [] if isinstance(block.get("input"), dict) else ["an input that is no object"]
        if not isinstance(call_id, str) or not call_id or call_id in ids:
            problems.append("an id that is missing or was used before")
        else:
            ids.add(call_id)
        return problems
    if role == "assistant" and isinstance(kind, str) and kind != "tool_result":
        return []  # of a kind that only its provider knows
    if kind == "tool_result" and role == "user":
        return [] if _has_content(block.get("content")) else ["an empty result"]
    return [f"a block that does not belong there: {kind}"]


def _has_content(content: object) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return isinstance(content, list) and any(
        isinstance(block, dict) and (block.get("type") != "text" or str(block.get("text", "")).strip())
        for block in content
    )
