"""Text, dicts and messages of protocol buffers as the dataclasses of `config`: strict, with line and suggestion."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from penstock.core.narrowing import is_mapping
from penstock.errors import DataError, suggestion
from penstock_chess.lczero import messages
from penstock_chess.lczero.config import DataLoaderConfig, StageControlRequest
from penstock_chess.lczero.textproto import Entry, Text, Word, parse

M = TypeVar("M")

TRUTH = {"true": True, "t": True, "True": True, "1": True, "false": False, "f": False, "False": False, "0": False}
FLOAT = 2  # the type of a field of 32-bit floats, in descriptors of protocol buffers
NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def load_config(config: object) -> DataLoaderConfig:
    """Return the configuration of a loader from text, a dict, a protocol buffer message, its bytes, or unchanged.

    For a whole training configuration, with a field `data_loader`, only that field is read. Bytes encode a
    `DataLoaderConfig`.
    """
    where = "the configuration"
    if isinstance(config, str):
        entries = parse(config)
        inner = [entry for entry in entries if entry.name == "data_loader"]
        config = inner[0].value if len(inner) == 1 else entries
    elif is_mapping(config) and "data_loader" in config:
        config = config["data_loader"]
    elif is_protobuf(config):
        message = _message(messages.CONFIG, config, where)
        config = {str(about.name): value for about, value in message.ListFields()}.get("data_loader", message)
    return bind(DataLoaderConfig, config, where)


def load_request(request: object) -> StageControlRequest:
    """Return a control request from text, a dict, a protocol buffer message, its bytes, or as it is."""
    where = "the request"
    if is_protobuf(request):
        request = _message(messages.REQUEST, request, where)
    return bind(StageControlRequest, request, where)


def is_protobuf(given: object) -> bool:
    """Return whether something is a protocol buffer message, or bytes, which can be nothing else here."""
    return isinstance(given, bytes) or hasattr(given, "ListFields")


def _message(name: str, given: Any, where: str) -> Any:
    """The message of bytes, or the message itself, once it is known to have no field without a name here."""
    if isinstance(given, bytes):
        return messages.parse_message(name, given, where)
    if hasattr(given, "DESCRIPTOR"):
        messages.refuse_unknown(given, where)
    return given


def bind(message: type[M], given: object, where: str = "the configuration") -> M:
    """Return a `message` (a dataclass of `config`) from any input that `load_config` accepts."""
    if isinstance(given, message):
        return given
    entries: dict[str, list[tuple[object, str]]] = {}
    types_of = _types(message)
    for name, value, place in _entries(given, where, types_of):
        if name not in types_of:
            meant = suggestion(name, types_of)
            raise DataError(f"expected one of {sorted(types_of)}, got {name!r}{meant} - at {place}")
        entries.setdefault(name, []).append((value, place))
    arguments: dict[str, Any] = {}
    for name, values in entries.items():
        one, is_repeated = types_of[name]
        if not is_repeated and len(values) > 1:
            raise DataError(f"expected {name!r} once, got it {len(values)} times - at {values[-1][1]}")
        least = next(f.metadata.get("least") for f in dataclasses.fields(message) if f.name == name)  # pyright: ignore[reportArgumentType]
        bound = tuple(_value(one, value, place, least) for value, place in values)
        arguments[name] = bound if is_repeated else bound[0]
    return message(**arguments)


@functools.cache
def _types(message: type[Any]) -> dict[str, tuple[Any, bool]]:
    """The type of each field's values, and whether there may be several."""
    fields: dict[str, tuple[Any, bool]] = {}
    for name, hint in typing.get_type_hints(message).items():
        inner = [one for one in typing.get_args(hint) if one is not types.NoneType and one is not Ellipsis]
        is_repeated = typing.get_origin(hint) is tuple
        is_optional = isinstance(hint, types.UnionType)
        fields[name] = (inner[0] if is_repeated or is_optional else hint, is_repeated)
    return fields


def _entries(given: object, where: str, types_of: Mapping[str, tuple[Any, bool]]) -> list[tuple[str, object, str]]:
    """Name, value and place of each field; several of a name for several values."""
    if isinstance(given, str):
        given = parse(given)
    if isinstance(given, tuple):
        entries = typing.cast(tuple[Entry, ...], given)
        return [(entry.name, entry.value, f"{where}.{entry.name}, line {entry.line}") for entry in entries]
    if isinstance(given, Mapping):
        items = [(str(name), value) for name, value in typing.cast(Mapping[Any, object], given).items()]
    elif hasattr(given, "ListFields"):  # a message of protocol buffers
        listed = typing.cast(Any, given).ListFields()
        items = [(str(f.name), _shortest(value, f)) for f, value in listed]
    else:
        raise DataError(f"expected text, a dict, a message or its bytes, got {type(given).__name__} - at {where}")
    named: list[tuple[str, object, str]] = []
    for name, value in items:
        several = types_of.get(name, (None, False))[1] and not isinstance(value, (str, Mapping))
        values: list[object] = list(typing.cast(Any, value)) if several else [typing.cast(object, value)]
        named += [(name, one, f"{where}.{name}") for one in values]
    return named


def _value(wanted: Any, given: object, place: str, least: int | None) -> object:
    """One value as its field's type."""
    if dataclasses.is_dataclass(wanted):
        if isinstance(given, (str, Text, Word)):
            raise DataError(f"expected a message, got {_shown(given)} - at {place}")
        return bind(typing.cast(type[Any], wanted), given, place.split(", line ", maxsplit=1)[0])
    if typing.get_origin(wanted) is typing.Literal:
        return _choice(typing.get_args(wanted), given, place)
    value = _scalar(wanted, given)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise DataError(f"expected {NAMES[wanted]}, got {_shown(given)} - at {place}")
    if least is not None and typing.cast(int, value) < least:
        raise DataError(f"expected {least} or more, got {value} - at {place}")
    return value


def _scalar(wanted: type, given: object) -> object:
    """A value of the type, None where it is none."""
    if isinstance(given, Text):
        return given.value if wanted is str else None
    if not isinstance(given, Word):
        fits = isinstance(given, wanted) and (wanted is bool or not isinstance(given, bool))
        return float(given) if wanted is float and type(given) is int else given if fits else None
    if wanted is bool:
        return TRUTH.get(given.value)
    try:
        if wanted is int:
            sign, digits = (-1, given.value[1:]) if given.value.startswith("-") else (1, given.value)
            is_octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
            return sign * int(digits, 8 if is_octal else 0)
        return float(given.value.rstrip("fF")) if wanted is float else None
    except ValueError:
        return None


def _shortest(value: object, field: object) -> object:
    """The decimal that text would have for a 32-bit float: 0.03, not 0.029999999329447746. So text, a message and its
    bytes make the same configuration, and with it the same order and states that fit."""
    if not isinstance(value, float) or getattr(field, "type", 0) != FLOAT:
        return value
    return float(str(np.float32(value)))


def _choice(choices: tuple[str, ...], given: object, place: str) -> str:
    """Return a value of an enumeration, given by name or number."""
    name = given.value if isinstance(given, (Text, Word)) else given
    if isinstance(given, Word) and given.value.isdigit():
        name = int(given.value)
    if type(name) is int and 0 <= name < len(choices):
        return choices[name]
    if isinstance(given, Text) or name not in choices:
        raise DataError(f"expected one of {list(choices)}, got {_shown(given)} - at {place}")
    return typing.cast(str, name)


def _shown(given: object) -> str:
    if isinstance(given, tuple):
        return "a message"
    return given.value if isinstance(given, Word) else repr(given.value if isinstance(given, Text) else given)
