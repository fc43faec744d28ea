"""Does a test notice when the code is wrong? `python -m chapter10 mutants`.

A green suite says that the tests pass with this code. It does not say that they would fail with another
one. So the code is made wrong, one small fault at a time, in a temporary copy of the whole tree; the test
modules that name the touched contract run there; and what no test noticed is listed. Each survivor is a
test that is missing, a guard that is superfluous, or a fault that makes no difference and has a reason.
The reasons stand in the folder `equivalents`; a survivor of `--automatic` without one is work to do.

    python -m chapter10 mutants                       the faults of mutants.toml
    python -m chapter10 mutants --module jobs         only those of one module
    python -m chapter10 mutants --list                their names, without a run
    python -m chapter10 mutants --only NAME           one, with what the tests said
    python -m chapter10 mutants --automatic --module jobs --sample 50 --seed 1
                                                          faults that the operators of lab.proof.mutations make
    python -m chapter10 mutants --automatic --operator guard
                                                          every guard of every module taken out, one at a time
    python -m chapter10 mutants --write               reports/mutants.md anew, from the faults of the list;
                                                          with --module just these rows

It needs the tree with its tests, and minutes: two copies are worked on at a time. Without a fault the tests
must pass first. A test that hangs is ended after a while and counts as having noticed. Ctrl-C keeps what was
learned. The order of the output is that of the list, whatever ended first. From Python 3.12 on the tests that run the
line of a fault are shown it first (`lab.proof.touched`), and the whole modules only what those did not notice.

What it does not prove: that a test suite which notices all of them is complete.
Exit codes: 0 every fault was noticed or has a reason; 1 something survived; 2 usage.
Source: claims C10-277, C10-297.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from chapter10.experiments import reports_folder
from chapter10.lab.console.textio import EXIT_FINE, EXIT_INTERRUPTED, EXIT_USAGE, EXIT_WRONG, main_guard
from chapter10.lab.evidence.files import replace_together
from chapter10.lab.proof import touched
from chapter10.lab.proof.mutations import OPERATORS, Mutant, MutantList, automatic, read_list, written

__all__ = [
    "MAX_NEAR",
    "MAX_PARALLEL",
    "PAGE",
    "TEST_SECONDS",
    "Ending",
    "Row",
    "Touched",
    "Tree",
    "Verdict",
    "main",
    "mutants_page",
    "rows_before",
    "rows_of",
    "run",
]

_TOP: Final = Path(__file__).resolve().parents[3]
PAGE: Final = "mutants.md"
TEST_SECONDS: Final = 60.0
"""How long the tests of one fault may take before they count as hung."""
MAX_PARALLEL: Final = 8
MAX_NEAR: Final = 60
"""The most tests that are picked for the line of a fault."""

Touched = dict[str, dict[str, list[str]]]
"""By module and line the tests that run it."""

_COPIED: Final = ("chapter10", "reports", "docs", "examples")
_NOT_COPIED: Final = ("__pycache__", "my_work")
_FIRST_FAILURE: Final = re.compile(r"^(?:FAIL|ERROR): (.+)$", re.MULTILINE)
_TEST_MODULE: Final = re.compile(r"\b(test_\w+)\.\w+\.test_\w+|^(test_\w+) \(unittest", re.MULTILINE)

Ending = Literal["noticed", "hung", "survived"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the tests ended with a fault in the code: `by` is the test module that noticed, if one did.

    `output`: what the tests printed, at most its end.
    """

    ending: Ending
    by: str = ""
    output: str = ""

    def __str__(self) -> str:
        return {"noticed": f"noticed by {self.by}", "hung": "noticed: the tests hung"}.get(self.ending, self.ending)


