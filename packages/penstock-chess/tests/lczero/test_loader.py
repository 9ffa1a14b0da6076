"""The compatible loader: the original's batches bit for bit, outputs, anchors, figures, states, what is not."""

from __future__ import annotations

import gc
import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lczero.conftest import GOLDEN, batches_of, config_of, counted, digests, expected, split_config
from penstock.errors import DataError, FormatError, PlanError, StateError
from penstock.flow.queue import QueueClosed
from penstock_chess.lczero import (
    DataLoader,
    ShufflingChunkPoolControlRequest,
    StageControlRequest,
    make_dataloader,
)
from penstock_chess.lczero.history import History
from penstock_chess.tensors import FIVE, ChessTensors


@pytest.fixture
def games(tmp_path: Path) -> Path:
    """A folder of five games, of which each part of the split has some."""
    one, two, three = (GOLDEN / name for name in ("gz/training.700001.gz", "gz/training.700027.gz", "tar"))
    (tar,) = three.glob("*.tar")
    for file, name in ((one, "training.0.gz"), (two, "training.1.gz"), (tar, "games_0.tar")):
        (tmp_path / name).write_bytes(file.read_bytes())
    return tmp_path


def finite(config: str, **options: Any) -> DataLoader:
    return DataLoader(config, follow=False, **options)


@pytest.mark.parametrize(("folder", "name"), [("gz", "gz_raw"), ("tar", "tar_raw"), ("v7", "v7_raw")])
def test_a_pass_has_every_position_of_the_originals_loader_bit_for_bit(folder: str, name: str) -> None:
    with finite(config_of(GOLDEN / folder)) as loader:
        batches = list(loader)
    assert {array.dtype for array in batches[0]} == {np.dtype(np.float32)}
    assert {len(batch[0]) for batch in batches[:-1]} == {50}
    assert counted(batches) == counted([expected(name)])


def test_rescored_games_are_those_of_the_originals_rescorer() -> None:
    with finite(config_of(GOLDEN / "gz", rescorer="threads: 2")) as loader:
        assert counted(loader) == counted([expected("v7_raw")])


def test_positions_are_shuffled_and_seeds_differ() -> None:
    orders = []
    for seed in (0, 0, 1):
        with finite(config_of(GOLDEN / "gz"), seed=seed) as loader:
            orders.append(digests(loader))
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != digests([expected("gz_raw")])


def test_a_rate_takes_its_share_and_passes_have_others() -> None:
    config = config_of(GOLDEN / "gz", unpacker="position_sampling_rate: 0.5")
    with finite(config) as loader:
        one = counted(loader)
    with finite(config, passes=2) as loader:
        two = counted(loader)
    whole = counted([expected("gz_raw")])
    assert abs(one.total() - whole.total() / 2) <= 1
    assert two == whole


def test_positions_that_are_kept_are_those_that_would_be_read() -> None:
    plain = config_of(GOLDEN / "gz", unpacker="position_count: 1")
    kept = plain.replace(
        'input: "sources" shuffling_chunk_pool {',
        'input: "sources" input: "frames.later" shuffling_chunk_pool {'
        ' cachehit_output { name: "kept" } position_cache_size: 1000',
    )
    kept = kept.replace("position_count: 1", 'position_count: 1 prefetch_count: 7 prefetch_output { name: "later" }')
    kept = kept.replace('input: "frames"', 'input: "both"')
    kept += 'stage { name: "both" input: "frames" input: "pool.kept" join_positions {} }'
    with finite(plain, passes=20, seed=2) as one, finite(kept, passes=20, seed=2) as two:
        assert digests(one) == digests(two)
        figures, _ = two.get_aggregate_ending_now(math.inf)
    (pool,) = (stage for stage in figures["stage_metrics"] if stage["name"] == "pool")
    counts = {count["name"]: count["count"] for count in pool["count_metrics"]}
    assert counts["cache_hits"] + counts["cache_misses"] == 40
    assert counts["newly_cached"] >= counts["cache_hits"] > 0
    assert counts["dropped_cache_positions"] == counts["mismatched_use_counts"] == 0
    gauges = {gauge["name"]: gauge for gauge in pool["gauge_metrics"]}
    assert gauges["cached_positions"]["capacity"] == 1000
    assert [queue["name"] for queue in pool["queue_metrics"]] == ["", "kept"]
    assert pool["queue_metrics"][1]["get_count"] == counts["cache_hits"]
    with pytest.raises(PlanError, match="position_cache_size of stage 'pool'"):
        make_dataloader(kept.replace("position_cache_size: 1000", ""), follow=False)


