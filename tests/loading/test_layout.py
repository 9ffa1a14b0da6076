"""Layouts: names, dtypes and order of the arrays of a batch. They change no order, state or ticket."""

from __future__ import annotations

import pickle

import jax
import numpy as np
import pytest
import torch

import penstock
from penstock.columns import Ragged
from penstock.loading.layout import LAYOUTS, Layout


def dataset(seed=0):
    rng = np.random.default_rng(seed)
    columns = {
        "observations": {"image": rng.integers(0, 255, (34, 2, 2), np.uint8), "pose": rng.random((34, 3))},
        "actions": rng.random((30, 2)),
        "rewards": rng.random(30, np.float32),
        "notes": Ragged.from_rows([rng.random(n % 3) for n in range(30)]),
    }
    return penstock.from_arrays(columns, [9, 4, 10, 7]).steps().shuffle(seed=seed)


OUTPUTS = {"numpy": np.asarray, "torch": lambda tensor: tensor.numpy(), "jax": np.asarray}


@pytest.mark.parametrize("output", OUTPUTS)
def test_columns_become_float32_and_have_new_names(output):
    rename = {"observations": "obs", "observations/image": "pixels", "actions": "obs/last/action"}
    plain = list(dataset().loader(8))
    for batch, before in zip(dataset().loader(8, output=output, float32=True, rename=rename), plain, strict=True):
        values = {
            "pixels": batch["pixels"],
            "obs/pose": batch["obs"]["pose"],
            "obs/last/action": batch["obs"]["last"]["action"],
        }
        arrays = {name: OUTPUTS[output](value) for name, value in values.items()}
        assert [array.dtype for array in arrays.values()] == ["uint8", "float32", "float32"]
        np.testing.assert_array_equal(arrays["pixels"], before["observations/image"])
        np.testing.assert_array_equal(arrays["obs/pose"], before["observations/pose"].astype("f4"))
        np.testing.assert_array_equal(arrays["obs/last/action"], before["actions"].astype("f4"))
        assert (batch.ticket, batch.weight) == (before.ticket, before.weight)
        notes = batch.ragged("notes").values if output == "numpy" else OUTPUTS[output](batch["notes"]["values"])
        np.testing.assert_array_equal(notes, before.ragged("notes").values.astype("f4"))
        assert notes.dtype == np.float32


@pytest.mark.parametrize("output", OUTPUTS)
def test_tuples_and_trees_keep_order_tickets_and_plain_values(output):
    def arranged(batch):
        return {"inputs": (batch["actions"], {"image": batch["observations/image"]}), "rows": batch.n}, batch["rewards"]

    plain = list(dataset().loader(8))
    for batch, before in zip(
        dataset().loader(8, output=output, layout=("rewards", "observations"), float32=output == "jax"),
        plain,
        strict=True,
    ):
        rewards, observations = batch
        assert batch.rewards is rewards
        np.testing.assert_array_equal(OUTPUTS[output](rewards), before["rewards"])
        np.testing.assert_array_equal(OUTPUTS[output](observations["image"]), before["observations/image"])
        assert (batch.ticket, batch.weight) == (before.ticket, before.weight)
    for batch, before in zip(
        dataset().loader(8, output=output, layout=arranged, float32=output == "jax"), plain, strict=True
    ):
        tree, rewards = batch
        assert tree["rows"] == before.n
        np.testing.assert_array_equal(OUTPUTS[output](tree["inputs"][1]["image"]), before["observations/image"])
        assert type(rewards) is type(tree["inputs"][0])
        assert batch.ticket == before.ticket


