"""A call failed: whose doing was it, was anybody reached, and may it have been done all the same?

One table answers for every error of the library, and for those of the standard library that come out of calls. Whoever
decides by an error asks here and keeps no list: a retry whether another try may help, a breaker whether the dependency
failed, a relay whether an attempt is spent, an idempotency record whether the effect may exist.

    whose     caller    our side gave up, had no time, made a mistake or did not call: the other side is not to blame
              request   the other side took note of it and will never take it
              here      our own records or our own machine failed
              there     the other side failed, or was not reached
    reached   whether an attempt was made, as far as is known; only such a one is spent
    applied   `no`, `maybe` or `yes`: whether what was asked for has been done
    again     whether the same call may go better later

What no row knows is `there`, reached, `maybe`, not again: it is held against the dependency, and nobody trusts that
nothing happened. The rows name classes by their place, since this is the floor beneath the rooms that define them; the
first class in the order of inheritance that has a row decides. Four kinds of errors know more about themselves than
their class says, and are asked: see `_told`.

What it does not do: it knows no protocol. A caller who knows the codes of a dependency decides before asking.
Source: claims I4-077, X-52.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from typing import Final, Literal

from chapter10.companions.basics.tasks import leaves

__all__ = ["Applied", "Blame", "Whose", "blame", "in_doubt", "may_be_done"]

Whose = Literal["caller", "request", "here", "there"]
Applied = Literal["no", "maybe", "yes"]


@dataclass(frozen=True, slots=True)
class Blame:
    """What an error says about the call that it ended; see the module."""

    whose: Whose
    reached: bool
    applied: Applied
    again: bool


_GAVE_UP: Final = Blame("caller", reached=True, applied="maybe", again=False)
_NOT_CALLED: Final = Blame("caller", reached=False, applied="no", again=False)
_MISTAKE: Final = _GAVE_UP
_REFUSED: Final = Blame("request", reached=True, applied="no", again=False)
_UNREACHED: Final = Blame("there", reached=False, applied="no", again=True)
_NO_WAY: Final = Blame("there", reached=False, applied="maybe", again=True)
"""The way was lost; perhaps after something had been sent."""
_NO_ANSWER: Final = Blame("there", reached=True, applied="maybe", again=True)
_FAILED: Final = Blame("there", reached=True, applied="maybe", again=False)
_BUSY_HERE: Final = Blame("here", reached=False, applied="no", again=True)
_WAITING: Final = Blame("here", reached=False, applied="maybe", again=True)
"""Another call for the same effect is at work."""
_DOUBTFUL: Final = Blame("here", reached=False, applied="maybe", again=False)
"""An earlier call may have made the effect, and this one made none."""
_NOT_KEPT: Final = Blame("here", reached=True, applied="maybe", again=False)
_DONE: Final = Blame("here", reached=True, applied="yes", again=False)

_ROWS: Final[dict[str, Blame]] = {
    # Python
    "asyncio.exceptions.CancelledError": _GAVE_UP,
    "builtins.KeyboardInterrupt": _GAVE_UP,
    "builtins.SystemExit": _GAVE_UP,
    "builtins.GeneratorExit": _GAVE_UP,
    "builtins.TypeError": _MISTAKE,
    "builtins.ValueError": _MISTAKE,  # and with it each error of ours that refuses an argument
    "builtins.LookupError": _MISTAKE,
    "builtins.AttributeError": _MISTAKE,
    "builtins.ArithmeticError": _MISTAKE,
    "builtins.AssertionError": _MISTAKE,
    "builtins.ConnectionRefusedError": _UNREACHED,
    "builtins.ConnectionError": _NO_ANSWER,
    "builtins.TimeoutError": _NO_ANSWER,
    "builtins.EOFError": _NO_ANSWER,  # `asyncio.IncompleteReadError` is one
    "socket.gaierror": _UNREACHED,
    "socket.herror": _UNREACHED,
    "ssl.SSLCertVerificationError": replace(_UNREACHED, again=False),
    "ssl.SSLEOFError": _NO_ANSWER,
    "ssl.SSLZeroReturnError": _NO_ANSWER,
    "ssl.SSLSyscallError": _NO_ANSWER,
    "ssl.SSLWantReadError": _NO_ANSWER,
    "http.client.IncompleteRead": _NO_ANSWER,
    "http.client.BadStatusLine": _NO_ANSWER,
    "urllib.error.URLError": _NO_WAY,
    # the floor
    "chapter10.database.StoreError": _NOT_KEPT,
    # interruption
    "chapter10.companions.interruption.budget.BudgetExhausted": _NOT_CALLED,
    "chapter10.companions.interruption.budget.RunCancelled": _GAVE_UP,
    "chapter10.companions.interruption.cancellation.CleanUpTimedOut": _GAVE_UP,
    "chapter10.companions.interruption.cancellation.ToolCancelled": _GAVE_UP,
    "chapter10.companions.interruption.process_stop.StopError": _NOT_KEPT,
    # retrying
    "chapter10.companions.retrying.circuit_breaker.CircuitOpenError": _NOT_CALLED,
    "chapter10.companions.retrying.retry.ConnectFailed": _UNREACHED,
    "chapter10.companions.retrying.retry.ValueRejected": _GAVE_UP,
    # effects
    "chapter10.companions.effects.idempotency.CompletedWithoutValue": _DONE,
    "chapter10.companions.effects.idempotency.FailedFinal": _REFUSED,
    "chapter10.companions.effects.idempotency.InProgressError": _WAITING,
    "chapter10.companions.effects.idempotency.NotExecuted": _UNREACHED,
    "chapter10.companions.effects.idempotency.NotRecorded": _DONE,
    "chapter10.companions.effects.idempotency.OutcomeUnknown": _DOUBTFUL,
    "chapter10.companions.effects.intent_records.LeaseLost": _NOT_KEPT,
    "chapter10.companions.effects.messages.PermanentRefusal": _REFUSED,
    "chapter10.companions.effects.messages.TransportDown": _UNREACHED,
    # tools, work
    "chapter10.companions.schemas.pattern.PatternLimit": _MISTAKE,
    "chapter10.companions.serving.task_handles.SecretError": _NOT_KEPT,
    "chapter10.companions.tools.result_store.ResultStoreError": _NOT_KEPT,
    "chapter10.companions.work.child_process.ChildFailed": _FAILED,
    "chapter10.companions.work.child_process.TemporaryChildError": _NO_ANSWER,
    "chapter10.companions.work.heartbeat.AttemptOver": _GAVE_UP,
}

_NO_WAY_CODES: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_BUSY_CODES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL})
"""This machine has no socket left: nothing was sent."""
_STATUS_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


def blame(error: BaseException) -> Blame:
    """Return whose an error is, whether anybody was reached, what may have been done, and whether to try again.

    A group is `there` as soon as one leaf is, then `here`, `request`, `caller`; reached if one is; to be tried again
    if all are; and what is neither surely done nor surely not done by all of them is `maybe`. Raises nothing.
    """
    found = [_blame(leaf) for leaf in leaves(error)]
    if len(found) == 1:
        return found[0]
    whose: tuple[Whose, ...] = ("there", "here", "request", "caller")
    applied = {each.applied for each in found}
    return Blame(
        min((each.whose for each in found), key=whose.index),
        any(each.reached for each in found),
        applied.pop() if len(applied) == 1 else "maybe",
        all(each.again for each in found),
    )


def may_be_done(error: BaseException) -> bool:
    """Return whether what was asked for may have been done: False only if every leaf is a proof that it was not.

    That our own store was busy proves nothing about what was done before it was asked. Raises nothing.
    """
    return any(found.applied != "no" or found.whose == "here" for found in map(_blame, leaves(error)))


def in_doubt(error: BaseException) -> bool:
    """Return whether a leaf says of itself that it may have been done: a lost answer, a lost record, a late value.

    Whoever tells a write as failed asks this before. What says nothing of it, a plain error of the work, is not in
    doubt here, though nobody may repeat the write for that: see `may_be_done`. Raises nothing.
    """
    found = list(map(_blame, leaves(error)))
    return any(
        each.applied == "yes" or (each.applied == "maybe" and (each.again or each.whose == "here")) for each in found
    )


def _blame(error: BaseException) -> Blame:
    kinds = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    row = next((_ROWS[kind] for kind in kinds if kind in _ROWS), _FAILED)
    return _told(error, row)


def _told(error: BaseException, row: Blame) -> Blame:
    """Return the row with what this error knows of itself: a late value, a short limit, a number, a code."""
    outcome = getattr(error, "outcome", None)
    if getattr(error, "late_value", ()) or getattr(outcome, "returned", False) is True:
        row = replace(row, applied="yes")
    if getattr(error, "whole_limit", True) is False or getattr(outcome, "own_limit", True) is False:
        return replace(row, whose="caller")  # the rest of a budget ended it, not the limit of the call
    if getattr(error, "code", None) == "budget_exhausted":
        return _NOT_CALLED
    if getattr(error, "code", None) == "store_busy":
        return _BUSY_HERE
    if isinstance(error, OSError):
        return _of_system(error, row)
    return row


def _of_system(error: OSError, row: Blame) -> Blame:
    """Return what the number of an `OSError`, the status of an `HTTPError` or the reason of a `URLError` adds."""
    status = getattr(error, "code", None)
    if type(status) is int and 400 <= status <= 599:
        return _NO_ANSWER if status in _STATUS_AGAIN else _REFUSED if status < 500 else _FAILED
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException) and reason is not error:
        return _blame(reason)
    if row is _FAILED and error.errno in _NO_WAY_CODES:
        return _NO_WAY
    return _BUSY_HERE if row is _FAILED and error.errno in _BUSY_CODES else row
