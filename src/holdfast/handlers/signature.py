"""The parameters of a function: read from its annotations once, when it is declared."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from ..bodies import codec
from ..errors import InvalidSettings
from .context import Context


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function takes its message."""

    is_async: bool
    takes_body: bool
    context: str | None  # the name of the parameter that takes a Context
    decode: Callable[[str], Any]


def signature(function: Callable[..., Any], queue: str, batch: int) -> Signature:
    """How this function takes its message; InvalidSettings if it cannot be a handler."""
    body, context = _parameters(function, queue, batch > 0)
    decode = codec.decoder_for(Any if body is _NOTHING else _element(body) if batch else body)
    return Signature(_is_async(function), body is not _NOTHING, context, decode)


_NOTHING = object()


def _is_async(function: Callable[..., Any]) -> bool:
    # A decorator or the function inside it may be async; the call is awaited if any of them is.
    inner = inspect.unwrap(function)
    called = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
    return any(inspect.iscoroutinefunction(each) for each in (function, inner, called))


def _parameters(function: Callable[..., Any], queue: str, batch: bool) -> tuple[Any, str | None]:
    """The annotation of the body, and the name of the parameter that takes a context."""
    try:
        hints = get_type_hints(function)
    except Exception as error:  # the user must fix an annotation that cannot be resolved
        raise InvalidSettings(f"Handler {queue!r}: its annotations cannot be resolved: {error}") from error
    body: Any = _NOTHING
    context = None
    context_first = False
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is Context or hint == list[Context]:
            if (hint is Context) is batch:
                wanted = "list[Context]" if batch else "Context"
                raise InvalidSettings(f"Handler {queue!r}: annotate {parameter.name!r} as {wanted}.")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise InvalidSettings(
                    f"Handler {queue!r}: {parameter.name!r} is given by its name: remove the `/` after it."
                )
            context = parameter.name
            context_first = body is _NOTHING and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        elif body is _NOTHING and parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            if context_first:
                raise InvalidSettings(
                    f"Handler {queue!r}: the body comes first: put {parameter.name!r} before {context!r}."
                )
            body = hint
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise InvalidSettings(
                f"Handler {queue!r}: parameter {parameter.name!r} would get no value; "
                "a handler takes the body first and, annotated `ctx: Context`, its context."
            )
    if batch and (
        body is _NOTHING or (body is not Any and typing.get_origin(body) is not list and body is not list)
    ):
        raise InvalidSettings(
            f"Handler {queue!r}: with batch= it is called with a list of bodies; annotate it so."
        )
    return body, context


def _element(annotation: Any) -> Any:
    arguments = typing.get_args(annotation)
    return arguments[0] if arguments else Any
