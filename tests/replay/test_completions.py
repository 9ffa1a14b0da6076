"""Completions of language models: whole groups, staleness, budgets of tokens, packed rows, restarts."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import Replay
from penstock.errors import ArgumentError, DataError, PlanError, StateError
from penstock.replay import CompletionRecorder, Completions, GroupSampler
from penstock.replay.replay import run_of

G = 3


def replay_of(path: Path | None = None, *, samples: Completions | None = None, **options: Any) -> Replay:
    keep = {name: options.pop(name) for name in ("journal", "replays", "capacity") if name in options}
    chosen = Completions(16) if samples is None else samples
    capacity = keep.pop("capacity", 5000)
    return Replay(path, capacity, samples=chosen, sampler=GroupSampler(G, **options), seed=1, **keep)


def add(recorder: CompletionRecorder, prompts: int, version: int, seed: int = 0, equal: bool = False) -> None:
    """Whole prompts with completions of 1 to 9 tokens. The tokens of a prompt are its number."""
    rng = np.random.default_rng([seed, version])
    for _ in range(prompts):
        keys = recorder.add_prompt([100 + version] * int(rng.integers(1, 5)))
        for key in keys:
            tokens = rng.integers(1, 50, rng.integers(1, 10)).tolist()
            recorder.extend(key, tokens, (-rng.random(len(tokens))).tolist(), version)
            recorder.finish(key, 1.0 if equal else float(rng.random()))


def rows_of(batch: Any) -> list[list[int]]:
    return [row[real].tolist() for row, real in zip(batch["tokens"], batch["mask"], strict=True)]


def test_a_batch_has_whole_groups_in_order_and_each_group_once() -> None:
    replay = replay_of()
    add(CompletionRecorder(replay, G), 10, 0)
    seen = [replay.sample(2 * G) for _ in range(5)]
    groups = np.concatenate([batch["group"] for batch in seen])
    assert len(set(groups.tolist())) == 10
    assert (groups.reshape(10, G) == groups.reshape(10, G)[:, :1]).all()
    assert not replay.refresh().may_sample(G)
    with pytest.raises(PlanError, match="got 0 ready"):
        replay.sample(G)
    assert max(batch["mask"].sum(1).max() == batch["mask"].shape[1] for batch in seen)


def test_advantages_are_relative_to_the_group() -> None:
    replay = replay_of()
    add(CompletionRecorder(replay, G), 4, 0)
    batch = replay.sample(4 * G)
    returns = batch["returns"].astype(np.float64).reshape(4, G)
    wanted = (returns - returns.mean(1, keepdims=True)) / (returns.std(1, ddof=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(batch["advantages"].reshape(4, G), wanted, rtol=1e-4)
    np.testing.assert_array_equal(batch["returns"], (batch["rewards"] * batch["mask"]).sum(1))
    unscaled = penstock.replay.completions.group_advantages(batch["returns"], batch["group"], scale_rewards=False)
    np.testing.assert_allclose(unscaled.reshape(4, G).sum(1), 0, atol=1e-6)


def test_stale_groups_are_never_drawn() -> None:
    replay = replay_of(max_staleness=1)
    recorder = CompletionRecorder(replay, G)
    for version in range(3):
        add(recorder, 2, version)
        replay.set_policy_version(version)
    assert replay.refresh().dropped == {"stale": 2, "equal_rewards": 0}
    assert sorted({int(v) for v in replay.sample(4 * G)["versions"][:, 0]}) == [1, 2]
    add(recorder, 1, 0, seed=5)  # it arrives too late
    assert replay.refresh().dropped["stale"] == 3
    with pytest.raises(PlanError, match="3 groups were older than max_staleness=1"):
        replay.sample(G)
    with pytest.raises(PlanError, match="at least 2"):
        replay.set_policy_version(1)


def test_the_oldest_token_says_how_stale_a_completion_is() -> None:
    replay = replay_of(max_staleness=1)
    recorder = CompletionRecorder(replay, G)
    keys = recorder.add_prompt([7])
    recorder.extend(keys[0], [1], [-1.0], version=0)
    replay.set_policy_version(2)
    for key in keys:
        recorder.extend(key, [2, 3], [-1.0, -1.0], version=2)
        recorder.finish(key, float(key))
    assert not replay.refresh().may_sample(G)
    assert replay.refresh().dropped["stale"] == 1


@pytest.mark.parametrize("pack", [False, True])
def test_a_batch_stays_within_its_tokens(pack: bool) -> None:
    replay = replay_of(samples=Completions(16, pack=pack))
    add(CompletionRecorder(replay, G), 40, 0)
    drawn = 0
    while replay.refresh().may_sample(G):
        batch = replay.sample(max_tokens=128)
        assert batch["tokens"].size <= 128
        drawn += batch.ticket.count
        assert batch.ticket.count % G == 0
    assert drawn == 40 * G
    add(CompletionRecorder(replay, G, seed=3), 1, 0)
    with pytest.raises(PlanError, match="at least one group"):
        replay.sample(max_tokens=3)


def test_packed_rows_have_the_padded_tokens() -> None:
    padded, packed = (replay_of(samples=Completions(16, pack=pack)) for pack in (False, True))
    for replay in (padded, packed):
        add(CompletionRecorder(replay, G), 9, 0)
    one, other = padded.sample(9 * G), packed.sample(9 * G)
    assert other["tokens"].shape[1] == 16
    assert other["mask"].sum() == one["mask"].sum()
    assert other["tokens"].shape[0] < 9 * G
    pieces: list[Any] = []
    for row in range(len(other["tokens"])):
        for segment in range(1, other["segment_ids"][row].max() + 1):
            mine = other["segment_ids"][row] == segment
            assert other["positions"][row][mine].tolist() == list(range(mine.sum()))
            for name in ("advantages", "returns", "group"):
                assert len(set(other[name][row][mine].tolist())) == 1
            pieces.append(
                (
                    other["tokens"][row][mine].tolist(),
                    other["log_probs"][row][mine].tolist(),
                    other["returns"][row][mine][0],
                )
            )
    real = one["mask"]
    wanted = [
        (one["tokens"][i][real[i]].tolist(), one["log_probs"][i][real[i]].tolist(), one["returns"][i])
        for i in range(9 * G)
    ]
    assert sorted(pieces, key=repr) == sorted(wanted, key=repr)
    assert not other["segment_ids"][~other["mask"]].any()


@pytest.mark.parametrize("pack", [False, True])
def test_tokens_of_tools_are_not_in_the_mask_of_sampled_tokens(pack: bool) -> None:
    replay = replay_of(samples=Completions(16, pack=pack), max_staleness=0)
    recorder = CompletionRecorder(replay, G)
    replay.set_policy_version(7)
    for key in recorder.add_prompt([5]):
        recorder.extend(key, [80], sampled=False)  # also before the first sampled token
        recorder.extend(key, [1, 2], [-0.1, -0.2], 7)
        recorder.extend(key, [90, 91], sampled=False)
        again = CompletionRecorder(replay, G)
        again.load_state_dict(json.loads(json.dumps(recorder.state_dict())))
        recorder = again
        recorder.extend(key, [3], [-0.3], 8)
        recorder.extend(key, [92], sampled=False)
        recorder.finish(key, float(key))
    batch = replay.sample(G)  # no token is older than version 7
    wanted = {
        "tokens": [5, 80, 1, 2, 90, 91, 3, 92],
        "completion_mask": [False, False, True, True, False, False, True, False],
        "versions": [7, 7, 7, 7, 7, 7, 8, 8],
        "terminations": [False] * 7 + [True],
    }
    for name, values in wanted.items():
        rows = batch[name].reshape(-1)[batch["mask"].reshape(-1)]
        assert rows.reshape(G, -1).tolist() == [values] * G
    sampled = batch["completion_mask"]
    np.testing.assert_allclose(batch["log_probs"][sampled].reshape(G, -1), [[-0.1, -0.2, -0.3]] * G)
    assert not batch["log_probs"][~sampled].any()


@pytest.mark.parametrize("seed", range(3))
def test_turns_have_masks_and_rewards_also_after_a_restart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    replay = replay_of(samples=Completions(64))
    recorder = CompletionRecorder(replay, G)
    wanted: list[dict[str, list[Any]]] = []
    for key in recorder.add_prompt([5, 6], task=3):
        row: dict[str, list[Any]] = {name: [zero] * 2 for name, zero in (("mask", False), ("p", 0.0), ("r", 0.0))}
        for turn in range(int(rng.integers(1, 5))):
            mask = [True, *(rng.random(int(rng.integers(8))) < 0.5).tolist()]
            log_probs = (-rng.integers(1, 9, sum(mask)) / 8).tolist()
            reward = float(rng.integers(-2, 3))
            recorder.extend(key, [turn] * len(mask), log_probs, seed, sampled=mask, reward=reward)
            saved = recorder.state_dict()
            text = json.dumps(saved)
            recorder.extend(key, [90], sampled=False)
            assert json.dumps(saved) == text  # later tokens are not in a saved state
            recorder.load_state_dict(json.loads(text) if turn % 2 else saved)
            recorder.extend(key, [9], sampled=[False])
            values = iter(log_probs)
            row["mask"] += [*mask, False]
            row["p"] += [next(values) if each else 0.0 for each in mask] + [0.0]
            row["r"] += [0.0] * (len(mask) - 1) + [reward, 0.0]
        row["r"][-1] += float(key)
        wanted.append(row)
        recorder.finish(key, float(key))
    batch = replay.sample(G)
    for n, row in enumerate(wanted):
        real = batch["mask"][n]
        for name, column in (("completion_mask", "mask"), ("log_probs", "p"), ("rewards", "r")):
            assert batch[name][n][real].tolist() == row[column], name
        assert batch["returns"][n] == sum(row["r"])
    assert batch["task"].tolist() == [3] * G


@pytest.mark.parametrize("order", ["oldest", "newest", "random"])
def test_tasks_take_turns(order: Any) -> None:
    replay = replay_of(order=order, balance_tasks=True)
    recorder = CompletionRecorder(replay, G)
    tasks = [0] * 7 + [1] * 2 + [2] * 4
    for prompt, task in enumerate(tasks):
        for key in recorder.add_prompt([prompt + 1], task=task):
            recorder.extend(key, [1], [-1.0], 0)
            recorder.finish(key, float(key))
    drawn = [replay.sample(n * G) for n in (6, 4, 3)]
    counts = [np.bincount(batch["task"][::G], minlength=3).tolist() for batch in drawn]
    assert counts == [[2, 2, 2], [2, 0, 2], [3, 0, 0]]
    rows = [(row[0], task) for batch in drawn for row, task in zip(rows_of(batch), batch["task"], strict=True)]
    firsts = [first for first, task in rows[::G] if task == 0]
    if order != "random":
        assert firsts == sorted(firsts, reverse=order == "newest")
    assert len(set(firsts)) == 7
    columns = {"tokens": np.ones(2, "i4"), "rewards": np.ones(2, "f4"), "versions": np.zeros(2, "i4")}
    without = penstock.from_arrays({**columns, "group": np.zeros(1, "i8")}, lengths=[2])[0]
    with pytest.raises(penstock.errors.SpecError, match="column 'task'"):
        replay_of(balance_tasks=True).write(without)


@pytest.mark.parametrize("length", [0, 9])
@pytest.mark.parametrize("in_folder", [False, True])
def test_a_completion_that_cannot_be_used_is_sampled_again_or_its_prompt_given_up(
    length: int, in_folder: bool, tmp_path: Path
) -> None:
    """Empty, as servers leave out the end token, or too long. The loop `while recorder.pending` goes on."""
    replay = replay_of(tmp_path / "store" if in_folder else None, samples=Completions(8))
    target = tmp_path / "store" if in_folder else replay
    recorder = CompletionRecorder(target, G, max_length=8 if in_folder else None)
    first, second = recorder.add_prompt([5]), recorder.add_prompt([6])
    for key in first + second:
        if key not in (first[0], second[0]):
            recorder.extend(key, [1], [-1.0], 0)
            recorder.finish(key, float(key))
    for key in (first[0], second[0]):
        refused = partial(recorder.extend, key, [2] * length, [-1.0] * length, 0)
        refused = refused if length else partial(recorder.finish, key, 0.0, truncated=True)
        with pytest.raises((ArgumentError, DataError), match=r"resample\(\) it, or discard\(\) its prompt"):
            refused()
    assert recorder.discard(first[0]) == first
    assert [one.key for one in recorder.pending] == [second[0]]
    recorder.resample(second[1])  # also a finished one
    for one in recorder.pending:
        recorder.resample(one.key)
        recorder.extend(one.key, [3], [-1.0], 0)
        recorder.finish(one.key, float(one.key))
    assert not recorder.pending
    assert len(recorder) == len(recorder.state_dict()["completions"]) == 0
    assert sorted(rows_of(replay.sample(G))) == [[6, 1], [6, 3], [6, 3]]
    for call in (recorder.resample, recorder.discard):
        for key in (first[0], second[0]):
            with pytest.raises(ArgumentError, match="of an unfinished prompt"):
                call(key)


@pytest.mark.parametrize("in_folder", [False, True])
def test_episodes_that_belong_together_are_all_written_or_none(in_folder: bool, tmp_path: Path) -> None:
    replay = penstock.Replay(tmp_path / "store" if in_folder else None, 3)
    short = penstock.from_arrays({"rewards": np.arange(2.0)}, lengths=[2])[0]
    other = penstock.from_arrays({"rewards": np.arange(2)}, lengths=[2])[0]
    with pytest.raises(penstock.errors.SpecError):
        replay.write_together([short, other])
    assert (replay.refresh().samples, replay.refresh().episodes) == (0, 0)
    assert replay.write_together([short, short]) == [0, 1]
    assert replay.write_together([]) == []
    assert replay.refresh().samples == 3  # the first step left
    assert replay.refresh().episodes == 2


def test_orders() -> None:
    def firsts(order: Any, uses: int | None = 1) -> list[list[int]]:
        replay = replay_of(order=order, max_uses=uses)
        add(CompletionRecorder(replay, G), 30, 0)
        return [sorted(set(replay.why(replay.sample(5 * G).ticket).table["anchor"][::G].tolist())) for _ in range(6)]

    assert firsts("oldest") == [[G * (5 * i + j) for j in range(5)] for i in range(6)]
    assert firsts("newest") == firsts("oldest")[::-1]
    assert firsts("random") == firsts("random") != firsts("oldest")
    assert sorted(first for batch in firsts("advantage") for first in batch) == [G * i for i in range(30)]
    again = firsts("random", None)
    assert all(len(each) == 5 for each in again)
    assert len({each for batch in again for each in batch}) < 30


def test_groups_with_larger_advantages_come_first() -> None:
    replay = replay_of(order="advantage")
    recorder = CompletionRecorder(replay, G)
    for prompt in range(40):
        for key in recorder.add_prompt([prompt]):
            recorder.extend(key, [1], [-1.0], 0)
            recorder.finish(key, float(key % G) * (100.0 if prompt % 4 == 0 else 0.001))
    assert set((replay.sample(10 * G)["tokens"][:, 0] % 4).tolist()) == {0}


def test_groups_without_signal_can_be_left_out() -> None:
    replay = replay_of(drop_equal_rewards=True)
    recorder = CompletionRecorder(replay, G)
    add(recorder, 3, 0, equal=True)
    add(recorder, 2, 1)
    assert replay.refresh().dropped == {"stale": 0, "equal_rewards": 3}
    assert replay.refresh().may_sample(2 * G)
    assert not replay.refresh().may_sample(3 * G)


def test_completions_of_collectors_in_other_processes_make_groups(tmp_path: Path) -> None:
    learner = replay_of(tmp_path / "run")
    recorders = [CompletionRecorder(tmp_path / "run", G, seed=0)]
    add(recorders[0], 2, 0)
    recorders[0].close()
    later = CompletionRecorder(tmp_path / "run", G, seed=1)
    add(later, 3, 0, seed=1)
    later.close()
    assert len(set(learner.sample(5 * G)["group"].tolist())) == 5
    assert len(penstock.open(tmp_path / "run")) == 5 * G


def test_a_run_goes_on_and_a_journal_repeats_it(tmp_path: Path) -> None:
    replay = replay_of(tmp_path / "run", max_staleness=2, order="random", max_uses=2, journal=tmp_path / "journal")
    recorder = CompletionRecorder(replay, G)
    state: Any = None
    seen: list[list[list[int]]] = []
    for version in range(6):
        add(recorder, 4, version)
        replay.set_policy_version(version)
        if version == 3:
            state = replay.state_dict()
            shutil.copytree(tmp_path / "run", tmp_path / "then")
        seen.append(rows_of(replay.sample(max_tokens=64)))
        seen.append(rows_of(replay.sample(G)))
    dropped = replay.refresh().dropped
    replay.close()

    resumed = replay_of(tmp_path / "then", max_staleness=2, order="random", max_uses=2)
    resumed.load_state_dict(state)
    assert rows_of(resumed.sample(max_tokens=64)) == seen[6]
    assert rows_of(resumed.sample(G)) == seen[7]
    resumed.set_policy_version(4)

    again = replay_of(tmp_path / "run", max_staleness=2, order="random", max_uses=2, replays=tmp_path / "journal")
    for i in range(0, 12, 2):
        assert rows_of(again.sample(max_tokens=64)) == seen[i]
        assert rows_of(again.sample(G)) == seen[i + 1]
    assert again.refresh().dropped == dropped


def test_groups_that_lost_a_completion_are_not_drawn() -> None:
    replay = replay_of(capacity=200)
    add(CompletionRecorder(replay, G), 60, 0)
    lo, _ = run_of(replay).anchors
    assert lo > 0
    while replay.refresh().may_sample(G):
        assert replay.why(replay.sample(G).ticket).table["anchor"].min() >= lo


def test_unfinished_completions_go_on_after_a_restart() -> None:
    first, second = replay_of(), replay_of()
    recorder = CompletionRecorder(first, G, seed=4)
    keys = recorder.add_prompt([1, 2])
    recorder.extend(keys[0], [3], [-0.1], version=0)
    recorder.extend(keys[1], [4], [-0.2], version=0)
    recorder.finish(keys[1], 1.0, truncated=True)
    later = CompletionRecorder(second, G, seed=4)
    later.load_state_dict(json.loads(json.dumps(recorder.state_dict())))
    assert [one.key for one in later.pending] == [0, 2]
    assert later.pending[0].tokens == [3]
    for each in (recorder, later):
        each.extend(keys[0], [5], [-0.3], version=1)
        each.extend(keys[2], [6, 7], [-0.3, -0.4], version=1)
        each.finish(keys[0], 0.0)
        assert each.finish(keys[2], 2.0)
        assert len(each) == 0
    one, other = first.sample(G), second.sample(G)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    assert one["versions"][0][:4].tolist() == [0, 0, 0, 1]
    assert one["truncations"].any(1).tolist() == [False, True, False]
    assert one["completion_mask"].sum(1).tolist() == [2, 1, 2]
    with pytest.raises(PlanError, match="num_generations=3 and seed=4"):
        CompletionRecorder(second, G, seed=4).load_state_dict({**recorder.state_dict(), "seed": 9})


def test_a_loader_takes_batches_of_tokens_and_resumes() -> None:
    batches = []
    for _ in range(2):
        replay = replay_of()
        add(CompletionRecorder(replay, G), 30, 0)
        batches.append(replay.batches(max_tokens=100))
    loader = batches[0].loader()
    stream = iter(loader)
    first = next(stream)
    state = loader.state_dict()
    rest = [rows_of(next(stream)) for _ in range(3)]
    resumed = batches[1].loader()
    resumed.load_state_dict(state)
    after = iter(resumed)
    assert [rows_of(next(after)) for _ in range(3)] == rest
    assert first["tokens"].size <= 100


def test_errors() -> None:
    with pytest.raises(PlanError, match="together with"):
        Replay(None, 100, samples=Completions(8))
    with pytest.raises(PlanError, match="together with"):
        Replay(None, 100, sampler=GroupSampler(2))
    plain = Replay(None, 100)
    plain.write(penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[5])[0])
    with pytest.raises(PlanError, match=r"Completions\(...\) for max_tokens"):
        plain.sample(max_tokens=10)
    with pytest.raises(PlanError, match="GroupSampler"):
        plain.set_policy_version(1)
    with pytest.raises(PlanError, match="number of samples or max_tokens"):
        plain.sample()
    replay = replay_of()
    recorder = CompletionRecorder(replay, G)
    add(recorder, 2, 0)
    with pytest.raises(PlanError, match="multiple of num_generations=3"):
        replay.sample(4)
    with pytest.raises(ArgumentError, match="at least one token"):
        recorder.add_prompt([])
    keys = recorder.add_prompt([1] * 10)
    with pytest.raises(ArgumentError, match=r"at least one sampled token.*resample\(\) it, or discard\(\) its prompt"):
        recorder.finish(keys[0], 1.0)
    with pytest.raises(DataError, match="finite log-probability"):
        recorder.extend(keys[0], [1], [float("nan")], 0)
    with pytest.raises(DataError, match=r"1 sampled tokens.*sampled=False"):
        recorder.extend(keys[0], [1], version=0)
    with pytest.raises(DataError, match="one for each of 2 tokens, got 1"):
        recorder.extend(keys[0], [1, 2], [-1.0], 0, sampled=[True])
    with pytest.raises(ArgumentError, match="expected a version with sampled tokens alone, got None"):
        recorder.extend(keys[0], [1], [-1.0])
    with pytest.raises(ArgumentError, match="got 0 for key"):
        recorder.extend(keys[0], [1], version=0, sampled=False)
    with pytest.raises(ArgumentError, match="tokens for a reward"):
        recorder.extend(keys[0], [], sampled=False, reward=1.0)
    with pytest.raises(DataError, match="finite reward"):
        recorder.extend(keys[0], [1], [-1.0], 0, reward=float("nan"))
    with pytest.raises(ArgumentError, match="in `pending`"):
        recorder.extend(77, [1], [-1.0], 0)
    with pytest.raises(DataError, match="max_length=16 tokens with the prompt, got 10 and 7 more for key 6; finish"):
        recorder.extend(keys[0], [1] * 7, [-1.0] * 7, 0)
    recorder.extend(keys[0], [1] * 6, [-1.0] * 6, 0)
    with pytest.raises(DataError, match="finite reward"):
        recorder.finish(keys[0], float("inf"))
    with pytest.raises(ArgumentError, match="below max_length=16"):
        recorder.add_prompt([1] * 16)
    with pytest.raises(PlanError, match="max_length of at least 2"):
        CompletionRecorder(replay, G, max_length=1)
    other = replay_of(max_uses=3)
    with pytest.raises(StateError):
        other.load_state_dict(replay.state_dict())
    wrong = penstock.Replay(None, 100, samples=Completions(8), sampler=GroupSampler(2))
    with pytest.raises(penstock.errors.SpecError, match="columns of CompletionRecorder"):
        wrong.write(penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[5])[0])
