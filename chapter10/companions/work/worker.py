"""A process that does the jobs of a store: it claims, renews, reports, notices cancel and lost leases, and dies well.

    handler     a function of yours that does one kind of job; it gets a context and returns the result
    context     what the handler may say: `progress`, `checkpoint`, `time_left`; and what it may know
    temporary   an error that the handler declared as worth another try; every other error is final
    outcome     how an attempt ended, as the store has it

What holds
    W1  Only the store decides. What this worker believes of its lease is never longer than what it was granted; a
        result that comes late is refused there, noted in the worker log, and changes nothing.
    W2  The lease is renewed in the background while the handler runs, and not one moment longer. One small write per
        `lease / 3` seconds.
    W3  `checkpoint` raises `AttemptOver` when the job was cancelled, the lease lost, the deadline or the attempt's own
        limit passed, or the worker is to leave. A cancel is seen at the first checkpoint after `LOOK_SECONDS`.
    W4  Progress is stored at most once in `progress_every` seconds, and the last one always before the attempt ends.
    W5  An idle worker sleeps. A job that becomes due, by a submit or by the time, is started after at most `poll`
        seconds and one claim: it asks SQLite whether the file has changed (`PRAGMA data_version`) and writes nothing.
    W6  `stop()` is a request, safe in a signal handler. The job at hand may finish during the first half of `grace`;
        then its checkpoints raise and it is put back in line. A handler that does not look is put back by the
        heartbeat after three quarters of the grace, and `overrun` is called.
    W7  Every job comes to an end: an attempt counts from its claim, so a job that kills its workers uses them up.
    W8  What `observe` and `overrun` raise is dropped. A store that is busy, for however long, is asked again; one whose
        file was removed or replaced ends the worker by name.

A job that is put back because its worker leaves has lost nothing by it: its budget grows by that attempt (see
`LivingStore.hand_back`), since attempts are never given back (J3). A worker takes only jobs that it has a handler of
that name and version for; what nobody here can do waits, up to its deadline, and `LivingStore.kinds` names it.

What it does not do: it does not undo what a handler did outside the store, and it cannot stop a handler that never
looks (see `companions.work.child_process` for that). A context belongs to the thread that runs the handler.

Source: the chapter's sections on retries, cancel and leases, and what it leaves open (claims C10-199 to C10-209,
C10-214, C10-226 to C10-233, C10-250, C10-292, C10-294).
"""

from __future__ import annotations

import os
import random as chance
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from chapter10.canonical import CodedError
from chapter10.companions.retrying.retry import backoff_ms
from chapter10.companions.work.heartbeat import BEATS_PER_LEASE, AttemptOver, Heartbeat, Held, JobContext
from chapter10.companions.work.living_store import MIGRATIONS, WAITING, LivingStore, kinds_text
from chapter10.companions.work.turnstile import FairDatabase
from chapter10.companions.work.worker_log import WorkerLog, log_path
from chapter10.database import StoreError
from chapter10.jobs import APPLICATION_ID, JobError
from chapter10.limits import MAX_COUNT, MAX_TEXT, MIN_SECONDS, is_seconds

__all__ = ["LOOK_SECONDS", "Backoff", "Handler", "Note", "Outcome", "Worker", "WorkerError"]

LOOK_SECONDS: Final = 0.1
"""A checkpoint reads the job's row at most this often; in between it compares two numbers."""
_MOST_SECONDS: Final = 24 * 60 * 60.0
_NAP_SECONDS: Final = 0.5
"""An idle worker that is asked to leave does so within this time, however seldom it looks for jobs."""
_BUSY_SECONDS: Final = 1.0
"""How long the main thread may stand in SQLite, which hears no signal; a busy store is asked again."""
_LOG_BUSY_SECONDS: Final = 1.0
"""A statistic is not worth a longer wait; the heartbeat waits with it."""

_JOB: Final = "SELECT owner, deadline, submitted_at FROM jobs WHERE id = ?"
_STATE: Final = "SELECT state, attempt FROM jobs WHERE id = ?"


