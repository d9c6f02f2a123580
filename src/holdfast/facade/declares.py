"""Declaring: handlers, orchestrations, destinations, inboxes; their shared limits; where alerts go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Unpack, overload

from ..errors import InvalidSettings, UsageError
from ..handlers.declare import AnyHandler, Handler, HandlerOptions, Key, declare, is_declared_again
from ..handlers.forms import BatchDeclaration, Declaration, HandlerKeywords
from ..model import names
from ..model.limits import Breaker as BreakerLike
from ..model.limits import SharedRate, SharedSlots, slots_count
from ..model.message import Reason
from ..rules import aftermath
from ..rules.aftermath import CopyTo
from ..rules.policy import OnDead, Ordering
from ..rules.rate import rate as read_rate
from ..rules.recovery import Recovery
from ..rules.retry import RetryPolicy
from ..settings import RetryProfile
from ..worker.around import Around
from .publishes import Publishes

if TYPE_CHECKING:
    from ..alerting.sinks import Listener, Sink
    from ..handlers.context import Context
    from ..inboxes import Inbox, InboxOptions
    from ..letters import DeadLetter
    from ..limits.breakers import Breaker, Counts
    from ..orchestrations.declared import ActivityDeclaration, OnDeadLetter, OrchestrationDeclaration
    from ..orchestrations.declaring import ActivityKeywords
    from ..orchestrations.failures import Errors
    from ..orchestrations.host import Inlined
    from ..rules.breaker import BreakerOptions
    from ..transports.contract import Connector, SendingConnector
    from ..transports.destination import Destination, DestinationKeywords
    from .brokering import Brokering

Hear = TypeVar("Hear", bound="Listener")
Hook = TypeVar("Hook", bound="Callable[[DeadLetter], object] | Callable[[DeadLetter, Context], object]")
Surround = TypeVar("Surround", bound=Around)


class Declares(Publishes, Protocol):
    """`@app.handler` and everything else that an application declares before it runs."""

    @property
    def _brokering(self) -> Brokering: ...

    # -- handlers

    @overload
    def handler(self, *types: str, **options: Unpack[HandlerKeywords]) -> Declaration: ...
    @overload
    def handler(self, *types: str, batch: int, **options: Unpack[HandlerKeywords]) -> BatchDeclaration: ...
    def handler(
        self,
        *types: str,
        name: str | None = None,
        family: str | None = None,
        renamed_from: str | None = None,
        retry: RetryProfile | RetryPolicy | None = None,
        order: Ordering = "strict",
        on_dead: OnDead = "continue",
        ordered: bool = True,
        timeout: float | None = None,
        concurrency: int | None = None,
        per_key: int | None = None,
        key: Key | None = None,
        batch: int = 0,
        steps: Sequence[str] = (),
        errors: Mapping[type[BaseException], Reason] | None = None,
        breaker: str | BreakerLike | None = None,
        rate: str | SharedRate | None = None,
        cluster_concurrency: int | SharedSlots | None = None,
        catch_up: str | None = None,
        after_death: Literal["hold", "alert"] | CopyTo | AnyHandler = "hold",
        recovery: Mapping[Reason, Recovery] | None = None,
    ) -> Callable[[Callable[..., Any]], AnyHandler]:
        """Declare the function below as the handler of these types (`order.placed`, or a prefix `order.*`).

        Its queue has the function's name unless `name` is given; with `family="customers"` it serves the queue
        `customers` and every queue below it (`customers/17`, docs/handlers.md). `renamed_from` is its former name:
        messages that wait under that name are handled here. `retry` is a profile or a RetryPolicy; `order` says whether
        a failed message blocks its stream (`strict`) or is set aside (`available`); `on_dead` whether the stream
        continues after a death or halts; `batch` passes up to so many messages to one call, as a list. `concurrency` is
        how many calls one process makes at once, `per_key` how many for one `key`: "subject", "stream", or the result
        of a function of the body. `cluster_concurrency` is how many run at once on all machines together, `rate` how
        many begin in a second; `catch_up="50/s"` is the rate at which this handler begins after a pause or after a time
        without workers; it doubles every few seconds. `after_death`: the dead letter is held; besides, an alert is
        sent, or a copy goes to a backup handler. `recovery`: which dead letters are redriven automatically.
        """
        if not types:
            raise UsageError('A handler needs at least one type: @app.handler("order.placed").')

        wish = aftermath.after_death(
            CopyTo(after_death.queue) if isinstance(after_death, Handler) else after_death
        )

        options = HandlerOptions(
            name=name, family=family, renamed_from=renamed_from, retry=retry, order=order, on_dead=on_dead,
            ordered=ordered, timeout=timeout,
            concurrency=concurrency, per_key=per_key, key=key, batch=batch, steps=steps, errors=errors, breaker=breaker,
            rate=rate, cluster_concurrency=cluster_concurrency, catch_up=catch_up, after_death=wish,
            recovery={**self.recovery, **(recovery or {})},
        )  # fmt: skip

        def register(function: Callable[..., Any]) -> AnyHandler:
            return self._declare(function, types, options, renamed_from)

        return register

    def _declare(
        self,
        function: Callable[..., Any],
        types: tuple[str, ...],
        options: HandlerOptions,
        renamed_from: str | None,
    ) -> AnyHandler:
        after_death = replace(options.after_death, has_hook=aftermath.HOOK_QUEUE in self.handlers)
        handler = declare(self, function, types, replace(options, after_death=after_death))
        if is_declared_again(self.handlers.get(handler.queue), handler):
            self.handlers.put(handler)
            self.publishing.forget_subscriptions()
        else:
            self.handlers.add(handler)
        if renamed_from is not None:
            self.handlers.rename(renamed_from, handler.queue)
        return handler

    # -- orchestrations

    def activity(
        self, function: None = None, /, *, name: str | None = None, returns: Errors | None = None,
        on_dead: OnDeadLetter = "answer", inline: Inlined = False, **options: Unpack[ActivityKeywords],
    ) -> ActivityDeclaration:  # fmt: skip
        """Declare the function below as an activity: a handler that orchestrations call and whose result they receive.

        It has the queue of its name and takes the options of a handler. `returns` names exceptions that calling code
        receives unchanged: `returns={"CardDeclined": CardDeclined}`; any other is an ActivityFailed. With
        `on_dead="wait"` a dead letter is no answer: the instance waits until an operator redrives or discards it.

        `inline=True` runs it inside the turn, without a message; its result is stored before the next one starts.
        `inline="turn"` stores results with the turn: after a crash all activities of the turn are run again.
        """
        names.needs_parentheses("activity", function)
        return self._declaring.activity(name, returns or {}, on_dead, inline, options)

    def orchestration(
        self, function: None = None, /, *, version: str = "1", name: str | None = None,
        returns: Errors | None = None, max_attempts: int = 5, concurrency: int | None = None,
    ) -> OrchestrationDeclaration:  # fmt: skip
        """Declare the `async def` below as an orchestration: it survives restarts by replay (docs/orchestrations.md).

        Its queue is `name@version`. A turn that fails `max_attempts` times is a dead letter, and its instance stops.
        """
        names.needs_parentheses("orchestration", function)
        return self._declaring.orchestration(version, name, returns or {}, max_attempts, concurrency)

    # -- destinations

    def destination(
        self, name: str, connector: SendingConnector, *, types: Sequence[str], **options: Unpack[DestinationKeywords]
    ) -> Destination:  # fmt: skip
        """Send messages of these types to a broker: `app.destination("orders", rabbit, types=["order.*"], to="shop")`.

        `to` (exchange) and `key` (routing key) are templates of type, stream, subject, id and headers.x. They travel
        as CloudEvents from `source`, in binary or structured `mode`, or as "plain" messages. `forward`: also those that
        came through an inbox. `batch`: messages in one call at most. The other options are those of `handler`; a
        breaker has the destination's name unless another is given (docs/relay.md).
        """
        return self._brokering.destination(name, connector, types, options)

    def on_dead_letter(self, function: Hook) -> Hook:
        """Declare the function below as the hook for dead letters: called at least once for each death.

        It receives a `DeadLetter` and is retried like any handler; a typical use is to open a ticket.
        """
        # Imported here, as below: few applications have one.
        from ..letters import hook

        handler = hook(self, function, lambda: self.operations)
        self.handlers.report_deaths()
        self.handlers.add(handler)
        return function

    def around_call(self, hook: Surround) -> Surround:
        """Enter the context manager that the function below returns around each call of a `def` handler.

        In the thread of the call: for connections and sessions that a framework binds to threads (docs/handlers.md).
        """
        self._around.append(hook)
        return hook

    def breaker(
        self, name: str, *, counts: Counts | None = None, **options: Unpack[BreakerOptions]
    ) -> Breaker:
        """The breaker of a dependency, shared by all processes: `with app.breaker("llm"):`, or `breaker="llm"`.

        Options, given once: window, calls_min, opens_above, cooldown, trials, closes_above, catch_up,
        catch_up_doubles, counts (what is a failure).
        """
        return self.breakers.get(name, counts=counts, **options)

    def rate(self, name: str, rate: str, *, burst: int | None = None) -> SharedRate:
        """A rate that several handlers share, such as that of a destination: `rate=app.rate("smtp", "100/s")`."""
        return SharedRate(name, read_rate(rate, burst))

    def slots(self, name: str, count: int) -> SharedSlots:
        """How many run at once on all machines, shared by handlers: `cluster_concurrency=app.slots("smtp", 5)`."""
        return SharedSlots(names.own_name(name, "The slots"), slots_count(count, f"Slots {name!r}"))

    def inbox(self, name: str, broker: Connector, *, queue: str, **options: Unpack[InboxOptions]) -> Inbox:
        """Receive what a broker has in a queue: `app.inbox("billing", rabbit, queue="shop.billing")` (docs/inbox.md).

        Each message is stored, committed and then acknowledged, and the handlers of its type receive it. `bind`:
        exchanges and the keys to bind the queue to; `stream`: a template for the stream here, "{partitionkey|subject}";
        `types`: the required shape of bodies, by type; `dedupe`: how long a repeated message is recognised;
        `dead_letters`: the queue is a dead letter queue of the broker; `backlog`: it stops receiving while so many
        messages wait to be handled; `resolves`: a kind of request whose results the messages bring (docs/requests.md).
        """
        return self._brokering.inbox(name, broker, queue, **options)

    # -- alerts

    def on_alert(self, function: Hear) -> Hear:
        """Call the function below, async or not, with every `Alert` that begins or is over, in one of the workers."""
        from ..alerting.sinks import FunctionSink

        self._add_sink(FunctionSink(function))
        return function

    def alert_webhook(
        self,
        url: str,
        secret: str | Sequence[str],
        *,
        allow_http: bool = False,
        allow_private: bool = False,
        timeout: float = 10.0,
    ) -> None:
        """Send every alert to this address, as JSON, signed (docs/alerts.md).

        `secret`: one, or two while one is replaced, the new one first. `allow_private`: it may be an address of your
        own network. `timeout` is for the whole call.
        """
        from ..alerting.webhook import Webhook

        self._add_sink(
            Webhook(url, secret, allow_http=allow_http, allow_private=allow_private, timeout=timeout)
        )

    def _add_sink(self, sink: Sink) -> None:
        if any(each.name == sink.name for each in self._sinks):
            raise InvalidSettings(f"Alerts go to {sink.name} already: give each sink once.")
        self._sinks.append(sink)
