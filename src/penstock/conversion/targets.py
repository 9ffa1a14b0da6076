"""What our writers can store, as far as it differs from what a source may have: columns, and metadata as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from penstock.conversion.draft import Note
from penstock.core.columns import under
from penstock.core.narrowing import is_array, is_list, is_listed, is_mapping, is_path, is_scalar
from penstock.core.spec import Align, Field
from penstock.formats.base.unfinished import CONVERSION

MINARI = ("observations", "actions", "rewards", "terminations", "truncations")
STORED_BY_MINARI = frozenset(
    (
        "total_episodes",
        "total_steps",
        "dataset_size",
        "data_format",
        "jpeg_encoding",
        "minari_version",
        "observation_space",
        "action_space",
    )
)
DISCONTINUOUS = "discontinuous_steps"  # entry that the reader of shards makes
COLORS = (None, "RGB", "GRAY")
_COUNTED = frozenset(("id", "total_steps"))  # entries of an episode that the target counts itself


@dataclass(frozen=True)
class Target:
    """The rules of one way to write.

    `needs` are the required columns. `aligns` are the alignments that optional columns may have. `ragged` names the
    ragged columns that it stores. `spaces` says whether it needs both spaces. `options` are the options of `create`,
    and `kept` the ones that `append` knows as well; None where that is unknown.
    """

    name: str
    needs: tuple[str, ...] = ()
    aligns: tuple[Align, ...] = ("step", "boundary", "episode")
    ragged: Literal["any", "bytes", "infos", "text"] = "any"
    flat: bool = False  # whether rows of unequal length are lists of numbers, and not of vectors
    spaces: bool = False
    options: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # the files of a dataset that we wrote, as patterns of names
    restored: frozenset[str] | None = None  # the only metadata of episodes, which reading gives again; None: any

    @property
    def seed(self) -> bool:
        """Whether episodes are cut at their dones."""
        return self.name == "webdataset, layout seed"

    @property
    def lerobot(self) -> bool:
        """Whether all columns have T rows, the first observation next to the first action."""
        return self.name == "lerobot"

    @property
    def minari(self) -> bool:
        """Whether it is one of Minari's."""
        return self.name.startswith("minari")

    def fits(self, path: str, field: Field) -> bool:
        """Whether an optional column has a place as it is."""
        if field.align not in self.aligns or not self._has_dtype(field):
            return False
        if field.ragged and field.shape:
            return self.name == "rlds"  # no other format has rows of unequal length whose values are vectors
        if not field.ragged or self.ragged == "any":
            return True
        if self.ragged == "text":
            return field.kind == "text"
        if self.ragged == "infos":
            return field.kind == "text" and under("infos", path)
        return field.kind == "text" or field.dtype.itemsize == 1

    def _has_dtype(self, field: Field) -> bool:
        """Whether values and shapes have a place."""
        if self.lerobot and not field.ragged:
            numbers = field.dtype.kind in "biuf" and field.dtype.itemsize <= 8
            return numbers and len(field.shape) <= 5 and 0 not in field.shape
        if self.name == "rlds" or self.minari:
            return field.dtype.kind in "biuf"
        return not self.seed or field.ragged or field.dtype.kind in "biufc"


SHARD_OPTIONS = ("shard_bytes", "shard_episodes", "compression")
SHARD_FILES = ("shard-*.tar", "shard-*.tgz", "shard-*.tar.zst", ".shard-*", ".lock", ".penstock-*")
MINARI_OPTIONS = ("data_format", "layout", "images", "sync")  # not `statistics`, which an append would not know

COLUMNS = Target(
    "columns",
    flat=True,
    options=("sync", "compression", "block_steps"),
    kept=("sync",),
    files=("spec.json", "metadata.json", "episodes", "segments"),
)
SHARDS = Target("webdataset", flat=True, options=("layout", *SHARD_OPTIONS), kept=SHARD_OPTIONS, files=SHARD_FILES)
SEED = Target(
    "webdataset, layout seed",
    needs=("observations", "actions", "terminations", "truncations"),
    aligns=("step",),
    ragged="infos",
    options=("layout", *SHARD_OPTIONS),
    kept=SHARD_OPTIONS,
    files=SHARD_FILES,
)
ARROW = Target("minari, arrow", MINARI, flat=True, spaces=True, options=MINARI_OPTIONS, kept=("sync",), files=("data",))
L5KIT = Target(
    "l5kit",
    options=("layout", "compressor", "chunk_rows"),
    files=(
        *(".zattrs*", ".zgroup*", ".zmetadata", "attributes.json", ".attributes.json.*"),
        *("scenes*", "frames*", "agents*", "traffic_light_faces*"),
    ),
)
ZARR = Target(
    "zarr",
    flat=True,
    options=("compressor", "chunk_rows", "zarr_format"),
    files=(".zattrs*", ".zgroup*", "zarr.json*", "data", "meta"),
)
RLDS = Target(
    "rlds",
    options=("name", "images"),
    files=(
        "features.json",
        "dataset_info.json",
        ".dataset_info.json.*",
        "penstock.json",
        ".penstock.json.*",
        "*-train.tfrecord-*",
    ),
)
LEROBOT = Target(
    "lerobot",
    aligns=("step",),
    ragged="text",
    options=(
        *("fps", "robot_type", "cameras", "depth", "codec", "crf", "g"),
        *("data_files_size_in_mb", "video_files_size_in_mb", "chunks_size"),
    ),
    files=("meta", "data", "videos", ".penstock"),
)
NUMBERED = ("frame_index", "episode_index", "index", "task_index")  # columns that LeRobot's layout computes
LC0 = Target(
    "lc0",
    aligns=("step",),
    options=("level",),  # records of version 6 have no place for three columns
    kept=("level",),
    files=("training.*.gz", ".penstock-lc0.json", ".lock"),
    restored=frozenset(("file", "member", "frames", "version")),
)
HDF5 = replace(ARROW, name="minari, hdf5", ragged="bytes", flat=False)


