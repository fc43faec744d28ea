"""Name what is to happen once: the key of an intent, its fingerprint, and how long anybody may repeat it.

    intent       what somebody wants to happen once: `(namespace, owner, key)` names it
    key          given by the caller, or a hash of declared stable fields; never of a transmission
    fingerprint  hash of all arguments; the same key with another one is a conflict
    lifetime     how long a result is replayed: at least twice the time in which anybody may retry

N1  The key does not depend on the order of the fields, nor on how an accent is written, in a caller's own key either;
    no two ways of cutting a text meet, and `1`, `1.0` and `true` are never one.
N2  A field that belongs to one transmission (`trace_id`, `request_id`, a time stamp) is refused at any depth: a key
    with one would be new for each retry, and would protect nothing. With a key of the caller's own, content is content.
N3  Namespace and owner are no part of the key's text but columns beside it, so that no separator can be forged.

What it does not do: it stores nothing; see `companions.effects.idempotency`, which has all these names too.
Source: claims I4-002, I4-035 to I4-041, I4-049, I4-051, T6-028, T6-033 with the readings X-07, X-08, X-48.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chapter10.canonical import CodedError, canonical, text_digest
from chapter10.companions.basics.arguments import Arguments

__all__ = [
    "MAX_INTENT_BYTES",
    "MAX_SECONDS",
    "MAX_TEXT",
    "PAYMENT",
    "QUERY",
    "SHARED_OWNER",
    "IdempotencyError",
    "Intent",
    "Lifetime",
    "document_key",
    "intent_key",
    "make_intent",
    "number",
    "refuse",
    "seconds",
    "text_of",
    "ttl_for",
    "whole",
]

MAX_SECONDS: Final = 10 * 366 * 86_400
"""The longest lifetime, lease or wait."""
MAX_TEXT: Final = 200
"""Characters of a namespace, an owner, a key, a holder or an error code; at least one."""
MAX_INTENT_BYTES: Final = 64 * 1024
"""Bytes of the canonical form of all arguments."""
SHARED_OWNER: Final = "-"
"""The owner of a call that names none."""

_INTENT_VERSION: Final = "chapter10.intent.1"

_TRACE_NAMES: Final = {"traceid", "requestid", "xrequestid", "spanid", "parentspanid", "traceparent", "tracestate"}
_TIME_NAMES: Final = {"timestamp", "ts", "now", "createdat", "updatedat", "sentat", "requestedat"}
_SEND_NAMES: Final = {"correlationid", "messageid", "attempt", "retry", "retrycount", "nonce"}
_UNSTABLE: Final = frozenset(_TRACE_NAMES | _TIME_NAMES | _SEND_NAMES)
"""Names, without case and separators, of what changes from one transmission to the next."""


class IdempotencyError(CodedError, ValueError):
    """Raised when a call cannot be granted; nothing was run and nothing was changed.

    `bad_input`, `unstable_field` (a field of one transmission, such as `trace_id`, in an intent),
    `ttl_too_short` (below twice the retry window), `key_conflict` (the key stands for other
    arguments), `budget_exhausted` (no time is left), `no_transaction`, `not_unknown` (there is nothing
    to settle, or no longer what was looked at). `reason` says more in a few words.
    """

    reason: str | None

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.reason = reason


# What is let in by this module and those that keep its rows; what is not, is `bad_input`.
_arguments: Final = Arguments(
    lambda reason: IdempotencyError("bad_input", reason), max_text=MAX_TEXT, max_seconds=MAX_SECONDS
)
refuse: Final = _arguments.refuse
text_of: Final = _arguments.text
whole: Final = _arguments.whole
number: Final = _arguments.number
seconds: Final = _arguments.seconds


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to happen once; made by `make_intent`. Four texts."""

    namespace: str
    owner: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long results of a namespace live, checked against how long somebody may retry.

    `retry_window_s` and `ttl_s` in whole seconds, `ttl_s >= 2 * retry_window_s` (I4-038, X-48).
    Raises `IdempotencyError`: `ttl_too_short`, `bad_input`.
    """

    retry_window_s: int
    ttl_s: int

    def __post_init__(self) -> None:
        whole(self.ttl_s, "ttl_s", 1, MAX_SECONDS)
        if self.ttl_s < ttl_for(self.retry_window_s):
            raise IdempotencyError("ttl_too_short", "ttl_s is below twice the retry window")


def ttl_for(retry_window_s: int) -> int:
    """Return the shortest lifetime of a result, in seconds: twice the longest retry window (I4-038)."""
    return 2 * whole(retry_window_s, "retry_window_s", 1, MAX_SECONDS)


def intent_key(namespace: str, fields: Mapping[str, Any]) -> str:
    """Return the key of an intent: 64 hex digits of SHA-256 over its stable business fields.

    `fields`: a dict of null, bool, int, str, list, dict. Floats are refused (1 and 1.0 are equal in
    Python and differ in JSON: count in the smallest unit), text is brought to NFC, and a field that
    belongs to one transmission (`trace_id`, `request_id`, a time stamp) is `unstable_field` at any depth.
    The hash covers a version tag, the namespace and each field by name, so that no two ways of cutting
    the same text meet. No time window enters it: the lifetime of the record is the window (I4-036).

    Raises `IdempotencyError`: `bad_input`, `unstable_field`. Source: I4-035, I4-040, I4-041, T6-028, T6-033.
    """
    text_of(namespace, "namespace")
    return text_digest(canonical([_INTENT_VERSION, namespace, _stable_fields(fields)]))


def document_key(namespace: str, intent: Mapping[str, Any]) -> str:
    """Return the key in the document's form, `idem:{namespace}:{32 hex}` (I4-040).

    The same bytes as there: JSON with sorted keys, `,` and `:`, non-ASCII escaped. What `intent_key`
    refuses is refused here, and a `:` in the namespace too, since two namespaces could meet. The
    document's third parameter, the lifetime, is not here: it belongs to the record and not to the name.
    Use it to find what another system has stored; new records use the full hash.

    Raises `IdempotencyError`: `bad_input`, `unstable_field`.
    """
    if ":" in text_of(namespace, "namespace"):
        refuse("a namespace of this form has no colon")
    text = json.dumps(_stable_fields(intent), sort_keys=True, separators=(",", ":"))
    return f"idem:{namespace}:{hashlib.sha256(text.encode('ascii')).hexdigest()[:32]}"


def make_intent(
    namespace: str,
    arguments: Mapping[str, Any],
    *,
    owner: str = SHARED_OWNER,
    fields: Sequence[str] | None = None,
    key: str | None = None,
) -> Intent:
    """Name what is to happen once.

    `arguments`: everything that the call is about; all of it enters the fingerprint. `key`: the
    caller's own name of the intent, such as an order number. Without it the key is `intent_key` over
    the `fields` (names among the arguments; None: all). Only with a key or with fields can the same
    intent with other arguments be seen as the conflict that it is (X-07, X-08). With a key no field is
    `unstable_field`: it is content, and one that differs on a repeat is a conflict.

    Raises `IdempotencyError`: `bad_input`, `unstable_field`.
    """
    text_of(namespace, "namespace")
    text_of(owner, "owner")
    stable = _stable_fields(arguments, named=key is not None)
    fingerprint = text_digest(canonical([_INTENT_VERSION, stable]))
    if key is not None:
        if fields is not None:
            refuse("a key and fields are two ways of naming an intent")
        return Intent(namespace, owner, text_of(unicodedata.normalize("NFC", text_of(key, "key")), "key"), fingerprint)
    return Intent(namespace, owner, intent_key(namespace, _chosen(stable, fields)), fingerprint)


# What is let in ------------------------------------------------------------------------------


def _stable_fields(fields: object, *, named: bool = False) -> dict[str, Any]:
    """Return a copy of the fields with text in NFC; without a name for them, refuse what is new on every attempt."""
    if type(fields) is not dict:
        refuse("the intent is not a dict")
    _arguments.json(fields, "the intent", MAX_INTENT_BYTES)
    stable: dict[str, Any] = _stable(fields, named)
    return stable


def _stable(value: Any, named: bool) -> Any:
    if type(value) is str:
        return unicodedata.normalize("NFC", value)
    if type(value) is float:
        refuse("a float in an intent; count in the smallest unit")
    if type(value) is list:
        return [_stable(item, named) for item in value]
    if type(value) is not dict:
        return value
    result: dict[str, Any] = {}
    for name, item in value.items():
        name = unicodedata.normalize("NFC", name)
        if not named and "".join(filter(str.isalnum, name)).casefold() in _UNSTABLE:
            raise IdempotencyError("unstable_field", "a field that changes from one transmission to the next")
        if name in result:
            refuse("two names of the intent are one in NFC")
        result[name] = _stable(item, named)
    return result


def _chosen(stable: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    if fields is None:
        return stable
    if type(fields) not in (list, tuple) or not fields or not all(type(name) is str for name in fields):
        refuse("fields are not a list of names")
    names = [unicodedata.normalize("NFC", name) for name in fields]
    if not set(names) <= set(stable):
        refuse("a declared field is not among the arguments")
    return {name: stable[name] for name in names}


PAYMENT: Final = Lifetime(retry_window_s=43_200, ttl_s=86_400)
QUERY: Final = Lifetime(retry_window_s=150, ttl_s=300)
"""The document's two examples: payments live 24 hours, content queries 5 minutes (I4-039)."""
