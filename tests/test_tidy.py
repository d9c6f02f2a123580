"""The house rules that a machine can hold (CONTRIBUTING.md says them in words). A failure names line and remedy."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "holdfast"

# From the top: a module imports only what stands above it. Names on one line do not know each other.
ORDER = [
    ["errors"],
    ["model"],
    ["settings", "clock"],
    ["rules", "store"],
    ["telemetry"],
    ["webhooks"],
    ["bodies"],
    ["limits"],
    ["handlers"],
    ["worker"],
    ["alerting"],
    ["schedules", "requests", "orchestrations", "transports"],
    ["inboxes"],
    ["operations"],
    ["publishing", "by_hand", "letters"],
    ["testing"],
    ["facade"],
    ["app"],
    ["processes"],
    ["__init__"],
    ["integrations", "dashboard"],
    ["demo"],
    ["cli"],
    ["__main__"],
]

# Above, and still none of their business.
STRANGERS = {
    "rules": {"clock"},  # time and chance are arguments
    "handlers": {"store"},  # a handler does not know where its message lay
    "cli": {"rules", "limits"},  # it asks operations
    "dashboard": {"rules", "store", "worker"},  # they ask operations
}

# What rules/ may not even import: I/O, clocks, dice, concurrency.
IMPURE = {
    "asyncio", "concurrent", "contextvars", "io", "logging", "multiprocessing", "os", "psycopg", "random", "secrets",
    "selectors", "socket", "sqlite3", "subprocess", "threading", "time",
}  # fmt: skip

# Modules that may read a clock or throw dice, and why. Paths within the package.
CLOCKS_AND_DICE = {
    "clock.py": "it is the clock and the dice",
    "demo/story.py": "a story is drawn from its seed",
    "orchestrations/flow.py": "flow.random is drawn from the seed of its instance",
}

# Modules with SQL outside store/, and why.
SQL_OUTSIDE_STORE = {
    **dict.fromkeys(
        (
            "demo/till.py",
            "demo/shop.py",
            "demo/bank.py",
            "demo/greeter.py",
            "demo/flows.py",
            "demo/services.py",
        ),
        "play the user's service, which has tables of its own",
    ),
    **dict.fromkeys(
        (
            "demo/picture.py",
            "demo/proof.py",
            "demo/outage.py",
            "demo/downtime.py",
            "demo/orchestrating.py",
        ),
        "count past the engine, which is the point of a proof",
    ),
}

# The word we use instead (GLOSSARY.md).
BANNED_WORDS = {
    "job": "message",
    "jobs": "messages",
    "task queue": "queue",
    "enqueue": "publish or append",
    "enqueued": "published",
    "dequeue": "claim",
    "nack": "settle",
    "requeue": "redrive or give back",
    "workflow": "orchestration",
    "workflows": "orchestrations",
}

MODULE_LINES = (450, 500)  # (reported, refused)
FUNCTION_LINES = (60, 75)


# --- Reading the sources ------------------------------------------------------------------------------------


@functools.cache
def sources() -> dict[str, ast.Module]:
    """Every module of the package by its path within it."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(), filename=str(path))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def part_of(module: str) -> str:
    """The name in ORDER that a path belongs to: rules/retry.py -> rules."""
    return module.split("/")[0].removesuffix(".py")


def place_of(part: str) -> int | None:
    return next((place for place, parts in enumerate(ORDER) if part in parts), None)


