"""Mappings that ship, on files of the original layouts, which `layouts` writes: the contract of sources, and traps."""

# pyright: basic

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import penstock
from penstock.core.damage import collected_damage
from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.data.located import locate
from penstock.errors import ArgumentError, DamageWarning, FormatError
from penstock.formats.base.source import Source
from penstock.formats.mapping.rules import EpisodeMapping, toml_of
from penstock.formats.mapping.shipped import shipped_mapping, shipped_names
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from tests.formats.mapping import layouts


def numbers(dtype: str, *shape: int, align: Any = "step") -> Field:
    return Field(np.dtype(dtype), shape, align)


FLAGS = {"terminations": numbers("?"), "truncations": numbers("?")}
ROWS = {"actions": numbers("f4", 2), "rewards": numbers("f4"), "discount": numbers("f4")}


class Layout(Example):
    """Random episodes without metadata, which a layout can hold."""

    def __init__(self, name: str, fields: dict[str, Field], lengths: Sequence[int], mend: Any = None) -> None:
        super().__init__(name, Spec(fields), tuple(lengths))
        object.__setattr__(self, "mend", mend or (lambda columns, rng: columns))

    def episodes(self, seed: int = 0) -> list[Episode]:
        rng, made = np.random.default_rng(seed), super().episodes(seed)
        return [Episode(each.spec, self.mend(dict(each.columns), rng), each.id) for each in made]


