"""`penstock live`: what is read, shown and kept."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from lczero.conftest import GOLDEN, config_of, split_config
from penstock_chess.formats.lc0 import open_chunks, packed_chunk
from penstock_chess.live import chess_pipeline
from penstock_live.endpoint import MetricsEndpoint, look
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
