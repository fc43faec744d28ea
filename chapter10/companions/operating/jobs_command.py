"""The command line of the job system: `python -m chapter10 jobs VERB`, or `chapter10 jobs VERB` when installed.

    caller      submit, status, watch, events, result, cancel, list     speak for `--owner`
    worker      work                                                    does the jobs of every owner
    operator    stats, top, list --all, retry, release, pause, resume,  concern every owner
                sweep, prune, compact, backup

`sales.export` is always at hand; `--handlers MODULE` adds the tasks of a module of yours (`companions.work.functions`).

`--owner` stands for a trusted identity: this program believes what it is told, so let only those type it who may. A
service takes it from its login and never from a request or a model.

`--db` names the store; by default it lies in the user's own data folder. The results folder and the log of the workers
lie beside it. With `--json` every answer is JSON on standard output, an error is `{"error", "reason"}`, and `watch` and
`work` give one object a line. Only what cannot be read as a command is told as usage on standard error.

Exit codes: 0 fine; 1 wrong (the job failed or was cancelled, it was not found, no result yet, no place in the queue,
the patience of `watch` ended before the job); 2 usage, or nothing to start from; 3 the store is broken; 4
the key of a `submit` is that of a job that failed or was cancelled, so nothing was accepted; 130 interrupted. A worker
that is asked to leave by SIGTERM or Ctrl-C leaves with 0; asked twice, it leaves at once with 130, and the lease
recovers its job.

Source: the chapter's interfaces of submit, status, events and result (claims C10-135 to C10-141, C10-190 to C10-194,
C10-244 to C10-254).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from chapter10.canonical import canonical, text_digest
from chapter10.companions.basics.modules import ModuleError, load_module
from chapter10.companions.operating.exports import (
    SALES_EXPORT,
    Exporter,
    ExportError,
    export_arguments,
    export_key,
    read_table,
    remove_leftovers,
)
from chapter10.companions.operating.jobs_crew import MAX_WORKERS, run_crew
from chapter10.companions.operating.jobs_top import lines as screen_lines
from chapter10.companions.operating.jobs_top import top, whose
from chapter10.companions.operating.jobs_watch import Bar, event_line, watch
from chapter10.companions.operating.jobs_words import WORDS, Say, speaker
from chapter10.companions.operating.sales import SalesError
from chapter10.companions.operating.status import status_text
from chapter10.companions.work.functions import Task, handlers, tasks_of
from chapter10.companions.work.living_store import CAPACITY, DEADLINE_S, MAX_BATCH, LivingStore
from chapter10.companions.work.stop_signals import StopSignals
from chapter10.companions.work.worker import Backoff, Handler, Note, Worker, WorkerError
from chapter10.companions.work.worker_log import WorkerLog, log_path
from chapter10.database import StoreError
from chapter10.jobs import FINAL_STATES, STATES, JobError, Operation
from chapter10.lab.console.strings import LANGUAGES, asked_language, choose_language
from chapter10.lab.console.textio import (
    EXIT_FINE,
    EXIT_INTERRUPTED,
    EXIT_MACHINE,
    EXIT_USAGE,
    EXIT_WRONG,
    prepare_streams,
    print_json,
)

__all__ = ["default_database", "main"]

_DAY: Final = 24 * 60 * 60.0
_USAGE_CODES: Final = frozenset({"invalid_submission", "bad_input", "bad_worker", "bad_handler", "bad_handlers"})
"""Refusals of what was typed; every other refusal is about the state of things."""

_PROG: Final = "python -m chapter10 jobs"
_EXIT_DEAD: Final = 4
"""Of a submission whose key is that of a job that has failed or was cancelled: neither accepted nor refused."""

_Clock = Callable[[], float]
_Sleep = Callable[[float], object]


def default_database(environment: Mapping[str, str], platform: str, home: Path) -> Path:
    """Return where the store lies when nobody says: in the user's data folder, as each system has it."""
    if platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(environment.get("XDG_DATA_HOME") or "")
        if not base.is_absolute():  # by the rule of that variable it then counts as not set
            base = home / ".local" / "share"
    return base / "chapter10" / "jobs.db"


