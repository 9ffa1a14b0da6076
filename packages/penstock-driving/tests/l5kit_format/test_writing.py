"""Writing scenes: both layouts, in parts, killed, refused, and read again to the bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.containers.npy import header_bytes
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError, LockedError, SpecError
from penstock.testing.compare import assert_same_episode
from penstock.testing.writers import killed_after
from penstock_driving.formats.l5kit import DTYPES, FORMAT, SPEC, L5KitSource, L5KitWriter, Scene, rebased
from penstock_driving.formats.l5kit.columns import tables_of

Make = Callable[..., Scene]
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"chunk_rows": 3},
    {"chunk_rows": {"agents": 5}, "compressor": None},
    {"compressor": "zstd"},
    {"layout": "npy"},
]


def assert_holds(path: Path, scenes: list[Scene]) -> None:
    with L5KitSource(path) as source:
        assert len(source) == len(scenes)
        for e, expected in enumerate(scenes):
            found, wanted = rebased(source.scene(e)), rebased(expected)
            for a, b in zip(found, wanted, strict=True):
                assert a.tobytes() == b.tobytes()


def several(make: Make) -> list[Scene]:
    counts = ((2, 0, 3), (), (1,), (0, 0), (4, 4, 4, 4), (7,))
    return [make(seed, c) for seed, c in enumerate(counts)]


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
def test_what_is_written_is_read(tmp_path: Path, make: Make, options: dict[str, Any]) -> None:
    scenes = several(make)
    with L5KitWriter.create(tmp_path / "a", **options) as writer:
        for n, scene in enumerate(scenes):
            assert writer.write_scene(*scene) == n
            assert_holds(tmp_path / "a", scenes[: n + 1])
        assert len(writer) == len(scenes)
    with L5KitWriter.create(tmp_path / "b", **options) as writer:
        assert writer.write_scenes(scenes) == list(range(len(scenes)))
    assert_holds(tmp_path / "b", scenes)
    for name in DTYPES:
        with L5KitSource(tmp_path / "a") as a, L5KitSource(tmp_path / "b") as b:
            found = getattr(a, name.replace("traffic_light", "tl"))[:]
            assert found.tobytes() == getattr(b, name.replace("traffic_light", "tl"))[:].tobytes()
    assert list(FORMAT.check(tmp_path / "a")) == []


LARGER: list[dict[str, Any]] = [{"chunk_rows": 300}, {"chunk_rows": {"agents": 500}, "compressor": None}]
"""In place of `LAYOUTS[1:3]`, which would cut a log into thousands of files."""


@pytest.mark.parametrize("options", [*LAYOUTS[:1], *LARGER, *LAYOUTS[3:]], ids=str)
def test_a_log_of_the_original_comes_back_to_the_bit(golden: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    with L5KitSource(golden / "single.zarr") as source:
        with FORMAT.create(tmp_path / "a", source.spec, source.metadata, **options) as writer:
            writer.write_all(source.episodes())
        with L5KitSource(tmp_path / "a") as found:
            assert dict(found.metadata) == dict(source.metadata)
            for name in ("scenes", "frames", "agents", "tl_faces"):
                assert getattr(found, name)[:].tobytes() == getattr(source, name)[:].tobytes()
            assert found.frames.dtype == source.frames.dtype
    if not options:
        for name in DTYPES:
            written = (tmp_path / "a" / name / ".zarray").read_bytes()
            assert written == (golden / "single.zarr" / name / ".zarray").read_bytes()


def test_many_scenes_are_made_to_last_on_the_way(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_driving.formats.l5kit.writer._STRETCH", 5)
    scenes = several(make)

    def some() -> Iterator[Scene]:
        yield from scenes[:5]
        raise OSError("the source is gone")

    for options in LAYOUTS:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        with L5KitWriter.create(path, **options) as writer:
            with pytest.raises(OSError, match="gone"):
                writer.write_scenes(some())
            assert_holds(path, scenes[:5])
            writer.write_scenes(scenes[5:])
        assert_holds(path, scenes)


def test_appending_goes_on(tmp_path: Path, make: Make) -> None:
    scenes = several(make)
    for options in LAYOUTS:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        L5KitWriter.create(path, **options).close()
        for n in (0, 2, 4):
            with FORMAT.append(path) as writer:
                assert writer.write_scenes(scenes[n : n + 2]) == [n, n + 1]
        assert_holds(path, scenes)


def test_rows_that_no_scene_names_are_written_over(tmp_path: Path, make: Make) -> None:
    scenes = several(make)
    for options in LAYOUTS:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        with L5KitWriter.create(path, **options) as writer:
            writer.write_scene(*scenes[0])
            for name, rows in (("agents", scenes[4].agents), ("frames", scenes[4].frames)):
                table = writer._tables[name]  # as an interruption before the last step leaves it
                table.append(rows)
                table.commit()
        assert_holds(path, scenes[:1])
        with FORMAT.append(path) as writer:
            writer.write_scenes(scenes[1:])
        assert_holds(path, scenes)
        assert list(FORMAT.check(path)) == []


@pytest.mark.parametrize("options", [{"chunk_rows": 7}, {"layout": "npy"}], ids=str)
def test_a_kill_loses_no_scene_that_was_written(tmp_path: Path, make: Make, options: dict[str, Any]) -> None:
    path = tmp_path / "a"
    L5KitWriter.create(path, **options).close()
    count = 0
    for kills in range(1, 4):
        count += len(killed_after(3 * kills, partial(endless, path, count, make)))
        with L5KitSource(path) as source:
            assert len(source) in (count, count + 1)  # the last may be whole, but not yet reported
            count = len(source)
        assert_holds(path, [numbered(make, e) for e in range(count)])
    with FORMAT.append(path) as writer:
        assert writer.write_scene(*numbered(make, count)) == count


def numbered(make: Make, e: int) -> Scene:
    return make(e, tuple(np.random.default_rng(e).integers(0, 4, e % 5).tolist()))


def endless(path: Path, first: int, make: Make) -> Iterator[int]:
    writer, e = L5KitWriter(path), first
    while True:
        yield writer.write_scene(*numbered(make, e))
        e += 1


def test_a_scene_that_is_refused_leaves_all_as_it_was(tmp_path: Path, make: Make) -> None:
    scenes = several(make)
    for options in LAYOUTS:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        with L5KitWriter.create(path, **options) as writer:
            writer.write_scenes(scenes[:2])
            wrong = make(9, (3, 3))._replace(tl_faces=scenes[0].tl_faces[:1])
            falling = make(9, (3, 3))
            falling.frames["agent_index_interval"] = [[0, 9], [9, 6]]
            for bad in (wrong, falling):
                with pytest.raises(DataError, match="intervals of the frames"):
                    writer.write_scenes([scenes[4], bad])
            with pytest.raises(SpecError):
                writer.write_scene(scenes[0].scene, scenes[0].frames, scenes[0].agents, np.zeros(5, "f4"))
            assert_holds(path, scenes[:2])
            writer.write_scenes(scenes[2:])
        assert_holds(path, scenes)


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = several(make)
    for options in LAYOUTS:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        with L5KitWriter.create(path, **options) as writer:
            writer.write_scenes(scenes[:2])

            def full() -> None:
                raise OSError("no space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(writer._tables["frames"], "commit", full)  # faces and agents are there already
                with pytest.raises(OSError, match="no space"):
                    writer.write_scenes(scenes[2:5])
            assert_holds(path, scenes[:2])
            writer.write_scenes(scenes[2:])
        assert_holds(path, scenes)


def episode(make: Make, seed: int = 0, **metadata: Any) -> Episode:
    scene = make(seed)
    columns: dict[str, Any] = {n: scene.frames[n].copy() for n in ("timestamp", "ego_translation", "ego_rotation")}
    for table, rows, field in (
        ("agents", scene.agents, "agent_index_interval"),
        ("tl_faces", scene.tl_faces, "traffic_light_faces_index_interval"),
    ):
        offsets = np.append(0, scene.frames[field][:, 1])
        for name in rows.dtype.names or ():
            values = np.ascontiguousarray(rows[name]).reshape(-1)
            columns[f"{table}/{name}"] = Ragged(values, offsets * (len(values) // max(len(rows), 1)))
    return Episode(SPEC, columns, seed, metadata)


def test_episodes_are_scenes(tmp_path: Path, make: Make) -> None:
    given = [episode(make, 1), episode(make, 2, host="car", start_time=5, end_time=9)]
    with FORMAT.create(tmp_path / "a", SPEC, {"note": "mine"}) as writer:
        assert [writer.write(e) for e in given] == [0, 1]
        writer.update_metadata({"tags": ["a"]})
        for name, value in (("format_version", 1), ("bad", {1, 2})):
            with pytest.raises(DataError):
                writer.update_metadata({name: value})
    with L5KitSource(tmp_path / "a") as source:
        assert source.episode_metadata([1, 0]) == [
            {"host": "car", "start_time": 5, "end_time": 9},
            {"host": "", "start_time": 10**9, "end_time": 10**9 + 2 * 10**8},
        ]
        assert (source.metadata["note"], source.metadata["tags"]) == ("mine", ["a"])
        for found, expected in zip(source.episodes(), given, strict=True):
            assert_same_episode(found, expected)
        assert source.agents[:].tobytes() == np.concatenate([make(1).agents, make(2).agents]).tobytes()


def test_columns_that_disagree_are_refused(tmp_path: Path, make: Make) -> None:
    with FORMAT.create(tmp_path / "a", SPEC) as writer:
        for path in ("agents/yaw", "agents/centroid", "tl_faces/traffic_light_face_status"):
            good = episode(make)
            held: Any = good.columns[path]
            columns = {**good.columns, path: Ragged.from_rows([held[0], held[1], held[2][:-1]], held.dtype)}
            with pytest.raises(DataError, match=rf"{path}.*at frame 2 of episode 0"):
                writer.write(Episode(SPEC, columns, 0))
        for metadata in ({"weather": 3}, {"host": "x" * 17}):
            with pytest.raises(DataError):
                writer.write(episode(make, **metadata))
        few = Spec({name: SPEC[name] for name in ("timestamp", "agents/yaw")})
        with pytest.raises(SpecError, match="ego_rotation"):
            writer.write(Episode(few, {n: episode(make).columns[n] for n in few}))
        assert len(writer) == 0
        assert tables_of(episode(make))[1].tobytes() == make(0).agents.tobytes()


def test_options_and_places_that_are_refused(golden: Path, tmp_path: Path, make: Make) -> None:
    for wrong in (
        {"layout": "hdf5"},
        {"chunk_rows": 0},
        {"chunk_rows": {"cars": 5}},
        {"compressor": "snappy"},
        {"layout": "npy", "chunk_rows": 5},
        {"layout": "npy", "compressor": "zstd"},
    ):
        with pytest.raises(DataError):
            FORMAT.create(tmp_path / "a", SPEC, **wrong)
    with pytest.raises(SpecError):
        FORMAT.create(tmp_path / "a", Spec({"timestamp": SPEC["timestamp"]}))
    assert list(tmp_path.iterdir()) == []
    with L5KitWriter.create(tmp_path / "a") as writer:
        with pytest.raises(LockedError):
            FORMAT.append(tmp_path / "a")
        with pytest.raises(FileExistsError):
            L5KitWriter.create(tmp_path / "a")
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write_scene(*make())
    with pytest.raises(FileNotFoundError):
        FORMAT.append(tmp_path / "nothing")
    old = shutil.copytree(golden / "version1.zarr", tmp_path / "old")
    with pytest.raises(FormatError, match="convert"):
        FORMAT.append(old)
    FORMAT.append(tmp_path / "a").close()


def test_older_logs_are_converted(golden: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["convert", str(golden / "version1.zarr"), str(tmp_path / "new"), "--format", "l5kit"]
    )
    assert done.exit_code == 0, done.output
    with L5KitSource(golden / "version1.zarr") as old, L5KitSource(tmp_path / "new") as new:
        assert (old.format_version, new.format_version) == (1, 2)
        for name in ("scenes", "frames", "agents", "tl_faces"):
            assert getattr(new, name)[:].tobytes() == getattr(old, name)[:].tobytes()
    FORMAT.append(tmp_path / "new").close()


def test_to_npy_and_to_columns_and_back(golden: Path, tmp_path: Path) -> None:
    flat = [
        "convert",
        str(golden / "single.zarr"),
        str(tmp_path / "flat"),
        "--format",
        "l5kit",
        "--option",
        "layout=npy",
    ]
    done = CliRunner().invoke(app, flat)
    assert done.exit_code == 0, done.output
    agents = np.load(tmp_path / "flat" / "agents.npy", mmap_mode="r", allow_pickle=False)
    with L5KitSource(golden / "single.zarr") as source:
        assert agents.tobytes() == source.agents[:].tobytes()
    assert recognised(tmp_path / "flat") == "l5kit"
    for step, to in (("flat", "columns"), ("columns", "l5kit")):
        done = CliRunner().invoke(app, ["convert", str(tmp_path / step), str(tmp_path / to), "--format", to])
        assert done.exit_code == 0, done.output
    with L5KitSource(golden / "single.zarr") as source, L5KitSource(tmp_path / "l5kit") as found:
        for name in ("scenes", "frames", "agents", "tl_faces"):
            assert getattr(found, name)[:].tobytes() == getattr(source, name)[:].tobytes()


def recognised(path: Path) -> str:
    return penstock.open(path).source.__class__.__module__.split(".")[2]


def test_headers_grow_in_place() -> None:
    for dtype in DTYPES.values():
        assert len({len(header_bytes(dtype, (10**n,))) for n in range(19)}) == 1
