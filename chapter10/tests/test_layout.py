"""The shape of the house, checked by machine: floors, imports, public names, what no file may do.

The tables at the top are the documentation. A new module gets one line in `FLOORS`; an exception to a
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
from typing import Final

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

FLOOR: Final = ("limits", "canonical", "database", "catalog", "concurrency", "jobs", "experiments", "quickstart")
"""The chapter's floor, in reading order: these import only each other and the standard library."""

HOUSE: Final = (
    "companions.basics",
    "companions.schemas",
    "companions.finding",
    "companions.tools",
    "companions.interruption",
    "companions.retrying",
    "companions.effects",
    "companions.work",
    "companions.operating",
    "lab.console",
    "lab.evidence",
    "lab.tool_scenes",
    "lab.effect_scenes",
    "lab.guessing",
    "lab.histories",
    "lab.processes",
    "lab.reader",
    "lab.exercises",
    "lab.exercises.checks",
    "lab.benchmarks",
    "lab.proof",
)
"""The rooms above it, from below; a room imports only the floor and rooms beneath it."""

MOST_FILES: Final = 12
"""The most files of a room."""

MARKERS: Final = ("", "companions", "lab", *HOUSE)
"""Packages whose `__init__` is a docstring (the root adds the version guard): nothing is re-exported."""

REEXPORTS: Final[dict[str, frozenset[str]]] = {
    # the document's store is one page: intents, records and whole calls are imported from one place
    "companions.effects.idempotency": frozenset(
        {
            "APPLICATION_ID",
            "Claim",
            "DEFAULT_TTL_S",
            "IdempotencyError",
            "Intent",
            "LEASE_S",
            "LeaseLost",
            "Lifetime",
            "MAX_INTENT_BYTES",
            "MAX_LIMIT",
            "MAX_RESULT_BYTES",
            "MAX_SECONDS",
            "MAX_TEXT",
            "PAYMENT",
            "QUERY",
            "Record",
            "SHARED_OWNER",
            "STATES",
            "State",
            "TABLES",
            "Verdict",
            "document_key",
            "intent_key",
            "make_intent",
            "ttl_for",
        }
    ),
    "catalog": frozenset({"byte_size"}),  # the chapter measures definitions with it, beside the catalog
    # so is the outbox: rows, relay and receiver
    "companions.effects.outbox": frozenset(
        {
            "AGEING_S",
            "APPLICATION_ID",
            "BATCH_LIMIT",
            "Batch",
            "Consumer",
            "DEAD_ALARM",
            "HORIZON_S",
            "INBOX_APPLICATION_ID",
            "INBOX_TABLES",
            "INTERVAL_S",
            "LEASE_S",
            "MAX_ATTEMPTS",
            "MAX_LIMIT",
            "MAX_PAYLOAD_BYTES",
            "MAX_PRIORITY",
            "MAX_SECONDS",
            "MAX_TEXT",
            "Message",
            "Outbox",
            "OutboxError",
            "OutboxWriter",
            "PENDING_ALARM",
            "PassReport",
            "PermanentRefusal",
            "Relay",
            "STATUSES",
            "Send",
            "TABLES",
            "TransportDown",
            "Verdict",
            "derive_event_id",
            "growing_delay",
        }
    ),
    # the document's registry is one page: spec, registry and call are imported from one place
    "companions.tools.registry": frozenset({"ApprovalRequest", "CallContext", "RegistryError", "Status", "ToolSpec"}),
    # whoever checks arguments reads them first
    "companions.schemas.schema": frozenset({"MAX_STEPS", "MAX_VIOLATIONS", "JsonError", "copy_json", "strict_json"}),
}
"""Names that a module offers though another one owns them."""

COMPILES_A_READERS_FILE: Final[dict[str, str]] = {
    "lab.exercises.judge": "it judges the file of an exercise, in a child process and with the reader's own rights",
}
"""Lab modules that compile the file which a reader wrote, each with the reason."""

PLATFORM_IMPORTS: Final = frozenset({("companions.work.turnstile", "fcntl")})
"""Modules of one system only, each behind a `try`: (module, what it imports)."""

READS_A_CLOCK: Final[dict[str, str]] = {
    "lab.histories.explore": "it tells a person how many seconds an exploration took; nothing is decided by it",
}
"""Modules of the lab that measure or wait in real time, each with the reason; everybody else is given a clock."""

DOCUMENTED_ELSEWHERE: Final[dict[str, str]] = {
    "lab.histories.model.Model": "its methods are those of `jobs.JobStore`, said once more",
}
"""Classes whose methods have their docstrings in another module, each with the place."""

MARKS_AS_DATA: Final[dict[str, str]] = {
    "companions.tools.result_store": "it knows the emoji that join, so that a cut never splits one",
}
"""Modules in whose texts a mark beyond ASCII is data and never printed, each with the reason."""

