"""The live stages over training games: every position, whatever the form; weights, checks, parts, journals, states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import DataError, FormatError, PlanError
from penstock_chess.compact import encode
from penstock_chess.formats.lc0 import FRAME, packed_chunk
from penstock_chess.live import DiffFocus, chess_hooks, chess_inlet, chess_pipeline
from penstock_chess.rescore import Rescorer
from penstock_chess.tensors import FIVE, ChessTensors
from penstock_chess.validate import Fault
from penstock_live.journal import read_journal
from penstock_live.pipeline import LiveOptions, LivePipeline, Stream

Frames = Callable[..., Any]
GAMES = ("gz/training.700001.gz", "gz/training.700027.gz")


def sorted_rows(arrays: dict[str, Any]) -> dict[str, Any]:
    """Positions in the order of their references."""
    order = np.lexsort((arrays["place"], arrays["chunk"]))
    return {name: array[order] for name, array in arrays.items()}


def joined(batches: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@pytest.mark.parametrize("tensors", [ChessTensors(), ChessTensors("bits"), ChessTensors("uint8", FIVE)])
def test_a_pass_is_what_decoding_every_frame_gives(golden: Path, frames: Frames, tensors: ChessTensors) -> None:
    with chess_pipeline(
        golden / "gz", follow=False, reservoir=30, batch_size=40, references=True, tensors=tensors
    ) as run:
        found = sorted_rows(joined(list(run)))
    wanted = tensors.decode(encode(frames(*GAMES)))
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, name)
    assert found["chunk"].tolist() == [0] * 79 + [1] * 55


def test_threads_change_nothing_and_seeds_do(golden: Path) -> None:
    orders: list[list[int]] = []
    for seed, threads in ((0, 1), (0, 4), (1, 4)):
        options: dict[str, Any] = {"seed": seed, "threads": threads, "reservoir": 30, "batch_size": 40}
        with chess_pipeline(golden / "tar", follow=False, references=True, **options) as run:
            found = joined(list(run))
        orders.append((found["chunk"] * 1000 + found["place"]).tolist())
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_parts_of_a_split_share_the_games(golden: Path) -> None:
    counts: list[int] = []
    for options in ({"split": [1, 1]}, {"split": [1, 1], "part": 1}, {}):
        with chess_pipeline(golden / "formats", follow=False, **options) as run:
            counts.append(sum(len(batch["planes"]) for batch in run))
    assert counts[0] + counts[1] == counts[2]
    assert min(counts) > 0


def test_a_journal_repeats_the_run(golden: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"reservoir": 30, "batch_size": 40, "seed": 4, "references": True}
    with chess_pipeline(golden / "gz", follow=False, journal=tmp_path / "moves", **options) as run:
        first = joined(list(run))
    moves = read_journal(tmp_path / "moves")
    with chess_pipeline(golden / "gz", replay=moves, passes=1, **options) as run:
        second = joined(list(run))
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)


def test_games_with_faults_are_left_out_and_counted(golden: Path, frames: Frames, tmp_path: Path) -> None:
    whole = frames(GAMES[0])
    (tmp_path / "training.1.gz").write_bytes(packed_chunk(whole))
    (tmp_path / "training.2.gz").write_bytes(packed_chunk(np.ascontiguousarray(whole[::2])))
    for checking, prefix in (
        ({"validate": {Fault.CONTINUITY, Fault.MOVE_UNKNOWN}}, "validate."),
        ({"rescorer": Rescorer()}, "rescore."),
    ):
        with chess_pipeline(tmp_path, follow=False, **checking) as run:
            assert sum(len(batch["planes"]) for batch in run) == len(whole)
            counts, examples = run.failures()
        (reason,) = counts
        assert reason.startswith(prefix)
        assert examples[0][0] == "training.2.gz#0"


def test_bytes_after_the_last_gzip_member_are_ignored_and_other_damage_is_counted(golden: Path, tmp_path: Path) -> None:
    """As docs/lc0.md says: bytes that start no other member are ignored; a started member must be whole."""
    game = (golden / GAMES[1]).read_bytes()
    ends = {"garbage": b"garbage", "zeros": bytes(13) + b"\1", "half magic": b"\x1f", "nothing": b""}
    damaged = {"header": b"\x1f\x8b\x08", "half member": game[: len(game) // 2]}
    for name, more in (ends | damaged).items():
        (tmp_path / f"{name}.gz").write_bytes(game + more)
    with chess_pipeline(tmp_path, follow=False) as run:
        assert sum(len(batch["planes"]) for batch in run) == 55 * len(ends)
        account = {name: n for name, n in run.account().items() if n}
        counts, _ = run.failures()
    assert account == {"expected": 6, "read": 4, "failed": 2}
    assert sum(counts.values()) == 2


def test_weights_grow_with_what_search_and_network_differ() -> None:
    records = np.zeros(5, FRAME)
    records["best_q"] = 0, 0.1, 0.5, 0.9, 0.9
    records["policy_kld"] = 0, 0.2, 0.2, np.nan, 5
    records["orig_q"][4] = np.nan
    weights = DiffFocus(q_weight=2, pol_scale=2, alpha=2, beta=0.1, gamma=2, tau=0.5, default_weight=0.3)
    found = weights(records.view(np.uint8).reshape(5, -1))
    assert found.tolist() == pytest.approx([0.01, (0.4 / 4 * 2 + 0.1) ** 2, 0.49, 0.0, 0.3], rel=1e-6)
    with pytest.raises(DataError, match="above zero together"):
        DiffFocus(q_weight=1, pol_scale=-1)


def test_positions_that_weigh_nothing_are_not_taken(golden: Path, frames: Frames) -> None:
    every = DiffFocus(q_weight=1.0)(frames(GAMES[0]))
    focus = DiffFocus(q_weight=1.0, beta=-float(np.median(every)), default_weight=0.0)
    with chess_pipeline(golden / "gz", follow=False, count=5, passes=8, references=True, weights=focus) as run:
        found = joined(list(run))
    weights = [focus(frames(name)) for name in GAMES]
    taken = [weights[chunk][place] for chunk, place in zip(found["chunk"], found["place"], strict=True)]
    assert len(taken) == 80
    assert min(taken) > 0
    assert all(np.any(each == 0) for each in weights)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rate": 1, "count": 1}, PlanError, "rate or a count"),
        ({"part": 1}, PlanError, "a split to take part 1 of"),
        ({"split": [1, 1], "part": 2}, PlanError, "part within 0:2"),
        ({"weights": DiffFocus()}, PlanError, "they have no effect"),
        ({"missing_st": "none"}, DataError, "missing_st"),
        ({"windw": 3}, TypeError, "windw"),
    ],
)
def test_what_does_not_go_together_is_refused(
    golden: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message), chess_pipeline(golden / "gz", follow=False, **options) as run:
        next(run)


def test_no_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="expected a directory"):
        chess_pipeline(tmp_path / "none")


MODES: dict[str, dict[str, Any]] = {
    "rate": {"rate": 0.07, "passes": 9},
    "half": {"rate": "1/2", "passes": 2},
    "count": {"count": 3, "passes": 3},
    "kept": {"count": 2, "passes": 6, "ahead": 3},
    "hanse": {"count": 1, "hanse_gamma": 0.8, "passes": 6},
    "hanse, kept": {"count": 1, "hanse_gamma": 0.8, "passes": 8, "ahead": 2},
    "all": {},
}


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("folder", ["gz", "tar", "old"])
@pytest.mark.parametrize("mode", MODES)
def test_reading_games_whole_or_in_part_gives_the_same(golden: Path, folder: str, mode: str, seed: int) -> None:
    options = {"batch_size": 16, "reservoir": 30, "follow": False, "seed": seed, **MODES[mode]}
    runs = []
    for verify, threads in [(True, 2), (False, 1), (False, 3)]:
        with chess_pipeline(golden / folder, verify=verify, threads=threads, references=True, **options) as batches:
            runs.append(joined(list(batches)))
    for name, values in runs[0].items():
        assert np.array_equal(values, runs[1][name], equal_nan=True), name
        assert np.array_equal(values, runs[2][name], equal_nan=True), name


@pytest.mark.parametrize("missing_st", ["zero", "nan"])
@pytest.mark.parametrize("folder", ["gz", "v7", "old"])
def test_records_as_they_are_stored_and_frames_give_the_same(golden: Path, folder: str, missing_st: Any) -> None:
    options: dict[str, Any] = {"batch_size": 16, "reservoir": 30, "follow": False, "missing_st": missing_st}
    runs = []
    for more in ({}, {"validate": set()}):  # nobody looks at frames, or somebody does
        with chess_pipeline(golden / folder, **options, **more) as batches:
            runs.append(joined(list(batches)))
    assert np.isnan(runs[0]["values"][:, 5, 1]).all() == (missing_st == "nan" and folder != "v7")
    for name, values in runs[0].items():
        assert np.array_equal(values, runs[1][name], equal_nan=True), name


def test_games_whose_checksum_was_not_compared_are_counted(golden: Path) -> None:
    games = len(list((golden / "gz").iterdir()))
    options: dict[str, Any] = {"batch_size": 5, "reservoir": 0, "follow": False, "passes": 2}
    for more, expected in (
        ({"count": 1}, 2 * games),
        ({"count": 1, "verify": True}, 0),
        ({"count": 1, "validate": set()}, 0),  # games are read whole to be checked
        ({"rate": 1}, 0),
    ):
        with chess_pipeline(golden / "gz", **options, **more) as batches:
            list(batches)
            counts = batches.metrics()["stages"]["chunk_unpacker"]["counts"]
        assert counts.get("unverified", 0) == expected


@pytest.mark.parametrize("mode", ["rate", "count", "kept", "hanse"])
def test_a_game_damaged_behind_gives_what_does_not_need_that_whatever_the_threads(
    golden: Path, tmp_path: Path, mode: str
) -> None:
    for i, path in enumerate(sorted((golden / "gz").iterdir()) * 3):
        (tmp_path / f"{i}.{path.name}").write_bytes(path.read_bytes())
    damaged = sorted(tmp_path.iterdir())[3]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(bytes(data))
    options = {"batch_size": 5, "reservoir": 30, "follow": False, "references": True, **MODES[mode]}
    runs, states = [], []
    for threads in (1, 4):
        with chess_pipeline(tmp_path, threads=threads, **options) as batches:
            listed = []
            for batch in batches:
                listed.append(list(zip(batch["chunk"].tolist(), batch["place"].tolist(), strict=True)))
                states.append(batches.state_dict())
            runs.append(listed)
            assert sum(batches.failures()[0].values()) - batches.failures()[0].get("failed_again", 0) <= 1
            # a rate spreads over the game, and every use of this one meets what is damaged
            assert (3 in {chunk for batch in listed for chunk, _ in batch}) == (mode != "rate")
    assert runs[0] == runs[1]
    half = len(runs[0]) // 2
    with chess_pipeline(tmp_path, threads=2, **options) as again:
        again.load_state_dict(states[half - 1])
        rest = [list(zip(b["chunk"].tolist(), b["place"].tolist(), strict=True)) for b in again]
    assert rest == runs[0][half:]


def test_a_validator_is_a_stage_with_counts_by_reason(golden: Path, frames: Frames, tmp_path: Path) -> None:
    whole = frames(GAMES[0])
    (tmp_path / "training.1.gz").write_bytes(packed_chunk(whole))
    (tmp_path / "training.2.gz").write_bytes(packed_chunk(np.ascontiguousarray(whole[::2])))
    for validate, rescorer in ((True, None), ({Fault.CONTINUITY}, None), (True, Rescorer())):
        with chess_pipeline(tmp_path, follow=False, validate=validate, rescorer=rescorer) as run:
            assert sum(len(batch["planes"]) for batch in run) == len(whole)
            stages, (failures, _) = run.metrics()["stages"], run.failures()
        (reason,) = failures
        assert stages["chunk_validator"]["counts"] == {"chunks": 1, f"rejected.{reason.removeprefix('validate.')}": 1}
        assert stages["chunk_validator"]["busy"] > 0
        assert ("chunk_rescorer" in stages) == (rescorer is not None)
    assert stages["chunk_rescorer"]["counts"] == {"chunks": 1}


def test_folders_in_proportion_share_stages_and_go_on_from_a_state(golden: Path) -> None:
    def run(threads: int) -> LivePipeline:
        streams = [
            Stream(chess_inlet(golden / folder, watch="off"), weight, name)
            for folder, weight, name in (("gz", 3, "new"), ("tar", 1, "old"))
        ]
        options = LiveOptions(reservoir=30, batch_size=20, follow=False, threads=threads, references=True, seed=2)
        return LivePipeline(streams, options, hooks=chess_hooks(validate=True), decode=ChessTensors("bits").decode)

    states, batches = [], []
    with run(2) as whole:
        for batch in whole:
            batches.append({name: array.copy() for name, array in batch.items()})
            states.append(whole.state_dict())
        stages = whole.metrics()["stages"]
    chunks = sum(stages[f"shuffling_chunk_pool.{name}"]["gauges"]["chunks_total"] for name in ("new", "old"))
    assert stages["chunk_validator"]["counts"]["chunks"] == chunks
    source = np.concatenate([batch["chunk"] for batch in batches]) >> 48
    assert set(source.tolist()) == {0, 1}
    for i in range(0, len(states), 3):
        with run(1 + i % 4) as again:
            again.load_state_dict(states[i])
            for batch, expected in zip(again, batches[i + 1 :], strict=True):
                for name, array in expected.items():
                    np.testing.assert_array_equal(batch[name], array)