def with_flags(columns: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    last = np.arange(len(columns["actions"])) == len(columns["actions"]) - 1
    terminated = bool(rng.integers(2))
    return columns | {"terminations": last & terminated, "truncations": last & (not terminated)}


class ShippedContract(SourceContract):
    """A mapping that ships is recognised, and reads what the layout holds. Names of files are its metadata."""

    layout: ClassVar[str]
    write: ClassVar[Callable[..., Any]]

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        type(self).write(path, episodes)
        with collected_damage():
            return locate(path).open(mapping=self.layout)

    def test_metadata_of_episodes(self, source: Source, episodes: list[Episode]) -> None:
        assert len(source.episode_metadata([0, 0])) == 2

    def test_the_table_holds_every_number(self, source: Source, episodes: list[Episode]) -> None:
        assert source.table()["total_steps"].tolist() == [len(episode) for episode in episodes]

    def test_the_folder_is_recognised(self, source: Any) -> None:
        with collected_damage(), penstock.open(source._path) as data:
            assert data.source.fingerprint == source.fingerprint
            assert data.metadata["mapping"] == shipped_mapping(self.layout).to_json()

    def test_all_that_is_left_out_is_known(self, source: Source) -> None:
        assert {entry.reason for entry in source.account.left_out} <= {"filler", "caution", "unused-rows"}


class TestExorl(ShippedContract):
    layout = "exorl"
    write = layouts.write_exorl
    examples = (
        Layout(
            "exorl",
            {
                "observations": numbers("f4", 3, align="boundary"),
                **ROWS,
                "physics": numbers("f8", 5, align="boundary"),
            },
            (4, 1, 7),
        ),
    )


class TestVd4rl(ShippedContract):
    layout = "vd4rl"
    write = layouts.write_vd4rl
    examples = (
        Layout("64px", {"observations": numbers("u1", 4, 4, 3, align="boundary"), **ROWS, **FLAGS}, (4, 2), with_flags),
    )


class TestVd4rl84(ShippedContract):
    layout = "vd4rl_84"
    write = layouts.write_vd4rl_84
    examples = (Layout("84px", {"observations": numbers("u1", 3, 2, 2, align="boundary"), **ROWS}, (500, 500, 500)),)


def bits_and_ids(columns: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    columns["observations/board"] &= 1
    targets = columns["targets/global"] = np.nan_to_num(columns["targets/global"])
    return columns | {"game": targets[:, 41:47], "turn": targets[:, 51], "weight": targets[:, 25]}


class TestKatago(ShippedContract):
    layout = "katago"
    write = layouts.write_katago
    examples = (
        Layout(
            "katago",
            {
                "observations/board": numbers("u1", 22, 19, 19),
                "observations/global": numbers("f4", 19),
                "targets/policy": numbers("i2", 2, 362),
                "targets/global": numbers("f4", 64),
                "targets/score": numbers("i1", 842),
                "targets/value": numbers("i1", 5, 19, 19),
                "game": numbers("f4", 6),
                "turn": numbers("f4"),
                "weight": numbers("f4"),
            },
            (1, 1, 1, 1),
            bits_and_ids,
        ),
    )


CALVIN = {
    "actions": numbers("f8", 7),
    "actions_absolute": numbers("f8", 7),
    "observations/robot": numbers("f8", 15),
    "observations/scene": numbers("f8", 24),
    "observations/rgb_static": numbers("u1", 6, 6, 3),
}


class TestCalvin(ShippedContract):
    layout = "calvin"
    write = layouts.write_calvin
    examples = (Layout("calvin", CALVIN, (5, 3, 8)),)


def one_colour(columns: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    images = columns["observations/image_0"]
    times = np.arange(len(images)) + 1.5e9
    return columns | {"observations/image_0": np.broadcast_to(images[:, :1, :1, :1], images.shape), "timestamps": times}


class TestBridge(ShippedContract):
    layout = "bridge"
    examples = (
        Layout(
            "bridge",
            {
                "actions": numbers("f8", 7),
                "observations/state": numbers("f8", 7, align="boundary"),
                "timestamps": numbers("f8", align="boundary"),
                "observations/image_0": numbers("u1", 16, 16, 3, align="boundary"),
            },
            (4, 2, 6),
            one_colour,
        ),
    )

    @staticmethod
    def write(path: Path, episodes: Sequence[Episode]) -> None:
        layouts.write_bridge(path, episodes, ["2021-07-22_23-59-59", "2021-07-23_00-00-00", "2022-01-01_00-00-00"])

    def test_metadata_of_episodes(self, source: Source, episodes: list[Episode]) -> None:
        found = source.episode_metadata([0, 1])
        assert [entry.get("language") for entry in found] == [None, "put the pot on the stove"]
        assert found[1]["date"] == "2021-07-23_00-00-00"


RLBENCH = {
    "observations/gripper_pose": numbers("f8", 7, align="boundary"),
    "observations/gripper_open": numbers("f8", align="boundary"),
    "misc/front_camera_near": numbers("f8", align="boundary"),
    "misc/front_camera_far": numbers("f8", align="boundary"),
    "misc/joint_position_action": numbers("f8", 8, align="boundary"),
    "observations/front_rgb": numbers("u1", 4, 5, 3, align="boundary"),
    "observations/front_depth": numbers("f4", 4, 5, align="boundary"),
    "observations/front_mask": numbers("u4", 4, 5, align="boundary"),
}


def of_demos(columns: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    n = len(columns["observations/gripper_pose"])
    columns["misc/joint_position_action"] = np.concatenate([np.full((1, 8), np.nan), columns["actions"]])
    columns["observations/front_mask"] &= (1 << 24) - 1
    codes = rng.integers(1 << 24, size=(n, 4, 5))
    columns["observations/front_depth"] = (codes * 5.960464832810452e-08).astype("f4")
    columns["observations/gripper_open"] = np.arange(n) % 2.0
    return columns | {"misc/front_camera_near": np.full(n, 0.01), "misc/front_camera_far": np.full(n, 4.5)}


class TestRlbench(ShippedContract):
    layout = "rlbench"
    write = layouts.write_rlbench
    examples = (Layout("rlbench", {"actions": numbers("f8", 8), **RLBENCH}, (3, 5), of_demos),)

    def test_metadata_of_episodes(self, source: Source, episodes: list[Episode]) -> None:
        found = source.episode_metadata([1])[0]
        assert found["descriptions"] == ["open the drawer", "slide it"]
        assert (found["task"], found["variation"], found["episode"]) == ("open_drawer", "0", "1")


def opened(path: Path, **options: Any) -> penstock.EpisodeDataset:
    with collected_damage():
        return penstock.open(path, **options)


def test_exorl_pairs_what_its_sampler_pairs_and_says_whose_rewards_they_are(tmp_path: Path) -> None:
    """`OfflineReplayBuffer._sample`: obs[i - 1], action[i], reward[i], discount[i], obs[i]."""
    row = np.arange(6.0)
    arrays = {"observation": row[:, None], "action": row[:, None] + 100, "reward": row[:, None] + 200}
    np.savez(tmp_path / "episode_000000_5.npz", **arrays, discount=row[:, None] + 300, physics=row[:, None])
    with pytest.warns(DamageWarning, match="rewards: they are those of the exploration .* compute .* from `physics`"):
        data = penstock.open(tmp_path)
    with pytest.warns(DamageWarning, match="rewards"):  # an array of `.npz` names would pair rows of one number
        one = penstock.open(tmp_path / "episode_000000_5.npz")
    assert np.array_equal(one[0].columns["actions"], data[0].columns["actions"])
    pairs = data.transitions()[np.arange(5)]
    assert pairs["observations"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert pairs["actions"][:, 0].tolist() == [101, 102, 103, 104, 105]
    assert pairs["rewards"].tolist() == [201, 202, 203, 204, 205]
    assert pairs["discount"].tolist() == [301, 302, 303, 304, 305]
    assert pairs["next_observations"][:, 0].tolist() == [1, 2, 3, 4, 5]
    assert [(entry.where, entry.count) for entry in data.source.account.left_out if entry.reason == "filler"] == [
        ("action", 1),
        ("reward", 1),
        ("discount", 1),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_dqn_replay_has_the_rows_that_the_ring_had_in_the_order_of_time(seed: int, tmp_path: Path) -> None:
    """Against a list of all rows ever written: the last slot, stale rows, padding, cut ends, rounds without a log."""
    rng = np.random.default_rng(seed)
    capacity = int(rng.integers(30, 50))
    names = {"observation": np.zeros((3, 2), "u1"), "action": np.int32(0), "reward": np.float32(0)}
    ring = layouts.DopamineRing(tmp_path / "Pong" / "1" / "replay_logs", capacity, {**names, "terminal": np.uint8(0)})
    history: list[int | None] = []  # the number of each row; None of padding
    rows: list[dict[str, Any]] = []
    files: list[list[int | None]] = []
    while len(files) < 4:
        history += [None] * 3 if ring.starts else []
        history.append(len(rows))
        row = {"observation": rng.integers(1, 255, (3, 2)).astype("u1"), "action": np.int32(rng.integers(18))}
        row |= {"reward": np.float32(rng.normal()), "terminal": np.uint8(rng.random() < 0.15)}
        rows.append(row)
        logs = ring.logs
        ring.add(row)
        files += [history[-capacity:]] if ring.logs > logs else []
    for _ in range(int(rng.integers(1, capacity - 1))):
        history += [None] * 3 if ring.starts else []
        history.append(len(rows))
        rows.append({**row, "observation": rng.integers(1, 255, (3, 2)).astype("u1"), "terminal": np.uint8(0)})
        ring.add(rows[-1])
        files += [history[-capacity:]] if ring.logs > len(files) else []
    cursor = ring.count % capacity
    ring.log(cursor)  # `log_final_buffer`
    files.append(history[len(history) - cursor :])
    expected: list[list[int]] = []
    for file in files:
        fresh = True
        for number in file:
            fresh |= number is None
            if number is not None:
                expected += [[]] if fresh else []
                expected[-1].append(number)
                fresh = bool(rows[number]["terminal"])
    with opened(tmp_path) as data:
        assert data.source.account.ends
        assert [len(episode) for episode in data] == [len(each) for each in expected]
        for episode, numbers_ in zip(data, expected, strict=True):
            for ours, theirs in (("observations", "observation"), ("actions", "action"), ("rewards", "reward")):
                assert np.array_equal(episode.columns[ours], [rows[i][theirs] for i in numbers_]), ours
            assert episode.columns["terminations"].tolist() == [bool(rows[i]["terminal"]) for i in numbers_]
            assert episode.columns["truncations"][-1] == (not rows[numbers_[-1]]["terminal"])
        padding = sum(number is None for file in files for number in file)
        stale = sum(capacity - len(file) for file in files)
        left = {entry.where: entry.count for entry in data.source.account.left_out if entry.reason == "filler"}
        assert left == {name: count for name, count in (("padding", padding), ("ring", stale)) if count}
        assert "one that was cut without a terminal may go on" in str(data.source.account.warning())


def test_calvins_windows_with_a_sentence_are_episodes_that_overlap(tmp_path: Path) -> None:
    episodes = Layout("calvin", CALVIN, (9, 5)).episodes(2)
    layouts.write_calvin(tmp_path, episodes)
    annotations = {
        "language": {"ann": ["open it", "close it"], "task": ["open", "close"], "emb": np.zeros((2, 1, 384))},
        "info": {"episodes": [], "indx": [(8, 12), (10, 16)]},  # as `automatic_lang_annotator_mp.py`: end exclusive
    }
    (tmp_path / "training" / "lang_annotations").mkdir()
    np.save(tmp_path / "training" / "lang_annotations" / "auto_lang_ann.npy", annotations)  # a pickled dict
    with opened(tmp_path) as data:
        assert [len(episode) for episode in data] == [9, 5]
        assert data.metadata["fps"] == 30
        unused = [entry for entry in data.source.account.left_out if entry.reason == "unused-rows"]
        assert [entry.count for entry in unused] == [2]
    with opened(tmp_path, mapping="calvin_language") as data:
        assert [len(episode) for episode in data] == [4, 6]
        assert data[1].columns["language"].strings() == ["close it"]
        np.testing.assert_array_equal(data[0].columns["actions"], episodes[0].columns["actions"][1:5])
        np.testing.assert_array_equal(data[1].columns["actions"], episodes[0].columns["actions"][3:9])
        windows = data.windows(3)
        np.testing.assert_array_equal(
            windows[[0]]["observations/robot"][0], episodes[0].columns["observations/robot"][1:4]
        )
    (tmp_path / "training" / "episode_0000009.npz").unlink()
    with pytest.raises(FormatError, match="expected rows of all numbers from 7 to 15, got 8 of them"):
        opened(tmp_path)


def test_rlbench_without_actions_has_none_and_its_objects_are_attributes_alone(tmp_path: Path) -> None:
    episodes = TestRlbench.examples[0].episodes()
    without = [SimpleNamespace(columns={n: c for n, c in e.columns.items() if n != "actions"}) for e in episodes]
    layouts.write_rlbench(tmp_path, without)
    with opened(tmp_path / "open_drawer") as data:
        assert [len(episode) for episode in data] == [4, 6]
        assert "actions" not in data.spec
        assert data.spec["observations/gripper_pose"].align == "step"
        assert data.metadata["mapping"] == shipped_mapping("rlbench").to_json()


def test_bridge_data_of_bare_actions(tmp_path: Path) -> None:
    episodes = TestBridge.examples[0].episodes(1)
    layouts.write_bridge(tmp_path, episodes, ["2022-01-01_00-00-00"] * 3, bare=True)
    with opened(tmp_path) as data:
        for ours, theirs in zip(data, episodes, strict=True):
            np.testing.assert_array_equal(ours.columns["actions"], theirs.columns["actions"])


@pytest.mark.parametrize("name", shipped_names())
def test_mappings_that_ship_are_files_as_anyone_writes_them(name: str, tmp_path: Path) -> None:
    mapping = shipped_mapping(name)
    (tmp_path / "own.toml").write_text(toml_of(mapping))
    assert EpisodeMapping.at(tmp_path / "own.toml") == mapping


def test_errors_of_mappings_that_ship(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"or one of \['bridge', 'calvin', .*got 'exorll'; did you mean 'exorl'"):
        penstock.open(tmp_path, mapping="exorll")
    with pytest.raises(FormatError, match=r"expected files .*episode_.* got an empty folder"):
        penstock.open(tmp_path, mapping="exorl")
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 5), "u1"), y=np.zeros(3))
    wrong: list[tuple[dict[str, Any], str]] = [
        (
            {"x": {"from": "x", "at": 7}},
            "expected rows with the places .7. on the last axis, got .5. in the column",
        ),
        ({"x": {"from": "x", "bits": [9, 9]}}, "expected 11 bytes for bits of .9, 9., got 5 in the column 'x'"),
        ({"x": {"from": "x", "rgb": "big"}}, "expected pixels of three bytes for rgb"),
        ({"x": {"from": "x", "drop_first": 4}}, "expected episodes of 4 rows or more, got 3"),
    ]
    for columns, message in wrong:
        with pytest.raises(FormatError, match=message):
            penstock.open(tmp_path, format="mapping", columns=columns)
    with pytest.raises(FormatError, match="expected episodes of 2 rows each, got 3 rows"):
        penstock.open(tmp_path, format="mapping", lengths=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(penstock.open(tmp_path, format="mapping", lengths=3)) == 1