class WorkerError(CodedError, ValueError):
    """Raised for a worker or a handler that cannot be made, or a progress that is none; `reason` says what.

    `bad_worker`, `bad_handler`, `bad_progress`.
    """

    reason: str

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Handler:
    """How one operation is done, and what its errors mean.

    `run(context)` returns a JSON value. `version`: of the operation; another one is no job for this handler.
    `temporary`: errors after which the job is tried again while it has attempts and time. `limit`: the most seconds of
    one attempt; past it `checkpoint` raises, the lease is not renewed any more, and the job may be tried again. It is
    the second of three clocks: shorter than the deadline, and nothing to do with how long a caller waits.
    `discard(context)`: removes what an attempt left behind whose result does not count, also after a cancel. It may be
    called for what is gone already, and its errors are only noted. Nothing limits it here: what may take long keeps a
    limit of its own, as with `clean_up` of `companions.interruption.cancellation`.

    The recorded code is the error's own `code`, or `handler_failed`: an error's text never gets into the store.
    Raises `WorkerError` (`bad_handler`).
    """

    run: Callable[[JobContext], Any]
    version: str = "1"
    temporary: tuple[type[Exception], ...] = ()
    limit: float | None = None
    discard: Callable[[JobContext], object] | None = None

    def __post_init__(self) -> None:
        if not callable(self.run) or not (self.discard is None or callable(self.discard)):
            raise WorkerError("bad_handler", "not something that can be called")
        if type(self.version) is not str:
            raise WorkerError("bad_handler", "the version is no text")
        if type(self.temporary) is not tuple or not all(map(_is_kind_of_exception, self.temporary)):
            raise WorkerError("bad_handler", "temporary is not a tuple of kinds of Exception")
        if self.limit is not None:
            _seconds(self.limit, "limit", "bad_handler")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a job waits after a temporary error: twice as long each time, spread by half, never above the cap.

    `base_ms`: after the first attempt, on average. `cap_ms`: the longest wait. Both are whole, from 1 up to a day.
    `age_s`: the seconds since it was submitted after which the error is final (None: as long as it has attempts and
    time). Raises `WorkerError` (`bad_worker`).
    """

    base_ms: int = 500
    cap_ms: int = 60_000
    age_s: float | None = None

    def __post_init__(self) -> None:
        if self.age_s is not None and not is_seconds(self.age_s, MIN_SECONDS):
            raise WorkerError("bad_worker", "the age is not a number of seconds")
        for value in (self.base_ms, self.cap_ms):
            if type(value) is not int or not 1 <= value <= _MOST_SECONDS * 1000:
                raise WorkerError("bad_worker", "a wait is not a whole number of milliseconds from 1 up to a day")

    def seconds(self, attempt: int, random: Callable[[], float]) -> float:
        """Return the seconds to wait after attempt `attempt`, counted from 1. Raises `WorkerError` (`bad_worker`)."""
        if type(attempt) is not int or not 1 <= attempt < 2**63:
            raise WorkerError("bad_worker", "the attempt is not a whole number from 1")
        return backoff_ms(attempt - 1, base_ms=self.base_ms, max_ms=self.cap_ms, random=random) / 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended: the job's state now, or `lost` when the attempt did not count any more.

    `code`: why, where it is not a success.
    """

    job_id: int
    attempt: int
    state: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person may want to know; nothing is decided by it.

    `kind`: `claimed`, an outcome's state, `error`, `refused`, `store_trouble`, `log_trouble`, `discard_trouble`,
    `heartbeat_trouble` or `overrun`. `error` is what was raised, where something was.
    """

    kind: str
    job_id: int
    attempt: int
    detail: str = ""
    error: BaseException | None = None


class _Context:
    """The context of one attempt; see `JobContext`."""

    def __init__(self, worker: Worker, held: Held, args: dict[str, Any]) -> None:
        self._worker = worker
        self._held = held
        self._next_look = held.started
        self._next_report = held.started
        self._said = self._stored = (0, 0)
        self.job_id: Final = held.job_id
        self.attempt: Final = held.attempt
        self.args: Final = args

    @property
    def snapshot(self) -> Any:
        return self.args.get("snapshot")

    def time_left(self) -> float:
        held = self._held
        end = held.deadline if held.limit_at is None else min(held.deadline, held.limit_at)
        return end - self._worker.clock()

    def checkpoint(self) -> None:
        held, worker = self._held, self._worker
        now = worker.clock()
        if held.over is None:
            if now >= held.deadline:
                held.end("deadline_exceeded")
            elif held.limit_at is not None and now >= held.limit_at:
                held.end("attempt_limit_exceeded")
            elif now >= held.lease_until:
                worker._confirm_lease(held)
            elif now >= self._next_look:
                self._next_look = now + LOOK_SECONDS
                worker._look_at(held)
        if worker._must_leave(now):
            held.end("worker_stopped")
        if held.over is not None:
            raise AttemptOver(held.over)

    def progress(self, done: int, total: int) -> bool:
        if type(done) is not int or type(total) is not int or not 0 <= done <= total <= MAX_COUNT:
            raise WorkerError("bad_progress", "not two whole numbers with done up to total")
        if done < self._said[0] or total < self._said[1]:
            raise WorkerError("bad_progress", "a count falls")
        self._said = (done, total)
        self.checkpoint()
        now = self._worker.clock()
        if now >= self._next_report or done == total:
            self._next_report = now + self._worker.progress_every
            self.flush()
        return True

    def flush(self) -> None:
        """Store the last progress if the store does not have it; a busy store gets it next time."""
        if self._said == self._stored:
            return
        if self._worker._report(self._held, *self._said):
            self._stored = self._said
        if self._held.over is not None:
            raise AttemptOver(self._held.over)


class Worker:
    """Does the jobs of one store, one at a time; start as many processes with a worker each as you like.

    `path`: the store's file. `handlers`: operation name to `Handler`. `clock`: seconds that all workers of a file
    share, so the system's time. `sleep(seconds)`: how an idle worker waits. `lease`: seconds that a claim and each
    renewal give. `renew_every`: seconds between renewals, a third of the lease by default; infinity for no thread at
    all, where handlers take logical time. `poll`, `progress_every`, `grace`: see W4 to W6. `random`: from 0 up to 1,
    for the jitter. `name`: in the log. `observe(note)`: told what happens; called in the heartbeat's thread too.
    `overrun()`: called when a handler outlasted the grace and its job was put back; a process may end itself there.

    Use it as a context manager or call `close`. Everything but `stop` belongs to the thread that made it.
    Raises `WorkerError`, `StoreError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        handlers: Mapping[str, Handler],
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
        lease: float = 10.0,
        renew_every: float | None = None,
        poll: float = 0.05,
        progress_every: float = 0.5,
        grace: float = 10.0,
        backoff: Backoff | None = None,
        random: Callable[[], float] = chance.random,
        name: str = "worker",
        observe: Callable[[Note], object] | None = None,
        overrun: Callable[[], object] | None = None,
    ) -> None:
        for tool, handler in handlers.items():
            if type(tool) is not str or type(handler) is not Handler:
                raise WorkerError("bad_worker", "the handlers do not map names to handlers")
        if path in (":memory:", b":memory:"):
            raise WorkerError("bad_worker", "what lies in memory belongs to one connection; a worker needs a file")
        for seconds, what in ((lease, "lease"), (poll, "poll"), (grace, "grace")):
            _seconds(seconds, what, "bad_worker")
        if type(progress_every) not in (int, float) or progress_every != 0:
            _seconds(progress_every, "progress_every", "bad_worker")
        self._every = lease / BEATS_PER_LEASE if renew_every is None else renew_every
        if type(self._every) is not float or self._every != float("inf"):
            _seconds(self._every, "renew_every", "bad_worker")
        self.clock: Final = clock
        self.progress_every: Final = progress_every
        self._handlers = dict(handlers)
        self._kinds = [(tool, handler.version) for tool, handler in handlers.items()]
        self._own = kinds_text(self._kinds)
        self._sleep = sleep
        self._lease = lease
        self._poll = poll
        self._grace = grace
        self._backoff = Backoff() if backoff is None else backoff
        self._random = random
        self._name = name
        self._observe = observe
        self._on_overrun = overrun
        self._stop_at: float | None = None
        self._store = LivingStore(path, busy_seconds=_BUSY_SECONDS)  # it refuses what is no path
        self._path = os.path.realpath(os.fspath(path))  # a handler may change the folder
        try:
            # For looking: it sees the commits of everybody, of this worker's other connections too.
            self._look = FairDatabase(
                path, application_id=APPLICATION_ID, migrations=MIGRATIONS, busy_seconds=_BUSY_SECONDS
            )
        except BaseException:
            self._store.close()
            raise
        self._heartbeat = Heartbeat(
            lambda: LivingStore(self._path, busy_seconds=min(self._every, 10.0)),
            clock=clock,
            lease=lease,
            every=self._every,
            pause=grace / 4,
            release_at=lambda: None if self._stop_at is None else self._stop_at + grace * 3 / 4,
            refused=self._refused,
            failed=lambda error: self._note("heartbeat_trouble", 0, 0, str(error), error),
            overrun=self._overran,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the heartbeat and close the connections; a second close does nothing."""
        self._heartbeat.stop()
        self._look.close()
        self._store.close()

    # The life of a worker --------------------------------------------------------------------

    def run(self, *, jobs: int | None = None, drain: bool = False) -> int:
        """Do jobs until `stop` is called; return how many attempts were made.

        `jobs`: the most attempts. `drain`: also return when no job that it could do is live any more. Raises
        `StoreError` (`store_unavailable`) when the store breaks; a busy one is tried again. `WorkerError`
        (`bad_worker`) for `jobs` that are no number from 0.
        """
        if jobs is not None and (type(jobs) is not int or jobs < 0):
            raise WorkerError("bad_worker", "jobs is not a whole number from 0")
        made = 0
        with_thread = self._every != float("inf")
        if with_thread:
            self._heartbeat.start()
        try:
            while self._stop_at is None and (jobs is None or made < jobs):
                try:
                    version = self._version()  # before the claim: what is committed after it, is news
                    if self.run_once() is not None:
                        made += 1
                    elif drain and self._look.row(WAITING, (self._own,))[0] == 0:
                        break
                    else:
                        self._wait_for_work(version)
                except StoreError as error:
                    if error.code != "store_busy":
                        raise
                    self._note("store_trouble", 0, 0, error.code, error)
                    self._nap()
        finally:
            self._heartbeat.stop()
        return made

    def run_once(self) -> Outcome | None:
        """Claim one job and do it; None if none was to be had.

        The lease is renewed only within `run`, which has the thread for it. Raises as `run` does; what a handler raises
        beyond `Exception` (Ctrl-C) comes out after the job was put back.
        """
        started = self.clock()  # before the store reads it (H2)
        try:
            claimed = self._store.claim_next(now=self.clock, lease=self._lease, kinds=self._kinds)
        except StoreError as error:
            if error.code != "store_busy":
                raise
            self._note("store_trouble", 0, 0, error.code, error)
            return None
        if claimed is None:
            return None
        job_id, attempt = claimed
        held = self._held(job_id, attempt, started, "", started + self._lease, None)  # until its row is read
        row = self._insist(held, lambda: self._look.row(_JOB, (job_id,)))
        if row is None:  # its lease was over and it was pruned before we looked
            return Outcome(job_id, attempt, "lost", "not_found")
        owner, deadline, submitted = row
        try:
            intent = self._insist(held, lambda: self._store.intent(job_id))
        except StoreError as error:
            if not error.reason.startswith("damaged"):
                raise
            intent = None  # nobody is ever able to read it
        handler = None if intent is None else self._handlers.get(intent["tool"])
        limit = None if handler is None else handler.limit
        held = self._held(job_id, attempt, started, owner, deadline, limit)
        if self._backoff.age_s is not None and submitted is not None:
            held.again_until = submitted + self._backoff.age_s
        self._note("claimed", job_id, attempt)
        if intent is None or handler is None:
            outcome = self._fail(held, "damaged")
        else:
            outcome = self._attempt(held, handler, _Context(self, held, intent["args"]))
        self._note(outcome.state, job_id, attempt, outcome.code or "")
        return outcome

    def stop(self) -> None:
        """Ask the worker to leave (W6); it sets one attribute, so it may be called anywhere and more than once."""
        if self._stop_at is None:
            self._stop_at = self.clock()

    # One attempt -----------------------------------------------------------------------------

    def _held(
        self, job_id: int, attempt: int, started: float, owner: str, deadline: float, limit: float | None
    ) -> Held:
        settings: dict[str, Any] = {"lease": self._lease, "renew_every": self._every}
        return Held(job_id, attempt, owner=owner, started=started, deadline=deadline, limit=limit, **settings)

    def _attempt(self, held: Held, handler: Handler, context: _Context) -> Outcome:
        try:
            outcome = self._run_and_settle(held, handler, context)
        except StoreError as error:
            damaged = error.reason.startswith("damaged")  # while it was held; the end of its lease sets it aside
            if error.code != "store_busy" and not damaged:
                raise
            self._note("store_trouble", held.job_id, held.attempt, error.reason, error)
            # Or busy for longer than the lease.
            outcome = Outcome(held.job_id, held.attempt, "lost", "damaged" if damaged else error.code)
        if outcome.state != "succeeded" and handler.discard is not None:
            self._discard(handler.discard, context)
        return outcome

    def _run_and_settle(self, held: Held, handler: Handler, context: _Context) -> Outcome:
        self._heartbeat.hold(held)
        try:
            try:
                result = handler.run(context)
            finally:
                self._heartbeat.let_go()
            context.flush()
        except AttemptOver as over:
            return self._give_up(held, context, over.code)
        except Exception as error:
            self._note("error", held.job_id, held.attempt, _code_of(error), error)
            self._last_word(context)
            return self._fail(held, _code_of(error), again=isinstance(error, handler.temporary))
        except BaseException:  # Ctrl-C or an exit: the job is not to blame
            self._fail(held, "worker_stopped", interrupted=True)
            raise
        return self._deliver(held, result)

    def _deliver(self, held: Held, result: Any) -> Outcome:
        try:
            stored = self._insist(held, lambda: self._store.finish(held.job_id, held.attempt, result, now=self.clock))
        except JobError as error:
            if error.code == "bad_input":
                self._note("error", held.job_id, held.attempt, "bad_result", error)
                return self._fail(held, "bad_result")
            return self._lost(held, "finish", error)
        state = "succeeded" if stored else self._state(held)
        # False with a success can only mean our own: a commit whose answer was lost, since the attempt is current.
        return Outcome(held.job_id, held.attempt, state, None if state == "succeeded" else "not_stored")

    def _give_up(self, held: Held, context: _Context, code: str) -> Outcome:
        """The attempt is over: tell the store, which decides what becomes of the job."""
        if code == "lease_lost":
            return Outcome(held.job_id, held.attempt, "lost", code)  # the call that found it out is in the log
        self._last_word(context)
        return self._fail(held, code, again=code == "attempt_limit_exceeded", interrupted=code == "worker_stopped")

    def _fail(self, held: Held, code: str, *, again: bool = False, interrupted: bool = False) -> Outcome:
        again = again and (held.again_until is None or self.clock() < held.again_until)
        retry_after = self._backoff.seconds(held.attempt, self._random) if again else None
        job: dict[str, Any] = {"job_id": held.job_id, "attempt": held.attempt, "code": code, "now": self.clock}
        try:
            if interrupted:
                state = self._insist(held, lambda: self._store.hand_back(**job))
            else:
                state = self._insist(held, lambda: self._store.fail(**job, retry_after=retry_after))
        except JobError as error:
            return self._lost(held, "fail", error)
        return Outcome(held.job_id, held.attempt, state, code)

    def _lost(self, held: Held, verb: str, error: JobError) -> Outcome:
        held.end("lease_lost")
        self._refused(held, verb, error.code)
        return Outcome(held.job_id, held.attempt, "lost", error.code)

    def _last_word(self, context: _Context) -> None:
        try:
            context.flush()
        except AttemptOver:
            pass  # the job is over already, and this is not the call that says so

    def _discard(self, discard: Callable[[JobContext], object], context: _Context) -> None:
        # It must not hide how the attempt ended, and it does not decide anything (C10-294).
        try:
            discard(context)
        except Exception as error:
            self._note("discard_trouble", context.job_id, context.attempt, _code_of(error), error)

    def _insist(self, held: Held, call: Callable[[], Any]) -> Any:
        """Make a call until the store is not busy, as long as the lease lasts."""
        while True:
            try:
                return call()
            except StoreError as error:
                if error.code != "store_busy" or self.clock() >= held.lease_until:
                    raise
                self._note("store_trouble", held.job_id, held.attempt, error.code, error)

    # What a context asks ---------------------------------------------------------------------

    def _look_at(self, held: Held) -> None:
        """Read the job's row and end the attempt if it says so."""
        try:
            row = self._look.row(_STATE, (held.job_id,))
        except StoreError:
            return  # the lease and the next look decide
        if row is None or row[1] != held.attempt:
            self._confirm_lease(held)
        else:
            held.seen(row[0])

    def _confirm_lease(self, held: Held) -> None:
        """By this worker's clock the lease is over, or the row says so: ask the store, which notes nothing of it."""
        now = self.clock()
        try:
            state = self._store.renew(held.job_id, held.attempt, now=self.clock, lease=self._lease)
        except StoreError:
            held.end("lease_lost")
        except JobError as error:
            self._lost(held, "renew", error)
        else:
            held.lease_until = max(held.lease_until, min(now + self._lease, held.deadline))
            held.seen(state)

    def _report(self, held: Held, done: int, total: int) -> bool:
        """Store progress and return whether the store has it; ends the attempt if the store says so."""
        try:
            if self._store.progress(held.job_id, held.attempt, done, total, now=self.clock):
                return True
            state = self._state(held)
            held.end("cancelled" if state == "cancelled" else "ended")
        except StoreError as error:
            self._note("store_trouble", held.job_id, held.attempt, error.code, error)
        except JobError as error:
            self._lost(held, "progress", error)
        return False

    def _must_leave(self, now: float) -> bool:
        """Say whether a stop was asked for and the time to finish is over (W6)."""
        return self._stop_at is not None and now >= self._stop_at + self._grace / 2

    # Waiting, looking, telling ---------------------------------------------------------------

    def _wait_for_work(self, version: int) -> None:
        live, due = self._look.row(WAITING, (self._own,))
        if live and due is None:  # paused, or damaged, all of them: no claim ever meets those
            self._store.sweep(now=self.clock)
        while self._stop_at is None and (due is None or self.clock() < due):
            self._nap()
            if self._version() != version:
                return

    def _nap(self) -> None:
        """Sleep for one poll; a stop does not wait for the end of a long one."""
        left = self._poll
        while left > 0 and self._stop_at is None:
            self._sleep(min(left, _NAP_SECONDS))
            left -= _NAP_SECONDS

    def _version(self) -> int:
        return int(self._look.row("PRAGMA data_version")[0])

    def _state(self, held: Held) -> str:
        row = self._look.row(_STATE, (held.job_id,))
        return str(row[0]) if row is not None and row[1] == held.attempt else "lost"

    def _refused(self, held: Held, verb: str, code: str) -> None:
        self._note("refused", held.job_id, held.attempt, f"{verb}: {code}")
        try:
            with WorkerLog(log_path(self._path), busy_seconds=_LOG_BUSY_SECONDS) as log:
                log.refused(held.owner, self._name, held.job_id, held.attempt, verb, code, at=self.clock())
        except StoreError as error:  # a statistic is lost, and no job
            self._note("log_trouble", held.job_id, held.attempt, error.code, error)

    def _overran(self, held: Held) -> None:
        self._note("overrun", held.job_id, held.attempt)
        if self._on_overrun is not None:
            self._on_overrun()

    def _note(self, kind: str, job_id: int, attempt: int, detail: str = "", error: BaseException | None = None) -> None:
        if self._observe is not None:
            with suppress(Exception):  # whoever listens decides nothing and costs no job (W8)
                self._observe(Note(kind, job_id, attempt, detail, error))


def _is_kind_of_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _code_of(error: Exception) -> str:
    code = getattr(error, "code", None)
    return code if type(code) is str and 1 <= len(code) <= MAX_TEXT and code.isprintable() else "handler_failed"


def _seconds(value: object, name: str, code: str) -> None:
    if type(value) not in (int, float) or not MIN_SECONDS <= value <= _MOST_SECONDS:  # type: ignore[operator]
        raise WorkerError(code, f"{name} is not a number of seconds from {MIN_SECONDS} to {_MOST_SECONDS:.0f}")
