"""Handlers that the tests offer over MCP: harmless ones, noisy ones, one that waits, and a job with a gate."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from chapter10.companions.serving.task_handles import JobTool
from chapter10.companions.tools.registry import CallContext, ToolSpec
from chapter10.companions.work.heartbeat import JobContext
from chapter10.companions.work.worker import Handler

print("a handler prints while it is loaded")
os.write(1, b"and writes to descriptor 1\n")

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Refused(Exception):
    """What a job's handler says when it cannot do the work."""

    code = "no_such_month"


def echo(text: str) -> str:
    """Say the text again."""
    return text


def noisy(text: str) -> str:
    """Print, and let a child print."""
    print("on standard output")
    subprocess.run([sys.executable, "-c", "print('a child on standard output')"], check=True)
    return text


def child_reads() -> str:
    """Return what a child finds on its standard input."""
    read = "import sys; sys.stderr.write(repr(sys.stdin.read()))"
    return subprocess.run([sys.executable, "-c", read], stderr=subprocess.PIPE, check=True).stderr.decode("utf-8")


async def nothing() -> None:
    """Do nothing."""


def count(context: CallContext) -> str:
    """Report three times."""
    for done in (1, 2, 3):
        context.progress((done, 3))
    return "three"


def stubborn(context: CallContext) -> str:
    """Wait until nobody waits for it any more."""
    context.progress("waiting")
    while not context.is_stopped():
        threading.Event().wait(0.01)
    return "stopped"


def export(context: JobContext) -> dict[str, Any]:
    """Count to three, once the gate file is there; the month 2026-13 is refused."""
    if context.args["month"] == "2026-13":
        raise Refused
    gate = context.args.get("gate")
    if gate is not None:
        Path(gate + ".started").touch()
    while gate is not None and not Path(gate).exists():
        context.checkpoint()
        threading.Event().wait(0.01)
    for done in (1, 2, 3):
        context.progress(done, 3)
    return {"month": context.args["month"], "attempt": context.attempt}


def tool(function: Any, effect: str = "read", **fields: Any) -> ToolSpec:
    """Return a spec with the limits of these tests."""
    doc = (function.__doc__ or "").partition("\n")[0]
    return ToolSpec(function.__name__, doc, effect, 30, 1, 10_000, function, **fields)


TOOLS = [
    tool(echo, parameters=TEXT, keywords=("echo", "say")),
    tool(noisy, parameters=TEXT),
    tool(child_reads),
    tool(nothing),
    tool(count, context_argument="context"),
    tool(stubborn, context_argument="context"),
]
EXPORT = JobTool(
    "reports_export",
    "Export the sales of a month.",
    {
        "type": "object",
        "properties": {"month": {"type": "string"}, "gate": {"type": "string"}},
        "required": ["month"],
        "additionalProperties": False,
    },
    Handler(export),
    permission="reports:write",
    keywords=("export", "month"),
)
JOBS = [EXPORT]
