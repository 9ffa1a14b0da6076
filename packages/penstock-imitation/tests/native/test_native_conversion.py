"""Demonstrations of every benchmark go through shards to Minari."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conversion.conftest import same

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "native"
NATIVE: list[tuple[str, dict[str, Any]]] = [
    ("atari/pong_synth.npz", {}),
    ("dm_control/reacher-easy-synth.pkl.gz", {"frame_stack": 2}),
    ("magical/move-to-region", {"preprocessor": "LoResCHW4E"}),
]


@pytest.mark.parametrize(("name", "options"), NATIVE)
def test_native_demonstrations_to_shards_to_minari(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    with penstock.open(GOLDEN / name, **options) as native:
        penstock.convert(native, tmp_path / "shards", format="webdataset", options={"layout": "seed"})
        penstock.convert(tmp_path / "shards", tmp_path / "minari", format="minari", fill_missing=True)
        with penstock.open(tmp_path / "minari") as minari:
            assert minari.spec.observation_space == native.spec.observation_space
            same(native, minari, [path for path in native.spec if not path.startswith("infos")])
