"""Few frames of several chunks at once: what reading each by itself gives, and nothing for what is bad."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lc0.conftest import Raw
from penstock_chess.formats.lc0 import ChunkError, ChunkFile, open_chunks
from penstock_chess.formats.lc0 import chunks as chunks_module

GOOD = [(5, 6), (9, 7), (3, 4), (2, 6), (30, 6)]  # frames and version


def archive(path: Path, members: list[bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for i, member in enumerate(members):
            info = tarfile.TarInfo(f"training.{i}.gz")
            info.size = len(member)
            tar.addfile(info, io.BytesIO(member))
    return path


def opened(path: Path, verify: bool = False, as_stored: bool = False) -> ChunkFile:
    found = open_chunks(path, missing_st="nan", verify=verify, as_stored=as_stored)
    assert found is not None
    return found


def takes(n: int, seed: int) -> np.ndarray:
    """Ascending places, fewer than all where there is more than one."""
    draw = np.random.default_rng(seed)
    return np.sort(draw.choice(n, draw.integers(1, max(n, 2)), replace=False))


@pytest.mark.parametrize("as_stored", [False, True])
@pytest.mark.parametrize("folder", ["gz", "tar", "v7", "old", "formats"])
def test_they_are_those_of_the_chunks(
    golden: Path, monkeypatch: pytest.MonkeyPatch, folder: str, as_stored: bool
) -> None:
    monkeypatch.setattr(chunks_module, "TOGETHER", 1 << 30)
    for path in sorted((golden / folder).iterdir()):
        file = opened(path, as_stored=as_stored)
        order = np.random.default_rng(3).integers(len(file), size=7).tolist()
        for _ in range(2):  # not yet known, and known
            some = file.load_some(order, lambda k, n, order=order: takes(n, order[k]))
            for i, frames in zip(order, some, strict=True):
                expected = file.load(i, lambda n, i=i: takes(n, i))
                assert (frames is None) == (len(expected) == len(file.load(i)))
                assert frames is None or (np.array_equal(frames, expected) and frames.dtype == np.uint8)


def test_a_bad_chunk_is_left_out_alone(raw: Raw, tmp_path: Path) -> None:
    good = [gzip.compress(raw(*each), mtime=0) for each in GOOD]
    flipped = gzip.compress(np.random.default_rng(1).bytes(8) + raw(9), mtime=0)
    torn = bytearray(gzip.compress(raw(20) + np.random.default_rng(2).bytes(8356 * 4), mtime=0))
    torn[60:200] = bytes(140)
    lying = good[0][:-4] + (7 * 8356).to_bytes(4, "little")
    several = gzip.compress(raw(4) + raw(1, 5).ljust(8356, b"\0") + raw(4), mtime=0)
    bad = [flipped, bytes(torn), lying, several, b"", raw(4)[:-1]]
    file = opened(archive(tmp_path / "a.tar", [each for pair in zip(good, bad[:5], strict=True) for each in pair]))
    for _ in range(2):
        some = file.load_some(range(10), lambda k, n: np.array([n - 2]) if k != 7 else np.array([1, 4]))
        assert [frames is None for frames in some] == [False, True] * 5
        for i in range(1, 10, 2):
            with pytest.raises(ChunkError):
                file.load(i, lambda n, i=i: np.array([n - 2]) if i != 7 else np.array([1, 4]))
        for i, frames in enumerate(some):
            assert frames is None or np.array_equal(frames, file.load(i, lambda n: np.array([n - 2])))


def test_records_that_are_not_compressed(raw: Raw, tmp_path: Path) -> None:
    file = opened(archive(tmp_path / "a.tar", [raw(4), raw(6, 7)]))
    one, other = file.load_some([1, 0], lambda k, n: np.array([1, 2 + k]))
    assert one is not None
    assert other is not None
    assert np.array_equal(one, file.load(1)[[1, 2]])
    assert np.array_equal(other, file.load(0)[[1, 3]])


def test_whole_chunks_and_those_that_are_to_be_verified_are_left_out(golden: Path) -> None:
    path = next((golden / "tar").iterdir())
    assert opened(path).load_some([0, 1], lambda k, n: np.arange(n)) == [None, None]
    assert opened(path).load_some([0, 1], lambda k, n: np.arange(0)) == [None, None]
    assert opened(path, verify=True).load_some([0, 1], lambda k, n: np.arange(1)) == [None, None]
    assert opened(path).load_some([], lambda k, n: np.arange(1)) == []


def test_what_is_beyond_a_bound_of_bytes_is_left_out(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "TOGETHER", 3 * 8356)
    some = opened(next((golden / "tar").iterdir())).load_some([0, 1, 0, 1], lambda k, n: np.array([1, 2]))
    assert [frames is None for frames in some] == [False, False, True, True]


@pytest.mark.parametrize("change", ["closed", "replaced", "rewritten", "deleted", "cut"])
def test_of_a_file_that_is_no_more_there_is_nothing(golden: Path, tmp_path: Path, change: str) -> None:
    data = next((golden / "tar").iterdir()).read_bytes()
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    file, fresh = opened(path), opened(path)
    assert all(frames is not None for frames in file.load_some([0, 1], lambda k, n: np.array([1])))
    file.close()
    if change == "closed":
        fresh.close()
    elif change == "replaced":
        (tmp_path / "b.tar").write_bytes(data)
        (tmp_path / "b.tar").replace(path)
    elif change == "deleted":
        path.unlink()
    elif change == "cut":
        os.truncate(path, 600)
    else:
        path.write_bytes(data)
        os.utime(path, (7, 7))
    for each in (file, fresh):
        assert each.load_some([0, 1], lambda k, n: np.array([1])) == [None, None]
        with pytest.raises(ChunkError):
            each.load(0, lambda n: np.array([1]))


@pytest.mark.parametrize("i", [-1, 99])
def test_a_number_that_there_is_not_is_an_error(golden: Path, i: int) -> None:
    file = opened(next((golden / "tar").iterdir()))
    file.load_some([0], lambda k, n: np.array([1]))
    with pytest.raises(IndexError):
        file.load_some([0, i], lambda k, n: np.array([1]))
