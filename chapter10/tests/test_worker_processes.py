"""Workers as real processes: killed, frozen, continued, asked to leave, and with children that do not listen.

The order is forced by what the processes say and by lines that they wait for. Only a lease has to run out in real
time, and it is short.
"""

from __future__ import annotations

import io
import os
import queue
import signal
import subprocess
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any, Final
from unittest import mock

from chapter10.companions.work import child_process, stop_signals
from chapter10.companions.work.child_process import ChildFailed, ChildProcess, TemporaryChildError, _Said
from chapter10.companions.work.heartbeat import AttemptOver
from chapter10.companions.work.stop_signals import StopSignals
from chapter10.companions.work.worker_log import WorkerLog, log_path
from chapter10.limits import MAX_ARGS_BYTES
from chapter10.tests.forked import Forked, start_module
from chapter10.tests.job_support import AUGUST, JULY, LivingTestCase
from chapter10.tests.overlapping import overlapping
from chapter10.tests.support import TOP, child_environment
from chapter10.tests.worker_process import child_command, child_of

POSIX: Final = hasattr(signal, "SIGSTOP")
LEASE: Final = 0.5
SHORT: Final = 0.2
"""The lease of a worker that is about to end: its job waits no longer for another one."""
DEADLINE: Final = 120


def until(condition: Callable[[], Any]) -> Any:
    """Look until something is so; the bound is generous, because it is met only by a fault."""
    for _ in range(6000):
        if found := condition():
            return found
        threading.Event().wait(0.01)
    raise AssertionError("it did not come")


class Process:
    """A worker process, and what it says."""

    def __init__(self, child: Forked | subprocess.Popen[str]) -> None:
        self.child = child
        assert child.stdout is not None and child.stdin is not None and child.stderr is not None
        self.stdout, self.stdin, self.stderr = child.stdout, child.stdin, child.stderr

    def hear(self, *words: object) -> list[str]:
        """Read lines until one begins with these words."""
        wanted = [str(word) for word in words]
        for line in self.stdout:
            if line.split()[: len(wanted)] == wanted:
                return line.split()
        raise AssertionError(f"never said {wanted}: {self.stderr.read()}")

    def tell(self, word: str) -> None:
        self.stdin.write(word + "\n")
        self.stdin.flush()

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        return self.child.wait(timeout=60)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


@unittest.skipUnless(POSIX, "needs SIGSTOP and SIGTERM")
class ProcessTestCase(LivingTestCase):
    """A store, and workers as processes on it."""

    def start(self, kind: str, *, grace: float = 30, lease: float = LEASE) -> Process:
        process = Process(
            start_module("chapter10.tests.worker_process", ["work", str(self.path), kind, str(grace), str(lease)])
        )
        self.addCleanup(process.close)
        process.hear("ready")
        return process

    def submit_now(self, args: dict[str, str] = AUGUST, **options: Any) -> int:
        now = time.time()
        return self.store.submit("alice", "k", args, now=now, deadline=now + DEADLINE, **options)

    def refusals(self) -> list[tuple[str, str]]:
        with WorkerLog(log_path(self.path)) as log:
            return [(row["verb"], row["code"]) for row in log.counts()]

    def nobody_writes_after(self, freeze: Callable[[], None], thaw: Callable[[], None]) -> bool:
        """Freeze a process, but not with the write lock in its hands."""
        freeze()
        with self.open(busy_seconds=0.1) as store:
            try:
                store.sweep(now=0)
            except RuntimeError:
                thaw()
                return False
        return True


