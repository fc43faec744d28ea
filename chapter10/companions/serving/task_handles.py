"""A job as a task of the protocol: the handle that a client keeps, and what it is told of the job.

    job tool  a tool whose call becomes a job: the answer is a receipt, and the work is done by a worker
    handle    `id.seal`, where the seal is an HMAC over owner and id; whoever has not been given it cannot make it
    secret    32 bytes beside the store's file, readable by its owner alone; with the file it outlives every process

             the store                               the protocol
    queued, running, cancel_requested                working
    succeeded                                        completed, with the result of the call
    failed by the handler's own code                 completed, with a result that is an error
    failed by `RUNTIME_CODES`                        failed, with an error -32603
    cancelled                                        cancelled

What holds
    H1  A handle is given after the commit, so that a `tasks/get` finds it, also after a restart of both sides.
    H2  A handle of another owner, of another file, a changed and an invented one all look like no task at all.
    H3  A time is what the store has: the first and the last event of the job. `ttlMs` ends at the job's deadline; the
        result is kept after it, until somebody prunes.
    H4  A cancel asks. What was done before it is told as it ended.
    H5  The same `action_key` is the same job, whoever repeats it and however often; with other arguments it is
        refused as `key_conflict` (-32602). Without one each call is a new job.
    H6  A client that does not know tasks gets the number of its job, and asks and cancels with two tools.
    H7  The store is used in one thread, which no handler and no client holds up.

The protocol's words stand here and nowhere else; the local states are never sent as the protocol's (C10-262).
Source: the page of the tasks extension (e4345978) as it stood on 2026-11-30; the chapter's section on the products
(claim C10-262).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from chapter10.canonical import CodedError, canonical
from chapter10.companions.serving.messages import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from chapter10.companions.serving.offer import Offer, refusal, text_result
from chapter10.companions.tools.redaction import redact_secrets
from chapter10.companions.tools.registry import ToolSpec
from chapter10.companions.tools.result_text import cut_text, result_text
from chapter10.companions.tools.tool_spec import PUBLIC
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Handler, Note, Worker
from chapter10.database import StoreError
from chapter10.jobs import FINAL_STATES, JobError, Operation

__all__ = ["CANCEL_TOOL", "GET_TOOL", "RUNTIME_CODES", "STATUS", "JobTool", "Jobs", "SecretError", "read_secret"]

STATUS: Final = {
    "queued": "working",
    "running": "working",
    "cancel_requested": "working",
    "succeeded": "completed",
    "failed": "completed",
    "cancelled": "cancelled",
}
"""The protocol's word for each state of the store; `failed` by one of `RUNTIME_CODES` is the protocol's `failed`."""
RUNTIME_CODES: Final = frozenset(
    {"deadline_exceeded", "attempts_exhausted", "worker_stopped", "attempt_limit_exceeded"}
)
"""Errors that say nothing of the tool: the work did not come to an end."""
GET_TOOL: Final = "jobs_get"
CANCEL_TOOL: Final = "jobs_cancel"

_POLL_MS: Final = 1000
_SECRET_BYTES: Final = 32
_HANDLE: Final = re.compile(r"([1-9][0-9]{0,18})\.[0-9a-f]{64}")
_TIMES: Final = (
    "SELECT j.intent, j.deadline, min(e.at), max(e.at) FROM jobs j JOIN events e ON e.job_id = j.id"
    " WHERE j.id = ? AND j.owner = ? GROUP BY j.id"
)
_KEY: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "Names this piece of work: the same key again gives the same job, and not a second one.",
}
_JOB: Final = {
    "type": "object",
    "properties": {"job": {"type": "integer", "minimum": 1}},
    "required": ["job"],
    "additionalProperties": False,
}
_REFUSED: Final = {
    "queue_full": "There is no place for new work now. Ask again later.",
    "not_found": "There is no such job.",
    "store_busy": "The store is busy. Ask again.",
}
_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class SecretError(CodedError, RuntimeError):
    """Raised when the secret beside a store cannot be used: `secret_open` (others may read it), `secret_broken`."""


@dataclass(frozen=True, slots=True)
class JobTool:
    """A tool whose call becomes a job: what a model sees of it, and the worker's handler that does it.

    `parameters`: JSON Schema of the arguments; `action_key` is added to it unless it is there. `seconds`: from the
    acceptance to the deadline. `max_attempts`: a process that ends in between uses one up. `max_output_chars`:
    characters of a result that a client is shown; the rest stays in the store.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Handler
    permission: str = PUBLIC
    keywords: tuple[str, ...] = ()
    seconds: float = 3600.0
    max_attempts: int = 10
    max_output_chars: int = 100_000


