"""Checks of names (of types, queues, streams, keys, headers and schemas) and of database URLs.

Every check returns the value or raises an error that says what was given, why it is not valid, and what to do.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Collection, Container
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import InvalidMessage, InvalidSettings, UsageError

# Control characters, lone surrogates, line separators, and characters that change the direction of the text around them
# (a name must look like what it is). Joiners, which some scripts need, are allowed.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
ID_MAX = 300  # characters of the id of an instance
NOWHERE = "\ufeff"  # in no name, so a search for it finds nothing
RESERVED_PREFIX = "holdfast/"

# Headers of what came through an inbox: its name, what the sender calls itself, and what it calls the message.
RECEIVED = ("holdfast-inbox", "holdfast-source", "holdfast-id")


def control_in(value: str) -> re.Match[str] | None:
    """The first character that no name may have. Printable ASCII has none, which is faster to test than a search."""
    return None if value.isascii() and value.isprintable() else CONTROL.search(value)


def needs_parentheses(decorator: str, function: object) -> None:
    """`@app.activity` on its own is called with the function below it, which options would replace."""
    if function is not None:
        raise InvalidSettings(f"@app.{decorator} was written without parentheses: write @app.{decorator}().")


def askable(id: object) -> str:
    """An id to look for. What can be nobody's finds nothing, like any unknown id, and no driver refuses it."""
    return id if isinstance(id, str) and control_in(id) is None else NOWHERE


def text(value: object, what: str, longest: int, error: type[UsageError] = InvalidMessage) -> str:
    """A name of 1 to `longest` characters that can be read, printed and compared."""
    if not isinstance(value, str):
        raise error(f"{what} must be text and is a {type(value).__name__}: convert it, str(...) for one.")
    if type(value) is not str:
        value = str.__str__(value)
    if not value:
        raise error(f"{what} is empty. Give it at least one character, or leave it out where it is optional.")
    if len(value) > longest:
        raise error(
            f"{what} has {len(value)} characters, and {longest} are allowed: {value[:40]!r}… Shorten or hash it."
        )
    if found := control_in(value):
        raise error(
            f"{what} {value!r} has the character {found[0]!r} at {found.start()}, "
            "a control character, line separator or lone surrogate. Take it out."
        )
    if value[0].isspace() or value[-1].isspace():
        raise error(f"{what} {value!r} begins or ends with white space. Strip it.")
    return value


def type_name(value: object) -> str:
    """The type of a message, `order.placed`."""
    return checked_type(value if type(value) is str else text(value, "The message type", 200))


@lru_cache(maxsize=1024)  # a service has few types, and each message names one
def checked_type(value: str) -> str:
    name = text(value, "The message type", 200)
    if "*" in name:
        raise InvalidMessage(
            f"The message type {name!r} has a *, which means `all` to subscribers. Use another sign."
        )
    return name


def stream_name(value: object) -> str:
    return text(value, "The stream", 300)


def instance_id(value: object) -> str:
    """The id of an instance of an orchestration, which is the stream of its messages."""
    return text(value, "The id of the instance", ID_MAX)


def dedupe_key(value: object) -> str:
    return text(value, "The dedupe key", 300)


SCOPED = "\x1f"  # begins a dedupe key that names its scope, and ends the scope; no name can have it


def stored_key(key: object, scope: object = None) -> str:
    """A dedupe key as it is stored, with its scope if it has one. Otherwise the type is its scope."""
    checked = dedupe_key(key)
    if scope is None:
        return checked
    return f"{SCOPED}{text(scope, 'The scope of the dedupe key', 300)}{SCOPED}{checked}"


def shown_key(stored: str | None) -> str | None:
    """A stored dedupe key for people."""
    if stored is None or not stored.startswith(SCOPED):
        return stored
    scope, _, key = stored[1:].partition(SCOPED)
    return f"{key} (of {scope})"


def subject(value: object) -> str:
    return text(value, "The subject", 300)


BELOW = "/"  # between the name of a family of queues and the rest of the name of one of them


def queue_name(value: object) -> str:
    name = own_name(value, "The queue")
    if "@" in name:
        raise InvalidSettings(
            f"The queue {name!r} has an @, which is kept for the versions of orchestrations (name@version). "
            "Use another sign."
        )
    return name


def is_versioned(queue: str) -> bool:
    """Whether this is the queue of an orchestration, `name@version`: no queue of a user's own has an @."""
    return "@" in queue


def family_of(queue: str, families: Container[str]) -> str | None:
    """Which of these families a queue belongs to: `customers/17` belongs to `customers`."""
    end = queue.rfind(BELOW)
    while end > 0:
        if queue[:end] in families:
            return queue[:end]
        end = queue.rfind(BELOW, 0, end)
    return None


