"""Tasks, and mixtures of tasks: the objects that return datasets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.mix import Unit, mix
from penstock.errors import PlanError, SpecError
from penstock.formats.records import RandomAccess
from penstock.plan.schedule import Stop
from penstock.plan.weights import shares
from penstock_mirrors.airio.data_sources import DataSource
from penstock_mirrors.airio.examples import ELEMENT, of_episodes
from penstock_mirrors.airio.flow import Flow, Preprocessor, only, pad_id_of
from penstock_mirrors.airio.packing import PackPreprocessor
from penstock_mirrors.airio.runtime import AirIOInjectedRuntimeArgs, Length, ShardInfo

MOST = 1000  # records that are looked at


def dataset_by_step(
    name: str,
    source: EpisodeDataset | RandomAccess,
    preprocessors: Sequence[Preprocessor],
    args: AirIOInjectedRuntimeArgs,
    *,
    num_records: int,
    shuffle: bool,
    seed: int,
) -> list[list[Any]]:
    """Return the first records of a source, and what they are behind each preprocessor, and as batches.

    As long as functions of one example were met, elements are what those return; behind others, arrays or dicts of
    arrays.
    """
    if not 1 <= num_records <= MOST:
        raise PlanError(f"expected num_records from 1 to {MOST}, got {num_records}")
    examples = of_episodes(source) if isinstance(source, EpisodeDataset) else source
    order = np.arange(min(num_records, len(examples)))
    if shuffle:
        np.random.default_rng(seed).shuffle(order)
    records = [examples[int(i)] for i in order]
    steps = [list(records)]
    flow = Flow.start(name, records, args, seed, each=True)
    for i in range(len(preprocessors)):
        flow = flow.apply_one(preprocessors, i) if steps[-1] else flow
        steps.append(_elements(flow) if steps[-1] else [])  # where all were left out, there is nothing to show
    if args.batch_size is not None:
        batches = flow.columns().dataset.loader(args.batch_size, rank=0, world=1, threads=0) if steps[-1] else ()
        steps.append([_unwrapped(batch) for batch in batches])
    return steps


def _elements(flow: Flow) -> list[Any]:
    if flow.examples is not None:
        return [flow.examples[i] for i in range(len(flow.examples))]
    return [_unwrapped(row) for row in flow.dataset]


def _unwrapped(element: Any) -> Any:
    """An example, or a batch, that is no dict, as itself."""
    return element[ELEMENT] if list(element) == [ELEMENT] else element


ENDLESS = 1 << 62


class DatasetProviderBase(ABC):
    """Base class of tasks and mixtures: builds datasets."""

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
        """Return a `MapDataset` with an exact length, whose position `k` is one example (a dict of arrays).

        With `batch_size`, return a `Loader` of the dataset, whose batches are columns. It has `num_prefetch_threads`
        threads, or `num_workers` if that is larger: threads take the place of AirIO's processes.
        """
        args = AirIOInjectedRuntimeArgs(sequence_lengths, split, batch_size)
        runtime, seed = list(runtime_preprocessors or ()), _seed_of(seed, shuffle)
        dataset = self._made(args, runtime, seed if shuffle else None, seed)
        if num_epochs is None and not dataset.plan.steady and _packer_of(runtime):
            raise PlanError("expected num_epochs, because every epoch of this mixture is packed again, got None")
        if num_epochs != 1:
            dataset = dataset.repeat(ENDLESS // max(len(dataset), 1) if num_epochs is None else num_epochs)
        if shard_info is not None:
            dataset = dataset.shard(shard_info.index, shard_info.num_shards)
        if batch_size is not None:
            # As in AirIO, shard_info alone sets the shares. A detected rank would shard the data a second time.
            threads = max(num_prefetch_threads or 0, num_workers or 0) if num_workers else num_prefetch_threads
            return dataset.loader(batch_size, rank=0, world=1, threads=threads)
        if num_prefetch_threads is not None or num_workers:
            raise PlanError(
                "expected a batch_size with num_prefetch_threads or num_workers, for threads make batches; got None"
            )
        return dataset

    @abstractmethod
    def _made(
        self, args: AirIOInjectedRuntimeArgs, runtime: list[Preprocessor], shuffle: int | None, seed: int
    ) -> MapDataset:
        """Return one epoch, in the order of `shuffle`."""


class Task(DatasetProviderBase):
    """A source of examples and the preprocessors to apply."""

    def __init__(self, name: str, source: DataSource, preprocessors: Sequence[Preprocessor] | None = None) -> None:
        self.name, self.source = name, source
        self.splits = source.splits
        self._preprocessors = list(preprocessors or ())

    def get_preprocessors(self) -> list[Preprocessor]:
        """Return the preprocessors, in order."""
        return list(self._preprocessors)

    def num_input_examples(self, split: str) -> int:
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
        """Return some records before and after each preprocessor, to inspect a task."""
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
        """Return the examples of a split after the task's preprocessors; `ahead` are the preprocessors that follow."""
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
    """Tasks, or mixtures, at exact proportions.

    After any number of examples, each task has had its share to within one example. This holds for filtered and packed
    tasks too. An epoch ends where a task would start over.

    See `penstock.data.mix` for `stop` and `unit`; `label` names a column with the number of the leaf task.
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
        """Return the tasks and mixtures that the mixture was built from."""
        return list(self._tasks)

    @property
    def leaf_tasks(self) -> list[Task]:
        """Return all tasks, including the tasks of nested mixtures."""
        return [leaf for part in self._tasks for leaf in ([part] if isinstance(part, Task) else part.leaf_tasks)]

    @property
    def splits(self) -> frozenset[str]:
        return frozenset(split for task in self.leaf_tasks for split in task.splits)

    def num_input_examples(self, split: str) -> int:
        """Return the number of examples in all sources."""
        return sum(task.num_input_examples(split) for task in self.leaf_tasks if split in task.splits)

    def get_proportion(self, task: Task) -> Fraction:
        """Return the exact share of a task, 0 for a task outside the mixture."""
        return dict(zip(self.leaf_tasks, self.leaf_shares, strict=True)).get(task, Fraction(0))

    @property
    def leaf_shares(self) -> list[Fraction]:
        """Return the exact share of each of the `leaf_tasks`."""
        inner = [[Fraction(1)] if isinstance(part, Task) else part.leaf_shares for part in self._tasks]
        return [share * each for share, parts in zip(self._shares, inner, strict=True) for each in parts]

    def _made(
        self, args: AirIOInjectedRuntimeArgs, runtime: list[Preprocessor], shuffle: int | None, seed: int
    ) -> MapDataset:
        packer = _packer_of(runtime)
        before = runtime if packer is None else runtime[: packer[0]]
        flows = [task.flow(args, seed, runtime).apply(before).columns() for task in self.leaf_tasks]
        for flow in flows:
            if len(flow.dataset) == 0:
                raise PlanError(f"expected examples in every task of {self.name}, got none in {flow.name}")
        _check_alike(flows, shapes=packer is None)
        if packer is None:
            return self._mixed(_alike(flows), shuffle, self._label)
        if self._label is not None:
            raise PlanError(f"expected no label where {self.name} is packed after mixing, got {self._label!r}")
        sequences = [replace(flow, rows=only(flow.sequences(), flow.args, flow.name)) for flow in flows]
        # Ragged features are as wide as the longest of each task, which may differ.
        mixed = self._mixed(sequences, shuffle, None, union=True)
        packed = (
            flows[0].with_packs(mixed, packer[1], pad_id_of(runtime[packer[0] + 1 :])).apply(runtime[packer[0] + 1 :])
        )
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
    """Call `mixture_or_task.get_dataset` with `options`. The default is no shuffle."""
    return mixture_or_task.get_dataset(sequence_lengths, split, shuffle=shuffle, **options)


def _seed_of(seed: int | None, shuffle: bool) -> int:
    """Return the seed, which may be None without a shuffle."""
    if seed is None and shuffle:
        raise PlanError("expected a seed to shuffle by, got None; give a seed, or shuffle=False")
    return 0 if seed is None else seed


def _check_alike(flows: Sequence[Flow], shapes: bool) -> None:
    """Raise `SpecError` if tasks give examples with different features, naming the difference."""
    differing = [
        {path: f"{a.dtype}{list(a.shape[1:]) if shapes else ''}" for path, a in flow.dataset[:1].flat.items()}
        for flow in flows
    ]
    for flow, features in zip(flows, differing, strict=True):
        both = [(path, features.get(path, "none"), differing[0].get(path, "none")) for path in differing[0] | features]
        text = ", ".join(f"{path} is {mine}, not {wanted}" for path, mine, wanted in both if mine != wanted)
        if text:
            raise SpecError(
                f"expected tasks with the same features, got others in {flow.name} than in {flows[0].name}: {text}"
            )


def _alike(flows: Sequence[Flow]) -> list[Flow]:
    """Return flows whose plans have the same outputs. If outputs differ, the functions of each flow run first."""
    outputs = [_outputs(flow.dataset) for flow in flows]
    return list(flows) if all(each == outputs[0] for each in outputs) else [flow.settled() for flow in flows]


def _outputs(dataset: MapDataset) -> dict[str, tuple[object, ...]]:
    """Return the outputs that are read for a sample, before any function."""
    samples = planned_samples(dataset)
    read = samples.read(samples.resolve(np.zeros(1, np.int64)))
    return {path: (array.dtype, array.shape[1:], type(array)) for path, array in read.flat.items()}


def _packer_of(steps: Sequence[Preprocessor]) -> tuple[int, PackPreprocessor] | None:
    """Return the first packer and its position."""
    return next(((i, step) for i, step in enumerate(steps) if isinstance(step, PackPreprocessor)), None)
