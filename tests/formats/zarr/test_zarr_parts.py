"""Buffers of parts have the bytes of a buffer of one run, wherever chunks, parts and episodes end."""

# pyright: basic

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.ragged import Ragged, offsets_of
from penstock.formats.base.format import named
from penstock.formats.base.writer import PartStart
from penstock.formats.zarr import FORMAT
from penstock.formats.zarr.writer import ZarrWriter


def wild_data(seed: str) -> penstock.EpisodeDataset:
    """Episodes without steps, short ones and one that is longer than chunks; nested, ragged and text columns."""
    rng = np.random.default_rng([ord(c) for c in seed])
    lengths = rng.integers(0, 9, 40)
    lengths[[0, 1, 17, 39]] = [0, 0, 300, 0]
    n, episodes = int(lengths.sum()), len(lengths)
    hits, tokens = rng.integers(0, 7, n), rng.integers(0, 5, n + episodes)
    columns: dict[str, Any] = {
        "observations/arm/pose": rng.standard_normal((n + episodes, 3, 2)).astype("f4"),
        "observations/tokens": Ragged(rng.integers(0, 99, int(tokens.sum())), offsets_of(tokens)),
        "actions": rng.integers(0, 4, n),
        "infos/hits": Ragged(rng.standard_normal(int(hits.sum())), offsets_of(hits)),
        "goal": rng.standard_normal((episodes, 2)),
    }
    return penstock.from_arrays(columns, lengths=lengths)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({"chunk_rows": 32}, False),
        ({"zarr_format": 3, "chunk_rows": 64}, True),
        ({"compressor": None, "chunk_rows": 128}, True),
    ],
)
def test_parts_have_the_bytes_of_one_run(options: dict[str, Any], known: bool, tmp_path: Path) -> None:
    data = wild_data(repr(options))
    with ZarrWriter.create(tmp_path / "alone", data.spec, {"a": 1}, **options) as writer:
        writer.write_all(data)
    cuts = sorted(random.Random(repr(options)).sample(range(1, len(data)), 4))
    parts: list[Path] = []
    values = dict.fromkeys(("observations/tokens", "infos/hits"), 0)
    for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
        step = int(data.episodes.length[:first].sum())
        parts.append(tmp_path / "parts" / str(first))
        parts[-1].parent.mkdir(exist_ok=True)
        with ZarrWriter.create(parts[-1], data.spec, {"a": 1}, **options) as writer:
            writer.begin_at(PartStart(first, step, values if known else {}))
            writer.write_all(data[e] for e in range(first, last))
        with named("zarr").open(parts[-1]) as part:
            assert len(part) == last
            for e in range(first, last):
                for name, column in data[e].columns.items():
                    got: Any = part.episode(e).columns[name]
                    kept: Any = column
                    if isinstance(kept, Ragged):
                        assert np.array_equal(got.offsets, kept.offsets)
                        got, kept = got.values, kept.values
                    np.testing.assert_array_equal(got, kept)
        for e in range(first, last):
            for name in values:
                column: Any = data[e].columns[name]
                values[name] += len(column.values)
    FORMAT.join_parts(parts, tmp_path / "out", tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "alone")


def test_a_chunk_that_is_lost_is_an_error(tmp_path: Path) -> None:
    data = wild_data("lost")
    with ZarrWriter.create(tmp_path / "part", data.spec, chunk_rows=16) as writer:
        writer.begin_at(PartStart(0, 0, {}))
        writer.write_all(data)
    (tmp_path / "part/data/action/3").unlink()
    with pytest.raises(penstock.errors.FormatError, match="expected a chunk, got none"):
        FORMAT.join_parts([tmp_path / "part"], tmp_path / "out", tmp_path / "out")
