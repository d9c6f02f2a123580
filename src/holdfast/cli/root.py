"""All commands, and how errors are shown: one clear line, never a traceback for a known error."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import HoldfastError, StoreUnavailable, UsageError
from . import (
    alerts,
    audit,
    breakers,
    dead,
    endpoints,
    grants,
    keys,
    messages,
    orchestrations,
    outages,
    overview,
    queues,
    requests,
    running,
    schedules,
    streams,
    subscriptions,
)
from .options import command
from .show import FAILED, WRONG, complain, plain

UNAVAILABLE = (
    "  Is the server running, and is the URL right? Workers wait for it and continue\n"
    "  by themselves; committed messages are there when it is back."
)


class Root(TyperGroup):
    """The group that everything belongs to."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        for each in args:
            if not is_text(each):  # the shell passes any bytes; neither a database nor JSON takes these
                complain(f"The argument {each!a} is not text in UTF-8, so nothing was done.")
                raise typer.Exit(WRONG)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            complain(error)
            raise typer.Exit(WRONG) from None
        except StoreUnavailable as error:
            complain(error)
            plain(UNAVAILABLE, err=True)
            raise typer.Exit(FAILED) from None
        except HoldfastError as error:
            complain(error)
            raise typer.Exit(FAILED) from None
        except OSError as error:
            if error.filename is None:  # a pipe that was closed, for one
                raise
            complain(f"{error.filename} cannot be used: {error.strerror}.")
            raise typer.Exit(FAILED) from None


def is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


app = typer.Typer(
    cls=Root,
    name="holdfast",
    help="Transactional outbox, job queue, schedules and workflows on SQLite or PostgreSQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EPILOG = "The database: -a MODULE:APP or HOLDFAST_APP, --url URL or HOLDFAST_DATABASE_URL."


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    """Transactional outbox, job queue, schedules and workflows on SQLite or PostgreSQL."""
    if version:
        from .. import __version__

        plain(f"holdfast {__version__}")
        raise typer.Exit


command(app)(running.demo)
for each in (
    running.init,
    running.migrate,
    running.repair,
    grants.grants,
    running.worker,
    overview.status,
    overview.why,
    overview.doctor,
    overview.metrics,
    audit.audit,
):
    command(app, epilog=EPILOG)(each)
for name, group in (
    ("messages", messages.app),
    ("dead", dead.app),
    ("streams", streams.app),
    ("queues", queues.app),
    ("orchestrations", orchestrations.app),
    ("requests", requests.app),
    ("subscriptions", subscriptions.app),
    ("schedules", schedules.app),
    ("breakers", breakers.app),
    ("destinations", endpoints.destinations),
    ("inboxes", endpoints.inboxes),
    ("keys", keys.app),
    ("alerts", alerts.app),
    ("outages", outages.app),
):
    app.add_typer(group, name=name)
