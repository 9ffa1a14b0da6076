"""Tasks and mixtures of them: what a program asks for data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from penstock.compat.airio.data_sources import DataSource
from penstock.compat.airio.flow import Flow, Preprocessor, only, pad_id_of
from penstock.compat.airio.packing import PackPreprocessor
from penstock.compat.airio.runtime import AirIOInjectedRuntimeArgs, Length, ShardInfo
from penstock.compat.airio.steps import dataset_by_step
from penstock.data.map_dataset import MapDataset
from penstock.data.mix import Unit, mix
from penstock.errors import PlanError, SpecError
from penstock.load.loader import Loader
from penstock.plan.schedule import Stop
from penstock.plan.weights import shares

ENDLESS = 1 << 62


class DatasetProviderBase(ABC):
    """What tasks and mixtures have in common: how a dataset is asked for."""

    name: str

    def get_dataset(
        self,
        sequence_lengths: Mapping[str, Length] | None = None,
        split: str = "train",
        runtime_preprocessors: Sequence[Preprocessor] | None = None,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int | None = 0,
        shard_info: ShardInfo | None = None,
        num_epochs: int | None = 1,
        num_prefetch_threads: int | None = None,
        num_workers: int | None = 0,
    ) -> Any:
        """The dataset: a `MapDataset` with an exact length, whose position `k` is one example (a dict of arrays), or
        with `batch_size` a `Loader` of it, whose batches are columns; its threads are `num_prefetch_threads`, or
        `num_workers` where those are more, for threads do here what processes do there.

        Arguments: `sequence_lengths` of features, `SKIP_FEATURE` for those that stay as they are, a list for one length
        for each axis; `seed`, which may be None where nothing is shuffled and is 0 then;
        `runtime_preprocessors` come behind those of the tasks, and behind the mixing where a packer is among them;
        `shuffle` orders examples (or packs) by a keyed permutation, every epoch anew; `num_epochs` are counted as one,
        None for no end; `shard_info` takes every so-manieth example, and all shards together are the whole order.

        Raises `PlanError` and `SpecError` for what does not fit. Cost: functions that a filter, a packer or a mixture
        waits for are called once for every example.
        """
        args = AirIOInjectedRuntimeArgs(sequence_lengths, split, batch_size)
        runtime, seed = list(runtime_preprocessors or ()), _seed_of(seed, shuffle)
        dataset = self._made(args, runtime, seed if shuffle else None, seed)
        if num_epochs is None and not dataset.plan.steady and _packer_of(runtime):
            raise PlanError("expected num_epochs where every epoch of a mixture is packed anew, got None")
        if num_epochs != 1:
            dataset = dataset.repeat(ENDLESS // max(len(dataset), 1) if num_epochs is None else num_epochs)
        if shard_info is not None:
            dataset = dataset.shard(shard_info.index, shard_info.num_shards)
        if batch_size is not None:
            # Shares are told by shard_info, as in AirIO: a rank that is found besides would share them again.
            threads = max(num_prefetch_threads or 0, num_workers or 0) if num_workers else num_prefetch_threads
            return Loader(dataset, batch_size, rank=0, world=1, threads=threads)
        if num_prefetch_threads is not None or num_workers:
            raise PlanError(
                "expected a batch_size with num_prefetch_threads or num_workers, for threads make batches; got None"
            )
        return dataset

    @abstractmethod
    def _made(
        self, args: AirIOInjectedRuntimeArgs, runtime: list[Preprocessor], shuffle: int | None, seed: int
    ) -> MapDataset:
        """One epoch, in the order of `shuffle`."""


class Task(DatasetProviderBase):
    """A source of examples and what is done to them.

    >>> import numpy as np
    >>> from penstock.compat.airio import MapFnTransform, PenstockDataSource, Task
    >>> source = PenstockDataSource({"train": [{"text": "ab"}, {"text": "c"}]})
    >>> tokens = MapFnTransform(lambda example: {"targets": np.frombuffer(example["text"].encode(), "uint8")})
    >>> data = Task("letters", source, [tokens]).get_dataset(shuffle=False)
    >>> len(data), data[0]["targets"].tolist()
    (2, [97, 98])
    """

    def __init__(self, name: str, source: DataSource, preprocessors: Sequence[Preprocessor] | None = None) -> None:
        self.name, self.source = name, source
        self.splits = source.splits
        self._preprocessors = list(preprocessors or ())

    def get_preprocessors(self) -> list[Preprocessor]:
        """What is done to the examples, in order."""
        return list(self._preprocessors)

    def num_input_examples(self, split: str) -> int:
        """Examples of the source."""
        return self.source.num_input_examples(split)

    def get_dataset_by_step(
        self,
        num_records: int = 2,
        sequence_lengths: Mapping[str, Length] | None = None,
        split: str = "train",
        runtime_preprocessors: Sequence[Preprocessor] | None = None,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int | None = 0,
    ) -> list[list[Any]]:
        """Return some records as they are before and behind each preprocessor, to look at what the task does.

        Args:
            num_records: The first so many records of the source, from 1 to 1000.
            sequence_lengths: As of `get_dataset`.
            split: As there.
            runtime_preprocessors: What comes behind the task's own preprocessors.
            batch_size: With it, the last step is batches.
            shuffle: Whether the records are shuffled among each other.
            seed: For the order, and for random preprocessors.

        Returns:
            A list for each step: the records, then what they are behind each preprocessor.

        Raises:
            PlanError: For another number of records, or shuffling without a seed.

        Example:
            >>> from penstock.compat.airio import FilterFnTransform, MapFnTransform, PenstockDataSource, Task
            >>> steps = [MapFnTransform(lambda n: n * 10), FilterFnTransform(lambda n: n > 50)]
            >>> task = Task("numbers", PenstockDataSource({"train": [5, 6, 7]}), steps)
            >>> task.get_dataset_by_step(2, shuffle=False)
            [[5, 6], [50, 60], [60]]
        """
        return dataset_by_step(
            self.name,
            self.source.get_data_source(split),
            [*self._preprocessors, *(runtime_preprocessors or ())],
            AirIOInjectedRuntimeArgs(sequence_lengths, split, batch_size),
            num_records=num_records,
            shuffle=shuffle,
            seed=_seed_of(seed, shuffle),
        )

    def flow(self, args: AirIOInjectedRuntimeArgs, seed: int, ahead: Sequence[Preprocessor] = ()) -> Flow:
        """The examples of a split after the task's preprocessors, of which it is known what comes `ahead`."""
        steps = [*self._preprocessors, *ahead]
        each = bool(steps) and not isinstance(steps[0], PackPreprocessor) and not steps[0].of_batches
        start = Flow.start(self.name, self.source.get_data_source(args.split), args, seed, each)
        return start.apply(self._preprocessors)

    def _made(
        self, args: AirIOInjectedRuntimeArgs, runtime: list[Preprocessor], shuffle: int | None, seed: int
    ) -> MapDataset:
        flow = self.flow(args, seed, runtime).apply(runtime, shuffle is not None).columns()
        return flow.dataset if shuffle is None else flow.dataset.shuffle(shuffle)


