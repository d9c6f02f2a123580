"""Where an operator's questions and orders meet the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from ..errors import NotFound, Refused, UsageError
from ..handlers import Handler
from ..keys import Keys
from ..logs import Log
from ..settings import Settings
from ..store import Store
from ..store import operator_queries as queries
from ..store.operator_plans import OrderMoved
from ..store.plans import Plans
from ..store.statement import Plan
from .results import Changed

T = TypeVar("T")
P = ParamSpec("P")

TRIES = 20  # of an order whose stream moves meanwhile
AGAIN = {"40001", "40P01"}  # PostgreSQL chose us as the victim: nothing was done

log = Log("holdfast.operations")


class Desk:
    """Asks the store, gives it orders, and begins an order anew when what it is about has moved.

    `handlers` are those of the application, if one is known.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        handlers: Iterable[Handler[Any, Any]] = (),
        keys: Keys | None = None,
    ) -> None:
        self.store, self.settings, self.keys = store, settings, keys
        self.handlers = {handler.queue: handler for handler in handlers}

    @property
    def plans(self) -> Plans:
        return self.store.plans

    def ask(self, make: Callable[[Any], Plan[T]], *, one: bool = True) -> T:
        """Run a plan that only reads. `one`: it is a single statement."""
        return self.store.read(make, one=one)

    def order(self, make: Callable[[Any], Plan[T]], what: str) -> T:
        """Run a plan that changes something, in a transaction of its own."""
        for _ in range(TRIES):
            try:
                return self.store.run(make)
            except OrderMoved:
                continue
            except Exception as error:
                if getattr(error, "sqlstate", None) not in AGAIN:
                    raise
        raise Refused(f"{what} moved {TRIES} times while the order was being given: try again.")

    def each(
        self,
        id: UUID,
        queue: str | None,
        plan: Callable[[Plans, int, Any], Plan[T]],
        tell: Callable[[T], str],
    ) -> list[Changed]:
        """Give an order about each pending delivery of a message, one transaction for each."""
        done: dict[str | None, Changed] = {}
        refused: dict[str | None, Refused] = {}
        for _ in range(TRIES):
            rows = self.ask(lambda _: queries.pending(self.plans, id, queue))
            left = [(seq, name) for seq, name in rows if name not in done and name not in refused]
            if not left:
                break
            for seq, name in left:
                try:
                    answer = self._once(plan, seq)
                    done[name] = Changed(id, name, tell(answer))
                    log.info(
                        "message.ordered",
                        "message %(message_id)s in queue %(queue)s: %(what)s",
                        message_id=id,
                        queue=name,
                        what=done[name].what,
                    )
                except OrderMoved:
                    continue  # it ended, fired or was adopted meanwhile: look again
                except Refused as error:
                    refused[name] = error
                except Exception as error:
                    if getattr(error, "sqlstate", None) not in AGAIN:
                        raise
        if refused:
            told = "; ".join(str(error) for error in refused.values())
            others = f" Done in {', '.join(str(name) for name in done)}." if done else ""
            raise Refused(told + others)
        if not done:
            raise self.missing(id, queue)
        return list(done.values())

    def _once(self, plan: Callable[[Plans, int, Any], Plan[T]], seq: int) -> T:
        return self.store.run(lambda now: plan(self.plans, seq, now))

    def missing(self, id: UUID, queue: str | None) -> NotFound:
        """Why there is no pending delivery to give an order about."""
        where = f" in queue {queue}" if queue is not None else ""
        _, dead, ended = self.ask(lambda now: queries.show(self.plans, id, now), one=False)
        if any(queue in (None, row["queue"]) for row in dead):
            return NotFound(
                f"Message {id} is a dead letter{where}: `holdfast dead redrive {id}` brings it back."
            )
        for row in ended:
            if queue in (None, row["queue"]):
                when = f"{row['ended_at']:%Y-%m-%d %H:%M:%S} UTC"
                return NotFound(
                    f"Message {id} is not pending{where}: it ended as {row['outcome']} at {when}."
                )
        return NotFound(f"There is no message {id}{where}: `holdfast messages list` shows what is pending.")


def as_id(value: UUID | str) -> UUID:
    """A message's id, given as text or not."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except ValueError:
        raise UsageError(
            f"{value!r} is not the id of a message, which is a UUID: `holdfast messages list` shows them."
        ) from None


def needed(why: str, chars: int) -> str:
    """The reason that an operator gives, cut to what is stored of an error."""
    text = " ".join(why.split())
    if not text:
        raise UsageError("Say why: the reason is kept with the message.")
    return text[:chars]
