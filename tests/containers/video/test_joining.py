"""Joining video files without encoding them again: frames and times of each file, for codecs with and without delay."""

# pyright: basic

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.containers.video import VideoFiles, VideoWriter, packet_index
from penstock.containers.video.writer import _set_decoding_times, can_join, join_videos
from penstock.errors import DataError
from tests.containers.video.conftest import decoded, pictures

LENGTHS = 5, 1, 12, 2  # files of one and two frames have a shorter delay of decoding


def written(folder: Path, codec: str, fps: Any, **options: Any) -> list[Path]:
    paths = [folder / f"{number}.mp4" for number in range(len(LENGTHS))]
    for path, length in zip(paths, LENGTHS, strict=True):
        with VideoWriter(path, fps, codec=codec, **options) as writer:
            writer.append(pictures(length))
    return paths


@pytest.mark.parametrize(
    ("codec", "fps", "options"),
    [
        ("libsvtav1", 10, {}),
        ("libx264", Fraction(30000, 1001), {"g": 20}),
        ("libx264rgb", 7.3, {"crf": 0}),
        ("libx265", 12.5, {"options": {"x265-params": "log-level=none"}}),
        ("ffv1", 10, {}),
    ],
)
def test_frames_follow_each_other(codec: str, fps: Any, options: dict[str, Any], tmp_path: Path) -> None:
    paths = written(tmp_path, codec, fps, **options)
    join_videos(paths, [packet_index(path) for path in paths], fps, tmp_path / "joined.mp4")
    frames = np.concatenate([decoded(path)[0] for path in paths])
    files = VideoFiles([tmp_path / "joined.mp4"])
    order = np.random.default_rng(0).permutation(sum(LENGTHS))
    out = np.empty_like(frames)
    files.read(0, order, order, out)
    np.testing.assert_array_equal(out, frames)
    np.testing.assert_array_equal(decoded(tmp_path / "joined.mp4")[0], frames)  # one behind the other, by PyAV
    np.testing.assert_allclose(files.timestamps(0), np.arange(len(frames)) / float(fps), atol=1e-9)
    assert int(files.index(0).offset[0]) > 500  # the table of packets is in front of them
    with pytest.raises(FileExistsError):
        join_videos(paths, [packet_index(path) for path in paths], fps, tmp_path / "joined.mp4")


def test_decoding_times_rise_and_are_never_after_the_frame() -> None:
    packets = [SimpleNamespace(pts=pts, dts=1 << 40) for pts in (0, 3, 1, 2)]
    _set_decoding_times(packets)
    assert [packet.dts for packet in packets] == [-1, 0, 1, 2]
    _set_decoding_times([])


@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17])
def test_videos_of_few_frames(length: int, tmp_path: Path) -> None:
    """libx265 leaves decoding times of short videos undefined, so that the file could not be written now and then."""
    with VideoWriter(tmp_path / "a.mp4", 10, codec="libx265", options={"x265-params": "log-level=none"}) as writer:
        writer.append(pictures(length))
    assert len(decoded(tmp_path / "a.mp4")[0]) == length
    np.testing.assert_allclose(VideoFiles([tmp_path / "a.mp4"]).timestamps(0), np.arange(length) / 10, atol=1e-9)


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    paths: list[Path] = []
    for codec in ("libx264", "ffv1"):
        (tmp_path / codec).mkdir()
        paths.append(written(tmp_path / codec, codec, 10)[0])
    indexes = [packet_index(path) for path in paths]
    assert not can_join(*indexes)
    with pytest.raises(DataError, match="files of one encoding"):
        join_videos(paths, indexes, 10, tmp_path / "joined.mp4")
    assert not (tmp_path / "joined.mp4").exists()
