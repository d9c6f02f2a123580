"""A TCP proxy before a broker: it can cut every connection, at once or in the middle, swallow answers, and refuse."""

from __future__ import annotations

import contextlib
import re
import socket
import threading


class Wire:
    """Passes everything on, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"(amqps?://(?:[^@]*@)?)([^:/]+):(\d+)(/.*)?", url)
        assert found is not None, url
        self._target = (found[2], int(found[3]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{found[1]}127.0.0.1:{self.port}{found[4] or '/'}"
        self.cuts = 0
        self._is_down = False
        self._is_swallowing = False
        self._keeps_answers = False
        self._cut_after: int | None = None  # bytes towards the broker, until the answers are cut off
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self.cuts += 1
            _end(*pair)

    def cut_before_the_answer_to(self, count: int, keep_answers: bool = False) -> None:
        """The broker gets `count` more bytes, and then the connection is lost; its answers are lost from the start."""
        self._cut_after, self._keeps_answers = count, keep_answers

    def swallow_answers(self, is_swallowing: bool = True) -> None:
        """What the broker says is lost, and the connection stays."""
        self._is_swallowing = is_swallowing

    def go_down(self) -> None:
        self._is_down = True
        self.cut()

    def come_up(self) -> None:
        self._is_down = False

    def close(self) -> None:
        _end(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._is_down:
                    raise OSError
                server = socket.create_connection(self._target, 5)
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.append(pair)
            threading.Thread(target=self._carry, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._carry, args=(server, client, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, is_outward: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_outward and self._cut_after is not None:
                    data = data[: self._cut_after]
                    self._cut_after -= len(data)
                    target.sendall(data)
                    if self._cut_after == 0:
                        self._cut_after = None
                        self.cut()
                elif is_outward or not (
                    self._is_swallowing or (self._cut_after is not None and not self._keeps_answers)
                ):
                    target.sendall(data)
        _end(source, target)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
