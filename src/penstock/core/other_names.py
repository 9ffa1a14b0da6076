"""Names that people type from other libraries or from earlier versions, and what does the same here.

The names are part of messages alone: nothing has two names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

EPISODES: Mapping[str, str] = {
    "batch": "steps().loader(batch_size=64) for batches of steps, or data[[3, 1]] for some episodes",
    "choose": "apply(transform)",
    "column_names": "list(data.spec)",
    "columns": "list(data.spec)",
    "curated": "apply(curation)",
    "episodes_at": "data[[3, 1]], which is a dataset of these episodes",
    "features": "spec",
    "filter_episodes": "filter(...)",
    "iterate_episodes": "a loop, `for episode in data`",
    "loader": "steps().loader(batch_size=64), or windows(), pairs() or sequences() instead of steps()",
    "map": "map_episodes(fn) for whole episodes, or steps().map(fn) for batches",
    "pack": "sequences().pack(length)",
    "read_episodes": "list(data[numbers])",
    "sample_episodes": "list(data[numbers]), with numbers that NumPy draws",
    "sample_with": "apply(transform)",
    "samples": "steps() for a sample of every step, or transitions() for next observations too",
    "save": "penstock.convert(data, path)",
    "select": "data[[3, 1]] for some episodes, or steps().select_columns(...) for some columns",
    "select_columns": "steps().select_columns(...), or windows(), pairs() or sequences() instead of steps()",
    "set_format": 'steps().loader(output="torch")',
    "statistics": "penstock.statistics(data)",
    "shape": "len(data) and total_steps",
    "shuffle": "steps().shuffle(seed=0), or windows(), pairs() or sequences() instead of steps()",
    "skip": "data[n:]",
    "take": "data[:n] for the first ones, or data[[3, 1]] for some",
    "total_episodes": "len(data)",
    "train_test_split": 'split({"train": 0.8, "test": 0.2})',
    "where": "filter(...)",
    "window": "windows(length)",
    "with_format": 'steps().loader(output="torch")',
    "write": "penstock.convert(data, path), or map_episodes(fn) last, whose result has write(path)",
}
"""Names for `EpisodeDataset`."""

SAMPLES: Mapping[str, str] = {
    "batch": "loader(batch_size=64), or samples[[3, 1]] for some samples",
    "batches": "loader(batch_size=64), or loader(batch_size=penstock.transforms.Batches(tokens=8192))",
    "column_names": "list(samples[:1])",
    "columns": "list(samples[:1])",
    "concatenate": 'penstock.mix([one, other], stop="drain")',
    "cycle": "repeat()",
    "enumerate": "with_row_numbers()",
    "interleave": "penstock.mix([one, other], [3, 1])",
    "iterate": "loader(batch_size=64), or penstock.IterDataset.of(samples, 64)",
    "mix": "penstock.mix([one, other], [3, 1])",
    "nominal": "with_epoch_length(n)",
    "normalize": "map(penstock.normalize(penstock.statistics(data), ['observations']))",
    "pairs": "pairs() of the episodes, before steps() or windows()",
    "prefetch": "loader(batch_size=64), which reads ahead",
    "random_map": "map(fn, seed=0)",
    "rename_columns": 'loader(rename={"old": "new"})',
    "sample": "weighted(...) to draw by weights, or shuffle(seed=0)",
    "select": "select_columns(...) for some columns, or samples[[3, 1]] for some samples",
    "set_format": 'loader(output="torch")',
    "skip": "samples[n:] to read, or filter(mask) for a dataset of the others",
    "slice": "samples[first:last]",
    "split": "split(...) of the episodes, before steps(), windows(), pairs() or sequences()",
    "steps": "these samples as they are, which were made of episodes already",
    "take": "samples[:n] to read, or filter(mask) for a dataset of some",
    "to_iter_dataset": "loader(batch_size=64), or penstock.IterDataset.of(samples, 64)",
    "train_test_split": "split(...) of the episodes, before steps(), windows(), pairs() or sequences()",
    "where": "filter(...)",
    "windows": "windows(n) of the episodes, before steps()",
    "with_format": 'loader(output="torch")',
    "zip": "more columns in one source, or with_column(name, fn) of the episodes",
}
"""Names for `MapDataset`."""

LOADING: Mapping[str, str] = {
    "batch_sampler": "batch_size=penstock.transforms.Batches(...)",
    "collate_fn": "samples.map(fn), or output=fn",
    "dataset": "samples.loader(batch_size=64)",
    "num_workers": "threads=",
    "persistent_workers": "threads=, which live as long as a loop",
    "pin_memory": "pin=",
    "prefetch_factor": "prefetch=",
    "sampler": "shuffle(seed=0) or weighted(...) of the samples",
    "seed": "shuffle(seed=0) of the samples",
    "shuffle": "shuffle(seed=0) of the samples, before loader()",
}
"""Names for arguments of `loader()`."""

PENSTOCK: Mapping[str, str] = {
    "Collector": "penstock.record(env, path)",
    "DataLoader": "dataset.loader(batch_size=64)",
    "Dataset": "penstock.open(path)",
    "JaxLoader": 'dataset.loader(output="jax")',
    "Nominal": "with_epoch_length(n) of a dataset, or penstock.transforms.EpochLength",
    "TorchLoader": 'dataset.loader(output="torch")',
    "VectorCollector": "penstock.record(envs, path)",
    "concatenate_datasets": "penstock.merge(paths, path) for files, or penstock.mix(datasets)",
    "from_dict": "penstock.from_arrays(arrays, lengths)",
    "interleave_datasets": "penstock.mix(datasets, weights)",
    "load": "penstock.open(path)",
    "load_dataset": "penstock.open(path)",
    "load_from_disk": "penstock.open(path)",
    "make": "gymnasium.make(name), and penstock.record(env, path) to record it",
    "read": "penstock.open(path)",
    "save": "penstock.convert(data, path)",
    "split": "split(...) of a dataset",
    "where": "filter(...) of a dataset",
}
"""Names for `penstock` itself."""

SUBMODULES = ("transforms", "columns", "errors", "formats", "recording", "replay", "curation")
"""Modules of `penstock` with public names, in the order in which a name is looked for."""


class OtherNames:
    """Base class of classes whose `AttributeError` has the right call for names from elsewhere."""

    __slots__ = ()

    _other_names: Mapping[str, str] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that raised an `AttributeError` of its own
                return object.__getattribute__(self, name)
            raise no_attribute(self, name, type(self)._other_names)


def no_argument(call: str, names: Iterable[str], other_names: Mapping[str, str]) -> TypeError | None:
    """Return the error for arguments of a call that have another name here; None if none of them is known."""
    name = next((name for name in names if name in other_names), None)
    return None if name is None else TypeError(f"{call} has no argument {name!r}; use {other_names[name]}")


def no_attribute(owner: object, name: str, other_names: Mapping[str, str]) -> AttributeError:
    kind = type(owner).__name__
    if name in other_names:
        return AttributeError(f"{kind} has no {name!r}; use {other_names[name]}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=owner)


def no_name(package: str, name: str) -> AttributeError:
    usual = f"module {package!r} has no attribute {name!r}"
    if package != "penstock":
        return AttributeError(usual)
    if name in PENSTOCK:
        return AttributeError(f"penstock has no {name!r}; use {PENSTOCK[name]}")
    for submodule in SUBMODULES:
        if name in getattr(getattr(sys.modules[package], submodule), "__all__", ()):
            return AttributeError(f"penstock has no {name!r}; use penstock.{submodule}.{name}")
    return AttributeError(usual)
