"""Data that differ in everything a target may have no place for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core.ragged import Ragged
from penstock.core.spec import Align, Field, Kind, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.formats.memory import MemorySource
from tests.conversion.killed import Conversions

Make = Callable[..., EpisodeDataset]

LENGTHS = (3, 1, 7, 4, 2, 6)


def field(dtype: str, shape: tuple[int, ...] = (), align: Align = "step", kind: Kind = "array") -> Field:
    return Field(np.dtype(dtype), shape, align, kind)


@pytest.fixture(scope="session")
def conversions() -> Generator[Conversions]:
    conversions = Conversions()
    yield conversions
    conversions.close()


@pytest.fixture
def make() -> Make:
    """Episodes of the given columns, and of the standard's that are not named in `without`."""

    def made(
        extra: dict[str, tuple[Field, Any]] | None = None,
        without: tuple[str, ...] = (),
        metadata: dict[Any, Any] | None = None,
        about: list[dict[str, Any]] | None = None,
        seed: int = 0,
        lengths: tuple[int, ...] = LENGTHS,
    ) -> EpisodeDataset:
        rng, steps, n = np.random.default_rng(seed), sum(lengths), len(lengths)
        ends = np.zeros(steps, np.bool_)
        ends[np.cumsum(lengths)[np.array(lengths) > 0] - 1] = True
        columns: dict[str, tuple[Field, Any]] = {
            "observations": (field("f4", (3,), "boundary"), rng.normal(size=(steps + n, 3)).astype("f4")),
            "actions": (field("i8"), rng.integers(0, 9, steps)),
            "rewards": (field("f8"), rng.normal(size=steps)),
            "terminations": (field("?"), ends),
            "truncations": (field("?"), np.zeros(steps, np.bool_)),
        }
        columns = {path: column for path, column in columns.items() if path not in without} | (extra or {})
        spec = Spec({path: column[0] for path, column in columns.items()})
        arrays = {path: column[1] for path, column in columns.items()}
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        held = about if about is not None else [{"seed": e} for e in range(n)]
        return EpisodeDataset(MemorySource(spec, arrays, offsets, metadata or {}, held))

    return made


def rows_of(column: Any) -> list[list[Any]]:
    return [row.tolist() for row in column] if isinstance(column, Ragged) else np.asarray(column).tolist()


def same(one: EpisodeDataset, other: EpisodeDataset, paths: list[str] | None = None) -> None:
    """Both have the same episodes, in the named columns, or in all."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        for path in paths or [*one.spec]:
            assert equal(a.columns[path], b.columns[path]), (path, a.id)


def equal(one: Any, other: Any) -> bool:
    """Whether both columns have the same rows."""
    if isinstance(one, Ragged) or isinstance(other, Ragged):
        return rows_of(one) == rows_of(other)
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes and unpacked archives are kept in a folder of the test."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def golden() -> Path:
    return Path(__file__).parents[1] / "golden"
