"""Whose KeyboardInterrupt it is: that of somebody who pressed Ctrl+C, or one that the user's code has raised.

Ctrl+C must end the worker. A KeyboardInterrupt of the code is a failure of its message, like any other exception. A
worker process handles SIGINT itself, and Python raises it in the main thread only; so it is not known only in the main
thread of somebody else's process, where it is taken for Ctrl+C.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def is_ctrl_c(error: BaseException) -> bool:
    """Whether it may be Ctrl+C. To be asked in the thread in which it was raised."""
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    # That of loop.add_signal_handler does nothing: the loop calls the function later.
    return callable(handler) and getattr(handler, "__module__", None) != "asyncio.unix_events"


def contained(function: Callable[[], T]) -> T:
    """Call it in a thread. The loop that waits for the result would end with a KeyboardInterrupt."""
    try:
        return function()
    except KeyboardInterrupt as error:
        raise _ordinary(error) from error


async def acontained(call: Callable[[], Awaitable[T]]) -> T:
    """Await it in a task. The loop of a task ends with a KeyboardInterrupt or SystemExit."""
    try:
        return await call()
    except (KeyboardInterrupt, SystemExit) as error:
        if is_ctrl_c(error):
            raise
        raise _ordinary(error) from error


def _ordinary(error: BaseException) -> Exception:
    return RuntimeError(f"the code raised {type(error).__name__}")
