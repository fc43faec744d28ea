"""Where a reader's files are, and how one of them is read.

Readers work in `my_work` in the folder from which they run the commands; `CHAPTER10_WORK` names another
one. Git ignores it. What a reader wrote is read as bytes and decoded here, because editors save in many
forms: UTF-8 with or without a byte-order mark and any line ends are fine, as is an encoding that the
first lines of a Python file declare; UTF-16, zero bytes and undeclared GBK are named for what they are.

What it does not do: it changes no file of a reader, and runs none.
Source: claims C10-277, C10-313.
"""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chapter10.canonical import CodedError

__all__ = ["MAX_FILE_BYTES", "VARIABLE", "ReadersFileError", "read_text", "save_text", "work_folder"]

VARIABLE: Final = "CHAPTER10_WORK"
"""The environment variable that names another folder for a reader's files."""

MAX_FILE_BYTES: Final = 1_000_000
"""The longest file of a reader that is read."""


class ReadersFileError(CodedError, ValueError):
    """Raised for a file that cannot be text of an exercise; the reader mends it and not the machine.

    `utf_16`, `zero_bytes`, `not_utf_8` (save the file as UTF-8), `unknown_encoding` (the first line names
    one that Python lacks), `too_long`.
    """


def work_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of a reader's files; it need not exist. `environment`: this process's if None."""
    named = (os.environ if environment is None else environment).get(VARIABLE)
    return Path(named) if named else Path.cwd() / "my_work"


def read_text(path: Path) -> str:
    """Return the text of a reader's file with LF and without a byte-order mark.

    Raises `ReadersFileError`, and `OSError` when there is no such file or it cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ReadersFileError("too_long")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ReadersFileError("utf_16")
    if b"\0" in data:
        raise ReadersFileError("zero_bytes")
    encoding = "utf-8-sig"
    if path.suffix == ".py":
        try:
            encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        except SyntaxError as error:
            # One error for a line that is no UTF-8 and for a name that is no encoding.
            raise ReadersFileError("unknown_encoding" if "unknown" in str(error) else "not_utf_8") from None
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise ReadersFileError("not_utf_8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def save_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 with LF, in a folder that is made if it is missing. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
