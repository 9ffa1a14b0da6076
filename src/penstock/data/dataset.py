"""`EpisodeDataset`: choose episodes and cut them into samples."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

import numpy as np
import numpy.typing as npt

import penstock  # it fetches `convert`, which is built on this package, when a mapped dataset is written
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.columns import Columns
from penstock.core.episode import Episode
from penstock.core.html import page, steps, table
from penstock.core.narrowing import is_integer, is_mapping
from penstock.core.other_names import EPISODES, OtherNames
from penstock.core.spec import Align, Field, Spec
from penstock.core.text import counted
from penstock.data.cached import CachedSource, picture_columns
from penstock.data.curated import CuratedEpisodes
from penstock.data.curation import Curation
from penstock.data.dataset_picture import DatasetPicture
from penstock.data.derived import DerivedSource
from penstock.data.derived_column import DerivedColumn
from penstock.data.episode_function import EpisodeFunction
from penstock.data.episode_map import EpisodeMap, RandomizedFunction
from penstock.data.episode_selection import EpisodeSelection
from penstock.data.map_dataset import MapDataset
from penstock.data.map_function import ColumnFunction
from penstock.data.mapped import MappedSource, read_only_episode
from penstock.data.names import step_text
from penstock.data.partition import SplitRules, partition
from penstock.data.planned_samples import PlannedSamples
from penstock.data.progress import progress_bar
from penstock.errors import ArgumentError, PlanError
from penstock.formats.base.findings import Finding
from penstock.formats.base.metadata import stated_rate
from penstock.formats.base.source import Source
from penstock.plan.anchored import Pad
from penstock.plan.delta_timestamps import DeltaTimestamps
from penstock.plan.select import rows_of_mask
from penstock.plan.sequences import Sequences
from penstock.plan.steps import NStepRows, NStepSums, Pairs, Steps, require_summable
from penstock.plan.transform import EpisodeTransform, SampleTransform, require_transform
from penstock.plan.where import TakeEpisodes, Where
from penstock.plan.windows import RangeEntry, Windows


class EpisodeDataset(OtherNames):
    """Ordered episodes of one source.

    `len(data)` counts episodes, `data[i]` reads one episode, and a `for` loop reads all of them. `filter`, `split`,
    `data[2:5]` and `data[[4, 2]]` choose episodes. `steps`, `transitions`, `windows`, `pairs` and `sequences` make a
    `MapDataset`. Values are read only when needed.

    Args:
        source: The opened dataset that has the values, or chosen episodes of one.

    Attributes:
        source: The opened dataset.
        episodes: Table of the chosen episodes.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
        >>> len(data), data.total_steps, data[1].rewards.tolist()
        (2, 5, [2.0, 3.0, 4.0])
    """

    _other_names = EPISODES

    def __init__(self, source: Source | EpisodeSelection) -> None:
        self._selection = source if isinstance(source, EpisodeSelection) else EpisodeSelection.of(source)
        self.source = self._selection.source
        self.episodes = self._selection.episodes

    def __len__(self) -> int:
        return len(self.episodes)

    def __repr__(self) -> str:
        chain = " > ".join(self._selection.chain)
        return f"EpisodeDataset({self._size}, columns={list(self.spec)}, chain={chain})"

    def _repr_html_(self) -> str:
        rows = [
            (path, str(field.dtype), "x".join(map(str, field.shape)) or "-", field.align, field.kind)
            for path, field in self.spec.items()
        ]
        headers = ("column", "dtype", "shape", "align", "kind")
        return page("EpisodeDataset", self._size, steps(self._selection.chain), table(headers, rows))

    def show(self, findings: Sequence[Finding] = ()) -> DatasetPicture:
        """Show what the dataset is, in a notebook: lengths, returns, columns, texts, pictures, and what is left out.

        The page is inline, without a server and without scripts. `penstock serve` has it with all episodes.

        Args:
            findings: Findings to show, such as `penstock.check(data).findings`. The default is none.

        Returns:
            The page. Cost: reads the rewards, and of a large dataset a sample of the other columns. Pictures need
            Pillow.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[2, 1])
            >>> data.show(penstock.check(data).findings)
            Picture of 2 episodes, 3 steps
        """
        return DatasetPicture(self, tuple(findings))

    @property
    def _size(self) -> str:
        return f"{counted(len(self), 'episode')}, {counted(self.total_steps, 'step')}"

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Sequence[bool] | IntArray | BoolArray) -> EpisodeDataset: ...
    def __getitem__(self, index: Any) -> Any:
        """Read one whole episode for an integer. Choose episodes, in the given order, for anything else.

        `list(data[[4, 2]])` reads several: it copies many at a time, at the speed of memory.

        Args:
            index: Number of an episode, which counts from the end if it is negative. Or several numbers, a slice, or a
                mask, `[E]` bool, for a dataset of these episodes.

        Raises:
            IndexError: There is no such episode, or the mask has another length.
            ArgumentError: `index` is none of these.
        """
        if is_integer(index) and not isinstance(index, bool):
            number, n = operator.index(index), len(self)
            if not -n <= number < n:
                raise IndexError(f"expected an episode within 0:{n}, got {number}")
            return self._selection.episode(number % n)
        if isinstance(index, slice):
            return self.apply(TakeEpisodes(np.arange(len(self))[index]))
        numbers = np.asarray(index)
        if numbers.dtype == np.bool_ and numbers.ndim == 1:
            if len(numbers) != len(self):
                raise IndexError(f"expected a mask of {len(self)} episodes, got one of {len(numbers)}")
            return self.apply(TakeEpisodes(np.flatnonzero(numbers)))
        if numbers.ndim > 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            hint = "data[3] is an episode; data[2:5], data[[4, 2]] and data[mask] are datasets of several"
            raise ArgumentError(f"expected numbers of episodes, got {index!r}; {hint}")
        if not numbers.ndim:
            return self[int(numbers)]
        numbers = numbers.astype(np.int64)
        if numbers.size and not -len(self) <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"expected episodes within 0:{len(self)}, got {numbers.min()}:{numbers.max() + 1}")
        return self.apply(TakeEpisodes(np.where(numbers < 0, numbers + len(self), numbers)))

    def __getitems__(self, numbers: object) -> NoReturn:
        """Raise `ArgumentError`: PyTorch's `DataLoader` calls this for a batch, and episodes do not stack."""
        raise ArgumentError(
            "expected a dataset of samples in a PyTorch DataLoader, got one of episodes, whose lengths differ; call "
            'steps(), windows(length) or sequences() first, and loader(batch_size, output="torch") on the result'
        )

    def __iter__(self) -> Iterator[Episode]:
        return self._selection.read(range(len(self)))

    def __enter__(self) -> EpisodeDataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files of the source."""
        self.source.close()

    @property
    def spec(self) -> Spec:
        """Columns, with their dtypes, shapes and alignment, and the observation and action spaces."""
        return self.source.spec

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the whole dataset."""
        return self.source.metadata

    @property
    def total_steps(self) -> int:
        """Total number of steps of the chosen episodes."""
        return self.episodes.steps

    def table(self) -> Columns:
        """Return episode ids, lengths and numeric metadata as columns with a row for each chosen episode.

        Returns:
            `id` and `total_steps`, `[E]` int64, and each numeric metadata entry. An entry is int64 if every episode has
            an integer, and otherwise float64 with NaN where it is missing.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[2, 1])
            >>> data.table()["total_steps"].tolist()
            [2, 1]
        """
        return self.episodes.table()

    def refresh(self) -> EpisodeDataset:
        """Return all episodes of the source as it is now, with episodes that were appended since it was opened.

        Episodes that a curation excludes are still left out.
        """
        return EpisodeDataset(self._selection.refreshed())

    @overload
    def apply(self, transform: EpisodeTransform | Curation) -> EpisodeDataset: ...
    @overload
    def apply(self, transform: SampleTransform) -> MapDataset: ...
    def apply(self, transform: EpisodeTransform | Curation | SampleTransform) -> EpisodeDataset | MapDataset:
        """Choose episodes, or cut them into samples, with a transform.

        A `Curation` leaves out the episodes and spans that it excludes, and adds its marks to `table()`: `rating`,
        `[E]` float64 with NaN for none, and `tags/<tag>` and `spans/<tag>`, `[E]` bool. `penstock.open(curation=)` does
        so. The fingerprint depends on the marks, except notes. An excluded span cuts its episode: the steps before and
        after it are episodes of this dataset, with the same `id`. So no window, pair, pack or goal reads excluded
        steps. The observation after the last step before a span is read where next observations are.

        Args:
            transform: Such as `Where("total_steps > 10")`, which chooses episodes, or `Windows(16)`, which makes
                samples. Or a `Curation` for the episodes of the source, whose later changes have no effect.

        Raises:
            PlanError: The transform does not fit the columns.
            ArgumentError: `transform` is none of these.
            StateError: The curation is for another dataset, or the dataset changed since.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[2, 1])
            >>> long = data.apply(penstock.transforms.Where("total_steps > 1"))
            >>> len(long), len(data.apply(penstock.transforms.Windows(2)))
            (1, 1)
            >>> curation = penstock.curation.Curation.of(data.source)
            >>> curation[0] = penstock.curation.EpisodeMarks(excluded=True)
            >>> data.apply(curation).table()["id"].tolist()
            [1]
        """
        if isinstance(transform, SampleTransform):
            return MapDataset(_cut(self._selection, transform))
        if isinstance(transform, Curation):
            marks = transform.copy()
            marks.require(self.source)
            transform = CuratedEpisodes(marks)
        hint = "steps(), windows(16), pairs() or sequences() make samples, which have apply()"
        require_transform(transform, EpisodeTransform, "of episodes, such as Where or Windows, or a Curation", hint)
        return EpisodeDataset(self._selection.choose(transform))

    def filter(self, condition: str | Callable[[Columns], BoolArray] | Sequence[bool] | BoolArray) -> EpisodeDataset:
        """Keep the episodes whose metadata meet a condition. See `penstock.plan.Where`.

        Args:
            condition: An expression over the columns of `table()`, the stored columns of episodes and `return`, the
                sum of their rewards, such as `"return >= 100 and total_steps > 20"` or `"success and task == 'pick'"`,
                or a function from these `Columns` to `[E]` bool, or a mask, `[E]` bool.

        Raises:
            PlanError: The expression has an unknown column or operation, or the result is not `[E]` bool.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
            >>> data.filter("total_steps > 2 and return > 8").total_steps, data.filter([True, False]).total_steps
            (3, 2)
        """
        if isinstance(condition, str) or callable(condition):
            return self.apply(Where(condition))
        return self.apply(TakeEpisodes(rows_of_mask(condition, len(self), "episode")))

    @overload
    def split(
        self,
        *sizes: float,
        by: str | None = None,
        groups: Sequence[Any] | AnyArray | None = None,
        time: str | None = None,
        duplicates: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> tuple[EpisodeDataset, ...]: ...
    @overload
    def split(
        self,
        sizes: Mapping[str, float],
        /,
        *,
        by: str | None = None,
        groups: Sequence[Any] | AnyArray | None = None,
        time: str | None = None,
        duplicates: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> dict[str, EpisodeDataset]: ...
    def split(
        self,
        *sizes: Any,
        by: str | None = None,
        groups: Sequence[Any] | AnyArray | None = None,
        time: str | None = None,
        duplicates: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> tuple[EpisodeDataset, ...] | dict[str, EpisodeDataset]:
        """Split the episodes into disjoint parts, without leakage from one to another.

        Episodes with the same values are in one part. So are all that exclusions of spans leave of one episode, and
        what `by`, `groups` and `time` keep together. Sizes are exact if nothing has to stay together. Otherwise a part
        is off by less than the largest group.

        Args:
            sizes: Fraction of the episodes for each part, which add up to 1, or number of episodes, of at most all. Or
                one mapping from names to them.
            by: Metadata of episodes, or column, whose value must not be in two parts. Of a column, the first row of an
                episode counts. The default is None: episodes are drawn one by one.
            groups: `[E]` label of each episode; a label must not be in two parts. The default is None.
            time: Metadata of episodes, or column of one number, that orders them: the first part gets the earliest
                ones. The default is None: parts are drawn at random. If it is a column, a warning counts the episodes
                that go on after a later part begins.
            duplicates: Whether episodes with the same values may be in different parts. The default is False, which
                reads a first and last row of each episode, and all values of episodes that agree in them.
            seed: Seed of the draw, 0 to 2^64 - 1. The default is 0.
            threads: Threads that look for duplicates. The default is None: the number of cores.

        Returns:
            One dataset for each size, or a dict of them for a mapping. Each keeps the order of its episodes. Every
            episode is in one part, or in none if sizes are numbers that add up to less.

        Raises:
            ArgumentError: There is no such metadata or column, times are no numbers, or there are too few labels.
            PlanError: The sizes are neither fractions that add up to 1, nor numbers of at most all episodes, or the
                seed is out of range.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(10.0)}, lengths=[1] * 10)
            >>> train, test = data.split(0.8, 0.2, seed=1)
            >>> len(train), len(test)
            (8, 2)
            >>> parts = data.split({"train": 0.8, "test": 0.2}, groups=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
            >>> {name: part.table()["id"].tolist() for name, part in parts.items()}["test"] in ([0, 1], [2, 3], [4, 5])
            True
        """
        named = len(sizes) == 1 and is_mapping(sizes[0])
        by_name = dict(sizes[0]) if named else {str(number): size for number, size in enumerate(sizes)}
        rules = SplitRules(by, groups, time, duplicates, seed, threads)
        divided = partition(self._selection, by_name, rules)
        parts = {name: EpisodeDataset(selection) for name, selection in divided.items()}
        return parts if named else tuple(parts.values())

    def with_column(
        self,
        name: str,
        fn: Callable[[Episode], Any] | EpisodeFunction,
        align: Align | None = None,
        version: str | int | None = None,
        *,
        dtype: npt.DTypeLike | None = None,
        shape: tuple[int, ...] | None = None,
        memory: int | None = None,
    ) -> EpisodeDataset:
        """Add a column that a function computes from whole episodes, such as returns.

        The column is then read like a stored one: by windows, pairs, packs, mixes and other derived columns. Values are
        computed when batches first need them, for many episodes at a time by all cores, and kept. The fingerprint
        covers the function, as in `MapDataset.map`.

        Args:
            name: Path of the new column.
            fn: A ready-made function such as `penstock.columns.returns_to_go(0.99)`, or a function of one
                `Episode`. Columns of the episode are read when the function uses them, as read-only arrays. It
                returns an array with T rows for `"step"`, T + 1 for `"boundary"`, and one row or number for
                `"episode"`. Each episode must give the same values again. Threads call it.
            align: `"step"`, `"boundary"` or `"episode"`. The default is that of a ready-made function, else `"step"`.
            version: Text or number that replaces the digest of `fn`. The default is None.
            dtype: Dtype of the values. The default is the dtype that `fn` returns for the first episode.
            shape: Shape of a row. The default is the shape for the first episode. With `dtype` and `shape`, `fn` is not
                called here.
            memory: Bytes up to which the whole column is kept in memory. A larger one is kept in the user's cache
                (`PENSTOCK_CACHE`), and later runs read it from there. The default is None: 256 MiB. 0 always uses the
                cache, which suits a slow `fn`.

        Returns:
            The same episodes with one column more. After `refresh`, values of new episodes are computed; a column in
            the cache is then computed again.

        Raises:
            SpecError: The name is taken, a ready-made function misses a column, or `fn` returns rows that do not fit;
                the message names the episode. Errors of other episodes are raised when they are read.
            DataError: `fn` raises an error, which is the cause.
            ArgumentError: An argument has a wrong type.
            StateError: The source has more episodes now than this dataset and does not know its earlier fingerprint.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.array([1.0, 2.0, 4.0])}, lengths=[2, 1])
            >>> with_returns = data.with_column("returns", penstock.columns.returns_to_go(gamma=0.5))
            >>> with_returns.windows(2)[:]["returns"].tolist()
            [[2.0, 2.0]]

            A function of your own:

            >>> scaled = data.with_column("scaled", lambda episode: episode.rewards / episode.rewards.sum())
            >>> scaled[0].columns["scaled"].round(2).tolist()
            [0.33, 0.67]
        """
        column = DerivedColumn.of(self.source, name, fn, align, version, dtype, shape)
        return EpisodeDataset(self._selection.over(DerivedSource(self.source, column, memory)))

    def map_episodes(
        self,
        fn: Callable[[Episode], Any] | RandomizedFunction | Callable[[], Any],
        *,
        column: str | None = None,
        align: Align | Mapping[str, Align] | None = None,
        seed: int = 0,
        version: str | int | None = None,
    ) -> MappedEpisodes:
        """Change every episode by a function: leave it out, or add or replace columns. See also `with_column`.

        `write` of the result writes a new dataset, also on several processes or machines. Without `write`, columns are
        computed when they are read, whole episodes at a time; the results that were used last are kept (256 MiB).
        Reading an episode that the function leaves out is then an error: choose the others first. Metadata of episodes
        stay as they are. The fingerprint covers the function, as in `MapDataset.map`.

        Args:
            fn: A function of one `Episode`, whose arrays are read-only. It returns a dict of columns by path, which are
                added, or replace columns of the same path; True to keep the episode as it is; or None or False to leave
                it out. A column is an array with T rows for T steps or T + 1, or one number or text for the episode; a
                list of str is text for each row, and `Ragged` has rows of varying length. Each episode must give the
                same again, and each has the columns, dtypes and shapes of the first. If `fn` has an argument `rng`, it
                gets a NumPy generator that is seeded by `seed` and the number of the episode. A class, or a function
                without arguments, is called once in each process, and what it returns is the function: load a model
                there.
            column: Name of the one column that `fn` returns, instead of a dict; only None then leaves an episode out.
                The default is None.
            align: `"step"`, `"boundary"` or `"episode"`, of all columns that `fn` returns or by path; `"episode"` says
                that an array is one row, of the episode. The default is the alignment of the column that is replaced,
                else by the number of rows.
            seed: Seed of `rng`, 0 or more. The default is 0.
            version: Text or number that replaces the digest of `fn`. The default is None.

        Returns:
            The same episodes with other columns, and the method `write`.

        Raises:
            SpecError: `fn` returns something else; the message names the episode. Errors of episodes after the first
                that is kept are raised when they are read.
            DataError: `fn` raises an error, which is the cause.
            ArgumentError: An argument has a wrong type or value.

        Example:
            >>> import numpy as np, penstock, tempfile
            >>> data = penstock.from_arrays({"rewards": np.array([1.0, 2.0, 4.0])}, lengths=[2, 1])
            >>> changed = data.map_episodes(lambda one: {"rewards": -one.rewards, "best": one.rewards.max()})
            >>> changed[0].rewards.tolist(), changed[1].columns["best"].tolist()
            ([-1.0, -2.0], [4.0])

            Without the episodes for which it returns None:

            >>> long = data.map_episodes(lambda episode: len(episode) > 1)
            >>> report = long.write(tempfile.mkdtemp() + "/long")
            >>> report.episodes, report.left_out
            (1, (1,))
        """
        return mapped_episodes(self, EpisodeMap(fn, column, align, seed, version))

    def cached(self, *columns: str) -> EpisodeDataset:
        """Keep columns decoded in the user's cache, such as frames of videos.

        The first read of a column decodes all of it into a column store in the cache (`PENSTOCK_CACHE`). Then and in
        later runs, rows are gathered from there. `penstock cache` does so in advance. Values and fingerprint stay, so a
        saved run continues with or without the cache, which has at most 64 GiB: the least recently used columns go.

        Args:
            columns: Paths of columns. The default is all pictures: columns of uint8 with three axes.

        Returns:
            The same episodes.

        Raises:
            SpecError: There is no such column, or its rows have several shapes.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"image": np.ones((3, 4, 4, 3), np.uint8)}, lengths=[3])
            >>> data.cached("image").steps()[:2]["image"].shape
            (2, 4, 4, 3)
        """
        source = self.source
        for name in columns or picture_columns(self.spec):
            source = CachedSource(source, name)
        return EpisodeDataset(self._selection.over(source))

    def steps(self) -> MapDataset:
        """Make a sample of every step. See `penstock.plan.Steps`.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"observations": [0, 1, 2], "actions": [5, 6]}, lengths=[2])
            >>> batch = data.steps()[:]
            >>> batch["observations"].tolist(), batch["actions"].tolist()
            ([0, 1], [5, 6])
        """
        return self.apply(Steps())

    def transitions(self, n_step: int = 1, gamma: float = 0.99) -> MapDataset:
        """Make a sample of every step with what followed it, as for `penstock.replay.Transitions` of a replay.

        With `n_step > 1`, `rewards` is the discounted sum over the next `n_step` steps. The sum ends early with the
        episode, and at a termination inside it. `next_observations` is the observation after the last step of the sum,
        and `terminations` and `truncations` are the flags of this step. After a termination inside an episode,
        `next_observations` has no meaning. `discounts` is the factor for the value of the next observation: `gamma` to
        the number of steps, or 0 after a termination. A truncated episode keeps its factor.

        Args:
            n_step: Number of steps to sum rewards over, at least 1. The default is 1: stored rewards, no `discounts`.
            gamma: Discount factor of one step, 0 to 1. The default is 0.99.

        Returns:
            Samples with all columns at the step, and `next_observations`. Sums are float32, or float64 where the stored
            rewards are float64 or integers of 32 or 64 bits.

        Raises:
            PlanError: The dataset has no `observations` with T + 1 rows for T steps, or has `next_observations`. A
                number is out of range. With `n_step > 1`: there are no `rewards`, `terminations` or `truncations`.
            SpecError: With `n_step > 1`: a step has several flags.

        Example:
            >>> import numpy as np, penstock
            >>> columns = {"observations": np.arange(4.0), "rewards": np.ones(3)}
            >>> flags = {"terminations": [False, False, True], "truncations": [False] * 3}
            >>> data = penstock.from_arrays(columns | flags, lengths=[3])
            >>> batch = data.transitions()[:]
            >>> batch["observations"].tolist(), batch["next_observations"].tolist()
            ([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
            >>> batch = data.transitions(n_step=2, gamma=0.5)[:]
            >>> batch["rewards"].tolist(), batch["next_observations"].tolist(), batch["discounts"].tolist()
            ([1.5, 1.5, 1.0], [2.0, 3.0, 3.0], [0.25, 0.0, 0.0])
        """
        rows, sums = NStepRows(n_step), NStepSums(n_step, gamma)
        if rows.n_step == 1:
            return self.apply(Steps(next_observations=True))
        require_summable(self.spec, n_step)
        return MapDataset(_cut(self._selection, rows, (sums,)))

    def windows(
        self,
        length: int,
        *,
        past: int = 0,
        stride: int = 1,
        pad: Pad = "drop",
        columns: Mapping[str, RangeEntry] | None = None,
        pad_before: int | None = None,
        pad_after: int | None = None,
        frame_skip: int = 1,
    ) -> MapDataset:
        """Make samples of `length` consecutive steps of one episode. See `penstock.plan.Windows`.

        Args:
            length: Steps of a window, at least 1.
            past: How many of these steps come before the anchor step. The default is 0.
            stride: Steps from one anchor to the next, at least 1. The default is 1.
            pad: `"drop"` leaves out windows that reach beyond the episode. `"zero"` and `"repeat"` pad them, and add a
                `mask`.
            columns: Ranges of single columns, `(lo, hi)` steps from the anchor, or `(lo, hi, k)` for every `k`-th of
                them. With a column before them, such as `(column, lo, hi)`, the output has another name. The default is
                the whole window for every column.
            pad_before: Most padded rows before the episode: the first sample begins so many steps before it. The
                default is None: anchors begin at step 0.
            pad_after: Most padded rows after the episode. The default is None: anchors continue to the last step.
            frame_skip: Steps from one row of a window to the next, for columns without a range. The default is 1.

        Returns:
            Samples with columns `[n, length, ...]`.

        Raises:
            PlanError: A range is empty, a number is out of range, or a column is unknown.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
            >>> data.windows(2)[:]["rewards"].tolist()
            [[0.0, 1.0], [2.0, 3.0], [3.0, 4.0]]
        """
        return self.apply(Windows(length, past, stride, pad, columns or {}, pad_before, pad_after, frame_skip))

    def delta_timestamps(
        self, offsets: Mapping[str, Sequence[float]], *, fps: float | None = None, tolerance: float = 1e-4
    ) -> MapDataset:
        """Make a sample of every step, with rows at several times around it. See `penstock.transforms.DeltaTimestamps`.

        Args:
            offsets: Seconds from the step for each column, by path, by the start of paths, or by the name that LeRobot
                has for it.
            fps: Steps a second. The default is None: `metadata["fps"]`.
            tolerance: Most seconds between a time and the nearest multiple of `1 / fps`. The default is 1e-4.

        Returns:
            Samples with columns `[n, L, ...]` and a `<column>_mask` `[n, L]` for each column with times, and `[n, ...]`
            for the others. Rows beyond the episode repeat its first or last row, and their mask is False.

        Raises:
            PlanError: A time is no multiple of `1 / fps`, a column is unknown, or the dataset does not have its `fps`.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"actions": [5, 6, 7]}, lengths=[3])
            >>> data.delta_timestamps({"actions": [0.0, 0.5]}, fps=2)[:]["actions"].tolist()
            [[5, 6], [6, 7], [7, 7]]
        """
        rate = stated_rate(self.metadata) if fps is None else fps
        if rate is None:
            raise PlanError("expected fps=, the steps a second, because the metadata do not have it")
        names = self.metadata.get("names")
        paths = {name: path for path, name in names.items()} if is_mapping(names) else {}
        times = {name if name in self.spec else paths.get(name, name): given for name, given in offsets.items()}
        return self.apply(DeltaTimestamps(times, rate, tolerance))

    def pairs(self, offset: int = 1) -> MapDataset:
        """Make pairs of two steps of one episode. See `penstock.plan.Pairs`.

        Args:
            offset: Steps from the first to the second, at least 1. The default is 1.

        Returns:
            Samples with columns `[n, 2, ...]`.

        Raises:
            PlanError: `offset` is below 1.

        Example:
            >>> import numpy as np, penstock
            >>> penstock.from_arrays({"rewards": np.arange(3.0)}, lengths=[3]).pairs()[:]["rewards"].tolist()
            [[0.0, 1.0], [1.0, 2.0]]
        """
        return self.apply(Pairs(offset))

    def sequences(self, *, final: bool = False) -> MapDataset:
        """Make one sample of every whole episode, for example to `pack` them. See `penstock.plan.Sequences`.

        Args:
            final: Whether to include the observation after the last step. The default is False.

        Returns:
            Samples with columns `[n, L, ...]` and a `mask`, where `L` is the length of the longest episode.

        Example:
            >>> import penstock
            >>> sequences = penstock.from_arrays({"rewards": [1, 2, 3]}, lengths=[2, 1]).sequences()[:]
            >>> sequences["rewards"].tolist(), sequences["mask"].tolist()
            ([[1, 2], [3, 0]], [[True, True], [True, False]])
        """
        return self.apply(Sequences(final))


class MappedEpisodes(EpisodeDataset):
    """Episodes that a function changes, of `EpisodeDataset.map_episodes`.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> mapped = data.map_episodes(lambda episode: {"good": episode.rewards > 1})
        >>> mapped.steps()[:]["good"].tolist()
        [False, True, True]
    """

    def write(
        self,
        out: str | os.PathLike[str],
        *,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
        overwrite: bool = False,
        certificate: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        jobs: int | None = None,
        runner: object = None,
    ):
        """Write a new dataset of the episodes that the function keeps. Called again, it goes on where it stopped.

        This is `penstock.convert`, which describes the arguments. The report and the certificate name the function, its
        digest, and the episodes that are left out.

        With `jobs` or `runner`, other processes open the dataset and import the function: the dataset must be opened by
        `penstock.open`, with all or some of its episodes, and the function or class must be in a module, not in the
        main program.

        Args:
            out: Path or URL of the new dataset.
            format: Format of the new dataset. The default is chosen by the ending of its name.
            options: Options of the format's writer. The default is none.
            drop: Columns to leave out, such as pictures that were embedded. The default is none.
            overwrite: Whether to start over. The default is False.
            certificate: Whether to read the new dataset again and compare. The default is True.
            storage_options: Options of the store of a URL. The default is none.
            jobs: How many parts at a time. The default is None: one run in this process, or with `runner` its default.
            runner: `"processes"`, `"threads"`, `"ray"`, or a `Runner` of `penstock.jobs`, which has the resources of a
                part. The default is None: with `jobs`, processes.

        Returns:
            Totals, notes, the episodes that were left out, and the certificate.

        Raises:
            DataError: The function raises an error, or cannot be found by other processes.
            WorkerError: Parts failed; the message has their episodes and errors.
            FileExistsError: Other data exists at `out`.

        Example:
            >>> import penstock, tempfile
            >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
            >>> mapped = data.map_episodes(lambda episode: episode.rewards.cumsum(), column="so_far")
            >>> report = mapped.write(tempfile.mkdtemp() + "/out")
            >>> penstock.open(report.out)[0].columns["so_far"].tolist()
            [1.0, 3.0]
        """
        in_parts = jobs is not None or runner is not None  # parts have a bar
        with progress_bar(f"writing {os.fspath(out)}", quiet=in_parts) as advance:

            def on_episode(episodes: int, *_: int) -> None:
                advance(episodes, len(self))

            return penstock.convert(
                self,
                out,
                format=format,
                options=options,
                drop=drop,
                overwrite=overwrite,
                certificate=certificate,
                on_episode=None if in_parts else on_episode,
                storage_options=storage_options,
                jobs=jobs,
                runner=runner,
            )


def mapped_episodes(
    data: EpisodeDataset, mapping: EpisodeMap, fields: Mapping[str, Field] | None = None
) -> MappedEpisodes:
    """Return episodes that a function changes. Without its fields, it is called with the first episodes."""
    selection = selection_of(data).settled()
    if fields is None:
        read = (episode for e in range(len(data)) for episode in selection.read_mapped([e]))
        fields = mapping.fields_of(read_only_episode(episode) for episode in read if episode is not None)
    return MappedEpisodes(selection.over(MappedSource(selection.source, mapping, fields)))


def selection_of(data: EpisodeDataset) -> EpisodeSelection:
    """Return the chosen episodes of a dataset, and how they were chosen."""
    return data._selection  # pyright: ignore[reportPrivateUsage]  # the one way to what users do not need


def _cut(
    selection: EpisodeSelection, transform: SampleTransform, stages: tuple[ColumnFunction, ...] = ()
) -> PlannedSamples:
    """Cut episodes into samples, and apply the functions that belong to the transform."""
    origin = _Cut(selection, transform, stages)
    return PlannedSamples([selection.source], transform.plan(selection.episodes), stages, origin)


@dataclass(frozen=True)
class _Cut:
    """The episodes, the transform and its functions, of which samples were made."""

    selection: EpisodeSelection
    transform: SampleTransform
    stages: tuple[ColumnFunction, ...]

    @property
    def chain(self) -> tuple[str, ...]:
        return *self.selection.chain, step_text(self.transform), *map(repr, self.stages)

    def as_of(self, episodes: Sequence[int]) -> PlannedSamples | None:
        earlier = self.selection.as_of(episodes[0])
        return None if earlier is None else _cut(earlier, self.transform, self.stages)

    def remade(self, make: Callable[[object], PlannedSamples | None]) -> PlannedSamples | None:
        return make(self)
