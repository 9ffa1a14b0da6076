"""Recognition, options, and damaged datasets: what is sound stays readable, and the rest is named."""

# pyright: basic

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.arrow import ParquetFile
from penstock.errors import ArgumentError, DamageWarning, FormatError, RemoteError, UnsafeDataError
from penstock.formats.lerobot import FORMAT
from penstock.formats.lerobot.columns import encoded_images, rows_of
from penstock.formats.lerobot.info import read_info
from penstock.testing.examples import field
from tests.formats.lerobot.files import write_new, write_old
from tests.formats.lerobot.test_lerobot_contract import SPEC, Frames

GOLDEN = Path(__file__).parents[2] / "golden" / "lerobot"
EPISODES = Frames("frames", SPEC, (3, 1, 7, 2, 5)).episodes()


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file."""
    entries = json.loads(path.read_text())
    change(entries)
    path.write_text(json.dumps(entries))


def lengths(path: Path) -> list[int]:
    with pytest.warns(DamageWarning), penstock.open(path) as data:
        return np.diff(data.source.offsets).tolist()


def messages(path: Path) -> str:
    """Findings of the format and of the account, and of values that cannot be read."""
    account = {"bad-file", "damaged-part", "missing-part", "unused-rows", "other-file", "unreadable"}
    values = [f for f in penstock.check(path, deep=True).findings if f.name in account]
    return "\n".join(f"{f.name} {f.where}: {f.message}" for f in [*FORMAT.check(path), *values])


def test_a_file_without_footer_costs_its_episodes_alone(tmp_path: Path) -> None:
    root = write_new(tmp_path / "data", EPISODES)
    file = root / "data/chunk-000/file-001.parquet"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.warns(DamageWarning, match=r"left out 2 episodes: data/chunk-000/file-001.parquet: episodes \[2, 3\]"):
        data = penstock.open(root)
    assert np.diff(data.source.offsets).tolist() == [3, 1, 5]
    assert data[2].columns["actions"].tobytes() == EPISODES[4].columns["actions"].tobytes()
    assert [(each.thing, each.reason, each.count) for each in data.source.account.left_out] == [
        ("episode", "bad-file", 2)
    ]
    assert "bad-file data/chunk-000/file-001.parquet: episodes [2, 3]: left out: " in messages(root)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), RemoteError("it does not answer")])
def test_no_episode_is_left_out_for_a_file_that_cannot_be_read_now(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_new(tmp_path / "data", EPISODES)

    def unreadable(path: Path, footers: Any) -> ParquetFile:
        if path.name == "file-001.parquet":
            raise error
        return ParquetFile(path, footers)

    monkeypatch.setattr("penstock.formats.lerobot.source.ParquetFile", unreadable)
    with pytest.raises(type(error), match=str(error)[-12:]):
        penstock.open(root)


def test_missing_files_and_wrong_lengths_are_named(tmp_path: Path) -> None:
    root = write_old(tmp_path / "data", EPISODES)
    (root / "data/chunk-000/episode_000001.parquet").unlink()
    shutil.copy(root / "data/chunk-000/episode_000000.parquet", root / "data/chunk-000/episode_000003.parquet")
    assert lengths(root) == [3, 7, 5]
    found = messages(root)
    assert "damaged-part episode 3: left out: expected 2 rows next to each other, got 3" in found
    assert "missing-part data/chunk-000/episode_000001.parquet: episode 1: " in found


def test_rows_that_are_not_together_and_gaps_are_named(tmp_path: Path) -> None:
    root = write_new(tmp_path / "data", EPISODES, each=5, group=4)
    file = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.take(pa.array([*range(5), 11, *range(5, 11), *range(12, 18)])), file)
    assert lengths(root) == [3, 1, 5]  # a row of episode 3 is within episode 2
    assert "episode 2: left out: expected 7 rows next to each other, got several parts" in messages(root)
    parts = [table.slice(0, 4), table.slice(11)]  # episode 2 was removed, here and in the metadata
    pq.write_table(pa.concat_tables(parts), file)
    meta = root / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(meta)
    pq.write_table(rows.take(pa.array([0, 1, 3, 4])), meta)
    data = penstock.open(root)
    assert data.source.table()["episode_index"].tolist() == [0, 1, 3, 4]
    assert data[3].columns["episode_index"].tolist() == [4] * 5
    found = messages(root)
    assert "numbering meta/episodes: expected every episode up to 4, got none with the index [2]" in found
    assert "totals meta/info.json/total_frames: expected 11, as the episodes have, got 18" in found


def test_timestamps_and_indices_off_are_findings(tmp_path: Path) -> None:
    root = write_old(tmp_path / "data", EPISODES)
    file = root / "data/chunk-000/episode_000002.parquet"
    table = pq.read_table(file)
    number = table.schema.get_field_index("timestamp")
    late = pa.array((np.arange(7) / 10 + (np.arange(7) == 4) * 2e-4).astype("f4"))
    pq.write_table(table.set_column(number, "timestamp", late), file)
    assert "time-rate episode 2: expected timestamp 0.4 at step 4, got 0.400" in messages(root)
    assert len(penstock.open(root)) == 5


def test_damaged_metadata_of_episodes(tmp_path: Path) -> None:
    root = write_new(tmp_path / "data", EPISODES)
    folder = root / "meta/episodes/chunk-000"
    rows = pq.read_table(folder / "file-000.parquet")
    pq.write_table(rows.slice(0, 3), folder / "file-000.parquet")
    (folder / "file-001.parquet").write_bytes(b"PAR1" + b"\0" * 50)
    assert lengths(root) == [3, 1, 7]
    pq.write_table(rows.slice(2, 1), folder / "file-001.parquet")
    with pytest.raises(FormatError, match="expected one entry for each episode, got two for 2"):
        penstock.open(root)
    shutil.rmtree(folder)
    with pytest.raises(FormatError, match="expected Parquet files in meta/episodes"):
        penstock.open(root)


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    root = write_old(tmp_path / "data", EPISODES)
    shutil.rmtree(root / "data")
    with pytest.raises(FormatError, match=r"got 5 damaged ones: data/chunk-000/episode_000004.parquet: episode 4: "):
        penstock.open(root)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("codebase_version", "v9.0", "expected a codebase_version among"),
        ("fps", 0, "expected a number of frames a second"),
        ("features", [], "expected data of one of the formats|expected an object"),
    ],
)
def test_damaged_info(tmp_path: Path, entry: str, value: object, message: str) -> None:
    root = write_old(tmp_path / "data", EPISODES)
    changed(root / "meta/info.json", lambda info: info.update({entry: value}))
    with pytest.raises(FormatError, match=message):
        penstock.open(root, format="lerobot")


def test_names_of_files_stay_in_the_folder(tmp_path: Path) -> None:
    root = write_old(tmp_path / "data", EPISODES)
    for name in ("../{episode_index:06d}.parquet", "/x/{episode_index}", "{episode_index.real}", "{other}"):
        changed(root / "meta/info.json", lambda info, name=name: info.update(data_path=name))
        with pytest.raises((UnsafeDataError, FormatError)):
            penstock.open(root)


def test_features_that_no_column_can_have_are_left_out(tmp_path: Path) -> None:
    root = write_old(tmp_path / "data", EPISODES)
    new = {
        "a": {"dtype": "object", "shape": [1]},
        "b": {"dtype": "float32", "shape": [-1]},
        "c": {"dtype": "image", "shape": [3]},
        "d": {"dtype": "float32", "shape": [4]},
    }
    changed(root / "meta/info.json", lambda info: info["features"].update(new))
    with pytest.warns(DamageWarning, match=r"left out 4 columns: a \(expected the dtype"):
        data = penstock.open(root)
    left_out = [(each.where, each.reason) for each in data.source.account.left_out]
    assert left_out == [*((name, "unsupported-dtype") for name in "abc"), ("d", "missing-part")]
    with pytest.raises(ArgumentError, match="no column 'd'"):
        penstock.open(root, columns=["d"])


def test_splits_and_columns(tmp_path: Path) -> None:
    root = write_new(tmp_path / "data", EPISODES)
    changed(root / "meta/info.json", lambda info: info.update(splits={"train": "0:3", "val": "3:5", "odd": "all"}))
    assert np.diff(penstock.open(root, split="val").source.offsets).tolist() == [2, 5]
    assert list(penstock.open(root, columns=["task", "observation.state"]).spec) == ["observations/state", "task"]
    assert messages(root) == ""
    with pytest.raises(ArgumentError, match="did you mean 'train'"):
        penstock.open(root, split="trian")
    with pytest.raises(FormatError, match="expected a range"):
        penstock.open(root, split="odd")
    with pytest.raises(ArgumentError, match="decode 'rgb8' or 'bytes'"):
        penstock.open(root, decode="png")


def test_a_task_without_text_is_an_error(tmp_path: Path) -> None:
    root = write_old(tmp_path / "data", EPISODES)
    lines = (root / "meta/tasks.jsonl").read_text().splitlines()
    (root / "meta/tasks.jsonl").write_text(lines[0] + "\n")
    data = penstock.open(root)
    with pytest.raises(FormatError, match=r"expected the number of a task among \[0\], got \[1, 2\]"):
        data[0].columns["task"]
    (root / "meta/tasks.jsonl").unlink()
    assert "task" not in penstock.open(root).spec


def test_values_that_the_dtype_cannot_hold() -> None:
    assert rows_of(pa.array([[1.5], [2.5]]), field("f4")).tolist() == [1.5, 2.5]
    for array, wanted, message in (
        (pa.array([1.5]), field("i8"), "expected int64, got float64"),
        (pa.array([[1.0, 2.0]]), field("f8"), "length 1"),
        (pa.array([1.0]), field("f8", 2), r"expected rows of shape \(2,\)"),
        (pa.array(["a"]), field("f8"), "expected numbers"),
        (pa.array([1]), field("u1", kind="text"), "expected text"),
        (pa.array([1, None]), field("i8"), "expected a value in every row"),
    ):
        with pytest.raises(FormatError, match=message):
            rows_of(array, wanted)
    for array, message in (
        (pa.array([{"bytes": b"", "path": "a"}, {"bytes": None, "path": "b"}]), "1 rows without; embed"),
        (pa.array([{"path": "a"}]), "expected images with bytes"),
        (pa.array(["a"]), "expected the bytes of images"),
    ):
        with pytest.raises(FormatError, match=message):
            encoded_images(array)


def test_axes_of_cameras_by_name_or_by_size(tmp_path: Path) -> None:
    cameras: dict[str, Any] = {
        "last": {"dtype": "image", "shape": [4, 6, 3], "names": ["height", "width", "channel"]},
        "first": {"dtype": "image", "shape": [3, 4, 6], "names": ["channels", "height", "width"]},
        "unnamed": {"dtype": "image", "shape": [3, 4, 6], "names": None},
    }
    path = tmp_path / "meta/info.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"codebase_version": "v2.0", "fps": 5, "features": cameras}))
    assert {feature.shape for feature in read_info(tmp_path).features.values()} == {(4, 6, 3)}


def copied(name: str, tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    return tmp_path / name


def test_missing_and_short_videos_are_named(tmp_path: Path) -> None:
    root = copied("v21_video", tmp_path)
    folder = root / "videos/chunk-000/observation.images.top"
    shutil.copy(folder / "episode_000002.mp4", folder / "episode_000000.mp4")  # 13 frames for 25 rows
    (folder / "episode_000003.mp4").unlink()
    assert lengths(root) == [40, 13]
    found = messages(root)
    video = "videos/chunk-000/observation.images.top/episode_00000"
    assert f"missing-part {video}3.mp4: episode 3: left out: expected a video file, got none" in found
    assert f"expected 25 frames up to 2.4 s in its part of {video}0.mp4, got 13, the last at 1.2 s" in found
    assert np.diff(penstock.open(root, columns=["observation.images.wrist"]).source.offsets).tolist() == [
        25,
        40,
        13,
        31,
    ]
    with pytest.warns(DamageWarning, match=r"left out 2 episodes: .*000003.mp4: episode 3 .*; episode 0 \("):
        data = penstock.open(root)
    assert data[0].columns["observations/images/top"].shape == (40, 64, 96, 3)
    with pytest.warns(DamageWarning):
        data = penstock.open(root, check_videos=False)
    with pytest.raises(FormatError, match=r"expected a frame within 0\.0001\d* s of 2\.4 s"):
        data[0].columns["observations/images/top"]


def test_frames_of_another_size_and_odd_cameras(tmp_path: Path) -> None:
    root = copied("v3_video", tmp_path)

    def change(info: dict[str, Any]) -> None:
        info["features"]["observation.images.top"]["shape"] = [64, 97, 3]
        info["features"]["observation.images.wrist"]["shape"] = [48, 64, 1]

    changed(root / "meta/info.json", change)
    with pytest.warns(
        DamageWarning, match=r"left out 1 column: observation.images.wrist \(expected a video of 3 channels"
    ):
        data = penstock.open(root)
    with pytest.raises(FormatError, match=r"expected frames of \(64, 97, 3\), got \(64, 96, 3\)"):
        data[0].columns["observations/images/top"]
    with pytest.raises(FormatError, match="expected a frame within"):
        penstock.open(copied("v3_video", tmp_path / "b"), tolerance_s=0)[3].columns["observations/images/top"]
