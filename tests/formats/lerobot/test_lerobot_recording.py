"""Recording with cameras as video: frames are encoded while they come in, and a kill loses the open episode alone."""

# pyright: basic

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import spaces
from penstock.containers.video import VideoWriter
from penstock.errors import ArgumentError, DataError, SpecError
from penstock.formats.lerobot import LeRobotTarget
from penstock.formats.lerobot.recording import CameraStream

CAMERA = spaces.Box(np.zeros((16, 32, 3), np.uint8), np.full((16, 32, 3), 255, np.uint8), np.dtype("uint8"))
JOINTS = spaces.Box(np.full(2, -9.0), np.full(2, 9.0), np.dtype("float64"))
SPACES = {"observation_space": spaces.Dict({"a": CAMERA, "b": CAMERA, "state": JOINTS}), "action_space": JOINTS}
LOSSLESS: dict[str, Any] = {"codec": "libx264rgb", "crf": 0}


def observation(seed: int, t: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, t])
    pictures = rng.integers(0, 256, (2, 16, 32, 3), np.uint8)
    return {"a": pictures[0], "b": pictures[1], "state": rng.uniform(-1, 1, 2)}


def record(recorder: penstock.Recorder, seed: int, steps: int) -> None:
    recorder.begin(observation(seed, 0), metadata={"task": f"task {seed}"})
    for t in range(1, steps + 1):
        recorder.step(np.full(2, t, float), observation(seed, t), reward=t)
    recorder.end()


def compare(path: Path, lengths: list[int]) -> None:
    data = penstock.open(path)
    assert [len(episode) for episode in data] == lengths
    for seed, episode in enumerate(data):
        expected = [observation(seed, t) for t in range(len(episode))]
        for name in ("a", "b", "state"):
            np.testing.assert_array_equal(episode.columns[f"observations/{name}"], [each[name] for each in expected])
        assert episode.rewards.tolist() == list(range(1, len(episode) + 1))


def test_cameras_are_encoded_while_they_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    append = CameraStream.append
    monkeypatch.setattr(CameraStream, "append", lambda self, rows: (seen.append(len(rows)), append(self, rows))[1])
    monkeypatch.setattr("penstock.formats.lerobot.writer.encode_cameras", encoded_nothing)
    path = tmp_path / "arm"
    with penstock.Recorder(LeRobotTarget(path, 10, **LOSSLESS), **SPACES) as recorder:
        record(recorder, 0, 3)
        recorder.begin(observation(9, 0))
        recorder.step(np.zeros(2), observation(9, 1))
        recorder.discard()  # its files go too
        record(recorder, 1, 5)
        assert seen == [2] * 9
        compare(path, [3, 5])  # both are saved, although the recording goes on
    with penstock.Recorder(LeRobotTarget(path, 10), **SPACES) as recorder:  # continues, with the codec of its cameras
        record(recorder, 2, 2)
    assert len(penstock.open(path)) == 3
    assert [each.name for each in tmp_path.iterdir() if each.name != "arm"] == []
    assert len(list(path.rglob("*.mp4"))) == 4  # two cameras in two recordings


def encoded_nothing(frames: Any, *_: Any) -> None:
    assert not frames


def test_frames_that_are_not_streamed_are_encoded_when_an_episode_is_saved(tmp_path: Path) -> None:
    target = LeRobotTarget(tmp_path / "arm", 10, **LOSSLESS)
    with penstock.Recorder(target.__call__, **SPACES) as recorder:  # only a function from a Spec to a Writer
        record(recorder, 0, 4)
    compare(tmp_path / "arm", [4])


def test_a_carried_episode_begins_with_the_last_frame(tmp_path: Path) -> None:
    with penstock.Recorder(LeRobotTarget(tmp_path / "arm", 10, **LOSSLESS), **SPACES) as recorder:
        recorder.begin(observation(0, 0))
        recorder.step(np.zeros(2), observation(0, 1))
        recorder.split({"continued": True})
        recorder.step(np.zeros(2), observation(0, 2))
        recorder.step(np.zeros(2), observation(0, 3))
        recorder.end()
    found = [episode.columns["observations/a"] for episode in penstock.open(tmp_path / "arm")]
    np.testing.assert_array_equal(np.concatenate(found), [observation(0, t)["a"] for t in range(3)])


def test_an_episode_that_could_not_be_written_is_encoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "arm"
    with penstock.Recorder(LeRobotTarget(path, 10, **LOSSLESS), **SPACES) as recorder:
        record(recorder, 0, 3)
        full = OSError(28, "no space left on device")
        with monkeypatch.context() as patch:
            patch.setattr(VideoWriter, "close", raising(full))
            with pytest.raises(OSError, match="no space"):
                record(recorder, 1, 2)
        assert recorder.pending == 1
        recorder.flush()
        record(recorder, 2, 2)
    compare(path, [3, 2, 2])


def raising(error: Exception) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arm"
    with penstock.Recorder(LeRobotTarget(path, 10, **LOSSLESS), **SPACES) as recorder:
        record(recorder, 0, 2)
    with penstock.Recorder(LeRobotTarget(path, 10), observation_space=JOINTS, action_space=JOINTS) as recorder:
        recorder.begin(np.zeros(2))
        recorder.step(np.zeros(2), np.zeros(2))
        with pytest.raises(SpecError, match="expected the columns"):
            recorder.end()
    wrong: list[dict[str, Any]] = [{"fps": 20}, {"fps": 10, "codec": "ffv1"}, {"fps": 10, "robot_type": "b"}]
    for options in wrong:
        with pytest.raises(ArgumentError, match="leave it out"):
            LeRobotTarget(path, **options)
    odd = spaces.Box(np.zeros((15, 32, 3), np.uint8), np.full((15, 32, 3), 255, np.uint8), np.dtype("uint8"))
    with penstock.Recorder(LeRobotTarget(tmp_path / "odd", 10), observation_space=odd, action_space=JOINTS) as recorder:
        recorder.begin(np.zeros((15, 32, 3), np.uint8))
        with pytest.raises(DataError, match="even height"):
            recorder.step(np.zeros(2), np.zeros((15, 32, 3), np.uint8))


def test_a_killed_recording_keeps_every_saved_episode(tmp_path: Path) -> None:
    path = tmp_path / "arm"
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_lerobot_recording import LOSSLESS, SPACES, LeRobotTarget, np, observation, penstock, record
        with penstock.Recorder(LeRobotTarget({str(path)!r}, 10, **LOSSLESS), **SPACES) as recorder:
            record(recorder, 0, 3)
            record(recorder, 1, 4)
            recorder.begin(observation(2, 0))
            for t in range(1, 4):
                recorder.step(np.zeros(2), observation(2, t))
            print("open", flush=True)
            sys.stdin.read()
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        os.kill(process.pid, signal.SIGKILL)
    compare(path, [3, 4])
    with penstock.Recorder(LeRobotTarget(path, 10), **SPACES) as recorder:
        record(recorder, 2, 2)
    compare(path, [3, 4, 2])
