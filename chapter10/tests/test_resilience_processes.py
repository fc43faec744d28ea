"""Real processes: killed before each statement, twenty callers of one key, two relays on one file.

The second half of this file is what the children run, as `python -m chapter10.tests.test_resilience_processes` would.
A scene is forked once for each statement that it makes and killed right before that statement; then
a checker opens the file as the next process would, looks, finishes the work and looks again.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import queue
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback
import unittest
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from chapter10.companions.effects import idempotency, outbox
from chapter10.companions.effects.idempotency import IdempotencyError, IdempotencyStore, Verdict, make_intent
from chapter10.companions.effects.outbox import Consumer, Outbox, OutboxWriter, Relay
from chapter10.database import Database, StoreError
from chapter10.lab.effect_scenes import order_service
from chapter10.tests.forked import Forked, start_module
from chapter10.tests.overlapping import overlapping
from chapter10.tests.support import FolderTestCase

ME = "chapter10.tests.test_resilience_processes"
KILLS = hasattr(os, "fork") and hasattr(signal, "SIGKILL")
ORDER = {"order": "7", "cents": 1000}
BUSINESS = """
    CREATE TABLE ledger (entry TEXT PRIMARY KEY, cents INTEGER NOT NULL);
    CREATE TABLE outputs (path TEXT PRIMARY KEY, sha256 TEXT NOT NULL);
