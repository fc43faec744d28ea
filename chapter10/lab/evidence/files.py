"""The files of a report: put in place together, and compared with a new run.

What holds
    E2  `replace_together` puts all files in place or leaves the old ones
    E3  `differences` compares text, not line ends, and names the file and the line

Source: the chapter's sections on its experiments and reports (claims C10-277 to C10-280).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from chapter10.canonical import canonical
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG

__all__ = ["differences", "replace_together", "say_differences"]

_MAX_SHOWN: Final = 64
"""Characters of a line that differs."""


def replace_together(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write the files `name -> text` in `directory` (made if absent), all or none; return their paths.

    UTF-8 with LF. Everything is written beside its target first; then each file replaces the old one in
    one step. If a step fails, those already replaced get their old content back and the error is
    raised: `OSError`, or what interrupted.
    """
    directory.mkdir(parents=True, exist_ok=True)
    replaced: list[str] = []
    # In the same folder, because a file can be replaced in one step only within one file system.
    with tempfile.TemporaryDirectory(dir=directory, prefix=".new-") as staging:
        new, old = Path(staging, "new"), Path(staging, "old")
        new.mkdir()
        old.mkdir()
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8", newline="\n")
            if (directory / name).exists():
                shutil.copy2(directory / name, old / name)
        try:
            for name in texts:
                replaced.append(name)
                os.replace(new / name, directory / name)
        except BaseException:
            for name in replaced:
                if (old / name).exists():
                    os.replace(old / name, directory / name)
                elif not (new / name).exists():  # it was put in place, and nothing was there before
                    (directory / name).unlink()
            raise
    return [directory / name for name in texts]


def differences(directory: Path, texts: Mapping[str, str]) -> list[str]:
    """Return one line for each file of `directory` whose text is not as given, line ends aside."""
    found = []
    for name, expected in texts.items():
        try:
            with open(directory / name, encoding="utf-8", newline=None) as file:
                actual = file.read()
        except OSError:
            found.append(f"{name}: is missing or cannot be read")
            continue
        except UnicodeDecodeError:
            found.append(f"{name}: is not UTF-8")
            continue
        if actual != expected:
            found.append(f"{name}: {_first_difference(actual, expected)}")
    return found


def say_differences(found: Sequence[str], names: Sequence[str], program: str) -> int:
    """Print what `program --check` found in the files `names`, or that they are right, and return the exit code."""
    for line in found:
        print(f"[X] {line}")
    if found:
        print(f"If the change is intended: python -m {program} --write")
        return EXIT_WRONG
    print(f"[OK] {', '.join(names)}: as a new run gives {'them' if len(names) > 1 else 'it'}")
    return EXIT_FINE


def _first_difference(actual: str, expected: str) -> str:
    have, want = actual.split("\n"), expected.split("\n")
    shared = min(len(have), len(want))
    line = next((index for index in range(shared) if have[index] != want[index]), shared)
    if line == len(have):
        return f"line {line + 1}: the file ends, a new run goes on"
    if line == len(want):
        return f"line {line + 1}: the file goes on, a new run ends"
    return f"line {line + 1}: the file has {_short(have[line])}, a new run gives {_short(want[line])}"


def _short(line: str) -> str:
    return canonical(line.strip()[:_MAX_SHOWN])
