"""The page of a dataset in notebooks: what it says, on files of other tools."""

from __future__ import annotations

import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.data.dataset_facts import histogram_of
from penstock.errors import DamageWarning
from tests.packages import of_installed

GOLDEN = Path(__file__).parents[1] / "golden"


def shown(path: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        data = penstock.open(GOLDEN / path)
    page = data.show(penstock.check(data).findings)._repr_html_()
    parser = HTMLParser()
    parser.feed(page)
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!data:image/png)', page)
    return page


def test_a_robot_dataset_has_texts_and_pictures() -> None:
    page = shown("lerobot/v3_video")
    assert "4 episodes, 109 steps" in page
    assert "pick the cube" in page
    assert page.count("<img") == 8  # first and last of four episodes
    assert "return: sum of the rewards" in page
    assert "observations/effort[1, 2]" in page


@pytest.mark.parametrize("format", of_installed(["waymo"]))
def test_what_is_left_out_is_said_once(format: str) -> None:
    page = shown(f"driving/{format}")
    assert page.count("frames without a pose of the ego") == 1
    assert "&lt;U16" in page  # a column without figures


@pytest.mark.parametrize("seed", [0, 3])
def test_edges_of_histograms_are_short_and_hold_all_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    for scale in (1e-200, 1e-3, 1.0, 7e5, 1e200):
        values = random.normal(size=500) * scale
        edges, counts = histogram_of(values)
        assert counts.sum() == 500
        assert len(counts) <= 34
        assert max(len(f"{edge:.6g}") for edge in edges) <= max(len(f"{edge:.12g}") for edge in edges) <= 12
    whole = random.integers(-5, 400, 300)
    edges, counts = histogram_of(whole)
    assert (edges == np.rint(edges)).all()
    np.testing.assert_array_equal(counts, np.histogram(whole, edges)[0])
    assert histogram_of(np.full(4, np.nan)).counts.tolist() == []
