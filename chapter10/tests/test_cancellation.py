"""What `companions.interruption.cancellation` promises within a process, and its token for a trace."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chapter10.companions.basics.tasks import abandoned
from chapter10.companions.interruption.budget import Budget
from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.cancellation import (
    CHECK_EVERY,
    CHECK_RANGE,
    CHUNK_BYTES,
    GRACE_SECONDS,
    LONGEST_BLOCK_MS,
    MAX_REASON,
    POLL_SECONDS,
    TOPIC,
    CancellationError,
    CancelToken,
    CleanUpTimedOut,
    DistributedCancelToken,
    Interruption,
    ToolCancelled,
    checked,
    checked_async,
    clean_up,
    fetch_large_blob,
    in_thread,
)
from chapter10.database import StoreError
from chapter10.tests.support import FolderTestCase, ManualClock, defaults
from chapter10.tests.virtual_time import VirtualLoop, pause, run_virtual, virtual


async def until_done(task: asyncio.Future[Any]) -> None:
    """Wait for a task without looking at how it ended."""
    await asyncio.wait({task})


class Tokens(unittest.TestCase):
    """A request that goes down the tree, once, with its first reason."""

    def test_a_cancel_reaches_everything_below_and_nothing_above(self) -> None:
        """Parents and children are made at run time, to any depth. Claims: I4-003, I4-021."""
        top = CancelToken()
        middle, sister = top.child(), top.child()
        deep = [middle.child()]
        for _ in range(2000):
            deep.append(deep[-1].child())
        cause = TimeoutError("parent")
        self.assertTrue(middle.cancel("parent_timed_out", cause))
        self.assertTrue(all(token.is_cancelled() for token in [middle, *deep]))
        self.assertEqual((deep[-1].reason, deep[-1].cause), ("parent_timed_out", cause))
        self.assertFalse(top.is_cancelled() or sister.is_cancelled())

    def test_the_first_reason_stays(self) -> None:
        """A second cancel changes nothing, and a child keeps its own earlier reason."""
        top = CancelToken()
        child = top.child()
        self.assertTrue(child.cancel("user"))
        self.assertTrue(top.cancel("shutdown"))
        self.assertFalse(top.cancel("again"))
        self.assertEqual((top.reason, child.reason), ("shutdown", "user"))

    def test_a_child_of_a_cancelled_token_is_born_cancelled(self) -> None:
        """What is made later starts as cancelled, and its work is not called."""
        top = CancelToken()
        top.cancel("user")
        child = top.child()
        self.assertEqual((child.is_cancelled(), child.reason), (True, "user"))
        calls: list[int] = []

        async def work() -> None:
            calls.append(1)

        with self.assertRaises(ToolCancelled):
            run_virtual(lambda loop: child.run(work))
        self.assertEqual(calls, [])

    def test_tokens_that_nobody_uses_are_forgotten(self) -> None:
        """A long-lived parent does not collect its finished children."""
        top = CancelToken()
        for _ in range(100):
            top.child()
        gc.collect()
        self.assertEqual(len(top._children), 0)

    def test_a_check_raises_an_error_of_its_own(self) -> None:
        """`ToolCancelled` with reason and cause; before the cancel nothing."""
        token = CancelToken()
        token.check()
        cause = TimeoutError()
        token.cancel("user", cause)
        with self.assertRaises(ToolCancelled) as caught:
            token.check()
        error = caught.exception
        self.assertEqual(
            (str(error), error.code, error.reason, error.__cause__), ("cancelled", "cancelled", "user", cause)
        )

    def test_a_reason_is_a_text_of_up_to_two_hundred_characters(self) -> None:
        """No text, an empty one and one that is too long are `bad_input`, and nothing is cancelled."""
        for wrong in (None, 7, "", "x" * 201):
            token = CancelToken()
            with self.assertRaises(CancellationError):
                token.cancel(wrong)  # type: ignore[arg-type]
            self.assertFalse(token.is_cancelled())
        for reason in ("x", "x" * 200):
            token = CancelToken()
            self.assertTrue(token.cancel(reason))
            self.assertEqual(token.reason, reason)

    def test_the_limits_and_defaults_are_the_published_ones(self) -> None:
        """A second of grace and of polling, fifty items, steps of 8 KiB, a tenth of a second that may block."""
        self.assertEqual(
            (GRACE_SECONDS, POLL_SECONDS, CHECK_EVERY, CHECK_RANGE, CHUNK_BYTES, LONGEST_BLOCK_MS, MAX_REASON),
            (1.0, 1.0, 50, (10, 100), 8192, 100, 200),
        )
        self.assertEqual((TOPIC, defaults(CancelToken.cancel)["reason"]), ("tool.cancel", "cancelled"))
        self.assertEqual(defaults(DistributedCancelToken.cancel), {"reason": "parent_cancelled"})
        self.assertEqual(
            [defaults(each) for each in (CancelToken.run, in_thread, clean_up)],
            [{"grace_s": 1.0}, {"grace_s": 1.0}, {"grace_s": 0.1}],
        )
        self.assertEqual([defaults(each) for each in (checked, checked_async)], [{"every": 50}] * 2)

    def test_a_check_point_looks_before_and_after_its_turn(self) -> None:
        """What was cancelled before gives nobody a turn; what is cancelled in the turn does not go on."""
        token = CancelToken()
        step = token.checkpoint()
        step.send(None)  # others run
        token.cancel("user")
        with self.assertRaises(ToolCancelled):
            step.send(None)
        with self.assertRaises(ToolCancelled):
            token.checkpoint().send(None)

    @virtual
    async def test_nodes_stop_at_their_next_check_point(self, loop: VirtualLoop) -> None:
        """Nodes that share a token go on until they look, and no further. Claims: I4-021, I4-022."""
        token = CancelToken()
        seen: list[str] = []

        async def node(name: str, steps: int) -> None:
            for step in range(steps):
                await token.checkpoint()
                seen.append(f"{name}{step}")
                if seen == ["a0", "b0", "a1"]:
                    token.cancel("parent_timed_out")
                    seen.append("cancelled")

        results = await asyncio.gather(node("a", 9), node("b", 9), return_exceptions=True)
        self.assertEqual([type(result) for result in results], [ToolCancelled, ToolCancelled])
        self.assertEqual(seen, ["a0", "b0", "a1", "cancelled"])


class Holders(unittest.TestCase):
    """Work that a token stops."""

    @virtual
    async def test_work_is_stopped_and_cleans_up(self, loop: VirtualLoop) -> None:
        """At the next await the work gets its cancel, closes its file, and then the caller is told.

        Claims: I4-008, I4-025.
        """
        seen: list[str] = []

        async def work() -> None:
            try:
                await pause(600)
            finally:
                await pause(0.5)
                seen.append("closed")

        token = CancelToken()
        loop.call_later(3, token.cancel, "user")
        with self.assertRaises(ToolCancelled) as caught:
            await token.run(work)
        self.assertEqual((caught.exception.reason, loop.time()), ("user", 1003.5))
        self.assertEqual(seen, ["closed"])

    @virtual
    async def test_pushing_a_cancel_is_bounded_work(self, loop: VirtualLoop) -> None:
        """One child refuses, one is finished, one obeys: one cancel each, and after the grace it is over."""
        pushes: list[str] = []

        async def refuses() -> None:
            loop = asyncio.get_running_loop()
            while loop.time() < 1060:
                try:
                    await pause(60)
                except asyncio.CancelledError:
                    pushes.append("refused")

        token = CancelToken()
        tasks = [
            loop.create_task(token.run(refuses)),
            loop.create_task(token.run(lambda: pause(0))),
            loop.create_task(token.run(lambda: pause(600))),
        ]
        await pause(5)
        token.cancel("user")
        await asyncio.wait(tasks)
        self.assertEqual([type(task.exception()) for task in tasks], [ToolCancelled, type(None), ToolCancelled])
        self.assertEqual((loop.time(), len(abandoned())), (1006, 1))
        await until_done(next(iter(abandoned())))
        self.assertEqual(pushes, ["refused"])

    @virtual
    async def test_values_and_errors_come_through(self, loop: VirtualLoop) -> None:
        """Without a cancel `run` is a plain call; a cancel inside the work is an error and not ours.

        Work that finishes after the request has had its effect: what it returned all the same is known.
        """
        token = CancelToken()

        async def fails() -> None:
            raise KeyError

        async def torn() -> None:
            raise asyncio.CancelledError

        async def late() -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await pause(600)
            return "charged"

        self.assertEqual(await token.run(lambda: asyncio.sleep(0, "value")), "value")
        with self.assertRaises(KeyError):
            await token.run(fails)
        with self.assertRaises(ToolCancelled) as caught:
            await token.run(torn)
        self.assertEqual(caught.exception.reason, "cancelled_inside")
        self.assertEqual(len(token._waiting), 0)
        loop.call_later(3, token.cancel)
        with self.assertRaises(ToolCancelled) as caught:
            await token.run(late)
        self.assertEqual(caught.exception.late_value, ("charged",))

    @virtual
    async def test_a_cancel_of_the_caller_goes_on(self, loop: VirtualLoop) -> None:
        """The work is stopped, the token is as it was, and the caller ends as cancelled."""
        token = CancelToken()
        task = loop.create_task(token.run(lambda: pause(600)))
        await pause(1)
        task.cancel()
        await until_done(task)
        self.assertTrue(task.cancelled())
        self.assertFalse(token.is_cancelled())

    @virtual
    async def test_a_cancel_from_a_thread_wakes_a_sleeping_loop(self, loop: VirtualLoop) -> None:
        """Nothing else would wake it: there is no timer, and the waiter is told the reason."""
        token = CancelToken()
        thread = threading.Thread(target=token.cancel, args=("consumer",))
        loop.call_soon(thread.start)
        self.assertEqual(await token.child().wait(), "consumer")
        thread.join()

    @virtual
    async def test_waiters_wake_from_the_top_down(self, loop: VirtualLoop) -> None:
        """First who waits for the token itself, then its children in the order in which they were made, then theirs."""
        top = CancelToken()
        one, other = top.child(), top.child()
        names = {"deep": one.child(), "other": other, "one": one, "top": top}
        woken: list[str] = []

        async def wait(name: str) -> None:
            await names[name].wait()
            woken.append(name)

        tasks = [loop.create_task(wait(name)) for name in names]
        await asyncio.sleep(0)
        top.cancel("user")
        await asyncio.gather(*tasks)
        self.assertEqual(woken, ["top", "one", "other", "deep"])

    @virtual
    async def test_a_waiter_that_gave_up_in_the_turn_of_the_cancel_does_no_harm(self, loop: VirtualLoop) -> None:
        """Its future is over when the loop gets to waking it; nothing is reported, and nobody stays on the list."""
        token = CancelToken()
        first, second = (loop.create_task(token.wait()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await until_done(first)
        self.assertEqual(len(token._waiting), 1)
        token.cancel("user")
        second.cancel()
        await until_done(second)
        self.assertEqual((first.cancelled(), second.cancelled(), len(token._waiting)), (True, True, 0))

    @virtual
    async def test_the_error_of_stopped_work_says_why(self, loop: VirtualLoop) -> None:
        """What its clean-up raised, else what led to the cancel, else nothing; the reason is the token's."""
        cause, broken = TimeoutError("parent"), ValueError("half a file")

        async def work(token: CancelToken, error: BaseException | None, by_itself: bool) -> None:
            try:
                if by_itself:
                    token.cancel("user")
                await pause(0 if by_itself else 9)
            finally:
                if error is not None:
                    raise error

        for given, error, by_itself, expected in (
            (None, None, False, None),
            (cause, None, False, cause),
            (cause, broken, False, broken),
            (None, asyncio.CancelledError(), True, None),
        ):
            token = CancelToken()
            if not by_itself:
                loop.call_later(1, token.cancel, "user", given)
            with self.assertRaises(ToolCancelled) as caught:
                await token.run(functools.partial(work, token, error, by_itself))
            self.assertEqual((caught.exception.reason, caught.exception.late_value), ("user", ()))
            self.assertIs(caught.exception.__cause__, expected)

    def test_a_waiter_in_a_closed_loop_does_no_harm(self) -> None:
        """Its future is left behind by a loop that is gone; the cancel still reaches the others."""
        token = CancelToken()
        loop = asyncio.new_event_loop()

        async def leave() -> None:
            token._future()

        loop.run_until_complete(leave())
        loop.close()
        self.assertTrue(token.cancel("user"))

    @virtual
    async def test_a_batch_ends_when_a_node_notices(self, loop: VirtualLoop) -> None:
        """The check point's error is an ordinary failure of a task group, whose other children stop.

        Claims: I4-001, I4-021.
        """
        token = CancelToken()
        seen: list[str] = []

        async def node() -> None:
            while True:
                await token.checkpoint()
                await pause(1)

        async def child() -> None:
            try:
                await pause(600)
            finally:
                seen.append("child stopped")

        loop.call_later(2.5, token.cancel, "parent_timed_out")
        with self.assertRaises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(node())
                group.create_task(child())
        self.assertEqual([type(error) for error in caught.exception.exceptions], [ToolCancelled])
        self.assertEqual(loop.time(), 1003)
        self.assertEqual(seen, ["child stopped"])


