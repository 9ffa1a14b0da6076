"""Writing episodes as a TFDS dataset with one shard, which TFDS reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.tfrecord import index_records, map_records, record_of
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, DataError, FormatError, SpecError
from penstock.files import AppendLog, atomic_path, move, sync, write_atomic
from penstock.formats.base.writer import Writer
from penstock.formats.rlds import encoding, features, folder
from penstock.formats.rlds.features import STEPS, RLDSFeature
from penstock.formats.rlds.names import ENDS, FILE, METADATA, OTHERS, Images, OwnFile, feature_of_column, read_own

FLAGS = ("is_first", "is_last", "is_terminal")
_NAME = re.compile(r"[A-Za-z]\w*")
_VERSION = "1.0.0"


class RLDSWriter(Writer):
    """Appends episodes to the shard of a dataset that penstock created. One writer at a time."""

    def __init__(self, path: Path) -> None:
        self._folder = path
        own, info = read_own(path), folder.read_info(path)
        shards = [file for split in folder.splits_of(path, info).values() for file in split.paths]
        if own is None or len(shards) != 1:
            raise FormatError(
                f"expected one shard next to {FILE}, as penstock creates it; convert the dataset", path=path
            )
        self._own = own
        self._name = str(info["name"])
        self._images: Images = own.images
        self._features = stored_features(own.spec, own.images)
        self._log = AppendLog(shards[0], b"", "a shard of records")
        index = index_records(map_records(shards[0]))
        self._log.truncate(index.end)  # a killed writer may have left a part of a record
        self._count = len(index.begin)
        self._bytes = int(index.size.sum())
        self._closed = False
        self._write_info([])

    @classmethod
    def create(
        cls, path: Path, spec: Spec, metadata: Mapping[str, Any], *, name: str | None = None, images: Images = "png"
    ) -> RLDSWriter:
        """Create an empty dataset with a split `train`, and open it."""
        if images not in ("png", "jpeg", "raw"):
            raise ArgumentError(f"expected images 'png', 'jpeg' or 'raw', got {images!r}")
        if name is not None and not _NAME.fullmatch(name):
            raise ArgumentError(f"expected a name of letters, digits and _, which begins with a letter, got {name!r}")
        name = name or name_of(path)
        if path.exists():
            raise FileExistsError(f"{path} exists already; delete it, or open it with append")
        rlds_features = stored_features(spec, images)
        last = "observation" if "boundary" in spec.aligns else "step"
        own = OwnFile(
            spec, {feature.path: column for column, feature in rlds_features.items()}, last, dict(metadata), images
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, durable="folder") as new_folder:
            new_folder.mkdir()
            (new_folder / features.FILE).write_text(json.dumps(_tree(rlds_features, images), indent=2))
            (new_folder / FILE).write_text(json.dumps(own.to_json()))
            (new_folder / folder.INFO).write_text(
                json.dumps({"name": name, "version": _VERSION, "fileFormat": "tfrecord"})
            )
            (new_folder / f"{name}-train.tfrecord-00000-of-00001").touch()
        return cls(path)

    @override
    def write(self, episode: Episode) -> int:
        if self._closed:
            raise DataError(f"expected an open writer, got a closed one of {self._folder}; open it again with append")
        self._check(episode)
        data = self._message(episode)
        self._log.append(record_of(data))
        self._count += 1
        self._bytes += len(data)
        return self._count - 1

    @override
    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        own = self._own
        self._own = OwnFile(own.spec, own.columns, own.last_step, {**own.metadata, **metadata}, own.images)
        write_atomic(self._folder / FILE, json.dumps(self._own.to_json()).encode())

    @override
    def close(self) -> None:
        if not self._closed:
            self._log.close()
            self._write_info([_split_of([self._count], self._bytes)])
        self._closed = True

    def _write_info(self, splits: list[dict[str, Any]]) -> None:
        """Write `dataset_info.json`; the number of records is in it only while no writer is open."""
        write_info(self._folder, self._name, splits)

    def _check(self, episode: Episode) -> None:
        mine, theirs = self._own.spec.fields, episode.spec.fields
        if mine.keys() != theirs.keys():
            raise SpecError(f"expected the columns {list(mine)}, got {list(theirs)}")
        for path, field in mine.items():
            if field != theirs[path]:
                raise SpecError(f"expected {path} as {field}, got {theirs[path]}")

    def _message(self, episode: Episode) -> bytes:
        rows = len(episode) + (self._own.last_step == "observation")
        number = np.arange(rows)
        lists: dict[str, bytes] = {}
        flags: dict[str, Any] = {"is_first": number == 0, "is_last": number == rows - 1}
        flags["is_terminal"] = np.zeros(rows, np.bool_)
        for column, feature in self._features.items():
            values = episode.columns[column]
            if column in ENDS and not isinstance(values, Ragged):
                values = encoding.shifted(values, rows)
            if feature.path == f"{STEPS}/is_terminal":
                flags["is_terminal"] = values
            else:
                values = encoding.padded(values, rows) if feature.of_step else values
                lists[feature.path] = encoding.list_of(feature, values, self._images)
        for name, values in flags.items():
            flag = RLDSFeature(f"{STEPS}/{name}", "number", np.dtype(np.bool_))
            lists[flag.path] = encoding.list_of(flag, values, self._images)
        try:
            described = json.dumps(dict(episode.metadata))
        except (TypeError, ValueError) as error:
            raise DataError(f"expected metadata that JSON can hold, got {dict(episode.metadata)}: {error}") from error
        text = RLDSFeature(OTHERS, "text", np.dtype(np.uint8))
        lists[OTHERS] = encoding.list_of(text, Ragged.from_strings([described]), self._images)
        return encoding.message_of(lists)


def name_of(path: Path) -> str:
    """Return the name of a dataset for TFDS: the folder's, or of the folder above it if this is a version."""
    above = path.parent.name if folder.VERSION.fullmatch(path.name) else path.name
    return above if _NAME.fullmatch(above) else "dataset"


