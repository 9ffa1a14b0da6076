"""Which episodes a quick check reads, and how the digests of many episodes are compared."""

# pyright: basic

from __future__ import annotations

import errno
import os
from itertools import pairwise

import numpy as np
import pytest

import penstock
from penstock.doctor import examine, measures
from penstock.doctor.examine import Examination
from penstock.files import arrays


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
