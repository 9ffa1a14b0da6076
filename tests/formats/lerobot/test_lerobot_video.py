"""Rows and their frames in files of several episodes: own frames alone, counts, long episodes, threads."""

# pyright: basic

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.video import VideoWriter
from penstock.core.damage import collected_damage
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.flow import cores, limits
from penstock.formats.lerobot import FORMAT
from penstock.testing.examples import field
from tests.formats.lerobot.files import write_new
from tests.formats.lerobot.test_lerobot_damage import changed

GOLDEN = Path(__file__).parents[2] / "golden" / "lerobot"
FPS = 10
TOP = "observations/images/top"
SPEC = Spec({"actions": field("f4", 2), "timestamp": field("f4"), "episode_index": field("i8")})


def pixel(episode: int, step: Any) -> Any:
    return 60 * episode + 5 * step + 20


def filmed(
    root: Path, rows: list[int], frames: list[int], parts: list[tuple[float, float]] | None = None, behind: int = 0
) -> Path:
    """Episodes in one file of a camera, with other numbers of frames than rows; `parts` are stored times."""
    episodes: list[Episode] = []
    for e, n in enumerate(rows):
        columns = {
            "actions": np.zeros((n, 2), "f4"),
            "timestamp": (np.arange(n) / FPS).astype("f4"),
            "episode_index": np.full(n, e),
        }
        episodes.append(Episode(SPEC, columns, e))
    write_new(root, episodes, each=len(rows))
    camera = {"dtype": "video", "shape": [16, 16, 3], "names": ["height", "width", "channels"]}
    changed(root / "meta/info.json", lambda info: info["features"].update({"observation.images.top": camera}))
    pattern = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    changed(root / "meta/info.json", lambda info: info.update(video_path=pattern))
    folder = root / "videos/observation.images.top/chunk-000"
    folder.mkdir(parents=True)
    with VideoWriter(folder / "file-000.mp4", FPS, codec="libx264rgb", crf=0) as writer:
        for e, n in enumerate([*frames, behind]):
            for t in range(n):
                writer.append(np.full((16, 16, 3), pixel(e, t) % 256, np.uint8))
    edges = np.cumsum([0, *frames]) / FPS
    times = parts or list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    file = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    for name, values in (
        ("chunk_index", [0] * len(rows)),
        ("file_index", [0] * len(rows)),
        ("from_timestamp", [first for first, _ in times]),
        ("to_timestamp", [last for _, last in times]),
    ):
        table = table.append_column(f"videos/observation.images.top/{name}", pa.array(values))
    pq.write_table(table, file)
    return root


def seen(path: Path, **options: Any) -> dict[int, list[int]]:
    """The pixels of each episode that is read, by its index."""
    with collected_damage(), penstock.open(path, **options) as data:
        return {int(episode.columns["episode_index"][0]): episode.columns[TOP][:, 8, 8, 0].tolist() for episode in data}


def own(episode: int, rows: int) -> list[int]:
    return pixel(episode, np.arange(rows)).tolist()


@pytest.mark.parametrize("frames", [[8, 10, 10], [10, 9, 10], [10, 10, 1], [0, 10, 10]])
def test_rows_without_a_frame_of_their_own_episode_are_left_out_or_refused(frames: list[int], tmp_path: Path) -> None:
    root = filmed(tmp_path / "a", [10, 10, 10], frames)
    short = next(e for e in range(3) if frames[e] < 10)
    assert seen(root) == {e: own(e, 10) for e in range(3) if e != short}
    report = penstock.check(root)
    assert not report.sound
    assert [(f.name, f.where) for f in report.findings if f.level == "error"] == [("damaged-part", f"episode {short}")]
    with penstock.open(root, check_videos=False) as data:
        assert len(data) == 3
        rows = np.concatenate([np.arange(e * 10, e * 10 + frames[e]) for e in range(3)])
        pixels = [pixel(e, t) for e in range(3) for t in range(frames[e])]
        assert data.steps()[rows][TOP][:, 8, 8, 0].tolist() == pixels  # the others are sound
        with pytest.raises(FormatError, match=r"expected a frame within .* in its part of the file, up to"):
            data.steps()[short * 10 + 9]
        with pytest.raises(FormatError, match="in its part of the file"):
            data.windows(3)[len(data.windows(3)) - 1 if short == 2 else short * 8 + 7]


