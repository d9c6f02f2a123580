"""From what was told in each round to medians, ratios and bars; the table, latest.json, and the tables of the docs."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import statistics
import subprocess
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import holdfast

from .charts import bars_chart, waves_chart
from .course import ROOT, Failed
from .lines import BARS, LINES, Bar, Facts, Line

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
LINE = {line.key: line for line in LINES}


class Record:
    """Everything that was told, by line, contestant and round."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, dict[int, Facts]]] = {}
        self.failures: dict[str, dict[str, str]] = {}
        self.complete = True

    def add(self, round: int, line: str, contestant: str, shown: Facts | Failed) -> None:
        if isinstance(shown, Failed):
            self.failures.setdefault(line, {})[contestant] = str(shown)
        else:
            self.told.setdefault(line, {}).setdefault(contestant, {})[round] = shown

    def runs(self, line: str, contestant: str, fact: str = "value") -> dict[int, float]:
        """By round. A contestant that failed in any round has no figure at all."""
        if contestant in self.failures.get(line, {}):
            return {}
        rounds = self.told.get(line, {}).get(contestant, {})
        return {round: shown[fact] for round, shown in rounds.items() if fact in shown}

    def ratios(self, bar: Bar) -> list[float]:
        """Ours divided by theirs within each round; the fact itself where the bar compares with nobody."""
        ours = self.runs(bar.line, "holdfast", bar.fact)
        if not bar.against:
            return list(ours.values())
        line, _, contestant = bar.against.rpartition(":")
        fact = bar.fact if (line or bar.line) == bar.line and bar.fact != "healthy" else "value"
        theirs = self.runs(line or bar.line, contestant, fact)
        # A broker may deliver before it confirms: a latency below zero is a figure, but nothing to divide by.
        return [value / theirs[round] for round, value in ours.items() if theirs.get(round, 0.0) > 0]


def spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "rounds": len(values),
    }


def result(record: Record, line: Line) -> dict[str, Any] | None:
    """One record of latest.json."""
    contestants: dict[str, Any] = {}
    for name in sorted({*record.told.get(line.key, {}), *record.failures.get(line.key, {})}):
        if why := record.failures.get(line.key, {}).get(name):
            contestants[name] = {"not measured": why.removeprefix("not measured: ")}
            continue
        runs = list(record.told[line.key][name].values())
        numbers = {
            key: statistics.median(run[key] for run in runs)
            for key in runs[0]
            if isinstance(runs[0][key], int | float)
        }
        waves = {"waves": [run["waves"] for run in runs]} if "waves" in runs[0] else {}
        contestants[name] = {
            **(spread([run["value"] for run in runs]) or {}),
            "facts": {k: v for k, v in numbers.items() if k != "value"},
            **waves,
        }
    if not contestants:
        return None
    ratios = {}
    for name in contestants:
        if name != "holdfast" and (shown := spread(record.ratios(Bar(line.key, name)))):
            ratios[name] = shown
    return {
        "name": line.key,
        "title": line.title,
        "unit": line.unit,
        "more_is_better": line.more_is_better,
        "ours": contestants.pop("holdfast", None),
        "limit": contestants.pop("limit", None),
        "peers": contestants,
        "ratios": ratios,
        "bars": [judged for bar in BARS if bar.line == line.key and (judged := judge(record, bar))],
    }


def judge(record: Record, bar: Bar) -> dict[str, Any] | None:
    shown = spread(record.ratios(bar))
    if shown is None:
        return None
    return {"bar": say(bar), "aim": bar.aim, **shown, "reached": bar.reached(shown["median"])}


def say(bar: Bar) -> str:
    """`at least 2.5 x pgqueuer`"""
    line, _, name = bar.against.rpartition(":")
    other = f" of `{LINE[line].title}`" if line else ""
    whose = {"": "", "holdfast": f" x{other}"}.get(name, f" x {name}{other}")
    what = f"{bar.fact}: " if bar.fact != "value" else ""
    unit = (
        ""
        if bar.against
        else {"megabytes": " MB", "of_allowed": " x what is allowed"}.get(bar.fact, f" {LINE[bar.line].unit}")
    )
    return (
        f"{what}at least {bar.at_least:g}{whose}{unit}"
        if bar.at_least is not None
        else f"{what}at most {bar.at_most:g}{whose}{unit}"
    )


