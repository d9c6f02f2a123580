"""Secrets in the texts of errors: what is masked, what is left, and that masking costs little whatever the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, InvalidSettings
from holdfast.rules.redact import MASK, kept, redact, redactor

SECRETS = {
    "postgresql://shop:hunter2@db/shop": "hunter2",
    "redis://:hunter2@cache:6379/0": "hunter2",
    "amqp://u:p%40ss-word@mq/%2f": "p%40ss-word",
    "host=db password=hunter2 user=x": "hunter2",
    "host=db password='hunter two' user=x": "hunter two",
    "{'password': 'hunter2', 'id': 3}": "hunter2",
    '{"client_secret":"hunter2"}': "hunter2",
    "DB_PASSWORD=hunter2": "hunter2",
    "https://api/x?api_key=hunter2&page=3": "hunter2",
    "Authorization: Bearer hunter2hunter2": "hunter2",
    "authorization: Basic c2hvcDpodW50ZXIy": "c2hvcDpodW50ZXIy",
    "401 for Bearer abcdef.ghijkl-mno": "ghijkl",
    "no such key AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a": "16C7e42F",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc": "4eC39HqLyjWDarjtT1zdp7dc",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3": "eyJzdWIi",
    "card 4111 1111 1111 1111 declined": "1111 1111",
    "card 5500005555555559 declined": "5500005555555559",
    "signed with wJalrXUtnXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYabcd": "wJalrXUtn",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----": "MIIE",
    "DETAIL:  Failing row contains (1, null, {\"iban\": \"DE00\"}).": "DE00",
}  # fmt: skip

PLAIN = [
    "KeyError: 'token'",
    "the token has expired",
    "order 1234567890123 is missing",
    "card 4111-1111-1111-1112",  # not a card: the last digit is wrong
    "message 0190f3c4-7e2a-7c3b-9d4e-0123456789ab",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "/usr/local/lib/python3.11/site-packages/psycopg/Connection_pool_manager.py",
    "at 1763254903123456 us",
    "postgresql://shop@db/shop",
    "RolledBack: Message was completed in a transaction that was rolled back",
]

HOSTILE = [
    "a" * 100_000, "password" * 12_000, "password=" * 12_000, "password='" * 12_000, "eyJ" * 30_000,
    "eyJaaaaa." * 10_000,     "1 " * 50_000, "4" * 100_000, "http://a:" * 10_000,
    "x://" + "a:" * 50_000, '"' * 100_000, "bearer " * 15_000,
    "-----BEGIN PRIVATE KEY-----" * 4_000, "a+.-" * 25_000, "sk-" * 30_000, "token   " * 12_000,
    "password=bearer " * 6_000,
]  # fmt: skip


@pytest.mark.parametrize(("text", "secret"), SECRETS.items())
def test_what_is_masked(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert MASK in redact(text)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_left(text: str) -> None:
    assert redact(text) == text


pieces = st.sampled_from(
    [*SECRETS, *PLAIN, MASK, "=", ":", " ", "'", '"', "@", "password", "\n", "-", "4111"]
)
texts = st.one_of(st.text(max_size=300), st.lists(pieces | st.text(max_size=5), max_size=12).map("".join))


@given(texts)
def test_twice_is_once_and_nothing_grows(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert len(once) <= len(text) + len(MASK) * (len(text) // 3 + 1)


@given(texts, st.integers(1, 200))
def test_what_is_kept_is_short_and_storable(text: str, limit: int) -> None:
    stored = kept(text, limit)
    assert len(stored) <= limit
    assert "\0" not in stored
    stored.encode()


@pytest.mark.alone
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12])
def test_a_hostile_text_takes_no_longer_than_a_friendly_one(text: str) -> None:
    begun = time.perf_counter()
    redact(text)
    assert time.perf_counter() - begun < 3.0  # 0.1 s here; quadratic would be minutes


def test_a_secret_at_the_cut_is_masked_whole() -> None:
    text = "x" * 1990 + " password=hunter2hunter2"
    assert "hunter" not in kept(text, 2000)
    assert kept(text, 2000).endswith(" password=")


def test_known_values_the_longest_first() -> None:
    masked = redactor(["correct horse", "correct horse battery"])
    assert masked("it was correct horse battery, yes") == f"it was {MASK}, yes"
    assert redactor(["correct horse"])("correct horses") == "correct horses"


def test_patterns_and_functions() -> None:
    masked = redactor([re.compile(r"DE\d{20}"), lambda text: text.replace("Alice", "A.")])
    assert masked("DE00000000000000000000 of Alice, password=x") == f"{MASK} of A., password={MASK}"


def test_a_redactor_that_fails_lets_nothing_through() -> None:
    def broken(text: str) -> str:
        raise ValueError(text)

    assert "hunter2" not in redactor([broken])("hunter2")


@pytest.mark.parametrize("rules", [["short"], [3], [None]])
def test_what_cannot_be_a_rule_is_refused_before_anything_runs(rules: list[object]) -> None:
    with pytest.raises(InvalidSettings, match="redact="):
        Holdfast("sqlite:///:memory:", redact=rules)


def test_the_password_of_the_database_is_known() -> None:
    app = Holdfast("postgresql://shop:correct%20horse@db/shop")
    assert app.redact("refused: correct horse / correct%20horse") == f"refused: {MASK} / {MASK}"
    assert "horse" not in repr(app)
    assert "horse" not in repr(app.store)
