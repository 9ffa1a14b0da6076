"""Public reports about readers of video: the frame that was asked for, whatever was read before."""

# pyright: basic

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from penstock.containers.video import VideoFiles
from penstock.containers.video.writer import same_priority
from tests.containers.video.conftest import decoded, encode, pictures
from tests.containers.video.test_frames import read
from tests.reports.reported import report


def filmed(path: Path, codec: str, options: dict[str, str], ticks: list[int], pix_fmt: str = "yuv420p") -> Path:
    """Frames of one grey each, `3 * number % 250`, at some times in milliseconds."""
    with same_priority(), av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10, options=options)
        stream.width = stream.height = 64
        stream.pix_fmt = pix_fmt
        stream.codec_context.time_base = Fraction(1, 1000)
        for number, tick in enumerate(ticks):
            picture = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 3 * number % 250, np.uint8), format="rgb24")
            picture.pts, picture.time_base = tick, Fraction(1, 1000)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


def same_in_any_order(path: Path, order: Any) -> None:
    expected, seconds = decoded(path)
    files = VideoFiles([path])
    assert files.frame_count(0) == len(expected)
    for number in order:
        np.testing.assert_array_equal(read(files, 0, [number])[0], expected[number])
    assert files.frame_numbers(0, seconds, 1e-3).tolist() == list(range(len(expected)))


@report("meta-pytorch/torchcodec#1339", "HEVC: a frame before the one that was read last is not a stale one")
def test_reading_backwards_in_hevc(tmp_path: Path) -> None:
    options = {"g": "3", "crf": "0", "x265-params": "log-level=none"}
    path = filmed(tmp_path / "a.mp4", "libx265", options, [100 * i for i in range(161)])
    same_in_any_order(path, [159, 35, 160, 0, 158, 34, 36, 35])


@report("meta-pytorch/torchcodec#179", "H.265 with short groups of pictures: each time has its frame")
def test_each_time_of_short_groups_has_its_frame(tmp_path: Path) -> None:
    options = {"g": "2", "crf": "10", "x265-params": "log-level=none"}
    path = filmed(tmp_path / "a.mp4", "libx265", options, [100 * i for i in range(10)])
    same_in_any_order(path, [5, *range(10)])


@report("dmlc/decord#365", "a single frame among many B-frames is the one of reading in order")
@report("dmlc/decord#78", "a seek that lands on another key frame returns no other frame")
def test_single_frames_among_many_b_frames(tmp_path: Path) -> None:
    options = {"g": "48", "x264-params": "bframes=16:b-adapt=0:ref=8:b-pyramid=normal"}
    same_in_any_order(filmed(tmp_path / "a.mp4", "libx264", options, [40 * i for i in range(80)]), range(79, -1, -3))


@report("dmlc/decord#54", "uneven times: random access returns what reading in order returns")
def test_uneven_times(tmp_path: Path) -> None:
    ticks = np.cumsum(np.random.default_rng(0).choice([1, 7, 33, 34, 400], 90)).tolist()
    same_in_any_order(filmed(tmp_path / "a.mov", "libx264", {"g": "30", "bf": "3"}, ticks), [*range(89, 0, -8), 89, 1])


@report("dmlc/decord#91", "VP8 in WebM: frames behind the first seconds are their own")
def test_vp8_in_webm(tmp_path: Path) -> None:
    path = filmed(tmp_path / "a.webm", "libvpx", {"g": "250", "deadline": "realtime"}, [1000 * i for i in range(60)])
    same_in_any_order(path, [59, 40, 3, 58])


@report("gcanat/video_reader-rs#78", "a window that is one frame later starts one frame later, also at key frames")
def test_windows_advance_by_one(tmp_path: Path) -> None:
    path = filmed(tmp_path / "a.mp4", "libx264", {"g": "20", "bf": "2"}, [33 * i for i in range(80)])
    expected, _ = decoded(path)
    files = VideoFiles([path])
    for start in range(15, 45):
        np.testing.assert_array_equal(read(files, 0, range(start, start + 24)), expected[start : start + 24])


@report("PyAV-Org/PyAV#976", "the last frames come out of the decoder, too")
def test_the_last_frames_are_read(tmp_path: Path) -> None:
    path = filmed(tmp_path / "a.mp4", "libx264", {"g": "50", "bf": "4"}, [40 * i for i in range(31)])
    files = VideoFiles([path])
    assert files.frame_count(0) == 31
    grey = read(files, 0, range(31))[:, 32, 32, 0].astype(int)
    assert np.abs(grey - 3 * np.arange(31)).max() <= 4


@report("PyAV-Org/PyAV#1987", "frames of a paletted AVI have their colours after a jump")
@report("PyAV-Org/PyAV#349", "frames of a paletted AVI have their colours after a jump")
def test_paletted_frames_are_not_black(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.avi", "palette.avi", pictures(8))
    assert decoded(path)[0].any()
    same_in_any_order(path, [7, 0, 3, 2, 6])
