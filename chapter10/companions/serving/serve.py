"""The command `python -m chapter10 serve`: one process, one client, one identity, on standard input and output.

    python -m chapter10 serve --handlers mypackage.tools --db jobs.db --owner alice --grant orders:read

The two descriptors of the protocol are moved away (`pipes`) before the tools are loaded, ours and the reader's, and a
client's greeting is answered while that goes on.

    --tools FILE, --handlers MODULE   what is offered, see `loading`; without both, the chapter's 300 tools to look at
    --db FILE                         the store of the jobs; tools that become jobs need it
    --owner NAME                      the identity whose jobs they are
    --grant PERMISSION                may be given more than once; `approve:NAME` lets a tool run that needs approval
    --servers FILE, --accept NAME     other servers behind this one, see `upstream`

It ends when its input does: the answers that are due are given first, within `door.DRAIN_SECONDS`, and a job at hand
goes back in line. Whoever starts this process decides who the owner is and what is granted; no message can.

Exit codes: 0 fine, 2 usage or nothing that can be served, 3 the machine lacks something.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from chapter10.canonical import CodedError
from chapter10.companions.serving.greeting import Greeter
from chapter10.companions.serving.pipes import Pipes

__all__ = ["main"]

_DOOR: Final = "chapter10.companions.serving.door"
_FINE, _USAGE, _MACHINE, _INTERRUPTED = 0, 2, 3, 130


def main(arguments: Sequence[str] | None = None, *, random: Callable[[int], bytes] = os.urandom) -> int:
    """Serve until the input ends, and return the exit code; `arguments` are what follows `serve`.

    `random(n)`: bytes for the keys of work that names none. Raises `SystemExit` with code 2 for arguments that it does
    not know.
    """
    options = _parser().parse_args(arguments)
    pipes = Pipes(Greeter(tasks=options.db is not None))  # from here on a greeting is answered
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="chapter10 serve: %(message)s")
    try:
        importlib.import_module(_DOOR).run(options, pipes, lambda: random(16).hex())
    except (CodedError, OSError) as error:
        sys.stderr.write(f"{getattr(error, 'code', 'machine')}: {getattr(error, 'reason', error)}\n")
        return _USAGE if isinstance(error, ValueError) else _MACHINE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return _FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chapter10 serve", description="Offer tools and jobs to an MCP client on standard input and output."
    )
    parser.add_argument("--tools", type=Path, metavar="FILE", help="definitions as tools/list gives them")
    parser.add_argument("--handlers", metavar="MODULE", help="a Python module with TOOLS, JOBS or functions")
    parser.add_argument("--db", type=Path, metavar="FILE", help="the store of the jobs")
    parser.add_argument("--owner", default="local", metavar="NAME", help="whose jobs they are (default: local)")
    parser.add_argument(
        "--grant", action="append", default=[], metavar="PERMISSION", help="what may be seen and called"
    )
    parser.add_argument("--servers", type=Path, metavar="FILE", help="other servers, as mcpServers lists them")
    parser.add_argument("--accept", action="append", default=[], metavar="NAME", help="accept a changed definition")
    return parser
