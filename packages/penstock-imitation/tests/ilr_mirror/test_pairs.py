"""Pair constructors: against what il-representations gave, as plans, one by one, and in batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ilr_mirror.conftest import PAIRS, SHARDS, number
from penstock_imitation.il_representations import (
    IdentityPairConstructor,
    ILRDataset,
    JigsawPairConstructor,
    SubdatasetExtractor,
    TargetPairConstructor,
    TemporalOffsetPairConstructor,
    datasets_to_loader,
    load_ilr_datasets,
    write_frames,
)

A = SHARDS / "A_plain.tar"
KEYS = ("context", "target", "extra_context", "traj_ts_ids")
CASES = [("identity", IdentityPairConstructor())] + [
    (f"temporal_{mode}_k{k}", TemporalOffsetPairConstructor(mode, k))
    for mode in (None, "dynamics", "inverse_dynamics", "action_prediction")
    for k in (1, 2, 3, 5)
]


def equal(pairs: list[dict[str, Any]], name: str) -> None:
    expected = np.load(PAIRS / f"A_{name}.npz")
    assert len(pairs) == len(expected["context"])
    for key in KEYS:
        found = np.array([pair[key] for pair in pairs])
        assert found.dtype == expected[key].dtype
        np.testing.assert_array_equal(found, expected[key])


@pytest.mark.parametrize(("name", "constructor"), CASES)
@pytest.mark.parametrize("way", ["piped", "called", "iterated", "generic"])
def test_equal_to_the_originals(name: str, constructor: TargetPairConstructor, way: str) -> None:
    dataset = ILRDataset(A)
    pairs = {
        "piped": lambda: dataset.pipe(constructor),
        "called": lambda: constructor(dataset),
        "iterated": lambda: constructor(iter(dataset)),
        "generic": lambda: dataset.pipe(lambda frames: frames).pipe(constructor),
    }[way]()
    found = list(pairs)
    assert all(list(pair) == list(KEYS) for pair in found)
    assert {type(pair["traj_ts_ids"]) for pair in found} == {list}
    equal(found, name)


@pytest.mark.parametrize("shard", ["A.tgz", "A.tar.zst"])
def test_archives_of_both_commits(shard: str) -> None:
    equal(list(load_ilr_datasets([SHARDS / shard]).pipe(CASES[7][1])), CASES[7][0])


@pytest.mark.parametrize("way", ["piped", "generic"])
def test_no_pair_shares_memory_with_another(way: str) -> None:
    dataset = ILRDataset(A) if way == "piped" else ILRDataset(A).pipe(lambda frames: frames)
    for name, constructor in CASES[:6]:
        pairs = list(dataset.pipe(constructor))
        for pair in pairs:
            for key in ("context", "target"):
                kept = pair[key].copy()
                pair[key][...] = 0
                pair[key] = kept
        equal(pairs, name)


def test_a_constructor_of_ones_own() -> None:
    class Ends(TargetPairConstructor):
        def __call__(self, data_iter: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            for frame in data_iter:
                if frame["dones"]:
                    yield {"context": frame["obs"], "target": frame["next_obs"]}

    pairs = list(ILRDataset(A).pipe(Ends()))
    assert [number(pair["target"]) - number(pair["context"]) for pair in pairs] == [1] * 4
    with pytest.raises(TypeError):
        TargetPairConstructor()  # type: ignore[abstract]


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="expected a mode among"):
        TemporalOffsetPairConstructor("dynamic")
    with pytest.raises(ValueError, match="an offset of at least 1"):
        TemporalOffsetPairConstructor(None, 0)
    with pytest.raises(ValueError, match=r"without \{'dones'\}"):
        list(TemporalOffsetPairConstructor()([{"obs": 1, "acts": 2}]))
    assert list(TemporalOffsetPairConstructor()([])) == []


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two trajectories of images of 12 x 12, every pixel with a number of its own."""
    obs = np.arange(6 * 2 * 144, dtype=np.int32).reshape(6, 2, 12, 12)
    frames = [{"obs": obs[t], "acts": t, "dones": t in (3, 5)} for t in range(6)]
    write_frames(tmp_path / "images.tar", {}, frames)
    return tmp_path / "images.tar"


