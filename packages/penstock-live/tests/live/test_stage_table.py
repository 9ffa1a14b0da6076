"""Figures of stages: served, read back, in rows, sentences and the table of a narrow terminal."""

# pyright: basic

from __future__ import annotations

from typing import Any

import pytest

from live.snapshots import snapshot
from penstock.errors import FormatError
from penstock.flow.look import bottleneck, figures
from penstock_live.endpoint import MetricsEndpoint, look, parse
from penstock_live.stage_table import as_json, rows, table
from tests.cli.test_fitted import printed


def test_the_text_is_prometheus_own() -> None:
    stage = {"threads": 2, "busy": 1.5, "counts": {'a"b\\c\nd': 7}, "gauges": {"why": ""}, "queue": {"drops": 3}}
    with MetricsEndpoint(lambda: {"time": 4.0, "stages": {"pool": stage}}) as endpoint:
        assert endpoint.port > 0
        assert look(f"127.0.0.1:{endpoint.port}")["stages"]["pool"] == stage


@pytest.mark.parametrize(
    "text", ["up 1\n", "<html>", "penstock_clock_seconds x\n", "penstock_clock_seconds 1\npenstock_stage_threads 1\n"]
)
def test_figures_of_something_else_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse(text, "here")


def test_the_bottleneck_is_the_busiest_stage_the_consumer_or_the_input() -> None:
    found = bottleneck(snapshot(0, 0, 0), snapshot(1, 0.9, 100))
    assert found is not None
    assert (found.kind, found.stage, found.busy) == ("stage", "chunk_unpacker", pytest.approx(0.9))
    full_by_chance = bottleneck(snapshot(0, 0, 0, fill=4), snapshot(1, 0.9, 100, fill=4))
    assert full_by_chance is not None
    assert full_by_chance.kind == "stage"
    waiting = bottleneck(snapshot(0, 0, 0), snapshot(1, 0.9, 100, waited=0.09))
    assert waiting is not None
    assert waiting.kind == "consumer"
    idle = bottleneck(snapshot(0, 0, 0), snapshot(1, 0.2, 0, fill=4))
    assert idle is not None
    assert (idle.kind, "20 %" in idle.sentence) == ("input", True)
    assert bottleneck({"time": 0.0, "stages": {}}, {"time": 1.0, "stages": {}}) is None
    next_epoch = figures(snapshot(0, 0, 0, waited=9.0), snapshot(1, 0.9, 100, waited=0.2))  # with another queue
    assert [stage.waited for stage in next_epoch if stage.waited is not None] == [0.2]


def test_of_stages_that_share_threads_the_one_that_takes_most_of_them_is_named() -> None:
    """Eight threads that are busy all the time, of which no stage has half."""
    stage: dict[str, Any] = {"threads": 8, "busy": 0.0, "counts": {}, "gauges": {}, "queue": {}}
    part = {**stage, "gauges": {"part_of": "chunk_unpacker"}}
    before = {
        "chunk_unpacker": stage,
        "chunk_validator": part,
        "chunk_rescorer": part,
        "shuffling_frame_sampler": stage,
    }
    busy = {"chunk_unpacker": 2.0, "chunk_validator": 2.5, "chunk_rescorer": 3.4, "shuffling_frame_sampler": 3.6}
    after = {name: {**each, "busy": busy[name]} for name, each in before.items()}
    found = bottleneck({"time": 0.0, "stages": before}, {"time": 1.0, "stages": after})
    assert found is not None
    assert (found.kind, found.stage) == ("stage", "chunk_rescorer")


def test_stages_stand_in_the_order_of_the_data() -> None:
    names = [stage.name for stage in figures(snapshot(0, 0, 0), snapshot(1, 1, 1))]
    assert names == ["chunk_unpacker", "tensor_generator", "other"]


def test_rows_say_rates_and_failures() -> None:
    first = rows(snapshot(0, 0, 0), snapshot(2, 1, 3000))[0]
    assert first == ("chunk_unpacker", "2", "50 %", "█████·····", "1,500 frames", "", "2 failed: gone")
    assert as_json(snapshot(0, 0, 0), snapshot(2, 1, 3000))["frames_per_s"] == 1500


def test_the_table_of_a_running_loader_fits() -> None:
    queue = {"fill": 2, "capacity": 4, "drops": 0}
    stage = {"threads": 2, "counts": {"frames": 0}, "busy": 0.0, "queue": queue, "gauges": {}}
    after = {**stage, "busy": 1.0, "counts": {"frames": 3000, "failed.gone": 1}}
    shown = table({"time": 0.0, "stages": {"unpacker": stage}}, {"time": 1.0, "stages": {"unpacker": after}})
    lines = printed(shown, 30)
    assert max(map(len, lines)) <= 30
    assert lines[0] == "unpacker"
    assert "a second: 3,000 frames" in " ".join(line.strip() for line in lines)
