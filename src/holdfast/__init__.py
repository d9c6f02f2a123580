"""Holdfast makes sure that what a service has promised to do gets done."""

from .alert import Alert
from .app import Holdfast
from .breakers import Breaker
from .drafts import MessageOptions
from .embedded import Health, Running
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
from .failure import Category, FailureDescription
from .handlers import AnyHandler, Context, Dead, Handler, Snooze, Transaction, TransactionConnection
from .letters import DeadLetter
from .limits import SharedRate, SharedSlots
from .message import Death, Event, Flag, Message, NewMessage, Published, Reason, Trouble
from .rules.aftermath import CopyTo
from .rules.breaker import BreakerOptions
from .rules.recovery import Recovery
from .rules.retry import RetryOptions, RetryPolicy
from .settings import RetryProfile, Settings, SettingsOptions
from .work import Batch, Leased, Outcome, Settlement
from .worker import Worker

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
