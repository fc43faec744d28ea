"""Secrets are taken out of a text before anybody reads it who should not know them.

A secret is recognised in one of two ways, and never by a word alone
    S1  By its own form: a published prefix, behind a boundary, with as many characters of the right kind as such
        a key has (`AKIA` and sixteen), a private key in its frame, a web token, a password in an address.
    S2  By a name before it and by its value: the name begins at a boundary (`GITHUB_TOKEN`, `accessToken`, not
        `next_page_token`), and the value is written like a value: in quotation marks, behind a bare `=`, or with a
        digit among its letters. `token: str`, `token=token` and `password = getpass()` are code and stay.
    S3  The name, the frame and the quotation marks stay, so that JSON stays JSON.
    S4  A text is read once for each beginning of a secret: no text takes longer than its length allows.

Measured, and repeated by a test: of 35 published forms of keys, each in six surroundings, none passes. Of the 658
sources of the standard library (Python 3.11, without its tests) one is changed, where an example has a password.
It is the last line, and no reason for a handler to return what nobody should read: a password of letters alone
behind a colon, or in a sentence, passes.

Source: the document on the tool registry, its path of a result (claim T6-006).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["REDACTED", "redact_secrets"]

REDACTED: Final = "[redacted]"
_SHORTEST: Final = len("://:x@")
_LONG: Final = 64
"""A value of more characters is no word, whatever else it is."""
_Span = tuple[int, int]


def _form(form: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{form})(?![A-Za-z0-9_])", re.ASCII)


_FORMS: Final = tuple(
    (anchors.split(), _form(form))
    for anchors, form in (
        ("AKIA ASIA", r"A[KS]IA[A-Z0-9]{16}"),
        ("ghp_ gho_ ghr_ ghs_ ghu_", r"gh[oprsu]_[A-Za-z0-9]{16,255}"),
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{20,255}"),
        ("glpat- gldt- glrt- glcbt- glptt-", r"gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_-]{16,200}"),
        ("glsa_", r"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}"),
        ("xox", r"xox[abeoprs]-(?=[A-Za-z-]{0,60}\d)[A-Za-z0-9-]{10,250}"),
        ("xapp-", r"xapp-\d-[A-Za-z0-9-]{10,250}"),
        ("npm_", r"npm_[A-Za-z0-9]{30,64}"),
        ("pypi-", r"pypi-[A-Za-z0-9_-]{40,250}"),
        ("sk-", r"sk-(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{16,250}|sk-[A-Za-z0-9]{16,250}"),
        ("sk_live_ sk_test_ rk_live_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,250}"),
        ("whsec_", r"whsec_[A-Za-z0-9+/]{20,100}={0,2}"),
        ("AIza", r"AIza[A-Za-z0-9_-]{35}"),
        ("ya29.", r"ya29\.[A-Za-z0-9_-]{20,250}"),
        ("GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,40}"),
        ("SG.", r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"),
        ("SK", r"SK[0-9a-f]{32}"),
        ("hf_", r"hf_[A-Za-z0-9]{30,64}"),
        ("dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
        ("shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
        ("dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
        ("hvs. hvb. hvr.", r"hv[brs]\.[A-Za-z0-9_-]{20,250}"),
        ("ATATT3", r"ATATT3[A-Za-z0-9_=-]{30,250}"),
        ("lin_api_", r"lin_api_[A-Za-z0-9]{30,64}"),
        ("PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
        ("ntn_", r"ntn_[A-Za-z0-9]{30,64}"),
        ("secret_", r"secret_[A-Za-z0-9]{43}"),
        ("NRAK-", r"NRAK-[A-Z0-9]{27}"),
        ("pplx-", r"pplx-[A-Za-z0-9]{40,64}"),
        ("gsk_", r"gsk_[A-Za-z0-9]{40,64}"),
        ("xai-", r"xai-[A-Za-z0-9]{60,100}"),
        ("r8_", r"r8_[A-Za-z0-9]{30,50}"),
        ("AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{50,64}"),
        ("eyJ", r"eyJ[A-Za-z0-9_-]{8,500}\.[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{0,1000}"),
    )
)
_BOT: Final = re.compile(r"(?<=\d):AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_])", re.ASCII)
"""S1: what the beginning of a key is, and its whole form. Every part is bounded."""

_FRAME: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_ADDRESS: Final = re.compile(r"://[^/\s:@]{0,200}:([^/\s@]{1,200})@")
_SCHEME: Final = re.compile(
    r"(?i:bearer|basic)\s{1,9}(?=[A-Za-z._~+/-]{0,60}[0-9=])[A-Za-z0-9._~+/=-]{8,4000}", re.ASCII
)
_HEADER: Final = re.compile(r"(?i:bearer|basic|token|digest|negotiate|apikey)\s{1,9}[^\s\"'\\]{1,8000}")

_BEHIND: Final = re.compile(r"(\\*[\"'])?[ \t]{0,9}(?:=>|:=|[:=])[ \t]{0,9}")
"""What stands between a name and its value; the quotation mark closes the name, as in JSON."""
_ESCAPED: Final = re.compile(r"\\+\"((?:[^\\]|\\++(?!\"))*+)")
_QUOTED: Final = (re.compile(r"\"((?:[^\"\\\n]|\\.)*+)"), re.compile(r"'((?:[^'\\\n]|\\.)*+)"))
_BARE: Final = re.compile(r"[^\s,;&)}\]\"'`<>|\\]{1,8000}")
_KEY_OF: Final = re.compile(
    r"(?i:api|secret|private|access|account|auth|encryption|signing|master|shared|session)[_\- ]?\Z"
)
_TOKEN_OF: Final = re.compile(r"(?i:access|refresh|auth|id|session|api|bearer|csrf|bot|deploy)[_\- ]?\Z")
_CURSOR: Final = re.compile(
    r"(?i:page|next|prev|previous|continuation|cursor|sync|resume|change|start|end|stop|pad|eos|bos|unk|mask|sep|cls)"
    r"[_\- ]?\Z"
)
_NAMES: Final = (
    "authorization",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "credentials",
    "token",
    "key",
    "pwd",
)
_NO_VALUES: Final = frozenset(
    [
        *("str", "string", "int", "integer", "bytes", "float", "number", "bool", "boolean", "any", "object", "dict"),
        *("list", "none", "null", "nil", "undefined", "true", "false", "optional", "required", "text", "self", "type"),
        *("password", "passwd", "passphrase", "secret", "token", "key", "pass", "user", "hidden", "redacted"),
    ]
)
_TEMPLATE: Final = re.compile(r"\$|\{|<|%|\[redacted\]|\(|[*.\-_]+\Z|x{3,}\Z|\\n|#")
_CODE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|[A-Za-z_]+\d{0,2}\Z|[\d._+-]+\Z", re.ASCII)
_DIGITS: Final = re.compile(r"\d{4,}\Z")
_CALL: Final = re.compile(r"[(\[]")


def redact_secrets(text: str) -> str:
    """Return `text` with the secrets that are recognised replaced by `[redacted]`; the name of a secret stays."""
    if len(text) < _SHORTEST:
        return text
    spans = sorted({*_by_form(text), *_by_name(text)})
    if not spans:
        return text
    parts, end = [], 0
    for first, last in spans:
        if first >= end:
            parts += [text[end:first], REDACTED]
        end = max(end, last)
    return "".join([*parts, text[end:]])


def _by_form(text: str) -> Iterator[_Span]:
    """Find what is a secret by itself (S1)."""
    for anchors, form in _FORMS:
        for anchor in anchors:
            for place in _places(text, anchor):
                if found := form.match(text, place):
                    yield found.span()
    for place in _places(text, ":AA"):
        if found := _BOT.match(text, place):
            yield found.span()
    end = 0
    for place in _places(text, "-----BEGIN "):
        if place >= end and (found := _FRAME.match(text, place)):
            end = text.find("-----END ", found.end())
            end = len(text) if end < 0 else end
            yield found.end(), end
    for place in _places(text, "://"):
        if (found := _ADDRESS.match(text, place)) and not _is_no_value(found[1]):
            yield found.span(1)


def _by_name(text: str) -> Iterator[_Span]:
    """Find what a name before it says to be a secret, if it is written like a value (S2)."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that is two in lower case
        lowered = "".join(sign if sign not in _CAPITALS else sign.lower() for sign in text)
    for scheme in ("bearer", "basic"):
        for place in _places(lowered, scheme):
            if _begins(text, place) and (found := _SCHEME.match(text, place)):
                yield place + len(scheme) + 1, found.end()
    for name in _NAMES:
        end = 0
        for place in _places(lowered, name):
            if place < end or not (behind := _BEHIND.match(text, place + len(name))):
                continue  # what was taken out already is not read again (S4)
            span = None
            if name == "authorization":
                quoted = text[behind.end() : behind.end() + 1] in ("'", '"')
                span = found.span() if (found := _HEADER.match(text, behind.end() + quoted)) else None
            if span is None and (strength := _strength(text, place, name)):
                span = _value(text, place, behind, strong=strength > 1)
            if span is not None:
                end = span[1]
                yield span


