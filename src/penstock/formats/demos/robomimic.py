"""robomimic's HDF5 files: a group of datasets for each demonstration, `data/demo_0`, `data/demo_1`, and so on.

Datasets of equal names in all demonstrations become one column. `next_obs` repeats `obs` one step later: where it does
so in every demonstration, observations are one column of T + 1 rows. The comparison reads both once; its result
(`follow`) goes along when the source is pickled, so workers do not compare again.

Source: robomimic 0.3, `docs/datasets/overview.md` and `robomimic/utils/dataset.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.hdf5 import Dataset, File, Group
from penstock.core.cache import Cache
from penstock.core.narrowing import is_list
from penstock.core.order import natural
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.findings import Finding
from penstock.formats.demos.hdf5 import (
    DECODED,
    HDF5Kind,
    Segments,
    alike,
    attribute,
    behind_the_end,
    column,
    datasets_below,
    leads_to,
    misfit,
    numbers,
    row_shape,
)
from penstock.formats.demos.source import DemoColumn, DemoSource, Next, check_next, continues, held

DATA, MASK = "data", "mask"
SPLITS = ("train", "valid", "val", "test")
DEMO = re.compile(r"demo_\d+")
LONG = 1 << 16  # characters of an attribute that is too long for metadata


class RobomimicKind(HDF5Kind):
    """HDF5 with a group of datasets a demonstration. See docs/formats/demos.md."""

    name: ClassVar[str] = "robomimic"
    description: ClassVar[str] = "robomimic HDF5 (data/demo_0, ...)"
    options: ClassVar[tuple[str, ...]] = ("filter_key", "next_observations", "model_files", "cache_bytes")

    @override
    def has_layout(self, root: Group) -> bool:
        """Whether there is a group `data` of groups with `actions`."""
        data = root[DATA] if DATA in root.links and root.links[DATA].kind != "external" else None
        if not isinstance(data, Group):
            return data is None and DATA in root.links
        first = min(data, key=natural, default="")
        if not leads_to(data, first, Group):
            return False
        demo = None if DEMO.fullmatch(first) else data[first]
        return demo is None or (isinstance(demo, Group) and "actions" in demo)

    def open(self, path: Path, **options: Any) -> DemoSource:
        """As `read_robomimic` does, with its options."""
        return read_robomimic(path, **options)

    @override
    def check(self, path: Path, *, deep: bool, **options: Any) -> Iterator[Finding]:
        """Look for filter keys with missing or repeated demonstrations, or with demonstrations of another split."""
        with File(path) as file:
            mask = file[MASK] if MASK in file.root.links else None
            data = file[DATA] if DATA in file.root.links else None
            if isinstance(mask, Group) and isinstance(data, Group):
                yield from _mask_findings({name: _names_in(file, mask, name) for name in mask}, data.links.keys())


def read_robomimic(
    path: Path,
    follow: Mapping[str, bool] | None = None,
    *,
    filter_key: str | None = None,
    next_observations: Next = "check",
    model_files: bool = False,
    cache_bytes: int = DECODED,
) -> DemoSource:
    """The demonstrations of one file; docs/formats/demos.md describes the options."""
    check_next(next_observations)
    file = File(path)
    demos = _RobomimicFile(file, _chosen(file, filter_key), Cache(cache_bytes), dict(follow or {}))
    columns = demos.columns(next_observations)
    reopen = partial(
        read_robomimic,
        filter_key=filter_key,
        next_observations=next_observations,
        model_files=model_files,
        cache_bytes=cache_bytes,
    )

    def entries(e: int) -> dict[str, Any]:
        return _attributes(demos.groups[e], demos.names[e], model_files)

    return DemoSource(
        path,
        columns,
        demos.offsets,
        reopen=(reopen, (path, demos.follow)),
        metadata=_dataset_metadata(file),
        entries=entries,
        state=repr(file.image.superblock),
        account=Account((*_others(file), *demos.left_out.values(), *behind_the_end(file))),
    )


def _chosen(file: File, filter_key: str | None) -> dict[str, Group]:
    data = file["data"] if "data" in file.root.links else None
    if not isinstance(data, Group):
        raise FormatError("expected a group of demonstrations", path=file.path, where="data")
    names = list(data)
    if filter_key is not None:
        names = _masked(file, filter_key)
    groups: dict[str, Group] = {}
    for name in sorted(names, key=natural):
        try:
            group = data[name] if name in data.links else None
        except KeyError as error:
            message = "expected a demonstration, got a link to nowhere; leave it out with a filter key"
            raise FormatError(message, path=file.path, where=f"data/{name}") from error
        if not isinstance(group, Group):
            raise FormatError("expected a group for this demonstration", path=file.path, where=f"data/{name}")
        groups[name] = group
    if not groups:
        raise FormatError("expected at least one demonstration, got none", path=file.path, where="data")
    return groups


def _others(file: File) -> Iterator[LeftOut]:
    """Entries of other groups and datasets of the file."""
    for name in file.root.links:
        if name not in (DATA, MASK):
            yield LeftOut("array", name, "unused-array", f"expected the groups {DATA} and {MASK}, got {name}")


def _mask_findings(masks: Mapping[str, list[str]], demos: Collection[str]) -> Iterator[Finding]:
    for key, names in masks.items():
        if missing := [name for name in names if name not in demos]:
            message = f"expected demonstrations of the file, got {len(missing)} others: {', '.join(missing[:8])}"
            yield Finding("missing-part", f"{MASK}/{key}", message)
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            yield Finding("duplicate-key", f"{MASK}/{key}", f"names {len(twice)} twice: {', '.join(twice[:8])}")
        for other in _splits_beside(key, masks):
            if both := sorted(set(names) & set(masks[other]), key=natural):
                message = f"{len(both)} demonstrations are in mask/{other} too: {', '.join(both[:8])}"
                yield Finding("leak", f"{MASK}/{key}", message)


def _splits_beside(key: str, masks: Collection[str]) -> list[str]:
    """The splits that go with a split for training, as `20_percent_valid` with `20_percent_train`."""
    prefix, split = key[: len(key) - len(key.rpartition("_")[2])], key.rpartition("_")[2]
    later = SPLITS[SPLITS.index(split) + 1 :] if split in SPLITS else ()
    return [prefix + other for other in later if prefix + other in masks]


def _masked(file: File, filter_key: str) -> list[str]:
    mask = file["mask"] if "mask" in file.root.links else None
    there = sorted(mask) if isinstance(mask, Group) else []
    if filter_key not in there or not isinstance(mask, Group):
        message = f"expected a filter key among {there}, got {filter_key!r}"
        raise FormatError(message, path=file.path, where="mask")
    names = _names_in(file, mask, filter_key)
    if len(set(names)) < len(names):
        message = "expected every demonstration once, got one twice"
        raise FormatError(message, path=file.path, where=f"{MASK}/{filter_key}")
    return names


def _names_in(file: File, mask: Group, filter_key: str) -> list[str]:
    dataset, where = mask[filter_key], f"{MASK}/{filter_key}"
    if not isinstance(dataset, Dataset) or dataset.kind not in ("string", "vlen_string"):
        raise FormatError("expected names of demonstrations", path=file.path, where=where)
    raw = dataset.read_list() if dataset.kind == "vlen_string" else dataset.read().reshape(-1).tolist()
    return [name.rstrip(b"\0").decode("utf-8", "replace") for name in raw]


@dataclass(frozen=True)
class _Demo:
    """The datasets of one demonstration by their paths in its group, and its unreadable datasets."""

    name: str
    steps: int
    datasets: Mapping[str, Dataset]
    unreadable: Mapping[str, LeftOut]


class _RobomimicFile:
    """All demonstrations, and the columns that they make together."""

    def __init__(self, file: File, groups: Mapping[str, Group], cache: Cache, follow: dict[str, bool]) -> None:
        self._file = file
        self._cache = cache
        self.follow = follow
        demos = [_demo(file, name, group) for name, group in groups.items()]
        self.demos = [demo for demo in demos if demo.steps]
        if not self.demos:
            raise FormatError("expected a demonstration with steps, got none", path=file.path, where="data")
        self.names = [demo.name for demo in self.demos]
        self.groups = [groups[name] for name in self.names]
        self.lengths = np.array([demo.steps for demo in self.demos], np.int64)
        self.offsets = offsets_of(self.lengths)
        self.left_out: dict[str, LeftOut] = {}  # by name in the file, or of the dataset in every demonstration
        for demo in demos:
            for name, entry in demo.unreadable.items():
                self.left_out.setdefault(name, replace(entry, where=f"{DATA}/{demo.name}/{name}"))
            if not demo.steps:
                place = f"{DATA}/{demo.name}"
                self.left_out[place] = LeftOut("episode", place, "no-steps", "expected a step, got none")

    def columns(self, next_observations: Next) -> dict[str, DemoColumn]:
        """Observations first, then actions, rewards and ends, then all else that has a row a step."""
        names = list(self.demos[0].datasets)
        actions = self._step("actions")  # first, because it bounds the number of steps
        out: dict[str, DemoColumn] = {}
        for name in [name for name in names if name.startswith("obs/")]:
            if numbers(self.demos[0].datasets[name]):
                out.update(self._observations(name.removeprefix("obs/"), next_observations))
            else:
                self._leave_out(name, f"next_{name}")
        out["actions"] = actions
        if "rewards" in names:
            out["rewards"] = self._step("rewards")
        out.update(self._ends("dones" in names))
        known = {*out, "dones"}
        first = self.demos[0].datasets.keys()
        others = sorted({name for demo in self.demos[1:] for name in demo.datasets.keys() - first})
        for name in [*(n for n in names if n not in known and not n.startswith(("obs/", "next_obs/"))), *others]:
            if not self._leave_out(name):
                out[name] = self._step(name)
        for name in [name for name in names if name.startswith("next_obs/")]:
            if (observed := name.removeprefix("next_")) not in names:
                message = f"expected {observed}, whose next rows these are, got none"
                self.left_out.setdefault(name, LeftOut("array", name, "unused-array", message))
        return out

    def _observations(self, name: str, how: Next) -> dict[str, DemoColumn]:
        path, obs = f"observations/{name}", self._step(f"obs/{name}")
        if f"next_obs/{name}" not in self.demos[0].datasets:
            return {path: obs}
        after = self._step(f"next_obs/{name}")
        one, other = (self.demos[0].datasets[f"{side}/{name}"] for side in ("obs", "next_obs"))
        if how == "check" and name not in self.follow:
            self.follow[name] = alike(one, other) and continues(after, obs, self.offsets)
        if how != "separate" and alike(one, other) and (how == "trust" or self.follow[name]):
            return {path: self._boundary(name)}
        return {path: obs, f"next_observations/{name}": after}

    def _boundary(self, name: str) -> DemoColumn:
        """The rows of `obs`, and the last of `next_obs`, of one demonstration after the other."""
        datasets = [d.datasets[f"{side}/{name}"] for d in self.demos for side in ("obs", "next_obs")]
        n = len(self.demos)
        start, length = np.zeros((2, n, 2), np.int64)
        start[:, 1] = self.lengths - 1
        length[:, 0] = self.lengths
        length[:, 1] = 1
        segments = Segments(datasets, np.arange(2 * n), start.reshape(-1), length.reshape(-1))
        return column(self._file, segments, "boundary", self._cache)

    def _step(self, name: str) -> DemoColumn:
        first = self.demos[0].datasets[name]
        for demo in self.demos:
            dataset = demo.datasets.get(name)
            if dataset is None or not numbers(dataset) or dataset.shape[0] != demo.steps or not alike(dataset, first):
                expected = f"{demo.steps} rows of {first.dtype}{list(row_shape(first))}"
                got = "none" if dataset is None else f"{dataset.kind} {dataset.dtype}{list(dataset.shape)}"
                where = f"data/{demo.name}/{name}"
                hint = "open with filter_key=, a dataset of names in the group mask, to leave the demonstration out"
                message = f"expected {expected}, as in {self.demos[0].name}, got {got}; {hint}, or store one dtype"
                raise FormatError(message, path=self._file.path, where=where)
        shape = () if name == "rewards" and row_shape(first) == (1,) else None
        segments = Segments.whole([demo.datasets[name] for demo in self.demos])
        return column(self._file, segments, "step", self._cache, shape)

    def _leave_out(self, *names: str) -> bool:
        """Put the datasets that are no columns into `left_out`; return whether any is."""
        misfits = {name: self._misfit(name) for name in names if any(name in demo.datasets for demo in self.demos)}
        entries = {name: entry for name, entry in misfits.items() if entry is not None}
        self.left_out |= {name: entry for name, entry in entries.items() if name not in self.left_out}
        return bool(entries)

    def _misfit(self, name: str) -> LeftOut | None:
        """Why a dataset is no column; None if every demonstration has it alike, with a row for each step."""
        owners = [demo for demo in self.demos if name in demo.datasets]
        datasets = [demo.datasets[name] for demo in owners]
        if len(owners) < len(self.demos) or not all(alike(dataset, datasets[0]) for dataset in datasets):
            kinds = Counter(f"{dataset.dtype}{list(row_shape(dataset))}" for dataset in datasets)
            got = ", ".join(f"{kind} in {number}" for kind, number in kinds.items())
            message = f"expected it in every demonstration, with one dtype and shape, got {got} of {len(self.demos)}"
            return LeftOut("array", name, "uneven-column", message)
        misfits = (misfit(name, dataset, demo.steps) for dataset, demo in zip(datasets, owners, strict=True))
        return next((entry for entry in misfits if entry is not None), None)

    def _ends(self, marked: bool) -> dict[str, DemoColumn]:
        """`terminations` where the last step is done, else `truncations`; `dones` too if steps before it are done."""
        n = int(self.offsets[-1])
        dones = np.zeros(n, np.bool_)
        if marked:
            self._step("dones")
            parts = [np.asarray(demo.datasets["dones"].read()).reshape(demo.steps, -1) != 0 for demo in self.demos]
            dones = np.concatenate([part.any(axis=1) for part in parts])
        last = np.zeros(n, np.bool_)
        last[self.offsets[1:] - 1] = True
        out = {"terminations": held(dones & last), "truncations": held(last & ~dones)}
        if (dones & ~last).any():
            out["dones"] = held(dones)
        return out


def _demo(file: File, name: str, group: Group) -> _Demo:
    datasets, unreadable = datasets_below(group, ("actions", "rewards", "dones"))
    actions = datasets.get("actions")
    if actions is None or not numbers(actions):
        got = "none" if actions is None else f"{actions.kind} {actions.dtype}{list(actions.shape)}"
        message = f"expected actions of numbers, got {got}; leave the demonstration out with a filter key"
        raise FormatError(message, path=file.path, where=f"data/{name}/actions")
    claimed = attribute(group.attrs["num_samples"]) if "num_samples" in group.attrs else actions.shape[0]
    if claimed != actions.shape[0]:
        message = f"expected {claimed} actions, as num_samples says, got {actions.shape[0]}"
        raise FormatError(message, path=file.path, where=f"data/{name}/actions")
    return _Demo(name, actions.shape[0], datasets, unreadable)


def _attributes(group: Group, name: str, model_files: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"demo": name, "model_file": "model_file" in group.attrs}
    for key in group.attrs:
        if key != "model_file":
            value = attribute(group.attrs[key])
            if not (isinstance(value, str) or is_list(value)) or len(value) <= LONG:
                out[key] = value
        elif model_files:
            out[key] = attribute(group.attrs[key])
    return out


def _dataset_metadata(file: File) -> dict[str, Any]:
    data = file["data"]
    out = {key: attribute(data.attrs[key]) for key in data.attrs}
    if isinstance(text := out.get("env_args"), str):
        try:
            out["env_args"] = json.loads(text)
        except (ValueError, RecursionError) as error:
            message = f"expected JSON, got {text[:80]!r}"
            raise FormatError(message, path=file.path, where="data, attribute env_args") from error
    mask = file["mask"] if "mask" in file.root.links else None
    return {**out, "filter_keys": sorted(mask)} if isinstance(mask, Group) else out
