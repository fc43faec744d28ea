"""The shape of the house, checked by machine: floors, imports, public names, what no file may do.

The tables at the top are the documentation: `FLOOR` and `HOUSE` say where a module may stand; an exception to a
rule gets one line in its table, with the reason. The rules themselves read only the syntax tree, so
they hold for code that no test happens to run.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
import tomllib
import unittest
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from chapter10.tests.support import TOP
from chapter10.tests.syntax import (
    PACKAGE,
    Source,
    all_of,
    catches_everything,
    default_values,
    imported_roots,
    leaves_the_encoding_open,
    leaves_the_line_end_open,
    modules,
    nodes,
    nodes_of,
    own_imports,
    public_definitions,
    python_files,
    references,
    repository_files,
    strings_of,
    undocumented,
    words_of,
)

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef


def words(text: str) -> frozenset[str]:
    """The words of a text, for a table that is short to read."""
    return frozenset(text.split())


FLOOR: Final = ("limits", "canonical", "database", "catalog", "concurrency", "jobs", "experiments", "quickstart")
"""The chapter's floor: these import only each other and the standard library."""

HOUSE: Final = (
    "lab.console",  # what is said and in which language: the commands of the companions speak as well
    "companions.basics",
    "companions.schemas",
    "companions.finding",
    "companions.tools",
    "companions.interruption",
    "companions.retrying",
    "companions.effects",
    "companions.work",
    "companions.operating",
    "companions.serving",
    "lab.evidence",
    "lab.tool_scenes",
    "lab.effect_scenes",
    "lab.guessing",
    "lab.histories",
    "lab.scheduler",
    "lab.processes",
    "lab.reader",
    "lab.exercises",
    "lab.benchmarks",
    "lab.proof",
)
"""The rooms above it, from below; a room imports only the floor and rooms beneath it."""

MOST_FILES: Final = 12
"""The most files of a room."""

BENEATH: Final = "limits"
"""The one small module under the floor: bounds and input checks."""
FLOOR_LINES: Final = 1900
MODULE_LINES: Final = 550
SCREEN: Final = 45
"""The most lines of the whole floor, of one of its modules, and of a function there."""

RECOGNISED: Final[dict[str, str]] = {
    "catalog.Tool": "dataclass frozen name description keywords permission effect version",
    "catalog.Catalog.search": "words query casefold split permission grants intersection score candidates limit",
    "catalog.Catalog.load": "hits grants budget_bytes definition_budget_exceeded",
    "catalog.Catalog.authorize": "loaded grants",
    "concurrency.bounded_reads": "pending iter calls worker call_id Exception TaskGroup group create_task",
    "quickstart.main": "submit get print claim finish result",
    "jobs.JobStore.submit": "owner action_key intent known key_conflict capacity queue_full queued",
    "jobs.JobStore.claim": "deadline_exceeded attempts_exhausted lease lease_until attempt running",
    "jobs.JobStore.finish": "stale_attempt cancel_requested deadline lease_until lease_expired receipts succeeded",
    "jobs.JobStore.fail": "retry_after max_attempts deadline queued failed",
    "jobs.JobStore.cancel": "owner queued cancelled running cancel_requested",
    "experiments.lifecycle_experiment": "rows total index row enumerate amount_cents progress finish total_cents",
}
"""Where a listing of the chapter stands on the floor, with the chapter's names, within one screen."""

MARKERS: Final = ("", "companions", "lab", *HOUSE, "lab.exercises.checks")
"""Packages whose `__init__` is a docstring (the root adds the version guard): nothing is re-exported."""

IMPORTS_INSIDE: Final[dict[str, str]] = {
    "experiments.main": "a command needs what tells a story; the chapter's floor knows no room",
    "experiments.write_reports": "the pages are made by a room",
    "experiments.check_reports": "the pages are made by a room",
    "quickstart.main": "a command speaks through a room",
}
"""Functions of the floor that import from above it, each with the reason; a module's last lines may do so as well."""

REEXPORTS: Final[dict[str, tuple[str, ...]]] = {
    # the chapter measures definitions with it, beside the catalog
    "catalog": ("canonical",),
    # each of these is one page of a document: whole calls, names and rows are imported from one place
    "companions.effects.idempotency": ("companions.effects.intents", "companions.effects.intent_records"),
    "companions.effects.outbox": (
        "companions.effects.messages",
        "companions.effects.outbox_rows",
        "companions.effects.relay",
        "companions.effects.inbox",
    ),
    "companions.tools.registry": ("companions.tools.tool_spec",),
    # whoever checks arguments reads them first
    "companions.schemas.schema": ("companions.schemas.strict_json", "companions.schemas.schema_rules"),
}
"""Modules that offer names which another one owns, with the owners."""

