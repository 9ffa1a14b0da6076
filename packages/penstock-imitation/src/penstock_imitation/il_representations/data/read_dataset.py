"""Datasets of archives: frames or samples, alone or interleaved, iterated like the original's."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.core.damage import warn_damage
from penstock.data.dataset import EpisodeDataset
from penstock.data.function_digest import FunctionDigest
from penstock.data.map_dataset import MapDataset
from penstock.data.mix import mix
from penstock.errors import DataError, FormatError, PlanError
from penstock.formats.webdataset.source import ShardSource
from penstock.plan.schedule import MixSchedule
from penstock.plan.select import Take
from penstock.plan.weights import Weight, shares
from penstock_imitation.il_representations.data.metadata import TRAJECTORY, Meta, metadata_of
from penstock_imitation.il_representations.data.samples import BLOCK, Frames, Planned, Resumable, begins, walk

Stage = Callable[[Iterator[Any]], Iterable[Any]]
Epoch = Literal["drain", "all_exhausted", "first_exhausted"]


class ILRDataset(Resumable):
    """The frames of archives in il-representations' layout, or what was made of them; `meta` describes the task.

    `urls` are archives (`"file:"` before a path is allowed), in order, or a folder of them. A frame is a dict as it was
    stored: `obs`, `next_obs`, `acts`, `dones`, `frame`, `infos`, `rews`, and `__key__`; `__trajectory__` is
    the number of its trajectory. Nothing in the files is executed. `cache` is the folder that compressed archives are
    unpacked into, once.

    A trajectory ends with a done, and with its archive: no pair reaches across archives, whether pairs are planned or
    made of frames. `join=True` joins a trajectory that an archive cut off with the beginning of the next archive, where
    the stored next observation equals the first observation there.

    `pipe` and `shuffle` give a new dataset. Where nothing but a pair constructor or extractor was piped, samples have
    positions: `len()` is exact, `shuffle` is one of all samples, resuming seeks, and `samples` is the `MapDataset` that
    a `penstock.Loader` takes.

    Cost: frames are yielded one by one, each with its own arrays; samples of pair constructors are gathered in blocks,
    which is several times as fast.
    """

    def __init__(
        self,
        urls: str | Path | Sequence[str | Path],
        *,
        cache: str | os.PathLike[str] | None = None,
        join: bool = False,
    ) -> None:
        super().__init__()
        location = _location(urls)
        source = ShardSource(location, cache=cache, join=join)
        if (left_out := source.account.warning()) is not None:
            warn_damage(f"{source.location}: {left_out}", stacklevel=2)
        if source.layout != "seed":
            raise FormatError("expected archives of frames with their obs, acts and dones", path=location)
        self.paths = list(source.shards)
        self.meta: Meta = metadata_of(self.paths)
        self.episodes = EpisodeDataset(source)
        self.stage: Planned = Frames()
        self._frames = self.episodes.total_steps
        self._seeds: tuple[int, ...] = ()
        self._after: tuple[Stage, ...] = ()
        self._digests: tuple[FunctionDigest, ...] = ()  # of these functions, as they were piped

    def __repr__(self) -> str:
        names = ", ".join(path.name for path in self.paths[:3]) + (", ..." if len(self.paths) > 3 else "")
        piped = "".join(f", {stage!r}" for stage in (self.stage, *self._after))
        return f"{type(self).__name__}({names}: {self._frames} frames{piped})"

    @cached_property
    def samples(self) -> MapDataset:
        """The samples by position, as columns."""
        if self._after:
            raise PlanError(f"expected samples with positions, got {list(self._after)}, which can only be iterated")
        return self._ordered()

    @property
    def functions(self) -> tuple[Stage, ...]:
        """The functions of iterators that were piped after the stages with positions."""
        return self._after

    def _ordered(self) -> MapDataset:
        samples = self.stage.planned(self.episodes)
        if self._frames < self.episodes.total_steps:
            offsets = self.episodes.episodes.length.cumsum()
            kept = np.diff(np.minimum(offsets, self._frames), prepend=0)
            samples = samples.apply(Take(np.arange(self.stage.pairs_of(kept))))
        for seed in self._seeds:
            samples = samples.shuffle(seed)
        return samples

    def pipe(self, stage: Stage | Planned) -> ILRDataset:
        """Return the dataset with another stage: a pair constructor, an extractor, or any function from an iterator to
        an iterable.
        """
        shuffled = self._seeds or any(isinstance(each, _Buffer) for each in self._after)
        if shuffled and isinstance(self.stage, Frames) and isinstance(stage, Planned | SubdatasetExtractor):
            raise PlanError(f"expected {stage!r} before shuffle, because it needs frames in the order of time")
        if isinstance(stage, SubdatasetExtractor) and not self._after:
            return self.first(n_trajs=stage.n_trajs, n_trans=stage.n_trans)
        if isinstance(stage, Planned) and isinstance(self.stage, Frames) and not self._after:
            return self._with(stage=stage)
        return self._then(stage)

    def shuffle(self, size: int = 1024, *, seed: int = 0) -> ILRDataset:
        """Shuffle, with another order in every epoch: all samples; or, after functions of iterators, a buffer of
        `size`.
        """
        if self._after:
            return self._then(_Buffer(size, seed))
        return self._with(_seeds=(*self._seeds, seed))

    def first(self, *, n_trajs: int | None = None, n_trans: int | None = None) -> ILRDataset:
        """Return the first `n_trajs` whole trajectories, or `n_trans` transitions."""
        if self._after or self._seeds or not isinstance(self.stage, Frames):
            raise PlanError("expected frames as they are stored, got a dataset that something was piped to")
        for wanted, there, name in ((n_trajs, len(self.episodes), "trajectories"), (n_trans, self._frames, "frames")):
            if wanted is not None and not 0 < wanted <= there:
                raise DataError(f"expected 1 to {there} {name}, which {self.paths[0].parent} has, got {wanted}")
        episodes = self.episodes if n_trajs is None else self.episodes[:n_trajs]
        return self._with(episodes=episodes, _frames=episodes.total_steps if n_trans is None else n_trans)

    def __len__(self) -> int:
        if self._after:
            raise TypeError("the length behind functions of iterators is unknown; count its samples as they come")
        return len(self.samples)

    def _then(self, stage: Any) -> ILRDataset:
        return self._with(_after=(*self._after, stage), _digests=(*self._digests, FunctionDigest.of(stage)))

    def _with(self, **changed: Any) -> ILRDataset:
        copied = copy.copy(self)
        copied.__dict__.pop("samples", None)
        copied.__dict__.update(changed)
        copied.set_epoch(0)
        return copied

    def _identity(self) -> str:
        return f"{self._ordered().fingerprint} {[digest.text for digest in self._digests]}"

    def _samples(self, epoch: int, first: int, step: int) -> Iterator[Any]:
        if not self._after:
            return walk(self.samples, self.stage, epoch, first, step)
        items: Iterator[Any] = walk(self._ordered(), self.stage, epoch, 0, 1)
        for stage in self._after:
            items = iter(stage.of(items, epoch) if isinstance(stage, _Buffer) else stage(items))
        return islice(items, first, None, step)


class InterleavedDataset(Resumable):
    """Samples of several datasets in turn, at exact rates: after any number of samples, each dataset has had its share
    to within one sample.

    `nominal_length` is how many samples an epoch has, the next of which goes on where it ended, datasets starting over
    as they need; or, for datasets whose samples have positions, a name: `"drain"` (every sample once),
    `"all_exhausted"` (every one at least once) or `"first_exhausted"` (at most once). `weights` are equal by default.
    With a `seed`, which needs positions too, each dataset is shuffled first.

    Cost: without positions, resuming reads all earlier samples.
    """

    def __init__(
        self,
        datasets: Iterable[Iterable[Any]],
        nominal_length: int | Epoch,
        seed: int | None = None,
        *,
        weights: Sequence[Weight] | None = None,
    ) -> None:
        super().__init__()
        self.datasets = list(datasets)
        if not self.datasets:
            raise PlanError("expected at least one dataset to interleave, got none")
        self._weights = [1] * len(self.datasets) if weights is None else list(weights)
        self._length = nominal_length
        self.samples: MapDataset | None = None
        ordered = [d for d in self.datasets if isinstance(d, ILRDataset) and not d.functions]
        if len(ordered) == len(self.datasets) and all(d.stage == ordered[0].stage for d in ordered):
            self.samples, self._stage = mixed(ordered, self._weights, nominal_length, seed), ordered[0].stage
        elif seed is not None or isinstance(nominal_length, str):
            raise PlanError(
                f"expected a number of samples and no seed where not all have positions and one stage, got "
                f"{nominal_length!r} and {seed!r}; shuffle the datasets themselves"
            )
        self._turns: _Turns | None = None

    @property
    def pairs(self) -> MapDataset | None:
        """The samples by position, if a pair constructor made them; None for frames, which have no columns."""
        return None if self.samples is None or isinstance(self._stage, Frames) else self.samples

    def __len__(self) -> int:
        return int(self._length) if self.samples is None else len(self.samples)

    def _identity(self) -> str:
        if self.samples is not None:
            return self.samples.fingerprint
        return f"{len(self.datasets)} datasets, {self._weights}, {self._length}"

    def _samples(self, epoch: int, first: int, step: int) -> Iterator[Any]:
        if self.samples is not None:
            return walk(self.samples, self._stage, epoch, first, step)
        return islice(self._standing(epoch * len(self) + first), 0, len(self) - first, step)

    def _standing(self, position: int) -> _Turns:
        """Return the turns from a position on: the current turns if not past it, else new ones from the start."""
        if self._turns is None or self._turns.at > position:
            self._turns = _Turns(self.datasets, self._weights)
        for _ in islice(self._turns, position - self._turns.at):
            pass
        return self._turns

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without iterators: each worker starts its own."""
        return {**self.__dict__, "_turns": None}


