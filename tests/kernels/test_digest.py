"""Digests of values in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.digest import digest_of
from tests.kernels.reference.digest import sums_of


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_the_digest_equals_its_definition(words):
    given_words = np.array(words, np.uint64)
    assert np.frombuffer(digest_of(given_words), "<u8", 2).tolist() == sums_of(given_words)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_every_byte_and_its_place_counts(n):
    rng = np.random.default_rng(n)
    data = rng.integers(0, 256, n, dtype=np.uint8)
    seen = {digest_of(data)}
    for i in rng.permutation(n)[:50].tolist():
        changed = data.copy()
        changed[i] ^= 1 << int(rng.integers(8))
        seen.add(digest_of(changed))
        if data[i] != data[i - 1]:
            swapped = data.copy()
            swapped[i], swapped[i - 1] = data[i - 1], data[i]
            seen.add(digest_of(swapped))
    seen |= {digest_of(np.append(data, np.uint8(0))), digest_of(data[:-1]) if n else b""}
    assert len(seen) >= min(n, 50) + 2
    assert digest_of(data.copy()) in seen


def test_where_an_array_lies_does_not_count():
    data = np.random.default_rng(0).integers(0, 256, 100, dtype=np.uint8)
    shifted = np.concatenate([np.zeros(3, np.uint8), data])[3:]
    assert digest_of(shifted) == digest_of(data)
    assert digest_of(np.arange(6).reshape(2, 3)) == digest_of(np.arange(6))