EXCEPTIONS: Final[dict[str, str]] = {
    "lab.exercises.judge compiles": "it judges a reader's file, in a child process and with the reader's own rights",
    "lab.scheduler.page has marks": "it says them in a page, which is UTF-8, and to no terminal",
    "lab.histories.explore reads a clock": "it tells a person how many seconds it took; nothing is decided by it",
    "lab.histories.model.Model has no docstrings": "its methods are those of `jobs.JobStore`, said once more",
    "companions.tools.result_text has marks": "it knows the emoji that join, so that a cut never splits one",
    "companions.work.turnstile imports fcntl": "the queue of processes is for systems that have it, behind a `try`",
}
"""Who may do what the rules below forbid, each with the reason."""

LOADS_BY_NAME: Final[dict[str, str]] = {
    "companions.basics.modules": "a person names the module of their own handlers on the command line",
    "companions.serving.serve": "`door` is loaded once the descriptors are taken, while the first message is read",
}
"""Modules that import one by its name, each with the reason; what is named is never part of a message."""

MAPS_A_PROTOCOL: Final[dict[str, str]] = {
    "companions.serving.task_handles": "its table `STATUS` is the one place with the words of the tasks extension",
    "lab.guessing.predictions_tools": "a question about the door asks for the word that a client sees",
}
"""Modules that know a protocol's words for the states of a job, each in one table with a test."""

CLOCKLESS: Final = (*(name for name in FLOOR if name != "database"), "lab.evidence.evidence")
"""Modules that know no clock, no sleep and no chance, not even as a default."""

MINIMUM_TESTS: Final = 700
"""`discover` in a wrong folder finds nothing and, on Python 3.11, says that all is well."""

FOREIGN_CODE: Final = words("""
    eval exec compile __import__ asyncio.create_subprocess_shell builtins.eval builtins.exec builtins.compile
    builtins.__import__ importlib.import_module importlib.reload importlib.util.spec_from_file_location
    os.popen os.system runpy.run_module runpy.run_path subprocess.getoutput subprocess.getstatusoutput
""")
OWN_IMPORTS: Final = frozenset({"__import__", "importlib.import_module"})
"""A test may name one of our own modules to take a guard out of it; the package itself loads nothing by name."""

FOREIGN_FORMATS: Final = frozenset({"pickle", "marshal", "shelve", "dill", "runpy", "code", "codeop"})
NETWORK: Final = words("""
    socket socketserver ssl urllib http ftplib smtplib poplib imaplib xmlrpc webbrowser wsgiref select
    selectors
""")
ONE_SYSTEM_ONLY: Final = words("""
    curses fcntl grp msvcrt posix pty pwd readline resource syslog termios tty winreg winsound _winapi
""")
CLOCKS: Final = words("""
    time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns
    time.process_time time.localtime time.gmtime time.strftime datetime.datetime.now datetime.datetime.utcnow
    datetime.datetime.today datetime.date.today
""")
CHANCE: Final = frozenset({"os.urandom", "uuid.uuid1", "uuid.uuid4", "random.SystemRandom"})
CHANCE_MODULES: Final = frozenset({"random", "secrets"})
SEEDED: Final = frozenset({"random.Random"})

NAME: Final = re.compile(r"[a-z0-9_.-]+")
FREE_NAMES: Final = frozenset({"README.md", "README.zh-CN.md"})
"""The two names that every host shows first, and only in capitals."""
DEVICES: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")

OUTSIDE: Final = re.compile(
    r"/(?<![\w.~]/)(?:work|farm|root|home|users|[t]mp)/|:(?<=[a-z]:)\\\\?users"  # a folder of one machine
    r"|[p]ypi\.org|[p]ythonhosted|[r]egistry\.npmjs|[p]roxy\.golang|[i]ndex-url"  # a registry
    r"|[s]teering repo|[s]ubagent|[h]elper session|[a]i assistant|[c]o-authored"
)
"""In lower-case text: the repository speaks of the project alone. Each part begins with itself, which is fast."""

