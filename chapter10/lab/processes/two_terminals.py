"""Two terminals, twenty exports, one `kill -9`, one worker frozen past its lease: every job ends once.

    python -m chapter10 two_terminals              does it, and prints what happened from the event log
    python -m chapter10 two_terminals --by-hand    prints what to type in two terminals of your own

Guess before you run: the first worker is killed in the middle of a job. Who finds out, and when? The second one is
stopped when its report is ready and not yet delivered, and goes on only after a colleague has taken its job. It does
not know that it was frozen. What becomes of its report?

What the script checks, and says `[X]` where it does not hold: every job succeeded with one receipt; the killed attempt
and the frozen one were each followed by another; the late delivery was refused and stands in `jobs stats`; a `jobs
watch` that looked on the whole time showed each event of the log once, in order, and then the state.

Exit codes: 0 all of it holds; 1 something does not; 3 this system cannot stop and continue a process (no SIGSTOP).
Source: the chapter's worker that comes back late (claims C10-226 to C10-232, C10-251 to C10-253, C10-292).
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chapter10.companions.operating.exports import SALES_EXPORT, export_arguments
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker_log import WorkerLog, log_path
from chapter10.database import StoreError
from chapter10.jobs import FINAL_STATES
from chapter10.lab.console.strings import Text, parser_in, say
from chapter10.lab.console.textio import EXIT_FINE, EXIT_MACHINE, EXIT_WRONG, Event, main_guard
from chapter10.lab.evidence.telling import narrow_lanes
from chapter10.lab.histories.job_checker import violations
from chapter10.limits import MAX_LIMIT

__all__ = ["BY_HAND", "EXPORTS", "Story", "main", "play"]

EXPORTS: Final = 20
_OWNER: Final = "alice"
_LEASE_SECONDS: Final = 1.0
_PACE_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.01
_MOST_SECONDS: Final = 120.0
_ROWS: Final = (
    "order_id,month,amount_cents,day",
    "A,2026-08,1000,2026-08-01",
    "B,2026-08,2000,2026-08-02",
    "C,2026-08,3000,2026-08-02",
    "D,2026-07,9900,2026-07-31",
)

BY_HAND: Final = Text(
    """\
在含有 chapter10 的文件夹里打开两个终端：

    终端 1   python -m chapter10 jobs work --db lab.db --lease 5 --pace 1
    终端 2   python -m chapter10 jobs submit --db lab.db --month 2026-08 --sales examples/sales.csv --key one
             python -m chapter10 jobs submit --db lab.db --month 2026-08 --sales examples/sales.csv --key two
             python -m chapter10 jobs watch --db lab.db 1

终端 1 说出自己的进程号（"ready pid ..."）。作业 1 有进度时，从第三个窗口杀死它；或者在终端 2 里按 Ctrl-C
离开 watch 之后再杀（它会告诉你怎样接着看）：

    kill -9 PID                    worker 在作业中途消失
    python -m chapter10 jobs status --db lab.db 1       还是 running：它的租约还在
    python -m chapter10 jobs work --db lab.db --lease 5 --pace 1         （又在终端 1）

至多五秒之后，作业 1 是第 2 次尝试，从头开始。再看被冻结的 worker：在另一个终端里启动第二个，等它领到作业：

    kill -STOP PID                 它被冻结，自己并不知道
    （等五秒以上：另一个 worker 领走这份作业）
    kill -CONT PID                 它接着运行，好像什么都没有发生
    python -m chapter10 jobs stats --db lab.db          它迟到的调用被拒绝
    python -m chapter10 jobs list --db lab.db           每份作业都只结束一次

在 worker 里按 Ctrl-C，它会做完手里的再离开。没有 kill 的系统（Windows）：改为关掉 worker 的窗口。
""",
    """\
Open two terminals in the folder that contains chapter10. In both:

    terminal 1   python -m chapter10 jobs work --db lab.db --lease 5 --pace 1
    terminal 2   python -m chapter10 jobs submit --db lab.db --month 2026-08 --sales examples/sales.csv --key one
                 python -m chapter10 jobs submit --db lab.db --month 2026-08 --sales examples/sales.csv --key two
                 python -m chapter10 jobs watch --db lab.db 1

