"""Every setting, with its default, validated once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, TypedDict, Unpack

from .errors import InvalidSettings

# Only storage that is durable: memory://, for example, would be lost with the process.
ARCHIVES = ("file", "s3", "gs", "az")

RetryProfile = Literal["patient", "brisk", "api", "steady", "immediate"]  # what they are: rules/retry.py
REQUESTS_MIN = 86_400.0  # seconds that ended requests are kept at least


class SettingsOptions(TypedDict, total=False):
    """The settings as keywords, each of which may be left out: `Holdfast(url, lease=60)`. See `Settings`."""

    lease: float
    heartbeat: float
    timeout: float
    grace: float
    claim: int
    claim_bytes: int
    run: int
    concurrency: int
    threads: int
    connections: int
    body_bytes: int
    headers_bytes: int
    body_depth: int
    errors_kept: int
    error_chars: int
    tracebacks: bool
    history: float
    dedupe: float
    audit: float
    instances: float
    journal_events: int
    journal_bytes: int
    requests: float
    poll_min: float
    poll_max: float
    refunds: int
    catch_up_doubles: float
    dead_age: float
    dead_count: int
    archive: str
    retry: RetryProfile
    alert_dead: float
    alert_late: float
    late: float
    warn_late: float
    outage_after: float
    alert_silent: float
    alert_scheduler: float
    alert_breaker: float
    alert_blocked: float
    alert_backlog: float
    alert_poison: float
    alert_calm: float
    alert_every: float


@dataclass(frozen=True, slots=True)
class Settings:
    """How an application's engine behaves. Times are in seconds, sizes in bytes."""

    lease: float = 30.0
    heartbeat: float = 10.0
    timeout: float = 300.0  # of a handler; its lease is not renewed after that
    grace: float = 25.0  # the time a stopping worker gives its handlers
    claim: int = 500
    claim_bytes: int = 8 * 1024 * 1024
    run: int = 500
    concurrency: int = 100  # handlers at once in one process
    threads: int = 16  # how many of them may be `def` handlers
    connections: int = 8  # for handlers' own transactions, in one process, on PostgreSQL
    body_bytes: int = 1024 * 1024
    headers_bytes: int = 16 * 1024
    body_depth: int = 64
    errors_kept: int = 10
    error_chars: int = 2000
    tracebacks: bool = True  # the last one is kept with its message, and logged once a minute for each cause
    history: float = 7 * 86_400.0
    dedupe: float = 7 * 86_400.0
    audit: float = 90 * 86_400.0
    instances: float = 30 * 86_400.0  # of orchestrations, after their end, with their journals
    journal_events: int = 51_200  # of one execution; there its instance is paused
    journal_bytes: int = 50 * 1024 * 1024  # the same
    requests: float = 30 * 86_400.0
    poll_min: float = 0.002
    poll_max: float = 0.1
    refunds: int = 100
    catch_up_doubles: float = 3.0
    dead_age: float = 7 * 86_400.0  # of a dead letter before it is archived
    dead_count: int = 10_000  # dead letters before the oldest are archived
    archive: str = ""  # a folder, or s3://bucket/prefix; without one no dead letter is deleted
    retry: RetryProfile = "patient"
    alert_dead: float = 100  # dead letters within a day
    alert_late: float = 10  # more messages than this begin, or wait, later than `late`
    late: float = 300.0
    warn_late: float = 3600.0  # a message that begins later than this is logged as a warning
    outage_after: float = 60.0  # without a worker while something is due
    alert_silent: float = 120.0  # since any worker was seen
    alert_scheduler: float = 300.0  # since anything due was last looked for
    alert_breaker: float = 1  # a breaker that is not closed; each is reported separately
    alert_blocked: float = 900.0  # that a stream stands still
    alert_backlog: float = 600.0  # age of the oldest message that could be handled
    alert_poison: float = 1  # messages that have failed ten times or more
    alert_calm: float = 60.0  # that it must be calm before the all-clear
    alert_every: float = 30.0  # between two looks, for all workers together, at least

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "archive":
                if not isinstance(value, str) or ("://" in value and value.split(":")[0] not in ARCHIVES):
                    raise InvalidSettings(
                        f"Setting archive={value!r} must be a folder, or a URL of {', '.join(ARCHIVES)}."
                    )
            elif field.name == "tracebacks":
                if not isinstance(value, bool):
                    raise InvalidSettings(f"Setting tracebacks={value!r} must be True or False.")
            elif field.name != "retry" and not (isinstance(value, int | float) and value > 0):
                raise InvalidSettings(f"Setting {field.name}={value!r} must be a positive number.")
        if self.heartbeat * 2 > self.lease:
            raise InvalidSettings(
                f"heartbeat={self.heartbeat} must be at most half of lease={self.lease}, "
                "or leases lapse while handlers run."
            )
        if self.requests < REQUESTS_MIN:
            raise InvalidSettings(
                f"requests={self.requests} must be at least {REQUESTS_MIN:.0f}, a day: hooks look up the requests that "
                "they are called for."
            )
        if self.poll_min > self.poll_max:
            raise InvalidSettings(f"poll_min={self.poll_min} is above poll_max={self.poll_max}.")

    def but(self, **changes: Unpack[SettingsOptions]) -> Settings:
        """A copy with some settings changed; an unknown name is refused."""
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise InvalidSettings(f"There is no setting {name!r}; there are: {', '.join(sorted(known))}.")
        return replace(self, **changes)
