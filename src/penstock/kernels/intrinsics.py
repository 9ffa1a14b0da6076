"""Instructions that copy, weave and prefetch memory at int64 addresses. Only kernels can call them.

They check nothing: the calling kernel checks ranges, and its caller owns the memory. Each function states its types and
name; the `_emit` function above it writes its instructions with LLVM's builder. Numba's cache does not see a change in
this file: clear the cache after one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from penstock.core.arrays import IntScalar
from penstock.kernels.jit import intrinsic

Builder: TypeAlias = Any  # llvmlite's `IRBuilder`; llvmlite has no types
Value: TypeAlias = Any  # a value of LLVM
Address: TypeAlias = IntScalar


def _pointer(builder: Builder, address: Value, bits: int) -> Value:
    from llvmlite import ir

    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _emit_memcpy(builder: Builder, dst: Value, src: Value, size: Value) -> None:
    from numba.core import cgutils

    cast("Any", cgutils).raw_memcpy(builder, _pointer(builder, dst, 8), _pointer(builder, src, 8), size, 1)


@intrinsic(_emit_memcpy, "i8 i8 i8")
def memcpy(dst: IntScalar, src: IntScalar, size: IntScalar) -> None:
    """Copy `size` bytes from address `src` to address `dst`: 4 to 6 times faster than a loop over bytes."""


def _emit_move(size: int) -> Callable[..., None]:
    """Copy `size` bytes in one load and one store."""

    def emit(builder: Builder, dst: Value, src: Value) -> None:
        value = builder.load(_pointer(builder, src, 8 * size), align=1)
        builder.store(value, _pointer(builder, dst, 8 * size), align=1)

    return emit


@intrinsic(_emit_move(1), "i8 i8")
def move1(dst: IntScalar, src: IntScalar) -> None:
    """Copy one byte from address `src` to address `dst`."""


@intrinsic(_emit_move(4), "i8 i8")
def move4(dst: IntScalar, src: IntScalar) -> None:
    """Copy four bytes from address `src` to address `dst`."""


@intrinsic(_emit_move(8), "i8 i8")
def move8(dst: IntScalar, src: IntScalar) -> None:
    """Copy eight bytes from address `src` to address `dst`."""


def _emit_load8(builder: Builder, src: Value) -> Value:
    return builder.load(_pointer(builder, src, 64), align=1)


@intrinsic(_emit_load8, "i8", "u8")
def load8(src: IntScalar) -> np.uint64:
    """Return the eight bytes at an address as a number, in the byte order of the machine."""
    raise NotImplementedError


def _emit_set_byte(builder: Builder, dst: Value, value: Value) -> None:
    builder.store(value, _pointer(builder, dst, 8), align=1)


@intrinsic(_emit_set_byte, "i8 u1")
def set_byte(dst: IntScalar, value: int | np.uint8) -> None:
    """Write one byte to an address."""


def _emit_weave(builder: Builder, dst: Value, *sources: Value) -> None:
    """Weave sixteen bytes of each source: a0 b0 c0 ... a1 b1 c1 ..."""
    from llvmlite import ir

    vector, count = ir.VectorType(ir.IntType(8), 16), len(sources)
    loaded = [builder.load(builder.inttoptr(a, vector.as_pointer()), align=1) for a in sources]

    def shuffled(one: Value, other: Value, mask: list[int]) -> Value:
        return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(mask)), mask))

    join = list(range(32))
    front = shuffled(loaded[0], loaded[1], join)
    back = shuffled(loaded[2], loaded[-1], join)
    woven = shuffled(front, back, [c * 16 + i for i in range(16) for c in range(count)])
    target = builder.inttoptr(dst, ir.VectorType(ir.IntType(8), 16 * count).as_pointer())
    builder.store(woven, target, align=1)


@intrinsic(_emit_weave, "i8 i8 i8 i8")
def weave3(dst: IntScalar, a: IntScalar, b: IntScalar, c: IntScalar) -> None:
    """Weave sixteen bytes of three sources into 48 bytes at `dst`."""


@intrinsic(_emit_weave, "i8 i8 i8 i8 i8")
def weave4(dst: IntScalar, a: IntScalar, b: IntScalar, c: IntScalar, d: IntScalar) -> None:
    """Weave sixteen bytes of four sources into 64 bytes at `dst`."""


def _emit_prefetch(builder: Builder, address: Value) -> None:
    from llvmlite import ir
    from numba.core import cgutils

    word = ir.IntType(32)
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
    function = cast("Any", cgutils).get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(function, [builder.inttoptr(address, pointer), word(0), word(3), word(1)])


@intrinsic(_emit_prefetch, "i8")
def prefetch(address: IntScalar) -> None:
    """Ask for the cache line at an address; never faults."""


def _emit_lowest_bit(builder: Builder, word: Value) -> Value:
    from llvmlite import ir

    return builder.cttz(word, ir.Constant(ir.IntType(1), 1))


@intrinsic(_emit_lowest_bit, "u8", returns="i8")
def lowest_bit(word: np.uint64) -> int:
    """Return the number of the lowest bit that is set in a word other than 0."""
    raise NotImplementedError


def _emit_lanes(builder: Builder, src: Value) -> Value:
    """Widen four bytes to 16 bits each."""
    from llvmlite import ir

    narrow = builder.load(builder.inttoptr(src, ir.VectorType(ir.IntType(8), 4).as_pointer()), align=1)
    return builder.bitcast(builder.zext(narrow, ir.VectorType(ir.IntType(16), 4)), ir.IntType(64))


@intrinsic(_emit_lanes, "i8", "u8")
def lanes4(src: IntScalar) -> np.uint64:
    """Return four bytes at an address as four numbers of 16 bits, packed."""
    raise NotImplementedError


def _emit_store_lanes(size: int) -> Callable[..., None]:
    def emit(builder: Builder, dst: Value, lanes: Value) -> None:
        from llvmlite import ir

        wide = builder.bitcast(lanes, ir.VectorType(ir.IntType(16), 4))
        word = builder.bitcast(builder.trunc(wide, ir.VectorType(ir.IntType(8), 4)), ir.IntType(32))
        if size == 4:
            builder.store(word, _pointer(builder, dst, 32), align=1)
            return
        builder.store(builder.trunc(word, ir.IntType(16)), _pointer(builder, dst, 16), align=1)
        last = builder.trunc(builder.lshr(word, ir.Constant(ir.IntType(32), 16)), ir.IntType(8))
        builder.store(last, _pointer(builder, builder.add(dst, ir.Constant(ir.IntType(64), 2)), 8), align=1)

    return emit


@intrinsic(_emit_store_lanes(3), "i8 u8")
def store_lanes3(dst: IntScalar, lanes: np.uint64) -> None:
    """Write the low bytes of the first three of four packed numbers to an address."""


@intrinsic(_emit_store_lanes(4), "i8 u8")
def store_lanes4(dst: IntScalar, lanes: np.uint64) -> None:
    """Write the low bytes of four packed numbers to an address."""


def _emit_paeth(builder: Builder, raw: Value, left: Value, above: Value, corner: Value) -> Value:
    from llvmlite import ir

    vector = ir.VectorType(ir.IntType(16), 4)
    zero = ir.Constant(vector, [0] * 4)
    raw, left, above, corner = (builder.bitcast(each, vector) for each in (raw, left, above, corner))

    def size(value: Value) -> Value:
        return builder.select(builder.icmp_signed("<", value, zero), builder.sub(zero, value), value)

    from_above, from_left = builder.sub(above, corner), builder.sub(left, corner)
    to_left = size(from_above)
    to_above = size(from_left)
    to_corner = size(builder.add(from_above, from_left))
    smaller = builder.select(builder.icmp_signed("<=", to_above, to_corner), to_above, to_corner)
    other = builder.select(builder.icmp_signed("<=", to_above, to_corner), above, corner)
    nearest = builder.select(builder.icmp_signed("<=", to_left, smaller), left, other)
    total = builder.and_(builder.add(raw, nearest), ir.Constant(vector, [255] * 4))
    return builder.bitcast(total, ir.IntType(64))


@intrinsic(_emit_paeth, "u8 u8 u8 u8", "u8")
def add_paeth(raw: np.uint64, left: np.uint64, above: np.uint64, corner: np.uint64) -> np.uint64:
    """Add to four packed numbers, modulo 256, whichever is nearest to `left + above - corner`, the first of equals."""
    raise NotImplementedError
