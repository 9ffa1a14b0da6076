# ruff: noqa: ARG001 - an intrinsic names its arguments for the caller alone
# pyright: reportMissingImports=false, reportCallIssue=false
"""LLVM intrinsics that copy, weave and prefetch memory at int64 addresses.

They check nothing: the calling kernel checks ranges, and its caller owns the memory. Numba's cache does not see a
change in this file: clear the cache after one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def memcpy(_context: Any, dst: Any, src: Any, size: Any) -> Any:
    """`memcpy(dst, src, size)` on int64 addresses: 4 to 6 times a byte loop."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to, source = (builder.inttoptr(a, pointer) for a in args[:2])
        cgutils.raw_memcpy(builder, to, source, args[2], 1)

    return types.void(types.int64, types.int64, types.int64), codegen


def _mover(size: int) -> Any:
    """An intrinsic that copies `size` bytes from address to address, in one load and one store."""

    @intrinsic
    def move(_context: Any, dst: Any, src: Any) -> Any:
        def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = ir.IntType(8 * size).as_pointer()
            to, source = (builder.inttoptr(a, pointer) for a in args)
            builder.store(builder.load(source, align=1), to, align=1)

        return types.void(types.int64, types.int64), codegen

    return move


move1, move4, move8 = _mover(1), _mover(4), _mover(8)


@intrinsic
def set_byte(_context: Any, dst: Any, value: Any) -> Any:
    """Write one byte to an address."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(8).as_pointer()), align=1)

    return types.void(types.int64, types.uint8), codegen


def _weaver(builder: Any, to: Any, sources: Any) -> None:
    """Sixteen bytes of each source, woven: a0 b0 c0 ... a1 b1 c1 ..."""
    vector, count = ir.VectorType(ir.IntType(8), 16), len(sources)
    loaded = [builder.load(builder.inttoptr(a, vector.as_pointer()), align=1) for a in sources]

    def shuffled(one: Any, other: Any, mask: list[int]) -> Any:
        return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(mask)), mask))

    join = list(range(32))
    front = shuffled(loaded[0], loaded[1], join)
    back = shuffled(loaded[2], loaded[-1], join)
    woven = shuffled(front, back, [c * 16 + i for i in range(16) for c in range(count)])
    target = builder.inttoptr(to, ir.VectorType(ir.IntType(8), 16 * count).as_pointer())
    builder.store(woven, target, align=1)


@intrinsic
def prefetch(_context: Any, address: Any) -> Any:
    """Ask for the cache line at an address; never faults."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        name = "llvm.prefetch.p0i8"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(function, [builder.inttoptr(args[0], pointer), word(0), word(3), word(1)])

    return types.void(types.int64), codegen


@intrinsic
def weave3(_context: Any, dst: Any, a: Any, b: Any, c: Any) -> Any:
    """Weave sixteen bytes of three sources into 48."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        _weaver(builder, args[0], args[1:])

    return types.void(*(types.int64,) * 4), codegen


@intrinsic
def weave4(_context: Any, dst: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Weave sixteen bytes of four sources into 64."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        _weaver(builder, args[0], args[1:])

    return types.void(*(types.int64,) * 5), codegen