def handler_name(value: object) -> str:
    return own_name(value, "The handler's name")


def own_name(value: object, what: str) -> str:
    name = text(value, what, 200, InvalidSettings)
    if name.startswith(RESERVED_PREFIX):
        raise InvalidSettings(
            f"{what} {name!r} begins with {RESERVED_PREFIX!r}, which is the engine's own. Use another."
        )
    return name


def operator(value: object = None) -> str:
    """Who gives a command: a name, or else the user of this process and the machine."""
    if value is not None:
        return text(value, "The operator's name", 200, UsageError)
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container without a list of users
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"[:200]


HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")


def header_name(value: object) -> str:
    """A name that HTTP, NATS, AMQP and CloudEvents can all carry."""
    return checked_header(value if type(value) is str else text(value, "A header's name", 128))


@lru_cache(maxsize=1024)  # a service has few of them, and each message names several
def checked_header(value: str) -> str:
    name = text(value, "A header's name", 128)
    if not HEADER.fullmatch(name):
        raise InvalidMessage(
            f"The header name {name!r} cannot be sent: use letters, digits, - _ and . only, without spaces or colons."
        )
    return name


def all_below(family: str) -> str:
    """How a worker registers that it serves every queue of a family: `customers/*`."""
    return f"{family}{BELOW}*"


def serves(queues: Collection[str], queue: str) -> bool:
    """Whether a worker with these queues, as it has registered them, takes from this one."""
    return queue in queues or any(
        each.endswith(BELOW + "*") and queue.startswith(each[:-1]) for each in queues
    )


# --- Subscriptions ------------------------------------------------------------------------------------------


def pattern(value: object) -> str:
    """A type, a prefix with everything below it (`order.*`), or everything (`*`)."""
    wanted = text(value, "The subscription", 202, InvalidSettings)
    prefix = wanted.removesuffix(".*")
    if wanted != "*" and ("*" in prefix or not prefix or len(prefix) > 200):
        raise InvalidSettings(
            f"The subscription {wanted!r} is not understood: "
            "it is a message type, a prefix that ends in `.*`, or `*` for all."
        )
    return wanted


def matches(pattern: str, type_: str) -> bool:
    """Whether a subscription wants messages of this type. `order.*` wants `order.a` and `order.a.b`, not `order`."""
    if pattern.endswith("*"):
        return type_.startswith(pattern[:-1])
    return pattern == type_


