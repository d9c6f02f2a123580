"""The rules of SECURITY.md that hold for the whole of the sources: what they do not do, and what they refuse.

Others have tests of their own: S1 and S3 in telemetry/test_exporter.py, S16 to S19 in webhooks/, S32 in
store/test_grants.py, S37 in cli/test_manners.py.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import sqlite3
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, InvalidMessage, InvalidSettings
from holdfast.model.names import schema_name
from holdfast.store.text import in_schema
from tests.test_tidy import ROOT, sources

sre: Any = importlib.import_module("re._parser")


def calls(tree: ast.AST, *, literal: bool = True) -> Iterator[tuple[int, str]]:
    """Line and name of each call; `literal`: also of those whose first argument stands there as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            is_literal = bool(node.args) and isinstance(node.args[0], ast.Constant)
            if literal or not is_literal:
                yield node.lineno, ast.unparse(node.func)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


# --- S24: nothing that is stored is ever run --------------------------------------------------------------------------

RUNS_DATA = {"pickle", "cPickle", "marshal", "shelve", "yaml", "dill", "cloudpickle", "jsonpickle"}
DYNAMIC = {
    "__init__.py": "imports the public names, which are in a table of its own",
    "processes/loading.py": "imports the application that the command line names",
}


def test_nothing_reads_data_that_could_be_code() -> None:
    found = {module for module, tree in sources().items() if RUNS_DATA & set(imported(tree))}
    assert found == set()


def test_nothing_is_evaluated_or_imported_by_a_name_in_data() -> None:
    for module, tree in sources().items():
        for line, name in calls(tree):
            assert name not in ("eval", "exec", "builtins.eval", "builtins.exec"), f"{module}:{line}"
        for line, name in calls(tree, literal=False):
            if name in ("__import__", "import_module", "importlib.import_module"):
                assert module in DYNAMIC, f"{module}:{line} imports by a name"


def test_a_type_is_a_name_and_no_object(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/x.db")
    before = set(sys.modules)
    for type in ("antigravity", "os.system", "holdfast.demo.story.anything"):
        app.publish(type, {})
        assert app.operations.why(app.publish(type, {}).id)
    assert "antigravity" not in set(sys.modules) - before
    app.close()


# --- S31: names in SQL ------------------------------------------------------------------------------------------------

NO_SCHEMAS = [
    "", "a b", "a;b", 'a"b', "a'b", "a.b", "A", "1a", "a-b", "ä", "a\0", "a\n", "x" * 49, "select", "pg_catalog",
    "information_schema", "a--", "a/*", "$$", "a\\", "\u202ea", "ａ",
]  # fmt: skip
# Where SQL is put together, and what is put into it.
COMPOSED = {
    "store/grants.py": "names that a pattern has checked",
    "store/migrate.py": "a schema that a pattern has checked, and numbers",
    "store/plans/dead_queries.py": "conditions of a table of its own",
    "store/plans/queries.py": "conditions of a table of its own",
    "store/connecting_sqlite.py": "settings of its own",
    "store/plans/engine_sqlite.py": "savepoints with numbers of its own",
    "store/runners.py": "savepoints with numbers of its own",
}
SQL = re.compile(
    r"\s*(select|insert|update|delete|create|alter|drop|grant|revoke|truncate|set|pragma|savepoint)\s"
)


@pytest.mark.parametrize("name", NO_SCHEMAS)
def test_what_is_no_name_does_not_get_into_sql(name: str) -> None:
    with pytest.raises(InvalidSettings):
        schema_name(name)
    if name not in ("select", "pg_catalog", "information_schema"):  # reserved, and harmless as they stand
        with pytest.raises(InvalidSettings):
            in_schema("select 1 from holdfast.message", name)


def test_sql_is_put_together_in_few_places() -> None:
    """Everything else is a file, with parameters."""
    found = set()
    for module, tree in sources().items():
        if not module.startswith("store/"):  # where alone SQL may be (test_tidy.py)
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) and any(
                isinstance(each, ast.FormattedValue) for each in node.values
            ):
                first = node.values[0]
                if isinstance(first, ast.Constant) and SQL.match(str(first.value)):
                    found.add(module)
    assert found - set(COMPOSED) == set()


