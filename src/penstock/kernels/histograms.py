"""Count floats in fixed buckets, and bytes by value.

* *Floats.* A value counts in the bucket of the nearest number with 8 significant bits, that is the upper half of its
  float32, 65,536 buckets for all float32. A bucket has no parameter, so histograms add up. A value read from one is
  within 1/256 of the true one, and exact for numbers of 8 bits, such as 0, 1 and small whole numbers. This is the idea
  of DDSketch (Masson et al., 2019) with powers of two, where the bucket costs an addition and a shift.
* *Bytes* are counted exactly, and read as words.

A count is a load and a store, and a core stores once in a cycle: loops do little else. The buckets of some thousand
values are computed ahead, by vector instructions. Equal values in a row, as in a constant column, would wait for each
other. So at least four tables take turns: columns of a row, or rows of one column. `[T, BUCKETS]` tables count value
`i` in table `i % T`, and `T` is a multiple of the columns where these are separate. The owner of tables adds them up,
before one of them can have counted `2**32` values. Memory has nothing to do meanwhile, so the values that follow are
asked for: this saves a quarter of the time of values that are not in the cache. Pairs of bytes take half of the stores,
but their tables leave the cache: 0.45 instead of 0.31 ns a byte.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, FloatingArray, IntArray, IntScalar, UInt16Array, UInt32Array, read_only
from penstock.errors import PlanError
from penstock.kernels.intrinsics import load8, prefetch_second_level
from penstock.kernels.jit import helper, kernel

BUCKETS = 1 << 16
ROWS = 1024
"""Rows whose buckets are computed ahead, at least: fewer would load tables of many columns into the cache too often."""
PERIOD = 12
"""Bytes that are counted each in a table of its own: 12 kB of tables leave room in a cache of 32 kB; 24 kB did not."""


def tables_for(columns: int) -> int:
    """Return the number of tables for separate columns: at least four."""
    return -(-4 // columns) * columns


def key_buffer(tables: UInt32Array, least: int) -> UInt16Array:
    """Return memory for the buckets that are computed ahead, of at least `least` values."""
    rows = max(ROWS, -(-least // len(tables)))
    return np.empty(rows * len(tables), np.uint16)


@helper
def count_values(values: FloatingArray, finite: bool, tables: UInt32Array, keys: UInt16Array) -> None:
    """Count finite values in `[T, BUCKETS]` tables; `finite` says that all are. Some may be above float32's range.

    `keys` has room for the buckets of some values, a multiple of T.
    """
    for first in range(0, len(values), len(keys)):
        part = values[first : min(first + len(keys), len(values))]
        for i in range(len(part)):
            # The nearest number of 8 bits: half of the last place is added before the lower half is cut off.
            keys[i] = np.uint16((np.float32(part[i]).view(np.uint32) + np.uint32(0x8000)) >> np.uint32(16))
        _count_keys(keys, len(part), tables, part.ctypes.data + part.nbytes, part.itemsize)
        if not finite:
            for i in range(len(part)):
                if not abs(part[i]) < np.inf:
                    tables[i % len(tables), keys[i]] -= np.uint32(1)


@helper
def _count_keys(keys: UInt16Array, n: int, tables: UInt32Array, following: IntScalar, itemsize: int) -> None:
    """Count `keys[:n]`, four tables at a time, and fetch the values that follow at an address into the cache."""
    width = len(tables)
    end = n // width * width
    for t in range(0, width - 3, 4):
        one = tables[t]
        two = tables[t + 1]
        three = tables[t + 2]
        four = tables[t + 3]
        i = np.uint64(t)  # a signed place could be negative, and would be compared with 0 for each value
        while i < np.uint64(end):
            prefetch_second_level(following + np.int64(i) * itemsize)
            one[keys[i]] += np.uint32(1)
            two[keys[i + np.uint64(1)]] += np.uint32(1)
            three[keys[i + np.uint64(2)]] += np.uint32(1)
            four[keys[i + np.uint64(3)]] += np.uint32(1)
            i += np.uint64(width)
    for t in range(width // 4 * 4, width):
        one = tables[t]
        for i in range(t, end, width):
            one[keys[i]] += np.uint32(1)
    for i in range(end, n):
        tables[i - end, keys[i]] += np.uint32(1)


def count_bytes(values: ByteArray, counts: IntArray) -> None:
    """Count bytes by value."""
    columns = values.shape[1]
    if counts.shape != (columns, 256):
        raise PlanError(f"expected [{columns}, 256] counts, got {counts.shape}")
    flat = read_only(values.reshape(-1))
    if PERIOD % columns:
        _count_bytes(flat, counts, np.zeros((4, *counts.shape), np.uint32))
        return
    whole = flat.size // 24 * 24
    part = np.zeros((PERIOD, 256), np.uint32)
    _count_words(flat.ctypes.data, whole // 8, part)
    for place, value in enumerate(flat[whole:].tolist()):
        part[place % PERIOD, value] += 1
    counts += part.reshape(-1, columns, 256).sum(axis=0, dtype=np.int64)


@kernel("u1[1Cr] i8[2C] u4[3C]")
def _count_bytes(values: ByteArray, counts: IntArray, part: UInt32Array) -> None:
    """Count into four tables in turn: neighbouring pixels are often equal, and each count waits for the one before."""
    columns = len(counts)
    for r in range(len(values) // columns):
        for d in range(columns):
            part[r & 3, d, values[r * columns + d]] += 1
    for t in range(4):
        for d in range(columns):
            for v in range(256):
                counts[d, v] += part[t, d, v]


@kernel("i8 i8 u4[2C]")
def _count_words(address: IntScalar, words: int, part: UInt32Array) -> None:
    """Count the bytes of `3 n` words in `[PERIOD, 256]` tables: one load for eight bytes.

    Byte `j` of the words goes to table `j % PERIOD`, and so to column `j % D` where `D` divides `PERIOD`.
    """
    for first in range(0, words, 3):
        for k in range(3):
            word = load8(address + 8 * (first + k))
            for j in range(8):
                part[(8 * k + j) % PERIOD, (word >> np.uint64(8 * j)) & np.uint64(255)] += np.uint32(1)
