"""What may not be used in an orchestration, by name, with what to use instead. One table; the docs are made of it.

There is no sandbox. What would make replay differ is refused where it happens: functions of asyncio by the frames that
call our event loop, methods of the loop that it does not have, and the rest by an audit hook of the interpreter. The
hook acts only while the loop of an instance is the running one of the thread. Reading files works: tracebacks, lazy
imports and time zones read them. Clocks, dice and the environment cannot be refused; `advice` finds them in the code.
"""

from __future__ import annotations

import asyncio
import dis
import os
import sys
import threading
from asyncio import events
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from ..errors import UsageError
from ..store.statement import DATABASE


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that may not be used. `functions` are asyncio's, `methods` the loop's, `events` the interpreter's."""

    what: str
    why: str
    instead: str
    functions: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    events: tuple[str, ...] = ()

    def error(self) -> UsageError:
        return UsageError(
            f"{self.what} cannot be used in an orchestration: {self.why}. Use {self.instead} instead."
        )


ACTIVITY = "an activity"

REFUSALS = (
    Refusal(
        "asyncio.wait_for",
        "its order of starts differs between Python versions",
        "`async with asyncio.timeout(...)`",
        functions=("wait_for",),
    ),
    Refusal(
        "asyncio.wait",
        "it returns sets, whose order differs from run to run",
        "flow.first(...), asyncio.gather or asyncio.TaskGroup",
        functions=("wait", "_wait"),
    ),
    Refusal(
        "asyncio.as_completed",
        "it starts what it is given in the order of memory addresses",
        "flow.as_done(...) or flow.first(...)",
        functions=("as_completed", "_wait_for_one", "_AsCompletedIterator"),
    ),
    Refusal(
        "A thread (threading.Thread, asyncio.to_thread, run_in_executor)",
        "what it does is not recorded, and when it ends is chance",
        ACTIVITY,
        methods=("run_in_executor", "call_soon_threadsafe", "set_default_executor", "shutdown_default_executor"),
        events=("_thread.start_new_thread", "_thread.start_joinable_thread"),
    ),
    Refusal(
        "A connection (a socket, a database)",
        "what it answers is not recorded",
        ACTIVITY,
        methods=(
            "create_connection", "create_server", "create_unix_connection", "create_unix_server", "start_tls",
            "sendfile", "create_datagram_endpoint", "connect_accepted_socket", "getaddrinfo", "getnameinfo",
            "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto",
            "sock_connect", "sock_accept", "sock_sendfile", "add_reader", "remove_reader", "add_writer",
            "remove_writer", "connect_read_pipe", "connect_write_pipe",
        ),
        events=("socket.", "sqlite3.connect"),
    ),
    Refusal(
        "A call of the application (app.publish, app.request, app.orchestrations, app.operations)",
        "what it stores would be stored again by every replay, and what it reads is not recorded",
        f"{ACTIVITY}, or for another orchestration `await other(...)` or `other.start(...)`",
        events=(DATABASE,),
    ),
    Refusal(
        "Another process (subprocess, os.system, os.fork)",
        "it would be started again by every replay",
        ACTIVITY,
        methods=("subprocess_shell", "subprocess_exec"),
        events=("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
                "pty.spawn"),
    ),
    Refusal(
        "A file opened for writing",
        "it would be written again by every replay",
        ACTIVITY,
        events=("open",),
    ),
    Refusal(
        "time.sleep",
        "it stops every other instance of the worker",
        "`await asyncio.sleep(...)` or `await flow.sleep(...)`",
        events=("time.sleep",),
    ),
    Refusal(
        "A signal handler",
        "signals belong to the process",
        "flow.signal(...) for signals to an instance",
        methods=("add_signal_handler", "remove_signal_handler"),
    ),
    Refusal(
        "An event loop of its own (asyncio.run, run_until_complete)",
        "the instance has one already, which is replayed",
        "`await`",
        methods=("run_forever", "run_until_complete", "stop", "close", "shutdown_asyncgens"),
    ),
    Refusal(
        "A task factory (asyncio.eager_task_factory)",
        "tasks must start in the order of their creation",
        "asyncio.create_task as it is",
        methods=("set_task_factory",),
    ),
)  # fmt: skip

METHODS = {method: refusal for refusal in REFUSALS for method in refusal.methods}
_FUNCTIONS = {function: refusal for refusal in REFUSALS for function in refusal.functions}
_EVENTS = {event: refusal for refusal in REFUSALS for event in refusal.events if not event.endswith(".")}
_PREFIXES = {event: refusal for refusal in REFUSALS for event in refusal.events if event.endswith(".")}
_TASKS = asyncio.tasks.__file__
# Modules of asyncio between a refused function and our loop.
_BETWEEN = frozenset(
    str(Path(_TASKS).parent / name) for name in ("tasks.py", "timeouts.py", "queues.py", "futures.py")
)

# Where event loops are made and run.
_RUNNING = frozenset(str(Path(_TASKS).parent / name) for name in ("runners.py", "base_events.py"))


def refuse_callers(frame: FrameType | None) -> None:
    """Raise if the loop was called by a function of asyncio that is refused. `frame`: the caller's."""
    for _ in range(8):
        if frame is None or frame.f_code.co_filename not in _BETWEEN:
            return
        code = frame.f_code
        if code.co_filename == _TASKS and (refusal := _refused(code)) is not None:
            raise refusal.error()
        frame = frame.f_back


