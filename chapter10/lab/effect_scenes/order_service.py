"""An order service that is killed all the time: `python -m chapter10.lab.effect_scenes.order_service KILLS CUSTOMERS`.

A process takes orders, with a message each, and a relay in it charges them at a bank that keeps the key. The bank loses
calls and answers, is slow, hangs, and is down as a whole for half a second now and then, in another way each time;
one customer is gone for good. The process is killed after a random time, `KILLS` times, and then a last one finishes.

Nothing may be lost or doubled, and no customer that is there waits for more than `BOUND_S` seconds, kills and all.

What it does not do: the bank is a second file, not a network, and it is never killed.
Source: claims I4-043, I4-053, I4-059, I4-066.
"""

from __future__ import annotations

import asyncio
import errno
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from chapter10.companions.effects import idempotency, outbox
from chapter10.companions.effects.messages import TransportDown, growing_delay
from chapter10.companions.effects.relay import Relay
from chapter10.database import Database
from chapter10.lab.evidence.virtual_time import pause

__all__ = ["BOUND_S", "judged", "main", "opened", "work"]

BOUND_S: Final = 60.0
"""Seconds from an order to its charge, for every customer that is there."""
_ORDERS: Final = """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, at REAL NOT NULL);
"""
_BANK: Final = """
    CREATE TABLE calls (key TEXT NOT NULL);
    CREATE TABLE paid (key TEXT PRIMARY KEY, order_id INTEGER NOT NULL, at REAL NOT NULL);
"""
_DOWN: Final = (
    ConnectionRefusedError(),
    OSError(errno.ENETUNREACH, "no network"),
    OSError(errno.EHOSTUNREACH, "no route"),
    TimeoutError(),
    TransportDown("unreachable"),
)
_MODULE: Final = "chapter10.lab.effect_scenes.order_service"


def opened(folder: Path) -> tuple[Database, Database]:
    """Return the files of the shop and of the bank, made if absent. Raises `StoreError`."""
    tables = (outbox.TABLES, idempotency.TABLES, _ORDERS)
    shop = Database(folder / "shop.db", application_id=outbox.APPLICATION_ID, migrations=tables)
    return shop, Database(folder / "bank.db", application_id=80, migrations=(_BANK,))


class _Service:
    """What one process has open."""

    def __init__(self, folder: Path, customers: int, chance: random.Random, clock: Callable[[], float]) -> None:
        self.customers, self.chance, self.clock = customers, chance, clock
        self.shop, self.bank = opened(folder)
        self.outbox = outbox.Outbox(self.shop, clock=clock, delay=growing_delay(base_s=0.05, max_s=1.0))
        self.store = idempotency.IdempotencyStore(self.shop, clock=clock)

    async def take(self) -> None:
        """Take orders for ever; a line says that the customer has the answer."""
        while True:
            customer = self.chance.randrange(self.customers)
            with self.shop.write() as db:
                row = db.execute("INSERT INTO orders (customer, at) VALUES (?, ?)", (customer, self.clock()))
                order = row.lastrowid
                self.outbox.record(
                    db,
                    "charge",
                    {"order": order, "customer": customer},
                    event_id=f"charge-{order}",
                    ordering_key=f"customer-{customer}",
                )
            print(order, flush=True)
            await pause(0.02)

    async def send(self, topic: str, payload: str, *, key: str) -> None:
        """Charge one order, under its key."""
        wanted = json.loads(payload)
        await self.store.execute_once(
            topic, wanted, lambda: self.charge(key, wanted), key=key, repeatable=True, lease_s=1.0, wait_s=0
        )

    async def charge(self, key: str, wanted: dict[str, Any]) -> str:
        """Be the bank, for one call."""
        half, rest = divmod(int(self.clock() * 2), 6)
        if rest == 0:
            raise _DOWN[half % len(_DOWN)]
        if wanted["customer"] == 0:
            raise ConnectionRefusedError
        luck = self.chance.random()
        if luck < 0.1:
            raise ConnectionResetError
        if luck < 0.11:
            await pause(600)
        with self.bank.write() as db:
            db.execute("INSERT INTO calls VALUES (?)", (key,))
            db.execute("INSERT OR IGNORE INTO paid VALUES (?, ?, ?)", (key, wanted["order"], self.clock()))
        if luck < 0.25:
            raise ConnectionResetError
        if luck < 0.28:
            await pause(0.3)
        return "paid"

    async def run(self, *, takes: bool) -> None:
        relay = Relay(self.outbox, self.send, lease_s=1.0, interval_s=0.02)
        tasks = [asyncio.ensure_future(relay.run(asyncio.Event()))]
        if takes:
            tasks.append(asyncio.ensure_future(self.take()))
        await asyncio.gather(*tasks)


