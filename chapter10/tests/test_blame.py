"""What `companions.basics.blame` says of each error, and that no error of the library is forgotten."""

from __future__ import annotations

import asyncio
import errno
import http.client
import importlib
import pkgutil
import socket
import ssl
import unittest
import urllib.error
from email.message import Message
from typing import Final

from chapter10.canonical import CodedError
from chapter10.companions.basics import blame as table
from chapter10.companions.basics.blame import Blame, blame, in_doubt, may_be_done
from chapter10.companions.effects.idempotency import (
    FailedFinal,
    IdempotencyError,
    InProgressError,
    LeaseLost,
    NotExecuted,
    NotRecorded,
    OutcomeUnknown,
)
from chapter10.companions.effects.messages import PermanentRefusal, TransportDown
from chapter10.companions.interruption.budget import BudgetExhausted, Outcome, RunCancelled, ToolTimedOut
from chapter10.companions.interruption.cancellation import ToolCancelled
from chapter10.companions.retrying.circuit_breaker import CircuitOpenError
from chapter10.companions.retrying.retry import ConnectFailed, ConnectTimedOut, ReadTimedOut
from chapter10.database import StoreError
from chapter10.tests.support import TOP

ROOMS: Final = ("chapter10.canonical", "chapter10.database", "chapter10.jobs", "chapter10.companions")


def status(code: int) -> urllib.error.HTTPError:
    """What `urllib` raises for an answer with this status."""
    return urllib.error.HTTPError("http://host", code, "", Message(), None)


