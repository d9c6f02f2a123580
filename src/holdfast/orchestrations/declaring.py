"""What `@app.activity` and `@app.orchestration` do: check, make the consumer, register it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypedDict, cast

from ..errors import InvalidSettings
from ..handlers.declare import Application as HandlerApplication
from ..handlers.declare import HandlerOptions, declare
from ..handlers.registry import Handlers
from ..model import names
from ..model.limits import Breaker, SharedRate, SharedSlots
from ..model.message import Reason
from ..rules.policy import HandlerPolicy
from ..rules.retry import RetryPolicy, policy
from ..settings import RetryProfile
from ..telemetry.logs import Log
from .activities import ActivityConsumer, Fake
from .declared import Activity, ActivityDeclaration, OnDeadLetter, Orchestration, OrchestrationDeclaration
from .declared import activity as declared_activity
from .declared import orchestration as declared_orchestration
from .early import EarlySignals
from .failures import Errors
from .foreseeing import foreseen
from .host import Inlined, Options
from .inline_calls import seconds_max
from .journal import JournalUnreadable
from .messages import EARLY
from .outside import Orchestrations
from .refusals import advice
from .turns import TurnOverrun, Turns

log = Log("holdfast.orchestrations")

ATTEMPTS_MAX = 5  # of turns and activities, unless somebody says otherwise
MEANINGS: Mapping[type[BaseException], Reason] = {
    JournalUnreadable: Reason.SERIALIZATION_ERROR,
    TurnOverrun: Reason.TIMEOUT_EXCEEDED,
}


class ActivityKeywords(TypedDict, total=False):
    """The options of `@app.activity(...)` that it shares with handlers. What they mean: `Holdfast.handler`."""

    retry: RetryProfile | RetryPolicy | None
    timeout: float | None
    concurrency: int | None
    steps: Sequence[str]
    errors: Mapping[type[BaseException], Reason] | None
    breaker: str | Breaker | None
    rate: str | SharedRate | None
    cluster_concurrency: int | SharedSlots | None
    catch_up: str | None


QUEUED = ("concurrency", "steps", "breaker", "rate", "cluster_concurrency", "catch_up")  # nothing for inline


class Application(HandlerApplication, Protocol):
    """The part of an application that a declaration needs."""

    @property
    def handlers(self) -> Handlers: ...


class Declaring:
    """Declares for one application."""

    def __init__(self, app: Application, orchestrations: Orchestrations) -> None:
        self.app, self.orchestrations, self.place = app, orchestrations, orchestrations.place
        self.fakes: dict[str, Fake] = {}  # of activities, in tests

    def activity(
        self,
        name: str | None,
        errors: Errors,
        on_dead: OnDeadLetter,
        inline: Inlined,
        options: ActivityKeywords,
    ) -> ActivityDeclaration:
        common = Options(retry=options.get("retry"), timeout=options.get("timeout"), inline=inline)
        queued = tuple(each for each in QUEUED if options.get(each)) + (
            ('on_dead="wait"',) if on_dead == "wait" else ()
        )
        make = cast(
            "Callable[[Callable[..., Any]], Activity[..., Any]]",
            declared_activity(name=name, options=common, errors=errors, on_dead=on_dead),
        )

        def register(function: Callable[..., Any]) -> Activity[..., Any]:
            longest = seconds_max(self.place.settings.timeout)
            made = replace(make(function), queued=queued, inline_seconds_max=longest).checked()
            retry = policy(options.get("retry") or self.place.settings.retry)
            if options.get("retry") is None:
                retry = replace(retry, attempts_max=ATTEMPTS_MAX)
            given: ActivityKeywords = {**options, "retry": retry}
            wanted = HandlerOptions(name=names.queue_name(made.name), ordered=False, **given)
            handler = declare(self.app, function, (), wanted)
            consumer = ActivityConsumer(
                handler, self.place.pen, self.place.settings, self.fakes, partial(foreseen, self.place)
            )
            self.app.handlers.add(consumer)
            self.place.activities[made.name], self.place.served[made.name] = made, consumer
            return made

        return cast(ActivityDeclaration, register)

    def orchestration(
        self, version: str, name: str | None, errors: Errors, max_attempts: int, concurrency: int | None
    ) -> OrchestrationDeclaration:
        make = cast(
            "Callable[[Callable[..., Any]], Orchestration[..., Any]]",
            declared_orchestration(
                version=version, name=name, errors=errors, starter=self.orchestrations.starter
            ),
        )

        def register(function: Callable[..., Any]) -> Orchestration[..., Any]:
            made = make(function)
            queue = made.program.queue
            names.own_name(queue, "The orchestration")
            if concurrency is not None and concurrency <= 0:
                raise InvalidSettings(f"Orchestration {queue}: concurrency={concurrency!r} must be positive.")
            for line in advice(function):
                log.warning(
                    "orchestration.advice", "Orchestration %(queue)s: %(advice)s", queue=queue, advice=line
                )
            settings = self.place.settings
            judged = self._policy(max_attempts)
            masking = self.app.redact
            self.app.handlers.add(
                Turns(made.program, self.place, judged, masking, concurrency or settings.concurrency)
            )
            if EARLY not in self.app.handlers:
                # A signal that nobody has waited for must not stop those behind it.
                passing = replace(judged, on_dead="continue")
                self.app.handlers.add(EarlySignals(self.place, passing, masking))
            self.orchestrations.declared[queue] = made
            return made

        return cast(OrchestrationDeclaration, register)

    def _policy(self, max_attempts: int) -> HandlerPolicy:
        settings = self.place.settings
        return HandlerPolicy(
            retry=RetryPolicy(attempts_max=max_attempts, base=1.0, cap=300.0, jitter=0.1),
            on_dead="halt",
            declared=MEANINGS,
            refunds_max=settings.refunds,
            error_chars=settings.error_chars,
            redact=self.app.redact.known,
        )
