"""Folders of TFDS datasets: `NAME/[CONFIG/]VERSION/` with `features.json` and the shards of each split."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.boundary import json_object
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import ArgumentError, FormatError, suggestion
from penstock.files.remote import read_bytes
from penstock.formats.rlds.features import FEATURES

INFO = "dataset_info.json"
SPLIT = re.compile(r"[\w+]+")
VERSION = re.compile(r"\d+\.\d+\.\d+")
_SHARD = re.compile(r"(?P<name>.+)-(?P<split>[\w]+)\.(?P<kind>\w+)-(?P<number>\d{5,})-of-(?P<count>\d{5,})")


@dataclass(frozen=True)
class SplitFiles:
    """The shards of one split."""

    name: str
    kind: str
    paths: tuple[Path, ...]
    count: int
    lengths: tuple[int, ...]


def is_version(path: Path) -> bool:
    """Return whether a folder has one version of a dataset."""
    return (path / FEATURES).is_file() and any(_SHARD.fullmatch(file.name) for file in path.iterdir())


def versions_below(path: Path) -> dict[str, list[Path]]:
    """Return the folders of versions below a dataset's folder, by config (`""` without), the oldest version first."""
    folders: dict[str, list[Path]] = {}
    for config in (path, *sorted(child for child in path.iterdir() if child.is_dir())):
        names = [v for v in config.iterdir() if VERSION.fullmatch(v.name) and v.is_dir() and is_version(v)]
        if names:
            key = "" if config == path else config.name
            folders[key] = sorted(names, key=lambda v: [int(part) for part in v.name.split(".")])
    return folders


def version_folder(path: Path, config: str | None, version: str | None) -> Path:
    """Return the folder of one version."""
    if is_version(path):
        if config is not None or version is not None:
            raise ArgumentError(
                f"expected no config and version for the folder of one version, got {config}, {version}"
            )
        return path
    folders = versions_below(path)
    if not folders:
        raise FormatError(f"expected {FEATURES} next to shards, found none", path=path)
    if config is None and len(folders) > 1:
        raise ArgumentError(
            f"expected the name of a config, as config={next(iter(folders))!r}; there are {list(folders)}"
        )
    name = next(iter(folders)) if config is None else config
    if name not in folders:
        raise ArgumentError(f"no config {name!r}{suggestion(name, folders)}; there are {list(folders)}")
    known = {folder.name: folder for folder in folders[name]}
    if version is not None and version not in known:
        raise ArgumentError(f"no version {version!r}; there are {list(known)}")
    return folders[name][-1] if version is None else known[version]


def read_info(folder: Path) -> dict[str, Any]:
    """Return `dataset_info.json`, empty if there is none."""
    path = folder / INFO
    if not path.is_file():
        return {}
    return json_object(read_bytes(path), path)


def splits_of(folder: Path, info: Mapping[str, Any]) -> dict[str, SplitFiles]:
    """Return the splits of a version by name, in the order of `dataset_info.json`, others behind."""
    shards: dict[str, list[re.Match[str]]] = {}
    for file in sorted(folder.iterdir()):
        if (match := _SHARD.fullmatch(file.name)) is not None:
            shards.setdefault(match["split"], []).append(match)
    said = _lengths(info)
    ordered = [name for name in said if name in shards] + [name for name in shards if name not in said]
    return {name: _split(folder, name, shards[name], said.get(name, ())) for name in ordered}


def _split(folder: Path, name: str, shards: Sequence[re.Match[str]], lengths: Sequence[int]) -> SplitFiles:
    kinds, counts = {shard["kind"] for shard in shards}, {int(shard["count"]) for shard in shards}
    if len(kinds) > 1 or len(counts) > 1 or len({shard["name"] for shard in shards}) > 1:
        raise FormatError(f"expected shards of one set, got {[s.string for s in shards][:8]}", path=folder)
    count = counts.pop()
    ordered = sorted(shards, key=lambda shard: int(shard["number"]))
    numbers = [int(shard["number"]) for shard in ordered]
    known = tuple(lengths[n] for n in numbers) if len(lengths) == count and numbers[-1] < count else ()
    return SplitFiles(name, kinds.pop(), tuple(folder / shard.string for shard in ordered), count, known)


def _lengths(info: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    listed: Any = info.get("splits")
    lengths: dict[str, tuple[int, ...]] = {}
    for split in listed if is_list(listed) else []:
        if is_dict(split) and isinstance(split.get("name"), str):
            sizes: Any = split.get("shardLengths")
            lengths[split["name"]] = tuple(int(size) for size in sizes) if is_list(sizes) else ()
    return lengths


def chosen_splits(splits: Mapping[str, SplitFiles], wanted: str | None, folder: Path) -> list[SplitFiles]:
    """Return the splits that an option names: one, several joined by `+`, or all."""
    if not splits:
        raise FormatError("expected shards of a split, found none", path=folder)
    if wanted is None:
        if len(splits) > 1 and "train" not in splits:
            raise ArgumentError(
                f"expected the name of a split, as split={next(iter(splits))!r}; there are {list(splits)}"
            )
        wanted = "train" if len(splits) > 1 else next(iter(splits))
    names = list(splits) if wanted == "all" and "all" not in splits else wanted.split("+")
    for name in names:
        if name not in splits:
            raise ArgumentError(f"no split {name!r}{suggestion(name, splits)}; there are {list(splits)}, and 'all'")
    if len(set(names)) < len(names):
        raise ArgumentError(f"expected each split once, got {wanted!r}")
    return [splits[name] for name in names]
