"""Holdfast: a transactional outbox and job queue for Python, on SQLite or PostgreSQL."""

from .app import Holdfast
from .bodies.drafts import MessageOptions
from .errors import (
    ArchiveFailed,
    BodySealed,
    CircuitOpen,
    CommitRefused,
    HoldfastError,
    IdTaken,
    InstanceExists,
    InvalidMessage,
    InvalidSettings,
    LeaseLost,
    NotEnded,
    NotFound,
    NotInTransaction,
    NotMigrated,
    PoisonedActivity,
    PoisonedTurn,
    PoisonError,
    Refused,
    StoreTooSlow,
    StoreUnavailable,
    UsageError,
    VersionConflict,
    WrongHandle,
)
from .handlers.context import Context, Dead, Snooze, Transaction, TransactionConnection
from .handlers.declare import AnyHandler, Handler
from .limits.breakers import Breaker
from .model.alert import Alert
from .model.failure import Category, FailureDescription
from .model.limits import SharedRate, SharedSlots
from .model.message import Death, Dedupe, Event, Flag, Message, NewMessage, Published, Reason, Trouble
from .model.schedule import Occurrence, Planned
from .model.work import Batch, Leased, Outcome, Settlement
from .operations.letters import DeadLetter
from .orchestrations.declared import Activity, Orchestration
from .orchestrations.failures import ActivityFailed, CallFailed, OrchestrationFailed, UndoFailed
from .orchestrations.flow import Flow
from .orchestrations.journal import JournalUnreadable
from .orchestrations.outside import InstanceStatus
from .orchestrations.turns import TurnOverrun
from .requests.kinds import Answer, Asked, Request, RequestKind, Resolved
from .rules.aftermath import CopyTo
from .rules.breaker import BreakerOptions
from .rules.patterns import Rule
from .rules.recovery import Recovery
from .rules.recurrence import cron, daily, every, monthly, weekly, yearly
from .rules.retry import RetryOptions, RetryPolicy
from .settings import RetryProfile, Settings, SettingsOptions
from .worker.embedded import Health, Running
from .worker.loop import Worker

__version__ = "0.1.0"

__all__ = [
    "Activity",
    "ActivityFailed",
    "Alert",
    "Answer",
    "AnyHandler",
    "ArchiveFailed",
    "Asked",
    "Batch",
    "BodySealed",
    "Breaker",
    "BreakerOptions",
    "CallFailed",
    "Category",
    "CircuitOpen",
    "CommitRefused",
    "Context",
    "CopyTo",
    "Dead",
    "DeadLetter",
    "Death",
    "Dedupe",
    "Event",
    "FailureDescription",
    "Flag",
    "Flow",
    "Handler",
    "Health",
    "Holdfast",
    "HoldfastError",
    "IdTaken",
    "InstanceExists",
    "InstanceStatus",
    "InvalidMessage",
    "InvalidSettings",
    "JournalUnreadable",
    "LeaseLost",
    "Leased",
    "Message",
    "MessageOptions",
    "NewMessage",
    "NotEnded",
    "NotFound",
    "NotInTransaction",
    "NotMigrated",
    "Occurrence",
    "Orchestration",
    "OrchestrationFailed",
    "Outcome",
    "Planned",
    "PoisonError",
    "PoisonedActivity",
    "PoisonedTurn",
    "Published",
    "Reason",
    "Recovery",
    "Refused",
    "Request",
    "RequestKind",
    "Resolved",
    "RetryOptions",
    "RetryPolicy",
    "RetryProfile",
    "Rule",
    "Running",
    "Settings",
    "SettingsOptions",
    "Settlement",
    "SharedRate",
    "SharedSlots",
    "Snooze",
    "StoreTooSlow",
    "StoreUnavailable",
    "Transaction",
    "TransactionConnection",
    "Trouble",
    "TurnOverrun",
    "UndoFailed",
    "UsageError",
    "VersionConflict",
    "Worker",
    "WrongHandle",
    "__version__",
    "cron",
    "daily",
    "every",
    "monthly",
    "weekly",
    "yearly",
]
