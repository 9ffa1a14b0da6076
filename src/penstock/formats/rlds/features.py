"""Features of a TFDS dataset, from the tree in its `features.json`. docs/formats/rlds.md has the names of columns.

A record has a list of values for each leaf of the tree, under the path of the leaf. A leaf below `steps` has the values
of all steps end to end. A sequence within a step adds a list of lengths, and its values have another name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.core.boundary import json_object
from penstock.core.narrowing import is_dict, is_list
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, FormatError, suggestion
from penstock.files.remote import read_bytes

FEATURES = "features.json"
STEPS = "steps"
OWN = "penstock.json"  # what TFDS has no place for
METADATA = "episode_metadata"
OTHERS = f"{METADATA}/json"  # feature in which our writer puts the metadata of an episode as JSON
ROOTS = {"observation": "observations", "action": "actions", "reward": "rewards", "discount": "discounts"}
ENDS = {"terminations": "is_terminal", "truncations": "is_last"}
DEEPEST = 32  # levels of the tree

Images = Literal["png", "jpeg", "raw"]
LastStep = Literal["observation", "step"]
Kind = Literal["number", "text", "image", "bytes"]


@dataclass(frozen=True)
class RLDSFeature:
    """A leaf of the tree."""

    path: str
    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] = ()
    zipped: bool = False
    within: tuple[int | None, ...] = ()

    @property
    def of_step(self) -> bool:
        """Whether each step has a value, and not the episode."""
        return self.path.startswith(f"{STEPS}/")

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the lists in a record: values, then lengths of each inner sequence, the outermost first."""
        levels = len(self.within) + self.of_step
        if levels < 2:
            return (self.path,)
        return (f"{self.path}/ragged_flat_values", *(f"{self.path}/ragged_row_lengths_{i}" for i in range(levels - 1)))


_FIXED = {
    "Text": RLDSFeature("", "text", np.dtype(np.uint8)),
    "ClassLabel": RLDSFeature("", "number", np.dtype(np.int64)),
    "BBoxFeature": RLDSFeature("", "number", np.dtype(np.float32), (4,)),
}


def read_features(folder: Path) -> list[RLDSFeature]:
    """Return the leaves of the tree in a folder, in the order of the file."""
    path = folder / FEATURES
    try:
        tree: Any = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected JSON, got {error}", path=path) from error
    leaves = list(_leaves("", tree, (), path))
    names = [key for feature in leaves for key in feature.keys]
    if len(set(names)) < len(names):
        raise FormatError(f"expected features of distinct names, got {names}", path=path)
    return leaves


def _leaves(name: str, node: Any, within: tuple[int | None, ...], path: Path) -> Iterator[RLDSFeature]:
    if not is_dict(node) or name.count("/") > DEEPEST or len(within) > DEEPEST:
        raise FormatError(f"expected an object for each of at most {DEEPEST} levels", path=path, where=name[:80])
    kind, content = _content(node)
    if kind == "FeaturesDict":
        inner: Any = content.get("features", content)
        if not is_dict(inner):
            raise FormatError(f"expected an object of features, got {type(inner).__name__}", path=path, where=name)
        for key, child in inner.items():
            yield from _leaves(f"{name}/{key}" if name else str(key), child, within, path)
    elif kind in ("Sequence", "Dataset"):
        deeper = within if name == STEPS else (*within, _size(content.get("length")))
        yield from _leaves(name, content.get("feature"), deeper, path)
    else:
        yield replace(_leaf(name, kind, content, path), within=within)