class RealProcesses(ProcessTestCase):
    """One file, several processes."""

    def test_a_killed_worker_costs_one_attempt(self) -> None:
        """`kill -9` in the middle of a job: when its lease is over another worker starts it anew.

        Claims: C10-226, C10-227, C10-292.
        """
        job_id = self.submit_now()
        first = self.start("looks", lease=SHORT)
        first.hear("begun", job_id, 1)
        second = self.start("looks")
        self.assertEqual(self.state(job_id), "running")
        first.signal(signal.SIGKILL)
        self.assertEqual(first.end(), -signal.SIGKILL)
        second.hear("begun", job_id, 2)
        second.tell("go")
        second.hear("succeeded", job_id, 2)
        self.assertEqual(self.store.result("alice", job_id)["data"], {"attempt": 2})

    def test_a_frozen_worker_comes_back_too_late(self) -> None:
        """SIGSTOP past the lease, then SIGCONT: the late delivery is refused, and stands in the log.

        Claims: C10-228, C10-229.
        """
        job_id = self.submit_now()
        first = self.start("deaf")
        first.hear("begun", job_id, 1)
        until(
            lambda: self.nobody_writes_after(lambda: first.signal(signal.SIGSTOP), lambda: first.signal(signal.SIGCONT))
        )
        second = self.start("looks")
        second.hear("begun", job_id, 2)
        second.tell("go")
        second.hear("succeeded", job_id, 2)
        before = self.contents()
        first.tell("go")
        first.signal(signal.SIGCONT)
        first.hear("lost", job_id, 1)
        self.assertIn(("finish", "stale_attempt"), self.refusals())
        self.assertEqual(self.contents(), before)
        self.assertEqual(self.store.receipt_count(job_id), 1)

    def test_a_healthy_worker_keeps_its_job_beyond_its_lease(self) -> None:
        """The lease moves on in the background, and an idle colleague gets nothing. Claims: C10-233."""
        job_id = self.submit_now()
        first = self.start("deaf", lease=1)
        first.hear("begun", job_id, 1)
        second = self.start("looks", lease=1)
        leases = set()

        def more_than_a_lease() -> bool:
            leases.add(self.store.db.execute("SELECT lease_until FROM jobs").fetchone()[0])
            return bool(max(leases) - min(leases) > 1.2)

        until(more_than_a_lease)
        first.tell("go")
        first.hear("succeeded", job_id, 1)
        second.signal(signal.SIGTERM)
        self.assertEqual((second.end(), second.stdout.read()), (0, ""))

    def test_an_idle_worker_leaves_at_once_with_zero(self) -> None:
        """SIGTERM and Ctrl-C are the same request."""
        for number in (signal.SIGTERM, signal.SIGINT):
            worker = self.start("looks")
            worker.signal(number)
            self.assertEqual((worker.end(), worker.stderr.read()), (0, ""))

    def test_a_worker_that_is_asked_finishes_what_it_holds(self) -> None:
        """Within the grace the job at hand is done and delivered, and nothing new is taken."""
        job_id = self.submit_now()
        worker = self.start("looks")
        worker.hear("begun", job_id, 1)
        other = self.store.submit("bob", "k", AUGUST, now=time.time())
        worker.signal(signal.SIGTERM)
        worker.tell("go")
        self.assertEqual(worker.end(), 0)
        self.assertEqual([self.state(job_id), self.state(other, "bob")], ["succeeded", "queued"])

    def test_a_worker_that_cannot_finish_puts_its_job_back(self) -> None:
        """A handler that looks stops at its checkpoint; one that does not loses its job; both end with 0."""
        held = {}
        for kind in ("looks", "deaf"):
            job_id = self.store.submit("alice", kind, AUGUST, now=time.time(), deadline=time.time() + DEADLINE)
            held[job_id] = self.start(kind, grace=0.4)
            held[job_id].hear("begun", job_id, 1)
        for worker in held.values():
            worker.signal(signal.SIGTERM)
        for job_id, worker in held.items():
            with self.subTest(job=job_id):
                self.assertEqual(worker.end(), 0)
                status = self.store.get("alice", job_id)
                self.assertEqual((status["state"], status["error"]), ("queued", "worker_stopped"))

    def test_a_second_signal_ends_the_worker_at_once(self) -> None:
        """The job is left to its lease, and the next worker gets it."""
        job_id = self.submit_now()
        worker = self.start("deaf", lease=SHORT)
        worker.hear("begun", job_id, 1)
        # Two equal signals that wait together are one, so they differ.
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGINT)
        self.assertEqual(worker.end(), 130)
        self.assertEqual(self.state(job_id), "running")
        second = self.start("looks")
        second.hear("begun", job_id, 2)
        second.tell("go")
        second.hear("succeeded", job_id, 2)

    def test_a_job_that_kills_its_workers_ends(self) -> None:
        """Each death costs an attempt, and the last one ends the job without anybody asking for it. Claims: C10-202."""
        job_id = self.submit_now(max_attempts=2)
        for attempt in (1, 2):
            worker = self.start("looks", lease=SHORT)
            worker.hear("begun", job_id, attempt)
            worker.signal(signal.SIGKILL)
            worker.end()
        last = self.start("looks")
        until(lambda: self.state(job_id) == "failed")
        self.assertEqual(self.store.get("alice", job_id)["error"], "attempts_exhausted")
        last.signal(signal.SIGTERM)
        self.assertEqual((last.end(), last.stdout.read()), (0, ""))


