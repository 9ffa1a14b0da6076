"""`Loader.uses`: the inverse of a ticket, against the batches of real runs. Random programs test all transforms."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.map_dataset import MapDataset
from penstock.errors import ArgumentError, PlanError, StateError
from penstock.loading.ranks import MeshRows, Ranks
from penstock.loading.uses import uses
from penstock.plan import MixSchedule, Shuffle, Steps, Weighted
from penstock.plan.batched import Batches
from penstock.plan.weights import shares
from penstock.testing.plans import episodes_of

LENGTHS = [4, 0, 9, 2, 7]
SEEDS = [0, 1, 2]


def samples(first: int = 0, seed: int = 0) -> MapDataset:
    """Samples whose value is a thousand times the episode and the step."""
    x = [1000 * (first + e) + t for e, n in enumerate(LENGTHS) for t in range(n)]
    return penstock.from_arrays({"x": np.array(x)}, LENGTHS).steps().shuffle(seed)


def log_of(loader: Any, batches: int, episode: int) -> list[tuple[Any, int]]:
    """The ticket and place of every sample of an episode in some batches, over as many epochs as they need."""
    found: list[tuple[Any, int]] = []
    while batches:
        for batch in loader:
            found += [(batch.ticket, row) for row, x in enumerate(batch["x"].tolist()) if x // 1000 == episode]
            batches -= 1
            if not batches:
                break
    return found


def told_of(loader: Any, episode: int, source: int | None = None) -> list[tuple[Any, int]]:
    uses = loader.uses(episode, source)
    lines = zip(uses.tickets, uses.table["row"].tolist(), uses.table["given"].tolist(), strict=True)
    return [(ticket, row) for ticket, row, given in lines if given]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_given_is_known_without_a_log(seed: int) -> None:
    loader = samples(seed=seed).loader(batch_size=4, threads=0)
    log = log_of(loader, 20, episode=2)
    assert told_of(loader, 2) == log
    assert len(log) > 20  # of more than two epochs


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resumed_run_has_the_uses_of_the_whole(seed: int) -> None:
    data = samples(seed=seed)
    loader = data.loader(batch_size=5, threads=0)
    log_of(loader, 7, 0)
    other = data.loader(batch_size=3, threads=0)
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    known = [ticket.position + row for ticket, row in told_of(loader, 4)]
    assert other.uses(4, until=loader.uses(4).position).table["position"].tolist() == known
    upcoming = other.uses(4, since=other.uses(4).position)
    assert (
        list(zip(upcoming.tickets, upcoming.table["row"].tolist(), strict=True))
        == log_of(other, len(data) // 3 + 1, 4)[: len(upcoming)]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mix_that_changed_keeps_its_uses(seed: int) -> None:
    parts = {"a": samples(seed=seed), "b": samples(10, seed + 1), "c": samples(20, seed + 2)}
    runs = [({"a": 3, "b": 1}, 9), ({"a": 1, "b": 1, "c": 2}, 12), ({"c": 1, "b": 4}, 8)]
    log: list[tuple[Any, int]] = []
    state: Any = None
    for weights, batches in runs:
        chosen = {name: parts[name] for name in weights}
        loader = penstock.mix(chosen, weights, stop="never").loader(batch_size=4, threads=0)
        if state is not None:
            loader.load_state_dict(state, changed="continue")
        log += log_of(loader, batches, episode=12)
        state = json.loads(json.dumps(loader.state_dict()))
    source = list(runs[-1][0]).index("b")
    if "a" not in runs[-1][0]:  # the parts of the first mixes are needed to make them again
        with pytest.raises(StateError, match="give since=0"):
            loader.uses(2, source)
    last = loader.uses(2, source, since=0)
    assert list(zip(last.tickets, last.table["row"].tolist(), strict=True)) == log[-len(last) :]
    whole = penstock.mix(parts, {"a": 1, "b": 4, "c": 1}, stop="never").loader(batch_size=4, threads=0)
    whole.load_state_dict(state, changed="continue")
    assert told_of(whole, 2, source=1) == log
    assert set(whole.uses(2, 1).table["mix"].tolist()) == {0, 1, 2}


def test_the_cost_is_that_of_the_answer() -> None:
    """Among 10^15 samples: anything that looked at each would not end."""
    episodes = episodes_of([10**12] * 500 + [7] + [10**12] * 500)
    plan = Shuffle(3).reorder(Steps().plan(episodes))
    n = len(plan)
    found = plan.uses(0, np.array([500]), 0, 2 * n)
    assert len(found) == 14
    assert (plan.locate(found)[0] == np.repeat([0, 1], 7)).all()
    assert (
        np.sort(plan.positions(found)) == np.sort(np.concatenate([e * n + 500 * 10**12 + np.arange(7) for e in (0, 1)]))
    ).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_draws_by_weight_are_found_anywhere(seed: int) -> None:
    """Of weights that are all different, and of classes of equal ones, far into a run."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, 40).tolist()
    steps = Steps().plan(episodes_of(lengths))
    for weights in (rng.exponential(size=len(steps)) ** 3, rng.integers(0, 4, len(steps)) + 0.0, np.ones(len(steps))):
        plan = Weighted(weights, seed=seed).reorder(steps)
        far = int(rng.integers(0, 1 << 40))
        k = np.arange(far, far + 3000)
        for episode in range(0, 40, 7):
            wanted = k[np.isin(plan.positions(k), steps.uses(0, np.array([episode]), 0, len(steps)))]
            assert plan.uses(0, np.array([episode]), far, far + 3000).tolist() == wanted.tolist()


