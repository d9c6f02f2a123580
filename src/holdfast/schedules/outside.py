"""Schedules as an application uses them: those in its code, and those that it sets at run time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from ..bodies.keys import Keys
from ..errors import InvalidSettings
from ..model.schedule import Definition, Planned
from ..settings import Settings
from ..store.statement import Plan, Runnable
from . import setting
from .defining import define, schedule_name

T = TypeVar("T")


class Storing(Protocol):
    """Runs plans in the caller's transaction or in one of their own."""

    def store_with(self, plan: Callable[[], Runnable[T]], on: object, *, verb: str) -> T: ...
    async def astore_with(self, plan: Callable[[], Runnable[T]], on: object, *, verb: str) -> T: ...


class Schedules:
    """The schedules of an application. Those in its code are in `declared`, by name."""

    def __init__(
        self,
        settings: Settings,
        keys: Keys | None,
        declared: dict[str, Definition],
        storing: Callable[[], Storing],
    ) -> None:
        self.keys, self.declared, self._storing = keys, declared, storing
        self.define = partial(define, settings)

    def declare(self, made: Definition) -> None:
        """One more in the code of the application."""
        if made.name in self.declared and self.declared[made.name] != made:
            raise InvalidSettings(
                f"There is already a schedule named {made.name!r}: give one of them another name."
            )
        self.declared[made.name] = made

    def store_declared(self) -> Plan[list[str]]:
        """Store those in the code that are new or changed; returns their names."""
        return setting.declare(list(self.declared.values()), self.keys)

    def put(self, made: Definition, on: object) -> Planned:
        return self._storing().store_with(lambda: setting.put(made, self.keys), on, verb="set_schedule")

    async def aput(self, made: Definition, on: object) -> Planned:
        return await self._storing().astore_with(
            lambda: setting.put(made, self.keys), on, verb="aset_schedule"
        )

    def drop(self, name: str, on: object) -> bool:
        known = schedule_name(name)
        return self._storing().store_with(lambda: setting.drop(known), on, verb="drop_schedule")

    async def adrop(self, name: str, on: object) -> bool:
        known = schedule_name(name)
        return await self._storing().astore_with(lambda: setting.drop(known), on, verb="adrop_schedule")