def test_a_count_takes_so_many_of_each_game() -> None:
    with finite(config_of(GOLDEN / "gz", unpacker="position_count: 3")) as loader:
        assert sum(len(batch[0]) for batch in loader) == 6


def test_other_tensors_on_request() -> None:
    with finite(config_of(GOLDEN / "gz"), tensors=ChessTensors("float16", FIVE)) as loader:
        shapes = [(array.shape[1:], array.dtype.name) for array in next(loader)]
    assert shapes[0] == ((112, 8, 8), "float16")
    assert [shape for shape, _ in shapes[1:]] == [(1858,), (3,), (3,), (1,)]


def test_outputs_of_a_split_share_the_games_between_them(games: Path) -> None:
    with finite(split_config(games)) as loader:
        train, test = (counted(batches_of(loader, alias)) for alias in ("train", "test"))
    assert train + test == counted([expected("tar_raw")]) + counted([expected("gz_raw")])
    assert train
    assert test


def test_an_unknown_output_is_named(games: Path) -> None:
    with finite(split_config(games)) as loader, pytest.raises(PlanError, match=r"\['test', 'train'\], got ''"):
        loader.get_next()


def test_iterating_goes_over_the_first_output(games: Path) -> None:
    with finite(split_config(games)) as loader, finite(split_config(games)) as again:
        assert digests([next(loader)]) == digests([again.get_next("train")])


def test_a_state_goes_on_with_the_next_batch_of_every_output(games: Path) -> None:
    config = split_config(games)
    with finite(config, seed=3) as whole:
        rest = [digests([whole.get_next("train")]) for _ in range(4)]
        test = digests([whole.get_next("test")])
    with finite(config, seed=3) as first:
        first.get_next("train")
        first.get_next("train")
        state = first.state_dict()
    with finite(config, seed=3) as second:
        second.load_state_dict(state)
        assert [digests([second.get_next("train")]) for _ in range(2)] == rest[2:]
        assert digests([second.get_next("test")]) == test


def test_a_state_of_another_configuration_is_refused(games: Path) -> None:
    with finite(split_config(games)) as one, finite(config_of(GOLDEN / "gz")) as other:
        with pytest.raises(StateError, match=r"outputs \[''\]"):
            other.load_state_dict(one.state_dict())
        with pytest.raises(StateError):
            other.load_state_dict({})


def pool_of(loader: DataLoader, request: object) -> tuple[str, int]:
    ((name, answer),) = loader.send_control_message(request)
    assert name == "pool"
    return answer.chunk_pool_response.chunk_anchor, answer.chunk_pool_response.chunks_since_anchor


def test_anchors_are_asked_for_set_and_reset() -> None:
    with finite(config_of(GOLDEN / "gz")) as loader:
        loader.start()
        assert pool_of(loader, {"chunk_pool_request": {}}) == ("", 2)
        request = StageControlRequest(ShufflingChunkPoolControlRequest(set_chunk_anchor="training.700001.gz"))
        assert pool_of(loader, request) == ("training.700001.gz", 1)
        text = "chunk_pool_request { reset_chunk_anchor: true }"
        assert pool_of(loader, text) == ("training.700027.gz", 1)
        assert pool_of(loader, {"chunk_pool_request": {}}) == ("training.700027.gz", 0)
        assert loader.send_control_message({}) == []
        with pytest.raises(DataError, match="did you mean 'chunk_pool_request'"):
            loader.send_control_message({"chunk_pool_requests": {}})


