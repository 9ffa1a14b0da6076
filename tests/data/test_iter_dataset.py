from __future__ import annotations

import json

import numpy as np
import pytest

import penstock
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import planned_samples
from penstock.errors import PlanError, SpecError, StateError


def source(n: int = 23):
    return from_arrays({"x": np.arange(n)}, lengths=[n]).steps().shuffle(seed=1)


def stream(n: int = 23):
    """Drops two of three rows, doubles the others, and cuts anew: no stage keeps the number of rows."""
    blocks = penstock.IterDataset.of(source(n), 5, epochs=2)
    twice = blocks.filter(lambda c: c["x"] % 3 == 0).flat_map(lambda c: c.take(np.repeat(np.arange(c.n), 2)))
    return twice.rebatch(4)


def rows(blocks) -> list[list[int]]:
    return [block["x"].tolist() for block in blocks]


def test_stages_equal_plain_python():
    flat = [int(x) for epoch in range(2) for x in planned_samples(source()).at(np.arange(23) + 23 * epoch)["x"]]
    expected = [x for x in flat if x % 3 == 0 for _ in range(2)]
    assert [x for block in rows(stream()) for x in block] == expected
    assert [len(b) for b in rows(stream())][:-1] == [4] * (len(expected) // 4 - (len(expected) % 4 == 0))


@pytest.mark.parametrize("taken", range(9))
def test_resume_at_any_block_equals_the_uninterrupted_run(taken):
    whole = rows(stream())
    first = iter(stream())
    assert [next(first)["x"].tolist() for _ in range(min(taken, len(whole)))] == whole[:taken]
    state = json.loads(json.dumps(first.state_dict()))
    second = iter(stream())
    second.load_state_dict(state)
    assert rows(second) == whole[taken:]


def test_iterate_ends_with_its_epochs_and_can_drop_the_rest():
    assert [len(b) for b in rows(penstock.IterDataset.of(source(10), 4))] == [4, 4, 2]
    assert [len(b) for b in rows(penstock.IterDataset.of(source(10), 4, drop_last=True, epochs=2))] == [4, 4, 4, 4]
    assert rows(penstock.IterDataset.of(source(3), 4, drop_last=True, epochs=None, allow_empty=True)) == []
    endless = iter(penstock.IterDataset.of(source(3), 2, epochs=None))
    assert sum(next(endless).n for _ in range(100)) == 150


def test_rebatch_can_drop_the_last():
    assert [len(b) for b in rows(penstock.IterDataset.of(source(10), 3).rebatch(4, drop_last=True))] == [4, 4]


def test_foreign_states_are_refused():
    with pytest.raises(StateError, match="upstream"):
        iter(stream()).load_state_dict({"position": 3})
    for state in ({"offset": 1}, {"position": -1}, {"position": "3"}):
        with pytest.raises(StateError, match="position"):
            iter(penstock.IterDataset.of(source(), 3)).load_state_dict(state)


def test_bad_arguments():
    with pytest.raises(PlanError, match="batch size"):
        penstock.IterDataset.of(source(), 0)
    with pytest.raises(PlanError, match="batch size"):
        penstock.IterDataset.of(source(), 3).rebatch(0)
    with pytest.raises(SpecError, match="expected a condition of 3 bools"):
        next(iter(penstock.IterDataset.of(source(), 3).filter(lambda c: c["x"])))


def test_two_functions_make_two_streams():
    def double(columns):
        return {"x": columns["x"] * 2}

    def triple(columns):
        return {"x": columns["x"] * 3}

    data = penstock.IterDataset.of(from_arrays({"x": np.arange(4)}, lengths=[4]).steps(), 2)
    prints = [data.flat_map(fn).fingerprint for fn in (double, triple, double)]
    assert prints[0] == prints[2] != prints[1]
    assert data.filter(double).fingerprint not in prints
