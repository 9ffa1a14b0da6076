"""Positions of the values in members that differ in nothing else, so that decoding one of them is enough for all.

Of a decoded array it is known which bytes it was made of. Whether these, and no others, make the value is tried out:
other bytes are put in their place, and must come back as another array. From then on every member of that length with
the same bytes around the values is an array of the same dtype and shape, and its values are a slice of the archive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.narrowing import is_array, is_scalar

TRIES = 8  # places that the values of one member are looked for at


@dataclass(frozen=True, eq=False, slots=True)
class ArrayTemplate:
    """`prefix`, the bytes of an array of this dtype and shape, `suffix`."""

    prefix: bytes
    suffix: bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def values(self) -> int:
        """Bytes of the values."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))

    @property
    def size(self) -> int:
        """Bytes of the whole member."""
        return len(self.prefix) + self.values + len(self.suffix)


def learn(raw: bytes, decode: Callable[[bytes], Any]) -> ArrayTemplate | None:
    """The template of a member that `decode` makes an array or NumPy number of; None if there is none.

    Cost: some decodings of this member.
    """
    value = decode(raw)
    if not (is_array(value) or is_scalar(value)) or value.dtype.kind not in "biufc" or not value.nbytes:
        return None
    payload = value.tobytes()
    probe = (np.frombuffer(payload, np.uint8) ^ 1).tobytes()  # still a bool, where it was one
    end = len(raw)
    for _ in range(TRIES):
        payload_start = raw.rfind(payload, 0, end)
        if payload_start < 0:
            break
        if _makes(raw[:payload_start] + probe + raw[payload_start + len(payload) :], probe, value, decode):
            return ArrayTemplate(raw[:payload_start], raw[payload_start + len(payload) :], value.dtype, value.shape)
        end = payload_start + len(payload) - 1
    return None


def _makes(raw: bytes, probe: bytes, value: Any, decode: Callable[[bytes], Any]) -> bool:
    try:
        other = decode(raw)
    except ValueError:  # the bytes were part of something else
        return False
    if not (is_array(other) or is_scalar(other)):
        return False
    return (other.dtype, other.shape, other.tobytes()) == (value.dtype, value.shape, probe)
