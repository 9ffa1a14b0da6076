"""Columns of annotations: `language_persistent` and `language_events` of LeRobot 0.6, as JSON text.

A row is a list of messages. A persistent message holds from its `timestamp` on and stands in each row of its episode;
an event belongs to its row. In files it is a struct, whose `tool_calls` are JSON text or structs, and whose fields that
never have a value have no type. Here a row is the JSON of the list, with all fields, and tool calls as objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from penstock.containers.arrow import arrow
from penstock.core.narrowing import is_dict, is_list
from penstock.core.ragged import Ragged
from penstock.errors import DataError, FormatError

_EVENT = ("role", "content", "style", "camera", "tool_calls")
MESSAGE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "language_persistent": ("role", "content", "style", "timestamp", "camera", "tool_calls"),
    "language_events": _EVENT,
}
"""Fields of a message, by the name of the column."""


def messages_of(array: Any, name: str) -> Ragged:
    """Return the rows of an Arrow array as JSON text."""
    types = arrow().types
    if not (types.is_list(array.type) or types.is_large_list(array.type)):
        raise FormatError(f"expected lists of messages, got {array.type}")
    return Ragged.from_strings(_texts(array.to_pylist(), name))


def _texts(rows: Iterable[Any], name: str) -> Iterable[str]:
    """JSON of each row. All rows of an episode are often the same, and are made once."""
    last, text = None, "null"
    for row in rows:
        if row != last:
            messages = None if row is None else [_message(each, name) for each in row]
            last, text = row, json.dumps(messages, ensure_ascii=False)
        yield text


def _message(stored: Mapping[str, Any], name: str) -> dict[str, Any]:
    message = {**dict.fromkeys(MESSAGE_FIELDS[name]), **stored}
    if message.get("timestamp") is not None:
        message["timestamp"] = float(np.float32(message["timestamp"]))  # as LeRobot has it, whatever the file has
    if message["tool_calls"] is not None:
        message["tool_calls"] = [json.loads(call) if isinstance(call, str) else call for call in message["tool_calls"]]
    return message


def messages_type(name: str) -> Any:
    pa = arrow()
    kinds = {"timestamp": pa.float32(), "tool_calls": pa.list_(pa.string())}
    return pa.list_(pa.struct([(field, kinds.get(field, pa.string())) for field in MESSAGE_FIELDS[name]]))


def messages_array(texts: Iterable[str], name: str) -> Any:
    """Return rows of JSON text as an Arrow array."""
    rows: list[list[dict[str, Any]] | None] = []
    last = None
    for text in texts:
        rows.append(rows[-1] if text == last else _checked_row(text, name))
        last = text
    return arrow().array(rows, messages_type(name))


def _checked_row(text: str, name: str) -> list[dict[str, Any]] | None:
    """Return the messages of a row, as they are stored."""
    fields = MESSAGE_FIELDS[name]
    try:
        messages: Any = json.loads(text)
    except ValueError as error:
        raise DataError(f"expected JSON in {name}, got {text[:80]!r}: {error}") from error
    if messages is None:
        return None
    if not is_list(messages) or not all(is_dict(each) and each.keys() <= set(fields) for each in messages):
        raise DataError(f"expected a list of messages with the fields {fields} in {name}, got {text[:80]!r}")
    stored: list[dict[str, Any]] = []
    for message in messages:
        calls, time = message.get("tool_calls"), message.get("timestamp")
        words = [message.get(field) for field in fields if field not in ("tool_calls", "timestamp")]
        wrong = any(not isinstance(each, str | None) for each in words) or not (calls is None or is_list(calls))
        if wrong or not isinstance(time, float | int | None) or not isinstance(message.get("role"), str):
            raise DataError(f"expected a role, text, and tool_calls as a list in {name}, got {message}")
        texts = None if calls is None else [json.dumps(call, ensure_ascii=False) for call in calls]
        stored.append({**message, "tool_calls": texts})
    return stored
