"""The account of LeRobot datasets: leftovers of every kind are named, in versions 2 and 3 and in video."""

# pyright: basic

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.formats.base.source import Source
from penstock.testing.accounts import AccountContract, Leftover, Planted
from tests.formats.lerobot.files import write_new, write_old
from tests.formats.lerobot.test_lerobot_contract import SPEC, Frames
from tests.formats.lerobot.test_lerobot_damage import changed

GOLDEN = Path(__file__).parents[2] / "golden" / "lerobot"
EPISODES = Frames("frames", SPEC, (3, 1, 7, 2, 5)).episodes()
UNFINISHED = "penstock.open refuses unfinished targets of every format: tests/conversion"
MEMBERS = "tables and videos have columns and frames, and no members"


def extra_column(file: str) -> Callable[[Path], object]:
    def plant(path: Path) -> None:
        table = pq.read_table(path / file)
        pq.write_table(table.append_column("force", pa.array(range(len(table)))), path / file)

    return plant


def feature(name: str, **described: Any) -> Callable[[Path], object]:
    return lambda path: changed(path / "meta/info.json", lambda info: info["features"].update({name: described}))


def tail(file: str) -> Callable[[Path], object]:
    return lambda path: (path / file).write_bytes((path / file).read_bytes() + b"PK behind the end")


def junk(file: str) -> Callable[[Path], object]:
    return lambda path: (path / file).write_bytes(b"<html>404</html>")


class Tables(AccountContract):
    absent: ClassVar[Mapping[Leftover, str]] = {"member": MEMBERS, "unfinished": UNFINISHED}

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, format="lerobot", **options).source


class TestVersion3(Tables):
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(
            lambda path: (path / "data/chunk-000/notes.bin").touch(), "other-file", "data/chunk-000/notes.bin"
        ),
        "column": Planted(extra_column("data/chunk-000/file-002.parquet"), "unknown-layout", "force"),
        "array": Planted(feature("odd", dtype="complex64", shape=[2]), "unsupported-dtype", "odd"),
        "tail": Planted(tail("data/chunk-000/file-001.parquet"), "bad-file", "data/chunk-000/file-001.parquet"),
        "bad first file": Planted(
            junk("data/chunk-000/file-000.parquet"), "bad-file", "data/chunk-000/file-000.parquet"
        ),
    }

    def write(self, path: Path) -> Path:
        return write_new(path / "data", EPISODES)


class TestVersion2(Tables):
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(lambda path: shutil.copytree(path / "data", path / "images"), "other-file", "images/"),
        "column": Planted(extra_column("data/chunk-000/episode_000003.parquet"), "unknown-layout", "force"),
        "array": Planted(feature("odd", dtype="float32", shape=[2]), "missing-part", "odd"),
        "tail": Planted(tail("data/chunk-000/episode_000001.parquet"), "bad-file", "episode_000001.parquet"),
        "bad first file": Planted(junk("data/chunk-000/episode_000000.parquet"), "bad-file", "episode_000000.parquet"),
    }

    def write(self, path: Path) -> Path:
        return write_old(path / "data", EPISODES)


VIDEO = "videos/chunk-000/observation.images.top/episode_00000"


class TestVideo(Tables):
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(
            lambda path: shutil.copy(path / f"{VIDEO}0.mp4", path / f"{VIDEO}9.mp4"), "other-file", f"{VIDEO}9.mp4"
        ),
        "column": Planted(
            lambda path: changed(
                path / "meta/info.json",
                lambda info: info["features"]["observation.images.wrist"].update(shape=[48, 64, 1]),
            ),
            "unsupported-dtype",
            "observation.images.wrist",
        ),
        "bad first file": Planted(junk(f"{VIDEO}0.mp4"), "bad-file", f"{VIDEO}0.mp4"),
    }
    absent: ClassVar[Mapping[Leftover, str]] = {
        "array": "columns are planted",
        "tail": "a frame that is behind the end of a video is missing: the numbers of frames and rows are compared",
        **Tables.absent,
    }

    def write(self, path: Path) -> Path:
        return Path(shutil.copytree(GOLDEN / "v21_video", path / "data"))


@pytest.mark.parametrize("name", ["README.md", ".gitattributes", ".cache/huggingface/download/x.metadata", ".DS_Store"])
def test_what_hubs_and_file_managers_leave_is_a_note(name: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "v3_image", tmp_path / "a"))
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).touch()
    with penstock.open(root) as data:  # without a warning
        assert [each.level for each in data.source.account.left_out] == ["note"]
    assert penstock.check(root).sound


def test_rows_of_episodes_that_the_metadata_do_not_describe_are_named(tmp_path: Path) -> None:
    root = write_new(tmp_path / "data", EPISODES, each=5)
    file = root / "meta/episodes/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(file).slice(0, 3), file)
    with pytest.warns(
        penstock.errors.DamageWarning, match=r"left out 2 parts of rows: data/chunk-000/file-000.parquet"
    ):
        data = penstock.open(root)
    assert np.diff(data.source.offsets).tolist() == [3, 1, 7]
    assert "unused-rows" in [f.name for f in penstock.check(root).findings]
    with pytest.warns(penstock.errors.DamageWarning, match="rows"):
        penstock.open(root, split="train", columns=["actions"]).source.close()


def test_chosen_episodes_and_columns_are_not_left_out() -> None:
    for options in ({"columns": ["action"]}, {"split": "train"}, {"decode": "bytes"}):
        with penstock.open(GOLDEN / "v3_image", **options) as data:
            assert data.source.account.left_out == ()
    with penstock.open(GOLDEN / "v3_image") as data:
        assert data.source.account.used["observations/state"] == "observation.state"
