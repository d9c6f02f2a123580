"""Signatures of webhooks (S19, S22): right ones, two while a secret is replaced, and forgeries."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.webhooks import signing

NEW, OLD = b"n" * 24, b"o" * 24
BODY = b'{"a": 1}'


def genuine(
    keys: tuple[bytes, ...], headers: dict[str, str], body: bytes = BODY, now: float = 1000.0
) -> bool:
    return signing.is_genuine(
        keys,
        id=headers["webhook-id"],
        stamp=headers["webhook-timestamp"],
        signatures=headers["webhook-signature"],
        body=body,
        now=now,
    )


def test_the_example_of_standard_webhooks() -> None:
    (key,) = signing.keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    told = signing.signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert told == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_is_replaced_receivers_with_either_take_it() -> None:
    told = signing.headers((NEW, OLD), "m1", 1000.9, BODY)
    assert told["webhook-timestamp"] == "1000"
    assert len(told["webhook-signature"].split(" ")) == 2
    assert genuine((NEW,), told)
    assert genuine((OLD,), told)
    assert not genuine((b"x" * 24,), told)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "m2"},
        {"webhook-timestamp": "1001"},
        {"webhook-timestamp": "-1000"},
        {"webhook-timestamp": "1000.0"},
        {"webhook-timestamp": "\u0661\u0660\u0660\u0660"},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-timestamp": ""},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1a,AAAA"},
        {"webhook-signature": "\u00e4"},
    ],
)
def test_forgeries(change: dict[str, str]) -> None:
    told = signing.headers((NEW,), "m1", 1000, BODY)
    assert genuine((NEW,), told)
    assert not genuine((NEW,), told | change)


@given(body=st.binary(max_size=40))
def test_another_body_is_not_genuine(body: bytes) -> None:
    told = signing.headers((NEW,), "m1", 1000, BODY)
    assert genuine((NEW,), told, body) == (body == BODY)


@pytest.mark.parametrize(("now", "taken"), [(700, True), (699, False), (1300, True), (1301, False)])
def test_what_was_sent_long_ago_is_a_replay(now: float, taken: bool) -> None:
    assert genuine((NEW,), signing.headers((NEW,), "m1", 1000, BODY), now=now) is taken


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ("x" * 23, "at least 24 bytes"),
        ("", "at least 24 bytes"),
        ("whsec_" + base64.b64encode(b"x" * 23).decode(), "at least 24 bytes"),
        ("whsec_not base64!", "Base64"),
        ([], "one or two"),
        (["x" * 24, "y" * 24, "z" * 24], "one or two"),
        (["x" * 24, "short"], "at least 24 bytes"),
    ],
)
def test_secrets_that_are_refused(secret: str | list[str], told: str) -> None:
    with pytest.raises(InvalidSettings, match=told) as refused:
        signing.keys(secret)
    assert "xxx" not in str(refused.value)


def test_secrets_that_are_long_enough() -> None:
    assert signing.keys("x" * 24) == (b"x" * 24,)
    assert signing.keys("ä" * 12) == ("ä".encode() * 12,)
    assert signing.keys(("whsec_" + base64.b64encode(NEW).decode(), "o" * 24)) == (NEW, OLD)
