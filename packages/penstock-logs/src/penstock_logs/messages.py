"""Messages as plain values: JSON, Protobuf, and the messages of ROS, whose definitions are in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields as fields_of_class
from functools import cache, partial
from typing import Any

import numpy as np
from mcap.records import Schema
from mcap_protobuf.decoder import DecoderFactory
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from penstock.core.narrowing import is_array, is_dict, is_list, is_mapping
from penstock.errors import FormatError
from penstock_logs.log import Decode

BUILTIN = ("builtin_interfaces/msg/Time", "builtin_interfaces/msg/Duration")
IDL = "=" * 80 + "\nIDL: "


def decoder_of(encoding: str, schema: Schema | None) -> Decode | None:
    """Return what decodes the messages of a channel, or None if their encoding is not one that is read."""
    if encoding == "json":
        integers = frozenset(_integers(_json_schema(schema), ""))
        return partial(_json_values, integers)
    if schema is None:
        return None
    if encoding == "protobuf" and schema.encoding == "protobuf":
        decode = DecoderFactory().decoder_for(encoding, schema)
        return None if decode is None else lambda data: _protobuf_values(decode(data))
    if (encoding, schema.encoding) in (("cdr", "ros2msg"), ("cdr", "ros2idl"), ("ros1", "ros1msg")):
        store, name = typestore_of(schema.name, schema.data.decode(), is_idl=schema.encoding == "ros2idl")
        return ros_decoder(store, name, is_ros1=encoding == "ros1")
    return None


def typestore_of(name: str, text: str, *, is_idl: bool = False) -> tuple[Typestore, str]:
    """Return the types of a definition, and the full name of its message."""
    package, _, message = name.partition("/")
    full = f"{package}/msg/{message.removeprefix('msg/')}"
    types: dict[str, Any] = {}
    if is_idl:
        for part in text.split(IDL):
            types |= get_types_from_idl(part.partition("\n")[2] if text.startswith(IDL) else part) if part else {}
    else:
        types |= get_types_from_msg(text, full)
    known = get_typestore(Stores.ROS2_HUMBLE).fielddefs
    types = {**{each: known[each] for each in BUILTIN}, **types}
    store = get_typestore(Stores.EMPTY)
    store.register(types)
    return store, full


def ros_decoder(store: Typestore, name: str, *, is_ros1: bool) -> Decode:
    """Return what decodes messages of ROS 1, or of ROS 2."""
    deserialize: Any = store.deserialize_ros1 if is_ros1 else store.deserialize_cdr
    return lambda data: _ros_values(deserialize(data, name))


def _json_schema(schema: Schema | None) -> Any:
    if schema is None or not schema.data:
        return {}
    try:
        return json.loads(schema.data)
    except ValueError:  # a schema that cannot be read says nothing of the types
        return {}


def _integers(schema: Any, path: str) -> Iterator[str]:
    """Paths of the whole numbers of a JSON schema."""
    if not is_mapping(schema):
        return
    if schema.get("type") == "integer":
        yield path
    yield from _integers(schema.get("items"), path)
    inner = schema.get("properties")
    if is_mapping(inner):
        for name, each in inner.items():
            yield from _integers(each, f"{path}/{name}" if path else str(name))


def _json_values(integers: frozenset[str], data: bytes) -> Mapping[str, Any]:
    value = _numbers(json.loads(data), "", integers)
    return value if is_dict(value) else {"value": value}


def _numbers(value: Any, path: str, integers: frozenset[str]) -> Any:
    """Numbers as floats, of which JSON has no other, but where the schema says that they are whole."""
    if is_dict(value):
        if value.keys() in ({"sec", "nsec"}, {"sec", "nanosec"}):
            return int(value["sec"]) * 10**9 + int(value.get("nsec", value.get("nanosec", 0)))
        return {name: _numbers(each, f"{path}/{name}" if path else name, integers) for name, each in value.items()}
    if is_list(value):
        return [_numbers(each, path, integers) for each in value]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_number and path not in integers else value


@cache
def _fields_of(kind: type[Any]) -> tuple[str, ...]:
    """Names of the fields of a class of messages."""
    return tuple(field.name for field in fields_of_class(kind) if field.name != "__msgtype__")


def _ros_values(message: Any) -> dict[str, Any]:
    kind: type[Any] = type(message)
    return {name: _ros_value(getattr(message, name)) for name in _fields_of(kind)}


def _ros_value(value: Any) -> Any:
    if isinstance(value, float | int | str) or is_array(value):
        return value
    if is_list(value):
        return [_ros_value(each) for each in value]
    if getattr(value, "__msgtype__", "") in BUILTIN:
        return int(value.sec) * 10**9 + int(value.nanosec)
    return _ros_values(value)


def _protobuf_values(message: Any) -> dict[str, Any]:
    """Fields as plain values; None for a field that may be absent, and is."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not field.is_repeated and not message.HasField(field.name):
            values[field.name] = None
        else:
            values[field.name] = _protobuf_field(field, getattr(message, field.name))
    return values


def _protobuf_field(field: Any, value: Any) -> Any:
    if field.message_type is None:
        return _listed(field, value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        is_plain = field.message_type.fields_by_name["value"].message_type is None
        return {str(key): value[key] for key in sorted(value)} if is_plain else None
    return [_protobuf_message(each) for each in value] if field.is_repeated else _protobuf_message(value)


def _listed(field: Any, value: Any) -> Any:
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        return list(value)
    dtypes = {
        field.CPPTYPE_DOUBLE: np.float64,
        field.CPPTYPE_FLOAT: np.float32,
        field.CPPTYPE_BOOL: np.bool_,
        field.CPPTYPE_UINT32: np.uint32,
        field.CPPTYPE_UINT64: np.uint64,
        field.CPPTYPE_INT32: np.int32,
        field.CPPTYPE_ENUM: np.int32,
    }
    return np.array(value, dtypes.get(field.cpp_type, np.int64))


def _protobuf_message(message: Any) -> Any:
    if message.DESCRIPTOR.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return int(message.seconds) * 10**9 + int(message.nanos)
    return _protobuf_values(message)


def schema_text(schema: Schema | None) -> str:
    """Return the name of a schema, for a person."""
    return "no schema" if schema is None else schema.name or schema.encoding


def check_name(name: str) -> str:
    """Return the name of a topic as a path."""
    path = "/".join(part for part in name.split("/") if part)
    if not path:
        raise FormatError(f"expected the name of a topic, got {name!r}")
    return path
