"""`penstock film`: pictures and numbers of an episode as one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Call

SHARDS = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "shards"


@pytest.mark.parametrize("arguments", [(), ("--stack", "--every", 9), ("--frames", 3, "--episode", -1)])
def test_film_of_pictures(call: Call, tmp_path: Path, arguments: tuple[object, ...]) -> None:
    told = call("film", SHARDS / "magical-random.tar.zst", "-o", tmp_path / "f.png", *arguments, "--json").json
    with Image.open(tmp_path / "f.png") as page:
        assert page.size == (told["width"], told["height"])
        assert np.asarray(page).std() > 5


def test_film_of_numbers(call: Call, recording: Path, tmp_path: Path) -> None:
    assert "observations" in call("film", recording, "-o", tmp_path / "f.png").out
    assert call("film", recording, "-o", tmp_path / "g.png", "--column", "rewards").code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--episode", 99), "expected an episode within 0:4"),
        (("--column", "nothing"), "expected a column of numbers"),
        (("-o", "film.tape"), "expected the name of a picture"),
    ],
)
def test_film_refuses(call: Call, recording: Path, arguments: tuple[object, ...], complaint: str) -> None:
    answer = call("film", recording, *arguments)
    assert (answer.code, complaint in answer.err) == (2, True)
