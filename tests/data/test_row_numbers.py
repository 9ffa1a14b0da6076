"""Step, episode and source of every row, as outputs of any sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import penstock
from penstock.errors import PlanError

Make = Callable[[penstock.EpisodeDataset], penstock.MapDataset]


def dataset(lengths: Sequence[int], first: int = 0) -> penstock.EpisodeDataset:
    """The columns tell, one higher, what the outputs have to tell: padding is 0 in them."""
    steps = [(t + 1, e + 1) for e, n in enumerate(lengths) for t in range(n)]
    boundary = [(t + 1, e + 1) for e, n in enumerate(lengths) for t in range(n + 1)]
    columns = {"observations": np.array(boundary), "rows": np.array(steps), "x": np.array(steps)[:, 0] + first}
    return penstock.from_arrays(columns, lengths)


PLANS: dict[str, Make] = {
    "samples": lambda data: data.steps(),
    "windows": lambda data: data.windows(3).shuffle(2),
    "padded": lambda data: data.windows(4, past=2, pad="zero"),
    "repeated": lambda data: data.windows(4, past=2, pad="repeat").shuffle(1),
    "pairs": lambda data: data.pairs(2),
    "sequences": lambda data: data.sequences(final=True),
    "shard": lambda data: data.windows(2).shard(1, 3),
}


def assert_numbered(batch: penstock.Columns, rows: str = "rows") -> None:
    assert batch["timesteps"].dtype == batch["episodes"].dtype == np.int32
    assert batch["timesteps"].tolist() == (batch[rows][..., 0] - 1).tolist()
    assert batch["episodes"].tolist() == (batch[rows][..., 1] - 1).tolist()


@pytest.mark.parametrize("of", ["rows", "observations"])
@pytest.mark.parametrize("name", PLANS)
def test_numbers_are_those_of_the_rows(name: str, of: str) -> None:
    samples = PLANS[name](dataset([5, 1, 8, 0, 3, 2]))
    assert_numbered(samples.with_row_numbers(of=of)[:], of)
    assert_numbered(samples.with_row_numbers(of=of).shuffle(5)[:], of)


@pytest.mark.parametrize("name", ["padded", "repeated", "sequences"])
def test_padding_has_the_number_of_your_choice(name: str) -> None:
    samples = PLANS[name](dataset([5, 1, 8, 3, 2]))
    before = samples.with_row_numbers()[:]
    for padding in (0, 7):
        after = samples.with_row_numbers(padding=padding)[:]
        for column in ("timesteps", "episodes"):
            chosen = np.where(before[column] < 0, padding, before[column])
            assert after[column].tolist() == chosen.tolist()
    with pytest.raises(PlanError, match="padding to be an integer"):
        samples.with_row_numbers(padding=1 << 31)


def test_an_embedding_takes_timesteps() -> None:
    windows = dataset([2, 3]).windows(4, pad="zero").with_row_numbers(episode=None, padding=0)
    batch = next(iter(windows.loader(5, output="torch")))
    places = torch.nn.Embedding(10, 2)(batch["timesteps"])
    assert places[batch["mask"]].shape == (9, 2)


def test_the_first_output_with_steps_is_numbered() -> None:
    windows = dataset([5, 3]).windows(2, columns={"rows": (0, 4)}, pad="zero")
    assert windows.with_row_numbers()[:]["timesteps"].shape == (8, 2)
    assert windows.with_row_numbers(of="rows")[:]["timesteps"].shape == (8, 4)
    assert_numbered(windows.with_row_numbers(of="rows")[:])


@pytest.mark.parametrize("method", ["best_fit_decreasing", "concat_split"])
def test_packs_are_numbered_before_or_after_they_are_packed(method: str) -> None:
    sequences = dataset([5, 1, 8, 3, 2]).sequences().select_columns("rows")
    head = -3 if method == "concat_split" else None
    before = sequences.with_row_numbers().pack(8, method, head=head)  # pyright: ignore[reportArgumentType]
    after = sequences.pack(8, method, head=head).with_row_numbers()  # pyright: ignore[reportArgumentType]
    for packs in (before, after):
        batch = packs[:]
        real = batch["rows"][..., 0] > 0
        assert (batch["timesteps"][~real] == -1).all()
        assert (batch["timesteps"][real] == batch["rows"][real][:, 0] - 1).all()
        assert (batch["episodes"][real] == batch["rows"][real][:, 1] - 1).all()


def test_packs_without_a_column_of_the_numbered_rows_are_refused() -> None:
    windows = dataset([5, 3]).windows(2, columns={"x": (0, 4)}).with_row_numbers(of="x").select_columns("rows")
    with pytest.raises(PlanError, match="a column with the rows of 'timesteps'"):
        windows.pack(8)


def test_mixes_number_their_sources() -> None:
    one, two = dataset([5, 3]).windows(2), dataset([4, 4, 4], first=100).windows(2)
    mixed = penstock.mix({"a": one, "b": two}, {"a": 1, "b": 2}, stop=30)
    batch = mixed.with_row_numbers(source="sources")[:]
    assert_numbered(batch)
    assert batch["sources"].tolist() == (batch["x"] >= 100).astype(int).tolist()
    inner = penstock.mix({"a": one.with_row_numbers(), "b": two.with_row_numbers()}, {"a": 1, "b": 2}, stop=30)
    assert inner[:]["timesteps"].tolist() == batch["timesteps"].tolist()


def test_wrong_names_are_refused() -> None:
    samples = dataset([3]).steps()
    with pytest.raises(PlanError, match="did you mean 'rows'"):
        samples.with_row_numbers(of="row")
    for names in ({"step": "x"}, {"step": "n", "episode": "n"}, {"step": None, "episode": None}):
        with pytest.raises(PlanError, match="new, different names"):
            samples.with_row_numbers(**names)
    with pytest.raises(PlanError, match="new, different names"):
        samples.with_row_numbers().with_row_numbers()


def test_numbers_are_part_of_the_fingerprint() -> None:
    samples = dataset([3]).steps()
    assert len({samples.fingerprint, samples.with_row_numbers().fingerprint}) == 2
