"""`penstock index`: build the index of a dataset ahead of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.cli.options import In, Storage, pairs
from penstock.cli.show import Json, print_json, size
from penstock.core.text import counted
from penstock.data.located import DatasetFiles, locate
from penstock.errors import FormatError
from penstock.formats.minari import index_cache
from penstock.formats.minari.arrow_source import ArrowSource
from penstock.formats.minari.hdf5_source import Hdf5Source
from penstock.formats.minari.place import place as minari_place
from penstock.formats.webdataset import index as shard_index
from penstock.formats.webdataset.source import ShardSource


def index(
    location: In,
    force: Annotated[bool, typer.Option("--force", help="Build the index again, even if it is up to date.")] = False,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Build the index of a dataset ahead of time, so that opening it is quick.

    Tar shards and large Minari datasets have an index in the user's cache. Other formats need none.

    Example: penstock index ./shards --force
    """
    located = locate(location, storage_options=pairs(storage, "--storage"))
    for summary in [_summary(each, force=force) for each in located.datasets]:
        print_json(summary) if as_json else _print(summary)


def _summary(dataset: DatasetFiles, *, force: bool) -> dict[str, Any]:
    name = dataset.format.name
    if name == "webdataset":
        summary = _of_shards(dataset, force=force)
    elif name == "minari":
        summary = _of_minari(dataset.paths[0], force=force)
    else:
        with dataset.open() as source:
            summary = {"episodes": len(source), "steps": source.steps, "index": None, "made": False}
    return {"path": str(dataset), "format": name, **summary}


def _print(summary: dict[str, Any]) -> None:
    where = summary["index"]
    said = "needs no index" if where is None else f"index {'made' if summary['made'] else 'was there'}: {where}"
    counts = f"{counted(summary['episodes'], 'episode')}, {counted(summary['steps'], 'step')}"
    Console(soft_wrap=True).print(f"{summary['path']} ({summary['format']}): {counts}; {said}", highlight=False)


class _Indexed(ShardSource):
    """Shards whose index is saved even for few members."""

    def keep(self) -> None:
        """Write the index. Raises `OSError` where the cache folder cannot be written."""
        shard_index.save(self.index_file, self._state_key(), self.state.content)

    @property
    def is_kept(self) -> bool:
        """Return whether the cache has an index of this state."""
        return shard_index.load(self.index_file, self._state_key()) is not None

    def _state_key(self) -> str:
        return shard_index.state_of(self._key, self.shards, self.state.archives.buffers)


def _of_shards(dataset: DatasetFiles, *, force: bool) -> dict[str, Any]:
    if force:
        shard_index.place(dataset.paths[0] if len(dataset.paths) == 1 else dataset.paths).unlink(missing_ok=True)
    with _Indexed(dataset.paths) as source:
        place = source.index_file
        is_new = force or not source.is_kept
        if is_new:
            source.keep()
        counts = {"episodes": len(source), "steps": source.steps, "samples": len(source.samples)}
        shards = {"shards": len(source.shards), "layout": source.layout}
    return {**counts, **shards, "index": str(place), "index_size": size(place.stat().st_size), "made": is_new}


def _of_minari(path: Path, *, force: bool) -> dict[str, Any]:
    """Open the dataset, which saves the index of a large dataset."""
    folder, main = minari_place(path)
    place = index_cache.place((folder / main if main is not None else folder).absolute(), "user")
    if place is None:
        raise FormatError("expected a folder for the index, got none; set PENSTOCK_CACHE", path=path)
    if force:
        place.unlink(missing_ok=True)
    before = place.stat().st_mtime_ns if place.exists() else None
    with Hdf5Source(folder, main) if main is not None else ArrowSource(folder) as source:
        counts = {"episodes": len(source), "steps": source.steps}
    kept = place.exists()
    is_new = kept and place.stat().st_mtime_ns != before
    return {**counts, "index": str(place) if kept else None, "made": is_new}
