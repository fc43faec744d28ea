"""What outbox, relay and receiver agree on: the message, its fate in words, and what is let in.

    message   one claimed row, as it is sent; its event id names it for ever
    batch     rows that one relay may send until its lease ends; a mark counts only with its fence
    delivery  how one message of a batch fared: sent, refused, refused for good, held, not tried
    horizon   after so long nothing is delivered a second time; whoever forgets earlier than that repeats effects

The same parts of an intent give the same event id (`derive_event_id`), so that a repeat after an unclear commit is the
same event. `companions.effects.outbox` says what holds, and has all these names too.
Source: the document on interruption, section 6 (claims I4-055, I4-060, I4-066; X-49).
"""

from __future__ import annotations

import random
import sqlite3
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from chapter10.canonical import CodedError, canonical, text_digest
from chapter10.companions.basics.arguments import Arguments

__all__ = [
    "BATCH_LIMIT",
    "HORIZON_S",
    "LEASE_S",
    "MAX_LIMIT",
    "MAX_SECONDS",
    "MAX_TEXT",
    "Batch",
    "Delivery",
    "Message",
    "OutboxError",
    "PassReport",
    "PermanentRefusal",
    "TransportDown",
    "derive_event_id",
    "growing_delay",
    "json_of",
    "milliseconds",
    "need_transaction",
    "number",
    "refuse",
    "seconds",
    "text_of",
    "whole",
]

BATCH_LIMIT: Final = 100
"""Rows that a relay claims at once (I4-057)."""
LEASE_S: Final = 30.0
"""Seconds that a relay has for its batch; when they are over it gives back what it has not sent."""
HORIZON_S: Final = 30 * 86_400
"""Seconds after which nothing is delivered a second time: no replay, no broker, no restart."""
MAX_TEXT: Final = 200
"""Characters of an event id, a topic, an ordering key, an error; at least one."""
MAX_LIMIT: Final = 1000
MAX_SECONDS: Final = 10 * 366 * 86_400


class OutboxError(CodedError, ValueError):
    """Raised when a call cannot be granted; nothing was changed.

    `bad_input`, `no_transaction` (record was called outside one), `event_conflict` (the event id has
    other content), `business_key_needed`, `not_found`, `wrong_status` (not pending, or not dead, any more),
    `replay_too_late` (the receivers may have forgotten the event), `retention_too_short`.
    """

    reason: str | None

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.reason = reason


# What is let in by this module and those that keep its rows; what is not, is `bad_input`.
_arguments: Final = Arguments(
    lambda reason: OutboxError("bad_input", reason), max_text=MAX_TEXT, max_seconds=MAX_SECONDS
)
refuse: Final = _arguments.refuse
text_of: Final = _arguments.text
whole: Final = _arguments.whole
number: Final = _arguments.number
json_of: Final = _arguments.json
seconds: Final = _arguments.seconds


class TransportDown(CodedError, RuntimeError):
    """Raised by a send function that knows that nobody can be reached: no message's fault, the relay pauses."""


class PermanentRefusal(CodedError, RuntimeError):
    """Raised by a send function whose receiver will never take this message: dead at once."""


@dataclass(frozen=True, slots=True)
class Message:
    """One claimed row, as it is sent. `payload` is canonical JSON text.

    `attempts`: tries that were made before this one. `misses`: times that it was put off, since nobody was reached.
    `since`: when it was first claimed, in seconds on the outbox's clock; from then on it ages.
    """

    id: int
    event_id: str
    topic: str
    payload: str
    ordering_key: str | None
    attempts: int
    misses: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that one relay may send until `lease_until` (seconds on the outbox's clock).

    `apart`: these were in flight when a relay died; nothing else is sent beside them.
    """

    fence: int
    lease_until: float
    messages: tuple[Message, ...]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """How one message of a batch fared; `error` is a short text, a code or the name of a class.

    `refused`: an attempt was made, and is spent. `held`: none was made; it is put off for `wait_s` seconds.
    `not_tried`: it is due as before.
    """

    message: Message
    kind: Literal["sent", "refused", "refused_for_good", "held", "not_tried"]
    error: str = "refused"
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass of a relay did, in rows; `lost` were marked by nobody, since their lease was over.

    `given_back`: no attempt was spent on them; `held` are those of them that were put off.
    """

    claimed: int = 0
    sent: int = 0
    refused: int = 0
    dead: int = 0
    given_back: int = 0
    lost: int = 0
    paused: bool = False
    held: int = 0


def derive_event_id(*parts: str) -> str:
    """Return 64 hex digits that stand for an intent, such as `("refund", "order-7")`; joined unambiguously.

    The same parts give the same id, however an accent is written, so a repeat after an unclear commit is the same
    event. Raises `OutboxError` (`bad_input`).
    """
    if not parts or len(parts) > 20:
        refuse("an event id is derived from 1 to 20 texts")
    texts = [unicodedata.normalize("NFC", text_of(part, "part")) for part in parts]
    return text_digest(canonical(["chapter10.event.1", *texts]))


def growing_delay(
    *, base_s: float = 1.0, max_s: float = 300.0, random: Callable[[], float] = random.random
) -> Callable[[int], float]:
    """Return a function from the number of failures (1, 2, …) to seconds: doubling, 50 to 150 % jitter.

    No delay exceeds `max_s`, jitter included. `random` gives numbers from 0 to 1.
    Raises `OutboxError` (`bad_input`).
    """
    seconds(base_s, "base_s", 0.001)
    seconds(max_s, "max_s", base_s)

    def delay(failures: int) -> float:
        nominal = min(base_s * 2.0 ** min(failures - 1, 40), max_s / 1.5)
        return nominal * (0.5 + random())

    return delay


# What is let in ------------------------------------------------------------------------------


def need_transaction(db: sqlite3.Connection) -> None:
    """Raise `OutboxError` (`no_transaction`) outside of a transaction."""
    if not db.in_transaction:
        raise OutboxError("no_transaction")


def milliseconds(value: float) -> int:
    """Return seconds as whole milliseconds, as the tables keep them."""
    return round(value * 1000)
