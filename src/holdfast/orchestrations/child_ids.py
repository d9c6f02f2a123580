"""The ids of children and detached starts that were given none."""

from __future__ import annotations

from uuid import uuid5

from ..errors import UsageError
from ..model import names
from .journal import NAMESPACE, Child, Command, Start

LONG = names.ID_MAX - 30  # from here on the ids of detached starts do not begin with that of the instance


def child_id(
    instance: str, execution: int, number: int, recorded: Command | None, *, is_awaited: bool, is_new: bool
) -> str:
    """Made of the instance and the number of the command, so that replay makes it again; UsageError if it is too long.

    `recorded`: what the journal has there. A child that was asked for before a rewind keeps its id. Of detached
    starts one may start the next without end: their ids do not grow with that. Children that call themselves do end.
    """
    base = str(uuid5(NAMESPACE, instance)) if len(instance) > LONG and not is_awaited else instance
    if isinstance(recorded, Child | Start):
        for each in (base, instance):
            if recorded.id.startswith(f"{each}/"):
                before, _, last = recorded.id[len(each) + 1 :].rpartition(".")
                if last == str(number) and before.isdigit() and int(before) <= execution:
                    return recorded.id
    own = f"{base}/{execution}.{number}"
    if is_new and len(own) > names.ID_MAX:
        raise UsageError(
            f"A child of instance {instance[:40]!r}… would have an id of more than {names.ID_MAX} characters, which "
            "nobody could signal or cancel. Does it call itself without end? Else give the child an id: using(id=...)."
        )
    return own