_CAPITALS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _places(text: str, anchor: str) -> Iterator[int]:
    place = text.find(anchor)
    while place >= 0:
        yield place
        place = text.find(anchor, place + len(anchor))


def _begins(text: str, place: int) -> bool:
    """Whether a word begins here: after what is no letter or digit, or with a capital after a small letter."""
    before = text[place - 1 : place]
    return not before.isalnum() or (text[place].isupper() and not before.isupper())


def _strength(text: str, place: int, name: str) -> int:
    """Say what a name is worth: 0 is no name of a secret, 1 a word that programs use otherwise too, 2 a secret."""
    before = text[max(0, place - 16) : place]
    if name == "key":
        return 2 if _KEY_OF.search(before) else 0
    if name in ("password", "passwd"):
        return 2
    if name == "pwd":  # alone it is a folder
        return 2 if before.endswith("_") else 0
    if not _begins(text, place) or (name == "token" and _CURSOR.search(before)):
        return 0
    return 1 if name == "token" and not _TOKEN_OF.search(before) else 2


def _value(text: str, place: int, behind: re.Match[str], *, strong: bool) -> _Span | None:
    """Return where the value behind a name stands if it is a secret."""
    at = behind.end()
    if found := _ESCAPED.match(text, at):
        return None if _is_no_value(found[1]) else found.span(1)
    for quoted in _QUOTED:
        if found := quoted.match(text, at):
            value, closing = found[1], text[found.end() : found.end() + 1]
            if _is_no_value(value) or (closing != text[at] and (closing or not value[0].isalnum())):
                return None  # the mark does not open a value, it closes what stands before
            if behind[1] or strong or (len(value) > 3 and not _CODE.match(value) and " " not in value):
                return found.span(1)
            return None
    found = _BARE.match(text, at)
    if found is None or _is_no_value(found[0]):
        return None
    value, after = found[0], text[found.end() : found.end() + 1]
    if len(value) > _LONG or (strong and _DIGITS.match(value) and behind[0].strip() != "="):
        return found.span()
    if behind[0] == "=" and (after in ("", "&", ";") or after.isspace()) and text[place : behind.start()] != value:
        return found.span()  # as in a shell, an address or a line of a log
    mixed = len(value) >= 6 and any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return found.span() if mixed and (strong or not _CODE.match(value)) and not _CALL.search(value) else None


def _is_no_value(value: str) -> bool:
    """Whether this is a type, a name, a template or nothing."""
    return not value.strip() or value.casefold() in _NO_VALUES or _TEMPLATE.match(value) is not None
