"""Episodes go from every format that we read to several that we write, and back: what is not the same is listed.

LeRobot has one observation for each action, so the row after the last step is lost.
"""

# pyright: basic

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import penstock
from penstock import Field, Spec
from penstock.conversion.convert import ConversionReport
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.core.spaces import Box, Dict
from penstock.core.spaces import Text as TextSpace
from penstock.errors import DataError, SpecError
from penstock.formats.base.format import available
from penstock.formats.lerobot.info import INDICES
from penstock.testing.compare import assert_same_array
from penstock.testing.examples import NESTED, random_episode
from tests.fuzz.targets import Target, targets, the_one
from tests.packages import of_installed

TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "columns": ("columns", {}),
    "minari hdf5": ("minari", {"data_format": "hdf5"}),
    "minari arrow": ("minari", {"data_format": "arrow"}),
    "shards": ("webdataset", {}),
    "seed": ("webdataset", {"layout": "seed"}),
    "zarr": ("zarr", {"chunk_rows": 3}),
    "zarr 3": ("zarr", {"zarr_format": 3, "compressor": "gzip"}),
    "rlds": ("rlds", {}),
    "lerobot": ("lerobot", {"fps": 10}),
    "lerobot video": ("lerobot", {"fps": 10, "cameras": "video", "codec": "ffv1"}),
}
LOSSLESS = [name for name in TARGETS if name not in ("seed", "lerobot video")]
COUNTED = ("id", "total_steps", "episode_index")  # metadata that a target numbers itself
NATIVE = of_installed(
    [
        *("demos/robomimic", "demos/d4rl", "demos/npz True", "demos/imitation", "tables/parquet", "tables/json lines"),
        *(
            "l5kit/zip",
            "lc0/gz6",
            "webdataset/samples",
            "zarr/golden umi",
            "rlds/array_record",
            "minari/0.4.2 cartpole-old-v1",
        ),
    ]
)
"""Datasets of others: formats, or layouts, that we do not write."""


def rich(seed: int, lengths: tuple[int, ...] = (4, 2, 5), *, flat: bool = False) -> penstock.EpisodeDataset:
    """Pictures, text, nested observations, lists of numbers and, unless `flat`, of points, and rows of episodes."""
    pixels = Box(np.zeros((16, 24, 3), "u1"), np.full((16, 24, 3), 255, "u1"), np.dtype("u1"))
    pose = Box(np.full(2, -9, "f4"), np.full(2, 9, "f4"), np.dtype("f4"))
    fields = {
        "observations/camera": Field(np.dtype("u1"), (16, 24, 3), "boundary"),
        "observations/mission": Field(np.dtype("u1"), (), "boundary", "text"),
        "observations/pose": Field(np.dtype("f4"), (2,), "boundary"),
        "actions": Field(np.dtype("f4"), (2,)),
        "rewards": Field(np.dtype("f8")),
        "terminations": Field(np.dtype("?")),
        "truncations": Field(np.dtype("?")),
        "infos/legal": Field(np.dtype("i4"), (), "step", "ragged"),
        "infos/word": Field(np.dtype("u1"), (), "step", "text"),
        "extra/name": Field(np.dtype("u1"), (), "episode", "text"),
        "extra/goal": Field(np.dtype("f4"), (3,), "episode"),
    }
    spaces = Dict({"camera": pixels, "mission": TextSpace(8), "pose": pose}), pose
    points = {} if flat else {"infos/points": Field(np.dtype("f4"), (2,), "step", "ragged")}
    rng = np.random.default_rng(seed)
    episodes: list[Episode] = []
    for e, steps in enumerate(lengths):
        made = random_episode(rng, Spec(fields, *spaces), steps, e)
        columns: dict[str, Array] = dict(made.columns)
        last = np.arange(steps) == steps - 1
        columns |= {"terminations": last & (e % 3 == 0), "truncations": last & (e % 3 > 0)}
        if points:
            rows = [rng.normal(size=(int(rng.integers(4)), 2)).astype("f4") for _ in range(steps)]
            columns["infos/points"] = Ragged.from_rows(rows, "f4")
        episodes.append(Episode(Spec(fields | points, *spaces), columns, e, made.metadata))
    return penstock.EpisodeDataset(penstock.formats.MemorySource.from_episodes(episodes))