@unittest.skipUnless(POSIX, "signals of another kind")
class Signals(unittest.TestCase):
    """What asks a process to leave."""

    def test_a_signal_is_heard_while_the_main_thread_waits(self) -> None:
        """It goes to another thread, so nothing wakes the main one: as when it comes right before a wait."""
        heard, before = queue.SimpleQueue[int](), signal.getsignal(signal.SIGTERM)
        ended = threading.Event()
        other = threading.Thread(target=ended.wait)
        other.start()  # it takes the signals that the main thread does not
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            with StopSignals(heard.put):
                for count in (1, 2):
                    os.kill(os.getpid(), signal.SIGTERM)
                    self.assertEqual(count, heard.get(timeout=60))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            ended.set()
            other.join()
        self.assertIs(before, signal.getsignal(signal.SIGTERM))

    def test_what_the_main_thread_does_after_a_signal_comes_after_it_was_heard(self) -> None:
        """A worker takes no job any more, say."""
        heard = list[int]()
        with StopSignals(heard.append):
            for count in (1, 2):
                signal.raise_signal(signal.SIGTERM)
                self.assertEqual(list(range(1, count + 1)), heard)

    def test_the_block_leaves_nothing_behind(self) -> None:
        """No thread, no descriptor, none that the system writes to; and none either where no handler may be set."""
        free, wakes = os.dup(0), signal.set_wakeup_fd(-1)
        os.close(free)
        with StopSignals(lambda count: None):
            (thread,) = (each for each in threading.enumerate() if each.name == "signals")
            self.assertTrue(thread.daemon)
        self.assertEqual((False, -1), (thread.is_alive(), signal.set_wakeup_fd(wakes)))
        self.assertEqual([], stop_signals._open)
        refused = list[BaseException]()

        def elsewhere() -> None:
            try:
                StopSignals(lambda count: None).__enter__()
            except ValueError as error:
                refused.append(error)

        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        again = os.dup(0)
        os.close(again)
        self.assertEqual((1, free), (len(refused), again))

    def test_a_child_of_a_fork_has_the_signals_as_they_were(self) -> None:
        """It can be ended, its parent hears nothing of that, and the block ends while the child lives."""
        heard = queue.SimpleQueue[int]()
        before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ready, say = os.pipe()
        with StopSignals(heard.put):
            child = os.fork()
            if child == 0:
                os.write(say, b"!")
                signal.pause()
                os._exit(7)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        self.assertEqual(-signal.SIGTERM, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.close(ready)
        os.close(say)
        signal.signal(signal.SIGTERM, before)
        self.assertTrue(heard.empty())


class Children(ProcessTestCase):
    """Handlers in a process of their own, under a real worker."""

    def pid_of(self, job_id: int) -> int:
        """The child says its process id as the total of its first progress."""
        return int(until(lambda: self.store.get("alice", job_id)["total"]))

    def test_a_child_that_listens_does_the_job(self) -> None:
        """Arguments in, progress and result out."""
        job_id = self.submit_now()
        worker = self.start("good")
        worker.hear("succeeded", job_id, 1)
        self.assertEqual(self.store.result("alice", job_id)["data"], {"month": "2026-08", "attempt": 1})
        self.assertGreater(self.pid_of(job_id), 1)

    def test_a_child_that_does_not_listen_is_killed_and_its_job_is_cancelled(self) -> None:
        """It ignores SIGTERM; after the grace it is gone, and the cancel is confirmed only then. Claims: C10-214."""
        job_id = self.submit_now()
        worker = self.start("stubborn")
        pid = self.pid_of(job_id)
        self.assertEqual(self.store.cancel("alice", job_id), "cancel_requested")
        worker.hear("cancelled", job_id, 1)
        self.assertEqual(self.state(job_id), "cancelled")
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_child_is_asked_first(self) -> None:
        """A child that looks stops at SIGTERM by itself; the job is put back when the worker leaves."""
        job_id = self.submit_now(JULY)
        worker = self.start("good", grace=1)
        pid = self.pid_of(job_id)
        worker.signal(signal.SIGTERM)
        self.assertEqual((worker.end(), worker.stderr.read()), (0, "asked\n"))
        self.assertEqual(self.store.get("alice", job_id)["error"], "worker_stopped")
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_killed_worker_leaves_no_orphan(self) -> None:
        """The child sees the end of its pipe and goes: nobody holds the worker's error stream any more."""
        job_id = self.submit_now(JULY)
        worker = self.start("good")
        self.pid_of(job_id)
        worker.signal(signal.SIGKILL)
        worker.end()
        self.assertEqual(worker.stderr.read(), "")  # it ends only when the child, who shares the stream, is gone


class Context:
    """A context for a child process without a worker."""

    job_id, attempt, args, snapshot = 7, 2, {"month": "2026-08"}, None

    def __init__(self, stop_after: int | None = None) -> None:
        self.said: list[tuple[int, int]] = []
        self.looks = 0
        self.stop_after = stop_after

    def progress(self, done: int, total: int) -> bool:
        self.said.append((done, total))
        return True

    def checkpoint(self) -> None:
        self.looks += 1
        if self.stop_after is not None and self.looks > self.stop_after:
            raise AttemptOver("cancelled")

    def time_left(self) -> float:
        return 60.0


def run_child(kind: str, context: Context | None = None) -> Any:
    """Run a child to its end; it gets little time between SIGTERM and SIGKILL."""
    child = ChildProcess(child_command(kind), grace=0.1, environment=child_environment())
    return child(context or Context())


@unittest.skipUnless(POSIX, "needs SIGSTOP and SIGTERM")
class ChildrenAlone(unittest.TestCase):
    """What a child says, and what becomes of it."""

    def test_the_newest_progress_and_the_result_arrive(self) -> None:
        """Lines of JSON, and the last progress before the result."""
        context = Context()
        self.assertEqual(run_child("progress", context), {"by": "hand"})
        self.assertEqual(context.said[-1], (2, 2))

    def test_a_child_without_a_result_has_failed(self) -> None:
        """Silence, babble and a command that does nothing are `child_failed`, and temporary."""
        for kind in ("silent", "babble"):
            with self.subTest(kind=kind), self.assertRaisesRegex(TemporaryChildError, "^child_failed$"):
                run_child(kind)
        with self.assertRaises(OSError):
            ChildProcess([str(TOP / "no-such-program")])(Context())

    def test_the_first_result_counts(self) -> None:
        """A child that goes on talking after its last word changes nothing."""
        said = _Said(io.StringIO('{"result": 1}\n{"result": 2}\n{"progress": [1, 1]}\n'))
        said.join()
        self.assertEqual((said.outcome(), said.progress), (1, None))

    def test_a_child_may_refuse(self) -> None:
        """An error of its own has its own code, and says whether another try helps."""
        with self.assertRaises(ChildFailed) as caught:
            run_child("refuses")
        self.assertEqual((caught.exception.code, type(caught.exception)), ("bad_rows", ChildFailed))

    def test_a_child_that_lingers_does_not_hold_up_its_result(self) -> None:
        """It has said its result and does not go: it is ended, and the result counts."""
        self.assertEqual(run_child("lingers"), 1)

    def test_a_child_that_never_reads_its_job_is_stopped_like_any_other(self) -> None:
        """Its arguments are more than a pipe takes."""
        context = Context(stop_after=3)
        context.args = {"month": "8" * MAX_ARGS_BYTES}
        with self.assertRaises(AttemptOver):
            run_child("reads nothing", context)

    def test_a_stop_ends_the_child_before_it_is_passed_on(self) -> None:
        """When `AttemptOver` comes out the child is gone."""
        context = Context(stop_after=3)
        with self.assertRaises(AttemptOver):
            run_child("stubborn", context)
        self.assertTrue(callable(child_of("good", 1)))


@unittest.skipUnless(POSIX, "needs SIGSTOP and SIGTERM")
class WhatChildrenLeave(unittest.TestCase):
    """Their threads are counted and their time is patched, so no other test runs meanwhile."""

    def test_what_a_child_left_in_its_group_is_ended_with_it(self) -> None:
        """It holds the child's pipes, and would hold the worker for as long as it lives."""
        run_child("leaves one in the group")
        self.assertNotIn("child output", [thread.name for thread in threading.enumerate()])

    def test_what_a_child_left_elsewhere_does_not_hold_the_worker(self) -> None:
        """A process with a group of its own keeps the pipes: the child's word counts, or that it has none."""
        context = Context()
        with mock.patch.object(child_process, "_PIPE_SECONDS", 0.1):
            pid = run_child("leaves one elsewhere", context)
            self.addCleanup(os.kill, pid, signal.SIGKILL)
            with self.assertRaises(TemporaryChildError):
                run_child("leaves one and says nothing", context)
            self.addCleanup(os.kill, context.said[-1][1], signal.SIGKILL)


load_tests = overlapping(RealProcesses, Children, ChildrenAlone)