def target_of(format: str, options: Mapping[str, Any]) -> Target:
    """The rules of a format with options; a format of another package has none, and refuses what it has to itself."""
    if format == "minari":
        return HDF5 if options.get("data_format", "hdf5") == "hdf5" else ARROW
    if format == "webdataset":
        return SEED if options.get("layout") == "seed" else SHARDS
    known = {"columns": COLUMNS, "l5kit": L5KIT, "zarr": ZARR, "rlds": RLDS, "lerobot": LEROBOT, "lc0": LC0}
    return known.get(format) or Target(format)


def of_dataset(metadata: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], list[Note]]:
    """The entries of the target, and what is to be said about the others."""
    entries, notes = json_of(metadata, "metadata")
    for name in (DISCONTINUOUS, CONVERSION):
        entries.pop(name, None)
    for name in STORED_BY_MINARI & entries.keys():
        del entries[name]
    if target.minari:
        entries.pop("dataset_id", None)  # the id of the source's place
    if target.seed and entries.get("color_space") not in COLORS:
        value = entries.pop("color_space")
        notes.append(Note("left out", "metadata/color_space", f"expected RGB or GRAY, got {value!r}"))
    return entries, notes


def of_episode(metadata: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], list[Note]]:
    """The entries of one episode, and what is to be said about the others."""
    given = {key: value for key, value in metadata.items() if key not in _COUNTED}
    if target.restored is not None:
        others = sorted(given.keys() - target.restored)
        return {}, [Note("left out", f"episode metadata/{key}", f"{target.name} has no place for it") for key in others]
    entries, notes = json_of(given, "episode metadata")
    if not target.minari:
        return entries, notes
    seed = entries.get("seed")
    if "seed" in entries and (type(seed) is not int or not -(2**63) <= seed < 2**64):
        del entries["seed"]
        if seed is not None:
            notes.append(Note("left out", "episode metadata/seed", "expected an integer of 64 bits"))
    for key in [key for key in entries if "/" in key]:
        notes.append(Note("adapted", f"episode metadata/{key}", "read back as an entry of an object, as / nests names"))
    if target.name == "minari, hdf5":
        for key, value in entries.items():
            if _deep(value):
                entries[key] = json.dumps(value)
                notes.append(
                    Note("adapted", f"episode metadata/{key}", "stored as JSON text, as attributes hold no such list")
                )
    return entries, notes


def json_of(metadata: Mapping[Any, Any], where: str) -> tuple[dict[str, Any], list[Note]]:
    """What JSON can hold, with NumPy as numbers and lists, and a note for everything else."""
    entries: dict[str, Any] = {}
    notes: list[Note] = []
    for key, value in metadata.items():
        if not isinstance(key, str):
            notes.append(Note("adapted", f"{where}/{key}", "the key became text"))
        try:
            entries[str(key)] = _plain(value)
        except (TypeError, RecursionError) as error:
            notes.append(Note("left out", f"{where}/{key}", f"JSON cannot hold it: {error}"))
    return entries, notes


def _plain(value: Any) -> Any:
    if (is_array(value) or is_scalar(value)) and value.dtype.kind in "biufU":
        return value.tolist()
    if is_mapping(value):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if is_listed(value):
        return [_plain(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(inner) for inner in cast("set[Any]", value)), key=str)
    if is_path(value):
        return os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__}")


def _deep(value: Any) -> bool:
    """Whether it is a list that no array of numbers or strings is equal to, anywhere in it."""
    if is_mapping(value):
        return any(_deep(inner) for inner in value.values())
    if not is_list(value):
        return False
    return not value or not (
        all(isinstance(v, str) for v in value)
        or all(type(v) in (int, float) and math.isfinite(v) and abs(v) < 2**63 for v in value)
    )
