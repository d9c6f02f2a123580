"""Configuration files: `[tool.holdfast]` of pyproject.toml, or holdfast.toml. Each error names its key.

    [tool.holdfast]
    url = "env:DATABASE_URL"
    [tool.holdfast.brokers.rabbit]
    url = "amqp://shop@broker/"
    password = "env:RABBIT_PASSWORD"
    [tool.holdfast.destinations.orders]
    broker = "rabbit"
    types = ["order.*"]
    to = "shop.events"

A secret is not in the file: `env:NAME` and `file:PATH` say where it is, and it is read when it is needed.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from ..errors import HoldfastError, InvalidSettings
from ..model.names import passwords
from ..settings import Settings
from ..transports import DeadLetters, Exchange, MemoryBroker, Queue, RabbitMQ
from ..transports.contract import Connector
from ..transports.secrets import Secret

if TYPE_CHECKING:
    from .declares import Declares

FILE, PROJECT, TABLE = "holdfast.toml", "pyproject.toml", "tool.holdfast"
FILE_BYTES = 1024 * 1024

T = TypeVar("T")


class ExchangeTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str
    kind: Literal["topic", "direct", "fanout", "headers"] = "topic"


class DeadLettersTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    exchange: str
    queue: str
    key: str | None = None


class QueueTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str
    bind: dict[str, list[str]] = {}
    kind: Literal["quorum", "classic"] = "quorum"
    dead_letters: DeadLettersTable | None = None
    single_active: bool = False


class BrokerTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A broker. `transport` is rabbitmq, or memory for experiments."""

    transport: Literal["rabbitmq", "memory"] = "rabbitmq"
    url: str | None = None
    password: str | None = None
    ca: str | None = None
    certificate: str | None = None
    may_declare: bool | None = None
    heartbeat: int | None = None
    connect_seconds: float | None = None
    confirm_seconds: float | None = None
    body_bytes: int | None = None
    in_flight: int | None = None
    exchanges: list[ExchangeTable] = []
    queues: list[QueueTable] = []


class DestinationTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    broker: str
    types: list[str]
    to: str | None = None
    key: str | None = None
    source: str | None = None
    mode: Literal["binary", "structured", "plain"] | None = None
    forward: bool | None = None
    batch: int | None = None
    retry: Literal["patient", "brisk", "api", "steady", "immediate"] | None = None
    order: Literal["strict", "available"] | None = None
    on_dead: Literal["continue", "halt"] | None = None
    timeout: float | None = None
    breaker: str | None = None
    rate: str | None = None
    catch_up: str | None = None
    after_death: Literal["hold", "alert"] | None = None


class InboxTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    broker: str
    queue: str
    bind: dict[str, str | list[str]] | None = None
    stream: str | None = None
    dedupe: float | None = None
    prefetch: int | None = None
    prefetch_bytes: int | None = None
    dead_letters: bool | None = None
    backlog: int | None = None


class Configured(msgspec.Struct, frozen=True):
    """The content of a file. `where` is its name with the table, for errors."""

    where: str
    app: str | None
    url: str | None
    settings: dict[str, Any]
    brokers: dict[str, BrokerTable]
    destinations: dict[str, DestinationTable]
    inboxes: dict[str, InboxTable]

    def database(self) -> str:
        """The URL of the database, read from the place that the file names."""
        if self.url is None:
            raise InvalidSettings(
                f'{self.where}.url is missing: url = "env:DATABASE_URL", or sqlite:///shop.db.'
            )
        return _plain(self.url, f"{self.where}.url")

    def declare(self, app: Declares) -> None:
        """Declare the destinations and inboxes of this file."""
        brokers = self.connectors()
        for name, sends in self.destinations.items():
            with _named(f"{self.where}.destinations.{name}"):
                app.destination(
                    name, brokers[sends.broker], types=sends.types, **_options(sends, "broker", "types")
                )
        for name, receives in self.inboxes.items():
            with _named(f"{self.where}.inboxes.{name}"):
                broker = brokers[receives.broker]
                app.inbox(name, broker, queue=receives.queue, **_options(receives, "broker", "queue"))

    def connectors(self) -> dict[str, Connector]:
        """The brokers by name, none of them connected."""
        return {name: _broker(each, f"{self.where}.brokers.{name}") for name, each in self.brokers.items()}


