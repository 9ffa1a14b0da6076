# ruff: noqa: ARG001 - an intrinsic names its arguments for the caller alone
# pyright: reportMissingImports=false, reportCallIssue=false
"""LLVM intrinsics: spread the bits of a word over lanes of 1, 2 or 4 bytes; load and store at any address.

They read and write raw addresses and check nothing: the calling kernel checks ranges, and its caller owns the memory.
Numba's cache does not see a change in this file: clear the cache after one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

I64 = ir.IntType(64)


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    one = ir.VectorType(value.type, lanes)
    head = builder.insert_element(ir.Constant(one, ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(head, head, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))


def _piece(builder: Any, word: Any, part: int, lane: int) -> tuple[Any, list[int]]:
    """Of a word, the bits of one vector store: each lane holds the bits that it may be, and which of them it is."""
    if lane == 1:  # 64 lanes, each the byte of its rank
        ranks = builder.bitcast(word, ir.VectorType(ir.IntType(8), 8))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 64), [s // 8 for s in range(64)])
        return builder.shuffle_vector(ranks, ranks, mask), [1 << (s % 8 ^ 7) for s in range(64)]
    chunk = builder.trunc(builder.lshr(word, I64(16 * part)), ir.IntType(16))
    if lane == 4:
        chunk = builder.zext(chunk, ir.IntType(32))
    return _splat(builder, chunk, 16), [1 << (s ^ 7) for s in range(16)]


def _spreader(lane: int, around_cache: bool) -> Any:
    """An intrinsic that writes a word as 64 elements of `lane` bytes, square `s` from bit `s ^ 7`."""
    element = ir.IntType(8 * lane)

    @intrinsic
    def spread(_context: Any, dst: Any, word: Any, value: Any) -> Any:
        def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            to, bits = args[:2]
            full = builder.trunc(args[2], element) if lane < 4 else args[2]
            for part in range(1 if lane == 1 else 4):
                held, own = _piece(builder, bits, part, lane)
                vector = held.type
                which = builder.and_(held, ir.Constant(vector, own))
                is_set = builder.icmp_unsigned("!=", which, ir.Constant(vector, [0] * len(own)))
                lanes = builder.select(is_set, _splat(builder, full, len(own)), ir.Constant(vector, [0] * len(own)))
                address = builder.add(to, I64(part * len(own) * lane))
                store = builder.store(lanes, builder.inttoptr(address, vector.as_pointer()), align=1)
                if around_cache:
                    store.align = 16
                    store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))

        return types.void(types.int64, types.uint64, types.uint32), codegen

    return spread


spread1, spread2, spread4 = (_spreader(lane, False) for lane in (1, 2, 4))
stream1, stream2, stream4 = (_spreader(lane, True) for lane in (1, 2, 4))


def _around_cache(words: int) -> Any:
    """An intrinsic that copies words of 8 bytes around the cache, to an address that is a multiple of their bytes."""

    @intrinsic
    def copy(_context: Any, dst: Any, src: Any) -> Any:
        def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = (ir.VectorType(I64, words) if words > 1 else I64).as_pointer()
            to, source = (builder.inttoptr(a, pointer) for a in args)
            store = builder.store(builder.load(source, align=1), to, align=8 * words)
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))

        return types.void(types.int64, types.int64), codegen

    return copy


around8, around16 = _around_cache(1), _around_cache(2)


@intrinsic
def fence(_context: Any) -> Any:
    """Wait until the stores that bypassed the cache are in memory."""

    def codegen(_target: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.fence("seq_cst")

    return types.void(), codegen


def _loader(size: int) -> Any:
    """An intrinsic that loads `size` bytes from any address: the whole 8 as uint64, fewer as int64."""

    @intrinsic
    def load(_context: Any, address: Any) -> Any:
        def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], ir.IntType(8 * size).as_pointer()), align=1)
            return value if size == 8 else builder.zext(value, I64)

        return (types.uint64 if size == 8 else types.int64)(types.int64), codegen

    return load


load1, load2, load4, load8 = (_loader(size) for size in (1, 2, 4, 8))


def _storer(size: int, kind: Any) -> Any:
    """An intrinsic that writes 4 or 8 bytes to any address."""

    @intrinsic
    def store(_context: Any, dst: Any, value: Any) -> Any:
        def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], ir.IntType(8 * size).as_pointer()), align=1)

        return types.void(types.int64, kind), codegen

    return store


store4, store8 = _storer(4, types.uint32), _storer(8, types.uint64)


@intrinsic
def differing16(_context: Any, address: Any, value: Any) -> Any:
    """Of 16 words of 4 bytes, which are not `value`: bit `j` for word `j`."""
    vector = ir.VectorType(ir.IntType(32), 16)

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        held = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=1)
        differs = builder.icmp_unsigned("!=", held, _splat(builder, args[1], 16))
        return builder.zext(builder.bitcast(differs, ir.IntType(16)), I64)

    return types.int64(types.int64, types.uint32), codegen


@intrinsic
def lowest(_context: Any, bits: Any) -> Any:
    """The number of the lowest set bit; of 0, 64."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.int64), codegen


@intrinsic
def ones(_context: Any, bits: Any) -> Any:
    """How many bits are set."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen
