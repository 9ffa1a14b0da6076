"""HDF5 datasets that were written in parts become one dataset: groups of episodes are copied to one file.

A group has its final number in its part, so it is copied as it is: values are views of the mapped file of the part, and
are neither decoded nor converted. Chunks with checksums are verified, and get the same checksum again.

Each commit makes some groups visible together, so a second call after a kill goes on behind the last commit. Totals and
other entries come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.containers.hdf5 import Appender, Dataset, File, Group, Storage, VlenBytes
from penstock.containers.hdf5.filters import FLETCHER32
from penstock.errors import FormatError
from penstock.formats.minari import ids, legacy, metadata
from penstock.formats.minari.hdf5_index import EPISODE, MAIN
from penstock.formats.minari.hdf5_writer import Value

_COMMIT_BYTES = 256 << 20  # of values between two commits


def join_files(parts: Sequence[Path], out: Path, place: Path) -> None:
    """Copy the episodes of datasets, whose numbers follow each other, to one dataset. A second call continues."""
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    described = [_entries(part / "data") for part in parts]
    entries = dict(described[0])
    entries["dataset_id"] = ids.of_joined(entries["dataset_id"], parts[0], place)
    entries["total_episodes"] = described[-1]["total_episodes"]
    entries["total_steps"] = sum(int(each["total_steps"]) for each in described)
    main = data / MAIN
    with Appender.open(main) if main.exists() else Appender.create(main) as file:
        for part in parts:
            _copy_episodes(part / "data" / MAIN, file)
        if not (parts[0] / "data" / metadata.FILE).exists():  # of Minari 0.4
            file.set_attrs("", legacy.attributes_of(entries))
    (data / f".{MAIN}.lock").unlink(missing_ok=True)
    if (parts[0] / "data" / metadata.FILE).exists():
        metadata.write_json(data / metadata.FILE, entries | {"dataset_size": metadata.size_of(data)})


def _entries(data: Path) -> dict[str, Any]:
    """The entries of a part."""
    entries = metadata.read_json(data / metadata.FILE)
    if entries is not None:
        return entries
    with File(data / MAIN) as file:
        return legacy.read_attributes(file)


def _copy_episodes(part: Path, file: Appender) -> None:
    """Copy the groups of a part that are not in the file, with a commit whenever many bytes wait for it."""
    waiting = 0
    with File(part) as source:
        for name in sorted(source.root, key=lambda name: int(name.removeprefix("episode_"))):
            group = source[name]
            if EPISODE.fullmatch(name) is None or not isinstance(group, Group):
                raise FormatError("expected groups of episodes", path=part, where=name)
            if name not in file:
                waiting += _copy_group(group, name, file)
            if waiting >= _COMMIT_BYTES:
                file.commit()
                waiting = 0
    file.commit()


def _copy_group(group: Group, name: str, file: Appender) -> int:
    """Copy a group with all datasets and attributes; return the size of its values."""
    datasets: dict[str, Value] = {}
    attrs: dict[str, dict[str, Any]] = {}
    checksums = False
    size = 0
    waiting: list[tuple[str, Group]] = [("", group)]
    while waiting:
        prefix, folder = waiting.pop()
        for key, child in folder.items():
            path = prefix + key
            if child.attrs:
                attrs[path] = dict(child.attrs)
            if isinstance(child, Dataset):
                datasets[path], nbytes = _values(child)
                size += nbytes
                checksums |= any(each.number == FLETCHER32 for each in child.filters)
            else:
                datasets.setdefault(path)
                waiting.append((f"{path}/", child))
    file.add_group(name, datasets, dict(group.attrs), attrs, storage=Storage(checksum=checksums))
    return size


def _values(dataset: Dataset) -> tuple[Value, int]:
    """The values of a dataset, as `Appender` takes them, and their size."""
    if dataset.kind in ("vlen", "vlen_string"):
        items = dataset.read_list()
        texts = [item.decode("utf-8", "surrogateescape") for item in items] if dataset.kind == "vlen_string" else None
        return VlenBytes(items) if texts is None else texts, sum(map(len, items))
    array = dataset.read()
    return array, array.nbytes
