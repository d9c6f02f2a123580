"""Signatures of webhooks, as Standard Webhooks has them.

`webhook-id` is the same however often a webhook is sent, `webhook-timestamp` is the time, and `webhook-signature` is
`v1,` and the Base64 of HMAC-SHA256 over `id.timestamp.body`. While a secret is being replaced there are two signatures,
with a space between them: a receiver accepts the webhook if one of them is right.

To replace a secret: give the sender both, the new one first; give the receivers the new one; take the old one from the
sender.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from ..errors import InvalidSettings

PREFIX = "whsec_"  # of a secret that is written in Base64
KEY_BYTES = 24  # at least: what Standard Webhooks asks for
SECRETS_MAX = 2  # the one in use, and the one that it replaces
TOLERANCE = 300.0  # seconds that a timestamp may differ: an older request may be a replay
VERSION = "v1,"


def keys(secrets: str | Sequence[str], what: str = "A webhook") -> tuple[bytes, ...]:
    """The keys of one secret, or of two while one is replaced; or InvalidSettings, which does not show them."""
    given = (secrets,) if isinstance(secrets, str) else tuple(secrets)
    if not 0 < len(given) <= SECRETS_MAX:
        raise InvalidSettings(
            f"{what} needs a secret, or two while one is replaced, and has {len(given)}: give one or two."
        )
    return tuple(_key(each, what) for each in given)


def signature(key: bytes, id: str, stamp: str, body: bytes) -> str:
    """The comparison that a receiver makes, in constant time."""
    signed = hmac.new(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return VERSION + base64.b64encode(signed).decode()


def headers(keys: Sequence[bytes], id: str, seconds: float, body: bytes) -> dict[str, str]:
    """The three headers of a webhook that is sent at this moment, in seconds since 1970."""
    stamp = str(int(seconds))
    return {
        "webhook-id": id,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(signature(key, id, stamp, body) for key in keys),
    }


def is_genuine(
    keys: Sequence[bytes],
    *,
    id: str,
    stamp: str,
    signatures: str,
    body: bytes,
    now: float,
    tolerance: float = TOLERANCE,
) -> bool:
    """Whether a webhook was signed with one of the keys, recently. `body` is the raw body, before it is parsed."""
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16) or abs(now - int(stamp)) > tolerance:
        return False
    right = [signature(key, id, stamp, body).encode() for key in keys]
    said = [each.encode() for each in signatures.split(" ")[:16]]
    # All pairs are compared, so the time taken does not show which was right.
    return sum(hmac.compare_digest(ours, theirs) for ours in right for theirs in said) > 0


def _key(secret: str, what: str) -> bytes:
    key = secret.encode()
    if secret.startswith(PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidSettings(f"A secret that begins with {PREFIX} must continue in Base64.") from None
    if len(key) < KEY_BYTES:
        raise InvalidSettings(
            f"{what} needs a secret of at least {KEY_BYTES} bytes, and this one has {len(key)}: make one with "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'`."
        )
    return key
