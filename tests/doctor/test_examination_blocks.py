"""Which episodes a quick check reads, and how the digests of many episodes are compared."""

# pyright: basic

from __future__ import annotations

import errno
import os
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.spec import Field, Spec
from penstock.doctor import examine, measures
from penstock.doctor.examine import Examination
from penstock.errors import FormatError
from penstock.files import arrays
from penstock.formats.memory import MemorySource


@pytest.mark.parametrize("lengths", [[1] * 5000, [50] * 100, [3, 0, 9] * 400, [400] * 3])
def test_a_quick_check_reads_runs_of_episodes_from_the_first_to_the_last(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = penstock.from_arrays({"rewards": np.zeros((sum(lengths), 16))}, lengths=lengths)
    whole = 128 * sum(lengths)
    monkeypatch.setattr(examine, "QUICK_BYTES", int(whole * 0.7))
    monkeypatch.setattr(examine, "BLOCK_BYTES", whole // 20)
    examination = Examination(data.source)
    blocks = [examination.episodes(block) for block in range(len(examination.weights()))]
    assert len(blocks) <= 3 * 14 + 1  # and not one for each gap between single episodes
    assert blocks[0][0] == 0
    assert blocks[-1][1] == len(lengths)
    assert all(one[1] <= other[0] for one, other in pairwise(blocks))
    read = sum(last - first for first, last in blocks)
    assert 0.6 * len(lengths) <= read <= 0.72 * len(lengths)
    report = examination.report(map(examination.check, range(len(blocks))))
    assert (
        f"looked at {read:,} of {len(lengths):,} episodes"
        in next(f for f in report.findings if f.name == "partial").message
    )


@pytest.mark.parametrize("partition", [1, 7, 50, 1 << 20])
def test_digests_are_compared_in_partitions(partition: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in scratch files, and where all digests begin alike."""
    monkeypatch.setattr(measures, "PARTITION", partition)
    monkeypatch.setattr(arrays, "SPILLED", 0)
    rng = np.random.default_rng(partition)
    for alike in (False, True):
        digests = rng.integers(0, 256, (40, 16), np.uint8)
        if alike:
            digests[:, :2] = 7
        rows = digests[rng.integers(0, 40, 300)]
        known: dict[bytes, int] = {}
        expected = [known.setdefault(row.tobytes(), i) for i, row in enumerate(rows)]
        assert measures.first_of_equals(rows).tolist() == expected


def test_digests_without_room_for_a_file_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(arrays, "SPILLED", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert arrays.scratch_zeros((3, 2), np.uint8).tolist() == [[0, 0]] * 3


class OneDamagedVideo(MemorySource):
    """Episode 1 has a column that cannot be read."""

    def read_array(self, column: str, selection: Any, out: Any) -> None:
        first, end = self.offsets[1:3]
        touched = (selection.start < end) & (selection.start + selection.length > first)
        if column == "observations/camera" and touched.any():
            raise FormatError("expected a video, got one that is cut", path="camera.mp4")
        super().read_array(column, selection, out)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_column_that_cannot_be_read_hides_no_other_findings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    actions = rng.normal(size=(60, 2))
    actions[25] = np.nan
    pictures = rng.integers(0, 256, (60, 8, 8, 3), np.uint8)
    spec = Spec({"actions": Field(np.dtype("f8"), (2,)), "observations/camera": Field(np.dtype("u1"), (8, 8, 3))})
    source = OneDamagedVideo(spec, {"actions": actions, "observations/camera": pictures}, np.array([0, 20, 40, 60]))
    report = examine.examine(source, deep=True, progress=False)
    assert [(f.name, f.episodes, f.rows) for f in report.findings] == [("unreadable", (1,), (0,)), ("nan", (1,), (5,))]
    assert np.isnan(report.measures["length"]).tolist() == [False, True, False]
