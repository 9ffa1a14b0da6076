"""Data that has grown since a state was saved, and the rules to go on by."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError, StateError
from penstock.formats.columns.writer import ColumnsWriter
from penstock.loading import Loader
from penstock.loading.cursor import Cursor
from tests.loading.handing_over import handing_over

SPEC = Spec({"x": Field(np.dtype("i8"))})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with ColumnsWriter.create(path, SPEC) as writer:
        write(writer, 0, 4)
    return path


def write(writer: ColumnsWriter, lo: int, hi: int) -> None:
    for e in range(lo, hi):
        writer.write(Episode(SPEC, {"x": np.arange(5) + 5 * e}))


def grow(path: Path, lo: int = 4, hi: int = 6) -> None:
    with ColumnsWriter(path) as writer:
        write(writer, lo, hi)


def dataset(path: Path, extra: bool = False) -> MapDataset:
    data = penstock.open(path).filter("total_steps > 2").windows(2).shuffle(seed=3)
    return data.map(lambda c: {"x": c["x"] * 2}, seed=None) if extra else data


def taken(loader: Loader, batches: int | None = None) -> list[int]:
    rows: list[int] = []
    for number, batch in enumerate(loader, start=1):
        rows += batch["x"][:, 0].tolist()
        if number == batches:
            break
    return rows


def stopped(path: Path, batches: int) -> tuple[dict, list[int], list[int]]:
    """A state after some batches, what was taken until then, and the rest of that epoch."""
    loader = dataset(path).loader(3, threads=0)
    before = taken(loader, batches) if batches else []
    state = json.loads(json.dumps(loader.state_dict()))
    loader.load_state_dict(state)
    return state, before, taken(loader)


def epoch(path: Path, number: int) -> list[int]:
    data = dataset(path)
    return planned_samples(data).at(np.arange(number * len(data), (number + 1) * len(data)))["x"][:, 0].tolist()


def test_growth_is_refused_with_a_message_that_names_both_ways_on(store):
    state, _, _ = stopped(store, 2)
    grow(store)
    loader = dataset(store).loader(3)
    with pytest.raises(StateError, match=r"grown by 2 episodes.*'finish_epoch'.*'next_epoch'") as error:
        loader.load_state_dict(state)
    assert state["fingerprint"] in str(error.value)
    assert loader.state_dict()["fingerprint"] in str(error.value)
    assert loader.state_dict()["position"] == 0


def test_finish_epoch_serves_the_old_extent_first_and_may_be_stopped_meanwhile(store):
    state, before, rest = stopped(store, 2)
    grow(store)
    loader = dataset(store).loader(3, threads=2)
    loader.load_state_dict(state, grown="finish_epoch")
    assert len(loader) == 6
    middle = taken(loader, 1)
    saved = json.loads(json.dumps(loader.state_dict()))
    assert (saved["fingerprint"], saved["episodes"]) == (state["fingerprint"], [4])
    again = dataset(store).loader(3, threads=0)
    again.load_state_dict(saved, grown="finish_epoch")
    assert middle + taken(again) == rest
    assert sorted(before + rest) == sorted(x for x in range(20) if x % 5 < 4)
    assert again.state_dict()["fingerprint"] == dataset(store).fingerprint
    assert taken(again) == epoch(store, 1)
    assert len(epoch(store, 1)) == 24


def test_next_epoch_begins_at_once(store):
    state, _, _ = stopped(store, 2)
    grow(store)
    loader = dataset(store).loader(3)
    loader.load_state_dict(state, grown="next_epoch")
    assert loader.state_dict()["fingerprint"] == dataset(store).fingerprint
    assert taken(loader) == epoch(store, 1)


@pytest.mark.parametrize("rule", ["finish_epoch", "next_epoch"])
@pytest.mark.parametrize("batches", [0, 6])
def test_at_the_begin_of_an_epoch_there_is_nothing_to_finish(store, rule, batches):
    state, _, _ = stopped(store, batches)
    grow(store)
    loader = dataset(store).loader(3)
    loader.load_state_dict(state, grown=rule)
    assert taken(loader) == epoch(store, 1 if batches else 0)


def test_a_rest_that_drop_last_leaves_out_is_not_finished(store):
    loader = dataset(store).loader(3, threads=0)
    taken(loader, 5)  # 15 of 16 samples
    grow(store)
    other = dataset(store).loader(3, drop_last=True)
    other.load_state_dict(loader.state_dict(), grown="finish_epoch")
    assert other.state_dict()["fingerprint"] == dataset(store).fingerprint
    assert taken(other) == epoch(store, 1)[:24]


def test_skipped_ranges_and_tickets_belong_to_the_order_they_name(store):
    first = dataset(store).loader(3, threads=0)
    ticket = next(iter(first)).ticket
    first.skip((6, 9))
    grow(store)
    loader = dataset(store).loader(3, threads=0)
    loader.load_state_dict(first.state_dict(), grown="finish_epoch")
    assert len(loader.why(ticket)) == 3
    rest = taken(loader)
    assert len(rest) == 10
    assert loader.state_dict()["skipped"] == []
    with pytest.raises(StateError):
        loader.why(ticket)


def test_a_loop_that_finishes_the_old_extent_ends_there(store):
    state, _, rest = stopped(store, 3)
    grow(store)
    loader = dataset(store).loader(3, threads=1)
    loader.load_state_dict(state, grown="finish_epoch")
    with_ahead = [x for rows in handing_over(loader, lambda batch: batch["x"][:, 0].tolist(), ahead=2) for x in rows]
    assert with_ahead == rest
    assert taken(loader) == epoch(store, 1)


def test_a_data_loader_reads_one_extent_of_the_data(store):
    state, _, rest = stopped(store, 3)
    grow(store)
    loader = dataset(store).loader(3, output="torch")
    loader.load_state_dict(state, grown="finish_epoch")
    view = loader.data_loader()
    assert [x for batch in view for x in batch["x"][:, 0].tolist()] == rest
    with pytest.raises(StateError, match="of data that have grown, or of a mix that has changed"):
        list(view)


def test_a_source_that_moves_under_a_running_loader_changes_no_state(store):
    data = penstock.open(store)
    loader = data.windows(2).shuffle(seed=3).loader(3, threads=0)
    before = loader.state_dict()
    grow(store)
    assert len(data.refresh()) == 6
    assert loader.state_dict() == before
    assert len(taken(loader)) == 16


def test_other_data_and_damaged_counts_stay_errors(store):
    state, _, _ = stopped(store, 2)
    grow(store)
    loader = dataset(store).loader(3)
    for change in ({"episodes": [3]}, {"episodes": [4, 4]}, {"episodes": None}, {"episodes": [True]}, {"episodes": 4}):
        with pytest.raises(StateError, match="same data"):
            loader.load_state_dict({**state, **change}, grown="next_epoch")
    with pytest.raises(StateError):
        loader.load_state_dict({**state, "episodes": [9]}, grown="next_epoch")
    with pytest.raises(StateError, match="same data"):
        dataset(store, extra=True).loader(3).load_state_dict(state, grown="next_epoch")
    with pytest.raises(PlanError, match="finish_epoch"):
        loader.load_state_dict(state, grown="maybe")


def test_a_dataset_that_cannot_say_what_it_was_refuses():
    def dataset(n: int) -> MapDataset:
        return penstock.from_arrays({"x": np.arange(n)}, lengths=[2] * (n // 2)).steps()

    state = dataset(8).loader(2).state_dict()
    with pytest.raises(StateError, match="same data"):
        dataset(10).loader(2).load_state_dict(state, grown="finish_epoch")


def test_the_cursor_is_unchanged_by_a_state_that_is_refused(store):
    loader = dataset(store).loader(3, threads=0)
    taken(loader, 1)
    cursor = loader._cursor
    held = (cursor.source, cursor.state, cursor.turn)
    with pytest.raises(StateError):
        loader.load_state_dict({**loader.state_dict(), "position": -3})
    assert isinstance(cursor, Cursor)
    assert (cursor.source, cursor.state, cursor.turn) == held
