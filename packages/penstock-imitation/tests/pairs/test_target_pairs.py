"""Target pairs of files that il-representations wrote, against what it made of them; and on the way to a loop."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import Loader, PlanError
from penstock.data.map_dataset import planned_samples
from penstock_imitation.target_pairs import KINDS, PairKind, TargetPairs

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr"
SHARDS = ["A.tgz", "A.tar.zst", "A_plain.tar"]
EXPECTED = sorted((GOLDEN / "pairs").glob("*.npz"))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """The shards in a folder of their own, for opening leaves an index there."""
    for name in [*SHARDS, "nometa.tgz"]:
        shutil.copy(GOLDEN / "shards" / name, tmp_path)
    return tmp_path


def kind_and_offset(path: Path) -> tuple[PairKind, int]:
    """`A_temporal_inverse_dynamics_k3.npz` is inverse dynamics over 3 steps; `None` stands for temporal."""
    if path.stem == "A_identity":
        return "identity", 1
    mode, k = path.stem.removeprefix("A_temporal_").rsplit("_k", 1)
    kind: Any = "temporal" if mode == "None" else mode
    return kind, int(k)


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.stem)
def test_pairs_are_those_of_the_original(path: Path, shard: str, shards: Path) -> None:
    kind, k = kind_and_offset(path)
    with penstock.open(shards / shard) as data, np.load(path, allow_pickle=False) as expected:
        pairs = data.apply(TargetPairs(kind, k))[:].flat
        wanted = {name: expected[name] for name in expected.files if expected[name].shape[1:] != (0,)}
    assert set(pairs) == set(wanted)
    for name, rows in wanted.items():
        np.testing.assert_array_equal(pairs[name], rows)
        assert pairs[name].dtype == rows.dtype


def test_all_of_the_originals_pairs_are_compared() -> None:
    assert len(EXPECTED) == 1 + 4 * 4
    assert {kind_and_offset(path)[0] for path in EXPECTED} == set(KINDS) - {"reward_prediction"}


def test_the_observation_after_the_last_step_is_the_one_that_is_stored(shards: Path) -> None:
    with penstock.open(shards / "A.tgz") as data:
        pairs = data.apply(TargetPairs("temporal", last=True))[:]
        following = data.transitions()[:]["next_observations"]
    np.testing.assert_array_equal(pairs["target"], following)


def test_the_end_of_a_file_is_a_boundary(tmp_path: Path) -> None:
    for number in range(2):
        shutil.copy(GOLDEN / "shards" / "nometa.tgz", tmp_path / f"{number}.tgz")
    with penstock.open(tmp_path) as data:
        assert not any(episode.columns["terminations"].any() for episode in data)
        ids = [data.apply(TargetPairs("temporal", k))[:]["traj_ts_ids"].tolist() for k in (1, 2, 3)]
    assert ids == [[[0, 1], [0, 2], [1, 1], [1, 2]], [[0, 2], [1, 2]], []]


def made(lengths: list[int], seed: int = 0) -> penstock.EpisodeDataset:
    """Observations and actions that differ everywhere."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths) + len(lengths)
    columns = {
        "observations": {"image": rng.permutation(rows * 6).reshape(rows, 1, 2, 3), "speed": rng.permutation(rows)},
        "actions": rng.permutation(sum(lengths)),
        "rewards": rng.random(sum(lengths)),
    }
    return penstock.from_arrays(columns, lengths)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("threads", [0, 2])
def test_every_output_owns_its_data(kind: PairKind, threads: int) -> None:
    data = made([4, 6, 3])
    fresh = data.apply(TargetPairs(kind))[:].flat
    pairs = data.apply(TargetPairs(kind))
    for batch in [pairs[:], *pairs.loader(batch_size=len(pairs), threads=threads)]:
        arrays = batch.flat
        for name in arrays:
            arrays[name][...] = 0
            for other in set(arrays) - {name}:
                np.testing.assert_array_equal(arrays[other], fresh[other])
            arrays[name][...] = fresh[name]
        for name in arrays:
            arrays[name][:1] = -1  # one sample is not in the memory of another, nor in that of the dataset
            np.testing.assert_array_equal(arrays[name][1:], fresh[name][1:])
    for name, rows in pairs[:].flat.items():
        np.testing.assert_array_equal(rows, fresh[name])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["temporal", "inverse_dynamics", "identity"])