WORDS_OF_OTHERS: Final = "chapter10/lab/benchmarks/samples/"
"""Questions and definitions that were written elsewhere and are quoted as they are."""

MARKS: Final = re.compile(
    "[\u2713\u2714\u2717\u2718\u2705\u274c\u2190-\u21ff\u2264\u2265\u2500-\u259f\U0001f300-\U0001faff]"
)
"""Marks that a Chinese or a Western code page lacks or draws double; Chinese text is not among them."""


def room_of(name: str) -> str:
    """The room of a module, or "" if it stands on the floor, among the tests or nowhere."""
    return next((room for room in HOUSE if name.startswith(f"{room}.")), "")


@cache
def imports_of(name: str) -> set[str]:
    """What a module imports from this package when it is imported, by the names below `chapter10`.

    What `IMPORTS_INSIDE` allows comes later, when the function runs, and so does what a program's last lines do.
    """
    body = [
        node
        for node in modules()[name].tree.body
        if f"{name}.{getattr(node, 'name', '')}" not in IMPORTS_INSIDE and not _is_last_line(node)
    ]
    return own_imports(ast.Module(body, []), frozenset(modules()))


def _is_last_line(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)


def definition(place: str) -> Definition | None:
    """The function or class at `module.name` or `module.Class.name`, or None."""
    module, *path = place.split(".")
    node: Any = modules()[module].tree
    for name in path:
        node = next((n for n in node.body if getattr(n, "name", "") == name), None)
        if node is None:
            return None
    return cast(Definition, node)


def functions_of(tree: ast.Module) -> Iterator[Function]:
    """All functions of a module, at any depth."""
    yield from nodes_of(tree, ast.FunctionDef)
    yield from nodes_of(tree, ast.AsyncFunctionDef)


def length(node: Definition) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


class LayoutTestCase(unittest.TestCase):
    """A test that collects findings and shows all of them at once."""

    def assert_none(self, findings: list[str], rule: str) -> None:
        self.assertEqual(sorted(findings), [], f"{rule}: " + "; ".join(sorted(findings)))


def at(source: Source, node: ast.AST) -> str:
    return f"{source.path.relative_to(TOP).as_posix()}:{getattr(node, 'lineno', 0)}"


class TheFloor(LayoutTestCase):
    """The chapter's floor reads like the chapter."""

    def test_it_is_short(self) -> None:
        """All of it, each module, and each function within one screen."""
        sizes = {
            name: len(modules()[name].path.read_text(encoding="utf-8").splitlines())
            for name in FLOOR
            if name != BENEATH
        }
        findings = [f"{name}: {lines} lines" for name, lines in sizes.items() if lines > MODULE_LINES]
        findings += [f"together {sum(sizes.values())} lines"] if sum(sizes.values()) > FLOOR_LINES else []
        findings += [
            f"{at(modules()[name], node)} {node.name}: {length(node)} lines"
            for name in FLOOR
            for node in functions_of(modules()[name].tree)
            if length(node) > SCREEN
        ]
        self.assert_none(findings, "the floor is read in a sitting")

    def test_each_listing_of_the_chapter_is_recognised(self) -> None:
        """It stands in one function with the chapter's names; of a class the first screen counts, its fields first."""
        for place, expected in RECOGNISED.items():
            with self.subTest(place=place):
                node = definition(place)
                assert node is not None, "it is not there"
                lines = modules()[place.split(".")[0]].path.read_text(encoding="utf-8").splitlines()
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
                told = ast.get_docstring(node, clean=False) or ""
                code = "\n".join(lines[first : node.end_lineno][:SCREEN]).replace(told, "")
                self.assertEqual(words(expected) - set(re.findall(r"\w+", code)), set())
                if isinstance(node, ast.ClassDef):
                    self.assertIsInstance(node.body[1], ast.AnnAssign)
                else:
                    self.assertLessEqual(length(node), SCREEN)

    def test_the_three_tables_and_the_transaction_are_recognised(self) -> None:
        """Jobs, receipts and events are made in one text; a write begins with `BEGIN IMMEDIATE`."""
        tables = [
            re.findall(r"CREATE TABLE (\w+)", str(node.value))
            for node in strings_of(modules()["jobs"].tree)
            if "CREATE TABLE" in str(node.value)
        ]
        self.assertEqual([sorted(names) for names in tables], [["events", "jobs", "receipts"]])
        self.assertIn("BEGIN IMMEDIATE", [node.value for node in strings_of(modules()["database"].tree)])


