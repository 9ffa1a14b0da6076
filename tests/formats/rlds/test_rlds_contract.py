"""The contracts of sources and writers."""

# pyright: basic

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Writer
from penstock.formats.rlds import FORMAT
from penstock.testing.accounts import AccountContract, Planted
from penstock.testing.examples import EMPTY, EXAMPLES, FLAT, IMAGES, NESTED, NUMBERS, RAGGED, TEXT, Example
from penstock.testing.sources import SourceContract
from penstock.testing.writers import WriterContract

REAL = Example(
    "real", Spec({path: f for path, f in NUMBERS.spec.fields.items() if f.dtype.kind != "c"}), NUMBERS.lengths
)
FULL = Example("full", Spec({path: f for path, f in REAL.spec.fields.items() if f.align != "boundary"}), REAL.lengths)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))


class TestRLDSSource(SourceContract):
    examples: ClassVar[Sequence[Example]] = (FLAT, IMAGES, NESTED, REAL, FULL, TEXT, RAGGED, EMPTY)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        with FORMAT.create(path / "data", episodes[0].spec) as writer:
            writer.write_all(episodes)
        return FORMAT.open(path / "data")


class TestRLDSWriter(WriterContract):
    examples: ClassVar[Sequence[Example]] = (IMAGES, REAL, FULL, RAGGED)

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> Writer:
        return FORMAT.create(path, spec, metadata)

    def append(self, path: Path) -> Writer:
        return FORMAT.append(path)

    def open(self, path: Path) -> Source:
        return FORMAT.open(path)


def test_the_examples_are_all_but_complex_numbers() -> None:
    assert {e.name for e in EXAMPLES} == {e.name for e in TestRLDSSource.examples} - {"real", "full"} | {"numbers"}


def _writing(path: Path, columns: dict[str, Any]) -> None:
    """Features of a dataset as another writer has them: without our own file."""
    features = json.loads((path / "features.json").read_text())
    steps = features["featuresDict"]["features"]["steps"]["sequence"]["feature"]["featuresDict"]["features"]
    steps |= columns
    (path / "features.json").write_text(json.dumps(features))


def _views(path: Path) -> None:
    image = {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}}
    name = "tensorflow_datasets.core.features.sequence_feature.Sequence"
    _writing(path, {"views": {"pythonClassName": name, "sequence": {"length": "-1", "feature": image}}})


def _cut(path: Path, size: int) -> None:
    raw = next(path.glob("*train*")).read_bytes()
    next(path.glob("*train*")).write_bytes(raw[:size])


class TestAccount(AccountContract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "file": Planted(lambda path: (path / "more.bin").touch(), "other-file", "more.bin"),
        "column": Planted(_views, "unsupported-dtype", "steps/views"),
        "tail": Planted(lambda path: append(path, b"another shard, of sixteen bytes or more"), "damaged-part", "train"),
        "bad first file": Planted(lambda path: _cut(path, 0), "damaged-part", "train"),
    }
    absent: ClassVar[Mapping[Any, str]] = {
        "array": "a feature is a column",
        "member": "a record is an episode",
        "unfinished": "an episode is saved when its record is; a conversion has its mark in the target",
    }

    def write(self, path: Path) -> Path:
        with FORMAT.create(path / "data", FLAT.spec) as writer:
            writer.write_all(FLAT.episodes())
        return path / "data"

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


def append(path: Path, raw: bytes) -> None:
    with next(path.glob("*train*")).open("ab") as file:
        file.write(raw)
