"""The choice of torchcodec, with a stand-in that decodes with PyAV: torchcodec needs an FFmpeg of its own."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.containers.video import VideoFiles
from penstock.containers.video.decoders import POOL
from penstock.errors import ArgumentError, FormatError, MissingExtraError
from tests.containers.video.conftest import FRAMES, decoded


class FakeTensor:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def cpu(self) -> FakeTensor:
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.array


class FakeDecoder:
    opened: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012  one for all
    lost = 0

    def __init__(self, path: str, **options: Any) -> None:
        self.opened.append((path, options))
        self.frames = decoded(Path(path))[0]

    def __len__(self) -> int:
        return len(self.frames) - self.lost

    def get_frames_at(self, numbers: list[int]) -> Any:
        if FakeDecoder.lost:
            raise RuntimeError("no more frames")
        return types.SimpleNamespace(data=FakeTensor(self.frames[numbers]))


@pytest.fixture
def torchcodec(monkeypatch: pytest.MonkeyPatch) -> type[FakeDecoder]:
    module = types.ModuleType("torchcodec.decoders")
    module.VideoDecoder = FakeDecoder  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "torchcodec", types.ModuleType("torchcodec"))
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", module)
    monkeypatch.setattr(FakeDecoder, "opened", [])
    POOL.clear()
    monkeypatch.setattr(FakeDecoder, "lost", 0)
    return FakeDecoder


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_frames_go_to_their_places(torchcodec: type[FakeDecoder], videos: dict[str, Path], cache_bytes: int) -> None:
    paths = [videos["h264.mp4"], videos["vp9.webm"]]
    files = VideoFiles(paths, decoder="torchcodec", device="cuda:1", layout="chw", threads=2, cache_bytes=cache_bytes)
    expected = np.stack([decoded(path)[0] for path in paths])
    rng = np.random.default_rng(6)
    for _ in range(3):
        numbers, frames = rng.integers(0, 2, 30), rng.integers(0, FRAMES, 30)
        out = np.zeros((30, *files.shape), np.uint8)
        files.read(numbers, frames, np.arange(30), out)
        np.testing.assert_array_equal(out, expected[numbers, frames].transpose(0, 3, 1, 2))
    assert {options["device"] for _, options in torchcodec.opened} == {"cuda:1"}
    assert all(options["stream_index"] == 0 for _, options in torchcodec.opened)


def test_other_counts_and_errors(torchcodec: type[FakeDecoder], videos: dict[str, Path]) -> None:
    files = VideoFiles([videos["h264.mp4"]], decoder="torchcodec")
    torchcodec.lost = 1
    with pytest.raises(FormatError, match=r"expected 40 frames, got 39 from torchcodec.*h264\.mp4"):
        files.read([0], [0], [0], np.zeros((1, *files.shape), np.uint8))


def test_without_torchcodec(monkeypatch: pytest.MonkeyPatch, videos: dict[str, Path]) -> None:
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    with pytest.raises(MissingExtraError, match=r"torchcodec cannot be used.*decoder='pyav'"):
        VideoFiles([videos["h264.mp4"]], decoder="torchcodec")


def test_options_that_do_not_fit(torchcodec: type[FakeDecoder], videos: dict[str, Path]) -> None:
    options: list[dict[str, Any]] = [
        {"decoder": "torchcodec", "size": (8, 8)},
        {"device": "cuda"},
        {"decoder": "decord"},
    ]
    for each in options:
        with pytest.raises(ArgumentError, match="expected"):
            VideoFiles([videos["h264.mp4"]], **each)
