"""Videos, sound and images as columns: against PyAV and soundfile, in any order, and joined by times."""

# pyright: basic

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from PIL import Image

import penstock
from penstock.containers.video import VideoFiles
from penstock.errors import FormatError
from penstock.formats.mapping.kinds import tree_of


def film(path: Path, frames: int = 60, *, keys: int = 10, seed: int = 0) -> np.ndarray:
    """A film as PyAV writes it, with a key frame in so many; the frames as PyAV reads them one after another."""
    rng = np.random.default_rng(seed)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=20)
        stream.width, stream.height, stream.gop_size, stream.pix_fmt = 32, 16, keys, "yuv420p"
        for i in range(frames):
            pixels = np.full((16, 32, 3), i * 4 % 256, np.uint8) + rng.integers(0, 3, (16, 32, 3)).astype("u1")
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_frames_are_exact_in_any_order_and_one_does_not_decode_the_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = film(tmp_path / "a.mp4")
    decoded: list[int] = []
    original = VideoFiles._packets  # pyright: ignore[reportPrivateUsage]

    def counted(self: Any, *args: Any) -> Any:
        for each in original(self, *args):
            decoded.append(1)
            yield each

    monkeypatch.setattr(VideoFiles, "_packets", counted)
    with penstock.open(tmp_path / "a.mp4", format="mapping", columns={"observations": "frames"}) as data:
        steps = data.windows(1)
        assert np.array_equal(steps[[45]]["observations"][0, 0], frames[45])
        assert 0 < len(decoded) <= 20  # of 60: from a key frame to those that are decoded together
        order = np.random.default_rng(1).permutation(60)
        assert np.array_equal(steps[order]["observations"][:, 0], frames[order])
        assert not data.source.account.left_out
        assert data.source.account.ends == "each file is an episode"


@pytest.mark.parametrize(
    ("ending", "subtype", "dtype"),
    [
        *[("wav", "PCM_16", "i2"), ("wav", "PCM_24", "i4"), ("wav", "FLOAT", "f4"), ("wav", "PCM_U8", "i2")],
        *[("flac", "PCM_16", "i2"), ("flac", "PCM_24", "i4")],
    ],
)
def test_samples_are_those_of_soundfile(subtype: str, dtype: str, ending: str, tmp_path: Path) -> None:
    sound = np.random.default_rng(0).integers(-(2**31), 2**31, (3001, 2)).astype("i4")
    soundfile.write(tmp_path / f"a.{ending}", sound, 8000, subtype=subtype)
    expected, rate = soundfile.read(tmp_path / f"a.{ending}", dtype=np.dtype(dtype).name)
    with penstock.open(tmp_path / f"a.{ending}", format="mapping") as data:
        assert np.array_equal(data[0].columns["samples"], expected)
        assert data.spec["samples"].dtype == dtype
        assert data[0].metadata == {"samplerate": rate}
        assert np.array_equal(data.windows(7)[[1000]]["samples"][0], expected[1000:1007])


def test_a_wav_with_other_chunks_of_odd_sizes_before_the_samples(tmp_path: Path) -> None:
    """24 bits in WAVE_FORMAT_EXTENSIBLE behind a LIST of an odd size, which is filled up: written by hand."""
    numbers = np.array([[1, -1], [0x123456, -0x123456], [2**23 - 1, -(2**23)]])
    raw = b"".join(int(n).to_bytes(3, "little", signed=True) for n in numbers.reshape(-1))
    guid = b"\x01\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    form = struct.pack("<HHIIHHHHI", 0xFFFE, 2, 8000, 48000, 6, 24, 22, 24, 3) + guid
    listed = b"LIST" + struct.pack("<I", 17) + b"INFOISFT" + struct.pack("<I", 5) + b"none\0" + b"\0"
    chunks = listed + b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(raw)) + raw
    (tmp_path / "a.wav").write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    tree = tree_of([tmp_path / "a.wav"])
    assert np.array_equal(tree.read("samples", 0, 3), numbers << 8)
    assert np.array_equal(tree.read("times", 1, 3), [1 / 8000, 2 / 8000])
    (tmp_path / "b.wav").write_bytes(b"RIFF" + b"\0" * 40)
    with pytest.raises(FormatError, match=r"b\.wav"):
        penstock.open(tmp_path / "b.wav", format="mapping")


