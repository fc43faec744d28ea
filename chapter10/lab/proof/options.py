"""Does every option act? `python -m chapter10.lab.proof.options`.

An option that is read and never handed on looks like one that works. So each option of each command has a row in
`options.toml`: the test that shows what it changes. Here, in a copy of the tree, the command gets the default instead
of what was asked for, one option at a time, and that test must fail. A row of `python -m chapter10 jobs *` is that of
an option which all its verbs share.

    python -m chapter10.lab.proof.options                     every option, in some minutes
    python -m chapter10.lab.proof.options --command jobs      those of one command
    python -m chapter10.lab.proof.options --list              the rows, without a run

Exit codes: 0 every option was missed by its test; 1 one was not; 2 usage.
Source: claim C10-277.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from chapter10.__main__ import COMMANDS
from chapter10.__main__ import main as entry
from chapter10.lab.benchmarks import recall
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG, main_guard
from chapter10.lab.proof.mutants import Tree
from chapter10.lab.proof.mutations import Mutant

__all__ = ["TABLE", "every_option", "fault", "main", "programs", "read_table"]

TABLE: Final = Path(__file__).with_name("options.toml")
_HOOK: Final = """
import argparse as _argparse
_parse = _argparse.ArgumentParser.parse_known_args
def _with_the_default(self, *arguments, **others):
    found = _parse(self, *arguments, **others)
    for action in self._actions:
        if self.prog in {progs!r} and action.dest == {dest!r} and hasattr(found[0], action.dest):
            default = action.default
            if default is _argparse.SUPPRESS:
                delattr(found[0], action.dest)
            else:
                value = self._get_value(action, default) if isinstance(default, str) else default
                setattr(found[0], action.dest, value)
    return found
_argparse.ArgumentParser.parse_known_args = _with_the_default
"""


def every_option() -> dict[str, dict[str, str]]:
    """Return the options of every command: by the name of the program, each option with its `dest`.

    Left out: help, which argparse itself does; the places of a command, without which it does not run; and what help
    does not show, because a command says it to a process of its own.
    """
    found: dict[str, dict[str, str]] = {}
    parse = argparse.ArgumentParser.parse_known_args

    def note(parser: argparse.ArgumentParser, *arguments: Any, **others: Any) -> Any:
        _note(parser, found)
        return parse(parser, *arguments, **others)

    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", note):
        runs: list[Callable[[], object]] = [partial(entry, [command.name, "--help"]) for command in COMMANDS]
        runs += [partial(other, ["--help"]) for other in (entry, recall.main, main)]
        for run in runs:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
                run()
    return {prog: options for prog, options in found.items() if options}


def _note(parser: argparse.ArgumentParser, found: dict[str, dict[str, str]]) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _note(inner, found)
        elif action.option_strings and action.dest != "help" and argparse.SUPPRESS not in (action.help, action.dest):
            found.setdefault(parser.prog, {})[action.option_strings[-1]] = action.dest


def read_table(path: Path = TABLE) -> dict[str, dict[str, str]]:
    """Return the rows: by program and option the test (`test_module.Class.test`) that shows what the option does."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def programs(row: str, option: str, options: dict[str, dict[str, str]]) -> list[str]:
    """Return the programs that a row of the table is about, of those that have the option."""
    ours = [prog for prog in options if prog == row or (row.endswith(" *") and prog.startswith(row[:-1]))]
    return [prog for prog in ours if option in options[prog]]


def fault(progs: Sequence[str], dest: str, text: str) -> Mutant:
    """Return the fault that gives programs the default of one option; `text`: of the package's `__init__`."""
    hook = _HOOK.format(progs=list(progs), dest=dest)
    return Mutant(f"{progs[0]} {dest}", "__init__", "written", 1, len(text), len(text), hook)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10.lab.proof.options", description="Does every option act?", allow_abbrev=False
    )
    parser.add_argument("--command", help="only the options of this command, such as jobs")
    parser.add_argument("--list", action="store_true", help="show the rows and run nothing")
    options = parser.parse_args(arguments)
    known = every_option()
    rows = [
        (prog, option, test)
        for prog, tests in read_table().items()
        for option, test in tests.items()
        if options.command is None or options.command in prog.split()
    ]
    if not rows:
        parser.error("no command has that name")
    if options.list:
        for prog, option, test in rows:
            print(f"{prog} {option}: {test}")
        return EXIT_FINE
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="chapter10-", ignore_cleanup_errors=True) as folder:
        tree = Tree(Path(folder))
        for number, (prog, option, test) in enumerate(rows, 1):
            progs = programs(prog, option, known)
            verdict = tree.verdict(fault(progs, known[progs[0]][option], tree.text("__init__")), [test])
            wrong += verdict.ending == "survived"
            print(f"[{number}/{len(rows)}] {prog} {option}: {verdict.ending}", flush=True)
    print(f"{len(rows)} options, {wrong} that no test misses")
    return EXIT_WRONG if wrong else EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