def main(arguments: Sequence[str] | None = None, *, clock: _Clock = time.time, sleep: _Sleep = time.sleep) -> int:
    """Run one command and return its exit code; `arguments` are what follows `jobs`.

    `clock`: the time that all processes of a store share. `sleep`: how `watch` and an idle worker wait.
    Raises `SystemExit` with code 2 for arguments that it does not know.
    """
    prepare_streams()
    options = _parser(speaker(asked_language(_PROG, arguments))).parse_args(arguments)
    options.typed = sys.argv[1:] if arguments is None else list(arguments)
    out = _Out(options.json, choose_language(options.lang))
    try:
        verb: Callable[[argparse.Namespace, _Out, _Clock, _Sleep], int] = options.verb
        return verb(options, out, clock, sleep)
    except (JobError, SalesError, WorkerError, ModuleError) as refused:
        out.error(refused.code, _reason(refused))
        usage = refused.code in _USAGE_CODES or (isinstance(refused, SalesError) and options.command == "submit")
        return EXIT_USAGE if usage else EXIT_WRONG
    except StoreError as broken:
        out.error(broken.code, broken.reason)
        return EXIT_MACHINE
    except BrokenPipeError:
        raise  # whoever reads has gone; `main_guard` knows what to do
    except OSError as broken:
        out.error("machine", str(broken))
        return EXIT_MACHINE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _reason(refused: JobError | SalesError | WorkerError | ModuleError) -> str | None:
    if isinstance(refused, SalesError) and refused.line is not None:
        return f"line {refused.line}: {refused.reason}"
    return refused.reason


class _Out:
    """Says each answer in one of two ways: lines for a person, or JSON."""

    def __init__(self, as_json: bool, language: str) -> None:
        self.as_json, self.language, self.say = as_json, language, speaker(language)

    def answer(self, value: object, *lines: str) -> None:
        if self.as_json:
            print_json(value)
        else:
            sys.stdout.write("".join(f"{_one_line(line)}\n" for line in lines))

    def line(self, value: Mapping[str, Any], text: str) -> None:
        """One of many answers: a line at once, whatever the form."""
        said = json.dumps(value, ensure_ascii=True, allow_nan=False) if self.as_json else _one_line(text)
        sys.stdout.write(said + "\n")
        sys.stdout.flush()

    def error(self, code: str, reason: str | None) -> None:
        if self.as_json:
            print_json({"error": code, "reason": reason})
            return
        meaning = self.say(f"error.{code}") if f"error.{code}" in WORDS else None
        told = [meaning if self.language == "zh" or not reason else None, reason]
        sys.stderr.write(_one_line(": ".join([code, *filter(None, told)])) + "\n")


