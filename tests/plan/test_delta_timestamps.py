"""Rows at times around each step, as LeRobot has them, and errors."""

# pyright: basic

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.columns import flatten
from penstock.errors import PlanError
from penstock.formats.lerobot.info import path_of
from penstock.plan.delta_timestamps import PickedView

GOLDEN = Path(__file__).parents[1] / "golden" / "lerobot"
TIMES = {"observation.images.top": [-0.2, -0.1, 0.0], "action": [0.0, 0.1, 0.2, 0.3]}
DATA = penstock.from_arrays(
    {"x": np.arange(10), "y": np.arange(10), "observations": np.arange(12), "goal": np.arange(2)},
    lengths=[4, 6],
    align={"goal": "episode"},
)


def test_items_and_masks_equal_those_of_lerobot() -> None:
    samples = penstock.open(GOLDEN / "v3_image").delta_timestamps(TIMES)
    expected = np.load(GOLDEN / "v3_image_expected.npz")
    for key in expected:
        index, name = key.split("/", 1)
        found = flatten(samples[int(index)])
        if name.endswith("_is_pad"):
            masked = found[path_of(name.removesuffix("_is_pad")) + "_mask"]
            assert np.array_equal(~np.asarray(masked), expected[key].astype(bool))
        else:
            value: Any = found[path_of(name)]
            value = np.moveaxis(value, -1, -3) if ".images." in name else value
            assert np.array_equal(value.astype(expected[key].dtype), expected[key])


def test_even_and_picked_steps() -> None:
    even = DATA.delta_timestamps({"x": [-1.0, 0.0, 1.0]}, fps=2)
    assert [view.steps for view in even.plan.views if len(view.steps) == 3] == [range(-2, 3, 2)]
    assert even[4]["x"].tolist() == [4, 4, 6]
    assert even[9]["x_mask"].tolist() == [True, True, False]
    picked = DATA.delta_timestamps({"x": [1.5, 0.0, 0.0]}, fps=2)
    assert any(isinstance(view, PickedView) for view in picked.plan.views)
    assert picked[:]["x"].tolist()[:3] == [[3, 0, 0], [3, 1, 1], [3, 2, 2]]
    assert picked[:]["x_mask"].tolist()[:2] == [[True] * 3, [False, True, True]]
    assert picked[:]["goal"].tolist() == [0] * 4 + [1] * 6
    assert picked.fingerprint != even.fingerprint
    with pytest.raises(PlanError, match="samples of evenly spaced rows"):
        picked.pack(4)


def test_the_observation_after_the_last_step_is_a_row() -> None:
    found = DATA.delta_timestamps({"observations": [0.5]}, fps=2)[:]
    assert found["observations"].ravel().tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert found["observations_mask"].all()


@pytest.mark.parametrize(
    ("offsets", "options", "message"),
    [
        ({"x": [0.25]}, {"fps": 2}, "expected multiples of 1/2 s within 0.0001 s for 'x', got .0.25."),
        ({"x": []}, {"fps": 2}, "expected seconds for 'x', got"),
        ({"x": [float("nan")]}, {"fps": 2}, "expected seconds for 'x', got"),
        ({"x": [0.0]}, {}, "expected fps="),
        ({"x": [0.0]}, {"fps": 0}, "positive number of steps a second"),
        ({"x": [0.0]}, {"fps": 2, "tolerance": -1}, "tolerance of at least 0"),
        ({"goal": [0.0]}, {"fps": 2}, "a row for each step for the times of 'goal'"),
    ],
)
def test_times_that_do_not_fit(offsets: dict[str, list[float]], options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        DATA.delta_timestamps(offsets, **options)
    assert len(DATA.delta_timestamps({"x": [0.25004]}, fps=4)) == 10


def test_a_column_has_times_once() -> None:
    data = penstock.from_arrays({"a/x": np.arange(3), "a/y": np.arange(3)}, lengths=[3])
    assert data.delta_timestamps({"a": [0.0]}, fps=1)[0]["a"]["y"].tolist() == [0]
    with pytest.raises(PlanError, match="times for each column once, got 'a/x' again below 'a/x'"):
        data.delta_timestamps({"a": [0.0], "a/x": [0.0]}, fps=1)
