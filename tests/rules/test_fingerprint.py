"""One cause, one fingerprint; another cause, another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.message import Reason
from holdfast.rules.fingerprint import cause, fingerprint

SAME = [
    ("KeyError: 'order-17'", "KeyError: 'order-18'"),
    (
        "ConnectionError: 10.0.0.7:5432 refused after 31 ms",
        "ConnectionError: 10.0.0.9:6432 refused after 4.5 ms",
    ),
    ("OSError: [Errno 2] no such file: '/tmp/a/b.txt'", "OSError: [Errno 2] no such file: '/var/lib/c'"),
    ("OSError: /tmp/a/b.txt is gone", "OSError: /srv/data/17/x is gone"),
    ("X: 550e8400-e29b-41d4-a716-446655440000 unknown", "X: 0e37df36-f698-11e6-8dd4-cb9ced3df976 unknown"),
    ("X: pointer 0xdeadbeef", "X: pointer 0x7f00aa01"),
    ("X: at 2026-11-16T01:02:03.5+00:00", "X: at 1999-01-01T00:00:00Z"),
    ("X: 1, 2, 3 are missing", "X: 4 are missing"),
    ("X: GET https://a.example/x?y=1 said no", "X: GET http://b.example/z said no"),
    ("X: a@b.example bounced", "X: someone.else@c.example bounced"),
    ('X: the value "a" is wrong', 'X: the value "bcd" is wrong'),
    (
        "Poison: handed out as often as allowed (4). The last worker never came back.",
        "Poison: handed out as often as allowed (10). The last worker never came back.",
    ),
]
DIFFERENT = [
    ("KeyError: 'a'", "ValueError: 'a'"),
    ("ValueError: no such customer", "ValueError: no such order"),
    ("X: can't reach it, isn't there", "X: can't open it, isn't there"),
    ("Error1: x", "Error2: x"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_differs_from_message_to_message_does_not_count(one: str, other: str) -> None:
    assert cause(one) == cause(other)
    assert fingerprint(one, 2) == fingerprint(other, 2)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_type_or_another_sentence_is_another_cause(one: str, other: str) -> None:
    assert fingerprint(one, 2) != fingerprint(other, 2)


def test_another_reason_is_another_cause() -> None:
    assert fingerprint("X: no", Reason.HANDLER_EXCEPTION) != fingerprint("X: no", Reason.DEPENDENCY_FAILURE)


@given(st.text(max_size=3000), st.integers(0, 10**9))
def test_any_text_has_one(text: str, number: int) -> None:
    found = fingerprint(text, 99)
    assert len(found) == 12
    assert int(found, 16) >= 0
    assert fingerprint(f"X: order {number} failed", 2) == fingerprint("X: order 1 failed", 2)
