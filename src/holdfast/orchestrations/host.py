"""What the parts of this package ask of the instance whose code is running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from ..rules.retry import RetryPolicy
from ..settings import RetryProfile
from .journal import Answered, Once
from .signals import Box

Inlined = bool | Literal["turn"]
Promised = asyncio.Future[Answered] | Answered  # what a call gives; mostly later


@dataclass(frozen=True, slots=True)
class Options:
    """How a call is carried out. It is not in the journal: it may be changed while instances run.

    `inline`: True runs an activity inside the turn and records each result; "turn" records them with the turn.
    """

    retry: RetryProfile | RetryPolicy | None = None
    timeout: float | None = None
    queue: str | None = None
    deadline: datetime | timedelta | None = None
    inline: Inlined = False
    attributes: Mapping[str, str] | None = None  # of a child or a detached start


NO_OPTIONS = Options()


class Host(Protocol):
    """An instance, as its loop, its flow and its calls see it."""

    @property
    def id(self) -> str: ...
    @property
    def execution(self) -> int: ...
    @property
    def seed(self) -> str: ...
    @property
    def parent(self) -> str | None: ...
    @property
    def deadline(self) -> datetime | None: ...
    @property
    def replaying(self) -> bool: ...
    def timer(self, due: int, fire: Callable[[], None]) -> int: ...
    def withdraw(self, number: int) -> None: ...
    def call(self, name: str, value: Any, options: Options) -> tuple[int, Promised]: ...
    def child(
        self, name: str, id: str | None, value: Any, options: Options
    ) -> tuple[int, asyncio.Future[Answered]]: ...
    def start(self, name: str, id: str | None, value: Any, options: Options) -> str: ...
    def box(self, name: str) -> Box: ...
    def once(self, name: str, function: Callable[[], Any]) -> Once: ...
    def patched(self, name: str) -> bool: ...
    def again(self, value: Any) -> None: ...
    @property
    def status(self) -> Any: ...
    @status.setter
    def status(self, value: Any) -> None: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    @attributes.setter
    def attributes(self, value: Mapping[str, str]) -> None: ...