class Rooms(LayoutTestCase):
    """Imports go one way, and each room says what it is for."""

    def test_every_module_is_in_one_room_of_a_dozen_files(self) -> None:
        """A module belongs to the floor or to a room of the table; what is larger holds two ideas."""
        inside = [name for name in modules() if name not in MARKERS and name not in (*FLOOR, "__main__")]
        sizes = Counter(map(room_of, inside))
        findings = [f"{name}: in no room" for name in inside if not room_of(name)]
        findings += [f"{room}: {size} files" for room, size in sizes.items() if size > MOST_FILES]
        self.assert_none(findings, "every module is in one room")

    def test_a_module_imports_only_from_its_room_and_those_beneath(self) -> None:
        """No room knows what stands above it, the floor knows no room, and nobody knows the tests."""
        height = {"": 0} | {room: level for level, room in enumerate(HOUSE, 1)}
        findings = [
            f"{name} imports {other}"
            for name in modules()
            if name not in ("", "__main__")
            for other in imports_of(name)
            if other.startswith("tests") or height[room_of(other)] > height[room_of(name)]
        ]
        self.assert_none(findings, "a room imports only rooms beneath it")

    def test_the_import_graph_has_no_cycle(self) -> None:
        """A topological order of all modules exists, whatever the table says."""
        graph = {name: imports_of(name) for name in modules()}
        order = list(graphlib.TopologicalSorter(graph).static_order())
        self.assertEqual(sorted(order), sorted(set(graph).union(*graph.values())))

    def test_no_import_stands_inside_a_function(self) -> None:
        """An import that hides from the reader hides a cycle; the table names the few that may."""
        findings = [
            at(source, node)
            for name, source in modules().items()
            for function in functions_of(source.tree)
            if f"{name}.{function.name}" not in IMPORTS_INSIDE
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        self.assert_none(findings, "imports stand at the top of a module")

    def test_a_name_is_imported_from_the_module_that_owns_it(self) -> None:
        """Nobody imports the root, a package marker or a relative name, so an import line says which page to open."""
        known = frozenset(modules())
        findings = [
            f"{source.name} imports {other or 'chapter10'}"
            for source in python_files()
            for other in own_imports(source.tree, known)
            if other in MARKERS
        ]
        findings += [f"{s.name} imports relatively" for s in python_files() if "." in imported_roots(s.tree)]
        self.assert_none(findings, "import from the owner of a name")

    def test_a_package_marker_is_a_docstring(self) -> None:
        """Only the root has code: the version guard."""
        for name in MARKERS:
            source = modules()[name]
            with self.subTest(package=name):
                self.assertIsNotNone(ast.get_docstring(source.tree))
                self.assertEqual(own_imports(source.tree, frozenset()), set())
                if name:
                    self.assertEqual(len(source.tree.body), 1)

    def test_a_room_follows_one_thing_through_its_files(self) -> None:
        """The docstring of a room names each of its files on the way, and says what walks in and what leaves."""
        for package in (*HOUSE, "lab.exercises.checks"):
            inside = {name.rpartition(".")[2] for name in modules() if name.rpartition(".")[0] == package}
            told = ast.get_docstring(modules()[package].tree) or ""
            with self.subTest(room=package):
                self.assertEqual(inside - {"__main__"} - set(re.findall(r"\w+", told)), set())
                self.assertRegex(told, r"(?s)\bIn: .*\bOut: ")

    def test_the_two_houses_list_their_rooms_from_below(self) -> None:
        """`companions` and `lab` have a line for each room, in the order of the table."""
        for house in ("companions", "lab"):
            told = ast.get_docstring(modules()[house].tree) or ""
            rooms = [room.partition(".")[2] for room in HOUSE if room.startswith(f"{house}.")]
            self.assertEqual(re.findall(r"^    (\w+) ", told, re.MULTILINE), rooms)


class PublicNames(LayoutTestCase):
    """The public face is small and visible."""

    def test_all_lists_what_a_module_defines(self) -> None:
        """`__all__` is the list of the public names, and of nothing else."""
        for name, source in modules().items():
            if name not in MARKERS:
                with self.subTest(module=name):
                    listed = all_of(source.tree)
                    self.assertIsNotNone(listed, "no __all__")
                    others = {n for owner in REEXPORTS.get(name, ()) for n in all_of(modules()[owner].tree) or []}
                    own = public_definitions(source.tree)
                    self.assertEqual(sorted(set(listed or []) - others), sorted(own - others))

    def test_every_public_name_has_a_docstring(self) -> None:
        """Module, class, function and public method say what they promise."""
        findings = []
        for name, source in modules().items():
            if ast.get_docstring(source.tree) is None:
                findings.append(f"{name} (module)")
            findings += [
                f"{at(source, missing)} {label}"
                for label, missing in undocumented(source.tree)
                if f"{name}.{label.rpartition('.')[0]} has no docstrings" not in EXCEPTIONS
            ]
        self.assert_none(findings, "a public name has a docstring")

    def test_discovery_finds_the_whole_suite(self) -> None:
        """A wrong folder would be silent on Python 3.11, so the suite counts itself."""
        suite = unittest.defaultTestLoader.discover(str(PACKAGE / "tests"), top_level_dir=str(TOP))
        self.assertEqual(unittest.defaultTestLoader.errors, [])
        self.assertGreaterEqual(suite.countTestCases(), MINIMUM_TESTS)

    def test_every_test_module_matches_the_pattern_of_discovery(self) -> None:
        """A test in a file of another name would never run."""
        findings = [
            source.name
            for source in python_files()
            if source.name.startswith("tests.")
            and not source.name.split(".")[-1].startswith("test_")
            and any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in nodes(source.tree))
        ]
        self.assert_none(findings, "a file with tests is called test_*.py")