def test_places_survive_everything_behind(kind: PairKind, seed: int) -> None:
    data = made([4, 0, 6, 3, 9, 2], seed)
    plain = data.apply(TargetPairs(kind))
    rows = dict(zip(map(tuple, plain[:]["traj_ts_ids"].tolist()), plain[:]["context/speed"].tolist(), strict=True))
    ways = {
        "shuffle": plain.shuffle(seed),
        "in pools": plain.shuffle(seed, block=4, pool=2),
        "repeat": plain.shuffle(seed).repeat(3),
        "shard": plain.shuffle(seed).shard(1, 3),
        "nominal": plain.shuffle(seed).with_epoch_length(7),
        "select": plain.select_columns("context"),
        "where": data.filter("total_steps > 3").apply(TargetPairs(kind)).shuffle(seed),
        "split": data.split(0.5, 0.5, seed=seed)[1].apply(TargetPairs(kind)),
        "take": data[[4, 2]].apply(TargetPairs(kind)),
        "pairs where": plain.filter(lambda c: c["context/speed"] % 2 == 0),
    }
    for way, pairs in ways.items():
        batch = planned_samples(pairs).at(np.arange(2 * len(pairs)))
        places = list(map(tuple, batch["traj_ts_ids"].tolist()))
        assert [rows[place] for place in places] == batch["context/speed"].tolist(), way


def test_places_of_a_mix_are_those_of_each_source() -> None:
    one, other = made([3, 4], 1), made([5, 2, 2], 2)
    parts = {
        "one": one.apply(TargetPairs("temporal")),
        "other": other.filter("id > 0").apply(TargetPairs("temporal")),
    }
    mixed = penstock.mix(parts, stop="drain")[:]
    for number, name in enumerate(parts):
        mine = mixed.take(np.flatnonzero(mixed["source"] == number))
        for column, values in parts[name][:].flat.items():
            np.testing.assert_array_equal(mine[column], values)


def test_places_of_parts_without_them() -> None:
    pairs = made([3, 4], 1).apply(TargetPairs("identity"))
    alike = made([5], 2)[0].observations
    steps = penstock.from_arrays({"context": alike, "target": alike}, lengths=[6]).steps()
    with pytest.raises(PlanError, match="expected 'traj_ts_ids' in every part of a mix, got none in"):
        penstock.mix([pairs, steps])
    with_steps = penstock.mix([pairs, steps], union=True, stop="drain")[:]
    lacking = with_steps["source"] == 1
    assert np.all(with_steps["traj_ts_ids"][lacking] == -1)
    np.testing.assert_array_equal(with_steps["traj_ts_ids"][~lacking], pairs[:]["traj_ts_ids"])


def test_pairs_of_unequal_action_spaces_mix_where_no_action_is_read() -> None:
    def atari(actions: Any, seed: int) -> penstock.EpisodeDataset:
        frames = np.random.default_rng(seed).integers(0, 256, (12, 1, 4, 4), np.uint8)
        return penstock.from_arrays({"observations": frames, "actions": actions}, lengths=[6, 4])

    pong, walker = atari(np.arange(10), 0), atari(np.zeros((10, 3), np.float32), 1)
    for kind in ("identity", "temporal"):
        assert penstock.mix([pong.apply(TargetPairs(kind)), walker.apply(TargetPairs(kind))])[:].n
    with pytest.raises(penstock.SpecError, match="extra_context"):
        penstock.mix([pong.apply(TargetPairs("dynamics")), walker.apply(TargetPairs("dynamics"))])


