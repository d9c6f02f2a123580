"""Who serves metrics answers the others whatever one client does, and no client has it for long."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from holdfast.clock import MovableClock
from holdfast.errors import InvalidSettings
from holdfast.processes.exporter import CLIENT_SECONDS, CLIENTS, TOKEN_VARIABLE, listen, server, token
from tests.worker.lab import PATIENCE, until

SCRAPE = b"GET /metrics HTTP/1.0\r\n\r\n"
BEGUN = b"GET /metrics HTTP/1.0\r\nX: "  # and the rest never comes


@contextmanager
def serving(
    clock: MovableClock,
    text: Callable[[], str] = lambda: "x 1\n",
    token: str | None = None,
    address: str = "127.0.0.1:0",
) -> Iterator[int]:
    listening = listen(address, token=token)
    made = server(listening, text, clock, token)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        made.shutdown()
        thread.join(PATIENCE)
        made.server_close()


def client(port: int, said: bytes = b"") -> closing[socket.socket]:
    made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    made.sendall(said)
    return closing(made)


def answer(asking: socket.socket) -> bytes:
    """All until the other end is closed."""
    got = b""
    while piece := asking.recv(65536):
        got += piece
    return got


def is_cut(dripping: socket.socket) -> bool:
    """Drip once more, and see whether it is still taken."""
    try:
        dripping.sendall(b"A")
        dripping.settimeout(0.01)
        return dripping.recv(100) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_one_client_that_drips_holds_up_nobody() -> None:
    with serving(MovableClock()) as port, client(port, BEGUN) as dripping, client(port, SCRAPE) as asking:
        assert answer(asking).endswith(b"\r\n\r\nx 1\n")
        assert not is_cut(dripping)


def test_a_request_has_one_deadline_however_it_drips(capfd: pytest.CaptureFixture[str]) -> None:
    clock, gathered = MovableClock(), []
    with (
        serving(clock, lambda: gathered.append(1) or "x 1\n") as port,  # type: ignore[func-returns-value]
        client(port, BEGUN) as dripping,
    ):
        clock_at_rest = [is_cut(dripping) for _ in range(3)]
        clock.advance(seconds=CLIENT_SECONDS - 0.1)
        assert [*clock_at_rest, is_cut(dripping)] == [False] * 4
        clock.advance(seconds=0.2)
        until(lambda: is_cut(dripping))
    assert gathered == []  # half a question is none
    assert capfd.readouterr().err == ""


def test_threads_are_few_and_who_comes_too_late_is_answered_in_time() -> None:
    clock = MovableClock()
    before = threading.active_count()
    with serving(clock) as port, ExitStack() as dripping:
        for _ in range(2 * CLIENTS):
            dripping.enter_context(client(port, BEGUN))
        asking = dripping.enter_context(client(port, SCRAPE))
        until(lambda: threading.active_count() == before + 1 + CLIENTS)
        asking.settimeout(0.3)
        with pytest.raises(TimeoutError):
            asking.recv(1)
        asking.settimeout(PATIENCE)
        for _ in range(3):  # those before it, and some more
            clock.advance(seconds=CLIENT_SECONDS + 1)
            threading.Event().wait(0.3)
            assert threading.active_count() == before + 1 + CLIENTS
        assert answer(asking).endswith(b"x 1\n")


def test_gathering_takes_the_time_it_takes() -> None:
    """A slow database is not the client's fault."""
    clock, asked, go_on = MovableClock(), threading.Event(), threading.Event()

    def slow() -> str:
        asked.set()
        assert go_on.wait(PATIENCE)
        return "x 1\n"

    with serving(clock, slow) as port, client(port, SCRAPE) as asking:
        assert asked.wait(PATIENCE)
        clock.advance(seconds=CLIENT_SECONDS * 3)
        threading.Event().wait(0.1)  # some looks at the clock
        go_on.set()
        assert answer(asking).endswith(b"x 1\n")


def test_one_gathers_at_a_time() -> None:
    busy, most = [], []

    def text() -> str:
        busy.append(1)
        most.append(len(busy))
        threading.Event().wait(0.02)
        busy.pop()
        return "x 1\n"

    with serving(MovableClock(), text) as port:
        asking = [client(port, SCRAPE) for _ in range(CLIENTS)]
        for each in asking:
            with each as one:
                assert answer(one).endswith(b"x 1\n")
    assert most == [1] * CLIENTS


def test_an_answer_that_nobody_reads_is_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    clock = MovableClock()
    with serving(clock, lambda: "x" * 20_000_000) as port, client(port, SCRAPE) as deaf:
        assert deaf.recv(10)
        clock.advance(seconds=CLIENT_SECONDS + 1)
        threading.Event().wait(0.3)
        assert len(answer_or_reset(deaf)) < 20_000_000
    assert capfd.readouterr().err == ""


def answer_or_reset(asking: socket.socket) -> bytes:
    try:
        return answer(asking)
    except ConnectionError:
        return b""


TOKEN = "t" * 24


def asked(port: int, *headers: str, method: str = "GET") -> bytes:
    said = "".join(f"{each}\r\n" for each in headers)
    with client(port, f"{method} /metrics HTTP/1.1\r\n{said}Connection: close\r\n\r\n".encode()) as asking:
        return answer(asking)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_beyond_loopback_there_is_a_token_or_nothing_is_served(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S1."""
    with pytest.raises(InvalidSettings, match=f"{TOKEN_VARIABLE}.*--i-understand-this-is-unauthenticated"):
        listen(address)
    listen(address, token=TOKEN).close()
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        listen(address, is_open=True).close()
    assert "without a token" in caplog.text


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ((f"Authorization: Bearer {TOKEN}",), True),
        ((), False),
        (("Authorization: Bearer ",), False),
        ((f"Authorization: Bearer {TOKEN}t",), False),
        ((f"Authorization: Basic {TOKEN}",), False),
        ((f"Authorization: Bearer {TOKEN[:-1]}\u00e4",), False),
    ],
)
def test_who_does_not_know_the_token_gets_nothing(said: tuple[str, ...], taken: bool, method: str) -> None:
    gathered = []
    with serving(MovableClock(), lambda: gathered.append(1) or "x 1\n", TOKEN, "0.0.0.0:0") as port:  # type: ignore[func-returns-value]
        got = asked(port, "Host: metrics.example", *said, method=method)
    assert got.startswith(b"HTTP/1.0 200" if taken else b"HTTP/1.0 401")
    assert len(gathered) == taken
    assert taken or b"WWW-Authenticate: Bearer" in got
    assert TOKEN.encode() not in got


@pytest.mark.parametrize(
    ("host", "taken"),
    [
        ("localhost", True),
        ("localhost:9464", True),
        ("127.0.0.1:9464", True),
        ("[::1]:9464", True),
        ("[::1]", True),
        ("10.1.2.3", True),
        ("evil.example", False),
        ("evil.example:9464", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:9464", False),
    ],
)
def test_a_web_page_cannot_ask_by_a_name_of_its_own(host: str, taken: bool) -> None:
    """S3: DNS rebinding."""
    with serving(MovableClock()) as port:
        got = asked(port, f"Host: {host}")
    assert got.startswith(b"HTTP/1.0 200" if taken else b"HTTP/1.0 403")
    assert (b"x 1" in got) is taken


@pytest.mark.parametrize("short", ["x" * 23, "\u00e4" * 24, "x" * 24 + "\n"])
def test_a_token_that_is_none(monkeypatch: pytest.MonkeyPatch, short: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, short)
    with pytest.raises(InvalidSettings, match="at least 24") as refused:
        token()
    assert short not in str(refused.value)
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    assert token() is None
