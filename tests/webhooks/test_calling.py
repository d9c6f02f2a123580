"""A call to an address that somebody else controls: where it may go (S16), and how long it may take (S18)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.alerting.sinks import NotTaken
from holdfast.alerting.webhook import Webhook
from holdfast.clock import SystemClock
from holdfast.webhooks import calling
from holdfast.webhooks.calling import NoAnswer, NotPublic, is_public, post
from tests.alerting.test_sinks import RAISED, SECRET

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8",
          "64:ff9b::8.8.8.8", "2002:0808:0808::1"]  # fmt: skip
PRIVATE = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
    "240.0.0.1", "255.255.255.255", "::", "::1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:0001::1", "2002:0a00:0001::", "fe80::1",
    "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1", "2001::1", "100::1", "4000::1",
    "fd00:ec2::254", "nonsense", "",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_on_the_internet(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not(address: str) -> None:
    assert not is_public(address)


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does with each connection whatever it is told."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=attend, args=(client,), daemon=True).start()

    def attend(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            talk(client)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.close()


def answer(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def call(port: int, host: str = "127.0.0.1", *, seconds: float = 5.0, allow_private: bool = True) -> int:
    url = urlsplit(f"http://{host}:{port}/x?y=1")
    return post(url, b"{}", {}, seconds=seconds, clock=SystemClock(), allow_private=allow_private)


def names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """What the name server says; each question is kept."""
    asked = []

    def ask(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(calling.socket, "getaddrinfo", ask)
    return asked


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.216.34", "10.0.0.1"), ("169.254.169.254",)])
def test_a_name_that_leads_into_our_network_is_refused(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    reached: list[int] = []
    with serving(lambda _: reached.append(1)) as port:
        names(monkeypatch, *addresses)
        with pytest.raises(NotPublic, match=r"not a public address.*allow_private=True"):
            call(port, "hooks.example", allow_private=False)
        sink = Webhook(f"https://hooks.example:{port}/", SECRET)
        with pytest.raises(NotTaken, match="was not called"):
            sink.send(RAISED)
    assert reached == []


def test_the_name_is_asked_for_once_and_the_connection_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answer) as port:
        asked = names(monkeypatch, "127.0.0.1")
        assert call(port, "hooks.example") == 204
    assert asked == ["hooks.example"]


def test_the_host_is_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = server.accept()
        with client:
            heard.append(client.recv(65536))
            answer(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    names(monkeypatch, "127.0.0.1")
    port = server.getsockname()[1]
    call(port, "hooks.example")
    thread.join(5)
    server.close()
    first, *headers = heard[0].decode().split("\r\n")
    assert first == "POST /x?y=1 HTTP/1.1"
    assert f"Host: hooks.example:{port}" in headers


def trickle(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
    for _ in range(100):
        time.sleep(0.05)
        client.sendall(b"a")


def continues(client: socket.socket) -> None:
    for _ in range(100):
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


@pytest.mark.alone
@pytest.mark.parametrize("talk", [trickle, continues, lambda client: time.sleep(5)])
def test_one_time_limit_for_the_whole_call(talk: Callable[[socket.socket], None]) -> None:
    with serving(talk) as port:
        begun = time.monotonic()
        with pytest.raises(NoAnswer, match="TimeoutError"):
            call(port, seconds=0.3)
        assert time.monotonic() - begun < 1.5


@pytest.mark.alone
def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(calling.socket, "getaddrinfo", lambda *_, **__: free.wait(5) or [])
    begun = time.monotonic()
    with pytest.raises(NoAnswer, match="TimeoutError"):
        call(1, "hooks.example", seconds=0.2)
    free.set()
    assert time.monotonic() - begun < 1.5


@pytest.mark.parametrize(
    "said",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500, b"HTTP/1.1 " + b"2" * 100_000],
)
def test_answers_that_are_none(said: bytes) -> None:
    with serving(lambda client: client.sendall(said)) as port, pytest.raises(NoAnswer):
        call(port)


def test_nothing_of_a_long_answer_is_read() -> None:
    sent: list[int] = []

    def endless(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n")
        with suppress(OSError):
            for _ in range(10_000):
                client.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent.append(1)

    with serving(endless) as port:
        assert call(port) == 200
    assert len(sent) < 1000  # what fits into the buffers of the sockets
