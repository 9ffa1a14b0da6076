from __future__ import annotations

import zlib
from math import factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.permute import LARGEST, permute
from tests.kernels.reference import permute as reference

SEAMS = [1, 2, 3, *(2**k + d for k in (2, 3, 4, 6, 8, 10, 12) for d in (-1, 0, 1)), 10007]
GOLDEN_10 = [8, 0, 3, 2, 6, 7, 4, 1, 5, 9]
GOLDEN_CRC = [564881500, 4289823337, 2425535251]


def order(n: int, seed: int = 0, stream: int = 0, **options: Any) -> Any:
    return permute(np.arange(n), np.full(n, n), np.full(n, stream), seed, **options)


@pytest.mark.parametrize("n", [*SEAMS, 65537, 1048577])
def test_every_length_is_permuted_exactly(n: int) -> None:
    there = order(n, seed=n)
    np.testing.assert_array_equal(np.sort(there), np.arange(n))
    back = permute(there, np.full(n, n), np.zeros(n, np.int64), n, inverse=True)
    np.testing.assert_array_equal(back, np.arange(n))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("n", [*SEAMS, 65537, 2**52 - 1, 2**52, 2**52 + 1, 2**61 + 7, LARGEST])
def test_the_cipher_equals_its_definition(n: int, inverse: bool) -> None:
    x = np.unique(np.linspace(0, n - 1, 1500).astype(np.int64).clip(0, n - 1))
    mixed = np.where(np.arange(len(x)) % 7, n, x + 1), np.arange(len(x)) // 5
    there = permute(x, *mixed, 2**64 - 1, inverse=inverse)
    np.testing.assert_array_equal(there, reference.permute(x, *mixed, 2**64 - 1, inverse=inverse))
    assert np.all((there >= 0) & (there < mixed[0]))


@settings(deadline=None)
@given(st.integers(1, LARGEST), st.integers(0, 2**64 - 1), st.integers(0, 2**62), st.data())
def test_inverse_undoes(n: int, seed: int, stream: int, data: Any) -> None:
    x = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), np.int64)
    size, streams = np.full(len(x), n), np.full(len(x), stream)
    there = permute(x, size, streams, seed)
    np.testing.assert_array_equal(permute(there, size, streams, seed, inverse=True), x)


def test_the_order_is_part_of_the_format() -> None:
    """Saved positions mean these orders: they may not change between versions."""
    assert order(10).tolist() == GOLDEN_10
    crcs = [zlib.crc32(order(n, seed=3, stream=2).astype("<i8").tobytes()) for n in (100, 4097, 65537)]
    assert crcs == GOLDEN_CRC


def chi_square(counts: Any, expected: float) -> float:
    """Standard deviations above what chance gives."""
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_orders_of_few_are_equally_likely(n: int) -> None:
    seeds = 40_000
    orders = permute(np.tile(np.arange(n), seeds), np.full(n * seeds, n), np.repeat(np.arange(seeds), n), 5)
    codes = orders.reshape(seeds, n) @ n ** np.arange(n)
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == factorial(n)
    assert chi_square(counts, seeds / factorial(n)) < 5


@pytest.mark.parametrize("n", [7, 9, 12, 16, 25, 49, 64])
def test_pairs_land_anywhere(n: int) -> None:
    seeds = 100_000
    for i, j in ((0, 1), (0, n // 2), (1, n - 1)):
        a, b = (permute(np.full(seeds, v), np.full(seeds, n), np.arange(seeds), 11) for v in (i, j))
        counts = np.bincount(a * n + b, minlength=n * n).reshape(n, n)
        assert not counts.diagonal().any()
        assert chi_square(counts[~np.eye(n, dtype=bool)], seeds / (n * n - n)) < 5


@pytest.mark.parametrize("n", [1000, 1025, 4095, 4097, 1_000_003])
def test_an_element_lands_anywhere_over_seeds(n: int) -> None:
    seeds, bins = 50_000, 50
    for x in (0, 1, n // 2, n - 1):
        places = permute(np.full(seeds, x), np.full(seeds, n), np.arange(seeds), 13)
        assert chi_square(np.bincount(places * bins // n, minlength=bins), seeds / bins) < 5


@pytest.mark.parametrize("n", [10_000, 65_536, 1_000_003])
@pytest.mark.parametrize("lag", [1, 2, 3, 100, 256])
def test_neighbours_are_unrelated(n: int, lag: int) -> None:
    """No lines: neither ranks nor steps of an order are correlated, and no step is common."""
    there = order(n, seed=2)
    a, b = there[:-lag], there[lag:]
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(n)
    steps = np.bincount((b - a) % n, minlength=n)
    assert steps.max() < 12


def test_one_bit_of_the_position_changes_half_of_the_bits() -> None:
    n = 1 << 30
    x = np.random.default_rng(0).integers(0, n, 4000)
    size, stream = np.full(len(x), n), np.zeros(len(x), np.int64)
    here = permute(x, size, stream, 1)
    for bit in range(30):
        changed = here ^ permute(x ^ (1 << bit), size, stream, 1)
        share = np.unpackbits(changed.astype("<u4").view(np.uint8)).sum() / (30 * len(x))
        assert 0.49 < share < 0.51


def test_seed_and_stream_both_count() -> None:
    orders = {tuple(order(50, seed, stream)) for seed in range(20) for stream in range(20)}
    assert len(orders) == 400


@pytest.mark.parametrize(("x", "size"), [(-1, 5), (5, 5), (0, 0), (2**62, 7)])
def test_a_position_outside_is_refused(x: int, size: int) -> None:
    zero = np.zeros(700, np.int64)
    places, sizes = zero.copy(), zero + 9
    places[600], sizes[600] = x, size
    with pytest.raises(IndexError, match=f"expected position 600 within 0:{size}, got {x}"):
        permute(places, sizes, zero, 1)


def test_arrays_have_one_length() -> None:
    one, two = np.ones(1, np.int64), np.ones(2, np.int64)
    for arrays in ((one, two, two), (two, one, two), (two, two, one)):
        with pytest.raises(ValueError, match="equal length"):
            permute(*arrays, 1)
