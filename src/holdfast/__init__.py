"""Holdfast makes sure that what a service has promised to do gets done."""

from .alert import Alert
from .app import Holdfast
from .breakers import Breaker
from .drafts import MessageOptions
from .errors import (
    ArchiveFailed,
    BodySealed,
    CircuitOpen,
    HoldfastError,
    InvalidMessage,
    InvalidSettings,
    LeaseLost,
    NotFound,
    NotInTransaction,
    NotMigrated,
    PoisonError,
    Refused,
    StoreUnavailable,
    UsageError,
    VersionConflict,
    WrongHandle,
)
from .failure import Category, FailureDescription
from .gate import SharedRate, SharedSlots
from .handlers import AnyHandler, Context, Dead, Handler, Snooze, Transaction, TransactionConnection
from .letters import DeadLetter
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
    "Context",
    "CopyTo",
    "Dead",
    "DeadLetter",
    "Death",
    "Event",
    "FailureDescription",
    "Flag",
    "Handler",
    "Holdfast",
    "HoldfastError",
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
    "Settings",
    "SettingsOptions",
    "Settlement",
    "SharedRate",
    "SharedSlots",
    "Snooze",
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
