"""`mix`: several datasets as one, in exact proportions.

A mix is a plan above the plans of its parts. `MixSchedule` says, for any position, which part is picked and how often
that part was picked before, by integer arithmetic; the sample is the one at this position of the part. So a mix has a
length, random access and a state of one integer, and shuffles or packs like any other plan.

Weights become `Fraction`s: a float counts as the decimals that it prints as, so shares add up exactly and do not
depend on the machine. Weights by rows are converted to weights by samples with each part's mean length.

Sources of all parts are numbered one after the other, and `first` has the first number of each part. The source of a
sample thus names its part, which is how `_Routed` finds the map functions for each row of a batch: it sorts the rows
by part, calls each part's functions on its own rows with their own positions, and restores the order.

`continued` makes a mix again whose parts begin after samples that an earlier mix has taken; `MixCourse` is what a saved
state needs for that. Bound: see `plan/schedule.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.blocks import concatenated
from penstock.core.columns import Columns
from penstock.core.narrowing import is_mapping
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.map_function import ColumnFunction
from penstock.data.marks import part_of
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import PlanError, SpecError, StateError
from penstock.plan.base import Plan
from penstock.plan.mixed import ORIGIN, MixedPlan, MixPart
from penstock.plan.outputs import DerivedOutput
from penstock.plan.schedule import MixSchedule, Stop
from penstock.plan.weights import Weight, per_sample, shares

Weights = Mapping[str, Weight] | Sequence[Weight]
Unit = Literal["samples", "packs", "steps", "tokens"]
Repeats = Weight | Mapping[str, Weight]


def mix(
    datasets: Mapping[str, MapDataset] | Sequence[MapDataset],
    weights: Weights | Sequence[tuple[int, Weights]] | None = None,
    *,
    unit: Unit = "samples",
    stop: Stop = "first_exhausted",
    max_repeats: Repeats | None = None,
    label: str | None = "source",
    union: bool = False,
) -> MapDataset:
    """Mix datasets in exact proportions.

    After any number of samples, each dataset has contributed its share to within one sample. (With more than four
    datasets, and weights that do not repeat within 2^20 samples, the bound is larger: see `plan.course.bound`.)

    The mix reads each dataset in its own order, and each sample once before any sample again. Shuffle the datasets
    first, or the mix afterwards. A mix has random access and can be shuffled, packed and mixed again. The map functions
    of a dataset apply only to its own samples.

    Args:
        datasets: Datasets by name, or in a sequence (named "0", "1", and so on).
        weights: A number of 0 or more for each dataset, in any scale. Floats count as the decimals that they print as.
            A list of `(position, weights)` changes the weights at these positions. Default: the size of each dataset.
        unit: Unit of the weights. `"samples"` and `"packs"` count samples of the datasets. `"steps"` and
            `"tokens"` count rows, so datasets with longer samples are picked less often. Shares of rows are exact over
            whole epochs of the datasets.
        stop: Where an epoch ends. `"first_exhausted"`: before a dataset would start over. `"all_exhausted"`: when every
            dataset was used up once; shorter ones start over. `"drain"`: a used-up dataset leaves, and the others
            continue in their proportions until all are used up once. `"never"`: no end. An integer: after so many
            samples. All epochs have the length of the first, and each dataset continues where the last epoch ended.
        max_repeats: Passes over a dataset after which it leaves the mix, and the others continue in their proportions:
            one number for all, or numbers by name. A pass need not be whole: 2.5 are two and a half. Counted in an
            epoch of the mix, so over a run of one epoch (an integer as `stop`). `"first_exhausted"` then means the
            datasets without a limit. The default is None: no limit.
        label: Name of an `[n]` int32 column with the number of each sample's dataset, or None to leave it out.
        union: Whether datasets may lack outputs of others, and may have different widths. Missing values are padded,
            and `<output>_present` is True for samples that have the output. The default is False.

    Returns:
        The mixed dataset. Cost: a table of at most some MB, and about 20 ns to pick a sample.

    Raises:
        ArgumentError: A dataset is not a `MapDataset`.
        PlanError: A weight is negative, an empty dataset has a weight, or the datasets have different outputs. Or
            `max_repeats` names no dataset, is 0 or less, or uses up all datasets before `stop`.

    Example:
        >>> import numpy as np, penstock
        >>> one = penstock.from_arrays({"x": np.zeros(60)}, lengths=[60]).steps()
        >>> two = penstock.from_arrays({"x": np.ones(40)}, lengths=[40]).steps()
        >>> both = mix({"zeros": one, "ones": two}, {"zeros": 0.7, "ones": 0.3})
        >>> len(both), int(both[:20]["x"].sum()), both[:4]["source"].tolist()
        (86, 6, [0, 1, 0, 0])

        A small dataset is read twice, then the other alone:

        >>> few = penstock.from_arrays({"x": np.ones(5)}, lengths=[5]).steps()
        >>> run = mix({"large": one, "small": few}, [1, 1], stop=40, max_repeats={"small": 2})
        >>> [int(run[lo : lo + 10]["x"].sum()) for lo in (0, 10, 20, 30)]
        [5, 5, 0, 0]
    """
    named = dict(datasets) if isinstance(datasets, Mapping) else {str(i): d for i, d in enumerate(datasets)}
    options = {
        "weights": weights,
        "unit": unit,
        "stop": stop,
        "max_repeats": max_repeats,
        "label": label,
        "union": union,
    }
    return MapDataset(_mixed({name: planned_samples(each) for name, each in named.items()}, options))


def _mixed(named: Mapping[str, PlannedSamples], options: Mapping[str, Any]) -> PlannedSamples:
    parts = list(named.values())
    if not parts:
        raise PlanError("expected at least one dataset to mix, got none")
    weights = [len(d) for d in parts] if options["weights"] is None else options["weights"]
    changes = _changes(weights, list(named), parts, options["unit"])
    limits = _limits(options["max_repeats"], named)
    course = MixSchedule.of(changes, [len(d) for d in parts], options["stop"], limits)
    return _assembled(named, course, _Mix(named, options), [])


def _assembled(
    named: Mapping[str, PlannedSamples], course: MixSchedule, origin: _Mix, begin: Sequence[int]
) -> PlannedSamples:
    """The mix of datasets by a schedule. `begin` is how many samples each has given before."""
    parts = [MixPart(name, d.plan, len(d.sources)) for name, d in named.items()]
    mapped = any(d.maps for d in named.values())
    label, union = origin.options["label"], origin.options["union"]
    plan = MixedPlan(parts, course, label=label, union=union, origin=mapped, begin=begin)
    stages: tuple[ColumnFunction, ...] = ()
    if mapped:
        functions = (
            _Functions(first, _labels(d.plan), d.maps) for first, d in zip(plan.first, named.values(), strict=True)
        )
        stages = (_Routed(label, tuple(functions)),)
    sources = [source for d in named.values() for source in d.sources]
    return PlannedSamples(sources, plan, stages, origin)


def mix_below(plan: Plan) -> MixedPlan | None:
    """Return the outermost mix that a plan is made of, or None."""
    below: Plan | None = plan
    while not (below is None or isinstance(below, MixedPlan)):
        below = getattr(below, "upstream", None)
    return below


def position_in_mix(plan: Plan, position: int) -> int | None:
    """Return the position of the outermost mix at a position of a plan that is made of it."""
    below: Plan | None = plan
    place: int | None = position
    while not (below is None or place is None or isinstance(below, MixedPlan)):
        place, below = below.count_below(place), getattr(below, "upstream", None)
    return place


def continued(
    samples: PlannedSamples,
    begin: Mapping[str, int],
    course: MixCourse | None = None,
    change: Callable[[str, PlannedSamples], PlannedSamples] = lambda _, part: part,
) -> PlannedSamples | None:
    """Return a mix whose parts continue after their first samples."""

    plan = mix_below(samples.plan)
    if plan is None:
        return None

    def made(origin: object) -> PlannedSamples | None:
        if not isinstance(origin, _Mix) or not begin.keys() <= origin.datasets.keys():
            return None
        names = origin.datasets if course is None else begin
        named = {name: change(name, origin.datasets[name]) for name in names}
        counts = [begin.get(name, 0) for name in named]
        options = origin.options
        if course is not None:
            options = {**options, "label": course.label, "union": course.union}
        used = MixCourse.of(plan) if course is None else course
        left = [None if most is None else max(most - begun, 0) for most, begun in zip(used.limits, counts, strict=True)]
        schedule = MixSchedule.of(used.stretches, [len(d) for d in named.values()], used.stop, left)
        return _assembled(named, schedule, _Mix(named, options, tuple(counts)), counts)

    return samples.remade(made)


@dataclass(frozen=True)
class MixCourse:
    """Schedule and outputs of a mix, as far as its parts do not determine them."""

    stretches: tuple[tuple[int, tuple[Fraction, ...]], ...]
    stop: Stop
    label: str | None
    union: bool
    limits: tuple[int | None, ...]

    @classmethod
    def of(cls, plan: MixedPlan) -> MixCourse:
        most = plan.course.limits or (None,) * len(plan.parts)
        limits = (None if n is None else n + begin for n, begin in zip(most, plan.begin.tolist(), strict=True))
        return cls(plan.course.stretches, plan.course.stop, plan.label, plan.union, tuple(limits))

    def to_json(self) -> list[Any]:
        stretches = [[position, [str(share) for share in shares]] for position, shares in self.stretches]
        limits = [] if all(limit is None for limit in self.limits) else [list(self.limits)]
        return [stretches, self.stop, self.label, self.union, *limits]

    @classmethod
    def from_json(cls, value: Any) -> MixCourse:
        """Make a course from the output of `to_json`."""
        try:
            stretches, stop, label, union, *limited = value
            shares_at = tuple((int(k), tuple(Fraction(share) for share in shares)) for k, shares in stretches)
            (limits,) = limited or [[None] * len(shares_at[0][1])]
            most = tuple(None if limit is None else int(limit) for limit in limits)
            if len(most) != len(shares_at[0][1]):
                raise ValueError("other parts")
            return cls(shares_at, stop, label, bool(union), most)
        except (IndexError, TypeError, ValueError, ZeroDivisionError) as error:
            raise StateError(f"expected the course of a mix in a state, got {value!r}") from error


def _changes(
    schedule: Any, names: list[str], datasets: Sequence[PlannedSamples], unit: Unit
) -> list[tuple[int, tuple[Fraction, ...]]]:
    """Shares of samples from each position on."""
    if unit not in ("samples", "packs", "steps", "tokens"):
        raise PlanError(f"expected unit to be 'samples', 'packs', 'steps' or 'tokens', got {unit!r}")
    scheduled = not is_mapping(schedule) and len(schedule) and isinstance(schedule[0], tuple)
    rows = [Fraction(d.plan.rows(), max(len(d), 1)) for d in datasets] if unit in ("steps", "tokens") else None
    changes: list[tuple[int, tuple[Fraction, ...]]] = []
    for position, weights in schedule if scheduled else [(0, schedule)]:
        wanted = shares(_in_order(weights, names))
        changes.append((int(position), wanted if rows is None else per_sample(wanted, rows)))
    _check_samples(names, datasets, changes)
    return changes


def _limits(repeats: Repeats | None, datasets: Mapping[str, PlannedSamples]) -> list[int | None]:
    """Most samples of each dataset in an epoch of the mix."""
    named = dict(repeats) if is_mapping(repeats) else dict.fromkeys(datasets, repeats)
    if unknown := set(named) - set(datasets):
        raise PlanError(f"expected max_repeats for some of {list(datasets)}, got {sorted(unknown)}")
    limits: list[int | None] = []
    for name, dataset in datasets.items():
        passes = named.get(name)
        limits.append(None if passes is None else int(_passes(passes, name) * len(dataset)))
    return limits


def _passes(value: Any, name: str) -> Fraction:
    try:
        exact = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        exact = Fraction(0)
    if exact <= 0:
        raise PlanError(f"expected max_repeats above 0, got {value!r} for {name!r}; to leave it out, give it weight 0")
    return exact


def _check_samples(
    names: list[str], datasets: Sequence[PlannedSamples], changes: Sequence[tuple[int, tuple[Fraction, ...]]]
) -> None:
    for i, (name, dataset) in enumerate(zip(names, datasets, strict=True)):
        if any(shares[i] for _, shares in changes) and dataset.plan.empty:
            raise PlanError(
                f"expected samples in every dataset that has a share, got none in {name!r}: "
                f"{dataset.plan.why_empty()}; give it weight 0"
            )


def _in_order(weights: Weights, names: list[str]) -> list[Weight]:
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise PlanError(f"expected a weight for each of {names}, got {sorted(weights)}")
        return [weights[name] for name in names]
    if len(weights) != len(names):
        raise PlanError(f"expected {len(names)} weights, one for each of {names}, got {len(weights)}")
    return list(weights)


def _labels(plan: Plan) -> tuple[DerivedOutput, ...]:
    return tuple(mark for mark in plan.marks if mark.kind == "source")


@dataclass(frozen=True)
class _Functions:
    """Map functions of one dataset of a mix. Its sources are numbered from `first` on.

    If that dataset is a mix itself, its functions see its own `labels`. The outer mix does not have these columns.
    """

    first: int
    labels: tuple[DerivedOutput, ...]
    stages: tuple[ColumnFunction, ...]

    @property
    def fingerprint(self) -> str:
        return repr([stage.fingerprint for stage in self.stages])

    def __call__(self, columns: Columns, origin: IntArray, positions: IntArray) -> Columns:
        inner = origin - self.first
        given: dict[str, Any] = {mark.name: part_of(mark, inner) for mark in self.labels}
        if any(isinstance(stage, _Routed) for stage in self.stages):
            given[ORIGIN] = inner
        columns = columns.merged(given) if given else columns
        for stage in self.stages:
            columns = stage(columns, positions)
        return _without(columns, given)


@dataclass(frozen=True)
class _Routed:
    """Map functions of all datasets of a mix. The origin of each sample selects its functions."""

    label: str | None
    parts: tuple[_Functions, ...]

    @property
    def fingerprint(self) -> str:
        """Fingerprints of the functions of all datasets."""
        return repr([each.fingerprint for each in self.parts])

    def __call__(self, columns: Columns, positions: IntArray) -> Columns:
        origin = columns[ORIGIN]
        own = {} if self.label is None else {self.label: columns[self.label]}
        others = _without(columns, [ORIGIN, *own])
        first = np.array([each.first for each in self.parts])
        part = np.searchsorted(first, np.asarray(origin), side="right") - 1
        order = np.argsort(part, kind="stable")
        numbers, first = np.unique(part[order], return_index=True)
        if len(part) == 0:  # the share of a rank may be empty, and has the columns of the others all the same
            numbers, first = np.zeros(1, np.int64), np.zeros(1, np.int64)
        cuts = np.append(first, len(order)).tolist()
        done: list[Columns] = []
        for i, number in enumerate(numbers.tolist()):
            mine = order[cuts[i] : cuts[i + 1]]
            block = self.parts[number](others.take(mine), origin[mine], positions[mine])
            if done and list(block) != list(done[0]):
                raise SpecError(f"expected the functions of all datasets to give {list(done[0])}, got {list(block)}")
            done.append(block)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return concatenated(done).take(back).merged(own)


def _without(columns: Columns, names: Collection[str]) -> Columns:
    return Columns.of_flat({name: array for name, array in columns.flat.items() if name not in names}, columns.n)


@dataclass(frozen=True)
class _Mix:
    """The datasets and options of a mix. `begin` is how many samples each has given before, in a continued mix."""

    datasets: Mapping[str, PlannedSamples]
    options: Mapping[str, Any]
    begin: tuple[int, ...] = ()

    @property
    def chain(self) -> tuple[str, ...]:
        parts = ", ".join(f"{name}: {' > '.join(dataset.chain)}" for name, dataset in self.datasets.items())
        return (f"mix({parts})",)

    def as_of(self, episodes: Sequence[int]) -> PlannedSamples | None:
        if any(self.begin):  # counts of samples say nothing of other extents
            return None
        earlier: dict[str, PlannedSamples] = {}
        for name, dataset in self.datasets.items():
            mine, episodes = episodes[: len(dataset.sources)], episodes[len(dataset.sources) :]
            current = dataset.as_of(mine)
            if current is None:
                return None
            earlier[name] = current
        return _mixed(earlier, self.options)

    def remade(self, make: Callable[[object], PlannedSamples | None]) -> PlannedSamples | None:
        return make(self)

    def with_parts(self, change: Callable[[PlannedSamples], PlannedSamples]) -> PlannedSamples:
        return _mixed({name: change(dataset) for name, dataset in self.datasets.items()}, self.options)
