"""What a process loads before it has done anything: every web worker, command and test run of a user pays for it.

Counted, not timed: `python -X importtime` says what each module costs. A failure names what came in; import it in the
function or the part of an application that needs it (`Late`, facade/parts.py), or for type checkers only.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent

# A bare application: it can declare handlers and publish.
APPLICATION = """
from holdfast import Holdfast
app = Holdfast("sqlite:///never.db")
"""
# Ours that it may load: packages, and single modules of others. One more is a decision, not an accident.
PACKAGES = {"bodies", "facade", "handlers", "model", "rules", "store", "telemetry"}
MODULES = {"app", "clock", "errors", "publishing", "settings", "worker", "worker.around"}
MODULES_MAX = 92
STATUS_MAX = 228  # of `holdfast status`
# Slow to load, and no part of publishing: of the standard library, drivers, clients, and what the command line needs.
HEAVY = {
    "aiosqlite", "asyncpg", "cryptography", "difflib", "django", "email", "http", "importlib.metadata",
    "multiprocessing", "obstore", "opentelemetry", "pika", "psycopg", "psycopg2", "pydantic", "rich", "sqlalchemy",
    "tomllib", "typer", "tzdata", "unittest", "urllib.request", "xml",
}  # fmt: skip


def loaded(code: str, *, before: str = "", folder: Path | None = None) -> set[str]:
    """The modules that a fresh interpreter has after this code and had not after `before`."""
    script = (
        f"import sys\n{before}\nknown = set(sys.modules)\n{code}\nprint('loaded', *set(sys.modules) - known)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder)
    assert told.returncode == 0, told.stderr
    return set(told.stdout.splitlines()[-1].split()[1:])


def ours(modules: set[str]) -> set[str]:
    return {each.removeprefix("holdfast.") for each in modules if each.startswith("holdfast.")}


def heavy(modules: set[str]) -> set[str]:
    return {each for each in HEAVY for module in modules if f"{module}.".startswith(f"{each}.")}


def test_a_bare_application_loads_only_what_publishing_needs() -> None:
    found = loaded(APPLICATION)
    strangers = {each for each in ours(found) - MODULES if each.split(".")[0] not in PACKAGES}
    assert strangers == set()
    assert heavy(found) == set()
    assert len(ours(found)) <= MODULES_MAX


def test_the_package_alone_loads_nothing() -> None:
    assert ours(loaded("import holdfast")) == set()


def test_publishing_loads_nothing_more(tmp_path: Path) -> None:
    """The first request of a web service is not the slow one."""
    declared = f"""{APPLICATION}
@app.handler("order.placed")
def receipt(order: dict) -> None: ...
app.prepare()
"""
    found = loaded('app.publish("order.placed", {"id": 1})', before=declared, folder=tmp_path)
    assert ours(found) == set()


WORKING = """
import asyncio
from holdfast import Holdfast, RetryPolicy
app = Holdfast("sqlite:///shop.db")

@app.handler("order.placed", retry=RetryPolicy(attempts_max=1))
def receipt(order: dict) -> None:
    if order["id"] == 2:
        raise ValueError("no such customer")

@app.activity()
async def charge(order: int) -> int:
    return order

@app.orchestration()
async def fulfil(order: int) -> int:
    return await charge(order)

async def work(*, is_start_counted: bool) -> None:
    global known
    async with app.running() as running:
        if not is_start_counted:
            known = set(sys.modules)
        for id in range(1, 4):
            await app.apublish("order.placed", {"id": id})
        started = await app.orchestrations.astart(fulfil, 3)
        assert await app.orchestrations.aresult(started, timeout=60) == 3
        while app.operations.status().depth or app.operations.status().dead < 1:
            await asyncio.sleep(0.01)
"""


def test_a_worker_that_has_started_loads_nothing_more(tmp_path: Path) -> None:
    """Neither in the middle of a message, of a failure or of a turn, where time is counted."""
    work = "asyncio.run(work(is_start_counted=False))"
    assert ours(loaded(work, before=WORKING, folder=tmp_path)) == set()


def test_what_a_supervisor_has_loaded_no_child_loads_again(tmp_path: Path) -> None:
    work = "asyncio.run(work(is_start_counted=True))"
    assert ours(loaded(work, before=f"{WORKING}\napp.load()", folder=tmp_path)) == set()


# --- The names of the package ---------------------------------------------------------------------------------------


def shown_to_checkers() -> dict[str, str]:
    """The public names by where type checkers find them."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    return {
        alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }


def test_type_checkers_and_programs_find_the_same_names() -> None:
    assert shown_to_checkers() == vars(holdfast)["_HOME_OF"]
    assert {*shown_to_checkers(), "__version__"} == set(holdfast.__all__)


@pytest.mark.parametrize("name", holdfast.__all__)
def test_a_name_is_there_when_it_is_asked_for(name: str) -> None:
    assert getattr(holdfast, name) is not None
    assert name in dir(holdfast)


def test_a_name_that_is_not_there_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Holdslow'"):
        holdfast.Holdslow  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Holdslow' from 'holdfast'"):
        from holdfast import Holdslow  # type: ignore[attr-defined] # noqa: F401


# --- Parts that are made when they are first used -------------------------------------------------------------------


def test_a_part_is_made_once() -> None:
    app = holdfast.Holdfast("sqlite:///never.db")
    assert app.orchestrations is app.orchestrations
    assert app._declaring.orchestrations is app.orchestrations


# --- The command line -----------------------------------------------------------------------------------------------

COMMAND = """
from holdfast.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""


def test_the_help_of_the_command_line_loads_no_engine() -> None:
    found = loaded(COMMAND, before="sys.argv = ['holdfast', '--help']")
    assert {each.split(".")[0] for each in ours(found)} <= {
        "cli", "errors", "model", "processes", "rules", "settings",
    }  # fmt: skip


def test_a_look_at_a_database_loads_nothing_that_works_or_replays(tmp_path: Path) -> None:
    holdfast.Holdfast(f"sqlite:///{tmp_path / 'shop.db'}").migrate()
    command = "sys.argv = ['holdfast', 'status', '--url', 'sqlite:///shop.db']"
    found = ours(loaded(COMMAND, before=command, folder=tmp_path))
    packages = {each.split(".")[0] for each in found}
    assert packages & {"orchestrations", "inboxes", "testing", "demo", "webhooks", "by_hand"} == set()
    assert {each for each in found if each.startswith("worker.")} == {"worker.around"}
    assert len(found) <= STATUS_MAX
