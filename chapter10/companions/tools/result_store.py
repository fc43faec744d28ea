"""A tool's result as text: never empty, shown by a bounded preview, stored whole as a file of one folder.

The words
    content    what a result holds: a text, or a list of blocks of which `text` blocks count
    size       code points of Python of all text in a content; every `_chars` limit is in this unit
    preview    the text that stands in for a result; at most `PREVIEW_CHARS` long

What a user of this module may rely on
    R1  No content that comes out of `visible_content` is empty; what was empty says which tool was silent.
    R2  A preview is bounded for every input, shows head and tail, cuts between characters, and says that it is
        partial.
    R3  A stored file is complete or not there, holds the whole text, and lies in one folder. Its name is
        the digest of the text: no id, name or path of a caller ever becomes part of a path.
    R4  Storing a text makes no second copy of it in memory, and cutting one does not walk through it.

What it does not do: it counts no tokens, no image data and no bytes, it never deletes a stored file, and
it syncs the file but not the folder, so that a crash of the machine may lose the newest name.
The decisions what to replace are in `companions.tools.result_budget`.
Source: the orchestration document, sections 8.4 and 8.6 (claims C8-048 to C8-050, C8-069 to C8-074).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from chapter10.canonical import CanonicalError, CodedError
from chapter10.companions.tools.result_text import canonical_text, cut_text, encoded, is_empty, whole_characters

__all__ = [
    "MAX_STORED_CHARS",
    "MAX_TEXT",
    "PREVIEW_CHARS",
    "BudgetError",
    "Log",
    "ResultStore",
    "ResultStoreError",
    "StoredResult",
    "check_name",
    "content_size",
    "content_text",
    "is_name",
    "preview",
    "preview_size",
    "visible_content",
    "whole_number",
]

PREVIEW_CHARS: Final = 2_000
"""Code points of a whole preview, its header included: the document's "about 2 KB"."""
MAX_STORED_CHARS: Final = 100_000_000
"""Code points of a result that the store accepts, and of one `read`."""
MAX_TEXT: Final = 200
"""Characters of a call id or a tool name."""

_CHUNK_CHARS: Final = 65_536
_NAME: Final = re.compile(r"[0-9a-f]{64}\.txt")
_NO_DIGEST: Final = "0" * 64
_PARTIAL_TRIES: Final = 1_000

Log = Callable[[str, dict[str, Any]], None]
"""Hears an event by name with its data. Names: `tool_empty_result`, `result_stored`,
`result_not_stored`, `message_over_limit`, `result_changed`."""


class BudgetError(CodedError, ValueError):
    """Raised when the caller breaks the contract; nothing was changed.

    `bad_input` (a wrong type, a limit out of range, a content that is no JSON), `bad_state` (a saved
    state that is not ours), `state_full`, `not_stored` (no stored result has that path). `reason` says
    it in a few words and holds no part of a result.
    """

    reason: str

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code)
        self.reason = reason


class ResultStoreError(CodedError, RuntimeError):
    """Raised when the disk refuses: `result_not_stored` or `result_not_read`; the cause is attached."""


def visible_content(tool_name: str, content: object, *, is_error: bool = False, log: Log | None = None) -> Any:
    """Return `content` as text or blocks that are not empty (C8-069).

    Emptiness is tested on the value itself, before anything becomes text (X-14). A value that is neither
    text nor blocks becomes its canonical JSON; lone surrogates become U+FFFD. An empty result logs
    `tool_empty_result` with `{"toolName": …}`; an empty error gets a text of its own. Raises
    `BudgetError` (`bad_input`) for a value that is no JSON.
    """
    if is_empty(content):
        if log is not None:
            log("tool_empty_result", {"toolName": tool_name})
        return f"({tool_name} failed with no message)" if is_error else f"({tool_name} completed with no output)"
    if isinstance(content, str):
        return whole_characters(content)
    try:
        text = canonical_text(content)
    except CanonicalError as error:
        raise BudgetError("bad_input", error.reason) from None
    is_blocks = isinstance(content, list) and all(isinstance(block, dict) and "type" in block for block in content)
    return json.loads(text) if is_blocks else text


def content_size(content: object) -> int:
    """Return the code points of all text in a content; images and other blocks count as nothing."""
    if isinstance(content, str):
        return len(content)
    return sum(len(text) for text in _texts(content))


def content_text(content: object) -> str | None:
    """Return the text of a content, blocks joined by a line end, or None if a block is no text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        return "\n".join(_texts(content))
    return None


def preview(text: str, path: str, limit: int = PREVIEW_CHARS) -> str:
    """Return a header with length and place, and head and tail of `text`: at most `limit` code points.

    At most half of the text is shown, so that a preview is always partial and always says so. How it is cut
    stands in `result_text.cut_text`; the cost does not depend on the length of `text`. Source: claim C8-048.
    """
    header = (
        f"[Partial result: only head and tail of {len(text)} characters. "
        f"The whole is in {path}; read it there if you need it.]\n"
    )
    shown = max(0, min(limit - len(header), len(text) // 2))
    return (header + cut_text(text, shown))[:limit]


def preview_size(text: str, folder: str) -> int:
    """Return how long the preview of `text` will be, before it is stored: a digest has a fixed length."""
    return len(preview(text, f"{folder}/{_NO_DIGEST}.txt"))


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result on disk: where (relative, with `/`), how long, and the SHA-256 of its UTF-8."""

    path: str
    chars: int
    digest: str


