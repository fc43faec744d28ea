"""A typed function as a job: its kind, the check of its arguments, how it is done and how it is asked for.

    @task("video.transcode", version="1", retries=5, timeout=600)
    def transcode(path: str, height: int = 720) -> dict[str, object]: ...

    with LivingStore("jobs.db", operations(transcode)) as store:
        job_id = transcode.submit(store, "alice", "intro in 720", path="intro.mov")
    with Worker("jobs.db", handlers(transcode)) as worker:
        worker.run(drain=True)

The hints are read as those of a tool are (`companions.schemas.hints`): what is submitted is checked before it is
stored, and the function gets the values that the hints promise. A parameter that is hinted `JobContext` is no argument:
it gets the context, whose `progress` and `checkpoint` a long function calls. What it returns is a JSON value.

A function that is called by itself is the function; as a job it may run more than once, since a worker can die after
the work and before the store has the result. A function that holds the interpreter's lock for longer than a lease (a
C extension that does not let go) keeps the heartbeat from renewing it and loses its job: run that in a `child_process`.

Source: the chapter's intent and operations (claims C10-139, C10-216 to C10-218) and its section on retries.
"""

from __future__ import annotations

import inspect
import time
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any

from chapter10.companions.schemas.hints import typed_function
from chapter10.companions.schemas.schema import compile_schema
from chapter10.companions.work.heartbeat import JobContext
from chapter10.companions.work.living_store import CAPACITY, DEADLINE_S, LivingStore
from chapter10.companions.work.worker import Handler, WorkerError
from chapter10.jobs import Operation

__all__ = ["Task", "handlers", "operations", "task", "tasks_of"]


class Task:
    """A function that can be a job; made by `task`. Called, it is the function.

    `kind`, `version`: how the store names it. `operation`: for a store. `handler`: for a worker. `parameters`: the
    schema of the arguments. `description`: of the docstring.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        operation: Operation,
        handler: Handler,
        parameters: dict[str, Any],
        description: str,
        admission: Callable[[], dict[str, Any]],
    ) -> None:
        self.kind, self.version = operation.tool, operation.version
        self.operation, self.handler = operation, handler
        self.parameters, self.description = parameters, description
        self._function, self._admission = function, admission

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function, here and now."""
        return self._function(*arguments, **named)

    def submit(self, store: LivingStore, owner: str, key: str, /, **arguments: Any) -> int:
        """Store one call as a job and return its id; the same `key` with the same arguments is the same job.

        `store` was opened with the `operation`. Whoever wants another deadline or start calls `store.submit` with
        `tool=kind`. Raises as `LivingStore.submit` does, `invalid_submission` for arguments that do not fit the hints.
        """
        return store.submit(owner, key, arguments, tool=self.kind, **self._admission())


def task(
    kind: str,
    *,
    version: str = "1",
    retries: int = 2,
    timeout: float | None = None,
    retry_on: tuple[type[Exception], ...] = (Exception,),
    deadline_s: float = DEADLINE_S,
    capacity: int = CAPACITY,
    clock: Callable[[], float] = time.time,
) -> Callable[[Callable[..., Any]], Task]:
    """Return a decorator that makes a `Task` of a typed function.

    `kind`, `version`: the name of what is stored; change the version when the meaning of the arguments changes.
    `retries`: how often it is tried again after an error of `retry_on`, after its timeout, or after its worker died.
    `timeout`: seconds of one try, which the function notices at its next `progress` or `checkpoint`. `deadline_s`,
    `capacity`: of a submission. Raises `WorkerError` (`bad_handler`), as does the decorator, and that `HintError` for a
    function whose arguments cannot be checked.
    """

    if type(retries) is not int or retries < 0:
        raise WorkerError("bad_handler", "retries is not a whole number from 0")

    def admission() -> dict[str, Any]:
        limits = {"max_attempts": retries + 1, "capacity": capacity}
        return {"now": clock, "deadline": clock() + deadline_s, **limits}

    def decorate(function: Callable[..., Any]) -> Task:
        if inspect.iscoroutinefunction(function):
            raise WorkerError("bad_handler", "a coroutine function; a job runs in a thread of its own")
        context = _context_argument(function)
        _, description, parameters, call = typed_function(function, leave_out=context)
        schema = compile_schema(parameters)

        def check(args: dict[str, Any]) -> None:
            wrong = schema.validate(args)
            if wrong:
                raise ValueError(f"{wrong[0].path or 'the arguments'}: {wrong[0].reason}")

        def run(held: JobContext) -> Any:
            return call(**held.args, **({} if context is None else {context: held}))

        handler = Handler(run, version=version, temporary=retry_on, limit=timeout)
        return Task(function, Operation(kind, version, check), handler, parameters, description, admission)

    return decorate


def operations(*tasks: Task) -> list[Operation]:
    """Return what a store is opened with so that these may be submitted."""
    return [each.operation for each in tasks]


def handlers(*tasks: Task) -> dict[str, Handler]:
    """Return what a worker is made with so that it does these."""
    return {each.kind: each.handler for each in tasks}


def tasks_of(module: ModuleType) -> list[Task]:
    """Return the tasks that a module defines or imports, by kind. Raises `WorkerError` (`bad_handler`) for none."""
    found = {each.kind: each for each in vars(module).values() if isinstance(each, Task)}
    if not found:
        raise WorkerError("bad_handler", f"{module.__name__} has no task")
    return [found[kind] for kind in sorted(found)]


def _context_argument(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that is hinted `JobContext`, or None."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # a hint that cannot be read is refused by `typed_function`, by its name
        return None
    return next((name for name, hint in hints.items() if hint is JobContext and name != "return"), None)
