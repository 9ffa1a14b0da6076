"""Values of ragged columns by their numbers, where writers took turns and files lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.errors import ExpiredRowError, FormatError
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter

SPEC = Spec({"x": Field(np.dtype("f4")), "tokens": Field(np.dtype("<i4"), (), "episode", "ragged")})


def episode(e: int) -> Episode:
    return Episode(SPEC, {"x": np.zeros(2, "f4"), "tokens": Ragged.from_rows([np.arange(e % 4) + 100 * e], "<i4")})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twelve episodes of two writers by turns, so that runs of rows and of values are short."""
    path = tmp_path / "store"
    ColumnsWriter.create(path, SPEC).close()
    with ColumnsWriter(path) as one, ColumnsWriter(path) as other:
        for e in range(12):
            (one if e % 5 < 3 else other).write(episode(e))
    return path


def everything(source: ColumnsSource) -> np.ndarray:
    n = int(source.value_offsets("tokens")[-1])
    zero, out = np.zeros(1, np.int64), np.full(n, -1, "<i4")
    source.read_values("tokens", Selection(zero, zero, zero + n, zero, (1, n)), out)
    return out


def test_values_follow_the_episodes_whatever_the_segment(store: Path) -> None:
    expected = [np.arange(e % 4) + 100 * e for e in range(12)]
    with ColumnsSource(store) as source:
        assert source.value_offsets("tokens").tolist() == offsets_of([len(row) for row in expected]).tolist()
        np.testing.assert_array_equal(everything(source), np.concatenate(expected))
        with pytest.raises(KeyError):
            source.value_offsets("x")
        with ColumnsWriter(store) as writer:
            writer.write(episode(15))
        assert source.refresh()
        np.testing.assert_array_equal(everything(source)[-3:], np.arange(3) + 1500)


def test_an_empty_store_has_no_values(tmp_path: Path) -> None:
    ColumnsWriter.create(tmp_path / "store", SPEC).close()
    with ColumnsSource(tmp_path / "store") as source:
        assert source.value_offsets("tokens").tolist() == [0]
        one = np.ones(1, np.int64)
        with pytest.raises(ExpiredRowError):
            source.read_values("tokens", Selection(one, one, one, one * 0, (1, 1)), np.zeros(1, "<i4"))


@pytest.mark.parametrize("value", [-1, 1 << 40, 7])
def test_offsets_that_lie_are_refused(store: Path, value: int) -> None:
    (file,) = [f for f in sorted(store.rglob("*offsets*")) if f.is_file()][:1]
    raw = np.fromfile(file, "<i8")
    raw[1] = value
    raw.tofile(file)
    with pytest.raises(FormatError, match="expected offsets"):
        everything(ColumnsSource(store))
