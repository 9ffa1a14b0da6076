"""`without`: a run without an episode differs from the run with it in that alone; random programs test it too."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import ArgumentError, PlanError, StateError
from penstock.plan import Without

LENGTHS = [4, 0, 9, 2, 7, 5]


def episodes(first: int = 0) -> Any:
    """A value of a column is a thousand times the episode and the step."""
    x = [1000 * (first + e) + t for e, n in enumerate(LENGTHS) for t in range(n)]
    states = [1000 * (first + e) + t for e, n in enumerate(LENGTHS) for t in range(n + 1)]
    return penstock.from_arrays({"x": np.array(x), "observations": np.array(states)}, LENGTHS)


def noisy(data: MapDataset) -> MapDataset:
    return data.map(lambda columns, keys: {**columns.flat, "noise": keys}, seed=3)


def epochs(data: MapDataset, n: int = 3) -> list[dict[str, Any]]:
    plan = data.plan
    columns = planned_samples(data).at(np.arange(plan.start(n)))
    return [columns.row(i) for i in range(columns.n)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_goals_and_random_functions_of_the_others_stay(seed: int) -> None:
    data = noisy(episodes().transitions().shuffle(seed).goals("future", seed=seed))
    others = [row for row in epochs(data) if row["x"] // 1000 not in (0, 4)]
    assert [str(row) for row in epochs(data.without([4, 0]))] == [str(row) for row in others]
    anywhere = noisy(episodes().transitions().shuffle(seed).goals("random", seed=seed))
    others = [row for row in epochs(anywhere) if 4 not in (row["x"] // 1000, row["goal"] // 1000)]
    assert [str(row) for row in epochs(anywhere.without(4))] == [str(row) for row in others]


def test_epochs_of_a_mix_vary_and_resume() -> None:
    parts = {"a": episodes().steps().shuffle(1), "b": episodes(10).steps().shuffle(2)}
    whole = penstock.mix(parts, [3, 1])
    data = whole.without(2, source=0)
    assert data.plan.uneven
    loader = data.loader(batch_size=4, threads=0)
    given: list[Any] = []
    states: list[Any] = []
    for _ in range(3):
        for batch in loader:
            given.append(batch["x"].tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
    kept = [row["x"].item() for row in epochs(whole) if row["x"] // 1000 != 2]
    assert [x for batch in given for x in batch] == kept
    for at in (0, 3, 7, len(given) - 3):
        again = pickle.loads(pickle.dumps(data)) if at == 3 else whole.without(2, source=0)
        other = again.loader(batch_size=4, threads=0)
        other.load_state_dict(states[at])
        assert other.peek()["x"].tolist() == given[at + 1]


def test_why_and_uses_speak_of_the_order_with_the_episode() -> None:
    whole = episodes().windows(2).shuffle(3)
    data = whole.without(2).select_columns("x")
    loader = data.loader(batch_size=5, threads=0)
    for batch in loader:
        table = loader.why(batch.ticket, "x").table
        rows = planned_samples(whole).at(np.asarray(table["original"]))["x"]
        assert rows.tolist() == batch["x"].tolist()
    assert "original" in str(loader.why(batch.ticket))
    uses = loader.uses(4)
    assert (
        uses.table["original"].tolist()
        == [k for k in range(2 * len(whole)) if planned_samples(whole).at(np.array([k]))["x"][0, 0] // 1000 == 4][
            : len(uses)
        ]
    )
    assert len(loader.uses(2)) == 0
    plain = whole.loader(batch_size=5, threads=0)
    assert "original" not in str(plain.why(next(iter(plain)).ticket))


@pytest.mark.parametrize("method", ["best_fit_decreasing", "concat_split", "next_fit"])
def test_packs_stay_and_only_the_rows_of_the_episode_are_padding(method: Any) -> None:
    packs = episodes().sequences().select_columns("x").pack(8, method=method, overlong="split").shuffle(1)
    for one, other in zip(epochs(packs), epochs(packs.without(4)), strict=True):
        gone = (one["x"] // 1000 == 4) & (one["segment_ids"] > 0)
        for name in ("x", "segment_ids", "positions"):
            assert other[name].tolist() == np.where(gone, 0, one[name]).tolist()
    mixed = penstock.mix({"a": packs, "b": episodes(10).sequences().select_columns("x").pack(8, overlong="split")})
    assert 14 not in {x // 1000 for row in epochs(mixed.without(4, 1)) for x in row["x"].tolist()}


def test_leaving_out_twice_is_leaving_out_both() -> None:
    data = episodes().steps().shuffle(1)
    assert data.without(4).without(2)[:]["x"].tolist() == data.without([2, 4])[:]["x"].tolist()
    assert data.without([])[:]["x"].tolist() == data[:]["x"].tolist()
    nothing = data.without(range(len(LENGTHS)))
    assert nothing.plan.empty
    with pytest.raises(PlanError, match=r"keeps none of 27 samples"):
        nothing.loader(batch_size=2)


def test_another_run_without_is_another_plan() -> None:
    data = episodes().steps()
    prints = [made.fingerprint for made in (data, data.without([]), data.without(1), data.without(2))]
    assert len(set(prints)) == 4
    loader = data.without(2).loader(batch_size=2, threads=0)
    next(iter(loader))
    with pytest.raises(StateError):
        data.loader(batch_size=2).load_state_dict(loader.state_dict())


def test_a_changed_mix_does_not_leave_out_the_episodes_of_another_source() -> None:
    parts = {"a": episodes().steps(), "b": episodes(10).steps()}
    loader = penstock.mix(parts, [1, 1], stop=40).without(2, 1).loader(batch_size=4, threads=0)
    next(iter(loader))
    changed = penstock.mix({"b": parts["b"]}, stop=40).without(2, 0).loader(batch_size=4, threads=0)
    changed.load_state_dict(loader.state_dict(), changed="continue")
    with pytest.raises(StateError, match="give since=0"):
        changed.uses(0)


def test_what_cannot_be_left_out_is_refused() -> None:
    data = episodes().steps()
    with pytest.raises(PlanError, match="expected episodes from 0 to 5 of source 0, got"):
        data.without(6)
    with pytest.raises(ArgumentError, match="expected episodes as a number"):
        data.without("2")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="expected numbers of sources and episodes"):
        Without({0: [-1]})
    with pytest.raises(PlanError, match="with an end for leaving episodes out"):
        penstock.mix({"a": data}, stop="never").without(1)
    packs = episodes().sequences().select_columns("x").pack(9, max_sequences=4, marks=["segment_ids", "cu_seqlens"])
    with pytest.raises(PlanError, match="without cu_seqlens"):
        packs.without(1)