def work(folder: Path, customers: int, seed: int, *, takes: bool, clock: Callable[[], float] = time.time) -> None:
    """Run the service until it is killed; the last one takes no orders."""
    asyncio.run(_Service(folder, customers, random.Random(seed), clock).run(takes=takes))


def judged(folder: Path, acknowledged: set[int], customers: int) -> dict[str, Any]:
    """Return what is wrong and what came to pass: counts, and `longest_wait_s` of the customers that are there.

    `acknowledged`: orders that a customer has the answer for; they count as lost if they are not in the shop.
    """
    shop, bank = opened(folder)
    try:
        orders = {row[0]: row[1:] for row in shop.rows("SELECT id, customer, at FROM orders")}
        paid = bank.rows("SELECT order_id, at FROM paid")
        calls = bank.row("SELECT count(*) FROM calls")[0]
        unsent = shop.rows("SELECT payload FROM outbox WHERE status IN ('pending', 'claimed', 'dead')")
    finally:
        shop.close()
        bank.close()
    kept = {json.loads(payload)["order"] for (payload,) in unsent}
    done = {order for order, _ in paid}
    there = {order for order, (customer, _) in orders.items() if customer != 0}
    waits = [at - orders[order][1] for order, at in paid if order in orders]
    return {
        "customers": customers,
        "orders": len(orders),
        "of the one that is gone": len(orders) - len(there),
        "lost": len(acknowledged - set(orders)) + len(there - done) + len(set(orders) - there - kept),
        "doubled": len(paid) - len(done) + len(done - there),
        "calls": calls,
        "longest_wait_s": round(max(waits, default=0.0), 1),
    }


def main(
    arguments: Sequence[str], *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.time
) -> int:
    """Kill it so many times, let a last one finish, print the figures, and return 1 if a promise was broken."""
    if len(arguments) == 5 and arguments[0] == "work":
        work(Path(arguments[1]), int(arguments[2]), int(arguments[3]), takes=arguments[4] == "takes")
    if len(arguments) != 2 or not all(each.isdigit() and each != "0" for each in arguments):
        print("usage: python -m chapter10.lab.effect_scenes.order_service KILLS CUSTOMERS", file=sys.stderr)
        return 2
    kills, customers = map(int, arguments)
    chance, acknowledged = random.Random(customers), set[int]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def start(seed: int, takes: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", _MODULE, "work", name, str(customers), str(seed), takes]
            with open(folder / "said", "w", encoding="utf-8", newline="\n") as said:
                return subprocess.Popen(command, stdout=said, text=True, encoding="utf-8")

        def kill(process: subprocess.Popen[str]) -> None:
            process.kill()
            process.wait()
            lines = (folder / "said").read_text(encoding="utf-8").splitlines(keepends=True)
            acknowledged.update(int(line) for line in lines if line.endswith("\n"))

        for number in range(kills):
            process = start(number, "takes")
            while not (folder / "said").stat().st_size and process.poll() is None:
                sleep(0.01)
            sleep(chance.uniform(0.0, 0.3))
            kill(process)
        last, end = start(kills, "finishes"), clock() + 5 * BOUND_S
        found = {"lost": 1}
        while found["lost"] and clock() < end and last.poll() is None:
            sleep(0.5)
            found = judged(folder, acknowledged, customers)
        kill(last)
        found = judged(folder, acknowledged, customers)
    print(f"kills {kills}, {json.dumps(found)}")
    return 1 if found["lost"] or found["doubled"] or found["longest_wait_s"] > BOUND_S else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
