"""Secrets: what is taken out, what only looks like one, and how often either goes wrong."""

from __future__ import annotations

import json
import string
import sysconfig
import unittest
from itertools import cycle, islice
from pathlib import Path

from chapter10.companions.tools.redaction import REDACTED, redact_secrets

MIXED = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
FORMATS = (
    ("AKIA", "A3B5C7D9", 16), ("ASIA", "A3B5C7D9", 16), ("ghp_", MIXED, 36), ("gho_", MIXED, 36), ("ghu_", MIXED, 36),
    ("ghs_", MIXED, 36), ("ghr_", MIXED, 36), ("github_pat_", MIXED + "_", 82), ("glpat-", MIXED, 20),
    ("glsa_" + "aB3d" * 8 + "_", HEX, 8), ("xoxb-", "0123456789-", 40), ("xapp-1-", MIXED, 50), ("npm_", MIXED, 36),
    ("pypi-", MIXED + "-", 120), ("sk-", MIXED, 48), ("sk-proj-", MIXED + "_-", 60), ("sk-ant-api03-", MIXED + "-", 90),
    ("sk_live_", MIXED, 24), ("rk_test_", MIXED, 24), ("whsec_", MIXED, 32), ("AIza", MIXED + "-", 35),
    ("ya29.", MIXED + "_", 60), ("GOCSPX-", MIXED, 28), ("SG." + "aB3d" * 5 + "ab.", MIXED, 43), ("SK", HEX, 32),
    ("hf_", MIXED, 34), ("dop_v1_", HEX, 64), ("shpat_", HEX, 32), ("dapi", HEX, 32), ("123456789:AA", MIXED + "_", 33),
    ("hvs.", MIXED, 90), ("gsk_", MIXED, 52), ("lin_api_", MIXED, 40), ("secret_", MIXED, 43),
    ("eyJ" + "aB3d" * 6 + ".eyJ" + "aB3d" * 9 + ".", MIXED + "-_", 43),
)  # fmt: skip
"""Published forms of keys: how each begins, of what it goes on, and for how many characters. None is a real one."""
SURROUNDINGS = ("{}", "key {} is used", "X={}", '{{"a":"{}"}}', "https://example.org/?k={}&page=2", "({})\n")


def key(start: str, alphabet: str, length: int) -> str:
    return start + "".join(islice(cycle(alphabet[7:] + alphabet[:7]), length))


