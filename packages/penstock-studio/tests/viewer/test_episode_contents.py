"""What the page of an episode draws: curves and pictures."""

# pyright: basic

from __future__ import annotations

import io
import struct
import threading
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.core.spaces import Box
from penstock.errors import ArgumentError
from penstock_studio.viewer.episode_contents import NOT_FINITE, OUTSIDE, EpisodeContents
from tests.doctor.test_planted import PLANTS, clean, source_of


@pytest.fixture
def contents() -> EpisodeContents:
    return EpisodeContents(penstock.EpisodeDataset(source_of(PLANTS["nan"][0](clean()))))


def test_curves_are_whole_or_show_extremes(contents: EpisodeContents) -> None:
    state, flags = contents.series(1, "observations/state")
    assert state.shape == (91, 2, 3)
    assert np.isnan(state[7, 0, 1])
    assert np.flatnonzero(flags).tolist() == [7]
    np.testing.assert_array_equal(state[:, 0], state[:, 1])
    part, _ = contents.series(0, "actions", first=10, last=20)
    whole, _ = contents.series(0, "actions")
    np.testing.assert_array_equal(part[:, 0], whole[10:20, 0])
    few, flags = contents.series(1, "observations/state", points=7)
    assert few.shape == (7, 2, 3)
    assert np.isfinite(few).all()  # a point shows the numbers that there are
    assert flags.tolist() == [NOT_FINITE, 0, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(few[:, 0].min(0), np.nanmin(state[:, 0], axis=0))
    np.testing.assert_array_equal(few[:, 1].max(0), np.nanmax(state[:, 1], axis=0))
    for e, column in ((0, "observations/camera"), (0, "reward"), (5, "actions")):
        with pytest.raises(ArgumentError):
            contents.series(e, column)


def test_places_outside_a_space_are_marked_in_all_elements() -> None:
    actions = np.zeros((50, 40), np.float32)
    actions[3, 39], actions[9, 0], actions[20, 30] = 2.0, -1.5, np.inf  # also in elements that are not drawn
    spec_of = penstock.from_arrays({"actions": actions}, lengths=[50])
    spec = penstock.Spec(spec_of.spec.fields, None, Box(np.full(40, -1, "f4"), np.full(40, 1, "f4"), np.dtype("f4")))
    source = penstock.formats.MemorySource(spec, {"actions": actions}, np.array([0, 50]))
    values, flags = EpisodeContents(penstock.EpisodeDataset(source)).series(0, "actions")
    assert values.shape == (50, 2, 16)
    assert {int(row): int(flags[row]) for row in np.flatnonzero(flags)} == {3: OUTSIDE, 9: OUTSIDE, 20: NOT_FINITE}


def test_an_episode_without_steps_has_empty_curves() -> None:
    columns = {"rewards": np.zeros(2), "observations": np.zeros((4, 3)), "camera": np.zeros((2, 9, 9, 3), np.uint8)}
    contents = EpisodeContents(penstock.from_arrays(columns, lengths=[0, 2]))
    assert contents.series(0, "rewards")[0].shape == (0, 2, 1)
    assert contents.series(0, "observations")[0].shape == (1, 2, 3)
    assert contents.cameras_of(0) == [
        {"path": "camera", "rows": 0, "size": [9, 9], "chunk": 32, "encoding": "png", "video": False, "depth": None}
    ]
    assert contents.encoded(0, "camera", 0, 0) == []
    with pytest.raises(ArgumentError):
        contents.chunk(0, "camera", 0)


def frames_of(content: bytes) -> list[np.ndarray]:
    (count,) = struct.unpack_from("<I", content)
    sizes = struct.unpack_from(f"<{count}I", content, 4)
    cuts = np.cumsum([4 * (count + 1), *sizes]).tolist()
    assert cuts[-1] == len(content)
    return [np.asarray(Image.open(io.BytesIO(content[a:b]))) for a, b in pairwise(cuts)]


def test_pictures_are_the_frames_alone_and_in_chunks(contents: EpisodeContents) -> None:
    camera = "observations/camera"
    expected = clean()[2][camera]
    found = np.asarray(Image.open(io.BytesIO(contents.picture(2, camera, 5))))
    assert found.shape == expected[5].shape
    np.testing.assert_array_equal(found, expected[5])  # small pictures are PNG
    lossy = np.asarray(Image.open(io.BytesIO(contents.picture(2, camera, 5, "jpeg"))))
    assert 0 < np.abs(lossy.astype(int) - expected[5]).mean() < 60  # noise is the worst case of JPEG
    chunks = [contents.chunk(2, camera, number) for number in range(3)]
    assert [len(frames_of(chunk)) for chunk in chunks] == [32, 32, 12]
    np.testing.assert_array_equal(frames_of(chunks[0])[5], found)
    for name, row in ((camera, 76), (camera, -1), ("observations/state", 0)):
        with pytest.raises(ArgumentError):
            contents.picture(2, name, row)
    for name, number in ((camera, 3), (camera, -1), ("observations/state", 0)):
        with pytest.raises(ArgumentError):
            contents.chunk(2, name, number)


def test_chunks_are_read_once_and_their_memory_is_bounded(contents: EpisodeContents) -> None:
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(contents.chunk(0, "observations/camera", 0))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert contents._chunks.made == 1
    contents._chunks.limit = len(results[0]) + 1
    for e in range(5):
        contents.chunk(e, "observations/camera", 0)
    assert contents._chunks.nbytes <= contents._chunks.limit