Terminal 1 says its process id ("ready pid ..."). While job 1 makes progress, kill it from a third window, or from
terminal 2 after leaving the watch with Ctrl-C (it tells you how to read on):

    kill -9 PID                    the worker is gone in the middle of a job
    python -m chapter10 jobs status --db lab.db 1       still running: its lease lives on
    python -m chapter10 jobs work --db lab.db --lease 5 --pace 1         (terminal 1 again)

After at most five seconds job 1 is attempt 2, from its start. Now the frozen worker: start a second one in another
terminal, and when it has claimed a job:

    kill -STOP PID                 it is frozen, and does not know it
    (wait for more than five seconds: the other worker takes the job)
    kill -CONT PID                 it goes on as if nothing had happened
    python -m chapter10 jobs stats --db lab.db          its late calls were refused
    python -m chapter10 jobs list --db lab.db           every job ended once

Ctrl-C in a worker lets it finish what it holds. Without kill (Windows), close the window of the worker instead.
""",
)
"""What a reader types, in both languages."""


@dataclass(slots=True)
class Story:
    """What happened: `lines` to read, `wrong` for what does not hold, and the figures of `jobs stats`."""

    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    killed: tuple[int, int] = (0, 0)
    """Job and attempt that the killed worker held."""
    frozen: tuple[int, int] = (0, 0)
    """Job and attempt that the frozen worker held."""


def play(
    folder: Path,
    *,
    exports: int = EXPORTS,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
    language: str = "en",
) -> Story:
    """Play the lab in an empty folder and return the story, told in `language`.

    Raises `RuntimeError` when what has to come does not come in bounded time; `OSError`, `StoreError`.
    """
    sales = folder / "orders.csv"
    sales.write_text("\n".join(_ROWS) + "\n", encoding="utf-8", newline="\n")
    with contextlib.ExitStack() as stack:
        stage = _Stage(folder, LivingStore(folder / "jobs.db", [SALES_EXPORT]), clock, sleep, language)
        stack.callback(stage.store.close)
        stack.callback(stage.end_processes)
        stage.submit(sales, exports)
        _kill_one(stage)
        watching = _freeze_one(stage)
        stage.wait_for(lambda: not stage.store.stats(now=clock), "the end of all jobs")
        stage.leave()
        _examine(stage, watching, exports)
        return stage.story


@dataclass(slots=True)
class _Terminal:
    """A worker in a terminal: its process, and the file with what it says."""

    name: str
    process: subprocess.Popen[bytes]
    said: Path

    def notes(self) -> list[dict[str, Any]]:
        whole = [line for line in self.said.read_text(encoding="utf-8").splitlines(True) if line.endswith("\n")]
        return [json.loads(line) for line in whole]

    def holds(self) -> tuple[int, int] | None:
        """The job and attempt that it claimed last, if it has not said yet how that ended."""
        last = [note for note in self.notes() if note["job"]][-1:]
        return (last[0]["job"], last[0]["attempt"]) if last and last[0]["note"] == "claimed" else None


class _Stage:
    def __init__(
        self,
        folder: Path,
        store: LivingStore,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
        language: str,
    ) -> None:
        self.folder = folder
        self.store = store
        self.story = Story()
        self.clock = clock
        self.sleep = sleep
        self.language = language
        self.terminals: list[_Terminal] = []
        self._all: list[subprocess.Popen[bytes]] = []

    @property
    def path(self) -> Path:
        return self.folder / "jobs.db"

    def say(self, name: str, **values: object) -> None:
        self.story.lines.append(say(f"terminals.{name}", self.language, **values))

    def command(self, *arguments: str, said: Path) -> subprocess.Popen[bytes]:
        with open(said, "wb") as out:
            process = subprocess.Popen(
                # Without `site` it starts faster, and it needs nothing that is installed.
                [sys.executable, "-S", "-m", "chapter10", "jobs", *arguments, "--db", str(self.path), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                cwd=Path(__file__).resolve().parents[3],
            )
        self._all.append(process)
        return process

    def work(self, name: str) -> _Terminal:
        said = self.folder / f"{name}.txt"
        arguments = ["work", "--lease", str(_LEASE_SECONDS), "--pace", str(_PACE_SECONDS), "--name", name]
        terminal = _Terminal(name, self.command(*arguments, said=said), said)
        self.terminals.append(terminal)
        return terminal

    def submit(self, sales: Path, exports: int) -> None:
        # What `jobs submit` does, without a process for each.
        args = export_arguments("2026-08", sales)
        pairs = [(f"export-{number}", args) for number in range(1, exports + 1)]
        end = self.clock() + _MOST_SECONDS
        self.store.submit_many(
            _OWNER, pairs, now=self.clock, deadline=end, capacity=exports, max_attempts=5, tool=SALES_EXPORT.tool
        )
        self.say("accepted", exports=exports)

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        end = self.clock() + _MOST_SECONDS
        while not (found := condition()):
            if self.clock() >= end:
                raise RuntimeError(f"{what} did not come in {_MOST_SECONDS:.0f} seconds")
            self.sleep(_LOOK_SECONDS)
        return found

    def nobody_writes(self) -> bool:
        try:
            with LivingStore(self.path, busy_seconds=0.2) as store:
                store.sweep(now=self.clock, limit=1)
        except StoreError:
            return False
        return True

    def leave(self) -> None:
        for terminal in self.terminals:
            if terminal.process.poll() is None:
                terminal.process.terminate()
                code = terminal.process.wait(timeout=_MOST_SECONDS)
                self.say("left", terminal=terminal.name, code=code)
                if code != 0:
                    self.story.wrong.append(f"{terminal.name} left with {code}")

    def end_processes(self) -> None:
        for process in self._all:
            if process.poll() is None:
                process.kill()  # a stopped process dies of it too
            process.wait()


def _kill_one(stage: _Stage) -> None:
    first, _ = stage.work("terminal-1"), stage.work("terminal-2")
    stage.story.killed = stage.wait_for(first.holds, "the first job")
    first.process.kill()
    first.process.wait()
    held = first.holds()  # it may have gone on to another job before the signal arrived
    if held is not None:
        stage.story.killed = held
    job_id, attempt = stage.story.killed
    stage.say("killed", job=job_id, attempt=attempt)
    stage.work("terminal-3")


def _freeze_one(stage: _Stage) -> subprocess.Popen[bytes]:
    """Stop the second worker between its last progress and its delivery, past its lease; return who watched."""
    second = stage.terminals[1]

    def about_to_deliver() -> tuple[int, int] | None:
        held = second.holds()
        if held is None or not _is_ready(stage.store, *held):
            return None
        second.process.send_signal(signal.SIGSTOP)
        if second.holds() == held and _is_ready(stage.store, *held) and stage.nobody_writes():
            return held
        # It has delivered meanwhile, or it would keep the write lock while it is frozen: the next job then.
        second.process.send_signal(signal.SIGCONT)
        return None

    job_id, attempt = stage.story.frozen = stage.wait_for(about_to_deliver, "a report that is ready")
    since = stage.clock()
    stage.say("frozen", job=job_id, attempt=attempt)
    watching = stage.command("watch", str(job_id), "--owner", _OWNER, "--poll", "0.05", said=stage.folder / "watch.txt")
    stage.wait_for(lambda: stage.store.get(_OWNER, job_id)["attempt"] > attempt, "another attempt")
    # Not at the end of the lease to the second: a worker takes it when it is free and looks.
    stage.say("taken", lease=f"{_LEASE_SECONDS:g}", seconds=f"{stage.clock() - since:.1f}", job=job_id)
    second.process.send_signal(signal.SIGCONT)
    stage.wait_for(
        lambda: any(note["note"] == "lost" and note["job"] == job_id for note in second.notes()), "the late delivery"
    )
    stage.say("refused")
    return watching


def _is_ready(store: LivingStore, job_id: int, attempt: int) -> bool:
    status = store.get(_OWNER, job_id)
    return (
        (status["state"], status["attempt"]) == ("running", attempt)
        and status["total"] > 0
        and (status["done"] == status["total"])
    )


# What is left ------------------------------------------------------------------------------------


def _examine(stage: _Stage, watching: subprocess.Popen[bytes], exports: int) -> None:
    story, store = stage.story, stage.store
    story.wrong += violations(stage.path, accepted=range(1, exports + 1), capacity=exports)
    jobs = store.list_jobs(_OWNER, limit=MAX_LIMIT)
    for job in jobs:
        if job["state"] != "succeeded" or store.receipt_count(job["id"]) != 1:
            story.wrong.append(f"job {job['id']} is {job['state']} with {store.receipt_count(job['id'])} receipts")
    for what, (job_id, attempt) in (("killed", story.killed), ("frozen", story.frozen)):
        if store.get(_OWNER, job_id)["attempt"] <= attempt:
            story.wrong.append(f"the {what} attempt of job {job_id} was not followed by another")
    stats = stage.folder / "stats.txt"
    if stage.command("stats", said=stats).wait(timeout=_MOST_SECONDS) == 0:
        story.stats = json.loads(stats.read_text(encoding="utf-8"))
    totals = story.stats.get("totals", {})
    if not totals.get("late_deliveries_refused"):
        story.wrong.append("no late delivery stands in the statistics")
    _compare_watch(stage, watching)
    attempts = sum(job["attempt"] for job in jobs)
    stage.say("ended", jobs=len(jobs), attempts=attempts, late=totals.get("late_deliveries_refused"))
    for heading, job_id in (("log_killed", story.killed[0]), ("log_frozen", story.frozen[0])):
        lines = story.lines
        lines.append("")
        stage.say(heading)
        lines += ["", *narrow_lanes(list(_timeline(stage, job_id)))]


def _compare_watch(stage: _Stage, watching: subprocess.Popen[bytes]) -> None:
    code = watching.wait(timeout=_MOST_SECONDS)
    said = (stage.folder / "watch.txt").read_text(encoding="utf-8").splitlines()
    *events, state = map(json.loads, said)
    job_id = stage.story.frozen[0]
    if code != 0 or state != stage.store.get(_OWNER, job_id) or state["state"] not in FINAL_STATES:
        stage.story.wrong.append(f"watch ended with {code} and {state}")
    if events != stage.store.events(_OWNER, job_id, limit=MAX_LIMIT):
        stage.story.wrong.append("watch showed something else than the event log")


def _timeline(stage: _Stage, job_id: int) -> Iterator[Event]:
    who = {
        (note["job"], note["attempt"]): terminal.name
        for terminal in stage.terminals
        for note in terminal.notes()
        if note["note"] == "claimed"
    }
    rows = stage.store.db.execute(
        "SELECT at, attempt, kind, detail FROM events WHERE job_id = ? ORDER BY seq", (job_id,)
    ).fetchall()
    start = rows[0][0]
    found = [
        (at, who.get((job_id, attempt), "caller"), _what(kind, attempt, detail)) for at, attempt, kind, detail in rows
    ]
    with WorkerLog(log_path(stage.path)) as log:
        for row in log.recent():
            if row["job_id"] == job_id:
                found.append(
                    (row["at"], row["worker"], f"{row['verb']}, attempt {row['attempt']}: refused, {row['code']}")
                )
    for at, actor, what in sorted(found, key=lambda item: item[0]):
        yield Event(round(at - start, 2), actor, what)


def _what(kind: str, attempt: int, detail: str) -> str:
    said = json.loads(detail)
    if kind == "progress":
        return f"progress {said['done']}/{said['total']}"
    if kind == "running":
        return f"claims, attempt {attempt}"
    return f"{kind} ({said['error']})" if "error" in said else kind


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the lab or print what to type; return the exit code."""
    parser, language = parser_in("python -m chapter10 two_terminals", "terminals", arguments)
    parser.add_argument("--by-hand", action="store_true", help=say("terminals.by_hand_help", language))
    options = parser.parse_args(arguments)
    if options.by_hand:
        print(BY_HAND.in_language(language), end="")
        return EXIT_FINE
    if not hasattr(signal, "SIGSTOP"):
        print(say("terminals.cannot", language), file=sys.stderr)
        return EXIT_MACHINE
    with tempfile.TemporaryDirectory(prefix="chapter10-") as folder:
        story = play(Path(folder), language=language)
    print("\n".join(story.lines))
    print()
    for line in story.wrong:
        print(f"[X] {line}")
    if not story.wrong:
        print(say("terminals.fine", language))
    return EXIT_WRONG if story.wrong else EXIT_FINE


if __name__ == "__main__":
    main_guard(main)
