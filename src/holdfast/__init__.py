"""Holdfast makes sure that what a service has promised to do gets done."""

from .app import Holdfast
from .bodies.drafts import MessageOptions
from .errors import (
    ArchiveFailed,
    BodySealed,
    CircuitOpen,
    CommitRefused,
    HoldfastError,
    IdTaken,
    InvalidMessage,
    InvalidSettings,
    LeaseLost,
    NotFound,
    NotInTransaction,
    NotMigrated,
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
from .model.work import Batch, Leased, Outcome, Settlement
from .operations.letters import DeadLetter
from .rules.aftermath import CopyTo
from .rules.breaker import BreakerOptions
from .rules.recovery import Recovery
from .rules.retry import RetryOptions, RetryPolicy
from .settings import RetryProfile, Settings, SettingsOptions
from .worker.embedded import Health, Running
from .worker.loop import Worker

__version__ = "0.1.0"

__all__ = [
    "Alert",
    "AnyHandler",
    "ArchiveFailed",
    "Batch",
    "BodySealed",
    "Breaker",
    "BreakerOptions",
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
    "Handler",
    "Health",
    "Holdfast",
    "HoldfastError",
    "IdTaken",
    "InvalidMessage",
    "InvalidSettings",
    "LeaseLost",
    "Leased",
    "Message",
    "MessageOptions",
    "NewMessage",
    "NotFound",
    "NotInTransaction",
    "NotMigrated",
    "Outcome",
    "PoisonError",
    "Published",
    "Reason",
    "Recovery",
    "Refused",
    "RetryOptions",
    "RetryPolicy",
    "RetryProfile",
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
    "UsageError",
    "VersionConflict",
    "Worker",
    "WrongHandle",
    "__version__",
]
