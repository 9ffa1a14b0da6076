"""`MapDataset`: samples with a length and random access, from a plan and its sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.columns import Columns
from penstock.core.html import page, steps, table
from penstock.core.other_names import SAMPLES, OtherNames
from penstock.core.text import counted
from penstock.data.function_digest import FunctionDigest
from penstock.data.loadable import Loadable
from penstock.data.map_function import MapFn, Mapped
from penstock.data.plan_picture import PlanPicture, upcoming
from penstock.data.planned_rows import asked_episodes
from penstock.data.planned_samples import By, PlannedSamples, WeightFn, sample_weights, scan
from penstock.data.relabel import GoalChoice, Relabelled
from penstock.errors import ArgumentError, PlanError, SpecError
from penstock.plan.base import is_endless
from penstock.plan.goals import Goals, Strategy
from penstock.plan.outputs import MarkKind
from penstock.plan.pack import Pack
from penstock.plan.packing.index import Keep
from penstock.plan.packing.rule import Flush, Method, Overlong
from penstock.plan.ramp import Ramp
from penstock.plan.repeat import EpochLength, Repeat
from penstock.plan.row_numbers import RowNumbers
from penstock.plan.select import Select, Take, rows_of_mask
from penstock.plan.shard import Shard
from penstock.plan.shuffle import Shuffle
from penstock.plan.transform import PlanTransform, require_transform
from penstock.plan.weighted import Draw, Weighted
from penstock.plan.where import evaluate
from penstock.plan.without import Without

LONGEST_SLICE = 1 << 40  # samples: no memory holds more, and a mix that never ends has 2^62


class MapDataset(OtherNames, Loadable):
    """Samples with a length and random access. `plan` selects rows, and `sources` have the values.

    `samples[5]` is one record, a nested dict. `samples[2:9]` and `samples[[3, 1, 4]]` are `Columns` with one row for
    each sample, in the requested order. `loader` has batches of all epochs.

    A dataset is immutable. Every method that changes the order returns another dataset. Reading is thread-safe.

    Args:
        samples: The planned samples.

    Attributes:
        plan: The order, and the rows of each sample.
        sources: Opened datasets, in the order in which the plan numbers them.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[2, 4])
        >>> windows = data.windows(2)
        >>> len(windows), windows[[0, 3]]["rewards"].tolist()
        (4, [[0.0, 1.0], [4.0, 5.0]])
    """

    _other_names = SAMPLES

    def __init__(self, samples: PlannedSamples) -> None:
        self._samples = samples
        self.plan = samples.plan
        self.sources = samples.sources

    def __len__(self) -> int:
        return len(self._samples)

    def __repr__(self) -> str:
        chain = " > ".join(self._samples.chain)
        count = "endless" if is_endless(self.plan) else f"{len(self)} samples"
        return f"MapDataset({count}, columns={list(self._samples.outputs)}, chain={chain})"

    def _repr_html_(self) -> str:
        rows = [(name, column) for name, column in self._samples.outputs.items()]
        chain = steps(self._samples.chain)
        count = "endless" if is_endless(self.plan) else counted(len(self), "sample")
        return page("MapDataset", count, chain, table(("output", "from"), rows))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | IntArray) -> Columns: ...
    def __getitem__(self, index: Any) -> Any:
        """Read one record for an integer, or `Columns` for a slice, list or array.

        A slice costs as much as its samples.

        Args:
            index: Integers in `-len : len`, or a slice.

        Raises:
            IndexError: An integer is out of range.
            ArgumentError: The index is neither integers nor a slice.
            PlanError: The slice has more than 2^40 samples, as in an endless mix.
        """
        if isinstance(index, slice):
            return self._samples.at(_positions(range(len(self))[index]))
        numbers = np.asarray(index)
        if numbers.ndim > 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ArgumentError(f"expected integers or a slice, got {index!r}")
        numbers = numbers.astype(np.int64)
        if numbers.size and not (-len(self) <= numbers.min() and numbers.max() < len(self)):
            why = f"; {self.plan.why_empty()}" if self.plan.empty else ""
            raise IndexError(f"expected positions within 0:{len(self)}, got {numbers.min()}:{numbers.max() + 1}{why}")
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        return self._samples.at(numbers) if numbers.ndim else self._samples.at(numbers[None]).row(0)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read many records at once. PyTorch's `DataLoader` calls this method for map-style datasets."""
        columns = self[list(indices)]
        return [columns.row(i) for i in range(columns.n)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    @property
    def fingerprint(self) -> str:
        """SHA-256 hex digest of the data, the plan and the map functions.

        Warns once (`FingerprintWarning`) if a function refers to values that the digest cannot cover.
        """
        return self._samples.fingerprint

    def apply(self, transform: PlanTransform) -> MapDataset:
        """Apply a transform to the order.

        Args:
            transform: Such as `Shuffle(seed=3)`.

        Raises:
            PlanError: The plan does not allow the transform.
            ArgumentError: `transform` is no `PlanTransform`.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"rewards": [5.0, 6.0]}, lengths=[2]).steps()
            >>> len(data.apply(penstock.transforms.Repeat(3)))
            6
        """
        hint = "map() applies a function to the columns"
        require_transform(transform, PlanTransform, "of the order, such as Shuffle", hint)
        return MapDataset(self._samples.reordered(transform))

    def shuffle(self, seed: int = 0, *, block: int | None = None, pool: int | None = None) -> MapDataset:
        """Shuffle the samples, in a new order every epoch. See `penstock.plan.Shuffle`.

        Args:
            seed: 0 to 2^64 - 1. The default is 0.
            block: Samples of a block, for data that is decoded block by block. The default is None: shuffle globally.
            pool: Blocks that are shuffled together. Required with `block`.

        Raises:
            PlanError: A number is out of range, or only one of `block` and `pool` is given.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6]).steps()
            >>> sorted(data.shuffle(seed=0)[:]["rewards"].tolist())
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        """
        return self.apply(Shuffle(seed, block, pool))

    def repeat(self, times: int | None = None) -> MapDataset:
        """Join several epochs into one, or all into one without end. See `penstock.plan.Repeat`.

        A loader of a dataset without end has no length. Its batches are all full, and every pass has the order of its
        own epoch.

        Args:
            times: Number of epochs, at least 1. The default is None: without end.

        Raises:
            PlanError: `times` is below 1, or the new epoch would have more than 2^62 samples. Without end: epochs vary
                in length.

        Example:
            >>> import penstock
            >>> samples = penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps()
            >>> samples.repeat(2)[:]["x"].tolist()
            [1, 2, 3, 1, 2, 3]
            >>> [batch["x"].tolist() for _, batch in zip(range(3), samples.repeat().loader(2))]
            [[1, 2], [3, 1], [2, 3]]
        """
        return self.apply(Repeat(times))

    def with_epoch_length(self, epoch_length: int) -> MapDataset:
        """Set a fixed epoch length. Each epoch continues where the last one ended. See `penstock.plan.EpochLength`.

        Args:
            epoch_length: Samples of an epoch, at least 1.

        Raises:
            PlanError: `epoch_length` is below 1, or epochs vary in length.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps().with_epoch_length(2)
            >>> loader = data.loader(batch_size=2)
            >>> [batch["x"].tolist() for _ in range(2) for batch in loader]
            [[1, 2], [3, 1]]
        """
        return self.apply(EpochLength(epoch_length))

    def shard(self, index: int, count: int) -> MapDataset:
        """Keep every `count`-th sample, starting with sample `index`. See `penstock.plan.Shard`.

        Args:
            index: Number of the shard, 0 to `count - 1`.
            count: Number of shards, at least 1.

        Raises:
            PlanError: A number is out of range, or epochs vary in length.

        Example:
            >>> import penstock
            >>> penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps().shard(0, 2)[:]["x"].tolist()
            [1, 3]
        """
        return self.apply(Shard(index, count))

    def select_columns(self, *columns: str | Sequence[str]) -> MapDataset:
        """Keep only some columns. The other columns are not read. Derived outputs, such as masks, stay.

        Args:
            columns: Names of columns, or prefixes such as `"observations"` for all columns below; also as a list.

        Raises:
            SpecError: There is no such column.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"rewards": [1.0], "actions": [0]}, lengths=[1]).steps()
            >>> list(data.select_columns("actions")[:])
            ['actions']
        """
        names = [name for each in columns for name in ([each] if isinstance(each, str) else each)]
        return self.apply(Select(tuple(names)))

    def with_row_numbers(
        self,
        *,
        step: str | None = "timesteps",
        episode: str | None = "episodes",
        source: str | None = None,
        of: str | None = None,
        padding: int = -1,
    ) -> MapDataset:
        """Add outputs with the step, episode and source of every row. See `penstock.plan.RowNumbers`.

        Args:
            step: Name of the output with step numbers, or None. The default is `"timesteps"`.
            episode: Name of the output with episode numbers, or None. The default is `"episodes"`.
            source: Name of the output with source numbers, or None. The default is None.
            of: Output whose rows are numbered. The default is None: the first one with rows of steps or observations.
            padding: Number of padding. 0 suits `torch.nn.Embedding`, which takes no negative number. The default is -1.

        Returns:
            The same samples with int32 outputs `[n, L]`, or `[n]` where a sample is one step. With `pad="repeat"`,
            padding has the number of the row that is repeated.

        Raises:
            PlanError: There is no such output, a name is taken, no name is given, or `padding` is no int32.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
            >>> data.steps().with_row_numbers()[:]["timesteps"].tolist()
            [0, 1, 0, 1, 2]
        """
        return self.apply(RowNumbers(step, episode, source, of, padding))

    def filter(
        self,
        condition: str | Callable[[Columns], BoolArray] | Sequence[bool] | BoolArray,
        *,
        progress: bool | None = None,
    ) -> MapDataset:
        """Keep the samples whose values meet a condition.

        The first epoch is scanned once. The result has an exact length and can be shuffled, mixed and packed. Shuffle
        afterwards: every epoch has the order of the first.

        Args:
            condition: An expression over columns with one number for each sample, such as `"rewards > 0 and not done"`;
                a function that is called with the columns of a block of `n` samples and returns `[n]` bool; or a mask,
                one bool for each sample. Only the columns that it uses are read, unless functions were mapped.
            progress: Whether to show a progress bar. The default is None: on a terminal.

        Raises:
            PlanError: Epochs have different samples, as in a mix, or the expression has an unknown column.
            SpecError: The condition returns another dtype or shape.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6]).steps()
            >>> data.filter("rewards > 3")[:]["rewards"].tolist()
            [4.0, 5.0]
            >>> data.filter(lambda columns: columns["rewards"] % 2 == 0)[:]["rewards"].tolist()
            [0.0, 2.0, 4.0]
        """
        if isinstance(condition, str):
            return self.filter(lambda columns: evaluate(condition, columns), progress=progress)
        if not callable(condition):
            return self.apply(Take(rows_of_mask(condition, len(self), "sample")))
        keep = scan(self._samples, lambda columns: _kept(condition(columns), columns.n), "filter", progress)
        return self.apply(Take(np.flatnonzero(keep)))

    def without(self, episodes: int | Sequence[int], source: int | None = None) -> MapDataset:
        """Leave out the samples of some episodes, and leave all others as they were. See `penstock.plan.Without`.

        The order of the other samples, their goals and their random functions stay, as far as they were chosen before.
        So call it last. `Loader.why` and `Loader.uses` have the positions that samples had with the episodes as
        `original`. In packs, the rows of the episodes become padding, and nothing moves.

        Args:
            episodes: Number of an episode in its source, as `Loader.why` has it, or several.
            source: Number of the source in `sources`. Required if there are several. The default is None: the only one.

        Returns:
            The other samples. Cost: finding the samples of the episodes once an epoch; 8 bytes for each.

        Raises:
            PlanError: There is no such source or episode, the dataset has no end, or packs have `cu_seqlens`.
            ArgumentError: `episodes` is something else.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"x": np.arange(9)}, lengths=[4, 3, 2]).steps().shuffle(seed=0)
            >>> data.without(1)[:]["x"].tolist() == [x for x in data[:]["x"].tolist() if not 4 <= x < 7]
            True
        """
        number, wanted = asked_episodes(self._samples, episodes, source)
        return self.apply(Without({number: wanted.tolist()}))

    def weighted(
        self,
        weights: str | Sequence[float] | AnyArray | Callable[[Columns], AnyArray],
        fn: WeightFn | None = None,
        *,
        by: By = "sample",
        draw: Draw = "systematic",
        seed: int = 0,
        epoch_length: int | None = None,
        progress: bool | None = None,
    ) -> MapDataset:
        """Draw samples in proportion to weights. `penstock.plan.Weighted` describes the order.

        With `draw="systematic"`, each sample has had its share of the draws at any time, to within 1.0 to 1.4 draws for
        most weights (`plan.bound`). Draws continue through all epochs, so samples with small weights get their turn in
        a later epoch. Shuffle afterwards. `filter` keeps only some samples, for example of the best episodes.

        Args:
            weights: Numbers of 0 or more in any scale: an array `[n]` for `n` samples, the name of a column with one
                value for each sample, or a function from the columns of a block of `m` samples to `[m]`. With
                `by="episode"`: `[E]` for the `E` episodes that the samples were made of, the name of a column of
                `table()`, or a function of that table.
            fn: Function of the array or column, such as `lambda a: np.exp(3 * a)`. It must not depend on other rows,
                because it is called with one block after another. The default is None.
            by: `"sample"`, or `"episode"` to give all samples of an episode its weight. The default is `"sample"`.
            draw: `"systematic"`, or `"random"` to draw with replacement. The default is `"systematic"`.
            seed: 0 to 2^64 - 1. The default is 0.
            epoch_length: Draws of an epoch, at least 1. The default is None: the number of samples.
            progress: Whether to show a progress bar while a column or function is read. The default is None: on a
                terminal.

        Returns:
            The drawn samples. Cost: 8 bytes for each sample, 24 for each distinct weight, and some 0.1 to 0.5 us a
            draw.

        Raises:
            PlanError: A weight is negative, infinite or NaN, all are 0, their number is wrong, or epochs have different
                samples, as in a mix.
            SpecError: There is no such column.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"advantages": [0.0, 1.0, 2.0]}, lengths=[3]).steps()
            >>> draws = data.weighted("advantages", lambda a: np.exp2(a), epoch_length=7)
            >>> sorted(draws[:]["advantages"].tolist())
            [0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
        """
        sampling = sample_weights(self._samples, weights, fn, by, progress)
        return self.apply(Weighted(sampling, draw, seed, epoch_length))

    def pack(
        self,
        length: Ramp | Mapping[str, int],
        method: Method = "best_fit_decreasing",
        overlong: Overlong | None = None,
        head: float | Mapping[str, float] | None = None,
        positions: Literal["restart", "continue"] = "restart",
        open_bins: int | None = None,
        flush: Flush = "oldest",
        align: int = 1,
        max_sequences: int | None = None,
        window: int = 65536,
        seed: int = 0,
        marks: Sequence[MarkKind] = ("segment_ids", "positions"),
        fill: float | Mapping[str, float] = 0,
        repack: bool = False,
        keep: Keep = "auto",
        cache: str | os.PathLike[str] | None = None,
    ) -> MapDataset:
        """Pack several samples into one row. `penstock.plan.Pack` describes the arguments in full.

        Args:
            length: Places of a row, at least 1, for all columns or by column name; or a ramp such as
                `[(0, 512), (10_000, 2048)]`: rows of 512 for the samples before position 10,000 and of 2048 after.
            method: How packs are planned: `"best_fit_decreasing"`, `"best_fit"`, `"first_fit"`, `"next_fit"`,
                `"random_fit"` or `"concat_split"`.
            overlong: For a sample longer than the limit: `"error"`, `"truncate_left"`, `"truncate_right"`, `"split"`,
                `"drop"` or `"own_pack"`. The default is `"error"`.
            head: With `"concat_split"`, the value of an extra row before every part that continues a sample. The
                default is None: no such row.
            positions: Whether positions of a part `"restart"` at 0 or `"continue"` after the part before.
            open_bins: Most open packs for `"best_fit"` and `"first_fit"`. Default: all of a window, or 1024 with
                several limits.
            flush: What to close when a sample fits in no open pack: the `"oldest"`, or all of them (`"block"`).
            align: Start sequences at multiples of this many places. The default is 1.
            max_sequences: Most sequences of a pack. The default is None: no limit.
            window: Samples that are planned together, at least 1. The default is 65536.
            seed: Seed of the keyed orders. The default is 0.
            marks: Outputs to add, of `"segment_ids"`, `"positions"`, `"lengths"`, `"cu_seqlens"` and `"sources"`.
            fill: Value of padding, for all columns or by name. Their dtypes must hold it. The default is 0.
            repack: Whether to plan every epoch again. The default is False.
            keep: Whether to store the plan: `"memory"`, `"recompute"` or `"auto"`. The default is `"auto"`.
            cache: Folder to store plans in. The default is None.

        Returns:
            Packs with columns `[n, length, ...]`, `segment_ids` and `positions`.

        Raises:
            PlanError: An option is out of range, a sample is too long, or the dataset has map functions. Map the packs
                instead, or use `penstock.transforms.measure` for a function that changes lengths.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"tokens": np.arange(9)}, lengths=[4, 3, 2])
            >>> packs = data.sequences().pack(6)
            >>> len(packs), sorted(packs[:]["segment_ids"].sum(axis=1).tolist())
            (2, [3, 8])
        """
        if functions := list(self._samples.maps):
            raise PlanError(
                f"expected a dataset without functions to pack, got {functions}; map the packs instead, or use "
                "penstock.transforms.measure for a function that changes lengths"
            )
        transform = Pack(
            length, method, overlong, head, positions, open_bins, flush, align, max_sequences, window, seed,
            tuple(marks), fill, repack, keep, cache,
        )  # fmt: skip
        return self.apply(transform)

    def map(self, fn: MapFn, *, seed: int | None = None, version: str | int | None = None) -> MapDataset:
        """Apply a function to every batch.

        The code of `fn`, its defaults and the values that it refers to are part of the fingerprint. A saved state is
        therefore refused after one of them changes.

        Args:
            fn: Called as `fn(columns)`; returns a mapping with the same number of rows. Each row of the result must
                depend only on the same row of the input.
            seed: If given, `fn` is called as `fn(columns, keys)`. `keys` is `[n]` uint64, a function of the seed and of
                the position in the order that is read, after a later `shuffle` or `mix`. So a sample has another key
                in each epoch and in another order, and functions with equal seeds get equal keys. Random augmentation
                is independent of batch size, threads, ranks and resuming. The default is None.
            version: Text or number that replaces the digest of `fn` in the fingerprint. Use it for functions whose
                values differ between runs or cannot be covered. The default is None.

        Raises:
            SpecError: When read, `fn` returns another number of rows.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"x": np.arange(3.0)}, lengths=[3]).steps()
            >>> data.map(lambda columns: {"x": columns["x"] * 2})[:]["x"].tolist()
            [0.0, 2.0, 4.0]

            Values that the function refers to are part of the fingerprint:

            >>> one, other = (data.map(lambda c, mean=mean: {"x": c["x"] - mean}) for mean in (0, 100))
            >>> one.fingerprint == other.fingerprint
            False
        """
        return MapDataset(self._samples.through(Mapped.of(fn, seed, version)))

    def goals(
        self,
        strategy: Strategy = "future",
        column: str = "observations",
        *,
        original: str | None = None,
        k: int | None = None,
        p: float | None = None,
        offset: int = 1,
        name: str = "goal",
        seed: int = 0,
    ) -> MapDataset:
        """Draw a goal for each sample, from the states of a column (hindsight goals). See `penstock.plan.Goals`.

        The goals of an epoch are a function of seed and position, and another epoch has other goals. Call it after
        `steps`, `windows`, `pairs` or `delta_timestamps` and their filters and orders, and before `map` and `pack`.
        Goals of a mix are drawn in each of its datasets, as if it had been called before `mix`.

        Args:
            strategy: `"future"` (a later state of the episode), `"final"` (its last state), `"episode"` (any of its
                states), `"geometric"` (a later state at a geometric distance), or `"random"` (any state of any
                episode of the dataset). The default is `"future"`.
            column: Column of achieved goals or states, step or boundary. The default is `"observations"`.
            original: Column of recorded goals, read at the anchor step. One of `k + 1` samples then keeps its recorded
                goal, and `<name>_drawn` `[n]` bool is False for these. The default is None: all goals are drawn.
            k: Drawn goals for each recorded one, at least 1. Only with `original`; the default is 4 then.
            p: Parameter of the geometric distribution, above 0 and at most 1. Only for `"geometric"`.
            offset: Steps from the anchor to the first state that can be a goal, 0 or more. The default is 1.
            name: Name of the output. The default is `"goal"`.
            seed: 0 to 2^64 - 1. The default is 0.

        Returns:
            The samples with `goal`, `[n, *shape]`. Cost: one row more for each sample.

        Raises:
            PlanError: An option is out of range, a column is missing, ragged or has one row for each episode, the
                samples are packs, a mix was filtered or weighted, or the dataset has map functions.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"observations": np.arange(11), "actions": np.arange(9)}, lengths=[4, 5])
            >>> batch = data.steps().goals("future", seed=1)[:]
            >>> bool((batch["goal"] > batch["observations"]).all())
            True
        """
        if functions := list(self._samples.maps):
            raise PlanError(f"expected a dataset without functions to draw goals for, got {functions}; map later")
        for source in self.sources:
            for each in filter(None, (column, original)):
                if each in source.spec and source.spec[each].kind == "ragged":
                    raise PlanError(f"expected a column of arrays of one shape to draw goals from, got ragged {each!r}")
        goals = Goals(strategy, column, original, k, p, offset, name, seed)
        stages = () if original is None else (GoalChoice(name),)
        in_parts = self._samples.with_parts(lambda part: part.reordered(goals, stages))
        return MapDataset(in_parts or self._samples.reordered(goals, stages))

    def relabel(self, fn: MapFn, *, goal: str = "goal", version: str | int | None = None) -> MapDataset:
        """Compute columns again from the state and the goal, such as rewards and terminations.

        Samples that keep their recorded goal keep the recorded values of existing columns.

        Args:
            fn: Called as `fn(columns)` with a batch of `n` samples that has the goals; returns the new columns, each
                `[n, ...]`. Columns that exist keep their dtype and shape. Each row must depend only on the same row.
            goal: Name of the goals. The default is `"goal"`.
            version: Text or number that replaces the digest of `fn` in the fingerprint. The default is None.

        Raises:
            SpecError: When read, there are no goals, or a column has another dtype or shape.

        Example:
            >>> import numpy as np, penstock
            >>> columns = {"observations": np.arange(4.0), "rewards": np.zeros(3)}
            >>> samples = penstock.from_arrays(columns, lengths=[3]).transitions()
            >>> reached = lambda c: {"rewards": (c["next_observations"] == c["goal"]).astype(float)}
            >>> samples.goals("final").relabel(reached)[:]["rewards"].tolist()
            [0.0, 0.0, 1.0]
        """
        function = Relabelled(fn, None, version, goal, digest=FunctionDigest.of(fn, version))
        return MapDataset(self._samples.through(function))

    def show(self, batch_size: int | None = None, *, batches: int = 16, position: int = 0) -> PlanPicture:
        """Show what a loader will serve, before it serves it: batches, layout, mixing, shares of a mix.

        No data are read.

        Args:
            batch_size: Samples of a batch, at least 1. Not allowed if `Batches` plans them. The default is None: 64.
            batches: Most batches to show, at least 1. The default is 16.
            position: First position, 0 or more. The default is 0.

        Returns:
            The figures. Notebooks show them as pictures, and `print` as sentences.

        Raises:
            PlanError: The dataset is empty, or a number is out of range.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"x": np.arange(9)}, lengths=[4, 3, 2])
            >>> data.sequences().pack(6).show(batch_size=2)
            1 batch at positions 0 to 1 of epoch 0 of 2 samples
            25 % of the places are padding
            no two sequences of the epoch are from one episode
        """
        return PlanPicture.of(self._samples, *upcoming(self.plan, batch_size, batches, position))


def _kept(condition: object, n: int) -> BoolArray:
    keep = np.asarray(condition)
    if keep.dtype != np.bool_ or keep.shape != (n,):
        raise SpecError(f"expected a condition of {n} bools, got {keep.dtype}{list(keep.shape)}")
    return keep


def planned_samples(dataset: object) -> PlannedSamples:
    """Return the planned samples of a `MapDataset`. Raises `ArgumentError` for anything else."""
    if isinstance(dataset, MapDataset):
        return dataset._samples  # pyright: ignore[reportPrivateUsage]  # the one way to what users do not need
    name = type(dataset).__name__
    hint = "make samples of its episodes first, with steps(), windows(16), pairs() or sequences()"
    if name in ("Replay", "ReplayBatches"):
        hint = "its samples change while they are drawn; replay.batches(256) has batches, offline= mixes a dataset in"
    elif name != "EpisodeDataset":
        hint = "penstock.open and penstock.from_arrays make datasets"
    raise ArgumentError(f"expected samples as a MapDataset, got {name}; {hint}")


def _positions(chosen: range) -> IntArray:
    """Return the numbers of a range as `[n]` int64. Its step may be larger than int64."""
    if len(chosen) > LONGEST_SLICE:
        raise PlanError(f"expected a slice of at most {LONGEST_SLICE} samples, got {len(chosen)}; read it in parts")
    return np.arange(len(chosen)) * (chosen.step if len(chosen) > 1 else 1) + (chosen.start if chosen else 0)
