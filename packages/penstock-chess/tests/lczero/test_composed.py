"""What a configuration composes: joined pools, sources in turn, outputs that drop, one look at the files for all."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lczero.conftest import GOLDEN, batches_of, config_of, counted, digests, expected, split_config
from penstock.errors import DataError, PlanError
from penstock_chess.lczero import DataLoader


def joined(one: Path, two: Path, *, join: str = "", second: str = "shuffling_chunk_pool {}", tail: str = "") -> str:
    """Two folders, each with a loader and a pool of its own, joined and shuffled."""
    ways = "".join(
        f"""
        stage {{ name: "files_{name}" file_path_provider {{ directory: "{folder}" }} }}
        stage {{ name: "sources_{name}" input: "files_{name}" chunk_source_loader {{}} }}
        stage {{ name: "pool_{name}" input: "sources_{name}" {pool} }}
        stage {{ name: "frames_{name}" input: "pool_{name}" chunk_unpacker {{ position_sampling_rate: 1 }} }}
        """
        for name, folder, pool in (("new", one, "shuffling_chunk_pool {}"), ("old", two, second))
    )
    return f"""
    {ways}
    stage {{ name: "both" input: "frames_new" input: "frames_old" join_positions {{ {join} }} }}
    stage {{ name: "shuffled" input: "both" shuffling_frame_sampler {{ reservoir_size_per_thread: 64 }} }}
    stage {{ name: "tensors" input: "shuffled" tensor_generator {{ batch_size: 50 {tail} }} }}
    output: "tensors"
    """


def finite(config: str, **options: Any) -> DataLoader:
    return DataLoader(config, follow=False, **options)


@pytest.mark.parametrize("join", ["", "weight: 3 weight: 1"])
@pytest.mark.parametrize("second", ["shuffling_chunk_pool {}", "simple_chunk_extractor {}"])
def test_pools_of_two_folders_are_joined_and_drained(join: str, second: str) -> None:
    config = joined(GOLDEN / "gz", GOLDEN / "tar", join=join, second=second)
    orders = []
    for seed in (0, 1):
        with finite(config, seed=seed) as loader:
            orders.append(digests(loader))
    assert Counter(orders[0]) == counted([expected("gz_raw")]) + counted([expected("tar_raw")])
    assert orders[0] != orders[1]


@pytest.mark.parametrize("seed", [0, 3])
def test_joined_pools_go_on_from_any_state_and_are_replayed(tmp_path: Path, seed: int) -> None:
    config = joined(GOLDEN / "gz", GOLDEN / "tar", join="weight: 3 weight: 1")
    states, batches = [], []
    with finite(config, seed=seed, journal=tmp_path / "moves") as loader:
        for batch in loader:
            batches.append(digests([batch]))
            states.append(loader.state_dict())
    assert sorted(path.name for path in (tmp_path / "moves").iterdir()) == [
        "output.frames_new.journal",
        "output.frames_old.journal",
    ]
    for i in range(0, len(states), 2):
        with finite(config, seed=seed) as again:
            again.load_state_dict(states[i])
            assert [digests([batch]) for batch in again] == batches[i + 1 :]
    with DataLoader(config, seed=seed, passes=1, replay=tmp_path / "moves") as again:
        assert [digests([batch]) for batch in again] == batches


def test_each_pool_has_its_anchor_and_its_figures() -> None:
    with finite(joined(GOLDEN / "gz", GOLDEN / "tar")) as loader:
        list(loader)
        answers = dict(loader.send_control_message("chunk_pool_request { reset_chunk_anchor: true }"))
        figures, _ = loader.get_aggregate_ending_now(math.inf)
    assert set(answers) == {"pool_new", "pool_old"}
    assert answers["pool_new"].chunk_pool_response.chunk_anchor == "training.700027.gz"
    json.dumps(figures)
    stages = {stage["name"]: stage for stage in figures["stage_metrics"]}
    assert set(stages) >= {"files_new", "files_old", "sources_old", "frames_new", "frames_old", "both", "tensors"}
    frames = {
        name: next(c["count"] for c in stages[name]["count_metrics"] if c["name"] == "frames")
        for name in ("frames_new", "frames_old", "tensors")
    }
    assert frames["frames_new"] + frames["frames_old"] == frames["tensors"]
    assert min(frames.values()) > 0
    gauges = {gauge["name"]: gauge["value"] for gauge in stages["pool_old"]["gauge_metrics"]}
    assert gauges["chunks_total"] == answers["pool_old"].chunk_pool_response.chunks_since_anchor


def test_an_extractor_has_every_position_once() -> None:
    config = config_of(GOLDEN / "tar").replace("shuffling_chunk_pool", "simple_chunk_extractor")
    with finite(config) as loader:
        assert counted(loader) == counted([expected("tar_raw")])
        assert loader.send_control_message({"chunk_pool_request": {}}) == []
        figures, _ = loader.get_aggregate_ending_now(math.inf)
    (stage,) = (stage for stage in figures["stage_metrics"] if stage["name"] == "pool")
    counts = {count["name"]: count["count"] for count in stage["count_metrics"]}
    assert counts["chunks_processed"] > 1
    assert counts["chunks_dropped"] == 0
    assert counts["sources_processed"] == 1
    with pytest.raises(PlanError, match="expected one pass"):
        finite(config, passes=2).start()


def test_outputs_of_one_loader_look_at_the_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock_chess import live

    opened: list[str] = []

    def counting(path: Path, **options: Any) -> Any:
        opened.append(path.name)
        return original(path, **options)

    original = live.open_chunks
    monkeypatch.setattr(live, "open_chunks", counting)
    with finite(split_config(GOLDEN / "formats")) as loader:
        every = counted(batches_of(loader, "train")) + counted(batches_of(loader, "test"))
        scanned = {id(p._streams[0].intake.inlet) for p in loader.pipelines.values()}
    assert every.total() > 0
    assert len(scanned) == 1
    assert sorted(opened) == sorted(path.name for path in (GOLDEN / "formats").iterdir())


@pytest.mark.parametrize("overflow", ["DROP_NEW", "KEEP_NEWEST"])
@pytest.mark.parametrize("place", ["tensors", "frames"])
def test_an_output_that_drops_holds_up_nothing_and_counts(overflow: str, place: str) -> None:
    drop = f"output {{ overflow_behavior: {overflow} }}"
    at = "batch_size: 5 " if place == "tensors" else 'input: "pool_test" chunk_unpacker { '
    assert at in split_5()
    with finite(split_5()) as plain:
        every = [digests([batch]) for batch in batches_of(plain, "test")]
    with finite(split_5().replace(at, at + drop)) as whole:
        whole.start()
        train = counted(batches_of(whole, "train"))
        whole.pipelines["test"]._decoded.join()  # until all was made, and nothing got
        got = [digests([batch]) for batch in batches_of(whole, "test")]
        figures, _ = whole.get_aggregate_ending_now(math.inf)
    assert train
    assert got == (every[:4] if overflow == "DROP_NEW" else every[-4:])
    (queue,) = next(s for s in figures["stage_metrics"] if s["name"] == "tensors_test")["queue_metrics"]
    assert (queue["put_count"], queue["get_count"], queue["drop_count"]) == (len(every), 4, len(every) - 4)


def split_5() -> str:
    """The split of the golden formats, with batches of five for the test."""
    config = split_config(GOLDEN / "formats")
    return config.replace('batch_size: 50 } }\n        output: "test', 'batch_size: 5 } }\n        output: "test')


def test_a_queue_before_the_pools_never_drops() -> None:
    config = split_config(GOLDEN / "formats").replace(
        'output { name: "test" }', 'output { name: "test" overflow_behavior: DROP_NEW }'
    )
    with finite(config) as one, finite(split_config(GOLDEN / "formats")) as two:
        assert counted(batches_of(one, "test")) == counted(batches_of(two, "test"))


def test_a_validator_is_a_stage_with_its_figures(tmp_path: Path) -> None:
    whole = (GOLDEN / "gz" / "training.700001.gz").read_bytes()
    (tmp_path / "training.1.gz").write_bytes(whole)
    config = config_of(tmp_path, rescorer="").replace("chunk_rescorer {", 'chunk_validator { fault: "repetition"')
    with finite(config) as loader:
        assert sum(len(batch[0]) for batch in loader) > 0
        figures, _ = loader.get_aggregate_ending_now(math.inf)
    (stage,) = (stage for stage in figures["stage_metrics"] if stage["name"] == "rescored")
    assert stage["count_metrics"] == [{"name": "chunks", "count": 1}]
    assert stage["load_metrics"][0]["load_seconds"] > 0
    with pytest.raises(PlanError, match="expected faults among"):
        finite(config.replace("repetition", "repetitive")).start()


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("join_positions { ", "join_positions { weight: 1 ", PlanError, "a weight of join 'both' for each of 2"),
        ("join_positions { ", "join_positions { weigth: 1 ", DataError, "did you mean 'weight'"),
        (
            "join_positions { ",
            "join_positions { output { overflow_behavior: DROP_NEW } ",
            PlanError,
            r"one way of dropping .*\['DROP_NEW', 'KEEP_NEWEST'\]",
        ),
    ],
)
def test_what_cannot_be_is_said(old: str, new: str, error: type[Exception], message: str) -> None:
    tail = "output { overflow_behavior: KEEP_NEWEST }"
    config = joined(GOLDEN / "gz", GOLDEN / "tar", tail=tail)
    with pytest.raises(error, match=message):
        finite(config.replace(old, new)).start()


def test_weights_say_how_much_of_each_comes() -> None:
    config = joined(GOLDEN / "gz", GOLDEN / "tar", join="weight: 0 weight: 1")
    with finite(config) as loader:
        assert counted(loader) == counted([expected("tar_raw")])


def test_an_output_whose_games_are_looked_at_leaves_the_other_as_it_is() -> None:
    plain = split_config(GOLDEN / "formats")
    config = plain.replace('input: "pool_train" chunk_unpacker', 'input: "checked" chunk_unpacker')
    config += 'stage { name: "checked" input: "pool_train" chunk_validator { fault: "empty" } }'
    for alias in ("train", "test"):
        with finite(config) as one, finite(plain) as two:
            assert digests(batches_of(one, alias)) == digests(batches_of(two, alias))
