"""A server of the older era for the tests: it reads its tools from a file, chatters, dies, hangs and changes its mind.

    python old_server.py TOOLS_FILE NOTES_FILE

It speaks 2024-11-05, writes lines that are no messages, and asks its client for roots and for a sign of life.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def say(**message: Any) -> None:
    """Write a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(number: int, params: dict[str, Any], notes: Path) -> None:
    """Do what the tool's name says."""
    name = params["name"]
    if name == "die":
        os._exit(3)
    if name == "hang":
        say(method="notifications/progress", params={"progressToken": params["_meta"]["progressToken"], "progress": 1})
        return
    if name == "change":
        say(method="notifications/tools/list_changed")
    if name == "refuse":
        say(id=number, error={"code": -32602, "message": "not today"})
        return
    said = {"environment": os.environ.get("GREETING"), **params["arguments"]}
    text = {"type": "text", "text": json.dumps(said), "annotations": {"audience": ["user"]}}
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    notes.write_text(json.dumps(said), encoding="utf-8", newline="\n")
    say(id=number, result={"content": [text, image], "structuredContent": said, "isError": name == "fail", "other": 1})


def main(tools: Path, notes: Path) -> None:
    """Answer until the input ends."""
    sys.stdout.write("hello, I am no message\n[1]\n")
    for line in sys.stdin:
        message = json.loads(line)
        method, number, params = message.get("method"), message.get("id"), message.get("params", {})
        if method == "initialize":
            say(id="roots", method="roots/list")
            say(id="alive", method="ping")
            say(id=number, result={"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {}})
        elif method == "tools/list":
            say(id=number, result={"tools": json.loads(tools.read_text(encoding="utf-8"))})
        elif method == "tools/call":
            call(number, params, notes)
        elif method == "notifications/cancelled":
            notes.write_text("cancelled", encoding="utf-8", newline="\n")
        elif method is not None and number is not None:
            say(id=number, error={"code": -32601, "message": "no such method"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
