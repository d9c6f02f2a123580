"""The process that serves metrics to Prometheus, for all worker processes of one supervisor together.

Each worker process counts in memory that this one can read (`telemetry/sheet.py`), even after the worker has died. The
supervisor binds the address first of all, so an address that cannot be bound is refused at once.

Beyond loopback a client must send the token (HOLDFAST_METRICS_TOKEN, as `Authorization: Bearer ...`). On loopback
without a token only requests for `localhost` or an IP address are answered: a web page whose name was made to
resolve to this machine (DNS rebinding) sends its own name as the host.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, NoReturn

from ..clock import Clock
from ..errors import InvalidSettings
from ..telemetry.exposition import CONTENT_TYPE
from ..telemetry.logs import Log, configure
from ..telemetry.sheet import Sheet
from .loading import load_app

if TYPE_CHECKING:
    from ..app import Holdfast

log = Log("holdfast.supervisor")

CLIENTS = 8  # at once, each in a thread; others wait to be accepted
CLIENT_SECONDS = 5.0  # for the request, and again for the response, however slow the client is
LOOK_SECONDS = 0.1  # while all threads are busy
TOKEN_VARIABLE, TOKEN_BYTES = "HOLDFAST_METRICS_TOKEN", 24
OVERRIDE = "--i-understand-this-is-unauthenticated"


def token() -> str | None:
    """The token that clients must send; None: none is needed. Not a command-line argument: other users see those."""
    said = os.environ.get(TOKEN_VARIABLE) or None
    if said is not None and not (said.isascii() and said.isprintable() and len(said) >= TOKEN_BYTES):
        raise InvalidSettings(
            f"Metrics cannot be served: {TOKEN_VARIABLE} must have at least {TOKEN_BYTES} printable ASCII characters. "
            "Make one with `python -c 'import secrets; print(secrets.token_urlsafe(32))'`."
        )
    return said


def listen(address: str, *, token: str | None = None, is_open: bool = False) -> socket.socket:
    """Bind `HOST:PORT`, or a port of the loopback address; or InvalidSettings. `is_open`: no token is needed."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise InvalidSettings(
            f"Metrics cannot be served at {address!r}: write HOST:PORT, 127.0.0.1:9464 for one."
        )
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(16)
    except OSError as error:
        raise InvalidSettings(
            f"Metrics cannot be served at {address!r}: {error.strerror or error}. Take another address or port."
        ) from None
    if token is None and not is_loopback(listening):
        if not is_open:
            listening.close()
            raise InvalidSettings(
                f"Metrics cannot be served at {address!r} to all who can reach it: put a token into {TOKEN_VARIABLE}, "
                f"which Prometheus sends with `authorization`, or use 127.0.0.1. To go without: {OVERRIDE}."
            )
        log.warning(
            "metrics.exposed",
            "Metrics are served at %(address)s to all who can reach it, without a token",
            address=address,
        )
    return listening


def is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def serve(app: Holdfast, listening: socket.socket, sheets: Sequence[Sheet], alive: int) -> NoReturn:
    """Serve until the supervisor ends."""
    # A terminal or service manager sends these to all processes; this one must end last.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        threading.Thread(target=_watch_supervisor, args=(alive,), daemon=True).start()
        server(listening, lambda: app.metrics_text(sheets), app.clock, token()).serve_forever()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def server(
    listening: socket.socket, text: Callable[[], str], clock: Clock, token: str | None = None
) -> HTTPServer:
    """A few clients at once, each with a deadline: a slow or hostile client must not block the others."""
    return _Server(listening, text, clock, token)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if not self.server.stop_waiting(self.connection):
            return  # cut off: the request is incomplete
        if (refusal := self._refusal()) is not None:
            self._refuse(*refusal)
            return
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self._refuse(404, "Metrics are at /metrics")
            return
        try:
            answer = self.server.gather().encode()
        except Exception as error:  # its text is not for the client
            log.error("metrics.failed", "Metrics could not be gathered: %(error)s", error=error)
            self._refuse(500)
            return
        self.server.wait_for(self.connection)
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_HEAD = do_GET

    def _refusal(self) -> tuple[int, str] | None:
        """The status and text of a refusal; None: the request is allowed."""
        if self.server.token is not None:
            said = self.headers.get("Authorization", "").encode()
            right = f"Bearer {self.server.token}".encode()
            return None if hmac.compare_digest(said, right) else (401, "A token is needed")
        if self.server.is_loopback and not is_local(self.headers.get("Host", "")):
            return 403, "Ask for localhost or an address"
        return None

    def _refuse(self, status: int, text: str | None = None) -> None:
        self.server.wait_for(self.connection)
        answer = f"{text or 'Not now'}\n".encode()
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass

    def version_string(self) -> str:
        return "holdfast"


class _Server(HTTPServer):
    """Threads that are reused, because each may have a connection to the database, and one deadline for each client.

    A timeout of the socket would be for each read: a client that sends a byte every few seconds would stay for ever.
    """

    def __init__(
        self, listening: socket.socket, text: Callable[[], str], clock: Clock, token: str | None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.token, self.is_loopback = token, is_loopback(listening)
        self._text, self._clock, self._gathering = text, clock, threading.Lock()
        self._threads = ThreadPoolExecutor(CLIENTS, thread_name_prefix="holdfast-metrics")
        self._free = threading.Semaphore(CLIENTS)
        self._until: dict[socket.socket, float] = {}

    def gather(self) -> str:
        with self._gathering:
            return self._text()

    def wait_for(self, client: socket.socket) -> None:
        """Start the deadline of this client."""
        self._until[client] = self._clock.monotonic() + CLIENT_SECONDS

    def stop_waiting(self, client: socket.socket) -> bool:
        """End the deadline. False: the client was cut off before."""
        return self._until.pop(client, None) is not None

    def service_actions(self) -> None:
        """Called by `serve_forever` twice a second: cut off late clients, which wakes up their threads."""
        now = self._clock.monotonic()
        for client, until in list(self._until.items()):
            if until < now and self.stop_waiting(client):
                with suppress(OSError):  # the client has gone
                    client.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._free.acquire(timeout=LOOK_SECONDS):
            self.service_actions()
        self.wait_for(request)
        self._threads.submit(self._attend, request, client_address)

    def _attend(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client has gone, or was cut off
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.stop_waiting(request)
            self.shutdown_request(request)
            self._free.release()

    def server_close(self) -> None:
        super().server_close()
        for client in list(self._until):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self._threads.shutdown()


def is_local(host: str) -> bool:
    """Whether the Host of a request is `localhost` or an IP address, with or without a port, or is missing."""
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    if name.lower() in ("", "localhost") or name.lower().endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _watch_supervisor(alive: int) -> None:
    os.read(alive, 1)  # nothing is ever written: it returns when the supervisor is gone
    os._exit(0)


def main() -> None:
    target, listening, alive, *sheets = sys.argv[1:]
    app = load_app(target)
    configure()
    serve(app, socket.socket(fileno=int(listening)), [Sheet(int(each)) for each in sheets], int(alive))


if __name__ == "__main__":
    main()
