"""A typed function as a job, and the module that a person names."""

from __future__ import annotations

import sys
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chapter10.companions.basics.modules import ModuleError, load_module
from chapter10.companions.schemas.hints import HintError
from chapter10.companions.work.functions import Task, handlers, operations, task, tasks_of
from chapter10.companions.work.heartbeat import JobContext
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Backoff, Outcome, Worker, WorkerError
from chapter10.jobs import JobError
from chapter10.tests.support import FolderTestCase, ManualClock

CLOCK = ManualClock()


@dataclass
class Size:
    """A picture's size."""

    width: int
    height: int = 720


calls: list[Any] = []


@task("video.transcode", version="2", retries=1, timeout=60, clock=CLOCK)
def transcode(context: JobContext, path: str, size: Size) -> dict[str, Any]:
    """Make a film smaller.

    Args:
        path: where it lies
    """
    calls.append((path, size))
    context.progress(1, 2)
    if path == "broken":
        raise OSError("no such film")
    if path == "slow":
        CLOCK.advance(61)
    context.progress(2, 2)
    return {"path": path, "width": size.width}


class AsAJob(FolderTestCase):
    """What is submitted is checked, done with the promised values, and tried again as it was said."""

    def setUp(self) -> None:
        super().setUp()
        CLOCK.now = 1000.0
        calls.clear()
        self.path = self.folder / "jobs.db"
        self.store = LivingStore(self.path, operations(transcode))
        self.addCleanup(self.store.close)

    def work(self, *, attempts: int = 1) -> list[Outcome | None]:
        backoff = Backoff(1, 1)
        with Worker(
            self.path, handlers(transcode), clock=CLOCK, renew_every=float("inf"), lease=100.0, backoff=backoff
        ) as worker:
            found = []
            for _ in range(attempts):
                found.append(worker.run_once())
                CLOCK.advance(1)
            return found

    def test_a_call_is_stored_done_and_its_value_is_the_result(self) -> None:
        """The function gets what its hints promise and the context; the job has a day, its own tries and its kind."""
        job_id = transcode.submit(self.store, "alice", "intro", path="a.mov", size={"width": 640})
        self.assertEqual(job_id, transcode.submit(self.store, "alice", "intro", path="a.mov", size={"width": 640}))
        (row,) = self.store.survey()
        self.assertEqual(("video.transcode", 1000.0 + 86_400), (row["kind"], row["deadline"]))
        self.assertEqual([Outcome(job_id, 1, "succeeded")], self.work())
        self.assertEqual([("a.mov", Size(640, 720))], calls)
        self.assertEqual({"path": "a.mov", "width": 640}, self.store.result("alice", job_id)["data"])

    def test_arguments_that_do_not_fit_are_refused_before_they_are_stored(self) -> None:
        """By their place."""
        for arguments, place in (({"path": 1, "size": {"width": 1}}, "/path"), ({"path": "a"}, "size"), ({}, "path")):
            with self.subTest(arguments), self.assertRaises(JobError) as caught:
                transcode.submit(self.store, "alice", "k", **arguments)
            self.assertEqual("invalid_submission", caught.exception.code)
            self.assertIn(place, caught.exception.reason or "")
        self.assertEqual([], self.store.survey())

    def test_it_is_tried_again_as_often_as_was_said(self) -> None:
        """After an error and after its timeout; then it has failed."""
        for path, code in (("broken", "handler_failed"), ("slow", "attempt_limit_exceeded")):
            with self.subTest(path):
                job_id = transcode.submit(self.store, "alice", path, path=path, size={"width": 1})
                ends = [Outcome(job_id, 1, "queued", code), Outcome(job_id, 2, "failed", code)]
                self.assertEqual(ends, self.work(attempts=2))

    def test_called_it_is_the_function(self) -> None:
        """And it says what it is."""

        @task("adding")
        def add(a: int, b: int = 2) -> int:
            """Add."""
            return a + b

        self.assertEqual((3, "adding", "1", "Add."), (add(1), add.kind, add.version, add.description))
        self.assertEqual(["a"], add.parameters["required"])
        self.assertIsNone(add.handler.limit)

    def test_what_is_not_said_is_a_day_two_more_tries_and_ten_thousand_places(self) -> None:
        """The capacity counts the jobs of all owners."""

        @task("plain", clock=CLOCK)
        def plain(n: int) -> int:
            return n

        self.store.register(plain.operation)
        plain.submit(self.store, "alice", "k", n=1)
        row = self.store.db.execute("SELECT max_attempts, deadline FROM jobs").fetchone()
        self.assertEqual((3, 1000.0 + 86_400), row)
        for begin in range(0, 10_000, 1000):
            batch = [(f"k{n}", {"n": n}) for n in range(begin, min(begin + 1000, 9_998))]
            self.store.submit_many("bob", batch, now=1000, deadline=2000, capacity=20_000, tool="plain")
        self.assertEqual(10_000, plain.submit(self.store, "alice", "last", n=1))
        with self.assertRaises(JobError) as caught:
            plain.submit(self.store, "alice", "one more", n=1)
        self.assertEqual("queue_full", caught.exception.code)

    def test_what_cannot_be_a_job_is_refused_when_it_is_made(self) -> None:
        """No hint, a coroutine function, a number of retries that is none."""

        def bare(a) -> int:  # type: ignore[no-untyped-def]
            return int(a)

        async def later(a: int) -> int:
            return a

        def add(a: int) -> int:
            return a

        with self.assertRaises(HintError):
            task("x")(bare)
        for function, options in ((later, {}), (add, {"retries": -1}), (add, {"retries": True}), (add, {"timeout": 0})):
            with self.subTest(function=function.__name__, options=options), self.assertRaises(WorkerError) as caught:
                task("x", **options)(function)
            self.assertEqual("bad_handler", caught.exception.code)


class TheExample(FolderTestCase):
    """`examples/word_tasks.py`, as it stands."""

    def test_it_does_one_job_in_fifteen_lines(self) -> None:
        """Decorated, submitted, done and read; docstrings and blank lines are not counted."""
        word_tasks = load_module("examples.word_tasks")
        self.assertEqual(3, word_tasks.main(str(self.folder / "jobs.db")))
        self.assertEqual([word_tasks.count_words], tasks_of(word_tasks))
        lines = map(str.strip, Path(word_tasks.__file__ or "").read_text(encoding="utf-8").splitlines())
        self.assertLessEqual(sum(bool(line) and not line.startswith('"""') for line in lines), 15)


class Named(FolderTestCase):
    """A module that a person names."""

    def test_a_module_of_the_folder_is_found_and_its_tasks_too(self) -> None:
        """By kind, those that it imports as well; a module without any is a mistake."""
        found = tasks_of(sys.modules[__name__])
        self.assertEqual([transcode], found)
        with self.assertRaises(WorkerError):
            tasks_of(unittest)
        self.assertIs(Task, type(found[0]))

    def test_a_module_that_cannot_be_loaded_says_why(self) -> None:
        """One that is not there, and one that raises while it is loaded."""
        (self.folder / "raising_tasks.py").write_text("1 / 0\n", encoding="utf-8")
        sys.path.insert(0, str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))
        for name, words in (("no_such_tasks", "ModuleNotFoundError"), ("raising_tasks", "ZeroDivisionError")):
            with self.assertRaises(ModuleError) as caught:
                load_module(name)
            self.assertIn(words, caught.exception.reason)
        self.assertEqual(Path(load_module("json").__file__ or "").name, "__init__.py")


if __name__ == "__main__":
    unittest.main()
