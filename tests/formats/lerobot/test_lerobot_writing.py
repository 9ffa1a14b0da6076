"""Writing, appending, resuming after kills, and converting LeRobot datasets."""

# pyright: basic

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.arrow import ParquetFile
from penstock.core.damage import collected_damage
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, DataError, FormatError, LockedError, SpecError
from penstock.files import replace
from penstock.formats.lerobot import FORMAT, joining, stats
from penstock.formats.lerobot import writer as writer_module
from penstock.formats.lerobot.episodes import read_entries
from penstock.formats.lerobot.info import read_info
from penstock.formats.lerobot.writer import LeRobotWriter
from penstock.formats.memory import MemorySource
from penstock.testing.compare import assert_same_array
from penstock.testing.examples import EXAMPLES, Example, field, random_episode
from penstock.testing.writers import killed_after

GOLDEN = Path(__file__).parents[2] / "golden" / "lerobot"
SPEC = Spec(
    {
        "observations/state": field("f4", 3),
        "observations/images/top": field("u1", 16, 24, 3),
        "observations/effort": field("f8", 2, 3),
        "actions": field("f2", 1),
        "rewards": field("f8"),
        "terminations": field("?"),
        "infos/note": field("u1", kind="text"),
        "infos/flags": field("?", 4),
        "a.b": field("u2", 2, 1, 2),
        "timestamp": field("f4"),
        "task": field("u1", kind="text"),
    }
)
LENGTHS = (3, 1, 5)


def episode(e: int, steps: int, spec: Spec = SPEC) -> Episode:
    """An episode that is known by its number."""
    made = random_episode(np.random.default_rng(e), spec, steps, e)
    own: dict[str, Any] = {}
    if "timestamp" in spec:
        own["timestamp"] = (np.arange(steps) / 10).astype("f4")
    if "task" in spec:
        own["task"] = Ragged.from_strings([("pick", "place")[(e + t) % 2] for t in range(steps)])
    return Episode(spec, {**made.columns, **own}, e, made.metadata)


EPISODES = [episode(e, steps) for e, steps in enumerate(LENGTHS)]


def same(path: Path, expected: list[Episode]) -> None:
    """Equal columns, metadata and no findings."""
    with penstock.open(path) as data:
        assert len(data) == len(expected)
        for found, wanted in zip(data, expected, strict=True):
            for name in wanted.spec:
                assert_same_array(found.columns[name], wanted.columns[name], name)
            assert {key: found.metadata.get(key) for key in wanted.metadata} == dict(wanted.metadata)


def create(path: Path, spec: Spec = SPEC, **options: Any) -> LeRobotWriter:
    return FORMAT.create(path, spec, {"author": "me", "fps": 10}, **options)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with create(path, robot_type="arm") as writer:
        for n, each in enumerate(EPISODES):
            assert writer.write(each) == n
            same(path, EPISODES[: n + 1])  # at once
        with pytest.raises(LockedError):
            FORMAT.append(path)
    same(path, EPISODES)
    assert list(FORMAT.check(path)) == []
    assert [p.name for p in path.glob("data/*/*")] == ["file-000.parquet"]
    data = penstock.open(path)
    assert {name: data.spec[name] for name in SPEC} == dict(SPEC.fields)
    assert (data.metadata["author"], data.metadata["fps"], data.metadata["robot_type"]) == ("me", 10, "arm")
    assert data[2].columns["index"].tolist() == [4, 5, 6, 7, 8]
    assert data[1].columns["task_index"].tolist() == [1]
    assert data.metadata["splits"] == {"train": "0:3"}
    with FORMAT.append(path) as writer:
        assert writer.spec.fields.keys() == SPEC.fields.keys()
        assert writer.write(EPISODES[1]) == 3
        writer.update_metadata({"author": "you", "tags": ["a"]})
    assert penstock.open(path).metadata["tags"] == ["a"]
    same(path, [*EPISODES, EPISODES[1]])
    with pytest.raises(FileExistsError):
        create(path)