class ResultStore:
    """Whole results as files of one folder.

    `folder` is made if it is missing, must not be a link, and stays the one that it was: one that was put in its
    place, link or folder, is neither written nor read. `label` is how the folder is called in
    previews; a real path of this machine never gets into a conversation (C8-050). Raises
    `BudgetError` for a bad label and `ResultStoreError` when the folder cannot be used.
    """

    def __init__(self, folder: str | os.PathLike[str], label: str = "tool-results") -> None:
        if not isinstance(label, str) or not re.fullmatch(r"[a-z0-9_-]{1,64}", label):
            raise BudgetError("bad_input", "a label of a-z, 0-9, _ and -")
        self.label = label
        self._folder = os.path.abspath(os.fspath(folder))
        self._partials = 0
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._place = self._place_of_folder()
        except (OSError, ValueError) as error:
            raise ResultStoreError("result_not_stored") from error

    def save(self, text: str) -> StoredResult:
        """Write a whole text and return its place; the same text is one file, however often it is saved.

        It is written in chunks, hashed on the way, synced, and gets its name at the end by a rename, so
        a crash leaves a nameless partial file and no half result. Raises `ResultStoreError`
        (`result_not_stored`), also for a text over `MAX_STORED_CHARS`.
        """
        if not isinstance(text, str):
            raise BudgetError("bad_input", "not a text")
        if len(text) > MAX_STORED_CHARS:
            raise ResultStoreError("result_not_stored")
        partial = ""
        try:
            self._hold_folder()
            descriptor, partial = self._open_partial()
            sha = hashlib.sha256()
            with os.fdopen(descriptor, "wb") as file:
                for chunk in encoded(text):
                    sha.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            name = f"{sha.hexdigest()}.txt"
            # A link that somebody put under this name is replaced, not followed.
            os.replace(partial, os.path.join(self._folder, name))
            partial = ""
        except (OSError, UnicodeEncodeError) as error:
            raise ResultStoreError("result_not_stored") from error
        finally:
            if partial:
                _remove(partial)
        return StoredResult(f"{self.label}/{name}", len(text), sha.hexdigest())

    def read(self, path: str, start: int = 0, max_chars: int = MAX_STORED_CHARS) -> str:
        """Return the text of a stored result, or `max_chars` code points of it from `start` on (C8-049).

        Only paths that `save` returned are understood; anything else, links included, is `not_stored`
        (`BudgetError`). Raises `ResultStoreError` (`result_not_read`) when the disk refuses, and for a file that does
        not hold what was saved: the whole of it is compared with its name at each reading.
        """
        whole_number(start)
        whole_number(max_chars)
        folder, _, name = path.partition("/") if isinstance(path, str) else ("", "", "")
        if folder != self.label or not _NAME.fullmatch(name):
            raise BudgetError("not_stored")
        place = os.path.join(self._folder, name)
        try:
            self._hold_folder()
            if not stat.S_ISREG(os.lstat(place).st_mode):
                raise BudgetError("not_stored")
            descriptor = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
            with open(descriptor, "rb") as bytes_of_it, io.TextIOWrapper(bytes_of_it, "utf-8", newline="") as file:
                if f"{hashlib.file_digest(bytes_of_it, 'sha256').hexdigest()}.txt" != name:
                    raise OSError("not what was saved")
                bytes_of_it.seek(0)
                while skipped := file.read(min(start, _CHUNK_CHARS)):  # of none left to skip none are read
                    start -= len(skipped)
                return file.read(min(max_chars, MAX_STORED_CHARS))
        except FileNotFoundError:
            raise BudgetError("not_stored") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ResultStoreError("result_not_read") from error

    def _place_of_folder(self) -> tuple[int, int]:
        status = os.lstat(self._folder)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError
        return status.st_dev, status.st_ino

    def _hold_folder(self) -> None:
        if self._place_of_folder() != self._place:
            raise NotADirectoryError("another folder lies here")

    def _open_partial(self) -> tuple[int, str]:
        """Create a file that did not exist; names of a crashed process with our number are stepped over."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        for _ in range(_PARTIAL_TRIES):
            self._partials += 1
            place = os.path.join(self._folder, f".{os.getpid()}-{self._partials}.partial")
            try:
                return os.open(place, flags, 0o600), place
            except FileExistsError:
                continue
        raise FileExistsError


def is_name(value: object) -> bool:
    """Is it a text of 1 to `MAX_TEXT` characters without NUL and lone surrogates?"""
    return (
        isinstance(value, str) and 0 < len(value) <= MAX_TEXT and whole_characters(value) == value and "\0" not in value
    )


def check_name(value: object) -> None:
    """Check an id or a name. Raises `BudgetError` (`bad_input`)."""
    if not is_name(value):
        raise BudgetError("bad_input", "an id or a name")


def whole_number(value: float) -> int:
    """Return a whole number from 0 up. Raises `BudgetError` (`bad_input`)."""
    if type(value) is not int or value < 0:
        raise BudgetError("bad_input", "not a whole number from 0 up")
    return value


def _texts(content: object) -> list[str]:
    if not isinstance(content, list):
        return []
    texts = [block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"]
    return [text for text in texts if isinstance(text, str)]


def _remove(place: str) -> None:
    try:
        os.unlink(place)
    except OSError:  # the first error is the one to report
        pass