def _one_line(text: str) -> str:
    """Return a text that stays on its line: no name that somebody chose makes lines or moves a cursor of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


# The caller's verbs ------------------------------------------------------------------------------


def _submit(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    operation = _operation(options)
    if options.batch is not None:
        return _submit_batch(options, operation, out, clock)
    args = _arguments(operation, vars(options))
    try:
        content = export_key(args) if operation is SALES_EXPORT else f"{operation.tool} {text_digest(canonical(args))}"
    except ValueError as refused:
        raise JobError("invalid_submission", str(refused)) from refused
    with _made(options, operation) as store:
        # Content is no intent: whoever names none gets a new job, and is told of those that did the same before.
        earlier = store.keyed(options.owner, content) if options.key is None else []
        key = f"{content}-{store.newest_event() + 1}-{os.getpid()}" if options.key is None else options.key
        (job_id,) = store.submit_many(options.owner, [(key, args)], **_admission(options, operation, clock))
        status = store.get(options.owner, job_id)
    dead = status["state"] in ("failed", "cancelled")
    snapshot = {"snapshot": args["snapshot"]} if operation is SALES_EXPORT else {}
    out.answer(
        {**status, "action_key": key, **snapshot, "earlier": [job["id"] for job in earlier]},
        out.say("submit.key", job=_line(status, out.say), key=key),
        *(out.say("submit.earlier", job=_line(job, out.say)) for job in earlier),
        *([out.say("submit.dead", id=job_id)] if dead else []),
    )
    return _EXIT_DEAD if dead else EXIT_FINE


def _submit_batch(options: argparse.Namespace, operation: Operation, out: _Out, clock: _Clock) -> int:
    """Submit a file of JSON lines, each `{"key", ...}`; all of them in one commit, or none."""
    pairs: list[tuple[str, dict[str, Any]]] = []
    with open(options.batch, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                if number > MAX_BATCH:
                    raise ValueError(f"the file has more than {MAX_BATCH} lines; nothing was taken")
                entry = json.loads(line.decode("utf-8-sig"))
                if type(entry) is not dict or type(entry.get("key")) is not str:
                    raise ValueError("not an object with a key")
                pairs.append((entry["key"], _arguments(operation, entry)))
            except (ValueError, KeyError, JobError) as refused:
                reason = refused.reason if isinstance(refused, JobError | SalesError) else str(refused)
                raise JobError("bad_input", f"line {number}: {reason}") from refused
    with _made(options, operation) as store:
        ids = store.submit_many(options.owner, pairs, **_admission(options, operation, clock))
        states = {job_id: store.get(options.owner, job_id)["state"] for job_id in ids}
    dead = [job_id for job_id, state in states.items() if state in ("failed", "cancelled")]
    jobs = [
        {"id": job_id, "action_key": key, "state": states[job_id]} for job_id, (key, _) in zip(ids, pairs, strict=True)
    ]
    lines = [out.say("submit.one", id=job["id"], state=job["state"], key=job["action_key"]) for job in jobs]
    out.answer(jobs, *lines, *(out.say("submit.dead", id=job_id) for job_id in dead))
    return _EXIT_DEAD if dead else EXIT_FINE


def _operation(options: argparse.Namespace) -> Operation:
    """Return what is asked for: the export, or a task of the module that was named."""
    if options.kind in (None, SALES_EXPORT.tool):
        return SALES_EXPORT
    known = {each.kind: each.operation for each in _tasks(options)}
    if options.kind not in known:
        raise JobError("bad_input", f"no handler of {options.kind} is known; name its module with --handlers")
    return known[options.kind]


def _arguments(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of one job from what was typed or stands in a line of a file."""
    if operation is SALES_EXPORT:
        if given.get("month") is None or given.get("sales") is None:
            raise JobError("bad_input", "an export needs month and sales")
        return export_arguments(given["month"], given["sales"])
    args = given.get("args")
    if isinstance(args, str):
        try:
            args = json.loads(args)
        except ValueError as error:
            raise JobError("bad_input", f"the arguments are no JSON: {error}") from error
    if type(args) is not dict:
        raise JobError("bad_input", "the arguments are not a JSON object")
    return args


def _admission(options: argparse.Namespace, operation: Operation, clock: _Clock) -> dict[str, Any]:
    return {
        "now": clock,
        "deadline": clock() + options.start_in + options.deadline,
        "start": clock() + options.start_in if options.start_in else None,
        "max_attempts": options.max_attempts,
        "capacity": options.capacity,
        "owner_capacity": options.owner_capacity,
        "tool": operation.tool,
    }


def _tasks(options: argparse.Namespace) -> list[Task]:
    return [] if options.handlers is None else tasks_of(load_module(options.handlers))


