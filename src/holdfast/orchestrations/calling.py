"""The headers of the message that carries a call: who waits for its answer, and what this call alone asks for."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model.replies import HEADER as REPLY
from ..model.replies import ON_DEAD, Reply
from ..rules import overrides
from ..rules.retry import policy
from .declared import Activity
from .host import Options


def call_headers(reply: Reply, options: Options, declared: Activity[..., Any] | None) -> str:
    """As JSON text. What the activity itself declares is not repeated."""
    found = {REPLY: reply.text()}
    if declared is not None and declared.on_dead == "wait":
        found[ON_DEAD] = "wait"
    known = None if declared is None else declared.options
    retry = options.retry if known is None or options.retry != known.retry else None
    timeout = options.timeout if known is None or options.timeout != known.timeout else None
    if retry is not None or timeout is not None:
        found[overrides.HEADER] = overrides.written(None if retry is None else policy(retry), timeout)
    return msgspec.json.encode(found).decode()
