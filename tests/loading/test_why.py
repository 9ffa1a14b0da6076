"""`Loader.why` against the batches themselves: every value names the row that it was read from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.data.mix import mix
from penstock.errors import PlanError, StateError
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter
from penstock.formats.memory import MemorySource
from penstock.loading import Batch, Ticket
from penstock.loading.why import Why

LENGTHS = [3, 0, 7, 5, 0, 4, 9]


def episodes(source: int = 0) -> EpisodeDataset:
    """Values that tell source and row: `1000 * source + row` in the row space of each column."""
    steps = sum(LENGTHS)
    columns = {
        "x": np.arange(steps) + 1000 * source,
        "observations": np.arange(steps + len(LENGTHS)) + 1000 * source,
    }
    return from_arrays(columns, LENGTHS)


def both(cut: Callable[[EpisodeDataset], MapDataset]) -> MapDataset:
    return mix({"a": cut(episodes()), "b": cut(episodes(1))}, {"a": 0.75, "b": 0.25}, stop="all_exhausted")


PLANS: dict[str, Callable[[], MapDataset]] = {
    "steps": lambda: episodes().steps().shuffle(seed=2),
    "windows": lambda: episodes().windows(3, stride=2),
    "padded": lambda: episodes().windows(4, past=1, pad="zero").shuffle(seed=1),
    "repeated": lambda: episodes().windows(6, past=2, pad="repeat"),
    "pairs": lambda: episodes().pairs(2).repeat(2),
    "filtered": lambda: episodes().filter("total_steps > 4").windows(2).shuffle(seed=4),
    "sequences": lambda: episodes().sequences(),
    "packed": lambda: episodes().sequences().pack(12).shuffle(seed=1),
    "mixed": lambda: both(lambda e: e.steps().shuffle(seed=1)),
    "mixed packs": lambda: both(lambda e: e.sequences()).pack(20),
    "packs mixed": lambda: both(lambda e: e.filter("total_steps > 0").sequences().pack(12)),
}


def rows_told(why: Why, batch: Batch) -> list[list[int]]:
    """For every sample of a batch the values that the lines of a table stand for, in their order."""
    table = why.table
    told: list[list[int]] = [[] for _ in range(batch.n)]
    for i in range(len(why)):
        source, first = int(table["source"][i]), int(table["first_row"][i])
        told[int(table["position"][i]) - why.ticket.position] += range(
            1000 * source + first, 1000 * source + first + int(table["rows"][i])
        )
    return told


def rows_read(batch: Batch, column: str) -> list[list[int]]:
    values = batch[column].reshape(batch.n, int(np.prod(batch[column].shape[1:])))
    ids = batch["segment_ids"] if "segment_ids" in batch else np.ones(values.shape, int)
    mask = batch.get("mask", ids > 0)
    return [values[i][mask[i]].tolist() for i in range(batch.n)]


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 3)])
def test_the_table_lists_exactly_the_rows_that_were_read(name, rank, world):
    data = PLANS[name]()
    loader = data.loader(5, rank=rank, world=world, threads=0)
    owner = [(e, t) for e, length in enumerate(LENGTHS) for t in range(length)]
    for epoch in range(2):
        for batch in loader:
            why = PLANS[name]().loader(3).why(str(batch.ticket))  # of whatever rank and batch size
            table = why.table
            assert rows_told(why, batch) == rows_read(batch, "x")
            assert [owner[row] for row in table["first_row"]] == list(
                zip(table["episode"].tolist(), table["step"].tolist(), strict=True)
            )
            assert set(table["epoch"].tolist()) <= {epoch}
            assert len(table["position"]) == 0 or table["position"].max() < data.plan.start(epoch + 1)


def test_segments_shares_and_parts_of_a_packed_mix():
    loader = PLANS["mixed packs"]().loader(4, threads=0)
    batch = next(iter(loader))
    why = loader.why(batch.ticket)
    per_sample = [why.table["segment"][why.table["position"] == k].tolist() for k in range(4)]
    assert per_sample == [sorted(set(ids[ids > 0].tolist())) for ids in batch["segment_ids"]]
    assert set(zip(why.table["source"].tolist(), why.table["share"].tolist(), strict=True)) <= {(0, 0.75), (1, 0.25)}
    assert why.parts == ("a", "b")
    assert "0 a MemorySource" in str(why)


def test_shares_that_change_are_those_at_the_position():
    one, two = episodes().steps(), episodes(1).steps()
    data = mix([one, mix({"p": two, "q": two}, [1, 3])], [(0, [1, 1]), (10, [1, 4])], stop=40).shuffle(seed=3)
    why = data.loader(40).why(Ticket(0, 40, data.plan.fingerprint[:8]))
    place = data.plan.positions(np.arange(40))
    outer = {True: {0: 0.5, 1: 0.5}, False: {0: 0.2, 1: 0.8}}
    inner = {0: (0, 1.0), 1: (1, 0.25), 2: (1, 0.75)}
    for source, k, share in zip(why.table["source"].tolist(), place, why.table["share"], strict=True):
        part, within = inner[source]
        assert share == pytest.approx(outer[bool(k < 10)][part] * within)
    assert why.parts == ("0", "1/p", "1/q")


def test_another_column_is_asked_for_by_name():
    data = episodes().transitions()
    loader = data.loader(6, threads=0)
    batch = next(iter(loader))
    for column in ("observations", "next_observations"):
        why = loader.why(batch.ticket, column)
        assert why.view.align == "boundary"
        assert why.table["first_row"].tolist() == batch[column].tolist()
        assert why.table["episode"].tolist() == [0, 0, 0, 2, 2, 2]
    with pytest.raises(PlanError, match="'rewards'"):
        loader.why(batch.ticket, "rewards")


def test_values_of_documents_are_rows_of_their_episode():
    tokens = Ragged(np.arange(9, dtype="i4"), np.array([0, 2, 2, 6, 9]))
    spec = Spec({"tokens": Field(np.dtype("i4"), (), "episode", "ragged")})
    data = EpisodeDataset(MemorySource(spec, {"tokens": tokens}, np.arange(5))).sequences().pack(5)
    loader = data.loader(2, threads=0)
    batch = next(iter(loader))
    why = loader.why(batch.ticket)
    assert why.view.align == "values"
    lengths = {0: 2, 2: 4, 3: 3}
    assert dict(zip(why.table["episode"].tolist(), why.table["rows"].tolist(), strict=True)) == lengths
    assert why.table["step"].tolist() == [0] * len(why)


def test_skipped_positions_are_listed_and_marked():
    loader = episodes().steps().loader(4, threads=0)
    ticket = next(iter(loader)).ticket
    loader.skip((1, 3))
    table = loader.why(ticket).table
    assert table["skipped"].tolist() == [False, True, True, False]
    assert table["first_row"].tolist() == [0, 1, 2, 3]
    assert "yes" in str(loader.why(ticket))


def test_a_ticket_of_too_many_samples_is_refused_unless_most_are_skipped():
    data = episodes().steps()
    loader = data.loader(4, threads=0)
    huge = Ticket(0, (1 << 32) - 1, data.plan.fingerprint[:8])
    with pytest.raises(StateError, match="at most 4194304 samples"):
        loader.why(huge)
    loader.skip((2, (1 << 32) - 3))
    assert loader.why(huge).table["position"].tolist() == [0, 1, (1 << 32) - 3, (1 << 32) - 2]


def test_a_foreign_ticket_names_both_plans():
    loader = episodes().steps().loader(4)
    other = next(iter(episodes().steps().shuffle().loader(4))).ticket
    mine = next(iter(loader)).ticket
    with pytest.raises(StateError) as error:
        loader.why(other)
    assert other.digest in str(error.value)
    assert mine.digest in str(error.value)


def test_the_printed_table_names_the_file_and_leaves_out_what_says_nothing(tmp_path):
    source = episodes().source
    with ColumnsWriter.create(tmp_path / "store", source.spec) as writer:
        for episode in source.episodes():
            writer.write(episode)
    loader = EpisodeDataset(ColumnsSource(tmp_path / "store")).steps().loader(80, threads=0)
    text = str(loader.why(next(iter(loader)).ticket))
    assert "store" in text
    assert "segment" not in text
    assert "share" not in text
