"""A TCP proxy that can lose what a server answers: the connection breaks after the server did as it was told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

Heard = Callable[[bytes], bool]


def never(_: bytes) -> bool:
    return False


class Proxy:
    """Passes everything on until it hears what it was told to cut at; each cut is made once."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        self._target = (parts.hostname or "", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = f"{parts.username}@" if parts.username else ""
        self.dsn = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
        self.cuts = 0
        self._asked: Heard = never  # cut off whoever asks this, when the server has answered
        self._answered: Heard = never  # cut off who would hear this
        self._at_once: Heard = never  # cut off whoever asks this, before the server can have answered
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer_to(self, text: bytes) -> None:
        self._asked = lambda data: text in data

    def lose_answer_with(self, text: bytes) -> None:
        self._answered = lambda data: text in data

    def hang_up_after(self, text: bytes) -> None:
        """The server gets the question; nobody waits for its answer."""
        self._at_once = lambda data: text in data

    def go_silent(self) -> None:
        """Every connection stays, and nothing comes through any more: a network that swallows packets."""
        self._flowing.clear()

    def close(self) -> None:
        self._flowing.set()
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [client, server]
            doomed = threading.Event()
            threading.Thread(target=self._ask, args=(client, server, doomed), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client, doomed), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        while (data := receive(client)) and self._flowing.wait():
            if self._once("_asked", data):
                doomed.set()
            send(server, data)
            if self._once("_at_once", data):
                cut(client)
                return  # the server is not told: it goes on with what it was asked
        cut(server)

    def _answer(self, server: socket.socket, client: socket.socket, doomed: threading.Event) -> None:
        while (data := receive(server)) and self._flowing.wait():
            if doomed.is_set() or self._once("_answered", data):
                cut(client)
                return
            send(client, data)
        cut(client)

    def _once(self, which: str, data: bytes) -> bool:
        with self._lock:
            if not getattr(self, which)(data):
                return False
            setattr(self, which, never)
            self.cuts += 1
            return True


def receive(each: socket.socket) -> bytes:
    try:
        return each.recv(1 << 20)
    except OSError:
        return b""


def send(each: socket.socket, data: bytes) -> None:
    try:
        each.sendall(data)
    except OSError:
        pass


def cut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