def test_an_anchor_that_is_set_before_the_start_counts_what_is_newer() -> None:
    with finite(config_of(GOLDEN / "gz")) as loader:
        loader.send_control_message({"chunk_pool_request": {"set_chunk_anchor": "training.700001.gz"}})
        loader.start()
        assert pool_of(loader, {"chunk_pool_request": {}}) == ("training.700001.gz", 1)


def test_figures_have_the_originals_names() -> None:
    with finite(config_of(GOLDEN / "gz", rescorer="", pool="chunk_pool_size: 9")) as loader:
        frames = sum(len(batch[0]) for batch in loader)
        figures, spent = loader.get_aggregate_ending_now(math.inf)
    assert spent >= 0
    json.dumps(figures)
    stages = {stage["name"]: stage for stage in figures["stage_metrics"]}
    assert set(stages) == {"files", "sources", "pool", "rescored", "frames", "shuffled", "tensors"}
    gauges = {gauge["name"]: gauge for gauge in stages["pool"]["gauge_metrics"]}
    assert gauges["chunks_current"] == {"name": "chunks_current", "value": 2, "capacity": 9}
    assert (stages["pool"]["anchor"], stages["sources"]["last_chunk_key"]) == ("", "training.700027.gz")
    counts = {count["name"]: count["count"] for count in stages["tensors"]["count_metrics"]}
    assert counts["frames"] == frames
    assert {count["name"] for count in stages["pool"]["count_metrics"]} >= {"dropped", "reshuffles"}
    (load,) = stages["frames"]["load_metrics"]
    assert load["load_seconds"] > 0
    assert set(stages["tensors"]["queue_metrics"][0]) >= {"put_count", "get_count", "drop_count", "queue_capacity"}


def test_a_bucket_says_what_time_it_covers() -> None:
    with finite(config_of(GOLDEN / "gz")) as loader:
        next(loader)
        figures, spent = loader.get_bucket_metrics(40, include_pending=False)
    assert len(figures["stage_metrics"]) == 6
    assert spent >= 0


def test_the_history_keeps_few_snapshots_and_finds_the_right_one() -> None:
    history = History(finest=0.25)
    for i in range(10_000):
        history.add({"time": i * 0.25, "stages": {}})
    now = 9_999 * 0.25
    assert len(history) < 60
    for age in (1.0, 8.0, 60.0, 600.0):
        found = history.at(now - age)["time"]
        assert now - 3 * age - 1 <= found <= now - age
    assert history.at(math.inf)["time"] == now
    assert history.at(-1.0)["time"] == 0.0


def test_damaged_games_are_skipped_and_counted(tmp_path: Path) -> None:
    whole = (GOLDEN / "gz" / "training.700001.gz").read_bytes()
    (tmp_path / "training.1.gz").write_bytes(whole)
    (tmp_path / "training.2.gz").write_bytes(whole[:1000] + b"\0" + whole[1001:])
    (tmp_path / "notes.txt").write_text("nothing")
    with finite(config_of(tmp_path)) as loader:
        assert sum(len(batch[0]) for batch in loader) > 0
        figures, _ = loader.get_aggregate_ending_now(math.inf)
    stages = {stage["name"]: stage for stage in figures["stage_metrics"]}
    counts = {c["name"]: c["count"] for stage in ("pool", "sources") for c in stages[stage]["count_metrics"]}
    assert (counts["dropped"], counts["skipped_files"]) == (1, 1)


def test_all_bad_input_raises(tmp_path: Path) -> None:
    (tmp_path / "training.1.gz").write_bytes((GOLDEN / "gz" / "training.700001.gz").read_bytes()[:1000])
    with finite(config_of(tmp_path)) as loader, pytest.raises(DataError, match="got none in a whole pass"):
        next(loader)