class SubdatasetExtractor:
    """Stage that keeps the first `n_trajs` trajectories, the first `n_trans` transitions, or all frames."""

    def __init__(self, n_trajs: int | None = None, n_trans: int | None = None) -> None:
        if n_trajs is not None and n_trans is not None:
            raise DataError(f"expected n_trajs or n_trans, got both, {n_trajs} and {n_trans}")
        self.n_trajs, self.n_trans = n_trajs, n_trans

    def __call__(self, data_iter: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Return the first frames of an iterator."""
        trajs = trans = 0
        before: dict[str, Any] | None = None
        for frame in data_iter:
            if before is not None and begins(frame, before):
                trajs += not before.get("dones", False)
                if trajs == self.n_trajs:
                    return
            yield frame
            before, trans = frame, trans + 1
            trajs += bool(frame.get("dones", False))
            if trans == self.n_trans or trajs == self.n_trajs:
                return
        if before is not None and TRAJECTORY in before and not before.get("dones", False):
            trajs += 1  # the end of the dataset cut it off
        if trajs != self.n_trajs and (self.n_trajs is not None or self.n_trans is not None):
            wanted = f"{self.n_trajs} trajectories" if self.n_trans is None else f"{self.n_trans} transitions"
            raise DataError(f"expected at least {wanted}, got {trans} transitions of {trajs} trajectories")


def load_ilr_datasets(
    file_paths: Sequence[str | Path], *, cache: str | os.PathLike[str] | None = None, join: bool = False
) -> ILRDataset:
    """Return the dataset in archives, in the order given. Raises the errors of `ILRDataset`."""
    return ILRDataset(file_paths, cache=cache, join=join)


def mixed(
    datasets: Sequence[ILRDataset], weights: Sequence[Weight], length: int | Epoch, seed: int | None
) -> MapDataset:
    """Return one dataset with a column `source`, the number of each sample's dataset; each is shuffled separately."""
    parts = [dataset.samples for dataset in datasets]
    if empty := [i for i, part in enumerate(parts) if not len(part)]:
        raise PlanError(f"expected samples in every dataset, got none in {[str(datasets[i].paths[0]) for i in empty]}")
    if seed is not None:  # separate seeds: with one seed, datasets of equal size would have the same order
        parts = [part.shuffle(seed * len(parts) + i) for i, part in enumerate(parts)]
    return mix(parts, weights, stop=length)


class _Turns(Iterator[Any]):
    """Samples of iterables in turn, without end; each iterable restarts after its last sample."""

    def __init__(self, datasets: Sequence[Iterable[Any]], weights: Sequence[Weight]) -> None:
        self.at = 0
        self._datasets, self._iterators = datasets, [_whole(dataset) for dataset in datasets]
        self._course = MixSchedule.of(shares(weights), [None] * len(datasets), "never")
        self._picked: list[int] = []

    def __next__(self) -> Any:
        if not self.at % BLOCK:
            self._picked = self._course.picks(np.arange(self.at, self.at + BLOCK))[0].tolist()
        number = self._picked[self.at % BLOCK]
        self.at += 1
        for _ in range(2):
            for sample in self._iterators[number]:
                return sample
            self._iterators[number] = _whole(self._datasets[number])
        raise PlanError(f"expected samples in every dataset, got none in number {number}")


def _whole(dataset: Iterable[Any]) -> Iterator[Any]:
    """Return all samples, in every worker: workers share the turns instead."""
    return dataset.part(0, 1) if isinstance(dataset, Resumable) else iter(dataset)


@dataclass(frozen=True)
class _Buffer:
    """Shuffle buffer for samples without positions: yield one of `size` samples, and refill its place with the next."""

    size: int
    seed: int

    def of(self, items: Iterator[Any], epoch: int) -> Iterator[Any]:
        rng = np.random.default_rng([self.seed, epoch])
        buffered = list(islice(items, self.size))
        for item in items:
            i = int(rng.integers(len(buffered)))
            yield buffered[i]
            buffered[i] = item
        yield from (buffered[i] for i in rng.permutation(len(buffered)).tolist())


def _location(urls: str | Path | Sequence[str | Path]) -> Path:
    """Return one archive, a folder, or the pattern that matches several archives."""
    paths = [str(url).removeprefix("file:") for url in ([urls] if isinstance(urls, str | Path) else urls)]
    if not paths:
        raise DataError("expected at least one archive, got none")
    if len(paths) == 1:
        return Path(paths[0])
    if odd := [path for path in paths if set(path) & set("{},")]:
        raise DataError(f"expected names without braces and commas where there are several, got {odd[0]!r}")
    return Path("{" + ",".join(paths) + "}")