class LongLoops(unittest.TestCase):
    """Code that the event loop cannot interrupt."""

    def test_a_cancel_is_seen_after_at_most_fifty_items(self) -> None:
        """The default lies within 10 and 100, and no more items than that follow the cancel. Claims: I4-032."""
        self.assertEqual((CHECK_EVERY, CHECK_RANGE), (50, (10, 100)))
        for every in (10, CHECK_EVERY, 100):
            for moment in (0, 1, every - 1, every, 237):
                token = CancelToken()
                done = 0
                with self.assertRaises(ToolCancelled):
                    for _ in checked(range(1000), token, every=every):
                        if done == moment:
                            token.cancel()
                        done += 1
                self.assertLessEqual(done - moment, every)

    def test_a_loop_looks_before_the_first_item_and_then_every_so_many(self) -> None:
        """Of 25 items with a look at ten: before the first, the eleventh and the twenty-first; of none, never."""
        done: list[int] = []

        class Watched(CancelToken):
            def check(self) -> None:
                looks.append(len(done))
                super().check()

            async def checkpoint(self) -> None:
                self.check()

        async def in_a_coroutine(count: int) -> None:
            async for item in checked_async(range(count), Watched(), every=10):
                done.append(item)

        for count, expected in ((25, [0, 10, 20]), (10, [0]), (0, [])):
            looks: list[int] = []
            done.clear()
            for item in checked(range(count), Watched(), every=10):
                done.append(item)
            self.assertEqual(looks, expected)
            looks.clear()
            done.clear()
            run_virtual(lambda loop, count=count: in_a_coroutine(count))  # type: ignore[misc]
            self.assertEqual(looks, expected)

    @virtual
    async def test_others_run_while_an_async_loop_works(self, loop: VirtualLoop) -> None:
        """Every fifty items the event loop gets a turn, in which the cancel arrives. Claims: I4-032."""
        token = CancelToken()
        done: list[int] = []

        async def work() -> None:
            async for item in checked_async(range(10_000), token):
                done.append(item)

        async def cancel() -> None:
            token.cancel("user")

        results = await asyncio.gather(work(), cancel(), return_exceptions=True)
        self.assertIsInstance(results[0], ToolCancelled)
        self.assertLessEqual(len(done), 50)

    @virtual
    async def test_a_loop_without_check_points_runs_to_its_end(self, loop: VirtualLoop) -> None:
        """A cancel reaches a task only at an await: all thousand items are done by then. Claims: I4-033."""
        token = CancelToken()
        done: list[int] = []

        async def work() -> None:
            for item in range(1000):
                if item == 10:
                    token.cancel("user")
                done.append(item)
            await pause(600)

        with self.assertRaises(ToolCancelled):
            await token.run(work)
        self.assertEqual(len(done), 1000)

    @virtual
    async def test_the_event_loop_stays_free_while_a_thread_works(self, loop: VirtualLoop) -> None:
        """The heart beats during a computation that ends only when the heart has beaten. Claims: I4-034."""
        self.assertEqual(LONGEST_BLOCK_MS, 100)
        beats: list[int] = []
        enough = threading.Event()

        def compute(token: CancelToken) -> str:
            enough.wait(60)
            return "done"

        async def heart() -> None:
            for _ in range(100):
                beats.append(1)
                await asyncio.sleep(0)
            enough.set()

        value, _ = await asyncio.gather(in_thread(compute, CancelToken()), heart())
        self.assertEqual((value, len(beats)), ("done", 100))

    @virtual
    async def test_a_thread_stops_at_its_next_look(self, loop: VirtualLoop) -> None:
        """A cancel of the token sets the child's flag, and the thread raises at its check point."""
        started = threading.Event()
        token = CancelToken()

        def compute(child: CancelToken) -> None:
            started.set()
            while True:
                child.check()

        task = loop.create_task(in_thread(compute, token))
        await asyncio.sleep(0)
        started.wait(60)
        token.cancel("user")
        with self.assertRaises(ToolCancelled):
            await task

    def test_a_thread_that_does_not_look_is_left_behind(self) -> None:
        """A cancel of the token waits for the grace and no longer; a caller's own cancel in the grace comes out."""
        release = threading.Event()
        self.addCleanup(release.set)
        for cancelled in (False, True):
            started = threading.Event()
            token = CancelToken()

            def compute(child: CancelToken, started: threading.Event = started) -> None:
                started.set()
                release.wait(60)

            async def main(
                loop: VirtualLoop, cancelled: bool = cancelled, started: Any = started, token: Any = token
            ) -> None:
                task = loop.create_task(in_thread(compute, token, grace_s=2.0))
                await asyncio.sleep(0)
                started.wait(60)
                token.cancel("user")
                for _ in range(5):
                    await asyncio.sleep(0)
                if cancelled:
                    task.cancel()
                began = loop.time()
                await until_done(task)
                self.assertEqual((task.cancelled(), loop.time() - began), (cancelled, 2.0))
                if not cancelled:
                    error = task.exception()
                    assert isinstance(error, ToolCancelled)
                    self.assertEqual(error.reason, "user")
                release.set()

            run_virtual(main)
            release.clear()

    def test_a_thread_is_not_begun_for_what_is_cancelled(self) -> None:
        """The function is not called, not even to look for itself."""
        called: list[object] = []
        token = CancelToken()
        token.cancel("user")
        with self.assertRaises(ToolCancelled):
            run_virtual(lambda loop: in_thread(called.append, token))
        self.assertEqual(called, [])

    @virtual
    async def test_what_still_waits_for_a_thread_is_never_begun(self, loop: VirtualLoop) -> None:
        """It is cancelled at once, by its token or its caller, without a grace, and a thread that is free leaves it."""
        threads = ThreadPoolExecutor(max_workers=1)
        loop.set_default_executor(threads)
        release = threading.Event()
        occupied = loop.run_in_executor(None, release.wait, 60)
        ran: list[object] = []
        for by_caller in (False, True):
            token = CancelToken()
            task = loop.create_task(in_thread(ran.append, token, grace_s=2.0))
            await asyncio.sleep(0)
            began = loop.time()
            if by_caller:
                task.cancel()
            else:
                token.cancel("user")
            await until_done(task)
            self.assertEqual((by_caller, 0.0), (task.cancelled(), loop.time() - began))
            self.assertTrue(by_caller or isinstance(task.exception(), ToolCancelled))
        release.set()
        await occupied
        await loop.run_in_executor(None, int)  # it stands behind them in the queue
        self.assertEqual([], ran)

    @virtual
    async def test_the_error_of_a_thread_that_was_left_behind_is_not_reported_as_lost(self, loop: VirtualLoop) -> None:
        """It ends badly after its caller has gone; the loop is told of no error."""
        release, ended = threading.Event(), threading.Event()

        def compute(child: CancelToken) -> None:
            release.wait(60)
            ended.set()
            raise ValueError

        token = CancelToken()
        task = loop.create_task(in_thread(compute, token, grace_s=2.0))
        await asyncio.sleep(0)
        token.cancel("user")
        with self.assertRaises(ToolCancelled):
            await task
        del task
        release.set()
        ended.wait(60)
        await loop.shutdown_default_executor()
        await asyncio.sleep(0)
        gc.collect()

    def test_a_thread_is_told_whose_cancel_it_was(self) -> None:
        """The caller's own cancel reaches the child alone, by a reason of its own, and is raised all the same.

        The thread ends in the grace and gives a value, which nobody wants any more. Real time: nothing jumps past it.
        """
        started = threading.Event()
        children: list[CancelToken] = []

        def compute(child: CancelToken) -> str:
            children.append(child)
            started.set()
            while not child.is_cancelled():
                pass
            return "a value"

        async def main() -> None:
            token = CancelToken()
            task = asyncio.create_task(in_thread(compute, token, grace_s=60.0))
            await asyncio.sleep(0)
            started.wait(60)
            task.cancel()
            await until_done(task)
            self.assertEqual((task.cancelled(), token.is_cancelled()), (True, False))
            self.assertEqual([(child.reason, len(child._waiting)) for child in children], [("caller_cancelled", 0)])

        asyncio.run(main())

    def test_a_file_that_is_fetched_in_steps_stops_between_them(self) -> None:
        """20,000 bytes are three steps of 8192; after a cancel in the second there is no third.

        Claims: I4-026, I4-027.
        """
        blob = bytes(range(256)) * 79
        blob = blob[:20_000]
        ranges: list[tuple[int, int]] = []
        token = CancelToken()

        async def get(url: str, *, range: tuple[int, int]) -> bytes:
            ranges.append(range)
            if stop_at == len(ranges):
                token.cancel("user")
            return blob[range[0] : range[1]]

        stop_at = 0
        value = run_virtual(lambda loop: fetch_large_blob("x", token, http_get=get, total=20_000))
        self.assertEqual(value, blob)
        self.assertEqual(ranges, [(0, 8192), (8192, 16384), (16384, 24576)])
        self.assertEqual(CHUNK_BYTES, 8192)
        ranges.clear()
        stop_at = 2
        with self.assertRaises(ToolCancelled):
            run_virtual(lambda loop: fetch_large_blob("x", token, http_get=get, total=20_000))
        self.assertEqual(len(ranges), 2)
        token, stop_at = CancelToken(), 5
        with self.assertRaises(ToolCancelled):  # in the last step of all: a file that nobody wants is not handed out
            run_virtual(lambda loop: fetch_large_blob("x", token, http_get=get, total=20_000))
        self.assertEqual(run_virtual(lambda loop: fetch_large_blob("x", CancelToken(), http_get=get, total=0)), b"")
        self.assertEqual(len(ranges), 5)

    def test_other_steps_are_refused(self) -> None:
        """Fewer than 10, more than 100 and what is no number is `bad_input`, at once."""
        wrong: list[Any] = [9, 101, True, 50.0, None]
        for every in wrong:
            for make in (checked, checked_async):
                with self.assertRaises(CancellationError):
                    make([], CancelToken(), every=every)


