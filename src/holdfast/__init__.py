"""Holdfast makes sure that what a service has promised to do gets done."""

from .alert import Alert
from .app import Holdfast
from .breakers import Breaker
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
from .handlers import Context, Dead, Handler, Snooze
from .letters import DeadLetter
from .message import Flag, Message, NewMessage, Published, Reason
from .rules.aftermath import CopyTo
from .rules.recovery import Recovery
from .rules.retry import RetryPolicy
from .settings import Settings
from .work import Batch, Leased, Outcome, Settlement

__version__ = "0.1.0"

__all__ = [
    "Alert",
    "ArchiveFailed",
    "Batch",
    "BodySealed",
    "Breaker",
    "Category",
    "CircuitOpen",
    "CommitRefused",
    "Context",
    "CopyTo",
    "Dead",
    "DeadLetter",
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
    "RetryPolicy",
    "Running",
    "Settings",
    "Settlement",
    "Snooze",
    "StoreTooSlow",
    "StoreUnavailable",
    "UsageError",
    "VersionConflict",
    "WrongHandle",
    "__version__",
]
