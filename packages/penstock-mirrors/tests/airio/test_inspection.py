"""Builders, steps, module paths; features of several ragged axes and lengths by axis.

Expected values are the original's (google/airio 69897df over Grain 0.2.18), which was run on the same programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock_mirrors.airio.pygrain as airio
import penstock_mirrors.airio.pygrain_common as common
from penstock import MapDataset
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.errors import PlanError, SpecError
from penstock_mirrors.airio import PenstockDataSource, batched, core
from penstock_mirrors.airio.packing import PackPreprocessor, PlannedPackPreprocessor, SingleBinTruePackIterPreprocessor

NUMBERS = airio.FunctionDataSource(lambda split: np.arange(50), splits=["train"])
PLUS, KEEP = airio.MapFnTransform(lambda x: x + 1), airio.FilterFnTransform(lambda x: x % 3 != 0)
TRIM, PAD = airio.MapFnTransform(common.preprocessors.trim), airio.MapFnTransform(common.preprocessors.pad)


def plain(found: Any) -> Any:
    """Dicts and lists of numbers."""
    if isinstance(found, (dict, Columns)):
        return {key: plain(found[key]) for key in found}
    if isinstance(found, list):
        return [plain(one) for one in found]
    return found.tolist() if hasattr(found, "tolist") else found


def grown(x: Any) -> dict[str, Any]:
    """`m` ragged along both axes, `v` along the first."""
    n = int(x)
    return {"m": np.full((n % 3 + 1, n % 2 + 1), n), "v": np.arange(n % 4 * 2).reshape(n % 4, 2)}


def only_v(x: Any) -> dict[str, Any]:
    return {"v": grown(x)["v"]}


def test_a_builder_makes_tasks_and_shares_nothing_with_them() -> None:
    builder = airio.GrainTaskBuilder("t", NUMBERS, [PLUS])
    first = builder.build()
    second = builder.set_task_name("u").set_preprocessors([PLUS, KEEP]).build()
    assert (first.name, len(first.get_preprocessors()), first.num_input_examples("train")) == ("t", 1, 50)
    assert (second.name, len(second.get_preprocessors())) == ("u", 2)
    other = airio.GrainTaskBuilder.from_task(second).set_data_source(PenstockDataSource({"train": [1]})).build()
    assert (other.name, len(other.get_dataset()), len(second.get_dataset())) == ("u", 1, 34)
    assert repr(builder).startswith("TaskBuilder(task_name='u', source=")


@pytest.mark.parametrize(("source", "preprocessors", "missing"), [(None, [PLUS], "a source"), (NUMBERS, None, "prep")])
def test_what_a_builder_lacks_is_said(source: Any, preprocessors: Any, missing: str) -> None:
    with pytest.raises(PlanError, match=f"expected {missing}.* of 't' to build it"):
        core.TaskBuilder("t", source, preprocessors).build()


def test_examples_step_by_step() -> None:
    task = airio.GrainTask("t", NUMBERS, [PLUS, KEEP])
    assert plain(task.get_dataset_by_step(5, shuffle=False)) == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 4, 5]]
    assert plain(task.get_dataset_by_step(shuffle=False)) == [[0, 1], [1, 2], [1, 2]]
    assert plain(task.get_dataset_by_step(6, shuffle=False, batch_size=4))[-1] == [[1, 2, 4, 5]]
    shuffled = plain(task.get_dataset_by_step(30, seed=3))
    assert shuffled == plain(task.get_dataset_by_step(30, seed=3))
    assert shuffled[0] != sorted(shuffled[0])
    assert shuffled[1] == [x + 1 for x in shuffled[0]]
    nothing = airio.FilterFnTransform(lambda x: False)
    assert plain(task.get_dataset_by_step(2, None, "train", [nothing, PLUS], 4, False)) == [
        *([0, 1], [1, 2], [1, 2], [], []),
        [],
    ]
    for records in (0, 1001):
        with pytest.raises(PlanError, match=f"from 1 to 1000, got {records}"):
            task.get_dataset_by_step(records)
    with pytest.raises(PlanError, match="expected a seed"):
        task.get_dataset_by_step(seed=None)


def test_steps_of_columns_and_of_packs() -> None:
    source = PenstockDataSource({"train": [{"targets": [1, 2, 3]}, {"targets": [4]}, {"targets": [5, 6]}]})
    steps = [TRIM, SingleBinTruePackIterPreprocessor, airio.MapFnTransform(lambda e: {"targets": e["targets"]})]
    found = plain(airio.GrainTask("p", source, steps).get_dataset_by_step(3, {"targets": 4}, shuffle=False))
    assert [len(step) for step in found] == [3, 3, 2, 2]
    assert found[2][0]["targets_segment_ids"] == [1, 1, 1, 2]
    assert found[3] == [{"targets": [1, 2, 3, 4]}, {"targets": [5, 6, 0, 0]}]


def test_features_that_are_ragged_along_two_axes_are_trimmed_and_padded_by_lists_of_lengths() -> None:
    task = airio.GrainTask("w", NUMBERS, [airio.MapFnTransform(grown), TRIM, PAD])
    data = task.get_dataset({"m": [2, 3], "v": [3, 2]}, shuffle=False)
    assert plain(list(data))[2:4] == [
        {"m": [[2, 0, 0], [2, 0, 0]], "v": [[0, 1], [2, 3], [0, 0]]},
        {"m": [[3, 3, 0], [0, 0, 0]], "v": [[0, 1], [2, 3], [4, 5]]},
    ]
    steps = plain(task.get_dataset_by_step(3, {"m": (2, 3), "v": 2}, shuffle=False))
    assert steps[2][2] == {"m": [[2], [2]], "v": [[0, 1], [2, 3]]}
    assert steps[3][2] == {"m": [[2, 0, 0], [2, 0, 0]], "v": [[0, 1], [2, 3]]}
    (batch, *_) = task.get_dataset({"m": [2, 3], "v": [3, 2]}, shuffle=False, batch_size=4)
    assert (batch["m"].shape, batch["v"].shape) == ((4, 2, 3), (4, 3, 2))


def test_features_that_are_ragged_along_the_first_of_two_axes_are_columns() -> None:
    seen: list[Any] = []

    @batched
    def looked_at(columns: Columns) -> Columns:
        seen.append(columns["v"])
        return columns

    steps = [airio.MapFnTransform(only_v), airio.MapFnTransform(looked_at), TRIM, PAD]
    data = airio.GrainTask("x", NUMBERS, steps).get_dataset({"v": 2}, shuffle=False)
    assert plain(data[:5]["v"]) == [
        *([[0, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 1], [2, 3]], [[0, 1], [2, 3]]),
        [[0, 0], [0, 0]],
    ]
    assert isinstance(seen[-1], Ragged)
    assert seen[-1].values.shape[1:] == (2,)


def test_functions_of_rows_keep_features_of_two_axes_ragged() -> None:
    def reversed_rows(example: dict[str, Any]) -> dict[str, Any]:
        return {"v": example["v"][::-1]}

    @batched
    def same(columns: Columns) -> Columns:
        return columns

    steps = [airio.MapFnTransform(only_v), airio.MapFnTransform(same), airio.MapFnTransform(reversed_rows)]
    data = airio.GrainTask("x", NUMBERS, steps).get_dataset({"v": 4}, shuffle=False)
    assert [plain(data[i]["v"]) for i in (3, 7)] == [[[4, 5], [2, 3], [0, 1]]] * 2
    assert isinstance(data[np.array([3, 7])]["v"], Ragged)  # as long as each other, and ragged all the same


@pytest.mark.parametrize("packer", [SingleBinTruePackIterPreprocessor, PlannedPackPreprocessor])
def test_features_of_two_axes_are_packed(packer: PackPreprocessor) -> None:
    examples = [{"targets": np.full((n, 2), i + 1)} for i, n in enumerate([1, 2, 3, 1, 2, 3, 1])]
    task = airio.GrainTask("k", PenstockDataSource({"train": examples}), [packer, PAD])
    packs = plain(list(task.get_dataset({"targets": 4}, shuffle=False)))
    if packer is SingleBinTruePackIterPreprocessor:
        assert [pack["targets"] for pack in packs] == [
            [[1, 1], [2, 2], [2, 2], [0, 0]],
            [[3, 3], [3, 3], [3, 3], [4, 4]],
            [[5, 5], [5, 5], [0, 0], [0, 0]],
            [[6, 6], [6, 6], [6, 6], [7, 7]],
        ]
        assert [pack["targets_segment_ids"] for pack in packs][:2] == [[1, 2, 2, 0], [1, 1, 1, 2]]
    rows = sorted(row for pack in packs for row in pack["targets"] if any(row))
    assert rows == sorted(row.tolist() for example in examples for row in example["targets"])


def test_mixed_features_of_two_axes_are_packed() -> None:
    tasks = [
        airio.GrainTask(name, PenstockDataSource({"train": [{"t": np.full((n, 2), k)} for n in (1, 2, 3)]}))
        for k, name in ((1, "a"), (2, "b"))
    ]
    mixture = airio.GrainMixture("m", tasks, [1, 1])
    packs = mixture.get_dataset({"t": 4}, runtime_preprocessors=[PlannedPackPreprocessor], shuffle=False)
    rows = [row for pack in packs for row in plain(pack["t"]) if any(row)]
    assert rows.count([1, 1]) == rows.count([2, 2]) > 3


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ({"m": [2, 3, 4]}, SpecError, "for each of 2 axes of 'm', got \\[2, 3, 4\\]"),
        ({"m": [1, 1]}, SpecError, "trim before padding"),
        ({"m": []}, PlanError, "a list of one for each axis"),
        ({"m": [2, -1]}, PlanError, "a list of one for each axis"),
        ({"v": 4}, SpecError, "`trim` and `pad` a list"),
    ],
)
def test_lengths_that_do_not_fit_say_so(lengths: Any, error: type[Exception], message: str) -> None:
    steps = [PAD] if lengths.get("m") == [1, 1] else [TRIM, PAD]
    task = airio.GrainTask("w", NUMBERS, [airio.MapFnTransform(grown), *steps])
    with pytest.raises(error, match=message):
        list(task.get_dataset(lengths, shuffle=False))


def test_lists_of_lengths_are_neither_packed_nor_converted() -> None:
    source = PenstockDataSource({"train": [{"targets": [1, 2]}]})
    for steps in (
        [SingleBinTruePackIterPreprocessor],
        common.feature_converters.get_t5x_lm_feature_converter_preprocessors(False),
    ):
        with pytest.raises(PlanError, match=r"one number as the sequence length .*got {'targets': \[2\]}"):
            airio.GrainTask("p", source, steps).get_dataset({"targets": [2]})[0]


def test_a_filter_may_change_what_comes_behind_it_is_told() -> None:
    narrow = airio.FilterFnTransform(
        lambda example: True, update_runtime_args=lambda args: args.replace(sequence_lengths={"targets": 1})
    )
    source = PenstockDataSource({"train": [{"targets": [1, 2, 3]}]})
    (row,) = airio.GrainTask("f", source, [narrow, TRIM]).get_dataset({"targets": 2}, shuffle=False)
    assert row["targets"].tolist() == [1]


def test_features_may_be_rekeyed_to_nothing_and_not_at_all() -> None:
    source = PenstockDataSource({"train": [{"a": 1}, {"a": 2}]})
    task = airio.GrainTask("r", source, [airio.MapFnTransform(common.preprocessors.rekey)])
    assert [plain(row) for row in task.get_dataset(shuffle=False)] == [{"a": 1}, {"a": 2}]
    rekeyed = common.preprocessors.rekey(Columns({"a": np.arange(2)}), {"b": "a", "c": None})
    assert rekeyed["c"].strings() == ["", ""]


def test_a_seed_may_be_none_where_nothing_is_shuffled() -> None:
    task = airio.GrainTask("t", NUMBERS, [PLUS])
    assert plain(task.get_dataset(shuffle=False, seed=None)[:2]["element"]) == [1, 2]
    with pytest.raises(PlanError, match="expected a seed"):
        task.get_dataset(seed=None)


def test_workers_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(MapDataset, "loader", lambda *_, threads, **__: asked.append(threads))
    task = airio.GrainTask("t", NUMBERS, [PLUS])
    for workers, threads in ((3, 2), (0, 2), (None, None), (1, None), (2, 5)):
        task.get_dataset(batch_size=5, num_workers=workers, num_prefetch_threads=threads)
    assert asked == [3, 2, None, 1, 5]
    with pytest.raises(PlanError, match="num_workers"):
        task.get_dataset(num_workers=2)


def test_names_that_are_not_offered_say_what_to_use() -> None:
    for module, name, hint in (
        (airio, "TfdsDataSource", "tfds.data_source"),
        (airio, "Tokenizer", "MapFnTransform"),
        (common, "span_corruption", "RandomMapFnTransform"),
    ):
        with pytest.raises(AttributeError, match=hint):
            getattr(module, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        airio.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    assert common.constants.SKIP_FEATURE == -1
