"""Frames of video files equal those that PyAV decodes in order, to the last bit, in any order of access."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.containers.video import VideoFiles, VideoWriter, packet_index
from penstock.containers.video.decoders import Decoder
from penstock.errors import ArgumentError, FormatError, MissingExtraError
from tests.containers.video.conftest import FRAMES, HEIGHT, KINDS, WIDTH, decoded, encode, pictures


def read(files: VideoFiles, file: Any, frames: Any) -> np.ndarray[Any, Any]:
    out = np.full((len(frames), *files.shape), 7, np.uint8)
    files.read(file, frames, np.arange(len(frames)), out)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_any_order_of_frames(kind: str, videos: dict[str, Path]) -> None:
    expected, seconds = decoded(videos[kind])
    assert len(expected) == FRAMES
    files = VideoFiles([videos[kind]])
    assert files.frame_count(0) == FRAMES
    np.testing.assert_allclose(files.timestamps(0), seconds)
    rng = np.random.default_rng(3)
    for count in (1, 1, 1, 7, 2 * FRAMES):
        frames = rng.integers(0, FRAMES, count)
        np.testing.assert_array_equal(read(files, 0, frames), expected[frames])
    for frame in range(FRAMES):
        np.testing.assert_array_equal(read(files, 0, [frame])[0], expected[frame])
    np.testing.assert_array_equal(read(files, 0, range(FRAMES)), expected)
    np.testing.assert_array_equal(files.frame_numbers(0, seconds[::-1], 1e-4), np.arange(FRAMES)[::-1])
    assert packet_index(videos[kind]).claimed in (0, FRAMES)


def test_files_have_what_their_names_say(videos: dict[str, Path]) -> None:
    """Otherwise the test above would prove less than it seems to."""
    leading = packet_index(videos["h264_open.mp4"])
    keys = leading.keys[np.searchsorted(leading.keys, leading.packet, side="right") - 1]
    assert (leading.start < keys).any()  # frames that are shown before their key frame
    assert len(packet_index(videos["h264_long.mp4"]).keys) == 1
    assert (np.diff(packet_index(videos["h264.mp4"]).packet) < 0).any()  # frames in another order than packets
    assert packet_index(videos["h264_rotated.mp4"]).rotation == 90
    assert len(np.unique(np.diff(packet_index(videos["h264_variable.mp4"]).ticks))) == 3
    assert packet_index(videos["h264_odd_base.mp4"]).time_base.denominator % 30000 == 0
    assert {packet_index(path).codec for path in videos.values()} >= {"libdav1d", "h264", "hevc", "vp9", "ffv1"}


def test_frames_of_many_files_go_to_their_places(videos: dict[str, Path]) -> None:
    names = list(KINDS)
    files = VideoFiles([videos[name] for name in names], threads=3)
    expected = np.stack([decoded(videos[name])[0] for name in names])
    rng = np.random.default_rng(4)
    numbers, frames = rng.integers(0, len(names), 300), rng.integers(0, FRAMES, 300)
    places = rng.permutation(400)[:300]
    out = np.full((400, HEIGHT, WIDTH, 3), 7, np.uint8)
    files.read(numbers, frames, places, out)
    np.testing.assert_array_equal(out[places], expected[numbers, frames])
    assert (out[np.setdiff1d(np.arange(400), places)] == 7).all()
    turned = VideoFiles(files.paths, layout="chw", threads=0)
    assert turned.field("boundary").shape == (3, HEIGHT, WIDTH)
    np.testing.assert_array_equal(read(turned, numbers, frames), expected[numbers, frames].transpose(0, 3, 1, 2))


def test_frames_are_scaled_as_pyav_does(videos: dict[str, Path]) -> None:
    files = VideoFiles([videos["h264.mp4"], videos["vp9.webm"]], size=(30, 40))
    for file in range(2):
        expected, _ = decoded(files.paths[file], height=30, width=40)
        np.testing.assert_array_equal(read(files, file, [5, 39, 0]), expected[[5, 39, 0]])
    assert files.shape == (30, 40, 3)


@pytest.mark.parametrize("cache_bytes", [1, 20 * HEIGHT * WIDTH * 3, 1 << 30])
def test_a_cache_changes_no_value(cache_bytes: int, videos: dict[str, Path]) -> None:
    paths = [videos["h264_long.mp4"], videos["h264.mp4"]]
    expected = np.stack([decoded(path)[0] for path in paths])
    files = VideoFiles(paths, cache_bytes=cache_bytes)
    rng = np.random.default_rng(5)
    for _ in range(20):
        numbers, frames = rng.integers(0, 2, 5), rng.integers(0, FRAMES, 5)
        np.testing.assert_array_equal(read(files, numbers, frames), expected[numbers, frames])


def test_without_pyav(monkeypatch: pytest.MonkeyPatch, videos: dict[str, Path]) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"penstock\[video\]"):
        VideoFiles([videos["h264.mp4"]])


def test_arguments(videos: dict[str, Path]) -> None:
    path = videos["h264.mp4"]
    for options in ({"layout": "whc"}, {"size": (0, 3)}, {"size": (3,)}):
        with pytest.raises(ArgumentError, match="expected"):
            VideoFiles([path], **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="at least one"):
        VideoFiles([])
    with pytest.raises(ArgumentError, match="uint8"):
        VideoFiles([path]).read([0], [0], [0], np.zeros((1, HEIGHT, WIDTH, 3), np.float32))
    with pytest.raises(FormatError, match="video stream 1"):
        VideoFiles([path], stream=1).index(0)


def test_times_without_a_frame(videos: dict[str, Path]) -> None:
    files = VideoFiles([videos["h264.mp4"], videos["av1.mp4"]])
    assert files.frame_numbers([1, 0], [0.1, 0.2], 0.02).tolist() == [3, 6]
    with pytest.raises(FormatError, match=r"within 0\.001 s of 0\.11 s.*1 of the wanted times.*1\.3 s.*h264\.mp4"):
        files.frame_numbers(0, [0.1, 0.11], 0.001)
    with pytest.raises(FormatError, match=r"within 1 s of 1e\+09 s"):
        files.frame_numbers(0, [1e9], 1)
    for frame in (-1, FRAMES):
        with pytest.raises(FormatError, match=f"expected frame {frame}, got a video of 40 frames"):
            read(files, 0, [frame])


def test_pickled_and_forked_files_read_on(videos: dict[str, Path]) -> None:
    files = VideoFiles([videos["h264.mp4"]], layout="chw", threads=2)
    expected = read(files, 0, range(0, FRAMES, 5))
    np.testing.assert_array_equal(read(pickle.loads(pickle.dumps(files)), 0, range(0, FRAMES, 5)), expected)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if np.array_equal(read(files, 0, range(0, FRAMES, 5)), expected) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_read_at_once(videos: dict[str, Path]) -> None:
    paths = [videos["h264.mp4"], videos["av1.mp4"], videos["hevc.mp4"]]
    files = VideoFiles(paths, threads=2)
    expected = np.stack([decoded(path)[0] for path in paths])
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(5):
            numbers, frames = rng.integers(0, 3, 20), rng.integers(0, FRAMES, 20)
            if not np.array_equal(read(files, numbers, frames), expected[numbers, frames]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_frames_before_the_first_shown_one(tmp_path: Path) -> None:
    """An edit list skips the first frames, which others refer to."""
    path = encode(tmp_path / "late.mp4", "h264.mp4", pictures(20), first=500)
    expected, seconds = decoded(path)
    files = VideoFiles([path])
    np.testing.assert_allclose(files.timestamps(0), seconds)
    np.testing.assert_array_equal(read(files, 0, range(19, -1, -1)), expected[::-1])


def test_packets_are_those_of_the_file(videos: dict[str, Path]) -> None:
    import av

    files = VideoFiles([videos["h264.mp4"]])
    with av.open(str(videos["h264.mp4"])) as container:
        packets = sorted((p for p in container.demux(video=0) if p.size), key=lambda p: p.pts or 0)
        raw = [bytes(packet) for packet in packets]
    rows = files.packets([0, 0], [3, 17])
    assert [row.tobytes() for row in rows] == [raw[3], raw[17]]


def test_an_old_pyav_is_named(videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import av

    monkeypatch.setattr(av, "__version__", "15.1.0")  # the newest one that lerobot 0.4.4 accepts
    with pytest.raises(MissingExtraError, match=r"PyAV 17 or newer for video, got 15\.1\.0"):
        VideoFiles([videos["h264.mp4"]])


@pytest.mark.parametrize(
    "options",
    [
        {"g": "60", "bf": "5", "x264-params": "b-pyramid=none"},
        {"g": "60", "bf": "8", "x264-params": "b-pyramid=strict:slices=3"},
        {"x264-params": "open-gop=1:keyint=15:bframes=4:interlaced=1:weightb=1:ref=6"},
    ],
)
def test_frames_that_none_refers_to_are_skipped_on_the_way(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int.from_bytes(os.urandom(2))
    monkeypatch.setitem(KINDS, "skipped.mp4", ("libx264", "yuv420p", options, {"variable": True}))
    path = encode(tmp_path / "skipped.mp4", "skipped.mp4", pictures(60, seed))
    expected, _ = decoded(path)
    came_out: list[int] = []
    without = Decoder.frames

    def frames(*arguments: Any) -> Any:
        for number, frame in without(*arguments):
            came_out.append(number)
            yield number, frame

    monkeypatch.setattr(Decoder, "frames", frames)
    files = VideoFiles([path], threads=2)
    rng = np.random.default_rng(seed)
    for count in (1, 1, 1, 2, 5):
        wanted = rng.integers(0, 60, count)
        np.testing.assert_array_equal(read(files, 0, wanted), expected[wanted], err_msg=f"seed {seed}, {wanted}")
    came_out.clear()
    np.testing.assert_array_equal(read(files, 0, [14])[0], expected[14], err_msg=f"seed {seed}")
    skipping = len(came_out)
    came_out.clear()
    np.testing.assert_array_equal(read(VideoFiles([path], cache_bytes=1 << 20), 0, [14])[0], expected[14])
    assert skipping < len(came_out)  # with a cache, frames on the way are kept


def test_frames_that_skipping_lost_are_decoded_again(videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    without = Decoder.frames

    def frames(self: Decoder, packets: Any, palette: bytes = b"", wanted: Any = None) -> Any:
        yield from () if wanted is not None else without(self, packets, palette)

    monkeypatch.setattr(Decoder, "frames", frames)
    expected, _ = decoded(videos["h264_long.mp4"])
    np.testing.assert_array_equal(read(VideoFiles([videos["h264_long.mp4"]]), 0, [30, 2]), expected[[30, 2]])


FAULTS = """
import resource, sys
import numpy as np
from penstock.containers.video import VideoFiles
files, frames = VideoFiles(sys.argv[1:], threads=0), np.arange(24)
out = np.zeros((24, 480, 640, 3), np.uint8)
faults = []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    files.read(0, frames, frames, out)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of other systems has other rules")
def test_the_memory_of_converted_frames_is_used_again(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "film.mp4", 30, codec="libx264") as writer:
        for i in range(24):
            writer.append(np.full((480, 640, 3), 10 * i, np.uint8))
    command = [sys.executable, "-c", FAULTS, str(tmp_path / "film.mp4")]
    assert int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) < 24
