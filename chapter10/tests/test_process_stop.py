"""What `companions.interruption.process_stop` promises, with real processes and one that only pretends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.process_stop import (
    GRACE_SECONDS,
    REAP_SECONDS,
    StopError,
    Stopped,
    sigterm_is_a_request,
    stop_process,
)
from chapter10.lab.processes.stops import EXPECTED, play
from chapter10.tests.overlapping import overlapping
from chapter10.tests.support import FolderTestCase, defaults, start_python

POSIX = sys.platform != "win32"

IGNORES = (
    "import signal, threading\n"
    "signal.signal(signal.SIGTERM, lambda number, frame: print('no', flush=True))\n"
    "print('ready', flush=True)\n"
    "while True:\n"
    "    threading.Event().wait(60)\n"
)

WORKER = """
import asyncio, sys
from chapter10.companions.interruption.cancel_store import CancelStore
from chapter10.companions.interruption.cancellation import CancelToken, DistributedCancelToken, ToolCancelled
from chapter10.companions.interruption.process_stop import sigterm_is_a_request

async def export(name, store, token):
    fence = store.claim("trace-1", name)
    try:
        await token.token.run(asyncio.Event().wait)
    except ToolCancelled as error:
        print(name, error.reason, store.confirm("trace-1", name, fence), flush=True)

async def main():
    with CancelStore.open(sys.argv[1]) as store:
        for name in ("a", "b", "downstream"):
            store.register("trace-1", name, tool="export")
        token = DistributedCancelToken("trace-1", None, store)
        asked = asyncio.Event()
        with sigterm_is_a_request(asked.set, loop=asyncio.get_running_loop()):
            calls = [asyncio.ensure_future(export(name, store, token)) for name in ("a", "b")]
            await asyncio.sleep(0)
            print("ready", flush=True)
            await asked.wait()
            await token.cancel("sigterm")
            await asyncio.gather(*calls)
        print("left in order", flush=True)

asyncio.run(main())
"""

STOPS_THE_LOOP = """
import asyncio, signal, sys
from chapter10.companions.interruption.cancel_store import CancelStore

async def main():
    with CancelStore.open(sys.argv[1]) as store:
        store.register("trace-1", "a", tool="export")
        fence = store.claim("trace-1", "a")
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, loop.stop)
        print("ready", flush=True)
        await asyncio.Event().wait()
        store.confirm("trace-1", "a", fence)

