"""The group `mail`: an export that ends by sending a mail, the faults in between, and how many mails there are.

It plays the chapter's twelfth exercise. A job makes a report, and a mail about it goes through a service that is not
ours. The service follows a recorded script: it cannot be reached, it takes the mail and its answer is lost, the
network hands the mail over twice, or our process dies right before or right after it was taken. Each plan below is
played against each fault, with the real job store, idempotency store, outbox and consumer, on logical time; every
figure is counted afterwards in the service's mailbox.

    plain_retry        each attempt sends a new message; an attempt that went wrong is made again
    idempotency_key    the same, but all attempts carry one key, and the service keeps the keys that it has seen
    status_query       a local record of the intent; a doubt is settled by asking the service before anything is sent
    wait_for_a_person  the same record and nobody to ask: a doubt stays, and the job ends as `outcome_unknown`
    outbox_alone       the job ends first; its mail is a row that a relay sends until it could mark it
    outbox_and_dedupe  the same, and the service keeps the keys in the transaction of its own effect

The job store and the outbox are two databases here. What binds them is the event id: it is derived from the job, so
that recording the mail of a finished job a second time is the same row.
Source: the chapter's exercise 12 and what it says of effects elsewhere (claims C10-240 to C10-242, C10-310); the
document on interruption (claims I4-001, I4-050, I4-060, I4-094, I4-095).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final, Literal

from chapter10.companions.effects.idempotency import Claim, IdempotencyStore, Record, Verdict, make_intent
from chapter10.companions.effects.outbox import (
    INBOX_APPLICATION_ID,
    INBOX_TABLES,
    Consumer,
    Delivery,
    Outbox,
    OutboxError,
    derive_event_id,
)
from chapter10.companions.work.living_store import LivingStore
from chapter10.database import Database
from chapter10.jobs import FINAL_STATES
from chapter10.lab.evidence.evidence import Group, Scene

__all__ = ["GROUP", "mail_experiment"]

_OWNER: Final = "alice"
_LEASE_S: Final = 10
_ROUND_S: Final = 11
"""Each round begins after the lease of the one before."""
_MAX_ROUNDS: Final = 6

_Answer = Literal["taken", "unreachable", "lost", "dies first", "dies", "taken twice"]
_Cancel = Literal["never", "before", "after"]

_FAULTS: Final[tuple[tuple[str, tuple[_Answer, ...], _Cancel], ...]] = (
    ("none", (), "never"),
    ("the service is not reached", ("unreachable",), "never"),
    ("the answer is lost", ("lost",), "never"),
    ("the process dies before the effect", ("dies first",), "never"),
    ("the process dies between effect and record", ("dies",), "never"),
    ("it dies, and then an answer is lost", ("dies", "lost"), "never"),
    ("the network delivers twice", ("taken twice",), "never"),
    ("a cancel before the point of no return", (), "before"),
    ("a cancel after it", (), "after"),
)


class _Died(Exception):
    """Our process ended here; nothing after this line was done by it."""


class _Service:
    """The mail service: `mailbox` is what the reader finds. It answers by its script, and well when that has ended."""

    def __init__(self, script: tuple[_Answer, ...], keeps_keys: bool, clock: Callable[[], float]) -> None:
        self._script: Iterator[_Answer] = iter(script)
        self._keeps_keys = keeps_keys
        mails = "CREATE TABLE mails (n INTEGER PRIMARY KEY, key TEXT NOT NULL, text TEXT NOT NULL);"
        self.database = Database(":memory:", application_id=INBOX_APPLICATION_ID, migrations=(INBOX_TABLES, mails))
        self._consumer = Consumer(self.database, "mail", clock=clock)
        self.requests = 0

    def send(self, key: str, text: str) -> None:
        """Take a mail. `ConnectionRefusedError`: it was not reached. `TimeoutError`: nobody can say from here."""
        self.requests += 1
        answer = next(self._script, "taken")
        if answer == "unreachable":
            raise ConnectionRefusedError
        if answer == "dies first":
            raise _Died
        for _ in range(2 if answer == "taken twice" else 1):
            self._take(key, text)
        if answer == "lost":
            raise TimeoutError
        if answer == "dies":
            raise _Died

    def was_sent(self, key: str) -> bool:
        """The status query."""
        return self.database.row("SELECT 1 FROM mails WHERE key = ?", (key,)) is not None

    @property
    def mailbox(self) -> list[str]:
        return [text for (text,) in self.database.rows("SELECT text FROM mails ORDER BY n LIMIT 100")]

    def _take(self, key: str, text: str) -> None:
        def effect(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO mails (key, text) VALUES (?, ?)", (key, text))

        if self._keeps_keys:
            self._consumer.handle(key, effect)
        else:
            with self.database.write() as db:
                effect(db)


class _Play:
    """One plan against one fault: the stores, the service, the time, and who says what happened."""

    def __init__(self, stack: ExitStack, script: tuple[_Answer, ...], cancel: _Cancel, keeps_keys: bool) -> None:
        self.now = 0.0
        self.cancel_when = cancel
        self.scene: Scene | None = None
        clock = self.clock
        self.jobs = stack.enter_context(LivingStore(":memory:"))
        self.records = stack.enter_context(IdempotencyStore(clock=clock))
        self.outbox = stack.enter_context(Outbox(":memory:", clock=clock, delay=lambda failures: 1.0))
        self.service = _Service(script, keeps_keys, clock)
        stack.callback(self.service.database.close)
        self.job = self.jobs.submit(
            _OWNER, "august", {"month": "2026-08"}, now=0, deadline=1000, max_attempts=_MAX_ROUNDS
        )
        self.mails_made = 0

    def clock(self) -> float:
        return self.now

    def say(self, who: str, what: str, answer: str = "") -> None:
        if self.scene is not None:
            self.scene.now = self.now
            self.scene.note(who, what, answer)

    @property
    def state(self) -> str:
        return str(self.jobs.get(_OWNER, self.job)["state"])

    @property
    def verdict(self) -> str:
        row = self.jobs.get(_OWNER, self.job)
        return str(row["error"] or row["state"])

    def cancel(self) -> None:
        self.say("caller", "cancels", self.jobs.cancel(_OWNER, self.job, now=self.now))

    def finish(self, attempt: int) -> None:
        stored = self.jobs.finish(self.job, attempt, {"total_cents": 6000}, now=self.now)
        self.say("worker", f"attempt {attempt} finishes", "result stored" if stored else self.state)

    def give_up(self, attempt: int, code: str, retry_after: float | None) -> None:
        state = self.jobs.fail(self.job, attempt, code, now=self.now, retry_after=retry_after)
        self.say("worker", f"attempt {attempt} fails: {code}", state)

    def deliver(self, who: str, key: str, text: str = "report") -> str:
        """Send once and return how it looks from here: `sent`, `not_sent`, `unknown`. Raises `_Died`."""
        try:
            self.service.send(key, text)
        except ConnectionRefusedError:
            self.say(who, "sends a mail", "not reached")
            return "not_sent"
        except TimeoutError:
            self.say(who, "sends a mail", "no answer")
            return "unknown"
        except _Died:
            self.say(who, "sends a mail and dies", "")
            raise
        self.say(who, "sends a mail", "taken")
        return "sent"


_Work = Callable[[_Play, int], None]


def mail_experiment(scene: Scene) -> dict[str, Any]:
    """Play every plan against every fault, count the mails, and say what is left after a cancel that came late."""
    mails, says = [], []
    for fault, script, cancel in _FAULTS:
        cells = {name: _play(name, script, cancel) for name in _PLANS}
        mails.append({"fault": fault, **{name: cell["mails"] for name, cell in cells.items()}})
        says.append({"fault": fault, **{name: cell["job"] for name, cell in cells.items()}})
    for name, title in (
        ("plain_retry", "直接重试：死在发信之后 / plain retry: it dies after the mail"),
        ("status_query", "同一故障，先查询 / the same fault, and the service is asked"),
        ("wait_for_a_person", "同一故障，没有人可问 / the same fault, and nobody to ask"),
        ("outbox_and_dedupe", "同一故障，发件箱加去重 / the same fault, outbox and dedupe"),
    ):
        scene.begin(title)
        _play(name, ("dies",), "never", scene)
    plain = _play("plain_retry", ("dies",), "never")
    return {
        "mails": mails,
        "job_says": says,
        "receipts_when_plain_retry_died": plain["receipts"],
        "mails_when_plain_retry_died": plain["mails"],
        "plans_with_one_mail_after_every_fault": [
            name
            for name in _PLANS
            if all(row[name] == (cancel != "before") for row, (_, _, cancel) in zip(mails, _FAULTS, strict=True))
        ],
        **_unrecorded(scene),
        **_withdrawn(scene),
        **_corrected(scene),
    }


def _play(name: str, script: tuple[_Answer, ...], cancel: _Cancel, scene: Scene | None = None) -> dict[str, Any]:
    work, afterwards, keeps_keys = _PLANS[name]
    with ExitStack() as stack:
        play = _Play(stack, script, cancel, keeps_keys)
        play.scene = scene
        for _ in range(_MAX_ROUNDS):
            try:
                if play.state not in FINAL_STATES:
                    attempt = play.jobs.claim(play.job, now=play.now, lease=_LEASE_S)
                    if attempt is not None:
                        play.say("worker", f"claims attempt {attempt}", "")
                        _guarded_work(play, attempt, work)
                afterwards(play)
            except _Died:
                pass  # the next round is another process
            play.now += _ROUND_S
        return {
            "mails": len(play.service.mailbox),
            "job": play.verdict,
            "receipts": play.jobs.receipt_count(play.job),
        }


def _guarded_work(play: _Play, attempt: int, work: _Work) -> None:
    """The last look before the point of no return, and then the work."""
    if play.cancel_when == "before":
        play.cancel()
    if play.jobs.renew(play.job, attempt, now=play.now, lease=_LEASE_S) != "running":
        play.finish(attempt)
        return
    work(play, attempt)


# The plans -------------------------------------------------------------------------------------------


def _send_then_finish(play: _Play, attempt: int, key: str) -> None:
    looks = play.deliver("worker", key)
    if looks != "sent":
        play.give_up(attempt, "not_reached" if looks == "not_sent" else "no_answer", 1)
        return
    if play.cancel_when == "after":
        play.cancel()
    play.finish(attempt)


def _plain(play: _Play, attempt: int) -> None:
    play.mails_made += 1
    _send_then_finish(play, attempt, f"message-{play.mails_made}")


def _with_key(play: _Play, attempt: int) -> None:
    _send_then_finish(play, attempt, f"job-{play.job}")


def _with_record(play: _Play, attempt: int, *, asks: bool) -> None:
    intent = make_intent("mail", {"job": play.job}, owner=_OWNER, key=f"job-{play.job}")
    found = play.records.claim(intent, lease_s=_LEASE_S)
    if isinstance(found, Record) and found.state == "unknown" and asks:
        kind: Literal["done", "not_done"] = "done" if play.service.was_sent(intent.key) else "not_done"
        play.say("worker", "asks the service whether it was sent", kind)
        play.records.settle(intent, Verdict(kind), fence=found.fence)
        found = play.records.claim(intent, lease_s=_LEASE_S)
    if isinstance(found, Record):
        if found.state == "completed":
            play.finish(attempt)
        else:
            play.give_up(attempt, "outcome_unknown", None)
        return
    looks = play.deliver("worker", intent.key)
    _note_the_end(play, attempt, found, looks, asks)


def _note_the_end(play: _Play, attempt: int, claim: Claim, looks: str, asks: bool) -> None:
    if looks == "not_sent":
        play.records.release(claim)
        play.give_up(attempt, "not_reached", 1)
    elif looks == "unknown":
        play.records.doubt(claim)
        play.give_up(attempt, "outcome_unknown", 1 if asks else None)
    else:
        play.records.complete(claim, "sent")
        if play.cancel_when == "after":
            play.cancel()
        play.finish(attempt)


def _ask(play: _Play, attempt: int) -> None:
    _with_record(play, attempt, asks=True)


def _wait(play: _Play, attempt: int) -> None:
    _with_record(play, attempt, asks=False)


def _finish_first(play: _Play, attempt: int) -> None:
    play.finish(attempt)


def _nothing(play: _Play) -> None:
    pass


def _mail_of(play: _Play) -> str:
    return derive_event_id("mail", _OWNER, str(play.job))


def _record_and_relay(play: _Play) -> None:
    """Make sure that a finished job has its mail in the outbox, and let a relay send what is due."""
    if play.state == "succeeded":
        _record(play, "report", _mail_of(play))
    _relay(play)


def _record(play: _Play, text: str, event_id: str, compensates: str | None = None) -> None:
    with play.outbox.database.write() as db:
        play.outbox.record(
            db, "mails", text, event_id=event_id, ordering_key=f"job-{play.job}", compensates=compensates
        )


def _relay(play: _Play) -> None:
    batch = play.outbox.claim(lease_s=_LEASE_S)
    if batch is None:
        return
    verdicts = []
    for message in batch.messages:
        looks = play.deliver("relay", message.event_id, message.payload.strip('"'))  # a death leaves the batch unmarked
        kind: Literal["sent", "refused", "not_tried"] = "sent" if looks == "sent" else "refused"
        verdicts.append(Delivery(message, "not_tried" if looks == "not_sent" else kind))
    if play.cancel_when == "after" and play.state == "succeeded":
        play.cancel()
    play.outbox.mark(batch, verdicts)


_PLANS: Final[dict[str, tuple[_Work, Callable[[_Play], None], bool]]] = {
    "plain_retry": (_plain, _nothing, False),
    "idempotency_key": (_with_key, _nothing, True),
    "status_query": (_ask, _nothing, False),
    "wait_for_a_person": (_wait, _nothing, False),
    "outbox_alone": (_finish_first, _record_and_relay, False),
    "outbox_and_dedupe": (_finish_first, _record_and_relay, True),
}
"""For each plan: what an attempt does, what is done after it, and whether the service keeps keys."""


# After the commit ------------------------------------------------------------------------------------


def _unrecorded(scene: Scene) -> dict[str, Any]:
    """The process dies when the job has ended and its mail is in no outbox yet; the next ones find the receipt."""
    scene.begin("死在提交与入箱之间 / it dies between the commit and the outbox")
    with ExitStack() as stack:
        play = _Play(stack, (), "never", True)
        play.scene = scene
        _end_the_job(play)
        play.say("worker", "dies", "")
        for who in ("second process", "third process"):
            play.now += _ROUND_S
            play.say(who, "records the mail of every finished job", "")
            _record_and_relay(play)
        rows = play.outbox.database.row("SELECT count(*) FROM outbox")[0]
        return {"mails_when_it_died_before_the_outbox": len(play.service.mailbox), "rows_of_two_recordings": rows}


def _withdrawn(scene: Scene) -> dict[str, Any]:
    """The job has ended and its mail still waits: it can be taken back."""
    scene.begin("已提交、未发出：撤回 / committed and not yet sent: taken back")
    with ExitStack() as stack:
        play = _Play(stack, (), "never", True)
        play.scene = scene
        _end_the_job(play)
        _record(play, "report", _mail_of(play))
        play.cancel()
        play.outbox.withdraw(_mail_of(play))
        play.say("caller", "withdraws the mail", play.outbox.status(_mail_of(play))["status"])
        _relay(play)
        return {"mails_when_withdrawn_in_time": len(play.service.mailbox), "job_when_withdrawn": play.state}


def _corrected(scene: Scene) -> dict[str, Any]:
    """The mail is out: it cannot be taken back, and a correction that is asked for three times is sent once."""
    scene.begin("已发出：只能更正 / sent: only a correction is left")
    with ExitStack() as stack:
        play = _Play(stack, (), "never", True)
        play.scene = scene
        _end_the_job(play)
        _record_and_relay(play)
        try:
            play.outbox.withdraw(_mail_of(play))
            withdrawal = "withdrawn"
        except OutboxError as error:
            withdrawal = error.code
        play.say("caller", "wants the mail back", withdrawal)
        for _ in range(3):
            _record(play, "correction", derive_event_id("correction", _OWNER, str(play.job)), _mail_of(play))
        play.say("caller", "asks for a correction three times", "one row")
        _relay(play)
        return {"withdrawal_after_the_send": withdrawal, "mailbox_after_the_correction": play.service.mailbox}


def _end_the_job(play: _Play) -> None:
    attempt = play.jobs.claim(play.job, now=play.now, lease=_LEASE_S)
    assert attempt is not None
    play.finish(attempt)


GROUP: Final = Group(
    mail_experiment,
    title="报表之后发邮件 / a mail after the report",
    target="mail service",
    text="""\
