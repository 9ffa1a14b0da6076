"""Members that differ in their payload only: compared with a known one, not interpreted.

A match equals what the interpreter would make: the learnt member names nothing but NumPy's arrays and dtypes; it has
one byte string of the length of the result, which is never copied, dropped or fetched from the memo; and of its content
the interpreter asks one thing, that booleans be 0 or 1, which is asked here too. All other bytes are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from penstock.containers.pickle.arrays import ARRAY_SYMBOLS
from penstock.containers.pickle.machine import LIMITS, Machine
from penstock.containers.pickle.opcodes import DISPATCH, Operation, run
from penstock.containers.pickle.reader import Buffer, vet
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_scalar

_KINDS = "biufcSMm"  # dtypes whose values any bytes may be (but booleans)
_BYTES = {ord("B"): 5, ord("C"): 2, 0x8E: 9, 0x96: 9}  # opcodes of byte strings -> bytes before the content
_MEMO = frozenset(b"pqr\x94")
_GET = frozenset(b"ghj")
_UNCLEAR = frozenset(b"201STUpg")  # DUP, POP, POP_MARK, 8-bit strings; and PUT and GET in decimal, which are not in use


@dataclass(frozen=True, slots=True, eq=False)
class PickleTemplate:
    """A pickle of one array or NumPy scalar, but for its payload.

    `prefix` and `suffix`, the bytes around the payload, which is at `offset`; `dtype`, `shape` and `order` of what it
    is; `scalar`, whether the pickle says a scalar, which here is an array of shape ().
    """

    prefix: bytes
    suffix: bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    scalar: bool
    nbytes: int

    @property
    def offset(self) -> int:
        """Where the payload begins in a member."""
        return len(self.prefix)

    @property
    def length(self) -> int:
        return len(self.prefix) + self.nbytes + len(self.suffix)

    @staticmethod
    def learn(data: Buffer) -> PickleTemplate | None:
        """The template of a member, or None for one that is no plain array or scalar."""
        raw = bytes(data)
        m, starts = Machine(raw, "", None, LIMITS), list[int]()
        value = vet(m, run(m, [_recorded(operation, starts) for operation in DISPATCH]))
        dtype = m.dtype
        if dtype is None or not (is_array(value) or is_scalar(value)) or not m.names.issubset(ARRAY_SYMBOLS):
            return None
        if isinstance(value, np.bytes_) or dtype.kind not in _KINDS:  # byte scalars have lost their padding
            return None
        payload_start = _find_payload(raw, starts, value.nbytes)
        if payload_start is None or not (value.flags.c_contiguous or value.flags.f_contiguous):
            return None
        order = "C" if value.flags.c_contiguous else "F"
        scalar = isinstance(value, np.generic)
        return PickleTemplate(
            raw[:payload_start], raw[payload_start + value.nbytes :], dtype, value.shape, order, scalar, value.nbytes
        )

    def match(self, data: Buffer) -> AnyArray | None:
        """What `loads` makes of `data`, as a read-only view of it, or None if this is not its template."""
        begin = len(self.prefix)
        end = begin + self.nbytes
        if len(data) != self.length or data[:begin] != self.prefix or data[end:] != self.suffix:
            return None
        array = np.frombuffer(data, self.dtype, self.nbytes // self.dtype.itemsize, begin)
        if self.dtype.kind == "b" and array.view(np.uint8).max() > 1:
            return None
        array.flags.writeable = False
        return array.reshape(self.shape, order=self.order)


def _recorded(operation: Operation, starts: list[int]) -> Operation:
    def record(m: Machine) -> None:
        starts.append(m.start)
        operation(m)

    return record


def _find_payload(raw: bytes, starts: list[int], nbytes: int) -> int | None:
    """Where the only byte string of `nbytes` begins, if it can be used only once; `starts` are the opcodes' places."""
    place: int | None = None
    if not nbytes:
        return None
    entries = 0  # of the memo
    own = set[int]()  # entries that are the payload
    fresh = False  # whether the payload is on top
    for start, end in pairwise((*starts, len(raw) - 1)):
        code = raw[start]
        index = int.from_bytes(raw[start + 1 : end], "little") if code in b"qrhj" else entries
        if code in _UNCLEAR or (code in _GET and index in own):
            return None
        if code in _MEMO:
            own |= {index} if fresh else set()
            entries += 1
            continue
        fresh = end - start - _BYTES.get(code, end) == nbytes
        if fresh:
            if place is not None:
                return None
            place = end - nbytes
    return place