# --- Finding and reading ------------------------------------------------------------------------------------------


def find(path: str | os.PathLike[str] | None = None, folder: Path | None = None) -> Configured | None:
    """The content of the file; without a path, of the nearest one, from here upwards. None: there is none."""
    if path is not None:
        found = _read(Path(path))
        if found is None:
            raise InvalidSettings(f"{os.fspath(path)} has no table [{TABLE}].")
        return found
    here = (folder or Path.cwd()).resolve()
    for each in (here, *here.parents):
        for name in (FILE, PROJECT):
            if (each / name).is_file() and (found := _read(each / name)) is not None:
                return found
    return None


def _read(path: Path) -> Configured | None:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
        if len(content) > FILE_BYTES:
            raise InvalidSettings(f"{path.name} has more than {FILE_BYTES} bytes.")
        found: Any = tomllib.loads(content.decode())
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror or type(error).__name__}.") from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"{path.name} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at .*\)$", str(error))  # its other words may quote a secret
        raise InvalidSettings(
            f"{path.name} is not TOML {place[0] if place else ''}.".replace(" .", ".")
        ) from None
    where = path.name
    if path.name != FILE and "tool" in found:
        found, where = found.get("tool", {}).get("holdfast"), f"{path.name}: {TABLE}"
    elif path.name == PROJECT:
        return None
    return None if found is None else read(found, where if where != FILE else f"{FILE}: holdfast")


def read(found: object, where: str) -> Configured:
    """The content of a table, checked; or InvalidSettings with the key that is wrong."""
    if not isinstance(found, Mapping):
        raise InvalidSettings(f"{where} must be a table.")
    known = {"app", "url", "settings", "brokers", "destinations", "inboxes"}
    if unknown := sorted(set(found) - known):
        raise InvalidSettings(f"{where}.{unknown[0]} is not known; there are: {', '.join(sorted(known))}.")
    made = Configured(
        where=where,
        app=_typed(str | None, found.get("app"), f"{where}.app"),
        url=_typed(str | None, found.get("url"), f"{where}.url"),
        settings=_settings(found.get("settings", {}), f"{where}.settings"),
        brokers=_tables(BrokerTable, found.get("brokers", {}), f"{where}.brokers"),
        destinations=_tables(DestinationTable, found.get("destinations", {}), f"{where}.destinations"),
        inboxes=_tables(InboxTable, found.get("inboxes", {}), f"{where}.inboxes"),
    )
    for group, tables in (("destinations", made.destinations), ("inboxes", made.inboxes)):
        for name, each in tables.items():
            if each.broker not in made.brokers:
                there = ", ".join(sorted(made.brokers)) or "none"
                raise InvalidSettings(
                    f"{where}.{group}.{name}.broker names {each.broker!r}, which is no broker; there are: {there}."
                )
    return made


def _tables(kind: type[T], found: object, where: str) -> dict[str, T]:
    if not isinstance(found, Mapping):
        raise InvalidSettings(f"{where} must be a table.")
    return {name: _typed(kind, each, f"{where}.{name}") for name, each in found.items()}