"""
BEGUN, LATER = 1000.0, 10_000.0
"""Seconds: the clock of the process that is killed, and of the one that comes after every lease."""


@unittest.skipUnless(KILLS, "needs fork and SIGKILL")
class KilledTest(FolderTestCase):
    """A process is killed before each of its statements; the next one finds nothing half done."""

    def play(self, scene: str, at_least: int) -> dict[str, Any]:
        child = start_module(ME, ["kill", scene, str(self.folder)])
        said, errors = child.communicate()
        self.assertEqual((0, ""), (child.returncode, errors))
        report: dict[str, Any] = json.loads(said)
        self.assertGreaterEqual(report["kills"], at_least)
        return report

    def test_a_charge_elsewhere_is_made_once_or_left_in_doubt(self) -> None:
        """Before and after the claim, the effect and the result; a status query ends the doubt.

        Claims: I4-001, I4-043, I4-048, I4-050.
        """
        self.assertEqual([], self.play("elsewhere", 10)["problems"])

    def test_without_a_claim_before_the_effect_some_kill_charges_twice(self) -> None:
        """The twin that only remembers results is caught by the same checker."""
        problems = self.play("elsewhere_without_claim", 3)["problems"]

        self.assertIn("charged 2 times", " ".join(problems))

    def test_a_repeatable_call_is_taken_over_with_the_same_key(self) -> None:
        """The other side sees one key, however often it is called. Claims: I4-095, I4-048."""
        self.assertEqual([], self.play("repeatable", 10)["problems"])

    def test_an_effect_in_the_same_database_has_its_record_or_is_not_there(self) -> None:
        """For every statement of the one transaction. Claims: I4-004, T6-034."""
        self.assertEqual([], self.play("same_database", 6)["problems"])

    def test_an_output_file_and_its_record_leave_no_half_state(self) -> None:
        """A recorded file is whole; a file without a record is written again with the same bytes.

        Claims: T6-034, T6-028.
        """
        self.assertEqual([], self.play("briefing", 8)["problems"])

    def test_charged_if_and_only_if_there_is_a_message(self) -> None:
        """For every statement of the business transaction; the repeat adds neither. Claims: I4-053, I4-054, I4-061."""
        self.assertEqual([], self.play("record", 5)["problems"])

    def test_a_killed_relay_loses_nothing_and_spends_one_attempt(self) -> None:
        """Each row is delivered at least once, in order per key, with one effect at the receiver.

        Claims: I4-059, I4-060, I4-064.
        """
        self.assertEqual([], self.play("relay", 14)["problems"])

    def test_a_killed_consumer_has_effect_and_memory_or_neither(self) -> None:
        """The next delivery makes what is missing and nothing else. Claims: I4-060."""
        self.assertEqual([], self.play("consume", 4)["problems"])


class TogetherTest(FolderTestCase):
    """Several live processes on one file."""

    def start(self, *arguments: str) -> Forked | subprocess.Popen[str]:
        child = start_module(ME, [*arguments, str(self.folder)])
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def say(self, children: list[Forked | subprocess.Popen[str]], word: str) -> None:
        for child in children:
            assert child.stdin is not None
            child.stdin.write(word + "\n")
            child.stdin.flush()

    def listen(self, children: list[Forked | subprocess.Popen[str]]) -> queue.Queue[str]:
        """Return a queue of the lines of all children, as they come."""
        lines: queue.Queue[str] = queue.Queue()

        def pump(stream: Any) -> None:
            for line in stream:
                lines.put(line.strip())

        for child in children:
            threading.Thread(target=pump, args=(child.stdout,), daemon=True).start()
        return lines

    def take(self, lines: queue.Queue[str], count: int) -> Counter[str]:
        return Counter(lines.get(timeout=60) for _ in range(count))

    def test_twenty_callers_in_two_processes_run_one_effect(self) -> None:
        """While the one is at work 19 are told so; afterwards 20 get its result; waiting does as well (bug 15).

        Claims: I4-043, I4-044, I4-045, T6-034.
        """
        open_business(self.folder / "business.db").close()
        children = [self.start("callers"), self.start("callers")]
        lines = self.listen(children)
        self.assertEqual({"ready": 2}, self.take(lines, 2))
        self.say(children, "first")
        self.assertEqual({"in_progress": 19}, self.take(lines, 19))
        self.say(children, "release")
        self.assertEqual({"done": 1}, self.take(lines, 1))
        self.say(children, "again")
        self.assertEqual({"done": 20}, self.take(lines, 20))
        self.say(children, "wait")
        self.assertEqual({"done": 20}, self.take(lines, 20))
        self.say(children, "end")
        for child in children:
            self.assertEqual(0, child.wait(60))

        self.assertEqual({"first": 1, "wait": 1}, Bank(self.folder).charges())

    def test_two_relay_processes_send_each_row_once(self) -> None:
        """While no lease ends, two relays share 200 rows without a duplicate and in order per key.

        Claims: I4-059, I4-064.
        """
        with_rows(self.folder / "business.db", [(f"e{n:03}", f"k{n % 7}" if n % 2 else None) for n in range(200)])
        children = [self.start("relay"), self.start("relay")]
        lines = self.listen(children)
        self.assertEqual({"ready": 2}, self.take(lines, 2))
        self.say(children, "go")
        for child in children:
            self.assertEqual(0, child.wait(60))
        sent = (self.folder / "sent.log").read_text(encoding="utf-8").split()

        self.assertEqual((200, 200), (len(sent), len(set(sent))))
        for key in range(7):
            mine = [name for name in sent if int(name[1:]) % 2 and int(name[1:]) % 7 == key]
            self.assertEqual(sorted(mine), mine)


class OrderServiceTest(FolderTestCase):
    """Two kills; two hundred: `python -m chapter10.lab.effect_scenes.order_service 200 50`."""

    def test_a_killed_order_service_loses_and_doubles_nothing(self) -> None:
        """Every order of a customer that is there is charged once, in time. Claims: I4-043, I4-053, I4-059."""
        said = io.StringIO()
        with redirect_stdout(said):
            self.assertEqual(0, order_service.main(["2", "50"]), said.getvalue())

    def test_what_is_lost_or_doubled_is_counted(self) -> None:
        """An answered order that is not there, an order without charge or message, a second charge, one for nobody."""
        shop, bank = order_service.opened(self.folder)
        with shop.write() as db:
            db.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(1, 1, 0.0), (2, 1, 0.0), (3, 0, 0.0)])
        with bank.write() as db:
            rows = [("a", 1, 70.0), ("b", 1, 71.0), ("c", 9, 0.0)]
            db.executemany("INSERT INTO paid VALUES (?, ?, ?)", rows)
        shop.close()
        bank.close()
        found = order_service.judged(self.folder, {1, 2, 3, 4}, 2)
        self.assertEqual((3, 2, 71.0), (found["lost"], found["doubled"], found["longest_wait_s"]))


load_tests = overlapping(KilledTest, TogetherTest, OrderServiceTest)


# What the children run -----------------------------------------------------------------------


class Bank:
    """A service elsewhere, kept in a file: it appends what it did and tells who asks."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bank.log"

    def charge(self, key: str) -> dict[str, int]:
        append(self.path, key)
        return {"charged": 1000}

    def charges(self) -> dict[str, int]:
        if not self.path.exists():
            return {}
        return dict(Counter(self.path.read_text(encoding="utf-8").split()))


