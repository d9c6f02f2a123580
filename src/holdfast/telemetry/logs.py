"""The logs of Holdfast: each record has the name of its event and its fields, and none has a payload.

A call names the event first: `log.warning("lease.lapsed", "A lease of %(queue)s lapsed", queue=...)`. The fields fill
the text and are set on the record (`extra`), so that any formatter can show them; ours writes JSON. docs/telemetry.md
lists every event, and a test checks that. An exception among the fields becomes a line with its secrets masked.

Fields come from messages, so they may hold anything. In the text of a record they are one line that cannot control a
terminal, whichever formatter writes it; the fields themselves stay as they are.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, Literal

import msgspec

from ..errors import InvalidSettings
from ..model.text import safe_json, visible
from ..rules.describing import describe
from ..rules.redact import redact

Kind = Literal["text", "json"]
KIND_VARIABLE, LEVEL_VARIABLE = "HOLDFAST_LOG", "HOLDFAST_LOG_LEVEL"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
ERROR_CHARS = 500
# Libraries that write up to ten lines, with tracebacks, for each attempt to connect. Relays and inboxes log when a
# connection is lost and why.
CHATTY = ("pika",)


class Log:
    """A logger of the standard library that takes an event and fields."""

    def __init__(self, name: str) -> None:
        self.logger = logging.getLogger(name)
        self.is_enabled = self.logger.isEnabledFor  # whether a level is enabled: called once for each message

    def info(self, event: str, text: str, /, **fields: Any) -> None:
        self.log(logging.INFO, event, text, fields)

    def warning(self, event: str, text: str, /, *, traceback: str | None = None, **fields: Any) -> None:
        self.log(logging.WARNING, event, text, fields, traceback=traceback)

    def error(self, event: str, text: str, /, *, traceback: str | None = None, **fields: Any) -> None:
        self.log(logging.ERROR, event, text, fields, traceback=traceback)

    def critical(
        self, event: str, text: str, /, *, exc_info: BaseException | None = None, **fields: Any
    ) -> None:
        self.log(logging.CRITICAL, event, text, fields, exc_info)

    def log(
        self,
        level: int,
        event: str,
        text: str,
        fields: Mapping[str, Any],
        exc_info: BaseException | None = None,
        traceback: str | None = None,
    ) -> None:
        """`traceback`: as text, already masked. Formatters show it where they show those of exceptions."""
        if self.logger.isEnabledFor(level):
            known = {name: _plain(value) for name, value in fields.items() if value is not None}
            # A name in the text without a field is shown as None.
            filled = {**dict.fromkeys(fields), **{name: _shown(value) for name, value in known.items()}}
            # Logging would count an empty mapping as an argument too many.
            arguments = (filled,) if filled else ()
            extra = {"event": event, **known}
            if traceback is None:
                self.logger.log(level, text, *arguments, extra=extra, stacklevel=3, exc_info=exc_info)
                return
            name, (file, line, function, _) = self.logger.name, self.logger.findCaller(stacklevel=3)
            record = self.logger.makeRecord(name, level, file, line, text, arguments, None, function, extra)
            record.exc_text = traceback
            self.logger.handle(record)


def _plain(value: Any) -> Any:
    match value:
        case BaseException():
            return redact(describe(value, ERROR_CHARS))
        case IntEnum() | StrEnum():
            return value.value
        case bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(each) for each in value]
    return str(value)


def _shown(value: Any) -> Any:
    return visible(value) if isinstance(value, str) else value


class TextFormatter(logging.Formatter):
    """One line for each record; the lines of a traceback are indented, so that none looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = visible(record.getMessage())
        record.asctime = self.formatTime(record)
        lines = [self.formatMessage(record)]
        if record.exc_info:
            lines += redact(self.formatException(record.exc_info)).splitlines()
        elif record.exc_text:
            lines += record.exc_text.splitlines()
        if record.stack_info:
            lines += self.formatStack(record.stack_info).splitlines()
        return "\n    ".join([lines[0], *map(visible, lines[1:])])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, message, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            fields["exception"] = redact(self.formatException(record.exc_info))
        elif record.exc_text:
            fields["traceback"] = record.exc_text
        return safe_json(msgspec.json.encode(line | fields, enc_hook=str).decode())


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def configure(kind: str | None = None, level: str | None = None) -> None:
    """Set up logging for a worker process, if the application has not done it.

    Missing arguments come from HOLDFAST_LOG (text or json) and HOLDFAST_LOG_LEVEL. They are stored there for the
    processes that this one starts. If an application has given the root logger a handler, it is kept, unless a kind is
    given.
    """
    asked = kind or os.environ.get(KIND_VARIABLE) or None
    level_asked = level or os.environ.get(LEVEL_VARIABLE) or None
    level = (level_asked or "WARNING").upper()
    if asked not in (None, "text", "json"):
        raise InvalidSettings(f"Logs are written as text or json, not as {asked!r}: {KIND_VARIABLE}, --log.")
    if level not in LEVELS:
        raise InvalidSettings(f"There is no log level {level!r}: one of {', '.join(LEVELS)}.")
    if level_asked is not None:
        os.environ[LEVEL_VARIABLE] = level
    if asked is not None:
        os.environ[KIND_VARIABLE] = asked
    ours, root = logging.getLogger("holdfast"), logging.getLogger()
    if level_asked is not None or not root.handlers:
        ours.setLevel(level)
    if root.handlers and asked is None:
        return
    for chatty in CHATTY:
        if logging.getLogger(chatty).level == logging.NOTSET:
            logging.getLogger(chatty).setLevel(logging.CRITICAL)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if asked == "json" else TextFormatter(TEXT))
    if root.handlers:
        ours.handlers, ours.propagate = [handler], False
    else:
        root.addHandler(handler)


@contextmanager
def silent(logger: str) -> Iterator[None]:
    """Inside the block, drop the records of another library's logger, not of its children. Blocks may overlap."""

    def none(_: logging.LogRecord) -> bool:
        return False

    found = logging.getLogger(logger)
    found.addFilter(none)
    try:
        yield
    finally:
        found.removeFilter(none)


@contextmanager
def hushed(logger: str, below: int) -> Iterator[None]:
    """Inside the block, a logger and its children log nothing below this level."""
    found = logging.getLogger(logger)
    before = found.level
    found.setLevel(below)
    try:
        yield
    finally:
        found.setLevel(before)


def announce(event: str, text: str, **fields: Any) -> None:
    """Write a line to standard error at any log level, for messages that a command shows once.

    JSON where logs are JSON.
    """
    line = text % {name: _shown(value) for name, value in fields.items()}
    if os.environ.get(KIND_VARIABLE) == "json":
        record = logging.makeLogRecord(
            {"name": "holdfast", "levelno": logging.INFO, "levelname": "INFO", "msg": line, "event": event}
            | {name: _plain(value) for name, value in fields.items()}
        )
        line = JsonFormatter().format(record)
    print(line, file=sys.stderr, flush=True)
