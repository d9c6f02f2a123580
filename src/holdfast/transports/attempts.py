"""The connection attempts of an application, which its connections to one broker share."""

from __future__ import annotations

from ..rules.reconnect import Attempts


class Brokers:
    """One `Attempts` for each broker, for all destinations and inboxes there."""

    def __init__(self) -> None:
        self._known: list[tuple[object, Attempts]] = []

    def attempts(self, connector: object) -> Attempts:
        """Of this connector, or of one with the same settings."""
        for known, attempts in self._known:
            if known is connector or known == connector:
                return attempts
        self._known.append((connector, Attempts()))
        return self._known[-1][1]
