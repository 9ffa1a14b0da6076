"""MineRL's streams: arrays, videos, and what is missing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError, MissingExtraError, UnsafeDataError
from penstock.formats.base.source import Source
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from penstock_imitation.formats.native import FORMAT
from penstock_imitation.formats.native.minerl import MineRLKind, read_minerl
from tests.cli.conftest import Call, call

__all__ = ["call"]

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "native" / "minecraft" / "MineRLNavigateVectorObf-v0"
STREAM = GOLDEN / "v3_synth_stream-00"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))


def frames_of(path: Path) -> np.ndarray[Any, Any]:
    """`[n, H, W, 3]` all frames of a video."""
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def film(path: Path, frames: Sequence[np.ndarray[Any, Any]]) -> None:
    import av

    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=20)
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))


def stream(path: Path, steps: int, seed: int = 0, *, total: int | None = None, **changed: Any) -> Path:
    path.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        "reward": rng.normal(size=steps).astype(np.float32),
        "action$vector": rng.normal(size=(steps, 4)).astype(np.float32),
        "observation$vector": rng.normal(size=(steps + 1, 4)).astype(np.float32),
    } | changed
    np.savez_compressed(path / "rendered.npz", **{name: a for name, a in arrays.items() if a is not None})
    told = {"success": True, "true_video_frame_count": steps + 1 if total is None else total}
    (path / "metadata.json").write_text(json.dumps(told))
    return path


def test_the_originals_streams() -> None:
    """Different from the original's loader: the last frame is the video's own, and several streams repeat no rows."""
    source = penstock.open(GOLDEN).source
    assert list(source.spec) == [
        "observations/pov", "observations/vector", "actions/vector", "rewards", "terminations", "truncations",
    ]  # fmt: skip
    assert source.spec["observations/pov"] == Field(np.dtype("u1"), (3, 64, 64), "boundary")
    assert np.diff(source.offsets).tolist() == [8, 5]
    assert source.metadata["env_name"] == "MineRLNavigateVectorObf-v0"
    for episode, folder in zip(source.episodes(), sorted(GOLDEN.iterdir()), strict=True):
        told = json.loads((folder / "metadata.json").read_text())
        with np.load(folder / "rendered.npz") as arrays:
            stored = dict(arrays)
        np.testing.assert_array_equal(episode.actions["vector"], stored["action$vector"])
        np.testing.assert_array_equal(episode.observations["vector"], stored["observation$vector"])
        np.testing.assert_array_equal(episode.rewards, stored["reward"])
        frames = frames_of(folder / "recording.mp4")
        skip = told["true_video_frame_count"] - len(episode) - 1
        assert skip == 3
        np.testing.assert_array_equal(episode.observations["pov"], frames[skip:].transpose(0, 3, 1, 2))
        assert episode.terminations.tolist() == [False] * (len(episode) - 1) + [True]
        assert episode.metadata == {"stream": folder.name, **told}


def test_one_stream_and_rows_at_random() -> None:
    with read_minerl(STREAM) as source, read_minerl(GOLDEN, cache_bytes=1) as both:
        assert np.diff(source.offsets).tolist() == [8]
        pov = source.episode(0).observations["pov"]
        data = penstock.EpisodeDataset(both)
        order = data.steps().shuffle(seed=1)
        batch = order[:]["observations/pov"]
        assert len(batch) == 13
        whole = np.concatenate([episode.observations["pov"][:-1] for episode in both.episodes()])
        found = {frame.tobytes() for frame in batch}
        assert found == {frame.tobytes() for frame in whole}
        np.testing.assert_array_equal(both.episode(0).observations["pov"], pov)


def test_colours_are_in_the_order_red_green_blue(tmp_path: Path) -> None:
    path = stream(tmp_path / "s", 3)
    red = np.zeros((32, 48, 3), np.uint8)
    red[..., 0] = 250
    film(path / "recording.mp4", [red] * 4)
    with read_minerl(path) as source:
        pov = source.episode(0).observations["pov"]
        assert pov.shape == (4, 3, 32, 48)
        assert pov[:, 0].min() > 200
        assert pov[:, 1:].max() < 50


def test_a_missing_last_frame_is_the_one_before(tmp_path: Path) -> None:
    path = stream(tmp_path / "s", 3, total=6)
    gray = [np.full((32, 32, 3), 40 * i, np.uint8) for i in range(5)]  # two before the recording, and three
    film(path / "recording.mp4", gray)
    with read_minerl(path) as source:
        level = source.episode(0).observations["pov"].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(level, [80, 120, 160, 160], atol=6)
    film(path / "recording.mp4", gray[:4])
    with read_minerl(path) as source, pytest.raises(FormatError, match="expected 6 frames"):
        source.episode(0)
    findings = penstock.check(path, deep=True).findings
    assert [(each.name, each.episodes) for each in findings if each.level == "error"] == [("unreadable", (0,))]


def test_without_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"penstock\[video\]"):
        read_minerl(GOLDEN)
    source = penstock.open(GOLDEN, format="native", video=False).source
    assert "observations/pov" not in source.spec
    assert source.steps == 13


def test_natural_order_and_further_arrays(tmp_path: Path) -> None:
    words = np.array(["none", "plank"])
    for number, steps in ((10, 3), (9, 2)):
        more = {"action$camera": np.zeros((steps, 2)), "observation$a$b": np.zeros(steps + 1), "action$craft": words}
        stream(tmp_path / f"v3_{number}", steps, number, **more)
    (tmp_path / "notes").mkdir()
    with read_minerl(tmp_path, video=False) as source:
        assert np.diff(source.offsets).tolist() == [2, 3]
        assert source.spec["observations/a/b"].align == "boundary"
        assert source.spec["actions/camera"].shape == (2,)
        left_out = [(each.where, each.reason) for each in source.account.left_out]
        reasons = ["unsupported-dtype", "other-file", "skipped"]
        assert left_out == list(zip(["action$craft", "notes", "recording.mp4"], reasons, strict=True))
        assert "env_name" not in source.metadata


@pytest.mark.parametrize(
    "changed",
    [
        {"reward": None},
        {"reward": np.zeros((3, 1))},
        {"reward": np.array(["a"] * 3)},
        {"action$vector": None},
        {"action$vector": np.zeros((2, 4))},
        {"observation$vector": np.zeros((3, 4))},
        {"reward": np.array([None, 1, "x"], object)},
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"rendered\.npz"):
        read_minerl(stream(tmp_path / "s", 3, **changed), video=False)


def test_streams_that_differ_are_refused(tmp_path: Path) -> None:
    stream(tmp_path / "1", 2)
    stream(tmp_path / "2", 2, **{"action$vector": np.zeros((2, 5), np.float32)})
    with pytest.raises(FormatError, match="trajectory 1"):
        read_minerl(tmp_path, video=False)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, '{"true_video_frame_count": "9"}', "{}", "\xff"])
def test_bad_metadata_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(STREAM, path)
    (path / "metadata.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=r"metadata\.json"):
        read_minerl(path)


def test_too_few_frames_and_no_video(tmp_path: Path) -> None:
    path = stream(tmp_path / "s", 3, total=2)
    with pytest.raises(FormatError, match="video=False"):
        read_minerl(path)
    shutil.copy(STREAM / "recording.mp4", path)
    with pytest.raises(FormatError, match="at least 4"):
        read_minerl(path)
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        read_minerl(STREAM, max_bytes=20_000)
    with pytest.raises(FormatError, match="found none"):
        read_minerl(tmp_path / "nothing")


def test_damaged_videos_give_a_value_or_a_format_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(STREAM, path)
    raw = (STREAM / "recording.mp4").read_bytes()
    rng, refused = np.random.default_rng(15), 0
    for i in range(150):
        data = bytearray(raw)
        if i % 3 == 0:
            data = data[: rng.integers(len(data))]
        else:
            data[rng.integers(len(data))] = rng.integers(256)
        (path / "recording.mp4").write_bytes(bytes(data))
        try:
            with read_minerl(path) as source:
                source.episode(0)
        except FormatError:
            refused += 1
    assert 50 <= refused < 150
    # A playlist, with which FFmpeg would read other files, is no mp4.
    (path / "recording.mp4").write_text("#EXTM3U\n#EXTINF:1,\nother.ts\n#EXT-X-ENDLIST\n")
    with pytest.raises(FormatError, match="mp4"):
        read_minerl(path)


def test_damaged_arrays_give_a_value_or_a_format_error(tmp_path: Path) -> None:
    path = stream(tmp_path / "s", 4)
    raw = (path / "rendered.npz").read_bytes()
    rng, refused = np.random.default_rng(16), 0
    for i in range(300):
        data = bytearray(raw)
        if i % 3 == 0:
            data = data[: rng.integers(len(data))]
        else:
            data[rng.integers(len(data))] = rng.integers(256)
        (path / "rendered.npz").write_bytes(bytes(data))
        assert MineRLKind().recognises(path) in (True, False)
        try:
            with read_minerl(path, video=False) as source:
                list(source.episodes())
        except FormatError:
            refused += 1
    assert 100 <= refused < 300


@dataclass(frozen=True, eq=False)
class Streams(Example):
    """Episodes that streams can hold: their last step is terminated."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        return [_ended(episode) for episode in super().episodes(seed)]

    def __repr__(self) -> str:
        return self.name


