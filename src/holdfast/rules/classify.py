"""What an exception means: a reason, and how long the other side asked us to wait.

A body that cannot be decoded never gets here: that is 5, serialization error. Declared types come first, the most
specific class winning. Then an HTTP status, wherever the exception carries one (`status`, `status_code`, `code`, or
the same on its `response`):

| status | reason | |
|---|---|---|
| 408, 504 | 4 timeout exceeded | |
| 401, 402, 403, 407, 409, 423, 424, 425, 429 | 6 dependency failure | their state or our credentials |
| all other 5xx | 6 dependency failure | |
| 413 | 11 payload too large | permanent |
| all other 4xx (400, 404, 410, 422, ...) | 3 validation failure | permanent |
| below 400 | - | not an HTTP error: the rows below decide |

Then the class and its bases, by name, so that no library is imported to recognise its errors:

| class | reason | |
|---|---|---|
| TimeoutError; Timeout, TimeoutException, ConnectTimeout, ServerTimeoutError of clients | 4 timeout exceeded | |
| ConnectionError, gaierror, herror, SSLError, URLError | 1 transport unavailable | |
| TransportError, ClientConnectionError of clients; our StoreUnavailable | 1 transport unavailable | |
| OSError with the errno of a network failure | 1 transport unavailable | |
| our CircuitOpen | 6 dependency failure | refunded: see `rules.blame` |
| ValidationError (msgspec, pydantic, ...); our InvalidMessage | 3 validation failure | permanent |
| a group whose members all mean the same | their reason | |
| any other Exception, ValueError included: a bug is retried until it is fixed | 2 handler exception | |
| JSONDecodeError and similar as well: the next answer of the API may be valid | 2 handler exception | |
| any other BaseException | 99 unknown | |
"""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ..model.failure import PERMANENT
from ..model.message import Reason
from .describing import attribute, describe, leaves

__all__ = ["Failure", "classify", "describe"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, and how many seconds the other side asked us to wait (as it said them: unbounded)."""

    reason: Reason
    retry_after: float | None = None

    @property
    def permanent(self) -> bool:
        """Whether another try is useless unless a retry policy says otherwise."""
        return self.reason in PERMANENT


def classify(
    error: BaseException,
    declared: Mapping[type[BaseException], Reason] | None = None,
    now: datetime | None = None,
) -> Failure:
    """What `error` means. `now` is needed only to understand a Retry-After that is a date.

    >>> classify(ConnectionRefusedError()).reason.name
    'TRANSPORT_UNAVAILABLE'
    """
    if isinstance(error, BaseExceptionGroup) and _declared(error, declared or {}) is None:
        failures = [classify(leaf, declared, now) for leaf in leaves(error)]
        reasons = {failure.reason for failure in failures}
        waits = [failure.retry_after for failure in failures if failure.retry_after is not None]
        return Failure(
            reasons.pop() if len(reasons) == 1 else Reason.HANDLER_EXCEPTION, max(waits, default=None)
        )
    return Failure(_reason(error, declared or {}), _retry_after(error, now))


_STATUS_PASSES = frozenset({401, 402, 403, 407, 409, 423, 424, 425, 429})

_NAMES: Mapping[str, Reason] = {
    "TimeoutError": Reason.TIMEOUT_EXCEEDED,
    "Timeout": Reason.TIMEOUT_EXCEEDED,
    "TimeoutException": Reason.TIMEOUT_EXCEEDED,
    "ConnectTimeout": Reason.TIMEOUT_EXCEEDED,
    "ServerTimeoutError": Reason.TIMEOUT_EXCEEDED,
    "ConnectionError": Reason.TRANSPORT_UNAVAILABLE,
    "TransportError": Reason.TRANSPORT_UNAVAILABLE,
    "ClientConnectionError": Reason.TRANSPORT_UNAVAILABLE,
    "URLError": Reason.TRANSPORT_UNAVAILABLE,
    "gaierror": Reason.TRANSPORT_UNAVAILABLE,
    "herror": Reason.TRANSPORT_UNAVAILABLE,
    "SSLError": Reason.TRANSPORT_UNAVAILABLE,
    "StoreUnavailable": Reason.TRANSPORT_UNAVAILABLE,
    "BodySealed": Reason.DEPENDENCY_FAILURE,
    "CircuitOpen": Reason.DEPENDENCY_FAILURE,
    "ValidationError": Reason.VALIDATION_FAILURE,
    "InvalidMessage": Reason.VALIDATION_FAILURE,
}

_NETWORK_ERRNO = frozenset(
    {
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENETRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENOTCONN,
        errno.EADDRNOTAVAIL,
    }
)


def _reason(error: BaseException, declared: Mapping[type[BaseException], Reason]) -> Reason:
    found = _declared(error, declared)
    if found is not None:
        return found
    if not isinstance(error, Exception):
        return Reason.UNKNOWN
    status = _status(error)
    if status is not None and status >= 400:
        return _reason_of_status(status)
    for cls in type(error).__mro__:
        if cls.__name__ in _NAMES:
            return _NAMES[cls.__name__]
    if isinstance(error, OSError) and error.errno in _NETWORK_ERRNO:
        return Reason.TRANSPORT_UNAVAILABLE
    return Reason.HANDLER_EXCEPTION


def _declared(error: BaseException, declared: Mapping[type[BaseException], Reason]) -> Reason | None:
    return next((declared[cls] for cls in type(error).__mro__ if cls in declared), None)


def _reason_of_status(status: int) -> Reason:
    if status in (408, 504):
        return Reason.TIMEOUT_EXCEEDED
    if status == 413:
        return Reason.PAYLOAD_TOO_LARGE
    if status in _STATUS_PASSES or status >= 500:
        return Reason.DEPENDENCY_FAILURE
    return Reason.VALIDATION_FAILURE


def _status(error: Exception) -> int | None:
    response = attribute(error, "response")
    values = (
        attribute(error, "status"),
        attribute(error, "status_code"),
        attribute(error, "code"),
        attribute(response, "status_code"),
        attribute(response, "status"),
    )
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def _retry_after(error: BaseException, now: datetime | None) -> float | None:
    for holder in (attribute(error, "response"), error):
        headers = attribute(holder, "headers")
        for name in ("Retry-After", "retry-after"):
            seconds = _seconds(_header(headers, name), now)
            if seconds is not None:
                return seconds
    return None


def _header(headers: object, name: str) -> object:
    get = attribute(headers, "get")
    try:
        return get(name) if callable(get) else None
    except Exception:
        return None


def _seconds(value: object, now: datetime | None) -> float | None:
    """Seconds to wait; None when nothing is asked for: no such header, unreadable, or a moment already past."""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if len(text) > 64:
        return None
    try:
        seconds = float(text)
    except ValueError:
        if now is None:
            return None
        try:
            date = parsedate_to_datetime(text)
            seconds = ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
