"""One cancel row, four real processes: which step stops each of them, and what it leaves behind.

    python -m chapter10 stops

Guess before you run. All four work on one trace and share nothing but a database file. The caller writes one cancel
row and then goes down the ladder of `interruption.process_stop`, for each process as far as it must: the row, SIGTERM,
SIGKILL. Which of them can say that it has stopped? Who says it for the one that cannot?

    polite   looks at the row: it confirms and leaves, and needs no signal
    busy     does not look, and takes SIGTERM as a request: it cancels its work, confirms and leaves
    stubborn ignores both: it is killed in the middle, and its row still says `running`; whoever takes it over ends it
    late     starts after the cancel: it is born cancelled and finds nothing to do

What the script checks, and says `[X]` where it does not hold: each process ended by the expected step, and every
invocation is `cancelled` at the end. On Windows the second step is the third one.

Exit codes: 0 all of it holds; 1 something does not; 2 usage; 3 the machine lacks something.
Source: the document on interruption, sections 4 and 8 (claims I4-001, I4-009, I4-028, I4-086, I4-087).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.cancellation import DistributedCancelToken, ToolCancelled
from chapter10.companions.interruption.process_stop import Stopped, sigterm_is_a_request, stop_process
from chapter10.lab.console.strings import parser_in, say
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG, main_guard, pad

__all__ = ["EXPECTED", "KINDS", "main", "play"]

KINDS: Final = ("polite", "busy", "stubborn", "late")
EXPECTED: Final = {"polite": "asked", "busy": "terminated", "stubborn": "killed", "late": "already_ended"}
"""The step that is enough for each."""

_WIDTHS: Final = (9, 14, 14, 14)
_TRACE: Final = "trace-1"
_LOOK_S: Final = 0.02
_PATIENT_S: Final = 60.0
"""For a step that is expected to be enough; it ends as soon as the process does."""
_SHORT_S: Final = 0.1
"""For a step that is expected not to be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play it, print what became of each process, and return the exit code."""
    parser, language = parser_in("python -m chapter10 stops", "stops", arguments)
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--db", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        return _work(options.worker, str(options.db))
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        rows = play(Path(folder, "cancels.db"))
    heads = [say(f"stops.{name}", language) for name in ("process", "stopped_by", "row_before", "row_at_the_end")]
    print("  ".join(map(pad, heads, _WIDTHS)).rstrip())
    print("  ".join("-" * width for width in _WIDTHS))
    wrong = 0
    for kind, how, before, after in rows:
        print("  ".join(map(pad, (kind, how, before, after), _WIDTHS)).rstrip())
        wrong += (how, after) != (EXPECTED[kind], "cancelled")
    print(say("stops.wrong" if wrong else "stops.fine", language))
    return EXIT_WRONG if wrong else EXIT_FINE


def play(path: Path) -> list[tuple[str, str, str, str]]:
    """Start the processes, cancel their trace once and stop each; return `(kind, how, row before, row at the end)`.

    `row before` is the state that the process left, `row at the end` that after somebody has taken over what is left.
    """
    rows: list[tuple[str, str, str, str]] = []
    with CancelStore.open(path) as store:
        started = {kind: _start(kind, path) for kind in KINDS[:3]}
        try:
            for process in started.values():
                _at_work(process)
            for kind in KINDS:
                if kind == "late":
                    started[kind] = _start(kind, path)
                    started[kind].wait(_PATIENT_S)
                how = _stop(kind, started[kind], store).how
                row = store.get(_TRACE, kind)
                if row.state == "running":  # nobody is left who could confirm
                    store.take_over(_TRACE, kind, row.fence)
                rows.append((kind, how, row.state, store.get(_TRACE, kind).state))
        finally:
            for process in started.values():
                if process.poll() is None:
                    process.kill()
                process.communicate()
    return rows


def _start(kind: str, path: Path) -> subprocess.Popen[str]:
    # Without `site` it starts faster, and it needs nothing that is installed.
    return subprocess.Popen(
        [sys.executable, "-S", "-m", "chapter10.lab.processes.stops", "--worker", kind, "--db", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[3],
        encoding="utf-8",
    )


def _at_work(process: subprocess.Popen[str]) -> None:
    """Wait until a process says that it is ready."""
    assert process.stdout is not None
    process.stdout.readline()


def _stop(kind: str, process: subprocess.Popen[str], store: CancelStore) -> Stopped:
    """Go down the ladder: the row of the whole trace, which is written once however often, then the two signals."""
    patience = _PATIENT_S if kind == "polite" else _SHORT_S
    grace = _SHORT_S if kind == "stubborn" else _PATIENT_S
    return stop_process(process, grace, ask=lambda: store.cancel(_TRACE, reason="user left"), ask_s=patience)


# Inside the processes --------------------------------------------------------------------------------


def _work(kind: str, path: str) -> int:
    with CancelStore.open(path) as store:
        store.register(_TRACE, kind, tool="export")
        fence = store.claim(_TRACE, kind)
        if fence is None:
            print("idle", flush=True)
            return EXIT_FINE
        if kind == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("ready", flush=True)
            threading.Event().wait(2 * _PATIENT_S)
            return EXIT_WRONG
        asyncio.run(_until_asked(kind, store, fence))
    return EXIT_FINE


async def _until_asked(kind: str, store: CancelStore, fence: int) -> None:
    """Work until the row says so, or, for a busy one, until SIGTERM does."""
    token = DistributedCancelToken(_TRACE, None, store, span_id=kind, poll_s=_LOOK_S)
    loop = asyncio.get_running_loop()
    with sigterm_is_a_request(lambda: token.token.cancel("sigterm"), loop=loop):
        watcher = loop.create_task(token.watch()) if kind == "polite" else None
        print("ready", flush=True)
        try:
            await token.token.run(asyncio.Event().wait)
        except ToolCancelled:
            store.confirm(_TRACE, kind, fence)
        if watcher is not None:
            await watcher


if __name__ == "__main__":
    main_guard(main)
