"""What the references get wrong and this does not: `known_defects` of tests/golden/packing, and its neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.loading.loader import Loader
from penstock_mirrors.airio import MapFnTransform, Mixture, PenstockDataSource, Task, feature_converters
from penstock_mirrors.airio.packing import (
    MultiBinPacker,
    MultiBinTruePackIterPreprocessor,
    MultiBinTruePackMapPreprocessor,
    NoamPacker,
    PackPreprocessor,
    PlannedPackPreprocessor,
)
from penstock_mirrors.airio.preprocessors import pad, trim

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "packing" / "known_defects.json"
CASES: dict[str, Any] = {case["id"]: case for case in json.loads(GOLDEN.read_text())["cases"]}


def of_lengths(lengths: list[int]) -> PenstockDataSource:
    """Example `i` is `lengths[i]` times `i + 1`."""
    return PenstockDataSource({"train": [{"targets": [i + 1] * n} for i, n in enumerate(lengths)]})


def rows(data: Any) -> list[list[int]]:
    return [row["targets"].tolist() for row in data]


@pytest.mark.parametrize("packer", [MultiBinTruePackIterPreprocessor, MultiBinTruePackMapPreprocessor])
def test_iterators_share_nothing(packer: PackPreprocessor) -> None:
    case = CASES["packer-state-shared-between-iterators"]
    data = Task("t", of_lengths(case["lengths"]), [packer]).get_dataset({"targets": case["feature_length"]})
    abandoned = iter(data)
    next(abandoned)
    first, second = rows(data), rows(data)
    assert first == second
    assert sorted(t for row in first for t in row if t) == [1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5, 5]


def test_tasks_may_share_a_preset() -> None:
    case = CASES["preset-packer-shared-between-tasks"]
    tasks = [
        Task(
            name,
            PenstockDataSource({"train": [{"targets": t} for t in case[name]]}),
            [MultiBinTruePackIterPreprocessor],
        )
        for name in "AB"
    ]
    mixture = Mixture("m", tasks, case["weights"])
    packs = rows(mixture.get_dataset({"targets": case["feature_length"]}, shuffle=False))
    assert packs == [[1, 1, 1, 0], [2, 2, 2, 0], [1, 1, 1, 0]]
    # Nor do the lengths of one dataset reach another that is asked of the same task.
    wide = tasks[0].get_dataset({"targets": 9}, shuffle=False)
    narrow = tasks[0].get_dataset({"targets": 3}, shuffle=False)
    assert (len(wide), len(narrow)) == (1, 3)
    assert wide[0]["targets"].tolist() == [1] * 9


@pytest.mark.parametrize("shuffle", [False, True])
def test_packs_repeat(shuffle: bool) -> None:
    case = CASES["packed-map-repeat-empty"]
    task = Task("t", of_lengths(case["lengths"]), [PackPreprocessor(MultiBinPacker(10), case["pool_size"])])
    once = task.get_dataset({"targets": 4}, shuffle=shuffle)
    twice = task.get_dataset({"targets": 4}, shuffle=shuffle, num_epochs=2)
    assert len(twice) == 2 * len(once)
    for epoch in (rows(twice)[: len(once)], rows(twice)[len(once) :]):
        assert sorted(epoch) == sorted(rows(once))


def test_concatenating_keeps_every_token() -> None:
    case = CASES["noam-map-drops-tokens"]
    source = PenstockDataSource({"train": [{"targets": np.arange(1, case["input_length"] + 1)}]})
    task = Task("t", source, [PackPreprocessor(NoamPacker(), pool_size=2)])
    packs = rows(task.get_dataset({"targets": case["feature_length"]}, shuffle=False))
    assert [token for pack in packs for token in pack] == list(range(1, case["required"]["tokens_out"] + 1))


@pytest.mark.parametrize("packer", [NoamPacker(), MultiBinPacker(4)])
def test_every_packer_can_be_resumed(packer: Any) -> None:
    assert "not-checkpointable" in CASES["slice-and-queue-not-checkpointable"]["id"]

    def loader() -> Loader:
        task = Task("t", of_lengths([3, 2, 4, 1, 2, 4, 1, 3] * 9), [PackPreprocessor(packer)])
        return task.get_dataset({"targets": 4}, batch_size=3)

    whole, halted = loader(), loader()
    expected = [batch["targets"].tolist() for batch in whole]
    for _ in zip(range(4), halted, strict=False):
        pass
    state = json.loads(json.dumps(halted.state_dict()))
    resumed = loader()
    resumed.load_state_dict(state)
    taken = state["position"] // 3
    assert [batch["targets"].tolist() for batch in resumed] == expected[taken:]
    assert 0 < taken < len(expected)


@pytest.mark.parametrize("multi", [False, True])
def test_pad_ids_stay_out_of_segment_ids(multi: bool) -> None:
    case = CASES["pad-id-leaks-into-segment-ids"]
    steps = feature_converters.get_t5x_enc_dec_feature_converter_preprocessors(
        pack=True, use_multi_bin_packing=multi, passthrough_feature_keys=[], pad_id=case["pad_id"], bos_id=0
    )
    task = Task("t", PenstockDataSource({"train": case["input"]}))
    (pack,) = task.get_dataset(case["sequence_lengths"], runtime_preprocessors=steps, shuffle=False)
    assert {name: pack[name].tolist() for name in case["required"]} == case["required"]
    assert pack["encoder_input_tokens"].tolist() == [7, 8, 5, 1, 1]
    assert pack["decoder_target_tokens"].tolist() == [3, 9, 4, 1, 1]
    assert pack["decoder_loss_weights"].tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("runtime", [False, True])
def test_epochs_are_packed_whole_and_ordered_anew(runtime: bool) -> None:
    assert CASES["iter-repeat-replays-the-same-packs"]["required"].startswith("fresh order")
    packer = [MultiBinTruePackIterPreprocessor]
    lengths = np.random.default_rng(0).integers(1, 9, 200).tolist()
    task = Task("t", of_lengths(lengths), [] if runtime else packer)
    data = task.get_dataset({"targets": 16}, runtime_preprocessors=packer if runtime else [], num_epochs=2)
    found = rows(data)
    first, second = found[: len(found) // 2], found[len(found) // 2 :]
    assert first != second
    tokens = sorted(i + 1 for i, n in enumerate(lengths) for _ in range(n))
    for epoch in (first, second):
        assert sorted(t for row in epoch for t in row if t) == tokens


def test_an_inner_zero_is_a_token() -> None:
    task = Task("t", PenstockDataSource({"train": [{"targets": [5, 0, 6, 7]}, {"targets": [0]}]}))
    steps = [MapFnTransform(trim), MultiBinTruePackIterPreprocessor, MapFnTransform(pad)]
    (pack,) = task.get_dataset({"targets": 6}, runtime_preprocessors=steps, shuffle=False)
    assert pack["targets"].tolist() == [5, 0, 6, 7, 0, 0]
    assert pack["targets_segment_ids"].tolist() == [1, 1, 1, 1, 2, 0]


def test_planned_packs_need_the_fewest() -> None:
    lengths = np.random.default_rng(0).integers(1, 17, 3000).tolist()
    sizes = [
        len(Task("t", of_lengths(lengths), [packer]).get_dataset({"targets": 16}))
        for packer in (PlannedPackPreprocessor, MultiBinTruePackIterPreprocessor, MultiBinTruePackMapPreprocessor)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 1.02 * sum(lengths) / 16
