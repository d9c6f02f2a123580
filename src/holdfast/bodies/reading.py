"""Reads a stored body as the type that a handler's parameter is annotated with."""

from __future__ import annotations

import inspect as inspection
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_args

import msgspec

from ..errors import InvalidSettings
from ..model.message import Reason
from .checking import PLAIN, WRITER, path_of, unread, without_values


class Unreadable(Exception):
    """A stored body that a handler cannot receive: broken JSON, or not of the shape that it asks for."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason = reason
        super().__init__(text)


def decoder_for(annotation: Any = Any) -> Callable[[str], Any]:
    """A function that decodes the stored text to the annotated type of a handler's parameter, or InvalidSettings.

    >>> decoder_for(list[int])("[1,2]")
    [1, 2]
    """
    try:
        return cached_decoder(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return make_decoder(annotation)


def make_decoder(annotation: Any) -> Callable[[str], Any]:
    if annotation in (Any, object, inspection.Parameter.empty):
        return read_plain
    if annotation is bytes:
        return read_bytes
    try:
        if mentions_model(annotation):
            return model_reader(annotation)
        refuse_strangers(annotation)
        decoder = msgspec.json.Decoder(annotation, dec_hook=read_model)
    except Exception as error:  # pydantic and the classes themselves may raise too when they are inspected
        why = str(error).partition("\n")[0]
        raise InvalidSettings(
            f"A body cannot be read as {annotation!r}: {why}. Annotate the parameter with dict, a dataclass, a "
            "msgspec Struct, a pydantic model or a TypedDict, or leave the annotation out."
        ) from error

    def read(text: str) -> Any:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError as error:
            raise Unreadable(Reason.VALIDATION_FAILURE, without_values(str(error))) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Unreadable(Reason.SERIALIZATION_ERROR, unread(error)) from None

    return read


cached_decoder = lru_cache(maxsize=1024)(make_decoder)


def read_plain(text: str) -> Any:
    try:
        return PLAIN.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Unreadable(Reason.SERIALIZATION_ERROR, unread(error)) from None


class _Foreign(msgspec.Struct, forbid_unknown_fields=True):
    data_base64: bytes


FOREIGN = msgspec.json.Decoder(_Foreign | bytes)


def read_bytes(text: str) -> bytes:
    """Bytes that came from another system (`encode_foreign`), or that are in a text as base64."""
    try:
        found = FOREIGN.decode(text)
    except msgspec.ValidationError as error:
        raise Unreadable(Reason.VALIDATION_FAILURE, without_values(str(error))) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Unreadable(Reason.SERIALIZATION_ERROR, unread(error)) from None
    return found.data_base64 if isinstance(found, _Foreign) else found


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "__pydantic_validator__")


def mentions_model(annotation: Any) -> bool:
    return is_model(annotation) or any(map(mentions_model, get_args(annotation)))


def model_reader(annotation: Any) -> Callable[[str], Any]:
    """If the annotation itself names a pydantic model, pydantic decodes the whole body. So unions of models work."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(annotation)

    def read(text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            broken = first["type"] in ("json_invalid", "string_unicode") and not first["loc"]
            reason = Reason.SERIALIZATION_ERROR if broken else Reason.VALIDATION_FAILURE
            raise Unreadable(reason, f"{first['msg']} - at `{path_of(list(first['loc']))}`") from None
        except UnicodeError as error:
            raise Unreadable(Reason.SERIALIZATION_ERROR, unread(error)) from None

    return read


def read_model(cls: Any, value: Any) -> Any:
    """msgspec's hook: a pydantic model inside a dataclass or Struct."""
    try:
        return model_reader_of(cls)(WRITER.encode(value).decode())
    except Unreadable as error:
        raise ValueError(str(error)) from None


model_reader_of = lru_cache(maxsize=1024)(model_reader)


def refuse_strangers(annotation: Any) -> None:
    """msgspec accepts any class and calls the hook at the first message; a handler must be refused earlier."""
    seen: set[int] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(annotation)]
    while waiting:
        info = waiting.pop()
        if id(info) in seen:
            continue
        seen.add(id(info))
        if isinstance(info, msgspec.inspect.CustomType) and not is_model(info.cls):
            raise TypeError(f"{info.cls!r} cannot be read from JSON")
        for name in info.__struct_fields__:
            each = getattr(info, name)
            for part in each if isinstance(each, tuple) else (each,):
                if isinstance(part, msgspec.inspect.Field | msgspec.inspect.Type):
                    waiting.append(part)
