"""What exceptions mean, and how they are written down."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import ssl
import urllib.error
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import Message as Headers
from types import SimpleNamespace
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidMessage, StoreUnavailable, VersionConflict
from holdfast.model.message import Reason
from holdfast.rules.classify import Failure, classify, describe

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Order(pydantic.BaseModel):
    card: int


def caught(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def carrying(**attributes: Any) -> Exception:
    """An exception of a client library that we have never heard of."""
    error = Exception("other side said no")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def named(name: str, *bases: type) -> Exception:
    made: Exception = type(name, bases or (Exception,), {})("x")
    return made


def reason(error: BaseException) -> Reason:
    return classify(error).reason


@pytest.mark.covers("X5")
def test_the_numbers() -> None:
    """1 to 7 and 99 as the seed has them, ours from 8 on."""
    assert [(each.value, each.name) for each in Reason] == [
        (1, "TRANSPORT_UNAVAILABLE"),
        (2, "HANDLER_EXCEPTION"),
        (3, "VALIDATION_FAILURE"),
        (4, "TIMEOUT_EXCEEDED"),
        (5, "SERIALIZATION_ERROR"),
        (6, "DEPENDENCY_FAILURE"),
        (7, "POISON_MESSAGE"),
        (8, "WORKER_VANISHED"),
        (9, "NO_HANDLER"),
        (10, "CANCELLED"),
        (11, "PAYLOAD_TOO_LARGE"),
        (12, "ID_TAKEN"),
        (99, "UNKNOWN"),
    ]


@pytest.mark.covers("W11")
@pytest.mark.parametrize(
    "error",
    [
        ConnectionError(),
        ConnectionRefusedError(),
        BrokenPipeError(),
        socket.gaierror(-2, "no such host"),
        ssl.SSLCertVerificationError("certificate"),
        OSError(errno.EHOSTUNREACH, "no route"),
        OSError(errno.ENETDOWN, "down"),
        urllib.error.URLError("no"),
        named("TransportError"),
        named("ClientConnectionError"),
        StoreUnavailable(),
    ],
    ids=repr,
)
def test_transport_unavailable(error: BaseException) -> None:
    assert reason(error) == 1


@pytest.mark.covers("W12")
@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        KeyError("id"),
        ZeroDivisionError(),
        MemoryError(),
        RecursionError(),
        FileNotFoundError(errno.ENOENT, "no such file"),
        Exception(),
        VersionConflict("s", 1, 2),
    ],
    ids=repr,
)
def test_handler_exception(error: BaseException) -> None:
    assert classify(error) == Failure(Reason.HANDLER_EXCEPTION)
    assert reason(error) == 2
    assert not classify(error).permanent


@pytest.mark.covers("W13")
@pytest.mark.parametrize(
    "error",
    [
        caught(lambda: Order.model_validate({"card": "x"})),
        caught(lambda: msgspec.json.decode(b'{"a":"x"}', type=dict[str, int])),
        InvalidMessage(),
        named("ValidationError", ValueError),
    ],
    ids=lambda error: type(error).__module__,
)
def test_validation_failure(error: BaseException) -> None:
    assert reason(error) == 3
    assert classify(error).permanent


@pytest.mark.covers("W14")
@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        socket.timeout(),  # noqa: UP041 - the old names mean the same
        asyncio.TimeoutError(),  # noqa: UP041
        OSError(errno.ETIMEDOUT, "late"),
        named("ReadTimeout", type("TimeoutException", (type("TransportError", (Exception,), {}),), {})),
        named("ConnectTimeout", type("ConnectionError", (OSError,), {}), type("Timeout", (OSError,), {})),
        named("ServerTimeoutError", type("ClientConnectionError", (Exception,), {})),
    ],
    ids=repr,
)
def test_timeout_exceeded(error: BaseException) -> None:
    assert reason(error) == 4
    assert not classify(error).permanent


@pytest.mark.parametrize(
    "call",
    [
        lambda: b"\xff".decode(),
        lambda: json.loads("{"),
        lambda: msgspec.json.decode(b"{"),
        lambda: msgspec.msgpack.decode(b"\xc1"),
    ],
)
def test_what_a_handler_cannot_decode_is_tried_again(call: Callable[[], object]) -> None:
    """It is the answer of some API, half of a page of HTML; the body of the message was decoded before."""
    assert reason(caught(call)) == 2
    assert not classify(caught(call)).permanent


STATUSES = {
    **dict.fromkeys([408, 504], 4),
    **dict.fromkeys([401, 402, 403, 407, 409, 423, 424, 425, 429, 500, 501, 502, 503, 599], 6),
    413: 11,
    **dict.fromkeys([400, 404, 405, 406, 410, 415, 418, 422, 451], 3),
    **dict.fromkeys([100, 200, 302, 399, 99, 600, 1006], 2),
}


@pytest.mark.covers("W16")
@pytest.mark.parametrize(("status", "expected"), STATUSES.items())
@pytest.mark.parametrize(
    "carry",
    [
        lambda status: {"status": status},
        lambda status: {"status_code": status},
        lambda status: {"code": status},
        lambda status: {"response": SimpleNamespace(status_code=status)},
        lambda status: {"response": SimpleNamespace(status=status)},
    ],
)
def test_http_status(status: int, expected: int, carry: Callable[[int], dict[str, Any]]) -> None:
    assert reason(carrying(**carry(status))) == expected


@pytest.mark.covers("W10")
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(404), GeneratorExit(), asyncio.CancelledError()]
)
def test_unknown(error: BaseException) -> None:
    assert reason(error) == 99


def test_only_numbers_are_statuses() -> None:
    strange = carrying(status="404", code=True, status_code=lambda: 404, response={"status": 404})
    assert reason(strange) == Reason.HANDLER_EXCEPTION


def test_declared_types_come_first_and_the_most_specific_wins() -> None:
    class Busy(ConnectionError): ...

    class VeryBusy(Busy): ...

    declared: dict[type[BaseException], Reason] = {Busy: Reason.DEPENDENCY_FAILURE, OSError: Reason.CANCELLED}
    assert classify(VeryBusy(), declared).reason == Reason.DEPENDENCY_FAILURE
    assert classify(ConnectionError(), declared).reason == Reason.CANCELLED
    assert classify(ValueError(), declared).reason == Reason.HANDLER_EXCEPTION
    assert classify(VeryBusy(), {VeryBusy: Reason.UNKNOWN, **declared}).reason == Reason.UNKNOWN
    assert classify(KeyboardInterrupt(), {BaseException: Reason.CANCELLED}).reason == Reason.CANCELLED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        ("1.5", 1.5),
        (b"7", 7),
        (30, 30),
        ("Thu, 01 Jan 2026 12:01:30 GMT", 90),
        ("Thursday, 01-Jan-26 12:00:10 GMT", 10),
        ("Thu, 01 Jan 2026 11:59:59 GMT", None),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("9" * 5000, None),
        (None, None),
    ],
)
def test_retry_after(value: object, seconds: float | None) -> None:
    headers = {"Retry-After": value}
    for error in (
        carrying(status=429, headers=headers),
        carrying(response=SimpleNamespace(status_code=503, headers=headers)),
        carrying(status=429, headers={"retry-after": value}),
    ):
        assert classify(error, {}, NOW) == Failure(Reason.DEPENDENCY_FAILURE, seconds)


def test_a_retry_after_date_needs_a_now() -> None:
    error = carrying(status=429, headers={"Retry-After": "Thu, 01 Jan 2026 12:01:30 GMT"})
    assert classify(error).retry_after is None


def test_retry_after_of_the_standard_library() -> None:
    headers = Headers()
    headers["retry-after"] = "5"
    error = urllib.error.HTTPError("http://x", 503, "no", headers, None)
    assert classify(error) == Failure(Reason.DEPENDENCY_FAILURE, 5)
    error.close()


def test_a_group_means_what_its_members_mean() -> None:
    inner = ExceptionGroup("in", [ConnectionResetError("b")])
    assert reason(ExceptionGroup("out", [ConnectionError("a"), inner])) == Reason.TRANSPORT_UNAVAILABLE
    assert reason(ExceptionGroup("out", [ConnectionError("a"), KeyError("b")])) == Reason.HANDLER_EXCEPTION
    waits = [carrying(status=429, headers={"Retry-After": each}) for each in ("5", "9", "2")]
    assert classify(ExceptionGroup("out", waits)) == Failure(Reason.DEPENDENCY_FAILURE, 9)
    declared: dict[type[BaseException], Reason] = {ExceptionGroup: Reason.UNKNOWN}
    assert classify(ExceptionGroup("out", [ConnectionError("a")]), declared).reason == Reason.UNKNOWN


def nested(depth: int) -> Exception:
    error: Exception = ConnectionError("deep")
    for _ in range(depth):
        error = ExceptionGroup("g", [error])
    return error


@pytest.mark.parametrize("error", [nested(5000), ExceptionGroup("wide", [ConnectionError()] * 5000)])
def test_huge_groups(error: Exception) -> None:
    assert reason(error) == Reason.TRANSPORT_UNAVAILABLE
    assert len(describe(error)) <= 2000


class Hostile(Exception):
    """Everything about it raises."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    @property
    def response(self) -> object:
        raise RuntimeError("no response yet")

    @property
    def headers(self) -> object:
        return SimpleNamespace(get=lambda name: 1 / 0)

    def __str__(self) -> str:
        raise RuntimeError("no text either")