@pytest.mark.parametrize("seed", [0, 5])
def test_a_mix_is_off_its_shares_by_at_most_one_sample(seed: int) -> None:
    one, other = (made([40, 7, 30], s).apply(TargetPairs("temporal")).shuffle(seed + s) for s in (0, 1))
    mixed = penstock.mix({"one": one, "other": other}, {"one": 7, "other": 3}, stop="never").with_epoch_length(64)
    loader = mixed.loader(batch_size=50, threads=1)
    picked = np.concatenate([batch["source"] for _ in range(20) for batch in loader])
    assert len(picked) == 20 * 64
    seen, k = np.cumsum(picked == 0), np.arange(1, len(picked) + 1)
    assert np.abs(seen - 0.7 * k).max() <= 1
    uniform = penstock.mix([one, other], [1, 1], stop=101)[:]["source"]
    assert np.abs(np.cumsum(uniform == 0) - 0.5 * np.arange(1, 102)).max() <= 1


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("nominal", [None, 37])
def test_resumed_in_an_epoch_with_other_threads_it_is_the_same_to_the_bit(seed: int, nominal: int | None) -> None:
    one, other = (made([11, 0, 23, 17], s).apply(TargetPairs("inverse_dynamics", 2, last=True)) for s in (0, 1))
    mixed = penstock.mix([one.shuffle(seed), other.shuffle(seed)], [7, 3], stop=nominal or "drain")
    pairs = mixed.map(lambda c, keys: c.merged({"key": keys}), seed=seed)

    def told(batch: Any) -> bytes:
        return b"".join(array.tobytes() for array in batch.flat.values())

    def epochs(loader: Loader, count: int) -> list[bytes]:
        return [told(batch) for _ in range(count) for batch in loader]

    whole = epochs(pairs.loader(batch_size=8, threads=2), 2)
    loader = pairs.loader(batch_size=8, threads=3)
    begun = [told(batch) for _, batch in zip("ab", loader, strict=False)]
    state = loader.state_dict()
    again = pairs.loader(batch_size=8, threads=0)
    again.load_state_dict(state)
    assert begun + epochs(again, 2) == whole
    assert whole != epochs(pairs.map(lambda c: c).shuffle(seed + 1).loader(batch_size=8, threads=0), 2)


def test_ranks_share_each_batch() -> None:
    pairs = made([9, 30]).apply(TargetPairs("dynamics", 3)).shuffle(seed=1)
    loaders = [pairs.loader(batch_size=10, rank=r, world=3, threads=1) for r in range(3)]
    rows = [np.concatenate([b["traj_ts_ids"] for b in parts]) for parts in zip(*loaders, strict=True)]
    np.testing.assert_array_equal(np.concatenate(rows), pairs[:]["traj_ts_ids"])


def test_tickets_name_the_rows_behind_pairs_and_stages_are_measured() -> None:
    data = made([4, 6])
    loader = data.apply(TargetPairs("inverse_dynamics", 2)).shuffle(seed=3).loader(batch_size=4, threads=0)
    batch = next(iter(loader))
    table = loader.why(batch.ticket).table
    np.testing.assert_array_equal(np.stack([table["episode"], table["step"] + 2], axis=1), batch["traj_ts_ids"])
    later = loader.why(batch.ticket, "extra_context/image").table
    np.testing.assert_array_equal(np.stack([later["episode"], later["step"]], axis=1), batch["traj_ts_ids"])
    assert loader.why(batches=2).stages


def test_returns_of_k_steps_are_a_map() -> None:
    rewards = np.arange(1.0, 8.0)
    data = penstock.from_arrays({"observations": np.zeros(9), "rewards": rewards}, lengths=[4, 3])
    weights = 0.5 ** np.arange(3)
    pairs = data.apply(TargetPairs("reward_prediction", 3, last=True)).map(
        lambda c: c.merged({"target": c["target"] @ weights})
    )
    assert pairs[:]["target"].tolist() == [1 + 1 + 0.75, 2 + 1.5 + 1, 5 + 3 + 1.75]
