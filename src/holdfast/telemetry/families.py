"""Every metric, once: its name, what it counts, its labels. docs/telemetry.md has the same table, and a test compares.

Labels are queues, types and reasons, which are few. Never a stream, an id or part of a body: a metric with a series
for each customer overloads the monitoring. A worker counts a limited number of pairs of queue and type separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LONG = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 6 * 3600.0, 86_400.0)
SIZES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric. `buckets` are the upper bounds of a histogram."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Sample(NamedTuple):
    """One series of a metric: `values` has one number, or a histogram's counts (the last: above all bounds) and sum."""

    name: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


COUNTED = (  # by worker processes
    Family("holdfast_attempts_started_total", "counter", "Calls of handlers that were begun.", ("queue", "type")),
    Family("holdfast_attempts_total", "counter", "Attempts that ended, by what became of the message.",
           ("queue", "type", "outcome")),
    Family("holdfast_failures_total", "counter", "Attempts that failed, by reason.", ("queue", "type", "reason")),
    Family("holdfast_deaths_total", "counter", "Messages that became dead letters, by reason.",
           ("queue", "type", "reason")),
    Family("holdfast_poison_detected_total", "counter",
           "Messages found to be poison: started as often as allowed, or unreadable. Of orchestrations also any turn "
           "that ended its instance.", ("type",)),
    Family("holdfast_orchestration_failures_total", "counter", "Instances of orchestrations that failed, by category.",
           ("category",)),
    Family("holdfast_activity_failures_total", "counter", "Calls of activities that failed for good, by category.",
           ("category",)),
    Family("holdfast_handler_seconds", "histogram", "How long handlers ran.", ("queue", "type"), SECONDS),
    Family("holdfast_wait_seconds", "histogram", "From when a message was due until its first attempt began.",
           ("queue",), LONG),
    Family("holdfast_late_total", "counter", "Messages whose first attempt began later than the setting `late` allows.",
           ("queue",)),
    Family("holdfast_drain_seconds", "histogram", "From when a worker found something due until it found nothing.",
           (), LONG),
    Family("holdfast_exchange_seconds", "histogram", "How long exchanges with the database took.", (), SECONDS),
    Family("holdfast_claimed_messages", "histogram", "How many messages an exchange handed out.", (), SIZES),
    Family("holdfast_sends_total", "counter", "Messages given to a broker, by what became of each.",
           ("destination", "fate")),
    Family("holdfast_confirm_seconds", "histogram", "From the send until the broker confirmed the message.",
           ("destination",), SECONDS),
    Family("holdfast_received_total", "counter", "Messages that an inbox received: stored, duplicate or refused.",
           ("inbox", "result")),
    Family("holdfast_receive_refused_total", "counter", "Received messages that became dead letters, by reason.",
           ("inbox", "reason")),
    Family("holdfast_connects_total", "counter", "Tries to connect to a broker, opened or failed.",
           ("kind", "endpoint", "result")),
    Family("holdfast_leases_lost_total", "counter", "Results that came too late: another worker held the message."),
)  # fmt: skip
LOOKED_UP = (  # in the database
    Family("holdfast_store_up", "gauge", "Whether the database answered the last time it was asked."),
    Family("holdfast_pending", "gauge", "Pending messages by state.", ("queue", "state")),
    Family("holdfast_oldest_due_seconds", "gauge", "How long the oldest message that is due has waited.", ("queue",)),
    Family("holdfast_dead_letters", "gauge", "Dead letters.", ("queue",)),
    Family("holdfast_failed", "gauge", "Messages that have failed, pending or dead, by their last reason.",
           ("where", "reason")),
    Family("holdfast_blocked_streams", "gauge", "Streams that stand still; counted up to 1000.", ("queue",)),
    Family("holdfast_queue_paused", "gauge", "1 while an operator has paused the queue.", ("queue",)),
    Family("holdfast_requests_open", "gauge", "Requests that wait for a result.", ("kind",)),
    Family("holdfast_requests_overdue", "gauge", "Requests whose deadline has passed and that no worker has swept."),
    Family("holdfast_requests_late", "gauge", "Requests with a late result that nobody has accepted."),
    Family("holdfast_unrouted", "gauge", "Messages of types that nobody subscribes to."),
    Family("holdfast_workers", "gauge", "Workers, alive or silent.", ("state",)),
    Family("holdfast_connections", "gauge", "Workers by the state of their connection to a broker.",
           ("kind", "endpoint", "state")),
    Family("holdfast_outage", "gauge", "1 while an outage is not over."),
    Family("holdfast_breaker_state", "gauge", "1 for the state in which a breaker is.", ("breaker", "state")),
    Family("holdfast_housekeeping_lag_seconds", "gauge",
           "By how much the oldest that housekeeping is to remove has been kept too long.", ("where",)),
    Family("holdfast_survey_seconds", "gauge", "How long the last look at the database took."),
    Family("holdfast_survey_age_seconds", "gauge", "How long ago that look was: the numbers above are as old."),
)  # fmt: skip

FAMILIES = {each.name: each for each in (*COUNTED, *LOOKED_UP)}