def write_info(path: Path, name: str, splits: list[dict[str, Any]]) -> None:
    """Write `dataset_info.json`."""
    info = {"name": name, "version": _VERSION, "fileFormat": "tfrecord", "splits": splits}
    write_atomic(path / folder.INFO, json.dumps(info).encode())


def _split_of(lengths: Sequence[int], nbytes: int) -> dict[str, Any]:
    """The entry of the split `train`, with the number of records of each shard."""
    return {
        **{"name": "train", "shardLengths": [str(length) for length in lengths], "numBytes": str(nbytes)},
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
    }


def join_datasets(parts: Sequence[Path], out: Path, place: Path) -> None:
    """Move the shards of datasets into one dataset, where they are numbered. A second call continues after a kill."""
    out.mkdir(parents=True, exist_ok=True)
    described = [folder.read_info(part) for part in parts]
    own = str(described[0]["name"])
    name = name_of(place) if own == name_of(parts[0]) else own
    for file in (features.FILE, FILE):
        write_atomic(out / file, (parts[0] / file).read_bytes())
    for number, part in enumerate(parts):
        shard = part / f"{own}-train.tfrecord-00000-of-00001"
        if shard.exists():  # an earlier call did not move it
            move(shard, out / f"{name}-train.tfrecord-{number:05d}-of-{len(parts):05d}")
    splits = [info["splits"][0] for info in described]
    lengths = [int(length) for split in splits for length in split["shardLengths"]]
    write_info(out, name, [_split_of(lengths, sum(int(split["numBytes"]) for split in splits))])
    sync(out)


def stored_features(spec: Spec, images: Images) -> dict[str, RLDSFeature]:
    """Return the feature of each column. Raises `SpecError` for columns without one."""
    features: dict[str, RLDSFeature] = {}
    for column, field in spec.items():
        path = column if field.align == "episode" else f"{STEPS}/{feature_of_column(column)}"
        if column == "truncations":  # is_last cannot say whether an episode that ends early was truncated
            path = f"{STEPS}/truncation"
        if column in ENDS and (field.dtype != np.bool_ or field.shape or field.align != "step"):
            raise SpecError(f"expected {column} as one bool for each step, got {field}")
        features[column] = encoding.feature_of(path, field, images)
    for column, feature in features.items():
        flags = {f"{STEPS}/{name}" for name in FLAGS if column != "terminations"}
        others = {OTHERS, *flags, *(each.path for name, each in features.items() if name != column)}
        lost = spec[column].align == "episode" and column.split("/", maxsplit=1)[0] in (STEPS, METADATA)
        if lost or any(f"{feature.path}/".startswith(f"{path}/") for path in others):
            raise SpecError(f"expected columns with features of their own, got {column} as {feature.path}")
    return features


def _tree(features: Mapping[str, RLDSFeature], images: Images) -> dict[str, Any]:
    """Return the content of `features.json`."""
    nested: dict[str, Any] = {STEPS: {}, METADATA: {}}
    flags = [RLDSFeature(f"{STEPS}/{name}", "number", np.dtype(np.bool_)) for name in FLAGS]
    text = RLDSFeature(OTHERS, "text", np.dtype(np.uint8))
    for feature in {each.path: each for each in (*flags, text, *features.values())}.values():
        *groups, leaf = feature.path.split("/")
        node = nested
        for group in groups:
            node = node.setdefault(group, {})
        node[leaf] = feature

    def built(node: Any) -> dict[str, Any]:
        if isinstance(node, RLDSFeature):
            return encoding.tree_of(node, images)
        return encoding.group_of({name: built(child) for name, child in node.items()})

    children = {name: built(child) for name, child in nested.items() if name != STEPS}
    return encoding.group_of({**children, STEPS: encoding.steps_of({n: built(c) for n, c in nested[STEPS].items()})})