def _content(node: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the class of a node, and what the file says about it, in the layout of 2022 or the older one."""
    kind = str(node.get("pythonClassName", node.get("type", ""))).rsplit(".", 1)[-1]
    names = {"pythonClassName", "description", "docs", "proto_cls", "type"}
    inner: list[Any] = [value for name, value in node.items() if name not in names and is_dict(value)]
    return kind, inner[0] if inner else {}


def _leaf(name: str, kind: str, content: Mapping[str, Any], path: Path) -> RLDSFeature:
    if kind in _FIXED:
        return replace(_FIXED[kind], path=name)
    shape = _shape(content.get("shape"), name, path)
    if kind == "Image":
        dtype = _dtype(content.get("dtype") or "uint8", name, path)
        return RLDSFeature(name, "image", dtype, shape or (None, None, 3))
    if kind not in ("Tensor", "Scalar"):
        raise FormatError(f"expected features of known classes, got {kind!r}", path=path, where=name)
    if content.get("dtype") in ("string", "object"):
        if shape:
            raise FormatError(f"expected one text a value, got the shape {shape}", path=path, where=name)
        return replace(_FIXED["Text"], path=name)
    dtype, encoding = _dtype(content.get("dtype"), name, path), str(content.get("encoding") or "none").lower()
    if encoding not in ("none", "bytes", "zlib"):
        raise FormatError(f"expected the encoding none, bytes or zlib, got {encoding!r}", path=path, where=name)
    if sum(size is None for size in shape) > 1 or None in shape[1:]:
        raise FormatError(f"expected a shape of which only the first size varies, got {shape}", path=path, where=name)
    if encoding == "none":
        if None in shape:
            raise FormatError(f"expected a fixed shape of plain values, got {shape}", path=path, where=name)
        return RLDSFeature(name, "number", dtype, shape)
    return RLDSFeature(name, "bytes", dtype, shape, encoding == "zlib")


def _shape(given: Any, name: str, path: Path) -> tuple[int | None, ...]:
    sizes: Any = given.get("dimensions", []) if is_dict(given) else given if given is not None else []
    if not is_list(sizes) or len(sizes) > 8:
        raise FormatError(f"expected a list of at most 8 sizes, got {str(given)[:80]}", path=path, where=name)
    return tuple(_size(size) for size in sizes)


def _size(given: Any) -> int | None:
    """Return a size, which is text in newer files, or None for one that varies."""
    if given is None:
        return None
    size = int(given)
    return size if 0 <= size < 1 << 40 else None


def _dtype(name: Any, feature: str, path: Path) -> np.dtype[Any]:
    known = {"bool", "float16", "float32", "float64", *(f"{s}int{bits}" for s in ("", "u") for bits in (8, 16, 32, 64))}
    if name not in known:
        raise FormatError(f"expected a dtype of numbers, got {str(name)[:40]!r}", path=path, where=feature)
    return np.dtype(name)


def column_of_feature(path: str) -> str:
    if not path.startswith(f"{STEPS}/"):
        return path
    root, *rest = path.removeprefix(f"{STEPS}/").split("/")
    known = ROOTS | {feature: column for column, feature in ENDS.items()}
    return "/".join([known.get(root, root), *rest])


def feature_of_column(name: str) -> str:
    """Return the path of the feature of a step that has a column, without `steps`."""
    root, *rest = name.split("/")
    known = {column: feature for feature, column in ROOTS.items()} | ENDS
    return "/".join([known.get(root, root), *rest])


def is_metadata(feature: RLDSFeature) -> bool:
    """Return whether a feature is metadata of an episode: a number or a text that the episode has once."""
    return not feature.of_step and not feature.within and not feature.shape and feature.kind in ("number", "text")


def metadata_name(path: str) -> str:
    return path.removeprefix(f"{METADATA}/")


@dataclass(frozen=True)
class OwnFile:
    """What penstock wrote next to `features.json`."""

    spec: Spec
    columns: Mapping[str, str]
    last_step: LastStep
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    images: Images = "png"

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values for `read_own`."""
        return {
            "spec": self.spec.to_json(),
            "columns": dict(self.columns),
            "last_step": self.last_step,
            "metadata": dict(self.metadata),
            "images": self.images,
        }


def read_own(folder: Path) -> OwnFile | None:
    """Return what penstock wrote in a folder, or None."""
    path = folder / OWN
    if not path.is_file():
        return None
    entries = json_object(read_bytes(path), path)
    if entries.get("last_step") not in ("observation", "step"):
        raise FormatError("expected an object with spec, columns and last_step", path=path)
    if entries.get("images") not in ("png", "jpeg", "raw"):
        raise FormatError(f"expected images as 'png', 'jpeg' or 'raw', got {entries.get('images')!r}", path=path)
    columns = {str(feature): str(column) for feature, column in entries["columns"].items()}
    return OwnFile(
        Spec.from_json(entries["spec"]), columns, entries["last_step"], dict(entries["metadata"]), entries["images"]
    )


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