CLOCKLESS: Final = (*(name for name in FLOOR if name != "database"), "lab.evidence.evidence")
"""Modules that know no clock, no sleep and no chance, not even as a default."""

MINIMUM_TESTS: Final = 700
"""`discover` in a wrong folder finds nothing and, on Python 3.11, says that all is well."""

FOREIGN_CODE: Final = frozenset(
    {
        "eval",
        "exec",
        "compile",
        "__import__",
        "asyncio.create_subprocess_shell",
        "builtins.eval",
        "builtins.exec",
        "builtins.compile",
        "builtins.__import__",
        "importlib.import_module",
        "importlib.reload",
        "importlib.util.spec_from_file_location",
        "os.popen",
        "os.system",
        "runpy.run_module",
        "runpy.run_path",
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
    }
)
OWN_IMPORTS: Final = frozenset({"__import__", "importlib.import_module"})
"""A test may name one of our own modules to take a guard out of it; the package itself loads nothing by name."""

FOREIGN_FORMATS: Final = frozenset({"pickle", "marshal", "shelve", "dill", "runpy", "code", "codeop"})
NETWORK: Final = frozenset(
    {
        "socket",
        "socketserver",
        "ssl",
        "urllib",
        "http",
        "ftplib",
        "smtplib",
        "poplib",
        "imaplib",
        "xmlrpc",
        "webbrowser",
        "wsgiref",
        "select",
        "selectors",
    }
)
ONE_SYSTEM_ONLY: Final = frozenset(
    {
        "curses",
        "fcntl",
        "grp",
        "msvcrt",
        "posix",
        "pty",
        "pwd",
        "readline",
        "resource",
        "syslog",
        "termios",
        "tty",
        "winreg",
        "winsound",
        "_winapi",
    }
)
CLOCKS: Final = frozenset(
    {
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.process_time",
        "time.localtime",
        "time.gmtime",
        "time.strftime",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
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
    """The package of a module."""
    return name.rpartition(".")[0]


class LayoutTestCase(unittest.TestCase):
    """A test that collects findings and shows all of them at once."""

    def assert_none(self, findings: list[str], rule: str) -> None:
        self.assertEqual(sorted(findings), [], f"{rule}: " + "; ".join(sorted(findings)))


def at(source: Source, node: ast.AST) -> str:
    return f"{source.path.relative_to(TOP).as_posix()}:{getattr(node, 'lineno', 0)}"


class Floors(LayoutTestCase):
    """Imports go one way."""

    def test_every_module_is_in_one_room(self) -> None:
        """A module belongs to the floor or to a room of the table, the entry of all commands aside."""
        outside = [
            n for n in set(modules()) - set(MARKERS) - {"__main__"} if n not in FLOOR and room_of(n) not in HOUSE
        ]
        self.assert_none(outside, "in no room")

    def test_a_room_has_at_most_a_dozen_files(self) -> None:
        """What is larger holds two ideas."""
        sizes = Counter(room_of(name) for name in modules() if name not in MARKERS)
        self.assert_none([f"{room}: {n}" for room, n in sizes.items() if room in HOUSE and n > MOST_FILES], "too large")

    def test_a_module_imports_only_from_its_room_and_those_beneath(self) -> None:
        """No room knows what stands above it, and the floor knows no room."""
        height = {room: level for level, room in enumerate(HOUSE, 1)}
        findings = [
            f"{name} imports {other}"
            for name, source in modules().items()
            if name not in ("", "__main__")
            for other in own_imports(source.tree, frozenset(modules()))
            if other and height.get(room_of(other), 0) > height.get(room_of(name), 0)
        ]
        self.assert_none(findings, "a room imports only rooms beneath it")

    def test_the_import_graph_has_no_cycle(self) -> None:
        """A topological order of all modules exists, whatever the table says."""
        known = frozenset(modules())
        graph = {name: own_imports(source.tree, known) for name, source in modules().items()}
        order = list(graphlib.TopologicalSorter(graph).static_order())
        self.assertEqual(sorted(order), sorted(known | set().union(*graph.values())))

    def test_no_import_stands_inside_a_function(self) -> None:
        """An import that hides from the reader hides a cycle."""
        findings = [
            at(source, node)
            for source in modules().values()
            for function in nodes(source.tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
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

    def test_the_library_does_not_know_its_tests(self) -> None:
        """An installed copy has no tests, and needs none."""
        findings = [
            f"{name} imports {other}"
            for name, source in modules().items()
            for other in own_imports(source.tree, frozenset(modules()))
            if other.split(".")[0] == "tests"
        ]
        self.assert_none(findings, "the library does not import the tests")

    def test_a_package_marker_is_a_docstring(self) -> None:
        """Only the root has code: the version guard."""
        for name in MARKERS:
            source = modules()[name]
            with self.subTest(package=name):
                self.assertIsNotNone(ast.get_docstring(source.tree))
                self.assertEqual(own_imports(source.tree, frozenset()), set())
                if name:
                    self.assertEqual(len(source.tree.body), 1)

    def test_a_room_says_where_each_of_its_modules_belongs(self) -> None:
        """The docstring of a room goes through its files and names all of them."""
        for room in HOUSE:
            inside = {name.rpartition(".")[2] for name in modules() if room_of(name) == room} - {"__main__"}
            inside = {name for name in inside if f"{room}.{name}" not in MARKERS}
            told = ast.get_docstring(modules()[room].tree) or ""
            with self.subTest(room=room):
                self.assertEqual(sorted(inside - set(re.findall(r"\w+", told))), [])


class PublicNames(LayoutTestCase):
    """The public face is small and visible."""

    def test_all_lists_what_a_module_defines(self) -> None:
        """`__all__` is the list of the public names, and of nothing else."""
        for name, source in modules().items():
            if name not in MARKERS:
                with self.subTest(module=name):
                    listed = all_of(source.tree)
                    self.assertIsNotNone(listed, "no __all__")
                    expected = public_definitions(source.tree) | REEXPORTS.get(name, frozenset())
                    self.assertEqual(sorted(listed or []), sorted(expected))

    def test_every_public_name_has_a_docstring(self) -> None:
        """Module, class, function and public method say what they promise."""
        findings = []
        for name, source in modules().items():
            if ast.get_docstring(source.tree) is None:
                findings.append(f"{name} (module)")
            findings += [
                f"{at(source, missing)} {label}"
                for label, missing in undocumented(source.tree)
                if f"{name}.{label.rpartition('.')[0]}" not in DOCUMENTED_ELSEWHERE
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
            if source.name not in COMPILES_A_READERS_FILE
            for reference in references(source.tree)
            if reference.origin
            in FOREIGN_CODE - (OWN_IMPORTS if source.name.startswith(("tests.", "__main__")) else frozenset())
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
                    if (name, root) not in PLATFORM_IMPORTS or node not in guarded:
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
            if name in READS_A_CLOCK:
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
        """The store keeps all evidence until somebody states a retention and calls `prune`.

        Claims: C10-295.
        """
        tree = modules()["jobs"].tree
        inside = {
            node
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef) and function.name == "prune"
            for node in ast.walk(function)
        }
        deletes = [node for node in strings_of(tree) if re.search(r"\bDELETE\s+FROM\b|\bDROP\b", str(node.value))]
        self.assertTrue(deletes, "prune deletes something")
        self.assertEqual([node.lineno for node in deletes if node not in inside], [])

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
            for source in modules().values()
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
        for path in repository_files():
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
        for path in repository_files():
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
            if name not in MARKS_AS_DATA
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

    def test_open_encodings_are_found(self) -> None:
        """Text without an encoding is found, bytes and an encoding are not."""
        for text, expected in (
            ("open(p)", True),
            ("open(p, 'rb')", False),
            ("open(p, encoding='utf-8')", False),
            ("p.read_text()", True),
            ("p.read_text('utf-8')", False),
            ("p.write_text(t)", True),
            ("p.open('w')", True),
            ("breaker.open()", False),
            ("subprocess.run(a, text=True)", True),
            ("subprocess.run(a)", False),
        ):
            with self.subTest(text=text):
                call = ast.parse(text, mode="eval").body
                assert isinstance(call, ast.Call)
                self.assertEqual(leaves_the_encoding_open(call), expected)

    def test_open_line_ends_are_found(self) -> None:
        """A text write without `newline` is found, a read and a binary write are not."""
        for text, expected in (
            ("open(p, 'w', encoding='utf-8')", True),
            ("open(p, 'w', encoding='utf-8', newline='')", False),
            ("open(p, 'wb')", False),
            ("open(p)", False),
            ("p.write_text(t, encoding='utf-8')", True),
            ("p.write_text(t, encoding='utf-8', newline='x')", False),
        ):
            with self.subTest(text=text):
                call = ast.parse(text, mode="eval").body
                assert isinstance(call, ast.Call)
                self.assertEqual(leaves_the_line_end_open(call), expected)

    def test_imports_of_this_package_are_resolved(self) -> None:
        """A module imported by name, from its package or from the root is seen as that module."""
        tree = ast.parse(
            "import chapter10.jobs\nfrom chapter10.companions import retry\n"
            "from chapter10 import canonical\nfrom chapter10.lab.console.textio import pad"
        )
        known = frozenset({"jobs", "companions.retrying.retry", "lab.console.textio", "companions", ""})
        self.assertEqual(own_imports(tree, known), {"jobs", "companions.retrying.retry", "", "lab.console.textio"})

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
