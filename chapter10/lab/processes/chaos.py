"""Everything at once, for real: processes are killed, stopped and continued while jobs, repeats and cancels rain in.

    python -m chapter10 chaos --seconds 10 --workers 3 --seed 1

Several worker processes share one file. The seed decides what is done to whom, in which order; what comes of it is
decided by the operating system, so no two runs are equal. The clock of one worker runs ahead of all others by more
than half a lease, so that it takes leases which their holders believe to be alive. Rows are damaged while they are
held, jobs fork, some are submitted by a clock that is an hour ahead and then set back, and files are removed under a
store that has them open. Afterwards the chaos ends, the workers do what is left, and the file is examined from outside.

    accepted      job ids that a submission was answered with
    ended         of them, those with a final state
    attempts      claims, by the event log
    refused       calls that came late: deliveries (`finish`, `fail`) and all of them
    receipts      stored results, one for each success
    lost          accepted and not there, or never ended: must be 0
    duplicated    a key with two jobs, or a job with two successes: must be 0

Exit codes: 0 everything holds; 1 something does not, and it is said what; 2 usage. On a system without SIGSTOP nobody
is stopped, only killed.
Source: the chapter's recovery from worker failure (claims C10-207 to C10-209, C10-226 to C10-233).
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker_log import WorkerLog, log_path
from chapter10.database import StoreError
from chapter10.jobs import JobError
from chapter10.lab.console.strings import parser_in, say
from chapter10.lab.console.textio import EXIT_FINE, EXIT_WRONG, main_guard, print_json
from chapter10.lab.histories.job_checker import violations
from chapter10.lab.processes.chaos_worker import CHAOS_WORK, DEADLY_EXIT, KINDS, LET_IN

__all__ = ["LEASE_SECONDS", "MAX_SECONDS", "MAX_WORKERS", "Chaos", "main", "run_chaos"]

LEASE_SECONDS: Final = 0.5
MAX_SECONDS: Final = 3600.0
MAX_WORKERS: Final = 16
_AHEAD: Final = 0.8
"""Of a lease, that the clock of one worker runs ahead: more than what is left of it when it is renewed."""
_CAPACITY: Final = 40
_MAX_ATTEMPTS: Final = 4
_TICK: Final = 0.04
"""Of a lease, between two things that are done."""
_DRAIN_SECONDS: Final = 60.0
_BUSY_SECONDS: Final = 0.1
"""Short: a worker may be stopped in the middle of a transaction, and who waits for it is who continues it."""
_JOB_SECONDS: Final = 30.0
_OWNERS: Final = ("alice", "bob", "carol")
_WEIGHTS: Final = {
    "submit": 40, "repeat": 10, "conflict": 5, "cancel": 12, "kill": 2, "stop": 6, "leave": 1,
    "damage": 3, "ahead": 2, "delete": 1,
}  # fmt: skip
_KIND_WEIGHTS: Final = (40, 45, 8, 6, 1, 4)
_DAMAGES: Final = ("state = 'lurking'", "attempt = 99", "deadline = 'x'", "intent = '{oops'")
_HOUR: Final = 3600.0

T = TypeVar("T")
_Clock = Callable[[], float]
_Sleep = Callable[[float], object]


@dataclass(slots=True)
class _Member:
    """One worker process of the run; `resume_at` while it is stopped, `asked` once it was sent SIGTERM."""

    name: str
    ahead: float
    process: subprocess.Popen[bytes]
    resume_at: float | None = None
    asked: bool = False
    killed: bool = False


@dataclass(slots=True)
class Chaos:
    """What was done and what came of it. `wrong`: one line for each thing that does not hold."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def run_chaos(
    folder: Path,
    *,
    seconds: float,
    workers: int,
    seed: int,
    steps: int | None = None,
    lease: float = LEASE_SECONDS,
    clock: _Clock = time.time,
    sleep: _Sleep = time.sleep,
) -> Chaos:
    """Make chaos for `seconds` in an empty folder, let the workers come to an end, and return the figures.

    `steps`: do so many things instead, however long they take on a slow machine. `lease`: in seconds; the pauses
    between two things and the steps of the work are in proportion to it.
    Raises `StoreError`, `OSError`.
    """
    run = _Run(folder, workers, random.Random(seed), lease, clock, sleep)
    try:
        with LivingStore(run.path, [CHAOS_WORK], busy_seconds=_BUSY_SECONDS) as store:
            end = clock() + seconds
            taken = 0
            while clock() < end if steps is None else taken < steps:
                run.step(store)
                taken += 1
            run.drain(store)
        run.leave()
    finally:
        run.end_processes()
    run.examine()
    return run.chaos


