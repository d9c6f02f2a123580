"""What the code of an instance shows to people: its status and its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..bodies.codec import encode
from ..errors import UsageError
from ..settings import Settings
from .attributes import checked

STATUS_BYTES = 16 * 1024


class Display:
    """`status_text` and `attributes_text` are JSON: what was set in this turn; None: nothing was."""

    __slots__ = ("_limits", "attributes", "attributes_text", "status", "status_text")

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self.status: Any = None
        self.attributes: dict[str, str] = {}
        self.begin_turn()

    def begin_turn(self) -> None:
        self.status_text: str | None = None
        self.attributes_text: str | None = None

    def set_status(self, value: Any, *, is_new: bool) -> None:
        """`is_new`: the turn in which it is set is not stored yet."""
        text = encode(value, self._limits)
        if len(text) > STATUS_BYTES:
            raise UsageError(
                f"flow.status has {len(text):,} bytes of JSON, and {STATUS_BYTES:,} are allowed: "
                "keep it to what people read."
            )
        self.status = value
        if is_new:
            self.status_text = text

    def set_attributes(self, value: Mapping[str, str], *, is_new: bool) -> None:
        self.attributes = checked(value) or {}
        if is_new:
            self.attributes_text = encode(self.attributes, self._limits)