class Secrets(unittest.TestCase):
    """What is taken out."""

    def test_common_forms_of_secrets_are_replaced(self) -> None:
        """Names stay, values go, JSON stays JSON.

        Claims: T6-006.
        """
        table = {
            '{"password":"a\\"b","x":1}': '{"password":"[redacted]","x":1}',
            '{"raw":"{\\"api_key\\": \\"abc\\"}"}': '{"raw":"{\\"api_key\\": \\"[redacted]\\"}"}',
            "Authorization: Bearer abc.def": "Authorization: [redacted]",
            '-H "Authorization: token 1234abcd"': '-H "Authorization: [redacted]"',
            "sent with bearer abcdefgh12345": "sent with bearer [redacted]",
            "AWS_SECRET_ACCESS_KEY=abc/def+1": "AWS_SECRET_ACCESS_KEY=[redacted]",
            "api_key=abc&page=2": "api_key=[redacted]&page=2",
            "GITHUB_TOKEN=a1b2c3 SLACK_TOKEN=zz": "GITHUB_TOKEN=[redacted] SLACK_TOKEN=[redacted]",
            "PGPASSWORD=abc MYSQL_PWD=x1 psql": "PGPASSWORD=[redacted] MYSQL_PWD=[redacted] psql",
            "accessToken='a b'": "accessToken='[redacted]'",
            "password: hunter2": "password: [redacted]",
            "password: 12345678": "password: [redacted]",
            'token = "abc-123 "\ntoken = "abc-123"': 'token = "abc-123 "\ntoken = "[redacted]"',
            "client_secret: 8f7d9a": "client_secret: [redacted]",
            "postgres://user:pa-ss@host/db": "postgres://user:[redacted]@host/db",
            "://:x@": "://:[redacted]@",
            "token=x": "token=[redacted]",
            "key sk-abcdefghijklmnop!": "key [redacted]!",
            "-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----": "-----BEGIN RSA PRIVATE KEY-----"
            "[redacted]-----END RSA PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\ncut off": "-----BEGIN PRIVATE KEY-----[redacted]",
            "password=" + "a" * 99 + ", x": "password=[redacted], x",
            "\u0130 PASSWORD=hunter2": "\u0130 PASSWORD=[redacted]",
        }
        for text, expected in table.items():
            with self.subTest(text=text):
                self.assertEqual(redact_secrets(text), expected)
        self.assertEqual(json.loads(redact_secrets('{"token":"a","n":[1]}')), {"token": REDACTED, "n": [1]})

    def test_no_published_form_of_a_key_passes(self) -> None:
        """Each of 35 forms in six surroundings; what stands around it stays. Claims: T6-006."""
        self.assertEqual((len(FORMATS), len(SURROUNDINGS)), (35, 6))
        for form in FORMATS:
            for around in SURROUNDINGS:
                text = around.format(key(*form))
                cleaned = redact_secrets(text)
                with self.subTest(text=text):
                    self.assertNotIn(key(*form)[-12:], cleaned)
                    head, tail = around.format("|").split("|")
                    self.assertTrue(cleaned.startswith(head) and cleaned.endswith(tail))

    def test_a_text_that_begins_a_secret_everywhere_is_read_once(self) -> None:
        """Heads of web tokens without an end, names in names, backslashes without a quotation mark take no hours."""
        for text, expected in (
            ("eyJ-" * 50_000, "eyJ-" * 50_000),
            ("eyJaaaaaaaa-" * 20_000 + ".", "eyJaaaaaaaa-" * 20_000 + "."),
            ('password=\\"' + "\\" * 300_000, 'password=\\"[redacted]'),
            ("-----BEGIN PRIVATE KEY-----" * 9_000, "-----BEGIN PRIVATE KEY-----[redacted]"),
        ):
            with self.subTest(text=text[:12]):
                self.assertEqual(redact_secrets(text), expected)
        self.assertLess(len(redact_secrets("token=" * 50_000)), 50_000 * 6)
        self.assertEqual(redact_secrets('token=\\"a\\\\b\\\\\\", c'), 'token=\\"[redacted]\\\\\\", c')
        self.assertEqual(redact_secrets("x-eyJhbGciOiJI.eyJzdWIiOiIx.abc"), "x-[redacted]")


class NoSecrets(unittest.TestCase):
    """What stays."""

    def test_what_only_looks_like_a_secret_stays(self) -> None:
        """Cursors, counts, prose, types, code and templates are not eaten."""
        for text in (
            '{"next_page_token":"abc","nextToken":"abc","max_tokens":5}',
            '{"token":{"type":"string"},"password":"string","secret":""}',
            "def login(token: str, password: str = None) -> None:",
            "login(token=token, password=self.password, api_key=key)",
            "password = getpass.getpass('Password: ')",
            "token = self[0]\npassword = auth[2]",
            "secret=$SECRET password={password} token=<your token> key=*****",
            "asia-northeast1 asiapacific, a basic introduction, basic auth, npm_config_registry",
            "the secret of life",
            "keys: a, b",
            "https://example.org/a:b",
            "https://user:password@example.org",
            "task-abcdefghijklmnop",
            "sk-fading-circle-something",
            "disk-abcdefghijklmnop1234",
            "a basic idea",
            "PWD=/srv/x OLDPWD=/srv",
            "monkey: a1b2c3",
            '{"subtoken": "a1b2c3"}',
        ):
            with self.subTest(text=text):
                self.assertEqual(redact_secrets(text), text)

    def test_the_sources_of_the_standard_library_stay(self) -> None:
        """At most one file in a hundred is changed; it was one of 658 where this was measured."""
        top = Path(sysconfig.get_path("stdlib"))
        others = {"test", "tests", "idle_test", "site-packages", "__pycache__"}
        files = [path for path in top.rglob("*.py") if not others.intersection(path.relative_to(top).parts)]
        self.assertGreater(len(files), 300)
        changed = [path for path in files if _is_changed(path.read_text(encoding="utf-8", errors="replace"))]
        self.assertLessEqual(len(changed) * 100, len(files), changed)


def _is_changed(text: str) -> bool:
    return redact_secrets(text) != text


if __name__ == "__main__":
    unittest.main()
