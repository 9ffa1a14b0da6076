"""Datasets in the making: hidden directories that become datasets in one step, and their first data file."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium

from penstock.containers.hdf5 import File
from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError
from penstock.files import move, scratch_folder, sync
from penstock.formats.minari import columns, ids, metadata, writing
from penstock.formats.minari.format import MinariFormat
from penstock.formats.minari.hdf5_index import MAIN
from penstock.formats.minari.hdf5_source import ROOT_MARKS, read_attributes
from penstock.recording.spaces import to_gymnasium
from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path

_FORMAT = MinariFormat()


@contextmanager
def building(path: Path) -> Generator[Path]:
    """Yield a data directory to fill, in a hidden directory of the root; at the end it becomes the dataset at `path`.

    If filling it fails, it is removed.
    """
    with scratch_folder(get_dataset_path() / path.name) as scratch:
        staging = scratch / "made"
        (staging / ids.DATA).mkdir(parents=True)
        yield staging / ids.DATA
        install(staging, path)


def install(staging: Path, path: Path) -> None:
    """Make a filled directory the dataset at `path`, and its namespaces exist."""
    namespace = ids.parse(ids.id_of(path, get_dataset_path())).namespace
    ids.ensure_namespace(namespace, get_dataset_path())
    if path.exists():
        raise DataError(f"expected a free place for the dataset, got {path}; choose another name or version")
    move(staging, path)
    sync(path.parent)


def has_data(data: Path) -> bool:
    """Return whether a data directory has a place for episodes in addition to its metadata.

    An HDF5 file of no bytes is how other writers begin.
    """
    main = data / MAIN
    if main.exists():
        return main.stat().st_size > 0
    return any(child.is_dir() and child.name.isdigit() for child in data.iterdir())


def begin_data(data: Path, spec: Spec, data_format: str, images: writing.Images) -> None:
    """Put an empty data file for episodes of `spec` into a data directory, whose metadata stays as it is."""
    with scratch_folder(data / "new") as scratch:
        _FORMAT.create(scratch / "new", spec, data_format=data_format, images=images).close()
        for child in (scratch / "new" / ids.DATA).iterdir():
            if child.name != metadata.FILE:
                move(child, data / child.name, overwrite=child.is_file())


def empty_spec(observation_space: Space, action_space: Space) -> Spec:
    """Return the columns of a dataset without episodes."""
    return Spec(columns.of_spaces(observation_space, action_space), observation_space, action_space)


def legacy_metadata(data: Path) -> dict[str, Any]:
    """Return the metadata entries of a dataset of 0.4, which stores them at the root of its file."""
    if not (data / MAIN).is_file() and not (data / metadata.FILE).exists():
        raise DataError(f"No data found in data path {data}")
    entries: dict[str, Any] = {}
    if (data / MAIN).is_file() and (data / MAIN).stat().st_size:
        with File(data / MAIN) as file:
            entries = read_attributes(file)
    if not any(name in entries for name in ROOT_MARKS):
        raise FormatError(
            "expected metadata, got none, probably because of a killed writer; rebuild it with "
            "penstock.formats.minari.recover.rebuild_metadata",
            path=data / metadata.FILE,
        )
    return {**entries, "data_format": "hdf5", "jpeg_encoding": False}


def widest_spaces(data: Path) -> list[gymnasium.Space[Any]]:
    """Spaces for a dataset whose metadata lacks them: the widest that its columns can come from."""
    with _FORMAT.open(data, infos="skip") as source:
        spec = columns.check_columns(source.spec)
    return [to_gymnasium(space) for space in (spec.observation_space, spec.action_space) if space is not None]
