"""Video files that are written from frames."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.containers.video import VideoFiles, VideoWriter, packet_index
from penstock.containers.video.writer import same_priority
from penstock.errors import ArgumentError, DataError, WorkerError
from tests.containers.video.conftest import FRAMES, decoded, encode, pictures


def read(path: Path) -> np.ndarray[Any, Any]:
    files = VideoFiles([path])
    out = np.empty((files.frame_count(0), *files.shape), np.uint8)
    files.read(0, range(len(out)), range(len(out)), out)
    return out


def _append(writer: VideoWriter, *frames: np.ndarray[Any, Any]) -> None:
    for each in frames:
        writer.append(each)


@pytest.mark.parametrize("codec", ["libsvtav1", "libx264", "libx265"])
def test_frames_are_encoded_in_order(codec: str, tmp_path: Path) -> None:
    frames = np.repeat(np.linspace(20, 230, FRAMES).astype(np.uint8), 48 * 64 * 3).reshape(FRAMES, 48, 64, 3)
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    with VideoWriter(tmp_path / "a.mp4", 10, codec=codec, g=5, crf=20, options=options) as writer:
        writer.append(frames[0])
        writer.append(frames[1:])
        assert list(tmp_path.glob("*.mp4")) == []
    assert writer.frames == FRAMES
    np.testing.assert_array_equal(read(tmp_path / "a.mp4"), decoded(tmp_path / "a.mp4")[0])
    assert np.abs(read(tmp_path / "a.mp4").astype(int) - frames).mean() < 3
    index = packet_index(tmp_path / "a.mp4")
    np.testing.assert_allclose(index.seconds, np.arange(FRAMES) / 10)
    assert len(index.keys) >= FRAMES // 5


@pytest.mark.parametrize("fps", [30, 29.97, Fraction(24000, 1001), 0.5])
def test_lossless_frames_and_times(fps: Any, tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.mkv", fps, codec="ffv1") as writer:
        writer.append(pictures(10))
    np.testing.assert_array_equal(read(tmp_path / "a.mkv"), pictures(10))
    seconds = packet_index(tmp_path / "a.mkv").seconds
    np.testing.assert_allclose(seconds, np.arange(10) / float(fps), atol=0.001)


def test_the_callers_memory_is_free_after_append(tmp_path: Path) -> None:
    frame = np.zeros((48, 64, 3), np.uint8)
    with VideoWriter(tmp_path / "a.mkv", 30, codec="ffv1") as writer:
        for i in range(FRAMES):
            frame[:] = i
            writer.append(frame)
    assert read(tmp_path / "a.mkv")[:, 0, 0, 0].tolist() == list(range(FRAMES))


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"old")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        VideoWriter(path, 30)
    with pytest.raises(DataError, match="uint8"), VideoWriter(path, 30, overwrite=True) as writer:
        _append(writer, pictures(3), np.zeros(3))
    assert path.read_bytes() == b"old"
    with VideoWriter(path, 30, codec="libx264", overwrite=True) as writer:
        writer.append(pictures(3))
    assert len(read(path)) == 3
    with VideoWriter(tmp_path / "empty.mp4", 30):
        pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.mp4"]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for name, options in (("a.gif", {}), ("a.mp4", {"codec": "nothing"}), ("a.mp4", {"g": 0}), ("a.mp4", {"fps": 0})):
        with pytest.raises(ArgumentError, match="expected"):
            VideoWriter(tmp_path / name, **{"fps": 30, **options})
    with VideoWriter(tmp_path / "a.mp4", 30, codec="libx264") as writer:
        for wrong in (np.zeros((2, 3)), np.zeros((4, 4, 3)), np.zeros((2, 48, 64, 4), np.uint8)):
            with pytest.raises(DataError, match=r"\[n, height, width, 3\] uint8"):
                writer.append(wrong)
        with pytest.raises(DataError, match="even height and width"):
            writer.append(np.zeros((47, 64, 3), np.uint8))
        writer.append(pictures(2))
        with pytest.raises(DataError, match=r"expected frames of \[48, 64\] pixels, got \[32, 64\]"):
            writer.append(pictures(2)[:, :32])
    with pytest.raises(DataError, match="closed"):
        writer.append(pictures(1))
    for name, options in (("b.webm", {"codec": "libx264"}), ("b.mp4", {"codec": "libx264", "pix_fmt": "nothing"})):
        with (
            pytest.raises(DataError, match="expected frames that libx264 encodes"),
            VideoWriter(tmp_path / name, 30, **options) as writer,
        ):
            writer.append(pictures(2))  # the thread that encodes may fail before or after the second frame
    with pytest.raises(OSError, match="gone"), VideoWriter(tmp_path / "gone" / "b.mp4", 30) as writer:
        writer.append(pictures(2))


def test_a_forked_process_does_not_write(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.mkv", 30, codec="ffv1") as writer:
        writer.append(pictures(1))
        child = os.fork()
        if child == 0:
            try:
                writer.append(pictures(1))
            except WorkerError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert len(read(tmp_path / "a.mkv")) == 1


def test_a_killed_writer_leaves_no_file(tmp_path: Path) -> None:
    script = (
        "import numpy as np, sys\n"
        "from penstock.containers.video import VideoWriter\n"
        "writer = VideoWriter(sys.argv[1], 30, codec='libx264')\n"
        "writer.append(np.zeros((50, 48, 64, 3), np.uint8))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    path = tmp_path / "a.mp4"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    assert not path.exists()
    with VideoWriter(path, 30, codec="libx264") as writer:
        writer.append(pictures(2))
    with subprocess.Popen([*command[:3], str(tmp_path / "b.mp4")], stdin=subprocess.DEVNULL) as process:
        assert process.wait() == 0  # a writer that was forgotten neither hangs nor writes
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mp4"]


def test_an_encoder_leaves_the_priority_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SVT-AV1 makes its threads and its caller real-time ones, where it runs as root."""
    found: list[set[int]] = []

    @contextmanager
    def watched() -> Iterator[None]:
        with same_priority():
            yield
        found.append(policies())

    before = policies()
    monkeypatch.setattr("penstock.containers.video.writer.same_priority", watched)
    with VideoWriter(tmp_path / "a.mp4", 10) as writer:
        writer.append(pictures(3))
    encode(tmp_path / "b.mp4", "av1.mp4", pictures(3))
    assert [*found, policies()] == [before, before]


def policies() -> set[int]:
    """The scheduling of all threads of this process."""
    known: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            known.add(os.sched_getscheduler(int(thread)))
    return known