class _Run:
    def __init__(
        self, folder: Path, workers: int, chance: random.Random, lease: float, clock: _Clock, sleep: _Sleep
    ) -> None:
        self.path = folder / "jobs.db"
        self.chaos = Chaos()
        self._errors = folder / "errors.txt"
        self._chance = chance
        self._order = random.Random(chance.random())  # how long things take has no part in what is done
        self._lease = lease
        self._clock = clock
        self._sleep = sleep
        self._known: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
        self._damaged: set[int] = set()
        with LivingStore(self.path, [CHAOS_WORK]):
            pass  # the file is there before the first worker is
        self._members: list[_Member] = []
        try:
            for number in range(workers):
                self._members.append(self._start(f"worker-{number}", 0.0 if number else _AHEAD * lease))
        except BaseException:
            self.end_processes()
            raise

    # While it lasts --------------------------------------------------------------------------

    def step(self, store: LivingStore) -> None:
        """Do one thing to somebody, see who has to be continued or started again, and wait for a moment."""
        what = self._order.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0]
        self.chaos.done[what] += getattr(self, f"_{what}")(store)
        self._look_after_the_workers()
        self._sleep(_TICK * self._lease)

    def _submit(self, store: LivingStore) -> int:
        owner, key = self._chance.choice(_OWNERS), f"key-{len(self._known)}"
        kind = self._chance.choices(KINDS, _KIND_WEIGHTS)[0]
        args = {"kind": kind, "steps": self._chance.randint(1, 30)}
        try:
            self._known[owner, key] = (self._ask(store, owner, key, args), args)
        except JobError as refused:
            if refused.code != "queue_full":
                raise
            self.chaos.done["queue_full"] += 1
            return 0
        return 1

    def _sound(self) -> list[tuple[tuple[str, str], tuple[int, dict[str, Any]]]]:
        """The jobs that were accepted, without those whose rows were damaged: of these every call says so."""
        return [each for each in self._known.items() if each[1][0] not in self._damaged]

    def _repeat(self, store: LivingStore) -> int:
        if not (known := self._sound()):
            return 0
        (owner, key), (job_id, args) = self._chance.choice(known)
        again = self._ask(store, owner, key, args)
        if again != job_id:
            self.chaos.wrong.append(f"the key of job {job_id} gave job {again}")
        return 1

    def _conflict(self, store: LivingStore) -> int:
        if not (known := self._sound()):
            return 0
        (owner, key), (job_id, args) = self._chance.choice(known)
        try:
            self._ask(store, owner, key, {**args, "steps": args["steps"] + 1})
        except JobError as refused:
            if refused.code == "key_conflict":
                return 1
            raise
        self.chaos.wrong.append(f"the key of job {job_id} took another intent")
        return 1

    def _ask(self, store: LivingStore, owner: str, key: str, args: dict[str, Any]) -> int:
        return self._insist(
            lambda: store.submit(
                owner,
                key,
                args,
                now=self._clock,
                deadline=self._clock() + _JOB_SECONDS,
                max_attempts=_MAX_ATTEMPTS,
                capacity=_CAPACITY,
                tool=CHAOS_WORK.tool,
            )
        )

    def _insist(self, call: Callable[[], T]) -> T:
        """Make a call until the store is not busy; whoever is stopped with the lock in hand is continued meanwhile."""
        end = self._clock() + _DRAIN_SECONDS
        while True:
            try:
                return call()
            except StoreError as error:
                if error.code != "store_busy" or self._clock() >= end:
                    raise
                self.chaos.done["store_busy"] += 1
                self._look_after_the_workers()

    def _cancel(self, store: LivingStore) -> int:
        if not (known := self._sound()):
            return 0
        (owner, _), (job_id, _) = self._chance.choice(known[-_CAPACITY:])
        self._insist(lambda: store.cancel(owner, job_id, now=self._clock))
        return 1

    def _kill(self, store: LivingStore) -> int:
        member = self._chance.choice(self._members)
        member.killed = True
        member.process.kill()
        return 1

    def _stop(self, store: LivingStore) -> int:
        member = self._chance.choice(self._members)
        if member.resume_at is not None or not _signal(member.process, "SIGSTOP"):
            return 0
        member.resume_at = self._clock() + self._lease * self._chance.uniform(0.5, 3)
        return 1

    def _leave(self, store: LivingStore) -> int:
        member = self._chance.choice(self._members)
        if member.resume_at is not None:
            return 0
        member.asked = True
        member.process.terminate()
        return 1

    def _damage(self, store: LivingStore) -> int:
        """Change a live row as a disk does: it stops nobody, and ends as `damaged`."""
        live = store.survey(state="running", limit=1) or store.survey(state="queued", limit=1)
        change = f"UPDATE jobs SET {self._chance.choice(_DAMAGES)} WHERE id = ?"

        def damage() -> None:
            with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
                db.execute("PRAGMA ignore_check_constraints=ON")
                try:
                    db.execute(change, (live[0]["id"],))
                except sqlite3.OperationalError as error:
                    raise StoreError("store_busy", "somebody is stopped with the lock in hand") from error

        if live:
            self._damaged.add(live[0]["id"])
            self._insist(damage)
        return len(live)

    def _ahead(self, store: LivingStore) -> int:
        """Submit by a clock that is set back afterwards: the job waits until an operator releases it."""
        clock, self._clock = self._clock, lambda: clock() + _HOUR
        try:
            return self._submit(store)
        finally:
            self._clock = clock

    def _delete(self, store: LivingStore) -> int:
        """Remove a file under a store that has it open: the next job is refused by name, and nothing is lost unsaid."""
        path = self.path.with_name("removed.db")
        with LivingStore(path, [CHAOS_WORK]) as other:
            path.unlink()
            try:
                self._ask(other, "alice", "k", {"kind": "plain", "steps": 1})
            except StoreError as error:
                if error.reason.startswith("replaced"):
                    return 1
                raise
        self.chaos.wrong.append("a job was accepted into a file that is gone")
        return 1

    def _look_after_the_workers(self) -> None:
        for place, member in enumerate(self._members):
            if member.resume_at is not None and self._clock() >= member.resume_at:
                member.resume_at = None
                _signal(member.process, "SIGCONT")
            if member.process.poll() is not None:
                self._judge(member)
                self._members[place] = self._start(member.name, member.ahead)

    def _judge(self, member: _Member) -> None:
        """A worker has ended: was that in order?"""
        code = member.process.returncode
        # Asked before it could install its handler it ends by SIGTERM itself; then it holds nothing yet.
        left = member.asked and (code in (0, -signal.SIGTERM) or os.name == "nt")
        if not (member.killed or code == DEADLY_EXIT or left):
            self.chaos.wrong.append(f"{member.name} ended by itself with exit code {code}")
        self.chaos.done["restarts"] += 1

    def _start(self, name: str, ahead: float) -> _Member:
        # Without `site` it starts faster, and it needs nothing that is installed.
        command = [sys.executable, "-S", "-m", "chapter10.lab.processes.chaos_worker"]
        command += [str(self.path), name, str(ahead), str(self._lease)]
        with open(self._errors, "ab") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, cwd=_top()
            )
        return _Member(name, ahead, process)

    # Afterwards ------------------------------------------------------------------------------

    def drain(self, store: LivingStore) -> None:
        """Continue everybody and wait until no job is live, in bounded time."""
        for member in self._members:
            if member.resume_at is not None:
                member.resume_at = 0.0
        end = self._clock() + _DRAIN_SECONDS
        while store.stats(now=self._clock) and self._clock() < end:
            self._look_after_the_workers()
            self._insist(lambda: store.sweep(now=self._clock))
            for job in store.survey(state="queued"):
                if (job["submitted"] or 0) > self._clock():
                    self._insist(partial(store.release, job["id"], now=self._clock))
            self._sleep(_TICK * self._lease)

    def leave(self) -> None:
        """Ask every worker to leave; each does, with 0."""
        for member in self._members:
            member.asked = True
            member.process.terminate()
        for member in self._members:
            member.process.wait(timeout=_DRAIN_SECONDS)
            self._judge(member)

    def end_processes(self) -> None:
        """Leave no process behind, whatever happened."""
        for member in self._members:
            if member.process.poll() is None:
                member.process.kill()  # a stopped process dies of it too
                member.process.wait()

    def examine(self) -> None:
        """Look at the file from outside, and count."""
        accepted = [job_id for job_id, _ in self._known.values()]
        chaos = self.chaos
        chaos.wrong += violations(self.path, accepted=accepted, capacity=_CAPACITY)
        errors = self._errors.read_text(encoding="utf-8", errors="backslashreplace")
        if errors:
            chaos.wrong.append(f"a worker said: {errors[-2000:]}")
        with LivingStore(self.path) as store:
            states = dict(store.db.execute("SELECT id, state FROM jobs").fetchall())
            kinds = Counter(kind for (kind,) in store.db.execute("SELECT kind FROM events"))
            twice = store.db.execute(
                "SELECT count(*) FROM (SELECT job_id FROM events WHERE kind = 'succeeded' GROUP BY job_id"
                " HAVING count(*) > 1)"
            ).fetchone()[0]
            receipts = store.db.execute("SELECT count(*) FROM receipts").fetchone()[0]
            forked = store.db.execute("SELECT count(*) FROM jobs WHERE error = ?", (LET_IN,)).fetchone()[0]
        if forked:
            chaos.wrong.append("a child of a fork was let into the file that its parent had open")
        by_state = Counter(states[job_id] for job_id in accepted if job_id in states)
        ended = sum(by_state[state] for state in ("succeeded", "failed", "cancelled"))
        refused = self._refused()
        chaos.figures = {
            "accepted": len(accepted),
            "ended": ended,
            "by_state": dict(sorted(by_state.items())),
            "attempts": kinds["running"],
            "late_deliveries_refused": sum(count for verb, count in refused.items() if verb in ("finish", "fail")),
            "late_calls_refused": sum(refused.values()),
            "receipts": receipts,
            "lost": len(accepted) - ended,
            "duplicated": len(accepted) - len(set(accepted)) + twice + len(states.keys() - set(accepted)),
            "done": dict(sorted(chaos.done.items())),
        }
        if chaos.figures["lost"] or chaos.figures["duplicated"] or receipts != by_state["succeeded"]:
            chaos.wrong.append("a job was lost, was done twice, or has no receipt of its own")

    def _refused(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        if os.path.exists(log_path(self.path)):
            with WorkerLog(log_path(self.path)) as log:
                for row in log.counts():
                    counts[row["verb"]] += row["count"]
        return counts


def _signal(process: subprocess.Popen[bytes], name: str) -> bool:
    number = getattr(signal, name, None)
    if number is None or process.poll() is not None:
        return False
    process.send_signal(number)
    return True


def _top() -> Path:
    """The folder that contains the package, so that a worker finds it from wherever the run was started."""
    return Path(__file__).resolve().parents[3]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chaos and print what came of it; return the exit code."""
    parser, language = parser_in("python -m chapter10 chaos", "chaos", arguments)
    parser.add_argument("--seconds", type=float, default=10.0, help=say("chaos.seconds", language))
    parser.add_argument("--workers", type=int, default=3, help=say("chaos.workers", language))
    parser.add_argument("--seed", type=int, default=1, help=say("chaos.seed", language))
    parser.add_argument("--json", action="store_true", help=say("chaos.json", language))
    options = parser.parse_args(arguments)
    if not 0 < options.seconds <= MAX_SECONDS or not 1 <= options.workers <= MAX_WORKERS:
        parser.error(say("chaos.bounds", language, workers=MAX_WORKERS, seconds=f"{MAX_SECONDS:.0f}"))
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        chaos = run_chaos(Path(folder), seconds=options.seconds, workers=options.workers, seed=options.seed)
    if options.json:
        print_json({**chaos.figures, "wrong": chaos.wrong})
    else:
        for name, value in chaos.figures.items():
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            print(f"{name:<24} {shown}")
        for line in chaos.wrong:
            print(f"[X] {line}")
        if not chaos.wrong:
            print(say("chaos.fine", language))
    return EXIT_WRONG if chaos.wrong else EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