def some_of(names: list[str], number: int) -> list[str]:
    """Three names, others for each number. A format imports no other one (`tests/test_architecture.py`), and `convert`
    knows no pair of formats: what a reader gives and a writer stores is tested where each meets some others.
    """
    return [names[(number + step) % len(names)] for step in (1, 3, 6)]


PAIRS = [(first, second) for number, first in enumerate(LOSSLESS) for second in some_of(LOSSLESS, number)]
NESTED_EPISODES = penstock.EpisodeDataset(penstock.formats.MemorySource.from_episodes(NESTED.episodes()))


@pytest.fixture(scope="module")
def firsts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Nested episodes in every format that keeps them."""
    folder = tmp_path_factory.mktemp("firsts")
    for name in LOSSLESS:
        format, options = TARGETS[name]
        penstock.convert(NESTED_EPISODES, folder / name, format=format, options=options, certificate=False)
    return {name: folder / name for name in LOSSLESS}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_round_trip(firsts: dict[str, Path], tmp_path: Path, first: str, second: str) -> None:
    format, options = TARGETS[second]
    fill = first == "lerobot" and format == "minari"  # which needs a row after the last step
    report = penstock.convert(
        firsts[first], tmp_path / "out", format=format, options=options, fill_missing=fill, certificate=False
    )
    assert {note.what for note in report.notes if note.level == "left out"} <= {"frame_index", "episode_index", "index"}
    with penstock.open(tmp_path / "out") as found:
        assert len(found) == len(NESTED_EPISODES)
        for episode, expected in zip(found.source.episodes(), NESTED_EPISODES.source.episodes(), strict=True):
            check(episode, expected, lerobot="lerobot" in (first, second), filled=fill)


def check(found: Episode, expected: Episode, *, lerobot: bool, filled: bool) -> None:
    """Every value and the metadata are there, but for the row that LeRobot has no place for."""
    added = {"task", *INDICES} if lerobot else set[str]()
    assert set(found.columns) - added == set(expected.columns)
    assert len(found) == len(expected)
    for path, column in expected.columns.items():
        cut = lerobot and expected.spec[path].align == "boundary"
        assert len(found.columns[path]) == len(column) - (cut and not filled), path
        rows = len(column) - cut
        assert_same_array(found.columns[path][:rows], column[:rows], path)
    assert found.metadata["seed"] == expected.metadata["seed"]


@pytest.fixture(scope="module")
def rich_firsts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Episodes with every kind of column in every format, each compared with what was converted."""
    folder, data = tmp_path_factory.mktemp("rich"), rich(0)
    for name, (format, options) in TARGETS.items():
        report = penstock.convert(data, folder / name, format=format, options=options)
        check_said(data, folder / name, report)
    return {name: folder / name for name in TARGETS}


@pytest.mark.parametrize("first", TARGETS)
def test_what_is_not_equal_is_in_the_report(rich_firsts: dict[str, Path], tmp_path: Path, first: str) -> None:
    with penstock.open(rich_firsts[first]) as data:
        for second in some_of([*TARGETS], [*TARGETS].index(first)):
            assert not converted(data, second, tmp_path / second)


