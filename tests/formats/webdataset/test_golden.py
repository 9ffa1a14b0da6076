"""Shards that il-representations wrote, against what it decodes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.spaces import Box, Discrete
from penstock.errors import FormatError
from penstock.formats.webdataset import FORMAT
from penstock.formats.webdataset.source import ShardSource

GOLDEN = Path(__file__).parents[2] / "golden" / "ilr" / "shards"


@pytest.mark.parametrize("name", ["A_plain.tar", "A.tgz", "A.tar.zst"])
def test_steps_are_those_that_the_original_decodes(name: str) -> None:
    expected = np.load(GOLDEN / "A_steps.npz")
    with ShardSource(GOLDEN / name) as source:
        assert source.layout == "seed"
        assert np.diff(source.offsets).tolist() == [5, 1, 7, 3]
        episodes = list(source.episodes())
    found = {
        "obs": [episode.observations[:-1] for episode in episodes],
        "next_obs": [episode.observations[1:] for episode in episodes],
        "acts": [episode.actions for episode in episodes],
        "rews": [episode.rewards for episode in episodes],
        "dones": [episode.columns["dones"] for episode in episodes],
        "frame": [episode.columns["frame"] for episode in episodes],
    }
    assert set(found) == set(expected)
    for column, parts in found.items():
        assert np.concatenate(parts).dtype == expected[column].dtype
        np.testing.assert_array_equal(np.concatenate(parts), expected[column])


def test_spaces_and_metadata_need_no_simulator() -> None:
    with ShardSource(GOLDEN / "A_plain.tar") as source:
        assert source.spec.action_space == Discrete(18)
        assert isinstance(source.spec.observation_space, Box)
        assert source.spec["observations"].align == "boundary"
        assert source.metadata["env_cfg"]["task_name"] == "TaskA"
        assert source.metadata["color_space"] == "RGB"
        assert source.spec["infos/internal_state"].shape == (4,)
        for episode in source.episodes():
            assert episode.terminations.tolist() == [False] * (len(episode) - 1) + [True]
            assert not episode.truncations.any()


def test_steps_without_a_description() -> None:
    with ShardSource(GOLDEN / "nometa.tgz") as source:
        assert (source.layout, source.offsets.tolist(), source.metadata) == ("seed", [0, 3], {})
        episode = source.episode(0)
    assert (episode.terminations.tolist(), episode.truncations.tolist()) == ([False] * 3, [False, False, True])
    (finding,) = FORMAT.check(GOLDEN / "nometa.tgz")
    assert "not done" in finding.message


def test_a_rollout() -> None:
    with ShardSource(GOLDEN / "magical-random.tar.zst") as source:
        assert np.diff(source.offsets).tolist() == [40, 40]
        assert source.spec["observations"].shape == (12, 96, 96)
        assert source.spec["dones"].dtype == np.int64
        assert "left_out" not in source.metadata
        assert source.spec["infos/terminal_observation"].align == "episode"
        assert [m["infos/episode/l"] for m in source.episode_metadata([0, 1])] == [40, 40]
        for e, episode in enumerate(source.episodes()):
            (seen,) = episode.columns["infos/terminal_observation"]
            np.testing.assert_array_equal(seen, episode.observations[-1])
            raw = source.sample(40 * e + 39)["infos.pickle"]["terminal_observation"]
            np.testing.assert_array_equal(seen, raw)


@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("layout", ["seed", "npy"])
def test_what_only_last_infos_have_is_written_again(layout: str, steps: int, tmp_path: Path) -> None:
    with ShardSource(GOLDEN / "magical-random.tar.zst") as source:
        spec = source.spec
        aligned = {path: slice(-1 - (f.align == "boundary") if steps == 1 else 0, None) for path, f in spec.items()}
        episodes = [
            penstock.Episode(spec, {p: a[aligned[p]] for p, a in one.columns.items()}, e, one.metadata)
            for e, one in enumerate(source.episodes())
        ]
        with FORMAT.create(tmp_path / "a", spec, source.metadata, layout=layout) as writer:
            writer.write_all(episodes)
        with ShardSource(tmp_path / "a") as again:
            assert again.spec == spec
            assert "infos/terminal_observation" in again.spec
            for ours, theirs in zip(again.episodes(), episodes, strict=True):
                assert ours.metadata == theirs.metadata
                assert ours.metadata["infos/episode/l"] == 40
                for path in spec.keys() - {"frame"}:  # which our writer counts itself
                    np.testing.assert_array_equal(ours.columns[path], theirs.columns[path])
            if layout == "seed":
                raw = again.sample(steps - 1)["infos.pickle"]
                np.testing.assert_array_equal(raw["terminal_observation"], episodes[0].observations[-1])


def test_pairs_come_from_the_house() -> None:
    data = penstock.open(GOLDEN / "A_plain.tar").windows(2).shuffle(seed=1)
    batch = data[:]["observations"].astype(int)
    numbers = batch[:, :, 0, 0, 0] + 256 * batch[:, :, 0, 0, 1]
    assert len(numbers) == 4 + 0 + 6 + 2
    assert (numbers[:, 1] - numbers[:, 0] == 1).all()
    assert sorted(numbers[:, 0].tolist()) == [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 16, 17]


@pytest.mark.parametrize("name", ["A_plain.tar", "A.tgz", "magical-random.tar.zst"])
def test_the_format_is_told_by_content(name: str, tmp_path: Path) -> None:
    plain = tmp_path / "data"
    plain.write_bytes((GOLDEN / name).read_bytes())
    assert FORMAT.recognises(plain)
    assert len(penstock.open(plain).steps()) == len(penstock.open(GOLDEN / name).steps())


def test_written_anew_it_is_the_same(tmp_path: Path) -> None:
    """Every column, through both layouts."""
    for layout in ("seed", "npy"):
        with ShardSource(GOLDEN / "A.tgz") as source:
            with FORMAT.create(tmp_path / layout, source.spec, source.metadata, layout=layout) as writer:
                writer.write_all(source.episodes())
            with ShardSource(tmp_path / layout) as again:
                assert again.spec == source.spec
                assert again.metadata == source.metadata
                for a, b in zip(again.episodes(), source.episodes(), strict=True):
                    for path in source.spec:
                        np.testing.assert_array_equal(a.columns[path], b.columns[path])


def test_metadata_of_the_seeds_layout_is_changed_in_every_archive(tmp_path: Path) -> None:
    with ShardSource(GOLDEN / "A.tgz") as source:
        episodes = list(source.episodes())
        with FORMAT.create(tmp_path / "a", source.spec, source.metadata, layout="seed", shard_episodes=2) as writer:
            writer.write_all(episodes[:3])
            writer.update_metadata({"author": "me", "color_space": "GRAY"})
            assert writer.write(episodes[3]) == 3
    shards = sorted((tmp_path / "a").glob("*.tar"))
    for path, count in ((shards[0], 2), (shards[1], 2), (tmp_path / "a", 4)):
        with ShardSource(path) as again:
            assert (len(again), again.metadata["author"], again.metadata["color_space"]) == (count, "me", "GRAY")
    with FORMAT.append(tmp_path / "a") as writer:
        assert writer.write(episodes[0]) == 4
    keys = [ShardSource(tmp_path / "a").samples.key(i) for i in range(21)]
    assert keys == [f"frame_{i:09d}" for i in range(21)]


def test_shards_of_different_dtypes_are_no_dataset() -> None:
    with pytest.raises(
        FormatError, match=r"expected dones to be .* got an array of int64 \[\] here and an array of bool"
    ):
        penstock.open([GOLDEN / "A_plain.tar", GOLDEN / "magical-random.tar.zst"])
