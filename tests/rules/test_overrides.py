"""What one call asks for: written into a header and read again, whatever stands there."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.message import Reason
from holdfast.rules.overrides import HEADER, policy_of, timeout_of, written
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.retry import PROFILES, RetryPolicy

DECLARED = HandlerPolicy(retry=PROFILES["patient"])
OWN = RetryPolicy(
    attempts_max=3, base=1, cap=9, jitter=0.1, never=frozenset(),
    per_reason={Reason.TIMEOUT_EXCEEDED: RetryPolicy(attempts_max=7)},
)  # fmt: skip


def headers(text: str) -> str:
    return json.dumps({"holdfast-reply": "x", HEADER: text})


def test_what_is_written_is_read() -> None:
    text = headers(written(OWN, 2.5))
    assert policy_of(DECLARED, text).retry == OWN
    assert policy_of(DECLARED, text).refunds_max == DECLARED.refunds_max
    assert timeout_of(300.0, text) == 2.5
    assert timeout_of(300.0, headers(written(OWN, None))) == 300.0
    assert policy_of(DECLARED, headers(written(None, 2.5))) is DECLARED


@pytest.mark.parametrize(
    "text",
    [
        None, "", "{}", "no JSON", '["holdfast-call"]', '{"holdfast-call": 7}', headers("{"), headers("[]"),
        headers('{"retry": {}}'), headers('{"retry": {"attempts_max": 0, "never": []}}'),
        headers('{"retry": {"attempts_max": "x", "base": 1, "factor": 1, "cap": 1, "jitter": 0, "never": []}}'),
        headers('{"retry": {"never": [99999]}}'), headers('{"retry": {"never": 1, "per_reason": 1}}'),
        headers('{"timeout": -1}'), headers('{"timeout": "x"}'),
    ],
)  # fmt: skip
def test_what_cannot_be_read_asks_for_nothing(text: str | None) -> None:
    assert policy_of(DECLARED, text) is DECLARED
    assert timeout_of(300.0, text) == 300.0


@given(st.text())
def test_no_header_is_an_error(text: str) -> None:
    assert timeout_of(300.0, headers(text)) > 0
    assert policy_of(DECLARED, headers(text)).retry.attempts_max > 0
