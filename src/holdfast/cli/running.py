"""`holdfast demo`, `init`, `migrate` and `worker`: setting up and running."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import UsageError
from . import show
from .completing import queues as complete_queues
from .target import APP_VARIABLE, AppOption, Change, NamedTarget, chosen, configured_target

if TYPE_CHECKING:
    from .. import Holdfast

Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Address for Prometheus, such as 127.0.0.1:9464; beyond loopback with $HOLDFAST_METRICS_TOKEN.",
    ),
]
MetricsOpen = Annotated[
    bool,
    typer.Option(
        "--i-understand-this-is-unauthenticated", help="Serve metrics beyond loopback without a token."
    ),
]
LogFormat = Annotated[
    str | None, typer.Option("--log", metavar="text|json", help="The format of logs; else $HOLDFAST_LOG.")
]
LogLevel = Annotated[
    str | None,
    typer.Option("--log-level", help="The lowest level that is logged; else $HOLDFAST_LOG_LEVEL."),
]


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", min=1.0, help="How long the shop is open, in seconds.")
    ] = 12.0,
    seed: Annotated[int | None, typer.Option("--seed", help="Repeat the run with this seed.")] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=64, help="Worker processes.")] = 2,
    scenario: Annotated[
        Literal["shop", "outage", "downtime", "workflow", "services"],
        typer.Option(
            "--scenario",
            help="A shop and a killer; a bad day: an outage and a broken deploy; a day of downtime; "
            "orchestrations and a killer; two services and a broker that is killed.",
        ),
    ] = "shop",
) -> None:
    """Run a shop whose workers are killed, and print the proof.

    It runs to its end, on SQLite, and counts from the database that nothing was lost."""
    from rich.console import Console

    from ..demo import downtime, orchestrating, outage, run, services

    if scenario == "workflow":
        raise typer.Exit(orchestrating.run(Console(), processes=processes))
    if scenario == "outage":
        raise typer.Exit(outage.run(Console(), processes=max(2, processes)))
    if scenario == "services":
        raise typer.Exit(services.run(Console()))
    if scenario == "downtime":
        raise typer.Exit(downtime.run(Console(), processes=max(2, processes)))

    raise typer.Exit(run(Console(), seconds=seconds, seed=seed, processes=processes))


def init(target: NamedTarget, change: Change) -> None:
    """Create the tables. A missing SQLite file is created, too."""
    _migrate(target)


def migrate(
    target: NamedTarget,
    change: Change,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the script instead, for other migration tools.")
    ] = False,
) -> None:
    """Migrate the tables to the version of this release. Several may run at once."""
    if not sql:
        _migrate(target)
        return
    from ..store.migrate import migration_sql

    found = target.application()
    script = migration_sql(found.store.engine.dialect, found.schema)
    found.close()
    if target.json:
        show.document({"sql": script})
    else:
        show.plain(script)


def _migrate(target: NamedTarget) -> None:
    from ..model.names import display_url

    found = target.application()
    try:
        steps = found.migrate()
    finally:
        found.close()
    where = display_url(found.url)
    if target.json:
        show.document({"database": where, "steps": steps})
    else:
        show.plain(f"{where}: {_in_words(steps)}")


def _in_words(steps: list[int]) -> str:
    if not steps:
        return "up to date"
    if steps == [-1]:
        return "functions renewed"
    return f"migrated to version {steps[-1]}"


def repair(
    target: NamedTarget,
    change: Change,
    leap: Annotated[
        bool,
        typer.Option(
            "--leap",
            help="Raise all sequences, also those that are not behind: after a failover that lost commits.",
        ),
    ] = False,
    why: Annotated[str | None, typer.Option("--why", help="The reason, for the audit.")] = None,
) -> None:
    """Raise sequences after a switch-over or a restore.

    Those that are below the stored numbers; none is lowered."""
    with target.operations(change.by) as found:
        done = found.repair(leap=leap, why=why)
    if target.json:
        show.document(done)
        return
    for each in done.raised:
        show.plain(f"sequence of {each.name}: raised from {each.before} to {each.after}")
    for queue, stream in done.streams:
        show.sentence(f"stream {stream} of queue {queue}: its messages are in order again")
    if not done.raised and not done.streams:
        show.plain("Nothing to repair: every sequence is above the stored numbers.")


def named_app(target: str | None, app: str | None) -> str:
    """The application that a worker runs: given, by a variable, or in a configuration file."""
    named = target or app or os.environ.get(APP_VARIABLE)
    name, _ = chosen(app, None, target) if named else configured_target()
    if name is None:
        raise UsageError(
            f"Which application? Give MODULE:APP, such as shop:app, or set {APP_VARIABLE}; or write "
            'app = "MODULE:APP" under [tool.holdfast] in pyproject.toml.'
        )
    return name


def refuse_unknown(queues: Collection[str], app: Holdfast, name: str) -> None:
    """Refuse queues that no handler has: their worker would wait for nothing."""
    there = sorted(each.queue for each in app.handlers)
    if unknown := sorted(set(queues) - set(there)):
        raise UsageError(
            f"No handler of {name} has the queue {', '.join(unknown)}; its queues: {', '.join(there) or 'none'}."
        )


def worker(
    target: Annotated[
        str | None, typer.Argument(metavar="MODULE:APP", help="The application.", show_default=False)
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", "-p", min=1, max=256, help="Worker processes.")
    ] = 1,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", "-q", help="Only this queue; may be repeated.", autocompletion=complete_queues
        ),
    ] = None,
    metrics: Metrics = None,
    metrics_open: MetricsOpen = False,
    log: LogFormat = None,
    log_level: LogLevel = None,
    until_idle: Annotated[
        bool,
        typer.Option("--until-idle", help="Work until nothing is due, print the summary, and exit with 0."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="With --until-idle: the summary as JSON.")] = False,
    app: AppOption = None,
) -> None:
    """Run the handlers of an application.

    Until it is stopped, or with --until-idle until nothing is due."""
    if json and not until_idle:
        raise UsageError("--json goes with --until-idle, whose answer is the summary; logs: --log json.")
    if until_idle and (processes > 1 or metrics is not None):
        raise UsageError("--until-idle works in one process and ends: leave out --processes and --metrics.")
    name = named_app(target, app)
    from ..processes.loading import load_app
    from ..processes.supervisor import run_worker
    from ..telemetry.logs import configure

    found = load_app(name)
    refuse_unknown(queue or (), found, name)
    configure(log, log_level)  # after the import of the application, which may configure logging itself
    if until_idle:
        from .draining import drain

        drain(found, queue, json)
        return
    raise typer.Exit(
        run_worker(found, name, processes=processes, queues=queue, metrics=metrics, metrics_open=metrics_open)
    )
