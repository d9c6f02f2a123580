"""Every question and command of an operator. The command line, the dashboard and the metrics use only this.

    operations = Operations(store)
    operations.status()                      operations.why(id)
    operations.messages.retry(id)            operations.dead.redrive(id)
    operations.streams.blocked()             operations.queues.pause("send_receipt", "the printer is broken")

Answers are frozen dataclasses without presentation. A command that would break a guarantee raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from ..alerting.sinks import Sink
from ..bodies.keys import Keys
from ..errors import UsageError
from ..handlers.consumer import Consumer
from ..limits import breakers as limits
from ..model.instance import InstanceStatus
from ..model.message import Death, Trouble
from ..model.outage import Outage
from ..requests.hooks import Pen
from ..requests.sweeping import catch_early
from ..rules.housekeeping import Rest
from ..settings import Settings
from ..store import Store
from ..store.plans import audit, engine, operator, queries
from . import from_rows, incident
from .alerts import Alerts
from .asked import problems as request_problems
from .asked import why_request
from .breakers import Breakers, BreakerState
from .cleaning import Cleaning, overdue
from .dead import DeadLetters
from .desk import Desk, as_id
from .endpoints import ConnectionState, Endpoints, EndpointState, Tried
from .explain import why
from .files import Archived, Imported, LetterFiles
from .flow_problems import flow_problems
from .incident import Cause, Paused, Status, Tripped
from .instance_states import Commanded, FlowCheck, InstanceDossier, RewoundInstance
from .keyring import Keyring
from .late import StuckMessage
from .messages import Messages
from .naming import named
from .outages import Outages
from .queues import Queues
from .repair import repair
from .requests import RequestCounts, RequestDossier, RequestLine, RequestResult, RequestsDesk
from .results import (
    STATES,
    Action,
    Canary,
    Changed,
    Content,
    Deaths,
    Delivery,
    Dossier,
    Emptied,
    Ended,
    EndedMessage,
    Filter,
    Finding,
    Group,
    Housekept,
    Letter,
    Many,
    RaisedSequence,
    ReasonCount,
    Redriven,
    Rehearsal,
    Repaired,
    RetryBacklog,
    State,
    Stuck,
)
from .schedule_states import Backfilled, LeftOut, Next, ScheduleDossier, ScheduleState
from .schedules import Schedules
from .states import (
    Blocking,
    Dropped,
    QueueState,
    StreamOrder,
    StreamState,
    Subscription,
    Unrouted,
    WorkerState,
)
from .streams import POISON_ATTEMPTS, Streams
from .subscriptions import Subscriptions

if TYPE_CHECKING:
    from ..inboxes.declared import Inbox
    from .orchestrations import Orchestrations

__all__ = [
    "STATES",
    "Action",
    "Alerts",
    "Archived",
    "Backfilled",
    "Blocking",
    "BreakerState",
    "Breakers",
    "Canary",
    "Cause",
    "Changed",
    "Commanded",
    "ConnectionState",
    "Content",
    "DeadLetters",
    "Death",
    "Deaths",
    "Delivery",
    "Dossier",
    "Dropped",
    "Emptied",
    "Ended",
    "EndedMessage",
    "EndpointState",
    "Endpoints",
    "Filter",
    "Finding",
    "FlowCheck",
    "Group",
    "Housekept",
    "Imported",
    "InstanceDossier",
    "InstanceStatus",
    "LeftOut",
    "Letter",
    "LetterFiles",
    "Many",
    "Messages",
    "Next",
    "Operations",
    "Outage",
    "Outages",
    "Paused",
    "QueueState",
    "Queues",
    "RaisedSequence",
    "ReasonCount",
    "Redriven",
    "Rehearsal",
    "Repaired",
    "RequestCounts",
    "RequestDossier",
    "RequestLine",
    "RequestResult",
    "RequestsDesk",
    "RetryBacklog",
    "RewoundInstance",
    "ScheduleDossier",
    "ScheduleState",
    "Schedules",
    "State",
    "Status",
    "StreamOrder",
    "StreamState",
    "Streams",
    "Stuck",
    "StuckMessage",
    "Subscription",
    "Subscriptions",
    "Tried",
    "Tripped",
    "Trouble",
    "Unrouted",
    "WorkerState",
]

RATE_SECONDS = 60.0
SHOWN = 100
ADOPTED_MAX = 1000  # messages in one batch
ARCHIVED_FILES = 10
CLEAN_SECONDS = 6.0  # a tenth of a minute


class Operations:
    """Questions that an operator may ask of a store, and commands that change it.

    `handlers` are those of the application, if one is known; `sinks` receive its alerts; `who` gives the commands;
    `breakers` are those that its code calls through, `inboxes` are its inboxes by name.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        handlers: Iterable[Consumer] = (),
        keys: Keys | None = None,
        sinks: Sequence[Sink] = (),
        who: str | None = None,
        breakers: limits.Breakers | None = None,
        inboxes: Mapping[str, Inbox] | None = None,
    ) -> None:
        self._desk = Desk(store, settings or Settings(), handlers, keys, who)
        self.keys = Keyring(self._desk)
        self.alerts = Alerts(self._desk, sinks)
        self.outages = Outages(self._desk)
        self.messages = Messages(self._desk)
        self.dead = DeadLetters(self._desk)
        self.files = LetterFiles(self._desk)
        self.streams = Streams(self._desk)
        self.queues = Queues(self._desk)
        self.subscriptions = Subscriptions(self._desk, self.queues)
        self.breakers = Breakers(self._desk, breakers)
        self.schedules = Schedules(self._desk)
        self.requests = RequestsDesk(self._desk)
        self._inboxes = inboxes or {}
        self.destinations = Endpoints(self._desk, self.queues, "destination", self._inboxes)
        self.inboxes = Endpoints(self._desk, self.queues, "inbox", self._inboxes)

    @cached_property
    def orchestrations(self) -> Orchestrations:
        """Instances of orchestrations."""
        # Imported here: the code that reads journals is a fifth of all, and most commands are about messages.
        from .orchestrations import Orchestrations

        return Orchestrations(self._desk)

    @property
    def settings(self) -> Settings:
        return self._desk.settings

    def by(self, who: str) -> Operations:
        """The same, with another name in the audit: `operations.by("anna").messages.park(id)`."""
        desk = self._desk
        sinks, breakers = self.alerts.sinks, self.breakers.here
        return Operations(
            desk.store, desk.settings, desk.handlers, desk.keys, sinks, who, breakers, self._inboxes
        )

    def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        queue: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[Action]:
        """What operators did, the newest first. `action`: streams.halt, or all of streams."""
        if since is not None and since.tzinfo is None:
            raise UsageError(f"since={since!r} must be a datetime with a time zone.")
        rows = self._desk.ask(
            audit.find(who=who, action=action, queue=queue, target=target, since=since, limit=limit)
        )
        return [from_rows.action(row) for row in rows]

    # -- overview

    def now(self) -> datetime:
        """The database's time."""
        return self._desk.ask(operator.moment())

    def status(self) -> Status:
        """The whole state on one page."""
        desk = self._desk
        at, queues, workers, loops = self.queues.quick_survey()
        unrouted = self.unrouted()
        ended: dict[str, int] = {}
        for row in desk.ask(queries.rates(RATE_SECONDS)):
            ended[row["outcome"]] = ended.get(row["outcome"], 0) + row["count"]
        states: dict[str, int] = {}
        for queue in queues:
            for state, count in queue.states.items():
                states[state] = states.get(state, 0) + count
        if unrouted:
            states["unrouted"] = sum(each.count for each in unrouted)
        oldest = min((each.oldest_at for each in queues if each.oldest_at is not None), default=None)
        blocked = self.streams.blocked(limit=SHOWN)
        breakers = incident.tripped(desk, queues, self.breakers.list())
        requests = self.requests.counts()
        causes = incident.causes(desk, queues)
        return Status(
            at=at,
            queues=tuple(queues),
            states=states,
            depth=sum(states.values()),
            dead=sum(each.dead for each in queues),
            oldest_at=oldest,
            oldest_age=None if oldest is None else (at - oldest).total_seconds(),
            blocked=tuple(blocked),
            workers=tuple(workers),
            ended=ended,
            unrouted=tuple(unrouted),
            breakers=tuple(breakers),
            paused=tuple(incident.paused(desk, queues)),
            causes=tuple(causes),
            problems=(
                *incident.problems(
                    at,
                    queues,
                    workers,
                    blocked,
                    unrouted,
                    breakers,
                    causes,
                    incident.deaths(desk, at, queues),
                    self.poison_count() if loops is None else loops,
                    flow_problems(desk, queues),
                    len(desk.handlers) > 0,
                ),
                *self.destinations.broken(),
                *self.inboxes.broken(),
                *request_problems(requests.overdue, requests.next_deadline, at),
            ),
            more=tuple(sorted({state for queue in queues for state in queue.more})),
            overdue_requests=requests.overdue,
            late_requests=requests.late,
        )

    def unrouted(self) -> list[Unrouted]:
        """Types without a subscriber, those with most messages first."""
        rows = self._desk.ask(queries.unrouted(SHOWN))
        return [Unrouted(row["type"], row["count"], row["oldest_at"]) for row in rows]

    def reveal(self, id: UUID | str, type: str, body: str) -> str:
        """A stored body as it was published; BodySealed if it is encrypted and these keys do not open it."""
        return self.keys.reveal(as_id(id), type, body)

    def named(self, text: str) -> UUID:
        """The id of the message or request that a person means; it may be given in part."""
        return named(self._desk, text, "message or request")

    def why(self, id: UUID | str) -> list[str]:
        """Why a message, a request or an instance is where it is. For a message: a sentence for each of its deliveries.

        The message that was sent with a request has the request's id.
        """
        if (sentences := self.orchestrations.why(str(id))) is not None:
            return list(sentences)
        about = why_request(self._desk, as_id(id))
        messages = why(self._desk, as_id(id))
        return about + [each for each in messages if not about or not each.startswith("Unknown: ")]

    def why_instance(self, id: str) -> list[str]:
        """What an instance of an orchestration waits for. Empty if there is no such instance."""
        return list(self.orchestrations.why(id) or ())

    def tracebacks(self, id: UUID | str) -> list[str]:
        """The last tracebacks of a message, one for each of its deliveries that failed, pending or dead."""
        dossier = self.messages.find_out(as_id(id))
        contents = [content for _, content in (*dossier.pending, *dossier.dead)]
        return [each.traceback for each in contents if each.traceback is not None]

    def doctor(self, *, deep: bool = False) -> list[Finding]:
        """What is wrong or will go wrong, and what to do about it. Changes nothing.

        `deep`: everything that is stored is read and checked, in small parts, while workers keep running.
        """
        from . import doctor  # here, since most processes never ask it

        brokers = (self.destinations.examine, self.inboxes.examine)
        return doctor.examine(self._desk, self.status, self.stuck, brokers, deep=deep)

    def repair(self, *, leap: bool = False, why: str | None = None) -> Repaired:
        """Raise the sequences that are behind the stored numbers after a switch-over or a restore. Never lowers one.

        `leap`: raise all sequences, also those that are not behind. Use it after a failover that may have lost
        commits, so that no number is used twice.
        """
        return repair(self._desk, leap=leap, why=why)

    # -- failures

    def poison_candidates(self, *, attempts: int = POISON_ATTEMPTS, limit: int = 50) -> list[Delivery]:
        """Failed messages with at least so many attempts that will be retried: most attempts first."""
        rows = self._desk.ask(queries.poison_candidates(attempts, limit))
        return [from_rows.delivery(row) for row in rows]

    def poison_count(self, *, attempts: int = POISON_ATTEMPTS) -> int:
        """How many pending messages have failed and have at least so many attempts, including parked ones."""
        return self._desk.ask(queries.poison_count(attempts))

    def retry_distribution(self) -> dict[int, int]:
        """How many failed messages have had how many attempts."""
        return dict(self._desk.ask(queries.retry_distribution()))

    def failure_reasons(self) -> list[ReasonCount]:
        """How many messages failed for which reason, the most frequent first."""
        rows = self._desk.ask(queries.failure_reasons())
        found = [(from_rows.reason_of(reason), pending, dead) for reason, pending, dead in rows]
        return [ReasonCount(reason, pending, dead) for reason, pending, dead in found if reason is not None]

    def retry_backlog(self) -> RetryBacklog:
        """How many messages wait for a retry, when the first is due, and when the last."""
        row = self._desk.ask(queries.retry_backlog())
        return RetryBacklog(row["count"], row["next_at"], row["latest_at"])

    def stuck(self, *, attempts: int = POISON_ATTEMPTS, limit: int = 50) -> list[Stuck]:
        """Messages in a retry loop: tried often, failed each time, and scheduled for a retry again."""
        found = []
        for each in self.poison_candidates(attempts=attempts, limit=limit):
            for delivery, content in self.messages.show(each.id).pending:
                if delivery.queue == each.queue:
                    times = [trouble.at for trouble in content.errors]
                    same = len({trouble.reason for trouble in content.errors}) == 1
                    found.append(Stuck(delivery, min(times, default=None), max(times, default=None), same))
        return found

    # -- housekeeping

    def housekeeping(self, *, seconds: float = CLEAN_SECONDS) -> Housekept:
        """One round: end expired leases, adopt messages that waited for a subscriber, remove old rows. No handler runs.

        It removes rows for at most so many seconds; `more` says that some are left.
        """
        counts, rest = Cleaning().run(self._desk, seconds)
        recovered, adopted, redriven, archived = self.chores()  # a failing archive does not stop the rest
        return Housekept(
            recovered=recovered,
            adopted=adopted,
            redriven=redriven,
            archived=archived,
            more=rest.more,
            **counts,
        )

    def chores(self) -> tuple[int, int, int, int]:
        """How many leases were ended, messages adopted, dead letters redriven by their policies, and archived."""
        desk, settings = self._desk, self._desk.settings
        self.subscriptions.follow()
        catch_early(desk.store, Pen(desk.keys))
        return (
            desk.command("Leases", engine.recover),
            desk.command("Unrouted messages", engine.adopt, ADOPTED_MAX),
            self.dead.recover(),
            self.files.archive(files=ARCHIVED_FILES, ordered=False).count if settings.archive else 0,
        )

    def clean(self, cleaning: Cleaning) -> Rest:
        """Clean for a while, if it is this process's turn."""
        return cleaning.in_turn(self._desk)

    def overdue(self) -> dict[str, float]:
        """How many seconds housekeeping is behind with rows of the history and dedupe keys."""
        return overdue(self._desk)