class WhatNoFileDoes(LayoutTestCase):
    """No foreign code, no network, no hidden clock, no text in the encoding of one machine."""

    def test_only_the_standard_library_is_imported(self) -> None:
        """Nothing has to be installed, neither for the package nor for its tests.

        Claims: C10-003.
        """
        findings = [
            f"{source.name} imports {root}"
            for source in python_files()
            for root in imported_roots(source.tree)
            if root not in sys.stdlib_module_names and root not in {"chapter10", "."}
        ]
        self.assert_none(findings, "standard library only")

    def test_the_package_asks_for_nothing(self) -> None:
        """The metadata agree: Python from 3.11 up, no dependency, version 1.0.

        Claims: C10-001, C10-002, C10-003.
        """
        project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        self.assertEqual(project["requires-python"], ">=3.11")
        self.assertEqual(project["dependencies"], [])
        self.assertEqual(project["version"], "1.0")

    def test_no_text_is_run_as_code(self) -> None:
        """Nothing evaluates, compiles or imports what it was given; no shell reads a line of ours.

        Claims: C10-126, C10-128.
        """
        findings = [
            f"{at(source, reference.node)} {reference.origin}"
            for source in python_files()
            if f"{source.name} compiles" not in EXCEPTIONS
            for reference in references(source.tree)
            if reference.origin
            in FOREIGN_CODE
            - (OWN_IMPORTS if source.name.startswith(("tests.", "__main__", *LOADS_BY_NAME)) else frozenset())
        ]
        findings += [
            f"{at(source, node)} shell"
            for source in python_files()
            for starts in [{r.node for r in references(source.tree) if r.origin.startswith("subprocess.")}]
            for node in nodes_of(source.tree, ast.Call)
            if node.func in starts and "shell" in {key.arg for key in node.keywords}
        ]
        findings += [
            f"{source.name} imports {root}"
            for source in python_files()
            for root in imported_roots(source.tree) & FOREIGN_FORMATS
        ]
        self.assert_none(findings, "no eval, no pickle, no shell")

    def test_no_module_can_reach_the_network(self) -> None:
        """No module of the library imports one that opens a connection.

        Claims: C10-004.
        """
        findings = [f"{n} imports {root}" for n, s in modules().items() for root in imported_roots(s.tree) & NETWORK]
        self.assert_none(findings, "no network")

    def test_what_one_system_lacks_stands_behind_a_try(self) -> None:
        """A module that Windows lacks is imported only where the table says so, and its absence is caught."""
        findings = []
        for name, source in modules().items():
            guarded = {
                inner
                for node in nodes_of(source.tree, ast.Try)
                if any("ImportError" in ast.dump(handler.type or node) for handler in node.handlers)
                for statement in node.body
                for inner in ast.walk(statement)
            }
            for node in nodes_of(source.tree, ast.Import, ast.ImportFrom):
                for root in imported_roots(node) & ONE_SYSTEM_ONLY:
                    if f"{name} imports {root}" not in EXCEPTIONS or node not in guarded:
                        findings.append(f"{at(source, node)} {root}")
        self.assert_none(findings, "a module of one system only")

    def test_the_rooms_of_the_chapter_know_no_clock(self) -> None:
        """Time is an argument in them, so that every scene can be repeated.

        Claims: C10-142.
        """
        findings = [
            f"{at(modules()[name], reference.node)} {reference.origin}"
            for name in CLOCKLESS
            for reference in references(modules()[name].tree)
            if is_ambient(reference.origin)
        ]
        self.assert_none(findings, "no clock, no sleep, no chance")

    def test_clock_sleep_and_chance_are_parameters_everywhere(self) -> None:
        """They occur only as the default of a parameter, which a test replaces."""
        findings = []
        for name, source in modules().items():
            if f"{name} reads a clock" in EXCEPTIONS:
                continue
            defaults = default_values(source.tree)
            findings += [
                f"{at(source, reference.node)} {reference.origin}"
                for reference in references(source.tree)
                if is_ambient(reference.origin) and reference.node not in defaults
            ]
        self.assert_none(findings, "clock, sleep and chance are parameters")

    def test_no_test_sleeps(self) -> None:
        """A test that waits for time to pass is slow on one machine and wrong on another."""
        findings = []
        for source in python_files():
            calls = list(nodes_of(source.tree, ast.Call))
            yields = {call.func for call in calls if _is_zero(call.args)}
            awaited = {node.value.func for node in nodes_of(source.tree, ast.Await) if isinstance(node.value, ast.Call)}
            waits = {"time.sleep": {call.func for call in calls}, "asyncio.sleep": awaited}
            findings += [
                f"{at(source, reference.node)} {reference.origin}"
                for reference in references(source.tree)
                if reference.node in waits.get(reference.origin, set()) - yields
            ]
        self.assert_none(findings, "nobody sleeps; asyncio.sleep(0) yields")

    def test_text_files_are_opened_with_their_encoding(self) -> None:
        """The default encoding differs between machines, so no text is read or written with it."""
        findings = [
            at(source, node)
            for source in python_files()
            for node in nodes_of(source.tree, ast.Call)
            if leaves_the_encoding_open(node)
        ]
        self.assert_none(findings, "text has an encoding")

    def test_text_files_are_written_with_lf(self) -> None:
        """A file that the library writes has the same bytes on Windows."""
        findings = [
            at(source, node)
            for source in modules().values()
            for node in nodes_of(source.tree, ast.Call)
            if leaves_the_line_end_open(node)
        ]
        self.assert_none(findings, 'text is written with newline="\\n"')

    def test_nothing_swallows_a_stop(self) -> None:
        """Whoever catches everything raises again, so that a cancel or Ctrl-C arrives."""
        findings = []
        for source in modules().values():
            for handler in nodes_of(source.tree, ast.ExceptHandler):
                if catches_everything(handler.type):
                    if not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler)):
                        findings.append(at(source, handler))
            for node in nodes_of(source.tree, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr == "suppress":
                    findings += [at(source, node) for argument in node.args if catches_everything(argument)]
        self.assert_none(findings, "what catches everything raises again")

    def test_jobs_deletes_only_when_it_prunes(self) -> None:
        """The chapter's store keeps all evidence; the living one until somebody states a retention and calls `prune`,
        but for the oldest progress of a job that has said more than a stated number of times how far it is, and pauses.

        Claims: C10-295.
        """
        self.assertEqual([], [at(modules()["jobs"], node) for node in self.deletes(modules()["jobs"].tree)])
        tree = modules()["companions.work.living_store"].tree
        inside = {
            node
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef) and function.name in ("prune", "_tell", "resume")
            for node in ast.walk(function)
        }
        deletes = self.deletes(tree)
        self.assertTrue(deletes, "prune deletes something")
        self.assertEqual([node.lineno for node in deletes if node not in inside], [])

    def deletes(self, tree: ast.AST) -> list[ast.Constant]:
        """Every text that takes rows away."""
        return [node for node in strings_of(tree) if re.search(r"\bDELETE\s+FROM\b|\bDROP TABLE\b", str(node.value))]

    def test_a_catalog_entry_holds_nothing_that_runs(self) -> None:
        """Discovery proposes: a tool is data, and the catalog has no verb that executes one.

        Claims: C10-010.
        """
        tree = modules()["catalog"].tree
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        fields = [
            node.target.id
            for node in classes["Tool"].body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and not node.target.id.startswith("_")
        ]
        self.assertEqual(fields, ["name", "description", "keywords", "permission", "effect", "version", "parameters"])
        verbs = {node.name for node in ast.walk(classes["Catalog"]) if isinstance(node, ast.FunctionDef)}
        self.assertEqual(verbs & {"call", "execute", "invoke", "run", "dispatch", "__call__"}, set())
        self.assertEqual(imported_roots(tree) & {"asyncio", "concurrent", "subprocess", "threading"}, set())

    def test_no_foreign_id_stands_for_a_job(self) -> None:
        """A provider's response, a graph's checkpoint or a protocol's state word is never mapped to a job by accident.

        Claims: C10-261, C10-262.
        """
        foreign = re.compile(r"response_id|checkpoint_id|thread_id|background_id|input_required|working")
        findings = [
            f"{at(source, node)} {text}"
            for name, source in modules().items()
            if name not in MAPS_A_PROTOCOL
            for node in nodes_of(source.tree, ast.Name, ast.Attribute, ast.arg, ast.Constant)
            for text in [*words_of(node)]
            if foreign.fullmatch(text)
        ]
        self.assert_none(findings, "a mapping to a protocol is a table of its own, with its own test")


