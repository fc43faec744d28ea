"""A handler that runs in a process of its own, for work that never looks whether it should stop.

A function cannot be stopped from outside; a process can. The child is a program of yours that reads one line of JSON,
says what it has to say in lines of JSON, and ends; it may be written in any language.

    on standard input    {"job_id", "attempt", "args", "seconds"}, one line; then the pipe stays open until the worker
                         wants nothing any more (or is gone: a child that reads on sees the end of the file)
    on standard output   {"progress": [done, total]}                any number of times
                         {"result": VALUE}                          once, at the end, or
                         {"error": CODE, "temporary": true|false}

What holds
    P1  when the job is cancelled, lost or out of time, the child is asked (SIGTERM), given `grace` seconds, and killed;
        it is waited for, and so that nothing is left behind, what it started in its own process group is killed too
    P2  a child that ends without a result, or says something else (a progress that is no count or falls, say), is
        `child_failed`; that is temporary, and a job that kills every child runs out of attempts like any other
    P3  of what a child says only the newest progress and the first result are kept; one line is bounded by what a
        result may have
    P4  nobody but the child itself can hold up the worker: not a child that never reads its job, nor a process that it
        left behind with the pipes in its hands. A pipe in such hands is given up after `_PIPE_SECONDS`, and costs a
        sleeping thread until the process ends that left the group

`serve` is the child's side for a program in Python. It ends the process when the worker is gone, so that a killed
worker leaves no orphan. Ctrl-C in a terminal reaches the worker only; the child has a group of its own.
Source: the chapter's cancel that no flag can enforce (claim C10-214).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from chapter10.canonical import CodedError, canonical
from chapter10.companions.interruption.process_stop import MAX_SECONDS, StopError, sigterm_is_a_request, stop_process
from chapter10.companions.work.heartbeat import AttemptOver, JobContext
from chapter10.limits import MAX_COUNT, MAX_RESULT_BYTES, is_whole

__all__ = ["ChildContext", "ChildFailed", "ChildProcess", "TemporaryChildError", "serve"]

_LOOK_SECONDS: Final = 0.05
_PIPE_SECONDS: Final = 1.0
"""How long a pipe of a child that has ended may take to be read to its end, or to be closed."""
_LINE_BYTES: Final = 2 * MAX_RESULT_BYTES


class ChildFailed(CodedError, RuntimeError):
    """Raised when a child ended without a result (`child_failed`), or with an error of its own (its code)."""


class TemporaryChildError(ChildFailed):
    """The same, where another try may help."""


class ChildProcess:
    """The `run` of a handler: starts `command` for each job and speaks with it as the module says.

    `command`: program and arguments, started without a shell. `grace`: seconds between SIGTERM and SIGKILL; shorter
    than a quarter of the worker's own grace, and at most an hour. `environment`: of the child; None: that of this
    process.

    Give the handler `temporary=(TemporaryChildError,)`. Raises `StopError` (`bad_input`) for a command that is no
    list of texts or a grace that is none: found out at a cancel, it would leave the child alive.
    """

    def __init__(
        self, command: Sequence[str], *, grace: float = 2.0, environment: Mapping[str, str] | None = None
    ) -> None:
        if isinstance(command, str) or not command or not all(type(word) is str for word in command):
            raise StopError("bad_input")
        if type(grace) not in (int, float) or not 0 <= grace <= MAX_SECONDS:
            raise StopError("bad_input")
        self._command = list(command)
        self._grace = grace
        self._environment = None if environment is None else dict(environment)

    def __call__(self, context: JobContext) -> Any:
        """Run one job and return what the child gives. Raises `ChildFailed`, `AttemptOver`, `OSError`."""
        line = _line(context)
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            encoding="utf-8",
            errors="backslashreplace",
            start_new_session=True,
        )
        assert child.stdin is not None and child.stdout is not None
        said = _Said(child.stdout)
        told = _Told(child.stdin, line)
        try:
            self._follow(child, said, context)
            return said.outcome()
        finally:
            if said.final is None:
                stop_process(child, self._grace)
                told.close()
            else:  # it has said all; closing the pipe is the first request to go
                told.close()
                stop_process(child, self._grace, ask=_nothing, ask_s=self._grace)
            _kill_group(child)
            said.join()

    def _follow(self, child: subprocess.Popen[str], said: _Said, context: JobContext) -> None:
        while not said.wait(_LOOK_SECONDS):
            if said.progress is not None:
                context.progress(*said.progress)
            context.checkpoint()
            if child.poll() is not None:
                _kill_group(child)  # whoever else has the pipe says nothing in the child's name
                said.wait(_PIPE_SECONDS)
                break
        if said.progress is not None:
            context.progress(*said.progress)


class _Told:
    """Tells a child its job and keeps the pipe open until `close`; in a thread, because a child need not read."""

    def __init__(self, stream: IO[str], line: str) -> None:
        self._stream = stream
        self._line = line
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="child input", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the child see the end of its input; returns when it can, after `_PIPE_SECONDS` at the latest."""
        self._over.set()
        self._thread.join(_PIPE_SECONDS)

    def _write(self) -> None:
        # Only this thread touches the stream: closing it from another one would wait for the write.
        try:
            self._stream.write(self._line)
            self._stream.flush()
        except OSError:
            pass  # it ended before it was told anything; its output says the rest
        self._over.wait()
        try:
            self._stream.close()
        except OSError:
            pass  # the child is gone already


