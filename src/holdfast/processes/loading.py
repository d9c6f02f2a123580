"""How an application is found by its name: for the command line, worker processes and the exporter."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import HoldfastError, UsageError
from ..rules.describing import describe
from ..rules.redact import redact

if TYPE_CHECKING:
    from ..app import Holdfast

ERROR_CHARS = 500


def load_app(name: str) -> Holdfast:
    """The application that `module:attribute` names, `app` if no attribute is given. The current folder comes first."""
    module, separator, attribute = name.partition(":")
    if not module or (separator and not attribute):
        raise UsageError(f"{name!r} does not name an application: write MODULE:APP, such as shop:app.")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise UsageError(
                f"There is no module {module} in {os.getcwd()} or where Python looks for modules."
            ) from None
        raise broken(module, error) from error
    except Exception as error:
        raise broken(module, error) from error
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UsageError(
                f"Module {module} has no {attribute or 'app'}: write MODULE:APP, such as shop:app."
            )
    from ..app import Holdfast

    if not isinstance(found, Holdfast):
        raise UsageError(f"{name} is a {type(found).__name__} and not a Holdfast application.")
    return found


def broken(module: str, error: Exception) -> HoldfastError:
    """Why a module cannot be imported, with the traceback of the user's code. Our own frames are left out."""
    trace = error.__traceback__
    while trace is not None and _imports(trace):
        trace = trace.tb_next
    where = error.with_traceback(trace)
    lines = traceback.format_exception(type(where), where, trace, chain=False)
    text = redact(describe(error, ERROR_CHARS))
    made = HoldfastError(f"Module {module} cannot be loaded: {text}")
    made.details = tuple(redact("".join(lines).rstrip()).splitlines())
    return made


def _imports(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_code.co_filename
    return name == __file__ or "importlib" in name
