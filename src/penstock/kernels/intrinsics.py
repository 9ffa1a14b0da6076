"""Instructions that copy, weave and prefetch memory at int64 addresses. Only kernels can call them.

They check nothing: the calling kernel checks ranges, and its caller owns the memory. Each function states its types and
name; the `_emit` function above it writes its instructions with LLVM's builder. Numba's cache does not see a change in
this file: clear the cache after one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
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


def _emit_zero(builder: Builder, dst: Value, size: Value) -> None:
    from numba.core import cgutils

    cast("Any", cgutils).memset(builder, _pointer(builder, dst, 8), size, 0)


@intrinsic(_emit_zero, "i8 i8")
def zero_bytes(dst: IntScalar, size: IntScalar) -> None:
    """Write `size` zeros to address `dst`. It compiles in a third of the time of a loop."""


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


def _emit_prefetch(locality: int) -> Callable[..., None]:
    """Ask for the cache line at an address; `locality` 3 brings it into all levels of the cache, 2 into the second."""

    def emit(builder: Builder, address: Value) -> None:
        from llvmlite import ir
        from numba.core import cgutils

        word = ir.IntType(32)
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        function = cast("Any", cgutils).get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [builder.inttoptr(address, pointer), word(0), word(locality), word(1)])

    return emit


@intrinsic(_emit_prefetch(3), "i8")
def prefetch(address: IntScalar) -> None:
    """Ask for the cache line at an address; never faults."""


@intrinsic(_emit_prefetch(2), "i8")
def prefetch_second_level(address: IntScalar) -> None:
    """Ask for the cache line at an address, but leave the first level of the cache to others; never faults."""


def _emit_lowest_bit(builder: Builder, word: Value) -> Value:
    from llvmlite import ir

    return builder.cttz(word, ir.Constant(ir.IntType(1), 1))


@intrinsic(_emit_lowest_bit, "u8", returns="i8")
def lowest_bit(word: np.uint64) -> int:
    """Return the number of the lowest bit that is set in a word other than 0."""
    raise NotImplementedError


_ROWS = 8  # of pixels whose filter is undone at a time
_PART_BITS = {3: ((0, 16), (16, 8)), 4: ((0, 32),)}  # first bit and size of what a pixel of so many bytes is stored as


def _least(builder: Builder, one: Value, other: Value) -> Value:
    return builder.select(builder.icmp_unsigned("<=", one, other), one, other)


def _apart(builder: Builder, one: Value, other: Value) -> Value:
    greatest = builder.select(builder.icmp_unsigned("<=", one, other), other, one)
    return builder.sub(greatest, _least(builder, one, other))


def _nearest(builder: Builder, left: Value, above: Value, corner: Value) -> Value:
    """Choose whichever of three vectors of bytes is nearest to `left + above - corner`, the first of equals.

    The corner is the nearest one only if it is between the others: then its distance is the difference of theirs.
    """
    from llvmlite import ir

    to_left, to_above = _apart(builder, above, corner), _apart(builder, left, corner)
    between = builder.xor(builder.icmp_unsigned("<=", left, corner), builder.icmp_unsigned("<=", above, corner))
    far = ir.Constant(left.type, [255] * left.type.count)
    to_corner = builder.select(between, _apart(builder, to_left, to_above), far)
    second = builder.select(builder.icmp_unsigned("<=", to_above, to_corner), above, corner)
    is_left = builder.icmp_unsigned("<=", to_left, _least(builder, to_above, to_corner))
    return builder.select(is_left, left, second)


def _emit_add_nearest(pixel: int) -> Callable[..., None]:
    """Undo Paeth's filter in up to eight rows of pixels of `pixel` bytes, four bytes of each row in one vector.

    A pixel depends on the one to its left, so each row is one pixel behind the row above it, and the pixels above are
    the ones to the left of the step before, one row further down.
    """

    def emit(builder: Builder, source: Value, target: Value, size: Value, rows: Value) -> None:
        from llvmlite import ir
        from numba.core import cgutils as untyped

        cgutils = cast("Any", untyped)
        word, index = ir.IntType(32), ir.IntType(64)
        vector, words = ir.VectorType(ir.IntType(8), 4 * _ROWS), ir.VectorType(word, _ROWS)
        last_left, last_above = (cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(2))
        count, stride = builder.sdiv(size, index(pixel)), builder.add(size, index(1))
        row_below = ir.Constant(ir.VectorType(word, 4 * _ROWS), [*range(4), *range(4 * _ROWS, 8 * _ROWS - 4)])

        def place(begin: Value, pitch: Value, row: int, column: Value) -> Value:
            return builder.add(begin, builder.add(builder.mul(pitch, index(row)), builder.mul(column, index(pixel))))

        def load(begin: Value, address: Value, inside: Value | None) -> Value:
            """Load a pixel; one that is outside the image is 0."""
            if inside is None:
                return builder.load(_pointer(builder, address, 32), align=1)
            value = load(begin, builder.select(inside, address, begin), None)
            return builder.select(inside, value, word(0))

        def store(value: Value, address: Value) -> None:
            for first, bits in _PART_BITS[pixel]:
                part = builder.lshr(value, word(first))
                part = part if bits == 32 else builder.trunc(part, ir.IntType(bits))
                builder.store(part, _pointer(builder, builder.add(address, index(first // 8)), bits), align=1)

        def inside_image(row: int, column: Value) -> Value:
            return builder.and_(builder.icmp_unsigned("<", column, count), builder.icmp_signed("<", index(row), rows))

        def undo_steps(begin: Value, end: Value, *, whole: bool) -> None:
            """Undo pixel `step - row` of each row; unless `whole`, some of them are outside the image."""
            with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
                step = builder.add(begin, loop.index)
                columns = [builder.sub(step, index(row)) for row in range(_ROWS)]
                inside = [None if whole else inside_image(row, column) for row, column in enumerate(columns)]
                top = raw = ir.Constant(words, None)
                before = builder.sub(target, size)
                top = builder.insert_element(top, load(before, place(before, size, 0, step), inside[0]), word(0))
                for row, column in enumerate(columns):
                    value = load(source, place(source, stride, row, column), inside[row])
                    raw = builder.insert_element(raw, value, word(row))
                left, corner = builder.load(last_left), builder.load(last_above)
                above = builder.shuffle_vector(builder.bitcast(top, vector), left, row_below)
                undone = builder.add(builder.bitcast(raw, vector), _nearest(builder, left, above, corner))
                builder.store(undone, last_left)
                builder.store(above, last_above)
                for row, column in enumerate(columns):
                    value = builder.extract_element(builder.bitcast(undone, words), word(row))
                    with nullcontext() if whole else builder.if_then(inside[row]):
                        store(value, place(target, size, row, column))

        late = index(_ROWS - 1)
        first = builder.select(builder.icmp_signed("<", late, count), late, count)
        end = builder.select(builder.icmp_signed("==", rows, index(_ROWS)), count, first)
        undo_steps(index(0), first, whole=False)
        undo_steps(first, end, whole=True)
        undo_steps(end, builder.add(count, late), whole=False)

    return emit


@intrinsic(_emit_add_nearest(3), "i8 i8 i8 i8")
def add_nearest3(source: IntScalar, target: IntScalar, size: IntScalar, rows: IntScalar) -> None:
    """Undo Paeth's filter in up to eight rows of pixels of three bytes; see `kernels.png`."""


@intrinsic(_emit_add_nearest(4), "i8 i8 i8 i8")
def add_nearest4(source: IntScalar, target: IntScalar, size: IntScalar, rows: IntScalar) -> None:
    """Undo Paeth's filter in up to eight rows of pixels of four bytes."""
