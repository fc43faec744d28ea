"""How much tool output goes into the next request: a limit for each tool, a limit for each message.

A result that is too large is written to a file, and the model reads a *preview*: how long the result
is, where the whole is, how it begins. What was decided once stays, because the provider's prompt
cache holds only as long as the earlier part of the conversation does not change by a byte.

The words
    content, size, preview    as in `companions.tools.result_store`; a size is in code points of Python
    threshold    size up to which a result of a tool stays whole (layer 1)
    group        the results that are sent in one user message; only an assistant message ends one
    fresh        never seen by the message budget: the only ones about which it decides
    frozen       seen and left whole: stays whole for ever, whatever the limit is later
    must_reapply seen and replaced: the same replacement for ever, by a look into a dict

What a user of this module may rely on
    B1  The threshold is the remote override, else the tool's own limit, else 50,000 characters. A tool
        with an infinite limit is exempt from everything, from the override and from the message
        budget too: the tool that reads a stored result back must not be replaced again.
    B2  The largest fresh results are replaced until what is *sent* is within the limit: a preview counts
        with its own size, and a result that a preview would not shorten is left alone. What cannot be
        met is reported and never hidden.
    B3  Once a call id is seen its fate does not change, also across `to_text` and `from_text`. Applying it
        again reads no file and cannot fail. An id that comes back with another content is reported, and
        that content is a result of its own, with its own fate: no preview ever stands in for something
        else, and nothing passes a limit by its name.
    B4  The groups that are measured are the messages that are sent: both come from one function.
    B5  No result that leaves here is empty (C8-074).
    B6  When the disk refuses, the result stays whole, its id is frozen as not replaced, and the error is
        reported.

Greedy by size replaces the smallest *number* of results, which saves the model the most later reads. It
is not optimal in what those reads cost: of 50, 50, 50, 47 and 6 thousand characters it replaces 50 where
6 would do (C8-083). Without a prompt cache the whole state could go: each turn would choose anew among
all results (C8-084).

What it does not do: a result with a block that is no text is never replaced, because a file of text could
not give it back. Texts, previews and files are in `companions.tools.result_store`, which has the unit of all sizes.
Source: the orchestration document, sections 8.4 to 8.7 (claims C8-043 to C8-074, C8-077, C8-080 to C8-084).
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from chapter10.canonical import canonical
from chapter10.companions.tools.result_store import (
    BudgetError,
    Log,
    ResultStore,
    ResultStoreError,
    StoredResult,
    check_name,
    content_size,
    content_text,
    is_name,
    preview,
    preview_size,
    visible_content,
    whole_number,
)
from chapter10.companions.tools.result_text import encoded

__all__ = [
    "DEFAULT_MAX_RESULT_CHARS",
    "MAX_SEEN",
    "MAX_STATE_CHARS",
    "MESSAGE_LIMIT_CHARS",
    "BudgetReport",
    "Candidate",
    "GroupReport",
    "Message",
    "Partition",
    "ReplacementState",
    "ResultBudget",
    "SeenResult",
    "ShapedResult",
    "group_results",
    "merge_messages",
    "partition",
    "select_fresh_to_replace",
    "threshold",
]

DEFAULT_MAX_RESULT_CHARS: Final = 50_000
"""Code points up to which a result stays whole, if neither the tool nor the remote configuration says else."""
MESSAGE_LIMIT_CHARS: Final = 200_000
"""Code points of all results of one message, after replacing."""
MAX_SEEN: Final = 100_000
"""Call ids that one state remembers; a conversation that needs more is refused, not forgotten."""
MAX_STATE_CHARS: Final = 500_000_000
"""Code points of a saved state."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
Message = dict[str, Any]
L = TypeVar("L")
"""`{"role", "content"}`; roles are assistant, user, attachment, progress and system."""


def threshold(tool_limit: float | None = None, override: int | None = None) -> float:
    """Return up to which size a result stays whole: infinity, else override, else tool, else default.

    Both are whole numbers from 0 up; the tool's limit may be `math.inf`. Raises `BudgetError`
    (`bad_input`). Source: claims C8-044, C8-046.
    """
    exempt = type(tool_limit) is float and tool_limit == math.inf
    if tool_limit is not None and not exempt:
        whole_number(tool_limit)
    if override is not None:
        whole_number(override)
    if exempt:
        return math.inf
    if override is not None:
        return override
    return DEFAULT_MAX_RESULT_CHARS if tool_limit is None else tool_limit


