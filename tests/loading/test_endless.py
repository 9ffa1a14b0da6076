"""`repeat()` without a number: loaders without end, whose batches are all full."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import penstock
from penstock.errors import PlanError


def dataset(seed: int, n: int = 23) -> penstock.MapDataset:
    return penstock.from_arrays({"x": np.arange(n)}, [n]).steps().shuffle(seed=seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_an_endless_loader_goes_on_and_resumes(seed: int, output: str) -> None:
    data, size = dataset(seed), 4 + seed
    wanted = np.concatenate(
        [batch["x"] for _, batch in zip(range(9), data.repeat(9).loader(23, threads=0), strict=True)]
    )
    loader = data.repeat().loader(size, output=output, prefetch=8)
    batches = [np.asarray(batch["x"]) for batch in islice(loader, 20)]
    assert {len(batch) for batch in batches} == {size}
    np.testing.assert_array_equal(np.concatenate(batches), wanted[: 20 * size])
    resumed = data.repeat().loader(3, output=output, prefetch=8)
    resumed.load_state_dict(loader.state_dict())
    later = np.concatenate([np.asarray(batch["x"]) for batch in islice(resumed, 10)])
    np.testing.assert_array_equal(later, wanted[20 * size : 20 * size + 30])
    ticket = next(iter(loader)).ticket
    assert loader.why(ticket).table.n == size


def test_a_dataset_without_end_has_one_epoch_and_no_length() -> None:
    data = dataset(0).repeat()
    loader = data.loader(4)
    with pytest.raises(TypeError, match="without end has no length"):
        len(loader)
    with pytest.raises(PlanError, match="without end, got 1"):
        loader.set_epoch(1)
    for text in (repr(data), data._repr_html_(), data.plan._repr_html_()):
        assert "endless" in text
    assert len(data.repeat()) == len(data)
    for refused in (lambda: data.shuffle(seed=1), lambda: data.repeat(2), lambda: penstock.statistics(data)):
        with pytest.raises(PlanError, match=r"repeat\(\)|2\^62|samples="):
            refused()


def test_ranks_share_batches_without_end() -> None:
    parts = [islice(dataset(1).repeat().loader(6, rank=rank, world=2, prefetch=8), 12) for rank in range(2)]
    whole = islice(dataset(1).repeat().loader(6, rank=0, world=1, prefetch=8), 12)
    for one, two, both in zip(*parts, whole, strict=True):
        assert [*one["x"], *two["x"]] == both["x"].tolist()


def test_packs_that_are_planned_again_are_repeated_first() -> None:
    lengths = [3, 1, 2, 5, 4] * 20
    data = penstock.from_arrays({"x": np.arange(sum(lengths))}, lengths).sequences().shuffle(seed=0)
    with pytest.raises(PlanError, match="epochs without end; repeat before packing"):
        data.pack(8, repack=True).repeat()
    assert len(next(iter(dataset(0, 0).repeat().loader(4, allow_empty=True)), [])) == 0