# --- PostgreSQL schemas -------------------------------------------------------------------------------------

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
# Words that need quotes before a dot (PostgreSQL, appendix C, reserved in any way).
KEYWORDS = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
    from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
    localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
    returning right select session_user similar some symmetric system_user table tablesample then to trailing true
    union unique user using variadic verbose when where window with
    """.split()  # noqa: SIM905 - a hundred lines otherwise
)


def schema_name(value: object) -> str:
    """A schema that can be written into SQL as it is."""
    if not isinstance(value, str) or not SCHEMA.fullmatch(value):
        raise InvalidSettings(
            f"Schema {repr(value)[:60]} cannot be used: "
            "a schema is 1 to 48 of a-z, 0-9 and _, and does not begin with a digit."
        )
    if value in KEYWORDS or value.startswith("pg_") or value == "information_schema":
        raise InvalidSettings(
            f"Schema {value!r} is a word of PostgreSQL's own. Use another, `holdfast` for one."
        )
    return value


# --- Databases ----------------------------------------------------------------------------------------------

SCHEMES = "`sqlite:///file.db`, `sqlite:////absolute/file.db`, `sqlite:///:memory:` or `postgresql://user@host/database`"
SECRET = re.compile(r"((?i:password|oauth_client_secret)\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]*)")


def database_url(value: object) -> tuple[str, str]:
    """The URL without our own parameters, and the schema (`?schema=`, PostgreSQL only); or InvalidSettings.

    SQLite's is `sqlite:///` and the path as it is; PostgreSQL's is what libpq takes. It contains the password:
    use `display_url` to show it.
    """
    if not isinstance(value, str):
        raise InvalidSettings(
            f"The database must be given as text and is a {type(value).__name__}: {SCHEMES}."
        )
    if CONTROL.search(value) or value != value.strip():
        raise bad_url(value, "it has white space around it or a control character in it. Take it out")
    scheme, separator, rest = value.partition("://")
    match scheme.lower():
        case _ if not separator:
            raise bad_url(value, f"it has no scheme. Write {SCHEMES}")
        case "sqlite":
            return sqlite_url(value, rest), "holdfast"
        case "postgresql" | "postgres":
            return postgres_url(value, rest)
        case other if other.startswith(("postgresql+", "postgres+", "sqlite+")):
            raise bad_url(value, f"Holdfast chooses the driver itself. Write `{other.partition('+')[0]}://`")
        case other:
            raise bad_url(value, f"{other!r} is not a database that Holdfast knows. Write {SCHEMES}")


def sqlite_url(url: str, rest: str) -> str:
    path, _, query = rest.partition("?")
    if not path.startswith("/"):
        raise bad_url(url, "after `sqlite:` come three slashes and the path, four for an absolute one")
    if query:
        raise bad_url(url, "SQLite takes no parameters")
    if path[1:] in ("", "/") or path.endswith("/"):
        raise bad_url(url, "it names no file. For a database in memory write `sqlite:///:memory:`")
    return f"sqlite://{path}"


def postgres_url(url: str, rest: str) -> tuple[str, str]:
    try:
        parts = urlsplit(f"postgresql://{rest}")
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise bad_url(url, f"it cannot be parsed ({type(error).__name__}). Write {SCHEMES}") from None
    if re.search(r"\s", rest):
        raise bad_url(url, "white space in it must be written as %20")
    user, at, hosts = parts.netloc.rpartition("@")
    if "@" in user or parts.fragment or parts.path.count("/") > 1:
        raise bad_url(url, "a @, / or # in the password or the name must be written as %40, %2F, %23")
    for host in hosts.split(",") if hosts else ():
        check_host(url, host)
    if any(re.search(r"%(?![0-9A-Fa-f]{2})", part) for part in (user, hosts, parts.path)):
        raise bad_url(url, "a % must be written as %25")
    schemas = [each for key, each in query if key == "schema"]
    if len(schemas) > 1:
        raise bad_url(url, "it names two schemas")
    kept = "&".join(pair for pair in parts.query.split("&") if not pair.startswith("schema="))
    clean = f"postgresql://{user}{at}{hosts}{parts.path}" + (f"?{kept}" if kept else "")
    return clean, schema_name(schemas[0]) if schemas else "holdfast"


def pooler(url: str) -> tuple[str, bool]:
    """A URL without `pooler=`, and whether there is a pooler in front of the database.

    >>> pooler("postgresql://h/d?pooler=transaction&sslmode=require")
    ('postgresql://h/d?sslmode=require', True)
    """
    address, _, query = url.partition("?")
    pairs = query.split("&") if query else []
    said = [pair.partition("=")[2] for pair in pairs if pair.startswith("pooler=")]
    if said not in ([], ["transaction"]):
        raise bad_url(
            url, "`pooler` is `transaction`, which fits poolers in session mode as well, or is left out"
        )
    kept = "&".join(pair for pair in pairs if not pair.startswith("pooler="))
    return address + (f"?{kept}" if kept else ""), bool(said)


def check_host(url: str, host: str) -> None:
    name, colon, port = (host, "", "") if host.endswith("]") else host.rpartition(":")
    if not colon:
        name = host
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise bad_url(url, "the port must be a number from 1 to 65535")
    if not re.fullmatch(r"\[[0-9A-Fa-f:.%\w]+\]|[\w.%-]*", name):
        raise bad_url(url, "the host name has a character that host names cannot have")


def bad_url(url: str, why: str) -> InvalidSettings:
    return InvalidSettings(f"The database URL {display_url(url)!r} cannot be used: {why}.")


def is_secret(parameter: str) -> bool:
    """Whether a parameter of a database URL is a secret: the password, or that of the key of a client certificate.

    >>> is_secret("sslpassword"), is_secret("sslkey")
    (True, False)
    """
    return parameter.lower() in ("password", "sslpassword", "oauth_client_secret")


def passwords(url: str) -> list[str]:
    """The secrets in a database URL, as they are written there and decoded."""
    try:
        parts = urlsplit(url)
        found = [parts.password or "", *(each for name, each in parse_qsl(parts.query) if is_secret(name))]
    except ValueError:
        return []
    return [each for secret in found if secret for each in {secret, unquote(secret)}]


def display_url(url: str) -> str:
    """The URL for people: passwords masked, also in malformed URLs; it may mask too much, but never too little."""
    scheme, separator, rest = url.partition("://")
    if separator and "@" in rest:
        authority, slash, tail = rest.partition("/")
        if "@" not in authority or "@" in tail.partition("?")[0]:
            # The password may have a slash in it: all text up to the last @ may be part of it.
            authority, slash, tail = rest, "", ""
        user, _, host = authority.rpartition("@")
        name, colon, _ = user.partition(":")
        rest = f"{name}{colon}{'***' if colon else ''}@{host}{slash}{tail}"
    return CONTROL.sub("?", SECRET.sub(r"\1***", f"{scheme}{separator}{rest}"))
