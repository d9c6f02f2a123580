"""Sinks: what is sent and how it is signed, what is refused, and what counts as taken."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast import Alert, Holdfast, InvalidSettings
from holdfast.alerting.sinks import FunctionSink, LogSink, NotTaken
from holdfast.alerting.webhook import Webhook

NOON = datetime(2040, 5, 1, 12, 0, tzinfo=UTC)
RAISED = Alert(
    7, 7, "dead_letters", "", "raised", NOON, NOON, 120.0, 100.0, "120 deaths within a day.", {"count": 120}
)
SECRET = "a secret that nobody guesses"


class Receiver(ThreadingHTTPServer):
    """Takes webhooks; answers as it is told to."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.slow = 0.0
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((self.path, headers, body))
        time.sleep(self.server.slow)
        status, extra = self.server.answers.pop(0) if self.server.answers else (204, {})
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def webhook(receiver: Receiver, path: str = "/alerts?team=shop", **options: float) -> Webhook:
    return Webhook(receiver.url + path, SECRET, allow_http=True, allow_private=True, **options)


@pytest.mark.covers("X20")
def test_a_webhook_is_json_and_signed(receiver: Receiver) -> None:
    webhook(receiver).send(RAISED)
    ((path, headers, body),) = receiver.got
    assert path == "/alerts?team=shop"
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "number": 7,
        "episode": 7,
        "name": "dead_letters",
        "subject": "",
        "what": "raised",
        "at": "2040-05-01T12:00:00Z",
        "since": "2040-05-01T12:00:00Z",
        "value": 120.0,
        "threshold": 100.0,
        "text": "120 deaths within a day.",
        "details": {"count": 120},
    }
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_the_id_is_the_same_however_often_it_is_sent(receiver: Receiver) -> None:
    sink = webhook(receiver)
    receiver.answers = [(500, {})]
    with pytest.raises(NotTaken, match="answered 500"):
        sink.send(RAISED)
    sink.send(RAISED)
    sink.send(replace(RAISED, number=8, what="over"))
    assert [headers["webhook-id"] for _, headers, _ in receiver.got] == [
        "holdfast-alert-7",
        "holdfast-alert-7",
        "holdfast-alert-8",
    ]


def test_a_secret_in_base64(receiver: Receiver) -> None:
    key = b"0123456789abcdef0123456789abcdef"
    Webhook(
        receiver.url, f"whsec_{base64.b64encode(key).decode()}", allow_http=True, allow_private=True
    ).send(RAISED)
    ((_, headers, body),) = receiver.got
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(receiver: Receiver, status: int) -> None:
    receiver.answers = [(status, {"location": f"{receiver.url}/elsewhere"})]
    with pytest.raises(NotTaken, match=f"answered {status}"):
        webhook(receiver).send(RAISED)
    assert [path for path, _, _ in receiver.got] == ["/alerts?team=shop"]


@pytest.mark.alone
def test_nobody_waits_for_long(receiver: Receiver) -> None:
    receiver.slow = 1.0
    begun = time.monotonic()
    with pytest.raises(NotTaken, match="did not answer: TimeoutError"):
        webhook(receiver, timeout=0.1).send(RAISED)
    assert time.monotonic() - begun < 0.9


def test_nobody_there() -> None:
    with pytest.raises(NotTaken, match="did not answer: ConnectionRefusedError"):
        Webhook("http://127.0.0.1:1/", SECRET, allow_http=True, allow_private=True).send(RAISED)


@pytest.mark.parametrize(
    ("url", "secret", "told"),
    [
        ("http://example.com/x", SECRET, "not https"),
        ("ftp://example.com/x", SECRET, "must be a URL"),
        ("file:///etc/passwd", SECRET, "must be a URL"),
        ("https://", SECRET, "must be a URL"),
        ("https://example.com:99999/", SECRET, "must be a URL"),
        ("https://user:pass@example.com/", SECRET, "no user or password"),
        ("https://example.com/", "short", "at least 24"),
        ("https://example.com/", "whsec_c2hvcnQgc2VjcmV0", "at least 24"),
        ("https://example.com/", "whsec_not base 64 at all", "Base64"),
    ],
)
def test_what_cannot_be_a_webhook(url: str, secret: str, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told) as refused:
        Holdfast("sqlite:///:memory:").alert_webhook(url, secret)
    assert secret not in str(refused.value)
    assert "pass@" not in str(refused.value)


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY"])
def test_a_proxy_of_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")  # nobody is there
    monkeypatch.setenv("no_proxy", "")
    webhook(receiver).send(RAISED)
    assert [path for path, _, _ in receiver.got] == ["/alerts?team=shop"]


def test_neither_name_nor_text_shows_a_secret() -> None:
    sink = Webhook("https://Example.com:8443/services/T000/TOKEN?token=abc#part", SECRET)
    assert re.fullmatch(r"webhook https://example\.com:8443 \([0-9a-f]{8}\)", sink.name)
    assert repr(sink) == f"<{sink.name}>"
    app = Holdfast("sqlite:///:memory:")
    app.alert_webhook(sink.url, SECRET)
    with pytest.raises(InvalidSettings, match="already") as refused:
        app.alert_webhook(sink.url, SECRET)
    assert "TOKEN" not in str(refused.value)


def test_the_name_is_the_same_in_all_processes_and_another_for_another_address() -> None:
    """It is stored with what was told: a change of how it is made would tell again."""
    assert Webhook("https://example.com/a", SECRET).name == "webhook https://example.com (6a50dc85)"
    urls = (
        "https://example.com/a",
        "https://example.com/b",
        "https://example.com/a?b",
        "https://example.org/a",
    )
    assert len({Webhook(url, SECRET).name for url in urls}) == 4
    assert Webhook(urls[0], SECRET).name == Webhook(urls[0], SECRET + "2").name  # a new key is no new sink


def test_the_log_hears_both_at_the_same_level(caplog: pytest.LogCaptureFixture) -> None:
    LogSink().send(RAISED)
    LogSink().send(replace(RAISED, what="over", text="Over."))
    assert [(each.levelno, each.event, each.getMessage()) for each in caplog.records] == [  # type: ignore[attr-defined]
        (logging.WARNING, "alert.raised", "120 deaths within a day."),
        (logging.WARNING, "alert.over", "Over."),
    ]


def test_a_function_may_be_async_and_has_its_time() -> None:
    heard = []

    async def tell(alert: Alert) -> None:
        heard.append(alert.number)

    async def hang(alert: Alert) -> None:
        await asyncio.sleep(60)

    FunctionSink(tell).send(RAISED)
    assert heard == [7]
    with pytest.raises(TimeoutError):
        FunctionSink(hang, timeout=0.05).send(RAISED)
    assert FunctionSink(tell).name.endswith("test_a_function_may_be_async_and_has_its_time.<locals>.tell")
