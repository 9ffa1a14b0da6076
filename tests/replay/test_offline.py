"""Offline samples that are drawn beside a replay, compared with plain dictionaries of priorities."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import ArgumentError, ExpiredRowError, PlanError
from tests.replay.runs import episode, episodes, filled

PRIORITIZED = penstock.replay.PrioritizedSampler
LENGTHS = [4, 1, 6]
N = sum(LENGTHS)


@cache
def offline() -> Any:
    source = penstock.formats.MemorySource.from_episodes(episodes(LENGTHS, first=500))
    return penstock.EpisodeDataset(source).transitions()


def new(path: Path | None = None, capacity: int = 20, **options: Any) -> penstock.Replay:
    return penstock.Replay(path, capacity, offline=offline(), seed=3, **options)


class PlainPriorities:
    """Weights of all samples by number, as they are defined: those of the replay, and of the dataset below 0."""

    def __init__(self, alpha: float, capacity: int, share: float | None) -> None:
        self.alpha, self.capacity, self.share = alpha, capacity, share
        self.weights: dict[int, float] = {i - N: 1.0 for i in range(N)}
        self.highest, self.arrived = 1.0, 0

    def arrive(self, steps: int) -> None:
        for _ in range(steps):
            self.weights[self.arrived] = self.highest
            if self.arrived >= self.capacity:
                self.weights.pop(self.arrived - self.capacity)
            self.arrived += 1

    def update(self, anchors: Any, priorities: Any) -> int:
        gone = 0
        for anchor, priority in zip(anchors.tolist(), priorities.tolist(), strict=True):
            weight = (np.float32(priority) + 1e-6) ** self.alpha
            gone += anchor not in self.weights
            self.weights = {key: weight if key == anchor else value for key, value in self.weights.items()}
            self.highest = max(self.highest, weight) if anchor in self.weights else self.highest
        return gone

    def probabilities(self) -> dict[int, float]:
        total = sum(self.weights.values())
        sides = [sum(w for a, w in self.weights.items() if (a >= 0) == own) for own in (False, True)]
        share = self.share if self.arrived else 0.0
        parts = [s / total for s in sides] if share is None else [1 - share, share]
        return {a: w / sides[a >= 0] * parts[a >= 0] for a, w in self.weights.items()}


@pytest.mark.parametrize("share", [None, 0.25])
@pytest.mark.parametrize("seed", range(3))
def test_priorities_of_both_sides_are_those_of_a_plain_replay(share: float | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    replay = new(sampler=PRIORITIZED(alpha=0.7, beta=0.5), share=share)
    plain = PlainPriorities(0.7, 20, share)
    tickets: list[Any] = []
    for number in range(60):
        if number and rng.random() < 0.5:
            steps = int(rng.integers(1, 9))
            replay.write(episode(number, steps))
            plain.arrive(steps)
        batch = replay.sample(int(rng.integers(1, 12)))
        lines = replay.why(batch.ticket).table
        wanted = plain.probabilities()
        least = min(value for value in wanted.values() if value > 0)
        for i, anchor in enumerate(lines["anchor"].tolist()):
            assert lines["probability"][i] == pytest.approx(wanted[anchor], rel=1e-5)
            assert batch["weights"][i] == pytest.approx((wanted[anchor] / least) ** -0.5, rel=1e-4)
            assert lines["priority"][i] == pytest.approx(plain.weights[anchor] ** (1 / 0.7) - 1e-6, rel=1e-4)
            assert batch["source"][i] == (anchor < 0)
            if anchor < 0:
                at = offline()[N + anchor]
                assert batch["actions"][i] == at["actions"]
                assert batch["next_observations"][i].tolist() == at["next_observations"].tolist()
                assert lines["position"][i] == N + anchor
        tickets.append((batch.ticket, lines["anchor"]))
        ticket, anchors = tickets[int(rng.integers(len(tickets)))]
        priorities = rng.random(len(anchors)) * 3
        assert replay.update(ticket, priorities) == plain.update(anchors, priorities)


def test_frequencies_are_the_probabilities() -> None:
    replay = filled(new(sampler=PRIORITIZED(alpha=1.0)), [9])
    replay.update([-N, 2], [30.0, 10.0])
    anchors = np.concatenate([replay.why(replay.sample(50).ticket).table["anchor"] for _ in range(100)])
    total = 30 + 10 + N + 9 - 2
    assert (anchors == -N).mean() == pytest.approx(30 / total, abs=0.02)
    assert (anchors == 2).mean() == pytest.approx(10 / total, abs=0.02)
    assert sorted(set(anchors.tolist())) == [*range(-N, 0), *range(9)]


def test_shares_are_exact_and_offline_samples_come_first_where_there_are_no_others() -> None:
    replay = new(share=0.25)
    assert replay.sample(10)["source"].tolist() == [1] * 10
    assert len(replay) == 0
    filled(replay, [9] * 4)
    drawn = 10
    for n in (1, 5, 3, 8, 7, 30):
        counts = np.bincount(replay.sample(n)["source"], minlength=2)
        assert abs(counts[0] - n / 4) <= 1
        drawn += n
    assert len(replay) == 20
    lines = replay.why(replay.sample(8).ticket).table
    assert lines["share"].tolist() == [0.25, 0.25] + [0.75] * 6
    np.testing.assert_allclose(lines["probability"], [0.25 / 20] * 2 + [0.75 / N] * 6, rtol=1e-6)


SAMPLERS: list[tuple[Any, float | None]] = [
    (penstock.replay.UniformSampler(), None),
    (PRIORITIZED(1.0), None),
    (PRIORITIZED(kind="rank"), 0.5),
    (penstock.replay.RecentSampler(5.0), 0.3),
    (penstock.replay.StratifiedSampler(), 0.5),
]


def run(replay: penstock.Replay, turns: int, rng: Any, again: Callable[[penstock.Replay], penstock.Replay]) -> Any:
    drawn: list[Any] = []
    for turn in range(turns):
        if rng.random() < 0.4:
            replay.write(episode(turn, int(rng.integers(1, 9))))
        batch = replay.sample(7)
        drawn.append({name: rows.tolist() for name, rows in batch.items()})
        if "weights" in batch:
            replay.update(batch.ticket, rng.random(7))
        if turn % 10 == 9:
            replay = again(replay)
    return drawn


@pytest.mark.parametrize(("sampler", "share"), SAMPLERS, ids=repr)
@pytest.mark.parametrize("in_folder", [False, True])
def test_saved_and_repeated_runs_are_equal(in_folder: bool, sampler: Any, share: float | None, tmp_path: Path) -> None:
    def made(name: str, **options: Any) -> penstock.Replay:
        return new(tmp_path / name if in_folder else None, sampler=sampler, share=share, **options)

    def loaded(replay: penstock.Replay) -> penstock.Replay:
        replay.close()
        other = made("b")
        other.load_state_dict(pickle.loads(pickle.dumps(replay.state_dict(rows=not in_folder))))
        return other

    journal = tmp_path / "journal"
    wanted = run(made("a", journal=journal), 40, np.random.default_rng(1), lambda replay: replay)
    assert run(made("b"), 40, np.random.default_rng(1), loaded) == wanted
    if not in_folder:
        copied = run(made("c"), 40, np.random.default_rng(1), lambda replay: pickle.loads(pickle.dumps(replay)))
        assert copied == wanted
    again = made("a", replays=journal)
    assert [{name: rows.tolist() for name, rows in again.sample(7).items()} for _ in range(40)] == wanted
    assert {source for batch in wanted for source in batch["source"]} == {0, 1}


def test_a_loader_of_batches_has_both_sides_and_resumes() -> None:
    replay = filled(new(sampler=PRIORITIZED(), share=0.5), [9, 9])
    loader = replay.batches(6).loader()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    wanted = [{name: rows.tolist() for name, rows in next(batches).items()} for _ in range(3)]
    other = filled(new(sampler=PRIORITIZED(), share=0.5), [9, 9]).batches(6).loader()
    other.load_state_dict(state)
    resumed = iter(other)
    assert [{name: rows.tolist() for name, rows in next(resumed).items()} for _ in range(3)] == wanted


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="expected samples as a MapDataset"):
        penstock.Replay(None, 10, offline=penstock.from_arrays({"rewards": np.ones(3)}, lengths=[3]))  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="an offline dataset for share"):
        penstock.Replay(None, 10, share=0.5)
    with pytest.raises(PlanError, match="within 0 to 1"):
        new(share=1.5)
    with pytest.raises(PlanError, match="no common measure"):
        new(sampler=PRIORITIZED(kind="rank"))
    with pytest.raises(PlanError, match="expected one offline dataset"):
        new().batches(4, offline=offline())
    replay = new(share=0.5)
    replay.write(penstock.from_arrays({"rewards": np.ones(3)}, lengths=[3])[0])
    with pytest.raises(PlanError, match="in the offline dataset, got"):
        replay.sample(4)
    with pytest.raises(PlanError, match="without"):
        new().update([-1], [1.0])
    prioritized = new(sampler=PRIORITIZED())
    assert prioritized.update([-N, -N - 1], [1.0, 1.0]) == 1
    with pytest.raises(ExpiredRowError):
        prioritized.update([0], [1.0])