@pytest.mark.parametrize("seed", range(3))
def test_video_and_sound_are_joined_by_times_as_a_loop_joins_them(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    expected = []
    for run in range(2):
        frames = film(tmp_path / f"camera_{run}.mp4", 40, seed=seed + run)
        sound = rng.integers(-9999, 9999, 8000 * 2).astype("i2")
        soundfile.write(tmp_path / f"sound_{run}.wav", sound, 8000)
        times = np.sort(rng.choice(np.arange(100, 2500), 30, replace=False)) / 1000  # some after the end of the film
        np.savez(tmp_path / f"steps_{run}.npz", t=times, u=np.arange(30))
        rows, clock_ms, samples = [], np.rint(times * 1000).astype(int), np.arange(len(sound)) * 125  # microseconds
        for i, time in enumerate(clock_ms.tolist()):
            after = samples > clock_ms[i - 1] * 1000 if i else samples >= (time - 50) * 1000
            heard, last = sound[after & (samples <= time * 1000)], time // 50
            if (last < 40 or time - 39 * 50 <= 50) and len(heard):
                rows.append((i, frames[min(last, 39)], heard))
        expected.append(rows)
    columns = {
        "actions": "u",
        "observations/camera": {"files": "camera_{run}.mp4"},
        "observations/sound": {"files": "sound_{run}.wav", "rule": "since"},
    }
    clock = {"reference": "actions", "times": "t", "within": 0.05}
    with pytest.warns(penstock.errors.DamageWarning, match="of 60 steps dropped: .*camera has no row near enough"):
        data = penstock.open(tmp_path, format="mapping", files="steps_{run}.npz", columns=columns, clock=clock)
    for episode, rows in zip(data, expected, strict=True):
        assert episode.columns["actions"].tolist() == [i for i, _, _ in rows]
        assert np.array_equal(episode.columns["observations/camera"], [frame for _, frame, _ in rows])
        for heard, (_, _, samples) in zip(episode.columns["observations/sound"], rows, strict=True):
            assert np.array_equal(np.asarray(heard).reshape(-1), samples)


def test_numbers_that_are_missing_among_images_are_counted_or_masked(tmp_path: Path) -> None:
    folder = tmp_path / "run_0" / "cam"
    folder.mkdir(parents=True)
    for i in (0, 1, 2, 4, 5, 9, 10):
        Image.fromarray(np.full((4, 6), i, np.uint8)).save(folder / f"frame_{i}.png")
    for name in ("Thumbs.db", "._frame_3.png", ".DS_Store"):
        (folder / name).write_bytes(b"x")
    np.savez(tmp_path / "run_0" / "steps.npz", frame=np.arange(12), u=np.arange(12) * 10)
    columns = {
        "actions": {"from": "u", "times": {"from": "frame", "unit": "s"}},
        "observations": {"files": "{run}/cam/frame_*.png", "times": {"from": "numbers", "unit": "s"}},
    }
    clock = {"reference": "actions", "within": 0}
    options: Any = {"format": "mapping", "files": "{run}/steps.npz", "columns": columns}
    with pytest.warns(penstock.errors.DamageWarning, match="5 of 12 steps dropped: observations has no row"):
        data = penstock.open(tmp_path, **options, clock=clock)
    assert data[0].columns["actions"].tolist() == [0, 10, 20, 40, 50, 90, 100]
    assert data[0].columns["observations"][:, 0, 0].tolist() == [0, 1, 2, 4, 5, 9, 10]
    assert {entry.reason for entry in data.source.account.left_out if entry.thing == "file"} == {"hidden"}
    with penstock.open(tmp_path, **options, clock={**clock, "outside": "mask"}) as masked:
        assert masked[0].columns["valid/observations"].tolist() == [i in (0, 1, 2, 4, 5, 9, 10) for i in range(12)]
        assert masked[0].columns["observations"][:, 0, 0].tolist() == [0, 1, 2, 0, 4, 5, 0, 0, 0, 9, 10, 0]
    del columns["actions"]["times"], columns["observations"]["times"]
    with pytest.raises(FormatError, match=r"expected 12 rows or .* got 7 in the column 'observations'"):
        penstock.open(tmp_path, **options)


def test_rows_since_the_step_before_are_numbers_in_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", t=[0.0, 1.0], u=[0, 1], s=[0.0, 0.4, 0.2], x=[1, 2, 3])
    columns = {"actions": {"from": "u", "times": "t"}, "x": {"from": "x", "times": "s", "rule": "since"}}
    with pytest.raises(FormatError, match=r"for the rule `since`, got .* 1 row of them out of order"):
        penstock.open(tmp_path, format="mapping", columns=columns, clock={"reference": "actions", "within": 1})