class CleanUp(unittest.TestCase):
    """Time that belongs to the clean-up."""

    @virtual
    async def test_a_second_cancel_does_not_end_the_clean_up(self, loop: VirtualLoop) -> None:
        """The refund is sent although the caller is cancelled again, from the lane that was kept for it.

        Claims: I4-024, I4-025.
        """
        seen: list[str] = []

        async def refund() -> None:
            await pause(0.2)
            seen.append("refunded")

        async def work(budget: Budget) -> None:
            try:
                await pause(600)
            finally:
                await clean_up(refund, budget.compensation().seconds())

        task = loop.create_task(work(Budget.start(4000, clock=loop.time)))
        await pause(3.5)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        await until_done(task)
        self.assertTrue(task.cancelled())
        self.assertAlmostEqual(loop.time(), 1003.7)
        self.assertEqual(seen, ["refunded"])

    @virtual
    async def test_a_clean_up_has_an_end_too(self, loop: VirtualLoop) -> None:
        """Too long, and no time at all, are `clean_up_timed_out`; errors and values come through. Claims: C10-294."""

        async def fails() -> None:
            raise KeyError

        async def torn() -> None:
            raise asyncio.CancelledError

        async def late_value() -> int:
            with contextlib.suppress(asyncio.CancelledError):
                await pause(9)
            return 7

        async def late_error() -> None:
            await late_value()
            raise ValueError

        async def stubborn() -> None:
            await late_value()
            await pause(9)

        with self.assertRaisesRegex(CleanUpTimedOut, "^clean_up_timed_out$"):
            await clean_up(lambda: pause(9), 2)
        self.assertEqual(loop.time(), 1002)
        for late in (late_value, late_error, stubborn):
            with self.assertRaises(CleanUpTimedOut) as caught:
                await clean_up(late, 1, grace_s=0.5)
            self.assertIs(type(caught.exception.__cause__), ValueError if late is late_error else type(None))
        await until_done(next(iter(abandoned())))
        with self.assertRaises(CleanUpTimedOut):
            await clean_up(lambda: pause(0), 0)
        with self.assertRaises(CleanUpTimedOut):
            await clean_up(torn, 1)
        with self.assertRaises(KeyError):
            await clean_up(fails, 1)
        self.assertEqual(await clean_up(lambda: asyncio.sleep(0, 7), 1), 7)


