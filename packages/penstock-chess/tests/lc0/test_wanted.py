"""Some frames of a chunk: those of the whole chunk, without unpacking what is behind them."""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from lc0.conftest import Raw
from penstock.containers import gunzip
from penstock.containers.tar import compress
from penstock_chess.formats.lc0 import ChunkError, ChunkFile, Reason, open_chunks


def opened(path: Path, verify: bool = False) -> ChunkFile:
    found = open_chunks(path, missing_st="nan", verify=verify)
    assert found is not None
    return found


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def takes(n: int, seed: int) -> list[np.ndarray]:
    """Ascending places: none, the ends, a few, nearly all, all."""
    draw = np.random.default_rng(seed)
    some = [np.sort(draw.choice(n, size, replace=False)) for size in {1, n // 3 or 1, n - 1 or 1}]
    return [np.arange(0), np.array([0]), np.array([n - 1]), *some, np.arange(n)]


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("library", ["zlib-ng", "zlib"])
@pytest.mark.parametrize("folder", ["gz", "tar", "v7", "old", "formats"])
def test_some_frames_are_those_of_the_whole_chunk(
    golden: Path, monkeypatch: pytest.MonkeyPatch, folder: str, library: str, verify: bool
) -> None:
    if library == "zlib":
        monkeypatch.setattr(gunzip, "inflating", lambda: gunzip.zlib)
    for path in sorted((golden / folder).iterdir()):
        file = opened(path, verify)
        for i in range(min(len(file), 4)):
            whole = file.load(i)
            for places in takes(len(whole), i):
                told: list[int] = []
                some = file.load(i, lambda n, places=places, told=told: told.append(n) or places)
                assert set(told) == {len(whole)}
                assert np.array_equal(some, whole[places])


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("n", [1, 6, 7, 8, 15, 40])
@pytest.mark.parametrize("compressed", [True, False])
def test_every_place_of_every_version(raw: Raw, tmp_path: Path, version: int, n: int, compressed: bool) -> None:
    data = raw(n, version)
    file = opened(put(tmp_path / "a.gz", gzip.compress(data, mtime=0) if compressed else data))
    whole = file.load(0)
    for place in range(n):
        assert np.array_equal(file.load(0, lambda n, place=place: np.array([place])), whole[place : place + 1])


def test_what_is_behind_is_not_unpacked_unless_it_is_to_be_verified(golden: Path, tmp_path: Path) -> None:
    data = bytearray((golden / "gz" / "training.700001.gz").read_bytes())
    data[len(data) * 3 // 4] ^= 0x55
    path = put(tmp_path / "a.gz", bytes(data))
    assert opened(path).load(0, lambda n: np.array([0])).shape == (1, 8396)
    with pytest.raises(ChunkError):
        opened(path, verify=True).load(0, lambda n: np.array([0]))
    with pytest.raises(ChunkError):
        opened(path).load(0, np.arange)


@pytest.mark.parametrize("take", [np.arange, lambda n: np.array([n - 1])])
def test_a_chunk_of_other_than_the_told_frames_is_bad(raw: Raw, tmp_path: Path, take: object) -> None:
    data = gzip.compress(raw(5), mtime=0)
    lying = data[:-4] + (7 * 8356).to_bytes(4, "little")
    with pytest.raises(ChunkError) as caught:
        opened(put(tmp_path / "a.gz", lying)).load(0, take)  # pyright: ignore[reportArgumentType]
    assert caught.value.reason in (Reason.SIZE, Reason.CRC)


def test_several_members_are_read_whole(raw: Raw, tmp_path: Path) -> None:
    data = gzip.compress(raw(2)) + gzip.compress(raw(3, first=2))
    file = opened(put(tmp_path / "a.gz", data))
    assert np.array_equal(file.load(0, lambda n: np.array([1, n - 1])), file.load(0)[[1, 4]])


def test_frames_of_another_version_among_those_that_are_wanted_are_seen(raw: Raw, tmp_path: Path) -> None:
    data = bytearray(raw(9, 6))
    data[4 * 8356] = 7
    file = opened(put(tmp_path / "a.gz", gzip.compress(bytes(data))))
    assert len(file.load(0, lambda n: np.array([2, 5]))) == 2
    for places in ([4], [2, 4]):
        with pytest.raises(ChunkError) as caught:
            file.load(0, lambda n, places=places: np.array(places))
        assert caught.value.reason == Reason.MIXED


def test_whatever_bits_are_flipped_every_library_gives_the_same_frames_or_reason(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (golden / "gz" / "training.700001.gz").read_bytes()
    draw, reasons, frames = np.random.default_rng(2), set[str](), 0
    for _ in range(150):
        damaged = bytearray(data)
        damaged[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))
        path, place = put(tmp_path / "b.gz", bytes(damaged)), draw.random()
        outcomes: list[bytes | str] = []
        for library in (compress.inflating(), zlib):
            monkeypatch.setattr(gunzip, "inflating", lambda library=library: library)
            try:
                found = opened(path).load(0, lambda n, place=place: np.array([int(place * n)]))
                outcomes.append(found.tobytes())
            except ChunkError as error:
                outcomes.append(str(error.reason))
        assert outcomes[0] == outcomes[1]
        frames += isinstance(outcomes[0], bytes)
        reasons |= {outcomes[0]} if isinstance(outcomes[0], str) else set()
    assert frames
    assert reasons


def test_without_the_library_zlib_unpacks(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = golden / "gz" / "training.700001.gz"
    expected = opened(path).load(0)
    monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    compress.inflating.cache_clear()
    try:
        assert compress.inflating() is zlib
        assert np.array_equal(opened(path).load(0), expected)
        assert np.array_equal(opened(path).load(0, lambda n: np.array([n - 1])), expected[-1:])
    finally:
        compress.inflating.cache_clear()


@pytest.mark.parametrize("version", [3, 5, 6, 7])
def test_records_as_they_are_stored(raw: Raw, tmp_path: Path, version: int) -> None:
    """Versions 6 and 7 alone: older ones have another layout."""
    data = raw(9, version)
    path = put(tmp_path / "a.gz", gzip.compress(data))
    whole, stored = opened(path).load(0), open_chunks(path, missing_st="nan", as_stored=True)
    assert stored is not None
    for places in takes(9, 1):
        found = stored.load(0, lambda n, places=places: places)
        if version < 6:
            assert np.array_equal(found, whole[places])
        else:
            assert found.tobytes() == np.frombuffer(data, np.uint8).reshape(9, -1)[places].tobytes()
    assert stored.load(0).shape == (9, {6: 8356}.get(version, 8396))


def test_frames_that_are_held_are_not_written_over(golden: Path) -> None:
    file = opened(next((golden / "tar").iterdir()))
    held = [file.load(i % len(file)) for i in range(6)]
    copies = [frames.copy() for frames in held]
    parts = [file.load(0)[3:], file.load(1)[:2]]
    kept = [part.copy() for part in parts]
    for i in range(len(file)):
        file.load(i)
    assert all(np.array_equal(a, b) for a, b in zip([*held, *parts], [*copies, *kept], strict=True))
