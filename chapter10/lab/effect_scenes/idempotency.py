"""The group `idempotency`: which calls are one intent, and what a crash, a doubt and a late holder may do.

Source: the document on interruption, section 5 (claims I4-002, I4-035 to I4-051, I4-095, I4-097).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from chapter10.companions.effects.idempotency import (
    PAYMENT,
    QUERY,
    Claim,
    CompletedWithoutValue,
    FailedFinal,
    IdempotencyError,
    IdempotencyStore,
    Intent,
    NotExecuted,
    Verdict,
    intent_key,
    make_intent,
    ttl_for,
)
from chapter10.lab.evidence.evidence import Group, Scene
from chapter10.lab.evidence.virtual_time import VirtualLoop, run_virtual

__all__ = ["GROUP", "idempotency_experiment"]

_LEASE_S: Final = 30
_PAY: Final = {"order": "order-7", "amount_cents": 1000, "note": "thank you"}


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Bank:
    """Makes charges and remembers them by the caller's key, so that it can be asked."""

    def __init__(self) -> None:
        self.charges: list[str] = []

    def charge(self, key: str) -> dict[str, Any]:
        self.charges.append(key)
        return {"charge": len(self.charges)}


def idempotency_experiment(scene: Scene) -> dict[str, Any]:
    """Name intents, let holders die at three moments, settle a doubt, and end one call in every way."""
    return {
        "intents": run_virtual(_intents),
        **_keys(),
        "crashes": _crashes(scene),
        **_late_holder(scene),
        "ends": run_virtual(_ends),
        **_lifetimes(),
    }


# Key and fingerprint -------------------------------------------------------------------------------


async def _intents(loop: VirtualLoop) -> list[dict[str, Any]]:
    """Calls after a first payment: what is the same intent, what another one, what a conflict."""
    cases: tuple[tuple[str, str, str, Mapping[str, Any], dict[str, Any]], ...] = (
        ("the first call", "pay", "alice", _PAY, {"key": "order-7"}),
        ("the same again", "pay", "alice", _PAY, {"key": "order-7"}),
        ("the same key, another amount", "pay", "alice", _PAY | {"amount_cents": 2000}, {"key": "order-7"}),
        ("another order", "pay", "alice", _PAY | {"order": "order-8"}, {"key": "order-8"}),
        ("the same key of another owner", "pay", "bob", _PAY, {"key": "order-7"}),
        ("the same key for another action", "query", "alice", _PAY, {"key": "order-7"}),
        ("named by its fields", "pay", "alice", _PAY, {"fields": ["order", "amount_cents"]}),
        (
            "the same fields, other words",
            "pay",
            "alice",
            _PAY | {"note": "thanks"},
            {"fields": ["order", "amount_cents"]},
        ),
        ("with the trace id as a field", "pay", "alice", _PAY | {"trace_id": "t-1"}, {}),
        ("with a float", "pay", "alice", _PAY | {"amount": 10.0}, {}),
    )
    bank, rows = _Bank(), []
    with IdempotencyStore(clock=loop.time, call_later=loop.call_later) as store:
        for case, namespace, owner, arguments, name in cases:
            before = len(bank.charges)
            shown = {"key": "", "fingerprint": ""}
            try:
                intent = make_intent(namespace, arguments, owner=owner, **name)
                shown = {"key": intent.key[:8], "fingerprint": intent.fingerprint[:8]}

                async def pay(key: str = intent.key) -> dict[str, Any]:
                    return bank.charge(key)

                await store.execute_once(namespace, arguments, pay, owner=owner, **name)
                code = "charged" if len(bank.charges) > before else "replayed"
            except IdempotencyError as error:
                code = error.code
            rows.append({"call": case, "namespace": namespace, "owner": owner, **shown, "answer": code})
    return rows


