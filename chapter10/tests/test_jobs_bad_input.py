"""Every public method of the job store with every trap value in every place: a named refusal or an exact round trip.

The oracle is one predicate a kind of argument, written down here by itself. A value that it does not
take must be refused with the code of that place, must change nothing, and must leave a store that works.
"""

from __future__ import annotations

import enum
import json
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

from chapter10.canonical import CodedError
from chapter10.companions.work.living_store import MAX_ATTEMPTS, MAX_BATCH, LivingStore
from chapter10.jobs import JobError, JobStore, Operation
from chapter10.limits import (
    MAX_ARGS_BYTES,
    MAX_COUNT,
    MAX_LIMIT,
    MAX_RESULT_BYTES,
    MAX_TEXT,
    MAX_TIME,
    MIN_SECONDS,
)
from chapter10.tests.job_checker import contents, violations
from chapter10.tests.job_support import AUGUST, REPORT, anything
from chapter10.tests.support import also_on


class Text(str):
    """A text that is not quite `str`."""


class Number(enum.IntEnum):
    """An int that is not quite `int`."""

    ONE = 1


def deep(levels: int = 100_000) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def fail_to_tell() -> float:
    raise LookupError("no clock")


TRAPS: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 1.0, 0.5, 7, MAX_LIMIT, MAX_LIMIT + 1, MAX_COUNT + 1,
    2**63 - 1, 2**63, -(2**63) - 1, 10**400, -(10**400), float("nan"), float("inf"), float("-inf"),
    1e308, MAX_TIME, -MAX_TIME, MAX_TIME * 1.001, MIN_SECONDS, 5e-324, 1j, Decimal(1), Number.ONE,
    "", "x", "1", "caf\u00e9", "cafe\u0301", "\U0001f600", "\0", "a\0b", "\ud800", "a\udfffb", "' OR 1=1 --",
    "x" * MAX_TEXT, "x" * (MAX_TEXT + 1), "x" * 1_000_000, Text("x"), b"x", bytearray(b"x"),
    [], [1], {}, {"a": 1}, {1: 2}, (), (1, 2), set(), range(3), object(), int, deep(), {"a": deep()},
    lambda: 3, lambda: float("nan"), lambda: None, lambda: True, lambda: 10**400, lambda: "1",
)  # fmt: skip


def is_text(value: Any) -> bool:
    if type(value) is not str or not 1 <= len(value) <= MAX_TEXT or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and -MAX_TIME <= value <= MAX_TIME


def is_moment(value: Any) -> bool:
    """A number of seconds or a clock that gives one (the trap clocks take no argument and never raise)."""
    if value is int:
        return True  # int() is 0
    return is_seconds(value() if callable(value) else value)


def whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT


def is_integer(value: Any) -> bool:
    return type(value) is int


