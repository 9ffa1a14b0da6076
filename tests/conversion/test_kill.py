"""A conversion that is killed at any of its calls of the system goes on, and ends as if it had not been."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conversion.conftest import Make, same
from tests.conversion.killed import Conversions


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("columns", {}),
        ("webdataset", {"shard_episodes": 2, "compression": "gzip"}),
        ("webdataset", {"layout": "seed", "shard_episodes": 2}),
        ("minari", {}),
        ("minari", {"data_format": "arrow"}),
    ],
)
def test_killed_anywhere(
    make: Make, conversions: Conversions, tmp_path: Path, format: str, options: dict[str, Any]
) -> None:
    source = tmp_path / "source"
    penstock.convert(make(), source)
    rng = random.Random(repr((format, options)))
    calls = conversions.convert(source, tmp_path / "whole", format, options)
    assert calls > 10
    out = tmp_path / "out"
    assert 0 in [conversions.convert(source, out, format, options, rng.randrange(1, calls + 1)) for _ in range(2)]
    report = penstock.convert(tmp_path / "source", out, format=format, options=options)
    assert report.episodes == 6
    assert list(tmp_path.rglob("*.penstock")) == []
    with penstock.open(tmp_path / "source") as source, penstock.open(out) as killed:
        same(source, killed)
    if format == "webdataset":
        names = sorted(p.name for p in (tmp_path / "whole").glob("shard-*"))
        assert sorted(p.name for p in out.glob("shard-*")) == names
        assert [(out / n).read_bytes() for n in names] == [(tmp_path / "whole" / n).read_bytes() for n in names]


def test_folders_that_killed_conversions_left_are_swept_at_the_next_start(
    make: Make, conversions: Conversions, tmp_path: Path
) -> None:
    penstock.convert(make(), tmp_path / "source", certificate=False)
    out = tmp_path / "out"
    for at in (3, 4):
        assert conversions.convert(tmp_path / "source", out, "columns", {}, at) == 0
        assert len(list(tmp_path.iterdir())) == 2  # the one before was swept
    penstock.convert(tmp_path / "source", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.certificate.json", "source"]


def test_files_that_a_killed_conversion_left_are_swept_where_nothing_remains_to_be_written(
    make: Make, tmp_path: Path
) -> None:
    penstock.convert(make(), tmp_path / "source")
    penstock.convert(tmp_path / "source", tmp_path / "out", format="minari")
    left = tmp_path / "out" / "data" / ".metadata.json.0123456789ab.penstock"
    left.write_bytes(b"{}")
    assert penstock.convert(tmp_path / "source", tmp_path / "out", format="minari").status == "complete"
    assert not left.exists()
