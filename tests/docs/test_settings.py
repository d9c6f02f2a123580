"""docs/settings.md lists every setting with its default, and nothing that is not one."""

from __future__ import annotations

import re
from dataclasses import fields

from holdfast import Reason, Settings
from holdfast.rules.retry import PROFILES
from tests.docs.blocks import text_of

ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<default>[^|]+?) \| (?P<text>[^|]+?) \|$", re.M)
UNITS = {"s": 1, "ms": 0.001, "min": 60, "d": 86_400, "B": 1, "KiB": 1024, "MiB": 1024 * 1024, "": 1}


def value_of(text: str) -> float | str | bool:
    """`8 MiB` -> 8388608, `100` -> 100, `patient` -> "patient"."""
    match = re.fullmatch(r"([\d.]+) ?(\w*)", text)
    if text in ("True", "False"):
        return text == "True"
    return float(match[1]) * UNITS[match[2]] if match else text.strip("`")


def test_every_setting_is_there_with_its_default() -> None:
    documented = {row["name"]: value_of(row["default"]) for row in ROW.finditer(text_of("docs/settings.md"))}
    assert documented == {field.name: field.default for field in fields(Settings)}


def test_every_profile_is_there() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+?) \| ([^|]+?) \| (\d+) \|", text_of("docs/handlers.md"), re.M)
    starts = {name: int(count) for name, _, _, count in rows}
    assert starts == {name: policy.attempts_max for name, policy in PROFILES.items()}
    delays = {name: delay for name, delay, _, _ in rows}
    for name, policy in PROFILES.items():
        first = policy.delay(1, 0.5)
        assert delays[name].split(",")[0] == ("none" if first == 0 else seconds(first)), name


def seconds(value: float) -> str:
    return f"{value / 60:g} min" if value >= 60 else f"{value:g} s"


def test_every_reason_is_there() -> None:
    rows = re.findall(r"^\| (\d+) \| ([a-z ]+) \|", text_of("docs/failure.md"), re.M)
    assert {int(number): name for number, name in rows} == {
        int(reason): reason.name.lower().replace("_", " ") for reason in Reason
    }
