"""Pickles that are no plain data: refused, unless the caller says in so many words that they are trusted."""

from __future__ import annotations

import fractions
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.errors import DataError, UnsafeDataError
from penstock.formats.webdataset import source
from penstock.formats.webdataset.source import ShardSource

HALF = fractions.Fraction(1, 2)


def write(path: Path, values: list[Any], name: str = "x.pkl") -> Path:
    members = [member(f"{i}.{name}", pickle.dumps(value)) for i, value in enumerate(values)]
    path.write_bytes(b"".join(members) + END)
    return path


class Calls:
    """Unpickling it calls `bytearray.fromhex`, which no plain data does."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return bytes.fromhex, ("6162",)


@pytest.mark.parametrize("value", [HALF, {"a": HALF}, Calls()])
def test_the_default_refuses_and_says_how_to_trust(value: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", [value])
    for options in ({}, {"trust": False}):
        with pytest.raises(UnsafeDataError, match=r'a\.tar.*pass trust="pickle"|pass trust="pickle".*a\.tar'):
            penstock.open(path, **options)


def test_no_environment_makes_it_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tar", [HALF])
    for name in ("PENSTOCK_TRUST", "WDS_ALLOW_PICKLE", "TRUST"):
        monkeypatch.setenv(name, "pickle")
    with pytest.raises(UnsafeDataError):
        penstock.open(path)


@pytest.mark.parametrize("trust", [True, "yes", None, "Pickle"])
def test_trust_has_one_name(trust: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'pickle'"):
        penstock.open(write(tmp_path / "a.tar", [1]), trust=trust)


def test_trusted_objects_are_in_samples_and_their_data_in_columns(tmp_path: Path) -> None:
    values = [{"n": i, "half": HALF * i} for i in range(3)]
    with ShardSource(write(tmp_path / "a.tar", values), trust="pickle") as found:
        assert found.episode(2).columns["x.pkl/n"].tolist() == [2]
        assert [entry.where for entry in found.account.left_out] == ["x.pkl/half"]
        assert found.sample(2)["x.pkl"] == values[2]
        again = pickle.loads(pickle.dumps(found))
        assert again.sample(1)["x.pkl"] == values[1]


def test_what_a_trusted_pickle_makes_is_a_column_where_it_fits(tmp_path: Path) -> None:
    class_of_arrays = [np.arange(3) + i for i in range(3)]
    with ShardSource(write(tmp_path / "a.tar", class_of_arrays), trust="pickle") as found:
        assert found.episode(1).columns["x.pkl"].tolist() == [[1, 2, 3]]
    with ShardSource(write(tmp_path / "b.tar", [Calls(), Calls()]), trust="pickle") as found:
        assert found.episode(1).columns["x.pkl"].blobs() == [b"ab"]


def test_an_index_made_by_who_trusts_does_not_serve_who_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WORTH", 1)
    path = write(tmp_path / "a.tar", [Calls(), Calls()])
    with ShardSource(path, trust="pickle") as found:
        assert found.episode(0).columns["x.pkl"].blobs() == [b"ab"]
    with pytest.raises(UnsafeDataError):
        ShardSource(path)
