"""What a dataset of archives says of itself."""

from __future__ import annotations

from pathlib import Path

from penstock_imitation.il_representations import ILRDataset

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "shards"


def test_a_dataset_names_its_archives_and_what_was_piped(tmp_path: Path) -> None:
    data = ILRDataset([GOLDEN / "A_plain.tar"], cache=tmp_path)
    assert repr(data).startswith(f"ILRDataset(A_plain.tar: {len(data)} frames")
    assert "list" in repr(data.pipe(list))
    assert len(repr(ILRDataset([GOLDEN / "A_plain.tar"] * 9, cache=tmp_path))) < 200