class Jobs:
    """The jobs of one owner in one store, as tools and as tasks.

    `tools`: what becomes a job. `capacity`: jobs of all owners that are not final. `clock`: the time that all
    processes of the store share. `new_key()`: a fresh key. `random(n)`: bytes for the secret. `lease`, `grace`: the
    worker's. Call `close` at the end. Raises `StoreError`, `SecretError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        owner: str,
        tools: list[JobTool],
        *,
        new_key: Callable[[], str],
        capacity: int = 100,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
        lease: float = 10.0,
        grace: float = 2.0,
    ) -> None:
        self._path = Path(path).absolute()
        self._owner = owner
        self._tools = {tool.name: tool for tool in tools}
        self._new_key = new_key
        self._capacity = capacity
        self._clock = clock
        self._lease = lease
        self._grace = grace
        self._worker: Worker | None = None
        self._leaving = False
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        operations = [Operation(tool.name, tool.handler.version, _checked_before) for tool in tools]
        self._store = self._pool.submit(LivingStore, self._path, operations).result()
        self._secret = read_secret(self._path.with_name(self._path.name + ".secret"), random)

    def start_worker(self) -> None:
        """Do the jobs of the file in a thread, until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Put the job at hand back in line, end the worker, and close the store; a second close does nothing."""
        if self._leaving:
            return
        self._leaving = True
        if self._worker is not None:
            self._worker.stop()
        if self._thread.is_alive():
            self._thread.join(self._grace)
        self._pool.submit(self._store.close)
        self._pool.shutdown()

    def offer_to(self, offer: Offer) -> None:
        """Add the job tools, and the two that ask and cancel by number, to an offer. Raises `RegistryError`."""

        async def receipt(data: str, task: bool) -> dict[str, Any]:
            return await self._receipt(offer, _decode(data), task)

        for tool in self._tools.values():
            offer.put(self._spec(tool), receipt)
        for name, verb, effect, said in (
            (GET_TOOL, self._get_number, "read", "Ask what became of a job, by its number; its result if it is done."),
            (CANCEL_TOOL, self._cancel_number, "reversible_write", "Ask for a job to be stopped, by its number."),
        ):
            words = ("job", "task", "status", "result", "cancel")
            offer.put(ToolSpec(name, said, effect, 30, 1, 200_000, verb, _JOB, PUBLIC, words), _as_it_is)

    # The way in: a call becomes a job ----------------------------------------------------------------

    def _spec(self, tool: JobTool) -> ToolSpec:
        async def submit(**arguments: Any) -> dict[str, Any]:
            key = arguments.pop("action_key", None) if with_key else None
            return await self._submit(tool, key, arguments)

        parameters = dict(tool.parameters)
        with_key = "action_key" not in parameters.get("properties", {})
        if with_key:
            parameters["properties"] = {**parameters.get("properties", {}), "action_key": _KEY}
        return ToolSpec(
            tool.name,
            tool.description,
            "reversible_write",
            timeout_seconds=60,
            max_attempts=1,
            max_output_chars=10_000,
            handler=submit,
            parameters=parameters,
            permission=tool.permission,
            keywords=tool.keywords,
            version=tool.handler.version,
        )

    async def _submit(self, tool: JobTool, key: str | None, arguments: dict[str, Any]) -> dict[str, Any]:
        def submit() -> int:
            return self._store.submit(
                self._owner,
                self._new_key() if key is None else key,
                arguments,
                now=self._clock,
                deadline=self._clock() + tool.seconds,
                max_attempts=tool.max_attempts,
                capacity=self._capacity,
                tool=tool.name,
            )

        try:
            return {"job": await self._ask(submit)}
        except (JobError, StoreError) as error:
            return {"refused": error.code}

    async def _receipt(self, offer: Offer, said: dict[str, Any], task: bool) -> dict[str, Any]:
        """Make the answer to a call that was taken or not: a task for who knows tasks, else the number (H1, H6)."""
        if said.get("refused") == "key_conflict":
            raise RpcError(INVALID_PARAMS, "The action_key stands for other work.", {"code": "key_conflict"})
        if "refused" in said:
            return refusal(said["refused"], _REFUSED.get(said["refused"], "The work was not accepted."))
        number = said["job"]
        if task:
            return {"resultType": "task", **await self._task(number, whole=False)}
        ask, cancel = (offer.how_to_call(name, {"job": number}) for name in (GET_TOOL, CANCEL_TOOL))
        return text_result(canonical({"job": number, "state": "accepted", "ask": ask, "cancel": cancel}))

    # The way back: a handle or a number becomes what is known ------------------------------------------

    def handle(self, number: int) -> str:
        """Return the handle of a job of this owner."""
        sealed = canonical([self._owner, number]).encode("utf-8")
        return f"{number}.{hmac.new(self._secret, sealed, hashlib.sha256).hexdigest()}"

    def _number(self, handle: str) -> int:
        found = _HANDLE.fullmatch(handle)
        number = int(found[1]) if found else 1
        if not hmac.compare_digest(self.handle(number).encode(), handle.encode("utf-8")):
            raise _no_task()
        return number

    async def get(self, handle: str) -> dict[str, Any]:
        """Return a task as `tasks/get` answers; see `Tasks`."""
        return await self._task(self._number(handle), whole=True)

    async def cancel(self, handle: str) -> None:
        """Ask for a task to be stopped; see `Tasks`."""
        number = self._number(handle)
        await self._known(lambda: self._store.cancel(self._owner, number, now=self._clock))

    async def update(self, handle: str) -> None:
        """Know the handle; no job here asks for anything. See `Tasks`."""
        number = self._number(handle)
        await self._known(lambda: self._store.get(self._owner, number))

    async def _task(self, number: int, *, whole: bool) -> dict[str, Any]:
        row, result, times = await self._known(lambda: self._look(number))
        status = "failed" if row["state"] == "failed" and row["error"] in RUNTIME_CODES else STATUS[row["state"]]
        task: dict[str, Any] = {
            "taskId": self.handle(number),
            "status": status,
            "statusMessage": _sentence(row),
            "createdAt": _iso(times[1]),
            "lastUpdatedAt": _iso(times[2]),
            "ttlMs": max(0, round((times[0] - times[1]) * 1000)),
            "pollIntervalMs": _POLL_MS,
        }
        if whole and status == "completed":
            task["result"] = result
        elif whole and status == "failed":
            task["error"] = {"code": INTERNAL_ERROR, "message": f"The work did not end: {row['error']}"}
        return task

    def _look(self, number: int) -> tuple[dict[str, Any], dict[str, Any] | None, tuple[float, float, float]]:
        """Read a job in the store's thread: its row, the result of its call once there is one, and its times."""
        row = self._store.get(self._owner, number)
        found = self._store.db.execute(_TIMES, (number, self._owner)).fetchone()
        if found is None:
            raise JobError("not_found")  # pruned since the line before
        intent, deadline, first, last = found
        result = None
        if row["state"] == "succeeded":
            result = text_result(self._shown(_decode(intent)["tool"], self._store.result(self._owner, number)["data"]))
        elif row["state"] == "failed":
            result = refusal(row["error"], "The work failed.")
        return row, result, (deadline, deadline if first is None else first, deadline if last is None else last)

    def _shown(self, name: str, data: Any) -> str:
        """Return a stored result as every result is shown: as text, without secrets, cut."""
        most = self._tools[name].max_output_chars if name in self._tools else 100_000
        text = redact_secrets(result_text(data))
        if len(text) <= most:
            return text
        return f"{cut_text(text, most, is_json=type(data) is not str)}\n[Cut: {most} of {len(text)} characters.]"

    async def _get_number(self, job: int) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            row, result, _ = self._look(int(job))
            return {**row, "result": None if result is None else result["content"][0]["text"]}

        return await self._answered(look)

    async def _cancel_number(self, job: int) -> dict[str, Any]:
        return await self._answered(
            lambda: {"id": int(job), "state": self._store.cancel(self._owner, int(job), now=self._clock)}
        )

    # The store's thread ------------------------------------------------------------------------------

    async def _ask(self, question: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, question)

    async def _answered(self, question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return await self._ask(question)
        except (JobError, StoreError) as error:
            return {"refused": error.code}

    async def _known(self, question: Callable[[], T]) -> T:
        """Ask about a job that a handle names; what is gone looks like what never was (H2)."""
        try:
            return await self._ask(question)
        except JobError as error:
            if error.code == "result_expired":
                raise RpcError(INVALID_PARAMS, "The task has expired.") from None
            raise _no_task() from None

    def _work(self) -> None:
        handlers = {name: tool.handler for name, tool in self._tools.items()}
        options: dict[str, Any] = {"clock": self._clock, "lease": self._lease, "grace": self._grace, "poll": 0.2}
        try:
            with Worker(self._path, handlers, name="serve", observe=_note, **options) as self._worker:
                if not self._leaving:
                    self._worker.run()
        except StoreError as error:
            _log.error("the worker ends: %s: %s", error.code, error.reason)


def read_secret(path: Path, random: Callable[[int], bytes] = os.urandom) -> bytes:
    """Return the secret in the file `path`, made at first sight with the right to read it for its owner alone.

    Of several processes that make it at once one wins, and all read the same. Raises `SecretError`, `OSError`.
    """
    if not path.exists():
        fresh = path.with_name(f"{path.name}.{random(8).hex()}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(random(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)  # whole or not at all, and never in the place of another one
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise SecretError("secret_open")
    secret = path.read_bytes()
    if len(secret) != _SECRET_BYTES:
        raise SecretError("secret_broken")
    return secret


def _checked_before(arguments: dict[str, Any]) -> None:
    """The boundary has checked the arguments against the schema; nothing is left to check."""


async def _as_it_is(data: str, task: bool) -> dict[str, Any]:
    """Give what `jobs_get` and `jobs_cancel` said; what the store refused is an error with a sentence."""
    code = _decode(data).get("refused")
    return text_result(data) if code is None else refusal(code, _REFUSED.get(code, "The store refused it."))


def _sentence(row: dict[str, Any]) -> str:
    """Say in a sentence what the two counts and the state do."""
    if row["state"] == "cancel_requested":
        return "A cancel was asked for."
    if row["state"] in FINAL_STATES:
        return f"The work ended: {row['error'] or row['state']}."
    return f"{row['done']} of {row['total']} done." if row["total"] else "The work was accepted."


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decode(data: str) -> dict[str, Any]:
    return dict(json.loads(data))


def _no_task() -> RpcError:
    return RpcError(INVALID_PARAMS, "There is no such task.")


def _note(note: Note) -> None:
    if note.error is not None:
        _log.warning("job %d: %s: %s", note.job_id, note.kind, note.detail, exc_info=note.error)
