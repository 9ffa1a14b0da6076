"""Normalization in NumPy, PyTorch and JAX, its inverse, and its place in fingerprints."""

from __future__ import annotations

import pickle
import warnings

import jax
import numpy as np
import pytest
import torch

import penstock
from penstock.data.normalize import Mode, Normalize
from penstock.errors import ArgumentError, PlanError, SpecError

RNG = np.random.default_rng(5)


@pytest.fixture
def data() -> penstock.EpisodeDataset:
    columns = {
        "observations": {
            "state": RNG.normal(4, 3, (103, 5)).astype("f4"),
            "image": RNG.integers(0, 256, (103, 9, 9, 3), "u1"),
        },
        "actions": RNG.normal(0, 2, (100, 2)),
        "still": np.full((100, 2), 7.0),
    }
    return penstock.from_arrays(columns, [50, 30, 20])


def test_standard(data: penstock.EpisodeDataset) -> None:
    stats = penstock.statistics(data)
    scaled = data.steps().map(penstock.normalize(stats, ["actions", "still"]))[:]
    np.testing.assert_allclose(scaled["actions"].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled["actions"].std(axis=0), 1, rtol=1e-12)
    assert not scaled["still"].any()
    assert scaled["actions"].dtype == np.float64
    np.testing.assert_array_equal(scaled["observations/state"], data.steps()[:]["observations/state"])


@pytest.mark.parametrize("mode", ["standard", "min_max", "quantile"])
def test_elements_that_change_by_rounding_alone(mode: Mode) -> None:
    rounded = np.array([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2])
    columns = {"x": np.stack([np.full(4, 0.11), rounded, np.arange(4.0)], 1)}
    data = penstock.from_arrays(columns, [4], align={"x": "step"})
    stats = penstock.statistics(data)
    plain = data.steps().map(penstock.normalize(stats, ["x"], mode))[:]["x"]
    wide = data.steps().map(penstock.normalize(stats, ["x"], mode, min_width=1e-6))[:]["x"]
    assert not plain[:, 0].any()
    assert abs(plain[:, 1]).max() >= 1
    assert not wide[:, 0].any()
    assert abs(wide[:, 1]).max() < 1e-9
    np.testing.assert_array_equal(plain[:, 2], wide[:, 2])
    still = penstock.normalize(stats, ["x"], mode, min_width=1e-6)({"x": np.array([[1.11, 0.3, 0.0]])})["x"]
    assert still[0, 0] == pytest.approx(1)  # an element that never changed keeps a width of 1
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(PlanError, match="expected min_width as a number of at least 0"):
            penstock.normalize(stats, ["x"], mode, min_width=wrong)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
def test_large_whole_numbers_keep_their_differences(dtype: str) -> None:
    """Such as times in nanoseconds, which float32 rounds to 137 seconds."""
    first = 2**30 if dtype[1] == "4" else 1_732_752_000_000_000_000
    step = 1 if dtype[1] == "4" else 10_000_000
    rows = (first + step * np.arange(1000)).astype(dtype)
    data = penstock.from_arrays({"x": rows}, [1000], align={"x": "step"})
    scale = penstock.normalize(penstock.statistics(data), ["x"])
    even = np.arange(1000.0)
    expected = (even - even.mean()) / even.std()
    given = [rows, torch.from_numpy(rows.astype("i8"))]
    for scaled in (data.steps().map(scale)[:]["x"], *(np.asarray(scale({"x": each})["x"]) for each in given)):
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(scaled, expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["standard", "min_max", "quantile"])
def test_the_inverse_and_the_ranges(data: penstock.EpisodeDataset, mode: Mode) -> None:
    stats = penstock.statistics(data)
    paths = ["observations/state", "observations/image", "actions", "still"]
    scale = penstock.normalize(stats, paths, mode)
    rows = data.steps()[:]
    scaled = scale(rows)
    if mode == "min_max":
        for path in ("observations/image", "actions"):
            assert scaled[path].min() == pytest.approx(-1)
            assert scaled[path].max() == pytest.approx(1)
    if mode == "quantile":
        inside = np.mean(abs(scaled["actions"]) <= 1)
        assert 0.96 <= inside <= 0.99
    back = scale.inverse(scaled)
    for path in paths:
        np.testing.assert_allclose(back[path], rows[path], rtol=1e-5, atol=1e-4)


def test_outputs_of_other_names(data: penstock.EpisodeDataset) -> None:
    stats = penstock.statistics(data, ["actions"])
    scale = penstock.normalize(stats, {"actions": "actions", "next_actions": "actions"})
    pairs = data.windows(2).map(lambda c: {"actions": c["actions"][:, 0], "next_actions": c["actions"][:, 1]})
    plain, scaled = pairs[:], pairs.map(scale)[:]
    for path in ("actions", "next_actions"):
        np.testing.assert_array_equal(scaled[path], (plain[path] - stats["actions"].mean) / stats["actions"].std)


