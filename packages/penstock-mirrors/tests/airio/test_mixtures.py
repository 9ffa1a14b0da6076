"""Mixtures: exact rates at random access with a global shuffle, whatever was filtered and packed."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, SpecError
from penstock.loading.loader import Loader
from penstock_mirrors.airio import FilterFnTransform, MapFnTransform, Mixture, PenstockDataSource, Task
from penstock_mirrors.airio.packing import (
    MultiBinTruePackMapPreprocessor,
    NoamPackMapPreprocessor,
    PackPreprocessor,
    PlannedPackPreprocessor,
)
from penstock_mirrors.airio.preprocessors import pad, trim

SHARES = [Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)]
ROOM = {"targets": 32}


def source(kind: int, n: int, seed: int = 0) -> PenstockDataSource:
    """`n` examples of 1 to 12 tokens, each `kind * 10 000` and its number."""
    lengths = np.random.default_rng(seed).integers(1, 13, n)
    return PenstockDataSource({"train": [{"targets": np.full(m, kind * 10_000 + i)} for i, m in enumerate(lengths)]})


def one_in_ten(example: dict[str, Any]) -> bool:
    return int(example["targets"][0]) % 10 == 0


def kinds(data: Any) -> list[int]:
    """Which source each row is from; rows of several do not pass."""
    rows = [row["targets"][row["targets"] > 0] // 10_000 for row in data]
    assert all(len(set(row.tolist())) == 1 for row in rows)
    return [int(row[0]) for row in rows]


@pytest.mark.parametrize("packer", [PlannedPackPreprocessor, MultiBinTruePackMapPreprocessor, NoamPackMapPreprocessor])
def test_the_rates_are_exact_where_one_task_is_filtered_and_packed(packer: PackPreprocessor) -> None:
    padded = [MapFnTransform(trim), MapFnTransform(pad)]
    tasks = [
        Task("a", source(1, 900), padded if packer is NoamPackMapPreprocessor else [packer]),
        Task("b", source(2, 3000), [FilterFnTransform(one_in_ten), packer]),
        Task("c", source(3, 500), padded if packer is NoamPackMapPreprocessor else [packer]),
    ]
    data = Mixture("abc", tasks, [0.5, 0.3, 0.2]).get_dataset(ROOM, seed=3)
    assert isinstance(data, MapDataset)
    assert len(data) > 100
    found = np.array(kinds(data))
    for k in range(1, len(data) + 1):  # at every prefix
        assert all(abs(np.count_nonzero(found[:k] == i + 1) - k * share) < 1 for i, share in enumerate(SHARES))
    at = np.random.default_rng(0).permutation(len(data))  # read in any order
    assert kinds([data[int(i)] for i in at]) == found[at].tolist()
    other = Mixture("abc", tasks, [0.5, 0.3, 0.2]).get_dataset(ROOM, seed=4)
    assert not np.array_equal(other[:]["targets"], data[:]["targets"])
    only_b = [row["targets"] for row, kind in zip(data, found, strict=True) if kind == 2]
    assert all(token % 10 == 0 for row in only_b for token in row[row > 0].tolist())


def sparse_mix(held: list[np.ndarray[Any, np.dtype[np.bool_]]], weights: list[int]) -> list[int]:
    """A model of the reference, for documentation: a filtered or packed dataset keeps a slot for every example that
    went in, `held[i]` telling which slots have something. Slots are picked at the wanted rates, and empty ones dropped
    afterwards. Gives how many elements of each dataset come out."""
    cycle = [i for i, weight in enumerate(weights) for _ in range(weight)]
    taken, out = [0] * len(held), [0] * len(held)
    for pick in range(min(len(h) * len(cycle) // w for h, w in zip(held, weights, strict=True))):
        i = cycle[pick % len(cycle)]
        out[i] += bool(held[i][taken[i]])
        taken[i] += 1
    return out


def test_the_references_give_one_to_four_for_one_to_one() -> None:
    # Four examples fill a pack, so that one slot of four of the packed dataset holds one.
    packed = np.arange(400) % 4 == 0
    assert sparse_mix([packed, np.ones(400, np.bool_)], [1, 1]) == [100, 400]
    # Here there are as many packs as there are, and they come at the rate that was asked for.
    four = PenstockDataSource({"train": [{"targets": np.full(8, 10_000 + i)} for i in range(400)]})
    single = PenstockDataSource({"train": [{"targets": np.full(32, 20_000 + i)} for i in range(400)]})
    tasks = [Task("packed", four, [PlannedPackPreprocessor]), Task("single", single, [PlannedPackPreprocessor])]
    assert Counter(kinds(Mixture("both", tasks, [1, 1]).get_dataset(ROOM))) == {1: 100, 2: 100}


def test_weights_are_not_rounded() -> None:
    tasks = [Task("a", source(1, 3000)), Task("b", source(2, 3000))]
    mixture = Mixture("m", tasks, [1, 1.009])
    assert mixture.get_proportion(tasks[1]) == Fraction(1009, 2009)
    data = mixture.get_dataset({"targets": 12}, runtime_preprocessors=[MapFnTransform(pad)], shuffle=False)
    found = np.array(kinds(data[i] for i in range(2009)))
    assert np.count_nonzero(found == 1) == 1000


def test_mixtures_in_mixtures() -> None:
    a, b, c = (Task(name, source(i + 1, 200), [MapFnTransform(pad)]) for i, name in enumerate("abc"))
    inner = Mixture("inner", [a, b], [3, 1])
    outer = Mixture("outer", [inner, c], [1, 1])
    assert [outer.get_proportion(task) for task in (a, b, c)] == [Fraction(3, 8), Fraction(1, 8), Fraction(1, 2)]
    assert Counter(kinds(outer.get_dataset({"targets": 12})[i] for i in range(80))) == {1: 30, 2: 10, 3: 40}
    assert outer.leaf_tasks == [a, b, c]
    assert outer.num_input_examples("train") == 600
    assert outer.splits == {"train"}


def test_packing_after_mixing_puts_tasks_together() -> None:
    tasks = [Task("a", source(1, 300)), Task("b", source(2, 200, seed=1))]
    data = Mixture("m", tasks, [1, 1]).get_dataset(ROOM, runtime_preprocessors=[PlannedPackPreprocessor])
    rows = [set((row["targets"][row["targets"] > 0] // 10_000).tolist()) for row in data]
    assert {1, 2} in rows
    ids = data[:]["targets_segment_ids"]
    assert ids.max(axis=1).sum() == 401  # examples until the shorter task would begin anew
    assert np.array_equal(ids > 0, data[:]["targets"] > 0)


def test_examples_before_packing_and_functions_behind_it() -> None:
    tasks = [Task("a", source(1, 50)), Task("b", source(2, 50))]
    doubled = MapFnTransform(lambda c: {"targets": c["targets"] * 2}, batched=True)
    each = MapFnTransform(lambda example: {"targets": example["targets"] * 2})
    steps = [MapFnTransform(trim), each, NoamPackMapPreprocessor, MapFnTransform(pad), doubled]
    data = Mixture("m", tasks, [1, 1]).get_dataset({"targets": 4}, runtime_preprocessors=steps, shuffle=False)
    assert {int(t) // 10_000 for row in data for t in row["targets"] if t} == {4, 8}


def test_a_label_tells_the_task_and_batches_come_from_a_loader() -> None:
    tasks = [Task(name, source(i + 1, 40), [PlannedPackPreprocessor]) for i, name in enumerate("ab")]
    labelled = Mixture("m", tasks, [1, 1], label="from").get_dataset(ROOM)
    assert (labelled[:]["from"] + 1).tolist() == kinds(labelled)
    loader = Mixture("m", tasks, [1, 1]).get_dataset(ROOM, batch_size=4, num_prefetch_threads=1)
    assert isinstance(loader, Loader)
    batches = list(loader)
    assert list(batches[0]) == ["targets", "targets_segment_ids", "targets_positions"]
    assert kinds(row for batch in batches for row in map(batch.row, range(batch.n))) == kinds(labelled)


@pytest.mark.parametrize("proportions", [[1, 0], [1, -1], [1], []])
def test_proportions_that_cannot_be(proportions: list[float]) -> None:
    with pytest.raises(PlanError, match=r"proportion|weight"):
        Mixture("m", [Task("a", source(1, 2)), Task("b", source(2, 2))], proportions)


def test_a_task_comes_once() -> None:
    a = Task("a", source(1, 2))
    with pytest.raises(PlanError, match=r"every task once in m, got \['a'\]"):
        Mixture("m", [a, Mixture("inner", [a], [1])], [1, 1])


def test_tasks_that_differ_are_told_apart() -> None:
    other = PenstockDataSource({"train": [{"targets": [1.5], "weights": [2]}]})
    mixture = Mixture("m", [Task("a", source(1, 9)), Task("b", other)], [1, 1])
    with pytest.raises(SpecError, match=r"others in b than in a: targets is float64\[\], not int64\[\], weights is "):
        mixture.get_dataset()


def test_a_task_without_examples_is_named() -> None:
    none = Task("none", source(2, 9), [MapFnTransform(trim), FilterFnTransform(lambda e: False)])
    with pytest.raises(PlanError, match="expected examples in every task of m, got none in none"):
        Mixture("m", [Task("a", source(1, 9)), none], [1, 1]).get_dataset()
    with pytest.raises(PlanError, match="expected examples in first, got none"):
        Task("first", source(2, 9), [FilterFnTransform(lambda e: False)]).get_dataset()


def test_a_label_needs_rows_of_one_task() -> None:
    mixture = Mixture("m", [Task("a", source(1, 9))], [1], label="from")
    with pytest.raises(PlanError, match="no label where m is packed after mixing"):
        mixture.get_dataset(ROOM, runtime_preprocessors=[PlannedPackPreprocessor])


def test_sources_may_differ_where_functions_make_them_alike() -> None:
    def task(name: str, feature: str, dtype: str) -> Task:
        examples = [{feature: np.arange(1, n, dtype=dtype)} for n in range(2, 9)]
        alike = MapFnTransform(lambda c: {"targets": pad_to(c[feature])}, batched=True)
        return Task(name, PenstockDataSource({"train": examples}), [alike])

    def pad_to(held: Any) -> Any:
        return np.stack(
            [np.pad(row, (0, 8 - len(row))).astype(np.int64) for row in map(held.__getitem__, range(len(held)))]
        )

    tasks = [task("a", "targets", "int32"), task("b", "targets", "int64"), task("c", "words", "int16")]
    data = Mixture("m", tasks, [1, 1, 1]).get_dataset()
    assert len(data) == 21
    assert data[:]["targets"].dtype == np.int64
    assert Counter(data[:]["targets"].max(axis=1).tolist()) == dict.fromkeys(range(1, 8), 3)


def test_packs_of_a_mixture_differ_in_number_from_epoch_to_epoch() -> None:
    mixture = Mixture("m", [Task("a", source(1, 30)), Task("b", source(2, 50))], [1, 1])
    data = mixture.get_dataset(ROOM, runtime_preprocessors=[PlannedPackPreprocessor], num_epochs=3)
    assert data[:]["targets_segment_ids"].max(axis=1).sum() == 3 * 60
    with pytest.raises(PlanError, match="expected num_epochs, because every epoch of this mixture is packed again"):
        mixture.get_dataset(ROOM, runtime_preprocessors=[PlannedPackPreprocessor], num_epochs=None)
    assert len(mixture.get_dataset(ROOM, num_epochs=None)) > 1 << 60
