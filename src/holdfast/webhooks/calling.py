"""One POST to a URL that others may control: it has a time limit, and cannot reach our own network (SSRF).

- One time limit for the whole call: DNS lookup, connection, handshake, request, response. With a limit for each read,
  a server that sends a byte now and then could hold the caller for hours.
- The name is looked up once. If any of its addresses is not a public one, the call is refused. The connection goes to
  an address that was checked, so a second answer of the name server changes nothing (DNS rebinding).
- No redirect is followed, no proxy of the environment is used, and only status and headers of the answer are read.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any, cast
from urllib.parse import SplitResult

from ..clock import Monotonic
from ..errors import HoldfastError

CONNECT_SECONDS = 5.0
UNICAST = ipaddress.ip_network("2000::/3")
NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Place = tuple[Any, ...]  # what a socket connects to


class NotPublic(HoldfastError):
    """The address of a webhook is not a public one, and that was not allowed."""


class NoAnswer(HoldfastError):
    """A call was not answered in time, or not with valid HTTP."""

    retryable = True


class Deadline:
    """The time at which a call must have ended."""

    def __init__(self, seconds: float, clock: Monotonic) -> None:
        self._until, self._clock = clock.monotonic() + seconds, clock

    def left(self) -> float:
        """Seconds that are left; TimeoutError if there are none."""
        left = self._until - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def post(
    url: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    clock: Monotonic,
    allow_private: bool = False,
) -> int:
    """The status of the answer; NotPublic or NoAnswer. `url` has a scheme, http or https, and a host."""
    until = Deadline(seconds, clock)
    assert url.hostname is not None
    is_https = url.scheme == "https"
    port = url.port or (443 if is_https else 80)
    try:
        places = look_up(url.hostname, port, until)
        if not allow_private:
            check_public(url.hostname, places)
        with (
            _connected(places, until) as plain,
            _secured(plain, url.hostname if is_https else None, until) as wire,
        ):
            connection = HTTPConnection(url.hostname, port)
            connection.default_port = 443 if is_https else 80  # the port that the header Host leaves out
            connection.sock = cast(socket.socket, _Wire(wire, until))
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("POST", path, body, {**headers, "connection": "close"})
            return connection.getresponse().status
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(type(error).__name__) from None


def look_up(host: str, port: int, until: Deadline) -> list[Place]:
    """All addresses of a host. The system's lookup has no time limit, so its thread is abandoned when time is up."""
    answer: list[list[Any] | OSError] = []

    def ask() -> None:
        try:
            answer.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.append(error if isinstance(error, OSError) else OSError(str(error)))

    thread = threading.Thread(target=ask, name="holdfast-look-up", daemon=True)
    thread.start()
    thread.join(until.left())
    if not answer:
        raise TimeoutError
    if isinstance(answer[0], OSError):
        raise answer[0]
    return [(family, place) for family, _, _, _, place in answer[0]]


def check_public(host: str, places: list[Place]) -> None:
    """NotPublic if one of the addresses is not."""
    for _, place in places:
        if not is_public(place[0]):
            raise NotPublic(
                f"{host} is {place[0]}, which is not a public address: users who may set webhooks could reach what "
                "only this network should. If this is intended, pass allow_private=True"
            )


def is_public(text: str) -> bool:
    """Whether an address is on the public internet, also when another address is embedded in it.

    >>> is_public("8.8.8.8"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1")
    (True, False, False)
    """
    try:
        found = list(_meant(ipaddress.ip_address(text.partition("%")[0])))
    except ValueError:
        return False
    return all(
        each.is_global and not each.is_multicast and (each.version == 4 or each in UNICAST) for each in found
    )


def _meant(address: Address) -> Iterator[Address]:
    """An address and those embedded in it: mapped, 6to4, Teredo and NAT64 addresses contain an IPv4 address."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
    elif address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    else:
        yield address


def _connected(places: list[Place], until: Deadline) -> socket.socket:
    last: OSError = OSError("no address")
    for family, place in places:
        wire = socket.socket(family, socket.SOCK_STREAM)
        try:
            wire.settimeout(min(CONNECT_SECONDS, until.left()))
            wire.connect(place)
            if wire.getpeername()[0] != place[0]:
                raise OSError("connected elsewhere")
            return wire
        except OSError as error:
            wire.close()
            last = error
    raise last


def _secured(plain: socket.socket, host: str | None, until: Deadline) -> socket.socket:
    if host is None:
        return plain
    plain.settimeout(until.left())  # for the whole handshake
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


class _Wire:
    """A socket on which every send and every read ends at the deadline."""

    def __init__(self, wire: socket.socket, until: Deadline) -> None:
        self._wire, self._until = wire, until

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._wire.settimeout(self._until.left())
            rest = rest[self._wire.send(rest) :]

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self._wire, self._until))

    def close(self) -> None:
        self._wire.close()


class _Incoming(io.RawIOBase):
    def __init__(self, wire: socket.socket, until: Deadline) -> None:
        self._wire, self._until = wire, until

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._wire.settimeout(self._until.left())
        return self._wire.recv_into(into)
