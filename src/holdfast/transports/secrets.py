"""Secrets that settings name and never show: read from the environment or a file when they are needed.

    RabbitMQ("amqp://shop@broker/", password=Secret("RABBIT_PASSWORD"))
    RabbitMQ("amqp://shop@broker/", password=Secret.file("/run/secrets/rabbit"))

They are read each time a connection is opened, so that a secret can be changed without a restart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidSettings

FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """The name of an environment variable that holds a secret. `Secret.file(path)` reads a file instead."""

    name: str
    is_file: bool = False

    def __post_init__(self) -> None:
        if not self.name or "\0" in self.name:
            raise InvalidSettings(
                "A secret is named by an environment variable or a file, and this has no name."
            )
        if not self.is_file and not self.name.replace("_", "").isalnum():
            raise InvalidSettings(
                "Secret(...) takes the name of an environment variable, of letters, digits and _ only. "
                "Put the secret itself into such a variable, or into a file: Secret.file(path)."
            )

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Secret:
        """A secret in a file; a line break at its end is ignored."""
        return cls(os.fspath(path), is_file=True)

    def reveal(self) -> str:
        """The secret itself. Do not keep it, log it or put it into an error."""
        return self._of_file() if self.is_file else self._of_environment()

    def _of_environment(self) -> str:
        value = os.environ.get(self.name, "")
        if not value:
            raise InvalidSettings(
                f"The secret in the environment variable {self.name} is not there: set it for this process."
            )
        return value

    def _of_file(self) -> str:
        try:
            with Path(self.name).open("rb") as file:
                content = file.read(FILE_BYTES + 1)
        except OSError as error:
            raise InvalidSettings(
                f"The secret in the file {self.name} cannot be read ({error.strerror or type(error).__name__}): "
                "check the path and who may read it."
            ) from None
        try:
            value = content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            value = ""
        if not value or len(content) > FILE_BYTES:
            raise InvalidSettings(f"The secret in the file {self.name} is empty, too long or not UTF-8 text.")
        return value


def revealed(value: str | Secret | None) -> str | None:
    """The value of a setting that may be a secret or plain text."""
    return value.reveal() if isinstance(value, Secret) else value
