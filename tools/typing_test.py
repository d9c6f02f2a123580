"""What type checkers say to users of Holdfast: mypy --strict and basedpyright, on tests/typing.

    right.py      what users rightly write: neither may refuse any of it. Uses are marked `# accepted: ...`
    mistakes.py   what they write by mistake: both must refuse each line marked `# refused: ...`, and no other

Exit status 1 if a mistake passes one of them, or if something is refused that is not marked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "typing"
BIN = Path(sys.executable).parent
LEAST = 25  # mistakes, and right uses
MARK = re.compile(r"# (refused|accepted): (.+)$")
LINE = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?:\d+:)? error: (?P<text>.*)$", re.M)

Place = tuple[str, int]  # file, line


def marks(texts: Mapping[str, str], kind: str) -> dict[Place, str]:
    """Where a mark of this kind stands, and what it says."""
    return {
        (name, number): found[2]
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if (found := MARK.search(line)) and found[1] == kind
    }


def differences(
    refused: Mapping[Place, str], reports: Mapping[str, Mapping[Place, str]], least: int = LEAST
) -> list[str]:
    """What is not as it is marked. `reports`: for each checker, the lines that it refuses, and why."""
    faults = [] if len(refused) >= least else [f"{len(refused)} mistakes are marked; {least} are the least"]
    for checker, found in reports.items():
        for (name, line), why in sorted(refused.items()):
            if (name, line) not in found:
                faults.append(f"tests/typing/{name}:{line}: {checker} does not refuse it ({why})")
        for (name, line), text in sorted(found.items()):
            if (name, line) not in refused:
                faults.append(f"tests/typing/{name}:{line}: {checker} refuses it: {text}")
    return faults


def mypy() -> dict[Place, str]:
    done = subprocess.run(
        [BIN / "mypy", "--strict", "--no-pretty", "--no-error-summary", FOLDER],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1) or done.stderr:
        sys.exit(f"mypy failed: {done.stderr or done.stdout}")
    return {(Path(each["path"]).name, int(each["line"])): each["text"] for each in LINE.finditer(done.stdout)}


def basedpyright() -> dict[Place, str]:
    done = subprocess.run(
        [BIN / "basedpyright", "--pythonpath", sys.executable, "--outputjson"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    try:
        told = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"basedpyright failed: {done.stderr or done.stdout}")
    if told["summary"]["filesAnalyzed"] < 2:
        sys.exit("basedpyright has looked at nothing: see [tool.basedpyright] in pyproject.toml")
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"].partition("\n")[0]
        for each in told["generalDiagnostics"]
        if each["severity"] == "error"
    }


def main() -> None:
    texts = {each.name: each.read_text() for each in sorted(FOLDER.glob("*.py"))}
    refused, accepted = marks(texts, "refused"), marks(texts, "accepted")
    with ThreadPoolExecutor() as pool:
        running = {each.__name__: pool.submit(each) for each in (mypy, basedpyright)}
        reports = {name: each.result() for name, each in running.items()}
    faults = differences(refused, reports)
    if len(accepted) < LEAST:
        faults.append(f"{len(accepted)} right uses are marked; {LEAST} are the least")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{' and '.join(reports)}: {len(refused)} mistakes refused, {len(accepted)} right uses accepted")


if __name__ == "__main__":
    main()
