"""Samples as they are stored: whatever was learned of those before, each is what interpreting it makes of it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.containers.pickle import loads
from penstock.containers.tar import END, member, walk
from penstock.errors import FormatError
from penstock.files.mapping import map_file
from penstock.formats.webdataset import source as source_module
from penstock.formats.webdataset.content import grouped
from penstock.formats.webdataset.reading import Archives
from penstock.formats.webdataset.source import ArchiveSamples

RNG = np.random.default_rng(5)
VALUES: list[Any] = [
    *(RNG.integers(0, 255, (3, 4), dtype="u1") for _ in range(3)),
    *(np.asfortranarray(RNG.normal(size=(3, 4))) for _ in range(2)),
    *(RNG.normal(size=(4, 3)) for _ in range(2)),
    *(np.array(x) for x in (1.5, 2.5)),
    *(np.float32(x) for x in (0.5, 0.5, 7)),
    *(np.array([True, x]) for x in (False, True)),
    *(np.bool_(x) for x in (False, True)),
    *("a", "a", "b", b"a", None, True, False, 1, 1, 0, 1.0, 300, 1 << 40, ""),
    *({"a": [1, {}]}, {"a": [1, {}]}, [], (), np.zeros(0), np.array(["go", "on"]), np.bytes_(b"a\0")),
]


def write(path: Path, values: list[Any]) -> ArchiveSamples:
    path.write_bytes(b"".join(member(f"{i:05d}.x.pickle", raw(value)) for i, value in enumerate(values)) + END)
    data = map_file(path)
    return ArchiveSamples(Archives([path], [data], grouped(walk(data, path), 0, path)))


def raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) and value.startswith(b"\x80") else pickle.dumps(value, protocol=4)


def same(found: Any, value: Any) -> None:
    assert type(found) is type(value)
    if isinstance(value, np.ndarray | np.generic):
        assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes())
    else:
        assert found == value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tries", [0, 1, 16])
def test_values_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, tries: int) -> None:
    monkeypatch.setattr(source_module, "TEMPLATES", tries)
    source = write(tmp_path / "a.tar", VALUES)
    for i in np.random.default_rng(seed).permutation(np.repeat(np.arange(len(VALUES)), 2)).tolist():
        found = source.sample(i)
        assert found["__key__"] == f"{i:05d}"
        same(found["x.pickle"], loads(raw(VALUES[i])))


def test_members_that_are_alike_are_interpreted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    values: list[Any] = [RNG.integers(0, 9, 100) for _ in range(20)] + [3] * 20
    real = source_module.decoder

    def counting(extension: str, how: Any) -> Any:
        decode = real(extension, how)
        assert decode is not None
        return lambda one: decoded.append(one.where) or decode(one)

    monkeypatch.setattr(source_module, "decoder", counting)
    source = write(tmp_path / "a.tar", values)
    for i in range(40):
        same(source.sample(i)["x.pickle"], values[i])
    assert len(decoded) == 2


def test_what_nobody_could_change_is_shared_and_nothing_else_is(tmp_path: Path) -> None:
    source = write(tmp_path / "a.tar", [{"a": [1]}, {"a": [1]}, RNG.normal(size=4)])
    source.sample(0)["x.pickle"]["a"].append(2)
    assert source.sample(1)["x.pickle"] == source.sample(0)["x.pickle"] == {"a": [1]}
    for _ in range(2):
        assert not source.sample(2)["x.pickle"].flags.writeable


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    wrong = pickle.dumps(np.array([True, True]), protocol=4).replace(b"C\x02\1\1", b"C\x02\1\2")
    source = write(tmp_path / "a.tar", [np.array([True, False]), wrong, b"\x80\x04\x95"])
    same(source.sample(0)["x.pickle"], np.array([True, False]))
    for i in (1, 2):
        with pytest.raises(FormatError, match=rf"member '0000{i}\.x\.pickle' at byte \d+ in .*a\.tar"):
            source.sample(i)
    with pytest.raises(IndexError, match="0:3"):
        source.sample(3)
