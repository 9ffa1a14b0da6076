"""Arrays in saved states: compressed, with their dtype."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from penstock.core.narrowing import is_array, is_mapping


def packed(value: Any) -> Any:
    """Return an array as compressed bytes with its dtype, and another value as it is."""
    if not is_array(value):
        return value
    data = np.frombuffer(zlib.compress(np.ascontiguousarray(value).tobytes(), 1), np.uint8)
    return {"dtype": value.dtype.str, "shape": list(value.shape), "bytes": data}


def unpacked(value: Any) -> Any:
    """Return the value that `packed` got."""
    if not is_mapping(value):
        return value
    data = zlib.decompress(np.asarray(value["bytes"], np.uint8).tobytes())
    return np.frombuffer(data, value["dtype"]).reshape(value["shape"]).copy()
