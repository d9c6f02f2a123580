"""Where a RabbitMQ is: its URL, taken apart and checked. The password in it is never shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ...errors import InvalidSettings
from ...model.names import CONTROL

FORM = "amqp://user@host:5672/vhost, or amqps:// for TLS"


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    user: str
    vhost: str
    has_tls: bool
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """For people, without the password."""
        return f"{'amqps' if self.has_tls else 'amqp'}://{self.user}@{self.host}:{self.port}/{self.vhost.lstrip('/')}"

    @classmethod
    def of(cls, url: object) -> Address:
        """From a URL, or InvalidSettings, which never quotes it: a password may stand anywhere in a broken one."""
        if not isinstance(url, str):
            raise InvalidSettings(f"RabbitMQ's URL must be text and is a {type(url).__name__}: {FORM}.")
        if CONTROL.search(url) or any(each.isspace() for each in url):
            raise _bad("it has blanks or control characters in it")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _bad(
                "it cannot be taken apart; a / @ : or # in a password is written as %2F, %40, %3A, %23"
            ) from None
        if parts.scheme not in ("amqp", "amqps"):
            raise _bad("it does not begin with amqp:// or amqps://")
        if not host:
            raise _bad("it names no host")
        if parts.query or parts.fragment:
            raise _bad(
                "it has parameters behind ? or #, and takes none; give settings to RabbitMQ(...) by name"
            )
        if parts.path.count("/") > 1:
            raise _bad("its path is the virtual host, in which a / is written as %2F")
        has_tls = parts.scheme == "amqps"
        vhost = unquote(parts.path[1:]) or "/"
        password = unquote(parts.password) if parts.password is not None else None
        user = unquote(parts.username) if parts.username else "guest"
        return cls(host, port or (5671 if has_tls else 5672), user, vhost, has_tls, password)


def _bad(why: str) -> InvalidSettings:
    return InvalidSettings(
        f"RabbitMQ's URL cannot be used: {why}. Write {FORM}. (It is not shown: it may hold a password.)"
    )