@pytest.mark.filterwarnings("ignore::penstock.errors.DamageWarning")  # shards that the target leaves out
@pytest.mark.parametrize("key", NATIVE)
def test_files_of_others_go_to_every_format(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    target: Target = targets()[key]
    for name, content in target.files().items():
        (tmp_path / "native" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "native" / name).write_bytes(content)
    assert target.format in available()
    options = {"split": "val"} if target.format == "rlds" else {}
    with penstock.open(the_one(tmp_path / "native"), format=target.format, **options) as whole:
        data = whole[:3]
        seconds = some_of([*TARGETS], NATIVE.index(key))
        refused = {second: why for second in seconds if (why := converted(data, second, tmp_path / second))}
    assert set(refused) <= {"minari hdf5", "minari arrow", "seed"}
    for why in refused.values():
        assert "needs them, got" in why or "for this layout cuts episodes there" in why


def converted(data: penstock.EpisodeDataset, second: str, out: Path) -> str:
    """Convert, and compare what the report says with the data. Returns why the target refuses the data, or nothing."""
    format, options = TARGETS[second]
    fill = format == "minari" or second == "seed"
    try:
        report = penstock.convert(data, out, format=format, options=options, fill_missing=fill)
    except (SpecError, DataError) as error:
        return str(error)
    check_said(data, out, report)
    return ""


def check_said(data: penstock.EpisodeDataset, out: Path, report: ConversionReport) -> None:
    """Each column of the source is equal in the target, or the report has a note about it; so is the metadata."""
    assert report.certificate is not None
    noted = {note.what for note in report.notes}
    with penstock.open(out) as found:
        assert [len(episode) for episode in found] == [len(episode) for episode in data]
        statuses = {column.origin or column.column: column for column in report.certificate.columns}
        for path in data.spec:
            column = statuses[path]
            assert column.status == "equal" or path in noted or column.change, column
            if column.status == "equal":
                for episode, expected in zip(found, data, strict=True):
                    assert_same_array(episode.columns[column.column], expected.columns[path], path)
        for episode, expected in zip(found, data, strict=True):
            for name in expected.metadata.keys() - {
                *COUNTED,
                *(what.removeprefix("episode metadata/") for what in noted),
            }:
                if not name.startswith("rewards_"):  # which Minari's formats compute
                    assert same(episode.metadata[name], expected.metadata[name]), name


def same(one: Any, other: Any) -> bool:
    """Whether entries of metadata are equal; NaN equals NaN, and a tuple a list."""
    return repr(np.asarray(one).tolist()) == repr(np.asarray(other).tolist())


@pytest.mark.parametrize("seed", range(4))
def test_three_conversions_and_back(tmp_path: Path, seed: int) -> None:
    """Random data through three random formats that keep it, and back to the first."""
    rng = random.Random(f"chain {seed}")
    names = rng.sample(["columns", "minari arrow", "shards", "zarr", "zarr 3", "rlds"], 3)
    lengths = tuple(rng.choices(range(1, 9), k=rng.randint(1, 6)))
    data = rich(rng.getrandbits(30), lengths, flat=True)
    at: penstock.EpisodeDataset | Path = data
    for number, name in enumerate([*names, names[0]]):
        format, options = TARGETS[name]
        penstock.convert(at, tmp_path / str(number), format=format, options=options, require="lossless")
        at = tmp_path / str(number)
    with penstock.open(tmp_path / "3") as found:
        assert found.spec.fields == data.spec.fields
        for episode, expected in zip(found, data, strict=True):
            for path, column in expected.columns.items():
                assert_same_array(episode.columns[path], column, path)
            assert episode.metadata["seed"] == expected.metadata["seed"]


def test_from_url_to_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each format is read from an address and written to another one."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    root = f"memory://{tmp_path.name}"
    data = rich(5, (3, 2), flat=True)
    at: penstock.EpisodeDataset | str = data
    for name in LOSSLESS:
        format, options = TARGETS[name]
        fill = format == "minari"
        penstock.convert(at, f"{root}/{name}", format=format, options=options, fill_missing=fill)
        at = f"{root}/{name}"
    with penstock.open(f"{root}/lerobot") as found:
        for episode, expected in zip(found, data, strict=True):
            for path in ("observations/camera", "observations/mission", "actions", "rewards"):
                rows = len(expected)
                assert_same_array(episode.columns[path][:rows], expected.columns[path][:rows], path)
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)