def _refused(code: CodeType) -> Refusal | None:
    for part in code.co_qualname.split("."):
        if part in _FUNCTIONS:
            return _FUNCTIONS[part]
    return None


# --- The audit hook -----------------------------------------------------------------------------------------

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Files that these write are not the instance's: a log file that is rotated, a compiled module that is cached.
EXEMPT = ("logging", "importlib", "warnings", "linecache", "traceback", "asyncio.log")


_installing = threading.Lock()
_installed = False


def audit() -> None:
    """Look at what the process does from here on. A hook cannot be removed, so there is one, which asks the loop."""
    global _installed
    if not _installed:
        with _installing:
            if not _installed:
                _install()
                _installed = True


def _install() -> None:
    sys.addaudithook(_audit)
    if sys.version_info < (3, 12):  # starts of threads are not audited there
        begin: Any = threading._start_new_thread  # type: ignore[attr-defined]

        def start(*arguments: Any) -> Any:
            _audit("_thread.start_new_thread", arguments)
            return begin(*arguments)

        threading._start_new_thread = start  # type: ignore[attr-defined]


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS and event[:7] not in _PREFIXES:
        return
    if not getattr(events._get_running_loop(), "refuses", False):
        return
    if event == "open" and not _writes(arguments):
        return
    if _is_exempt(sys._getframe(1)):
        return
    if event == "socket.__new__" and _makes_a_loop(sys._getframe(1)):
        raise METHODS["run_forever"].error()
    raise (_EVENTS.get(event) or _PREFIXES[event[:7]]).error()


def _makes_a_loop(frame: FrameType | None) -> bool:
    """Whether somebody is making an event loop, which begins with a pair of sockets."""
    for _ in range(12):
        if frame is None:
            return False
        if frame.f_code.co_filename in _RUNNING:
            return True
        frame = frame.f_back
    return False


def in_our_words(error: BaseException) -> BaseException:
    """The refusal, where asyncio itself says that no loop can be run inside another; any other error as it is."""
    place = error.__traceback__ if type(error) is RuntimeError else None
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or place.tb_frame.f_code.co_filename not in _RUNNING:
        return error
    refusal = METHODS["run_forever"].error()
    refusal.__cause__ = error
    return refusal


def _writes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(each in mode for each in "wax+")
    return bool(flags & WRITES) if isinstance(flags, int) else False


def _is_exempt(frame: FrameType | None) -> bool:
    for _ in range(100):
        if frame is None:
            return False
        name = str(frame.f_globals.get("__name__", ""))
        if name.split(".")[0] in EXEMPT or name == "asyncio.log":
            return True
        if name.startswith("holdfast.orchestrations"):
            return False
        frame = frame.f_back
    return False


# --- Advice on code -----------------------------------------------------------------------------------------

_ADVICE: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        (("time", each) for each in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")),
        "flow.now",
    ),
    **dict.fromkeys(
        (("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")), "flow.now"
    ),
    **dict.fromkeys((("uuid", "uuid1"), ("uuid", "uuid4"), ("uuid", "uuid7")), "flow.uuid()"),
    **dict.fromkeys((("os", "environ"), ("os", "getenv")), "the input, or flow.once(...)"),
    **dict.fromkeys((("os", "urandom"), ("secrets", "*")), "an activity, or flow.once(...)"),
    ("random", "*"): "flow.random",
    ("time", "sleep"): "`await asyncio.sleep(...)`",
}


def advice(function: Callable[..., Any]) -> list[str]:
    """What in the code of an orchestration may differ in replay: a line for each use of a clock, dice or environment.

    Only what is named in the function itself is found, not what other functions do.
    """
    code = getattr(function, "__code__", None)
    names = getattr(function, "__globals__", {})
    return [] if code is None else list(dict.fromkeys(_advice_on(code, names)))


def _advice_on(code: CodeType, names: dict[str, Any]) -> Iterator[str]:
    owner: Any = None
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            owner = names.get(name)
            where = getattr(owner, "__module__", None)
            if callable(owner) and where and (found := _instead(where, getattr(owner, "__name__", ""))):
                yield _line(code, f"{where}.{name}", found)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if owner is not None and (found := _instead(getattr(owner, "__name__", ""), name)):
                yield _line(code, f"{owner.__name__}.{name}", found)
            inner = getattr(owner, name, None) if isinstance(owner, ModuleType) else None
            owner = inner if isinstance(inner, type | ModuleType) else None
        elif isinstance(name, CodeType):
            yield from _advice_on(name, names)


def _instead(owner: str, name: str) -> str | None:
    return _ADVICE.get((owner, name)) or (_ADVICE.get((owner, "*")) if name != "Random" else None)


def _line(code: CodeType, what: str, instead: str) -> str:
    return f"{code.co_name}, line {code.co_firstlineno} ff.: {what} differs in replay; use {instead}."


def never_due() -> UsageError:
    """For a timer at a time that is no date: infinite, not a number, or after the year 9999."""
    return UsageError(
        "A timer was asked for that is never due: give a time in seconds that a date can hold. To wait without a limit "
        "leave the timeout out, or wait for a signal."
    )
