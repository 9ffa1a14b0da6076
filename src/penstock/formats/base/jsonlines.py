"""Metadata as a line of JSON: what JSON cannot bring back is refused, not bent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.narrowing import is_array, is_listed, is_mapping, is_scalar
from penstock.errors import DataError

_AS_THEY_ARE = frozenset((bool, int, float, str, type(None)))
_LARGEST = 1 << 31
_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode(metadata: Mapping[str, Any]) -> bytes:
    """One line of JSON, with its end. Raises `DataError` as `plain` does, or for more than 2 GB."""
    text = _encode(plain(metadata)).encode() + b"\n"
    if len(text) > _LARGEST:
        raise DataError(f"expected metadata of at most {_LARGEST} bytes, got {len(text)}; store it as a column")
    return text


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same with NumPy numbers as numbers, and arrays and tuples as lists.

    Raises `DataError` for other objects, keys that are no strings, and what is nested too deep.
    """
    try:
        return {_key(key): _plain(value) for key, value in metadata.items()}
    except RecursionError:
        raise DataError("expected metadata that is not nested without end") from None


def _plain(value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if is_array(value) or is_scalar(value):
        return _plain_numbers(value)
    if is_mapping(value):
        return {_key(key): _plain(inner) for key, inner in value.items()}
    if is_listed(value):
        return [_plain(inner) for inner in value]
    raise DataError(f"expected metadata that JSON can hold, got {type(value).__name__} {str(value)[:100]}")


def _plain_numbers(value: np.ndarray | np.generic) -> Any:  # pyright: ignore[reportMissingTypeArgument]
    if value.dtype.kind not in "biufU":
        raise DataError(f"expected metadata that JSON can hold, got an array of {value.dtype}; store it as a column")
    return value.tolist()


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise DataError(f"expected the keys of metadata to be strings, got {key!r}")
    return key
