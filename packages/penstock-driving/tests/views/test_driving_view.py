"""Scenes of driving logs on the page of an episode."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import DataError
from penstock_driving.views import VIEW

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"


def test_a_scene_has_the_rows_of_the_log_and_the_lights_of_the_map() -> None:
    folder = GOLDEN / "l5kit"
    with penstock.open(folder / "single.zarr") as data:
        view = VIEW.of(data, map=str(folder / "semantic_map.pb"), meta=str(folder / "meta.json"))
        assert view is not None
        scene, agents = view.contents(0), view.array(0)
        source = data.source
        origin = source.frames[0:1]["ego_translation"][0, :2]
        rows = source.agents[:]
        assert len(agents) == len(rows) == scene["offsets"][-1]
        np.testing.assert_allclose(agents[:, :2] + origin, rows["centroid"], atol=1e-3)
        np.testing.assert_allclose(agents[:, 3:5], rows["extent"][:, :2], rtol=1e-6)
        likely = rows["label_probabilities"].argmax(axis=1)
        assert set(agents[likely == 3][rows["label_probabilities"][likely == 3].max(axis=1) > 0.9][:, 5]) == {0}
        ego = source.frames[:]["ego_translation"][:, :2] - origin
        np.testing.assert_allclose(np.array(scene["ego"])[:, :2], ego, atol=1e-3)
        assert scene["seconds"][0] == 0
        assert all(0 <= lane < len(scene["lanes"]) for lit in scene["lights"] for lane, _ in lit)
        assert {color for lit in scene["lights"] for _, color in lit} <= {0, 1, 2}
        plain = VIEW.of(data)
        assert plain is not None
        assert (plain.contents(0)["lanes"], plain.contents(0)["map"]) == ([], False)
        with pytest.raises(DataError, match="expected map= and meta= together"):
            VIEW.of(data, map="semantic_map.pb")
    assert VIEW.of(penstock.from_arrays({"rewards": [0.0]}, lengths=[1])) is None
