"""The episodes of a source as a person handles them: look, filter, split, and cut into samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns, flatten
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.spec import Field, Spec
from penstock.data.map_dataset import MapDataset
from penstock.errors import StateError
from penstock.formats.base.source import Source
from penstock.formats.memory import MemorySource
from penstock.plan.anchored import Pad
from penstock.plan.base import EpisodeTransform, SampleTransform
from penstock.plan.episodes import Episodes
from penstock.plan.pairs import Pairs
from penstock.plan.sequences import Sequences
from penstock.plan.split import Split
from penstock.plan.steps import Steps
from penstock.plan.target_pairs import PairKind, TargetPairs
from penstock.plan.where import TakeEpisodes, Where
from penstock.plan.windows import Windows


class EpisodeDataset:
    """Episodes of one source, in an order, some of them left out or all there.

    `len(data)` counts episodes, `data[i]` reads one whole, iterating reads one after the other. `where`, `split` and
    `take` choose episodes; `samples`, `windows`, `pairs` and `target_pairs` cut them into a `MapDataset`. Nothing is
    read until asked.

    >>> import penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
    >>> len(data), data.steps, data[1].rewards.tolist()
    (2, 5, [2.0, 3.0, 4.0])
    """

    def __init__(
        self, source: Source, episodes: Episodes | None = None, *, chosen: Sequence[EpisodeTransform] = ()
    ) -> None:
        self.source = source
        self.episodes = Episodes.of(source) if episodes is None else episodes
        self._chosen = tuple(chosen)  # what led from all episodes to these

    def __len__(self) -> int:
        return len(self.episodes)

    def __repr__(self) -> str:
        return f"EpisodeDataset({len(self)} episodes, {self.steps} steps, columns={list(self.spec)})"

    def __getitem__(self, i: int) -> Episode:
        """Episode `i` of those chosen. Raises `IndexError`."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"expected an episode within 0:{len(self)}, got {i}")
        return self.source.episode(int(self.episodes.index[i]))

    def __iter__(self) -> Iterator[Episode]:
        return self.source.episodes(self.episodes.index.tolist())

    def __enter__(self) -> EpisodeDataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the source's files."""
        self.source.close()

    @property
    def spec(self) -> Spec:
        """Columns and spaces."""
        return self.source.spec

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What is stored about the whole dataset."""
        return self.source.metadata

    @property
    def steps(self) -> int:
        """How many steps the chosen episodes have together."""
        return self.episodes.steps

    def table(self) -> Columns:
        """One row an episode: `id`, `total_steps`, and every numeric metadata entry, as in `Source.table`."""
        return self.episodes.table()

    def refresh(self) -> EpisodeDataset:
        """All episodes of the source as it is now, those appended since it was opened included."""
        self.source.refresh()
        return EpisodeDataset(self.source)

    def until(self, episodes: int) -> EpisodeDataset | None:
        """These episodes as they were when the source had its first `episodes` alone, chosen by the same transforms.

        None if the source cannot say what its fingerprint was. Raises `StateError` if it has fewer by now.
        """
        if episodes > len(self.source):
            raise StateError(
                f"expected a source of at least {episodes} episodes, got {len(self.source)}; it has shrunk"
            )
        earlier = Episodes.of(self.source, episodes)
        if earlier is None:
            return None
        return reduce(EpisodeDataset.choose, self._chosen, EpisodeDataset(self.source, earlier))

    def choose(self, transform: EpisodeTransform) -> EpisodeDataset:
        """The episodes that a transform leaves: `data.choose(Where("total_steps > 10"))`."""
        chosen = (*self._chosen, transform)
        return EpisodeDataset(self.source, transform.choose(self.episodes), chosen=chosen)

    def where(self, condition: str | Callable[[Columns], npt.NDArray[np.bool_]]) -> EpisodeDataset:
        """The episodes whose metadata meet a condition, by `penstock.plan.Where`.

        >>> import penstock
        >>> penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3]).where("total_steps > 2").steps
        3
        """
        return self.choose(Where(condition))

    def split(self, *fractions: float, seed: int = 0) -> tuple[EpisodeDataset, ...]:
        """Disjoint parts of the episodes by fractions that add up to 1, by `penstock.plan.Split`.

        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": np.zeros(10)}, lengths=[1] * 10)
        >>> [len(part) for part in data.split(0.8, 0.2)]
        [8, 2]
        """
        return tuple(self.choose(Split(fractions, part, seed)) for part in range(len(fractions)))

    def take(self, episodes: Sequence[int] | npt.NDArray[np.int64]) -> EpisodeDataset:
        """The given episodes of this dataset, in that order. Raises `IndexError`."""
        return self.choose(TakeEpisodes(np.arange(len(self))[np.asarray(episodes, np.int64)]))

    def cut(self, transform: SampleTransform) -> MapDataset:
        """The samples that a transform cuts: `data.cut(Windows(16))`."""
        return MapDataset([self.source], transform.plan(self.episodes), origin=_Cut(self, transform))

    def samples(self, *, next_observations: bool = False) -> MapDataset:
        """Every step as a sample, by `penstock.plan.Steps`."""
        return self.cut(Steps(next_observations))

    def windows(
        self,
        length: int,
        *,
        past: int = 0,
        stride: int = 1,
        pad: Pad = "drop",
        columns: Mapping[str, tuple[int, int] | tuple[str, int, int]] | None = None,
    ) -> MapDataset:
        """Windows of consecutive steps, by `penstock.plan.Windows`."""
        return self.cut(Windows(length, past, stride, pad, columns or {}))

    def pairs(self, offset: int = 1) -> MapDataset:
        """Pairs of steps of one episode, by `penstock.plan.Pairs`."""
        return self.cut(Pairs(offset))

    def target_pairs(
        self,
        kind: PairKind,
        offset: int = 1,
        *,
        last: bool = False,
        stride: int = 1,
        observations: str = "observations",
        actions: str = "actions",
        rewards: str = "rewards",
    ) -> MapDataset:
        """A `context` and the `target` to be told from it, by `penstock.plan.TargetPairs`, which names the kinds.

        >>> import penstock
        >>> columns = {"observations": np.arange(7), "actions": np.zeros(5, int)}
        >>> pairs = penstock.from_arrays(columns, lengths=[2, 3]).target_pairs("temporal", last=True)[:]
        >>> pairs["context"].tolist(), pairs["target"].tolist(), pairs["traj_ts_ids"][-1].tolist()
        ([0, 1, 3, 4, 5], [1, 2, 4, 5, 6], [1, 3])
        """
        return self.cut(TargetPairs(kind, offset, last, stride, observations, actions, rewards))

    def sequences(self, *, final: bool = False) -> MapDataset:
        """Every episode whole, one a sample, by `penstock.plan.Sequences`: what `pack` packs."""
        return self.cut(Sequences(final))


@dataclass(frozen=True)
class _Cut:
    """How samples were cut from episodes."""

    episodes: EpisodeDataset
    transform: SampleTransform

    def until(self, episodes: Sequence[int]) -> MapDataset | None:
        earlier = self.episodes.until(episodes[0])
        return None if earlier is None else earlier.cut(self.transform)


def from_arrays(
    columns: Mapping[str, Any], lengths: Sequence[int], *, metadata: Mapping[str, Any] | None = None
) -> EpisodeDataset:
    """Episodes out of arrays in memory: `columns` (nested or by path) holds all episodes one after the other, and
    `lengths` their steps.

    A column with one row a step more for each episode is aligned with boundaries (observations before the first and
    after each step), one with as many rows as steps with steps.

    Raises `SpecError` if a column's rows fit neither.

    >>> data = from_arrays({"observations": np.zeros((7, 2)), "actions": np.zeros(5)}, lengths=[2, 3])
    >>> data.spec["observations"].align, data[0].observations.shape
    ('boundary', (3, 2))
    """
    flat = flatten(columns)
    offsets = offsets_of(lengths)
    spec = Spec({path: _field(array, int(offsets[-1]), len(lengths)) for path, array in flat.items()})
    return EpisodeDataset(MemorySource(spec, flat, offsets, metadata))


def _field(array: Array, steps: int, episodes: int) -> Field:
    align = "boundary" if len(array) == steps + episodes and episodes else "step"
    if isinstance(array, Ragged):
        return Field(array.dtype, array.values.shape[1:], align, "ragged")
    return Field(array.dtype, array.shape[1:], align)
