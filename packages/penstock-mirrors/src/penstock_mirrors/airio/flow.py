"""Preprocessors applied in order: from the examples of a source to a planned dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.data.dataset import EpisodeDataset
from penstock.data.function_digest import FunctionDigest
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.measure import measure
from penstock.errors import PlanError, SpecError
from penstock.plan.keys import keys
from penstock_mirrors.airio.examples import Call, Chain, Each, of_episodes
from penstock_mirrors.airio.packing import PackPreprocessor
from penstock_mirrors.airio.preprocessors import FilterFnTransform, MapFnTransform, RandomMapFnTransform, pad, trim
from penstock_mirrors.airio.runtime import SKIP_FEATURE, AirIOInjectedRuntimeArgs, injected, named

Preprocessor = MapFnTransform | RandomMapFnTransform | FilterFnTransform | PackPreprocessor


@dataclass(frozen=True)
class Flow:
    """Where the examples of a task stand: `examples` as long as only functions of one example were met, then `rows`,
    a dataset whose batches are columns; `episodes` are what `rows` were cut from, if nothing else was done.

    `drawn` tells that `rows` have functions whose random numbers follow from the position.
    """

    name: str
    args: AirIOInjectedRuntimeArgs
    seed: int
    stage: int = 0
    examples: Chain | None = None
    rows: MapDataset | None = None
    episodes: EpisodeDataset | None = None
    drawn: bool = False

    @classmethod
    def start(cls, name: str, source: Any, args: AirIOInjectedRuntimeArgs, seed: int, each: bool) -> Flow:
        """Return the flow of a source's examples; `each` says whether functions of one example come first."""
        if isinstance(source, EpisodeDataset):
            if each:
                return cls(name, args, seed, examples=Chain(of_episodes(source)))
            return cls(name, args, seed, rows=source.sequences(), episodes=source)
        if isinstance(source, MapDataset) and not each:
            return cls(name, args, seed, rows=source)
        return cls(name, args, seed, examples=Chain(source))

    def apply(self, preprocessors: Sequence[Preprocessor], shuffle: bool = False) -> Flow:
        """Return the flow after preprocessors. With `shuffle`, packers that depend on the order get another order."""
        flow = self
        for i in range(len(preprocessors)):
            flow = flow.apply_one(preprocessors, i, shuffle)
        return flow

    def apply_one(self, preprocessors: Sequence[Preprocessor], i: int, shuffle: bool = False) -> Flow:
        """Return the flow after preprocessor `i`; a packer pads like the first `pad` after it."""
        step = preprocessors[i]
        if isinstance(step, PackPreprocessor):
            return self._packed(step, pad_id_of(preprocessors[i + 1 :]), shuffle)
        return self._called(step)

    def _called(self, step: MapFnTransform | RandomMapFnTransform | FilterFnTransform) -> Flow:
        fn = step.filter_fn if isinstance(step, FilterFnTransform) else step.map_fn
        seed = (self.seed + ((self.stage + 1) << 48)) if isinstance(step, RandomMapFnTransform) else None
        bound = injected(fn, self.args)
        # The batch size is no part of the name, so that it may change in a run.
        lengths_text = "" if bound is fn else f" of {dict(self.args.sequence_lengths or {})} {self.args.split}"
        call = Call(bound, f"{named(fn)} {FunctionDigest.of(fn).text}{lengths_text}")
        # Lengths by axis are for features that are ragged along several, which no column is before they are padded.
        of_examples = not step.of_batches or (self.args.by_axis and getattr(fn, "func", fn) in (trim, pad))
        if self.examples is not None and of_examples and seed is None:
            kept = isinstance(step, FilterFnTransform)
            flow = replace(self, examples=self.examples.where(call) if kept else self.examples.then(call))
        elif isinstance(step, FilterFnTransform):
            flow = self.columns()._where(call, step.of_batches)
        else:
            flow = self.columns()._mapped(call, step.of_batches, seed)
        update = step.update_runtime_args
        return replace(flow, stage=self.stage + 1, args=update(self.args) if update else self.args)

    def columns(self) -> Flow:
        """Return the flow with these `rows`."""
        if self.examples is None:
            return self
        episodes = self.examples.episodes(self.name, self.args.sequence_lengths or {})
        return replace(self, examples=None, rows=episodes.steps(), episodes=episodes)

    @property
    def dataset(self) -> MapDataset:
        if self.rows is None:
            raise PlanError(f"expected {self.name} as columns, got examples")
        return self.rows

    def _mapped(self, call: Call, of_batches: bool, seed: int | None) -> Flow:
        fn = call.fn if of_batches else Each(call.fn, self._texts())
        if isinstance(fn, Each) and len(self.dataset):
            first = np.zeros(1, np.int64)
            fn = fn.of_none(planned_samples(self.dataset).at(first), None if seed is None else keys(seed, first))
        stage = Stage(call.name, fn)
        drawn = self.drawn or seed is not None
        return replace(self, rows=self.dataset.map(stage, seed=seed), episodes=None, drawn=drawn)

    def _where(self, call: Call, of_batches: bool) -> Flow:
        flow = self.settled() if self.drawn else self  # positions change, and random numbers follow from them
        each = Each(call.fn, flow._texts())

        def condition(columns: Columns) -> BoolArray:
            return call.fn(columns) if of_batches else np.array([bool(v) for v in each.values(columns)], np.bool_)

        return replace(flow, rows=flow.dataset.filter(condition), episodes=None)

    def _texts(self) -> tuple[str, ...]:
        """The features that are known to be text: of examples that no function has made columns of yet."""
        if self.episodes is None:
            return ()
        spec = self.episodes.spec
        return tuple(path for path in spec if spec[path].kind == "text")

    def settled(self) -> Flow:
        """With the functions so far behind it: rows are what they made, and lengths are known. Cost: one pass, if there
        are ragged features."""
        flow = self.columns()
        if flow.episodes is not None:
            return flow
        if len(flow.dataset) == 0:
            raise PlanError(f"expected examples in {self.name}, got none; check its source and its filters")
        episodes = measure(flow.dataset, as_it_is, progress=False)
        return replace(flow, rows=episodes.steps(), episodes=episodes, drawn=False)

    def sequences(self) -> MapDataset:
        """Samples whose features have known lengths and no functions on them: what can be packed, or mixed and then
        packed."""
        flow = self.columns()
        if flow.episodes is None and not planned_samples(flow.dataset).maps and not _ragged(flow.dataset):
            return flow.dataset
        episodes = flow.settled().episodes
        return flow.dataset if episodes is None else episodes.sequences()

    def _packed(self, step: PackPreprocessor, pad_id: int, shuffle: bool) -> Flow:
        sequences = only(self.sequences(), self.args, self.name)
        if shuffle and step.packer.in_order:
            sequences = sequences.shuffle(self.seed)
        return replace(self, examples=None, episodes=None, drawn=False).with_packs(sequences, step, pad_id)

    def with_packs(self, sequences: MapDataset, step: PackPreprocessor, pad_id: int) -> Flow:
        limits = self.args.limits
        pack = step.packer.planned(limits, dict.fromkeys(limits, pad_id), step.pool(limits))
        rows, lengths = sequences.apply(pack), dict(self.args.sequence_lengths or {})
        if step.packer.marked:
            rows = rows.map(Stage("marks", Marks(tuple(limits))))
            lengths |= {f"{name}_{kind}": length for name, length in limits.items() for kind in MARKS}
        return replace(self, rows=rows, stage=self.stage + 1, args=self.args.replace(sequence_lengths=lengths))