class Tree:
    """A copy of the source tree in a folder of its own, in which one module at a time is made wrong.

    `compiled`: compile all of it at once, which pays from some ten runs of tests on.
    """

    def __init__(self, folder: Path, *, compiled: bool = True) -> None:
        self._folder = folder
        self._top = folder / "tree"
        self._top.mkdir()
        for name in _COPIED:
            if (_TOP / name).is_dir():
                shutil.copytree(_TOP / name, self._top / name, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        for path in _TOP.iterdir():
            if path.is_file() and path.suffix in {".md", ".toml"}:
                shutil.copyfile(path, self._top / path.name)
        (folder / "temporary").mkdir()
        # Compiled once, and looked up by the hash of the text: the time of a file is too coarse a clock for
        # two faults in a second. Nothing is written later, so that a fault leaves nothing behind.
        if compiled:
            self._child(["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "chapter10"], TEST_SECONDS)

    def text(self, module: str) -> str:
        """Return the text of a module (below `chapter10`)."""
        return self._path(module).read_text(encoding="utf-8")

    def verdict(self, mutant: Mutant, tests: Sequence[str], seconds: float = TEST_SECONDS) -> Verdict:
        """Put a fault in, run the test modules until one fails, and take the fault out again."""
        path, text = self._path(mutant.module), self.text(mutant.module)
        path.write_text(mutant.apply(text), encoding="utf-8", newline="\n")
        try:
            return self.test(tests, seconds)
        finally:
            path.write_text(text, encoding="utf-8", newline="\n")

    def test(self, tests: Sequence[str], seconds: float = TEST_SECONDS) -> Verdict:
        """Run test modules in this order, up to the first failure, in a process of their own."""
        names = [f"chapter10.tests.{name}" for name in tests]
        code, output = self._child(["-m", "unittest", "-f", *names], seconds)
        if code is None:
            return Verdict("hung", output=output)
        return Verdict("noticed", _noticed_by(output), output) if code else Verdict("survived", output=output)

    def touched(self, tests: Sequence[str], seconds: float) -> tuple[Verdict, Touched]:
        """Run test modules as `test` does, and say which of their tests run which line of which module."""
        if not touched.POSSIBLE:
            return self.test(tests, seconds), {}
        out = self._folder / "touched.json"
        code, output = self._child(["-m", "chapter10.lab.proof.touched", str(out), *tests], seconds)
        lines = json.loads(out.read_text(encoding="utf-8")) if code == 0 else {}
        return Verdict("survived" if code == 0 else "noticed", output=output), lines

    def _path(self, module: str) -> Path:
        return self._top.joinpath("chapter10", *module.split(".")).with_suffix(".py")

    def _child(self, arguments: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Run this Python in the tree; return its exit code, None if its time was over, and what it printed.

        It leads a group of its own, so that the processes that a hung test has started end with it.
        """
        environment = dict(os.environ, PYTHONPATH=str(self._top), PYTHONDONTWRITEBYTECODE="1")
        environment["TMPDIR"] = environment["TEMP"] = environment["TMP"] = str(self._folder / "temporary")
        log = self._folder / "output.txt"
        with open(log, "wb") as out:
            child = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self._top,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = child.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_group(child)
        return code, log.read_bytes()[-20_000:].decode("utf-8", errors="replace")


def _end_group(child: subprocess.Popen[bytes]) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    except (ProcessLookupError, PermissionError):
        pass  # it is over, and has left nobody behind
    child.wait()


def _noticed_by(output: str) -> str:
    """Return the test module of the first failure, or how the run ended if it did not come to tests."""
    failure = _FIRST_FAILURE.search(output)
    module = _TEST_MODULE.search(failure.group(1)) if failure else None
    if module is None:
        return "the first import" if "Error" in output else "the end of the process"
    return module.group(1) or module.group(2)


@contextmanager
def _trees(count: int) -> Iterator[list[Tree]]:
    with tempfile.TemporaryDirectory(prefix="chapter10-", ignore_cleanup_errors=True) as name:
        folders = [Path(name) / str(number) for number in range(count)]
        for folder in folders:
            folder.mkdir()
        yield [Tree(folder) for folder in folders]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run(
    mutants: Sequence[Mutant],
    tests: dict[str, list[str]],
    trees: Iterable[Tree],
    *,
    lines: Mapping[str, Mapping[str, list[str]]] | None = None,
    seconds: float = TEST_SECONDS,
    tell: Callable[[str], object] = _tell,
) -> dict[str, Verdict]:
    """Return the verdict of each mutant by name, in the order of the list.

    `lines`: by module and line the tests that run it; they are asked before the modules of `tests`. `tell(line)` hears
    of the progress; without it that is standard error.
    Ctrl-C ends the run; what has ended by then is returned, the rest is missing.
    """
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    all_trees = list(trees)
    for tree in all_trees:
        free.put(tree)

    def judge(mutant: Mutant) -> Verdict:
        tree = free.get()
        try:
            near = (lines or {}).get(mutant.module, {}).get(str(mutant.line), [])[:MAX_NEAR]
            if near and (verdict := tree.verdict(mutant, near, seconds)).ending != "survived":
                return verdict
            return tree.verdict(mutant, tests[mutant.module], seconds)
        finally:
            free.put(tree)

    verdicts: dict[str, Verdict] = {}
    with ThreadPoolExecutor(len(all_trees)) as pool:
        waiting: dict[Future[Verdict], str] = {pool.submit(judge, mutant): mutant.name for mutant in mutants}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    name = waiting.pop(future)
                    verdicts[name] = future.result()
                    tell(f"[{len(verdicts)}/{len(mutants)}] {name}: {verdicts[name]}")
        except KeyboardInterrupt:
            tell("stopped; the two that are running are waited for")
            pool.shutdown(wait=True, cancel_futures=True)
    return {mutant.name: verdicts[mutant.name] for mutant in mutants if mutant.name in verdicts}


_HEAD: Final = """\
# 哪个测试会发现 / Which test notices

程序故意写错一处，看哪个测试先失败。没有测试发现的，要么缺一个测试，要么这处没有区别，并写明理由。

The code is made wrong in one place, and this is the test module that failed first. What no test
notices is a missing test, or makes no difference and has a reason.

```text
python -m chapter10 mutants --list                   every fault by name
python -m chapter10 mutants --write                  this page anew, in some minutes
python -m chapter10 mutants --write --module jobs    one row of it
```

{faults} faults, {noticed} noticed, {rest} with a reason.

| module | faults | noticed | by | nobody, since it makes no difference |
|---|---:|---:|---|---|
{rows}
"""

Row = tuple[int, int, str, str]
"""Of one module: faults, how many were noticed, by which tests how often, and the survivors with their reasons."""


def mutants_page(rows: Mapping[str, Row]) -> str:
    """Return the Markdown page: one row a module (see `rows_of`), and the sum."""
    faults, noticed = sum(row[0] for row in rows.values()), sum(row[1] for row in rows.values())
    lines = (f"| {module} | {' | '.join(map(str, row))} |" for module, row in rows.items())
    return _HEAD.format(faults=faults, noticed=noticed, rest=faults - noticed, rows="\n".join(lines))


def rows_of(mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict]) -> dict[str, Row]:
    """Return the row of each module of which there are faults."""
    rows: dict[str, Row] = {}
    for module in dict.fromkeys(mutant.module for mutant in mutants):
        faults = [mutant for mutant in mutants if mutant.module == module]
        nobody = [fault for fault in faults if verdicts[fault.name].ending == "survived"]
        by = Counter(verdicts[fault.name].by or "(the tests hung)" for fault in faults if fault not in nobody)
        rows[module] = (
            len(faults),
            by.total(),
            ", ".join(f"{name} {count}" for name, count in sorted(by.items())),
            "; ".join(f"{fault.name}: {fault.reason}" for fault in nobody),
        )
    return rows


def rows_before(page: str) -> dict[str, Row]:
    """Return the rows of a page."""
    cells = (line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| "))
    return {row[0]: (int(row[1]), int(row[2]), row[3], row[4]) for row in cells if row[1].isdecimal()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit 0 if nothing survived without a reason, 1 if something did, 2 for usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not (_TOP / "chapter10" / "tests").is_dir():
        print("the tests are not here: run this in the source tree", file=sys.stderr)
        return EXIT_USAGE
    mutants_list = read_list()
    texts = {module: _text_of(module) for module in mutants_list.tests}
    unknown = set(options.module or ()) - set(texts)
    if unknown:
        parser.error(f"mutants.toml names no tests of {', '.join(sorted(unknown))}")
    mutants = _chosen(mutants_list, texts, options)
    if not mutants:
        parser.error("no fault has that name")
    if options.list:
        for mutant in mutants:
            print(f"{mutant.module}:{mutant.line}: {mutant.name}")
        return EXIT_FINE
    if options.write and (options.automatic or options.only):
        parser.error("--write is for the faults of the list, of all modules or of some")
    with _trees(min(options.parallel, len(mutants))) as trees:
        if any(tree.text(module) != texts[module] for tree in trees for module in texts):
            print("the code has changed while it was copied: start again", file=sys.stderr)
            return EXIT_USAGE
        wrong, lines = _baseline(trees[0], mutants, mutants_list.tests)
        if wrong:
            print(wrong)
            return EXIT_WRONG
        verdicts = run(mutants, mutants_list.tests, trees, lines=lines, seconds=options.seconds)
    if options.only:
        print(verdicts[mutants[0].name].output if verdicts else "")
    return _report(mutants, verdicts, write=options.write)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 mutants", description="Small faults, and the tests that notice them."
    )
    parser.add_argument(
        "--module", action="append", help="only faults of this module, such as companions.retrying.retry"
    )
    parser.add_argument("--only", metavar="NAME", help="only the fault of this name, with the output of the tests")
    parser.add_argument("--list", action="store_true", help="list the faults and run nothing")
    parser.add_argument("--automatic", action="store_true", help="faults made by operators, not those of the list")
    parser.add_argument("--operator", action="append", choices=OPERATORS, help="only faults of this operator")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="N automatic faults of each module")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    parser.add_argument("--parallel", type=int, default=2, choices=range(1, MAX_PARALLEL + 1), metavar="N")
    parser.add_argument("--seconds", type=float, default=TEST_SECONDS, help="for the tests of one fault (default 60)")
    parser.add_argument("--write", action="store_true", help=f"write reports/{PAGE}")
    return parser


def _text_of(module: str) -> str:
    return _TOP.joinpath("chapter10", *module.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def _chosen(mutants_list: MutantList, texts: dict[str, str], options: argparse.Namespace) -> list[Mutant]:
    modules = options.module or list(texts)
    if options.automatic:
        found = []
        for module in modules:
            faults = automatic(module, texts[module], mutants_list.reasons)
            faults = [fault for fault in faults if fault.operator in (options.operator or OPERATORS)]
            if 0 < options.sample < len(faults):
                chosen = random.Random(options.seed).sample(range(len(faults)), options.sample)
                faults = [faults[number] for number in sorted(chosen)]
            found += faults
    else:
        entries = [entry for entry in mutants_list.entries if entry["module"] in modules]
        found = [written(entry, texts[entry["module"]]) for entry in entries]
    return [mutant for mutant in found if options.only in (None, mutant.name)]


def _baseline(tree: Tree, mutants: Sequence[Mutant], tests: dict[str, list[str]]) -> tuple[str, Touched]:
    """Return what is wrong without any fault, or nothing, and which tests run which line.

    Only tests that pass can notice something.
    """
    lines: Touched = {}
    for module in dict.fromkeys(mutant.module for mutant in mutants):
        print(f"... the tests of {module}, without a fault", file=sys.stderr, flush=True)
        verdict, found = tree.touched(tests[module], 5 * TEST_SECONDS)
        if verdict.ending != "survived":
            return f"the tests of {module} fail without any fault:\n{verdict.output}", {}
        lines[module] = found.get(module, {})
    return "", lines


def _report(mutants: Sequence[Mutant], verdicts: dict[str, Verdict], *, write: bool) -> int:
    survivors = [mutant for mutant in mutants if _ending(verdicts, mutant) == "survived"]
    noticed = len(verdicts) - len(survivors)
    hung = sum(verdict.ending == "hung" for verdict in verdicts.values())
    for mutant in survivors:
        print(
            f"survived: {mutant.module}:{mutant.line}: {mutant.name}" + (f"\n  {mutant.reason}" * bool(mutant.reason))
        )
    idle = [mutant.name for mutant in mutants if mutant.reason and _ending(verdicts, mutant) in ("noticed", "hung")]
    for name in idle:
        print(f"has a reason for surviving but did not: {name}")
    print(f"{len(mutants)} faults: {noticed} noticed ({hung} by a hang), {len(survivors)} survived")
    if len(verdicts) < len(mutants):
        print(f"stopped: {len(mutants) - len(verdicts)} were not looked at")
        return EXIT_INTERRUPTED
    if idle or not all(mutant.reason for mutant in survivors):
        return EXIT_WRONG
    return _write(mutants, verdicts) if write else EXIT_FINE


def _write(mutants: Sequence[Mutant], verdicts: dict[str, Verdict]) -> int:
    """Write the page of the whole list; rows of modules that this run did not look at stay as they were."""
    path = reports_folder() / PAGE
    rows = rows_before(path.read_text(encoding="utf-8")) if path.is_file() else {}
    rows |= rows_of(mutants, verdicts)
    listed = Counter(entry["module"] for entry in read_list().entries)
    unknown = [module for module, count in listed.items() if module not in rows or rows[module][0] != count]
    if unknown:
        print(f"not written, since this and the page before do not know all faults of: {', '.join(unknown)}")
        return EXIT_WRONG
    replace_together(reports_folder(), {PAGE: mutants_page({module: rows[module] for module in listed})})
    return EXIT_FINE


def _ending(verdicts: dict[str, Verdict], mutant: Mutant) -> str:
    return verdicts[mutant.name].ending if mutant.name in verdicts else "not run"


if __name__ == "__main__":
    main_guard(main)
