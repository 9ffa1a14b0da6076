"""Pictures of episodes in notebooks."""

# pyright: basic

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np

import penstock


def test_frames_and_curves_are_shown_and_missing_values_marked():
    random = np.random.default_rng(0)
    state = random.normal(size=(1000, 12)).astype("f4")
    state[500:510, 3] = np.nan
    columns = {
        "camera": random.integers(0, 255, (1000, 16, 24, 3), np.uint8),
        "state": state,
        "done": np.zeros(1000, np.bool_),
        "goal": np.ones((1, 3)),
        "<b>": np.arange(1000),
    }
    spec = penstock.Spec({name: penstock.Field(a.dtype, a.shape[1:]) for name, a in columns.items() if name != "goal"})
    fields = {**spec.fields, "goal": penstock.Field(np.dtype("f8"), (3,), align="episode")}
    picture = penstock.Episode(penstock.Spec(fields), columns, 7, {"task": "<i>pour</i>"}).show()
    assert picture.cameras == ("camera",)
    assert set(picture.curves) == {"state", "done", "<b>"}
    page = picture._repr_html_()
    assert page.count("data:image/png") == 8
    assert "the first 8 of 12" in page
    assert "&lt;i&gt;pour" in page
    assert "<b>:" not in page
    drawings = re.findall("<svg.*?</svg>", page)
    assert len(drawings) == 3
    for drawing in drawings:
        ET.fromstring(drawing)
    assert [drawing.count('fill="#e5812e"') for drawing in drawings] == [1, 0, 0]
    assert len(page) < 300_000


def test_an_episode_without_numbers():
    episode = penstock.from_records([{"text": "a"}, {"text": "b"}])[0]
    assert repr(episode.show()) == "Picture of episode 0, 1 step: no numbers"
    assert "<svg" not in episode.show()._repr_html_()


def test_what_cannot_be_drawn_is_a_sentence_or_a_line():
    """Episodes without steps, columns without numbers, and values whose differences overflow."""
    values = {
        "none": np.array([np.nan, np.inf]),
        "far": np.array([1.7e308, -1.7e308]),
        "near": np.array([1.0, np.nextafter(1, 2)]),
        "large": np.array([2**64 - 1, 0], np.uint64),
        "equal": np.full(2, 1.7e308),
        "empty": np.zeros((2, 0)),
    }
    for steps in (2, 0):
        episode = penstock.from_arrays({name: array[:steps] for name, array in values.items()}, lengths=[steps])[0]
        page = episode.show()._repr_html_()
        drawings = re.findall("<svg.*?</svg>", page)
        assert len(drawings) == len(values)
        said = [name for name, drawing in zip(values, drawings, strict=True) if "no values" in drawing]
        assert said == (["none", "empty"] if steps else list(values))
        for drawing in drawings:
            ET.fromstring(drawing)
            assert re.search(r"\b(nan|inf)\b", drawing) is None


def test_actions_without_values_between_are_steps() -> None:
    values = {"actions": np.array([0, 2, 2, 1]), "torques": np.array([0.0, 2.0, 2.0, 1.0])}
    page = penstock.from_arrays(values, lengths=[4])[0].show()._repr_html_()
    paths = [re.findall(r'd="M([^"]*)"[^>]*stroke="#', drawing) for drawing in re.findall("<svg.*?</svg>", page)]
    places = [[tuple(map(float, point.split())) for point in path.split("L")] for (path,) in paths]
    stepped, sloped = places
    assert all(x == other or y == height for (x, y), (other, height) in pairwise(stepped))
    assert set(sloped) <= set(stepped)
    assert len(sloped) == 4