def _ended(episode: Episode) -> Episode:
    last = np.arange(len(episode)) == len(episode) - 1
    flags = {"terminations": last, "truncations": np.zeros_like(last)}
    return Episode(episode.spec, {**episode.columns, **flags}, episode.id, episode.metadata)


FIELDS = {
    "observations/vector": Field(np.dtype("f4"), (4,), "boundary"),
    "observations/a/b": Field(np.dtype("i2"), (), "boundary"),
    "actions/vector": Field(np.dtype("f4"), (4,)),
    "actions/jump": Field(np.dtype("i8")),
    "rewards": Field(np.dtype("f4")),
    "terminations": Field(np.dtype("?")),
    "truncations": Field(np.dtype("?")),
}


class TestContract(SourceContract):
    examples = (Streams("minerl", Spec(FIELDS), (3, 1, 6, 0, 2)),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        for episode in episodes:
            folder = path / f"stream-{episode.id}"
            folder.mkdir()
            columns: Any = episode.columns
            arrays = {
                "reward": episode.rewards,
                "observation$vector": columns["observations/vector"],
                "observation$a$b": columns["observations/a/b"],
                "action$vector": columns["actions/vector"],
                "action$jump": columns["actions/jump"],
            }
            np.savez(folder / "rendered.npz", **arrays)
            (folder / "metadata.json").write_text(json.dumps(dict(episode.metadata)))
        return FORMAT.open(path, video=False)


def test_the_command_fills_the_cache(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    answer = call("cache", GOLDEN, "--json")
    assert answer.json["columns"] == {"observations/pov": 15 * 3 * 64 * 64}
    stores = sorted(tmp_path.glob("derived/*/store"))
    assert len(stores) == 1
    assert "observations/pov: 184.3 kB" in call("cache", GOLDEN, "--column", "observations/pov").out
    assert "no column has pictures" in call("cache", GOLDEN, "--open", "video=false").out
    data = penstock.open(GOLDEN)
    for episode, other in zip(data.cached(), data, strict=True):
        np.testing.assert_array_equal(episode.observations["pov"], other.observations["pov"])
    assert sorted(tmp_path.glob("derived/*/store")) == stores
