"""What stands behind a connection: the offer, the jobs and the other servers, made from what was named at the start.

It is loaded after `serve` has taken the descriptors, so that a greeting does not wait for these modules, and nothing
that they print can be taken for a message.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chapter10.catalog import FIXTURE_GRANTS
from chapter10.companions.serving.loading import (
    ServingError,
    job_tools,
    load_module,
    module_registry,
    offer_file,
    offer_fixture,
    offer_tools,
)
from chapter10.companions.serving.offer import Offer
from chapter10.companions.serving.pins import Pins
from chapter10.companions.serving.pipes import Pipes
from chapter10.companions.serving.session import Session
from chapter10.companions.serving.task_handles import Jobs
from chapter10.companions.serving.upstream import Upstreams, read_servers

__all__ = ["DRAIN_SECONDS", "Door", "open_door", "run"]

DRAIN_SECONDS: Final = 10.0
"""How long the answers that are due may take after the end of the input."""


class Door:
    """An offer and what carries it; `jobs` is None without a store. Call `close` at the end."""

    def __init__(self, offer: Offer, jobs: Jobs | None) -> None:
        self.offer = offer
        self.jobs = jobs

    def close(self) -> None:
        """Put the job at hand back in line and close the store."""
        if self.jobs is not None:
            self.jobs.close()


def open_door(
    *,
    tools: Path | None = None,
    handlers: str | None = None,
    db: str | os.PathLike[str] | None = None,
    owner: str = "local",
    grants: list[str] | None = None,
    new_key: Callable[[], str],
    chapter: bool = True,
    complain: Callable[[str], object] = sys.stderr.write,
) -> Door:
    """Make what is offered, start the worker, and return both; the parameters are those of the command.

    `chapter`: whether the chapter's tools are offered where nothing else is named. `complain(line)` hears of a
    definition that was left out. Raises `ServingError`, `StoreError`, `SecretError`.
    """
    module = None if handlers is None else load_module(handlers)
    chapter = chapter and tools is None and module is None
    given = grants or (FIXTURE_GRANTS if chapter else ())
    offer = Offer(module_registry(module), grants=given, new_key=new_key)
    if chapter:
        offer_fixture(offer)
    elif tools is not None:
        for line in offer_file(offer, tools, module):
            complain(f"left out: {line}\n")
    elif module is not None:
        offer_tools(offer, module)
    work = job_tools(module)
    if db is None:
        if work:
            raise ServingError("bad_handlers", f"{work[0].name} becomes a job: name the store with --db")
        return Door(offer, None)
    jobs = Jobs(db, owner, work, new_key=new_key)
    jobs.offer_to(offer)
    if work:
        jobs.start_worker()
    return Door(offer, jobs)


def run(options: argparse.Namespace, pipes: Pipes, new_key: Callable[[], str]) -> None:
    """Serve one client until its input ends. Raises as `open_door` does."""
    if options.accept:
        if options.servers is None:
            raise ServingError("bad_servers", "--accept needs the list of servers: --servers FILE")
        pins = Pins(_pins_of(options.servers))
        for name in options.accept:
            sys.stderr.write("".join(f"accepted: {each}\n" for each in pins.accept(name)))
        return
    asyncio.run(_serve(options, pipes, new_key))


def _pins_of(servers: Path) -> Path:
    return servers.with_name(servers.name + ".pins")


async def _serve(options: argparse.Namespace, pipes: Pipes, new_key: Callable[[], str]) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    door = open_door(
        tools=options.tools,
        handlers=options.handlers,
        db=options.db,
        owner=options.owner,
        grants=options.grant,
        new_key=new_key,
        chapter=options.servers is None,
    )
    upstreams = None

    def deliver(function: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed: it is over already
            pass

    try:
        if options.servers is not None:
            servers, left_out = read_servers(options.servers)
            sys.stderr.write("".join(f"left out: {line}\n" for line in left_out))
            pins = Pins(_pins_of(options.servers))
            upstreams = Upstreams(servers, pins, door.offer, complain=sys.stderr.write)
            await upstreams.start()
        session = Session(door.offer, door.jobs, pipes.greeter, pipes.send)
        pipes.open(deliver, session.take, over.set)
        signal.signal(signal.SIGTERM, lambda *_: pipes.end())
        await over.wait()
        await session.drain(DRAIN_SECONDS)
    finally:
        if upstreams is not None:
            await upstreams.close()
        door.close()
