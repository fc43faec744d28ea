"""Bad input at scale: `python -m chapter10 fuzz`.

The boundary of a module is every public callable. Each is called with arguments of which one, two or three
are traps: wrong types, `True` where a number is due, NaN, numbers that no database holds, texts that are
empty, a megabyte, half a character or two forms of the same letter, lists a hundred thousand deep, keys that
are no texts, objects whose `__eq__`, `__hash__`, `__len__` or `__iter__` raises, functions that raise.

What must hold for each call, whatever it was given
    F1  it returns, or it raises an error of the declared kinds: the `CodedError` family, and what the
        docstring names
    F2  a call that raised has changed nothing: the content before and after is equal
    F3  the object works afterwards: a plain valid call has its usual answer

    python -m chapter10 fuzz                       a short run over every subject
    python -m chapter10 fuzz --seed 7 --calls 5000    5,000 calls of each subject
    python -m chapter10 fuzz --subject jobs        one of them; --list names them

What the callables are, how valid arguments of each are made, and which names are left out for what reason
stands in `lab.proof.fuzz_subjects`. The same seed gives the same calls on every machine.

What it does not do: guess at meanings. An answer that is wrong but declared is for the other tests.
Exit codes: 0 nothing found, 1 findings, 2 usage.
Source: claims C10-277, C10-281.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import CodedError
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG, main_guard
from chapter10.lab.proof.fuzz_subjects import SUBJECTS, Subject, Verb

__all__ = [
    "CALL_SECONDS",
    "DEEP",
    "MAX_CALLS",
    "TRAPS",
    "CallableTrap",
    "Finding",
    "Trap",
    "TrapTouched",
    "fuzz",
    "main",
]

MAX_CALLS: Final = 10_000_000
DEEP: Final = 100_000
"""Levels of the deepest lists and dicts."""
CALL_SECONDS: Final = 20.0
"""How long an asynchronous call may take before it counts as one that hangs."""
_NEW_AFTER: Final = 50
"""Calls until a subject is made anew, so that most calls meet it in a usual state."""


class TrapTouched(Exception):
    """Raised by a trap that nobody has to touch: no code of the package may let it out."""


class CallableTrap(Exception):
    """Raised by a function or by a container's own code; who calls what it was handed may let it out."""


@dataclass(frozen=True, slots=True)
class Trap:
    """One bad value: its name, and how it is made (a new one for each call where it can be changed)."""

    name: str
    make: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """What broke: where, by which traps, and what happened instead of a declared answer."""

    verb: str
    traps: tuple[str, ...]
    what: str

    def __str__(self) -> str:
        return f"{self.verb}({', '.join(self.traps)}): {self.what}"


class _EqRaises:
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise TrapTouched("__eq__")


class _HashRaises:
    def __hash__(self) -> int:
        raise TrapTouched("__hash__")


class _TruthRaises:
    def __bool__(self) -> bool:
        raise TrapTouched("__bool__")