@dataclass(frozen=True, slots=True)
class Candidate:
    """A result in the decision: its size, and the size of what would stand in for it."""

    call_id: str
    size: int
    replacement_size: int = 0


def select_fresh_to_replace(fresh: Sequence[Candidate], frozen_size: int, limit: int) -> list[Candidate]:
    """Return the fresh results to replace, largest first, until the total is within the limit.

    `frozen_size` is the size of what is sent anyway. Equality is within the limit (C8-054). A candidate
    is subtracted with `size - replacement_size` and skipped if that is not above zero, so that the
    total of what is *sent* is within the limit, if it can be (X-33). With `replacement_size` 0 this is
    the document's formula to the letter (C8-053). Equal sizes keep their order.
    """
    total = frozen_size + sum(candidate.size for candidate in fresh)
    return _replace_largest(fresh, total, limit, lambda candidate: True)


def _replace_largest(
    fresh: Sequence[Candidate], total: int, limit: int, replace: Callable[[Candidate], bool]
) -> list[Candidate]:
    """The greedy choice; `replace` does it and says whether it could, for the disk may refuse."""
    selected = []
    for candidate in sorted(fresh, key=lambda candidate: -candidate.size):
        if total <= limit:
            break
        saved = candidate.size - candidate.replacement_size
        if saved > 0 and replace(candidate):
            selected.append(candidate)
            total -= saved
    return selected


@dataclass(frozen=True, slots=True)
class SeenResult:
    """What is remembered of a result: digest and size of the original, where the whole is if replaced."""

    digest: str
    chars: int
    path: str | None = None


@dataclass(slots=True)
class ReplacementState:
    """The decisions of a conversation (C8-059). It holds no result, only digests, sizes and previews.

    `seen_ids`: call ids whose fate is decided. `replacements`: id -> the text that stands in. An id that
    is in the first and not in the second is frozen whole. `results`: id -> what is known of the original.
    Nothing is ever taken out.
    """

    seen_ids: set[str] = field(default_factory=set)
    replacements: dict[str, str] = field(default_factory=dict)
    results: dict[str, SeenResult] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the state as canonical JSON: the same state gives the same bytes."""
        seen = [
            {
                "chars": self.results[call_id].chars,
                "digest": self.results[call_id].digest,
                "id": call_id,
                "path": self.results[call_id].path,
                "replacement": self.replacements.get(call_id),
            }
            for call_id in sorted(self.seen_ids)
        ]
        return canonical({"seen": seen, "version": 1})

    @classmethod
    def from_text(cls, text: str) -> ReplacementState:
        """Read a saved state back. Raises `BudgetError` (`bad_state`) for anything that `to_text` did not write."""
        try:
            if not isinstance(text, str) or len(text) > MAX_STATE_CHARS:
                raise ValueError
            value = json.loads(text)
            state = cls()
            for item in value["seen"]:
                state._load(item)
            if state.to_text() != text:
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError, AttributeError):
            raise BudgetError("bad_state") from None
        return state

    def _load(self, item: Mapping[str, Any]) -> None:
        call_id, digest, chars, path = item["id"], item["digest"], item["chars"], item["path"]
        replacement = item["replacement"]
        fits = (
            is_name(call_id)
            and isinstance(digest, str)
            and _DIGEST.fullmatch(digest)
            and type(chars) is int
            and chars >= 0
            and (path is None) == (replacement is None)
            and (path is None or (isinstance(path, str) and isinstance(replacement, str) and replacement))
        )
        if not fits:
            raise ValueError
        self.decide(call_id, SeenResult(digest, chars, path), replacement)

    def decide(self, call_id: str, result: SeenResult, replacement: str | None) -> None:
        """Freeze the fate of an id, once. Raises `BudgetError`: `state_full`, `bad_input` for a second decision."""
        if call_id in self.seen_ids:
            raise BudgetError("bad_input", "decided before")
        if len(self.seen_ids) >= MAX_SEEN:
            raise BudgetError("state_full")
        self.results[call_id] = result
        if replacement is not None:
            self.replacements[call_id] = replacement
        self.seen_ids.add(call_id)


@dataclass(frozen=True, slots=True)
class Partition:
    """Call ids by fate, each in the order given (C8-063)."""

    must_reapply: tuple[str, ...]
    frozen: tuple[str, ...]
    fresh: tuple[str, ...]


def partition(call_ids: Iterable[str], state: ReplacementState) -> Partition:
    """Divide call ids by what was decided about them: three disjoint parts that cover all."""
    ids = tuple(call_ids)
    return Partition(
        must_reapply=tuple(i for i in ids if i in state.replacements),
        frozen=tuple(i for i in ids if i in state.seen_ids and i not in state.replacements),
        fresh=tuple(i for i in ids if i not in state.seen_ids),
    )


def merge_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as they are sent: alternating, with the results of a turn in one user message.

    User and attachment messages up to the next assistant message become one user message, all
    `tool_result` blocks first and everything else after them, each in its order. Progress and system
    messages are for the display and not sent; they end no group. Assistant messages in a row become
    one. Content is copied. Raises `BudgetError` (`bad_input`). Source: claims C8-066, C8-068.
    """
    merged: list[Message] = []
    for role, run in _runs(messages):
        blocks = [copy.deepcopy(block) for block in _blocks(run)]
        blocks.sort(key=lambda block: role == "user" and block.get("type") != "tool_result")
        if blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def group_results(messages: Sequence[Message]) -> list[list[str]]:
    """Return the call ids of each group of results, in the order of sending; groups without results are left out."""
    groups = [_results(message) for message in merge_messages(messages)]
    return [[block["tool_use_id"] for block in blocks] for blocks in groups if blocks]


