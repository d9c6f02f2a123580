"""What happens around each call of a `def` handler, in the thread that calls it.

Frameworks bind connections to threads, and a handler's threads live as long as their worker. A connection that the
database has closed in the meantime would fail every message that uses it. Django closes old connections around each
request; the same is done here around each call. For other frameworks an application has hooks: `@app.around_call`.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeAlias

Around: TypeAlias = Callable[[], AbstractContextManager[object]]


def called(function: Callable[[], Any], hooks: Sequence[Around]) -> Any:
    """Call a handler's function inside the application's hooks. What a hook raises is a failure of the message."""
    has_django = "django.db" in sys.modules
    if has_django:
        close_old_connections()
    try:
        if not hooks:
            return function()
        with ExitStack() as stack:
            for hook in hooks:
                stack.enter_context(hook())
            return function()
    finally:
        if has_django:
            close_old_connections()


def close_old_connections() -> None:
    """Close this thread's Django connections that are too old, have failed, or were closed by the database.

    Never one inside an atomic block: the owner of the block ends that.
    """
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        return
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block or connection.connection is None:
            continue
        connection.close_if_unusable_or_obsolete()  # by CONN_MAX_AGE, CONN_HEALTH_CHECKS and its errors
        if connection.connection is not None and _has_ended(connection.connection):
            connection.close()


def _has_ended(connection: Any) -> bool:
    """An idle connection gets no data: if there is something to read, the server has closed it."""
    fileno = getattr(connection, "fileno", None)
    if fileno is None:  # SQLite: a file is not closed by a server
        return False
    try:
        poll = select.poll()
        poll.register(fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except Exception:  # the driver's own: the connection is closed
        return True
