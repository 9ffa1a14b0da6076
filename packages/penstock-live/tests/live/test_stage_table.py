"""The table of stages on a terminal of 30 columns."""

# pyright: basic

from __future__ import annotations

from penstock_live.stage_table import table as stages
from tests.cli.test_fitted import printed


def test_the_table_of_a_running_loader_fits() -> None:
    queue = {"fill": 2, "capacity": 4, "drops": 0}
    stage = {"threads": 2, "counts": {"frames": 0}, "busy": 0.0, "queue": queue, "gauges": {}}
    after = {**stage, "busy": 1.0, "counts": {"frames": 3000, "failed.gone": 1}}
    shown = stages({"time": 0.0, "stages": {"unpacker": stage}}, {"time": 1.0, "stages": {"unpacker": after}})
    lines = printed(shown, 30)
    assert max(map(len, lines)) <= 30
    assert lines[0] == "unpacker"
    assert "a second: 3,000 frames" in " ".join(line.strip() for line in lines)
