"""LeRobot datasets that are written in parts equal those of one writer."""

# pyright: basic

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.video import packet_index
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.formats.base.writer import PartStart
from penstock.formats.lerobot import FORMAT, joining
from penstock.formats.lerobot.writer import LeRobotWriter
from penstock.testing.compare import assert_same_array
from penstock.testing.examples import field, random_episode

CAMERA = "observations/images/top"
SPEC = Spec(
    {
        "observations/state": field("f4", 3),
        CAMERA: field("u1", 16, 24, 3),
        "actions": field("f2", 2),
        "infos/flags": field("?", 4),
        "infos/counts": field("u8"),
        "task": field("u1", kind="text"),
    }
)
WITHOUT_CAMERA = Spec({path: each for path, each in SPEC.items() if path != CAMERA})
TASKS = ["pick", "place", "stack", ""]
METADATA = {"author": "me", "fps": 10}
VIDEO = {"cameras": "video", "codec": "libx264rgb", "crf": 0}
KINDS = {  # columns, options, and most tasks of an episode
    "pictures": (SPEC, {}, 2),
    "arrays": (SPEC, {"cameras": "array"}, 1),
    "video": (SPEC, VIDEO, 1),
    "no camera": (WITHOUT_CAMERA, {}, 4),
    "small folders": (SPEC, {**VIDEO, "chunks_size": 2}, 3),
}


def episode(number: int, spec: Spec, rng: np.random.Generator, most_tasks: int) -> Episode:
    """An episode of one step or more, with its own choice of tasks."""
    steps = int(rng.choice([1, 1, 2, 7, 12]))
    made = random_episode(rng, spec, steps, number)
    tasks = rng.permutation(TASKS)[:most_tasks]
    task = Ragged.from_strings([str(each) for each in rng.choice(tasks, steps)])
    return Episode(spec, {**made.columns, "task": task}, number, {"note": f"of {number}"})


def write_parts(
    folder: Path, spec: Spec, episodes: list[Episode], edges: list[int], options: dict[str, Any]
) -> list[Path]:
    """Write the episodes between each two edges to a part. Two equal edges are a part without episodes."""
    written: list[Path] = []
    for first, last in itertools.pairwise(edges):
        path = folder / f"part-{len(written)}" / "data"
        begin = PartStart(first, sum(len(each) for each in episodes[:first]), {})
        with FORMAT.begin_part(path, spec, METADATA, begin, **options) as writer:
            assert writer.write_all(episodes[first:last]) == [*range(first, last)]
        written.append(path)
    return written


