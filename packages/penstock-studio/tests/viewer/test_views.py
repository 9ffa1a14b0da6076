"""Views of domains: offered by entry points, drawn on the page, refused with a message."""

# pyright: basic

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.spec import Field
from penstock.errors import ArgumentError, DataError
from penstock_studio import views
from penstock_studio.viewer.episode_contents import EpisodeContents
from penstock_studio.viewer.server import ViewerServer
from viewer.conftest import serving
from viewer.test_server import ask


class Doubled:
    """Draws rewards twice as large, `by` how much as an option."""

    rate = 25.0

    def __init__(self, data, by: str) -> None:
        self.data, self.by = data, float(by)

    def contents(self, number: int):
        return {"episode": number, "by": self.by}

    def array(self, number: int):
        return self.by * np.asarray(self.data[number].rewards, np.float32)

    def is_curve(self, field: Field) -> bool:
        return field.dtype.kind == "f"

    def record(self, recording, number: int) -> None:
        raise NotImplementedError


class DoubledViews:
    name = "doubled"
    options = ("by",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, data, **options: str):
        return Doubled(data, options.get("by", "2")) if data.metadata.get("doubled") else None


class Point:
    name, value = "doubled", "stranger.views:VIEW"

    def __init__(self, kind) -> None:
        self.kind = kind

    def load(self):
        if self.kind is None:
            raise ImportError("no module named stranger")
        return self.kind


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Point]]:
    """The entry points of the group."""
    points: list[Point] = []
    real = importlib.metadata.entry_points

    def entry_points(**asked):
        return points if asked == {"group": "penstock.views"} else real(**asked)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    views.view_kinds.cache_clear()
    yield points
    views.view_kinds.cache_clear()


def recorded(path: Path, **metadata: object) -> Path:
    columns = {"rewards": np.arange(4.0), "actions": np.arange(4)}
    penstock.convert(penstock.from_arrays(columns, lengths=[1, 3], metadata=metadata), path)
    return path


def test_a_view_of_another_distribution_draws(tmp_path: Path, offered: list[Point]) -> None:
    (tmp_path / "view.js").write_text("export const panel = 0;")
    (tmp_path / "view.py").write_text("secret")
    offered.append(Point(DoubledViews(tmp_path)))
    data = recorded(tmp_path / "data", doubled=True)
    with serving(data, recorded(tmp_path / "other"), view={"by": "3"}) as server:
        about = json.loads(ask(server, "/api/data/episode/1")[2])
        assert (about["view"], about["rate"], about["curves"]) == ("doubled", 25.0, ["rewards"])
        assert json.loads(ask(server, "/api/data/view/1")[2]) == {"episode": 1, "by": 3.0}
        status, headers, body = ask(server, "/api/data/view/1/array")
        assert (status, headers["X-Shape"]) == (200, "3")
        np.testing.assert_array_equal(np.frombuffer(body, "<f4"), 3 * np.arange(1.0, 4.0))
        status, headers, body = ask(server, "/views/doubled/view.js")
        assert (status, body) == (200, b"export const panel = 0;")
        assert headers["Content-Type"].startswith("text/javascript")
        for path in ("doubled/view.py", "doubled/..%2Fview.js", "other/view.js"):
            assert ask(server, f"/views/{path}")[0] == 404, path
        assert json.loads(ask(server, "/api/other/episode/1")[2])["view"] == ""
        assert ask(server, "/api/other/view/1")[0] == ask(server, "/api/other/view/1/array")[0] == 400


def test_unknown_options_and_broken_views_are_errors(tmp_path: Path, offered: list[Point]) -> None:
    offered.append(Point(DoubledViews(tmp_path)))
    with pytest.raises(ArgumentError, match="expected options of views among \\['by'\\], got 'bye'; did you mean 'by'"):
        views.check_options({"bye": "3"}, ["doubled"])
    other = recorded(tmp_path / "other")
    with pytest.raises(ArgumentError, match="expected data of the view 'doubled' for its option 'by', got none"):
        ViewerServer([str(other)], view={"by": "3"})
    views.view_kinds.cache_clear()
    offered[:] = [Point(None)]
    with pytest.raises(DataError, match=r"the view 'doubled' \(stranger.views:VIEW\) cannot be imported: no module"):
        EpisodeContents(penstock.open(recorded(tmp_path / "data")))
