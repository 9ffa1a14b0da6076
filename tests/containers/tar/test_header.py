"""Header blocks: what is one, and what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.containers.tar.header import BLOCK, parse
from penstock.errors import FormatError, UnknownFormatError, UnsafeDataError


@pytest.mark.parametrize("first", [0x80, 0xC0, 0xFF])
def test_a_checksum_in_base_256_is_of_no_archive(first: int) -> None:
    block = bytearray(BLOCK)
    block[148] = first
    with pytest.raises(FormatError, match="no octal number") as caught:
        parse(bytes(block), "a.tar", 0)
    assert not isinstance(caught.value, UnsafeDataError)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_dataset(tmp_path: Path, seed: int) -> None:
    noise = np.random.default_rng(seed).integers(128, 256, 4096, np.uint8)
    (tmp_path / "noise.bin").write_bytes(noise.tobytes())
    with pytest.raises(UnknownFormatError):
        penstock.open(tmp_path / "noise.bin")
