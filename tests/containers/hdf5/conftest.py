"""What h5py says about a file, held against what our reader says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from penstock.containers.hdf5 import Dataset, File, Group


def _same_attrs(ours: Any, theirs: h5py.AttributeManager) -> None:
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        found = ours[name]
        assert np.array_equal(found, value), name
        assert type(found) is type(value), name


def _same_dataset(ours: Dataset, theirs: h5py.Dataset) -> None:
    assert (ours.shape, ours.maxshape, ours.chunk_shape) == (theirs.shape, theirs.maxshape, theirs.chunks)
    _same_attrs(ours.attrs, theirs.attrs)
    if ours.kind in ("vlen", "vlen_string"):
        values = np.asarray(theirs[()], object).reshape(-1)
        expected = [v if isinstance(v, bytes) else np.asarray(v).tobytes() for v in values]
        assert ours.read_list() == expected
        return
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours.read(), theirs[()])
    np.testing.assert_array_equal(ours.fill, theirs.fillvalue)
    for start, stop in ((0, 0), (1, 2), (0, len(ours) // 2), (len(ours) // 3, len(ours))) if ours.shape else ():
        if stop <= len(ours) and start <= stop:
            np.testing.assert_array_equal(ours.read(start, stop), theirs[start:stop])


def _same_group(ours: Group, theirs: h5py.Group) -> int:
    assert list(ours) == list(theirs)
    _same_attrs(ours.attrs, theirs.attrs)
    count = 0
    for name in theirs:
        link = theirs.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            assert (ours.links[name].file, ours.links[name].path) == (link.filename, link.path)
            continue
        expected = theirs[name]
        if isinstance(expected, h5py.Datatype):
            continue
        found = ours[name]
        if isinstance(expected, h5py.Group):
            assert isinstance(found, Group)
            count += _same_group(found, expected)
        else:
            assert isinstance(found, Dataset)
            _same_dataset(found, expected)
            count += 1
    return count


def _same(path: Path) -> int:
    with File(path) as ours, h5py.File(path) as theirs:
        return _same_group(ours.root, theirs["/"])


@pytest.fixture
def same_as_h5py() -> Callable[[Path], int]:
    """Compares names, attributes, shapes, types and values of a whole file; the number of datasets."""
    return _same


def _episode(number: int, steps: int = 20) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "observations": rng.random((steps + 1, 4)).astype(np.float32),
        "actions": rng.integers(0, 9, steps),
        "rewards": rng.random(steps),
        "terminations": np.zeros(steps, np.bool_),
        "truncations": rng.random(steps) > 0.5,
    }


@pytest.fixture
def episode() -> Callable[..., dict[str, Any]]:
    """Columns of an episode as Minari stores them."""
    return _episode