练习 12：邮件发出之后、本地提交之前崩溃，为什么唯一回执不能保证不重发？回执在自己的数据库里，邮件在别人的系统里，没
有一个事务同时包住两者。直接重试时，回执只有 {receipts_when_plain_retry_died} 份，邮件却有
{mails_when_plain_retry_died} 封。

需要邮件服务配合的方案：所有尝试带同一个键，由服务在自己的事务里去重；或者先查询状态再决定。状态查询挡不住网络把同一
封信送两次，键可以。无法确认时的保守方案：记为 `outcome_unknown`，不自动重发，等人或对账来裁定；代价是有的邮件要等人
看过才算数。发件箱把不可返回点移到作业的提交：提交之前取消，不会有邮件；提交之后、发出之前还能撤回；发出之后只能更正。
只用发件箱仍会重复，要加上接收方去重。没有一种组合是 exactly-once：是至少送达一次，加上只有一次效果。

Exercise 12: the receipt is in our database and the mail in somebody else's system, and no transaction covers both.
With plain retry there is {receipts_when_plain_retry_died} receipt, and there are {mails_when_plain_retry_died}
mails. With the service's help: one key on all attempts, which the service keeps in the transaction of its own
effect, or a status query before anything is sent again. The query does not help when the network delivers twice;
the key does. Conservative: the outcome is recorded as unknown, nothing is sent again by a machine, and a person or
a reconciliation settles it. The outbox moves the point of no return to the commit of the job: before it a cancel
means no mail, after it a mail that still waits can be taken back, and one that is out can only be corrected. An
outbox alone repeats; with a receiver that drops what it knows there is one effect. No combination is exactly-once.
""",
    tables=("mails", "job_says"),
)