class Modes(unittest.TestCase):
    """Each tool declares how it is stopped."""

    def test_each_mode_has_its_condition(self) -> None:
        """Who says nothing is asked to stop; preemptive and fire-and-forget want a reason. Claims: I4-031."""
        self.assertEqual(Interruption("search").mode, "cooperative")
        Interruption("driver", "preemptive", ignores_cancel=True)
        Interruption("metrics", "fire_and_forget", discardable=True)
        Interruption("payment", at_least_once=True)
        Interruption("driver", "preemptive", ignores_cancel=True, at_least_once=True)
        refused: list[tuple[dict[str, Any], str]] = [
            ({"mode": "preemptive"}, "mode_refused"),
            ({"mode": "cooperative", "ignores_cancel": True}, "mode_refused"),
            ({"mode": "fire_and_forget"}, "mode_refused"),
            ({"mode": "fire_and_forget", "discardable": True, "at_least_once": True}, "mode_refused"),
            ({"mode": "maybe"}, "bad_input"),
            ({"discardable": 1}, "bad_input"),
            ({"ignores_cancel": None}, "bad_input"),
        ]
        for options, code in refused:
            with self.subTest(options=options), self.assertRaises(CancellationError) as caught:
                Interruption("tool", **options)
            self.assertEqual(str(caught.exception), code)


