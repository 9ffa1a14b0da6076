"""The table of what each format cannot keep: conversions of one dataset with every kind of column make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import Field, Spec
from penstock.conversion.certificate import ColumnCertificate
from penstock.core.spaces import Box, Discrete
from penstock.core.spec import Align, Kind
from penstock.testing.examples import random_episode

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "index.md"
TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "`columns`": ("columns", {}),
    "`minari`, HDF5": ("minari", {}),
    "`minari`, Arrow": ("minari", {"data_format": "arrow"}),
    "`webdataset`": ("webdataset", {}),
    '`webdataset`, `layout="seed"`': ("webdataset", {"layout": "seed"}),
    "`zarr`": ("zarr", {}),
    "`rlds`": ("rlds", {}),
    "`lerobot`": ("lerobot", {"fps": 10}),
}
COLUMNS: dict[str, tuple[str, str, Align, Kind]] = {
    "infos/boundary": ("other columns of T + 1 rows", "f4", "boundary", "array"),
    "extra/episode": ("a row for each episode", "f4", "episode", "array"),
    "infos/name": ("text", "u1", "step", "text"),
    "extra/task": ("text for each episode", "u1", "episode", "text"),
    "infos/ragged": ("rows of varying length", "f4", "step", "ragged"),
    "infos/bytes": ("bytes of varying length", "u1", "step", "ragged"),
    "infos/complex": ("complex numbers", "c8", "step", "array"),
}


def dataset() -> penstock.EpisodeDataset:
    """Two episodes with every kind of column, ended as every format wants it."""
    fields = {
        "observations": Field(np.dtype("f4"), (2,), "boundary"),
        "actions": Field(np.dtype("i8")),
        "rewards": Field(np.dtype("f8")),
        "terminations": Field(np.dtype("?")),
        "truncations": Field(np.dtype("?")),
    }
    others = {path: Field(np.dtype(dtype), (), align, kind) for path, (_, dtype, align, kind) in COLUMNS.items()}
    spec = Spec(fields | others, Box(np.zeros(2, "f4"), np.ones(2, "f4"), np.dtype("f4")), Discrete(2))
    episodes = [random_episode(np.random.default_rng(3), spec, steps, e) for e, steps in enumerate((3, 2))]
    for episode in episodes:
        episode.terminations[:] = np.arange(len(episode)) == len(episode) - 1
        episode.truncations[:] = False
    return penstock.EpisodeDataset(penstock.formats.MemorySource.from_episodes(episodes))


def form_of(column: ColumnCertificate) -> str:
    """What became of a column that was changed."""
    forms = {
        "padded with zeros": "padded to the longest",
        "after the last step is left out": "without the last row",
        "that of the reset is left out": "without the first row",
    }
    found = [form for sign, form in forms.items() if sign in column.change]
    assert found, column
    return " and ".join(found)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table in Markdown, made by conversions."""
    names = {"observations": "observations"} | {path: name for path, (name, *_) in COLUMNS.items()}
    lines = ["| target | left out | changed |", "|---|---|---|"]
    for target, (format, options) in TARGETS.items():
        out = tmp_path_factory.mktemp("out") / "data"
        report = penstock.convert(dataset(), out, format=format, options=options)
        assert report.certificate is not None
        found = [column for column in report.certificate.columns if column.column in names]
        assert {column.column for column in found} == names.keys()
        left_out = [names[column.column] for column in found if column.status == "left out"]
        changed = [f"{names[column.column]}: {form_of(column)}" for column in found if column.status == "changed"]
        assert {column.status for column in found} <= {"equal", "changed", "left out"}
        lines.append(f"| {target} | {'; '.join(left_out) or 'nothing'} | {'; '.join(changed) or 'nothing'} |")
    return "\n".join(lines)


def test_the_page_has_the_table(table: str) -> None:
    assert table in PAGE.read_text("utf-8"), table