def origin() -> dict[str, str]:
    """Which code is measured. Asked before the run: the tree may change while it lasts."""
    package = Path(holdfast.__file__).parent
    git = ["git", "-C", str(package)]
    commit = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "."], capture_output=True, text=True
    ).stdout
    digest = hashlib.sha256()
    for file in sorted([*package.rglob("*.py"), *package.rglob("*.sql")]):
        digest.update(file.read_bytes())
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": (commit or "a copy outside git") + (" with changes" if changed else ""),
        "source_sha256": digest.hexdigest()[:16],
    }


def document(record: Record, about: dict[str, Any]) -> dict[str, Any]:
    return {
        **about,
        "measurements": [shown for line in LINES if (shown := result(record, line))],
    }


def number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"


def figure(shown: dict[str, Any] | None) -> str:
    if shown is None:
        return ""
    if "not measured" in shown:
        return f"not measured: {shown['not measured']}"
    if shown["rounds"] == 1:
        return number(shown["median"])
    return f"{number(shown['median'])} ({number(shown['low'])} – {number(shown['high'])})"


def table(results: dict[str, Any]) -> Table:
    made = Table(title=f"Holdfast {results['commit']}, {results['date']}", title_justify="left", expand=False)
    for column in ("line", "Holdfast", "limit", "x limit", "best peer", "x peer", "bar"):
        made.add_column(
            column, justify="left" if column in ("line", "best peer", "bar") else "right", overflow="fold"
        )
    for each in results["measurements"]:
        peer = best_peer(each)
        made.add_row(
            f"{each['title']} [dim]{each['unit']}[/]",
            figure(each["ours"]),
            number(each["limit"]["median"]) if each["limit"] and "median" in each["limit"] else "",
            ratio(each, "limit"),
            f"{peer} {number(each['peers'][peer]['median'])}" if peer else "",
            ratio(each, peer) if peer else "",
            "\n".join(verdict(bar) for bar in each["bars"]),
        )
    return made