@dataclass(frozen=True, slots=True)
class ShapedResult:
    """What layer 1 made of a result. `stored` if it was replaced; `error` if it should have been."""

    content: Any
    stored: StoredResult | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What layer 2 did with one message; sizes in code points, ids in the order of sending.

    `changed`: ids that came back with another content than the one that was decided about.
    """

    size_before: int
    size_after: int
    limit: int
    must_reapply: tuple[str, ...]
    frozen: tuple[str, ...]
    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    failed: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def over_limit(self) -> bool:
        """Whether the limit could not be met."""
        return self.size_after > self.limit


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """One report for each group of results."""

    groups: tuple[GroupReport, ...]

    @property
    def over_limit(self) -> bool:
        """Whether a message is above the limit though everything was tried."""
        return any(group.over_limit for group in self.groups)


class ResultBudget:
    """Both layers over one store and one state; one object for each conversation.

        shaped = budget.shape_result(call_id, tool, content)      # when a tool has ended (C8-077)
        messages, report = budget.apply(transcript)               # before the next request (C8-080)

    `tool_limits`: tool name -> its own limit, `math.inf` for exempt. `overrides`: tool name -> remote limit.
    `message_limit`: code points for the results of one message. `log(name, data)` hears events, and
    what it raises is ignored. Raises `BudgetError` (`bad_input`).
    """

    def __init__(
        self,
        store: ResultStore,
        *,
        state: ReplacementState | None = None,
        tool_limits: Mapping[str, float] | None = None,
        overrides: Mapping[str, int] | None = None,
        message_limit: int = MESSAGE_LIMIT_CHARS,
        log: Log | None = None,
    ) -> None:
        self.store = store
        self.state = ReplacementState() if state is None else state
        self._tool_limits = _limits(tool_limits)
        self._overrides = _limits(overrides)
        for name in (*self._tool_limits, *self._overrides):
            threshold(self._tool_limits.get(name), self._overrides.get(name))
        self._message_limit = whole_number(message_limit)
        self._log = _unheard(log)

    def threshold(self, tool_name: str) -> float:
        """Return the limit of a tool by the three levels (B1). Raises `BudgetError` (`bad_input`) for no name."""
        check_name(tool_name)
        return threshold(self._tool_limits.get(tool_name), self._overrides.get(tool_name))

    def exempt(self, tool_name: str) -> None:
        """Never replace a result of this tool, whatever is configured (B1)."""
        check_name(tool_name)
        self._tool_limits[tool_name] = math.inf

    def same_limits(self, name: str, tool_name: str) -> None:
        """Give another name of a tool the limits of the tool; for whoever has to write names in another way."""
        check_name(name)
        if tool_name in self._tool_limits:
            self._tool_limits[name] = self._tool_limits[tool_name]
        if tool_name in self._overrides:
            self._overrides[name] = self._overrides[tool_name]

    def shape_result(self, call_id: str, tool_name: str, content: object, *, is_error: bool = False) -> ShapedResult:
        """Make one result visible and, if it is over its tool's threshold, replace it by a preview.

        A replaced result is decided: the message budget applies the same text again. A second call for
        a decided id and content applies the decision. Raises `BudgetError` (`bad_input`, `state_full`).
        """
        check_name(call_id)
        check_name(tool_name)
        content = visible_content(tool_name, content, is_error=is_error, log=self._log)
        key = self._key(call_id, content)
        if key in self.state.seen_ids:
            return ShapedResult(self.state.replacements.get(key, content))
        text = content_text(content)
        size = content_size(content)
        if text is None or size <= self.threshold(tool_name) or size <= preview_size(text, self.store.label):
            return ShapedResult(content)
        error = self._replace(key, text)
        if error is not None:
            return ShapedResult(content, error=error)
        seen = self.state.results[key]
        stored = StoredResult(seen.path or "", seen.chars, seen.digest)
        return ShapedResult(self.state.replacements[key], stored=stored)

    def apply(self, messages: Sequence[Message]) -> tuple[list[Message], BudgetReport]:
        """Return the messages to send, within the limit where that can be, and what was done.

        `messages` is the transcript and is not changed; what was decided in earlier turns comes out as it
        did then. Raises `BudgetError` (`bad_input`, `state_full`).
        """
        merged = merge_messages(messages)
        tools = _tool_names(merged)
        groups = [blocks for message in merged if (blocks := _results(message))]
        all_contents = [self._contents(blocks, tools) for blocks in groups]
        keys = [{i: self._key(i, content) for i, content in contents.items()} for contents in all_contents]
        fresh = {key for group in keys for key in group.values() if key not in self.state.seen_ids}
        if len(self.state.seen_ids) + len(fresh) > MAX_SEEN:
            raise BudgetError("state_full")
        # From here on nothing is refused, so that decisions are made for all messages or for none.
        reports = [self._apply_to_group(*group, tools) for group in zip(groups, all_contents, keys, strict=True)]
        return merged, BudgetReport(tuple(reports))

    def _contents(self, blocks: Iterable[Message], tools: Mapping[str, str]) -> dict[str, Any]:
        """What each call of one message answers, never empty. Two answers for one call are refused."""
        contents: dict[str, Any] = {}
        for block in blocks:
            call_id, tool = block["tool_use_id"], tools.get(block["tool_use_id"], "tool")
            if call_id in contents:
                raise BudgetError("bad_input", "two results for one call")
            log = None if call_id in self.state.seen_ids else self._log
            is_error = block.get("is_error") is True
            contents[call_id] = visible_content(tool, block.get("content"), is_error=is_error, log=log)
        return contents

    def _key(self, call_id: str, content: Any) -> str:
        """Return under which id the fate of a content stands: the call's, or if that has another content, one of both.

        Such a change is reported (`result_changed`).
        """
        decided = self.state.results.get(call_id)
        if decided is None or content == self.state.replacements.get(call_id):
            return call_id
        seen = _seen(content)
        if (seen.digest, seen.chars) == (decided.digest, decided.chars):
            return call_id
        self._log("result_changed", {"call_id": call_id})
        return hashlib.sha256(canonical([call_id, seen.digest]).encode("utf-8")).hexdigest()

    def _apply_to_group(
        self, blocks: list[Message], contents: dict[str, Any], keys: dict[str, str], tools: Mapping[str, str]
    ) -> GroupReport:
        """Decide about the fresh results of one message, then put every replacement in its place."""
        parts = partition(keys.values(), self.state)
        ids = {key: call_id for call_id, key in keys.items()}
        # What was decided goes into the sum as it is sent.
        decided = [self.state.replacements.get(key, contents[ids[key]]) for key in (*parts.must_reapply, *parts.frozen)]
        replaced, failed = self._decide(
            parts.fresh,
            sum(map(content_size, decided)),
            {key: contents[ids[key]] for key in parts.fresh},
            {key: tools.get(ids[key], "tool") for key in parts.fresh},
        )
        for block in blocks:
            call_id = block["tool_use_id"]
            block["content"] = self.state.replacements.get(keys[call_id], contents[call_id])
        report = GroupReport(
            size_before=sum(content_size(content) for content in contents.values()),
            size_after=sum(content_size(block["content"]) for block in blocks),
            limit=self._message_limit,
            must_reapply=tuple(ids[key] for key in parts.must_reapply),
            frozen=tuple(ids[key] for key in parts.frozen),
            replaced=tuple(ids[key] for key in parts.fresh if key in replaced),
            kept=tuple(ids[key] for key in parts.fresh if key not in replaced),
            failed=tuple(ids[key] for key in parts.fresh if key in failed),
            changed=tuple(call_id for call_id, key in keys.items() if key != call_id),
        )
        if report.over_limit:
            self._log("message_over_limit", {"size": report.size_after, "limit": report.limit})
        return report

    def _decide(
        self, fresh: Sequence[str], frozen_size: int, contents: Mapping[str, Any], tools: Mapping[str, str]
    ) -> tuple[set[str], set[str]]:
        """Choose among the fresh, store what is chosen, and freeze all of them."""
        texts: dict[str, str] = {}
        candidates = []
        for call_id in fresh:
            text = content_text(contents[call_id])
            if text is not None and self.threshold(tools[call_id]) != math.inf:
                texts[call_id] = text
                size = content_size(contents[call_id])
                candidates.append(Candidate(call_id, size, preview_size(text, self.store.label)))
        total = frozen_size + sum(content_size(contents[call_id]) for call_id in fresh)
        failed: set[str] = set()

        def replace(candidate: Candidate) -> bool:
            if self._replace(candidate.call_id, texts[candidate.call_id]) is None:
                return True
            failed.add(candidate.call_id)
            return False

        selected = _replace_largest(candidates, total, self._message_limit, replace)
        for call_id in fresh:
            if call_id not in self.state.seen_ids:
                self.state.decide(call_id, _seen(contents[call_id]), None)
        return {candidate.call_id for candidate in selected}, failed

    def _replace(self, call_id: str, text: str) -> str | None:
        """Store a text and decide for its preview; or freeze it whole and return the error's code (B6)."""
        if len(self.state.seen_ids) >= MAX_SEEN:
            raise BudgetError("state_full")  # before anything is written
        try:
            stored = self.store.save(text)
        except ResultStoreError as error:
            self.state.decide(call_id, _seen(text), None)
            self._log("result_not_stored", {"call_id": call_id, "cause": type(error.__cause__).__name__})
            return error.code
        seen = SeenResult(stored.digest, stored.chars, stored.path)
        self.state.decide(call_id, seen, preview(text, stored.path))
        self._log("result_stored", {"call_id": call_id, "path": stored.path, "chars": stored.chars})
        return None