class Broker:
    """A message client that keeps, loses or hangs on what it is given."""

    def __init__(self, error: BaseException | None = None, hangs: bool = False) -> None:
        self.sent: list[tuple[str, str]] = []
        self.error = error
        self.hangs = hangs

    async def publish(self, topic: str, body: str) -> None:
        if self.hangs:
            await pause(600)
        if self.error is not None:
            raise self.error
        self.sent.append((topic, body))


class CountingStore(CancelStore):
    """Counts the looks."""

    looks = 0

    def cancel_reason(self, trace_id: str, span_id: str | None = None, *, epoch: int | None = None) -> str | None:
        self.looks += 1
        return super().cancel_reason(trace_id, span_id, epoch=epoch)


class TheDistributedToken(FolderTestCase):
    """A token for everybody who has the database and the trace id."""

    def setUp(self) -> None:
        super().setUp()
        self.wall = ManualClock(1_700_000_000.0)
        self.clock = ManualClock(50.0)

    def store(self) -> CountingStore:
        store = CountingStore.open(self.folder / "cancels.db", clock=self.wall)
        self.addCleanup(store.close)
        assert isinstance(store, CountingStore)
        return store

    def token(self, broker: Broker | None = None, **options: Any) -> tuple[DistributedCancelToken, CountingStore]:
        store = self.store()
        return DistributedCancelToken("trace-1", broker, store, **{"clock": self.clock, **options}), store

    def test_its_interface_and_its_message_are_those_of_the_document(self) -> None:
        """Trace, message client, database; `await cancel()` and `is_cancelled()`.

        The message has trace, parent span, time, reason, and which cancel of which run it was.

        Claims: I4-088, I4-090, I4-091.
        """
        broker = Broker()
        token = DistributedCancelToken("trace-1", broker, self.store(), span_id="span-3")
        self.assertFalse(token.is_cancelled())
        run_virtual(lambda loop: token.cancel())
        self.assertTrue(token.is_cancelled())
        with self.assertRaises(ToolCancelled):
            token.check()
        ((topic, body),) = broker.sent
        self.assertEqual(topic, "tool.cancel")
        self.assertEqual(
            json.loads(body),
            {"trace_id": "trace-1", "parent_span_id": "span-3", "ts": 1_700_000_000, "reason": "parent_cancelled"}
            | {"cancel_id": 1, "epoch": 1},
        )

    @virtual
    async def test_a_cancel_of_who_cancels_is_raised_after_the_row(self, loop: VirtualLoop) -> None:
        """The message hangs and its sender is cancelled: the row stands, and the cancel is not swallowed."""
        token, store = self.token(Broker(hangs=True))
        task = loop.create_task(token.cancel())
        await pause(0.5)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertTrue(token.is_cancelled())
        self.assertEqual(store.cancel_reason("trace-1"), "parent_cancelled")

    def test_the_row_is_there_when_the_message_is_sent_and_when_it_is_lost(self) -> None:
        """A broker that fails or hangs is recorded, and another process still sees the cancel.

        Claims: I4-092, I4-099.
        """
        for broker in (Broker(ConnectionResetError()), Broker(hangs=True)):
            with self.subTest(hangs=broker.hangs):
                token, store = self.token(broker)
                store.register("trace-1", "span-1", tool="export")
                store.claim("trace-1", "span-1")
                run_virtual(lambda loop, token=token: token.cancel())  # type: ignore[misc]
                self.assertIsInstance(token.publish_error, TimeoutError if broker.hangs else ConnectionResetError)
                row = self.store().get("trace-1", "span-1")
                self.assertEqual((row.cancelled, row.cancelled_at), (True, 1_700_000_000))
                other, _ = self.token()
                self.assertTrue(other.is_cancelled())

    def test_the_local_flag_is_set_even_if_nothing_else_works(self) -> None:
        """A dead database and a dead broker do not keep this process running. Claims: I4-093."""
        token, store = self.token(Broker(ConnectionResetError()))
        store.close()
        with self.assertRaises(StoreError):
            run_virtual(lambda loop: token.cancel())
        self.assertTrue(token.is_cancelled())

    def test_another_process_is_noticed_within_the_poll_time_and_no_look_is_made_before(self) -> None:
        """The row is looked at once a second at most, however often somebody asks. Claims: I4-087."""
        token, store = self.token()
        self.assertEqual(POLL_SECONDS, 1.0)
        for _ in range(1000):
            self.assertFalse(token.is_cancelled())
        self.assertEqual(store.looks, 1)
        self.store().cancel("trace-1", reason="user")
        self.clock.advance(0.999)
        self.assertFalse(token.is_cancelled())
        self.clock.advance(0.001)
        self.assertTrue(token.is_cancelled())
        self.assertEqual((token.token.reason, store.looks), ("user", 2))

    def test_a_message_makes_it_look_and_cancels_nothing_by_itself(self) -> None:
        """A false message finds no row; other traces, other runs and rubbish are not even looked after."""
        token, store = self.token(epoch=1)
        token.is_cancelled()
        other_trace, other_run = '{"trace_id": "other", "epoch": 1}', '{"trace_id": "trace-1", "epoch": 7}'
        for body in ("", "{", "[]", other_trace, other_run, b"\xff", "1e999"):
            self.assertFalse(token.receive(body))
        self.assertFalse(token.is_cancelled())
        self.assertEqual(store.looks, 1)
        self.assertTrue(token.receive('{"trace_id": "trace-1", "epoch": 1}'))
        for _ in range(3):
            self.assertFalse(token.is_cancelled())
        self.assertEqual(store.looks, 2, "one message is one look")
        self.store().cancel("trace-1")
        self.assertTrue(token.receive(b'{"trace_id": "trace-1", "epoch": 1}'))
        self.assertTrue(token.is_cancelled())

    def test_a_failing_look_is_recorded_and_the_flag_keeps_its_value(self) -> None:
        """A broken database does not stop work that nobody cancelled; the commit looks again."""
        token, store = self.token()
        store.close()
        self.assertFalse(token.is_cancelled())
        assert token.poll_error is not None
        self.assertEqual(token.poll_error.code, "store_unavailable")

    @virtual
    async def test_a_watcher_stops_the_holders(self, loop: VirtualLoop) -> None:
        """A cancel by another process reaches work that never looks, within one poll. Claims: I4-087, I4-099."""
        token, store = self.token(clock=loop.time)
        watcher = loop.create_task(token.watch())
        loop.call_later(3.2, self.store().cancel, "trace-1")
        with self.assertRaises(ToolCancelled):
            await token.token.run(lambda: pause(600))
        self.assertEqual((await watcher, loop.time(), store.looks), ("parent_cancelled", 1004, 5))

    @virtual
    async def test_a_message_from_a_thread_wakes_the_watcher(self, loop: VirtualLoop) -> None:
        """The consumer's thread says "look", and the loop does so at once."""
        token, store = self.token(clock=loop.time, poll_s=3600)
        watcher = loop.create_task(token.watch())
        await pause(1)
        self.store().cancel("trace-1", reason="user")
        thread = threading.Thread(target=token.receive, args=('{"trace_id": "trace-1", "epoch": 1}',))
        thread.start()
        thread.join()
        self.assertEqual((await watcher, loop.time()), ("user", 1001))
        self.assertEqual(store.looks, 2)

    def test_a_poll_time_of_nothing_is_refused(self) -> None:
        """Zero, negative and boolean times are `bad_input`."""
        for poll_s in (0, -1, True, "1", 3600.001, 1e9):
            with self.assertRaises(CancellationError):
                self.token(poll_s=poll_s)
        self.assertFalse(self.token(poll_s=3600)[0].is_cancelled())

    def test_a_watcher_leaves_nothing_on_the_lists(self) -> None:
        """Looked a few times and ended by a row, by the token itself, or by a cancel: no waiter stays behind."""

        async def main(loop: VirtualLoop, how: str) -> None:
            token, store = self.token(clock=loop.time)
            watcher = loop.create_task(token.watch())
            ends: dict[str, Callable[[], object]] = {
                "watcher": watcher.cancel,
                "token": lambda: token.token.cancel("user"),
                "row": lambda: store.cancel("trace-1", reason="user"),
            }
            told = token._told
            await pause(2.5)
            self.assertEqual((len(token.token._waiting), len(told._waiting), len(token._told._waiting)), (1, 0, 1))
            ends[how]()
            await until_done(watcher)
            self.assertEqual(watcher.cancelled() or watcher.result(), True if how == "watcher" else "user")
            self.assertEqual((len(token.token._waiting), len(token._told._waiting)), (0, 0))

        for how in ("watcher", "token", "row"):
            run_virtual(lambda loop, how=how: main(loop, how))  # type: ignore[misc]

    def test_an_old_message_does_not_stop_a_new_run(self) -> None:
        """A message about run 1 arrives in run 2 of the same trace."""
        store = self.store()
        old = store.cancel("trace-1").message()
        store.new_run("trace-1")
        token, _ = self.token()
        token.receive(json.dumps(old))
        self.assertFalse(token.is_cancelled())


