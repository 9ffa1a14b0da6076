"""A plain loop, which the programs of frameworks are compared with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toy import samples

from tests.trainers.orders import check_epochs, check_equal, joined
from tests.trainers.ranks import trained

ROOT = Path(__file__).parents[2]


def test_the_table_of_the_page_counts_the_lines_that_are_marked() -> None:
    page = (ROOT / "docs/howto/trainers.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+\.py)`.*? \| (\d+) \|", page, re.MULTILINE)
    for name, lines in rows:
        program = (ROOT / "examples/trainers" / name).read_text("utf-8").splitlines()
        assert sum("  # penstock" in line for line in program) == int(lines), name
    assert len(rows) == 14


@pytest.mark.parametrize("stop", [3, 17, 20])
def test_a_plain_loop_has_each_sample_once_and_resumes_bit_for_bit(tmp_path: Path, stop: int) -> None:
    model, seen = trained("plain")
    check_epochs(joined(seen), len(samples()))
    _, before = trained("plain", checkpoint=tmp_path / "run.pt", stop=stop)
    resumed, after = trained("plain", checkpoint=tmp_path / "run.pt")
    assert before + after == seen
    check_equal(model, resumed)