@pytest.mark.parametrize("weights", [[3, 1], [0.123456789, 0.3, 0.7], list(range(1, 40)), [0.1] * 3 + [2**-0.5 * 1.0]])
def test_picks_of_a_mix_have_an_inverse(weights: list[float]) -> None:
    course = MixSchedule.of(shares(weights), [None] * len(weights), "never")
    for far in (0, 10**6, 10**14):
        k = np.arange(far, far + 200)
        source, rank = course.picks(k)
        for s in range(len(weights)):
            assert course.places(s, rank[source == s]).tolist() == k[source == s].tolist()


def test_sorted_batches_and_ramps_are_found() -> None:
    data = penstock.from_arrays({"x": np.arange(sum(LENGTHS) * 3)}, LENGTHS * 3).sequences().shuffle(1)
    loader = data.loader(batch_size=Batches([(0, 2), (8, 4)], tokens=40, window=6), threads=0)
    given = list(loader)
    uses = loader.uses([4, 9], until=len(data))
    for ticket, row, number in zip(uses.tickets, uses.table["row"].tolist(), uses.table["batch"].tolist(), strict=True):
        assert ticket == given[number].ticket
        owner = loader.why(ticket).table
        assert owner["episode"][owner["position"].tolist().index(ticket.position + row)] in (4, 9)


def test_the_table_prints_and_says_what_it_found() -> None:
    loader = samples().loader(batch_size=4, drop_last=True, threads=0)
    for _ in range(2):
        next(iter(loader))
    text = " ".join(str(loader.uses([0, 2])).split())
    assert "episodes 0, 2 of MemorySource" in text
    assert "to come before position 44" in text


def test_wrong_questions_are_refused() -> None:
    loader = samples().loader(batch_size=4)
    for wrong, error in ((5, PlanError), (-1, PlanError), ("a", ArgumentError), (True, ArgumentError)):
        with pytest.raises(error, match="expected episodes"):
            loader.uses(wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="expected positions 0 <= since <= until"):
        loader.uses(0, since=9, until=3)
    both = penstock.mix({"a": samples(), "b": samples()}).loader(batch_size=4)
    with pytest.raises(PlanError, match="give source="):
        both.uses(0)
    with pytest.raises(PlanError, match="expected a source within 0:2"):
        both.uses(0, 2)
    stream = penstock.IterDataset.of(samples(), 4).loader()
    with pytest.raises(PlanError, match="got one of a stream"):
        stream.uses(0)


def test_over_a_mesh_tickets_are_of_all_ranks() -> None:
    """Four parts of every batch, of which two processes have two each."""
    feed = samples().loader(batch_size=8, threads=0)._cursor.source
    mesh = replace(feed, ranks=Ranks(1, 2, mesh=MeshRows((2, 3), (0, 0, 1, 1))))
    answer = uses(mesh, 0, 2, None, None, len(feed.dataset.plan))
    rows = answer.table["row"].tolist()
    sizes = [min(8, 22 - 8 * number) for number in answer.table["batch"].tolist()]
    parts = [next(p for p in range(4) if (p + 1) * n // 4 > row) for row, n in zip(rows, sizes, strict=True)]
    assert answer.table["rank"].tolist() == [part // 2 for part in parts]
    assert [ticket and ticket.count for ticket in answer.tickets] == sizes