def is_ambient(origin: str) -> bool:
    """Whether a name reads a clock, waits, or draws by chance; a generator made from a seed does none of it."""
    if origin in SEEDED or any(origin.startswith(f"{seeded}.") for seeded in SEEDED):
        return False
    return origin in CLOCKS | CHANCE | {"time.sleep"} or ("." in origin and origin.split(".")[0] in CHANCE_MODULES)


def _is_zero(arguments: list[ast.expr]) -> bool:
    """Whether a call has the one argument 0."""
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and repr(arguments[0].value) == "0"


def text_files() -> Iterator[Path]:
    """What a reader gets, the picture of the README aside."""
    return (path for path in repository_files() if path.suffix != ".png")


class Files(LayoutTestCase):
    """What a reader unpacks works on every system and speaks of the project alone."""

    def test_file_names_survive_every_file_system(self) -> None:
        """Lower-case ASCII, no reserved device, short enough for a deep folder on Windows."""
        findings = []
        for path in repository_files():
            relative = path.relative_to(TOP)
            for part in relative.parts:
                if (part not in FREE_NAMES and not NAME.fullmatch(part)) or DEVICES.fullmatch(part):
                    findings.append(relative.as_posix())
            if len(relative.as_posix()) > 100:
                findings.append(f"{relative.as_posix()} is long")
        self.assert_none(findings, "file names")

    def test_text_is_utf8_with_lf_and_ends_with_a_line_end(self) -> None:
        """No byte-order mark, no CR, no tab or blank at the end of a Python line."""
        findings = []
        for path in text_files():
            content = path.read_bytes()
            name = path.relative_to(TOP).as_posix()
            if b"\r" in content or content.startswith(b"\xef\xbb\xbf"):
                findings.append(f"{name}: CR or byte-order mark")
            if content and not content.endswith(b"\n"):
                findings.append(f"{name}: no line end at the end")
            content.decode("utf-8")
        self.assert_none(findings, "UTF-8 with LF")

    def test_the_repository_speaks_of_the_project_alone(self) -> None:
        """No path of one machine, no registry, nobody who is not the reader."""
        findings = []
        for path in text_files():
            if path.relative_to(TOP).as_posix().startswith(WORDS_OF_OTHERS):
                continue
            text = path.read_text(encoding="utf-8").lower()
            for match in OUTSIDE.finditer(text):
                number = text.count("\n", 0, match.start()) + 1
                findings.append(f"{path.relative_to(TOP).as_posix()}:{number} {match.group()}")
        self.assert_none(findings, "nothing from outside the project")

    def test_what_the_library_prints_needs_no_marks_beyond_ascii(self) -> None:
        """Arrows, ticks and boxes are missing or double-wide in common code pages, so no string has one."""
        findings = [
            f"{at(source, node)} {match.group()!r}"
            for name, source in modules().items()
            if f"{name} has marks" not in EXCEPTIONS
            for node in strings_of(source.tree)
            if isinstance(node.value, str) and (match := MARKS.search(node.value))
        ]
        self.assert_none(findings, "terminal marks are ASCII")

    def test_no_report_speaks_of_success_rates_or_costs(self) -> None:
        """Passed tests are no task success rate, and bytes are no bill.

        Claims: C10-258, C10-278.
        """
        forbidden = re.compile(r"success[ _]rate|pass[ _]rate|\bcost_|_cost\b|\bprice|\busd\b|成功率", re.IGNORECASE)
        findings = [
            f"{path.name}:{number}"
            for path in sorted((TOP / "reports").glob("*.json*"))
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if forbidden.search(line)
        ]
        self.assert_none(findings, "no rate, no cost")