def assert_equal(one: Path, other: Path) -> None:
    """Equal values, metadata and statistics, no findings, and equal files where they do not depend on parts."""
    for name in ("info.json", "stats.json", "tasks.parquet"):
        assert (one / "meta" / name).read_bytes() == (other / "meta" / name).read_bytes(), name
    with penstock.open(one) as a, penstock.open(other) as b:
        assert dict(a.spec) == dict(b.spec)
        assert dict(a.metadata) == dict(b.metadata)
        assert len(a) == len(b)
        for mine, theirs in zip(a, b, strict=True):
            assert mine.metadata == theirs.metadata
            for path, column in theirs.columns.items():
                assert_same_array(mine.columns[path], column, path)
        every = range(len(a))
        np.testing.assert_equal(a.source.episode_statistics(every), b.source.episode_statistics(every))
    assert list(FORMAT.check(one)) == list(FORMAT.check(other)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_parts_equal_the_dataset_of_one_writer(kind: str, tmp_path: Path) -> None:
    spec, options, most_tasks = KINDS[kind]
    rng = np.random.default_rng([*kind.encode()])
    episodes = [episode(e, spec, rng, most_tasks) for e in range(8)]
    edges = sorted([0, 0, *rng.integers(0, 9, 4).tolist(), 8, 8])  # some parts have no episode
    with FORMAT.create(tmp_path / "one", spec, METADATA, **options) as writer:
        writer.write_all(episodes)
    written = write_parts(tmp_path, spec, episodes, edges, options)
    FORMAT.join_parts(written, tmp_path / "joined", tmp_path / "joined")
    assert_equal(tmp_path / "joined", tmp_path / "one")
    rows = [row for file in sorted((tmp_path / "joined").glob("meta/episodes/*/*")) for row in _rows(file)]
    assert [row["episode_index"] for row in rows] == [*range(8)]
    ends = np.cumsum([len(each) for each in episodes]).tolist()
    assert [(row["dataset_from_index"], row["dataset_to_index"]) for row in rows] == list(
        zip([0, *ends], ends, strict=False)
    )
    with FORMAT.append(tmp_path / "joined") as joined, FORMAT.append(tmp_path / "one") as alone:
        assert joined.write(episodes[3]) == alone.write(episodes[3]) == 8
    assert_equal(tmp_path / "joined", tmp_path / "one")


def _rows(file: Path) -> list[dict[str, Any]]:
    return pq.read_table(file).to_pylist()


def test_each_part_may_have_several_files(tmp_path: Path) -> None:
    spec = Spec({"observations": field("f8", 4), "task": field("u1", kind="text")})
    rng = np.random.default_rng(0)
    episodes = [
        Episode(
            spec,
            {"observations": rng.normal(size=(8_000, 4)), "task": Ragged.from_strings([TASKS[e % 3]] * 8_000)},
            e,
        )
        for e in range(6)
    ]  # 0.4 MiB each
    options = {"data_files_size_in_mb": 1, "chunks_size": 2}
    with FORMAT.create(tmp_path / "one", spec, METADATA, **options) as writer:
        writer.write_all(episodes)
    written = write_parts(tmp_path, spec, episodes, [0, 3, 6], options)
    assert [len(list(part.glob("data/*/*"))) for part in written] == [2, 2]
    FORMAT.join_parts(written, tmp_path / "joined", tmp_path / "joined")
    assert_equal(tmp_path / "joined", tmp_path / "one")
    files = sorted(path.relative_to(tmp_path / "joined/data").as_posix() for path in tmp_path.glob("joined/data/*/*"))
    assert files == [f"chunk-00{c}/file-00{f}.parquet" for c in range(2) for f in range(2)]


@pytest.mark.parametrize("kept", [1, 2, 3, 5])
def test_videos_are_joined_until_a_file_is_full(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(kept)
    episodes = [episode(e, SPEC, rng, most_tasks=1) for e in range(7)]
    options = {**VIDEO, "chunks_size": 2, "video_files_size_in_mb": 1}
    with FORMAT.create(tmp_path / "one", SPEC, METADATA, **options) as writer:
        writer.write_all(episodes)
    written = write_parts(tmp_path, SPEC, episodes, [0, 1, 3, 4, 6, 7], options)
    own = [next(part.glob("videos/*/*/*.mp4")) for part in written]
    sizes, frames = [path.stat().st_size for path in own], [len(packet_index(path, keep=False)) for path in own]
    contents = [path.read_bytes() for path in own]
    limit = sum(sizes[:kept]) + 1  # so that the first file has so many
    monkeypatch.setattr(joining, "MIB", limit)
    FORMAT.join_parts(written, tmp_path / "joined", tmp_path / "joined")
    groups: list[list[int]] = []  # LeRobot's rule: a file is full when the next one would make it as large as its limit
    for number, size in enumerate(sizes):
        if groups and sum(sizes[k] for k in groups[-1]) + size < limit:
            groups[-1].append(number)
        else:
            groups.append([number])
    assert len(groups[0]) == kept
    files = sorted((tmp_path / "joined").glob("videos/*/*/*.mp4"))
    places = [f"chunk-{k // 2:03d}/file-{k % 2:03d}.mp4" for k in range(len(groups))]
    assert [f"{path.parent.name}/{path.name}" for path in files] == places
    for path, group in zip(files, groups, strict=True):
        assert len(packet_index(path, keep=False)) == sum(frames[k] for k in group)
        if len(group) == 1:
            assert path.read_bytes() == contents[group[0]]
    assert_equal(tmp_path / "joined", tmp_path / "one")
    rows = [row for file in sorted((tmp_path / "joined").glob("meta/episodes/*/*")) for row in _rows(file)]
    camera = "videos/observation.images.top"
    for before, row in zip([None, *rows], rows, strict=False):
        begin, end = row[f"{camera}/from_timestamp"], row[f"{camera}/to_timestamp"]
        assert round((end - begin) * 10) == row["length"]
        place = [row[f"{camera}/chunk_index"], row[f"{camera}/file_index"]]
        follows = before is not None and place == [before[f"{camera}/chunk_index"], before[f"{camera}/file_index"]]
        assert begin == (before[f"{camera}/to_timestamp"] if follows and before else 0)


@pytest.mark.parametrize("changes", ["move", "join_videos", "write_tables", "write_atomic"])
def test_joining_that_is_interrupted_goes_on(changes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    episodes = [episode(e, SPEC, rng, most_tasks=2) for e in range(6)]
    with FORMAT.create(tmp_path / "one", SPEC, METADATA, **VIDEO, video_files_size_in_mb=1) as writer:
        writer.write_all(episodes)
    written = write_parts(tmp_path, SPEC, episodes, [0, 1, 2, 4, 6], {**VIDEO, "video_files_size_in_mb": 1})
    sizes = [next(part.glob("videos/*/*/*.mp4")).stat().st_size for part in written]
    monkeypatch.setattr(joining, "MIB", max(sizes[0] + 1, sum(sizes[1:3]) + 1))
    real = getattr(joining, changes)
    for allowed in range(100):
        left = [allowed]

        def change(*given: Any, left: list[int] = left, **options: Any) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(*given, **options)

        monkeypatch.setattr(joining, changes, change)
        try:
            FORMAT.join_parts(written, tmp_path / "joined", tmp_path / "joined")
            break
        except KeyboardInterrupt:
            continue
    assert allowed > 0
    assert_equal(tmp_path / "joined", tmp_path / "one")


def test_parts_that_do_not_continue_each_other_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    episodes = [episode(e, WITHOUT_CAMERA, rng, most_tasks=1) for e in range(4)]
    one, two, three = write_parts(tmp_path, WITHOUT_CAMERA, episodes, [0, 1, 3, 4], {})
    with pytest.raises(FormatError, match=r"expected episodes from 1, .* got 3, step \d+"):
        FORMAT.join_parts([one, three], tmp_path / "joined", tmp_path / "joined")
    assert len(list(three.glob("data/*/*"))) == 1  # so the parts can still be joined in another way
    with pytest.raises(FileExistsError):
        FORMAT.begin_part(two, WITHOUT_CAMERA, METADATA, PartStart(1, 1, {}))


def test_figures_of_a_dataset_do_not_depend_on_whether_a_writer_was_killed(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    episodes = [episode(e, WITHOUT_CAMERA, rng, most_tasks=2) for e in range(5)]
    with FORMAT.create(tmp_path / "one", WITHOUT_CAMERA, METADATA) as writer:
        writer.write_all(episodes)
    with FORMAT.create(tmp_path / "two", WITHOUT_CAMERA, METADATA) as writer:
        writer.write_all(episodes[:3])
    with LeRobotWriter(tmp_path / "two", WITHOUT_CAMERA) as writer:
        writer.write_all(episodes[3:])
    assert (tmp_path / "one/meta/stats.json").read_bytes() == (tmp_path / "two/meta/stats.json").read_bytes()