def _unheard(log: Log | None) -> Log:
    """Return a log that raises nothing: who hears an event is no part of the decision."""

    def tell(name: str, data: dict[str, Any]) -> None:
        if log is not None:
            with suppress(Exception):
                log(name, data)

    return tell


def _seen(content: object) -> SeenResult:
    """Digest and size of a content; a text and a block with that text are the same content."""
    text = content_text(content)
    sha = hashlib.sha256()
    for chunk in encoded(canonical(content) if text is None else text):
        sha.update(chunk)
    return SeenResult(sha.hexdigest(), content_size(content) if text is None else len(text))


def _limits(limits: Mapping[str, L] | None) -> dict[str, L]:
    """Return a copy of limits by tool name."""
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise BudgetError("bad_input", "the limits are no mapping")
    for name in limits:
        check_name(name)
    return dict(limits)


def _runs(messages: Sequence[Message]) -> list[tuple[str, list[Message]]]:
    """Divide a transcript into runs of one sender; the one place that knows where a group ends (B4)."""
    if type(messages) not in (list, tuple):
        raise BudgetError("bad_input", "not a list of messages")
    runs: list[tuple[str, list[Message]]] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if type(role) is str and role in ("progress", "system"):
            continue
        if type(role) is not str or role not in ("assistant", "user", "attachment"):
            raise BudgetError("bad_input", "a message without a role that is known")
        sender = "assistant" if role == "assistant" else "user"
        if not runs or runs[-1][0] != sender:
            runs.append((sender, []))
        runs[-1][1].append(message)
    return runs


def _blocks(run: Iterable[Message]) -> Iterator[dict[str, Any]]:
    for message in run:
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content.strip() else []
        if not isinstance(content, list):
            raise BudgetError("bad_input", "content is text or a list of blocks")
        for block in content:
            if not isinstance(block, dict) or not isinstance(block.get("type"), str):
                raise BudgetError("bad_input", "a block is a dict with a type")
            if block["type"] == "tool_result":
                check_name(block.get("tool_use_id"))
            yield block


def _results(message: Message) -> list[dict[str, Any]]:
    if message["role"] != "user":
        return []
    return [block for block in message["content"] if block["type"] == "tool_result"]


def _tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """Which tool each call id names, as the assistant wrote it."""
    return {
        block["id"]: block["name"]
        for message in messages
        if message["role"] == "assistant"
        for block in message["content"]
        if block.get("type") == "tool_use" and is_name(block.get("id")) and is_name(block.get("name"))
    }
