"""Holdfast: a transactional outbox and job queue for Python, on SQLite or PostgreSQL.

A name is loaded when it is first asked for: an import costs time in every process that starts, and few use all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from .letters import DeadLetter
    from .limits.breakers import Breaker
    from .model.alert import Alert
    from .model.failure import Category, FailureDescription
    from .model.instance import InstanceStatus
    from .model.limits import SharedRate, SharedSlots
    from .model.message import Death, Dedupe, Event, Flag, Message, NewMessage, Published, Reason, Trouble
    from .model.schedule import Occurrence, Planned
    from .model.work import Batch, Leased, Outcome, Settlement
    from .orchestrations.declared import Activity, Orchestration
    from .orchestrations.failures import ActivityFailed, CallFailed, OrchestrationFailed, UndoFailed
    from .orchestrations.flow import Flow
    from .orchestrations.journal import JournalUnreadable
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
else:
    # The same once more, by module, since what stands above is never run. tests/facade/test_imports.py compares them.
    _HOMES = {
        "app": "Holdfast",
        "bodies.drafts": "MessageOptions",
        "errors": (
            "ArchiveFailed BodySealed CircuitOpen CommitRefused HoldfastError IdTaken "
            "InstanceExists InvalidMessage InvalidSettings LeaseLost NotEnded NotFound "
            "NotInTransaction NotMigrated PoisonedActivity PoisonedTurn PoisonError Refused "
            "StoreTooSlow StoreUnavailable UsageError VersionConflict WrongHandle"
        ),
        "handlers.context": "Context Dead Snooze Transaction TransactionConnection",
        "handlers.declare": "AnyHandler Handler",
        "letters": "DeadLetter",
        "limits.breakers": "Breaker",
        "model.alert": "Alert",
        "model.failure": "Category FailureDescription",
        "model.instance": "InstanceStatus",
        "model.limits": "SharedRate SharedSlots",
        "model.message": "Death Dedupe Event Flag Message NewMessage Published Reason Trouble",
        "model.schedule": "Occurrence Planned",
        "model.work": "Batch Leased Outcome Settlement",
        "orchestrations.declared": "Activity Orchestration",
        "orchestrations.failures": "ActivityFailed CallFailed OrchestrationFailed UndoFailed",
        "orchestrations.flow": "Flow",
        "orchestrations.journal": "JournalUnreadable",
        "orchestrations.turns": "TurnOverrun",
        "requests.kinds": "Answer Asked Request RequestKind Resolved",
        "rules.aftermath": "CopyTo",
        "rules.breaker": "BreakerOptions",
        "rules.patterns": "Rule",
        "rules.recovery": "Recovery",
        "rules.recurrence": "cron daily every monthly weekly yearly",
        "rules.retry": "RetryOptions RetryPolicy",
        "settings": "RetryProfile Settings SettingsOptions",
        "worker.embedded": "Health Running",
        "worker.loop": "Worker",
    }
    _HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = found  # this function is not called for it again
        return found

    def __dir__():
        return sorted({*globals(), *__all__})


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