def test_a_wide_tolerance_does_not_reach_into_the_next_episode(tmp_path: Path) -> None:
    root = filmed(tmp_path / "a", [10, 10], [9, 10])
    for tolerance in (0.06, 0.11, 1.0):
        with penstock.open(root, check_videos=False, tolerance_s=tolerance) as data:
            if tolerance < 1 / FPS:
                with pytest.raises(FormatError, match="in its part of the file"):
                    data[0].columns[TOP]
            else:
                assert data[0].columns[TOP][:, 8, 8, 0].tolist() == [*own(0, 9), pixel(0, 8)]  # the nearest of its own
            assert data[1].columns[TOP][:, 8, 8, 0].tolist() == own(1, 10)


def test_more_frames_than_rows_are_a_finding(tmp_path: Path) -> None:
    root = filmed(tmp_path / "a", [10, 8, 10], [10, 10, 12], behind=3)
    assert seen(root) == {0: own(0, 10), 1: own(1, 8), 2: own(2, 10)}
    report = penstock.check(root)
    assert report.sound
    assert [(f.name, f.column, f.episodes) for f in report.findings if f.level == "warning"] == [
        ("frame-count", TOP, (1, 2))
    ]
    assert "got 10 frames for 8 rows in episode 1, and 1 other episode" in report.findings[0].message


@pytest.mark.parametrize("shift", [-4e-5, 4e-5, 1e-7])
def test_rounded_ends_lose_no_frame_and_show_no_other(shift: float, tmp_path: Path) -> None:
    root = filmed(tmp_path / "a", [10, 10], [10, 10], [(0.0, 1.0 + shift), (1.0 + shift, 2.0 + shift)])
    assert seen(root) == {0: own(0, 10), 1: own(1, 10)}
    assert penstock.check(root).findings[0].level == "note"


def test_parts_that_overlap_or_are_empty(tmp_path: Path) -> None:
    """Each episode shows the part that its metadata name, and a check says that the parts share frames."""
    root = filmed(tmp_path / "a", [5, 5], [5, 5], [(0.0, 0.5), (0.2, 0.7)])
    assert seen(root)[1] == [*own(0, 5)[2:], *own(1, 2)]
    messages = [f.message for f in penstock.check(root).findings if f.name == "frame-count"]
    assert messages == ["expected frames of one episode, got frames of episode 0 in episode 1"]
    assert seen(filmed(tmp_path / "b", [5, 5], [5, 5], [(0.0, 0.0), (0.5, 1.0)])) == {1: own(1, 5)}


def test_timestamps_that_float32_rounds_have_their_frames(tmp_path: Path) -> None:
    """Behind 2,048 s, a float32 is up to 0.12 ms off, which is more than the tolerance of 0.1 ms."""
    fps, n = 10 / 71, 600  # 4,260 s
    times = np.arange(n) / fps
    off = np.abs(times.astype("f4").astype("f8") - times)
    assert off.max() > 1e-4
    pictures = np.broadcast_to((np.arange(n) % 250).astype(np.uint8)[:, None, None, None], (n, 16, 16, 3))
    data = penstock.from_arrays({TOP: pictures, "actions": np.zeros((n, 1), "f4")}, lengths=[n])
    options = {"fps": fps, "cameras": "video", "codec": "libx264rgb", "crf": 0}
    report = penstock.convert(data, tmp_path / "long", format="lerobot", options=options)
    assert {column.column: column.status for column in report.certificate.columns}[TOP] == "equal"
    assert list(FORMAT.check(tmp_path / "long")) == []


def test_reads_start_no_threads_and_do_not_look_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = penstock.open(GOLDEN / "v3_video").steps().shuffle(seed=0)
    samples[np.arange(16)]  # starts the threads that all reads share
    started: list[str] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread.name) or start(thread))
    monkeypatch.setattr(limits, "free_memory", lambda: pytest.fail("a read looked for free memory"))
    for i in range(10):
        samples[np.arange(16 * i % 100, 16 * i % 100 + 8)]
    assert len(started) < cores()  # those that the first read did not need