class _Said:
    """What a child has said so far, read in a thread: the newest progress, and its last word."""

    def __init__(self, stream: IO[str]) -> None:
        self.progress: tuple[int, int] | None = None
        self.final: dict[str, Any] | None = None
        self._stream = stream
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._read, name="child output", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the last word or the end of the output; say whether it came."""
        return self._complete.wait(seconds)

    def join(self) -> None:
        """Wait for the end of the output, `_PIPE_SECONDS` at the most; the thread closes it."""
        self._thread.join(_PIPE_SECONDS)

    def outcome(self) -> Any:
        final = self.final
        if final is None:
            raise TemporaryChildError("child_failed")
        if "error" in final:
            raise (TemporaryChildError if final.get("temporary") is True else ChildFailed)(str(final["error"]))
        return final["result"]

    def _read(self) -> None:
        try:
            while line := self._stream.readline(_LINE_BYTES):
                self._hear(line)
        except (OSError, ValueError, RecursionError):
            pass  # the pipe broke, or what it says is no message: the end of what it says, as well
        finally:
            self._complete.set()
            self._stream.close()

    def _hear(self, line: str) -> None:
        message = json.loads(line)  # ValueError: a child that says something else has said its last word
        if type(message) is not dict:
            raise ValueError("not an object")
        if self.final is not None:
            return  # it is read on, so that the child is not kept waiting by a full pipe
        counts = message.get("progress")
        if type(counts) is list and len(counts) == 2:
            done, total = counts
            least_done, least_total = self.progress or (0, 0)
            if not (is_whole(total, least_total, MAX_COUNT) and is_whole(done, least_done, total)):
                raise ValueError("no progress of this attempt: it is not whole, or a count falls")
            self.progress = (done, total)
        elif "result" in message or "error" in message:
            self.final = message
            self._complete.set()
        else:
            raise ValueError("neither progress nor result nor error")


def _line(context: JobContext) -> str:
    job = {
        "job_id": context.job_id,
        "attempt": context.attempt,
        "args": context.args,
        "seconds": float(context.time_left()),
    }
    return canonical(job) + "\n"


def _kill_group(child: subprocess.Popen[str]) -> None:
    """Kill what a child that has ended left behind in its group; there are no groups on Windows."""
    if sys.platform != "win32":
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # nobody is left


def _nothing() -> None:
    """The closed pipe is all the asking that there is."""


# The child's side --------------------------------------------------------------------------------


class ChildContext:
    """The context of a handler in a child; it is told to stop by SIGTERM, so that its worker must not be asked."""

    def __init__(self, job: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
        self.job_id: Final[int] = job["job_id"]
        self.attempt: Final[int] = job["attempt"]
        self.args: Final[dict[str, Any]] = job["args"]
        self._seconds = job["seconds"]
        self._say = say
        self._stop = False

    @property
    def snapshot(self) -> Any:
        """The identity of the input as recorded at submit, or None."""
        return self.args.get("snapshot")

    def progress(self, done: int, total: int) -> bool:
        """Say how much is done; raises `AttemptOver` after SIGTERM."""
        self.checkpoint()
        self._say({"progress": [done, total]})
        return True

    def checkpoint(self) -> None:
        """Raise `AttemptOver` after SIGTERM."""
        if self._stop:
            raise AttemptOver("worker_stopped")

    def time_left(self) -> float:
        """Return the seconds that the attempt had left when the child was started."""
        return float(self._seconds)

    def stop(self) -> None:
        """Let the next checkpoint raise."""
        self._stop = True


def serve(
    run: Callable[[ChildContext], Any],
    *,
    temporary: tuple[type[Exception], ...] = (),
    source: IO[str] | None = None,
    target: IO[str] | None = None,
    leave: Callable[[int], object] = os._exit,
) -> int:
    """Do the one job that this process was started for, and return the exit code: the `main` of a child.

    `run(context)` returns a JSON value. `temporary`: its errors that are worth another try. `source`, `target`:
    standard input and output by default. `leave(code)` ends the process when the worker is gone. What `run` prints
    must not go to standard output.
    """
    lines = sys.stdin if source is None else source
    out = sys.stdout if target is None else target

    def say(message: dict[str, Any]) -> None:
        out.write(canonical(message) + "\n")
        out.flush()

    context = ChildContext(json.loads(lines.readline()), say)
    finished = threading.Event()

    def watch() -> None:
        lines.readline()  # nothing more is said: it returns when the pipe ends
        if not finished.is_set():
            leave(1)

    threading.Thread(target=watch, name="worker watch", daemon=True).start()
    with sigterm_is_a_request(context.stop):
        try:
            word = {"result": run(context)}
        except AttemptOver:
            return 1
        except Exception as error:
            word = {"error": getattr(error, "code", "handler_failed"), "temporary": isinstance(error, temporary)}
        finally:
            finished.set()  # before the last word: the worker closes the pipe as soon as it has heard it
        say(word)
    return 0
