"""Reading, filtering and combining hold a few episodes, not the dataset."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.formats.base.format import named

SPEC = Spec(
    {
        "observations": Field(np.dtype("f8"), (128,), "boundary"),
        "actions": Field(np.dtype("i8")),
        "rewards": Field(np.dtype("f8")),
        "terminations": Field(np.dtype("?")),
        "truncations": Field(np.dtype("?")),
    }
)
STEPS, EPISODES = 500, 100  # half a megabyte an episode, 50 in all
BOUND = 24 << 20


def episodes() -> Iterator[Episode]:
    for e in range(EPISODES):
        columns = {
            "observations": np.full((STEPS + 1, 128), float(e)),
            "actions": np.zeros(STEPS, "i8"),
            "rewards": np.full(STEPS, float(e)),
            "terminations": np.zeros(STEPS, "?"),
            "truncations": np.arange(STEPS) == STEPS - 1,
        }
        yield Episode(SPEC, columns, e, {"seed": e, "rewards_sum": float(e * STEPS)})


def peak(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "options"),
    [("columns", {}), ("minari", {"data_format": "hdf5"})],  # Arrow keeps up to 256 MB of episodes by design
    ids=["columns", "hdf5"],
)
def test_no_pass_over_a_dataset_holds_it(tmp_path, name, options):
    metadata = {"dataset_id": "a/b-v0"} if name == "minari" else {}
    first, second = tmp_path / "first", tmp_path / "second"

    def write() -> None:
        with named(name).create(first, SPEC, metadata, **options) as writer:
            writer.write_all(episodes())

    def read() -> None:
        assert sum(e.total_reward for e in penstock.open(first)) == STEPS * sum(range(EPISODES))

    def filter_and_combine() -> None:
        chosen = penstock.open(first).filter("rewards_sum >= 25000")
        assert len(chosen) == EPISODES // 2
        with named(name).create(second, chosen.spec, metadata, **options) as writer:
            writer.write_all(iter(chosen))
            writer.write_all(iter(chosen))

    with named(name).create(tmp_path / "warm", SPEC, metadata, **options) as writer:
        writer.write(next(episodes()))
    assert len(list(penstock.open(tmp_path / "warm"))) == 1  # what is imported and compiled does not count
    for work in (write, read, filter_and_combine):
        assert peak(work) < BOUND
    again = penstock.open(second)
    assert (len(again), again[0].rewards[0], again[-1].metadata["seed"]) == (EPISODES, 50.0, EPISODES - 1)


def test_episodes_of_any_lengths_are_read_in_bounded_blocks_and_in_order():
    lengths = [1] * 3000 + [4000] * 6 + [0, 2] * 5
    data = penstock.from_arrays({"x": np.arange(sum(lengths) * 128.0).reshape(-1, 128)}, lengths=lengths)
    source = data.source
    sizes = []
    read_array = source.read_array
    source.read_array = lambda column, selection, out: (sizes.append(out.nbytes), read_array(column, selection, out))
    for order in (range(len(lengths)), [3001, 3002, 0, 1, 2, 5, 4]):
        for e, episode in zip(order, source.episodes(order), strict=True):
            assert episode.id == e
            assert np.array_equal(episode.columns["x"][:, 0], data.source.episode(e).columns["x"][:, 0])
    assert max(sizes) <= 4 << 20
    assert len(sizes) < 2 * len(lengths) + 100
