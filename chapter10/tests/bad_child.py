"""Children of a worker that behave badly: `python -S -m chapter10.tests.bad_child KIND`.

What they need is little, so they start fast.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading


def say(message: object) -> None:
    print(message, flush=True)


def child(kind: str) -> int:
    if kind == "reads nothing":
        threading.Event().wait()
    if kind == "stubborn":  # ignores SIGTERM and the closed pipe, and never ends
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.readline()
    if kind == "silent":
        return 0
    if kind == "babble":
        say("no message at all")
    if kind == "progress":
        say(json.dumps({"progress": [1, 2]}))
        say(json.dumps({"progress": [2, 2]}))
        say(json.dumps({"result": {"by": "hand"}}))
        return 0
    if kind.startswith("leaves"):  # a process that has its pipes, in its group or in a group of its own
        alone = kind != "leaves one in the group"
        left = subprocess.Popen(
            [sys.executable, "-S", "-c", "import threading; threading.Event().wait()"], start_new_session=alone
        )
        say(json.dumps({"progress": [0, left.pid]}))
        if kind != "leaves one and says nothing":
            say(json.dumps({"result": left.pid}))
        return 0
    if kind == "refuses":
        say(json.dumps({"error": "bad_rows", "temporary": False}))
        return 3
    if kind == "lingers":  # says its result and does not go
        say(json.dumps({"result": 1}))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(json.dumps({"progress": [0, os.getpid()]}))
    threading.Event().wait()  # it is killed: this never returns
    return 0


if __name__ == "__main__":
    sys.exit(child(sys.argv[1]))