class Mixture(DatasetProviderBase):
    """Tasks, or mixtures, at proportions: after any number of examples each task has had its share of them to within
    one, whether its examples were filtered, packed or neither. An epoch ends where a task would begin anew.

    `stop` and `unit` are those of `penstock.data.mix`; `label` names a column with the number of the leaf task.

    Raises `PlanError` for proportions that are not above zero, and tasks that are there twice.

    >>> from penstock.compat.airio import Mixture, PenstockDataSource, Task
    >>> tasks = [Task(name, PenstockDataSource({"train": [{"from": name}] * 9})) for name in "ab"]
    >>> data = Mixture("both", tasks, [2, 1]).get_dataset()
    >>> "".join(row["from"].tobytes().decode() for row in data)
    'abaabaabaabaab'
    """

    def __init__(
        self,
        name: str,
        tasks: Sequence[Task | Mixture],
        proportions: Sequence[float],
        *,
        stop: Stop = "first_exhausted",
        unit: Unit = "samples",
        label: str | None = None,
    ) -> None:
        if len(tasks) != len(proportions) or not tasks:
            raise PlanError(f"expected a proportion for each task of {name}, got {len(proportions)} for {len(tasks)}")
        self.name, self._tasks = name, list(tasks)
        self._shares = shares(proportions)
        if min(self._shares) <= 0:
            raise PlanError(f"expected proportions above zero in {name}, got {list(proportions)}; leave out the task")
        self._stop: Stop = stop
        self._unit: Unit = unit
        self._label = label
        twice = [task.name for i, task in enumerate(self.leaf_tasks) if task in self.leaf_tasks[:i]]
        if twice:
            raise PlanError(f"expected every task once in {name}, got {twice} again; add up its proportions")

    @property
    def tasks_or_mixtures(self) -> list[Task | Mixture]:
        """What it was made of."""
        return list(self._tasks)

    @property
    def leaf_tasks(self) -> list[Task]:
        """The tasks of it, and of the mixtures in it."""
        return [leaf for part in self._tasks for leaf in ([part] if isinstance(part, Task) else part.leaf_tasks)]

    @property
    def splits(self) -> frozenset[str]:
        """The splits that some task has."""
        return frozenset(split for task in self.leaf_tasks for split in task.splits)

    def num_input_examples(self, split: str) -> int:
        """Examples of all sources."""
        return sum(task.num_input_examples(split) for task in self.leaf_tasks if split in task.splits)

    def get_proportion(self, task: Task) -> Fraction:
        """The exact share of a task, 0 if it is not there."""
        return dict(zip(self.leaf_tasks, self.leaf_shares, strict=True)).get(task, Fraction(0))

    @property
    def leaf_shares(self) -> list[Fraction]:
        """The exact share of each of the `leaf_tasks`."""
        inner = [[Fraction(1)] if isinstance(part, Task) else part.leaf_shares for part in self._tasks]
        return [share * each for share, parts in zip(self._shares, inner, strict=True) for each in parts]

    def _made(
        self, args: AirIOInjectedRuntimeArgs, runtime: list[Preprocessor], shuffle: int | None, seed: int
    ) -> MapDataset:
        at = _packer_of(runtime)
        before = runtime if at is None else runtime[: at[0]]
        flows = [task.flow(args, seed, runtime).apply(before).columns() for task in self.leaf_tasks]
        for flow in flows:
            if len(flow.dataset) == 0:
                raise PlanError(f"expected examples in every task of {self.name}, got none in {flow.name}")
        _check_alike(flows, shapes=at is None)
        if at is None:
            return self._mixed(_alike(flows), shuffle, self._label)
        if self._label is not None:
            raise PlanError(f"expected no label where {self.name} is packed after mixing, got {self._label!r}")
        sequences = [replace(flow, rows=only(flow.sequences(), flow.args, flow.name)) for flow in flows]
        # Ragged features are as wide as the longest of each task, which may differ.
        mixed = self._mixed(sequences, shuffle, None, union=True)
        packed = flows[0].with_packs(mixed, at[1], pad_id_of(runtime[at[0] + 1 :])).apply(runtime[at[0] + 1 :])
        return packed.dataset if shuffle is None else packed.dataset.shuffle(shuffle)

    def _mixed(self, flows: Sequence[Flow], shuffle: int | None, label: str | None, union: bool = False) -> MapDataset:
        datasets = [flow.dataset if shuffle is None else flow.dataset.shuffle(shuffle) for flow in flows]
        names = [f"{i} {flow.name}" for i, flow in enumerate(flows)]
        return mix(
            dict(zip(names, datasets, strict=True)),
            self.leaf_shares,
            unit=self._unit,
            stop=self._stop,
            label=label or None,
            union=union,
        )