def _keys() -> dict[str, Any]:
    """A key does not change with the order of the fields, nor with how an accent is written."""
    other_order = dict(reversed(list(_PAY.items())))
    return {
        "key_in_another_order_is_equal": intent_key("pay", _PAY) == intent_key("pay", other_order),
        "key_of_a_composed_accent_is_equal": intent_key("pay", {"name": "caf\u00e9"})
        == intent_key("pay", {"name": "cafe\u0301"}),
        "true_and_1_are_equal": intent_key("pay", {"amount": True}) == intent_key("pay", {"amount": 1}),
    }


# Crashes -------------------------------------------------------------------------------------------


def _crashes(scene: Scene) -> list[dict[str, Any]]:
    """A holder dies; after its lease somebody repeats the request, and a doubt is settled by asking the bank."""
    rows = []
    scene.whose_states = "记录走过的状态 / the states that the records went through"
    for title, charged, repeatable, asks in (
        ("死在扣款之前 / dies before the charge, nobody can ask", False, False, False),
        ("死在扣款之后、记录之前 / dies between charge and record, nobody can ask", True, False, False),
        ("同上，可以查询 / the same, and the bank can be asked", True, False, True),
        ("死在扣款之前，可以查询 / dies before the charge, and the bank can be asked", False, False, True),
        ("可重复的调用 / a repeatable call: it is taken over", True, True, False),
    ):
        scene.begin(title)
        clock, bank = _Clock(), _Bank()
        intent = make_intent("pay", _PAY, owner="alice", key="order-7")
        with IdempotencyStore(clock=clock) as store:
            states = ["absent"]

            def follow(why: str, states: list[str] = states, store: Any = store, intent: Intent = intent) -> None:
                state = store.look(intent).state
                if state != states[-1]:
                    scene.transitions.append((states[-1], state, why))
                    states.append(state)

            first = _take(scene, store, clock, "first", intent, repeatable)
            assert isinstance(first, Claim)
            follow("claim")
            if charged:
                _say(scene, clock, "first", "charges and dies", str(bank.charge(intent.key)))
            else:
                _say(scene, clock, "first", "dies")
            clock.now = 10.0
            during = _take(scene, store, clock, "second", intent, repeatable)
            clock.now = float(_LEASE_S)
            follow("the lease is over")
            after = _take(scene, store, clock, "second", intent, repeatable)
            if not isinstance(after, Claim) and asks:
                found = Verdict("done", {"charge": 1}) if intent.key in bank.charges else Verdict("not_done")
                store.settle(intent, found, fence=after.fence)
                _say(scene, clock, "second", "asks the bank and settles", found.kind)
                follow(f"settled: {found.kind}")
                again = _take(scene, store, clock, "second", intent, repeatable)
            else:
                again = after
            if isinstance(again, Claim):
                follow("claim")
                value = bank.charge(intent.key)
                store.complete(again, value)
                follow("complete")
                _say(scene, clock, "second", "charges and completes", str(value))
            rows.append(
                {
                    "case": title.split(" / ")[1],
                    "during_the_lease": "taken" if isinstance(during, Claim) else during.state,
                    "after_the_lease": f"taken, fence {after.fence}" if isinstance(after, Claim) else after.state,
                    "record_at_the_end": store.look(intent).state,
                    "requests_to_the_bank": len(bank.charges),
                    "distinct_keys_at_the_bank": len(set(bank.charges)),
                }
            )
    return rows


def _take(scene: Scene, store: IdempotencyStore, clock: _Clock, who: str, intent: Intent, repeatable: bool) -> Any:
    found = store.claim(intent, lease_s=_LEASE_S, repeatable=repeatable)
    answer = f"claim, fence {found.fence}" if isinstance(found, Claim) else found.state
    _say(scene, clock, who, "claims order-7", answer)
    return found


def _say(scene: Scene, clock: _Clock, who: str, what: str, answer: str = "") -> None:
    scene.now = clock.now
    scene.note(who, what, answer)


