"""Alerts as a signed POST to a URL."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

import msgspec

from ..clock import SystemClock, wall_clock
from ..errors import InvalidSettings
from ..model.alert import Alert
from ..webhooks import signing
from ..webhooks.calling import NoAnswer, NotPublic, post
from .sinks import TIMEOUT, NotTaken


class Webhook:
    """A URL that takes signed JSON by POST (`webhooks/signing.py`). The request goes only to the host of that URL.

    `timeout` is for the whole call. `allow_private`: the address need not be on the public internet.
    """

    def __init__(
        self,
        url: str,
        secret: str | Sequence[str],
        *,
        allow_http: bool = False,
        allow_private: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        parts = _checked(url)
        if parts.scheme != "https" and not allow_http:
            raise InvalidSettings(
                f"The webhook of alerts on {parts.hostname} is not https, so anybody on the way could read and change "
                "it: use https, or say allow_http=True."
            )
        if not timeout > 0:
            raise InvalidSettings(f"timeout={timeout!r} of a webhook must be positive.")
        self.url, self.timeout, self.allow_private = url, timeout, allow_private
        self._parts, self._keys = parts, signing.keys(secret, "A webhook of alerts")
        self.name = _name(parts)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def send(self, alert: Alert) -> None:
        body = msgspec.json.encode(alert)
        id = f"holdfast-alert-{alert.number}"
        headers = {
            "content-type": "application/json",
            "user-agent": "holdfast",
            **signing.headers(self._keys, id, wall_clock().timestamp(), body),
        }
        try:
            status = post(
                self._parts,
                body,
                headers,
                seconds=self.timeout,
                clock=SystemClock(),
                allow_private=self.allow_private,
            )
        except NotPublic as error:
            raise NotTaken(f"was not called: {error}") from None
        except NoAnswer as error:
            raise NotTaken(f"did not answer: {error}") from None
        if not 200 <= status < 300:
            raise NotTaken(f"answered {status}")


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
    """The host, and a digest to distinguish its URLs. The name is stored and shown, and a path may be a secret."""
    rest = parts._replace(scheme="", netloc="").geturl()
    digest = hashlib.sha256(rest.encode()).hexdigest()[:8]
    return f"webhook {parts.scheme}://{parts.netloc.rpartition('@')[2].lower()} ({digest})"