def get_dataset(
    mixture_or_task: Task | Mixture,
    sequence_lengths: Mapping[str, Length] | None = None,
    split: str = "train",
    *,
    shuffle: bool = False,
    **options: Any,
) -> Any:
    """`mixture_or_task.get_dataset` with its `options`, unshuffled unless asked.

    >>> from penstock.compat.airio import PenstockDataSource, Task
    >>> numbers = Task("numbers", PenstockDataSource({"train": [5, 6, 7]}))
    >>> [batch["element"].tolist() for batch in get_dataset(numbers, batch_size=2)]
    [[5, 6], [7]]
    """
    return mixture_or_task.get_dataset(sequence_lengths, split, shuffle=shuffle, **options)


def _seed_of(seed: int | None, shuffle: bool) -> int:
    """The seed, which may be None where nothing is shuffled."""
    if seed is None and shuffle:
        raise PlanError("expected a seed to shuffle by, got None; give a seed, or shuffle=False")
    return 0 if seed is None else seed


def _check_alike(flows: Sequence[Flow], shapes: bool) -> None:
    """Raise `SpecError` if tasks give examples with different features, naming the difference."""
    found = [
        {path: f"{a.dtype}{list(a.shape[1:]) if shapes else ''}" for path, a in flow.dataset[:1].flat.items()}
        for flow in flows
    ]
    for flow, features in zip(flows, found, strict=True):
        both = [(path, features.get(path, "none"), found[0].get(path, "none")) for path in found[0] | features]
        told = ", ".join(f"{path} is {mine}, not {wanted}" for path, mine, wanted in both if mine != wanted)
        if told:
            raise SpecError(
                f"expected tasks with the same features, got others in {flow.name} than in {flows[0].name}: {told}"
            )


def _alike(flows: Sequence[Flow]) -> list[Flow]:
    """Flows whose plans have the same outputs: as they are if they do, else with their functions behind them."""
    outputs = [_outputs(flow.dataset) for flow in flows]
    return list(flows) if all(each == outputs[0] for each in outputs) else [flow.settled() for flow in flows]


def _outputs(dataset: MapDataset) -> dict[str, tuple[object, ...]]:
    """What is read for a sample, before any function."""
    read = dataset.read(dataset.resolve(np.zeros(1, np.int64)))
    return {path: (array.dtype, array.shape[1:], type(array)) for path, array in read.flat.items()}


def _packer_of(steps: Sequence[Preprocessor]) -> tuple[int, PackPreprocessor] | None:
    """The first packer, and where it stands."""
    return next(((i, step) for i, step in enumerate(steps) if isinstance(step, PackPreprocessor)), None)
