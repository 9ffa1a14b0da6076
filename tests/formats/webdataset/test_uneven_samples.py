"""Samples as people have them: images of unequal sizes, members that some samples lack, tensors, text."""

from __future__ import annotations

import io
import pickle
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import penstock
from penstock.containers.tar import END, member
from penstock.errors import DataError, FormatError
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.streaming import ShardStream

SIZES = ((8, 12), (20, 10), (9, 9), (8, 12))


def png(seed: int, height: int, width: int) -> tuple[np.ndarray, bytes]:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return pixels, out.getvalue()


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """Four samples; the second has no label, and the third no text."""
    entries = b""
    for i, size in enumerate(SIZES):
        tensor = io.BytesIO()
        torch.save({"x": torch.full((2,), float(i)), "tags": torch.arange(i + 1)}, tensor)
        entries += member(f"{i}.png", png(i, *size)[1]) + member(f"{i}.pth", tensor.getvalue())
        entries += member(f"{i}.cls", b"%d" % i) if i != 1 else b""
        entries += member(f"{i}.txt", f"né {i}".encode()) if i != 2 else b""
        entries += member(f"{i}.pickle", pickle.dumps({"y": torch.ones(3) * i, "z": deque([i, i])}))
    (tmp_path / "a.tar").write_bytes(entries + END)
    return tmp_path / "a.tar"


def test_refused_as_they_are(uneven: Path) -> None:
    with pytest.raises(FormatError, match="missing='leave_out', or fill it with missing='fill'"):
        ShardSource(uneven, extensions=["png", "cls"])
    with pytest.raises(FormatError, match=r"give resize=, crop= or ragged=True, or leave them out.*'1\.png'"):
        ShardSource(uneven, extensions=["png"], images="rgb")


def test_samples_left_out_are_counted(uneven: Path) -> None:
    data = penstock.open(uneven, missing="leave_out")
    assert data.metadata["missing"] == {"samples": 2, "members": {"cls": 1, "txt": 1}}
    assert data.steps()[:]["cls"].tolist() == [0, 3]
    assert [data.source.sample(i)["__key__"] for i in range(2)] == ["0", "3"]
    assert data[1].columns["txt"].strings() == ["né 3"]


def test_filled_samples_are_named(uneven: Path) -> None:
    data = penstock.open(uneven, missing="fill", images="gray", resize=(4, 6))
    rows = data.steps()[:]
    assert rows["cls"].tolist() == [0, 0, 2, 3]
    assert rows["missing/cls"].tolist() == [False, True, False, False]
    assert not rows["missing/png"].any()
    assert [episode.columns["txt"].strings()[0] for episode in data.source.episodes()] == ["né 0", "né 1", "", "né 3"]
    assert rows["png"].shape == (4, 4, 6)
    assert data.metadata["missing"] == {"samples": 2, "members": {"cls": 1, "txt": 1}}


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"resize": (5, 7)}, (5, 7, 3)),
        ({"crop": (8, 9)}, (8, 9, 3)),
        ({"resize": 6, "crop": (6, 6)}, (6, 6, 3)),
    ],
)
def test_images_of_one_size(uneven: Path, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    columns = penstock.open(uneven, extensions=["png"], images="rgb", **options).steps()[:]
    assert columns["png"].shape == (4, *shape)
    pixels, raw = png(0, *SIZES[0])
    if "resize" not in options:
        np.testing.assert_array_equal(columns["png"][0], pixels[:, 1:10])
    else:
        size = (7, 5) if options["resize"] == (5, 7) else (9, 6)
        expected = np.asarray(Image.open(io.BytesIO(raw)).resize(size, Image.Resampling.BILINEAR))
        left = (expected.shape[1] - shape[1]) // 2
        np.testing.assert_array_equal(columns["png"][0], expected[:, left : left + shape[1]])
    stream = ShardStream(uneven, extensions=["png"], images="rgb", **options)
    np.testing.assert_array_equal(next(stream())["png"], columns["png"])


def test_images_as_they_are(uneven: Path) -> None:
    data = penstock.open(uneven, extensions=["png"], images="rgb", ragged=True)
    for i, episode in enumerate(data.source.episodes()):
        shape = episode.columns["png/shape"][0]
        assert shape.tolist() == [*SIZES[i], 3]
        np.testing.assert_array_equal(episode.columns["png/pixels"][0].reshape(shape), png(i, *SIZES[i])[0])


def test_tensors_are_columns(uneven: Path) -> None:
    data = penstock.open(uneven, extensions=["pth", "pickle"])
    rows = data.steps()[:]
    assert rows["pth/x"].tolist() == [[i, i] for i in range(4)]
    assert rows["pickle/y"].tolist() == [[i] * 3 for i in range(4)]
    assert rows["pickle/z"].tolist() == [[i, i] for i in range(4)]
    assert [episode.columns["pth/tags"][0].tolist() for episode in data.source.episodes()] == [
        list(range(i + 1)) for i in range(4)
    ]


@pytest.mark.parametrize(
    "options",
    [{"missing": "drop"}, {"resize": 5}, {"images": "rgb", "crop": (0, 5)}, {"images": "rgb", "resize": (5, 5, 3)}],
)
def test_options_that_cannot_be(uneven: Path, options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="expected"):
        ShardSource(uneven, **options)


def test_crops_of_small_images(uneven: Path) -> None:
    with pytest.raises(FormatError, match=r"at least \(9, 9\), got \(8, 12\); give a resize, too.*'0\.png'"):
        ShardSource(uneven, extensions=["png"], images="rgb", crop=(9, 9))