def test_puzzles(images: Path, tmp_path: Path) -> None:
    table = np.array([np.random.default_rng(seed).permutation(9) for seed in range(5)])
    np.save(tmp_path / "table.npy", table)
    constructor = JigsawPairConstructor(tmp_path / "table.npy", seed=3)
    dataset = ILRDataset(images)
    planned, one_by_one = list(dataset.pipe(constructor)), list(constructor(iter(dataset)))
    frames = list(dataset)
    for i, (pair, other) in enumerate(zip(planned, one_by_one, strict=True)):
        for key in KEYS:
            np.testing.assert_array_equal(pair[key], other[key])
        assert (pair["target"].shape, pair["extra_context"]) == ((1,), [])
        assert pair["context"].shape == (2, 6, 6)
        for place, cell in enumerate(table[pair["target"][0]].tolist()):
            row, column = 4 * (cell // 3), 4 * (cell % 3)
            at = (
                slice(None),
                slice(2 * (place // 3), 2 * (place // 3) + 2),
                slice(2 * (place % 3), 2 * (place % 3) + 2),
            )
            np.testing.assert_array_equal(pair["context"][at], frames[i]["obs"][:, row : row + 2, column : column + 2])
    assert [pair["traj_ts_ids"] for pair in planned] == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1]]
    other = list(dataset.pipe(JigsawPairConstructor(tmp_path / "table.npy", seed=4)))
    assert [pair["target"][0] for pair in planned] != [pair["target"][0] for pair in other]


def batches(seed: int = 0, **options: Any) -> Any:
    datasets = [ILRDataset(A), ILRDataset(SHARDS / "A.tgz")]
    options = {"batch_size": 4, "nominal_length": 20, "preprocessors": [CASES[5][1]], "seed": seed} | options
    return datasets_to_loader(datasets, **options)


@pytest.mark.parametrize(("name", "constructor"), CASES)
def test_batches_have_the_originals_form(name: str, constructor: TargetPairConstructor) -> None:
    expected = np.load(PAIRS / f"A_{name}.npz")
    loader = datasets_to_loader(
        [ILRDataset(A)],
        batch_size=3,
        nominal_length="drain",
        shuffle=False,
        drop_last=False,
        preprocessors=[constructor],
    )
    found = list(loader)
    assert len(loader) == len(found) == -(-len(expected["context"]) // 3)
    assert all(list(batch) == list(KEYS) and batch["context"].shape[0] == len(batch["target"]) for batch in found)
    for key in ("context", "target"):
        np.testing.assert_array_equal(torch.cat([batch[key] for batch in found]).numpy(), expected[key])
    assert all((batch["extra_context"] == []) == (expected["extra_context"].shape[1:] == (0,)) for batch in found)
    ids = [torch.stack(batch["traj_ts_ids"], dim=1) for batch in found]
    np.testing.assert_array_equal(torch.cat(ids).numpy(), expected["traj_ts_ids"])


def contents(loader: Any) -> list[list[int]]:
    return [[number(context.numpy()) for context in batch["context"]] for batch in loader]


def test_batches_are_seeded_shuffled_and_of_the_same_order_on_any_number_of_threads() -> None:
    orders = [contents(batches(seed, max_workers=threads)) for seed in (0, 1) for threads in (0, 1, 3)]
    assert orders[0] == orders[1] == orders[2]
    assert orders[3] == orders[4] == orders[5] != orders[0]
    assert [len(order) for order in orders] == [5] * 6
    plain = contents(batches(shuffle=False))
    assert plain not in orders
    assert plain[0] == [0, 0, 1, 1]


def test_batches_go_on_in_the_middle_of_an_epoch() -> None:
    loader = batches()
    list(itertools.islice(loader, 2))
    state = loader.state_dict()
    again = batches(max_workers=0)
    again.load_state_dict(state)
    whole = batches()
    assert contents(again) + contents(again) == contents(whole)[2:] + contents(whole)


def test_functions_are_batched_by_pytorch() -> None:
    extractor = SubdatasetExtractor(n_trajs=3)
    loader = batches(preprocessors=[extractor, lambda frames: frames, CASES[5][1]], max_workers=0, nominal_length=8)
    assert isinstance(loader, torch.utils.data.DataLoader)
    (first, _) = list(loader)
    assert first["context"].shape == (4, 3, 8, 8)
    assert isinstance(first["traj_ts_ids"], list)
    collated = batches(collate_fn=len, max_workers=0, nominal_length=8)
    assert list(collated) == [4, 4]


def test_frames_are_batched_too() -> None:
    (batch,) = batches(preprocessors=[], max_workers=0, batch_size=20)
    assert batch["obs"].shape == (20, 3, 8, 8)
    assert batch["infos"]["internal_state"].shape == (20, 4)


def test_no_whole_batch() -> None:
    with pytest.raises(ValueError, match="a whole batch of 30"):
        batches(batch_size=30)
    assert [len(b["context"]) for b in batches(batch_size=30, drop_last=False)] == [20]