def test_files_are_full_at_their_size_and_folders_at_their_count(tmp_path: Path) -> None:
    spec = Spec({"observations": field("f8", 4)})
    made = [episode(e, 8_000, spec) for e in range(7)]  # 0.4 MiB each
    with create(tmp_path / "data", spec, data_files_size_in_mb=1, chunks_size=2) as writer:
        writer.write_all(made)
    files = sorted(p.relative_to(tmp_path / "data").as_posix() for p in (tmp_path / "data/data").glob("*/*"))
    assert files[:3] == [f"data/chunk-{place}.parquet" for place in ("000/file-000", "000/file-001", "001/file-000")]
    groups = [pq.ParquetFile(tmp_path / "data" / name).num_row_groups for name in files]
    assert (sum(groups), set(groups[:-1])) == (7, {2})  # as LeRobot, a file is full when the next episode would not fit
    assert all((tmp_path / "data" / name).stat().st_size < 1 << 20 for name in files)
    same(tmp_path / "data", made)


def test_each_pending_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving an episode takes as long with many pending episodes as with few."""
    read: list[Path] = []
    real = joining.read_pending_episode

    def noted(info: Any, path: Path) -> Any:
        read.append(path)
        return real(info, path)

    for module in (joining, writer_module):
        monkeypatch.setattr(module, "read_pending_episode", noted)
    spec = Spec({"observations": field("f8", 4)})
    made = [episode(e, 3, spec) for e in range(12)]
    with create(tmp_path / "data", spec) as writer:
        writer.write_all(made[:9])
        assert len(read) == len(set(read)) == 9
    with FORMAT.append(tmp_path / "data") as writer:
        writer.write_all(made[9:])
    assert len(read) == 12
    same(tmp_path / "data", made)


def test_row_groups_are_read_together_where_many_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are equal, also where a row group is damaged, which is then the only one that cannot be read."""
    spec = Spec({"observations": field("f8", 40), "actions": field("f4", 2), "task": field("u1", kind="text")})
    made = [episode(e, 5 + e % 3, spec) for e in range(40)]
    with create(tmp_path / "data", spec) as writer:
        writer.write_all(made)
    together: list[int] = []
    real = ParquetFile.columns

    def noted(self: ParquetFile, groups: Any, name: str) -> Any:
        together.append(len(groups))
        return real(self, groups, name)

    monkeypatch.setattr(ParquetFile, "columns", noted)
    with penstock.open(tmp_path / "data") as data:
        together.clear()
        whole = data.steps()[:]
        assert together == [40] * len(together)
        same(tmp_path / "data", made)
        together.clear()
        same_again = data.steps()[[3, 100]]["actions"]
        assert together == []  # numbers of all row groups are kept as one array
        monkeypatch.setattr("penstock.formats.lerobot.columns.RUN", 200)  # some row groups of actions
        with penstock.open(tmp_path / "data") as again:
            chosen = again.steps().select_columns("actions")[[3, 100]]
            assert_same_array(chosen["actions"], same_again, "actions")
            assert sorted(together) == [4, 5, 40]  # the last of the index
        monkeypatch.setattr("penstock.formats.lerobot.columns.TOGETHER", 99)
        monkeypatch.setattr("penstock.formats.lerobot.columns.RUN", 1)
        together.clear()
        with penstock.open(tmp_path / "data") as again:
            alone = again.steps()[:]
        assert together == [40]  # of the index
        for name in whole:
            assert_same_array(alone[name], whole[name], name)
    monkeypatch.undo()
    file = next((tmp_path / "data/data").rglob("*.parquet"))
    chunk = pq.ParquetFile(file).metadata.row_group(17)
    column = next(chunk.column(i) for i in range(chunk.num_columns) if "observation" in chunk.column(i).path_in_schema)
    begin = column.dictionary_page_offset or column.data_page_offset
    raw = bytearray(file.read_bytes())
    raw[begin : begin + column.total_compressed_size] = bytes([255]) * column.total_compressed_size
    file.write_bytes(raw)
    with penstock.open(tmp_path / "data") as data:
        with pytest.raises(FormatError, match="row group 17"):
            data.steps().select_columns("observations")[:]
        np.testing.assert_array_equal(data[16].observations, made[16].columns["observations"])