def _status(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        status = store.get(options.owner, options.job)
    out.answer(status, _line(status, out.say), status_text(status, language=out.language))
    return EXIT_FINE


def _watch(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    bar = Bar(sys.stdout, out.say) if sys.stdout.isatty() and not out.as_json else None
    cursor = [options.after]

    def show(event: dict[str, Any]) -> None:
        if bar is not None:
            bar.show(event)
        else:
            out.line(event, event_line(event, out.say))
        cursor[0] = event["seq"]  # after it was shown: a stop in between shows it twice and never not at all

    def busy() -> None:
        sys.stderr.write(out.say("watch.busy") + "\n")

    try:
        with _open(options, busy_seconds=1.0) as store:
            status = watch(
                store,
                options.owner,
                options.job,
                show=show,
                clock=clock,
                sleep=sleep,
                after=options.after,
                timeout=options.timeout,
                poll=options.poll,
                busy=busy,
            )
    except KeyboardInterrupt:
        sys.stderr.write(out.say("watch.left", seq=cursor[0]) + "\n")
        return EXIT_INTERRUPTED
    finally:
        if bar is not None:
            bar.clear()
    ended = status["state"] in FINAL_STATES
    out.line(status, _line(status, out.say))
    if not out.as_json:
        sys.stdout.write(status_text(status, stopped_waiting=not ended, language=out.language) + "\n")
    return EXIT_FINE if status["state"] == "succeeded" else EXIT_WRONG


def _events(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        events = store.events(options.owner, options.job, options.after, options.limit)
    out.answer(events, *(event_line(event, out.say) for event in events))
    return EXIT_FINE


def _cancel(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        state = store.cancel(options.owner, options.job, now=clock)
    taken = state in ("cancelled", "cancel_requested")
    # What is done is done: "succeeded" is no confirmation of a cancel (C10-215).
    answer = {"id": options.job, "state": state}
    out.answer(answer, out.say("cancel" if taken else "cancel.late", **answer))
    return EXIT_FINE if taken else EXIT_WRONG


def _result(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        try:
            result = store.result(options.owner, options.job)
        except JobError as refused:
            if refused.code != "not_ready":
                raise
            # "not ready" of a job that failed would keep somebody waiting for ever.
            raise JobError("not_ready", _line(store.get(options.owner, options.job), out.say)) from None
    folder = _results(options)
    data = result["data"]
    tables = data["tables"] if _is_export(data) else []
    if options.table is not None:
        table = next((table for table in tables if table["by"] == options.table), None)
        if table is None:
            raise ExportError("table_missing", None, f"the result has no table by {options.table}")
        content = read_table(folder, table).decode("utf-8")
        out.answer({**table, "content": content}, *content.splitlines())
        return EXIT_FINE
    lines = [f"{result['artifact_id']}  sha256 {result['sha256']}"]
    if tables:
        lines.append(out.say("result.rows", month=data["month"], rows=data["row_count"], cents=data["total_cents"]))
        lines += [out.say("result.table", **{**table, "file": folder / table["file"]}) for table in tables]
    else:
        lines.append(json.dumps(data, ensure_ascii=True, sort_keys=True))
    out.answer({**result, "folder": str(folder)}, *lines)
    return EXIT_FINE


def _is_export(data: object) -> bool:
    """Say whether a result is one of `sales.export`; a store may hold those of other operations too."""
    if type(data) is not dict or not {"month", "row_count", "total_cents", "tables"} <= set(data):
        return False
    names = {"by", "file", "rows", "bytes", "sha256"}
    return type(data["tables"]) is list and all(type(t) is dict and names <= set(t) for t in data["tables"])


def _list(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    owner = None if options.all else options.owner
    since = None if options.since is None else clock() - options.since
    chosen = {"owner": owner, "state": options.state, "kind": options.kind, "since": since}
    with _open(options) as store:
        jobs = store.survey(**chosen, before=options.before, limit=options.limit)
    out.answer(jobs, *(_long_line(job, out.say) for job in jobs))
    return EXIT_FINE


def _long_line(job: Mapping[str, Any], say: Say) -> str:
    times = (say(f"job.{name}", at=_moment(job[name])) for name in ("submitted", "started", "ended", "deadline"))
    whose = say("job.whose", owner=job["owner"], kind=job["kind"], key=job["action_key"])
    return ", ".join((_line(job, say), whose, *times))


def _moment(seconds: Any) -> str:
    """Return a moment as UTC to the second; a clock that is not the system's may give what no calendar holds."""
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, OSError, TypeError, ValueError):
        return "-" if seconds is None else str(seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _retry(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        again = store.retry(
            options.job,
            now=clock,
            by=options.by,
            why=options.why,
            deadline=clock() + options.deadline,
            max_attempts=options.max_attempts,
            capacity=options.capacity,
        )
    out.answer({"id": again, "retry_of": options.job}, out.say("retry", again=again, job=options.job))
    return EXIT_FINE


def _line(status: Mapping[str, Any], say: Say) -> str:
    error = f" ({status['error']})" if status["error"] else ""
    shown = {name: status[name] for name in ("id", "state", "attempt", "done", "total")}
    return say("job", **shown, error=error)


# The worker ---------------------------------------------------------------------------------------


def _work(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    if options.concurrency > 1:
        return run_crew(options.typed, options.concurrency)
    path = _database(options)
    path.parent.mkdir(parents=True, exist_ok=True)
    pause = (lambda: sleep(options.pace)) if options.pace > 0 else None
    exporter = Exporter(_results(options), inputs=options.inputs, pause=pause)
    handler = Handler(exporter, temporary=(OSError,), limit=options.attempt_limit, discard=exporter.discard)
    observe = _Observer(out)
    with (
        Worker(
            path,
            {SALES_EXPORT.tool: handler, **handlers(*_tasks(options))},
            clock=clock,
            sleep=sleep,
            lease=options.lease,
            poll=options.poll,
            grace=options.grace,
            backoff=Backoff(round(options.retry_base * 1000), round(options.retry_cap * 1000), options.retry_age),
            name=options.name or f"worker-{os.getpid()}",
            observe=observe,
            # The handler does not return, so nothing else ends this process; its job is back in line.
            overrun=lambda: os._exit(EXIT_FINE),
        ) as worker,
        # Asked twice, it leaves at once, whatever it waits for.
        StopSignals(lambda count: worker.stop() if count == 1 else os._exit(EXIT_INTERRUPTED)),
    ):
        observe(Note("ready", 0, 0, f"pid {os.getpid()}"))
        with _open(options) as store:
            seen = store.newest_event()
        worker.run(jobs=options.jobs, drain=options.drain)
    with _open(options) as store:
        failed = store.failed_after(seen) if options.drain else 0
    return EXIT_WRONG if failed else EXIT_FINE


class _Observer:
    """Prints what a worker does, as long as anybody reads it."""

    def __init__(self, out: _Out) -> None:
        self._out = out

    def __call__(self, note: Note) -> None:
        if note.kind == "error" and note.detail == "handler_failed" and note.error is not None:
            with suppress(OSError):  # the terminal is gone, the jobs are not
                traceback.print_exception(note.error)  # the store gets the code only
        said = {"note": note.kind, "job": note.job_id, "attempt": note.attempt, "detail": note.detail}
        why = f" ({_reason(note.error)})" if isinstance(note.error, SalesError) else ""
        text = f"{note.kind} {note.detail}".rstrip() + why
        if note.job_id:
            text = self._out.say("note", job=note.job_id, attempt=note.attempt, said=text)
        try:
            self._out.line(said, text)
        except OSError:
            self._out = _Silent(self._out.as_json, self._out.language)


class _Silent(_Out):
    def line(self, value: Mapping[str, Any], text: str) -> None:
        pass


# Upkeep ------------------------------------------------------------------------------------------


def _sweep(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        counts = store.sweep(now=clock, limit=options.limit)
    out.answer(counts, *(out.say("stats.figure", name=name, value=count) for name, count in counts.items()))
    return EXIT_FINE


def _prune(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    now = clock()
    counts = {"results": 0, "keys": 0, "files": 0}
    with _open(options) as store:
        while True:  # what had ended before `now` gets less with each batch
            removed = store.prune(
                now=now,
                results_before=now - options.results_older,
                keys_before=now - options.keys_older,
                limit=options.limit,
            )
            for name, count in removed.items():
                counts[name] += count
            if not any(removed.values()):
                break
    while gone := remove_leftovers(_results(options), _database(options), limit=options.limit):
        counts["files"] += gone
    hint = [out.say("prune.room")] if counts["keys"] else []
    out.answer(counts, *(out.say("prune.count", name=name, count=count) for name, count in counts.items()), *hint)
    return EXIT_FINE


def _compact(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        sizes = store.compact()
    out.answer(sizes, out.say("compact", **sizes))
    return EXIT_FINE


def _backup(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        size = store.backup(options.file)
    answer = {"file": options.file, "bytes": size}
    out.answer(answer, out.say("backup", **answer), out.say("backup.tables", folder=_results(options)))
    return EXIT_FINE


def _release(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        waited = store.release(options.job, now=clock)
    said = out.say("release" if waited else "release.none", id=options.job)
    out.answer({"id": options.job, "released": waited}, said)
    return EXIT_FINE if waited else EXIT_WRONG


def _pause(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        changed = store.pause(options.only, now=clock)
    return _paused(options, out, changed, "pause")


def _resume(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        changed = store.resume(options.only)
    return _paused(options, out, changed, "resume")


def _paused(options: argparse.Namespace, out: _Out, changed: bool, name: str) -> int:
    said = out.say(name if changed else "pause.already", who=whose(options.only, out.say))
    out.answer({"owner": options.only, "changed": changed}, said)
    return EXIT_FINE if changed else EXIT_WRONG


def _top(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    def show(lines: Sequence[str]) -> str:
        return "".join(f"{_one_line(line)}\n" for line in lines)

    with _open(options) as store:
        if out.as_json:
            print_json(screen_lines(store, clock(), speaker("en")))
            return EXIT_FINE
        top(store, sys.stdout, say=out.say, clock=clock, sleep=sleep, show=show, every=options.every, once=options.once)
    return EXIT_FINE


def _stats(options: argparse.Namespace, out: _Out, clock: _Clock, sleep: _Sleep) -> int:
    with _open(options) as store:
        owners, kinds, paused = store.stats(now=clock), store.kinds(), store.paused()
    refused = _refusals(_database(options))
    waits = [figures["oldest_wait"] for figures in owners.values() if figures["oldest_wait"] is not None]
    totals: dict[str, Any] = {
        name: sum(figures[name] for figures in owners.values())
        for name in ("queued", "running", "cancel_requested", "expired")
    }
    totals["oldest_wait"] = max(waits, default=None)
    totals["late_deliveries_refused"] = sum(row["count"] for row in refused if row["verb"] in ("finish", "fail"))
    totals["late_calls_refused"] = sum(row["count"] for row in refused)
    out.answer(
        {"totals": totals, "owners": owners, "kinds": kinds, "paused": paused, "refused": refused},
        *(out.say("stats.figure", name=name, value=_figure(value)) for name, value in totals.items()),
        *(
            out.say(
                "stats.figure", name=whose(owner, out.say), value=", ".join(f"{k} {_figure(v)}" for k, v in row.items())
            )
            for owner, row in owners.items()
        ),
        *(out.say("stats.kind", **row) for row in kinds),
        *(out.say("stats.paused", who=whose(owner, out.say)) for owner in paused),
        *(
            out.say("stats.refused", **{name: row[name] for name in ("owner", "verb", "code", "count")})
            for row in refused
        ),
    )
    return EXIT_FINE


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _refusals(database: Path) -> list[dict[str, Any]]:
    path = log_path(database)
    if not os.path.exists(path):  # no worker was ever refused
        return []
    with WorkerLog(path) as log:
        return log.counts()


# What may be typed -------------------------------------------------------------------------------


def _database(options: argparse.Namespace) -> Path:
    """Return the store's own path: what lies beside it is found by whatever link it was reached."""
    path = Path(options.db) if options.db else default_database(os.environ, sys.platform, Path.home())
    return Path(os.path.realpath(path))


def _results(options: argparse.Namespace) -> Path:
    return Path(options.results or f"{_database(options)}.results")


def _made(options: argparse.Namespace, operation: Operation) -> LivingStore:
    """Open the store, or make it: for a submission."""
    path = _database(options)
    path.parent.mkdir(parents=True, exist_ok=True)
    return LivingStore(path, [operation])


def _open(options: argparse.Namespace, **settings: Any) -> LivingStore:
    """Open a store that is there: to look for a job must not make an empty store."""
    path = _database(options)
    if not path.exists():
        raise JobError("bad_input", f"there is no store at {path}; submit makes one")
    return LivingStore(path, [SALES_EXPORT], **settings)


def _parser(say: Say) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROG, description=say("help"), allow_abbrev=False, add_help=False)

    def about(sub: Any, **settings: Any) -> None:
        sub.add_argument("-h", "--help", action="help", help=say("help.help"))
        sub.add_argument("--lang", choices=LANGUAGES, help=say("help.lang"), **settings)

    about(parser)
    verbs = parser.add_subparsers(dest="command", metavar="VERB", required=True)

    def add(name: str, verb: Callable[..., int], *, owner: bool = False, job: bool = False) -> Any:
        text = say(f"help.{name}")
        sub = verbs.add_parser(name, help=text, description=text, allow_abbrev=False, add_help=False)
        about(sub, default=argparse.SUPPRESS)  # what was said before the verb stands
        sub.set_defaults(verb=verb, results=None)
        sub.add_argument("--db", type=_store_file, help=say("help.db"))
        sub.add_argument("--json", action="store_true", help=say("help.json"))
        if owner:
            sub.add_argument("--owner", default="local", help=say("help.owner"))
        if job:
            sub.add_argument("job", type=int, help=say("help.job"))
        return sub

    def option(sub: Any, name: str, text: str = "", **settings: Any) -> None:
        sub.add_argument(name, help=say(f"help.{text or name.strip('-').replace('-', '_')}"), **settings)

    def admission(sub: Any) -> None:
        option(sub, "--deadline", "within", type=_positive, default=DEADLINE_S)
        option(sub, "--max-attempts", type=int, default=30)
        sub.add_argument("--capacity", type=int, default=CAPACITY, help=say("help.capacity", most=CAPACITY))

    submit = add("submit", _submit, owner=True)
    option(submit, "--month")
    option(submit, "--sales")
    option(submit, "--kind", type=_named)
    option(submit, "--args")
    option(submit, "--from", dest="batch", type=_named, metavar="FILE")
    option(submit, "--start-in", type=_age, default=0.0)
    option(submit, "--handlers", type=_named, metavar="MODULE")
    option(submit, "--key", type=_named)
    admission(submit)
    option(submit, "--owner-capacity", type=int)

    work = add("work", _work)
    option(work, "--handlers", type=_named, metavar="MODULE")
    option(work, "--concurrency", type=_crew, default=1)
    option(work, "--lease", type=_positive, default=10.0)
    option(work, "--grace", type=_positive, default=10.0)
    option(work, "--poll", "work_poll", type=_positive, default=0.05)
    option(work, "--attempt-limit", type=_positive)
    option(work, "--retry-base", type=_positive, default=1.0)
    option(work, "--retry-cap", type=_positive, default=60.0)
    option(work, "--retry-age", type=_positive)
    option(work, "--jobs", type=_count)
    option(work, "--drain", action="store_true")
    option(work, "--results", type=_named)
    option(work, "--inputs", type=_named)
    option(work, "--name", type=_named)
    option(work, "--pace", type=_age, default=0.0)

    add("status", _status, owner=True, job=True)
    watching = add("watch", _watch, owner=True, job=True)
    option(watching, "--after", type=int, default=0)
    option(watching, "--timeout", type=_positive)
    option(watching, "--poll", "watch_poll", type=_positive, default=0.2)
    events = add("events", _events, owner=True, job=True)
    option(events, "--after", type=int, default=0)
    option(events, "--limit", "events_limit", type=int, default=100)
    add("cancel", _cancel, owner=True, job=True)
    result = add("result", _result, owner=True, job=True)
    option(result, "--table", choices=("day", "product", "month"))
    option(result, "--results", type=_named)
    listing = add("list", _list, owner=True)
    option(listing, "--all", action="store_true")
    option(listing, "--state", choices=STATES)
    option(listing, "--kind", "list_kind", type=_named)
    option(listing, "--since", type=_age)
    option(listing, "--before", type=int)
    option(listing, "--limit", "list_limit", type=int, default=50)

    retry = add("retry", _retry, job=True)
    option(retry, "--by", type=_named, default="operator")
    option(retry, "--why", type=_named, required=True)
    admission(retry)
    option(add("sweep", _sweep), "--limit", "sweep_limit", type=int, default=100)
    prune = add("prune", _prune)
    option(prune, "--results-older", type=_age, default=7 * _DAY)
    option(prune, "--keys-older", type=_age, default=30 * _DAY)
    option(prune, "--limit", "prune_limit", type=int, default=100)
    option(prune, "--results", type=_named)
    add("compact", _compact)
    option(add("backup", _backup), "file", type=_named)
    add("release", _release, job=True)
    option(add("pause", _pause), "--only", type=_named, metavar="OWNER")
    option(add("resume", _resume), "--only", type=_named, metavar="OWNER")
    screen = add("top", _top)
    option(screen, "--every", type=_positive, default=1.0)
    option(screen, "--once", action="store_true")
    add("stats", _stats)
    return parser


def _named(text: str) -> str:
    """Refuse an empty text, which an unset variable of a shell leaves: it is not the default that was meant."""
    if not text:
        raise argparse.ArgumentTypeError("an empty text")
    return text


def _store_file(text: str) -> str:
    """Refuse what would be gone with this process."""
    if text == ":memory:":
        raise argparse.ArgumentTypeError("a store in memory ends with the command; name a file")
    return _named(text)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("below 0")
    return number


def _crew(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"not from 1 to {MAX_WORKERS}")
    return number


def _positive(text: str) -> float:
    return _number(text, 0.001, 366 * _DAY)


def _age(text: str) -> float:
    return _number(text, 0, 1e9)


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high:  # NaN neither
        raise argparse.ArgumentTypeError(f"not a number of seconds from {low:g} to {high:g}")
    return value
