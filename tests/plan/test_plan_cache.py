"""A folder of pack plans that many share, and plans in it that are damaged."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.data.map_dataset import MapDataset

LENGTHS = np.random.default_rng(0).integers(1, 40, 3000)
DATA = penstock.from_arrays({"tokens": np.arange(LENGTHS.sum())}, lengths=LENGTHS.tolist())


def packs(cache: Path | None) -> MapDataset:
    return DATA.sequences().pack(64, cache=cache)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return packs(None)[:50]["tokens"]


def test_threads_that_share_a_folder_all_get_the_plan(tmp_path: Path, rows: np.ndarray) -> None:
    failed, together = list[BaseException](), threading.Barrier(6)

    def plan(folder: Path) -> None:
        try:
            together.wait()
            np.testing.assert_array_equal(packs(folder)[:50]["tokens"], rows)
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    for i in range(8):
        threads = [threading.Thread(target=plan, args=(tmp_path / str(i),)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(list((tmp_path / str(i)).iterdir())) == 1
    assert failed == []


def test_a_damaged_plan_is_made_again(tmp_path: Path, rows: np.ndarray) -> None:
    packs(tmp_path)[:1]
    (path,) = tmp_path.iterdir()
    raw, inode = path.read_bytes(), path.stat().st_ino
    packs(tmp_path)[:1]
    assert path.stat().st_ino == inode  # a sound plan is not made again
    numbers = random.Random(0)
    damaged = [b"", raw[:100], raw[:-1], raw + b"\0", b"penstock packs 1\n{}\n", numbers.randbytes(500)]
    for _ in range(20):
        i = numbers.randrange(len(raw))
        damaged.append(raw[:i] + bytes([raw[i] ^ 1 << numbers.randrange(8)]) + raw[i + 1 :])
    for each in damaged:
        path.write_bytes(each)
        np.testing.assert_array_equal(packs(tmp_path)[:50]["tokens"], rows)
        assert path.read_bytes() == raw


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((NotADirectoryError, FileExistsError), match="file"):
        packs(tmp_path / "file" / "plans")[:1]
