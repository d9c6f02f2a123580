"""What every command prints on terminals of 80 and 120 columns, with colours and without: one file for each command.

`make snapshots` writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.cells import cell_len

from holdfast import Holdfast
from holdfast.cli import show, target
from holdfast.cli.root import app
from holdfast.clock import MovableClock
from holdfast.operations import database
from tests.cli import flows, stage
from tests.cli.runner import CliRunner
from tests.cli.stage import Names
from tests.cli.test_manners import commands

FILES = Path(__file__).parent / "snapshots"
WRITE = os.environ.get("HOLDFAST_SNAPSHOTS") == "write"
VIEWS = [(80, False), (80, True), (120, False), (120, True)]
ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")

# A line for each command; those before `;` prepare it.
SHOWN = {
    "init": "init",
    "migrate": "migrate",
    "repair": "repair --leap --why failover",
    "grants": "grants",
    "status": "status",
    "why": "why {waiting}",
    "why dead": "why {dead}",
    "why unknown": "why 00000000-0000-7000-8000-000000000000",
    "doctor": "doctor",
    "doctor deep": "doctor --deep",
    "audit": "audit",
    "messages list": "messages list",
    "messages list ended": "messages list --ended",
    "messages list since": "messages list --ended --since 2040-05-01T00:00Z",
    "messages list late": "messages list --ended --late 5m",
    "messages stuck": "messages stuck --older 5m",
    "messages show": "messages show {retrying}",
    "messages retry": "messages retry {retrying}",
    "messages retry all": "messages retry --all",
    "messages park": "messages park {ready} -q charge",
    "messages cancel": "messages cancel {ready} --yes",
    "messages poison": "messages poison {ready} -q send_receipt --why bad --yes",
    "dead list": "dead list",
    "dead groups": "dead groups",
    "dead show": "dead show {dead}",
    "dead redrive": "dead redrive {dead}",
    "dead redrive dry run": "dead redrive --all --dry-run",
    "dead edit": "dead edit {dead} --body {{}}",
    "dead hold": "dead hold {dead} --why evidence",
    "dead unhold": "dead hold {dead} --why evidence ; dead unhold {dead}",
    "dead export": "dead export letters.jsonl",
    "dead import": "dead export letters.jsonl ; dead import letters.jsonl",
    "dead archive": "dead archive",
    "dead restore": "dead archive ; dead archive --list ; dead restore {archived}",
    "dead discard": "dead discard {dead} --why gone --yes",
    "streams list": "streams list",
    "streams blocked": "streams blocked",
    "streams show": "streams show send_receipt order-17",
    "streams set-aside": "streams set-aside send_receipt order-17 --yes",
    "streams release": "streams release {waiting} --yes",
    "streams halt": "streams halt send_receipt order-17 --why wait",
    "streams resume": "streams resume charge order-3",
    "orchestrations list": "orchestrations list",
    "orchestrations list filtered": "orchestrations list --name fulfil -V 2 --open --attribute customer=70",
    "orchestrations show": "orchestrations show order-7",
    "orchestrations journal": "orchestrations journal order-9",
    "orchestrations journal whole": "orchestrations journal order-8",
    "orchestrations journal in part": "orchestrations journal order-8 --limit 2",
    "orchestrations show failed": "orchestrations show order-8",
    "why instance failed": "why order-8",
    "orchestrations signal": "orchestrations signal order-8 approved --body 1",
    "orchestrations signal early": "orchestrations signal order-99 approved",
    "orchestrations cancel": "orchestrations cancel order-7 --why gone --yes",
    "orchestrations result": "orchestrations result order-6",
    "orchestrations result running": "orchestrations result order-7",
    "orchestrations result failed": "orchestrations result order-8",
    "orchestrations suspend": "orchestrations suspend order-7 --why hold",
    "orchestrations resume": "orchestrations suspend order-7 --why hold ; orchestrations resume order-7",
    "orchestrations resume running": "orchestrations resume order-7",
    "orchestrations suspended": "orchestrations suspend order-9 --why hold ; orchestrations show order-9",
    "orchestrations terminate": "orchestrations terminate order-7 --why gone --yes",
    "orchestrations rewind": "orchestrations rewind order-8 --to start --why mended --yes",
    "orchestrations rewind shown": "orchestrations rewind order-7 --to charge#1 --why mended --dry-run",
    "orchestrations check": "orchestrations check",
    "orchestrations export": "orchestrations export journals",
    "orchestrations unknown": "orchestrations show order-10",
    "why instance": "why order-9",
    "why instance in part": "why order-",
    "requests list": "requests list",
    "requests list late": "requests list --late",
    "requests show": "requests show {timed_out}",
    "requests resolve": "requests resolve {asked} --body 7",
    "requests resolve late": "requests resolve {timed_out} --failed busy",
    "requests extend": "requests extend {asked} 10m --why vacation",
    "requests extend refused": "requests extend {timed_out} 10m --why vacation",
    "requests accept": "requests accept {timed_out} --why good --yes",
    "requests accept twice": "requests accept {timed_out} --why a --yes ; requests accept {timed_out} --why b --yes",
    "requests cancel": "requests cancel {asked} --why gone --yes",
    "requests unknown": "requests show 00000000-0000-7000-8000-000000000000",
    "why request": "why {timed_out}",
    "why request open": "why {asked}",
    "queues list": "queues list",
    "subscriptions list": "subscriptions list",
    "subscriptions drop": "subscriptions drop old_mailer --why gone --yes",
    "queues pause": "queues pause send_receipt --why paint",
    "queues resume": "queues resume charge",
    "queues move": "queues move old_mailer send_receipt --yes",
    "queues drop": "queues drop old_mailer --force --yes",
    "outages list": "outages list",
    "outages show": "outages show 1",
    "alerts list": "alerts check shop:app ; alerts list",
    "alerts check": "alerts check shop:app",
    "alerts test": "alerts test shop:app",
    "breakers list": "breakers list",
    "breakers open": "breakers open mail-server --why moved",
    "breakers close": "breakers close mail-server",
    "breakers reset": "breakers reset mail-server",
    "destinations list": "destinations list",
    "destinations show": "destinations show shipping",
    "destinations test": "destinations test shipping",
    "destinations pause": "destinations pause shipping --why moved",
    "destinations resume": "destinations pause shipping ; destinations resume shipping",
    "destinations missing": "destinations show receipts",
    "inboxes list": "inboxes pause partners --why audit ; inboxes list",
    "inboxes show": "inboxes show partners",
    "inboxes test": "inboxes test partners",
    "inboxes pause": "inboxes pause partners",
    "inboxes resume": "inboxes resume partners",
    "messages move": "messages move {ready} --in 2h",
    "schedules list": "schedules list",
    "schedules list paused": "schedules list --state paused",
    "schedules show": "schedules show nightly",
    "schedules next": "schedules next nightly -n 3",
    "schedules explain": "schedules explain @daily --zone Europe/Berlin -n 2 --after 2040-05-01",
    "schedules why": "schedules why sweep",
    "schedules why occurrence": "schedules why nightly 2026-03-02",
    "schedules pause": "schedules pause nightly --why paint",
    "schedules pause many": "schedules pause --prefix birthday/",
    "schedules resume": "schedules resume sweep",
    "schedules skip": "schedules skip nightly",
    "schedules backfill": "schedules backfill sweep 2026-01-01 2026-01-02 --rehearse",
    "schedules drop": "schedules drop nightly --yes",
    "schedules unknown": "schedules show weekly",
    "keys list": "keys list",
    "keys rotate": "keys rotate",
    "wrong id": "messages park 12",
    "ambiguous id": "messages show 01a1e164",
}
# Played elsewhere, or different each time: a story, a process, a secret, times that were measured.
ELSEWHERE = {"demo", "worker", "keys new", "metrics", "schedules trigger"}


@dataclass
class Terminal:
    """A terminal of a width, in front of the shop."""

    source: Path
    folder: Path
    names: Names
    clock: MovableClock
    flows: tuple[Path, MovableClock]
    columns: int = 80
    coloured: bool = False
    is_flows: bool = False
    has_brokers: bool = False

    def app(self) -> Holdfast:
        if self.is_flows:
            return flows.app(self.flows[1])
        return stage.relaying(self.clock) if self.has_brokers else stage.app(self.clock)

    def type(self, line: str) -> str:
        """What a fresh shop answers to the last of these commands, as text: escape codes are written as <...>."""
        self.is_flows = line.startswith(("orchestrations", "why order"))
        stage.copied(self.flows[0] if self.is_flows else self.source, self.folder)
        answered = ""
        self.has_brokers = line.startswith(("destinations", "inboxes"))
        for each in line.split(" ; "):
            archived = answered.split("\n")[0]
            asked = [
                part.format(
                    **{name: getattr(self.names, name) for name in Names.__slots__}, archived=archived
                )
                for part in each.split()
            ]
            environment = {"HOLDFAST_APP": None, "HOLDFAST_DATABASE_URL": None, "HOLDFAST_AS": "anna"}
            result = CliRunner().invoke(app, asked, env=environment | {"HOLDFAST_APP": "shop:app"})
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
            answered = result.stdout
        return f"{answered}{result.stderr}(exit code {result.exit_code})\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Names, MovableClock]:
    with pytest.MonkeyPatch.context() as patch:
        return stage.build(patch, tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="module")
def flowing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MovableClock]:
    return flows.build(tmp_path_factory.mktemp("flows"))


@pytest.fixture
def terminal(
    built: tuple[Path, Names, MovableClock],
    flowing: tuple[Path, MovableClock],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    made = Terminal(built[0], tmp_path, built[1], built[2], flowing)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(target, "application", lambda *_: made.app())
    monkeypatch.setattr(database, "SQLITE_SAFE", (0,))  # of this machine's Python
    monkeypatch.setattr(show, "width", lambda: made.columns)
    monkeypatch.setattr(show, "is_coloured", lambda: made.coloured)
    return made


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_command_shows(terminal: Terminal, name: str) -> None:
    """Remedy, if the change is meant: `make snapshots`."""
    text = ""
    for terminal.columns, terminal.coloured in VIEWS:
        colour = "colours" if terminal.coloured else "no colours"
        answered = ESCAPE.sub(r"<\1>", terminal.type(SHOWN[name]))
        text += f"--- {terminal.columns} columns, {colour}\n{answered}"
        if not terminal.coloured:
            assert too_long(answered, terminal.columns) == []
    file = FILES / f"{name.replace(' ', '-')}.txt"
    if WRITE:
        file.write_text(text)
    assert file.read_text() == text


def too_long(text: str, columns: int) -> list[str]:
    """Lines that a terminal would wrap. Errors stay one line, for logs; the name of a file cannot be broken."""
    shown = text.partition("holdfast: ")[0].splitlines()
    return [line for line in shown if cell_len(line) > columns and " " in line]


def test_every_command_has_its_snapshot_and_every_snapshot_its_command() -> None:
    there = {" ".join(each) for each in commands()}
    shown = {line.split(" ; ")[-1] for line in SHOWN.values()}
    missing = {
        each for each in there - ELSEWHERE if not any(f"{line} ".startswith(f"{each} ") for line in shown)
    }
    assert missing == set()
    assert {each.stem for each in FILES.glob("*.txt")} == {name.replace(" ", "-") for name in SHOWN}


@pytest.mark.parametrize("name", ["status", "why"])
def test_the_guide_shows_what_is_shown(name: str) -> None:
    """Remedy: copy the part of 80 columns without colours from the snapshot into docs/operations.md."""
    text = (FILES / f"{name}.txt").read_text().partition("--- 80 columns, no colours\n")[2]
    shown = text.partition("(exit code")[0].rstrip("\n")
    assert f"```text\n{shown}\n```" in (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def test_the_readme_shows_parts_of_what_is_shown() -> None:
    """Remedy: copy them from the snapshots of status and why into README.md; `...` stands where lines are left out."""
    snapshots = {name: (FILES / f"{name}.txt").read_text() for name in ("status", "why")}
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    status, why = re.findall(r"^```text\n(.*?)\n```$", readme, re.M | re.S)
    parts = [("why", why), *(("status", each) for each in status.split("\n...\n\n"))]
    assert len(parts) > 2
    assert [part for name, part in parts if f"\n{part}\n" not in snapshots[name]] == []
