"""`penstock live` and `penstock top`: what is read, shown, served, kept; and Textual's picture of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lczero.conftest import GOLDEN, config_of, split_config
from live.snapshots import snapshot
from penstock.errors import FormatError
from penstock.flow.look import bottleneck, figures
from penstock_chess.formats.lc0 import open_chunks, packed_chunk
from penstock_chess.live import chess_pipeline
from penstock_live.endpoint import MetricsEndpoint, look, parse
from penstock_live.stage_table import as_json, rows
from tests.cli.conftest import Call

GAMES = GOLDEN / "gz"
FRAMES = 134


def test_a_pass_is_read_and_its_stages_are_shown(call: Call) -> None:
    answer = call("live", GAMES, "--once", "--batch-size", 50, "--reservoir", 20)
    assert answer.code == 0
    assert "batches/s" in answer.out
    assert "tensor_generator" in answer.out
    assert "bottleneck" in answer.out


def test_json_has_rates_totals_and_the_bottleneck(call: Call) -> None:
    found = call("live", GAMES, "--once", "--json", "--batch-size", 50).json
    assert found["stages"]["tensor_generator"]["totals"] == {"batches": 3, "frames": FRAMES}
    assert found["failures"] == {}
    assert found["bottleneck"]["kind"] in ("stage", "consumer", "input")
    assert found["first_batch_s"] > 0


def test_a_bench_goes_on_over_passes_until_its_time_is_over(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the command alone, on which each batch takes a second."""
    clock = SimpleNamespace(monotonic=count().__next__)
    monkeypatch.setattr("penstock_chess.commands.live.time", clock)
    found = call("live", GAMES, "--bench", 60, "--json", "--batch-size", 10, "--reservoir", 9).json
    assert clock.monotonic() == 62  # at the begin, and at each of 61 batches
    assert found["first_batch_s"] == 1
    assert found["seconds"] > 0
    assert found["stages"]["tensor_generator"]["totals"]["batches"] > 2 * FRAMES / 10


@pytest.mark.parametrize(("options", "frames"), [(["--count", 2], 4), (["--rate", 0.5], 67), (["--window", 1], 55)])
def test_options_of_the_stages(call: Call, options: list[object], frames: int) -> None:
    found = call("live", GAMES, "--once", "--json", *options).json
    assert found["stages"]["tensor_generator"]["totals"]["frames"] == pytest.approx(frames, abs=1)


def test_damage_is_counted_and_named(call: Call, tmp_path: Path) -> None:
    whole = (GAMES / "training.700001.gz").read_bytes()
    (tmp_path / "training.1.gz").write_bytes(whole)
    (tmp_path / "training.2.gz").write_bytes(whole[:2000])
    answer = call("live", tmp_path, "--once")
    assert "1 chunks or files could not be used: truncated, the last training.2.gz#0" in answer.out
    found = call("live", tmp_path, "--once", "--json").json
    assert found["failures"] == {"truncated": 1}
    assert found["examples"][0][0] == "training.2.gz#0"


def test_rescoring_checks_games(call: Call, tmp_path: Path) -> None:
    (tmp_path / "training.1.gz").write_bytes((GAMES / "training.700001.gz").read_bytes())
    chunks = open_chunks(GAMES / "training.700027.gz")
    assert chunks is not None
    (tmp_path / "training.2.gz").write_bytes(packed_chunk(chunks.load(0)[::2]))
    assert call("live", tmp_path, "--once", "--json").json["failures"] == {}
    (reason,) = call("live", tmp_path, "--once", "--json", "--rescore").json["failures"]
    assert reason.startswith("rescore.")
    found = call("live", tmp_path, "--once", "--json", "--validate").json
    (reason,) = found["failures"]
    totals = found["stages"]["chunk_validator"]["totals"]
    assert totals == {"chunks": 1, f"rejected.{reason.removeprefix('validate.')}": 1}
    assert "chunk_validator" in call("live", tmp_path, "--once", "--batches", 1, "--validate").out