@pytest.mark.parametrize("name", ["depth_image_mm", "depth_image_m", "language", "v3_image"])
def test_statistics_equal_those_of_lerobot(name: str) -> None:
    """To the last bit, but for bytes: 0.4.4 (`v3_image`) squares them as bytes, and 0.6.1 sums them as float32."""
    source = FORMAT.open(GOLDEN / name)
    old = name == "v3_image"
    depth = source.metadata.get("depth", {})
    whole: dict[str, Any] = {}
    for e, stored in enumerate(source.episode_statistics(range(len(source.state.episodes)))):
        for path, expected in stored.items():
            values: Any = source.episode(e).columns[path]
            if path == "timestamp":
                values = np.arange(len(values)) / 10  # LeRobot computes them before they become float32
            scale = 1.0 if path in depth else 255.0
            found = stats.picture_figures(values, scale) if "images" in path else stats.column_figures(values)
            whole[path] = stats.merged(whole[path], found) if path in whole else found
            for figure, value in expected.items():
                if "images" in path and not old:
                    lost = 5e-4 if figure == "std" else 0.0  # by its sums of squares, of values from 0 to 1
                    np.testing.assert_allclose(found[figure], value, rtol=5e-3, atol=lost)
                elif "images" not in path or figure != "std":
                    np.testing.assert_array_equal(found[figure], value, strict=False, err_msg=f"{path} {figure}")
    if not old:
        return
    images = np.concatenate([each.columns["observations/images/top"] for each in source.episodes()])
    np.testing.assert_allclose(whole["observations/images/top"]["std"].ravel(), images.std((0, 1, 2)) / 255, rtol=1e-6)
    for path, expected in source.metadata["statistics"].items():
        for figure, value in expected.items():
            if "images" not in path or figure != "std":
                np.testing.assert_allclose(whole[path][figure], value, rtol=1e-6, atol=1e-12)


def test_large_pictures_are_thinned_out() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (2, 400, 600, 3), dtype=np.uint8)
    found = stats.picture_figures(frames)
    np.testing.assert_allclose(found["mean"].ravel(), frames[:, ::4, ::4].mean((0, 1, 2)) / 255)
    assert (found["q50"].shape, found["count"].tolist()) == ((3, 1, 1), [2])


