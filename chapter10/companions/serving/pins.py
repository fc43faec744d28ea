"""Definitions of other servers, pinned when they are first seen; a change is held back until somebody accepts it.

    pinned  by name, the digest of the definition that may be offered
    held    by name, a definition that differs from the pinned one, with its digest; it is not offered

A server that is not ours may say something else tomorrow than what a person looked at today, in the description as
well as in the schema. The digest covers the name, the title, the description, the schema, and whether the tool says of
itself that it only reads; other annotations, icons and `_meta` are left out, because they change without a meaning.

The file is JSON beside the list of servers, and is written whole or not at all. Whoever accepts can read there what the
new definition says.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from chapter10.canonical import CodedError, digest

__all__ = ["PinError", "Pins", "pinned_part"]


class PinError(CodedError, ValueError):
    """Raised for pins that cannot be used: `bad_pins` (the file is none), `not_held` (nothing of this name waits)."""

    reason: str

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.reason = reason


def pinned_part(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what is pinned of a tool as `tools/list` gave it."""
    annotations = entry.get("annotations")
    hint = annotations.get("readOnlyHint") if type(annotations) is dict else None
    return {**{key: entry.get(key) for key in ("name", "title", "description", "inputSchema")}, "readOnlyHint": hint}


class Pins:
    """The pins in the file `path`, which need not exist. Raises `PinError` (`bad_pins`), `OSError`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.pinned: dict[str, str] = {}
        self.held: dict[str, dict[str, Any]] = {}
        self._changed = False
        if self._path.exists():
            try:
                read = json.loads(self._path.read_bytes())
                self.pinned, self.held = dict(read["pinned"]), dict(read["held"])
            except (ValueError, KeyError, TypeError) as error:
                raise PinError("bad_pins", f"{self._path.name} is no file of pins") from error

    def allows(self, name: str, entry: dict[str, Any]) -> bool:
        """Say whether a definition may be offered under `name`: it is new, or what was pinned. `save` keeps it."""
        part = pinned_part(entry)
        seen = digest(part)
        before = (self.pinned.get(name), self.held.get(name))
        self.held.pop(name, None)
        if self.pinned.setdefault(name, seen) != seen:
            self.held[name] = {"digest": seen, "definition": part}
        self._changed |= (self.pinned.get(name), self.held.get(name)) != before
        return name not in self.held

    def accept(self, name: str) -> list[str]:
        """Pin what is held under `name`, or under any name of the server `name`; return the names.

        Raises `PinError` (`not_held`), `OSError`.
        """
        names = sorted(held for held in self.held if held == name or held.startswith(f"{name}__"))
        if not names:
            raise PinError("not_held", f"nothing of the name {name} is held back")
        for each in names:
            self.pinned[each] = self.held.pop(each)["digest"]
        self._changed = True
        self.save()
        return names

    def save(self) -> None:
        """Write what changed, whole or not at all. Raises `OSError`."""
        if not self._changed:
            return
        text = json.dumps({"pinned": self.pinned, "held": self.held}, ensure_ascii=False, indent=1, sort_keys=True)
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        fresh.write_text(text + "\n", encoding="utf-8", newline="\n")
        os.replace(fresh, self._path)
        self._changed = False
