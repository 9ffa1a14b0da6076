"""Side files of lengths: nobody else's file is changed, passes over the same data share, damage is mended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.data.lengths import LengthsFile, read_lengths
from penstock.errors import FormatError, LockedError

LENGTHS = np.arange(10).reshape(5, 2)


def test_files_of_others_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    for name, written in (("model", "model"), ("model", "model.partial")):
        path = tmp_path / written
        path.write_bytes(b"weights" * 100)
        with pytest.raises(FormatError, match="begins with b'weights"):
            LengthsFile(tmp_path / name, ["a"], "data")
        assert path.read_bytes() == b"weights" * 100
        path.unlink()


def test_passes_over_the_same_data_share_and_over_others_wait(tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    with LengthsFile(path, ["a", "b"], "data") as one, LengthsFile(path, ["a", "b"], "data") as two:
        one.write(0, LENGTHS[:3])
        two.write(0, LENGTHS)
        with pytest.raises(LockedError, match="in use by a pass over other data"):
            LengthsFile(path, ["a", "b"], "other data")
        one.finish(5)
        two.finish(5)
    assert read_lengths(path)["b"].tolist() == LENGTHS[:, 1].tolist()
    with LengthsFile(path, ["a", "b"], "other data") as other:  # of a killed pass, or finished: replaced
        assert other.rows == 0
        other.write(0, LENGTHS[:1])
    with LengthsFile(path, ["a", "b"], "data again") as again:
        assert again.rows == 0


@pytest.mark.parametrize("size", [0, 10, 90, -1])
def test_damaged_lengths_are_found_once_more(tmp_path: Path, size: int) -> None:
    path = tmp_path / "lengths"

    def write() -> None:
        with LengthsFile(path, ["a", "b"], "data") as file:
            assert not file.finished
            file.write(0, LENGTHS)
            file.finish(5)

    write()
    path.write_bytes(path.read_bytes()[:size])
    write()
    assert read_lengths(path)["a"].tolist() == LENGTHS[:, 0].tolist()
