"""What one call of an activity sets in place of the activity's declaration, in a header of its message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from ..errors import InvalidSettings
from ..model.message import Reason
from .policy import HandlerPolicy
from .retry import RetryPolicy

HEADER = "holdfast-call"


class CallOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Retries and a timeout for one call; None: as declared."""

    retry: dict[str, Any] | None = None
    timeout: float | None = None


_reader = msgspec.json.Decoder(CallOptions)


def written(retry: RetryPolicy | None, timeout: float | None) -> str:
    """The header's value.

    >>> written(None, 5.0)
    '{"timeout":5.0}'
    """
    return msgspec.json.encode(CallOptions(None if retry is None else _plain(retry), timeout)).decode()


def _plain(retry: RetryPolicy) -> dict[str, Any]:
    return {
        "attempts_max": retry.attempts_max, "base": retry.base, "factor": retry.factor, "cap": retry.cap,
        "jitter": retry.jitter, "never": sorted(map(int, retry.never)),
        "per_reason": {str(int(reason)): _plain(each) for reason, each in retry.per_reason.items()},
    }  # fmt: skip


def _policy(found: dict[str, Any]) -> RetryPolicy:
    own = {Reason(int(reason)): _policy(each) for reason, each in found.get("per_reason", {}).items()}
    never = frozenset(Reason(each) for each in found["never"])
    plain = {name: found[name] for name in ("attempts_max", "base", "factor", "cap", "jitter")}
    return RetryPolicy(**plain, per_reason=own, never=never)


def _read(headers: str | None) -> CallOptions | None:
    # Headers may come from a plain INSERT: what cannot be read is ignored.
    if not isinstance(headers, str) or HEADER not in headers:
        return None
    try:
        decoded = msgspec.json.decode(headers)
        found = decoded.get(HEADER) if isinstance(decoded, dict) else None
        return _reader.decode(found) if isinstance(found, str) else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def policy_of(policy: HandlerPolicy, headers: str | None) -> HandlerPolicy:
    """The policy by which a message with these headers is judged."""
    asked = None if headers is None else _read(headers)
    if asked is None or asked.retry is None:
        return policy
    try:
        return replace(policy, retry=_policy(asked.retry))
    except (InvalidSettings, ValueError, KeyError, TypeError, AttributeError):
        return policy


def timeout_of(timeout: float, headers: str | None) -> float:
    """How long a message with these headers may be handled, in seconds."""
    asked = None if headers is None else _read(headers)
    return timeout if asked is None or asked.timeout is None or not asked.timeout > 0 else asked.timeout