class _LenRaises(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise CallableTrap("__len__")


class _IterRaises(dict):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        raise CallableTrap("__iter__")


class _Unmakeable:
    def __init__(self, *_: object, **__: object) -> None:
        raise CallableTrap("__init__")


class _TextOfItsOwn(str):
    pass


class _NumberOfItsOwn(int):
    pass


def _raises(*_: object, **__: object) -> object:
    raise CallableTrap("called")


def _nested(make: Callable[[object], object]) -> object:
    value: object = None
    for _ in range(DEEP):
        value = make(value)
    return value


def _inside_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


# Made once: building them takes longer than most calls, and nobody may change what it is given.
_DEEP_LIST: Final = _nested(lambda inner: [inner])
_DEEP_DICT: Final = _nested(lambda inner: {"a": inner})
_MEGABYTE: Final = "x" * 2**20
_SINGLE: Final[tuple[tuple[str, object], ...]] = (
    ("None", None),
    ("True", True),
    ("False", False),
    ("0", 0),
    ("1", 1),
    ("-1", -1),
    ("2**31", 2**31),
    ("2**53 + 1", 2**53 + 1),
    ("2**63 - 1", 2**63 - 1),
    ("2**63", 2**63),
    ("-2**63 - 1", -(2**63) - 1),
    ("10**5000", 10**5000),
    ("0.0", 0.0),
    ("-0.0", -0.0),
    ("0.5", 0.5),
    ("5e-324", 5e-324),
    ("1e308", 1e308),
    ("2.0**40", 2.0**40),
    ("NaN", float("nan")),
    ("infinity", float("inf")),
    ("-infinity", float("-inf")),
    ("1j", 1j),
    ("an empty text", ""),
    ("a blank", " "),
    ("x", "x"),
    ("201 characters", "x" * 201),
    ("a megabyte", _MEGABYTE),
    ("NUL", "a\0b"),
    ("a lone surrogate", "a\ud800"),
    ("e and accent in one", "caf\u00e9"),
    ("e and accent in two", "cafe\u0301"),
    ("a line break", "a\nb"),
    ("../..", "../.."),
    ("an emoji that joins", "".join(map(chr, (0x1F468, 0x200D, 0x1F469)))),
    ("bytes", b"x"),
    ("a tuple", ("x",)),
    ("an empty tuple", ()),
    ("a frozenset", frozenset({"x"})),
    ("a deep list", _DEEP_LIST),
    ("a deep dict", _DEEP_DICT),
    ("a class", _Unmakeable),
    ("an object", object()),
    ("__eq__ raises", _EqRaises()),
    ("__hash__ raises", _HashRaises()),
    ("__bool__ raises", _TruthRaises()),
    ("__len__ raises", _LenRaises()),
    ("__iter__ raises", _IterRaises()),
    ("a text of a class of its own", _TextOfItsOwn("x")),
    ("a number of a class of its own", _NumberOfItsOwn(1)),
    ("a function that raises", _raises),
    ("a function that gives NaN", lambda *_, **__: float("nan")),
    ("a function that gives None", lambda *_, **__: None),
    ("an error", ValueError("x")),
)


def _single(value: object) -> Callable[[], object]:
    return lambda: value


TRAPS: Final = (
    *(Trap(name, _single(value)) for name, value in _SINGLE),
    Trap("an empty list", list),
    Trap("an empty dict", dict),
    Trap("a list", lambda: ["x"]),
    Trap("a set", lambda: {"x", 1}),
    Trap("a bytearray", lambda: bytearray(b"x")),
    Trap("a number as key", lambda: {1: "x"}),
    Trap("None as key", lambda: {None: "x"}),
    Trap("a lone surrogate as key", lambda: {"\ud800": 1}),
    Trap("NaN inside", lambda: {"a": [float("nan")]}),
    Trap("a tuple inside", lambda: {"a": (1,)}),
    Trap("a list inside itself", _inside_itself),
    Trap("a generator", lambda: (each for each in ("x", "y"))),
    Trap("a range", lambda: range(3)),
)


class _Run:
    """The calls of one subject, chosen by a seed."""

    def __init__(self, name: str, subject: Subject, seed: int, folder: Path, runner: asyncio.Runner) -> None:
        self._name = name
        self._subject = subject
        self._chance = random.Random(f"{seed}/{name}")
        self._folder = folder
        self._runner = runner
        self._made = 0

    def findings(self, calls: int) -> Iterator[Finding]:
        while calls > 0:
            self._made += 1
            home = self._folder / f"{self._name}-{self._made}"
            home.mkdir()
            with self._subject(home) as bench:
                for _ in range(min(calls, _NEW_AFTER)):
                    calls -= 1
                    verb = self._chance.choice(bench.verbs)
                    arguments, traps = self._arguments(verb)
                    wrong = self._wrong(bench.content, bench.usable, verb, arguments)
                    if wrong is not None:
                        yield Finding(f"{self._name}: {verb.name}", traps, wrong)
                        break  # whatever it left behind, the next one starts anew

    def _wrong(
        self, content: Callable[[], object], usable: Callable[[], object], verb: Verb, arguments: dict[str, Any]
    ) -> str | None:
        """Make one call and say what is wrong with its end, if something is."""
        before = content()
        refused = ""
        try:
            self._call(verb, arguments)
        except CodedError as error:
            refused = error.code
            if str(error) != error.code:
                return f"the text of the error is not its code: {refused}"
        except verb.raises as error:
            refused = type(error).__name__
        except CallableTrap:
            refused = "the function's own error"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:120]}"
        if refused and content() != before:
            return f"refused ({refused}), and something has changed"
        try:
            if usable() is not True:
                return f"a valid call has another answer afterwards ({refused or 'not refused'})"
        except Exception as error:
            return f"a valid call fails afterwards: {type(error).__name__}: {str(error)[:120]}"
        return None

    def _call(self, verb: Verb, arguments: dict[str, Any]) -> None:
        if not verb.is_async:
            verb.call(**arguments)
            return

        async def bounded() -> None:
            async with asyncio.timeout(CALL_SECONDS):
                await verb.call(**arguments)

        self._runner.run(bounded())

    def _arguments(self, verb: Verb) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return valid arguments in which up to three are spoilt, and how they were."""
        arguments = verb.arguments()
        chosen = self._chance.sample(sorted(arguments), min(len(arguments), self._chance.choice((1, 1, 1, 2, 3))))
        traps = []
        for name in chosen:
            trap = self._chance.choice(TRAPS)
            arguments[name], where = self._spoilt(arguments[name], trap)
            traps.append(f"{name}={where}")
        return arguments, tuple(traps)

    def _spoilt(self, value: object, trap: Trap) -> tuple[object, str]:
        """Put a trap in the place of a value, or somewhere inside it."""
        if type(value) is dict and value and self._chance.random() < 0.5:
            key = self._chance.choice(sorted(value, key=str))
            inner, where = self._spoilt(value[key], trap)
            return {**value, key: inner}, f"{key}:{where}"
        if type(value) in (list, tuple) and value and self._chance.random() < 0.5:
            items = list(value)  # type: ignore[call-overload]
            place = self._chance.randrange(len(items))
            items[place], where = self._spoilt(items[place], trap)
            return type(value)(items), f"[{place}]:{where}"  # type: ignore[call-arg]
        if self._chance.random() < 0.1:
            return [trap.make()], f"[{trap.name}]"
        if self._chance.random() < 0.1:
            return {"x": trap.make()}, f"{{x: {trap.name}}}"
        return trap.make(), trap.name


def fuzz(seed: int, calls: int, subjects: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield what breaks in `calls` calls of each subject (all of them without names)."""
    for name in subjects or SUBJECTS:
        with (
            tempfile.TemporaryDirectory(prefix="chapter10-", ignore_cleanup_errors=True) as folder,
            contextlib.chdir(folder),  # a trap may be taken for the name of a file
            _quiet_log(),
            asyncio.Runner() as runner,
        ):
            found = list(_Run(name, SUBJECTS[name], seed, Path(folder), runner).findings(calls))
        yield from found


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """Refusals are logged; here they are many, and nobody reads them."""
    logger, nowhere = logging.getLogger("chapter10"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit 0 if nothing broke, 1 with one line for each kind of finding, 2 for usage."""
    parser = argparse.ArgumentParser(
        prog="python -m chapter10 fuzz", description="Bad input for every public callable."
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same calls (default 1)")
    parser.add_argument("--calls", type=int, default=200, help="calls of each subject (default 200)")
    parser.add_argument("--subject", action="append", choices=sorted(SUBJECTS), help="only this one")
    parser.add_argument("--list", action="store_true", help="name the subjects")
    options = parser.parse_args(arguments)
    if not 1 <= options.calls <= MAX_CALLS:
        parser.error(f"--calls is from 1 to {MAX_CALLS}")
    names = options.subject or list(SUBJECTS)
    if options.list:
        print("\n".join(names))
        return EXIT_FINE
    seen: dict[tuple[str, str], str] = {}
    for name in names:
        print(f"... {name}", file=sys.stderr, flush=True)
        for finding in fuzz(options.seed, options.calls, [name]):
            kind = (finding.verb, finding.what)
            if kind not in seen:
                seen[kind] = str(finding)
                print(finding)
                again = f"--seed {options.seed} --calls {options.calls} --subject {name}"
                print(f"  again: python -m chapter10 fuzz {again}")
    print(f"calls {len(names) * options.calls}, findings {len(seen)}")
    return EXIT_WRONG if seen else EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