def imports_of(module: str) -> Iterator[tuple[int, list[str]]]:
    """(line, full dotted name) of each import, also of those inside functions and behind TYPE_CHECKING."""
    package = ["holdfast", *module.split("/")[:-1]]
    for node in ast.walk(sources()[module]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield node.lineno, [*start, alias.name]


def target_of(name: list[str]) -> str | None:
    """The part of ours that an import reaches: `from holdfast import Holdfast` reaches __init__."""
    if name[0] != "holdfast":
        return None
    if len(name) == 1:
        return "__init__"
    inside = PACKAGE / name[1]
    return name[1] if inside.is_dir() or inside.with_suffix(".py").exists() else "__init__"


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """String constants that are not documentation."""
    remarks = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in remarks:
            yield node.lineno, node.value


def refuse(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n" + "\n".join(faults), pytrace=False)


# --- Direction ----------------------------------------------------------------------------------------------


def test_every_module_has_its_place() -> None:
    refuse(
        [
            f"{each}: unknown part; give it a place in ORDER"
            for each in sources()
            if place_of(part_of(each)) is None
        ]
    )


def test_a_module_imports_only_what_stands_above_it() -> None:
    faults = []
    for module in sources():
        part = part_of(module)
        place = place_of(part)
        for line, name in imports_of(module):
            target = target_of(name)
            if target is None or target == part or place is None:
                continue
            target_place = place_of(target)
            if target_place is None or target_place >= place:
                faults.append(
                    f"{module}:{line}: {part} imports {'.'.join(name)}, which does not stand above it"
                )
            elif target in STRANGERS.get(part, ()):
                faults.append(f"{module}:{line}: {part} must not know {target}")
    refuse(faults)


def test_integrations_use_public_names_only() -> None:
    refuse(
        [
            f"{module}:{line}: {'.'.join(name)} is not a public name; import it from holdfast"
            for module in sources()
            if part_of(module) == "integrations"
            for line, name in imports_of(module)
            if target_of(name) not in (None, "__init__", "integrations")
        ]
    )


def test_rules_are_pure() -> None:
    """Also whatever they import, however indirectly. What reaches them as an argument: tests/rules/test_pure.py."""
    faults = []
    for module, way in reached("rules").items():
        if part_of(module) == "clock":
            faults.append(f"{way}: rules reach the clock; take the time as an argument")
        for line, name in imports_of(module):
            if name[0] in IMPURE:
                faults.append(f"{way}, line {line}: rules reach {name[0]}; take what you need as an argument")
    refuse(faults)


def test_handlers_do_not_know_the_store() -> None:
    """Nor does anything that they import, however indirectly."""
    refuse(
        [
            f"{way}: handlers reach the store; a handler does not know where its message lay"
            for module, way in reached("handlers").items()
            if part_of(module) == "store"
        ]
    )


def reached(part: str) -> dict[str, str]:
    """Every module that a part imports, however indirectly, and the way there. The package's face is left out."""
    ways = {each: each for each in sources() if part_of(each) == part}
    waiting = list(ways)
    while waiting:
        module = waiting.pop()
        for _, name in imports_of(module):
            for target in modules_of(name):
                if target not in ways:
                    ways[target] = f"{ways[module]} -> {target}"
                    waiting.append(target)
    return ways


def modules_of(name: list[str]) -> Iterator[str]:
    """The modules of ours that an import runs: `from .store import plans` runs store/__init__.py and store/plans.py."""
    if name[0] != "holdfast":
        return
    for end in range(2, len(name) + 1):
        path = "/".join(name[1:end])
        yield from (each for each in (f"{path}.py", f"{path}/__init__.py") if each in sources())


# Loads modules of the package without its face, which loads everything, and tells what came with them.
LOADER = """
import importlib, sys, types
package = sys.modules["holdfast"] = types.ModuleType("holdfast")
package.__path__ = [sys.argv[1]]
for name in sys.argv[2:]:
    importlib.import_module(name)
print(*sorted(sys.modules))
"""


def loaded_by(*modules: str) -> set[str]:
    """What a fresh interpreter has loaded when these are imported."""
    names = [f"holdfast.{each.removesuffix('.py').replace('/', '.')}" for each in modules]
    told = subprocess.run(
        [sys.executable, "-I", "-c", LOADER, str(PACKAGE), *names], capture_output=True, text=True, check=True
    )
    return set(told.stdout.split())


def test_a_process_that_loads_the_rules_has_loaded_nothing_else() -> None:
    loaded = loaded_by(*(each for each in sources() if part_of(each) == "rules" and "__init__" not in each))
    ours = {each.split(".")[1] for each in loaded if each.startswith("holdfast.")}
    assert ours <= {"errors", "model", "settings", "rules"}
    # Modules of the standard library load each other: email.utils has socket and random with it.
    assert loaded & (IMPURE - {"io", "os", "random", "selectors", "socket", "threading", "time"}) == set()


def test_a_process_that_loads_handlers_has_loaded_no_store() -> None:
    loaded = loaded_by(
        *(each for each in sources() if part_of(each) == "handlers" and "__init__" not in each)
    )
    strangers = [
        each for each in loaded if each.startswith("holdfast.store") or each in ("sqlite3", "psycopg")
    ]
    assert sorted(strangers) == []


# --- Clocks, dice, SQL --------------------------------------------------------------------------------------

CLOCK_CALLS = {
    ("time", "time"), ("time", "time_ns"), ("time", "monotonic"), ("time", "monotonic_ns"), ("time", "perf_counter"),
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
}  # fmt: skip


def test_no_clock_or_dice_outside_clock_py() -> None:
    faults = []
    for module, tree in sources().items():
        if module in CLOCKS_AND_DICE:
            continue
        for line, name in imports_of(module):
            if name[0] == "random" or (name[0] == "time" and tuple(name[:2]) in CLOCK_CALLS):
                faults.append(f"{module}:{line}: imports {'.'.join(name)}; use clock.py")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                owner = node.value
                owner_name = getattr(owner, "id", None) or getattr(owner, "attr", None)
                if (owner_name, node.attr) in CLOCK_CALLS:
                    faults.append(f"{module}:{node.lineno}: reads {owner_name}.{node.attr}; use clock.py")
    refuse(faults)


SQL = re.compile(
    r"\bselect\b.+\bfrom\b|\binsert\s+into\b|\bupdate\b.+\bset\b.+=|\bdelete\s+from\b", re.I | re.S
)


def test_sql_only_in_the_store() -> None:
    refuse(
        [
            f"{module}:{line}: looks like SQL; it belongs in store/: {text.strip()[:60]!r}"
            for module, tree in sources().items()
            if part_of(module) != "store" and module not in SQL_OUTSIDE_STORE
            for line, text in literals(tree)
            if SQL.search(text)
        ]
    )


def test_no_orphan_sql() -> None:
    """Every .sql file is named by a module, or by another .sql file that calls it. Migrations are all run."""
    files = [each for each in PACKAGE.rglob("*.sql") if "migrations" not in each.parts]
    texts = {each: each.read_text() for each in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql"))}
    words = {file: set(re.findall(r"\w+", text)) for file, text in texts.items()}
    refuse(
        [
            f"{file.relative_to(PACKAGE)}: nobody names it"
            for file in files
            for name in [file.name.split(".")[0]]
            if not any(name in named for other, named in words.items() if other != file)
        ]
    )


# What an installation has besides the standard library: the dependencies of pyproject.toml, and rich, which comes with
# typer. The others are extras, or what the user's own program has.
INSTALLED = {"msgspec", "typer", "rich", "tzdata", "uuid_utils"}
OPTIONAL = {
    "aiosqlite", "asyncpg", "cryptography", "django", "obstore", "opentelemetry", "pika", "psycopg", "psycopg2",
    "pydantic", "pytest", "sqlalchemy",
}  # fmt: skip


def is_on_demand(module: str) -> bool:
    """Whether it is imported only by those who have the extra: a driver, a broker, a plugin of pytest."""
    return module in ON_DEMAND or module.startswith(("transports/rabbitmq/", "testing/transports/"))


ON_DEMAND = {
    "store/connecting_postgres.py",
    "store/handed_postgres.py",
    "store/refusals.py",
    "testing/plugin.py",
}


def test_nothing_is_imported_that_an_installation_may_lack() -> None:
    """A fresh `pip install holdfast` has no click: typer has brought its own since 0.29."""
    known = set(sys.stdlib_module_names) | INSTALLED | OPTIONAL | {"holdfast"}
    refuse(
        [
            f"{module}:{line}: {name[0]} is no dependency of ours"
            for module in sources()
            for line, name in imports_of(module)
            if name[0] not in known
        ]
    )
    faults = []
    for module, tree in sources().items():
        for node in tree.body:  # what is imported when the module is
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in names:
                if name.partition(".")[0] in OPTIONAL and not is_on_demand(module):
                    faults.append(f"{module}:{node.lineno}: imports {name} at once; it is an extra")
    refuse(faults)


# --- Size and words -----------------------------------------------------------------------------------------


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of code, without the docstring."""
    assert function.end_lineno is not None
    first = function.body[0]
    documented = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.end_lineno is not None
    )
    remark = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - remark


def test_sizes() -> None:
    """A module fits in a sitting and a function on a screen. A little over is reported, much over is refused."""
    lengths: list[tuple[str, int, tuple[int, int]]] = []
    for module, tree in sources().items():
        lengths.append((module, len((PACKAGE / module).read_text().splitlines()), MODULE_LINES))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append((f"{module}:{node.lineno} {node.name}", length_of(node), FUNCTION_LINES))
    for what, length, (reported, _) in lengths:
        if length > reported:
            warnings.warn(f"{what} has {length} lines; {reported} are enough", stacklevel=1)
    refuse(
        [
            f"{what} has {length} lines; {limit[1]} is the limit"
            for what, length, limit in lengths
            if length > limit[1]
        ]
    )


CLOSED = re.compile(r"\s*[)\]}][:,]?  # (?!fmt: |type: |noqa|accepted: )")


def test_comments_stand_above_what_is_broken_over_lines() -> None:
    """The formatter breaks a line that is too long with its comment, and leaves the comment behind a bracket."""
    refuse(
        [
            f"{path.relative_to(ROOT)}:{number} has its comment behind a closing bracket: put it above the statement"
            for folder in ("src", "tests", "bench", "tools", "examples")
            for path in sorted((ROOT / folder).rglob("*.py"))
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if CLOSED.match(line)
        ]
    )


def identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names that the module gives. Names of other libraries that it uses are not ours to choose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def words_of(identifier: str) -> str:
    """OrderJobs and order_jobs -> "order jobs"."""
    return " ".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier.replace("_", " "))).lower()


def test_one_word_per_thing() -> None:
    faults = []
    for module, tree in sources().items():
        for line, name in [(1, Path(module).stem), *identifiers(tree)]:
            for banned, better in BANNED_WORDS.items():
                if re.search(rf"\b{banned}\b", words_of(name)):
                    faults.append(f"{module}:{line}: {name}: we say {better}, not {banned}")
    refuse(faults)


# --- The tests ----------------------------------------------------------------------------------------------


def reads_a_clock(node: ast.AST, known: set[str]) -> bool:
    """Whether it asks the machine's clock, or uses a name that was given such an answer."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr in ("monotonic", "perf_counter"):
            return ast.unparse(each).startswith("time.")
        if isinstance(each, ast.Name) and each.id in known:
            return True
    return False


def has_time_bound(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it asserts how long something took by the machine's clock."""
    known: set[str] = set()
    for each in ast.walk(test):
        if isinstance(each, ast.Assign) and reads_a_clock(each.value, known):
            known |= {
                name.id for target in each.targets for name in ast.walk(target) if isinstance(name, ast.Name)
            }
    return any(reads_a_clock(each.test, known) for each in ast.walk(test) if isinstance(each, ast.Assert))


def test_tests_with_a_bound_in_seconds_run_alone() -> None:
    """Beside others they would fail when the machine is busy."""
    faults = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                marks = [ast.unparse(each) for each in node.decorator_list]
                if has_time_bound(node) and not any(
                    "mark.alone" in each or "faults" in each for each in marks
                ):
                    faults.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}: mark it `alone`")
    refuse(faults)


# --- Every file of the repository ---------------------------------------------------------------------------

# Written in two halves, so that this file does not break its own rule.
HOSTS = [
    "pypi." + "org", "pythonhosted." + "org", "npmjs." + "org", "npmjs." + "com", "yarnpkg." + "com",
    "deb.debian." + "org", "archive.ubuntu." + "com",
]  # fmt: skip
MACHINE_PATHS = re.compile(r"(?<![\w.~*-])/(?:wo" + r"rk|ro" + r"ot|op" + r"t)/")


@functools.cache
def repository_files() -> list[Path]:
    """Tracked files and those about to be."""
    listed = subprocess.run(
        [
            "git",
            "-c",
            f"safe.directory={ROOT}",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        cwd=ROOT,
        capture_output=True,
    )
    if listed.returncode == 0:
        files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:  # not a clone: an unpacked archive
        files = [each for each in ROOT.rglob("*") if not {".venv", ".git"} & set(each.parts)]
    return [each for each in files if each.is_file()]


def test_no_registry_and_no_path_of_a_machine() -> None:
    faults = []
    for file in repository_files():
        try:
            lines = file.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if any(host in line for host in HOSTS):
                faults.append(f"{file.relative_to(ROOT)}:{number}: names a registry's host")
            if MACHINE_PATHS.search(line):
                faults.append(f"{file.relative_to(ROOT)}:{number}: names a path of somebody's machine")
    refuse(faults)


def test_pins_have_hashes() -> None:
    for file in sorted((ROOT / "constraints").glob("*.txt")):
        requirements = re.split(r"\n(?=\S)", file.read_text())
        pins = [each for each in requirements if not each.startswith("#")]
        assert pins
        assert [
            each.splitlines()[0] for each in pins if "==" not in each or "--hash=sha256:" not in each
        ] == []