class TheRulesThemselves(LayoutTestCase):
    """Each rule finds the fault that it is there for; a rule that never fires proves nothing."""

    def test_references_see_through_aliases(self) -> None:
        """`from time import sleep as nap` is still `time.sleep`."""
        tree = ast.parse(
            "import time as t\nfrom time import sleep as nap\nimport os.path\nnap(1)\nt.time()\nos.system('x')"
        )
        origins = {reference.origin for reference in references(tree)}
        self.assertLessEqual({"time.sleep", "time.time", "os.system"}, origins)

    def test_a_default_is_told_from_a_call(self) -> None:
        """A clock as a default is a parameter; a clock that is read is not."""
        tree = ast.parse("import time\ndef f(clock=time.monotonic):\n    return time.time()")
        defaults = default_values(tree)
        loose = {r.origin for r in references(tree) if is_ambient(r.origin) and r.node not in defaults}
        self.assertEqual(loose, {"time.time"})

    def test_open_encodings_and_line_ends_are_found(self) -> None:
        """Text without an encoding and a text write without `newline` are found, bytes and reads are not."""
        for text, encoding, line_end in (
            ("open(p)", True, False),
            ("open(p, 'rb')", False, False),
            ("open(p, 'wb')", False, False),
            ("open(p, encoding='utf-8')", False, False),
            ("open(p, 'w', encoding='utf-8')", False, True),
            ("open(p, 'w', encoding='utf-8', newline='')", False, False),
            ("p.read_text()", True, False),
            ("p.read_text('utf-8')", False, False),
            ("p.write_text(t)", True, True),
            ("p.write_text(t, encoding='utf-8')", False, True),
            ("p.write_text(t, encoding='utf-8', newline='x')", False, False),
            ("p.open('w')", True, True),
            ("breaker.open()", False, False),
            ("subprocess.run(a, text=True)", True, False),
            ("subprocess.run(a)", False, False),
        ):
            with self.subTest(text=text):
                call = ast.parse(text, mode="eval").body
                assert isinstance(call, ast.Call)
                self.assertEqual((leaves_the_encoding_open(call), leaves_the_line_end_open(call)), (encoding, line_end))

    def test_imports_of_this_package_are_resolved(self) -> None:
        """A module imported by name, from its package or from the root is seen as that module."""
        tree = ast.parse(
            "import chapter10.jobs\nfrom chapter10.companions import retry\n"
            "from chapter10 import canonical\nfrom chapter10.lab.console.textio import pad"
        )
        known = frozenset({"jobs", "companions.retry", "lab.console.textio", "companions", ""})
        self.assertEqual(own_imports(tree, known), {"jobs", "companions.retry", "", "lab.console.textio"})

    def test_a_missing_docstring_is_found(self) -> None:
        """Public functions and methods are looked at, private and inherited ones are not."""
        tree = ast.parse(
            "class A:\n    'x'\n    def b(self): ...\n    def _c(self): ...\n"
            "class D(A):\n    'y'\n    def b(self): ...\n    def e(self): ...\ndef f(): ..."
        )
        self.assertEqual([label for label, _ in undocumented(tree)], ["A.b", "D.e", "f"])

    def test_a_swallowed_stop_is_found(self) -> None:
        """A bare `except`, `BaseException` and a tuple with it catch everything."""
        for text, expected in (("BaseException", True), ("(OSError, BaseException)", True), ("Exception", False)):
            with self.subTest(text=text):
                self.assertEqual(catches_everything(ast.parse(text, mode="eval").body), expected)
        self.assertTrue(catches_everything(None))
