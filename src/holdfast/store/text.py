"""The text of statements: where it is stored, and how it is adapted to each database and driver.

SQL that differs only by mechanical rules is in one file, in PostgreSQL's dialect; else there is one for
each. `compile` turns `:name` into the driver's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from ..errors import InvalidSettings

Dialect = Literal["sqlite", "postgres"]
Style = Literal["named", "pyformat", "numeric"]

DEFAULT_SCHEMA = "holdfast"


@dataclass(frozen=True, slots=True)
class Text:
    """SQL that a plan writes itself, in PostgreSQL's dialect, for a part of a statement: its conditions."""

    sql: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement's text for one driver, and the names of its parameters in the order of their numbers."""

    sql: str
    data: bytes  # the same, for drivers that find a text by its hash
    names: tuple[str, ...]

    def arguments(self, params: Mapping[str, object]) -> tuple[object, ...]:
        """The values for a driver that numbers its parameters."""
        return tuple(params[name] for name in self.names)


@lru_cache(maxsize=512)
def load(dialect: Dialect, parts: tuple[str | Text, ...], schema: str = DEFAULT_SCHEMA) -> str:
    """The text of a statement made of these files and texts, on PostgreSQL for the schema that is configured."""
    whole = "\n".join(_text(dialect, each) for each in parts)
    return in_schema(qualified(whole), schema) if dialect == "postgres" else whole


def _text(dialect: Dialect, part: str | Text) -> str:
    if isinstance(part, Text):
        return in_words_of(dialect, part.sql)
    folder, _, name = part.partition("/")
    place = files("holdfast").joinpath("store", "sql", folder)
    own = place.joinpath(f"{name}.{dialect}.sql")
    if own.is_file():
        return own.read_text(encoding="utf-8")
    return in_words_of(dialect, place.joinpath(f"{name}.sql").read_text(encoding="utf-8"))


def names(dialect: Dialect) -> list[str]:
    """All statements of a database, and parts of statements: `slots/slot_look`."""
    found = set()
    for folder in files("holdfast").joinpath("store", "sql").iterdir():
        for file in folder.iterdir():
            name, *only, _ = file.name.split(".")
            if not only or only == [dialect]:
                found.add(f"{folder.name}/{name}")
    return sorted(found)


# The mechanical rules: schema or prefix, casts or none, arrays or JSON, and where the time comes from.
NOW = re.compile(r"(?<!:):now\b")
THE_TIME = "coalesce(:now::timestamptz, clock_timestamp())"
ANY = re.compile(r"= any \((:\w+)(?:::\w+\[\])?\)")
NEVER = "9223372036854775807"  # SQLite's instant that never comes
CAST = re.compile(r"::[a-z]\w*(?:\[\])?")


def in_words_of(dialect: Dialect, sql: str) -> str:
    """Adapts SQL that is written once for both databases: in PostgreSQL's dialect, with the time as `:now`.

    >>> in_words_of("sqlite", "select id from holdfast.lease where seq = any (:seqs::bigint[]) and until < :now")
    'select id from holdfast_lease where seq in (select value from json_each(:seqs)) and until < :now'
    >>> in_words_of("postgres", "select :now")
    'select coalesce(:now::timestamptz, clock_timestamp())'
    """
    if dialect == "postgres":
        return NOW.sub(THE_TIME, sql)
    listed = ANY.sub(r"in (select value from json_each(\1))", sql)
    return CAST.sub("", listed).replace("holdfast.", "holdfast_").replace("'infinity'", NEVER)


# Syntax that looks like a call and takes no schema: it always means the system's own functions.
SYNTAX = frozenset(
    (
        "array",
        "cast",
        "coalesce",
        "exists",
        "extract",
        "greatest",
        "least",
        "nullif",
        "row",
        "substring",
        "values",
    )
)
CALL = re.compile(r"(?<![\w.$\"'])([a-z_][a-z0-9_]*)(?=\()")
TYPE = re.compile(r"::(?=(?:float8|json|jsonb|oid|regclass|regprocedure|regtype|text|timestamptz|uuid)\b)")


def qualified(sql: str) -> str:
    """The same PostgreSQL statement with the system's functions and types named with their schema.

    A statement runs with the search path of its connection, which may be the caller's. If someone may create a function
    in a schema of that path, it could fit the arguments of a call better than the system's own, and would run with the
    rights of the caller. Operators are not named: those in our statements fit exactly, so the system's own come first
    (tests/store/test_search_path.py checks that).
    """
    # Of several arrays, `unnest` is the system's own only without its schema.
    named = CALL.sub(
        lambda call: call[0] if call[0] in SYNTAX or call[0] == "unnest" else f"pg_catalog.{call[0]}", sql
    )
    return TYPE.sub("::pg_catalog.", named)


SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
QUALIFIER = re.compile(r"(?<![\w.$])holdfast\.")


def in_schema(sql: str, schema: str) -> str:
    """The same SQL for another schema than `holdfast.`, also inside literals (`'holdfast.t'::regclass`)."""
    if schema == DEFAULT_SCHEMA:
        return sql
    # Checked here too, not only where settings are read: here a string becomes SQL.
    if not SCHEMA.fullmatch(schema):
        raise InvalidSettings(
            f"Schema {schema!r} cannot be used: "
            "a schema is 1 to 48 of a-z, 0-9 and _, and does not begin with a digit."
        )
    return QUALIFIER.sub(f"{schema}.", sql)


COMMENT = r"/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/"
for _ in range(3):  # PostgreSQL's comments nest
    COMMENT = rf"/\*(?:[^*/]|\*(?!/)|/(?!\*)|{COMMENT})*\*/"

# `++` and `*+` do not backtrack: for a literal of 10 MB that would take a gigabyte.
LITERAL = rf"""
          \b[eE]'(?:[^'\\]++|\\.|'')*+'      # E'it\'s'
        | '(?:[^']++|'')*+'
        | "(?:[^"]++|"")*+"
        | (?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
        | --[^\n\r]*
        | {COMMENT}
"""
# The parts of SQL that matter for finding parameters and the ends of statements.
TOKEN = re.compile(
    rf"""
      (?P<skip>{LITERAL}|::)
    | (?<![\w:]):(?P<name>[A-Za-z_]\w*)   # not the colon of a slice, [1:n]
    | (?P<begin>\b(?i:begin)\b(?=\s))       # of the body of a trigger
    | (?P<end>\b(?i:end)\b(?=\s*;))
    | (?P<semicolon>;)
    """,
    re.VERBOSE | re.DOTALL,
)
WORD = re.compile(rf"(?P<skip>{LITERAL})|(?P<end>;)|(?P<word>[A-Za-z_]\w*)|\S", re.VERBOSE | re.DOTALL)
MAY_END = re.compile(r"[\s;]*(?:commit|end|rollback|abort|prepare|--|/\*)", re.IGNORECASE)


def ends_transaction(sql: str) -> str | None:
    """The command in this SQL that would end its transaction on PostgreSQL, if it has one.

    >>> ends_transaction("insert into t values (';'); /* so */ commit work")
    'COMMIT WORK'
    >>> ends_transaction("rollback to savepoint a") is None
    True
    """
    if ";" not in sql and not MAY_END.match(sql):  # nearly always
        return None
    in_function = False
    for words in _first_words(sql):
        match words:
            case ["end", *_] if in_function:
                in_function = False
            case ["rollback", "to", *_] | ["rollback", "work" | "transaction", "to", *_]:
                pass
            case ["commit" | "end" | "rollback" | "abort", *_] | ["prepare", "transaction", *_]:
                return " ".join(words[:2]).upper()
            case [*_] if "begin atomic" in words:  # the body of a function in SQL: statements, and then END
                in_function = True
    return None


def _first_words(sql: str) -> Iterator[list[str]]:
    """The first words of each statement, without literals and comments."""
    words: list[str] = []
    is_begin, before = True, ""
    for token in WORD.finditer(sql):
        if token["end"]:
            yield words
            words, is_begin, before = [], True, ""
        elif token["word"]:
            word = token["word"].lower()
            if (before, word) == ("begin", "atomic"):
                words.append("begin atomic")
            elif is_begin:
                words.append(word)
            before = word
        elif not token["skip"] or not token["skip"].startswith(("--", "/*")):
            is_begin, before = False, ""
    yield words


@lru_cache(maxsize=1024)
def compile(sql: str, style: Style) -> Compiled:
    """The statement as a driver wants it: `named` is `:a`, `pyformat` is `(%(a)s)`, `numeric` is `$1`."""
    numbers: dict[str, int] = {}

    def placeholder(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return found[0]
        number = numbers.setdefault(name, len(numbers) + 1)
        match style:
            case "named":
                return found[0]
            case "pyformat":
                # Drivers that put values into the text would make -1::bigint of it, which is -(1::bigint).
                return f"(%({name})s)"
            case "numeric":
                return f"${number}"

    # Drivers with % search for it in literals and comments too: it is doubled everywhere before our own are put in.
    text = TOKEN.sub(placeholder, sql.replace("%", "%%") if style == "pyformat" else sql)
    return Compiled(text, text.encode(), tuple(numbers))
