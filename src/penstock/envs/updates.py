"""Configurations updated: a pure function on plain mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def update(defaults: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two configurations: where both have a mapping, their keys are merged, else `config` wins.

    Lists are replaced as a whole, None replaces earlier values, and new keys are added (the dataclasses check which
    keys exist). Neither argument is changed, and the result shares nothing with them.

    Args:
        defaults: Mapping with the default values.
        config: Mapping with the values that win.

    Returns:
        The merged configuration.

    Example:
        >>> update({"a": {"x": 1, "y": 2}, "b": [1, 2]}, {"a": {"y": 3}, "b": [4]})
        {'a': {'x': 1, 'y': 3}, 'b': [4]}
    """
    merged: dict[str, Any] = plain(defaults)
    for key, value in config.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = update(cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", value))
        else:
            merged[key] = plain(value)
    return merged


def plain(value: Any) -> Any:
    """A copy in which all mappings are dicts, and all lists and tuples lists; other values are taken as they are."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in cast("list[Any]", value)]
    return value