def append(path: Path, line: str) -> None:
    """Append one line in one write, which two processes may do at once."""
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode("utf-8") + b"\n")


def open_business(path: Path) -> Database:
    return Database(
        path,
        application_id=79,
        migrations=(BUSINESS, idempotency.TABLES, outbox.TABLES, outbox.INBOX_TABLES),
        busy_seconds=60,
    )


def with_rows(path: Path, rows: list[tuple[str, str | None]]) -> None:
    """Make a business database with messages in it."""
    database = open_business(path)
    box = Outbox(database, clock=lambda: BEGUN)
    with database.write() as db:
        for event_id, key in rows:
            box.record(db, "t", {"event": event_id}, event_id=event_id, ordering_key=key)
    database.close()


class Countdown:
    """Kills this process at its n-th step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, _: object = None) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, connection: sqlite3.Connection) -> None:
        """Count every statement, right before it runs."""
        connection.set_trace_callback(self.step)


class Scene:
    """One piece of work to be killed in, and the checker that comes afterwards."""

    def __init__(self, folder: Path, now: float, countdown: Countdown | None = None) -> None:
        self.folder, self.bank = folder, Bank(folder)
        self.countdown = countdown or Countdown(0)
        self.database = open_business(folder / "business.db")
        self.store = IdempotencyStore(self.database, clock=lambda: now)
        self.outbox = Outbox(self.database, clock=lambda: now, delay=lambda failures: 1.0)
        self.consumer = Consumer(self.database, "bank", clock=lambda: now)
        self.intent = make_intent("payments", ORDER, key="order-7")
        if countdown is not None:
            countdown.watch(self.database.connection)

    def work(self) -> None:
        """Do the work; the process may be killed at any step of it."""
        raise NotImplementedError

    def problems(self) -> Iterator[str]:
        """Look at what a killed process left, finish the work, and say what is wrong."""
        raise NotImplementedError

    def number(self, sql: str) -> int:
        return int(self.database.row(sql)[0])

    async def charge(self) -> Any:
        self.countdown.step()
        answer = self.bank.charge("order-7")
        self.countdown.step()
        return answer

    def book(self, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO ledger VALUES ('order-7', -1000)")


class Elsewhere(Scene):
    repeatable = False

    def work(self) -> None:
        asyncio.run(self.once())

    async def once(self, **more: Any) -> Any:
        return await self.store.execute_once(
            "payments", ORDER, self.charge, key="order-7", repeatable=self.repeatable, **more
        )

    async def probe(self) -> Verdict:
        return Verdict("done", {"charged": 1000}) if self.bank.charges() else Verdict("not_done")

    def problems(self) -> Iterator[str]:
        before = self.bank.charges().get("order-7", 0)
        state = self.store.look(self.intent).state
        if before > 1:
            yield f"charged {before} times"
        if before and state == "absent":
            yield "charged and the key is free"
        if state == "completed" and not before:
            yield "completed without a charge"
        try:
            asyncio.run(self.once())
        except IdempotencyError as error:
            if error.code != "outcome_unknown" or state != "unknown":
                yield f"{error.code} in state {state}"
        if state == "unknown" and self.bank.charges().get("order-7", 0) != before:
            yield "a blind second charge"
        for _ in range(2):
            if asyncio.run(self.once(probe=self.probe)) != {"charged": 1000}:
                yield "another value"
        if self.bank.charges() != {"order-7": 1}:
            yield f"charged {self.bank.charges().get('order-7')} times"


class ElsewhereWithoutClaim(Elsewhere):
    """Known wrong: the effect first, and its record afterwards."""

    async def once(self, **more: Any) -> Any:
        row = self.database.row("SELECT cents FROM ledger WHERE entry = 'order-7'")
        if row is None:
            await self.charge()
            with self.database.write() as db:
                self.book(db)
        return {"charged": 1000}


class Repeatable(Elsewhere):
    repeatable = True

    def problems(self) -> Iterator[str]:
        for _ in range(2):
            if asyncio.run(self.once()) != {"charged": 1000}:
                yield "another value"
        if set(self.bank.charges()) != {"order-7"} or self.bank.charges()["order-7"] > 2:
            yield f"the other side saw {self.bank.charges()}"
        if self.store.look(self.intent).state != "completed":
            yield "not completed"


class SameDatabase(Scene):
    def work(self) -> None:
        with self.database.write() as db:
            self.store.run_in(db, self.intent, self.book)

    def problems(self) -> Iterator[str]:
        for repeated in (False, True):
            booked = self.number("SELECT count(*) FROM ledger")
            state = self.store.look(self.intent).state
            if (booked, state) not in ([(1, "completed")] if repeated else [(0, "absent"), (1, "completed")]):
                yield f"{booked} entries and {state}"
            self.work()


class Briefing(Scene):
    """An output file, written aside and renamed, with its record in the database."""

    def work(self) -> None:
        content = b"briefing " * 1000
        path = self.folder / "briefing.txt"
        digest = hashlib.sha256(content).hexdigest()
        intent = make_intent("briefings", {"task_id": "t", "path": path.name, "content_hash": digest})

        def save(db: sqlite3.Connection) -> str:
            aside = path.with_suffix(".part")
            with open(aside, "wb") as file:
                self.countdown.step()
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self.countdown.step()
            os.replace(aside, path)
            self.countdown.step()
            db.execute("INSERT INTO outputs VALUES (?, ?)", (path.name, digest))
            return digest

        with self.database.write() as db:
            self.store.run_in(db, intent, save)

    def problems(self) -> Iterator[str]:
        path = self.folder / "briefing.txt"
        for repeated in (False, True):
            recorded = self.database.row("SELECT sha256 FROM outputs")
            actual = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
            if recorded is not None and recorded[0] != actual:
                yield "a record without its file"
            if self.number("SELECT count(*) FROM idempotency") != self.number("SELECT count(*) FROM outputs"):
                yield "the result and the output's row differ"
            if repeated and recorded is None:
                yield "not written by the repeat"
            self.work()


class Recorded(Scene):
    def work(self) -> None:
        writer = OutboxWriter(self.database, self.outbox)
        asyncio.run(writer.do_business_and_record(self.book, {"order": 7}, event_id="charge-7"))

    def problems(self) -> Iterator[str]:
        for repeated in (False, True):
            counts = self.number("SELECT count(*) FROM ledger"), self.number("SELECT count(*) FROM outbox")
            if counts not in ([(1, 1)] if repeated else [(0, 0), (1, 1)]):
                yield f"{counts[0]} charges and {counts[1]} messages"
            self.work()


class Relayed(Scene):
    """Three messages, two of one key; the receiver is a file, and a consumer reads it afterwards."""

    async def send(self, topic: str, payload: str, *, key: str) -> None:
        self.countdown.step()
        append(self.folder / "sent.log", key)
        self.countdown.step()

    def work(self) -> None:
        relay = Relay(self.outbox, self.send)
        while asyncio.run(relay.run_pass()).claimed:
            pass

    def problems(self) -> Iterator[str]:
        self.work()
        sent = (self.folder / "sent.log").read_text(encoding="utf-8").split()
        if set(sent) != {"k1", "k2", "loose"}:
            yield f"only {sent} were sent"
        if len(sent) > 3 + 2:
            yield f"more than a batch was sent again: {sent}"
        if sent.index("k2") < sent.index("k1"):
            yield "out of order"
        rows = self.database.rows("SELECT status, attempts, last_error FROM outbox")
        # An attempt is counted at the claim, so that of a row whose relay died is spent and named.
        if len(rows) != 3 or not set(rows) <= {("sent", 1, None), ("sent", 2, "relay_died")}:
            yield f"left as {rows}"
        for event_id in sent:
            self.consumer.handle(event_id, lambda db, e=event_id: db.execute("INSERT INTO ledger VALUES (?, 1)", (e,)))  # type: ignore[misc]
        if self.number("SELECT count(*) FROM ledger") != 3:
            yield "not one effect each"


class Consumed(Scene):
    def work(self) -> None:
        self.consumer.handle("charge-7", self.book)

    def problems(self) -> Iterator[str]:
        for repeated in (False, True):
            counts = self.number("SELECT count(*) FROM ledger"), self.number("SELECT count(*) FROM inbox")
            if counts not in ([(1, 1)] if repeated else [(0, 0), (1, 1)]):
                yield f"{counts[0]} effects and {counts[1]} memories"
            self.work()


SCENES: dict[str, type[Scene]] = {
    "elsewhere": Elsewhere,
    "elsewhere_without_claim": ElsewhereWithoutClaim,
    "repeatable": Repeatable,
    "same_database": SameDatabase,
    "briefing": Briefing,
    "record": Recorded,
    "relay": Relayed,
    "consume": Consumed,
}
MOST_STEPS = 100


def kill_everywhere(name: str, folder: Path) -> dict[str, Any]:
    """Kill a scene before each of its steps until one run gets through; return kills and problems."""
    template = folder / "template.db"
    with_rows(template, [("k1", "k"), ("loose", None), ("k2", "k")] if name == "relay" else [])
    report: dict[str, Any] = {"kills": 0, "problems": []}
    for steps in range(1, MOST_STEPS):
        place = folder / str(steps)
        place.mkdir()
        shutil.copy(template, place / "business.db")
        child = os.fork()
        if child == 0:
            act(SCENES[name], place, Countdown(steps))
        status = os.waitpid(child, 0)[1]
        killed = os.WIFSIGNALED(status)
        if not killed and status != 0:
            report["problems"].append(f"step {steps}: the scene failed")
            return report
        scene = SCENES[name](place, LATER)
        report["problems"] += [f"step {steps}: {problem}" for problem in scene.problems()]
        scene.database.close()
        if not killed:
            return report
        report["kills"] += 1
    report["problems"].append("the scene never ended")
    return report


def act(scene: type[Scene], place: Path, countdown: Countdown) -> None:
    """Play a scene in a forked child to its end, without the clean-up that belongs to its parent."""
    code = 1
    try:
        scene(place, BEGUN, countdown).work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def twenty_callers(folder: Path) -> None:
    """Run ten threads for each word that comes in; each prints how its call ended."""
    release, printing = threading.Event(), threading.Lock()
    bank = Bank(folder)

    def call(word: str, barrier: threading.Barrier) -> None:
        key = "wait" if word == "wait" else "first"

        async def slow() -> str:
            bank.charge(key)
            if key == "first":
                release.wait(60)
            return "done"

        database = open_business(folder / "business.db")
        try:
            with IdempotencyStore(database) as store:
                barrier.wait(60)
                wait_s = 60 if word == "wait" else 0
                end = asyncio.run(store.execute_once("payments", ORDER, slow, key=key, wait_s=wait_s, lease_s=600))
        except (IdempotencyError, StoreError) as error:
            end = error.code
        finally:
            database.close()
        with printing:
            print(end, flush=True)

    print("ready", flush=True)
    threads: list[threading.Thread] = []
    for line in sys.stdin:
        word = line.strip()
        if word == "end":
            break
        if word == "release":
            release.set()
            continue
        barrier = threading.Barrier(10)
        threads += [threading.Thread(target=call, args=(word, barrier)) for _ in range(10)]
        for thread in threads[-10:]:
            thread.start()
    for thread in threads:
        thread.join(60)


def one_relay(folder: Path) -> None:
    """Relay until there is nothing left to send, in small batches."""
    database = open_business(folder / "business.db")
    box = Outbox(database, clock=lambda: BEGUN)

    async def send(topic: str, payload: str, *, key: str) -> None:
        append(folder / "sent.log", key)

    async def run() -> None:
        relay = Relay(box, send, limit=5)
        while database.row("SELECT 1 FROM outbox WHERE status IN ('pending', 'claimed') LIMIT 1") is not None:
            await relay.run_pass()

    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(run())
    database.close()


def main() -> None:
    arguments = sys.argv[1:]
    folder = Path(arguments[-1])
    if arguments[0] == "kill":
        print(json.dumps(kill_everywhere(arguments[1], folder)))
    elif arguments[0] == "callers":
        twenty_callers(folder)
    elif arguments[0] == "relay":
        one_relay(folder)


if __name__ == "__main__":
    main()
