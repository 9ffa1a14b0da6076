"""The contracts of sources and writers."""

# pyright: basic

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Writer
from penstock.formats.rlds import FORMAT
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