@pytest.mark.parametrize("name", ["v3_image", "v3_video"])
def test_datasets_of_lerobot_are_continued(name: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(GOLDEN / name, root)
    before = penstock.open(GOLDEN / name)
    with FORMAT.append(root) as writer:
        spec = writer.spec
        assert "task_index" not in spec
        for e in (2, 0):
            assert writer.write(Episode(spec, {path: before[e].columns[path] for path in spec})) == 4 + (e == 0)
    assert list(FORMAT.check(root)) == []
    with penstock.open(root) as data:
        assert np.diff(data.source.offsets).tolist() == [25, 40, 13, 31, 13, 25]
        for path in spec:
            if "images" not in path or name == "v3_image":
                assert_same_array(data[4].columns[path], before[2].columns[path], path)
            else:
                found = data[4].columns[path].astype(int)
                assert np.abs(found - before[2].columns[path]).mean() < 6  # encoded twice
    files = [pq.read_schema(path).names for path in sorted(root.glob("meta/episodes/*/*"))]
    assert files[0] == files[1]  # LeRobot wants equal columns
    assert data.metadata["statistics"]["actions"]["count"] == [109 + 38]


def test_old_versions_are_not_continued(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v21_image", tmp_path / "data")
    with pytest.raises(FormatError, match=r"version v3\.0 to append to, got v2\.1; convert"):
        FORMAT.append(tmp_path / "data")


NUMBERS = Spec({"observations": field("f4", 2), "actions": field("i8"), "rewards": field("f4")})


def endless(path: Path, first: int) -> Iterator[int]:
    writer = FORMAT.append(path)
    e = first
    while True:
        yield writer.write(episode(e, e % 5 + 1, NUMBERS))
        e += 1
        if e % 4 == 0:
            writer.finalize()


def test_a_kill_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "data"
    create(path, NUMBERS).close()
    count = 0
    for kills in (2, 5, 9):
        count += len(killed_after(kills, partial(endless, path, count)))
        with penstock.open(path) as data:
            assert len(data) in (count, count + 1)  # the last may be saved, but not reported yet
            count = len(data)
        same(path, [episode(e, e % 5 + 1, NUMBERS) for e in range(count)])
    FORMAT.append(path).close()
    assert list(FORMAT.check(path)) == []
    assert list(path.glob(".penstock/episode*")) == []


def test_a_finalizing_that_was_cut_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    for method in ("_write_rows", "_write_totals"):
        writer = create(path, NUMBERS)
        made = [episode(e, 3, NUMBERS) for e in range(4)]
        writer.write_all(made[:3])

        def cut(*given: object) -> None:
            raise OSError("disk full")

        with monkeypatch.context() as patched:
            patched.setattr(LeRobotWriter, method, cut)
            with pytest.raises(OSError, match="disk full"):
                writer.close()
        same(path, made[:3])
        with FORMAT.append(path) as again:
            again.write(made[3])
        same(path, made)
        assert list(FORMAT.check(path)) == []
        assert json.loads((path / "meta/info.json").read_text())["total_frames"] == 12
        assert penstock.open(path).metadata["statistics"]["actions"]["count"] == [12]
        shutil.rmtree(path)


CAMERAS = Spec({"a": field("u1", 32, 64, 3), "b": field("u1", 32, 48, 3), "actions": field("f4", 2)})


def filmed(e: int, steps: int) -> Episode:
    """An episode of noise, some hundred bytes a frame of `a` and ten thousand of `b`."""
    made = episode(e, steps, CAMERAS)
    return Episode(CAMERAS, {**made.columns, "a": np.full((steps, 32, 64, 3), e, np.uint8)}, e, made.metadata)


def film(path: Path, **options: Any) -> LeRobotWriter:
    return create(path, CAMERAS, cameras="video", codec="ffv1", g=1, **options)


def test_videos_are_full_at_their_size(tmp_path: Path) -> None:
    path = tmp_path / "data"
    made = [filmed(e, 60) for e in range(5)]  # 0.4 MiB each of `b`
    with film(path, video_files_size_in_mb=1, chunks_size=2) as writer:
        writer.write_all(made)
        same(path, made)  # before they are joined
    same(path, made)
    assert list(FORMAT.check(path)) == []
    rows = pq.read_table(path / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    places = {
        camera: [(row[f"videos/{camera}/chunk_index"], row[f"videos/{camera}/file_index"]) for row in rows]
        for camera in "ab"
    }
    assert places == {"a": [(0, 0)] * 5, "b": [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0)]}
    assert [row["videos/b/from_timestamp"] for row in rows] == [0, 6, 0, 6, 0]
    assert [row["videos/a/to_timestamp"] for row in rows] == [6, 12, 18, 24, 30]
    assert all(file.stat().st_size < 1 << 20 for file in path.glob("videos/*/*/*"))
    with FORMAT.append(path) as writer:  # begins with a file of its own
        writer.write(made[0])
    same(path, [*made, made[0]])
    assert len(list(path.glob("videos/a/*/*"))) == 2
    assert [file.name for file in (path / ".penstock").iterdir()] == ["lock"]


CALLS = "replace", "rename", "unlink", "fsync", "mkdir", "rmdir", "link"


def ended_at(step: int, path: Path) -> bool:
    """Join the episodes in a process that ends before its call number `step` of CALLS. Returns whether it was done."""
    child = os.fork()
    if child == 0:
        calls = [0]

        def counted(real: Any) -> Any:
            def call(*given: Any, **options: Any) -> Any:
                calls[0] += 1
                if calls[0] == step:
                    os._exit(9)
                return real(*given, **options)

            return call

        try:
            writer = FORMAT.append(path)
            for name in CALLS:
                setattr(os, name, counted(getattr(os, name)))
            replace._renameat2 = counted(replace._renameat2)
            writer.close()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 0


def test_a_kill_at_any_step_of_joining_loses_nothing(tmp_path: Path) -> None:
    made = [filmed(e, 2 + e) for e in range(3)]
    writer = film(tmp_path / "saved", video_files_size_in_mb=1)
    writer.write_all(made)
    os.close(writer._lock)  # as a kill does
    stranger = "videos/b/chunk-000/file-007.mp4"
    for step in itertools.count(1, 3):
        path = tmp_path / str(step)
        shutil.copytree(tmp_path / "saved", path)
        (path / stranger).parent.mkdir(parents=True)
        (path / stranger).write_bytes(b"left by another program")
        done = ended_at(step, path)
        with collected_damage() as messages:
            same(path, made)
            with FORMAT.append(path) as writer:
                writer.write(filmed(3, 2))
            same(path, [*made, filmed(3, 2)])
        assert len(messages) == 2  # each names the stranger alone
        assert all(f"left out 1 file: {stranger} (" in message for message in messages)
        assert list(FORMAT.check(path)) == []
        assert [file.name for file in (path / ".penstock").iterdir()] == ["lock"]
        named = {video.file for entry in read_entries(read_info(path), []) for video in entry.videos.values()}
        assert set(path.glob("videos/*/*/*")) == named | {path / stranger}
        if done:
            break
    assert step > 15


def test_errors_leave_the_dataset_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with create(path, NUMBERS) as writer:
        writer.write(episode(0, 2, NUMBERS))
        with pytest.raises(SpecError):
            writer.write(EPISODES[0])
        with pytest.raises(DataError, match="at least one step"):
            writer.write(episode(0, 0, NUMBERS))
        odd = Episode(NUMBERS, episode(1, 2, NUMBERS).columns, 0, {"x": object()})
        with pytest.raises(DataError, match="metadata that JSON can hold"):
            writer.write(odd)
        with pytest.raises(DataError, match="describe the stored data"):
            writer.update_metadata({"fps": 3})
    with pytest.raises(DataError, match="closed"):
        writer.write(episode(0, 2, NUMBERS))
    same(path, [episode(0, 2, NUMBERS)])


@pytest.mark.parametrize(
    ("spec", "options", "error", "message"),
    [
        ({"x": field("f4", align="boundary")}, {}, SpecError, "T rows of numbers or text"),
        ({"x": field("i4", kind="ragged")}, {}, SpecError, "T rows of numbers or text"),
        ({"x": field("c8")}, {}, SpecError, "numbers of up to 64 bits"),
        ({"index": field("i8")}, {}, SpecError, "without 'index', which the format computes"),
        ({"a/b": field("i8"), "a.b": field("i8")}, {}, SpecError, "names differ in LeRobot"),
        ({"x": field("i8")}, {"fps": 0}, DataError, "steps a second"),
        ({"x": field("i8")}, {"cameras": "jpeg"}, ArgumentError, "cameras 'image', 'video' or 'array'"),
        ({"x": field("i8")}, {"chunks_size": 0}, ArgumentError, "at least 1"),
        ({"x": field("i8")}, {"speed": 0}, ArgumentError, "speed|options"),
    ],
)
def test_what_has_no_place_is_refused(
    spec: dict[str, Any], options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises((error, TypeError), match=message):
        create(tmp_path / "data", Spec(spec), **options)
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_bytes_and_video(tmp_path: Path) -> None:
    spec = Spec({"observations/camera": field("u1", 32, 48, 3), "actions": field("f4", 2)})
    rng = np.random.default_rng(0)
    frames = np.repeat(rng.integers(0, 255, (4, 4, 6, 3), dtype=np.uint8), 8, 1).repeat(8, 2)
    made = Episode(spec, {"observations/camera": frames, "actions": np.zeros((4, 2), "f4")})
    for cameras, kind in (("array", "uint8"), ("video", "video")):
        path = tmp_path / cameras
        with create(path, spec, cameras=cameras, **({"codec": "libx264"} if cameras == "video" else {})) as writer:
            writer.write_all([made, made])
        data = penstock.open(path)
        assert data.metadata["features"]["observations.camera".replace("observations", "observation")]["dtype"] == kind
        found = data[1].columns["observations/camera"]
        assert np.abs(found.astype(int) - frames).mean() < (8 if cameras == "video" else 1e-9)
        assert list(FORMAT.check(path)) == []
    assert len(list((tmp_path / "video").glob("videos/*/*/*.mp4"))) == 1


@pytest.mark.parametrize("example", EXAMPLES, ids=repr)
def test_any_dataset_is_converted(example: Example, tmp_path: Path) -> None:
    episodes = [each for each in example.episodes() if len(each)]
    data = penstock.EpisodeDataset(MemorySource.from_episodes(episodes))
    report = penstock.convert(data, tmp_path / "data", format="lerobot", options={"fps": 5})
    assert report.episodes == len(episodes)
    found = penstock.open(tmp_path / "data")
    for one, other in zip(episodes, found, strict=True):
        assert np.array_equal(one.columns["rewards"], other.columns["rewards"], equal_nan=True)
        for path in example.spec:
            if path.startswith("observations") and not example.spec[path].ragged:
                assert_same_array(other.columns[path], np.asarray(one.columns[path])[:-1], path)
    assert any("T rows: that after the last step is left out" in str(note) for note in report.notes)


def test_lerobot_is_converted_to_lerobot_and_to_columns(tmp_path: Path) -> None:
    data = penstock.open(GOLDEN / "v21_image")
    report = penstock.convert(data[[2, 0]], tmp_path / "new", format="lerobot")
    assert {note.what for note in report.notes} >= {"index", "task_index"}
    found = penstock.open(tmp_path / "new")
    for path in ("observations/images/top", "task", "actions", "timestamp"):
        assert_same_array(found[1].columns[path], data[0].columns[path], path)
    penstock.convert(found, tmp_path / "columns")
    assert_same_array(penstock.open(tmp_path / "columns")[0].columns["actions"], data[2].columns["actions"], "actions")


INDEX = ["timestamp", "frame_index", "episode_index", "index", "task_index", "task"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"codec": "ffv1", "g": 3}, "equal"),
        ({"codec": "libx264rgb", "crf": 0}, "equal"),
        ({"codec": "libx264", "crf": 0}, "lossy"),
        ({"codec": "libx264", "crf": 45}, "lossy"),
    ],
)
def test_pictures_become_video_and_pictures_again(options: dict[str, Any], status: str, tmp_path: Path) -> None:
    """The certificate says what video lost, and that other formats have the frames that LeRobot's video has."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (9, 4, 6, 3), dtype=np.uint8).repeat(8, 1).repeat(8, 2)
    arrays = {"observations/camera": frames, "actions": np.zeros((9, 2), "f4"), "rewards": np.arange(9.0)}
    ends = {"terminations": np.arange(9) == 8, "truncations": np.arange(9) == 3}
    data = penstock.from_arrays({**arrays, **ends}, lengths=[4, 5])
    written = {"fps": 10, "cameras": "video", **options}
    made = penstock.convert(data, tmp_path / "video", format="lerobot", options=written).certificate
    assert made is not None
    camera = next(column for column in made.columns if column.column == "observations/camera")
    assert camera.status == status
    video = penstock.open(tmp_path / "video")
    if camera.psnr is not None and camera.ssim is not None:
        assert (15 < camera.psnr < 32) if options["crf"] else (25 < camera.psnr < 60)
        assert 0.1 < camera.ssim < 1
    else:
        assert np.array_equal(video[1].columns["observations/camera"], frames[4:])
    for format, kept in (("columns", "equal"), ("zarr", "equal"), ("minari", "filled")):
        back = penstock.convert(video, tmp_path / format, format=format, drop=INDEX, fill_missing=True).certificate
        assert back is not None
        assert {column.status for column in back.columns if column.column == "observations/camera"} == {kept}
        found = np.asarray(penstock.open(tmp_path / format)[1].columns["observations/camera"])
        assert np.array_equal(found[:5], video[1].columns["observations/camera"])  # Minari has the last one twice


def test_a_dataset_of_video_without_episodes_is_continued(tmp_path: Path) -> None:
    spec = Spec({"observations/camera": field("u1", 32, 48, 3), "actions": field("f4", 2)})
    create(tmp_path / "data", spec, cameras="video", codec="ffv1", g=1).close()
    assert len(penstock.open(tmp_path / "data")) == 0
    columns = {"observations/camera": np.full((2, 32, 48, 3), 7, np.uint8), "actions": np.zeros((2, 2), "f4")}
    with FORMAT.append(tmp_path / "data") as writer:
        writer.write(Episode(spec, columns))
    assert penstock.open(tmp_path / "data")[0].columns["observations/camera"].ravel().tolist() == [7] * 9216
    with pytest.raises(ArgumentError, match="codec, crf, g, pix_fmt, codec_options with cameras='video' alone"):
        create(tmp_path / "other", spec, crf=3)


def test_the_rate_that_lerobot_needs_is_asked_for(tmp_path: Path) -> None:
    data = penstock.from_arrays({"actions": np.zeros((2, 1), np.float32)}, lengths=[2])
    with pytest.raises(
        DataError, match=r"got None; say it as options=\{'fps': 10\} \(--option fps=10\), or in the meta"
    ):
        penstock.convert(data, tmp_path / "set", format="lerobot")
