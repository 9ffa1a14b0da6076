"""The contracts of plans and of transforms: subclass one, say how the plan is made, and its tests are yours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray, IntArray
from penstock.core.columns import under
from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.errors import PlanError
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.pack import Pack
from penstock.plan.sequences import Sequences
from penstock.plan.shuffle import Shuffle
from penstock.plan.steps import Steps
from penstock.plan.transform import PlanTransform


class PlanContract(ABC):
    """The tests that every plan must pass, for pytest.

    Derive a class whose name starts with `Test`, and define `episodes` and `plan`. Set `distinct` to False if samples
    of an epoch repeat (as with `Repeat`), and `same_samples` to False if epochs have different samples (as a share of a
    shuffled plan has). Epochs may have different lengths.

    Example:
        >>> from penstock.plan import Windows
        >>> class TestWindows(PlanContract):
        ...     def episodes(self):
        ...         return episodes_of([3, 0, 8])
        ...     def plan(self, episodes):
        ...         return Windows(2).plan(episodes)
        >>> TestWindows().test_selections_are_well_formed()
    """

    distinct: bool = True
    same_samples: bool = True

    @abstractmethod
    def episodes(self) -> Episodes:
        """Return episodes of different lengths, the same at each call."""

    @abstractmethod
    def plan(self, episodes: Episodes) -> Plan:
        """Return the plan to test, a new one at each call.

        Args:
            episodes: Episodes: all that `episodes` returns, or a part.
        """

    def test_the_parts_name_each_other(self) -> None:
        """Reads and masks name existing views, and names differ."""
        plan = self.plan(self.episodes())
        names = [*(read.name for read in plan.reads), *(mark.name for mark in plan.marks)]
        assert not [pair for pair in _pairs(names) if under(*pair)]
        assert len(set(plan.views)) == len(plan.views)
        assert all(
            0 <= view < len(plan.views) for view in [*(r.view for r in plan.reads), *(m.view for m in plan.marks)]
        )
        for read in plan.reads:
            assert self.episodes().aligns[read.column] == plan.views[read.view].align
            assert not read.squeeze or len(plan.views[read.view].steps) == 1

    def test_selections_are_well_formed(self) -> None:
        """One grid a view; spans ordered, apart, not empty, none across samples or beyond what a sample needs."""
        plan = self.plan(self.episodes())
        k = np.arange(plan.start(2))
        for view, selection, extent in zip(plan.views, plan.resolve(k), plan.extents(k), strict=True):
            width = len(view.steps)
            assert selection.shape == (len(k), width)
            assert all(
                a.dtype == np.int64
                for a in (selection.source, selection.start, selection.length, selection.destination)
            )
            ends = selection.destination + selection.length
            assert np.all(selection.length > 0)
            assert np.all(ends[:-1] <= selection.destination[1:])
            assert np.all(selection.destination // width == (ends - 1) // width)
            assert np.all(extent <= width)
            assert not view.whole or np.all((ends - 1) % width < extent[selection.destination // width])

    def test_a_sample_lies_in_one_episode(self) -> None:
        """All rows of all views of a sample belong to the same episode of the same source."""
        episodes = self.episodes()
        plan = self.plan(episodes)
        selections = plan.resolve(np.arange(plan.start(2)))
        owners = [_owners(episodes, v.align, s) for v, s in zip(plan.views, selections, strict=True)]
        owners_of_rows = np.concatenate(
            [np.where(s.rows() < 0, -1, o) for o, s in zip(owners, selections, strict=True)], axis=1
        )
        for sample in owners_of_rows:
            assert len(set(sample.tolist()) - {-1}) <= 1

    def test_resolving_in_parts_is_resolving(self) -> None:
        """`resolve(a ++ b) = resolve(a) ++ resolve(b)`, also through `Selection.samples`."""
        plan = self.plan(self.episodes())
        k = np.random.default_rng(0).permutation(plan.start(3))
        whole = _grids(plan, k)
        for cut in {0, 1, len(k) // 3, len(k)} & set(range(len(k) + 1)):
            for grid, one, other in zip(whole, _grids(plan, k[:cut]), _grids(plan, k[cut:]), strict=True):
                np.testing.assert_array_equal(grid, np.concatenate([one, other]))
            for grid, selection in zip(whole, plan.resolve(k), strict=True):
                np.testing.assert_array_equal(grid[cut:], _grid(selection.samples(cut, len(k))))

    def test_epochs_hold_the_same_samples(self) -> None:
        """Each epoch has every sample as often as any other epoch; once, if samples are distinct."""
        plan = self.plan(self.episodes())
        epochs = [samples_of(plan, e) for e in (0, 1, 5)]
        assert not self.same_samples or sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
        assert not self.distinct or all(len(set(samples)) == len(samples) for samples in epochs)

    def test_what_a_plan_says_of_its_epochs_is_true(self) -> None:
        """`steady`: every epoch has the same rows. `periodic`: the same samples in the same order."""
        plan = self.plan(self.episodes())
        epochs = [samples_of(plan, e) for e in (0, 1, 5)]
        rows = [_rows_of(plan, e) for e in (0, 1, 5)]
        assert not plan.steady or rows[0] == rows[1] == rows[2]
        assert not plan.periodic or (plan.steady and epochs[0] == epochs[1] == epochs[2])

    def test_epochs_follow_one_another(self) -> None:
        """`len`, `start`, `sizes`, `locate`, `uneven` and `set_epoch_start` describe the same epochs."""
        plan = self.plan(self.episodes())
        sizes = plan.sizes(np.arange(6))
        assert sizes.dtype == np.int64
        assert sizes[0] == len(plan)
        assert plan.uneven or len(set(sizes.tolist())) == 1
        assert [plan.start(e) for e in range(7)] == [0, *np.cumsum(sizes).tolist()]
        epoch, place = plan.locate(np.arange(plan.start(6)))
        assert np.array_equal(epoch, np.repeat(np.arange(6), sizes))
        assert np.array_equal(place, np.concatenate([np.arange(n, dtype=np.int64) for n in sizes]))
        later = self.plan(self.episodes())
        later.set_epoch_start(4, plan.start(4))
        assert (later.start(5), later.start(0)) == (plan.start(5), 0)

    def test_the_same_plan_again_is_equal(self) -> None:
        """A plan is a function of its parameters: made again, it has the same fingerprint and selections."""
        one, other = self.plan(self.episodes()), self.plan(self.episodes())
        k = np.arange(one.start(2))
        assert (one.fingerprint, len(one), one.views, one.reads, one.marks) == (
            other.fingerprint, len(other), other.views, other.reads, other.marks,
        )  # fmt: skip
        assert _samples(one, k) == _samples(other, k)

    def test_the_uses_of_an_episode_are_its_samples(self) -> None:
        """`uses` gives the positions of a range with rows of an episode, and samples without any row."""
        episodes = self.episodes()
        plan = self.plan(episodes)
        k = np.arange(plan.start(4))
        owners = [
            _owners(episodes, view.align, selection)
            for view, selection in zip(plan.views, plan.resolve(k), strict=True)
        ]
        owner = np.concatenate([np.where(one < 0, -1, one) for one in owners], axis=1)
        keys = np.stack([episodes.source, episodes.index])
        for row, (source, index) in enumerate(keys.T.tolist()):
            asked = np.unique([index, *np.random.default_rng(row).choice(episodes.index, 2)])
            wanted = np.flatnonzero((keys[0] == source) & np.isin(keys[1], asked))
            mine: BoolArray = np.isin(owner, wanted).sum(axis=1) > 0
            bare: BoolArray = owner.max(axis=1) < 0
            for lo, hi in ((0, len(k)), (len(k) // 3, len(k) // 2), (len(k) // 2, len(k) // 2)):
                uses = plan.uses(source, asked, lo, hi)
                assert uses.dtype == np.int64
                assert np.all(np.diff(uses) > 0)
                assert np.all((uses >= lo) & (uses < hi))
                assert np.array_equal(uses[~bare[uses]], k[lo:hi][(mine & ~bare)[lo:hi]])

    def test_no_positions_give_no_samples(self) -> None:
        """An empty request is answered with empty grids."""
        plan = self.plan(self.episodes())
        shapes = [selection.shape for selection in plan.resolve(np.zeros(0, np.int64))]
        assert shapes == [(0, len(view.steps)) for view in plan.views]

    def test_positions_begin_at_zero(self) -> None:
        """A negative position is an error."""
        plan = self.plan(self.episodes())
        _raises_plan_error(lambda: plan.resolve(np.array([-1])), "position -1")

    def test_no_episodes_make_an_empty_plan(self) -> None:
        """Without episodes a plan is empty, and any position of it an error."""
        nothing = self.episodes().take(np.zeros(0, np.int64), "nothing")
        plan = self.plan(nothing)
        assert len(plan) == 0
        _raises_plan_error(lambda: plan.resolve(np.array([0])), "position 0 of an empty plan")


class TransformContract(PlanContract):
    """The tests that every transform of plans must pass, for pytest.

    They are the tests of `PlanContract` over a shuffled plan, and more over a plan whose epochs have different lengths.
    Derive a class whose name starts with `Test`, and define `transform`. Set `keeps_samples` to False if an epoch lacks
    samples of the epoch below (as with `Shard` or `Take`), and `takes_uneven` to False if epochs of different lengths
    are refused with a `PlanError`.

    Example:
        >>> class TestShuffle(TransformContract):
        ...     def transform(self):
        ...         return Shuffle(3)
        >>> TestShuffle().test_each_epoch_has_the_samples_of_the_epoch_below()
    """

    keeps_samples: bool = True
    takes_uneven: bool = True

    @abstractmethod
    def transform(self) -> PlanTransform:
        """Return the transform to test."""

    def episodes(self) -> Episodes:
        """Seven episodes, one of them empty."""
        return episodes_of([3, 0, 9, 1, 12, 2, 5])

    def plan(self, episodes: Episodes) -> Plan:
        """Return the transform of shuffled steps.

        Args:
            episodes: Episodes: all that `episodes` returns, or a part.
        """
        return self.transform().reorder(Shuffle(1).reorder(Steps().plan(episodes)))

    def test_each_epoch_has_the_samples_of_the_epoch_below(self) -> None:
        """Over a plan with another order in every epoch, and over one whose epochs have unequal lengths."""
        below = Shuffle(1).reorder(Steps().plan(self.episodes()))
        self._same_epochs(below)
        if self.takes_uneven:
            self._same_epochs(_uneven(self.episodes()))

    def test_epochs_of_unequal_lengths_follow_one_another(self) -> None:
        """As `test_epochs_follow_one_another`, over a plan whose epochs have unequal lengths; or they are refused."""
        if not self.takes_uneven:
            _raises_plan_error(lambda: self.transform().reorder(_uneven(self.episodes())), "a variable-length plan")
            return
        uneven = _Over(self.transform())
        uneven.test_epochs_follow_one_another()
        uneven.test_what_a_plan_says_of_its_epochs_is_true()
        uneven.test_resolving_in_parts_is_resolving()

    def _same_epochs(self, below: Plan) -> None:
        plan = self.transform().reorder(below)
        for epoch in range(24 if self.keeps_samples else 0):
            assert sorted(samples_of(plan, epoch)) == sorted(samples_of(below, epoch)), f"in epoch {epoch}"


class _Over(PlanContract):
    """A transform over epochs of unequal lengths."""

    def __init__(self, transform: PlanTransform) -> None:
        self._transform = transform

    def episodes(self) -> Episodes:
        return episodes_of([3, 8, 1, 5, 5, 5, 2, 2])

    def plan(self, episodes: Episodes) -> Plan:
        return self._transform.reorder(_uneven(episodes))


def _uneven(episodes: Episodes) -> Plan:
    """Packs that are planned again in every epoch: some epochs have one pack more than others."""
    pack = Pack(12, method="next_fit", repack=True, max_sequences=6)
    return pack.reorder(Shuffle(1).reorder(Sequences().plan(episodes)))


def samples_of(plan: Plan, epoch: int) -> list[tuple[int, ...]]:
    """Return the rows that each sample of an epoch reads in all views: equal tuples are equal samples.

    Args:
        plan: The plan.
        epoch: Number of the epoch, from 0.

    Returns:
        One tuple for each sample.

    Example:
        >>> from penstock.plan import Steps
        >>> len(samples_of(Steps().plan(episodes_of([2, 3])), 0))
        5
    """
    return _samples(plan, np.arange(plan.start(epoch), plan.start(epoch + 1)))


def episodes_of(lengths: Sequence[int], aligns: dict[str, Align] | None = None, lead: int = 0) -> Episodes:
    """Return a table of episodes.

    Args:
        lengths: Steps of each episode.
        aligns: Alignment of each column. The default is None: observations, actions, rewards and a seed.
        lead: Number of the first episode, as if so many empty ones came before. The default is 0.

    Returns:
        The table.

    Example:
        >>> episodes_of([2, 3]).start.tolist()
        [0, 2]
    """
    length = np.array(lengths, np.int64)
    columns = aligns or {"observations": "boundary", "actions": "step", "rewards": "step", "seed": "episode"}
    start = np.cumsum(length) - length
    return Episodes(
        np.zeros(len(length), np.int64), np.arange(len(length)) + lead, start, length, columns, f"{lengths} {lead}"
    )


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(a, b) for i, a in enumerate(names) for j, b in enumerate(names) if i != j]


def _grid(selection: Selection) -> IntArray:
    """`[n, 3 L]`: row, source and whether it is real, of each place; -1 where nothing is."""
    parts = (selection.rows(), _spread(selection, selection.source), selection.mask())
    return np.concatenate([np.asarray(part, np.int64) for part in parts], axis=1)


def _spread(selection: Selection, values: Any) -> IntArray:
    """`[n, L]`: the value of the span that covers each place, -1 where none does."""
    out = np.full(selection.shape[0] * selection.shape[1], -1)
    for destination, length, value in zip(
        selection.destination.tolist(), selection.length.tolist(), values.tolist(), strict=True
    ):
        out[destination : destination + length] = value
    return out.reshape(selection.shape)


def _grids(plan: Plan, k: IntArray) -> list[IntArray]:
    return [_grid(selection) for selection in plan.resolve(k)]


def _samples(plan: Plan, k: IntArray) -> list[tuple[int, ...]]:
    """What each sample reads, in all views."""
    return [tuple(row) for row in np.concatenate(_grids(plan, k), axis=1).tolist()] if len(k) else []


def _rows_of(plan: Plan, epoch: int) -> list[list[tuple[int, int]]]:
    """The rows of an epoch in each view, with their sources, sorted, in any grouping."""
    selections = plan.resolve(np.arange(plan.start(epoch), plan.start(epoch + 1)))
    pairs = [(s.rows().ravel().tolist(), _spread(s, s.source).ravel().tolist()) for s in selections]
    return [sorted(pair for pair in zip(rows, sources, strict=True) if pair[0] >= 0) for rows, sources in pairs]


def _owners(episodes: Episodes, align: str, selection: Selection) -> IntArray:
    """`[n, L]` which of the episodes the row of each place belongs to; -2 if to none."""
    first = {"step": episodes.start, "boundary": episodes.start + episodes.index, "episode": episodes.index}[align]
    count = {"step": episodes.length, "boundary": episodes.length + 1, "episode": episodes.length * 0 + 1}[align]
    row, source = selection.rows()[..., None], _spread(selection, selection.source)[..., None]
    mine = (row >= first) & (row < first + count) & (source == episodes.source)
    return np.where(mine.any(axis=-1), mine.argmax(axis=-1), -2)


def _raises_plan_error(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except PlanError:
        return
    raise AssertionError(f"expected PlanError for {what}")