def _late_holder(scene: Scene) -> dict[str, Any]:
    """A holder that was thought dead comes back after another one took over."""
    scene.begin("迟到的持有者 / a late holder")
    clock = _Clock()
    intent = make_intent("rates", {"day": 7}, key="day-7")
    codes = []
    with IdempotencyStore(clock=clock) as store:
        late = _take(scene, store, clock, "first", intent, True)
        clock.now = float(_LEASE_S)
        current = _take(scene, store, clock, "second", intent, True)
        for what, verb in (("completes", store.complete), ("releases", None)):
            try:
                verb(late, "old") if verb is not None else store.release(late)
                code = "stored"
            except IdempotencyError as error:
                code = error.code
            codes.append(code)
            _say(scene, clock, "first", f"comes back and {what}", code)
        store.complete(current, "new")
        _say(scene, clock, "second", "completes", "completed")
        value = store.look(intent).value
    return {"late_holder_is_told": codes, "fences": [late.fence, current.fence], "value_that_counts": value}


# How a call ends -----------------------------------------------------------------------------------


async def _ends(loop: VirtualLoop) -> list[dict[str, Any]]:
    """One call that ends in each way, and a second one under the same key."""
    rows = []
    with IdempotencyStore(clock=loop.time, call_later=loop.call_later) as store:
        for case, error, value in (
            ("a value", None, {"paid": True}),
            ("the value None", None, None),
            ("a value that is no JSON", None, {1, 2}),
            ("surely nothing was done", NotExecuted("connection_refused"), None),
            ("refused for good", FailedFinal("card_declined"), None),
            ("the answer was lost", TimeoutError(), None),
            ("cancelled", asyncio.CancelledError(), None),
        ):
            calls = [0]

            async def pay(calls: list[int] = calls, error: BaseException | None = error, value: Any = value) -> Any:
                calls[0] += 1
                if error is not None:
                    raise error
                return value

            answers = []
            for _ in range(2):
                try:
                    await store.execute_once("pay", {"case": case}, pay, key=case)
                    answers.append("value")
                except (CompletedWithoutValue, FailedFinal, NotExecuted, IdempotencyError) as refused:
                    answers.append(refused.code)
                except (TimeoutError, asyncio.CancelledError) as failed:
                    answers.append(type(failed).__name__)
            state = store.look(make_intent("pay", {"case": case}, key=case)).state
            rows.append(
                {"ends_by": case, "first": answers[0], "second": answers[1], "calls": calls[0], "record": state}
            )
    return rows


def _lifetimes() -> dict[str, Any]:
    """How long results live, and what is refused at set-up."""
    try:
        with IdempotencyStore() as store:
            store.claim(make_intent("pay", {}, key="k"), ttl_s=2 * PAYMENT.retry_window_s - 1)
        too_short = "taken"
    except IdempotencyError as error:
        too_short = error.code
    return {
        "lifetime_of_a_payment_s": ttl_for(PAYMENT.retry_window_s),
        "lifetime_of_a_query_s": ttl_for(QUERY.retry_window_s),
        "one_second_less_than_twice_the_window": too_short,
    }


GROUP: Final = Group(
    idempotency_experiment,
    title="幂等 / idempotency",
    target="record",
    text="""\
键由业务意图决定，不由请求决定：同键同参数是重放，同键改参数是 `key_conflict`，别的所有者、别的动作互不相干；
trace_id 之类每次都变的字段在入口就被拒绝。持有者死在扣款前后，从外面看是一样的：租约到期证明不了什么，记录变成
`unknown`，盲目重跑被挡住，直到查询对方或由人裁定。可重复的调用由更高的 fence 接管，迟到的旧持有者什么也改不了。保存
结果失败，不会让效果再发生一次。

The key follows the intent and not the request: same key and same arguments is a replay, other arguments are a
`key_conflict`, another owner or action is another matter, and a field that changes with each transmission is
refused. Whether a holder died before or after the charge cannot be seen from outside: the end of a lease proves
nothing, the record becomes `unknown` and blocks a blind second run until the bank, or a person, says what happened.
A repeatable call is taken over with a higher fence, and the late holder changes nothing. An effect is not made
again because its value could not be stored. None of this is exactly-once: it is one effect a key, or a doubt that
somebody settles.
""",
    tables=("intents", "crashes", "ends"),
)