def optional(takes: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or takes(value)


def is_month(value: Any) -> bool:
    return value == AUGUST and type(value) is dict


def is_lease(value: Any) -> bool:
    return is_seconds(value) and value >= MIN_SECONDS


def is_never(value: Any) -> bool:
    return False


LIMIT: Final = whole(1, MAX_LIMIT)
POSITIVE: Final = whole(1, 2**63 - 1)
CURSOR: Final = whole(0, 2**63 - 1)


@dataclass(frozen=True)
class Verb:
    """A method, arguments that it takes, what else each place takes, and the code for the rest."""

    name: str
    valid: dict[str, Any]
    takes: dict[str, Callable[[Any], bool]]
    code: str = "bad_input"
    codes: tuple[tuple[str, str], ...] = ()
    depends: tuple[str, ...] = ()
    """Places whose value is also compared with another one, so that it may be refused although it is taken."""

    def code_of(self, place: str) -> str:
        return dict(self.codes).get(place, self.code)


SUBMIT: Final[dict[str, Callable[[Any], bool]]] = {
    "owner": is_text, "now": is_moment, "deadline": optional(is_seconds), "max_attempts": POSITIVE,
    "capacity": POSITIVE, "tool": is_never,
}  # fmt: skip
HELD: Final[dict[str, Callable[[Any], bool]]] = {"job_id": is_integer, "attempt": is_integer, "now": is_moment}

BATCH: Final = {
    **SUBMIT, "max_attempts": whole(1, MAX_ATTEMPTS), "owner_capacity": optional(POSITIVE),
    "start": optional(is_seconds),
}  # fmt: skip

# Job 1 of alice's is running (attempt 1, lease until 11), job 2 has succeeded, job 3 is queued.
VERBS: Final = (
    Verb(
        "submit",
        {"owner": "alice", "action_key": "new", "args": AUGUST, "now": 2},
        {**SUBMIT, "action_key": is_text, "args": is_month},
        "invalid_submission",
        depends=("deadline", "now"),
    ),
    Verb("get", {"owner": "alice", "job_id": 1}, {"owner": is_text, "job_id": is_integer}),
    Verb(
        "cancel",
        {"owner": "alice", "job_id": 1, "now": 2},
        {"owner": is_text, "job_id": is_integer, "now": optional(is_moment)},
    ),
    Verb(
        "events",
        {"owner": "alice", "job_id": 1, "after": 0, "limit": 9},
        {"owner": is_text, "job_id": is_integer, "after": CURSOR, "limit": LIMIT},
    ),
    Verb("result", {"owner": "alice", "job_id": 2}, {"owner": is_text, "job_id": is_integer}),
    Verb("intent", {"job_id": 1}, {"job_id": is_integer}),
    Verb("claim", {"job_id": 3, "now": 2, "lease": 5}, {"job_id": is_integer, "now": is_moment, "lease": is_lease}),
    Verb(
        "progress",
        {"job_id": 1, "attempt": 1, "done": 1, "total": 2, "now": 2},
        {**HELD, "done": is_count, "total": is_count},
        codes=(("done", "invalid_progress"), ("total", "invalid_progress")),
        depends=("done", "total"),
    ),
    Verb("finish", {"job_id": 1, "attempt": 1, "result": REPORT, "now": 2}, HELD),
    Verb(
        "fail",
        {"job_id": 1, "attempt": 1, "code": "temporary", "now": 2, "retry_after": 3},
        {**HELD, "code": is_text, "retry_after": optional(lambda value: is_seconds(value) and value >= 0)},
    ),
    Verb("receipt_count", {"job_id": 2}, {"job_id": is_integer}),
)
LIVING: Final = (
    Verb(
        "submit",
        {"owner": "alice", "action_key": "new", "args": AUGUST, "now": 2},
        {**BATCH, "action_key": is_text, "args": is_month},
        "invalid_submission",
        depends=("deadline", "now", "start"),
    ),
    *VERBS[1:],
    Verb(
        "submit_many",
        {"owner": "alice", "submissions": [("new", AUGUST)], "now": 2},
        {**BATCH, "submissions": is_never},
        "invalid_submission",
        depends=("deadline", "now", "start"),
    ),
    Verb(
        "list_jobs",
        {"owner": "alice", "before": 9, "limit": 9},
        {"owner": is_text, "before": optional(CURSOR), "limit": LIMIT},
    ),
    Verb(
        "claim_next",
        {"now": 2, "lease": 5, "kinds": [("reports.export", "1")]},
        {"now": is_moment, "lease": is_lease, "kinds": lambda value: value is None or value in ([], (), {}, "", set())},
    ),
    Verb("pause", {"owner": "alice", "now": 2}, {"owner": optional(is_text), "now": is_moment}),
    Verb("resume", {"owner": "alice"}, {"owner": optional(is_text)}),
    Verb("paused", {}, {}),
    Verb("kinds", {}, {}),
    Verb("renew", {"job_id": 1, "attempt": 1, "now": 2, "lease": 50}, {**HELD, "lease": is_lease}),
    Verb("sweep", {"now": 2, "limit": 9}, {"now": is_moment, "limit": LIMIT}),
    Verb(
        "prune",
        {"now": 9, "results_before": 3, "keys_before": 3, "limit": 9},
        {"now": is_moment, "results_before": is_seconds, "keys_before": is_seconds, "limit": LIMIT},
        depends=("now", "results_before", "keys_before"),
    ),
    Verb("stats", {"now": 2}, {"now": is_moment}),
    Verb("hand_back", {"job_id": 1, "attempt": 1, "code": "stopped", "now": 2}, {**HELD, "code": is_text}),
    Verb("release", {"job_id": 1, "now": 2}, {"job_id": is_integer, "now": is_moment}),
    Verb(
        "retry",
        {"job_id": 4, "now": 2, "by": "operator", "why": "mended"},
        {
            "job_id": is_integer,
            "now": is_moment,
            "by": is_text,
            "why": is_text,
            "deadline": optional(is_seconds),
            "max_attempts": whole(1, MAX_ATTEMPTS),
            "capacity": POSITIVE,
        },
        depends=("deadline", "now"),
    ),
    Verb("keyed", {"owner": "alice", "prefix": "q"}, {"owner": is_text, "prefix": is_text, "limit": LIMIT}),
    Verb(
        "survey",
        {"owner": "alice", "since": 0, "limit": 9},
        {
            "owner": optional(is_text),
            "state": optional(is_text),
            "kind": optional(is_text),
            "since": optional(is_seconds),
            "before": optional(CURSOR),
            "limit": LIMIT,
        },
    ),
    Verb("newest_event", {}, {}),
    Verb("failed_after", {"seq": 0}, {"seq": CURSOR}),
    Verb("compact", {}, {}),
)


class BadInputTestCase(unittest.TestCase):
    make: ClassVar[Any] = JobStore

    @property
    def verbs(self) -> tuple[Verb, ...]:
        return LIVING if self.make is LivingStore else VERBS

    def fresh(self) -> Any:
        """Return a store in memory with a running, a succeeded and a queued job of alice's."""
        store = self.make(":memory:", [Operation("free.form", "1", anything)])
        self.addCleanup(store.close)
        for key in ("running", "succeeded", "queued"):
            store.submit("alice", key, AUGUST, now=0)
        store.claim(1, now=1)
        store.claim(2, now=1)
        store.finish(2, 1, REPORT, now=2)
        store.cancel("alice", store.submit("alice", "cancelled", AUGUST, now=0))
        return store


@also_on(LivingStore)
class EveryMethod(BadInputTestCase):
    def test_the_table_names_every_method_and_every_argument(self) -> None:
        """A new method or argument must come into the table, or this test says so."""
        own = {name for name in dir(self.make) if callable(getattr(self.make, name)) and not name.startswith("_")}
        self.assertEqual(own - {"wait", "backup"}, {verb.name for verb in self.verbs} | {"close", "register"})
        for verb in self.verbs:
            code = getattr(self.make, verb.name).__code__
            arguments = set(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
            self.assertEqual(arguments - set(verb.takes), arguments & {"result"}, verb.name)

    def test_a_trap_value_is_refused_by_name_or_taken(self) -> None:
        """What the place does not take has its code, and never another exception; the store stays as it was.

        And nothing that it takes is refused as if it did not.
        """
        store = self.fresh()
        before = after = contents(store.db)
        for verb in self.verbs:
            for place, takes in verb.takes.items():
                for number, value in enumerate(TRAPS):
                    with self.subTest(verb=verb.name, place=place, trap=number, value=repr(type(value))):
                        code = None
                        try:
                            getattr(store, verb.name)(**{**verb.valid, place: value})
                        except CodedError as error:
                            code = error.code
                        after = contents(store.db)
                        self.assertFalse(store.db.in_transaction)
                        if code is not None:
                            self.assertEqual(before, after)
                        if takes(value):
                            self.assertTrue(code != verb.code_of(place) or place in verb.depends)
                        else:
                            self.assertEqual(verb.code_of(place), code)
                            self.assertEqual(before, after)
                    if after != before:
                        self.assertEqual([], violations(store.db))
                        store.close()
                        store = self.fresh()
                        before = after = contents(store.db)

    def test_what_each_method_takes_is_really_taken(self) -> None:
        """The valid arguments of the table work, so that the refusals above are about the trap value."""
        for verb in self.verbs:
            with self.subTest(verb.name):
                store = self.fresh()
                getattr(store, verb.name)(**verb.valid)
                self.assertEqual([], violations(store.db))

    def test_every_text_that_is_taken_comes_back_exactly(self) -> None:
        """Owner, key and code are stored as they are: no case, no form of Unicode and no blank is touched."""
        store = self.fresh()
        for value in [*filter(is_text, TRAPS), " ", "\n", "\u2028", "ﬁ", "K", "报表"]:
            with self.subTest(value=value[:20]):
                job_id = store.submit(value, value, AUGUST, now=0, capacity=99)
                self.assertEqual("queued", store.get(value, job_id)["state"])
                stored = store.db.execute("SELECT owner, action_key FROM jobs WHERE id = ?", (job_id,)).fetchone()
                self.assertEqual((value, value), stored)
                attempt = store.claim(job_id, now=1)
                assert attempt is not None
                store.fail(job_id, attempt, value, now=2)
                self.assertEqual(value, store.get(value, job_id)["error"])
                self.assertEqual({"error": value}, store.events(value, job_id)[-1]["detail"])


@also_on(LivingStore)
class Values(BadInputTestCase):
    """Arguments and results are JSON, or refused."""

    def test_a_value_is_refused_or_comes_back_exactly(self) -> None:
        """Each trap as a result, and as an argument, at the top and inside."""
        store = self.fresh()
        for number, value in enumerate([*TRAPS, {"a": [1, {"b": "\ud800"}]}, [[(1,)]], [{None: 1}], "\ud83d\ude00"]):
            for wrapped in (value, {"inside": [value]}):
                with self.subTest(trap=number, value=repr(type(value))):
                    args = wrapped if type(wrapped) is dict else {"x": wrapped}
                    try:
                        job_id = store.submit("alice", f"k{number}", args, now=0, capacity=999, tool="free.form")
                    except JobError as error:
                        self.assertEqual("invalid_submission", error.code)
                    else:
                        back = store.intent(job_id)["args"]
                        self.assertEqual(repr(dict(sorted(args.items()))), repr(back))
                        store.cancel("alice", job_id)
                        break  # the same key with the other wrapping would be a conflict
            job_id = store.submit("bob", f"k{number}", AUGUST, now=0)
            attempt = store.claim(job_id, now=0)
            assert attempt is not None
            before = contents(store.db)
            try:
                store.finish(job_id, attempt, value, now=1)
            except JobError as error:
                self.assertEqual("bad_input", error.code)
                self.assertEqual(before, contents(store.db))
                self.assertTrue(store.finish(job_id, attempt, "instead", now=1))
            else:
                back = store.result("bob", job_id)["data"]
                self.assertEqual((type(value), repr(value)), (type(back), repr(back)))
        self.assertEqual([], violations(store.db))

    def test_arguments_have_a_size_in_bytes(self) -> None:
        """The last byte that fits is taken and the next is refused, counted in UTF-8."""
        self.edge(MAX_ARGS_BYTES, "invalid_submission", self.submit_text)

    def test_results_have_a_size_in_bytes(self) -> None:
        """The last byte that fits is taken and the next is refused, counted in UTF-8."""
        self.edge(MAX_RESULT_BYTES, "bad_input", self.finish_text)

    def edge(self, most: int, code: str, store_text: Callable[[Any, str], str]) -> None:
        for letter in ("x", "é", "报"):
            room = most - len(b'{"t":""}')
            text = letter * (room // len(letter.encode()))
            text += "x" * (room - len(text.encode()))
            with self.subTest(letter=letter):
                store = self.fresh()
                before = contents(store.db)
                with self.assertRaises(JobError) as caught:
                    store_text(store, text + "x")
                self.assertEqual(code, caught.exception.code)
                self.assertEqual(before, contents(store.db))
                self.assertEqual(text, store_text(store, text))

    def submit_text(self, store: Any, text: str) -> str:
        job_id = store.submit("alice", "k", {"t": text}, now=0, tool="free.form")
        return str(store.intent(job_id)["args"]["t"])

    def finish_text(self, store: Any, text: str) -> str:
        store.finish(1, 1, {"t": text}, now=2)
        return str(store.result("alice", 1)["data"]["t"])

    def test_a_refusal_says_its_code_and_nothing_of_the_value(self) -> None:
        """What was wrong stands in `reason`, in words of ours."""
        store = self.fresh()
        with self.assertRaises(JobError) as caught:
            store.submit("alice", "hunter2\0", AUGUST, now=0)
        self.assertEqual("invalid_submission", str(caught.exception))
        self.assertNotIn("hunter2", str(caught.exception.reason))


class Batches(BadInputTestCase):
    make = LivingStore

    def test_what_is_no_list_of_pairs_is_refused(self) -> None:
        """Another container, another shape, nothing at all and too many are one refusal."""
        store = self.fresh()
        pair = ("new", AUGUST)
        shapes: list[Any] = [
            [], (pair,), {"new": AUGUST}, iter([pair]), (p for p in [pair]), [["new", AUGUST]], [("new",)],
            [("new", AUGUST, 1)], [None], ["ab"], [pair, None], [(f"k{n}", AUGUST) for n in range(MAX_BATCH + 1)],
        ]  # fmt: skip
        for shape in shapes:
            with self.subTest(shape=repr(shape)[:60]):
                before = contents(store.db)
                with self.assertRaises(JobError) as caught:
                    store.submit_many("alice", shape, now=0, capacity=10**6)
                self.assertEqual("invalid_submission", caught.exception.code)
                self.assertEqual(before, contents(store.db))

    def test_one_bad_member_refuses_all(self) -> None:
        """A bad key, bad arguments, a conflict with the store or inside the batch: nothing is stored."""
        store = self.fresh()
        store.submit("alice", "known", AUGUST, now=0)
        good = [(f"k{number}", AUGUST) for number in range(3)]
        for bad, code in (
            (("", AUGUST), "invalid_submission"), (("k", {}), "invalid_submission"),
            (("known", {"month": "2026-07"}), "key_conflict"), (("k0", {"month": "2026-07"}), "key_conflict"),
        ):  # fmt: skip
            before = contents(store.db)
            with self.subTest(bad=bad), self.assertRaises(JobError) as caught:
                store.submit_many("alice", [*good, bad], now=0)
            self.assertEqual(code, caught.exception.code)
            self.assertEqual(before, contents(store.db))


class Waiting(BadInputTestCase):
    make = LivingStore

    def test_a_wait_refuses_what_it_cannot_wait_by(self) -> None:
        """Timeout, poll, clock and sleep are checked before the first look; a clock that gives NaN as well."""
        store = self.fresh()
        clock = iter(range(1000)).__next__
        good: dict[str, Any] = {"owner": "alice", "job_id": 1, "timeout": 3, "clock": clock, "sleep": lambda _: None}
        for poll in (MIN_SECONDS, MAX_TIME):
            self.assertEqual("running", store.wait(**good, poll=poll)["state"])
        bad: dict[str, list[Any]] = {
            "owner": [value for value in TRAPS if not is_text(value)],
            "job_id": [value for value in TRAPS if not is_integer(value)],
            "timeout": [value for value in TRAPS if not is_seconds(value)],
            "poll": [value for value in TRAPS if not is_lease(value)],
            "clock": [value for value in TRAPS if not callable(value) or not is_moment(value)],
            "sleep": [value for value in TRAPS if not callable(value)],
        }
        for place, values in bad.items():
            for number, value in enumerate(values):
                with self.subTest(place=place, number=number):
                    with self.assertRaises(JobError) as caught:
                        store.wait(**{**good, place: value})
                    self.assertEqual("bad_input", caught.exception.code)

    def test_a_clock_that_breaks_while_waiting_ends_the_wait(self) -> None:
        """A clock that gives NaN later on is refused when it does; it does not make the wait endless."""
        store = self.fresh()
        moments = iter([0, 1, float("nan")])
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            self.assertLess(len(slept), 9)

        with self.assertRaises(JobError) as caught:
            store.wait("alice", 1, 60, clock=lambda: next(moments, float("nan")), sleep=sleep)
        self.assertEqual(("bad_input", 1), (caught.exception.code, len(slept)))


@also_on(LivingStore)
class OtherPeoplesCode(BadInputTestCase):
    """A clock and a check are the caller's: their own exceptions come out as they are."""

    def test_a_clock_that_raises_changes_nothing(self) -> None:
        """The transaction is gone, its exception is the caller's, and the next call works."""
        store = self.fresh()
        for verb in self.verbs:
            if "now" not in verb.valid:
                continue
            with self.subTest(verb.name):
                before = contents(store.db)
                with self.assertRaisesRegex(LookupError, "no clock"):
                    getattr(store, verb.name)(**{**verb.valid, "now": fail_to_tell})
                self.assertFalse(store.db.in_transaction)
                self.assertEqual(before, contents(store.db))

    def test_a_check_that_breaks_is_not_a_refusal(self) -> None:
        """Only `ValueError` refuses; another exception of a check is a fault of it, and nothing was stored."""

        def broken(args: dict[str, Any]) -> None:
            raise ZeroDivisionError

        store = self.fresh()
        store.register(Operation("broken", "1", broken))
        before = contents(store.db)
        with self.assertRaises(ZeroDivisionError):
            store.submit("alice", "k", {}, now=0, tool="broken")
        self.assertEqual(before, contents(store.db))

    def test_what_is_no_operation_is_refused_before_a_file_is_made(self) -> None:
        """The constructor checks its operations first, so nothing is left open or on disk."""
        for operations in (5, "ab", [None], [("a", "1", anything)], Operation("a", "1", anything)):
            with self.subTest(operations=operations), self.assertRaises(JobError) as caught:
                self.make("never-made.db", operations)
            self.assertEqual("bad_input", caught.exception.code)
        with self.assertRaises(OSError):
            open("never-made.db", encoding="utf-8").close()

    def test_a_code_of_an_error_is_all_its_text(self) -> None:
        """An error can be written as JSON for a model without anything leaking from it."""
        store = self.fresh()
        with self.assertRaises(JobError) as caught:
            store.get("bob", 1)
        self.assertEqual('{"error": "not_found"}', json.dumps({"error": str(caught.exception)}))


if __name__ == "__main__":
    unittest.main()