def _typed(kind: Any, value: object, where: str) -> Any:
    """The value as this type. The text of the file is not quoted: it may be a secret."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        if unknown := re.search(r"unknown field `(.+)`", text):
            known = (
                ", ".join(kind.__struct_fields__)
                if place in ("", "`") and hasattr(kind, "__struct_fields__")
                else ""
            )
            there = f"; there are: {known}" if known else ""
            raise InvalidSettings(f"{where}{place.rstrip('`')}.{unknown[1]} is not known{there}.") from None
        if missing := re.search(r"required field `(.+)`", text):
            raise InvalidSettings(f"{where}{place.rstrip('`')}.{missing[1]} is missing.") from None
        said = re.sub(r"Invalid enum value.*", "it is none of the values that are allowed", text).replace(
            "`", ""
        )
        allowed = _allowed(kind, place.rstrip("`"))
        raise InvalidSettings(f"{where}{place.rstrip('`')}: {said[0].lower()}{said[1:]}{allowed}.") from None


def _allowed(kind: Any, place: str) -> str:
    """The words that a key may have, if it has a fixed set of them."""
    hints = getattr(kind, "__annotations__", {})
    found = re.findall(r"'([^']+)'", str(hints.get(place.lstrip("."), "")).replace('"', "'"))
    return f": {', '.join(found)}" if found else ""


def _settings(found: object, where: str) -> dict[str, Any]:
    if not isinstance(found, Mapping):
        raise InvalidSettings(f"{where} must be a table.")
    for name, value in found.items():
        try:
            Settings().but(**{name: value})
        except (InvalidSettings, TypeError) as error:
            raise InvalidSettings(f"{where}.{name}: {error}") from None
    return dict(found)


# --- Secrets and brokers --------------------------------------------------------------------------------------------


def secret(text: str) -> Secret | None:
    """Where a secret is: `env:NAME` or `file:PATH`; None: the text is no such reference."""
    kind, _, name = text.partition(":")
    if kind == "env":
        return Secret(name)
    return Secret.file(name) if kind == "file" else None


def _url(text: str, where: str) -> str | Secret:
    found = _referred(text, where)
    if found is None and _has_password(text):
        raise InvalidSettings(
            f'{where} has a password in it: put the whole URL into a variable, "env:NAME", or into a file, "file:PATH".'
        )
    return text if found is None else found


def _plain(text: str, where: str) -> str:
    found = _url(text, where)
    try:
        return found.reveal() if isinstance(found, Secret) else found
    except InvalidSettings as error:
        raise InvalidSettings(f"{where}: {error}") from None


def _password(text: str, where: str) -> Secret:
    found = _referred(text, where)
    if found is None:
        raise InvalidSettings(f'{where} must say where the password is: "env:NAME" or "file:PATH".')
    return found


def _referred(text: str, where: str) -> Secret | None:
    try:
        return secret(text)
    except InvalidSettings as error:
        raise InvalidSettings(f"{where}: {error}") from None


def _has_password(url: str) -> bool:
    try:
        return bool(passwords(url) or urlsplit(url).password)
    except ValueError:
        return True  # it cannot be parsed: not quoted, not passed on


def _broker(table: BrokerTable, where: str) -> Connector:
    if table.transport == "memory":
        return MemoryBroker()
    if table.url is None:
        raise InvalidSettings(f"{where}.url is missing: amqp://user@host/vhost, or env:NAME.")
    exchanges = [Exchange(each.name, each.kind) for each in table.exchanges]
    queues = [
        Queue(
            each.name,
            each.bind,
            each.kind,
            None if (dead := each.dead_letters) is None else DeadLetters(dead.exchange, dead.queue, dead.key),
            each.single_active,
        )
        for each in table.queues
    ]
    names = (
        "ca", "certificate", "may_declare", "heartbeat", "connect_seconds", "confirm_seconds", "body_bytes",
        "in_flight",
    )  # fmt: skip
    given: dict[str, Any] = {name: value for name in names if (value := getattr(table, name)) is not None}
    password = None if table.password is None else _password(table.password, f"{where}.password")
    url = _url(table.url, f"{where}.url")
    try:
        return RabbitMQ(url, password=password, declare=[*exchanges, *queues], **given)
    except HoldfastError as error:
        raise InvalidSettings(f"{where}: {error}") from None


def _options(table: msgspec.Struct, *without: str) -> dict[str, Any]:
    """A table as keywords; missing keys keep their defaults."""
    return {
        name: value
        for name in table.__struct_fields__
        if name not in without and (value := getattr(table, name)) is not None
    }


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Errors begin with the key of the file that they concern."""
    try:
        yield
    except HoldfastError as error:
        raise InvalidSettings(f"{key}: {error}") from None