class WhoseItIs(unittest.TestCase):
    """One table: whose, reached, applied, again."""

    def assert_blamed(self, error: BaseException, said: str) -> None:
        """Compare with `whose reached applied again`, the two truths as + and -."""
        found = blame(error)
        marks = f"{found.whose} {'-+'[found.reached]} {found.applied} {'-+'[found.again]}"
        self.assertEqual(marks, said, repr(error))

    def test_our_own_giving_up_is_nobodys_failure(self) -> None:
        """A cancel, a budget that is spent, another circuit that is open, a mistake: the other side did nothing."""
        for error, said in (
            (ToolCancelled("user"), "caller + maybe -"),
            (ToolCancelled("user", (1,)), "caller + yes -"),
            (RunCancelled(), "caller + maybe -"),
            (asyncio.CancelledError(), "caller + maybe -"),
            (KeyboardInterrupt(), "caller + maybe -"),
            (BudgetExhausted("t", 5, 200), "caller - no -"),
            (IdempotencyError("budget_exhausted"), "caller - no -"),
            (CircuitOpenError(30.0), "caller - no -"),
            (ToolTimedOut(Outcome("t", "timed_out_stopped")), "caller + maybe +"),
            (ToolTimedOut(Outcome("t", "late_value", 1, returned=True)), "caller + yes +"),
            (ReadTimedOut(whole_limit=False), "caller + maybe +"),
            (ConnectTimedOut(whole_limit=False), "caller - no +"),
            (TypeError(), "caller + maybe -"),
            (IdempotencyError("bad_input"), "caller + maybe -"),
        ):
            self.assert_blamed(error, said)

    def test_an_attempt_that_was_not_made_is_known_as_such(self) -> None:
        """No connection, no name, no route: nobody was reached, and only a lost route leaves a doubt."""
        for error, said in (
            (ConnectionRefusedError(), "there - no +"),
            (ConnectFailed(), "there - no +"),
            (ConnectTimedOut(), "there - no +"),
            (TransportDown("unreachable"), "there - no +"),
            (NotExecuted("refused"), "there - no +"),
            (socket.gaierror(-3, "temporary"), "there - no +"),
            (ssl.SSLCertVerificationError("expired"), "there - no -"),
            (OSError(errno.EHOSTUNREACH, "no route"), "there - maybe +"),
            (OSError(errno.ENETUNREACH, "no network"), "there - maybe +"),
            (urllib.error.URLError(ConnectionRefusedError()), "there - no +"),
            (urllib.error.URLError("unknown host"), "there - maybe +"),
            (OSError(errno.EMFILE, "too many files"), "here - no +"),
            (StoreError("store_busy", "locked"), "here - no +"),
        ):
            self.assert_blamed(error, said)

    def test_an_attempt_without_a_clear_answer_may_have_been_applied(self) -> None:
        """A time-out, a lost connection, an answer that breaks off, an error that nobody knows."""
        for error, said in (
            (TimeoutError(), "there + maybe +"),
            (ReadTimedOut(), "there + maybe +"),
            (ReadTimedOut(True, (1,)), "there + yes +"),
            (ToolTimedOut(Outcome("t", "timed_out_stopped", own_limit=True)), "there + maybe +"),
            (ConnectionResetError(), "there + maybe +"),
            (http.client.RemoteDisconnected(""), "there + maybe +"),
            (http.client.IncompleteRead(b""), "there + maybe +"),
            (asyncio.IncompleteReadError(b"", 4), "there + maybe +"),
            (ssl.SSLEOFError(), "there + maybe +"),
            (status(503), "there + maybe +"),
            (status(429), "there + maybe +"),
            (status(501), "there + maybe -"),
            (urllib.error.URLError(TimeoutError()), "there + maybe +"),
            (RuntimeError("503"), "there + maybe -"),
            (OSError(), "there + maybe -"),
        ):
            self.assert_blamed(error, said)

    def test_a_refusal_is_the_requests(self) -> None:
        """The other side answered, did nothing, and will not another time."""
        for error in (PermanentRefusal("gone"), FailedFinal("declined"), status(404)):
            self.assert_blamed(error, "request + no -")

    def test_our_own_records_are_not_the_other_side(self) -> None:
        """A store that fails, an effect that is done or in doubt, somebody else at work."""
        for error, said in (
            (StoreError("store_unavailable", "full"), "here + maybe -"),
            (NotRecorded(1), "here + yes -"),
            (LeaseLost(), "here + maybe -"),
            (OutcomeUnknown("k", 1), "here - maybe -"),
            (InProgressError("k"), "here - maybe +"),
        ):
            self.assert_blamed(error, said)

    def test_a_group_is_the_worst_of_its_leaves(self) -> None:
        """A leaf that may have been applied leaves the doubt; one that goes no better again ends it."""
        refused, timed_out = ConnectionRefusedError(), TimeoutError()
        for leaves, said in (
            ((refused, refused), "there - no +"),
            ((refused, timed_out), "there + maybe +"),
            ((ValueError(), refused), "there + maybe -"),
            ((BudgetExhausted("t", 0, 1), CircuitOpenError(1.0)), "caller - no -"),
            ((FailedFinal("declined"), CircuitOpenError(1.0)), "request + no -"),
            ((NotRecorded(1), FailedFinal("declined")), "here + maybe -"),
            ((NotRecorded(1), NotRecorded(2)), "here + yes -"),
        ):
            self.assert_blamed(ExceptionGroup("outer", [ExceptionGroup("inner", leaves)]), said)

    def test_one_question_says_whether_it_may_be_done(self) -> None:
        """Only a proof by each leaf is a no; our own busy store proves nothing about what was done before."""
        never: tuple[BaseException, ...] = (ConnectionRefusedError(), CircuitOpenError(1.0), BudgetExhausted("t", 0, 1))
        for error in (*never, NotExecuted("checked"), ExceptionGroup("", [ConnectFailed(), ConnectFailed()])):
            self.assertFalse(may_be_done(error), repr(error))
        for error in (
            ConnectionResetError(),
            ValueError(),
            asyncio.CancelledError(),
            StoreError("store_busy", ""),
            ExceptionGroup("", [ConnectFailed(), TimeoutError()]),
        ):
            self.assertTrue(may_be_done(error), repr(error))

    def test_one_question_says_whether_a_failed_write_is_in_doubt(self) -> None:
        """A lost answer, a lost record, a late value, a doubt of before, alone or among others; a plain error not."""
        for error in (
            ConnectionResetError(),
            OutcomeUnknown("k", 1),
            InProgressError("k"),
            NotRecorded(1),
            LeaseLost(),
            ToolCancelled("user", (1,)),
            ReadTimedOut(True),
            ToolTimedOut(Outcome("t", "late_value", 1, returned=True, own_limit=True)),
            ExceptionGroup("", [ValueError(), TimeoutError()]),
        ):
            self.assertTrue(in_doubt(error), repr(error))
        for plain in (ValueError(), ToolCancelled("user"), ConnectFailed(), FailedFinal("declined"), RuntimeError()):
            self.assertFalse(in_doubt(plain), repr(plain))

    def test_every_error_of_the_library_has_a_row(self) -> None:
        """None is judged as an error of an unknown kind, and no row names a class that is not there."""
        for found in pkgutil.walk_packages([str(TOP / "chapter10")], "chapter10."):
            if found.name.startswith(ROOMS):
                importlib.import_module(found.name)
        for name in table._ROWS:
            module, _, kind = name.rpartition(".")
            self.assertEqual(getattr(importlib.import_module(module), kind).__module__, module)
        waiting: list[type[BaseException]] = [CodedError]
        unknown = []
        while waiting:
            kind_of_error = waiting.pop()
            waiting += kind_of_error.__subclasses__()
            names = {f"{kind.__module__}.{kind.__qualname__}" for kind in kind_of_error.__mro__}
            if kind_of_error.__module__.startswith(ROOMS) and not names & table._ROWS.keys():
                unknown.append(kind_of_error.__qualname__)
        self.assertEqual(["CodedError"], unknown)

    def test_an_unknown_error_is_held_against_the_other_side_and_not_trusted(self) -> None:
        """What no row knows counts as a failure that may have been applied."""
        self.assertEqual(blame(Exception()), Blame("there", reached=True, applied="maybe", again=False))