def test_a_configuration_is_run(call: Call, tmp_path: Path) -> None:
    config = tmp_path / "stages.textproto"
    config.write_text(config_of(tmp_path))
    found = call("live", GAMES, "--config", config, "--once", "--json").json
    assert found["stages"]["tensor_generator"]["totals"]["batches"] == 3
    config.write_text(split_config(GAMES))
    assert call("live", "--config", config, "--output", "nothing").code == 2
    found = call("live", GOLDEN / "formats", "--config", config, "--output", "test", "--once", "--json").json
    assert found["stages"]["tensor_generator"]["totals"]["batches"] > 0
    answer = call("live", "--config", config, "--window", 5)
    assert (answer.code, answer.err[:9]) == (2, "DataError")


def test_nothing_to_read_is_an_error(call: Call, tmp_path: Path) -> None:
    assert call("live").code == 2
    assert "expected a directory of chunk files" in call("live", tmp_path / "none").err
    assert "expected chunks to read, got none" in call("live", tmp_path, "--once").err


def test_a_state_goes_on_with_the_rest(call: Call, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    options = ("live", GAMES, "--once", "--json", "--batch-size", 20, "--state", state)
    call(*options, "--batches", 4)
    before = json.loads(state.read_text())
    call(*options)
    after = json.loads(state.read_text())
    assert [held["sampler"]["batches"] for held in (before, after)] >= [4, 7]
    assert after["sampler"]["given"] == []
    state.write_text("nothing")
    assert "expected a state of penstock live" in call(*options).json["what"]


def test_new_games_are_counted_behind_an_anchor(call: Call) -> None:
    assert call("live", GAMES, "--wait-new", 2).out == "training.700027.gz\n"
    found = call("live", GAMES, "--anchor", "training.700001.gz", "--wait-new", 1, "--json").json
    assert found == {"anchor": "training.700001.gz", "newest": "training.700027.gz", "chunks_since_anchor": 1}
    assert call("live", GAMES, "--anchor", "training.700001.gz", "--wait-new", 2, "--once").code == 1


def test_moves_are_written_to_a_journal(call: Call, tmp_path: Path) -> None:
    call("live", GAMES, "--once", "--journal", tmp_path / "moves")
    assert "training.700027.gz" in (tmp_path / "moves").read_text()


def test_figures_are_served_for_prometheus_and_read_back() -> None:
    with chess_pipeline(GAMES, follow=False, batch_size=50) as batches, MetricsEndpoint(batches.metrics) as endpoint:
        list(batches)
        mine, theirs = batches.metrics(), look(endpoint.url)
    assert set(theirs["stages"]) == set(mine["stages"])
    for name, stage in mine["stages"].items():
        for part in ("threads", "busy", "counts", "gauges", "queue"):
            assert theirs["stages"][name][part] == stage[part], (name, part)


def test_the_text_is_prometheus_own() -> None:
    stage = {"threads": 2, "busy": 1.5, "counts": {'a"b\\c\nd': 7}, "gauges": {"why": ""}, "queue": {"drops": 3}}
    with MetricsEndpoint(lambda: {"time": 4.0, "stages": {"pool": stage}}) as endpoint:
        assert endpoint.port > 0
        assert look(f"127.0.0.1:{endpoint.port}")["stages"]["pool"] == stage


def test_nobody_there_is_said(call: Call) -> None:
    pytest.importorskip("penstock_studio")
    with MetricsEndpoint(lambda: {"time": 0.0, "stages": {}}) as endpoint:
        port = endpoint.port
    answer = call("top", port)
    assert answer.code == 2
    assert "expected a loader at" in answer.err


@pytest.mark.parametrize(
    "text", ["up 1\n", "<html>", "penstock_clock_seconds x\n", "penstock_clock_seconds 1\npenstock_stage_threads 1\n"]
)
def test_figures_of_something_else_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse(text, "here")


def test_top_prints_json(call: Call) -> None:
    pytest.importorskip("penstock_studio")
    seconds = iter(range(9))
    with MetricsEndpoint(lambda: {"time": float(next(seconds)), "stages": {}}) as endpoint:
        found = call("top", endpoint.url, "--interval", 0.1, "--json").json
    assert (found["seconds"], found["bottleneck"]) == (1.0, None)


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


def test_chunks_are_accounted_for_on_every_way(call: Call, tmp_path: Path) -> None:
    whole = (GAMES / "training.700001.gz").read_bytes()
    (tmp_path / "training.1.gz").write_bytes(whole)
    (tmp_path / "training.2.gz").write_bytes(whole[:2000])
    assert "chunks: 2 expected, 1 read, 1 failed" in call("live", tmp_path, "--once").out
    found = call("live", tmp_path, "--once", "--json").json
    assert {name: n for name, n in found["account"].items() if n} == {"expected": 2, "read": 1, "failed": 1}
    answer = call("live", tmp_path, "--once", "--max-lost", 0)
    assert (answer.code, "at most 0 chunks to be lost, got 1" in answer.err) == (2, True)
    with chess_pipeline(tmp_path, follow=False) as batches, MetricsEndpoint(batches.metrics) as endpoint:
        list(batches)
        gauges = look(endpoint.url)["stages"]["shuffling_chunk_pool"]["gauges"]
    assert (gauges["chunks_expected"], gauges["chunks_failed"], gauges["status"]) == (2, 1, "reading")


def test_stages_stand_in_the_order_of_the_data() -> None:
    names = [stage.name for stage in figures(snapshot(0, 0, 0), snapshot(1, 1, 1))]
    assert names == ["chunk_unpacker", "tensor_generator", "other"]


def test_rows_say_rates_and_failures() -> None:
    first = rows(snapshot(0, 0, 0), snapshot(2, 1, 3000))[0]
    assert first == ("chunk_unpacker", "2", "50 %", "█████·····", "1,500 frames", "", "2 failed: gone")
    assert as_json(snapshot(0, 0, 0), snapshot(2, 1, 3000))["frames_per_s"] == 1500


def shown(app: Any) -> tuple[list[list[Any]], str]:
    """The rows and the sentence that an application shows."""
    data = app.query_one("DataTable")
    table = [data.get_row_at(i) for i in range(data.row_count)]
    return table, str(app.query_one("#says").render())


def piloted(looks: Callable[[], Mapping[str, Any]], act: Callable[[Any, Any], Any]) -> None:
    """Run an application without a terminal; `act(app, pilot)` is a coroutine function."""

    top = pytest.importorskip("penstock_studio.commands.top")

    async def run() -> None:
        app = top.make_app(looks, 3600.0, "here")
        async with app.run_test(size=(140, 30)) as pilot:
            await act(app, pilot)

    asyncio.run(run())


def test_top_shows_stages_and_names_the_bottleneck() -> None:
    looks = iter(snapshot(*each) for each in [(5, 0, 0), (6, 0.9, 100), (7, 1.4, 100), (1, 0, 0), (2, 0.1, 0)])

    async def act(app: Any, pilot: Any) -> None:
        assert shown(app) == ([], "the first rates appear at the second update")
        await app.take_look()
        table, says = shown(app)
        assert [row[0] for row in table] == ["chunk_unpacker", "tensor_generator", "other"]
        assert says == "chunk_unpacker is the bottleneck: busy 90 % of the time"
        await app.take_look()  # of both looks together, not of the last alone
        assert shown(app)[1] == "chunk_unpacker is the bottleneck: busy 70 % of the time"
        await app.take_look()  # it was started again
        assert shown(app)[1] == "chunk_unpacker is the bottleneck: busy 70 % of the time"
        await app.take_look()
        assert shown(app)[1].startswith("no stage is the bottleneck")

    piloted(lambda: next(looks), act)


def test_top_waits_while_it_is_paused_and_quits() -> None:
    looks = [snapshot(0, 0, 0), snapshot(1, 0.9, 100)]

    async def act(app: Any, pilot: Any) -> None:
        await pilot.press("space")
        await app.take_look()
        assert len(looks) == 1
        await pilot.press("space")
        await app.take_look()
        assert looks == []
        assert len(shown(app)[0]) == 3
        await pilot.press("q")
        assert app.return_code == 0

    piloted(lambda: looks.pop(0), act)


def test_top_stays_when_the_loader_is_gone_and_goes_on_when_it_is_back() -> None:
    answers: list[Any] = [snapshot(0, 0, 0), ConnectionError("expected a loader"), snapshot(1, 0.9, 100)]

    def looked() -> Mapping[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def act(app: Any, pilot: Any) -> None:
        await app.take_look()
        assert shown(app)[1] == "no figures: expected a loader"
        await app.take_look()
        assert len(shown(app)[0]) == 3

    piloted(looked, act)