asyncio.run(main())
"""


class Scripted:
    """A process that ends at a given step, without an operating system."""

    def __init__(self, obeys: str) -> None:
        self.obeys = obeys
        self.steps: list[str] = []
        self.returncode: int | None = 0 if obeys == "already" else None

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self.steps.append(f"wait {timeout}")
        if self.returncode is None:
            raise subprocess.TimeoutExpired("scripted", timeout or 0)
        return self.returncode

    def take(self, step: str, code: int) -> None:
        self.steps.append(step)
        if self.obeys == step:
            self.returncode = code

    def ask(self) -> None:
        self.take("ask", 0)

    def terminate(self) -> None:
        self.take("terminate", -15)

    def kill(self) -> None:
        self.take("kill", -9)


class TheLadder(unittest.TestCase):
    """Three steps, each with its time."""

    def test_a_later_step_is_taken_only_when_the_one_before_was_not_enough(self) -> None:
        """Ask, SIGTERM, SIGKILL, and what each of them was worth. Claims: I4-009."""
        ask, term, kill = ["ask", "wait 1"], ["terminate", "wait 2"], ["kill", "wait 3"]
        for obeys, how, code, steps in (
            ("already", "already_ended", 0, []),
            ("ask", "asked", 0, ask),
            ("terminate", "terminated", -15, ask + term),
            ("kill", "killed", -9, ask + term + kill),
        ):
            process = Scripted(obeys)
            with self.subTest(obeys=obeys):
                stopped = stop_process(process, 2, ask=process.ask, ask_s=1, reap_s=3)
                self.assertEqual((stopped.how, stopped.returncode, process.steps), (how, code, steps))

    def test_no_time_and_an_hour_are_times(self) -> None:
        """Each step may have none, or 3600 seconds; the usual are ten."""
        for seconds in (0, 3600):
            process = Scripted("kill")
            stopped = stop_process(process, seconds, ask=process.ask, ask_s=seconds, reap_s=seconds)
            self.assertEqual(stopped, Stopped("killed", -9))
        with self.assertRaisesRegex(StopError, "bad_input"):
            stop_process(Scripted("kill"), 3600.001)
        self.assertEqual(defaults(stop_process), {"grace_s": 10.0, "ask": None, "ask_s": 10.0, "reap_s": 10.0})
        self.assertEqual((GRACE_SECONDS, REAP_SECONDS), (10.0, 10.0))

    def test_a_ladder_may_begin_later_or_end_badly(self) -> None:
        """No `ask` and no time for it; who cannot ask decides what is next; a process that nothing ends is an error."""
        process = Scripted("terminate")
        self.assertEqual(stop_process(process, 2), Stopped("terminated", -15))
        self.assertEqual(process.steps, ["terminate", "wait 2"])
        process = Scripted("terminate")
        with self.assertRaises(LookupError):
            stop_process(process, 2, ask=mock.Mock(side_effect=LookupError))
        self.assertEqual(process.steps, [])
        process = Scripted("nothing")
        with self.assertRaisesRegex(StopError, "still_running"):
            stop_process(process, 2, reap_s=1)
        self.assertEqual(process.steps, ["terminate", "wait 2", "kill", "wait 1"])

    def test_bad_times_are_refused_before_anything_is_done(self) -> None:
        """Negative, boolean, NaN and endless times are `bad_input`."""
        process = Scripted("terminate")
        wrong: list[Any] = [-1, True, float("nan"), float("inf"), "1", None]
        for seconds in wrong:
            for name in ("grace_s", "ask_s", "reap_s"):
                with self.assertRaisesRegex(StopError, "bad_input"):
                    stop_process(process, **{name: seconds})
        self.assertEqual(process.steps, [])


@unittest.skipUnless(POSIX, "SIGTERM can be ignored only where it is a signal")
class RealProcesses(FolderTestCase):
    """What the operating system does."""

    def start(self, program: str) -> subprocess.Popen[str]:
        child = start_python(["-c", program, str(self.folder / "cancels.db")])

        def close() -> None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.communicate()

        self.addCleanup(close)
        assert child.stdout is not None
        self.assertEqual(child.stdout.readline().strip(), "ready")
        return child

    def test_a_process_that_ignores_sigterm_is_killed(self) -> None:
        """It says no, and is gone and reaped all the same. Claims: I4-009."""
        child = self.start(IGNORES)
        asked: list[int] = []
        stopped = stop_process(child, 0.25, ask=lambda: asked.append(1), ask_s=0.05)
        self.assertEqual((stopped, asked), (Stopped("killed", -signal.SIGKILL), [1]))
        self.assertEqual(child.communicate()[0].strip(), "no")

    def test_sigterm_cancels_the_running_calls_and_the_states_are_stored(self) -> None:
        """Both calls stop and confirm, the queued one downstream is cancelled by the row, and the exit is in order.

        Claims: I4-086, I4-029.
        """
        child = self.start(WORKER)
        self.assertEqual(stop_process(child, 30), Stopped("terminated", 0))
        out, err = child.communicate()
        self.assertEqual(out.split("\n")[:-1], ["a sigterm cancelled", "b sigterm cancelled", "left in order"], err)
        with CancelStore.open(self.folder / "cancels.db") as store:
            self.assertEqual(
                {row.span_id: row.state for row in store.invocations("trace-1")},
                {"a": "cancelled", "b": "cancelled", "downstream": "cancelled"},
            )
            self.assertEqual(store.cancel_reason("trace-1"), "sigterm")

    def test_t10_a_handler_that_stops_the_loop_loses_the_state(self) -> None:
        """The document's first handler: `asyncio.run` fails, and the call is left running in the store.

        Claims: I4-029.
        """
        child = self.start(STOPS_THE_LOOP)
        stopped = stop_process(child, 30)
        self.assertEqual((stopped.how, stopped.returncode), ("terminated", 1))
        self.assertIn("RuntimeError", child.communicate()[1])
        with CancelStore.open(self.folder / "cancels.db") as store:
            self.assertEqual(store.get("trace-1", "a").state, "running")

    def test_a_process_that_is_killed_in_a_write_leaves_no_half_result(self) -> None:
        """Its transaction was open, with the business row written; after the kill neither is there. Claims: I4-028."""
        program = (
            "import sys, threading\n"
            "from chapter10.companions.interruption.cancel_store import CancelStore\n"
            "def write(db):\n"
            "    db.execute('CREATE TABLE orders (id TEXT)')\n"
            "    db.execute(\"INSERT INTO orders VALUES ('7')\")\n"
            "    print('ready', flush=True)\n"
            "    threading.Event().wait(60)\n"
            "with CancelStore.open(sys.argv[1]) as store:\n"
            "    store.register('trace-1', 'a', tool='order')\n"
            "    store.finish('trace-1', 'a', store.claim('trace-1', 'a'), 'ordered', write=write)\n"
        )
        child = self.start(program)
        child.kill()
        self.assertEqual(stop_process(child, 30).returncode, -signal.SIGKILL)
        with CancelStore.open(self.folder / "cancels.db") as store:
            row = store.get("trace-1", "a")
            self.assertEqual((row.state, row.result), ("running", None))
            self.assertEqual(store.take_over("trace-1", "a", row.fence), 2)
        db = sqlite3.connect(self.folder / "cancels.db")
        self.addCleanup(db.close)
        self.assertEqual(db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'orders'").fetchone(), (0,))
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    def test_a_process_that_was_asked_by_a_row_ends_before_any_signal(self) -> None:
        """The cooperative step: the cancel row is all that it needs. Claims: I4-009, I4-087."""
        program = (
            "import sys\n"
            "from chapter10.companions.interruption.cancel_store import CancelStore\n"
            "with CancelStore.open(sys.argv[1]) as store:\n"
            "    print('ready', flush=True)\n"
            "    while store.cancel_reason('trace-1') is None:\n"
            "        pass\n"
        )
        child = self.start(program)
        with CancelStore.open(self.folder / "cancels.db") as store:
            stopped = stop_process(child, 1, ask=lambda: store.cancel("trace-1"), ask_s=60)
        self.assertEqual(stopped, Stopped("asked", 0))


@unittest.skipUnless(POSIX, "signals that a process sends to itself")
class TheRequest(unittest.TestCase):
    """SIGTERM inside a worker."""

    def test_the_old_handler_is_back_after_the_block(self) -> None:
        """With a loop and without one, also after an error."""

        def old(number: int, frame: object) -> None: ...

        previous = signal.signal(signal.SIGTERM, old)
        self.addCleanup(signal.signal, signal.SIGTERM, previous)
        seen: list[str] = []
        with self.assertRaises(KeyError), sigterm_is_a_request(lambda: seen.append("plain")):
            signal.raise_signal(signal.SIGTERM)
            raise KeyError
        self.assertEqual(seen, ["plain"])
        self.assertIs(signal.getsignal(signal.SIGTERM), old)

        async def with_a_loop() -> None:
            with self.assertRaises(KeyError), sigterm_is_a_request(lambda: None, loop=asyncio.get_running_loop()):
                self.assertIsNot(signal.getsignal(signal.SIGTERM), old)
                raise KeyError

        asyncio.run(with_a_loop())
        self.assertIs(signal.getsignal(signal.SIGTERM), old)

    def test_a_handler_that_was_not_made_in_python_cannot_come_back(self) -> None:
        """Nobody can set it again from here: afterwards SIGTERM does what it does by itself."""

        def other(number: int, frame: object) -> None: ...

        previous = signal.signal(signal.SIGTERM, other)
        self.addCleanup(signal.signal, signal.SIGTERM, previous)

        async def with_a_loop() -> None:
            loop = asyncio.get_running_loop()
            with sigterm_is_a_request(lambda: None, loop=loop):
                pass
            self.assertFalse(loop.remove_signal_handler(signal.SIGTERM), "the loop has forgotten it")

        for block in (self.without_a_loop, lambda: asyncio.run(with_a_loop())):
            signal.signal(signal.SIGTERM, other)
            with mock.patch.object(signal, "getsignal", return_value=None):
                block()
            self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_an_idle_loop_wakes_up_for_it(self) -> None:
        """The callback runs in the loop, which then goes on."""

        async def main() -> None:
            asked = asyncio.Event()
            loop = asyncio.get_running_loop()
            with sigterm_is_a_request(asked.set, loop=loop):
                loop.call_soon(signal.raise_signal, signal.SIGTERM)
                await asked.wait()

        asyncio.run(main())

    def test_a_loop_without_signal_handlers_is_woken_all_the_same(self) -> None:
        """Where the loop has no handlers of its own, a plain one hands over to it."""

        class Plain(asyncio.SelectorEventLoop):
            def add_signal_handler(self, *args: Any) -> None:  # type: ignore[override]
                raise NotImplementedError

        async def main() -> None:
            asked = asyncio.Event()
            at_once: list[bool] = []
            loop = asyncio.get_running_loop()

            def send() -> None:
                signal.raise_signal(signal.SIGTERM)
                at_once.append(asked.is_set())

            with sigterm_is_a_request(asked.set, loop=loop):
                loop.call_soon(send)
                await asked.wait()
            self.assertEqual(at_once, [False], "the callback runs in the loop, not in the middle of other code")

        loop = Plain()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()

    def test_another_thread_is_refused_by_name(self) -> None:
        """Only the main thread receives signals, with a loop or without."""
        codes: list[str] = []

        async def with_a_loop() -> None:
            with sigterm_is_a_request(lambda: None, loop=asyncio.get_running_loop()):
                pass

        def thread() -> None:
            attempts: list[Callable[[], None]] = [lambda: asyncio.run(with_a_loop()), self.without_a_loop]
            for attempt in attempts:
                try:
                    attempt()
                except StopError as error:
                    codes.append(error.code)

        worker = threading.Thread(target=thread)
        worker.start()
        worker.join()
        self.assertEqual(codes, ["not_main_thread", "not_main_thread"])

    @staticmethod
    def without_a_loop() -> None:
        with sigterm_is_a_request(lambda: None):
            pass


@unittest.skipUnless(POSIX, "SIGTERM cannot be refused elsewhere")
class TheDemonstration(FolderTestCase):
    """Four processes, one row, three steps."""

    def test_each_process_is_stopped_by_the_step_that_it_needs(self) -> None:
        """The killed one left its row running; in the end all are cancelled, the late one without having run.

        Claims: I4-001, I4-009, I4-028, I4-086, I4-087.
        """
        rows = play(self.folder / "cancels.db")
        self.assertEqual({kind: how for kind, how, _, _ in rows}, EXPECTED)
        self.assertEqual([kind for kind, _, before, _ in rows if before == "running"], ["stubborn"])
        self.assertEqual({after for _, _, _, after in rows}, {"cancelled"})
        with CancelStore.open(self.folder / "cancels.db") as store:
            self.assertEqual({row.span_id: row.fence for row in store.invocations("trace-1")}["late"], 0)


load_tests = overlapping(RealProcesses, TheDemonstration)


if __name__ == "__main__":
    unittest.main()
