"""The shop of the bad day. Handlers do what the folder of the test tells them.

SHOP_RELEASE: 1 is the shop as it was; in 2 the handler send_receipt has another name; 3 says which name it had before.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from holdfast import Holdfast, RetryPolicy

URL = os.environ["SHOP_URL"]
FOLDER = Path(os.environ["SHOP_FOLDER"])
RELEASE = int(os.environ.get("SHOP_RELEASE", "1"))
if machine := os.environ.get("SHOP_MACHINE"):
    socket.gethostname = lambda: machine  # each worker of the test plays a machine
SLOWLY = RetryPolicy(attempts_max=2, base=600.0, cap=600.0)
PATIENTLY = RetryPolicy(attempts_max=20, base=600.0, cap=600.0)

app = Holdfast(URL, lease=2.0, heartbeat=0.5, grace=2.0)


def send(order: dict[str, Any]) -> None:
    """Sends a mail, as far as the test lets it."""
    with open(FOLDER / "started", "a") as file:
        file.write(f"{order['n']}\n")
    if (FOLDER / "mail-server-is-down").exists() and order.get("to") == "mail":
        raise ConnectionRefusedError("mail.example.com:25")
    while order.get("waits") and not (FOLDER / "go-on").exists():
        time.sleep(0.01)


if RELEASE == 1:

    @app.handler("order.placed", retry=PATIENTLY)
    def send_receipt(order: dict[str, Any]) -> None:
        send(order)

elif RELEASE == 2:

    @app.handler("order.placed", retry=PATIENTLY)
    def mail_receipt(order: dict[str, Any]) -> None:
        send(order)

else:

    @app.handler("order.placed", name="mail_receipt", renamed_from="send_receipt", retry=PATIENTLY)
    def mail_the_receipt(order: dict[str, Any]) -> None:
        send(order)


@app.handler("invoice.sent", name="charge", retry=SLOWLY)
def charge(invoice: dict[str, Any]) -> None:
    if invoice.get("kills"):
        os.kill(os.getpid(), signal.SIGKILL)
    if not (FOLDER / "charge-is-repaired").exists():
        invoice["iban"]
