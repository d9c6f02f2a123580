"""Where alerts go: the log, a webhook, a function of yours. A sink that raises is tried again later.

A webhook is signed as Standard Webhooks has it: `webhook-id` is the same however often it is sent, `webhook-timestamp`
is when, and `webhook-signature` is `v1,` and the Base64 of HMAC-SHA256 over `id.timestamp.body` with the secret.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import inspect
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from http.client import HTTPException
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from ..clock import wall_clock
from ..errors import HoldfastError, InvalidSettings
from ..model.alert import Alert
from ..telemetry.logs import Log

log = Log("holdfast.alerts")

TIMEOUT = 10.0
PREFIX = "whsec_"  # of a secret that is written in Base64


Listener = Callable[[Alert], None] | Callable[[Alert], Awaitable[None]]


class Sink(Protocol):
    """Somebody who hears of alerts. The name says who has heard already: it stays the same in all processes."""

    @property
    def name(self) -> str: ...
    def send(self, alert: Alert) -> None: ...


class NotTaken(HoldfastError):
    """A webhook did not take an alert; it is sent again."""

    retryable = True


class LogSink:
    """Always there."""

    name = "log"

    def send(self, alert: Alert) -> None:
        fields = {
            "alert": alert.name,
            "subject": alert.subject or None,
            "episode": alert.episode,
            "value": alert.value,
            "threshold": alert.threshold,
            "text": alert.text,
        }
        # Both at one level: who hears that it began must hear that it is over.
        if alert.what == "raised":
            log.warning("alert.raised", "%(text)s", **fields)
        else:
            log.warning("alert.over", "%(text)s", **fields)


class FunctionSink:
    """A function of the application, async or not."""

    def __init__(self, function: Listener, timeout: float = TIMEOUT) -> None:
        self.function, self.timeout = function, timeout
        self.name = (
            f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"
        )

    def send(self, alert: Alert) -> None:
        answer = self.function(alert)
        if inspect.isawaitable(answer):
            asyncio.run(self._wait(answer))

    async def _wait(self, answer: Awaitable[None]) -> None:
        async with asyncio.timeout(self.timeout):
            await answer


class Webhook:
    """An address that takes JSON by POST. No redirect is followed: what is signed goes where it was meant to."""

    def __init__(self, url: str, secret: str, *, allow_http: bool = False, timeout: float = TIMEOUT) -> None:
        parts = _checked(url)
        if parts.scheme != "https" and not allow_http:
            raise InvalidSettings(
                f"The webhook of alerts on {parts.hostname} is not https, so anybody on the way could read and change "
                "it: use https, or say allow_http=True."
            )
        if not timeout > 0:
            raise InvalidSettings(f"timeout={timeout!r} of a webhook must be positive.")
        self.url, self.timeout, self._key = url, timeout, _key(secret)
        self.name = _name(parts)
        # Nor through a proxy that the environment happens to name.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def send(self, alert: Alert) -> None:
        body = msgspec.json.encode(alert)
        request = urllib.request.Request(  # noqa: S310 - http and https only, checked above
            self.url, data=body, headers=self._headers(alert, body), method="POST"
        )
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            error.close()
            raise NotTaken(f"answered {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise NotTaken(f"did not answer: {type(reason).__name__}") from None
        if not 200 <= status < 300:
            raise NotTaken(f"answered {status}")

    def _headers(self, alert: Alert, body: bytes) -> dict[str, str]:
        id, stamp = f"holdfast-alert-{alert.number}", str(int(wall_clock().timestamp()))
        return {
            "content-type": "application/json",
            "user-agent": "holdfast",
            "webhook-id": id,
            "webhook-timestamp": stamp,
            "webhook-signature": signature(self._key, id, stamp, body),
        }


def signature(key: bytes, id: str, stamp: str, body: bytes) -> str:
    """What a receiver compares with, in constant time."""
    signed = hmac.new(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def _checked(url: str) -> SplitResult:
    refusal = InvalidSettings("The webhook of alerts must be a URL such as https://example.com/alerts.")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise refusal from None
    if not is_address:
        raise refusal
    if parts.username or parts.password:
        raise InvalidSettings(
            "The URL of a webhook must have no user or password in it: requests are signed."
        )
    return parts


def _name(parts: SplitResult) -> str:
    """The host, and a digest to tell its addresses apart: the name is stored and shown, and paths hold secrets too."""
    rest = parts._replace(scheme="", netloc="").geturl()
    digest = hashlib.sha256(rest.encode()).hexdigest()[:8]
    return f"webhook {parts.scheme}://{parts.netloc.rpartition('@')[2].lower()} ({digest})"


def _key(secret: str) -> bytes:
    if len(secret) < 16:
        raise InvalidSettings(
            "A webhook of alerts needs a secret of at least 16 characters, to be signed with."
        )
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise InvalidSettings(f"A secret that begins with {PREFIX} must go on in Base64.") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