def test_waiting_ends_after_the_timeout(tmp_path: Path) -> None:
    with DataLoader(config_of(tmp_path), follow="manual", timeout=0.01) as loader:
        with pytest.raises(TimeoutError):
            next(loader)
        assert loader.maybe_get_next() is None


def test_after_a_stop_nothing_comes() -> None:
    loader = make_dataloader(config_of(GOLDEN / "gz"), follow=False)
    loader.get_next()
    loader.stop()
    with pytest.raises(QueueClosed):
        loader.get_next()


def test_where_one_output_cannot_start_none_runs_on(games: Path) -> None:
    (games / "training.0.gz").unlink()
    (games / "training.1.gz").unlink()
    (games / "games_0.tar").rename(games / "games_3.tar")  # all of whose games are for training
    gc.collect()  # pipelines in cycles end in threads of their own
    before = set(threading.enumerate())
    with pytest.raises(DataError, match="expected chunks to read, got none"):
        make_dataloader(split_config(games), follow=False)
    assert set(threading.enumerate()) <= before


def test_stages_are_added_until_it_is_wired() -> None:
    head, _, tail = config_of(GOLDEN / "gz").partition('stage { name: "frames"')
    loader = finite(head)
    loader.add_stages('stage { name: "frames"' + tail)
    with loader:
        next(loader)
        with pytest.raises(PlanError, match="before anything is read"):
            loader.add_stages('stage { name: "more" file_path_provider {} }')


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("position_sampling_rate: 1", "", "position_sampling_rate or position_count of stage 'frames'"),
        ("position_sampling_rate: 1", "position_sampling_rate: 1 position_count: 1", "one of both"),
        ("position_sampling_rate: 1", "position_sampling_rate: 1.5", "at most 1"),
        ('"rescored" input: "pool" chunk_rescorer {', '"r" input: "pool" chunk_rescorer {', "'rescored'"),
        ("threads: 1", "new_input_format: 7", "new_input_format -1 or one of"),
        ("threads: 1", "deblunder_width: 0.1", "both of deblunder_threshold and deblunder_width"),
        ("chunk_pool_size: 9", "chunk_pool_size: 0", "at least one chunk"),
        (
            "chunk_pool_size: 9",
            "hanse_sampling_threshold: 1 position_sampling { diff_focus_q_weight: 1 }",
            "the same position_sampling of pool and unpacker",
        ),
    ],
)
def test_what_is_not_supported_says_so(old: str, new: str, message: str) -> None:
    unpacker = "position_count: 1" if "hanse" in new else ""
    config = config_of(GOLDEN / "gz", pool="chunk_pool_size: 9", rescorer="threads: 1", unpacker=unpacker)
    assert old in config
    changed = config.replace(old, new)
    with pytest.raises((PlanError, DataError), match=message):
        make_dataloader(changed, follow=False)


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="expected a directory of chunk files"):
        make_dataloader(config_of(tmp_path / "nothing"))


def test_a_run_that_loses_too_many_games_ends_unless_any_number_may_be_lost(tmp_path: Path) -> None:
    whole = (GOLDEN / "gz" / "training.700001.gz").read_bytes()
    (tmp_path / "training.1.gz").write_bytes(whole)
    (tmp_path / "training.2.gz").write_bytes(whole[:1000] + b"\0" + whole[1001:])
    with finite(config_of(tmp_path), max_lost=0) as loader, pytest.raises(DataError):
        list(loader)
    with finite(config_of(tmp_path), max_lost=None) as loader:
        list(loader)
        figures, _ = loader.get_aggregate_ending_now(math.inf)
    gauges = {gauge["name"]: gauge["value"] for gauge in figures["stage_metrics"][2]["gauge_metrics"]}
    assert (gauges["chunks_expected"], gauges["chunks_read"], gauges["chunks_failed"]) == (2, 1, 1)
