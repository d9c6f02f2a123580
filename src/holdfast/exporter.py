"""The process that answers Prometheus, for all worker processes of one supervisor together.

Each worker process counts in memory that this one can read (`telemetry/sheet.py`), also when the worker is dead. The
address is bound by the supervisor before anything begins, so that one that cannot be had is refused at once.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, NoReturn

from .child import load_app
from .errors import InvalidSettings
from .logs import Log, configure
from .telemetry.exposition import CONTENT_TYPE
from .telemetry.sheet import Sheet

if TYPE_CHECKING:
    from .app import Holdfast

log = Log("holdfast.supervisor")

CLIENT_SECONDS = 5.0  # for one who connects and says nothing


def listen(address: str) -> socket.socket:
    """Bind `HOST:PORT`, or a port of the loopback address; or InvalidSettings."""
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
    if not ipaddress.ip_address(place[0]).is_loopback:
        log.warning(
            "metrics.exposed",
            "Metrics are served at %(address)s to whoever can reach it, without a password",
            address=address,
        )
    return listening


def serve(app: Holdfast, listening: socket.socket, sheets: Sequence[Sheet], alive: int) -> NoReturn:
    """Serve until the supervisor ends."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # sent to all by a terminal, a service manager: our end is the last
        signal.signal(number, signal.SIG_IGN)
    try:
        threading.Thread(target=_watch_supervisor, args=(alive,), daemon=True).start()
        server(listening, lambda: app.metrics_text(sheets)).serve_forever()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def server(listening: socket.socket, text: Callable[[], str]) -> HTTPServer:
    """One client at a time, and none for long: there is one who asks, every few seconds."""

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self.send_error(404, "Metrics are at /metrics")
                return
            try:
                answer = text().encode()
            except Exception as error:  # whatever it is, it is not for whoever asks
                log.error("metrics.failed", "Metrics could not be gathered: %(error)s", error=error)
                self.send_error(500)
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(answer)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

        def version_string(self) -> str:
            return "holdfast"

    made = HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    made.socket.close()
    made.socket = listening
    return made


def _watch_supervisor(alive: int) -> None:
    os.read(alive, 1)  # nobody writes: it returns when the supervisor is gone
    os._exit(0)


def main() -> None:
    target, listening, alive, *sheets = sys.argv[1:]
    app = load_app(target)
    configure()
    serve(app, socket.socket(fileno=int(listening)), [Sheet(int(each)) for each in sheets], int(alive))


if __name__ == "__main__":
    main()
