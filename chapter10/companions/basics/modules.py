"""A module of the user's, named in a command: found in the folder where the command was typed, and loaded once.

It runs with the rights of whoever typed it, so only a module that is trusted is named. Nothing else here is loaded by
name. Source: what the chapter leaves to the reader, an operation of one's own (claim C10-139).
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from chapter10.canonical import CodedError

__all__ = ["ModuleError", "load_module"]


class ModuleError(CodedError, ValueError):
    """Raised for a module that cannot be loaded; the code is `bad_handlers`, `reason` says why."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__("bad_handlers")
        self.reason = reason


def load_module(name: str) -> ModuleType:
    """Return the module `name`, looked for in this folder too. Raises `ModuleError`."""
    if os.getcwd() not in sys.path and "" not in sys.path:  # the installed command does not look here by itself
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever the module does while it is loaded
        raise ModuleError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
