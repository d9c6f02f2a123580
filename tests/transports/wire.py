"""A TCP proxy before a broker: it can cut every connection, at once or in the middle, swallow answers, and refuse.

It counts the messages that are published through it, and can cut a connection between a publish and its confirm.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time


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
        self.attempts: list[float] = []  # when somebody connected, on the monotonic clock
        self._is_down = False
        self._is_swallowing = False
        self._keeps_answers = False
        self._cut_after: int | None = None  # bytes towards the broker, until the answers are cut off
        self.published = 0  # messages that went through towards the broker
        self.cut_unconfirmed = (
            0  # connections that were cut when a publish had gone through and no answer to it
        )
        self.cuts_wanted = 0
        self.spared = 0  # times that a cut was wanted and the connection was too new for it
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

    def cut_after_a_publish(self) -> None:
        """The next connection that publishes is cut as soon as it did; the answer is lost.

        One that has not had an answer to a publish yet is spared: a client may count it as a failed attempt to connect.
        If everything goes out before that answer, the cut waits for what is published later.
        """
        with self._lock:
            self.cuts_wanted += 1

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
            self.attempts.append(time.monotonic())
            try:
                if self._is_down:
                    raise OSError
                server = socket.create_connection(self._target, 5)
                server.settimeout(None)  # the limit was for connecting: a silent connection stays
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.append(pair)
            frames = Frames()
            threading.Thread(target=self._carry, args=(client, server, frames, True), daemon=True).start()
            threading.Thread(target=self._carry, args=(server, client, frames, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, frames: Frames, is_outward: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not is_outward:
                    frames.is_answered = frames.has_published
                elif self._is_cut_at(frames, frames.publishes(data)):
                    self._lose_the_answer(data, source, target)
                    return
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

    def _is_cut_at(self, frames: Frames, published: int) -> bool:
        with self._lock:
            self.published += published
            if not published or not self.cuts_wanted:
                return False
            if not frames.is_answered:
                self.spared += 1
                return False
            self.cuts_wanted -= 1
            self.cut_unconfirmed += 1
            return True

    def _lose_the_answer(self, data: bytes, client: socket.socket, broker: socket.socket) -> None:
        """The client is gone before the broker has what it sent, so no answer can reach it."""
        _end(client)
        with contextlib.suppress(OSError):
            broker.sendall(data)
        self.cuts += 1
        _end(broker)


class Frames:
    """Reads what a client says in AMQP 0-9-1, in pieces of any size, and counts what it publishes."""

    HEADER = struct.Struct(">BHI")  # kind, channel, size of what follows before the end mark
    PUBLISH = b"\x00\x3c\x00\x28"  # class basic, method publish

    def __init__(self) -> None:
        self._left = b""
        self._is_greeted = False
        self.has_published = self.is_answered = False

    def publishes(self, data: bytes) -> int:
        self._left += data
        if not self._is_greeted:
            if len(self._left) < 8:
                return 0
            self._left, self._is_greeted = self._left[8:], True  # AMQP 0 0 9 1
        found, at = 0, 0
        while len(self._left) - at >= self.HEADER.size:
            kind, _, size = self.HEADER.unpack_from(self._left, at)
            end = at + self.HEADER.size + size + 1
            if len(self._left) < end:
                break
            body = at + self.HEADER.size
            found += kind == 1 and self._left[body : body + 4] == self.PUBLISH
            at = end
        self._left = self._left[at:]
        self.has_published |= found > 0
        return found


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
