"""Recordings of Rerun, read back with Rerun's own reader. Here because rerun-sdk takes half a gigabyte."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image

import penstock
from penstock.errors import ArgumentError
from penstock_studio.viewer.rerun_recording import write_rerun
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"


def columns_of(path: Path) -> Mapping[str, dict[str, list[Any]]]:
    """The values of each column of each entity, in the order of the steps."""
    from rerun.chunk import RrdReader

    entities: dict[str, dict[str, list[Any]]] = {}
    for chunk in RrdReader(path).stream():
        batch = chunk.to_record_batch()
        columns = entities.setdefault(chunk.entity_path, {})
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if pyarrow.types.is_duration(values.type):
                columns.setdefault(name, []).extend((np.asarray(values.cast("int64")) / 1e9).tolist())
            else:
                columns.setdefault(name, []).extend(values.to_pylist())
    return entities


def test_a_robot_episode_has_curves_pictures_and_texts(tmp_path: Path) -> None:
    with penstock.open(GOLDEN / "lerobot" / "v3_video") as data:
        written = write_rerun(data, -3, tmp_path / "a.rrd")
        episode = data[1]
        assert (written.episode, written.left_out) == (1, {})
        assert set(written.columns) == set(data.spec)
        with pytest.raises(FileExistsError):
            write_rerun(data, 0, tmp_path / "a.rrd")
        with pytest.raises(ArgumentError):
            write_rerun(data, 4, tmp_path / "b.rrd")
        assert [each.name for each in tmp_path.iterdir()] == ["a.rrd"]
    read = columns_of(tmp_path / "a.rrd")
    np.testing.assert_array_equal(read["/actions"]["Scalars:scalars"], episode.actions)
    np.testing.assert_array_equal(read["/observations/state"]["Scalars:scalars"], episode.columns["observations/state"])
    assert read["/actions"]["step"] == list(range(40))
    np.testing.assert_allclose(read["/actions"]["time"], np.arange(40) / 10, atol=1e-5)
    top = read["/observations/images/top"]
    assert top["step"] == list(range(40))
    assert set(map(tuple, top["EncodedImage:media_type"])) == {("image/jpeg",)}
    for row in (0, 33, 39):
        picture = np.asarray(Image.open(io.BytesIO(bytes(top["EncodedImage:blob"][row][0]))))
        assert np.abs(picture.astype(int) - episode.columns["observations/images/top"][row]).mean() < 5  # of JPEG
    assert "place it in the box" in str(read)


def test_a_driving_scene_has_boxes_and_lanes(tmp_path: Path) -> None:
    folder = GOLDEN / "l5kit"
    view = {"map": str(folder / "semantic_map.pb"), "meta": str(folder / "meta.json")}
    with penstock.open(folder / "single.zarr") as data:
        written = write_rerun(data, 0, tmp_path / "a.rrd", view=view)
        rows = data.source.agents[:]
        frames = data.source.frames[:]
    assert "agents/centroid" in written.left_out  # as a curve; boxes are drawn
    read = columns_of(tmp_path / "a.rrd")
    agents = read["/scene/agents"]
    centers = np.array([center for each in agents["Boxes3D:centers"] for center in each])
    np.testing.assert_allclose(centers[:, :2] + frames[0]["ego_translation"][:2], rows["centroid"], atol=2e-2)
    halves = np.array([half for each in agents["Boxes3D:half_sizes"] for half in each])
    np.testing.assert_allclose(halves[:, :2] * 2, rows["extent"][:, :2], rtol=1e-5)
    counts = frames["agent_index_interval"][:, 1] - frames["agent_index_interval"][:, 0]
    assert [len(each) for each in agents["Boxes3D:centers"]] == counts.tolist()
    assert agents["time"][10] == pytest.approx(1, abs=0.01)
    assert len(read["/scene/lanes"]["LineStrips3D:strips"][0]) > 100


def test_a_game_of_chess_has_boards(tmp_path: Path, call: Call) -> None:  # noqa: F811
    out = tmp_path / "game.rrd"
    answer = call("export", GOLDEN / "lc0" / "gz", "--episode", 1, "-o", out, "--json")
    assert answer.code == 0
    assert "probabilities" in answer.json["left_out"]
    read = columns_of(out)
    assert read["/board"]["TextDocument:text"][0][0].splitlines()[0] == "r n b q k b n r"
    assert len(read["/board"]["step"]) == 55
    assert call("export", GOLDEN / "lc0" / "gz", "-o", out).code == 2
    assert call("export", GOLDEN / "lc0" / "gz", "-o", tmp_path / "game.mp4").code == 2