MARKS = ("segment_ids", "positions")


class Stage:
    """A function of columns, with the name that the fingerprint uses."""

    def __init__(self, name: str, fn: Any) -> None:
        self.fn = fn
        self.__qualname__ = name

    def __fingerprint__(self) -> str:
        return self.__qualname__

    def __call__(self, columns: Columns, *keys: Any) -> Mapping[str, Any]:
        """Apply the function to the columns."""
        return self.fn(columns, *keys)


@dataclass(frozen=True)
class Marks:
    """Segment ids and positions under the name of every feature, where features have one axis between them."""

    features: tuple[str, ...]

    def __call__(self, columns: Columns) -> Columns:
        outputs = {name: array for name, array in columns.flat.items() if name not in MARKS}
        for kind in MARKS:
            if kind in columns.flat:
                outputs |= {f"{name}_{kind}": columns.flat[kind] for name in self.features}
        return Columns.of_flat(outputs, columns.n)


def as_it_is(columns: Columns) -> Columns:
    return columns


def pad_id_of(following: Sequence[Preprocessor]) -> int:
    """Return the `pad_id` of the next `pad`: packs are padded when they are filled."""
    for step in following:
        if isinstance(step, MapFnTransform) and getattr(step.map_fn, "func", step.map_fn) is pad:
            return int(getattr(step.map_fn, "keywords", {}).get("pad_id", 0))
    return 0


def only(sequences: MapDataset, args: AirIOInjectedRuntimeArgs, name: str) -> MapDataset:
    """Return the features that have a sequence length."""
    wanted, plan = list(args.sequence_lengths or {}), sequences.plan
    if not args.limits:
        raise PlanError(f"expected a sequence length for what is packed in {name}, got {args.sequence_lengths}")
    rows = {read.name: plan.views[read.view].align != "episode" for read in plan.reads}
    unknown = [path for path in wanted if path not in rows]
    if unknown:
        raise SpecError(f"expected features of {name} among {list(rows)} in sequence_lengths, got {unknown}")
    loose = [path for path in wanted if rows[path] and path not in args.limits]
    if loose:
        raise SpecError(f"expected one value or vector an example of {loose}, which have the length {SKIP_FEATURE}")
    return sequences.select_columns(*wanted)


def _ragged(dataset: MapDataset) -> bool:
    return any(isinstance(array, Ragged) for array in dataset[:1].flat.values())