def test_an_exception_that_raises_when_looked_at() -> None:
    assert classify(Hostile()) == Failure(Reason.HANDLER_EXCEPTION)
    assert describe(Hostile()) == "Hostile: (its text cannot be read)"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such customer"), "ValueError: no such customer"),
        (KeyError("id"), "KeyError: 'id'"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("a\x00b\ud800c"), "ValueError: a\ufffdb\ufffdc"),
        (
            ExceptionGroup("many", [ValueError("a"), KeyError("b")]),
            "ExceptionGroup: many (2 sub-exceptions): ValueError: a; KeyError: 'b'",
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_description(error: BaseException, text: str) -> None:
    assert describe(error) == text


def test_a_validation_error_is_described_without_the_payload() -> None:
    error = caught(lambda: Order.model_validate({"card": "4111-secret"}))
    assert "4111-secret" in str(error)
    assert describe(error).startswith("ValidationError: card: Input should be a valid integer")
    assert "4111-secret" not in describe(error)


def test_description_is_cut() -> None:
    assert describe(ValueError("x" * 5000)) == "ValueError: " + "x" * 1988
    assert describe(ValueError("x" * 5000), 20) == "ValueError: xxxxxxxx"


@given(st.text(st.characters() | st.sampled_from("\x00\ud800\udfff")), st.integers(1, 50))
def test_a_description_can_always_be_stored(text: str, limit: int) -> None:
    described = describe(ValueError(text), limit)
    assert len(described) <= limit
    assert "\x00" not in described
    described.encode()
