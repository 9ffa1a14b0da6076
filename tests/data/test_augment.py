"""Augmentations equal loops over samples, frames and pixels, in NumPy and torch; their draws have the right laws."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from math import cos, log, pi, prod, sin, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.data.augment import Augmentation, ColorJitter, GaussianNoise, Layout, RandomCrop, RandomShift
from penstock.data.map_dataset import planned_samples
from penstock.errors import ArgumentError, FingerprintWarning, PlanError, SpecError
from penstock.plan.keys import keys as keys_of

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def hashed(z: int) -> int:
    """The finish of SplitMix64, in whole numbers without a limit."""
    z &= MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def integer(key: int, kind: int, count: int) -> int:
    return ((hashed(key + kind * STEP) >> 32) * count) >> 32


def uniform(key: int, kind: int) -> float:
    return (hashed(key + kind * STEP) >> 40) / 2**23 - 1


def frame_key(key: int, frame: int, per_frame: bool) -> int:
    return hashed(hashed(key + 10 * STEP) + (frame + 1) * STEP) if per_frame else key


def frames_of(pictures: Any, layout: Layout) -> Any:
    """`[n, F, H, W, C]`."""
    channels_last = pictures if layout == "HWC" else np.moveaxis(pictures, -3, -1)
    return channels_last.reshape(len(pictures), prod(pictures.shape[1:-3]), *channels_last.shape[-3:])


@st.composite
def pictures(draw: st.DrawFn, channels: tuple[int, ...] = (1, 2, 3, 4)) -> tuple[Any, Any, Layout, bool]:
    layout: Layout = draw(st.sampled_from(["CHW", "HWC"]))
    n, lead = draw(st.integers(0, 4)), draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    height, width, depth = draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.sampled_from(channels))
    shape = (depth, height, width) if layout == "CHW" else (height, width, depth)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    values = rng.integers(0, 256, (n, *lead, *shape), "u1")
    dtype = draw(st.sampled_from(["u1", "f4", "f8"]))
    keys = rng.integers(0, 1 << 64, n, "u8")
    return (values if dtype == "u1" else values.astype(dtype) / 255), keys, layout, draw(st.booleans())


def in_torch(augmentation: Augmentation, pictures: Any, keys: Any) -> Any:
    """The result of torch, with keys as a tensor, in a nested dict."""
    batch: Any = {"o": {"x": torch.tensor(pictures)}, "other": torch.zeros(len(pictures))}
    out = augmentation(batch, torch.tensor(keys.view(np.int64)))
    assert out["other"] is batch["other"]
    np.testing.assert_array_equal(batch["o"]["x"].numpy(), pictures)
    return out["o"]["x"].numpy()


def in_numpy(augmentation: Augmentation, pictures: Any, keys: Any) -> Any:
    before = pictures.copy()
    out = augmentation(penstock.Columns({"o/x": pictures}, n=len(pictures)), keys)["o/x"]
    np.testing.assert_array_equal(before, pictures)
    assert out.dtype == pictures.dtype
    return out


def each_frame(keys: Any, frames: Any, per_frame: bool) -> Iterator[tuple[int, int, int]]:
    for i, key in enumerate(keys.tolist()):
        for f in range(frames.shape[1]):
            yield i, f, frame_key(key, f, per_frame)


@given(pictures(), st.integers(0, 9))
def test_shift_equals_a_loop(case: Any, pad: int) -> None:
    x, keys, layout, per_frame = case
    shift = RandomShift("o/x", layout, per_frame, pad)
    out = in_numpy(shift, x, keys)
    assert out.shape == x.shape
    given_frames, made = frames_of(x, layout), frames_of(out, layout)
    for i, f, key in each_frame(keys, given_frames, per_frame):
        down, right = (integer(key, kind, 2 * pad + 1) - pad for kind in (1, 2))
        height, width = given_frames.shape[2:4]
        for y in range(height):
            for z in range(width):
                source = min(max(y + down, 0), height - 1), min(max(z + right, 0), width - 1)
                np.testing.assert_array_equal(made[i, f, y, z], given_frames[i, f, source[0], source[1]])
    np.testing.assert_array_equal(in_torch(shift, x, keys), out)


@given(pictures(), st.data())
def test_crop_equals_a_loop(case: Any, data: st.DataObject) -> None:
    x, keys, layout, per_frame = case
    frames = frames_of(x, layout)
    height, width = frames.shape[2:4]
    size = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    crop = RandomCrop("o/x", layout, per_frame, size)
    out = in_numpy(crop, x, keys)
    made = frames_of(out, layout)
    assert made.shape[2:4] == size
    for i, f, key in each_frame(keys, frames, per_frame):
        top, left = integer(key, 3, height - size[0] + 1), integer(key, 4, width - size[1] + 1)
        expected = frames[i, f, top : top + size[0], left : left + size[1]]
        np.testing.assert_array_equal(made[i, f], expected)
    np.testing.assert_array_equal(in_torch(crop, x, keys), out)


def jittered(picture: Any, key: int, jitter: ColorJitter) -> Any:
    """One picture `[H, W, C]` after the four steps in their order, in float64."""
    brightness, contrast, saturation, turn = (
        base + amount * uniform(key, kind)
        for base, amount, kind in (
            (1, jitter.brightness, 5), (1, jitter.contrast, 6), (1, jitter.saturation, 7), (0, 2 * pi * jitter.hue, 8),
        )
    )  # fmt: skip
    bright = picture.astype("f8") * brightness
    mean = bright.mean()
    out = mean + (bright - mean) * contrast
    if jitter.saturation or jitter.hue:
        axis = np.ones(3) / sqrt(3)
        for y, x, k in np.ndindex(*out.shape[:2], out.shape[2] // 3):
            rgb = out[y, x, 3 * k : 3 * k + 3]
            grey = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
            rgb = grey + (rgb - grey) * saturation
            along = axis * (axis @ rgb)
            out[y, x, 3 * k : 3 * k + 3] = along + (rgb - along) * cos(turn) + np.cross(axis, rgb) * sin(turn)
    return out


AMOUNT = st.sampled_from([0.0, 0.3, 1.0])


@settings(max_examples=60)
@given(pictures((3, 6)), AMOUNT, AMOUNT, AMOUNT, st.sampled_from([0.0, 0.1, 0.5]))
def test_colour_equals_a_loop(case: Any, brightness: float, contrast: float, saturation: float, hue: float) -> None:
    x, keys, layout, per_frame = case
    jitter = ColorJitter("o/x", layout, per_frame, brightness, contrast, saturation, hue)
    out = in_numpy(jitter, x, keys)
    frames, made = frames_of(x, layout), frames_of(out, layout)
    whole = x.dtype == np.uint8
    for i, f, key in each_frame(keys, frames, per_frame):
        expected = jittered(frames[i, f], key, jitter)
        if whole:
            np.testing.assert_allclose(made[i, f], np.clip(expected, 0, 255), atol=0.501)
        else:
            np.testing.assert_allclose(made[i, f], expected, atol=1e-5 if x.dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(in_torch(jitter, x, keys), out, atol=1 if whole else 1e-5)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_brightness_and_contrast_need_no_colours(layout: Layout) -> None:
    x = np.random.default_rng(0).random((3, 4, 4, 4))
    jitter = ColorJitter("o/x", layout, brightness=0.5, contrast=0.5)
    keys = np.arange(3, dtype="u8")
    made = frames_of(in_numpy(jitter, x, keys), layout)
    for i in range(3):
        np.testing.assert_allclose(made[i, 0], jittered(frames_of(x, layout)[i, 0], i, jitter), atol=1e-12)


@given(pictures(), st.sampled_from([0.0, 1.0, 40.0]))
def test_noise_equals_a_loop(case: Any, std: float) -> None:
    x, keys, _, _ = case
    noise = GaussianNoise("o/x", std)
    out = in_numpy(noise, x, keys)
    width = prod(x.shape[1:])
    rows, made = x.reshape(len(x), width), out.reshape(len(x), width)
    whole = x.dtype == np.uint8
    for i, key in enumerate(keys.tolist()):
        stream = hashed(key + 9 * STEP)
        for j in range(width):
            word = hashed(stream + (j // 2 + 1) * STEP)
            radius = sqrt(-2 * log(((word >> 41) + 0.5) / 2**23))
            angle = 2 * pi * (word & 0xFFFFFF) / 2**24
            expected = float(rows[i, j]) + std * radius * (sin(angle) if j % 2 else cos(angle))
            if whole:
                assert abs(made[i, j] - min(max(expected, 0), 255)) <= 0.501
            else:
                assert abs(made[i, j] - expected) <= 1e-4
    np.testing.assert_allclose(in_torch(noise, x, keys), out, atol=1 if whole else 1e-4)


def test_noise_of_many_rows_is_made_in_blocks() -> None:
    x, keys = np.zeros((40, 3, 90, 90), "f4"), keys_of(3, np.arange(40))
    noise = GaussianNoise("x")
    whole = noise({"x": x}, keys)["x"]
    for i in (0, 20, 39):
        np.testing.assert_array_equal(noise({"x": x[i : i + 1]}, keys[i : i + 1])["x"][0], whole[i])


def test_laws_of_the_draws() -> None:
    """Fixed keys: the limits are 5 standard deviations of each count or mean."""
    n = 90_000
    keys = keys_of(11, np.arange(n))
    ramp = np.broadcast_to(np.arange(81, dtype="i4").reshape(1, 1, 9, 9), (n, 1, 9, 9))
    crops = RandomCrop("x", size=1)({"x": ramp}, keys)["x"].ravel()
    counts = np.bincount(crops, minlength=81)  # rows and columns are independent: all 81 places alike
    assert len(counts) == 81
    assert abs(counts - n / 81).max() < 5 * sqrt(n / 81)
    shifts = RandomShift("x", pad=4)({"x": ramp[:, :, :, :]}, keys)["x"][:, 0, 4, 4]
    counts = np.bincount(shifts, minlength=81)
    assert abs(counts - n / 81).max() < 5 * sqrt(n / 81)
    bright = ColorJitter("x", brightness=0.4)({"x": np.ones((n, 1, 1, 1))}, keys)["x"].ravel()
    assert bright.min() >= 0.6
    assert bright.max() < 1.4
    assert abs(bright.mean() - 1) < 5 * 0.4 / sqrt(3 * n)
    assert abs(bright.var() - 0.4**2 / 3) < 0.005
    noise = GaussianNoise("x", 2.0)({"x": np.zeros((n, 4))}, keys)["x"]
    assert abs(noise.mean(axis=0)).max() < 5 * 2 / sqrt(n)
    np.testing.assert_allclose(np.cov(noise.T), 4 * np.eye(4), atol=5 * 4 * sqrt(2 / n))
    np.testing.assert_allclose((noise**4).mean() / 16, 3, atol=0.1)
    both = np.stack([shifts // 9, shifts % 9, bright, noise[:, 0], crops], axis=1)
    assert abs(np.corrcoef(both.T) - np.eye(5)).max() < 5 / sqrt(n)  # augmentations of one key are independent


@pytest.fixture
def data() -> penstock.EpisodeDataset:
    rng = np.random.default_rng(1)
    return penstock.from_arrays({"o": rng.integers(0, 256, (60, 3, 12, 12), "u1")}, lengths=[25, 5, 30])


ALL = (RandomShift("o", pad=2), RandomCrop("o", size=(8, 9)), ColorJitter("o", hue=0.5), GaussianNoise("o", 9.0))


@pytest.mark.parametrize("augmentation", ALL, ids=lambda each: type(each).__name__)
def test_batches_threads_and_ranks_do_not_matter(data: penstock.EpisodeDataset, augmentation: Augmentation) -> None:
    samples = data.windows(2, pad="zero").shuffle(seed=3).map(augmentation, seed=5)
    expected = samples[:]["o"]
    for size, threads in ((1, 0), (7, 3), (60, 1)):
        batches = [batch["o"] for batch in samples.loader(batch_size=size, threads=threads)]
        np.testing.assert_array_equal(np.concatenate(batches), expected)
    shares = [samples.loader(6, rank=rank, world=2, threads=1) for rank in range(2)]
    of_ranks = np.concatenate([batch["o"] for loader in shares for batch in loader])
    assert sorted(map(bytes, of_ranks)) == sorted(map(bytes, expected))
    second = planned_samples(samples).at(np.arange(60) + 60)["o"]  # the next epoch: another order and other draws
    assert {bytes(row) for row in second} != {bytes(row) for row in expected}


def test_fingerprints(data: penstock.EpisodeDataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FingerprintWarning)
        one, same, other = (data.steps().map(RandomShift("o", pad=pad), seed=0).fingerprint for pad in (2, 2, 3))
        for each in ALL:
            assert data.steps().map(each, seed=0).fingerprint not in (one, other) or each == ALL[0]
    assert one == same != other


def test_frames_share_a_draw_unless_asked() -> None:
    x = np.tile(np.arange(400, dtype="i8").reshape(1, 1, 1, 20, 20), (50, 4, 1, 1, 1))
    keys = keys_of(0, np.arange(50))
    shared = RandomCrop("x", size=1)({"x": x}, keys)["x"].reshape(50, 4)
    assert (shared == shared[:, :1]).all()
    own = RandomCrop("x", per_frame=True, size=1)({"x": x}, keys)["x"].reshape(50, 4)
    assert sum(len(set(row)) == 4 for row in own.tolist()) > 45
    assert len(set(shared[:, 0].tolist())) > 40


def test_columns_of_one_augmentation_share_its_draws() -> None:
    x, keys = np.random.default_rng(0).random((5, 1, 9, 9)), np.arange(5, dtype="u8")
    out = RandomShift(["a", "b"])({"a": x, "b": x.copy()}, keys)
    np.testing.assert_array_equal(out["a"], out["b"])
    assert RandomShift(["a", "b"]) == RandomShift(("a", "b"))


def test_gradients_flow_through() -> None:
    x = torch.rand(2, 3, 6, 6, requires_grad=True)
    batch: Any = {"x": x}
    for each in (RandomShift("x", pad=1), RandomCrop("x", size=5), ColorJitter("x", hue=0.1), GaussianNoise("x")):
        batch = each(batch, np.arange(2, dtype="u8"))
    batch["x"].sum().backward()
    assert x.grad is not None
    assert x.grad.any()


KEYS = np.arange(2, dtype="u8")
IMAGES = np.zeros((2, 3, 8, 8), "u1")


@pytest.mark.parametrize(
    ("augmentation", "columns", "keys", "error", "message"),
    [
        (RandomShift("x"), {"x": IMAGES}, None, ArgumentError, r"use map\(fn, seed=0\)"),
        (RandomShift("y"), {"x": IMAGES}, KEYS, SpecError, "expected a column 'y' to augment"),
        (RandomShift("x/y"), {"x": IMAGES}, KEYS, SpecError, "expected a column 'x/y' to augment"),
        (RandomShift("x"), {"x": IMAGES[0]}, KEYS[:1].repeat(3), SpecError, r"\[n, ..., C, H, W\], got \[3, 8, 8\]"),
        (RandomShift("x"), {"x": IMAGES}, KEYS[:1], SpecError, "one key of 64 bits for each of the 2 rows"),
        (RandomShift("x"), {"x": IMAGES}, KEYS.astype("f8"), SpecError, "got float64"),
        (RandomShift("x"), {"x": IMAGES}, torch.arange(2), SpecError, "got a tensor"),
        (RandomCrop("x", size=9), {"x": IMAGES}, KEYS, SpecError, "at least 9 x 9 pixels, got 8 x 8"),
        (RandomCrop("x", "HWC", size=(3, 9)), {"x": IMAGES}, KEYS, SpecError, "at least 3 x 9 pixels, got 3 x 8"),
        (ColorJitter("x", "HWC", hue=0.1), {"x": IMAGES}, KEYS, SpecError, "got 8 channels"),
        (ColorJitter("x"), {"x": IMAGES.astype("i4")}, KEYS, SpecError, "uint8 or floats, got int32"),
        (GaussianNoise("x"), {"x": torch.zeros(2, dtype=torch.int32)}, KEYS, SpecError, "got torch.int32"),
        (
            GaussianNoise("x"),
            penstock.Columns({"x": penstock.Ragged.from_strings(["a", "b"])}),
            KEYS,
            SpecError,
            "got a Ragged column",
        ),
    ],
)
def test_errors(augmentation: Augmentation, columns: Any, keys: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        augmentation(columns, keys)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomShift(pad=-1), "0 pixels or more, got -1"),
        (lambda: RandomCrop(size=(0, 3)), r"1 pixel or more, got \(0, 3\)"),
        (lambda: RandomShift(layout="NHWC"), "'CHW' or 'HWC', got 'NHWC'"),  # type: ignore[arg-type]
        (lambda: ColorJitter(brightness=1.5), "brightness to be 0 to 1.0, got 1.5"),
        (lambda: ColorJitter(hue=0.6), "hue to be 0 to 0.5, got 0.6"),
        (lambda: ColorJitter(contrast=float("nan")), "contrast to be 0 to 1.0, got nan"),
        (lambda: GaussianNoise(std=-1.0), "std to be a number of at least 0"),
        (lambda: GaussianNoise(std=float("inf")), "got inf"),
    ],
)
def test_impossible_arguments(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()
