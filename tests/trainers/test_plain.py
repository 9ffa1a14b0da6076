"""A plain loop, which the programs of frameworks are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy import samples

from tests.trainers.orders import check_epochs, check_equal, joined
from tests.trainers.ranks import trained


@pytest.mark.parametrize("stop", [3, 17, 20])
def test_a_plain_loop_has_each_sample_once_and_resumes_bit_for_bit(tmp_path: Path, stop: int) -> None:
    model, seen = trained("plain")
    check_epochs(joined(seen), len(samples()))
    _, before = trained("plain", checkpoint=tmp_path / "run.pt", stop=stop)
    resumed, after = trained("plain", checkpoint=tmp_path / "run.pt")
    assert before + after == seen
    check_equal(model, resumed)