def test_a_dict_of_a_layout_has_the_type_of_the_output():
    def arranged(batch):
        return {"x": batch["rewards"], "longest": 3}

    kinds = {output: next(iter(dataset().loader(8, output=output, layout=arranged))) for output in OUTPUTS}
    assert [type(batch).__name__ for batch in kinds.values()] == ["BatchDict", "Tensors", "JaxArrays"]
    assert {str(batch.ticket) for batch in kinds.values()} == {str(next(iter(dataset().loader(8))).ticket)}
    assert jax.jit(lambda batch: batch["x"].sum())(kinds["jax"]) == pytest.approx(kinds["numpy"]["x"].sum())
    named = next(iter(dataset().loader(8, output="jax", layout=("rewards", "actions"), float32=True)))
    assert jax.jit(lambda batch: batch.rewards.sum())(named) == pytest.approx(kinds["numpy"]["x"].sum())
    assert isinstance(kinds["torch"]["x"], torch.Tensor)
    assert kinds["torch"]["longest"] == 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("output", ["numpy", "torch", sum])
def test_a_layout_changes_neither_order_nor_states(seed, output):
    rng = np.random.default_rng(seed)
    options = {"output": output, "layout": ("rewards", "rewards"), "threads": int(rng.integers(0, 3))}
    whole = list(dataset(seed).loader(7, threads=0))
    loader = dataset(seed).loader(7, **options)
    stop, batches = int(rng.integers(1, 4)), iter(loader)
    for _ in range(stop):
        next(batches)
    plain = dataset(seed).loader(7)
    plain.load_state_dict(loader.state_dict())
    assert [str(batch.ticket) for batch in plain] == [str(batch.ticket) for batch in whole[stop:]]
    resumed = dataset(seed).loader(7, **options)
    resumed.load_state_dict(loader.state_dict())
    for batch, before in zip(resumed, whole[stop:], strict=True):
        np.testing.assert_array_equal(batch[0] if output is not sum else batch / 2, before["rewards"])


def test_a_layout_is_a_function_of_columns_too():
    columns = dataset()[:5]
    assert list(Layout(rename={"rewards": "reward"})(columns)) == [*list(columns)[:3], "reward", "notes"]
    batch = next(iter(dataset().loader(5)))
    made = Layout(("rewards", "actions"), float32=True)(batch)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made)
    assert again.ticket == made.ticket == batch.ticket
    assert again.actions.dtype == np.float32


def first_of(pair):
    return pair[0]


@pytest.mark.parametrize("output", ["numpy", "torch", first_of])
def test_loaders_with_layouts_pickle(output):
    loader = dataset().loader(5, layout=("rewards", "actions"), float32=True, output=output)
    next(iter(loader))
    for one, other in zip(pickle.loads(pickle.dumps(loader)), loader, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_replay_batches_have_layouts():
    replay = penstock.Replay(None, 100, seed=0)
    columns = {"observations": np.arange(6.0), "rewards": np.ones(5)}
    flags = {"terminations": np.arange(5) == 4, "truncations": np.zeros(5, bool)}
    replay.write(penstock.from_arrays(columns | flags, [5])[0])
    batch = next(iter(replay.batches(3).loader(layout=("observations", "next_observations"))))
    np.testing.assert_array_equal(batch[0] + 1, batch[1])
    assert replay.why(batch.ticket).table.n == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": "sb4"}, "among"),
        ({"layout": 3}, "name"),
        ({"layout": ()}, "name"),
        ({"rename": {"x": 3}}, "new names"),
        ({"rename": "x"}, "new names"),
    ],
)
def test_impossible_layouts_are_refused_at_once(options, words):
    with pytest.raises(penstock.errors.ArgumentError, match=words):
        dataset().loader(4, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": ("rewards", "action")}, "did you mean 'actions'"),
        ({"layout": lambda batch: 3}, "got int"),
        ({"rename": {"action": "a"}}, "did you mean 'actions'"),
        ({"rename": {"actions": "rewards"}}, "different names"),
        ({"rename": {"actions": "observations"}}, "different names"),
        ({"rename": {"actions": "rewards/of/all"}}, "different names"),
    ],
)
def test_layouts_that_do_not_fit_the_columns_are_refused_with_names(options, words):
    with pytest.raises(penstock.errors.SpecError, match=words):
        dataset().loader(4, **options).peek()


def test_every_named_layout_has_its_source():
    assert all(layout.source.startswith("https://") for layout in LAYOUTS.values())