# --- S34: limits are errors -------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "options",
    [
        {"body": "x" * (1024 * 1024)},
        {"body": nested(65)},
        {"body": nested(100_000)},
        {"headers": {"h": "x" * 16 * 1024}},
        {"headers": {"h": {"deep": 1}}},
        {"stream": "s" * 301},
        {"dedupe": "k" * 5000},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_is_too_large_is_refused_and_nothing_is_stored(tmp_path: Path, options: dict[str, Any]) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/x.db")
    body = options.pop("body", {})
    with pytest.raises(InvalidMessage):
        app.publish("a.b", body, **options)
    app.publish("a.b", {})
    assert len(app.operations.messages.find()) == 1
    app.close()


# --- S35: patterns take linear time -----------------------------------------------------------------------------------


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """All that stand in modules, also in their tables."""
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError:  # of an extra that is not installed
            continue
        for name, value in vars(module).items():
            for each in value if isinstance(value, list | tuple | set | frozenset) else [value]:
                for part in each if isinstance(each, tuple) else [each]:
                    if isinstance(part, re.Pattern):
                        yield f"{found.name}.{name}", part


def repeats(parsed: Any, inside: bool = False) -> Iterator[bool]:
    """For each repetition without an end whether it stands, alone in its group, inside of another one."""
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            _, most, body = argument
            endless = most == sre.MAXREPEAT
            if endless:
                yield inside
            yield from repeats(body, inside or (endless and len(body) == 1))
        elif name == "SUBPATTERN":
            yield from repeats(argument[-1], inside and len(argument[-1]) == 1)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from repeats(branch, inside and len(branch) == 1)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from repeats(argument[1])


def test_no_pattern_repeats_a_repetition() -> None:
    """`(a+)+` and its kin take time that doubles with each character."""
    known = list(patterns())
    assert len(known) > 30
    for name, pattern in known:
        assert not any(repeats(sre.parse(pattern.pattern, pattern.flags))), name
    assert any(repeats(sre.parse(r"(a+)+")))
    assert any(repeats(sre.parse(r"(?:a*|b)*")))
    assert not any(repeats(sre.parse(r"(?:a+,)*")))


# --- S36: the file of SQLite ------------------------------------------------------------------------------------------


def test_a_file_is_its_owners_alone_and_no_link(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        app = Holdfast(f"sqlite:///{tmp_path}/x.db")
        app.publish("a.b", {})
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("x.db*")}
        app.close()
    finally:
        os.umask(before)
    assert modes["x.db"] == 0o600
    assert set(modes.values()) == {0o600}  # the WAL and its index as well
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(InvalidSettings, match="symbolic link"):
        Holdfast(f"sqlite:///{tmp_path}/link.db").publish("a.b", {})
    assert not (tmp_path / "elsewhere.db").exists()


def test_no_extension_is_loaded(tmp_path: Path) -> None:
    for module, tree in sources().items():
        assert not [name for _, name in calls(tree) if "load_extension" in name], module
    app = Holdfast(f"sqlite:///{tmp_path}/x.db")
    app.prepare()
    with pytest.raises(sqlite3.OperationalError, match="not authorized"), app.store.transaction() as (db, _):
        db.execute("select load_extension('x')")
    app.close()


# --- S38: what comes with it ------------------------------------------------------------------------------------------


def test_few_dependencies_and_all_of_them_pinned_by_their_content() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {re.split(r"[^a-z-]", each)[0] for each in project["project"]["dependencies"]}
    assert len(needed - {"tzdata"}) <= 3  # which is data, and no code
    assert "setup.py" not in os.listdir(ROOT)
    assert "hooks" not in str(project["tool"]["hatch"]["build"])
    for file in (ROOT / "constraints").glob("*.txt"):
        text = file.read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", " "))]
        assert lines
        assert [line for line in lines if "==" not in line or "--hash=sha256:" not in line] == [], file.name
    assert "--require-hashes" in (ROOT / "tools" / "bootstrap.py").read_text()