class OtherTypes(unittest.TestCase):
    """What is no mode, no time and no size is refused by its name and nothing is begun."""

    def test_times_that_are_none_are_refused(self) -> None:
        """Another type, not above zero, not finite, more than a timer holds."""
        called: list[object] = []

        async def work() -> None:
            called.append(1)

        def compute(_: CancelToken) -> None:
            called.append(1)

        for wrong in (0, -1, True, "1", None, float("nan"), float("inf"), 10**400):
            made: list[Callable[[Any], Any]] = [
                lambda grace: CancelToken().run(work, grace_s=grace),
                lambda grace: clean_up(work, 1.0, grace_s=grace),
                lambda grace: in_thread(compute, CancelToken(), grace_s=grace),
            ]
            for make in made:
                with self.subTest(wrong=str(wrong)[:9]), self.assertRaisesRegex(CancellationError, "^bad_input$"):
                    asyncio.run(make(wrong))
        for wrong in (True, "1", None, 10**400, float("inf"), 2.0**31 + 1):
            with self.assertRaises(CancellationError):
                asyncio.run(clean_up(work, wrong))  # type: ignore[arg-type]
        self.assertEqual(called, [])

    def test_the_longest_times_are_taken(self) -> None:
        """What a timer holds is 2**31 seconds; one more is refused."""

        async def work() -> int:
            return 7

        longest = 2.0**31
        self.assertEqual(run_virtual(lambda loop: CancelToken().run(work, grace_s=longest)), 7)
        self.assertEqual(run_virtual(lambda loop: clean_up(work, longest, grace_s=longest)), 7)
        self.assertEqual(run_virtual(lambda loop: CancelToken().run(work, grace_s=1)), 7)
        with self.assertRaises(CancellationError):
            run_virtual(lambda loop: CancelToken().run(work, grace_s=longest + 1))

    def test_sizes_and_modes_that_are_none_are_refused(self) -> None:
        """A blob of no whole number of bytes, a mode of another type."""

        async def get(*_: object, **__: object) -> bytes:
            raise AssertionError("nothing is fetched")

        for wrong in (-1, True, "1", None, 1.5):
            with self.assertRaises(CancellationError):
                asyncio.run(fetch_large_blob("u", CancelToken(), http_get=get, total=wrong))  # type: ignore[arg-type]

        class Word(str):
            pass

        modes: list[Any] = [None, ["cooperative"], Word("cooperative")]
        for mode in modes:
            with self.assertRaises(CancellationError):
                Interruption("tool", mode)


if __name__ == "__main__":
    unittest.main()