def costs(results: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """CPU and memory of everybody who drained: line, who, microseconds of client and server, megabytes."""
    rows = []
    for each in results["measurements"]:
        for name, shown in {"holdfast": each["ours"], "limit": each["limit"], **each["peers"]}.items():
            found = (shown or {}).get("facts", {})
            if "client_us" in found:
                figures = (
                    f"{found['client_us']:.1f}",
                    f"{found['server_us']:.1f}",
                    f"{found['megabytes']:.0f}",
                )
                rows.append((each["title"], name, *figures))
    return rows


COSTS = ("line", "who", "client, µs a message", "server, µs a message", "worker, MB")


def costs_table(results: dict[str, Any]) -> Table:
    made = Table(title="CPU and memory", title_justify="left")
    for column in COSTS:
        made.add_column(column, justify="left" if column in ("line", "who") else "right")
    for row in costs(results):
        made.add_row(*row)
    return made


def best_peer(measurement: dict[str, Any]) -> str | None:
    measured = {
        name: shown["median"] for name, shown in measurement["peers"].items() if shown.get("median", 0.0) > 0
    }
    if not measured:
        return None
    choose = max if measurement["more_is_better"] else min
    return choose(measured, key=lambda name: measured[name])


def ratio(measurement: dict[str, Any], name: str | None) -> str:
    shown = measurement["ratios"].get(name)
    return number(shown["median"]) if shown else ""


def verdict(bar: dict[str, Any]) -> str:
    word = "[green]reached[/]" if bar["reached"] else "[red]missed[/]"
    aim = f", aim {bar['aim']:g}" if bar["aim"] else ""
    return f"{word} {number(bar['median'])} ({bar['bar']}{aim})"


def failures(results: dict[str, Any]) -> list[str]:
    lines = []
    for each in results["measurements"]:
        for name, shown in {"holdfast": each["ours"], "limit": each["limit"], **each["peers"]}.items():
            if shown and "not measured" in shown:
                lines.append(f"{each['title']}: {name}: {shown['not measured']}")
    return lines


def write(results: dict[str, Any], console: Console, *, whole: bool) -> Path:
    """A run of less is written beside the whole one and draws nothing: the docs show whole runs."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("latest.json" if whole else "partial.json")
    path.write_text(json.dumps(results, indent=1) + "\n")
    if whole:
        draw(results)
        if PAGE.exists():
            PAGE.write_text(fill(PAGE.read_text(), results))
    console.print(f"Written: {path.relative_to(ROOT)}")
    return path


# --- The docs -----------------------------------------------------------------------------------------------

CHARTS = {
    "drain": ("drain", "Draining a backlog, 1 worker process, messages/s"),
    "drain-2": ("drain-2", "Draining a backlog, 2 worker processes, messages/s"),
    "publish-commit": ("publish-commit", "Publishing one by one, each its own commit, messages/s"),
    "publish-many": ("publish-many", "Publishing many, messages/s"),
    "latency": ("latency", "Latency at 50/s, median, milliseconds (shorter is better)"),
    "sqlite-drain": ("sqlite-drain", "Draining a backlog on SQLite, messages/s"),
}
COLOURS = {"holdfast": "#0a7d5a", "limit": "#9aa0a6"}


def draw(results: dict[str, Any]) -> None:
    by_name = {each["name"]: each for each in results["measurements"]}
    for name, (file, title) in CHARTS.items():
        if each := by_name.get(name):
            everybody = {"holdfast": each["ours"], **each["peers"], "limit": each["limit"]}
            shown = [
                (who, one["median"], COLOURS.get(who, "#5b7db1"))
                for who, one in everybody.items()
                if one and "median" in one
            ]
            shown.sort(key=lambda one: one[1], reverse=each["more_is_better"])
            (RESULTS / f"{file}.svg").write_text(
                bars_chart(title, [(who, value, number(value), colour) for who, value, colour in shown])
            )
    if held := by_name.get("held"):
        everybody = {"holdfast": held["ours"], **held["peers"], "limit": held["limit"]}
        lines = [
            (who, one["waves"][0], COLOURS.get(who, "#5b7db1"))
            for who, one in everybody.items()
            if one and one.get("waves")
        ]
        (RESULTS / "held.svg").write_text(
            waves_chart("Rate of ten waves of 20,000 while a snapshot is held, messages/s", lines)
        )


def fill(page: str, results: dict[str, Any]) -> str:
    """Put the generated parts between their marks: <!-- results:NAME --> ... <!-- end -->."""
    parts = {
        "about": about_text(results),
        "table": markdown_table(results),
        "bars": bars_table(results),
        "peers": peers_table(results),
        "costs": costs_markdown(results),
        "charts": "\n".join(
            f"![{name}](../bench/results/{name}.svg)"
            for name in ("drain", "latency", "held")
            if (RESULTS / f"{name}.svg").exists()
        ),
    }
    for name, text in parts.items():
        page = re.sub(
            rf"(<!-- results:{name} -->\n).*?(<!-- end -->)",
            lambda found, text=text: found[1] + text + "\n" + found[2],
            page,
            flags=re.S,
        )
    return page


def about_text(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = results["versions"]
    return (
        f"Measured {results['date'][:10]} at commit `{results['commit']}`, {results['rounds']} rounds, "
        f"on {machine['cpus']} CPUs ({machine['cpu']}), {machine['memory']}, {machine['system']}; "
        f"PostgreSQL {versions['postgresql']}, SQLite {versions['sqlite']}, Python {versions['python']}."
    )


def markdown_table(results: dict[str, Any]) -> str:
    rows = [
        "| line | unit | Holdfast | limit | x limit | best peer | x peer |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    for each in results["measurements"]:
        peer = best_peer(each)
        limit = number(each["limit"]["median"]) if each["limit"] and "median" in each["limit"] else ""
        best = f"{peer} {number(each['peers'][peer]['median'])}" if peer else ""
        cells = (
            each["title"],
            each["unit"],
            figure(each["ours"]),
            limit,
            ratio(each, "limit"),
            best,
            ratio(each, peer),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def bars_table(results: dict[str, Any]) -> str:
    rows = ["| line | bar | aim | measured | |", "|---|---|---:|---:|---|"]
    for each in results["measurements"]:
        for bar in each["bars"]:
            aim = f"{bar['aim']:g}" if bar["aim"] else ""
            word = "reached" if bar["reached"] else "**missed**"
            rows.append(f"| {each['title']} | {bar['bar']} | {aim} | {figure(bar)} | {word} |")
    return "\n".join(rows)


def costs_markdown(results: dict[str, Any]) -> str:
    rows = [f"| {' | '.join(COSTS)} |", "|---|---|---:|---:|---:|"]
    return "\n".join([*rows, *(f"| {' | '.join(row)} |" for row in costs(results))])


def peers_table(results: dict[str, Any]) -> str:
    names = sorted({name for each in results["measurements"] for name in each["peers"]})
    rows = ["| line | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for each in results["measurements"]:
        if each["peers"]:
            rows.append(
                f"| {each['title']} | " + " | ".join(figure(each["peers"].get(name)) for name in names) + " |"
            )
    return "\n".join(rows)