def test_torch_and_jax_get_the_same_values(data: penstock.EpisodeDataset) -> None:
    scale = penstock.normalize(penstock.statistics(data), ["observations/state", "observations/image", "actions"])
    rows = data.steps()[:16]
    expected = scale(rows)
    nested = {
        "observations": {k: rows[f"observations/{k}"] for k in ("state", "image")},
        "actions": rows["actions"].astype("f4"),
    }
    in_torch = scale(
        {
            k: {n: torch.tensor(a) for n, a in v.items()} if isinstance(v, dict) else torch.tensor(v)
            for k, v in nested.items()
        }
    )
    in_jax = jax.jit(scale)(nested)
    for found in (in_torch, in_jax):
        for path in ("state", "image"):
            array = np.asarray(found["observations"][path])
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, expected[f"observations/{path}"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(found["actions"]), expected["actions"], rtol=1e-4, atol=1e-5)
    assert set(nested["observations"]) == {"state", "image"}
    assert nested["observations"]["image"].dtype == np.uint8


def test_the_fingerprint_covers_the_statistics(data: penstock.EpisodeDataset) -> None:
    samples = data.steps()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole, again = (samples.map(penstock.normalize(penstock.statistics(data), ["actions"])) for _ in range(2))
        part = samples.map(penstock.normalize(penstock.statistics(data[[0]]), ["actions"]))
    assert whole.fingerprint == again.fingerprint
    assert whole.fingerprint != part.fingerprint


def test_wrong_arguments(data: penstock.EpisodeDataset) -> None:
    stats = penstock.statistics(data)
    with pytest.raises(ArgumentError, match=r"write \['actions'\]"):
        penstock.normalize(stats, "actions")
    with pytest.raises(KeyError, match="did you mean 'actions'"):
        penstock.normalize(stats, ["action"])
    with pytest.raises(PlanError, match="'standard', 'min_max' or 'quantile'"):
        penstock.normalize(stats, ["actions"], "gauss")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="increasing quantiles"):
        penstock.normalize(stats, ["actions"], "quantile", quantiles=(0.9, 0.1))
    scale = penstock.normalize(stats, ["actions"])
    for batch in ({"rewards": np.zeros(3)}, data.steps().select_columns("still")[:]):
        with pytest.raises(SpecError, match="'actions' to normalize"):
            scale(batch)
    empty = penstock.statistics(penstock.from_arrays({"x": np.full(3, np.nan)}, [3]))
    with pytest.raises(PlanError, match="finite values of x"):
        penstock.normalize(empty, ["x"])
    assert isinstance(scale.inverse.inverse, Normalize)


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 16, 3), (3,), (5, 4, 2, 3), (0, 3)])
def test_numbers_have_the_bits_of_numpy(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    kept = () if shape == (5,) else (1, 1, 3) if len(shape) == 4 else (3,)
    center, width = rng.normal(size=kept), rng.random(kept) + 0.1
    x = rng.normal(size=shape).astype(dtype)
    if len(shape) == 4:
        x = np.flip(x, axis=1)  # not contiguous
    scale = Normalize({"x": center}, {"x": width})
    scaled, back = scale({"x": x})["x"], scale.inverse({"x": x})["x"]
    assert scaled.dtype.kind == back.dtype.kind == "f"
    np.testing.assert_array_equal(scaled, (x - center.astype(dtype)) / width.astype(dtype), strict=True)
    np.testing.assert_array_equal(back, x * width.astype(dtype) + center.astype(dtype), strict=True)


@pytest.mark.parametrize("inverted", [False, True])
def test_batches_are_scaled_in_their_own_memory_with_the_same_bits(inverted: bool) -> None:
    columns = {"x": RNG.normal(4, 3, (60, 5)).astype("f4"), "y": RNG.normal(size=60), "n": RNG.integers(0, 9, (60, 2))}
    kept = {path: array.copy() for path, array in columns.items()}
    data = penstock.from_arrays(columns, [20, 40])
    scale = penstock.normalize(penstock.statistics(data), list(columns))
    scale = scale.inverse if inverted else scale
    for samples in (data.steps(), data.windows(4).shuffle(0)):
        for batch, plain in zip(
            samples.map(scale).loader(16), samples.loader(16), strict=True
        ):  # the first batch fills the table of figures
            expected = scale({path: plain[path] for path in columns})
            for path in columns:
                np.testing.assert_array_equal(batch[path], expected[path])
                assert batch[path].dtype == expected[path].dtype
        once = samples.map(scale).map(scale)[:]  # the second function may not overwrite what the first returned
        for path, array in columns.items():
            np.testing.assert_array_equal(once[path], scale(scale(samples[:]))[path])
            np.testing.assert_array_equal(array, kept[path])


def test_a_call_leaves_its_batch_and_a_copy_has_the_same_fingerprint(data: penstock.EpisodeDataset) -> None:
    scale = penstock.normalize(penstock.statistics(data), ["actions"])
    before = data.steps().map(scale).fingerprint
    rows = data.steps()[:]
    kept = rows["actions"].copy()
    for _ in range(2):
        scale(rows)
        np.testing.assert_array_equal(rows["actions"], kept)
    assert data.steps().map(scale).fingerprint == before
    assert data.steps().map(pickle.loads(pickle.dumps(scale))).fingerprint == before
