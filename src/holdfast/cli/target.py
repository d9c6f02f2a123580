"""What a command is about: an application by its name, or a database by its URL. Passwords are never echoed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import typer

from ..errors import NotFound, UsageError
from ..model.names import is_secret
from ..processes.loading import load_app

if TYPE_CHECKING:
    from ..operations import Operations

APP_VARIABLE, URL_VARIABLE, AS_VARIABLE = "HOLDFAST_APP", "HOLDFAST_DATABASE_URL", "HOLDFAST_AS"

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
AppOption = Annotated[
    str | None,
    typer.Option("--app", "-a", metavar="MODULE:APP", help=f"The application; else ${APP_VARIABLE}."),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help=f"The database, without a password; else ${URL_VARIABLE}."),
]


@dataclass(frozen=True, slots=True)
class Target:
    """Which database a command is about, and who reads the answer."""

    app: AppOption = None
    url: UrlOption = None
    json: Json = False

    def operations(self, by: str | None = None) -> AbstractContextManager[Operations]:
        return operations(self.app, self.url, by=by)

    def opened(self) -> AbstractContextManager[Any]:
        return opened(self.app, self.url)


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """The same, with the application as an argument: for commands that are about nothing else."""

    target: Annotated[
        str | None, typer.Argument(metavar="MODULE:APP", help="The application.", show_default=False)
    ] = None
    app: AppOption = None
    url: UrlOption = None
    json: Json = False

    def operations(self, by: str | None = None) -> AbstractContextManager[Operations]:
        return operations(self.app, self.url, self.target, by=by)

    def opened(self) -> AbstractContextManager[Any]:
        return opened(self.app, self.url, self.target)

    def application(self) -> Any:
        return application(self.app, self.url, self.target)


@dataclass(frozen=True, slots=True)
class Change:
    """Options of every command that changes something. `yes` does nothing where nothing is asked."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    by: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            envvar=AS_VARIABLE,
            help="Who gives the command, for the audit; else USER@HOST.",
        ),
    ] = None


def chosen(app: str | None, url: str | None, target: str | None = None) -> tuple[str | None, str | None]:
    """The application or the URL that is meant: options come before the environment."""
    if target is not None and app is not None and target != app:
        raise UsageError(f"Two applications are given, {target} and {app}: give one.")
    app = target if target is not None else app
    if app is not None and url is not None:
        raise UsageError(
            "Both an application and a URL are given: give one, the application knows its database."
        )
    if url is not None and has_password(url):
        raise UsageError(
            "The URL has a password in it, which everybody on this machine can see in the list of processes: "
            f"put the URL into {URL_VARIABLE}, or the password into PGPASSWORD or ~/.pgpass."
        )
    if app is None and url is None:
        app = os.environ.get(APP_VARIABLE) or None
        url = None if app is not None else os.environ.get(URL_VARIABLE) or None
    if app is None and url is None:
        app, url = configured_target()
    if app is None and url is None:
        raise UsageError(
            f"Which database? Give -a MODULE:APP or --url URL, or set {APP_VARIABLE} or {URL_VARIABLE}; or write "
            'app = "MODULE:APP" under [tool.holdfast] in pyproject.toml.'
        )
    return app, url


def configured_target() -> tuple[str | None, str | None]:
    """What a configuration file names: the application, else the database."""
    from ..facade import configured

    configuration = configured.find()
    if configuration is None:
        return None, None
    return (configuration.app, None) if configuration.app is not None else (None, configuration.url)


def has_password(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.password) or any(is_secret(name) for name, _ in parse_qsl(parts.query))
    except ValueError:
        return True  # it cannot be parsed, so it is not passed on


def application(app: str | None, url: str | None, target: str | None = None) -> Any:
    """The application that is meant; one without handlers for a URL."""
    name, address = chosen(app, url, target)
    if name is not None:
        return load_app(name)
    from ..app import Holdfast

    assert address is not None
    return Holdfast(address) if _is_given(url) else Holdfast.from_config()


def _is_given(url: str | None) -> bool:
    """Whether the database was named by an option or a variable, and not by a configuration file."""
    return url is not None or bool(os.environ.get(URL_VARIABLE))


@contextmanager
def operations(
    app: str | None, url: str | None, target: str | None = None, *, by: str | None = None
) -> Iterator[Operations]:
    """The operations of the target, closed afterwards. `by` is the name in the audit."""
    with opened(app, url, target) as found:
        yield found.operations if by is None else found.operations.by(by)


@contextmanager
def opened(app: str | None, url: str | None, target: str | None = None) -> Iterator[Any]:
    """The application that is meant, closed afterwards. A missing SQLite file is not created."""
    found = application(app, url, target)
    path = found.url.removeprefix("sqlite:///")
    if path not in (found.url, ":memory:") and not os.path.exists(path):
        raise NotFound(f"There is no database file {path}: `holdfast init` makes one.")
    try:
        yield found
    finally:
        found.close()
