"""Instructions on words of bits: spread the bits of a word over lanes of 1, 2 or 4 bytes; load and store anywhere.

They read and write raw addresses and check nothing: the calling kernel checks ranges, and its caller owns the memory.
Only kernels can call them. Each function states its types and name; the `_emit` function above it writes its
instructions with LLVM's builder. Numba's cache does not see a change in this file: clear the cache after one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from penstock.kernels.intrinsics import Address
from penstock.kernels.jit import intrinsic

Builder: TypeAlias = Any  # llvmlite's `IRBuilder`; llvmlite has no types
Value: TypeAlias = Any  # a value or a type of LLVM


def _int(bits: int) -> Value:
    from llvmlite import ir

    return ir.IntType(bits)


def _vector(kind: Value, lanes: int) -> Value:
    from llvmlite import ir

    return ir.VectorType(kind, lanes)


def _constant(kind: Value, value: object) -> Value:
    from llvmlite import ir

    return ir.Constant(kind, value)


def _undefined(kind: Value) -> Value:
    from llvmlite import ir

    return ir.Constant(kind, cast("Any", ir).Undefined)


def _splat(builder: Builder, value: Value, lanes: int) -> Value:
    head = builder.insert_element(_undefined(_vector(value.type, lanes)), value, _int(32)(0))
    return builder.shuffle_vector(head, head, _constant(_vector(_int(32), lanes), [0] * lanes))


def _pointer(builder: Builder, address: Value, kind: Value) -> Value:
    return builder.inttoptr(address, kind.as_pointer())


def _mark_nontemporal(builder: Builder, store: Value) -> None:
    store.set_metadata("nontemporal", builder.module.add_metadata([_int(32)(1)]))


def _bits_of_store(builder: Builder, word: Value, part: int, lane: int) -> tuple[Value, list[int]]:
    """The bits of a word that one vector store needs: for each lane the bits with its own, and which bit is its own."""
    if lane == 1:  # 64 lanes, each the byte of its rank
        ranks = builder.bitcast(word, _vector(_int(8), 8))
        mask = _constant(_vector(_int(32), 64), [s // 8 for s in range(64)])
        return builder.shuffle_vector(ranks, ranks, mask), [1 << (s % 8 ^ 7) for s in range(64)]
    chunk = builder.trunc(builder.lshr(word, _int(64)(16 * part)), _int(16))
    if lane == 4:
        chunk = builder.zext(chunk, _int(32))
    return _splat(builder, chunk, 16), [1 << (s ^ 7) for s in range(16)]


def _emit_spread(lane: int, around_cache: bool) -> Callable[..., None]:
    """Write a word as 64 elements of `lane` bytes, square `s` from bit `s ^ 7`."""

    def emit(builder: Builder, dst: Value, word: Value, value: Value) -> None:
        element = builder.trunc(value, _int(8 * lane)) if lane < 4 else value
        for part in range(1 if lane == 1 else 4):
            bits, own = _bits_of_store(builder, word, part, lane)
            none = _constant(bits.type, [0] * len(own))
            is_set = builder.icmp_unsigned("!=", builder.and_(bits, _constant(bits.type, own)), none)
            lanes = builder.select(is_set, _splat(builder, element, len(own)), none)
            address = builder.add(dst, _int(64)(part * len(own) * lane))
            store = builder.store(lanes, _pointer(builder, address, bits.type), align=16 if around_cache else 1)
            if around_cache:
                _mark_nontemporal(builder, store)

    return emit


@intrinsic(_emit_spread(1, False), "i8 u8 u4")
def spread1(dst: Address, word: np.uint64, value: np.uint32) -> None:
    """Write a word as 64 bytes at `dst`: the low byte of `value` where a bit is set, else 0."""


@intrinsic(_emit_spread(2, False), "i8 u8 u4")
def spread2(dst: Address, word: np.uint64, value: np.uint32) -> None:
    """Write a word as 64 elements of two bytes at `dst`, as `spread1`."""


@intrinsic(_emit_spread(4, False), "i8 u8 u4")
def spread4(dst: Address, word: np.uint64, value: np.uint32) -> None:
    """Write a word as 64 elements of four bytes at `dst`, as `spread1`."""


@intrinsic(_emit_spread(1, True), "i8 u8 u4")
def stream1(dst: Address, word: np.uint64, value: np.uint32) -> None:
    """Write as `spread1`, around the cache; `dst` is a multiple of 16."""


@intrinsic(_emit_spread(2, True), "i8 u8 u4")
def stream2(dst: Address, word: np.uint64, value: np.uint32) -> None:
    """Write as `spread2`, around the cache; `dst` is a multiple of 16."""


@intrinsic(_emit_spread(4, True), "i8 u8 u4")
def stream4(dst: Address, word: np.uint64, value: np.uint32) -> None:
    """Write as `spread4`, around the cache; `dst` is a multiple of 16."""


def _emit_copy_around(words: int) -> Callable[..., None]:
    def emit(builder: Builder, dst: Value, src: Value) -> None:
        kind = _vector(_int(64), words) if words > 1 else _int(64)
        value = builder.load(_pointer(builder, src, kind), align=1)
        _mark_nontemporal(builder, builder.store(value, _pointer(builder, dst, kind), align=8 * words))

    return emit


@intrinsic(_emit_copy_around(1), "i8 i8")
def around8(dst: Address, src: Address) -> None:
    """Copy 8 bytes around the cache; `dst` is a multiple of 8."""


@intrinsic(_emit_copy_around(2), "i8 i8")
def around16(dst: Address, src: Address) -> None:
    """Copy 16 bytes around the cache; `dst` is a multiple of 16."""


def _emit_fence(builder: Builder) -> None:
    builder.fence("seq_cst")


@intrinsic(_emit_fence, "")
def fence() -> None:
    """Wait until the stores that bypassed the cache are in memory."""


def _emit_load(size: int) -> Callable[..., Value]:
    def emit(builder: Builder, address: Value) -> Value:
        value = builder.load(_pointer(builder, address, _int(8 * size)), align=1)
        return value if size == 8 else builder.zext(value, _int(64))

    return emit


@intrinsic(_emit_load(1), "i8", "i8")
def load1(address: Address) -> int: ...


@intrinsic(_emit_load(2), "i8", "i8")
def load2(address: Address) -> int:
    """Return the two bytes at an address as a number."""
    ...


@intrinsic(_emit_load(4), "i8", "i8")
def load4(address: Address) -> int:
    """Return the four bytes at an address as a number."""
    ...


@intrinsic(_emit_load(8), "i8", "u8")
def load8(address: Address) -> np.uint64: ...


def _emit_store(size: int) -> Callable[..., None]:
    def emit(builder: Builder, dst: Value, value: Value) -> None:
        builder.store(value, _pointer(builder, dst, _int(8 * size)), align=1)

    return emit


@intrinsic(_emit_store(4), "i8 u4")
def store4(dst: Address, value: np.uint32) -> None:
    """Write four bytes to an address."""


@intrinsic(_emit_store(8), "i8 u8")
def store8(dst: Address, value: np.uint64) -> None:
    """Write a word to an address."""


def _emit_differing16(builder: Builder, address: Value, value: Value) -> Value:
    words = builder.load(_pointer(builder, address, _vector(_int(32), 16)), align=1)
    differs = builder.icmp_unsigned("!=", words, _splat(builder, value, 16))
    return builder.zext(builder.bitcast(differs, _int(16)), _int(64))


@intrinsic(_emit_differing16, "i8 u4", "i8")
def differing16(address: Address, value: np.uint32) -> int:
    """Return which of 16 words of 4 bytes are not `value`: bit `j` for word `j`."""
    ...


def _emit_lowest(builder: Builder, bits: Value) -> Value:
    return builder.cttz(bits, _int(1)(0))


@intrinsic(_emit_lowest, "u8", "i8")
def lowest(bits: np.uint64) -> int:
    """Return the number of the lowest set bit; 64 for 0."""
    ...


def _emit_ones(builder: Builder, bits: Value) -> Value:
    return builder.ctpop(bits)


@intrinsic(_emit_ones, "u8", "i8")
def ones(bits: np.uint64) -> int: ...
